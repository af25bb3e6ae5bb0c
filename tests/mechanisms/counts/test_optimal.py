"""Tests of optimal distributions against a plain linear program, a closed form and all other mechanisms."""

from functools import partial

import numpy as np
import pytest
from scipy.optimize import linprog

from mechanisms.core.conjugate import balanced_counts, enumerate_candidates
from mechanisms.core.hellinger import hellinger
from mechanisms.core.privacy_parameters import SMALLEST_EPSILON
from mechanisms.counts.optimal import MAX_EPSILON, MAX_VARIABLES, optimal_distribution, require_solvable
from mechanisms.counts.registry import MECHANISMS
from tests.mechanisms.counts.enumeration import Enumerated
from tests.mechanisms.marks import in_turn
from tests.mechanisms.refusals import assert_refused

PROBLEMS = [
    ((1.0, 1.0), 1),
    ((1.0, 1.0), 12),
    ((0.3, 4.0), 7),
    ((1.0, 1.0, 1.0), 4),
    ((2.0, 0.5, 2.0), 3),
    ((1.0, 1.0, 1.0, 1.0), 3),
]


def model(prior, n):
    """Return the data sets, the distances between their posteriors, and the pairs of neighbours."""
    everything = Enumerated(prior, n)
    return everything.datasets, everything.distances, everything.pairs.T


def plain_program(prior, n, epsilon):
    """Return the linear program of the worst case, with one variable per data set and output, without symmetry."""
    data_sets, distance, (first, second) = model(prior, n)
    size = len(data_sets)
    upper = np.zeros((first.size * size + size, size * size + 1))
    for row, (c, other, r) in enumerate((c, o, r) for c, o in zip(first, second, strict=True) for r in range(size)):
        upper[row, c * size + r], upper[row, other * size + r] = 1.0, -np.exp(epsilon)
    equal = np.zeros((size, size * size + 1))
    for c in range(size):
        upper[first.size * size + c, c * size : (c + 1) * size] = distance[c]
        upper[first.size * size + c, -1] = -1.0
        equal[c, c * size : (c + 1) * size] = 1.0
    return np.eye(size * size + 1)[-1], upper, np.zeros(len(upper)), equal


def plain_worst_case(prior, n, epsilon):
    *program, equal = plain_program(prior, n, epsilon)
    return linprog(*program, equal, np.ones(len(equal)), method="highs-ds").fun


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 4.0])
@pytest.mark.parametrize(("prior", "n"), PROBLEMS)
def test_distribution_is_private_and_has_the_stated_mean(prior, n, epsilon):
    distribution = optimal_distribution(prior, n, epsilon)
    _, distance, (first, second) = model(prior, n)
    np.testing.assert_allclose(np.exp(distribution.log_pmf).sum(axis=1), 1.0, rtol=1e-12)
    assert np.isfinite(distribution.log_pmf).all()
    assert (distribution.log_pmf[first] - distribution.log_pmf[second]).max() == distribution.loss <= epsilon
    np.testing.assert_allclose((np.exp(distribution.log_pmf) * distance).sum(axis=1), distribution.expected, rtol=1e-12)
    assert distribution.worst_case == distribution.expected.max()


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [SMALLEST_EPSILON, MAX_EPSILON])
@pytest.mark.parametrize(("prior", "n"), [((1.0, 1.0), 2), ((1.0, 1.0), 30), ((0.01, 100.0), 30), ((1.0, 1.0, 1.0), 5)])
def test_programs_are_solved_at_both_ends_of_the_range_of_epsilon(prior, n, epsilon):
    distribution = optimal_distribution(prior, n, epsilon)
    _, _, (first, second) = model(prior, n)
    assert (distribution.log_pmf[first] - distribution.log_pmf[second]).max() == distribution.loss <= epsilon


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 4.0])
@pytest.mark.parametrize(("prior", "n"), PROBLEMS)
def test_symmetry_preserves_the_optimum(prior, n, epsilon):
    plain = plain_worst_case(prior, n, epsilon)
    assert optimal_distribution(prior, n, epsilon).worst_case == pytest.approx(plain, abs=2e-6)


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
def test_one_record_in_two_categories_equals_closed_form(epsilon):
    """The optimal release of one record in two categories has the error probability 1/(1 + e^ε).

    Error probabilities a and b satisfy 1 − a ≤ e^ε·b and 1 − b ≤ e^ε·a, so their mean is at least 1/(1 + e^ε).
    """
    distribution = optimal_distribution((1.0, 1.0), 1, epsilon)
    lie = 1 / (1 + np.exp(epsilon))
    np.testing.assert_allclose(np.exp(distribution.log_pmf), [[1 - lie, lie], [lie, 1 - lie]], atol=1e-6)
    assert distribution.worst_case == pytest.approx(lie * float(hellinger([1, 2], [2, 1])), abs=1e-6)


