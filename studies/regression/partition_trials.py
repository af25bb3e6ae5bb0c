"""Trials of regression from partitions of simulated rows, or of real rows divided at random.

The posterior given all rows and the posteriors given each partition are computed once per block for all methods, at
the cutoffs or probabilities of the panel. The released coefficient is the first slope.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.regression.partition_prior import SemiConjugatePrior, ZellnerPrior
from mechanisms.regression.posterior import coefficient_posterior
from mechanisms.regression.statistics import (
    RegressionStatistics,
    draw_partition,
    partition_sizes,
    partition_statistics,
    simulate_statistics,
)
from pipeline import Factor, Method, Streams
from studies.data.shipped import read_records
from studies.panels import Values, require

Array = NDArray[np.float64]

SLOPE = 1
"""Index of the released coefficient, the first after the intercept."""

ABALONE_COLUMNS = ("shell_weight", "shucked_weight")
"""Regressors of the abalone data."""


@dataclass(frozen=True)
class PartitionTrials:
    """Posterior summaries of a block at c cutoffs or probabilities."""

    full: Array  # given all rows, shape (trials, c)
    parts: Array  # given each partition, shape (trials, M, c)
    spreads: Array  # standard deviations given each partition, shape (trials, M)
    unit: float  # standard deviation given all rows; nominal for simulated rows


def full_method(measure: str, **others: Any) -> Method:
    """Return the method that evaluates the posterior given all rows, with which the other methods are compared."""
    return Method(
        "full", partial(_full, measure, others), note="Not private: the posterior given all rows.", is_private=False
    )


def _full(
    measure: str, others: Mapping[str, Any], trials: PartitionTrials, setting: Values, streams: Streams
) -> dict[str, Any]:
    constant = {name: np.full(trials.full.shape, value) for name, value in others.items()}
    return {measure: trials.full, "difference": np.zeros_like(trials.full), "spent": math.inf, **constant}


def row_factors(error_std: float, knowledge: str) -> tuple[Factor, ...]:
    """Return the constants that determine simulated rows."""
    return (
        Factor("n", (100_000,), "number of rows", "int"),
        Factor("coefficients", ("1:2",), "true intercept and slopes", "vector"),
        Factor("error_std", (error_std,), f"standard deviation of the errors, {knowledge} to the methods"),
    )


def check_rows(cell: Values) -> NDArray[np.int64]:
    """Return valid sizes of the partitions of simulated rows or, if a cell has no n, of the abalone data."""
    if "n" in cell:
        n, bound, n_coefficients = cell["n"], ">=", len(cell["coefficients"])
        requirement = "coefficients must be an intercept and a slope, such as 1:2"
        require(n_coefficients >= 2, requirement, cell["coefficients"])
        require(cell["error_std"] > 0, "error_std must be > 0", cell["error_std"])
    else:
        n, bound, n_coefficients = len(read_abalone()[1]), ">", 1 + len(ABALONE_COLUMNS)
    sizes = partition_sizes(n, cell["partition_size"])
    requirement = f"partition_size must be {bound} the number of coefficients, {n_coefficients}"
    is_large = sizes.min() >= n_coefficients + (bound == ">")
    require(is_large, requirement, cell["partition_size"], "increase partition_size")
    return sizes


@cache  # one table, read once per process
def read_abalone() -> tuple[Array, Array]:
    """Return the columns, shape (4177, 2), and the rings, shape (4177,), of the abalone data."""
    frame = read_records("abalone")
    return frame[list(ABALONE_COLUMNS)].to_numpy(np.float64), frame["rings"].to_numpy(np.float64)


def _whole_abalone() -> RegressionStatistics:
    x, rings = read_abalone()
    return partition_statistics(x, rings, np.zeros(len(rings), dtype=np.int64))[0]


def _block(
    cell: Values, streams: Streams, state: Callable[[RegressionStatistics], tuple[Array, Array, Array]], unit: float
) -> PartitionTrials:
    """Compute the posteriors of one trial at a time, because sums over stacked trials are rounded differently."""
    sizes, states = check_rows(cell), []
    for rng in streams.generators():
        if "n" in cell:
            rows = simulate_statistics(rng, sizes, cell["coefficients"], cell["error_std"])
        else:
            x, rings = read_abalone()
            rows = partition_statistics(x, rings, draw_partition(rng, len(rings), cell["partition_size"]))
        states.append(state(rows))
    full, parts, spreads = (np.stack(arrays) for arrays in zip(*states, strict=True))
    return PartitionTrials(full, parts, spreads, unit)


def _nominal_sd(cell: Values) -> float:
    """Return the nominal posterior standard deviation σ/√n of the slope given n rows with x ~ N(0, 1)."""
    return float(cell["error_std"] / np.sqrt(cell["n"]))


def simulate_probabilities(partition_g: str, cell: Values, streams: Streams) -> PartitionTrials:
    """Simulate trials of P2, chapter 3, with Zellner's g named `partition_g` in the partitions of simulated rows."""
    if "n" in cell:
        known, variance = None, cell["error_std"] ** 2
        prior, part_prior = (ZellnerPrior(cell[g]) for g in ("n", partition_g))
        centre, unit = cell["coefficients"][SLOPE], _nominal_sd(cell)
    else:
        abalone, variance = _whole_abalone(), None
        prior = part_prior = ZellnerPrior(float(abalone.n_rows))
        known = coefficient_posterior(abalone, SLOPE, prior)
        centre, unit = known.mean(), float(known.std())
    cutoffs = centre + unit * np.array(cell["cutoff"])

    def state(rows: RegressionStatistics) -> tuple[Array, Array, Array]:
        full = coefficient_posterior(rows.pool(), SLOPE, prior, variance) if known is None else known
        parts = coefficient_posterior(rows, SLOPE, part_prior, variance)
        return full.cdf(cutoffs), parts.cdf(cutoffs), parts.std()

    return _block(cell, streams, state, unit)


def simulate_quantiles(cell: Values, streams: Streams) -> PartitionTrials:
    """Simulate trials of P2, chapter 4: semi-conjugate prior, unknown variance, likelihoods to the power n/nⱼ."""
    prior = SemiConjugatePrior(0.0, 1.0 / cell["prior_variance"], *cell["variance_prior"])

    def state(rows: RegressionStatistics) -> tuple[Array, Array, Array]:
        full = coefficient_posterior(rows.pool(), SLOPE, prior)
        parts = coefficient_posterior(rows, SLOPE, prior, power=rows.n_rows.sum() / rows.n_rows)
        return full.quantile(cell["p"]), parts.quantile(cell["p"]), parts.std()

    is_real = "n" not in cell
    unit = float(coefficient_posterior(_whole_abalone(), SLOPE, prior).std()) if is_real else _nominal_sd(cell)
    return _block(cell, streams, state, unit)
