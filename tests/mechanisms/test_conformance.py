"""Tests that every entry of the registries satisfies the protocol of its kind."""

import dataclasses
import importlib
import math
import pkgutil
import re
from functools import cache, partial

import numpy as np
import pytest
from scipy import stats

import mechanisms
from mechanisms.audit.sampled import count_sampler
from mechanisms.audit.sums import audit_sums
from mechanisms.core.conjugate import enumerate_candidates
from mechanisms.core.metadata import Entry
from mechanisms.core.noise import Noise
from mechanisms.core.privacy import Guarantee
from mechanisms.core.protocols import OutputDistribution, Posterior
from mechanisms.counts.publish import PUBLISHABLE, publish_counts
from mechanisms.counts.registry import MECHANISMS
from mechanisms.draws.chains import GLM_CHAINS, private_chain
from mechanisms.draws.gaussian_counts import GAUSSIAN_MECHANISMS, gaussian_mechanism
from mechanisms.draws.glm_mechanisms import GLM_MECHANISMS, glm_mechanism
from mechanisms.draws.tempered import RENYI_SAMPLERS, renyi_sampler
from mechanisms.inference.drawn_posterior import DrawnPosterior
from mechanisms.inference.exact_posterior import exact_posterior
from mechanisms.inference.families import FAMILIES
from mechanisms.inference.methods import INFERENCE_METHODS
from mechanisms.inference.private_posterior import posterior_from_release
from mechanisms.inference.publish import publish_sums
from mechanisms.inference.release_model import ReleaseModel
from mechanisms.regression.gram_samplers import GRAM_METHODS
from mechanisms.regression.partition_probability import PROBABILITY_METHODS, partition_probability
from mechanisms.regression.partition_quantile import QUANTILE_METHODS, window_distribution
from mechanisms.regression.posterior import CoefficientPosterior
from studies.report.papers import PAPERS
from tests.mechanisms.counts.enumeration import frequencies_of
from tests.mechanisms.inference.enumeration import binomial_mixture
from tests.mechanisms.inference.laplace import (
    PRIORS,
    RECORDS,
    conjugate_posterior,
    marginal_posterior,
    naive_statistics,
    sample_gibbs,
)
from tests.mechanisms.refusals import assert_refused
from tests.statistical import assert_frequencies

REGISTRIES = {
    "counts": MECHANISMS,
    "glm": GLM_MECHANISMS,
    "chains": GLM_CHAINS,
    "renyi": RENYI_SAMPLERS,
    "gaussian": GAUSSIAN_MECHANISMS,
    "inference": INFERENCE_METHODS,
    "gram": GRAM_METHODS,
    "probability": PROBABILITY_METHODS,
    "quantile": QUANTILE_METHODS,
}
NOT_PRIVATE = {
    "counts": {"local"},
    "glm": {"true-posterior"},
    "inference": {"non-private"},
    "probability": {"fisher-published"},
}
UNLIMITED = ("laplace", "laplace-dimension", "geometric", "discrete-gaussian", "k-norm")
UNLIMITED += ("geometric-projected", "laplace-projected")
PRIOR, COUNTS, DELTA = (0.5, 1.0, 2.0), (4, 1, 2), 1e-6
SIZE, LARGE = 40_000, 5.0  # number of draws, and tolerance in standard errors

