"""Tests of dp-accounting events against exact audits and closed forms, alone and composed."""

import sys
from functools import partial

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, LaplaceDpEvent, NeighboringRelation
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from mechanisms import (
    MECHANISMS,
    Guarantee,
    OutputDistributions,
    Status,
    accounting_event,
    approximate_epsilon,
    audit_counts,
    audit_distributions,
    gaussian_mechanism,
    geometric_counts,
    laplace_counts,
    privacy_loss_distribution,
)
from tests.mechanisms.divergences import compose, gaussian_delta
from tests.mechanisms.marks import exhaustive
from tests.mechanisms.refusals import assert_refused

STEP = 1e-4  # accountants round each loss up to a multiple of this step


def accountant(event, times=1, relation=NeighboringRelation.ADD_OR_REMOVE_ONE):
    return PLDAccountant(relation, STEP).compose(event, times)


def assert_between(found, delta, epsilon, times=1):
    """Assert that an accountant's δ is at least the exact `delta`, and exceeds it only by rounding."""
    exact = delta(epsilon)
    assert exact * (1 - 1e-9) - 1e-12 <= found <= delta(epsilon - times * STEP) * (1 + 1e-9) + 1e-12
    assert found < 1.05 * exact or exact < 1e-6  # this bound detects errors of 5 %


def exact_delta(distribution, neighbour, times):
    distributions = OutputDistributions.from_table(compose([(distribution, neighbour)] * times), pairs=[[0, 1]])
    return lambda epsilon: audit_distributions(distributions, [epsilon]).deltas[epsilon]


RESPONSE = np.array([np.exp(0.7), 1.0]) / (1 + np.exp(0.7))  # randomised response, the worst 0.7-DP mechanism


@pytest.mark.parametrize("times", [1, 2, 5])
@pytest.mark.parametrize("epsilon", [0.1, 0.4, 0.65])
def test_pure_guarantees_are_randomised_response(times, epsilon):
    """Compositions of an ε-DP guarantee have the δ of randomised response, the worst ε-DP mechanism."""
    event = accounting_event(Guarantee(0.7))
    delta = exact_delta(RESPONSE, RESPONSE[::-1], times)
    assert_between(accountant(event, times).get_delta(epsilon), delta, epsilon, times)
    weaker = accountant(accounting_event(Guarantee(0.95 * 0.7)), times).get_delta(epsilon)
    assert weaker < delta(epsilon) * (1 - 1e-3)


def test_event_of_a_pure_guarantee_does_not_depend_on_the_relation():
    """Under REPLACE_SPECIAL, a pure guarantee has the same δ; under REPLACE_ONE, dp-accounting raises an error."""
    event = accounting_event(Guarantee(0.7))
    special = accountant(event, relation=NeighboringRelation.REPLACE_SPECIAL).get_delta(0.3)
    assert special == accountant(event).get_delta(0.3)
    with pytest.raises(Exception, match="neighboring_relation must be"):
        accountant(event, relation=NeighboringRelation.REPLACE_ONE)


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 0.95])
def test_event_of_geometric_counts_equals_audit_at_two_categories(epsilon):
    """At k = 2 clipped counts have the same loss as the noise, so the event and the audit give the same δ."""
    event = accounting_event(geometric_counts([1, 1], [7, 8], noise_scale=1.0))
    found = accountant(event).get_delta(epsilon)
    assert_between(found, lambda at: audit_counts("geometric", [1, 1], 15, 1.0, epsilons=(at,)).deltas[at], epsilon)


@pytest.mark.parametrize("make", [laplace_counts, geometric_counts])
@pytest.mark.parametrize("prior", [(1, 1), (1, 1, 1)])
def test_events_dominate_noisy_counts(make, prior):
    """The δ of an event is at least that of an audit of noisy counts, unless the event has twice the noise."""
    name, epsilons = make.__name__.removesuffix("_counts"), (0.01, 0.2, 0.6, 0.9)
    audited = audit_counts(name, prior, 12, 1.0, epsilons=epsilons).deltas
    counts, scale = [12, *(0 for _ in prior[1:])], len(prior) - 1.0
    event, weaker = (accountant(accounting_event(make(prior, counts, scale * factor))) for factor in (1, 2))
    assert all(audited[epsilon] <= event.get_delta(epsilon) * (1 + 1e-9) for epsilon in epsilons)
    assert not any(audited[epsilon] <= weaker.get_delta(epsilon) for epsilon in epsilons)
    assert event.get_delta(1 + 2 * STEP) < 1e-9


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("name", ["laplace-projected", "geometric-projected", "k-norm", "discrete-gaussian"])
def test_events_dominate_projected_counts(name, k):
    """The δ of a release is at least that of an audit of its projected counts; that at half of ε is not."""
    audited = audit_counts(name, [1.0] * k, 9, 1.0, 1e-6, epsilons=(0.2, 0.6)).deltas
    for factor, holds in ((1.0, True), (0.5, False)):
        release = MECHANISMS[name].build([1.0] * k, [9] + [0] * (k - 1), factor, 1e-6)
        stated = privacy_loss_distribution(release)
        assert all(audited[at] <= stated.get_delta_for_epsilon(at) * (1 + 1e-9) for at in (0.2, 0.6)) == holds


