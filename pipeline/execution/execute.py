"""Computation of the pending blocks of a store on a Dask cluster.

The driver keeps a bounded window of tasks in flight and batches small blocks into tasks (`batch_size`). Workers write
to the store and return receipts, never arrays, so committed work survives the driver.

After a worker was lost, the blocks of its tasks and all blocks submitted later are suspect: workers compute them in
child processes, which isolate failing trials; see `pipeline.execution.isolate`. Requests to the store are retried
within a task (`pipeline.faults.retried`). Tasks that fail transiently all the same, as
`pipeline.execution.tasks.on_worker` decides, are repeated twice by Dask, at once. If these fail, the blocks of the task
are computed one per task, with the same retries, and blocks that fail again remain pending. Ten such tasks in
succession stop the run. Other errors of a task end the run at once. A child process that ends by a fault of its machine
is started three times before its task fails.
"""

import logging
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice, takewhile

import dask
from dask.utils import parse_timedelta
from distributed import Client

from pipeline.blocks.evaluate import BUDGET, ENDED_COST, Block
from pipeline.clusters.cluster import most_threads
from pipeline.clusters.profiles import THREADS
from pipeline.clusters.user_cluster import ChosenCluster, UserCluster
from pipeline.declare.factors import format_values
from pipeline.declare.study import Study
from pipeline.errors import ExecutionError, counted, verb
from pipeline.execution.in_flight import TaskResult, TasksInFlight, translating_losses
from pipeline.execution.tasks import compute
from pipeline.execution.work import PendingWork, Receipt, Task, Work, pack
from pipeline.execution.worker_runs import RUNS

_LOG = logging.getLogger(__name__)
_TASK_SECONDS = 1.0
_TASKS_PER_SECOND = 100  # of all threads; a task takes 3 to 9 ms of processor time of the scheduler and the driver
_LARGEST_BATCH = 1000  # blocks
_MOST_LOST_WORKERS = 10  # retries of a suspect block whose worker is lost, before it remains pending
_MOST_RUNS = 60  # largest number of runs of consecutive blocks per task
_FEWEST_TRIALS = 10  # minimum length of a block whose failure stops the run; a shorter block may fail by chance
_MOST_FAILED_TASKS = 10  # number of consecutive tasks that exhaust their retries before a run stops
_LONGEST_KEY = 60  # characters of the values of a cell
_ASK_SECONDS = 1.0
_PER_THREAD = 2  # number of tasks per thread: one that runs and one that waits
_UNKNOWN_SECONDS = 0.5  # Dask's estimate for tasks before the first result
_SPARE = 1.5  # factor for tasks that finish between two updates of the adaptive cluster
_SHORTEST_SECONDS = 0.05


def task_key(study: Study, works: Sequence[Work], run: str, number: int) -> str:
    """Return the key of a task for work items of one panel, of the form ``study/panel-cell-trials-run-number``."""
    # Dask groups tasks by the words of letters at the start, study and panel; groups of cells are too small to queue
    block = works[0].block
    panel = study.panel(block.panel)
    values = ",".join(format_values(panel.cells()[block.cell]))
    values = values if len(values) <= _LONGEST_KEY else f"{values[: _LONGEST_KEY - 3]}..."
    n_cells = len({work.block.cell for work in works})
    more = f"+{n_cells - 1}" if n_cells > 1 else ""
    span = f"{block.trials.start}..{works[-1].block.trials.stop - 1}" if n_cells == 1 else f"{len(works)}-blocks"
    head = f"{study.name}/{panel.name}".replace("-", "_")
    return f"{head}-({values}){more}-{span}-{run}-{number}"


