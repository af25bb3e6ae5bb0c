"""Result store: one Zarr v3 group per panel, readable with xarray.

* A chunk contains one block of one setting; all per-trial variables have the same chunks. Every block of a cell
  computes the per-cell values. The first block with an ok trial writes them, and a later one only if they differ.
* The chunk of ``status`` is written last, once all other chunks of the block are durable: it commits the block and has
  their digests (`pipeline.store.codec.chunk_digests`). Only chunks with these digests are read. A block without a
  status chunk is pending. Before a block is replaced, its status also gets the digests of the new chunks.
* Only one session writes at a time, and a superseded session cannot write (`pipeline.store.sessions.lease`). The root
  changes only when this session creates, extends (also between the rounds of a run until a target) or repairs the
  store: its copy is written first, then new files, then the root itself; a repair rewrites that of root and
  copy which is damaged. `compact` and `merge` write it once, last.
* A store is a local folder, or the URL of an object store. Credentials and endpoint are read only from the environment.
"""

import json
import os
import shlex
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import zarr

from pipeline.declare.study import Study
from pipeline.errors import BadInputError, IncompleteStoreError, UnreadableStoreError, command
from pipeline.notebooks import html_table
from pipeline.store.codec.chunk_digests import ChunkDigests
from pipeline.store.codec.chunks import Chunks
from pipeline.store.codec.shards import ShardReader
from pipeline.store.files.access import Files, accessing, open_files
from pipeline.store.files.locations import COPYING, ROOT, STATE, exists_remotely, is_local, is_probe, normalise_location
from pipeline.store.layout.root import COMPACT_FORMATS, Root, has_labels, read_root
from pipeline.store.scan.requested import RequestedTrials, requested_by_panel
from pipeline.store.scan.run_part import RUN_PART, RunPart
from pipeline.store.sessions.records import sessions_of


class ChunkReader(Protocol):
    """Reader of encoded chunks by key."""

    def read_many(self, keys: Iterable[str]) -> dict[str, bytes | None]:
        """Return encoded chunks by key, None for absent ones."""


class ResultStore:
    """Opened store of results: its files, which belong to a session if one was named, and what its root states."""

    def __init__(self, files: Files, root: Root, *, damaged: bool = False) -> None:
        self.root, self.files, self.url, self._accepts_damage = root, files, files.url, damaged
        self.reader: ChunkReader = ShardReader(files, self.chunks) if self.is_compact else files

    def __repr__(self) -> str:
        """Return the class name and the URL."""
        return f"ResultStore({self.url!r})"

    def _repr_html_(self) -> str:
        """Return a table of the stored panels, for notebooks."""
        rows = [
            (
                name,
                panel["trials"] or "",
                len(panel["methods"]),
                ", ".join((*panel["factors"], *panel["method_factors"])),
            )
            for name, panel in self.spec["panels"].items()
        ]
        title = f"Results of the study {self.spec['study']} in {self.url}"
        return html_table(title, ("panel", "trials per cell", "methods", "factors"), rows)

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
        repair = None if self._accepts_damage else self._repair_command
        return requested_by_panel(self.files, self.spec["panels"], repair)

    @property
    def complete(self) -> bool:
        """True if the creation of the store was finished, that is, if the root exists."""
        return self.root.is_in_place

    @cached_property
    def chunks(self) -> Chunks:
        """Encoder and decoder of chunks."""
        return Chunks(self.root.content)

    @cached_property
    def chunk_digests(self) -> ChunkDigests:
        """Digests in the chunks of statuses."""
        return ChunkDigests.of(self.spec, is_labelled=has_labels(self.attributes))

    @cached_property
    def run_part(self) -> RunPart | None:
        """Part of the blocks of a run that the store asks for, or None for all of them."""
        return RunPart.parse(self.attributes[RUN_PART]) if RUN_PART in self.attributes else None

    @property
    def is_compact(self) -> bool:
        """True for a store that `pipeline.compact` has written, which can only be read."""
        return self.attributes["store_format"] in COMPACT_FORMATS.values()

    def _repair_command(self) -> str:
        """Return the command that replaces damaged files other than chunks."""
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
            raise UnreadableStoreError(f"{files.url}: {root.problem}; restore it with: {opened._repair_command()}")
        return opened

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """Metadata of all groups and arrays by path, from the root."""
        return json.loads(self.root.content)["consolidated_metadata"]["metadata"]

    def array(self, panel: str, name: str) -> zarr.Array:
        """Return a variable's array, which has only metadata; `pipeline.store.read` reads its values."""
        return self.chunks.array(panel, name)

    def with_reader(self, reader: ChunkReader) -> "ResultStore":
        """Return a view of the store whose chunks come from another reader."""
        view = object.__new__(type(self))
        view.__dict__ |= self.__dict__ | {"reader": reader}
        return view


def _look(path: str | os.PathLike[str], session: str | None = None) -> tuple[Files, Root | None]:
    """Return the files at a location, and the root of their store, None for an empty location or a begun creation."""
    url = normalise_location(path)
    with accessing(url):
        files = open_files(url, session)
        if not is_local(url) and not exists_remotely(url):
            return files, None
        root = read_root(files)
        if not (is_local(url) or (root is not None and root.is_in_place)) and files.read(COPYING) is not None:
            raise BadInputError(
                f"a copy of a store is being written to {path}, or was stopped; wait until it ends, or choose another "
                "path, or remove its objects"
            )
        is_file = is_local(url) and Path(url).exists() and not Path(url).is_dir()
        if root is None and (is_file or any(name != STATE and not is_probe(name) for name in files.names(""))):
            raise BadInputError(f"{path} exists but is not a result store; choose another path")
    return files, root


def open_complete(store: str | os.PathLike[str]) -> ResultStore:
    """Open a store, and require that its creation was finished."""
    opened = ResultStore.open(store)
    require_complete(opened, store)
    return opened


def require_complete(opened: ResultStore, store: str | os.PathLike[str]) -> None:
    """Raise `IncompleteStoreError`, with the path that the user named, if the creation of a store was interrupted."""
    path = os.fspath(store)
    if not opened.complete:
        raise IncompleteStoreError(
            f"the creation of the store {path} was interrupted; finish it with: {command('resume', path)}"
        )


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
