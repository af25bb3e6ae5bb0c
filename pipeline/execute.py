"""Run the pending blocks of a store on a Dask client.

The driver keeps a bounded window of tasks in flight and batches small blocks into tasks of a second. Workers write to
the store and return receipts, never arrays, so a driver that dies loses nothing that was committed.

A task that killed its worker process is taken apart in quarantine, with nothing else in flight: blocks one by one, then
settings one by one. What kills its worker alone is stored as killed; the rest completes.
"""

import math
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from distributed import Client, Future, KilledWorker, get_worker, wait

from pipeline.evaluate import Block, Status, evaluate_block, unevaluated
from pipeline.plan import iterate_blocks
from pipeline.source import StudySource
from pipeline.store import ResultStore
from pipeline.streams import canonical_json, sha256
from pipeline.study import Study

_TASK_SECONDS = 1.0
_LARGEST_BATCH = 1000
_stopped: set[str] = set()  # runs that threads of this process are to give up: a thread cannot be ended from outside


@dataclass(frozen=True)
class Work:
    """Settings (positions in `Panel.settings`) that are to be computed on one block."""

    block: Block
    settings: tuple[int, ...]

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


class ExecutionError(RuntimeError):
    """The run cannot go on; what was committed is kept."""


def pending_work(study: Study, store: ResultStore) -> list[Work]:
    """List what is not committed, the blocks of later panels and cells first; settings apart where a panel says so."""
    found = []
    for panel in reversed(study.panels):
        pending = store.pending(panel)
        for block in iterate_blocks(panel):
            place = block.cell, block.trials.start // panel.block_trials
            settings = tuple(int(k) for k in np.flatnonzero(pending[place]))
            if panel.settings_apart:
                found += [Work(block, (k,)) for k in settings]
            elif settings:
                found.append(Work(block, settings))
    return found


def run_task(source: StudySource, url: str, spec_sha256: str, run: str, batch: Sequence[Work]) -> list[Receipt]:
    """Compute and commit a batch: the task that workers run.

    The worker reads the spec from the store and the code from `source`, and refuses if the two do not fit.
    """
    study, store = _opened(source, url, spec_sha256)
    receipts = []
    for work in batch:
        if run in _stopped:
            break
        started = time.perf_counter()
        panel = study.panel(work.block.panel)
        settings = [panel.settings()[k] for k in work.settings]
        n_failed = 0
        for setting, outcome in zip(settings, evaluate_block(study, work.block, settings), strict=True):
            store.write(panel, work.block, setting, outcome)
            n_failed += int((outcome.status == Status.FAILED).sum())
        receipts.append(Receipt(work, time.perf_counter() - started, n_failed))
    return receipts


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


def execute(
    client: Client,
    source: StudySource,
    study: Study,
    store: ResultStore,
    works: Iterable[Work],
    on_receipt: Callable[[Receipt], None],
) -> None:
    """Run work until it is committed.

    Parameters
    ----------
    client : distributed.Client
        Where to compute.
    source, study, store
        The code, the configured study, and the store that holds its template.
    works : iterable of Work
        What to do, in order.
    on_receipt : callable
        Called in this thread for each piece of work that is committed.

    Raises
    ------
    ExecutionError
        If a worker cannot load the study or write to the store.
    KeyboardInterrupt
        After the tasks that had begun came to the end of their block.
    """
    _Driver(client, source, study, store, on_receipt).run(works)


class _Driver:
    """The state of one run: what is queued, what is in flight, what is suspected of killing workers."""

    def __init__(
        self,
        client: Client,
        source: StudySource,
        study: Study,
        store: ResultStore,
        on_receipt: Callable[[Receipt], None],
    ) -> None:
        self.client, self.study, self.store, self.on_receipt = client, study, store, on_receipt
        self.run_id = uuid.uuid4().hex
        self.task = (source, store.url, store.attributes["spec_sha256"], self.run_id)
        self.in_flight: dict[Future, list[Work]] = {}
        self.seconds: dict[str, float] = {}

    def run(self, works: Iterable[Work]) -> None:
        queue = deque(works)
        suspects: deque[Work] = deque()
        try:
            while queue or self.in_flight:
                n_threads = max(1, sum(self.client.nthreads().values()))  # workers come and go
                while queue and len(self.in_flight) < 2 * n_threads:
                    self._submit(self._next_batch(queue, math.ceil(len(queue) / (2 * n_threads))))
                suspects += self._collect()
            while suspects:
                suspect = suspects.popleft()
                self._submit([suspect])
                if self._collect():
                    suspects.extendleft(self._convict(suspect))
        except BaseException:
            self._stop_tasks()
            raise

    def _next_batch(self, queue: deque[Work], fair: int) -> list[Work]:
        """Take work of one panel for about a second, but a fair share at most, so that no worker has a long tail."""
        panel = queue[0].block.panel
        each = self.seconds.get(panel)
        wanted = 1 if each is None else min(max(1, int(_TASK_SECONDS / max(each, 1e-6))), _LARGEST_BATCH, fair)
        batch = [queue.popleft()]
        while queue and len(batch) < wanted and queue[0].block.panel == panel:
            batch.append(queue.popleft())
        return batch

    def _submit(self, batch: list[Work]) -> None:
        self.in_flight[self.client.submit(run_task, *self.task, batch, pure=False)] = batch

    def _collect(self) -> list[Work]:
        """Wait for a task; pass on its receipts, or return the work of one that killed its worker."""
        suspects: list[Work] = []
        try:
            with self.client.as_current():  # the client is no default: a study leaves the user's Dask as it is
                done = wait(list(self.in_flight), return_when="FIRST_COMPLETED").done
        except (CancelledError, OSError) as error:
            raise ExecutionError("the scheduler was lost; start it again, then resume") from error
        for future in done:
            batch = self.in_flight.pop(future)
            try:
                receipts = future.result()
            except KilledWorker:
                suspects += batch
                continue
            except Exception as error:
                raise ExecutionError(f"a worker failed: {error}") from error
            for receipt in receipts:
                panel = receipt.work.block.panel
                before = self.seconds.get(panel, receipt.seconds)
                self.seconds[panel] = 0.8 * before + 0.2 * receipt.seconds
                self.on_receipt(receipt)
        return suspects

    def _convict(self, suspect: Work) -> list[Work]:
        """Handle work that killed its worker alone: split it by setting, or store its trials as killed."""
        if len(suspect.settings) > 1:
            return [Work(suspect.block, (k,)) for k in reversed(suspect.settings)]
        panel = self.study.panel(suspect.block.panel)
        n_trials = len(suspect.block.trials)
        outcome = unevaluated(panel, n_trials, Status.KILLED, "the worker process died while it computed this block")
        self.store.write(panel, suspect.block, panel.settings()[suspect.settings[0]], outcome)
        self.on_receipt(Receipt(suspect, 0.0, n_trials))
        return []

    def _stop_tasks(self) -> None:
        """Give up what has not begun, and let what has begun come to the end of its block."""
        _stopped.add(self.run_id)
        self.client.cancel(list(self.in_flight), force=True)
