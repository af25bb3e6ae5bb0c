"""Tasks in flight on a Dask client: submission, waiting for results, and the end of tasks that exceed a time limit.

A task that ended its worker returns with the status killed. One that exceeded the limit returns with the status timed
out, after its worker process was ended from outside: code that hangs cannot be asked to stop.
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
from pipeline.execution.monitor import Monitor
from pipeline.redact import told

_POLL_SECONDS = 0.1
_LOOK_SECONDS = 2.0
_END_SECONDS = 10  # how long a worker that is ended may take before its process is killed
RETRIES = 2  # of a task that failed transiently, by Dask, perhaps on another worker


class ExecutionError(RuntimeError):
    """The run cannot go on; what was committed is kept."""


class TransientError(RuntimeError):
    """An input/output error on a worker that a retry may cure."""


@dataclass(frozen=True)
class Refusal:
    """Result of a task that failed for a reason that no retry cures."""

    reason: str


@dataclass(frozen=True)
class Landed:
    """A task that is over.

    Attributes
    ----------
    payload : object
        The object that was submitted with it.
    result : object
        Its result, None if it returned none.
    fate : Status or None
        Killed or timed out, if it did not return.
    position : tuple of int, or None
        The position that it announced last; None if it announced none.
    transient : str
        The transient error that outlasted all retries; empty if there was none.
    """

    payload: Any
    result: Any = None
    fate: Status | None = None
    position: tuple[int, ...] | None = None
    transient: str = ""


class Flight:
    """The tasks of one run that are in flight.

    Parameters
    ----------
    client : distributed.Client
        Client of the cluster.
    run : str
        Identifier of the run, and topic under which its tasks announce their position.
    time_limit : float, optional
        Longest time in seconds between two announcements of a task; workers must be processes with nannies.
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
        future.add_done_callback(self._done.put)  # asking for each whether it is done would take the time of all

    def wait(self) -> list[Landed]:
        """Wait for at least one task to be over.

        Raises
        ------
        ExecutionError
            If a task failed for a reason that no retry cures, or the scheduler was lost.
        """
        while True:
            with translating_losses():
                landed = [self._land(future) for future in self._take_done()] + list(self._end_expired())
                if landed:
                    self._monitor.note_result()
                    return landed
                self._monitor.look()

    def give_up(self) -> None:
        """Cancel the tasks that have not begun, and await none of them."""
        futures = list(self._payloads)
        self._payloads.clear()
        self.client.cancel(futures, force=True)

    def _take_done(self) -> list[Future]:
        """Return futures that are done, as soon as there is one; none if the limit is to be checked first."""
        try:
            done = [self._done.get(timeout=_LOOK_SECONDS if self._limit is None else _POLL_SECONDS)]
        except Empty:
            return []
        done += [self._done.get() for _ in range(self._done.qsize())]
        return [future for future in done if future in self._payloads]  # the others were cancelled here

    def _take_announcement(self, event: tuple[float, dict[str, Any]]) -> None:
        message = event[1]
        self._begun[message["key"]] = tuple(message["at"]), message["worker"], time.monotonic()

    def _land(self, future: Future) -> Landed:
        payload = self._payloads.pop(future)
        position = self._begun.pop(future.key, (None,))[0]
        try:
            result = future.result()
        except KilledWorker:
            return Landed(payload, fate=Status.KILLED, position=position)
        except TransientError as error:
            return Landed(payload, transient=str(error))
        except (CancelledError, OSError):
            if future.status in ("cancelled", "lost"):
                raise
            raise ExecutionError(f"a worker failed: {told(future.exception())}") from None
        except Exception as error:
            raise ExecutionError(f"a worker failed: {told(error)}") from error
        if isinstance(result, Refusal):
            raise ExecutionError(f"a worker failed: {result.reason}")
        return Landed(payload, result)

    def _end_expired(self) -> Iterator[Landed]:
        """End the workers of tasks that exceed the limit."""
        for future in list(self._payloads) if self._limit is not None else ():
            position, worker, since = self._begun.get(future.key, ((), "", float("inf")))
            if self._limit is not None and time.monotonic() - since > self._limit:
                payload = self._payloads.pop(future)
                del self._begun[future.key]
                self.client.cancel([future], force=True)
                self.client.restart_workers([worker], timeout=_END_SECONDS, raise_for_error=False)
                yield Landed(payload, fate=Status.TIMED_OUT, position=position)


@contextmanager
def translating_losses() -> Iterator[None]:
    """Turn exceptions of a client that has lost its scheduler into an `ExecutionError` that says what to do."""
    try:
        yield
    except (CancelledError, OSError) as error:
        raise ExecutionError("the scheduler was lost; start it again, then resume") from error
