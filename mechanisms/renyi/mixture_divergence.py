"""Kullback–Leibler divergence of a Beta distribution from a mixture of Beta distributions with the same total.

Let φ be the log odds of θ, φ̄ its mean under Beta(a, b), and Beta(a + d, b − d) the components, d ~ weights. The density
of the mixture relative to Beta(a, b) is r(φ) = E[exp(d·(φ − φ̄) − J(a+d, a) − J(b−d, b))], where J is defined in
`mechanisms.renyi.divergence`. The integral ∫ p·(r − 1 − ln r) dφ over the range where the density p of Beta(a, b) is
not negligible has a non-negative integrand. The probability of the mixture outside this range is added to account for
∫ p·(r − 1) there.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import special

from mechanisms.jit import kernel
from mechanisms.renyi.divergence import cell_renyi
from mechanisms.sums import weighted_sum

__all__ = ["mixture_kl"]

Floats = NDArray[np.float64]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)
_NEGLIGIBLE = 45.0  # the density p is truncated where it is below exp(-45) times its maximum
_MOST_PIECES = 1 << 16
_TOLERANCE = 1e-11


def mixture_kl(
    posterior: tuple[float, float], components: tuple[Floats, Floats], moved: Floats, probabilities: Floats
) -> float:
    """Return the divergence of Beta(a, b) from a mixture of Beta(a + d, b − d), with a relative error below 1e-9.

    `posterior` is (a, b), `components` are a + d and b − d, and `moved` is d, without the rounding of a + d.
    """
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
        away = ((edges[:-1, None] + half) + half * _NODES).ravel()  # φ - mode
        gaps = np.empty(away.size)
        _fill_gaps(away + (mode - mean), moved, exponents, probabilities, gaps)
        terms = np.exp(log_peak + _log_relative_density(away, a, b)) * gaps
        inside = float(half * weighted_sum(terms.reshape(n_pieces, -1), _WEIGHTS).sum())
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
