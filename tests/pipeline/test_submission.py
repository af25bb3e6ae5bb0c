"""Tests that submissions are found by store, refuse other sessions, can be cancelled, and finish if complete."""

import shlex
import signal
import sys
import threading
import time
import warnings
from importlib import import_module
from pathlib import Path

import pytest
import yaml
from distributed import Client, LocalCluster

import pipeline
from pipeline.clusters import cluster as clusters
from pipeline.errors import BadInputError, BusyStoreError
from pipeline.stores.store import ResultStore
from pipeline.submission import find_submission
from studies import cli
from tests.pipeline.helpers import assert_equal_arrays, file_stamps

pytestmark = pytest.mark.slow  # this file takes half a minute or more

SIGNALS = signal.SIGINT, signal.SIGTERM
STUDY_FILE = """
import time
from pathlib import Path
from pipeline import Factor, Measure, Method, Panel, Study

HOLD = Path(__file__).with_name("hold")

def simulate(cell, streams):
    return streams.uniforms(2)

def evaluate(data, setting, streams):
    while Path({hold!r}).exists():
        time.sleep(0.01)
    return {{"x": data.sum(axis=1)}}

panel = Panel("p", "a panel", simulate, (Method("a", evaluate),), (Measure("x", "a number"),),
              (Factor("n", (1, 2, 3), "size", "int"),), trials=4, block_trials=2)
STUDY = Study("held", "Held", "To be held.", (panel,), seed=1)
"""


@pytest.fixture(scope="module")
def scheduler():
    options = {"processes": False, "n_workers": 1, "threads_per_worker": 2, "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(**options, protocol="tcp://") as cluster:
        yield cluster.scheduler


@pytest.fixture
def lab(tmp_path, scheduler, monkeypatch):
    """Prepare the current folder with a cluster file and a study whose blocks wait while the file ``hold`` exists."""
    monkeypatch.chdir(tmp_path)
    Path("held.py").write_text(STUDY_FILE.format(hold=str(tmp_path / "hold")))
    Path("hold").touch()
    profile = {"address": scheduler.address, "wait": 10}
    Path("cluster.yaml").write_text(yaml.safe_dump({"profiles": {"there": profile}}))
    yield tmp_path
    Path("hold").unlink(missing_ok=True)
    wait_until(lambda: not scheduler.tasks)


def wait_until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def submit():
    return pipeline.submit("held.py", "s.zarr", cluster="there")


@pytest.fixture
def dpstudies(monkeypatch, capsys):
    """Return a function that runs a command in this process and returns (exit code, output, errors)."""
    showwarning, handlers = warnings.showwarning, [(number, signal.getsignal(number)) for number in SIGNALS]

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["dpstudies", *words])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        captured = capsys.readouterr()
        return stop.value.code or 0, captured.out, captured.err

    yield run
    warnings.showwarning = showwarning
    for number, handler in handlers:
        signal.signal(number, handler)


def test_a_submission_finishes_without_its_client(lab, scheduler, tmp_path):
    submission, n_tasks = submit()
    assert n_tasks == 6
    store = ResultStore.open("s.zarr")
    assert find_submission(store) == submission
    assert submission.id == store.sessions[-1]["id"]
    assert "finished" not in store.sessions[-1]
    assert submission.count_tasks("there") == 6
    assert any(submission.run in name for name in scheduler.worker_plugins)
    Path("hold").unlink()
    wait_until(lambda: "ended" in ResultStore.open("s.zarr").sessions[-1])
    assert "finished" in ResultStore.open("s.zarr").sessions[-1]
    wait_until(lambda: not any(submission.run in name for name in scheduler.worker_plugins))
    assert find_submission(store) is None
    pipeline.run("held.py", "whole.zarr")
    assert_equal_arrays("s.zarr", "whole.zarr")
    assert pipeline.submit("held.py", "s.zarr", cluster="there") is None


