"""Processor time of the steps of a store per block: creation, plan, commits, scan, count, summary, verification, copy.

Run with ``python tests/benchmarks/bench_store.py [trials|cells] [N ...]``, where N is a number of blocks, counted once
per setting: 1,000, 10,000 and 100,000 by default, and 240 with ``--smallest``. Each block has two files of 4 kB. With
``--empty``, only the steps that precede the first block are measured, and with ``--filled`` those up to the count.

The layout ``trials`` has one cell and twelve settings; ``cells`` has N/10 cells with one block each, and ten settings.
Blocks of a trivial kernel are committed directly, about 1,000 per commit, by one process without a cluster. The time
of `syncfs` depends on the disk and on other processes, and is listed apart.

Each N and layout is measured in its own process, but for ``--smallest``. Time is linear if the exponent, the slope
between the two largest N on logarithmic axes, is at most 1. The line through the same two points gives the time for 10⁶
blocks.
"""

import math
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import numpy as np
from measuring import SMALLEST, in_new_process, peak_megabytes

import pipeline
from pipeline.blocks.evaluate import Outcome
from pipeline.declare.source import find_study
from pipeline.declare.study import Study
from pipeline.execution.work import PendingWork, Work, pack
from pipeline.runs.estimate import make_plan
from pipeline.runs.verify import verify
from pipeline.store.commit import BlockWriter, Planned
from pipeline.store.creation import create_empty_store
from pipeline.store.files.local_files import LocalFiles
from pipeline.store.result_store import ResultStore
from pipeline.store.scan.states import count_by_status
from pipeline.store.sessions.lease import Session

EMPTY, FILLED = (word in sys.argv[1:] for word in ("--empty", "--filled"))
N_SETTINGS = {"trials": 12, "cells": 10}
BATCH = 1_000
TARGET = 10**6
STEPS = ("create", "plan", "pack", "scan empty", "commit", "open", "scan", "count", "summarise", "verify", "compact")
STEPS += tuple(f"{name} compact" for name in ("scan", "summarise", "verify"))
STUDY_FILE = """
import numpy as np
from pipeline import Factor, Measure, Method, Panel, Study

def simulate(cell, streams):
    return np.array(streams.trials)

def evaluate(data, setting, streams):
    return {{"x": 1.0 * (data % 7)}}

panel = Panel("p", "a panel", simulate, tuple(Method(f"m{{k}}", evaluate) for k in range({n_settings})),
              (Measure("x", "a number"),), (Factor("n", (1,), "number of the cell", "int"),), trials=1, block_trials=1)
STUDY = Study("store", "Store", "To be large.", (panel,), seed=1)
"""


