"""Distributions of θ, or of one component of θ, given a prior or records: Beta, Gamma and normal distributions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special, stats

from mechanisms.arguments import Floats


@dataclass(frozen=True)
class Marginal:
    """Distribution with two parameters a and b, and a coordinate φ of θ in which its log density is concave."""

    frozen: Callable[[float, float], Any]  # (a, b) -> distribution of `scipy.stats`
    mean: Callable[[Floats, Floats], Floats]
    std: Callable[[Floats, Floats], Floats]
    cdf: Callable[[Floats, Floats, Floats], Floats]  # (a, b, θ) -> probability of values ≤ θ
    quantile: Callable[[Floats, Floats, Floats], Floats]  # (a, b, probability) -> θ
    to_coordinate: Callable[[Floats], Floats]  # θ -> φ
    to_theta: Callable[[Floats], Floats]  # φ -> θ
    log_density: Callable[[Floats, float, float], Floats]  # (φ, a, b) -> log density of φ, up to a constant
    centre: Callable[[float, float], float]  # (a, b) -> φ near the mode
    spread: Callable[[float, float], float]  # (a, b) -> order of the standard deviation of φ
    n_shapes: int = 0  # number of parameters that are shapes


BETA = Marginal(
    stats.beta, lambda a, b: a / (a + b), lambda a, b: np.sqrt(a * b / (a + b + 1.0)) / (a + b),
    special.betainc, special.betaincinv, special.logit, special.expit,
    lambda phi, a, b: a * special.log_expit(phi) + b * special.log_expit(-phi),
    lambda a, b: math.log(a / b), lambda a, b: math.sqrt(1 / a + 1 / b), n_shapes=2)  # fmt: skip
GAMMA = Marginal(
    lambda a, b: stats.gamma(a, scale=1.0 / b), lambda a, b: a / b, lambda a, b: np.sqrt(a) / b,
    lambda a, b, theta: special.gammainc(a, b * theta), lambda a, b, p: special.gammaincinv(a, p) / b, np.log, np.exp,
    lambda phi, a, b: a * phi - b * np.exp(phi),
    lambda a, b: math.log(a / b), lambda a, b: 1 / math.sqrt(a), n_shapes=1)  # fmt: skip
"""Gamma distribution with shape a and rate b."""

GAUSSIAN = Marginal(
    lambda a, b: stats.norm(a, math.sqrt(b)), lambda a, b: a, lambda a, b: np.sqrt(b),
    lambda a, b, theta: special.ndtr((theta - a) / np.sqrt(b)), lambda a, b, p: a + np.sqrt(b) * special.ndtri(p),
    np.copy, np.copy, lambda phi, a, b: -((phi - a) ** 2) / (2 * b),
    lambda a, b: a, lambda a, b: math.sqrt(b))  # fmt: skip
"""Normal distribution with mean a and variance b."""
