"""Tests that adaptive clusters grow to their maximum during a run, keep workers busy, and shrink again."""

import threading
import time
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
import yaml

from pipeline import run

STUDY_FILE = """
import os
import time
from pathlib import Path
from pipeline import Factor, Measure, Method, Panel, Study

def simulate(cell, streams):
    return cell["seconds"]

def unserved():
    # seconds that this thread and the event loop, which is the main thread, have waited for a processor
    files = Path("/proc/thread-self/schedstat"), Path("/proc/self/schedstat")
    return sum(int(file.read_text().split()[1]) for file in files if file.exists()) / 1e9

def wait(data, setting, streams):
    began, before = time.time(), unserved()
    Path({log!r} + "-begun", f"{{os.getpid()}}-{{began}}").touch()
    is_last = len(os.listdir({log!r} + "-begun")) > {trials} + 2  # the first trial is evaluated twice before the run
    time.sleep(data + 12.0 if is_last else data)
    Path({log!r}, f"{{os.getpid()}}-{{time.time()}}").write_text(
        f"{{began}} {{time.time()}} {{before}} {{unserved()}} {{os.getpid()}}")
    return {{"x": streams.uniforms(1)[:, 0]}}

PANEL = Panel("blocks", "blocks", simulate, (Method("wait", wait),), (Measure("x", "a number"),),
              (Factor("seconds", ({seconds},), "time of a block"),), trials={trials} + 1)
STUDY = Study("waiting", "Waiting", "To wait.", (PANEL,), seed=1)
"""


class Span(NamedTuple):
    """Time of a block on a worker, and the time for which the worker has waited for a processor until then."""

    begin: float
    end: float
    unserved_before: float
    unserved: float
    worker: float


def seconds_without_processor(spans, first, last):
    """Return the seconds between blocks for which workers waited for a processor within an interval."""
    total = 0.0
    by_time = sorted(spans, key=lambda span: (span.worker, span.begin))
    for span, following in pairwise(by_time):
        if span.worker == following.worker and first <= span.end and following.begin <= last:
            total += min(max(0.0, following.unserved_before - span.unserved), following.begin - span.end)
    return total


@dataclass(frozen=True)
class Observation:
    """Numbers of workers, and of workers with tasks, over time; spans of the blocks."""

    sizes: list[tuple[float, int]]
    supplied: list[tuple[float, int]]
    spans: list[Span]


def observe_run(folder, monkeypatch, seconds, trials, maximum=4):
    """Run blocks of `seconds` on a cluster that may grow from one worker to a maximum; record its workers over time."""
    for name in ("log", "log-begun"):
        (folder / name).mkdir()
    (folder / "waiting.py").write_text(STUDY_FILE.format(log=str(folder / "log"), seconds=seconds, trials=trials))
    profile = {
        "class": "LocalCluster",
        "kwargs": {"n_workers": 1, "threads_per_worker": 1},
        "adapt": {"minimum": 1, "maximum": maximum},
    }
    (folder / "c.yaml").write_text(yaml.safe_dump({"profiles": {"grows": profile}}))
    sizes, supplied, over, module = [], [], threading.Event(), import_module("pipeline.runs.run_plan")
    connect = module.connect

    def watched(profile):
        """Connect to a cluster, and record its number of workers over time."""
        context = connect(profile)
        enter = context.__enter__

        class Watched:
            def __enter__(self):
                client = enter()

                def watch():
                    while not over.wait(0.05):
                        workers = list(client.cluster.scheduler.workers.values())
                        sizes.append((time.time(), len(workers)))
                        supplied.append((time.time(), sum(bool(worker.processing) for worker in workers)))

                threading.Thread(target=watch, daemon=True).start()
                return client

            def __exit__(self, *error):
                over.set()
                return context.__exit__(*error)

        return Watched()

    monkeypatch.setattr(module, "connect", watched)
    run(str(folder / "waiting.py"), folder / "s.zarr", cluster=str(folder / "c.yaml"))
    spans = [Span(*map(float, file.read_text().split())) for file in (folder / "log").iterdir()]
    # the first trial is evaluated twice before the run, and a trial perhaps once more after it, to trace its memory
    assert len(spans) - (trials + 1) in (2, 3)
    return Observation(sizes, supplied, spans)


@pytest.mark.slow
def test_adaptive_cluster_grows_and_shrinks(tmp_path, monkeypatch):
    """The cluster has two workers while blocks wait, and one during a long last block."""
    sizes = [n for _, n in observe_run(tmp_path, monkeypatch, seconds=1.0, trials=12, maximum=2).sizes]
    assert max(sizes) == 2
    assert sizes[-1] == 1


@pytest.mark.timing
@pytest.mark.parametrize(
    ("seconds", "trials"),
    [
        (1.0, 40),
        pytest.param(0.25, 320, marks=pytest.mark.exhaustive),
        pytest.param(1.0, 80, marks=pytest.mark.exhaustive),
        pytest.param(10.0, 12, marks=pytest.mark.exhaustive),
    ],
)
def test_adaptive_cluster_is_busy(tmp_path, monkeypatch, seconds, trials):
    """The workers are busy from the growth of the cluster to the beginning of the last block.

    On a loaded machine, the share of time for which workers wait for a processor between two blocks measures the load,
    which delays the scheduler, the driver and writes likewise. On an idle machine it is 0.
    """
    observed = observe_run(tmp_path, monkeypatch, seconds, trials)
    grown = next(moment for moment, n in observed.sizes if n == 4)
    # the queue is empty when the last block begins, which no forecast knows to be long
    empty = max(span.begin for span in observed.spans)
    whole = 4 * (empty - grown)
    busy = sum(max(0.0, min(span.end, empty) - max(span.begin, grown)) for span in observed.spans) / whole
    with_tasks = np.mean([n / 4 for moment, n in observed.supplied if grown < moment < empty])
    unserved = seconds_without_processor(observed.spans, grown, empty) / whole
    print(
        f"blocks of {seconds} s: 4 workers for {empty - grown:.1f} s, with tasks {with_tasks:.3f}, busy {busy:.3f}, "
        f"without a processor {unserved:.3f}"
    )
    assert with_tasks >= 0.9 - 2 * unserved
    assert busy >= 0.9 - 4 * unserved
