"""Tests of the sensitivities against enumeration of all data sets, and of the statements in the draft P1."""

import functools
import itertools
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mechanisms.core.conjugate import enumerate_candidates
from mechanisms.counts.exponential import smoothing_gamma
from mechanisms.counts.sensitivity import (
    Rule,
    global_sensitivity,
    local_sensitivity,
    local_sensitivity_at_distance,
    phi,
    smooth_sensitivity,
    smoothed_scales,
    varying_sensitivity,
)
from tests.mechanisms.counts.enumeration import Enumerated

CASES = [
    ((1.0, 1.0), 1),
    ((1.0, 1.0), 9),
    ((0.01, 100.0), 12),
    ((100.0, 0.01), 7),
    ((2.5, 0.3), 10),
    ((1.0, 1.0, 1.0), 1),
    ((1.0, 1.0, 1.0), 2),
    ((1.0, 1.0, 1.0), 8),
    ((0.3, 2.0, 5.0), 8),
    ((5.0, 0.3, 2.0), 7),
    ((0.01, 100.0, 3.0), 7),
    ((1.0, 1.0, 1.0, 1.0), 5),
    ((0.01, 100.0, 3.0, 0.5), 5),
]


enumerated = functools.cache(Enumerated)


def neighbours(counts):
    for i, j in itertools.permutations(range(len(counts)), 2):
        if counts[i] > 0:
            yield counts + np.eye(len(counts), dtype=int)[j] - np.eye(len(counts), dtype=int)[i]


@pytest.mark.parametrize(("prior", "n"), [case for case in CASES if case[1] <= 8])
def test_local_sensitivity_equals_enumeration(prior, n):
    everything = enumerated(prior, n)
    change = np.zeros(len(everything.datasets))
    for c, d in everything.pairs:
        change[c] = max(change[c], np.abs(everything.distances[c] - everything.distances[d]).max())
    found = [local_sensitivity(prior, c) for c in everything.datasets]
    np.testing.assert_allclose(found, change, rtol=1e-9, atol=1e-7)


@pytest.mark.parametrize(("prior", "n"), CASES)
def test_profile_equals_enumeration(prior, n):
    """The profile at t is the largest local sensitivity within t replacements, even with empty categories."""
    everything = enumerated(prior, n)
    for c, moves in zip(everything.datasets, everything.moves, strict=True):
        expected = np.array([everything.local[moves <= t].max() for t in range(n + 1)])
        profile = local_sensitivity_at_distance(prior, c)
        reached = profile.size - 1
        np.testing.assert_allclose(profile, expected[: reached + 1], rtol=1e-9, atol=1e-7)
        np.testing.assert_allclose(profile[-1], expected[-1], rtol=1e-9, atol=1e-7)
        assert profile[-1] == global_sensitivity(prior, n)
        if reached:
            assert profile[-2] < profile[-1]  # the global sensitivity is attained at the last distance, and not before


@pytest.mark.parametrize(
    ("rule", "sensitivity"), [(Rule.SMOOTH, smooth_sensitivity), (Rule.VARYING, varying_sensitivity)]
)
@pytest.mark.parametrize(("prior", "n"), CASES)
@pytest.mark.parametrize("gamma", [0.02, 0.3, 2.0])
def test_smoothed_sensitivities_equal_enumeration(prior, n, gamma, rule, sensitivity):
    """The maximum of LS·exp(−γ·d), or 1/min(1/LS + γ·d), over data sets with local sensitivity LS, d records away."""
    everything = enumerated(prior, n)
    found = [sensitivity(prior, c, gamma) for c in everything.datasets]
    np.testing.assert_allclose(found, everything.scales(rule, gamma), rtol=1e-8, atol=1e-7)


@pytest.mark.parametrize(("prior", "n"), CASES)
def test_global_sensitivity_equals_enumeration(prior, n):
    assert global_sensitivity(prior, n) == pytest.approx(enumerated(prior, n).local.max(), rel=1e-9)


def test_enumeration_detects_wrong_distances():
    """Enumerations differ if the ℓ₁ distance is used as the number of replacements (negative control)."""
    prior, c, skewed = (0.3, 2.0, 5.0), np.array([3, 3, 2]), Enumerated((0.01, 100.0), 12)
    everything = enumerated(prior, 8)
    distance = np.abs(everything.datasets - c).sum(axis=1)
    wrong = [everything.local[distance <= t].max() for t in range(3)]
    assert not np.allclose(local_sensitivity_at_distance(prior, c)[:3], wrong, rtol=1e-3)
    skewed.moves *= 2
    found = [varying_sensitivity((0.01, 100.0), c, 0.02) for c in skewed.datasets]
    assert not np.allclose(found, skewed.scales(Rule.VARYING, 0.02), rtol=1e-3)


def test_sensitivities_equal_published_values():
    assert local_sensitivity([1] * 4, [150] * 4) == pytest.approx(0.04074022, abs=5e-9)
    assert global_sensitivity([1] * 4, 600) == pytest.approx(math.sqrt(1 - math.pi / 4), rel=1e-14)
    assert global_sensitivity([1] * 3, 10) == pytest.approx(0.46325138, abs=5e-9)


def test_phi_equals_mpmath_and_is_increasing_and_concave():
    a = np.geomspace(1e-2, 1e7, 60)
    with mpmath.workdps(50):
        exact = [
            float(
                mpmath.loggamma(mpmath.mpf(x) + 0.5)
                - (mpmath.loggamma(mpmath.mpf(x)) + mpmath.loggamma(mpmath.mpf(x) + 1)) / 2
            )
            for x in map(float, a)
        ]
    np.testing.assert_allclose(phi(a), exact, rtol=1e-13)
    even = phi(np.linspace(0.05, 60, 2_000))
    assert np.all(np.diff(even) > 0)
    assert np.all(np.diff(even, 2) < 0)


