"""Tests of Rényi posterior sampling: divergences by enumeration of data sets, calibrated coefficients."""

import itertools
import math
from functools import partial

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import gammaln

from mechanisms.core.conjugate import enumerate_candidates
from mechanisms.core.privacy import RenyiGuarantee
from mechanisms.draws.tempered import RENYI_SAMPLERS, calibrate_renyi, renyi_sampler
from tests.mechanisms.draws.test_dirichlet_divergence import exact_term
from tests.mechanisms.marks import exhaustive
from tests.mechanisms.refusals import assert_refused

PRIORS = [(6.0, 12.0), (0.4, 0.4), (0.3, 5.0), (1.0, 2.0, 0.6), (3.0, 3.0, 3.0), (0.8, 4.0, 1.5, 0.8)]
TUNABLE = [name for name in RENYI_SAMPLERS if name != "direct"]


def plain_renyi(a, b, order):
    """Return the divergence by log-gamma functions, or inf if a parameter of Q or of the mixture is ≤ 0."""
    a, b = np.asarray(a), np.asarray(b)
    mixed = order * a + (1 - order) * b
    if mixed.min() <= 1e-12 or b.min() <= 0:
        return math.inf

    def log_beta(x):
        return gammaln(x).sum() - gammaln(x.sum())

    return (log_beta(mixed) - order * log_beta(a)) / (order - 1) + log_beta(b)


def plain_posterior(name, prior, coefficient, counts):
    """Return the posterior parameters of the three algorithms as printed in P3."""
    prior, counts = np.asarray(prior), np.asarray(counts)
    return {
        "direct": prior + counts,
        "diffused": prior + coefficient * counts,
        "concentrated": prior / coefficient + counts,
    }[name]


def brute_force(name, prior, n, coefficient, order, public=0):
    """Return the largest divergence over all counts and all ordered pairs of neighbours."""
    k, worst = len(prior), 0.0
    for counts in enumerate_candidates(n, k):
        for i, j in itertools.permutations(range(k), 2):
            if counts[i] == 0:
                continue
            neighbour = counts.copy()
            neighbour[i] -= 1
            neighbour[j] += 1
            pair = (plain_posterior(name, prior, coefficient, public + each) for each in (counts, neighbour))
            worst = max(worst, plain_renyi(*pair, order))
    return worst


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize(("name", "coefficient"), [("direct", 1.0), ("diffused", 0.37), ("concentrated", 0.37)])
@pytest.mark.parametrize("order", [1.2, 1.5, 3.0])
def test_supremum_equals_enumeration(prior, n, name, coefficient, order):
    """The supremum equals the maximum over all numbers of shared records and all pairs of categories."""
    found = renyi_sampler(name, prior, n, coefficient).renyi_epsilon(order)
    assert found == pytest.approx(brute_force(name, prior, n, coefficient, order), rel=1e-8)


@pytest.mark.parametrize("n", [3, 30])
def test_supremum_of_two_categories_depends_on_n(n):
    """At k = 2 the supremum depends on n and agrees with enumeration; for k > 2 it is over 5 % larger."""
    mechanism = renyi_sampler("direct", (2.0, 2.0), n, 1.0)
    expected = brute_force("direct", (2.0, 2.0), n, 1.0, 2.0)
    assert mechanism.renyi_epsilon(2.0) == pytest.approx(expected, rel=1e-10)
    # the shared records are in a third category
    elsewhere = renyi_sampler("direct", (2.0, 2.0, 1e9), n, 1.0).renyi_epsilon(2.0)
    assert elsewhere > 1.05 * expected


@pytest.mark.parametrize("name", ["diffused", "concentrated"])
@pytest.mark.parametrize(("prior", "public"), [((0.4, 3.0), (5, 0)), ((0.6, 2.0, 1.0), (0, 3, 7))])
@pytest.mark.parametrize("n", [1, 4])
def test_supremum_with_public_records_equals_enumeration(name, prior, public, n):
    for order in (1.3, 2.0):
        mechanism = renyi_sampler(name, prior, n, 0.6, public)
        expected = brute_force(name, prior, n, 0.6, order, np.array(public))
        assert mechanism.renyi_epsilon(order) == pytest.approx(expected, rel=1e-8)
    counts = np.eye(len(prior), dtype=int)[0] * n
    np.testing.assert_allclose(
        mechanism.posterior(counts), plain_posterior(name, prior, 0.6, counts + np.array(public)), rtol=1e-15
    )
    with_public = calibrate_renyi(name, prior, n, 2.0, 0.05, public)
    assert with_public.coefficient >= calibrate_renyi(name, prior, n, 2.0, 0.05).coefficient
    assert with_public.renyi_epsilon(2.0) <= 0.05


