"""Exact audits of mechanisms with finitely many data sets and outputs.

Given the output distribution at every data set (`OutputDistributions`), an audit computes over all pairs of
neighbours P, Q

* the pure loss  max |ln p(r)/q(r)|  over outputs r, with the pair and the output that attain it,
* the hockey-stick profile  max δ(ε)  and the Rényi curve  max D_λ(P‖Q)  of `mechanisms.divergences`.

Nothing is estimated: a verdict is a proof up to rounding, and a violated guarantee comes with a counterexample. Audits
of mechanisms with densities (`mechanisms.renyi.audit`) return the same `Audit` with a different `evidence`.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mechanisms.divergences import extremes, hockey_stick, hockey_stick_bound, log_ratios, renyi, renyi_bound
from mechanisms.privacy import Guarantee, RenyiGuarantee

__all__ = [
    "MAX_AUDITED",
    "ROUNDING",
    "Audit",
    "OutputDistributions",
    "Verdict",
    "Witness",
    "audit_distributions",
    "sum_exp",
]

MAX_AUDITED = 20_000_000_000
"""Largest number of audited combinations of pair and output: one to two minutes on one core."""

ROUNDING = 1e-9
"""Tolerance in nats for rounding when a loss is compared with its guarantee."""

_CACHE_BYTES = 400_000_000
_PIECE = 8192
_NORMALISED = 1e-11


@dataclass(frozen=True, eq=False)
class OutputDistributions:
    """Output distributions of a mechanism at fixed public parameters.

    Parameters
    ----------
    datasets : ndarray, shape (D, ...)
        All data sets, or one per equivalence class under a symmetry of the mechanism.
    outputs : ndarray, shape (R, ...)
        All possible outputs.
    pairs : ndarray of int64, shape (P, 2)
        Indices of neighbouring data sets, each unordered pair once.
    log_pmf : callable
        Maps the index of a data set to the log probabilities of all outputs, shape (R,); −inf for impossible outputs.

    Examples
    --------
    Randomised response that reports the true answer with probability ¾:

    >>> distributions = OutputDistributions.from_table([[0.75, 0.25], [0.25, 0.75]], pairs=[[0, 1]])
    >>> round(audit_distributions(distributions).epsilon, 6) == round(math.log(3), 6)
    True
    """

    datasets: NDArray[Any]
    outputs: NDArray[Any]
    pairs: NDArray[np.int64]
    log_pmf: Callable[[int], NDArray[np.float64]] = field(repr=False)

    def __post_init__(self) -> None:
        pairs = np.asarray(self.pairs)
        object.__setattr__(self, "pairs", pairs)
        if pairs.ndim != 2 or pairs.shape[1] != 2 or not len(pairs) or pairs.dtype.kind not in "iu":
            raise ValueError(
                f"pairs must be integers of shape (P, 2) with P >= 1, got {pairs.dtype} of shape {pairs.shape}; "
                "pass the indices of neighbouring data sets"
            )
        if pairs.min() < 0 or pairs.max() >= len(self.datasets):
            raise ValueError(
                f"pairs must index the {len(self.datasets)} data sets, got {pairs.min()} to {pairs.max()}; count from 0"
            )

    @classmethod
    def from_table(cls, probabilities: ArrayLike, pairs: ArrayLike) -> OutputDistributions:
        """Return output distributions from a table with one row per data set.

        Parameters
        ----------
        probabilities : array_like, shape (D, R)
        pairs : array_like, shape (P, 2)

        Returns
        -------
        OutputDistributions

        Raises
        ------
        ValueError
            If the table is not two-dimensional, a row is not a distribution, or the pairs do not index it.
        """
        table = np.asarray(probabilities, dtype=np.float64)
        if table.ndim != 2:
            raise ValueError(f"probabilities must have shape (D, R), got {table.shape}; pass one row per data set")
        if not np.all(table >= 0):
            raise ValueError(
                f"probabilities must be >= 0, got {table[~(table >= 0)][0]}; pass probabilities, not logarithms"
            )
        with np.errstate(divide="ignore"):
            logs = np.log(table)
        distributions = cls(np.arange(len(table)), np.arange(table.shape[1]), np.asarray(pairs), logs.__getitem__)
        for index in range(len(table)):
            _distribution(distributions, index)
        return distributions


@dataclass(frozen=True)
class Witness:
    """Neighbours and output with the log ratio ln p(output | dataset) − ln p(output | neighbour)."""

    dataset: Any
    neighbour: Any
    output: Any
    log_ratio: float

    def __str__(self) -> str:
        return f"{_show(self.dataset)} against {_show(self.neighbour)}, output {_show(self.output)}"


@dataclass(frozen=True)
class Verdict:
    """Verdict on a stated guarantee, with its slack.

    Attributes
    ----------
    holds : bool
        True if the guarantee holds, up to rounding (`ROUNDING`).
    slack : float
        Stated minus actual loss: of ε for a pure or Rényi guarantee, otherwise of δ.
    text : str
        Summary in one line; includes the counterexample if the guarantee is violated.
    """

    holds: bool
    slack: float
    text: str


@dataclass(frozen=True, eq=False)
class Audit:
    """Result of an audit.

    Attributes
    ----------
    epsilon : float
        Pure privacy loss in nats; inf if an output is possible at one data set only, or if the ratio of densities is
        unbounded.
    witness : Witness
        Neighbours and output that attain `epsilon`, ordered so that the ratio is ≥ 1.
    deltas : dict of float to float
        δ at each requested ε.
    renyi : dict of float to float
        Rényi divergence in nats at each requested order.
    n_pairs, n_outputs : int
        Number of compared pairs, after symmetry, and of outputs.
    evidence : str
        "exact" and "closed form" are proofs up to rounding; "quadrature" is a proof up to the error of a quadrature
        rule that integrates each distribution to 1 within 1e-11.
    """

    epsilon: float
    witness: Witness
    deltas: dict[float, float]
    renyi: dict[float, float]
    n_pairs: int
    n_outputs: int
    evidence: str = "exact"

    def check(self, guarantee: Guarantee | RenyiGuarantee) -> Verdict:
        """Compare the audit with a stated guarantee.

        Parameters
        ----------
        guarantee : Guarantee or RenyiGuarantee
            For δ > 0, its ε must be one of the audited ε unless the pure loss is at most ε. The order of a Rényi
            guarantee must be one of the audited orders.

        Returns
        -------
        Verdict

        Raises
        ------
        ValueError
            If δ at this ε, or the divergence of this order, was not computed.

        Examples
        --------
        >>> distributions = OutputDistributions.from_table([[0.75, 0.25], [0.25, 0.75]], pairs=[[0, 1]])
        >>> print(audit_distributions(distributions).check(Guarantee(1.0)).text)
        broken: stated 1-DP, loses 1.0986 at 0 against 1, output 0
        >>> print(audit_distributions(distributions, epsilons=[1.0]).check(Guarantee(1.0, 0.1)).text)
        within (1, 0.1)-DP: delta 0.0704, slack 0.0296
        >>> print(audit_distributions(distributions, orders=[2]).check(RenyiGuarantee(2, 0.5)).text)
        broken: stated (2, 0.5)-RDP, reaches 0.847298; worst ratio at 0 against 1, output 0
        """
        if isinstance(guarantee, RenyiGuarantee):
            return self._check_renyi(guarantee)
        if guarantee.is_pure or self.epsilon <= guarantee.epsilon + ROUNDING:
            slack = guarantee.epsilon - self.epsilon
            holds = slack >= -ROUNDING
            if holds:
                return Verdict(True, slack, f"within {guarantee}: loses {self.epsilon:.4f}, slack {max(slack, 0):.4f}")
            return Verdict(False, slack, f"broken: stated {guarantee}, loses {self.epsilon:.4f} at {self.witness}")
        if guarantee.epsilon not in self.deltas:
            raise ValueError(
                f"epsilon must be one of the audited {list(self.deltas)}, got {guarantee.epsilon:g}; add it to "
                "`epsilons` of the audit"
            )
        delta = self.deltas[guarantee.epsilon]
        slack = guarantee.delta - delta
        if slack >= 0:
            return Verdict(True, slack, f"within {guarantee}: delta {delta:.3g}, slack {slack:.3g}")
        return Verdict(False, slack, f"broken: stated {guarantee}, delta is {delta:.3g}; worst ratio at {self.witness}")

    def _check_renyi(self, guarantee: RenyiGuarantee) -> Verdict:
        if guarantee.order not in self.renyi:
            raise ValueError(
                f"order must be one of the audited {list(self.renyi)}, got {guarantee.order:g}; add it to `orders` of "
                "the audit"
            )
        divergence = self.renyi[guarantee.order]
        slack = guarantee.epsilon - divergence
        if slack >= -ROUNDING * min(1.0, guarantee.epsilon):  # rounding is smaller for small divergences
            return Verdict(True, slack, f"within {guarantee}: reaches {divergence:.6g}, slack {max(slack, 0):.6g}")
        return Verdict(
            False, slack, f"broken: stated {guarantee}, reaches {divergence:.6g}; worst ratio at {self.witness}"
        )


def audit_distributions(
    distributions: OutputDistributions, epsilons: Sequence[float] = (), orders: Sequence[float] = (), n_threads: int = 1
) -> Audit:
    """Audit the output distributions of all pairs of neighbours exactly.

    Parameters
    ----------
    distributions : OutputDistributions
    epsilons : sequence of float
        Values ≥ 0 at which to compute the hockey-stick profile δ(ε).
    orders : sequence of float
        Orders λ ≥ 1 of the Rényi curve; 1 is the Kullback–Leibler divergence.
    n_threads : int
        Number of threads; the result does not depend on it.

    Returns
    -------
    Audit

    Raises
    ------
    ValueError
        If a distribution has the wrong shape, does not sum to one or contains NaN, if an order or ε is invalid, or
        if there are more than `MAX_AUDITED` combinations of pairs and outputs.

    Notes
    -----
    The pure loss is computed for all pairs. The divergences are skipped for pairs that cannot exceed the current
    maximum, by the bounds of `mechanisms.divergences`.

    Examples
    --------
    >>> table = [[0.8, 0.2, 0.0], [0.5, 0.5, 0.0], [0.4, 0.4, 0.2]]
    >>> distributions = OutputDistributions.from_table(table, pairs=[[0, 1]])
    >>> found = audit_distributions(distributions, epsilons=[0.0, 0.5], orders=[2])
    >>> print(round(found.epsilon, 4), {e: round(d, 4) for e, d in found.deltas.items()}, round(found.renyi[2], 4))
    0.9163 {0.0: 0.3, 0.5: 0.1703} 0.4463
    """
    for epsilon in epsilons:
        if not (math.isfinite(epsilon) and epsilon >= 0):
            raise ValueError(f"epsilons must be finite and >= 0, got {epsilon}; pass privacy losses in nats")
    for order in orders:
        if not (math.isfinite(order) and order >= 1):
            raise ValueError(f"orders must be finite and >= 1, got {order}; 1 is the Kullback-Leibler divergence")
    if n_threads < 1:
        raise ValueError(f"n_threads must be >= 1, got {n_threads}; use 1 for a single thread")
    size = len(distributions.pairs) * len(distributions.outputs)
    if size > MAX_AUDITED:
        raise ValueError(
            f"an exact audit must compare at most {MAX_AUDITED:,} combinations of pairs and outputs, got {size:,} "
            f"({len(distributions.pairs):,} pairs, {len(distributions.outputs):,} outputs); use fewer records, or a "
            "mechanism whose guarantee is proved for every size"
        )
    pairs = distributions.pairs[np.lexsort((distributions.pairs[:, 1], distributions.pairs[:, 0]))]
    parts = np.array_split(pairs, min(n_threads, len(pairs)))
    with ThreadPoolExecutor(len(parts)) as pool:
        found = list(pool.map(partial(_audit_part, distributions, epsilons, orders, _CACHE_BYTES // len(parts)), parts))
    worst = max(found, key=lambda part: part.epsilon)
    return Audit(
        epsilon=worst.epsilon,
        witness=_witness(distributions, *worst.pair),
        deltas={float(e): max(part.deltas[i] for part in found) for i, e in enumerate(epsilons)},
        renyi={float(order): max(part.renyi[i] for part in found) for i, order in enumerate(orders)},
        n_pairs=len(pairs),
        n_outputs=len(distributions.outputs),
    )


def sum_exp(logs: NDArray[np.float64], factor: float = 1.0) -> float:
    """Return Σ exp(factor·logs), computed in blocks that fit in the cache.

    Parameters
    ----------
    logs : ndarray of float64, shape (n,)
        Values for which no term overflows.
    factor : float

    Examples
    --------
    >>> print(round(sum_exp(np.log([1.0, 2.0, 3.0]), 2.0), 12))
    14.0
    """
    work, total = np.empty(min(_PIECE, logs.size)), 0.0
    for start in range(0, logs.size, _PIECE):
        piece = logs[start : start + _PIECE]
        terms = np.multiply(piece, factor, out=work[: piece.size])
        total += float(np.exp(terms, out=terms).sum())
    return total


def _witness(distributions: OutputDistributions, first: int, second: int) -> Witness:
    difference = log_ratios(_distribution(distributions, first), _distribution(distributions, second))
    place = int(np.argmax(np.abs(difference)))
    ratio = float(difference[place])
    if ratio < 0:
        first, second = second, first
    return Witness(
        distributions.datasets[first], distributions.datasets[second], distributions.outputs[place], abs(ratio)
    )


@dataclass
class _Found:
    epsilon: float
    pair: tuple[int, int]
    deltas: list[float]
    renyi: list[float]


def _audit_part(
    distributions: OutputDistributions,
    epsilons: Sequence[float],
    orders: Sequence[float],
    cache_bytes: int,
    pairs: NDArray[np.int64],
) -> _Found:
    found = _Found(-1.0, (0, 0), [0.0] * len(epsilons), [0.0] * len(orders))
    cached: OrderedDict[int, NDArray[np.float64]] = OrderedDict()
    capacity = max(2, cache_bytes // (8 * len(distributions.outputs)))

    def distribution(index: int) -> NDArray[np.float64]:
        if index in cached:
            cached.move_to_end(index)
        else:
            cached[index] = _distribution(distributions, index)
            if len(cached) > capacity:
                cached.popitem(last=False)
        return cached[index]

    for first, second in pairs.tolist():
        here, there = distribution(first), distribution(second)
        high, low = extremes(here, there)
        loss = max(high, -low)
        if loss > found.epsilon:
            found.epsilon, found.pair = loss, (first, second)
        for log_p, log_q, up, down in ((here, there, high, -low), (there, here, -low, high)):
            for i, epsilon in enumerate(epsilons):
                if hockey_stick_bound(up, down, epsilon) > found.deltas[i]:
                    found.deltas[i] = max(found.deltas[i], hockey_stick(log_p, log_ratios(log_p, log_q), epsilon))
            for i, order in enumerate(orders):
                if renyi_bound(up, down, order) > found.renyi[i]:
                    found.renyi[i] = max(found.renyi[i], renyi(log_p, log_ratios(log_p, log_q), order))
    return found


def _distribution(distributions: OutputDistributions, index: int) -> NDArray[np.float64]:
    """Return the log-pmf at a data set; raise ValueError if it has the wrong shape or does not sum to 1."""
    distribution = np.asarray(distributions.log_pmf(index), dtype=np.float64)
    where = f"at data set {_show(distributions.datasets[index])}"
    if distribution.shape != (len(distributions.outputs),):
        raise ValueError(
            f"a distribution must have shape ({len(distributions.outputs)},), got {distribution.shape} {where}; "
            "give one entry per output"
        )
    total = sum_exp(distribution)
    if not abs(total - 1.0) <= _NORMALISED:  # also False for NaN
        raise ValueError(
            f"probabilities must sum to 1 within {_NORMALISED:g}, got {total} {where}; normalise the distribution"
        )
    return distribution


def _show(value: Any) -> str:
    return str(np.asarray(value).tolist())
