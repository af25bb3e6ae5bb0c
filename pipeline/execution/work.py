"""Pending work of a store, and the parameters with which workers compute it."""

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import zip_longest

import numpy as np
from distributed import get_worker

from pipeline.blocks.division import block_at, iterate_blocks, iterate_cell_blocks, spread_out
from pipeline.blocks.evaluate import Block, Outcome, Status, evaluate_block
from pipeline.declare.panel import Panel
from pipeline.declare.source import StudySource
from pipeline.declare.streams import canonical_json, sha256
from pipeline.declare.study import Study
from pipeline.errors import ExecutionError, command
from pipeline.store.commit import BlockWriter
from pipeline.store.result_store import ResultStore
from pipeline.store.scan.requested import RequestedTrials
from pipeline.store.scan.states import COMMITTED, STALE, UNWRITTEN, block_states, ok_trials
from pipeline.store.sessions.records import last_number

MOST_SAMPLES = 50  # cells per panel of which a block is computed first


@dataclass(frozen=True)
class Work:
    """Work item: settings to compute on one block."""

    block: Block
    settings: tuple[int, ...]  # indices in `Panel.settings`
    stale: tuple[int, ...] = ()  # subset of the settings whose status chunk exists and is replaced


@dataclass(frozen=True)
class Tally:
    """Numbers of trials of a block under one setting, by status."""

    n_trials: int
    n_ok: int
    n_failed: int
    n_pending: int  # after the budget was used up; the trials that are not counted are not applicable
    # array positions of the setting: one per combination of values of the method factors that it does not use
    n_positions: int
    n_ended: int = 0  # failed trials that were killed or timed out
    cause: str = ""  # of the first failed trial; empty if none failed
    seconds: float = 0.0  # wall-clock time of the method


@dataclass(frozen=True)
class Receipt:
    """Report of a worker on one committed work item."""

    work: Work
    seconds: float
    tallies: tuple[Tally, ...]

    @property
    def n_done(self) -> int:
        """Number of evaluations that are ok or failed, counted at every array position, as in `open_results`."""
        return sum((tally.n_ok + tally.n_failed) * tally.n_positions for tally in self.tallies)

    @property
    def n_failed(self) -> int:
        """Number of failed evaluations, counted at every array position."""
        return sum(tally.n_failed * tally.n_positions for tally in self.tallies)

    def without(self, settings: Collection[int]) -> "Receipt":
        """Return the receipt without some settings."""
        kept = [(k, tally) for k, tally in zip(self.work.settings, self.tallies, strict=True) if k not in settings]
        work = replace(self.work, settings=tuple(k for k, _ in kept))
        return Receipt(work, self.seconds, tuple(tally for _, tally in kept))


class PendingWork:
    """Iterable of the work items that are missing from a store, None for a new one, or have to be recomputed.

    One block of some cells of each panel comes first, so that costs are known early, beginning with the last cell,
    which tends to be expensive; or all of the panels and cells `first`. `requested` replaces the recorded numbers.
    """

    def __init__(
        self,
        study: Study,
        store: ResultStore | None,
        retry: Collection[Status] = (),
        requested: Mapping[str, RequestedTrials] | None = None,
        first: Sequence[tuple[str, int]] = (),
    ) -> None:
        self.study, self._store = study, store
        self.last_session = 0 if store is None else last_number(store.files)
        self._first = tuple(first)
        self._panels: dict[str, tuple[Panel, np.ndarray]] = {}  # with the states of all blocks, see `block_states`
        for panel in reversed(study.panels):
            shape = len(panel.cells()), panel.n_blocks, len(panel.settings())
            states = (
                np.full(shape, UNWRITTEN, np.uint8) if store is None else block_states(store, panel, retry, requested)
            )
            self._panels[panel.name] = panel, states

    def find_succeeded(self) -> set[tuple[str, int]]:
        """Return the panels and settings with an ok trial in the store."""
        if self._store is None:
            return set()
        return {
            (panel.name, k)
            for panel, _ in self._panels.values()
            for k, setting in enumerate(panel.settings())
            if any(True for _ in ok_trials(self._store, panel, setting))
        }

    @property
    def n_evaluations(self) -> int:
        """Number of pending evaluations: trials of applicable settings, at every array position as in the store."""
        return sum(int(by_cell.sum()) for by_cell in self.by_cell().values())

    def by_cell(self) -> dict[str, np.ndarray]:
        """Return the pending evaluations of each cell by panel."""
        evaluations = {}
        for panel, states in self._panels.values():
            starts = np.arange(0, panel.n_trials, panel.block_trials)
            sizes = np.minimum(starts + panel.block_trials, panel.n_trials) - starts
            n_positions = np.array([panel.count_positions(setting) for setting in panel.settings()])
            n_trials = np.einsum("cbs,b->cs", states != COMMITTED, sizes)
            evaluations[panel.name] = (n_trials * panel.applicable) @ n_positions
        return evaluations

    def __len__(self) -> int:
        return sum(
            int(np.count_nonzero(states if panel.settings_apart else states.any(axis=2)))
            for panel, states in self._panels.values()
        )

    def __iter__(self) -> Iterator[Work]:
        for name, cell in self._first:
            panel, states = self._panels[name]
            yield from _works(panel, states, iterate_cell_blocks(panel, cell))
        first = set(self._first)
        by_panel = [] if first else [_samples(panel, states) for panel, states in reversed(self._panels.values())]
        samples = [block for group in zip_longest(*by_panel) for block in group if block is not None]
        for block in samples[-1:] + samples[:-1]:
            panel, states = self._panels[block.panel]
            yield from _works(panel, states, [block])
        before = set(samples)
        for panel, states in self._panels.values():
            rest = (b for b in iterate_blocks(panel) if (panel.name, b.cell) not in first and b not in before)
            yield from _works(panel, states, rest)


