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
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import logsumexp
from scipy.stats import nbinom

from mechanisms.arguments import Floats, Integers
from mechanisms.counts.lattice_classes import lattice_classes
from mechanisms.counts.mechanism import Mechanism
from mechanisms.counts.noise import NoisyCounts
from mechanisms.exact_noise import laplace_scale_for
from mechanisms.jit import kernel
from mechanisms.metadata import Style
from mechanisms.noise import Noise, k_norm_log_normaliser, k_norm_log_weights
from mechanisms.privacy import Guarantee, pure_guarantee
from mechanisms.privacy_parameters import validate_epsilon

# smallest ε in nats. For smaller values the noise may exceed the integers that doubles represent exactly
MIN_EPSILON = 1e-12
_OMITTED = 1e-14  # largest probability of the noise that is omitted from an exact mean


@dataclass(frozen=True)
class KNormNoise:
    """K-norm noise; see `VectorNoise` for its methods.

    **Privacy.** ε-DP (proved) under replacement of one record, with n public, for the lattice vector and all its
    post-processing. Each gap is a function of one double, so these draws are for simulation.
    """

    epsilon: float

    def __post_init__(self) -> None:
        if validate_epsilon(self.epsilon) < MIN_EPSILON:
            raise ValueError(f"epsilon must be >= {MIN_EPSILON:g}, got {self.epsilon}; choose a larger epsilon")

    def n_uniforms(self, k: int) -> int:
        return 3 * k - 2

    def vectors(self, counts: Integers, uniforms: Floats) -> Integers:
        vectors = np.empty((len(uniforms), counts.size), dtype=np.int64)
        _draw_lattice(counts, _cumulative(counts.size, self.epsilon), self.epsilon, uniforms, vectors)
        return vectors

    def clipped(self, counts: Integers, near: bool) -> tuple[Integers, Floats]:
        """Return the classes of lattice vectors; the omitted ones have a total probability of at most 1e-14."""
        classes = lattice_classes(counts, self.epsilon, _reach(counts.size, self.epsilon) if near else None)
        return classes.statistics, classes.log_pmf(counts)

    def log_likelihood(self, residuals: Integers) -> Floats:
        """Return −ε·½‖z‖₁ − ln Z."""
        return -self.epsilon * np.maximum(residuals, 0).sum(axis=-1) - k_norm_log_normaliser(
            residuals.shape[-1], self.epsilon
        )

    def profile(self, sensitivity: int) -> Guarantee:
        return Guarantee(self.epsilon * sensitivity / 2)


@lru_cache(maxsize=64)
def _cumulative(k: int, epsilon: float) -> Floats:
    """Return the cumulative weights of the number J of the sampler."""
    log_weights = k_norm_log_weights(k, epsilon)
    cumulative = np.cumsum(np.exp(log_weights - log_weights.max()))
    cumulative.flags.writeable = False
    return cumulative


def _reach(k: int, epsilon: float) -> int:
    """Return the smallest D with Pr[d(v) > D] ≤ `_OMITTED`, where d(v) is J plus a negative binomial variable."""
    log_weights = k_norm_log_weights(k, epsilon)
    shares = np.exp(log_weights - logsumexp(log_weights))
    success = -math.expm1(-epsilon)
    distances = np.arange(int(nbinom.isf(_OMITTED, k - 1, success)) + k)
    tail = sum(share * nbinom.sf(distances - j, k - 1, success) for j, share in enumerate(shares))
    return int(np.argmax(tail <= _OMITTED))


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
    exact_noise=lambda k, epsilon, delta: Noise("k-norm", laplace_scale_for(2, epsilon)).draw_exactly(k),
    style=Style("crimson", "H"),
)  # fmt: skip
