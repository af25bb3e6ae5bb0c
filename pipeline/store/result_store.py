"""Result store: one Zarr v3 group per panel, readable with xarray.

* A chunk contains one block of one setting; all per-trial variables have the same chunks. Every block of a cell
  computes the per-cell values. The first block with an ok trial writes them, and no later block replaces them.
* The chunk of ``status`` is written last, once all other chunks of the block are durable: it commits the block and has
  their digests (`pipeline.store.codec.chunk_digests`). Only chunks with these digests are read. A block without a
  status chunk is pending. Before a block is replaced, its status also gets the digests of the new chunks.
* Only one session writes at a time, and a superseded session cannot write (`pipeline.store.sessions.lease`). The root
  changes only when the store is created, extended or repaired: its copy is written first, then new files, then the
  root itself.
* A store is a local folder, or the URL of an object store. Credentials and endpoint are read only from the environment.
"""

import json
import math
import os
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from pipeline.blocks.evaluate import Block, Outcome, Status
from pipeline.declare.panel import Panel, Setting
from pipeline.declare.study import Study
from pipeline.errors import BadInputError, DamagedChunkError, IncompleteStoreError, UnreadableStoreError, command
from pipeline.store.codec.chunk_digests import ABSENT, ChunkDigests, digest, remove_checksum
from pipeline.store.codec.chunks import Chunks, Region
from pipeline.store.codec.missing import as_declared, find_missing
from pipeline.store.codec.regions import SLAB_CHUNKS, iterate_slabs, positions, region_of, setting_index
from pipeline.store.codec.shards import ShardReader
from pipeline.store.commit import Commit, Planned, without_rerun
from pipeline.store.files.access import Files, accessing, open_files
from pipeline.store.files.locations import ROOT, STATE, exists_remotely, is_local, normalise_location
from pipeline.store.layout.root import COMPACT_FORMATS, Root, read_root
from pipeline.store.layout.template import INAPPLICABLE, root_attributes, write_template
from pipeline.store.scan.requested import RECORD, RequestedTrials, read_requested
from pipeline.store.scan.run_part import RUN_PART, RunPart
from pipeline.store.sessions.lease import Session
from pipeline.store.sessions.records import SESSION_COPIES, has_copies, is_lost, sessions_of

COMMITTED, UNWRITTEN, STALE = 0, 1, 2
"""States of a block: committed, pending without a status chunk, or pending with one that is replaced."""
_MOST_READS = 10  # number of reads of chunks that are being replaced


