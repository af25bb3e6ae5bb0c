"""Tests of verification: changed, truncated and lost files are detected, and repairs make their blocks pending."""

import errno
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import zarr

from pipeline import Measure, resume
from pipeline.blocks.division import iterate_blocks
from pipeline.blocks.evaluate import Block, Outcome, Status, evaluate_block
from pipeline.errors import (
    BadInputError,
    BusyStoreError,
    ExecutionError,
    IncompleteStoreError,
    StoreAccessError,
    UnreadableStoreError,
)
from pipeline.execution import execute
from pipeline.execution.checks import Rerun
from pipeline.execution.in_flight import TaskResult
from pipeline.faults import retried
from pipeline.runs.verify import Verification, _check_all, verify
from pipeline.store import health
from pipeline.store.commit import BlockWriter, Planned
from pipeline.store.creation import grow_store
from pipeline.store.files.local_files import LocalFiles
from pipeline.store.files.locations import SESSIONS
from pipeline.store.layout.root import COPY
from pipeline.store.read import read_outcome, reading
from pipeline.store.result_store import ResultStore
from pipeline.store.sessions.lease import Session
from tests.pipeline.faults.file_operations import call_before, cut, flip
from tests.pipeline.helpers import (
    assert_equal_arrays,
    chunk_file,
    file_stamps,
    interrupt_creation,
    make_study,
    pending,
    refusal,
    unchanged,
    writing,
)
from tests.pipeline.toy import STUDY

CHUNKS = [
    ("means", "estimate", (0, 0, 0, 0, 1, 0)),
    ("means", "n_above", (1, 0, 1, 1, 1, 0)),
    ("means", "quantile", (0, 0, 1, 0, 0, 1, 0)),
    ("means", "exact", (1, 0, 0, 0, 2)),
    ("means", "status", (1, 0, 1, 1, 2, 0)),
    ("faults", "error", (0, 1, 0)),
    ("faults", "x", (1, 3, 0)),
    ("table", "curve", (1, 0, 0)),
    ("single", "status", (0, 1)),
]


def checked(store, **arguments):
    return verify(store, study=STUDY, **arguments)


@pytest.mark.slow
def test_intact_store_has_no_problems_and_is_not_changed(store_copy):
    with unchanged(store_copy):
        found = checked(store_copy, sample=None)
    assert (found.problems, found.n_pending) == ((), 0)
    assert found.n_read == found.n_computed == 2 * 2 * 7 + 2 * 2 * 6 + 2 * 2 + 3


def test_a_scheduler_that_is_lost_ends_verification_in_one_line(store_copy, monkeypatch):
    monkeypatch.setattr(execute, "most_threads", Mock(side_effect=OSError("the scheduler has closed the connection")))
    with unchanged(store_copy), refusal("the connection to the scheduler was lost; restart", error=ExecutionError):
        checked(store_copy, sample=0)


@pytest.mark.parametrize("most_bytes", [1, 2**24])
def test_blocks_that_are_checked_together_have_the_damage_of_single_ones(store_copy, monkeypatch, most_bytes):
    """Changed, truncated, lost and foreign chunks are found whether chunks are read together or block by block."""
    monkeypatch.setattr(health, "_MOST_READ_AHEAD", most_bytes)
    for k, (panel, name, position) in enumerate(CHUNKS):
        (flip, cut, Path.unlink)[k % 3](chunk_file(store_copy, panel, name, *position))
    shutil.copyfile(*(chunk_file(store_copy, "means", "estimate", 0, 0, 0, 1, 1, trial) for trial in (0, 1)))
    store = ResultStore.open(store_copy)
    asked = [(panel, block, s) for panel in STUDY.panels for block in iterate_blocks(panel) for s in panel.settings()]
    together = list(health.check_blocks(store, asked))
    alone = [health.check_block(store, *one) for one in asked]
    assert [problems for problems, _ in together] == [problems for problems, _ in alone]
    assert sum(bool(problems) for problems, _ in alone) >= len(CHUNKS) - 1
    for (_, ours), (_, expected) in zip(together, alone, strict=True):
        assert (ours is None) == (expected is None)
        if ours is not None:
            np.testing.assert_equal(ours.values, expected.values)
            np.testing.assert_array_equal(ours.status, expected.status)


