"""AdaSSP: private ridge regression with an adaptive penalty, and a parametric bootstrap of its intervals.

For records of the scaled box of `gram_release`, with z = (1, u_x) of q = d + 1 entries and |y| ≤ 1, it releases three
statistics with Gaussian noise, each of which is (ρ/3)-zCDP under replacement of one record:

=====================  ===========  ==================================================================================
statistic              sensitivity  proof
=====================  ===========  ==================================================================================
λ_min(XᵀX)             q            An eigenvalue changes by at most the operator norm of zzᵀ − wwᵀ, at most q.
XᵀX, but for n         q·√2         ‖zzᵀ − wwᵀ‖_F² = ‖z‖⁴ + ‖w‖⁴ − 2(z·w)².
(Xᵀy, yᵀy)             2√q          ‖zy − wv‖² + (y² − v²)² ≤ (a + b)²(q + (a − b)²), a = |y|, b = |v|, which
                                    increases in a and b for q ≥ 2, so it is at most 4q: yᵀy costs nothing.
=====================  ===========  ==================================================================================

The penalty raises the smallest eigenvalue, of which the release gives a lower bound, above the noise of XᵀX. The paper
adds or removes records, and splits (ε, δ) in three; here ρ is split, and converted once.

*Intervals.* Replicates of the releases are drawn from the model that was fitted to them, with XᵀX fixed, and analysed
alike. An interval is basic: deviations of replicates from the fit are subtracted from it, of ln σ² for the variance.

References
----------
Wang, "Revisiting differentially private linear regression", UAI 2018, algorithm 2. Ferrando, Wang & Sheldon,
"Parametric bootstrap for differentially private confidence intervals", AISTATS 2022.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.core.arguments import Floats, real_array
from mechanisms.core.privacy import ConcentratedGuarantee
from mechanisms.regression.gram_release import GramNoise, largest_rho

_FAILURE = 0.05  # probability that the noise of XᵀX exceeds the smallest eigenvalue after the penalty
_SMALLEST, _LARGEST = 1e-6, 1.0  # of the error variance; responses are in [−1, 1]


@dataclass(frozen=True)
class BudgetedRelease:
    """Release with a budget of ρ for p = d + 1 columns without the intercept."""

    p: int
    rho: float
    delta: float  # used by the penalty of AdaSSP only

    @classmethod
    def calibrated(cls, p: int, epsilon: float, delta: float) -> Self:
        """Return the release with the largest ρ for which ρ-zCDP implies (ε, δ)-DP."""
        return cls(p, largest_rho(epsilon, delta), delta)

    @property
    def guarantee(self) -> ConcentratedGuarantee:
        """Guarantee of all statistics together under replacement of one record."""
        return ConcentratedGuarantee(self.rho)


@dataclass(frozen=True, eq=False, repr=False)
class AdaSSPRelease:
    """Released statistics; leading axes are replicates."""

    n: int
    least: Floats  # smallest eigenvalue, shape (...)
    xx: Floats  # shape (..., q, q)
    xy: Floats  # shape (..., q)
    yy: Floats  # shape (...)


class AdaSSP(BudgetedRelease):
    """Release of the three statistics."""

    @property
    def stds(self) -> Floats:
        """Standard deviations of the noise on λ_min, on the diagonal of XᵀX, and on (Xᵀy, yᵀy)."""
        sensitivities = np.array([self.p, self.p * math.sqrt(2.0), 2.0 * math.sqrt(self.p)])
        return sensitivities * math.sqrt(3.0 / (2.0 * self.rho))

    def release(self, rng: np.random.Generator, gram: ArrayLike) -> AdaSSPRelease:
        """Return a simulated release of the Gram matrix of clamped records, in double precision."""
        exact = real_array("gram", gram)
        xx, q = exact[:-1, :-1], self.p
        return self._add_noise(rng, round(float(xx[0, 0])), xx, exact[None, :q, q], exact[None, q, q], 1)

    def _add_noise(
        self, rng: np.random.Generator, n: int, xx: Floats, xy: Floats, yy: Floats, size: int
    ) -> AdaSSPRelease:
        eigenvalue, squares, products = self.stds
        least = np.linalg.eigvalsh(xx)[0] + eigenvalue * rng.normal(size=size)
        noise = GramNoise("gaussian", float(squares), self.p - 1).sample(rng, size)
        drawn = products * rng.normal(size=(size, self.p + 1))
        return AdaSSPRelease(n, least, xx + noise, xy + drawn[:, :-1], yy + drawn[:, -1])

    def estimate(self, release: AdaSSPRelease) -> Floats:
        """Return (θ₀, θ, σ²) of scaled columns, shape (..., p + 1)."""
        eigenvalue, squares, _ = self.stds
        bound = np.maximum(release.least - math.sqrt(math.log(6.0 / self.delta)) * eigenvalue, 0.0)
        penalty = np.maximum(penalty_for(squares, self.p) - bound, 0.0)[..., None, None] * np.eye(self.p)
        theta = np.linalg.solve(release.xx + penalty, release.xy[..., None])[..., 0]
        fitted = np.einsum("...i,...ij,...j->...", theta, release.xx, theta)
        squares_left = release.yy - 2.0 * (theta * release.xy).sum(axis=-1) + fitted
        return with_variance(theta, squares_left / release.n)

    def bootstrap(self, rng: np.random.Generator, release: AdaSSPRelease, size: int) -> Floats:
        """Return values whose quantiles are the ends of basic intervals of (θ₀, θ, σ²), shape (size, p + 1)."""
        fit, n = self.estimate(release)[0], release.n
        theta = fit[:-1]
        xx, scores, squares = draw_errors(rng, release.xx[0], fit[-1], n, size)
        yy = theta @ xx @ theta + 2.0 * scores @ theta + squares
        return basic_ends(fit, self.estimate(self._add_noise(rng, n, xx, xx @ theta + scores, yy, size)))


def with_variance(theta: Floats, variance: Floats) -> Floats:
    """Return (θ₀, θ, σ²), with the error variance in its range."""
    return np.concatenate([theta, np.clip(variance, _SMALLEST, _LARGEST)[..., None]], axis=-1)


def draw_errors(
    rng: np.random.Generator, noisy_xx: Floats, sigma2: float, n: int, size: int
) -> tuple[Floats, Floats, Floats]:
    """Return a definite XᵀX, and replicates of Xᵀe, shape (size, q), and eᵀe of n errors e with variance σ²."""
    values, vectors = np.linalg.eigh(noisy_xx)
    values = np.maximum(values, 1e-6 * n)
    errors = math.sqrt(sigma2) * rng.normal(size=(size, values.size))  # in eigenvectors
    squares = (errors**2).sum(axis=1) + sigma2 * rng.chisquare(max(n - values.size, 1), size)
    return (vectors * values) @ vectors.T, (errors * np.sqrt(values)) @ vectors.T, squares


def basic_ends(fit: Floats, replicates: Floats) -> Floats:
    """Return values whose quantiles are the ends of basic intervals of (θ₀, θ, σ²), given estimates of replicates."""
    ends = 2.0 * fit - replicates
    ends[:, -1] = np.minimum(fit[-1] ** 2 / replicates[:, -1], _LARGEST)
    return ends


def penalty_for(noise_std: float, q: int) -> float:
    """Return a bound on the spectral norm of the noise of XᵀX that holds with probability 0.95."""
    return math.sqrt(q * math.log(2.0 * q**2 / _FAILURE)) * noise_std