def test_event_of_laplace_noise_equals_closed_form():
    """If the noise scale equals the sensitivity, the event has δ(ε) = 1 − exp((ε − 1)/2)."""
    found = accountant(accounting_event(laplace_counts([1, 1], [7, 8], noise_scale=1.0))).get_delta(0.4)
    assert_between(found, lambda epsilon: -np.expm1((epsilon - 1) / 2), 0.4)


@pytest.mark.slow
@pytest.mark.parametrize("times", [*exhaustive(1), 4])
def test_event_of_normal_noise_equals_closed_form(times):
    """For normal noise on counts, the event has the δ of Balle & Wang (2018) with sensitivity √2."""
    mechanism = gaussian_mechanism("gaussian-tight", [1, 1], 50, order=4, epsilon=0.5)
    event = accounting_event(mechanism)
    assert event == GaussianDpEvent(mechanism.noise_std / np.sqrt(2))
    mu = np.sqrt(2 * times) / mechanism.noise_std
    delta = partial(gaussian_delta, mu)
    assert_between(accountant(event, times).get_delta(0.6), delta, 0.6, times)
    doubled = accountant(event, times, NeighboringRelation.REPLACE_ONE).get_delta(0.6)
    assert doubled > 2 * delta(0.6)  # why the module docstring requires ADD_OR_REMOVE_ONE
    curve = RdpAccountant(orders=[2.0, 4.0, 30.0]).compose(event, times)
    stated = [times * mechanism.guarantee(order).epsilon for order in curve.orders]
    np.testing.assert_allclose(curve.rdp, stated, rtol=1e-12)
    assert curve.get_epsilon(1e-6) == pytest.approx(approximate_epsilon(curve.orders, stated, 1e-6), rel=1e-12)


def test_different_events_compose():
    """The events of a pure guarantee, of noisy counts and of a sum with Laplace noise compose to the total ε."""
    events = [accounting_event(Guarantee(0.3)), accounting_event(laplace_counts([1, 1], [3, 4], 5.0))]
    whole = PLDAccountant().compose(events[0]).compose(events[1]).compose(LaplaceDpEvent(1 / 0.1))
    assert whole.get_delta(0.3 + 0.2 + 0.1 + 5 * STEP) < 1e-9
    assert whole.get_delta(0.95 * (0.3 + 0.2 + 0.1)) > 1e-3


@pytest.mark.parametrize("times", [1, 3])
def test_approximate_guarantee_equals_its_worst_case(times):
    """An (ε, δ) guarantee composes like the mechanism that reveals the record with probability δ."""
    delta, distribution = 1e-3, RESPONSE
    table = (
        np.array([delta, 0.0, *((1 - delta) * distribution)]),
        np.array([0.0, delta, *((1 - delta) * distribution[::-1])]),
    )
    composed_loss = privacy_loss_distribution(Guarantee(0.7, delta)).self_compose(times)
    for epsilon in (0.3, 0.65):
        assert_between(composed_loss.get_delta_for_epsilon(epsilon), exact_delta(*table, times), epsilon, times)
    pure = privacy_loss_distribution(Guarantee(0.7)).self_compose(times).get_delta_for_epsilon(0.3)
    assert pure == pytest.approx(accountant(accounting_event(Guarantee(0.7)), times).get_delta(0.3), rel=1e-3)


def test_sources_without_a_guarantee_are_refused():
    assert_refused(lambda: accounting_event("laplace"), "source must be a guarantee, profile or noisy counts, got str")


def test_accountants_reject_conjectured_guarantees_by_default():
    published = MECHANISMS["smooth"].guarantee(1.0, 1e-8)
    with pytest.raises(ValueError, match=r"must be proved, got \(1, 1e-08\)-DP, conjectured; pass"):
        privacy_loss_distribution(published)
    allowed = privacy_loss_distribution(published, allow_conjectured=True).get_delta_for_epsilon(0.5)
    assert allowed == privacy_loss_distribution(Guarantee(1.0, 1e-8)).get_delta_for_epsilon(0.5)
    pure = Guarantee(1.0, status=Status.CONJECTURED)
    assert_refused(lambda: accounting_event(pure), "must be proved, got 1-DP, conjectured; pass")
    assert accounting_event(pure, allow_conjectured=True) == accounting_event(Guarantee(1.0))


def test_missing_dp_accounting_raises_with_install_command(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("dp_accounting")]:
        monkeypatch.setitem(sys.modules, name, None)
    for convert in (accounting_event, privacy_loss_distribution):
        with pytest.raises(ModuleNotFoundError, match=r"pip install 'dpstudies\[accounting\]'"):
            convert(Guarantee(1.0))
