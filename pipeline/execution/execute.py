"""Computation of the pending blocks of a store on a Dask cluster.

The driver keeps a bounded window of tasks in flight and batches small blocks into tasks (`batch_size`). Workers write
to the store and return receipts, never arrays, so committed work survives the driver.

After a worker was lost, the blocks of its tasks and all blocks submitted later are suspect: workers compute them in
child processes, which isolate failing trials; see `pipeline.execution.isolate`. Dask retries tasks that failed
transiently. If the retries fail, the blocks of the task are computed one per task, and blocks that fail again remain
pending.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import count, islice

from distributed import Client

from pipeline.clusters.profiles import THREADS, Profile
from pipeline.execution.budget import Budget, UnfinishedWork
from pipeline.execution.in_flight import TaskResult, TasksInFlight, translating_losses
from pipeline.execution.naming import task_key
from pipeline.execution.tasks import compute
from pipeline.execution.window import Window
from pipeline.execution.work import STOPPED, PendingWork, Receipt, Task, Work, pack

_TASK_SECONDS = 1.0
_TASKS_PER_SECOND = 100  # of all threads; a task takes 3 to 9 ms of processor time of the scheduler and the driver
_LARGEST_BATCH = 1000  # blocks
_MOST_LOST_WORKERS = 10  # number of workers that are lost with a suspect block before it remains pending
_MOST_RUNS = 60  # largest number of runs of consecutive blocks per task


def execute(
    client: Client,
    task: Task,
    works: PendingWork,
    on_receipt: Callable[[Receipt], None],
    profile: Profile = THREADS,
    allow_failures: bool = False,
    has_lost_worker: bool = False,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Compute work until all of it is committed.

    `has_lost_worker` is True to compute all blocks in child processes, and `check` raises an error to end the run.
    """
    in_flight, window = TasksInFlight(client, check), Window(client, profile)
    driver = _Driver(task, works, on_receipt, in_flight, window, Budget(works.study, allow_failures), has_lost_worker)
    try:
        driver.run()
    except BaseException:
        STOPPED.add(task.run)  # running tasks finish after their current block
        driver.in_flight.cancel()
        raise
    driver.unfinished.raise_if_any()


@dataclass(frozen=True)
class _Batch:
    """Payload of a task that computes several work items."""

    works: list[Work]
    lifted: bool = False  # True if failing trials are not limited
    n_lost: int = 0  # number of workers that were lost with these work items


@dataclass
class _Driver:
    """State and steps of one call of `execute`."""

    task: Task
    works: PendingWork
    on_receipt: Callable[[Receipt], None]
    in_flight: TasksInFlight
    window: Window
    budget: Budget
    has_lost_worker: bool
    unfinished: UnfinishedWork = field(default_factory=UnfinishedWork)

    def __post_init__(self) -> None:
        self._rest, self._n_left, self._numbers = iter(self.works), len(self.works), count()
        self._queue: deque[Work] = deque()
        self._apart: deque[_Batch] = deque()  # batches of one work item, which are not merged
        self._seconds: dict[str, float] = {}

    def run(self) -> None:
        """Compute the pending work until none is left."""
        while self._n_left or self._apart or len(self.in_flight):
            with translating_losses():
                self.window.update()
            self._fill()
            for result in self.in_flight.wait():
                self._collect(result, result.payload)

    def _fill(self) -> None:
        """Submit tasks until the window is full; work that is computed again comes first."""
        while (self._apart or self._n_left) and len(self.in_flight) < self.window.n_tasks:
            if self._apart:
                batch = self._apart.popleft()
            else:
                self._queue.extend(islice(self._rest, max(0, _LARGEST_BATCH - len(self._queue))))
                batch = _Batch(self._next_works())
                self._n_left -= len(batch.works)
            budget = None if batch.lifted else self.budget.of_block
            runs = pack(self.works.study, batch.works)
            key = task_key(self.works.study, batch.works, self.task.run, next(self._numbers))
            arguments = self.task.run, self.task.session, runs, budget, self.has_lost_worker
            self.in_flight.submit(batch, compute, *arguments, key=key, priority=min(batch.n_lost, 1))

    def _next_works(self) -> list[Work]:
        """Return the work items of the next task, which belong to one panel."""
        panel = self._queue[0].block.panel
        wanted = batch_size(self._seconds.get(panel), self._n_left, self.window.n_threads)
        works = [self._queue.popleft()]
        n_runs = 1
        while self._queue and len(works) < wanted and self._queue[0].block.panel == panel and n_runs < _MOST_RUNS:
            works.append(self._queue.popleft())
            n_runs += len(pack(self.works.study, works[-2:])) - 1
        return works

    def _collect(self, result: TaskResult, batch: _Batch) -> None:
        self.unfinished.note_task(result.transient)
        if result.transient:
            if len(batch.works) > 1:
                self._apart.extend(replace(batch, works=[work]) for work in batch.works)
            else:
                self.unfinished.add(batch.works, result.transient)
        elif result.is_lost and batch.n_lost < _MOST_LOST_WORKERS:
            self.has_lost_worker = True
            self._apart.extend(replace(batch, works=[work], n_lost=batch.n_lost + 1) for work in batch.works)
        elif result.is_lost:
            self.unfinished.add(batch.works, f"{batch.n_lost + 1} workers terminated while they had the block")
        else:
            self.window.note_task(sum(receipt.seconds for receipt in result.value))
            self._take(result.value)
            left = batch.works[len(result.value) :]  # remaining works exist if the worker was closed during the task
            self._queue.extendleft(reversed(left))
            self._n_left += len(left)

    def _take(self, receipts: Iterable[Receipt]) -> None:
        for receipt in receipts:
            panel = receipt.work.block.panel
            before = self._seconds.get(panel, receipt.seconds)
            self._seconds[panel] = 0.8 * before + 0.2 * receipt.seconds
            again = self.budget.note_receipt(receipt)
            if again:
                work = Work(receipt.work.block, again, again)
                self._apart.append(_Batch([work], lifted=True))
                receipt = receipt.without(again)
            self.on_receipt(receipt)


def batch_size(seconds: float | None, n_left: int, n_threads: int) -> int:
    """Return the number of work items of the next task.

    Tasks last about a second, or longer on more than 100 threads, so that the scheduler has at most 100 tasks per
    second. They become smaller near the end of a run, to balance the load.

    Examples
    --------
    >>> [batch_size(0.5, 10**6, n_threads) for n_threads in (1, 100, 1_000, 10_000)]
    [2, 2, 20, 50]
    """
    if seconds is None:
        return 1
    wanted = max(_TASK_SECONDS, n_threads / _TASKS_PER_SECOND) / max(seconds, 1e-6)
    return min(max(1, int(wanted)), _LARGEST_BATCH, math.ceil(n_left / (2 * n_threads)))
