"""Tests of sessions: only one writes at a time, and a session suspended past its lease cannot write afterwards."""

import errno
import json
import multiprocessing
import os
import shutil
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import dask
import psutil
import pytest

import pipeline
from pipeline.blocks.division import iterate_blocks
from pipeline.errors import BadInputError, BusyStoreError, SessionSupersededError, UnreadableStoreError
from pipeline.runs.verify import verify
from pipeline.store.creation import create_empty_store, grow_store
from pipeline.store.files.access import open_files
from pipeline.store.files.local_files import LocalFiles
from pipeline.store.files.locations import SESSIONS
from pipeline.store.layout.root import seal, unseal
from pipeline.store.result_store import ResultStore
from pipeline.store.sessions import lease
from pipeline.store.sessions.lease import Session, end_session
from pipeline.store.sessions.records import SESSION_COPIES, sessions_of
from tests.pipeline.faults.file_operations import Permanently, call_before
from tests.pipeline.faults.harness import wait_until
from tests.pipeline.helpers import WRITING, assert_equal_arrays, commit_block, compute_into, panel_of, unchanged
from tests.pipeline.toy import STUDY

_CONTEXT = multiprocessing.get_context("forkserver")
SMALL = panel_of(STUDY, "single")


@pytest.fixture
def url(tmp_path):
    return str(tmp_path / "s.zarr")


@pytest.fixture(params=["folder", "memory"])
def any_url(request, url, memory_url):
    return url if request.param == "folder" else memory_url


@pytest.fixture
def short_lease(monkeypatch):
    """Let sessions of other machines expire after half a second without a heartbeat."""
    monkeypatch.setattr(lease, "LEASE_SECONDS", 0.5)
    monkeypatch.setattr(lease, "HEARTBEAT_SECONDS", 0.1)
    monkeypatch.setattr(lease, "_POLL_SECONDS", 0.02)


def as_of_another_machine(url, number=1):
    """Edit the record of a session as if its process ran on another machine."""
    files = LocalFiles(url)
    key = f"{SESSIONS}/{number:06}.json"
    record = unseal(files.read(key))
    record["process"]["machine"] = "elsewhere"
    with open(Path(url, key), "wb") as file:
        file.write(seal(record))


def test_second_session_is_rejected_until_the_first_ends(any_url):
    with Session.begin(any_url, {"profile": "a"}) as first:
        for begin in (lambda: Session.begin(any_url, {}), lambda: pipeline.run(STUDY, any_url)):
            with pytest.raises(BusyStoreError, match=rf"is being written by another session \(.*process {os.getpid()}"):
                begin()
        assert issubclass(BusyStoreError, BadInputError)
    with Session.begin(any_url, {}) as second:
        assert (first.id[:6], second.id[:6]) == ("000001", "000002")
    records = sessions_of(open_files(any_url))
    assert [record["profile"] for record in records if "profile" in record] == ["a"]
    assert all("ended" in record for record in records)


def test_only_one_of_concurrent_sessions_begins(url):
    barrier, refused = threading.Barrier(8), []

    def begin(_):
        barrier.wait()
        try:
            return Session.begin(url, {})
        except BusyStoreError as error:
            refused.append(error)

    with ThreadPoolExecutor(8) as threads:
        (begun,) = filter(None, threads.map(begin, range(8)))
    assert len(refused) == 7
    begun.end()


def _begin_and_die(url):
    Session.begin(url, {})
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_session_of_a_dead_process_is_over_immediately(url):
    process = _CONTEXT.Process(target=_begin_and_die, args=(url,))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    started = time.monotonic()
    Session.begin(url, {}).end()
    assert time.monotonic() - started < lease.LEASE_SECONDS / 10


def edit_process(url, change, number=1):
    """Change the process in the record of a session and in the copy of the record, and seal both again."""
    key = f"{SESSIONS}/{number:06}.json"
    record = unseal(LocalFiles(url).read(key))
    change(record["process"])
    Path(url, key).write_bytes(seal(record))
    Path(url, SESSION_COPIES).write_bytes(seal({str(number): record}))


