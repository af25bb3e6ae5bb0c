"""Tests of the totals of a ledger against exact convolution, closed forms and dp-accounting's accountants."""

import math

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, LaplaceDpEvent, UnsupportedEventError, ZCDpEvent
from dp_accounting.pld import PLDAccountant

from mechanisms import (
    ConcentratedGuarantee,
    Guarantee,
    Ledger,
    Neighbouring,
    OutputDistributions,
    RenyiGuarantee,
    Status,
    audited_profile,
    gaussian_mechanism,
    laplace_counts,
)
from mechanisms.audit.accounting import accounting_event
from mechanisms.audit.profile_accountant import ProfileAccountant
from mechanisms.core.conversions import concentrated_epsilon
from tests.mechanisms.divergences import compose, hockey_stick
from tests.mechanisms.marks import REPEATED
from tests.mechanisms.refusals import assert_refused

TABLE = np.array([[0.4, 0.35, 0.25], [0.25, 0.35, 0.4]])
PROFILE = audited_profile(OutputDistributions.from_table(TABLE, [[0, 1]]))
ADDED = Neighbouring.ADD_OR_REMOVE_ONE


def composed_delta(tables, epsilon):
    """Return the larger δ(ε) of both directions for independent releases on two data sets, by enumeration."""
    p, q = compose(tables)
    return max(hockey_stick(p, q, epsilon), hockey_stick(q, p, epsilon))


def test_totals_equal_exact_convolution():
    """For three randomised responses and six audited releases, totals equal an exact convolution of the losses."""
    response = np.array([math.exp(0.3), 1.0]) / (1 + math.exp(0.3))
    tables = [np.stack([response, response[::-1]])] * 3 + [TABLE] * 6
    ledger = Ledger().spend(Guarantee(0.3), times=3).spend(PROFILE, times=6, label="table")
    for epsilon in (0.1, 0.5, 1.2):
        exact = composed_delta(tables, epsilon)
        assert exact - 1e-13 <= ledger.delta(epsilon) <= exact + 2e-4
        assert ledger.epsilon(ledger.delta(epsilon)) == pytest.approx(epsilon, abs=1e-3)


def test_pure_totals_are_sums_at_delta_zero_and_bounds_elsewhere():
    ledger = Ledger().spend(Guarantee(0.1), times=7).spend(laplace_counts([1, 1, 1], [4, 2, 2], 8.0))
    assert ledger.epsilon(0) == pytest.approx(0.7 + 2 / 8.0, rel=1e-12)
    assert ledger.epsilon(1e-12) <= ledger.epsilon(0)
    assert ledger.delta(0.95 + 1e-12) == 0.0
    assert str(ledger.guarantee(0)) == "0.95-DP"
    large = Ledger().spend(Guarantee(60.0)).spend(Guarantee(80.0))
    assert large.epsilon(1e-6) == pytest.approx(140.0)


def test_sums_of_epsilon_and_delta_bound_the_total():
    ledger = Ledger().spend(Guarantee(1.0, 1e-6)).spend(Guarantee(2.0, 1e-6))
    assert ledger.epsilon(2e-6) <= 3.0
    assert ledger.epsilon(1.9e-6) == math.inf
    with pytest.raises(ValueError, match="epsilon must be finite at delta = 1e-06, got inf; choose a larger delta"):
        ledger.guarantee(1e-6)


def test_normal_and_laplace_noise_equal_a_pld_accountant():
    mechanism = gaussian_mechanism("gaussian-tight", [1, 1], 50, order=4, epsilon=0.1)
    ledger = Ledger().spend(mechanism, times=3).spend(laplace_counts([1, 1], [3, 4], 5.0), times=2)
    library = PLDAccountant().compose(GaussianDpEvent(mechanism.noise_std / math.sqrt(2)), 3)
    library.compose(LaplaceDpEvent(5.0), 2)
    assert ledger.epsilon(1e-6) == pytest.approx(library.get_epsilon(1e-6), rel=1e-9)


def test_total_of_audited_profiles_is_below_that_of_guarantees():
    loss = PROFILE.epsilon(0.0)
    assert Ledger().spend(PROFILE, times=30).epsilon(1e-6) < 0.9 * Ledger().spend(Guarantee(loss), 30).epsilon(1e-6)


