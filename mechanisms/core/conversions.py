"""Conversions between privacy definitions: Rényi curves, zero-concentrated, Gaussian, (ε, δ) and pure guarantees.

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

**Zero-concentrated privacy.** A mechanism is ρ-zCDP if D_λ(M(x)‖M(x')) ≤ ρλ for all λ > 1, and values of ρ add up under
composition. The conversion above at the best order is corollary 13 of Canonne, Kamath & Steinke:

    δ(ε) ≤ inf over λ > 1 of  exp((λ − 1)(λρ − ε)) / (λ − 1) · (1 − 1/λ)^λ.

The logarithm of the right side has the derivative (2λ − 1)ρ − ε + ln(1 − 1/λ), which increases in λ, so the best order
is its only zero.

**Gaussian privacy.** A mechanism is μ-GDP if distinguishing its outputs on two neighbours is at least as hard as
distinguishing N(0, 1) from N(μ, 1), or equivalently δ(ε) ≤ Φ(μ/2 − ε/μ) − e^ε·Φ(−μ/2 − ε/μ) for all ε ≥ 0. Compositions
of μᵢ-GDP mechanisms are √(Σ μᵢ²)-GDP, and μ-GDP implies λμ²/2 as bound on the Rényi divergence of every order λ, that
is, μ²/2-zCDP.

References
----------
Mironov, "Rényi differential privacy", CSF 2017: the definition. Canonne, Kamath &
Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020, proposition 12, and Balle, Barthe, Gaboardi,
Hsu & Sato, "Hypothesis testing interpretations and Rényi differential privacy", AISTATS 2020, theorem 21: the
conversion above. Bretagnolle & Huber, "Estimation des densités: risque minimax", 1979: the bound on the total
variation. Bun & Steinke, "Concentrated differential privacy: simplifications, extensions, and lower bounds", TCC 2016,
proposition 3.3: the curve of a pure ε. Dong, Roth & Su, "Gaussian differential privacy", JRSS B 84, 2022, corollaries 1
and 2.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import log_ndtr

from mechanisms.core.arguments import Floats
from mechanisms.core.calibrate import bisect
from mechanisms.core.jit import kernel
from mechanisms.core.privacy import ConcentratedGuarantee, GaussianGuarantee
from mechanisms.core.privacy_parameters import validate_delta, validate_epsilon, validate_order
from mechanisms.core.privacy_profile import LARGEST_LOSS, STEP, PrivacyProfile

_TOLERANCE = 1e-12  # relative; results are moved by twice as much to the safe side
_LARGEST_MU = 1e4
_ROUNDING = 1e-15
_BISECTIONS = 70
_NEGLIGIBLE = 1e-18


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
    lam, curve = np.asarray(orders, dtype=np.float64), np.asarray(renyi_epsilons, dtype=np.float64)
    if lam.ndim != 1 or lam.size == 0 or lam.shape != curve.shape:
        raise ValueError(
            f"orders and renyi_epsilons must have one shape (m,), m >= 1, got {lam.shape} and {curve.shape}; align them"
        )
    if not np.all((lam >= 1) & np.isfinite(lam)):
        raise ValueError(f"orders must be finite and >= 1, got {lam.tolist()}; remove invalid orders")
    if not np.all(curve >= 0):
        raise ValueError(f"renyi_epsilons must be >= 0, got {curve.tolist()}; pass divergences in nats")
    delta = validate_delta(delta)
    if np.any(np.expm1(-curve) > -(delta**2)):
        return 0.0
    lam, curve = lam[lam > 1], curve[lam > 1]
    bounds = curve + np.log1p(-1 / lam) - (math.log(delta) + np.log(lam)) / (lam - 1)
    return max(0.0, float(bounds.min(initial=math.inf)))


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
    return bisect(lambda epsilon: pure_renyi(epsilon, order) <= target, low, high)[0]


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the smallest ε for which μ-GDP implies (ε, δ)-DP, within a relative 2e-12."""
    mu, target = GaussianGuarantee(mu).mu, math.log(validate_delta(delta))
    if _log_gaussian_delta(mu, 0.0) <= target:
        return 0.0
    high = mu * (mu / 2 + math.sqrt(-2.0 * target))  # δ(ε) ≤ Φ(μ/2 − ε/μ) ≤ exp(−(ε/μ − μ/2)²/2)
    epsilon = brentq(lambda epsilon: _log_gaussian_delta(mu, epsilon) - target, 0.0, high, xtol=1e-300, rtol=_TOLERANCE)
    return epsilon * (1.0 + 2.0 * _TOLERANCE)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest μ ≤ 10⁴ for which μ-GDP implies (ε, δ)-DP, within a relative 2e-12."""
    epsilon, target = validate_epsilon(epsilon), math.log(validate_delta(delta))
    root = math.sqrt(-2.0 * target)
    low, high = 2.0 * epsilon / (root + math.sqrt(root**2 + 2.0 * epsilon)), _LARGEST_MU  # as in `gaussian_epsilon`
    if _log_gaussian_delta(high, epsilon) <= target:
        return high
    mu = brentq(lambda mu: _log_gaussian_delta(mu, epsilon) - target, low, high, xtol=1e-300, rtol=_TOLERANCE)
    return mu * (1.0 - 2.0 * _TOLERANCE)


def _log_gaussian_delta(mu: float, epsilon: float) -> float:
    """Return an upper bound on ln δ(ε), which includes the rounding of both terms."""
    first, second = float(log_ndtr(mu / 2 - epsilon / mu)), float(epsilon + log_ndtr(-mu / 2 - epsilon / mu))
    gap = second - first - _ROUNDING * (1.0 + abs(first) + epsilon)  # ln of the ratio of the terms, < 0
    return first + math.log(-math.expm1(gap))


def concentrated_delta(rho: float, epsilon: ArrayLike) -> Floats:
    """Return the smallest δ for which ρ-zCDP implies (ε, δ)-DP by corollary 13 of Canonne, Kamath & Steinke (2020)."""
    rho, losses = ConcentratedGuarantee(rho).rho, np.asarray(epsilon, dtype=np.float64)
    low, high = np.full(losses.shape, -60.0), np.log((losses + 1.0) / rho + 2.0)
    for _ in range(_BISECTIONS):  # of ln(λ − 1) of the best order; every order > 1 gives a valid bound
        middle = (low + high) / 2
        excess = np.exp(middle)
        past = (2.0 * excess + 1.0) * rho - losses - np.log1p(1.0 / excess) > 0
        low, high = np.where(past, low, middle), np.where(past, middle, high)
    excess = np.exp((low + high) / 2)
    order = 1.0 + excess
    log_delta = excess * (order * rho - losses) - np.log(excess) - order * np.log1p(1.0 / excess)
    return np.exp(np.minimum(log_delta, 0.0))


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
