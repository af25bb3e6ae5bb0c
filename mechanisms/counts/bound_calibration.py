"""Calibration by proof: a larger exponent than the papers' where the data sets are too many to audit.

    Pr[c'] ∝ exp( −ε·H(posterior(c), posterior(c')) / S(c) ),   q = 1/S

For neighbours c and c* = c − eᵢ + eⱼ at distance h, with H*, q*, Z* those at c*, the loss at an output r is
ε·(q*·H* − q·H) + ln Z* − ln Z. The papers bound both parts by the change of the score, which costs a factor of two. The
first part is at most ε·(q·h + (q* − q)₊), as H* ≤ H + h and H* ≤ 1. The second is mostly far smaller, since moving
data and output *together* by δ = eⱼ − eᵢ hardly changes a distance: as ℓ(a, b) = ℓ(a+1, b+1) + ½·ln(1 − u²) with
u = (b − a)/(a + b), the affinity 1 − H² changes by the factor √(1 − uᵢ²)/√(1 − uⱼ²) ≤ 1/√(1 − uⱼ²), so

    H(c, r) − H(c*, r + δ) ≤ Dⱼ(cⱼ) = max over b of √(1 − e^ℓ(aⱼ, b)) − √(1 − e^ℓ(aⱼ+1, b+1)),   aⱼ = αⱼ + cⱼ,

of the order of 1/(4aⱼ) (for a given uⱼ the difference grows with the affinity, which is at most e^ℓ(aⱼ, b)). The
translation r → r + δ reaches all outputs at c* but those with no record in cell j, a share of Z* of at most

    βⱼ = (k−1)/(n+k−1) · exp(ε·q*·(1 − √(1 − e^ℓ(aⱼ+1, αⱼ)))),

as there are |R|·(k−1)/(n+k−1) of them, none nearer than that root, and Z* ≥ |R|·exp(−ε·q*). Hence
ln Z* − ln Z ≤ ε·(q·Dⱼ + (q − q*)₊) − ln(1 − βⱼ). The papers' bound, ε·(q*·h + (q − q*)₊), remains for cells so empty
that it is the smaller one. All in all

    loss/ε ≤ |q − q*| + q·h + min( q*·h,  q·Dⱼ − ln(1 − βⱼ)/ε ).                                            (*)

Now let w(c) ≥ 1 and q ≤ 1/(LS·w), with q moving by at most γ a record: a varying sensitivity of LS·w in place of LS.
As h ≤ LS at both ends, (*) is at most 1 if w ≥ (1 + Dⱼ/hⱼ)/(1 − γ + ln(1 − βⱼ)/ε), or if w ≥ 2/(1 − γ) at both ends,
where hⱼ = √(1 − e^φ(aⱼ)) ≤ h, and q* ≤ 1/hⱼ in βⱼ. The factor takes, for each cell, the smaller of the two; it never
increases with the count and applies one record early, so that both ends of a pair have what they need. Then S is

    1/S(c) = min over t of 1/(A[t]·w[t]) + γ·t,   w[t] the largest factor within t records,

with A[t] the largest LS there. The rate γ is tuned on public quantities.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mechanisms.conjugate import balanced_counts, validate_counts, validate_prior
from mechanisms.counts.sensitivity import local_sensitivity_at_distance, phi
from mechanisms.hellinger import log_affinity
from mechanisms.privacy import validate_epsilon

__all__ = ["MAX_RECORDS", "BoundScale", "bound_scale", "require_bound"]

MAX_RECORDS = 5_000
"""Largest number of records: the table of Dⱼ takes n² evaluations, about two seconds at the limit."""

_GAMMAS = np.geomspace(0.005, 0.6, 49)


@dataclass(frozen=True, eq=False)
class BoundScale:
    """The scale S(c) of this file for one prior, n and ε; build it with `bound_scale`.

    Attributes
    ----------
    prior : tuple of float
    n : int
        Number of records.
    epsilon : float
        What weights exp(−ε·H/S) may spend, in nats.
    gamma : float
        By how much 1/S may move a record.
    """

    prior: tuple[float, ...]
    n: int
    epsilon: float
    gamma: float
    _factors: NDArray[np.float64] = field(repr=False)
    """w by cell and count, shape (k, n + 1), non-increasing along the counts."""

    def sensitivity(self, counts: ArrayLike) -> float:
        """Return S(c), in units of Hellinger distance.

        Parameters
        ----------
        counts : array_like, shape (k,)
            Whole numbers ≥ 0 with sum n.

        Returns
        -------
        float

        Raises
        ------
        ValueError
            If the counts are not allowed.
        """
        c = validate_counts(counts, k=len(self.prior), n=self.n)
        profile = local_sensitivity_at_distance(self.prior, c)
        t = np.arange(self.n + 1)
        reached = profile[np.minimum(t, profile.size - 1)]
        factor = np.max([row[np.maximum(x - 1 - t, 0)] for row, x in zip(self._factors, c, strict=True)], axis=0)
        return float(1.0 / np.min(1.0 / (reached * factor) + self.gamma * t))


def require_bound(n: int, k: int) -> None:
    """Refuse problems with more than `MAX_RECORDS` records.

    Parameters
    ----------
    n, k : int
        Number of records and of cells.

    Raises
    ------
    ValueError
        If n is too large.

    Examples
    --------
    >>> require_bound(4177, 3)
    """
    if n > MAX_RECORDS:
        raise ValueError(
            f"n must be at most {MAX_RECORDS:,} for a scale calibrated by proof, got {n:,} (k = {k}); use varying, or "
            "hamming-exact"
        )


def bound_scale(prior: ArrayLike, n: int, epsilon: float) -> BoundScale:
    """Return the scale S for which weights exp(−ε·H/S) are ε-DP, at the rate γ that is best for balanced data.

    Parameters
    ----------
    prior : array_like, shape (k,)
        Dirichlet parameters, finite and > 0.
    n : int
        Number of records, ≥ 1.
    epsilon : float
        Privacy loss in nats, finite and > 0.

    Returns
    -------
    BoundScale
        The same object for the same arguments.

    Privacy
    -------
    The exponential mechanism with weights exp(−ε·H/S) is ε-DP, replace-one with n public, by the proof in the head of
    this file. The rate depends on public quantities alone.

    Raises
    ------
    ValueError
        If an argument is not allowed or n is too large.

    Examples
    --------
    At balanced data the papers allow an exponent of ε/(2S) ≤ 12.27 (P0, Figure 2c, n = 600):

    >>> found = bound_scale([1, 1, 1, 1], 600, epsilon=1.0)
    >>> round(1.0 / found.sensitivity([150, 150, 150, 150]), 2)
    19.88
    """
    alpha = validate_prior(prior)
    require_bound(n, alpha.size)
    balanced_counts(n, alpha.size)  # refuses what is not a number of records
    return _bound_scale(tuple(alpha.tolist()), int(n), validate_epsilon(epsilon))


@lru_cache(maxsize=64)
def _bound_scale(prior: tuple[float, ...], n: int, epsilon: float) -> BoundScale:
    terms = _cell_terms(prior, n, epsilon)
    balanced = balanced_counts(n, len(prior))
    scales = [BoundScale(prior, n, epsilon, float(gamma), _factors(*terms, float(gamma))) for gamma in _GAMMAS]
    return min(scales, key=lambda scale: scale.sensitivity(balanced))


def _cell_terms(prior: tuple[float, ...], n: int, epsilon: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return Dⱼ/hⱼ and −ln(1 − βⱼ)/ε for every cell and count, shape (k, n + 1) each; inf where βⱼ may reach 1."""
    k, x = len(prior), np.arange(n + 1)
    relative, boundary = np.empty((k, n + 1)), np.empty((k, n + 1))
    for j, alpha in enumerate(prior):
        if alpha in prior[:j]:
            relative[j], boundary[j] = relative[prior.index(alpha)], boundary[prior.index(alpha)]
            continue
        a = alpha + x
        h = np.sqrt(-np.expm1(phi(a)))
        here = np.array([_moved(value, a) for value in a])
        relative[j] = here / h
        away = 1.0 - np.sqrt(-np.expm1(log_affinity(a + 1.0, alpha)))
        beta = (k - 1) / (n + k - 1) * np.exp(np.minimum(epsilon * away / h, 700.0))
        with np.errstate(divide="ignore"):
            boundary[j] = -np.log1p(-np.minimum(beta, 1.0)) / epsilon
    return relative, boundary


def _moved(a: float, b: NDArray[Any]) -> float:
    """Return the largest fall of a distance when the cell's parameters a and b both grow by one; 0 if all rise."""
    before, after = (np.sqrt(np.abs(np.expm1(log_affinity(a + shift, b + shift)))) for shift in (0.0, 1.0))
    return max(0.0, float(np.max(before - after)))


def _factors(relative: NDArray[np.float64], boundary: NDArray[np.float64], gamma: float) -> NDArray[np.float64]:
    room = 1.0 - gamma - boundary
    twice = 2.0 / (1.0 - gamma)
    translated = np.where(room > 0, (1.0 + relative) / np.where(room > 0, room, 1.0), math.inf)
    return np.maximum.accumulate(np.minimum(translated, twice)[:, ::-1], axis=1)[:, ::-1]
