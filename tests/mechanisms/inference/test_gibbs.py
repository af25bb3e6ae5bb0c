"""Tests of Algorithm 1 of P4: its conditional draws, its stationary distribution, and the exact posterior."""

import itertools

import numba
import numpy as np
import pytest
from scipy import stats

from mechanisms.core.noise import Noise
from mechanisms.inference.drawn_posterior import sampler
from mechanisms.inference.gibbs import draw_noise_variance, draw_sums_given_total, draw_truncated_normal
from mechanisms.inference.methods import INFERENCE_METHODS
from mechanisms.inference.release_model import ReleaseModel
from tests.mechanisms.inference.chains import assert_cdf, batch_means
from tests.mechanisms.inference.enumeration import binomial_mixture, enumerate_posterior, marginal_cdf
from tests.mechanisms.inference.laplace import laplace_model, sample_gibbs
from tests.statistical import assert_mean_within, assert_rejects


@numba.njit
def noise_variances(rng, distance, noise_scale, size):
    out = np.empty(size)
    for i in range(size):
        out[i] = draw_noise_variance(rng, distance, noise_scale)
    return out


@numba.njit
def truncated_normals(rng, mean, std, lower, upper, size):
    out = np.empty(size)
    for i in range(size):
        out[i] = draw_truncated_normal(rng, mean, std, lower, upper)
    return out, np.isnan(out).sum()


@numba.njit
def sum_chain(rng, centres, variances, total, sums, size):
    out = np.empty((size, sums.size))
    for i in range(size):
        if not draw_sums_given_total(rng, centres, variances, total, sums):
            raise ValueError("a draw failed")
        for j in range(sums.size):
            out[i, j] = sums[j]
    return out


def inverse_variance_distribution(distance, noise_scale):
    """Return the distribution of 1/σ² given the noise `distance`: inverse Gaussian, or its limit without noise."""
    if distance == 0:
        return stats.invgamma(0.5, scale=0.5 / noise_scale**2)
    return stats.invgauss(mu=noise_scale / distance, scale=1 / noise_scale**2)


@pytest.mark.parametrize("noise_scale", [0.1, 30.0])
@pytest.mark.parametrize("distance", [0.0, 1e-12, 0.02, 3.0, 5e4])
def test_noise_variance_is_inverse_inverse_gaussian(distance, noise_scale):
    draws = noise_variances(np.random.default_rng(1), distance, noise_scale, 20_000)
    assert np.all(draws > 0)
    assert stats.kstest(1 / draws, inverse_variance_distribution(distance, noise_scale).cdf).pvalue > 1e-6
    if distance >= 100 * noise_scale:  # the distribution of 1/σ² hardly depends on small distances
        assert stats.kstest(1 / draws, inverse_variance_distribution(1.05 * distance, noise_scale).cdf).pvalue < 1e-6


CUTS = [
    (0.0, 1.0, -1.0, 2.0),
    (0.0, 1.0, 0.1, np.inf),  # centre just outside the region
    (0.0, 1.0, -np.inf, -9.0),  # centre far outside the region
    (0.0, 1.0, 3.0, np.inf),
    (-1e6, 30.0, 0.0, 50.0),
    (3.0, 5.0, 2.9, 3.3),  # narrow region around the mean
    (3.0, 1.0, 7.0, 7.001),  # narrow region away from the mean
    (0.0, 1.0, -40.0, 0.02),
]


@pytest.mark.parametrize(("mean", "std", "lower", "upper"), CUTS)
def test_truncated_normal_has_expected_distribution(mean, std, lower, upper):
    draws, failures = truncated_normals(np.random.default_rng(2), mean, std, lower, upper, 20_000)
    assert failures == 0
    assert np.all((draws >= lower) & (draws <= upper))
    distribution = stats.truncnorm((lower - mean) / std, (upper - mean) / std, mean, std)
    assert stats.kstest(draws, distribution.cdf).pvalue > 1e-6
    if not lower < mean < upper and upper - lower > std:  # elsewhere the distribution hardly depends on std
        wrong = stats.truncnorm((lower - mean) / std / 1.05, (upper - mean) / std / 1.05, mean, 1.05 * std)
        assert stats.kstest(draws, wrong.cdf).pvalue < 1e-6


def test_truncated_normal_with_zero_std_and_nan_mean():
    draws, failures = truncated_normals(np.random.default_rng(2), 5.0, 0.0, 0.0, 3.0, 2)
    assert failures == 0
    assert draws.tolist() == [3.0, 3.0]
    _, failures = truncated_normals(np.random.default_rng(2), np.nan, 1.0, 0.0, 3.0, 2)
    assert failures == 2


@pytest.mark.slow
def test_sums_given_total_have_multinomial_covariance():
    n, theta = 50.0, np.array([0.2, 0.3, 0.5])
    draws = sum_chain(np.random.default_rng(3), n * theta, n * theta, n, n * theta, 50_000)
    assert np.allclose(draws.sum(axis=1), n, rtol=1e-14)
    exact = n * (np.diag(theta) - np.outer(theta, theta))
    centred = draws - n * theta
    for i, j in itertools.combinations_with_replacement(range(3), 2):
        assert_mean_within(centred[:, i] * centred[:, j], exact[i, j])