def test_unsupported_events_raise():
    with pytest.raises(UnsupportedEventError, match="Unsupported event"):
        PLDAccountant().compose(accounting_event(PROFILE))
    with pytest.raises(UnsupportedEventError, match=r"xi of a ZCDpEvent must be 0, got 0\.2"):
        ProfileAccountant().compose(ZCDpEvent(0.1, 0.2))


def test_ledger_contains_no_counts():
    counts = laplace_counts([1, 1, 1], [48213, 1977, 2], 8.0)
    shown = repr(Ledger().spend(counts, label="visits"))
    assert "visits" in shown
    assert not any(str(count) in shown for count in (48213, 1977))


@pytest.mark.parametrize(
    ("message", "spend"),
    [
        (
            "source must be a guarantee, got None; a release without one, such as a rehearsal, cannot be added",
            lambda ledger: ledger.spend(None),
        ),
        ("times must be an integer >= 1, got 0; pass", lambda ledger: ledger.spend(Guarantee(1.0), 0)),
        ("times must be an integer >= 1, got 1.5; pass", lambda ledger: ledger.spend(Guarantee(1.0), 1.5)),
        (r"source must have an event, got \(2, 0.5\)-RDP", lambda ledger: ledger.spend(RenyiGuarantee(2, 0.5))),
        (
            "releases must have one relation .*; use one ledger each",
            lambda ledger: ledger.spend(Guarantee(1.0)).spend(Guarantee(1.0, 0.0, ADDED)),
        ),
        ("a guarantee must be proved", lambda ledger: ledger.spend(Guarantee(1.0, 1e-8, status=Status.CONJECTURED))),
        (
            "delta must be 0 or in .1e-12, 1., got 1e-15",
            lambda ledger: ledger.spend(ConcentratedGuarantee(0.1)).epsilon(1e-15),
        ),
        ("a ledger must have an entry to state a guarantee, got none", lambda ledger: ledger.guarantee(1e-6)),
    ],
)
def test_invalid_input_raises(message, spend):
    assert_refused(lambda: spend(Ledger()), message)


def test_total_with_a_conjectured_guarantee_is_conjectured():
    conjecture = Guarantee(1.0, 1e-8, status=Status.CONJECTURED)
    ledger = Ledger().spend(Guarantee(0.5)).spend(conjecture, allow_conjectured=True).spend(Guarantee(0.5))
    assert ledger.guarantee(1e-6).status is Status.CONJECTURED


@pytest.mark.parametrize(
    ("rho", "delta"),
    [
        (1e-8, 0.1),
        (0.3, 1e-6),
        pytest.param(1e-8, 1e-9, marks=pytest.mark.slow),
        *(pytest.param(rho, 1e-9, marks=REPEATED) for rho in (20.0, 1e4)),
    ],
)
def test_totals_of_small_and_large_rho_equal_their_conversion(rho, delta):
    """Totals are at most the conversion of ρ, also beyond the largest loss of a profile, and attain it for large ρ."""
    ledger = Ledger().spend(ConcentratedGuarantee(rho / 8), times=4).spend(ConcentratedGuarantee(rho / 2))
    exact = concentrated_epsilon(rho, delta)
    assert ledger.epsilon(delta) == pytest.approx(exact, rel=1e-3, abs=1e-4)
    assert ledger.guarantee(delta) == Guarantee(ledger.epsilon(delta), delta)
    assert ledger.delta(max(exact, 1e-6)) <= delta * (1 + 1e-3)
    mixed = ledger.spend(Guarantee(2.0, delta / 4)).spend(Guarantee(60.0))
    assert mixed.epsilon(delta) <= 62.0 + concentrated_epsilon(rho, 0.75 * delta) + 1e-9
    assert ledger.epsilon(0.0) == math.inf


def test_totals_of_delta_alone_add_up():
    assert Ledger().spend(Guarantee(0.0, 1e-3), times=2).delta(1e-6) == pytest.approx(2e-3, rel=1e-2)
    assert_refused(lambda: Guarantee(0.0), "epsilon must be a finite number > 0, got 0")
