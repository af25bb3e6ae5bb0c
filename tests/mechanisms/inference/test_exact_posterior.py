"""Tests of exact posteriors against enumeration and quadrature, and against posteriors on a finer lattice."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import signal, special, stats

from mechanisms.inference import exact_posterior as module
from mechanisms.inference.choice import choose_method, resolve
from mechanisms.inference.exact_abc import sample_abc
from mechanisms.inference.exact_posterior import ContradictionError, UnresolvedPosteriorError, exact_posterior
from mechanisms.inference.marginal import marginal_posterior
from mechanisms.inference.release_model import ReleaseModel
from mechanisms.noise import Noise
from tests.statistical import assert_mean_within

MODELS = {
    "exponential": ((2.0, 1.0), (0.3, 2.0), stats.gamma(2.0), lambda t: stats.expon(scale=1 / t)),
    "normal": ((1.0, 4.0), (-1.0, 2.0), stats.norm(1.0, 2.0), lambda t: stats.norm(t)),
}


@pytest.mark.parametrize("restricted", [False, True])
@pytest.mark.parametrize("outside", ["drop", "clamp"])
@pytest.mark.parametrize("noise", [Noise("laplace", 0.4), Noise("gaussian", 0.5)])
@pytest.mark.parametrize("family", MODELS)
def test_one_record_equals_quadrature(family, noise, outside, restricted):
    prior, (a, b), prior_distribution, record = MODELS[family]
    model = ReleaseModel(family, 1, noise, (a, b), outside, (a, b) if restricted else None)
    y, (nodes, weights) = 1.3, np.polynomial.legendre.leggauss(50)
    x = np.concatenate([a + (y - a) * (1 + nodes) / 2, y + (b - y) * (1 + nodes) / 2])  # the integrand has a kink at y
    x_weights = np.concatenate([(y - a) / 2 * weights, (b - y) / 2 * weights])

    def likelihood(t):
        one, ends = record(t), (a, b) if outside == "clamp" else (0.0, 0.0)
        weight = [np.exp(noise.log_weight(y - end)) for end in ends]
        inside = x_weights * np.exp(noise.log_weight(y - x)) @ one.pdf(x[:, None])
        return inside + one.cdf(a) * weight[0] + one.sf(b) * weight[1]

    edges = np.linspace(a, b, 250) if restricted else prior_distribution.ppf(special.expit(np.linspace(-16, 16, 250)))
    middles = (edges[1:] + edges[:-1]) / 2
    mass = np.diff(prior_distribution.cdf(edges)) * likelihood(middles)
    cdf = np.cumsum(mass) / mass.sum()
    posterior = exact_posterior(model, prior, [y])
    np.testing.assert_allclose(posterior.cdf(edges[1:]), cdf, atol=3e-3)
    assert abs(posterior.cdf(1.05 * edges[1:]) - cdf).max() > 6e-3


def test_poisson_equals_enumeration():
    prior, n, y, noise = (3.0, 1.0), 3, 7.0, Noise("geometric", 1.5)
    model = ReleaseModel("poisson", n, noise, (1, 4), "clamp")
    theta = np.linspace(1e-3, 20, 4_000)
    pmf = stats.poisson.pmf(np.arange(80), theta[:, None])
    clamped = model.contributions(np.arange(80)).astype(int)
    one = np.stack([pmf[:, clamped == c].sum(axis=1) for c in range(5)], axis=1)
    likelihood = sum(
        one[:, i] * one[:, j] * one[:, k] * np.exp(noise.log_weight(y - i - j - k))
        for i in range(5)
        for j in range(5)
        for k in range(5)
    )
    cdf = np.cumsum(stats.gamma.pdf(theta, 3.0) * likelihood)
    np.testing.assert_allclose(exact_posterior(model, prior, [y]).cdf(theta), cdf / cdf[-1], atol=2e-3)


LARGER = {
    "exponential-drop": ("exponential", (8.0, 2.0), (0.1, 0.9), "drop", 40, Noise("laplace", 1.5), 6.0),
    "exponential-clamp": ("exponential", (8.0, 2.0), (0.1, 0.9), "clamp", 40, Noise("gaussian", 1.5), 16.0),
    "normal-drop": ("normal", (0.0, 4.0), (1.0, 3.0), "drop", 30, Noise("laplace", 3.0), 20.0),
    "normal-negative": ("normal", (0.0, 4.0), (-3.0, -1.0), "drop", 30, Noise("laplace", 3.0), -20.0),
    "poisson-drop": ("poisson", (8.0, 2.0), (2, 6), "drop", 50, Noise("laplace", 6.0), 120.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGER)
def test_lattice_is_fine_enough(name, monkeypatch):
    family, prior, bounds, outside, n, noise, y = LARGER[name]
    model = ReleaseModel(family, n, noise, bounds, outside)
    posterior = exact_posterior(model, prior, [y])
    monkeypatch.setattr(module, "LATTICE", 4 * module.LATTICE)
    monkeypatch.setattr(module, "_FINE", 2 * module._FINE)
    fine = exact_posterior(model, prior, [y])
    assert abs(posterior.cdf(fine.edges) - fine.cdf_values).max() < 5e-4
    monkeypatch.setattr(module, "LATTICE", 4)
    if family == "poisson":
        exact_posterior(model, prior, [y])
    else:
        with pytest.raises(UnresolvedPosteriorError, match="too wide for a lattice of 4 steps"):
            exact_posterior(model, prior, [y])


VAGUE = {
    "normal": ("normal", (0.0, 1e6), (-5.0, 5.0), "clamp", 10, Noise("laplace", 3.0), 12.0),
    "normal-dropped": ("normal", (0.0, 1e4), (-5.0, 5.0), "drop", 10, Noise("gaussian", 3.0), 12.0),
    "normal-far-bounds": ("normal", (0.0, 1e5), (50.0, 60.0), "clamp", 10, Noise("laplace", 10.0), 540.0),
    "exponential": ("exponential", (0.01, 0.01), (0.0, 5.0), "clamp", 20, Noise("laplace", 5.0), 18.0),
    "exponential-dropped": ("exponential", (0.5, 0.001), (0.0, 5.0), "drop", 20, Noise("laplace", 5.0), 18.0),
    "poisson": ("poisson", (0.5, 0.01), (0, 10), "clamp", 20, Noise("laplace", 10.0), 40.0),
    "poisson-nearly-improper": ("poisson", (0.001, 0.001), (0, 10), "clamp", 20, Noise("laplace", 10.0), 40.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", VAGUE)
def test_vague_priors_equal_quadrature(name):
    """The posterior equals a sum over a fixed fine grid of θ, with convolutions on a lattice instead of transforms."""
    family, prior, bounds, outside, n, noise, y = VAGUE[name]
    model = ReleaseModel(family, n, noise, bounds, outside)
    if family == "normal":
        edges = np.concatenate([np.linspace(-4_000, 4_000, 500), np.linspace(bounds[0] - 9, bounds[1] + 9, 1_500)])
        distribution = stats.norm(prior[0], prior[1] ** 0.5)
    else:
        edges = np.append(0.0, np.geomspace(1e-12, 3e4, 3_000))
        distribution = stats.gamma(prior[0], scale=1 / prior[1])
    edges = np.unique(edges)
    weights, origin, step = module._contribution_weights(model, (edges[1:] + edges[:-1]) / 2)
    evidence = np.exp(noise.log_weight(y - n * origin - step * np.arange(n * (weights.shape[1] - 1) + 1)))
    likelihood = np.array([_power_of_pmf(one, n) @ evidence for one in weights])
    mass = np.diff(distribution.cdf(edges)) * likelihood
    cdf = np.cumsum(mass) / mass.sum()
    posterior = exact_posterior(model, prior, [y])
    inside = (cdf > 1e-3) & (cdf < 1 - 1e-3)
    np.testing.assert_allclose(posterior.cdf(edges[1:])[inside], cdf[inside], atol=2e-3)
    assert abs(posterior.cdf(2 * edges[1:]) - cdf)[inside].max() > 3e-3


def _power_of_pmf(pmf, n):
    """Return the n-fold convolution of a pmf by repeated squaring."""
    result = np.ones(1)
    while n:
        result = signal.fftconvolve(result, pmf).clip(0) if n & 1 else result
        pmf, n = signal.fftconvolve(pmf, pmf).clip(0), n >> 1
    return result


CONTRADICTIONS = {
    "poisson": ("poisson", (100.0, 100.0), (0, 10), "clamp", 100, Noise("laplace", 2.0), 300.0),
    "normal": ("normal", (0.0, 0.1), (-5.0, 5.0), "clamp", 100, Noise("laplace", 2.0), 300.0),
    "narrow noise": ("exponential", (2.0, 1.0), (0.0, 5.0), "clamp", 1, Noise("laplace", 5e-6), 1.01),
    "wide bounds": ("normal", (0.0, 4.0), (-1e3, 1e3), "clamp", 1_000, Noise("laplace", 200.0), 120.0),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_posteriors_that_sums_do_not_resolve_are_drawn(name):
    family, prior, bounds, outside, n, noise, y = CONTRADICTIONS[name]
    model = ReleaseModel(family, n, noise, bounds, outside)
    with pytest.raises(UnresolvedPosteriorError, match="use sample_data_augmentation"):
        exact_posterior(model, prior, [y])
    choice, posterior = resolve(model, prior, np.array([y]))
    assert (choice.method, posterior) == ("data-augmentation", None)


def test_contradictions_with_several_modes_are_refused():
    """Given y = 426, a prior mean of 100 explains that all records were dropped worse than a mean of 9 explains y."""
    model = ReleaseModel("poisson", 100, Noise("laplace", 8 / 3.37), (1, 8), "drop")
    with pytest.raises(ContradictionError, match=r"y=425\.8 contradicts the prior"):
        resolve(model, (100.0, 1.0), np.array([425.8]))


@pytest.mark.parametrize(
    ("family", "prior", "bounds", "limits", "y"),
    [
        ("normal", (0.0, 100.0), (0.0, 1.0), (0.0, 1.0), 4.0),
        ("normal", (0.0, 100.0), (-5.0, 5.0), (0.0, 0.5), 4.0),
        ("poisson", (1.0, 0.5), (0, 5), (1.0, 1.5), 40.0),
        ("exponential", (1.0, 0.5), (0.0, 5.0), (1.0, 1.2), 20.0),
    ],
)
def test_narrow_parameter_ranges(family, prior, bounds, limits, y):
    """The posterior within a range is that without it, conditioned on the range."""
    noise = Noise("laplace", 5.0)
    posterior = exact_posterior(ReleaseModel(family, 30, noise, bounds, "clamp", limits), prior, [y])
    whole = exact_posterior(ReleaseModel(family, 30, noise, bounds, "clamp"), prior, [y])
    low, high = whole.cdf(limits)
    theta = np.linspace(*limits, 9)
    np.testing.assert_allclose(posterior.cdf(theta), (whole.cdf(theta) - low) / (high - low), atol=2e-3)


@pytest.mark.parametrize(
    ("family", "prior", "bounds", "noise", "y", "expected"),
    [
        ("exponential", (1, 1e-6), (0, 10), Noise("laplace", 1.0), 150.0, (0.67275, 0.06733)),
        ("exponential", (1, 1e-6), (0, 10), Noise("gaussian", 10.0), 150.0, (0.68173, 0.08277)),
        ("poisson", (1, 1e-6), (0, 1), Noise("laplace", 1 / 43), 8.0, (0.09382, 0.03128)),
        ("normal", (0, 1e8), (-5, 5), Noise("laplace", 1.0), 50.0, (0.5, 0.10101)),
    ],
)
def test_rounding_errors_are_no_tails(family, prior, bounds, noise, y, expected):
    """Mean and standard deviation, from convolutions of exponentially tilted contributions in the log domain."""
    posterior = exact_posterior(ReleaseModel(family, 100, noise, bounds, "clamp"), prior, [y])
    np.testing.assert_allclose([posterior.mean(), posterior.std()], expected, rtol=5e-3)


def test_cost_of_bounds_far_from_zero_is_counted():
    """Dropped records contribute 0, which extends the lattice of contributions far from 0."""
    model = ReleaseModel("normal", 100, Noise("gaussian", 200.0), (39.75, 40.25))
    assert choose_method(model, (1000.0, 1e6)).method == "data-augmentation"
    assert choose_method(replace(model, outside="clamp"), (1000.0, 1e6)).method == "exact"


@pytest.mark.parametrize(
    ("family", "prior", "bounds", "n", "y", "expected"),
    [("poisson", (3, 1), (0, 6), 50, 7_500.0, 9.66), ("normal", (0, 1), (-5, 5), 10, -8_000.0, -0.997)],
)
@pytest.mark.filterwarnings("error")
def test_releases_far_outside_the_range(family, prior, bounds, n, y, expected):
    """Noise of any size is explained: the likelihood is then ∝ E[exp(s/b)], or its mirror image."""
    noise = Noise("laplace", float(bounds[1] - bounds[0]))
    posterior = exact_posterior(ReleaseModel(family, n, noise, bounds, "clamp"), prior, [y])
    further = exact_posterior(ReleaseModel(family, n, noise, bounds, "clamp"), prior, [2 * y])
    np.testing.assert_allclose(posterior.mean(), expected, rtol=1e-3)
    np.testing.assert_allclose(posterior.mean(), further.mean(), rtol=1e-6)


@pytest.mark.parametrize("name", ["exponential-drop", "normal-drop", "poisson-drop"])
def test_rejection_follows_the_posterior(name):
    family, prior, bounds, outside, n, noise, y = LARGER[name]
    model = ReleaseModel(family, n, noise, bounds, outside)
    posterior = exact_posterior(model, prior, [y])
    draws = sample_abc(np.random.default_rng(1), model, prior, [y], 3_000)
    assert stats.kstest(draws, posterior.cdf).pvalue > 1e-6
    assert stats.kstest(1.1 * draws, posterior.cdf).pvalue < 1e-6


@pytest.mark.slow
def test_posterior_tends_to_the_normal_approximation():
    """With 200 records and wide noise, the exact posterior agrees with the normal approximation to within 0.002."""
    prior, bounds, n, scale, y = (8.0, 2.0), (0.05, 0.9), 200, 9.0, 35.0
    exact = exact_posterior(ReleaseModel("exponential", n, Noise("laplace", scale), bounds), prior, [y])
    approximate = marginal_posterior("exponential", prior, n, [y], scale, bounds)
    assert abs(exact.cdf(exact.edges) - approximate.cdf(exact.edges[None])[0]).max() < 2e-3


def test_grid_posterior_is_consistent():
    family, prior, bounds, outside, n, noise, y = LARGER["exponential-drop"]
    posterior = exact_posterior(ReleaseModel(family, n, noise, bounds, outside), prior, [y])
    draws = posterior.sample(np.random.default_rng(2), 20_000)
    assert_mean_within(draws, posterior.mean())
    assert_mean_within((draws - posterior.mean()) ** 2, posterior.std() ** 2)
    np.testing.assert_allclose(posterior.cdf(posterior.quantile([0.1, 0.6])), [0.1, 0.6], atol=1e-12)


@pytest.mark.parametrize("y", [1e6, 1e17, 1e300])
def test_counts_far_below_a_release_keep_their_weights(y):
    posterior = exact_posterior(ReleaseModel("binomial", 10, Noise("laplace", 1.0)), (1, 1), [y])
    nearest = exact_posterior(ReleaseModel("binomial", 10, Noise("laplace", 1.0)), (1, 1), [10.0])
    np.testing.assert_allclose(posterior.mean(), nearest.mean(), rtol=1e-9)


def test_counts_give_mixtures():
    binomial = exact_posterior(ReleaseModel("binomial", 10, Noise("laplace", 1.0)), (1, 1), [3.5])
    multinomial = exact_posterior(ReleaseModel("multinomial", 10, Noise("laplace", 2.0)), (1, 1), [3.5, 6.5])
    np.testing.assert_allclose(multinomial.mean()[0], binomial.mean(), rtol=1e-12)


def test_unknown_variance_is_refused():
    model = ReleaseModel("normal-unknown-variance", 10, Noise("laplace", 1.0), (-1.0, 1.0))
    with pytest.raises(ValueError, match="must have one parameter"):
        exact_posterior(model, (0, 1, 2, 2), [0.0, 1.0])
