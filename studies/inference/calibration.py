"""Calibration of posteriors from noisy statistics, by the quantiles of Cook et al. (P4, Figure 1) and by ranks.

In each trial, θ is drawn from the prior, the records from θ, and the noisy statistics from the records. Every method
infers θ from its input. If its posterior is correct, the posterior quantile of the true θ is uniform.

Panels are `binomial`, `multinomial` and three panels of the exponential model, whose sum needs bounds of a record. The
bounds are public in `exponential` (central 95 % interval of a record at the prior mean) and in `exponential-wide`
(central 95 % interval of Exp(1), with another prior). `exponential-paper-bounds` uses the bounds of the paper's
experiment, the central 95 % interval of a record at the true θ of the trial. These bounds are not available in practice
and depend on θ; no method models that dependence, so no method is exactly calibrated there.

References
----------
P4: Bernstein & Sheldon, "Differentially Private Bayesian Inference for Exponential Families", NeurIPS 2018.
Cook, Gelman & Rubin, "Validation of software for Bayesian models using posterior quantiles", JCGS 15(3), 2006.
Talts, Betancourt, Simpson, Vehtari & Gelman, "Validating Bayesian inference algorithms with simulation-based
calibration", 2018.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from mechanisms.inference.families import FAMILIES
from mechanisms.inference.marginal import validate_marginal_prior
from mechanisms.inference.noisy_statistics import laplace_scale
from mechanisms.privacy import validate_size
from pipeline import Factor, Measure, Method, Panel, Statistic, Study
from studies.inference.calibration_claims import CLAIMS, FIGURES, LARGEST_RHAT
from studies.inference.formula_errata import ERRATA
from studies.inference.noisy_trials import (
    BINOMIAL_METHODS,
    MULTINOMIAL_METHODS,
    N_RANKED,
    TRUNCATED_METHODS,
    Array,
    simulate_trials,
)

_LEVELS = Factor("level", tuple(round(0.01 * i, 2) for i in range(101)), "quantile level")
_BINS = Factor("rank_bin", tuple(range(20)), "bin of five ranks", "int")


# Panels


def _test_uniformity(quantiles: Array) -> Any:
    """Return the Kolmogorov-Smirnov test of quantiles against the uniform distribution."""
    from scipy.stats import kstest  # slow import (0.5 s), not needed by `dpstudies list`

    return kstest(quantiles, "uniform")


def _rank_p_value(ranks: Array) -> float:
    """Return the p-value of the chi-square test of uniform ranks on 0 to 99, in bins of five."""
    from scipy.stats import chisquare

    return float(chisquare(_histogram(ranks) * ranks.size).pvalue)


def _histogram(ranks: Array) -> Array:
    """Return the fraction of ranks in each bin."""
    width = (N_RANKED + 1) / len(_BINS.values)
    return np.bincount((ranks // width).astype(int), minlength=len(_BINS.values)) / ranks.size


def _share_stuck(rhat: Array) -> float:
    """Return the fraction of trials with a large split R-hat; NaN for methods without chains."""
    return float(np.mean(rhat > LARGEST_RHAT)) if np.isfinite(rhat).any() else np.nan


def _least(ess: Array) -> float:
    """Return the smallest value, or NaN if there is none."""
    return float(np.nanmin(ess)) if np.isfinite(ess).any() else np.nan


_STATISTICS = (
    Statistic(
        "ks",
        "pit",
        "Kolmogorov-Smirnov distance of the quantiles to the uniform distribution",
        lambda u: _test_uniformity(u).statistic,
    ),
    Statistic("p", "pit", "p-value of the Kolmogorov-Smirnov test", lambda u: _test_uniformity(u).pvalue),
    Statistic(
        "tails",
        "pit",
        "fraction of quantiles outside [0.05, 0.95]; 0.1 if calibrated",
        lambda quantiles: np.mean(np.abs(quantiles - 0.5) > 0.45),
    ),
    Statistic(
        "ecdf",
        "pit",
        "empirical distribution function of the quantiles",
        lambda quantiles: np.searchsorted(np.sort(quantiles), _LEVELS.values, side="right") / quantiles.size,
        axis=_LEVELS,
    ),
    Statistic("stuck", "rhat", f"fraction of trials with split R-hat above {LARGEST_RHAT}", _share_stuck),
    Statistic("least", "ess", "smallest effective sample size among the trials", _least),
    Statistic("p", "rank", "p-value of the chi-square test of uniform ranks", _rank_p_value),
    Statistic("histogram", "rank", "fraction of ranks in the bin", _histogram, axis=_BINS),
)


def _panel(
    name: str,
    meaning: str,
    family: str,
    prior: tuple[float, ...],
    methods: tuple[Method, ...],
    bounds: tuple[float, float] | None = None,
    own_bounds: bool = False,
) -> Panel:
    model = FAMILIES[family]
    d = len(prior) if family == "multinomial" else 1
    dims = ("component",) if d > 1 else ()

    def validate(cell: Mapping[str, Any], setting: Mapping[str, Any]) -> bool:
        model.validate_prior(cell["prior"])
        if setting["algorithm"] == "marginal":
            validate_marginal_prior(family, cell["prior"])
        if d > 1 and cell["component"] != tuple(range(len(cell["prior"]))):
            raise ValueError(f"component must be 0 to {len(cell['prior']) - 1} in order, one per prior entry")
        limits = None if bounds is None else model.validate_bounds(cell["bounds"])
        validate_size(cell["n"])
        laplace_scale(model.sensitivity(limits), cell["epsilon"])
        return True

    constants = [Factor("prior", (prior,), "hyperparameters of the prior", "vector")]
    if bounds is not None:
        unit = "bounds in units of the mean record at the true parameter" if own_bounds else "public bounds of a record"
        constants.append(Factor("bounds", (bounds,), unit, "vector"))
    return Panel(
        name=name,
        meaning=meaning,
        simulate=simulate_trials(family, own_bounds),
        methods=methods,
        measures=(
            Measure("pit", "posterior quantile of the true parameter", dims=dims),
            Measure("rank", f"rank of the true parameter among {N_RANKED} draws", dims=dims),
            Measure("mmd2", "unbiased MMD^2 to draws of the non-private posterior", dims=dims),
            Measure("rhat", "split R-hat of the chains; missing for independent draws", dims=dims, ragged=True),
            Measure("ess", "effective sample size of the mean over chains", dims=dims, ragged=True),
        ),
        factors=(
            Factor("n", (10, 100, 1_000, 10_000, 100_000), "number of records", "int"),
            Factor("epsilon", (0.01, 0.1), "privacy loss", unit="nat"),
        ),
        outputs=(Factor("component", tuple(range(d)), "category of the multinomial", "int"),) if d > 1 else (),
        constants=tuple(constants),
        trials=1_000,
        block_trials=200,
        statistics=_STATISTICS,
        validate=validate,
    )


_UNIT_BOUNDS = (-math.log(0.975), -math.log(0.025))  # central 95 % interval of Exp(1)
_PANELS = (
    _panel("binomial", "Beta-binomial model (P4, Figure 1)", "binomial", (10.0, 10.0), BINOMIAL_METHODS),
    _panel(
        "multinomial", "Dirichlet-multinomial model (P4, Figure 1)", "multinomial", (5.0, 5.0, 5.0), MULTINOMIAL_METHODS
    ),
    _panel(
        "exponential",
        "Gamma-exponential model, public bounds from the prior mean (P4, Figure 1)",
        "exponential",
        (8.0, 2.0),
        TRUNCATED_METHODS,
        (_UNIT_BOUNDS[0] / 4, _UNIT_BOUNDS[1] / 4),
    ),
    _panel(
        "exponential-wide",
        "Gamma-exponential model, wider prior, public bounds from rate 1",
        "exponential",
        (3.0, 3.0),
        TRUNCATED_METHODS,
        _UNIT_BOUNDS,
    ),
    _panel(
        "exponential-paper-bounds",
        "Gamma-exponential model, bounds from the true rate of each trial, as in the paper's experiment",
        "exponential",
        (8.0, 2.0),
        TRUNCATED_METHODS,
        _UNIT_BOUNDS,
        own_bounds=True,
    ),
)

STUDY = Study(
    name="calibration",
    papers=("P4",),
    title="Calibration of inference from noisy statistics",
    aim="Test which methods have calibrated posteriors, for a range of sizes and privacy losses.",
    panels=_PANELS,
    seed=20_181_203,
    claims=CLAIMS,
    errata=ERRATA,
    figures=FIGURES,
)
