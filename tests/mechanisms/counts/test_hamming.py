"""Tests of the Hamming mechanism against its definition and against independent sums."""

import mpmath
import numpy as np
import pytest

from mechanisms.core.conjugate import enumerate_candidates
from mechanisms.counts.candidates import MAX_TABLE
from mechanisms.counts.hamming import _loss_sums, _normaliser, calibrate_hamming, hamming_loss, require_hamming
from tests.mechanisms.counts.constructors import hamming_mechanism
from tests.mechanisms.counts.enumeration import frequencies_of
from tests.mechanisms.marks import exhaustive
from tests.mechanisms.refusals import assert_refused
from tests.statistical import assert_frequencies, assert_mean_within

COUNTS = [
    (1, 0),
    (4, 9),
    (0, 12),
    (3, 0, 2),
    (0, 0, 7),
    (4, 5, 3),
    (2, 1, 0, 2),
    (0, 0, 0, 5),
    (3, 3, 3, 3),
    (1, 2, 0, 2, 1),
    (0, 4, 1, 0, 0, 1),
]


def distances(counts):
    return np.abs(enumerate_candidates(sum(counts), len(counts)) - np.array(counts)).sum(axis=1) // 2


@pytest.mark.parametrize("inverse_temperature", [1e-7, 0.3, 2.0, 900.0])
@pytest.mark.parametrize("counts", COUNTS)
def test_distribution_equals_its_definition(counts, inverse_temperature):
    """The log-pmf equals its definition, even if all probabilities but one underflow."""
    with mpmath.workdps(50):
        total = mpmath.fsum(mpmath.exp(-mpmath.mpf(inverse_temperature) * int(d)) for d in distances(counts))
        expected = [float(-mpmath.mpf(inverse_temperature) * int(d) - mpmath.log(total)) for d in distances(counts)]
    release = hamming_mechanism(np.ones(len(counts)), counts, inverse_temperature)
    np.testing.assert_allclose(release.log_pmf(), expected, rtol=1e-13, atol=1e-13)
    assert np.isfinite(release.log_pmf()).all()
    assert _normaliser(np.array(counts), _loss_sums(sum(counts), len(counts), inverse_temperature)) == pytest.approx(
        float(total), rel=1e-13
    )


@pytest.mark.parametrize("inverse_temperature", [1e-9, 1e-3, 0.7, 5.0])
@pytest.mark.parametrize("counts", [(1000, 1000), (0, 3000), (500, 700, 300), (0, 0, 1500), (90, 60, 0, 150)])
def test_normaliser_at_large_counts_equals_a_convolution(counts, inverse_temperature):
    """The normaliser is the coefficient of xⁿ in a product of k polynomials, as exp(−m·d) = Π exp(−m·|rᵢ − cᵢ|/2)."""
    n = sum(counts)
    product = np.ones(1)
    for c in counts:
        product = np.convolve(product, np.exp(-0.5 * inverse_temperature * np.abs(np.arange(n + 1) - c)))[: n + 1]
    assert hamming_mechanism(np.ones(len(counts)), counts, inverse_temperature).log_normaliser == pytest.approx(
        np.log(product[n]), rel=1e-12, abs=1e-12
    )
    assert _normaliser(np.array(counts), _loss_sums(n, len(counts), inverse_temperature)) == pytest.approx(
        product[n], rel=1e-12
    )


@pytest.mark.slow
@pytest.mark.parametrize("inverse_temperature", [0.3, *exhaustive(1e-3, 2.0)])
@pytest.mark.parametrize("counts", COUNTS)
def test_draws_follow_the_distribution(counts, inverse_temperature):
    release = hamming_mechanism(np.ones(len(counts)), counts, inverse_temperature)
    draws = release.from_uniforms(np.random.default_rng(3).random((200_000, release.n_uniforms)))
    distribution = release.pmf()
    wrong = distribution * (1 + 0.05 * (-1.0) ** np.arange(distribution.size))
    assert_frequencies(frequencies_of(draws, release.n, release.k), distribution, wrong=wrong)


@pytest.mark.parametrize(
    ("counts", "inverse_temperature"),
    [((600_000, 400_000), 0.7), ((40_000, 0, 60_000), 0.6), ((150,) * 4, 1e-5), ((3,) * 20, 0.4), ((200,) * 30, 1.0)],
)
def test_draws_have_the_exact_means_at_large_sizes(counts, inverse_temperature):
    """Draws have the expected mean distance and the expected counts at sizes that cannot be enumerated."""
    k, n = len(counts), sum(counts)
    release = hamming_mechanism(np.ones(k), counts, inverse_temperature)
    draws = release.from_uniforms(np.random.default_rng(8).random((20_000, release.n_uniforms)))
    assert np.all(draws >= 0)
    np.testing.assert_array_equal(draws.sum(axis=1), n)
    step = 1e-4 * inverse_temperature  # E[d] = −d ln Z / dm
    log_z = [
        hamming_mechanism(np.ones(k), counts, inverse_temperature + sign * step).log_normaliser for sign in (1, -1)
    ]
    assert_mean_within(np.abs(draws - counts).sum(axis=1) / 2, (log_z[1] - log_z[0]) / (2 * step))
    if min(counts) == max(counts):
        for category in range(k):
            assert_mean_within(draws[:, category], n / k)


