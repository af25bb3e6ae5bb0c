"""Helpers for checks of claims: findings with three outcomes, and formatted evidence."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import xarray as xr

from pipeline import Finding, Stored, verdict
from pipeline.declare.factors import format_value

__all__ = ["Stored"]

Summaries = Mapping[str, xr.Dataset]
"""Summaries by panel."""


def decide(holds: bool, fails: bool, evidence: str) -> Finding:
    """Return the finding of a significance test: the statement fails, holds, or is undecided.

    Examples
    --------
    >>> decide(holds=False, fails=False, evidence="The mean is 0.01, with standard error 0.02.").verdict
    'undecided'
    """
    return verdict(False if fails else True if holds else None, evidence)


def correct(printed: bool, corrected: bool, evidence: str) -> Finding:
    """Return the finding that the printed statement holds, that only its correction holds, or that neither holds.

    Examples
    --------
    >>> correct(printed=False, corrected=True, evidence="The largest ratio is 0.5.").verdict
    'corrected'
    """
    return Finding("holds" if printed else "corrected" if corrected else "does not hold", evidence)


def span(values: xr.DataArray, form: str = ".2f") -> str:
    """Format the range of the values; return a single number if both ends are equal in this format.

    Examples
    --------
    >>> span(xr.DataArray([2.0, 1.0])), span(xr.DataArray([1.0, 1.001]))
    ('1.00 to 2.00', '1.00')
    """
    low, high = (format(float(end), form) for end in (values.min(), values.max()))
    return low if low == high else f"{low} to {high}"


def listed(values: Iterable[Any], form: str) -> str:
    """Format values, separated by commas.

    Examples
    --------
    >>> listed([0.5, -1.0], "+.2f")
    '+0.50, -1.00'
    """
    return ", ".join(format(float(value), form) for value in values)


def named(values: xr.DataArray, names: Iterable[str], form: str, dim: str = "mechanism") -> str:
    """Format the values of several mechanisms with their names, separated by commas.

    Examples
    --------
    >>> named(xr.DataArray([0.5, 2.0], {"mechanism": ["laplace", "smooth"]}), ("smooth", "laplace"), ".1f")
    'smooth 2.0, laplace 0.5'
    """
    return ", ".join(f"{name} {format(float(values.sel({dim: name})), form)}" for name in names)


def largest(values: xr.DataArray) -> xr.DataArray:
    """Return the largest value as a scalar with its coordinates; missing values are ignored.

    Examples
    --------
    >>> one = largest(xr.DataArray([np.nan, 3.0, 1.0], {"n": [10, 20, 30]}, ("n",)))
    >>> one.item(), one["n"].item()
    (3.0, 20)
    """
    return values.isel(values.fillna(-np.inf).argmax(...))


def smallest(values: xr.DataArray) -> xr.DataArray:
    """Return the smallest value as a scalar with its coordinates; missing values are ignored.

    Examples
    --------
    >>> smallest(xr.DataArray([np.nan, 3.0, 1.0], {"n": [10, 20, 30]}, ("n",)))["n"].item()
    30
    """
    return values.isel(values.fillna(np.inf).argmin(...))


def place(one: xr.DataArray, dims: Iterable[Any]) -> str:
    """Format the coordinates of a scalar along the dimensions `dims`.

    Examples
    --------
    >>> values = xr.DataArray([[1.0, 3.0]], {"n": [10], "epsilon": [0.1, 1.0]}, ("n", "epsilon"))
    >>> place(largest(values), values.dims)
    'n = 10, epsilon = 1'
    """
    return ", ".join(f"{dim} = {format_value(one[dim].item())}" for dim in dims)


def vector(summary: xr.Dataset, name: str) -> np.ndarray:
    """Return a vector-valued constant, which is stored as text.

    Examples
    --------
    >>> vector(xr.Dataset(coords={"prior": "6:12"}), "prior")
    array([ 6., 12.])
    """
    return np.array(entries(summary[name].item()))


def entries(text: str) -> tuple[float, ...]:
    """Return the entries of a vector, which stores contain as text.

    Examples
    --------
    >>> entries("0.5:2")
    (0.5, 2.0)
    """
    return tuple(float(entry) for entry in str(text).split(":"))
