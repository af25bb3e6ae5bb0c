"""Centred sufficient statistics of linear regression, for many partitions of the rows.

For y = β₀ + x·β + e every posterior depends on the rows z = (x, y) only through their number, means z̄ and scatter
Σ (z − z̄)(z − z̄)ᵀ. The raw moments XᵀX, Xᵀy, yᵀy are equivalent but suffer from cancellation if means are large: with
x near 10⁸ and a standard deviation of 1, no digit remains. Statistics of disjoint sets of rows can be combined in any
order to those of their union (`pool`), so that a table can be read in chunks.

References
----------
Chan, Golub & LeVeque, "Algorithms for computing the sample variance", The American Statistician 37(3), 1983.
P2: Amitai, "Bayesian Inference Via Partitioning Under Differential Privacy", Duke University 2018.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mechanisms.arguments import validate_integer
from mechanisms.privacy_parameters import validate_size
from mechanisms.regression.row_moments import row_moments

__all__ = [
    "RegressionStatistics",
    "draw_partition",
    "partition_sizes",
    "partition_statistics",
]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RegressionStatistics:
    """Sufficient statistics of the rows of each partition."""

    n_rows: NDArray[np.int64] = field(repr=False)  # shape (...)
    means: Floats = field(repr=False)  # of p columns and, last, of the outcome, shape (..., p + 1); 0 without rows
    scatter: Floats = field(repr=False)  # Σ (z − z̄)(z − z̄)ᵀ of z = (x, y), shape (..., p + 1, p + 1)
    intercept: bool = True  # the model has an intercept, coefficient 0; x has no column of ones

    def __post_init__(self) -> None:
        n_rows = np.asarray(self.n_rows)
        means, scatter = (np.asarray(each, dtype=np.float64) for each in (self.means, self.scatter))
        width = means.shape[-1:]
        if n_rows.dtype.kind not in "iu" or means.shape != n_rows.shape + width or scatter.shape != means.shape + width:
            raise ValueError(
                "n_rows must be integers of shape (...), means of shape (..., p + 1) and scatter of shape (..., p + 1, "
                f"p + 1), got {n_rows.dtype} of shape {n_rows.shape}, {means.shape} and {scatter.shape}; use "
                "partition_statistics"
            )
        if width[0] < 2 - bool(self.intercept):
            raise ValueError(
                f"statistics must have at least one coefficient, got {width[0] - 1} columns and no intercept; add a "
                "column or an intercept"
            )
        if not (np.all(n_rows >= 0) and np.all(np.isfinite(means)) and np.all(np.isfinite(scatter))):
            raise ValueError("statistics must be finite and n_rows >= 0; remove rows with missing or infinite values")
        for name, value in (("n_rows", n_rows.astype(np.int64)), ("means", means), ("scatter", scatter)):
            object.__setattr__(self, name, value)

    @property
    def n_coefficients(self) -> int:
        """Number d of coefficients, including the intercept if there is one."""
        return self.means.shape[-1] - 1 + bool(self.intercept)

    def __getitem__(self, index: Any) -> RegressionStatistics:
        """Return the statistics of the selected partitions."""
        return RegressionStatistics(
            np.asarray(self.n_rows[index]),
            self.means[index],
            self.scatter[index],
            self.intercept,
        )

    @staticmethod
    def stack(parts: Sequence[RegressionStatistics]) -> RegressionStatistics:
        """Stack statistics of equal shape along a new first axis; ``pool(0)`` then combines chunks of one table."""
        kinds = sorted({(part.means.shape, part.intercept) for part in parts})
        if len(kinds) != 1:
            raise ValueError(
                "parts must be statistics of one shape, all with an intercept or all without, got "
                f"{', '.join(f'{shape} with intercept={intercept}' for shape, intercept in kinds) or 'none'}; compute "
                "all with the same columns"
            )
        return RegressionStatistics(
            np.stack([part.n_rows for part in parts]),
            np.stack([part.means for part in parts]),
            np.stack([part.scatter for part in parts]),
            parts[0].intercept,
        )

    def pool(self, axis: int = -1) -> RegressionStatistics:
        """Return the statistics of the union of the partitions along an axis."""
        axis = axis % self.n_rows.ndim
        n = self.n_rows.sum(axis)
        share = self.n_rows / np.maximum(np.expand_dims(n, axis), 1)
        # Subtracting the mean of the first partition reduces the rounding error of large means.
        origin = self.means.take([0], axis)
        means = (origin + np.sum(share[..., None] * (self.means - origin), axis, keepdims=True)).take(0, axis)
        apart = self.means - np.expand_dims(means, axis)
        between = np.einsum("...,...i,...j->...ij", self.n_rows, apart, apart)
        return RegressionStatistics(n, means, np.sum(self.scatter + between, axis), self.intercept)

    def add_to_outcome(self, coefficients: ArrayLike) -> RegressionStatistics:
        """Return the statistics of the same rows with y replaced by y + β₀ + x·β; `coefficients` start with any β₀."""
        b = np.asarray(coefficients, dtype=np.float64)
        slopes = b[bool(self.intercept) :]
        step = np.eye(self.means.shape[-1])
        step[-1, :-1] = slopes
        means = self.means @ step.T
        if self.intercept:
            means[..., -1] += b[0]
        return RegressionStatistics(self.n_rows, means, step @ self.scatter @ step.T, self.intercept)

    @property
    def XtX(self) -> Floats:  # noqa: N802
        """Raw moments XᵀX of the design, shape (..., d, d); an intercept is the first column of X."""
        return self._raw()[..., :-1, :-1]

    @property
    def Xty(self) -> Floats:  # noqa: N802
        """Raw moments Xᵀy of design and outcome, shape (..., d)."""
        return self._raw()[..., :-1, -1]

    @property
    def yty(self) -> Floats:
        """Sum of squares Σy² of the outcome, shape (...)."""
        return self._raw()[..., -1, -1]

    def _raw(self) -> Floats:
        """Return the raw moments of (1, x, y), or of (x, y) without an intercept."""
        means, first = self.means, int(self.intercept)
        if first:
            means = np.concatenate([np.ones((*means.shape[:-1], 1)), means], axis=-1)
        raw = np.einsum("...,...i,...j->...ij", self.n_rows, means, means)
        raw[..., first:, first:] += self.scatter
        return raw


def partition_sizes(n: int, size: int) -> NDArray[np.int64]:
    """Return the sizes of ⌊n/size⌋ partitions of n rows.

    Sizes are at least `size` and differ by at most one; the first partitions are the larger ones.
    """
    n, size = validate_size(n), validate_integer("size", size, advice="pass the rows per partition")
    if size > n:
        raise ValueError(f"size must be at most n = {n}, got {size}; choose smaller partitions")
    n_partitions = n // size
    sizes = np.full(n_partitions, n // n_partitions, dtype=np.int64)
    sizes[: n % n_partitions] += 1
    return sizes


def draw_partition(rng: np.random.Generator, n: int, size: int) -> NDArray[np.int64]:
    """Divide n rows at random into partitions, labelled from 0, with the sizes of `partition_sizes`.

    The partition does not depend on the data. Replacing a row changes one partition, and guarantees hold for every
    fixed partition.
    """
    sizes = partition_sizes(n, size)
    return rng.permutation(np.repeat(np.arange(sizes.size), sizes))


def partition_statistics(
    x: ArrayLike, y: ArrayLike, partition: ArrayLike, n_partitions: int | None = None, intercept: bool = True
) -> RegressionStatistics:
    """Return the statistics of each partition in a table or in a chunk of a table.

    Columns x have shape (n, p), without a column of ones if there is an intercept; labels are from 0. The number of
    partitions is the largest label plus one by default. A chunk need not contain rows of every partition, and
    ``RegressionStatistics.stack(chunks).pool(0)`` combines chunks.
    """
    columns, outcome, labels = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64), np.asarray(partition)
    n = len(outcome) if outcome.ndim == 1 else -1
    if columns.ndim != 2 or outcome.ndim != 1 or columns.shape[0] != n or labels.shape != (n,):
        raise ValueError(
            f"rows must have shapes (n, p), (n,) and (n,), got {columns.shape}, {outcome.shape} and {labels.shape}; "
            "pass one row per record"
        )
    z = np.concatenate([columns, outcome[:, None]], axis=1)
    finite = np.isfinite(z).all(axis=1)
    if not finite.all():
        raise ValueError(
            f"rows must be finite, got a non-finite value in row {np.flatnonzero(~finite)[0]}; drop the row"
        )
    most = int(labels.max(initial=-1)) + 1
    total = most if n_partitions is None else validate_integer("n_partitions", n_partitions)
    if labels.dtype.kind not in "iu" or labels.min(initial=0) < 0 or most > total or total < 1:
        raise ValueError(
            f"partitions must be integers from 0 to {total - 1}, got {labels.dtype} from {labels.min(initial=0)} "
            f"to {labels.max(initial=0)}; number the partitions from 0"
        )
    n_rows, means, scatter = row_moments(columns, outcome, labels, total)
    return RegressionStatistics(n_rows, means, scatter, intercept)