def fail_first(data, setting, streams):
    return {"x": data, "mean": 0.5, "error": np.where(np.arange(len(data)) == 0, "no", "")}


def test_infinite_values_are_compared_without_a_warning():
    panel = make_study(fail_first).panels[0]
    outcomes = [
        Outcome({"x": np.array([np.inf, value])}, np.array([Status.OK] * 2), np.array(["", ""], object))
        for value in (1.0, 2.0)
    ]
    again = Rerun(panel, panel.settings()[0], *outcomes)
    assert again.largest_difference == "largest relative difference 0.5"


@pytest.mark.parametrize(("name", "change"), [("status", 3), ("mean", 0.25)])
def test_recomputed_blocks_are_compared_in_every_trial(name, change):
    """A status of a later trial, and a per-cell measure of a block whose first trial failed, are compared."""
    measures = (Measure("x", "a number"), Measure("mean", "a number per cell", per_trial=False))
    study = make_study(fail_first, measures=measures)
    panel = study.panels[0]
    setting = panel.settings()[0]
    stored, computed = (evaluate_block(study, Block("p", 0, range(8)), [setting])[0] for _ in range(2))
    assert Rerun(panel, setting, computed, stored).equal
    if name == "status":
        computed.status[change] = Status.FAILED
    else:
        computed.values["mean"][...] = change
    assert not Rerun(panel, setting, computed, stored).equal


@pytest.mark.slow
@pytest.mark.parametrize("repair", [True, pytest.param(False, marks=pytest.mark.exhaustive)])
def test_a_chunk_that_is_damaged_in_one_read_only_is_not_reset(store_copy, complete_store, monkeypatch, repair):
    """No block becomes pending because one read of its chunk, such as of a failing cable, was wrong."""
    read_many, damaged = LocalFiles.read_many, set()

    def read_once_damaged(files, keys):
        contents = read_many(files, keys)
        for key, content in contents.items():
            if "/estimate/c/" in key and content is not None and key not in damaged:
                damaged.add(key)
                contents[key] = content[:-1]
        return contents

    monkeypatch.setattr(LocalFiles, "read_many", read_once_damaged)
    assert checked(store_copy, sample=0, repair=repair).problems == ()
    monkeypatch.undo()
    assert damaged
    verification = checked(store_copy, sample=0)
    assert (verification.problems, verification.n_pending) == ((), 0)
    assert_equal_arrays(store_copy, complete_store)


def test_a_block_that_is_present_at_some_values_of_an_unused_factor_is_pending(store_copy, complete_store):
    """An extension by a value of a method factor that was stopped leaves such blocks, which `resume` computes."""
    chunk_file(store_copy, "means", "status", 0, 0, 1, 0, 0, 0).unlink()
    for repair in (False, True, False):
        verification = checked(store_copy, sample=0, repair=repair)
        assert (verification.problems, verification.n_pending) == ((), 1)
    resume(store_copy, study=STUDY)
    assert_equal_arrays(store_copy, complete_store)


@pytest.mark.slow
def test_a_copy_that_differs_from_the_root_is_reported_and_rewritten(store_copy, monkeypatch):
    """An extension that was stopped after it wrote the copy leaves a copy of a larger store."""
    root, copy = store_copy / "zarr.json", store_copy / COPY
    rename, larger = LocalFiles.rename, STUDY.extended(STUDY, 40, {})

    def stop_after(files, temporary, key):
        rename(files, temporary, key)
        raise KeyboardInterrupt

    with Session.begin(str(store_copy), {}) as session:
        store = ResultStore.open(store_copy, session.id)
        monkeypatch.setattr(LocalFiles, "rename", stop_after)
        with pytest.raises(KeyboardInterrupt):
            grow_store(store, session, larger)
        monkeypatch.undo()
    assert root.read_bytes() != copy.read_bytes()
    (problem,) = checked(store_copy, sample=0).problems
    assert (problem.variable, problem.damage.kind) == ("root", "damaged")
    checked(store_copy, sample=0, repair=True)
    assert root.read_bytes() == copy.read_bytes()
    assert checked(store_copy, sample=0).problems == ()


