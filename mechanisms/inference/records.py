"""Sums of records with and without truncation at public bounds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bounds = tuple[float, float]

_RECORDS_AT_ONCE = 1 << 16


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
