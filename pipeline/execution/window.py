"""Number of tasks to keep on the scheduler: enough for the maximum number of workers, and no more.

An adaptive cluster grows with the tasks on its scheduler. Dask requests enough threads to finish them within a target
duration, and assumes half a second for tasks of unknown duration. The queue must therefore contain enough work for the
largest cluster that the profile allows.
"""

import math
import time

import dask
from dask.utils import parse_timedelta
from distributed import Client

from pipeline.clusters.cluster import most_threads
from pipeline.clusters.profiles import Profile

_ASK_SECONDS = 1.0
_PER_THREAD = 2  # number of tasks per thread: one that runs and one that waits
_UNKNOWN_SECONDS = 0.5  # Dask's estimate for tasks before the first result
_SPARE = 1.5  # factor for tasks that finish between two updates of the adaptive cluster
_SHORTEST_SECONDS = 0.05


class Window:
    """Number of tasks to keep in flight on a cluster."""

    def __init__(self, client: Client, profile: Profile) -> None:
        self._client, self._profile = client, profile
        target = profile.adapt.get("target_duration") or dask.config.get("distributed.adaptive.target-duration")
        self._target = parse_timedelta(target)
        self._asked = -math.inf
        self._task_seconds: float | None = None
        self.n_threads = 1

    def update(self) -> None:
        """Update the number of threads, at most once per second."""
        if time.monotonic() - self._asked > _ASK_SECONDS:
            self.n_threads = most_threads(self._profile, self._client)
            self._asked = time.monotonic()

    def note_task(self, seconds: float) -> None:
        """Record the duration of a task."""
        before = seconds if self._task_seconds is None else self._task_seconds
        self._task_seconds = 0.8 * before + 0.2 * seconds

    @property
    def n_tasks(self) -> int:
        """Number of tasks to keep in flight."""
        wanted = _PER_THREAD * self.n_threads
        if not self._profile.adapt:
            return wanted
        each = _UNKNOWN_SECONDS if self._task_seconds is None else max(self._task_seconds, _SHORTEST_SECONDS)
        return max(wanted, math.ceil(_SPARE * self._target * self.n_threads / each))
