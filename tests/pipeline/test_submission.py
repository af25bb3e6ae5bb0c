"""Tests of submissions: their driver is a task that finishes, is monitored, isolated, cancelled and taken over."""

import os
import shlex
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import yaml
from distributed import Client, LocalCluster

import pipeline
from pipeline.blocks.evaluate import Status
from pipeline.clusters import cluster as clusters
from pipeline.errors import BadInputError, BusyStoreError, ExecutionError
from pipeline.runs import submission as submissions
from pipeline.runs.run_plan import RunOptions, plan_run
from pipeline.runs.submission import last_submission
from pipeline.store.result_store import ResultStore
from pipeline.store.scan.states import count_by_status
from pipeline.store.sessions.records import describe
from tests.pipeline.faults.file_operations import call_before
from tests.pipeline.faults.harness import wait_until
from tests.pipeline.helpers import assert_equal_arrays, file_stamps, refusal, write_study_file

pytestmark = pytest.mark.slow  # this file takes half a minute or more

OPTIONS = {"processes": False, "n_workers": 1, "dashboard_address": "127.0.0.1:0", "protocol": "tcp://"}
# first trials are evaluated before the store exists
WAIT = "while HOLD.exists() and HOLD.with_name('s.zarr').exists(): time.sleep(0.01)"


def write_held_study(path, hold, before=WAIT, n=(1, 2, 3)):
    """Write a study whose blocks wait while the file `hold` and the store exist."""
    head = f"import os\nimport time\nfrom pathlib import Path\nHOLD = Path({str(hold)!r})"
    write_study_file(path, before=before, head=head, n=n, trials=16)


def write_profile_of(cluster):
    Path("cluster.yaml").write_text(yaml.safe_dump({"profiles": {"there": {"address": cluster.scheduler_address}}}))


@pytest.fixture(scope="module")
def scheduler():
    with LocalCluster(threads_per_worker=2, **OPTIONS) as cluster:
        yield cluster.scheduler


@pytest.fixture
def lab(tmp_path, scheduler, monkeypatch):
    """Prepare a folder with a cluster file and a study whose blocks wait while ``hold`` and the store exist."""
    monkeypatch.chdir(tmp_path)
    write_held_study("held.py", tmp_path / "hold")
    Path("hold").touch()
    profile = {"address": scheduler.address, "wait": 10}
    Path("cluster.yaml").write_text(yaml.safe_dump({"profiles": {"there": profile}}))
    yield tmp_path
    Path("hold").unlink(missing_ok=True)
    wait_until(lambda: not any("dpstudies" in str(key) for key in scheduler.tasks))


def test_a_submission_leaves_a_store_that_another_run_created_before_its_driver_started(tmp_path, monkeypatch):
    write_study_file(tmp_path / "study.py", n=(1, 2), trials=40)
    study, path = f"{tmp_path}/study.py", tmp_path / "s.zarr"
    (tmp_path / "c.yaml").write_text("profiles: {there: {address: 'tcp://127.0.0.1:1'}}")
    orders = [
        submissions._Order.of(plan_run(study, path, RunOptions(cluster=f"{tmp_path}/c.yaml", **options)), "x")
        for options in ({"trials": 10}, {"seed": 5})
    ]
    pipeline.run(study, path)
    before = file_stamps(path)
    monkeypatch.setattr(submissions.driver_task, "connect_worker", nullcontext)
    monkeypatch.setattr(submissions.driver_task, "cancellation", lambda identifier: lambda: False)
    for order in orders:
        assert isinstance(submissions.drive(order), BadInputError)
    assert file_stamps(path) == before


def submit(**options):
    return pipeline.submit("held.py", "s.zarr", cluster="there", **options)


def last_session():
    return ResultStore.open("s.zarr").sessions[-1]


def release():
    """Let the blocks run, and wait until the session ends."""
    Path("hold").unlink(missing_ok=True)
    wait_until(lambda: "ended" in last_session())


def assert_equals_a_run():
    Path("hold").unlink(missing_ok=True)
    pipeline.run("held.py", "whole.zarr", progress=False)
    assert_equal_arrays("s.zarr", "whole.zarr")


def stamps():
    return {name: stamp for name, stamp in file_stamps("s.zarr").items() if not str(name).endswith(".beat")}


