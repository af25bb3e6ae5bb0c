"""Tests of the parameters and guarantees of GLM posterior sampling against the formulas of the papers."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mechanisms.core.conversions import gaussian_mu, pure_renyi
from mechanisms.core.privacy import Guarantee, RenyiGuarantee
from mechanisms.draws.glm_mechanisms import GLM_MECHANISMS, LINKS, glm_mechanism, validate_design
from tests.mechanisms.refusals import assert_refused

PURE = ("ops", "ops-tight")
RENYI = [name for name in GLM_MECHANISMS if name not in (*PURE, "glm-gdp", "true-posterior")]
PRIVATE = [*PURE, *RENYI]
positive = st.floats(1e-4, 1e3)
problems = st.tuples(st.integers(1, 100_000), positive, st.floats(1, 500), positive, st.floats(0.1, 10))


@pytest.mark.parametrize("c", [1.0, 0.5])
@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 3.0, 1e6])
@pytest.mark.parametrize(("n", "beta", "order"), [(2784, 0.001, 1), (100, 0.1, 10), (5, 2.0, 100)])
def test_parameters_equal_formulas(n, beta, order, epsilon, c):
    """Precisions and powers equal the formulas of P3 (Algorithms 4 and 5) and of one posterior sample (OPS)."""
    made = {name: glm_mechanism(name, n, beta, order, epsilon, c, delta=1e-6) for name in GLM_MECHANISMS}
    assert {name: one.name for name, one in made.items()} == {name: name for name in made}
    concentrated = made["glm-concentrated"]
    assert concentrated.precision == pytest.approx(n * max(2 * c**2 * order / (n * epsilon), beta), rel=1e-14)
    assert all(one.precision == n * beta for name, one in made.items() if name != "glm-concentrated")
    powers = {
        "glm-concentrated": 1.0,
        "glm-diffused": math.sqrt(epsilon * n * beta / (2 * c**2 * order)),
        "glm-gdp": gaussian_mu(epsilon, 1e-6) * math.sqrt(n * beta) / (2 * c),
        "ops": epsilon * beta / (4 * c**2),
        "ops-tight": epsilon * beta / (2 * c**2),
        "true-posterior": 1.0,
    }
    for name, power in powers.items():
        assert made[name].power == pytest.approx(min(1.0, power), rel=1e-14)
    # the pure ε′ of ops-renyi has a Rényi curve of ε at the order
    pure = 2 * c**2 * made["ops-renyi"].power / beta
    assert made["ops-renyi"].power == 1.0 or pure_renyi(pure, order) == pytest.approx(epsilon, rel=1e-9)
    for name, one in made.items():
        assert one.radius == pytest.approx(c / beta if name.startswith("ops") else math.inf)
        assert (one.norm_bound, one.link.name) == (c, "logistic")


def test_published_setting():
    """For the 2,784 training records of Abalone, β = 1e-3 and λ = 1, powers and precisions have known values."""
    diffused = glm_mechanism("glm-diffused", 2784, 0.001, 1, math.exp(-5))
    assert diffused.power == pytest.approx(0.0968464, rel=1e-6)
    assert glm_mechanism("glm-diffused", 2784, 0.001, 1, math.e).power == 1.0
    ops = glm_mechanism("ops", 2784, 0.001, 1, math.exp(3))
    assert (ops.power, ops.radius) == (pytest.approx(0.00502138, rel=1e-6), 1000.0)


def test_guarantees():
    for name in (*PRIVATE, "true-posterior"):
        made = glm_mechanism(name, 50, 0.1, 3, 0.7)
        expected = Guarantee(0.7) if name in PURE else None if name == "true-posterior" else RenyiGuarantee(3, 0.7)
        assert made.guarantee == expected
    for link in LINKS:
        for name in ("glm-concentrated", "glm-diffused", "true-posterior"):
            made, logistic = (glm_mechanism(name, 50, 0.1, 3, 0.7, link=one) for one in (link, "logistic"))
            assert made.link is LINKS[link]
            assert (made.power, made.precision) == (logistic.power, logistic.precision)
            guaranteed = link == "logistic" and name != "true-posterior"
            assert (made.guarantee is not None) == guaranteed
            assert math.isinf(made.renyi_epsilon(3)) == (link != "logistic")


@given(problems)
@settings(max_examples=200, deadline=None)
def test_renyi_epsilon_is_within_target(problem):
    n, beta, order, epsilon, c = problem
    for name in PRIVATE:
        made = glm_mechanism(name, n, beta, order, epsilon, c)
        assert 0 < made.power <= 1
        spent = made.renyi_epsilon(order)
        assert spent <= epsilon * (1 + 1e-12)
        if made.power < 1 and name in ("glm-diffused", "ops-tight"):
            exact = pure_renyi(epsilon, order) if name == "ops-tight" else epsilon
            linear = 2 * (c * made.power) ** 2 * order / made.precision
            assert spent == pytest.approx(min(exact, linear), rel=1e-9)
        if name in PURE:  # the pure guarantee holds at every order
            assert made.renyi_epsilon(1e5) <= epsilon * (1 + 1e-12)


@given(problems, st.floats(1.01, 20))
@settings(max_examples=100, deadline=None)
def test_parameters_are_monotone_in_epsilon_and_order(problem, factor):
    """With a larger ε or a smaller order, the power does not decrease, and the precision does not increase."""
    n, beta, order, epsilon, c = problem
    for name in PRIVATE:
        less, more = (glm_mechanism(name, n, beta, order, e, c) for e in (epsilon, factor * epsilon))
        assert less.power <= more.power
        assert less.precision >= more.precision
        steeper = glm_mechanism(name, n, beta, order * factor, epsilon, c)
        assert steeper.power <= less.power * (1 + 1e-12)
        assert steeper.precision >= less.precision


@given(problems, st.floats(1, 1e3), st.floats(1, 1e3))
@settings(max_examples=100, deadline=None)
def test_curves_increase_with_order(problem, first, second):
    """Rényi curves increase with the order: linearly, or up to the pure loss for weights in a ball."""
    n, beta, order, epsilon, c = problem
    low, high = sorted((first, second))
    for name in PRIVATE:
        made = glm_mechanism(name, n, beta, order, epsilon, c)
        below, above = made.renyi_epsilon(low), made.renyi_epsilon(high)
        assert below <= above * (1 + 1e-12)
        if math.isinf(made.radius):
            assert above == pytest.approx(below * high / low, rel=1e-9)
        else:
            assert above <= 2 * c * made.radius * made.power * (1 + 1e-12)


def test_renyi_epsilon_on_a_ball_is_smaller_of_two_bounds():
    """For weights in a ball, the Rényi ε is the smaller of the linear bound and the bound from the pure loss."""
    many, few = (glm_mechanism("ops-tight", n, 0.5, 2, 0.3) for n in (1000, 1))
    assert many.renyi_epsilon(2) == pytest.approx(2 * many.power**2 * 2 / many.precision)
    assert few.renyi_epsilon(2) == pytest.approx(2 * few.power**2 * 2 / few.precision)
    strong = glm_mechanism("ops-tight", 1, 50.0, 2, 0.3)
    assert strong.renyi_epsilon(2) == pytest.approx(pure_renyi(2 * strong.power / 50.0, 2))


@pytest.mark.parametrize(
    ("name", "link", "message"),
    [
        ("glm-diffused", "logit", "link must be one of logistic, probit, cloglog, got 'logit'"),
        ("ops", "probit", "ops must have the logistic link, got probit"),
        ("ops-renyi", "cloglog", "ops-renyi must have the logistic link, got cloglog"),
    ],
)
def test_invalid_links_raise(name, link, message):
    assert_refused(lambda: glm_mechanism(name, 10, 0.1, 2.0, 1.0, link=link), message)


def test_records_are_returned_as_arrays():
    X, y = validate_design([[1, 0], [0, -1]], [True, False])
    assert X.dtype == y.dtype == np.float64
    assert X.flags.c_contiguous
    validate_design(np.full((1, 100), 0.1), [1])  # norm 1 up to rounding
    assert validate_design([[2.0]], [0], norm_bound=2.0)[0].item() == 2.0


@pytest.mark.parametrize(
    ("design", "labels", "message"),
    [
        ([1.0, 0.5], [1, 0], r"records must have shapes \(n, d\) and \(n,\), got \(2,\) and \(2,\)"),
        ([[1.0], [0.5]], [1], r"records must have shapes .* got \(2, 1\) and \(1,\)"),
        (np.empty((0, 3)), [], r"records must have shapes .* got \(0, 3\) and \(0,\)"),
        ([[0.5], [np.nan]], [1, 0], "records must be finite, got a non-finite value in row 1"),
        ([[0.5], [-np.inf]], [1, 0], "records must be finite, got a non-finite value in row 1"),
        ([[0.5], [0.5], [0.5]], [1, 0, -1], "labels must be 0 or 1, got an invalid value in row 2"),
        ([[0.5]], [np.nan], "labels must be 0 or 1, got an invalid value in row 0"),
        ([[0.5, 0.5], [0.8, 0.7]], [1, 0], "rows must have norm <= 1, got a larger one in row 1"),
    ],
)
def test_invalid_records_raise(design, labels, message):
    assert_refused(lambda: validate_design(design, labels), message)


# Links

PREDICTORS = np.array([-38.0, -20.0, -9.3, -9.2, -5.0, -1.0, -0.1, 0.0, 0.3, 1.0, 3.0, 6.0, 20.0, 38.0])
CLOGLOG_PREDICTORS = PREDICTORS[PREDICTORS < 6.5]
EXACT = {
    "logistic": lambda eta, label: -mpmath.log1p(mpmath.exp(-eta if label else eta)),
    "probit": lambda eta, label: mpmath.log(mpmath.ncdf(eta if label else -eta)),
    "cloglog": lambda eta, label: mpmath.log(-mpmath.expm1(-mpmath.exp(eta))) if label else -mpmath.exp(eta),
}


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("name", LINKS)
def test_log_likelihoods_equal_mpmath(name, label):
    eta = CLOGLOG_PREDICTORS if name == "cloglog" else PREDICTORS
    with mpmath.workdps(60):
        exact = [float(EXACT[name](mpmath.mpf(value), label)) for value in eta]
    found = LINKS[name].log_likelihood(eta, np.full(eta.size, float(label)))
    np.testing.assert_allclose(found, exact, rtol=1e-12, atol=1e-16)


@pytest.mark.parametrize("name", LINKS)
def test_label_probabilities_sum_to_one(name):
    eta = np.linspace(-6, 3, 40)
    one, zero = (np.exp(LINKS[name].log_likelihood(eta, np.full(40, label))) for label in (1.0, 0.0))
    np.testing.assert_allclose(one + zero, 1.0, rtol=1e-14)


@pytest.mark.parametrize("name", LINKS)
def test_log_likelihoods_are_concave(name):
    eta = np.linspace(-50, 50, 2001)
    for label in (0.0, 1.0):
        changes = np.diff(LINKS[name].log_likelihood(eta, np.full(eta.size, label)))
        assert np.all(np.diff(changes) <= 1e-13)


def test_only_logistic_link_is_canonical():
    """Only the logistic link has the slope y − E[y]; the logistic and the probit link are symmetric."""
    eta, step = np.linspace(-8, 5, 60), 1e-5
    for name, link in LINKS.items():
        mean = np.exp(link.log_likelihood(eta, np.ones(60)))
        high, low = ([link.log_likelihood(eta + move, np.full(60, y)) for y in (0.0, 1.0)] for move in (step, -step))
        slopes = (np.array(high) - np.array(low)) / (2 * step)
        same = [np.allclose(slope, y - mean, atol=1e-8) for slope, y in zip(slopes, (0.0, 1.0), strict=True)]
        assert all(same) == any(same) == link.canonical == (name == "logistic")
        assert (np.abs(slopes).max() <= 1) == link.canonical
        mirrored = np.array_equal(link.log_likelihood(eta, np.ones(60)), link.log_likelihood(-eta, np.zeros(60)))
        assert mirrored == (name != "cloglog")
        assert LINKS[link.name] is link


def test_extreme_predictors_give_valid_values():
    """At the predictors ±800, values are finite, or −inf where exp(800) overflows; no warning is raised."""
    eta, ones, zeros = np.array([-800.0, 800.0]), np.ones(2), np.zeros(2)
    for link in LINKS.values():
        for labels in (ones, zeros):
            overflows = (link.name == "cloglog") & (labels == 0) & (eta > 0)  # −exp(800)
            assert np.array_equal(np.isneginf(link.log_likelihood(eta, labels)), overflows)
    np.testing.assert_array_equal(LINKS["logistic"].log_likelihood(eta, ones), [-800, 0])
    tail = float(mpmath.log(mpmath.ncdf(-800)))
    np.testing.assert_allclose(LINKS["probit"].log_likelihood(eta, zeros), [0, tail], rtol=1e-14)
    np.testing.assert_array_equal(LINKS["cloglog"].log_likelihood(eta, ones), [-800, 0])
    assert LINKS["cloglog"].log_likelihood(eta, zeros)[0] == 0
