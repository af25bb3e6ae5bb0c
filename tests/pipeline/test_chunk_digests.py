"""Tests that the status of a block binds its chunks: no reader shows a chunk that no block has committed."""

import errno
import os
import random
import shutil
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import zarr

from pipeline import open_results, summarise
from pipeline.blocks.division import iterate_blocks
from pipeline.blocks.evaluate import FAILURES, Status
from pipeline.errors import BadInputError, Damage, DamagedChunkError, UnreadableStoreError
from pipeline.store.codec.chunk_digests import ABSENT, ChunkDigests, add_checksum, digest
from pipeline.store.creation import grow_store
from pipeline.store.health import check_block, invalidate
from pipeline.store.read import read_values
from pipeline.store.result_store import ResultStore
from pipeline.store.scan.states import count_by_status
from pipeline.store.sessions.lease import Session
from tests.pipeline.faults.file_operations import CrashError, crash_at
from tests.pipeline.helpers import chunk_file, compute_into, compute_pending, panel_of, read_arrays, writing
from tests.pipeline.toy import FAULTS, SINGLE, STUDY

ONLY = replace(STUDY, panels=(replace(SINGLE, trials=3),))
GROWN = replace(STUDY, panels=(replace(SINGLE, trials=5),))


def swap(one, other):
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)


def delete(one, other):
    one.unlink()


def copy(one, other):
    one.write_bytes(other.read_bytes())


@pytest.mark.parametrize("change", [swap, delete, copy])
@pytest.mark.parametrize("variable", ["estimate", "status", "exact"])
def test_only_committed_chunks_are_read(store_copy, variable, change):
    whole = summarise(open_results(store_copy)["means"].to_dataset())
    one, other = _different(store_copy, variable)
    change(one, other)
    if (variable, change) == ("status", delete):
        assert int(summarise(open_results(store_copy)["means"].to_dataset()).n_pending.sum()) > 0
        return
    with pytest.raises(UnreadableStoreError, match=rf"means/{variable}/c/.*verify {store_copy} --repair"):
        summarise(open_results(store_copy)["means"].to_dataset())
    assert _repair(store_copy)
    np.testing.assert_equal(_repair(store_copy), set())
    assert summarise(open_results(store_copy)["means"].to_dataset()).identical(whole)


def _different(path, variable):
    """Return two chunk files of a variable with different content."""
    first, *others = sorted(file for file in Path(path, "means", variable, "c").rglob("*") if file.is_file())
    if variable == "exact":  # all chunks are equal
        region = tuple(slice(0, 1) for _ in range(5))
        (content,) = ResultStore.open(path).chunks.encode("means", "exact", [region], np.array(7.0)).values()
        others = [path.parent / "other"]
        others[0].write_bytes(content)
    return first, next(file for file in others if file.read_bytes() != first.read_bytes())


def _repair(path):
    """Invalidate all damaged blocks, compute the pending ones, and return the names of the damaged variables."""
    found = set()
    study = STUDY.configure()
    with writing(path) as store:
        for panel in study.panels:
            for block in iterate_blocks(panel):
                for setting in panel.settings():
                    problems, _ = check_block(store, panel, block, setting)
                    if problems:
                        invalidate(store, panel, block, setting, problems)
                        found |= problems.keys()
        compute_pending(store, study)
    return found


@pytest.mark.slow
def test_coordinates_of_our_readers_do_not_depend_on_their_chunks(store_copy):
    before = open_results(store_copy)["means"].to_dataset().load()
    chunk_file(store_copy, "means", "n", 0).unlink()
    assert open_results(store_copy)["means"].to_dataset().load().identical(before)


def test_uncommitted_chunk_is_not_read(store_copy):
    """A chunk of an error that no block has committed is a problem, and is never shown."""
    failed = chunk_file(store_copy, "faults", "error", 0, 3, 0)
    target = Path(store_copy, "faults/error/c/0/0/0")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(failed.read_bytes())
    assert set(open_results(store_copy)["faults"].error.values[0, 0]) == {""}
    panel = STUDY.panel("faults")
    block = next(one for one in iterate_blocks(panel) if (one.cell, one.trials.start) == (0, 0))
    problems, _ = check_block(ResultStore.open(store_copy), panel, block, panel.settings()[0])
    assert problems == {"error": Damage("inconsistent", "no block has committed the chunk")}


