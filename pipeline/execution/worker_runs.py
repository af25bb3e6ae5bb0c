"""Runs of a process: their tasks and child processes, and those that have stopped.

Dask calls plugins and tasks of workers as plain functions, and a cluster of threads shares the process of the driver.
They have only the process in common, so that the object `RUNS` is global. Its methods alone change it.
"""

import threading
from collections import Counter
from collections.abc import Callable
from typing import Protocol, TypeVar

from pipeline.execution.work import Task


class Closable(Protocol):
    """Resource of a run in a process."""

    def close(self) -> None:
        """Release the resource."""


_Children = TypeVar("_Children", bound=Closable)


class WorkerRuns:
    """Runs of one process, by their identifiers; methods may be called from all threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tasks: dict[str, Task] = {}
        self._n_workers: Counter[str] = Counter()  # of this process
        self._stopped: set[str] = set()
        self._children: dict[str, Closable] = {}
        self._computed: set[str] = set()  # names of studies

    def register(self, task: Task) -> None:
        """Add a worker that computes a task; a run that stopped when all its workers left continues."""
        with self._lock:
            self._tasks[task.run] = task
            self._n_workers[task.run] += 1
            self._stopped.discard(task.run)

    def unregister(self, run: str) -> None:
        """Remove a worker; without workers, the run stops, and its child processes end."""
        children = None
        with self._lock:
            self._n_workers[run] -= 1
            if self._n_workers[run] <= 0:
                del self._n_workers[run]
                self._tasks.pop(run, None)
                self._stopped.add(run)
                children = self._children.pop(run, None)
        if children is not None:
            children.close()

    def task(self, run: str) -> Task:
        """Return the task of a run; raise KeyError if no worker has it."""
        return self._tasks[run]

    def stop(self, run: str) -> None:
        """Let the tasks of a run end after their current block, since threads cannot be terminated."""
        self._stopped.add(run)

    def has_stopped(self, run: str) -> bool:
        """Return True if the tasks of a run should end."""
        return run in self._stopped

    def children(self, run: str, start: Callable[[], _Children]) -> _Children:
        """Return the child processes of a run, which `start` starts at the first call."""
        with self._lock:
            if run not in self._children:
                self._children[run] = start()
            return self._children[run]  # type: ignore[return-value]

    def note_computed(self, study: str) -> None:
        """Record that trials of a study were computed in this process."""
        self._computed.add(study)

    def has_computed(self, study: str) -> bool:
        """Return True if trials of a study were computed in this process."""
        return study in self._computed


RUNS = WorkerRuns()
