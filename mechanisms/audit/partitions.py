"""Audits of releases that aggregate partitions, under the worst replacement of one row.

An audit checks two properties. The largest change of an aggregate by one row must equal the stated sensitivity:
`adversarial_posteriors` replaces a row by one with an unbounded effect on the coefficient, in both directions. In
addition, noise of the stated scale must hide this change: the functions below represent output distributions by exact
probabilities of bins, for `mechanisms.core.exact_losses.audit_distributions`.

**Bins.** Two Laplace distributions with scale s and centres A, A′ have a density ratio of exp(|A − A′|/s) outside the
interval between the centres, and a smaller ratio inside. Bins whose edges include all centres therefore attain the
largest ratio. Clamped values are in the outer bins. The densities of the window distributions are piecewise constant
up to a common factor, so bins whose edges include all steps also attain the largest ratio. The sparse vector
technique has finitely many outcomes, whose probabilities are integrals over the noise of the threshold.

The loss of a method with several steps (``quantile-centred``: scale, centre, mean) is the sum of the losses of the
steps, each given the outcomes of the earlier steps. For ``quantile`` the joint distribution of bounds and mean is also
audited.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.core.arguments import Floats
from mechanisms.core.conjugate import enumerate_candidates, neighbouring_pairs
from mechanisms.core.exact_losses import OutputDistributions, audit_distributions
from mechanisms.regression.partition_prior import Prior
from mechanisms.regression.partition_probability import PartitionProbability
from mechanisms.regression.partition_quantile import PartitionQuantile, WindowDistribution, flatten
from mechanisms.regression.posterior import CoefficientPosterior, coefficient_posterior
from mechanisms.regression.sparse_vector import SparseVector
from mechanisms.regression.statistics import RegressionStatistics, partition_statistics

_BINS = 32
_LEVERAGE, _SLOPE = 1e7, 30.0


def adversarial_posteriors(
    x: ArrayLike,
    y: ArrayLike,
    partition: ArrayLike,
    k: int,
    prior: Prior,
    error_variance: float | None = None,
    power: ArrayLike = 1.0,
    row: int = 0,
) -> CoefficientPosterior:
    """Return posteriors of coefficient k for two data sets that differ in one row, which decreases or increases β_k.

    The model has an intercept, and the partition of row `row` is unchanged. With L = 10⁷ and s = 30, for a slope, the
    column is set to L and the outcome to ∓sL, so that the slope is ∓s with a standard deviation of about s/L. For the
    intercept, the columns are set to 0 and the outcome to ∓L², which has the same effect if the error variance is
    known. The posteriors have shape (2, M): first decreased, then increased.
    """
    columns, outcome = np.array(x, dtype=np.float64), np.array(y, dtype=np.float64)
    moved = []
    for sign in (-1.0, 1.0):
        columns[row], outcome[row] = 0.0, sign * _LEVERAGE**2
        if k > 0:
            columns[row, k - 1], outcome[row] = _LEVERAGE, sign * _SLOPE * _LEVERAGE
        moved.append(partition_statistics(columns, outcome, partition))
    return coefficient_posterior(RegressionStatistics.stack(moved), k, prior, error_variance, power)


def probability_distributions(
    mechanism: PartitionProbability, probabilities: ArrayLike, pairs: ArrayLike
) -> OutputDistributions:
    """Return the output distributions of the probability released at one cutoff, as bin probabilities.

    The probabilities p_j of M partitions in D data sets have shape (D, M), and `pairs` are indices of neighbouring data
    sets, shape (P, 2). The outputs are the released values at the centres of the bins.
    """
    if not mechanism.noise_scale:
        raise ValueError(f"mechanism must have noise, got {mechanism.name}; audit the variant with noise")
    p = np.asarray(probabilities, dtype=np.float64)
    high = 1.0 if mechanism.method.is_mean else math.inf
    centres, log_masses = _noisy_bins(mechanism.aggregate(p[..., None])[:, 0], mechanism.noise_scale, 0.0, high)
    return OutputDistributions(p, mechanism.postprocess(centres), np.asarray(pairs), log_masses)


def search_distributions(search: SparseVector) -> OutputDistributions:
    """Return the distributions of the stopping index of a search for all possible data sets.

    A data set is described by the number of values in the first interval, the number in the region that each doubling
    except the last adds, and the number of all other values. The outputs are t = 0 … T.
    """
    rings = enumerate_candidates(search.n_values, search.doublings + 1)
    datasets, pairs = neighbouring_pairs(np.arange(1.0, search.doublings + 2), rings)
    return OutputDistributions(
        datasets, np.arange(search.doublings + 1), pairs, lambda index: search.log_pmf(np.cumsum(datasets[index]))
    )


def window_distributions(distributions: Sequence[WindowDistribution], pairs: ArrayLike) -> OutputDistributions:
    """Return the output distributions of a released log scale or centre for several data sets, as bin probabilities.

    Each data set has one distribution, all with the same range and unit. The outputs are the lower edges of the bins.
    """
    edges = np.unique(np.concatenate([distribution.edges for distribution in distributions]))
    unit = distributions[0].unit

    def log_pmf(index: int) -> Floats:
        distribution = distributions[index]
        step = np.clip(
            np.searchsorted(distribution.edges, edges[:-1], side="right") - 1, 0, distribution.log_masses.size - 1
        )
        ends, lengths = flatten(distribution.edges, unit), np.diff(flatten(edges, unit))
        with np.errstate(divide="ignore", invalid="ignore"):
            log_mass = distribution.log_masses[step] + np.log(lengths / (ends[step + 1] - ends[step]))
        return np.where(lengths > 0, log_mass, -np.inf)

    return OutputDistributions(np.arange(len(distributions)), edges[:-1], np.asarray(pairs), log_pmf)


def quantile_distributions(mechanism: PartitionQuantile, values: ArrayLike, pairs: ArrayLike) -> OutputDistributions:
    """Return the joint output distributions of the bounds around 0 and the quantile, as bin probabilities.

    The method is ``quantile`` or ``quantile-exact`` with few doublings, and the quantiles q_j of M partitions in D data
    sets have shape (D, M). Each output is a pair: t, which determines the bounds, and the centre of a bin.
    """
    if mechanism.method.is_centred or not mechanism.method.has_noise:
        raise ValueError(f"mechanism must be quantile or quantile-exact, got {mechanism.name}; audit others by step")
    q = np.asarray(values, dtype=np.float64)
    search = mechanism.search
    outcomes, tables = [], []
    for stop in range(search.doublings + 1):
        bound = search.bound(stop)
        means = np.array([mechanism.clipped_mean(row, 0.0, bound) for row in q])
        centres, log_masses = _noisy_bins(means, mechanism.noise_scale(bound))
        outcomes.append(np.column_stack([np.full(centres.size, float(stop)), centres]))
        tables.append(log_masses)

    def log_pmf(index: int) -> Floats:
        stops = zip(search.log_pmf(search.counts(q[index])), tables, strict=True)
        return np.concatenate([stop + log_masses(index) for stop, log_masses in stops])

    return OutputDistributions(q, np.concatenate(outcomes), np.asarray(pairs), log_pmf)


def centred_losses(
    mechanism: PartitionQuantile,
    values: ArrayLike,
    spreads: ArrayLike,
    moved: tuple[int, float, float],
    scales: ArrayLike,
) -> tuple[float, float, float]:
    """Return the privacy losses of the three steps of ``quantile-centred`` for a change in one partition.

    `moved` is the index of the changed partition, its new q_j and its new s_j; `scales` are possible released scales,
    over which the losses of centre and mean are maximised. Return the losses of the scale, of the centre given a scale,
    and of the mean given both, in nats. Their sum bounds the loss of the release.
    """
    q, s = np.asarray(values, float), np.asarray(spreads, float)
    other_q, other_s = q.copy(), s.copy()
    _, other_q[moved[0]], other_s[moved[0]] = moved

    def window_loss(*distributions: WindowDistribution) -> float:
        return audit_distributions(window_distributions(distributions, [[0, 1]])).epsilon

    scale_loss = window_loss(*map(mechanism.scale_distribution, (s, other_s)))
    centre_loss = mean_loss = 0.0
    for scale in np.atleast_1d(np.asarray(scales, float)).tolist():
        centre_loss = max(
            centre_loss, window_loss(*(mechanism.centre_distribution(quantiles, scale) for quantiles in (q, other_q)))
        )
        for centre in (float(np.median(q)), moved[1]):
            low, high = (float(mechanism.clipped_mean(quantiles, centre, 2 * scale)) for quantiles in (q, other_q))
            mean_loss = max(mean_loss, abs(high - low) / float(mechanism.noise_scale(2 * scale)))
    return scale_loss, centre_loss, mean_loss


def _noisy_bins(
    means: Floats, scale: float, low: float = -math.inf, high: float = math.inf
) -> tuple[Floats, Callable[[int], Floats]]:
    """Return the centres of bins, and their log probabilities for Laplace noise on the mean with an index.

    Edges include all means, and outer bins all values ≤ `low` and ≥ `high`; their centres are their finite edges.
    """
    reach = np.linspace(means.min() - 8.0 * scale, means.max() + 8.0 * scale, _BINS)
    ends = np.unique(np.concatenate([means, reach, [low, high]]))
    ends = ends[(ends >= low) & (ends <= high) & np.isfinite(ends)]

    def log_masses(index: int) -> Floats:
        z = (np.concatenate([[-math.inf], ends, [math.inf]]) - means[index]) / scale
        below, above = z[:-1], z[1:]
        near = np.where(above <= 0.0, -above, np.maximum(below, 0.0))
        return np.log(-np.expm1(below - above)) + math.log(0.5) - near

    return np.concatenate([ends[:1], (ends[:-1] + ends[1:]) / 2, ends[-1:]]), log_masses
