"""The result store: one Zarr v3 group per panel, which any xarray user can open, and the rules that keep it whole.

* A chunk is one block of one setting, the same for all variables per trial. A value per cell is computed by every
  block of the cell, written by the first with a trial that is ok, and not replaced.
* The chunk of ``status`` is written last, once all that it stands for is durable: it commits the block. A block without
  it is pending. To compute a block again, its status is removed first.
* Only one session writes at a time, and a superseded one cannot (`pipeline.stores.sessions`). The root changes by
  creation and growth only: its copy first, then new files, then the root itself.
* A store is a local folder, or an object store by its URL; credentials and endpoint come from the environment alone.
"""

import json
import math
import os
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from pipeline.blocks.evaluate import Block, Outcome, Status
from pipeline.declare.panel import Panel, Setting
from pipeline.declare.streams import canonical_json, sha256
from pipeline.declare.study import Study
from pipeline.errors import BadInputError, DamagedChunkError, StoreAccessError, UnreadableStoreError, command
from pipeline.faults import explain, is_expired, is_transient
from pipeline.stores.chunks import Chunks
from pipeline.stores.commits import Commit, Planned
from pipeline.stores.files import Files, open_files
from pipeline.stores.places import ROOT, STATE, exists_remotely, is_local, normal_place
from pipeline.stores.regions import iterate_slabs, positions, region_of, setting_index
from pipeline.stores.root import COPY, STORE_FORMAT, Root, read_root, seal_root
from pipeline.stores.sessions import Session, sessions_of
from pipeline.stores.template import make_template

COMMITTED, ABSENT, STALE = 0, 1, 2
"""States of a block: committed; pending without a status chunk; pending with one, which must be removed first."""


