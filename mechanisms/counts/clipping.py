"""Noisy counts of the first k − 1 categories, clipped in order to counts of n records.

c̃ᵢ = clip( round(cᵢ + Zᵢ), 0, n − Σ_{j<i} c̃ⱼ )  for i < k,   c̃ₖ = n − Σ_{j<k} c̃ⱼ.
"""

from __future__ import annotations

import math

import numpy as np

from mechanisms.arguments import Floats, Integers
from mechanisms.conjugate import tabulate_candidates
from mechanisms.counts import candidates
from mechanisms.jit import kernel
from mechanisms.noise import Noise

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
    return float(_stream_mean(rows[:, -1], probability, prefix, deficits[-2], deficits[-1], *last))


def log_clipped_pmf(counts: Integers, pmfs: CategoryPmfs) -> Floats:
    """Return the log-pmf of c̃ in the order of `mechanisms.conjugate.enumerate_candidates`."""
    n, k = int(counts.sum()), counts.size
    candidates.require_enumerable(n, k)
    return _log_probabilities(n, tabulate_candidates(n, k), *pmfs)


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
