"""A study travels to each worker once, with a plugin; its tasks name the run that they belong to."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from distributed import Client, SchedulerPlugin, Worker, WorkerPlugin

from pipeline.execution.flight import ExecutionError
from pipeline.execution.work import STOPPED, Task

_tasks: dict[str, Task] = {}
_holders: Counter[str] = Counter()  # workers of this process that hold a run: several may share a process
_lock = threading.Lock()


class ShippedTask(WorkerPlugin):
    """Give each worker the task of a run, those that join later included; take it away at the end of the run."""

    def __init__(self, task: Task) -> None:
        self.name = plugin_name(task.run)
        self._task = task

    def setup(self, worker: Worker) -> None:
        """Hold the task in the process of a worker. Nothing is imported yet."""
        with _lock:
            _tasks[self._task.run] = self._task
            _holders[self._task.run] += 1
            STOPPED.discard(self._task.run)  # an adaptive cluster without workers may have stopped it

    def teardown(self, worker: Worker) -> None:
        """Let the task go; a batch of the run that is computed just now ends after its block."""
        run = self._task.run
        with _lock:
            _holders[run] -= 1
            if _holders[run] <= 0:
                del _holders[run]
                _tasks.pop(run, None)
                STOPPED.add(run)


class OneDeath(SchedulerPlugin):
    """Let the tasks of a run fail as soon as their worker has ended once, whatever the scheduler allows others.

    The driver isolates the trial that ends its worker; each further attempt of the scheduler would end another worker.
    """

    def __init__(self, run: str) -> None:
        self.name = f"{plugin_name(run)}-deaths"
        self._run = run

    def update_graph(self, scheduler: Any, *, tasks: Any, **_: Any) -> None:
        """Count new tasks of the run as if they had used up all but one of the attempts that are allowed."""
        for key in tasks:
            if self._run in str(key) and key in scheduler.tasks:
                scheduler.tasks[key].suspicious = scheduler.allowed_failures


def plugin_name(run: str) -> str:
    """Return the name of the plugin that ships a run."""
    return f"dpstudies-{run}"


def shipped_task(run: str, session: str = "") -> Task:
    """Return the task of a run in the process of a worker, for a session that writes.

    Raises
    ------
    ExecutionError
        If the run is over, or was cancelled.
    """
    try:
        return replace(_tasks[run], session=session)
    except KeyError:
        raise ExecutionError(f"the run {run} is over, or was cancelled") from None


@contextmanager
def shipped(client: Client, task: Task, handed_over: bool = False) -> Iterator[None]:
    """Ship a task to all workers of a cluster, present and future, and take it away in the end.

    Parameters
    ----------
    client : distributed.Client
        Client of the cluster.
    task : Task
        The task.
    handed_over : bool
        True for a run that goes on without this client: unless an error occurs, the task stays with the workers.
    """
    client.register_plugin(ShippedTask(task))
    stays = False
    try:
        if not handed_over:
            client.register_plugin(OneDeath(task.run))
        yield
        stays = handed_over
    finally:
        if not handed_over and client.status == "running":
            with suppress(Exception):
                client.unregister_scheduler_plugin(f"{plugin_name(task.run)}-deaths")
        if not stays:
            unship(client, task.run)


def unship(client: Client, run: str) -> None:
    """Take a run away from the workers, if the scheduler answers."""
    if client.status == "running":
        with suppress(Exception):
            client.unregister_worker_plugin(plugin_name(run))
