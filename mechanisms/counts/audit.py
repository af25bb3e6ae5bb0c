"""Exact audits of mechanisms that release counts, with the prior's symmetry used to compare fewer pairs.

A mechanism whose distribution knows the cells by their prior alone gives permuted data the permuted distribution. Pairs of neighbours
that differ by exchanging cells of equal prior then have equal losses, and one of each such class is compared.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mechanisms.audit import MAX_AUDITED, Audit, OutputDistributions, audit_distributions
from mechanisms.conjugate import count_candidates, enumerate_candidates, validate_prior
from mechanisms.counts.registry import MECHANISMS, Mechanism
from mechanisms.neighbours import neighbouring_pairs
from mechanisms.privacy import validate_delta, validate_epsilon

__all__ = ["audit_counts", "count_distributions", "require_auditable"]

_TABLE_ENTRY = 50  # an entry of a distribution's tables, of log-gamma functions, takes the time of so many comparisons


def audit_counts(
    mechanism: Mechanism | str,
    prior: ArrayLike,
    n: int,
    epsilon: float,
    delta: float = 1e-8,
    epsilons: tuple[float, ...] = (),
    orders: tuple[float, ...] = (),
    n_threads: int = 1,
) -> Audit:
    """Audit a mechanism over all data sets of `n` records.

    Parameters
    ----------
    mechanism : Mechanism or str
        A mechanism, or the name of a registered one.
    prior : array_like, shape (k,)
        Dirichlet parameters, finite and > 0.
    n : int
        Number of records, ≥ 1.
    epsilon, delta : float
        What the mechanism is given.
    epsilons, orders : tuple of float
        Where to compute δ(ε), beside `epsilon`, and the Rényi curve.
    n_threads : int
        Threads to use.

    Returns
    -------
    Audit

    Raises
    ------
    ValueError
        If an argument is not allowed, the audit is too large to be exact, or the mechanism's distributions are not distributions.

    Examples
    --------
    Erratum A1: published as (1, 1e-8)-DP, the mechanism spends half of it.

    >>> found = audit_counts("smooth", [1, 1], 100, epsilon=1.0)
    >>> print(round(found.epsilon, 3), found.deltas)
    0.531 {1.0: 0.0}
    """
    distributions = count_distributions(mechanism, prior, n, epsilon, delta)
    return audit_distributions(distributions, tuple(dict.fromkeys((float(epsilon), *epsilons))), orders, n_threads)


def count_distributions(
    mechanism: Mechanism | str, prior: ArrayLike, n: int, epsilon: float, delta: float = 1e-8
) -> OutputDistributions:
    """Return the distributions of a mechanism at the data sets of `n` records, ready for `mechanisms.audit.audit_distributions`.

    Parameters
    ----------
    mechanism, prior, n, epsilon, delta
        As in `audit_counts`.

    Returns
    -------
    OutputDistributions
        Of one pair of neighbours a class, if the mechanism is registered and `symmetric`; otherwise of all pairs, as
        nothing shows that a user's mechanism treats cells alike.

    Raises
    ------
    ValueError
        If an argument is not allowed, or the audit is too large.

    Examples
    --------
    >>> count_distributions("smooth", [1, 1, 1], 3, epsilon=1.0).datasets
    array([[0, 0, 3], [0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 1, 1]])
    """
    entry = _named(mechanism) if isinstance(mechanism, str) else mechanism
    alpha = validate_prior(prior)
    epsilon, delta = validate_epsilon(epsilon), validate_delta(delta)
    symmetric = entry.symmetric and MECHANISMS.get(entry.name) is entry
    labels = alpha if symmetric else np.arange(1.0, alpha.size + 1)
    require_auditable(n, labels)
    candidates = enumerate_candidates(n, alpha.size)
    datasets, pairs = neighbouring_pairs(labels, candidates)
    entry.validate(alpha, datasets[0], epsilon, delta)

    def log_pmf(index: int) -> NDArray[np.float64]:
        return entry.build(alpha, datasets[index], epsilon, delta).log_probabilities()

    return OutputDistributions(datasets, candidates, pairs, log_pmf)


def _named(name: str) -> Mechanism:
    if name not in MECHANISMS:
        raise ValueError(f"mechanism must be one of {', '.join(MECHANISMS)}, got {name!r}; or pass a Mechanism")
    return MECHANISMS[name]


def require_auditable(n: int, labels: ArrayLike) -> None:
    """Refuse problems that are too large to audit, before anything is enumerated.

    Parameters
    ----------
    n : int
        Number of records.
    labels : array_like, shape (k,)
        Cells with equal labels may be exchanged: the prior, for a mechanism that treats cells alike.

    Raises
    ------
    ValueError
        If, over the exchanges, the combinations of pairs and outputs number more than `MAX_AUDITED`, or the tables of
        all data sets are as much work as that.

    Examples
    --------
    >>> require_auditable(5000, [1.0, 1.0])
    """
    multiplicities = np.unique(np.asarray(labels), return_counts=True)[1].tolist()
    k, exchanges = sum(multiplicities), math.prod(math.factorial(each) for each in multiplicities)
    n_candidates = count_candidates(n, k)
    # a pair is n − 1 records that both hold, and the two cells of the other; exchanges make at most so many one
    n_pairs = math.comb(n + k - 2, k - 1) * k * (k - 1) // (2 * exchanges)
    work = max(n_pairs * n_candidates, _TABLE_ENTRY * k * (n + 1) * n_candidates // exchanges)
    if work > MAX_AUDITED:
        raise ValueError(
            f"an exact audit must compare at most {MAX_AUDITED:,} combinations of pairs and outputs, or do as much "
            f"other work, got {work:,} for {n_candidates:,} candidates (n = {n}, k = {k}); use fewer records, or a "
            "mechanism whose guarantee is proved for every size"
        )
