"""Limit of BLAS and OpenMP to one thread while blocks are computed.

Parallelism is over trials. The last bits of a matrix product depend on the number of BLAS threads.
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
    """Thread limits of this process, active from the first thread that enters until the last thread leaves."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Discard all limits; required in a forked process, which has no setter thread."""
        self._lock = threading.Lock()
        # OpenBLAS uses the limit of the live thread that set it first, so one thread sets and restores all limits
        self._setter = ThreadPoolExecutor(1, thread_name_prefix="dpstudies-one-thread")
        self._controllers: list[ThreadpoolController] = []
        self._held: list[Any] = []
        self._own: list[Any] = []
        self._n_inside = 0

    def enter(self, controller: ThreadpoolController) -> None:
        """Limit the loaded libraries, unless they are limited already."""
        with self._lock:
            self._n_inside += 1
            if controller not in self._controllers:
                self._controllers.append(controller)
                self._held.append(self._setter.submit(controller.limit, limits=1).result())
                if any(pool["num_threads"] > 1 for pool in controller.info()):  # set by the caller's thread
                    self._own.append(controller.limit(limits=1))

    def leave(self) -> None:
        """Restore the previous limits if no other thread uses them."""
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
    """Limit BLAS and OpenMP to one thread, per process or per thread depending on the library; also a decorator.

    Several threads of a process may enter; the limits remain active until the last thread leaves.

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
        with controller.select(user_api="openmp").limit(limits=1):  # OpenMP limits are per thread
            yield
    finally:
        _LIMITS.leave()


@lru_cache(maxsize=1)
def _controller(n_modules: int) -> ThreadpoolController:
    """Return the controller of the loaded libraries, cached until more modules are imported."""
    return ThreadpoolController()
