"""Tests that committed blocks stay correct after power losses that undo an arbitrary part of unflushed writes."""

import os
import random
import shutil
from pathlib import Path

import numpy as np
import pytest

import pipeline
from pipeline.blocks.division import iterate_blocks
from pipeline.blocks.evaluate import FAILURES, evaluate_block
from pipeline.execution.work import PendingWork
from pipeline.store.commit import BlockWriter, Planned
from pipeline.store.creation import create_empty_store
from pipeline.store.files import local_files
from pipeline.store.files.local_files import LocalFiles
from pipeline.store.files.locations import SESSIONS
from pipeline.store.health import check_block
from pipeline.store.result_store import ResultStore
from pipeline.store.scan.states import block_states
from pipeline.store.sessions.lease import Session
from pipeline.store.sessions.records import sessions_of
from tests.pipeline.helpers import assert_equal_arrays, pending
from tests.pipeline.toy import STUDY

PANELS = ["single", "table", "faults"]


class Recorder:
    """Record of the changes to a store's files since the last flush, each of which a power loss can undo.

    Unflushed changes are lost independently; a file with unflushed content may be empty.
    """

    def __init__(self, monkeypatch, url, ignored=SESSIONS):
        self.ignored = ignored  # default: session records, as the process continues here, unlike after a power loss
        self.url, self.pending, self.durable, self.written = Path(url), [], set(), set()
        for name in ("write_temporary", "rename", "remove", "flush", "sync"):
            monkeypatch.setattr(LocalFiles, name, self._wrapped(name, getattr(LocalFiles, name)))

    def _wrapped(self, name, function):
        def write(files, content):
            self.written.add(path := function(files, content))
            return path

        def flush(files, *arguments):
            self.pending, self.durable = [], set(self.written)
            return function(files, *arguments)

        def rename(files, temporary, key):
            path = self.url / key
            before = path.read_bytes() if path.exists() else None
            function(files, temporary, key)
            if self.ignored not in key:
                self.pending.append((path, before, temporary in self.durable))

        def remove(files, keys):
            keys = list(keys)
            paths = [self.url / key for key in keys if self.ignored not in key]
            held = {path: path.read_bytes() for path in paths if path.exists()}
            self.pending += [(path, content, True) for path, content in held.items()]
            function(files, keys)

        def sync(files, path):
            function(files, path)
            self.durable.add(path)

        return {"write_temporary": write, "flush": flush, "rename": rename, "remove": remove, "sync": sync}[name]

    def lose(self, rng):
        """Undo some changes in reverse order, and empty some files whose content was not flushed."""
        for path, before, is_durable in reversed(self.pending):
            fate = rng.choice(["lost", "kept", "kept" if is_durable else "empty"])
            if fate == "lost" and before is None:
                path.unlink(missing_ok=True)
            elif fate == "lost":
                path.write_bytes(before)
            elif fate == "empty" and path.exists():
                path.write_bytes(b"")


class PowerLoss(BaseException):
    """Simulated power loss."""


def lose_power(monkeypatch, recorder, after):
    """Raise `PowerLoss` after `after` renames."""
    rename, count = LocalFiles.rename, iter(range(after))

    def failing(files, temporary, key):
        if key.partition("/")[0] in PANELS and next(count, None) is None:
            raise PowerLoss
        rename(files, temporary, key)

    monkeypatch.setattr(LocalFiles, "rename", failing)


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
        recorder = Recorder(patch, url)
        lose_power(patch, recorder, after)
        with pytest.raises((PowerLoss, pipeline.errors.BadInputError, RuntimeError)):
            act(url)
        recorder.lose(random.Random(seed))
    return url


def compute_and_commit(url):
    """Create a store, and compute and commit its blocks one after the other, as a worker does."""
    study = STUDY.configure(panels=PANELS)
    with Session.begin(str(url), {}) as session:
        is_begun = ResultStore.exists(url) and ResultStore.open(url).complete
        store = ResultStore.open(url, session.id) if is_begun else create_empty_store(session, study, {})
        _commit_all(store, study)


def _commit_all(store, study, retry=()):
    for work in PendingWork(study, store, retry):
        panel = study.panel(work.block.panel)
        settings, stale = ([panel.settings()[k] for k in chosen] for chosen in (work.settings, work.stale))
        with BlockWriter(store).commit([Planned(panel, work.block, settings, stale)]) as commit:
            for setting, outcome in zip(settings, evaluate_block(study, work.block, settings), strict=True):
                commit.write(panel, work.block, setting, outcome)


SLOW = [pytest.param(after, range(3), marks=pytest.mark.slow) for after in (1, 4, 9, 12, 25, 40)]


