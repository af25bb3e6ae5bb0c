"""Tests of the result store: xarray can read it, and no committed block has missing or mixed numbers."""

import json
import os
import shutil
from dataclasses import replace
from functools import partial
from itertools import count, product
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import zarr

from pipeline import cancel, compact, extend, open_results, resume, run
from pipeline.blocks.division import iterate_blocks
from pipeline.blocks.evaluate import FAILURES, Block, Status, evaluate_block, unevaluated
from pipeline.declare.streams import canonical_json, sha256
from pipeline.errors import IncompleteStoreError, UnreadableStoreError
from pipeline.store.codec import regions
from pipeline.store.codec.regions import Layout, fill_chunk
from pipeline.store.commit import BlockWriter, Commit, Planned
from pipeline.store.creation import create_empty_store
from pipeline.store.datasets import open_panel
from pipeline.store.files.local_files import _LocalBatch
from pipeline.store.files.locations import STATE
from pipeline.store.layout.template import UNSORTED
from pipeline.store.read import read_outcome, read_values
from pipeline.store.result_store import ResultStore
from pipeline.store.scan.states import COMMITTED, STALE, UNWRITTEN, block_states
from pipeline.store.sessions.lease import Session
from tests.pipeline.faults.file_operations import CrashError, crash_at
from tests.pipeline.helpers import (
    COMMAND,
    WRITING,
    assert_equal_arrays,
    chunk_file,
    commit_block,
    compute_into,
    create_store,
    evaluate_all,
    file_stamps,
    grow,
    interrupt_creation,
    pending,
    read_arrays,
    refusal,
    run_python,
    temporary_files,
    unchanged,
    writing,
)
from tests.pipeline.toy import FAULTS, MEANS, SINGLE, STUDY, TABLE

GRID = ("n", "scale", "epsilon", "steps", "algorithm")
DIMS = {
    "means": {
        "estimate": (*GRID, "trial"),
        "n_above": (*GRID, "trial"),
        "quantile": (*GRID, "trial", "level"),
        "exact": GRID,
        "exact_quantile": (*GRID, "level"),
        "status": (*GRID, "trial"),
        "error": (*GRID, "trial"),
    },
    "faults": {
        "x": ("n", "algorithm", "trial"),
        "mean": ("n", "algorithm"),
        "status": ("n", "algorithm", "trial"),
        "error": ("n", "algorithm", "trial"),
    },
    "table": {
        "curve": ("order", "power", "point"),
        "total": ("order", "power"),
        "n_points": ("order", "power"),
        "status": ("order", "power"),
        "error": ("order", "power"),
    },
    "single": {"heads": ("algorithm", "trial"), "status": ("algorithm", "trial"), "error": ("algorithm", "trial")},
}


@pytest.fixture
def template(tmp_path):
    return create_store(tmp_path / "t.zarr", STUDY)


# Reading


@pytest.mark.parametrize("panel", STUDY.panels, ids=lambda panel: panel.name)
def test_xarray_opens_a_store_without_warnings(complete_store, panel):
    ds = xr.open_zarr(complete_store, group=panel.name)
    assert {str(name): variable.dims for name, variable in ds.data_vars.items()} == DIMS[panel.name]
    axes = {axis.name: list(axis.values) for axis in (*panel.factors, *panel.method_factors, *panel.outputs)}
    axes[panel.method_dim] = [method.name for method in panel.methods]
    if panel.trials is not None:
        axes["trial"] = list(range(panel.trials))
    assert {str(name): values.tolist() for name, values in ds.indexes.items()} == axes
    assert set(ds.coords) == {*axes, *(constant.name for constant in panel.constants)}
    assert ds.attrs["title"] == panel.meaning
    ds.load()


def test_coordinates_have_the_declared_types(complete_store):
    ds = xr.open_zarr(complete_store, group="means")
    assert {name: ds[name].dtype.kind for name in ("n", "scale", "epsilon", "steps", "level", "trial", "delta")} == {
        **dict.fromkeys(("n", "steps", "trial"), "i"),
        **dict.fromkeys(("scale", "epsilon", "level", "delta"), "f"),
    }
    assert ds["prior"].item() == "1:0.5"
    assert ds["delta"].item() == 1e-6
    for name in ("algorithm", "error"):
        assert isinstance(zarr.open_group(complete_store, mode="r")[f"means/{name}"].dtype, np.dtypes.StringDType)


@pytest.mark.slow
@pytest.mark.parametrize("how", [xr.open_zarr, lambda path, group: open_results(path)[group].to_dataset()])
def test_panels_can_be_written_as_netcdf(complete_store, tmp_path, how):
    """Even the SciPy engine, whose rules for attributes are the strictest, can write panels."""
    for name in open_results(complete_store).children:
        ds = how(complete_store, group=name).load()
        ds.drop_encoding().to_netcdf(tmp_path / f"{name}.nc", engine="scipy")  # NetCDF 3 has no integers of 64 bits
        again = xr.load_dataset(tmp_path / f"{name}.nc", engine="scipy")
        for measure in set(ds.data_vars) - {"error", "status"}:
            assert (again[measure].values == ds[measure].values).all() or np.isnan(ds[measure].values).any()


