"""Tests of the sparse vector technique: exact pmf, draws, privacy loss over all data sets, and termination."""

import functools
import math
from dataclasses import replace

import numpy as np
import pytest

from mechanisms.audit.partitions import search_distributions
from mechanisms.core.exact_losses import audit_distributions
from mechanisms.regression.sparse_vector import SparseVector, calibrate_search
from tests.mechanisms.marks import REPEATED, in_turn
from tests.mechanisms.refusals import assert_refused
from tests.statistical import assert_frequencies, assert_rejects


def difference_tail(t, a, b):
    """Return Pr[X − Y ≥ t] for Laplace variables X and Y with scales a ≠ b, in closed form."""
    upper = (b * b * math.exp(-abs(t) / b) - a * a * math.exp(-abs(t) / a)) / (2 * (b * b - a * a))
    return upper if t >= 0 else 1 - upper


@functools.cache
def audit(search):
    return audit_distributions(search_distributions(search))


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 20.0])
@pytest.mark.parametrize("count", [0, 7, 8, 10])
def test_pmf_of_one_test_equals_closed_form(count, epsilon):
    search = SparseVector(10, epsilon, share=0.8, doublings=1)
    expected = difference_tail(8.0 - count, search.query_scale, search.threshold_scale)
    found = np.exp(search.log_pmf([count, 10]))
    np.testing.assert_allclose(found, [expected, 1 - expected], rtol=1e-11)


def test_pmf_of_long_searches_is_normalised():
    rng = np.random.default_rng(1)
    for n_values, epsilon in ((100, 0.45), (1000, 0.01), (50, 30.0)):
        search = SparseVector(n_values, epsilon)
        counts = np.sort(rng.integers(0, n_values + 1, 31))
        assert np.exp(search.log_pmf(counts)).sum() == pytest.approx(1.0, abs=1e-11)


def test_draws_follow_the_pmf():
    search, values = SparseVector(20, 0.8, share=0.6, doublings=5), np.linspace(-9.0, 20.0, 20)
    rng = np.random.default_rng(2)
    drawn = np.bincount([search.release(rng, values) for _ in range(20_000)], minlength=6)
    assert_frequencies(drawn, np.exp(search.log_pmf(search.counts(values))))
    other = SparseVector(20, 0.9, share=0.6, doublings=5)
    assert_rejects(assert_frequencies, drawn, np.exp(other.log_pmf(search.counts(values))))


SEARCHES = [(1, 1, 0.5), (2, 1, 1.0), (4, 3, 0.8), (8, 4, 0.5), (15, 2, 0.9), (3, 6, 0.3)]
NOISY_SEARCHES = in_turn(  # each epsilon occurs with every search and with every noise factor
    (*search, (0.45, 4.0)[(place + case) % 2], (1.0, 0.3, 2.0)[(place + (place + case) % 2) % 3])
    for place, search in enumerate(SEARCHES)
    for case in range(2)
)


@pytest.mark.slow
@pytest.mark.parametrize(("n_values", "doublings", "share", "epsilon", "factor"), NOISY_SEARCHES)
def test_stated_loss_is_the_largest_over_all_data_sets(n_values, doublings, share, epsilon, factor):
    """The stated loss is the largest one over all neighbours, even if the noise is multiplied by 0.3 or 2."""
    search = SparseVector(n_values, epsilon, share=share, doublings=doublings, noise_factor=factor)
    found = audit(search)
    assert search.loss == pytest.approx(found.epsilon, rel=1e-9)
    if factor == 1.0:  # the published noise has at most three quarters of the stated loss
        assert found.check(search.guarantee).holds
        assert 0.1 * epsilon < found.epsilon <= 0.75 * epsilon


@pytest.mark.parametrize("epsilon", [0.45, 4.0])
@pytest.mark.parametrize(
    ("n_values", "doublings", "share"),
    [(2, 1, 1.0), (4, 3, 0.8), pytest.param(8, 4, 0.5, marks=REPEATED)],
)
def test_calibrated_search_loses_exactly_epsilon(n_values, doublings, share, epsilon):
    """The calibrated search has the loss ε; with 3 % less noise, the guarantee is violated."""
    search = calibrate_search(n_values, epsilon, 1.0, share, doublings)
    found = audit(search)
    assert found.check(search.guarantee).holds
    assert found.epsilon == pytest.approx(epsilon, rel=2e-9)
    weaker = replace(search, noise_factor=0.97 * search.noise_factor)
    assert not audit(weaker).check(search.guarantee).holds


def test_search_always_ends():
    """For values outside every interval and for infinite values, the search ends at its last interval."""
    rng = np.random.default_rng(3)
    search = SparseVector(5, 50.0, share=1.0, doublings=12)
    for values in (np.full(5, 1e9), np.full(5, np.inf), np.full(5, -np.inf)):
        assert search.search(values) == 12
        assert search.release(rng, values) == 12
        assert np.exp(search.log_pmf(search.counts(values)))[-1] > 0.99
    assert search.bound(12) == 4096.0
    assert str(search.guarantee) == "50-DP"


def test_search_without_noise_finds_the_first_interval():
    values = [0.5, -3.0, 3.0, 100.0]
    for share, expected in ((0.25, 0), (0.26, 2), (0.75, 2), (0.76, 7), (1.0, 7)):
        assert SparseVector(4, 1.0, start=1.0, share=share).search(values) == expected
    assert SparseVector(4, 1.0, start=0.125, share=0.25).search(values) == 2
    assert SparseVector(4, 1.0).counts(values)[:8].tolist() == [1, 1, 3, 3, 3, 3, 3, 4]


def test_number_of_draws_does_not_depend_on_values():
    """Searches of different data leave the generator in the same state."""
    search, one, other = SparseVector(4, 100.0), np.random.default_rng(4), np.random.default_rng(4)
    search.release(one, np.zeros(4))
    search.release(other, np.full(4, 1e12))
    assert one.random() == other.random()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"start": -1.0}, "mu, half the width"),
        ({"start": math.nan}, "mu, half the width"),
        ({"share": 0.0}, r"theta, the fraction of values, must be in \(0, 1\]"),
        ({"share": 1.1}, "theta"),
        ({"doublings": 1024}, "must be finite"),
        ({"start": 1e300, "doublings": 30}, "must be finite"),
    ],
)
def test_invalid_parameters_raise(parameters, message):
    assert_refused(lambda: SparseVector(**({"n_values": 5, "epsilon": 1.0} | parameters)), message)


@pytest.mark.parametrize("noise_factor", [0.05, 0.3, 0.6, 0.74, 0.75, 1.0, 2.0])
@pytest.mark.parametrize(("n_values", "epsilon"), [(10, 1.0), (3, 0.2), (50, 4.0)])
def test_guarantee_is_not_below_the_exact_loss(n_values, epsilon, noise_factor):
    """With less noise than the proof requires, the guarantee is the exact loss."""
    search = SparseVector(n_values, epsilon, share=0.5, doublings=4, noise_factor=noise_factor)
    assert search.guarantee.epsilon >= max(search.loss, epsilon)
    assert search.guarantee.epsilon <= max(search.loss * (1 + 1e-9), epsilon)