SUM_CASES = [  # centres, variances, total
    ((4.0, 3.0, 3.0), (6.0, 2.0, 3.0), 10.0),
    ((-60.0, -10.0, 3.0), (6.0, 2.0, 3.0), 10.0),  # rejection never succeeds, so that all draws are pairwise
    ((-40.0, 5.0, 12.0), (60.0, 1.0, 20.0), 10.0),  # the category with the largest variance stays at zero
]


def mean_sums_on_grid(centres, variances, total, n_nodes=700):
    i, j = np.meshgrid(np.arange(n_nodes), np.arange(n_nodes), indexing="ij")
    # Squares halved by the edge third = 0 have their midpoint on it.
    share = np.where(i + j < n_nodes - 1, 1.0, np.where(i + j == n_nodes - 1, 0.5, 0.0))
    first, second = (i + 0.5) * total / n_nodes, (j + 0.5) * total / n_nodes
    sums = (first, second, total - first - second)
    log_density = -0.5 * sum((x - c) ** 2 / v for x, c, v in zip(sums, centres, variances, strict=True))
    weights = share * np.exp(log_density - log_density[share > 0].max())
    return np.array([(weights * x).sum() for x in sums]) / weights.sum()


@pytest.mark.slow
@pytest.mark.parametrize(("centres", "variances", "total"), SUM_CASES)
def test_sums_of_three_categories_have_expected_means(centres, variances, total):
    start = np.full(3, total / 3)
    draws = sum_chain(np.random.default_rng(4), np.array(centres), np.array(variances), total, start, 400_000)
    assert np.all(draws >= 0)
    assert np.allclose(draws.sum(axis=1), total, rtol=1e-12)
    expected = mean_sums_on_grid(centres, variances, total)
    for j in range(3):
        assert_mean_within(batch_means(draws[None, :, j], 200), expected[j])
    moved = (centres[0], centres[1] * 1.05, centres[2] * 0.95)
    assert_rejects(
        assert_mean_within, batch_means(draws[None, :, 2], 200), mean_sums_on_grid(moved, variances, total)[2]
    )


@pytest.mark.slow
def test_pairwise_draws_mix_far_outside_the_simplex():
    centres, variances = np.linspace(-400.0, -200.0, 20), np.linspace(50.0, 400.0, 20)
    draws = sum_chain(np.random.default_rng(5), centres, variances, 100.0, np.full(20, 5.0), 20_000)
    x = draws - draws.mean(axis=0)
    autocorrelation = (x[1:] * x[:-1]).mean(axis=0) / (x**2).mean(axis=0)
    assert np.abs(autocorrelation).max() < 0.5


def stationary_moments(prior, n, noisy, noise_scale):
    """Return the stationary means of θ and θ² of the chain s → (θ, σ²) → s, computed on grids."""
    s = (np.arange(240) + 0.5) * n / 240
    theta = (np.arange(120) + 0.5) / 120
    log_variance = np.linspace(np.log(1e-7), np.log(60 * noise_scale**2), 120)
    variance = np.exp(log_variance)
    of_theta = stats.beta.pdf(theta, prior[0] + s[:, None], prior[1] + n - s[:, None])
    of_theta /= of_theta.sum(axis=1, keepdims=True)
    log_weight = 0.5 * log_variance - (noisy - s[:, None]) ** 2 / (2 * variance) - variance / (2 * noise_scale**2)
    of_variance = np.exp(log_weight - log_weight.max(axis=1, keepdims=True))
    of_variance /= of_variance.sum(axis=1, keepdims=True)
    kernel = np.zeros((s.size, s.size))
    for j, p in enumerate(theta):
        prior_part = (s - n * p) ** 2 / (n * p * (1 - p))
        log_pmf = -0.5 * (prior_part + (noisy - s) ** 2 / variance[:, None])
        distribution = np.exp(log_pmf - log_pmf.max(axis=1, keepdims=True))
        distribution /= distribution.sum(axis=1, keepdims=True)
        kernel += of_theta[:, j, None] * (of_variance @ distribution)
    assert np.allclose(kernel.sum(axis=1), 1)
    distribution = np.linalg.matrix_power(kernel, 512)[0]
    return distribution @ of_theta @ theta, distribution @ of_theta @ theta**2


@pytest.mark.slow
def test_binomial_chain_has_expected_stationary_moments():
    """At n = 8, the chain has the stationary moments computed on grids, which are not those of the exact posterior."""
    prior, n, noisy, noise_scale = (2.0, 3.0), 8, 6.5, 1.5
    first, second = stationary_moments(prior, n, noisy, noise_scale)
    draws = sample_gibbs(
        np.random.default_rng(6), "binomial", prior, n, [noisy], noise_scale, n_burn_in=100, n_draws=100_000
    )
    assert_mean_within(batch_means(draws), first)
    assert_mean_within(batch_means(draws**2), second)
    assert_rejects(assert_mean_within, batch_means(draws), stationary_moments(prior, n, noisy, 1.05 * noise_scale)[0])
    exact = binomial_mixture(prior, n, noisy, noise_scale)
    assert_rejects(assert_mean_within, batch_means(draws), exact.mean())


