"""Laplace noise on counts: the baselines of P0, Figures 2 and 3(a).

The first k − 1 counts receive Laplace noise, are rounded and are clipped in order, so that the released counts are
again a histogram of n records:

    c̃ᵢ = clip( round(cᵢ + Lap(b)), 0, n − Σ_{j<i} c̃ⱼ )  for i < k,   c̃ₖ = n − Σ_{j<k} c̃ⱼ.

References
----------
P0: Bun, Farina, Gaboardi & Liu, "Tailoring Differentially Private Bayesian Inference to Distance Between
Distributions" (poster). Dwork, McSherry, Nissim & Smith, "Calibrating noise to sensitivity in private data analysis",
TCC 2006.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mechanisms.candidates import (
    cell_deficits,
    enumerate_rows,
    require_enumerable,
    require_streamable,
    require_uniforms,
    row_deficits,
)
from mechanisms.conjugate import count_candidates, validate_counts, validate_prior
from mechanisms.jit import kernel

__all__ = ["LaplaceCounts", "histogram_sensitivity", "laplace_counts"]


def histogram_sensitivity(k: int) -> int:
    """Return the ℓ₁ sensitivity of the k − 1 released counts when one record is replaced.

    One number that moves by one at k = 2; two numbers that move by one each at k ≥ 3 (P0, "Preliminary
    Experimental Results").

    Parameters
    ----------
    k : int
        Number of cells, ≥ 2.

    Returns
    -------
    int

    Raises
    ------
    ValueError
        If k < 2.

    Examples
    --------
    >>> histogram_sensitivity(2), histogram_sensitivity(4)
    (1, 2)
    """
    if k < 2:
        raise ValueError(f"k must be >= 2, got {k}; a binomial has 2 cells")
    return 1 if k == 2 else 2


def laplace_counts(prior: ArrayLike, counts: ArrayLike, noise_scale: float) -> LaplaceCounts:
    """Prepare the release of `counts` with Laplace noise of scale `noise_scale`.

    Parameters
    ----------
    prior : array_like, shape (k,)
        Dirichlet parameters, finite and > 0. They matter for the distance only, not for the release.
    counts : array_like, shape (k,)
        The true counts c: whole numbers ≥ 0 with sum n ≥ 1.
    noise_scale : float
        b > 0, in records.

    Returns
    -------
    LaplaceCounts

    Privacy
    -------
    (Δ/b)-DP, replace-one with n public, where Δ is `histogram_sensitivity`. Rounding and clipping use released
    numbers and n only, and are post-processing. It holds for noise in real arithmetic: doubles leak through their
    rounding (Mironov, "On significance of the least significant bits for differential privacy", CCS 2012), so these
    draws serve simulation, not the protection of data.

    Raises
    ------
    ValueError
        If an argument is not allowed.

    Examples
    --------
    >>> release = laplace_counts([1, 1, 1], [5, 3, 2], noise_scale=2.0)
    >>> release.sample(np.array([[0.5, 0.5], [0.9, 0.1], [0.0, 0.0]]))
    array([[ 5, 3, 2], [ 8, 0, 2], [ 0, 0, 10]])
    >>> round(release.expected_hellinger(), 4)
    0.5652
    """
    alpha = validate_prior(prior)
    c = validate_counts(counts, k=alpha.size)
    if not (math.isfinite(noise_scale) and noise_scale > 0):
        raise ValueError(f"noise_scale must be a finite number > 0, got {noise_scale}; pass sensitivity / epsilon")
    alpha.flags.writeable = c.flags.writeable = False
    return LaplaceCounts(alpha, c, float(noise_scale))


@dataclass(frozen=True, eq=False)
class LaplaceCounts:
    """The release of counts with Laplace noise at one data set; build it with `laplace_counts`."""

    prior: NDArray[np.float64]
    counts: NDArray[np.int64]
    noise_scale: float

    @property
    def k(self) -> int:
        """Number of cells."""
        return self.counts.size

    @property
    def n(self) -> int:
        """Number of records."""
        return int(self.counts.sum())

    @property
    def n_uniforms(self) -> int:
        """Uniforms a draw takes: one a noisy cell."""
        return self.k - 1

    def sample(self, uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return one draw of released counts for each row of `uniforms`.

        Parameters
        ----------
        uniforms : ndarray of float64, shape (trials, k - 1)
            In [0, 1). Draw i depends on row i alone.

        Returns
        -------
        ndarray of int64, shape (trials, k)

        Raises
        ------
        ValueError
            If the shape differs or a value is outside [0, 1).
        """
        u = require_uniforms(uniforms, self.n_uniforms)
        released = np.empty((len(u), self.k), dtype=np.int64)
        _sample_noise(self.counts, self.noise_scale, u, released)
        return released

    def expected_hellinger(self) -> float:
        """Return the exact mean of H(true posterior, released posterior): one pass over all candidates.

        Returns
        -------
        float

        Raises
        ------
        ValueError
            If there are too many candidates to stream.
        """
        require_streamable(self.n, self.k)
        rows = enumerate_rows(self.n, self.k)
        deficits = cell_deficits(self.prior, self.counts)
        interior, upper = self._cell_laws()
        return float(
            _stream_mean(
                rows[:, -1],
                self._row_probabilities(rows, interior, upper),
                row_deficits(deficits, rows),
                deficits[-2],
                deficits[-1],
                interior[-1],
                upper[-1],
            )
        )

    def probabilities(self) -> NDArray[np.float64]:
        """Return the probability of every candidate, in the order of `enumerate_candidates`.

        Returns
        -------
        ndarray of float64, shape (|R|,)

        Raises
        ------
        ValueError
            If there are more than `mechanisms.conjugate.MAX_ENUMERATED` candidates.
        """
        require_enumerable(self.n, self.k)
        rows = enumerate_rows(self.n, self.k)
        interior, upper = self._cell_laws()
        law = np.empty(count_candidates(self.n, self.k))
        _fill_law(rows[:, -1], self._row_probabilities(rows, interior, upper), interior[-1], upper[-1], law)
        return law

    def _cell_laws(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return, for the noisy cells, Pr[round = x] (at x = 0: Pr[round ≤ 0]) and Pr[round ≥ x], (k-1, n+1) each."""
        b = self.noise_scale
        offset = np.arange(self.n + 1) - self.counts[:-1, None]
        away = np.abs(offset)
        # Pr[|Lap| in (d−½, d+½)] without the difference of two close distribution functions.
        side = -0.5 * np.exp(-np.maximum(away - 0.5, 0.0) / b) * math.expm1(-1.0 / b)
        interior = np.where(away == 0, -math.expm1(-0.5 / b), side)
        # Pr[Lap ≥ offset − ½], each tail from its own side.
        tail = 0.5 * np.exp(-np.abs(offset - 0.5) / b)
        upper = np.where(offset >= 1, tail, 1.0 - tail)
        below = 0.5 * np.exp(-np.abs(0.5 - self.counts[:-1]) / b)
        interior[:, 0] = np.where(self.counts[:-1] >= 1, below, 1.0 - below)
        return interior, upper

    def _row_probabilities(
        self, rows: NDArray[np.int64], interior: NDArray[np.float64], upper: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the probability of each row: of its prefix, cell by cell given the cells before."""
        probability = np.ones(len(rows))
        remaining = np.full(len(rows), self.n)
        for cell in range(self.k - 2):
            x = rows[:, cell]
            at_top = np.where(remaining == 0, 1.0, upper[cell, remaining])  # clipping to {0} leaves no choice
            probability *= np.where(x == remaining, at_top, interior[cell, x])
            remaining -= x
        return probability


@kernel
def _sample_noise(counts, noise_scale, uniforms, released):
    trials, n_noisy = uniforms.shape
    n = counts.sum()
    for trial in range(trials):
        remaining = n
        for cell in range(n_noisy):
            u = uniforms[trial, cell]
            # Inverse distribution function, each tail from its own side: 1 − u is exact for u ≥ ½.
            if u == 0.0:
                noise = -np.inf
            elif u < 0.5:
                noise = noise_scale * math.log(2.0 * u)
            else:
                noise = -noise_scale * math.log(2.0 * (1.0 - u))
            # Clipped as a float: far noise exceeds the integers.
            x = np.int64(min(max(np.rint(counts[cell] + noise), 0.0), float(remaining)))
            released[trial, cell] = x
            remaining -= x
        released[trial, n_noisy] = remaining


@kernel
def _stream_mean(remaining, probability, prefix, first, second, interior, upper):
    mean = 0.0
    distances = np.empty(first.size)
    for row in range(remaining.size):
        if probability[row] == 0.0:
            continue
        top = remaining[row]
        for x in range(top + 1):
            a = first[x]
            distances[x] = math.sqrt(prefix[row] + (1.0 - prefix[row]) * (a + (1.0 - a) * second[top - x]))
        if top == 0:
            mean += probability[row] * distances[0]
            continue
        row_mean = 0.0
        for x in range(top):
            row_mean += interior[x] * distances[x]
        mean += probability[row] * (row_mean + upper[top] * distances[top])
    return mean


@kernel
def _fill_law(remaining, probability, interior, upper, law):
    start = 0
    for row in range(remaining.size):
        top = remaining[row]
        for x in range(top):
            law[start + x] = probability[row] * interior[x]
        law[start + top] = probability[row] * (upper[top] if top > 0 else 1.0)
        start += top + 1
