"""Overhead of the pipeline relative to a hand-written loop, and speed-up with a second thread.

Run with ``python tests/benchmarks/bench_pipeline.py [own] [--smallest]``. Without ``own``, both versions call the same
kernels with the same streams, in blocks of about a second (four categories, n = 600, five mechanisms, 10,000 draws);
the loop saves npz files. Rounds of the two versions alternate, so that drifts of the machine's speed affect both; the
result is the median of the ratios.

With ``own``, three studies of a user with one generator per trial (a mean, a bootstrap, a regression) are computed by
the pipeline, by a loop that saves one file, with the threads of joblib if it is installed, and by tasks of Dask that
write regions of a Zarr array; the first study also into an object store in memory. Further ratios are those of
generators to `numpy.random.default_rng`, and of `verify` and `summarise` to reads by plain Zarr and xarray. Times are
processor times, the least of several rounds.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from runpy import run_path
from typing import Any

import numpy as np
import xarray as xr
import zarr
from distributed import Client, LocalCluster
from measuring import SMALLEST, best_seconds, objects_in_memory, write_profile
from zarr.storage import ObjectStore

import pipeline
from mechanisms import MECHANISMS, balanced_counts, hellinger
from pipeline import Streams, Study
from pipeline.runs.verify import verify
from studies.counts.hellinger_accuracy import STUDY

OWN = "own" in sys.argv[1:]
N, N_BLOCKS, BLOCK, ROUNDS = (60, 2, 100, 1) if SMALLEST else (600, 12, 10_000, 3)
ONE_THREAD: dict[str, Any] = {"processes": False, "n_workers": 1, "threads_per_worker": 1}
METHODS = ["smooth", "varying-bound", "hamming-exact", "laplace", "geometric"]
OWN_STUDIES = {"mean": (100_000, 100), "mean of long blocks": (100_000, 1_000), "bootstrap": (4_000, 100)}
OWN_STUDIES |= {"regression": (20_000, 500)}  # number of trials, and trials per block
if SMALLEST:
    OWN_STUDIES = {"mean": (200, 50), "regression": (200, 50)}
OWN_FILE = """
import numpy as np
from pipeline import Measure, Method, Panel, Study

def mean(rng):
    return rng.normal(size=10).mean()

def bootstrap(rng):
    sample = rng.exponential(size=50)
    return sample[rng.integers(50, size=(200, 50))].mean(axis=1).std()

def regression(rng):
    design = rng.normal(size=(50, 3))
    return np.linalg.lstsq(design, design.sum(axis=1) + rng.normal(size=50), rcond=None)[0][0]

def evaluate(data, setting, streams):
    return {{"x": [{kernel}(rng) for rng in streams.generators()]}}

panel = Panel("p", "a panel", lambda cell, streams: None, (Method("a", evaluate),), (Measure("x", "a number"),),
              trials={trials}, block_trials={block})
STUDY = Study("own", "Own", "To be one of a user.", (panel,), seed=1)
"""


def make_study(n_blocks: int) -> Study:
    """Return a study of the panel `k4` at n = N with `n_blocks` blocks."""
    study = STUDY.configure(panels=["k4"], values={"n": [N], "mechanism": METHODS}, trials=n_blocks * BLOCK)
    return replace(study, name="bench", panels=tuple(replace(panel, block_trials=BLOCK) for panel in study.panels))


def run_by_hand(study: Study, folder: Path) -> None:
    """Compute the same blocks without the pipeline, in a loop written for this study only."""
    counts, prior = balanced_counts(N, 4), np.ones(4)
    for start in range(0, study.panels[0].trials or 0, BLOCK):
        trials = range(start, start + BLOCK)
        results = {}
        for name in METHODS:
            distribution = MECHANISMS[name].build(prior, counts, 1.0, 1e-8)
            uniforms = Streams(study.seed, "bench", "k4", name, {"n": N}, trials).uniforms(distribution.n_uniforms)
            results[name] = hellinger(prior + counts, prior + distribution.from_uniforms(uniforms))
            results[f"{name} expected"] = np.array(distribution.expected_hellinger())
        np.savez_compressed(folder / f"{start}.npz", **results)


def run_by_pipeline(study: Study, folder: Path, n_threads: int) -> None:
    cluster = write_profile(folder, kwargs={**ONE_THREAD, "threads_per_worker": n_threads})
    pipeline.run(study, folder / "s.zarr", cluster=cluster)


def timed(work, *arguments) -> float:
    """Call `work` in an empty folder, and return the duration of the call in seconds."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        work(arguments[0], Path(folder), *arguments[1:])
        return time.perf_counter() - start


