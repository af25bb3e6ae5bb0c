"""Submission of work that a scheduler completes without the client."""

import math
import time
from collections.abc import Callable
from itertools import islice
from typing import Any

from distributed import Client, fire_and_forget, get_worker, secede

from pipeline.blocks.evaluate import BUDGET
from pipeline.execution.in_flight import RETRIES, translating_losses
from pipeline.execution.naming import Namer
from pipeline.execution.shipping import shipped_task, unship
from pipeline.execution.tasks import compute, on_worker
from pipeline.execution.work import PendingWork, Task, pack

_HAND_OVER_SECONDS = 300
_MOST_SUBMITTED = 10_000  # largest number of tasks, since the scheduler keeps each task in memory
_FIRST_WAIT, _LONGEST_WAIT = 0.2, 30.0
_LAST = -1  # priority of the task that closes a run
_CLOSING = "close"
_POLL_SECONDS = 0.05
_OPTIONS = {"pure": False, "retries": RETRIES}


def hand_over(
    client: Client,
    task: Task,
    works: PendingWork,
    detach: Callable[[], None],
    close: Callable[[Task], None],
    allow_failures: bool = False,
) -> int:
    """Submit work to a scheduler that continues without the client; return the number of tasks.

    The call returns when the scheduler has received all tasks. Work that terminates its worker more often than the
    scheduler allows, or that cannot be committed, remains pending. `detach` is called when the scheduler has all tasks
    but the last one, which calls the module-level function `close` on a worker after all others.
    """
    each = max(1, math.ceil(len(works) / _MOST_SUBMITTED))
    rest, namer = iter(works), Namer(works.study, task.run)
    budget = None if allow_failures else BUDGET
    futures = []  # futures are kept, since the scheduler forgets finished tasks without futures
    with translating_losses():
        while batch := list(islice(rest, each)):
            runs = pack(works.study, batch)
            key = namer.name(batch)
            futures.append(client.submit(compute, task.run, task.session, runs, budget, key=key, **_OPTIONS))
        fire_and_forget(futures)
        _await_scheduler(client, task.run, len(futures))
    detach()
    with translating_losses():
        key = _closing_key(task.run)
        closing = client.submit(close_run, task.run, task.session, close, key=key, priority=_LAST, **_OPTIONS)
        fire_and_forget(closing)
        _await_scheduler(client, task.run, len(futures) + 1)
    return len(futures)


def _await_scheduler(client: Client, run: str, n_tasks: int) -> None:
    """Wait until the scheduler has `n_tasks` tasks of a run; the caller must keep the futures of these tasks."""
    deadline = time.monotonic() + _HAND_OVER_SECONDS
    while client.run_on_scheduler(_count_received, run=run) < n_tasks:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the scheduler received fewer than {n_tasks:,} tasks in {_HAND_OVER_SECONDS} s")
        time.sleep(_POLL_SECONDS)


@on_worker
def close_run(run: str, session: str, close: Callable[[Task], None]) -> None:
    """Wait until no other task of a run is left, then close the run and remove it from the workers."""
    task, wait, worker = shipped_task(run, session), _FIRST_WAIT, get_worker()
    secede()  # frees the thread for other tasks
    # `worker_client` would become the default client of the worker process
    with Client(worker.scheduler.address, security=worker.security, set_as_default=False) as client:
        while count_tasks(client, run):
            time.sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT)
        close(task)
        unship(client, run)


def count_tasks(client: Client, run: str) -> int:
    """Return the number of unfinished tasks of a run."""
    return int(client.run_on_scheduler(_count, run=run))


def cancel_tasks(client: Client, run: str) -> int:
    """Cancel the tasks of a run; return the number of those that were unfinished."""
    n_tasks = int(client.run_on_scheduler(_cancel, run=run))
    unship(client, run)
    return n_tasks


def _closing_key(run: str) -> str:
    return f"{_CLOSING}-{run}"


def _tasks_of(run: str, dask_scheduler: Any) -> dict[Any, Any]:
    """Return the tasks of a run by key; a key contains the identifier of its run."""
    return {key: task for key, task in dask_scheduler.tasks.items() if run in str(key)}


def _count_received(run: str, dask_scheduler: Any) -> int:
    return len(_tasks_of(run, dask_scheduler))


def _count(run: str, dask_scheduler: Any) -> int:
    return sum(
        task.state not in ("erred", "memory") and str(key) != _closing_key(run)
        for key, task in _tasks_of(run, dask_scheduler).items()
    )


def _cancel(run: str, dask_scheduler: Any) -> int:
    n_tasks = _count(run, dask_scheduler)
    keys = list(_tasks_of(run, dask_scheduler))
    for client in list(dask_scheduler.clients):
        dask_scheduler.client_releases_keys(keys=keys, client=client, stimulus_id=f"dpstudies-cancel-{run}")
    return n_tasks
