"""Tests of Algorithm 2 of P4 against quadrature and against a posterior on a grid, and of its calibration."""

import math
from functools import partial

import mpmath
import numba
import numpy as np
import pytest
from scipy import integrate, stats

from mechanisms.core.noise import Noise
from mechanisms.inference.families import EXPONENTIAL, FAMILIES, NORMAL, POISSON
from mechanisms.inference.gibbs import (
    draw_conjugate,
    draw_sums,
    log_marginal,
    split_moments,
    tabulate_regions,
    update_sums,
)
from mechanisms.inference.methods import INFERENCE_METHODS
from mechanisms.inference.release_model import ReleaseModel
from tests.mechanisms.inference.chains import assert_cdf
from tests.mechanisms.inference.laplace import PRIOR_DISTRIBUTIONS, sample_gibbs
from tests.mechanisms.inference.laplace import draw_sums as draw_statistics
from tests.mechanisms.refusals import assert_refused
from tests.statistical import assert_mean_within, assert_rejects

KINDS = {"exponential": EXPONENTIAL, "poisson": POISSON, "normal": NORMAL}
TABLES = [
    ("exponential", (0.00633, 0.9222), np.geomspace(1e-5, 1e5, 3001)),
    ("exponential", (0.0, 3.0), np.geomspace(1e-7, 1e4, 3001)),
    ("exponential", (2.0, 2.5), np.geomspace(1e-5, 1e3, 3001)),
    ("poisson", (0, 9), np.geomspace(1e-4, 300.0, 2001)),
    ("poisson", (3, 4), np.geomspace(1e-4, 300.0, 2001)),
    ("poisson", (90, 400), np.geomspace(1e-4, 2000.0, 2001)),
    ("normal", (-1.0, 2.0), np.linspace(-20.0, 20.0, 3001)),
    ("normal", (30.0, 30.5), np.linspace(0.0, 60.0, 3001)),
]
PAPER_BOUNDS = (0.02532, 3.689)  # the middle 95% of Exp(1), rounded


def from_table(family, bounds, theta):
    """Return the moments of the sums of one record at each value of `theta`, shape (len(theta), 6)."""
    grid = tuple(tabulate_regions(family, bounds))
    found = (split_moments(KINDS[family], value, 1, grid) for value in theta)
    return np.array([(*split, outer) for split, outer in found])


@pytest.mark.parametrize(("family", "bounds", "theta"), TABLES)
def test_table_gives_the_moments_of_the_regions(family, bounds, theta):
    """Tabulated moments equal those below, between and above the bounds, even for θ outside the table."""
    if family == "normal":
        mean, variance, unit = theta, np.ones_like(theta), np.ones_like(theta)
    else:
        mean = unit = 1 / theta if family == "exponential" else theta
        variance = mean**2 if family == "exponential" else theta
    found = from_table(family, bounds, theta)
    q, region_mean, region_variance = FAMILIES[family].region_moments(theta, bounds)
    share = q * region_mean
    assert np.allclose(found[:, 0] + found[:, 2], mean, rtol=1e-14)
    assert np.allclose(found[:, 1] + found[:, 3] + 2 * found[:, 4], variance, rtol=1e-9)
    # Errors for the normal are relative to the larger bound.
    size = max(map(abs, bounds)) if family == "normal" else 1.0
    assert np.max(np.abs(found[:, 0] - share[:, 1]) / unit) < 1e-7 * size
    centre = q[:, 1] * region_variance[:, 1] + q[:, 1] * (q[:, 0] + q[:, 2]) * region_mean[:, 1] ** 2
    scale = np.maximum(variance, centre)
    assert np.max(np.abs(found[:, 1] - centre) / scale) < 1e-7
    assert np.max(np.abs(found[:, 5] - share[:, 0] * share[:, 2]) / variance) < 1e-7 * size**2
    # The rest is the sum of records in both outer regions, whose numbers are multinomial.
    rest = share[:, 0] + share[:, 2]
    assert np.max(np.abs(found[:, 4] + share[:, 1] * rest) / scale) < 1e-7 * size**2


def normal_laplace(y, mean, variance, scale):
    """Return 2·scale times the density of N(mean, variance) + Lap(scale) at y, by quadrature."""

    def integrand(s):
        return mpmath.npdf(s, mean, mpmath.sqrt(variance)) * mpmath.exp(-abs(y - s) / scale)

    std = mpmath.sqrt(variance)
    peaks = [mean, y, mean + variance / scale, mean - variance / scale]
    points = sorted({p + k * std for p in peaks for k in (-8, -2, 0, 2, 8)})
    return mpmath.quad(integrand, [-mpmath.inf, *points, mpmath.inf])


