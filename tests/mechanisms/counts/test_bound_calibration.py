"""Tests of the calibration by an analytical bound: inequalities in the proof, and audits of the mechanism."""

import functools
import math
from functools import partial

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mechanisms.core.conjugate import balanced_counts, count_candidates, enumerate_candidates
from mechanisms.counts import bound_calibration
from mechanisms.counts.bound_calibration import MAX_RECORDS, BoundScale, bound_scale, require_bound
from mechanisms.counts.exponential import smoothing_gamma
from mechanisms.counts.registry import MECHANISMS
from mechanisms.counts.sensitivity import smooth_sensitivity, varying_sensitivity
from tests.mechanisms.counts import enumeration
from tests.mechanisms.counts.enumeration import log_affinities
from tests.mechanisms.refusals import assert_refused

LARGEST = {2: 60, 3: 11, 4: 6}


class Enumerated(enumeration.Enumerated):
    """All data sets, with the categories between which a record moves from each to each neighbour."""

    def __init__(self, prior, n):
        super().__init__(prior, n)
        self.index = {tuple(c): row for row, c in enumerate(self.datasets.tolist())}
        changes = self.datasets[self.pairs[:, 1]] - self.datasets[self.pairs[:, 0]]
        self.moved = np.column_stack([self.pairs, changes.argmin(axis=1), changes.argmax(axis=1)]).tolist()


@functools.lru_cache(maxsize=4)
def enumerated(prior, n):
    return Enumerated(prior, n)


def reciprocals(scale, everything):
    return np.array([1 / scale.sensitivity(c) for c in everything.datasets])


def scale_at(prior, n, epsilon, gamma):
    """Return the scale calibrated for the given rate γ; the bound is proved for every γ."""
    terms = bound_calibration._category_terms(prior, n, epsilon)
    return BoundScale(prior, n, epsilon, gamma, bound_calibration._factors(*terms, gamma))


def factors_of(scale, datasets, fewer=1):
    """Return the factor w of each data set, evaluated at `fewer` records of each category."""
    return [max(scale._factors[j][max(c[j] - fewer, 0)] for j in range(len(c))) for c in datasets]


def is_met(factor, other, gamma, h_j, moved, edge):
    """Return True if a factor is so large that the bound (*) of the module docstring is at most 1."""
    room = 1 - gamma - edge
    translated = (1 + moved / h_j) / room if room > 0 else math.inf
    return factor >= translated * (1 - 1e-6) or min(factor, other) >= 2 / (1 - gamma) * (1 - 1e-12)


def category_bounds(prior, n, epsilon, j, c_j):
    """Return the terms hⱼ, Dⱼ and −ln(1 − βⱼ)/ε by their definitions in the proof, for category j with count cⱼ."""
    k, a = len(prior), prior[j] + c_j
    b = prior[j] + np.arange(n + 1)

    def away(x, y):
        return np.sqrt(np.maximum(-np.expm1(log_affinities(x, y)), 0))

    h = float(away(a, a + 1))
    moved = max(0.0, float(np.max(away(a, b) - away(a + 1, b + 1))))
    beta = (k - 1) / (n + k - 1) * math.exp(min(epsilon / h * (1 - float(away(a + 1, prior[j]))), 700))
    return h, moved, math.inf if beta >= 1 else -math.log1p(-beta) / epsilon


@st.composite
def problems(draw):
    k = draw(st.integers(2, 4))
    n = draw(st.integers(1, LARGEST[k]))
    size = st.one_of(st.floats(-3, 3).map(lambda x: 10**x), st.sampled_from([1e-3, 0.01, 1.0, 10.0, 100.0, 1e3]))
    if draw(st.booleans()):
        prior = (draw(size),) * (k - 1) + (draw(size),)
    else:
        prior = tuple(draw(st.lists(size, min_size=k, max_size=k)))
    return prior, n, 10 ** draw(st.floats(-2, math.log10(20)))


@pytest.mark.slow
@given(problem=problems())
@example(problem=((1e3, 1e3), 60, 0.2))
@example(problem=((1e3, 1e3), 12, 0.0134))
@example(problem=((1e3, 1e3, 1e3), 10, 0.026))
@example(problem=((1e-3, 1e3, 1e-3), 8, 20.0))
@example(problem=((1e-3, 1e-3, 1e-3, 1e3), 5, 0.01))
@settings(deadline=None, derandomize=True, max_examples=60)
def test_loss_is_within_epsilon(problem):
    """The largest loss is at most ε; the reciprocal of the scale changes by at most γ per record."""
    prior, n, epsilon = problem
    everything = enumerated(prior, n)
    scale = bound_scale(prior, n, epsilon)
    q = reciprocals(scale, everything)
    assert everything.loss(epsilon * q) <= epsilon
    assert max(abs(q[c] - q[d]) for c, d, _, _ in everything.moved) <= scale.gamma + 1e-12 * q.max()


