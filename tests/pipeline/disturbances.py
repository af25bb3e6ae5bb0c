"""Disturbances of a process's files: slow renames, errors that pass, and leases that are over soon."""

import errno
import random
import threading
import time
from itertools import count

from pipeline.stores import sessions
from pipeline.stores.local_files import LocalFiles


def disturb(renames_take: float = 0, fails_every: int = 0, lease: float = 0) -> None:
    """Disturb this process for the rest of its life.

    Parameters
    ----------
    renames_take : float
        Longest time that a rename takes, in seconds; uniform at random.
    fails_every : int
        Every operation on files with a multiple of this number fails once, with ESTALE.
    lease : float
        Seconds after which a session without a sign of life is over.
    """
    if renames_take:
        _before("rename", lambda: time.sleep(random.uniform(0, renames_take)))
    if fails_every:
        numbers, lock = count(1), threading.Lock()

        def fail() -> None:
            with lock:
                number = next(numbers)
            if number % fails_every == 0:
                raise OSError(errno.ESTALE, "Stale file handle")

        for name in ("_read", "_write_temporary", "_rename", "flush"):
            _before(name, fail)
    if lease:
        sessions.LEASE_SECONDS, sessions.HEARTBEAT_SECONDS = lease, lease / 10


def _before(name, act):
    function = getattr(LocalFiles, name)

    def disturbed(*arguments):
        act()
        return function(*arguments)

    setattr(LocalFiles, name, disturbed)
