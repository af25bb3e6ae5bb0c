"""Calibration by proof: a larger exponent than in the papers if there are too many data sets for an audit.

    Pr[c'] ∝ exp( −ε·H(posterior(c), posterior(c')) / S(c) ),   q = 1/S

For neighbours c and c* = c − eᵢ + eⱼ at distance h, with H*, q*, Z* those at c*, the loss at an output r is
ε·(q*·H* − q·H) + ln Z* − ln Z. The papers bound both terms by the change of the score, which costs a factor of two. The
first term is at most ε·(q·h + (q* − q)₊), as H* ≤ H + h and H* ≤ 1. The second is usually much smaller, since a joint
translation of data and output by δ = eⱼ − eᵢ changes a distance only slightly: as ℓ(a, b) = ℓ(a+1, b+1) + ½·ln(1 − u²)
with u = (b − a)/(a + b), the affinity 1 − H² changes by the factor √(1 − uᵢ²)/√(1 − uⱼ²) ≤ 1/√(1 − uⱼ²), so

    H(c, r) − H(c*, r + δ) ≤ Dⱼ(cⱼ) = max over b of √(1 − e^ℓ(aⱼ, b)) − √(1 − e^ℓ(aⱼ+1, b+1)),   aⱼ = αⱼ + cⱼ,

of order 1/(4aⱼ) (for a given uⱼ the difference increases with the affinity, which is at most e^ℓ(aⱼ, b)). The
translation r → r + δ reaches all outputs at c* except those with no record in category j, a fraction of Z* of at most

    βⱼ = (k−1)/(n+k−1) · exp(ε·q*·(1 − √(1 − e^ℓ(aⱼ+1, αⱼ)))),

as there are |R|·(k−1)/(n+k−1) of them, all at this distance or more, and Z* ≥ |R|·exp(−ε·q*). Hence
ln Z* − ln Z ≤ ε·(q·Dⱼ + (q − q*)₊) − ln(1 − βⱼ). For small counts the bound of the papers, ε·(q*·h + (q − q*)₊), can be
smaller. In total

    loss/ε ≤ |q − q*| + q·h + min( q*·h,  q·Dⱼ − ln(1 − βⱼ)/ε ).                                            (*)

Now let w(c) ≥ 1 and q ≤ 1/(LS·w), with q changing by at most γ per record: a varying sensitivity with LS·w instead of
LS. As h ≤ LS at both data sets, (*) is at most 1 if w ≥ (1 + Dⱼ/hⱼ)/(1 − γ + ln(1 − βⱼ)/ε), or if w ≥ 2/(1 − γ) at
both, where hⱼ = √(1 − e^φ(aⱼ)) ≤ h, and q* ≤ 1/hⱼ in βⱼ. For each category the factor is the smaller of the two. It is
non-increasing in the count and is evaluated at one record less, so that it is sufficient at both data sets. Then

    1/S(c) = min over t of 1/(A[t]·w[t]) + γ·t,   w[t] the largest factor within t records,

with A[t] the largest LS within t records. The rate γ depends on public quantities only.
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
"""Largest number of records; the table of Dⱼ takes n² evaluations, about two seconds at the limit."""

_GAMMAS = np.geomspace(0.005, 0.6, 49)


@dataclass(frozen=True, eq=False)
class BoundScale:
    """Scale S(c) of this module for one prior, n and ε, created by `bound_scale`.

    Attributes
    ----------
    prior : tuple of float
    n : int
        Number of records.
    epsilon : float
        Privacy loss of weights exp(−ε·H/S) in nats.
    gamma : float
        Largest change of 1/S per record.
    """

    prior: tuple[float, ...]
    n: int
    epsilon: float
    gamma: float
    _factors: NDArray[np.float64] = field(repr=False)
    """Factors w by category and count, shape (k, n + 1), non-increasing in the count."""

    def sensitivity(self, counts: ArrayLike) -> float:
        """Return S(c), in units of Hellinger distance.

        Parameters
        ----------
        counts : array_like, shape (k,)
            Integers ≥ 0 with sum n.

        Returns
        -------
        float

        Raises
        ------
        ValueError
            If the counts are invalid.
        """
        c = validate_counts(counts, k=len(self.prior), n=self.n)
        profile = local_sensitivity_at_distance(self.prior, c)
        t = np.arange(self.n + 1)
        reached = profile[np.minimum(t, profile.size - 1)]
        factor = np.max([row[np.maximum(x - 1 - t, 0)] for row, x in zip(self._factors, c, strict=True)], axis=0)
        return float(1.0 / np.min(1.0 / (reached * factor) + self.gamma * t))


def require_bound(n: int, k: int) -> None:
    """Raise ValueError if there are more than `MAX_RECORDS` records.

    Parameters
    ----------
    n, k : int
        Number of records and of categories.

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
            f"n must be at most {MAX_RECORDS:,} for a scale calibrated by proof, got {n:,} (k = {k}); use varying or "
            "hamming-exact"
        )


