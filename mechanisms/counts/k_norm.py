"""K-norm mechanism on the lattice of counts.

Neighbouring counts differ by eⱼ − eᵢ. The norm whose unit ball is the convex hull of these differences is, for vectors
with Σv = 0, d(v) = ½‖v‖₁, the number of replaced records. The mechanism releases the lattice vector r = c + v with

    Pr[v] = exp(−ε·d(v)) / Z   for all integer vectors v with Σv = 0.

Entries of r may be below 0 and above n. Z does not depend on c, and |d(r − c) − d(r − c')| ≤ d(c − c') = 1 for
neighbours c and c', so the privacy loss is at most ε; it equals ε at r = c. At k = 2 the noise is two-sided geometric.

**Sampler.** With q = exp(−ε), draw

* J in {0, ..., k − 1} with probability ∝ C(k − 1, J)²·q^J, and two uniform subsets A, B of {1, ..., k − 1} of size J;
* independent G₁, ..., G_{k−1} with Pr[G = g] = (1 − q)·q^g; let hₜ = Gₜ + 1 if t is in B, and hₜ = Gₜ otherwise.

Categories in A are givers; all other categories except the last are takers. The last category is a taker if k − 1 is
in B, and a giver otherwise. For t = 1, ..., k − 1 move hₜ records from the current giver to the current taker, in each
case initially the first in the order of the categories; then advance to the next giver if t is in B, and to the next
taker otherwise. A draw takes O(k) time and 3k − 2 uniforms.

**Proof.** Let m = d(v). A category before the last is a giver if vᵢ < 0 and a taker if vᵢ ≥ 0; the last is a taker if
v_k > 0 and a giver if v_k ≤ 0. Partition [0, m] into consecutive intervals of the lengths −vᵢ of the givers, and into
intervals of the lengths vᵢ of the takers, both in the order of the categories. The k − 2 inner endpoints divide [0, m]
into k − 1 gaps; of coinciding endpoints, those of givers come first. Gaps that end at the endpoint of a giver are ≥ 1,
those that end at the endpoint of a taker are ≥ 0, and the last gap is ≥ 1 if the last category is a taker and ≥ 0
otherwise. There are no other constraints. Let A be the givers before the last category, and B the gaps that must be
≥ 1. Then |A| = |B|, and v ↔ (A, B, G) is a bijection with d(v) = |B| + ΣG. Summing q^d(v) gives the normaliser

    Z = Σⱼ C(k − 1, j)²·qʲ / (1 − q)^(k − 1).

**Classes of equal likelihood.** Let c be counts of n records, r an integer vector with Σr = n, s = clip(r, 0, n), and N
the sum of −rᵢ over the negative entries. Then d(r − c) = N + Σᵢ max(cᵢ − sᵢ, 0). So the likelihood of r depends on c
only through s, a sufficient statistic with finitely many values: the vectors in [0, n]^k whose sum is n, or whose sum
is larger and which have an entry 0. A value s has z entries 0, a entries n and N₀ = Σs − n. Its lattice vectors exceed
n by a total of T in the a entries and are below 0 by a total of N₀ + T in the z entries, for T ≥ 0. With q = exp(−ε),

    Σ_{r: clip(r) = s} exp(−ε·d(r − c)) = exp(−ε·Σᵢ max(cᵢ − sᵢ, 0))·M(s),
    M(s) = q^N₀·Σᵢ C(N₀ + z − 1, z − 1 − i)·C(a + i − 1, i)·qⁱ/(1 − q)^(a + i),   0 ≤ i < z,

and M(s) = 1 if z = 0. All terms are positive. Vandermonde's identity gives the sum from
Σ_T C(T + a − 1, a − 1)·C(N₀ + T + z − 1, z − 1)·q^T.

References
----------
Hardt & Talwar, "On the geometry of differential privacy", STOC 2010. Awan & Slavković, "Structure and sensitivity in
differential privacy: comparing K-norm mechanisms", Journal of the American Statistical Association 116, 2021. Ghosh,
Roughgarden & Sundararajan, "Universally utility-maximizing privacy mechanisms", SIAM Journal on Computing 41(6), 2012
(k = 2). Conway & Sloane, "Low-dimensional lattices VII: coordination sequences", Proceedings of the Royal Society A
453, 1997 (number of lattice vectors with d(v) = m).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, logsumexp
from scipy.stats import nbinom

from mechanisms.core.arguments import Floats, Integers
from mechanisms.core.conjugate import count_candidates, require_at_most
from mechanisms.core.exact_scales import laplace_scale_for
from mechanisms.core.jit import kernel
from mechanisms.core.metadata import Style
from mechanisms.core.noise import Noise, k_norm_log_normaliser, k_norm_log_weights
from mechanisms.core.privacy import Guarantee, pure_guarantee
from mechanisms.counts.candidates import MAX_CLASSES
from mechanisms.counts.mechanism import Mechanism
from mechanisms.counts.noise import NoisyCounts


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
    n_values, level = 0, 0
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
                        statistics[n_values, category] = s[category]
                    statistics[n_values, last] = value
                n_values += 1
    return n_values


_OMITTED = 1e-14  # largest probability of the noise that is omitted from an exact mean


@dataclass(frozen=True)
class KNormNoise:
    """K-norm noise; see `VectorNoise` for its methods.

    **Privacy.** ε-DP (proved) under replacement of one record, with n public, for the lattice vector and all its
    post-processing. Each gap is a function of one double, so these draws are for simulation.
    """

    epsilon: float

    def n_uniforms(self, k: int) -> int:
        return 3 * k - 2

    def vectors(self, counts: Integers, uniforms: Floats) -> Integers:
        vectors = np.empty((len(uniforms), counts.size), dtype=np.int64)
        _draw_lattice(counts, _cumulative(counts.size, self.epsilon), self.epsilon, uniforms, vectors)
        return vectors

    def clipped(self, counts: Integers, near: bool) -> tuple[Integers, Floats]:
        """Return the classes of lattice vectors; the omitted ones have a total probability of at most 1e-14."""
        classes = lattice_classes(counts, self.epsilon, _reach(counts, self.epsilon) if near else None)
        return classes.statistics, classes.log_pmf(counts)

    def profile(self, sensitivity: int) -> Guarantee:
        return Guarantee(self.epsilon * sensitivity / 2)


@lru_cache(maxsize=64)  # trials share the weights of their noise
def _cumulative(k: int, epsilon: float) -> Floats:
    """Return the cumulative weights of the number J of the sampler."""
    log_weights = k_norm_log_weights(k, epsilon)
    cumulative = np.cumsum(np.exp(log_weights - log_weights.max()))
    cumulative.flags.writeable = False
    return cumulative


def _reach(counts: Integers, epsilon: float) -> int:
    """Return the smallest D with Pr[d(v) > D] ≤ `_OMITTED`, where d(v) is J plus a negative binomial variable.

    It is at most (k − 1)·n, within which there is a vector of each class.
    """
    k, success = counts.size, -math.expm1(-epsilon)
    log_weights = k_norm_log_weights(k, epsilon)
    shares = np.exp(log_weights - logsumexp(log_weights))

    def is_sufficient(distance: int) -> bool:
        return bool(sum(shares * nbinom.sf(distance - np.arange(k), k - 1, success)) <= _OMITTED)

    largest = min(int(nbinom.isf(_OMITTED, k - 1, success)) + k, (k - 1) * int(counts.sum()))
    return bisect_left(range(largest), True, key=is_sufficient)


@kernel
def _draw_lattice(counts, cumulative, epsilon, uniforms, vectors):
    n_trials, k = vectors.shape
    last = k - 1
    advances, amounts = np.empty(last, dtype=np.int64), np.empty(last, dtype=np.int64)
    # The lists have a spare entry, as each step writes to both of them.
    givers, takers = np.empty(k + 1, dtype=np.int64), np.empty(k + 1, dtype=np.int64)
    for trial in range(n_trials):
        u = uniforms[trial]
        target, size = u[0] * cumulative[last], 0
        while size < last and cumulative[size] <= target:
            size += 1
        # Uniform subsets by selection sampling: each element is chosen with probability needed / remaining.
        needed = size
        for t in range(last):
            advances[t] = int(u[k + t] * (last - t) < needed)
            needed -= advances[t]
        needed, n_takers = size, 0
        for category in range(last):
            gives = int(u[1 + category] * (last - category) < needed)
            givers[size - needed], takers[n_takers] = category, category
            needed -= gives
            n_takers += 1 - gives
        givers[size], takers[n_takers] = last, last  # only one of the two lists is read up to this entry
        for t in range(last):
            amounts[t] = int(-math.log(1.0 - u[2 * k - 1 + t]) / epsilon) + advances[t]
        for category in range(k):
            vectors[trial, category] = counts[category]
        giver, taker = 0, 0
        for t in range(last):
            vectors[trial, givers[giver]] -= amounts[t]
            vectors[trial, takers[taker]] += amounts[t]
            giver += advances[t]
            taker += 1 - advances[t]


K_NORM = Mechanism(
    name="k-norm",
    note="K-norm noise on the lattice of counts (Hardt & Talwar 2010), projected; at k = 2 it equals geometric.",
    release=lambda prior, counts, epsilon, delta: NoisyCounts(prior, counts, KNormNoise(epsilon)), uses_prior=False,
    guarantee=pure_guarantee, symmetric=True, min_categories=3, origin="baseline", variant="Hardt & Talwar",
    exact_noise=lambda k, epsilon, delta: Noise("k-norm", laplace_scale_for(2, epsilon)).exact_sampler(k),
    style=Style("crimson", "H"),
)  # fmt: skip
