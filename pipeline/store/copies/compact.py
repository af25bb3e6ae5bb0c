"""Copies of finished stores: compact ones, and one store of all shares of a run.

A compact copy has the same encoded chunks in a hundredth of the files, or fewer. The store of a share has the spec,
shape and streams of the whole run; its root names the share, and the blocks of other shares are not asked for.
"""

import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any

from pipeline.blocks.evaluate import Status
from pipeline.errors import BadInputError, BusyStoreError, StoreAccessError, command
from pipeline.store.codec.chunk_digests import remove_checksum
from pipeline.store.codec.chunks import Chunks, Region
from pipeline.store.codec.regions import iterate_slabs
from pipeline.store.codec.shards import iterate_shards, pack_shard, shard_root
from pipeline.store.files.access import Files, open_files
from pipeline.store.files.local_files import LocalFiles
from pipeline.store.files.locations import ROOT, SESSIONS, exists_remotely, is_local, normalise_location
from pipeline.store.layout.root import COMPACT_FORMATS, COPY, Root, metadata_files, seal_root
from pipeline.store.result_store import ResultStore, open_complete
from pipeline.store.scan.requested import SHARE, Share
from pipeline.store.sessions.lease import SESSION_COPIES, is_lost, last_number, record_files, require_idle
from pipeline.store.sessions.provenance import now

_EQUAL_IN_SHARES = {"spec_sha256": "spec", "study_code_sha256": "study file", "store_format": "store format"}
"""Attributes of the root that are equal in all shares of a run, in words."""


def compact(
    store: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    *,
    progress: Callable[[int, int], None] | None = None,
) -> ResultStore:
    """Write a compact copy of a complete store, and compare every chunk with the original.

    Parameters
    ----------
    store, destination : path
        Complete store, which is only read, and path or URL of the copy, at which nothing may exist.
    progress : callable, optional
        Function called with the number of shards that were written or compared, and their final number.

    Returns
    -------
    ResultStore
        The copy. Plain xarray reads it, as do `open_results` and `verify`; `run`, `resume` and `extend` reject it.

    Raises
    ------
    BadInputError
        If the store is incomplete or compact, a session writes to it before the comparison has ended, or the
        destination exists, is part of the store, or cannot be written.
    UnreadableStoreError, StoreAccessError
        If the store is damaged or cannot be read, or the copy differs from it.

    Notes
    -----
    A local copy is written to a hidden folder next to the destination, which is renamed after the comparison; in an
    object store, the root is written last. After an error, the written files are removed; those of a killed process are
    removed by the next local copy to the same destination.

    Examples
    --------
    >>> import tempfile
    >>> from pipeline import run
    >>> from studies import STUDIES
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = run(STUDIES["gibbs-traces"], f"{folder}/s.zarr", panels=["binomial"])
    ...     compact(store, f"{folder}/compact.zarr").is_compact
    True
    """
    source, url = open_complete(store), normalise_location(destination)
    if source.is_compact:
        raise BadInputError(f"the store {source.url} is compact already; copy its files to {url}")
    if source.share is not None:
        raise BadInputError(f"the store {source.url} has share {source.share} of a run; merge all shares first")
    _refuse_copy(source, url)
    numbers = {source: require_idle(source.files)}
    arrays = [source.array(panel, name) for panel, name in _sharded_variables(source)]
    document = shard_root(json.loads(source.root.content), arrays)
    compact_format = COMPACT_FORMATS[source.attributes["store_format"]]
    document["attributes"] = {**source.attributes, "store_format": compact_format, "compacted": now()}
    root = Root(seal_root(json.dumps(document).encode()))
    sharded = Chunks(root.content)
    shards = [
        (panel, name, *shard)
        for panel, name in _sharded_variables(source)
        for shard in iterate_shards(sharded.array(panel, name))
    ]
    n_done = count(1)

    def report() -> None:
        if progress is not None:
            progress(next(n_done), 2 * len(shards))

    with _new_store(url, numbers[source], root.content, numbers) as (files, batch):
        for panel, name, shard, region in shards:
            contents = _committed_chunks(source, panel, name, region)
            _put_all(batch.put, {shard: pack_shard(sharded.array(panel, name), region, contents)})
            report()
        _put_all(batch.put, _read_others(source))
        batch.finish()
        _require_unchanged(numbers)
        copy = ResultStore(files, root)
        for panel, name, _, region in shards:
            _require_equal(source, copy, _committed_chunks(source, panel, name, region))
            report()
        _require_equal(source, copy, _read_others(source))
    return ResultStore.open(url)


