"""Pending work of a store, and its computation and commit on a worker."""

import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
from distributed import get_worker
from distributed.utils import sync

from pipeline.blocks.evaluate import BUDGET, FAILURES, Block, Outcome, Status, evaluate_block
from pipeline.blocks.plan import iterate_blocks, iterate_cell_blocks
from pipeline.declare.panel import Panel, Setting
from pipeline.declare.source import StudySource
from pipeline.declare.streams import canonical_json, sha256
from pipeline.declare.study import Study
from pipeline.errors import ExecutionError
from pipeline.stores.asked import Asked
from pipeline.stores.commits import Commit, Planned
from pipeline.stores.regions import positions
from pipeline.stores.sessions import last_number
from pipeline.stores.store import ABSENT, STALE, ResultStore

# stopped runs: their tasks finish after the current block, since threads cannot be terminated
STOPPED: set[str] = set()


@dataclass(frozen=True)
class Work:
    """Work item: settings to compute on one block.

    Attributes
    ----------
    block : Block
        The block.
    settings : tuple of int
        Indices of settings in `Panel.settings`.
    stale : tuple of int
        Subset of the settings whose status chunk must be removed before they are recomputed.
    """

    block: Block
    settings: tuple[int, ...]
    stale: tuple[int, ...] = ()


@dataclass(frozen=True)
class Tally:
    """Numbers of trials of a block under one setting, by status.

    Attributes
    ----------
    n_trials : int
        Number of trials of the block.
    n_ok, n_failed, n_pending : int
        Numbers of trials that are ok, that failed, and that remain pending after the budget was used up; the others
        are not applicable.
    n_positions : int
        Number of array positions of the setting: one per combination of values of the method factors that it does not
        use.
    cause : str
        Last line of the error of the first failed trial; empty if none failed.
    """

    n_trials: int
    n_ok: int
    n_failed: int
    n_pending: int
    n_positions: int
    cause: str = ""


@dataclass(frozen=True)
class Receipt:
    """Report of a worker on one committed work item.

    Attributes
    ----------
    work : Work
        The work item.
    seconds : float
        Duration of the computation.
    tallies : tuple of Tally
        One per setting.
    """

    work: Work
    seconds: float
    tallies: tuple[Tally, ...]

    @property
    def n_done(self) -> int:
        """Number of trials with a final status, counted at every array position, as in `open_results`."""
        return sum((tally.n_trials - tally.n_pending) * tally.n_positions for tally in self.tallies)

    @property
    def n_failed(self) -> int:
        """Number of failed trials, counted at every array position."""
        return sum(tally.n_failed * tally.n_positions for tally in self.tallies)

    def without(self, settings: Collection[int]) -> "Receipt":
        """Return the receipt without some settings."""
        kept = [(k, tally) for k, tally in zip(self.work.settings, self.tallies, strict=True) if k not in settings]
        work = replace(self.work, settings=tuple(k for k, _ in kept))
        return Receipt(work, self.seconds, tuple(tally for _, tally in kept))


class PendingWork:
    """Iterable of the work items that are missing from a store or have to be recomputed.

    Later panels and cells come first, unless an order is given. Repeated iteration yields the same work.

    Parameters
    ----------
    study : Study
        The configured study.
    store : ResultStore or None
        Store of the study; None for a new store, which is not read.
    retry : collection of Status
        Statuses of trials to recompute.
    asked : mapping of str to Asked, optional
        Numbers of trials to ask for by panel; by default the numbers that the store records.
    first : sequence of (str, int)
        Panels and cells whose work comes first, in this order.
    """

    def __init__(
        self,
        study: Study,
        store: ResultStore | None,
        retry: Collection[Status] = (),
        asked: Mapping[str, Asked] | None = None,
        first: Sequence[tuple[str, int]] = (),
    ) -> None:
        self.study = study
        self.last_session = 0 if store is None else last_number(store.files)
        self._first = tuple(first)
        self._panels = [
            (panel, _all_absent(panel) if store is None else store.scan(panel, retry, asked))
            for panel in reversed(study.panels)
        ]

    @property
    def n_trials(self) -> int:
        """Number of pending trials, counted at every array position, as in `open_results`."""
        total = 0
        for panel, states in self._panels:
            starts = np.arange(0, panel.n_trials, panel.block_trials)
            sizes = np.minimum(starts + panel.block_trials, panel.n_trials) - starts
            n_positions = np.array([count_positions(panel, setting) for setting in panel.settings()])
            total += int(np.einsum("bs,b,s->", np.count_nonzero(states, axis=0), sizes, n_positions))
        return total

    def __len__(self) -> int:
        return sum(
            int(np.count_nonzero(states if panel.settings_apart else states.any(axis=2)))
            for panel, states in self._panels
        )

    def __iter__(self) -> Iterator[Work]:
        by_name = {panel.name: (panel, states) for panel, states in self._panels}
        for name, cell in self._first:
            panel, states = by_name[name]
            yield from _works(panel, states, iterate_cell_blocks(panel, cell))
        first = set(self._first)
        for panel, states in self._panels:
            rest = (block for block in iterate_blocks(panel) if (panel.name, block.cell) not in first)
            yield from _works(panel, states, rest)


