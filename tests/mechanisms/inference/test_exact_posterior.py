"""Tests of exact posteriors against enumeration, quadrature and importance sampling."""

import itertools
import math
import time
from functools import partial

import numpy as np
import pytest
from scipy import special, stats

from mechanisms.core.noise import Noise, calibrated_noise
from mechanisms.inference import exact_posterior as exact_module
from mechanisms.inference.exact_posterior import exact_posterior
from mechanisms.inference.gibbs_exact import sample_gibbs_exact
from mechanisms.inference.release_model import ReleaseModel
from mechanisms.inference.sum_inversion import log_bound, log_likelihood
from mechanisms.tables import messages
from tests.mechanisms.counts.enumeration import frequencies_of
from tests.mechanisms.inference.enumeration import enumerate_posterior, marginal_cdf
from tests.mechanisms.inference.exact_abc import sample_abc
from tests.mechanisms.inference.laplace import marginal_posterior
from tests.mechanisms.marks import exhaustive
from tests.mechanisms.refusals import assert_refused
from tests.statistical import assert_frequencies

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


LARGER = {
    "exponential-drop": ("exponential", (8.0, 2.0), (0.1, 0.9), "drop", 40, Noise("laplace", 1.5), 6.0),
    "normal-drop": ("normal", (0.0, 4.0), (1.0, 3.0), "drop", 30, Noise("laplace", 3.0), 20.0),
    "poisson-drop": ("poisson", (8.0, 2.0), (2, 6), "drop", 50, Noise("laplace", 6.0), 120.0),
}


def release(family, n, epsilon, bounds, outside="drop"):
    """Return the model of an ε-DP release with Laplace noise."""
    sensitivity = ReleaseModel(family, n, Noise("laplace", 1.0), bounds, outside).sensitivity()
    return ReleaseModel(family, n, calibrated_noise("laplace", sensitivity, epsilon), bounds, outside)


VALLEYS = {
    "poisson": (release("poisson", 34, 4.94, (0, 8)), (0.13, 1.749), -1.19, (0.00748, 0.02073), (6e-5, 2e-4)),
    "poisson above": (release("poisson", 67, 1.28, (5, 9)), (0.96, 1.404), -3.8, (0.4883, 0.4114), (2e-3, 3e-3)),
}


@pytest.mark.parametrize("name", VALLEYS)
def test_valleys_and_tails_equal_importance_sampling(name):
    """Mean and standard deviation from 400,000 weighted draws, within five standard errors."""
    model, prior, y, expected, errors = VALLEYS[name]
    posterior = exact_posterior(model, prior, [y])
    assert abs(posterior.mean() - expected[0]) < 5 * errors[0]
    assert abs(posterior.std() - expected[1]) < 5 * errors[1]


BIMODAL = {
    "exponential": (release("exponential", 1130, 1.0, (0, 1)), (1e-3, 1e-3), 169.5, 3.139, (0.341, 6.937)),
    "normal": (release("normal", 1130, 1.0, (0, 5)), (0.0, 1e4), 282.5, 2.587, (-0.417, 6.704)),
    "poisson": (release("poisson", 15_000, 1.0, (0, 10)), (1e-3, 1e-3), 30_000.0, 4.071, (1.978, 13.280)),
}


@pytest.mark.parametrize("name", BIMODAL)
def test_both_modes_have_their_mass(name):
    """If records are dropped, few records below a bound and many above it explain the same sum."""
    model, prior, y, mean, interval = BIMODAL[name]
    posterior = exact_posterior(model, prior, [y])
    np.testing.assert_allclose(posterior.mean(), mean, atol=1e-3)
    np.testing.assert_allclose(posterior.interval(0.95), interval, atol=1e-3)


def grid_posterior(log_weight, phi, theta):
    """Return mean, standard deviation and distribution function of θ by the trapezoidal rule on a grid of φ."""
    weight = np.exp(log_weight - log_weight.max()) * np.gradient(phi)
    weight /= weight.sum()
    mean = weight @ theta
    return mean, np.sqrt(weight @ (theta - mean) ** 2), np.cumsum(weight) - weight / 2


