"""Private bounds on unbounded values by the sparse vector technique over doubling intervals (P2, chapter 4).

One of M values may change arbitrarily between neighbours. The search finds the first interval [−μ2ᵗ, μ2ᵗ],
t = 0, 1, 2, …, that contains a fraction θ of the values, up to noise:

    smallest t < T with #{j : |qⱼ| ≤ μ2ᵗ} + νₜ ≥ θM + ρ,   νₜ ~ Lap(4/ε),  ρ ~ Lap(2/ε),   and T if there is none.

The number of doublings is at most T, whatever the values. Without a bound the search would not end if θM + ρ exceeds
all noisy counts, and the bounds would overflow. The last interval is not tested. `calibrate_search` multiplies both
scales by the smallest factor for which the exact loss is ε.

**Privacy.** Replacing a record changes one value and every count by at most 1. Fix all νᵢ, i < t. Between neighbours
the largest noisy count before t changes by at most 1, and so does the count at t. Shifting ρ by 1 and νₜ by 2
compensates, at a loss of ε/2 each (Dwork & Roth 2014, theorem 3.23). As the intervals are nested, all counts change in
the same direction, and shifting νₜ by 1 suffices (Lyu, Su & Li 2017): the loss is at most 3ε/4.

**Exact loss.** Let f be the density of ρ, F the distribution function of ν and S = 1 − F. Suppose a value moves
inwards, so that the counts cᵢ of some nested intervals increase by 1. If cₜ does not change, the ratio of the
probabilities of stopping at t is

    R = ∫ f(ρ)·G(ρ)·H(ρ)·S(ρ − cₜ) dρ / ∫ f(ρ)·G(ρ)·H(ρ − 1)·S(ρ − cₜ) dρ,   H(ρ) = Π F(ρ − cᵢ) over changed counts,

where ρ includes θM and G is the product over unchanged counts. As f, F and S are log-concave, H(ρ)/H(ρ − 1) and the
ratio of f·S at ρ + 1 and ρ decrease in ρ. By stochastic dominance R increases if an unchanged factor changes, if a
factor is added, and in every cᵢ and cₜ. So its maximum is at t = T − 1, cₜ = M and cᵢ = M − 1. The same argument for
the other outcomes gives two more extreme cases: t = T, where all counts change from M − 1 to M; and a change of cₜ
alone from 0 to 1 at t = T − 1, with all other counts 0. The loss of the search is the largest of these three
(`SparseVector.loss`).

References
----------
P2, chapter 4. Dwork & Roth, "The Algorithmic Foundations of Differential Privacy", 2014, algorithm 1 (AboveThreshold).
Lyu, Su & Li, "Understanding the sparse vector technique for differential privacy", PVLDB 10(6), 2017.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, special

from mechanisms.core.arguments import Floats, Integers, validate_integer, validate_number, validate_positive
from mechanisms.core.privacy import Guarantee
from mechanisms.core.privacy_parameters import validate_epsilon

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_MARGIN = 1e-9
_ERROR = 1e-10  # relative error of a loss, below the margin of the calibration
_REACH = 45.0  # number of scales that the noise on the threshold exceeds with probability 1e-20


@dataclass(frozen=True)
class SparseVector:
    """Search for private bounds, with fixed public parameters."""

    n_values: int  # M
    epsilon: float
    start: float = 1.0  # μ, half the width of the first interval, in the units of the values
    share: float = 0.8  # fraction θ in (0, 1] of values that the interval must contain
    doublings: int = 30  # largest number T of doublings; μ2ᵀ must be finite
    noise_factor: float = 1.0  # factor of both noise scales, 1 as published; see `calibrate_search`

    def __post_init__(self) -> None:
        n_values = validate_integer("n_values", self.n_values, advice="pass the number of values")
        object.__setattr__(self, "n_values", n_values)
        validate_epsilon(self.epsilon)
        validate_positive(
            "mu, half the width of the first interval,", self.start, "choose the smallest plausible bound"
        )
        what = "theta, the fraction of values,"
        validate_number(what, self.share, "in (0, 1]", lambda value: 0.0 < value <= 1.0, "choose e.g. 0.8")
        object.__setattr__(self, "doublings", validate_integer("doublings", self.doublings, advice="choose e.g. 30"))
        if math.log2(self.start) + self.doublings >= 1023:
            raise ValueError(f"mu·2^{self.doublings} must be finite, got mu = {self.start}; use fewer doublings")

    @property
    def guarantee(self) -> Guarantee:
        """ε-DP guarantee, which holds for any number of tested intervals, also if the search ends at T.

        The proof of the loss 3ε/4 at `noise_factor` 1 gives the loss ε for a factor ≥ ¾. For smaller factors the
        guarantee is the larger of ε and the exact loss, which is ε for the factor of `calibrate_search`.
        """
        if self.noise_factor >= 0.75:
            return Guarantee(self.epsilon)
        return Guarantee(max(self.epsilon, self.loss * (1.0 + _ERROR)))

    @property
    def threshold_scale(self) -> float:
        """Scale of the noise ρ on the threshold, in counts."""
        return 2.0 * self.noise_factor / self.epsilon

    @property
    def query_scale(self) -> float:
        """Scale of the noise νₜ on each count, in counts."""
        return 4.0 * self.noise_factor / self.epsilon

    @cached_property
    def loss(self) -> float:
        """Exact privacy loss of the search in nats, over all data sets."""
        T, M = self.doublings, self.n_values
        full, inside, outside = np.full(T + 1, M), np.full(T + 1, M - 1), np.zeros(T + 1)
        last = np.where(np.arange(T + 1) == T - 1, 1, 0)
        at_full = self.log_pmf(full)
        moved = self.log_pmf(inside + last)[T - 1] - at_full[T - 1]
        capped = self.log_pmf(inside)[T] - at_full[T]
        entered = self.log_pmf(outside + last)[T - 1] - self.log_pmf(outside)[T - 1]
        return float(max(moved, capped, entered))

    def bound(self, stop: int) -> float:
        """Return the bound μ2ᵗ for the stopping index t."""
        return math.ldexp(self.start, int(stop))

    def counts(self, values: ArrayLike) -> Integers:
        """Return the number of values in each interval; the T + 1 counts ascend, since the intervals are nested."""
        edges = np.ldexp(self.start, np.arange(self.doublings + 1))
        return np.searchsorted(np.sort(np.abs(values)), edges, side="right")

    def release(self, rng: np.random.Generator, values: ArrayLike) -> int:
        """Draw the stopping index t of the search; all T + 1 noise variables are drawn for every t.

        See `guarantee`; it holds under replacement of one record with n public, if a record changes at most one of the
        values, for noise in real arithmetic. Use these draws for simulation.
        """
        threshold_noise = rng.laplace(scale=self.threshold_scale)
        return self.search(values, threshold_noise, rng.laplace(scale=self.query_scale, size=self.doublings))

    def search(self, values: ArrayLike, threshold_noise: float = 0.0, noise: Floats | float = 0.0) -> int:
        """Return the stopping index given noise; without noise, it is not private."""
        above = self.counts(values)[:-1] + noise >= self.share * self.n_values + threshold_noise
        return int(np.argmax(above)) if above.any() else self.doublings

    def log_pmf(self, counts: ArrayLike) -> Floats:
        """Return the exact log pmf of the stopping index, by integration over ρ.

        Given ρ the tests are independent: Pr[t] = ∫ f(ρ)·Π_{i<t} Pr[cᵢ + νᵢ < θM + ρ]·Pr[cₜ + νₜ ≥ θM + ρ] dρ. Between
        the points θM + ρ = cᵢ and ρ = 0 the integrand is a sum of exponentials. The T + 1 log probabilities are
        normalised to about 1e-13.
        """
        c = np.asarray(counts, dtype=np.float64)[:-1]
        gaps = c - self.share * self.n_values
        ends = np.unique(np.concatenate([[0.0], gaps]))
        reach = _REACH * self.threshold_scale
        ends = np.concatenate([[ends[0] - reach], ends, [ends[-1] + reach]])
        n_panels = np.ceil(np.diff(ends) / (self.query_scale / 4)).astype(int)
        pieces = [np.linspace(a, b, n, endpoint=False) for a, b, n in zip(ends, ends[1:], n_panels, strict=False)]
        edges = np.append(np.concatenate(pieces), ends[-1])
        half = np.diff(edges) / 2
        rho = ((edges[:-1] + half)[:, None] + half[:, None] * _NODES).ravel()
        log_mass = np.log((half[:, None] * _WEIGHTS).ravel() / (2 * self.threshold_scale)) - np.abs(rho) / (
            self.threshold_scale
        )
        z = (rho[:, None] - gaps) / self.query_scale
        below, above = _log_laplace_cdf(z), _log_laplace_cdf(-z)
        passed = np.concatenate([np.zeros((rho.size, 1)), np.cumsum(below, axis=1)], axis=1)
        stopped = np.concatenate([above, np.zeros((rho.size, 1))], axis=1)
        return special.logsumexp(log_mass[:, None] + passed + stopped, axis=0)


@lru_cache(maxsize=128)  # a bisection per search, which all trials share
def calibrate_search(
    n_values: int, epsilon: float, start: float = 1.0, share: float = 0.8, doublings: int = 30
) -> SparseVector:
    """Return the search with the least noise for which its exact loss is ε, less one part in 10⁹ for rounding."""
    published = SparseVector(n_values, epsilon, start, share, doublings)

    def excess(noise_factor: float) -> float:
        return replace(published, noise_factor=noise_factor).loss / epsilon - (1.0 - _MARGIN)

    low = 0.375
    while excess(low) <= 0.0:
        low /= 2.0
    return replace(published, noise_factor=float(optimize.brentq(excess, low, 1.0, rtol=_MARGIN / 100)))


def _log_laplace_cdf(z: Floats) -> Floats:
    """Return ln Pr[Z ≤ z] for a Laplace variable Z with scale 1."""
    tail = math.log(0.5) - np.abs(z)
    return np.where(z < 0, tail, np.log1p(-np.exp(tail)))
