"""Cost of TLS between the processes of a local cluster, per block, per task and per start.

Run with ``python tests/benchmarks/bench_tls.py [--smallest]``. Rounds with and without TLS alternate on two worker
processes with one thread each, so that drifts of the machine's speed affect both; the result is the median of the
ratios. Blocks are those of a study with a trivial kernel, which the pipeline batches into tasks of about a second.
Empty tasks take one round trip each, so their relative cost exceeds that of any run. Processor time is summed over all
processes.
"""

import itertools
import tempfile
import time
from pathlib import Path

import dask
import numpy as np
import psutil
from bench_scale import write_study
from measuring import SMALLEST, write_profile

import pipeline
from pipeline.clusters.cluster import connect
from pipeline.clusters.profiles import Profile

BLOCKS, TASKS, ROUNDS, WORKERS = (20, 5, 1, 1) if SMALLEST else (4_000, 500, 5, 2)
ENCRYPTED = {True: {"security": True}, False: {"protocol": "tcp://"}}


def empty() -> None:
    """Do nothing: the task whose overhead is measured."""


def clocks() -> np.ndarray:
    """Return the wall-clock time, and the processor time of this process and its workers, in seconds."""
    me = psutil.Process()
    times = [process.cpu_times() for process in (me, *me.children(recursive=True))]
    return np.array([time.perf_counter(), sum(found.user + found.system for found in times)])


def measure_tasks(encrypted: bool) -> tuple[float, np.ndarray]:
    """Return the start-up time of a cluster, and the wall-clock and processor time per empty task, in seconds."""
    profile = Profile("a", kwargs={"n_workers": WORKERS, "threads_per_worker": 1, **ENCRYPTED[encrypted]})
    start = time.perf_counter()
    with connect(profile) as client:
        client.wait_for_workers(WORKERS)
        assert all(worker.startswith("tls" if encrypted else "tcp") for worker in client.nthreads())
        begun = time.perf_counter() - start
        client.submit(empty, pure=False).result()
        before = clocks()
        for _ in range(TASKS):
            client.submit(empty, pure=False).result()
        return begun, (clocks() - before) / TASKS


def measure_blocks(encrypted: bool) -> np.ndarray:
    """Return the wall-clock and processor time per block in seconds, without the first tenth of the blocks."""
    kwargs = {"n_workers": WORKERS, "threads_per_worker": 1, **ENCRYPTED[encrypted]}
    found: dict[int, np.ndarray] = {}
    done = itertools.count(1)

    def note(receipt: object) -> None:
        number = next(done)
        if number in (BLOCKS // 10, BLOCKS):
            found[number] = clocks()

    with tempfile.TemporaryDirectory() as folder:
        study, cluster = write_study(Path(folder)), write_profile(Path(folder), kwargs=kwargs)
        pipeline.run(study, f"{folder}/s.zarr", trials=BLOCKS, cluster=cluster, progress=lambda works: note)
    return (found[BLOCKS] - found[BLOCKS // 10]) / (BLOCKS - BLOCKS // 10)


def main() -> None:
    names = ("start, s", "task, ms", "task, processor ms", "block, ms", "block, processor ms")
    ratios = []
    for number in range(ROUNDS):
        found = {}
        for encrypted in (True, False) if number % 2 else (False, True):
            start, task = measure_tasks(encrypted)
            found[encrypted] = np.array([start, *(1e3 * task), *(1e3 * measure_blocks(encrypted))])
        ratios.append(found[True] / found[False])
        for name, plain, secret in zip(names, found[False], found[True], strict=True):
            print(f"{name:20} {plain:7.2f}, with TLS {secret:7.2f} ({secret / plain:.2f})", flush=True)
    print(f"with TLS / without, median of {ROUNDS}; target for blocks: < 1.05")
    for name, ratio in zip(names, np.median(ratios, axis=0), strict=True):
        print(f"{name:20} {ratio:.3f}")


if __name__ == "__main__":
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"} if SMALLEST else {}):
        main()
