"""Tests of conversions against dp_accounting, mpmath and exact privacy curves."""

import math
from functools import cache

import mpmath
import numpy as np
import pytest
from dp_accounting import ZCDpEvent
from dp_accounting.rdp import RdpAccountant
from dp_accounting.rdp.rdp_privacy_accountant import compute_epsilon
from hypothesis import given, settings
from hypothesis import strategies as st

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
    pure_epsilon_for,
    pure_renyi,
)
from mechanisms.core.exact_losses import OutputDistributions, audit_distributions
from mechanisms.draws.tempered import renyi_sampler
from tests.mechanisms.divergences import gaussian_delta
from tests.mechanisms.refusals import assert_refused

ORDERS = np.concatenate([[1.0], np.arange(1.05, 20, 0.05), np.arange(20.0, 500.0)])


def direct_curve():
    direct = renyi_sampler("direct", (6, 12), 100, 1.0)
    return np.array([direct.renyi_epsilon(order) for order in ORDERS])


CURVES = {
    "gaussian": lambda: ORDERS / 200,
    "weak gaussian": lambda: ORDERS * 2,
    "pure": lambda: np.array([pure_renyi(0.3, order) for order in ORDERS]),
    "posterior": direct_curve,
    "none": lambda: np.full(ORDERS.size, np.inf),
    "tiny": lambda: ORDERS * 1e-6,  # dp_accounting is inaccurate for smaller values
}
"""Name -> function that computes the curve; nothing is computed when tests are collected."""


@cache
def curve_of(name):
    return CURVES[name]()


@pytest.mark.parametrize("name", CURVES)
@pytest.mark.parametrize("delta", [1e-12, 1e-8, 1e-5, 0.01, 0.3, 0.9])
def test_epsilon_equals_that_of_dp_accounting(name, delta):
    found = approximate_epsilon(ORDERS, curve_of(name), delta)
    assert found == pytest.approx(compute_epsilon(ORDERS, curve_of(name), delta)[0], rel=1e-13)


@pytest.mark.parametrize("scale", [0.5, 1.0, 5.0])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_epsilon_bounds_exact_epsilon_of_normal_distributions(scale, epsilon):
    """For N(0, s²) against N(1, s²), the converted δ at the exact ε is above the exact δ by a factor below 30."""
    exact = gaussian_delta(1.0 / scale, epsilon)
    curve = ORDERS / (2 * scale**2)
    assert (
        approximate_epsilon(ORDERS, curve, min(30 * exact, 0.99)) < epsilon < approximate_epsilon(ORDERS, curve, exact)
    )


@pytest.mark.parametrize("order", [1.5, 2.0, 7.0])
def test_bound_is_attained_at_its_order(order):
    """For a distribution with the losses ε − ln(1 − 1/λ) and −∞ only, the δ converted at the order λ is exact."""
    epsilon = 0.4
    loss = epsilon - math.log1p(-1 / order)
    mass = 0.6  # mass of P at this loss; the moment of the rest is negligible
    curve = (math.log(mass) + (order - 1) * loss) / (order - 1)
    delta = mass * -math.expm1(epsilon - loss)
    log_bound = (order - 1) * (curve - epsilon + math.log1p(-1 / order)) - math.log(order)
    assert math.exp(log_bound) == pytest.approx(delta, rel=1e-14)
    assert approximate_epsilon([order], [curve], delta) == pytest.approx(epsilon, rel=1e-12)


def test_curves_with_one_order():
    assert approximate_epsilon([1.0], [0.1], 1e-6) == math.inf
    assert approximate_epsilon([1.0], [0.1], 0.5) == 0.0  # total variation is below √(1 − e^(−0.1)) = 0.31


def exact_pure(epsilon, order):
    with mpmath.workdps(60):
        epsilon, order = mpmath.mpf(epsilon), mpmath.mpf(order)
        p = 1 / (1 + mpmath.exp(-epsilon))
        q = 1 / (1 + mpmath.exp(epsilon))
        if order == 1:
            return float((p - q) * epsilon)
        return float(mpmath.log(p**order * q ** (1 - order) + q**order * p ** (1 - order)) / (order - 1))


@pytest.mark.parametrize("epsilon", [1e-9, 1e-3, 0.3, 2.0, 30.0, 500.0])
@pytest.mark.parametrize("order", [1.0, 1 + 1e-9, 1.3, 2.0, 15.0, 1e4])
def test_pure_curve_equals_mpmath(epsilon, order):
    assert pure_renyi(epsilon, order) == pytest.approx(exact_pure(epsilon, order), rel=1e-14)
    assert pure_renyi(epsilon, order) <= min(epsilon, order * epsilon**2 / 2) * (1 + 1e-15)
    assert pure_renyi(epsilon, math.inf) == epsilon


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0.01, 5.0), st.floats(1.0, 50.0))
def test_pure_curve_bounds_random_distributions(seed, epsilon, order):
    """Distributions with ratios in [e^−ε, e^ε] have at most the divergence of randomised response."""
    rng = np.random.default_rng(seed)
    base = rng.dirichlet(np.ones(6))
    distribution = base * np.exp(rng.uniform(-epsilon / 2, epsilon / 2, size=6))
    table = [base, distribution / distribution.sum()]
    found = audit_distributions(OutputDistributions.from_table(table, [[0, 1]]), orders=[order])
    assert found.renyi[order] <= pure_renyi(max(found.epsilon, 1e-12), order) + 1e-12


