"""Release of counts from the optimal distribution of `mechanisms.counts.optimal`."""

from __future__ import annotations

from numpy.typing import ArrayLike

from mechanisms.conjugate import rank_candidates, validate_counts, validate_prior
from mechanisms.counts.mechanism import Mechanism
from mechanisms.counts.optimal import MAX_EPSILON, Objective, optimal_distribution, require_solvable
from mechanisms.counts.tabulated_release import TabulatedRelease
from mechanisms.metadata import Style
from mechanisms.privacy import pure_guarantee

__all__ = ["OPTIMAL", "OptimalCounts", "optimal_counts"]


def optimal_counts(
    prior: ArrayLike, counts: ArrayLike, epsilon: float, objective: Objective = Objective.BALANCED
) -> OptimalCounts:
    """Return the optimal release of `counts`, with the guarantee of `optimal_distribution` for exact draws."""
    alpha = validate_prior(prior)
    c = validate_counts(counts, k=alpha.size)
    n = int(c.sum())
    distribution = optimal_distribution(alpha, n, epsilon, objective)
    row = int(rank_candidates(c, n, c.size))
    alpha.flags.writeable = c.flags.writeable = False
    return OptimalCounts(alpha, c, distribution.log_pmf[row], float(distribution.expected[row]))


class OptimalCounts(TabulatedRelease):
    """Optimal distribution of released counts at one data set, created by `optimal_counts`."""


OPTIMAL = Mechanism(
    name="optimal",
    note="Linear program for small n: minimises the worst-case distance, then the distance at balanced data.",
    release=lambda prior, counts, epsilon, delta: optimal_counts(prior, counts, epsilon),
    guarantee=pure_guarantee,
    require=require_solvable,
    max_epsilon=MAX_EPSILON,
    evaluation="program",
    symmetric=True,
    style=Style("brown", "<"),
)
