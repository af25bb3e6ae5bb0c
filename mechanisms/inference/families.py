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
σ² ~ InverseGamma(shape, scale), μ | σ² ~ N(mean, σ²/strength). This family is not in P4.

References
----------
P4: Bernstein & Sheldon, "Differentially Private Bayesian Inference for Exponential Families", NeurIPS 2018, sections 2
and 3.3 (truncated families).
"""

from __future__ import annotations

import math

import numpy as np

from mechanisms.inference.family import (
    BINOMIAL,
    EXPONENTIAL,
    MULTINOMIAL,
    NORMAL,
    POISSON,
    UNKNOWN_VARIANCE,
    Family,
)
from mechanisms.inference.records import Floats
from mechanisms.inference.region_moments import EXPONENTIAL_REGIONS, NORMAL_REGIONS, POISSON_REGIONS

__all__ = ["FAMILIES", "MODELS"]


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


FAMILIES: dict[str, Family] = {
    "binomial": Family(
        name="binomial",
        code=BINOMIAL,
        hyperparameters=("alpha", "beta"),
        parameter_range=(0.0, 1.0),
        record_range=(0.0, 1.0),
        integer_records=True,
        bounded_sensitivity=1.0,
        marginal="beta",
        _draw_parameters=lambda rng, prior, size: rng.beta(prior[0], prior[1], size=size),
        draw=lambda rng, theta, n: rng.binomial(n, theta),
        _update=lambda prior, s, n: (prior[0] + s[..., 0], prior[1] + n - s[..., 0]),
    ),
    "multinomial": Family(
        name="multinomial",
        code=MULTINOMIAL,
        hyperparameters=("alpha",),
        parameter_range=(0.0, 1.0),
        record_range=(0.0, 1.0),
        integer_records=True,
        bounded_sensitivity=2.0,
        marginal="beta",
        is_vector=True,
        _draw_parameters=lambda rng, prior, size: rng.dirichlet(prior, size=size),
        draw=lambda rng, theta, n: rng.multinomial(n, theta),
        _update=lambda prior, s, n: [alpha + s[..., j] for j, alpha in enumerate(prior)],
    ),
    "exponential": Family(
        name="exponential",
        code=EXPONENTIAL,
        hyperparameters=("shape", "rate"),
        marginal="gamma",
        _draw_parameters=_gamma_parameters,
        draw=lambda rng, theta, n: rng.standard_exponential((len(theta), n)) / theta,
        _update=lambda prior, s, n: (prior[0] + n, prior[1] + s[..., 0]),
        regions=EXPONENTIAL_REGIONS,
    ),
    "poisson": Family(
        name="poisson",
        code=POISSON,
        hyperparameters=("shape", "rate"),
        integer_records=True,
        marginal="gamma",
        _draw_parameters=_gamma_parameters,
        draw=lambda rng, theta, n: rng.poisson(theta, size=(len(theta), n)),
        _update=lambda prior, s, n: (prior[0] + s[..., 0], prior[1] + n),
        regions=POISSON_REGIONS,
    ),
    "normal": Family(
        name="normal",
        code=NORMAL,
        hyperparameters=("mean", "variance"),
        any_sign=1,
        parameter_range=(-math.inf, math.inf),
        record_range=(-math.inf, math.inf),
        marginal="normal",
        _draw_parameters=lambda rng, prior, size: prior[0] + math.sqrt(prior[1]) * rng.standard_normal(size),
        draw=lambda rng, theta, n: theta + rng.standard_normal((len(theta), n)),
        _update=lambda prior, s, n: (
            (prior[0] / prior[1] + s[..., 0]) / (1 / prior[1] + n),
            1 / (1 / prior[1] + n),
        ),
        regions=NORMAL_REGIONS,
    ),
}
"""Families of P4 by name."""

MODELS: dict[str, Family] = {
    **FAMILIES,
    "normal-unknown-variance": Family(
        name="normal-unknown-variance",
        code=UNKNOWN_VARIANCE,
        hyperparameters=("mean", "strength", "shape", "scale"),
        any_sign=1,
        parameter_range=(-math.inf, math.inf),
        record_range=(-math.inf, math.inf),
        marginal="student",
        has_square=True,
        _draw_parameters=_normal_inverse_gamma_parameters,
        draw=lambda rng, theta, n: theta[:, :1] + np.sqrt(theta[:, 1:]) * rng.standard_normal((len(theta), n)),
        _update=_normal_inverse_gamma_update,
    ),
}
"""Families that `ReleaseModel` supports, by name: those of P4, and normal records with unknown variance."""
