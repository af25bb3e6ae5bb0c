"""Exact audits of mechanisms that release counts, with the prior's symmetry used to compare fewer pairs.

A mechanism whose law knows the cells by their prior alone gives permuted data the permuted law. Pairs of neighbours
that differ by exchanging cells of equal prior then have equal losses, and one of each such class is compared.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mechanisms.audit import MAX_AUDITED, Audit, OutputLaws, audit_laws
from mechanisms.conjugate import count_candidates, enumerate_candidates, validate_prior
from mechanisms.count_release import MECHANISMS, Mechanism
from mechanisms.neighbours import neighbouring_pairs
from mechanisms.privacy import validate_delta, validate_epsilon

__all__ = ["audit_counts", "count_laws", "require_auditable"]


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
        If an argument is not allowed, the audit is too large to be exact, or the mechanism's laws are not laws.

    Examples
    --------
    Erratum A1: published as (1, 1e-8)-DP, the mechanism spends half of it.

    >>> found = audit_counts("smooth", [1, 1], 100, epsilon=1.0)
    >>> print(round(found.epsilon, 3), found.deltas)
    0.531 {1.0: 0.0}
    """
    laws = count_laws(mechanism, prior, n, epsilon, delta)
    return audit_laws(laws, tuple(dict.fromkeys((float(epsilon), *epsilons))), orders, n_threads)


def count_laws(mechanism: Mechanism | str, prior: ArrayLike, n: int, epsilon: float, delta: float = 1e-8) -> OutputLaws:
    """Return the laws of a mechanism at the data sets of `n` records, ready for `mechanisms.audit.audit`.

    Parameters
    ----------
    mechanism, prior, n, epsilon, delta
        As in `audit_counts`.

    Returns
    -------
    OutputLaws
        Of one pair of neighbours a class, if the mechanism is `symmetric`; a few permuted data sets are compared first.

    Raises
    ------
    ValueError
        If an argument is not allowed, the audit is too large, or a mechanism called symmetric is not.

    Examples
    --------
    >>> count_laws("smooth", [1, 1, 1], 3, epsilon=1.0).datasets
    array([[0, 0, 3], [0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 1, 1]])
    """
    entry = MECHANISMS[mechanism] if isinstance(mechanism, str) else mechanism
    alpha = validate_prior(prior)
    epsilon, delta = validate_epsilon(epsilon), validate_delta(delta)
    require_auditable(n, alpha.size)
    candidates = enumerate_candidates(n, alpha.size)
    datasets, pairs = neighbouring_pairs(alpha if entry.symmetric else np.arange(1.0, alpha.size + 1), candidates)
    entry.validate(alpha, datasets[0], epsilon, delta)

    def log_law(index: int) -> NDArray[np.float64]:
        return entry.build(alpha, datasets[index], epsilon, delta).log_probabilities()

    laws = OutputLaws(datasets, candidates, pairs, log_law)
    if entry.symmetric:
        _require_symmetry(entry, alpha, laws, epsilon, delta)
    return laws


def require_auditable(n: int, k: int) -> None:
    """Refuse problems that are too large to audit even if all prior entries are equal.

    Parameters
    ----------
    n, k : int
        Number of records and of cells.

    Raises
    ------
    ValueError
        If the combinations of pairs and outputs, over k!, number more than `MAX_AUDITED`.

    Examples
    --------
    >>> require_auditable(5000, 2)
    """
    n_candidates = count_candidates(n, k)
    # Even with every symmetry there are about |R|·k(k−1)/(2·k!) pairs, each compared on |R| outputs.
    if n_candidates**2 * k * (k - 1) // (2 * _factorial(k)) > MAX_AUDITED:
        raise ValueError(
            f"an exact audit must compare at most {MAX_AUDITED:,} combinations of pairs and outputs, got more for "
            f"{n_candidates:,} candidates (n = {n}, k = {k}); use fewer records, or a mechanism whose guarantee is "
            "proved for every size"
        )


def _factorial(k: int) -> int:
    return 1 if k < 2 else k * _factorial(k - 1)


def _require_symmetry(
    entry: Mechanism, alpha: NDArray[np.float64], laws: OutputLaws, epsilon: float, delta: float
) -> None:
    """Compare the laws of a few data sets with those of permuted ones; refuse a mechanism that treats cells apart."""
    k, n = alpha.size, int(laws.outputs[0].sum())
    weights = (n + 1) ** np.arange(k)[::-1]
    rng = np.random.default_rng(0)  # which data sets are compared, the same every time
    for index in rng.choice(len(laws.datasets), min(5, len(laws.datasets)), replace=False):
        order = np.arange(k)
        for value in np.unique(alpha):
            members = np.flatnonzero(alpha == value)
            order[members] = rng.permutation(members)
        permuted = entry.build(alpha, laws.datasets[index][order], epsilon, delta).log_probabilities()
        place = np.searchsorted(laws.outputs @ weights, laws.outputs[:, order] @ weights)
        if not np.allclose(permuted[place], laws.log_law(int(index)), rtol=1e-9, atol=1e-9):
            raise ValueError(
                f"mechanism {entry.name} must give permuted data the permuted law to be called symmetric, and does not "
                f"at {laws.datasets[index].tolist()}; state symmetric=False"
            )
