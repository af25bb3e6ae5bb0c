"""The Monte Carlo assertions themselves: they pass the right distribution and reject one that is 5 % wrong."""

import numpy as np
import pytest

from tests.statistical import assert_frequencies, assert_mean_within


def test_mean_accepts_the_truth_and_rejects_five_percent():
    samples = np.random.default_rng(1).exponential(size=40_000)
    assert_mean_within(samples, 1.0)
    with pytest.raises(AssertionError, match="not within"):
        assert_mean_within(samples, 1.05)


def test_mean_needs_enough_samples():
    with pytest.raises(AssertionError, match="at least 100"):
        assert_mean_within(np.ones(10), 1.0)


def test_frequencies_accept_the_truth_and_reject_five_percent():
    distribution = np.array([0.5, 0.3, 0.15, 0.05, 1e-7, 0.0])
    distribution /= distribution.sum()
    counts = np.random.default_rng(2).multinomial(400_000, distribution)
    assert_frequencies(counts, distribution)
    wrong = distribution * [1.05, 1, 1, 1, 1, 1]
    with pytest.raises(AssertionError, match="chi-square"):
        assert_frequencies(counts, wrong / wrong.sum())


def test_frequencies_reject_the_impossible():
    with pytest.raises(AssertionError, match="probability zero"):
        assert_frequencies([50, 49, 1], [0.5, 0.5, 0.0])


def test_false_alarm_rate_of_the_frequencies():
    rng = np.random.default_rng(3)
    distribution = rng.dirichlet(np.full(200, 0.3))
    distribution /= distribution.sum()
    alarms = 0
    for _ in range(400):
        try:
            assert_frequencies(rng.multinomial(5_000, distribution), distribution, level=0.05)
        except AssertionError:
            alarms += 1
    # 400 runs at level .05: 20 expected, standard deviation 4.4.
    assert abs(alarms - 20) <= 5 * 4.4
