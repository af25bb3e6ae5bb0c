"""Moments of one record of an unbounded family in each of the regions x < a, a ≤ x ≤ b, x > b.

Each function takes θ of any shape and the bounds a < b. It returns the probability of the region and the mean and
variance of a record given that it lies in the region, each of shape θ.shape + (3,). The closed forms suffer from
cancellation in narrow intervals and far tails. There the exponential distribution uses a series; the normal and Poisson
distributions are always integrated or summed over the region.

References
----------
P4: Bernstein & Sheldon, "Differentially Private Bayesian Inference for Exponential Families", NeurIPS 2018, section 3.3
(truncated families).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import special

from mechanisms.inference.records import Floats
from mechanisms.jit import kernel

__all__ = [
    "EXPONENTIAL_REGIONS",
    "NORMAL_REGIONS",
    "POISSON_REGIONS",
    "Moments",
    "Regions",
    "exponential_regions",
    "normal_regions",
    "poisson_regions",
]

Moments = tuple[Floats, Floats, Floats]

# 1/t − 1/(eᵗ − 1) = ½ − Σ_{k≥1} B₂ₖ·t^(2k−1)/(2k)!, Bernoulli numbers B₂ₖ; at t ≤ 1 the tenth term is below 1e-16.
_K = np.arange(1, 11)
_SERIES = special.bernoulli(20)[2::2] / special.factorial(2 * _K)


def _tilted_unit_interval(t: Floats) -> tuple[Floats, Floats]:
    """Return the mean and variance of the density ∝ exp(−t·u) on [0, 1] for t ≥ 0, by a series if t < 1."""
    small = np.minimum(t, 1.0)
    series_mean = 0.5 - small * np.polynomial.polynomial.polyval(small**2, _SERIES)
    series_variance = np.polynomial.polynomial.polyval(small**2, _SERIES * (2 * _K - 1))
    large = np.maximum(t, 1.0)
    decay, rest = np.exp(-large), -np.expm1(-large)
    mean, variance = 1.0 / large - decay / rest, 1.0 / large**2 - decay / rest**2
    return np.where(t < 1, series_mean, mean), np.where(t < 1, series_variance, variance)


def exponential_regions(theta: Floats, a: float, b: float) -> Moments:
    """Return the probability of each region, and the mean and variance of an Exp(rate θ) record in the region."""
    below_mean, below_variance = _tilted_unit_interval(theta * a)
    between_mean, between_variance = _tilted_unit_interval(theta * (b - a))
    q = [-np.expm1(-theta * a), np.exp(-theta * a) * -np.expm1(-theta * (b - a)), np.exp(-theta * b)]
    mean = [a * below_mean, a + (b - a) * between_mean, b + 1.0 / theta]
    variance = [a**2 * below_variance, (b - a) ** 2 * between_variance, theta**-2.0]
    return np.stack(q, axis=-1), np.stack(mean, axis=-1), np.stack(variance, axis=-1)


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)
_NEGLIGIBLE_EXPONENT = 40.0


def _normal_interval(theta: Floats, low: float, high: float) -> Moments:
    """Return the probability of [low, high] under N(theta, 1), and the mean and variance on this interval.

    Ends of the interval may be infinite. Let x₀ be the point of the interval with the largest density. 64
    Gauss–Legendre nodes cover the part where the density exceeds exp(−40) times its value at x₀. All terms of a sum
    have the same sign, so there is no cancellation.
    """
    x0 = np.clip(theta, low, high)
    z0 = x0 - theta
    reach = 2 * _NEGLIGIBLE_EXPONENT / (np.sqrt(z0**2 + 2 * _NEGLIGIBLE_EXPONENT) + np.abs(z0))
    left, right = np.maximum(low - x0, -reach), np.minimum(high - x0, reach)
    u = ((right + left)[..., None] + (right - left)[..., None] * _NODES) / 2
    weights = np.exp(-u * (z0[..., None] + u / 2)) * _WEIGHTS
    total = weights.sum(axis=-1)
    shift = (weights * u).sum(axis=-1) / total
    variance = (weights * (u - shift[..., None]) ** 2).sum(axis=-1) / total
    q = np.exp(-(z0**2) / 2) / math.sqrt(2 * math.pi) * total * (right - left) / 2
    return q, x0 + shift, variance


def normal_regions(theta: Floats, a: float, b: float) -> Moments:
    """Return the probability of each region, and the mean and variance of an N(θ, 1) record in the region."""
    parts = [_normal_interval(theta, low, high) for low, high in ((-np.inf, a), (a, b), (b, np.inf))]
    q, mean, variance = (np.stack(moment, axis=-1) for moment in zip(*parts, strict=True))
    return q, mean, variance


def poisson_regions(theta: Floats, a: float, b: float) -> Moments:
    """Return the probability of each region, and the mean and variance of a Poisson(θ) record in the region."""
    moments = np.zeros((3, theta.size, 3))
    _fill_poisson_regions(np.ravel(theta), np.array([0.0, a, b + 1.0, np.inf]), moments)
    q, mean, variance = moments.reshape(3, *theta.shape, 3)
    return q, mean, variance


@kernel
def _fill_poisson_regions(theta, starts, moments):
    """Fill `moments` by sums of the pmf in each region; differences of distribution functions suffer from cancellation.

    Sums start at the largest term of the region and proceed outwards.
    """
    for i in range(theta.size):
        for region in range(3):
            low, high = starts[region], starts[region + 1] - 1.0
            if high < low:
                continue
            x0 = min(max(math.floor(theta[i]), low), high)
            total, first, second = 1.0, 0.0, 0.0
            for step in (1.0, -1.0):
                x, weight = x0, 1.0
                while low <= x + step <= high and weight > 1e-20 * total:
                    weight *= theta[i] / (x + 1.0) if step > 0 else x / theta[i]
                    x += step
                    total += weight
                    first += weight * (x - x0)
                    second += weight * (x - x0) ** 2
            shift = first / total
            moments[0, i, region] = total * math.exp(x0 * math.log(theta[i]) - theta[i] - math.lgamma(x0 + 1.0))
            moments[1, i, region] = x0 + shift
            moments[2, i, region] = second / total - shift**2


@dataclass(frozen=True)
class Regions:
    """Moments of one record in the regions outside and within bounds, as functions of a coordinate u of θ.

    The moments vary over distances of about one in u.
    """

    moments: Callable[[Floats, float, float], Moments]  # maps θ and the bounds to `Moments`
    # maps the bounds to the range of u outside which all records lie in one region
    interval: Callable[[float, float], tuple[float, float]]
    step: float  # distance of tabulated values of u
    parameter: Callable[[Floats], Floats]  # maps u to θ
    mean_unit: Callable[[Floats], Floats]  # maps u to the unit of a tabulated mean
    variance_unit: Callable[[Floats], Floats]  # maps u to the unit of a tabulated variance
    # True if chains must not start below the smallest tabulated u, where the variance of a record overflows
    starts_inside: bool = False


EXPONENTIAL_REGIONS = Regions(
    exponential_regions,
    interval=lambda a, b: (math.log(1e-6 / b), math.log(100.0 / (a if a > 0 else b))),
    step=0.01,
    parameter=np.exp,
    mean_unit=lambda u: np.exp(-u),
    variance_unit=lambda u: np.exp(-2.0 * u),
    starts_inside=True,
)
POISSON_REGIONS = Regions(
    poisson_regions,
    interval=lambda a, b: (0.005, math.sqrt(b) + 10.0),
    step=0.005,
    parameter=np.square,
    mean_unit=np.square,
    variance_unit=np.square,
)
NORMAL_REGIONS = Regions(
    normal_regions,
    interval=lambda a, b: (a - 12.0, b + 12.0),
    step=0.01,
    parameter=np.copy,
    mean_unit=np.ones_like,
    variance_unit=np.ones_like,
)
