"""Private posterior quantiles of a regression coefficient, from disjoint partitions of the rows (P2, chapter 4).

In each of M partitions, q_j is the p-quantile of a posterior with the likelihood raised to the power M, so that its
spread is that of the posterior given all rows. The mean of the q_j approximates the quantile given all rows. Replacing
one row changes one q_j, to any value, so the q_j are clipped to an interval c ± b. Their mean then changes by at most
2b/M and is released with Laplace noise of scale 2b/(Mε₂). The choice of the interval uses part of the budget:

* ``quantile``: c = 0 and b by the sparse vector technique (`sparse_vector`), with ε₁; ε = ε₁ + ε₂.
* ``quantile-exact``, not in P2: the same with the least noise for which the exact loss of the search is ε₁.
* ``quantile-centred``, not in P2: first the scale w of the q_j, then their centre c, then b = 2w;
  ε = ε_scale + ε_centre + ε_noise. The same scale is used for all p, so k quantiles are
  (ε_scale + k·(ε_centre + ε_noise))-DP.

Methods whose name ends in ``-noiseless`` add no noise to the search, scale, centre and mean.

**Scale and centre** are drawn by the exponential mechanism with the number of values in a window as score. Its exponent
is up to ε·M/2, twice that of a private median, whose score ranges over M/2. The standard deviation of the q_j is √M
times the posterior standard deviation s_j, so each partition has an estimate of the scale. With u_j = ln(s_j√M) the
density of ln w is ∝ exp((ε/2)·#{j : |u_j − ln w| ≤ ½·ln 2}), for w in μ2⁻ᵀ … μ2ᵀ, and that of c is

    ∝ exp((ε/2)·#{j : |q_j − c| ≤ 2w}) / √(c² + w²),   |c| ≤ μ2ᵀ.

The base density of c is almost log-uniform beyond w, so a wide public range costs little, and neither the unit of the
coefficient nor its size matters. The scale is missed with odds of about 2T·e^(−εM/2), and a centre at distance D from 0
with odds of about T·√(D² + w²)/w·e^(−εM/2), where ε is the budget of the step; `PartitionQuantile.miss_probability` is
more accurate. If M·ε is too small, or D/w too large, the error of the release is of the order of the public range.

References
----------
P2, chapters 4 and 5, which leave a private centre to future work.
Li, Srivastava & Dunson, "Simple, scalable and accurate posterior interval estimation", Biometrika 104(3), 2017.
McSherry & Talwar, "Mechanism design via differential privacy", FOCS 2007 (the exponential mechanism).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from mechanisms.core.arguments import Floats, find_entry, real_array, require_generator
from mechanisms.core.metadata import Style, register
from mechanisms.core.privacy import Guarantee
from mechanisms.core.privacy_parameters import validate_epsilon
from mechanisms.core.protocols import OutputDistribution
from mechanisms.regression.partition_probability import PartitionMethod, PartitionRelease, with_noiseless
from mechanisms.regression.sparse_vector import SparseVector, calibrate_search

SCALE_WINDOW = 2.0
"""Half-width of both the window for the centre and the clipping interval, in units of the scale."""

_LOG_WINDOW = 0.5 * math.log(2.0)
_LARGEST_BOUND = 1e290  # sums of values in ±μ2ᵀ do not overflow, and units of noise for widths of μ2⁻ᵀ do not underflow
_ROUNDING = 1e-14  # relative excess of the sum of rounded parts over their total
_NEAR = 8.0  # largest expected distance of a value from the centre, in scales


@dataclass(frozen=True)
class QuantileMethod(PartitionMethod):
    """Method of choosing the clipping interval."""

    _: KW_ONLY
    is_exact: bool = False  # the noise of the search is calibrated to its exact privacy loss
    is_centred: bool = False  # the centre of the interval is released instead of being 0

    @property
    def parts(self) -> tuple[str, ...]:
        """Steps among which the budget is divided."""
        return ("scale", "centre", "noise") if self.is_centred else ("bounds", "noise")


QUANTILE_METHODS = with_noiseless(
    QuantileMethod(
        "quantile", "Mean of clipped quantiles, with bounds from the sparse vector technique.",
        origin="paper", paper="P2", style=Style("vermilion", "P")),
    QuantileMethod(
        "quantile-centred", "Mean of clipped quantiles, with bounds around a private centre.",
        is_centred=True, style=Style("blue", "h")),
) | register(
    __name__,
    QuantileMethod(
        "quantile-exact",
        "As quantile, with the least noise for which the exact loss of the search is its part of epsilon.",
        base="quantile-exact", is_exact=True, style=Style("orange", "X")),
)  # fmt: skip
"""Methods by name; a variant without noise follows the method with noise."""


@dataclass(frozen=True, eq=False)
class WindowDistribution(OutputDistribution):
    """Output distribution of the exponential mechanism whose score is the number of values in a window.

    The density is piecewise constant, up to the factor 1/√(x² + μ²).
    """

    edges: Floats = field(repr=False)  # ends of the s steps of the density, ascending
    log_masses: Floats = field(repr=False)  # log probability of each step, shape (s,); −inf for steps of length zero
    unit: float  # μ of the density 1/√(x² + μ²) within a step; inf for a uniform density
    epsilon: float  # of one draw, in nats

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of one draw."""
        return Guarantee(self.epsilon)

    def sample(self, rng: np.random.Generator, size: int) -> Floats:
        """Return independent draws, shape (size,)."""
        cumulative = np.cumsum(np.exp(self.log_masses))
        uniforms = rng.random((size, 2))
        # the first step with cumulative mass above u < 1 never has length zero
        steps = np.searchsorted(cumulative / cumulative[-1], uniforms[:, 0], side="right")
        ends = flatten(self.edges, self.unit)
        drawn = ends[steps] + uniforms[:, 1] * (ends[steps + 1] - ends[steps])
        # math.sinh, because the accuracy of np.sinh depends on the processor
        return np.array([self.unit * math.sinh(x) for x in drawn]) if math.isfinite(self.unit) else drawn

    def log_prob(self, values: ArrayLike) -> Floats:
        """Return the log density at values of any shape; −inf outside the public range."""
        x = np.asarray(values, dtype=np.float64)
        lengths = np.diff(flatten(self.edges, self.unit))
        steps = np.clip(np.searchsorted(self.edges, x, side="right") - 1, 0, lengths.size - 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            found = self.log_masses[steps] - np.log(lengths[steps])
        jacobian = -0.5 * np.log(x * x + self.unit**2) if math.isfinite(self.unit) else 0.0
        inside = (x >= self.edges[0]) & (x < self.edges[-1])
        return np.where(inside, found + jacobian, -np.inf)


def flatten(x: Floats, unit: float) -> Floats:
    """Transform x to a coordinate in which the density 1/√(x² + μ²) is uniform."""
    return np.arcsinh(x / unit) if math.isfinite(unit) else x


def window_distribution(
    values: ArrayLike, half_window: float, epsilon: float, reach: tuple[float, float], unit: float = math.inf
) -> WindowDistribution:
    """Return the distribution ∝ exp((ε/2)·#{j : |v_j − x| ≤ h})/√(x² + μ²) over a public, finite range `reach`.

    The half-width h > 0 may be the result of an earlier release. μ = `unit` > 0; by default the base distribution is
    uniform. A draw is ε-DP: replacing one value v_j changes every count by at most 1, and the normaliser by a factor of
    at most e^(ε/2). Values outside the range are clipped to it, so that windows at its ends contain them.
    """
    low, high = reach
    v = np.clip(np.asarray(values, dtype=np.float64), low, high)
    starts, ends = np.sort(v - half_window), np.sort(v + half_window)
    edges = np.concatenate([[low], np.clip(np.sort(np.concatenate([starts, ends])), low, high), [high]])
    middles = edges[:-1] + 0.5 * np.diff(edges)
    counts = np.searchsorted(starts, middles, side="right") - np.searchsorted(ends, middles, side="left")
    lengths = np.maximum(np.diff(flatten(edges, unit)), 0.0)
    with np.errstate(divide="ignore"):
        logs = np.log(lengths) + 0.5 * epsilon * counts
    top = logs.max()
    return WindowDistribution(edges, logs - (top + math.log(np.exp(logs - top).sum())), unit, epsilon)


@dataclass(frozen=True)
class ReleasedQuantiles:
    """Released quantiles of one data set at c probabilities."""

    values: Floats
    centres: Floats  # centres and half-widths of the intervals to which partition quantiles were clipped
    half_widths: Floats
    capped: NDArray[np.bool_]  # the search reached its last interval without finding enough values


@dataclass(frozen=True)
class PartitionQuantile(PartitionRelease):
    """Release of quantiles; build it with `partition_quantile`."""

    method: QuantileMethod
    split: tuple[float, ...]  # parts of `epsilon`: (bounds, noise), or (scale, centre, noise)
    search: SparseVector  # search for bounds; its μ and T also define the ranges of scale and centre

    @property
    def shared_loss(self) -> float:
        """Privacy loss of the step that all quantiles share: the scale of ``quantile-centred``; 0 for other methods."""
        return self.split[0] if self.method.is_centred else 0.0

    @property
    def loss(self) -> float:
        """Privacy loss of each quantile, in addition to `shared_loss`; inf without noise."""
        return self.epsilon - self.shared_loss if self.method.has_noise else math.inf

    def miss_probability(self, n_quantiles: int = 1, ratio: float = 100.0) -> float:
        """Return the approximate probability that at least one clipping interval misses the partition quantiles.

        For ``quantile-centred``, an interval is a miss if the scale is wrong by a factor above √2, or the centre by
        more than two scales; the q_j are assumed to be normal with mean D and standard deviation w. For the other
        methods, it is a miss if the search reaches its last interval although all |q_j| ≤ μ2ᵗ, t = T/2. The probability
        is 0 for methods without noise. `ratio` is |D|/w. The default is a large public bound, for planning. After a
        release, use the ratio of the released centre and scale. With 20 partitions, a miss is almost certain.
        """
        if not self.method.has_noise:
            return 0.0
        T, M = self.search.doublings, self.n_partitions
        ratio = min(ratio, 4.0**T)  # the released centre is at most μ2ᵀ, and the scale at least μ2⁻ᵀ
        if not self.method.is_centred:
            counts = np.where(np.arange(T + 1) < T // 2, 0, M)
            return min(1.0, n_quantiles * math.exp(self.search.log_pmf(counts)[-1]))
        scale = (2.0 * T - 1.0) * math.exp(-self.split[0] * M / 2.0)
        u = np.linspace(-_NEAR, _NEAR, 2_001)
        base = (u[1] - u[0]) / np.sqrt(np.square(ratio + u) + 1.0)
        scores = special.ndtr(u + SCALE_WINDOW) - special.ndtr(u - SCALE_WINDOW)
        weights = base * np.exp(self.split[1] * M / 2.0 * (scores - scores.max()))
        # values far from D have score 0; the range is that of the smallest scale, μ2⁻ᵀ
        far = 2.0 * math.asinh(4.0**T) * math.exp(-self.split[1] * M / 2.0 * scores.max())
        missed = far + weights[np.abs(u) > SCALE_WINDOW].sum()
        centre = missed / (missed + weights[np.abs(u) <= SCALE_WINDOW].sum())
        return min(1.0, scale / (1.0 + scale) + n_quantiles * float(centre))

    def noise_scale(self, half_width: float) -> float:
        """Return the scale 2b/(Mε) of the noise on the mean of values clipped to c ± b."""
        return 2.0 * half_width / (self.n_partitions * self.split[-1])

    def release(self, rng: np.random.Generator | None, quantiles: ArrayLike, spreads: ArrayLike) -> ReleasedQuantiles:
        """Release the posterior quantiles of one data set.

        The quantiles q_j of M partitions at c probabilities, shape (M, c), are from posteriors with the likelihood
        raised to the power M, and `spreads` are the standard deviations s_j > 0 of these posteriors, inf if undefined.
        `rng` may be None for variants without noise. `publish_quantiles` releases real data.

        See `guarantee`. A row changes one q_j and one s_j arbitrarily. The loss of each step is its part of `split`,
        given the outputs of the earlier steps, and these losses add up, also if the search ends at its last interval.
        """
        q, s = self.validate(quantiles, spreads)
        if not self.method.has_noise:
            return self.combine(
                q,
                lambda: float(np.median(s)) * math.sqrt(self.n_partitions),
                lambda values, scale: float(np.median(values)),
                self.search.search,
                self.clipped_mean,
            )
        noise = require_generator(rng, f"the noise of {self.name}")
        return self.combine(
            q,
            lambda: math.exp(self.scale_distribution(s).sample(noise, 1)[0]),
            lambda values, scale: float(self.centre_distribution(values, scale).sample(noise, 1)[0]),
            lambda values: self.search.release(noise, values),
            lambda *clipped: self.clipped_mean(*clipped) + noise.laplace(scale=self.noise_scale(clipped[-1])),
        )

    def combine(
        self,
        quantiles: Floats,
        scale_of: Callable[[], float],
        centre_of: Callable[[Floats, float], float],
        stop_of: Callable[[Floats], int],
        mean_of: Callable[[Floats, float, float], float],
    ) -> ReleasedQuantiles:
        """Return the released quantiles, given functions that draw their steps.

        They return the scale; a centre given the q_j and the scale; the stopping index of the search for bounds; and
        the mean given the q_j, the centre and the half-width of the interval.
        """
        columns: list[tuple[float, float, float, bool]] = []
        scale = scale_of() if self.method.is_centred else 0.0
        for values in quantiles.T:
            if self.method.is_centred:
                centre, half_width, capped = centre_of(values, scale), SCALE_WINDOW * scale, False
            else:
                stop = stop_of(values)
                centre, half_width, capped = 0.0, self.search.bound(stop), stop == self.search.doublings
            columns.append((mean_of(values, centre, half_width), centre, half_width, capped))
        released = np.array(columns, dtype=np.float64).reshape(-1, 4).T
        return ReleasedQuantiles(released[0], released[1], released[2], released[3] > 0)

    def validate(self, quantiles: ArrayLike, spreads: ArrayLike) -> tuple[Floats, Floats]:
        """Return quantiles and spreads as arrays; raise the same errors as `release`."""
        q, s = real_array("quantiles", quantiles), real_array("spreads", spreads)
        M = self.n_partitions
        if q.ndim != 2 or q.shape[0] != M or s.shape != (M,):
            raise ValueError(
                f"quantiles and spreads must have shapes ({M}, c) and ({M},), got {q.shape} and {s.shape}; pass M rows"
            )
        if np.any(np.isnan(q)) or not np.all(s > 0):
            raise ValueError("quantiles must be numbers and spreads > 0, got invalid values; check the posteriors")
        return q, s

    def clipped_mean(self, values: Floats, centre: float, half_width: float) -> float:
        """Return the mean of the values clipped to centre ± half_width."""
        return float(np.clip(values, centre - half_width, centre + half_width).mean())

    def scale_distribution(self, spreads: ArrayLike) -> WindowDistribution:
        """Return the distribution of ln w given the posterior standard deviations, shape (M,)."""
        with np.errstate(divide="ignore"):
            logs = np.log(np.asarray(spreads, dtype=np.float64) * math.sqrt(self.n_partitions))
        middle, reach = math.log(self.search.start), self.search.doublings * math.log(2.0)
        return window_distribution(logs, _LOG_WINDOW, self.split[0], (middle - reach, middle + reach))

    def centre_distribution(self, values: ArrayLike, scale: float) -> WindowDistribution:
        """Return the distribution of c given values, shape (M,), and the released scale."""
        reach = self.search.bound(self.search.doublings)
        return window_distribution(values, SCALE_WINDOW * scale, self.split[1], (-reach, reach), scale)


def partition_quantile(
    name: QuantileMethod | str,
    n_partitions: int,
    epsilon: float,
    split: Sequence[float],
    start: float = 1.0,
    share: float = 0.8,
    doublings: int = 30,
) -> PartitionQuantile:
    """Return a release method that divides a budget ε among its steps.

    Parameters
    ----------
    name : QuantileMethod or str
        An entry of `QUANTILE_METHODS` or its key.
    n_partitions : int
        Number of partitions M ≥ 1.
    epsilon : float
        Privacy loss of one quantile in nats, finite and > 0; not used without noise.
    split : sequence of float
        Parts of `epsilon`, each > 0, with sum `epsilon`: (scale, centre, noise) for ``quantile-centred``, otherwise
        (bounds, noise).
    start, share, doublings
        μ, θ and T of `SparseVector`; μ2⁻ᵀ and μ2ᵀ must be between 1e-290 and 1e290. ``quantile-centred`` searches
        scales from μ2⁻ᵀ to μ2ᵀ and centres up to μ2ᵀ; it does not use θ.

    Raises
    ------
    ValueError
        If an argument is invalid.

    Examples
    --------
    >>> method = partition_quantile("quantile", 100, epsilon=0.9, split=(0.45, 0.45))
    >>> print(method.search.guarantee, round(method.noise_scale(4.0), 4))
    0.45-DP 0.1778
    """
    method = find_entry(QUANTILE_METHODS, name)
    epsilon = validate_epsilon(epsilon)
    names, parts = method.parts, tuple(float(part) for part in split)
    if len(parts) != len(names) or not all(math.isfinite(part) and part > 0 for part in parts):
        raise ValueError(
            f"split of {method.name} must be {len(names)} numbers > 0 ({', '.join(names)}), got {tuple(split)}; "
            "pass one part per step"
        )
    if not (1.0 - 1e-9) * epsilon <= sum(parts) <= (1.0 + _ROUNDING) * epsilon:
        raise ValueError(
            f"split of {method.name} must add up to epsilon = {epsilon:.15g}, got "
            f"{' + '.join(f'{part:.15g}' for part in parts)} = {sum(parts):.15g}; change the split or epsilon"
        )
    make_search = calibrate_search if method.is_exact else SparseVector
    search = make_search(n_partitions, parts[0], start, share, doublings)
    if abs(math.log2(search.start)) + doublings > math.log2(_LARGEST_BOUND):
        raise ValueError(
            f"mu/2^{doublings} must be >= {1.0 / _LARGEST_BOUND:g} and mu·2^{doublings} <= {_LARGEST_BOUND:g}, got mu "
            f"= {start:g}; change the unit of the coefficient"
        )
    return PartitionQuantile(method, int(n_partitions), epsilon, parts, search)