def test_plain_zarr_reads_statuses_with_digests(complete_store):
    statuses = read_arrays(complete_store)
    store = ResultStore.open(complete_store)
    for panel in STUDY.panels:
        np.testing.assert_array_equal(statuses[f"{panel.name}/status"], read_values(store, panel.name, "status"))
    xr.open_zarr(complete_store, group="single").load()
    assert zarr.open_array(complete_store / "single/status", mode="r")[...].tolist() == [[1] * 5]


def test_status_of_another_key_store_or_length_is_refused():
    binding = ChunkDigests({"p": "study/1"}, {"p": ("error", "x")}, {"p": (("9", "10"),)})
    status, sets = add_checksum(b"compressed"), ABSENT + digest(b"x") + digest(b"e") + digest(b"y")
    bound = binding.bind("p/status/c/0", status, sets)
    assert binding.unbind("p/status/c/0", bound) == (b"compressed", sets)
    assert binding.digests("x", "p/status/c/0", bound) == [digest(b"x"), digest(b"y")]
    for other, key, content in [
        (binding, "p/status/c/1", bound),
        (replace(binding, scopes={"p": "study/2"}), "p/status/c/0", bound),
        (replace(binding, labels={"p": (("8", "10"),)}), "p/status/c/0", bound),
        (binding, "p/status/c/0", status),
        (binding, "p/status/c/0", add_checksum(b"")),
        (binding, "p/status/c/0", b""),
        (binding, "p/status/c/0", bound[:-1]),
    ]:
        with pytest.raises(DamagedChunkError):
            other.unbind(key, content)


def test_blocks_of_another_store_of_the_same_study_and_seed_are_refused(tmp_path):
    """Their places in the store are the same, and their values of the factors or the declarations of panels are not."""
    values = {"n": [9], "algorithm": ["noisy"], "level": [0.5]}
    for name, changes in {"": {}, "n": {"n": [16]}, "m": {"algorithm": ["plain"]}, "l": {"level": [0.3]}}.items():
        path = tmp_path / f"s{name}"
        compute_into(path, STUDY.configure(panels=["means"], trials=2, values={**values, **changes}))
        if name:
            for variable in ("status", "error", *(measure.name for measure in STUDY.panel("means").measures)):
                shutil.copytree(tmp_path / "s/means" / variable, path / "means" / variable, dirs_exist_ok=True)
            with pytest.raises(UnreadableStoreError, match="means/"):
                summarise(open_results(path)["means"].to_dataset())


def fill_disk():
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def grow(path):
    with Session.begin(str(path), {}) as session:
        store = ResultStore.open(path, session.id)
        if not store.holds(GROWN):
            store = grow_store(store, session, GROWN)
        compute_pending(store, GROWN)


def retry(path):
    """Replace the failed blocks by those of methods that were repaired."""
    methods = tuple(replace(method, evaluate=FAULTS.methods[0].evaluate) for method in FAULTS.methods)
    with Session.begin(str(path), {}) as session:
        compute_pending(ResultStore.open(path, session.id), panel_of(STUDY, "faults", methods=methods), FAILURES)


def study_of_faults():
    return STUDY.configure(panels=["faults"])


def outcomes_of(path):
    """Return the trials that are ok, with their numbers, as our readers show them."""
    store, found = ResultStore.open(path), {}
    for panel, name in (("single", "heads"), ("faults", "x")):
        if panel in store.spec["panels"]:
            status = read_values(store, panel, "status")
            values, errors = read_values(store, panel, name), read_values(store, panel, "error")
            for at in np.argwhere(status != Status.PENDING):
                number = values[tuple(at)].item() if status[tuple(at)] == Status.OK else None
                found[panel, *at.tolist()] = (int(status[tuple(at)]), number, bool(errors[tuple(at)]))
    return found