class Window:
    """Number of tasks to keep on the scheduler, enough for the largest cluster that the profile allows.

    An adaptive cluster requests threads to finish its tasks within a target duration; see `_UNKNOWN_SECONDS`. A cluster
    of the user may be adaptive: it has tasks to grow to twice its size, each counted as at least a second.
    """

    def __init__(self, client: Client, cluster: ChosenCluster) -> None:
        self._client, self._cluster = client, cluster
        target = dask.config.get("distributed.adaptive.target-duration")
        if isinstance(cluster, UserCluster):
            self._is_adaptive, self._shortest = True, _TASK_SECONDS
            adaptive = getattr(client.cluster, "_adaptive", None)
            self._target = parse_timedelta(getattr(adaptive, "target_duration", None) or target)
            self._unknown = self._target
        else:
            self._is_adaptive, self._shortest = bool(cluster.adapt), _SHORTEST_SECONDS
            self._target = parse_timedelta(cluster.adapt.get("target_duration") or target)
            self._unknown = _UNKNOWN_SECONDS
        self._updated = -math.inf
        self._task_seconds: float | None = None
        self.n_threads = 1

    def update(self) -> None:
        """Update the number of threads, at most once per second."""
        if time.monotonic() - self._updated > _ASK_SECONDS:
            with translating_losses(self._client):
                self.n_threads = most_threads(self._cluster, self._client)
            self._updated = time.monotonic()

    def note_task(self, seconds: float) -> None:
        """Record the duration of a task."""
        self._task_seconds = _smoothed(self._task_seconds, seconds)

    @property
    def n_tasks(self) -> int:
        """Number of tasks to keep in flight."""
        wanted = _PER_THREAD * self.n_threads
        if not self._is_adaptive:
            return wanted
        seconds = self._unknown if self._task_seconds is None else max(self._task_seconds, self._shortest)
        return max(wanted, math.ceil(_SPARE * self._target * self.n_threads / seconds))


class Budget:
    """Counts of failures in one call of `execute`, and limits for settings under which no trial has succeeded before.

    The run stops after 100 failed trials of such a setting, of which a killed or timed-out one counts as ten, or if all
    trials of a block of at least ten fail under all settings of its panel and none of the panel has succeeded.
    Committed failures stay failed; trials that were not computed, and blocks that were not committed, stay pending.
    """

    def __init__(self, study: Study, lifted: bool = False, succeeded: Iterable[tuple[str, int]] = ()) -> None:
        self._study, self._lifted = study, lifted
        # number of failed trials after which `evaluate_block` skips the rest of a block
        self.of_block = None if lifted else BUDGET
        self._succeeded = set(succeeded)  # panels and settings with an ok trial
        self._n_failed: Counter[tuple[str, int]] = Counter()
        self._spent: Counter[tuple[str, int]] = Counter()
        self._failed: dict[Block, set[int]] = {}

    def note_receipt(self, receipt: Receipt) -> tuple[int, ...]:
        """Record the trials of a receipt; return the settings to recompute without a budget."""
        panel, again = self._study.panel(receipt.work.block.panel), []
        for k, tally in zip(receipt.work.settings, receipt.tallies, strict=True):
            place = panel.name, k
            if tally.n_ok:
                self._succeeded.add(place)
            self._n_failed[place] += tally.n_failed
            self._spent[place] += tally.n_failed + (ENDED_COST - 1) * tally.n_ended
            if self._lifted:
                continue
            if place in self._succeeded:
                again += [k] if tally.n_pending else []
            elif self._spent[place] >= BUDGET:
                cause = f" ({tally.cause})" if tally.cause else ""
                raise ExecutionError(
                    f"method {panel.settings()[k].label} of panel {panel.name} failed on all "
                    f"{self._n_failed[place]:,} computed trials{cause}: the run stops; correct or omit it, or compute "
                    "every trial with --allow-failures"
                )
        is_long = len(receipt.work.block.trials) >= _FEWEST_TRIALS
        if is_long and not self._lifted and panel.name not in {name for name, _ in self._succeeded}:
            failed = self._failed.setdefault(receipt.work.block, set())  # settings under which all its trials failed
            failed.update(receipt.work.settings)
            causes = [tally.cause for tally in receipt.tallies if tally.n_failed]
            if causes and len(failed) == len(panel.settings()):
                raise ExecutionError(
                    f"every trial of the first block of panel {panel.name} failed ({causes[0]}): the run stops; "
                    "correct the study, or compute every trial with --allow-failures"
                )
        return tuple(again)


@dataclass(frozen=True)
class _Batch:
    """Payload of a task that computes several work items."""

    works: list[Work]
    lifted: bool = False  # True if failing trials are not limited
    n_lost: int = 0  # number of workers that were lost with these work items

    def singly(self) -> "list[_Batch]":
        """Return a batch for each work item."""
        return [replace(self, works=[work]) for work in self.works]


