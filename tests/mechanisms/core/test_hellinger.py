"""Tests of affinities and Hellinger distances against 50-digit arithmetic and quadrature."""

import itertools

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import gammaln

from mechanisms.core.hellinger import hellinger, log_affinity, release_distances
from tests.mechanisms.refusals import assert_refused

GRID = [0.01, 0.3, 0.5, 1.0, 2.5, 9.7, 15.99, 16.0, 17.3, 40.0, 999.5, 1e5, 1e7]
STEPS = [1e-3, 0.5, 1.0, 3.0]


def exact_log_affinity(a, b):
    with mpmath.workdps(50):
        a, b = mpmath.mpf(a), mpmath.mpf(b)
        return mpmath.loggamma((a + b) / 2) - (mpmath.loggamma(a) + mpmath.loggamma(b)) / 2


def relative_errors(pairs):
    values = log_affinity(*np.transpose(pairs))
    exact = [exact_log_affinity(a, b) for a, b in pairs]
    return np.array([abs(float((mpmath.mpf(float(v)) - e) / e)) for v, e in zip(values, exact, strict=True)])


def test_log_affinity_equals_mpmath():
    distant = [(a, b) for a, b in itertools.product(GRID, GRID) if a != b]
    near = [(a, a + step) for a, step in itertools.product(GRID, STEPS)]
    switches = [(20.0, 20.0 * r) for r in (2.9, 2.999999, 3.0, 3.000001, 3.1)]  # the formula changes at b = 3a
    assert relative_errors(distant).max() < 1e-13
    tiny = [(1e-12, 1.0), (1e-8, 20.0), (1e-6, 3.0), (1e-9, 2e-9)]
    assert relative_errors(tiny).max() < 1e-13
    # Rounding of the arguments (a + 1e-3 at 1e7 has seven digits) does not matter, as mpmath uses the same doubles.
    assert relative_errors(near).max() < 1e-13
    assert relative_errors(switches).max() < 1e-13


def test_log_affinity_is_accurate_where_differences_of_log_gammas_are_not():
    """At parameters near 1e7, the log affinity of neighbours is accurate, unlike differences of log gammas."""
    a, b = 1e7, 1e7 + 1
    exact = float(exact_log_affinity(a, b))
    plain = gammaln((a + b) / 2) - (gammaln(a) + gammaln(b)) / 2
    assert abs(plain / exact - 1) > 0.1
    assert abs(float(log_affinity(a, b)) / exact - 1) < 1e-13


@given(a=st.floats(1e-2, 1e7), b=st.floats(1e-2, 1e7))
@settings(deadline=None, derandomize=True, max_examples=200)
def test_log_affinity_is_symmetric_and_not_positive(a, b):
    value = float(log_affinity(a, b))
    assert value == float(log_affinity(b, a))
    assert value <= 0
    assert (value == 0) == (a == b) or abs(a - b) < 1e-7 * a


def test_log_affinity_broadcasts():
    assert log_affinity(np.ones((3, 1)), np.ones(4)).shape == (3, 4)
    assert log_affinity(1.0, 2.0).shape == ()


@pytest.mark.parametrize(
    ("a", "b"), [((1, 1), (2, 1)), ((3.5, 2), (2.5, 3)), ((0.5, 4), (6, 2)), ((51, 51), (50, 52)), ((2, 3), (20, 30))]
)
def test_hellinger_of_beta_equals_quadrature(a, b):
    """The distance between Beta distributions equals H with H² = 1 − ∫√(pq) by quadrature."""

    def root_density(t, parameters):
        x, y = parameters
        return mpmath.sqrt(t ** (x - 1) * (1 - t) ** (y - 1) / mpmath.beta(x, y))

    with mpmath.workdps(30):
        affinity = mpmath.quad(lambda t: root_density(t, a) * root_density(t, b), [0, 0.1, 0.5, 0.9, 1])
        expected = float(mpmath.sqrt(1 - affinity))
    assert float(hellinger(a, b)) == pytest.approx(expected, rel=1e-9)


def test_hellinger_of_dirichlet_equals_quadrature():
    a, b = (2, 3, 4), (3, 1, 5)

    def log_beta(x):
        return sum(mpmath.loggamma(v) for v in x) - mpmath.loggamma(sum(x))

    constant = mpmath.exp(-(log_beta(a) + log_beta(b)) / 2)
    power = [(x + y) / mpmath.mpf(2) - 1 for x, y in zip(a, b, strict=True)]

    def inner(s):
        return mpmath.quad(lambda t: s ** power[0] * t ** power[1] * max(1 - s - t, 0) ** power[2], [0, 1 - s])

    affinity = constant * mpmath.quad(inner, [0, 1])
    assert float(hellinger(a, b)) == pytest.approx(float(mpmath.sqrt(1 - affinity)), rel=1e-8)


def test_hellinger_is_accurate_between_close_posteriors():
    """For one record in ten million, H² = 1e-8 is accurate despite the rounding of log gammas."""
    a, b = (5e6, 5e6), (5e6 + 1, 5e6 - 1)
    with mpmath.workdps(50):
        exact = mpmath.sqrt(-mpmath.expm1(sum(exact_log_affinity(x, y) for x, y in zip(a, b, strict=True))))
    assert float(hellinger(a, b)) == pytest.approx(float(exact), rel=1e-12)


parameters = st.lists(st.floats(0.05, 500), min_size=3, max_size=3)


@given(a=parameters, b=parameters, c=parameters, order=st.permutations(range(3)))
@settings(deadline=None, derandomize=True, max_examples=150)
def test_hellinger_is_a_bounded_permutation_invariant_metric(a, b, c, order):
    a, b, c = np.array(a), np.array(b), np.array(c)
    h = float(hellinger(a, b))
    assert 0 <= h <= 1
    assert h == pytest.approx(float(hellinger(b, a)), rel=1e-12, abs=1e-12)
    assert h == pytest.approx(float(hellinger(a[list(order)], b[list(order)])), rel=1e-6, abs=1e-7)
    assert h <= float(hellinger(a, c)) + float(hellinger(c, b)) + 1e-9
    assert float(hellinger(a, a)) == 0


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ([1.0, 0.0], [1.0, 1.0], "a must be finite and > 0, got 0.0"),
        ([1.0, 1.0], [1.0, float("nan")], "b must be finite and > 0, got nan"),
        ([1.0, 1.0], [1.0, 1.0, 1.0], "same number of categories, got 2 and 3"),
        (1.0, [1.0, 1.0], "at least 2 categories"),
        ([1.0, 1.0], [1.0], "at least 2 categories"),
    ],
)
def test_invalid_parameters_raise(a, b, message):
    assert_refused(lambda: hellinger(a, b), message)


@pytest.mark.parametrize("prior", [(1.0, 1.0), (0.1, 0.7, 2.3), (1e9, 1e-3, 5.0)])
def test_distances_of_releases_equal_hellinger(prior):
    rng, alpha = np.random.default_rng(1), np.array(prior)
    counts, released = (rng.multinomial(300, rng.dirichlet(np.ones(alpha.size)), size) for size in (1, 500))
    assert np.array_equal(release_distances(alpha, counts[0], released), hellinger(alpha + counts, alpha + released))
