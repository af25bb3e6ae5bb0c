"""Sufficient statistics of a random partition of a table that may be larger than memory.

The module combines `mechanisms.regression.keyed_partition` and `mechanisms.regression.statistics` with
`pipeline.tables`: each worker labels the rows of its block by row number and sums moments by label.
"""

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from mechanisms.regression.keyed_partition import KeyedPartition
from mechanisms.regression.statistics import LARGEST_NUMBER, RegressionStatistics, row_moments
from pipeline.errors import BadInputError
from pipeline.tables.cells import NOT_PUBLIC
from pipeline.tables.tables import Client, Rows, reduce_rows


def divide_rows(
    client: Client, arrays: Sequence[Rows], partition: KeyedPartition, intercept: bool = True
) -> RegressionStatistics:
    """Reduce a table to the sufficient statistics of each partition of its rows, in one pass.

    The arrays are (x, y) of shapes (n, p) and (n,), or one array of shape (n, p + 1) with y last. The partition does
    not depend on the chunks of the arrays; the rounding of the statistics does. Numbers beyond `LARGEST_NUMBER` in size
    count as `LARGEST_NUMBER` with their sign, so that every table of numbers has finite statistics.
    """
    n, shapes = partition.n_rows, [array.shape for array in arrays]
    if [shape[:1] for shape in shapes] != [(n,)] * len(shapes) or [len(shape) for shape in shapes] not in ([2], [2, 1]):
        shown = ", ".join(map(str, shapes))
        raise BadInputError(f"arrays must have shapes ({n}, p) and ({n},), or ({n}, p + 1) with y last, got {shown}")
    statistics, first_invalid = reduce_rows(client, arrays, partial(_reduce_block, partition, intercept), _join)
    if math.isfinite(first_invalid):
        raise BadInputError(
            f"rows must have no missing or infinite values, got one in data row {first_invalid + 1}; "
            f"impute the values or drop the rows ({NOT_PUBLIC})"
        )
    return statistics


_Reduced = tuple[RegressionStatistics, float]
"""Statistics of some rows, and the first row with a value that is not finite, or inf."""


def _reduce_block(partition: KeyedPartition, intercept: bool, first: int, *blocks: np.ndarray) -> _Reduced:
    first_invalid = math.inf
    if not all(_is_in_range(block) for block in blocks):
        finite = np.all([np.isfinite(block).all(axis=1) for block in blocks], axis=0)
        first_invalid = first_invalid if finite.all() else first + int(np.argmin(finite))
        numbers = (np.nan_to_num(np.asarray(block, dtype=np.float64)) for block in blocks)
        blocks = tuple(np.clip(block, -LARGEST_NUMBER, LARGEST_NUMBER) for block in numbers)
    x, y = (blocks[0][:, :-1], blocks[0][:, -1]) if len(blocks) == 1 else (blocks[0], blocks[1][:, 0])
    n_rows, means, scatter = row_moments(x, y, partition.labels(first, len(y)), partition.n_partitions)
    return RegressionStatistics(n_rows, means, scatter, intercept), first_invalid


def _is_in_range(block: np.ndarray) -> bool:
    """Return True if all values are numbers up to `LARGEST_NUMBER` in size."""
    return float(block.min(initial=0)) >= -LARGEST_NUMBER and float(block.max(initial=0)) <= LARGEST_NUMBER


def _join(parts: Sequence[_Reduced]) -> _Reduced:
    statistics, first_invalid = zip(*parts, strict=True)
    return RegressionStatistics.stack(statistics).pool(0), min(first_invalid)
