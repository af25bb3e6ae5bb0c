"""Exact audits of mechanisms that release counts, using the symmetry of the prior to compare fewer pairs.

If the output distribution depends on the categories through their prior alone, permuted data have the permuted
distribution. Pairs of neighbours that are equal up to permutations of categories with equal prior then have equal
losses, and one pair per class is compared.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mechanisms.audit import MAX_AUDITED, Audit, OutputDistributions, audit_distributions
from mechanisms.conjugate import count_candidates, enumerate_candidates, validate_prior
from mechanisms.counts.registry import MECHANISMS, Mechanism
from mechanisms.metadata import find_entry
from mechanisms.neighbours import neighbouring_pairs
from mechanisms.privacy import validate_delta, validate_epsilon

__all__ = ["audit_counts", "count_distributions", "require_auditable"]

_TABLE_ENTRY = 50  # cost of a table entry (log-gamma functions) in units of one comparison


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
        Parameters of the mechanism.
    epsilons, orders : tuple of float
        Values of ε, in addition to `epsilon`, and orders at which to compute δ(ε) and the Rényi curve.
    n_threads : int
        Number of threads.

    Returns
    -------
    Audit

    Raises
    ------
    ValueError
        If an argument is invalid, the audit is too large to be exact, or the mechanism returns an invalid pmf.

    Examples
    --------
    The mechanism published as (1, 1e-8)-DP has a pure loss of about half of ε (erratum A1):

    >>> found = audit_counts("smooth", [1, 1], 100, epsilon=1.0)
    >>> print(round(found.epsilon, 3), found.deltas)
    0.531 {1.0: 0.0}
    """
    distributions = count_distributions(mechanism, prior, n, epsilon, delta)
    return audit_distributions(distributions, tuple(dict.fromkeys((float(epsilon), *epsilons))), orders, n_threads)


def count_distributions(
    mechanism: Mechanism | str, prior: ArrayLike, n: int, epsilon: float, delta: float = 1e-8
) -> OutputDistributions:
    """Return the output distributions of a mechanism at all data sets of `n` records.

    Parameters
    ----------
    mechanism, prior, n, epsilon, delta
        As in `audit_counts`.

    Returns
    -------
    OutputDistributions
        Input of `mechanisms.audit.audit_distributions`. It has one pair of neighbours per equivalence class if the
        mechanism is registered and `symmetric`, and all pairs otherwise.

    Raises
    ------
    ValueError
        If an argument is invalid, or the audit is too large.

    Examples
    --------
    >>> count_distributions("smooth", [1, 1, 1], 3, epsilon=1.0).datasets
    array([[0, 0, 3], [0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 1, 1]])
    """
    entry = find_entry(MECHANISMS, mechanism, "mechanism", "choose one or pass a Mechanism")
    alpha = validate_prior(prior)
    epsilon, delta = validate_epsilon(epsilon), validate_delta(delta)
    symmetric = entry.symmetric and MECHANISMS.get(entry.name) is entry
    labels = alpha if symmetric else np.arange(1.0, alpha.size + 1)
    require_auditable(n, labels)
    candidates = enumerate_candidates(n, alpha.size)
    datasets, pairs = neighbouring_pairs(labels, candidates)
    entry.validate(alpha, datasets[0], epsilon, delta)

    def log_pmf(index: int) -> NDArray[np.float64]:
        return entry.build(alpha, datasets[index], epsilon, delta).log_pmf()

    return OutputDistributions(datasets, candidates, pairs, log_pmf)


def require_auditable(n: int, labels: ArrayLike) -> None:
    """Raise ValueError if a problem is too large to audit, before anything is enumerated.

    Parameters
    ----------
    n : int
        Number of records.
    labels : array_like, shape (k,)
        Categories with equal labels are exchangeable; the prior, for symmetric mechanisms.

    Raises
    ------
    ValueError
        If, up to permutations, there are more than `MAX_AUDITED` combinations of pairs and outputs, or if the tables
        of all data sets take an equivalent amount of work.

    Examples
    --------
    >>> require_auditable(5000, [1.0, 1.0])
    """
    multiplicities = np.unique(np.asarray(labels), return_counts=True)[1].tolist()
    k, exchanges = sum(multiplicities), math.prod(math.factorial(each) for each in multiplicities)
    n_candidates = count_candidates(n, k)
    # A pair is defined by n − 1 shared records and the two categories of the other record.
    n_pairs = math.comb(n + k - 2, k - 1) * k * (k - 1) // (2 * exchanges)
    work = max(n_pairs * n_candidates, _TABLE_ENTRY * k * (n + 1) * n_candidates // exchanges)
    if work > MAX_AUDITED:
        raise ValueError(
            f"an exact audit must compare at most {MAX_AUDITED:,} combinations of pairs and outputs, or do equivalent "
            f"work, got {work:,} for {n_candidates:,} candidates (n = {n}, k = {k}); use fewer records, or a "
            "mechanism whose guarantee is proved for every size"
        )
