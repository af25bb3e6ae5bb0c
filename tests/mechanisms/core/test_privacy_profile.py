"""Tests of audited privacy profiles against every pair in small cases, and of their compositions."""

import itertools
import math

import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import from_laplace_mechanism

from mechanisms import (
    Guarantee,
    Ledger,
    Neighbouring,
    OutputDistributions,
    RenyiGuarantee,
    Status,
    audit_counts,
    audited_profile,
    privacy_loss_distribution,
)
from mechanisms.audit.counts import count_distributions
from mechanisms.core.conversions import pure_renyi
from mechanisms.core.exact_losses import audit_distributions
from mechanisms.core.privacy_profile import LARGEST_LOSS, STEP, PrivacyProfile, guarantee_profile, losses_profile
from tests.mechanisms.counts.constructors import discrete_gaussian_counts
from tests.mechanisms.divergences import compose, hockey_stick
from tests.mechanisms.refusals import assert_refused

ROUND = 5e-14
EPSILONS = (0.0, 1e-5, STEP, 0.00025, 0.1, 0.33333, 0.5, 0.77777, 0.95, 1.0, 1.5, 3.0)


def random_distributions(seed, zeros=False):
    rng = np.random.default_rng(seed)
    table = rng.dirichlet(np.full(6, 3.0), size=4)
    if zeros:
        table[0, :2] = 0.0
        table /= table.sum(axis=1, keepdims=True)
    return table, list(itertools.combinations(range(4), 2))


@pytest.fixture(scope="module")
def hamming():
    return audited_profile(count_distributions("hamming-exact", [1, 1, 1], 40, epsilon=1.0))


def test_profile_of_hamming_exact_equals_stored_values(hamming):
    """At ε = 1, δ(0.5) and D₂ have known values for `hamming-exact` and for randomised response."""
    found = audit_counts("hamming-exact", [1, 1, 1], 40, 1.0, epsilons=(0.5,), orders=(2,))
    assert found.deltas[0.5] == pytest.approx(0.106, abs=5e-4)
    assert found.renyi[2] == pytest.approx(0.324, abs=5e-4)
    assert hamming.delta(0.5) == pytest.approx(found.deltas[0.5], abs=ROUND)
    assert guarantee_profile(Guarantee(1.0)).delta(0.5) == pytest.approx(0.288, abs=5e-4)
    assert pure_renyi(1.0, 2) == pytest.approx(0.735, abs=5e-4)
    assert hamming.epsilon(0.0) == pytest.approx(1.0, abs=STEP)


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_audited_profile_and_its_distribution_dominate_every_pair(seed, zeros):
    """The audited profile is at least δ for each pair in both directions, and equal to the largest at grid points."""
    table, pairs = random_distributions(seed, zeros)
    profile = audited_profile(OutputDistributions.from_table(table, pairs))
    dominating = privacy_loss_distribution(profile)
    for epsilon in EPSILONS:
        exact = max(
            hockey_stick(p, q, epsilon) for i, j in pairs for p, q in ((table[i], table[j]), (table[j], table[i]))
        )
        for found in (profile.delta(epsilon), dominating.get_delta_for_epsilon(epsilon)):
            assert exact - ROUND <= found <= exact + 1e-7
        if round(epsilon / STEP) * STEP == epsilon:
            assert profile.delta(epsilon) == pytest.approx(exact, abs=ROUND)


@pytest.mark.parametrize("mechanism", ["hamming-exact", "geometric", "laplace", "smooth"])
def test_dominating_distribution_of_counts_bounds_an_audit(mechanism):
    distributions = count_distributions(mechanism, [1, 1, 1], 7, epsilon=1.3)
    found = audit_distributions(distributions, EPSILONS)
    dominating = privacy_loss_distribution(audited_profile(distributions))
    for epsilon, delta in found.deltas.items():
        assert delta - ROUND <= dominating.get_delta_for_epsilon(epsilon) <= delta + 1e-7
    weaker = privacy_loss_distribution(audited_profile(count_distributions(mechanism, [1, 1, 1], 7, epsilon=1.2)))
    assert weaker.get_delta_for_epsilon(0.1) < found.deltas[0.1] - 1e-3


def exact_composition(losses, masses, times, epsilon):
    """Return δ(ε) of a composition, by a sum over the multinomial numbers of times that each loss occurs."""
    delta = 0.0
    for cuts in itertools.combinations(range(times + len(losses) - 1), len(losses) - 1):
        ends = (-1, *cuts, times + len(losses) - 1)
        counts = np.diff(ends) - 1
        total = float(counts @ losses)
        if total > epsilon:
            log_p = math.lgamma(times + 1) + sum(
                c * math.log(m) - math.lgamma(c + 1) for c, m in zip(counts.tolist(), masses, strict=True)
            )
            delta += math.exp(log_p) * -math.expm1(epsilon - total)
    return delta


