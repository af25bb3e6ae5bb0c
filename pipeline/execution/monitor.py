"""Warnings about clusters whose workers cannot compute: none is left, all are paused, or one does not respond."""

import time
import warnings
from typing import Any

import psutil
from dask.utils import format_bytes
from distributed import Client

_SILENT_SECONDS = 10.0
_LOOK_SECONDS = 5.0
_MOST_LOOKS = 4  # number of looks without a heartbeat after which a worker does not respond


class Monitor:
    """Monitor that warns, once per cause, if workers cannot compute, and that ends suspended workers."""

    def __init__(self, client: Client, silent_seconds: float = _SILENT_SECONDS) -> None:
        self._client, self._silent = client, silent_seconds
        self._since = self._looked = time.monotonic()
        self._warned = ""
        self._last_seen: dict[str, float] = {}
        self._n_looks: dict[str, int] = {}

    def note_result(self) -> None:
        """Record that a task returned."""
        self._since = time.monotonic()
        self._warned = ""

    def check(self) -> None:
        """Check the heartbeats of the workers, and, if no task has returned for `silent_seconds`, their states."""
        now = time.monotonic()
        is_silent, is_due = now - self._since >= self._silent, now - self._looked >= _LOOK_SECONDS
        if not is_silent and not is_due:
            return
        workers = self._client.scheduler_info(n_workers=-1)["workers"]
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
        before, self._last_seen = self._last_seen, {name: one.get("last_seen", 0) for name, one in workers.items()}
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
            seconds = _MOST_LOOKS * _LOOK_SECONDS
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
