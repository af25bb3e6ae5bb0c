"""Simulation of sufficient statistics of a linear regression without storing rows.

Simulating a data set with 100,000 rows takes little longer than drawing its 200,000 normal variables.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.arguments import validate_positive
from mechanisms.jit import kernel
from mechanisms.regression.statistics import RegressionStatistics

__all__ = ["simulate_statistics"]


def simulate_statistics(
    rng: np.random.Generator, sizes: ArrayLike, coefficients: ArrayLike, error_std: float
) -> RegressionStatistics:
    """Draw rows of y = β₀ + x·β + e, x ~ N(0, I), e ~ N(0, σ²), and return their statistics.

    `sizes` are the numbers of rows in M partitions, and `coefficients` are β₀ and p ≥ 1 slopes. The sums are
    accumulated over (x, e), whose expected means are 0, so centring causes no cancellation; the statistics of y are
    computed from them.
    """
    n_rows, b = np.asarray(sizes), np.asarray(coefficients, dtype=np.float64)
    if n_rows.ndim != 1 or n_rows.dtype.kind not in "iu" or not n_rows.size or n_rows.min() < 1:
        raise ValueError(f"sizes must be integers >= 1 of shape (M,), got {sizes!r}; use partition_sizes")
    if b.ndim != 1 or b.size < 2 or not np.all(np.isfinite(b)):
        raise ValueError(
            f"coefficients must be finite, of shape (p + 1,), got {coefficients!r}; pass intercept and slopes"
        )
    error_std = validate_positive("error_std", error_std, "pass a standard deviation")
    means, scatter = np.empty((n_rows.size, b.size)), np.empty((n_rows.size, b.size, b.size))
    _draw_rows(rng, n_rows.astype(np.int64), error_std, means, scatter)
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