@pytest.mark.parametrize("times", [1, 2, 10, 100])
def test_compositions_equal_exact_convolution(times):
    """If losses are between grid points, the δ of a composition is at most 1.001 times the exact convolution."""
    losses, epsilon = np.array([-0.05003, 0.0, 0.05003]), 0.4 * math.sqrt(times) * 0.1
    low = 0.35 / (1 + math.exp(0.05003))
    masses = [low, 0.65, 0.35 - low]
    exact = exact_composition(losses, masses, times, epsilon)
    spent = privacy_loss_distribution(losses_profile(losses, masses)).self_compose(times)
    found = spent.get_delta_for_epsilon(epsilon)
    assert exact * (1 - 1e-9) - 1e-13 <= found <= exact * 1.001
    missed = exact_composition(losses * 0.95, masses, times, epsilon)
    assert missed < exact * 0.999


def test_compositions_of_an_audited_profile_bound_those_of_each_pair():
    """An audited profile composed twice or three times bounds the exact δ for each combination of pairs."""
    table, pairs = random_distributions(7)
    profile = audited_profile(OutputDistributions.from_table(table, pairs))
    both = [(i, j) for i, j in pairs] + [(j, i) for i, j in pairs]
    for times in (2, 3):
        spent = privacy_loss_distribution(profile).self_compose(times)
        for epsilon in (0.2, 1.0, 2.0):
            worst = 0.0
            for chosen in itertools.combinations_with_replacement(both, times):
                p, q = compose((table[i], table[j]) for i, j in chosen)
                worst = max(worst, hockey_stick(p, q, epsilon))
            assert worst <= spent.get_delta_for_epsilon(epsilon) + ROUND


def test_profile_of_an_impossible_output_keeps_its_mass():
    profile = audited_profile(OutputDistributions.from_table([[0.9, 0.1, 0.0], [0.9, 0.0, 0.1]], [[0, 1]]))
    assert [profile.delta(epsilon) for epsilon in (0.0, 3.0, LARGEST_LOSS + 9)] == pytest.approx([0.1] * 3, abs=1e-15)
    assert profile.epsilon(0.05) == math.inf
    assert profile.epsilon(0.0) == math.inf
    assert profile.epsilon(0.2) == 0.0


@pytest.mark.parametrize("guarantee", [Guarantee(0.7), Guarantee(0.00015), Guarantee(2.0, 1e-3), Guarantee(300.0)])
def test_guarantee_profile_equals_its_formula(guarantee):
    profile = guarantee_profile(guarantee)
    loss, delta = guarantee.epsilon, guarantee.delta
    for epsilon in (0.0, STEP, 0.3, 0.65, 1.9, 40.0):
        worst = delta + (1 - delta) * max(0.0, -math.expm1(epsilon - loss)) / (1 + math.exp(-loss))
        assert worst - 1e-15 <= profile.delta(epsilon) <= worst + 1e-8


def test_epsilon_inverts_delta(hamming):
    for delta in (1e-6, 0.01, 0.1, 0.2):
        assert hamming.delta(hamming.epsilon(delta)) == pytest.approx(delta, rel=1e-9)


def test_profile_of_losses_equals_the_library():
    positions = np.linspace(-40, 41, 2_000_001)
    middles = (positions[1:] + positions[:-1]) / 2
    masses = np.diff(np.where(positions < 0, 0.5 * np.exp(positions), 1 - 0.5 * np.exp(-positions)))
    found = losses_profile(np.abs(middles - 1) - np.abs(middles), masses)
    library = from_laplace_mechanism(1.0)
    for epsilon in (0.0, 0.2, 0.9):
        assert found.delta(epsilon) == pytest.approx(library.get_delta_for_epsilon(epsilon), abs=1e-4)
        assert found.delta(epsilon) == pytest.approx(-math.expm1((epsilon - 1) / 2), abs=1e-4)


