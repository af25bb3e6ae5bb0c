"""Tasks in flight on a Dask client: submission, and collection of results."""

from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from distributed import Client, Future, KilledWorker

from pipeline.errors import ExecutionError
from pipeline.execution.monitor import Monitor
from pipeline.redact import format_error

_LOOK_SECONDS = 2.0
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
    """Tasks of one run that are in flight."""

    def __init__(self, client: Client, check: Callable[[], None] = lambda: None) -> None:
        self.client, self._check = client, check
        self._payloads: dict[Future, Any] = {}
        self._done: SimpleQueue[Future] = SimpleQueue()
        self._monitor = Monitor(client)

    def __len__(self) -> int:
        return len(self._payloads)

    def submit(self, payload: Any, function: Callable[..., Any], *args: Any, **options: Any) -> None:
        """Submit a task; options are those of `distributed.Client.submit`."""
        future = self.client.submit(function, *args, **{"pure": False, "retries": RETRIES, **options})
        self._payloads[future] = payload
        future.add_done_callback(self._done.put)  # polling each future would take linear time

    def wait(self) -> list[TaskResult]:
        """Wait for at least one task to finish, and return the results of all finished tasks; `check` may end it."""
        while True:
            self._check()
            with translating_losses():
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

    def first_problem(self, describe_loss: Callable[[Any], str], others: str) -> str:
        """Return the first problem by payload, with a clause on `others` if there are more, or an empty string.

        Tasks return a problem or an empty string; a task whose worker is lost has that of `describe_loss`.
        """
        problems = {}
        for result in self.results():
            problem = describe_loss(result.payload) if result.is_lost else result.value or result.transient
            if problem:
                problems[result.payload] = problem
        if not problems:
            return ""
        return problems[min(problems)] + (f"; {others.format(len(problems) - 1)}" if len(problems) > 1 else "")

    def cancel(self) -> None:
        """Cancel the tasks that have not started, without waiting for the others."""
        futures = list(self._payloads)
        self._payloads.clear()
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
        if isinstance(value, Refusal):
            raise ExecutionError(f"a worker failed: {value.reason}")
        return TaskResult(payload, value)


@contextmanager
def translating_losses() -> Iterator[None]:
    """Convert exceptions of a client that has lost its scheduler to `ExecutionError`."""
    try:
        yield
    except (CancelledError, OSError) as error:
        raise ExecutionError("the connection to the scheduler was lost; restart the scheduler, then resume") from error
