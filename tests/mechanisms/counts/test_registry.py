"""Tests of the registered mechanisms: exact distributions, stated guarantees and published means."""

import inspect
import pickle
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mechanisms.audit.counts import audit_counts
from mechanisms.core.conjugate import balanced_counts, enumerate_candidates, posterior
from mechanisms.core.hellinger import hellinger
from mechanisms.core.privacy import Guarantee, Status
from mechanisms.counts.bound_calibration import bound_scale
from mechanisms.counts.candidates import candidate_distances, enumerate_rows
from mechanisms.counts.exponential import SENSITIVITIES, smoothing_gamma
from mechanisms.counts.hamming import calibrate_hamming
from mechanisms.counts.mechanism import CountRelease, validate
from mechanisms.counts.permute_and_flip import log_flip_pmf
from mechanisms.counts.registry import MECHANISMS, is_built_in
from mechanisms.counts.sensitivity import (
    Rule,
    global_sensitivity,
    local_sensitivity,
    smooth_sensitivity,
    varying_sensitivity,
)
from tests.mechanisms.counts.enumeration import Enumerated, frequencies_of
from tests.mechanisms.marks import exhaustive
from tests.mechanisms.refusals import assert_refused
from tests.statistical import assert_frequencies, assert_mean_within

NAMES = list(MECHANISMS)
EXPONENTIAL = [name for name in NAMES if name in SENSITIVITIES or name.removesuffix("-exact") in SENSITIVITIES]
FOR_ALL_DATA = ("optimal", "k-norm-minimax")  # each of these solves a program for all data sets together
PROJECTED = ("k-norm", "geometric-projected", "laplace-projected")  # many noisy vectors map to the true counts
CASES = [
    ((1.0, 1.0), (1, 0)),
    ((1.0, 1.0), (8, 7)),
    ((0.01, 100.0), (0, 9)),
    ((0.3, 2.0, 5.0), (3, 0, 5)),
    ((1.0, 1.0, 1.0), (0, 7, 0)),
    ((1.0, 1.0, 0.5, 3.0), (2, 1, 1, 1)),
]


def named_cases(*in_gate):
    """Return half of `CASES` for each mechanism; the exhaustive checks make those that are not in the gate."""
    cases = [(name, case) for place, name in enumerate(NAMES) for case in range(place % 2, len(CASES), 2)]
    return [(name, *CASES[c]) if c in in_gate else exhaustive((name, *CASES[c]))[0] for name, c in cases]


DELTA = 1e-8


def build(name, prior, counts, epsilon=1.0, delta=DELTA):
    return MECHANISMS[name].build(prior, counts, epsilon, delta)


@pytest.mark.parametrize("name", NAMES)
def test_entry_is_complete(name):
    assert MECHANISMS[name].is_private == (MECHANISMS[name].guarantee(1.0, DELTA) is not None)
    release = build(name, (1.0, 1.0, 1.0), (3, 2, 1))
    assert isinstance(release, CountRelease)
    for member, value in inspect.getmembers(CountRelease):
        if member.startswith("_"):
            continue
        if inspect.isfunction(value):
            assert (
                inspect.signature(value).parameters.keys()
                == inspect.signature(getattr(type(release), member)).parameters.keys()
            )
    assert (release.k, release.n, release.counts.tolist()) == (3, 6, [3, 2, 1])


def test_guarantees_are_as_stated():
    for name in ("smooth", "smooth-n"):
        assert MECHANISMS[name].guarantee(0.7, 1e-6) == Guarantee(0.7, 1e-6, status=Status.CONJECTURED)
    for name in set(NAMES) - {"smooth", "smooth-n", "local", "discrete-gaussian"}:
        assert MECHANISMS[name].guarantee(0.7, 1e-6) == Guarantee(0.7)
    assert MECHANISMS["discrete-gaussian"].guarantee(0.7, 1e-6) == Guarantee(0.7, 1e-6)
    assert MECHANISMS["local"].guarantee(0.7, 1e-6) is None


