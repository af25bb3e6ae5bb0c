"""Tests of the exponential mechanism against a plain loop over its candidates, the possible outputs."""

import math

import mpmath
import numpy as np
import pytest
from scipy import special

from mechanisms.core.conjugate import enumerate_candidates
from mechanisms.counts.candidates import category_deficits, require_enumerable, require_streamable
from mechanisms.counts.exponential import _pick
from tests.mechanisms.counts.constructors import exponential_mechanism
from tests.mechanisms.counts.enumeration import Enumerated
from tests.mechanisms.refusals import assert_refused

CASES = [
    ((1.0, 1.0), (1, 0), 1.0, 0.5),
    ((1.0, 1.0), (7, 5), 1.0, 0.2),
    ((0.01, 100.0), (0, 9), 3.0, 0.4),
    ((1.0, 1.0, 1.0), (0, 1, 0), 1.0, 0.46),
    ((0.3, 2.0, 5.0), (3, 4, 1), 2.0, 0.3),
    ((1.0, 1.0, 1.0, 1.0), (2, 2, 1, 1), 1.0, 0.1),
    ((0.3, 2.0, 5.0, 1.0, 1.0), (0, 3, 1, 0, 2), 0.5, 0.05),
]


def plain_distribution(prior, counts, epsilon, sensitivity):
    """Return the output distribution by the formula of P0, and the distances of the candidates."""
    everything = Enumerated(prior, sum(counts))
    distances = everything.distances[everything.datasets.tolist().index(list(counts))]
    return special.softmax(-epsilon * distances / (2 * sensitivity)), distances


@pytest.mark.parametrize(("prior", "counts", "epsilon", "sensitivity"), CASES)
def test_distribution_and_mean_equal_a_plain_loop(prior, counts, epsilon, sensitivity):
    mechanism = exponential_mechanism(prior, counts, epsilon / 2, sensitivity)
    distribution, distances = plain_distribution(prior, counts, epsilon, sensitivity)
    np.testing.assert_allclose(mechanism.pmf(), distribution, rtol=1e-11)
    assert mechanism.expected_hellinger() == pytest.approx(float(distribution @ distances), rel=1e-11)


@pytest.mark.parametrize(("prior", "counts", "epsilon", "sensitivity"), CASES)
def test_draws_invert_the_distribution_function(prior, counts, epsilon, sensitivity):
    """Uniforms at the midpoints of the steps of the distribution function give the candidates in order."""
    mechanism = exponential_mechanism(prior, counts, epsilon / 2, sensitivity)
    candidates = enumerate_candidates(mechanism.n, mechanism.k)
    distribution = mechanism.pmf()
    prefix = candidates[:, : mechanism.k - 2]
    starts = np.r_[0, 1 + np.flatnonzero(np.any(np.diff(prefix, axis=0), axis=1))]
    row_distribution = np.add.reduceat(distribution, starts)
    stops = np.r_[starts[1:], len(distribution)]
    middle = np.cumsum(row_distribution) - row_distribution / 2
    for row, (start, stop) in enumerate(zip(starts, stops, strict=True)):
        inner = distribution[start:stop] / row_distribution[row]
        within = np.cumsum(inner) - inner / 2
        uniforms = np.column_stack([np.full(stop - start, middle[row]), within])
        np.testing.assert_array_equal(mechanism.from_uniforms(uniforms), candidates[start:stop])


@pytest.mark.parametrize("epsilon", [1.0, 1e5])
@pytest.mark.parametrize("prior", [(1.0, 1.0), (1.0, 1.0, 1.0), (0.01, 1.0, 50.0, 3.0)])
def test_extreme_uniforms_give_possible_candidates(prior, epsilon):
    """Uniforms at both ends of [0, 1) never select a candidate whose weight underflows to zero."""
    counts = np.full(len(prior), 20)
    mechanism = exponential_mechanism(prior, counts, epsilon / 2, 0.05)
    ends = np.array([0.0, np.nextafter(0, 1), 0.5, 1 - 2**-53])
    released = mechanism.from_uniforms(np.array([[u, v] for u in ends for v in ends]))
    candidates = enumerate_candidates(mechanism.n, mechanism.k)
    possible = {tuple(c) for c in candidates[mechanism.pmf() > 0].tolist()}
    assert {tuple(c) for c in released.tolist()} <= possible
    if epsilon == 1e5:
        assert len(possible) < len(candidates)


def test_product_rounded_up_to_the_total_gives_the_last_possible_index():
    """A uniform that is rounded up to 1 selects the last index with a positive probability."""
    for cumulative, last in (([0.0, 0.5, 1.0, 1.0, 1.0], 2), ([0.3], 0), ([0.2, 0.2], 0), ([0.0, 0.0, 0.7], 2)):
        assert _pick(np.array(cumulative), len(cumulative), 1.0) == last
        assert _pick(np.array(cumulative), len(cumulative), 0.0) == np.flatnonzero(cumulative)[0]


