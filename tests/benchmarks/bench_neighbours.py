"""Comparison of 5,000 neighbouring tables until the noise, and of 50 runs per command with a process without records.

Run with ``python tests/benchmarks/bench_neighbours.py [--smallest]``. Every command and function that releases real
data gets pairs of tables that differ in one row, with ordinary and extreme numbers. Up to the noise, which is stubbed,
both show the same. A process that is given only the releases prints what the runs with the tables print. A difference
ends the script with an AssertionError.
"""

import multiprocessing
import sys
import tempfile
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from measuring import SMALLEST

from tests.studies.neighbouring import COMMANDS, FUNCTIONS, check_pairs, check_replay, opened_doors

PAIRS, RUNS = (2, 2) if SMALLEST else (210, 50)
DOORS = ["count", "publish_counts"] if SMALLEST else [*COMMANDS, *FUNCTIONS]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in DOORS:
            start = time.perf_counter()
            with pytest.MonkeyPatch.context() as monkeypatch, opened_doors(monkeypatch, folder) as door:
                check_pairs(door, name, PAIRS, seed=2)
            if name in COMMANDS:
                with pytest.MonkeyPatch.context() as monkeypatch:
                    check_replay(monkeypatch, Path(folder), name, RUNS, multiprocessing.get_context("forkserver"))
            print(f"{name}: {PAIRS} pairs equal, {time.perf_counter() - start:.1f} s", flush=True)


if __name__ == "__main__":
    main()
