"""DP-GD: noisy gradient descent for linear regression, and a parametric bootstrap of its intervals.

For records of the scaled box of `gram_release`, with z = (1, u_x) of q = d + 1 entries and residual r = y − z·θ, these
statistics are released with Gaussian noise, under replacement of one record and with public n:

========================  ===========  =============  =================================================================
statistic                 sensitivity  part of ρ      proof
========================  ===========  =============  =================================================================
XᵀX, but for n            q·√2         1/4            ‖zzᵀ − wwᵀ‖_F² = ‖z‖⁴ + ‖w‖⁴ − 2(z·w)².
Σ clip(z·r, γ), T times   2γ           5/8, each 1/T  Both vectors are in a ball of radius γ. The paper adds or removes
                                                      records: γ.
Σ min(r², 1) at the end   1            1/8            Each term is in [0, 1].
========================  ===========  =============  =================================================================

Later statistics depend on earlier releases only through θ, and ρ of such adaptive releases adds up. A step is θ ← θ +
P·(Σ clip(z·r, γ) + noise), and the estimate is the mean of the iterates after a burn-in. P is the inverse of the
released XᵀX, its eigenvalues raised by a bound on its noise, so that P⁻¹ ⪰ XᵀX with probability 0.95 and the steps
contract. The paper takes a multiple of the identity matrix, for covariates of similar variances; here, a column may
vary in a small part of its bounds.

*Intervals.* Replicates of the releases are drawn from the fitted model as in `adassp`, without clipping, and an
interval is basic. The paper's intervals from iterates contain the least-squares estimate, and omit its sampling error.

References
----------
Brown, Dvijotham, Evans, Liu, Smith & Thakurta, "Private gradient descent for linear regression: tighter error bounds
and instance-specific uncertainty estimation", ICML 2024. Bun & Steinke, "Concentrated differential privacy:
simplifications, extensions, and lower bounds", TCC 2016, lemma 2.3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.core.arguments import Floats
from mechanisms.core.jit import kernel
from mechanisms.regression.adassp import BudgetedRelease, basic_ends, draw_errors, penalty_for, with_variance
from mechanisms.regression.gram_release import GramNoise, scaled_records

_STEPS, _BURN_IN = 10, 3
_PARTS = np.array([0.25, 0.625 / _STEPS, 0.125])  # of ρ, for XᵀX, one gradient, and the squared residuals
_Sums = Callable[[Floats], tuple[Floats, Floats]]  # θ of replicates, shape (size, q) -> gradients and squares


@dataclass(frozen=True, eq=False, repr=False)
class NoisyDescentRelease:
    """Released XᵀX, mean iterate and squared residuals; leading axes are replicates."""

    n: int
    xx: Floats  # shape (..., q, q)
    theta: Floats  # shape (..., q)
    squares: Floats  # shape (...)

    @property
    def estimate(self) -> Floats:
        """Estimate (θ₀, θ, σ²) of scaled columns, shape (..., p + 1)."""
        return with_variance(self.theta, self.squares / self.n)


class NoisyDescent(BudgetedRelease):
    """Release by noisy gradient descent."""

    @property
    def clip(self) -> float:
        """Largest norm γ of a gradient, half of the largest norm at θ = 0."""
        return math.sqrt(self.p) / 2.0

    @property
    def stds(self) -> Floats:
        """Standard deviations of the noise on the diagonal of XᵀX, on a gradient, and on the squared residuals."""
        return np.array([self.p * math.sqrt(2.0), 2.0 * self.clip, 1.0]) / np.sqrt(2.0 * self.rho * _PARTS)

    def release(self, rng: np.random.Generator, records: ArrayLike) -> NoisyDescentRelease:
        """Return a simulated release of clamped and scaled records, shape (n, p), in double precision."""
        u = scaled_records(records, self.p)
        z = np.column_stack([np.ones(len(u)), u[:, :-1]])

        def sums(theta: Floats) -> tuple[Floats, Floats]:
            gradient, squares = clipped_sums(u, theta[0], self.clip)
            return gradient[None], np.array([squares])

        return self._descend(rng, len(u), z.T @ z, sums, 1)

    def bootstrap(self, rng: np.random.Generator, release: NoisyDescentRelease, size: int) -> Floats:
        """Return values whose quantiles are the ends of basic intervals of (θ₀, θ, σ²), shape (size, p + 1)."""
        fit = release.estimate[0]
        xx, scores, squares = draw_errors(rng, release.xx[0], fit[-1], release.n, size)

        def sums(theta: Floats) -> tuple[Floats, Floats]:
            gap = theta - fit[:-1]
            change = gap @ xx
            return scores - change, squares + (gap * (change - 2.0 * scores)).sum(axis=1)

        return basic_ends(fit, self._descend(rng, release.n, xx, sums, size).estimate)

    def _descend(self, rng: np.random.Generator, n: int, xx: Floats, sums: _Sums, size: int) -> NoisyDescentRelease:
        """Return the releases of `size` replicates."""
        matrix, vector, scalar = self.stds
        noisy = xx + GramNoise("gaussian", float(matrix), self.p - 1).sample(rng, size)
        values, vectors = np.linalg.eigh(noisy)
        raised = np.maximum(values, 0.0) + penalty_for(matrix, self.p)
        step = (vectors / raised[:, None, :]) @ np.swapaxes(vectors, 1, 2)
        theta = total = np.zeros((size, self.p))
        for k in range(_STEPS):
            gradient = sums(theta)[0] + vector * rng.normal(size=theta.shape)
            theta = theta + (step @ gradient[..., None])[..., 0]
            total = total + theta if k >= _BURN_IN else total
        mean = total / (_STEPS - _BURN_IN)
        return NoisyDescentRelease(n, noisy, mean, sums(mean)[1] + scalar * rng.normal(size=size))


@kernel
def clipped_sums(records, theta, clip):
    """Return Σ z·r over the records, each term scaled to a norm of at most `clip`, and Σ min(r², 1)."""
    q, squares = theta.size, 0.0
    total = np.zeros(q)
    for u in records:
        residual, square = u[q - 1] - theta[0], 1.0
        for j in range(1, q):
            residual -= theta[j] * u[j - 1]
            square += u[j - 1] * u[j - 1]
        squares += min(residual * residual, 1.0)
        most = clip / math.sqrt(square)
        residual = min(max(residual, -most), most)
        total[0] += residual
        for j in range(1, q):
            total[j] += residual * u[j - 1]
    return total, squares
