"""Exact audits: what a mechanism with finitely many data sets and outputs really spends.

A mechanism states its output distribution at every data set (`OutputDistributions`); over all pairs of neighbours P, Q the audit finds

* the pure loss  max |ln p(r)/q(r)|  over outputs r, with the pair and the output that reach it,
* the hockey-stick profile  max δ(ε)  and the Rényi curve  max D_λ(P‖Q)  of `mechanisms.divergences`.

Nothing is estimated: a verdict is a proof up to rounding, and a broken guarantee comes with its counterexample. Audits
of mechanisms with densities (`mechanisms.renyi.audit`) return the same `Audit`, with their own `evidence`.
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
"""Largest number of (pair, output) combinations that is audited: a minute or two on one core."""

ROUNDING = 1e-9
"""Excess of a loss over its guarantee, in nats, that rounding in double precision may explain."""

_CACHE_BYTES = 400_000_000
_PIECE = 8192
_NORMALISED = 1e-11


@dataclass(frozen=True, eq=False)
class OutputDistributions:
    """What an audit needs of a mechanism, at fixed public parameters.

    Parameters
    ----------
    datasets : ndarray, shape (D, ...)
        Every data set, or one of each class that a symmetry of the mechanism makes equivalent.
    outputs : ndarray, shape (R, ...)
        Every possible output.
    pairs : ndarray of int64, shape (P, 2)
        Which data sets are neighbours, each unordered pair once.
    log_pmf : callable
        Index of a data set to the log probabilities of all outputs, shape (R,), −inf for impossible ones.

    Examples
    --------
    Randomised response, true answer told with probability ¾:

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
                f"pairs must be whole numbers of shape (P, 2) with P >= 1, got {pairs.dtype} of shape {pairs.shape}; "
                "list the indices of neighbouring data sets"
            )
        if pairs.min() < 0 or pairs.max() >= len(self.datasets):
            raise ValueError(
                f"pairs must index the {len(self.datasets)} data sets, got {pairs.min()} to {pairs.max()}; count from 0"
            )

    @classmethod
    def from_table(cls, probabilities: ArrayLike, pairs: ArrayLike) -> OutputDistributions:
        """Return the distributions that a table lists, one row a data set.

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
            raise ValueError(f"probabilities must have shape (D, R), got {table.shape}; give one row a data set")
        if not np.all(table >= 0):
            raise ValueError(
                f"probabilities must be >= 0, got {table[~(table >= 0)][0]}; give distributions, not logarithms"
            )
        with np.errstate(divide="ignore"):
            logs = np.log(table)
        distributions = cls(np.arange(len(table)), np.arange(table.shape[1]), np.asarray(pairs), logs.__getitem__)
        for index in range(len(table)):
            _distribution(distributions, index)
        return distributions


@dataclass(frozen=True)
class Witness:
    """The neighbours and the output that show a loss: ln p(output | dataset) − ln p(output | neighbour)."""

    dataset: Any
    neighbour: Any
    output: Any
    log_ratio: float

    def __str__(self) -> str:
        return f"{_show(self.dataset)} against {_show(self.neighbour)}, output {_show(self.output)}"


@dataclass(frozen=True)
class Verdict:
    """Whether a stated guarantee holds, and by how much.

    Attributes
    ----------
    holds : bool
        True also where rounding alone (`ROUNDING`) exceeds the guarantee.
    slack : float
        Stated minus spent: of ε for a pure guarantee or a Rényi guarantee, else of δ.
    text : str
        One line; for a broken guarantee with the counterexample.
    """

    holds: bool
    slack: float
    text: str


@dataclass(frozen=True, eq=False)
class Audit:
    """What an audit found.

    Attributes
    ----------
    epsilon : float
        The pure loss in nats; inf if an output is possible at one data set and impossible at its neighbour, or if
        densities have a ratio without bound.
    witness : Witness
        Where it is reached, ordered so that the ratio is ≥ 1.
    deltas : dict of float to float
        δ at each ε that was asked for.
    renyi : dict of float to float
        The Rényi divergence in nats at each order that was asked for.
    n_pairs, n_outputs : int
        What was compared, after symmetry.
    evidence : str
        How sure it is: "exact" and "closed form" are proofs up to rounding, "quadrature" one up to the error of a rule
        that integrates each distribution to 1 within 1e-11.
    """

    epsilon: float
    witness: Witness
    deltas: dict[float, float]
    renyi: dict[float, float]
    n_pairs: int
    n_outputs: int
    evidence: str = "exact"

    def check(self, guarantee: Guarantee | RenyiGuarantee) -> Verdict:
        """Compare with a stated guarantee.

        Parameters
        ----------
        guarantee : Guarantee or RenyiGuarantee
            For δ > 0 its ε must be among those the audit was asked for, unless the pure loss is within ε; the order of
            a Rényi guarantee must be among its orders.

        Returns
        -------
        Verdict

        Raises
        ------
        ValueError
            If δ at that ε, or the divergence of that order, was not computed.

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
                f"delta must have been computed at epsilon = {guarantee.epsilon:g}, was at {list(self.deltas)}; audit "
                "with it among epsilons"
            )
        delta = self.deltas[guarantee.epsilon]
        slack = guarantee.delta - delta
        if slack >= 0:
            return Verdict(True, slack, f"within {guarantee}: delta {delta:.3g}, slack {slack:.3g}")
        return Verdict(False, slack, f"broken: stated {guarantee}, delta is {delta:.3g}; worst ratio at {self.witness}")

    def _check_renyi(self, guarantee: RenyiGuarantee) -> Verdict:
        if guarantee.order not in self.renyi:
            raise ValueError(
                f"divergence must have been computed at order {guarantee.order:g}, was at {list(self.renyi)}; audit "
                "with it among orders"
            )
        spent = self.renyi[guarantee.order]
        slack = guarantee.epsilon - spent
        if slack >= -ROUNDING * min(1.0, guarantee.epsilon):  # of small divergences rounding explains less
            return Verdict(True, slack, f"within {guarantee}: reaches {spent:.6g}, slack {max(slack, 0):.6g}")
        return Verdict(False, slack, f"broken: stated {guarantee}, reaches {spent:.6g}; worst ratio at {self.witness}")


