"""Private bounds of values that have none: the sparse vector technique over doubling intervals (P2, chapter 4).

Of M values, one of which a record may move anywhere, find the first interval [−μ2ᵗ, μ2ᵗ], t = 0, 1, 2, …, that holds
a share θ of them, up to noise:

    smallest t < T with #{j : |qⱼ| ≤ μ2ᵗ} + νₜ ≥ θM + ρ,   νₜ ~ Lap(4/ε),  ρ ~ Lap(2/ε),   and T if there is none.

The number of doublings is bounded by T, whatever the values: without a bound the search would not end where θM exceeds
what noise adds to M, and would do so in vain at numbers beyond double precision. The last interval is not tested.

**Privacy.** Replacing a record moves one value, and so every count by at most 1. Fix all νᵢ, i < t. At the neighbour
the largest noisy count before t moves by at most 1, and so does the count at t: ρ moved by 1 and νₜ moved by 2 undo it,
at a price of ε/2 each (Dwork & Roth 2014, theorem 3.23). As the intervals grow, all counts move in one direction, and
νₜ moved by 1 is enough (Lyu, Su & Li 2017): the loss is at most 3ε/4.

References
----------
P2: Amitai, "Bayesian Inference Via Partitioning Under Differential Privacy", Duke University 2018, chapter 4.
Dwork & Roth, "The Algorithmic Foundations of Differential Privacy", 2014, algorithm 1 (AboveThreshold).
Lyu, Su & Li, "Understanding the sparse vector technique for differential privacy", PVLDB 10(6), 2017.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from mechanisms.privacy import Guarantee, validate_epsilon

__all__ = ["SparseVector"]

Floats = NDArray[np.float64]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_REACH = 45.0  # scales of the threshold's noise beyond which it has probability 1e-20


@dataclass(frozen=True)
class SparseVector:
    """The search for bounds at fixed public parameters.

    Parameters
    ----------
    n_values : int
        M ≥ 1.
    epsilon : float
        Privacy loss in nats, finite and > 0.
    start : float
        μ, half the width of the first interval, finite and > 0, in the units of the values.
    share : float
        θ in (0, 1].
    doublings : int
        T ≥ 1, at which the search ends; μ2ᵀ must be finite.

    Raises
    ------
    ValueError
        If a parameter is outside its range.

    Examples
    --------
    >>> search = SparseVector(n_values=1000, epsilon=1.0, start=1.0, share=0.8)
    >>> values = np.linspace(1.0, 3.0, 1000)
    >>> search.counts(values)[:4]
    array([   1,  500, 1000, 1000])
    >>> search.bound(search.release(np.random.default_rng(1), values))
    4.0
    """

    n_values: int
    epsilon: float
    start: float = 1.0
    share: float = 0.8
    doublings: int = 30

    def __post_init__(self) -> None:
        if self.n_values < 1 or int(self.n_values) != self.n_values:
            raise ValueError(f"n_values must be a whole number >= 1, got {self.n_values}")
        validate_epsilon(self.epsilon)
        if not (math.isfinite(self.start) and self.start > 0):
            raise ValueError(
                f"mu, half the width of the first interval, must be finite and > 0, got {self.start}; take the least "
                "bound that makes sense"
            )
        if not 0 < self.share <= 1:
            raise ValueError(f"theta, the share of values to hold, must be in (0, 1], got {self.share}; 0.8 is usual")
        if self.doublings < 1 or int(self.doublings) != self.doublings:
            raise ValueError(f"doublings must be a whole number >= 1, got {self.doublings}")
        if math.log2(self.start) + self.doublings >= 1023:
            raise ValueError(f"mu·2^{self.doublings} must be finite, got mu = {self.start}; allow fewer doublings")

    @property
    def guarantee(self) -> Guarantee:
        """ε-DP, whatever number of intervals is tested, and also where the search ends at T."""
        return Guarantee(self.epsilon)

    @property
    def threshold_scale(self) -> float:
        """Scale of ρ, in values."""
        return 2.0 / self.epsilon

    @property
    def query_scale(self) -> float:
        """Scale of each νₜ, in values."""
        return 4.0 / self.epsilon

    def bound(self, stop: int) -> float:
        """Return μ2ᵗ."""
        return math.ldexp(self.start, int(stop))

    def counts(self, values: ArrayLike) -> NDArray[np.int64]:
        """Return how many values each interval holds.

        Parameters
        ----------
        values : array_like, shape (M,)
            Not NaN.

        Returns
        -------
        ndarray of int64, shape (T + 1,)
            Ascending.

        Raises
        ------
        ValueError
            If the values are not M, or one is NaN.
        """
        q = np.asarray(values, dtype=np.float64)
        if q.shape != (self.n_values,) or np.any(np.isnan(q)):
            raise ValueError(f"values must be {self.n_values} numbers, got shape {q.shape}, {np.isnan(q).sum()} NaN")
        edges = np.ldexp(self.start, np.arange(self.doublings + 1))
        return np.searchsorted(np.sort(np.abs(q)), edges, side="right")

    def release(self, rng: np.random.Generator, values: ArrayLike) -> int:
        """Draw where the search ends.

        Parameters
        ----------
        rng : numpy.random.Generator
            All T + 1 noises are drawn, however early the search ends.
        values : array_like, shape (M,)
            Not NaN.

        Returns
        -------
        int
            t in 0 … T.

        Privacy
        -------
        `guarantee`, replace-one with n public, if a record moves at most one of the values. It holds for noise in real
        arithmetic; these draws serve simulation.

        Raises
        ------
        ValueError
            If the values are not M, or one is NaN.
        """
        threshold = self.share * self.n_values + rng.laplace(scale=self.threshold_scale)
        noise = rng.laplace(scale=self.query_scale, size=self.doublings)
        return self._first(self.counts(values)[:-1] + noise >= threshold)

    def search(self, values: ArrayLike) -> int:
        """Return where the search ends without noise; not private."""
        return self._first(self.counts(values)[:-1] >= self.share * self.n_values)

    def _first(self, above: NDArray[np.bool_]) -> int:
        return int(np.argmax(above)) if above.any() else self.doublings

    def log_pmf(self, counts: ArrayLike) -> Floats:
        """Return the exact distribution of where the search ends, by integration over ρ.

        Given ρ the tests are independent: Pr[t] = ∫ f(ρ)·Π_{i<t} Pr[cᵢ + νᵢ < θM + ρ]·Pr[cₜ + νₜ ≥ θM + ρ] dρ. Between
        the points where an argument changes its sign the integrand is a sum of exponentials.

        Parameters
        ----------
        counts : array_like, shape (T + 1,)
            From `counts`.

        Returns
        -------
        ndarray of float64, shape (T + 1,)
            Log probabilities, which sum to 1 within 1e-13 or so.

        Examples
        --------
        >>> search = SparseVector(n_values=3, epsilon=4.0, share=0.5, doublings=2)
        >>> np.exp(search.log_pmf([0, 3, 3])).round(4)
        array([0.1405, 0.7314, 0.1281])
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


def _log_laplace_cdf(z: Floats) -> Floats:
    """Return ln Pr[Z ≤ z] of a Laplace variable of scale 1."""
    tail = math.log(0.5) - np.abs(z)
    return np.where(z < 0, tail, np.log1p(-np.exp(tail)))
