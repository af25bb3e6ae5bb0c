"""Run the pending blocks of a store on a Dask client.

The driver keeps a bounded window of tasks in flight and batches small blocks into tasks of a second. Workers write to
the store and return receipts, never arrays, so a driver that dies loses nothing that was committed.

A task that ended its worker process, or exceeded the time limit, is isolated beside the remaining work: see
`pipeline.execution.isolate`. A task that failed transiently is retried by Dask; if that does not help, its blocks are
tried one by one, and what fails again stays pending.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import islice

from distributed import Client

from pipeline.blocks.evaluate import Status
from pipeline.clusters.profiles import THREADS, Profile
from pipeline.execution.budget import Budget, BudgetError, Leftovers
from pipeline.execution.flight import Flight, Landed, translating_losses
from pipeline.execution.isolate import Isolation
from pipeline.execution.naming import Namer
from pipeline.execution.tasks import compute
from pipeline.execution.window import Window
from pipeline.execution.work import STOPPED, PendingWork, Receipt, Task, Work, pack

_TASK_SECONDS = 1.0
_LARGEST_BATCH = 1000  # blocks
_MOST_RUNS = 60  # of consecutive blocks, in one task


def execute(
    client: Client,
    task: Task,
    works: PendingWork,
    on_receipt: Callable[[Receipt], None],
    time_limit: float | None = None,
    *,
    profile: Profile = THREADS,
    allow_failures: bool = False,
) -> None:
    """Run work until it is committed.

    Parameters
    ----------
    client : distributed.Client
        Client of the cluster.
    task : Task
        Parameters of the run, which the workers have: see `pipeline.execution.shipping.shipped`.
    works : PendingWork
        The work, in order.
    on_receipt : callable
        Called in this thread for each piece of work that is committed.
    time_limit : float, optional
        Longest time for one piece of work, in seconds; needs worker processes with nannies, and a task that announces
        its work.
    profile : Profile
        Profile of the cluster, which says how far it may grow.
    allow_failures : bool
        Whether to go on with a method that fails on everything.

    Raises
    ------
    ExecutionError
        If a worker cannot load the study or write to the store, a method fails on everything, or work stays pending.
    KeyboardInterrupt
        After the tasks that had begun came to the end of their block.
    """
    driver = _Driver(client, task, works, on_receipt, time_limit, profile, allow_failures)
    try:
        driver.run()
    except BaseException as error:
        STOPPED.add(task.run)  # tasks that have begun come to the end of their block
        driver.flight.give_up()
        if isinstance(error, BudgetError):
            driver.isolation.record()
        raise
    driver.leftovers.refuse()


@dataclass(frozen=True)
class _Batch:
    """Payload of a task that computes a batch of work, and whether it may try every trial."""

    works: list[Work]
    lifted: bool = False


class _Driver:
    """State of `execute`."""

    def __init__(
        self,
        client: Client,
        task: Task,
        works: PendingWork,
        on_receipt: Callable[[Receipt], None],
        time_limit: float | None,
        profile: Profile,
        allow_failures: bool,
    ) -> None:
        study = works.study
        self._task, self._study, self._on_receipt = task, study, on_receipt
        self.flight = Flight(client, task.run, time_limit)
        self.leftovers = Leftovers()
        self._budget = Budget(study, allow_failures)
        self.isolation = Isolation(self.flight, task, study, self._budget, self.leftovers)
        self._window = Window(client, profile)
        self._namer = Namer(study, task.run)
        self._rest, self._n_left = iter(works), len(works)
        self._queue: deque[Work] = deque()
        self._apart: deque[_Batch] = deque()  # batches of one work each, that are not to be joined with others
        self._seconds: dict[str, float] = {}

    def run(self) -> None:
        """Compute until nothing is left."""
        while self._n_left or self._apart or len(self.isolation) or len(self.flight):
            with translating_losses():
                self._window.look()
            self._fill()
            for landed in self.flight.wait():
                if isinstance(landed.payload, _Batch):
                    self._land(landed, landed.payload)
                else:
                    self._take(self.isolation.take(landed, self._window.n_threads))

    def _fill(self) -> None:
        """Submit tasks until the window is full: steps of the isolation before others."""
        self.isolation.submit(self._window.n_tasks - len(self.flight))
        while (self._apart or self._n_left) and len(self.flight) < self._window.n_tasks:
            if self._apart:
                batch = self._apart.popleft()
            else:
                self._queue.extend(islice(self._rest, max(0, _LARGEST_BATCH - len(self._queue))))
                batch = _Batch(self._next_works())
                self._n_left -= len(batch.works)
            budget = None if batch.lifted else self._budget.of_block
            runs = pack(self._study, batch.works)
            key = self._namer.name(batch.works)
            self.flight.submit(batch, compute, self._task.run, self._task.session, runs, budget, key=key)

    def _next_works(self) -> list[Work]:
        """Take work of one panel for about a second, but a fair share at most, so that no worker has a long tail."""
        fair = math.ceil(self._n_left / (2 * self._window.n_threads))
        panel = self._queue[0].block.panel
        each = self._seconds.get(panel)
        wanted = 1 if each is None else min(max(1, int(_TASK_SECONDS / max(each, 1e-6))), _LARGEST_BATCH, fair)
        works = [self._queue.popleft()]
        n_runs = 1
        while self._queue and len(works) < wanted and self._queue[0].block.panel == panel and n_runs < _MOST_RUNS:
            works.append(self._queue.popleft())
            n_runs += len(pack(self._study, works[-2:])) - 1
        return works

    def _land(self, landed: Landed, batch: _Batch) -> None:
        """Go on from a batch that is over."""
        self.leftovers.note_task(landed.transient)
        if landed.transient:
            if len(batch.works) > 1:
                self._apart.extend(replace(batch, works=[work]) for work in batch.works)
            else:
                self.leftovers.add(batch.works, landed.transient)
        elif landed.fate == Status.KILLED:
            self.isolation.suspect(batch.works)
        elif landed.fate == Status.TIMED_OUT:
            assert landed.position is not None
            (at,) = landed.position
            self.isolation.suspect([batch.works[at]])
            others = batch.works[:at] + batch.works[at + 1 :]
            self._queue.extendleft(reversed(others))
            self._n_left += len(others)
        else:
            self._window.note_task(sum(receipt.seconds for receipt in landed.result))
            self._take(landed.result)
            left = batch.works[len(landed.result) :]  # by a worker that was closed within the task
            self._queue.extendleft(reversed(left))
            self._n_left += len(left)

    def _take(self, receipts: Iterable[Receipt]) -> None:
        for receipt in receipts:
            panel = receipt.work.block.panel
            before = self._seconds.get(panel, receipt.seconds)
            self._seconds[panel] = 0.8 * before + 0.2 * receipt.seconds
            again = self._budget.note_receipt(receipt)
            if again:
                work = Work(receipt.work.block, again, again)
                self._apart.append(_Batch([work], lifted=True))
                receipt = receipt.without(again)
            self._on_receipt(receipt)
