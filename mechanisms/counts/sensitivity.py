"""Local, smooth, varying and global sensitivity of the Hellinger score.

The score of an output r is the Hellinger distance H(posterior(c), r), written H(c, r). Replacing one record (category i
to category j) turns c into c''. By the triangle inequality |H(c, r) − H(c'', r)| ≤ H(c, c''), with equality at the
output r = posterior(c''). So the local sensitivity of P0 and P1 is exactly LS(c) = max over neighbours c'' of
H(c, c''), and with φ(a) = ℓ(a, a+1) (see `mechanisms.core.hellinger`)

    H²(c, c'') = 1 − exp( φ(αᵢ + cᵢ − 1) + φ(αⱼ + cⱼ) ).                                              (*)

φ is increasing and concave: φ'(a) = ψ(a+½) − ½[ψ(a) + ψ(a+1)] ≥ 0 as ψ is concave, and
φ''(a) = ψ'(a+½) − ½[ψ'(a) + ψ'(a+1)] ≤ 0 as ψ' is convex. The sensitivity is therefore large at data sets with two
nearly empty categories, and all its maxima over data sets can be computed without enumeration.

References
----------
Nissim, Raskhodnikova & Smith, "Smooth sensitivity and sampling in private data analysis", STOC 2007 (NRS below).
"""

from __future__ import annotations

import math
from enum import Enum
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.core.arguments import Floats, Integers
from mechanisms.core.hellinger import log_affinity
from mechanisms.core.jit import kernel

_CACHED_NUMBERS = 1 << 20  # larger tables are not kept in memory


class Rule(Enum):
    """Sensitivity that scales the score of a calibrated mechanism."""

    SMOOTH = "smooth"
    VARYING = "varying"
    GLOBAL = "global"
    HAMMING = "hamming"


def phi(a: ArrayLike) -> Floats:
    """Return φ(a) = ℓ(a, a+1) = lnΓ(a+½) − ½lnΓ(a) − ½lnΓ(a+1) for a > 0, about −1/(8a) for large a."""
    values = np.asarray(a, dtype=np.float64)
    return log_affinity(values, values + 1.0)


def local_sensitivity(prior: ArrayLike, counts: ArrayLike) -> float:
    """Return LS(c) in (0, 1], the largest change of the score of any output by one replaced record; it is private."""
    alpha, c = np.asarray(prior, dtype=np.float64), np.asarray(counts, dtype=np.int64)
    occupied = np.flatnonzero(c)
    leaving = phi(alpha[occupied] + (c[occupied] - 1))
    sums = leaving[:, None] + phi(alpha + c)
    sums[np.arange(occupied.size), occupied] = np.inf  # a replaced record changes its category
    return _distance(float(sums.min()))


def local_sensitivity_at_distance(prior: ArrayLike, counts: ArrayLike) -> Floats:
    """Return A[t], the largest local sensitivity over the data sets within Hamming distance t of `counts`.

    This is A^(t) of NRS (section 3). Smooth, varying and global sensitivity follow from this profile. The result has
    shape (T + 1,) and is non-decreasing; A[0] = LS(counts), and T is the smallest distance at which the global
    sensitivity is attained.

    The distance between data sets is the number of replaced records, ½‖c − c'‖₁. By (*) in the module docstring, LS(c')
    is given by the ordered pair (i, j), c'ᵢ ≥ 1, with the smallest φ(αᵢ + c'ᵢ − 1) + φ(αⱼ + c'ⱼ).

    * k ≥ 3. Remove dᵢ ≤ cᵢ − 1 records from category i and dⱼ ≤ cⱼ from category j; other categories absorb them, so
      t = dᵢ + dⱼ. For a fixed t the sum is concave in dᵢ along a segment (φ is concave), hence minimal at an end of
      the segment, where one category is emptied before the other. It is sufficient to empty i first for all ordered
      pairs: emptying j first improves on the pair (j, i) only if the next decrease of φ in i exceeds that in j, and
      then, as decreases only grow, removing all records from i is better still. If cᵢ = 0, one record must first move
      into i, and it can come from j: t = max(1, dⱼ).
    * k = 2. Records that leave one category enter the other. The data sets are the points 0..n of a line, and the sum
      of (*) is a concave function of the step between adjacent points, so the minimum within distance t is at an end.

    The cost is O(k·n), or O(n) at k = 2, as no data set is enumerated.
    """
    alpha, c = np.asarray(prior, dtype=np.float64), np.asarray(counts, dtype=np.int64)
    size = int(c.sum()) + 1
    tabulate = _cached_tabulate_phi if alpha.size * size <= _CACHED_NUMBERS else _tabulate_phi
    table = tabulate(tuple(alpha.tolist()), size)
    smallest = np.minimum.accumulate(_smallest_sums(table, c))
    smallest = smallest[: int(np.argmin(smallest)) + 1]
    return np.sqrt(-np.expm1(smallest))


