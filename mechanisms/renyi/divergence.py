"""Rényi divergence between Dirichlet distributions, accurate where it is tiny.

With δ = a − b and c = b + λδ, the parameters of the distribution ∝ p^λ·q^(1−λ), the divergence of P = Dir(a) from Q = Dir(b) is

    D_λ(P‖Q) = [ln B(c) − λ·ln B(a)]/(λ−1) + ln B(b) = KL(P‖Q) + KL(P‖Dir(c))/(λ−1),   KL(P‖Q) at λ = 1,

ln B(x) = Σᵢ lnΓ(xᵢ) − lnΓ(Σx), and infinite where an entry of c is ≤ 0 (P3, equation 5). The second form holds in every
exponential family: ln of the distribution of c is λ·ln p + (1−λ)·ln q less a constant. It separates into cells,

    KL(P‖Q) = Σᵢ J(bᵢ, aᵢ) − J(Σb, Σa),   J(x, y) = lnΓ(x) − lnΓ(y) − (x − y)·ψ(y) = ∫ₓʸ (z − x)·ψ₁(z) dz ≥ 0,

whose last term vanishes for equal totals; ψ₁ is the trigamma function. Log gammas cancel: at a target of e⁻¹⁵ and
parameters of 10⁷ they leave no digit. The integral is one of positive terms. With z = x·e^v it is

    J(x, y) = ∫₀^ln(y/x) x·(e^v − 1)·z·ψ₁(z) dv,

where zψ₁(z) is smooth at every scale, between 1/z and 1, and Gauss–Legendre sums are exact in doubles on pieces of
length 3: the poles are π away.

References
----------
P3: Geumlek, Song & Chaudhuri, "Rényi Differential Privacy Mechanisms for Posterior Sampling", NeurIPS 2017, section 3.
Gil, Alajaji & Linder, "Rényi divergence measures for commonly used univariate continuous distributions", Information
Sciences 249, 2013: the closed form.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mechanisms.jit import kernel

__all__ = ["cell_renyi", "dirichlet_renyi"]

Floats = NDArray[np.float64]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_PIECE = 3.0


def dirichlet_renyi(a: ArrayLike, b: ArrayLike, order: ArrayLike) -> Floats:
    """Return the Rényi divergence D_λ(Dir(a)‖Dir(b)).

    Parameters
    ----------
    a, b : array_like, shape (..., k)
        Dirichlet parameters, finite and > 0, k ≥ 2; the totals Σa and Σb may differ.
    order : array_like, shape (...)
        λ, finite and ≥ 1; 1 is the Kullback–Leibler divergence. The leading shapes broadcast.

    Returns
    -------
    ndarray of float64, shape (...)
        In nats, ≥ 0; inf where λaᵢ + (1−λ)bᵢ ≤ 0 for some i. Its relative error is about 1e-14 for equal totals, beside
        that of the differences a − b; for others the total's term is subtracted, and the error is relative to the
        cells' sum.

    Raises
    ------
    ValueError
        If an argument is not allowed.

    Notes
    -----
    P3 prints C(η) with Γ where lnΓ is meant, and calls ψ₁, the trigamma function, digamma.

    Examples
    --------
    >>> print(np.round(dirichlet_renyi([44.0, 74.0], [6.0, 12.0], [1.0, 2.0, 15.0]), 6))
    [0.611674 0.735906 0.959002]
    >>> print(np.round(dirichlet_renyi([1.0, 2.0], [2.0, 1.0], [1.5, 2.0]), 6))
    [1.714096      inf]
    """
    first, second, lam = (np.asarray(each, dtype=np.float64) for each in (a, b, order))
    for name, values in (("a", first), ("b", second)):
        if values.ndim == 0 or values.shape[-1] < 2:
            raise ValueError(
                f"{name} must have at least 2 cells on its last axis, got shape {values.shape}; "
                "pass Dirichlet parameters"
            )
        if not np.all((values > 0) & np.isfinite(values)):
            bad = values[~((values > 0) & np.isfinite(values))][0]
            raise ValueError(f"{name} must be finite and > 0, got {bad}; pass Dirichlet parameters")
    if first.shape[-1] != second.shape[-1]:
        raise ValueError(
            f"a and b must have equally many cells, got {first.shape[-1]} and {second.shape[-1]}; compare one model"
        )
    move = first - second
    cells = cell_renyi(second, move, lam[..., None]).sum(axis=-1)
    total = cell_renyi(second.sum(axis=-1), move.sum(axis=-1), lam)
    finite = np.isfinite(cells)
    # never negative (Jensen); with unequal totals rounding may leave the difference a hair below 0
    return np.where(finite, np.maximum(cells - np.where(finite, total, 0.0), 0.0), math.inf)


def cell_renyi(start: ArrayLike, move: ArrayLike, order: ArrayLike) -> Floats:
    """Return one cell's part of the Rényi divergence, that of lnΓ at x, x + δ and x + λδ.

    [lnΓ(x+λδ) − λ·lnΓ(x+δ)]/(λ−1) + lnΓ(x) = J(x, x+δ) + J(x+λδ, x+δ)/(λ−1); J alone at λ = 1.

    Parameters
    ----------
    start, move : array_like, shape (...)
        x > 0, an entry of Q's parameters, and δ > −x, what P's has more. Passing δ instead of x + δ keeps its digits.
    order : array_like, shape (...)
        λ, finite and ≥ 1. The shapes broadcast.

    Returns
    -------
    ndarray of float64, shape (...)
        ≥ 0, decreasing and convex in x; inf where x + λδ ≤ 0.

    Raises
    ------
    ValueError
        If an order is not allowed.

    Examples
    --------
    >>> print(np.round(cell_renyi(6.0, [1.0, -1.0, -5.0], 2.0), 6))
    [0.154151 0.223144      inf]
    """
    lam = np.asarray(order, dtype=np.float64)
    if not np.all((lam >= 1) & np.isfinite(lam)):
        raise ValueError(
            f"order must be finite and >= 1, got {lam[~((lam >= 1) & np.isfinite(lam))][0]}; "
            "1 is the Kullback-Leibler divergence"
        )
    x, change, lam = np.broadcast_arrays(np.asarray(start, dtype=np.float64), np.asarray(move, dtype=np.float64), lam)
    result = np.empty(x.shape)
    flat = (np.ascontiguousarray(each).reshape(-1) for each in (x, change, lam))
    _fill_cells(*flat, _NODES, _WEIGHTS, result.reshape(-1))
    return result


@kernel
def _trigamma(z):
    total = 0.0
    while z < 16.0:
        total += 1.0 / (z * z)
        z += 1.0
    w = 1.0 / (z * z)
    tail = 1 / 6 - w * (1 / 30 - w * (1 / 42 - w * (1 / 30 - w * (5 / 66 - w * 691 / 2730))))
    return total + (1.0 + (0.5 + tail / z) / z) / z


@kernel
def _bregman(x, move, nodes, weights):
    """Return J(x, x + move)."""
    length = math.log1p(move / x)
    n_pieces = 1 + int(abs(length) / _PIECE)
    total = 0.0
    for piece in range(n_pieces):
        for node, weight in zip(nodes, weights):  # noqa: B905 - numba's zip has no strict
            grown = math.expm1(length * (piece + 0.5 * (1.0 + node)) / n_pieces)
            z = x + x * grown
            total += weight * grown * z * _trigamma(z)
    return total * x * 0.5 * length / n_pieces


@kernel
def _fill_cells(start, move, order, nodes, weights, result):
    for i in range(result.size):
        x, change, above = start[i], move[i], order[i] - 1.0
        mixed = x + change + above * change
        if mixed <= 0.0:
            result[i] = math.inf
            continue
        result[i] = _bregman(x, change, nodes, weights)
        if above > 0.0:
            result[i] += _bregman(mixed, -above * change, nodes, weights) / above
