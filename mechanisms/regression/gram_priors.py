"""Priors of the moments of scaled records u = (x, y) ∈ R^p, for inference from noisy Gram matrices.

The moments are μ and Ψ, and the coefficients those of the regression of y on the d = p − 1 features: θ = Ψ_xx⁻¹Ψ_xy,
θ₀ = μ_y − θ·μ_x and σ² = Ψ_yy − θ·Ψ_xy. Columns are scaled by public bounds that are chosen without looking at the
data, so that records may fill a tenth of the box, far from its middle. A prior must not favour records that fill it.
A prior of θ_j that does not depend on s_j does so: if the noise hides s_j, it takes slopes for small, and so s_j for
large.

==========================  ========================================================================================
prior                       distribution
==========================  ========================================================================================
`RegressionPrior`           independent parts, in the table of `private_regression`
`ConjugatePrior`            Ψ ~ inverse Wishart, μ | Ψ ~ N(0, Ψ/κ). A mean far from the middle favours a large Ψ, and
                            θ | σ² ~ N(0, σ²/λ·I) shrinks slopes of small residuals.
==========================  ========================================================================================

References
----------
Huang & Wand, "Simple marginally noninformative prior distributions for covariance matrices", Bayesian Analysis 8(2),
2013 (half-t standard deviations). Lewandowski, Kurowicka & Joe, "Generating random correlation matrices based on vines
and extended onion method", Journal of Multivariate Analysis 100(9), 2009 (uniform correlations).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mechanisms.core.arguments import Floats, validate_positive


@dataclass(frozen=True)
class RegressionPrior:
    """Independent priors of standardised slopes, the error, and means, spreads and correlations of scaled columns."""

    mean: float = 1.0  # standard deviation of each mean
    slope: float = 1.0  # scale of the t₂ distribution of each slope times the standard deviation of its feature
    spread: float = 1.0  # scale of the half-t₂ distributions of σ and of the standard deviations of the features

    def __post_init__(self) -> None:
        for name in ("mean", "slope", "spread"):
            validate_positive(name, getattr(self, name), "choose e.g. 1")

    def hyperparameters(self, p: int) -> Floats:
        """Return the numbers of the prior for p columns."""
        return np.array([self.mean, self.slope, self.spread])

    def sample(self, rng: np.random.Generator, p: int) -> tuple[Floats, Floats]:
        """Return one draw of (μ, Ψ), shapes (p,) and (p, p)."""
        d = p - 1
        mu, standardised = self.mean * rng.normal(size=p), self.slope * rng.standard_t(2, d)
        *spreads, sigma = self.spread * np.abs(rng.standard_t(2, p))
        root = draw_bartlett(
            rng, d + 1.0, d
        )  # correlations of Wishart matrices have density ∝ |R|^((degrees − d − 1)/2)
        root *= (np.array(spreads) / np.linalg.norm(root, axis=1))[:, None]
        lower = np.zeros((p, p))
        lower[:d, :d], lower[d, :d], lower[d, d] = root, (standardised / spreads) @ root, sigma
        return mu, lower @ lower.T


@dataclass(frozen=True)
class ConjugatePrior:
    """Conjugate prior of the published sampler: Ψ ~ InverseWishart(p + excess, scale·I), μ | Ψ ~ N(0, Ψ/strength).

    By default, the expectation of Ψ is 0.125·I, a standard deviation of 0.35 half widths of the bounds.
    """

    strength: float = 0.5  # κ, the number of records whose weight the prior of μ has
    excess: float = 3.0  # ν − p
    scale: float = 0.25  # λ

    def __post_init__(self) -> None:
        for name in ("strength", "excess", "scale"):
            validate_positive(name, getattr(self, name), "choose e.g. 1")

    def hyperparameters(self, p: int) -> Floats:
        """Return (κ, ν, λ) for p columns."""
        return np.array([self.strength, p + self.excess, self.scale])

    def sample(self, rng: np.random.Generator, p: int) -> tuple[Floats, Floats]:
        """Return one draw of (μ, Ψ), shapes (p,) and (p, p)."""
        root = np.sqrt(self.scale) * np.linalg.inv(draw_bartlett(rng, p + self.excess, p)).T
        return root @ rng.normal(size=p) / np.sqrt(self.strength), root @ root.T


def draw_bartlett(rng: np.random.Generator, degrees: float, p: int, *size: int) -> Floats:
    """Return lower triangular factors A of Wishart matrices A·Aᵀ with scale I, shape (*size, p, p)."""
    factor = np.tril(rng.normal(size=(*size, p, p)), -1)
    factor[..., range(p), range(p)] = np.sqrt(rng.chisquare(degrees - np.arange(p), (*size, p)))
    return factor
