"""Exact audits of mechanisms that release counts, with fewer comparisons if the mechanism is symmetric.

In a symmetric mechanism, permuting categories with equal prior parameters permutes the output distribution accordingly.
Pairs of neighbours that differ only by such a permutation then have equal losses, so only one pair per equivalence
class is compared. A mechanism that does not use the prior is audited at a uniform prior, where all permutations are
symmetries.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.core.arguments import Floats, find_entry, returned_array
from mechanisms.core.conjugate import (
    adding_pairs,
    count_candidates,
    enumerate_candidates,
    neighbouring_pairs,
    require_at_most,
    validate_prior,
)
from mechanisms.core.exact_losses import MAX_AUDITED, Audit, OutputDistributions, audit_distributions
from mechanisms.core.privacy import Neighbouring, validate_relation
from mechanisms.core.privacy_parameters import validate_delta, validate_resolved_epsilon, validate_size
from mechanisms.counts.mechanism import Mechanism
from mechanisms.counts.registry import MECHANISMS, is_built_in

_TABLE_ENTRY = 50  # cost of a table entry (log-gamma functions) as a number of comparisons


def audit_counts(
    mechanism: Mechanism | str,
    prior: ArrayLike,
    n: int,
    epsilon: float,
    delta: float = 1e-8,
    epsilons: tuple[float, ...] = (),
    orders: tuple[float, ...] = (),
    n_threads: int = 1,
    relation: Neighbouring = Neighbouring.REPLACE_ONE,
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
        Privacy parameters of the mechanism; some mechanisms ignore δ.
    epsilons : tuple of float
        Values of ε, in addition to `epsilon`, at which δ(ε) is computed.
    orders : tuple of float
        Orders at which the Rényi divergence is computed.
    n_threads : int
        Number of threads.
    relation : Neighbouring
        Neighbouring relation. Under replacement all data sets have `n` records; under addition and removal of a record
        they have `n` or n + 1 records.

    Raises
    ------
    ValueError
        If an argument is invalid, if there are too many data sets or outputs, or if the mechanism returns an invalid
        pmf.

    Examples
    --------
    This mechanism, which P0 states to be (1, 1e-8)-DP, has a pure loss of about ε/2:

    >>> found = audit_counts("smooth", [1, 1], 100, epsilon=1.0)
    >>> print(round(found.epsilon, 3), found.deltas)
    0.531 {1.0: 0.0}

    Released counts reveal their sum n, so the loss is infinite if n is private:

    >>> found = audit_counts("smooth", [1, 1], 10, epsilon=1.0, relation=Neighbouring.ADD_OR_REMOVE_ONE)
    >>> print(found.epsilon, found.deltas, found.witness)
    inf {1.0: 1.0} [0, 10] against [0, 11], output [0, 10]
    """
    distributions = count_distributions(mechanism, prior, n, epsilon, delta, relation)
    return audit_distributions(distributions, tuple(dict.fromkeys((float(epsilon), *epsilons))), orders, n_threads)


def count_distributions(
    mechanism: Mechanism | str, prior: ArrayLike, n: int, epsilon: float, delta: float = 1e-8,
    relation: Neighbouring = Neighbouring.REPLACE_ONE,
) -> OutputDistributions:  # fmt: skip
    """Return the output distributions of a mechanism at all data sets of `n` records; see `audit_counts`."""
    entry = find_entry(MECHANISMS, mechanism, "mechanism", "choose one or pass a Mechanism")
    alpha = validate_prior(prior)
    epsilon, delta = validate_resolved_epsilon(epsilon), validate_delta(delta)
    n = validate_size(n)
    if is_built_in(entry) and not entry.uses_prior:
        alpha = np.ones(alpha.size)
    labels = alpha if is_built_in(entry) and entry.symmetric else np.arange(1.0, alpha.size + 1)
    added = validate_relation(relation) is Neighbouring.ADD_OR_REMOVE_ONE
    require_auditable(n + added, labels)
    candidates = [enumerate_candidates(size, alpha.size) for size in ([n, n + 1] if added else [n])]
    datasets, pairs = (adding_pairs if added else neighbouring_pairs)(labels, candidates[0])
    for outputs in candidates:
        entry.validate(alpha, outputs[0], epsilon, delta)
    outputs = np.concatenate(candidates)

    def log_pmf(index: int) -> Floats:
        log_pmf_of_size = entry.at(alpha.copy(), datasets[index].copy(), epsilon, delta).log_pmf()
        if not added:
            return log_pmf_of_size  # which the audit checks
        log_pmf_of_size = returned_array("log_pmf", log_pmf_of_size)
        extended, is_of_size = np.full(len(outputs), -np.inf), outputs.sum(axis=1) == datasets[index].sum()
        if log_pmf_of_size.shape != (is_of_size.sum(),):
            got = f"{log_pmf_of_size.shape}; return one number per output"
            raise ValueError(f"log_pmf must have shape ({is_of_size.sum()},), got {got}")
        extended[is_of_size] = log_pmf_of_size
        return extended

    return OutputDistributions(datasets, outputs, pairs, log_pmf, relation)


def require_auditable(n: int, labels: ArrayLike) -> None:
    """Raise ValueError if an audit would be too large; categories with equal labels (priors) are exchangeable."""
    n = validate_size(n)
    multiplicities = np.unique(np.asarray(labels), return_counts=True)[1].tolist()
    k, exchanges = sum(multiplicities), math.prod(math.factorial(multiplicity) for multiplicity in multiplicities)
    n_candidates = count_candidates(n, k)
    # A pair of neighbours is defined by n − 1 shared records and the two categories of the other record.
    n_pairs = math.comb(n + k - 2, k - 1) * k * (k - 1) // (2 * exchanges)
    work = max(n_pairs * n_candidates, _TABLE_ENTRY * k * (n + 1) * n_candidates // exchanges)
    limited = "combinations of pairs and outputs, or equivalent work, in an exact audit"
    require_at_most(MAX_AUDITED, limited, work, n, k, "use fewer records, or a mechanism with a proof for every size")
