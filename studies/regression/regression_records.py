"""Columns of the real tables of `regression-inference`, with ranges that are plausible without looking at the data."""

from functools import cache

import numpy as np

from mechanisms.regression.gram_release import PublicBox
from studies.data.shipped import read_records

_LENGTHS = {"length": (0.0, 1.0)}
_WEIGHTS = {"shucked_weight": (0.0, 1.5), "viscera_weight": (0.0, 1.0), "shell_weight": (0.0, 1.5)}
_RINGS = {"rings": (0.0, 30.0)}
PUBLIC = {
    "abalone": {**_LENGTHS, "whole_weight": (0.0, 3.0), **_RINGS},
    "abalone-seven": {
        **_LENGTHS,
        "diameter": (0.0, 1.0),
        "height": (0.0, 0.5),
        "whole_weight": (0.0, 3.0),
        **_WEIGHTS,
        **_RINGS,
    },
    "adult": {"age": (17.0, 90.0), "education_num": (1.0, 16.0), "hours_per_week": (0.0, 100.0)},
}
"""Table -> columns with their public ranges, the response last."""


@cache
def public_records(name: str) -> np.ndarray:
    """Return the clamped and scaled records of a table; each process reads it once."""
    ranges = PUBLIC[name]
    records = read_records(name.split("-")[0])[list(ranges)].to_numpy(dtype=float)
    return PublicBox.of(ranges).scale(records)
