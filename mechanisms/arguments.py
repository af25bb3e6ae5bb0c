"""Validation of arguments that many functions share: real numbers, integers and arrays of real numbers.

Messages about arrays contain a type or an index and no values, because arrays may hold counts or records.
"""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["is_real", "real_array", "validate_integer", "validate_positive"]


def is_real(value: Any) -> bool:
    """Return True if `value` is one real number; strings, Booleans, complex numbers and arrays with axes return False.

    Parameters
    ----------
    value : object

    Returns
    -------
    bool

    Examples
    --------
    >>> is_real(1), is_real(np.float32(1.5)), is_real("1.0"), is_real(1j), is_real(True)
    (True, True, False, False, False)
    """
    if type(value) in (int, float):  # the common types first: tests against abstract classes are slow
        return True
    if isinstance(value, bool | np.bool_):
        return False
    return isinstance(value, Real) or (isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype.kind in "iuf")


def validate_integer(name: str, value: Any, least: int = 1, advice: str = "pass an integer") -> int:
    """Return `value` as an int after checking that it is an integer ≥ `least`; 3.0 is accepted.

    Parameters
    ----------
    name : str
        Name of the argument, for the message.
    value : int
        A public number; the message contains it.
    least : int
        Smallest allowed value.
    advice : str
        Last part of the message, which states what to do.

    Returns
    -------
    int

    Raises
    ------
    ValueError
        If `value` is not an integer ≥ `least`.

    Examples
    --------
    >>> validate_integer("n", 3.0)
    3
    """
    if not (is_real(value) and (isinstance(value, int) or math.isfinite(value)) and value == int(value) >= least):
        shown = f"{value}" if is_real(value) else f"{value!r}"
        raise ValueError(f"{name} must be an integer >= {least}, got {shown}; {advice}")
    return int(value)


def validate_positive(name: str, value: Any, advice: str) -> float:
    """Return `value` as a float after checking that it is a finite number > 0.

    Parameters
    ----------
    name : str
        Name of the argument, for the message.
    value : float
        A public number; the message contains it.
    advice : str
        Last part of the message, which states what to do.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If `value` is not a finite number > 0.

    Examples
    --------
    >>> validate_positive("noise_scale", 2, "pass sensitivity / epsilon")
    2.0
    """
    number = _as_float(value) if is_real(value) else math.nan
    if not (math.isfinite(number) and number > 0):
        shown = f"{value}" if is_real(value) else f"{value!r}"
        raise ValueError(f"{name} must be a finite number > 0, got {shown}; {advice}")
    return number


def _as_float(value: Any) -> float:
    """Return a real number as a float; infinite if it is too large."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def real_array(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """Return `values` as an array of float64 after checking that all entries are real numbers.

    Parameters
    ----------
    name : str
        Name of the argument, for the message.
    values : array_like
        Possibly private values; messages contain only their type.

    Returns
    -------
    ndarray of float64
        `values` itself if it already is an array of float64.

    Raises
    ------
    ValueError
        If an entry is not a real number, or rows have unequal lengths.

    Examples
    --------
    >>> real_array("counts", [3, 2.0])
    array([3., 2.])
    """
    if np.ma.is_masked(values):
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
