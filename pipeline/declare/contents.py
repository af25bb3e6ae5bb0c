"""Contents of the data that a simulation returns: its arrays, and copies of everything else for each method."""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

_SHARED = frozenset({np.ndarray, int, float, complex, bool, str, bytes, type(None)})


def leaves(data: Any) -> Iterator[Any]:
    """Yield the arrays, and the objects that are no containers, in simulated data.

    Containers are mappings, tuples, lists, dataclasses and arrays of objects.
    """
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


def copy_for_method(data: Any) -> Any:
    """Copy data, so that no method changes those of the next; arrays of numbers, which are read-only, are shared.

    Objects that cannot be copied, such as locks, are shared as well.
    """
    return _copy(data, {})


def _copy(data: Any, copies: dict[int, Any]) -> Any:
    """Copy plain containers here, which is fast, and other objects by `deepcopy`; `copies` is its memo."""
    kind = type(data)
    if kind in _SHARED and not (kind is np.ndarray and data.dtype.hasobject):
        return data
    if id(data) in copies:  # a container may contain itself
        return copies[id(data)]
    if kind is dict:
        mapping = copies[id(data)] = {}
        mapping.update((name, _copy(item, copies)) for name, item in data.items())
        return mapping
    if kind is list:
        items = copies[id(data)] = []
        items.extend(_copy(item, copies) for item in data)
        return items
    if kind is tuple:
        return tuple(_copy(item, copies) for item in data)
    held = list(leaves(data))
    copies.setdefault(id(copies), []).append(held)  # as `deepcopy` does, so that no other object has the same identity
    copies.update((id(item), item) for item in held if _is_read_only(item))
    try:
        return copy.deepcopy(data, copies)
    except Exception:  # methods of the object may raise anything
        return data


def _is_read_only(item: Any) -> bool:
    """Return True for arrays that `freeze_arrays` protects; masks, and the items of arrays of objects, can change."""
    return isinstance(item, np.ndarray) and not isinstance(item, np.ma.MaskedArray) and not item.dtype.hasobject