@pytest.mark.parametrize(
    ("y", "mean", "variance", "scale"),
    [(3.0, 1.0, 4.0, 2.0), (900.0, 880.0, 600.0, 36.9), (-500.0, 20.0, 30.0, 5.0), (5.0, 4.0, 900.0, 0.5)],
)
def test_marginal_likelihood_against_quadrature(y, mean, variance, scale):
    found = log_marginal((mean, variance, 0.0, 0.0, 0.0), y, scale)
    expected = mpmath.log(normal_laplace(*(mpmath.mpf(v) for v in (y, mean, variance, scale))))
    assert found == pytest.approx(float(expected), rel=1e-9, abs=1e-9)


@numba.njit
def joint_draws(rng, split, noisy, noise_scale, size):
    out = np.empty((size, 2))
    for i in range(size):
        out[i, 0], out[i, 1] = draw_sums(rng, split, noisy, noise_scale)
    return out


@numba.njit
def sums_chain(rng, split, noisy, noise_variance, low, high, least_total, size):
    out = np.empty((size, 2))
    centre, rest = min(max(split[0], low), high), max(split[2], least_total)
    for i in range(size):
        centre, rest = update_sums(rng, split, noisy, noise_variance, low, high, least_total, centre, rest)
        out[i, 0], out[i, 1] = centre, rest
    return out


SPLIT = (50.0, 30.0, 12.0, 20.0, -15.0)  # mean and variance of centre and rest, covariance


@pytest.mark.parametrize(("noisy", "noise_scale"), [(48.0, 3.0), (90.0, 2.0), (-10.0, 20.0)])
def test_joint_draws_of_sums_given_theta(noisy, noise_scale):
    """In joint draws, the sum inside the bounds has the exact density, and the rest has its regression on that sum."""
    draws = joint_draws(np.random.default_rng(1), SPLIT, noisy, noise_scale, 50_000)
    s = np.linspace(50.0 - 60.0, 50.0 + 60.0, 20_001)

    def cdf(scale):
        density = np.exp(-((s - 50.0) ** 2) / 60.0 - np.abs(noisy - s) / scale)
        cumulative = integrate.cumulative_trapezoid(density, s, initial=0.0)
        return lambda x: np.interp(x, s, cumulative / cumulative[-1])

    assert stats.kstest(draws[:, 0], cdf(noise_scale)).pvalue > 1e-6
    assert stats.kstest(draws[:, 0] + 0.05 * draws[:, 0].std(), cdf(noise_scale)).pvalue < 1e-6
    residual = draws[:, 1] - 12.0 + 0.5 * (draws[:, 0] - 50.0)
    assert stats.kstest(residual, stats.norm(0.0, np.sqrt(12.5)).cdf).pvalue > 1e-6


RESTRICTIONS = [  # noisy sum, σ², low, high, least total
    (55.0, 40.0, -np.inf, np.inf, -np.inf),
    (55.0, 40.0, 0.0, 54.0, 60.0),  # unrestricted draws are often accepted
    (-200.0, 400.0, 0.0, 100.0, 5.0),  # plain draws never succeed, so that all draws are conditional
    (300.0, 400.0, 0.0, 60.0, 80.0),
]


def restricted_means(noisy, noise_variance, low, high, least_total):
    """Return the means of the inner sum and the total on a grid; the allowed region of this pair is a rectangle."""
    covariance = np.array([[30.0, 15.0], [15.0, 20.0]])  # covariance of centre and total
    precision = np.linalg.inv(covariance)
    centre = np.linspace(max(low, -30.0), min(high, 130.0), 601)
    total = np.linspace(max(least_total, -30.0), 150.0, 601)
    c, t = centre[:, None] - 50.0, total[None, :] - 62.0
    log_density = -0.5 * (precision[0, 0] * c**2 + 2 * precision[0, 1] * c * t + precision[1, 1] * t**2)
    log_density -= 0.5 * (noisy - centre[:, None]) ** 2 / noise_variance
    density = np.exp(log_density - log_density.max())

    def integral(values):
        return integrate.simpson(integrate.simpson(values, total, axis=1), centre)

    mass = integral(density)
    return integral(density * centre[:, None]) / mass, integral(density * total[None, :]) / mass


