"""Conversions from Rényi curves to (ε, δ) differential privacy, and from pure ε to Rényi curves.

A mechanism is (λ, ε)-RDP if D_λ(M(x)‖M(x')) ≤ ε for all neighbours. Its *curve* is the smallest such ε as a function of
the order λ.

**From a curve to (ε, δ).** With Z the privacy loss, E[exp((λ−1)Z)] = exp((λ−1)·D_λ). As max(1 − e^(ε−z), 0) is at most
(1/λ)(1 − 1/λ)^(λ−1)·e^((λ−1)(z−ε)), with equality where e^(ε−z) = 1 − 1/λ, the hockey-stick divergence satisfies

    δ(ε) ≤ (1/λ)(1 − 1/λ)^(λ−1) · exp((λ−1)(D_λ − ε))

at every order λ > 1. δ(ε) is also at most the total variation δ(0), which is at most √(1 − e^(−KL)) with KL ≤ D_λ.

**From a pure ε to a curve.** Among pairs of distributions with ratios in [e^(−ε), e^ε], randomised response with
probability p = e^ε/(1 + e^ε) of the true answer has the largest divergence at every order, because t ↦ t^λ is convex
and its two ratios are the ends of the interval. The curve of randomised response is therefore the smallest bound that
holds for all ε-DP mechanisms. This curve is at most min(ε, λε²/2).

References
----------
Mironov, "Rényi differential privacy", CSF 2017: the definition, and the classical conversion.
Canonne, Kamath & Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020, proposition 12, and Balle,
Barthe, Gaboardi, Hsu & Sato, "Hypothesis testing interpretations and Rényi differential privacy", AISTATS 2020,
theorem 21: the conversion above.
Bretagnolle & Huber, "Estimation des densités: risque minimax", 1979: the bound on the total variation.
Bun & Steinke, "Concentrated differential privacy: simplifications, extensions, and lower bounds", TCC 2016,
proposition 3.3: the curve of a pure ε.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mechanisms.privacy_parameters import validate_delta, validate_epsilon, validate_order

__all__ = [
    "approximate_delta",
    "approximate_epsilon",
    "classical_epsilon",
    "pure_epsilon_for",
    "pure_renyi",
    "validate_order",
]


def approximate_epsilon(orders: ArrayLike, renyi_epsilons: ArrayLike, delta: float) -> float:
    """Return the smallest ε for which a Rényi curve implies (ε, δ)-DP by the best known conversion.

    The conversion is applied at each of the given orders, and the smallest ε is returned.

    Parameters
    ----------
    orders : array_like, shape (m,)
        Orders λ, finite and ≥ 1.
    renyi_epsilons : array_like, shape (m,)
        Values of the curve at these orders, ≥ 0, in nats; inf where the divergence is unbounded.
    delta : float
        δ in (0, 1).

    Returns
    -------
    float
        ε ≥ 0; inf if no order gives a finite bound.

    Raises
    ------
    ValueError
        If an argument is invalid.

    Examples
    --------
    A Gaussian mechanism whose noise has a standard deviation of 10 times the sensitivity has the curve λ/200:

    >>> orders = np.arange(2, 200)
    >>> print(round(approximate_epsilon(orders, orders / 200, 1e-6), 4))
    0.43
    """
    lam, curve = _curve(orders, renyi_epsilons)
    delta = validate_delta(delta)
    if np.any(np.expm1(-curve) > -(delta**2)):
        return 0.0
    lam, curve = lam[lam > 1], curve[lam > 1]
    bounds = curve + np.log1p(-1 / lam) - (math.log(delta) + np.log(lam)) / (lam - 1)
    return max(0.0, float(bounds.min(initial=math.inf)))


def approximate_delta(orders: ArrayLike, renyi_epsilons: ArrayLike, epsilon: float) -> float:
    """Return the smallest δ for which a Rényi curve implies (ε, δ)-DP by the conversion of the module docstring."""
    lam, curve = _curve(orders, renyi_epsilons)
    epsilon = validate_epsilon(epsilon)
    variation = float(np.sqrt(-np.expm1(-curve)).min())
    lam, curve = lam[lam > 1], curve[lam > 1]
    logs = (lam - 1) * (curve - epsilon + np.log1p(-1 / lam)) - np.log(lam)
    return min(variation, math.exp(min(0.0, float(logs.min(initial=math.inf)))))


def classical_epsilon(order: float, renyi_epsilon: float, delta: float) -> float:
    """Return ε′ = ε + ln(1/δ)/(λ − 1): (λ, ε)-RDP implies (ε′, δ)-DP (Mironov 2017, proposition 3)."""
    order, renyi_epsilon, delta = validate_order(order), validate_epsilon(renyi_epsilon), validate_delta(delta)
    if order == 1:
        raise ValueError("order must be > 1, got 1; choose a larger order")
    return renyi_epsilon - math.log(delta) / (order - 1)


def pure_renyi(epsilon: float, order: float) -> float:
    """Return the largest D_λ of a pure ε-DP mechanism, in (0, min(ε, λε²/2)]; λ may be inf, the pure loss.

    With x = (λ−1)ε, the mean of exp((λ−1)Z) under randomised response is p·e^x + (1−p)·e^(−x), which equals 1 +
    tanh(ε/2)·sinh(x) + 2·sinh²(x/2), a sum of positive terms. At λ = 1 the divergence is ε·tanh(ε/2).
    """
    epsilon = validate_epsilon(epsilon)
    if order == math.inf:
        return epsilon
    order = validate_order(order)
    if order == 1:
        return epsilon * math.tanh(epsilon / 2)
    x = (order - 1) * epsilon
    if x < 1:
        return math.log1p(math.tanh(epsilon / 2) * math.sinh(x) + 2 * math.sinh(x / 2) ** 2) / (order - 1)
    return epsilon - (math.log1p(math.exp(-epsilon)) - math.log1p(math.exp(-epsilon - 2 * x))) / (order - 1)


def pure_epsilon_for(order: float, renyi_epsilon: float) -> float:
    """Return the largest ε with `pure_renyi` ≤ `renyi_epsilon`; it is ≥ max(renyi_epsilon, √(2·renyi_epsilon/λ))."""
    target = validate_epsilon(renyi_epsilon)
    if order == math.inf:
        return target
    order = validate_order(order)
    low, high = target, 2 * max(target, math.sqrt(2 * target / order))
    while pure_renyi(high, order) <= target:
        high *= 2
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if pure_renyi(middle, order) <= target else (low, middle)
    return low


def _curve(orders: ArrayLike, renyi_epsilons: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    lam, curve = np.asarray(orders, dtype=np.float64), np.asarray(renyi_epsilons, dtype=np.float64)
    if lam.ndim != 1 or lam.size == 0 or lam.shape != curve.shape:
        raise ValueError(
            f"orders and renyi_epsilons must have the same shape (m,), m >= 1, got {lam.shape} and {curve.shape}; "
            "pass one divergence per order"
        )
    if not np.all((lam >= 1) & np.isfinite(lam)):
        raise ValueError(f"orders must be finite and >= 1, got {lam.tolist()}; remove invalid orders")
    if not np.all(curve >= 0):
        raise ValueError(f"renyi_epsilons must be >= 0, got {curve.tolist()}; pass divergences in nats")
    return lam, curve