@pytest.mark.parametrize(("n", "noisy", "noise_scale"), [(100, 38.0, 10.0), (1000, 640.0, 100.0), (100_000, 3e4, 10.0)])
def test_binomial_agrees_with_the_exact_posterior(n, noisy, noise_scale):
    draws = sample_gibbs(np.random.default_rng(8), "binomial", (10, 10), n, [noisy], noise_scale, n_draws=50_000)
    exact = binomial_mixture((10, 10), n, noisy, noise_scale)
    assert_cdf(draws, exact.cdf, 0.003)
    assert_rejects(assert_cdf, draws, lambda x: exact.cdf(0.95 * x), 0.003)


@pytest.mark.parametrize("n", [100, 1_000_000])
def test_binomial_mean_near_zero_does_not_converge_to_the_posterior_mean(n):
    """At a noisy count of 0, the mean of the draws is about 1.3 times the posterior mean, for small and large n."""
    draws = sample_gibbs(np.random.default_rng(8), "binomial", (1, 1), n, [0.0], 1.0, n_chains=4, n_draws=20_000)
    ratios = draws.reshape(-1, 500).mean(axis=1) / binomial_mixture((1, 1), n, 0.0, 1.0).mean()
    error = ratios.std(ddof=1) / np.sqrt(ratios.size)
    assert ratios.mean() - 5 * error > 1.2
    assert ratios.mean() + 5 * error < 1.4


@pytest.mark.slow
def test_three_categories_agree_with_enumeration():
    prior, n, noisy, noise_scale = np.array([5.0, 5.0, 5.0]), 60, np.array([45.0, 8.0, -5.0]), 20.0
    log_likelihood = -np.abs(noisy[:, None] - np.arange(n + 1)) / noise_scale
    counts, weights = enumerate_posterior(prior, n, log_likelihood)
    draws = sample_gibbs(np.random.default_rng(10), "multinomial", prior, n, noisy, noise_scale, n_draws=50_000)
    for j in range(3):
        assert_cdf(draws[..., j], lambda x, j=j: marginal_cdf(prior, n, counts, weights, j, x), 0.003)


EXACT_NOISES = ("laplace", "gaussian")
EXTREMES = [
    ("binomial", (0.001, 0.001), 1, [-1e6], 1e-3),
    ("binomial", (0.001, 0.001), 100_000, [2e5], 100.0),
    ("binomial", (1e-6, 50.0), 10, [1e9], 100.0),
    ("binomial", (10, 10), 100_000, [0.0], 1e-9),
    ("binomial", (10, 10), 10**9, [0.0], 1e-9),
    ("multinomial", (0.001,) * 20, 100_000, [-1e5] * 20, 20.0),
    ("multinomial", (5.0,) * 20, 1, [1e4] * 20, 20.0),
    ("multinomial", (0.001, 5.0), 1000, [3e3, 4e3], 1e-6),
    ("multinomial", (2.0, 2.0, 2.0), 1000, [1e6, -1e6, 0.0], 0.1),
]


@pytest.mark.parametrize(
    ("name", "noise"),
    [("gibbs", "laplace"), *(pytest.param("gibbs-exact", noise, marks=pytest.mark.slow) for noise in EXACT_NOISES)],
)
@pytest.mark.parametrize(("family", "prior", "n", "noisy", "noise_scale"), EXTREMES)
def test_extreme_inputs_give_valid_parameters(family, prior, n, noisy, noise_scale, name, noise):
    model, fit = ReleaseModel(family, n, Noise(noise, noise_scale)), INFERENCE_METHODS[name].fit
    draws = fit(np.random.default_rng(11), model, prior, noisy, n_burn_in=0, n_draws=2000).draws
    assert np.all((draws >= 0) & (draws <= 1))
    if family == "multinomial":
        assert np.allclose(draws.sum(axis=-1), 1, rtol=1e-12)


def test_starts_of_chains_are_dispersed():
    run, rng = {"n_burn_in": 0, "n_draws": 1, "n_chains": 400}, np.random.default_rng(1)
    first = sample_gibbs(rng, "binomial", (2, 2), 10**5, [3e4], 1000.0, **run)[:, 0]
    assert 0.5 < first.std() / stats.beta(2, 2).std() < 1.1


def test_index_of_failed_iteration_counts_all_chains():
    def fails_in_second_chain(rng, start, known, n_burn_in, draws):
        known.append(n_burn_in)
        return None if len(known) == 1 else 1

    sample = sampler(lambda model, prior, y, starts: (fails_in_second_chain, ([],)))
    with pytest.raises(ValueError, match="at iteration 8 with"):
        sample(np.random.default_rng(1), laplace_model("binomial", 10), (1, 1), [3.0], n_burn_in=2, n_draws=5)
