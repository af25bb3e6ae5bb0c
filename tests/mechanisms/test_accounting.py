"""What dp-accounting makes of events equals exact audits and closed forms, once and composed."""

import sys

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, LaplaceDpEvent, NeighboringRelation
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from scipy.special import log_ndtr, ndtr

from mechanisms import (
    Guarantee,
    OutputDistributions,
    RenyiGuarantee,
    accounting_event,
    approximate_epsilon,
    audit_counts,
    audit_distributions,
    gaussian_mechanism,
    geometric_counts,
    laplace_counts,
    privacy_loss_distribution,
)

STEP = 1e-4  # accountants round each loss up to a multiple of it


def accountant(event, times=1, relation=NeighboringRelation.ADD_OR_REMOVE_ONE):
    return PLDAccountant(relation, STEP).compose(event, times)


def assert_between(found, delta, epsilon, times=1):
    """Assert that an accountant's δ is not below the exact function `delta`, by no more than rounding explains."""
    exact = delta(epsilon)
    assert exact * (1 - 1e-9) - 1e-12 <= found <= delta(epsilon - times * STEP) * (1 + 1e-9) + 1e-12
    assert found < 1.05 * exact or exact < 1e-6  # so that 5% of loss would be noticed


def composed(distribution, neighbour, times):
    """Return exact distributions of `times` independent releases of a pair of neighbours."""
    one, other = np.ones(1), np.ones(1)
    for _ in range(times):
        one, other = np.outer(one, distribution).ravel(), np.outer(other, neighbour).ravel()
    return OutputDistributions.from_table([one, other], pairs=[[0, 1]])


def exact_delta(distribution, neighbour, times):
    distributions = composed(distribution, neighbour, times)
    return lambda epsilon: audit_distributions(distributions, [epsilon]).deltas[epsilon]


RESPONSE = np.array([np.exp(0.7), 1.0]) / (1 + np.exp(0.7))  # the worst distribution that is 0.7-DP


@pytest.mark.parametrize("times", [1, 2, 5])
@pytest.mark.parametrize("epsilon", [0.1, 0.4, 0.65])
def test_pure_guarantees_are_randomised_response(times, epsilon):
    """The worst mechanism there is, so that the event covers each that is as private."""
    event = accounting_event(Guarantee(0.7))
    delta = exact_delta(RESPONSE, RESPONSE[::-1], times)
    assert_between(accountant(event, times).get_delta(epsilon), delta, epsilon, times)
    weaker = accountant(accounting_event(Guarantee(0.95 * 0.7)), times).get_delta(epsilon)
    assert weaker < delta(epsilon) * (1 - 1e-3)


def test_no_relation_of_accountants_makes_a_pure_guarantee_look_better():
    """They take less for it, or refuse it."""
    event = accounting_event(Guarantee(0.7))
    special = accountant(event, relation=NeighboringRelation.REPLACE_SPECIAL).get_delta(0.3)
    assert special == accountant(event).get_delta(0.3)
    with pytest.raises(Exception, match="neighboring_relation must be"):
        accountant(event, relation=NeighboringRelation.REPLACE_ONE)


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 0.95])
def test_geometric_counts_of_two_cells_equal_their_audit(epsilon):
    """Clipping loses nothing there; the audit goes over all data."""
    event = accounting_event(geometric_counts([1, 1], [7, 8], noise_scale=1.0))
    found = accountant(event).get_delta(epsilon)
    assert_between(found, lambda at: audit_counts("geometric", [1, 1], 15, 1.0, epsilons=(at,)).deltas[at], epsilon)


@pytest.mark.parametrize("make", [laplace_counts, geometric_counts])
@pytest.mark.parametrize("prior", [(1, 1), (1, 1, 1)])
def test_events_cover_what_counts_with_noise_spend(make, prior):
    """At every δ, by the exact audit over all data; with noise twice as large they would not."""
    name, epsilons = make.__name__.removesuffix("_counts"), (0.01, 0.2, 0.6, 0.9)
    spent = audit_counts(name, prior, 12, 1.0, epsilons=epsilons).deltas
    counts, scale = [12, *(0 for _ in prior[1:])], len(prior) - 1.0
    event, weaker = (accountant(accounting_event(make(prior, counts, scale * factor))) for factor in (1, 2))
    assert all(spent[epsilon] <= event.get_delta(epsilon) * (1 + 1e-9) for epsilon in epsilons)
    assert not any(spent[epsilon] <= weaker.get_delta(epsilon) for epsilon in epsilons)
    assert event.get_delta(1 + 2 * STEP) < 1e-9


