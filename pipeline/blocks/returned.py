"""Numbers that a method returns, as plain arrays without a loss of meaning.

Values may be numbers, sequences, arrays, masked arrays, and the labelled arrays of pandas and xarray. Masked and
missing values are reported as such, labels must agree with the declared dimensions, and values with units are refused,
as are integers that a common dtype with floats would round.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from pipeline.declare.factors import format_value

Numbers = tuple[np.ndarray, np.ndarray]
"""Values, and the mask of those that are missing, of the same shape."""

_NUMBERS = (bool, int, float, np.number, np.bool_)
_LOST = ("units", "unit", "magnitude", "mask")  # attributes of objects whose meaning NumPy's conversion drops
_WITHOUT_UNIT = ("", "1", "None")  # attributes `units` of xarray and pandas for numbers without a unit
_PLAIN = ("builtins", "numpy")  # modules of numbers without further attributes
_EXACT = 2**53  # integers up to this are floats
_MOST_LABELS = 5
_REASONS = "'error' must have one entry per trial, a text or an exception for a failure, and None, '' or False for none"
_WITHOUT_REASON = "the method reported a failure without a reason"


def as_numbers(name: str, returned: Any, axes: Mapping[str, Sequence[Any]]) -> Numbers:
    """Return the values of a measure, and the mask of missing ones; raise ValueError if they would lose their meaning.

    `axes` has the dimensions of the measure in order, with their values, with which labels must agree.
    """
    # values of these packages exist only if they are imported
    pandas, xarray = sys.modules.get("pandas"), sys.modules.get("xarray")
    if xarray is not None and isinstance(returned, xarray.DataArray | xarray.Variable):
        _refuse_units(name, returned.attrs)
        return _unlabelled(name, _in_order(name, returned, axes), pandas)
    if pandas is None or not isinstance(returned, pandas.Series | pandas.DataFrame):
        return _unlabelled(name, returned, pandas)
    _refuse_units(name, returned.attrs)
    indices = [returned.index] if returned.ndim == 1 else [returned.index, returned.columns]
    for (dim, values), index in zip(axes.items(), indices, strict=False):
        _require_labels(name, dim, values, index)
    if returned.ndim == 1:
        return _unlabelled(name, returned.array, pandas)
    return _stack(
        name, [_unlabelled(name, returned.iloc[:, k].array, pandas) for k in range(returned.shape[1])], axis=1
    )


def as_reasons(returned: Any, axes: Mapping[str, Sequence[Any]]) -> np.ndarray:
    """Return the reason of each failed trial, and None for the others, as an array of objects of shape (trial,).

    None, an empty text, False, and masked and missing entries are no failure; True is one without a reason. A single
    one of those stands for all trials. Numbers are refused, since 0 and 1 have no agreed meaning. Labels must agree
    with the trials, which are the values of the only dimension in `axes`, if any.
    """
    pandas, xarray = sys.modules.get("pandas"), sys.modules.get("xarray")
    if xarray is not None and isinstance(returned, xarray.DataArray | xarray.Variable):
        returned = _in_order("'error'", returned, axes)
    elif pandas is not None and isinstance(returned, pandas.Series):
        for dim, values in axes.items():
            _require_labels("'error'", dim, values, returned.index)
        returned = returned.array
    if hasattr(returned, "__dask_graph__"):
        returned = returned.compute()
    reasons = np.array(returned, dtype=object)
    if isinstance(returned, np.ma.MaskedArray):
        reasons[np.ma.getmaskarray(returned)] = None
    nothing = (np.ma.masked,) if pandas is None else (np.ma.masked, pandas.NA, pandas.NaT)
    for at, reason in np.ndenumerate(reasons):
        is_missing = any(reason is absent for absent in nothing) or (isinstance(reason, float) and np.isnan(reason))
        if is_missing or (isinstance(reason, str | bool | np.bool_) and not reason):
            reasons[at] = None
        elif isinstance(reason, bool | np.bool_):
            reasons[at] = _WITHOUT_REASON
        elif isinstance(reason, int | float | np.number):
            raise ValueError(f"{_REASONS}, got {reason!r} of type {type(reason).__name__}")
    shape = (len(axes["trial"]) if axes else 1,)
    if reasons.shape == () and (reasons[()] is None or shape == (1,)):
        return np.full(shape, reasons[()], object)
    if reasons.shape != shape:
        raise ValueError(f"{_REASONS}, shape {shape}, got shape {reasons.shape}")
    return reasons


def _in_order(name: str, labelled: Any, axes: Mapping[str, Sequence[Any]]) -> Any:
    """Return the data of an array of xarray with its dimensions in the order of `axes`."""
    if labelled.dims == tuple(f"dim_{k}" for k in range(labelled.ndim)):  # xarray names dimensions without a name so
        return labelled.data
    if len(labelled.dims) != len(axes) or set(labelled.dims) != set(axes):
        raise ValueError(
            f"{name} must have the dimensions {_listed(axes)}, got {_listed(labelled.dims)}; rename them, or return an "
            "array without names"
        )
    for dim, index in getattr(labelled, "indexes", {}).items():
        _require_labels(name, dim, axes[dim], index)
    return labelled.transpose(*axes).data


def _require_labels(name: str, dim: str, values: Sequence[Any], labels: Iterable[Any]) -> None:
    """Raise ValueError for labels along a dimension that are neither its values nor positions, in order."""
    listed = list(labels)
    texts = [format_value(value) for value in values]
    allowed = [list(values), texts]
    if set(listed) != set(values):  # positions, which are no values in another order
        allowed.append(list(range(len(values))))
    if len(listed) == len(values) and listed not in allowed:
        raise ValueError(
            f"{name} must have the values of {dim} in order, {_listed(texts)}, got the labels {_listed(listed)}; sort "
            "them, or return an array without labels"
        )


def _listed(items: Iterable[Any]) -> str:
    texts = [str(item) for item in items]
    return ", ".join([*texts[:_MOST_LABELS], *(["..."] if len(texts) > _MOST_LABELS else [])]) or "none"


def _unlabelled(name: str, returned: Any, pandas: Any) -> Numbers:
    """Return values without labels, and the mask of missing ones."""
    if hasattr(returned, "__dask_graph__"):
        returned = returned.compute()  # NumPy's conversion of a lazy array drops its mask
    if isinstance(returned, np.ma.MaskedArray | list | tuple):
        _refuse_lost(name, [returned])
    if isinstance(returned, np.ma.MaskedArray):
        return np.asarray(np.ma.getdata(returned)), np.ma.getmaskarray(returned)
    if isinstance(returned, list | tuple):
        if not all(issubclass(kind, _NUMBERS) for kind in set(map(type, returned))):
            return _stack(name, [_unlabelled(name, item, pandas) for item in returned])
        return _of_numbers(name, returned), np.zeros(len(returned), bool)
    if pandas is not None and isinstance(returned, pandas.api.extensions.ExtensionArray):
        if isinstance(returned.dtype, np.dtype):
            return _unlabelled(name, returned.to_numpy(), pandas)
        return _filled(name, np.asarray(pandas.isna(returned), bool), returned)
    _refuse_lost(name, [returned])
    array = np.asanyarray(returned)
    if type(array) is not np.ndarray:
        if array is not returned:  # what `__array__` returned
            return _unlabelled(name, array, pandas)
        array = np.asarray(array)
    if array.dtype.hasobject:
        nothing = (None, np.ma.masked) if pandas is None else (None, np.ma.masked, pandas.NA, pandas.NaT)
        return _filled(name, np.array([any(item is absent for absent in nothing) for item in array.flat], bool), array)
    return array, np.zeros(array.shape, bool)


def _refuse_lost(name: str, items: Sequence[Any]) -> None:
    """Raise ValueError for an object with units or a mask, also if it is a number."""
    odd = {kind for kind in set(map(type, items)) if kind is not np.ndarray and kind.__module__ not in _PLAIN}
    for item in items if odd else ():
        kept = ("mask",) if isinstance(item, np.ma.MaskedArray) else ()
        if lost := [
            attribute for attribute in _LOST if type(item) in odd and attribute not in kept and hasattr(item, attribute)
        ]:
            raise ValueError(
                f"{name} must be plain numbers, got {type(item).__name__}, whose {lost[0]} would be lost; convert it "
                "to the unit of the measure, and return an array"
            )


def _refuse_units(name: str, attributes: Mapping[Any, Any]) -> None:
    """Raise ValueError for attributes of a labelled array that state a unit."""
    for key in ("units", "unit"):
        if str(unit := attributes.get(key, "")) not in _WITHOUT_UNIT:
            raise ValueError(
                f"{name} must be plain numbers, got the attribute {key} = {str(unit)!r}, which would be lost; convert "
                "them to the unit of the measure, and drop the attribute"
            )


def _of_numbers(name: str, items: Sequence[Any]) -> np.ndarray:
    """Return numbers as an array; raise ValueError if it would round integers."""
    _refuse_lost(name, items)
    array = np.asarray(items)
    if array.dtype.kind != "f" or not any(issubclass(kind, int | np.integer) for kind in set(map(type, items))):
        return array
    integers = [int(item) for item in items if isinstance(item, int | np.integer)]
    if len(integers) == len(items):
        least, greatest = min(integers), max(integers)
        if least < 0 and greatest > np.iinfo(np.int64).max:
            raise ValueError(f"{name} must be integers of one dtype, int64 or uint64, got {least} and {greatest}")
        return np.asarray(integers, np.int64 if least < 0 else np.uint64)
    _refuse_rounded(name, integers, array.dtype)
    return array


def _refuse_rounded(name: str, integers: Iterable[int], dtype: np.dtype) -> None:
    """Raise ValueError for integers that a dtype of floats cannot represent."""
    for value in integers:
        if abs(value) > _EXACT and int(dtype.type(value)) != value:
            raise ValueError(
                f"{name} must be integers or floats, got both, and the integer {value}, which {dtype} rounds; return "
                "values of one dtype"
            )


def _filled(name: str, missing: np.ndarray, returned: Any) -> Numbers:
    """Return objects as an array of numbers, with zeros in place of missing ones; other objects stay objects."""
    missing = missing.reshape(returned.shape)
    kept = returned[~missing].tolist()
    array = np.zeros(returned.shape, object)
    if all(isinstance(item, _NUMBERS) for item in kept):
        numbers = _of_numbers(name, kept)
        array = np.zeros(returned.shape, numbers.dtype if kept else float)
        array[~missing] = numbers
    return array, missing


def _stack(name: str, parts: Sequence[Numbers], axis: int = 0) -> Numbers:
    """Stack arrays of numbers, and their masks."""
    arrays, masks = zip(*parts, strict=True)
    array = np.stack(arrays, axis=axis)
    if array.dtype.kind == "f":
        for part in arrays:
            if part.dtype.kind in "iu":
                _refuse_rounded(name, part.ravel().tolist(), array.dtype)
    return array, np.stack(masks, axis=axis)
