"""Releases of posterior probabilities and quantiles of real data, with exact noise from operating-system entropy.

All noise consists of integers, whose distribution does not depend on double precision:

* Laplace noise on sums of bounded contributions, rounded to 2³² + 1 values (`ExactNoise.noisy_sums`).
* The search for bounds compares integer counts, with noise that is a multiple of 2⁻⁴⁰. Its probabilities differ from
  those with continuous noise by less than 1e-9 (relative), the margin in the calibration of ``quantile-exact``.
* The scale and centre of ``quantile-centred`` are drawn on public grids, with windows that are integer intervals: ln w
  on multiples of (ln 2)/8, and c on multiples of w/64. The base weight of a centre is a power of two, between ½ and 3/2
  times w/√(c² + w²). The weights of the steps are integers with at least 50 decimal digits, computed in decimal
  arithmetic, and `ExactNoise.below` draws from them exactly. Their relative error, which is below 1e-45, is the excess
  privacy loss.
"""

from __future__ import annotations

import bisect
import decimal
import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.core.arguments import Floats
from mechanisms.core.exact_scales import noisy_sums_scale
from mechanisms.core.privacy import Guarantee
from mechanisms.core.privacy_parameters import add_losses, as_decimal
from mechanisms.regression.partition_probability import PartitionProbability
from mechanisms.regression.partition_quantile import SCALE_WINDOW, PartitionQuantile, ReleasedQuantiles
from mechanisms.regression.sparse_vector import SparseVector
from mechanisms.release import CheckedRelease, ExactNoise, Hook, LedgerLike, open_ledger

_SEARCH_BITS = 40
_CENTRE_STEPS = 64  # number of grid points of c per scale w
_LOG_SCALE_STEPS = 8  # number of grid points of w per factor of two
_DIGITS = 50
_MOST_DOUBLINGS = 480  # T, so that the number of grid points of c, up to 64·4ᵀ, is a double
_LARGEST_NOISE = 2.0**52  # largest scale of `ExactNoise.laplace`
_MOST_BYTES = 2.0**32  # largest memory for the weights of a draw


def validate_draws(mechanism: PartitionProbability | PartitionQuantile) -> None:
    """Raise a ValueError unless the exact noise of a mechanism can be drawn, which depends on public parameters only.

    Releases raise the same errors. Call this function first if something is read or spent before a release.
    """
    if not mechanism.method.is_private:
        raise ValueError(f"method must be private to release real data, got {mechanism.name}; choose another method")
    if isinstance(mechanism, PartitionProbability):
        noisy_sums_scale(mechanism.epsilon)
        return
    noisy_sums_scale(mechanism.split[-1])
    if not mechanism.method.is_centred:
        needed = mechanism.search.query_scale * 2**_SEARCH_BITS / _LARGEST_NOISE
        if needed > 1.0:
            raise ValueError(
                f"epsilon of the bounds must be at least {needed * mechanism.split[0]:.2g} for exact noise, got "
                f"{mechanism.split[0]:g}; increase epsilon, or its part for the bounds"
            )
        return
    if mechanism.search.doublings > _MOST_DOUBLINGS:
        raise ValueError(
            f"doublings must be at most {_MOST_DOUBLINGS} for exact draws of {mechanism.name}, got "
            f"{mechanism.search.doublings}; use fewer"
        )
    # about 2M steps have weights up to e^(εM/2)
    n_bytes = mechanism.n_partitions**2 * max(mechanism.split[:2]) * math.log2(math.e) / 8
    if n_bytes > _MOST_BYTES:
        raise ValueError(
            f"exact draws of {mechanism.name} must need at most {_MOST_BYTES / 1e9:.2g} GB, got {n_bytes / 1e9:.2g} GB "
            f"for {mechanism.n_partitions:,} partitions and epsilon = {mechanism.epsilon:g}; decrease one of them"
        )