def test_laplace_noise_equals_its_closed_form():
    """δ(ε) = 1 − exp((ε − 1)/2) for noise of the scale of the move."""
    found = accountant(accounting_event(laplace_counts([1, 1], [7, 8], noise_scale=1.0))).get_delta(0.4)
    assert_between(found, lambda epsilon: -np.expm1((epsilon - 1) / 2), 0.4)


@pytest.mark.parametrize("times", [1, 4])
def test_normal_noise_equals_its_closed_form(times):
    """Balle & Wang (2018), of counts that move by √2; the Rényi curve is the one that the mechanism states."""
    mechanism = gaussian_mechanism("gaussian-tight", [1, 1], 50, order=4, epsilon=0.5)
    event = accounting_event(mechanism)
    assert event == GaussianDpEvent(mechanism.noise_std / np.sqrt(2))
    mu = np.sqrt(2 * times) / mechanism.noise_std

    def delta(epsilon):
        return ndtr(mu / 2 - epsilon / mu) - np.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu))

    assert_between(accountant(event, times).get_delta(0.6), delta, 0.6, times)
    doubled = accountant(event, times, NeighboringRelation.REPLACE_ONE).get_delta(0.6)
    assert doubled > 2 * delta(0.6)  # why the module says which relation to use
    curve = RdpAccountant(orders=[2.0, 4.0, 30.0]).compose(event, times)
    stated = [times * mechanism.guarantee(order).epsilon for order in curve.orders]
    np.testing.assert_allclose(curve.rdp, stated, rtol=1e-12)
    assert curve.get_epsilon(1e-6) == pytest.approx(approximate_epsilon(curve.orders, stated, 1e-6), rel=1e-12)


def test_sums_with_laplace_noise_compose_with_the_rest():
    """One accountant for all: a pure guarantee, counts, and a sum with Laplace noise of scale Δ/ε."""
    events = [accounting_event(Guarantee(0.3)), accounting_event(laplace_counts([1, 1], [3, 4], 5.0))]
    whole = PLDAccountant().compose(events[0]).compose(events[1]).compose(LaplaceDpEvent(1 / 0.1))
    assert whole.get_delta(0.3 + 0.2 + 0.1 + 5 * STEP) < 1e-9
    assert whole.get_delta(0.95 * (0.3 + 0.2 + 0.1)) > 1e-3


@pytest.mark.parametrize("times", [1, 3])
def test_approximate_guarantees_are_their_worst_distribution(times):
    """With probability δ the record is told, else randomised response (Kairouz, Oh & Viswanath 2015)."""
    delta, distribution = 1e-3, RESPONSE
    table = (
        np.array([delta, 0.0, *((1 - delta) * distribution)]),
        np.array([0.0, delta, *((1 - delta) * distribution[::-1])]),
    )
    spent = privacy_loss_distribution(Guarantee(0.7, delta)).self_compose(times)
    for epsilon in (0.3, 0.65):
        assert_between(spent.get_delta_for_epsilon(epsilon), exact_delta(*table, times), epsilon, times)
    pure = privacy_loss_distribution(Guarantee(0.7)).self_compose(times).get_delta_for_epsilon(0.3)
    assert pure == pytest.approx(accountant(accounting_event(Guarantee(0.7)), times).get_delta(0.3), rel=1e-3)


@pytest.mark.parametrize(
    ("message", "spent"),
    [
        (
            r"spent must have an event in dp-accounting, got \(1, 1e-08\)-DP; use mechanisms.privacy_loss",
            Guarantee(1.0, 1e-8),
        ),
        (
            r"spent must have an event in dp-accounting, got \(2, 0.5\)-RDP; add divergences of equal order",
            RenyiGuarantee(2, 0.5),
        ),
        ("spent must be a Guarantee, NoisyCounts or GaussianCounts, got str; pass", "laplace"),
    ],
)
def test_refusals(message, spent):
    with pytest.raises(ValueError, match=message):
        accounting_event(spent)


def test_where_dp_accounting_is_missing(monkeypatch):
    """The package does without; what needs it says how to get it."""
    for name in [name for name in sys.modules if name.startswith("dp_accounting")]:
        monkeypatch.setitem(sys.modules, name, None)
    for convert in (accounting_event, privacy_loss_distribution):
        with pytest.raises(ModuleNotFoundError, match=r"pip install 'dpstudies\[accounting\]'"):
            convert(Guarantee(1.0))