@pytest.mark.parametrize("times", [1, 3])
def test_profile_of_a_truncated_table_includes_the_omitted_mass(times):
    """Omitted outputs have no pure guarantee, and their mass is a lower limit of δ at every ε, also if composed."""
    whole = np.array([[0.5, 0.3, 0.2], [0.3, 0.5, 0.2]])
    table = np.log(whole * (1 - 1e-6))
    pairs = np.array([[0, 1]])
    truncated = OutputDistributions(np.arange(2), np.arange(3), pairs, table.__getitem__, omitted=1e-6)
    profile = audited_profile(truncated)
    exact = audited_profile(OutputDistributions.from_table(whole, pairs))
    for epsilon in (0.0, 0.3, 1.0, 60.0):
        assert profile.delta(epsilon) == pytest.approx(exact.delta(epsilon) * (1 - 1e-6) + 1e-6, rel=1e-9)
    assert (profile.epsilon(0.0), exact.epsilon(0.0) < 0.52) == (math.inf, True)
    ledger = Ledger().spend(profile, times=times)
    assert ledger.epsilon(0.0) == math.inf
    assert ledger.delta(10.0) == pytest.approx(-math.expm1(times * math.log1p(-1e-6)), rel=1e-3)
    assert_refused(lambda: ledger.guarantee(0), "epsilon must be finite at delta = 0, got inf")
    found = audit_distributions(truncated, epsilons=[1.0], orders=[2.0])
    assert not found.check(Guarantee(5.0)).holds
    assert not found.check(RenyiGuarantee(2.0, 5.0)).holds
    assert found.check(Guarantee(1.0, 1e-6)).holds
    assert not found.check(Guarantee(1.0, 0.9e-6)).holds


@pytest.mark.parametrize("smallest", [-100.0, -600.0, -745.0, -5e3, -1e9])
def test_profile_of_an_underflowing_table_is_not_below_the_pure_loss(smallest):
    """The loss of outputs whose probabilities underflow is part of the pure loss, and infinite beyond the grid."""
    for loss in (1.0, 9.0, 49.0, 60.0):
        low = np.array([[0.0, smallest], [0.0, smallest - loss]])
        profile = audited_profile(OutputDistributions(np.arange(2), np.arange(2), np.array([[0, 1]]), low.__getitem__))
        if loss > LARGEST_LOSS:
            assert profile.epsilon(0.0) == math.inf
        else:
            assert loss <= profile.epsilon(0.0) * (1 + 1e-12) <= loss + 2 * STEP + abs(smallest) * 1e-15


def test_profiles_of_lattice_noise_have_no_pure_guarantee():
    """The losses of discrete Gaussian noise are unbounded at every noise scale, and δ(ε) > 0 at every ε."""
    for noise_std in (0.01, 0.3, 2.0, 40.0):
        profile = discrete_gaussian_counts([1, 1, 1], [5, 3, 0], noise_std).profile()
        assert profile.epsilon(0.0) == math.inf
        assert 0.0 < profile.delta(49.0) <= 1.0
        with pytest.raises(ValueError, match="epsilon must be finite at delta = 0, got inf"):
            Ledger().spend(profile).guarantee(0)


def test_pure_loss_of_projected_lattice_noise_includes_improbable_outputs():
    """At n = 300 the pure loss is attained where probabilities underflow: Pr[v ≤ −300]/Pr[v ≤ −299] = exp(16.7)."""
    distributions = count_distributions("discrete-gaussian", [1, 1], 300, 1.0, 1e-6)
    loss = audit_distributions(distributions).epsilon
    assert loss == pytest.approx(16.732, abs=1e-3)
    assert loss <= audited_profile(distributions).epsilon(0.0) <= loss + 2 * STEP


def test_profiles_have_the_relation_and_status_of_their_source():
    stated = Guarantee(1.0, 1e-8, Neighbouring.ADD_OR_REMOVE_ONE, status=Status.CONJECTURED)
    profile = guarantee_profile(stated)
    assert (profile.relation, profile.status) == (Neighbouring.ADD_OR_REMOVE_ONE, Status.CONJECTURED)
    assert_refused(lambda: privacy_loss_distribution(profile), "a guarantee must be proved, got privacy profile")
    assert privacy_loss_distribution(profile, allow_conjectured=True).get_delta_for_epsilon(1.0) < 2e-8


@pytest.mark.parametrize(
    ("deltas", "message"),
    [
        ([], r"deltas must be in \[0, 1\] of shape \(m \+ 1,\), got shape \(0,\); pass"),
        ([0.5, 1.2], r"deltas must be in \[0, 1\]"),
        ([0.5, np.nan], r"deltas must be in \[0, 1\]"),
        ([0.1, 0.2], "deltas must not increase, got an increase of 0.1; pass a profile"),
    ],
)
def test_invalid_profiles_raise(deltas, message):
    assert_refused(lambda: PrivacyProfile(deltas), message)


def test_invalid_arguments_raise(hamming):
    for epsilon in (-1.0, math.nan):
        with pytest.raises(ValueError, match="epsilon must be >= 0, got"):
            hamming.delta(epsilon)
    for delta in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match=r"delta must be in \[0, 1\], got"):
            hamming.epsilon(delta)
