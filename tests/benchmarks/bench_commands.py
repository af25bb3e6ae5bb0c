"""Time of the commands that only read: ``--help``, ``list`` and ``status``, at most 0.7 s each.

Run with ``python tests/benchmarks/bench_commands.py [--smallest]``. Each command runs in a new process; the smallest
elapsed time and processor time of several runs are printed. The first run fills the caches and is not counted.
"""

import os
import subprocess
import sys
import tempfile
import time

import pipeline
from studies import STUDIES

RUNS, FIRST = (1, 0) if "--smallest" in sys.argv[1:] else (7, 1)
PROGRAM = (sys.executable, "-c", "from studies.cli import main; main()")


def time_command(*words: str) -> tuple[float, float]:
    """Return the elapsed time and the processor time of a command, in seconds."""
    started, before = time.perf_counter(), os.times()
    subprocess.run([*PROGRAM, *words], stdout=subprocess.DEVNULL, check=True)
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - started, cpu


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = f"{folder}/s.zarr"
        study, values = STUDIES["gibbs-traces"], {"iteration": [0, 1]}
        pipeline.run(study, store, panels=["binomial"], values=values, progress=False)
        for words in (("--help",), ("list",), ("status", store)):
            elapsed, cpu = map(min, zip(*[time_command(*words) for _ in range(FIRST + RUNS)][FIRST:], strict=True))
            print(f"{words[0]:7} {elapsed:5.2f} s elapsed, {cpu:5.2f} s of processor time")


if __name__ == "__main__":
    main()
