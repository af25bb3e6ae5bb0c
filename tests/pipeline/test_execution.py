"""Tests of runs on threads: classes of errors, budgets, checks before writes, and counts."""

import errno
import io
import itertools
import re
import sys
import threading
import warnings
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

from pipeline import Factor, Method, open_results, resume, run
from pipeline.blocks.evaluate import FAILURES, Status
from pipeline.clusters.profiles import Profile
from pipeline.declare.source import StudySource
from pipeline.errors import BadInputError, ExecutionError, SessionSupersededError
from pipeline.execution import checks, execute, in_flight
from pipeline.execution.in_flight import RETRIES, Monitor, find_cause
from pipeline.runs.progress import ProgressDisplay
from pipeline.store.result_store import ResultStore
from studies.output import ERRORS
from tests.pipeline.faults.file_operations import call_before
from tests.pipeline.helpers import (
    assert_equal_arrays,
    count_status,
    make_study,
    pending,
    refusal,
    unchanged,
    write_study_file,
)
from tests.pipeline.toy import SMALL, STUDY


@pytest.fixture(scope="module")
def small_store(tmp_path_factory):
    return run(SMALL, tmp_path_factory.mktemp("small") / "s.zarr").url


def on_workers(monkeypatch, error, picks):
    """Raise `error` in those renames on workers for which `picks` returns True; return the list of failed renames."""
    numbers, hit = itertools.count(1), []

    def fail(files, temporary, key):
        if threading.current_thread() is not threading.main_thread() and ".dpstudies" not in key:
            number = next(numbers)
            if picks(number, key):
                hit.append(key)
                raise error

    call_before(monkeypatch, "_rename", fail)
    monkeypatch.setattr("pipeline.faults.time.sleep", lambda seconds: None)
    return hit


# Transient and fatal errors


@pytest.mark.slow
def test_transient_errors_of_every_tenth_write_are_retried(small_store, tmp_path, monkeypatch):
    hit = on_workers(monkeypatch, OSError(errno.ESTALE, "Stale file handle"), lambda n, key: n % 10 == 0)
    store = run(SMALL, tmp_path / "s.zarr")
    assert len(hit) >= 5
    assert "finished" in store.sessions[-1]
    assert_equal_arrays(store.url, small_store)


@pytest.mark.slow
def test_a_task_that_fails_transiently_is_retried(small_store, tmp_path, monkeypatch):
    """If a write fails transiently more often than it is retried within a task, the task is repeated."""
    left = [6]

    def pick(number, key):
        left[0] -= key.endswith("status/c/0/7")
        return key.endswith("status/c/0/7") and left[0] >= 0

    hit = on_workers(monkeypatch, OSError(errno.ESTALE, "Stale file handle"), pick)
    run(SMALL, tmp_path / "s.zarr")
    assert len(hit) == 6
    assert_equal_arrays(tmp_path / "s.zarr", small_store)


@pytest.mark.slow
def test_only_blocks_that_cannot_be_written_stay_pending(small_store, tmp_path, monkeypatch):
    error = OSError(errno.ESTALE, "Stale file handle")
    with monkeypatch.context() as patch:
        hit = on_workers(patch, error, lambda n, key: key.endswith("status/c/0/7"))
        with pytest.raises(ExecutionError, match=r"^1 block remains pending: Stale file handle$"):
            run(SMALL, tmp_path / "s.zarr")
    assert len(hit) >= 2 * (RETRIES + 1)
    store = ResultStore.open(tmp_path / "s.zarr")
    (left,) = np.argwhere(pending(store, SMALL.panels[0]))
    assert left.tolist() == [0, 7, 0]
    assert "finished" not in store.sessions[-1]
    resume(store.url, study=SMALL)
    assert_equal_arrays(store.url, small_store)


def test_unavailable_store_stops_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(execute, "_MOST_FAILED_TASKS", 3)
    on_workers(monkeypatch, OSError(errno.EIO, "Input/output error"), lambda n, key: True)
    with refusal("3 consecutive tasks failed, each after several attempts: ", "Input/output", error=ExecutionError):
        run(SMALL, tmp_path / "s.zarr")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (OSError(errno.EROFS, "Read-only file system"), "mount the file system with write access"),
        (SessionSupersededError("/s.zarr"), "show the status with: dpstudies status /s.zarr"),
    ],
    ids=str,
)
def test_fatal_error_stops_the_run_with_one_line(tmp_path, monkeypatch, error, advice):
    hit = on_workers(monkeypatch, error, lambda n, key: n > 20)
    with refusal("a worker failed: ", advice, error=ExecutionError):
        run(SMALL, tmp_path / "s.zarr")
    assert len(hit) <= 8  # only tasks that were already running fail


