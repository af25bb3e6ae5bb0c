"""Tests of the exact multinomial posterior against enumeration of the counts."""

import numpy as np
import pytest
from scipy import stats

from mechanisms.core.noise import Noise
from mechanisms.inference.exact_posterior import exact_posterior
from mechanisms.inference.gibbs_exact import sample_gibbs_exact
from mechanisms.inference.release_model import ReleaseModel
from mechanisms.tables import messages
from tests.mechanisms.counts.enumeration import frequencies_of
from tests.mechanisms.inference.enumeration import enumerate_posterior, marginal_cdf
from tests.statistical import assert_frequencies

CASES = {
    "laplace": ((0.5, 1.0, 2.0), 12, Noise("laplace", 1.5), [9.3, -4.1, 2.0]),
    "geometric": ((0.5, 1.0, 2.0), 12, Noise("geometric", 1.5), [9, -4, 2]),
    "k-norm": ((0.5, 1.0, 2.0, 0.1), 9, Noise("k-norm", 2.0), [9, -4, 2, 2]),
    "gaussian": ((3.0, 0.2, 0.2, 1.0), 7, Noise("gaussian", 2.0), [1.0, 3.0, 9.0, 0.5]),
    "far-outside": ((0.5, 0.5, 0.5), 9, Noise("laplace", 0.2), [400.0, -350.0, 7.0]),
    "tiny-alpha": ((1e-9, 1e-9, 1e-9), 12, Noise("laplace", 0.4), [5.0, 4.0, 4.0]),
    "two-categories": ((0.5, 3.0), 15, Noise("laplace", 2.0), [3.2, 9.0]),
}


def posterior_of(case):
    prior, n, noise, y = case
    return exact_posterior(ReleaseModel("multinomial", n, noise), prior, np.array(y, dtype=float))


def evidence_of(case):
    _, n, noise, y = case
    return noise.log_weight(np.array(y, dtype=float)[:, None] - np.arange(n + 1))


@pytest.mark.parametrize("direct", [1e9, 0.0])
@pytest.mark.parametrize("name", CASES)
def test_marginals_equal_enumeration(monkeypatch, name, direct):
    """Also by Fourier transforms, if their errors allow it."""
    monkeypatch.setattr(messages, "DIRECT", direct)
    case = CASES[name]
    prior, n = case[:2]
    posterior = posterior_of(case)
    counts, weights = enumerate_posterior(prior, n, evidence_of(case))
    theta = np.array([0.02, 0.2, 0.5, 0.9])
    for j in range(len(prior)):
        expected = [marginal_cdf(prior, n, counts, weights, j, t) for t in theta]
        np.testing.assert_allclose(posterior.marginals[j].cdf(theta), expected, rtol=1e-10, atol=1e-14)
    expected = (np.array(prior) + weights @ counts) / (sum(prior) + n)
    np.testing.assert_allclose(posterior.mean(), expected, rtol=1e-12)
    assert posterior.mean().sum() == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_draws_of_counts_follow_the_enumerated_weights(name):
    case = CASES[name]
    prior, n = case[:2]
    draws = posterior_of(case).table.sample(np.random.default_rng(1), 30_000)[:, :-1]
    (_, weights), (_, wrong) = (enumerate_posterior(prior, n, factor * evidence_of(case)) for factor in (1.0, 1.1))
    # far outside, the noise scale hardly affects the posterior
    observed = frequencies_of(draws, n, len(prior))
    assert_frequencies(observed, weights, wrong=None if name == "far-outside" else wrong)


def test_draws_of_theta_follow_the_marginals():
    posterior = posterior_of(CASES["laplace"])
    draws = posterior.sample(np.random.default_rng(2), 20_000)
    for j, marginal in enumerate(posterior.marginals):
        assert stats.kstest(draws[:, j], marginal.cdf).pvalue > 1e-6
    assert stats.kstest(0.95 * draws[:, 0], posterior.marginals[0].cdf).pvalue < 1e-6
    np.testing.assert_allclose(posterior.cdf(posterior.quantile([0.1, 0.7])), [[0.1] * 3, [0.7] * 3], atol=1e-10)
    assert np.all(posterior.std() > 0)


@pytest.mark.slow
def test_many_records_equal_a_sum_over_a_lattice():
    """Noisy counts whose sum is 5,000 too large; Gibbs chains of this case do not mix."""
    n, scale, y, step = 100_000, 2_000.0, np.array([5e4, 3e4, 2.5e4]), 50.0
    posterior = posterior_of(((1, 1, 1), n, Noise("laplace", scale), y))
    first, second = np.meshgrid(*[np.arange(0.0, n + 1, step)] * 2, indexing="ij", sparse=True)
    counts = np.stack(np.broadcast_arrays(first, second, n - first - second))
    weights = np.where(counts[2] >= 0.0, np.exp(-np.abs(y[:, None, None] - counts).sum(axis=0) / scale), 0.0)
    weights /= weights.sum()
    means = (1.0 + (weights * counts).sum(axis=(1, 2))) / (n + 3)
    seconds = (weights * (1.0 + counts) * (2.0 + counts)).sum(axis=(1, 2)) / ((n + 3) * (n + 4))
    std = np.sqrt(seconds - means**2)
    np.testing.assert_allclose(posterior.mean(), means, atol=2e-4 * std.min())
    np.testing.assert_allclose(posterior.std(), std, rtol=2e-4)
    draws = posterior.sample(np.random.default_rng(1), 1_000)
    assert np.all(np.abs(draws.mean(axis=0) - means) < 5.0 * std / np.sqrt(1_000))
    marginal, theta = posterior.marginals[0], np.linspace(0.4, 0.6, 5)
    components = stats.beta(1 + marginal.counts, 2 + n - marginal.counts)
    np.testing.assert_allclose(marginal.cdf(theta), [marginal.weights @ components.cdf(t) for t in theta], atol=1e-13)


@pytest.mark.slow
def test_k_norm_with_a_hundred_categories_agrees_with_a_gibbs_sampler():
    k, n, rng = 100, 1_000_000, np.random.default_rng(3)
    prior, noise = np.full(k, 0.5), Noise("k-norm", 20.0)
    y = rng.multinomial(n, rng.dirichlet(prior)) + noise.sample(rng, (k,))
    posterior = posterior_of((prior, n, noise, y))
    assert posterior.mean().sum() == pytest.approx(1.0, rel=1e-9)
    assert posterior.table.error < 1e-10
    low, high = posterior.interval(0.95)
    np.testing.assert_allclose(posterior.cdf([low, high]), np.repeat([[0.025], [0.975]], k, axis=1), rtol=1e-10)
    model = ReleaseModel("multinomial", n, noise)
    draws = sample_gibbs_exact(rng, model, prior, y, n_draws=2_000)
    for j in np.argsort(y)[-3:]:
        thin = draws[..., j].ravel()[::50]
        assert stats.kstest(thin, posterior.marginals[j].cdf).pvalue > 1e-6
