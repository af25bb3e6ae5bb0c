"""Tests of the log-likelihoods of links against mpmath, including extreme predictors."""

import mpmath
import numpy as np
import pytest

from mechanisms.draws.glm_mechanisms import LINKS

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
