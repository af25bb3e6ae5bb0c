"""Plugin that sends a study to each worker once; tasks refer to the study by the identifier of their run."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from distributed import Client, SchedulerPlugin, Worker, WorkerPlugin

from pipeline.errors import ExecutionError
from pipeline.execution.work import STOPPED, Task

_tasks: dict[str, Task] = {}
_holders: Counter[str] = Counter()  # number of workers per run in this process
_lock = threading.Lock()


class ShippedTask(WorkerPlugin):
    """Worker plugin that registers the task of a run on all current and future workers."""

    def __init__(self, task: Task) -> None:
        self.name = plugin_name(task.run)
        self._task = task

    def setup(self, worker: Worker) -> None:
        """Register the task in the process of a worker, without importing the study."""
        with _lock:
            _tasks[self._task.run] = self._task
            _holders[self._task.run] += 1
            STOPPED.discard(self._task.run)  # the run was stopped if an adaptive cluster removed all workers

    def teardown(self, worker: Worker) -> None:
        """Remove the task; a running batch ends after its current block."""
        run = self._task.run
        with _lock:
            _holders[run] -= 1
            if _holders[run] <= 0:
                del _holders[run]
                _tasks.pop(run, None)
                STOPPED.add(run)


class SingleAttempt(SchedulerPlugin):
    """Scheduler plugin that makes tasks of a run fail at the first termination of their worker.

    The driver isolates a trial that terminates its worker; each further attempt would terminate another worker.
    Tasks of other runs have the scheduler's default number of allowed failures.
    """

    def __init__(self, run: str) -> None:
        self.name = f"{plugin_name(run)}-deaths"
        self._run = run

    def update_graph(self, scheduler: Any, *, tasks: Any, **_: Any) -> None:
        """Mark new tasks of the run as having used all but one of their allowed failures."""
        for key in tasks:
            if self._run in str(key) and key in scheduler.tasks:
                scheduler.tasks[key].suspicious = scheduler.allowed_failures


def plugin_name(run: str) -> str:
    """Return the name of the worker plugin of a run."""
    return f"dpstudies-{run}"


def shipped_task(run: str, session: str = "") -> Task:
    """Return the task that is registered in this worker process for a run, with the identifier of a session.

    Raises
    ------
    ExecutionError
        If the run has ended or was cancelled.
    """
    try:
        return replace(_tasks[run], session=session)
    except KeyError:
        raise ExecutionError(f"the run {run} has ended or was cancelled; resume its store") from None


@contextmanager
def shipped(client: Client, task: Task, handed_over: bool = False) -> Iterator[None]:
    """Register a task on all current and future workers of a cluster; remove it at the end.

    Parameters
    ----------
    client : distributed.Client
        Client of the cluster.
    task : Task
        The task.
    handed_over : bool
        True if the run continues without this client; the task then stays registered unless an error occurs.
    """
    client.register_plugin(ShippedTask(task))
    stays = False
    try:
        if not handed_over:
            client.register_plugin(SingleAttempt(task.run))
        yield
        stays = handed_over
    finally:
        if not handed_over and client.status == "running":
            with suppress(Exception):
                client.unregister_scheduler_plugin(f"{plugin_name(task.run)}-deaths")
        if not stays:
            unship(client, task.run)


def unship(client: Client, run: str) -> None:
    """Remove a run from the workers, if the scheduler responds."""
    if client.status == "running":
        with suppress(Exception):
            client.unregister_worker_plugin(plugin_name(run))
