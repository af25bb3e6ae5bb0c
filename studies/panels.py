"""Parts of panels that several studies share."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from mechanisms.metadata import Entry
from pipeline import Method, Streams


def given(cell: Mapping[str, Any], streams: Streams) -> Mapping[str, Any]:
    """Return the cell as the data of methods that compute exact numbers, so that nothing is simulated."""
    return cell


def method_of(entry: Entry, evaluate: Callable[..., Mapping[str, Any]], **options: Any) -> Method:
    """Return the method of an entry of a registry; `evaluate` takes the entry, and then the arguments of a method."""
    given = {"note": entry.note, "is_private": getattr(entry, "is_private", True), **options}
    return Method(entry.name, partial(evaluate, entry), **given)
