"""Pending work of a store, and its computation and commit on a worker."""

import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial

import numpy as np
from distributed import get_worker
from distributed.utils import sync

from pipeline.blocks.evaluate import BUDGET, FAILURES, Block, Outcome, Status, evaluate_block
from pipeline.blocks.plan import iterate_blocks
from pipeline.declare.panel import Panel, Setting
from pipeline.declare.source import StudySource
from pipeline.declare.streams import canonical_json, sha256
from pipeline.declare.study import Study
from pipeline.execution.flight import ExecutionError
from pipeline.faults import retried
from pipeline.stores.regions import positions
from pipeline.stores.store import ResultStore

# runs whose tasks end after the block that they compute: a thread cannot be ended from outside
STOPPED: set[str] = set()


@dataclass(frozen=True)
class Work:
    """Settings (positions in `Panel.settings`) to compute on one block."""

    block: Block
    settings: tuple[int, ...]


@dataclass(frozen=True)
class Tally:
    """Trials of one setting of a block by their status.

    Attributes
    ----------
    n_trials : int
        Trials of the block.
    n_ok, n_failed, n_pending : int
        Trials that are ok, that failed, and that a budget left untried; the others are not applicable.
    n_places : int
        Places of the store that hold the setting: one per value of each method factor that it does not use.
    cause : str
        Last line of the error of the first failed trial; empty if none failed.
    """

    n_trials: int
    n_ok: int
    n_failed: int
    n_pending: int
    n_places: int
    cause: str = ""


@dataclass(frozen=True)
class Receipt:
    """Report of a worker on one piece of committed work.

    Attributes
    ----------
    work : Work
        The work.
    seconds : float
        Time that it took.
    tallies : tuple of Tally
        One per setting.
    """

    work: Work
    seconds: float
    tallies: tuple[Tally, ...]

    @property
    def n_done(self) -> int:
        """Trials that are stored with a final status, counted at every place, as `open_results` shows them."""
        return sum((tally.n_trials - tally.n_pending) * tally.n_places for tally in self.tallies)

    @property
    def n_failed(self) -> int:
        """Trials that are stored as failed, counted at every place."""
        return sum(tally.n_failed * tally.n_places for tally in self.tallies)

    def without(self, settings: Collection[int]) -> "Receipt":
        """Return the receipt of the other settings."""
        kept = [(k, tally) for k, tally in zip(self.work.settings, self.tallies, strict=True) if k not in settings]
        work = Work(self.work.block, tuple(k for k, _ in kept))
        return Receipt(work, self.seconds, tuple(tally for _, tally in kept))


class PendingWork:
    """Work that a store does not hold yet, or that is to be computed again, made one piece at a time.

    Later panels and cells come first. Iterating again gives the same work.

    Parameters
    ----------
    study : Study
        The configured study.
    store : ResultStore
        Its store.
    retry : collection of Status
        Trials with one of these statuses are computed again.
    """

    def __init__(self, study: Study, store: ResultStore, retry: Collection[Status] = ()) -> None:
        self.study = study
        self._panels = [(panel, store.pending(panel, retry)) for panel in reversed(study.panels)]

    @property
    def n_trials(self) -> int:
        """Trials over all of it, counted at every place of the store, as `open_results` shows them."""
        total = 0
        for panel, pending in self._panels:
            starts = np.arange(0, panel.n_trials, panel.block_trials)
            sizes = np.minimum(starts + panel.block_trials, panel.n_trials) - starts
            n_places = np.array([count_places(panel, setting) for setting in panel.settings()])
            total += int(np.einsum("cbs,b,s->", pending, sizes, n_places))
        return total

    def __len__(self) -> int:
        return sum(
            int(np.count_nonzero(pending if panel.settings_apart else pending.any(axis=2)))
            for panel, pending in self._panels
        )

    def __iter__(self) -> Iterator[Work]:
        for panel, pending in self._panels:
            for block in iterate_blocks(panel):
                place = block.cell, block.trials.start // panel.block_trials
                settings = tuple(int(k) for k in np.flatnonzero(pending[place]))
                if panel.settings_apart:
                    yield from (Work(block, (k,)) for k in settings)
                elif settings:
                    yield Work(block, settings)


def count_places(panel: Panel, setting: Setting) -> int:
    """Return the number of places of a cell at which a setting is stored."""
    return sum(1 for _ in positions(panel, 0, setting))


# (panel, position of the first block in the order of `iterate_blocks`, number of blocks, settings)
Run = tuple[str, int, int, tuple[int, ...]]


