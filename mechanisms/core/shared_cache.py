"""Cache of results that take seconds, such as calibrations, which several threads may request at the same time."""

from collections.abc import Callable
from functools import lru_cache, wraps
from threading import Lock
from typing import Any, TypeVar

Cached = TypeVar("Cached", bound=Callable[..., Any])


def computed_once(maxsize: int) -> Callable[[Cached], Cached]:
    """Return a decorator as `lru_cache`, under which threads with equal arguments wait for a single computation."""

    def decorate(function: Cached) -> Cached:
        cached, locks, lock_of_locks = lru_cache(maxsize)(function), lru_cache(maxsize)(lambda *args: Lock()), Lock()

        @wraps(function)
        def call(*args: Any) -> Any:
            with lock_of_locks:
                lock = locks(*args)
            with lock:
                return cached(*args)

        call.cache_clear = cached.cache_clear  # type: ignore[attr-defined]
        return call  # type: ignore[return-value]

    return decorate
