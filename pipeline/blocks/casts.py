"""Checked casts of results to the declared dtypes of measures."""

import numpy as np


def cast_values(name: str, given: np.ndarray, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Return values cast to a dtype, undefined where it cannot represent them, and the mask of these values.

    Values of a floating dtype are rounded, but a finite value must not become infinite; other casts must be exact.
    """
    if given.dtype.kind not in "biuf":
        raise ValueError(f"{name} must be real numbers, got dtype {given.dtype}")
    target = np.dtype(dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        array = given.astype(target)
    if np.can_cast(given.dtype, target, "safe"):
        return array, np.zeros(given.shape, bool)
    if target.kind == "f":
        return array, np.isinf(array) & np.isfinite(given)
    if target.kind == "b":
        return array, (given != 0) & (given != 1)
    limits = np.iinfo(target)
    if given.dtype.kind != "f":
        return array, (given < limits.min) | (given > limits.max)
    wide = given.astype(np.result_type(given, np.float64))  # the limits overflow half precision
    within = (wide >= float(limits.min)) & (wide < float(limits.max + 1))
    return array, ~(within & (np.floor(wide) == wide))


def describe_range(dtype: str) -> str:
    """Return the allowed values of a dtype, for an error message."""
    target = np.dtype(dtype)
    if target.kind == "b":
        return "0 or 1"
    if target.kind == "f":
        return f"at most {float(np.finfo(target).max):g} in absolute value, or infinite"
    return f"an integer in {np.iinfo(target).min} ... {np.iinfo(target).max}"
