"""Audits of the registered mechanisms against enumeration of all data sets and replacements."""

import dataclasses
import functools
import math

import numpy as np
import pytest
from scipy import special

from mechanisms.audit import counts as count_audit
from mechanisms.audit.counts import audit_counts, count_distributions
from mechanisms.core.privacy import Guarantee, Neighbouring, pure_guarantee
from mechanisms.core.privacy_parameters import SMALLEST_EPSILON
from mechanisms.counts.exponential import exponential_mechanism
from mechanisms.counts.mechanism import Mechanism
from mechanisms.counts.noise import geometric_counts, laplace_counts
from mechanisms.counts.registry import MECHANISMS
from mechanisms.counts.sensitivity import Rule, global_sensitivity
from tests.mechanisms.counts.enumeration import Enumerated
from tests.mechanisms.counts.test_noise import plain_log_pmf
from tests.mechanisms.marks import exhaustive, in_turn
from tests.mechanisms.refusals import assert_refused

DELTA = 1e-6
ELSEWHERE = (0.0, 0.05)
ORDERS = (1.0, 2.0, 7.0)
CASES = [
    ((1.0, 1.0), 1),
    ((1.0, 1.0), 6),
    ((0.01, 100.0), 5),
    ((3.0, 0.2), 6),
    ((1.0, 1.0, 1.0), 1),
    ((1.0, 1.0, 1.0), 4),
    ((2.0, 0.1, 2.0), 4),
    ((0.3, 2.0, 5.0), 3),
    ((1.0, 1.0, 1.0, 1.0), 3),
    ((0.5, 3.0, 0.5, 0.5), 3),
]


enumerated = functools.cache(Enumerated)


def exponential_distributions(name, prior, n, epsilon):
    """Return the output distributions at all data sets, with the sensitivity by its definition over all data sets."""
    everything = enumerated(prior, n)
    local, moves = everything.local, everything.moves
    gamma = math.log(1 - epsilon / (2 * math.log(DELTA / (2 * (n + 1 if name == "smooth-n" else local.size)))))
    exponents = {
        "local": epsilon / (2 * local),
        "global": epsilon / (2 * local.max()) * np.ones(local.size),
        "varying": epsilon / 4 * (1 / local + moves).min(axis=1),
    }.get(name, epsilon / (2 * everything.scales(Rule.SMOOTH, gamma)))
    return special.softmax(-exponents[:, None] * everything.distances, axis=1)


def noisy_distributions(name, prior, n, epsilon):
    builder, k = {"laplace": laplace_counts, "geometric": geometric_counts}[name], len(prior)
    scale = (1 if k == 2 else 2) / epsilon
    return np.exp([plain_log_pmf(builder, counts, scale, 40) for counts in enumerated(prior, n).datasets.tolist()])


def plain_audit(distributions, prior, n, epsilon):
    """Return the maximum over all replacements of the loss, of δ at two values of ε, and of D_λ at λ in `ORDERS`."""
    p, q = (distributions[side] for side in enumerated(prior, n).pairs.T)
    ratio = np.log(p / q)
    deltas = [np.maximum(p - math.exp(e) * q, 0).sum(axis=1).max() for e in (epsilon, *ELSEWHERE)]
    renyi = [(p * ratio if order == 1 else p * np.exp((order - 1) * ratio)).sum(axis=1).max() for order in ORDERS]
    renyi = [total if order == 1 else math.log(total) / (order - 1) for order, total in zip(ORDERS, renyi, strict=True)]
    return ratio.max(), deltas, renyi


def assert_same(found, expected):
    loss, deltas, renyi = expected
    assert found.epsilon == pytest.approx(loss, abs=1e-10)
    np.testing.assert_allclose(list(found.deltas.values()), deltas, rtol=0, atol=1e-10)
    np.testing.assert_allclose(list(found.renyi.values()), renyi, rtol=0, atol=1e-10)


EXPONENTIAL = [  # cases in which each mechanism occurs with each prior and with each epsilon
    (name, prior, n, (0.1, 1.0, 4.0)[(place + case) % 3])
    for place, name in enumerate(["local", "global", "smooth", "smooth-n", "varying"])
    for case, (prior, n) in enumerate(CASES)
]


@pytest.mark.parametrize(("name", "prior", "n", "epsilon"), EXPONENTIAL)
def test_audit_of_exponential_mechanisms_equals_enumeration(name, prior, n, epsilon):
    found = audit_counts(name, prior, n, epsilon, DELTA, ELSEWHERE, ORDERS)
    assert list(found.deltas) == [epsilon, *ELSEWHERE]
    assert_same(found, plain_audit(exponential_distributions(name, prior, n, epsilon), prior, n, epsilon))