def published_corners(prior, n, order):
    """Return the largest divergences D(P‖Q) of P3's Corollary 2 for r = 1: over all Q, and over posteriors Q.

    P is given all records in one category, and Q is one record away from P in any direction.
    """
    units, found = np.eye(len(prior)), []
    for corner, i, j in itertools.product(range(len(prior)), repeat=3):
        if i != j:
            p = np.array(prior) + n * units[corner]
            found.append((plain_renyi(p, p - units[i] + units[j], order), i == corner))
    return max(value for value, _ in found), max(value for value, inside in found if inside)


@pytest.mark.parametrize("order", [1.1, 2.0, 4.5])
@pytest.mark.parametrize("prior", [(6.0, 12.0), (5.0, 5.0), (6.0, 12.0, 8.0)])
def test_published_corners_bound_the_supremum(prior, order):
    """The bound of P3's Corollary 2 is attained for two categories and orders ≥ 2; otherwise, it is not attained.

    For three categories, the corners that are posteriors do not attain the supremum either.
    """
    bound, inside = published_corners(prior, 100, order)
    exact = renyi_sampler("direct", prior, 100, 1.0).renyi_epsilon(order)
    if len(prior) == 2:
        assert inside == pytest.approx(exact, rel=1e-9)
        assert bound == pytest.approx(exact, rel=1e-9) if order >= 2 else bound > 1.005 * exact
    else:
        assert inside < 0.9 * exact < 0.99 * 0.9 * bound


@pytest.mark.parametrize("order", [1.2, 1.4])
@pytest.mark.parametrize("prior", [(0.5, 3.0), (0.5, 3.0, 3.0)])
def test_published_corners_are_infinite_for_finite_supremum(prior, order):
    """If a prior parameter is below r = 1, the bound of P3 (Corollary 2) is infinite, but the supremum is finite."""
    assert published_corners(prior, 6, order)[0] == math.inf
    exact = renyi_sampler("direct", prior, 6, 1.0).renyi_epsilon(order)
    assert exact == pytest.approx(brute_force("direct", prior, 6, 1.0, order), rel=1e-10)
    assert exact < 5


def test_reference_values():
    """For P3's prior η₀ = (6, 18), that is Beta(6, 12), and 100 records, divergences have known values."""
    direct = renyi_sampler("direct", (6, 12), 100, 1.0)
    assert [direct.renyi_epsilon(order) for order in (2, 5, 6.9)] == pytest.approx(
        [0.19129, 0.617111, 1.392636], abs=5e-6
    )
    assert direct.renyi_epsilon(7.1) == math.inf
    reached = {name: calibrate_renyi(name, (6, 12), 100, 2, math.exp(-2)).coefficient for name in TUNABLE}
    assert reached == pytest.approx({"diffused": 0.838452, "concentrated": 0.714208}, abs=5e-7)


@pytest.mark.parametrize(("name", "coefficient"), [("direct", 1.0), ("diffused", 0.25), ("concentrated", 0.25)])
@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("n", [1, 50])
def test_critical_order(name, coefficient, prior, n):
    mechanism = renyi_sampler(name, prior, n, coefficient)
    expected = 1 + min(prior) if name == "direct" else 1 + min(prior) / coefficient
    assert mechanism.critical_order == pytest.approx(expected, rel=1e-15)
    assert math.isfinite(mechanism.renyi_epsilon(expected * (1 - 1e-9)))
    assert mechanism.renyi_epsilon(expected * (1 + 1e-9)) == math.inf
    stated = mechanism.guarantee(1.05)
    assert (type(stated), stated.order) == (RenyiGuarantee, 1.05)
    assert mechanism.renyi_epsilon(1.05) < stated.epsilon < mechanism.renyi_epsilon(1.05) * (1 + 1e-11)
    assert_refused(lambda: mechanism.guarantee(expected + 0.1), f"order must be < .* for {name}")


def exact_supremum(name, prior, n, coefficient, order):
    """Return the largest divergence over the pairs that can attain the supremum, in 60-digit arithmetic."""
    with mpmath.workdps(60):
        coefficient = mpmath.mpf(coefficient)
        start = sorted(mpmath.mpf(each) / (coefficient if name == "concentrated" else 1) for each in prior)
        step = mpmath.mpf(1) if name == "concentrated" else coefficient
        shared = (n - 1) * step if len(prior) == 2 else 0

        return max(
            exact_term(x, step, order) + exact_term(y + step, -step, order)
            for i, j in ((0, 1), (1, 0))
            for x, y in ((start[i] + shared, start[j]), (start[i], start[j] + shared))
        )


