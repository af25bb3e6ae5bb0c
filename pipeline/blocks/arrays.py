"""Arrays of blocks: read-only data, so that no method changes those of the next one, and checked casts of results."""

from typing import Any

import numpy as np

from pipeline.declare.contents import leaves
from pipeline.declare.factors import integer_range


def cast_values(name: str, numbers: np.ndarray, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Return values cast to a dtype, and the mask of those that a store cannot represent; floats may be rounded."""
    if numbers.dtype.kind not in "biuf":
        raise ValueError(f"{name} must be real numbers, got dtype {numbers.dtype}")
    array, is_wrong = _cast(numbers, np.dtype(dtype))
    if array.dtype.kind in "iu":
        least, greatest = integer_range(dtype)
        is_wrong = is_wrong | (array < least) | (array > greatest)
    return array, is_wrong


def _cast(numbers: np.ndarray, target: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Return values cast to a dtype, and the mask of those that it cannot represent."""
    with np.errstate(invalid="ignore", over="ignore"):
        array = numbers.astype(target)
    if np.can_cast(numbers.dtype, target, "safe"):
        return array, np.zeros(numbers.shape, bool)
    if target.kind == "f":
        return array, np.isinf(array) & np.isfinite(numbers)
    if target.kind == "b":
        return array, (numbers != 0) & (numbers != 1)
    limits = np.iinfo(target)
    if numbers.dtype.kind != "f":
        return array, (numbers < limits.min) | (numbers > limits.max)
    wide = numbers.astype(np.result_type(numbers, np.float64))  # the limits overflow half precision
    within = (wide >= float(limits.min)) & (wide < float(limits.max + 1))
    return array, ~(within & (np.floor(wide) == wide))


def describe_range(dtype: str) -> str:
    """Return the allowed values of a dtype, for an error message."""
    target = np.dtype(dtype)
    if target.kind == "b":
        return "0 or 1"
    if target.kind == "f":
        return f"at most {float(np.finfo(target).max):g} in absolute value, or infinite"
    return "an integer in {} ... {}".format(*integer_range(dtype))


def freeze_arrays(data: Any) -> None:
    """Make NumPy arrays read-only in place, also in mappings, tuples, lists, dataclasses and arrays of objects."""
    for item in leaves(data):
        if isinstance(item, np.ndarray):
            item.setflags(write=False)