NOISE = [  # cases in which each kind of noise occurs with each problem and with each epsilon
    (name, k, n, (0.5, 2.0)[(place + case) % 2])
    for place, name in enumerate(["laplace", "geometric"])
    for case, (k, n) in enumerate([(2, 1), (2, 6), (3, 1), (3, 3), (4, 2)])
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "k", "n", "epsilon"), NOISE)
def test_audit_of_noise_equals_enumeration(name, k, n, epsilon):
    prior = (1.0,) * k
    found = audit_counts(name, prior, n, epsilon, DELTA, ELSEWHERE, ORDERS)
    assert_same(found, plain_audit(noisy_distributions(name, prior, n, epsilon), prior, n, epsilon))


@pytest.mark.parametrize("name", ["smooth", "laplace"])
def test_result_does_not_depend_on_threads(name):
    one, two = (audit_counts(name, [1, 1, 1], 9, 1.0, DELTA, ELSEWHERE, ORDERS, n_threads=t) for t in (1, 2))
    assert one.epsilon == two.epsilon
    assert_same(two, (one.epsilon, list(one.deltas.values()), list(one.renyi.values())))


def test_enumeration_detects_a_wrong_scale():
    """An audit of a mechanism whose sensitivity is 5 % wrong differs from the enumeration (negative control)."""
    prior, n = (1.0, 1.0, 1.0), 3
    wrong = Mechanism(
        "wrong",
        "Not private: 5 % off.",
        release=lambda p, c, e, d: exponential_mechanism(p, c, 0.525 * e, global_scale(p, c)),
        guarantee=lambda e, d: None,
    )
    expected = plain_audit(exponential_distributions("global", prior, n, 1.0), prior, n, 1.0)
    with pytest.raises(AssertionError):
        assert_same(audit_counts(wrong, prior, n, 1.0, DELTA, ELSEWHERE, ORDERS), expected)


def global_scale(prior, counts):
    return global_sensitivity(prior, int(counts.sum()))


def test_smooth_has_half_of_the_stated_loss():
    """The exact loss of the mechanism `smooth` is 0.531 at ε = 1, a uniform prior and n = 100 (erratum A1)."""
    found = audit_counts("smooth", [1, 1], 100, epsilon=1.0)
    assert found.epsilon == pytest.approx(0.531, abs=5e-4)
    assert found.deltas == {1.0: 0.0}
    assert found.check(MECHANISMS["smooth"].guarantee(1.0, 1e-8)).holds


def test_local_exceeds_epsilon_at_a_skewed_prior():
    """The loss of the mechanism `local` is below ε under the prior Beta(1, 1), and above ε under Beta(0.01, 100)."""
    broken = audit_counts("local", [0.01, 100], 300, epsilon=0.1)
    assert broken.epsilon / 0.1 == pytest.approx(1.10, abs=5e-3)
    verdict = broken.check(Guarantee(0.1))
    assert not verdict.holds
    assert verdict.text.startswith("broken: stated 0.1-DP, loses 0.11")
    for n in (10, 100, 1000):
        for epsilon in (0.1, 1.0):
            assert audit_counts("local", [1, 1], n, epsilon).epsilon < epsilon


PROBLEMS = [
    ((1.0, 1.0), 1),
    ((1.0, 1.0), 25),
    ((0.01, 100.0), 15),
    ((5.0, 0.3), 17),
    ((2.0, 0.1, 2.0), 7),
    ((0.3, 2.0, 5.0), 7),
    ((1.0,) * 4, 4),
]
REGISTERED = [  # cases in which each mechanism occurs with each prior and with each epsilon
    (name, prior, n, (0.2, 1.0, 5.0)[(place + case) % 3])
    for place, name in enumerate(name for name in MECHANISMS if MECHANISMS[name].is_private)
    for case, (prior, n) in enumerate(PROBLEMS)
]


@pytest.mark.parametrize(("name", "prior", "n", "epsilon"), REGISTERED)
def test_registered_mechanisms_satisfy_their_guarantee(name, prior, n, epsilon):
    found = audit_counts(name, prior, n, epsilon)
    verdict = found.check(MECHANISMS[name].guarantee(epsilon, 1e-8))
    assert verdict.holds, verdict.text


