"""Cost of TLS between the processes of a local cluster, per block, per task and per start.

Run with ``python tests/benchmarks/bench_tls.py [--smallest]``. Rounds with and without TLS alternate on two worker
processes of one thread, so that drifts of the machine's speed affect both; the result is the median of the ratios.
Blocks are those of a study with a trivial kernel, which the pipeline batches into tasks of about a second. Tasks are
empty, with one round trip each, which is far worse than any run. Processor time is that of all processes.
"""

import itertools
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
import yaml
from bench_scale import write_study

import pipeline
from pipeline.clusters.cluster import Profile, connect

BLOCKS, TASKS, ROUNDS = 4_000, 500, 5
ENCRYPTED = {True: {"security": True}, False: {"protocol": "tcp://"}}


def empty() -> None:
    """Do nothing."""


def clocks() -> np.ndarray:
    """Return wall-clock time, and processor time of this process and its workers, in seconds."""
    me = psutil.Process()
    times = [process.cpu_times() for process in (me, *me.children(recursive=True))]
    return np.array([time.perf_counter(), sum(found.user + found.system for found in times)])


def measure_tasks(encrypted: bool, n_tasks: int) -> tuple[float, np.ndarray]:
    """Return the seconds of a start, and the seconds and processor seconds per empty task."""
    profile = Profile("a", kwargs={"n_workers": 2, "threads_per_worker": 1, **ENCRYPTED[encrypted]})
    start = time.perf_counter()
    with connect(profile) as client:
        client.wait_for_workers(2)
        assert all(worker.startswith("tls" if encrypted else "tcp") for worker in client.nthreads())
        begun = time.perf_counter() - start
        client.submit(empty, pure=False).result()
        before = clocks()
        for _ in range(n_tasks):
            client.submit(empty, pure=False).result()
        return begun, (clocks() - before) / n_tasks


def measure_blocks(encrypted: bool, n_blocks: int) -> np.ndarray:
    """Return the seconds and processor seconds per block, after the first tenth of the blocks."""
    kwargs = {"n_workers": 2, "threads_per_worker": 1, **ENCRYPTED[encrypted]}
    found: dict[int, np.ndarray] = {}
    done = itertools.count(1)

    def note(receipt: object) -> None:
        number = next(done)
        if number in (n_blocks // 10, n_blocks):
            found[number] = clocks()

    with tempfile.TemporaryDirectory() as folder:
        profiles = {"bench": {"class": "LocalCluster", "kwargs": kwargs}}
        Path(folder, "cluster.yaml").write_text(yaml.safe_dump({"profiles": profiles}))
        pipeline.run(
            write_study(Path(folder)),
            f"{folder}/s.zarr",
            trials=n_blocks,
            cluster=f"{folder}/cluster.yaml",
            progress=lambda works: note,
        )
    return (found[n_blocks] - found[n_blocks // 10]) / (n_blocks - n_blocks // 10)


def main() -> None:
    """Print the results."""
    n_blocks, n_tasks, rounds = (20, 5, 1) if "--smallest" in sys.argv[1:] else (BLOCKS, TASKS, ROUNDS)
    names = ("start, s", "task, ms", "task, processor ms", "block, ms", "block, processor ms")
    ratios = []
    for number in range(rounds):
        found = {}
        for encrypted in (True, False) if number % 2 else (False, True):
            start, task = measure_tasks(encrypted, n_tasks)
            found[encrypted] = np.array([start, *(1e3 * task), *(1e3 * measure_blocks(encrypted, n_blocks))])
        ratios.append(found[True] / found[False])
        for name, plain, secret in zip(names, found[False], found[True], strict=True):
            print(f"{name:20} {plain:7.2f}, with TLS {secret:7.2f} ({secret / plain:.2f})", flush=True)
    print(f"with TLS / without, median of {rounds}; target for blocks: < 1.05")
    for name, ratio in zip(names, np.median(ratios, axis=0), strict=True):
        print(f"{name:20} {ratio:.3f}")


if __name__ == "__main__":
    main()
