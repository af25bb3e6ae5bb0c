"""Lattice vectors of the K-norm mechanism, grouped into classes of equal likelihood.

Let c be counts of n records, r an integer vector with Σr = n, s = clip(r, 0, n), and N the sum of −rᵢ over the negative
entries. Then d(r − c) = N + Σᵢ max(cᵢ − sᵢ, 0). So the likelihood of r depends on c only through s, a sufficient
statistic with finitely many values: the vectors in [0, n]^k whose sum is n, or whose sum is larger and which have an
entry 0. A value s has z entries 0, a entries n and N₀ = Σs − n. Its lattice vectors exceed n by a total of T in the a
entries and are below 0 by a total of N₀ + T in the z entries, for T ≥ 0. With q = exp(−ε),

    Σ_{r: clip(r) = s} exp(−ε·d(r − c)) = exp(−ε·Σᵢ max(cᵢ − sᵢ, 0))·M(s),
    M(s) = q^N₀·Σᵢ C(N₀ + z − 1, z − 1 − i)·C(a + i − 1, i)·qⁱ/(1 − q)^(a + i),   0 ≤ i < z,

and M(s) = 1 if z = 0. All terms are positive. Vandermonde's identity gives the sum from
Σ_T C(T + a − 1, a − 1)·C(N₀ + T + z − 1, z − 1)·q^T.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, logsumexp

from mechanisms.arguments import Floats, Integers
from mechanisms.conjugate import count_candidates, require_at_most
from mechanisms.jit import kernel
from mechanisms.noise import k_norm_log_normaliser

MAX_CLASSES = 4_000_000  # largest number of enumerated classes, which take about a second, and 32 MB per category


class LatticeClasses(NamedTuple):
    """Classes of lattice vectors r with equal s = clip(r, 0, n), as defined in the module docstring."""

    statistics: Integers  # s of each class, shape (m, k), in lexicographic order
    log_multiplicities: Floats  # ln M(s) of each class, shape (m,)
    epsilon: float  # of the K-norm mechanism, in nats

    def log_pmf(self, counts: Integers) -> Floats:
        """Return the log probability of each class given true counts of shape (k,)."""
        lacking = np.maximum(counts - self.statistics, 0).sum(axis=1)
        return self.log_multiplicities - self.epsilon * lacking - k_norm_log_normaliser(counts.size, self.epsilon)


def count_vectors(k: int, distance: int) -> int:
    """Return the number of integer vectors v with k entries, Σv = 0 and d(v) = ½‖v‖₁ ≤ `distance` (Conway & Sloane)."""
    last = k - 1
    return sum(math.comb(last, j) ** 2 * math.comb(distance - j + last, last) for j in range(min(last, distance) + 1))


def count_classes(n: int, k: int) -> int:
    """Return the number of classes of lattice vectors for `n` records in `k` categories: (n + 1)(2n + 1) at k = 3."""
    # m of the k entries are positive: n^m vectors, of which C(n, m) have a sum of at most n.
    larger = sum(math.comb(k, m) * (n**m - math.comb(n, m)) for m in range(1, k))
    return count_candidates(n, k) + larger


def lattice_classes(counts: Integers, epsilon: float, distance: int | None = None) -> LatticeClasses:
    """Return the classes of lattice vectors r with equal s = clip(r, 0, n) in `clipped_vectors`."""
    n, k = int(counts.sum()), counts.size
    statistics = clipped_vectors(counts, distance)
    above = statistics.sum(axis=1) - n
    zeros, full = (statistics == 0).sum(axis=1), (statistics == n).sum(axis=1)
    table = _log_multiplicities(k, int(above.max()), epsilon)
    return LatticeClasses(statistics, table[zeros, full, above], epsilon)


def clipped_vectors(counts: Integers, distance: int | None = None) -> Integers:
    """Return the values s = clip(r, 0, n) of lattice vectors r, all or those with d(r − c) ≤ `distance` for some r."""
    n, k = int(counts.sum()), counts.size
    bound = count_classes(n, k)
    if distance is not None:
        bound = min(bound, count_vectors(k, distance))
    advice = "use fewer records or categories, less noise, or simulation"
    require_at_most(MAX_CLASSES, "classes of lattice vectors to enumerate", bound, n, k, advice)
    reach = (k - 1) * n if distance is None else min(distance, (k - 1) * n)
    size = _enumerate(counts, n, reach, np.empty((0, k), dtype=np.int64))
    statistics = np.empty((size, k), dtype=np.int64)
    _enumerate(counts, n, reach, statistics)
    return statistics


@lru_cache(maxsize=8)  # an audit calls this function with equal arguments at all data sets
def _log_multiplicities(k: int, largest: int, epsilon: float) -> Floats:
    """Return ln M(s) as a table indexed by z, a and N₀ of the module docstring, shape (k, k, largest + 1)."""
    above = np.arange(largest + 1, dtype=np.float64)
    log_rest = math.log(-math.expm1(-epsilon))
    table = np.full((k, k, largest + 1), -np.inf)
    table[0, 0, 0] = 0.0
    for zeros in range(1, k):
        for full in range(k - zeros + 1):
            terms = []
            for i in range(zeros if full else 1):
                below = gammaln(above + zeros) - gammaln(zeros - i) - gammaln(above + i + 1.0)
                extra = math.lgamma(full + i) - math.lgamma(full) - math.lgamma(i + 1) if full else 0.0
                terms.append(below + extra - epsilon * i - (full + i) * log_rest)
            table[zeros, full] = logsumexp(terms, axis=0) - epsilon * above
    table.flags.writeable = False
    return table


@kernel
def _enumerate(counts, n, reach, statistics):
    """Return the number of values s within `reach` of `counts`; fill `statistics` unless it has no rows."""
    k = counts.size
    s = np.zeros(k, dtype=np.int64)
    # Totals over the entries before a level: their sum, records above and below the true counts, and zeros.
    total, excess, lack = np.zeros(k, dtype=np.int64), np.zeros(k, dtype=np.int64), np.zeros(k, dtype=np.int64)
    zeros = np.zeros(k, dtype=np.int64)
    found, level = 0, 0
    s[0] = max(counts[0] - reach, 0) - 1
    last = k - 1
    while level >= 0:
        s[level] += 1
        if s[level] > min(n, counts[level] + reach):
            level -= 1
            continue
        more, less = max(s[level] - counts[level], 0), max(counts[level] - s[level], 0)
        if excess[level] + more > reach or lack[level] + less > reach:
            continue
        above = level + 1
        total[above], zeros[above] = total[level] + s[level], zeros[level] + (s[level] == 0)
        excess[above], lack[above] = excess[level] + more, lack[level] + less
        if above < last:
            level = above
            s[level] = max(counts[level] - reach, 0) - 1
            continue
        first = max(n - total[last], 0)
        final = min(n, counts[last] + reach - excess[last]) if zeros[last] > 0 else first
        for value in range(first, final + 1):
            if excess[last] + max(value - counts[last], 0) <= reach:
                if statistics.shape[0] > 0:
                    for category in range(last):
                        statistics[found, category] = s[category]
                    statistics[found, last] = value
                found += 1
    return found
