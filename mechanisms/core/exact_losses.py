"""Exact audits of mechanisms with finitely many data sets and outputs.

Given the output distribution at every data set (`OutputDistributions`), an audit computes over the output
distributions P, Q of all pairs of neighbours

* the pure loss  max |ln p(r)/q(r)|  over outputs r, with the pair and the output that attain it,
* the hockey-stick profile  max δ(ε)  and the Rényi curve  max D_λ(P‖Q),  as defined in `mechanisms.core.divergences`.

Nothing is estimated: a verdict is a proof up to rounding, and a violated guarantee comes with a counterexample. Audits
of mechanisms with densities (`mechanisms.audit.densities`) return the same `Audit` with a different `evidence`.

**Rounding.** Distributions are computed in double precision. A log probability has an error of a few units in its last
place, so the computed loss may exceed ε slightly: by up to 4e-15 nats for geometric and Laplace noise at ε from 0.1
to 3, and by less for exactly calibrated mechanisms. The error of a loss belongs to its output: an output with a log
probability of −1e16 does not excuse the loss at another output. `Audit.rounding` is the largest loss less the largest
loss that is certain in spite of these errors. A verdict allows for it, up to 1 % of the guarantee, and for one part in
10⁹ of the guarantee (`ROUNDING`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mechanisms.core import divergences
from mechanisms.core.arguments import Floats, Integers, returned_array, validate_integer, validate_number
from mechanisms.core.html import html_table
from mechanisms.core.privacy import ConcentratedGuarantee, Guarantee, Neighbouring, RenyiGuarantee

# largest number of combinations of a pair and an output in one audit, which takes one to two minutes on one core
MAX_AUDITED = 20_000_000_000
CACHE_BYTES = 400_000_000  # default limit on the memory for cached log probabilities, in bytes
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
    relation : Neighbouring
        The relation under which `pairs` are neighbours.
    omitted : float
        Upper bound on the probability of the outputs that a truncated table omits, in [0, 1), for each data set. An
        omitted output may reveal the data set: it is part of δ, and the pure loss is infinite.

    Examples
    --------
    Randomised response that reports the true answer with probability ¾:

    >>> from mechanisms.core.exact_losses import audit_distributions
    >>> distributions = OutputDistributions.from_table([[0.75, 0.25], [0.25, 0.75]], pairs=[[0, 1]])
    >>> print(round(audit_distributions(distributions).epsilon, 6), round(float(np.log(3)), 6))
    1.098612 1.098612
    """

    datasets: NDArray[Any] = field(repr=False)
    outputs: NDArray[Any] = field(repr=False)
    pairs: Integers = field(repr=False)
    log_pmf: Callable[[int], Floats] = field(repr=False)
    relation: Neighbouring = Neighbouring.REPLACE_ONE
    omitted: float = 0.0

    def __post_init__(self) -> None:
        validate_number("omitted", self.omitted, "in [0, 1)", lambda value: 0.0 <= value < 1.0, "pass a probability")
        pairs = np.asarray(self.pairs)
        object.__setattr__(self, "pairs", pairs)
        if pairs.ndim != 2 or pairs.shape[1] != 2 or not len(pairs) or pairs.dtype.kind not in "iu":
            raise ValueError(
                f"pairs must be integers of shape (P, 2), P >= 1, got {pairs.dtype} of {pairs.shape}; pass indices"
            )
        if pairs.min() < 0 or pairs.max() >= len(self.datasets):
            raise ValueError(
                f"pairs must index the {len(self.datasets)} data sets, got {pairs.min()} to {pairs.max()}; count from 0"
            )

    @classmethod
    def from_table(cls, probabilities: ArrayLike, pairs: ArrayLike) -> OutputDistributions:
        """Return output distributions from a table, shape (D, R), with one row per data set, and `pairs` of its rows.

        A row that is not a distribution, or a pair that are not indices of rows, raises ValueError.
        """
        table = np.asarray(probabilities, dtype=np.float64)
        if table.ndim != 2:
            raise ValueError(f"probabilities must have shape (D, R), got {table.shape}; pass one row per data set")
        if not np.all(table >= 0):
            raise ValueError(f"probabilities must be >= 0, got {table[~(table >= 0)][0]}; pass no logarithms")
        with np.errstate(divide="ignore"):
            logs = np.log(table)
        distributions = cls(np.arange(len(table)), np.arange(table.shape[1]), np.asarray(pairs), logs.__getitem__)
        for index in range(len(table)):
            _distribution(distributions, index)
        return distributions


