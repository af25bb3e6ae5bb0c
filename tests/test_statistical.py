"""Tests that Monte Carlo assertions accept the correct distribution and reject a 5 % error."""

import numpy as np
import pytest

from tests.statistical import assert_frequencies, assert_mean_within


def test_mean_accepts_correct_samples_and_rejects_five_percent_error():
    samples = np.random.default_rng(1).exponential(size=40_000)
    assert_mean_within(samples, 1.0, wrong=1.05)
    for expected, wrong, message in ((1.05, None, "not within"), (1.0, 1.001, "DID NOT RAISE")):
        with pytest.raises((AssertionError, pytest.fail.Exception), match=message):
            assert_mean_within(samples, expected, wrong=wrong)


def test_mean_of_few_samples_raises():
    with pytest.raises(AssertionError, match="at least 100"):
        assert_mean_within(np.ones(10), 1.0)


def test_frequencies_accept_correct_counts_and_reject_five_percent_error():
    distribution = np.array([0.5, 0.3, 0.15, 0.05, 1e-7, 0.0])
    distribution /= distribution.sum()
    counts = np.random.default_rng(2).multinomial(400_000, distribution)
    wrong = distribution * [1.05, 1, 1, 1, 1, 1]
    assert_frequencies(counts, distribution, wrong=wrong)
    with pytest.raises(AssertionError, match="chi-square"):
        assert_frequencies(counts, wrong / wrong.sum())
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        assert_frequencies(counts, distribution, wrong=2 * distribution)


def test_frequencies_reject_outcomes_of_probability_zero():
    with pytest.raises(AssertionError, match="probability zero"):
        assert_frequencies([50, 49, 1], [0.5, 0.5, 0.0])


def test_frequencies_have_the_stated_false_alarm_rate():
    rng = np.random.default_rng(3)
    distribution = rng.dirichlet(np.full(200, 0.3))
    distribution /= distribution.sum()
    alarms = 0
    for _ in range(400):
        try:
            assert_frequencies(rng.multinomial(5_000, distribution), distribution, level=0.05)
        except AssertionError:
            alarms += 1
    # The expected number is 20, with standard deviation 4.4.
    assert abs(alarms - 20) <= 5 * 4.4