@pytest.mark.parametrize("k", [2, 3, 4])
@pytest.mark.parametrize("name", ["laplace", "geometric"])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 5.0, 80.0])
def test_loss_of_noise_equals_epsilon(name, k, epsilon):
    """At ε = 80 the least likely output at k = 2 has the probability e^-2400."""
    found = audit_counts(name, [1.0] * k, {2: 30, 3: 10, 4: 6}[k], epsilon)
    assert found.epsilon == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize(
    "mechanism",
    [
        Mechanism(
            name="twice",
            note="Not private: the exponential mechanism with ε/S instead of ε/(2S).",
            release=lambda p, c, e, d: exponential_mechanism(p, c, e, global_scale(p, c)),
            guarantee=lambda e, d: Guarantee(e),
            symmetric=True,
        ),
        Mechanism(
            name="less-noise",
            note="Not private: Laplace noise with a 5 % too small scale.",
            release=lambda p, c, e, d: laplace_counts(p, c, (1 if c.size == 2 else 2) / (1.05 * e)),
            guarantee=lambda e, d: Guarantee(e),
        ),
    ],
    ids=lambda mechanism: mechanism.name,
)
@pytest.mark.parametrize("k", [2, 3])
def test_overstated_guarantees_are_violated(mechanism, k):
    """Audits reject guarantees with an ε below the loss (negative control), and their witnesses attain the loss."""
    n, prior = {2: 40, 3: 12}[k], np.full(k, 10.0)
    found = audit_counts(mechanism, prior, n, epsilon=1.0)
    verdict = found.check(mechanism.guarantee(1.0, 1e-8))
    assert not verdict.holds
    assert verdict.slack < -0.01
    witness = found.witness
    assert verdict.text == f"broken: stated 1-DP, loses {found.epsilon:.4f} at {witness}"
    assert np.abs(witness.dataset - witness.neighbour).sum() == 2
    distributions = [mechanism.build(prior, c, 1.0, 1e-8).log_pmf() for c in (witness.dataset, witness.neighbour)]
    outputs = count_distributions(mechanism, prior, n, 1.0).outputs
    place = np.flatnonzero((outputs == witness.output).all(axis=1))[0]
    assert distributions[0][place] - distributions[1][place] == pytest.approx(found.epsilon, rel=1e-12)


TIED = [((1.0, 1.0), 20), ((2.0, 2.0, 2.0), 7), ((1.0, 2.0, 1.0), 7), ((1.0,) * 4, 4)]
SYMMETRIC = in_turn(  # cases in which each mechanism occurs with two of four priors
    (name, *TIED[(place + 2 * case) % 4])
    for place, name in enumerate(name for name in MECHANISMS if MECHANISMS[name].symmetric)
    for case in range(2)
)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "prior", "n"), SYMMETRIC)
def test_symmetry_reduces_pairs_without_changing_results(name, prior, n):
    entry = MECHANISMS[name]
    reduced = audit_counts(entry, prior, n, 0.9, DELTA, ELSEWHERE, ORDERS)
    full = audit_counts(dataclasses.replace(entry, symmetric=False), prior, n, 0.9, DELTA, ELSEWHERE, ORDERS)
    assert reduced.n_pairs < full.n_pairs
    assert_same(reduced, (full.epsilon, list(full.deltas.values()), list(full.renyi.values())))


@pytest.mark.parametrize("name", [name for name in MECHANISMS if not MECHANISMS[name].uses_prior])
def test_audit_of_a_mechanism_without_prior_equals_that_at_any_prior(name):
    prior, n, entry = (0.3, 2.0, 50.0), 6, MECHANISMS[name]
    reduced = audit_counts(entry, prior, n, 0.9, DELTA, ELSEWHERE, ORDERS)
    full = audit_counts(dataclasses.replace(entry, name="full"), prior, n, 0.9, DELTA, ELSEWHERE, ORDERS)
    assert (reduced.n_pairs < full.n_pairs) is entry.symmetric
    assert_same(reduced, (full.epsilon, list(full.deltas.values()), list(full.renyi.values())))


def test_prior_of_unregistered_mechanisms_is_used():
    """A custom mechanism that uses the prior, but states that it does not, is audited at the given prior."""

    def leaking(prior, counts, epsilon, delta):
        return exponential_mechanism(prior, counts, 0.1 if prior[0] == 1.0 else 50.0, 1.0)

    sly = Mechanism("sly", release=leaking, guarantee=lambda e, d: Guarantee(e), uses_prior=False)
    assert audit_counts(sly, (1.0, 1.0), 6, epsilon=1.0).epsilon < 1.0
    assert audit_counts(sly, (2.0, 1.0), 6, epsilon=1.0).epsilon > 10.0


def test_releases_that_overwrite_their_arguments_do_not_change_the_audit():
    def release(prior, counts, epsilon, delta):
        found = laplace_counts(prior, counts, 2.0 / epsilon)
        prior[:], counts[:] = 9.0, 0
        return found

    overwriting, plain = (
        Mechanism(name="plug-in", note="test", release=each, guarantee=pure_guarantee)
        for each in (release, lambda prior, counts, epsilon, delta: laplace_counts(prior, counts, 2.0 / epsilon))
    )
    found, expected = (audit_counts(each, [1, 1, 2], 4, 1.0) for each in (overwriting, plain))
    assert (found.epsilon, str(found.witness)) == (expected.epsilon, str(expected.witness))