@pytest.mark.parametrize("outside", ["drop", "clamp"])
@pytest.mark.parametrize("name", ["laplace", "gaussian"])
@pytest.mark.parametrize("prior", [(0.001, 0.001), (0.5, 0.01), (1000.0, 100.0), (100.0, 1.0)])
def test_vague_and_contradicting_priors_equal_enumeration(prior, name, outside):
    """Sums of Poisson records by direct convolutions; y is at most 56, and priors of means 10 and 100 contradict it."""
    n, (a, b), y = 8, (1, 7), 20.0
    model = ReleaseModel("poisson", n, Noise(name, 3.0), (a, b), outside)
    phi = np.linspace(np.log(1e-12), np.log(3e4), 12_000)
    theta = np.exp(phi)
    one = np.zeros((theta.size, b + 1))
    one[:, a:] = stats.poisson.pmf(np.arange(a, b + 1), theta[:, None])
    one[:, a if outside == "clamp" else 0] += stats.poisson.cdf(a - 1, theta)
    one[:, b if outside == "clamp" else 0] += stats.poisson.sf(b, theta)
    total = one
    for _ in range(n - 1):
        longer = np.zeros((theta.size, total.shape[1] + b))
        for j in range(b + 1):
            longer[:, j : j + total.shape[1]] += one[:, j : j + 1] * total
        total = longer
    likelihood = np.log(total @ np.exp(model.noise.log_weight(y - np.arange(total.shape[1]))))
    mean, std, cdf = grid_posterior(likelihood + prior[0] * phi - prior[1] * theta, phi, theta)
    posterior = exact_posterior(model, prior, [y])
    if prior[0] > 0.001:  # otherwise the grid omits a part of the posterior below its first point
        np.testing.assert_allclose([posterior.mean(), posterior.std()], [mean, std], rtol=1e-5)
    below = posterior.cdf(theta[0])
    inside = (cdf > 1e-3) & (cdf < 1 - 1e-3)
    np.testing.assert_allclose(((posterior.cdf(theta) - below) / (1 - below))[inside], cdf[inside], atol=5e-4)
    assert abs(posterior.cdf(1.02 * theta) - cdf)[inside].max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *exhaustive(*range(1, 6))])
def test_random_releases_are_resolved(seed):
    """The mass between neighbouring quantiles is proportional to the prior times the likelihood in all modes."""
    rng = np.random.default_rng(seed)
    for _ in range(7):
        family, outside = rng.choice(["exponential", "poisson", "normal"]), str(rng.choice(["drop", "clamp"]))
        width = 10 ** rng.uniform(0, 1)
        low = rng.normal() if family == "normal" else rng.choice([0.0, width])
        bounds = (np.floor(low), np.floor(low) + np.ceil(width)) if family == "poisson" else (low, low + width)
        model = release(str(family), int(10 ** rng.uniform(0, 6)), 10 ** rng.uniform(-1, 0.7), bounds, outside)
        prior = (rng.normal(), 10 ** rng.uniform(-1, 4)) if family == "normal" else tuple(10 ** rng.uniform(-2, 1.5, 2))
        y = model.n * rng.uniform(*model.contribution_range()) + model.noise.sample(rng, (1,))[0]
        posterior = exact_posterior(model, prior, [y])
        phi = posterior.quantile(special.expit(np.linspace(-13, 13, 4_001)))
        log_density = log_likelihood(model, phi, y)[0]
        if family == "normal":
            log_density -= (phi - prior[0]) ** 2 / (2 * prior[1])
        else:
            log_density += prior[0] * np.log(phi.clip(1e-300)) - prior[1] * phi
            phi = np.log(phi.clip(1e-300))
        mass = np.diff(posterior.cdf(np.exp(phi) if family != "normal" else phi))
        area = np.diff(phi) * np.exp(log_density - log_density.max())[:-1]
        near = np.abs(np.diff(log_density)) < 0.02
        near &= (np.diff(phi) > 1e-9 * np.abs(phi[1:])) & (mass > 1e-6)
        log_ratio = np.log(mass[near] / area[near])
        assert posterior.error < 1e-5
        assert near.sum() > 100
        assert np.ptp(log_ratio) < 0.05, (model, prior, y)


