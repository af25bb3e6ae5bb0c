"""Tasks in flight on a Dask client: hand them over, wait for some to land, and end what outlasts a time limit.

A task that ended its worker lands with the status killed, and one that outlasted the limit with timed out, after the
worker process that computed it was ended from outside: code that hangs cannot be asked to stop.
"""

import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from distributed import Client, Future, KilledWorker

from pipeline.blocks.evaluate import Status

_POLL_SECONDS = 0.1
_SILENT_SECONDS = 60  # after which a run without workers says so
_END_SECONDS = 10  # how long a worker that is ended may take to obey before its process is killed


class ExecutionError(RuntimeError):
    """The run cannot go on; what was committed is kept."""


@dataclass(frozen=True)
class Landed:
    """A task that is over.

    Attributes
    ----------
    payload : object
        What was submitted with it.
    result : object
        What it returned, None where it did not.
    fate : Status or None
        Killed or timed out, where it did not return.
    position : int
        For a task that timed out, the piece that it had begun.
    """

    payload: Any
    result: Any = None
    fate: Status | None = None
    position: int = 0


class Flight:
    """The tasks of one run that are in flight.

    Parameters
    ----------
    client : distributed.Client
        Where to compute.
    run : str
        Name of the run, and topic under which its tasks announce what they begin.
    time_limit : float, optional
        How long a task may compute one announced piece, in seconds; workers must be processes with nannies.
    """

    def __init__(self, client: Client, run: str, time_limit: float | None = None) -> None:
        self.client, self._run, self._limit = client, run, time_limit
        self._payloads: dict[Future, Any] = {}
        self._done: SimpleQueue[Future] = SimpleQueue()
        self._begun: dict[str, tuple[int, str, float]] = {}
        if time_limit is not None:
            client.subscribe_topic(run, self._take_announcement)

    def __len__(self) -> int:
        return len(self._payloads)

    def submit(self, payload: Any, function: Callable[..., Any], *args: Any) -> None:
        """Hand a task to the scheduler."""
        future = self.client.submit(function, *args, pure=False)
        self._payloads[future] = payload
        future.add_done_callback(self._done.put)  # asking for each whether it is done would take the time of all

    def wait(self) -> list[Landed]:
        """Wait for at least one task to be over.

        Raises
        ------
        ExecutionError
            If a task raised, or the scheduler was lost.
        """
        while True:
            with translating_losses():
                landed = [self._land(future) for future in self._take_done()] + list(self._end_expired())
            if landed:
                return landed

    def give_up(self) -> None:
        """Cancel what has not begun."""
        self.client.cancel(list(self._payloads), force=True)

    def _take_done(self) -> list[Future]:
        """Return what is done, as soon as something is; nothing where it is time to look at the limit first."""
        try:
            done = [self._done.get(timeout=_SILENT_SECONDS if self._limit is None else _POLL_SECONDS)]
        except Empty:
            if self._limit is None and not self.client.nthreads():
                warnings.warn("no worker is left; the run waits for one, Ctrl-C ends it", stacklevel=2)
            return []
        done += [self._done.get() for _ in range(self._done.qsize())]
        return [future for future in done if future in self._payloads]  # the others were cancelled here

    def _take_announcement(self, event: tuple[float, dict[str, Any]]) -> None:
        message = event[1]
        self._begun[message["key"]] = message["at"], message["worker"], time.monotonic()

    def _land(self, future: Future) -> Landed:
        payload = self._payloads.pop(future)
        self._begun.pop(future.key, None)
        try:
            return Landed(payload, future.result())
        except KilledWorker:
            return Landed(payload, fate=Status.KILLED)
        except (CancelledError, OSError):
            if future.status in ("cancelled", "lost"):
                raise
            raise ExecutionError(f"a worker failed: {future.exception()}") from None
        except Exception as error:
            raise ExecutionError(f"a worker failed: {error}") from error

    def _end_expired(self) -> Iterator[Landed]:
        """End the workers of tasks that outlast the limit."""
        for future in list(self._payloads):
            position, worker, since = self._begun.get(future.key, (0, "", float("inf")))
            if self._limit is not None and time.monotonic() - since > self._limit:
                payload = self._payloads.pop(future)
                del self._begun[future.key]
                self.client.cancel([future], force=True)
                self.client.restart_workers([worker], timeout=_END_SECONDS, raise_for_error=False)
                yield Landed(payload, fate=Status.TIMED_OUT, position=position)


@contextmanager
def translating_losses() -> Iterator[None]:
    """Turn what a client raises that has lost its scheduler into an `ExecutionError` that says what to do."""
    try:
        yield
    except (CancelledError, OSError) as error:
        raise ExecutionError("the scheduler was lost; start it again, then resume") from error
