"""Parts of panels that several studies share."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from mechanisms.core.metadata import Entry
from pipeline import Method, Streams

Values = Mapping[str, Any]
"""Values of factors and constants by name: a cell, or a setting of a method."""


NOMINAL = 0.95
"""Probability of the intervals whose coverage studies measure."""


def score_intervals(
    truth: np.ndarray, estimate: np.ndarray, low: np.ndarray, high: np.ndarray
) -> dict[str, np.ndarray]:
    """Return coverage, width and interval score, width + (2/0.05)·distance, of intervals, and the squared error."""
    outside = np.maximum(low - truth, 0.0) + np.maximum(truth - high, 0.0)
    return {
        "covered": 1.0 * (outside == 0.0),
        "width": high - low,
        "square": (estimate - truth) ** 2,
        "score": high - low + 2.0 / (1.0 - NOMINAL) * outside,
    }


def require(holds: object, requirement: str, got: object, advice: str = "") -> None:
    """Raise ValueError unless a value of a factor satisfies a requirement, such as "n must be >= 1"."""
    if not holds:
        raise ValueError(f"{requirement}, got {got}{advice and f'; {advice}'}")


def given(cell: Values, streams: Streams) -> Values:
    """Return the cell as the data of methods that compute exact numbers, so that nothing is simulated."""
    return cell


def method_of(entry: Entry, evaluate: Callable[..., Mapping[str, Any]], **options: Any) -> Method:
    """Return the method of an entry of a registry; `evaluate` takes the entry, and then the arguments of a method."""
    declared = {"note": entry.note, "is_private": getattr(entry, "is_private", True), **options}
    return Method(entry.name, partial(evaluate, entry), **declared)
