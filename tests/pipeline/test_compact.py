"""Tests of compact copies of stores: the same bits in fewer files, which can only be read."""

import importlib
import os
import shutil
from collections import Counter
from pathlib import Path

import google_crc32c
import numpy as np
import pytest
import xarray as xr
import zarr

import pipeline
from pipeline import BadInputError
from pipeline.blocks.division import iterate_blocks
from pipeline.errors import BusyStoreError, StoreAccessError, UnreadableStoreError
from pipeline.execution.checks import rerun_trial
from pipeline.runs.verify import verify
from pipeline.store.codec import shards
from pipeline.store.copies import new_store
from pipeline.store.copies.compact import compact
from pipeline.store.files.local_files import LocalFiles
from pipeline.store.read import read_outcome
from pipeline.store.result_store import ResultStore
from pipeline.store.scan.states import block_states, count_by_status
from pipeline.store.sessions.lease import Session
from pipeline.store.sessions.records import SESSION_COPIES
from tests.pipeline.faults.file_operations import flip
from tests.pipeline.helpers import (
    TOY_FILE,
    assert_equal_arrays,
    chunk_file,
    compute_into,
    create_store,
    panel_of,
    unchanged,
)
from tests.pipeline.toy import STUDY

compact_module = importlib.import_module("pipeline.store.copies.compact")


@pytest.fixture(scope="module")
def copy(complete_store, tmp_path_factory):
    """Return the path of a compact copy of the complete store, which must not be changed."""
    path = tmp_path_factory.mktemp("compact") / "toy.zarr"
    compact(complete_store, path)
    return path


@pytest.fixture
def altered(copy, tmp_path):
    """Return the path of a compact store that a test may change."""
    return shutil.copytree(copy, tmp_path / "altered.zarr")


def n_files(path):
    return sum(file.is_file() for file in Path(path).rglob("*"))


def chunks_of_shard(content, n_chunks):
    """Return the encoded chunks of a shard in the order of its index, None for absent ones."""
    index = np.frombuffer(content[-16 * n_chunks - 4 : -4], "<u8").reshape(n_chunks, 2).tolist()
    return [None if start == 2**64 - 1 else content[start : start + length] for start, length in index]


def shard_in_order(chunks):
    """Return a shard whose chunks have the order of its index, as version 0.2.0 wrote them."""
    starts = np.cumsum([0, *(len(chunk or b"") for chunk in chunks)]).tolist()
    rows = [(2**64 - 1,) * 2 if one is None else (at, len(one)) for one, at in zip(chunks, starts, strict=False)]
    index = np.array(rows, "<u8").tobytes()
    return b"".join([*filter(None, chunks), index, google_crc32c.value(index).to_bytes(4, "little")])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["status", pytest.param("heads", marks=pytest.mark.exhaustive)])
