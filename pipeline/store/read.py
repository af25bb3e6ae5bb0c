"""Values of a store: the chunks that blocks have committed, as arrays and outcomes.

A chunk is read only if the status of its block has its digest; see `pipeline.store.codec.chunk_digests`.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from pipeline.blocks.evaluate import Block, Outcome, Status
from pipeline.declare.panel import Panel, Setting
from pipeline.errors import DamagedChunkError, UnreadableStoreError, command
from pipeline.store.codec.chunk_digests import ABSENT, digest, remove_checksum
from pipeline.store.codec.chunks import Region
from pipeline.store.codec.error_texts import without_rerun
from pipeline.store.codec.regions import SLAB_CHUNKS, positions, region_of
from pipeline.store.files.access import accessing
from pipeline.store.result_store import ResultStore

_MOST_READS = 10  # number of reads of chunks that are being replaced


def read_outcome(store: ResultStore, panel: Panel, block: Block, setting: Setting) -> Outcome:
    """Return the stored outcome of one setting on some trials; per-cell measures are missing until a trial is ok."""
    position = next(positions(panel, block.cell, setting))
    values = {name: read_at(store, panel, position, block.trials, name) for name in panel.variables}
    status, error = (values.pop(name).reshape(-1) for name in ("status", "error"))
    return Outcome(values, status, np.array([without_rerun(str(text)) for text in error], object))


def read_at(store: ResultStore, panel: Panel, position: tuple[int, ...], trials: range, name: str) -> np.ndarray:
    r"""Return a variable at one array position, shape (trial, \*outputs), without trials if it has none.

    Measures have their declared dtype, with zero for missing integers and booleans.
    """
    region = region_of(panel, position, trials, name)
    values = read_values(store, panel.name, name, region, slice(trials.start, trials.stop))
    if measure := store.spec["panels"][panel.name]["measures"].get(name):
        values = store.chunks.as_declared(panel.name, name, values, measure["dtype"])
    return values.reshape(values.shape[len(position) :])


def read_values(
    store: ResultStore, panel: str, name: str, region: Region | None = None, trials: slice = slice(None)
) -> np.ndarray:
    """Return the committed values of a variable as stored, per-cell ones as committed by the blocks of `trials`."""
    region = region or tuple(slice(0, size) for size in store.array(panel, name).shape)
    with reading(store):
        return store.chunks.decode(panel, name, region, committed_chunks(store, panel, name, region, trials))


def read_numbers(store: ResultStore, panel: str, name: str, region: Region | None = None) -> np.ndarray:
    """Return committed values of a measure as float64, with NaN where it is missing or the status is not ok."""
    array, status = store.array(panel, name), store.array(panel, "status")
    region = region or tuple(slice(0, size) for size in array.shape)
    with reading(store):
        contents = committed_chunks(store, panel, name, region)
        values = store.chunks.decode(panel, name, region, contents)
    numbers = values.astype(float)
    numbers[store.chunks.find_missing(panel, name, values)] = np.nan
    dims, of_status = (variable.metadata.dimension_names or () for variable in (array, status))  # type: ignore[union-attr]
    if dims[: status.ndim] == of_status:  # a killed command may leave numbers of trials that are not ok
        numbers[read_values(store, panel, "status", region[: status.ndim]) != Status.OK] = np.nan
    else:  # one chunk per cell and setting, which no block has committed if no trial is ok
        is_absent = [contents[key] is None for key in store.chunks.keys(panel, name, region)]
        numbers[np.reshape(is_absent, numbers.shape[: status.ndim - 1])] = np.nan
    return numbers


def read_statuses(store: ResultStore, panel: str, region: Region) -> np.ndarray | None:
    """Return the statuses of a region, PENDING where a status chunk is absent; None if all are absent."""
    with reading(store):
        contents = committed_chunks(store, panel, "status", region)
        if all(content is None for content in contents.values()):
            return None
        return store.chunks.decode(panel, "status", region, contents)


def committed_chunks(
    store: ResultStore, panel: str, name: str, region: Region, trials: slice = slice(None)
) -> dict[str, bytes | None]:
    """Return the chunks of a region by key, None if no block has committed one, statuses without digests."""
    keys, status = store.chunks.keys(panel, name, region), store.array(panel, "status")
    if name == "status":
        return store.chunk_digests.statuses(store.reader.read_many(keys))
    has_trials = [
        "trial" in (variable.metadata.dimension_names or ())  # type: ignore[union-attr]
        for variable in (status, store.array(panel, name))
    ]
    owners = region[: status.ndim] if has_trials[0] == has_trials[1] else (*region[: status.ndim - 1], trials)
    for _ in range(_MOST_READS):
        allowed = _allowed_digests(store, panel, name, owners, len(keys))
        wanted = [key for key, digests in zip(keys, allowed, strict=True) if digests - {ABSENT}]
        contents = dict.fromkeys(keys) | store.reader.read_many(wanted)
        damaged = [key for key, digests in zip(keys, allowed, strict=True) if digest(contents[key]) not in digests]
        if not damaged or allowed == _allowed_digests(store, panel, name, owners, len(keys)):
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


def _allowed_digests(store: ResultStore, panel: str, name: str, owners: Region, n_keys: int) -> list[set[bytes]]:
    """Return the digests that the statuses of a region allow for each of the chunks which they commit."""
    keys = store.chunks.keys(panel, "status", owners)
    per_chunk = len(keys) // n_keys
    allowed: list[set[bytes]] = [set() for _ in range(n_keys)]
    for start in range(0, len(keys), SLAB_CHUNKS):
        contents = store.reader.read_many(keys[start : start + SLAB_CHUNKS])
        for k, key in enumerate(keys[start : start + SLAB_CHUNKS], start):
            if (content := contents[key]) is not None:
                allowed[k // per_chunk].update(store.chunk_digests.digests(name, key, content))
    return allowed if per_chunk == 1 else [digests - {ABSENT} for digests in allowed]


@contextmanager
def reading(store: ResultStore) -> Iterator[None]:
    """Convert damage to `UnreadableStoreError`, and other read errors to `StoreAccessError`."""
    try:
        with accessing(store.url):
            yield
    except DamagedChunkError as error:
        words = ("find", "verify", store.url) if store.is_compact else ("repair", "verify", store.url, "--repair")
        raise UnreadableStoreError(
            f"a chunk of the store {store.url} is damaged ({error}); {words[0]} it with: {command(*words[1:])}"
        ) from error


def read_ahead(store: ResultStore, keys: Iterable[str]) -> ResultStore:
    """Return a view of a store that reads some chunks once, together, and no others."""
    return store.with_reader(_ReadAhead(store.reader.read_many(sorted(keys))))


class _ReadAhead:
    """Reader of chunks that are in memory."""

    def __init__(self, contents: Mapping[str, bytes | None]) -> None:
        self._contents = contents

    def read_many(self, keys: Iterable[str]) -> dict[str, bytes | None]:
        """Return encoded chunks by key."""
        return {key: self._contents[key] for key in keys}
