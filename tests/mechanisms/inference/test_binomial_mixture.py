"""Tests of the exact binomial posterior against quadrature, and of the method `marginal` against this posterior."""

import mpmath
import numpy as np
import pytest
from scipy import integrate, special, stats

from tests.mechanisms.inference.enumeration import binomial_mixture
from tests.mechanisms.inference.laplace import marginal_posterior
from tests.mechanisms.refusals import assert_refused


def bayes_cdf(prior, n, y, noise_scale, theta):
    """Return Pr[θ ≤ theta | y] by integrating the prior times the likelihood, which is a sum over counts."""
    s = np.arange(n + 1)

    def joint(t):
        return stats.beta.pdf(t, *prior) * np.sum(stats.binom.pmf(s, n, t) * stats.laplace.pdf(y, s, noise_scale))

    parts = [integrate.quad(joint, low, high, epsabs=0, epsrel=1e-11)[0] for low, high in ((0, theta), (theta, 1))]
    return parts[0] / sum(parts)


@pytest.mark.parametrize(
    ("prior", "n", "y", "noise_scale"),
    [
        ((10.0, 10.0), 12, 3.4, 1.0),
        ((2.0, 5.0), 12, -20.0, 10.0),
        ((1.0, 1.0), 40, 55.0, 2.0),
        ((3.0, 1.5), 1, 0.2, 0.3),
    ],
)
def test_cdf_equals_integral_of_prior_times_likelihood(prior, n, y, noise_scale):
    posterior = binomial_mixture(prior, n, y, noise_scale)
    theta = np.array([0.1, 0.35, 0.6, 0.9])
    expected = [bayes_cdf(prior, n, y, noise_scale, t) for t in theta]
    np.testing.assert_allclose(posterior.cdf(theta), expected, rtol=1e-9, atol=1e-13)
    assert posterior.cdf(0.0) == 0.0
    assert posterior.cdf(1.0) == pytest.approx(1.0, rel=1e-12)
    mean = integrate.quad(lambda t: 1 - posterior.cdf(t), 0, 1, epsabs=1e-11)[0]
    assert posterior.mean() == pytest.approx(mean, rel=1e-9)


def test_weights_equal_mpmath_for_many_records():
    n, y, noise_scale = 100_000, 48_000.3, 10.0
    posterior = binomial_mixture((10, 10), n, y, noise_scale)
    assert posterior.weights.sum() == pytest.approx(1.0, rel=1e-12)
    with mpmath.workdps(40):
        chosen = [47_800, 47_990, 48_000, 48_001, 48_400]
        exact = [
            mpmath.binomial(n, s)
            * mpmath.beta(10 + s, 10 + n - s)
            * mpmath.exp(-abs(mpmath.mpf(y) - s) / mpmath.mpf(noise_scale))
            for s in chosen
        ]
        ratios = [float(weight / exact[2]) for weight in exact]
    found = posterior.weights[np.searchsorted(posterior.counts, chosen)]
    np.testing.assert_allclose(found / found[2], ratios, rtol=1e-8)


def test_dropped_weight_is_below_stated_bound():
    n, y, noise_scale = 3000, 1200.0, 2.0
    posterior = binomial_mixture((10, 10), n, y, noise_scale)
    assert posterior.counts.size < n / 2
    s = np.arange(n + 1)
    weights = stats.betabinom.pmf(s, n, 10, 10) * np.exp(-np.abs(y - s) / noise_scale)
    dropped = np.setdiff1d(s, posterior.counts)
    assert weights[dropped].sum() / weights.sum() < (n + 1) * 1e-18


def largest_distance(n, epsilon, y):
    """Return, for each noisy count, the largest difference between `marginal` and the exact cdf under Beta(10, 10)."""
    approximate = marginal_posterior("binomial", (10, 10), n, y, 1 / epsilon)
    grid, distances = approximate.grid, []
    for trial, value in enumerate(y):
        exact = binomial_mixture((10, 10), n, value, 1 / epsilon)
        theta = np.interp(np.linspace(1e-3, 1 - 1e-3, 80), grid.cdf[trial], special.expit(grid.points[trial]))
        distances.append(np.abs(exact.cdf(theta) - approximate.cdf(np.tile(theta, (len(y), 1)))[trial]).max())
    return np.array(distances)


def typical_counts(n, epsilon, trials):
    rng = np.random.default_rng(17)
    return rng.binomial(n, rng.beta(10, 10, trials)) + rng.laplace(scale=1 / epsilon, size=trials)


@pytest.mark.parametrize(("n", "epsilon"), [(100, 0.01), (100, 0.1), (1000, 0.01), (1000, 0.1), (10_000, 0.1)])
def test_marginal_is_accurate_for_large_noise(n, epsilon):
    assert largest_distance(n, epsilon, typical_counts(n, epsilon, 12)).max() < 0.003


def test_error_of_marginal_for_small_noise():
    """If the noise is no wider than the distribution of the count, cdfs by `marginal` have errors of 0.001 to 0.06."""
    for n in (10, 100):
        distances = largest_distance(n, 1.0, typical_counts(n, 1.0, 60))
        assert 0.001 < distances.mean() < 0.01
        assert distances.max() < 0.06


def test_probabilities_outside_the_unit_interval_are_refused():
    assert_refused(lambda: binomial_mixture((1, 1), 3, 1.0, 1.0).cdf([0.5, 1.5]), r"theta must be in \[0, 1\]")
