"""BinAgg: linear regression on noisy sums of records in private bins of the covariates.

Records of the scaled box of `gram_release` are divided into bins. Bin k has the middle m and half widths h of its d
covariates; c is the number of its records, r = Σ(u_x − m) and t = Σy. The sums follow t = θ₀c + θ·(cm + r) + e, with
errors e of variance σ²c, and θ is found by least squares with weights 1/c.

=======================  ===========  ==================================================================================
release                  part of ρ    proof, if one record is replaced
=======================  ===========  ==================================================================================
bins by PrivTree         1/8          With Laplace noise of scale b, and halves, splits on the path of the removed
                                      record have a loss of at most 3/b (theorem 3.1). On the path of the added
                                      record splits become likelier, and its last bin has at most 1/b. Together they
                                      have ε = 4/b, which is ε²/2-zCDP.
c, r and t of all bins   3/4          Noise of variances σ_c², h²σ_r² and σ_t². With s = d/σ_r² + 1/σ_t², the squared
                                      change in units of the noise is at most 2(1/σ_c² + s) in two bins, and 4s in
                                      one, where c does not change. With 1/σ_c² = s, both are 4s: 2s-zCDP.
Σ min(r², 1) at the end  1/8          The residuals are of θ, and each term is in [0, 1]: sensitivity 1.
=======================  ===========  ==================================================================================

Later releases depend on earlier ones only through bins and θ, and ρ of such adaptive releases adds up. n is public. All
else is computed from releases: the largest depth of the tree, further halvings until there are 2p bins, and the choice
of bins by *released* counts.

*Estimate.* With x̄ = (1, m + r/c), noise of r raises Σ x̄x̄ᵀc by D = Σ diag(0, h²)σ_r²/c, which is subtracted. Noise of
c does not raise it, as weights are inverse. A penalty raises the smallest eigenvalue above the noise; its bias for
coefficients of size 1 is part of the covariance. Variances of errors are those of the noise and of σ², from the
released squares. The paper uses K residuals (a sandwich), which needs many bins, and adds noise to c, r and t apart.

References
----------
Lin, Slavković & Bhoomireddy, "Differentially private linear regression and synthetic data generation with statistical
guarantees", AISTATS 2026. Zhang, Xiao & Xie, "PrivTree: a differentially private algorithm for hierarchical
decompositions", SIGMOD 2016. Bun & Steinke, "Concentrated differential privacy: simplifications, extensions, and lower
bounds", TCC 2016, proposition 1.4 and lemma 2.3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.core.arguments import Floats, Integers
from mechanisms.regression.adassp import BudgetedRelease, with_variance
from mechanisms.regression.dp_gd import clipped_sums
from mechanisms.regression.gram_release import scaled_records

_TREE, _SUMS, _SQUARES, _X = 0.125, 0.75, 0.125, 0.25  # parts of ρ, and of s for r
_SPLIT, _KEPT, _DEPTH = 8.0, 2.0, 4  # counts that are split and kept, in units of σ_c; halvings of each covariate

_Bin = tuple[int, Floats, Floats, Integers]  # depth, lower and upper ends, indices of the records


@dataclass(frozen=True, eq=False, repr=False)
class BinnedRelease:
    """Bins and their released sums, and the released squared residuals."""

    n: int
    middle: Floats  # shape (K, d)
    half: Floats  # shape (K, d)
    counts: Floats  # shape (K,)
    x_sums: Floats  # shape (K, d)
    y_sums: Floats  # shape (K,)
    squares: float


class BinnedRegression(BudgetedRelease):
    """Release of noisy sums in private bins."""

    @property
    def stds(self) -> Floats:
        """Standard deviations σ_c, σ_r and σ_t, and that of the noise on the squared residuals."""
        s = _SUMS * self.rho / 2.0
        return 1.0 / np.sqrt([s, s * _X / (self.p - 1), s * (1.0 - _X), 2.0 * _SQUARES * self.rho])

    @property
    def tree_scale(self) -> float:
        """Scale b of the Laplace noise of PrivTree."""
        return 4.0 / math.sqrt(2.0 * _TREE * self.rho)

    @property
    def threshold(self) -> float:
        """Noisy score above which PrivTree splits a bin."""
        return float(_SPLIT * self.stds[0])

    def score(self, count: int, depth: int) -> float:
        """Return the score of a bin before noise: its count decays with its depth, to a lower bound."""
        decay = self.tree_scale * math.log(2.0)
        return max(count - depth * decay, self.threshold - decay)

    def release(self, rng: np.random.Generator, records: ArrayLike) -> BinnedRelease:
        """Return a simulated release of clamped and scaled records, shape (n, p), in double precision."""
        u = scaled_records(records, self.p)
        bins = self._grow(rng, u[:, :-1])
        low, high = (np.array([one[k] for one in bins]) for k in (1, 2))
        middle, half, (count_std, x_std, y_std, square_std) = (low + high) / 2.0, (high - low) / 2.0, self.stds
        sums = np.array([[rows.size, *u[rows].sum(axis=0)] for *_, rows in bins])
        sums[:, 1:-1] -= sums[:, :1] * middle
        scales = np.column_stack([np.full(len(bins), count_std), half * x_std, np.full(len(bins), y_std)])
        noisy = sums + scales * rng.normal(size=sums.shape)
        least = max(_KEPT * float(count_std), 1.0)
        kept = noisy[:, 0] >= min(least, noisy[:, 0].max())
        counts = np.maximum(noisy[kept, 0], least)
        parts = (len(u), middle[kept], half[kept], counts, noisy[kept, 1:-1], noisy[kept, -1])
        theta = self._fit(BinnedRelease(*parts, squares=0.0))[0]
        squares = clipped_sums(u, theta, 1.0)[1] + square_std * rng.normal()
        return BinnedRelease(*parts, squares=squares)

    def _grow(self, rng: np.random.Generator, x: Floats) -> list[_Bin]:
        """Return the leaves of PrivTree, the shallowest of them halved until there are 2p."""
        d = self.p - 1
        nodes: list[_Bin] = [(0, -np.ones(d), np.ones(d), np.arange(len(x)))]
        leaves: list[_Bin] = []
        while nodes:
            node = nodes.pop()
            score = self.score(node[-1].size, node[0]) + rng.laplace(scale=self.tree_scale)
            if score > self.threshold and node[0] < _DEPTH * d:
                nodes += _halve(x, *node)
            else:
                leaves.append(node)
        while len(leaves) < 2 * self.p:
            leaves.sort(key=lambda leaf: leaf[0])
            leaves += _halve(x, *leaves.pop(0))
        return leaves

    def _fit(self, release: BinnedRelease) -> tuple[Floats, Floats, Floats, Floats, Floats, float]:
        """Return θ, x̄, diagonals of D of each bin, their matrix, its inverse with the penalty, and the penalty."""
        counts = release.counts[:, None]
        means = np.column_stack([np.ones(counts.size), release.middle + release.x_sums / counts])
        tilt = np.column_stack([np.zeros(counts.size), (release.half * self.stds[1]) ** 2 / counts])
        matrix = (means * counts).T @ means - np.diag(tilt.sum(axis=0))
        noise = 2.0 * self.stds[0] * math.sqrt(counts.size)
        penalty = max(noise - float(np.linalg.eigvalsh(matrix)[0]), 0.0)
        inverse = np.linalg.inv(matrix + penalty * np.eye(self.p))
        return inverse @ (means.T @ release.y_sums), means, tilt, matrix, inverse, penalty

    def bootstrap(self, rng: np.random.Generator, release: BinnedRelease, size: int) -> Floats:
        """Return normal draws whose quantiles are the ends of intervals of (θ₀, θ, σ²), shape (size, p + 1)."""
        theta, means, tilt, matrix, inverse, penalty = self._fit(release)
        n, (count_std, x_std, y_std, square_std) = release.n, self.stds

        def covariance(variances: Floats) -> Floats:
            inner = (means * variances[:, None]).T @ means + (tilt * theta).T @ (tilt * theta)
            return inverse @ (inner + penalty**2 * np.eye(self.p)) @ inverse

        fitted = theta[0] + release.middle @ theta[1:]
        added = y_std**2 + (count_std * fitted) ** 2 + ((release.half * x_std * theta[1:]) ** 2).sum(axis=1)
        excess = matrix @ covariance(added)  # its trace is the mean of (θ̂ − θ)ᵀXᵀX(θ̂ − θ)
        middle = (release.squares - np.trace(excess)) / n
        sigma2 = with_variance(theta, np.array(middle))[-1]
        error = math.sqrt(2.0 * n * sigma2**2 + square_std**2 + 2.0 * np.trace(excess @ excess)) / n
        drawn = rng.multivariate_normal(theta, covariance(added + sigma2 * release.counts), size, method="eigh")
        return with_variance(drawn, middle + error * rng.normal(size=size))


def _halve(x: Floats, depth: int, low: Floats, high: Floats, rows: Integers) -> list[_Bin]:
    """Return the halves of a bin, in the covariates by turns."""
    j = depth % low.size
    upper, lower = high.copy(), low.copy()
    upper[j] = lower[j] = (low[j] + high[j]) / 2.0
    is_low = x[rows, j] < lower[j]
    return [(depth + 1, low, upper, rows[is_low]), (depth + 1, lower, high, rows[~is_low])]
