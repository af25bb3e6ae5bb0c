"""Types of arrays, and validation of arguments that many functions share: names, numbers, arrays of real numbers.

Messages about arrays contain a type or an index and no values, because arrays may hold counts or records.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
E = TypeVar("E")


def is_real(value: Any) -> bool:
    """Return True if `value` is one real number; False for strings, Booleans, complex numbers and arrays with axes."""
    if type(value) in (int, float):  # the common types first: tests against abstract classes are slow
        return True
    if isinstance(value, bool | np.bool_):
        return False
    return isinstance(value, Real) or (isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype.kind in "iuf")


def describe(value: Any) -> str:
    """Return one value as it appears in a message; of a container, which may be private, only the type and shape."""
    if is_real(value):
        return f"{value}"
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    if value is None or isinstance(value, str | complex | np.generic):
        return f"{value!r}"
    return str(value) if isinstance(value, bool) else f"a {type(value).__name__}"


def find_repeated(names: Sequence[str]) -> str | None:
    """Return the first name that stands twice, or None."""
    earlier = set()
    for name in names:
        if name in earlier:
            return name
        earlier.add(name)
    return None


def find_entry(registry: Mapping[str, E], entry: E | str, what: str = "name", advice: str = "choose one of them") -> E:
    """Return the registry entry with a given name; an entry is returned unchanged."""
    if isinstance(entry, type(next(iter(registry.values())))):
        return entry
    if not isinstance(entry, str) or entry not in registry:
        raise ValueError(f"{what} must be one of {', '.join(registry)}, got {entry!r}; {advice}")
    return registry[entry]


def validate_integer(name: str, value: Any, least: int = 1, advice: str = "pass an integer") -> int:
    """Return the public `value` as an int if it is an integer ≥ `least`, such as 3.0; a message ends with `advice`."""
    if not (is_real(value) and (isinstance(value, int) or math.isfinite(value)) and value == int(value) >= least):
        raise ValueError(f"{name} must be an integer >= {least}, got {describe(value)}; {advice}")
    return int(value)


def validate_number(name: str, value: Any, requirement: str, holds: Callable[[float], bool], advice: str) -> float:
    """Return the public `value` as a float if it is a real number for which `holds` is true, as it is not for NaN."""
    number = _as_float(value) if is_real(value) else math.nan
    if not holds(number):
        raise ValueError(f"{name} must be {requirement}, got {describe(value)}; {advice}")
    return number


def validate_positive(name: str, value: Any, advice: str) -> float:
    """Return the public `value` as a float if it is finite and > 0; the message ends with `advice`."""
    return validate_number(name, value, "a finite number > 0", lambda number: 0.0 < number < math.inf, advice)


def require_generator(rng: Any, purpose: str) -> np.random.Generator:
    """Return `rng` if it is a generator, which `purpose` needs."""
    if not isinstance(rng, np.random.Generator):
        raise ValueError(f"rng must be a numpy Generator for {purpose}, got {describe(rng)}; use default_rng(1)")
    return rng


def _as_float(value: Any) -> float:
    """Return a real number as a float; infinite if it is too large."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def real_array(name: str, values: ArrayLike) -> Floats:
    """Return `values` as float64, if possible without a copy, if all are real numbers; messages contain only types."""
    if _has_masked(values):
        raise ValueError(f"{name} must be an array of real numbers, got masked entries; remove or replace them")
    try:
        array = np.asarray(values)
    except (TypeError, ValueError):
        raise ValueError(
            f"{name} must be an array of real numbers, got rows of unequal lengths; pass rows of equal length"
        ) from None
    if isinstance(values, list | tuple) and any(isinstance(value, bool | np.bool_) for value in values):
        raise ValueError(f"{name} must be an array of real numbers, got a Boolean; convert the entries")
    if array.dtype == object:  # an array of objects, such as fractions
        if not all(is_real(value) for value in array.flat):
            raise ValueError(f"{name} must be an array of real numbers, got other objects; convert the entries")
        array = np.reshape([_as_float(value) for value in array.flat], array.shape)
    elif array.dtype.kind not in "iuf":
        kind = array.dtype.name.rstrip("0123456789")
        raise ValueError(f"{name} must be an array of real numbers, got an array of {kind}; convert the array")
    return array.astype(np.float64, copy=False)


def record_array(name: str, values: ArrayLike) -> Floats:
    """Return records as float64, of which Booleans are 0 and 1; see `real_array`, also for masked entries."""
    try:
        array = values if _has_masked(values) else np.asarray(values)
    except (TypeError, ValueError):  # rows of unequal lengths, which `real_array` refuses
        array = values
    is_boolean = isinstance(array, np.ndarray) and array.dtype.kind == "b" and not np.ma.is_masked(array)
    return real_array(name, np.asarray(array, dtype=np.float64) if is_boolean else array)


def returned_array(function: str, values: ArrayLike) -> NDArray[Any]:
    """Return what a function of the user returned as an array, which may have any dtype but no masked entries."""
    if _has_masked(values):
        raise ValueError(f"{function} must return an array without a mask, got masked entries; remove or replace them")
    return np.asarray(values)


def _has_masked(values: Any) -> bool:
    """Return True if entries are masked, also within lists, and in objects that convert to masked arrays."""
    if hasattr(values, "__dask_graph__"):
        return bool(np.ma.is_masked(values.compute()))  # NumPy's conversion of a lazy array drops its mask
    if isinstance(values, np.ndarray):
        of_objects = values.dtype == object and any(entry is np.ma.masked for entry in values.flat)
        return bool(np.ma.is_masked(values) or of_objects)
    if isinstance(values, list | tuple):
        return any(map(_has_masked, values)) if any(type(value) not in (int, float) for value in values) else False
    if isinstance(values, int | float | str | np.generic) or not hasattr(values, "__array__"):
        return False
    return bool(np.ma.is_masked(values.__array__()))
