"""Centred sufficient statistics of linear regression, for many partitions of the rows.

For y = β₀ + x·β + e every posterior depends on the rows z = (x, y) only through their number, means z̄ and scatter
Σ (z − z̄)(z − z̄)ᵀ. The raw moments XᵀX, Xᵀy, yᵀy are equivalent but suffer from cancellation if means are large: with
x near 10⁸ and a standard deviation of 1, no digit remains. Statistics of disjoint sets of rows can be combined in any
order to those of their union (`pool`), so that a table can be read in chunks.

**One pass.** Each partition accumulates the differences of its rows z = (x, y) from its first row z₀:

    z̄ = z₀ + Σ(z − z₀)/n,   Σ(z − z̄)(z − z̄)ᵀ = Σ(z − z₀)(z − z₀)ᵀ − n(z̄ − z₀)(z̄ − z₀)ᵀ.

As z₀ is a row of the partition, (z₀ − z̄)² is at most the scatter, for any mean of the rows. Within a chunk, a row
affects only the results of its own partition, to the last bit, as the privacy guarantees of releases assume. For this
reason the rows are not centred at a common mean.

References
----------
Chan, Golub & LeVeque, "Algorithms for computing the sample variance", The American Statistician 37(3), 1983.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mechanisms.core.arguments import Floats, Integers, validate_integer
from mechanisms.core.jit import kernel
from mechanisms.core.privacy_parameters import validate_size

LARGEST_NUMBER = 1e140
"""Largest absolute value of rows for which sums of squares and their products with 10⁹ rows are finite."""


@dataclass(frozen=True, eq=False)
class RegressionStatistics:
    """Sufficient statistics of the rows of each partition."""

    n_rows: Integers = field(repr=False)  # shape (...)
    means: Floats = field(repr=False)  # of p columns and, last, of the outcome, shape (..., p + 1); 0 without rows
    scatter: Floats = field(repr=False)  # Σ (z − z̄)(z − z̄)ᵀ of z = (x, y), shape (..., p + 1, p + 1)
    intercept: bool = True  # the model has an intercept, coefficient 0; x has no column of ones

    @property
    def n_coefficients(self) -> int:
        """Number d of coefficients, including the intercept if there is one."""
        return self.means.shape[-1] - 1 + bool(self.intercept)

    def __getitem__(self, index: Any) -> RegressionStatistics:
        """Return the statistics of the selected partitions."""
        return RegressionStatistics(self.n_rows[index], self.means[index], self.scatter[index], self.intercept)

    @staticmethod
    def stack(parts: Sequence[RegressionStatistics]) -> RegressionStatistics:
        """Stack statistics of equal columns along a new first axis; ``pool(0)`` then combines chunks of one table."""
        arrays = zip(*((part.n_rows, part.means, part.scatter) for part in parts), strict=True)
        n_rows, means, scatter = map(np.stack, arrays)
        return RegressionStatistics(n_rows, means, scatter, parts[0].intercept)

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


def partition_sizes(n: int, size: int) -> Integers:
    """Return the sizes of ⌊n/size⌋ partitions of n rows: at least `size`, equal up to one, the larger first."""
    n, size = validate_size(n), validate_integer("size", size, advice="pass the rows per partition")
    if size > n:
        raise ValueError(f"size must be at most n = {n}, got {size}; choose smaller partitions")
    n_partitions = n // size
    sizes = np.full(n_partitions, n // n_partitions, dtype=np.int64)
    sizes[: n % n_partitions] += 1
    return sizes


def draw_partition(rng: np.random.Generator, n: int, size: int) -> Integers:
    """Divide n rows at random, independently of the data, into partitions, labelled from 0, with `partition_sizes`.

    Replacing a row changes one partition, and guarantees hold for every fixed partition.
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
        raise ValueError(f"rows must be finite, got a non-finite value in row {np.argmin(finite)}; drop it")
    most = int(labels.max(initial=-1)) + 1
    total = most if n_partitions is None else validate_integer("n_partitions", n_partitions)
    if labels.dtype.kind not in "iu" or labels.min(initial=0) < 0 or most > total or total < 1:
        raise ValueError(
            f"partitions must be integers from 0 to {total - 1}, got {labels.dtype} from {labels.min(initial=0)} "
            f"to {labels.max(initial=0)}; number the partitions from 0"
        )
    n_rows, means, scatter = row_moments(columns, outcome, labels, total)
    return RegressionStatistics(n_rows, means, scatter, intercept)


