"""Access to stored results as xarray data sets."""

import math
import os
import traceback

import pandas as pd
import xarray as xr

from pipeline.errors import IncompleteStoreError, StoreAccessError, UnreadableStoreError, command
from pipeline.faults import explain, is_expired, is_transient
from pipeline.stores.regions import SLAB_CHUNKS, chunk_steps
from pipeline.stores.store import ResultStore

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
        ``tree["k2"].to_dataset()`` is the Dataset of panel ``k2``. Variables are Dask arrays with one block per chunk,
        or several consecutive blocks if there are more than 100.

    Raises
    ------
    BadInputError
        If there is no store.
    IncompleteStoreError
        If its creation was interrupted.

    Examples
    --------
    >>> import tempfile
    >>> from pipeline import run
    >>> from studies import STUDIES
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = run(STUDIES["gibbs-traces"], f"{folder}/s.zarr", panels=["binomial"])
    ...     open_results(store.url)["binomial"]["theta"].dims
    ('start', 'iteration')
    """
    opened = open_complete(store)
    panels = {}
    for name in opened.spec["panels"]:
        chunks = _dask_chunks(opened, name)
        ds = xr.open_zarr(opened.url, group=name, chunks=chunks, drop_variables="trial")
        panels[name] = _in_order(_number_trials(ds))
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs=opened.attributes), **panels})


def open_complete(store: str | os.PathLike[str]) -> ResultStore:
    """Open a store, and require that its creation was finished.

    Raises
    ------
    BadInputError
        If there is no store.
    IncompleteStoreError
        If its creation was interrupted.
    """
    opened = ResultStore.open(store)
    if not opened.complete:
        raise IncompleteStoreError(
            f"the creation of the store {store} was interrupted; finish it with: {command('resume', store)}"
        )
    return opened


def classify_read_error(error: BaseException) -> UnreadableStoreError | StoreAccessError | None:
    """Convert an error of a lazy read to an error of the pipeline; return None for other errors.

    Parameters
    ----------
    error : BaseException
        Error with its traceback, raised while values of an opened data set were loaded.

    Returns
    -------
    UnreadableStoreError, StoreAccessError or None
        `UnreadableStoreError` for damage, `StoreAccessError` for errors of the file system or network.

    Examples
    --------
    >>> classify_read_error(ValueError("unrelated")) is None
    True
    """
    modules = [str(frame.f_globals.get("__name__")) for frame, _ in traceback.walk_tb(error.__traceback__)]
    if not any(name.startswith("zarr.") for name in modules):
        return None
    if isinstance(error, OSError) or is_transient(error) or is_expired(error):
        return StoreAccessError(f"cannot read the store: {explain(error)}; nothing was changed")
    if any(name.startswith("zarr.core.codec_pipeline") for name in modules):
        reason = " ".join(str(error).split()) or type(error).__name__
        return UnreadableStoreError(
            f"a chunk of the store cannot be read ({reason}); find it with: dpstudies verify STORE"
        )
    return None


def _dask_chunks(store: ResultStore, panel: str) -> dict[str, int]:
    """Return the Dask chunks of a panel, with several blocks per chunk if there are many: a chunk takes about 1 ms."""
    status = store.array(panel, "status")
    arrays = [store.array(panel, name) for name in store.spec["panels"][panel]["measures"]]
    largest = max(math.prod(array.chunks) * array.dtype.itemsize for array in (status, *arrays))
    steps = chunk_steps(
        status.cdata_shape, min(SLAB_CHUNKS, _DASK_BYTES // largest, -(-status.nchunks // _DASK_CHUNKS))
    )
    dims = map(str, status.metadata.dimension_names or ())  # type: ignore[union-attr]
    return {dim: size * step for dim, size, step in zip(dims, status.chunks, steps, strict=True)}


def _number_trials(ds: xr.Dataset) -> xr.Dataset:
    """Label the trials from 0 with a RangeIndex, which requires no array in memory."""
    if "trial" not in ds.dims:
        return ds
    return ds.assign_coords(trial=pd.RangeIndex(ds.sizes["trial"], name="trial"))


def _in_order(ds: xr.Dataset) -> xr.Dataset:
    """Sort along the numeric coordinates, since extensions append values at the end."""
    for name, index in ds.indexes.items():
        if index.dtype.kind in "if" and not index.is_monotonic_increasing:
            ds = ds.sortby(name)
    return ds