def _works(panel: Panel, states: np.ndarray, blocks: Iterable[Block]) -> Iterator[Work]:
    """Yield the work items of some blocks of a panel, given the states of all its blocks and settings."""
    for block in blocks:
        here = states[block.cell, block.trials.start // panel.block_trials]
        settings = tuple(int(k) for k in np.flatnonzero(here))
        stale = tuple(k for k in settings if here[k] == STALE)
        if panel.settings_apart:
            yield from (Work(block, (k,), (k,) if k in stale else ()) for k in settings)
        elif settings:
            yield Work(block, settings, stale)


def count_positions(panel: Panel, setting: Setting) -> int:
    """Return the number of array positions of a cell at which a setting is stored."""
    return sum(1 for _ in positions(panel, 0, setting))


# panel, position of the first block in the order of `iterate_blocks`, number of blocks, settings, stale settings
Run = tuple[str, int, int, tuple[int, ...], tuple[int, ...]]


def pack(study: Study, works: Iterable[Work]) -> tuple[Run, ...]:
    """Return work as runs of consecutive blocks with the same settings, which keeps tasks small."""
    runs: list[Run] = []
    for work in works:
        panel = study.panel(work.block.panel)
        n_blocks = -(-panel.n_trials // panel.block_trials)
        at = (len(panel.cells()) - 1 - work.block.cell) * n_blocks + work.block.trials.start // panel.block_trials
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
        n_cells, n_blocks = len(panel.cells()), -(-panel.n_trials // panel.block_trials)
        for at in range(first, first + count):
            start = at % n_blocks * panel.block_trials
            trials = range(start, min(start + panel.block_trials, panel.n_trials))
            works.append(Work(Block(name, n_cells - 1 - at // n_blocks, trials), *kind))
    return works


Evaluate = Callable[[Study, Work], list[Outcome]]


def evaluate_work(study: Study, work: Work, budget: int | None = BUDGET) -> list[Outcome]:
    """Compute the settings of a work item; see `evaluate_block` for the budget."""
    settings = study.panel(work.block.panel).settings()
    return evaluate_block(study, work.block, [settings[k] for k in work.settings], budget)


def _all_absent(panel: Panel) -> np.ndarray:
    """Return the states of a panel without results, in the form of `ResultStore.scan`."""
    shape = len(panel.cells()), -(-panel.n_trials // panel.block_trials), len(panel.settings())
    return np.full(shape, ABSENT, np.uint8)


@dataclass(frozen=True)
class Task:
    """Parameters shared by all tasks of a run, with which a worker computes and commits work.

    Attributes
    ----------
    source : StudySource
        Code of the study.
    url, spec_sha256 : str
        URL of the store, and hash of the spec that the store must have.
    session : str
        Identifier of the writing session; empty before the session begins.
    run : str
        Identifier of the run.
    announced : bool
        True if workers announce each work item before they start it, as time limits require.
    """

    source: StudySource
    url: str
    spec_sha256: str
    session: str = ""
    run: str = field(default_factory=lambda: uuid.uuid4().hex)
    announced: bool = False

    def opened(self) -> tuple[Study, ResultStore]:
        """Return the study and the store, cached per process; raise `ExecutionError` if their specs differ."""
        return _opened(self.source, self.url, self.spec_sha256, self.session)

    def stored(self) -> tuple[Study, ResultStore]:
        """Return the study configured by the stored spec, before any extension, and the store."""
        store = ResultStore.open(self.url)
        return self.source.load().from_spec(store.spec), store

    def __call__(self, batch: Sequence[Work], evaluate: Evaluate = evaluate_work) -> list[Receipt]:
        """Compute a batch of work and commit it as a whole; return early if the run was stopped."""
        study, store = self.opened()
        receipts = []
        with store.commit([_planned(study, work) for work in batch]) as commit:
            for k, work in enumerate(batch):
                if self.run in STOPPED:
                    break
                if self.announced:
                    self.announce(k)
                started = time.perf_counter()
                outcomes = evaluate(study, work)
                _write(study, commit, work, outcomes)
                receipts.append(_receipt(study, work, outcomes, time.perf_counter() - started))
        return receipts

    def announce(self, *position: int) -> None:
        """Announce the current position of this worker in the task."""
        worker = get_worker()
        message = {"key": worker.get_current_task(), "at": position, "worker": worker.address}
        # wait for the reply, since code that holds the GIL would delay a queued message
        sync(worker.loop, worker.scheduler.log_event, topic=self.run, msg=message)


def _planned(study: Study, work: Work) -> Planned:
    """Return a work item in the form that a commit requires."""
    panel = study.panel(work.block.panel)
    settings, stale = ([panel.settings()[k] for k in chosen] for chosen in (work.settings, work.stale))
    return Planned(panel, work.block, settings, stale)


def _write(study: Study, commit: Commit, work: Work, outcomes: Sequence[Outcome]) -> None:
    panel = study.panel(work.block.panel)
    for k, outcome in zip(work.settings, outcomes, strict=True):
        commit.write(panel, work.block, panel.settings()[k], outcome)


def _receipt(study: Study, work: Work, outcomes: Sequence[Outcome], seconds: float) -> Receipt:
    panel = study.panel(work.block.panel)
    tallies = tuple(
        Tally(
            len(outcome.status),
            int((outcome.status == Status.OK).sum()),
            int(np.isin(outcome.status, FAILURES).sum()),
            outcome.n_untried,
            count_positions(panel, panel.settings()[k]),
            (outcome.cause.splitlines() or [""])[-1],
        )
        for k, outcome in zip(work.settings, outcomes, strict=True)
    )
    return Receipt(work, seconds, tallies)


@lru_cache(maxsize=16)
def _opened(source: StudySource, url: str, spec_sha256: str, session: str) -> tuple[Study, ResultStore]:
    store = ResultStore.open(url, session or None, damaged=True)
    study = source.load().from_spec(store.spec)
    if not spec_sha256 == store.attributes["spec_sha256"] == sha256(canonical_json(study.spec())):
        raise ExecutionError(
            f"the store {url} and the code on worker {get_worker().address} have different versions; install the same "
            "version everywhere"
        )
    return study, store