def test_attributes_of_a_store(complete_store):
    ds = xr.open_zarr(complete_store, group="means")
    assert ds["estimate"].attrs == {"long_name": "estimated mean", "units": "m"}
    assert ds["scale"].attrs == {"long_name": "largest entry", "units": "m"}
    assert ds["prior"].attrs == {"long_name": "prior guesses"}  # text variables have no unit
    assert ds["algorithm"].attrs == {
        "long_name": "methods compared",
        "notes": "noisy: Not private: noise of finite range",
        "not_private": "noisy",
    }
    assert ds["status"].attrs["flag_values"] == [0, 1, 2, 3, 4, 5, 6]
    assert ds["status"].attrs["flag_meanings"] == "pending ok failed timed_out killed not_applicable not_asked_for"
    root = zarr.open_group(complete_store, mode="r").attrs.asdict()
    assert root["panels"] == "means faults table single"
    assert {key: root[key] for key in ("study", "title", "aim", "seed")} == {
        "study": "toy",
        "title": "Toy",
        "aim": "Do each thing a study can do.",
        "seed": 7,
    }
    assert json.loads(root["spec"]) == STUDY.spec()
    assert root["spec_sha256"] == sha256(canonical_json(STUDY.spec()))
    assert ResultStore.open(complete_store).spec == STUDY.spec()


@pytest.mark.parametrize("panel", STUDY.panels, ids=lambda panel: panel.name)
def test_a_chunk_is_one_block_of_one_setting(complete_store, panel):
    group = zarr.open_group(complete_store, mode="r")[panel.name]
    for name, dims in DIMS[panel.name].items():
        sizes = {"trial": panel.block_trials, **{axis.name: len(axis.values) for axis in panel.outputs}}
        assert group[name].chunks == tuple(sizes.get(dim, 1) for dim in dims), name


@pytest.mark.parametrize("name", ["means", "table", "single"])
def test_stored_values_equal_computed_values(complete_store, name):
    """Stored values equal those computed without a store, also along factors that a method does not use."""
    panel, ds = STUDY.panel(name), xr.open_zarr(complete_store, group=name).load()
    n_compared = 0
    for (cell, label), arrays in evaluate_all(STUDY, name).items():
        setting = next(setting for setting in panel.settings() if setting.label == label)
        unused = [axis for axis in panel.method_factors if axis.name not in setting.values]
        for values in product(*(axis.values for axis in unused)):
            coordinates = {**dict(cell), **setting.values, panel.method_dim: setting.method.name}
            at = ds.sel({**coordinates, **dict(zip([axis.name for axis in unused], values, strict=True))})
            for variable in (*(measure.name for measure in panel.measures), "status"):
                expected = arrays[variable].reshape(at[variable].shape)
                if expected.dtype.kind in "iub" and variable != "status":
                    expected = np.where(at["status"] == Status.OK, expected.astype(float), np.nan)
                np.testing.assert_array_equal(at[variable].values, expected, strict=True)
                n_compared += 1
    assert n_compared == ds["status"].isel(trial=0, missing_dims="ignore").size * (len(panel.measures) + 1)


def test_errors_of_failed_trials_are_stored(complete_store):
    ds = xr.open_zarr(complete_store, group="faults").load()
    np.testing.assert_array_equal(ds["error"] != "", ds["status"] == Status.FAILED)
    raised = ds.sel({"n": 3, "algorithm": "raises"})
    assert raised["trial"].values[raised["status"] == Status.FAILED].tolist() == [3, 5, 9]
    *_, reason, again = raised["error"].values[9].splitlines()
    assert reason == "ArithmeticError: no result for trial 9"
    assert again == "again: dpstudies trial STORE --panel faults --cell n=3 --trial 9"
    assert np.isnan(raised["x"].values[[3, 5, 9]]).all()


@pytest.mark.slow
def test_open_results_sorts_numeric_coordinates_of_the_tree_of_panels(complete_store):
    tree, opened = xr.open_datatree(complete_store), open_results(complete_store)
    assert list(opened.children) == ["means", "faults", "table", "single"] == tree.attrs["panels"].split()
    assert set(tree.children) == set(opened.children)
    stored = tree["means"].to_dataset()
    assert stored["n"].values.tolist() == [9, 4]
    assert stored["level"].values.tolist() == [0.5, 0.1, 0.9]
    comments = {name: stored[name].attrs["comment"] for name in stored.coords if "comment" in stored[name].attrs}
    assert comments == {"n": UNSORTED, "level": UNSORTED}
    assert opened["means"]["algorithm"].values.tolist() == ["plain", "noisy", "chain"]
    for name in tree.children:
        ds = opened[name].to_dataset().load()
        assert all(ds.indexes[dim].is_monotonic_increasing for dim in ds.dims if ds[dim].dtype.kind in "fi")
        plain = tree[name].to_dataset().load().sel({dim: ds[dim].values for dim in ds.dims})
        for coordinate in plain.coords.values():
            coordinate.attrs.pop("comment", None)
        xr.testing.assert_identical(plain, ds)


