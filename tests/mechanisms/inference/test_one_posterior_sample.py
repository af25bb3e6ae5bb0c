"""Tests of draws from tempered posteriors against mpmath, and of their privacy loss against density ratios."""

import math
from functools import partial

import mpmath
import numpy as np
import pytest
from scipy import stats

from mechanisms.inference.one_posterior_sample import EDGE, N_DRAWS, OnePosteriorSampling
from tests.mechanisms.marks import exhaustive
from tests.mechanisms.refusals import assert_refused
from tests.statistical import assert_mean_within

METHODS = ["ops", "ops-likelihood"]
LOG_ODDS = math.log(9)


def one_posterior_sampling(method, prior, n, epsilon):
    return OnePosteriorSampling(prior, n, epsilon, method == "ops")


def log_densities(mechanism, theta):
    """Return the log density of a draw at `theta` for each of the n + 1 data sets, normalised by quadrature."""
    alpha, beta = mechanism.prior
    nodes, weights = np.polynomial.legendre.leggauss(200)
    grid = 0.5 + 0.4 * nodes
    counts = np.arange(mechanism.n + 1)[:, None]

    def plain(t):
        likelihood = counts * np.log(t) + (mechanism.n - counts) * np.log1p(-t)
        prior = (alpha - 1) * np.log(t) + (beta - 1) * np.log1p(-t)
        return mechanism.power * likelihood + (mechanism.power if mechanism.tempers_prior else 1.0) * prior

    return plain(theta) - np.log(0.4 * np.exp(plain(grid)) @ weights)[:, None]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("prior", [(10.0, 10.0), (1.0, 1.0), (0.3, 4.0)])
@pytest.mark.parametrize(("n", "epsilon"), [(1, 1.0), (12, 30.0), (200, 0.5), (60, 1000.0)])
def test_loss_equals_largest_density_ratio(method, prior, n, epsilon):
    mechanism = one_posterior_sampling(method, prior, n, epsilon)
    theta = np.concatenate([[EDGE, 1 - EDGE], np.linspace(EDGE, 1 - EDGE, 301)])
    audited = N_DRAWS * np.abs(np.diff(log_densities(mechanism, theta), axis=0)).max()
    assert mechanism.loss() == pytest.approx(audited, rel=1e-9)
    assert audited <= mechanism.guarantee.epsilon <= epsilon * (1 + 1e-15)


def test_five_percent_more_power_exceeds_guarantee():
    valid, invalid = (one_posterior_sampling("ops", (10, 10), 100_000, 2 * LOG_ODDS * power) for power in (0.5, 0.525))
    stated = valid.guarantee.epsilon
    assert 0.99 * stated < valid.loss() <= stated < 1.04 * stated < invalid.loss()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n", [1, 100, 100_000])
def test_loss_increases_with_power_within_guarantee(method, n):
    mechanisms = [one_posterior_sampling(method, (2, 3), n, epsilon) for epsilon in (0.01, 0.1, 1.0, 10.0, 439.4, 1e6)]
    losses = [mechanism.loss() for mechanism in mechanisms]
    assert all(np.diff(losses) > -1e-9)
    assert all(mechanism.loss() <= mechanism.guarantee.epsilon for mechanism in mechanisms)
    assert mechanisms[-1].power == 1.0
    assert mechanisms[1].power == pytest.approx(0.001 / (2 * LOG_ODDS), rel=1e-14)


def test_tempered_parameters_follow_definition():
    tempered = one_posterior_sampling("ops", (10, 4), 100, 50.0)
    likelihood = one_posterior_sampling("ops-likelihood", (10, 4), 100, 50.0)
    rho = tempered.power
    np.testing.assert_allclose(tempered.beta_parameters([30]), [[1 + rho * 39, 1 + rho * 73]], rtol=1e-14)
    np.testing.assert_allclose(likelihood.beta_parameters([30]), [[10 + rho * 30, 4 + rho * 70]], rtol=1e-14)
    for method in METHODS:  # with power 1, both methods draw from the posterior
        whole = one_posterior_sampling(method, (10, 4), 100, 1e6)
        np.testing.assert_allclose(whole.beta_parameters([30]), [[40, 74]], rtol=1e-15)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "prior", "n", "epsilon", "s"),
    [
        ("ops", (10, 10), 1000, 0.1, 400),
        ("ops-likelihood", (10, 10), 10, 0.01, 10),
        ("ops-likelihood", (0.2, 0.3), 20, 20.0, 0),
        ("ops", (10, 10), 100_000, 1e6, 9_990),
        *exhaustive(
            ("ops", (10, 10), 100_000, 1.0, 0),
            ("ops-likelihood", (10, 10), 100_000, 1e6, 50_000),
            ("ops-likelihood", (10, 10), 100_000, 1e6, 0),
            ("ops", (1, 1), 100_000, 1e6, 100_000),
        ),
    ],
)
def test_draws_invert_the_distribution_function(method, prior, n, epsilon, s):
    """Draws invert the cdf of a truncated Beta distribution, even if the mass in the interval is 1e-4576."""
    mechanism = one_posterior_sampling(method, prior, n, epsilon)
    uniforms = np.random.default_rng(4).random((1, N_DRAWS))
    uniforms[0, :4] = [0.0, 1e-9, 0.5, 1 - 2**-53]
    draws = mechanism.from_uniforms(uniforms, [s])
    assert draws.min() >= EDGE
    assert draws.max() <= 1 - EDGE
    order = np.argsort(uniforms[0])
    assert np.all(np.diff(draws[0, order]) >= 0)
    a, b = mechanism.beta_parameters([s])[0]
    for u, theta in zip(uniforms[0, :5], draws[0, :5], strict=True):
        assert abs(truncated_beta_cdf(theta, a, b) - u) < 1e-11


