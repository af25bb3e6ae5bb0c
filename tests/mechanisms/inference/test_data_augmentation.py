"""Tests of data augmentation and rejection sampling against enumeration, quadrature and each other."""

import math
import time

import numba
import numpy as np
import pytest
from scipy import stats

from mechanisms.core.chain_diagnostics import diagnose_chains
from mechanisms.core.noise import Noise
from mechanisms.inference import data_augmentation
from mechanisms.inference.data_augmentation import draw_poisson, joint_proposal, sample_data_augmentation
from mechanisms.inference.exact_posterior import count_mixture, exact_posterior
from mechanisms.inference.families import MODELS
from mechanisms.inference.release_model import ReleaseModel
from tests.mechanisms.inference.chains import assert_cdf, batch_means
from tests.mechanisms.inference.exact_abc import sample_abc
from tests.mechanisms.marks import REPEATED, exhaustive
from tests.statistical import assert_frequencies, assert_mean_within, assert_rejects

RUN = {"n_burn_in": 500, "n_draws": 20_000}
COUNTS = {
    "edge": ((1.0, 1.0), 30, Noise("laplace", 1.0), [0.0]),
    "geometric": ((0.5, 5.0), 20, Noise("geometric", 2.0), [-3.0]),
    "gaussian": ((2.0, 1.0), 15, Noise("gaussian", 3.0), [19.0]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COUNTS)
def test_binomial_draws_follow_the_exact_posterior(name):
    prior, n, noise, y = COUNTS[name]
    model = ReleaseModel("binomial", n, noise)
    exact = count_mixture(prior, noise.log_weight(y[0] - np.arange(n + 1)))
    assert_cdf(sample_data_augmentation(np.random.default_rng(1), model, prior, y, **RUN), exact.cdf)
    independent = sample_abc(np.random.default_rng(2), model, prior, y, 20_000)
    assert stats.kstest(independent, exact.cdf).pvalue > 1e-6
    other = count_mixture(prior, 0.8 * noise.log_weight(y[0] - np.arange(n + 1)))
    assert stats.kstest(independent, other.cdf).pvalue < 1e-6


@pytest.mark.slow
def test_multinomial_draws_follow_the_exact_posterior():
    prior, n, noise, y = (0.5, 1.0, 2.0), 20, Noise("k-norm", 3.0), [17, 7, -4]
    model = ReleaseModel("multinomial", n, noise)
    exact = exact_posterior(model, prior, y)
    draws = sample_data_augmentation(np.random.default_rng(3), model, prior, y, **RUN)
    independent = sample_abc(np.random.default_rng(4), model, prior, y, 5_000)
    for j in range(3):
        assert_cdf(draws[..., j], exact.marginals[j].cdf)
        assert stats.kstest(independent[:, j], exact.marginals[j].cdf).pvalue > 1e-6
    assert_rejects(assert_cdf, 0.95 * draws[..., 0], exact.marginals[0].cdf)


SCALAR = {"exponential": ((2.0, 1.0), (0.3, 2.0)), "poisson": ((3.0, 1.0), (1, 4)), "normal": ((1.0, 4.0), (-1.0, 2.0))}


@pytest.mark.parametrize("restricted", [False, pytest.param(True, marks=REPEATED)])  # as with eight records below
@pytest.mark.parametrize("outside", ["drop", "clamp"])
@pytest.mark.parametrize("noise", [Noise("laplace", 0.4), pytest.param(Noise("gaussian", 0.5), marks=pytest.mark.slow)])
@pytest.mark.parametrize("family", SCALAR)
def test_draws_given_one_record_follow_the_exact_posterior(family, noise, outside, restricted):
    prior, bounds = SCALAR[family]
    model = ReleaseModel(family, 1, noise, bounds, outside, (0.6, 2.5) if restricted else None)
    exact = exact_posterior(model, prior, [1.3])
    draws = sample_data_augmentation(np.random.default_rng(5), model, prior, [1.3], **RUN)
    assert_cdf(draws, exact.cdf)
    assert_rejects(assert_cdf, draws + 0.1 * exact.std(), exact.cdf)


MANY = {
    "exponential": ((8.0, 2.0), (0.1, 0.6), [2.0]),
    "poisson": ((3.0, 2.0), (1, 3), [11.0]),
    "normal": ((1.0, 4.0), (-1.0, 2.0), [9.0]),
    "normal-unknown-variance": ((0.5, 1.0, 3.0, 2.0), (-1.0, 2.0), [5.0, 11.0]),
    "weak": ((0.5, 1.0, 1.5, 0.8, 0.7), (-1.0, 2.0), [5.0, 11.0]),
}


def name_of(family):
    return "normal-unknown-variance" if family == "weak" else family


RANGES = {"exponential": (2.0, 5.0), "poisson": (0.5, 2.0), "normal": (-1.0, 2.0)}
RANGES |= dict.fromkeys(("normal-unknown-variance", "weak"), ((-1.0, 0.2), (2.0, 2.25)))


@pytest.mark.parametrize(
    ("outside", "restricted"),
    [
        ("drop", False),
        ("clamp", False),
        pytest.param("clamp", True, marks=pytest.mark.slow),
        pytest.param("drop", True, marks=REPEATED),
    ],
)
@pytest.mark.parametrize("family", MANY)
def test_augmentation_agrees_with_rejection(family, outside, restricted):
    """Nine quantiles of data augmentation and rejection agree; a shift by 0.2 standard deviations is detected."""
    prior, bounds, y = MANY[family]
    model = ReleaseModel(
        name_of(family), 8, Noise("laplace", 2.0), bounds, outside, RANGES[family] if restricted else None
    )
    independent = sample_abc(np.random.default_rng(6), model, prior, y, 4_000).reshape(4_000, -1)
    draws = sample_data_augmentation(np.random.default_rng(7), model, prior, y, **RUN).reshape(
        4, -1, independent.shape[1]
    )
    for j in range(independent.shape[1]):
        assert_agree(draws[..., j], independent[:, j])
        assert_rejects(assert_agree, draws[..., j], independent[:, j] + 0.2 * independent[:, j].std())


BIMODAL = {"normal": ((1.0, 4.0), (-2.0, 2.0), 30.0), "poisson": ((4.0, 1.0), (1, 8), 50.0)}


@pytest.mark.slow
@pytest.mark.parametrize("family", ["normal", *exhaustive("poisson")])
def test_chains_visit_both_modes(family):
    """Chains visit both modes of the posterior given a sum of dropped records; neither suffices alone."""
    prior, bounds, y = BIMODAL[family]
    model = ReleaseModel(family, 100, Noise("laplace", bounds[1] - min(bounds[0], 0)), bounds)
    exact = exact_posterior(model, prior, [y])
    grid = exact.quantile(np.linspace(0.005, 0.995, 199))
    gap = int(np.argmax(np.diff(grid)))
    between = (grid[gap] + grid[gap + 1]) / 2
    assert 0.02 < exact.cdf(between) < 0.98
    draws = sample_data_augmentation(np.random.default_rng(12), model, prior, [y], n_burn_in=500, n_draws=30_000)
    assert diagnose_chains(draws)[0] < 1.01
    assert_cdf(draws, exact.cdf)
    for one in (np.minimum(draws, between), np.where(draws > between, draws, grid[-1])):
        assert_rejects(assert_cdf, one, exact.cdf)


@numba.njit
def poissons(rng, mean, size):
    records = np.empty(size)
    draw_poisson(rng, mean, records)
    return records


@pytest.mark.parametrize("mean", [0.1, 0.7, 4.0, 19.9, 20.1])
def test_poisson_draws_follow_the_pmf(mean):
    """Frequencies of 200,000 draws agree with the pmf; unlike with that of a mean that is 5 % larger."""
    right, wrong = (stats.poisson.pmf(np.arange(100), factor * mean) for factor in (1.0, 1.05))
    draws = poissons(np.random.default_rng(13), mean, 200_000).astype(int)
    assert_frequencies(np.bincount(draws, minlength=100), right / right.sum(), wrong=wrong)
    assert not poissons(np.random.default_rng(14), 0.0, 100).any()


def assert_agree(chains, independent):
    for level in np.linspace(0.1, 0.9, 9):
        point = np.quantile(independent, level)
        below = batch_means(chains <= point)
        error = math.hypot(below.std(ddof=1) / math.sqrt(below.size), math.sqrt(level * (1 - level) / independent.size))
        assert abs(below.mean() - level) <= 5 * error, f"{below.mean():.3f} is not within 5 errors of {level:.1f}"


def test_update_of_unknown_variance_equals_quadrature():
    """Given the records, the posterior means of μ and σ² equal those computed on a grid."""
    family, prior, x = MODELS["normal-unknown-variance"], (0.5, 2.0, 3.0, 2.0), np.array([0.1, 1.9, -0.4, 2.2])
    mean, strength, shape, scale = family.posterior(prior, [x.sum(), (x**2).sum()], x.size)
    mu, variance = np.linspace(-8, 9, 900)[:, None], np.exp(np.linspace(-5, 7, 900))
    log_density = stats.norm.logpdf(mu, prior[0], np.sqrt(variance / prior[1]))
    log_density = log_density + stats.invgamma.logpdf(variance, prior[2], scale=prior[3]) + np.log(variance)
    log_density = log_density + sum(stats.norm.logpdf(one, mu, np.sqrt(variance)) for one in x)
    weights = np.exp(log_density - log_density.max())
    assert (weights * mu).sum() / weights.sum() == pytest.approx(mean, rel=1e-6)
    assert (weights * variance).sum() / weights.sum() == pytest.approx(scale / (shape - 1), rel=1e-4)
    assert strength == 6.0
    draws = family.draw_parameters(np.random.default_rng(8), [mean, strength, shape, scale], 20_000)
    assert_mean_within(draws[:, 0], mean)
    assert_mean_within(draws[:, 1], scale / (shape - 1))


@pytest.mark.parametrize("family", ["exponential", "poisson"])
def test_vague_priors_give_valid_parameters(family):
    model = ReleaseModel(family, 5, Noise("laplace", 1.0), (0, 3), "clamp")
    for prior in ((1e-3, 1e-3), (1e-3, 1e-12), (5.0, 1e-50)):
        draws = sample_data_augmentation(np.random.default_rng(1), model, prior, [7.0], n_burn_in=0, n_draws=500)
        assert np.isfinite(draws).all()
        assert np.all(draws >= 0)


@pytest.mark.timing
def test_time_per_iteration_is_linear_in_the_records():
    def seconds(n):
        model = ReleaseModel("exponential", n, Noise("laplace", 5.0), (0.1, 0.9))
        best = math.inf
        for _ in range(3):
            start = time.thread_time()
            sample_data_augmentation(
                np.random.default_rng(9), model, (8, 2), [0.2 * n], n_chains=1, n_burn_in=0, n_draws=200
            )
            best = min(best, time.thread_time() - start)
        return best

    seconds(10)
    assert seconds(8_000) < 20 * seconds(1_000)


# Proposals of θ

POINTS = {
    "exponential": [[0.1], [1.0], [9.0]],
    "poisson": [[0.1], [2.5], [30.0]],
    "normal": [[-4.0], [0.3], [5.0]],
    "normal-unknown-variance": [[0.3, 1.0], [-1.0, 4.0], [0.5, 0.01]],
}


def integrated_moments(family, theta, bounds, clamps):
    """Return mean and covariance of (c, c²) by a sum over integers or over 200,000 quantiles of the record."""
    u = (np.arange(200_000) + 0.5) / 200_000
    if family == "poisson":
        x = np.arange(200.0)
        weights = stats.poisson.pmf(x, theta[0])
    elif family == "exponential":
        x, weights = stats.expon.ppf(u) / theta[0], np.full(u.size, 1 / u.size)
    else:
        x, weights = theta[0] + math.sqrt(theta[-1] if len(theta) > 1 else 1) * stats.norm.ppf(u), np.full(u.size, 5e-6)
    c = np.clip(x, *bounds) if clamps else np.where((x >= bounds[0]) & (x <= bounds[1]), x, 0.0)
    both = np.stack([c, c * c])
    mean = both @ weights
    return mean, (weights * (both - mean[:, None])) @ (both - mean[:, None]).T


@pytest.mark.parametrize("clamps", [False, True])
@pytest.mark.parametrize("family", POINTS)
def test_moments_of_contributions_equal_quadrature(family, clamps):
    theta = np.array(POINTS[family])
    mean, covariance = MODELS[family].contribution_moments(theta, MANY[family][1], clamps)
    d = mean.shape[1]
    for i, one in enumerate(theta):
        expected = integrated_moments(family, one, MANY[family][1], clamps)
        np.testing.assert_allclose(mean[i], expected[0][:d], atol=2e-5)
        np.testing.assert_allclose(covariance[i], expected[1][:d, :d], atol=2e-4)


@pytest.mark.parametrize("clamps", [True, False])
def test_moments_of_exponential_contributions_within_wide_bounds(clamps):
    """With bounds from 0 to a multiple of the mean, the mean and variance are those of all records."""
    mean, covariance = MODELS["exponential"].contribution_moments(np.array([[2.0], [1e4]]), (0.0, 1e6), clamps)
    np.testing.assert_allclose(mean.ravel(), [0.5, 1e-4])
    np.testing.assert_allclose(covariance.ravel(), [0.25, 1e-8])


@pytest.mark.parametrize("family", MANY)
def test_density_of_the_proposals_integrates_to_one(family):
    prior, bounds, y = MANY[family]
    model = ReleaseModel(name_of(family), 8, Noise("laplace", 2.0), bounds)
    edges, z_edges, cumulative, log_density = joint_proposal(model, np.array(prior), np.array(y))
    areas = np.outer(np.diff(edges), np.diff(z_edges)).ravel()
    np.testing.assert_allclose(np.exp(log_density) * areas, np.diff(cumulative, prepend=0.0), rtol=1e-9, atol=1e-15)
    assert np.all(np.diff(edges) > 0)
    assert family == "weak" or np.all(np.isfinite(log_density))


DROPPED = ReleaseModel("normal", 200, Noise("laplace", 4.0), (-0.5, 2.0))


def sample_dropped(n_draws):
    return sample_data_augmentation(
        np.random.default_rng(1), DROPPED, (1.0, 4.0), [90.0], n_chains=4, n_burn_in=500, n_draws=n_draws
    )


def test_proposals_near_the_posterior_mix_better_than_those_from_the_prior(monkeypatch):
    _, ess = diagnose_chains(sample_dropped(2_000))
    monkeypatch.setattr(data_augmentation, "_SHARE", 1.0)
    _, ess_of_prior = diagnose_chains(sample_dropped(2_000))
    assert ess > 5 * ess_of_prior


@pytest.mark.slow
@pytest.mark.parametrize("change", [*exhaustive("none"), "tilted", "inconsistent"])
def test_draws_are_exact_for_every_proposal(monkeypatch, change):
    """Draws follow the posterior for other proposals too, unless their density is not that of the proposals."""

    def changed(*arguments):
        edges, z_edges, cumulative, log_density = joint_proposal(*arguments)
        if change == "inconsistent":
            return edges, z_edges, cumulative, np.zeros_like(log_density)
        mass = np.diff(cumulative, prepend=0.0) * np.linspace(1.0, 1.0 if change == "none" else 5.0, cumulative.size)
        mass /= mass.sum()
        return edges, z_edges, np.append(np.cumsum(mass)[:-1], 1.0), np.log(mass / np.diff(edges))

    monkeypatch.setattr(data_augmentation, "joint_proposal", changed)
    exact, draws = exact_posterior(DROPPED, (1.0, 4.0), [90.0]), sample_dropped(15_000)
    if change == "inconsistent":
        assert_rejects(assert_cdf, draws, exact.cdf)
    else:
        assert_cdf(draws, exact.cdf)


@pytest.mark.parametrize(
    ("family", "prior", "parameter_range"),
    [
        ("exponential", (1e-3, 1e-3), None),
        ("exponential", (1e-10, 1.0), None),  # nearly all of the prior mass is below 1e-300
        ("poisson", (1e-3, 1e-9), None),
        ("normal", (0.0, 1e6), (0.0, 5.0)),
        ("normal-unknown-variance", (0.0, 1e-3, 1e-3, 1e-3), None),
        ("normal-unknown-variance", (0.0, 1e9, 1e9, 1e-9, 9.0), None),
    ],
)
def test_vague_priors_give_finite_proposals(family, prior, parameter_range):
    y = [90.0, 120.0][: 1 + (family == "normal-unknown-variance")]
    for release in (y, [1e12 * one for one in y]):
        model = ReleaseModel(
            family, 50, Noise("laplace", 4.0), MANY[family][1], "clamp", parameter_range=parameter_range
        )
        edges, z_edges, cumulative, log_density = joint_proposal(model, np.array(prior), np.array(release))
        assert np.all(np.isfinite(edges))
        assert np.all(np.isfinite(z_edges))
        assert np.all(np.diff(cumulative) >= 0)
        assert cumulative[-1] == 1
        assert not np.any(np.isnan(log_density))
        if parameter_range:
            np.testing.assert_allclose(edges[[0, -1]], parameter_range, atol=1e-6)