STATISTICS = {
    "binomial": [12.0, 20.0],
    "multinomial": [[10.0, 15.0, 5.0], [1.0, 9.0, 20.0]],
    "exponential": [9.0, 14.0],
    "poisson": [40.0, 61.0],
    "normal": [20.0, 31.0],
}
BOUNDS = {"exponential": (0.05, 1.5), "poisson": (0.0, 6.0), "normal": (-2.0, 4.0)}
POSTERIORS = {
    **{
        f"conjugate-{name}": partial(conjugate_posterior, name, PRIORS[name], 30, STATISTICS[name]) for name in FAMILIES
    },
    **{
        f"marginal-{name}": partial(marginal_posterior, name, PRIORS[name], 30, STATISTICS[name], 3.0, BOUNDS.get(name))
        for name in FAMILIES
        if name in ("binomial", "exponential", "poisson")
    },
    "binomial-mixture": partial(binomial_mixture, (2.0, 3.0), 30, 12.7, 3.0),
    "grid": partial(exact_posterior, ReleaseModel("poisson", 30, Noise("geometric", 3.0), (0, 6)), (3.0, 2.0), [40.0]),
    "release": partial(posterior_from_release, 12.7, "binomial", (2.0, 3.0), n=30, epsilon=0.3),
    "normal-mixture": partial(
        CoefficientPosterior,
        np.array([[0.3, 0.7], [0.5, 0.5]]),
        np.array([[-1.0, 2.0], [0.0, 5.0]]),
        np.array([[0.5, 1.0], [2.0, 1.0]]),
        np.array([math.inf, math.inf]),
    ),
    "student": partial(
        CoefficientPosterior, np.ones((2, 1)), np.array([[1.0], [-2.0]]), np.ones((2, 1)), np.array([7.0, 30.0])
    ),
}
"""Name -> function that builds the posterior; nothing is computed when tests are collected."""


@cache
def build_posterior(name: str) -> Posterior:
    return POSTERIORS[name]()


def moved(posterior: Posterior, by: float = 1.05) -> type:
    """Return a copy of a posterior that multiplies each draw by `by`."""

    class Moved(type(posterior)):
        def sample(self, rng, size):
            return by * super().sample(rng, size)

    return Moved(*(getattr(posterior, field.name) for field in dataclasses.fields(posterior)))


@pytest.mark.parametrize("registry", REGISTRIES)
def test_entries_declare_their_metadata(registry):
    for name, entry in REGISTRIES[registry].items():
        assert isinstance(entry, Entry)
        assert entry.name == name
        assert re.fullmatch(r"([A-Z0-9].*\.)?", entry.note)
        assert entry.style is not None
        assert (entry.origin == "paper") <= bool(entry.paper)
        assert entry.paper in ("", *(paper.key for paper in PAPERS))
        assert entry.origin_text
    found = {name for name, entry in REGISTRIES[registry].items() if not getattr(entry, "is_private", True)}
    assert {name for name in found if getattr(REGISTRIES[registry][name], "has_noise", True)} == NOT_PRIVATE.get(
        registry, set()
    )
    for name in found:
        assert REGISTRIES[registry][name].note.startswith("Not private: ")


@pytest.mark.parametrize("registry", ["probability", "quantile"])
def test_variants_without_noise_belong_to_a_method_with_noise(registry):
    methods = REGISTRIES[registry]
    for method in methods.values():
        assert methods[method.base].has_noise
        assert method.has_noise == (method.base == method.name)
        assert method.style == methods[method.base].style
    noisy, exact = ([m.name for m in methods.values() if m.has_noise is has_noise] for has_noise in (True, False))
    # Without noise, `quantile-exact` equals `quantile`.
    assert {methods[name].base for name in exact} == set(noisy) - {"quantile-exact"}


@pytest.mark.parametrize("name", MECHANISMS)
def test_mechanism_states_the_sizes_that_it_supports(name):
    mechanism = MECHANISMS[name]
    assert mechanism.supports(7, 3)
    for n, k in ((10**6, 2), (200, 5), (50, 300), (12 * 10**9, 12)):
        if mechanism.supports(n, k):
            mechanism.require(n, k)
        else:
            assert_refused(partial(mechanism.validate, [1.0] * k, [n, *[0] * (k - 1)], 1.0, DELTA), "must .*at most ")
    assert mechanism.supports(12 * 10**9, 12) or name not in UNLIMITED


