"""Streaming over all candidates, the counts of n records in k categories, without storing them.

In lexicographic order the candidates form *rows*. Within a row the counts of the first k − 2 categories (the *prefix*)
and the remaining number of records are fixed, and the second-to-last count runs from 0 to this number. Squared
Hellinger distances within a row need three multiplications each, from one table per category: for equal totals, with
the log affinity ℓ of `mechanisms.core.hellinger`,

    H² = 1 − Πᵢ (1 − Dᵢ[c'ᵢ]),   Dᵢ[x] = 1 − exp(ℓ(αᵢ + cᵢ, αᵢ + x)).

One minus the product is accumulated as D ← D + (1 − D)·Dᵢ. All terms are positive, so small distances stay accurate.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from mechanisms.core.arguments import Floats, Integers, real_array
from mechanisms.core.conjugate import MAX_ENUMERATED, count_candidates, require_at_most, tabulate_candidates
from mechanisms.core.hellinger import log_affinity
from mechanisms.core.jit import kernel

MAX_STREAMED = 2_000_000_000  # largest number of streamed candidates, which take about ten seconds per pass
MAX_CLASSES = 4_000_000  # largest number of enumerated noisy vectors: about a second, and 32 MB per category
# share of a mean below which its terms are omitted: even `MAX_STREAMED` of them do not change a bit of the mean
NEGLIGIBLE = 2.0**-140
MAX_TABLE = 25_000_000  # largest number of table entries per data set: 200 MB
FEWER = "use fewer records, merge categories, or choose a mechanism that only adds noise"

_CACHED_RECORDS, _CACHED_ROWS = 1_000, 8_192  # at most 66 MB; audits need each row at many data sets


def require_streamable(n: int, k: int) -> None:
    """Raise ValueError if there are too many candidates, the counts of n records in k categories, to stream."""
    require_at_most(MAX_STREAMED, "candidates to stream", count_candidates(n, k), n, k, FEWER)
    require_at_most(MAX_TABLE, "entries of tables in memory", count_table(n, k), n, k, FEWER)


def count_table(n: int, k: int) -> int:
    """Return the number of table entries for streaming: k + 2 per row and n + 1 per category."""
    n_rows = count_candidates(n, k - 1) if k > 2 else 1
    return n_rows * (k + 2) + k * (n + 1)


def require_enumerable(n: int, k: int) -> None:
    """Raise ValueError if the log-pmf over all counts of n records in k categories does not fit in memory."""
    require_streamable(n, k)
    require_at_most(MAX_ENUMERATED, "candidates to list their probabilities", count_candidates(n, k), n, k)


def category_deficits(prior: Floats, counts: Integers) -> Floats:
    """Return D[i, x] = 1 − exp(ℓ(αᵢ + cᵢ, αᵢ + x)) in [0, 1], one minus the affinity of category i at x ≤ n records."""
    n = int(counts.sum())
    row = _cached_deficits if n <= _CACHED_RECORDS else _deficits
    return np.array([row(alpha, count, n) for alpha, count in zip(prior.tolist(), counts.tolist(), strict=True)])


def _deficits(alpha: float, count: int, n: int) -> Floats:
    """Return one row of `category_deficits`, shape (n + 1,)."""
    row = np.abs(np.expm1(log_affinity(alpha + count, alpha + np.arange(n + 1))))
    row.flags.writeable = False
    return row


_cached_deficits = lru_cache(_CACHED_ROWS)(_deficits)


def enumerate_rows(n: int, k: int) -> Integers:
    """Return rows (n_rows, k − 1) in lexicographic order: first k − 2 counts, then the sum of the last two counts."""
    if k == 2:
        return np.array([[n]], dtype=np.int64)
    return tabulate_candidates(n, k - 1)


def remaining_records(rows: Integers) -> Integers:
    """Return the sum of the last two counts of each row, in contiguous memory: kernels compile for each layout."""
    return np.ascontiguousarray(rows[:, -1])


def row_deficits(deficits: Floats, rows: Integers) -> Floats:
    """Return 1 − Π (1 − Dᵢ) for each row, where the product is over the first k − 2 categories."""
    total = np.zeros(len(rows))
    for category in range(rows.shape[1] - 1):
        total += (1.0 - total) * deficits[category, rows[:, category]]
    return total


def candidate_distances(prior: Floats, counts: Integers, rows: Integers) -> Floats:
    """Return the Hellinger distances H(posterior(c), posterior(c')) in the order of `enumerate_candidates`."""
    deficits = category_deficits(prior, counts)
    return combine_deficits(deficits, rows, row_deficits(deficits, rows))


def combine_deficits(deficits: Floats, rows: Integers, prefix: Floats) -> Floats:
    """Return the distances of `candidate_distances` from tables, with `prefix` from `row_deficits`."""
    remaining = remaining_records(rows)
    distances = np.empty(int((remaining + 1).sum()))
    _fill_distances(remaining, prefix, deficits[-2], deficits[-1], distances)
    return distances


@kernel
def _fill_distances(remaining, prefix, first, second, distances):
    start = 0
    for row in range(remaining.size):
        top = remaining[row]
        for x in range(top + 1):
            a = first[x]
            distances[start + x] = math.sqrt(prefix[row] + (1.0 - prefix[row]) * (a + (1.0 - a) * second[top - x]))
        start += top + 1


def require_uniforms(uniforms: Floats, n_uniforms: int) -> Floats:
    """Return `uniforms` as a contiguous float64 array of shape (trials, n_uniforms) with values in [0, 1)."""
    values = np.ascontiguousarray(real_array("uniforms", uniforms))
    if values.ndim != 2 or values.shape[1] != n_uniforms:
        raise ValueError(f"uniforms must have shape (trials, {n_uniforms}), got {values.shape}; draw as many per trial")
    if not (values.min(initial=0.0) >= 0.0 and values.max(initial=0.0) < 1.0):  # the condition also rejects NaN
        bad = values[~((values >= 0) & (values < 1))][0]
        raise ValueError(f"uniforms must be in [0, 1), got {bad}; use Generator.random")
    return values