def test_open_results_is_lazy(complete_store):
    ds = open_results(complete_store)["means"].to_dataset()
    assert all(ds[name].chunks is not None for name in DIMS["means"])
    assert ds["estimate"].chunksizes["trial"] == (4, 2)


@pytest.mark.parametrize("panel", DIMS)
def test_panel_opened_at_once_equals_the_lazy_one(complete_store, panel):
    store = ResultStore.open(complete_store)
    at_once = open_panel(store, panel, lazy=False)
    assert all(variable.chunks is None for variable in at_once.data_vars.values())
    xr.testing.assert_identical(at_once, open_panel(store, panel, lazy=True).drop_vars("error").load())


# Damage


@pytest.mark.parametrize("is_lazy", [False, True])
def test_damage_is_reported_in_one_line_when_it_is_read(store_copy, is_lazy):
    path = chunk_file(store_copy, "means", "estimate", 0, 0, 0, 0, 0, 0)
    path.write_bytes(path.read_bytes()[:-3])
    read = open_results if is_lazy else partial(open_panel, panel="means", lazy=False)
    with refusal("checksum", f"repair it with: dpstudies verify {store_copy} --repair", error=UnreadableStoreError):
        opened = read(ResultStore.open(store_copy))
        opened["means"]["estimate"].compute()


