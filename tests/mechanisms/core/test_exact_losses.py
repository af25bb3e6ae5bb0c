"""Tests of audits against plain loops, closed forms and a table computed by hand."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from mechanisms.audit.counts import audit_counts
from mechanisms.core import exact_losses as engine
from mechanisms.core.divergences import hockey_stick_bound, renyi_bound, renyi_divergence, renyi_error
from mechanisms.core.exact_losses import ROUNDING, Audit, OutputDistributions, Witness, audit_distributions
from mechanisms.core.privacy import ConcentratedGuarantee, Guarantee, RenyiGuarantee
from mechanisms.counts.mechanism import Mechanism
from tests.mechanisms.counts.constructors import StatedRelease
from tests.mechanisms.divergences import hockey_stick
from tests.mechanisms.refusals import assert_refused

EPSILONS = (0.0, 0.1, 0.5, 1.0, 3.0)
ORDERS = (1.0, 1.5, 2.0, 10.0)


def plain_loss(p, q):
    """Return the larger of the max divergences of P from Q and of Q from P, by a loop over outputs."""
    worst = 0.0
    for a, b in zip(p, q, strict=True):
        if a == 0 and b == 0:
            continue
        worst = max(worst, math.inf if a == 0 or b == 0 else abs(math.log(a) - math.log(b)))
    return worst


def plain_renyi(p, q, order):
    """Return the Rényi divergence in 40-digit arithmetic, because doubles lose all digits if P is near Q."""
    total = mpmath.mpf(0)
    with mpmath.workdps(40):
        for a, b in zip(map(float, p), map(float, q), strict=True):
            if a == 0:
                continue
            if b == 0:
                return math.inf
            ratio = mpmath.mpf(a) / mpmath.mpf(b)
            total += a * (mpmath.log(ratio) if order == 1 else ratio ** (order - 1))
        return float(total if order == 1 else mpmath.log(total) / (order - 1))


def plain_audit(table, pairs):
    """Return the maximum over all ordered pairs of the loss, of δ at `EPSILONS`, and of D_λ at λ in `ORDERS`."""
    both = [(table[i], table[j]) for i, j in pairs] + [(table[j], table[i]) for i, j in pairs]
    return (
        max(plain_loss(p, q) for p, q in both),
        [max(hockey_stick(p, q, e) for p, q in both) for e in EPSILONS],
        [max(plain_renyi(p, q, order) for p, q in both) for order in ORDERS],
    )


def random_table(rng, n_datasets, n_outputs, zeros):
    """Return random distributions, both similar and different ones; with `zeros`, some outputs are impossible."""
    base = rng.dirichlet(np.ones(n_outputs)) + 1e-4
    table = base * np.exp(rng.normal(size=(n_datasets, n_outputs)) * 10.0 ** rng.uniform(-3, 0.5))
    if zeros:
        if rng.random() < 0.5:
            table[:, 0] = 0
        table[rng.random(table.shape) < 0.15] = 0
        table[:, -1] += 0.1
    return table / table.sum(axis=1, keepdims=True)


def audit_table(table, pairs=((0, 1),), epsilons=EPSILONS, orders=ORDERS, n_threads=1):
    return audit_distributions(OutputDistributions.from_table(table, pairs), epsilons, orders, n_threads)


def values_of(audit):
    return audit.epsilon, list(audit.deltas.values()), list(audit.renyi.values())


def assert_same(found, expected):
    loss, deltas, renyi = expected
    assert found.epsilon == pytest.approx(loss, rel=1e-12, abs=1e-14)
    np.testing.assert_allclose(list(found.deltas.values()), deltas, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(list(found.renyi.values()), renyi, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("true", [0.51, 0.75, 0.999])
def test_randomised_response_equals_closed_forms(true):
    """Randomised response, true with probability t = 1 − f, has the loss ln(t/f) and δ(ε) = t − f·e^ε."""
    false = 1 - true
    found = audit_table([[true, false], [false, true]])
    assert found.epsilon == pytest.approx(math.log(true / false), rel=1e-13)
    for epsilon, delta in found.deltas.items():
        assert delta == pytest.approx(max(true - math.exp(epsilon) * false, 0), rel=1e-10, abs=1e-15)
    assert found.renyi[1.0] == pytest.approx((true - false) * math.log(true / false), rel=1e-10)
    for order in (1.5, 2.0, 10.0):
        expected = math.log(true**order * false ** (1 - order) + false**order * true ** (1 - order)) / (order - 1)
        assert found.renyi[order] == pytest.approx(expected, rel=1e-9)
    assert (found.n_pairs, found.n_outputs, found.evidence) == (1, 2, "exact")


def test_audit_equals_a_hand_computed_table():
    """For three permutations of (½, ¼, ¼), loss, δ and Rényi divergences equal values computed by hand."""
    table = [[0.5, 0.25, 0.25], [0.25, 0.25, 0.5], [0.25, 0.5, 0.25]]
    found = audit_table(table, [[0, 1], [1, 2]], epsilons=[0.0, math.log(1.5), 1.0], orders=[1, 2])
    assert found.epsilon == pytest.approx(math.log(2), rel=1e-15)
    assert found.deltas[0.0] == pytest.approx(0.25, rel=1e-14)
    assert found.deltas[math.log(1.5)] == pytest.approx(0.125, rel=1e-14)
    assert found.deltas[1.0] == 0.0
    assert found.renyi[1.0] == pytest.approx(0.25 * math.log(2), rel=1e-14)
    assert found.renyi[2.0] == pytest.approx(math.log(1.375), rel=1e-14)


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_audit_of_random_distributions_equals_plain_loops(seed, zeros):
    rng = np.random.default_rng(seed)
    n_datasets, n_outputs = int(rng.integers(2, 9)), int(rng.integers(2, 12))
    table = random_table(rng, n_datasets, n_outputs, zeros)
    pairs = [(i, j) for i in range(n_datasets) for j in range(i) if j == 0 or rng.random() < 0.6]
    assert_same(audit_table(table, pairs), plain_audit(table, pairs))


def test_plain_loops_detect_a_wrong_distribution():
    """The loops of this file detect a probability that is 5 % too large (negative control)."""
    rng = np.random.default_rng(3)
    table = random_table(rng, 4, 6, zeros=False)
    pairs = [(0, 1), (1, 2), (2, 3)]
    wrong = table.copy()
    wrong[1, 2] *= 1.05
    wrong[1] /= wrong[1].sum()
    with pytest.raises(AssertionError):
        assert_same(
            audit_table(wrong, pairs),
            plain_audit(table, pairs),
        )


def test_output_possible_at_one_neighbour_only():
    """If an output is impossible at one neighbour, the loss is infinite, and δ(ε) is its mass at the other."""
    found = audit_table([[0.5, 0.5, 0.0], [0.5, 0.25, 0.25]], epsilons=[0.0, 50.0], orders=[1, 2])
    assert found.epsilon == math.inf
    assert found.witness.log_ratio == math.inf
    assert (found.witness.dataset, found.witness.neighbour, found.witness.output) == (1, 0, 2)
    assert found.deltas == {0.0: 0.25, 50.0: 0.25}
    both = audit_table([[0.5, 0.5, 0.0], [0.75, 0.0, 0.25]], epsilons=[0.0, 1.0], orders=[1, 2])
    assert (both.epsilon, both.deltas) == (math.inf, {0.0: 0.5, 1.0: 0.5})  # the larger of the two masses
    assert found.renyi == both.renyi == {1.0: math.inf, 2.0: math.inf}


def test_equal_distributions_have_no_loss():
    for table in ([[0.5, 0.5]] * 2, [[0.2, 0.3, 0.5]] * 2, [[1.0, 0.0]] * 2, [[1.0]] * 2):
        found = audit_table(table)
        assert found.epsilon == 0.0
        assert set(found.deltas.values()) == set(found.renyi.values()) == {0.0}
        assert found.check(Guarantee(0.1)).holds


def test_distributions_that_differ_by_rounding_of_the_normaliser():
    """Distributions that differ by a factor of 1 + 2e-14, as after rounding, have divergences below 1e-13."""
    found = audit_table([[0.5, 0.5], [0.5 + 1e-14, 0.5 + 1e-14]])
    assert found.epsilon == pytest.approx(2e-14, rel=0.1)
    assert max(found.renyi.values()) < 1e-13


@pytest.mark.parametrize("order", [1 + 1e-9, 1 + 1e-13])
def test_renyi_divergence_is_continuous_at_order_one(order):
    """At orders near 1, where the plain formula loses its digits, Rényi divergences equal the KL divergence."""
    table = [[0.9, 0.1], [0.1, 0.9]]
    found = audit_table(table, orders=[1.0, order])
    assert found.renyi[order] == pytest.approx(found.renyi[1.0], rel=1e-7)


def test_renyi_divergence_converges_to_the_pure_loss():
    table = random_table(np.random.default_rng(5), 3, 5, zeros=False)
    found = audit_table(table, [[0, 1], [0, 2]], orders=[1e3, 1e6, 1e300])
    values = list(found.renyi.values())
    assert values == sorted(values)
    assert values[-1] == pytest.approx(found.epsilon, rel=1e-12)


@pytest.mark.parametrize("zeros", [False, True])
def test_result_does_not_depend_on_threads_or_order(zeros):
    rng = np.random.default_rng(8)
    table = random_table(rng, 20, 15, zeros)
    pairs = np.array([(i, j) for i in range(20) for j in range(i) if rng.random() < 0.4])
    reference = audit_table(table, pairs)
    for n_threads in (2, 3, 7, 1000):
        found = audit_table(table, pairs, n_threads=n_threads)
        assert (found.epsilon, found.witness) == (reference.epsilon, reference.witness)
        np.testing.assert_allclose(list(found.deltas.values()), list(reference.deltas.values()), rtol=1e-13)
        np.testing.assert_allclose(list(found.renyi.values()), list(reference.renyi.values()), rtol=1e-13)
    shuffled = rng.permutation(pairs)[:, ::-1]
    found = audit_table(table, shuffled)
    assert found.epsilon == reference.epsilon
    order = rng.permutation(20)
    place = np.argsort(order)
    assert_same(audit_table(table[order], place[pairs]), values_of(reference))


@pytest.mark.parametrize("seed", range(5))
def test_witness_attains_the_loss(seed):
    rng = np.random.default_rng(seed)
    table = random_table(rng, 6, 7, zeros=False)
    pairs = [(i, j) for i in range(6) for j in range(i)]
    found = audit_table(table, pairs)
    witness = found.witness
    reached = math.log(table[witness.dataset, witness.output]) - math.log(table[witness.neighbour, witness.output])
    assert reached > 0
    assert reached == pytest.approx(found.epsilon, rel=1e-14)
    assert witness.log_ratio == pytest.approx(found.epsilon, rel=1e-14)
    assert tuple(sorted((witness.dataset, witness.neighbour), reverse=True)) in pairs


def unpruned(context, distributions):
    context.setattr(engine.divergences, "hockey_stick_bound", lambda up, down, epsilon: math.inf)
    context.setattr(engine.divergences, "renyi_bound", lambda up, down, order: math.inf)
    return audit_distributions(distributions, EPSILONS, ORDERS)


@pytest.mark.slow
@given(seed=st.integers(0, 2**32 - 1), n_datasets=st.integers(2, 7), n_outputs=st.integers(2, 6), zeros=st.booleans())
@settings(deadline=None, derandomize=True, max_examples=80)
def test_pruning_does_not_change_the_result(seed, n_datasets, n_outputs, zeros):
    rng = np.random.default_rng(seed)
    table = random_table(rng, n_datasets, n_outputs, zeros)
    distributions = OutputDistributions.from_table(table, [(i, j) for i in range(n_datasets) for j in range(i)])
    pruned = audit_distributions(distributions, EPSILONS, ORDERS)
    with pytest.MonkeyPatch.context() as context:
        full = unpruned(context, distributions)
    assert (pruned.epsilon, pruned.witness) == (full.epsilon, full.witness)
    np.testing.assert_allclose(list(pruned.deltas.values()), list(full.deltas.values()), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(list(pruned.renyi.values()), list(full.renyi.values()), rtol=1e-12, atol=1e-15)


@pytest.mark.slow
@given(
    ratios=st.lists(st.floats(-8, 8), min_size=2, max_size=6),
    weights=st.lists(st.floats(0.01, 1), min_size=6, max_size=6),
    epsilon=st.floats(0, 4),
    order=st.sampled_from([1.0, 1.0 + 1e-3, 1.5, 2.0, 10.0, 200.0]),
)
@settings(deadline=None, derandomize=True, max_examples=150)
def test_divergences_are_within_the_pruning_bounds(ratios, weights, epsilon, order):
    """In 50-digit arithmetic, divergences are within the bounds from the largest losses in both directions."""
    with mpmath.workdps(50):
        q = [mpmath.mpf(w) for w in weights[: len(ratios)]]
        p = [w * mpmath.exp(x) for w, x in zip(q, ratios, strict=True)]
        p, q = [x / sum(p) for x in p], [x / sum(q) for x in q]
        losses = [mpmath.log(x / y) for x, y in zip(p, q, strict=True)]
        up, down = float(max(losses)), float(-min(losses))
        delta = sum(max(x - mpmath.exp(epsilon) * y, mpmath.mpf(0)) for x, y in zip(p, q, strict=True))
        if order == 1:
            renyi = sum(x * loss for x, loss in zip(p, losses, strict=True))
        else:
            renyi = mpmath.log(sum(x * mpmath.exp((order - 1) * y) for x, y in zip(p, losses, strict=True)))
            renyi /= order - 1
    if up > 0 and down > 0:
        assert float(delta) <= hockey_stick_bound(up, down, epsilon) * (1 + 1e-9) + 1e-15
        assert float(renyi) <= renyi_bound(up, down, order) * (1 + 1e-9) + 1e-12


def test_pruning_bounds_are_attained_by_two_outputs():
    p, q = [0.7, 0.3], [0.2, 0.8]
    up, down = math.log(3.5), math.log(8 / 3)
    assert hockey_stick_bound(up, down, 0.4) == pytest.approx(hockey_stick(p, q, 0.4), rel=1e-12)
    for order in ORDERS:
        assert renyi_bound(up, down, order) == pytest.approx(plain_renyi(p, q, order), rel=1e-12)


def test_verdict_has_slack_and_text():
    distributions = OutputDistributions.from_table([[0.75, 0.25], [0.25, 0.75]], [[0, 1]])
    found = audit_distributions(distributions, epsilons=[0.5, 1.0])
    delta = 0.75 - 0.25 * math.e
    for guarantee, slack, text in (
        (Guarantee(1.5), 1.5 - math.log(3), "within 1.5-DP: loses 1.0986, slack 0.4014"),
        (Guarantee(1.0), 1.0 - math.log(3), "broken: stated 1-DP, loses 1.0986 at 0 against 1, output 0"),
        (Guarantee(1.0, 0.1), 0.1 - delta, "within (1, 0.1)-DP: delta 0.0704, slack 0.0296"),
        (Guarantee(1.0, 0.07), 0.07 - delta,
         "broken: stated (1, 0.07)-DP, delta is 0.0704; worst ratio at 0 against 1, output 0"),
        # δ = 0 is sufficient, since the pure loss is at most ε
        (Guarantee(2.0, 1e-8), 2.0 - math.log(3), "within (2, 1e-08)-DP: loses 1.0986, slack 0.9014"),
    ):  # fmt: skip
        verdict = found.check(guarantee)
        assert (verdict.holds, verdict.text) == (text.startswith("within"), text)
        assert verdict.slack == pytest.approx(slack, rel=1e-12)
    assert_refused(lambda: found.check(Guarantee(0.7, 0.01)), "epsilon must be one of the audited")


@pytest.mark.parametrize("stated", [1e-12, 1e-4, 1.0, 100.0])
@pytest.mark.parametrize(("excess", "holds"), [(0.9 * ROUNDING, True), (1.1 * ROUNDING, False)])
def test_rounding_tolerance_is_relative(stated, excess, holds):
    loss = stated * (1.0 + excess)
    verdict = Audit(loss, Witness(0, 1, 0, loss), {}, {}, 1, 2).check(Guarantee(stated))
    assert verdict.holds == holds
    assert verdict.slack == pytest.approx(-excess * stated, rel=1e-6)
    assert "-0" not in verdict.text.replace("e-0", "")
    others = Audit(math.inf, Witness(0, 1, 0, math.inf), {1.0: 0.01 * (1 + excess)}, {2.0: loss}, 1, 2)
    assert others.check(Guarantee(1.0, 0.01)).holds == holds
    by_divergence = others.check(RenyiGuarantee(2, stated))
    assert by_divergence.holds == holds
    assert "slack -" not in by_divergence.text


def test_loss_of_1e_9_violates_a_guarantee_of_1e_12():
    table = [[0.5, 0.5], [0.5 + 5e-10, 0.5 - 5e-10]]
    found = audit_table(table)
    assert found.epsilon == pytest.approx(1e-9, rel=1e-6)
    verdict = found.check(Guarantee(1e-12))
    assert not verdict.holds
    assert verdict.text.startswith("broken: stated 1e-12-DP, loses 1e-09 at ")
    assert found.check(Guarantee(1.001e-9)).holds


def test_verdict_allows_for_the_error_of_log_probabilities():
    table = [[0.5, 0.5 - 1e-5, 1e-5], [0.5, 0.5 - 2e-5, 2e-5]]
    found = audit_table(table)
    assert found.epsilon == pytest.approx(math.log(2), rel=1e-12)
    assert 1e-15 < found.rounding < 2e-14
    for factor, holds in ((0.9, True), (1.1, False)):
        loss = 1e-10 * (1 + ROUNDING) + factor * found.rounding
        one = Audit(loss, found.witness, {}, {2.0: loss}, 1, 3, rounding=found.rounding)
        assert one.check(Guarantee(1e-10)).holds == holds
        assert not one.check(RenyiGuarantee(2, 1e-10)).holds  # rounding changes a Rényi divergence by 1e-24 only


def truncated_geometric(epsilon, n, count):
    """Return the output distribution of `geometric` at k = 2, in the working precision of mpmath."""
    q = mpmath.exp(-mpmath.mpf(epsilon))
    inner = [(1 - q) / (1 + q) * q ** abs(r - count) for r in range(1, n)]
    return [q**count / (1 + q), *inner, q ** (n - count) / (1 + q)]


@pytest.mark.parametrize("order", [1.0, 1.0 + 1e-6, 1.01, 2.0, 10.0, 1e3, 1e6])
@pytest.mark.parametrize("epsilon", [1e-7, 1e-6, 1e-5, 1e-4, 1e-2, 1.0])
def test_small_divergences_equal_those_in_60_digits(epsilon, order):
    """Divergences for small ε agree with 60-digit arithmetic, up to the rounding of the log probabilities."""
    with mpmath.workdps(60):
        p, q = truncated_geometric(epsilon, 5, 2), truncated_geometric(epsilon, 5, 3)
        if order == 1:
            exact = sum(a * mpmath.log(a / b) for a, b in zip(p, q, strict=True))
        else:
            mu = mpmath.mpf(order) - 1
            exact = mpmath.log(sum(a * (a / b) ** mu for a, b in zip(p, q, strict=True))) / mu
        log_p, log_q = (np.array([float(mpmath.log(x)) for x in pmf]) for pmf in (p, q))
    largest = float(-np.concatenate([log_p, log_q]).min())
    assert renyi_divergence(log_p, log_q, order) == pytest.approx(float(exact), rel=1e-14 + 4e-16 * largest / epsilon)
    assert renyi_bound(epsilon, epsilon, order) == pytest.approx(float(exact), rel=1e-14)


def test_divergences_include_outputs_that_are_possible_under_q_only():
    """D(P‖Q) is accurate even if most of it is due to an output with mass 1e-9 under Q and 0 under P."""
    log_p = np.array([math.log(0.5), math.log(0.5), -math.inf])
    log_q = np.array([math.log(0.5) + math.log1p(-1e-9)] * 2 + [math.log(1e-9)])
    for order in (1.0, 1.5, 2.0, 50.0):
        assert renyi_divergence(log_p, log_q, order) == pytest.approx(-math.log1p(-1e-9), rel=1e-6)
        assert renyi_divergence(log_q, log_p, order) == math.inf


@pytest.mark.parametrize("epsilon", [1e-7, 1e-4])
def test_divergence_of_geometric_counts_is_that_of_randomised_response(epsilon):
    """At k = 2 the largest divergence of order 1 is ε·tanh(ε/2), that of randomised response."""
    found = audit_counts("geometric", [1, 1], 5, epsilon, orders=(1.0, 2.0))
    divergence = epsilon * math.tanh(epsilon / 2)
    assert found.renyi[1.0] == pytest.approx(divergence, rel=4e-15 / epsilon)
    assert found.check(RenyiGuarantee(1, divergence)).holds
    assert not found.check(RenyiGuarantee(1, 0.95 * divergence)).holds
    assert found.check(Guarantee(epsilon)).holds


def test_renyi_guarantees_are_checked_at_their_order():
    """Rényi guarantees of order 2 are checked against D₂ = ln(9/4 + 1/12) for randomised response at ¾."""
    found = audit_table([[0.75, 0.25], [0.25, 0.75]], orders=[1, 2])
    exact = math.log(0.75**2 / 0.25 + 0.25**2 / 0.75)
    verdict = found.check(RenyiGuarantee(2, 0.9))
    assert (verdict.holds, verdict.text) == (True, "within (2, 0.9)-RDP: reaches 0.847298, slack 0.0527021")
    assert verdict.slack == pytest.approx(0.9 - exact, rel=1e-12)
    assert found.check(RenyiGuarantee(2, exact)).holds
    broken = found.check(RenyiGuarantee(2, 0.95 * exact))
    assert not broken.holds
    assert broken.text.endswith("reaches 0.847298; worst ratio at 0 against 1, output 0")
    assert_refused(lambda: found.check(RenyiGuarantee(3, 0.9)), "order must be one of the audited [1.0, 2.0], got 3")


def distributions_of(log_pmf, n_datasets=2, n_outputs=2, pairs=((0, 1),)):
    return OutputDistributions(np.arange(n_datasets), np.arange(n_outputs), np.array(pairs), log_pmf)


def audit_pmf(distribution):
    with np.errstate(divide="ignore"):
        log_pmf = np.log(distribution)
    return audit_distributions(distributions_of(lambda index: log_pmf))


def pair_distributions(pairs):
    return OutputDistributions(np.arange(2), np.arange(2), pairs, lambda index: np.log([0.5, 0.5]))


def audit_at(given):
    return audit_table([[0.5, 0.5]] * 2, **given)


def check_audit(guarantee):
    return audit_table([[0.5, 0.5]] * 2).check(guarantee)


@pytest.mark.parametrize(
    ("call", "argument", "message"),
    [
        (audit_pmf, [0.5, 0.25, 0.25], "a distribution must have shape (2,), got (3,) at data set 0"),
        (audit_pmf, [[0.5, 0.5]], "a distribution must have shape (2,), got (1, 2) at data set 0"),
        (audit_pmf, [0.5, 0.4], "probabilities must sum to 1 within 1e-"),
        (audit_pmf, [0.5, 0.5 + 1e-7], "probabilities must sum to 1 within 1e-"),
        (audit_pmf, [0.5, math.nan], "got nan at data set 0"),
        (audit_pmf, [0.5, math.inf], "got inf at data set 0"),
        (audit_pmf, [0.0, 0.0], "probabilities must sum to 1 within 1e-"),
        (pair_distributions, np.array([0, 1]), "pairs must be integers of shape (P, 2), P >= 1, got int64 of (2,)"),
        (pair_distributions, np.zeros((1, 3), int), "got int64 of (1, 3)"),
        (pair_distributions, np.zeros((0, 2), int), "got int64 of (0, 2)"),
        (pair_distributions, np.array([[0.0, 1.0]]), "got float64 of (1, 2)"),
        (pair_distributions, np.array([[0, 2]]), "pairs must index the 2 data sets, got 0 to 2"),
        (pair_distributions, np.array([[-1, 1]]), "pairs must index the 2 data sets, got -1 to 1"),
        (audit_table, [0.5, 0.5], "probabilities must have shape (D, R), got (2,)"),
        (audit_table, [[0.5, 0.5], [-0.1, 1.1]], "probabilities must be >= 0, got -0.1"),
        (audit_table, [[0.5, 0.5], [math.nan, 1.0]], "probabilities must be >= 0, got nan"),
        (audit_table, [[0.5, 0.5], [0.5, 0.6]], "probabilities must sum to 1 within"),
        # a missing mass of 9e-9 could invalidate the verdict on δ = 1e-8
        (audit_table, [[0.5, 0.5 - 1.8e-8, 0.9e-8], [0.5, 0.5, 0.0]], "probabilities must sum to 1 within"),
        (audit_at, {"epsilons": [-0.1]}, "epsilons must be finite and >= 0, got -0.1"),
        (audit_at, {"epsilons": [1.0, math.nan]}, "epsilons must be finite and >= 0, got nan"),
        (audit_at, {"epsilons": [math.inf]}, "epsilons must be finite and >= 0, got inf"),
        (audit_at, {"orders": [0.5]}, "orders must be finite and >= 1, got 0.5"),
        (audit_at, {"orders": [math.nan]}, "orders must be finite and >= 1, got nan"),
        (audit_at, {"orders": [math.inf]}, "orders must be finite and >= 1, got inf"),
        (check_audit, None, "must be a Guarantee, RenyiGuarantee or ConcentratedGuarantee, got "),
        (check_audit, 1.0, "must be a Guarantee, RenyiGuarantee or ConcentratedGuarantee, got "),
        (check_audit, "1-DP", "must be a Guarantee, RenyiGuarantee or ConcentratedGuarantee, got "),
    ],
)
def test_invalid_arguments_are_refused(call, argument, message):
    assert_refused(lambda: call(argument), message)


def test_too_large_audit_raises_before_computing_distributions(monkeypatch):
    monkeypatch.setattr(engine, "MAX_AUDITED", 3)

    def never(index):
        raise AssertionError("computed")

    with pytest.raises(ValueError, match="must have at most 3 pairs times outputs, got 4"):
        audit_distributions(distributions_of(never, pairs=((0, 1), (1, 0))))


def test_result_does_not_depend_on_cache_size(monkeypatch):
    """The result is the same with a cache that holds only two distributions."""
    rng = np.random.default_rng(2)
    table = random_table(rng, 8, 5, zeros=False)
    pairs = [(i, j) for i in range(8) for j in range(i)]
    distributions = OutputDistributions.from_table(table, pairs)
    reference = audit_distributions(distributions, EPSILONS, ORDERS)
    monkeypatch.setattr(engine, "CACHE_BYTES", 0)
    assert_same(audit_distributions(distributions, EPSILONS, ORDERS), values_of(reference))


def test_concentrated_guarantees_are_checked_at_the_audited_orders():
    """A concentrated guarantee is compared with the divergences at all audited orders above 1."""
    table, pairs = [[0.75, 0.25], [0.25, 0.75]], [[0, 1]]
    found = audit_table(table, pairs, orders=(1.0, 1.5, 4.0, 32.0))
    needed = max(found.renyi[order] / order for order in (1.5, 4.0, 32.0))
    verdict = found.check(ConcentratedGuarantee(needed))
    assert (verdict.holds, verdict.text) == (True, f"within {needed:g}-zCDP at orders 1.5, 4, 32")
    broken = found.check(ConcentratedGuarantee(0.99 * needed))
    assert not broken.holds
    assert "stated (1.5," in broken.text
    with pytest.raises(ValueError, match="an order > 1 must be audited for 1-zCDP, got"):
        audit_table(table, pairs, orders=(1.0,)).check(ConcentratedGuarantee(1.0))


def geometric_logs(n, epsilon):
    """Return the log probabilities of the counts 0 … n with two-sided geometric noise, clipped, at all counts."""
    r = np.arange(n + 1)
    inner = np.where((r == 0) | (r == n), 0.0, math.log(-math.expm1(-epsilon)))
    return inner - math.log1p(math.exp(-epsilon)) - epsilon * np.abs(r - r[:, None])


def neighbours_of(logs):
    """Return output distributions from log probabilities, with successive rows as neighbours."""
    rows, columns = (np.arange(size) for size in logs.shape)
    return OutputDistributions(rows, columns, np.stack([rows[:-1], rows[1:]], axis=1), logs.__getitem__)


def leaking(logs, probability):
    """Return log probabilities of a mechanism that publishes the count itself with the given probability."""
    return np.logaddexp(math.log1p(-probability) + logs, np.where(np.eye(len(logs)), math.log(probability), -np.inf))


def log_table(table):
    with np.errstate(divide="ignore"):
        return np.log(table / table.sum(axis=1, keepdims=True))


def projected_by_the_data(table):
    """Return a table in which releases above the true count, the row, are rounded to the nearest even count."""
    counts, projected = np.arange(len(table)), np.tril(table)
    for row in range(len(table)):
        above = counts > row
        projected[row] += np.bincount(counts[above] // 2 * 2, table[row, above], len(table))
    return projected


RIGHT = geometric_logs(12, 1.0)
AWAY = np.abs(np.subtract.outer(np.arange(13), np.arange(13)))
DEFECTS = {  # log probabilities of mechanisms for one count that are stated to be 1-DP and are not
    "noise 1 % too small": geometric_logs(12, 1.01),
    "leak of 1e-9": leaking(RIGHT, 1e-9),  # the loss changes where it is 1 already
    "support depends on the data": log_table(np.where(AWAY <= 5, np.exp(RIGHT), 0.0)),
    "tail of 1e-5 truncated": log_table(np.where(AWAY < 12, np.exp(RIGHT), 0.0)),
    "projection uses the data": log_table(projected_by_the_data(np.exp(RIGHT))),
    "sentinel": np.concatenate([geometric_logs(12, 2.0), np.full((13, 1), -1e16)], axis=1),
    "sentinel for an impossible output": np.maximum(log_table(np.where(AWAY <= 5, np.exp(RIGHT), 0.0)), -1e16),
}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("defect", DEFECTS)
def test_audit_finds_each_defect_in_both_orders_of_neighbours(defect, reverse):
    logs = DEFECTS[defect]
    found = audit_distributions(neighbours_of(logs[::-1] if reverse else logs), orders=[1e6])
    assert not found.check(Guarantee(1.0)).holds
    if defect != "leak of 1e-9":  # the divergence tends to the pure loss, and differs from it by 1e-6
        assert not found.check(RenyiGuarantee(1e6, 1.0)).holds
    right = audit_distributions(neighbours_of(RIGHT), orders=[1e6])
    assert right.check(Guarantee(1.0)).holds
    assert right.check(RenyiGuarantee(1e6, 1.0)).holds


def test_a_sentinel_of_another_output_does_not_excuse_a_loss_of_counts():
    """A probability exp(−1e16) of one output leaves the loss ln 9 of the other outputs broken."""
    table = np.log([[0.9, 0.1, 1.0], [0.1, 0.9, 1.0], [0.1, 0.9, 1.0]])
    table[:, 2] = -1e16
    mechanism = Mechanism(
        "with-sentinel",
        "A test.",
        release=lambda prior, counts, epsilon, delta: StatedRelease(prior, counts, table[counts[0]]),
        guarantee=lambda epsilon, delta=None: Guarantee(epsilon),
    )
    found = audit_counts(mechanism, [1, 1], 2, epsilon=1.0, orders=(2.0,))
    assert found.rounding < 1e-14
    assert found.renyi_rounding[2.0] < 1e-14
    assert found.check(Guarantee(1.0)).text.startswith("broken: stated 1-DP, loses 2.1972 at ")
    assert not found.check(RenyiGuarantee(2.0, 2.0)).holds
    assert found.check(Guarantee(math.log(9))).holds
    losing = np.array([[math.log(0.9), math.log(0.1), -1e16], [math.log(0.9), math.log(0.1), -1e16 - 10.0]])
    assert not audit_distributions(neighbours_of(losing)).check(Guarantee(1.0)).holds


def random_right_mechanism(rng):
    """Return log probabilities and a guarantee (ε, δ) that they satisfy with equality, or nearly so."""
    epsilon, n = 10.0 ** rng.uniform(-7, 1.3), int(rng.integers(1, 30))
    kind, delta = rng.integers(4), 0.0
    if kind == 0:
        logs = geometric_logs(n, epsilon)
    elif kind == 1:  # exponential mechanism
        scores = rng.uniform(0, 1, (2, n + 1)) * epsilon / 2
        logs = scores - special.logsumexp(scores, axis=1, keepdims=True)
    elif kind == 2:  # post-processed randomised response, with an impossible output
        truth = special.log_expit(epsilon * np.array([[1.0, -1.0], [-1.0, 1.0]]))
        maps = np.column_stack([rng.dirichlet(np.ones(n + 1), 2), np.zeros(2)])
        with np.errstate(divide="ignore"):
            logs = special.logsumexp(truth[:, :, None] + np.log(maps), axis=1)
    else:  # a leak of probability δ
        delta = 10.0 ** rng.uniform(-12, -1)
        identity = np.where(np.eye(n + 1), math.log(delta), -np.inf)
        logs = np.concatenate([math.log1p(-delta) + geometric_logs(n, epsilon), identity], axis=1)
    return logs, Guarantee(epsilon, delta)


@pytest.mark.slow
def test_no_false_alarm_over_random_right_mechanisms():
    rng = np.random.default_rng(28)
    for _ in range(500):
        logs, guarantee = random_right_mechanism(rng)
        found = audit_distributions(neighbours_of(logs), epsilons=[guarantee.epsilon])
        verdict = found.check(guarantee)
        assert verdict.holds, verdict.text
        loss = found.epsilon if guarantee.is_pure else guarantee.epsilon / 0.99
        assert not found.check(Guarantee(0.99 * loss, 0.99 * guarantee.delta)).holds


@pytest.mark.parametrize("excess", [2e-9, 1e-7, 3e-5])
def test_a_broken_verdict_has_enough_digits(excess):
    """The loss in a text differs from the stated loss, however small the excess."""
    lost = math.log1p(math.expm1(1.0 + excess))
    table = [[1 / (1 + math.exp(-lost)), 1 / (1 + math.exp(lost))]]
    found = audit_table([table[0], table[0][::-1]], orders=[2.0])
    shown = found.check(Guarantee(1.0)).text.split("loses ")[1].split(" ")[0]
    assert float(shown) > 1.0
    stated = found.renyi[2.0] * (1 - excess)
    text = found.check(RenyiGuarantee(2.0, stated)).text
    assert float(text.split("reaches ")[1].split(";")[0]) != float(text.split("(2, ")[1].split(")")[0])


def test_outputs_that_underflow_do_not_excuse_a_divergence():
    log_p, log_q = np.array([-0.5, -0.93275, -1e16]), np.array([-0.93275, -0.5, -1e16])
    assert renyi_error(log_p, log_q, 2.0) < 1e-14