def test_a_second_session_is_refused_while_tasks_are_left(lab):
    submission, _ = submit()
    before = file_stamps("s.zarr")
    calls = [
        submit,
        lambda: pipeline.run("held.py", "s.zarr", cluster="there"),
        lambda: pipeline.resume("s.zarr", cluster="there"),
        lambda: pipeline.extend("s.zarr", trials=6, cluster="there"),
    ]
    for call in calls:
        with pytest.raises(BusyStoreError) as caught:
            call()
        text = str(caught.value)
        assert submission.id in text
        assert "has 6 tasks left" in text
        assert "dpstudies status --watch" in text
        assert "dpstudies cancel" in text
        assert "\n" not in text
    for call in (lambda: pipeline.run("held.py", "s.zarr"), lambda: pipeline.resume("s.zarr")):
        with pytest.raises(BusyStoreError, match=f"{submission.id} .*; name its scheduler with --cluster, or end it"):
            call()
    assert file_stamps("s.zarr") == before


def test_a_second_session_is_refused_before_the_first_task_is_submitted(lab, monkeypatch):
    module, refused = import_module("pipeline.runs"), []
    hand_over = module.hand_over

    def interleave(*arguments):
        monkeypatch.setattr(module, "hand_over", hand_over)
        for call in (submit, lambda: pipeline.run("held.py", "s.zarr"), lambda: pipeline.resume("s.zarr")):
            with pytest.raises(BusyStoreError) as caught:
                call()
            refused.append(str(caught.value))
        return hand_over(*arguments)

    monkeypatch.setattr(module, "hand_over", interleave)
    submission, n_tasks = submit()
    assert n_tasks == 6
    assert len(refused) == 3
    assert [record["id"] for record in ResultStore.open("s.zarr").sessions] == [submission.id]
    Path("hold").unlink()
    wait_until(lambda: "finished" in ResultStore.open("s.zarr").sessions[-1])


def test_a_run_whose_cluster_fails_its_checks_leaves_an_abandoned_submission_as_it_is(lab, scheduler, monkeypatch):
    submission, _ = submit()
    with Client(scheduler.address, set_as_default=False) as client:
        pipeline.execution.handover.cancel_tasks(client, submission.run)
    before = file_stamps("s.zarr")

    def refuse(*arguments):
        raise BadInputError("a worker is unfit")

    monkeypatch.setattr(import_module("pipeline.writing"), "refuse_unfit_workers", refuse)
    with pytest.raises(BadInputError, match="a worker is unfit"):
        pipeline.resume("s.zarr", cluster="there")
    assert file_stamps("s.zarr") == before


def test_cancel_ends_a_submission_and_resume_completes_it(lab, scheduler):
    submission, _ = submit()
    cancelled = pipeline.cancel("s.zarr", cluster="there")
    assert (cancelled.submission, cancelled.n_tasks) == (submission, 6)
    session = ResultStore.open("s.zarr").sessions[-1]
    assert {"cancelled", "ended"} <= session.keys()
    assert "finished" not in session
    with pytest.raises(BadInputError, match=r"^no submission is open for the store s\.zarr"):
        pipeline.cancel("s.zarr")
    Path("hold").unlink()
    wait_until(lambda: not scheduler.tasks)
    assert not any(submission.run in name for name in scheduler.worker_plugins)
    pipeline.resume("s.zarr", cluster="there")
    assert "finished" in ResultStore.open("s.zarr").sessions[-1]


def test_cancel_without_a_store_is_refused(tmp_path):
    with pytest.raises(BadInputError, match="no result store at"):
        pipeline.cancel(tmp_path / "absent.zarr")


def test_submission_without_tasks_is_taken_over(lab, scheduler):
    submission, _ = submit()
    with Client(scheduler.address, set_as_default=False) as client:
        pipeline.execution.handover.cancel_tasks(client, submission.run)
    assert submission.count_tasks("there") == 0
    Path("hold").unlink()
    pipeline.resume("s.zarr", cluster="there")
    first, second = ResultStore.open("s.zarr").sessions
    assert "abandoned" in first
    assert "finished" not in first
    assert "finished" in second