def publish_probabilities(
    mechanism: PartitionProbability,
    probabilities: ArrayLike,
    *,
    ledger: LedgerLike | None = None,
    before_release: Hook | None = None,
) -> Floats:
    """Release the posterior probability at each cutoff of real data, as `PartitionProbability.release` by exact draws.

    The aggregate differs from the one with continuous noise by at most 2⁻³³·M times the range of a contribution. The
    entry in the ledger is the joint guarantee of all cutoffs; see `mechanisms.publish_sums` for `before_release`.
    """
    validate_draws(mechanism)
    terms = mechanism.terms(probabilities)
    _require_columns("probabilities", terms)
    guarantee = joint_guarantee(mechanism, terms.shape[-1])
    release = CheckedRelease(guarantee, "publish_probabilities", open_ledger(ledger), before_release)
    high = 1.0 if mechanism.method.is_mean else mechanism.sensitivity
    noisy = release.enter().noisy_sums(terms, 0.0, high, mechanism.epsilon)
    return mechanism.postprocess(noisy / mechanism.n_partitions if mechanism.method.is_mean else noisy)


def publish_quantiles(
    mechanism: PartitionQuantile,
    quantiles: ArrayLike,
    spreads: ArrayLike,
    *,
    ledger: LedgerLike | None = None,
    before_release: Hook | None = None,
) -> ReleasedQuantiles:
    """Release the posterior quantiles of real data, as `PartitionQuantile.release` by exact draws.

    The entry in the ledger is the joint guarantee of all quantiles; see `mechanisms.publish_sums` for `before_release`.
    """
    validate_draws(mechanism)
    mechanism = _within_epsilon(mechanism)
    q, s = mechanism.validate(quantiles, spreads)
    _require_columns("quantiles", q)
    guarantee = joint_guarantee(mechanism, q.shape[1])
    release = CheckedRelease(guarantee, "publish_quantiles", open_ledger(ledger), before_release)
    noise = release.enter()

    def noisy_mean(values: Floats, centre: float, half_width: float) -> float:
        # the ends of a narrow interval far from 0 may be equal after rounding; those of the differences are not
        total = noise.noisy_sums((values - centre)[:, None], -half_width, half_width, mechanism.split[-1])
        return centre + float(total[0]) / mechanism.n_partitions

    return mechanism.combine(
        q,
        partial(_draw_scale, noise, mechanism, s),
        partial(_draw_centre, noise, mechanism),
        partial(_search, noise, mechanism.search),
        noisy_mean,
    )


def _within_epsilon(mechanism: PartitionQuantile) -> PartitionQuantile:
    """Return a mechanism whose last part is smaller by rounding if the parts exceed epsilon by rounding."""
    *others, last = mechanism.split
    rest = Fraction(mechanism.epsilon) - sum(map(Fraction, others))
    if last <= rest:
        return mechanism
    last = float(rest) if Fraction(float(rest)) <= rest else math.nextafter(float(rest), 0.0)
    return replace(mechanism, split=(*others, last))


def _require_columns(name: str, values: Floats) -> None:
    if values.ndim != 2 or not values.size:
        raise ValueError(
            f"{name} must have shape (M, c) with c >= 1, got {values.shape}; pass those of one data set, a row per "
            "partition"
        )


def joint_guarantee(mechanism: PartitionProbability | PartitionQuantile, n_values: int) -> Guarantee:
    """Return the guarantee of `n_values` values together."""
    if not mechanism.method.is_private:
        raise ValueError(f"method must be private to release real data, got {mechanism.name}; choose another method")
    shared, total = map(as_decimal, (mechanism.shared_loss, mechanism.epsilon))
    return Guarantee(add_losses(shared, n_values * (total - shared)))


def draw_window(
    noise: ExactNoise, values: Sequence[int], half_window: int, epsilon: float, reach: int, level: int | None = None
) -> int:
    """Draw an integer x, |x| ≤ reach, with probability ∝ b(x)·exp((ε/2)·#{j : |v_j − x| ≤ h}), ε-DP.

    Values v_j and half-width h = `half_window` are integers. The base weight b(x) is 1 for |x| < 2^level, and then
    halves whenever |x| doubles; without a level, b(x) = 1. The relative error of the weights is below 1e-45.
    """
    steps = window_weights(values, half_window, epsilon, reach, level)
    chosen = noise.below(sum(weight for _, _, weight in steps))
    for low, high, weight in steps:
        if chosen < weight:
            return low + noise.below(high - low)
        chosen -= weight
    raise AssertionError("unreachable: the draw is below the sum of all weights")


