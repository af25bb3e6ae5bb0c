"""Tests of draws of regression weights against quadrature and importance sampling, with negative controls."""

import dataclasses
from functools import partial

import numpy as np
import pytest
from numpy.polynomial.legendre import leggauss

from mechanisms.draws.glm_mechanisms import LINKS, glm_mechanism
from mechanisms.draws.glm_sampling import STEPS_PER_PRODUCT, laplace_approximation, sample_glm
from tests.mechanisms.refusals import assert_refused
from tests.statistical import assert_mean_within, assert_rejects

THINNING = 24  # number of steps between draws that are treated as independent; the autocorrelation time is about three


def problem(n, d, seed, signal=3.0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = (rng.random(n) < 1 / (1 + np.exp(-X @ rng.standard_normal(d) * signal))).astype(float)
    return X, y


def target(n, beta, **changes):
    return dataclasses.replace(glm_mechanism("true-posterior", n, beta, 2, 1.0), **changes)


def setting(n, d, seed, beta, signal=3.0, **changes):
    """Return records, a release of their posterior, and its approximation."""
    X, y = problem(n, d, seed, signal)
    release = target(n, beta, **changes)
    return X, y, release, laplace_approximation(X, y, release)


def log_density(X, y, release, weights):
    """Return the log density at weights of shape (..., d), by the log-likelihood of the link."""
    value = release.power * release.link.log_likelihood(
        weights @ X.T, np.broadcast_to(y, (*weights.shape[:-1], len(y)))
    )
    return value.sum(-1) - 0.5 * release.precision * (weights**2).sum(-1)


def thinned(X, y, release, n_draws=4000, seed=7, n_chains=4):
    rng, approximation = np.random.default_rng(seed), laplace_approximation(X, y, release)
    first = sample_glm(rng, X, y, release, approximation, 20 * STEPS_PER_PRODUCT, n_chains=n_chains)
    draws = sample_glm(
        rng, X, y, release, approximation, THINNING * n_draws // n_chains, n_chains=n_chains, start=first.weights[:, -1]
    )
    return draws.weights[:, ::THINNING].reshape(-1, X.shape[1])


def quadrature(X, y, release, half_width, n_nodes=400):
    """Return quadrature nodes, shape (nodes, d), and their probabilities, in one or two dimensions."""
    d = X.shape[1]
    nodes, weights = leggauss(n_nodes)
    centre = laplace_approximation(X, y, release).mean
    axes = np.meshgrid(*(centre[j] + half_width * nodes for j in range(d)), indexing="ij")
    grid = np.stack([axis.ravel() for axis in axes], axis=-1)
    mass = weights if d == 1 else np.outer(weights, weights).ravel()
    logs = np.concatenate([log_density(X, y, release, part) for part in np.array_split(grid, 200)])
    distribution = mass * np.exp(logs - logs.max()) * (np.linalg.norm(grid, axis=1) <= release.radius)
    return grid, distribution / distribution.sum()


CASES = [
    (1, 30, 0.1, 1.0),
    (2, 40, 0.05, 0.3),
    (2, 8, 0.02, 1.0),  # nearly separable records with a skewed posterior
]


@pytest.mark.slow
@pytest.mark.parametrize(("d", "n", "beta", "power"), CASES)
def test_moments_of_draws_equal_quadrature(d, n, beta, power):
    X, y = problem(n, d, seed=n)
    release = target(n, beta, power=power)
    grid, distribution = quadrature(X, y, release, half_width=9 / np.sqrt(release.precision))
    draws = thinned(X, y, release)
    for function in (lambda w: w[:, 0], lambda w: w[:, -1] ** 2, lambda w: w[:, 0] > distribution @ grid[:, 0]):
        assert_mean_within(function(draws), float(distribution @ function(grid)))


@pytest.mark.slow
def test_moment_check_rejects_wrong_precision():
    X, y = problem(40, 1, seed=3)
    release = target(40, 0.05)
    grid, distribution = quadrature(X, y, release, half_width=9 / np.sqrt(release.precision))
    spread = np.sqrt(distribution @ (grid[:, 0] - distribution @ grid[:, 0]) ** 2)
    wrong = target(40, 0.05 * 1.3)
    assert_rejects(
        assert_mean_within,
        (thinned(X, y, wrong, 40_000)[:, 0] / spread) ** 2,
        float(distribution @ (grid[:, 0] / spread) ** 2),
    )


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 2])
def test_draws_are_restricted_to_the_ball(d):
    X, y = problem(20, d, seed=5)
    release = glm_mechanism("ops", 20, beta=1.5, order=1, epsilon=2.0)
    cut = dataclasses.replace(release, radius=0.25)  # the ball excludes much of the distribution
    grid, distribution = quadrature(X, y, cut, half_width=0.6, n_nodes=600)
    free_grid, free_distribution = quadrature(X, y, dataclasses.replace(cut, radius=np.inf), half_width=4.0)
    draws = thinned(X, y, cut)
    assert np.linalg.norm(draws, axis=1).max() <= 0.25
    assert np.linalg.norm(thinned(X, y, release), axis=1).max() <= release.radius
    squared = (draws**2).sum(axis=1)
    # six standard errors, because the grid is less accurate where the ball cuts it
    assert_mean_within(squared, float(distribution @ (grid**2).sum(axis=1)), n_se=6)
    assert_rejects(assert_mean_within, squared, float(free_distribution @ (free_grid**2).sum(axis=1)))


