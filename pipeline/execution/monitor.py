"""Warnings about clusters that return no results: no workers are left, or all workers are paused for lack of memory."""

import time
import warnings
from typing import Any

from dask.utils import format_bytes
from distributed import Client

_SILENT_SECONDS = 10.0


class Monitor:
    """Monitor that warns, once per cause, if no task returns because no worker can compute.

    Parameters
    ----------
    client : distributed.Client
        Client of the cluster.
    silent_seconds : float
        Time without a result after which the workers are checked.
    """

    def __init__(self, client: Client, silent_seconds: float = _SILENT_SECONDS) -> None:
        self._client, self._silent = client, silent_seconds
        self._since = time.monotonic()
        self._warned = ""

    def note_result(self) -> None:
        """Record that a task returned."""
        self._since = time.monotonic()
        self._warned = ""

    def check(self) -> None:
        """Check the workers if no task has returned for `silent_seconds`, and warn if none can compute."""
        if time.monotonic() - self._since < self._silent:
            return
        problem = find_problem(self._client.scheduler_info(n_workers=-1)["workers"])
        cause = problem.partition(" ")[0]  # the rest of the message contains varying numbers
        if problem and cause != self._warned:
            warnings.warn(problem, stacklevel=2)
        self._warned = cause
        self._since = time.monotonic()


def find_problem(workers: dict[str, dict[str, Any]]) -> str:
    """Return a one-line message if no worker can compute, or an empty string.

    Parameters
    ----------
    workers : dict
        Workers by address, from `distributed.Client.scheduler_info`.

    Examples
    --------
    >>> find_problem({})
    'no worker is left; the run is waiting: start a worker, or end the run with Ctrl-C and resume it later'
    >>> find_problem({"tcp://127.0.0.1:1": {"status": "running", "memory_limit": 100, "metrics": {"memory": 90}}})
    ''
    """
    if not workers:
        return "no worker is left; the run is waiting: start a worker, or end the run with Ctrl-C and resume it later"
    if any(worker.get("status") != "paused" for worker in workers.values()):
        return ""
    worst = max(workers.values(), key=lambda worker: worker.get("metrics", {}).get("memory", 0))
    held, limit = worst.get("metrics", {}).get("memory", 0), worst.get("memory_limit", 0)
    return (
        f"every worker is paused because its memory is nearly full (one uses {format_bytes(held)} of "
        f"{format_bytes(limit)}); the run is waiting: end it with Ctrl-C, set a larger memory_limit or fewer threads "
        "per worker in the profile, and resume"
    )
