"""Number of tasks to keep with the scheduler: enough for all workers that the cluster may grow to, and no more.

An adaptive cluster grows by the work that its scheduler can see. Dask asks for as many workers as finish all tasks of
the scheduler within a target duration, and counts tasks of unknown duration as half a second. So the queue must hold
that much work for the largest cluster that the profile allows.
"""

import math
import time
from collections.abc import Mapping
from typing import Any

import dask
from dask.utils import parse_timedelta
from distributed import Client

_ASK_SECONDS = 1.0
_PER_THREAD = 2  # tasks: one that runs, and one that waits
_UNKNOWN_SECONDS = 0.5  # what Dask takes for the duration of a task of which none has returned
_SPARE = 1.5  # so that tasks that return before the scheduler looks do not stop the growth
_SHORTEST_SECONDS = 0.05


class Window:
    """Number of threads of a cluster, and of the tasks that it is given at once.

    Parameters
    ----------
    client : distributed.Client
        Client of the cluster.
    adapt : mapping
        Arguments of the cluster's ``adapt``; empty for a cluster of fixed size.

    Attributes
    ----------
    most_threads : int
        Threads of the cluster now, or of the largest cluster that it may grow to.
    """

    def __init__(self, client: Client, adapt: Mapping[str, Any]) -> None:
        self._client, self._adapt = client, adapt
        target = adapt.get("target_duration") or dask.config.get("distributed.adaptive.target-duration")
        self._target = parse_timedelta(target)
        self._asked = -math.inf
        self._task_seconds: float | None = None
        self.most_threads = 1

    def look(self) -> None:
        """Ask for the number of threads, once per second at most: workers come and go."""
        if time.monotonic() - self._asked < _ASK_SECONDS:
            return
        threads = list(self._client.nthreads().values())
        self.most_threads = max(1, sum(threads), self._most_workers(len(threads)) * max(threads, default=1))
        self._asked = time.monotonic()

    def note_task(self, seconds: float) -> None:
        """Note how long a task took."""
        before = self._task_seconds if self._task_seconds is not None else seconds
        self._task_seconds = 0.8 * before + 0.2 * seconds

    @property
    def n_tasks(self) -> int:
        """Number of tasks to keep in flight."""
        wanted = _PER_THREAD * self.most_threads
        if not self._adapt:
            return wanted
        each = _UNKNOWN_SECONDS if self._task_seconds is None else max(self._task_seconds, _SHORTEST_SECONDS)
        return max(wanted, math.ceil(_SPARE * self._target * self.most_threads / each))

    def _most_workers(self, n_now: int) -> int:
        """Return the number of workers that the cluster may grow to; without a bound, a few times the present one."""
        if not self._adapt:
            return n_now
        # Dask and dask-jobqueue turn jobs, cores and memory into workers; of other classes the profile is all we have
        adaptive = getattr(self._client.cluster, "_adaptive", None)
        most = getattr(adaptive, "maximum", None) or self._adapt.get("maximum") or math.inf
        return int(most) if math.isfinite(most) else 4 * max(1, n_now)
