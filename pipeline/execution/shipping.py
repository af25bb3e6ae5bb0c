"""Plugin that sends a study to each worker once; tasks refer to the study by the identifier of their run."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from distributed import Client, Worker, WorkerPlugin

from pipeline.errors import ExecutionError
from pipeline.execution.isolate import close_children
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
                close_children(run)


def plugin_name(run: str) -> str:
    """Return the name of the worker plugin of a run."""
    return f"dpstudies-{run}"


def shipped_task(run: str, session: str = "") -> Task:
    """Return the task that is registered in this worker process for a run, with the identifier of a session."""
    try:
        return replace(_tasks[run], session=session)
    except KeyError:
        raise ExecutionError(f"the run {run} has ended or was cancelled; resume its store") from None


@contextmanager
def shipped(client: Client, task: Task) -> Iterator[None]:
    """Register a task on all current and future workers of a cluster, and remove it at the end."""
    client.register_plugin(ShippedTask(task))
    try:
        yield
    finally:
        unship(client, task.run)


def unship(client: Client, run: str) -> None:
    """Remove a run from the workers, if the scheduler responds."""
    if client.status == "running":
        with suppress(Exception):
            client.unregister_worker_plugin(plugin_name(run))