def execute(
    client: Client,
    task: Task,
    works: PendingWork,
    on_receipt: Callable[[Receipt], None],
    cluster: ChosenCluster = THREADS,
    allow_failures: bool = False,
    has_lost_worker: bool = False,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Compute work until all is committed, after the loss of a worker in child processes; `check` may end the run."""
    with TasksInFlight(client, check) as in_flight:
        succeeded = () if allow_failures else works.find_succeeded()  # reads statuses
        window, budget = Window(client, cluster), Budget(works.study, allow_failures, succeeded)
        try:
            _Driver(task, works, on_receipt, in_flight, window, budget, has_lost_worker).run()
        except BaseException:
            RUNS.stop(
                task.run
            )  # running tasks finish after their current block, and commit it if the session has not ended
            raise


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

    def __post_init__(self) -> None:
        self._rest, self._n_left, self._numbers = iter(self.works), len(self.works), count()
        self._queue: deque[Work] = deque()
        self._apart: deque[_Batch] = deque()  # batches of one work item, which are not merged
        self._seconds: dict[str, float] = {}
        self._unfinished: Counter[str] = Counter()  # work items that remain pending after this run, by reason
        self._n_failed_tasks = 0  # in a row

    def run(self) -> None:
        """Compute the pending work; raise an `ExecutionError` with the most common reason if some remains pending."""
        while self._n_left or self._apart or len(self.in_flight):
            self.window.update()
            self._fill()
            for result in self.in_flight.wait():
                self._collect(result, result.payload)
        if self._unfinished:
            (reason, _), *others = self._unfinished.most_common()
            more = f", and {counted(len(others), 'more reason')}" if others else ""
            n_blocks = self._unfinished.total()
            remain = verb(n_blocks, "remains", "remain")
            raise ExecutionError(f"{counted(n_blocks, 'block')} {remain} pending: {reason}{more}")

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
        candidates = list(takewhile(lambda work: work.block.panel == panel, islice(self._queue, wanted)))
        n_works = sum(n_blocks for _, _, n_blocks, *_ in pack(self.works.study, candidates)[:_MOST_RUNS])
        return [self._queue.popleft() for _ in range(n_works)]

    def _collect(self, result: TaskResult, batch: _Batch) -> None:
        self._n_failed_tasks = self._n_failed_tasks + 1 if result.transient else 0
        if self._n_failed_tasks >= _MOST_FAILED_TASKS:
            raise ExecutionError(
                f"{self._n_failed_tasks} consecutive tasks failed, each after several attempts: {result.transient}"
            )
        if result.transient and len(batch.works) > 1:
            self._apart.extend(batch.singly())
        elif result.transient:
            self._unfinished[result.transient] += 1
        elif result.is_lost and batch.n_lost < _MOST_LOST_WORKERS:
            if not self.has_lost_worker:
                _LOG.info("a worker was lost; its blocks, and all later ones, are computed in child processes")
            self.has_lost_worker = True
            self._apart.extend(replace(batch, n_lost=batch.n_lost + 1).singly())
        elif result.is_lost:
            self._unfinished[f"{batch.n_lost + 1} workers terminated while they had the block"] += len(batch.works)
        else:
            self.window.note_task(sum(receipt.seconds for receipt in result.value))
            self._take(result.value)
            left = batch.works[len(result.value) :]  # remaining works exist if the worker was closed during the task
            self._queue.extendleft(reversed(left))
            self._n_left += len(left)

    def _take(self, receipts: Iterable[Receipt]) -> None:
        for receipt in receipts:
            panel = receipt.work.block.panel
            self._seconds[panel] = _smoothed(self._seconds.get(panel), receipt.seconds)
            again = self.budget.note_receipt(receipt)
            if again:
                self._apart.append(_Batch([Work(receipt.work.block, again, again)], lifted=True))
                receipt = receipt.without(again)
            self.on_receipt(receipt)


def _smoothed(mean: float | None, value: float) -> float:
    """Return the exponential moving average of a duration after a further one."""
    return value if mean is None else 0.8 * mean + 0.2 * value


def batch_size(seconds: float | None, n_left: int, n_threads: int) -> int:
    """Return the number of work items of the next task, which lasts a second, or longer on more than 100 threads.

    The scheduler then has at most 100 tasks per second. Tasks become smaller near the end, to balance the load.

    Examples
    --------
    >>> [batch_size(0.5, 10**6, n_threads) for n_threads in (1, 100, 1_000, 10_000)]
    [2, 2, 20, 50]
    """
    if seconds is None:
        return 1
    wanted = max(_TASK_SECONDS, n_threads / _TASKS_PER_SECOND) / max(seconds, 1e-6)
    return min(max(1, int(wanted)), _LARGEST_BATCH, math.ceil(n_left / (2 * n_threads)))
