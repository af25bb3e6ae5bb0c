"""The result store: one Zarr v3 group a panel, which any xarray user can open, and the rules that keep it whole.

* A chunk is one block of one setting, the same for all variables per trial, and has one writer. What belongs to a cell
  and not to its trials is written by each of its blocks, the same value in one step.
* Every write covers whole chunks; any other is refused, since two writers of one chunk lose data silently.
* The chunk of ``status`` is written last: it commits the block. What is not committed is pending, and computed again.
* The root's consolidated metadata is written after all arrays exist: it commits the template.
"""

import json
import os
import re
import warnings
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
import zarr
import zarr.errors

from pipeline.errors import BadInputError, IncompleteStoreError
from pipeline.evaluate import Block, Outcome, Status
from pipeline.factors import format_value
from pipeline.panel import Panel, Setting
from pipeline.streams import canonical_json, sha256
from pipeline.study import Study
from pipeline.template import create_panel

_LEFTOVER = re.compile(r".*\.[0-9a-f]{32}\.partial")  # as the local store names a file until it is whole


class ResultStore:
    """A store of results: written in whole blocks by workers, read by anyone.

    Use `create` or `open`; both raise `BadInputError` where the path holds something else.

    Attributes
    ----------
    url : str
        Absolute path of the store.
    attributes : dict
        The root's attributes: spec, study reference, provenance.
    """

    def __init__(self, url: str, root: zarr.Group) -> None:
        self.url = url
        self._root = root
        self._arrays: dict[tuple[str, str], zarr.Array] = {}

    @property
    def attributes(self) -> dict[str, Any]:
        """The root's attributes, as stored."""
        return dict(self._root.attrs)

    @property
    def spec(self) -> dict[str, Any]:
        """All that decides the numbers and their layout."""
        return json.loads(self.attributes["spec"])

    @property
    def complete(self) -> bool:
        """Whether the template was finished: all arrays exist and the root says so."""
        return self._root.metadata.consolidated_metadata is not None

    @classmethod
    def exists(cls, path: str | os.PathLike[str]) -> bool:
        """Whether there is a store at the path; `BadInputError` if there is something else."""
        place = Path(_local(path))
        if not place.exists():
            parent = next(parent for parent in place.parents if parent.exists())
            if not parent.is_dir() or not os.access(parent, os.W_OK):
                raise BadInputError(f"the store's folder {parent} must be a folder that can be written; choose another")
            return False
        if place.is_dir() and all(_LEFTOVER.fullmatch(entry.name) for entry in place.iterdir()):
            return False
        cls.open(path)
        return True

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> "ResultStore":
        """Open a store that exists."""
        url = _local(path)
        if not os.path.exists(url):
            raise BadInputError(f"no result store at {path}; run a study with --store {path} first")
        try:
            root = zarr.open_group(url, mode="r+", zarr_format=3)
            known = {"study", "panels"} <= json.loads(root.attrs["spec"]).keys()  # type: ignore[arg-type]
        except (OSError, ValueError, TypeError, KeyError, AttributeError, zarr.errors.BaseZarrError):
            known = False
        if not known:
            raise BadInputError(f"{path} holds something that is not a result store; choose another path")
        return cls(url, root)

    @classmethod
    def create(cls, path: str | os.PathLike[str], study: Study, attributes: Mapping[str, Any]) -> "ResultStore":
        """Write the template of a study: spec, arrays, coordinates, and last the consolidated metadata.

        Also finishes a template whose creation was interrupted; no block is written before it is complete.
        """
        url = _local(path)
        spec = study.spec()
        head = {
            "title": study.title,
            "study": study.name,
            "aim": study.aim,
            "seed": study.seed,
            "spec": json.dumps(spec),
            "spec_sha256": sha256(canonical_json(spec)),
            **attributes,
        }
        root = (
            zarr.create_group(url, zarr_format=3, attributes=head, overwrite=False)
            if not os.path.exists(os.path.join(url, "zarr.json"))
            else zarr.open_group(url, mode="r+", zarr_format=3)
        )
        cls(url, root).sweep()  # an interrupted creation's halves are no part of a Zarr hierarchy
        for panel in study.panels:
            create_panel(root, panel)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Consolidated metadata")
            root = zarr.consolidate_metadata(root.store)
        return cls(url, root)

    def update(self, **attributes: Any) -> None:
        """Replace attributes of the root; the file is exchanged in one step."""
        self._root.attrs.update(attributes)

    def sweep(self) -> None:
        """Remove what writers that were killed have left behind half-written."""
        for leftover in Path(self.url).rglob("*.partial"):
            if _LEFTOVER.fullmatch(leftover.name):
                leftover.unlink(missing_ok=True)

    def array(self, panel: str, name: str) -> zarr.Array:
        """Return the array of a variable."""
        if (panel, name) not in self._arrays:
            array = self._root[f"{panel}/{name}"]
            assert isinstance(array, zarr.Array)
            self._arrays[panel, name] = array
        return self._arrays[panel, name]

    def write(self, panel: Panel, block: Block, setting: Setting, outcome: Outcome) -> None:
        """Write the outcome of one setting on one block, its status last.

        A setting that does not use some method factor is written at each of that factor's values.
        """
        for position in _positions(panel, block.cell, setting):
            for measure in panel.measures:
                if measure.per_trial or (outcome.status == Status.OK).any():  # the same value from every block
                    region = _region(panel, position, block.trials if measure.per_trial else None, len(measure.dims))
                    write_region(self.array(panel.name, measure.name), region, outcome.values[measure.name])
            region = _region(panel, position, block.trials, 0)
            error = _with_rerun(panel, block, outcome.error).astype(np.dtypes.StringDType())
            for name, values in (("error", error), ("status", outcome.status)):
                write_region(self.array(panel.name, name), region, values)

    def read(self, panel: Panel, block: Block, setting: Setting) -> Outcome:
        """Read what is stored of one setting on some trials, which need not be a whole block.

        Measures that are not per trial are stored as soon as one trial of the setting is ok.
        """
        position = next(_positions(panel, block.cell, setting))

        def stored(name: str, per_trial: bool, n_dims: int) -> np.ndarray:
            region = _region(panel, position, block.trials if per_trial else None, n_dims)
            values = np.asarray(self.array(panel.name, name)[region])
            head = (len(block.trials),) if per_trial and panel.trials is not None else ()
            return values.reshape(head + values.shape[values.ndim - n_dims :])

        values = {m.name: stored(m.name, m.per_trial, len(m.dims)) for m in panel.measures}
        status, error = stored("status", True, 0), stored("error", True, 0).astype(object)
        return Outcome(values, status.reshape(-1), error.reshape(-1))

    def committed(self, panel: Panel, setting: Setting) -> Iterator[Block]:
        """Yield the trials of a setting that are ok, each as a block of its own, the first cells first."""
        for cell in range(len(panel.cells())):
            region = _region(panel, next(_positions(panel, cell, setting)), range(panel.n_trials), 0)
            status = np.asarray(self.array(panel.name, "status")[region]).ravel()
            for trial in np.flatnonzero(status == Status.OK):
                yield Block(panel.name, cell, range(int(trial), int(trial) + 1))

    def pending(self, panel: Panel) -> np.ndarray:
        """Return which settings of which blocks are not committed.

        Returns
        -------
        ndarray of bool, shape (cell, block, setting)
            Blocks in the order of `n_blocks` runs of `Panel.block_trials` trials.
        """
        n_cells, n_blocks = len(panel.cells()), -(-panel.n_trials // panel.block_trials)
        axes = len(panel.factors)
        uncommitted = np.asarray(self.array(panel.name, "status")[...]) == Status.PENDING
        if panel.trials is None:
            uncommitted = uncommitted[..., None]
        starts = np.arange(0, panel.n_trials, panel.block_trials)
        uncommitted = np.logical_or.reduceat(uncommitted, starts, axis=-1)
        found = np.empty((n_cells, n_blocks, len(panel.settings())), bool)
        for k, setting in enumerate(panel.settings()):
            index = (slice(None),) * axes + _setting_index(panel, setting)
            of_setting = uncommitted[index].reshape(n_cells, -1, n_blocks)
            found[:, :, k] = of_setting.any(axis=1)
        return found


def open_results(store: str | os.PathLike[str]) -> xr.DataTree:
    """Open a store as a tree of lazy data sets, one for each panel, numeric coordinates in ascending order.

    Parameters
    ----------
    store : path
        Path of the store.

    Returns
    -------
    xarray.DataTree
        ``tree["k2"].to_dataset()`` is the Dataset of panel ``k2``; arrays are Dask arrays, one chunk a block.

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
            f"the store {store} was interrupted while it was created; finish it with: dpstudies resume {store}"
        )
    tree = xr.open_datatree(opened.url, engine="zarr", chunks={})
    panels = {name: _in_order(tree[name].to_dataset()) for name in opened.spec["panels"]}
    return xr.DataTree.from_dict({"/": tree.to_dataset(), **panels})


def _in_order(ds: xr.Dataset) -> xr.Dataset:
    """Sort along the numeric coordinates, to whose end an extended study appends."""
    for name, index in ds.indexes.items():
        if index.dtype.kind in "if" and not index.is_monotonic_increasing:
            ds = ds.sortby(name)
    return ds


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
    whole = [slice(*part.indices(size)[:2]) for part, size in zip(region, array.shape, strict=True)]
    for part, chunk, size in zip(whole, array.chunks, array.shape, strict=True):
        if part.start % chunk or (part.stop % chunk and part.stop != size):
            raise ValueError(
                f"a write must cover whole chunks, got {part.start}:{part.stop} in a dimension of {size} with chunks "
                f"of {chunk}; two writers of one chunk would overwrite each other: write the runs of trials that "
                "block_trials makes"
            )
    array[tuple(whole)] = values.reshape([part.stop - part.start for part in whole])


def _local(path: str | os.PathLike[str]) -> str:
    if "://" in os.fspath(path):
        raise BadInputError(f"a store must be a local path, got {path}; choose a folder")
    return os.path.abspath(path)


def _with_rerun(panel: Panel, block: Block, error: np.ndarray) -> np.ndarray:
    """Append to each error the words that compute its trial again; STORE stands for the store's path."""
    cell = "".join(f" --cell {name}={format_value(value)}" for name, value in panel.cells()[block.cell].items())
    again = f"again: dpstudies trial STORE --panel {panel.name}{cell} --trial"
    return np.array(
        [f"{text}\n{again} {trial}" if text else "" for text, trial in zip(error, block.trials, strict=True)], object
    )


def _setting_index(panel: Panel, setting: Setting) -> tuple[Any, ...]:
    """Index of a setting along the axes of the methods; a factor it does not use is taken whole."""
    place = setting.place(panel.method_dim)
    return tuple(
        axis.values.index(place[axis.name]) if axis.name in place else slice(None) for axis in panel.method_axes
    )


def _positions(panel: Panel, cell: int, setting: Setting) -> Iterator[tuple[int, ...]]:
    """Yield the positions (data factors, method factors, method) at which a setting of a cell is stored."""
    of_cell = np.unravel_index(cell, [len(axis.values) for axis in panel.factors]) if panel.factors else ()
    choices = [
        range(len(axis.values)) if isinstance(index, slice) else (index,)
        for axis, index in zip(panel.method_axes, _setting_index(panel, setting), strict=True)
    ]
    for position in product(*choices):
        yield (*(int(index) for index in of_cell), *position)


def _region(panel: Panel, position: tuple[int, ...], trials: range | None, n_dims: int) -> tuple[Any, ...]:
    """Region of a position over some trials (None: no trial dimension), whole along the `n_dims` last dimensions."""
    grid = tuple(slice(index, index + 1) for index in position)
    along = () if trials is None or panel.trials is None else (slice(trials.start, trials.stop),)
    return grid + along + (slice(None),) * n_dims
