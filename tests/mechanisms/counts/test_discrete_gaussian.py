"""Tests of discrete Gaussian noise on the lattice of counts against enumeration, OpenDP and dp-accounting."""

import math

import mpmath
import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import from_discrete_gaussian_mechanism

from mechanisms import enumerate_candidates, hellinger, privacy_loss_distribution
from mechanisms.core.conversions import concentrated_epsilon
from mechanisms.counts.discrete_gaussian import calibrate_noise_std, loss_distribution, omitted_mass
from tests.mechanisms.counts.constructors import discrete_gaussian_counts, draw_vectors, vectors_from
from tests.mechanisms.counts.enumeration import count_rows, frequencies_of
from tests.mechanisms.counts.test_k_norm import projected_pmf
from tests.mechanisms.marks import in_turn
from tests.mechanisms.refusals import assert_refused
from tests.statistical import assert_frequencies, assert_mean_within, assert_rejects

CASES = [(2, 0.4), (2, 3.0), (3, 0.6), (3, 1.8), (4, 0.9), (4, 2.6)]
COUNTS = {2: (4, 1), 3: (3, 0, 2), 4: (2, 2, 0, 1)}


def lattice(k, noise_std):
    """Return the lattice vectors up to ten standard deviations from 0, and their log probabilities."""
    reach = math.ceil(10 * noise_std) + 1
    axes = np.meshgrid(*[np.arange(-reach, reach + 1)] * (k - 1), indexing="ij")
    vectors = np.stack([*axes, -sum(axes)], axis=-1).reshape(-1, k)
    logs = -np.square(vectors).sum(axis=1) / (2 * noise_std**2)
    return vectors, logs - math.log(math.fsum(np.exp(logs)))


@pytest.mark.slow
@pytest.mark.parametrize(("k", "noise_std"), in_turn(CASES))
def test_profile_equals_enumeration(k, noise_std):
    """The privacy profile equals the enumerated hockey-stick divergence of each pair of neighbours."""
    vectors, logs = lattice(k, noise_std)
    place = {tuple(v): i for i, v in enumerate(vectors.tolist())}
    move = np.eye(k, dtype=int)[1] - np.eye(k, dtype=int)[0]
    shifted = np.array([logs[place[v]] if (v := tuple(row)) in place else -np.inf for row in (vectors - move).tolist()])
    profile = discrete_gaussian_counts(np.ones(k), COUNTS[k], noise_std).profile()
    for epsilon in (0.0, 0.3 / noise_std, 2.0 / noise_std, 4.0 / noise_std):
        exact = np.maximum(np.exp(logs) - np.exp(epsilon + shifted), 0.0).sum()
        assert exact - 1e-13 <= profile.delta(epsilon) <= exact + 1e-6 * max(exact, 1e-3)


def test_two_categories_equal_the_discrete_gaussian_of_dp_accounting():
    """At k = 2 the noise is (x, −x), and x has the privacy loss of a discrete Gaussian with parameter σ/√2."""
    mechanism = discrete_gaussian_counts([1, 1], [4, 1], 3.0)
    library = from_discrete_gaussian_mechanism(3.0 / math.sqrt(2), sensitivity=1)
    ours = privacy_loss_distribution(mechanism.profile())
    for times in (1, 4):
        one, other = (each.self_compose(times) for each in (ours, library))
        for epsilon in (0.1, 0.5, 1.0, 2.0):
            assert one.get_delta_for_epsilon(epsilon) == pytest.approx(
                other.get_delta_for_epsilon(epsilon), rel=2e-3 * times, abs=1e-12
            )


@pytest.mark.parametrize("k", [2, 3, 10])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-8), (1.0, 1e-6), (8.0, 1e-3)])
def test_calibrated_delta_is_attained_and_exceeded_with_less_noise(k, epsilon, delta):
    noise_std = calibrate_noise_std(epsilon, delta, k)
    counts = [1] * k
    for factor, holds in ((1.0, True), (0.97, False)):
        profile = discrete_gaussian_counts(np.ones(k), counts, factor * noise_std).profile()
        assert (profile.delta(epsilon) <= delta * (1 + 1e-3)) is holds  # the interpolation error is below 0.1 %
    assert concentrated_epsilon(noise_std**-2, delta) >= epsilon * (1 - 1e-9)


def delta_in_digits(noise_std, epsilon, k):
    """Return δ(ε) at k = 2 or 3 in 60-digit arithmetic, from the pmf of t = vⱼ − vᵢ."""
    with mpmath.workdps(60):
        variance = mpmath.mpf(noise_std) ** 2
        reach = math.ceil(60 * noise_std) + 60
        others = [0] if k == 2 else range(-reach, reach + 1)  # u = vᵢ + vⱼ, which is minus the entry of v₃
        weights = [mpmath.exp(-u * u / (4 * variance) - (u * u / (2 * variance) if k == 3 else 0)) for u in others]
        parity = [mpmath.fsum(w for u, w in zip(others, weights, strict=True) if u % 2 == p) for p in (0, 1)]
        masses = {t: mpmath.exp(-t * t / (4 * variance)) * parity[t % 2] for t in range(-reach, reach + 1)}
        losing = [(p, (1 - t) / variance) for t, p in masses.items() if (1 - t) / variance > epsilon]
        return mpmath.fsum(p * -mpmath.expm1(epsilon - loss) for p, loss in losing) / mpmath.fsum(masses.values())


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [(1.0, 1e-6), (1.0, 1e-13), (1.0, 1e-21), (1.0, 1e-30), (8.0, 1e-100), (20.0, 1e-250), (300.0, 1e-30), (0.1, 0.01)],
)
def test_calibrated_delta_equals_high_precision_arithmetic(epsilon, delta, k):
    """δ at the calibrated σ is at most as stated and, except near a likely loss, exceeded with 0.1 % less noise."""
    noise_std = calibrate_noise_std(epsilon, delta, k)
    assert delta_in_digits(noise_std, epsilon, k) <= delta
    assert delta_in_digits(0.999 * noise_std, epsilon, k) > delta


