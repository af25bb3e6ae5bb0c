"""Tests that committed blocks stay correct after power losses that undo an arbitrary part of unflushed writes."""

import ctypes
import errno
import os
import random
import shutil
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest

import pipeline
from pipeline.blocks.division import iterate_blocks
from pipeline.blocks.evaluate import FAILURES, evaluate_block
from pipeline.store.commit import BlockWriter, Planned
from pipeline.store.creation import create_empty_store
from pipeline.store.files import local_files
from pipeline.store.files.local_files import LocalFiles
from pipeline.store.files.locations import SESSIONS
from pipeline.store.health import check_block, invalidate
from pipeline.store.result_store import ResultStore
from pipeline.store.scan.states import block_states
from pipeline.store.sessions.lease import Session
from pipeline.store.sessions.records import sessions_of
from tests.pipeline.faults.file_operations import call_before, lose_power, note_unsynced
from tests.pipeline.helpers import assert_equal_arrays, compute_into, compute_pending, created, pending
from tests.pipeline.toy import STUDY

PANELS = ["single", "table", "faults"]


class PowerLoss(BaseException):
    """Simulated power loss."""


def cut_power(monkeypatch, after):
    """Raise `PowerLoss` after `after` renames."""
    count = iter(range(after))

    def fail(files, temporary, key):
        if key.partition("/")[0] in PANELS and next(count, None) is None:
            raise PowerLoss

    call_before(monkeypatch, "rename", fail)


def wrong_blocks(url):
    store, study = ResultStore.open(url), STUDY.configure(panels=PANELS)
    return [
        problems
        for panel in study.panels
        for block in iterate_blocks(panel)
        for setting in panel.settings()
        for problems in [check_block(store, panel, block, setting)[0]]
        if problems
    ]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return the path of a store that is computed without a power loss."""
    path = tmp_path_factory.mktemp("whole") / "s.zarr"
    pipeline.run(STUDY, path, panels=PANELS, cluster=None)
    return path


def _lost_at(tmp_path, monkeypatch, after, seed, act):
    """Call `act` until a simulated power loss, undo changes that were not flushed, and return the store's path."""
    url = tmp_path / "s.zarr"
    with monkeypatch.context() as patch:
        note_unsynced(tmp_path / "unsynced", patch)
        cut_power(patch, after)
        with pytest.raises((PowerLoss, pipeline.errors.BadInputError, RuntimeError)):
            act(url)
    # the process continues, unlike after a power loss, so that records of sessions remain
    lose_power(tmp_path / "unsynced", random.Random(seed), lambda path: SESSIONS not in path)
    return url


def compute_and_commit(url):
    """Create a store, and compute and commit its blocks one after the other, as a worker does."""
    study = STUDY.configure(panels=PANELS)
    with Session.begin(str(url), {}) as session:
        is_begun = ResultStore.exists(url) and ResultStore.open(url).complete
        store = ResultStore.open(url, session.id) if is_begun else create_empty_store(session, study, {})
        compute_pending(store, study)


exhaustive = (pytest.mark.slow, pytest.mark.exhaustive)
seeds = pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=exhaustive) for seed in (1, 2))])


@pytest.mark.slow
@seeds
@pytest.mark.parametrize("after", [3, 12, 40, *(pytest.param(k, marks=exhaustive) for k in (1, 4, 9, 25))])
def test_no_status_without_values_after_a_power_loss(tmp_path, monkeypatch, whole, after, seed):
    url = _lost_at(tmp_path, monkeypatch, after, seed, compute_and_commit)
    assert wrong_blocks(url) == []
    compute_and_commit(url)
    assert_equal_arrays(url, whole)
    assert wrong_blocks(url) == []


@seeds
@pytest.mark.parametrize("after", [4, *(pytest.param(after, marks=pytest.mark.slow) for after in (1, 9))])
def test_no_failed_status_with_values_after_a_power_loss_in_a_retry(tmp_path, monkeypatch, whole, after, seed):
    study = STUDY.configure(panels=PANELS)

    def retry(url):
        with Session.begin(str(url), {}) as session:
            compute_pending(ResultStore.open(url, session.id), study, FAILURES)

    shutil.copytree(whole, tmp_path / "s.zarr")
    url = _lost_at(tmp_path, monkeypatch, after, seed, retry)
    assert wrong_blocks(url) == []
    compute_and_commit(url)
    assert_equal_arrays(url, whole)


def test_removals_are_not_undone_by_a_power_loss(tmp_path, monkeypatch, whole):
    """Removals are flushed one after the other, so that a status cannot return without its values."""
    url, panel = shutil.copytree(whole, tmp_path / "s.zarr"), STUDY.panel("single")
    note_unsynced(tmp_path / "unsynced", monkeypatch)
    always_lost = SimpleNamespace(choice=lambda fates: fates[0])
    with Session.begin(str(url), {}) as session:
        store = ResultStore.open(url, session.id)
        invalidate(store, panel, next(iterate_blocks(panel)), panel.settings()[0], ["heads"])
        assert lose_power(tmp_path / "unsynced", always_lost, lambda path: SESSIONS not in path) == 0
    assert pending(ResultStore.open(url), panel).sum() == 1