class ResultStore:
    """Store of results, read by any process and written by the workers of one session, to which `files` then belong."""

    def __init__(self, files: Files, root: Root, *, damaged: bool = False) -> None:
        self.root, self.files, self.url, self._is_checked = root, files, files.url, damaged
        self.chunks = Chunks(root.content)
        # reader of encoded chunks by key
        self.reader: Files | ShardReader | _ReadAhead = ShardReader(files, self.chunks) if self.is_compact else files
        variables = {name: ("error", *panel["measures"]) for name, panel in self.spec["panels"].items()}
        self.chunk_digests = ChunkDigests(f"{self.spec['study']}/{self.spec['seed']}", variables)
        self._present: dict[str, bytes] = {}

    def __repr__(self) -> str:
        """Return the class name and the URL."""
        return f"ResultStore({self.url!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Return a function and its argument, from which workers open the store."""
        return ResultStore.open, (self.url,)

    def __fspath__(self) -> str:
        """Return the URL, so that functions which take the path of a store accept the store itself."""
        return self.url

    @cached_property
    def attributes(self) -> dict[str, Any]:
        """The root's attributes, as stored."""
        return self.root.attributes

    @cached_property
    def spec(self) -> dict[str, Any]:
        """Specification of the numbers and their layout."""
        return json.loads(self.attributes["spec"])

    @property
    def sessions(self) -> list[dict[str, Any]]:
        """Records of the sessions that wrote to the store, in order; read again at each access."""
        return sessions_of(self.files)

    @cached_property
    def requested(self) -> dict[str, RequestedTrials]:
        """Numbers of trials asked for, by panel; a panel without an entry asks for all of its trials."""
        sessions = self.sessions
        last: dict[str, Any] = next(
            (session for session in reversed(sessions) if RECORD in session or is_lost(session)), {}
        )
        if not self._is_checked and (is_lost(last) or not has_copies(self.files)):
            lost = f"the copies of records, {SESSION_COPIES},"
            lost = f"the record {last['damaged']} and its copy" if is_lost(last) else lost
            raise UnreadableStoreError(
                f"{self.url}: {lost} are damaged, so the number of trials asked for is unknown; continue without them "
                f"after: {self._repair}"
            )
        try:
            requested = read_requested(sessions)
            if any(
                numbers.trials.ndim != len(self.spec["panels"][panel]["dims"]) for panel, numbers in requested.items()
            ):
                raise ValueError
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            raise BadInputError(
                f"the store {self.url} cannot have been written by this package, since its record of the trials asked "
                "for is invalid; compute it again, or obtain it again from its origin"
            ) from error
        return requested

    def requested_trials(self, panel: Panel) -> np.ndarray:
        """Return the numbers of trials asked for, shape (cell, setting)."""
        requested, shape = self.requested.get(panel.name), (len(panel.cells()), len(panel.settings()))
        return np.full(shape, panel.n_trials) if requested is None else requested.by_setting(panel)

    @property
    def complete(self) -> bool:
        """True if the creation of the store was finished, that is, if the root exists."""
        return self.root.is_in_place

    @cached_property
    def run_part(self) -> RunPart | None:
        """Part of the blocks of a run that the store asks for, or None for all of them."""
        return RunPart.parse(self.attributes[RUN_PART]) if RUN_PART in self.attributes else None

    def others(self, panel: str) -> np.ndarray:
        """Return a mask of the blocks of other parts of the run, shape (cell, block)."""
        shapes = {
            name: (
                math.prod(map(len, panel_spec["factors"].values())),
                -(-(panel_spec["trials"] or 1) // panel_spec["block_trials"]),
            )
            for name, panel_spec in self.spec["panels"].items()
        }
        return np.zeros(shapes[panel], bool) if self.run_part is None else self.run_part.others(panel, shapes)

    @cached_property
    def _inapplicable(self) -> dict[str, int]:
        """Number of statuses of methods that do not apply, by panel; empty for stores of earlier versions."""
        try:
            counts = json.loads(self.attributes.get(INAPPLICABLE, "{}"))
            return {panel: int(n) for panel, n in counts.items()}
        except (ValueError, TypeError, AttributeError, OverflowError):
            return {}

    def _not_requested(self, panel: str, requested: RequestedTrials | None) -> np.ndarray | None:
        """Return a mask of the chunks of the statuses whose trials are not asked for, or None if all are."""
        if requested is None and self.run_part is None:
            return None
        spec, status, others = self.spec["panels"][panel], self.array(panel, "status"), self.others(panel)
        grid, n_factors, n_blocks = status.shape[: len(spec["dims"])], len(spec["factors"]), others.shape[1]
        mask = np.zeros((*grid, n_blocks), bool)
        mask |= others.reshape(*grid[:n_factors], *[1] * len(grid[n_factors:]), n_blocks)
        if requested is not None:
            limits = requested.fitted(grid, spec["trials"] or 1).trials
            mask |= np.arange(n_blocks) * spec["block_trials"] >= limits[..., None]
        return mask.reshape(status.cdata_shape)

    @property
    def is_compact(self) -> bool:
        """True for a store that `pipeline.compact` has written, which can only be read."""
        return self.attributes["store_format"] in COMPACT_FORMATS.values()

    @property
    def _repair(self) -> str:
        """Command that replaces damaged files other than chunks."""
        return command(*(("compact", "ORIGINAL", "NEW") if self.is_compact else ("verify", self.url, "--repair")))

    def holds(self, study: Study) -> bool:
        """Return True if the store is complete and has the spec of a configured study."""
        return self.complete and self.spec == study.spec()

    @classmethod
    def exists(cls, path: str | os.PathLike[str]) -> bool:
        """Return True if a store exists at the path, complete or not."""
        return cls.find(path, damaged=True) is not None

    @classmethod
    def find(
        cls, path: str | os.PathLike[str], session: str | None = None, *, damaged: bool = False
    ) -> "ResultStore | None":
        """Open a store as `open` does, or return None for a location at which one can be created."""
        files, root = _look(path, session)
        if root is None:
            _require_writable_parent(files.url)
            return None
        return cls._checked(files, root, damaged)

    @classmethod
    def open(cls, path: str | os.PathLike[str], session: str | None = None, *, damaged: bool = False) -> "ResultStore":
        """Open a store, read-only or for a session; if `damaged`, accept a damaged root with an intact copy."""
        files, root = _look(path, session)
        if root is None:
            raise BadInputError(f"no result store at {path}; run a study with --store {shlex.quote(str(path))} first")
        return cls._checked(files, root, damaged)

    @classmethod
    def _checked(cls, files: Files, root: Root, damaged: bool) -> "ResultStore":
        """Return the store with a root, which must be intact unless `damaged`."""
        opened = cls(files, root, damaged=damaged)
        if root.problem and root.content != files.read(ROOT) and not damaged:
            raise UnreadableStoreError(f"{files.url}: {root.problem}; restore it with: {opened._repair}")
        return opened

    @classmethod
    def create(cls, session: Session, study: Study, attributes: Mapping[str, Any]) -> "ResultStore":
        """Write the template of a study, or complete an interrupted creation; no block is written before the root."""
        files = session.files
        begun = read_root(files)
        if begun is not None:
            if begun.attributes["spec_sha256"] != root_attributes(study)["spec_sha256"]:
                raise BadInputError(
                    f"{files.url} contains an unfinished store with a different spec; choose another path"
                )
            attributes = begun.attributes  # attributes written by the session that began to create the store
        return cls(files, write_template(files, study, attributes))

    def grow(self, session: Session, study: Study, attributes: Mapping[str, Any] | None = None) -> "ResultStore":
        """Extend the arrays, whose chunks do not move; readers see the old store until the root is replaced."""
        return type(self)(
            session.files, write_template(session.files, study, {**self.attributes, **(attributes or {})})
        )

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """Metadata of all groups and arrays by path, from the root."""
        return json.loads(self.root.content)["consolidated_metadata"]["metadata"]

    def array(self, panel: str, name: str) -> zarr.Array:
        """Return a variable's array, which has only metadata; read its values with `values`."""
        return self.chunks.array(panel, name)

    @contextmanager
    def commit(self, planned: Sequence[Planned]) -> Iterator[Commit]:
        """Yield a `Commit`; at the end, commit the blocks written to it, or none if the context raises."""
        commit = Commit(self.files, self.chunks, self.chunk_digests, self._present, planned)
        try:
            yield commit
        except BaseException:
            commit.discard()
            raise
        commit.finish()

    def read_ahead(self, keys: Iterable[str]) -> "ResultStore":
        """Return a view of the store that reads some chunks once, together, and no others."""
        view = object.__new__(type(self))
        view.__dict__ |= self.__dict__ | {"reader": _ReadAhead(self.reader.read_many(sorted(keys)))}
        return view

    def read(self, panel: Panel, block: Block, setting: Setting) -> Outcome:
        """Read the stored outcome of one setting on some trials; per-cell measures are missing until a trial is ok."""
        position = next(positions(panel, block.cell, setting))
        values = {name: self.read_at(panel, position, block.trials, name) for name in panel.variables}
        status, error = (values.pop(name).reshape(-1) for name in ("status", "error"))
        return Outcome(values, status, np.array([without_rerun(str(text)) for text in error], object))

    def read_at(self, panel: Panel, position: tuple[int, ...], trials: range, name: str) -> np.ndarray:
        r"""Read a variable at one array position, shape (trial, \*outputs), without trials if it has none.

        Measures have their declared dtype, with zero for missing integers and booleans.
        """
        region = region_of(panel, position, trials, name)
        values = self.values(panel.name, name, region, slice(trials.start, trials.stop))
        if measure := self.spec["panels"][panel.name]["measures"].get(name):
            values = as_declared(self.array(panel.name, name), values, measure["dtype"])
        return values.reshape(values.shape[len(position) :])

    def values(self, panel: str, name: str, region: Region | None = None, trials: slice = slice(None)) -> np.ndarray:
        """Return the committed values of a variable as stored, per-cell ones as committed by the blocks of `trials`."""
        region = region or tuple(slice(0, size) for size in self.array(panel, name).shape)
        with self.reading():
            return self.chunks.decode(panel, name, region, self.encoded(panel, name, region, trials))

    def measured(self, panel: str, name: str, region: Region | None = None) -> np.ndarray:
        """Return committed values of a measure as float64, with NaN where it is missing or the status is not ok."""
        array, status = self.array(panel, name), self.array(panel, "status")
        region = region or tuple(slice(0, size) for size in array.shape)
        with self.reading():
            contents = self.encoded(panel, name, region)
            values = self.chunks.decode(panel, name, region, contents)
        numbers = values.astype(float)
        numbers[find_missing(array, values)] = np.nan
        dims, of_status = (variable.metadata.dimension_names or () for variable in (array, status))  # type: ignore[union-attr]
        if dims[: status.ndim] == of_status:  # a killed command may leave numbers of trials that are not ok
            numbers[self.values(panel, "status", region[: status.ndim]) != Status.OK] = np.nan
        else:  # one chunk per cell and setting, which no block has committed if no trial is ok
            is_absent = [contents[key] is None for key in self.chunks.keys(panel, name, region)]
            numbers[np.reshape(is_absent, numbers.shape[: status.ndim - 1])] = np.nan
        return numbers

    def encoded(self, panel: str, name: str, region: Region, trials: slice = slice(None)) -> dict[str, bytes | None]:
        """Return the chunks of a region by key, None if no block has committed one, statuses without digests."""
        keys, status = self.chunks.keys(panel, name, region), self.array(panel, "status")
        if name == "status":
            return self.chunk_digests.statuses(self.reader.read_many(keys))
        has_trials = [
            "trial" in (variable.metadata.dimension_names or ())  # type: ignore[union-attr]
            for variable in (status, self.array(panel, name))
        ]
        owners = region[: status.ndim] if has_trials[0] == has_trials[1] else (*region[: status.ndim - 1], trials)
        for _ in range(_MOST_READS):
            allowed = self._digests(panel, name, owners, len(keys))
            wanted = [key for key, digests in zip(keys, allowed, strict=True) if digests - {ABSENT}]
            contents = dict.fromkeys(keys) | self.reader.read_many(wanted)
            damaged = [key for key, digests in zip(keys, allowed, strict=True) if digest(contents[key]) not in digests]
            if not damaged or allowed == self._digests(panel, name, owners, len(keys)):
                break  # otherwise, a block was replaced meanwhile
        for key in damaged:
            content = contents[key]
            if content is None and key not in wanted:
                continue  # no block has committed the chunk
            if content is None:
                raise DamagedChunkError(f"{key} is missing", "missing")
            remove_checksum(content, key)
            raise DamagedChunkError(f"{key} is not the chunk that its block committed", "inconsistent")
        return contents

    def _digests(self, panel: str, name: str, owners: Region, n_keys: int) -> list[set[bytes]]:
        """Return the digests that the statuses of a region allow for each of the chunks which they commit."""
        keys = self.chunks.keys(panel, "status", owners)
        per_chunk = len(keys) // n_keys
        allowed: list[set[bytes]] = [set() for _ in range(n_keys)]
        for start in range(0, len(keys), SLAB_CHUNKS):
            contents = self.reader.read_many(keys[start : start + SLAB_CHUNKS])
            for k, key in enumerate(keys[start : start + SLAB_CHUNKS], start):
                if (content := contents[key]) is not None:
                    allowed[k // per_chunk].update(self.chunk_digests.digests(name, key, content))
        return allowed if per_chunk == 1 else [digests - {ABSENT} for digests in allowed]

    def committed(self, panel: Panel, setting: Setting) -> Iterator[Block]:
        """Yield the ok trials of a setting as blocks of one trial, from the last cell to the first."""
        status, n_axes = self.array(panel.name, "status"), len(panel.factors)
        at = region_of(panel, next(positions(panel, 0, setting)), range(panel.n_trials), "status")
        for _, region in reversed(list(iterate_slabs(status, (slice(None),) * n_axes + at[n_axes:]))):
            values = self._statuses(panel.name, region)
            if values is None:
                continue
            start = np.array([part.start for part in region])
            for index in reversed(start + np.argwhere(values == Status.OK)):
                cell = np.ravel_multi_index(index[:n_axes], status.shape[:n_axes]) if n_axes else 0
                trial = int(index[-1]) if panel.trials is not None else 0
                yield Block(panel.name, int(cell), range(trial, trial + 1))

    def scan(
        self, panel: Panel, retry: Collection[Status] = (), requested: Mapping[str, RequestedTrials] | None = None
    ) -> np.ndarray:
        """Return the state of every block, shape (cell, block, setting): `COMMITTED` also if not asked for."""
        status = self.array(panel.name, "status")
        states = np.full(status.cdata_shape, UNWRITTEN, np.uint8)
        for chunks, region in iterate_slabs(status):
            values = self._statuses(panel.name, region)
            if values is None:
                continue
            is_pending, is_written = np.isin(values, [Status.PENDING, *retry]), values != Status.PENDING
            if panel.trials is not None:
                starts = np.arange(0, is_pending.shape[-1], panel.block_trials)
                is_pending = np.logical_or.reduceat(is_pending, starts, axis=-1)
                is_written = np.logical_or.reduceat(is_written, starts, axis=-1)
            states[chunks] = np.where(is_pending, np.where(is_written, STALE, UNWRITTEN), COMMITTED)
        not_requested = self._not_requested(
            panel.name, (self.requested if requested is None else requested).get(panel.name)
        )
        if not_requested is not None:
            states[not_requested] = COMMITTED
        axes, n_cells, n_blocks = len(panel.factors), len(panel.cells()), panel.n_blocks
        states = states if panel.trials is not None else states[..., None]
        of_blocks = np.empty((n_cells, n_blocks, len(panel.settings())), np.uint8)
        for k, setting in enumerate(panel.settings()):
            of_setting = states[(slice(None),) * axes + setting_index(panel, setting)].reshape(n_cells, -1, n_blocks)
            # after a crash, some positions of a setting may be committed and others absent
            is_mixed = (of_setting == UNWRITTEN).any(axis=1) & (of_setting != UNWRITTEN).any(axis=1)
            of_blocks[:, :, k] = np.where(is_mixed, STALE, of_setting.max(axis=1))
        return of_blocks

    def count(self, panel: str) -> dict[Status, int]:
        """Count the trials of a panel by status, over all its cells and settings."""
        counts, status = np.zeros(2**8, int), self.array(panel, "status")
        not_requested, spec = self._not_requested(panel, self.requested.get(panel)), self.spec["panels"][panel]
        for chunks, region in iterate_slabs(status):
            values = self._statuses(panel, region)
            if values is None:
                counts[Status.PENDING] += math.prod(part.stop - part.start for part in region)
            else:
                counts += np.bincount(values.ravel().view(np.uint8), minlength=counts.size)
            if not_requested is None:
                continue
            beyond = not_requested[chunks]
            if spec["trials"] is not None:
                n_trials = region[-1].stop - region[-1].start
                beyond = np.repeat(beyond, spec["block_trials"], axis=-1)[..., :n_trials]
            if values is not None:  # committed trials beyond, as after the loss of a record, keep their status
                beyond = beyond & (values == Status.PENDING)
            n_beyond = np.count_nonzero(beyond)
            counts[Status.PENDING] -= n_beyond
            counts[Status.NOT_ASKED_FOR] += n_beyond
        if not_requested is None:  # blocks of methods that do not apply are never pending evaluations
            n_known = max(0, self._inapplicable.get(panel, 0) - counts[Status.NOT_APPLICABLE])
            n_known = min(n_known, counts[Status.PENDING])
            counts[Status.PENDING] -= n_known
            counts[Status.NOT_APPLICABLE] += n_known
        return {status: int(counts[status]) for status in Status}

    def _statuses(self, panel: str, region: tuple[slice, ...]) -> np.ndarray | None:
        """Return the statuses of a region, or None if the region has no status chunk."""
        with self.reading():
            contents = self.encoded(panel, "status", region)
            if all(content is None for content in contents.values()):
                return None
            return self.chunks.decode(panel, "status", region, contents)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Convert damage to `UnreadableStoreError`, and other read errors to `StoreAccessError`."""
        try:
            with accessing(self.url):
                yield
        except DamagedChunkError as error:
            words = ("find", "verify", self.url) if self.is_compact else ("repair", "verify", self.url, "--repair")
            raise UnreadableStoreError(
                f"a chunk of the store {self.url} is damaged ({error}); {words[0]} it with: {command(*words[1:])}"
            ) from error


class _ReadAhead:
    """Reader of chunks that are in memory."""

    def __init__(self, contents: Mapping[str, bytes | None]) -> None:
        self._contents = contents

    def read_many(self, keys: Iterable[str]) -> dict[str, bytes | None]:
        """Return encoded chunks by key."""
        return {key: self._contents[key] for key in keys}


def _look(path: str | os.PathLike[str], session: str | None = None) -> tuple[Files, Root | None]:
    """Return the files at a location, and the root of their store, None for an empty location or a begun creation."""
    url = normalise_location(path)
    with accessing(url):
        files = open_files(url, session)
        if not is_local(url) and not exists_remotely(url):
            return files, None
        root = read_root(files)
        is_file = is_local(url) and Path(url).exists() and not Path(url).is_dir()
        if root is None and (is_file or any(name != STATE for name in files.names(""))):
            raise BadInputError(f"{path} exists but is not a result store; choose another path")
    return files, root


def open_complete(store: str | os.PathLike[str]) -> ResultStore:
    """Open a store, and require that its creation was finished."""
    opened, path = ResultStore.open(store), os.fspath(store)
    if not opened.complete:
        raise IncompleteStoreError(
            f"the creation of the store {path} was interrupted; finish it with: {command('resume', path)}"
        )
    return opened


def _require_writable_parent(url: str) -> None:
    """Raise BadInputError if a local location does not exist, and cannot be created."""
    folder = Path(url)
    if is_local(url) and not folder.exists():
        parent = next(parent for parent in folder.parents if parent.exists())
        if not parent.is_dir() or not os.access(parent, os.W_OK):
            raise BadInputError(f"the parent {parent} of the store must be a writable folder; choose another path")


def find_to_change(store: str | os.PathLike[str]) -> ResultStore | None:
    """Open a store that a session will change, or return None for a location at which one can be created."""
    existing = ResultStore.find(store)
    return None if existing is None else _require_changeable(existing)


def open_to_change(store: str | os.PathLike[str], *, damaged: bool = False) -> ResultStore:
    """Open a store that a session will change; `damaged` has the meaning of `ResultStore.open`."""
    return _require_changeable(ResultStore.open(store, damaged=damaged), damaged=damaged)


def _require_changeable(opened: ResultStore, *, damaged: bool = False) -> ResultStore:
    """Return a store if it is not compact and, unless `damaged`, has intact records of its sessions."""
    if opened.is_compact:
        raise BadInputError(
            f"the store {opened.url} is compact and can only be read; run, resume, extend or repair the store from "
            "which it was made, and write another compact store"
        )
    if not damaged:
        opened.requested  # noqa: B018 - raises if the records of the sessions are lost, before a session adds another one
    return opened
