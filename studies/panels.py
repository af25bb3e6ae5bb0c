"""Parts of panels that several studies share."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from mechanisms.metadata import Entry
from pipeline import Method, Streams

Values = Mapping[str, Any]
"""Values of factors and constants by name: a cell, or a setting of a method."""


def require(holds: object, requirement: str, got: object, advice: str = "") -> None:
    """Raise ValueError unless a value of a factor satisfies a requirement, such as "n must be >= 1"."""
    if not holds:
        raise ValueError(f"{requirement}, got {got}{advice and f'; {advice}'}")


def given(cell: Values, streams: Streams) -> Values:
    """Return the cell as the data of methods that compute exact numbers, so that nothing is simulated."""
    return cell


def method_of(entry: Entry, evaluate: Callable[..., Mapping[str, Any]], **options: Any) -> Method:
    """Return the method of an entry of a registry; `evaluate` takes the entry, and then the arguments of a method."""
    given = {"note": entry.note, "is_private": getattr(entry, "is_private", True), **options}
    return Method(entry.name, partial(evaluate, entry), **given)
