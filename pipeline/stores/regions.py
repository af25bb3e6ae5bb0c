"""Where numbers lie in an array: the region of a block and a setting, and writes that cover whole chunks."""

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
import zarr

from pipeline.declare.panel import Panel, Setting

SLAB_CHUNKS = 1000  # zarr makes a coroutine for each chunk that one call reads
SLAB_BYTES = 2**20  # of one read, if one chunk does not take more


def setting_index(panel: Panel, setting: Setting) -> tuple[Any, ...]:
    """Index of a setting along the axes of the methods; a factor it does not use is taken whole."""
    at = setting.coordinates(panel.method_dim)
    return tuple(axis.values.index(at[axis.name]) if axis.name in at else slice(None) for axis in panel.method_axes)


def positions(panel: Panel, cell: int, setting: Setting) -> Iterator[tuple[int, ...]]:
    """Yield the positions (data factors, method factors, method) at which a setting of a cell is stored."""
    of_cell = np.unravel_index(cell, [len(axis.values) for axis in panel.factors]) if panel.factors else ()
    choices = [
        range(len(axis.values)) if isinstance(index, slice) else (index,)
        for axis, index in zip(panel.method_axes, setting_index(panel, setting), strict=True)
    ]
    for position in product(*choices):
        yield (*(int(index) for index in of_cell), *position)


def region_of(panel: Panel, position: tuple[int, ...], trials: range | None, n_dims: int) -> tuple[Any, ...]:
    """Region of a position over some trials (None: no trial dimension), whole along the `n_dims` last dimensions."""
    grid = tuple(slice(index, index + 1) for index in position)
    along = () if trials is None or panel.trials is None else (slice(trials.start, trials.stop),)
    return grid + along + (slice(None),) * n_dims


def write_region(array: zarr.Array, region: tuple[slice, ...], values: np.ndarray) -> None:
    """Write values to a region that covers whole chunks of an array.

    Parameters
    ----------
    array : zarr.Array
        Where to write.
    region : tuple of slice
        One slice a dimension, with start and stop.
    values : ndarray
        Reshaped to the region.

    Raises
    ------
    ValueError
        If the region begins or ends within a chunk: another writer of that chunk would undo this write, or be undone.

    Examples
    --------
    >>> array = zarr.create_array({}, shape=(10,), chunks=(4,), dtype="f8")
    >>> write_region(array, (slice(8, 10),), np.ones(2))
    >>> write_region(array, (slice(0, 6),), np.ones(6))
    Traceback (most recent call last):
    ...
    ValueError: a write must cover whole chunks, got 0:6 in a dimension of 10 with chunks of 4; ...
    """
    whole, values = _whole_chunks(array, region, values)
    array[whole] = values


def fill_chunk(array: zarr.Array, region: tuple[slice, ...], values: np.ndarray) -> np.ndarray:
    """Return the one chunk that a region covers; beyond the end of the array it holds the fill value.

    Parameters
    ----------
    array, region, values
        As in `write_region`.

    Returns
    -------
    ndarray
        Of the shape of a chunk.

    Raises
    ------
    ValueError
        If the region begins or ends within a chunk.

    Examples
    --------
    >>> array = zarr.create_array({}, shape=(10,), chunks=(4,), dtype="i8", fill_value=-1)
    >>> fill_chunk(array, (slice(8, 10),), np.array([5, 6]))
    array([ 5,  6, -1, -1])
    """
    _, values = _whole_chunks(array, region, values)
    if values.shape == array.chunks:
        return np.ascontiguousarray(values, array.dtype)
    chunk = np.full(array.chunks, array.fill_value, array.dtype)
    chunk[tuple(slice(0, n) for n in values.shape)] = values
    return chunk


def _whole_chunks(
    array: zarr.Array, region: tuple[slice, ...], values: np.ndarray
) -> tuple[tuple[slice, ...], np.ndarray]:
    """Return a region with its limits, and the values in its shape; refuse a region that divides a chunk."""
    whole = [slice(*part.indices(size)[:2]) for part, size in zip(region, array.shape, strict=True)]
    for part, chunk, size in zip(whole, array.chunks, array.shape, strict=True):
        if part.start % chunk or (part.stop % chunk and part.stop != size):
            raise ValueError(
                f"a write must cover whole chunks, got {part.start}:{part.stop} in a dimension of {size} with chunks "
                f"of {chunk}; two writers of one chunk would overwrite each other: write the runs of trials that "
                "block_trials makes"
            )
    return tuple(whole), values.reshape([part.stop - part.start for part in whole])


def iterate_slabs(
    array: zarr.Array, within: tuple[slice, ...] | None = None
) -> Iterator[tuple[tuple[slice, ...], tuple[slice, ...]]]:
    """Divide an array into parts of whole chunks, each small enough to be read at once.

    Parameters
    ----------
    array : zarr.Array
        An array of any number of chunks.
    within : tuple of slice, optional
        What of the grid of chunks is wanted; all by default.

    Yields
    ------
    chunks, region : tuple of slice
        The part, in the grid of chunks and in the array itself.

    Examples
    --------
    >>> array = zarr.create_array({}, shape=(3, 2500), chunks=(1, 1), dtype="i1")
    >>> [chunks for chunks, _ in iterate_slabs(array)][:3]
    [(slice(0, 1, None), slice(0, 1000, None)), (slice(0, 1, None), slice(1000, 2000, None)), ...]
    """
    spans = [range(n)[part] for n, part in zip(array.cdata_shape, within or (slice(None),) * array.ndim, strict=True)]
    room = max(1, SLAB_BYTES // (math.prod(array.chunks) * array.dtype.itemsize))
    steps = chunk_steps([len(along) for along in spans], min(SLAB_CHUNKS, room))
    parts = [
        [slice(k, min(k + step, along.stop)) for k in along[::step]] for along, step in zip(spans, steps, strict=True)
    ]
    for chunks in product(*parts):
        sizes = zip(chunks, array.chunks, array.shape, strict=True)
        yield chunks, tuple(slice(part.start * size, min(part.stop * size, length)) for part, size, length in sizes)


def chunk_steps(counts: Sequence[int], room: int) -> list[int]:
    """How many chunks to take along each axis, the last axes first, so that there is room for all of them."""
    steps: list[int] = []
    for n_along in reversed(counts):
        steps.insert(0, max(1, min(room, n_along)))
        room //= steps[0]
    return steps