def _samples(panel: Panel, states: np.ndarray) -> list[Block]:
    """Return the first pending block of some cells, which are spread out, in the order of the cells."""
    blocks = []
    for cell in sorted(spread_out(len(panel.cells()), MOST_SAMPLES)):
        pending = np.flatnonzero((states[cell] != COMMITTED).any(axis=1))
        if len(pending):
            blocks.append(block_at(panel, cell, int(pending[0])))
    return blocks


def _works(panel: Panel, states: np.ndarray, blocks: Iterable[Block]) -> Iterator[Work]:
    """Yield the work items of some blocks of a panel, given the states of all its blocks and settings."""
    for block in blocks:
        here = states[block.cell, block.trials.start // panel.block_trials]
        settings = tuple(np.flatnonzero(here).tolist())
        stale = tuple(k for k in settings if here[k] == STALE)
        if panel.settings_apart:
            yield from (Work(block, (k,), (k,) if k in stale else ()) for k in settings)
        elif settings:
            yield Work(block, settings, stale)


# panel, position of the first block in the order of `iterate_blocks`, number of blocks, settings, stale settings
Run = tuple[str, int, int, tuple[int, ...], tuple[int, ...]]


def pack(study: Study, works: Iterable[Work]) -> tuple[Run, ...]:
    """Return work as runs of consecutive blocks with the same settings, which keeps tasks small."""
    runs: list[Run] = []
    for work in works:
        panel = study.panel(work.block.panel)
        number = work.block.trials.start // panel.block_trials
        at = (len(panel.cells()) - 1 - work.block.cell) * panel.n_blocks + number
        kind = work.settings, work.stale
        if runs and (runs[-1][0], runs[-1][1] + runs[-1][2], runs[-1][3:]) == (panel.name, at, kind):
            runs[-1] = (panel.name, runs[-1][1], runs[-1][2] + 1, *kind)
        else:
            runs.append((panel.name, at, 1, *kind))
    return tuple(runs)


def unpack(study: Study, runs: Iterable[Run]) -> list[Work]:
    """Return the work items of runs, the inverse of `pack`."""
    works = []
    for name, first, count, *kind in runs:
        panel = study.panel(name)
        for at in range(first, first + count):
            cell = len(panel.cells()) - 1 - at // panel.n_blocks
            works.append(Work(block_at(panel, cell, at % panel.n_blocks), *kind))
    return works


def evaluate_work(study: Study, work: Work, budget: int | None) -> list[Outcome]:
    """Compute the settings of a work item; see `evaluate_block` for the budget."""
    settings = study.panel(work.block.panel).settings()
    return evaluate_block(study, work.block, [settings[k] for k in work.settings], budget)


@dataclass(frozen=True)
class Task:
    """Parameters shared by all tasks of a run."""

    source: StudySource  # code of the study
    url: str
    spec_sha256: str  # hash of the spec that the store must have
    session: str = ""  # identifier of the writing session; empty before the session begins
    run: str = field(default_factory=lambda: uuid.uuid4().hex)
    # seconds per block or trial, which is then computed in a child process of the worker
    time_limit: float | None = None

    def opened(self) -> tuple[Study, ResultStore]:
        """Return the study and the store, cached per process; raise `ExecutionError` if their specs differ."""
        return _opened(self.source, self.url, self.spec_sha256, self.session)[:2]

    def writer(self) -> BlockWriter:
        """Return the writer of blocks, one per process and session."""
        return _opened(self.source, self.url, self.spec_sha256, self.session)[2]

    def stored(self) -> tuple[Study, ResultStore]:
        """Return the study configured by the stored spec, before any extension, and the store."""
        store = ResultStore.open(self.url)
        return self.source.load().from_spec(store.spec), store


@lru_cache(maxsize=16)  # tasks of one session share the opened store
def _opened(source: StudySource, url: str, spec_sha256: str, session: str) -> tuple[Study, ResultStore, BlockWriter]:
    store = ResultStore.open(url, session or None, damaged=True)
    study = source.load().from_spec(store.spec)
    if store.attributes["spec_sha256"] != sha256(canonical_json(study.spec())):
        raise ExecutionError(
            f"the store {url} and the code on worker {get_worker().address} have different versions; install the same "
            "version everywhere"
        )
    if store.attributes["spec_sha256"] != spec_sha256:
        raise ExecutionError(
            f"worker {get_worker().address} reads another spec in the store {url} than this run has: another session "
            f"has extended it, or the worker's file system is not up to date; see: {command('status', url)}"
        )
    return study, store, BlockWriter(store)
