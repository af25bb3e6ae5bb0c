"""Independent noise on all k counts, projected to counts of n records: a simple alternative to the K-norm mechanism.

Replacing a record changes two counts by one each, so noise of scale b on every count has a privacy loss of at most 2/b.
The noisy counts are rounded, and then clipped and projected as in `mechanisms.counts.projection`. The baselines of
`mechanisms.counts.noise` add noise to k − 1 counts and clip them in order, so their accuracy depends on the order of
the categories; here it does not.

References
----------
Dwork, McSherry, Nissim & Smith, "Calibrating noise to sensitivity in private data analysis", TCC 2006. Hay, Rastogi,
Miklau & Suciu, "Boosting the accuracy of differentially private histograms through consistency", PVLDB 3(1), 2010.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import gamma

from mechanisms.arguments import validate_positive
from mechanisms.conjugate import validate_counts, validate_prior
from mechanisms.counts.candidates import require_uniforms
from mechanisms.counts.lattice_classes import MAX_CLASSES
from mechanisms.counts.noise import NOISES, CountNoise
from mechanisms.counts.projection import log_projected_pmf, mean_projected_distance, project
from mechanisms.counts.release import CountRelease

__all__ = ["ProjectedCounts", "projected_counts"]

_OMITTED = 1e-12
"""Largest probability of the noise that is omitted from an exact mean."""


def projected_counts(prior: ArrayLike, counts: ArrayLike, noise_scale: float, noise: CountNoise) -> ProjectedCounts:
    """Return the release of `counts` with independent noise on every count, projected to counts of n records.

    The noise has Pr[Z = z] ∝ exp(−|z|/b) or, for Laplace noise, a density ∝ exp(−|z|/b), with b = `noise_scale` in
    records. The prior affects `expected_hellinger`, but not the release.

    Privacy
    -------
    (2/b)-DP (proved) under replacement of one record, with n public. Rounding, clipping and projection are
    post-processing, as they use only released numbers and n. For Laplace noise the guarantee assumes real arithmetic;
    see `mechanisms.counts.noise.laplace_counts`. The draws are for simulation, not for the protection of data.
    """
    alpha = validate_prior(prior)
    c = validate_counts(counts, k=alpha.size)
    noise_scale = validate_positive("noise_scale", noise_scale, "pass 2 / epsilon")
    if not isinstance(noise, CountNoise):
        raise ValueError(f"noise must be a CountNoise, got {noise!r}; pass e.g. CountNoise.GEOMETRIC")
    alpha.flags.writeable = c.flags.writeable = False
    return ProjectedCounts(alpha, c, noise_scale, noise)


@dataclass(frozen=True, eq=False, repr=False)
class ProjectedCounts(CountRelease):
    """Distribution of projected noisy counts at one data set, created by `projected_counts`."""

    prior: NDArray[np.float64]
    counts: NDArray[np.int64]
    noise_scale: float
    noise: CountNoise

    @property
    def n_uniforms(self) -> int:
        """Number of uniforms per draw: k for the noise and k for ties of the projection."""
        return 2 * self.k

    def from_uniforms(self, uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
        """Draw projected counts; see `CountRelease.from_uniforms`."""
        u = require_uniforms(uniforms, self.n_uniforms)
        noise = NOISES[self.noise].draw(np.ascontiguousarray(u[:, : self.k]), self.noise_scale)
        # Clip as floats, as large noise may exceed the range of int64.
        noisy = np.clip(np.rint(self.counts + noise), 0, self.n).astype(np.int64)
        return project(noisy, self.n, u[:, self.k :])

    def expected_hellinger(self) -> float:
        """Return the mean Hellinger distance from the true posterior to that of the projected counts, by enumeration.

        The omitted noise has a probability of at most 1e-12, which bounds the error, as no distance exceeds 1.
        """
        # Pr[|Z| > t] ≤ 2·exp(−t/b), so Σ|Z|/b is stochastically at most k·ln 2 plus a sum of k standard exponential
        # variables. Rounding adds at most ½ per count.
        reach = math.ceil((self.k * math.log(2.0) + gamma.isf(_OMITTED, self.k)) * self.noise_scale + 0.5 * self.k)
        ball = (2 * reach + self.k) ** self.k // math.factorial(self.k)
        self._require_enumerable(min(ball, (self.n + 1) ** self.k))
        vectors, log_weights = self._enumerate(reach)
        return mean_projected_distance(self.prior, self.counts, vectors, np.exp(log_weights))

    def log_pmf(self) -> NDArray[np.float64]:
        """Return the log-pmf over all counts of n records; see `CountRelease.log_pmf`."""
        self._require_enumerable((self.n + 1) ** self.k)
        log_weights = np.zeros(1)
        for count in self.counts.tolist():
            log_weights = np.add.outer(log_weights, self._log_clipped_pmf(count, np.arange(self.n + 1))).ravel()
        vectors = np.indices((self.n + 1,) * self.k).reshape(self.k, -1).T
        return log_projected_pmf(self.n, np.ascontiguousarray(vectors), log_weights)

    def _log_clipped_pmf(self, count: int, values: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the log-pmf at `values` of a noisy count that is clipped to [0, n]."""
        noise, away = NOISES[self.noise], np.abs(values - count)
        return np.where(
            (values == 0) | (values == self.n),
            noise.log_at_least(away, self.noise_scale),
            noise.log_equal(away, self.noise_scale),
        )

    def _enumerate(self, reach: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the clipped noisy counts within ℓ₁ distance `reach` of the true counts, with log probabilities."""
        vectors, distances, log_weights = np.zeros((1, 0), dtype=np.int64), np.zeros(1, dtype=np.int64), np.zeros(1)
        for count in self.counts.tolist():
            values = np.arange(max(count - reach, 0), min(count + reach, self.n) + 1)
            away, log_pmf = np.abs(values - count), self._log_clipped_pmf(count, values)
            row, place = np.nonzero(distances[:, None] + away <= reach)
            vectors = np.column_stack([vectors[row], values[place]])
            distances, log_weights = distances[row] + away[place], log_weights[row] + log_pmf[place]
        return vectors, log_weights

    def _require_enumerable(self, n_vectors: int) -> None:
        if n_vectors > MAX_CLASSES:
            raise ValueError(
                f"there must be at most {MAX_CLASSES:,} noisy vectors to enumerate, got {n_vectors:,} "
                f"(n = {self.n}, k = {self.k}, noise_scale = {self.noise_scale:g}); use fewer records, or simulation"
            )