@pytest.mark.parametrize(
    ("act", "step", "end"),
    [
        (grow, 6, None),
        (retry, 40, None),
        pytest.param(grow, 1, fill_disk, marks=pytest.mark.slow),
        pytest.param(retry, 15, fill_disk, marks=pytest.mark.slow),
        *(
            pytest.param(*case, marks=(pytest.mark.slow, pytest.mark.exhaustive))
            for case in ((grow, 1, None), (retry, 5, None), (retry, 5, fill_disk))
        ),
    ],
)
def test_nothing_committed_becomes_pending(tmp_path, act, step, end):
    """An extension or a retry is ended at one of its file operations; every committed trial remains readable."""
    study = ONLY if act is grow else study_of_faults()
    before, url = tmp_path / "before.zarr", tmp_path / "s.zarr"
    compute_into(before, study)
    committed = outcomes_of(before)
    shutil.copytree(before, tmp_path / "whole.zarr")
    act(tmp_path / "whole.zarr")
    whole = outcomes_of(tmp_path / "whole.zarr")
    for number in count(0, step):
        shutil.rmtree(url, ignore_errors=True)
        shutil.copytree(before, url)
        with pytest.MonkeyPatch.context() as patch:
            done = crash_at(patch, number, **({"end": end} if end else {}))
            with suppress(CrashError, OSError, ValueError):
                act(url)
        found = outcomes_of(url)
        for at, outcome in committed.items():
            assert found[at] in (outcome, whole[at]) or (found[at][0], outcome[0]) == (Status.FAILED,) * 2
        if len(done) < number:
            break
    assert number > 10
    assert found == whole
    act(url)
    assert outcomes_of(url) == whole


def test_removed_statuses_would_lose_committed_trials(tmp_path):
    """If statuses were removed before their block is replaced, trials would become pending (negative control)."""
    compute_into(tmp_path / "s.zarr", ONLY)
    committed = outcomes_of(tmp_path / "s.zarr")
    with writing(tmp_path / "s.zarr") as store:
        store.files.remove(["single/status/c/0/1"])
    assert outcomes_of(tmp_path / "s.zarr").keys() < committed.keys()


def test_replacement_of_a_per_cell_chunk_is_noticed_and_repaired(store_copy):
    """`resume` writes a per-cell chunk again if it is intact, but not that of its cell."""
    exact, other = _different(store_copy, "exact")
    right = exact.read_bytes()
    exact.write_bytes(other.read_bytes())
    (store_copy / "means/status/c/0/0/0/0/0/0").unlink()
    with writing(store_copy) as store:
        compute_pending(store, STUDY.configure())
    assert exact.read_bytes() == right
    assert _repair(store_copy) == set()


def _damage(rng, path):
    """Damage one file of a store at random, and return a description."""
    files = sorted(file for file in Path(path).rglob("*") if file.is_file())
    kind, file, other = rng.choice(["flip", "cut", "delete", "swap", "copy"]), *rng.sample(files, 2)
    content, at = file.read_bytes(), rng.randrange(file.stat().st_size)
    if kind == "delete":
        file.unlink()
    elif kind in ("swap", "copy"):
        file.write_bytes(other.read_bytes())
        other.write_bytes(content if kind == "swap" else other.read_bytes())
    else:
        file.write_bytes(content[:at] + (bytes([content[at] ^ 16]) + content[at + 1 :] if kind == "flip" else b""))
    return f"{kind} {file.relative_to(path)} {other.relative_to(path)}"


def _shown(path):
    groups = open_results(path).children
    counts = [count_by_status(ResultStore.open(path), panel) for panel in groups]
    return [summarise(group.to_dataset()) for group in groups.values()], counts


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(pytest.param(k, marks=pytest.mark.exhaustive) for k in (1, 2))])
def test_no_damage_is_silent(tmp_path, seed):
    """After a random damage to any file, readers show all numbers, an error, or the trials that are pending now."""
    rng, path, whole = random.Random(seed), tmp_path / "s.zarr", tmp_path / "whole.zarr"
    compute_into(whole, STUDY.configure(panels=["means", "table"], values={"n": [9], "epsilon": [0.5], "steps": [3]}))
    summaries, counts = _shown(whole)
    kinds = set()
    for _ in range(8):
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(whole, path)
        what = _damage(rng, path)
        try:
            found, counted = _shown(path)
        except (UnreadableStoreError, BadInputError):
            kinds.add("error")
            continue
        is_pending = any(one[Status.PENDING] for one in counted)
        kinds.add("pending" if is_pending else "equal")
        for before, after, number in zip(summaries, found, counted, strict=True):
            assert number[Status.PENDING] > 0 or after.identical(before), what
        assert is_pending or counted == counts, what
    assert "error" in kinds