class ResultStore:
    """A store of results, read by anyone and written by the workers of one session.

    Use `open` to read, `create` to begin one. `files` are those of a session where the store is written.

    Attributes
    ----------
    url : str
        Absolute path of the folder, or URL.
    files : Files
        Its files by key.
    chunks : Chunks
        Its arrays.
    problem : str
        Damage of the root or its copy, found on opening; empty if there is none.
    """

    def __init__(self, files: Files, root: Root) -> None:
        self.url = files.url
        self.files = files
        self.problem = root.problem
        self.chunks = Chunks(root.content)
        self._root = root
        self._present: set[str] = set()

    def __repr__(self) -> str:
        """Return where it is."""
        return f"ResultStore({self.url!r})"

    @cached_property
    def attributes(self) -> dict[str, Any]:
        """The root's attributes, as stored."""
        return self._root.attributes

    @property
    def root_content(self) -> bytes:
        """The root that passed its check, in place or as a copy."""
        return self._root.content

    @property
    def spec(self) -> dict[str, Any]:
        """All that decides the numbers and their layout."""
        return json.loads(self.attributes["spec"])

    @property
    def sessions(self) -> list[dict[str, Any]]:
        """The records of the sessions that wrote to it, the first one first; read anew at each call."""
        return sessions_of(self.files)

    @property
    def complete(self) -> bool:
        """Whether its creation was finished: the root is in place."""
        return self._root.is_in_place

    def holds(self, study: Study) -> bool:
        """Return whether it has room for all of a configured study: it is complete, and of the same spec."""
        return self.complete and self.spec == study.spec()

    @classmethod
    def exists(cls, path: str | os.PathLike[str]) -> bool:
        """Return whether there is a store at the path, perhaps an unfinished one.

        Raises
        ------
        BadInputError
            If there is something else, or nothing can be created there.
        """
        url = normal_place(path)
        with accessing(url):
            files = open_files(url)
            if not is_local(url) and not exists_remotely(url):
                return False
            if read_root(files) is not None:
                return True
            if not is_local(url):
                if any(name != STATE for name in files.names("")):
                    raise BadInputError(f"{path} holds something that is not a result store; choose another path")
                return False
        place = Path(url)
        if not place.exists():
            parent = next(parent for parent in place.parents if parent.exists())
            if not parent.is_dir() or not os.access(parent, os.W_OK):
                raise BadInputError(f"the store's folder {parent} must be a folder that can be written; choose another")
        elif not place.is_dir() or any(entry.name != STATE for entry in place.iterdir()):
            raise BadInputError(f"{path} holds something that is not a result store; choose another path")
        return False

    @classmethod
    def open(cls, path: str | os.PathLike[str], session: str | None = None, *, damaged: bool = False) -> "ResultStore":
        """Open a store that exists.

        Parameters
        ----------
        path : path
            The store.
        session : str, optional
            Identifier of the session for which this process writes.
        damaged : bool
            True to open a store whose root is damaged from the intact copy, as verification does.

        Raises
        ------
        BadInputError
            If there is none, or something else, or a store of another format.
        UnreadableStoreError
            If its root is damaged.
        StoreAccessError
            If it cannot be read for a reason that is not damage.
        """
        url = normal_place(path)
        with accessing(url):
            files = open_files(url, session)
            root = read_root(files) if is_local(url) or exists_remotely(url) else None
            if root is None:
                if is_local(url) and Path(url).exists() and not _is_begun(Path(url)):
                    raise BadInputError(f"{path} holds something that is not a result store; choose another path")
                raise BadInputError(
                    f"no result store at {path}; run a study with --store {shlex.quote(str(path))} first"
                )
        if root.problem and root.content != files.read(ROOT) and not damaged:
            raise UnreadableStoreError(f"{url}: {root.problem}; restore it with: {command('verify', url, '--repair')}")
        return cls(files, root)

    @classmethod
    def create(cls, session: Session, study: Study, attributes: Mapping[str, Any]) -> "ResultStore":
        """Write the template of a study: the root's copy, the files of all arrays, and last the root.

        Also finishes a creation that was interrupted; no block is written before the root is in place.

        Raises
        ------
        BadInputError
            If an unfinished store of another spec is there.
        """
        files = session.files
        found = read_root(files)
        if found is not None:
            if found.attributes["spec_sha256"] != _head(study)["spec_sha256"]:
                raise BadInputError(f"{files.url} holds an unfinished store of another spec; choose another path")
            attributes = found.attributes  # those of the session that began it
        return cls._write_template(files, study, {**attributes, **_head(study)})

    def grow(self, session: Session, study: Study) -> "ResultStore":
        """Make room for more trials and values; what is stored stays where it is.

        Parameters
        ----------
        session : Session
            The session that writes.
        study : Study
            The store's study, with new values behind those that are stored, or more trials.

        Returns
        -------
        ResultStore
            The store as it is now. Until its root is written, in one step, readers see the old one.
        """
        return self._write_template(session.files, study, {**self.attributes, **_head(study)})

    @classmethod
    def _write_template(cls, files: Files, study: Study, attributes: Mapping[str, Any]) -> "ResultStore":
        template = make_template(study, attributes)
        root = seal_root(template.pop(ROOT))
        batch = files.batch(files.versions([COPY, ROOT]))
        batch.put_last(COPY, root)
        batch.finish()
        files.flush([COPY])  # no other file without it, even after a power loss
        for key, content in template.items():
            batch.put(key, content)
        batch.put_last(ROOT, root)
        batch.finish()
        return cls(files, Root(root))

    def array(self, panel: str, name: str) -> zarr.Array:
        """Return the metadata of a variable's array; its values are read by `read` and `open_results`."""
        return self.chunks.array(panel, name)

    @contextmanager
    def commit(self, planned: Sequence[Planned]) -> Iterator[Commit]:
        """Commit the blocks that are computed inside the context, all at its end; none if it raises.

        Parameters
        ----------
        planned : sequence of Planned
            The blocks. Status chunks that must be removed are removed at once.
        """
        commit = Commit(self.files, self.chunks, self._present, planned)
        try:
            yield commit
        except BaseException:
            commit.discard()
            raise
        commit.finish()

    def read(self, panel: Panel, block: Block, setting: Setting) -> Outcome:
        """Read what is stored of one setting on some trials, which need not be a whole block.

        Measures that are not per trial are stored as soon as one trial of the setting is ok.

        Raises
        ------
        UnreadableStoreError
            If a chunk is damaged.
        """
        position = next(positions(panel, block.cell, setting))

        def stored(name: str, per_trial: bool, n_dims: int) -> np.ndarray:
            region = region_of(panel, position, block.trials if per_trial else None, n_dims)
            with self.reading():
                contents = self.files.read_many(self.chunks.keys(panel.name, name, region))
                values = self.chunks.decode(panel.name, name, region, contents)
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
            values = self._statuses(panel.name, region)
            if values is None:
                continue
            start = np.array([part.start for part in region])
            for place in reversed(start + np.argwhere(values == Status.OK)):
                cell = np.ravel_multi_index(place[:n_axes], status.shape[:n_axes]) if n_axes else 0
                trial = int(place[-1]) if panel.trials is not None else 0
                yield Block(panel.name, int(cell), range(trial, trial + 1))

    def scan(self, panel: Panel, retry: Collection[Status] = ()) -> np.ndarray:
        """Return the state of every block and setting.

        Parameters
        ----------
        panel : Panel
            The panel.
        retry : collection of Status
            Statuses whose trials are to be computed again.

        Returns
        -------
        ndarray of uint8, shape (cell, block, setting)
            `COMMITTED`, `ABSENT` or `STALE`; blocks of `Panel.block_trials` trials in order.

        Raises
        ------
        UnreadableStoreError
            If a status chunk is damaged.
        """
        status = self.array(panel.name, "status")
        states = np.full(status.cdata_shape, ABSENT, np.uint8)
        for chunks, region in iterate_slabs(status):
            values = self._statuses(panel.name, region)
            if values is None:
                continue
            wanted, is_written = np.isin(values, [Status.PENDING, *retry]), values != Status.PENDING
            if panel.trials is not None:
                starts = np.arange(0, wanted.shape[-1], panel.block_trials)
                wanted = np.logical_or.reduceat(wanted, starts, axis=-1)
                is_written = np.logical_or.reduceat(is_written, starts, axis=-1)
            states[chunks] = np.where(wanted, np.where(is_written, STALE, ABSENT), COMMITTED)
        axes, n_cells, n_blocks = len(panel.factors), len(panel.cells()), -(-panel.n_trials // panel.block_trials)
        states = states if panel.trials is not None else states[..., None]
        found = np.empty((n_cells, n_blocks, len(panel.settings())), np.uint8)
        for k, setting in enumerate(panel.settings()):
            of_setting = states[(slice(None),) * axes + setting_index(panel, setting)].reshape(n_cells, -1, n_blocks)
            # a position may be absent beside committed ones, after a crash between the two
            is_mixed = (of_setting == ABSENT).any(axis=1) & (of_setting != ABSENT).any(axis=1)
            found[:, :, k] = np.where(is_mixed, STALE, of_setting.max(axis=1))
        return found

    def pending(self, panel: Panel, retry: Collection[Status] = ()) -> np.ndarray:
        """Return which blocks and settings are pending or to be computed again; see `scan`."""
        return self.scan(panel, retry) != COMMITTED

    def count(self, panel: str) -> dict[Status, int]:
        """Count the trials of a panel by status, over all its cells and settings.

        Parts of the statuses that have no chunk yet count as pending, and are not read.

        Raises
        ------
        UnreadableStoreError
            If a status chunk is damaged.
        """
        counts = np.zeros(2**8, int)
        for _, region in iterate_slabs(self.array(panel, "status")):
            values = self._statuses(panel, region)
            if values is None:
                counts[Status.PENDING] += math.prod(part.stop - part.start for part in region)
            else:
                counts += np.bincount(values.ravel().view(np.uint8), minlength=counts.size)
        return {status: int(counts[status]) for status in Status}

    def _statuses(self, panel: str, region: tuple[slice, ...]) -> np.ndarray | None:
        """Return statuses; None where no chunk of the region exists."""
        with self.reading():
            contents = self.files.read_many(self.chunks.keys(panel, "status", region))
            if all(content is None for content in contents.values()):
                return None
            return self.chunks.decode(panel, "status", region, contents)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Raise `UnreadableStoreError` for damage, and `StoreAccessError` for what else prevents reading."""
        try:
            with accessing(self.url):
                yield
        except DamagedChunkError as error:
            raise UnreadableStoreError(
                f"a chunk of the store {self.url} is damaged ({error}); find it with: {command('verify', self.url)}"
            ) from error


@contextmanager
def accessing(url: str) -> Iterator[None]:
    """Raise `StoreAccessError` for errors of the file system or the network, which are no damage."""
    try:
        yield
    except BadInputError:  # such as an address at which nothing answers
        raise
    except Exception as error:
        if not (isinstance(error, OSError) or is_transient(error) or is_expired(error)):
            raise
        raise StoreAccessError(f"cannot read the store {url}: {explain(error)}; nothing was changed") from error


def _is_begun(folder: Path) -> bool:
    """Return whether a folder holds nothing, or only what a session leaves before it writes the root."""
    return folder.is_dir() and all(entry.name == STATE for entry in folder.iterdir())


def _head(study: Study) -> dict[str, Any]:
    """Return the root's attributes that a study decides."""
    spec = study.spec()
    return {
        "title": study.title,
        "study": study.name,
        "aim": study.aim,
        "seed": study.seed,
        "store_format": STORE_FORMAT,
        "spec": json.dumps(spec),
        "spec_sha256": sha256(canonical_json(spec)),
    }