def global_sensitivity(prior: ArrayLike, n: int) -> float:
    """Return the global sensitivity, the largest local sensitivity over all data sets of `n` records.

    It is in (0, 1] and independent of the data; it depends on n only at k = 2.

    k ≥ 3: the maximum √(1 − exp(φ(αᵢ) + φ(αⱼ))) is attained if one record moves between the two categories of smallest
    α and all other records are in other categories. k = 2: the exponent of (*) is concave in the step, so it is minimal
    at c₁ = 1 or c₁ = n.
    """
    alpha = np.asarray(prior, dtype=np.float64)
    if alpha.size == 2:
        first, second = phi(alpha), phi(alpha + (n - 1))
        return _distance(float(min(first[0] + second[1], second[0] + first[1])))
    smallest = phi(np.sort(alpha)[:2])
    return _distance(float(smallest[0] + smallest[1]))


def smooth_sensitivity(prior: ArrayLike, counts: ArrayLike, gamma: float) -> float:
    """Return S(c) = max over data sets c' of LS(c')·exp(−γ·d(c, c')) (P0; NRS, section 2), with γ > 0 per record.

    LS(c) ≤ S(c) ≤ global sensitivity; S(c) ≤ exp(γ)·S(c') for neighbours c, c'.
    """
    profile = local_sensitivity_at_distance(prior, counts)
    return float(np.max(profile * np.exp(-gamma * np.arange(profile.size))))


def varying_sensitivity(prior: ArrayLike, counts: ArrayLike, gamma: float = 1.0) -> float:
    """Return the varying sensitivity S(c), where 1/S(c) = min over data sets c' of 1/LS(c') + γ·d(c, c').

    The section of P1 on the varying sensitivity is empty. Here it is defined as the smallest S ≥ LS whose *reciprocal*
    changes by at most γ per record; the smooth sensitivity is the smallest S ≥ LS whose logarithm changes by at most γ
    per record. LS(c) ≤ S(c) ≤ global sensitivity; |1/S(c) − 1/S(c')| ≤ γ for neighbours c, c'.

    With u = H(c, r), u' = H(c', r) for neighbours: |u/S − u'/S'| ≤ |u − u'|/S + u'·|1/S − 1/S'| ≤ 1 + γ, as |u − u'| ≤
    LS(c) ≤ S(c) and u' ≤ 1. So the exponential mechanism with weights exp(−ε·u/(2(1+γ)·S)) is ε-DP.
    """
    profile = local_sensitivity_at_distance(prior, counts)
    return float(1.0 / np.min(1.0 / profile + gamma * np.arange(profile.size)))


def smoothed_scales(rule: Rule, prior: Floats, datasets: Integers, gamma: float) -> Floats:
    """Return the smooth, varying or global sensitivity at D data sets of equal size n ≥ 1, the rows of `datasets`."""
    n = int(datasets[0].sum())
    if rule is Rule.GLOBAL:
        return np.full(len(datasets), global_sensitivity(prior, n))
    return _scales(_tabulate_phi(tuple(prior.tolist()), n + 1), datasets, gamma, rule is Rule.SMOOTH)


def _tabulate_phi(prior: tuple[float, ...], size: int) -> Floats:
    """Return φ(αᵢ + x) for x = 0, ..., size − 1, shape (k, size)."""
    table = phi(np.array(prior)[:, None] + np.arange(size))
    table.flags.writeable = False
    return table


_cached_tabulate_phi = lru_cache(maxsize=4)(_tabulate_phi)  # audits evaluate data sets of one size, in several threads


def _distance(log_affinity_sum: float) -> float:
    return math.sqrt(-math.expm1(log_affinity_sum))


@kernel
def _scales(phi_table, datasets, gamma, is_smooth):
    scales = np.empty(len(datasets))
    for row in range(len(datasets)):
        smallest = _smallest_sums(phi_table, datasets[row])
        best, lowest = np.inf, np.inf
        for t in range(smallest.size):
            if smallest[t] < lowest:  # if this is not met, a smaller t gives a larger sensitivity
                lowest = smallest[t]
                reached = math.sqrt(-math.expm1(lowest))
                best = min(best, math.exp(gamma * t) / reached if is_smooth else 1.0 / reached + gamma * t)
        scales[row] = 1.0 / best
    return scales


@kernel
def _smallest_sums(phi_table, counts):
    """Return the least φ(αᵢ+c'ᵢ−1) + φ(αⱼ+c'ⱼ) at each distance t, which need not be monotone in t."""
    k = counts.size
    n = counts.sum()
    smallest = np.full(n + 1, np.inf)
    if k == 2:
        for t in range(n):  # step s is between (s+1, n−s−1) and (s, n−s)
            for s in (max(counts[0] - 1 - t, 0), min(counts[0] + t, n - 1)):
                smallest[t] = min(smallest[t], phi_table[0, s] + phi_table[1, n - 1 - s])
        return smallest
    for i in range(k):
        for j in range(k):
            if i == j:
                continue
            c_i, c_j = counts[i], counts[j]
            if c_i == 0:
                for t in range(1, max(1, c_j) + 1):
                    value = phi_table[i, 0] + phi_table[j, max(c_j - t, 0)]
                    smallest[t] = min(smallest[t], value)
                continue
            for t in range(c_i + c_j):
                from_i = min(t, c_i - 1)
                value = phi_table[i, c_i - 1 - from_i] + phi_table[j, c_j - (t - from_i)]
                smallest[t] = min(smallest[t], value)
    return smallest
