"""Tests of the Dirichlet–multinomial model: candidates, posteriors, and validation of input."""

import itertools
import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mechanisms.core.conjugate import (
    balanced_counts,
    count_candidates,
    enumerate_candidates,
    posterior,
    rank_candidates,
    validate_counts,
    validate_prior,
)
from tests.mechanisms.refusals import assert_refused

prior_of_two, five_records = partial(validate_prior, k=2), partial(validate_counts, k=2, n=5)


@pytest.mark.parametrize("n", [1, 2, 5, 9])
@pytest.mark.parametrize("k", [2, 3, 4, 5])
def test_candidates_are_all_count_vectors_in_lexicographic_order(n, k):
    expected = [c for c in itertools.product(range(n + 1), repeat=k) if sum(c) == n]
    np.testing.assert_array_equal(enumerate_candidates(n, k), expected)
    assert count_candidates(n, k) == len(expected)


def test_count_candidates_is_exact_beyond_int64():
    assert count_candidates(10**6, 10) == math.comb(10**6 + 9, 9)
    assert count_candidates(10**6, 10) > 2**63


@given(n=st.integers(1, 10**6), k=st.integers(2, 50))
@settings(deadline=None, derandomize=True, max_examples=50)
def test_balanced_counts_differ_by_at_most_one(n, k):
    counts = balanced_counts(n, k)
    assert counts.sum() == n
    assert counts.max() - counts.min() <= 1
    assert np.all(np.diff(counts) <= 0)


def test_posterior_adds_counts_to_each_row():
    np.testing.assert_array_equal(posterior([0.5, 2.0], np.array([[1, 2], [3, 0]])), [[1.5, 4.0], [3.5, 2.0]])


def test_validation_copies_its_input():
    prior, counts = np.ones(2), np.array([1, 2])
    assert not np.shares_memory(validate_prior(prior), prior)
    assert not np.shares_memory(validate_counts(counts), counts)


@pytest.mark.parametrize(
    ("call", "arguments", "message"),
    [
        (prior_of_two, [[1.0, 0.0]], "prior must have positive finite entries, got 0.0 at position 1"),
        (prior_of_two, [[1.0, math.nan]], "prior must have positive finite entries, got nan at position 1"),
        (prior_of_two, [[1.0]], "at least 2 categories"),
        (prior_of_two, [[[1.0, 1.0]]], "one-dimensional"),
        (prior_of_two, [[[1.0], [1.0, 2.0]]], "array of real numbers"),
        (prior_of_two, [[1.0, 1.0, 1.0]], "prior must have 2 categories, got 3"),
        (five_records, [[3, -1]], "counts must be integers >= 0, got an invalid value at position 1"),
        (five_records, [[2.5, 2.5]], "counts must be integers >= 0, got an invalid value at position 0"),
        (five_records, [[math.nan, 5]], "got an invalid value at position 0"),
        (validate_counts, [[2**53 - 1, 4, 0]], "n must be at most 1,000,000,000,000,000, got 9.01e+15"),
        (validate_counts, [[2**53 - 1] * 1_500], "n must be at most 1,000,000,000,000,000, got 1.35e+19"),
        (five_records, [[0, 0]], "sum to at least 1, got 0"),
        (five_records, [[3, 3]], "sum to 5, got 6"),
        (five_records, [[5]], "at least 2 categories"),
        (five_records, [[1, 1, 3]], "counts must have 2 categories, got 3"),
        *((posterior, [[1.0, 1.0], counts], "counts must") for counts in ([1, 2, 3], 5, [-1, 2], [math.nan, 2])),
        *((call, (5, 1), "must be an integer") for call in (balanced_counts, enumerate_candidates)),
        (enumerate_candidates, (1008, 4), r"at most 50,000,000 .* got 171,716,665 \(n = 1008, k = 4\)"),
        (rank_candidates, ([[1, 1, 1]], 4, 3), "counts must be 3 integers >= 0 with sum 4"),
    ],
)
def test_invalid_arguments_raise(call, arguments, message):
    assert_refused(lambda: call(*arguments), message)


def test_integer_valued_floats_are_valid_counts():
    counts = validate_counts([3.0, 2.0], k=2, n=5)
    assert counts.dtype == np.int64
    assert counts.tolist() == [3, 2]


@pytest.mark.parametrize(("n", "k"), [(4, 3), (5, 2), (1, 66), (2, 41), (3, 40)])  # (n + 1)^(k − 1) up to 2^78
def test_ranks_are_rows_of_the_enumeration(n, k):
    candidates = enumerate_candidates(n, k)
    assert np.array_equal(rank_candidates(candidates[::-1], n, k), np.arange(len(candidates))[::-1])
    assert rank_candidates(candidates[-1].astype(np.float64), n, k) == len(candidates) - 1
