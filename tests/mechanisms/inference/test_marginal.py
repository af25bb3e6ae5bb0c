"""Tests of the marginal posterior against brute-force quadrature, and of its calibration."""

import math

import mpmath
import numpy as np
import pytest
from scipy import special, stats

from mechanisms.inference.families import FAMILIES
from mechanisms.inference.marginal import log_normal_laplace
from tests.mechanisms.inference.laplace import PRIOR_DISTRIBUTIONS, draw_sums, marginal_posterior
from tests.mechanisms.refusals import assert_refused

CASES = {
    "binomial": ((10.0, 10.0), None, 0.45),
    "exponential": ((3.0, 3.0), (0.02532, 3.689), 0.4),
    "poisson": ((8.0, 2.0), (1.0, 9.0), 4.0),
    "normal": ((0.0, 4.0), (-1.0, 2.5), 0.7),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("d", "variance", "noise_scale"),
    [
        (0.0, 1.0, 1.0),
        (-3.0, 4.0, 0.5),
        (200.0, 1.0, 2.0),
        (40.0, 1.0, 1e-3),
        (0.3, 1e-12, 2.0),
        (1e4, 2e4, 1.0),
        (5.0, 1e6, 1e3),
    ],
)
def test_likelihood_equals_the_convolution(d, variance, noise_scale):
    """The likelihood equals a convolution of a normal and a Laplace density, and a closed form at 60 digits."""
    with mpmath.workdps(60):
        d_, v, b = mpmath.mpf(d), mpmath.mpf(variance), mpmath.mpf(noise_scale)
        sides = [
            mpmath.exp(v / (2 * b**2) + sign * d_ / b) * mpmath.ncdf((-sign * d_ - v / b) / mpmath.sqrt(v))
            for sign in (-1, 1)
        ]
        exact = mpmath.log(mpmath.fsum(sides) / (2 * b))
        if variance <= 4 and noise_scale > 0.1:
            spread = mpmath.sqrt(v)
            points = sorted({k * spread for k in range(-14, 15)} | ({d_} if abs(d_) < 14 * spread else set()))
            with mpmath.workdps(20):
                convolution = mpmath.quad(
                    lambda x: mpmath.npdf(x, 0, spread) * mpmath.exp(-abs(d_ - x) / b) / (2 * b), points
                )
            assert abs(mpmath.log(convolution) - exact) < 1e-12
        exact = float(exact)
    assert log_normal_laplace(d, variance, noise_scale) == pytest.approx(exact, rel=1e-13, abs=1e-12)
    assert log_normal_laplace(-d, variance, noise_scale) == log_normal_laplace(d, variance, noise_scale)


def test_likelihood_without_variance_is_laplace():
    d = np.array([0.0, 1e-8, 3.0, -1e200])
    np.testing.assert_allclose(log_normal_laplace(d, 0.0, 2.0), -np.abs(d) / 2 - math.log(4), rtol=1e-14)


EDGES = {
    "binomial": lambda n: np.linspace(0.0, 1.0, n + 1),
    "exponential": lambda n: np.geomspace(1e-9, 100.0, n + 1),
    "poisson": lambda n: np.geomspace(1e-9, 100.0, n + 1),
    "normal": lambda n: np.linspace(-20.0, 20.0, n + 1),
}


def brute_force(family, prior, n, y, noise_scale, bounds, n_intervals=6000):
    """Return a grid of θ and, for each y, the posterior cdf on the grid and the posterior mean."""
    edges = EDGES[family](n_intervals)
    nodes, weights = np.polynomial.legendre.leggauss(6)
    theta = edges[:-1, None] + np.diff(edges)[:, None] * (1 + nodes) / 2
    if family == "binomial":
        mean, variance = n * theta, n * theta * (1 - theta)
    else:
        q, mu, spread = (moment[..., 1] for moment in FAMILIES[family].region_moments(theta, bounds))
        mean, variance = n * q * mu, n * q * spread + n * q * (1 - q) * mu**2
    cdfs, means = [], []
    for value in y:
        log_posterior = PRIOR_DISTRIBUTIONS[family](prior).logpdf(theta) + log_normal_laplace(
            value - mean, variance, noise_scale
        )
        density = np.exp(log_posterior - log_posterior.max()) * np.diff(edges)[:, None]
        mass = density @ weights
        cdfs.append(np.concatenate([[0.0], np.cumsum(mass)]) / mass.sum())
        means.append(np.sum((theta * density) @ weights) / mass.sum())
    return edges, np.array(cdfs), np.array(means)


