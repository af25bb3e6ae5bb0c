"""Tests of the classes of equivalent pairs against all pairs and all permutations."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mechanisms.core.conjugate import adding_pairs, enumerate_candidates, neighbouring_pairs

LABELS = [
    (1.0, 1.0),
    (1.0, 2.0),
    (2.0, 1.0),
    (1.0, 1.0, 1.0),
    (1.0, 2.0, 1.0),
    (2.0, 1.0, 1.0),
    (1.0, 1.0, 2.0),
    (3.0, 1.0, 2.0),
    (1.0, 1.0, 1.0, 1.0),
    (1.0, 2.0, 1.0, 2.0),
    (2.0, 1.0, 1.0, 2.0),
    (1.0, 2.0, 1.0, 1.0),
    (1.0, 2.0, 3.0, 4.0),
    (1.0, 1.0, 1.0, 1.0, 1.0),
    (1.0, 2.0, 3.0, 2.0, 1.0),
    (1.0, 2.0, 3.0, 4.0, 5.0),
]
LARGEST = {2: 9, 3: 6, 4: 4, 5: 3}


def histogram(records, k):
    return tuple(records.count(category) for category in range(k))


def every_pair(n, k):
    """Return the unordered pairs of count vectors that differ in one replaced record."""
    pairs = set()
    for records in itertools.combinations_with_replacement(range(k), n):
        for place, value in itertools.product(range(n), range(k)):
            if value != records[place]:
                other = (*records[:place], value, *records[place + 1 :])
                pairs.add(frozenset([histogram(records, k), histogram(other, k)]))
    return pairs


def orbit(pair, labels):
    """Return all pairs obtained from a pair by permuting categories with equal labels."""
    k = len(labels)
    found = set()
    for order in itertools.permutations(range(k)):
        if all(labels[order[category]] == labels[category] for category in range(k)):
            found.add(frozenset(tuple(c[category] for category in order) for c in pair))
    return frozenset(found)


def every_addition(n, k):
    pairs = set()
    for records in itertools.combinations_with_replacement(range(k), n):
        pairs.update(frozenset([histogram(records, k), histogram((*records, value), k)]) for value in range(k))
    return pairs


def reduced(labels, n, find_pairs=neighbouring_pairs):
    datasets, pairs = find_pairs(np.array(labels), enumerate_candidates(n, len(labels)))
    return datasets, pairs, [frozenset(tuple(datasets[i].tolist()) for i in pair) for pair in pairs]


def assert_one_of_each_class(labels, n, find_pairs=neighbouring_pairs, every=every_pair):
    datasets, pairs, found = reduced(labels, n, find_pairs)
    expected = every(n, len(labels))
    assert all(pair in expected for pair in found)
    classes = {orbit(pair, labels) for pair in expected}
    assert len(found) == len(classes)
    assert {orbit(pair, labels) for pair in found} == classes
    assert datasets.tolist() == sorted(datasets.tolist())
    assert len({tuple(row) for row in datasets.tolist()}) == len(datasets)
    assert np.array_equal(np.unique(pairs), np.arange(len(datasets)))  # every data set is in a pair


@pytest.mark.parametrize("labels", LABELS)
def test_one_pair_per_class_at_every_size(labels):
    for n in range(1, LARGEST[len(labels)] + 1):
        assert_one_of_each_class(labels, n)


@pytest.mark.parametrize("labels", LABELS)
def test_one_addition_per_class_at_every_size(labels):
    for n in range(1, LARGEST[len(labels)]):
        assert_one_of_each_class(labels, n, adding_pairs, every_addition)
        datasets, pairs, _ = reduced(labels, n, adding_pairs)
        assert np.all(datasets[pairs].sum(axis=2) == [n, n + 1])


@given(labels=st.integers(2, 5).flatmap(lambda k: st.lists(st.sampled_from([0.5, 1.0, 7.0]), min_size=k, max_size=k)))
@settings(deadline=None, derandomize=True, max_examples=40)
def test_one_pair_per_class_with_equal_labels_in_any_order(labels):
    assert_one_of_each_class(tuple(labels), LARGEST[len(labels)] - 1)


def test_assumed_symmetry_of_unequal_labels_is_detected():
    """If categories with unequal labels are permuted, some classes of pairs are missing (negative control)."""
    n, labels = 5, (1.0, 2.0, 1.0)
    found = reduced((1.0, 1.0, 1.0), n)[2]
    classes = {orbit(pair, labels) for pair in every_pair(n, 3)}
    assert {orbit(pair, labels) for pair in found} < classes
