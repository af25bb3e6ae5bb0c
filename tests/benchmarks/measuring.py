"""What the benchmarks share: the smallest size, the machine, times, new processes, profiles, and an object store."""

import multiprocessing
import os
import platform
import resource
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml
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


def on_two_threads(call: Callable[[int], object], n: int) -> None:
    """Call a function with 0, ..., n - 1 on two threads."""
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(call, range(n)))


def in_new_process(preload: Sequence[str], call: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a call in a new process, a fork of one that has imported the modules in `preload`.

    At the smallest size, the call is made in this process.
    """
    if SMALLEST:
        return call(*arguments)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(preload))
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(call, *arguments).result()


def write_profile(folder: Path, **profile: Any) -> str:
    """Write a cluster file with one profile, and return its path; a profile without address is of `LocalCluster`."""
    started = {} if "address" in profile else {"module": "distributed", "class": "LocalCluster"}
    (folder / "cluster.yaml").write_text(yaml.safe_dump({"profiles": {"bench": started | profile}}))
    return str(folder / "cluster.yaml")


def peak_megabytes() -> float:
    """Return the peak resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@cache
def objects_in_memory() -> ObjectStore:
    """Return the object store of this process, which cannot be pickled."""
    return ObjectStore(MemoryStore())
