"""Output distributions of mechanisms with finitely many data sets and outputs, for audits and privacy profiles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mechanisms.arguments import Floats, Integers
from mechanisms.privacy import Neighbouring

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

    >>> from mechanisms.audit import audit_distributions
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
        if not 0.0 <= self.omitted < 1.0:
            raise ValueError(f"omitted must be in [0, 1), got {self.omitted}; pass the probability of omitted outputs")
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
        """Return output distributions from a table, shape (D, R), with one row per data set, and `pairs` of its rows.

        A row that is not a distribution, or a pair that are not indices of rows, raises ValueError.
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


def cached_log_pmf(distributions: OutputDistributions, cache_bytes: int = CACHE_BYTES) -> Callable[[int], Floats]:
    """Return the log-pmf as a function of the data set, with a cache of recent ones, at least two, of `cache_bytes`.

    It raises ValueError if it is not a valid distribution.
    """
    return lru_cache(max(2, cache_bytes // (8 * len(distributions.outputs))))(partial(_distribution, distributions))


def require_comparable(distributions: OutputDistributions) -> None:
    """Raise ValueError if there are more than `MAX_AUDITED` combinations of pairs and outputs."""
    size = len(distributions.pairs) * len(distributions.outputs)
    if size > MAX_AUDITED:
        raise ValueError(
            f"an exact audit must compare at most {MAX_AUDITED:,} combinations of pairs and outputs, got {size:,} "
            f"({len(distributions.pairs):,} pairs, {len(distributions.outputs):,} outputs); use fewer records, or a "
            "mechanism whose guarantee is proved for every size"
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
    distribution = np.asarray(distributions.log_pmf(index), dtype=np.float64)
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