@pytest.mark.parametrize("name", MECHANISMS)
def test_draws_of_counts_follow_their_pmf(name):
    mechanism = MECHANISMS[name]
    release = mechanism.build(PRIOR, COUNTS, 1.0, DELTA)
    assert isinstance(release, OutputDistribution)
    assert release.guarantee == mechanism.guarantee(1.0, DELTA)
    draws = release.sample(np.random.default_rng(1), SIZE)
    sampler = count_sampler(np.random.default_rng(1), mechanism, PRIOR, 1.0, DELTA)
    np.testing.assert_array_equal(sampler(np.repeat(range(3), COUNTS), SIZE), draws)
    assert (draws.shape, draws.dtype) == ((SIZE, 3), np.int64)
    np.testing.assert_array_equal(release.log_prob(enumerate_candidates(7, 3)), release.log_pmf())
    pmf = np.exp(release.log_pmf())
    assert pmf.sum() == pytest.approx(1.0, abs=1e-9)
    assert_frequencies(frequencies_of(draws, 7, 3), pmf, wrong=pmf * np.resize([1.05, 0.95], pmf.size))


@pytest.mark.parametrize("values", [[[4, 1, 1]], [[4, 4, -1]], [[3.5, 1.5, 2]], [[4, 3]]])
def test_log_prob_requires_possible_counts(values):
    assert_refused(lambda: MECHANISMS["geometric"].build(PRIOR, COUNTS, 1.0, DELTA).log_prob(values), "sum")


@pytest.mark.parametrize("name", [*RENYI_SAMPLERS, *GAUSSIAN_MECHANISMS])
def test_draws_of_a_posterior_follow_their_density(name):
    if name in RENYI_SAMPLERS:
        distribution = renyi_sampler(name, (2, 3), 12, 1.0 if name == "direct" else 0.5).at([5, 7])
    else:
        distribution = gaussian_mechanism(name, (2, 3), 12, 2, 0.5).at([5, 7])
    assert isinstance(distribution, OutputDistribution)
    assert distribution.guarantee(2).epsilon > 0
    draws = distribution.sample(np.random.default_rng(2), SIZE)
    assert draws.shape == (SIZE, 2)
    edges = np.linspace(0, 1, 4001)
    middles = (edges[1:] + edges[:-1]) / 2
    density = np.exp(distribution.log_prob(np.column_stack([middles, 1 - middles])))
    assert_follows_density(draws[:, 0], edges, density)
    with pytest.raises(AssertionError):
        assert_follows_density(1.05 * draws[:, 0], edges, density)


def assert_follows_density(draws: np.ndarray, edges: np.ndarray, density: np.ndarray) -> None:
    """Assert that draws follow a density on equal intervals, by a Kolmogorov–Smirnov test at 5 standard errors."""
    assert density.sum() * (edges[1] - edges[0]) == pytest.approx(1.0, abs=1e-4)
    cdf = np.concatenate([[0.0], np.cumsum(density)]) / density.sum()
    assert stats.kstest(draws, lambda x: np.interp(x, edges, cdf)).pvalue > 2 * stats.norm.sf(LARGE)


@pytest.mark.parametrize("unit", [math.inf, 0.3])
def test_draws_of_a_window_follow_their_density(unit):
    distribution = window_distribution([0.2, 0.3, 0.9], 0.25, 2.0, (-1.0, 2.0), unit)
    assert isinstance(distribution, OutputDistribution)
    assert distribution.guarantee == Guarantee(2.0)
    draws = distribution.sample(np.random.default_rng(4), SIZE)
    assert draws.shape == (SIZE,)
    edges = np.linspace(-1, 2, 30_001)
    density = np.exp(distribution.log_prob((edges[1:] + edges[:-1]) / 2))
    assert_follows_density(draws, edges, density)
    with pytest.raises(AssertionError):
        assert_follows_density(draws + 0.05, edges, density)
    assert np.isneginf(distribution.log_prob([-1.5, 2.5])).all()