@pytest.mark.slow
def test_many_dimensions_agree_with_importance_sampling():
    X, y, release, approximation = setting(400, 30, seed=11, beta=0.02)
    draws = thinned(X, y, release, n_draws=2000)
    rng = np.random.default_rng(0)
    z = 1.05 * rng.standard_normal((30_000, 30))
    w = approximation.mean + z @ approximation.factor.T
    logs = np.concatenate([log_density(X, y, release, part) for part in np.array_split(w, 30)])
    logs += 0.5 * (z**2).sum(axis=1) / 1.05**2
    weight = np.exp(logs - logs.max())
    weight /= weight.sum()
    for column in (0, 7, 29):
        for function in (lambda v, j=column: v[:, j], lambda v, j=column: (v[:, j] - approximation.mean[j]) ** 2):
            expected = float(weight @ function(w))
            se_there = float(np.sqrt((weight**2) @ (function(w) - expected) ** 2))
            here = function(draws)
            se_here = float(here.std(ddof=1) / np.sqrt(here.size))
            assert abs(here.mean() - expected) <= 5 * np.hypot(se_here, se_there)
            assert se_there < se_here


@pytest.mark.slow
@pytest.mark.parametrize("beta", [0.01, 3.0])
def test_log_density_agrees_with_link(beta):
    X, y, release, approximation = setting(50, 3, seed=2, beta=beta, signal=10.0, power=0.8)
    draws = sample_glm(np.random.default_rng(1), X, y, release, approximation, 120)
    np.testing.assert_allclose(draws.log_density, log_density(X, y, release, draws.weights), rtol=1e-11, atol=1e-9)


@pytest.mark.parametrize("beta", [1e-9, 1e-3, 100.0])
def test_approximation_matches_mode_and_curvature(beta):
    X, y, release, approximation = setting(60, 4, seed=8, beta=beta, power=0.7)
    step = 1e-4 * np.diag(approximation.factor)
    at = log_density(X, y, release, approximation.mean)
    for j in range(4):
        moved = [log_density(X, y, release, approximation.mean + sign * step[j] * np.eye(4)[j]) for sign in (-1, 1)]
        assert abs(moved[1] - moved[0]) / 2e-4 < 1e-3  # the slope is in units of the standard deviation
    hessian = release.precision * np.eye(4)
    probability = 1 / (1 + np.exp(-X @ approximation.mean))
    hessian += release.power * (X.T * probability * (1 - probability)) @ X
    np.testing.assert_allclose(approximation.factor @ approximation.factor.T @ hessian, np.eye(4), atol=1e-8)
    assert np.isfinite(at)


def test_mode_of_separable_classes_is_found():
    X = np.array([[1.0, 0.0], [0.9, 0.1], [-1.0, 0.0], [-0.9, 0.1]])
    y = np.array([1.0, 1.0, 0.0, 0.0])
    approximation = laplace_approximation(X, y, target(4, 1e-12))
    assert approximation.mean[0] > 15
    assert np.isfinite(approximation.factor).all()


@pytest.mark.slow
def test_chains_converge_from_dispersed_starts():
    from arviz_stats.base import array_stats

    X, y, release, approximation = setting(500, 60, seed=4, beta=1e-3)
    rng = np.random.default_rng(2)
    first = sample_glm(rng, X, y, release, approximation, 96, n_chains=5)
    rest = sample_glm(rng, X, y, release, approximation, 1200, n_chains=5, start=first.weights[:, -1])
    initial = array_stats.rhat(first.log_density[:, :12], chain_axis=0, draw_axis=1, method="split")
    assert initial > 1.05  # in 60 dimensions, starts with twice the covariance are far from the bulk
    assert array_stats.rhat(rest.log_density, chain_axis=0, draw_axis=1, method="split") < 1.01
    assert array_stats.ess(rest.log_density, chain_axis=0, draw_axis=1, method="bulk") > 1000


def test_draws_are_reproducible():
    X, y, release, approximation = setting(50, 3, seed=2, beta=0.1)
    one, other = (sample_glm(np.random.default_rng(4), X, y, release, approximation, 48).weights for _ in range(2))
    assert np.array_equal(one, other)


@pytest.mark.parametrize("name", [name for name, link in LINKS.items() if not link.canonical])
def test_links_without_a_guarantee_are_refused(name):
    X, y, release, approximation = setting(10, 2, seed=2, beta=0.1)
    other = dataclasses.replace(release, link=LINKS[name])
    for draw in (
        lambda: laplace_approximation(X, y, other),
        lambda: sample_glm(np.random.default_rng(4), X, y, other, approximation, 12),
    ):
        assert_refused(draw, f"link must be logistic, got {name}, .*; change it")


def test_invalid_numbers_of_steps_and_modes_outside_the_ball_raise():
    X, y, release, approximation = setting(10, 2, seed=2, beta=0.1)
    rng, small = np.random.default_rng(4), 0.5 * float(np.linalg.norm(approximation.mean))
    for n_steps in (0, -12, 5):
        refuse = partial(sample_glm, rng, X, y, release, approximation, n_steps)
        assert_refused(refuse, r"n_steps must be .* multiple of 12")
    cut = dataclasses.replace(release, radius=small)
    assert_refused(lambda: sample_glm(rng, X, y, cut, approximation, 12), "the mode must be within the ball")
    assert_refused(lambda: laplace_approximation(4 * X, y, release), "rows must have norm <= 1, got a larger one")