def test_contradictions_are_no_special_case():
    """Given y = 426, a prior mean of 100 explains that all records were dropped worse than a mean of 9 explains y."""
    model = ReleaseModel("poisson", 100, Noise("laplace", 8 / 3.37), (1, 8), "drop")
    posterior = exact_posterior(model, (100.0, 1.0), [425.8])
    assert model.is_surprising([425.8]) is False
    assert posterior.error < 1e-6
    clamped = ReleaseModel("exponential", 636, Noise("gaussian", 0.575), (0, 1), "clamp")
    np.testing.assert_allclose(exact_posterior(clamped, (2.0, 1e-3), [637.085]).mean(), 0.00408, rtol=1e-3)


HARD = {
    "dropped": (ReleaseModel("normal", 20, Noise("laplace", 3.0), (30, 31)), (31.0, 0.1), 45.0),
    "kinks": (ReleaseModel("normal", 20, Noise("laplace", 0.6), (30, 31)), (31.0, 0.1), 45.0),
    "next to all clamped": (
        ReleaseModel("normal", 8_047, Noise("laplace", 0.0245), (-0.3455, 0.2242), "clamp"), (0.35, 70.5), 1_803.99
    ),
    "one record": (ReleaseModel("normal", 1, Noise("gaussian", 1.5), (-34, -15)), (-43.0, 100.8), -32.1),
}  # fmt: skip


@pytest.mark.timing
@pytest.mark.parametrize("name", HARD)
def test_hard_integrals_need_few_values_and_steps(name, monkeypatch):
    """Few likelihoods per posterior, at most 2 ms each: some of them took 100 ms, or 80,000 likelihoods."""
    model, prior, y = HARD[name]
    sizes = []
    monkeypatch.setattr(
        "mechanisms.inference.exact_posterior.log_likelihood",
        lambda model, theta, y: sizes.append(theta.size) or log_likelihood(model, theta, y),
    )
    exact_posterior(model, prior, [y])
    start = time.process_time()
    exact_posterior(model, prior, [y])
    assert sum(sizes) < 2 * 2_000
    assert time.process_time() - start < 0.002 * sum(sizes) / 2


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
    np.testing.assert_allclose(posterior.cdf(theta), (whole.cdf(theta) - low) / (high - low), atol=1e-6)


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
    np.testing.assert_allclose([posterior.mean(), posterior.std()], expected, rtol=2e-4)


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


@pytest.mark.parametrize("family", ["binomial", "poisson"])
@pytest.mark.filterwarnings("error")
def test_gaussian_releases_far_outside_the_range(family):
    """Only the largest or the smallest sum is possible: all of n records, or none, are at an end."""
    n, bounds = 10, None if family == "binomial" else (0, 1)
    for scale, y in itertools.product((0.01, 1.0, 30.0), (1e17, 1.7e308)):
        model = ReleaseModel(family, n, Noise("gaussian", scale), bounds, "clamp")
        means = [exact_posterior(model, (1, 1), [release]).mean() for release in (y, -y)]
        expected = [(n + 1) / (n + 2), 1 / (n + 2)] if family == "binomial" else [above_zero_mean(n), 1 / (n + 1)]
        np.testing.assert_allclose(means, expected, rtol=1e-12 if family == "binomial" else 1e-6)
    scale, y, s = 3e5, 4e11, np.arange(n + 1)  # several counts are possible
    weight = np.exp(s * y / scale**2)
    expected = weight @ (1 + s) / weight.sum() / (n + 2)
    model = ReleaseModel("binomial", n, Noise("gaussian", scale))
    np.testing.assert_allclose(exact_posterior(model, (1, 1), [y]).mean(), expected, rtol=1e-9)


def above_zero_mean(n):
    """Return E[θ | all of n Poisson counts are > 0] for the prior Gamma(1, 1), by the binomial formula."""
    terms = [(-1) ** i * math.comb(n, i) / (1 + i) for i in range(n + 1)]
    return sum(term / (1 + i) for i, term in enumerate(terms)) / sum(terms)


@pytest.mark.parametrize("name", LARGER)
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
    theta = exact.quantile(np.linspace(0.01, 0.99, 50))
    assert abs(exact.cdf(theta) - approximate.cdf(theta[None])[0]).max() < 2e-3


def test_counts_give_mixtures():
    binomial = exact_posterior(ReleaseModel("binomial", 10, Noise("laplace", 1.0)), (1, 1), [3.5])
    multinomial = exact_posterior(ReleaseModel("multinomial", 10, Noise("laplace", 2.0)), (1, 1), [3.5, 6.5])
    np.testing.assert_allclose(multinomial.mean()[0], binomial.mean(), rtol=1e-12)


