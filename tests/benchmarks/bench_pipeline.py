"""Overhead of the pipeline over a hand-written loop, and speed-up of a second thread.

Run with ``python tests/benchmarks/bench_pipeline.py [--smallest]``. Both sides call the same kernels on the same
streams in the same run, in blocks of about a second (four categories, n = 600, five mechanisms, 10,000 draws); the loop
saves npz files. The rounds alternate, so that drifts of the machine's speed affect both sides; the result is the median
of the ratios.
"""

import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import yaml

import pipeline
from mechanisms import MECHANISMS, balanced_counts, hellinger
from pipeline import Streams, Study
from studies.counts.hellinger_accuracy import STUDY

SMALLEST = "--smallest" in sys.argv[1:]
N_BLOCKS, BLOCK, ROUNDS = (2, 100, 1) if SMALLEST else (12, 10_000, 3)
METHODS = ["smooth", "varying-bound", "hamming-exact", "laplace", "geometric"]


def make_study(n_blocks: int) -> Study:
    """Return the panel k4 at n = 600 with several blocks."""
    study = STUDY.configure(panels=["k4"], values={"n": [600], "mechanism": METHODS}, trials=n_blocks * BLOCK)
    return replace(study, name="bench", panels=tuple(replace(panel, block_trials=BLOCK) for panel in study.panels))


def run_by_hand(study: Study, folder: Path) -> None:
    """Do the same work in a loop, as written for a single study."""
    counts, prior = balanced_counts(600, 4), np.ones(4)
    for start in range(0, study.panels[0].trials or 0, BLOCK):
        trials = range(start, start + BLOCK)
        results = {}
        for name in METHODS:
            distribution = MECHANISMS[name].build(prior, counts, 1.0, 1e-8)
            uniforms = Streams(study.seed, "bench", "k4", name, {"n": 600}, trials).uniforms(distribution.n_uniforms)
            results[name] = hellinger(prior + counts, prior + distribution.from_uniforms(uniforms))
            results[f"{name} expected"] = np.array(distribution.expected_hellinger())
        np.savez_compressed(folder / f"{start}.npz", **results)


def run_by_pipeline(study: Study, folder: Path, n_threads: int) -> None:
    """Run the study into a store on `n_threads` threads."""
    kwargs = {"processes": False, "n_workers": 1, "threads_per_worker": n_threads}
    profile = {"module": "distributed", "class": "LocalCluster", "kwargs": kwargs}
    (folder / "cluster.yaml").write_text(yaml.safe_dump({"profiles": {"bench": profile}}))
    pipeline.run(study, folder / "s.zarr", cluster=f"{folder}/cluster.yaml")


def timed(work, *arguments) -> float:
    """Return the seconds of a call in an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        work(arguments[0], Path(folder), *arguments[1:])
        return time.perf_counter() - start


def main() -> None:
    """Print the results."""
    study = make_study(N_BLOCKS)
    timed(run_by_hand, make_study(1))  # loads the compiled kernels
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