def row_moments(
    x: NDArray, y: NDArray, labels: NDArray[np.integer], n_partitions: int
) -> tuple[Integers, Floats, Floats]:
    """Return counts, shape (M,), means, (M, p + 1), and scatter of z = (x, y), (M, p + 1, p + 1), of M partitions.

    Labels must be valid. Means and scatter are 0 for a partition without rows, and not finite if a value is not finite
    or a square overflows.
    """
    width = x.shape[1] + 1
    lower = np.tril_indices(width + 1)
    sums = np.zeros((n_partitions, width + lower[0].size))
    _add_rows(np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64), labels, sums)
    gram = np.empty((n_partitions, width + 1, width + 1))
    gram[:, lower[0], lower[1]] = gram[:, lower[1], lower[0]] = sums[:, width:]
    n_rows, totals, products = gram[:, 0, 0], gram[:, 1:, 0], gram[:, 1:, 1:]
    with np.errstate(invalid="ignore", over="ignore"):
        apart = totals / np.maximum(n_rows, 1.0)[:, None]
        scatter = products - n_rows[:, None, None] * (apart[:, :, None] * apart[:, None, :])
        means = sums[:, :width] + apart
    return n_rows.astype(np.int64), means, scatter


@kernel
def _add_rows(x, y, labels, sums):
    """Add rows to `sums`, which holds z₀ and the flattened lower triangle of Σ(1, z − z₀)(1, z − z₀)ᵀ per partition."""
    width = x.shape[1] + 1
    z = np.empty(width)
    for row in range(y.size):
        own = sums[labels[row]]
        if own[width] == 0.0:
            for i in range(width - 1):
                own[i] = x[row, i]
            own[width - 1] = y[row]
        for i in range(width - 1):
            z[i] = x[row, i] - own[i]
        z[width - 1] = y[row] - own[width - 1]
        own[width] += 1.0
        place = width + 1
        for i in range(width):
            own[place] += z[i]
            place += 1
            for j in range(i + 1):
                own[place] += z[i] * z[j]
                place += 1


def simulate_statistics(
    rng: np.random.Generator, sizes: ArrayLike, coefficients: ArrayLike, error_std: float
) -> RegressionStatistics:
    """Draw rows of y = β₀ + x·β + e, x ~ N(0, I), e ~ N(0, σ²), and return their statistics.

    `sizes` are the numbers of rows in M partitions, and `coefficients` are β₀ and p ≥ 1 slopes.
    """
    n_rows, b = np.asarray(sizes, dtype=np.int64), np.asarray(coefficients, dtype=np.float64)
    means, scatter = np.empty((n_rows.size, b.size)), np.empty((n_rows.size, b.size, b.size))
    _draw_rows(rng, n_rows, float(error_std), means, scatter)
    return RegressionStatistics(n_rows, means, scatter).add_to_outcome(b)


@kernel
def _draw_rows(rng, sizes, error_std, means, scatter):
    """Draw rows (x, e), and fill `means` and `scatter` with their statistics."""
    width = means.shape[1]
    z = np.empty(width)
    for partition in range(sizes.size):
        mean, products = means[partition], scatter[partition]
        mean[:] = 0.0
        products[:] = 0.0
        for _ in range(sizes[partition]):
            for i in range(width):
                z[i] = rng.standard_normal()
            z[width - 1] *= error_std
            for i in range(width):
                mean[i] += z[i]
                for j in range(i + 1):
                    products[i, j] += z[i] * z[j]
        n = sizes[partition]
        for i in range(width):
            for j in range(i + 1):
                products[i, j] -= mean[i] * mean[j] / n
                products[j, i] = products[i, j]
        for i in range(width):
            mean[i] /= n
