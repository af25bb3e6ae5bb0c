"""Tasks in flight on a Dask client: submission, and collection of results."""

import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

import psutil
from dask.utils import format_bytes
from distributed import Client, Future, KilledWorker

from pipeline.errors import ExecutionError, counted
from pipeline.redact import format_error

_LOOK_SECONDS = 2.0
_SILENT_SECONDS = 10.0
_HEARTBEAT_SECONDS = 5.0
_MOST_LOOKS = 4  # number of looks without a heartbeat after which a worker does not respond
RETRIES = 2  # retries by Dask of a task that failed transiently


class TransientError(RuntimeError):
    """Input/output error on a worker that a retry may fix."""


@dataclass(frozen=True)
class Refusal:
    """Return value of a task that failed permanently."""

    reason: str


@dataclass(frozen=True)
class TaskResult:
    """Result of a task."""

    payload: Any
    value: Any = None
    is_lost: bool = False
    transient: str = ""


class TasksInFlight:
    """Tasks of one run that are in flight, as a context manager that cancels them after an exception."""

    def __init__(self, client: Client, check: Callable[[], None] = lambda: None) -> None:
        self.client, self._check = client, check
        self._payloads: dict[Future, Any] = {}
        self._done: SimpleQueue[Future] = SimpleQueue()
        self._monitor = Monitor(client)

    def __len__(self) -> int:
        return len(self._payloads)

    def __enter__(self) -> "TasksInFlight":
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()

    def submit(self, payload: Any, function: Callable[..., Any], *args: Any, **options: Any) -> None:
        """Submit a task; options are those of `distributed.Client.submit`."""
        with translating_losses(self.client):
            future = self.client.submit(function, *args, **{"pure": False, "retries": RETRIES, **options})
        self._payloads[future] = payload
        future.add_done_callback(self._done.put)  # polling each future would take linear time

    def wait(self) -> list[TaskResult]:
        """Wait for at least one task to finish, and return the results of all finished tasks; `check` may end it."""
        while True:
            self._check()
            with translating_losses(self.client):
                results = [self._collect(future) for future in self._take_done()]
                if results:
                    self._monitor.note_result()
                self._monitor.check()
                if results:
                    return results

    def results(self) -> Iterator[TaskResult]:
        """Yield the results of all tasks, also of those that are submitted meanwhile."""
        while len(self):
            yield from self.wait()

    def first_problem(self, describe_loss: Callable[[Any], str], others: str, noun: str) -> str:
        """Return the first problem of the tasks, and the number of others, or an empty string."""
        problems = {}
        for result in self.results():
            problem = describe_loss(result.payload) if result.is_lost else result.value or result.transient
            if problem:
                problems[result.payload] = problem
        if not problems:
            return ""
        n_others = len(problems) - 1
        return problems[min(problems)] + (f"; {others} {counted(n_others, f'more {noun}')}" if n_others else "")

    def cancel(self) -> None:
        """Cancel the tasks that have not started, without waiting for the others."""
        futures = list(self._payloads)
        self._payloads.clear()
        if futures and self.client.status == "running":
            self.client.cancel(futures, force=True)

    def _take_done(self) -> list[Future]:
        """Return the futures that finish within the polling interval."""
        try:
            done = [self._done.get(timeout=_LOOK_SECONDS)]
        except Empty:
            return []
        done += [self._done.get() for _ in range(self._done.qsize())]
        return [future for future in done if future in self._payloads]  # without futures that were cancelled here

    def _collect(self, future: Future) -> TaskResult:
        payload = self._payloads.pop(future)
        try:
            value = future.result()
        except KilledWorker:
            return TaskResult(payload, is_lost=True)
        except TransientError as error:
            return TaskResult(payload, transient=str(error))
        except (CancelledError, OSError):
            if future.status in ("cancelled", "lost"):
                raise
            raise ExecutionError(f"a worker failed: {format_error(future.exception())}") from None
        except Exception as error:
            raise ExecutionError(f"a worker failed: {format_error(error)}") from error
        finally:
            future.release()  # a client of the user keeps the results of its futures
        if isinstance(value, Refusal):
            raise ExecutionError(f"a worker failed: {value.reason}")
        return TaskResult(payload, value)