def assert_conforms(posterior: Posterior) -> None:
    """Assert that draws, distribution function, quantiles, moments and intervals of a posterior are consistent."""
    p = np.array([0.01, 0.25, 0.5, 0.9])
    mean = np.asarray(posterior.mean())
    quantiles = posterior.quantile(p)
    components = mean.shape[1:] if len(mean.shape) > 1 else ()
    assert quantiles.shape == (*mean.shape[:1], p.size, *components)
    np.testing.assert_allclose(posterior.quantile(0.25), np.take(quantiles, 1, axis=mean.ndim - len(components)))
    if not components:  # the argument of a multivariate cdf is a point of the simplex
        np.testing.assert_allclose(posterior.cdf(quantiles), np.broadcast_to(p, quantiles.shape), atol=1e-7)
    draws = posterior.sample(np.random.default_rng(5), SIZE)
    assert draws.shape == (*mean.shape[:1], SIZE, *components)
    axis = mean.ndim - len(components)
    std = np.asarray(posterior.std())
    assert np.all(np.abs(draws.mean(axis=axis) - mean) <= LARGE * std / math.sqrt(SIZE))
    fourth = ((draws - np.expand_dims(mean, axis)) ** 4).mean(axis=axis)
    error = np.sqrt((fourth - std**4) / SIZE)
    assert np.all(np.abs(draws.var(axis=axis) - std**2) <= LARGE * error)
    low, high = (np.expand_dims(end, axis) for end in posterior.interval(0.8))
    inside = ((low <= draws) & (draws <= high)).mean(axis=axis)
    assert np.all(np.abs(inside - 0.8) <= LARGE * math.sqrt(0.16 / SIZE))


@pytest.mark.parametrize("name", POSTERIORS)
def test_posterior_conforms(name):
    posterior = build_posterior(name)
    assert isinstance(posterior, Posterior)
    assert_conforms(posterior)
    for level in (0.0, 1.0, math.nan):
        with pytest.raises(ValueError, match=r"in \(0, 1\)"):
            posterior.interval(level)


VECTORS = {
    "mixture": partial(
        exact_posterior,
        ReleaseModel("multinomial", 12, Noise("geometric", 2.0)),
        PRIORS["multinomial"],
        [3.0, 4.0, 5.0],
    ),
    "release": partial(
        posterior_from_release, [3.0, 4.0, 5.0], "multinomial", PRIORS["multinomial"], n=12, epsilon=1.0
    ),
    "drawn": lambda: DrawnPosterior(np.random.default_rng(6).dirichlet(PRIORS["multinomial"], size=(2, 500))),
}


@pytest.mark.parametrize("name", VECTORS)
def test_posterior_of_one_vector_conforms(name):
    posterior, p = VECTORS[name](), np.array([0.1, 0.5, 0.9])
    assert isinstance(posterior, Posterior)
    quantiles, draws = posterior.quantile(p), posterior.sample(np.random.default_rng(7), 2_000)
    np.testing.assert_allclose(posterior.cdf(quantiles), np.broadcast_to(p[:, None], (3, 3)), atol=1e-7)
    np.testing.assert_allclose(posterior.interval(0.8), posterior.quantile([0.1, 0.9]))
    assert draws.shape == (2_000, 3)
    assert np.all(np.abs(draws.mean(axis=0) - posterior.mean()) <= LARGE * posterior.std() / math.sqrt(2_000))
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(posterior.cdf(1.05 * quantiles), np.broadcast_to(p[:, None], (3, 3)), atol=1e-7)


@pytest.mark.parametrize("name", POSTERIORS)
def test_posterior_with_wrong_draws_does_not_conform(name):
    """A posterior whose draws are 5 % too large does not conform (negative control)."""
    with pytest.raises(AssertionError):
        assert_conforms(moved(build_posterior(name)))