def test_shards_in_the_order_of_earlier_versions_are_read(complete_store, altered, name):
    for array in [f"{panel.name}/{name}" for panel in STUDY.panels if (Path(altered) / panel.name / name).exists()]:
        opened = zarr.open_group(altered, mode="r")[array]
        n_chunks = np.prod(np.array(opened.shards) // opened.chunks)
        for file in (path for path in Path(altered, array, "c").rglob("*") if path.is_file()):
            file.write_bytes(shard_in_order(chunks_of_shard(file.read_bytes(), n_chunks)))
    assert_equal_arrays(complete_store, altered)
    one, other = ResultStore.open(complete_store), ResultStore.open(altered)
    assert [count_by_status(other, panel.name) for panel in STUDY.panels] == [
        count_by_status(one, panel.name) for panel in STUDY.panels
    ]
    assert verify(altered, sample=0, study=str(TOY_FILE)).problems == ()


@pytest.mark.slow
def test_readers_of_the_pipeline_and_plain_xarray_accept_a_compact_store(complete_store, copy):
    one, other = ResultStore.open(complete_store), ResultStore.open(copy)
    assert other.is_compact
    assert not one.is_compact
    assert other.sessions == one.sessions
    for panel in STUDY.panels:
        assert count_by_status(other, panel.name) == count_by_status(one, panel.name)
        np.testing.assert_array_equal(block_states(other, panel), block_states(one, panel))
        data = [pipeline.open_results(path)[panel.name].to_dataset() for path in (complete_store, copy)]
        xr.testing.assert_identical(*map(pipeline.summarise, data))
        plain = [xr.open_zarr(path, group=panel.name).load() for path in (complete_store, copy)]
        xr.testing.assert_identical(*plain)
        first, second = ({name: variable.attrs for name, variable in ds.variables.items()} for ds in plain)
        assert first == second


def test_verification_recomputes_a_compact_store(copy):
    with unchanged(copy):
        found = verify(copy, sample=None, study=str(TOY_FILE))
    assert (found.problems, found.n_pending) == ((), 0)
    assert found.n_computed > 0


def test_trial_of_a_compact_store_is_recomputed(copy):
    reruns = rerun_trial(ResultStore.open(copy), STUDY, "single", {}, 3)
    assert reruns
    assert all(rerun.is_stored and rerun.equal for rerun in reruns)


@pytest.mark.slow
def test_files_are_a_hundredth(tmp_path):
    """A store of 300 blocks has 600 chunk files, and its compact copy has at most a hundredth of all files."""
    study = panel_of(STUDY, "single", trials=300, block_trials=1)
    compute_into(tmp_path / "s.zarr", study)
    compact(tmp_path / "s.zarr", tmp_path / "compact.zarr")
    metadata = n_files(create_store(tmp_path / "empty.zarr", study).url)
    before, after = n_files(tmp_path / "s.zarr") - metadata, n_files(tmp_path / "compact.zarr") - metadata
    assert before == 600
    assert 0 < after <= before / 100
    assert_equal_arrays(tmp_path / "s.zarr", tmp_path / "compact.zarr", n_least=3)


@pytest.mark.slow
@pytest.mark.parametrize("most", [3, *(pytest.param(k, marks=pytest.mark.exhaustive) for k in (1, 7))])
def test_shards_of_several_sizes_have_equal_bits(complete_store, memory_url, monkeypatch, most):
    """The same code writes shards to objects and to files, whose copies other tests compare."""
    monkeypatch.setattr(shards, "_MOST_CHUNKS", most)
    copy = compact(complete_store, memory_url)
    assert_equal_arrays(complete_store, copy.url)
    for panel in STUDY.panels:
        assert count_by_status(copy, panel.name) == count_by_status(ResultStore.open(complete_store), panel.name)


@pytest.mark.parametrize("most", [shards._MOST_CACHED, 0])
def test_shards_are_read_once_by_a_reader_of_one_block_after_the_other(complete_store, tmp_path, monkeypatch, most):
    monkeypatch.setattr(shards, "_MOST_CACHED", most)
    monkeypatch.setattr(shards, "_MOST_CHUNKS", 3)
    store, panel, n_reads = compact(complete_store, tmp_path / "copy.zarr"), STUDY.panel("means"), Counter()
    read = store.files.read
    monkeypatch.setattr(store.files, "read", lambda key: n_reads.update([key]) or read(key))
    for block in iterate_blocks(panel):
        for setting in panel.settings():
            read_outcome(store, panel, block, setting)
    assert len(n_reads) > 8
    assert (max(n_reads.values()) == 1) == (most > 0)  # a reader that keeps only the last shard reads them again


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "n_problems"),
    [
        (lambda content: bytes([content[0] ^ 1]) + content[1:], 1),
        (lambda content: content[:-1] + bytes([content[-1] ^ 1]), 3),
        (None, 3),
        *(pytest.param(lambda content, n=n: content[:n], 3, marks=pytest.mark.exhaustive) for n in (-3, 0)),
    ],
    ids=["chunk", "index", "missing", "cut", "empty"],
)
def test_verification_finds_damaged_shards(altered, damage, n_problems):
    file = chunk_file(altered, "single", "heads", 0, 0)
    if damage is None:
        file.unlink()
    else:
        file.write_bytes(damage(file.read_bytes()))
    found = verify(altered, sample=0, study=str(TOY_FILE)).problems
    kind = "missing" if damage is None else "unreadable"
    assert [(problem.where.partition(",")[0], problem.variable, problem.damage.kind) for problem in found] == [
        ("single", "heads", kind)
    ] * n_problems


