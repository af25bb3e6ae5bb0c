"""Tests of the permute-and-flip mechanism against rational arithmetic, the published algorithm and exact audits."""

from fractions import Fraction

import numpy as np
import pytest

from mechanisms.core.conjugate import balanced_counts, enumerate_candidates
from mechanisms.core.exact_losses import OutputDistributions, audit_distributions
from mechanisms.counts.calibration import calibrate
from mechanisms.counts.permute_and_flip import (
    calibrate_flip,
    log_flip_pmf,
    require_flip_calibratable,
    require_flippable,
)
from mechanisms.counts.sensitivity import Rule, global_sensitivity
from tests.mechanisms.counts.constructors import exponential_mechanism, flip_counts
from tests.mechanisms.marks import exhaustive
from tests.mechanisms.refusals import assert_refused
from tests.statistical import assert_frequencies


def expand(weights):
    """Return the pmf w_r·∫Π_{s≠r}(1 − w_s·t) dt by expanding the product in powers of t, in rational arithmetic."""
    pmf = []
    for r, weight in enumerate(weights):
        powers = [Fraction(1)]
        for s, other in enumerate(weights):
            if s != r:
                shifted = [Fraction(0), *(-Fraction(other) * each for each in powers)]
                powers = [a + b for a, b in zip([*powers, Fraction(0)], shifted, strict=True)]
        pmf.append(float(Fraction(weight) * sum(each / (i + 1) for i, each in enumerate(powers))))
    return np.array(pmf)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "spread"),
    [(2, 1.0), (12, 0.0), (30, 0.05), (30, 3.0), (25, 300.0), *exhaustive((50, 0.01))],
)
def test_quadrature_equals_the_expanded_product(size, spread):
    """The pmf equals the expanded product for nearly equal weights, and for one weight 1 and others near 0."""
    log_weights = -spread * np.random.default_rng(3).random(size)
    log_weights[size // 2] = 0.0
    np.testing.assert_allclose(log_flip_pmf(log_weights), np.log(expand(np.exp(log_weights))), rtol=0, atol=1e-12)


def walk(weights, rng, size):
    """Return draws by the published algorithm: flip a coin per output in random order until the first head."""
    drawn = np.empty(size, dtype=np.int64)
    for trial in range(size):
        for candidate in rng.permutation(len(weights)):
            if rng.random() < weights[candidate]:
                drawn[trial] = candidate
                break
    return drawn


def test_pmf_equals_frequencies_of_the_published_algorithm():
    weights = np.array([1.0, 0.7, 0.7, 0.3, 0.05])
    frequencies = np.bincount(walk(weights, np.random.default_rng(6), 40_000), minlength=5)
    # the pmf of the exponential mechanism, which is proportional to the weights, differs
    assert_frequencies(frequencies, np.exp(log_flip_pmf(np.log(weights))), wrong=weights)


@pytest.mark.parametrize(("prior", "n"), [((1.0, 1.0), 20), ((1.0, 1.0, 1.0), 8), ((0.3, 2.0), 12)])
def test_mean_is_at_most_that_of_the_exponential_mechanism_with_equal_weights(prior, n):
    """The mean distance is at most that of the exponential mechanism at every data set (McKenna & Sheldon 2020)."""
    sensitivity = global_sensitivity(prior, n)
    for c in enumerate_candidates(n, len(prior)):
        flipped = flip_counts(prior, c, 1.0, sensitivity).expected_hellinger()
        assert flipped <= exponential_mechanism(prior, c, 1.0, sensitivity).expected_hellinger() * (1 + 1e-12)


@pytest.mark.parametrize(("prior", "n", "epsilon"), [((1.0, 1.0), 40, 0.3), ((1.0, 1.0, 1.0), 6, 2.0)])
def test_calibrated_loss_equals_epsilon(prior, n, epsilon):
    """The largest loss over all ordered pairs, computed without symmetry, is ε; a 1 % larger rate exceeds ε."""
    found = calibrate_flip(prior, n, epsilon)
    assert found is calibrate_flip(prior, n, epsilon)
    datasets = enumerate_candidates(n, len(prior))
    pairs = np.argwhere(np.abs(datasets[:, None] - datasets).sum(axis=-1) == 2)

    def loss(rate):
        log_pmfs = [flip_counts(prior, c, rate, found.sensitivity(c)).log_pmf() for c in datasets]
        return audit_distributions(OutputDistributions(datasets, datasets, pairs, log_pmfs.__getitem__)).epsilon

    assert loss(found.rate) == pytest.approx(epsilon, rel=1e-9)
    assert found.loss <= epsilon
    assert loss(1.01 * found.rate) > epsilon


@pytest.mark.parametrize(("k", "n"), [(2, 100), (3, 20), (4, 8)])
def test_calibrated_exponential_mechanism_is_more_accurate_at_balanced_data(k, n):
    """With exact calibration, the exponential mechanism has a smaller mean distance than permute-and-flip."""
    prior, counts = np.ones(k), balanced_counts(n, k)
    flip, exponential = calibrate_flip(prior, n, 1.0), calibrate(Rule.SMOOTH, prior, n, 1.0)
    assert flip.rate < exponential.rate
    scale = flip.sensitivity(counts)
    assert (
        flip_counts(prior, counts, flip.rate, scale).expected_hellinger()
        > exponential_mechanism(prior, counts, exponential.rate, scale).expected_hellinger()
    )


def test_invalid_input_raises():
    assert_refused(lambda: require_flippable(600, 4), "there must be at most 2,000,000 candidates")
    assert_refused(lambda: require_flip_calibratable(200, 3), "there must be at most 6,000 candidates")
