"""Tests of the divergence of Dirichlet distributions against 60-digit arithmetic and quadrature of densities."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mechanisms.draws.dirichlet_divergence import cell_renyi, dirichlet_renyi, mixture_kl
from tests.mechanisms.marks import exhaustive
from tests.mechanisms.refusals import assert_refused


def exact_term(start, move, order):
    """Return the term of one category in the Rényi divergence, by the formula with log-gamma functions."""
    x, move, order = map(mpmath.mpf, (start, move, order))
    if x + order * move <= 0:
        return mpmath.inf
    if order == 1:
        return mpmath.loggamma(x) - mpmath.loggamma(x + move) + move * mpmath.digamma(x + move)
    return (mpmath.loggamma(x + order * move) - order * mpmath.loggamma(x + move)) / (order - 1) + mpmath.loggamma(x)


def exact(a, b, order):
    with mpmath.workdps(60):
        moves = [mpmath.mpf(float(p)) - mpmath.mpf(float(q)) for p, q in zip(a, b, strict=True)]
        terms = sum(exact_term(q, move, order) for q, move in zip(b, moves, strict=True))
        if terms == mpmath.inf:
            return math.inf
        return float(terms - exact_term(math.fsum(b), sum(moves), order))


@pytest.mark.parametrize("order", [1.0, 1 + 1e-9, 1.01, 2.0, 15.0, 100.0])
@pytest.mark.parametrize("start", [1e-9, 0.3, 6.0, 1e3, 1e8])
@pytest.mark.parametrize("share", [1e-9, -1e-9, -0.005, 0.3, -0.3, 50.0, 1e6])
def test_terms_equal_mpmath(start, share, order):
    """For small and large changes of the parameter, terms down to 1e-19 have a relative error below 1e-13."""
    with mpmath.workdps(60):
        expected = exact_term(start, share * start, order)
    assert float(cell_renyi(start, share * start, order)) == pytest.approx(float(expected), rel=1e-13)


@pytest.mark.parametrize("order", [1.0, 1.5, 4.0])
@pytest.mark.parametrize(("start", "move"), [(2.0, 0.7), (3.0, -0.6), (0.4, 5.0)])
def test_terms_equal_integrals_of_trigamma(start, move, order):
    """Terms for parameters x and x + δ equal δ²·∫ k(t)·ψ₁(x + tδ) dt.

    The kernel k(t) is t on [0, 1] and (λ − t)/(λ − 1) on [1, λ].
    """
    with mpmath.workdps(20):
        integral = mpmath.quad(lambda t: t * mpmath.polygamma(1, start + t * move), [0, 1])
        if order > 1:
            integral += mpmath.quad(
                lambda t: (order - t) / (order - 1) * mpmath.polygamma(1, start + t * move), [1, order]
            )
    assert float(cell_renyi(start, move, order)) == pytest.approx(float(move**2 * integral), rel=1e-12)


@pytest.mark.parametrize("gap", [1e-3, 1e-9, 1e-13])
def test_terms_near_critical_order(gap):
    """Terms are accurate just below the critical order, which is 7 for the parameters 7 and 6."""
    order = 7 - gap
    mixed = 7.0 - order  # exact
    found = float(cell_renyi(7.0 - 1e-16, -1.0, order))
    with mpmath.workdps(40):
        expected = (mpmath.loggamma(mixed) - order * mpmath.loggamma(6)) / (order - 1) + mpmath.loggamma(7)
    assert found == pytest.approx(float(expected), rel=1e-12)
    assert cell_renyi(7.0, -1.0, 7.0) == math.inf


@pytest.mark.parametrize("order", [1.0, 1.5, 2.0, 15.0])
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((44.0, 74.0), (6.0, 12.0)),
        ((44.0, 74.0), (44.1, 74.1)),
        ((6.0, 12.0), (6.0 + 1e-7, 12.0 - 1e-7)),
        ((0.5, 2.0, 3.0), (0.4, 2.1, 3.0)),
        ((0.05, 4.0, 1.0, 2.0), (1.0, 4.0, 1.0, 1.05)),
        ((1e6, 2e6), (1e6 + 1, 2e6 - 1)),
    ],
)
def test_divergence_equals_mpmath(a, b, order):
    assert float(dirichlet_renyi(a, b, order)) == pytest.approx(exact(a, b, order), rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("a", "b"), [((2.0, 5.0), (3.0, 4.0)), *exhaustive(((0.7, 1.5), (0.6, 0.6))), ((44.0, 74.0), (6.0, 12.0))]
)
@pytest.mark.parametrize("order", [1.0, 2.0, *exhaustive(1.2, 2.5)])
def test_beta_divergence_equals_quadrature(a, b, order):
    """The divergence equals its defining integral over log odds; a parameter that is 5 % wrong is detected."""

    def density(c, phi):
        return mpmath.exp(c[0] * phi - (c[0] + c[1]) * mpmath.log1p(mpmath.exp(phi))) / mpmath.beta(*c)

    def integrand(phi):
        p, q = density(a, phi), density(b, phi)
        return p * mpmath.log(p / q) if order == 1 else p**order * q ** (1 - order)

    with mpmath.workdps(20):
        total = mpmath.quad(integrand, [-120, -30, -8, -3, 0, 3, 8, 30, 120])
        expected = float(total if order == 1 else mpmath.log(total) / (order - 1))
    assert float(dirichlet_renyi(a, b, order)) == pytest.approx(expected, rel=1e-9)
    assert float(dirichlet_renyi((1.05 * a[0], a[1]), b, order)) != pytest.approx(expected, rel=1e-3)


@settings(deadline=None)
@given(st.floats(0.01, 100), st.floats(0.001, 5), st.sampled_from([1.0, 1.3, 2.0, 6.0]), st.floats(0.01, 3))
def test_terms_are_decreasing_and_convex(start, move, order, gap):
    x = start + gap * np.arange(3)
    up = cell_renyi(x, move, order)
    down = cell_renyi(x + move, -move, order)
    for values in (up, down):
        finite = values[np.isfinite(values)]
        assert np.all(np.isfinite(values[values.size - finite.size :]))  # only the smallest x may be infinite
        assert np.all(finite > 0)
        assert np.all(np.diff(finite) < 0)
        assert np.all(np.diff(finite, 2) > 0)


@settings(deadline=None)
@given(st.lists(st.floats(0.1, 50), min_size=3, max_size=3), st.lists(st.floats(0.1, 50), min_size=3, max_size=3))
def test_divergences_increase_with_order_and_vanish_for_equal_distributions(a, b):
    orders = np.array([1.0, 1.1, 1.5, 2.0, 5.0])
    values = dirichlet_renyi(a, b, orders)
    finite = values[np.isfinite(values)]
    assert np.all(values >= 0)
    assert np.all(np.isinf(values[finite.size :]))
    assert np.all(np.diff(finite) >= -1e-9 * finite.max())
    np.testing.assert_array_equal(dirichlet_renyi(a, a, orders), 0.0)
    np.testing.assert_allclose(dirichlet_renyi(a[::-1], b[::-1], orders), values, rtol=1e-12, atol=1e-14)


def test_shapes_broadcast():
    a = np.array([[[1.0, 2.0]], [[3.0, 4.0]]])
    values = dirichlet_renyi(a, [[1.5, 1.5], [2.0, 2.0], [1.0, 5.0]], 2.0)
    assert values.shape == (2, 3)
    assert values[1, 2] == dirichlet_renyi([3.0, 4.0], [1.0, 5.0], 2.0)
    assert dirichlet_renyi([1.0, 2.0], [2.0, 2.0], [[1.0], [1.1]]).shape == (2, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0, 0.0], [1.0, 1.0], 2), "a must be finite and > 0, got 0.0"),
        (([1.0, 1.0], [1.0, math.inf], 2), "b must be finite and > 0, got inf"),
        (([1.0], [1.0], 2), "a must have at least 2 categories"),
        (([1.0, 1.0], [1.0, 1.0, 1.0], 2), "the same number of categories, got 2 and 3"),
        (([1.0, 1.0], [1.0, 2.0], 0.5), "order must be finite and >= 1, got 0.5"),
        (([1.0, 1.0], [1.0, 2.0], [2, math.nan]), "order must be finite and >= 1, got nan"),
        (([1.0, 1.0], [1.0, 2.0], math.inf), "order must be finite and >= 1, got inf"),
    ],
)
def test_invalid_arguments_raise(arguments, message):
    assert_refused(lambda: dirichlet_renyi(*arguments), message)


def test_mixture_of_two_beta_distributions_equals_the_arcsine_distribution():
    """The mixture of Beta(½, 3/2) and Beta(3/2, ½) is Beta(½, ½), from which the uniform distribution has ln π − 1."""
    components = np.array([0.5, 1.5]), np.array([1.5, 0.5])
    found = mixture_kl((1.0, 1.0), components, np.array([-0.5, 0.5]), np.array([0.5, 0.5]))
    assert found == pytest.approx(math.log(math.pi) - 1, abs=1e-10)