@pytest.mark.slow
def test_sample_has_its_size_and_depends_on_the_seed(local_store):
    assert checked(local_store, sample=0).n_computed == 0
    one, same, other = (checked(local_store, sample=3, seed=seed) for seed in (1, 1, 2))
    assert one == same
    assert 0 < one.n_computed < one.n_read == other.n_read


HARMS = ((flip, "unreadable"), (cut, "unreadable"), (Path.unlink, "missing"))


@pytest.mark.slow
@pytest.mark.parametrize("shift", [0, *(pytest.param(k, marks=pytest.mark.exhaustive) for k in (1, 2))])
def test_damaged_blocks_become_pending_and_are_computed_again(complete_store, store_copy, shift):
    expected = {}
    for k, (panel, name, position) in enumerate(CHUNKS):
        damage, kind = HARMS[(k + shift) % 3]
        if (name, kind) != ("status", "missing"):  # trials without a status are pending
            damage(chunk_file(store_copy, panel, name, *position))
            expected[panel, name] = kind
    with unchanged(store_copy):
        found = checked(store_copy, sample=0).problems
    assert {(problem.where.partition(",")[0], problem.variable): problem.damage.kind for problem in found} == expected
    repaired = checked(store_copy, repair=True).problems
    assert {(problem.where, problem.variable) for problem in repaired} == {
        (problem.where, problem.variable) for problem in found
    }
    again = checked(store_copy, sample=None)
    assert (again.problems, again.n_pending) == ((), len({problem.where for problem in found}))
    resume(store_copy, study=STUDY)
    assert_equal_arrays(store_copy, complete_store)


@pytest.mark.slow
def test_different_values_are_reported_and_replaced_on_request(complete_store, store_copy):
    panel, block = STUDY.panel("means"), Block("means", 0, range(4))
    setting = panel.settings()[0]
    with writing(store_copy) as store:
        outcome = read_outcome(store, panel, block, setting)
        outcome.values["estimate"][1] = np.nextafter(outcome.values["estimate"][1], 9)
        with BlockWriter(store).commit([Planned(panel, block, [setting], [setting])]) as commit:
            commit.write(panel, block, setting, outcome)
    with unchanged(store_copy):
        (problem,) = checked(store_copy, sample=None).problems
    assert (problem.variable, problem.damage.kind) == ("estimate", "different")
    assert "largest relative difference" in problem.damage.detail
    assert "e-16" in problem.damage.detail
    assert len(checked(store_copy, sample=None, repair=True).problems) == 1
    assert checked(store_copy, sample=0).problems == ()
    assert_equal_arrays(store_copy, complete_store)


@pytest.mark.slow
def test_change_at_one_value_of_an_unused_method_factor_is_detected(complete_store, store_copy):
    array = zarr.open_group(store_copy)["means/estimate"]
    array[0, 0, 1, 0, 0, 1] = np.nextafter(array[0, 0, 1, 0, 0, 1], 9)
    (problem,) = checked(store_copy, sample=0, repair=True).problems
    assert (problem.variable, problem.damage.kind) == ("estimate", "inconsistent")
    resume(store_copy, study=STUDY)
    assert_equal_arrays(store_copy, complete_store)


def change_dtype(path):
    path.write_text(path.read_text().replace("float64", "float32"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("table/order/c/0", flip),
        ("single/trial/c/0", Path.unlink),
        ("table/total/zarr.json", change_dtype),
        *(pytest.param(f"single/{name}/c/0", flip, marks=pytest.mark.exhaustive) for name in ("trial", "algorithm")),
    ],
)
def test_coordinates_and_metadata_are_repaired(local_store, tmp_path, file, damage):
    store = shutil.copytree(local_store, tmp_path / "s.zarr")
    damage(store / file)
    with unchanged(store):
        (problem,) = checked(store, sample=0).problems
    assert checked(store, sample=0, repair=True).problems == (problem,)
    contents, expected = (
        {path.relative_to(folder): content for path, (content, _) in file_stamps(folder).items()}
        for folder in (store, local_store)
    )
    assert {path: contents[path] for path in expected} == expected
    assert (problem.where, problem.variable, problem.damage.kind) == (*file.split("/")[:2], "damaged")


