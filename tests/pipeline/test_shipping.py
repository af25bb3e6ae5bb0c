"""Tests of shipping: studies are sent once, tasks are small and named, and consecutive blocks share a task."""

import pickle
import random
import statistics
import time
from dataclasses import replace

import numpy as np
import pytest
from dask.utils import key_split
from distributed import Client, LocalCluster

import pipeline
from pipeline.blocks.evaluate import Block
from pipeline.declare.factors import format_value
from pipeline.declare.source import StudySource
from pipeline.errors import ExecutionError
from pipeline.execution.execute import task_key
from pipeline.execution.in_flight import TasksInFlight
from pipeline.execution.tasks import RegisteredTask, registered, registered_task
from pipeline.execution.work import PendingWork, Task, Work, pack, unpack
from pipeline.execution.worker_runs import RUNS
from studies import STUDIES
from tests.pipeline.helpers import create_store, panel_of
from tests.pipeline.toy import STUDY


def works_of(study):
    """Return all work items of a study, as if its store were empty."""
    return [
        Work(block, tuple(range(len(panel.settings()))))
        for panel in reversed(study.panels)
        for block in pipeline.blocks.division.iterate_blocks(panel)
    ]


# Packing


def test_whole_panels_are_one_run_each():
    works = works_of(STUDY)
    runs = pack(STUDY, works)
    assert len(runs) == len(STUDY.panels)
    assert unpack(STUDY, runs) == works


@pytest.mark.parametrize("seed", range(5))
def test_unpack_inverts_pack(seed):
    draw = random.Random(seed)
    works = []
    for work in works_of(STUDY):
        settings = tuple(k for k in work.settings if draw.random() < 0.8)
        if settings and draw.random() < 0.8:
            works.append(Work(work.block, settings, tuple(k for k in settings if draw.random() < 0.1)))
    assert unpack(STUDY, pack(STUDY, works)) == works
    assert pack(STUDY, []) == ()


def test_pending_work_of_a_store_is_packed(tmp_path):
    study = replace(STUDY, panels=tuple(replace(panel, settings_apart=True) for panel in STUDY.panels))
    works = list(PendingWork(study, create_store(tmp_path / "s.zarr", study)))
    assert unpack(study, pack(study, works)) == works


# Names


@pytest.mark.slow
@pytest.mark.parametrize("name", list(STUDIES))
def test_the_dashboard_shows_study_and_panel(name):
    study = STUDIES[name].configure()
    for panel in study.panels:
        for cell in (0, len(panel.cells()) - 1):
            works = [Work(Block(panel.name, cell, range(1)), (0,))]
            key = task_key(study, works, "0f3a5c2e9b1d4f6a8c7e5d3b1a9f7e5c", 0)
            assert key_split(key) == f"{name}/{panel.name}".replace("-", "_")
            assert len(key) < 250
            for factor, value in list(panel.cells()[cell].items())[:1]:
                assert f"{factor}={format_value(value)}" in key or "..." in key


def test_names_are_unique():
    assert len({task_key(STUDY, works_of(STUDY)[:1], "run", number) for number in range(10)}) == 10


# Shipping


def heavy(n_bytes):
    """Return a study, defined in memory, that contains `n_bytes` of data."""
    data = np.random.default_rng(1).bytes(n_bytes)
    return panel_of(STUDY, "single", simulate=lambda cell, streams: len(data), trials=60, block_trials=1)


def test_tasks_do_not_contain_the_data_of_their_study(tmp_path, monkeypatch):
    sizes, submit = [], TasksInFlight.submit

    def measure(in_flight, payload, function, *args, **options):
        sizes.append(len(pickle.dumps((function, args, options))))
        submit(in_flight, payload, function, *args, **options)

    sent, send = [], Client._send_to_scheduler

    def count(client, message):
        if message.get("op") == "update-graph":
            sent.append(sum(memoryview(frame).nbytes for frame in message["expr_ser"].frames))
        send(client, message)

    monkeypatch.setattr(TasksInFlight, "submit", measure)
    monkeypatch.setattr(Client, "_send_to_scheduler", count)
    pipeline.run(heavy(8_000_000), tmp_path / "s.zarr")
    assert len(sizes) >= 10
    assert len(sent) >= len(sizes)
    assert max(sizes) < 2_000
    assert max(sent) < 2_000


@pytest.mark.timing
def test_tasks_are_submitted_within_a_millisecond(tmp_path, monkeypatch):
    seconds, submit = [], TasksInFlight.submit

    def measure(*args, **options):
        began = time.thread_time()
        submit(*args, **options)
        seconds.append(time.thread_time() - began)

    monkeypatch.setattr(TasksInFlight, "submit", measure)
    pipeline.run(heavy(8_000_000), tmp_path / "s.zarr")
    assert statistics.median(seconds) < 0.001


def test_a_thousand_blocks_of_a_task_are_small():
    study = panel_of(STUDY, "single", trials=3_000, block_trials=2)
    runs = pack(study, works_of(study)[:1000])
    assert len(pickle.dumps(runs)) < 200


@pytest.fixture(scope="module")
def cluster():
    options = {"processes": False, "n_workers": 1, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(**options, protocol="tcp://") as cluster:
        yield cluster


def plugins_of(cluster, run):
    return [name for name in (*cluster.scheduler.worker_plugins, *cluster.scheduler.plugins) if run in name]


@pytest.mark.parametrize("fails", [False, True])
def test_plugins_are_removed_at_the_end(cluster, fails):
    task = Task(pipeline.declare.source.source_of(STUDY), "nowhere", "", run=f"run-{fails}")
    with Client(cluster, set_as_default=False) as client:
        try:
            with registered(client, task):
                assert len(plugins_of(cluster, task.run)) == 1
                assert client.submit(lambda: registered_task(task.run).url, pure=False).result() == "nowhere"
                if fails:
                    raise KeyboardInterrupt
        except KeyboardInterrupt:
            assert fails
        assert not plugins_of(cluster, task.run)
        with pytest.raises(ExecutionError, match="has ended or was cancelled"):
            registered_task(task.run)


def test_run_continues_after_all_workers_left(tmp_path):
    """A run is marked as stopped when the last worker in this process closes, not before."""
    plugin = RegisteredTask(Task(StudySource(None, content=""), str(tmp_path), "", run="shrunk"))
    for _ in range(2):
        plugin.setup(None)
        assert not RUNS.has_stopped("shrunk")
        plugin.teardown(None)
        assert RUNS.has_stopped("shrunk")
