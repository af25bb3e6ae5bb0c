"""Counts, means and scatter of the rows of each partition, computed in one pass over a chunk of rows.

Each partition accumulates the differences of its rows z = (x, y) from its first row z₀:

    z̄ = z₀ + Σ(z − z₀)/n,   Σ(z − z̄)(z − z̄)ᵀ = Σ(z − z₀)(z − z₀)ᵀ − n(z̄ − z₀)(z̄ − z₀)ᵀ.

As z₀ is a row of the partition, (z₀ − z̄)² is at most the scatter, for any mean of the rows. Within a chunk, a row
affects only the results of its own partition, to the last bit, as the privacy guarantees of releases assume. For this
reason the rows are not centred at a common mean.

References
----------
Chan, Golub & LeVeque, "Algorithms for computing the sample variance", The American Statistician 37(3), 1983.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mechanisms.jit import kernel

__all__ = ["row_moments"]

Floats = NDArray[np.float64]


def row_moments(
    x: NDArray, y: NDArray, labels: NDArray[np.integer], n_partitions: int
) -> tuple[NDArray[np.int64], Floats, Floats]:
    """Return counts, means and scatter of each partition.

    Return, for M partitions, counts (M,), means (M, p + 1) and scatter Σ (z − z̄)(z − z̄)ᵀ, shape (M, p + 1, p + 1), of
    z = (x, y). Means and scatter are 0 for a partition without rows, and not finite if a value is not finite or a
    square overflows.
    """
    width = x.shape[1] + 1
    lower = np.tril_indices(width + 1)
    assert x.shape[0] == y.size == labels.size
    assert labels.size == 0 or 0 <= labels.min() <= labels.max() < n_partitions
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