def cached_log_pmf(distributions: OutputDistributions, cache_bytes: int = CACHE_BYTES) -> Callable[[int], Floats]:
    """Return the checked log-pmf as a function of the data set; a cache of `cache_bytes` holds at least two."""
    return lru_cache(max(2, cache_bytes // (8 * len(distributions.outputs))))(partial(_distribution, distributions))


def require_comparable(distributions: OutputDistributions) -> None:
    """Raise ValueError if there are more than `MAX_AUDITED` combinations of pairs and outputs."""
    size = len(distributions.pairs) * len(distributions.outputs)
    if size > MAX_AUDITED:
        raise ValueError(
            f"an exact audit must have at most {MAX_AUDITED:,} pairs times outputs, got {size:,}; use fewer records"
        )


def sum_exp(logs: Floats, factor: float = 1.0) -> float:
    """Return Σ exp(factor·logs), in blocks that fit in the cache, for logs so small that no term overflows."""
    work, total = np.empty(min(_PIECE, logs.size)), 0.0
    for start in range(0, logs.size, _PIECE):
        piece = logs[start : start + _PIECE]
        terms = np.multiply(piece, factor, out=work[: piece.size])
        total += float(np.exp(terms, out=terms).sum())
    return total


def format_value(value: Any) -> str:
    """Return a data set or an output as text."""
    return str(np.asarray(value).tolist())


def _distribution(distributions: OutputDistributions, index: int) -> Floats:
    """Return the log-pmf at a data set; raise ValueError if the shape is wrong or the pmf does not sum to 1."""
    distribution = returned_array("log_pmf", distributions.log_pmf(index)).astype(np.float64, copy=False)
    where = f"at data set {format_value(distributions.datasets[index])}"
    if distribution.shape != (len(distributions.outputs),):
        raise ValueError(
            f"a distribution must have shape ({len(distributions.outputs)},), got {distribution.shape} {where}; "
            "give one entry per output"
        )
    total = sum_exp(distribution)
    if not 1.0 - distributions.omitted - _NORMALISED <= total <= 1.0 + _NORMALISED:  # also rejects NaN
        raise ValueError(
            f"probabilities must sum to 1 within {_NORMALISED:g}, got {total} {where}; normalise the distribution"
        )
    return distribution


ROUNDING = 1e-9  # relative tolerance for rounding when a loss is compared with its guarantee
_LARGEST_ERROR = 0.01  # largest error of a loss that a verdict excuses, relative to the stated loss


@dataclass(frozen=True)
class Witness:
    """Neighbouring data sets and an output, with the log ratio of the probabilities of the output at both data sets."""

    dataset: Any
    neighbour: Any
    output: Any
    log_ratio: float

    def __str__(self) -> str:
        first, second, output = map(format_value, (self.dataset, self.neighbour, self.output))
        return f"{first} against {second}, output {output}"


@dataclass(frozen=True)
class Verdict:
    """Verdict on a stated guarantee, with its slack.

    Attributes
    ----------
    holds : bool
        True if the excess over the guarantee is at most the tolerance of `exceeds`.
    slack : float
        Stated minus computed value: of ε for a pure or Rényi guarantee, and for an (ε, δ) guarantee if the pure loss is
        at most ε; of ρ for a zero-concentrated guarantee; otherwise of δ.
    text : str
        Summary in one line, with the counterexample if the guarantee is violated.
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
        Neighbours and output that attain `epsilon`, ordered so that `Witness.log_ratio` is ≥ 0.
    deltas : dict of float to float
        δ at each requested ε.
    renyi : dict of float to float
        Rényi divergence in nats at each requested order.
    n_pairs, n_outputs : int
        Number of compared pairs, one per equivalence class under a symmetry of the mechanism, and number of outputs.
    evidence : str
        "exact" and "closed form" are proofs up to rounding; "quadrature" is a proof up to the error of a quadrature
        rule that integrates each distribution to 1 within 1e-11.
    relation : Neighbouring
        Neighbouring relation of the compared pairs. A guarantee under another relation cannot be checked.
    rounding : float
        Amount in nats by which `epsilon` exceeds the largest loss that is certain in spite of rounding errors.
    delta_rounding, renyi_rounding : dict of float to float
        The same amount for each value of `deltas` and `renyi`; 0 for missing keys.
    """

    epsilon: float
    witness: Witness
    deltas: dict[float, float]
    renyi: dict[float, float]
    n_pairs: int
    n_outputs: int
    evidence: str = "exact"
    relation: Neighbouring = Neighbouring.REPLACE_ONE
    rounding: float = 0.0
    delta_rounding: dict[float, float] = field(default_factory=dict)
    renyi_rounding: dict[float, float] = field(default_factory=dict)

    def _repr_html_(self) -> str:
        rows = [("privacy loss ε", f"{self.epsilon:.6g}"), ("at", str(self.witness))]
        rows += [(f"δ at ε = {epsilon:g}", f"{delta:.4g}") for epsilon, delta in self.deltas.items()]
        rows += [(f"Rényi divergence of order {order:g}", f"{value:.6g}") for order, value in self.renyi.items()]
        rows += [("neighbours", self.relation.value), ("evidence", self.evidence)]
        return html_table("Audit", (), [*rows, ("compared", f"{self.n_pairs:,} pairs, {self.n_outputs:,} outputs")])

    def check(self, guarantee: Guarantee | RenyiGuarantee | ConcentratedGuarantee) -> Verdict:
        """Compare the audit with a stated guarantee.

        Parameters
        ----------
        guarantee : Guarantee, RenyiGuarantee or ConcentratedGuarantee
            For δ > 0, ε must be one of the audited values unless the pure loss is at most ε. The order of a Rényi
            guarantee must be one of the audited orders. A zero-concentrated guarantee is checked at all audited orders
            above 1, which is not a proof for other orders.

        Raises
        ------
        ValueError
            If `guarantee` is not a guarantee or is stated for another neighbouring relation, or if δ at the
            stated ε, or the divergence at the stated order, has not been audited.

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
        if not isinstance(guarantee, Guarantee | RenyiGuarantee | ConcentratedGuarantee):
            raise ValueError(
                f"guarantee must be a Guarantee, RenyiGuarantee or ConcentratedGuarantee, got {guarantee!r}; pass one"
            )
        if guarantee.relation is not self.relation:
            raise ValueError(
                f"a guarantee must be checked under its own relation ({guarantee.relation.value}), got an audit under "
                f"another ({self.relation.value}); audit under the relation of the guarantee"
            )
        if isinstance(guarantee, ConcentratedGuarantee):
            return self._check_concentrated(guarantee)
        value, stated, rounding, uncertain = self.epsilon, guarantee.epsilon, self.rounding, 0.0
        verb, broken, at, shown = "loses", "loses", "", _nats
        if isinstance(guarantee, RenyiGuarantee):
            value = _audited(self.renyi, "order", guarantee.order)
            rounding = self.renyi_rounding.get(guarantee.order, 0.0)
            verb, broken, at, shown = "reaches", "reaches", "; worst ratio", "{:.6g}".format
        elif not guarantee.is_pure and exceeds(value, stated, rounding):
            value, stated = _audited(self.deltas, "epsilon", guarantee.epsilon), guarantee.delta
            rounding, uncertain = 0.0, self.delta_rounding.get(guarantee.epsilon, 0.0)
            verb, broken, at, shown = "delta", "delta is", "; worst ratio", "{:.3g}".format
        slack = stated - value
        if not exceeds(value - uncertain, stated, rounding):
            return Verdict(True, slack, f"within {guarantee}: {verb} {shown(value)}, slack {shown(max(slack, 0.0))}")
        excess = format_excess(value, stated, shown(value))
        return Verdict(False, slack, f"broken: stated {guarantee}, {broken} {excess}{at} at {self.witness}")

    def _check_concentrated(self, guarantee: ConcentratedGuarantee) -> Verdict:
        verdicts = {order: self.check(guarantee.at_order(order)) for order in self.renyi if order > 1}
        if not verdicts:
            raise ValueError(f"an order > 1 must be audited for {guarantee}, got {list(self.renyi)}; pass `orders`")
        order = min(verdicts, key=lambda order: (verdicts[order].holds, verdicts[order].slack / order))
        worst = verdicts[order]
        if worst.holds:
            text = f"within {guarantee} at orders {', '.join(f'{order:g}' for order in verdicts)}"
        else:
            text = f"broken: stated {guarantee}; {worst.text}"
        return Verdict(worst.holds, worst.slack / order, text)


def _audited(audited: dict[float, float], name: str, value: float) -> float:
    """Return the value that was found at an ε or an order; raise ValueError if there is none."""
    if value not in audited:
        raise ValueError(
            f"{name} must be one of the audited {list(audited)}, got {value:g}; add it to `{name}s` of the audit"
        )
    return audited[value]


def exceeds(loss: Any, stated: Any, rounding: float = 0.0) -> Any:
    """Return True where a loss exceeds `stated` by more than `ROUNDING` and `rounding`, excused up to 1 % of it."""
    tolerance = np.minimum(rounding, stated * _LARGEST_ERROR) if rounding else 0.0
    return loss > stated * (1.0 + ROUNDING) + tolerance


def format_excess(value: float, stated: float, text: str = "") -> str:
    """Return `text`, by default four decimals, or as many digits of `value` as show that it exceeds `stated`."""
    longer = (f"{value:.{digits}{kind}}" for digits in range(5, 18) for kind in "fg")
    for shown in (text or f"{value:.4f}", *longer):
        if float(shown) > stated and float(shown) != float(f"{stated:g}"):
            return shown
    return repr(value)


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

    Raises
    ------
    ValueError
        If a distribution has the wrong shape, does not sum to one or contains NaN, if an order or ε is invalid, or
        if there are more than `MAX_AUDITED` combinations of pairs and outputs.

    Notes
    -----
    The pure loss is computed for all pairs. A divergence is computed only for pairs whose upper bound (see
    `mechanisms.core.divergences`) exceeds the current maximum.

    Examples
    --------
    Pure loss, δ at two ε, and Rényi divergence of order 2 between the first two data sets:

    >>> table = [[0.8, 0.2, 0.0], [0.5, 0.5, 0.0], [0.4, 0.4, 0.2]]
    >>> distributions = OutputDistributions.from_table(table, pairs=[[0, 1]])
    >>> found = audit_distributions(distributions, epsilons=[0.0, 0.5], orders=[2])
    >>> print(round(found.epsilon, 4), {e: round(d, 4) for e, d in found.deltas.items()}, round(found.renyi[2], 4))
    0.9163 {0.0: 0.3, 0.5: 0.1703} 0.4463
    """
    for epsilon in epsilons:
        validate_number("epsilons", epsilon, "finite and >= 0", lambda e: 0.0 <= e < math.inf, "pass losses in nats")
    for order in orders:
        validate_number("orders", order, "finite and >= 1", lambda o: 1.0 <= o < math.inf, "pass 1, 2 or more")
    n_threads = validate_integer("n_threads", n_threads, advice="use 1 for a single thread")
    require_comparable(distributions)
    pairs = distributions.pairs[np.lexsort((distributions.pairs[:, 1], distributions.pairs[:, 0]))]
    parts = np.array_split(pairs, min(n_threads, len(pairs)))
    with ThreadPoolExecutor(len(parts)) as pool:
        audit_part = partial(_audit_part, distributions, epsilons, orders, CACHE_BYTES // len(parts))
        losses_of_parts = list(pool.map(audit_part, parts))
    worst = max(losses_of_parts, key=lambda part: part.epsilon)
    omitted, sizes = distributions.omitted, (len(pairs), len(distributions.outputs))
    deltas, certain_deltas = np.max([part.deltas for part in losses_of_parts], axis=0).tolist()
    renyi, certain_renyi = np.max([part.renyi for part in losses_of_parts], axis=0).tolist()
    profile = {float(e): min(delta + omitted, 1.0) for e, delta in zip(epsilons, deltas, strict=True)}
    if omitted:
        first, second = (distributions.datasets[place] for place in worst.pair)
        witness = Witness(first, second, f"omitted outputs of probability {omitted:g}", math.inf)
        curve = dict.fromkeys(map(float, orders), math.inf)
        return Audit(math.inf, witness, profile, curve, *sizes, relation=distributions.relation)
    curve = dict(zip(map(float, orders), renyi, strict=True))
    return Audit(
        worst.epsilon, _witness(distributions, *worst.pair), profile, curve, *sizes, relation=distributions.relation,
        rounding=_excess(worst.epsilon, max(part.certain for part in losses_of_parts)),
        delta_rounding={float(e): profile[e] - delta for e, delta in zip(epsilons, certain_deltas, strict=True)},
        renyi_rounding={float(o): _excess(curve[o], loss) for o, loss in zip(orders, certain_renyi, strict=True)},
    )  # fmt: skip


def _excess(loss: float, certain: float) -> float:
    """Return the amount by which a computed loss exceeds the certain loss; 0 if the loss is infinite."""
    return loss - certain if loss < math.inf else 0.0


def _witness(distributions: OutputDistributions, first: int, second: int) -> Witness:
    log_pmf = cached_log_pmf(distributions)
    difference = divergences.log_ratios(log_pmf(first), log_pmf(second))
    place = int(np.argmax(np.abs(difference)))
    ratio, output = float(difference[place]), distributions.outputs[place]
    first, second = (first, second) if ratio >= 0 else (second, first)
    return Witness(distributions.datasets[first], distributions.datasets[second], output, abs(ratio))


@dataclass(repr=False)
class _LargestLosses:
    deltas: Floats  # largest values, and largest values that are certain, shape (2, number of ε)
    renyi: Floats  # shape (2, number of orders)
    pair: tuple[int, int] = (0, 0)
    epsilon: float = -1.0
    certain: float = -math.inf


def _audit_part(
    distributions: OutputDistributions, epsilons: Sequence[float], orders: Sequence[float], cache: int, pairs: Integers
) -> _LargestLosses:
    largest = _LargestLosses(np.zeros((2, len(epsilons))), np.zeros((2, len(orders))))
    distribution = cached_log_pmf(distributions, cache)
    for first, second in pairs.tolist():
        here, there = distribution(first), distribution(second)
        high, low, certain = divergences.extremes(here, there)
        loss, largest.certain = max(high, -low), max(largest.certain, certain)
        if loss > largest.epsilon:
            largest.epsilon, largest.pair = loss, (first, second)
        for log_p, log_q, up, down in ((here, there, high, -low), (there, here, -low, high)):
            for i, epsilon in enumerate(epsilons):
                if divergences.hockey_stick_bound(up, down, epsilon) > largest.deltas[0, i]:
                    losses = divergences.log_ratios(log_p, log_q)
                    certain_losses = losses - divergences.rounding_errors(log_p, log_q)
                    values = [divergences.hockey_stick(log_p, loss, epsilon) for loss in (losses, certain_losses)]
                    largest.deltas[:, i] = np.maximum(largest.deltas[:, i], values)
            for i, order in enumerate(orders):
                if divergences.renyi_bound(up, down, order) > largest.renyi[0, i]:
                    divergence = divergences.renyi_divergence(log_p, log_q, order)
                    error = divergences.renyi_error(log_p, log_q, order) if divergence < math.inf else 0.0
                    largest.renyi[:, i] = np.maximum(largest.renyi[:, i], [divergence, divergence - error])
    return largest


def _nats(loss: float) -> str:
    return f"{loss:.4f}" if loss == 0 or loss >= 1e-3 else f"{loss:.4g}"