@pytest.mark.parametrize("n", [5, 1_000, 1_001])  # rows of up to 1,000 records are cached
def test_deficits_equal_mpmath_at_every_call(n):
    prior, counts = np.array([0.3, 2.0, 0.3]), np.array([n - 3, 2, 1])

    def deficit(alpha, count, x):
        a, b = mpmath.mpf(alpha) + count, mpmath.mpf(alpha) + x
        return 1 - mpmath.exp(mpmath.loggamma((a + b) / 2) - (mpmath.loggamma(a) + mpmath.loggamma(b)) / 2)

    places = [0, 1, 2, n // 2, n - 3, n]
    with mpmath.workdps(30):
        expected = [
            [float(deficit(*each, x)) for x in places] for each in zip(prior.tolist(), counts.tolist(), strict=True)
        ]
    for _ in range(2):
        found = category_deficits(prior, counts)
        np.testing.assert_allclose(found[:, places], expected, rtol=1e-12, atol=1e-30)
        found[:] = 0.0  # the caller owns the result


def test_zero_draws_have_shape():
    assert exponential_mechanism([1, 1, 1], [1, 2, 3], 0.5, 0.4).from_uniforms(np.empty((0, 2))).shape == (0, 3)


def test_mean_is_accurate_at_small_distances():
    """The mean distance at n = 10⁶, where neighbours have a distance of 7e-4, is accurate to ten digits."""
    n, inverse_temperature = 10**6, 5e4
    mechanism = exponential_mechanism([1, 1], [n // 2, n // 2], 1.0, 1.0 / inverse_temperature)
    assert mechanism.inverse_temperature == pytest.approx(inverse_temperature)
    with mpmath.workdps(40):
        truth = [mpmath.mpf(n // 2 + 1)] * 2
        total = moment = mpmath.mpf(0)
        for d in range(41):  # other candidates have relative weights below 1e-300
            other = [truth[0] + d, truth[1] - d]
            log_affinity = sum(
                mpmath.loggamma((a + b) / 2) - (mpmath.loggamma(a) + mpmath.loggamma(b)) / 2
                for a, b in zip(truth, other, strict=True)
            )
            h = mpmath.sqrt(-mpmath.expm1(log_affinity))
            weight = (1 if d == 0 else 2) * mpmath.exp(-inverse_temperature * h)
            total, moment = total + weight, moment + weight * h
    assert mechanism.expected_hellinger() == pytest.approx(float(moment / total), rel=1e-10)


@pytest.mark.parametrize(
    ("counts", "kind"),
    [
        ([160, 160, 160], "ExponentialMechanism"),
        ([400_000, 600_000], "ExponentialMechanism"),
        pytest.param([750] * 4, "PowerMixture", marks=pytest.mark.slow),
        # there are few candidates, but as many rows as candidates
        pytest.param([1] * 5 + [0] * 55, "PowerMixture", marks=pytest.mark.slow),
    ],
)
def test_large_problems_use_mixtures(counts, kind):
    mechanism = exponential_mechanism(np.ones(len(counts)), counts, 0.5, 0.01)
    assert type(mechanism).__name__ == kind
    assert mechanism.from_uniforms(np.full((1, 2), 0.5)).sum() == sum(counts)


def draw_from(uniforms):
    return exponential_mechanism([1, 1], [1, 1], 0.5, 0.4).from_uniforms(uniforms)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: draw_from(np.zeros((3, 1))), r"shape \(trials, 2\), got \(3, 1\)"),
        (lambda: draw_from(np.zeros(2)), r"shape \(trials, 2\), got \(2,\)"),
        (lambda: draw_from([[0.5, 1.0]]), r"in \[0, 1\), got 1.0"),
        (lambda: draw_from([[-0.1, 0.5]]), r"in \[0, 1\), got -0.1"),
        (lambda: draw_from([[0.5, math.nan]]), r"in \[0, 1\), got nan"),
        (
            lambda: exponential_mechanism([1] * 3, [20_000_000, 0, 0], 0.5, 0.4),
            r"at most 25,000,000 entries of tables, got 60,000,003 .*; use fewer records",
        ),
        (
            lambda: require_streamable(3000, 4),
            r"at most 2,000,000,000 .* got .* \(n = 3000, k = 4\); use fewer records",
        ),
        (lambda: require_streamable(6, 60), "at most 25,000,000 entries of tables"),
        (lambda: require_streamable(10**8, 2), "at most 25,000,000 entries of tables"),
        (lambda: require_enumerable(700, 4), "at most 50,000,000 candidates to list their probabilities"),
    ],
)
def test_invalid_uniforms_and_too_large_problems_raise(call, message):
    assert_refused(call, message)
