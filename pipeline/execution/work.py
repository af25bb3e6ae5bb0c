"""Work: what of a store is pending, and how a worker computes and commits it."""

import time
import uuid
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from distributed import get_worker
from distributed.utils import sync

from pipeline.blocks.evaluate import FAILURES, Block, Status, evaluate_around, evaluate_block
from pipeline.blocks.plan import iterate_blocks
from pipeline.declare.source import StudySource
from pipeline.declare.streams import canonical_json, sha256
from pipeline.declare.study import Study
from pipeline.execution.flight import ExecutionError
from pipeline.stores.commits import Commit, Planned
from pipeline.stores.store import STALE, ResultStore

# runs that threads of this process are to give up: a thread cannot be ended from outside
STOPPED: set[str] = set()


@dataclass(frozen=True)
class Work:
    """Settings (positions in `Panel.settings`) that are to be computed on one block.

    Attributes
    ----------
    block : Block
        The block.
    settings : tuple of int
        The settings.
    condemned : tuple of (int, int, Status)
        Setting and trial of what is not to be computed, since it ends its worker, and the status that it gets.
    stale : tuple of int
        Those of the settings whose status chunk must be removed before they are computed again.
    """

    block: Block
    settings: tuple[int, ...]
    condemned: tuple[tuple[int, int, Status], ...] = ()
    stale: tuple[int, ...] = ()

    @property
    def n_evaluations(self) -> int:
        """Trials times settings."""
        return len(self.block.trials) * len(self.settings)


@dataclass(frozen=True)
class Receipt:
    """What a worker says of one piece of work that it has committed."""

    work: Work
    seconds: float
    n_failed: int


class PendingWork:
    """What a store does not hold yet, or is to compute again, made one piece at a time.

    Later panels and cells come first. Iterating again gives the same work.

    Parameters
    ----------
    study : Study
        The configured study.
    store : ResultStore
        Its store.
    retry : collection of Status
        What is to be computed again.
    """

    def __init__(self, study: Study, store: ResultStore, retry: Collection[Status] = ()) -> None:
        self._panels = [(panel, store.scan(panel, retry)) for panel in reversed(study.panels)]

    @property
    def n_evaluations(self) -> int:
        """Trials times settings, over all of it."""
        total = 0
        for panel, states in self._panels:
            starts = np.arange(0, panel.n_trials, panel.block_trials)
            sizes = np.minimum(starts + panel.block_trials, panel.n_trials) - starts
            total += int((np.count_nonzero(states, axis=(0, 2)) * sizes).sum())
        return total

    def __len__(self) -> int:
        return sum(
            int(np.count_nonzero(states if panel.settings_apart else states.any(axis=2)))
            for panel, states in self._panels
        )

    def __iter__(self) -> Iterator[Work]:
        for panel, states in self._panels:
            for block in iterate_blocks(panel):
                here = states[block.cell, block.trials.start // panel.block_trials]
                settings = tuple(int(k) for k in np.flatnonzero(here))
                stale = tuple(k for k in settings if here[k] == STALE)
                if panel.settings_apart:
                    yield from (Work(block, (k,), stale=(k,) if k in stale else ()) for k in settings)
                elif settings:
                    yield Work(block, settings, stale=stale)


@dataclass(frozen=True)
class Task:
    """What every task of a run needs, so that a worker can compute and commit work.

    Attributes
    ----------
    source : StudySource
        The code.
    url, spec_sha256 : str
        The store, and the hash of the spec that it must have.
    session : str
        Identifier of the session that writes.
    run : str
        Which run it is.
    announced : bool
        Whether workers say which piece of work they begin, for a time limit.
    """

    source: StudySource
    url: str
    spec_sha256: str
    session: str = ""
    run: str = field(default_factory=lambda: uuid.uuid4().hex)
    announced: bool = False

    def opened(self) -> tuple[Study, ResultStore]:
        """Return the study and the store, as this process holds them; refuse if the two do not fit."""
        return _opened(self.source, self.url, self.spec_sha256, self.session)

    def __call__(self, batch: Sequence[Work]) -> list[Receipt]:
        """Compute a batch, and commit all of it at its end: the task that workers run."""
        study, store = self.opened()
        receipts = []
        with store.commit([_planned(study, work) for work in batch]) as commit:
            for k, work in enumerate(batch):
                if self.run in STOPPED:
                    break
                self.announce(k)
                receipts.append(_compute(study, commit, work))
        return receipts

    def probe(self, batch: Sequence[Work]) -> None:
        """Compute work, and forget it: whether the worker survives is what counts."""
        study, _ = self.opened()
        for k, work in enumerate(batch):
            self.announce(k)
            panel = study.panel(work.block.panel)
            evaluate_block(study, work.block, [panel.settings()[j] for j in work.settings])

    def announce(self, position: int) -> None:
        """Say that this worker begins the piece of its batch at a position."""
        if self.announced:
            worker = get_worker()
            message = {"key": worker.get_current_task(), "at": position, "worker": worker.address}
            # a round trip: code that holds the interpreter's lock would keep a message that is only queued
            sync(worker.loop, worker.scheduler.log_event, topic=self.run, msg=message)


def _planned(study: Study, work: Work) -> Planned:
    """Return the settings of a piece of work, as a commit takes them."""
    panel = study.panel(work.block.panel)
    settings, stale = ([panel.settings()[k] for k in chosen] for chosen in (work.settings, work.stale))
    return Planned(panel, work.block, settings, stale)


def _compute(study: Study, commit: Commit, work: Work) -> Receipt:
    """Compute one piece of work, and write its values."""
    started = time.perf_counter()
    panel = study.panel(work.block.panel)
    settings = [panel.settings()[k] for k in work.settings]
    if work.condemned:
        outcomes = [
            evaluate_around(study, work.block, setting, {t: status for j, t, status in work.condemned if j == k})
            for k, setting in zip(work.settings, settings, strict=True)
        ]
    else:
        outcomes = evaluate_block(study, work.block, settings)
    n_failed = 0
    for setting, outcome in zip(settings, outcomes, strict=True):
        commit.write(panel, work.block, setting, outcome)
        n_failed += int(np.isin(outcome.status, FAILURES).sum())
    return Receipt(work, time.perf_counter() - started, n_failed)


@lru_cache(maxsize=16)
def _opened(source: StudySource, url: str, spec_sha256: str, session: str) -> tuple[Study, ResultStore]:
    store = ResultStore.open(url, session or None, damaged=True)
    study = source.load().from_spec(store.spec)
    if not spec_sha256 == store.attributes["spec_sha256"] == sha256(canonical_json(study.spec())):
        raise ExecutionError(
            f"the store {url} and the code of worker {get_worker().address} are of different versions; "
            "install the same version everywhere"
        )
    return study, store