# Budgets


def fails(data, setting, streams):
    raise LookupError(f"no result for trials {list(streams.trials)}")


def draws(data, setting, streams):
    return {"x": streams.uniforms(1)[:, 0]}


def fails_below(n):
    def evaluate(data, setting, streams):
        return draws(data, setting, streams) if data >= n else fails(data, setting, streams)

    return evaluate


def failing(method, cells=(1, 2), trials=150, block_trials=50):
    return make_study(
        Method("good", draws),
        Method("bad", method),
        simulate=lambda cell, streams: cell["n"],
        factors=(Factor("n", cells, "size", "int"),),
        trials=trials,
        block_trials=block_trials,
    )


@pytest.mark.parametrize("block_trials", [pytest.param(1, marks=(pytest.mark.slow, pytest.mark.exhaustive)), 50, 150])
def test_method_that_fails_on_all_trials_stops_the_run(tmp_path, block_trials):
    study = failing(fails, block_trials=block_trials)
    texts = ("method bad of panel p failed on all 1", "LookupError: no result for trials", "with --allow-failures")
    with refusal(*texts, error=ExecutionError):
        run(study, tmp_path / "s.zarr")
    ds = open_results(tmp_path / "s.zarr")["p"].to_dataset()
    counts = {name: count_status(ds.sel(algorithm=name)) for name in ("good", "bad")}
    assert counts["good"][Status.FAILED] == counts["bad"][Status.OK] == 0
    assert 100 <= counts["bad"][Status.FAILED] < 300
    assert counts["bad"][Status.PENDING] == 300 - counts["bad"][Status.FAILED]


