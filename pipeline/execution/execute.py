"""Computation of the pending blocks of a store on a Dask cluster.

The driver keeps a bounded window of tasks in flight and batches small blocks into tasks (`batch_size`). Workers write
to the store and return receipts, never arrays, so committed work survives the driver.

Tasks that terminated their worker or exceeded the time limit are isolated while the remaining work continues; see
`pipeline.execution.isolate`. Dask retries tasks that failed transiently. If the retries fail, the blocks of the task
are computed one per task, and blocks that fail again remain pending.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import islice

from distributed import Client

from pipeline.blocks.evaluate import Status
from pipeline.clusters.profiles import THREADS, Profile
from pipeline.execution.budget import Budget, BudgetError, UnfinishedWork
from pipeline.execution.in_flight import TaskResult, TasksInFlight, translating_losses
from pipeline.execution.isolate import Isolation
from pipeline.execution.naming import Namer
from pipeline.execution.tasks import compute
from pipeline.execution.window import Window
from pipeline.execution.work import STOPPED, PendingWork, Receipt, Task, Work, pack

_TASK_SECONDS = 1.0
_TASKS_PER_SECOND = 100  # of all threads; a task takes 3 to 9 ms of processor time of the scheduler and the driver
_LARGEST_BATCH = 1000  # blocks
_MOST_RUNS = 60  # largest number of runs of consecutive blocks per task


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
    """Compute work until all of it is committed.

    Parameters
    ----------
    client : distributed.Client
        Client of the cluster.
    task : Task
        Parameters of the run, registered on the workers; see `pipeline.execution.shipping.shipped`.
    works : PendingWork
        Pending work, in order.
    on_receipt : callable
        Function called in this thread with the receipt of each committed work item.
    time_limit : float, optional
        Maximum time per work item, in seconds; requires worker processes with nannies, and a task that announces its
        work items.
    profile : Profile
        Profile of the cluster, which limits the growth of an adaptive cluster.
    allow_failures : bool
        True to continue if a method fails on all trials.

    Raises
    ------
    ExecutionError
        If a worker cannot load the study or write to the store, a method fails on all trials, or work remains pending.
    KeyboardInterrupt
        After an interrupt; running tasks finish their current block.
    """
    driver = _Driver(client, task, works, on_receipt, time_limit, profile, allow_failures)
    try:
        driver.run()
    except BaseException as error:
        STOPPED.add(task.run)  # running tasks finish after their current block
        driver.in_flight.cancel()
        if isinstance(error, BudgetError):
            driver.isolation.record()
        raise
    driver.unfinished.raise_if_any()


@dataclass(frozen=True)
class _Batch:
    """Payload of a task that computes several work items; if `lifted`, failing trials are not limited."""

    works: list[Work]
    lifted: bool = False


class _Driver:
    """State and steps of one call of `execute`."""

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
        self.in_flight = TasksInFlight(client, task.run, time_limit)
        self.unfinished = UnfinishedWork()
        self._budget = Budget(study, allow_failures)
        self.isolation = Isolation(self.in_flight, task, study, self._budget, self.unfinished)
        self._window = Window(client, profile)
        self._namer = Namer(study, task.run)
        self._rest, self._n_left = iter(works), len(works)
        self._queue: deque[Work] = deque()
        self._apart: deque[_Batch] = deque()  # batches of one work item, which are not merged
        self._seconds: dict[str, float] = {}

    def run(self) -> None:
        """Compute the pending work until none is left."""
        while self._n_left or self._apart or len(self.isolation) or len(self.in_flight):
            with translating_losses():
                self._window.update()
            self._fill()
            for result in self.in_flight.wait():
                if isinstance(result.payload, _Batch):
                    self._collect(result, result.payload)
                else:
                    self._take(self.isolation.take(result, self._window.n_threads))

    def _fill(self) -> None:
        """Submit tasks until the window is full; steps of the isolation come first."""
        self.isolation.submit(self._window.n_tasks - len(self.in_flight))
        while (self._apart or self._n_left) and len(self.in_flight) < self._window.n_tasks:
            if self._apart:
                batch = self._apart.popleft()
            else:
                self._queue.extend(islice(self._rest, max(0, _LARGEST_BATCH - len(self._queue))))
                batch = _Batch(self._next_works())
                self._n_left -= len(batch.works)
            budget = None if batch.lifted else self._budget.of_block
            runs = pack(self._study, batch.works)
            key = self._namer.name(batch.works)
            self.in_flight.submit(batch, compute, self._task.run, self._task.session, runs, budget, key=key)

    def _next_works(self) -> list[Work]:
        """Return the work items of the next task, which belong to one panel."""
        panel = self._queue[0].block.panel
        wanted = batch_size(self._seconds.get(panel), self._n_left, self._window.n_threads)
        works = [self._queue.popleft()]
        n_runs = 1
        while self._queue and len(works) < wanted and self._queue[0].block.panel == panel and n_runs < _MOST_RUNS:
            works.append(self._queue.popleft())
            n_runs += len(pack(self._study, works[-2:])) - 1
        return works

    def _collect(self, result: TaskResult, batch: _Batch) -> None:
        self.unfinished.note_task(result.transient)
        if result.transient:
            if len(batch.works) > 1:
                self._apart.extend(replace(batch, works=[work]) for work in batch.works)
            else:
                self.unfinished.add(batch.works, result.transient)
        elif result.status == Status.KILLED:
            self.isolation.suspect(batch.works)
        elif result.status == Status.TIMED_OUT:
            assert result.position is not None
            (at,) = result.position
            self.isolation.suspect([batch.works[at]])
            others = batch.works[:at] + batch.works[at + 1 :]
            self._queue.extendleft(reversed(others))
            self._n_left += len(others)
        else:
            self._window.note_task(sum(receipt.seconds for receipt in result.value))
            self._take(result.value)
            left = batch.works[len(result.value) :]  # remaining works exist if the worker was closed during the task
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


def batch_size(seconds: float | None, n_left: int, n_threads: int) -> int:
    """Return the number of work items of the next task.

    Tasks last about a second, or longer on more than 100 threads, so that the scheduler has at most 100 tasks per
    second. They become smaller near the end of a run, to balance the load.

    Parameters
    ----------
    seconds : float or None
        Mean duration of a work item; None before the first result.
    n_left : int
        Number of work items that are not submitted yet.
    n_threads : int
        Number of threads of the cluster.

    Examples
    --------
    >>> [batch_size(0.5, 10**6, n_threads) for n_threads in (1, 100, 1_000, 10_000)]
    [2, 2, 20, 50]
    """
    if seconds is None:
        return 1
    wanted = max(_TASK_SECONDS, n_threads / _TASKS_PER_SECOND) / max(seconds, 1e-6)
    return min(max(1, int(wanted)), _LARGEST_BATCH, math.ceil(n_left / (2 * n_threads)))
