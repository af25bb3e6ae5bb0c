"""Hellinger distance between Dirichlet distributions, accurate for very small distances.

The computation is based on the *log affinity* of two positive numbers,

    ℓ(a, b) = lnΓ((a+b)/2) − ½ lnΓ(a) − ½ lnΓ(b) ≤ 0.

With B the multivariate beta function, the affinity of two Dirichlet distributions is

    B((a+b)/2) / √(B(a)·B(b)) = exp( Σᵢ ℓ(aᵢ, bᵢ) − ℓ(Σa, Σb) ),   H² = 1 − affinity.

For equal totals the last term vanishes and the affinity is a product over categories.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.core.arguments import Floats, Integers
from mechanisms.core.jit import kernel


def log_affinity(a: ArrayLike, b: ArrayLike) -> Floats:
    """Return the log affinity ℓ(a, b) = lnΓ((a+b)/2) − ½lnΓ(a) − ½lnΓ(b), elementwise.

    Arguments are > 0, values ≤ 0. The relative error is about 1e-14, and below 1e-12 for arguments in [1e-2, 1e7].

    The difference of log gammas loses all digits for large, close arguments: at a = 10⁷, b = a + 1 the result is −1e-8
    and its terms are 1e8. Instead, with m = (a+b)/2, h = |b−a|/2 and u = h/m, Stirling's series lnΓ(z) = (z−½)ln z − z
    + ½ln 2π + R(z) gives

        −ℓ = ½{(m−½)·log1p(−u²) + 2h·atanh(u)} + ½[R(m+h) + R(m−h)] − R(m),

    which has no terms of the size of lnΓ; the differences of R are expanded in u² as well. Arguments below 16 are first
    shifted by the recurrence Γ(z+1) = zΓ(z): ℓ(a, b) = ℓ(a+1, b+1) + ½·log1p(−u²), whose terms have one sign.
    """
    pair = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    result = np.empty(np.broadcast_shapes(*(values.shape for values in pair)))
    # copies, because numba warns of views that broadcasting returns without a change of size
    flat = (np.array(np.broadcast_to(values, result.shape), order="C").reshape(-1) for values in pair)
    _log_affinities(*flat, result.reshape(-1))
    return result


def hellinger(a: ArrayLike, b: ArrayLike) -> Floats:
    """Return the Hellinger distance H between the Dirichlet distributions Dir(a) and Dir(b).

    H² = 1 − B((a+b)/2) / √(B(a)·B(b)), so that 0 ≤ H ≤ 1 (P0, "Objectives"; P1, eq. 1, where the distance is the
    negative utility).

    Parameters
    ----------
    a, b : array_like, shape (..., k)
        Dirichlet parameters > 0; leading shapes broadcast. The totals Σa and Σb may differ.

    Returns
    -------
    ndarray of float64, shape (...)

    Raises
    ------
    ValueError
        If the last axes differ or have fewer than 2 categories, or a parameter is not finite and > 0.

    References
    ----------
    P0: Bun, Farina, Gaboardi & Liu, "Tailoring Differentially Private Bayesian Inference to Distance Between
    Distributions" (poster). P1: "Differentially Private Bayesian Inference" (draft).

    Notes
    -----
    ln B contains lnΓ(Σα), not ln Σα. A public script that uses ln Σα returns distances that are too small.

    Examples
    --------
    >>> print(np.round(hellinger([1.0, 1.0], [[1.0, 1.0], [2.0, 1.0], [1.0, 9.0]]), 6))
    [0.       0.239146 0.632456]
    """
    first, second = validate_parameters(a, b)
    log_affinity_categories = log_affinity(first, second).sum(axis=-1)
    log_affinity_total = log_affinity(first.sum(axis=-1), second.sum(axis=-1))
    return _distances(log_affinity_categories, log_affinity_total)


def release_distances(prior: Floats, counts: Integers, released: Integers) -> Floats:
    """Return ``hellinger(prior + counts, prior + released)`` for releases of shape (trials, k), by tables per count."""
    log_affinities = np.empty(released.shape)
    for category, (alpha, count) in enumerate(zip(prior, counts, strict=True)):
        column = released[:, category]
        lowest = column.min()
        table = log_affinity(alpha + count, alpha + np.arange(lowest, column.max() + 1))
        log_affinities[:, category] = table[column - lowest]
    log_affinity_total = log_affinity((prior + counts).sum(), (prior + released).sum(axis=-1))
    return _distances(log_affinities.sum(axis=-1), log_affinity_total)


def _distances(log_affinity_categories: Floats, log_affinity_total: Floats) -> Floats:
    # The affinity is at most 1 (Cauchy–Schwarz); with unequal totals its log may exceed 0 by rounding.
    return np.sqrt(np.abs(np.expm1(np.minimum(log_affinity_categories - log_affinity_total, 0.0))))


def validate_parameters(a: ArrayLike, b: ArrayLike) -> tuple[Floats, Floats]:
    """Return the parameters of two Dirichlet distributions as arrays; raise the errors listed in `hellinger`."""
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    for name, values in (("a", first), ("b", second)):
        if values.ndim == 0 or values.shape[-1] < 2:
            raise ValueError(
                f"{name} must have at least 2 categories on its last axis, got shape {values.shape}; "
                "pass Dirichlet parameters"
            )
        is_valid = (values > 0) & np.isfinite(values)
        if not is_valid.all():
            raise ValueError(f"{name} must be finite and > 0, got {values[~is_valid][0]}; pass Dirichlet parameters")
    if first.shape[-1] != second.shape[-1]:
        raise ValueError(
            f"a and b must have the same number of categories, got {first.shape[-1]} and {second.shape[-1]}; "
            "pass parameters of the same model"
        )
    return first, second


@kernel
def _stirling_remainder(z):
    w = 1.0 / (z * z)
    return (1 / 12 - w * (1 / 360 - w * (1 / 1260 - w / 1680))) / z


@kernel
def _log_affinity(a, b):
    if a == b:
        return 0.0
    low, high = min(a, b), max(a, b)
    mean, half = 0.5 * low + 0.5 * high, 0.5 * high - 0.5 * low
    shifted = 0.0
    while low < 16.0:
        u = half / mean
        # 1 − u² = low·high/mean²: the first form is accurate for u < ½, the second for larger u.
        shifted += 0.5 * (math.log1p(-u * u) if u < 0.5 else math.log(low / mean) + math.log(high / mean))
        low, mean, high = low + 1.0, mean + 1.0, high + 1.0
    u = half / mean
    if u < 0.5:
        v = u * u
        main = 0.5 * (mean - 0.5) * math.log1p(-v) + half * math.atanh(u)
        # ½[(m+h)^-p + (m−h)^-p] − m^-p = m^-p·N_p(v)/(1−v)^p, whose polynomials N_p have no constant term.
        n1 = v
        n3 = v * (6 + v * (-3 + v))
        n5 = v * (15 + v * (-5 + v * (10 + v * (-5 + v))))
        n7 = v * (28 + v * (14 + v * (42 + v * (-35 + v * (21 + v * (-7 + v))))))
        s = 1.0 / (mean * (1 - v))
        w = s * s
        remainder = s * (n1 / 12 - w * (n3 / 360 - w * (n5 / 1260 - w * n7 / 1680)))
    else:
        main = 0.5 * ((high - 0.5) * math.log(high / mean) + (low - 0.5) * math.log(low / mean))
        remainder = 0.5 * (_stirling_remainder(high) + _stirling_remainder(low)) - _stirling_remainder(mean)
    return shifted - main - remainder


@kernel
def _log_affinities(a, b, result):
    for i in range(a.size):
        result[i] = _log_affinity(a[i], b[i])