def bound_scale(prior: ArrayLike, n: int, epsilon: float) -> BoundScale:
    """Return the scale S for which weights exp(−ε·H/S) are ε-DP, with the rate γ that is best for balanced data.

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
        Cached; equal arguments return the same object.

    Privacy
    -------
    The exponential mechanism with weights exp(−ε·H/S) is ε-DP, replace-one with n public, by the proof in the
    module docstring. The rate depends on public quantities only.

    Raises
    ------
    ValueError
        If an argument is invalid or n is too large.

    Examples
    --------
    In the papers, the inverse temperature ε/(2S) at balanced data is at most 12.27 (P0, Figure 2c, n = 600):

    >>> found = bound_scale([1, 1, 1, 1], 600, epsilon=1.0)
    >>> round(1.0 / found.sensitivity([150, 150, 150, 150]), 2)
    19.88
    """
    alpha = validate_prior(prior)
    require_bound(n, alpha.size)
    balanced_counts(n, alpha.size)  # validates n
    return _bound_scale(tuple(alpha.tolist()), int(n), validate_epsilon(epsilon))


@lru_cache(maxsize=64)
def _bound_scale(prior: tuple[float, ...], n: int, epsilon: float) -> BoundScale:
    terms = _category_terms(prior, n, epsilon)
    balanced = balanced_counts(n, len(prior))
    scales = [BoundScale(prior, n, epsilon, float(gamma), _factors(*terms, float(gamma))) for gamma in _GAMMAS]
    return min(scales, key=lambda scale: scale.sensitivity(balanced))


def _category_terms(
    prior: tuple[float, ...], n: int, epsilon: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return Dⱼ/hⱼ and −ln(1 − βⱼ)/ε, inf if βⱼ may reach 1, by category and count, shape (k, n + 1) each."""
    k, x = len(prior), np.arange(n + 1)
    relative, boundary = np.empty((k, n + 1)), np.empty((k, n + 1))
    for j, alpha in enumerate(prior):
        if alpha in prior[:j]:
            relative[j], boundary[j] = relative[prior.index(alpha)], boundary[prior.index(alpha)]
            continue
        a = alpha + x
        h = np.sqrt(-np.expm1(phi(a)))
        here = np.array([_largest_decrease(value, a) for value in a])
        relative[j] = here / h
        away = 1.0 - np.sqrt(-np.expm1(log_affinity(a + 1.0, alpha)))
        beta = (k - 1) / (n + k - 1) * np.exp(np.minimum(epsilon * away / h, 700.0))
        with np.errstate(divide="ignore"):
            boundary[j] = -np.log1p(-np.minimum(beta, 1.0)) / epsilon
    return relative, boundary


def _largest_decrease(a: float, b: NDArray[Any]) -> float:
    """Return the largest decrease, ≥ 0, of a distance when both parameters a and b of a category increase by one."""
    before, after = (np.sqrt(np.abs(np.expm1(log_affinity(a + shift, b + shift)))) for shift in (0.0, 1.0))
    return max(0.0, float(np.max(before - after)))


def _factors(relative: NDArray[np.float64], boundary: NDArray[np.float64], gamma: float) -> NDArray[np.float64]:
    room = 1.0 - gamma - boundary
    twice = 2.0 / (1.0 - gamma)
    translated = np.where(room > 0, (1.0 + relative) / np.where(room > 0, room, 1.0), math.inf)
    return np.maximum.accumulate(np.minimum(translated, twice)[:, ::-1], axis=1)[:, ::-1]
