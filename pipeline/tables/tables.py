"""Map-reduce over tables larger than memory: a cluster maps a function over blocks of rows and combines the results.

Rows are Dask or NumPy arrays, or are read from files (`pipeline.tables.formats`). A task reads a block, maps it and
discards it, so that a worker requires memory for one block per thread and a few results.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar

import dask
import dask.array as da
import numpy as np
from dask.system import CPU_COUNT
from distributed import CancelledError, Client, KilledWorker
from distributed.comm import CommClosedError

from pipeline.blocks.one_thread import one_thread
from pipeline.clusters.cluster import connect
from pipeline.clusters.profiles import THREADS, Profile
from pipeline.clusters.user_cluster import ClusterChoice, choose_cluster
from pipeline.errors import BadInputError, ExecutionError
from pipeline.tables.cells import Literal
from pipeline.tables.formats import (
    PART_BYTES,
    Columns,
    Encoder,
    Part,
    TableSource,
    find_parts,
    find_source,
    read_part,
    require_columns,
)

Result = TypeVar("Result")
Rows: TypeAlias = Any  # type of a NumPy or Dask array

_FAN_IN = 8  # number of results that are combined at once


@dataclass(frozen=True, eq=False)
class TableRows:
    """Columns of a table on disk."""

    columns: tuple[str, ...]
    rows: da.Array  # lazy float64, shape (n, c), with NaN for missing values
    source: TableSource


def open_table(
    path: str,
    target: str,
    features: Sequence[str] | None = None,
    encoders: Mapping[str, Encoder] | None = None,
    markers: Sequence[Literal] = (),
) -> TableRows:
    """Open columns of a table: the features, by default all other columns in order, and the target.

    Columns are read as numbers, or as text which the encoder of the column maps to numbers. Cells that equal a marker
    are missing, as empty ones are.
    """
    source = find_source(path)
    if features is None:
        features = [name for name in (*source.columns, *source.others) if name != target]
    columns = (*features, target)
    require_columns(source, path, columns)
    for name in columns:
        if columns.count(name) > 1:
            raise BadInputError(f"{path}: column {name} occurs twice among features and target; name it once")
    parts = find_parts(source, path, columns)
    wanted = Columns(columns, encoders or {}, tuple(markers))
    rows = da.map_blocks(
        _read_block,
        parts=tuple(parts),
        read=partial(read_part, source, path, columns=wanted),
        chunks=(tuple(part.n_rows for part in parts), (len(columns),)),
        dtype=np.float64,
        meta=np.empty((0, 0)),
        token=uuid.uuid4().hex,  # a changed file is read again
    )
    return TableRows(columns, rows, source)


def _read_block(
    parts: Sequence[Part], read: Callable[[Part], np.ndarray], block_id: tuple[int, int] = (0, 0)
) -> np.ndarray:
    return read(parts[block_id[0]])


def reduce_rows(
    arrays: Sequence[Rows],
    map_rows: Callable[..., Result],
    combine: Callable[[Sequence[Result]], Result],
    cluster: ClusterChoice = None,
) -> Result:
    """Map a function over all rows, block by block, and combine its results as a tree, in the order of the rows.

    The row chunks of the first of the arrays, of shape (n,) or (n, c), are used for all. ``map_rows(first, *blocks)``
    receives the index of the first row of a block, from 0, and the block of each array, of shape (rows, c or 1). The
    cluster is as in `pipeline.run`.

    Examples
    --------
    >>> import numpy as np
    >>> from distributed import Client
    >>> with Client(processes=False, dashboard_address="127.0.0.1:0") as client:
    ...     float(reduce_rows([np.ones((10, 2))], lambda first, block: block.sum(), sum, client))
    20.0
    """
    blocks = _aligned(arrays)
    mapped = da.map_blocks(
        _map_block,
        *blocks,
        map_rows=map_rows,
        chunks=(blocks[0].chunks[0], (1,)),
        dtype=object,
        meta=np.empty((0, 0), dtype=object),
    )
    results = list(mapped.to_delayed().ravel())
    reduce = dask.delayed(combine, pure=False)
    while len(results) > 1:
        results = [reduce(results[i : i + _FAN_IN]) for i in range(0, len(results), _FAN_IN)]
    chosen = cluster if isinstance(cluster, Profile) else choose_cluster(cluster)
    if chosen is THREADS:  # they need no scheduler
        with ThreadPoolExecutor(CPU_COUNT) as pool:
            return results[0].compute(scheduler="threads", pool=pool)
    with connect(chosen) as client:
        return _gather(client, results[0])


def _gather(client: Client, result: Any) -> Any:
    """Compute a delayed object on a cluster, and return its value; its tasks are cancelled after an exception."""
    future = client.compute(result)
    try:
        return future.result()
    except KilledWorker as error:
        raise ExecutionError(
            "a worker died while it processed a block of rows, possibly out of memory; store the table in smaller "
            "chunks, or use fewer threads per worker"
        ) from error
    except (CancelledError, CommClosedError) as error:
        raise ExecutionError("the connection to the scheduler was lost; restart it") from error
    finally:
        future.release()


@one_thread()
def _map_block(*blocks: np.ndarray, map_rows: Callable[..., Result], block_info: Any = None) -> Result:
    (first, _), _ = block_info[0]["array-location"]
    return map_rows(first, *blocks)


def _aligned(arrays: Sequence[Rows]) -> list[da.Array]:
    """Return 2-D arrays that have equal row chunks and one column chunk."""
    shapes = [array.shape for array in arrays]
    shown = ", ".join(map(str, shapes))
    if not all(len(shape) in (1, 2) for shape in shapes) or len({shape[0] for shape in shapes}) != 1:
        raise BadInputError(f"arrays must have shapes (n,) or (n, c) with equal n, got {shown}; select matching rows")
    if np.isnan(shapes[0]).any():
        raise BadInputError(f"arrays must have a known number of rows, got {shown}; call compute_chunk_sizes() on them")
    if not shapes[0][0]:
        raise BadInputError("arrays must have at least one row, got none")
    aligned: list[da.Array] = []
    for array in arrays:
        if not isinstance(array, da.Array):
            width = 1 if array.ndim == 1 else max(1, array.shape[1])
            rows = max(1, PART_BYTES // (8 * width))
            array = da.from_array(array, chunks=(rows, -1)[: array.ndim], name=False)
        if array.ndim == 1:
            array = array[:, None]
        chunks = aligned[0].chunks[0] if aligned else array.chunks[0]
        aligned.append(array.rechunk({0: chunks, 1: -1}))
    return aligned