@pytest.fixture
def quick_heartbeat(monkeypatch):
    monkeypatch.setattr("pipeline.store.sessions.lease.HEARTBEAT_SECONDS", 0.1)


def test_a_submission_finishes_without_its_client(lab, scheduler):
    submission = submit()
    store = ResultStore.open("s.zarr")
    assert last_submission(store) == submission
    assert submission.id == store.sessions[-1]["id"]
    assert "finished" not in store.sessions[-1]
    assert store.sessions[-1]["command"] == describe(None)["command"]
    assert submission.is_running("there")
    release()
    assert "finished" in last_session()
    wait_until(lambda: not scheduler.tasks)
    assert not any("dpstudies" in name and last_session()["run"] in name for name in scheduler.worker_plugins)
    assert not last_submission(ResultStore.open("s.zarr")).is_open
    assert_equals_a_run()
    assert submit() is None


def test_submitted_tasks_are_throttled(lab, scheduler):
    """The scheduler has two blocks per thread of the 24 blocks, as for a run."""
    submit()
    wait_until(lambda: len(scheduler.tasks) > 4)
    assert len(scheduler.tasks) == 1 + 2 * 2
    release()


@pytest.fixture
def one_thread_cluster(lab):
    """Return a cluster of one thread to which the profile leads."""
    with LocalCluster(threads_per_worker=1, **OPTIONS) as cluster:
        write_profile_of(cluster)
        yield cluster


def test_a_second_session_is_refused_while_the_driver_runs(lab):
    submission = submit()
    before = stamps()
    calls = [
        submit,
        lambda: pipeline.run("held.py", "s.zarr", cluster="there"),
        lambda: pipeline.resume("s.zarr", cluster="there"),
        lambda: pipeline.extend("s.zarr", trials=60),
    ]
    for call in calls:
        texts = (f"a submission of {submission.started}", "dpstudies status --watch", "dpstudies cancel")
        with refusal(*texts, error=BusyStoreError):
            call()
    assert stamps() == before
    assert submission.is_running("there")


def test_a_driver_whose_checks_fail_writes_nothing(lab, monkeypatch):
    refuse = Mock(side_effect=BadInputError("a worker is unfit"))
    monkeypatch.setattr(import_module("pipeline.runs.session"), "refuse_unfit_workers", refuse)
    with pytest.raises(BadInputError, match=r"^a worker is unfit$"):
        submit()
    assert not Path("s.zarr").exists()


@pytest.mark.parametrize("cluster", [None, "there"])
def test_cancel_ends_the_driver_and_resume_completes_the_store(lab, scheduler, quick_heartbeat, cluster):
    submission = submit()
    threading.Timer(1.0, Path("hold").absolute().unlink, (True,)).start()  # a block that has started cannot be stopped
    cancelled = pipeline.cancel("s.zarr", cluster=cluster)
    assert (cancelled.submission, cancelled.has_ended) == (submission, cluster and True)
    assert {"cancelled", "ended"} <= last_session().keys()
    assert "finished" not in last_session()
    with pytest.raises(BadInputError, match=r"^no submission is open for the store s\.zarr"):
        pipeline.cancel("s.zarr")
    wait_until(lambda: not scheduler.tasks)
    count = count_by_status(ResultStore.open("s.zarr"), "p")
    assert count[Status.PENDING] > 30
    pipeline.resume("s.zarr", cluster="there")
    assert ["finished" in session for session in ResultStore.open("s.zarr").sessions] == [False, True]
    assert_equals_a_run()


