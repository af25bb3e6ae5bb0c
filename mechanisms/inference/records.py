"""Validation of records, and their sums with and without truncation at public bounds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mechanisms.arguments import real_array
from mechanisms.privacy_parameters import validate_size

__all__ = ["Bounds", "Floats", "as_records", "as_statistic", "draw_sums", "require_records", "sum_records"]

Floats = NDArray[np.float64]
Bounds = tuple[float, float]

_RECORDS_AT_ONCE = 1 << 16


def as_records(data: ArrayLike) -> Floats:
    """Return private records as an array of float64, in which Booleans are 0 and 1."""
    if np.ma.is_masked(data):
        return real_array("data", data)  # raises an error
    try:
        values = np.asarray(data)
    except (TypeError, ValueError):  # the rows have unequal lengths
        return real_array("data", data)
    return real_array("data", values.astype(np.float64) if values.dtype.kind == "b" else values)


def require_records(
    records: Floats,
    family: str,
    record_range: tuple[float, float],
    integer_records: bool,
    is_vector: bool = False,
    least: int = 1,
) -> None:
    """Check that the records of a data set are in the support of a family.

    `least` is the smallest number of records: 0 if their number is private, and 1 otherwise.
    """
    n_axes = 2 if is_vector else 1
    if records.ndim != n_axes or 0 in records.shape[1:] or len(records) < least:
        shape = "(n, k)" if n_axes == 2 else "(n,)"
        raise ValueError(f"data must have shape {shape}, n >= {least}, got {records.shape}; pass one record per row")
    low, high = record_range
    allowed = np.isfinite(records) & (records >= low) & (records <= high)
    if integer_records:
        allowed &= records == np.floor(records)
    if not np.all(allowed):
        kind = "integers" if integer_records else "finite numbers"
        limits = f" between {low:g} and {high:g}" if high < np.inf else f" >= {low:g}" if low > -np.inf else ""
        raise ValueError(
            f"data must be {kind}{limits} for the {family} family, "
            f"got an invalid value in row {np.argwhere(~allowed)[0, 0]}; remove or correct such records"
        )
    if n_axes == 2 and not np.all(records.sum(axis=1) == 1):
        raise ValueError("data must have one-hot rows, got a row whose sum is not 1; encode one category per record")


def as_statistic(
    data: ArrayLike, family: str, n: int, record_range: tuple[float, float], is_vector: bool, least: int = 1
) -> Floats:
    """Return the sum of n binomial or multinomial records as one row, of which it is the sum.

    `data` is the number of ones, or one count per category.
    """
    if record_range != (0.0, 1.0):
        raise ValueError(
            f"n is for sums of binomial and multinomial records, got n={n} for the {family} family; "
            f"pass the records, as the bounds apply to each of them"
        )
    n, statistic = validate_size(n, least), as_records(data)
    if statistic.ndim != int(is_vector) or 0 in statistic.shape:
        allowed = "one count per category" if is_vector else "one number"
        raise ValueError(
            f"data must be {allowed} if n is given, got shape {statistic.shape}; pass the sum of n records"
        )
    consistent = statistic.sum() == n if is_vector else statistic <= n
    if not (np.all(statistic >= 0) and np.all(statistic == np.floor(statistic)) and consistent):
        allowed = f"integers >= 0 with sum n={n}" if is_vector else f"an integer between 0 and n={n}"
        raise ValueError(f"data must be {allowed}, got another sum; correct the sum or n")
    return statistic[None]


def draw_sums(
    rng: np.random.Generator,
    draw: Callable[[np.random.Generator, Floats, int], NDArray],
    theta: Floats,
    n: int,
    bounds: Bounds,
) -> tuple[Floats, Floats]:
    """Draw the records of each trial in batches of at most 2¹⁶ and return their sums.

    `draw` is a function of (rng, theta, n) that returns records, shape (trials, n). Both sums, of all records and of
    the records within bounds, have the shape (trials, 1) of `theta`.
    """
    s, truncated = np.zeros(theta.shape), np.zeros(theta.shape)
    trials_at_once = max(1, _RECORDS_AT_ONCE // n)
    for start in range(0, len(theta), trials_at_once):
        rows = slice(start, start + trials_at_once)
        for done in range(0, n, _RECORDS_AT_ONCE):
            records = draw(rng, theta[rows], min(n - done, _RECORDS_AT_ONCE))
            all_records, within = sum_records(records, bounds)
            s[rows] += all_records[:, None]
            truncated[rows] += within[:, None]
    return s, truncated


def sum_records(records: NDArray, bounds: Bounds) -> tuple[Floats, Floats]:
    """Return the sums of all records and of the records within bounds, over the last axis."""
    within = (records >= bounds[0]) & (records <= bounds[1])
    # sum(where=within) is slower, as NumPy does not vectorise it.
    return records.sum(axis=-1, dtype=np.float64), (records * within).sum(axis=-1, dtype=np.float64)
