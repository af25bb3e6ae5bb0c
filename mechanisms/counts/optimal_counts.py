"""Release of counts from the optimal distribution of `mechanisms.counts.optimal`."""

from __future__ import annotations

from numpy.typing import ArrayLike

from mechanisms.conjugate import rank_candidates, validate_counts, validate_prior
from mechanisms.counts.optimal import Objective, optimal_distribution
from mechanisms.counts.tabulated_release import TabulatedRelease

__all__ = ["OptimalCounts", "optimal_counts"]


def optimal_counts(
    prior: ArrayLike, counts: ArrayLike, epsilon: float, objective: Objective = Objective.BALANCED
) -> OptimalCounts:
    """Return the optimal release of `counts`.

    Parameters
    ----------
    prior : array_like, shape (k,)
        Dirichlet parameters, finite and > 0.
    counts : array_like, shape (k,)
        True counts c: integers ≥ 0 with sum n ≥ 1.
    epsilon : float
        Privacy loss in nats, ≥ `mechanisms.privacy_parameters.SMALLEST_EPSILON` and ≤ `MAX_EPSILON`.
    objective : Objective
        As in `optimal_distribution`.

    Returns
    -------
    OptimalCounts

    Privacy
    -------
    As in `optimal_distribution`, for exact draws in real arithmetic.

    Raises
    ------
    ValueError
        If an argument is invalid, or if the linear program is too large.

    Examples
    --------
    >>> import numpy as np
    >>> release = optimal_counts([1, 1], [1, 0], epsilon=1.0)
    >>> release.from_uniforms(np.array([[0.2], [0.3]]))
    array([[0, 1], [1, 0]])
    """
    alpha = validate_prior(prior)
    c = validate_counts(counts, k=alpha.size)
    n = int(c.sum())
    distribution = optimal_distribution(alpha, n, epsilon, objective)
    row = int(rank_candidates(c, n, c.size))
    alpha.flags.writeable = c.flags.writeable = False
    return OptimalCounts(alpha, c, distribution.log_pmf[row], float(distribution.expected[row]))


class OptimalCounts(TabulatedRelease):
    """Optimal distribution of released counts at one data set, created by `optimal_counts`."""