@pytest.mark.parametrize("state", ["running", "finished", "cancelled"])
def test_a_repeated_driver_takes_over_only_an_open_session(one_thread_cluster, quick_heartbeat, monkeypatch, state):
    """A scheduler that lost the connection to a worker runs its driver again, while the first one may still write."""
    orders, start = [], submissions.driver_task.start_driver

    def keep(client, identifier, drive, order):
        orders.append(order)
        return start(client, identifier, drive, order)

    monkeypatch.setattr(submissions.driver_task, "start_driver", keep)
    submission = submit()
    if state == "finished":
        release()
    if state == "cancelled":
        pipeline.cancel("s.zarr")
        Path("hold").unlink()
    # the second driver is a thread of this process, since a block holds the only thread of the worker
    monkeypatch.setattr(
        submissions.driver_task, "connect_worker", lambda: Client(one_thread_cluster, set_as_default=False)
    )
    monkeypatch.setattr(submissions.driver_task, "announce", lambda *arguments: None)
    monkeypatch.setattr(submissions.driver_task, "cancellation", lambda identifier: lambda: False)
    with ThreadPoolExecutor(1) as pool:
        again = pool.submit(submissions.drive, orders[0])
        if state == "running":
            wait_until(lambda: not submission.is_running("there"))
            Path("hold").unlink()
        assert again.result(60) is None
    sessions = ResultStore.open("s.zarr").sessions
    assert [state in session for session in sessions] == [True] if state != "running" else "ended" in sessions[0]
    assert len(sessions) == (2 if state == "running" else 1)
    if state == "running":
        assert "finished" not in sessions[0]
        assert "finished" in sessions[1]
        assert_equals_a_run()


@pytest.fixture(scope="module")
def two_processes():
    """Return a cluster of two worker processes that are restarted."""
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster:
        yield cluster


@pytest.fixture
def processes(two_processes, tmp_path, monkeypatch):
    """Return the client of the cluster of processes, to which the profile leads."""
    monkeypatch.chdir(tmp_path)
    write_profile_of(two_processes)
    with Client(two_processes, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=60)
        yield client


def test_the_scheduler_moves_a_driver_whose_worker_is_killed(processes):
    hold = Path("hold").absolute()
    hold.touch()
    write_held_study("held.py", hold)
    submit()
    first = last_session()
    os.kill(first["process"]["pid"], signal.SIGKILL)
    hold.unlink()  # the other worker may get the driver
    wait_until(lambda: len(ResultStore.open("s.zarr").sessions) == 2)
    assert last_session()["process"]["pid"] != first["process"]["pid"]
    release()
    assert ["finished" in session for session in ResultStore.open("s.zarr").sessions] == [False, True]
    assert_equals_a_run()


def test_trials_that_kill_the_worker_of_the_driver_are_isolated(processes):
    """A driver that is repeated computes all blocks in child processes."""
    write_held_study("harmless.py", "absent", before="pass", n=(1,))
    whole = pipeline.open_results(pipeline.run("harmless.py", "whole.zarr", progress=False))["p"]
    write_held_study("held.py", "absent", before="if (data > 0.9).any(): os._exit(1)", n=(1,))
    submit()
    wait_until(lambda: "finished" in last_session())
    found = pipeline.open_results("s.zarr")["p"]
    is_deadly = whole.x.values > 0.9
    assert 0 < is_deadly.sum() < 6
    assert np.array_equal(found.status.values, np.where(is_deadly, Status.KILLED, Status.OK))
    assert np.array_equal(found.x.values[~is_deadly], whole.x.values[~is_deadly])


def test_a_run_until_a_precision_is_submitted(lab):
    Path("hold").unlink()
    submit(until="mcse(x) <= 0.03", at_most=400)
    wait_until(lambda: "ended" in last_session())
    assert "finished" in last_session()
    pipeline.run("held.py", "whole.zarr", until="mcse(x) <= 0.03", at_most=400, progress=False)
    assert_equal_arrays("s.zarr", "whole.zarr")
    assert ResultStore.open("s.zarr").sessions[-1]["asked"] == ResultStore.open("whole.zarr").sessions[-1]["asked"]


def test_a_store_that_workers_do_not_share_is_refused_before_it_is_created(processes):
    write_held_study("held.py", "absent")
    with pytest.raises(BadInputError, match=r"^worker tcp://.*: does not see the files .* choose a --store that all"):
        pipeline.submit("held.py", "memory://own/s.zarr", cluster="there")
    assert not ResultStore.exists("memory://own/s.zarr")
    assert not any(str(key).startswith("dpstudies-driver") for key in processes.who_has())


def test_a_store_that_the_submitting_machine_does_not_see_ends_the_submission(lab, scheduler, monkeypatch):
    monkeypatch.setattr(submissions, "_VISIBLE_SECONDS", 0.1)
    seen = submissions.sessions_of
    hidden = lambda files: [] if threading.current_thread() is threading.main_thread() else seen(files)  # noqa: E731
    monkeypatch.setattr(submissions, "sessions_of", hidden)
    with pytest.raises(ExecutionError, match="a folder that this machine does not see; remove it there"):
        submit()
    Path("hold").unlink()
    wait_until(lambda: "ended" in last_session())
    assert "was cancelled on its scheduler" in last_session()["stopped"]