class OwnStudy:
    """Study of a user, computed in three ways in an empty folder, with one working thread."""

    def __init__(self, name: str, folder: Path) -> None:
        self.trials, self.block = OWN_STUDIES[name]
        self.file, self.folder = folder / "own.py", folder
        kernel = name.partition(" ")[0]
        self.file.write_text(OWN_FILE.format(kernel=kernel, trials=self.trials, block=self.block))
        self.kernel: Callable[[np.random.Generator], float] = run_path(str(self.file))[kernel]
        self.cluster = write_profile(folder, kwargs=ONE_THREAD)

    def compute(self, start: int) -> list[float]:
        """Compute the trials of a block without the pipeline."""
        trials = range(start, min(start + self.block, self.trials))
        return [self.kernel(np.random.default_rng([1, trial])) for trial in trials]

    def loop(self) -> None:
        """Compute all blocks in a loop, or with joblib, and save them in one file."""
        starts = range(0, self.trials, self.block)
        if find_spec("joblib"):
            from joblib import Parallel, delayed

            blocks = Parallel(n_jobs=1, prefer="threads")(delayed(self.compute)(start) for start in starts)
        else:
            blocks = [self.compute(start) for start in starts]
        np.save(self.folder / "loop.npy", np.concatenate(blocks))

    def dask(self, objects: Callable[[], ObjectStore] | None = None) -> None:
        """Compute one task of Dask per block, which writes a region of a Zarr array in the folder or in objects."""
        path = objects() if objects else self.folder / "dask.zarr"
        array = zarr.create_array(path, shape=(self.trials,), chunks=(self.block,), dtype=float, overwrite=True)
        # the array of objects in memory cannot be sent to a task
        opened = (lambda: zarr.open_array(objects())) if objects else (lambda: array)

        def write(start: int) -> None:
            opened()[start : start + self.block] = self.compute(start)

        with LocalCluster(dashboard_address="127.0.0.1:0", **ONE_THREAD) as cluster, Client(cluster) as client:
            client.gather(client.map(write, range(0, self.trials, self.block), pure=False))

    def run(self, folder: str = "") -> str:
        """Compute the study by the pipeline, and return the path of its store in a folder, by default the own one."""
        store = f"{folder or self.folder}/{time.monotonic_ns()}.zarr"
        pipeline.run(str(self.file), store, cluster=self.cluster, progress=False)
        return store


def least_seconds(*works: Callable[[], object]) -> list[float]:
    """Return the least processor seconds of each of several calls, whose rounds alternate; the first is not timed."""
    best_seconds(works, 1)
    return best_seconds(works, ROUNDS, time.process_time)


def print_own() -> None:
    """Print the ratios of studies of a user, of generators, and of reads."""
    name_of_loop = "joblib" if find_spec("joblib") else "loop"
    for name in OWN_STUDIES:
        with tempfile.TemporaryDirectory() as folder:
            own = OwnStudy(name, Path(folder))
            loop, dask, run = least_seconds(own.loop, own.dask, own.run)
            times = f"{name_of_loop} {loop:.2f} s, Dask {dask:.2f} s, pipeline {run:.2f} s"
            ratios = f"pipeline / {name_of_loop} {run / loop:.2f}, / Dask {run / dask:.2f}"
            print(f"{name + ':':20} {own.trials:,} trials in blocks of {own.block:,}: {times}; {ratios}", flush=True)
            if name == "mean":
                dask, run = least_seconds(partial(own.dask, objects_in_memory), partial(own.run, "memory://studies"))
                print(f"{'  to objects:':20} Dask {dask:.2f} s, pipeline {run:.2f} s; pipeline / Dask {run / dask:.2f}")
                print_reads(own.run())
    trials = range(100 if SMALLEST else 10_000)
    bare, keyed = least_seconds(
        lambda: [np.random.default_rng([1, trial]) for trial in trials],
        lambda: list(Streams(1, "own", "p", "a", {"n": 1}, trials).generators()),
    )
    print(f"generators: {keyed / len(trials) * 1e6:.1f} µs per trial; / default_rng {keyed / bare:.2f} (target: < .3)")


def print_reads(store: str) -> None:
    """Print the ratios of commands that read many blocks to reads without checksums of blocks."""
    group = zarr.open_group(store, mode="r")["p"]
    plain, verified = least_seconds(
        lambda: [group[name][...] for name in ("x", "status")], lambda: verify(store, sample=0)
    )
    lazy, summarised = least_seconds(
        lambda: xr.open_zarr(store, group="p").x.mean().compute(),
        lambda: pipeline.summarise(pipeline.open_results(store)["p"].to_dataset()),
    )
    print(f"{'reads:':20} verify / plain Zarr {verified / plain:.2f}, summarise / plain xarray {summarised / lazy:.2f}")


def main() -> None:
    if OWN:
        print_own()
        return
    study = make_study(N_BLOCKS)
    timed(run_by_hand, make_study(1))  # the first run, which is not timed, loads the compiled kernels
    rounds = [
        (timed(run_by_hand, study), timed(run_by_pipeline, study, 1), timed(run_by_pipeline, study, 2))
        for _ in range(ROUNDS)
    ]
    for hand, one, two in rounds:
        print(
            f"loop {hand:.2f} s ({hand / N_BLOCKS:.2f} s per block), pipeline {one:.2f} s, on two threads {two:.2f} s"
        )
    print(
        f"pipeline / loop, one thread: {statistics.median(one / hand for hand, one, _ in rounds):.3f} (target: < 1.10)"
    )
    print(f"one thread / two threads:    {statistics.median(one / two for _, one, two in rounds):.2f} (target: >= 1.8)")


if __name__ == "__main__":
    main()