def truncated_beta_cdf(theta, a, b):
    """Return the cdf of the truncated Beta distribution, by quadrature on intervals near the mode."""
    with mpmath.workdps(40):
        low, high, a, b = mpmath.mpf(EDGE), 1 - mpmath.mpf(EDGE), mpmath.mpf(a), mpmath.mpf(b)
        mode = min(max((a - 1) / (a + b - 2), low), high) if a > 1 and b > 1 else (low if a < b else high)
        peak = (a - 1) * mpmath.log(mode) + (b - 1) * mpmath.log(1 - mode)
        nodes, weights = NODES

        def integral(start, end):
            total, width = mpmath.mpf(0), (end - start) / 60
            for piece in range(60):
                left = start + piece * width
                for node, weight in zip(nodes, weights, strict=True):
                    t = left + width * (1 + node) / 2
                    total += weight * mpmath.exp((a - 1) * mpmath.log(t) + (b - 1) * mpmath.log(1 - t) - peak)
            return total * width / 2

        slope = abs((a - 1) / mode - (b - 1) / (1 - mode))
        reach = 1 / (slope / 60 + mpmath.sqrt((a + b) / 120))
        start, end = max(low, mode - reach), min(high, mode + reach)
        cut = min(max(mpmath.mpf(theta), start), end)
        below, above = integral(start, cut), integral(cut, end)
        return float(below / (below + above))


NODES = tuple(array.tolist() for array in np.polynomial.legendre.leggauss(12))


def test_draws_have_the_mean_of_the_truncated_distribution():
    mechanism = one_posterior_sampling("ops", (10, 10), 1000, 1.0)
    draws = mechanism.from_uniforms(np.random.default_rng(6).random((400, N_DRAWS)), np.full(400, 200)).ravel()
    a, b = mechanism.beta_parameters([200])[0]
    distribution, shifted = stats.beta(a, b), stats.beta(a + 1, b)
    within = [np.diff(each.cdf([EDGE, 1 - EDGE]))[0] for each in (distribution, shifted)]
    expected = distribution.mean() * within[1] / within[0]
    assert_mean_within(draws, expected, wrong=1.05 * expected)


def test_only_published_form_is_over_dispersed():
    """PIT values at n = 1000 and ε = 0.01 are nearly uniform for `ops-likelihood`, but not for `ops` (P4)."""
    rng, distances = np.random.default_rng(12), {}
    theta = rng.beta(10, 10, size=1000)
    counts, uniforms = rng.binomial(1000, theta), rng.random((1000, N_DRAWS))
    for method in METHODS:
        draws = one_posterior_sampling(method, (10, 10), 1000, 0.01).from_uniforms(uniforms, counts)
        distances[method] = stats.kstest(np.mean(draws < theta[:, None], axis=1), "uniform").statistic
    assert 0.15 < distances["ops"] < 0.3
    assert distances["ops-likelihood"] < 0.06


def test_invalid_arguments_raise():
    assert_refused(lambda: one_posterior_sampling("ops", (1, 0), 10, 1.0), "prior .* must be finite and > 0")
    draw, half = one_posterior_sampling("ops", (1, 1), 10, 1.0).from_uniforms, np.full((1, N_DRAWS), 0.5)
    for counts in ([-1], [11], [2.5], [[3]], [np.nan]):
        assert_refused(partial(draw, half, counts), "counts must be integers from 0 to 10")
    for uniforms in (half[:, 1:], 2 * half, np.tile(half, (2, 1))):
        assert_refused(partial(draw, uniforms, [3]), r"uniforms must be in \[0, 1\), of shape \(1, 100\)")
