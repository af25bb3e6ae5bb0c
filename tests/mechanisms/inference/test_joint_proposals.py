"""Tests of the proposals of θ: moments of contributions by quadrature, densities, and vague or restricted priors."""

import math

import numpy as np
import pytest
from scipy import stats

from mechanisms.core.chain_diagnostics import diagnose_chains
from mechanisms.core.noise import Noise
from mechanisms.inference import data_augmentation
from mechanisms.inference.data_augmentation import joint_proposal, sample_data_augmentation
from mechanisms.inference.exact_posterior import exact_posterior
from mechanisms.inference.families import MODELS
from mechanisms.inference.release_model import ReleaseModel
from tests.mechanisms.inference.test_gibbs_exact import assert_cdf
from tests.statistical import assert_rejects

BOUNDS = {
    "exponential": (0.2, 1.5),
    "poisson": (1.0, 4.0),
    "normal": (-0.5, 2.0),
    "normal-unknown-variance": (-0.5, 2.0),
}
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
@pytest.mark.parametrize("family", BOUNDS)
def test_moments_of_contributions_equal_quadrature(family, clamps):
    theta = np.array(POINTS[family])
    mean, covariance = MODELS[family].contribution_moments(theta, BOUNDS[family], clamps)
    d = mean.shape[1]
    for i, one in enumerate(theta):
        expected = integrated_moments(family, one, BOUNDS[family], clamps)
        np.testing.assert_allclose(mean[i], expected[0][:d], atol=2e-5)
        np.testing.assert_allclose(covariance[i], expected[1][:d, :d], atol=2e-4)


@pytest.mark.parametrize("clamps", [True, False])
def test_moments_of_exponential_contributions_within_wide_bounds(clamps):
    """With bounds from 0 to a multiple of the mean, the mean and variance are those of all records."""
    mean, covariance = MODELS["exponential"].contribution_moments(np.array([[2.0], [1e4]]), (0.0, 1e6), clamps)
    np.testing.assert_allclose(mean.ravel(), [0.5, 1e-4])
    np.testing.assert_allclose(covariance.ravel(), [0.25, 1e-8])


PRIORS = {
    "exponential": (8.0, 2.0),
    "poisson": (8.0, 2.0),
    "normal": (1.0, 4.0),
    "normal-unknown-variance": (0.5, 1.0, 3.0, 2.0),
}
WEAK = (0.5, 1.0, 1.0, 0.3, 2.0)


@pytest.mark.parametrize(("family", "prior"), [*PRIORS.items(), ("normal-unknown-variance", WEAK)])
def test_density_of_the_proposals_integrates_to_one(family, prior):
    y = [30.0, 40.0][: 1 + (family == "normal-unknown-variance")]
    model = ReleaseModel(family, 50, Noise("laplace", 2.0), BOUNDS[family])
    edges, z_edges, cumulative, log_density = joint_proposal(model, np.array(prior), np.array(y))
    areas = np.outer(np.diff(edges), np.diff(z_edges)).ravel()
    np.testing.assert_allclose(np.exp(log_density) * areas, np.diff(cumulative, prepend=0.0), rtol=1e-9, atol=1e-15)
    assert np.all(np.diff(edges) > 0)
    assert prior is WEAK or np.all(np.isfinite(log_density))


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
@pytest.mark.parametrize("change", ["none", "tilted", "inconsistent"])
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
    exact, draws = exact_posterior(DROPPED, (1.0, 4.0), [90.0]), sample_dropped(30_000)
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
            family, 50, Noise("laplace", 4.0), BOUNDS[family], "clamp", parameter_range=parameter_range
        )
        edges, z_edges, cumulative, log_density = joint_proposal(model, np.array(prior), np.array(release))
        assert np.all(np.isfinite(edges))
        assert np.all(np.isfinite(z_edges))
        assert np.all(np.diff(cumulative) >= 0)
        assert cumulative[-1] == 1
        assert not np.any(np.isnan(log_density))
        if parameter_range:
            np.testing.assert_allclose(edges[[0, -1]], parameter_range, atol=1e-6)
