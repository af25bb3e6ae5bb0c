"""The result store: one Zarr v3 group a panel, which any xarray user can open, and the rules that keep it whole.

* A chunk is one block of one setting, the same for all variables per trial, and has one writer. What belongs to a cell
  and not to its trials is written by each of its blocks, the same value in one step.
* Every write covers whole chunks; any other is refused, since two writers of one chunk lose data silently.
* The chunk of ``status`` is written last: it commits the block. What is not committed is pending, and computed again.
* A template is made in memory and copied, its root last: the root's consolidated metadata commits it, and its growth.
* A store is a local folder, or an object store by its URL; credentials and endpoint come from the environment alone.
"""

import json
import os
import re
import shlex
import traceback
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import zarr
import zarr.errors
from zarr.core.buffer import Buffer, default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import MemoryStore

from pipeline.blocks.evaluate import FAILURES, Block, Outcome, Status
from pipeline.declare.factors import format_value
from pipeline.declare.panel import Panel, Setting
from pipeline.declare.streams import canonical_json, sha256
from pipeline.declare.study import Study
from pipeline.errors import BadInputError, UnreadableStoreError
from pipeline.stores.places import ROOT, exists_remotely, is_local, normal_place
from pipeline.stores.regions import (
    iterate_slabs,
    positions,
    region_of,
    setting_index,
    write_region,
)
from pipeline.stores.template import make_template

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

    def holds(self, study: Study) -> bool:
        """Whether it has room for all of a configured study: it is complete, and of the same spec."""
        return self.complete and self.spec == study.spec()

    @classmethod
    def exists(cls, path: str | os.PathLike[str]) -> bool:
        """Whether there is a store at the path; `BadInputError` if there is something else."""
        url = normal_place(path)
        if not is_local(url):
            return exists_remotely(url) and bool(cls.open(path))
        place = Path(url)
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
        url = normal_place(path)
        if not (os.path.exists(url) if is_local(url) else exists_remotely(url)):
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
        """Write the template of a study: spec, arrays, coordinates, and last the root with consolidated metadata.

        Also finishes a template whose creation was interrupted; no block is written before it is complete.
        """
        url = normal_place(path)
        head = {**_head(study), **attributes}
        if not cls.exists(path):
            with suppress(zarr.errors.ContainsGroupError):  # another driver was quicker by a moment
                zarr.create_group(url, zarr_format=3, attributes=head)
        store = cls.open(path)
        if store.attributes["spec_sha256"] != head["spec_sha256"]:
            raise BadInputError(f"another run makes a store of another spec at {path}; choose another path")
        store.sweep()  # an interrupted creation's halves are no part of a Zarr hierarchy
        store._copy(make_template(study, head))
        return cls.open(path)

    def grow(self, study: Study) -> "ResultStore":
        """Make room for more trials and values; what is stored stays where it is.

        Parameters
        ----------
        study : Study
            The store's study, with new values behind those that are stored, or more trials.

        Returns
        -------
        ResultStore
            The store as it is now. Until its root is written, in one step, readers and writers see the old one.
        """
        self._copy(make_template(study, {**self.attributes, **_head(study)}))
        return ResultStore.open(self.url)

    def _copy(self, files: Mapping[str, Buffer]) -> None:
        """Write the files of a template, its root last."""
        for key in sorted(files, key=lambda key: key == ROOT):
            sync(self._root.store.set(key, files[key]))

    def record(self, session: Mapping[str, Any]) -> None:
        """Write a session into the history of the store, in place of what it said before."""
        root = zarr.open_group(self.url, mode="r+", zarr_format=3)  # another driver may have written since
        stored: Any = root.attrs.get("sessions", [])
        others = [one for one in stored if one.get("id") != session["id"]]
        root.attrs.update(sessions=[*others, dict(session)])
        self._root = root

    def sweep(self) -> None:
        """Remove what writers that were killed have left behind half-written; object stores have no such thing."""
        for leftover in Path(self.url).rglob("*.partial") if is_local(self.url) else ():
            if _LEFTOVER.fullmatch(leftover.name):
                leftover.unlink(missing_ok=True)

    def array(self, panel: str, name: str) -> zarr.Array:
        """Return the array of a variable."""
        if (panel, name) not in self._arrays:
            array = self._root[f"{panel}/{name}"]
            assert isinstance(array, zarr.Array)
            # a committed chunk is a file, so that one that is missing can be told; but texts of errors are rare
            self._arrays[panel, name] = array.with_config({"write_empty_chunks": name != "error"})
        return self._arrays[panel, name]

    def write(self, panel: Panel, block: Block, setting: Setting, outcome: Outcome) -> None:
        """Write the outcome of one setting on one block, its status last.

        A setting that does not use some method factor is written at each of that factor's values.
        """
        for position in positions(panel, block.cell, setting):
            for measure in panel.measures:
                if measure.per_trial or (outcome.status == Status.OK).any():  # the same value from every block
                    region = region_of(panel, position, block.trials if measure.per_trial else None, len(measure.dims))
                    write_region(self.array(panel.name, measure.name), region, outcome.values[measure.name])
            region = region_of(panel, position, block.trials, 0)
            error = _with_rerun(panel, block, outcome.error).astype(np.dtypes.StringDType())
            for name, values in (("error", error), ("status", outcome.status)):
                write_region(self.array(panel.name, name), region, values)

    def read(self, panel: Panel, block: Block, setting: Setting) -> Outcome:
        """Read what is stored of one setting on some trials, which need not be a whole block.

        Measures that are not per trial are stored as soon as one trial of the setting is ok.
        """
        position = next(positions(panel, block.cell, setting))

        def stored(name: str, per_trial: bool, n_dims: int) -> np.ndarray:
            region = region_of(panel, position, block.trials if per_trial else None, n_dims)
            values = np.asarray(self.array(panel.name, name)[region])
            head = (len(block.trials),) if per_trial and panel.trials is not None else ()
            return values.reshape(head + values.shape[values.ndim - n_dims :])

        values = {m.name: stored(m.name, m.per_trial, len(m.dims)) for m in panel.measures}
        status, error = stored("status", True, 0), stored("error", True, 0).astype(object)
        return Outcome(values, status.reshape(-1), error.reshape(-1))

    def committed(self, panel: Panel, setting: Setting) -> Iterator[Block]:
        """Yield the trials of a setting that are ok, each as a block of its own; the last cells, begun first, first."""
        status, n_axes = self.array(panel.name, "status"), len(panel.factors)
        at = region_of(panel, next(positions(panel, 0, setting)), None, status.ndim - n_axes - len(panel.method_axes))
        for _, region in reversed(list(iterate_slabs(status, (slice(None),) * n_axes + at[n_axes:]))):
            start = np.array([part.start for part in region])
            for place in reversed(start + np.argwhere(np.asarray(status[region]) == Status.OK)):
                cell = np.ravel_multi_index(place[:n_axes], status.shape[:n_axes]) if n_axes else 0
                trial = int(place[-1]) if panel.trials is not None else 0
                yield Block(panel.name, int(cell), range(trial, trial + 1))

    def pending(self, panel: Panel, retry: Collection[Status] = ()) -> np.ndarray:
        """Return which settings of which blocks are not committed, or hold a trial that is to be tried again.

        Parameters
        ----------
        panel : Panel
            The panel.
        retry : collection of Status
            What is to be computed again.

        Returns
        -------
        ndarray of bool, shape (cell, block, setting)
            Blocks in the order of `n_blocks` runs of `Panel.block_trials` trials.

        Raises
        ------
        UnreadableStoreError
            If a committed chunk cannot be read.
        """
        status = self.array(panel.name, "status")
        wanted = np.empty(status.cdata_shape, bool)
        for chunks, region in iterate_slabs(status):
            with self.reading():
                here = np.isin(np.asarray(status[region]), [Status.PENDING, *retry])
            if panel.trials is not None:
                here = np.logical_or.reduceat(here, np.arange(0, here.shape[-1], panel.block_trials), axis=-1)
            wanted[chunks] = here
        axes, n_cells, n_blocks = len(panel.factors), len(panel.cells()), -(-panel.n_trials // panel.block_trials)
        wanted = wanted if panel.trials is not None else wanted[..., None]
        found = np.empty((n_cells, n_blocks, len(panel.settings())), bool)
        for k, setting in enumerate(panel.settings()):
            index = (slice(None),) * axes + setting_index(panel, setting)
            of_setting = wanted[index].reshape(n_cells, -1, n_blocks)
            found[:, :, k] = of_setting.any(axis=1)
        return found

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Turn what a damaged chunk raises, of many kinds, into an `UnreadableStoreError` that says what to do."""
        try:
            yield
        except Exception as error:
            if not is_damage(error):
                raise
            raise UnreadableStoreError(
                f"a chunk of the store {self.url} cannot be read ({' '.join(str(error).split())}); find it with: "
                f"dpstudies verify {shlex.quote(self.url)}"
            ) from error

    def damage(self, panel: Panel, block: Block, setting: Setting) -> dict[str, str]:
        """Check every chunk of one setting on one block: by its checksum, and whether it is there at all.

        Returns
        -------
        dict of str to str
            What is wrong, by variable; empty for what is pending, and where all is well.
        """
        found: dict[str, str] = {}
        for position in positions(panel, block.cell, setting):
            status = np.zeros(1, np.int8)
            for name in ("status", "error", *(measure.name for measure in panel.measures)):
                array, region = self._chunk(panel, block, position, name)
                try:
                    values = np.asarray(array[region])
                except (OSError, ValueError, RuntimeError) as error:
                    found[name] = f"unreadable: {' '.join(str(error).split())}"
                    continue
                status = values.ravel() if name == "status" else status
                if not (status != Status.PENDING).any():
                    continue
                expected = np.isin(status, FAILURES).any() if name == "error" else name in self._per_trial(panel)
                expected = expected or (name != "error" and (status == Status.OK).any())
                if expected and not sync(self._root.store.exists(self._key(array, region))):
                    found[name] = "missing"
        return found

    def revoke(self, panel: Panel, block: Block, setting: Setting, damaged: Iterable[str]) -> None:
        """Return one setting of a block to what is pending, and remove its damaged chunks, which hold no number."""
        for position in positions(panel, block.cell, setting):
            for name in ("status", *damaged):  # in this order: what is committed is always whole
                sync(self._root.store.delete(self._key(*self._chunk(panel, block, position, name))))

    def mend(self, study: Study) -> dict[tuple[str, str], str]:
        """Write anew what the spec alone decides, where it is damaged: coordinates, and the metadata of arrays.

        Returns
        -------
        dict of (str, str) to str
            What was wrong, by panel and variable.
        """
        found: dict[tuple[str, str], str] = {}
        files = make_template(study, self.attributes)
        template = zarr.open_group(MemoryStore(dict(files)), mode="r")
        for key, content in files.items():
            panel, _, rest = key.partition("/")
            if key == ROOT:
                continue
            name = rest.partition("/")[0]
            try:
                if key.endswith(ROOT):
                    stored = sync(self._root.store.get(key, default_buffer_prototype()))
                    same = stored is not None and json.loads(stored.to_bytes()) == json.loads(content.to_bytes())
                else:
                    expected = template[f"{panel}/{name}"]
                    assert isinstance(expected, zarr.Array)
                    same = np.array_equal(np.asarray(self.array(panel, name)[...]), np.asarray(expected[...]))
            except (OSError, ValueError, RuntimeError) as error:
                found[panel, name] = f"mended: {' '.join(str(error).split())}"
                same = False
            if not same:
                found.setdefault((panel, name), "mended: it was not what the spec says")
                sync(self._root.store.set(key, content))
        return found

    def _per_trial(self, panel: Panel) -> set[str]:
        return {"status", *(measure.name for measure in panel.measures if measure.per_trial)}

    def _chunk(self, panel: Panel, block: Block, position: tuple[int, ...], name: str) -> tuple[zarr.Array, Any]:
        """Return the array of a variable, and the region of the one chunk that a block has in it."""
        sizes = {measure.name: (measure.per_trial, len(measure.dims)) for measure in panel.measures}
        per_trial, n_dims = sizes.get(name, (True, 0))
        return self.array(panel.name, name), region_of(panel, position, block.trials if per_trial else None, n_dims)

    def _key(self, array: zarr.Array, region: tuple[slice, ...]) -> str:
        chunk = tuple((part.start or 0) // size for part, size in zip(region, array.chunks, strict=True))
        return f"{array.path}/{array.metadata.encode_chunk_key(chunk)}"


def is_damage(error: BaseException) -> bool:
    """Whether an error was raised while a chunk was read and decoded, by whichever codec."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(str(frame.f_globals.get("__name__")).startswith("zarr.core.codec_pipeline") for frame in frames)


def _head(study: Study) -> dict[str, Any]:
    """Return the root's attributes that a study decides."""
    spec = study.spec()
    return {
        "title": study.title,
        "study": study.name,
        "aim": study.aim,
        "seed": study.seed,
        "spec": json.dumps(spec),
        "spec_sha256": sha256(canonical_json(spec)),
    }


def _with_rerun(panel: Panel, block: Block, error: np.ndarray) -> np.ndarray:
    """Append to each error the words that compute its trial again; STORE stands for the store's path."""
    values = panel.cells()[block.cell].items()
    cell = "".join(f" --cell {shlex.quote(f'{name}={format_value(value)}')}" for name, value in values)
    again = f"again: dpstudies trial STORE --panel {panel.name}{cell} --trial"
    return np.array(
        [f"{text}\n{again} {trial}" if text else "" for text, trial in zip(error, block.trials, strict=True)], object
    )
