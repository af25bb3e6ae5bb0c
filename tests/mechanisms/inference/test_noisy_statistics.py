"""Tests of the distribution of noisy statistics, and of their exact privacy loss in every family."""

import math

import numpy as np
import pytest
from scipy import stats

from mechanisms.inference.families import FAMILIES
from mechanisms.inference.noisy_statistics import laplace_scale, release_statistics, validate_noise_scale
from tests.statistical import assert_mean_within

# Bounds, and the two records whose exchange changes the statistic most.
WORST = {
    "binomial": (None, 0, 1),
    "multinomial": (None, (1, 0, 0), (0, 0, 1)),
    "exponential": ((0.5, 2.0), 2.0, 3.0),
    "poisson": ((1, 4), 4, 0),
    "normal": ((-1.0, 2.0), -1.0, 2.0),
}
OTHERS = {name: [second] * 3 for name, (_, _, second) in WORST.items()}


def largest_loss(name, noise_scale):
    """Return the loss sup_y ln p(y|s)/p(y|s') = |s − s'|/b for the most distant neighbouring statistics s and s'."""
    bounds, first, second = WORST[name]
    _, s = FAMILIES[name].statistics([first, *OTHERS[name]], bounds)
    _, neighbour = FAMILIES[name].statistics([second, *OTHERS[name]], bounds)
    y = np.stack([s, neighbour, s - 100.0, s + 100.0])
    attained = stats.laplace.logpdf(y, s, noise_scale) - stats.laplace.logpdf(y, neighbour, noise_scale)
    closed_form = np.abs(s - neighbour).sum() / noise_scale
    assert np.abs(attained).max(axis=0).sum() == pytest.approx(closed_form, rel=1e-9)
    return closed_form


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 3.0])
@pytest.mark.parametrize("name", FAMILIES)
def test_privacy_loss_equals_budget(name, epsilon):
    sensitivity = FAMILIES[name].sensitivity(WORST[name][0])
    assert largest_loss(name, laplace_scale(sensitivity, epsilon)) == pytest.approx(epsilon, rel=1e-12)
    assert largest_loss(name, laplace_scale(0.95 * sensitivity, epsilon)) > epsilon * 1.05


def test_noise_is_laplace_and_independent():
    statistics = np.tile([10.0, -3.0], (20_000, 1))
    noise = release_statistics(np.random.default_rng(4), statistics, sensitivity=2.0, epsilon=0.5) - statistics
    for component in noise.T:
        assert stats.kstest(component, stats.laplace(scale=4.0).cdf).pvalue > 1e-6
        assert_mean_within(np.abs(component), 4.0)
        with pytest.raises(AssertionError, match="is not within"):
            assert_mean_within(np.abs(component), 4.2)
    assert_mean_within(noise[:, 0] * noise[:, 1], 0.0)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_invalid_arguments_raise(bad):
    rng = np.random.default_rng(1)
    with pytest.raises(ValueError, match="sensitivity must be a finite number > 0"):
        release_statistics(rng, [1.0], bad, 1.0)
    with pytest.raises(ValueError, match="epsilon must be a finite number > 0"):
        release_statistics(rng, [1.0], 1.0, bad)
    with pytest.raises(ValueError, match="noise_scale must be a finite number > 0"):
        validate_noise_scale(bad)
    if not math.isfinite(bad):
        with pytest.raises(ValueError, match="statistics must be finite"):
            release_statistics(rng, [1.0, bad], 1.0, 1.0)