def merge(stores: Sequence[str | os.PathLike[str]], destination: str | os.PathLike[str]) -> ResultStore:
    """Join the stores of all shares of a run into one store, whose arrays are those of the undivided run.

    Parameters
    ----------
    stores : sequence of path
        Stores of the shares in any order, which are only read.
    destination : path
        Path or URL of the joined store, at which nothing may exist. It has the records of all sessions, and can be
        extended like any other.

    Raises
    ------
    BadInputError
        If a store is no share, shares belong to different runs or code, overlap, are missing or incomplete, a session
        writes to one of them, or the destination exists. Nothing has been written in this case.
    UnreadableStoreError
        If a share is damaged; nothing remains at the destination.

    Examples
    --------
    >>> import tempfile
    >>> from pipeline import run
    >>> from studies import STUDIES
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     study, how = STUDIES["gibbs-traces"], {"panels": ["binomial"]}
    ...     parts = [run(study, f"{folder}/{k}.zarr", share=f"{k}/2", **how) for k in (1, 2)]
    ...     merge(parts, f"{folder}/s.zarr").share is None
    True
    """
    if not stores:
        raise BadInputError("merge requires the stores of all shares, got none")
    sources, url = [open_complete(store) for store in stores], normalise_location(destination)
    for source in sources:
        _refuse_copy(source, url)
    _refuse_other_runs(sources)
    numbers = {source: require_idle(source.files) for source in sources}
    first = sources[0]
    attributes = {name: value for name, value in first.attributes.items() if name != SHARE}
    root = seal_root(json.dumps({**json.loads(first.root.content), "attributes": attributes}).encode())
    records = [{**one, SHARE: str(source.share)} for source in sources for one in source.sessions if not is_lost(one)]
    with _new_store(url, len(records), root, numbers) as (_, batch):
        for panel, name in _variables(first):
            _join(sources, panel, name, batch.put)
        _put_all(batch.put, _coordinate_chunks(first) | record_files(records))
    return ResultStore.open(url)


def _refuse_other_runs(sources: Sequence[ResultStore]) -> None:
    """Raise `BadInputError` unless the stores are all shares of one run."""
    shares: dict[Share, ResultStore] = {}
    first = sources[0]
    for source in sources:
        if source.share is None:
            raise BadInputError(f"{source.url} is not a share; merge takes the stores of run --share K/M")
        for name, what in _EQUAL_IN_SHARES.items():
            if source.attributes.get(name) != first.attributes.get(name):
                raise BadInputError(
                    f"the shares {first.url} and {source.url} are of different runs: their {what} differs; compute "
                    "both with one study and one version of dpstudies"
                )
        if first.share is not None and source.share.count != first.share.count:
            raise BadInputError(
                f"shares of one run have one count, got {first.share} in {first.url} and {source.share} in {source.url}"
            )
        if source.share in shares:
            raise BadInputError(
                f"shares must not overlap, got {source.share} in both {shares[source.share].url} and {source.url}"
            )
        shares[source.share] = source
    count = next(iter(shares)).count
    missing = [str(share) for k in range(count) if (share := Share(k + 1, count)) not in shares]
    if missing:
        more = f" and {len(missing) - 3:,} more" if len(missing) > 3 else ""
        raise BadInputError(f"all {count:,} shares are required, but {', '.join(missing[:3])}{more} are missing")


def _require_unchanged(numbers: Mapping[ResultStore, int]) -> None:
    """Raise `BusyStoreError` if a session has begun after the one with a number, by store."""
    for source, number in numbers.items():
        if last_number(source.files) != number:
            raise BusyStoreError(
                f"another session began on the store {source.url} meanwhile; repeat the command when it has ended"
            )


def _refuse_copy(source: ResultStore, url: str) -> None:
    """Raise `BadInputError` for a store with pending trials, or a location to which no copy of it can be written."""
    inner, outer = (os.path.realpath(one) if is_local(one) else one for one in (url, source.url))
    if f"{inner}/".startswith(f"{outer}/"):
        raise BadInputError(f"the copy must be outside of the store {source.url}, got {url}; choose another path")
    if ResultStore.exists(url) or (os.path.lexists(url) if is_local(url) else exists_remotely(url)):
        raise BadInputError(f"{url} exists; choose a path for the copy at which nothing exists")
    n_pending = sum(source.count(panel)[Status.PENDING] for panel in source.spec["panels"])
    if n_pending:
        raise BadInputError(
            f"a store must be complete to be copied, got {n_pending:,} pending trials in {source.url}; compute them "
            f"with: {command('resume', source.url)}"
        )


def _join(sources: Sequence[ResultStore], panel: str, name: str, put: Callable[[str, bytes], None]) -> None:
    """Copy the committed chunks of a variable; shares may have the same per-cell chunk, which must be equal."""
    for _, region in iterate_slabs(sources[0].array(panel, name)):
        found: dict[str, bytes] = {}
        for source in sources:
            for key, content in _committed_chunks(source, panel, name, region).items():
                if content is not None and found.setdefault(key, content) != content:
                    raise StoreAccessError(
                        f"{key} differs between the shares {sources[0].url} and {source.url}, which were computed by "
                        "different code; compute them again with one version"
                    )
        _put_all(put, found)