def pack(study: Study, works: Iterable[Work]) -> tuple[Run, ...]:
    """Return work as runs of consecutive blocks with the same settings: a thousand blocks travel as one tuple."""
    runs: list[Run] = []
    for work in works:
        panel = study.panel(work.block.panel)
        n_blocks = -(-panel.n_trials // panel.block_trials)
        at = (len(panel.cells()) - 1 - work.block.cell) * n_blocks + work.block.trials.start // panel.block_trials
        name, first, count, settings = runs[-1] if runs else ("", 0, 0, ())
        if (name, first + count, settings) == (panel.name, at, work.settings):
            runs[-1] = (name, first, count + 1, settings)
        else:
            runs.append((panel.name, at, 1, work.settings))
    return tuple(runs)


def unpack(study: Study, runs: Iterable[Run]) -> list[Work]:
    """Return the work that `pack` was given."""
    works = []
    for name, first, count, settings in runs:
        panel = study.panel(name)
        n_cells, n_blocks = len(panel.cells()), -(-panel.n_trials // panel.block_trials)
        for at in range(first, first + count):
            start = at % n_blocks * panel.block_trials
            trials = range(start, min(start + panel.block_trials, panel.n_trials))
            works.append(Work(Block(name, n_cells - 1 - at // n_blocks, trials), settings))
    return works


Evaluate = Callable[[Study, Work], list[Outcome]]


def evaluate_work(study: Study, work: Work, budget: int | None = BUDGET) -> list[Outcome]:
    """Compute the settings of some work; see `evaluate_block` for the budget."""
    settings = study.panel(work.block.panel).settings()
    return evaluate_block(study, work.block, [settings[k] for k in work.settings], budget)


@dataclass(frozen=True)
class Task:
    """Parameters that all tasks of a run share: a worker needs them to compute and commit work.

    Attributes
    ----------
    source : StudySource
        The code.
    url, spec_sha256 : str
        The store, and the hash of the spec that it must have.
    run : str
        Identifier of the run.
    announced : bool
        Whether workers announce each piece of work before they begin it, for a time limit.
    """

    source: StudySource
    url: str
    spec_sha256: str
    run: str = field(default_factory=lambda: uuid.uuid4().hex)
    announced: bool = False

    def opened(self) -> tuple[Study, ResultStore]:
        """Return the study and the store, as this process holds them; refuse if the two do not fit."""
        return retried(_opened, self.source, self.url, self.spec_sha256)

    def stored(self) -> tuple[Study, ResultStore]:
        """Return the study as the store configures it at present, which may be about to grow, and the store."""
        store = retried(ResultStore.open, self.url)
        return self.source.load().from_spec(store.spec), store

    def __call__(self, batch: Sequence[Work], evaluate: Evaluate = evaluate_work) -> list[Receipt]:
        """Compute and commit a batch of work; end early, between two pieces, if the run was stopped."""
        study, store = self.opened()
        receipts = []
        for k, work in enumerate(batch):
            if self.run in STOPPED:
                break
            if self.announced:
                self.announce(k)
            started = time.perf_counter()
            outcomes = evaluate(study, work)
            _commit(study, store, work, outcomes)
            receipts.append(_receipt(study, work, outcomes, time.perf_counter() - started))
        return receipts

    def announce(self, *position: int) -> None:
        """Announce the position in its task that this worker begins now."""
        worker = get_worker()
        message = {"key": worker.get_current_task(), "at": position, "worker": worker.address}
        # a round trip: code that holds the interpreter's lock would delay a message that is only queued
        sync(worker.loop, worker.scheduler.log_event, topic=self.run, msg=message)


def _commit(study: Study, store: ResultStore, work: Work, outcomes: Sequence[Outcome]) -> None:
    """Write the outcomes of a piece of work."""
    panel = study.panel(work.block.panel)
    for k, outcome in zip(work.settings, outcomes, strict=True):
        retried(partial(store.write, panel, work.block, panel.settings()[k], outcome))


def _receipt(study: Study, work: Work, outcomes: Sequence[Outcome], seconds: float) -> Receipt:
    panel = study.panel(work.block.panel)
    tallies = tuple(
        Tally(
            len(outcome.status),
            int((outcome.status == Status.OK).sum()),
            int(np.isin(outcome.status, FAILURES).sum()),
            outcome.n_untried,
            count_places(panel, panel.settings()[k]),
            (outcome.cause.splitlines() or [""])[-1],
        )
        for k, outcome in zip(work.settings, outcomes, strict=True)
    )
    return Receipt(work, seconds, tallies)


@lru_cache(maxsize=16)
def _opened(source: StudySource, url: str, spec_sha256: str) -> tuple[Study, ResultStore]:
    store = ResultStore.open(url)
    study = source.load().from_spec(store.spec)
    if not spec_sha256 == store.attributes["spec_sha256"] == sha256(canonical_json(study.spec())):
        raise ExecutionError(
            f"the store {url} and the code of worker {get_worker().address} are of different versions; "
            "install the same version everywhere"
        )
    return study, store
