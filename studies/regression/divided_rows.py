"""Sufficient statistics of a random partition of a table that may be larger than memory.

The module combines `mechanisms.regression.keyed_partition` and `mechanisms.regression.statistics` with
`pipeline.tables`: each worker labels the rows of its block by row number and sums moments by label.
"""

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from mechanisms.regression.keyed_partition import KeyedPartition
from mechanisms.regression.statistics import RegressionStatistics, row_moments
from pipeline.clusters.user_cluster import ClusterChoice
from pipeline.errors import BadInputError
from pipeline.tables.tables import Rows, reduce_rows


def divide_rows(
    arrays: Sequence[Rows], partition: KeyedPartition, intercept: bool = True, cluster: ClusterChoice = None
) -> RegressionStatistics:
    """Reduce a table to the sufficient statistics of each partition of its rows, in one pass.

    The arrays are (x, y) of shapes (n, p) and (n,), or one array of shape (n, p + 1) with y last. The partition does
    not depend on the chunks of the arrays; the rounding of the statistics does. The cluster is as in `pipeline.run`.
    """
    n, shapes = partition.n_rows, [array.shape for array in arrays]
    if [shape[:1] for shape in shapes] != [(n,)] * len(shapes) or [len(shape) for shape in shapes] not in ([2], [2, 1]):
        shown = ", ".join(map(str, shapes))
        raise BadInputError(f"arrays must have shapes ({n}, p) and ({n},), or ({n}, p + 1) with y last, got {shown}")
    statistics, n_invalid, first_invalid, overflows = reduce_rows(
        arrays, partial(_reduce_block, partition, intercept), _join, cluster
    )
    if n_invalid:
        raise BadInputError(
            f"rows must have no missing or infinite values, got {n_invalid:,} rows with such values, the first in row "
            f"{first_invalid + 1:,} (counted from 1); impute the values or drop the rows"
        )
    if overflows:
        raise BadInputError("sums of squared values must be finite, got values beyond 1e150; change the units")
    return statistics


_Reduced = tuple[RegressionStatistics, int, float, bool]
"""Statistics of some rows, number and first of the rows that are not finite, and whether a sum overflows."""


def _reduce_block(partition: KeyedPartition, intercept: bool, first: int, *blocks: np.ndarray) -> _Reduced:
    x, y = (blocks[0][:, :-1], blocks[0][:, -1]) if len(blocks) == 1 else (blocks[0], blocks[1][:, 0])
    n_rows, means, scatter = row_moments(x, y, partition.labels(first, len(y)), partition.n_partitions)
    if np.isfinite(means).all() and np.isfinite(scatter).all():
        return RegressionStatistics(n_rows, means, scatter, intercept), 0, math.inf, False
    invalid = np.flatnonzero(~(np.isfinite(x).all(axis=1) & np.isfinite(y)))
    first_invalid = first + int(invalid[0]) if invalid.size else math.inf
    empty = RegressionStatistics(0 * n_rows, np.zeros_like(means), np.zeros_like(scatter), intercept)
    return empty, invalid.size, first_invalid, not invalid.size


def _join(parts: Sequence[_Reduced]) -> _Reduced:
    statistics, n_invalid, first_invalid, overflows = zip(*parts, strict=True)
    return RegressionStatistics.stack(statistics).pool(0), sum(n_invalid), min(first_invalid), any(overflows)
