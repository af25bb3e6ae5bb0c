"""Trials of private Bayesian logistic regression: one draw of the weights per trial, evaluated on test records.

Trials with the same setting and records are divided into groups of `N_GROUPED`. A group takes its draws from one set of
chains, so that the search for the mode and the burn-in are run once per group. Successive draws from a chain are many
autocorrelation times apart and are treated as independent. The group of a trial depends on its index only.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_expit

from mechanisms.glm.mechanisms import GlmMechanism, GlmMethod, glm_mechanism
from mechanisms.glm.sampling import STEPS_PER_PRODUCT, laplace_approximation, sample_glm
from pipeline import Streams
from studies.data import Classification, Table, load, split
from studies.panels import Values

Array = NDArray[np.float64]

N_GROUPED = 25
"""Number of trials on the same records that share a set of chains."""

LARGEST_RHAT = 1.01
"""Split R-hat below which chains have converged, for the log posterior and random projections of the weights."""

LEAST_ESS = 400
"""Smallest accepted bulk effective sample size of a set of chains, for the same quantities."""

LABELS = {
    "abalone": "Abalone, fewer than 10 rings",
    "adult": "Adult, income above 50K",
    "mnist": "MNIST, digit 8 against 3",
}
"""Data sets of P3, with the class that is predicted."""

_N_CHAINS = 5
_N_PROJECTIONS = 10
_N_BURN_IN = 8 * STEPS_PER_PRODUCT
_FIRST_STEPS = 50 * STEPS_PER_PRODUCT
_MOST_STEPS = 64 * _FIRST_STEPS


@dataclass(frozen=True)
class Group:
    """Consecutive trials that share records and chains."""

    data: Classification
    trials: range


@dataclass(frozen=True)
class Sampled:
    """Draws from one set of chains, with convergence diagnostics."""

    weights: Array  # shape (draws, d)
    rhat: float  # largest split R-hat over all monitored quantities
    ess: float  # smallest bulk effective sample size over them
    n_steps: int  # per chain, over which the diagnostics were computed

    @property
    def problem(self) -> str:
        """Error message if the chains did not converge, otherwise the empty string."""
        if self.rhat < LARGEST_RHAT and self.ess >= LEAST_ESS:
            return ""
        return (
            f"the chains did not converge in {self.n_steps:,} steps: split R-hat must be < {LARGEST_RHAT}, got "
            f"{self.rhat:.3f}, and effective sample size >= {LEAST_ESS}, got {self.ess:.0f}; increase beta"
        )


def draw_weights(rng: np.random.Generator, data: Classification, mechanism: GlmMechanism, n_draws: int) -> Sampled:
    """Run chains until they converge, and return widely spaced draws from the last run.

    Each run is twice as long as the previous one, which is discarded as burn-in. `rng` is used by these chains only.
    Only the training records are used. Draws are taken from the chains in turn.
    """
    X, y = data.train_x, data.train_y.astype(np.float64)
    approximation = laplace_approximation(X, y, mechanism)
    projections = rng.standard_normal((X.shape[1], _N_PROJECTIONS))
    last = sample_glm(rng, X, y, mechanism, approximation, _N_BURN_IN, n_chains=_N_CHAINS).weights[:, -1]
    n_steps = _FIRST_STEPS
    while True:
        monitored = np.empty((1 + _N_PROJECTIONS, _N_CHAINS, n_steps))
        taken = n_steps * np.arange(1, 1 + -(-n_draws // _N_CHAINS)) // -(-n_draws // _N_CHAINS) - 1
        kept = []
        for first in range(0, n_steps, _FIRST_STEPS):  # the draws of a whole run would not fit into memory
            draws = sample_glm(rng, X, y, mechanism, approximation, _FIRST_STEPS, n_chains=_N_CHAINS, start=last)
            last = draws.weights[:, -1]
            monitored[0, :, first : first + _FIRST_STEPS] = draws.log_density
            monitored[1:, :, first : first + _FIRST_STEPS] = np.moveaxis(draws.weights @ projections, -1, 0)
            here = taken[(taken >= first) & (taken < first + _FIRST_STEPS)] - first
            kept.append(np.moveaxis(draws.weights[:, here], 1, 0))
        rhat, ess = _diagnose(monitored)
        sampled = Sampled(np.concatenate(kept).reshape(-1, X.shape[1])[:n_draws], rhat, ess, n_steps)
        if not sampled.problem or n_steps >= _MOST_STEPS:
            return sampled
        n_steps *= 2


def _diagnose(monitored: Array) -> tuple[float, float]:
    """Return the largest split R-hat and the smallest bulk ESS of quantities with shape (quantity, chain, step)."""
    from arviz_stats.base import array_stats  # slow import (1 s), not needed by `dpstudies list`

    rhat = array_stats.rhat(monitored, chain_axis=-2, draw_axis=-1, method="split")
    ess = array_stats.ess(monitored, chain_axis=-2, draw_axis=-1, method="bulk")
    return float(np.max(rhat)), float(np.min(ess))


split_once = lru_cache(maxsize=4)(split)
"""Function that splits a table once per process."""


def group_trials(table: Table, streams: Streams, size: int = N_GROUPED) -> list[Group]:
    """Return the complete groups of `size` trials that contain the trials of `streams`, on the fixed split."""
    first = streams.trials.start - streams.trials.start % size
    data = split_once(table)
    return [Group(data, range(start, start + size)) for start in range(first, streams.trials.stop, size)]


def simulate_fixed(name: str, size: int = N_GROUPED) -> Callable[[Values, Streams], list[Group]]:
    """Return a function that groups trials on the fixed split of one of the data sets of P3."""
    return lambda cell, streams: group_trials(load(name), streams, size)


def evaluate_draws(method: GlmMethod, groups: list[Group], setting: Values, streams: Streams) -> dict[str, Any]:
    """Return the measures of one mechanism; the setting contains ``beta`` and what the mechanism uses."""
    rows: list[tuple[Any, ...]] = []
    for group in groups:
        mechanism = make_mechanism(method.name, len(group.data.train_y), setting)
        rng = next(streams.single(group.trials.start).generators())
        sampled = draw_weights(rng, group.data, mechanism, len(group.trials))
        scores = zip(group.trials, *_score(sampled.weights, group.data), strict=True)
        same = sampled.rhat, sampled.ess, sampled.problem
        rows += [(error, nll, *same) for trial, error, nll in scores if trial in streams.trials]
    data = groups[0].data
    n_train, n_columns = data.train_x.shape
    found = by_measure(("test_error", "test_nll", "rhat", "ess", "error"), rows)
    return {**found, "n_train": n_train, "n_columns": n_columns, "data_digest": int(data.digest[:15], 16)}


def by_measure(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, list[Any]]:
    """Return the values of each measure, given one row of values per trial."""
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))


def make_mechanism(name: str, n: int, setting: Values) -> GlmMechanism:
    """Return a mechanism; unused parameters are set to 1."""
    return glm_mechanism(name, n, setting["beta"], setting.get("order", 1.0), setting.get("epsilon", 1.0))


def _score(weights: Array, data: Classification) -> tuple[Array, Array]:
    """Return the test error of each draw, and its mean negative log-likelihood on the test records."""
    predictors = weights @ data.test_x.T
    signs = np.where(data.test_y > 0, 1.0, -1.0)
    wrong = (predictors > 0) != (data.test_y > 0)
    return wrong.mean(axis=1), -log_expit(predictors * signs).mean(axis=1)
