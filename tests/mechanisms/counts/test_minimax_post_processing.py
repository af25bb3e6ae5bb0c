"""Tests of minimax post-processing against the complete linear program and the optimal release."""

from functools import partial

import numpy as np
import pytest
from scipy.optimize import linprog

from mechanisms import MECHANISMS
from mechanisms.core.conjugate import balanced_counts, enumerate_candidates
from mechanisms.counts import minimax_post_processing as module
from mechanisms.counts.k_norm import lattice_classes
from mechanisms.counts.minimax_post_processing import MAX_EPSILON, SLACK, require_post_processable
from mechanisms.counts.optimal import optimal_distribution
from tests.mechanisms.counts.constructors import convert, k_norm_counts
from tests.mechanisms.counts.enumeration import Enumerated
from tests.mechanisms.marks import exhaustive
from tests.mechanisms.refusals import assert_refused

minimax_post_processing = convert(lambda prior, n, *rest: module.minimax_post_processing(prior, int(n), *rest))


def distances(prior, n):
    return Enumerated(prior, n).distances


@pytest.mark.parametrize(
    ("prior", "n", "epsilon"), [((1.0, 1.0, 1.0), 4, 1.0), ((0.3, 2.0), 6, 0.5), ((2.0, 1.0, 2.0), 3, 2.0)]
)
def test_smallest_worst_case_equals_that_of_the_complete_program(prior, n, epsilon):
    """The worst-case mean distance equals that of a linear program with one variable per class and output."""
    datasets = enumerate_candidates(n, len(prior))
    classes = lattice_classes(datasets[0], epsilon)
    pmf = np.exp([classes.log_pmf(c) for c in datasets])
    size = len(datasets)
    rows = (pmf[:, :, None] * distances(prior, n)[:, None, :]).reshape(size, -1)
    found = linprog(
        np.append(np.zeros(rows.shape[1]), 1.0),
        A_ub=np.column_stack([rows, -np.ones(size)]),
        b_ub=np.zeros(size),
        A_eq=np.column_stack([np.kron(np.eye(pmf.shape[1]), np.ones(size)), np.zeros(pmf.shape[1])]),
        b_eq=np.ones(pmf.shape[1]),
    )
    table = minimax_post_processing(prior, n, epsilon)
    assert table.smallest_worst_case == pytest.approx(found.fun, rel=1e-7)
    assert table.worst_case <= table.smallest_worst_case * (1 + SLACK + 1e-6)


@pytest.mark.parametrize("prior", [(1.0, 1.0, 1.0), (2.0, 0.5, 1.0)])
def test_table_is_a_post_processing_of_the_release(prior):
    """The rows of the table sum to 1, and the pmf of the mechanism is the pmf of the noisy classes times the table."""
    n, epsilon = 5, 0.8
    table = minimax_post_processing(prior, n, epsilon)
    full = np.zeros((len(table.classes.statistics), len(enumerate_candidates(n, 3))))
    full[table.of_class, table.outputs] = table.shares
    np.testing.assert_allclose(full.sum(axis=1), 1.0, rtol=1e-12)
    for place, c in enumerate(enumerate_candidates(n, 3)):
        pmf = np.exp(table.classes.log_pmf(c)) @ full
        np.testing.assert_allclose(
            MECHANISMS["k-norm-minimax"].build(prior, c, epsilon).pmf(), pmf, rtol=1e-9, atol=1e-15
        )
        assert table.expected[place] == pytest.approx(float(pmf @ distances(prior, n)[place]), rel=1e-10)