def test_models_without_support_are_refused():
    model = ReleaseModel("normal-unknown-variance", 10, Noise("laplace", 1.0), (-1.0, 1.0))
    assert_refused(lambda: exact_posterior(model, (0, 1, 2, 2), [0.0, 1.0]), "must have one parameter")
    sample = partial(sample_gibbs_exact, np.random.default_rng(1), model, (0, 1, 2, 2), [0.0, 1.0])
    assert_refused(sample, "family must be binomial or multinomial")


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [*exhaustive(1e4), 1e8])
def test_negligible_likelihoods_of_precise_sums_are_not_integrated(epsilon):
    """Their line integrals had two million steps each; the posterior of ten records took 121 s at ε = 1e8."""
    model = ReleaseModel("exponential", 10, Noise("laplace", 900.0 / epsilon), bounds=(0.0, 900.0))
    posterior = exact_posterior(model, (2.0, 2.0), [7.3])
    assert posterior.problem() is None
    assert posterior.mean() == pytest.approx(12.0 / 9.3, rel=1e-2 if epsilon < 1e6 else 1e-6)


@pytest.mark.parametrize("share", [0.02, *exhaustive(1.0)])
def test_posterior_that_takes_too_long_is_refused(monkeypatch, share):
    """The posterior takes all steps that are allowed, and is refused at the first further one."""
    monkeypatch.setattr(exact_module, "_STEPS", share * exact_module._STEPS)
    model = ReleaseModel("exponential", 300, Noise("laplace", 0.009), bounds=(0.0, 900.0))
    with pytest.raises(
        ValueError, match=r"must take less than about 30 s, got more for noise of scale 0\.009 and"
    ) as error:
        exact_posterior(model, (2.0, 2.0), [2_700.0])
    assert "\n" not in str(error.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "outside"),
    [
        ("exponential", "drop"),
        ("normal", "clamp"),
        *exhaustive(("exponential", "clamp"), ("normal", "drop")),
    ],
)
def test_bounds_of_likelihoods_hold(family, outside):
    prior_range = np.linspace(-12.0, 4.0, 12)
    theta = np.exp(prior_range) if family == "exponential" else 2.0 * prior_range
    for scale in (0.01, 0.3, 5.0):
        model = ReleaseModel(family, 5, Noise("laplace", scale), bounds=(0.5, 3.0), outside=outside)
        for y in (-1.0, 0.7, 4.0, 9.0, 40.0):
            found, error, _ = log_likelihood(model, theta, y)
            assert np.all(found <= log_bound(model, theta, y) + 2.0 * error + 1e-6)


# Multinomial posteriors

MULTINOMIAL = {
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
@pytest.mark.parametrize("name", MULTINOMIAL)
def test_marginals_equal_enumeration(monkeypatch, name, direct):
    """Also by Fourier transforms, if their errors allow it."""
    monkeypatch.setattr(messages, "DIRECT", direct)
    case = MULTINOMIAL[name]
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


@pytest.mark.parametrize("name", MULTINOMIAL)
def test_draws_of_counts_follow_the_enumerated_weights(name):
    case = MULTINOMIAL[name]
    prior, n = case[:2]
    draws = posterior_of(case).table.sample(np.random.default_rng(1), 30_000)[:, :-1]
    (_, weights), (_, wrong) = (enumerate_posterior(prior, n, factor * evidence_of(case)) for factor in (1.0, 1.1))
    # far outside, the noise scale hardly affects the posterior
    observed = frequencies_of(draws, n, len(prior))
    assert_frequencies(observed, weights, wrong=None if name == "far-outside" else wrong)


def test_draws_of_theta_follow_the_marginals():
    posterior = posterior_of(MULTINOMIAL["laplace"])
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
    axes = np.arange(2e4, 8e4 + 1, step), np.arange(0.0, 6e4 + 1, step)  # 15 scales around y
    first, second = np.meshgrid(*axes, indexing="ij", sparse=True)
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
    draws = sample_gibbs_exact(rng, model, prior, y, n_draws=1_000)
    for j in np.argsort(y)[-3:]:
        thin = draws[..., j].ravel()[::50]
        assert stats.kstest(thin, posterior.marginals[j].cdf).pvalue > 1e-6