DISTRIBUTIONS = {
    **{name: partial(one.build, PRIOR, COUNTS, 1.0, DELTA) for name, one in MECHANISMS.items()},
    "diffused": lambda: renyi_sampler("diffused", (1, 1, 1), 7, 0.5).at(COUNTS),
    "gaussian": lambda: gaussian_mechanism("gaussian", (1, 1, 1), 7, 2, 0.5).at(COUNTS),
    **{name: partial(build_posterior, name) for name in POSTERIORS},
}


RELEASED = {"DrawsAudit", "GramRelease", "PublishedCounts", "PublishedSums", "ReleasedQuantiles"}
"""Classes whose arrays are public, so that the representation may show them."""


def fields_with_arrays(kind: type) -> list[str]:
    arrays = re.compile(r"(Floats|Integers|Array|NDArray)\b")
    generated = hasattr(kind.__repr__, "__wrapped__")
    return [one.name for one in dataclasses.fields(kind) if generated and one.repr and arrays.match(str(one.type))]


def test_representations_do_not_show_arrays():
    modules = [
        importlib.import_module(found.name) for found in pkgutil.walk_packages(mechanisms.__path__, "mechanisms.")
    ]
    kinds = {kind for module in modules for kind in vars(module).values() if dataclasses.is_dataclass(kind)}
    own = {kind for kind in kinds if isinstance(kind, type) and kind.__module__.startswith("mechanisms")}
    assert {kind.__name__ for kind in own if fields_with_arrays(kind)} == RELEASED


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_representation_is_one_line_without_data(name):
    text = repr(DISTRIBUTIONS[name]())
    assert "\n" not in text
    assert len(text) < 200
    assert not any(part in text for part in ("4, 1, 2", "4 1 2", "array", "37"))
    assert name not in MECHANISMS or text.endswith("(n=7, k=3)")


@pytest.mark.parametrize("name", MECHANISMS)
def test_delta_may_be_omitted_where_it_is_not_used(name):
    mechanism = MECHANISMS[name]
    if mechanism.needs_delta:
        for call in (lambda: mechanism.build(PRIOR, COUNTS, 1.0), lambda: mechanism.guarantee(1.0)):
            assert_refused(call, "delta must be")
        return
    release = mechanism.build(PRIOR, COUNTS, 1.0)
    np.testing.assert_array_equal(release.log_pmf(), mechanism.build(PRIOR, COUNTS, 1.0, DELTA).log_pmf())
    assert release.guarantee == mechanism.guarantee(1.0) == mechanism.guarantee(1.0, DELTA)


def test_only_smooth_and_gaussian_mechanisms_need_delta():
    needing = {name for name, mechanism in MECHANISMS.items() if mechanism.needs_delta}
    assert needing == {"smooth", "smooth-n", "discrete-gaussian"}


CALLS_BY_NAME = {
    "glm": (GLM_MECHANISMS, lambda one: glm_mechanism(one, 100, 0.01, 2, 0.5, delta=DELTA)),
    "chains": (GLM_CHAINS, lambda one: private_chain(one, 100, 2, 0.01, 0.5, DELTA)),
    "renyi": (RENYI_SAMPLERS, lambda one: renyi_sampler(one, (1, 2), 10, 1.0)),
    "gaussian": (GAUSSIAN_MECHANISMS, lambda one: gaussian_mechanism(one, (1, 2), 10, 2, 0.5)),
    "probability": (PROBABILITY_METHODS, lambda one: partition_probability(one, 10, 0.5)),
    "conjugate": (FAMILIES, lambda one: conjugate_posterior(one, PRIORS[key(one)], 30, STATISTICS[key(one)]).mean()),
    "statistics": (FAMILIES, lambda one: naive_statistics(one, STATISTICS[key(one)], 30, BOUNDS.get(key(one)))),
    "released": (
        FAMILIES,
        lambda one: ReleaseModel(one, 30, Noise("laplace", 3.0), BOUNDS.get(key(one))).sensitivity(),
    ),
    "rehearsal": (
        FAMILIES,
        lambda one: publish_sums(one, RECORDS[key(one)], 1.0, BOUNDS.get(key(one)), rehearsal_seed=1).noisy,
    ),
    "audit": (FAMILIES, lambda one: audit_sums(one, 1.0, BOUNDS.get(key(one))).epsilon),
    "published": (
        {name: MECHANISMS[name] for name in PUBLISHABLE},
        lambda one: publish_counts(one, COUNTS, 1.0, rehearsal_seed=1).counts,
    ),
    "sampler": (MECHANISMS, lambda one: count_sampler(np.random.default_rng(1), one, (1, 2), 1.0)([0, 1, 1], 3)),
}


