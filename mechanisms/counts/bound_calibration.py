"""Calibration of the Hellinger exponential mechanism by a proof, with larger exponents than in the papers.

    Pr[c'] ∝ exp( −ε·H(posterior(c), posterior(c')) / S(c) ),   q = 1/S

The proof holds for problems that are too large to audit. ℓ is the log affinity of `mechanisms.core.hellinger`, φ that
of `mechanisms.counts.sensitivity`, and R the set of outputs, the counts of n records in k categories.

Let c and c* = c − eᵢ + eⱼ be neighbours, and h the distance between their posteriors. For an output r, let H be the
distance between the posteriors of c and r, Z the normaliser at c, and H*, q*, Z* these quantities at c*. The loss at r
is ε·(q*·H* − q·H) + ln Z* − ln Z. The papers bound both terms by the change of the score, which costs a factor of two.
The first term is at most ε·(q·h + (q* − q)₊), as H* ≤ H + h and H* ≤ 1. The second is usually much smaller, since a
joint translation of data and output by δ = eⱼ − eᵢ changes a distance only slightly: as
ℓ(a, b) = ℓ(a+1, b+1) + ½·ln(1 − u²) with u = (b − a)/(a + b), the affinity 1 − H² changes by the factor
√(1 − uᵢ²)/√(1 − uⱼ²) ≤ 1/√(1 − uⱼ²), so

    H(c, r) − H(c*, r + δ) ≤ Dⱼ(cⱼ) = max over b of √(1 − e^ℓ(aⱼ, b)) − √(1 − e^ℓ(aⱼ+1, b+1)),   aⱼ = αⱼ + cⱼ,

of order 1/(4aⱼ) (for a given uⱼ the difference increases with the affinity, which is at most e^ℓ(aⱼ, b)). The
translation r → r + δ reaches all outputs at c* except those with no record in category j, a fraction of Z* of at most

    βⱼ = (k−1)/(n+k−1) · exp(ε·q*·(1 − √(1 − e^ℓ(aⱼ+1, αⱼ)))),

as there are |R|·(k−1)/(n+k−1) such outputs, all at this distance or more, and Z* ≥ |R|·exp(−ε·q*). Hence
ln Z* − ln Z ≤ ε·(q·Dⱼ + (q − q*)₊) − ln(1 − βⱼ). For small counts the bound of the papers, ε·(q*·h + (q − q*)₊), can be
smaller. In total

    loss/ε ≤ |q − q*| + q·h + min( q*·h,  q·Dⱼ − ln(1 − βⱼ)/ε ).                                            (*)

Now let LS be the local sensitivity, w(c) ≥ 1 and q ≤ 1/(LS·w), where q changes by at most γ per record. This is a
varying sensitivity with LS·w instead of LS. As h ≤ LS at both data sets, (*) is at most 1 if
w ≥ (1 + Dⱼ/hⱼ)/(1 − γ + ln(1 − βⱼ)/ε), or if w ≥ 2/(1 − γ) at both, where hⱼ = √(1 − e^φ(aⱼ)) ≤ h, and q* ≤ 1/hⱼ in βⱼ.
The factor of each category is the smaller of these two bounds on w. It is non-increasing in the count and is evaluated
at one record less, so that it is sufficient at both data sets. Then

    1/S(c) = min over t of 1/(A[t]·w[t]) + γ·t,

where A[t] and w[t] are the largest LS and the largest factor within t replaced records. The rate γ depends on public
quantities only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mechanisms.core.arguments import Floats
from mechanisms.core.conjugate import (
    balanced_counts,
    require_at_most,
    validate_counts,
    validate_prior,
    validate_problem,
)
from mechanisms.core.hellinger import log_affinity
from mechanisms.core.metadata import Style
from mechanisms.core.privacy import pure_guarantee
from mechanisms.core.privacy_parameters import validate_resolved_epsilon, validate_size
from mechanisms.core.shared_cache import computed_once
from mechanisms.counts.exponential import exponential_mechanism
from mechanisms.counts.mechanism import Mechanism
from mechanisms.counts.sensitivity import local_sensitivity_at_distance, phi

# largest number of records. Computing Dⱼ for all counts takes n² evaluations, about two seconds at the limit
MAX_RECORDS = 5_000
_GAMMAS = np.geomspace(0.005, 0.6, 49)


@dataclass(frozen=True, eq=False)
class BoundScale:
    """Scale S(c), as defined in the module docstring, for one prior, n and ε; created by `bound_scale`."""

    prior: tuple[float, ...]
    n: int
    epsilon: float  # of the exponential mechanism with weights exp(−ε·H/S) and Hellinger distances H, in nats
    gamma: float  # largest change of 1/S per record
    # factors w by category and count, shape (k, n + 1), non-increasing in the count
    _factors: Floats = field(repr=False)

    def sensitivity(self, counts: ArrayLike) -> float:
        """Return S(c), in units of Hellinger distance."""
        c = validate_counts(counts, k=len(self.prior), n=self.n)
        profile = local_sensitivity_at_distance(self.prior, c)
        t = np.arange(self.n + 1)
        reached = profile[np.minimum(t, profile.size - 1)]
        factor = np.max([row[np.maximum(x - 1 - t, 0)] for row, x in zip(self._factors, c, strict=True)], axis=0)
        return float(1.0 / np.min(1.0 / (reached * factor) + self.gamma * t))


def require_bound(n: int, k: int) -> None:
    """Raise ValueError if `n` is too large for `bound_scale`."""
    n, k = validate_problem(n, k)
    require_at_most(MAX_RECORDS, "records for a scale calibrated by proof", n, n, k, "use varying or hamming-exact")


def bound_scale(prior: ArrayLike, n: int, epsilon: float) -> BoundScale:
    """Return, and cache, the scale S with which weights exp(−ε·H/S) are ε-DP, by the proof in the module docstring.

    The guarantee is under replacement of one record, with n public. The rate γ minimises S at balanced data.
    """
    alpha, n = validate_prior(prior), validate_size(n)
    require_bound(n, alpha.size)
    return _bound_scale(tuple(alpha.tolist()), n, validate_resolved_epsilon(epsilon))


@computed_once(maxsize=64)  # all data sets of a study have the same scale
def _bound_scale(prior: tuple[float, ...], n: int, epsilon: float) -> BoundScale:
    terms = _category_terms(prior, n, epsilon)
    balanced = balanced_counts(n, len(prior))
    scales = [BoundScale(prior, n, epsilon, float(gamma), _factors(*terms, float(gamma))) for gamma in _GAMMAS]
    return min(scales, key=lambda scale: scale.sensitivity(balanced))


def _category_terms(prior: tuple[float, ...], n: int, epsilon: float) -> tuple[Floats, Floats]:
    """Return Dⱼ/hⱼ and −ln(1 − βⱼ)/ε (inf if βⱼ may reach 1) for each category and count, shape (k, n + 1) each."""
    k, x = len(prior), np.arange(n + 1)
    relative, boundary = np.empty((k, n + 1)), np.empty((k, n + 1))
    for j, alpha in enumerate(prior):
        a = alpha + x
        h = np.sqrt(-np.expm1(phi(a)))
        relative[j] = _largest_decreases(alpha, n) / h
        away = 1.0 - np.sqrt(-np.expm1(log_affinity(a + 1.0, alpha)))
        beta = (k - 1) / (n + k - 1) * np.exp(np.minimum(epsilon * away / h, 700.0))
        with np.errstate(divide="ignore"):
            boundary[j] = -np.log1p(-np.minimum(beta, 1.0)) / epsilon
    return relative, boundary


@computed_once(maxsize=64)  # a search asks for the same decreases at each γ
def _largest_decreases(alpha: float, n: int) -> Floats:
    """Return Dⱼ of the proof for a category with Dirichlet parameter `alpha`, at each count, shape (n + 1,)."""
    a = alpha + np.arange(n + 1)
    decreases = np.array([_largest_decrease(value, a) for value in a])
    decreases.flags.writeable = False
    return decreases


def _largest_decrease(a: float, b: NDArray[Any]) -> float:
    """Return the largest decrease, ≥ 0, of a Hellinger distance when parameters a and b both increase by one."""
    before, after = (np.sqrt(np.abs(np.expm1(log_affinity(a + shift, b + shift)))) for shift in (0.0, 1.0))
    return max(0.0, float(np.max(before - after)))


def _factors(relative: Floats, boundary: Floats, gamma: float) -> Floats:
    room = 1.0 - gamma - boundary
    twice = 2.0 / (1.0 - gamma)
    translated = np.where(room > 0, (1.0 + relative) / np.where(room > 0, room, 1.0), math.inf)
    return np.maximum.accumulate(np.minimum(translated, twice)[:, ::-1], axis=1)[:, ::-1]


VARYING_BOUND = Mechanism(
    name="varying-bound",
    note="Exponential mechanism on a varying sensitivity, calibrated by a proof that holds for every size.",
    release=lambda prior, counts, epsilon, delta: exponential_mechanism(
        prior, counts, epsilon, bound_scale(prior, int(counts.sum()), epsilon).sensitivity(counts)
    ),
    guarantee=pure_guarantee, require=require_bound, symmetric=True, style=Style("purple", "2"),
)  # fmt: skip