@pytest.mark.slow
@pytest.mark.parametrize("name", TUNABLE)
@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("order", [1.0, 2.0, 15.0])
@pytest.mark.parametrize("log_epsilon", [-30.0, -1.0, *exhaustive(-15.0, -4.0, 2.0)])
def test_calibrated_coefficient_is_largest_within_target(name, prior, order, log_epsilon):
    """In 60-digit arithmetic, the divergence is at most ε, but exceeds ε if the coefficient increases by 1e-11."""
    target = math.exp(log_epsilon)
    mechanism = calibrate_renyi(name, prior, 20, order, target)
    assert 0 < mechanism.coefficient <= 1
    assert mechanism.renyi_epsilon(order) <= target
    assert exact_supremum(name, prior, 20, mechanism.coefficient, order) <= target
    if mechanism.coefficient < 1:
        assert exact_supremum(name, prior, 20, mechanism.coefficient * (1 + 1e-11), order) > target


@settings(deadline=None)
@given(
    st.sampled_from(TUNABLE),
    st.lists(st.floats(0.05, 30), min_size=2, max_size=4),
    st.integers(1, 200),
    st.floats(1, 20),
    st.floats(0.01, 0.99),
)
def test_divergence_increases_with_coefficient_and_order(name, prior, n, order, coefficient):
    low, high = (renyi_sampler(name, prior, n, c) for c in (coefficient, min(1.0, 1.01 * coefficient)))
    assert low.renyi_epsilon(order) < high.renyi_epsilon(order) or high.renyi_epsilon(order) == math.inf
    assert low.renyi_epsilon(order) <= low.renyi_epsilon(order + 0.1)


@pytest.mark.parametrize("name", RENYI_SAMPLERS)
def test_large_target_leaves_posterior_unchanged(name):
    mechanism = calibrate_renyi(name, (6, 12), 100, 2, 0.1913)
    assert mechanism.coefficient == 1.0
    np.testing.assert_array_equal(mechanism.posterior([38, 62]), [44, 74])
    assert str(mechanism.guarantee(2)) == "(2, 0.191291)-RDP"


@pytest.mark.parametrize(
    ("order", "epsilon", "reached"), [(2, 0.19, "0.19129 at order 2"), (7, 50.0, "inf at order 7")]
)
def test_direct_sampling_below_its_divergence_raises(order, epsilon, reached):
    with pytest.raises(ValueError, match=f"epsilon must be >= {reached} for direct.*at orders below 7 only"):
        calibrate_renyi("direct", (6, 12), 100, order, epsilon)


def test_posterior_broadcasts_over_counts():
    mechanism = renyi_sampler("diffused", (1.0, 2.0), 4, 0.5)
    np.testing.assert_allclose(mechanism.posterior([[[0, 4]], [[3, 1]]]), [[[1.0, 4.0]], [[2.5, 2.5]]])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("direct", (1, 1), 5, 0.5), "coefficient must be 1 for direct, got 0.5"),
        (("diffused", (1, 1), 5, 0.5, (1, 2, 3)), "public_counts must be 2 integers"),
        (("diffused", (1, 1), 5, 0.5, (1, -2)), "public_counts must be 2 integers"),
        (("diffused", (1, 1), 5, 0.5, (1, 0.5)), "public_counts must be 2 integers"),
        *((("direct", (1, 1), 3, 1, (each, 0)), "< 2\\*\\*53") for each in (1e30, 2.0**53, math.inf, math.nan)),
    ],
)
def test_invalid_mechanisms_and_counts_raise(arguments, message):
    assert_refused(lambda: renyi_sampler(*arguments), message)
    for counts in ([1, 2, 1], [5, -1], [1.5, 2.5], [2, 1], [np.nan, 4], 4):
        assert_refused(partial(renyi_sampler("diffused", (1.0, 2.0), 4, 0.5).posterior, counts), "counts must")


@pytest.mark.parametrize("gap", [1e-15, 4e-15, 1e-14, 1e-12, 1e-9, 1e-3])
@pytest.mark.parametrize("name", ["diffused", "concentrated"])
def test_guarantee_is_not_understated_near_the_critical_order(name, gap):
    """The stated divergence is at least that in 60 digits, and close to it where parameters are exact."""
    rng = np.random.default_rng(5)
    for _ in range(40):
        coefficient = float(rng.uniform(0.05, 1.0))
        mechanism = renyi_sampler(name, rng.uniform(0.1, 9.0, 3), 20, coefficient)
        order = mechanism.critical_order * (1 - gap)
        exact = exact_supremum(name, mechanism.prior, 20, coefficient, order)
        try:
            stated = mechanism.guarantee(order).epsilon
        except ValueError:
            assert gap < 1e-14
            continue
        assert stated >= exact
        assert gap < 1e-13 or stated <= exact * (1 + 1e-3)
