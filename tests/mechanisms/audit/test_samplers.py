"""Tests of samplers that take raw records against exact distributions of noisy counts and sums."""

import numpy as np
import pytest
from scipy import stats

from mechanisms import FAMILIES, MECHANISMS, count_sampler, statistics_sampler
from tests.mechanisms.counts.enumeration import frequencies_of
from tests.mechanisms.refusals import assert_refused
from tests.statistical import assert_frequencies, assert_mean_within

RECORDS = np.array([0, 1, 1, 2, 0, 1, 1])
PRIOR = (1.0, 0.5, 2.0)
N_SAMPLES = 50_000


@pytest.mark.parametrize("name", MECHANISMS)
def test_count_sampler_follows_the_exact_distribution(name):
    distribution = MECHANISMS[name].build(PRIOR, [2, 4, 1], 0.8, 1e-8).pmf()
    samples = count_sampler(np.random.default_rng(1), MECHANISMS[name], PRIOR, 0.8)(RECORDS, N_SAMPLES)
    assert (samples.shape, samples.dtype) == ((N_SAMPLES, 3), np.dtype("int64"))
    wrong = distribution * (1 + 0.05 * np.resize([1, -1], distribution.size))
    assert_frequencies(frequencies_of(samples, 7, 3), distribution, wrong=wrong)


@pytest.mark.parametrize(
    ("family", "records", "bounds", "expected", "scale"),
    [
        ("binomial", [0, 1, 1, 0, 1], None, [3.0], 2.0),
        ("multinomial", np.eye(3)[RECORDS], None, [2.0, 4.0, 1.0], 4.0),
        ("poisson", [3, 1, 4, 12], (0, 9), [8.0], 18.0),
        ("exponential", [0.5, 1.0, 7.0], (0.0, 2.0), [1.5], 4.0),
    ],
)
def test_statistics_sampler_adds_laplace_noise(family, records, bounds, expected, scale):
    sampler = statistics_sampler(np.random.default_rng(2), FAMILIES[family], 0.5, bounds)
    samples = sampler(records, N_SAMPLES)
    assert samples.shape == (N_SAMPLES, len(expected))
    for column, location in zip(samples.T, expected, strict=True):
        assert stats.kstest(column, stats.laplace(location, scale).cdf).pvalue > 1e-6
        assert_mean_within(abs(column - location), scale, wrong=1.05 * scale)
    if len(expected) > 1:
        correlation = np.corrcoef(samples.T)[np.triu_indices(len(expected), 1)]
        assert np.abs(correlation).max() < 5 / np.sqrt(N_SAMPLES)


@pytest.mark.parametrize("make", ["counts", "statistics"])
def test_draws_depend_on_the_generator_only(make):
    """Generators with equal seeds give equal samples; successive calls give different samples."""

    def sampler(seed):
        rng = np.random.default_rng(seed)
        if make == "counts":
            return count_sampler(rng, MECHANISMS["laplace"], (1, 1), 0.1)
        return statistics_sampler(rng, FAMILIES["binomial"], 0.1)

    one, other = sampler(1), sampler(1)
    first = one([0, 1, 1], num_samples=50)
    np.testing.assert_array_equal(first, other([0, 1, 1], num_samples=50))
    assert (first != one([0, 1, 1], num_samples=50)).any()
    assert (first != sampler(2)([0, 1, 1], num_samples=50)).any()


@pytest.mark.parametrize(
    ("message", "dataset", "num_samples"),
    [
        (r"dataset must have shape \(n,\) with n >= 1, got \(0,\)", [], 1),
        (r"dataset must have shape \(n,\) with n >= 1, got \(1, 2\)", [[0, 1]], 1),
        ("dataset must contain categories 0 to 1, got another in record 1; recode", [0, 2], 1),
        ("dataset must contain categories 0 to 1, got another in record 0; recode", [0.5, 1], 1),
        ("dataset must contain categories 0 to 1, got another in record 0; recode", [np.nan, 1], 1),
    ],
)
def test_invalid_data_raise(message, dataset, num_samples):
    with pytest.raises(ValueError, match=message):
        count_sampler(np.random.default_rng(1), MECHANISMS["laplace"], (1, 1), 1.0)(dataset, num_samples)


def test_missing_bounds_are_refused_before_sampling():
    assert_refused(lambda: statistics_sampler(np.random.default_rng(1), FAMILIES["poisson"], 1.0), "bounds must be")
