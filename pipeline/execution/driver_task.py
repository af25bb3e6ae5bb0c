"""Task that drives a run on a worker of a scheduler, so that the run continues without the submitting process."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from distributed import Client, fire_and_forget, get_worker, secede

from pipeline.clusters.user_cluster import UserCluster, open_client
from pipeline.errors import ExecutionError
from pipeline.faults import explain

_PRIORITY = 100  # before the blocks of other runs, since a driver leaves its thread to them
_POLL_SECONDS = 0.2


def start_driver(client: Client, identifier: str, drive: Callable[[Any], Exception | None], order: Any) -> str:
    """Submit ``drive(order)`` as a task, and return the identifier of its session once it exists, "" without work."""
    key = _key(identifier)
    future = client.submit(drive, order, key=key, pure=False, retries=0, priority=_PRIORITY)
    try:
        fire_and_forget(future)
        while True:
            is_over = future.done()
            for _, event in client.get_events(key) or ():
                return str(event["session"])
            if is_over:
                break
            time.sleep(_POLL_SECONDS)
        error = future.result()
    except BaseException as stop:
        cancel_driver(client, identifier)
        if isinstance(stop, Exception):
            raise ExecutionError(f"the scheduler cannot run the submission: {explain(stop)}") from None
        raise
    if error is not None:
        raise error
    return ""


def cancel_driver(client: Client, identifier: str) -> None:
    """Cancel the task of a driver, which then ends after its current blocks."""
    client.run_on_scheduler(_release, key=_key(identifier))


def has_driver(client: Client, identifier: str) -> bool:
    """Return True if the task of a driver is on the scheduler and has not ended."""
    return bool(client.run_on_scheduler(_is_unfinished, key=_key(identifier)))


@contextmanager
def connect_worker() -> Iterator[Client]:
    """Connect to the scheduler of this worker, and release the thread of the present task for other tasks."""
    secede()
    with open_client(UserCluster(get_worker())) as client:
        yield client


def announce(identifier: str, session: str) -> None:
    """Report the session of a driver to `start_driver`."""
    get_worker().log_event(_key(identifier), {"session": session})


def cancellation(identifier: str) -> Callable[[], bool]:
    """Return a function that is true after the task of this driver was cancelled or moved to another worker."""
    tasks, key = get_worker().state.tasks, _key(identifier)
    return lambda: key not in tasks or tasks[key].state not in ("long-running", "executing")


def _key(identifier: str) -> str:
    return f"dpstudies-driver-{identifier}"


def _release(key: str, dask_scheduler: Any) -> None:
    for client in list(dask_scheduler.clients):
        dask_scheduler.client_releases_keys(keys=[key], client=client, stimulus_id=f"cancel-{key}")


def _is_unfinished(key: str, dask_scheduler: Any) -> bool:
    task = dask_scheduler.tasks.get(key)
    return task is not None and task.state not in ("erred", "memory")
