"""Tests of the private search for bounds: exact audit on small grids, frequencies, and refusals."""

import functools
import itertools
import math

import numpy as np
import pytest

from mechanisms import publish_bounds
from mechanisms.inference import publish_bounds as module
from mechanisms.inference.publish_bounds import EDGES, choose_bounds, count_bins
from tests.mechanisms.marks import REPEATED
from tests.statistical import assert_mean_within

GRID = np.array([-2.0, -1.0, 0.0, 1.0])


@functools.cache
def tail(t, scale):
    """Return Pr[Z >= t] of two-sided geometric noise, summed over its pmf."""
    alpha = math.exp(-1 / scale)
    z = np.arange(-2000, 2001)
    pmf = (1 - alpha) / (1 + alpha) * alpha ** abs(z)
    return pmf[z >= t].sum()


def output_distribution(counts, scale, noise_scale):
    """Return the probability of every pair of bounds by enumeration of the classes of all noisy counts."""
    ends = [-math.inf, *(module._threshold(scale, p) for p in (0.05, 0.001 / len(counts))), math.inf]
    shown = (ends[1] - 1, ends[1], ends[2])
    found = {}
    for classes in itertools.product(range(3), repeat=len(counts)):
        p = math.prod(
            tail(ends[j] - c, noise_scale) - tail(ends[j + 1] - c, noise_scale)
            for j, c in zip(classes, counts, strict=True)
        )
        bounds = choose_bounds([shown[j] for j in classes], scale, GRID)
        found[bounds] = found.get(bounds, 0.0) + p
    return found


def worst_loss(epsilon, noise_scale, n=12):
    """Return the largest log ratio of output probabilities over neighbouring data sets of n records in three bins."""
    data = [counts for counts in itertools.product(range(n + 1), repeat=3) if sum(counts) == n]
    outputs = {counts: output_distribution(counts, 2 / epsilon, noise_scale) for counts in data}
    losses = [
        math.log(p / outputs[other][bounds])
        for counts in data
        for other in data
        if sum(map(abs, np.subtract(counts, other))) == 2
        for bounds, p in outputs[counts].items()
    ]
    assert all(sum(each.values()) == pytest.approx(1) for each in outputs.values())
    return max(losses)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_exact_loss_over_all_neighbours_is_at_most_epsilon(epsilon):
    assert worst_loss(epsilon, 2 / epsilon) <= epsilon + 1e-9
    assert worst_loss(epsilon, 1 / epsilon) > 1.05 * epsilon  # noise for the change of one count only


def test_bins_cover_the_line_and_contain_their_lower_ends():
    records = np.concatenate([EDGES[1:-1], [-np.finfo(float).max, np.finfo(float).max, -0.0, 5e-324, -5e-324]])
    counts = count_bins(records)
    assert counts.sum() == records.size
    assert np.all(counts >= 1)
    assert count_bins(np.array([1.0, 2.0, 3.0, 4.0]))[np.searchsorted(EDGES, 2.0)] == 2
    assert (count_bins(np.array([-2.0])) == 1).argmax() == np.searchsorted(EDGES, -2.0)


@pytest.mark.parametrize(
    ("is_exact", "n_draws", "factor"), [(False, 2_500, 0.95), pytest.param(True, 800, 0.9, marks=REPEATED)]
)
def test_frequency_of_bounds_equals_the_exact_probability(is_exact, n_draws, factor):
    """All records are in [2, 4): other bounds need an empty neighbour of at least t(0.05), or an empty bin of t(p)."""
    epsilon, scale = 2.0, 1.0
    far, near = (1 - tail(module._threshold(scale, p), scale) for p in (0.001 / 160, 0.05))
    expected = near**2 * far**157 * tail(module._threshold(scale, 0.001 / 160) - 60, scale)
    data = np.full(60, 3.0)
    hits = [publish_bounds(data, epsilon, None if is_exact else seed) == (2.0, 4.0) for seed in range(n_draws)]
    assert_mean_within(np.array(hits, dtype=float), expected, wrong=factor * expected)


def test_bounds_contain_most_records_and_none_is_found_without_a_full_bin():
    rng = np.random.default_rng(2)
    for records in (rng.lognormal(10.4, 0.6, 5000), rng.normal(0, 1, 5000), np.r_[np.zeros(2000), np.full(2000, 9e9)]):
        low, high = publish_bounds(records, 0.5, rehearsal_seed=1)
        assert np.mean((records < low) | (records > high)) < 0.01
    assert publish_bounds(2.0 ** np.arange(-29, 50).repeat(2), 0.75, rehearsal_seed=1) is None
