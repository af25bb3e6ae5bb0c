"""Unbiased estimate of the maximum mean discrepancy (MMD) between two univariate samples, in linear time.

Let x₁, …, xₘ be draws from P and y₁, …, yₙ draws from Q. With the kernel k(p, q) = exp(−(p − q)²/2),

    MMD² = Σ_{i≠j} k(xᵢ, xⱼ)/(m(m−1)) + Σ_{i≠j} k(yᵢ, yⱼ)/(n(n−1)) − 2·Σ_{i,j} k(xᵢ, yⱼ)/(mn).

**Characteristic functions.** The kernel is the Fourier transform of the N(0, 1) density. For distances
up to D, the trapezoidal rule with step h = 2π/(D + c) up to frequency c approximates it by a short cosine sum,

    k(p, q) ≈ Σ_l w_l·cos(l·h·(p − q)),  l = 0, …, ⌈c(D + c)/2π⌉,  w_l = h·√(2/π)·exp(−(lh)²/2), w₀ half of that,

with an error below 2.01·exp(−c²/2) (aliases of the kernel at distance c and more) + erfc(c/√2) (omitted frequencies),
which is 1e-17 for c = 9. With ψ_l the mean of exp(i·l·h·x) over a sample and K = Σ w_l,

    MMD² = Σ w_l·|ψ_l(x) − ψ_l(y)|² − (K − Σ w_l·|ψ_l(x)|²)/(m−1) − (K − Σ w_l·|ψ_l(y)|²)/(n−1).

Nearly equal samples have nearly equal ψ, so cancellation affects only the terms that are divided by m − 1 or n − 1. The
cost is m + n times the number of frequencies. **Widely spread samples** (D > 300) are sorted, and the sums run only
over pairs at a distance of at most c; all other pairs have k < 3e-18.

References
----------
P4, section 4. Gretton, Borgwardt, Rasch, Schölkopf & Smola, "A kernel two-sample test", JMLR 13 (2012), Lemma 6.
Trefethen & Weideman, "The exponentially convergent trapezoidal rule", SIAM Review 56 (2014), section 5.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mechanisms.core.jit import kernel

_CUTOFF = 9.0
_WIDEST = 300.0


def mmd2(x: ArrayLike, y: ArrayLike) -> NDArray[np.float64]:
    """Return the unbiased estimate of MMD² between samples of shapes (..., m) and (..., n), m, n ≥ 2.

    Rounding errors are below 1e-13. P4 pairs the samples (m = n) and omits the m pairs (xᵢ, yᵢ) from the last sum; for
    independent samples the sum over all pairs is also unbiased, with a smaller variance. Time grows with the range of
    the draws: 15 frequencies on the unit interval, 443 for a range of 300; for wider ranges it is quadratic in the
    number of draws within 9 of each other.
    """
    first, second = _as_draws("x", x), _as_draws("y", y)
    if first.shape[:-1] != second.shape[:-1]:
        shapes = f"{first.shape} and {second.shape}"
        raise ValueError(f"x and y must have the same leading axes, got shapes {shapes}; pass one row per trial")
    trials = first.shape[:-1]
    mmd2 = np.empty(math.prod(trials))
    rows = zip(first.reshape(-1, first.shape[-1]), second.reshape(-1, second.shape[-1]), strict=True)
    for trial, (row_x, row_y) in enumerate(rows):
        low, high = min(row_x.min(), row_y.min()), max(row_x.max(), row_y.max())
        if high / 2 - low / 2 <= _WIDEST / 2:  # high - low may overflow
            centre = low / 2 + high / 2
            mmd2[trial] = _mmd2_by_frequencies(row_x - centre, row_y - centre, high - low, _CUTOFF)
        else:
            mmd2[trial] = _mmd2_by_neighbours(row_x, row_y)
    return mmd2.reshape(trials)


def _as_draws(name: str, values: ArrayLike) -> NDArray[np.float64]:
    draws = np.asarray(values, dtype=np.float64)
    if draws.ndim == 0 or draws.shape[-1] < 2:
        raise ValueError(f"{name} must have at least 2 draws on its last axis, got shape {draws.shape}; pass more")
    if not np.all(np.isfinite(draws)):
        raise ValueError(f"{name} must be finite, got {draws[~np.isfinite(draws)].flat[0]}; remove failed trials")
    return draws


@kernel
def _mean_rotations(draws, step, n_frequencies):
    """Return the means of cos(l·step·x) and sin(l·step·x) over the draws x, for l = 1, …, n_frequencies."""
    cosines, sines = np.zeros(n_frequencies), np.zeros(n_frequencies)
    for x in draws:
        turn_cos, turn_sin = math.cos(step * x), math.sin(step * x)
        c, s = turn_cos, turn_sin
        for frequency in range(n_frequencies):
            cosines[frequency] += c
            sines[frequency] += s
            c, s = c * turn_cos - s * turn_sin, s * turn_cos + c * turn_sin
    return cosines / draws.size, sines / draws.size


@kernel
def _mmd2_by_frequencies(x, y, distance, cutoff):
    period = distance + cutoff
    step = 2 * math.pi / period
    n_frequencies = math.ceil(cutoff / step)
    cos_x, sin_x = _mean_rotations(x, step, n_frequencies)
    cos_y, sin_y = _mean_rotations(y, step, n_frequencies)
    between = within_x = within_y = 0.0
    for frequency in range(n_frequencies):  # the terms of frequency zero cancel
        angle = step * (frequency + 1)
        weight = step * math.sqrt(2 / math.pi) * math.exp(-0.5 * angle * angle)
        c, s = cos_x[frequency] - cos_y[frequency], sin_x[frequency] - sin_y[frequency]
        between += weight * (c * c + s * s)  # Python's powers and Numba's may differ in the last bit
        c, s = cos_x[frequency], sin_x[frequency]
        within_x += weight * (1 - c * c - s * s)
        c, s = cos_y[frequency], sin_y[frequency]
        within_y += weight * (1 - c * c - s * s)
    return between - within_x / (x.size - 1) - within_y / (y.size - 1)


def _mmd2_by_neighbours(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    pooled, between = np.concatenate([x, y]), -1 / (x.size * y.size)
    order = np.argsort(pooled)
    weights = np.array([[1 / (x.size * (x.size - 1)), between], [between, 1 / (y.size * (y.size - 1))]])
    return 2 * _sum_close_pairs(pooled[order], (order >= x.size).astype(np.int64), weights)


@kernel
def _sum_close_pairs(points, sample, weights):
    total = 0.0
    for i in range(points.size):
        near = 0.0
        for j in range(i + 1, points.size):
            gap = points[j] - points[i]
            if gap > _CUTOFF:
                break
            near += weights[sample[i], sample[j]] * math.exp(-0.5 * gap * gap)
        total += near
    return total
