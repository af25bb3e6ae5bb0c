"""Audits of the releases from partitions: what they spend where one row is replaced by the worst other one.

Two things are to be checked. That no row moves an aggregate further than is stated, and that some row moves it so far:
`adversarial_posteriors` replaces a row by one that pulls the coefficient without bound, one way and the other. And that
noise of the stated scale hides such a move: the distributions below hand the releases to `mechanisms.audit.audit_distributions` as exact
probabilities of cells.

**Cells.** Two Laplace distributions of scale s and centres A, A′ have a density ratio of exp(|A − A′|/s) wherever both centres
lie on one side, and a smaller one between them. Cells whose ends include all centres hence show the largest ratio
exactly; values that are clamped make up the outer cells. The densities of the window distributions are steps, up to a factor
that all data sets share: cells whose ends include those of all steps show their largest ratio, too. The sparse
vector's outcomes are finitely many, and its distribution is integrated over the noise of its threshold.

The methods of several steps spend the sum of what each step spends at given outcomes of the earlier ones
(`quantile-centred`: scale, centre, mean); for ``quantile`` the joint distribution of bounds and mean is audited as well.

References
----------
P2: Amitai, "Bayesian Inference Via Partitioning Under Differential Privacy", Duke University 2018.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mechanisms.audit import OutputDistributions, audit_distributions
from mechanisms.conjugate import enumerate_candidates
from mechanisms.neighbours import neighbouring_pairs
from mechanisms.regression.coefficient_posterior import CoefficientPosterior
from mechanisms.regression.partition_probability import PartitionProbability
from mechanisms.regression.partition_quantile import PartitionQuantile, WindowDistribution
from mechanisms.regression.posterior import coefficient_posterior
from mechanisms.regression.prior import Prior
from mechanisms.regression.sparse_vector import SparseVector
from mechanisms.regression.statistics import RegressionStatistics, partition_statistics

__all__ = [
    "adversarial_posteriors",
    "centred_losses",
    "probability_distributions",
    "quantile_distributions",
    "search_distributions",
    "window_distributions",
]

Floats = NDArray[np.float64]

_CELLS = 32


def adversarial_posteriors(
    x: ArrayLike,
    y: ArrayLike,
    partition: ArrayLike,
    k: int,
    prior: Prior,
    error_variance: float | None = None,
    power: ArrayLike = 1.0,
    row: int = 0,
    leverage: float = 1e7,
    slope: float = 30.0,
) -> CoefficientPosterior:
    """Return the posteriors at two neighbours: a row replaced by one that pulls coefficient k down, or up.

    Parameters
    ----------
    x, y, partition
        Rows of a model with an intercept, as for `partition_statistics`.
    k, prior, error_variance, power
        As for `coefficient_posterior`.
    row : int
        The row that is replaced; it stays in its partition.
    leverage, slope : float
        L and s: a slope's column becomes L and the outcome ∓sL, which the line must then pass through, so that the
        slope is ∓s with a standard deviation of about s/L. For the intercept the columns become 0 and the outcome ∓L²,
        which has that effect where the error variance is known.

    Returns
    -------
    CoefficientPosterior
        Of shape (2, M).

    Examples
    --------
    >>> from mechanisms.regression.prior import ZellnerPrior
    >>> rng = np.random.default_rng(1)
    >>> x, labels = rng.standard_normal((40, 1)), np.repeat(range(4), 10)
    >>> found = adversarial_posteriors(x, 1 + 2 * x[:, 0], labels, 1, ZellnerPrior(g=40), error_variance=1.0)
    >>> found.cdf([2.0])[:, 0, 0]
    array([1., 0.])
    """
    columns, outcome = np.array(x, dtype=np.float64), np.array(y, dtype=np.float64)
    found = []
    for sign in (-1.0, 1.0):
        columns[row], outcome[row] = 0.0, sign * leverage**2
        if k > 0:
            columns[row, k - 1], outcome[row] = leverage, sign * slope * leverage
        found.append(partition_statistics(columns, outcome, partition))
    return coefficient_posterior(RegressionStatistics.stack(found), k, prior, error_variance, power)


def probability_distributions(
    mechanism: PartitionProbability, probabilities: ArrayLike, pairs: ArrayLike
) -> OutputDistributions:
    """Return the distributions of a released probability at one cutoff, on cells.

    Parameters
    ----------
    mechanism : PartitionProbability
        With noise.
    probabilities : array_like, shape (D, M)
        p_j in each data set.
    pairs : array_like of int, shape (P, 2)
        Which data sets are neighbours.

    Returns
    -------
    OutputDistributions
        The outputs are the released values at the cells' middles.

    Examples
    --------
    P2 divides the sensitivity of a sum by the number of partitions, and spends as many times its budget:

    >>> from mechanisms.audit import audit_distributions
    >>> from mechanisms.regression.partition_probability import partition_probability
    >>> p = [[0.0] * 1000, [1.0] + [0.0] * 999]
    >>> for name in ("normality", "fisher", "fisher-published"):
    ...     distributions = probability_distributions(partition_probability(name, 1000, epsilon=0.25), p, [[0, 1]])
    ...     print(name, round(audit_distributions(distributions).epsilon, 9))
    normality 0.25
    fisher 0.25
    fisher-published 250.0
    """
    if not mechanism.noise_scale:
        raise ValueError(f"a mechanism must have noise for its distribution to have a density, got {mechanism.name}")
    p = np.asarray(probabilities, dtype=np.float64)
    aggregates, scale = mechanism.aggregate(p[..., None])[:, 0], mechanism.noise_scale
    high = 1.0 if mechanism.name.startswith("normality") else math.inf
    edges = _cells(aggregates, scale, 0.0, high)

    def log_pmf(index: int) -> Floats:
        return _log_cell_masses((edges - aggregates[index]) / scale)

    return OutputDistributions(p, mechanism.postprocess(_middles(edges)), np.asarray(pairs), log_pmf)


def search_distributions(search: SparseVector) -> OutputDistributions:
    """Return the distributions of where the sparse vector ends, for all data sets there can be.

    Parameters
    ----------
    search : SparseVector
        Of a few values and doublings.

    Returns
    -------
    OutputDistributions
        The data sets are the numbers of values in the first interval, in each ring that a doubling adds, the last one
        excepted, and beyond; the outputs are t = 0 … T.

    Examples
    --------
    The noise of the published search is more than it needs to be:

    >>> from mechanisms.audit import audit_distributions
    >>> found = audit_distributions(search_distributions(SparseVector(n_values=8, epsilon=1.0, share=0.5, doublings=4)))
    >>> print(round(found.epsilon, 4), found.witness)
    0.5865 [7, 0, 0, 1, 0] against [8, 0, 0, 0, 0], output 3
    """
    rings = enumerate_candidates(search.n_values, search.doublings + 1)
    datasets, pairs = neighbouring_pairs(np.arange(1.0, search.doublings + 2), rings)
    return OutputDistributions(
        datasets, np.arange(search.doublings + 1), pairs, lambda index: search.log_pmf(np.cumsum(datasets[index]))
    )


def window_distributions(distributions: Sequence[WindowDistribution], pairs: ArrayLike) -> OutputDistributions:
    """Return the distributions of a scale's logarithm, or of a centre, at several data sets, on cells.

    Parameters
    ----------
    distributions : sequence of WindowDistribution
        One a data set, of one range and unit.
    pairs : array_like of int, shape (P, 2)
        Which data sets are neighbours.

    Returns
    -------
    OutputDistributions
        The outputs are the lower ends of the cells.
    """
    edges = np.unique(np.concatenate([distribution.edges for distribution in distributions]))
    unit = distributions[0].unit
    flat = np.arcsinh(edges / unit) if math.isfinite(unit) else edges

    def log_pmf(index: int) -> Floats:
        distribution = distributions[index]
        step = np.clip(
            np.searchsorted(distribution.edges, edges[:-1], side="right") - 1, 0, distribution.log_masses.size - 1
        )
        ends = np.arcsinh(distribution.edges / unit) if math.isfinite(unit) else distribution.edges
        return distribution.log_masses[step] + np.log(np.diff(flat) / (ends[step + 1] - ends[step]))

    return OutputDistributions(np.arange(len(distributions)), edges[:-1], np.asarray(pairs), log_pmf)


def quantile_distributions(mechanism: PartitionQuantile, values: ArrayLike, pairs: ArrayLike) -> OutputDistributions:
    """Return the joint distributions of bounds and released quantile of the method ``quantile``, on cells.

    Parameters
    ----------
    mechanism : PartitionQuantile
        ``quantile``, with few doublings.
    values : array_like, shape (D, M)
        q_j in each data set.
    pairs : array_like of int, shape (P, 2)
        Which data sets are neighbours.

    Returns
    -------
    OutputDistributions
        The outputs are t and the middle of the cell.

    Examples
    --------
    >>> from mechanisms.audit import audit_distributions
    >>> from mechanisms.regression.partition_quantile import partition_quantile
    >>> method = partition_quantile("quantile", 4, epsilon=1.0, split=(0.5, 0.5), doublings=2)
    >>> q = [[0.0, 0.0, 0.0, 9.0], [0.0, 0.0, 0.0, -9.0]]
    >>> print(round(audit_distributions(quantile_distributions(method, q, [[0, 1]])).epsilon, 9))
    0.5
    """
    if mechanism.name != "quantile":
        raise ValueError(f"a mechanism must be quantile, got {mechanism.name}; audit the steps of others one by one")
    q = np.asarray(values, dtype=np.float64)
    search = mechanism.search
    outcomes, edges, scales, means = [], [], [], []
    for stop in range(search.doublings + 1):
        bound = search.bound(stop)
        means.append(np.array([mechanism.clipped_mean(row, 0.0, bound) for row in q]))
        scales.append(mechanism.noise_scale(bound))
        edges.append(_cells(means[-1], scales[-1], -math.inf, math.inf))
        middles = _middles(edges[-1])
        outcomes.append(np.stack([np.full(middles.size, float(stop)), middles], axis=1))

    def log_pmf(index: int) -> Floats:
        stops = search.log_pmf(search.counts(q[index]))
        parts = [
            log_stop + _log_cell_masses((ends - mean[index]) / scale)
            for log_stop, ends, mean, scale in zip(stops, edges, means, scales, strict=True)
        ]
        return np.concatenate(parts)

    return OutputDistributions(q, np.concatenate(outcomes), np.asarray(pairs), log_pmf)


def centred_losses(
    mechanism: PartitionQuantile,
    values: ArrayLike,
    spreads: ArrayLike,
    moved: tuple[int, float, float],
    scales: ArrayLike,
) -> tuple[float, float, float]:
    """Return what the three steps of ``quantile-centred`` lose where one partition states something else.

    Parameters
    ----------
    mechanism : PartitionQuantile
        ``quantile-centred``.
    values, spreads : array_like, shape (M,)
        q_j and the posterior standard deviations s_j.
    moved : (int, float, float)
        Which partition, and what it states then: its q and its s.
    scales : array_like
        Scales that may have been released; the losses of centre and mean are the largest over them.

    Returns
    -------
    (float, float, float)
        The losses of the scale, of the centre given a scale, and of the mean given both, in nats. Their sum is what the
        release spends at most.

    Examples
    --------
    >>> from mechanisms.regression.partition_quantile import partition_quantile
    >>> method = partition_quantile("quantile-centred", 6, epsilon=1.0, split=(0.2, 0.3, 0.5))
    >>> losses = centred_losses(method, [0.0] * 6, [1.0] * 6, (0, 1e9, 1e9), scales=[1.0])
    >>> [f"{loss:.4f}" for loss in losses]
    ['0.0971', '0.1712', '0.2500']
    """
    q, s = np.asarray(values, float), np.asarray(spreads, float)
    other_q, other_s = q.copy(), s.copy()
    _, other_q[moved[0]], other_s[moved[0]] = moved
    pair = [[0, 1]]
    scale_loss = audit_distributions(
        window_distributions([mechanism.scale_distribution(each) for each in (s, other_s)], pair)
    ).epsilon
    centre_loss = mean_loss = 0.0
    for scale in np.atleast_1d(np.asarray(scales, float)).tolist():
        distributions = [mechanism.centre_distribution(each, scale) for each in (q, other_q)]
        centre_loss = max(centre_loss, audit_distributions(window_distributions(distributions, pair)).epsilon)
        for centre in (float(np.median(q)), moved[1]):
            low, high = (float(mechanism.clipped_mean(each, centre, 2 * scale)) for each in (q, other_q))
            mean_loss = max(mean_loss, abs(high - low) / float(mechanism.noise_scale(2 * scale)))
    return scale_loss, centre_loss, mean_loss


def _cells(centres: Floats, scale: float, low: float, high: float) -> Floats:
    """Return ends of cells that include all centres, −inf and inf; what is ≤ `low`, or ≥ `high`, makes up one cell."""
    reach = np.linspace(centres.min() - 8.0 * scale, centres.max() + 8.0 * scale, _CELLS)
    ends = np.unique(np.concatenate([centres, reach, [low, high]]))
    ends = ends[(ends >= low) & (ends <= high) & np.isfinite(ends)]
    return np.concatenate([[-math.inf], ends, [math.inf]])


def _middles(ends: Floats) -> Floats:
    """Return the middles of cells, and the finite ends of the outer two."""
    inner = ends[1:-1]
    return np.concatenate([inner[:1], (inner[:-1] + inner[1:]) / 2, inner[-1:]])


def _log_cell_masses(ends: Floats) -> Floats:
    """Return ln Pr[aᵢ < Z ≤ aᵢ₊₁] of a Laplace variable of scale 1; 0 is inside of no cell."""
    low, high = ends[:-1], ends[1:]
    near = np.where(high <= 0.0, -high, np.maximum(low, 0.0))
    with np.errstate(invalid="ignore"):
        width = np.where(np.isinf(low) | np.isinf(high), math.inf, high - low)
    return np.log(-np.expm1(-width)) + math.log(0.5) - near
