"""Audits against plain loops, closed forms and hand-computed tables."""

import math
import re

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mechanisms import audit as engine
from mechanisms.audit import ROUNDING, Audit, OutputDistributions, Witness, audit_distributions
from mechanisms.divergences import hockey_stick_bound, renyi_bound
from mechanisms.privacy import Guarantee, RenyiGuarantee

EPSILONS = (0.0, 0.1, 0.5, 1.0, 3.0)
ORDERS = (1.0, 1.5, 2.0, 10.0)


def plain_loss(p, q):
    """Return the pure loss of P against Q by a loop over outputs."""
    worst = 0.0
    for a, b in zip(p, q, strict=True):
        if a == 0 and b == 0:
            continue
        worst = max(worst, math.inf if a == 0 or b == 0 else abs(math.log(a) - math.log(b)))
    return worst


def plain_hockey_stick(p, q, epsilon):
    return math.fsum(max(a - math.exp(epsilon) * b, 0.0) for a, b in zip(p, q, strict=True))


def plain_renyi(p, q, order):
    """Return the Rényi divergence in 40 digits, as doubles lose all digits near P = Q."""
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
    """Return the loss, δ at EPSILONS and Rényi divergences at ORDERS over all ordered pairs."""
    both = [(table[i], table[j]) for i, j in pairs] + [(table[j], table[i]) for i, j in pairs]
    return (
        max(plain_loss(p, q) for p, q in both),
        [max(plain_hockey_stick(p, q, e) for p, q in both) for e in EPSILONS],
        [max(plain_renyi(p, q, order) for p, q in both) for order in ORDERS],
    )


def random_table(rng, n_datasets, n_outputs, zeros):
    """Return distributions from similar to very different; with `zeros`, some outputs are impossible."""
    base = rng.dirichlet(np.ones(n_outputs)) + 1e-4
    table = base * np.exp(rng.normal(size=(n_datasets, n_outputs)) * 10.0 ** rng.uniform(-3, 0.5))
    if zeros:
        if rng.random() < 0.5:
            table[:, 0] = 0
        table[rng.random(table.shape) < 0.15] = 0
        table[:, -1] += 0.1
    return table / table.sum(axis=1, keepdims=True)


