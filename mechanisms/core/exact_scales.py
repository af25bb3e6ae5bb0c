"""Scales of exact integer noise, and samplers of it, which only an entered release can call.

Scales are rounded up, so that a privacy loss is at most the requested one. A sampler is prepared and checked before a
release is entered, and receives the entered release's noise (`mechanisms.release.ExactNoise`) afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Literal, Protocol

from mechanisms.core.arguments import Integers

SUM_BITS = 32  # values of a sum are rounded to multiples of their range divided by 2**SUM_BITS
_LARGEST_SCALE = 2.0**52  # noise of 1,000 scales fits in 64 bits
_MAX_DRAWS = 5_000_000


class IntegerNoise(Protocol):
    """Noise of an entered release, in integers."""

    def laplace(self, scale: float, size: int) -> Integers:
        """Draw independent integers z with Pr[z] ∝ exp(−|z|/scale)."""

    def gaussian(self, std: float, size: int) -> Integers:
        """Draw independent integers z with Pr[z] ∝ exp(−z²/(2·std²))."""

    def sum_zero(self, kind: Literal["laplace", "gaussian"], scale: float, k: int) -> Integers:
        """Draw k independent integers given a sum of zero."""


ExactSampler = Callable[[IntegerNoise], Integers]
"""Function that draws a vector of integer noise for an entered release; its arguments were checked before."""


def require_scale(scale: float) -> float:
    """Return the scale of exact noise, in units of its integers, if it is at most 2⁵²."""
    if not scale <= _LARGEST_SCALE:
        raise ValueError(f"the noise scale must be at most 2^52 units, got {scale:g}; choose a larger epsilon")
    return scale


def laplace_scale_for(sensitivity: int, epsilon: float) -> float:
    """Return the smallest double b for which sensitivity/b ≤ ε holds in exact arithmetic."""
    scale = sensitivity / epsilon
    while Fraction(sensitivity) > Fraction(scale) * Fraction(epsilon):  # integers above 2⁵³ are rounded, too
        scale = math.nextafter(scale, math.inf)
    return require_scale(scale)


def noisy_sums_scale(epsilon: float) -> float:
    """Return the scale of the noise of `ExactNoise.noisy_sums` in units of the rounded values, 2³²/ε rounded up."""
    return laplace_scale_for(2**SUM_BITS, epsilon)


def sum_zero_sampler(kind: Literal["laplace", "gaussian"], scale: float, k: int) -> ExactSampler:
    """Return the sampler of `ExactNoise.sum_zero`, if it is affordable."""
    expected_rejections(scale, k)
    return lambda noise: noise.sum_zero(kind, scale, k)


def expected_rejections(scale: float, k: int) -> float:
    """Return the expected number of vectors until one has a sum of zero; raise ValueError if there are too many."""
    expected = math.sqrt(2 * math.pi * k) * (2.0 * scale + 1.0)
    if expected * k > _MAX_DRAWS:
        raise ValueError(
            f"rejection sampling must need at most {_MAX_DRAWS:,} draws on average, got {expected * k:,.0f}; choose a "
            "larger epsilon, or geometric-projected"
        )
    return expected