def test_symmetry_of_unregistered_mechanisms_and_added_entries_is_ignored(monkeypatch):
    """A mechanism that declares symmetry, but has a larger loss at one data set, is audited over all pairs."""

    def leaking(prior, counts, epsilon, delta):
        return exponential_mechanism(prior, counts, 50.0 if counts[0] == counts.sum() else 0.05, 1.0)

    sly = Mechanism("sly", "Leaks.", release=leaking, guarantee=pure_guarantee, symmetric=True)
    named = dataclasses.replace(sly, name="smooth")  # the name of a registered mechanism does not change the audit
    for prior, n in (([1, 1], 3), ([1, 1], 20), ([1, 1, 1], 8)):
        found = audit_counts(sly, prior, n, epsilon=1.0)
        assert found.epsilon > 10
        assert not found.check(sly.guarantee(1.0)).holds
        assert found.witness.dataset[0] == n or found.witness.neighbour[0] == n
        with monkeypatch.context() as patch:
            patch.setitem(MECHANISMS, "sly", sly)
            patch.setitem(MECHANISMS, "smooth", named)
            losses = [audit_counts(each, prior, n, epsilon=1.0).epsilon for each in ("sly", "smooth")]
        assert [*losses, audit_counts(named, prior, n, epsilon=1.0).epsilon] == [found.epsilon] * 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("smoth", [1, 1], 3, 1.0), "mechanism must be one of smooth, .*, got 'smoth'"),
        (("smooth", [1, 0], 5, 1.0), "prior must have positive finite entries"),
        (("smooth", [1, 1], 5, 1.0, 1e-8, (-1.0,)), "epsilons must be finite and >= 0, got -1.0"),
        (("smooth", [1, 1], 5, 1.0, 1e-8, (), (0.9,)), "orders must be finite and >= 1, got 0.9"),
        (("smooth", [1, 1, 1], 2000, 1.0), r"at most .* combinations .* exact audit, got .* \(n = 2000, k = 3\)"),
        (("smooth", [1, 1], 60_000, 1.0), "combinations of pairs and outputs"),
        (("smooth", [1.0] * 1100, 3, 1.0), "candidates to enumerate"),
        (("laplace", [1.0] * 6, 38, 1.0), "combinations of pairs and outputs"),
    ],
)
def test_invalid_input_raises(arguments, message):
    assert_refused(lambda: audit_counts(*arguments), message)


def test_too_large_audit_raises_before_enumeration(monkeypatch):
    def never(n, k):
        raise AssertionError("enumerated")

    monkeypatch.setattr(count_audit, "enumerate_candidates", never)
    with pytest.raises(ValueError, match="use fewer records, or a mechanism with a proof for every size"):
        count_distributions("smooth", [1, 1, 1, 1], 600, 1.0)


@pytest.mark.parametrize("name", MECHANISMS)
def test_released_counts_reveal_a_private_number_of_records(name):
    """If neighbours differ by one added record, released counts reveal it: the loss is infinite, with no guarantee."""
    added = Neighbouring.ADD_OR_REMOVE_ONE
    assert MECHANISMS[name].stated(1.0, 1e-8, added) is None
    found = audit_counts(name, [1, 1, 1], 4, 1.0, relation=added)
    assert (found.epsilon, found.deltas[1.0]) == (math.inf, pytest.approx(1.0, abs=1e-9))
    assert found.witness.neighbour.sum() != found.witness.dataset.sum() == found.witness.output.sum()
    stated = MECHANISMS[name].stated(1.0, 1e-8) or Guarantee(1.0)
    assert_refused(lambda: found.check(stated), "a guarantee must be checked under its own relation")
    assert not found.check(Guarantee(1.0, relation=added)).holds


# The smallest ε

# discrete-gaussian refuses noise of more than 100,000 records
RESOLVED = [name for name, mechanism in MECHANISMS.items() if mechanism.is_private and name != "discrete-gaussian"]


@pytest.mark.slow
@pytest.mark.parametrize("name", RESOLVED)
@pytest.mark.parametrize(
    ("prior", "n"),
    [((0.3, 2.0, 5.0), 6), *exhaustive(((1.0, 1.0), 30), ((1.0, 1.0, 1.0), 8))],
)
def test_loss_is_resolved_at_the_smallest_epsilon(name, prior, n):
    """The loss is at most ε, and for exactly calibrated mechanisms equal to ε, to one part in 10⁶."""
    found = audit_counts(name, prior, n, SMALLEST_EPSILON)
    assert found.epsilon <= SMALLEST_EPSILON * (1 + 1e-6)
    assert found.rounding < 1e-5 * SMALLEST_EPSILON
    assert found.check(MECHANISMS[name].guarantee(SMALLEST_EPSILON, 1e-8)).holds
    if MECHANISMS[name].calibrate is not None:
        assert found.epsilon >= SMALLEST_EPSILON * (1 - 1e-6)
