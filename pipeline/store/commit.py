"""Commits of blocks: values are written and made durable before the statuses that make them visible."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.blocks.evaluate import Block, Outcome, Status
from pipeline.declare.panel import Panel, Setting
from pipeline.store.codec.chunk_digests import add_checksum, digest
from pipeline.store.codec.error_texts import stored_errors
from pipeline.store.codec.regions import positions, region_of
from pipeline.store.result_store import ResultStore


@dataclass(frozen=True)
class Planned:
    """Block, with the settings to compute on it."""

    panel: Panel
    block: Block
    settings: Sequence[Setting]
    stale: Sequence[Setting] = ()  # those of the settings whose status chunk exists and is replaced


class BlockWriter:
    """Commits of blocks of a process, which remembers the per-cell chunks that it knows to be durable."""

    def __init__(self, store: ResultStore) -> None:
        self._store = store
        self._present: dict[str, bytes] = {}  # digests by key

    @contextmanager
    def commit(self, planned: Sequence[Planned]) -> Iterator["Commit"]:
        """Yield a `Commit`; at the end, commit the blocks written to it, or none if the context raises."""
        commit = Commit(self._store, self._present, planned)
        try:
            yield commit
        except BaseException:
            commit.discard()
            raise
        commit.finish()


class Commit:
    """Commit of blocks, created before they are computed; after `finish` they are visible, and their values durable.

    `present` has the digests of the durable per-cell chunks that this process knows, by key. A block is
    pending until its status is written, which `finish` does after it has flushed the values; if the process dies
    between two statuses, the written ones are committed. A block with a status is replaced in `finish`, and is
    committed at all times.
    """

    def __init__(self, store: ResultStore, present: dict[str, bytes], planned: Sequence[Planned]) -> None:
        self._files, self._chunks, self._chunk_digests = store.files, store.chunks, store.chunk_digests
        self._present = present
        self._of_cells: dict[str, bytes] = {}  # chunks that are not durable yet, so no other commit may rely on them
        self._absent: set[str] = set()  # per-cell chunks that did not exist
        keys_of = self._chunks.block_keys
        self._stale = {key for item in planned for key in keys_of(item.panel, item.block, item.stale, "status")}
        self._replaced: list[_Written] = []
        # an extension rewrites the chunks of a block that is shorter than the others
        growing = [item for item in planned if item.panel.trials and len(item.block.trials) < item.panel.block_trials]
        keys = [
            key
            for item in growing
            for name, (per_trial, _) in item.panel.variables.items()
            if per_trial and name != "status"
            for key in keys_of(item.panel, item.block, item.settings, name)
        ]
        self._batch = self._files.batch(self._files.versions(keys))

    def write(self, panel: Panel, block: Block, setting: Setting, outcome: Outcome) -> None:
        """Write the outcome of one setting on one block, at every value of the method factors that it does not use."""
        is_ok, has_error = bool((outcome.status == Status.OK).any()), any(outcome.error)
        places = list(positions(panel, block.cell, setting))
        values: dict[str, bytes] = {}
        digests: dict[str, bytes] = {}

        def encode(name: str, array: np.ndarray, is_missing: Any = False) -> dict[str, bytes]:
            regions = [region_of(panel, place, block.trials, name) for place in places]
            return self._chunks.encode(panel.name, name, regions, array, is_missing)

        for name, (per_trial, _) in panel.variables.items():
            if name == "status":
                continue
            encoded: dict[str, bytes] = {}
            if name == "error" and has_error:
                encoded = encode(name, stored_errors(panel, block, outcome))
            elif name != "error" and (per_trial or is_ok):
                encoded = encode(name, outcome.values[name], _missing(panel, outcome, per_trial))
            digest_of_value = digests[name] = digest(next(iter(encoded.values()), None))
            values.update(
                (key, content)
                for key, content in encoded.items()
                if per_trial or self._is_needed(key, content, digest_of_value)
            )
        errors = () if has_error else self._chunks.block_keys(panel, block, [setting], "error")
        statuses = encode("status", outcome.status)
        joined = b"".join(digests[name] for name in self._chunk_digests.variables[panel.name])
        written = _Written(values, errors, statuses, joined)
        if self._stale.isdisjoint(statuses):
            for key, content in values.items():
                self._batch.put(key, content, statuses)
            for key, content in statuses.items():
                self._batch.put_last(key, self._chunk_digests.bind(key, content, joined))
            self._files.remove_uncommitted(written.removed)
        else:
            self._replaced.append(written)

    def finish(self) -> None:
        """Make the values durable, then make the statuses visible."""
        self._batch.finish()
        if self._replaced:
            self._replace()
        self._present |= self._of_cells

    def discard(self) -> None:
        """Discard the prepared statuses; the blocks remain pending."""
        self._batch.discard()

    def _replace(self) -> None:
        """Replace committed blocks; each status binds the old and the new chunks before any is replaced."""
        # absent per-cell chunks are written first, because readers require such a chunk once a status binds it
        prepared: dict[str, bytes] = {}
        values: dict[str, bytes] = {}
        statuses: dict[str, bytes] = {}
        for written in self._replaced:
            values.update(written.values)
            for key, content in self._files.read_many(written.statuses).items():
                statuses[key] = self._chunk_digests.bind(key, written.statuses[key], written.digests)
                if content is not None:
                    inner, sets = self._chunk_digests.unbind(key, content)
                    prepared[key] = self._chunk_digests.bind(key, add_checksum(inner), sets + written.digests)
        before: Collection[str] = ()
        for stage in ({key: values.pop(key) for key in self._absent & values.keys()}, prepared, values):
            before = self._write_after(before, stage)
        self._files.remove([key for written in self._replaced for key in written.removed])
        self._write_after(before, statuses)

    def _write_after(self, before: Collection[str], contents: Mapping[str, bytes]) -> Collection[str]:
        """Make the files `before` durable, replace those in `contents`, and return all that are not durable yet."""
        if not contents:
            return before
        batch = self._files.batch(self._files.versions(contents))
        for key in before:
            batch.depend(key)
        for key, content in contents.items():
            batch.put_last(key, content)
        batch.finish()
        return contents.keys()

    def _is_needed(self, key: str, content: bytes, digest_of_value: bytes) -> bool:
        """Return True if a per-cell chunk must be written, because it is missing, damaged or another one."""
        if digest_of_value in (self._present.get(key), self._of_cells.get(key)):
            return False
        self._of_cells[key] = digest_of_value
        if (stored := self._files.read(key)) != content:
            self._absent |= {key} if stored is None else set()
            return True
        self._batch.depend(key)
        return False


@dataclass(frozen=True)
class _Written:
    """Encoded outcome of one setting on one block: chunks by key, and keys of chunks that must not exist."""

    values: Mapping[str, bytes]
    removed: Collection[str]
    statuses: Mapping[str, bytes]
    digests: bytes


def _missing(panel: Panel, outcome: Outcome, per_trial: bool) -> Any:
    """Return where values of a measure are missing; those per cell are stored once a trial is ok."""
    is_missing = outcome.status != Status.OK
    return is_missing if per_trial and panel.trials is not None else bool(is_missing.all())
