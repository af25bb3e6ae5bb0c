"""Tests of the exact multinomial posterior against enumeration of the counts."""

import numpy as np
import pytest
from scipy import stats

from mechanisms.inference import multinomial_mixture as multinomial_mixture_module
from mechanisms.inference.multinomial_mixture import multinomial_mixture
from tests.mechanisms.inference.enumeration import enumerate_posterior, marginal_cdf
from tests.statistical import assert_frequencies

CASES = {
    "laplace": ((0.5, 1.0, 2.0), 12, lambda x: -np.abs(np.array([[9.3], [-4.1], [2.0]]) - x) / 1.5),
    "gaussian": ((3.0, 0.2, 0.2, 1.0), 7, lambda x: -((np.array([[1.0], [3.0], [9.0], [0.5]]) - x) ** 2) / 8),
    "far-outside": ((0.5, 0.5, 0.5), 9, lambda x: -np.abs(np.array([[400.0], [-350.0], [7.0]]) - x) / 0.2),
    "tiny-alpha": ((1e-9, 1e-9, 1e-9), 12, lambda x: -np.abs(np.array([[5.0], [4.0], [4.0]]) - x) / 0.4),
    "two-categories": ((0.5, 3.0), 15, lambda x: -np.abs(np.array([[3.2], [9.0]]) - x) / 2),
}


@pytest.mark.parametrize("direct", [1e9, 0.0])
@pytest.mark.parametrize("name", CASES)
def test_marginals_equal_enumeration(monkeypatch, name, direct):
    """Also by Fourier transforms, if their errors allow it."""
    monkeypatch.setattr(multinomial_mixture_module, "_DIRECT", direct)
    prior, n, likelihood = CASES[name]
    evidence = likelihood(np.arange(n + 1))
    posterior = multinomial_mixture(prior, evidence)
    counts, weights = enumerate_posterior(prior, n, evidence)
    theta = np.array([0.02, 0.2, 0.5, 0.9])
    for j in range(len(prior)):
        expected = [marginal_cdf(prior, n, counts, weights, j, t) for t in theta]
        np.testing.assert_allclose(posterior.marginals[j].cdf(theta), expected, rtol=1e-10, atol=1e-14)
    expected = (np.array(prior) + weights @ counts) / (sum(prior) + n)
    np.testing.assert_allclose(posterior.mean(), expected, rtol=1e-12)
    assert posterior.mean().sum() == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_draws_of_counts_follow_the_enumerated_weights(name):
    prior, n, likelihood = CASES[name]
    evidence = likelihood(np.arange(n + 1))
    draws = multinomial_mixture(prior, evidence).sample_counts(np.random.default_rng(1), 30_000)
    counts, weights = enumerate_posterior(prior, n, evidence)
    place = (n + 1) ** np.arange(len(prior))
    order = np.argsort(counts @ place)
    index = order[np.searchsorted((counts @ place)[order], draws @ place)]
    observed = np.bincount(index, minlength=len(counts))
    assert_frequencies(observed, weights)
    if name != "far-outside":  # far outside, the noise scale hardly affects the posterior
        _, wrong = enumerate_posterior(prior, n, 1.1 * evidence)
        with pytest.raises(AssertionError, match="chi-square"):
            assert_frequencies(observed, wrong)


def test_draws_of_theta_follow_the_marginals():
    prior, n, likelihood = CASES["laplace"]
    posterior = multinomial_mixture(prior, likelihood(np.arange(n + 1)))
    draws = posterior.sample(np.random.default_rng(2), 20_000)
    for j, marginal in enumerate(posterior.marginals):
        assert stats.kstest(draws[:, j], marginal.cdf).pvalue > 1e-6
    assert stats.kstest(0.95 * draws[:, 0], posterior.marginals[0].cdf).pvalue < 1e-6
    np.testing.assert_allclose(posterior.cdf(posterior.quantile([0.1, 0.7])), [[0.1] * 3, [0.7] * 3], atol=1e-10)
    assert np.all(posterior.std() > 0)


def test_many_records_equal_a_sum_over_a_lattice():
    """Noisy counts whose sum is 5,000 too large; Gibbs chains of this case do not mix."""
    n, scale, y, step = 100_000, 2_000.0, np.array([5e4, 3e4, 2.5e4]), 50.0
    posterior = multinomial_mixture((1, 1, 1), -np.abs(y[:, None] - np.arange(n + 1)) / scale)
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


@pytest.mark.parametrize(
    ("evidence", "message"),
    [
        (np.zeros((2, 4)), r"log_likelihood must have shape \(3, n \+ 1\)"),
        (np.full((3, 4), -np.inf), "must allow counts with sum n = 3"),
    ],
)
def test_invalid_evidence_raises(evidence, message):
    with pytest.raises(ValueError, match=message):
        multinomial_mixture((1, 1, 1), evidence)
