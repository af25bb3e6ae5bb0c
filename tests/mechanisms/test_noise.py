"""Laplace counts against the distribution function and the definition, trial by trial."""

import mpmath
import numpy as np
import pytest
from scipy import stats

from mechanisms.conjugate import enumerate_candidates
from mechanisms.noise import histogram_sensitivity, laplace_counts

CASES = [
    ((1.0, 1.0), (1, 0), 1.0),
    ((1.0, 1.0), (0, 6), 0.2),
    ((1.0, 3.0), (6, 0), 30.0),
    ((1.0, 1.0, 1.0), (3, 0, 2), 2.0),
    ((0.3, 2.0, 5.0), (0, 0, 4), 0.05),
    ((1.0, 1.0, 1.0, 1.0), (2, 1, 0, 2), 4.0),
]


def laplace_cdf(t, scale):
    t = mpmath.mpf(t)
    return mpmath.exp(t / scale) / 2 if t < 0 else 1 - mpmath.exp(-t / scale) / 2


def plain_law(counts, scale):
    """Cell by cell from the distribution function, in 80 digits."""
    n, law = sum(counts), []
    with mpmath.workdps(80):
        for candidate in enumerate_candidates(n, len(counts)).tolist():
            remaining, probability = n, mpmath.mpf(1)
            for value, true in zip(candidate[:-1], counts, strict=False):
                above = mpmath.mpf(1) if value == remaining else laplace_cdf(value + 0.5 - true, scale)
                below = mpmath.mpf(0) if value == 0 else laplace_cdf(value - 0.5 - true, scale)
                probability *= above - below
                remaining -= value
            law.append(float(probability))
    return np.array(law)


@pytest.mark.parametrize(("prior", "counts", "scale"), CASES)
def test_law_equals_the_distribution_function_cell_by_cell(prior, counts, scale):
    law = laplace_counts(prior, counts, scale).probabilities()
    np.testing.assert_allclose(law, plain_law(counts, scale), rtol=1e-12)


@pytest.mark.parametrize(("prior", "counts", "scale"), CASES)
def test_draws_are_rounded_and_clipped_in_order(prior, counts, scale):
    """Against the definition, one trial at a time, with scipy's Laplace quantiles."""
    release = laplace_counts(prior, counts, scale)
    uniforms = np.random.default_rng(5).random((500, release.n_uniforms))
    for u, released in zip(uniforms, release.sample(uniforms), strict=True):
        remaining, expected = sum(counts), []
        for cell, value in enumerate(u):
            noisy = round(counts[cell] + float(stats.laplace.ppf(value, scale=scale)))
            expected.append(min(max(noisy, 0), remaining))
            remaining -= expected[-1]
        assert released.tolist() == [*expected, remaining]


@pytest.mark.parametrize("scale", [1e-3, 2.0, 1e300])
def test_ends_of_the_unit_interval(scale):
    release = laplace_counts([1, 1, 1], [5, 4, 3], scale)
    low, high = 0.0, 1 - 2**-53
    released = release.sample(np.array([[low, low], [high, low], [low, high], [high, high], [2**-60, 0.5]]))
    assert np.all(released >= 0)
    assert np.all(released.sum(axis=1) == 12)
    assert released[0].tolist() == [0, 0, 12]  # u = 0 is the infinite end of the tail
    if scale >= 1:
        assert released[1].tolist() == [12, 0, 0]


def test_probabilities_far_out_are_tiny_but_not_lost():
    law = laplace_counts([1, 1], [0, 300], 1.0).probabilities()
    assert law[250] == pytest.approx(plain_law((0, 300), 1.0)[250], rel=1e-12)
    assert 0 < law[250] < 1e-108


def test_histogram_sensitivity_is_the_largest_move_of_the_noisy_cells():
    for k, n in ((2, 5), (3, 4), (4, 3)):
        data_sets = enumerate_candidates(n, k)
        neighbours = np.abs(data_sets[:, None] - data_sets).sum(axis=-1) == 2
        moves = np.abs(data_sets[:, None, :-1] - data_sets[:, :-1]).sum(axis=-1)
        assert moves[neighbours].max() == histogram_sensitivity(k)
    with pytest.raises(ValueError, match="k must be >= 2, got 1"):
        histogram_sensitivity(1)


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_noise_scale_is_refused(scale):
    with pytest.raises(ValueError, match="noise_scale must be a finite number > 0"):
        laplace_counts([1, 1], [1, 1], scale)


def test_a_problem_too_large_to_stream_can_still_be_sampled():
    release = laplace_counts([1] * 5, [10**6] * 5, 2.0)
    assert release.sample(np.full((1, 4), 0.5)).tolist() == [[10**6] * 5]
    with pytest.raises(ValueError, match="to be streamed"):
        release.expected_hellinger()