@pytest.mark.parametrize(("n", "epsilon"), [(10, 0.01), (10, 1.0), (1000, 0.1), (10_000, 1.0)])
@pytest.mark.parametrize("family", CASES)
def test_posterior_equals_brute_force(family, n, epsilon):
    """Posteriors agree with quadrature for typical and unlikely statistics, unless the noise scale is 5 % wrong."""
    prior, bounds, theta = CASES[family]
    sensitivity = FAMILIES[family].sensitivity(bounds)
    _, s = draw_sums(family, np.random.default_rng(1), [[theta]], n, bounds)
    y = np.array([s[0, 0], s[0, 0] + 2 * sensitivity / epsilon, -3 * sensitivity / epsilon])
    posterior = marginal_posterior(family, prior, n, y, sensitivity / epsilon, bounds)
    other = marginal_posterior(family, prior, n, y, 1.05 * sensitivity / epsilon, bounds)
    edges, cdf, mean = brute_force(family, prior, n, y, sensitivity / epsilon, bounds)
    every_trial = np.tile(edges, (3, 1))
    np.testing.assert_allclose(posterior.cdf(every_trial), cdf, atol=1e-6)
    np.testing.assert_allclose(posterior.mean(), mean, rtol=1e-7, atol=1e-8)
    assert np.abs(other.cdf(every_trial) - cdf).max() > 1e-5


def test_all_modes_are_found():
    """If two rates give the same expected truncated sum, the posterior includes both narrow modes."""
    family, prior, bounds, n, scale = "exponential", (3.0, 3.0), (0.02532, 3.689), 100_000, 3.689
    grid = np.linspace(0.05, 4.0, 4001)
    q, mu, _ = FAMILIES[family].region_moments(grid, bounds)
    mean = n * q[:, 1] * mu[:, 1]
    peak = int(mean.argmax())
    for low_side in (0.12, 0.2, 0.35):
        y = float(np.interp(low_side, grid, mean))
        high_side = float(np.interp(-y, -mean[peak:], grid[peak:]))
        posterior = marginal_posterior(family, prior, n, [y], scale, bounds)
        edges, cdf, _ = brute_force(family, prior, n, [y], scale, bounds, n_intervals=40_000)
        np.testing.assert_allclose(posterior.cdf(edges[None, :]), cdf, atol=1e-6)
        # Mass around each mode, and none elsewhere.
        below, above = (np.diff(posterior.cdf([[0.8 * mode, 1.2 * mode]]))[0, 0] for mode in (low_side, high_side))
        assert below > 1e-3
        assert above > 1e-3
        assert below + above == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("family", CASES)
def test_trials_are_independent(family):
    prior, bounds, theta = CASES[family]
    y = np.linspace(-50, 300, 7)
    together = marginal_posterior(family, prior, 100, y[:, None], 20.0, bounds).cdf(np.full(7, theta))
    alone = [marginal_posterior(family, prior, 100, [v], 20.0, bounds).cdf([theta])[0] for v in y]
    np.testing.assert_array_equal(together, alone)


@pytest.mark.parametrize("family", CASES)
def test_draws_invert_the_distribution_function(family):
    prior, bounds, _ = CASES[family]
    rng = np.random.default_rng(6)
    posterior = marginal_posterior(family, prior, 1000, [400.0, 900.0, -2000.0], 30.0, bounds)
    uniforms = np.concatenate([rng.random((3, 2000)), np.tile([0.0, 1e-12, 1 - 2**-53], (3, 1))], axis=1)
    draws = posterior.from_uniforms(uniforms)
    assert draws.shape == uniforms.shape
    np.testing.assert_allclose(posterior.cdf(draws), uniforms, atol=1e-11)
    np.testing.assert_allclose(draws[:, :2000].mean(axis=1), posterior.mean(), rtol=0.1, atol=0.1)
    assert posterior.from_uniforms(uniforms[:, 0]).shape == (3,)
    assert np.all(np.diff(posterior.grid.cdf, axis=1) >= 0)
    assert np.all(np.diff(posterior.grid.points, axis=1) >= 0)