@pytest.mark.slow
@pytest.mark.parametrize("restriction", RESTRICTIONS)
def test_restricted_sums_have_expected_means(restriction):
    draws = sums_chain(np.random.default_rng(2), SPLIT, *restriction, 100_000)
    noisy, noise_variance, low, high, least_total = restriction
    total = draws.sum(axis=1)
    assert np.all((draws[:, 0] >= low) & (draws[:, 0] <= high) & (total >= least_total - 1e-9))
    expected = restricted_means(*restriction)
    for values, mean in zip((draws[:, 0], total), expected, strict=True):
        assert_mean_within(values.reshape(200, -1).mean(axis=1), mean)
    wrong = restricted_means(noisy * 1.05, noise_variance, low, high, least_total)
    assert_rejects(assert_mean_within, draws[:, 0].reshape(200, -1).mean(axis=1), wrong[0])


@pytest.mark.parametrize(
    ("family", "prior"), [("exponential", (3.0, 2.0)), ("poisson", (3.0, 2.0)), ("normal", (3, 2))]
)
def test_conjugate_draws_agree_with_the_families(family, prior):
    rng, hyperparameters = np.random.default_rng(3), np.array(prior, dtype=float)
    draws = np.array([draw_conjugate(rng, KINDS[family], hyperparameters, 5, 7.5) for _ in range(5000)])
    updated = FAMILIES[family].posterior(prior, [7.5], 5)
    assert stats.kstest(draws, PRIOR_DISTRIBUTIONS[family](updated).cdf).pvalue > 1e-6
    from_prior = np.array([draw_conjugate(rng, KINDS[family], hyperparameters, 0, 0.0) for _ in range(5000)])
    assert stats.kstest(from_prior, PRIOR_DISTRIBUTIONS[family](prior).cdf).pvalue > 1e-6
    assert stats.kstest(from_prior * 1.1, PRIOR_DISTRIBUTIONS[family](prior).cdf).pvalue < 1e-3


def posterior_on_grid(family, bounds, prior, n, noisy, noise_scale, theta):
    """Return the cdf of the marginal posterior at the grid points `theta`."""
    log_density = PRIOR_DISTRIBUTIONS[family](prior).logpdf(theta)
    rows = n * from_table(family, bounds, theta)[:, :5]
    log_density += [log_marginal(tuple(row), noisy, noise_scale) for row in rows]
    cumulative = integrate.cumulative_trapezoid(np.exp(log_density - log_density.max()), theta, initial=0.0)
    return cumulative / cumulative[-1]


ONE_MODE = [
    ("exponential", (0.00633, 0.9222), (8.0, 2.0), 1000, 235.0, 9.2, np.linspace(0.5, 12.0, 1500)),
    ("poisson", (1, 9), (8.0, 2.0), 500, 1900.0, 90.0, np.linspace(1.0, 12.0, 1500)),
    ("normal", (-2.0, 3.0), (0.5, 0.3), 800, 350.0, 50.0, np.linspace(-3.0, 3.5, 1500)),
]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["gibbs", "gibbs-collapsed"])
@pytest.mark.parametrize(("family", "bounds", "prior", "n", "noisy", "noise_scale", "theta"), ONE_MODE)
def test_unimodal_draws_agree_with_marginal_posterior(family, bounds, prior, n, noisy, noise_scale, theta, method):
    draws = sample_gibbs(
        np.random.default_rng(4), family, prior, n, [noisy], noise_scale, bounds, method, n_draws=50_000
    )
    cdf = posterior_on_grid(family, bounds, prior, n, noisy, noise_scale, theta)
    assert_cdf(draws, lambda x: np.interp(x, theta, cdf), 0.006)
    assert_rejects(assert_cdf, draws * 1.05, lambda x: np.interp(x, theta, cdf), 0.006)


@pytest.mark.slow
def test_collapsed_move_weights_two_modes_correctly():
    """With the collapsed move, chains visit two modes with the exact weights; without it, they stay in one mode."""
    n, noisy, noise_scale = 4000, 3520.0, 36.89
    theta = np.linspace(0.02, 4.0, 4000)
    cdf = posterior_on_grid("exponential", PAPER_BOUNDS, (3.0, 3.0), n, noisy, noise_scale, theta)
    assert 0.1 < np.interp(0.5, theta, cdf) < 0.9  # both modes of the posterior have mass

    def chains(method):
        known = "exponential", (3.0, 3.0), n, [noisy], noise_scale, PAPER_BOUNDS, method
        return sample_gibbs(np.random.default_rng(5), *known, n_draws=25_000, n_chains=8)

    assert_cdf(chains("gibbs-collapsed"), lambda x: np.interp(x, theta, cdf), 0.006)
    shares = (chains("gibbs")[:, -5000:] < 0.5).mean(axis=1)
    assert np.all((shares < 0.02) | (shares > 0.98))


