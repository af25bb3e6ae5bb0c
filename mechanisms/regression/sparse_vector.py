"""Private bounds of unbounded values by the sparse vector technique over doubling intervals (P2, chapter 4).

Among M values, one of which may change arbitrarily between neighbours, find the first interval [−μ2ᵗ, μ2ᵗ],
t = 0, 1, 2, …, that contains a fraction θ of them, up to noise:

    smallest t < T with #{j : |qⱼ| ≤ μ2ᵗ} + νₜ ≥ θM + ρ,   νₜ ~ Lap(4/ε),  ρ ~ Lap(2/ε),   and T if there is none.

The number of doublings is bounded by T for all values. Without a bound the search would not end if θM + ρ exceeds all
noisy counts, and the bounds would overflow. The last interval is not tested.

**Privacy.** Replacing a record changes one value and every count by at most 1. Fix all νᵢ, i < t. Between neighbours
the largest noisy count before t changes by at most 1, and so does the count at t. Shifting ρ by 1 and νₜ by 2
compensates, at a loss of ε/2 each (Dwork & Roth 2014, theorem 3.23). As the intervals are nested, all counts change in
the same direction, and shifting νₜ by 1 suffices (Lyu, Su & Li 2017): the loss is at most 3ε/4.

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
_REACH = 45.0  # scales of the threshold noise, exceeded with probability 1e-20


@dataclass(frozen=True)
class SparseVector:
    """Search for bounds with fixed public parameters.

    Parameters
    ----------
    n_values : int
        M ≥ 1.
    epsilon : float
        Privacy loss in nats, finite and > 0.
    start : float
        μ, half the width of the first interval, finite and > 0, in the units of the values.
    share : float
        Fraction θ in (0, 1] of values that the interval must contain.
    doublings : int
        Largest number T ≥ 1 of doublings; μ2ᵀ must be finite.

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
            raise ValueError(f"n_values must be an integer >= 1, got {self.n_values}; pass the number of values")
        validate_epsilon(self.epsilon)
        if not (math.isfinite(self.start) and self.start > 0):
            raise ValueError(
                f"mu, half the width of the first interval, must be finite and > 0, got {self.start}; choose the "
                "smallest plausible bound"
            )
        if not 0 < self.share <= 1:
            raise ValueError(f"theta, the fraction of values, must be in (0, 1], got {self.share}; choose e.g. 0.8")
        if self.doublings < 1 or int(self.doublings) != self.doublings:
            raise ValueError(f"doublings must be an integer >= 1, got {self.doublings}; choose e.g. 30")
        if math.log2(self.start) + self.doublings >= 1023:
            raise ValueError(f"mu·2^{self.doublings} must be finite, got mu = {self.start}; use fewer doublings")

    @property
    def guarantee(self) -> Guarantee:
        """ε-DP guarantee, for any number of tested intervals, including a search that ends at T."""
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
        """Return the number of values in each interval.

        Parameters
        ----------
        values : array_like, shape (M,)
            Not NaN.

        Returns
        -------
        ndarray of int64, shape (T + 1,)
            Counts, ascending.

        Raises
        ------
        ValueError
            If the number of values is not M, or one is NaN.
        """
        q = np.asarray(values, dtype=np.float64)
        if q.shape != (self.n_values,) or np.any(np.isnan(q)):
            raise ValueError(
                f"values must be {self.n_values} numbers, got shape {q.shape}, {np.isnan(q).sum()} NaN; "
                "pass one value per partition"
            )
        edges = np.ldexp(self.start, np.arange(self.doublings + 1))
        return np.searchsorted(np.sort(np.abs(q)), edges, side="right")

    def release(self, rng: np.random.Generator, values: ArrayLike) -> int:
        """Draw the stopping index of the search.

        Parameters
        ----------
        rng : numpy.random.Generator
            Generator from which all T + 1 noise variables are always drawn.
        values : array_like, shape (M,)
            Not NaN.

        Returns
        -------
        int
            t in 0 … T.

        Privacy
        -------
        `guarantee`, replace-one with n public, if a record changes at most one of the values. The guarantee holds for
        noise in real arithmetic; use these draws for simulation.

        Raises
        ------
        ValueError
            If the number of values is not M, or one is NaN.
        """
        threshold = self.share * self.n_values + rng.laplace(scale=self.threshold_scale)
        noise = rng.laplace(scale=self.query_scale, size=self.doublings)
        return self._first(self.counts(values)[:-1] + noise >= threshold)

    def search(self, values: ArrayLike) -> int:
        """Return the stopping index without noise; not private."""
        return self._first(self.counts(values)[:-1] >= self.share * self.n_values)

    def _first(self, above: NDArray[np.bool_]) -> int:
        return int(np.argmax(above)) if above.any() else self.doublings

    def log_pmf(self, counts: ArrayLike) -> Floats:
        """Return the exact log pmf of the stopping index, by integration over ρ.

        Given ρ the tests are independent: Pr[t] = ∫ f(ρ)·Π_{i<t} Pr[cᵢ + νᵢ < θM + ρ]·Pr[cₜ + νₜ ≥ θM + ρ] dρ. Between
        sign changes of the arguments the integrand is a sum of exponentials.

        Parameters
        ----------
        counts : array_like, shape (T + 1,)
            Result of `counts`.

        Returns
        -------
        ndarray of float64, shape (T + 1,)
            Log probabilities of t = 0 … T, normalised to about 1e-13.

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
    """Return ln Pr[Z ≤ z] of a Laplace variable with scale 1."""
    tail = math.log(0.5) - np.abs(z)
    return np.where(z < 0, tail, np.log1p(-np.exp(tail)))
