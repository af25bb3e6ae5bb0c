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
from pipeline.clusters.user_cluster import ClusterChoice
from pipeline.errors import BadInputError
from pipeline.tables.tables import Rows, reduce_rows
from studies.own_data.private_table import describe_missing


def divide_rows(
    arrays: Sequence[Rows],
    partition: KeyedPartition,
    intercept: bool = True,
    cluster: ClusterChoice = None,
    names: Sequence[str] | None = None,
) -> RegressionStatistics:
    """Reduce a table to the sufficient statistics of each partition of its rows, in one pass.

    The arrays are (x, y) of shapes (n, p) and (n,), or one array of shape (n, p + 1) with y last. The partition does
    not depend on the chunks of the arrays; the rounding of the statistics does. Numbers beyond `LARGEST_NUMBER` in size
    count as `LARGEST_NUMBER` with their sign, so that every table of numbers has finite statistics. `names` are those
    of the columns, for messages, and the cluster is as in `pipeline.run`.
    """
    n, shapes = partition.n_rows, [array.shape for array in arrays]
    if [shape[:1] for shape in shapes] != [(n,)] * len(shapes) or [len(shape) for shape in shapes] not in ([2], [2, 1]):
        shown = ", ".join(map(str, shapes))
        raise BadInputError(f"arrays must have shapes ({n}, p) and ({n},), or ({n}, p + 1) with y last, got {shown}")
    statistics, (row, column) = reduce_rows(arrays, partial(_reduce_block, partition, intercept), _join, cluster)
    if math.isfinite(row):
        raise BadInputError(describe_missing(int(row), str(column) if names is None else names[column]))
    return statistics


_Reduced = tuple[RegressionStatistics, tuple[float, int]]
"""Statistics of some rows, and row and column of the first value that is not finite; row inf if all are finite."""


def _reduce_block(partition: KeyedPartition, intercept: bool, first: int, *blocks: np.ndarray) -> _Reduced:
    place = (math.inf, 0)
    if not all(_is_in_range(block) for block in blocks):
        finite = np.isfinite(np.hstack(blocks))
        if not finite.all():
            row = int(np.argmin(finite.all(axis=1)))
            place = (first + row, int(np.argmin(finite[row])))
        numbers = (np.nan_to_num(np.asarray(block, dtype=np.float64)) for block in blocks)
        blocks = tuple(np.clip(block, -LARGEST_NUMBER, LARGEST_NUMBER) for block in numbers)
    x, y = (blocks[0][:, :-1], blocks[0][:, -1]) if len(blocks) == 1 else (blocks[0], blocks[1][:, 0])
    n_rows, means, scatter = row_moments(x, y, partition.labels(first, len(y)), partition.n_partitions)
    return RegressionStatistics(n_rows, means, scatter, intercept), place


def _is_in_range(block: np.ndarray) -> bool:
    """Return True if all values are numbers up to `LARGEST_NUMBER` in size."""
    return float(block.min(initial=0)) >= -LARGEST_NUMBER and float(block.max(initial=0)) <= LARGEST_NUMBER


def _join(parts: Sequence[_Reduced]) -> _Reduced:
    statistics, places = zip(*parts, strict=True)
    return RegressionStatistics.stack(statistics).pool(0), min(places)
