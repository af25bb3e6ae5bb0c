"""Read-only data: no method changes the numbers of the next one."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np


def freeze_arrays(data: Any) -> None:
    """Make NumPy arrays read-only, in place, so that a write raises ValueError.

    Covers an array, and arrays in mappings, tuples (also named), lists, dataclasses and arrays of objects, nested to
    any depth. Arrays that other objects hold, such as a `pandas.DataFrame` or a sparse matrix, stay writable, and so
    does the memory that a view was taken from.

    Parameters
    ----------
    data : object
        Data as a simulation returns them.

    Examples
    --------
    >>> data = {"x": np.zeros(3)}
    >>> freeze_arrays(data)
    >>> data["x"] *= 2
    Traceback (most recent call last):
    ...
    ValueError: output array is read-only
    """
    waiting, seen = [data], set()
    while waiting:
        item = waiting.pop()
        held: Any = ()
        if isinstance(item, np.ndarray):
            item.setflags(write=False)
            held = item.ravel().tolist() if item.dtype.hasobject else ()
        elif isinstance(item, Mapping):
            held = item.values()
        elif isinstance(item, (tuple, list)):
            held = item
        elif is_dataclass(item) and not isinstance(item, type):
            held = [getattr(item, field.name, None) for field in fields(item)]
        if held and id(item) not in seen:  # a container may hold itself
            seen.add(id(item))
            waiting.extend(held)