def test_mechanisms_use_their_named_scale():
    prior, counts, epsilon = [1.0, 0.5, 2.0], [4, 0, 5], 0.7  # n = 9, |R| = C(11, 2) = 55
    sensitivities = {
        "smooth": smooth_sensitivity(prior, counts, smoothing_gamma(epsilon, DELTA, 55)),
        "smooth-n": smooth_sensitivity(prior, counts, smoothing_gamma(epsilon, DELTA, 10)),
        "global": global_sensitivity(prior, 9),
        "local": local_sensitivity(prior, counts),
        "varying": 2 * varying_sensitivity(prior, counts),  # the exponent has ε/4
    }
    for name, sensitivity in sensitivities.items():
        assert build(name, prior, counts, epsilon).inverse_temperature == pytest.approx(
            epsilon / (2 * sensitivity), rel=1e-13
        )
    assert build("laplace", prior, counts, epsilon).independent.scale == pytest.approx(2 / epsilon, rel=1e-15)
    assert build("laplace-dimension", prior, counts, epsilon).independent.scale == pytest.approx(3 / epsilon, rel=1e-15)
    assert build("laplace", [1, 1], [4, 5], epsilon).independent.scale == pytest.approx(1 / epsilon, rel=1e-15)
    assert build("geometric", prior, counts, epsilon).independent.scale == pytest.approx(2 / epsilon, rel=1e-15)
    assert build("geometric", [1, 1], [4, 5], epsilon).independent.scale == pytest.approx(1 / epsilon, rel=1e-15)
    assert build("hamming-exact", prior, counts, epsilon).inverse_temperature == calibrate_hamming(9, 3, epsilon)
    assert build("k-norm", prior, counts, epsilon).noise.epsilon == epsilon
    bound = epsilon / bound_scale(prior, 9, epsilon).sensitivity(counts)
    assert build("varying-bound", prior, counts, epsilon).inverse_temperature == pytest.approx(bound, rel=1e-14)
    for name in ("geometric-projected", "laplace-projected"):
        assert build(name, prior, counts, epsilon).independent.scale == pytest.approx(2 / epsilon, rel=1e-15)
    flip, exponential = (build(name, prior, counts, epsilon) for name in ("permute-and-flip", "global"))
    distances = candidate_distances(flip.prior, flip.counts, enumerate_rows(9, 3))
    np.testing.assert_allclose(flip.log_pmf(), log_flip_pmf(-exponential.inverse_temperature * distances), rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "prior", "counts"), named_cases(4, 5))
def test_mean_equals_the_sum_over_the_distribution(name, prior, counts):
    release = build(name, prior, counts)
    distribution = release.pmf()
    assert distribution.sum() == pytest.approx(1.0, abs=1e-12)
    assert distribution.min() >= 0
    distances = hellinger(posterior(prior, counts), posterior(prior, enumerate_candidates(sum(counts), len(counts))))
    assert release.expected_hellinger() == pytest.approx(float(distribution @ distances), rel=1e-10)


@pytest.mark.slow  # k = 2; the test of conformance has k = 3
@pytest.mark.parametrize(("name", "prior", "counts"), named_cases(1, 2))
def test_draws_follow_the_distribution(name, prior, counts):
    release = build(name, prior, counts)
    draws = release.from_uniforms(np.random.default_rng(11).random((100_000, release.n_uniforms)))
    assert draws.dtype == np.int64
    pmf = release.pmf()  # 5 % errors in turn are found with probability 0.9999
    assert_frequencies(frequencies_of(draws, release.n, release.k), pmf, wrong=pmf * np.resize([1.05, 0.95], pmf.size))
    assert_mean_within(hellinger(posterior(prior, counts), posterior(prior, draws)), release.expected_hellinger())


def assert_rows_are_independent(release, rebuilt):
    """Assert that a draw depends on its own uniforms only, also if the release was built again or pickled."""
    uniforms = np.random.default_rng(7).random((400, release.n_uniforms))
    draw = release.from_uniforms
    whole = draw(uniforms)
    np.testing.assert_array_equal(np.concatenate([draw(part) for part in np.split(uniforms, 8)]), whole)
    np.testing.assert_array_equal(np.concatenate([draw(row[None]) for row in uniforms[:50]]), whole[:50])
    np.testing.assert_array_equal(draw(uniforms[::-1]), whole[::-1])
    for same in (rebuilt, pickle.loads(pickle.dumps(release))):
        np.testing.assert_array_equal(same.from_uniforms(uniforms), whole)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "prior", "counts"), named_cases(4, 5))
def test_draw_depends_on_its_own_uniforms_only(name, prior, counts):
    assert_rows_are_independent(build(name, prior, counts), build(name, prior, counts))


