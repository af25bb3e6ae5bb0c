"""Tests of conversions of zero-concentrated guarantees against mpmath, dp-accounting and the Gaussian mechanism."""

import math

import mpmath
import numpy as np
import pytest
from dp_accounting import ZCDpEvent
from dp_accounting.rdp import RdpAccountant
from scipy.special import log_ndtr, ndtr

from mechanisms import (
    ConcentratedGuarantee,
    Neighbouring,
    RenyiGuarantee,
    gaussian_mechanism,
    privacy_loss_distribution,
)
from mechanisms.core.conversions import (
    approximate_epsilon,
    concentrated_delta,
    concentrated_epsilon,
    concentrated_profile,
)

ORDERS = np.concatenate([1 + np.geomspace(1e-4, 9, 20_000), np.arange(10, 2000, 0.25)])


@pytest.mark.parametrize("rho", [1e-4, 0.1, 3.0])
def test_corollary_13_equals_its_minimum_over_orders(rho):
    """The δ of Corollary 13 equals the minimum over orders in 40-digit arithmetic, and is at most that over a grid."""
    for epsilon in (0.01 * math.sqrt(rho), rho, rho + 4 * math.sqrt(rho)):
        found = float(concentrated_delta(rho, epsilon))
        logs = (ORDERS - 1) * (ORDERS * rho - epsilon) - np.log(ORDERS - 1) + ORDERS * np.log1p(-1 / ORDERS)
        assert found <= math.exp(logs.min()) * (1 + 1e-12)
        with mpmath.workdps(40):
            r, e = mpmath.mpf(rho), mpmath.mpf(epsilon)
            start = ORDERS[logs.argmin()]
            best = mpmath.findroot(lambda a: (2 * a - 1) * r - e + mpmath.log(1 - 1 / a), start)  # noqa: B023
            exact = mpmath.exp((best - 1) * (best * r - e)) / (best - 1) * (1 - 1 / best) ** best
        assert found == pytest.approx(float(min(exact, 1)), rel=1e-11)


@pytest.mark.parametrize("rho", [0.01, 0.1, 1.0])
def test_conversion_equals_dp_accounting_and_renyi_conversions(rho):
    curve = rho * ORDERS
    epsilon = concentrated_epsilon(rho, 1e-6)
    assert epsilon == pytest.approx(approximate_epsilon(ORDERS, curve, 1e-6), rel=1e-4)
    assert float(concentrated_delta(rho, epsilon)) == pytest.approx(1e-6, rel=1e-9)
    library = RdpAccountant(orders=np.linspace(2.0, 60.0, 3000)).compose(ZCDpEvent(rho))
    assert epsilon == pytest.approx(library.get_epsilon(1e-6), rel=1e-3)
    assert epsilon < rho + 2 * math.sqrt(rho * math.log(1e6))


@pytest.mark.slow
@pytest.mark.parametrize("rho", [0.005, 0.3])
def test_profile_bounds_the_gaussian_mechanism_but_not_one_with_less_noise(rho):
    """The profile bounds that of normal noise with Δ²/(2σ²) = ρ (Balle & Wang 2018), but not that of half the noise."""
    profile = concentrated_profile(ConcentratedGuarantee(rho))
    epsilons = np.linspace(0.0, rho + 5 * math.sqrt(rho), 40)

    def gaussian(mu):
        return ndtr(mu / 2 - epsilons / mu) - np.exp(epsilons + log_ndtr(-mu / 2 - epsilons / mu))

    bounds = np.array([profile.delta(epsilon) for epsilon in epsilons])
    assert np.all(gaussian(math.sqrt(2 * rho)) <= bounds)
    assert np.all(bounds <= np.minimum(concentrated_delta(rho, epsilons) * (1 + 1e-4), 1.0))
    assert not np.all(gaussian(2 * math.sqrt(2 * rho)) <= bounds)


@pytest.mark.slow
def test_profile_is_convex_on_both_sides_of_zero():
    """For ε < 0 and ε > 0 the profile is convex, as dp-accounting requires, and its loss distribution sums to 1."""
    values = concentrated_profile(ConcentratedGuarantee(0.5)).mirrored()
    grid = np.exp((np.arange(values.size) - values.size // 2) * 1e-4)
    share = (grid[1:-1] - grid[:-2]) / (grid[2:] - grid[:-2])
    assert np.all((1 - share) * values[:-2] + share * values[2:] - values[1:-1] >= -1e-15)
    mass = privacy_loss_distribution(ConcentratedGuarantee(0.5)).get_delta_for_epsilon(-60.0)
    assert mass == pytest.approx(1.0, abs=1e-7)


def test_guarantee_is_a_frozen_value():
    guarantee = ConcentratedGuarantee(0.5, Neighbouring.ADD_OR_REMOVE_ONE)
    assert str(guarantee) == "0.5-zCDP under add/remove"
    assert guarantee.at_order(4) == RenyiGuarantee(4, 2.0, Neighbouring.ADD_OR_REMOVE_ONE)


@pytest.mark.parametrize("rho", [0.0, -1.0, math.nan, math.inf, "small", None])
def test_invalid_rho_raises(rho):
    for refuse in (ConcentratedGuarantee, lambda rho: concentrated_epsilon(rho, 1e-6)):
        with pytest.raises(ValueError, match="rho must be a finite number > 0, got"):
            refuse(rho)


def test_gaussian_counts_have_a_concentrated_guarantee():
    """The concentrated guarantee of `gaussian-tight` implies its Rényi guarantee at every order."""
    mechanism = gaussian_mechanism("gaussian-tight", [1, 1], n=10, order=4, epsilon=0.5)
    for order in (1.5, 4.0, 30.0):
        stated = mechanism.concentrated_guarantee.at_order(order)
        assert stated.epsilon == pytest.approx(mechanism.renyi_epsilon(order), rel=1e-12)