@pytest.mark.parametrize("target", [1e-12, math.exp(-5), 0.5, math.exp(3)])
@pytest.mark.parametrize("order", [1.0, 2.0, 10.0, 100.0])
def test_pure_epsilon_is_largest_within_target(target, order):
    epsilon = pure_epsilon_for(order, target)
    assert pure_renyi(epsilon, order) <= target
    assert pure_renyi(epsilon * (1 + 1e-14), order) > target
    assert epsilon >= max(target, math.sqrt(2 * target / order)) * (1 - 1e-15)
    assert pure_epsilon_for(math.inf, target) == target


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pure_renyi(1.0, 0.5), "order must be a finite number >= 1, got 0.5"),
        (lambda: pure_epsilon_for(0.99, 1.0), "order must be a finite number >= 1, got 0.99"),
        (
            lambda: approximate_epsilon([2, 3], [0.1], 1e-6),
            r"must have one shape \(m,\), m >= 1, got \(2,\) and \(1,\)",
        ),
        (lambda: approximate_epsilon([], [], 1e-6), r"m >= 1, got \(0,\)"),
        (lambda: approximate_epsilon([0.5], [0.1], 1e-6), r"orders must be finite and >= 1, got \[0.5\]"),
        (lambda: approximate_epsilon([2], [-0.1], 1e-6), r"renyi_epsilons must be >= 0, got \[-0.1\]"),
        (lambda: approximate_epsilon([2], [math.nan], 1e-6), "renyi_epsilons must be >= 0"),
    ],
)
def test_invalid_arguments_raise(call, message):
    assert_refused(call, message)


# Zero-concentrated guarantees

FINE_ORDERS = np.concatenate([1 + np.geomspace(1e-4, 9, 20_000), np.arange(10, 2000, 0.25)])


@pytest.mark.parametrize("rho", [1e-4, 0.1, 3.0])
def test_corollary_13_equals_its_minimum_over_orders(rho):
    """The δ of Corollary 13 equals the minimum over orders in 40-digit arithmetic, and is at most that over a grid."""
    for epsilon in (0.01 * math.sqrt(rho), rho, rho + 4 * math.sqrt(rho)):
        found = float(concentrated_delta(rho, epsilon))
        logs = (
            (FINE_ORDERS - 1) * (FINE_ORDERS * rho - epsilon)
            - np.log(FINE_ORDERS - 1)
            + FINE_ORDERS * np.log1p(-1 / FINE_ORDERS)
        )
        assert found <= math.exp(logs.min()) * (1 + 1e-12)
        with mpmath.workdps(40):
            r, e = mpmath.mpf(rho), mpmath.mpf(epsilon)
            start = FINE_ORDERS[logs.argmin()]
            best = mpmath.findroot(lambda a: (2 * a - 1) * r - e + mpmath.log(1 - 1 / a), start)  # noqa: B023
            exact = mpmath.exp((best - 1) * (best * r - e)) / (best - 1) * (1 - 1 / best) ** best
        assert found == pytest.approx(float(min(exact, 1)), rel=1e-11)


@pytest.mark.parametrize("rho", [0.01, 0.1, 1.0])
def test_conversion_equals_dp_accounting_and_renyi_conversions(rho):
    curve = rho * FINE_ORDERS
    epsilon = concentrated_epsilon(rho, 1e-6)
    assert epsilon == pytest.approx(approximate_epsilon(FINE_ORDERS, curve, 1e-6), rel=1e-4)
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
    bounds = np.array([profile.delta(epsilon) for epsilon in epsilons])
    assert np.all(gaussian_delta(math.sqrt(2 * rho), epsilons) <= bounds)
    assert np.all(bounds <= np.minimum(concentrated_delta(rho, epsilons) * (1 + 1e-4), 1.0))
    assert not np.all(gaussian_delta(2 * math.sqrt(2 * rho), epsilons) <= bounds)


@pytest.mark.slow
def test_profile_is_convex_on_both_sides_of_zero():
    """For ε < 0 and ε > 0 the profile is convex, as dp-accounting requires, and its loss distribution sums to 1."""
    values = concentrated_profile(ConcentratedGuarantee(0.5)).mirrored()
    grid = np.exp((np.arange(values.size) - values.size // 2) * 1e-4)
    share = (grid[1:-1] - grid[:-2]) / (grid[2:] - grid[:-2])
    assert np.all((1 - share) * values[:-2] + share * values[2:] - values[1:-1] >= -1e-15)
    mass = privacy_loss_distribution(ConcentratedGuarantee(0.5)).get_delta_for_epsilon(-60.0)
    assert mass == pytest.approx(1.0, abs=1e-7)


def test_concentrated_guarantee_has_a_divergence_at_each_order():
    guarantee = ConcentratedGuarantee(0.5, Neighbouring.ADD_OR_REMOVE_ONE)
    assert guarantee.at_order(4) == RenyiGuarantee(4, 2.0, Neighbouring.ADD_OR_REMOVE_ONE)


def test_gaussian_counts_have_a_concentrated_guarantee():
    """The concentrated guarantee of `gaussian-tight` implies its Rényi guarantee at every order."""
    mechanism = gaussian_mechanism("gaussian-tight", [1, 1], n=10, order=4, epsilon=0.5)
    for order in (1.5, 4.0, 30.0):
        stated = mechanism.concentrated_guarantee.at_order(order)
        assert stated.epsilon == pytest.approx(mechanism.renyi_epsilon(order), rel=1e-12)
