"""Access to stored results as xarray data sets."""

import math
import os
import uuid
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from xarray.backends import BackendArray
from xarray.core import indexing

from pipeline.blocks.evaluate import Status
from pipeline.declare.factors import format_value
from pipeline.store.codec.missing import DECLARED, FILL
from pipeline.store.codec.regions import SLAB_CHUNKS, chunk_steps
from pipeline.store.read import read_numbers, read_values
from pipeline.store.result_store import ResultStore, open_complete
from pipeline.store.scan.requested import RequestedTrials, Stop

_READ_AT_ONCE = 2**27  # bytes
_DASK_BYTES, _DASK_CHUNKS = 2**22, 100  # maximum bytes per Dask chunk; minimum number of Dask chunks


def open_results(store: str | os.PathLike[str]) -> xr.DataTree:
    """Open a store as a tree of lazy data sets, one per panel, with numeric coordinates in ascending order.

    Parameters
    ----------
    store : path
        Path of the store.

    Returns
    -------
    xarray.DataTree
        ``tree["k2"].to_dataset()`` is the Dataset of panel ``k2``, whose variables are Dask arrays. Measures are
        float64, with NaN where the status is not ok; the attribute ``declared_dtype`` has another dtype, if the study
        declares one. After a run until a
        precision, the status of trials that were not asked for is 6, and the coordinates ``n_asked`` and ``stopped``
        are the number of trials asked for and the reason for stopping, per cell and setting.

    Raises
    ------
    BadInputError
        If there is no store.
    IncompleteStoreError
        If the creation of the store was interrupted.

    Examples
    --------
    >>> import tempfile
    >>> from pipeline import run
    >>> from studies import STUDIES
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     open_results(run(STUDIES["gibbs-traces"], f"{folder}/s.zarr", panels=["binomial"]))["binomial"].theta.dims
    ('start', 'iteration')
    """
    opened = open_complete(store)
    panels = {name: open_panel(opened, name, lazy=True) for name in opened.spec["panels"]}
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs=opened.attributes), **panels})


def open_panel(
    store: ResultStore, panel: str, *, lazy: bool | None = None, only: RequestedTrials | None = None
) -> xr.Dataset:
    """Open one panel as in `open_results`; unless `lazy`, as for large ones, read its numbers at once, not `error`.

    If `only` has numbers of trials, no other trials count as asked for.
    """
    spec = store.spec["panels"][panel]
    if lazy is None:
        arrays = (store.array(panel, name) for name in ("status", *spec["measures"]))
        lazy = sum(array.nbytes for array in arrays) > _READ_AT_ONCE
    axes = {**spec["factors"], **spec["method_factors"], **spec["outputs"], **spec["constants"]}
    methods = [dim for dim in spec["dims"] if dim not in axes]  # the dimension of the methods, if there is one
    axes |= dict.fromkeys(methods, spec["method_order"])
    variables, coordinates = {}, {}
    omitted = {"trial"} if lazy else {"trial", "error"}
    for path, document in store.metadata.items():
        name = path.partition("/")[2]
        if document["node_type"] != "array" or not path.startswith(f"{panel}/") or name in omitted:
            continue
        array = store.array(panel, name)
        dims = array.metadata.dimension_names or ()  # type: ignore[union-attr]
        values: Any
        if name in axes:  # from the root, which has a checksum
            values = [format_value(tuple(value)) if isinstance(value, list) else value for value in axes[name]]
            coordinates[name] = dims, np.array(values if dims else values[0], array.dtype), array.attrs
            continue
        stored = _Stored(store, panel, name)
        values = indexing.LazilyIndexedArray(stored) if lazy else stored.read()
        variables[name] = dims, values, stored.attributes
    ds = xr.Dataset(variables, coordinates, {"title": store.metadata[panel]["attributes"]["title"]})
    if lazy:
        chunks = _dask_chunks(store, panel)
        ds = ds.chunk({dim: size for dim, size in chunks.items() if dim in ds.dims}, token=uuid.uuid4().hex)
    if "trial" in ds.dims:  # a RangeIndex needs no array in memory
        ds = ds.assign_coords(trial=pd.RangeIndex(ds.sizes["trial"], name="trial"))
    if (requested := store.requested.get(panel)) is not None:
        ds = _mark(ds, requested, [Status.PENDING])  # trials that are stored beyond, as after a loss of records, count
    if only is not None:
        ds = _mark(ds.isel(trial=slice(int(only.trials.max(initial=0)))), only, list(Status))
    for name, index in ds.indexes.items():  # extensions append new values at the end
        if index.dtype.kind in "if" and not index.is_monotonic_increasing:
            ds = ds.sortby(name)
            ds[name].attrs.pop("comment", None)  # states that the stored coordinate is not sorted
    return ds


