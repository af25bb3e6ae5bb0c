"""Releases of counts: noise, composed with a map to counts of n records.

Noise Z of k − 1 components is added to the first k − 1 counts, which are rounded and clipped in order,

    c̃ᵢ = clip( round(cᵢ + Zᵢ), 0, n − Σ_{j<i} c̃ⱼ )  for i < k,   c̃ₖ = n − Σ_{j<k} c̃ⱼ,

so that the distribution depends on the order of the categories; or noise of k components is added to all counts, which
are rounded, clipped to [0, n] and projected (`mechanisms.counts.projection`). Clipped noise is independent;
`mechanisms.counts.k_norm` and `mechanisms.counts.discrete_gaussian` define other noise of k components.

Independent noise has the density ∝ exp(−|z|/b) on the reals (Laplace) or the pmf ∝ exp(−|z|/b) on the integers
(two-sided geometric); see `mechanisms.core.noise`. Replacing a record changes two of k counts by one each, so b is at
least 2/ε for projected counts, and Δ/ε for clipped ones, where Δ is `histogram_sensitivity`.

References
----------
P0, Figures 2 and 3(a). Dwork, McSherry, Nissim & Smith, "Calibrating noise to sensitivity in private data analysis",
TCC 2006. Ghosh, Roughgarden & Sundararajan, "Universally utility-maximizing privacy mechanisms", SIAM Journal on
Computing 41(6), 2012. Hay, Rastogi, Miklau & Suciu, "Boosting the accuracy of differentially private histograms through
consistency", PVLDB 3(1), 2010 (projection).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import gamma

from mechanisms.core.arguments import Floats, Integers, validate_positive
from mechanisms.core.conjugate import enumerate_candidates, require_at_most, validate_counts, validate_prior
from mechanisms.core.exact_scales import ExactSampler, laplace_scale_for
from mechanisms.core.jit import kernel
from mechanisms.core.metadata import Style
from mechanisms.core.noise import NOISES, Noise
from mechanisms.core.privacy import Guarantee, pure_guarantee
from mechanisms.core.privacy_profile import PrivacyProfile
from mechanisms.counts import candidates
from mechanisms.counts.mechanism import CountRelease, Mechanism
from mechanisms.counts.projection import log_projected_pmf, mean_projected_distance, project

_OMITTED = 1e-12  # largest probability of independent noise that is omitted from an exact mean


class VectorNoise(Protocol):
    """Noise of k components that is added to k counts."""

    def n_uniforms(self, k: int) -> int:
        """Return the number of uniforms per draw."""

    def vectors(self, counts: Integers, uniforms: Floats) -> Integers:
        """Return noisy counts, one row per row of `uniforms`; values outside [0, n] may be clipped."""

    def clipped(self, counts: Integers, near: bool) -> tuple[Integers, Floats]:
        """Return the values of clip(c + Z, 0, n), shape (m, k), and log probabilities; omit unlikely ones if `near`."""

    def profile(self, sensitivity: int) -> Guarantee | PrivacyProfile:
        """Return the guarantee or the profile of noisy counts that change by `sensitivity` in ℓ₁."""


@dataclass(frozen=True)
class IndependentNoise:
    """Independent noise on every count, rounded."""

    noise: Noise

    def n_uniforms(self, k: int) -> int:
        return k

    def vectors(self, counts: Integers, uniforms: Floats) -> Integers:
        """Return noisy counts that are clipped to [0, n]."""
        noise = self.noise.rounded.from_uniforms(uniforms, self.noise.scale)
        # Clip as floats, as large noise may exceed the range of int64.
        return np.clip(np.rint(counts + noise), 0, counts.sum()).astype(np.int64)

    def clipped(self, counts: Integers, near: bool) -> tuple[Integers, Floats]:
        """Return the clipped noisy counts with log probabilities; the omitted noise has probability ≤ 1e-12."""
        n, k = int(counts.sum()), counts.size
        reach, bound = k * n, (n + 1) ** k  # largest ℓ₁ distance from the true counts, and number of vectors within it
        if near:
            # Pr[|Z| > t] ≤ 2·exp(−t/b), so Σ|Z|/b is stochastically at most k·ln 2 plus a sum of k standard exponential
            # variables. Rounding adds at most ½ per count.
            reach = math.ceil((k * math.log(2.0) + gamma.isf(_OMITTED, k)) * self.noise.scale + 0.5 * k)
            bound = min(bound, (2 * reach + k) ** k // math.factorial(k))
        advice = f"use fewer records, a noise scale below {self.noise.scale:g}, or simulation"
        require_at_most(candidates.MAX_CLASSES, "noisy vectors to enumerate", bound, n, k, advice)
        vectors, distances, log_weights = np.zeros((1, 0), dtype=np.int64), np.zeros(1, dtype=np.int64), np.zeros(1)
        for count in counts.tolist():
            values = np.arange(max(count - reach, 0), min(count + reach, n) + 1)
            log_pmf = self._log_clipped_pmf(count, values, n)
            vectors, distances, log_weights = _extend(vectors, distances, log_weights, count, values, log_pmf, reach)
        return vectors, log_weights

    def profile(self, sensitivity: int) -> Guarantee | PrivacyProfile:
        guarantee = self.noise.guarantee(sensitivity)
        assert isinstance(guarantee, Guarantee)  # the noise is pure
        return guarantee

    def _log_clipped_pmf(self, count: int, values: Integers, n: int) -> Floats:
        """Return the log-pmf at `values` of a noisy count that is clipped to [0, n]."""
        rounded, away = self.noise.rounded, np.abs(values - count)
        return np.where(
            (values == 0) | (values == n),
            rounded.log_at_least(away, self.noise.scale),
            rounded.log_equal(away, self.noise.scale),
        )


@kernel
def _extend(vectors, distances, log_weights, count, values, log_pmf, reach):
    """Return vectors within `reach` of the true counts that extend each of `vectors` by one of `values`."""
    n_vectors, level = vectors.shape
    lowest, highest = values[0], values[-1]
    starts = np.zeros(n_vectors + 1, dtype=np.int64)
    for row in range(n_vectors):
        spare = reach - distances[row]
        starts[row + 1] = starts[row] + min(count + spare, highest) - max(count - spare, lowest) + 1
    extended = np.empty((starts[-1], level + 1), dtype=np.int64)
    distances_extended, log_weights_extended = np.empty(starts[-1], dtype=np.int64), np.empty(starts[-1])
    for row in range(n_vectors):
        first = max(count - reach + distances[row], lowest)
        for place in range(starts[row], starts[row + 1]):
            entry = first + place - starts[row]
            for category in range(level):
                extended[place, category] = vectors[row, category]
            extended[place, level] = entry
            distances_extended[place] = distances[row] + abs(entry - count)
            log_weights_extended[place] = log_weights[row] + log_pmf[entry - lowest]
    return extended, distances_extended, log_weights_extended


@dataclass(frozen=True, eq=False, repr=False)
class NoisyCounts(CountRelease):
    """Distribution of noisy counts at one data set, after projection, or after clipping in order."""

    prior: Floats
    counts: Integers
    noise: VectorNoise
    in_order: bool = False  # k − 1 noisy counts are clipped in order instead of projecting k noisy counts

    def __post_init__(self) -> None:
        self.prior.flags.writeable = self.counts.flags.writeable = False

    @property
    def independent(self) -> Noise:
        """Distribution of independent noise."""
        assert isinstance(self.noise, IndependentNoise)
        return self.noise.noise

    @property
    def n_uniforms(self) -> int:
        """Number of uniforms per draw: those of the noise, and k for ties of the projection."""
        return self.k - 1 if self.in_order else self.noise.n_uniforms(self.k) + self.k

    @property
    def sensitivity(self) -> int:
        """ℓ₁ sensitivity of the counts to which noise is added, if one record is replaced."""
        return histogram_sensitivity(self.k) if self.in_order else 2

    def profile(self) -> Guarantee | PrivacyProfile:
        """Return the guarantee of one release under replacement of one record, or its exact profile."""
        return self.noise.profile(self.sensitivity)

    def from_uniforms(self, uniforms: Floats) -> Integers:
        u = candidates.require_uniforms(uniforms, self.n_uniforms)
        if self.in_order:
            return clip_in_order(self.counts, self.independent.rounded.from_uniforms(u, self.independent.scale))
        split = self.noise.n_uniforms(self.k)
        return project(self.noise.vectors(self.counts, np.ascontiguousarray(u[:, :split])), self.n, u[:, split:])

    def expected_hellinger(self) -> float:
        """Return the mean Hellinger distance by enumeration, up to the probability of omitted noise, 1e-12."""
        if self.in_order:
            return mean_clipped_distance(self.prior, self.counts, category_pmfs(self.counts, self.independent))
        vectors, log_weights = self.noise.clipped(self.counts, near=True)
        return mean_projected_distance(self.prior, self.counts, vectors, np.exp(log_weights))

    def log_pmf(self) -> Floats:
        """Return the log-pmf over all counts of n records by enumeration, with small relative errors."""
        if self.in_order:
            return log_clipped_pmf(self.counts, category_pmfs(self.counts, self.independent))
        return log_projected_pmf(self.n, *self.noise.clipped(self.counts, near=False))


def histogram_sensitivity(k: int) -> int:
    """Return the ℓ₁ sensitivity of k − 1 counts if a record is replaced: one count changes at k = 2, else two (P0)."""
    return 1 if k == 2 else 2


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
    return _noisy_counts(prior, counts, noise_scale, "laplace")


def geometric_counts(prior: ArrayLike, counts: ArrayLike, noise_scale: float) -> NoisyCounts:
    """Return the release of `counts` with two-sided geometric noise: Pr[Z = z] ∝ exp(−|z|/noise_scale), z integer.

    At k = 2 this is the truncated geometric mechanism of Ghosh, Roughgarden & Sundararajan (2012). For every prior on
    the count and every loss that is monotone in |c − c̃|, some post-processing of this release is optimal under ε-DP.

    Parameters
    ----------
    prior, counts
        As in `laplace_counts`.
    noise_scale : float
        b > 0, in records: the probability decreases by the factor exp(−1/b) per step.

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
    >>> round(geometric_counts([1, 1, 1], [5, 3, 2], noise_scale=2.0).expected_hellinger(), 4)
    0.5548
    """
    return _noisy_counts(prior, counts, noise_scale, "geometric")


def _noisy_counts(prior: ArrayLike, counts: ArrayLike, noise_scale: float, noise: str) -> NoisyCounts:
    """Return the release of `counts` with noise of scale b, clipped in order."""
    alpha = validate_prior(prior)
    c = validate_counts(counts, k=alpha.size)
    added = Noise(noise, validate_positive("noise_scale", noise_scale, "pass sensitivity / epsilon"))
    return NoisyCounts(alpha, c, IndependentNoise(added), in_order=True)


def _entry(
    name: str, note: str, noise: str, sensitivity: Callable[[int], int], in_order: bool, **fields: Any
) -> Mechanism:
    """Return the entry of independent noise of scale `sensitivity`(k)/ε, in exact draws at least that."""

    def release(prior: Floats, counts: Integers, epsilon: float, delta: float) -> NoisyCounts:
        added = IndependentNoise(Noise(noise, sensitivity(counts.size) / epsilon))
        return NoisyCounts(prior, counts, added, in_order)

    def exact_sampler(k: int, epsilon: float, delta: float) -> ExactSampler:
        return Noise(noise, laplace_scale_for(sensitivity(k), epsilon)).exact_sampler(k - in_order)

    return Mechanism(
        name, note, release=release, guarantee=pure_guarantee, uses_prior=False, symmetric=not in_order,
        evaluation="formula" if in_order else "vectors", exact_noise=exact_sampler if NOISES[noise].exact else None,
        origin="baseline", **fields,
    )  # fmt: skip


LAPLACE = _entry(
    "laplace", "Laplace noise on k - 1 counts, scaled to the sensitivity of the histogram: 1 at k = 2, otherwise 2.",
    "laplace", histogram_sensitivity, in_order=True, style=Style("vermilion", "s"),
)  # fmt: skip
LAPLACE_DIMENSION = _entry(
    "laplace-dimension",
    "Laplace noise on k - 1 counts, scaled to the dimension k as in P0; more noise than necessary.", "laplace",
    lambda k: k, in_order=True, paper="P0", style=Style("orange", "v"),
)  # fmt: skip
GEOMETRIC = _entry(
    "geometric",
    "Two-sided geometric noise on k - 1 counts, scale as laplace (Ghosh et al. 2012); the loss at k = 2 is ε.",
    "geometric", histogram_sensitivity, in_order=True, variant="Ghosh et al.", style=Style("sky", "P"),
)  # fmt: skip
GEOMETRIC_PROJECTED = _entry(
    "geometric-projected", "Two-sided geometric noise on all k counts, projected to counts of n records.", "geometric",
    lambda k: 2, in_order=False, style=Style("sky", "1"),
)  # fmt: skip
LAPLACE_PROJECTED = _entry(
    "laplace-projected", "Laplace noise on all k counts, projected to counts of n records.", "laplace", lambda k: 2,
    in_order=False, style=Style("vermilion", "3"),
)  # fmt: skip


# ln Pr[X = x] (ln Pr[X ≤ 0] at x = 0) and ln Pr[X ≥ x] of the first k − 1 noisy counts X, shapes (k − 1, n + 1)
CategoryPmfs = tuple[Floats, Floats]


def mean_clipped_distance(prior: Floats, counts: Integers, pmfs: CategoryPmfs) -> float:
    """Return the exact mean of H(posterior(c), posterior(c̃))."""
    n, k = int(counts.sum()), counts.size
    candidates.require_streamable(n, k)
    rows = candidates.enumerate_rows(n, k)
    deficits = candidates.category_deficits(prior, counts)
    log_interior, log_upper = pmfs
    probability = np.exp(_log_probabilities(n, rows, log_interior[:-1], log_upper[:-1]))
    last = np.exp(log_interior[-1]), np.exp(log_upper[-1])
    prefix = candidates.row_deficits(deficits, rows)
    tables = prefix, deficits[-2], deficits[-1], *last
    remaining = candidates.remaining_records(rows)
    return float(_stream_mean(remaining, probability, *tables, candidates.NEGLIGIBLE))


def log_clipped_pmf(counts: Integers, pmfs: CategoryPmfs) -> Floats:
    """Return the log-pmf of c̃ in the order of `mechanisms.core.conjugate.enumerate_candidates`."""
    n, k = int(counts.sum()), counts.size
    candidates.require_enumerable(n, k)
    return _log_probabilities(n, enumerate_candidates(n, k), *pmfs)


def category_pmfs(counts: Integers, noise: Noise) -> CategoryPmfs:
    """Return the probabilities given rounded noise Z: as it is symmetric, Pr[X ≤ 0] = Pr[round(Z) ≥ c]."""
    offset = np.arange(int(counts.sum()) + 1) - counts[:-1, None]
    log_interior = noise.rounded.log_equal(np.abs(offset), noise.scale)
    log_interior[:, 0] = noise.rounded.log_at_least(counts[:-1], noise.scale)
    return log_interior, noise.rounded.log_at_least(offset, noise.scale)


@kernel
def _log_probabilities(n, released, log_interior, log_upper):
    """Return the log probabilities of the first released counts of each row, as many as the rows of `log_upper`."""
    total = np.zeros(len(released))
    for row in range(len(released)):
        remaining = n
        for category in range(len(log_upper)):
            x = released[row, category]
            if x < remaining:
                total[row] += log_interior[category, x]
            elif remaining > 0:  # else no record is left: the count is 0
                total[row] += log_upper[category, remaining]
            remaining -= x
    return total


@kernel
def clip_in_order(counts, noise):
    """Return clipped counts, shape (trials, k), for noise of shape (trials, k − 1)."""
    trials, n_noisy = noise.shape
    released = np.empty((trials, n_noisy + 1), dtype=np.int64)
    n = counts.sum()
    for trial in range(trials):
        remaining = n
        for category in range(n_noisy):
            # Clip as a float, as large noise may exceed the range of int64.
            x = np.int64(min(max(np.rint(counts[category] + noise[trial, category]), 0.0), float(remaining)))
            released[trial, category] = x
            remaining -= x
        released[trial, n_noisy] = remaining
    return released


@kernel
def _stream_mean(remaining, probability, prefix, first, second, interior, upper, least_share):
    tables, distances = (remaining, probability, prefix, first, second, interior, upper), np.empty(first.size)
    negligible = least_share * _row_share(np.argmax(probability), 0.0, distances, tables)
    mean = 0.0
    for row in range(remaining.size):
        if probability[row] > negligible:
            mean += _row_share(row, negligible, distances, tables)
    return mean


@kernel
def _row_share(row, negligible, distances, tables):
    """Return the part of the mean distance from one row, without counts at its ends of negligible probability."""
    remaining, probabilities, prefixes, first, second, interior, upper = tables
    top, probability, prefix = remaining[row], probabilities[row], prefixes[row]
    low, high = 0, top - 1
    while low < top and probability * interior[low] <= negligible:
        low += 1
    while high > low and probability * interior[high] <= negligible:
        high -= 1
    for x in range(low, high + 1):
        a = first[x]
        distances[x] = math.sqrt(prefix + (1.0 - prefix) * (a + (1.0 - a) * second[top - x]))
    a = first[top]
    farthest = math.sqrt(prefix + (1.0 - prefix) * (a + (1.0 - a) * second[0]))
    if top == 0:
        return probability * farthest
    row_mean = 0.0
    for x in range(low, high + 1):
        row_mean += interior[x] * distances[x]
    return probability * (row_mean + upper[top] * farthest)