def test_step_of_the_clock_does_not_end_a_session(url, monkeypatch):
    """After a step of the clock, the times of day at which processes started differ from recorded ones."""
    created = psutil.Process.create_time
    with Session.begin(url, {}) as session:
        monkeypatch.setattr(psutil.Process, "create_time", lambda process: created(process) + 3600)
        with pytest.raises(BusyStoreError, match=f"process {os.getpid()}"):
            Session.begin(url, {})
        session.files.put("k", b"x")


def test_session_of_a_process_whose_number_was_reused_is_over_immediately(url):
    Session.begin(url, {})
    edit_process(url, lambda process: process.update(start_ticks=process["start_ticks"] - 1))
    started = time.monotonic()
    Session.begin(url, {}).end()
    assert time.monotonic() - started < lease.LEASE_SECONDS / 10


def test_record_of_an_earlier_version_is_judged_by_its_heartbeat_after_a_step_of_the_clock(
    url, short_lease, monkeypatch
):
    """Records of version 0.3 have only the time of day at which their process started."""
    monkeypatch.setattr(lease, "LEASE_SECONDS", 30)
    with Session.begin(url, {}):
        edit_process(url, lambda process: (process.pop("start_ticks"), process.update(created=process["created"] - 9)))
        assert lease._state(sessions_of(LocalFiles(url))[0]) == "unknown"
        with pytest.raises(BusyStoreError):
            Session.begin(url, {})


@pytest.mark.parametrize(("error", "state"), [(PermissionError, "unknown"), (ProcessLookupError, "over")])
def test_a_hidden_process_of_another_user_may_be_running(url, monkeypatch, error, state):
    with Session.begin(url, {}):
        monkeypatch.setattr(psutil, "Process", Mock(side_effect=psutil.NoSuchProcess(1)))
        monkeypatch.setattr(os, "kill", Mock(side_effect=error))
        assert lease._state(sessions_of(LocalFiles(url))[0]) == state
        monkeypatch.undo()


def test_record_with_an_invalid_start_is_damage(url):
    Session.begin(url, {}).end()
    edit_process(url, lambda process: process.update(start_ticks="1"))
    assert sessions_of(LocalFiles(url))[0] == {"damaged": f"{SESSIONS}/000001.json"}


def test_heartbeat_keeps_a_session_of_another_machine_active(url, short_lease, monkeypatch):
    monkeypatch.setattr(lease, "LEASE_SECONDS", 30)  # a busy machine may delay a heartbeat
    with Session.begin(url, {}):
        as_of_another_machine(url)
        with pytest.raises(BusyStoreError):
            Session.begin(url, {})


def test_session_without_heartbeat_is_over_after_its_lease(url, short_lease, monkeypatch):
    monkeypatch.setattr(lease, "HEARTBEAT_SECONDS", 60)
    silent = Session.begin(url, {})
    as_of_another_machine(url)
    started = time.monotonic()
    with Session.begin(url, {}):
        assert time.monotonic() - started >= lease.LEASE_SECONDS
        with pytest.raises(SessionSupersededError, match="has taken over the store"):
            silent.files.put("k", b"x")
    silent.end()  # no error is raised, although another session has superseded this one


def test_moved_store_is_reported_as_such(url, tmp_path):
    session = Session.begin(url, {})
    moved = Path(url).rename(tmp_path / "moved.zarr")
    with pytest.raises(SessionSupersededError, match="was moved or deleted during this session"):
        session.files.put("k", b"x")
    session.end()
    assert not Path(url).exists()
    Session.begin(str(moved), {}).end()


def test_damaged_record_does_not_lock_the_store(url, short_lease):
    Session.begin(url, {}).end()
    for key in (f"{SESSIONS}/000001.json", SESSION_COPIES):
        Path(url, key).write_bytes(b"")
    Session.begin(url, {}).end()
    assert "damaged" in sessions_of(LocalFiles(url))[0]


@pytest.mark.parametrize("act", ["put", "remove", "batch", "rename"])
def test_writes_of_a_fenced_session_fail(url, act):
    compute_into(url, SMALL)
    old, new = LocalFiles(url, "000090-old"), LocalFiles(url, "000091-new")
    old.begin()
    new.begin()
    batch = old.batch()
    batch.put_last("single/status/c/0/0", b"late")
    temporary = old.write_temporary(b"late")
    new.fence_earlier()
    acts = {
        "put": lambda: old.put("single/status/c/0/0", b"late"),
        "remove": lambda: old.remove(["single/status/c/0/0"]),
        "batch": batch.finish,
        "rename": lambda: old.rename(temporary, "single/heads/c/0/0"),
    }
    with unchanged(f"{url}/single"), pytest.raises(SessionSupersededError):
        acts[act]()
    new.put("single/status/c/0/0", b"new")  # negative control: an active session writes