class _Stored(BackendArray):
    """Variable of a store, from which xarray reads regions; measures are float64, with NaN for missing values."""

    def __init__(self, store: ResultStore, panel: str, name: str) -> None:
        array, measure = store.array(panel, name), store.spec["panels"][panel]["measures"].get(name)
        read = read_values if measure is None else read_numbers
        self.read: Callable[..., np.ndarray] = partial(read, store, panel, name)
        self.shape, self.dtype = array.shape, array.dtype if measure is None else np.dtype(float)
        self.attributes = {key: value for key, value in array.attrs.items() if key != FILL}
        if measure is not None and np.dtype(measure["dtype"]) != float:  # also in stores of earlier formats
            self.attributes[DECLARED] = np.dtype(measure["dtype"]).name

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.BASIC, self._read)

    def _read(self, key: tuple[int | slice, ...]) -> Any:
        ranges = [
            range(selection, selection + 1) if isinstance(selection, int) else range(size)[selection]
            for selection, size in zip(key, self.shape, strict=True)
        ]
        if not all(ranges):
            return np.empty(self.shape, self.dtype)[key]
        region = tuple(slice(min(positions), max(positions) + 1) for positions in ranges)
        at = (0 if isinstance(selection, int) else slice(None, None, selection.step) for selection in key)
        return self.read(region)[tuple(at)]


def _mark(ds: xr.Dataset, requested: RequestedTrials, replaced: Collection[Status]) -> xr.Dataset:
    """Return a panel with the status of the trials that were not asked for, and with the reasons for stopping.

    Beyond the numbers asked for, the statuses `replaced` are.
    """
    grid = [str(dim) for dim in ds["status"].dims if dim != "trial"]
    requested = requested.fitted([ds.sizes[dim] for dim in grid], ds.sizes["trial"])
    reasons = np.array([stop.meaning for stop in Stop])[requested.stopped]
    limits = xr.DataArray(requested.trials, dims=grid)
    beyond = ds["status"].isin(list(replaced)) & (ds["trial"] >= limits)
    status = ds["status"].where(~beyond, np.int8(Status.NOT_ASKED_FOR)).astype(ds["status"].dtype)
    marked = ds.assign(status=status.transpose(*ds["status"].dims).assign_attrs(ds["status"].attrs))
    return marked.assign_coords(
        n_asked=(grid, requested.trials, {"long_name": "number of trials asked for", "units": "1"}),
        stopped=(grid, reasons, {"long_name": "reason why no further trials were asked for"}),
    )


def _dask_chunks(store: ResultStore, panel: str) -> dict[str, int]:
    """Return the Dask chunk sizes of a panel; blocks are merged, because each Dask chunk takes about 1 ms."""
    status = store.array(panel, "status")
    arrays = [store.array(panel, name) for name in store.spec["panels"][panel]["measures"]]
    largest = max(math.prod(array.chunks) * array.dtype.itemsize for array in (status, *arrays))
    steps = chunk_steps(
        status.cdata_shape, min(SLAB_CHUNKS, _DASK_BYTES // largest, -(-status.nchunks // _DASK_CHUNKS))
    )
    dims = map(str, status.metadata.dimension_names or ())  # type: ignore[union-attr]
    return {dim: size * step for dim, size, step in zip(dims, status.chunks, steps, strict=True)}
