"""Private quantiles by the exponential mechanism, to choose bounds for records with part of the privacy budget.

The mechanism selects a point of a public grid with the score

    u(x) = −max(B(x) − q·n, q·n − A(x), 0),   B(x) = #{records < x},   A(x) = #{records ≤ x},

minus the number of records that would have to move across x to make it a q-quantile. Replacing a record changes B and
A, and therefore u, by at most 1, so that a draw from

    Pr[x] ∝ exp((ε/2)·u(x))

is ε-DP. Records are first rounded to the grid. On a continuum a value that many records share has probability zero, so
constant data would give draws from the whole range. On a grid such a value has a positive probability, which is
exp((ε/2)·q·n) times that of a distant point.

References
----------
Smith, "Privacy-preserving statistical estimation with optimal convergence rates", STOC 2011, algorithm 2, which is on
the continuum; P4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mechanisms.arguments import is_real, real_array
from mechanisms.privacy_parameters import validate_epsilon

N_STEPS = 2**20
"""Default number of steps of the grid.

A value that all n records share is found if (ε/2)·min(q, 1 − q)·n is well above the logarithm of this number, 14. For
quantiles near 0 and 1, pass the public granularity of the records.
"""

_MOST_STEPS = 2**53


@dataclass(frozen=True, eq=False)
class QuantileDistribution:
    """Distribution of the private quantile on a public grid; build it with `quantile_distribution`.

    Consecutive grid points with equal scores form a run, so that the memory does not grow with the size of the grid.
    """

    low: float
    half_step: float  # point i of the grid is low + 2i·half_step; a full step may overflow
    starts: NDArray[np.float64] = field(repr=False)  # index of the first point of each run, ascending; private
    sizes: NDArray[np.float64] = field(repr=False)  # number of points of each run; private
    log_masses: NDArray[np.float64] = field(repr=False)  # log probability of each point of a run; private

    def values(self, points: ArrayLike) -> NDArray[np.float64]:
        """Return the values of the grid points with the given indices."""
        return 2.0 * (0.5 * self.low + np.asarray(points, dtype=np.float64) * self.half_step)

    def log_prob(self, points: ArrayLike) -> NDArray[np.float64]:
        """Return the log probabilities of the grid points with the given indices, which start at 0."""
        run = np.searchsorted(self.starts, np.asarray(points, dtype=np.float64), side="right") - 1
        return self.log_masses[run]

    def draw(self, rng: np.random.Generator) -> float:
        """Draw a grid point: first a run, then a point within the run; ε-DP for draws in real arithmetic."""
        cumulative = np.cumsum(self.sizes * np.exp(self.log_masses))
        # Select the first run whose cumulative probability exceeds u < 1; the minimum guards against rounding.
        run = min(int(np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right")), cumulative.size - 1)
        return float(self.values(self.starts[run] + rng.integers(int(self.sizes[run]))))


def quantile_distribution(
    data: ArrayLike,
    quantile: float,
    epsilon: float,
    data_range: tuple[float, float],
    granularity: float | None = None,
) -> QuantileDistribution:
    """Return the distribution of the private quantile of one data set.

    Records outside the public range are clipped. They are rounded to the nearest point of a grid with the public step
    `granularity`, in the units of the records, such as 1 for integers or 0.01 for cents; by default the range divided
    by `N_STEPS`.
    """
    low, high = _validate_range(data_range)
    if not (is_real(quantile) and 0 <= quantile <= 1):
        raise ValueError(f"quantile must be in [0, 1], got {quantile}; pass 0.5 for the median")
    half_step, n_steps = _find_grid(0.5 * high - 0.5 * low, granularity)
    records = real_array("data", data)
    if records.ndim != 1 or records.size == 0 or not np.all(np.isfinite(records)):
        raise ValueError(
            f"data must be finite, of shape (n,) with n >= 1, got shape {records.shape}; remove missing records"
        )
    places = np.rint((0.5 * np.clip(records, low, high) - 0.5 * low) / half_step)
    occupied, held = np.unique(np.minimum(places, n_steps), return_counts=True)
    up_to = np.cumsum(held)  # records at or below each occupied point
    # Runs: the points below the first occupied point, then each occupied point and the points up to the next one.
    starts = np.concatenate([[0.0], np.stack([occupied, occupied + 1.0], axis=1).ravel()])
    sizes = np.diff(np.append(starts, n_steps + 1.0))
    below = np.concatenate([[0], np.stack([up_to - held, up_to], axis=1).ravel()])
    at_most = np.concatenate([[0], np.repeat(up_to, 2)])
    target = quantile * records.size
    log_weight = -validate_epsilon(epsilon) / 2 * np.maximum(np.maximum(below - target, target - at_most), 0.0)
    starts, sizes, log_weight = (each[sizes > 0] for each in (starts, sizes, log_weight))
    largest = log_weight.max()
    log_total = largest + math.log(float(np.sum(sizes * np.exp(log_weight - largest))))
    return QuantileDistribution(low, half_step, starts, sizes, log_weight - log_total)


def private_bounds(
    rng: np.random.Generator,
    data: ArrayLike,
    quantiles: tuple[float, float],
    epsilon: float,
    data_range: tuple[float, float],
    whole: bool = False,
    granularity: float | None = None,
) -> tuple[float, float]:
    """Draw private bounds, lower < upper, at two quantiles of the data, with half of the budget for each.

    Parameters
    ----------
    rng : numpy.random.Generator
    data : array_like, shape (n,)
        Records, n ≥ 1, finite; they are clipped to the range and rounded to the grid.
    quantiles : tuple of float
        Two quantiles in [0, 1], ascending, such as (0.025, 0.975).
    epsilon : float
        Privacy loss of both bounds together, in nats.
    data_range : tuple of float
        Public range (lower, upper).
    whole : bool
        If True, round the bounds outward to integers, for integer records.
    granularity : float, optional
        Public step of the grid in the units of the records, such as 0.01 for cents; by default the range divided by
        `N_STEPS`, or 1 if `whole`.

    Returns
    -------
    lower, upper : float

    Privacy
    -------
    ε-DP under replace-one with n public: two releases with ε/2 each compose. Sorting the draws, rounding them and
    separating equal bounds by one step of the grid on each side is post-processing. If a noisy sum within the bounds is
    also released, the privacy losses add up.

    Raises
    ------
    ValueError
        If an argument is invalid.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> lower, upper = private_bounds(rng, rng.random(10_000), (0.025, 0.975), epsilon=1.0, data_range=(0.0, 100.0))
    >>> round(lower, 2), round(upper, 2)
    (0.03, 0.97)

    Release a sum with a total budget of ε = 1, of which a fifth is spent on the bounds:

    >>> from mechanisms import private_posterior
    >>> records = rng.exponential(size=10_000)
    >>> bounds = private_bounds(rng, records, (0.0, 0.99), epsilon=0.2, data_range=(0.0, 100.0))
    >>> print(private_posterior(records, "exponential", (1, 1), epsilon=0.8, bounds=bounds).guarantee)
    0.8-DP

    Notes
    -----
    The distribution of the bounds depends on the parameter of the model through the data. The inference methods of this
    package treat the bounds as constants and ignore this information.
    """
    if len(quantiles) != 2 or not quantiles[0] < quantiles[1]:
        raise ValueError(f"quantiles must be two ascending numbers, got {quantiles}; pass e.g. (0.025, 0.975)")
    low, high = _validate_range(data_range)
    step = 1.0 if granularity is None and whole else granularity
    first, second = quantiles
    draws = [quantile_distribution(data, q, epsilon / 2, (low, high), step).draw(rng) for q in (first, second)]
    lower, upper = min(draws), max(draws)
    if whole:
        lower, upper = math.floor(lower), math.ceil(upper)
    if lower < upper:
        return lower, upper
    apart = 2.0 * ((0.5 * high - 0.5 * low) / N_STEPS) if step is None else step
    return max(lower - apart, low), min(upper + apart, high)


def _validate_range(data_range: tuple[float, float]) -> tuple[float, float]:
    if len(data_range) != 2:
        raise ValueError(f"data_range must be two numbers, got {data_range}; pass (lower, upper)")
    low, high = data_range
    if not (is_real(low) and is_real(high) and math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"data_range must be finite with lower < upper, got {data_range}; pass a public range")
    return float(low), float(high)


def _find_grid(half_range: float, granularity: float | None) -> tuple[float, float]:
    """Return half the step of the grid, and the index of the last grid point."""
    if granularity is None:
        return half_range / N_STEPS, float(N_STEPS)
    if not (is_real(granularity) and math.isfinite(granularity) and granularity > 0):
        raise ValueError(f"granularity must be finite and > 0, got {granularity}; pass the public step of the records")
    n_steps = math.floor(half_range / (0.5 * granularity) * (1.0 + 1e-12))
    if not 1 <= n_steps <= _MOST_STEPS:
        raise ValueError(
            f"granularity must divide the range into 1 to 2**53 steps, got {granularity}; pass the public step of the "
            "records"
        )
    return 0.5 * granularity, float(n_steps)
