"""Rényi divergence between Dirichlet distributions, accurate in relative terms even if the divergence is small.

Let δ = a − b and c = b + λδ, the parameters of the distribution ∝ p^λ·q^(1−λ). The divergence of P = Dir(a) from
Q = Dir(b) is

    D_λ(P‖Q) = [ln B(c) − λ·ln B(a)]/(λ−1) + ln B(b) = KL(P‖Q) + KL(P‖Dir(c))/(λ−1)

for λ > 1 and KL(P‖Q) for λ = 1, where ln B(x) = Σᵢ lnΓ(xᵢ) − lnΓ(Σx). It is infinite if an entry of c is ≤ 0 (P3,
equation 5). The second form holds in every exponential family, as the log density of Dir(c) is λ·ln p + (1−λ)·ln q
minus a constant. It separates into terms per category,

    KL(P‖Q) = Σᵢ J(bᵢ, aᵢ) − J(Σb, Σa),   J(x, y) = lnΓ(x) − lnΓ(y) − (x − y)·ψ(y) = ∫ₓʸ (z − x)·ψ₁(z) dz ≥ 0,

where the last term vanishes for equal totals and ψ₁ is the trigamma function. The form with log-gamma functions suffers
from cancellation: at a divergence of e⁻¹⁵ and parameters near 10⁷ no digit is correct. The integral is accurate, as the
integrand does not change sign. The substitution z = x·e^v gives

    J(x, y) = ∫₀^ln(y/x) x·(e^v − 1)·z·ψ₁(z) dv,

where zψ₁(z) is smooth at every scale. The poles of the integrand are at distance π from the real axis, so that
Gauss–Legendre sums on intervals of length 3 are accurate to double precision.

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

from mechanisms.hellinger import validate_parameters
from mechanisms.jit import kernel

__all__ = ["cell_renyi", "dirichlet_renyi"]

Floats = NDArray[np.float64]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_PIECE = 3.0


def dirichlet_renyi(a: ArrayLike, b: ArrayLike, order: ArrayLike) -> Floats:
    """Return D_λ(Dir(a)‖Dir(b)) in nats, for parameters of shape (..., k) and orders λ ≥ 1 that broadcast.

    It is inf if λaᵢ + (1−λ)bᵢ ≤ 0 for some i. For equal totals the relative error is about 1e-14, in addition to that
    of a − b; for other totals the error is relative to the sum over categories, from which the term of the totals is
    subtracted. P3 prints the log normaliser C(η) with Γ instead of lnΓ, and calls the trigamma function ψ₁ digamma.
    """
    first, second = validate_parameters(a, b)
    lam = np.asarray(order, dtype=np.float64)
    move = first - second
    cells = cell_renyi(second, move, lam[..., None]).sum(axis=-1)
    total = cell_renyi(second.sum(axis=-1), move.sum(axis=-1), lam)
    finite = np.isfinite(cells)
    # the divergence is >= 0 (Jensen), but rounding may make the difference slightly negative for unequal totals
    return np.where(finite, np.maximum(cells - np.where(finite, total, 0.0), 0.0), math.inf)


def cell_renyi(start: ArrayLike, move: ArrayLike, order: ArrayLike) -> Floats:
    """Return the contribution of one category, J(x, x+δ) for λ = 1 and J(x, x+δ) + J(x+λδ, x+δ)/(λ−1) for λ > 1.

    `start` is the parameter x > 0 of Q, and `move` is δ > −x; passing δ instead of x + δ avoids cancellation.
    Contributions are ≥ 0, decreasing and convex in x, and inf if x + λδ ≤ 0.
    """
    lam = np.asarray(order, dtype=np.float64)
    if not np.all((lam >= 1) & np.isfinite(lam)):
        raise ValueError(
            f"order must be finite and >= 1, got {lam[~((lam >= 1) & np.isfinite(lam))][0]}; "
            "pass 1 for the Kullback-Leibler divergence"
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
    """Return J(x, x + move), as defined in the module docstring, by quadrature."""
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
