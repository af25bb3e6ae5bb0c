"""What the benchmarks share: the smallest size, the machine, least times, peak memory, and an object store."""

import os
import platform
import resource
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
from obstore.store import MemoryStore
from zarr.storage import ObjectStore

SMALLEST = "--smallest" in sys.argv[1:]


def print_machine() -> None:
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, numpy {np.__version__}")


def best_seconds(
    calls: Sequence[Callable[[], object]], turns: int, clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """Return the least time of each call; calls alternate, so that other load affects all of them."""
    least = [float("inf")] * len(calls)
    for _ in range(turns):
        for i, call in enumerate(calls):
            start = clock()
            call()
            least[i] = min(least[i], clock() - start)
    return least


def best_time(call: Callable[[], object], turns: int) -> float:
    """Return the least wall-clock time of a call."""
    return best_seconds([call], turns)[0]


def peak_megabytes() -> float:
    """Return the peak resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@cache
def objects_in_memory() -> ObjectStore:
    """Return the object store of this process, which cannot be pickled."""
    return ObjectStore(MemoryStore())