def test_an_interrupted_submit_cancels_its_driver(lab, scheduler, monkeypatch):
    monkeypatch.setattr(submissions, "_await_record", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        submit()
    Path("hold").unlink()
    wait_until(lambda: "ended" in last_session())
    assert "finished" not in last_session()


def test_a_submission_whose_scheduler_has_stopped_is_resumed_elsewhere(one_thread_cluster):
    submit()
    threading.Timer(0.5, Path("hold").absolute().unlink).start()  # the worker waits for its thread
    one_thread_cluster.close()
    wait_until(lambda: "ended" in last_session())
    assert "finished" not in last_session()
    pipeline.resume("s.zarr")
    assert_equals_a_run()


def test_another_scheduler_than_that_of_the_submission_is_refused(lab, monkeypatch):
    submission = submit()
    Path("other.yaml").write_text(yaml.safe_dump({"profiles": {"other": {"address": "tcp://127.0.0.1:1"}}}))
    for choice in ("other.yaml", "threads"):
        for call in (submission.is_running, lambda choice: pipeline.cancel("s.zarr", cluster=choice)):
            with pytest.raises(BadInputError, match=rf"^cluster must be .* of submission {submission.id}"):
                call(choice)
    unreachable = Mock(side_effect=clusters.UnreachableSchedulerError("no scheduler responds"))
    monkeypatch.setattr(submissions, "reach_scheduler", unreachable)
    assert submission.is_running("there") is None
    assert pipeline.cancel("s.zarr", cluster="there").has_ended is None
    assert "cancelled" in last_session()


def test_the_error_that_stops_a_submission_is_recorded_and_shown(lab, dpstudies, monkeypatch):
    def fail(files, temporary, key):
        if "status/c/0/" in key and threading.current_thread() is not threading.main_thread():
            raise PermissionError(13, "Permission denied", key)

    call_before(monkeypatch, "_rename", fail)
    submit()
    release()
    assert "finished" not in last_session()
    assert "Permission denied" in last_session()["stopped"]
    code, out, _ = dpstudies("status", "--watch", "--every", "0.1", "s.zarr")
    assert code == 3
    assert "stopped: a worker failed: " in out


def test_commands(lab, dpstudies):
    """During a submission, `status` reports the submission, `resume` is refused, and `cancel` ends the submission."""
    code, out, err = dpstudies("submit", "held.py", "--store", "s.zarr", "--cluster", "there")
    assert code == 0, err
    submission = last_submission(ResultStore.open("s.zarr"))
    assert out.startswith(
        f"submitted as {submission.id}; follow it with: dpstudies status --watch s.zarr --cluster there"
    )
    known = shlex.quote(submission.cluster)
    for words, profile, text in (
        ((), known, "ask its scheduler with --cluster, or end it with: dpstudies cancel s.zarr"),
        (("--cluster", "there"), "there", "running; cancel it with: dpstudies cancel s.zarr --cluster there"),
    ):
        code, out, err = dpstudies("status", "s.zarr", *words)
        assert code == 3, err
        assert f"submission {submission.id} of " in out
        assert text in out
        assert f"pending; follow the submission with: dpstudies status --watch s.zarr --cluster {profile}\n" in out
        assert "resume" not in out
    code, _, err = dpstudies("status", "--watch", "s.zarr", "--cluster", "there", seconds=1)
    assert (code, "goes on; look again with: dpstudies status --watch s.zarr --cluster there\n" in err) == (130, True)
    code, _, err = dpstudies("resume", "s.zarr", "--study", "held.py", "--cluster", "there")
    assert (code, "is being written by a submission of " in err) == (2, True)
    threading.Timer(1.0, Path("hold").absolute().unlink, (True,)).start()
    code, out, _ = dpstudies("cancel", "s.zarr", "--cluster", "there")
    assert code == 3
    assert out.startswith(f"cancelled submission {submission.id} of ")
    assert "continue with: dpstudies resume s.zarr --cluster there" in out
    code, _, err = dpstudies("cancel", "s.zarr")
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith("dpstudies: no submission is open for the store s.zarr")
