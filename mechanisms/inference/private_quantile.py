"""Private quantiles by the exponential mechanism, for choosing bounds of records from part of the privacy budget.

The score at x in a public range is −|(number of records below x) − q·n|. It is constant between successive records, so
the output has a piecewise constant density:

    p(x) ∝ exp(−(ε/2)·|i − q·n|)  for x between the i-th and the (i+1)-th smallest record, i = 0, …, n,

where the ends of the range replace records 0 and n + 1.

References
----------
Smith, "Privacy-preserving statistical estimation with optimal convergence rates", STOC 2011, algorithm 2.
P4: Bernstein & Sheldon, "Differentially Private Bayesian Inference for Exponential Families", NeurIPS 2018.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mechanisms.privacy import validate_epsilon

__all__ = ["private_bounds", "private_quantile", "quantile_distribution"]


def quantile_distribution(
    data: ArrayLike, quantile: float, epsilon: float, data_range: tuple[float, float]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the piecewise constant density of the private quantile.

    Parameters
    ----------
    data : array_like, shape (n,)
        Finite records, n ≥ 1; records outside the range are clipped.
    quantile : float
        q in [0, 1].
    epsilon : float
        Privacy loss in nats, finite and > 0.
    data_range : tuple of float
        Public (lower, upper), finite, lower < upper.

    Returns
    -------
    edges : ndarray of float64, shape (n + 2,)
        Ends of the steps, ascending; steps of length zero are allowed.
    log_density : ndarray of float64, shape (n + 1,)
        Log density on each step.

    Raises
    ------
    ValueError
        If an argument is invalid.

    Examples
    --------
    >>> edges, log_density = quantile_distribution([0.2, 0.7, 9.0], quantile=0.5, epsilon=2.0, data_range=(0.0, 1.0))
    >>> edges, np.exp(log_density).round(3)
    (array([0. , 0.2, 0.7, 1. , 1. ]), array([0.421, 1.145, 1.145, 0.421]))
    """
    low, high = data_range
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"data_range must be finite with lower < upper, got {data_range}; pass a public range")
    if not 0 <= quantile <= 1:
        raise ValueError(f"quantile must be in [0, 1], got {quantile}; pass 0.5 for the median")
    records = np.asarray(data, dtype=np.float64)
    if records.ndim != 1 or records.size == 0 or not np.all(np.isfinite(records)):
        raise ValueError(
            f"data must be finite, of shape (n,) with n >= 1, got shape {records.shape}; remove missing records"
        )
    n = records.size
    edges = np.concatenate([[low], np.sort(np.clip(records, low, high)), [high]])
    log_weight = -validate_epsilon(epsilon) / 2 * np.abs(np.arange(n + 1) - quantile * n)
    lengths = np.diff(edges)
    largest = log_weight[lengths > 0].max()
    log_total = largest + math.log(np.sum(lengths * np.exp(np.minimum(log_weight - largest, 0.0))))
    return edges, log_weight - log_total


def private_quantile(
    rng: np.random.Generator, data: ArrayLike, quantile: float, epsilon: float, data_range: tuple[float, float]
) -> float:
    """Draw the private quantile of one data set.

    Parameters
    ----------
    rng : numpy.random.Generator
    data, quantile, epsilon, data_range
        See `quantile_distribution`.

    Returns
    -------
    float
        Value within `data_range`.

    Privacy
    -------
    ε-DP, replace-one with n public: replacing a record changes the score by at most 1 at every x, so density and
    normaliser each change by a factor of at most e^(ε/2). The guarantee holds for draws in real arithmetic; use these
    draws for simulation.

    Raises
    ------
    ValueError
        If an argument is invalid.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> round(private_quantile(rng, rng.random(1000), quantile=0.5, epsilon=1.0, data_range=(0.0, 100.0)), 2)
    0.49
    """
    edges, log_density = quantile_distribution(data, quantile, epsilon, data_range)
    lengths = np.diff(edges)
    cumulative = np.cumsum(lengths * np.exp(np.where(lengths > 0, log_density, 0.0)))
    # The first step with cumulative mass above u < 1 never has length zero.
    step = int(np.searchsorted(cumulative / cumulative[-1], rng.random(), side="right"))
    return float(edges[step] + rng.random() * lengths[step])


def private_bounds(
    rng: np.random.Generator,
    data: ArrayLike,
    quantiles: tuple[float, float],
    epsilon: float,
    data_range: tuple[float, float],
    whole: bool = False,
) -> tuple[float, float]:
    """Draw bounds lower < upper at two quantiles, each with half of the budget.

    Parameters
    ----------
    rng : numpy.random.Generator
    data : array_like, shape (n,)
        See `quantile_distribution`.
    quantiles : tuple of float
        Two quantiles in [0, 1], ascending, such as (0.025, 0.975).
    epsilon : float
        Privacy loss of both together, in nats.
    data_range : tuple of float
        Public (lower, upper).
    whole : bool
        Round the bounds outward, for integer records.

    Returns
    -------
    lower, upper : float

    Privacy
    -------
    ε-DP, replace-one with n public: two releases with ε/2 each compose. Sorting the draws, rounding them and replacing
    equal bounds by the public range is post-processing. The budget of a sum released within the bounds is added to ε.

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

    A sum with a total budget of ε = 1, a fifth of it for the bounds:

    >>> from mechanisms.inference.families import FAMILIES
    >>> from mechanisms.inference.noisy_statistics import release_statistics
    >>> family, records = FAMILIES["exponential"], rng.exponential(size=10_000)
    >>> bounds = private_bounds(rng, records, (0.0, 0.99), epsilon=0.2, data_range=(0.0, 100.0))
    >>> _, truncated = family.statistics(records, bounds)
    >>> release_statistics(rng, truncated, family.sensitivity(bounds), epsilon=0.8).shape
    (1,)

    Notes
    -----
    The bounds depend on θ through the data. The inference methods of this package treat them as constants and ignore
    this information.
    """
    if len(quantiles) != 2 or not quantiles[0] < quantiles[1]:
        raise ValueError(f"quantiles must be two ascending numbers, got {quantiles}; pass e.g. (0.025, 0.975)")
    if len(data_range) != 2:
        raise ValueError(f"data_range must be two numbers, got {data_range}; pass (lower, upper)")
    first, second = quantiles
    draws = [private_quantile(rng, data, q, epsilon / 2, data_range) for q in (first, second)]
    lower, upper = min(draws), max(draws)
    if whole:
        lower, upper = math.floor(lower), math.ceil(upper)
    return (lower, upper) if lower < upper else (float(data_range[0]), float(data_range[1]))
