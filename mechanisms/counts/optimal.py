"""Optimal ε-DP distributions of released counts by linear programming, with the least error of any mechanism.

A release is a table of probabilities p(r|c), where data sets c and outputs r are all counts of n records in k
categories. Privacy and normalisation are linear constraints,

    p(r|c) ≤ exp(ε)·p(r|c')  for neighbours c, c' and all r,   Σ_r p(r|c) = 1,   p ≥ 0,

and the expected distance E_c = Σ_r p(r|c)·H(posterior(c), posterior(r)) is linear as well. Among the solutions with the
smallest worst case max_c E_c, the one with the smallest mean of E_c over the permutations of `balanced_counts` is
taken.

The mean at balanced data is constrained by the worst case, since the constant answer r = c* is private for every ε and
has distance 0 at c*. This constraint becomes weaker as n grows: the worst case is attained at extreme counts, where
posteriors are narrow, and the program improves balanced data at the cost of nearby data sets. A small balanced value is
therefore a lower bound on E_c, not evidence of a good mechanism.

Permutations of categories with equal prior preserve constraints and objectives. Averaging a distribution over them
preserves privacy and does not increase a convex objective. Some optimal distribution is therefore invariant, and one
variable per class of pairs (c, r) is sufficient.

References
----------
Ghosh, Roughgarden & Sundararajan, "Universally utility-maximizing privacy mechanisms", SIAM Journal on Computing 41(6),
2012. Huangfu & Hall, "Parallelizing the dual revised simplex method", Mathematical Programming Computation 10, 2018
(HiGHS, the solver).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.optimize import linprog

from mechanisms.core import conjugate
from mechanisms.core.arguments import Floats, Integers
from mechanisms.core.conjugate import canonical_pairs, neighbouring_pairs
from mechanisms.core.hellinger import hellinger
from mechanisms.core.metadata import Style
from mechanisms.core.privacy import pure_guarantee
from mechanisms.core.privacy_parameters import validate_resolved_epsilon
from mechanisms.counts.mechanism import Mechanism, TabulatedRelease

# largest number of variables, for which the solver takes about a minute on one core. With equal prior entries this
# limits n to 140, 20 and 12 at k = 2, 3 and 4
MAX_VARIABLES = 10_000
MAX_PAIRS = 4_000_000  # largest number of pairs of a data set and an output, before reduction by symmetry
# largest ε of a linear program, in nats. At this ε, exp(ε) times the solver's tolerance is ½; it fails at larger ε
MAX_EPSILON = 20.0
_SLACK = 1e-7  # relative slack of the worst case while the balanced objective is minimised
_SPAN = 50.0  # value of n·ε above which the simplex method is tried before the interior point method; chosen by timing
_TOLERANCE = 1e-9  # feasibility tolerance of the solver; remaining violations are repaired


@dataclass(frozen=True, eq=False)
class OptimalDistribution:
    """Optimal ε-DP distribution of released counts at every data set, created by `optimal_distribution`."""

    prior: Floats = field(repr=False)
    n: int
    epsilon: float
    # ln p(r|c), shape (D, D): data sets by outputs, both in the order of `enumerate_candidates`
    log_pmf: Floats = field(repr=False)
    expected: Floats = field(repr=False)  # expected distance E_c at each data set, shape (D,)
    loss: float  # computed maximum of ln p(r|c) − ln p(r|c') over neighbours and outputs, at most ε

    @property
    def worst_case(self) -> float:
        """Largest expected distance over the data sets."""
        return float(self.expected.max())


def require_solvable(n: int, k: int) -> None:
    """Raise ValueError if the linear program is too large even for equal prior entries."""
    n, k = conjugate.validate_problem(n, k)
    n_pairs = conjugate.count_candidates(n, k) ** 2
    _require_variables(n_pairs // math.factorial(k), n, k)
    advice = "use fewer records or categories, or a mechanism in closed form"
    conjugate.require_at_most(MAX_PAIRS, "pairs of a data set and an output", n_pairs, n, k, advice)


def optimal_distribution(prior: ArrayLike, n: int, epsilon: float) -> OptimalDistribution:
    """Return an optimal ε-DP distribution of released counts; solutions are cached.

    **Privacy.** ε-DP under replacement of one record, with n public. The solver satisfies constraints to about 1e-9.
    Its solution is mixed with the smallest sufficient fraction of the uniform distribution, and the loss of the result
    is computed: `OptimalDistribution.loss` ≤ ε.
    """
    alpha = conjugate.validate_prior(prior)
    epsilon = validate_resolved_epsilon(epsilon)
    require_solvable(n, alpha.size)
    # Solve for the sorted prior, so that solution and cache do not depend on the order of the categories.
    order = np.argsort(alpha, kind="stable")
    solved = _solve(tuple(alpha[order].tolist()), int(n), epsilon)
    if np.array_equal(order, np.arange(alpha.size)):
        return solved
    outputs = conjugate.enumerate_candidates(n, alpha.size)
    place = conjugate.rank_candidates(outputs[:, order], n, alpha.size)
    log_pmf, expected = solved.log_pmf[np.ix_(place, place)], solved.expected[place]
    for table in (alpha, log_pmf, expected):
        table.flags.writeable = False
    return OptimalDistribution(alpha, int(n), epsilon, log_pmf, expected, solved.loss)


def _require_variables(n_variables: int, n: int, k: int) -> None:
    advice = "use fewer records, equal prior entries, or a mechanism in closed form"
    conjugate.require_at_most(MAX_VARIABLES, "variables of the linear program", n_variables, n, k, advice)


@lru_cache(maxsize=64)  # seconds per linear program, which trials and audits share
def _solve(prior: tuple[float, ...], n: int, epsilon: float) -> OptimalDistribution:
    alpha = np.array(prior)
    k = alpha.size
    outputs = conjugate.enumerate_candidates(n, k)
    pair_class = _pair_classes(alpha, outputs, n)
    n_variables = int(pair_class.max()) + 1
    _require_variables(n_variables, n, k)
    posteriors = alpha + outputs
    distance = np.array([hellinger(a, posteriors) for a in posteriors])
    _, pairs = neighbouring_pairs(np.arange(1.0, k + 1), outputs)  # distinct labels: all pairs, as ranks
    first, second = np.concatenate([pairs, pairs[:, ::-1]]).T
    # One data set per class is sufficient; the class of (c, c) is the class of c.
    _, chosen, data_set_class = np.unique(pair_class.diagonal(), return_index=True, return_inverse=True)

    kept = np.isin(first, chosen)
    forward = np.stack([pair_class[first[kept]].ravel(), pair_class[second[kept]].ravel()])
    class_pairs = np.unique(np.concatenate([forward, forward[::-1]], axis=1), axis=1)
    high, low = class_pairs[:, class_pairs[0] != class_pairs[1]]
    row = np.arange(high.size)
    shape = (high.size, n_variables)
    privacy = sparse.csr_array((np.ones(high.size), (row, high)), shape) - math.exp(epsilon) * sparse.csr_array(
        (np.ones(high.size), (row, low)), shape
    )
    places = (np.repeat(np.arange(chosen.size), len(outputs)), pair_class[chosen].ravel())
    totals = sparse.csr_array((np.ones(places[0].size), places), (chosen.size, n_variables))
    expectations = sparse.csr_array((distance[chosen].ravel(), places), (chosen.size, n_variables))

    # The interior point method is faster, but fails if probabilities, which may decrease by exp(−ε) per record, span
    # too many orders of magnitude.
    simplex_first = n * epsilon > _SPAN
    # The last variable is the epigraph variable of the worst case.
    worst = _minimise(
        np.append(np.zeros(n_variables), 1.0),
        sparse.block_array([[privacy, None], [expectations, -np.ones((chosen.size, 1))]]),
        np.zeros(high.size + chosen.size),
        sparse.hstack([totals, sparse.csr_array((chosen.size, 1))]),
        simplex_first,
    )[-1]
    balanced = np.all(np.sort(outputs, axis=1) == np.sort(conjugate.balanced_counts(n, k)), axis=1)
    share = np.bincount(data_set_class, balanced / balanced.sum())
    bounds = np.append(np.zeros(high.size), np.full(chosen.size, worst * (1 + _SLACK)))
    solution = _minimise(expectations.T @ share, sparse.vstack([privacy, expectations]), bounds, totals, simplex_first)
    log_pmf, loss = _repair(solution[pair_class], first, second, epsilon)
    expected = (np.exp(log_pmf) * distance).sum(axis=1)
    for table in (alpha, log_pmf, expected):
        table.flags.writeable = False
    return OptimalDistribution(alpha, n, epsilon, log_pmf, expected, loss)


def _pair_classes(prior: Floats, outputs: Integers, n: int) -> Integers:
    """Return the class of each pair (c, r) under permutations of categories that preserve the prior, shape (D, D)."""
    size = len(outputs)
    labels = np.unique(prior, return_inverse=True)[1]
    forms = canonical_pairs(np.repeat(outputs, size, axis=0), np.tile(outputs, (size, 1)), labels, n)
    return np.unique(forms, axis=0, return_inverse=True)[1].reshape(size, size)


def _minimise(
    cost: Floats, upper: sparse.sparray, upper_bound: Floats, equal: sparse.sparray, simplex_first: bool
) -> Floats:
    """Return x ≥ 0 that minimises cost·x subject to upper·x ≤ upper_bound and equal·x = 1."""
    messages = []
    for method in ("highs-ds", "highs-ipm") if simplex_first else ("highs-ipm", "highs-ds"):
        result = linprog(
            cost,
            A_ub=upper.tocsr(),
            b_ub=upper_bound,
            A_eq=equal.tocsr(),
            b_eq=np.ones(equal.shape[0]),
            bounds=(0, None),
            method=method,
            options={"primal_feasibility_tolerance": _TOLERANCE, "dual_feasibility_tolerance": _TOLERANCE},
        )
        if result.status == 0:
            return result.x
        messages.append(f"{method}: {result.message}")
    raise ArithmeticError(f"the linear program with {cost.size} variables could not be solved; {'; '.join(messages)}")


def _repair(distribution: Floats, first: Integers, second: Integers, epsilon: float) -> tuple[Floats, float]:
    """Mix a distribution with the uniform one until its loss is at most ε; return the log-pmf and its loss."""
    # The mixture (1 − λ)·p + λ/D satisfies a constraint that p violates by v if (1 − λ)·v ≤ λ·(exp(ε) − 1)/D.
    distribution = np.maximum(distribution, 0.0)
    distribution /= distribution.sum(axis=1, keepdims=True)
    violation = max(float((distribution[first] - math.exp(epsilon) * distribution[second]).max()), 1e-16)
    share = violation * len(distribution) / (violation * len(distribution) + math.expm1(epsilon))
    for _ in range(40):
        log_pmf = np.log((1.0 - share) * distribution + share / len(distribution))
        loss = float((log_pmf[first] - log_pmf[second]).max())
        if loss <= epsilon:
            return log_pmf, loss
        # Rounding may require a larger share of the uniform distribution, whose loss is 0.
        share = min(share * 1.5, 1.0 - (1.0 - share) / 1.5)
    raise ArithmeticError(
        f"no mixture has a loss of at most {epsilon}; the solution violates a constraint by {violation}"
    )


def _release(prior: Floats, counts: Integers, epsilon: float, delta: float) -> TabulatedRelease:
    n = int(counts.sum())
    distribution = optimal_distribution(prior, n, epsilon)
    row = int(conjugate.rank_candidates(counts, n, counts.size))
    return TabulatedRelease(prior, counts, distribution.log_pmf[row], float(distribution.expected[row]))


OPTIMAL = Mechanism(
    name="optimal",
    note="Linear program for small n: minimises the worst-case distance, then the distance at balanced data.",
    release=_release, guarantee=pure_guarantee, require=require_solvable, max_epsilon=MAX_EPSILON, evaluation="program",
    symmetric=True, style=Style("brown", "<"),
)  # fmt: skip