@pytest.mark.parametrize("inverse_temperature", [1e-4, 0.5, 50.0])
@pytest.mark.parametrize("counts", COUNTS)
def test_extreme_uniforms_give_possible_counts(counts, inverse_temperature):
    release = hamming_mechanism(np.ones(len(counts)), counts, inverse_temperature)
    low, high, n = 0.0, 1 - 2**-53, release.n_uniforms
    corners = np.array(np.meshgrid(*[[low, 2**-60, 0.5, high]] * min(n, 6))).reshape(min(n, 6), -1).T
    draws = release.from_uniforms(np.hstack([corners, np.full((len(corners), n - corners.shape[1]), high)]))
    assert np.all(draws >= 0)
    np.testing.assert_array_equal(draws.sum(axis=1), sum(counts))
    assert np.all(draws[corners[:, 0] == low] == counts)  # the smallest uniform selects distance 0


@pytest.mark.parametrize("inverse_temperature", [1e-6, 0.05, 0.7, 4.0, 40.0])
@pytest.mark.parametrize(("n", "k"), [(1, 2), (2, 2), (3, 2), (40, 2), (1, 3), (2, 3), (12, 3), (1, 4), (7, 4), (4, 6)])
def test_loss_equals_enumeration(n, k, inverse_temperature):
    data_sets = enumerate_candidates(n, k)
    log_pmf = np.array([hamming_mechanism(np.ones(k), c, inverse_temperature).log_pmf() for c in data_sets])
    first, second = np.nonzero(np.abs(data_sets[:, None] - data_sets).sum(axis=-1) == 2)
    searched = float(np.abs(log_pmf[first] - log_pmf[second]).max())
    loss, pair = hamming_loss(n, k, inverse_temperature)
    assert loss == pytest.approx(searched, rel=1e-12, abs=1e-12)
    assert inverse_temperature <= loss <= 2 * inverse_temperature * (1 + 1e-12)
    assert np.abs(pair[0] - pair[1]).sum() == 2
    one, other = (hamming_mechanism(np.ones(k), c, inverse_temperature).log_pmf() for c in pair)
    at = np.flatnonzero((data_sets == pair[0]).all(axis=1))[0]
    assert one[at] - other[at] == pytest.approx(loss, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("epsilon", [1e-6, 0.01, 1.0, 6.0, 60.0])
@pytest.mark.parametrize(("n", "k"), [(1, 2), (2, 2), (100, 2), (5, 3), (60, 3), (20, 4), (9, 5)])
def test_calibrated_loss_equals_epsilon(n, k, epsilon):
    inverse_temperature = calibrate_hamming(n, k, epsilon)
    assert 0.499 * epsilon <= inverse_temperature <= epsilon
    assert hamming_loss(n, k, inverse_temperature)[0] <= epsilon
    larger = inverse_temperature + (epsilon - inverse_temperature) * np.linspace(0, 1, 200)[1:]
    if inverse_temperature < epsilon:
        assert min(hamming_loss(n, k, m)[0] for m in (inverse_temperature * (1 + 1e-9), *larger)) > epsilon


@pytest.mark.parametrize(("k", "n"), [(6, 12), (10, 9), (16, 8)])
def test_alternating_sums_equal_sums_of_positive_terms(k, n):
    """The normalisers in the loss (alternating sums) agree with those of the mechanism (sums of positive terms)."""
    for epsilon in (0.02, 1.0, 3.0):
        inverse_temperature = calibrate_hamming(n, k, epsilon)
        loss, pair = hamming_loss(n, k, inverse_temperature)
        one, other = (hamming_mechanism(np.ones(k), c, inverse_temperature).log_normaliser for c in pair)
        assert other - one + inverse_temperature == pytest.approx(loss, abs=1e-10)
        assert other - one + inverse_temperature <= epsilon + 1e-10


def test_calibrated_inverse_temperature_at_unit_epsilon():
    assert calibrate_hamming(100, 3, 1.0) == pytest.approx(0.682546, abs=1e-6)


def test_too_large_problems_raise():
    for n, k in ((15_000, 3), (1_300, 4), (2_000_000, 2), (8, 16)):
        require_hamming(n, k)
    for n, k in ((16_000, 3), (1_500, 4), (500, 8)):
        with pytest.raises(ValueError, match="data sets up to permutations"):
            require_hamming(n, k)
    assert_refused(lambda: hamming_loss(2, 17, 1.0), "at most 16 categories for the exact loss, got 17")
    assert_refused(lambda: require_hamming(10**7, 2), f"at most {MAX_TABLE:,} entries")
    release = hamming_mechanism([1] * 3, [10**5, 0, 0], 1.0)
    assert_refused(lambda: release.expected_hellinger(), "candidates to stream")
