"""Conversion of simulated arrays to read-only arrays, so that no method can change the data of the next method."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np


def freeze_arrays(data: Any) -> None:
    """Make NumPy arrays read-only in place, also in mappings, tuples, lists, dataclasses and arrays of objects.

    Arrays inside other objects, such as a `pandas.DataFrame`, and the base arrays of views remain writable.
    """
    for item in leaves(data):
        if isinstance(item, np.ndarray):
            item.setflags(write=False)


def leaves(data: Any) -> Iterator[Any]:
    """Yield the arrays, and the objects that are no containers, in simulated data; see `freeze_arrays`."""
    waiting, seen = [data], set()
    while waiting:
        item = waiting.pop()
        held: Any = ()
        if isinstance(item, np.ndarray):
            yield item
            held = item.ravel().tolist() if item.dtype.hasobject else ()
        elif isinstance(item, Mapping):
            held = item.values()
        elif isinstance(item, (tuple, list)):
            held = item
        elif is_dataclass(item) and not isinstance(item, type):
            held = [getattr(item, field.name, None) for field in fields(item)]
        else:
            yield item
        if held and id(item) not in seen:  # a container may contain itself
            seen.add(id(item))
            waiting.extend(held)
