"""Tests of links against mpmath: log-likelihoods, slopes and curvatures, including extreme predictors."""

import mpmath
import numpy as np
import pytest

from mechanisms.glm.links import LINKS

PREDICTORS = np.array([-38.0, -20.0, -9.3, -9.2, -5.0, -1.0, -0.1, 0.0, 0.3, 1.0, 3.0, 6.0, 20.0, 38.0])
CLOGLOG_PREDICTORS = PREDICTORS[PREDICTORS < 6.5]
EXACT = {
    "logistic": lambda eta, label: -mpmath.log1p(mpmath.exp(-eta if label else eta)),
    "probit": lambda eta, label: mpmath.log(mpmath.ncdf(eta if label else -eta)),
    "cloglog": lambda eta, label: mpmath.log(-mpmath.expm1(-mpmath.exp(eta))) if label else -mpmath.exp(eta),
}


def exact(name, label, derivative, predictors):
    with mpmath.workdps(60):

        def function(eta):
            return EXACT[name](eta, label)

        return np.array([float(mpmath.diff(function, mpmath.mpf(eta), derivative)) for eta in predictors])


def cases(name):
    return CLOGLOG_PREDICTORS if name == "cloglog" else PREDICTORS


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("name", LINKS)
def test_functions_and_derivatives_equal_mpmath(name, label):
    link, eta = LINKS[name], cases(name)
    labels = np.full(eta.size, float(label))
    np.testing.assert_allclose(link.log_likelihood(eta, labels), exact(name, label, 0, eta), rtol=1e-12, atol=1e-16)
    np.testing.assert_allclose(link.slope(eta, labels), exact(name, label, 1, eta), rtol=1e-10, atol=1e-16)
    # below exp(η) = 1e-4 the curvature of cloglog is the first term of a series
    relative = 5e-5 if name == "cloglog" else 1e-9
    np.testing.assert_allclose(link.curvature(eta, labels), -exact(name, label, 2, eta), rtol=relative, atol=1e-16)


@pytest.mark.parametrize("label", [0, 1])
def test_probit_derivatives_at_large_predictors_equal_mpmath(label):
    """Slope φ(t)/Φ(t) and curvature of the probit link where their formulas cancel or overflow."""
    distances = np.array([1.0001e3, 1e4, 1e6, 1e9, 1e100, 1e154, 1e155, 1e200, 1e300])
    misclassified = -distances if label else distances
    labels, link = np.full(distances.size, float(label)), LINKS["probit"]

    def hazard(t, terms=8):  # the reciprocal of Mills' ratio Σ (−1)ᵐ (2m − 1)!! / t^(2m + 1); the omitted terms are
        return t / sum((-1) ** m * mpmath.fac2(2 * m - 1) / t ** (2 * m) for m in range(terms))  # below 1e-40

    with mpmath.workdps(700):
        exact = [hazard(mpmath.mpf(t)) for t in distances]
        slopes = [float(value if label else -value) for value in exact]
        curvatures = [float(value * (value - mpmath.mpf(t))) for value, t in zip(exact, distances, strict=True)]
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        np.testing.assert_allclose(link.slope(misclassified, labels), slopes, rtol=1e-14)
        np.testing.assert_allclose(link.curvature(misclassified, labels), curvatures, rtol=1e-14)
        assert not link.slope(-misclassified, labels).any()
        assert not link.curvature(-misclassified, labels).any()


@pytest.mark.parametrize("name", LINKS)
def test_derivatives_equal_finite_differences(name):
    """Slopes and curvatures equal finite differences; slopes that are 5 % wrong do not (negative control)."""
    link, eta, step = LINKS[name], np.linspace(-4, 2, 25), 1e-4
    for label in (0.0, 1.0):
        labels = np.full(eta.size, label)
        value, slope = (
            (function(eta + step, labels) - function(eta - step, labels)) / (2 * step)
            for function in (link.log_likelihood, link.slope)
        )
        np.testing.assert_allclose(link.slope(eta, labels), value, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(link.curvature(eta, labels), -slope, rtol=1e-6, atol=1e-7)
        assert np.any(np.abs(1.05 * link.slope(eta, labels) - value) > 0.01)


@pytest.mark.parametrize("name", LINKS)
def test_label_probabilities_sum_to_one(name):
    eta = np.linspace(-6, 3, 40)
    one, zero = (np.exp(LINKS[name].log_likelihood(eta, np.full(40, label))) for label in (1.0, 0.0))
    np.testing.assert_allclose(one + zero, 1.0, rtol=1e-14)


@pytest.mark.parametrize("name", LINKS)
def test_log_likelihoods_are_concave(name):
    eta = np.linspace(-50, 50, 2001)
    for label in (0.0, 1.0):
        assert np.all(LINKS[name].curvature(eta, np.full(eta.size, label)) >= 0)


def test_only_logistic_link_is_canonical():
    """Only the logistic link has the slope y − E[y]; the logistic and the probit link are symmetric."""
    eta = np.linspace(-8, 5, 60)
    for name, link in LINKS.items():
        mean = np.exp(link.log_likelihood(eta, np.ones(60)))
        same = [np.allclose(link.slope(eta, np.full(60, y)), y - mean, atol=1e-12) for y in (0.0, 1.0)]
        assert all(same) == any(same) == link.canonical == (name == "logistic")
        largest = max(np.abs(link.slope(eta, np.full(60, y))).max() for y in (0.0, 1.0))
        assert (largest <= 1) == link.canonical
        mirrored = np.array_equal(link.log_likelihood(eta, np.ones(60)), link.log_likelihood(-eta, np.zeros(60)))
        assert mirrored == (name != "cloglog")
        assert LINKS[link.name] is link
    assert sorted(link.code for link in LINKS.values()) == [0, 1, 2]


def test_extreme_predictors_give_valid_values():
    """At the predictors ±800, values are finite, or −inf where exp(800) overflows; no warning is raised."""
    eta, ones, zeros = np.array([-800.0, 800.0]), np.ones(2), np.zeros(2)
    for link in LINKS.values():
        for labels in (ones, zeros):
            for function in (link.slope, link.curvature):
                assert np.isfinite(function(eta, labels)).all()
            overflows = (link.name == "cloglog") & (labels == 0) & (eta > 0)  # −exp(800)
            assert np.array_equal(np.isneginf(link.log_likelihood(eta, labels)), overflows)
    np.testing.assert_array_equal(LINKS["logistic"].log_likelihood(eta, ones), [-800, 0])
    np.testing.assert_array_equal(LINKS["logistic"].slope(eta, ones), [1, 0])
    tail = float(mpmath.log(mpmath.ncdf(-800)))
    np.testing.assert_allclose(LINKS["probit"].log_likelihood(eta, zeros), [0, tail], rtol=1e-14)
    np.testing.assert_allclose(LINKS["probit"].slope(eta, ones), [800 + 1 / 800, 0], rtol=1e-8)
    np.testing.assert_allclose(LINKS["probit"].curvature(eta, ones), [1, 0], rtol=1e-3)
    np.testing.assert_array_equal(LINKS["cloglog"].log_likelihood(eta, ones), [-800, 0])
    np.testing.assert_array_equal(LINKS["cloglog"].slope(eta, ones), [1, 0])
    assert LINKS["cloglog"].log_likelihood(eta, zeros)[1] < -1e300  # the predictor is capped to avoid overflow
    assert LINKS["cloglog"].log_likelihood(eta, zeros)[0] == 0
