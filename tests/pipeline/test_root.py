"""Tests that damage to any file is detected and repaired, and that read errors are not treated as damage."""

import errno
import json
import random
import shutil

import numpy as np
import pytest

import pipeline
from pipeline.errors import BadInputError, StoreAccessError, UnreadableStoreError
from pipeline.runs.verify import verify
from pipeline.store.files.locations import STATE
from pipeline.store.layout.root import COPY, seal, seal_root, unseal
from pipeline.store.result_store import ResultStore
from pipeline.store.sessions.lease import Session
from tests.pipeline.faults.file_operations import call_before, flip
from tests.pipeline.helpers import assert_equal_arrays, unchanged
from tests.pipeline.toy import STUDY


@pytest.fixture(scope="module")
def small_store(tmp_path_factory):
    """Return the path of a complete read-only store with one panel."""
    path = tmp_path_factory.mktemp("small") / "s.zarr"
    pipeline.run(STUDY, path, panels=["single"])
    return path


@pytest.fixture
def altered(small_store, tmp_path):
    """Return the path of a copy of the small store, which tests may change."""
    return shutil.copytree(small_store, tmp_path / "s.zarr")


def checked(path, **options):
    return verify(path, study=STUDY, sample=0, **options)


@pytest.mark.slow
def test_flipped_bit_in_any_file_is_detected_and_repaired(small_store, altered):
    """All visible files are repaired at once, and each hidden one, which has a copy of others, alone."""
    rng = random.Random(1)
    files = sorted(path.relative_to(altered) for path in altered.rglob("*") if path.is_file())
    assert len(files) > 12

    def flip_any_bit(file):
        content = bytearray((altered / file).read_bytes())
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        (altered / file).write_bytes(content)

    for file in files:
        flip_any_bit(file)
        with unchanged(altered):
            assert checked(altered).problems, file
        shutil.copy(small_store / file, altered / file)
    visible = [file for file in files if file.parts[0] != STATE]
    for together in [visible, *([file] for file in files if file not in visible)]:
        for file in together:
            flip_any_bit(file)
        checked(altered, repair=True)
        pipeline.resume(altered, study=STUDY)
        assert checked(altered).problems == (), together
        assert_equal_arrays(altered, small_store, n_least=3)


@pytest.mark.parametrize("act", [pipeline.open_results, pipeline.resume, ResultStore.open])
def test_damaged_root_is_reported_with_the_repair_command(altered, act):
    """The error for a damaged root states that its copy is intact, and names the command that repairs the root."""
    flip(altered / "zarr.json")
    with pytest.raises(UnreadableStoreError, match=r"root, zarr.json, is damaged; its copy is intact; .*--repair"):
        act(altered)


def test_lost_root_is_restored_from_its_copy(small_store, altered):
    (altered / "zarr.json").unlink()
    pipeline.resume(altered, study=STUDY)
    assert (altered / "zarr.json").read_bytes() == (small_store / "zarr.json").read_bytes()
    assert_equal_arrays(altered, small_store, n_least=3)


def test_damage_of_both_roots_is_reported(altered):
    flip(altered / "zarr.json")
    flip(altered / COPY)
    with pytest.raises(BadInputError, match=r"and its copy .* are damaged.*no other file was changed"):
        ResultStore.open(altered)


def test_changed_spec_does_not_change_coordinates(small_store, altered):
    """A repair restores a changed spec of the study, and does not change the intact coordinates (regression)."""
    text = (altered / "zarr.json").read_text()
    (altered / "zarr.json").write_text(text.replace("coin", "coim"))
    with unchanged(altered / "single"):
        checked(altered, repair=True)
    assert_equal_arrays(altered, small_store, n_least=3)


@pytest.mark.parametrize(("number", "advice"), [(11, "install the version of"), (2, "read it with plain xarray")])
def test_other_formats_are_rejected_in_one_line(altered, number, advice):
    root = json.loads((altered / "zarr.json").read_bytes())
    root["attributes"]["store_format"] = number
    (altered / "zarr.json").write_bytes(seal_root(json.dumps(root).encode()))
    with pytest.raises(BadInputError, match=f"has format {number}, and this version reads formats 5 to 10; {advice}"):
        ResultStore.open(altered)


def test_store_copied_without_its_state_is_refused_until_it_is_repaired(small_store, altered):
    """Without hidden files, the number of trials asked for is unknown; verification reports them as lost."""
    shutil.rmtree(altered / ".dpstudies")
    with pytest.raises(UnreadableStoreError, match=r"the number of trials asked for is unknown.*verify .* --repair"):
        pipeline.open_results(altered)
    root, records = checked(altered).problems
    assert str(root.damage) == f"damaged: the copy of the root, {COPY}, is missing"
    assert records.damage.kind == "lost"
    checked(altered, repair=True)
    assert checked(altered).problems == ()
    assert pipeline.open_results(altered)["single"].sizes["trial"] == 5


