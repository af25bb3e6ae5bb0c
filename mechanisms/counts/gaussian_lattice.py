"""Lattice sums and exact privacy losses of discrete Gaussian noise on the lattice of counts, and its calibration.

The noise v of `mechanisms.counts.discrete_gaussian` has Pr[v] ∝ exp(−‖v‖²/(2σ²)) on the integer vectors with Σv = 0.
Neighbouring counts differ by eⱼ − eᵢ.

**Exact profile.** The loss at v is (1 − (vⱼ − vᵢ))/σ². With t = vⱼ − vᵢ and u = vᵢ + vⱼ, vᵢ² + vⱼ² = (t² + u²)/2 and
t ≡ u mod 2, so Pr[t] ∝ exp(−t²/(4σ²))·A(t mod 2). A(p) is the sum over all u of parity p of exp(−u²/(4σ²)) times the
weight of the other entries, which sum to −u. So all pairs of neighbours have the same privacy loss distribution, and
computing it needs no enumeration of vectors.

**Tail.** As in theorem 4 of Canonne, Kamath & Steinke, E exp(xt) ≤ exp(x²σ²) for every x, so that
Pr[t ≤ −R] ≤ exp(−R²/(4σ²)). A table of the losses of |t| < R therefore omits at most this probability of losses > 0,
and δ of a mechanism includes it (`omitted_mass`). Calibration extends the table until this mass is far below δ.

References
----------
Canonne, Kamath & Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from mechanisms.calibrate import bisect
from mechanisms.privacy_parameters import validate_delta, validate_epsilon

__all__ = ["REACH", "calibrate_noise_std", "log_coset_sum", "loss_distribution", "omitted_mass"]

Floats = NDArray[np.float64]

REACH = 10.0
"""Standard deviations beyond which noise has probability below 1e-22."""

_SMOOTH = 2.5  # standard deviation from which a sum over integers equals the integral up to 1e-26
_MARGIN = 1e-9
_OUTWARD = 1.0 + 2.0**-50  # bound on the relative error of a loss, which matters if a likely loss is close to ε
_LEAST_DELTA = 1e-250  # probabilities of a table remain normal doubles
_TAIL_DELTA = 1e-12  # δ below which the table of losses extends beyond REACH
_UNDERFLOW = 1e-290  # bound on the sum of the probabilities in a table that underflow
_LARGEST_STD = 100_000.0  # records; the exact profile has about 30 losses per unit of the standard deviation


@lru_cache(maxsize=256)
def calibrate_noise_std(epsilon: float, delta: float, k: int) -> float:
    """Return the smallest σ, in records, for which the lattice noise is (ε, δ)-DP, for δ in [1e-250, 1).

    Bisection on the exact δ(ε) has a margin of one part in 10⁹ of δ for rounding and for the omitted mass. A σ above
    100,000 records is refused.
    """
    epsilon, delta = validate_epsilon(epsilon), validate_delta(delta)
    if k < 2:
        raise ValueError(f"k must be >= 2, got {k}; pass the number of categories")
    if delta < _LEAST_DELTA:
        raise ValueError(
            f"delta must be >= {_LEAST_DELTA:g} for discrete Gaussian noise, got {delta:g}; choose a larger delta, or "
            "k-norm, which has delta = 0"
        )
    reach = REACH if delta >= _TAIL_DELTA else math.sqrt(-2.0 * math.log(delta)) + 4.0

    def suffices(noise_std: float) -> bool:
        losses, probabilities = loss_distribution(k, noise_std, reach)
        for rounding, limit in ((1.0, delta * (1.0 - _MARGIN)), (_OUTWARD, delta)):
            excess = np.maximum(losses * rounding - epsilon, 0.0)
            if np.sum((probabilities * -np.expm1(-excess))[excess > 0]) > limit:
                return False
        return True

    low = high = 1.0
    while not suffices(high):
        high *= 2.0
        if high > _LARGEST_STD:
            raise ValueError(
                f"epsilon and delta must allow noise of at most {_LARGEST_STD:,.0f} records, got {epsilon:g} and "
                f"{delta:g}; use larger values, or k-norm, which has no such limit"
            )
    while suffices(low) and low > 1e-3:
        low /= 2.0
    return bisect(lambda noise_std: not suffices(noise_std), low, high)[1]


@lru_cache(maxsize=64)
def loss_distribution(k: int, noise_std: float, reach: float = REACH) -> tuple[Floats, Floats]:
    """Return the losses (1 − t)/σ², t = vⱼ − vᵢ up to `reach` standard deviations √2·σ, and their probabilities."""
    last = _last_difference(noise_std, reach)
    t = np.arange(-last, last + 1)
    rest = log_coset_sum(k - 2, t, noise_std)  # the other entries have the sum −u
    parts = np.exp(rest - np.square(t) / (4.0 * noise_std**2) - rest.max())
    parity = np.array([parts[t % 2 == 0].sum(), parts[t % 2 == 1].sum()])
    weights = np.exp(-np.square(t) / (4.0 * noise_std**2)) * parity[t % 2]
    return (1 - t) / noise_std**2, weights / weights.sum()


def omitted_mass(noise_std: float, reach: float = REACH) -> float:
    """Return an upper bound on the probability of losses > 0 that `loss_distribution` omits or rounds to zero."""
    beyond = _last_difference(noise_std, reach) + 1
    return max(math.exp(-((beyond / noise_std) ** 2) / 4.0), _UNDERFLOW)


def _last_difference(noise_std: float, reach: float) -> int:
    """Return the largest |t| in a table of losses."""
    return math.ceil(math.sqrt(2.0) * reach * noise_std) + 2


def log_coset_sum(m: int, sums: NDArray[np.int64], noise_std: float) -> Floats:
    """Return ln Z_m(s), the log sum of exp(−‖v‖²/(2σ²)) over integer vectors of m entries with sum s.

    For large σ, by Poisson summation, Z_m(s) = (2πσ²)^((m − 1)/2)/√m · exp(−s²/(2mσ²))·(1 + O(exp(−π²σ²))).
    """
    if m == 0:
        return np.where(sums == 0, 0.0, -np.inf)
    if noise_std >= _SMOOTH or m == 1:
        scale = (m - 1) / 2 * math.log(2 * math.pi * noise_std**2) - 0.5 * math.log(m)
        return scale - np.square(sums) / (2.0 * m * noise_std**2)
    reach = math.ceil(30 * noise_std) + int(np.abs(sums).max(initial=0)) + 1
    one = np.exp(-np.square(np.arange(-reach, reach + 1)) / (2.0 * noise_std**2))
    total = one
    for _ in range(m - 1):
        total = np.convolve(total, one)
    with np.errstate(divide="ignore"):
        return np.log(total[total.size // 2 + sums])
