"""Releases of sums of private records, with exact draws of the noise from entropy of the operating system.

The contribution of every record, and each end of the bounds, is rounded to a multiple of a public unit g, a power of
two. The sum and its sensitivity are then exact integers, and the noise is an integer drawn by OpenDP:

    y = g·(Σ qᵢ + Z),   qᵢ = round(c(xᵢ)/g),   Pr[Z = z] ∝ exp(−|z|·g/b),   g ≤ 2⁻³²·min(b, Δ).

If the variance of normal records is unknown, c(xᵢ) is the standardised record zᵢ of `ReleaseModel`, in [−1, 1], and the
sum of round(qᵢ²·g) is also released, with noise of the same scale. Both are pure numbers.

**Assumption of inference.** Inference methods assume y = s + Lap(b), where b is the `noise_scale` of the release. As
functions of s, this density and the probabilities on the grid are both ∝ exp(−|y − s|/b). For integer records s is a
multiple of g, and the likelihood has no error. For other records rounding by at most g/2 changes the log likelihood by
at most n·g/(2b) ≤ n·2⁻³³, which is 1e-4 at n = 10⁶. A square z² changes by at most 3g/2, and its log likelihood by at
most three times as much.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.core.arguments import Floats, find_entry, record_array
from mechanisms.core.exact_scales import laplace_scale_for
from mechanisms.core.noise import Noise, calibrated_noise
from mechanisms.core.privacy import Guarantee, Neighbouring, validate_relation
from mechanisms.core.privacy_parameters import validate_epsilon, validate_size
from mechanisms.inference.families import MODELS, Bounds, Family
from mechanisms.inference.release_model import ReleaseModel
from mechanisms.release import CheckedRelease, Hook, LedgerLike, Rehearsal, check_release

_BITS = 32


@dataclass(frozen=True, eq=False)
class PublishedSums:
    """Released sums with Laplace noise; all attributes are public."""

    noisy: Floats  # release y, shape (d,)
    noise_scale: float  # scale b of the noise, an argument of the inference methods
    unit: float  # unit g, of which y is a multiple; 0 for a rehearsal
    guarantee: Guarantee | None = field(kw_only=True)  # None for a rehearsal
    rehearsal: bool = field(kw_only=True)  # True if the noise was drawn from a seed, so that nothing is private


def publish_sums(
    family: Family | str, data: ArrayLike, epsilon: float, bounds: Bounds | None = None,
    relation: Neighbouring = Neighbouring.REPLACE_ONE, rehearsal_seed: int | None = None,
    outside: Literal["drop", "clamp"] = "drop", n: int | None = None, *,
    ledger: LedgerLike | None = None, before_release: Hook | None = None,
) -> PublishedSums:  # fmt: skip
    """Release the sufficient statistics of private records with Laplace noise.

    Parameters
    ----------
    family : Family or str
        An entry of `MODELS` or its name. If the variance of normal records is unknown, noisy sums of z and z² are
        released, where z is the distance of a record from the midpoint of the bounds in units of half of their width.
    data : array_like, shape (n,), or (n, k) for the multinomial
        Private records, one per row, one-hot for the multinomial. With `n`, their sum, a scalar or of shape (k,). Error
        messages contain neither.
    epsilon : float
        Privacy loss in nats, finite and > 0.
    bounds : tuple of float, optional
        Public bounds for unbounded records; see `Family.validate_bounds`.
    relation : Neighbouring
        Neighbouring relation. Under addition and removal of a record the number of records is private, and the data may
        be empty, with shape (0, k) for the multinomial; the inference methods assume that the number is public.
    rehearsal_seed : int, optional
        Seed of a rehearsal, which draws in double precision and is not private.
    outside : {"drop", "clamp"}
        Contribution of a record outside the bounds: 0, or the nearest bound.
    n : int, optional
        Number of records, if `data` is the sum of binomial or multinomial records.
    ledger, before_release : optional
        Ledger of all releases from these records, or its path, in which this one is entered before the noise is drawn,
        and a function that is called in between; see `mechanisms.release.check_release`.

    Privacy
    -------
    ε-DP (proved) under `relation`, as the draws are exact and use fresh entropy of the operating system. Every call is
    a separate release. A rehearsal has no guarantee. The guarantee does not cover errors: an error about `data` reveals
    that a record is outside the support of the family, and the index of its row. Check the records before a release,
    and do not publish such an error.

    Raises
    ------
    ValueError
        If an argument is invalid, or the ledger has less left than the release spends, before any noise is drawn.
    ModuleNotFoundError
        If OpenDP is not installed.

    Examples
    --------
    >>> from mechanisms.inference.families import FAMILIES
    >>> released = publish_sums(FAMILIES["exponential"], [0.5, 1.0, 7.0], epsilon=0.5, bounds=(0.0, 2.0))
    >>> print(released.noisy.shape, released.noise_scale, released.guarantee)
    (1,) 4.0 0.5-DP
    """
    family, loss = find_entry(MODELS, family, "family"), validate_epsilon(epsilon)
    guarantee = Guarantee(loss, relation=validate_relation(relation))
    release = check_release(guarantee, "publish_sums", rehearsal_seed, ledger, before_release)
    # If the number of records is private, an error for empty data would reveal it.
    records, n = validate_data(data, family, n, int(relation is Neighbouring.REPLACE_ONE))
    model = ReleaseModel(family.name, max(n, 1), Noise("laplace", 1.0), bounds, outside)
    return release_sums(model, records, loss, release, relation)


def release_sums(
    model: ReleaseModel, records: Floats, epsilon: float, release: CheckedRelease | Rehearsal,
    relation: Neighbouring = Neighbouring.REPLACE_ONE,
) -> PublishedSums:  # fmt: skip
    """Release the sums of records that `validate_data` has checked, with the guarantee of `release`."""
    sensitivity = model.sensitivity(relation)
    noise = calibrated_noise("laplace", sensitivity, epsilon)
    if isinstance(release, Rehearsal):
        rng, s = release.generator("publish_sums"), model.statistic(records)
        return PublishedSums(s + noise.sample(rng, s.shape), noise.scale, 0.0, guarantee=None, rehearsal=True)
    unit = math.ldexp(1.0, math.frexp(min(noise.scale, sensitivity))[1] - 1 - _BITS)
    unit = min(unit, 1.0) if model.entry.integer_records else unit
    totals, integer_sensitivity = _integer_sums(model, records, relation, unit)
    scale_in_units = laplace_scale_for(integer_sensitivity, epsilon)
    drawn = release.enter().laplace(scale_in_units, len(totals)).tolist()
    values = [unit * (t + z) for t, z in zip(totals, drawn, strict=True)]
    return PublishedSums(np.array(values), unit * scale_in_units, unit, guarantee=release.guarantee, rehearsal=False)


def validate_data(data: ArrayLike, family: Family, n: int | None = None, least: int = 1) -> tuple[Floats, int]:
    """Return the records, or one row with their sum if `n` is given, and the number of records, at least `least`.

    Booleans are 0 and 1. Records must be in the support of the family. Messages contain no records.
    """
    if n is not None and family.is_truncated:
        raise ValueError(f"n must be None for the {family.name} family, got {n}; pass the records, each to be bounded")
    size = None if n is None else validate_size(n, least)
    records = record_array("data", data)
    if size is not None:
        return _validate_sum(records, family, size), size
    if records.ndim != 1 + family.is_vector or 0 in records.shape[1:] or len(records) < least:
        shape = "(n, k)" if family.is_vector else "(n,)"
        raise ValueError(f"data must have shape {shape}, n >= {least}, got {records.shape}; pass one record per row")
    low, high = family.record_range
    allowed = np.isfinite(records) & (records >= low) & (records <= high)
    if family.integer_records:
        allowed &= records == np.floor(records)
    if not np.all(allowed):
        kind = "integers" if family.integer_records else "finite numbers"
        limits = f" between {low:g} and {high:g}" if high < np.inf else f" >= {low:g}" if low > -np.inf else ""
        rule, row = f"{kind}{limits} for the {family.name} family", np.argwhere(~allowed)[0, 0]
        raise ValueError(f"data must be {rule}, got an invalid value in row {row}; remove or correct such records")
    if family.is_vector and not np.all(records.sum(axis=1) == 1):
        raise ValueError("data must have one-hot rows, got a row whose sum is not 1; encode one category per record")
    return records, len(records)


def _validate_sum(statistic: Floats, family: Family, n: int) -> Floats:
    """Return the number of ones, or one count per category, of n binomial or multinomial records as one row."""
    if statistic.ndim != int(family.is_vector) or 0 in statistic.shape:
        allowed = "one count per category" if family.is_vector else "one number"
        raise ValueError(f"data must be {allowed} if n is given, got shape {statistic.shape}; pass the sum of records")
    consistent = statistic.sum() == n if family.is_vector else statistic <= n
    if not (np.all(statistic >= 0) and np.all(statistic == np.floor(statistic)) and consistent):
        allowed = f"integers >= 0 with sum n={n}" if family.is_vector else f"an integer between 0 and n={n}"
        raise ValueError(f"data must be {allowed}, got another sum; correct the sum or n")
    return statistic[None]


def _integer_sums(model: ReleaseModel, records: Floats, relation: Neighbouring, unit: float) -> tuple[list[int], int]:
    """Return the sums of rounded contributions and their ℓ₁ sensitivity, both as multiples of `unit`."""
    # The square of q units is q²·g units, rounded to an integer in exact arithmetic. As |u| + |v| is the larger of |u +
    # v| and |u − v|, the sensitivity is the largest change of q ± q²·g, plus 1 for the rounding of both squares.
    if model.bounds is None:
        per_record = int(1 / unit)
        totals = [int(total) * per_record for total in np.atleast_1d(records.sum(axis=0)).tolist()]
        return totals, per_record * int(model.sensitivity(relation))
    quotients = [int(q) for q in np.rint(model.contributions(records) / unit).tolist()]
    ends = (-1.0, 1.0) if model.entry.has_square else model.bounds
    low, high = (int(np.rint(end / unit)) for end in ends)
    extremes = [Fraction(low), Fraction(high), *([Fraction(0)] if model.outside == "drop" else [])]
    if not model.entry.has_square:
        return [sum(quotients)], int(_largest_change(extremes, relation))
    g = Fraction(unit)
    extremes += [-1 / (2 * g), 1 / (2 * g)]
    changes = [_largest_change([q + sign * q * q * g for q in extremes], relation) for sign in (-1, 1)]
    return [sum(quotients), sum(round(q * q * g) for q in quotients)], math.ceil(max(changes)) + 1


def _largest_change(values: list[Fraction], relation: Neighbouring) -> Fraction:
    """Return the largest change of a sum if one of its terms is replaced, or is added or removed."""
    return max(values) - min(values) if relation is Neighbouring.REPLACE_ONE else max(map(abs, values))
