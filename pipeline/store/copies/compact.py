"""Compact copies of complete stores: the same encoded chunks in a hundredth of the files, or fewer."""

import json
import os
from collections.abc import Callable, Mapping
from itertools import count

from pipeline.errors import BadInputError, StoreAccessError
from pipeline.store.codec.chunks import Chunks
from pipeline.store.codec.shards import iterate_shards, pack_shard, shard_root
from pipeline.store.copies.new_store import new_store, put_all
from pipeline.store.copies.sources import (
    chunks_to_copy,
    coordinate_chunks,
    refuse_copy,
    require_unchanged,
    variables_of,
)
from pipeline.store.files.locations import SESSIONS, normalise_location
from pipeline.store.layout.root import COMPACT_FORMATS, Root, seal_root
from pipeline.store.read import reading
from pipeline.store.result_store import ResultStore, open_complete
from pipeline.store.sessions.lease import require_idle
from pipeline.store.sessions.records import SESSION_COPIES, now


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
    if source.run_part is not None:
        raise BadInputError(f"the store {source.url} has share {source.run_part} of a run; merge all shares first")
    refuse_copy(source, url)
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

    with new_store(url, numbers[source], root.content, numbers) as (files, batch):
        for panel, name, shard, region in shards:
            contents = chunks_to_copy(source, panel, name, region)
            put_all(batch.put, {shard: pack_shard(sharded.array(panel, name), region, contents)})
            report()
        put_all(batch.put, _read_others(source))
        batch.finish()
        require_unchanged(numbers)
        copy = ResultStore(files, root)
        for panel, name, _, region in shards:
            _require_equal(source, copy, chunks_to_copy(source, panel, name, region))
            report()
        _require_equal(source, copy, _read_others(source))
    return ResultStore.open(url)


def _sharded_variables(source: ResultStore) -> list[tuple[str, str]]:
    """Return panel and name of each variable that a copy has in shards; one without dimensions is a single chunk."""
    return [(panel, name) for panel, name in variables_of(source) if source.array(panel, name).ndim]


def _read_others(source: ResultStore) -> dict[str, bytes | None]:
    """Read the files to copy unchanged: records of sessions, coordinates, and variables without dimensions."""
    records = [f"{SESSIONS}/{name}" for name in source.files.names(SESSIONS) if name.endswith(".json")]
    found = source.files.read_many([*records, SESSION_COPIES]) | coordinate_chunks(source)
    for panel, name in variables_of(source):
        if not source.array(panel, name).ndim:
            found |= chunks_to_copy(source, panel, name, ())
    return found


def _require_equal(source: ResultStore, copy: ResultStore, contents: Mapping[str, bytes | None]) -> None:
    """Raise `StoreAccessError` if a chunk or another file of a copy differs from the source."""
    with reading(copy):
        found = copy.reader.read_many(contents)
    for key, content in contents.items():
        if found[key] != content:
            raise StoreAccessError(f"{key} differs between the store {source.url} and its copy; run compact again")
