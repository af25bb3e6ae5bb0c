"""Projection of noisy integer vectors to counts of n records, with ties broken at random.

A vector y with k entries is clipped to s = clip(y, 0, n), projected to the nearest point of the simplex
{x ≥ 0, Σx = n} in Euclidean distance, xᵢ = max(sᵢ − τ, 0), and rounded to integers. The m entries above τ must lose
E = Σsᵢ − n records in total: each loses ⌊E/m⌋, and E mod m of them, chosen uniformly, lose one more. All fractional
parts are equal, so rounding the largest remainders up is a choice among ties. Breaking ties by the order of the
categories would make the mean distance depend on this order.

For true counts in [0, n] the clipped vector is a sufficient statistic of K-norm noise and of two-sided geometric noise,
so clipping first loses no information. Away from the edges clipping changes nothing.

References
----------
Duchi, Shalev-Shwartz, Singer & Chandra, "Efficient projections onto the ℓ₁-ball for learning in high dimensions", ICML
2008. Michelot, "A finite algorithm for finding the projection of a point onto the canonical simplex of Rⁿ", Journal of
Optimization Theory and Applications 50, 1986.
"""

from __future__ import annotations

import math

import numpy as np

from mechanisms.core.arguments import Floats, Integers
from mechanisms.core.conjugate import count_candidates, count_completions
from mechanisms.core.hellinger import log_affinity
from mechanisms.core.jit import kernel
from mechanisms.counts.candidates import require_enumerable

# largest number of categories for which ties are enumerated; a set of tied entries is stored as bits of an integer
MAX_CATEGORIES = 60


def project(vectors: Integers, n: int, ties: Floats) -> Integers:
    """Return projections of vectors, shape (trials, k); uniforms `ties` select the tied entries that lose one more."""
    counts = np.empty(vectors.shape, dtype=np.int64)
    _project_rows(vectors, n, np.ascontiguousarray(ties), counts)
    return counts


def mean_projected_distance(prior: Floats, counts: Integers, vectors: Integers, weights: Floats) -> float:
    """Return Σ weight·E[H(posterior(c), posterior(c̃))] over vectors in [0, n]^k with the projections c̃."""
    _require_categories(counts.size)
    n = int(counts.sum())
    columns = list(vectors.T)  # reductions along short axes are slow
    off = sum(columns) - n
    low = np.maximum([column.min() - max(int(off.max()), 0) - 1 for column in columns], 0)
    high = np.minimum([column.max() + max(int(-off.min()), 0) + 1 for column in columns], n)
    deficits = np.zeros((counts.size, int((high - low).max()) + 1))
    for category, (a, c) in enumerate(zip(prior, counts, strict=True)):
        reached = np.arange(low[category], high[category] + 1)
        deficits[category, : reached.size] = np.abs(np.expm1(log_affinity(a + c, a + reached)))
    return float(_mean_distance(vectors, n, weights, low, deficits))


def log_projected_pmf(n: int, vectors: Integers, log_weights: Floats) -> Floats:
    """Return the log-pmf, as in `CountRelease.log_pmf`, of the projection of a random vector in [0, n]^k."""
    k = vectors.shape[1]
    _require_categories(k)
    require_enumerable(n, k)
    largest = np.full(count_candidates(n, k), -np.inf)
    total = np.zeros(largest.size)
    _accumulate(vectors, n, log_weights, count_completions(n, k), largest, total)
    with np.errstate(divide="ignore"):
        return largest + np.log(total)


def _require_categories(k: int) -> None:
    if k > MAX_CATEGORIES:
        raise ValueError(f"there must be at most {MAX_CATEGORIES} categories to enumerate ties, got {k}; simulate")


@kernel
def _lower(s, n, above):
    """Mark the m entries above τ in `above`; return ⌊E/m⌋, E mod m and m, where E is the excess of their sum over n."""
    total, size = 0, s.size
    for category in range(s.size):
        above[category] = True
        total += s[category]
    dropped = True
    while dropped:
        dropped = False
        for category in range(s.size):
            # (total − n)/size is a lower bound on τ, which increases with each dropped entry.
            if above[category] and s[category] * size <= total - n:
                above[category] = False
                total -= s[category]
                size -= 1
                dropped = True
    shift = (total - n) // size
    return shift, total - n - shift * size, size


@kernel
def _project_rows(vectors, n, ties, counts):
    n_rows, k = vectors.shape
    s, above = np.empty(k, dtype=np.int64), np.empty(k, dtype=np.bool_)
    for row in range(n_rows):
        for category in range(k):
            s[category] = min(max(vectors[row, category], 0), n)
        shift, needed, size = _lower(s, n, above)
        for category in range(k):
            counts[row, category] = 0
            if above[category]:
                lost = ties[row, category] * size < needed  # selection sampling draws a uniform subset
                needed -= lost
                size -= 1
                counts[row, category] = s[category] - shift - lost


@kernel
def _next_subset(chosen):
    """Return the next larger integer with the same number of set bits (Gosper), for chosen > 0."""
    lowest = chosen & -chosen
    ripple = chosen + lowest
    lower_bits = (ripple ^ chosen) >> 2
    while lowest > 1:  # a division by the power of two, by shifts
        lower_bits, lowest = lower_bits >> 1, lowest >> 1
    return ripple | lower_bits


@kernel
def _mean_distance(vectors, n, weights, low, deficits):
    n_rows, k = vectors.shape
    above = np.empty(k, dtype=np.bool_)
    mean = 0.0
    for row in range(n_rows):
        shift, needed, size = _lower(vectors[row], n, above)
        distance, ways, chosen = 0.0, 0, (1 << needed) - 1
        while chosen < 1 << size:
            ways += 1
            lacking, i = 0.0, 0
            for category in range(k):
                x = 0
                if above[category]:
                    x = vectors[row, category] - shift - ((chosen >> i) & 1)
                    i += 1
                lacking += (1.0 - lacking) * deficits[category, x - low[category]]
            distance += math.sqrt(lacking)
            if needed == 0:
                break
            chosen = _next_subset(chosen)
        mean += weights[row] * distance / ways
    return mean


@kernel
def _accumulate(vectors, n, log_weights, sizes, largest, total):
    n_rows, k = vectors.shape
    above = np.empty(k, dtype=np.bool_)
    for row in range(n_rows):
        shift, needed, size = _lower(vectors[row], n, above)
        log_weight = log_weights[row]
        for i in range(needed):
            log_weight -= math.log((size - i) / (i + 1.0))  # each of C(m, E mod m) subsets is equally likely
        chosen = (1 << needed) - 1
        while chosen < 1 << size:
            index, rest, i = 0, n, 0
            for category in range(k):
                x = 0
                if above[category]:
                    x = vectors[row, category] - shift - ((chosen >> i) & 1)
                    i += 1
                # Skip the candidates with fewer records in this category.
                index += sizes[k - 1 - category, rest] - sizes[k - 1 - category, rest - x]
                rest -= x
            if log_weight <= largest[index]:
                total[index] += math.exp(log_weight - largest[index])
            else:
                total[index] = total[index] * math.exp(largest[index] - log_weight) + 1.0
                largest[index] = log_weight
            if needed == 0:
                break
            chosen = _next_subset(chosen)
