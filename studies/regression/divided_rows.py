"""A table of rows that may be larger than memory, divided at random and reduced to what posteriors need of it.

Brings `mechanisms.regression.keyed_partition` and `mechanisms.regression.row_moments` together with `pipeline.tables`:
each worker labels the rows of its block by their number in the table, adds up moments by label, and forgets the rows.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from mechanisms.regression.keyed_partition import KeyedPartition
from mechanisms.regression.row_moments import row_moments
from mechanisms.regression.statistics import RegressionStatistics
from pipeline.errors import BadInputError
from pipeline.tables.tables import Client, Rows, reduce_rows


def divide_rows(
    client: Client, arrays: Sequence[Rows], partition: KeyedPartition, intercept: bool = True
) -> RegressionStatistics:
    """Reduce a table to the sufficient statistics of each partition of its rows, in one pass.

    Parameters
    ----------
    client : distributed.Client
        Where to read.
    arrays : sequence of dask or numpy arrays
        (x, y) of shapes (n, p) and (n,); or one of shape (n, p + 1), y last.
    partition : KeyedPartition
        Of n rows.
    intercept : bool
        Whether the model has one.

    Returns
    -------
    RegressionStatistics
        Of shape (M,). The division does not depend on the chunks of the arrays; statistics do, in their rounding.

    Raises
    ------
    BadInputError
        If arrays do not fit, or rows are not finite; the first such row is named.

    Examples
    --------
    >>> import dask.array as da
    >>> from mechanisms.regression.keyed_partition import keyed_partition
    >>> from mechanisms.regression.posterior import coefficient_posterior
    >>> from mechanisms.regression.prior import FlatPrior
    >>> from pipeline.clusters.cluster import THREADS, connect
    >>> x = da.random.default_rng(1).normal(size=(10_000, 2), chunks=(3_000, 1))
    >>> y = 1 + x @ np.array([2.0, -1.0])
    >>> with connect(THREADS) as client:
    ...     statistics = divide_rows(client, [x, y], keyed_partition(np.random.default_rng(1), 10_000, 100))
    >>> coefficient_posterior(statistics, 1, FlatPrior(), error_variance=1.0).mean[:3]
    array([2., 2., 2.])
    """
    n, shapes = partition.n_rows, [array.shape for array in arrays]
    if [shape[:1] for shape in shapes] != [(n,)] * len(shapes) or [len(shape) for shape in shapes] not in ([2], [2, 1]):
        shown = ", ".join(map(str, shapes))
        raise BadInputError(f"arrays must have shapes ({n}, p) and ({n},), or ({n}, p + 1) with y last, got {shown}")
    reduced = reduce_rows(client, arrays, partial(_reduce_block, partition, intercept), _join)
    if reduced.n_refused:
        raise BadInputError(
            f"all rows must be finite, {reduced.n_refused:,} are not, the first is row {reduced.first_refused + 1:,} "
            "(counted from 1); leave them out, or impute them"
        )
    if reduced.overflows:
        raise BadInputError("values must have squares that can be added up, got some beyond 1e150; change the units")
    return reduced.statistics


@dataclass(frozen=True)
class _Reduced:
    """Statistics of some rows; of no use where a row was refused, or a sum is not finite."""

    statistics: RegressionStatistics
    n_refused: int
    first_refused: float
    overflows: bool


def _reduce_block(partition: KeyedPartition, intercept: bool, first: int, *blocks: np.ndarray) -> _Reduced:
    x, y = (blocks[0][:, :-1], blocks[0][:, -1]) if len(blocks) == 1 else (blocks[0], blocks[1][:, 0])
    n_rows, means, scatter = row_moments(x, y, partition.labels(first, len(y)), partition.n_partitions)
    if np.isfinite(means).all() and np.isfinite(scatter).all():
        return _Reduced(RegressionStatistics(n_rows, means, scatter, intercept), 0, math.inf, False)
    refused = np.flatnonzero(~(np.isfinite(x).all(axis=1) & np.isfinite(y)))
    first_refused = first + int(refused[0]) if refused.size else math.inf
    empty = RegressionStatistics(0 * n_rows, np.zeros_like(means), np.zeros_like(scatter), intercept)
    return _Reduced(empty, refused.size, first_refused, not refused.size)


def _join(parts: Sequence[_Reduced]) -> _Reduced:
    return _Reduced(
        RegressionStatistics.stack([part.statistics for part in parts]).pool(0),
        sum(part.n_refused for part in parts),
        min(part.first_refused for part in parts),
        any(part.overflows for part in parts),
    )