def assert_same(found, expected):
    loss, deltas, renyi = expected
    assert found.epsilon == pytest.approx(loss, rel=1e-12, abs=1e-14)
    np.testing.assert_allclose(list(found.deltas.values()), deltas, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(list(found.renyi.values()), renyi, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("true", [0.51, 0.75, 0.999])
def test_randomised_response_equals_closed_forms(true):
    """The loss is ln(t/f), δ = t − f·e^ε, and Rényi divergences are sums over two outputs."""
    false = 1 - true
    found = audit_distributions(
        OutputDistributions.from_table([[true, false], [false, true]], [[0, 1]]), EPSILONS, ORDERS
    )
    assert found.epsilon == pytest.approx(math.log(true / false), rel=1e-13)
    for epsilon, delta in found.deltas.items():
        assert delta == pytest.approx(max(true - math.exp(epsilon) * false, 0), rel=1e-10, abs=1e-15)
    assert found.renyi[1.0] == pytest.approx((true - false) * math.log(true / false), rel=1e-10)
    for order in (1.5, 2.0, 10.0):
        expected = math.log(true**order * false ** (1 - order) + false**order * true ** (1 - order)) / (order - 1)
        assert found.renyi[order] == pytest.approx(expected, rel=1e-9)
    assert (found.n_pairs, found.n_outputs, found.evidence) == (1, 2, "exact")


def test_audit_equals_a_hand_computed_table():
    """P = (½, ¼, ¼), Q = (¼, ¼, ½), U = (¼, ½, ¼): Σ p²/q = 1 + ¼ + ⅛ for the first pair, 1 + ⅛ + ¼ for the second."""
    table = [[0.5, 0.25, 0.25], [0.25, 0.25, 0.5], [0.25, 0.5, 0.25]]
    found = audit_distributions(
        OutputDistributions.from_table(table, [[0, 1], [1, 2]]), [0.0, math.log(1.5), 1.0], [1, 2]
    )
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
    assert_same(
        audit_distributions(OutputDistributions.from_table(table, pairs), EPSILONS, ORDERS), plain_audit(table, pairs)
    )


def test_plain_loops_detect_a_wrong_distribution():
    """Negative control: one probability is 5 % too large."""
    rng = np.random.default_rng(3)
    table = random_table(rng, 4, 6, zeros=False)
    pairs = [(0, 1), (1, 2), (2, 3)]
    wrong = table.copy()
    wrong[1, 2] *= 1.05
    wrong[1] /= wrong[1].sum()
    with pytest.raises(AssertionError):
        assert_same(
            audit_distributions(OutputDistributions.from_table(wrong, pairs), EPSILONS, ORDERS),
            plain_audit(table, pairs),
        )


def test_output_possible_at_one_neighbour_only():
    """The loss is infinite, and δ is the mass of the output for every ε."""
    found = audit_distributions(
        OutputDistributions.from_table([[0.5, 0.5, 0.0], [0.5, 0.25, 0.25]], [[0, 1]]), [0.0, 50.0], [1, 2]
    )
    assert found.epsilon == math.inf
    assert found.witness.log_ratio == math.inf
    assert (found.witness.dataset, found.witness.neighbour, found.witness.output) == (1, 0, 2)
    assert found.deltas == {0.0: 0.25, 50.0: 0.25}
    assert found.renyi == {1.0: math.inf, 2.0: math.inf}


def test_outputs_possible_at_different_neighbours_only():
    """The differences of log-pmfs are +∞ and −∞; no warning is raised, and δ is the larger mass."""
    found = audit_distributions(
        OutputDistributions.from_table([[0.5, 0.5, 0.0], [0.75, 0.0, 0.25]], [[0, 1]]), [0.0, 1.0], [1, 2]
    )
    assert (found.epsilon, found.deltas) == (math.inf, {0.0: 0.5, 1.0: 0.5})
    assert found.renyi == {1.0: math.inf, 2.0: math.inf}


def test_equal_distributions_have_no_loss():
    for table in ([[0.5, 0.5]] * 2, [[0.2, 0.3, 0.5]] * 2, [[1.0, 0.0]] * 2, [[1.0]] * 2):
        found = audit_distributions(OutputDistributions.from_table(table, [[0, 1]]), EPSILONS, ORDERS)
        assert found.epsilon == 0.0
        assert set(found.deltas.values()) == set(found.renyi.values()) == {0.0}
        assert found.check(Guarantee(0.1)).holds


def test_distributions_that_differ_by_rounding_of_the_normaliser():
    """All log ratios are the same tiny number, so no two-point distribution has mean ratio one."""
    found = audit_distributions(
        OutputDistributions.from_table([[0.5, 0.5], [0.5 + 1e-14, 0.5 + 1e-14]], [[0, 1]]), EPSILONS, ORDERS
    )
    assert found.epsilon == pytest.approx(2e-14, rel=0.1)
    assert max(found.renyi.values()) < 1e-13


@pytest.mark.parametrize("order", [1 + 1e-9, 1 + 1e-13])
def test_renyi_divergence_is_continuous_at_order_one(order):
    """D_λ → KL as λ → 1; at λ − 1 = 1e-13 the logarithm of the sum would lose all digits."""
    table = [[0.9, 0.1], [0.1, 0.9]]
    found = audit_distributions(OutputDistributions.from_table(table, [[0, 1]]), orders=[1.0, order])
    assert found.renyi[order] == pytest.approx(found.renyi[1.0], rel=1e-7)


def test_renyi_divergence_converges_to_the_pure_loss():
    table = random_table(np.random.default_rng(5), 3, 5, zeros=False)
    found = audit_distributions(OutputDistributions.from_table(table, [[0, 1], [0, 2]]), orders=[1e3, 1e6, 1e300])
    values = list(found.renyi.values())
    assert values == sorted(values)
    assert values[-1] == pytest.approx(found.epsilon, rel=1e-12)


@pytest.mark.parametrize("zeros", [False, True])
def test_result_does_not_depend_on_threads_or_order(zeros):
    rng = np.random.default_rng(8)
    table = random_table(rng, 20, 15, zeros)
    pairs = np.array([(i, j) for i in range(20) for j in range(i) if rng.random() < 0.4])
    reference = audit_distributions(OutputDistributions.from_table(table, pairs), EPSILONS, ORDERS)
    for n_threads in (2, 3, 7, 1000):
        found = audit_distributions(OutputDistributions.from_table(table, pairs), EPSILONS, ORDERS, n_threads)
        assert (found.epsilon, found.witness) == (reference.epsilon, reference.witness)
        np.testing.assert_allclose(list(found.deltas.values()), list(reference.deltas.values()), rtol=1e-13)
        np.testing.assert_allclose(list(found.renyi.values()), list(reference.renyi.values()), rtol=1e-13)
    shuffled = rng.permutation(pairs)[:, ::-1]
    found = audit_distributions(OutputDistributions.from_table(table, shuffled), EPSILONS, ORDERS)
    assert found.epsilon == reference.epsilon
    order = rng.permutation(20)
    place = np.argsort(order)
    found = audit_distributions(OutputDistributions.from_table(table[order], place[pairs]), EPSILONS, ORDERS)
    assert_same(found, (reference.epsilon, list(reference.deltas.values()), list(reference.renyi.values())))


@pytest.mark.parametrize("seed", range(5))
def test_witness_attains_the_loss(seed):
    rng = np.random.default_rng(seed)
    table = random_table(rng, 6, 7, zeros=False)
    pairs = [(i, j) for i in range(6) for j in range(i)]
    found = audit_distributions(OutputDistributions.from_table(table, pairs))
    witness = found.witness
    reached = math.log(table[witness.dataset, witness.output]) - math.log(table[witness.neighbour, witness.output])
    assert reached > 0
    assert reached == pytest.approx(found.epsilon, rel=1e-14)
    assert witness.log_ratio == pytest.approx(found.epsilon, rel=1e-14)
    assert tuple(sorted((witness.dataset, witness.neighbour), reverse=True)) in pairs


def unpruned(context, distributions):
    """Audit without pruning."""
    context.setattr(engine, "hockey_stick_bound", lambda up, down, epsilon: math.inf)
    context.setattr(engine, "renyi_bound", lambda up, down, order: math.inf)
    return audit_distributions(distributions, EPSILONS, ORDERS)


@given(
    seed=st.integers(0, 2**32 - 1),
    n_datasets=st.integers(2, 7),
    n_outputs=st.integers(2, 6),
    zeros=st.booleans(),
)
@settings(deadline=None, derandomize=True, max_examples=150)
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


@given(
    ratios=st.lists(st.floats(-8, 8), min_size=2, max_size=6),
    weights=st.lists(st.floats(0.01, 1), min_size=6, max_size=6),
    epsilon=st.floats(0, 4),
    order=st.sampled_from([1.0, 1.0 + 1e-3, 1.5, 2.0, 10.0, 200.0]),
)
@settings(deadline=None, derandomize=True, max_examples=300)
def test_divergences_are_within_the_pruning_bounds(ratios, weights, epsilon, order):
    """Divergences in 50 digits are at most the bounds from the two largest losses."""
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
    assert hockey_stick_bound(up, down, 0.4) == pytest.approx(plain_hockey_stick(p, q, 0.4), rel=1e-12)
    for order in ORDERS:
        assert renyi_bound(up, down, order) == pytest.approx(plain_renyi(p, q, order), rel=1e-12)


def test_verdict_has_slack_and_text():
    distributions = OutputDistributions.from_table([[0.75, 0.25], [0.25, 0.75]], [[0, 1]])
    found = audit_distributions(distributions, epsilons=[0.5, 1.0])
    verdict = found.check(Guarantee(1.5))
    assert verdict.holds
    assert verdict.slack == pytest.approx(1.5 - math.log(3), rel=1e-12)
    assert verdict.text == "within 1.5-DP: loses 1.0986, slack 0.4014"
    verdict = found.check(Guarantee(1.0))
    assert not verdict.holds
    assert verdict.slack == pytest.approx(1.0 - math.log(3), rel=1e-12)
    assert verdict.text == "broken: stated 1-DP, loses 1.0986 at 0 against 1, output 0"
    delta = 0.75 - 0.25 * math.e
    verdict = found.check(Guarantee(1.0, 0.1))
    assert verdict.holds
    assert verdict.slack == pytest.approx(0.1 - delta, rel=1e-12)
    assert verdict.text == "within (1, 0.1)-DP: delta 0.0704, slack 0.0296"
    verdict = found.check(Guarantee(1.0, 0.07))
    assert not verdict.holds
    assert verdict.slack == pytest.approx(0.07 - delta, rel=1e-12)
    assert verdict.text == "broken: stated (1, 0.07)-DP, delta is 0.0704; worst ratio at 0 against 1, output 0"
    verdict = found.check(Guarantee(2.0, 1e-8))  # the pure loss is at most ε
    assert verdict.holds
    assert verdict.text == "within (2, 1e-08)-DP: loses 1.0986, slack 0.9014"
    with pytest.raises(ValueError, match="epsilon must be one of the audited"):
        found.check(Guarantee(0.7, 0.01))


@pytest.mark.parametrize(("excess", "holds"), [(0.9 * ROUNDING, True), (1.1 * ROUNDING, False)])
def test_verdict_tolerates_rounding(excess, holds):
    verdict = Audit(1.0 + excess, Witness(0, 1, 0, 1.0 + excess), {}, {}, 1, 2).check(Guarantee(1.0))
    assert verdict.holds == holds
    assert verdict.slack == pytest.approx(-excess, rel=1e-6)
    assert "-0" not in verdict.text


def test_renyi_guarantees_are_checked_at_their_order():
    """For randomised response at ¾, D₂ = ln(9/4 + 1/12)."""
    found = audit_distributions(OutputDistributions.from_table([[0.75, 0.25], [0.25, 0.75]], [[0, 1]]), orders=[1, 2])
    exact = math.log(0.75**2 / 0.25 + 0.25**2 / 0.75)
    verdict = found.check(RenyiGuarantee(2, 0.9))
    assert (verdict.holds, verdict.text) == (True, "within (2, 0.9)-RDP: reaches 0.847298, slack 0.0527021")
    assert verdict.slack == pytest.approx(0.9 - exact, rel=1e-12)
    assert found.check(RenyiGuarantee(2, exact)).holds
    broken = found.check(RenyiGuarantee(2, 0.95 * exact))
    assert not broken.holds
    assert broken.text.endswith("reaches 0.847298; worst ratio at 0 against 1, output 0")
    with pytest.raises(ValueError, match=re.escape("order must be one of the audited [1.0, 2.0], got 3")):
        found.check(RenyiGuarantee(3, 0.9))


@pytest.mark.parametrize("stated", [1e-12, 1.0, 100.0])
@pytest.mark.parametrize(("excess", "holds"), [(0.9 * ROUNDING, True), (1.1 * ROUNDING, False)])
def test_rounding_tolerance_is_relative_for_small_divergences(stated, excess, holds):
    divergence = stated + excess * min(1.0, stated)
    verdict = Audit(math.inf, Witness(0, 1, 0, math.inf), {}, {2.0: divergence}, 1, 2).check(RenyiGuarantee(2, stated))
    assert verdict.holds == holds
    assert "slack -" not in verdict.text


def distributions_of(log_pmf, n_datasets=2, n_outputs=2, pairs=((0, 1),)):
    return OutputDistributions(np.arange(n_datasets), np.arange(n_outputs), np.array(pairs), log_pmf)


@pytest.mark.parametrize(
    ("distribution", "message"),
    [
        ([0.5, 0.25, 0.25], "a distribution must have shape (2,), got (3,) at data set 0"),
        ([[0.5, 0.5]], "a distribution must have shape (2,), got (1, 2) at data set 0"),
        ([0.5, 0.4], "probabilities must sum to 1 within 1e-"),
        ([0.5, 0.5 + 1e-7], "probabilities must sum to 1 within 1e-"),
        ([0.5, math.nan], "got nan at data set 0"),
        ([0.5, math.inf], "got inf at data set 0"),
        ([0.0, 0.0], "probabilities must sum to 1 within 1e-"),
    ],
)
def test_invalid_distribution_raises(distribution, message):
    with np.errstate(divide="ignore"):
        log_pmf = np.log(distribution)
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        audit_distributions(distributions_of(lambda index: log_pmf))
    assert "\n" not in str(caught.value)


def test_missing_mass_comparable_to_delta_raises():
    """Mechanisms state δ = 1e-8, so a missing mass of 9e-9 would invalidate the verdict."""
    table = [[0.5, 0.5 - 1.8e-8, 0.9e-8], [0.5, 0.5, 0.0]]
    with pytest.raises(ValueError, match="probabilities must sum to 1 within"):
        OutputDistributions.from_table(table, [[0, 1]])


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (np.array([0, 1]), "pairs must be integers of shape (P, 2) with P >= 1, got int64 of shape (2,)"),
        (np.zeros((1, 3), int), "got int64 of shape (1, 3)"),
        (np.zeros((0, 2), int), "got int64 of shape (0, 2)"),
        (np.array([[0.0, 1.0]]), "got float64 of shape (1, 2)"),
        (np.array([[0, 2]]), "pairs must index the 2 data sets, got 0 to 2"),
        (np.array([[-1, 1]]), "pairs must index the 2 data sets, got -1 to 1"),
    ],
)
def test_invalid_pairs_raise(pairs, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        OutputDistributions(np.arange(2), np.arange(2), pairs, lambda index: np.log([0.5, 0.5]))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([0.5, 0.5], "probabilities must have shape (D, R), got (2,)"),
        ([[0.5, 0.5], [-0.1, 1.1]], "probabilities must be >= 0, got -0.1"),
        ([[0.5, 0.5], [math.nan, 1.0]], "probabilities must be >= 0, got nan"),
        ([[0.5, 0.5], [0.5, 0.6]], "probabilities must sum to 1 within"),
    ],
)
def test_invalid_table_raises(table, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        OutputDistributions.from_table(table, [[0, 1]])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epsilons": [-0.1]}, "epsilons must be finite and >= 0, got -0.1"),
        ({"epsilons": [1.0, math.nan]}, "epsilons must be finite and >= 0, got nan"),
        ({"epsilons": [math.inf]}, "epsilons must be finite and >= 0, got inf"),
        ({"orders": [0.5]}, "orders must be finite and >= 1, got 0.5"),
        ({"orders": [math.nan]}, "orders must be finite and >= 1, got nan"),
        ({"orders": [math.inf]}, "orders must be finite and >= 1, got inf"),
    ],
)
def test_invalid_arguments_raise(arguments, message):
    distributions = OutputDistributions.from_table([[0.5, 0.5], [0.5, 0.5]], [[0, 1]])
    with pytest.raises(ValueError, match=re.escape(message)):
        audit_distributions(distributions, **arguments)


def test_too_large_audit_raises_before_computing_distributions(monkeypatch):
    monkeypatch.setattr(engine, "MAX_AUDITED", 3)

    def never(index):
        raise AssertionError("computed")

    with pytest.raises(ValueError, match="must compare at most 3 combinations of pairs and outputs, got 4"):
        audit_distributions(distributions_of(never, pairs=((0, 1), (1, 0))))


def test_result_does_not_depend_on_cache_size(monkeypatch):
    """With a cache of two distributions, distributions are recomputed and the result is unchanged."""
    rng = np.random.default_rng(2)
    table = random_table(rng, 8, 5, zeros=False)
    pairs = [(i, j) for i in range(8) for j in range(i)]
    distributions = OutputDistributions.from_table(table, pairs)
    reference = audit_distributions(distributions, EPSILONS, ORDERS)
    monkeypatch.setattr(engine, "_CACHE_BYTES", 0)
    assert_same(
        audit_distributions(distributions, EPSILONS, ORDERS),
        (reference.epsilon, list(reference.deltas.values()), list(reference.renyi.values())),
    )