@pytest.mark.parametrize(("name", "share", "delta"), [("smooth", 2.354, 2.19e-9), ("smooth-n", 2.528, 6.53e-9)])
def test_smooth_loss_exceeds_epsilon_at_a_skewed_prior(name, share, delta):
    """Under a skewed prior the loss exceeds ε, although the mechanism is (ε, δ)-DP; enumeration confirms its pmf."""
    prior, n, epsilon = np.array([1e5, 350.0, 250.0]), 20, 10.0
    everything = Enumerated(prior, n)
    everything.distances = hellinger(prior + everything.datasets[:, None], prior + everything.datasets)
    everything.local = np.where(everything.moves == 1, everything.distances, 0.0).max(axis=1)
    distribution = np.array([build(name, prior, c, epsilon, 1e-5).pmf() for c in everything.datasets])
    rate = smoothing_gamma(epsilon, 1e-5, len(everything.datasets) if name == "smooth" else n + 1)
    weights = np.exp(-epsilon / 2 * everything.distances / everything.scales(Rule.SMOOTH, rate)[:, None])
    np.testing.assert_allclose(distribution, weights / weights.sum(axis=1, keepdims=True), rtol=1e-9)
    found = audit_counts(name, prior, n, epsilon, 1e-5)
    assert found.epsilon / epsilon == pytest.approx(share, abs=5e-4)
    assert found.deltas[epsilon] == pytest.approx(delta, rel=3e-3)


@pytest.mark.parametrize(
    ("name", "counts", "expected", "tolerance"),
    [
        ("smooth", [250] * 2, 0.0614, 5e-5),
        ("laplace", [250] * 2, 0.0303, 5e-5),
        ("laplace-dimension", [250] * 2, 0.0622, 5e-5),
        ("smooth", [34, 33, 33], 0.854, 5e-4),
        ("smooth-n", [34, 33, 33], 0.839, 5e-4),
        ("laplace", [34, 33, 33], 0.262, 5e-4),
        ("smooth-n", [150] * 4, 0.521, 5e-4),
        ("laplace-dimension", [150] * 4, 0.3155, 5e-5),
        ("geometric", [250] * 2, 0.0268, 5e-5),
        ("geometric", [34, 33, 33], 0.2560, 5e-5),
        ("hamming-exact", [34, 33, 33], 0.2164, 5e-5),
        ("k-norm", [34, 33, 33], 0.1451, 5e-5),
        ("k-norm", [100] * 3, 0.0851, 5e-5),
        ("k-norm", [80, 15, 5], 0.237, 5e-4),
        ("k-norm", [150] * 4, 0.0981, 5e-5),
        ("k-norm", [60, 20, 15, 5], 0.312, 5e-4),
        ("k-norm", [1528, 1307, 1342], 0.0230, 5e-5),
        ("geometric-projected", [100] * 3, 0.1166, 1e-4),
        ("geometric-projected", [1528, 1307, 1342], 0.0316, 1e-4),
        ("laplace-projected", [100] * 3, 0.1190, 1e-4),
    ],
)
def test_means_equal_the_published_experiments(name, counts, expected, tolerance):
    """Mean distances equal those of P0, Figure 2, at ε = 1, δ = 1e-8, unit prior and balanced data, and others."""
    assert build(name, np.ones(len(counts)), counts).expected_hellinger() == pytest.approx(expected, abs=tolerance)


def largest_count(name, k, default):
    """Return the largest count for random test cases; it is smaller for mechanisms that enumerate all data sets."""
    searched = name in (*EXPONENTIAL, "permute-and-flip-exact") and MECHANISMS[name].calibrate is not None
    if name in PROJECTED[1:]:  # the pmf is a sum over (n + 1)^k vectors
        return {2: 10, 3: 6, 4: 3}[k]
    return {2: 8, 3: 3, 4: 1}[k] if searched or name in FOR_ALL_DATA else default


