"""Declarations of the models of P4: records, prior, conjugate update, sensitivity, moments of truncated records.

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

The known variance of the normal family is 1: divide the records by their standard deviation.

References
----------
P4: Bernstein & Sheldon, "Differentially Private Bayesian Inference for Exponential Families", NeurIPS 2018, sections 2
and 3.3 (truncated families).
"""

from __future__ import annotations

import math

import numpy as np

from mechanisms.inference.family import Family
from mechanisms.inference.records import Floats
from mechanisms.inference.region_moments import exponential_regions, normal_regions, poisson_regions

__all__ = ["FAMILIES"]


def _gamma_parameters(rng: np.random.Generator, prior: Floats, size: int) -> Floats:
    return rng.gamma(prior[0], size=size) / prior[1]


FAMILIES: dict[str, Family] = {
    "binomial": Family(
        name="binomial",
        hyperparameters=("alpha", "beta"),
        any_sign=0,
        parameter_range=(0.0, 1.0),
        record_range=(0.0, 1.0),
        integer_records=True,
        bounded_sensitivity=1.0,
        marginal="beta",
        _draw_parameters=lambda rng, prior, size: rng.beta(prior[0], prior[1], size=size),
        _draw=lambda rng, theta, n: rng.binomial(n, theta),
        _update=lambda prior, s, n: (prior[0] + s[..., 0], prior[1] + n - s[..., 0]),
    ),
    "multinomial": Family(
        name="multinomial",
        hyperparameters=("alpha",),
        any_sign=0,
        parameter_range=(0.0, 1.0),
        record_range=(0.0, 1.0),
        integer_records=True,
        bounded_sensitivity=2.0,
        marginal="beta",
        is_vector=True,
        _draw_parameters=lambda rng, prior, size: rng.dirichlet(prior, size=size),
        _draw=lambda rng, theta, n: rng.multinomial(n, theta),
        _update=lambda prior, s, n: [alpha + s[..., j] for j, alpha in enumerate(prior)],
    ),
    "exponential": Family(
        name="exponential",
        hyperparameters=("shape", "rate"),
        any_sign=0,
        parameter_range=(0.0, math.inf),
        record_range=(0.0, math.inf),
        integer_records=False,
        bounded_sensitivity=None,
        marginal="gamma",
        _draw_parameters=_gamma_parameters,
        _draw=lambda rng, theta, n: rng.standard_exponential((len(theta), n)) / theta,
        _update=lambda prior, s, n: (prior[0] + n, prior[1] + s[..., 0]),
        _region_moments=exponential_regions,
    ),
    "poisson": Family(
        name="poisson",
        hyperparameters=("shape", "rate"),
        any_sign=0,
        parameter_range=(0.0, math.inf),
        record_range=(0.0, math.inf),
        integer_records=True,
        bounded_sensitivity=None,
        marginal="gamma",
        _draw_parameters=_gamma_parameters,
        _draw=lambda rng, theta, n: rng.poisson(theta, size=(len(theta), n)),
        _update=lambda prior, s, n: (prior[0] + s[..., 0], prior[1] + n),
        _region_moments=poisson_regions,
    ),
    "normal": Family(
        name="normal",
        hyperparameters=("mean", "variance"),
        any_sign=1,
        parameter_range=(-math.inf, math.inf),
        record_range=(-math.inf, math.inf),
        integer_records=False,
        bounded_sensitivity=None,
        marginal="normal",
        _draw_parameters=lambda rng, prior, size: prior[0] + math.sqrt(prior[1]) * rng.standard_normal(size),
        _draw=lambda rng, theta, n: theta + rng.standard_normal((len(theta), n)),
        _update=lambda prior, s, n: (
            (prior[0] / prior[1] + s[..., 0]) / (1 / prior[1] + n),
            1 / (1 / prior[1] + n),
        ),
        _region_moments=normal_regions,
    ),
}
"""Families by name."""