@pytest.mark.parametrize(
    ("panel", "variable", "position"),
    [
        ("means", "estimate", (0, 0, 0, 0, 0, 0)),
        ("means", "quantile", (0, 0, 0, 0, 0, 0, 0)),
        ("means", "n_above", (0, 0, 0, 0, 0, 0)),
        ("means", "exact", (0, 0, 0, 0, 0)),
        ("faults", "status", (0, 0, 0)),
        ("faults", "error", (0, 1, 0)),
        ("table", "order", (0,)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_damaged_chunk_is_detected_by_plain_readers(store_copy, panel, variable, position):
    path = chunk_file(store_copy, panel, variable, *position)
    array, content = zarr.open_group(store_copy, mode="r")[f"{panel}/{variable}"], path.read_bytes()
    array[...]  # the array is readable before the chunk is damaged
    flips = (
        bytes(byte ^ (k == at) for k, byte in enumerate(content)) for at in (0, len(content) // 2, len(content) - 1)
    )
    for damaged in (content[:-3], *flips):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="checksum"):
            array[...]
        with pytest.raises(ValueError, match="checksum"):
            xr.open_zarr(store_copy, group=panel)[variable].load()


# Writing


@pytest.mark.parametrize(
    ("region", "fine"),
    [
        ((slice(0, 4), slice(0, 2)), True),
        ((slice(8, 10), slice(4, 6)), True),
        ((slice(8, None), slice(0, 2)), True),
        ((slice(-2, None), slice(0, 2)), True),
        ((slice(4, 10), slice(2, 4)), False),
        ((slice(None), slice(None)), False),
        ((slice(0, 3), slice(0, 2)), False),
        ((slice(2, 4), slice(0, 2)), False),
        ((slice(0, 4), slice(1, 2)), False),
        ((slice(0, 4), slice(1, 3)), False),
        ((slice(9, 10), slice(0, 2)), False),
        ((slice(-3, None), slice(0, 2)), False),
    ],
    ids=str,
)
def test_writes_must_cover_one_whole_chunk(region, fine):
    array = zarr.create_array({}, shape=(10, 6), chunks=(4, 2), dtype="f8", fill_value=0)
    expected = np.zeros((10, 6))
    expected[region] = np.arange(expected[region].size).reshape(expected[region].shape) + 1
    if fine:
        chunk = fill_chunk(Layout.of(array), region, expected[region])
        assert chunk.shape == array.chunks
        np.testing.assert_array_equal(chunk[chunk != 0], expected[expected != 0])
    else:
        with pytest.raises(ValueError, match=r"a write must cover one whole chunk, got .*block_trials"):
            fill_chunk(Layout.of(array), region, expected[region])


@pytest.mark.parametrize("trials", [range(1), range(4, 5), range(2, 6), range(3)], ids=str)
def test_trials_that_are_not_a_block_are_rejected(template, trials):
    before = file_stamps(template.url)
    block, setting = Block("means", 0, trials), MEANS.settings()[1]
    with writing(template.url) as store:
        with pytest.raises(ValueError, match="a write must cover one whole chunk"):
            commit_block(store, STUDY, MEANS, block, [setting])
        assert temporary_files(template.url) == []
    after = file_stamps(template.url)
    assert {path: stamp for path, stamp in after.items() if path in before} == before
    assert [path.parent.name for path in after.keys() - before.keys()] == ["sessions"]
    assert pending(template, MEANS).all()


def inconsistent_variables(path, panel, replaced=False):
    """Return the variables of a panel that contradict its statuses, read by Zarr without the pipeline.

    `replaced` is a mask of the trials that may have new values although they have the status of a failure.
    """
    group, found = zarr.open_group(path, mode="r")[panel.name], []
    status, error = np.asarray(group["status"][...]), np.asarray(group["error"][...])
    is_ok, is_failed = status == Status.OK, np.isin(status, FAILURES) & ~np.asarray(replaced)
    found += ["error"] * bool((is_failed & (error == "")).any() or (is_ok & (error != "")).any())
    for measure in panel.measures:
        values = np.asarray(group[measure.name][...])
        if values.dtype.kind == "f":
            is_missing = np.isnan(values)
            is_missing = is_missing.any(-1) if measure.dims else is_missing
            is_missing = is_missing if measure.per_trial else is_missing[..., None]
            is_wrong = is_ok & is_missing
            if measure.per_trial:
                is_wrong |= is_failed & ~is_missing
            found += [measure.name] * bool(is_wrong.any())
    return found


def panel_with(name, method):
    panel = STUDY.configure(values={"epsilon": {"means": [0.5]}}).panel(name)
    return replace(STUDY, panels=(panel.with_values(panel.method_dim, [method]),))


def new(path, study, block):
    create_store(path, study)


def failed(path, study, block):
    (panel,) = study.panels
    create_store(path, study)
    with writing(path) as store, BlockWriter(store).commit([Planned(panel, block, panel.settings())]) as commit:
        outcome = unevaluated(panel, len(block.trials), Status.FAILED, "no reason")
        commit.write(panel, block, panel.settings()[0], outcome)


def grown(path, study, block):
    """Create a store, commit a block that lacks its last trial, and extend the store by this trial."""
    smaller = study.configure(trials=block.trials.stop - 1)
    create_store(path, smaller)
    with writing(path) as store:
        commit_block(store, smaller, smaller.panels[0], replace(block, trials=block.trials[:-1]))
    grow(path, study)


def read_checked(path, panel):
    """Return the variables of a panel as our readers show them."""
    store = ResultStore.open(path)
    return {name: read_values(store, panel.name, name) for name in DIMS[panel.name]}


def assert_equal_bits(one, other, mask, panel):
    """Compare two results of `read_checked`: the trials of a mask, and the per-cell values of their settings."""
    for name, values in one.items():
        has_trials = ("trial" in DIMS[panel.name]["status"]) == ("trial" in DIMS[panel.name][name])
        pair = [array[mask if has_trials else mask.any(-1)] for array in (values, other[name])]
        np.testing.assert_array_equal(*pair, err_msg=name, strict=True)
        if values.dtype.kind in "fiub":
            assert pair[0].tobytes() == pair[1].tobytes(), name


def bound_twice(store, panel, block, setting):
    """Return a mask of the trials whose status binds both the old and the new chunks of their block."""
    mask = np.zeros(store.array(panel.name, "status").shape, bool)
    for position in regions.positions(panel, block.cell, setting):
        region = regions.region_of(panel, position, block.trials, "status")
        (key,) = store.chunks.keys(panel.name, "status", region)
        if (content := store.files.read(key)) is not None:
            mask[region] = len(store.chunk_digests.digests("error", key, content)) > 1
    return mask


def crash_everywhere(path, monkeypatch, study, position=0, prepare=new, invalidated=True, is_killed=True):
    """Commit the first setting of a block repeatedly, with a crash before each file operation and during each write.

    A process that is not killed cleans up after the failure of one operation, and repeats the commit itself.

    After each crash, every committed trial must be committed with the same bits, no trial may have the status of
    another, and the block must be pending, unless all its new statuses are visible. Only a failed trial of a status
    that binds old and new chunks may have its new values. The repeated commit must equal an uninterrupted one.
    Return the operations.
    """
    (panel,) = study.panels
    setting = panel.settings()[0]
    block = [block for block in iterate_blocks(panel) if block.cell == 1][position]
    at = (1, block.trials.start // panel.block_trials, 0)
    (outcome,) = evaluate_block(study, block, [setting])
    prepare(path, study, block)
    chunks = {
        file: file.read_bytes()
        for name in DIMS[panel.name]
        for file in (path / panel.name / name).rglob("c/**/*")
        if file.is_file()
    }
    stale = [setting] if chunks and invalidated else []
    n_renames = len(list(regions.positions(panel, block.cell, setting))) * (2 if stale else 1)
    before, whole = read_checked(path, panel), None
    was_ok, was_committed = before["status"] == Status.OK, before["status"] != Status.PENDING
    assert bool(was_committed.any()) == bool(chunks)

    def commit_to(store, stale):
        with BlockWriter(store).commit([Planned(panel, block, [setting], stale)]) as commit:
            commit.write(panel, block, setting, outcome)

    def check_whole(store):
        assert inconsistent_variables(path, panel) == []
        assert not pending(store, panel)[at]
        assert not bound_twice(store, panel, block, setting).any()
        stored = read_outcome(store, panel, block, setting)
        np.testing.assert_array_equal(stored.status, outcome.status)
        for name, values in outcome.values.items():
            np.testing.assert_array_equal(stored.values[name], values, err_msg=name, strict=True)
        found = read_checked(path, panel)
        assert_equal_bits(before, found, was_ok, panel)
        assert_equal_bits(found, whole or found, np.ones_like(was_ok), panel)
        return found

    with Session.begin(str(path), {}) as session:
        for number in count():
            for name in DIMS[panel.name]:
                shutil.rmtree(path / panel.name / name / "c", ignore_errors=True)
            for file, content in chunks.items():
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
            store = ResultStore.open(path, session.id)  # opened as by a different process
            with monkeypatch.context() as patch:
                if is_killed:
                    patch.setattr(Commit, "discard", lambda commit: None)
                done = crash_at(patch, number, once=not is_killed)
                try:
                    commit_to(store, stale)
                except CrashError:
                    pass
                else:
                    break
            replaced = bound_twice(store, panel, block, setting)
            assert inconsistent_variables(path, panel, replaced) == [], (number, done)
            found = read_checked(path, panel)
            assert (found["status"][was_committed] != Status.PENDING).all(), (number, done)
            assert_equal_bits(before, found, was_ok, panel)
            expected = np.ones_like(pending(store, panel))
            if sum(step.startswith(f"rename {panel.name}/status/") for step in done) == n_renames:
                expected[at] = np.isin(outcome.status, FAILURES).any()
            np.testing.assert_array_equal(pending(store, panel, retry=FAILURES), expected)
            store = ResultStore.open(path, session.id) if is_killed else store
            if (state := block_states(store, panel, FAILURES)[at]) != COMMITTED:
                commit_to(store, [setting] if state == STALE else [])
            whole = check_whole(store)
            assert_equal_bits(found, whole, found["status"] == Status.OK, panel)
            is_old, is_new = found["status"] == before["status"], found["status"] == whole["status"]
            assert (is_old | is_new).all(), (number, done)
        assert number == len(done)
        check_whole(store)
    return done


CRASHES = {
    "all method factors": ("means", "plain", 0, new),
    "last block": ("means", "noisy", 1, new),
    "without trials": ("table", "square", 0, new),
    "failing trials": ("faults", "raises", 0, new),
    "retried": ("means", "noisy", 1, failed),
    "retried with failing trials": ("faults", "raises", 0, failed),
    "grown": ("faults", "fine", 1, grown),
    "repeated by the same process": ("faults", "fine", 0, new, False),
    "repeated by the same process without trials": ("table", "cube", 0, new, False),
}
# "grown" has the last block, and "retried with failing trials" has failing trials and a retry
REPEATED_CRASHES = ("last block", "failing trials", "retried", "repeated by the same process without trials")


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=pytest.mark.exhaustive if case in REPEATED_CRASHES else ()) for case in CRASHES],
)
def test_crash_commits_no_missing_numbers(tmp_path, monkeypatch, case):
    name, method, position, prepare, *is_killed = CRASHES[case]
    study = panel_with(name, method)
    done = crash_everywhere(tmp_path / "t.zarr", monkeypatch, study, position, prepare, True, *is_killed)
    assert len(done) >= len(study.panels[0].measures) + 2
    is_status = [step.startswith(f"rename {name}/status/") for step in done]
    changed = [k for k, step in enumerate(done) if step.startswith(("rename", "remove")) and not is_status[k]]
    statuses = [k for k in range(len(done)) if is_status[k]]
    assert {done[k].split("/")[1] for k in changed if done[k].startswith("remove")} <= {"error"}
    if prepare is not new:  # the old statuses are durable with the digests of the new chunks before any chunk changes
        prepared, statuses = statuses[: len(statuses) // 2], statuses[len(statuses) // 2 :]
        assert [done[k] for k in prepared] == [done[k] for k in statuses]
        early = [k for k in changed if k < prepared[0]]  # absent per-cell chunks, which no status binds yet
        assert {done[k].split("/")[1] for k in early} <= {m.name for m in study.panels[0].measures if not m.per_trial}
        assert "flush" in done[(early or [0])[-1] : prepared[0]]
        assert "flush" in done[prepared[-1] : changed[len(early)]]
    assert "flush" in done[changed[-1] : statuses[0]]  # all chunks are durable before the new statuses


def test_crash_test_detects_early_statuses(tmp_path, monkeypatch):
    """If statuses are written before values, the crash test fails (negative control)."""

    def finish(batch):
        for key, content in batch.__dict__.pop("late", []):
            batch._files.put(key, content)

    monkeypatch.setattr(_LocalBatch, "put", lambda batch, *file: batch.__dict__.setdefault("late", []).append(file[:2]))
    monkeypatch.setattr(_LocalBatch, "put_last", lambda batch, *file: batch._files.put(*file))
    monkeypatch.setattr(_LocalBatch, "finish", finish)
    with pytest.raises(AssertionError, match="total"):
        crash_everywhere(tmp_path / "t.zarr", monkeypatch, panel_with("table", "cube"))


def test_crash_test_detects_kept_status_of_retried_block(tmp_path, monkeypatch):
    """If a retry keeps the old status, so that a failed trial has a number, the crash test fails (negative control)."""
    with pytest.raises(AssertionError, match="estimate"):
        crash_everywhere(tmp_path / "t.zarr", monkeypatch, panel_with("means", "noisy"), 1, failed, invalidated=False)


@pytest.mark.slow
@pytest.mark.parametrize("k", [0, pytest.param(1, marks=pytest.mark.exhaustive), 3])  # plain, noisy and chain
def test_unused_method_factors_are_written_at_all_values(template, k):
    """A block of one setting is written at all values of the factors that its method does not use, and there only."""
    setting = MEANS.settings()[k]
    with writing(template.url) as store:
        commit_block(store, STUDY, MEANS, Block("means", 0, range(4)), [setting])
    ds = xr.open_zarr(template.url, group="means").load()
    is_written = ds["status"] != Status.PENDING
    used = {name: setting.values[name] for name in ("epsilon", "steps") if name in setting.values}
    own = {"n": 9, "algorithm": setting.method.name, "trial": range(4), **used}
    assert is_written.sel(own).all()
    assert is_written.sum() == is_written.sel(own).sum() == 4 * 2 ** (2 - len(used))
    assert len(np.unique(ds["estimate"].sel(own))) == 4


def test_rewriting_a_block_changes_nothing(store_copy):
    before = read_arrays(store_copy)
    with writing(store_copy) as store:
        for panel in (MEANS, FAULTS, TABLE, SINGLE):
            commit_block(store, STUDY, panel, next(iterate_blocks(panel)), stale=panel.settings())
    for name, values in read_arrays(store_copy).items():
        if not name.endswith("/error"):  # tracebacks read source files when they are formatted
            np.testing.assert_array_equal(values, before[name], strict=True)


@pytest.mark.slow
def test_order_of_blocks_does_not_matter(complete_store, template):
    blocks = [(panel, block) for panel in STUDY.panels for block in iterate_blocks(panel)]
    with writing(template.url) as store:
        for k in np.random.default_rng(1).permutation(len(blocks)):
            commit_block(store, STUDY, *blocks[k])
    assert_equal_arrays(template.url, complete_store)


@pytest.mark.parametrize("panel", [MEANS, TABLE, SINGLE], ids=lambda panel: panel.name)
def test_outcomes_of_several_blocks_and_of_a_last_trial_are_read(complete_store, panel):
    store = ResultStore.open(complete_store)
    for trials in (range(panel.n_trials), range(panel.n_trials - 1, panel.n_trials)):
        block = Block(panel.name, len(panel.cells()) - 1, trials)
        for setting, outcome in zip(panel.settings(), evaluate_block(STUDY, block, panel.settings()), strict=True):
            stored = read_outcome(store, panel, block, setting)
            np.testing.assert_array_equal(stored.status, outcome.status, strict=True)
            np.testing.assert_array_equal(stored.error == "", outcome.error == "")
            for name, values in outcome.values.items():
                np.testing.assert_array_equal(stored.values[name], values, err_msg=name, strict=True)


# Pending blocks


def test_pending_blocks_of_an_empty_and_a_complete_store(template, complete_store):
    shapes = {"means": (2, 2, 7), "faults": (2, 2, 6), "table": (2, 1, 2), "single": (1, 3, 1)}
    assert SINGLE.n_trials % SINGLE.block_trials  # the last block is shorter
    for panel in STUDY.panels:
        assert pending(template, panel).shape == shapes[panel.name]
        assert pending(template, panel).all()
        assert not pending(ResultStore.open(complete_store), panel).any()


def test_block_with_untried_trials_stays_pending(store_copy):
    """A block whose evaluation spent its budget of failures is computed again."""
    block, settings = Block("faults", 0, range(8)), FAULTS.settings()
    position = next(k for k, setting in enumerate(settings) if setting.method.name == "always")
    setting = settings[position]
    with writing(store_copy) as store:
        assert not pending(store, FAULTS).any()
        for budget, n_tried in ((3, 3), (None, 8)):
            with BlockWriter(store).commit([Planned(FAULTS, block, [setting], [setting])]) as commit:
                commit.write(FAULTS, block, setting, evaluate_block(STUDY, block, [setting], budget)[0])
            statuses = [Status.FAILED] * n_tried + [Status.PENDING] * (8 - n_tried)
            assert read_outcome(store, FAULTS, block, setting).status.tolist() == statuses
            assert block_states(store, FAULTS)[0, 0, position] == (COMMITTED if budget is None else STALE)
            assert pending(store, FAULTS).sum() == (budget is not None)


def test_blocks_without_status_are_pending(store_copy):
    lost = {
        "means": {(1, 0, 0, 1, 1, 0): (1, 0, 1), (0, 0, 1, 1, 2, 1): (0, 1, 6), (1, 0, 1, 0, 0, 1): (1, 1, 0)},
        "faults": {(1, 4, 1): (1, 1, 4), (0, 0, 0): (0, 0, 0)},
        "table": {(1, 0): (1, 0, 0)},
        "single": {(0, 2): (0, 2, 0)},
    }
    for name, positions in lost.items():
        panel = STUDY.panel(name)
        expected = np.full_like(block_states(ResultStore.open(store_copy), panel), COMMITTED)
        for position, index in positions.items():
            chunk_file(store_copy, name, "status", *position).unlink()
            used = [len(MEANS.settings()[index[2]].values)] if name == "means" else []
            expected[index] = STALE if used and used[0] < 2 else UNWRITTEN  # others have a status
        np.testing.assert_array_equal(block_states(ResultStore.open(store_copy), panel), expected)
        np.testing.assert_array_equal(pending(ResultStore.open(store_copy), panel), expected != COMMITTED)


# Paths


def test_missing_store_is_reported(tmp_path):
    assert not ResultStore.exists(tmp_path / "absent")
    assert not ResultStore.exists(tmp_path)
    (tmp_path / STATE).mkdir()  # state after a crash before the copy of the root is written
    (tmp_path / STATE / "notes").write_text("")
    assert not ResultStore.exists(tmp_path)
    for read in (ResultStore.open, resume, cancel, lambda path: compact(path, tmp_path / "copy.zarr")):
        with refusal(f"no result store at {tmp_path}; run a study with --store"):
            read(tmp_path)
        with refusal("no result store at absent; run a study with --store absent first"):
            read("absent")


def store_of_format_1(path):
    """Write a store whose metadata have no format number or checksum."""
    spec = json.dumps({"dpstudies": "0.1.0", **STUDY.spec()})
    attributes = {"title": "Toy", "spec": spec, "spec_sha256": sha256(spec), "sessions": []}
    root = zarr.create_group(path, attributes=attributes)
    root.create_group("single").create_array("status", shape=(1, 5), chunks=(1, 2), dtype="int8")[...] = 1


OTHERS = {
    "file": lambda path: path.write_text("my notes"),
    "folder": lambda path: (path.mkdir(), (path / "notes.txt").write_text("my notes")),
    "group": lambda path: zarr.create_group(path, attributes={"mine": 1}),
    "array": lambda path: zarr.create_array(path, shape=(1,), dtype="f8"),
    "Zarr format 2": lambda path: zarr.create_group(path, zarr_format=2),
    "store of format 1": store_of_format_1,
}


@pytest.mark.parametrize("kind", OTHERS)
def test_other_files_are_rejected(tmp_path, kind):
    path, texts = tmp_path / "some.zarr", ["exists but is not a result store; choose another path"]
    OTHERS[kind](path)
    if kind == "store of format 1":
        texts = ["has format 1, and this version reads formats 5 to 10", "rerun the study with another --store path"]
    for attempt in (ResultStore.exists, ResultStore.open, open_results, partial(run, STUDY)):
        with unchanged(tmp_path), refusal(*texts):
            attempt(path)


def test_exists_for_a_store(complete_store, monkeypatch):
    assert ResultStore.exists(complete_store)
    monkeypatch.chdir(Path(complete_store).parent)
    store = ResultStore.open("toy.zarr")
    assert store.url == str(complete_store)
    assert os.path.isabs(store.url)
    assert store.complete


# The template


@pytest.mark.slow
def test_creation_that_is_interrupted_at_its_last_operation_is_finished(tmp_path, monkeypatch):
    """The root is written last, and a store without it is refused."""
    path, whole = tmp_path / "t.zarr", tmp_path / "whole.zarr"
    with Session.begin(str(whole), {}) as session, monkeypatch.context() as patch:
        operations = crash_at(patch, 10**9)
        create_empty_store(session, STUDY, {})
    assert operations.index("rename zarr.json") == len(operations) - 1
    with Session.begin(str(path), {}) as session:
        with monkeypatch.context() as patch:
            crash_at(patch, len(operations) - 1)
            with pytest.raises(CrashError):
                create_empty_store(session, STUDY, {})
        with pytest.raises(IncompleteStoreError, match="was interrupted; finish it with: dpstudies resume"):
            open_results(path)
        create_empty_store(session, STUDY, ResultStore.open(path).attributes)
    assert_equal_arrays(path, whole)
    assert temporary_files(path) == []


def test_interrupted_creation_of_another_study_is_rejected(tmp_path):
    path = tmp_path / "t.zarr"
    interrupt_creation(path, STUDY)
    for refused in (
        lambda: run(replace(STUDY, seed=8), path),
        lambda: run(STUDY, path, until="mcse(estimate) <= 1", panels=["means"]),
        lambda: extend(path, study=STUDY, trials=500),
    ):
        with unchanged(path), refusal("with a different spec", "was interrupted; finish it with: dpstudies resume"):
            refused()


def test_sessions_are_recorded_without_changing_the_root(store_copy):
    before, root = ResultStore.open(store_copy), (store_copy / "zarr.json").read_bytes()
    sessions = before.sessions
    with Session.begin(str(store_copy), {"name": "b"}) as session:
        session.update({"more": 1})
    with Session.begin(str(store_copy), {"name": "a"}) as session:
        session.end({"finished": "2026-01-02T03:04:05Z"})
    store = ResultStore.open(store_copy)
    assert store.complete
    assert store.attributes == before.attributes
    assert (store_copy / "zarr.json").read_bytes() == root
    assert store.sessions[: len(sessions)] == sessions
    one, other = store.sessions[len(sessions) :]
    assert (one["name"], one["more"], "finished" in one) == ("b", 1, False)
    assert (other["name"], other["finished"]) == ("a", "2026-01-02T03:04:05Z")
    assert one["started"] <= one["ended"] <= other["started"] <= other["ended"]
    assert store.spec == STUDY.spec()
    assert json.loads((store_copy / "zarr.json").read_text())["consolidated_metadata"]["metadata"]["means/estimate"]
    xr.open_zarr(store_copy, group="means", consolidated=True).load()


def test_session_removes_only_temporary_files(store_copy):
    before = file_stamps(store_copy)
    for name in ("000001-0123456789ab", "fenced-0123456789ab"):
        (store_copy / WRITING / name).mkdir(parents=True)
        (store_copy / WRITING / name / "half").write_text("half")
    assert len(temporary_files(store_copy)) == 2
    with Session.begin(str(store_copy), {}):
        assert temporary_files(store_copy) == []
    after = file_stamps(store_copy)
    assert {path: stamp for path, stamp in after.items() if path in before} == before
    assert [path.parent.name for path in after.keys() - before.keys()] == ["sessions"]


def test_panel_without_factors_and_trials(tmp_path):
    study = replace(STUDY, panels=(replace(TABLE, factors=(), simulate=lambda cell, streams: 2.0),))
    compute_into(tmp_path / "t.zarr", study)
    ds = xr.open_zarr(tmp_path / "t.zarr", group="table").load()
    assert dict(ds.sizes) == {"power": 2, "point": 3}
    np.testing.assert_array_equal(ds["curve"].sel(power="square"), [4, 16, 36])
    assert not pending(ResultStore.open(tmp_path / "t.zarr"), study.panels[0]).any()


@pytest.mark.slow
def test_panel_of_one_method_without_method_dim(tmp_path, complete_store):
    """Without `method_dim`, a panel of one method has the same numbers as with it."""
    lone = [
        (
            replace(MEANS, methods=(MEANS.methods[1],), method_dim=None, validate=lambda *_: True),
            {"algorithm": "noisy"},
        ),
        (replace(TABLE, methods=(TABLE.methods[1],), method_dim=None), {"power": "cube"}),
        (replace(SINGLE, method_dim=None), {"algorithm": "coin"}),
    ]
    study = replace(STUDY, panels=tuple(panel for panel, _ in lone))
    compute_into(tmp_path / "t.zarr", study)
    store = ResultStore.open(tmp_path / "t.zarr")
    for panel, dropped in lone:
        ds = xr.open_zarr(tmp_path / "t.zarr", group=panel.name).load()
        whole = xr.open_zarr(complete_store, group=panel.name).sel(dropped).drop_vars(dropped).load()
        xr.testing.assert_equal(ds, whole)
        assert {name: variable.dims for name, variable in ds.variables.items()} == {
            name: variable.dims for name, variable in whole.variables.items()
        }
        assert not pending(store, panel).any()
    assert study.from_spec(store.spec) == study
    for stored in (tmp_path / "t.zarr/table/status/c").iterdir():
        stored.unlink()
    assert pending(store, lone[1][0]).all()
    assert not pending(store, lone[0][0]).any()


@pytest.mark.parametrize(
    "words",
    [
        ("run", "calibration", "--store", "s.zarr"),
        *(pytest.param(words, marks=pytest.mark.slow) for words in (("plan", "calibration"), ("status", "s.zarr"))),
    ],
    ids=lambda words: words[0],
)
def test_optimised_mode_is_refused_before_anything_is_written(tmp_path, words):
    """Zarr removes entries of metadata in assertions, so it neither reads nor writes groups under ``python -O``."""
    ended = run_python("-O", *COMMAND, *words, cwd=tmp_path)
    expected = "dpstudies: Python must run without -O and PYTHONOPTIMIZE, which remove code that Zarr requires\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", expected)
    assert not any(tmp_path.iterdir())
