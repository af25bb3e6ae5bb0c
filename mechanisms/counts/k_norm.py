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
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp
from scipy.stats import nbinom

from mechanisms.conjugate import validate_counts, validate_prior
from mechanisms.counts.candidates import require_uniforms
from mechanisms.counts.lattice_classes import lattice_classes, log_cone_weights, log_normaliser
from mechanisms.counts.projection import log_projected_pmf, mean_projected_distance, project, projects_to
from mechanisms.counts.release import CountRelease
from mechanisms.jit import kernel
from mechanisms.privacy_parameters import validate_epsilon

__all__ = [
    "MIN_EPSILON",
    "KNormCounts",
    "LatticeRelease",
    "k_norm_counts",
    "projected_log_likelihood",
    "validate_datasets",
]

MIN_EPSILON = 1e-12
"""Smallest ε in nats. For smaller values the noise may exceed the integers that doubles represent exactly."""

_OMITTED = 1e-14
"""Largest probability of the noise that is omitted from an exact mean."""


def k_norm_counts(prior: ArrayLike, counts: ArrayLike, epsilon: float) -> KNormCounts:
    """Return the K-norm release of `counts`.

    The prior affects `expected_hellinger`, but not the release.

    Privacy
    -------
    ε-DP (proved) under replacement of one record, with n public, for the lattice vector and all its post-processing.
    The release reveals n = Σr, so there is no guarantee if n is private. Each gap is a function of one double, and its
    tail has the resolution of the uniform: these draws are for simulation, not for the protection of data.
    """
    alpha = validate_prior(prior)
    c = validate_counts(counts, k=alpha.size)
    epsilon = validate_epsilon(epsilon)
    if epsilon < MIN_EPSILON:
        raise ValueError(f"epsilon must be >= {MIN_EPSILON:g}, got {epsilon}; choose a larger epsilon")
    log_weights = log_cone_weights(c.size, epsilon)
    cumulative = np.cumsum(np.exp(log_weights - log_weights.max()))
    for table in (alpha, c, cumulative):
        table.flags.writeable = False
    return KNormCounts(alpha, c, epsilon, cumulative)


def _reach(k: int, epsilon: float) -> int:
    """Return the smallest D with Pr[d(v) > D] ≤ `_OMITTED`, where d(v) is J plus a negative binomial variable."""
    log_weights = log_cone_weights(k, epsilon)
    shares = np.exp(log_weights - logsumexp(log_weights))
    success = -math.expm1(-epsilon)
    distances = np.arange(int(nbinom.isf(_OMITTED, k - 1, success)) + k)
    tail = sum(share * nbinom.sf(distances - j, k - 1, success) for j, share in enumerate(shares))
    return int(np.argmax(tail <= _OMITTED))