@contextmanager
def translating_losses(client: Client) -> Iterator[None]:
    """Convert exceptions of a client that has lost its scheduler, or that its user has closed, to `ExecutionError`."""
    try:
        yield
    except ExecutionError:
        raise
    except Exception as error:
        if isinstance(error, CancelledError | OSError) or client.status in ("closing", "closed"):
            raise ExecutionError(
                "the connection to the scheduler was lost; restart the scheduler, then resume"
            ) from error
        raise


class Monitor:
    """Monitor that warns, once per cause, if workers cannot compute, and that ends suspended workers."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._since = self._looked = time.monotonic()
        self._warned = ""
        self._last_seen: dict[str, float] = {}
        self._n_looks: dict[str, int] = {}

    def note_result(self) -> None:
        """Record that a task returned."""
        self._since = time.monotonic()
        self._warned = ""

    def check(self) -> None:
        """Check the heartbeats of the workers, and, if no task has returned for `_SILENT_SECONDS`, their states."""
        now = time.monotonic()
        is_silent, is_due = now - self._since >= _SILENT_SECONDS, now - self._looked >= _HEARTBEAT_SECONDS
        if not is_silent and not is_due:
            return
        workers = self._client.scheduler_info(n_workers=-1).get("workers")
        if workers is None:  # the client is connecting again
            return
        if is_due:
            self._looked = now
            self._check_heartbeats(workers)
        if not is_silent:
            return
        cause, text = find_cause(workers)
        if cause and cause != self._warned:
            warnings.warn(text, stacklevel=2)
        self._warned = cause
        self._since = now

    def _check_heartbeats(self, workers: dict[str, dict[str, Any]]) -> None:
        """Warn about workers that do not respond; looks are counted, since this process may be suspended itself."""
        before, self._last_seen = self._last_seen, {name: state.get("last_seen", 0) for name, state in workers.items()}
        same = [name for name, seen in self._last_seen.items() if before.get(name) == seen]
        self._n_looks = {name: self._n_looks.get(name, 0) + 1 for name in same}
        silent = [name for name, n_looks in self._n_looks.items() if n_looks >= _MOST_LOOKS]
        for name in silent:
            if self._n_looks[name] > _MOST_LOOKS:
                continue
            state = ""
            if workers[name].get("nanny"):
                state = self._client.run(end_suspended, workers=[name], nanny=True, on_error="return").get(name)
            if state == psutil.STATUS_RUNNING:  # its trials hold the GIL
                continue
            if state == psutil.STATUS_STOPPED:
                action = "its process was suspended, and is restarted"
            elif len(silent) < len(workers):
                action = "other workers continue, and compute its blocks when the scheduler removes it"
            else:
                action = "no other worker responds either, and the run is waiting"
            seconds = _MOST_LOOKS * _HEARTBEAT_SECONDS
            warnings.warn(f"worker {name} has not responded for {seconds:g} s: {action}", stacklevel=2)


def end_suspended(dask_worker: Any) -> str:
    """Kill the worker process of a nanny if it is suspended, so that the nanny restarts it; return its state."""
    process = psutil.Process(dask_worker.pid)
    state: str = process.status()
    if state == psutil.STATUS_STOPPED:
        process.kill()
    return state


def find_cause(workers: dict[str, dict[str, Any]]) -> tuple[str, str]:
    """Return the reason why no worker can compute, and one line with advice; two empty strings if one can."""
    if not workers:
        cause, remedy = "no worker is left", "start a worker, or end the run with Ctrl-C and resume it later"
        return cause, f"{cause}; the run is waiting: {remedy}"
    if any(worker.get("status") != "paused" for worker in workers.values()):
        return "", ""
    worst = max(workers.values(), key=lambda worker: worker.get("metrics", {}).get("memory", 0))
    held, limit = worst.get("metrics", {}).get("memory", 0), worst.get("memory_limit", 0)
    cause = "every worker is paused"
    return cause, (
        f"{cause} because its memory is nearly full (one uses {format_bytes(held)} of {format_bytes(limit)}); the run "
        "is waiting: end it with Ctrl-C, set a larger memory_limit or fewer threads per worker in the profile, and "
        "resume"
    )