@pytest.mark.slow
@pytest.mark.parametrize(("after", "seeds"), [(3, [1]), (25, [1]), *SLOW])
def test_no_status_without_values_after_a_power_loss(tmp_path, monkeypatch, whole, after, seeds):
    for seed in seeds:
        shutil.rmtree(tmp_path / "s.zarr", ignore_errors=True)
        url = _lost_at(tmp_path, monkeypatch, after, seed, compute_and_commit)
        assert wrong_blocks(url) == []
        compute_and_commit(url)
        assert_equal_arrays(url, whole)
        assert wrong_blocks(url) == []


@pytest.mark.parametrize(("after", "seeds"), [(4, [1]), *SLOW[:3]])
def test_no_failed_status_with_values_after_a_power_loss_in_a_retry(tmp_path, monkeypatch, whole, after, seeds):
    study = STUDY.configure(panels=PANELS)

    def retry(url):
        with Session.begin(str(url), {}) as session:
            _commit_all(ResultStore.open(url, session.id), study, FAILURES)

    for seed in seeds:
        shutil.rmtree(tmp_path / "s.zarr", ignore_errors=True)
        shutil.copytree(whole, tmp_path / "s.zarr")
        url = _lost_at(tmp_path, monkeypatch, after, seed, retry)
        assert wrong_blocks(url) == []
        compute_and_commit(url)
        assert_equal_arrays(url, whole)


def test_power_loss_test_detects_a_missing_flush(tmp_path, monkeypatch):
    """If commits do not flush, power losses damage blocks (negative control)."""
    monkeypatch.setattr(LocalFiles, "flush", lambda files, keys: None)
    found = []
    for seed in range(6):
        shutil.rmtree(tmp_path / "s.zarr", ignore_errors=True)
        with monkeypatch.context() as patch:
            recorder = Recorder(patch, tmp_path / "s.zarr")
            patch.setattr(LocalFiles, "flush", lambda files, keys: None)
            lose_power(patch, recorder, 30 + 10 * seed)
            with pytest.raises(PowerLoss):
                compute_and_commit(tmp_path / "s.zarr")
            chunks = [one for one in recorder.pending if "/c/" in str(one[0]) and "/status/" not in str(one[0])]
            recorder.pending = chunks
            recorder.lose(random.Random(seed))
        found += wrong_blocks(tmp_path / "s.zarr")
    assert found


def test_one_flush_per_task(tmp_path, monkeypatch):
    study = STUDY.configure(panels=["single"])
    flushes, flush = [], LocalFiles.flush
    monkeypatch.setattr(LocalFiles, "flush", lambda files, keys: flushes.append(1) or flush(files, keys))
    with Session.begin(str(tmp_path / "s.zarr"), {}) as session:
        store = create_empty_store(session, study, {})
        before = len(flushes)
        _commit_all(store, study)
        assert len(flushes) - before == 3  # in this test, each task has one block


def test_flush_without_syncfs_covers_every_file(tmp_path, monkeypatch):
    """On systems without `syncfs`, a commit flushes each file and its folder."""
    monkeypatch.setattr("pipeline.store.files.local_files._SYNCFS", None)
    synced, fsync = [], os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}")) or fsync(descriptor)
    )
    study = STUDY.configure(panels=["single"])
    with Session.begin(str(tmp_path / "s.zarr"), {}) as session:
        _commit_all(create_empty_store(session, study, {}), study)
    values = {str(path) for path in (tmp_path / "s.zarr/single/heads/c").rglob("*")}
    assert values <= set(synced)
    assert np.all(block_states(ResultStore.open(tmp_path / "s.zarr"), study.panels[0]) == 0)


def test_failed_flush_commits_nothing(tmp_path, monkeypatch):
    study = STUDY.configure(panels=["single"])
    with Session.begin(str(tmp_path / "s.zarr"), {}) as session:
        store = create_empty_store(session, study, {})

        def fail(files, keys):
            raise OSError(5, "Input/output error")

        with monkeypatch.context() as patch:
            patch.setattr(LocalFiles, "flush", fail)
            with pytest.raises(OSError, match="Input/output"):
                _commit_all(store, study)
        assert pending(store, study.panels[0]).all()
    assert os.listdir(tmp_path / "s.zarr/.dpstudies/writing") == []


@pytest.mark.parametrize("seed", range(10))
def test_records_of_sessions_stay_readable_after_a_power_loss(tmp_path, monkeypatch, seed):
    with monkeypatch.context() as patch:
        recorder = Recorder(patch, tmp_path, ignored="nothing")
        with Session.begin(str(tmp_path), {}) as session:
            session.update({"a": 1})
        recorder.lose(random.Random(seed))
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