@pytest.mark.slow
@pytest.mark.parametrize("settings_apart", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
def test_failure_of_every_trial_of_the_first_block_stops_the_run(tmp_path, settings_apart):
    """If all 20 trials of the first block fail, the run stops, although the budget allows 100 failures."""
    study = failing(fails, cells=range(20), trials=20, block_trials=20)
    panel = replace(
        study.panels[0], methods=(Method("bad", fails), Method("worse", fails)), settings_apart=settings_apart
    )
    study = replace(study, panels=(panel,))
    text = r"^every trial of the first block of panel p failed \(test_execution\.py:\d+: LookupError: no resu"
    with pytest.raises(ExecutionError, match=text):
        run(study, tmp_path / "s.zarr")
    counts = count_status(open_results(tmp_path / "s.zarr")["p"].to_dataset())
    assert 40 <= counts[Status.FAILED] < 600
    run(study, tmp_path / "s.zarr", allow_failures=True)
    assert count_status(open_results(tmp_path / "s.zarr")["p"].to_dataset())[Status.FAILED] == 800


def test_short_first_block_may_fail(tmp_path):
    """If all 9 trials of a short first block fail, the trials of other cells are still computed."""
    study = failing(fails, cells=range(4), trials=9, block_trials=9)
    study = replace(study, panels=(replace(study.panels[0], methods=(Method("bad", fails),)),))
    counts = count_status(open_results(run(study, tmp_path / "s.zarr"))["p"].to_dataset())
    assert counts[Status.FAILED] == 36


@pytest.mark.slow
def test_resume_continues_after_a_budget_error(tmp_path):
    study, path = failing(fails), tmp_path / "s.zarr"
    with pytest.raises(ExecutionError):
        run(study, path)
    resume(path, study=study, allow_failures=True)
    whole = run(study, tmp_path / "whole.zarr", allow_failures=True)
    counts = count_status(open_results(whole)["p"].to_dataset())
    assert (counts[Status.OK], counts[Status.FAILED], counts[Status.PENDING]) == (300, 300, 0)
    assert "finished" in whole.sessions[-1]
    assert_equal_arrays(path, whole.url)


@pytest.mark.parametrize("fails_everywhere", [True, False])
def test_a_retry_keeps_stored_failures_and_counts_stored_successes(tmp_path, fails_everywhere):
    study = failing(fails if fails_everywhere else fails_below(2), block_trials=150)
    path = run(study, tmp_path / "s.zarr", allow_failures=True).url
    stored = open_results(path)["p"].to_dataset().load()
    n_sessions = len(ResultStore.open(path).sessions)
    with pytest.raises(ExecutionError) if fails_everywhere else nullcontext():
        resume(path, study=study, retry=FAILURES)
    assert len(ResultStore.open(path).sessions) == n_sessions + 1
    assert open_results(path)["p"].to_dataset().load().equals(stored)


def test_success_in_another_cell_lifts_the_budget(tmp_path):
    """If another cell succeeds, a cell whose trials all fail is computed beyond the budget of 100 failures."""
    study, receipts = failing(fails_below(2), cells=(2, 1), block_trials=150), []  # the cell without failures is first
    store = run(study, tmp_path / "s.zarr", progress=lambda works: receipts.append)
    status = open_results(store)["p"]["status"]
    assert (status.sel({"n": 1, "algorithm": "bad"}) == Status.FAILED).all()
    assert (status.sel(algorithm="good") == Status.OK).all()
    assert sum(receipt.n_done for receipt in receipts) == 600
    assert sum(receipt.n_failed for receipt in receipts) == 150


# Progress


class Terminal(io.StringIO):
    """Fake standard error on a terminal."""

    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("terminal", "progress", "shows"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_progress_bar_is_shown_on_a_terminal_only(tmp_path, monkeypatch, terminal, progress, shows):
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", stream)
    run(failing(draws), tmp_path / "s.zarr", progress=progress)
    assert ("600/600" in stream.getvalue()) == shows


def test_address_of_the_dashboard_is_logged(tmp_path, monkeypatch):
    lines = []
    monkeypatch.setattr(
        sys.modules["pipeline.runs.session"]._LOG, "info", lambda text, *rest: lines.append(text % rest)
    )
    run(failing(draws), tmp_path / "s.zarr")
    (line,) = lines
    assert re.fullmatch(r"dashboard: http://127\.0\.0\.1:\d+/status", line)


# Checks before writes


def test_stored_numbers_are_recomputed_on_workers(tmp_path):
    """Stored numbers are recomputed on workers, whose numbers may differ from those of this process."""
    x = "data + float(os.environ.get('TOY_PROCESSOR', '0'))"
    path = write_study_file(tmp_path / "mine.py", x, head="import os", trials=6)
    kwargs = {"processes": False, "n_workers": 1}
    profiles = {
        name: {"class": "LocalCluster", "kwargs": kwargs, "env": env}
        for name, env in {"there": {"TOY_PROCESSOR": "1"}, "elsewhere": {"TOY_PROCESSOR": "2"}}.items()
    }
    (tmp_path / "c.yaml").write_text(yaml.safe_dump({"profiles": profiles}))
    there, elsewhere = (f"{tmp_path / 'c.yaml'}:{name}" for name in profiles)
    store = run(path, tmp_path / "s.zarr", cluster=there)
    lost = Path(store.url, "p", "status", "c", "0", "0", "1")
    lost.unlink()
    for cluster in (None, elsewhere):
        with unchanged(store.url), refusal("m, trial 5 gives numbers that differ from the stored ones"):
            resume(store.url, cluster=cluster)
    resume(store.url, cluster=there)
    assert lost.is_file()


LOAD = checks.load_study


def on_changed_workers(change):
    """Return the check of a study on a worker with a change, a function of a `pytest.MonkeyPatch`."""

    @checks.on_worker
    def load_study(run, spec, modules):
        with pytest.MonkeyPatch.context() as patch:
            change(patch)
            return LOAD.__wrapped__(run, spec, modules)

    return load_study


def lack_lazy_helper(patch):
    find = checks.importlib.util.find_spec
    patch.setattr(checks.importlib.util, "find_spec", lambda name: None if name == "lazy_helper" else find(name))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda patch: patch.setattr(StudySource, "load", lambda source: replace(STUDY, version=2)),
            "has a different version; install the same version everywhere",
        ),
        (lack_lazy_helper, r"^worker .* lacks lazy_helper, which the study imports"),
    ],
    ids=["version", "lazy module"],
)
def test_workers_with_other_code_are_refused_before_writes(tmp_path, monkeypatch, change, message):
    (tmp_path / "lazy_helper.py").write_text("NUMBER = 1\n")
    path = write_study_file(tmp_path / "mine.py", "data + lazy_helper.NUMBER", before="import lazy_helper")
    study = path if change is lack_lazy_helper else STUDY
    monkeypatch.setattr(sys, "path", [*sys.path])
    with monkeypatch.context() as patch:
        patch.setattr(checks, "load_study", on_changed_workers(change))
        with pytest.raises(BadInputError, match=message):
            run(study, tmp_path / "s.zarr")
    assert not (tmp_path / "s.zarr").exists()
    if study is path:
        assert "finished" in run(path, tmp_path / "s.zarr").sessions[-1]


# Counts