@contextmanager
def _new_store(
    url: str, n_sessions: int, root: bytes, numbers: Mapping[ResultStore, int]
) -> Iterator[tuple[Files, Any]]:
    """Yield the files of a store and a batch of writes; the store appears at `url` if the context succeeds."""
    place, lock = url, -1
    try:
        if is_local(url):
            folder, name = os.path.split(url)
            _remove_leftovers(folder, f".{name}.")
            place = os.path.join(folder, f".{name}.{uuid.uuid4().hex}.partial")
        # in an object store, the record of a later session would supersede this one
        files = open_files(place, f"{n_sessions:06}-copy")
        try:
            files.require_fencing()
            files.begin()
            if is_local(url):
                lock = _lock(place)
            batch = files.batch()
            _put_all(batch.put, {**metadata_files(root), COPY: root})
            yield files, batch
            _require_unchanged(numbers)
            batch.finish()
            files.put(ROOT, root)  # last
            files.end()
            if place != url:
                os.rename(place, url)
                LocalFiles(url).sync(os.path.dirname(url))
        except BaseException:
            files.destroy()
            raise
        finally:
            if lock >= 0:
                os.close(lock)
    except OSError as error:
        raise BadInputError(f"cannot write to {url}: {error.strerror or error}; choose another path") from error


def _remove_leftovers(folder: str, prefix: str) -> None:
    """Remove the partial copies of killed processes; a running process has locked its folder."""
    for name in os.listdir(folder):
        if name.startswith(prefix) and name.endswith(".partial"):
            path = os.path.join(folder, name)
            with suppress(OSError):  # a link, or the folder of a running process
                lock = _lock(path)
                shutil.rmtree(path, ignore_errors=True)
                os.close(lock)


def _lock(folder: str) -> int:
    """Lock a folder until the returned descriptor is closed; raise OSError if another process has locked it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _put_all(put: Callable[[str, bytes], None], contents: Mapping[str, bytes | None]) -> None:
    """Write all files that have a content."""
    for key, content in contents.items():
        if content is not None:
            put(key, content)


def _committed_chunks(source: ResultStore, panel: str, name: str, region: Region) -> dict[str, bytes | None]:
    """Return the encoded chunks of a region as their blocks committed them, statuses with their digests."""
    with source.reading():
        if name != "status":
            return source.encoded(panel, name, region)
        contents = source.files.read_many(source.chunks.keys(panel, name, region))
        source.chunk_digests.statuses(contents)
    return contents


def _sharded_variables(source: ResultStore) -> list[tuple[str, str]]:
    """Return panel and name of each variable that a copy has in shards; one without dimensions is a single chunk."""
    return [(panel, name) for panel, name in _variables(source) if source.array(panel, name).ndim]


def _variables(source: ResultStore) -> list[tuple[str, str]]:
    return [(panel, name) for panel, names in source.chunk_digests.variables.items() for name in ("status", *names)]


def _read_others(source: ResultStore) -> dict[str, bytes | None]:
    """Read the files to copy unchanged: records of sessions, coordinates, and variables without dimensions."""
    records = [f"{SESSIONS}/{name}" for name in source.files.names(SESSIONS) if name.endswith(".json")]
    found = source.files.read_many([*records, SESSION_COPIES]) | _coordinate_chunks(source)
    for panel, name in _variables(source):
        if not source.array(panel, name).ndim:
            found |= _committed_chunks(source, panel, name, ())
    return found


def _coordinate_chunks(source: ResultStore) -> dict[str, bytes | None]:
    """Read the encoded chunks of all coordinates of a store, and check them."""
    found: dict[str, bytes | None] = {}
    for path, document in source.metadata.items():
        panel, _, name = path.partition("/")
        if document["node_type"] == "array" and name not in ("status", *source.chunk_digests.variables[panel]):
            region = (slice(None),) * len(document["shape"])
            contents = source.files.read_many(source.chunks.keys(panel, name, region))
            with source.reading():
                for key, content in contents.items():
                    remove_checksum(content or b"", key)
            found |= contents
    return found


def _require_equal(source: ResultStore, copy: ResultStore, contents: Mapping[str, bytes | None]) -> None:
    """Raise `StoreAccessError` if a chunk or another file of a copy differs from the source."""
    with copy.reading():
        found = copy.reader.read_many(contents)
    for key, content in contents.items():
        if found[key] != content:
            raise StoreAccessError(f"{key} differs between the store {source.url} and its copy; run compact again")
