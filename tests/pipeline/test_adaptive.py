"""Tests that adaptive clusters grow to their maximum during a run, keep workers busy, and shrink again."""

import threading
import time
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
    for one, other in pairwise(by_time):
        if one.worker == other.worker and first <= one.end and other.begin <= last:
            total += min(max(0.0, other.unserved_before - one.unserved), other.begin - one.end)
    return total


@pytest.mark.slow
@pytest.mark.parametrize(("seconds", "trials"), [(0.25, 200), (10.0, 12)])
def test_adaptive_cluster_grows_is_busy_and_shrinks(tmp_path, monkeypatch, seconds, trials):
    """The cluster grows and is busy during blocks of equal duration, and shrinks during a long last block.

    On a loaded machine, the share of time for which workers wait for a processor between two blocks measures the load,
    which delays the scheduler, the driver and writes likewise. On an idle machine it is 0.
    """
    for name in ("log", "log-begun"):
        (tmp_path / name).mkdir()
    (tmp_path / "waiting.py").write_text(STUDY_FILE.format(log=str(tmp_path / "log"), seconds=seconds, trials=trials))
    profile = {
        "class": "LocalCluster",
        "kwargs": {"n_workers": 1, "threads_per_worker": 1},
        "adapt": {"minimum": 1, "maximum": 4},
    }
    (tmp_path / "c.yaml").write_text(yaml.safe_dump({"profiles": {"grows": profile}}))
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
    run(str(tmp_path / "waiting.py"), tmp_path / "s.zarr", cluster=str(tmp_path / "c.yaml"))
    grown = next((moment for moment, n in sizes if n == 4), None)
    assert grown is not None, "the cluster did not grow to its maximum"
    spans = [Span(*map(float, file.read_text().split())) for file in (tmp_path / "log").iterdir()]
    assert len(spans) == trials + 1 + 2  # the first trial is evaluated twice before the run
    # the queue is empty when the last block begins, which no forecast knows to be long
    empty = max(span.begin for span in spans)
    whole = 4 * (empty - grown)
    busy = sum(max(0.0, min(span.end, empty) - max(span.begin, grown)) for span in spans) / whole
    with_tasks = np.mean([n / 4 for moment, n in supplied if grown < moment < empty])
    unserved = seconds_without_processor(spans, grown, empty) / whole
    print(
        f"blocks of {seconds} s: 4 workers for {empty - grown:.1f} s, with tasks {with_tasks:.3f}, busy {busy:.3f}, "
        f"without a processor {unserved:.3f}; then {sizes[-1][1]} worker"
    )
    assert empty > grown
    assert with_tasks >= 0.9 - 2 * unserved
    assert busy >= 0.9 - 4 * unserved
    assert sizes[-1][1] == 1