@pytest.mark.parametrize("family", CASES)
def test_large_noise_gives_the_prior(family):
    prior, bounds, _ = CASES[family]
    posterior, distribution = (
        marginal_posterior(family, prior, 10, [0.0], 1e12, bounds),
        PRIOR_DISTRIBUTIONS[family](prior),
    )
    theta = distribution.ppf([[1e-6, 0.1, 0.5, 0.9, 1 - 1e-6]])
    np.testing.assert_allclose(posterior.cdf(theta), distribution.cdf(theta), atol=3e-7)


def test_small_noise_gives_the_normal_approximation():
    """With negligible noise, the posterior is the conjugate one, even if the statistic is in the prior's far tail."""
    posterior = marginal_posterior("normal", (0.0, 1.0), 10_000, [0.5 * 10_000], 1e-6, (-40.0, 40.0))
    exact = stats.norm(0.5 / (1 + 1e-4), 1 / math.sqrt(10_001))
    theta = exact.ppf([[0.001, 0.3, 0.8, 0.999]])
    np.testing.assert_allclose(posterior.cdf(theta), exact.cdf(theta), atol=1e-6)


@pytest.mark.parametrize("family", CASES)
@pytest.mark.parametrize("n", [1, 100_000])
def test_impossible_statistics_have_a_posterior(family, n):
    prior, bounds, theta = CASES[family]
    posterior = marginal_posterior(family, prior, n, [-1e9, 1e9, 0.0], 1.0, bounds)
    assert np.all(np.isfinite(posterior.mean()))
    assert np.all((posterior.cdf(np.full(3, theta)) >= 0) & (posterior.grid.cdf[:, -1] == 1))


def test_cdf_at_ends_of_parameter_space():
    posterior = marginal_posterior("binomial", (0.3, 0.2), 50, [0.0, 50.0], 1.0)
    np.testing.assert_array_equal(posterior.cdf([[0.0, 1.0]] * 2), [[0.0, 1.0]] * 2)
    assert np.all(np.diff(posterior.cdf(np.tile(special.expit([-300.0, 0.0, 30.0]), (2, 1)))) > 0)


def pit_values(noise_scale_factor):
    """Return PIT values of 1000 trials if inference assumes `noise_scale_factor` times the true noise scale."""
    prior, bounds, _ = CASES["exponential"]
    family, rng = FAMILIES["exponential"], np.random.default_rng(20)
    theta = family.draw_parameters(rng, prior, size=1000)
    _, s = draw_sums(family, rng, theta, 1000, bounds)
    y = s + rng.laplace(scale=family.sensitivity(bounds) / 0.1, size=s.shape)
    scale = noise_scale_factor * family.sensitivity(bounds) / 0.1
    return marginal_posterior("exponential", prior, 1000, y, scale, bounds).cdf(theta[:, 0])


@pytest.mark.slow
def test_posterior_is_calibrated_with_public_bounds():
    assert stats.kstest(pit_values(1.0), "uniform").pvalue > 0.01
    assert stats.kstest(pit_values(0.4), "uniform").pvalue < 1e-4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("multinomial", (1, 1, 1), 10, [3.0], 1.0), "family must be one of"),
        (("binomial", (1, 0.05), 10, [3.0], 1.0), "prior must have shapes >= 0.1"),
        (("binomial", (1, 1), 10, [], 1.0), "noisy_statistics must be finite"),
        (("exponential", (1, 1), 10, [3.0], 1.0, (2, 1)), "lower < upper"),
    ],
)
def test_invalid_arguments_raise(arguments, message):
    assert_refused(lambda: marginal_posterior(*arguments), message)


def test_invalid_queries_raise():
    posterior = marginal_posterior("binomial", (1, 1), 10, [3.0, 4.0], 1.0)
    for bad in ([0.5], 0.5, [[[0.5]], [[0.5]]]):
        with pytest.raises(ValueError, match="theta must have shape"):
            posterior.cdf(bad)
        with pytest.raises(ValueError, match="uniforms must have shape"):
            posterior.from_uniforms(bad)
    assert_refused(lambda: posterior.cdf([0.5, 1.5]), "theta must be finite and between 0 and 1")
    assert_refused(lambda: posterior.from_uniforms([0.5, 1.0]), "uniforms must be in")