def test_read_of_a_damaged_chunk_names_the_repair(store_copy):
    flip(chunk_file(store_copy, "single", "status", 0, 1))
    with pytest.raises(UnreadableStoreError, match="dpstudies verify"):
        pending(ResultStore.open(store_copy), STUDY.panel("single"))
    with pytest.raises(UnreadableStoreError, match="dpstudies verify"):
        resume(store_copy, study=STUDY)


def test_reading_passes_other_errors_through(store_copy):
    store = ResultStore.open(store_copy)
    with pytest.raises(BadInputError, match="mine"), reading(store):
        raise BadInputError("mine")


def test_an_unreadable_chunk_is_reported_once(store_copy, monkeypatch):
    """The error of a worker names the store and the cause, which the driver does not repeat."""

    def fail(files, key):
        if key.startswith("single/status/c/"):
            raise OSError(errno.EIO, "Input/output error")

    call_before(monkeypatch, "_read", fail)
    monkeypatch.setitem(retried.__kwdefaults__, "waits", ())
    with unchanged(store_copy), pytest.raises(StoreAccessError) as caught:
        checked(ResultStore.open(store_copy), sample=0)
    assert str(caught.value) == f"cannot read the store {store_copy}: Input/output error; make it readable, and repeat"


def test_invalid_arguments_are_rejected(store_copy, tmp_path):
    with pytest.raises(BadInputError, match="must be >= 0, got -1"):
        checked(store_copy, sample=-1)
    interrupt_creation(tmp_path / "t.zarr", STUDY)
    with pytest.raises(IncompleteStoreError, match="was interrupted; finish it with"):
        checked(tmp_path / "t.zarr")


def test_repair_is_rejected_while_another_session_writes(store_copy):
    flip(chunk_file(store_copy, "single", "heads", 0, 1))
    with writing(store_copy):
        with unchanged(store_copy), refusal("is being written by another session", error=BusyStoreError):
            checked(store_copy, sample=0, repair=True)
        assert len(checked(store_copy, sample=0).problems) == 1


def make_folder(path):
    path.mkdir()
    (path / "inside").touch()


@pytest.mark.slow
def test_non_files_are_damage_of_single_chunks(store_copy, complete_store, tmp_path):
    """Folders, link loops and pipes in place of chunks are reported; a repair and a resume restore the values."""
    for k, (panel, name, position) in enumerate(CHUNKS):
        chunk = chunk_file(store_copy, panel, name, *position)
        chunk.unlink()
        (make_folder, lambda path: path.symlink_to(path), os.mkfifo)[k % 3](chunk)
    record = Path(store_copy, SESSIONS, "000001.json")
    shutil.copy(record, tmp_path / "record.json")
    record.unlink()
    make_folder(record)
    before = sorted(Path(store_copy).rglob("*"))
    found = checked(store_copy, sample=0)
    assert {problem.variable for problem in found.problems} >= {name for _, name, _ in CHUNKS} | {"session 000001.json"}
    assert sorted(Path(store_copy).rglob("*")) == before
    shutil.rmtree(record)
    shutil.copy(tmp_path / "record.json", record)  # a session with a damaged record lasts until its lease ends
    checked(store_copy, sample=0, repair=True)
    resume(store_copy, study=STUDY)
    assert_equal_arrays(store_copy, complete_store)


@pytest.mark.parametrize("status", [-3, 6, 9])
def test_unknown_statuses_are_inconsistent(complete_store, status):
    store, panel = ResultStore.open(complete_store), STUDY.panel("single")
    block = next(iterate_blocks(panel))
    outcome = read_outcome(store, panel, block, panel.settings()[0])
    outcome.status[0] = status
    problems = health._contradictions(store, panel, block, outcome)
    assert problems["status"].detail == f"unknown status {status}"


def test_more_batches_are_in_flight_when_workers_join():
    class InFlight(list):
        def submit(self, n_blocks, *_):
            self.append(n_blocks)
            longest.append(len(self))

        def results(self):
            while self:
                yield TaskResult(self.pop(), Verification())

    def join():
        window.n_tasks += 1

    longest, window = [], SimpleNamespace(n_tasks=1, update=join)
    task = SimpleNamespace(run="", session="")
    parts = list(_check_all(InFlight(), task, iter([(None, False)] * 1000), window))
    assert sum(n_blocks for n_blocks, _ in parts) == 1000
    assert max(longest) > 4  # of 16 batches
