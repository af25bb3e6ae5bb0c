"""Overhead of the pipeline relative to a hand-written loop, and speed-up with a second thread.

Run with ``python tests/benchmarks/bench_pipeline.py [--smallest]``. Both versions call the same kernels with the same
streams, in blocks of about a second (four categories, n = 600, five mechanisms, 10,000 draws); the loop saves npz
files. Rounds of the two versions alternate, so that drifts of the machine's speed affect both; the result is the median
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
N, N_BLOCKS, BLOCK, ROUNDS = (60, 2, 100, 1) if SMALLEST else (600, 12, 10_000, 3)
METHODS = ["smooth", "varying-bound", "hamming-exact", "laplace", "geometric"]


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
    kwargs = {"processes": False, "n_workers": 1, "threads_per_worker": n_threads}
    profile = {"module": "distributed", "class": "LocalCluster", "kwargs": kwargs}
    (folder / "cluster.yaml").write_text(yaml.safe_dump({"profiles": {"bench": profile}}))
    pipeline.run(study, folder / "s.zarr", cluster=f"{folder}/cluster.yaml")


def timed(work, *arguments) -> float:
    """Call `work` in an empty folder, and return the duration of the call in seconds."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        work(arguments[0], Path(folder), *arguments[1:])
        return time.perf_counter() - start


def main() -> None:
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
