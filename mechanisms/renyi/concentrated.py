"""Conversion of zero-concentrated differential privacy (ρ-zCDP) to (ε, δ)-DP and to a privacy profile.

A mechanism is ρ-zCDP if D_λ(M(x)‖M(x')) ≤ ρλ for all λ > 1. The conversion of `mechanisms.renyi.conversions` at the
best order is corollary 13 of Canonne, Kamath & Steinke:

    δ(ε) ≤ inf over λ > 1 of  exp((λ − 1)(λρ − ε)) / (λ − 1) · (1 − 1/λ)^λ.

The logarithm of the right side has the derivative (2λ − 1)ρ − ε + ln(1 − 1/λ), which increases in λ, so the best order
is its only zero. Under composition the values of ρ add up, and their sum is converted.

References
----------
Bun & Steinke, "Concentrated differential privacy: simplifications, extensions, and lower bounds", TCC 2016.
Canonne, Kamath & Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020, corollary 13.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mechanisms.calibrate import bisect
from mechanisms.jit import kernel
from mechanisms.privacy import ConcentratedGuarantee
from mechanisms.privacy_parameters import validate_delta
from mechanisms.privacy_profile import LARGEST_LOSS, STEP, PrivacyProfile

__all__ = ["concentrated_delta", "concentrated_epsilon", "concentrated_profile"]

Floats = NDArray[np.float64]

_BISECTIONS = 70
_NEGLIGIBLE = 1e-18


def concentrated_delta(rho: float, epsilon: ArrayLike) -> Floats:
    """Return the smallest δ for which ρ-zCDP implies (ε, δ)-DP by corollary 13 of Canonne, Kamath & Steinke (2020)."""
    rho = ConcentratedGuarantee(rho).rho
    losses = np.asarray(epsilon, dtype=np.float64)
    if not np.all(losses >= 0):
        raise ValueError(f"epsilon must be >= 0, got {losses[~(losses >= 0)].flat[0]}; pass losses in nats")
    return np.exp(np.minimum(_log_delta(rho, losses, _best_excess(rho, losses)), 0.0))


def concentrated_epsilon(rho: float, delta: float) -> float:
    """Return the smallest ε for which ρ-zCDP implies (ε, δ)-DP by corollary 13, at most ρ + 2·√(ρ·ln(1/δ))."""
    rho, delta = ConcentratedGuarantee(rho).rho, validate_delta(delta)
    low, high = 0.0, rho + 2.0 * math.sqrt(-rho * math.log(delta))
    if concentrated_delta(rho, low) <= delta:
        return 0.0
    return bisect(lambda epsilon: bool(concentrated_delta(rho, epsilon) > delta), low, high)[1]


def concentrated_profile(guarantee: ConcentratedGuarantee) -> PrivacyProfile:
    """Return an upper bound on the privacy profiles of all mechanisms with a zero-concentrated guarantee.

    Profiles are convex in e^ε, but the bound of corollary 13 is not. Every convex profile that satisfies it at the
    points of a grid lies below their lower convex hull, which is returned.
    """
    end = min(concentrated_epsilon(guarantee.rho, _NEGLIGIBLE), LARGEST_LOSS)
    epsilons = np.arange(1 + math.ceil(end / STEP)) * STEP
    bounds = PrivacyProfile(concentrated_delta(guarantee.rho, epsilons))
    points = np.concatenate([-epsilons[:0:-1], epsilons])
    hull = _lower_hull(np.exp(points), bounds.mirrored())
    return PrivacyProfile(hull[epsilons.size - 1 :], guarantee.relation, guarantee.status)


def _best_excess(rho: float, epsilons: Floats) -> Floats:
    """Return λ − 1 for the order λ with the smallest bound on δ at each ε, by bisection of ln(λ − 1)."""
    low, high = np.full(epsilons.shape, -60.0), np.log((epsilons + 1.0) / rho + 2.0)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        excess = np.exp(middle)
        past = (2.0 * excess + 1.0) * rho - epsilons - np.log1p(1.0 / excess) > 0
        low, high = np.where(past, low, middle), np.where(past, middle, high)
    return np.exp((low + high) / 2)


def _log_delta(rho: float, epsilons: Floats, excess: Floats) -> Floats:
    """Return the logarithm of the bound on δ at order 1 + excess; every order > 1 gives a valid bound."""
    order = 1.0 + excess
    return excess * (order * rho - epsilons) - np.log(excess) - order * np.log1p(1.0 / excess)


@kernel
def _lower_hull(x, y):
    """Return the lower convex hull of the points (x, y), evaluated at x; x must be ascending."""
    kept, n_kept = np.empty(x.size, dtype=np.int64), 0
    for i in range(x.size):
        while n_kept > 1:
            a, b = kept[n_kept - 2], kept[n_kept - 1]
            if (y[b] - y[a]) * (x[i] - x[b]) < (y[i] - y[b]) * (x[b] - x[a]):
                break
            n_kept -= 1
        kept[n_kept] = i
        n_kept += 1
    return np.interp(x, x[kept[:n_kept]], y[kept[:n_kept]])
