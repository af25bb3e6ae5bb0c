"""Conversion of Gaussian differential privacy (μ-GDP) to (ε, δ)-DP.

A mechanism is μ-GDP if distinguishing its outputs on two neighbours is at least as hard as distinguishing N(0, 1) from
N(μ, 1). Equivalently, for all ε ≥ 0,

    δ(ε) ≤ Φ(μ/2 − ε/μ) − e^ε·Φ(−μ/2 − ε/μ).

Compositions of μᵢ-GDP mechanisms are √(Σ μᵢ²)-GDP, and μ-GDP implies λμ²/2 as bound on the Rényi divergence of every
order λ, that is, μ²/2-zCDP.

References
----------
Dong, Roth & Su, "Gaussian differential privacy", JRSS B 84, 2022, corollaries 1 and 2.
"""

from __future__ import annotations

import math

from scipy.optimize import brentq
from scipy.special import log_ndtr

from mechanisms.privacy import GaussianGuarantee
from mechanisms.privacy_parameters import validate_delta, validate_epsilon

__all__ = ["gaussian_delta", "gaussian_epsilon", "gaussian_mu"]

_TOLERANCE = 1e-12  # relative; results are moved by twice as much to the safe side
_LARGEST_MU = 1e4
_ROUNDING = 1e-15


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Return the smallest δ for which μ-GDP implies (ε, δ)-DP, for ε ≥ 0."""
    return math.exp(min(_log_delta(GaussianGuarantee(mu).mu, epsilon), 0.0))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the smallest ε for which μ-GDP implies (ε, δ)-DP, within a relative 2e-12."""
    mu, target = GaussianGuarantee(mu).mu, math.log(validate_delta(delta))
    if _log_delta(mu, 0.0) <= target:
        return 0.0
    high = mu * (mu / 2 + math.sqrt(-2.0 * target))  # δ(ε) ≤ Φ(μ/2 − ε/μ) ≤ exp(−(ε/μ − μ/2)²/2)
    found = brentq(lambda epsilon: _log_delta(mu, epsilon) - target, 0.0, high, xtol=1e-300, rtol=_TOLERANCE)
    return found * (1.0 + 2.0 * _TOLERANCE)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest μ for which μ-GDP implies (ε, δ)-DP, within a relative 2e-12."""
    epsilon, target = validate_epsilon(epsilon), math.log(validate_delta(delta))
    root = math.sqrt(-2.0 * target)
    low, high = 2.0 * epsilon / (root + math.sqrt(root**2 + 2.0 * epsilon)), _LARGEST_MU  # as in `gaussian_epsilon`
    if _log_delta(high, epsilon) <= target:
        return high
    found = brentq(lambda mu: _log_delta(mu, epsilon) - target, low, high, xtol=1e-300, rtol=_TOLERANCE)
    return found * (1.0 - 2.0 * _TOLERANCE)


def _log_delta(mu: float, epsilon: float) -> float:
    """Return an upper bound on ln δ(ε), which includes the rounding of both terms."""
    first, second = float(log_ndtr(mu / 2 - epsilon / mu)), float(epsilon + log_ndtr(-mu / 2 - epsilon / mu))
    gap = second - first - _ROUNDING * (1.0 + abs(first) + epsilon)  # ln of the ratio of the terms, < 0
    return first + math.log(-math.expm1(gap))