def test_a_session_suspended_before_it_fences_does_not_fence_its_successor(url, short_lease, monkeypatch):
    begun, fence = [], LocalFiles.fence_earlier

    def suspended(files):
        monkeypatch.setattr(LocalFiles, "fence_earlier", fence)
        as_of_another_machine(url)
        begun.append(Session.begin(url, {}))
        fence(files)

    monkeypatch.setattr(LocalFiles, "fence_earlier", suspended)
    first = Session.begin(url, {})
    (second,) = begun
    with pytest.raises(SessionSupersededError):
        first.files.put("k", b"late")
    second.files.put("k", b"new")
    second.end()
    first.end()


def _run_and_stop(url, stop_at):
    """Commit blocks one after the other, and suspend this process before it renames file number `stop_at`."""
    count = iter(range(stop_at))

    def suspend(files, temporary, key):
        if "single/" in key and next(count, None) is None:
            os.kill(os.getpid(), signal.SIGSTOP)

    call_before(Permanently, "rename", suspend)
    session = Session.begin(url, {})
    store = create_empty_store(session, SMALL, {})
    panel = SMALL.panels[0]
    for block in iterate_blocks(panel):
        try:
            commit_block(store, SMALL, panel, block)
        except SessionSupersededError:
            os._exit(77)


@pytest.mark.slow
@pytest.mark.parametrize("stop_at", [9, 10, 11], ids=["before the values", "between values and status", "status"])
def test_suspended_session_cannot_write_to_a_store_extended_by_another(url, stop_at, short_lease, tmp_path):
    """A session that is suspended in its shorter last block cannot write after another session extended the store."""
    process = _CONTEXT.Process(target=_run_and_stop, args=(url, stop_at))
    process.start()
    _await_stop(process)
    larger = SMALL.extended(SMALL, 9, {})
    with Session.begin(url, {}) as session:
        store = grow_store(ResultStore.open(url, session.id), session, larger)
        panel = larger.panels[0]
        for block in iterate_blocks(panel):
            commit_block(store, larger, panel, block)
        os.kill(process.pid, signal.SIGCONT)
        process.join(60)
    assert process.exitcode == 77
    assert_equal_arrays(url, compute_into(tmp_path / "whole.zarr", larger).url, n_least=3)


def _run_and_stop_once(url):
    """Run with threads, and suspend this process after the first block; silent workers are removed early."""
    stops = iter([signal.SIGSTOP])
    with dask.config.set({"distributed.scheduler.worker-ttl": "1s"}):
        pipeline.run(
            STUDY,
            url,
            panels=["single"],
            trials=9,
            progress=lambda works: lambda receipt: [os.kill(os.getpid(), stop) for stop in stops],
        )


@pytest.mark.slow
def test_a_run_with_threads_that_was_suspended_continues(url):
    """A run continues after Ctrl-Z and fg, or the sleep of a laptop, although its worker was silent (regression)."""
    process = _CONTEXT.Process(target=_run_and_stop_once, args=(url,))
    process.start()
    _await_stop(process)
    time.sleep(6)  # ten heartbeats, after which the scheduler would remove the worker
    os.kill(process.pid, signal.SIGCONT)
    process.join(30)
    process.kill()
    assert process.exitcode == 0
    assert pipeline.open_results(url)["single"].sizes["trial"] == 9


def _await_stop(process):
    wait_until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED, "a suspended process", 60)


def test_extension_is_rejected_while_a_session_is_active(url):
    pipeline.run(STUDY, url, panels=["single"], trials=5)
    with Session.begin(url, {}):
        root = Path(url, "zarr.json").read_bytes()
        with unchanged(f"{url}/single"), pytest.raises(BusyStoreError, match="is being written by another session"):
            pipeline.extend(url, trials=8)
        assert Path(url, "zarr.json").read_bytes() == root
    pipeline.extend(url, trials=8)
    assert pipeline.open_results(url)["single"].sizes["trial"] == 8


