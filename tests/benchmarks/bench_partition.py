"""Time of regression from partitions, compared with the time of its random draws alone, and speed-up on two threads.

    python tests/benchmarks/bench_partition.py [--smallest]

Times are the shortest of many runs, in processor time of one thread, without compilation. A data set has 100,000 rows
in 1,000 partitions and requires 200,000 normal draws, which are timed in NumPy and in Numba. Two threads run the blocks
of the study, each trial with its own generator, in wall-clock time; this needs two idle cores.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numba
import numpy as np
from measuring import SMALLEST, best_seconds, on_two_threads, print_machine

from mechanisms.regression.statistics import partition_sizes, simulate_statistics
from pipeline import Panel, Streams
from studies.regression.partition_probability import STUDY as PROBABILITY
from studies.regression.partition_quantile import STUDY as QUANTILE

TRIALS, TURNS, SETS, BLOCK = (2, 1, 4, 2) if SMALLEST else (20, 12, 1_000, 50)


@numba.njit(nogil=True)
def bare_draws(rng, n):
    total = 0.0
    for _ in range(n):
        total += rng.standard_normal()
    return total


def best(call: Callable[[], object], turns: int = TURNS) -> float:
    """Return the shortest processor time of several calls, in milliseconds, after a first call that compiles."""
    call()
    return 1e3 * best_seconds([call], turns, time.thread_time)[0]


def evaluate(panel: Panel, trials: range) -> None:
    cell = panel.fixed_values
    data = panel.simulate(cell, Streams(1, "bench", panel.name, "data", {}, trials))
    for method in panel.methods:
        method.evaluate(data, cell, Streams(1, "bench", panel.name, method.name, {}, trials))


def main() -> None:
    print_machine()
    rng, sizes = np.random.Generator(np.random.PCG64DXSM(1)), partition_sizes(100_000, 100)
    print(f"200,000 normals, numpy:                       {best(lambda: rng.standard_normal(200_000)):6.2f} ms")
    print(f"200,000 normals, numba:                       {best(lambda: bare_draws(rng, 200_000)):6.2f} ms")
    reduced = best(lambda: simulate_statistics(rng, sizes, [1, 2], 1))
    print(f"rows drawn and reduced, 1,000 partitions:     {reduced:6.2f} ms")
    for study, title in ((PROBABILITY, "seven cutoffs"), (QUANTILE, "seven quantiles")):
        panel = study.panel("default")
        mine = best(lambda panel=panel: evaluate(panel, range(TRIALS)), 4) / TRIALS
        print(f"{study.name}: one data set, {title}, all {len(panel.methods)} methods: {mine:.2f} ms")
        blocks = [range(start, start + BLOCK) for start in range(0, SETS, BLOCK)]
        start = time.perf_counter()
        on_two_threads(lambda k, panel=panel, blocks=blocks: evaluate(panel, blocks[k]), len(blocks))
        print(f"    {SETS:,} data sets on two threads: {time.perf_counter() - start:.1f} s (at most 30)")


if __name__ == "__main__":
    main()
