"""Tests that adaptive clusters grow to their maximum during a run, keep workers busy, and shrink again."""

import threading
import time
from importlib import import_module

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

def wait(data, setting, streams):
    began = time.time()
    Path({log!r} + "-begun", f"{{os.getpid()}}-{{began}}").touch()
    is_last = len(os.listdir({log!r} + "-begun")) > {trials} + 2  # the first trial is evaluated twice before the run
    time.sleep(data + 12.0 if is_last else data)
    Path({log!r}, f"{{os.getpid()}}-{{time.time()}}").write_text(f"{{began}} {{time.time()}}")
    return {{"x": streams.uniforms(1)[:, 0]}}

PANEL = Panel("blocks", "blocks", simulate, (Method("wait", wait),), (Measure("x", "a number"),),
              (Factor("seconds", ({seconds},), "time of a block"),), trials={trials} + 1)
STUDY = Study("waiting", "Waiting", "To wait.", (PANEL,), seed=1)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("seconds", "trials"), [(0.25, 320), (1.0, 80), (10.0, 12)])
def test_adaptive_cluster_grows_is_busy_and_shrinks(tmp_path, monkeypatch, seconds, trials):
    """The cluster grows and is busy during blocks of equal duration, and shrinks during a long last block."""
    for name in ("log", "log-begun"):
        (tmp_path / name).mkdir()
    (tmp_path / "waiting.py").write_text(STUDY_FILE.format(log=str(tmp_path / "log"), seconds=seconds, trials=trials))
    profile = {
        "class": "LocalCluster",
        "kwargs": {"n_workers": 1, "threads_per_worker": 1},
        "adapt": {"minimum": 1, "maximum": 4},
    }
    (tmp_path / "c.yaml").write_text(yaml.safe_dump({"profiles": {"grows": profile}}))
    sizes, over, module = [], threading.Event(), import_module("pipeline.computation")
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
                        sizes.append((time.time(), len(client.cluster.scheduler_info["workers"])))

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
    spans = [tuple(map(float, file.read_text().split())) for file in (tmp_path / "log").iterdir()]
    assert len(spans) == trials + 1 + 2  # the first trial is evaluated twice before the run
    spans.sort(key=lambda span: span[1])
    # the queue is empty when the last block begins, which no forecast knows to be long
    empty = max(begin for begin, end in spans)
    busy = sum(max(0.0, min(end, empty) - max(begin, grown)) for begin, end in spans)
    share = busy / (4 * (empty - grown))
    print(f"blocks of {seconds} s: 4 workers for {empty - grown:.1f} s, busy {share:.3f}; then {sizes[-1][1]} worker")
    assert empty > grown
    assert share >= 0.9
    assert sizes[-1][1] == 1