@dataclass(frozen=True, eq=False, repr=False)
class KNormCounts(CountRelease):
    """Output distribution of the K-norm mechanism at one data set, created by `k_norm_counts`.

    `release` draws lattice vectors, which are the input of inference. All other methods describe the counts to which
    these vectors are projected.
    """

    prior: NDArray[np.float64]
    counts: NDArray[np.int64]
    epsilon: float
    _cumulative: NDArray[np.float64] = field(repr=False)

    @property
    def n_uniforms(self) -> int:
        """Number of uniforms per draw: 3k − 2 for the lattice vector and k for ties of the projection."""
        return 4 * self.k - 2

    def release(self, rng: np.random.Generator, size: int) -> LatticeRelease:
        """Return `size` independent lattice vectors."""
        return self.release_from_uniforms(rng.random((size, self.n_uniforms)))

    def release_from_uniforms(self, uniforms: NDArray[np.float64]) -> LatticeRelease:
        """Return one lattice vector per row of `uniforms`; see `CountRelease.from_uniforms`."""
        u = require_uniforms(uniforms, self.n_uniforms)
        vectors = np.empty((len(u), self.k), dtype=np.int64)
        _draw_lattice(self.counts, self._cumulative, self.epsilon, u, vectors)
        return LatticeRelease(vectors, self.n, self.epsilon, u[:, 3 * self.k - 2 :])

    def from_uniforms(self, uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
        """Draw projected counts; see `CountRelease.from_uniforms`."""
        return self.release_from_uniforms(uniforms).counts

    def expected_hellinger(self) -> float:
        """Return the mean Hellinger distance from the true posterior to that of the projected counts, by enumeration.

        The omitted classes have a total probability of at most 1e-14, which bounds the error, as no distance exceeds 1.
        """
        classes = lattice_classes(self.counts, self.epsilon, _reach(self.k, self.epsilon))
        return mean_projected_distance(
            self.prior, self.counts, classes.statistics, np.exp(classes.log_pmf(self.counts))
        )

    def log_pmf(self) -> NDArray[np.float64]:
        """Return the log-pmf of the projected counts over all counts of n records; see `CountRelease.log_pmf`.

        All classes are enumerated, so the relative error of each probability is small.
        """
        classes = lattice_classes(self.counts, self.epsilon)
        return log_projected_pmf(self.n, classes.statistics, classes.log_pmf(self.counts))


@dataclass(frozen=True, eq=False)
class LatticeRelease:
    """Lattice vectors released by the K-norm mechanism.

    All attributes are public. Inference should use `log_likelihood` of the vectors rather than `counts`, which lose
    information near the edges of the simplex.
    """

    # r, shape (trials, k), each row with sum n; entries may be below 0 and above n
    vectors: NDArray[np.int64] = field(repr=False)
    n: int
    epsilon: float
    # uniforms in [0, 1), shape (trials, k), independent of the data, which break ties
    ties: NDArray[np.float64] = field(repr=False)

    def __post_init__(self) -> None:
        v = self.vectors
        if v.ndim != 2 or v.dtype.kind not in "iu" or np.any(v.sum(axis=1) != self.n):
            raise ValueError(
                f"vectors must be integers of shape (trials, k) with rows of sum n = {self.n}, got {v.dtype} of shape "
                f"{v.shape}; pass vectors as released"
            )
        v.flags.writeable = False

    @property
    def counts(self) -> NDArray[np.int64]:
        """Projected counts ≥ 0 with sum n, shape (trials, k); see `mechanisms.counts.projection`."""
        return project(self.vectors, self.n, self.ties)

    def log_likelihood(self, datasets: ArrayLike) -> NDArray[np.float64]:
        """Return ln Pr[r | c], shape (trials, D), for each released vector r and each row c of `datasets`."""
        k = self.vectors.shape[1]
        c = validate_datasets(datasets, k, self.n)
        distances = np.maximum(self.vectors[:, None, :] - c, 0).sum(axis=2)
        return -self.epsilon * distances - log_normaliser(k, self.epsilon)


def projected_log_likelihood(released: ArrayLike, datasets: ArrayLike, epsilon: float) -> NDArray[np.float64]:
    """Return ln Pr[projected counts | c], for inference without the lattice vector.

    The likelihood is summed over all lattice vectors that are projected to `released`. Only one vector is projected to
    `released` if all released counts are ≥ 1.
    """
    projected = validate_counts(released)
    c = validate_datasets(datasets, projected.size, int(projected.sum()))
    epsilon = validate_epsilon(epsilon)
    if np.all(projected >= 1):
        statistics, log_shares = projected[None], np.zeros(1)
    else:
        classes = lattice_classes(projected, epsilon)
        shares = projects_to(projected, classes.statistics)
        statistics = classes.statistics[shares > 0]
        log_shares = np.log(shares[shares > 0]) + classes.log_multiplicities[shares > 0]
    lacking = np.array([np.maximum(counts - statistics, 0).sum(axis=1) for counts in c])
    log_likelihood = logsumexp(log_shares - epsilon * lacking, axis=1)
    return np.asarray(log_likelihood - log_normaliser(projected.size, epsilon))


def validate_datasets(datasets: ArrayLike, k: int, n: int) -> NDArray[np.int64]:
    """Return rows of counts as integers; raise ValueError if they are not counts of `n` records in `k` categories."""
    c = np.asarray(datasets)
    if c.ndim != 2 or c.shape[1] != k or c.dtype.kind not in "iu" or np.any(c < 0) or np.any(c.sum(axis=1) != n):
        raise ValueError(
            f"datasets must be integers >= 0 of shape (D, {k}) with rows of sum n = {n}, got {c.dtype} of shape "
            f"{c.shape}; pass counts of n records"
        )
    return c.astype(np.int64)


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