PURE = [name for name, m in MECHANISMS.items() if m.is_private and m.guarantee(1, 0.5).is_pure]
PRIORS = [(1.0, 1.0), (0.3, 4.0), (1.0, 1.0, 1.0), (2.0, 0.5, 2.0), (1.0,) * 4]
COMPARED = [  # cases in which each mechanism occurs with each prior and with each epsilon, a third of them in the gate
    (name, prior, (0.1, 1.0, 3.0)[(place + case) % 3])
    for place, name in enumerate(PURE)
    for case, prior in enumerate(PRIORS)
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "prior", "epsilon"), in_turn(COMPARED, every=3))
def test_optimum_bounds_every_pure_mechanism(name, prior, epsilon):
    n = {2: 20, 3: 6, 4: 3}[len(prior)]
    _, distance, _ = model(prior, n)
    distribution = np.array(
        [MECHANISMS[name].build(prior, c, epsilon, 1e-8).pmf() for c in enumerate_candidates(n, len(prior))]
    )
    expected = (distribution * distance).sum(axis=1)
    assert expected.max() >= optimal_distribution(prior, n, epsilon).worst_case * (1 - 1e-7) - 1e-6


def test_balanced_objective_needs_the_worst_case_constraint():
    """Without the worst-case constraint, a constant release of balanced counts would be optimal at balanced data."""
    data_sets, distance, (first, second) = model((1.0, 1.0), 10)
    constant = np.tile((data_sets == balanced_counts(10, 2)).all(axis=1).astype(float), (len(data_sets), 1))
    np.testing.assert_array_equal(constant[first], constant[second])
    assert (constant * distance).sum(axis=1)[5] == 0.0
    balanced = optimal_distribution((1.0, 1.0), 60, 1.0)
    geometric = MECHANISMS["geometric"].build((1.0, 1.0), (30, 30), 1.0, 1e-8).expected_hellinger()
    assert balanced.expected[30] < 0.5 * geometric
    every = [MECHANISMS["geometric"].build((1.0, 1.0), (c, 60 - c), 1.0).expected_hellinger() for c in range(61)]
    assert balanced.expected.mean() > 1.3 * np.mean(every)  # geometric noise has the optimal mean (Ghosh et al.)


@pytest.mark.parametrize(("prior", "n"), PROBLEMS)
def test_no_mechanism_of_equal_worst_case_is_better_at_balanced_data(prior, n):
    """The mean at balanced data is the minimum of a plain linear program that limits the worst case."""
    data_sets = enumerate_candidates(n, len(prior))
    chosen = np.all(np.sort(data_sets, axis=1) == np.sort(balanced_counts(n, len(prior))), axis=1)
    found = optimal_distribution(prior, n, 1.0)
    cost, upper, bounds, equal = plain_program(prior, n, 1.0)
    cost = np.append(np.where(chosen[:, None], upper[-chosen.size :, :-1].sum(axis=0).reshape(chosen.size, -1), 0.0), 0)
    bounds[-chosen.size :], upper[-chosen.size :, -1] = found.worst_case, 0.0
    result = linprog(cost, upper, bounds, equal, np.ones(chosen.size), method="highs-ds")
    assert found.expected[chosen].sum() <= result.fun + 2e-6


def test_permuted_priors_have_permuted_distributions():
    data_sets = enumerate_candidates(3, 3)
    plain, permuted = optimal_distribution((2.0, 0.5, 1.0), 3, 1.0), optimal_distribution((1.0, 2.0, 0.5), 3, 1.0)
    place = [data_sets.tolist().index(c) for c in data_sets[:, [2, 0, 1]].tolist()]
    np.testing.assert_array_equal(plain.log_pmf, permuted.log_pmf[np.ix_(place, place)])


def test_invalid_input_raises():
    for n, k in ((141, 2), (21, 3), (13, 4), (10**6, 4)):
        assert_refused(partial(require_solvable, n, k), f"at most {MAX_VARIABLES:,}")
    assert_refused(lambda: optimal_distribution((1.0, 2.0), 139, 1.0), "equal prior entries")
    for epsilon in (20.1, 40.0, 100.0):
        refuse = partial(MECHANISMS["optimal"].build, [1, 1], [3, 2], epsilon)
        assert_refused(refuse, f"epsilon must be at most 20 for optimal, got {epsilon:g};")