@pytest.mark.slow
def test_a_session_notices_that_another_process_has_ended_it(any_url):
    session = Session.begin(any_url, {"submission": "x"})
    with pytest.raises(BusyStoreError, match="end it with: dpstudies cancel"):
        Session.begin(any_url, {})
    session.require_active()
    assert not end_session(any_url, "000000-another", {})  # ending a superseded session does not end its successor
    assert end_session(any_url, session.id, {"cancelled": "2026-01-01T00:00:00Z"})
    assert not end_session(any_url, session.id, {})
    with pytest.raises(SessionSupersededError):
        session.update({"unmet": "x"})
    session._heart.join(10)
    with pytest.raises(SessionSupersededError):
        session.require_active()
    session.end({"finished": "2026-01-01T00:00:00Z"})
    assert sessions_of(open_files(any_url))[0].keys() & {"cancelled", "finished"} == {"cancelled"}
    Session.begin(any_url, {}).end()
    with pytest.raises(SessionSupersededError):
        session.files.put("k", b"x")


@pytest.mark.slow
@pytest.mark.parametrize("removed", [WRITING, "writer"])
def test_cancel_ends_a_submission_without_the_folder_of_its_writer(url, removed):
    """As in a store that was copied without empty folders, or after a crash while the folder was removed."""
    pipeline.run(STUDY, url, panels=["single"], progress=False)
    session = Session.begin(url, {"submission": "x"})
    as_of_another_machine(url, 2)
    shutil.rmtree(Path(url, WRITING, session.id) if removed == "writer" else Path(url, WRITING))
    pipeline.cancel(url)
    assert sessions_of(open_files(url))[1].keys() >= {"cancelled", "ended"}
    assert os.listdir(Path(url, WRITING)) == []
    with pytest.raises(SessionSupersededError):
        session.files.put("k", b"x")
    started = time.monotonic()
    pipeline.resume(url, progress=False)
    assert time.monotonic() - started < lease.LEASE_SECONDS / 2


def test_session_that_another_has_superseded_is_not_ended_in_its_place(url, monkeypatch):
    """Another session may begin after the record of the last one was read."""
    session = Session.begin(url, {})
    begin, others = LocalFiles.begin, []

    def begin_later(files):
        begin(files)
        if not others:
            others.append(files)
            lease._ENDED.add(session.id)
            others.append(Session.begin(url, {}))

    monkeypatch.setattr(LocalFiles, "begin", begin_later)
    assert not end_session(url, session.id, {})
    others[1].end()
    assert ["ended" in record for record in sessions_of(open_files(url))] == [False, True]


def test_end_of_a_session_removes_its_temporary_files(url):
    with Session.begin(url, {}) as session:
        session.files.write_temporary(b"half")
    assert os.listdir(f"{url}/.dpstudies/writing") == []


def test_records_of_sessions_are_verified(url):
    Session.begin(url, {"profile": "a"}).end()
    content = LocalFiles(url).read(f"{SESSIONS}/000001.json")
    assert unseal(content)["profile"] == "a"
    assert unseal(content.replace(b'"a"', b'"b"')) is None
    assert json.loads(content)["profile"] == "a"


def test_store_copied_without_its_sessions_is_extended(url):
    """If a store was copied without its sessions, a repair allows its extension; it is not created again."""
    pipeline.run(STUDY, url, panels=["single"], trials=5)
    shutil.rmtree(f"{url}/.dpstudies")
    whole = [path for path in Path(url, "single").rglob("c/0/*") if path.name in "01"]
    before = {path: path.stat().st_mtime_ns for path in whole}
    with pytest.raises(UnreadableStoreError, match="the number of trials asked for is unknown"):
        pipeline.extend(url, trials=8)
    verify(url, study=STUDY, sample=0, repair=True)
    pipeline.extend(url, trials=8)
    assert {path: path.stat().st_mtime_ns for path in whole} == before


def test_session_that_cannot_record_its_end_is_over(tmp_path, monkeypatch):
    """If a session cannot record its end, as on a full disk, its process can still start the next session at once."""
    session = Session.begin(str(tmp_path), {})
    with monkeypatch.context() as patch:
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        patch.setattr(LocalFiles, "_write_temporary", Mock(side_effect=full))
        with pytest.raises(OSError, match="No space left"):
            session.end()
    with Session.begin(str(tmp_path), {}) as other:
        assert other.id > session.id
