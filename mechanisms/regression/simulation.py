"""Simulated rows of a linear regression, reduced to their sufficient statistics as they are drawn.

A data set of 100,000 rows takes little more than its 200,000 normal draws, and no memory for rows.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.jit import kernel
from mechanisms.regression.statistics import RegressionStatistics

__all__ = ["simulate_statistics"]


def simulate_statistics(
    rng: np.random.Generator, sizes: ArrayLike, coefficients: ArrayLike, error_std: float
) -> RegressionStatistics:
    """Draw rows of y = β₀ + x·β + e, x ~ N(0, I), e ~ N(0, σ²), and return their statistics; no row is kept.

    Parameters
    ----------
    rng : numpy.random.Generator
    sizes : array_like of int, shape (M,)
        Rows of each partition, ≥ 1.
    coefficients : array_like, shape (p + 1,)
        β₀, β; p ≥ 1.
    error_std : float
        σ, finite and > 0.

    Returns
    -------
    RegressionStatistics
        Of shape (M,), with an intercept.

    Raises
    ------
    ValueError
        If an argument is not allowed.

    Notes
    -----
    Sums are taken of (x, e), whose true means are 0: what is subtracted to centre them is a small part of each. The
    outcome's then follow.

    Examples
    --------
    >>> statistics = simulate_statistics(np.random.default_rng(1), [500, 500], [1.0, 2.0], error_std=0.01)
    >>> (statistics.scatter[:, 0, 1] / statistics.scatter[:, 0, 0]).round(2)
    array([2., 2.])
    """
    n_rows, b = np.asarray(sizes), np.asarray(coefficients, dtype=np.float64)
    if n_rows.ndim != 1 or n_rows.dtype.kind not in "iu" or not n_rows.size or n_rows.min() < 1:
        raise ValueError(f"sizes must be whole numbers >= 1 of shape (M,), got {sizes!r}; see partition_sizes")
    if b.ndim != 1 or b.size < 2 or not np.all(np.isfinite(b)):
        raise ValueError(f"coefficients must be an intercept and slopes, finite, got {coefficients!r}")
    if not (math.isfinite(error_std) and error_std > 0):
        raise ValueError(f"error_std must be finite and > 0, got {error_std}")
    means, scatter = np.empty((n_rows.size, b.size)), np.empty((n_rows.size, b.size, b.size))
    _draw_rows(rng, n_rows.astype(np.int64), float(error_std), means, scatter)
    return RegressionStatistics(n_rows, means, scatter).add_to_outcome(b)


@kernel
def _draw_rows(rng, sizes, error_std, means, scatter):
    """Fill the statistics of rows (x, e) drawn one by one."""
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