@pytest.mark.parametrize(("n", "k", "near"), [(3, 3, 1.02), (5, 3, 1.02), (10, 3, 1.02), (5, 4, 1.03)])
def test_worst_case_is_near_that_of_the_optimal_release(n, k, near):
    """The worst-case mean distance is within 3 % of the optimum, and with projection only, 8 to 20 % above it."""
    prior = np.ones(k)
    best = optimal_distribution(prior, n, 1.0).worst_case
    table = minimax_post_processing(prior, n, 1.0)
    assert 1 - 1e-6 < table.smallest_worst_case / best < near - 0.0075
    assert table.worst_case / best < near
    projected = max(k_norm_counts(prior, c, 1.0).expected_hellinger() for c in enumerate_candidates(n, k))
    assert 1.08 < projected / best < 1.20


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "k", "expected"),
    [
        (5, 3, 0.3657),
        (10, 3, 0.3670),
        *exhaustive((20, 3, 0.3344), (10, 4, 0.4912)),
    ],
)
def test_worst_cases_at_unit_epsilon(n, k, expected):
    """At ε = 1 the smallest worst-case mean distances are about 1 % above those of the optimal release."""
    assert minimax_post_processing(np.ones(k), n, 1.0).smallest_worst_case == pytest.approx(expected, abs=5e-5)


@pytest.mark.parametrize("n", [4, 15])
def test_two_categories_attain_the_optimal_worst_case(n):
    """At k = 2 the worst-case mean distance is optimal, as Gupte & Sundararajan (2010) prove for geometric noise."""
    best = optimal_distribution([1, 1], n, 0.7).worst_case
    assert minimax_post_processing([1, 1], n, 0.7).smallest_worst_case == pytest.approx(best, rel=1e-6)


@pytest.mark.slow
def test_price_of_the_worst_case_at_balanced_data():
    """At balanced data, the mean distance exceeds that of `k-norm` by over 5 %; a slack of 0.5 % reduces it to 1 %."""
    n = 18
    balanced = np.flatnonzero((enumerate_candidates(n, 3) == balanced_counts(n, 3)).all(axis=1))[0]
    strict, relaxed = (minimax_post_processing([1, 1, 1], n, 1.0, slack) for slack in (1e-7, SLACK))
    projected = k_norm_counts([1, 1, 1], balanced_counts(n, 3), 1.0).expected_hellinger()
    assert strict.expected[balanced] > 1.05 * projected
    assert relaxed.expected[balanced] < 1.01 * projected
    assert relaxed.expected.mean() < strict.expected.mean()


@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 8.0, MAX_EPSILON])
@pytest.mark.parametrize(
    ("prior", "n"), [([1, 1], 6), ([1, 1, 1], 4), ([0.1, 0.1, 0.1], 4), ([1e4, 1, 1], 6), ([50, 1, 3], 4)]
)
def test_worst_case_is_verified_up_to_the_largest_epsilon(prior, n, epsilon):
    """The worst case is near its lower bound, which is below the mean distance of the K-norm release itself."""
    table = minimax_post_processing(prior, n, epsilon)
    assert 0 < table.smallest_worst_case <= table.worst_case <= table.smallest_worst_case * (1 + SLACK) * (1 + 1e-3)
    plain = max(k_norm_counts(prior, c, epsilon).expected_hellinger() for c in enumerate_candidates(n, len(prior)))
    assert table.smallest_worst_case <= plain * (1 + 1e-9)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: require_post_processable(60, 3), "at most 100,000 columns of the linear program"),
        (lambda: require_post_processable(4, 12), "there must be at most 4,000,000 pairs"),
        (lambda: minimax_post_processing([1, 2, 3], 20, 1.0), "at most 100,000 columns of the linear program"),
        *(
            (partial(MECHANISMS["k-norm-minimax"].build, [1] * 3, [2, 1, 1], epsilon), "epsilon must be at most 12 for")
            for epsilon in (12.5, 18.0, 25.0)
        ),
        # at ε = 18 and k = 2, distances are below the tolerance of the solver
        (lambda: minimax_post_processing([1, 1], 5, 18.0), r"the worst case must be at most .*, got"),
    ],
)
def test_large_problems_and_unverified_solutions_are_refused(call, message):
    assert_refused(call, message)