@pytest.mark.parametrize("content", [b"", b"[]", b"null", b"{", b'{"attributes": 1}', b"\xff", b"[" * 100_000])
def test_malformed_documents_fail_unseal(content):
    assert unseal(content) is None
    assert unseal(content, "attributes") is None
    assert unseal(seal({"a": [1, None]})) == {"a": [1, None]}


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"attributes": {"spec": 1}}', b"[" * 100_000])
def test_malformed_roots_are_rejected(tmp_path, content):
    (tmp_path / "s.zarr").mkdir()
    (tmp_path / "s.zarr" / "zarr.json").write_bytes(content)
    with pytest.raises(BadInputError, match="exists but is not a result store"):
        ResultStore.open(tmp_path / "s.zarr")


# Read errors


def failing_reads(monkeypatch, number, part, times):
    """Let the first `times` reads of keys that contain `part` fail with the error `number`."""
    count = iter(range(times))

    def fail(files, key, *part_of_file):
        if part in key and next(count, None) is not None:
            raise OSError(number, "injected")

    call_before(monkeypatch, "_read", fail)
    monkeypatch.setattr("pipeline.faults.time.sleep", lambda seconds: None)


@pytest.mark.slow
@pytest.mark.parametrize("number", [errno.ESTALE, pytest.param(errno.EMFILE, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("part", ["single/heads/c/0/1", "single/status/c/0/0", "zarr.json"])
def test_transient_read_error_is_retried(altered, monkeypatch, number, part):
    failing_reads(monkeypatch, number, part, times=1)
    with unchanged(altered):
        assert checked(altered).problems == ()


@pytest.mark.slow
@pytest.mark.parametrize("repair", [True, pytest.param(False, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE, errno.EACCES])
def test_read_error_is_not_damage(altered, monkeypatch, number, repair):
    """Read errors are reported, and do not lead to the deletion of intact chunks or statuses (regression)."""
    with monkeypatch.context() as patch, unchanged(altered / "single"):
        failing_reads(patch, number, "single/heads/c/0/1", times=10**6)
        with pytest.raises((StoreAccessError, RuntimeError), match="injected"):
            checked(altered, repair=repair)
    assert checked(altered).problems == ()


def test_read_error_on_opening_is_reported(altered, monkeypatch):
    """A read error during the opening of a store is reported as such, not as a path that contains other data."""
    failing_reads(monkeypatch, errno.EIO, "zarr.json", times=10**6)
    with pytest.raises(StoreAccessError, match=r"cannot read the store .*injected"):
        ResultStore.open(altered)


# Inconsistencies


@pytest.mark.slow
def test_swapped_and_inconsistent_chunks_are_detected(tmp_path):
    """Swapped or inconsistent chunks are detected, although the checksum of each file is valid."""
    path = tmp_path / "s.zarr"
    pipeline.run(STUDY, path, panels=["means", "faults"])
    study = STUDY.configure(panels=["means", "faults"])
    means = path / "means"

    def found(damage):
        copy = shutil.copytree(path, tmp_path / "copy.zarr")
        damage(copy)
        problems = verify(copy, study=study, sample=0).problems
        shutil.rmtree(copy)
        return {(problem.variable, problem.damage.kind) for problem in problems}

    one, other = "0/0/0/0/0/0", "0/0/1/0/0/0"  # `plain` uses neither epsilon nor steps
    assert (means / "estimate/c" / one).read_bytes() == (means / "estimate/c" / other).read_bytes()

    def swap(name, left, right):
        return lambda copy: shutil.copy(path / name / "c" / left, copy / name / "c" / right)

    assert found(swap("means/estimate", "1/0/0/0/0/0", one)) == {("estimate", "inconsistent")}
    assert found(lambda copy: (copy / "means/status/c" / other).unlink()) == set()  # pending, and computed by `resume`
    errors = sorted(
        str(p.relative_to(path / "faults/error/c")) for p in (path / "faults/error/c").rglob("*") if p.is_file()
    )
    assert len(errors) > 2
    assert found(swap("faults/error", errors[0], errors[1])) == {("error", "inconsistent")}

    def set_status(copy):
        with Session.begin(str(copy), {}) as session:
            store = ResultStore.open(copy, session.id)
            chunks = store.chunks.encode(
                "faults", "status", [(slice(0, 1), slice(0, 1), slice(0, 8))], np.full(8, 99, np.int8)
            )
            for key, content in chunks.items():
                store.files.put(key, content)

    assert ("status", "inconsistent") in found(set_status)