def calibration_distance(method, trials=400):
    """Return the Kolmogorov–Smirnov distance of PIT values from uniformity, with one chain per trial as in P4."""
    rng, family, n = np.random.default_rng(6), FAMILIES["exponential"], 1000
    noise_scale = family.sensitivity(PAPER_BOUNDS) / 0.1
    theta = family.draw_parameters(rng, (3, 3), trials)
    noisy = draw_statistics(family, rng, theta, n, PAPER_BOUNDS)[1] + rng.laplace(scale=noise_scale, size=(trials, 1))
    run = {"bounds": PAPER_BOUNDS, "method": method, "n_chains": 1, "n_burn_in": 300, "n_draws": 700}
    quantiles = [
        np.mean(sample_gibbs(rng, "exponential", (3, 3), n, y, noise_scale, **run) < true)
        for true, y in zip(theta, noisy, strict=True)
    ]
    return stats.kstest(quantiles, "uniform")


def test_collapsed_is_calibrated_and_published_is_not():
    assert calibration_distance("gibbs-collapsed").pvalue > 1e-3
    published = calibration_distance("gibbs-published")
    assert published.pvalue < 1e-6
    assert published.statistic > 0.1


EXTREMES = [
    ("exponential", (0.0, 1.0), (0.1, 0.1), 5, -1e9, 1.0),
    ("exponential", (0.5, 1.0), (8.0, 2.0), 100_000, 1e7, 1e-6),
    ("exponential", (1e-9, 1e9), (8.0, 2.0), 10, 3.0, 1e11),
    ("poisson", (0, 5), (1e-3, 1e-3), 10, -1e4, 1.0),
    ("poisson", (100, 10_000), (3.0, 100.0), 1000, 1e6, 1e5),
    ("normal", (5.0, 6.0), (-50.0, 1.0), 1000, 3e3, 10.0),
    ("normal", (-1.0, 0.0), (0.0, 1e6), 2, 1e6, 0.1),
]


@pytest.mark.parametrize("method", ["gibbs", "gibbs-collapsed", "gibbs-published"])
@pytest.mark.parametrize(("family", "bounds", "prior", "n", "noisy", "noise_scale"), EXTREMES)
def test_extreme_inputs_give_valid_parameters(family, bounds, prior, n, noisy, noise_scale, method):
    known = family, prior, n, [noisy], noise_scale, bounds, method
    draws = sample_gibbs(np.random.default_rng(7), *known, n_burn_in=0, n_draws=1000)
    assert np.all(np.isfinite(draws))
    assert family == "normal" or np.all(draws >= 0)


def test_tables_of_regions_are_read_only():
    with pytest.raises(ValueError, match="read-only"):
        tabulate_regions("poisson", (0, 8)).coefficients[0] = 0.0


@pytest.mark.parametrize("method", ["gibbs", "gibbs-published"])
@pytest.mark.parametrize(("family", "bounds"), [("binomial", None), ("exponential", (0.0, 1.0))])
def test_noise_of_too_large_a_scale_is_refused_with_the_public_inputs(family, bounds, method):
    run = {"n_burn_in": 0, "n_draws": 2}
    refuse = partial(sample_gibbs, np.random.default_rng(1), family, (1, 1), 10, [3.0], 1e200, bounds, method, **run)
    assert_refused(refuse, r"at iteration 0 with .*scale=1e\+200")


@pytest.mark.parametrize(
    ("family", "bounds", "message"),
    [
        ("normal-unknown-variance", (0.0, 1.0), "family must be exponential, poisson or normal for bounds"),
        ("normal", (-1e6, 1e6), "bounds must be closer together"),
    ],
)
def test_invalid_tables_raise(family, bounds, message):
    assert_refused(lambda: tabulate_regions(family, bounds), message)


def test_a_table_of_another_unit_gives_the_same_draws_in_that_unit():
    """Records in another unit have bounds and rates in this unit, and the table of the first unit, shifted by ln 2."""
    table = tabulate_regions("exponential", (0.0, 4.0))
    shifted = table._replace(origin=table.origin + math.log(2.0))
    found = []
    for unit, run in ((1.0, {}), (2.0, {"table": shifted})):
        model = ReleaseModel("exponential", 30, Noise("laplace", 2.0 / unit), (0.0, 4.0 / unit))
        fit = INFERENCE_METHODS["gibbs"].fit
        found.append(
            fit(np.random.default_rng(1), model, (2.0, 2.0 / unit), [20.0 / unit], n_draws=50, **run).draws / unit
        )
    np.testing.assert_allclose(*found, rtol=1e-9)
