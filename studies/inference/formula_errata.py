"""Errors in printed formulas of P4, demonstrated by computations that take milliseconds."""

import math
from collections.abc import Mapping
from typing import Any

from scipy import integrate, stats

from mechanisms.inference.families import FAMILIES
from pipeline import Erratum

_RATE, _BOUNDS, _N = 4.0, (0.00633, 0.9222), 1_000
_RECORDS = f"{_N:,} exponential records of rate {_RATE:g}, bounds {_BOUNDS[0]} and {_BOUNDS[1]}"


def shared_regions(summaries: Mapping[str, Any]) -> str:
    """Compute the covariance between the sums of the records in two regions."""
    share, mean, variance = FAMILIES["exponential"].region_moments(_RATE, _BOUNDS)
    variances = _N * (share * variance + share * (1 - share) * mean**2)
    cross = -_N * share[1] * share[2] * mean[1] * mean[2]
    return (
        f"{_RECORDS}: the sums in the middle and above have the covariance {cross:.3f}, a correlation of "
        f"{cross / math.sqrt(variances[1] * variances[2]):.3f}; as printed 0."
    )


def random_sum(summaries: Mapping[str, Any]) -> str:
    """Compute the mean of the sum of the records that lie within bounds."""
    share, mean, _ = (float(moment[1]) for moment in FAMILIES["exponential"].region_moments(_RATE, _BOUNDS))
    inside, _ = integrate.quad(lambda x: x * _RATE * math.exp(-_RATE * x), *_BOUNDS)
    return (
        f"{_RECORDS}: expected sum of those inside {_N * inside:.2f} by quadrature, "
        f"n·q·μ̂ = {_N * share * mean:.2f}, n·q = {_N * share:.2f}."
    )


def normal_variance(summaries: Mapping[str, Any]) -> str:
    """Compute the variance of a sum of records."""
    n, theta = 1_000, 0.3
    variance = theta * (1 - theta)
    return (
        f"Binomial, n = {n:,}, θ = {theta}, s = {n * theta:g}: variance of s {stats.binom(n, theta).var():.1f} "
        f"exactly, n·Σ = {n * variance:.1f}, s·Σ = {n * theta * variance:.1f}."
    )


def kernel_mass(summaries: Mapping[str, Any]) -> str:
    """Integrate the density of a record from a truncated exponential distribution."""
    mass, _ = integrate.quad(lambda x: math.exp(-_RATE * x), *_BOUNDS)
    return (
        f"An exponential record of rate {_RATE:g} between {_BOUNDS[0]} and {_BOUNDS[1]}: the printed density "
        f"integrates to {mass * math.exp(-mass):.4f}, with the logarithm to {mass * math.exp(-math.log(mass)):.4f}."
    )


def wald(summaries: Mapping[str, Any]) -> str:
    """Integrate the Wald density."""
    scale = 4.0
    kernel, _ = integrate.quad(lambda t: math.exp(-scale * (t - 1) ** 2 / (2 * t)) / math.sqrt(t**3), 0, math.inf)
    printed, right = scale / math.sqrt(2 * math.pi), math.sqrt(scale / (2 * math.pi))
    return (
        f"Mean 1, γ = {scale:g}: the printed density integrates to {printed * kernel:.4f}, the correct one to "
        f"{right * kernel:.4f}."
    )


ERRATA = (
    Erratum(
        "The sums in the three regions are independent.",
        "They derive from one multinomial: the covariance is −n·q_r·q_s·μ̂_r·μ̂_s.", "Algorithm 2", "P4", shared_regions),
    Erratum("m = n·q.", "m = n·q·μ̂.", "Algorithm 3, line 4", "P4", random_sum),
    Erratum("s ~ N(nμ, sΣ).", "s ~ N(nμ, nΣ).", "supplement", "P4", normal_variance),
    Erratum("Â is the integral of the kernel.", "Â is its logarithm.", "equation 2", "P4", kernel_mass),
    Erratum("Its factor is γ/√(2πt³).", "√(γ/(2πt³)).", "supplement, Wald density", "P4", wald),
)  # fmt: skip