def key(one):
    return one if isinstance(one, str) else one.name


@pytest.mark.parametrize("call", CALLS_BY_NAME)
def test_entries_are_accepted_by_name_and_as_objects(call):
    registry, build = CALLS_BY_NAME[call]
    for name, entry in registry.items():
        np.testing.assert_equal(build(name), build(entry))
    with pytest.raises((ValueError, KeyError), match="unknown"):
        build("unknown")


@pytest.mark.parametrize("family", ["binomial", "exponential", "normal"])
def test_one_trial_may_be_a_number(family):
    one, many = (conjugate_posterior(family, PRIORS[family], 30, y) for y in (12.0, [12.0]))
    np.testing.assert_array_equal(one.parameters, many.parameters)
    np.testing.assert_array_equal(one.cdf(0.4), many.cdf([0.4]))


def test_one_release_may_be_a_number():
    one, many = (marginal_posterior("binomial", (2, 3), 30, y, 3.0) for y in (12.5, [12.5]))
    np.testing.assert_array_equal(one.cdf(0.4), many.cdf([0.4]))
    assert binomial_mixture((2, 3), 30, [12.5], 3.0).mean() == binomial_mixture((2, 3), 30, 12.5, 3.0).mean()
    draws = [sample_gibbs(np.random.default_rng(1), "binomial", (2, 3), 30, y, 3.0, n_draws=5) for y in (12.5, [12.5])]
    np.testing.assert_array_equal(*draws)


@pytest.mark.parametrize("name", ["conjugate_posterior", "infer", "marginal_posterior", "sample_gibbs"])
def test_functions_that_left_the_package_have_successors(name):
    with pytest.raises(AttributeError, match=f"no attribute '{name}'; use (INFERENCE_METHODS|posterior_from_release)"):
        getattr(mechanisms, name)
    with pytest.raises(AttributeError, match=r"no attribute .unknown.$"):
        mechanisms.unknown  # noqa: B018


@pytest.mark.parametrize("name", INFERENCE_METHODS)
def test_entries_of_inference_methods_fit_a_release(name):
    """Methods that converge to the posterior have a mean near the release; samplers return reproducible chains."""
    entry, model, run = INFERENCE_METHODS[name], ReleaseModel("binomial", 200, Noise("laplace", 2.0)), {}
    if entry.is_sampler:
        run = {"n_chains": 2, "n_burn_in": 200, "n_draws": 300}
    if name in ("gibbs-collapsed", "gibbs-published", "naive-truncated"):
        model = ReleaseModel("exponential", 200, Noise("laplace", 0.05), (0.01, 4.0))
    assert entry.supports(model)
    posterior, again, other = (
        entry.fit(np.random.default_rng(seed), model, (2.0, 2.0), [90.0], **run) for seed in (1, 1, 2)
    )
    assert isinstance(posterior, Posterior)
    assert isinstance(posterior, DrawnPosterior) == (entry.is_sampler or name.startswith("ops"))
    if entry.is_sampler:
        assert posterior.draws.shape == (2, 300)
        np.testing.assert_array_equal(again.draws, posterior.draws)
        assert not np.array_equal(other.draws, posterior.draws)
    expected = 0.45 if model.family == "binomial" else 2.15
    if name not in ("gibbs-published", "ops", "ops-likelihood"):
        np.testing.assert_allclose(np.ravel(posterior.mean()), expected, rtol=0.12)
