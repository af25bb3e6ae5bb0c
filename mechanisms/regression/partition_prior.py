"""Priors of the coefficients and the error variance of the linear regressions of partitions.

`gram_priors` has the priors of regressions given a noisy Gram matrix.

References
----------
P2, equation 3.1 and sections 3.1.1 and 4.1. Zellner, "On assessing prior distributions and Bayesian regression analysis
with g-prior distributions", 1986.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.core.arguments import Floats, real_array, validate_positive


@dataclass(frozen=True)
class FlatPrior:
    """Flat prior: p(β) ∝ 1, and p(σ²) ∝ 1/σ² if σ² is unknown."""


@dataclass(frozen=True)
class ZellnerPrior:
    """Zellner's g-prior: β | σ² ~ N(0, gσ²(XᵀX)⁻¹), X the design of the partition; p(σ²) ∝ 1/σ² if σ² is unknown."""

    g: float

    def __post_init__(self) -> None:
        validate_positive("g", self.g, "choose e.g. the number of rows")


@dataclass(frozen=True)
class ConjugatePrior:
    """Conjugate prior: β | σ² ~ N(mean, σ²·precision⁻¹), σ² ~ IG(shape, rate).

    A scalar mean μ applies to all coefficients, and a scalar precision Λ is multiplied by the identity matrix. IG has
    the density ∝ (σ²)^(−shape−1)·exp(−rate/σ²).
    """

    mean: ArrayLike = 0.0
    precision: ArrayLike = 1e-3
    shape: float = 1.0
    rate: float = 1.0

    def __post_init__(self) -> None:
        for name, value in (("shape", self.shape), ("rate", self.rate)):
            validate_positive(name, value, "choose a proper prior")
        if not np.all(np.isfinite(real_array("mean", self.mean))):
            raise ValueError(f"mean must be finite, got {self.mean}; choose a proper prior")
        matrix = np.atleast_2d(real_array("precision", self.precision))
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not np.all(np.isfinite(matrix)):
            raise ValueError(f"precision must be a finite number or (d, d) matrix, got {self.precision}; pass e.g. 1.0")
        if not np.array_equal(matrix, matrix.T) or np.linalg.eigvalsh(matrix)[0] <= 0:
            raise ValueError(f"precision must be symmetric and positive definite, got {self.precision}; change it")

    def arrays(self, d: int) -> tuple[Floats, Floats]:
        """Return μ, shape (d,), and the Cholesky factor L of Λ, shape (d, d), for d coefficients."""
        mean, precision = (np.asarray(each, dtype=np.float64) for each in (self.mean, self.precision))
        if mean.shape not in ((), (d,)) or precision.shape not in ((), (d, d)):
            raise ValueError(
                f"the prior must have {d} coefficients, got {mean.shape} and {precision.shape}; count the intercept"
            )
        matrix = precision if precision.ndim else precision * np.eye(d)
        return np.broadcast_to(mean, (d,)), np.asarray(np.linalg.cholesky(matrix), dtype=np.float64)


@dataclass(frozen=True)
class SemiConjugatePrior(ConjugatePrior):
    """Semi-conjugate prior: independent β ~ N(mean, precision⁻¹) and σ² ~ IG(shape, rate); see `ConjugatePrior`."""


Prior = FlatPrior | ZellnerPrior | ConjugatePrior
