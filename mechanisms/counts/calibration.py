"""Exact calibration: the exponential mechanism with the largest private rate.

The papers prove a loss of ε for weights exp(−ε·H/(2S)) by bounding the changes of the score and of the normaliser
separately; the actual loss is about half of that (erratum A1). This module uses the weights

    Pr[c'] ∝ exp( −rate·H(posterior(c), posterior(c')) / S(c) )

with the largest rate found whose exact loss, over all neighbours and outputs, is at most ε (A2). The search starts from
above, as the loss need not be monotone. The rate depends on public quantities only (prior, n, ε), so the mechanism is
ε-DP; `Calibration.loss` is the loss found by the audit.

References
----------
P0: Bun, Farina, Gaboardi & Liu, "Tailoring Differentially Private Bayesian Inference to Distance Between
Distributions" (poster). P1: "Differentially Private Bayesian Inference" (draft).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mechanisms.audit import OutputDistributions, audit_distributions, sum_exp
from mechanisms.conjugate import (
    balanced_counts,
    count_candidates,
    enumerate_candidates,
    validate_counts,
    validate_prior,
)
from mechanisms.counts.candidates import candidate_distances, enumerate_rows
from mechanisms.counts.sensitivity import (
    global_sensitivity,
    local_sensitivity_at_distance,
    smooth_sensitivity,
    smoothed_scales,
    varying_sensitivity,
)
from mechanisms.neighbours import neighbouring_pairs
from mechanisms.privacy import validate_epsilon

__all__ = ["MAX_CALIBRATED", "Calibration", "calibrate", "require_calibratable"]

MAX_CALIBRATED = 50_000
"""Largest number of candidates for which all pairs of data sets are audited: a few seconds per audit."""

MAX_RECORDS = 10_000
"""Largest number of records; with two categories the time is spent on distributions, not on pairs."""

_GAMMA_SHARES = (1.0, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5)
_ROUNDS = 40
_ACTIVE_BYTES = 60_000_000


@dataclass(frozen=True, eq=False)
class Calibration:
    """Rate of the weights exp(−rate·score/S), with the exact privacy loss.

    Attributes
    ----------
    rule : str
        Sensitivity S: "smooth", "varying" or "global" for the Hellinger distance; "hamming" for the number of replaced
        records, with S = 1.
    prior : tuple of float
    n : int
        Number of records.
    epsilon : float
        Privacy budget in nats.
    gamma : float
        Smoothing rate of S per record; 0 for the global sensitivity, NaN for "hamming".
    rate : float
    loss : float
        Exact privacy loss over all neighbours and outputs, in nats, at most `epsilon`.
    """

    rule: str
    prior: tuple[float, ...]
    n: int
    epsilon: float
    gamma: float
    rate: float
    loss: float

    def sensitivity(self, counts: ArrayLike) -> float:
        """Return S at a data set of `n` records; raise ValueError for other counts."""
        counts = validate_counts(counts, k=len(self.prior), n=self.n)
        if self.rule == "hamming":
            return 1.0
        if self.rule == "global":
            return global_sensitivity(self.prior, self.n)
        scale = smooth_sensitivity if self.rule == "smooth" else varying_sensitivity
        return scale(self.prior, counts, self.gamma)


def require_calibratable(n: int, k: int) -> None:
    """Raise ValueError if there are too many data sets for an exact calibration.

    Parameters
    ----------
    n, k : int
        Number of records and of categories.

    Raises
    ------
    ValueError
        If there are more than `MAX_CALIBRATED` candidates or `MAX_RECORDS` records.

    Examples
    --------
    >>> require_calibratable(300, 3)
    """
    n_candidates = count_candidates(n, k)
    if n > MAX_RECORDS:
        raise ValueError(
            f"there must be at most {MAX_RECORDS:,} records for an exact calibration, got {n:,}; use varying-bound or "
            "hamming-exact"
        )
    if n_candidates > MAX_CALIBRATED:
        raise ValueError(
            f"there must be at most {MAX_CALIBRATED:,} candidates for an exact calibration, got {n_candidates:,} "
            f"(n = {n}, k = {k}); use varying-bound, whose guarantee is proved for every size, or hamming-exact"
        )


def calibrate(rule: str, prior: ArrayLike, n: int, epsilon: float) -> Calibration:
    """Return the largest private rate, with the smoothing rate γ that is best for balanced data.

    Parameters
    ----------
    rule : {"smooth", "varying", "global"}
        Sensitivity S.
    prior : array_like, shape (k,)
        Dirichlet parameters, finite and > 0.
    n : int
        Number of records, ≥ 1.
    epsilon : float
        Privacy loss in nats, finite and > 0.

    Returns
    -------
    Calibration
        Cached; equal arguments return the same object.

    Privacy
    -------
    ε-DP, replace-one with n public, by the audit at the returned rate. The calibration does not use data.

    Raises
    ------
    ValueError
        If an argument is invalid or there are too many records or candidates.

    Notes
    -----
    For a pair c, c', scores V = H/S and rate m, the loss is m·max(V' − V) + ln Z'(m) − ln Z(m). The losses of both
    directions sum to m·[max(V' − V) + max(V − V')], so no m above 2ε over the largest such bracket is private. From
    this upper bound downwards, the search finds the largest m at which a set of active pairs is private, and audits
    all pairs at this m. If a pair exceeds ε, this pair and pairs near it become active and the search continues. The
    returned m is that of the final audit.

    Examples
    --------
    >>> found = calibrate("smooth", [1, 1], 50, epsilon=1.0)
    >>> bool(found.loss <= 1.0), round(found.rate, 3)
    (True, 0.881)
    """
    if rule not in ("smooth", "varying", "global"):
        raise ValueError(f"rule must be smooth, varying or global, got {rule!r}; see mechanisms.counts.sensitivity")
    alpha = validate_prior(prior)
    require_calibratable(n, alpha.size)
    return _calibrate(rule, tuple(alpha.tolist()), int(n), validate_epsilon(epsilon))


@lru_cache(maxsize=256)
def _calibrate(rule: str, prior: tuple[float, ...], n: int, epsilon: float) -> Calibration:
    alpha = np.array(prior)
    rows = enumerate_rows(n, alpha.size)
    candidates = enumerate_candidates(n, alpha.size)
    datasets, pairs = neighbouring_pairs(alpha, candidates)

    def scales(gamma: float, which: NDArray[np.int64]) -> NDArray[np.float64]:
        if rule == "global":
            return np.full(len(which), global_sensitivity(alpha, n))
        return smoothed_scales(rule, alpha, which, gamma)

    active = _ActivePairs(alpha, rows, datasets, pairs, epsilon)
    active.add(_initial_pairs(datasets, pairs, alpha))
    gamma = 0.0 if rule == "global" else _best_gamma(rule, alpha, n, active, scales)
    every_scale = scales(gamma, datasets)
    for _ in range(_ROUNDS):
        rate = active.largest_rate(every_scale)

        def log_pmf(index: int, rate: float = rate) -> NDArray[np.float64]:
            log_weights = candidate_distances(alpha, datasets[index], rows)
            log_weights *= -rate / every_scale[index]
            log_weights -= math.log(sum_exp(log_weights))
            return log_weights

        found = audit_distributions(OutputDistributions(datasets, candidates, pairs, log_pmf))
        if found.epsilon <= epsilon:
            return Calibration(rule, prior, n, epsilon, gamma, rate, found.epsilon)
        near = np.abs(datasets - found.witness.dataset).sum(axis=1) <= 4
        if not active.add(np.flatnonzero(near[pairs].all(axis=1))):
            active.epsilon -= 2.0 * (found.epsilon - epsilon)  # excess by rounding only
    raise AssertionError(f"no private rate after {_ROUNDS} audits: {rule}, prior {prior}, n = {n}, epsilon = {epsilon}")


class _ActivePairs:
    """Pairs used in the search for a rate, with the distances of their data sets."""

    def __init__(
        self,
        prior: NDArray[np.float64],
        rows: NDArray[np.int64],
        datasets: NDArray[np.int64],
        pairs: NDArray[np.int64],
        epsilon: float,
    ) -> None:
        self._prior, self._rows, self._datasets, self._pairs = prior, rows, datasets, pairs
        self.epsilon = epsilon
        self._chosen = np.empty(0, dtype=np.int64)
        self._distances: dict[int, NDArray[np.float64]] = {}

    def add(self, which: NDArray[np.int64]) -> bool:
        """Add pairs by index; return True if any pair is new."""
        n_before = self._chosen.size
        self._chosen = np.union1d(self._chosen, which)
        for index in np.unique(self._pairs[self._chosen]).tolist():
            if index not in self._distances:
                self._distances[index] = candidate_distances(self._prior, self._datasets[index], self._rows)
        return self._chosen.size > n_before

    def datasets(self) -> tuple[list[int], NDArray[np.int64]]:
        """Return the indices and the counts of the data sets of active pairs."""
        return list(self._distances), self._datasets[list(self._distances)]

    def largest_rate(self, scales: NDArray[np.float64], tolerance: float = 1e-10) -> float:
        """Return the largest rate at which no active pair exceeds `epsilon`, given S of every data set."""
        pairs = self._pairs[self._chosen]
        gaps = np.array([self._gaps(first, second, scales) for first, second in pairs.tolist()])
        top = 2.0 * self.epsilon / float(gaps.sum(axis=1).max())

        def loss(rate: float) -> float:
            log_z = {i: math.log(sum_exp(d, -rate / scales[i])) for i, d in self._distances.items()}
            change = np.array([log_z[second] - log_z[first] for first, second in pairs.tolist()])
            return float(np.max([rate * gaps[:, 0] + change, rate * gaps[:, 1] - change]))

        return _largest_below(loss, self.epsilon, top, tolerance)

    def _gaps(self, first: int, second: int, scales: NDArray[np.float64]) -> tuple[float, float]:
        gap = self._distances[second] / scales[second] - self._distances[first] / scales[first]
        return float(gap.max()), -float(gap.min())


def _largest_below(loss: Callable[[float], float], epsilon: float, top: float, tolerance: float) -> float:
    """Return the largest argument in (0, top] with loss ≤ epsilon, to a relative tolerance, given loss(0) = 0.

    The search goes down from `top` in steps of top/32, followed by a bisection.
    """
    if loss(top) <= epsilon:
        return top * (1.0 - 1e-12)  # so that an audit with different rounding stays below epsilon
    high = top
    for step in range(31, -1, -1):
        low = top * step / 32
        if step == 0 or loss(low) <= epsilon:
            break
        high = low
    while high - low > tolerance * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if loss(middle) <= epsilon else (low, middle)
    return low * (1.0 - 1e-12)


def _best_gamma(
    rule: str,
    prior: NDArray[np.float64],
    n: int,
    active: _ActivePairs,
    scales: Callable[[float, NDArray[np.int64]], NDArray[np.float64]],
) -> float:
    """Return the smoothing rate γ with the largest inverse temperature at balanced data, over the active pairs.

    Only values up to the smallest γ at which S equals LS at balanced data are considered.
    """
    balanced = balanced_counts(n, prior.size)
    profile = local_sensitivity_at_distance(prior, balanced)
    t = np.arange(1, profile.size)
    rises = np.log(profile[1:] / profile[0]) / t if rule == "smooth" else (1.0 / profile[0] - 1.0 / profile[1:]) / t
    enough = float(rises.max(initial=0.0)) or 1.0
    indices, held = active.datasets()

    def exponent(gamma: float) -> float:
        every = np.ones(max(indices) + 1)
        every[indices] = scales(gamma, held)
        return active.largest_rate(every, tolerance=1e-4) / float(scales(gamma, balanced[None])[0])

    return max((share * enough for share in _GAMMA_SHARES), key=exponent)


def _initial_pairs(
    datasets: NDArray[np.int64], pairs: NDArray[np.int64], prior: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return initial pairs: at the corners, at balanced data and at counts 0, 1, 2, 4, ..."""
    n, k = int(datasets[0].sum()), prior.size
    levels = np.array([0, *(2**power for power in range(int(math.log2(n)) + 1)), n // 2, n // 3])
    corner = (datasets <= 1).sum(axis=1) >= k - 1
    balanced = np.abs(np.sort(datasets, axis=1) - np.sort(balanced_counts(n, k))).sum(axis=1) <= 2
    spread = np.isin(datasets, levels).sum(axis=1) >= k - 1
    always = np.flatnonzero((corner | balanced)[pairs[:, 0]])
    others = np.flatnonzero(spread[pairs[:, 0]])
    n_allowed = max(1, int(_ACTIVE_BYTES / (16 * count_candidates(n, k))))
    return np.union1d(always, others[:: max(1, -(-others.size // n_allowed))])
