"""One BLAS and OpenMP thread while blocks are computed.

Trials are the parallelism, and the last bits of a matrix product depend on the number of threads.
"""

import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from threadpoolctl import ThreadpoolController


class _Limits:
    """Limits of this process, which hold from the first thread that enters to the last one that leaves."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all limits, as a forked process must: it has no setter."""
        self._lock = threading.Lock()
        # OpenBLAS obeys the live thread that set its limit first, so that one thread sets and restores all of them
        self._setter = ThreadPoolExecutor(1, thread_name_prefix="dpstudies-one-thread")
        self._controllers: list[ThreadpoolController] = []
        self._held: list[Any] = []
        self._own: list[Any] = []
        self._n_inside = 0

    def enter(self, controller: ThreadpoolController) -> None:
        """Limit what is loaded, unless it is limited already."""
        with self._lock:
            self._n_inside += 1
            if controller not in self._controllers:
                self._controllers.append(controller)
                self._held.append(self._setter.submit(controller.limit, limits=1).result())
                if any(pool["num_threads"] > 1 for pool in controller.info()):  # the caller's thread may have set it
                    self._own.append(controller.limit(limits=1))

    def leave(self) -> None:
        """Restore the previous limits, if no other thread is inside."""
        with self._lock:
            self._n_inside -= 1
            while self._own and not self._n_inside:
                self._own.pop().restore_original_limits()
            while self._held and not self._n_inside:
                self._setter.submit(self._held.pop().restore_original_limits).result()
            if not self._n_inside:
                self._controllers.clear()


_LIMITS = _Limits()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_LIMITS.reset)


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit BLAS and OpenMP to one thread, in this process or thread as the library allows; also a decorator.

    Threads of one process may enter at the same time: the limits hold until the last of them leaves.

    Examples
    --------
    >>> import numpy
    >>> from threadpoolctl import threadpool_info
    >>> with one_thread():
    ...     {pool["num_threads"] for pool in threadpool_info()}
    {1}
    """
    controller = _controller(len(sys.modules))
    _LIMITS.enter(controller)
    try:
        with controller.select(user_api="openmp").limit(limits=1):  # a limit of each thread
            yield
    finally:
        _LIMITS.leave()


@lru_cache(maxsize=1)
def _controller(n_modules: int) -> ThreadpoolController:
    """Return the libraries that are loaded; they are looked up again, in milliseconds, when there are more modules."""
    return ThreadpoolController()
