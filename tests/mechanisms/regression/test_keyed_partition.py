"""Tests of keyed partitions: their sizes, their randomness, and their independence of chunks."""

from collections import Counter
from itertools import combinations, pairwise

import numpy as np
import pytest
from scipy import stats

from mechanisms.regression.keyed_partition import MOST_ROWS, KeyedPartition, keyed_partition
from tests.mechanisms.refusals import assert_refused
from tests.statistical import assert_frequencies, assert_rejects

SHAPES = [(1, 1), (7, 3), (8, 8), (1000, 7), (65_535, 16), (65_536, 1), (65_537, 100), (300_001, 300_001)]


def draw(seed, n, m):
    return keyed_partition(np.random.default_rng(seed), n, m)


@pytest.mark.parametrize(("n", "m"), SHAPES)
def test_sizes_are_as_equal_as_possible(n, m):
    partition = draw(1, n, m)
    sizes = np.bincount(partition.labels(0, n), minlength=m)
    np.testing.assert_array_equal(sizes, n // m + (np.arange(m) < n % m))
    assert (sizes.sum(), sizes.size) == (n, m)
    assert sizes.max() - sizes.min() <= 1
    assert np.all(np.diff(sizes) <= 0)


@pytest.mark.parametrize("n", [1, 5, 513, 65_537, 1_000_003])
def test_positions_are_a_permutation(n):
    """With as many partitions as rows, the labels are a permutation of the rows."""
    np.testing.assert_array_equal(np.sort(draw(2, n, n).labels(0, n)), np.arange(n))


def test_labels_do_not_depend_on_chunks():
    partition = draw(3, 10_007, 13)
    whole = partition.labels(0, 10_007)
    for seed in range(5):
        cuts = np.sort(np.random.default_rng(seed).integers(0, 10_008, 30))
        parts = [partition.labels(int(a), int(b - a)) for a, b in pairwise([0, *cuts, 10_007])]
        np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_the_largest_table():
    partition = draw(4, MOST_ROWS, 1000)
    labels = partition.labels(MOST_ROWS - 5, 5)
    assert np.all((labels >= 0) & (labels < 1000))


@pytest.mark.slow
def test_partitions_of_a_few_rows_are_equally_likely():
    divisions = list(combinations(range(4), 2))
    drawn = Counter(tuple(np.flatnonzero(draw(seed, 4, 2).labels(0, 4) == 0)) for seed in range(240))
    assert set(drawn) <= set(divisions)
    assert_frequencies([drawn[division] for division in divisions], np.full(6, 1 / 6))


def joint_counts(n_rounds, n_keys=10_000):
    """Count, over random keys, the subsets of four rows with similar indices that are moved to the upper half."""
    rng = np.random.default_rng(5)
    counts = np.zeros(16)
    for _ in range(n_keys):
        positions = KeyedPartition(65_536, 65_536, rng.integers(2**32, size=n_rounds, dtype=np.uint32)).labels(0, 258)
        counts[(positions[[0, 1, 256, 257]] >= 32_768) @ [1, 2, 4, 8]] += 1
    return counts


def joint_distribution():
    """Return the joint pmf of the halves of four positions that are drawn without replacement from 65,536."""
    distribution = []
    for outcome in range(16):
        ones = outcome.bit_count()
        ways = [32_768 - i for i in range(ones)] + [32_768 - i for i in range(4 - ones)]
        distribution.append(np.prod(np.array(ways) / (65_536 - np.arange(4))))
    return distribution


@pytest.mark.slow
def test_positions_of_nearby_rows_are_independent():
    assert_frequencies(joint_counts(n_rounds=12), joint_distribution())
    assert_rejects(assert_frequencies, joint_counts(n_rounds=2), joint_distribution())


def smallest_p_value(n_rounds, n=65_536, n_keys=60, bins=16):
    """Return the smallest p-value over tests that pairs of shuffled positions are uniform, for several row distances.

    Both halves of a position are tested. Pairs overlap and are drawn without replacement, which can only reduce the
    test statistics.
    """
    rng = np.random.default_rng(6)
    tables = Counter()
    for _ in range(n_keys):
        positions = KeyedPartition(n, n, rng.integers(2**32, size=n_rounds, dtype=np.uint32)).labels(0, n).astype(int)
        for half, index in (("right", positions % bins), ("left", positions * bins // n)):
            for stride in (1, 2, 128, 256, 257):
                pairs = bins * index[:-stride] + index[stride:]
                tables[half, stride] += np.bincount(pairs, minlength=bins**2)
            crossed = index[:-257] ^ index[1:-256] ^ index[256:-1] ^ index[257:]
            tables[half, "crossed"] += np.bincount(crossed, minlength=bins)
    return min(stats.chisquare(table).pvalue for table in tables.values())


def test_positions_within_a_partition_are_uniform():
    assert smallest_p_value(n_rounds=12) > 1e-7
    assert smallest_p_value(n_rounds=4) < 1e-12


@pytest.mark.parametrize(
    ("message", "n", "m"),
    [("n_rows must be an integer", MOST_ROWS + 1, 1), ("n_partitions must be .* got 6; choose another", 5, 6)],
)
def test_invalid_sizes_raise(message, n, m):
    assert_refused(lambda: draw(1, n, m), message)
