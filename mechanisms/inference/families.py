"""Declarations of the models of P4: records, prior, conjugate update, sensitivity and moments of truncated records.

The sufficient statistic of n records x₁, …, xₙ is their sum s = Σ xᵢ in every family (a record of the multinomial is a
one-hot row). If records are unbounded, a release needs public bounds [a, b]. Records outside the bounds are dropped,
and the statistic is ŝ = Σ 1[a ≤ xᵢ ≤ b]·xᵢ.

============  ========================  =====================================  ==========================
name          record                    prior (hyperparameters)                sensitivity Δ
============  ========================  =====================================  ==========================
binomial      0 or 1, mean θ            Beta(alpha, beta)                      1
multinomial   one-hot row, mean θ       Dir(alpha₁, …, alphaₖ), k ≥ 2          2
exponential   x ≥ 0, rate θ             Gamma(shape, rate)                     b
poisson       integer x ≥ 0, mean θ     Gamma(shape, rate)                     b
normal        x real, N(θ, 1)           N(mean, variance)                      max(|a|, |b|, b − a)
============  ========================  =====================================  ==========================

The known variance of the normal family is 1: divide the records by their standard deviation. `MODELS` adds the normal
family with unknown mean μ and variance σ², whose statistic is (Σ xᵢ, Σ xᵢ²) and whose prior is normal-inverse-gamma:
σ² ~ InverseGamma(shape, scale), μ | σ² ~ N(mean, σ²/strength). This family is not in P4; for
the others see sections 2 and 3.3 (truncated families).

**Regions.** Closed forms of the moments of a record below, within and above bounds suffer from cancellation in narrow
intervals and far tails. There the exponential distribution uses a series; the normal and Poisson distributions are
always integrated or summed over the region.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import special

from mechanisms.arguments import Floats
from mechanisms.inference.family import (
    BETA,
    BINOMIAL,
    EXPONENTIAL,
    GAMMA,
    GAUSSIAN,
    MULTINOMIAL,
    NORMAL,
    POISSON,
    UNKNOWN_VARIANCE,
    Family,
    Moments,
    Regions,
)
from mechanisms.jit import kernel
from mechanisms.metadata import register

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
_BEYOND = 40.0  # standard normal value without mass beyond


def _normal_interval(theta: Floats, low: float, high: float) -> Moments:
    """Return the probability of [low, high] under N(theta, 1), and the mean and variance on this interval."""
    # Ends of the interval may be infinite. Let x₀ be the point of the interval with the largest density. 64
    # Gauss–Legendre nodes cover the part where the density exceeds exp(−40) times its value at x₀. All terms of a sum
    # have the same sign, so there is no cancellation.
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


def normal_contribution_moments(mu: Floats, sigma: Floats, a: float, b: float, clamps: bool) -> tuple[Floats, Floats]:
    """Return mean, shape (m, 2), and covariance, (m, 2, 2), of (c, c²) for the contribution c of x ~ N(μ, σ²).

    With the standard normal density f, the moments Mⱼ = E[zʲ; a ≤ x ≤ b] of z = (x − μ)/σ satisfy Mⱼ = (j − 1)·Mⱼ₋₂ +
    αʲ⁻¹f(α) − βʲ⁻¹f(β), where α and β are the values of z at a and b. Records outside are clamped or dropped.
    """
    alpha, beta = (((end - mu) / sigma).clip(-_BEYOND, _BEYOND) for end in (a, b))
    f_alpha, f_beta = (np.exp(-(end**2) / 2.0) / math.sqrt(2.0 * math.pi) for end in (alpha, beta))
    central = [special.ndtr(beta) - special.ndtr(alpha), f_alpha - f_beta]
    for j in (2, 3, 4):
        central.append((j - 1) * central[j - 2] + alpha ** (j - 1) * f_alpha - beta ** (j - 1) * f_beta)
    raw = [
        sum(special.comb(k, j) * mu ** (k - j) * sigma**j * central[j] for j in range(k + 1))
        + clamps * (a**k * special.ndtr(alpha) + b**k * special.ndtr(-beta))
        for k in (1, 2, 3, 4)
    ]
    mean = np.column_stack(raw[:2])
    second = np.stack([np.column_stack(raw[1:3]), np.column_stack(raw[2:4])], axis=1)
    return mean, second - mean[:, :, None] * mean[:, None, :]


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


def _gamma_parameters(rng: np.random.Generator, prior: Floats, size: int) -> Floats:
    return rng.gamma(prior[0], size=size) / prior[1]


def _normal_inverse_gamma_parameters(rng: np.random.Generator, prior: Floats, size: int) -> Floats:
    mean, strength, shape, scale = prior
    variance = scale / rng.gamma(shape, size=size)
    return np.column_stack([mean + np.sqrt(variance / strength) * rng.standard_normal(size), variance])


def _normal_inverse_gamma_update(prior: Floats, s: Floats, n: int) -> list[Floats]:
    """Return mean, strength, shape and scale of the posterior given Σ x and Σ x² of n records."""
    mean, strength, shape, scale = prior
    average = s[..., 0] / n
    spread = np.maximum(s[..., 1] - n * average**2, 0.0) + strength * n / (strength + n) * (average - mean) ** 2
    together = (strength * mean + s[..., 0]) / (strength + n)
    return [together, strength + n, shape + 0.5 * n, scale + 0.5 * spread]


_COUNTED: dict[str, Any] = {
    "parameter_range": (0.0, 1.0),
    "record_range": (0.0, 1.0),
    "integer_records": True,
    "_marginal": BETA,
}
_REAL: dict[str, Any] = {"parameter_range": (-math.inf, math.inf), "record_range": (-math.inf, math.inf), "any_sign": 1}

FAMILIES: dict[str, Family] = register(
    Family(
        name="binomial", code=BINOMIAL, hyperparameters=("alpha", "beta"), bounded_sensitivity=1.0, **_COUNTED,
        _draw_parameters=lambda rng, prior, size: rng.beta(prior[0], prior[1], size=size),
        draw=lambda rng, theta, n: rng.binomial(n, theta),
        _update=lambda prior, s, n: (prior[0] + s[..., 0], prior[1] + n - s[..., 0])),
    Family(
        name="multinomial", code=MULTINOMIAL, hyperparameters=("alpha",), bounded_sensitivity=2.0, is_vector=True,
        **_COUNTED,
        _draw_parameters=lambda rng, prior, size: rng.dirichlet(prior, size=size),
        draw=lambda rng, theta, n: rng.multinomial(n, theta),
        _update=lambda prior, s, n: [alpha + s[..., j] for j, alpha in enumerate(prior)]),
    Family(
        name="exponential", code=EXPONENTIAL, hyperparameters=("shape", "rate"), _marginal=GAMMA,
        _draw_parameters=_gamma_parameters,
        draw=lambda rng, theta, n: rng.standard_exponential((len(theta), n)) / theta,
        _update=lambda prior, s, n: (prior[0] + n, prior[1] + s[..., 0]),
        regions=Regions(
            exponential_regions, parameter=np.exp, step=0.01,
            interval=lambda a, b: (math.log(1e-6 / b), math.log(100.0 / (a if a > 0 else b))),
            mean_unit=lambda u: np.exp(-u), variance_unit=lambda u: np.exp(-2.0 * u))),
    Family(
        name="poisson", code=POISSON, hyperparameters=("shape", "rate"), integer_records=True, _marginal=GAMMA,
        _draw_parameters=_gamma_parameters,
        draw=lambda rng, theta, n: rng.poisson(theta, size=(len(theta), n)),
        _update=lambda prior, s, n: (prior[0] + s[..., 0], prior[1] + n),
        regions=Regions(
            poisson_regions, parameter=np.square, step=0.005, mean_unit=np.square, variance_unit=np.square,
            interval=lambda a, b: (0.005, math.sqrt(b) + 10.0))),
    Family(
        name="normal", code=NORMAL, hyperparameters=("mean", "variance"), _marginal=GAUSSIAN, **_REAL,
        _draw_parameters=lambda rng, prior, size: prior[0] + math.sqrt(prior[1]) * rng.standard_normal(size),
        draw=lambda rng, theta, n: theta + rng.standard_normal((len(theta), n)),
        _update=lambda prior, s, n: (
            (prior[0] / prior[1] + s[..., 0]) / (1 / prior[1] + n), 1 / (1 / prior[1] + n)),
        regions=Regions(
            normal_regions, parameter=np.copy, step=0.01, mean_unit=np.ones_like, variance_unit=np.ones_like,
            interval=lambda a, b: (a - 12.0, b + 12.0))),
)  # fmt: skip
"""Families of P4 by name."""

MODELS: dict[str, Family] = FAMILIES | register(
    Family(
        name="normal-unknown-variance", code=UNKNOWN_VARIANCE, hyperparameters=("mean", "strength", "shape", "scale"),
        has_square=True, **_REAL,
        _draw_parameters=_normal_inverse_gamma_parameters,
        draw=lambda rng, theta, n: theta[:, :1] + np.sqrt(theta[:, 1:]) * rng.standard_normal((len(theta), n)),
        _update=_normal_inverse_gamma_update),
)  # fmt: skip
"""Families that `ReleaseModel` supports, by name: those of P4, and normal records with unknown variance."""
