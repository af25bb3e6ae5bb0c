"""Array regions of blocks and settings, and writes that cover whole chunks."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import zarr

from pipeline.declare.panel import Panel, Setting
from pipeline.store.codec.missing import FILL

SLAB_CHUNKS = 1000  # maximum chunks per read, since zarr creates one coroutine per chunk
SLAB_BYTES = 2**20  # maximum bytes per read, or one chunk if it is larger


@dataclass(frozen=True)
class Layout:
    """Properties of an array, which Zarr computes again whenever they are read."""

    path: str
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: Any
    fill_value: Any
    marks_missing: bool  # True if the fill value stands for missing values

    @classmethod
    def of(cls, array: zarr.Array) -> "Layout":
        """Return the layout of an array of Zarr."""
        is_marked = FILL in array.metadata.attributes
        return cls(array.path, array.shape, array.chunks, array.dtype, array.fill_value, is_marked)


def setting_index(panel: Panel, setting: Setting) -> tuple[Any, ...]:
    """Return the index of a setting along the method axes, with a full slice for each factor that it does not use."""
    at = setting.coordinates(panel.method_dim)
    return tuple(axis.values.index(at[axis.name]) if axis.name in at else slice(None) for axis in panel.method_axes)


def positions(panel: Panel, cell: int, setting: Setting) -> Iterator[tuple[int, ...]]:
    """Yield the array indices (data factors, method factors, method) at which a setting of a cell is stored."""
    of_cell: list[int] = []
    for axis in reversed(panel.factors):
        cell, index_along_axis = divmod(cell, len(axis.values))
        of_cell.insert(0, index_along_axis)
    choices = [
        range(len(axis.values)) if isinstance(index, slice) else (index,)
        for axis, index in zip(panel.method_axes, setting_index(panel, setting), strict=True)
    ]
    for position in product(*choices):
        yield (*of_cell, *position)


def region_of(panel: Panel, position: tuple[int, ...], trials: range, name: str) -> tuple[slice, ...]:
    """Return the region of a variable at a position, with all outputs, that covers `trials` if it has a trial axis."""
    per_trial, n_dims = panel.variables[name]
    along = [slice(trials.start, trials.stop)] if per_trial and panel.trials is not None else []
    return (*(slice(index, index + 1) for index in position), *along, *[slice(None)] * n_dims)


def fill_chunk(array: Layout, region: tuple[slice, ...], values: np.ndarray) -> np.ndarray:
    """Return the single chunk that a region covers, padded with the fill value beyond the end of the array."""
    limits = [slice(*part.indices(size)[:2]) for part, size in zip(region, array.shape, strict=True)]
    for part, size, length in zip(limits, array.chunks, array.shape, strict=True):
        if part.start % size or part.stop != min(part.start + size, length):
            raise ValueError(
                f"a write must cover one whole chunk, got {part.start}:{part.stop} in a dimension of {length} with "
                f"chunks of {size}; two writers of one chunk would overwrite each other: align the trials with "
                "block_trials"
            )
    values = values.reshape([part.stop - part.start for part in limits])
    if values.shape == array.chunks:
        return np.ascontiguousarray(values, array.dtype)
    chunk = np.full(array.chunks, array.fill_value, array.dtype)
    chunk[tuple(slice(0, n) for n in values.shape)] = values
    return chunk


def iterate_slabs(
    array: zarr.Array, within: tuple[slice, ...] | None = None
) -> Iterator[tuple[tuple[slice, ...], tuple[slice, ...]]]:
    """Yield slabs of whole chunks, each small enough for one read, as slices of the chunk grid and of the array."""
    spans = [range(n)[part] for n, part in zip(array.cdata_shape, within or (slice(None),) * array.ndim, strict=True)]
    room = max(1, SLAB_BYTES // (math.prod(array.chunks) * array.dtype.itemsize))
    for chunks in slabs(spans, min(SLAB_CHUNKS, room)):
        sizes = zip(chunks, array.chunks, array.shape, strict=True)
        yield chunks, tuple(slice(part.start * size, min(part.stop * size, length)) for part, size, length in sizes)


def slabs(spans: Sequence[range], room: int) -> Iterator[tuple[slice, ...]]:
    """Divide a grid into regions of at most `room` points, which are longest along the last axes."""
    pairs = zip(spans, chunk_steps([len(along) for along in spans], room), strict=True)
    return product(*([slice(k, min(k + step, along.stop)) for k in along[::step]] for along, step in pairs))


def chunk_steps(counts: Sequence[int], room: int) -> list[int]:
    """Return a number of chunks per axis, as large as possible for the last axes, with a product of at most `room`."""
    steps: list[int] = []
    for n_along in reversed(counts):
        steps.insert(0, max(1, min(room, n_along)))
        room //= steps[0]
    return steps