@pytest.mark.parametrize("noise_std", [0.3, 2.0, 30.0])
def test_omitted_mass_bounds_the_tail(noise_std):
    """The bound is at least the probability of the losses that the table omits, at each reach."""
    far, near = loss_distribution(3, noise_std, 20.0), loss_distribution(3, noise_std, 3.0)
    beyond = far[1][far[0] > near[0].max()].sum()
    assert 0 < beyond <= omitted_mass(noise_std, 3.0)
    assert omitted_mass(noise_std, 3.0) < 0.02


@pytest.mark.parametrize("order", [2, 3, 5])
@pytest.mark.parametrize(("k", "noise_std"), CASES)
def test_zero_concentrated_guarantee_is_attained_at_integer_orders(k, noise_std, order):
    vectors, logs = lattice(k, noise_std)
    move = np.eye(k, dtype=int)[1] - np.eye(k, dtype=int)[0]
    losses = (2 - 2 * vectors @ move) / (2 * noise_std**2)
    spent = math.log(np.exp(logs + (order - 1) * losses).sum()) / (order - 1)
    stated = order / noise_std**2
    assert spent <= stated * (1 + 1e-12)
    assert spent == pytest.approx(stated, rel=1e-9) or order / noise_std > 5  # else the sum is truncated


@pytest.mark.parametrize(("k", "noise_std"), [*CASES[:-1], (4, 1.2)])
def test_pmf_of_projected_counts_equals_enumeration(k, noise_std):
    counts = np.array(COUNTS[k])
    n = int(counts.sum())
    mechanism = discrete_gaussian_counts(np.ones(k), counts, noise_std)
    vectors, logs = lattice(k, noise_std)
    distribution, found = projected_pmf(vectors + counts, np.exp(logs), n), np.exp(mechanism.log_pmf())
    np.testing.assert_allclose(found, distribution, rtol=1e-7, atol=1e-15)
    assert found.sum() == pytest.approx(1.0, abs=1e-13)
    mean = distribution @ hellinger(1.0 + counts, 1.0 + enumerate_candidates(n, k))
    assert mechanism.expected_hellinger() == pytest.approx(mean, rel=1e-9)


def test_log_pmf_does_not_underflow():
    """The log-pmf is finite and correct for a probability near exp(−37,000), which a float cannot represent."""
    mechanism = discrete_gaussian_counts([1, 1], [500, 500], 2.6)
    logs = mechanism.log_pmf()
    assert logs[0] - logs[1] == pytest.approx((499**2 - 500**2) / 2.6**2, rel=1e-6)
    assert np.all(np.isfinite(logs))


@pytest.mark.slow
@pytest.mark.parametrize(("k", "noise_std"), in_turn(CASES))
def test_draws_have_the_lattice_pmf(k, noise_std):
    """Chi-square tests accept the drawn vectors and counts, and reject draws whose standard deviation is 5 % wrong."""
    counts = np.array(COUNTS[k])
    mechanism = discrete_gaussian_counts(np.ones(k), counts, noise_std)
    uniforms = np.random.default_rng(1).random((40_000, mechanism.n_uniforms))
    vectors, logs = lattice(k, noise_std)
    observed, distribution = count_rows(vectors_from(mechanism, uniforms) - counts, vectors), np.exp(logs)
    assert_frequencies(observed, distribution / distribution.sum(), wrong=np.exp(1.1 * logs))
    assert_frequencies(frequencies_of(mechanism.from_uniforms(uniforms), int(counts.sum()), k), mechanism.pmf())


def test_variance_of_many_categories_is_that_of_correlated_noise():
    mechanism = discrete_gaussian_counts(np.ones(10), [50] * 10, 7.0)
    vectors = draw_vectors(mechanism, 2, 20_000) - 50
    assert np.all(vectors.sum(axis=1) == 0)
    for i in (0, 4, 9):
        assert_mean_within(vectors[:, i].astype(float) ** 2, 0.9 * 49)
        assert_mean_within(vectors[:, i].astype(float), 0.0)
    assert_rejects(assert_mean_within, vectors[:, 0].astype(float) ** 2, 49.0)


@pytest.mark.parametrize(
    ("message", "call"),
    [
        ("tables must have at most", lambda: discrete_gaussian_counts(np.ones(100), [1] * 100, 1e4)),
        (
            "there must be at most 2,000,000,000 terms of convolutions, got .*; use a larger epsilon",
            lambda: discrete_gaussian_counts(np.ones(3), [1, 0, 0], 5_000.0).log_pmf(),
        ),
        ("epsilon must be", lambda: calibrate_noise_std(0.0, 1e-6, 2)),
        ("delta must be", lambda: calibrate_noise_std(1.0, 0.0, 2)),
        # noise beyond the limit of the exact profile
        ("noise of at most 100,000 records, got .*; use larger values", lambda: calibrate_noise_std(1e-8, 1e-8, 3)),
        ("noise of at most 100,000 records, got .*; use larger values", lambda: calibrate_noise_std(1e-6, 1e-12, 3)),
    ],
)
def test_invalid_input_raises(message, call):
    assert_refused(call, message)