def test_smoothing_gamma_equals_the_published_formula():
    expected = math.log(1 - 0.7 / (2 * math.log(1e-6 / (2 * 301))))
    assert smoothing_gamma(0.7, 1e-6, 301) == pytest.approx(expected, rel=1e-14)
    assert 0 < smoothing_gamma(1.0, 1e-8, 10**400) < smoothing_gamma(1.0, 1e-8, 10)


@pytest.mark.parametrize("n", [100, 101])
def test_statements_of_the_draft_hold(n):
    """Under Beta(1, 1), H(x, x+1) increases away from the centre, and the outer step is LS(x) (P1, I–III)."""
    step = np.diagonal(enumerated((1.0, 1.0), n).distances, 1)
    centre = n // 2
    assert np.all(np.diff(step[(n + 1) // 2 :]) > 0)
    assert np.all(np.diff(step[:centre]) < 0)
    local = np.array([local_sensitivity([1, 1], [x, n - x]) for x in range(n + 1)])
    for x in range(1, n):
        outward = step[x] if 2 * x >= n else step[x - 1]
        assert local[x] == pytest.approx(outward, rel=1e-9)
    assert np.all(np.delete(local, [centre, n - centre]) > local[centre])


def test_statement_three_of_the_draft_fails_for_tiny_data():
    """At n = 2 the data set (0, 2) has the same local sensitivity as (1, 1), contrary to statement III of P1."""
    values = [local_sensitivity([1, 1], [x, 2 - x]) for x in range(3)]
    assert not values[0] > values[1]


categories = st.integers(2, 5)


@st.composite
def problems(draw):
    k = draw(categories)
    prior = draw(st.lists(st.floats(0.01, 100), min_size=k, max_size=k))
    counts = draw(st.lists(st.integers(0, 60), min_size=k, max_size=k).filter(any))
    order = draw(st.permutations(range(k)))
    return np.array(prior), np.array(counts), list(order)


@given(problem=problems(), gamma=st.floats(1e-3, 3))
@settings(deadline=None, derandomize=True, max_examples=100)
def test_sensitivities_are_ordered_smooth_and_permutation_invariant(problem, gamma):
    prior, counts, order = problem
    local, largest = local_sensitivity(prior, counts), global_sensitivity(prior, int(counts.sum()))
    profile = local_sensitivity_at_distance(prior, counts)
    assert profile[0] == pytest.approx(local, rel=1e-14)
    assert np.all(np.diff(profile) >= 0)
    for sensitivity in (smooth_sensitivity, varying_sensitivity):
        found = sensitivity(prior, counts, gamma)
        assert 0 < local <= found * (1 + 1e-14)
        assert found <= largest * (1 + 1e-14)
        assert sensitivity(prior, counts, 2 * gamma) <= found
        assert sensitivity(prior[order], counts[order], gamma) == pytest.approx(found, rel=1e-13)
        for neighbour in neighbours(counts):  # the definitions of smooth and of varying upper bounds
            other = sensitivity(prior, neighbour, gamma)
            if sensitivity is smooth_sensitivity:
                assert found <= math.exp(gamma) * other * (1 + 1e-12)
            else:
                assert abs(1 / found - 1 / other) <= gamma + 1e-12 / found


def test_reciprocal_of_the_local_sensitivity_changes_by_more_than_gamma():
    """The reciprocal of the local sensitivity can change by more than γ per record (negative control)."""
    values = [1 / local_sensitivity([1, 1], [x, 99 - x]) for x in range(100)]
    assert np.abs(np.diff(values)).max() > 0.15
    smoothed = [1 / varying_sensitivity([1, 1], [x, 99 - x], 0.1) for x in range(100)]
    assert np.abs(np.diff(smoothed)).max() <= 0.1 + 1e-12


@pytest.mark.parametrize(("prior", "n"), [*CASES, ((1.0, 1.0), 200), ((0.5, 2.0, 0.5), 25), ((1.0,) * 5, 4)])
@pytest.mark.parametrize("gamma", [0.003, 0.1, 1.0])
def test_smoothed_scales_equal_single_sensitivities(prior, n, gamma):
    data_sets = enumerate_candidates(n, len(prior))
    for rule, single in ((Rule.SMOOTH, smooth_sensitivity), (Rule.VARYING, varying_sensitivity)):
        scales = smoothed_scales(rule, np.array(prior), data_sets, gamma)
        np.testing.assert_allclose(scales, [single(prior, c, gamma) for c in data_sets], rtol=1e-13)
        picked = np.random.default_rng(4).permutation(len(data_sets))[:3]
        np.testing.assert_array_equal(smoothed_scales(rule, np.array(prior), data_sets[picked], gamma), scales[picked])


@pytest.mark.parametrize(("prior", "n"), [case for case in CASES if case[1] <= 9])
def test_varying_score_changes_by_at_most_two(prior, n):
    """The score over the varying sensitivity changes by at most 2 between neighbours, so the exponent has ε/4."""
    everything = enumerated(prior, n)
    scores = everything.distances / np.array([varying_sensitivity(prior, c) for c in everything.datasets])[:, None]
    for c, d in everything.pairs:
        assert np.abs(scores[c] - scores[d]).max() <= 2 + 1e-6
