"""Checks and repairs of a store: chunks that are missing or fail their checksum, and inconsistent values.

A second read confirms damage. Errors of the file system or network do not count as damage; they are raised.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from pipeline.blocks.evaluate import FAILURES, Block, Outcome, Status
from pipeline.declare.panel import Panel, Setting
from pipeline.declare.study import Study
from pipeline.errors import Damage, DamagedChunkError, command
from pipeline.store.codec.regions import positions, region_of
from pipeline.store.files.access import accessing
from pipeline.store.files.locations import ROOT
from pipeline.store.layout.root import COPY, metadata_files
from pipeline.store.layout.template import make_template
from pipeline.store.read import committed_chunks, read_ahead
from pipeline.store.result_store import ResultStore
from pipeline.store.sessions.records import check_records

_MOST_READ_AHEAD = 2**24  # bytes of chunks, decompressed, that are read together


def check_block(
    store: ResultStore, panel: Panel, block: Block, setting: Setting
) -> tuple[dict[str, Damage], Outcome | None]:
    """Check every chunk of one setting on one block; return the damage by variable, and the outcome unless pending.

    A single read does not confirm damage; `check_blocks` does.
    """
    problems: dict[str, Damage] = {}
    outcomes = [_read(store, panel, block, position, problems) for position in positions(panel, block.cell, setting)]
    present = [outcome for outcome in outcomes if outcome is not None]
    if problems or not present:
        return problems, None
    if len(present) < len(outcomes):  # pending, as a stopped extension by a value of a method factor leaves it
        return {}, None
    for other in present[1:]:
        for name, values in _arrays(present[0]).items():
            if not _same_bits(values, _arrays(other)[name]):
                problems[name] = Damage(
                    "inconsistent", "differs between values of method factors that the method does not use"
                )
    if not problems:
        problems = _contradictions(store, panel, block, present[0])
    is_pending = bool((present[0].status == Status.PENDING).any())
    return problems, None if problems or is_pending else _as_declared(store, panel, present[0])


def check_blocks(
    store: ResultStore, settings: Sequence[tuple[Panel, Block, Setting]]
) -> Iterator[tuple[dict[str, Damage], Outcome | None]]:
    """Check settings of blocks as `check_block` does; their chunks are read together, and damage is confirmed."""
    for group in _small_groups(store, settings):
        with accessing(store.url):
            view = read_ahead(
                store,
                (
                    key
                    for panel, block, setting in group
                    for name in panel.variables
                    for key in store.chunks.block_keys(panel, block, [setting], name)
                ),
            )
        for panel, block, setting in group:
            problems, outcome = check_block(view, panel, block, setting)
            yield check_block(store, panel, block, setting) if problems else (problems, outcome)


def _small_groups(
    store: ResultStore, settings: Sequence[tuple[Panel, Block, Setting]]
) -> Iterator[list[tuple[Panel, Block, Setting]]]:
    """Divide settings of blocks into groups whose chunks take at most `_MOST_READ_AHEAD` bytes, or into single ones."""
    group: list[tuple[Panel, Block, Setting]] = []
    n_bytes = 0
    for panel, block, setting in settings:
        layouts = [store.chunks.layout(panel.name, name) for name in panel.variables]
        per_position = sum(layout.dtype.itemsize * math.prod(layout.chunks) for layout in layouts)
        size = per_position * panel.count_positions(setting)
        if group and n_bytes + size > _MOST_READ_AHEAD:
            yield group
            group, n_bytes = [], 0
        group.append((panel, block, setting))
        n_bytes += size
    if group:
        yield group


def invalidate(store: ResultStore, panel: Panel, block: Block, setting: Setting, damaged: Iterable[str]) -> None:
    """Reset one setting of a block to pending, and remove its damaged chunks."""
    # status first, so that no committed block lacks a chunk
    for name in ("status", *(name for name in damaged if name != "status")):
        store.files.remove(store.chunks.block_keys(panel, block, [setting], name))


def check_template(store: ResultStore, study: Study, *, repair: bool = False) -> dict[tuple[str, str], Damage]:
    """Check, and optionally rewrite, coordinates, metadata and root; return the damage by panel (or "") and name.

    `repair` requires a store that was opened for a session.
    """
    problems: dict[tuple[str, str], Damage] = {}
    damaged: dict[str, bytes] = {}  # with the right contents
    if store.root.problem:
        problems["", "root"] = Damage("damaged", store.root.problem)
        # never rewrite the intact file: a power loss could damage it
        damaged |= {key: store.root.content for key in (COPY, ROOT) if store.files.read(key) != store.root.content}
    coordinates = make_template(study, store.attributes)
    files = metadata_files(store.root.content) | {
        k: content for k, content in coordinates.items() if not k.endswith(ROOT)
    }
    for key, expected in files.items():
        panel, _, rest = key.partition("/")
        with accessing(store.url):
            stored = store.files.read(key)
            stored = stored if stored == expected else store.files.read(key)  # confirms damage
        if not _is_same(store, key, stored, expected):
            name = rest.partition("/")[0]
            problem = "the file is missing" if stored is None else "differs from the root"
            problems[panel, "metadata" if name == ROOT else name] = Damage("damaged", problem)
            damaged[key] = expected
    if repair:
        batch = store.files.batch(store.files.versions(damaged))
        for key, content in damaged.items():
            batch.put(key, content)
        batch.finish()
    return problems


def check_sessions(store: ResultStore, *, repair: bool = False) -> dict[tuple[str, str], Damage]:
    """Check the records of sessions and their copies; return the problems as `check_template` does."""
    advice = (
        "the record and its copy are damaged or missing; if its run had a target, record the target again with: "
        f"{command('extend', store.url, '--until', 'TARGET')}"
    )
    return {
        ("", name): Damage("lost", advice) if problem.kind == "lost" else problem
        for name, problem in check_records(store.files, repair=repair).items()
    }


def _is_same(store: ResultStore, key: str, stored: bytes | None, expected: bytes) -> bool:
    """Return True if two files have equal content, even if different versions of Zarr wrote them."""
    if stored is None or stored == expected:
        return stored == expected
    if key.endswith(ROOT):
        try:
            return json.loads(stored) == json.loads(expected)
        except (ValueError, RecursionError):
            return False
    panel, name, _, *position = key.split("/")
    array = store.array(panel, name)
    starts = [int(index) * size for index, size in zip(position, array.chunks, strict=True)]
    sizes = zip(starts, array.chunks, array.shape, strict=True)
    region = tuple(slice(start, min(start + size, length)) for start, size, length in sizes)
    try:
        stored_values, expected_values = (
            store.chunks.decode(panel, name, region, {key: content}) for content in (stored, expected)
        )
    except DamagedChunkError:
        return False
    return _same_bits(stored_values, expected_values)


def _read(
    store: ResultStore, panel: Panel, block: Block, position: tuple[int, ...], problems: dict[str, Damage]
) -> Outcome | None:
    """Read one array position, with measures as stored; return None if the block has no status at this position."""
    (key,) = store.chunks.keys(panel.name, "status", region_of(panel, position, block.trials, "status"))
    with accessing(store.url):
        if store.reader.read_many([key])[key] is None:
            if store.is_compact:  # no block was pending
                problems["status"] = Damage("missing")
            return None
    arrays: dict[str, np.ndarray] = {}
    for name, (per_trial, _) in panel.variables.items():  # the status first
        region = region_of(panel, position, block.trials, name)
        try:
            with accessing(store.url):
                contents = committed_chunks(
                    store, panel.name, name, region, slice(block.trials.start, block.trials.stop)
                )
                values = store.chunks.decode(panel.name, name, region, contents)
            arrays[name] = values.reshape(values.shape[len(position) :])
            others = store.reader.read_many(contents).values() if per_trial and None in contents.values() else ()
            if any(content is not None for content in others):
                problems[name] = Damage("inconsistent", "no block has committed the chunk")
        except DamagedChunkError as error:
            problems[name] = Damage(error.kind, "" if error.kind == "missing" else str(error))
        if name == "status" and problems:
            return None
    if problems:
        return None
    status, errors = (arrays.pop(name).reshape(-1) for name in ("status", "error"))
    return Outcome(arrays, status, errors.astype(object))


def _as_declared(store: ResultStore, panel: Panel, outcome: Outcome) -> Outcome:
    """Return an outcome with measures in their declared dtypes."""
    values = {
        measure.name: store.chunks.as_declared(panel.name, measure.name, outcome.values[measure.name], measure.dtype)
        for measure in panel.measures
    }
    return Outcome(values, outcome.status, outcome.error)


def _contradictions(store: ResultStore, panel: Panel, block: Block, outcome: Outcome) -> dict[str, Damage]:
    """Return the inconsistencies of a block: unknown statuses, missing or foreign numbers, misplaced error texts."""
    problems = {}
    statuses = set(np.unique(outcome.status).tolist())
    if unknown := statuses.difference(Status) | statuses & {Status.NOT_ASKED_FOR}:  # the latter is never stored
        problems["status"] = Damage("inconsistent", f"unknown status {min(unknown)}")
    is_ok, has_error = outcome.status == Status.OK, outcome.error != ""
    if has_error.any() or not statuses.isdisjoint(FAILURES):
        for k in np.flatnonzero(np.isin(outcome.status, FAILURES) != has_error):
            trial = block.trials[k]
            problems["error"] = Damage("inconsistent", f"the error of trial {trial} does not match its status")
    for measure in panel.measures if is_ok.any() else ():
        at, values = (panel.name, measure.name), outcome.values[measure.name]
        of_ok = values[is_ok] if measure.per_trial and panel.trials is not None else values
        is_missing = store.chunks.find_missing(*at, of_ok)
        if measure.per_trial and not measure.ragged and is_missing.any():
            problems[measure.name] = Damage("inconsistent", "an ok trial has no number")
        elif not np.array_equal(store.chunks.as_declared(*at, of_ok, measure.dtype)[~is_missing], of_ok[~is_missing]):
            problems[measure.name] = Damage("inconsistent", f"a number is no {measure.dtype}")
    return problems


def _arrays(outcome: Outcome) -> Mapping[str, np.ndarray]:
    return {**outcome.values, "status": outcome.status, "error": outcome.error}


def _same_bits(first: np.ndarray, second: np.ndarray) -> bool:
    if first.dtype.kind == "f":
        return first.tobytes() == second.tobytes()
    return bool(np.array_equal(first, second))
