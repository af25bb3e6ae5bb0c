"""Components of parameters, and tests of uniformity of their quantiles and ranks, shared by the calibration studies."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pipeline import Factor, Statistic
from studies.claims import ks_distance, ks_p_value
from studies.inference.noisy_trials import N_RANKED, Array

_LEVELS = Factor("level", tuple(round(0.01 * i, 2) for i in range(101)), "quantile level")
_BINS = Factor("rank_bin", tuple(range(20)), "bin of five ranks", "int")


def _rank_p_value(ranks: Array) -> float:
    """Return the p-value of a chi-square test that ranks are uniform on 0 to 99, in bins of five ranks."""
    from scipy.stats import chisquare

    return float(chisquare(_histogram(ranks) * ranks.size).pvalue)


def _histogram(ranks: Array) -> Array:
    """Return the fraction of ranks in each bin."""
    width = (N_RANKED + 1) / len(_BINS.values)
    return np.bincount((ranks // width).astype(int), minlength=len(_BINS.values)) / ranks.size


PIT_STATISTICS = (
    Statistic(
        "ks",
        "pit",
        "Kolmogorov-Smirnov distance of the quantiles to the uniform distribution",
        ks_distance,
    ),
    Statistic("p", "pit", "p-value of the Kolmogorov-Smirnov test", ks_p_value),
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
)
"""Statistics of the measure `pit`: tests against the uniform distribution, and the distribution function."""

RANK_STATISTICS = (
    Statistic("p", "rank", "p-value of the chi-square test of uniform ranks", _rank_p_value),
    Statistic("histogram", "rank", "fraction of ranks in the bin", _histogram, axis=_BINS),
)
"""Statistics of the measure `rank` among 99 draws: test against the uniform distribution, and the histogram."""


def components(p: int, meaning: str) -> tuple[tuple[str, ...], tuple[Factor, ...]]:
    """Return the dimensions of the measures of p parameters, and the dimension of outputs; none for a single one."""
    factor = Factor("component", tuple(range(p)), meaning, "int")
    return (("component",), (factor,)) if p > 1 else ((), ())


def require_components(cell: Mapping[str, Any], p: int) -> None:
    """Raise ValueError unless a cell has the components of p parameters in order."""
    wanted = list(range(p))
    if p > 1 and list(cell["component"]) != wanted:
        raise ValueError(f"component must be {wanted}, one value per parameter, got {list(cell['component'])}")
