"""Ratio of the planned to the actual cost of studies at quick scale: processor time, and size of the files.

Run with ``python tests/benchmarks/bench_plan.py [STUDY ...] [--smallest]``; by default all studies, which takes about
half an hour. Each plan and each run has a process of its own, and plans and runs alternate, so that drifts of the
machine's speed affect both. The result is the median of three ratios; with ``--smallest``, one ratio of one study.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

from measuring import SMALLEST, in_new_process

import pipeline
import pipeline.runs.estimate
from studies import STUDIES
from studies.folders import configure

ROUNDS, PILOT_SECONDS = (1, 0.1) if SMALLEST else (3, 10.0)


class ProcessorClock:
    """Replacement of the module `time` in plans, which measures processor time on a machine with other work."""

    perf_counter = staticmethod(time.process_time)


def plan(name: str) -> tuple[float, float]:
    """Return the planned seconds and bytes of a study."""
    pipeline.runs.estimate.time = ProcessorClock
    plans = pipeline.runs.estimate.make_plan(
        STUDIES[name].configure(**configure(STUDIES[name], "quick")), PILOT_SECONDS
    )
    return pipeline.runs.estimate.START_SECONDS + sum(one.seconds for one in plans), sum(one.n_bytes for one in plans)


def run(name: str) -> tuple[float, float]:
    """Return the processor seconds of a run, and the bytes of its store."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        pipeline.run(STUDIES[name], f"{folder}/s.zarr", progress=False, **configure(STUDIES[name], "quick"))
        seconds = time.process_time() - start
        return seconds, sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())


def main() -> None:
    """Print one line per study."""
    for name in [word for word in sys.argv[1:] if word in STUDIES] or (["renyi-curves"] if SMALLEST else STUDIES):
        pairs = [[in_new_process((), action, name) for action in (plan, run)] for _ in range(ROUNDS)]
        planned, actual = (statistics.median(one[k][0] for one in pairs) for k in (0, 1))
        time_ratio, size_ratio = (statistics.median(p[k] / r[k] for p, r in pairs) for k in (0, 1))
        print(
            f"{name:22} time {planned:6.1f} / {actual:6.1f} s = {time_ratio:.2f}, size {pairs[0][0][1] / 1e6:.2f} / "
            f"{pairs[0][1][1] / 1e6:.2f} MB = {size_ratio:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
