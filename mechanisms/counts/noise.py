"""Counts released with noise: the Laplace baselines of P0 and the two-sided geometric mechanism.

Noise Z is added to the first k − 1 counts, which are rounded and clipped in order, so that the released counts are
again a histogram of n records:

    c̃ᵢ = clip( round(cᵢ + Zᵢ), 0, n − Σ_{j<i} c̃ⱼ )  for i < k,   c̃ₖ = n − Σ_{j<k} c̃ⱼ.

Z has the density ∝ exp(−|z|/b) on the reals (Laplace) or the pmf ∝ exp(−|z|/b) on the integers (two-sided geometric).

References
----------
P0: Bun, Farina, Gaboardi & Liu, "Tailoring Differentially Private Bayesian Inference to Distance Between
Distributions" (poster), Figures 2 and 3(a). Dwork, McSherry, Nissim & Smith, "Calibrating noise to sensitivity in
private data analysis", TCC 2006. Ghosh, Roughgarden & Sundararajan, "Universally utility-maximizing privacy
mechanisms", SIAM Journal on Computing 41(6), 2012.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mechanisms.arguments import validate_integer, validate_positive
from mechanisms.conjugate import count_candidates, validate_counts, validate_prior
from mechanisms.counts.candidates import (
    category_deficits,
    enumerate_rows,
    require_enumerable,
    require_streamable,
    require_uniforms,
    row_deficits,
)
from mechanisms.counts.release import CountRelease
from mechanisms.jit import kernel

__all__ = ["NOISES", "CountNoise", "NoisyCounts", "geometric_counts", "histogram_sensitivity", "laplace_counts"]


class CountNoise(Enum):
    """Distribution of the noise on one count."""

    LAPLACE = "laplace"
    GEOMETRIC = "geometric"


def histogram_sensitivity(k: int) -> int:
    """Return the ℓ₁ sensitivity of the k − 1 released counts when one record is replaced.

    At k = 2 one count changes by one; at k ≥ 3 two counts change by one each (P0, "Preliminary Experimental
    Results").
    """
    return 1 if validate_integer("k", k, least=2, advice="use 2 for a binomial") == 2 else 2


def laplace_counts(prior: ArrayLike, counts: ArrayLike, noise_scale: float) -> NoisyCounts:
    """Return the release of `counts` with Laplace noise of scale `noise_scale`.

    Parameters
    ----------
    prior : array_like, shape (k,)
        Dirichlet parameters, finite and > 0. They affect `expected_hellinger`, but not the release.
    counts : array_like, shape (k,)
        True counts c: integers ≥ 0 with sum n ≥ 1.
    noise_scale : float
        b > 0, in records.

    Returns
    -------
    NoisyCounts

    Privacy
    -------
    (Δ/b)-DP under replacement of one record, with n public, where Δ is `histogram_sensitivity`. Rounding and clipping
    are post-processing, as they use only released numbers and n. The guarantee assumes noise in real arithmetic.
    Floating-point rounding leaks information (Mironov, "On significance of the least significant bits for differential
    privacy", CCS 2012), so these draws are for simulation, not for the protection of data.

    Raises
    ------
    ValueError
        If an argument is invalid.

    Examples
    --------
    >>> release = laplace_counts([1, 1, 1], [5, 3, 2], noise_scale=2.0)
    >>> release.from_uniforms(np.array([[0.5, 0.5], [0.9, 0.1], [0.0, 0.0]]))
    array([[ 5, 3, 2], [ 8, 0, 2], [ 0, 0, 10]])
    >>> round(release.expected_hellinger(), 4)
    0.5652
    """
    return _noisy_counts(prior, counts, noise_scale, CountNoise.LAPLACE)


def geometric_counts(prior: ArrayLike, counts: ArrayLike, noise_scale: float) -> NoisyCounts:
    """Return the release of `counts` with two-sided geometric noise: Pr[Z = z] ∝ exp(−|z|/noise_scale), z integer.

    At k = 2 this is the truncated geometric mechanism of Ghosh, Roughgarden & Sundararajan (2012). For every prior on
    the count and every loss that is monotone in |c − c̃|, some post-processing of this release is optimal under ε-DP.

    Parameters
    ----------
    prior : array_like, shape (k,)
        Dirichlet parameters, finite and > 0. They affect `expected_hellinger`, but not the release.
    counts : array_like, shape (k,)
        True counts c: integers ≥ 0 with sum n ≥ 1.
    noise_scale : float
        b > 0, in records: the probability decreases by the factor exp(−1/b) per step.

    Returns
    -------
    NoisyCounts

    Privacy
    -------
    (Δ/b)-DP under replacement of one record, with n public, where Δ is `histogram_sensitivity`; at k = 2 the loss is
    exactly 1/b. Clipping is post-processing, as it uses only released numbers and n. The noise is a function of one
    double, and its tail has the resolution of the uniform: these draws are for simulation, not for the protection of
    data.

    Raises
    ------
    ValueError
        If an argument is invalid.

    Examples
    --------
    >>> release = geometric_counts([1, 1, 1], [5, 3, 2], noise_scale=2.0)
    >>> release.from_uniforms(np.array([[0.5, 0.5], [0.9, 0.1], [0.0, 0.0]]))
    array([[ 5, 3, 2], [ 8, 0, 2], [ 0, 0, 10]])
    >>> round(release.expected_hellinger(), 4)
    0.5548
    """
    return _noisy_counts(prior, counts, noise_scale, CountNoise.GEOMETRIC)


def _noisy_counts(prior: ArrayLike, counts: ArrayLike, noise_scale: float, noise: CountNoise) -> NoisyCounts:
    alpha = validate_prior(prior)
    c = validate_counts(counts, k=alpha.size)
    noise_scale = validate_positive("noise_scale", noise_scale, "pass sensitivity / epsilon")
    alpha.flags.writeable = c.flags.writeable = False
    return NoisyCounts(alpha, c, noise_scale, noise)


class ClippedCounts(CountRelease):
    """Base class for noisy counts that are clipped in order; subclasses draw the noise and tabulate its pmf."""

    @property
    def n_uniforms(self) -> int:
        """Number of uniforms per draw: one per noisy count."""
        return self.k - 1

    def from_uniforms(self, uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
        """Draw released counts; see `CountRelease.from_uniforms`."""
        u = require_uniforms(uniforms, self.n_uniforms)
        released = np.empty((len(u), self.k), dtype=np.int64)
        _clip_in_order(self.counts, self._draw_noise(u), released)
        return released

    def expected_hellinger(self) -> float:
        """Return the exact mean Hellinger distance between the true and the released posterior."""
        require_streamable(self.n, self.k)
        rows = enumerate_rows(self.n, self.k)
        deficits = category_deficits(self.prior, self.counts)
        log_interior, log_upper = self._log_category_pmfs()
        return float(
            _stream_mean(
                rows[:, -1],
                np.exp(self._row_log_probabilities(rows, log_interior, log_upper)),
                row_deficits(deficits, rows),
                deficits[-2],
                deficits[-1],
                np.exp(log_interior[-1]),
                np.exp(log_upper[-1]),
            )
        )

    def log_pmf(self) -> NDArray[np.float64]:
        """Return the log-pmf over all counts of n records; see `CountRelease.log_pmf`."""
        require_enumerable(self.n, self.k)
        rows = enumerate_rows(self.n, self.k)
        log_interior, log_upper = self._log_category_pmfs()
        log_pmf = np.empty(count_candidates(self.n, self.k))
        _fill_log_pmf(
            rows[:, -1],
            self._row_log_probabilities(rows, log_interior, log_upper),
            log_interior[-1],
            log_upper[-1],
            log_pmf,
        )
        return log_pmf

    @abstractmethod
    def _draw_noise(self, uniforms: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return noise by inversion, with the shape of the uniforms."""

    @abstractmethod
    def _log_category_pmfs(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return ln Pr[X = x] (ln Pr[X ≤ 0] at x = 0) and ln Pr[X ≥ x] of the rounded counts X, shapes (k − 1, n + 1).

        X is a count plus noise, for each of the first k − 1 counts.
        """

    def _row_log_probabilities(
        self, rows: NDArray[np.int64], log_interior: NDArray[np.float64], log_upper: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return, for each row of `enumerate_rows`, the log probability of its first released counts."""
        total = np.zeros(len(rows))
        remaining = np.full(len(rows), self.n)
        for category in range(self.k - 2):
            x = rows[:, category]
            at_top = np.where(remaining == 0, 0.0, log_upper[category, remaining])  # no record is left: the count is 0
            total += np.where(x == remaining, at_top, log_interior[category, x])
            remaining -= x
        return total


@dataclass(frozen=True, eq=False, repr=False)
class NoisyCounts(ClippedCounts):
    """Distribution of noisy counts at one data set, created by `laplace_counts` or `geometric_counts`."""

    prior: NDArray[np.float64]
    counts: NDArray[np.int64]
    noise_scale: float
    noise: CountNoise

    def _draw_noise(self, uniforms: NDArray[np.float64]) -> NDArray[np.float64]:
        return NOISES[self.noise].draw(uniforms, self.noise_scale)

    def _log_category_pmfs(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the log probabilities of the base class: as Z is symmetric, Pr[X ≤ 0] = Pr[round(Z) ≥ c]."""
        noise = NOISES[self.noise]
        offset = np.arange(self.n + 1) - self.counts[:-1, None]
        log_interior = noise.log_equal(np.abs(offset), self.noise_scale)
        log_interior[:, 0] = noise.log_at_least(self.counts[:-1], self.noise_scale)
        return log_interior, noise.log_at_least(offset, self.noise_scale)


def _log_one_minus_exp(x: float) -> float:
    """Return ln(1 − exp(−x)) for x > 0, accurate even if exp(−x) is close to zero or one."""
    return math.log(-math.expm1(-x)) if x < 1.0 else math.log1p(-math.exp(-x))


def _laplace_log_equal(away: NDArray[np.int64], scale: float) -> NDArray[np.float64]:
    """Return ln Pr[|Z − d| < ½] for Laplace noise Z and d ≥ 0, without subtracting distribution functions."""
    side = -(away - 0.5) / scale + (math.log(0.5) + _log_one_minus_exp(1.0 / scale))
    return np.where(away == 0, _log_one_minus_exp(0.5 / scale), side)


def _laplace_log_at_least(offset: NDArray[np.int64], scale: float) -> NDArray[np.float64]:
    """Return ln Pr[Z ≥ offset − ½] for Laplace noise Z, accurate in both tails."""
    log_half_tail = math.log(0.5) - np.abs(offset - 0.5) / scale
    return np.where(offset >= 1, log_half_tail, np.log1p(-np.exp(log_half_tail)))


def _geometric_log_equal(away: NDArray[np.int64], scale: float) -> NDArray[np.float64]:
    """Return ln Pr[Z = d] = ln((1 − q)/(1 + q)) + d·ln q for geometric noise Z, q = exp(−1/scale), d ≥ 0."""
    return -away / scale + (_log_one_minus_exp(1.0 / scale) - math.log1p(math.exp(-1.0 / scale)))


def _geometric_log_at_least(offset: NDArray[np.int64], scale: float) -> NDArray[np.float64]:
    """Return ln Pr[Z ≥ d]; with q = exp(−1/scale), Pr[Z ≥ d] is qᵈ/(1 + q) for d ≥ 1, else 1 − Pr[Z ≥ 1 − d]."""
    log_tail = -np.maximum(offset, 1 - offset) / scale - math.log1p(math.exp(-1.0 / scale))
    return np.where(offset >= 1, log_tail, np.log1p(-np.exp(log_tail)))


@kernel
def _laplace_draw(uniforms, scale):
    noise = np.empty(uniforms.shape)
    for trial in range(uniforms.shape[0]):
        for category in range(uniforms.shape[1]):
            u = uniforms[trial, category]
            # Inverse distribution function, separately in each tail: 1 − u is exact for u ≥ ½.
            if u == 0.0:
                noise[trial, category] = -np.inf
            elif u < 0.5:
                noise[trial, category] = scale * math.log(2.0 * u)
            else:
                noise[trial, category] = -scale * math.log(2.0 * (1.0 - u))
    return noise


@kernel
def _geometric_draw(uniforms, scale):
    noise = np.empty(uniforms.shape)
    q = math.exp(-1.0 / scale)
    for trial in range(uniforms.shape[0]):
        for category in range(uniforms.shape[1]):
            u = uniforms[trial, category]
            # The smallest z with F(z) > u: F(z) = q^(−z)/(1 + q) below zero, 1 − q^(z+1)/(1 + q) from zero on.
            if u == 0.0:
                noise[trial, category] = -np.inf
            elif u * (1.0 + q) < q:
                noise[trial, category] = min(np.floor(scale * math.log(u * (1.0 + q))) + 1.0, -1.0)
            else:
                noise[trial, category] = max(np.floor(-scale * math.log((1.0 - u) * (1.0 + q))), 0.0)
    return noise


@dataclass(frozen=True)
class _Noise:
    """Symmetric noise: a function that draws it by inversion, and log probabilities of the rounded noise."""

    draw: Callable[[NDArray[np.float64], float], NDArray[np.float64]]
    log_equal: Callable[[NDArray[np.int64], float], NDArray[np.float64]]
    log_at_least: Callable[[NDArray[np.int64], float], NDArray[np.float64]]


NOISES = {
    CountNoise.LAPLACE: _Noise(_laplace_draw, _laplace_log_equal, _laplace_log_at_least),
    CountNoise.GEOMETRIC: _Noise(_geometric_draw, _geometric_log_equal, _geometric_log_at_least),
}
"""Distributions of the noise on one count."""


@kernel
def _clip_in_order(counts, noise, released):
    trials, n_noisy = noise.shape
    n = counts.sum()
    for trial in range(trials):
        remaining = n
        for category in range(n_noisy):
            # Clip as a float, as large noise may exceed the range of int64.
            x = np.int64(min(max(np.rint(counts[category] + noise[trial, category]), 0.0), float(remaining)))
            released[trial, category] = x
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
def _fill_log_pmf(remaining, row_log_probability, log_interior, log_upper, log_pmf):
    start = 0
    for row in range(remaining.size):
        top = remaining[row]
        for x in range(top):
            log_pmf[start + x] = row_log_probability[row] + log_interior[x]
        log_pmf[start + top] = row_log_probability[row] + (log_upper[top] if top > 0 else 0.0)
        start += top + 1
