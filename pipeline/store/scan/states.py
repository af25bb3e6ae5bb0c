"""States of the blocks of a store: which are committed or pending, and counts of trials by status."""

import json
import math
from collections.abc import Collection, Iterator, Mapping

import numpy as np

from pipeline.blocks.evaluate import Block, Status
from pipeline.declare.panel import Panel, Setting
from pipeline.store.codec.regions import iterate_slabs, positions, region_of, setting_index
from pipeline.store.layout.template import INAPPLICABLE
from pipeline.store.read import read_statuses
from pipeline.store.result_store import ResultStore
from pipeline.store.scan.requested import RequestedTrials

COMMITTED, UNWRITTEN, STALE = 0, 1, 2
"""States of a block: committed, pending without a status chunk, or pending with one that is replaced."""


def block_states(
    store: ResultStore,
    panel: Panel,
    retry: Collection[Status] = (),
    requested: Mapping[str, RequestedTrials] | None = None,
) -> np.ndarray:
    """Return the state of every block, shape (cell, block, setting): `COMMITTED` also if not asked for.

    A block is pending if it has no status chunk, if the status of one of its trials is PENDING or in `retry`, or if it
    is committed at some array positions of its setting only. This includes methods that do not apply to its cell.
    """
    status = store.array(panel.name, "status")
    states = np.full(status.cdata_shape, UNWRITTEN, np.uint8)
    for chunks, region in iterate_slabs(status):
        values = read_statuses(store, panel.name, region)
        if values is None:
            continue
        is_pending, is_written = np.isin(values, [Status.PENDING, *retry]), values != Status.PENDING
        if panel.trials is not None:
            starts = np.arange(0, is_pending.shape[-1], panel.block_trials)
            is_pending = np.logical_or.reduceat(is_pending, starts, axis=-1)
            is_written = np.logical_or.reduceat(is_written, starts, axis=-1)
        states[chunks] = np.where(is_pending, np.where(is_written, STALE, UNWRITTEN), COMMITTED)
    requested = store.requested if requested is None else requested
    not_requested = _not_requested(store, panel.name, requested.get(panel.name))
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


def count_by_status(store: ResultStore, panel: str, *, as_stored: bool = False) -> dict[Status, int]:
    """Count the trials of a panel by status, over all its cells and settings.

    Trials of methods that do not apply are not pending, unless the store asks for some of its trials only: its root
    has the number of these trials in all cells. With `as_stored`, they are pending until their blocks are committed.
    """
    counts, status = np.zeros(2**8, int), store.array(panel, "status")
    not_requested, spec = _not_requested(store, panel, store.requested.get(panel)), store.spec["panels"][panel]
    for chunks, region in iterate_slabs(status):
        values = read_statuses(store, panel, region)
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
    if not_requested is None and not as_stored:  # blocks of methods that do not apply are no pending evaluations
        n_inapplicable = max(0, _count_inapplicable(store, panel) - counts[Status.NOT_APPLICABLE])
        n_inapplicable = min(n_inapplicable, counts[Status.PENDING])
        counts[Status.PENDING] -= n_inapplicable
        counts[Status.NOT_APPLICABLE] += n_inapplicable
    return {status: int(counts[status]) for status in Status}


def ok_trials(store: ResultStore, panel: Panel, setting: Setting) -> Iterator[Block]:
    """Yield the ok trials of a setting as blocks of one trial, from the last cell to the first."""
    status, n_axes = store.array(panel.name, "status"), len(panel.factors)
    at = region_of(panel, next(positions(panel, 0, setting)), range(panel.n_trials), "status")
    for _, region in reversed(list(iterate_slabs(status, (slice(None),) * n_axes + at[n_axes:]))):
        values = read_statuses(store, panel.name, region)
        if values is None:
            continue
        start = np.array([part.start for part in region])
        for index in reversed(start + np.argwhere(values == Status.OK)):
            cell = np.ravel_multi_index(index[:n_axes], status.shape[:n_axes]) if n_axes else 0
            trial = int(index[-1]) if panel.trials is not None else 0
            yield Block(panel.name, int(cell), range(trial, trial + 1))


def requested_trials(store: ResultStore, panel: Panel) -> np.ndarray:
    """Return the numbers of trials asked for, shape (cell, setting)."""
    requested, shape = store.requested.get(panel.name), (len(panel.cells()), len(panel.settings()))
    return np.full(shape, panel.n_trials) if requested is None else requested.by_setting(panel)


def blocks_of_others(store: ResultStore, panel: str) -> np.ndarray:
    """Return a mask of the blocks of other parts of the run, shape (cell, block)."""
    shapes = {
        name: (
            math.prod(map(len, panel_spec["factors"].values())),
            -(-(panel_spec["trials"] or 1) // panel_spec["block_trials"]),
        )
        for name, panel_spec in store.spec["panels"].items()
    }
    return np.zeros(shapes[panel], bool) if store.run_part is None else store.run_part.others(panel, shapes)


def _not_requested(store: ResultStore, panel: str, requested: RequestedTrials | None) -> np.ndarray | None:
    """Return a mask of the chunks of the statuses whose trials are not asked for, or None if all are."""
    if requested is None and store.run_part is None:
        return None
    spec, status, others = store.spec["panels"][panel], store.array(panel, "status"), blocks_of_others(store, panel)
    grid, n_factors, n_blocks = status.shape[: len(spec["dims"])], len(spec["factors"]), others.shape[1]
    mask = np.zeros((*grid, n_blocks), bool)
    mask |= others.reshape(*grid[:n_factors], *[1] * len(grid[n_factors:]), n_blocks)
    if requested is not None:
        limits = requested.fitted(grid, spec["trials"] or 1).trials
        mask |= np.arange(n_blocks) * spec["block_trials"] >= limits[..., None]
    return mask.reshape(status.cdata_shape)


def _count_inapplicable(store: ResultStore, panel: str) -> int:
    """Return the number of statuses of methods that do not apply; 0 for stores of earlier versions."""
    try:
        counts = json.loads(store.attributes.get(INAPPLICABLE, "{}"))
        return {name: int(n) for name, n in counts.items()}.get(panel, 0)
    except (ValueError, TypeError, AttributeError, OverflowError):
        return 0