@pytest.mark.slow
def test_power_loss_test_detects_a_missing_flush(tmp_path, monkeypatch):
    """If commits do not flush, power losses damage blocks (negative control)."""
    monkeypatch.setattr(LocalFiles, "flush", lambda files, keys: None)
    found = []
    for seed in range(6):
        shutil.rmtree(tmp_path / "s.zarr", ignore_errors=True)
        with monkeypatch.context() as patch:
            note_unsynced(tmp_path / "unsynced", patch)
            patch.setattr(LocalFiles, "flush", lambda files, keys: None)
            cut_power(patch, 30 + 10 * seed)
            with pytest.raises(PowerLoss):
                compute_and_commit(tmp_path / "s.zarr")
        lose_power(tmp_path / "unsynced", random.Random(seed), lambda path: "/c/" in path and "/status/" not in path)
        found += wrong_blocks(tmp_path / "s.zarr")
    assert found


def test_one_flush_per_task(tmp_path, monkeypatch):
    study = STUDY.configure(panels=["single"])
    flushes = []
    call_before(monkeypatch, "flush", lambda files, keys: flushes.append(1))
    with created(tmp_path / "s.zarr", study) as store:
        before = len(flushes)
        compute_pending(store, study)
        assert len(flushes) - before == 3  # in this test, each task has one block


def refuse_syncfs(descriptor):
    ctypes.set_errno(errno.ENOSYS)
    return -1


@pytest.mark.parametrize("syncfs", [None, refuse_syncfs], ids=["absent", "not implemented"])
def test_files_are_flushed_one_by_one_without_syncfs(tmp_path, monkeypatch, syncfs):
    """A kernel, or a sandbox, may lack the system call although the C library has it."""
    with Session.begin(str(tmp_path), {}) as session:
        session.files.put("a/b", b"1")
        flushed, fsync = [], os.fsync

        def note(descriptor):
            flushed.append(os.path.relpath(os.readlink(f"/proc/self/fd/{descriptor}"), tmp_path))
            return fsync(descriptor)

        with monkeypatch.context() as patch:
            patch.setattr(local_files, "_SYNCFS", syncfs)
            patch.setattr(os, "fsync", note)
            session.files.flush(["a/b"])
            assert sorted(flushed) == ["a", "a/b"]
            session.files.remove(["a/b"])
        assert sorted(flushed) == ["a", "a", "a/b"]


def test_flush_without_syncfs_covers_every_file(tmp_path, monkeypatch):
    """On systems without `syncfs`, a commit flushes each file and its folder."""
    monkeypatch.setattr("pipeline.store.files.local_files._SYNCFS", None)
    synced, fsync = [], os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}")) or fsync(descriptor)
    )
    study = STUDY.configure(panels=["single"])
    compute_into(tmp_path / "s.zarr", study)
    values = {str(path) for path in (tmp_path / "s.zarr/single/heads/c").rglob("*")}
    assert values <= set(synced)
    assert np.all(block_states(ResultStore.open(tmp_path / "s.zarr"), study.panels[0]) == 0)


def test_failed_flush_commits_nothing(tmp_path, monkeypatch):
    study = STUDY.configure(panels=["single"])
    with created(tmp_path / "s.zarr", study) as store:
        with monkeypatch.context() as patch:
            patch.setattr(LocalFiles, "flush", Mock(side_effect=OSError(5, "Input/output error")))
            with pytest.raises(OSError, match="Input/output"):
                compute_pending(store, study)
        assert pending(store, study.panels[0]).all()
    assert os.listdir(tmp_path / "s.zarr/.dpstudies/writing") == []


@pytest.mark.parametrize("seed", range(10))
def test_records_of_sessions_stay_readable_after_a_power_loss(tmp_path, monkeypatch, seed):
    with monkeypatch.context() as patch:
        note_unsynced(tmp_path / "unsynced", patch)
        with Session.begin(str(tmp_path / "s.zarr"), {}) as session:
            session.update({"a": 1})
    lose_power(tmp_path / "unsynced", random.Random(seed))
    (record,) = sessions_of(session.files)
    assert record["id"] == session.id


def test_commit_flushes_values_of_unfinished_commits_that_it_relies_on(tmp_path, monkeypatch):
    """Without `syncfs`, a commit also flushes the per-cell values that an unfinished commit has written."""
    monkeypatch.setattr(local_files, "_SYNCFS", None)
    study = STUDY.configure(panels=["means"])
    panel = study.panels[0]
    first, second = [block for block in iterate_blocks(panel) if block.cell == 0]
    setting = panel.settings()[0]
    synced = []
    with Session.begin(str(tmp_path / "s.zarr"), {}) as session:
        create_empty_store(session, study, {})
        stores = [ResultStore.open(tmp_path / "s.zarr", session.id) for _ in range(2)]  # the stores of two workers
        (before,), (after,) = (evaluate_block(study, block, [setting]) for block in (first, second))
        with BlockWriter(stores[0]).commit([Planned(panel, first, [setting])]) as commit:
            commit.write(panel, first, setting, before)
            with BlockWriter(stores[1]).commit([Planned(panel, second, [setting])]) as other:
                other.write(panel, second, setting, after)
                monkeypatch.setattr(LocalFiles, "sync", lambda files, path: synced.append(path))
            assert str(tmp_path / "s.zarr/means/exact/c/0/0/0/0/0") in synced