def test_lost_status_of_a_compact_store_is_damage(altered):
    chunk_file(altered, "single", "status", 0, 0).unlink()
    found = verify(altered, sample=0, study=str(TOY_FILE))
    assert {(problem.variable, problem.damage.kind) for problem in found.problems} == {("status", "missing")}
    assert found.n_pending == 0


def test_damaged_index_is_an_error_of_plain_zarr(altered):
    file = chunk_file(altered, "single", "heads", 0, 0)
    file.write_bytes(file.read_bytes()[:-1] + b"\0")
    with pytest.raises(Exception, match="checksum"):
        zarr.open_group(altered, mode="r")["single/heads"][...]


@pytest.mark.parametrize(
    "change",
    [
        lambda path: pipeline.run(STUDY, path),
        lambda path: pipeline.resume(path, study=STUDY),
        lambda path: pipeline.extend(path, trials=20, study=STUDY),
        lambda path: verify(path, repair=True, study=STUDY),
        lambda path: compact(path, f"{path}.again"),
    ],
    ids=["run", "resume", "extend", "repair", "compact"],
)
def test_changes_are_rejected(copy, change):
    with unchanged(copy), pytest.raises(BadInputError, match=r"^the store \S+ is compact [^\n]+$"):
        change(copy)
    assert not Path(f"{copy}.again").exists()


def make_store(store, place):
    create_store(place, panel_of(STUDY, "single"))


def make_link(store, place):
    place.symlink_to(place.with_name("nowhere"))


def lose_status(store, place):
    chunk_file(store, "single", "status", 0, 0).unlink()


def lose_inapplicable(store, place):
    """Remove a status of a method that does not apply to its cell, as a kill between the statuses of a block does."""
    chunk_file(store, "means", "status", 1, 0, 0, 1, 2, 0).unlink()


@pytest.mark.parametrize(
    ("message", "prepare", "destination"),
    [
        ("exists", lambda store, place: place.touch(), "there"),
        ("exists", lambda store, place: place.mkdir(), "there"),
        ("exists", make_store, "there"),
        ("exists", make_link, "there"),
        (r"must be complete to be copied, got 2 pending trials in .*dpstudies resume", lose_status, "there"),
        (r"must be complete to be copied, got 4 pending trials in .*dpstudies resume", lose_inapplicable, "there"),
        ("must be a writable folder", lambda store, place: place.touch(), "there/compact.zarr"),
        *(
            ("must be outside of the store", prepare, f"{folder}/{inner}")
            for folder, prepare in {
                "copy.zarr": lambda store, place: None,
                "there": lambda store, place: place.symlink_to(store),
            }.items()
            for inner in ("", "compact.zarr", "single/heads")
        ),
    ],
)
def test_copy_that_cannot_be_written_is_refused_without_changes(store_copy, tmp_path, message, prepare, destination):
    prepare(store_copy, tmp_path / "there")
    with unchanged(tmp_path), pytest.raises(BadInputError, match=message):
        compact(store_copy, tmp_path / destination)


def test_store_in_use_is_rejected(store_copy, tmp_path):
    with Session.begin(str(store_copy), {}), pytest.raises(BusyStoreError, match="another session"):
        compact(store_copy, tmp_path / "compact.zarr")
    assert not (tmp_path / "compact.zarr").exists()