@pytest.mark.slow
@given(problem=problems(), log_gamma=st.floats(-4, -0.05))
@example(problem=((1e6, 1e6), 60, 0.008), log_gamma=-3.1)
@example(problem=((1e5, 1e5, 1e3), 10, 0.04), log_gamma=-2.7)
@settings(deadline=None, derandomize=True, max_examples=60)
def test_loss_is_within_epsilon_at_any_rate(problem, log_gamma):
    prior, n, epsilon = problem
    everything = enumerated(prior, n)
    q = reciprocals(scale_at(prior, n, epsilon, 10**log_gamma), everything)
    assert everything.loss(epsilon * q) <= epsilon * (1 + 1e-6)


@pytest.mark.slow
@given(problem=problems(), log_gamma=st.floats(-3, -0.1))
@settings(deadline=None, derandomize=True, max_examples=40)
def test_inequalities_of_the_proof_hold(problem, log_gamma):
    prior, n, epsilon = problem
    n = min(n, {2: 25, 3: 7, 4: 4}[len(prior)])
    everything = enumerated(prior, n)
    gamma = 10**log_gamma
    scale = scale_at(prior, n, epsilon, gamma)
    q = reciprocals(scale, everything)
    log_z = np.log(np.exp(-epsilon * q[:, None] * everything.distances).sum(axis=1))
    datasets, tiny = everything.datasets, 1e-9
    factor = np.array(factors_of(scale, datasets))
    assert np.all(factor >= 1)
    assert np.all(q * everything.local * factor <= 1 + tiny)
    bounds = {(j, x): category_bounds(prior, n, epsilon, j, x) for j in range(everything.k) for x in range(n)}
    relative, boundary = bound_calibration._category_terms(prior, n, epsilon)
    for (j, x), (h_j, moved, edge) in bounds.items():
        assert relative[j, x] == pytest.approx(moved / h_j, rel=1e-6, abs=1e-7)
        assert boundary[j, x] == pytest.approx(edge, rel=1e-6, abs=1e-12)
    step = np.eye(everything.k, dtype=int)
    for c, d, i, j in everything.moved:
        h = everything.distances[c, d]
        h_j, moved, edge = bounds[j, int(datasets[c, j])]
        assert h_j <= h + tiny
        # data set and output are translated by one vector
        from_i = datasets[datasets[:, i] > 0]
        here = [everything.index[tuple(r)] for r in from_i.tolist()]
        there = [everything.index[tuple(r)] for r in (from_i + step[j] - step[i]).tolist()]
        assert (everything.distances[c, here] - everything.distances[d, there]).max() <= moved + tiny
        # outputs that the translation does not reach
        unreached = datasets[:, j] == 0
        assert sorted(there) == np.flatnonzero(~unreached).tolist()
        share = np.exp(-epsilon * q[d] * everything.distances[d, unreached]).sum() / math.exp(log_z[d])
        assert unreached.mean() == pytest.approx((everything.k - 1) / (n + everything.k - 1), rel=1e-12)
        assert math.isinf(edge) or share <= -math.expm1(-edge * epsilon) * (1 + 1e-6) + tiny
        # both terms of the loss are within their bounds
        first = (q[d] * everything.distances[d] - q[c] * everything.distances[c]).max()
        assert first <= q[c] * h + max(q[d] - q[c], 0) + tiny * q.max()
        second = (log_z[d] - log_z[c]) / epsilon
        best = max(q[c] - q[d], 0) + min(q[d] * h, q[c] * moved + edge)
        assert second <= best + tiny * q.max() + 1e-13 / epsilon
        # the factor w is chosen such that the bound (*) of the module docstring is at most 1
        assert abs(q[c] - q[d]) + q[c] * h + min(q[d] * h, q[c] * moved + edge) <= 1 + tiny * q.max()
        assert is_met(factor[c], factor[d], gamma, h_j, moved, edge)


@pytest.mark.parametrize(("shift", "unmet"), [(1, 0), (0, 2)])
@pytest.mark.parametrize(("prior", "n"), [((1.0, 1.0), 60), ((0.01, 100.0), 60)])
def test_factor_must_be_evaluated_at_one_record_less(prior, n, shift, unmet):
    """With the factor w evaluated at cⱼ instead of cⱼ − 1, the inequality in the proof fails (negative control)."""
    epsilon = 0.1
    scale = bound_scale(prior, n, epsilon)
    everything = enumerated(prior, n)
    factor = factors_of(scale, everything.datasets, shift)
    missed = 0
    for c, d, _, j in everything.moved:
        bounds = category_bounds(prior, n, epsilon, j, int(everything.datasets[c, j]))
        missed += not is_met(factor[c], factor[d], scale.gamma, *bounds)
    assert missed == unmet


def test_distance_change_of_a_translation_equals_high_precision():
    """The largest decrease Dⱼ of a distance due to one record agrees with 50-digit arithmetic for counts up to 10⁶."""
    with mpmath.workdps(50):
        for a in (1e-3, 0.7, 12.0, 1e3, 1e6):
            b = np.array([a - math.floor(a) + 1e-3, 0.5 * a, a, a + 1, a + 40, 3 * a + 2])

            def away(x, y):
                log = mpmath.loggamma((x + y) / 2) - (mpmath.loggamma(x) + mpmath.loggamma(y)) / 2
                return mpmath.sqrt(abs(mpmath.expm1(log)))

            falls = [
                away(mpmath.mpf(a), mpmath.mpf(y)) - away(mpmath.mpf(a) + 1, mpmath.mpf(y) + 1) for y in map(float, b)
            ]
            assert bound_calibration._largest_decrease(a, b) == pytest.approx(
                max(0.0, float(max(falls))), rel=1e-6, abs=1e-15
            )


