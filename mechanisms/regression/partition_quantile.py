"""Private posterior quantiles of a regression coefficient, from disjoint partitions of the rows (P2, chapter 4).

Each of M partitions has q_j, the p-quantile of its posterior with the likelihood raised to the power M, so that its
spread is that of the posterior given all rows. The mean of the q_j approximates the quantile given all rows. Replacing
one row changes one q_j, to any value, so the q_j are clipped to an interval c ± b. Their mean then changes by at most
2b/M and is released with Laplace noise of scale 2b/(Mε₂). The choice of the interval uses part of the budget:

* ``quantile``: c = 0 and b by the sparse vector technique (`sparse_vector`), with ε₁; ε = ε₁ + ε₂.
* ``quantile-centred``, not in P2: first the scale w of the q_j, then their centre c, then b = 2w;
  ε = ε_scale + ε_centre + ε_noise.

Names with the suffix ``-noiseless`` denote the same methods without noise in sparse vector, scale, centre and mean.

**Scale and centre** are drawn by the exponential mechanism with the number of values in a window as score. Its exponent
is up to ε·M/2, twice that of a private median, whose score ranges over M/2. The standard deviation of the q_j is √M
times the posterior standard deviation s_j, so each partition has an estimate of the scale. With u_j = ln(s_j√M) the
density of ln w is ∝ exp((ε/2)·#{j : |u_j − ln w| ≤ ½·ln 2}), for w in μ2⁻ᵀ … μ2ᵀ, and that of c is

    ∝ exp((ε/2)·#{j : |q_j − c| ≤ 2w}) / √(c² + μ²),   |c| ≤ μ2ᵀ.

Its base density is almost log-uniform beyond μ, so a wide public range costs little. The scale is missed with odds of
about 2T·e^(−εM/2), and a centre at distance D from 0 with odds of T·(D/w)·e^(−εM/2), with the ε of the step. Together
this is 1 in 260 for D = 7w and T = 30, at M = 100 and ε = 0.2 and 0.25, where a private median misses the centre more
often than not. If M·ε is too small, or D/w too large, the error of the release is of the order of the public range. In
that case change μ, T or the budget.

References
----------
P2: Amitai, "Bayesian Inference Via Partitioning Under Differential Privacy", Duke University 2018, chapters 4 and 5,
which leave a private centre to future work.
Li, Srivastava & Dunson, "Simple, scalable and accurate posterior interval estimation", Biometrika 104(3), 2017.
McSherry & Talwar, "Mechanism design via differential privacy", FOCS 2007 (the exponential mechanism).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mechanisms.metadata import Entry, Style, find_entry
from mechanisms.privacy import Guarantee, validate_epsilon
from mechanisms.regression.partition_probability import WITHOUT_NOISE, require_generator
from mechanisms.regression.sparse_vector import SparseVector

__all__ = [
    "QUANTILE_METHODS",
    "PartitionQuantile",
    "QuantileMethod",
    "ReleasedQuantiles",
    "WindowDistribution",
    "partition_quantile",
    "window_distribution",
]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class QuantileMethod(Entry):
    """Choice of the clipping interval.

    Attributes
    ----------
    name, note, origin, paper, variant, style
        See `Entry`.
    base : str
        Name of the same method with noise.
    has_noise : bool
        False for variants without noise.
    is_centred : bool
        True if the interval has a private centre.
    """

    base: str = field(kw_only=True)
    has_noise: bool = field(default=True, kw_only=True)
    is_centred: bool = field(kw_only=True)

    @property
    def is_private(self) -> bool:
        """True if the release is ε-DP per quantile."""
        return self.has_noise

    @property
    def parts(self) -> tuple[str, ...]:
        """Steps among which the budget is divided."""
        return ("scale", "centre", "noise") if self.is_centred else ("bounds", "noise")


QUANTILE_METHODS: dict[str, QuantileMethod] = {
    variant.name: variant
    for method in (
        QuantileMethod(
            "quantile",
            base="quantile",
            is_centred=False,
            origin="paper",
            paper="P2",
            style=Style("vermilion", "P"),
        ),
        QuantileMethod(
            "quantile-centred", base="quantile-centred", is_centred=True, style=Style("blue", "h", "dashed")
        ),
    )
    for variant in (method, replace(method, name=f"{method.name}-noiseless", note=WITHOUT_NOISE, has_noise=False))
}
"""Methods by name, each followed by its variant without noise."""

_WINDOW = 2.0  # half-widths of the window of the centre and of the clipping interval, in units of the scale
_LOG_WINDOW = 0.5 * math.log(2.0)


@dataclass(frozen=True)
class ReleasedQuantiles:
    """Released quantiles of one data set at c probabilities.

    Attributes
    ----------
    values : ndarray of float64, shape (c,)
        Quantiles.
    centres, half_widths : ndarray of float64, shape (c,)
        Intervals to which the quantiles of the partitions were clipped.
    capped : ndarray of bool, shape (c,)
        True if the sparse vector reached its last interval before any interval contained enough values.
    """

    values: Floats
    centres: Floats
    half_widths: Floats
    capped: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class WindowDistribution:
    """Output distribution of the exponential mechanism with the number of values in a window as score.

    The density is piecewise constant, up to the factor 1/√(x² + μ²).

    Attributes
    ----------
    edges : ndarray of float64, shape (s + 1,)
        Ends of the steps, ascending.
    log_masses : ndarray of float64, shape (s,)
        Log probability of each step; −inf for steps of length zero.
    unit : float
        μ of the density 1/√(x² + μ²) within a step; inf for a uniform density.
    """

    edges: Floats
    log_masses: Floats
    unit: float

    def sample(self, rng: np.random.Generator, size: int) -> Floats:
        """Return independent draws, shape (size,)."""
        cumulative = np.cumsum(np.exp(self.log_masses))
        uniforms = rng.random((size, 2))
        # the first step with cumulative mass above u < 1 never has length zero
        steps = np.searchsorted(cumulative / cumulative[-1], uniforms[:, 0], side="right")
        ends = _flatten(self.edges, self.unit)
        drawn = ends[steps] + uniforms[:, 1] * (ends[steps + 1] - ends[steps])
        # math.sinh, because the accuracy of np.sinh depends on the processor
        return np.array([self.unit * math.sinh(x) for x in drawn]) if math.isfinite(self.unit) else drawn

    def log_prob(self, values: ArrayLike) -> Floats:
        """Return the log density at values of any shape; −inf outside the public range."""
        x = np.asarray(values, dtype=np.float64)
        lengths = np.diff(_flatten(self.edges, self.unit))
        steps = np.clip(np.searchsorted(self.edges, x, side="right") - 1, 0, lengths.size - 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            found = self.log_masses[steps] - np.log(lengths[steps])
        jacobian = -0.5 * np.log(x * x + self.unit**2) if math.isfinite(self.unit) else 0.0
        inside = (x >= self.edges[0]) & (x < self.edges[-1])
        return np.where(inside, found + jacobian, -np.inf)


def _flatten(x: Floats, unit: float) -> Floats:
    """Return the coordinate in which 1/√(x² + μ²) is uniform."""
    return np.arcsinh(x / unit) if math.isfinite(unit) else x


def window_distribution(
    values: ArrayLike, half_window: float, epsilon: float, reach: tuple[float, float], unit: float = math.inf
) -> WindowDistribution:
    """Return the distribution ∝ exp((ε/2)·#{j : |v_j − x| ≤ h})/√(x² + μ²) over a public range.

    Parameters
    ----------
    values : array_like, shape (M,)
        v_j, not NaN.
    half_window : float
        h > 0; may be the result of an earlier release.
    epsilon : float
        Privacy loss in nats, finite and > 0.
    reach : tuple of float
        Public (lower, upper), finite.
    unit : float
        μ > 0; by default the base distribution is uniform.

    Returns
    -------
    WindowDistribution

    Privacy
    -------
    A draw is ε-DP: replacing one value changes every count by at most 1, and the normaliser by a factor of at most
    e^(ε/2).

    Examples
    --------
    >>> distribution = window_distribution([0.2, 0.3], half_window=0.25, epsilon=2.0, reach=(0.0, 1.0))
    >>> distribution.edges.round(2), np.exp(distribution.log_masses).round(3)
    (array([0.  , 0.  , 0.05, 0.45, 0.55, 1.  ]), array([0.   , 0.036, 0.775, 0.071, 0.118]))
    """
    v = np.asarray(values, dtype=np.float64)
    low, high = reach
    if not half_window > 0:
        raise ValueError(f"half_window must be > 0, got {half_window}; pass half the width of the window")
    if v.ndim != 1 or not v.size or np.any(np.isnan(v)):
        raise ValueError(
            f"values must be numbers of shape (M,), got shape {v.shape}, {np.isnan(v).sum()} NaN; "
            "pass one value per partition"
        )
    epsilon = validate_epsilon(epsilon)
    # clipping does not change which windows in the range contain a value
    v = np.clip(v, low - 2.0 * half_window, high + 2.0 * half_window)
    starts, ends = np.sort(v - half_window), np.sort(v + half_window)
    edges = np.concatenate([[low], np.clip(np.sort(np.concatenate([starts, ends])), low, high), [high]])
    middles = edges[:-1] + 0.5 * np.diff(edges)
    counts = np.searchsorted(starts, middles, side="right") - np.searchsorted(ends, middles, side="left")
    lengths = np.maximum(np.diff(_flatten(edges, unit)), 0.0)
    with np.errstate(divide="ignore"):
        logs = np.log(lengths) + 0.5 * epsilon * counts
    top = logs.max()
    return WindowDistribution(edges, logs - (top + math.log(np.exp(logs - top).sum())), unit)


@dataclass(frozen=True)
class PartitionQuantile:
    """Release method with fixed public parameters; build it with `partition_quantile`.

    Attributes
    ----------
    name : str
        A key of `QUANTILE_METHODS`.
    n_partitions : int
        M.
    epsilon : float
        Privacy loss per quantile in nats.
    split : tuple of float
        Parts of `epsilon`: (bounds, noise), or (scale, centre, noise).
    search : SparseVector
        Search for bounds; its μ and T also define the ranges of scale and centre.
    """

    name: str
    n_partitions: int
    epsilon: float
    split: tuple[float, ...]
    search: SparseVector

    @property
    def method(self) -> QuantileMethod:
        """Entry of `QUANTILE_METHODS`."""
        return QUANTILE_METHODS[self.name]

    def guarantee(self, n_quantiles: int = 1) -> Guarantee | None:
        """Return the joint guarantee of `n_quantiles` releases, by basic composition; None without noise.

        Examples
        --------
        >>> print(partition_quantile("quantile", 100, epsilon=0.9, split=(0.45, 0.45)).guarantee(7))
        6.3-DP
        """
        return Guarantee(n_quantiles * self.epsilon) if self.method.is_private else None

    @property
    def miss_probability(self) -> float:
        """Approximate probability of missing the scale or centre of values about seven scales from 0, at most 1.

        The approximation depends only on public parameters. It is 0 for methods without a private centre.

        Examples
        --------
        >>> study = partition_quantile("quantile-centred", 100, epsilon=0.9, split=(0.2, 0.25, 0.45))
        >>> small = partition_quantile("quantile-centred", 20, epsilon=0.9, split=(0.18, 0.27, 0.45))
        >>> round(study.miss_probability, 3), small.miss_probability
        (0.004, 1.0)
        """
        if not (self.method.is_centred and self.method.has_noise):
            return 0.0
        scale, centre = (math.exp(-part * self.n_partitions / 2.0) for part in self.split[:2])
        return min(1.0, self.search.doublings * (2.0 * scale + 7.0 * centre))

    def noise_scale(self, half_width: float) -> float:
        """Return the scale 2b/(Mε) of the noise on the mean of values clipped to c ± b."""
        return 2.0 * half_width / (self.n_partitions * self.split[-1])

    def release(self, rng: np.random.Generator | None, quantiles: ArrayLike, spreads: ArrayLike) -> ReleasedQuantiles:
        """Release the posterior quantiles of one data set, each with a separate budget.

        Parameters
        ----------
        rng : numpy.random.Generator or None
            May be None for variants without noise.
        quantiles : array_like, shape (M, c)
            q_j at c probabilities, from posteriors with the likelihood raised to the power M; not NaN.
        spreads : array_like, shape (M,)
            Standard deviations s_j > 0 of these posteriors, inf if undefined; ``quantile`` does not use them.

        Returns
        -------
        ReleasedQuantiles

        Privacy
        -------
        Each quantile is ε-DP, replace-one with n and the partition of the rows fixed; c quantiles are c·ε-DP
        (`guarantee`). A row changes one q_j and one s_j arbitrarily. The loss of each step is its part of `split`,
        given the outputs of the earlier steps, and these losses add up. The loss is ε even if the sparse vector ends at
        its cap. The guarantee holds for noise in real arithmetic; use these draws for simulation. The computation of
        the q_j must not reject rows because of their values, because a rejection reveals information about them.

        Raises
        ------
        ValueError
            If shapes are incompatible, or a value is invalid.

        Examples
        --------
        >>> rng = np.random.default_rng(1)
        >>> q = 2.0 + 0.3 * rng.standard_normal((100, 1))
        >>> s = np.full(100, 0.03)
        >>> for name, split in (("quantile", (0.45, 0.45)), ("quantile-centred", (0.2, 0.25, 0.45))):
        ...     found = partition_quantile(name, 100, epsilon=0.9, split=split).release(rng, q, s)
        ...     print(name, found.values.round(2), found.centres.round(2), found.half_widths.round(2))
        quantile [2.49] [0.] [4.]
        quantile-centred [2.04] [2.12] [0.73]
        """
        q, s = np.asarray(quantiles, dtype=np.float64), np.asarray(spreads, dtype=np.float64)
        M = self.n_partitions
        if q.ndim != 2 or q.shape[0] != M or s.shape != (M,):
            raise ValueError(
                f"quantiles and spreads must have shapes ({M}, c) and ({M},), got {q.shape} and {s.shape}; "
                "pass one row per partition"
            )
        if np.any(np.isnan(q)) or not np.all(s > 0):
            raise ValueError("quantiles must be numbers and spreads > 0, got invalid values; check the posteriors")
        noise = require_generator(rng, self.name) if self.method.has_noise else None
        columns: list[tuple[float, float, float, bool]] = []
        for values in q.T:
            if self.method.is_centred:
                centre, half_width = self._find(values, s) if noise is None else self._locate(noise, values, s)
                capped = False
            else:
                stop = self.search.search(values) if noise is None else self.search.release(noise, values)
                centre, half_width, capped = 0.0, self.search.bound(stop), stop == self.search.doublings
            mean = self.clipped_mean(values, centre, half_width)
            if noise is not None:
                mean += noise.laplace(scale=self.noise_scale(half_width))
            columns.append((mean, centre, half_width, capped))
        released = np.array(columns, dtype=np.float64).reshape(-1, 4).T
        return ReleasedQuantiles(released[0], released[1], released[2], released[3] > 0)

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
        return window_distribution(values, _WINDOW * scale, self.split[1], (-reach, reach), self.search.start)

    def _locate(self, rng: np.random.Generator, values: Floats, spreads: Floats) -> tuple[float, float]:
        scale = math.exp(self.scale_distribution(spreads).sample(rng, 1)[0])
        return float(self.centre_distribution(values, scale).sample(rng, 1)[0]), _WINDOW * scale

    def _find(self, values: Floats, spreads: Floats) -> tuple[float, float]:
        """Return the medians, which replace centre and scale without noise."""
        scale = float(np.median(spreads)) * math.sqrt(self.n_partitions)
        return float(np.median(values)), _WINDOW * scale


def partition_quantile(
    name: QuantileMethod | str,
    n_partitions: int,
    epsilon: float,
    split: Sequence[float],
    start: float = 1.0,
    share: float = 0.8,
    doublings: int = 30,
) -> PartitionQuantile:
    """Divide a budget ε among the steps of a method.

    Parameters
    ----------
    name : QuantileMethod or str
        An entry of `QUANTILE_METHODS` or its key.
    n_partitions : int
        M ≥ 1.
    epsilon : float
        Privacy loss per quantile in nats, finite and > 0; not used without noise.
    split : sequence of float
        Parts of `epsilon`, each > 0, with sum `epsilon`: (bounds, noise) for ``quantile``, (scale, centre, noise) for
        ``quantile-centred``.
    start, share, doublings
        μ, θ and T of `SparseVector`. ``quantile-centred`` searches scales from μ2⁻ᵀ to μ2ᵀ and centres up to μ2ᵀ; it
        does not use θ.

    Returns
    -------
    PartitionQuantile

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
    name = method.name
    epsilon = validate_epsilon(epsilon)
    names = method.parts
    parts = tuple(float(part) for part in split)
    if len(parts) != len(names) or not all(math.isfinite(part) and part > 0 for part in parts):
        raise ValueError(
            f"split of {name} must be {len(names)} numbers > 0 ({', '.join(names)}), got {tuple(split)}; "
            "pass one part per step"
        )
    if not math.isclose(sum(parts), epsilon, rel_tol=1e-9):
        raise ValueError(
            f"split of {name} must add up to epsilon = {epsilon:g}, got {' + '.join(f'{part:g}' for part in parts)} = "
            f"{sum(parts):g}; change one of the two"
        )
    search = SparseVector(n_partitions, parts[0], start, share, doublings)
    return PartitionQuantile(name, int(n_partitions), epsilon, parts, search)