def window_weights(
    values: Sequence[int], half_window: int, epsilon: float, reach: int, level: int | None = None
) -> list[tuple[int, int, int]]:
    """Return the steps of the distribution of `draw_window`, each as (start, stop, total weight of its integers)."""
    v = [min(max(value, -reach), reach) for value in values]
    starts, ends = sorted(value - half_window for value in v), sorted(value + half_window + 1 for value in v)
    levels = [] if level is None else [2**power for power in range(level, reach.bit_length() + 1)]
    breaks = {-reach, reach + 1, *starts, *ends, *levels, *(1 - each for each in levels)}
    edges = sorted(edge for edge in breaks if -reach <= edge <= reach + 1)
    steps = list(itertools.pairwise(edges))
    counts = [bisect.bisect_right(starts, low) - bisect.bisect_right(ends, low) for low, _ in steps]
    with decimal.localcontext() as context:
        context.prec, context.Emax, context.Emin = _DIGITS + 10, decimal.MAX_EMAX, decimal.MIN_EMIN
        factor = (Decimal(epsilon) / 2).exp()
        power = {count: factor**count for count in set(counts)}
        unit = Decimal(10) ** _DIGITS
        weighted = []
        for (low, high), count in zip(steps, counts, strict=True):
            halvings = 0 if level is None else max(0, max(abs(low), abs(high - 1)).bit_length() - level)
            base = (high - low) << (reach.bit_length() - halvings)
            weighted.append((low, high, int(base * power[count] * unit)))
    return weighted


def _draw_scale(noise: ExactNoise, mechanism: PartitionQuantile, spreads: Floats) -> float:
    """Draw w from the grid on which ln w − ln μ is a multiple of (ln 2)/8."""
    search, reach = mechanism.search, _LOG_SCALE_STEPS * mechanism.search.doublings
    with np.errstate(divide="ignore", over="ignore"):
        steps = _LOG_SCALE_STEPS * np.log2(spreads * math.sqrt(mechanism.n_partitions) / search.start)
    values = np.rint(np.clip(steps, -reach, reach)).astype(np.int64).tolist()
    drawn = draw_window(noise, values, _LOG_SCALE_STEPS // 2, mechanism.split[0], reach)
    return search.start * 2.0 ** (drawn / _LOG_SCALE_STEPS)


def _draw_centre(noise: ExactNoise, mechanism: PartitionQuantile, values: Floats, scale: float) -> float:
    """Draw c from the multiples of w/64."""
    step = scale / _CENTRE_STEPS
    bound = mechanism.search.bound(mechanism.search.doublings)
    reach = int(bound / step)
    steps = [int(value) for value in np.rint(np.clip(values, -bound, bound) / step).tolist()]
    half_window = int(SCALE_WINDOW * _CENTRE_STEPS)
    drawn = draw_window(noise, steps, half_window, mechanism.split[1], reach, (_CENTRE_STEPS - 1).bit_length())
    return drawn * step


def _search(noise: ExactNoise, search: SparseVector, values: Floats) -> int:
    """Draw the stopping index of the search, with noise that is a multiple of 2⁻⁴⁰."""
    unit = 2**_SEARCH_BITS
    (threshold,) = noise.laplace(search.threshold_scale * unit, 1).tolist()
    noises = noise.laplace(search.query_scale * unit, search.doublings).tolist()
    threshold += round(search.share * search.n_values * unit)
    counts = search.counts(values).tolist()
    above = (count * unit + drawn >= threshold for count, drawn in zip(counts[:-1], noises, strict=True))
    return next((t for t, passed in enumerate(above) if passed), search.doublings)