@pytest.mark.slow
def test_progress_and_status_count_the_same_trials(tmp_path):
    """Progress and status agree on the trials of applicable methods, once per value of a factor that is not used."""
    panel = replace(STUDY.panel("means"), methods=(Method("plain", fails), *STUDY.panel("means").methods[1:]))
    display = ProgressDisplay(ERRORS)
    store = run(replace(STUDY, panels=(panel,)), tmp_path / "s.zarr", progress=display)
    counts = count_status(open_results(store)["means"].to_dataset())
    assert display.n_failed == counts[Status.FAILED] == 2 * 6 * 4
    assert display.n_done == display.n_total == counts[Status.OK] + counts[Status.FAILED]


# Monitor


def workers(*states):
    return {
        f"tcp://127.0.0.1:{k}": {"status": status, "memory_limit": 2**30, "metrics": {"memory": 900 * 2**20}}
        for k, status in enumerate(states)
    }


def test_paused_workers_are_reported_with_advice():
    paused = workers("paused", "paused")
    text = find_cause(paused)[1]
    assert all(part in text for part in ("every worker is paused", "900.00 MiB of 1.00 GiB", "memory_limit"))
    assert "\n" not in text
    assert find_cause(workers("paused", "running")) == ("", "")


class Clock:
    """Fake clock, which tests advance."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr(in_flight.time, "monotonic", lambda: self.now)


def test_the_monitor_warns_once_per_silence(monkeypatch):
    clock, found = Clock(monkeypatch), workers("paused")
    watch = Monitor(SimpleNamespace(scheduler_info=lambda n_workers: {"workers": found}))
    clock.now += 9
    watch.check()  # not yet
    clock.now += 2
    with pytest.warns(UserWarning, match="every worker is paused"):
        watch.check()
    clock.now += 60
    watch.check()
    watch.note_result()
    clock.now += 11
    with pytest.warns(UserWarning, match="every worker is paused"):
        watch.check()
    found.clear()  # another cause occurs although no task has returned since
    clock.now += 11
    with pytest.warns(UserWarning, match="no worker is left"):
        watch.check()
    watch.note_result()
    found.update(workers("running"))
    clock.now += 11
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        watch.check()


def test_the_monitor_waits_for_a_client_that_connects_again(monkeypatch):
    clock = Clock(monkeypatch)
    watch = Monitor(SimpleNamespace(scheduler_info=lambda n_workers: {}))
    clock.now += 11
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        watch.check()


@pytest.mark.parametrize(
    ("state", "n_frozen", "text"),
    [
        ("stopped", 1, "worker w0 has not responded for 20 s: its process was suspended, and is restarted"),
        (None, 1, "worker w0 has not responded for 20 s: other workers continue"),
        (None, 2, "worker w[01] has not responded for 20 s: no other worker responds"),
        ("running", 2, ""),
    ],
)
def test_the_monitor_warns_once_of_a_worker_that_does_not_respond(monkeypatch, state, n_frozen, text):
    clock, asked = Clock(monkeypatch), []

    class Client:
        def scheduler_info(self, n_workers):
            frozen = {f"w{k}": clock.now if k >= n_frozen else 0.0 for k in range(2)}
            return {"workers": {name: {"last_seen": seen, "nanny": state} for name, seen in frozen.items()}}

        def run(self, function, workers, nanny, on_error):
            asked.extend(workers)
            return dict.fromkeys(workers, state)

    watch = Monitor(Client())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(100):
            clock.now += 2.5
            watch.note_result()
            watch.check()
    assert len(caught) == (n_frozen if text else 0)
    assert all(re.match(text, str(one.message)) for one in caught)
    assert asked == ([] if state is None else [f"w{k}" for k in range(n_frozen)])


# The window


def client_of(*threads):
    """Return a fake client of a cluster with a fixed number of threads per worker."""
    return SimpleNamespace(cluster=None, nthreads=lambda: dict(enumerate(threads)))


def test_window_of_a_fixed_cluster_is_two_tasks_per_thread(monkeypatch):
    fixed = execute.Window(client_of(2, 2), Profile("a", address="tcp://h:1"))
    fixed.update()
    fixed.note_task(0.01)
    assert (fixed.n_threads, fixed.n_tasks) == (4, 8)


@pytest.mark.parametrize(("seconds", "at_least"), [(None, 0.5), (0.25, 0.25), (1.0, 1.0), (10.0, 10.0)])
def test_window_of_an_adaptive_cluster_suffices_for_its_maximum(seconds, at_least):
    """Enough tasks are submitted for Dask to request the largest number of threads."""
    adaptive = execute.Window(client_of(1), Profile("a", adapt={"minimum": 1, "maximum": 4, "target_duration": "5s"}))
    adaptive.update()
    if seconds is not None:
        adaptive.note_task(seconds)
    assert adaptive.n_threads == 4
    assert adaptive.n_tasks * at_least >= 4 * 5
    assert adaptive.n_tasks >= 8
