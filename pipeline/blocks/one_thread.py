"""One-thread limit for BLAS and OpenMP while blocks are computed.

Trials are computed in parallel instead, and the last bits of a matrix product depend on the number of BLAS threads.
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
    """Thread limits of this process, which apply while at least one thread is between `enter` and `leave`."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Discard all limits: a forked process lacks the thread that set them."""
        self._lock = threading.Lock()
        # OpenBLAS uses the limit of the live thread that set it first, so one thread sets and restores all limits
        self._setter = ThreadPoolExecutor(1, thread_name_prefix="dpstudies-one-thread")
        self._controllers: list[ThreadpoolController] = []
        self._held: list[Any] = []
        self._own: list[Any] = []
        self._n_inside = 0

    def enter(self, controller: ThreadpoolController) -> None:
        """Limit the loaded libraries to one thread if they are not limited already."""
        with self._lock:
            self._n_inside += 1
            if controller not in self._controllers:
                self._controllers.append(controller)
                self._held.append(self._setter.submit(controller.limit, limits=1).result())
                # the caller's thread has set a larger limit
                if any(pool["num_threads"] > 1 for pool in controller.info()):
                    self._own.append(controller.limit(limits=1))

    def leave(self) -> None:
        """Restore the previous limits if no other thread needs the current ones."""
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
    """Limit BLAS and OpenMP to one thread, as a context manager or decorator, until the last thread leaves it."""
    controller = _controller(len(sys.modules))
    _LIMITS.enter(controller)
    try:
        with controller.select(user_api="openmp").limit(limits=1):  # OpenMP limits are per thread
            yield
    finally:
        _LIMITS.leave()


@lru_cache(maxsize=1)
def _controller(n_modules: int) -> ThreadpoolController:
    """Return the controller of the loaded libraries; it is cached until more modules have been imported."""
    return ThreadpoolController()