def audit_distributions(
    distributions: OutputDistributions, epsilons: Sequence[float] = (), orders: Sequence[float] = (), n_threads: int = 1
) -> Audit:
    """Compare the distributions of all neighbours, exactly.

    Parameters
    ----------
    distributions : OutputDistributions
    epsilons : sequence of float
        Where to compute the hockey-stick profile δ(ε), each ≥ 0.
    orders : sequence of float
        Orders λ ≥ 1 of the Rényi curve; 1 is the Kullback–Leibler divergence.
    n_threads : int
        Threads among which the pairs are divided; the result does not depend on it.

    Returns
    -------
    Audit

    Raises
    ------
    ValueError
        If a distribution has the wrong shape, does not sum to one or has a NaN, an order or ε is not allowed, or there are
        more than `MAX_AUDITED` combinations of pairs and outputs.

    Notes
    -----
    Pairs that cannot exceed what was found already, by the bounds of `mechanisms.divergences`, are skipped; no pair is
    left out of the pure loss.

    Examples
    --------
    >>> distributions = OutputDistributions.from_table([[0.8, 0.2, 0.0], [0.5, 0.5, 0.0], [0.4, 0.4, 0.2]], pairs=[[0, 1]])
    >>> found = audit_distributions(distributions, epsilons=[0.0, 0.5], orders=[2])
    >>> print(round(found.epsilon, 4), {e: round(d, 4) for e, d in found.deltas.items()}, round(found.renyi[2], 4))
    0.9163 {0.0: 0.3, 0.5: 0.1703} 0.4463
    """
    for epsilon in epsilons:
        if not (math.isfinite(epsilon) and epsilon >= 0):
            raise ValueError(f"epsilons must be finite and >= 0, got {epsilon}; give losses in nats")
    for order in orders:
        if not (math.isfinite(order) and order >= 1):
            raise ValueError(f"orders must be finite and >= 1, got {order}; 1 is the Kullback-Leibler divergence")
    if n_threads < 1:
        raise ValueError(f"n_threads must be >= 1, got {n_threads}")
    size = len(distributions.pairs) * len(distributions.outputs)
    if size > MAX_AUDITED:
        raise ValueError(
            f"an exact audit must compare at most {MAX_AUDITED:,} combinations of pairs and outputs, got {size:,} "
            f"({len(distributions.pairs):,} pairs, {len(distributions.outputs):,} outputs); use fewer records, or a mechanism whose "
            "guarantee is proved for every size"
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
    """Return Σ exp(factor·logs), in pieces that stay in the cache and never ask the system for memory.

    Parameters
    ----------
    logs : ndarray of float64, shape (n,)
        Such that no term overflows.
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
    kept: OrderedDict[int, NDArray[np.float64]] = OrderedDict()
    capacity = max(2, cache_bytes // (8 * len(distributions.outputs)))

    def distribution(index: int) -> NDArray[np.float64]:
        if index in kept:
            kept.move_to_end(index)
        else:
            kept[index] = _distribution(distributions, index)
            if len(kept) > capacity:
                kept.popitem(last=False)
        return kept[index]

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
    """Return the log-pmf at a data set, refusing what is not one."""
    distribution = np.asarray(distributions.log_pmf(index), dtype=np.float64)
    where = f"at data set {_show(distributions.datasets[index])}"
    if distribution.shape != (len(distributions.outputs),):
        raise ValueError(
            f"a distribution must have shape ({len(distributions.outputs)},), got {distribution.shape} {where}; give one entry an output"
        )
    total = sum_exp(distribution)
    if not abs(total - 1.0) <= _NORMALISED:  # a NaN fails, too
        raise ValueError(
            f"probabilities must sum to 1 within {_NORMALISED:g}, got {total} {where}; normalise the distribution"
        )
    return distribution


def _show(value: Any) -> str:
    return str(np.asarray(value).tolist())