class Timer:
    """Processor seconds and peak memory of steps; the wall-clock seconds of `syncfs` are counted apart."""

    def __init__(self) -> None:
        self.found: dict[str, float] = {}
        self.flushed = self._used = 0.0
        flush = LocalFiles.flush

        def timed_flush(files: LocalFiles, keys: Iterable[str]) -> None:
            used, start = time.process_time(), time.perf_counter()
            flush(files, keys)
            self._used += time.process_time() - used
            self.flushed += time.perf_counter() - start

        LocalFiles.flush = timed_flush  # type: ignore[method-assign]

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measure one step."""
        before = time.process_time() - self._used
        yield
        self.found[name] = time.process_time() - self._used - before
        self.found[f"{name} peak"] = peak_megabytes()


def fill(study: Study, store: ResultStore, works: Iterator[Work]) -> None:
    """Commit the outcomes of work directly."""
    panel = study.panels[0]
    settings = panel.settings()
    while batch := list(islice(works, BATCH // len(settings))):
        planned = [Planned(panel, work.block, [settings[k] for k in work.settings]) for work in batch]
        with BlockWriter(store).commit(planned) as commit:
            for one in planned:
                trials = one.block.trials
                n = len(trials)
                outcome = Outcome({"x": 1.0 * (np.array(trials) % 7)}, np.ones(n, np.int8), np.full(n, "", object))
                for setting in one.settings:
                    commit.write(panel, one.block, setting, outcome)


def measure(layout: str, size: int) -> dict[str, float]:
    """Measure each step for one layout and number of blocks."""
    n_settings = N_SETTINGS[layout]
    n_blocks = size // n_settings
    cells, trials = (1, n_blocks) if layout == "trials" else (n_blocks, 1)
    timer = Timer()
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "study.py").write_text(STUDY_FILE.format(n_settings=n_settings))
        source, url = find_study(f"{name}/study.py", {}), f"{name}/s.zarr"
        source.trust()
        declared = source.load()
        with Session.begin(f"{name}/first.zarr", {}) as session:  # import all modules before the measurement
            create_empty_store(session, declared.configure(), source.attributes)
        verify(f"{name}/first.zarr", sample=0)
        pipeline.summarise(pipeline.open_results(f"{name}/first.zarr")["p"].to_dataset())
        with Session.begin(url, source.attributes) as session:
            with timer.step("create"):
                study = declared.configure(trials, values={"n": range(1, cells + 1)})
                store = create_empty_store(session, study, source.attributes)
            with timer.step("plan"):
                make_plan(study, pilot_seconds=0)
                works = PendingWork(study, store)
                assert works.n_evaluations == n_settings * n_blocks
            with timer.step("pack"):
                rest = iter(works)
                while batch := list(islice(rest, BATCH)):
                    pack(study, batch)
            with timer.step("scan empty"):
                assert len(PendingWork(study, ResultStore.open(url))) == n_blocks
            if EMPTY:
                return timer.found
            with timer.step("commit"):
                fill(study, store, iter(works))
        with timer.step("open"):
            store = ResultStore.open(url)
            study = declared.from_spec(store.spec)
        with timer.step("scan"):
            assert len(PendingWork(study, store)) == 0
        with timer.step("count"):
            assert count_by_status(store, "p")[pipeline.Status.OK] == n_settings * n_blocks
        if FILLED:
            return timer.found | {"syncfs": timer.flushed}
        with timer.step("summarise"):
            summary = pipeline.summarise(pipeline.open_results(url)["p"].to_dataset())
        assert int(summary["n_ok"].sum()) == n_settings * n_blocks
        with timer.step("verify"):
            assert not verify(url, sample=0).problems
        flushed = timer.flushed
        with timer.step("compact"):
            copy = pipeline.compact(url, f"{name}/compact.zarr")
        with timer.step("scan compact"):
            assert len(PendingWork(study, copy)) == 0
        with timer.step("summarise compact"):
            again = pipeline.summarise(pipeline.open_results(copy)["p"].to_dataset())
        assert again.identical(summary.assign_attrs(again.attrs))
        with timer.step("verify compact"):
            assert not verify(copy, sample=0).problems
        files = {"files": count_files(url), "files compact": count_files(copy.url)}
    return timer.found | files | {"syncfs": flushed}


def count_files(path: str) -> int:
    """Return the number of files of a store."""
    return sum(len(names) for _, _, names in os.walk(path))


def print_steps(results: dict[int, dict[str, float]]) -> None:
    """Print processor milliseconds per block of each step, its exponent, and the seconds of a fit for 10⁶ blocks."""
    sizes = list(results)
    print(f"{'ms per block':>18}" + "".join(f"{n:>10,}" for n in sizes) + "  exponent  s for 10⁶  peak MB")
    for step in STEPS[:4] if EMPTY else STEPS[:8] if FILLED else STEPS:
        seconds = [results[n][step] for n in sizes]
        line = f"{step:>18}" + "".join(f"{used / n * 1e3:10.4f}" for used, n in zip(seconds, sizes, strict=True))
        if len(sizes) > 1:
            (n, m), (before, after) = sizes[-2:], (max(used, 1e-3) for used in seconds[-2:])
            slope = (after - before) / (m - n)
            line += f"{math.log(after / before) / math.log(m / n):10.2f}{after + slope * (TARGET - m):11.1f}"
        print(f"{line}{results[sizes[-1]][f'{step} peak']:9.0f}" if len(sizes) > 1 else line)
    if EMPTY:
        return
    print(f"{'syncfs, wall clock':>18}" + "".join(f"{results[n]['syncfs'] / n * 1e3:10.4f}" for n in sizes))
    if FILLED:
        return
    shares = ", ".join(f"{results[n]['files compact']:,.0f} of {results[n]['files']:,.0f}" for n in sizes)
    print(f"files after compaction: {shares}", flush=True)


def main() -> None:
    """Print the results."""
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    layouts = [word for word in words if word in N_SETTINGS] or list(N_SETTINGS)
    sizes = [int(word) for word in words if word not in N_SETTINGS] or ([240] if SMALLEST else [1_000, 10_000, 100_000])
    for layout in layouts:
        preload = ["pipeline.runs.run", "pipeline.runs.verify"]
        results = {size: in_new_process(preload, measure, layout, size) for size in sizes}
        print(f"{layout}: {N_SETTINGS[layout]} settings")
        print_steps(results)


if __name__ == "__main__":
    main()
