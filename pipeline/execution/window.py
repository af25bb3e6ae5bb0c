"""Number of tasks to keep with the scheduler: enough for all workers that the cluster may grow to, and no more.

An adaptive cluster grows by the work that its scheduler can see. Dask asks for as many threads as finish all tasks of
the scheduler within a target duration, and counts tasks of unknown duration as half a second. So the queue must hold
that much work for the largest cluster that the profile allows.
"""

import math
import time

import dask
from dask.utils import parse_timedelta
from distributed import Client

from pipeline.clusters.profiles import Profile
from pipeline.clusters.size import most_threads

_ASK_SECONDS = 1.0
_PER_THREAD = 2  # tasks: one that runs, and one that waits
_UNKNOWN_SECONDS = 0.5  # Dask's estimate for the duration of a task of which none has returned
_SPARE = 1.5  # so that tasks that return before the scheduler looks do not stop the growth
_SHORTEST_SECONDS = 0.05


class Window:
    """Number of threads of a cluster, and of the tasks that it is given at once.

    Parameters
    ----------
    client : distributed.Client
        Client of the cluster.
    profile : Profile
        Its profile.

    Attributes
    ----------
    n_threads : int
        Threads of the cluster now, or of the largest cluster that it may grow to.
    """

    def __init__(self, client: Client, profile: Profile) -> None:
        self._client, self._profile = client, profile
        target = profile.adapt.get("target_duration") or dask.config.get("distributed.adaptive.target-duration")
        self._target = parse_timedelta(target)
        self._asked = -math.inf
        self._task_seconds: float | None = None
        self.n_threads = 1

    def look(self) -> None:
        """Ask for the number of threads, once per second at most: workers come and go."""
        if time.monotonic() - self._asked > _ASK_SECONDS:
            self.n_threads = most_threads(self._profile, self._client)
            self._asked = time.monotonic()

    def note_task(self, seconds: float) -> None:
        """Note how long a task took."""
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
