"""Rényi divergence between Dirichlet distributions, accurate in relative terms even if the divergence is small.

Let δ = a − b and c = b + λδ, the parameters of the distribution ∝ p^λ·q^(1−λ). The divergence of P = Dir(a) from Q =
Dir(b) is

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

**Mixtures of Beta distributions.** Let φ be the log odds of θ, φ̄ its mean under Beta(a, b), and Beta(a + d, b − d) the
components, d ~ weights. The density of the mixture relative to Beta(a, b) is r(φ) = E[exp(d·(φ − φ̄) − J(a+d, a) −
J(b−d, b))]. The integral ∫ p·(r − 1 − ln r) dφ over the range where the density p of Beta(a, b) is not negligible has a
non-negative integrand. The probability of the mixture outside this range is added to account for ∫ p·(r − 1) there.

References
----------
P3, section 3. Gil, Alajaji & Linder, "Rényi divergence measures for commonly used univariate continuous distributions",
Information Sciences 249, 2013: the closed form.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from mechanisms.core.arguments import Floats
from mechanisms.core.hellinger import validate_parameters
from mechanisms.core.jit import kernel
from mechanisms.core.sums import weighted_sum

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_PIECE = 3.0


_MIXTURE_NODES, _MIXTURE_WEIGHTS = np.polynomial.legendre.leggauss(24)
_NEGLIGIBLE = 45.0  # the density p is truncated where it is below exp(-45) times its maximum
_MOST_PIECES = 1 << 16
_TOLERANCE = 1e-11


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
            f"order must be finite and >= 1, got {lam[~((lam >= 1) & np.isfinite(lam))][0]}; pass 1 or more"
        )
    arguments = np.asarray(start, dtype=np.float64), np.asarray(move, dtype=np.float64), lam
    result = np.empty(np.broadcast_shapes(*(values.shape for values in arguments)))
    # copies, because numba warns of views that broadcasting returns without a change of size
    flat = (np.array(np.broadcast_to(values, result.shape), order="C").reshape(-1) for values in arguments)
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


def mixture_kl(
    posterior: tuple[float, float], components: tuple[Floats, Floats], moved: Floats, probabilities: Floats
) -> float:
    """Return KL(Beta(a, b) ‖ mixture of Beta(a + d, b − d)), d = `moved` exactly, with a relative error below 1e-9."""
    a, b = posterior
    first, second = components
    start = np.array([[a], [b]]) + np.array([[1.0], [-1.0]]) * moved
    exponents = -cell_renyi(start, np.array([[-1.0], [1.0]]) * moved, 1.0).sum(axis=0)
    mean, mode = special.digamma(a) - special.digamma(b), math.log(a / b)
    log_peak = -a * math.log1p(b / a) - b * math.log1p(a / b) - special.betaln(a, b)
    reach = [_reach(a, b, side) for side in (-1.0, 1.0)]
    previous, n_pieces = math.nan, 8
    while n_pieces < _MOST_PIECES:
        edges = np.linspace(-reach[0], reach[1], n_pieces + 1)
        half = (edges[1] - edges[0]) / 2
        away = ((edges[:-1, None] + half) + half * _MIXTURE_NODES).ravel()  # φ - mode
        gaps = np.empty(away.size)
        _fill_gaps(away + (mode - mean), moved, exponents, probabilities, gaps)
        terms = np.exp(log_peak + _log_relative_density(away, a, b)) * gaps
        inside = float(half * weighted_sum(terms.reshape(n_pieces, -1), _MIXTURE_WEIGHTS).sum())
        if abs(inside - previous) <= _TOLERANCE * inside:
            break
        previous, n_pieces = inside, 2 * n_pieces
    else:
        raise ArithmeticError(f"no convergence with {n_pieces} pieces and {moved.size} components")
    low, high = special.expit(np.array([mode - reach[0], -mode - reach[1]]))
    return inside + float(
        weighted_sum(probabilities, special.betainc(first, second, low) + special.betainc(second, first, high))
    )


def _log_relative_density(away: Floats, a: float, b: float) -> Floats:
    """Return ln f(mode + away) − ln f(mode) for the density f of the log odds of θ ~ Beta(a, b)."""
    share = a / (a + b)
    near = np.log1p(np.expm1(np.minimum(away, 1.0)) * share)
    far = np.logaddexp(math.log1p(-share), math.log(share) + np.maximum(away, 1.0))
    return a * away - (a + b) * np.where(away < 1.0, near, far)


def _reach(a: float, b: float, side: float) -> float:
    """Return a distance from the mode beyond which the log odds of θ ~ Beta(a, b) have a negligible density."""
    reach = math.sqrt(1 / a + 1 / b)
    while _log_relative_density(np.array(side * reach), a, b) > -_NEGLIGIBLE:
        reach *= 1.5
    return reach


@kernel
def _fill_gaps(deviations, moved, exponents, probabilities, gaps):
    """Fill `gaps` with r − 1 − ln r for each deviation, where r is the mean of exp(moved·deviation + exponent)."""
    for i in range(deviations.size):
        ratio, excess = 0.0, 0.0
        for j in range(moved.size):
            exponent = moved[j] * deviations[i] + exponents[j]
            ratio += probabilities[j] * math.exp(exponent)
            excess += probabilities[j] * math.expm1(exponent)
        gaps[i] = excess - (math.log1p(excess) if excess > -0.5 else math.log(ratio))