@pytest.mark.parametrize(("prior", "n"), [((1.0, 1.0), 30), ((0.01, 100.0), 20), ((0.3, 2.0, 2.0), 7), ((1.0,) * 4, 4)])
@pytest.mark.parametrize("gamma", [0.01, 0.2, 0.6])
def test_scale_equals_its_definition(prior, n, gamma):
    """The reciprocal scale at c is the minimum over t of 1/(A·w) + γ·t.

    A and w are the largest local sensitivity and the largest factor within t replaced records of c.
    """
    everything = enumerated(prior, n)
    scale = scale_at(prior, n, 1.0, gamma)
    factor = np.array(factors_of(scale, everything.datasets))
    for c in everything.datasets:
        moves = np.abs(everything.datasets - c).sum(axis=1) // 2
        expected = min(
            1 / (everything.local[moves <= t].max() * factor[moves <= t].max()) + gamma * t for t in range(n + 1)
        )
        assert 1 / scale.sensitivity(c) == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize(
    ("k", "n"), [(2, 100), (2, 300), (2, 500), (3, 100), (3, 300), (3, 500), (4, 100), (4, 300), (4, 600)]
)
def test_exponent_is_larger_than_published(k, n):
    """The inverse temperature is over 1.5 times that of P0 (Figures 2a to 2c) for every n and k."""
    balanced = balanced_counts(n, k)
    exponent = 1 / bound_scale([1.0] * k, n, 1.0).sensitivity(balanced)
    for n_outputs in (n + 1, count_candidates(n, k)):
        published = smooth_sensitivity([1.0] * k, balanced, smoothing_gamma(1.0, 1e-8, n_outputs))
        assert exponent > 1.5 / (2 * published)


def test_exponent_at_the_published_size_of_four_categories():
    found = bound_scale([1, 1, 1, 1], 600, 1.0)
    assert 1 / found.sensitivity([150] * 4) == pytest.approx(19.88, abs=5e-3)


@pytest.mark.parametrize(
    ("prior", "n"), [((1.0, 1.0), 60), ((0.01, 100.0), 60), ((1.0,) * 3, 11), ((0.01,) * 3, 11), ((1.0,) * 4, 7)]
)
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_loss_exceeds_epsilon_without_the_factor(prior, n, epsilon):
    """Without the factor w on the local sensitivity, the loss at the same γ exceeds ε (negative control)."""
    everything = enumerated(prior, n)
    scale = bound_scale(prior, n, epsilon)
    bare = np.array([1 / varying_sensitivity(prior, c, scale.gamma) for c in everything.datasets])
    assert everything.loss(epsilon * reciprocals(scale, everything)) < epsilon
    assert everything.loss(epsilon * bare) > 1.005 * epsilon


def test_scale_is_cached():
    found = bound_scale([1, 1], 30, 1.0)
    assert bound_scale((1.0, 1.0), np.int64(30), np.float64(1.0)) is found
    assert bound_scale([1, 1], 30, 1.1) is not found
    assert bound_scale([1, 2], 30, 1.0) is not found
    assert (found.prior, found.n, found.epsilon) == ((1.0, 1.0), 30, 1.0)


def test_rate_is_the_best_for_balanced_data():
    found = bound_scale([1, 1, 1], 60, 1.0)
    balanced = balanced_counts(60, 3)
    for gamma in bound_calibration._GAMMAS:
        other = scale_at((1.0, 1.0, 1.0), 60, 1.0, float(gamma))
        assert found.sensitivity(balanced) <= other.sensitivity(balanced)


@pytest.mark.parametrize("prior", [(1e-300, 1.0), (5e-324, 1e3), (1e12, 1.0), (1e12, 1e12, 1e-12)])
def test_extreme_priors_give_finite_scales(prior):
    scale = bound_scale(prior, 6, 1.0)
    values = [scale.sensitivity(c) for c in enumerate_candidates(6, len(prior))]
    assert np.all(np.isfinite(values))
    assert min(values) > 0


def test_invalid_input_raises():
    message = r"at most 5,000 records for a scale calibrated by proof, got 5,001 \(n = 5001, k = 2\)"
    assert_refused(lambda: bound_scale([1, 1], 5_001, 1.0), message)
    for k in (2, 4):
        require_bound(MAX_RECORDS, k)
        counts = [MAX_RECORDS + 1] + [0] * (k - 1)
        refuse = partial(MECHANISMS["varying-bound"].validate, [1.0] * k, counts, 1.0, 1e-8)
        assert_refused(refuse, "there must be at most 5,000 records")
    for counts in ([3, 3], [5, 5, 0], [10.5, -0.5]):
        assert_refused(partial(bound_scale([1, 1], 10, 1.0).sensitivity, counts), "counts must")
