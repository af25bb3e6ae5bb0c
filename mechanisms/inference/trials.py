"""Checks of arrays with one row per trial, which methods for many trials take."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.core.arguments import Floats, real_array


def validate_statistics(name: str, statistics: ArrayLike, d: int | None = None) -> Floats:
    """Return the finite statistics of many trials, given as (trials, d), or as (trials,) or () if d = 1."""
    values = real_array(name, statistics)
    values = values.reshape(-1, 1) if values.ndim < 2 else values
    if values.ndim != 2 or values.size == 0 or not np.all(np.isfinite(values)) or d not in (None, values.shape[1]):
        raise ValueError(f"{name} must be finite, one row per trial, got shape {values.shape}; pass (trials, d)")
    return values


def per_trial(name: str, values: Floats, trials: int, cells: tuple[int, ...] = ()) -> Floats:
    """Return values with shape (trials, *cells) or (trials, m, *cells); the first axis may be omitted for one trial."""
    values = values[None] if values.ndim == len(cells) and trials == 1 else values
    axes = values.ndim - len(cells)
    if axes not in (1, 2) or len(values) != trials or values.shape[axes:] != cells:
        shape = ", ".join(str(length) for length in (trials, *cells))
        rule = f"shape ({shape}), or this with one more axis after the first"
        raise ValueError(f"{name} must have {rule}, got {values.shape}; pass one row per trial")
    return values
