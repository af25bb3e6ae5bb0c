"""Tests of the priors of moments."""

import numpy as np
import pytest
from scipy import stats

from mechanisms.regression import gram_kernels
from mechanisms.regression.gram_priors import ConjugatePrior, RegressionPrior
from mechanisms.regression.gram_samplers import regression_of
from tests.mechanisms.refusals import assert_refused


def parts(mu, psi):
    """Return means, standard deviations and correlations of the features, slopes and σ."""
    spreads = np.sqrt(np.diag(psi)[:-1])
    correlations = (psi[:-1, :-1] / np.outer(spreads, spreads))[np.triu_indices(len(mu) - 1, 1)]
    _, *slopes, variance = regression_of(mu, psi)
    return mu, spreads, correlations, np.array(slopes), np.sqrt(variance)


def test_draws_have_the_stated_distributions():
    """Marginals of uniform correlations of 3 features are Beta(3/2, 3/2) on (−1, 1)."""
    rng, prior = np.random.default_rng(1), RegressionPrior(mean=2.0, slope=3.0, spread=0.5)
    drawn = [parts(*prior.sample(rng, 4)) for _ in range(4_000)]
    mu, spreads, correlations, slopes, sigma = map(np.array, zip(*drawn, strict=True))
    half_t = lambda x: 2 * stats.t(2, scale=0.5).cdf(x) - 1  # noqa: E731
    for values, cdf in (
        (mu[:, 1], stats.norm(scale=2.0).cdf),
        (spreads[:, 2], half_t),
        (correlations[:, 0], stats.beta(1.5, 1.5, -1, 2).cdf),
        (correlations[:, 2], stats.beta(1.5, 1.5, -1, 2).cdf),
        (slopes[:, 1] * spreads[:, 1], stats.t(2, scale=3.0).cdf),
        (sigma, half_t),
    ):
        assert stats.kstest(values, cdf).pvalue > 1e-4
    assert abs(stats.spearmanr(spreads[:, 0], slopes[:, 0] * spreads[:, 0]).statistic) < 5 / np.sqrt(4_000)


def log_density(prior, mu, lower):
    """Return the log density of (μ, L) from that of its parts, and a numerical Jacobian."""
    at, p = np.tril_indices(len(mu)), len(mu)

    def parts_of(entries):
        root = np.zeros((p, p))
        root[at] = entries
        return np.concatenate([np.ravel(part) for part in parts(mu, root @ root.T)[1:]])

    x = lower[at]
    steps = 1e-5 * np.eye(x.size)
    jacobian = np.array([(parts_of(x + step) - parts_of(x - step)) / 2e-5 for step in steps])
    _, spreads, _, slopes, sigma = parts(mu, lower @ lower.T)
    total = stats.norm(scale=prior.mean).logpdf(mu).sum() + np.linalg.slogdet(jacobian)[1]
    total += stats.t(2, scale=prior.spread).logpdf([*spreads, sigma]).sum()
    return total + stats.t(2, scale=prior.slope).logpdf(slopes * spreads).sum() + np.log(spreads).sum()


@pytest.mark.parametrize("p", [2, 3, 5])
def test_density_equals_that_of_independent_parts(p):
    """Densities of factors L differ from those of standard deviations, correlations and slopes by the Jacobian."""
    rng, prior, found = np.random.default_rng(p), RegressionPrior(mean=0.7, slope=1.5, spread=0.4), []
    for _ in range(4):
        mu, lower = rng.normal(size=p), np.tril(rng.normal(size=(p, p)))
        lower[range(p), range(p)] = rng.uniform(0.3, 1.5, p)
        expected = log_density(prior, mu, lower)
        found.append(gram_kernels._log_prior(prior.hyperparameters(p), mu, lower) - expected)
    np.testing.assert_allclose(found, found[0], atol=1e-6)


@pytest.mark.slow
def test_conjugate_density_equals_that_of_scipy():
    prior, rng, p, found = ConjugatePrior(), np.random.default_rng(1), 3, []
    kappa, nu, scale = prior.hyperparameters(p)
    for _ in range(4):
        mu, psi = prior.sample(rng, p)
        lower = np.linalg.cholesky(psi)
        expected = stats.invwishart(nu, scale * np.eye(p)).logpdf(psi) + stats.multivariate_normal(
            cov=psi / kappa
        ).logpdf(mu)
        expected += ((p - np.arange(p)) * np.log(np.diag(lower))).sum()
        found.append(gram_kernels._log_parameters(True, prior.hyperparameters(p), mu, lower) - expected)
    np.testing.assert_allclose(found, found[0], atol=1e-9)


@pytest.mark.parametrize(("prior", "name"), [(RegressionPrior, "slope"), (ConjugatePrior, "strength")])
def test_scales_must_be_positive(prior, name):
    assert_refused(lambda: prior(**{name: 0.0}), f"{name} must be a finite number > 0, got 0")