@pytest.mark.parametrize("scheduler_is", ["silent", "not named"])
def test_submission_without_a_scheduler_is_closed_by_cancel(lab, scheduler, monkeypatch, scheduler_is):
    """The tasks of a closed submission continue on a scheduler that is not named, and cannot write."""
    submission, _ = submit()
    monkeypatch.setattr("pipeline.submission.reach_scheduler", unreachable)
    assert submission.count_tasks("there") is None
    with pytest.raises(
        BadInputError, match=rf"^cancel requires the scheduler of submission {submission.id} .*--cluster"
    ):
        pipeline.cancel("s.zarr")
    choice = {"cluster": "there"} if scheduler_is == "silent" else {"abandon": True}
    assert pipeline.cancel("s.zarr", **choice).n_tasks is None
    before = ResultStore.open("s.zarr").count("p")
    Path("hold").unlink()
    wait_until(lambda: not scheduler.tasks)
    assert ResultStore.open("s.zarr").count("p") == before
    pipeline.resume("s.zarr")
    assert "finished" in ResultStore.open("s.zarr").sessions[-1]


def test_another_scheduler_than_that_of_the_submission_is_refused(lab):
    submission, _ = submit()
    Path("other.yaml").write_text(yaml.safe_dump({"profiles": {"other": {"address": "tcp://127.0.0.1:1"}}}))
    for choice in ("other.yaml", "threads"):
        for call in (submission.count_tasks, lambda choice: pipeline.cancel("s.zarr", cluster=choice)):
            with pytest.raises(BadInputError, match=rf"^cluster must be .* of submission {submission.id}"):
                call(choice)


def unreachable(profile):
    raise clusters.UnreachableSchedulerError("no scheduler responds")


def test_submission_with_pending_work_is_not_finished(lab, scheduler, monkeypatch):
    """If a block cannot be written and stays pending, the submission is not recorded as finished."""
    write = pipeline.stores.local_files.LocalFiles._rename

    def fail(files, temporary, key):
        if "status/c/0/" in key and threading.current_thread() is not threading.main_thread():
            raise PermissionError(13, "Permission denied", key)
        write(files, temporary, key)

    monkeypatch.setattr(pipeline.stores.local_files.LocalFiles, "_rename", fail)
    submit()
    Path("hold").unlink()
    wait_until(lambda: "ended" in ResultStore.open("s.zarr").sessions[-1])
    session = ResultStore.open("s.zarr").sessions[-1]
    assert "finished" not in session
    monkeypatch.undo()


def test_commands(lab, dpstudies):
    """During a submission, `status` reports the submission, `resume` is refused, and `cancel` ends the submission."""
    code, out, err = dpstudies("submit", "held.py", "--store", "s.zarr", "--cluster", "there")
    assert code == 0, err
    identifier = find_submission(ResultStore.open("s.zarr")).id
    assert out.startswith(
        f"6 tasks submitted as {identifier}; follow them with: dpstudies status --watch s.zarr --cluster there"
    )
    code, out, err = dpstudies("status", "s.zarr")
    assert code == 3, err
    assert f"submission {identifier} of " in out
    assert "count its tasks with --cluster, or end it with: dpstudies cancel s.zarr" in out
    code, out, err = dpstudies("status", "s.zarr", "--cluster", "there")
    assert code == 3, err
    assert f"submission {identifier} of " in out
    assert "6 tasks left; cancel them with: dpstudies cancel s.zarr --cluster there" in out
    code, _, err = dpstudies("resume", "s.zarr", "--study", "held.py", "--cluster", "there")
    assert code == 2
    assert identifier in err
    assert "6 tasks left" in err
    code, _, err = dpstudies("cancel", "s.zarr")
    assert code == 2
    assert "--cluster [FILE:]PROFILE, or --abandon" in err
    code, out, _ = dpstudies("cancel", "s.zarr", "--cluster", "there")
    assert code == 3
    assert out.startswith(f"cancelled submission {identifier} of ")
    assert f"continue with: dpstudies resume {shlex.quote('s.zarr')}" in out
    code, _, err = dpstudies("cancel", "s.zarr")
    assert code == 2
    assert err.startswith("dpstudies: no submission is open for the store s.zarr")
    assert err.count("\n") == 1