@pytest.mark.slow
def test_probability_of_true_counts_may_decrease_with_epsilon_after_projection():
    """At the edge of the simplex, wide noise is projected to the true counts more often than narrower noise."""
    index = np.flatnonzero((enumerate_candidates(4, 4) == [0, 0, 2, 2]).all(axis=1))[0]
    low, high = (build("discrete-gaussian", [1.0] * 4, [0, 0, 2, 2], e).pmf()[index] for e in (1.0, 1.3))
    np.testing.assert_allclose((low, high), (0.11736, 0.11437), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name for name in NAMES if name not in (*FOR_ALL_DATA, *PROJECTED, "discrete-gaussian")]
)
@given(data=st.data())
@settings(deadline=None, derandomize=True, max_examples=3)
def test_accuracy_increases_with_epsilon(name, data):
    k = data.draw(st.integers(2, 4))
    prior = data.draw(st.lists(st.floats(0.05, 20), min_size=k, max_size=k))
    counts = data.draw(st.lists(st.integers(0, largest_count(name, k, 12)), min_size=k, max_size=k).filter(any))
    epsilon = data.draw(st.floats(0.05, 5))
    if name in EXPONENTIAL:  # for exponential weights the derivative of E[H] by the inverse temperature is −Var(H) ≤ 0
        low, high = (build(name, prior, counts, e).expected_hellinger() for e in (epsilon, 1.3 * epsilon))
        assert high <= low * (1 + 1e-12)
    else:  # the probability of the true counts increases with ε
        index = np.flatnonzero((enumerate_candidates(sum(counts), k) == counts).all(axis=1))[0]
        low, high = (build(name, prior, counts, e).pmf()[index] for e in (epsilon, 1.3 * epsilon))
        assert high >= low * (1 - 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if MECHANISMS[name].symmetric])
@given(data=st.data())
@settings(deadline=None, derandomize=True, max_examples=3)
def test_symmetric_mechanisms_are_permutation_invariant(name, data):
    k = data.draw(st.integers(2, 4))
    prior = np.array(data.draw(st.lists(st.floats(0.05, 20), min_size=k, max_size=k)))
    if MECHANISMS[name].calibrate is not None or name in ("varying-bound", "k-norm-minimax"):
        # With unequal priors, these depend on the order of categories: by calibration at balanced counts, whose first
        # categories are larger, or by the choice among several minimax tables.
        prior[:] = prior[0]
    counts = np.array(
        data.draw(st.lists(st.integers(0, largest_count(name, k, 10)), min_size=k, max_size=k).filter(any))
    )
    order = data.draw(st.permutations(range(k)))
    plain, permuted = build(name, prior, counts), build(name, prior[order], counts[order])
    candidates = enumerate_candidates(plain.n, k)
    weights = (plain.n + 1) ** np.arange(k)[::-1]
    position = np.searchsorted(candidates @ weights, candidates[:, order] @ weights)
    np.testing.assert_allclose(permuted.pmf()[position], plain.pmf(), rtol=1e-9)
    assert permuted.expected_hellinger() == pytest.approx(plain.expected_hellinger(), rel=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_output_distribution_depends_on_the_prior_if_stated(name):
    """The distribution depends on the prior for mechanisms with `uses_prior`, and for no others."""
    counts = [3, 1, 0]
    one, other = (build(name, prior, counts).log_pmf() for prior in ([1.0, 1.0, 1.0], [0.3, 2.0, 50.0]))
    assert np.array_equal(one, other) is not MECHANISMS[name].uses_prior


@pytest.mark.parametrize("name", NAMES)
def test_counts_of_another_number_of_categories_are_refused(name):
    for function in (validate, MECHANISMS[name].validate, MECHANISMS[name].build):
        call = partial(function, [1, 1], [1, 1, 1], 1.0, DELTA)
        assert_refused(call, "counts must have 2 categories, got 3")


@pytest.mark.parametrize("name", [name for name in NAMES if MECHANISMS[name].min_categories > 2])
def test_mechanism_equals_another_entry_below_its_smallest_number_of_categories(name):
    k = MECHANISMS[name].min_categories

    def twins(k):
        prior, counts = [1.0] * k, balanced_counts(6, k)
        pmf = build(name, prior, counts).pmf()
        others = (other for other in NAMES if other not in (name, "optimal", "k-norm-minimax"))
        return [other for other in others if np.allclose(build(other, prior, counts).pmf(), pmf, rtol=1e-12, atol=0)]

    assert twins(k - 1)
    assert not twins(k)


def test_only_unmodified_mechanisms_are_built_in():
    smooth = MECHANISMS["smooth"]
    assert is_built_in(smooth)
    assert not is_built_in(replace(smooth, needs_delta=False))
