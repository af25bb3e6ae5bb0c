"""Tasks in flight on a Dask client: submission, collection of results, and time limits.

A task whose worker process was terminated has the status killed. A task that exceeds the time limit has the status
timed out; its worker process is terminated, since code that hangs cannot be interrupted.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from distributed import Client, Future, KilledWorker

from pipeline.blocks.evaluate import Status
from pipeline.errors import ExecutionError
from pipeline.execution.monitor import Monitor
from pipeline.redact import format_error

_POLL_SECONDS = 0.1
_LOOK_SECONDS = 2.0
_END_SECONDS = 10  # time in seconds for a worker to close before its process is killed
RETRIES = 2  # retries by Dask of a task that failed transiently


class TransientError(RuntimeError):
    """Input/output error on a worker that a retry may fix."""


@dataclass(frozen=True)
class Refusal:
    """Return value of a task that failed permanently."""

    reason: str


@dataclass(frozen=True)
class TaskResult:
    """Result of a task.

    Attributes
    ----------
    payload : object
        Object that was submitted with the task.
    value : object
        Return value of the task; None if it did not return.
    status : Status or None
        `Status.KILLED` or `Status.TIMED_OUT`; None if the task returned or failed transiently.
    position : tuple of int, or None
        Last position that the task announced, such as a setting and a trial; None if it announced none.
    transient : str
        Transient error that remained after all retries, or an empty string.
    """

    payload: Any
    value: Any = None
    status: Status | None = None
    position: tuple[int, ...] | None = None
    transient: str = ""


class TasksInFlight:
    """Tasks of one run that are in flight.

    Parameters
    ----------
    client : distributed.Client
        Client of the cluster.
    run : str
        Identifier of the run, and topic on which its tasks announce their positions.
    time_limit : float, optional
        Maximum time in seconds between two announcements of a task; requires worker processes with nannies.
    """

    def __init__(self, client: Client, run: str, time_limit: float | None = None) -> None:
        self.client, self._run, self._limit = client, run, time_limit
        self._payloads: dict[Future, Any] = {}
        self._done: SimpleQueue[Future] = SimpleQueue()
        self._begun: dict[str, tuple[tuple[int, ...], str, float]] = {}
        self._monitor = Monitor(client)
        client.subscribe_topic(run, self._take_announcement)

    def __len__(self) -> int:
        return len(self._payloads)

    def submit(self, payload: Any, function: Callable[..., Any], *args: Any, **options: Any) -> None:
        """Submit a task; options are those of `distributed.Client.submit`."""
        future = self.client.submit(function, *args, **{"pure": False, "retries": RETRIES, **options})
        self._payloads[future] = payload
        future.add_done_callback(self._done.put)  # polling each future would take linear time

    def wait(self) -> list[TaskResult]:
        """Wait for at least one task to finish, and return the results of all finished tasks.

        Raises
        ------
        ExecutionError
            If a task failed permanently, or the connection to the scheduler was lost.
        """
        while True:
            with translating_losses():
                results = [self._collect(future) for future in self._take_done()] + list(self._end_expired())
                if results:
                    self._monitor.note_result()
                    return results
                self._monitor.check()

    def cancel(self) -> None:
        """Cancel the tasks that have not started, without waiting for the others."""
        futures = list(self._payloads)
        self._payloads.clear()
        self.client.cancel(futures, force=True)

    def _take_done(self) -> list[Future]:
        """Return the futures that finish within the polling interval."""
        try:
            done = [self._done.get(timeout=_LOOK_SECONDS if self._limit is None else _POLL_SECONDS)]
        except Empty:
            return []
        done += [self._done.get() for _ in range(self._done.qsize())]
        return [future for future in done if future in self._payloads]  # without futures that were cancelled here

    def _take_announcement(self, event: tuple[float, dict[str, Any]]) -> None:
        message = event[1]
        self._begun[message["key"]] = tuple(message["at"]), message["worker"], time.monotonic()

    def _collect(self, future: Future) -> TaskResult:
        payload = self._payloads.pop(future)
        position = self._begun.pop(future.key, (None,))[0]
        try:
            value = future.result()
        except KilledWorker:
            return TaskResult(payload, status=Status.KILLED, position=position)
        except TransientError as error:
            return TaskResult(payload, transient=str(error))
        except (CancelledError, OSError):
            if future.status in ("cancelled", "lost"):
                raise
            raise ExecutionError(f"a worker failed: {format_error(future.exception())}") from None
        except Exception as error:
            raise ExecutionError(f"a worker failed: {format_error(error)}") from error
        if isinstance(value, Refusal):
            raise ExecutionError(f"a worker failed: {value.reason}")
        return TaskResult(payload, value)

    def _end_expired(self) -> Iterator[TaskResult]:
        """Terminate the workers of tasks beyond the time limit, and yield the results of these tasks."""
        for future in list(self._payloads) if self._limit is not None else ():
            position, worker, since = self._begun.get(future.key, ((), "", float("inf")))
            if self._limit is not None and time.monotonic() - since > self._limit:
                payload = self._payloads.pop(future)
                del self._begun[future.key]
                self.client.cancel([future], force=True)
                self.client.restart_workers([worker], timeout=_END_SECONDS, raise_for_error=False)
                yield TaskResult(payload, status=Status.TIMED_OUT, position=position)


@contextmanager
def translating_losses() -> Iterator[None]:
    """Convert exceptions of a client that has lost its scheduler to `ExecutionError`."""
    try:
        yield
    except (CancelledError, OSError) as error:
        raise ExecutionError("the connection to the scheduler was lost; restart the scheduler, then resume") from error
