"""Missing values of measures: numbers in stored arrays, NaN for readers.

In memory, the outcome of a block has each measure in its declared dtype, with any number where the status is not ok. A
store has it in the dtype `stored_dtype`, with `missing_value` there, which the attribute ``_FillValue`` declares for
integers; plain xarray reads float64 with NaN. Arrays of stores of the formats 5 and 6 have the declared dtype, and zero
for missing integers and booleans, which only the statuses distinguish from measured ones.
"""

from typing import Any

import numpy as np

from pipeline.declare.factors import missing_value, stored_dtype

FILL = "_FillValue"
"""Attribute of an array of integers with the number that stands for missing values; xarray ignores that of Zarr."""
DECLARED = "declared_dtype"
"""Attribute of a measure with its declared dtype, unless it is float64."""


def describe_array(dtype: str, *, is_marked: bool) -> tuple[np.dtype, Any, dict[str, Any]]:
    """Return dtype, fill value and attributes of the array of a measure, with marks of missing values or without."""
    if not is_marked:
        declared = np.dtype(dtype)
        return declared, np.nan if declared.kind == "f" else declared.type(0), {}
    stored, missing = stored_dtype(dtype), missing_value(dtype)
    attributes: dict[str, Any] = {} if stored.kind == "f" else {FILL: missing}
    name = np.dtype(dtype).name
    return stored, missing, attributes | ({} if name == "float64" else {DECLARED: name})