@pytest.mark.parametrize("damage", [flip, Path.unlink])
def test_damaged_store_is_rejected_and_leaves_nothing(store_copy, tmp_path, damage):
    damage(chunk_file(store_copy, "single", "heads", 0, 1))
    with pytest.raises(UnreadableStoreError, match="single/heads/c/0/1"):
        compact(store_copy, tmp_path / "compact.zarr")
    assert list(tmp_path.iterdir()) == [store_copy]


@pytest.mark.slow
@pytest.mark.parametrize("change", ["copy", "source"])
def test_copy_that_differs_is_removed(store_copy, tmp_path, monkeypatch, change):
    """A chunk that changes between the copy and the comparison is noticed, although its checksums hold."""
    flush = LocalFiles.flush

    def change_then_flush(files, keys):
        flush(files, keys)
        if change == "copy":
            shard = chunk_file(files.url, "single", "heads", 0, 0)
            parts = chunks_of_shard(shard.read_bytes(), 3)
            shard.write_bytes(shard_in_order([parts[1], parts[0], parts[2]]))
        else:
            first, second = (chunk_file(store_copy, "single", "heads", 0, k) for k in (0, 1))
            second.write_bytes(first.read_bytes())

    monkeypatch.setattr(LocalFiles, "flush", change_then_flush)
    error, words = {
        "copy": (StoreAccessError, r"single/heads/c/0/. differs between the store .* and its copy"),
        "source": (UnreadableStoreError, "single/heads/c/0/1 is not the chunk that its block committed"),
    }[change]
    with pytest.raises(error, match=words):
        compact(store_copy, tmp_path / "compact.zarr")
    assert list(tmp_path.iterdir()) == [store_copy]


@pytest.mark.parametrize("moment", ["during the copy", "after the comparison"])
def test_session_that_begins_meanwhile_is_noticed(store_copy, tmp_path, monkeypatch, moment):
    """A retry that overlaps with the end of the comparison has replaced trials which the copy lacks."""
    flush, compare = LocalFiles.flush, compact_module._require_equal

    def begin_then_flush(files, keys):
        monkeypatch.setattr(LocalFiles, "flush", flush)
        Session.begin(str(store_copy), {}).end()
        flush(files, keys)

    def compare_then_begin(source, copy, contents):
        compare(source, copy, contents)
        if SESSION_COPIES in contents:  # the last comparison
            Session.begin(str(store_copy), {}).end()

    if moment == "during the copy":
        monkeypatch.setattr(LocalFiles, "flush", begin_then_flush)
    else:
        monkeypatch.setattr(compact_module, "_require_equal", compare_then_begin)
    with pytest.raises(BusyStoreError, match="another session began"):
        compact(store_copy, tmp_path / "compact.zarr")
    assert list(tmp_path.iterdir()) == [store_copy]


def test_partial_copies_of_killed_processes_are_removed(store_copy, tmp_path):
    """The folder of a running process, those of other destinations and those of users remain."""
    names = (f"c.zarr.{1:032x}", f"c.zarr.{2:032x}", f"d.zarr.{1:032x}", "c.zarr.mine", f"c.zarr.b.{1:032x}")
    left, running, *others = (tmp_path / f".{name}.partial" for name in names)
    for folder in (left, running, *others):
        (folder / "p").mkdir(parents=True)
    (tmp_path / f".c.zarr.{3:032x}.partial").symlink_to(others[0])
    lock = new_store._lock(running)
    compact(store_copy, tmp_path / "c.zarr")
    os.close(lock)
    assert not left.exists()
    assert (running / "p").exists()
    assert all((other / "p").exists() for other in others)


def test_panels_without_dimensions_are_copied(tmp_path):
    panel = panel_of(STUDY, "single").panels[0]
    assert panel.factors == ()
    study = panel_of(STUDY, "single", trials=None)
    store = compute_into(tmp_path / "s.zarr", study)
    assert store.array("single", "status").ndim <= 1
    assert_equal_arrays(store.url, compact(store, tmp_path / "compact.zarr").url, n_least=3)
