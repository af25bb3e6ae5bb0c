"""Monte Carlo assertions with computed standard errors and a stated false-alarm rate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike
from scipy import stats


def assert_mean_within(samples: ArrayLike, expected: float, n_se: float = 5.0, wrong: float | None = None) -> None:
    """Assert that the mean of independent samples is within `n_se` standard errors of `expected`, and not of `wrong`.

    At five standard errors, samples of the correct distribution fail once in 1.7 million runs.
    """
    values = np.asarray(samples, dtype=np.float64)
    assert values.ndim == 1, f"samples must be one-dimensional, got shape {values.shape}"
    assert values.size >= 100, f"at least 100 samples are needed for a normal mean, got {values.size}"
    mean, se = float(values.mean()), float(values.std(ddof=1) / np.sqrt(values.size))
    assert abs(mean - expected) <= n_se * se, (
        f"mean {mean:.6g} ± {se:.2g} (se) is not within {n_se} se of {expected:.6g}"
    )
    if wrong is not None:
        assert_rejects(assert_mean_within, values, wrong, n_se)


def assert_frequencies(
    counts: ArrayLike, probabilities: ArrayLike, level: float = 1e-6, wrong: ArrayLike | None = None
) -> None:
    """Assert that a chi-square test at `level` accepts `probabilities` for the observed `counts`, and rejects `wrong`.

    Outcomes with expected counts below ten are merged in order of probability, so that the chi-square distribution
    applies. Outcomes of probability zero must not occur. The weights `wrong` need not sum to one.
    """
    observed, distribution = np.asarray(counts, dtype=np.float64), np.asarray(probabilities, dtype=np.float64)
    assert observed.shape == distribution.shape, f"shapes differ: {observed.shape} and {distribution.shape}"
    assert abs(distribution.sum() - 1.0) < 1e-9, f"probabilities sum to {distribution.sum()}"
    assert not np.any(observed[distribution == 0]), "an outcome of probability zero occurred"
    order = np.argsort(distribution)
    expected = distribution[order] * observed.sum()
    groups = np.floor(np.cumsum(expected) / 10.0)
    starts = np.flatnonzero(np.diff(groups, prepend=-1.0))
    observed, expected = np.add.reduceat(observed[order], starts), np.add.reduceat(expected, starts)
    assert expected.size >= 2, "too few draws for a chi-square test"
    statistic = float(np.sum((observed - expected) ** 2 / expected))
    p_value = float(stats.chi2.sf(statistic, expected.size - 1))
    assert p_value >= level, f"chi-square {statistic:.1f} on {expected.size - 1} degrees of freedom, p = {p_value:.2g}"
    if wrong is not None:
        weights = np.asarray(wrong, dtype=np.float64)
        assert_rejects(assert_frequencies, counts, weights / weights.sum(), level)


def assert_rejects(check: Callable[..., None], *arguments: Any, **options: Any) -> None:
    """Assert that a statistical check fails for wrong samples or a wrong distribution (a negative control)."""
    with pytest.raises(AssertionError, match=r"chi-square|is not within"):
        check(*arguments, **options)
