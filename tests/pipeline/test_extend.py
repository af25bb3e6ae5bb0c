"""Tests of extended stores: old values are unchanged, and new ones equal those of a store created at full size."""

import numpy as np
import pytest
import xarray as xr

from pipeline import open_results, resume, run
from pipeline.runs.run import extend
from pipeline.store.layout.root import COPY
from tests.pipeline.faults.file_operations import CrashError, crash_at
from tests.pipeline.helpers import (
    TOY_FILE,
    assert_equal_arrays,
    create_store,
    grow,
    read_arrays,
    refusal,
    temporary_files,
    unchanged,
)
from tests.pipeline.toy import STUDY

pytestmark = pytest.mark.slow  # this file takes half a minute or more

TOY = str(TOY_FILE)
FEW = {"n": [4], "epsilon": [0.5]}


def sorted_arrays(store, panel):
    ds = open_results(store)[panel].to_dataset().load()
    return ds.sortby([name for name in ds.dims if name in ds.indexes])


@pytest.mark.parametrize(
    ("panel", "small", "large"),
    [
        pytest.param("means", {"trials": 3, "values": FEW}, {"trials": 6}, marks=pytest.mark.exhaustive),
        ("means", {"trials": 5, "values": FEW}, {"trials": 11}),
        pytest.param("means", {"values": {**FEW, "n": [9]}}, {"values": {"n": [4]}}, marks=pytest.mark.exhaustive),
        (
            "means",
            {"values": {"n": [4], "scale": [2.0], "epsilon": [2.0]}},
            {"values": {"epsilon": [0.5], "scale": [1.0]}},
        ),
        pytest.param(
            "means",
            {"values": {**FEW, "algorithm": ["noisy"]}},
            {"values": {"algorithm": ["chain", "noisy", "plain"]}},
            marks=pytest.mark.exhaustive,
        ),
        (
            "faults",
            {"trials": 9, "values": {"n": [5], "algorithm": ["raises"]}},
            {"trials": 12, "values": {"n": [3], "algorithm": ["fine"]}},
        ),
        pytest.param("table", {"values": {"order": [2]}}, {"values": {"order": [1, 3]}}, marks=pytest.mark.exhaustive),
        ("single", {"trials": 2}, {"trials": 40}),
    ],
)
def test_extended_store_equals_a_store_created_at_full_size(tmp_path, panel, small, large):
    path, whole = tmp_path / "s.zarr", tmp_path / "whole.zarr"
    run(TOY, path, panels=[panel], **small)
    before = sorted_arrays(path, panel)
    extend(path, **large)
    names = {
        name: sorted({*small.get("values", {}).get(name, ()), *new}) for name, new in large.get("values", {}).items()
    }
    run(
        TOY,
        whole,
        panels=[panel],
        trials=large.get("trials", small.get("trials")),
        values={**small.get("values", {}), **names},
    )
    after, expected = sorted_arrays(path, panel), sorted_arrays(whole, panel)
    for name in expected.variables:
        if name != "error":
            np.testing.assert_array_equal(after[name], expected[name], err_msg=name)
    kept = after.sel({name: before[name] for name in before.dims if name in before.indexes})
    for name in before.variables:
        np.testing.assert_array_equal(kept[name], before[name], err_msg=name)
    assert after.sizes != before.sizes
    plain = xr.open_zarr(path, group=panel)
    assert dict(plain.sizes) == dict(after.sizes)


def test_unsorted_coordinate_states_its_order(tmp_path):
    path = tmp_path / "s.zarr"
    run(TOY, path, panels=["means"], trials=3, values={"n": [4, 8]})
    assert "comment" not in xr.open_zarr(path, group="means")["n"].attrs
    extend(path, values={"n": [1]})
    plain, sorted_ = xr.open_zarr(path, group="means")["n"], open_results(path)["means"]["n"]
    assert plain.values.tolist() == [4, 8, 1]
    assert "open_results sorts" in plain.attrs["comment"]
    assert sorted_.values.tolist() == [1, 4, 8]
    assert "comment" not in sorted_.attrs


def test_coordinates_keep_their_chunks(tmp_path):
    """A data set that was opened before an extension can still be read after the extension."""
    store = run(TOY, tmp_path / "s.zarr", panels=["means"], trials=3, values={"n": [4]})
    expected, *opened = (
        xr.open_zarr(store.url, group="means", consolidated=is_consolidated) for is_consolidated in (True, True, False)
    )
    expected.load()
    small = STUDY.configure(trials=3, panels=["means"], values={"n": [4]})
    grow(store.url, small.extended(STUDY, 6, {"n": [9]}))
    assert all(ds.load().equals(expected) for ds in opened)
    assert dict(xr.open_zarr(store.url, group="means").sizes)["trial"] == 6


@pytest.mark.parametrize(
    "options",
    [
        {"trials": 2},
        {"values": {"n": [4]}},
        {"seed": 1},
        {"values": {"n": [9, 4]}},
        {"values": {"algorithm": ["plain"]}},
    ],
)
def test_a_store_never_becomes_smaller(tmp_path, options):
    stored = {"trials": 3, "panels": ["means"], "values": {"n": [4, 9]}}
    store = create_store(tmp_path / "s.zarr", STUDY.configure(**stored))
    options = stored | options | {"values": stored["values"] | options.get("values", {})}
    with unchanged(f"{store.url}/means"), refusal("would be lost"):
        grow(store.url, STUDY.configure(**options))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return the path of a store that was extended without interruption, which tests must not change."""
    path = tmp_path_factory.mktemp("whole") / "s.zarr"
    extend(run(TOY, path, panels=["means", "single"], trials=3, values={"n": [4]}).url, trials=7, values={"n": [9]})
    return path


@pytest.fixture(scope="module")
def operations(tmp_path_factory):
    """Return the file operations of an extension that is not interrupted."""
    path = tmp_path_factory.mktemp("other") / "s.zarr"
    study = STUDY.configure(trials=3, panels=["means", "single"], values={"n": [4]})
    create_store(path, study)
    with pytest.MonkeyPatch.context() as patch:
        done = crash_at(patch, 10**9)
        grow(path, study.extended(STUDY, 7, {"n": [9]}))
    return done


@pytest.mark.parametrize("share", [*(pytest.param(k, marks=pytest.mark.exhaustive) for k in (0.1, 0.9)), 1.0])
def test_interrupted_extension_is_repeated(tmp_path, monkeypatch, whole, operations, share):
    """An interrupted extension leaves the old store unchanged, and the same command completes the extension."""
    path = tmp_path / "s.zarr"
    run(TOY, path, panels=["means", "single"], trials=3, values={"n": [4]})
    before, root = read_arrays(path), (path / "zarr.json").read_bytes()
    number = int(share * operations.index("rename zarr.json"))
    with monkeypatch.context() as patch:
        done = crash_at(patch, number, once=True)
        with pytest.raises(CrashError):
            extend(path, trials=7, values={"n": [9]})
    assert done == operations[:number]
    assert f"rename {COPY}" in done
    assert (path / "zarr.json").read_bytes() == root
    assert temporary_files(path) == []
    for name, values in read_arrays(path).items():
        np.testing.assert_array_equal(values, before[name], err_msg=name)
    resume(path)  # the smaller study stays complete
    extend(path, trials=7, values={"n": [9]})
    assert_equal_arrays(path, whole)


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        ("trials of panel means must be >= 6, the stored number, got 5", {"trials": 5}),
        ("trials must be", {"trials": 0}),
        ("unknown factor 'm'", {"values": {"m": [1]}}),
        ("level cannot be extended, since one call computes all its values", {"values": {"level": [0.1]}}),
        ("prior cannot be extended", {"values": {"prior": ["1:2"]}}),
        ("unknown algorithm 'nois'; did you mean noisy", {"values": {"algorithm": ["nois"]}}),
        ("n must be >= 1, got 0", {"values": {"n": [0]}}),
        ("unknown panel 'absent'", {"panels": ["absent"], "trials": 9}),
        ("the time limit of a block must be > 0", {"trials": 90, "time_limit": 0.0}),
    ],
)
def test_invalid_extension_changes_nothing(complete_store, message, arguments):
    with unchanged(complete_store), refusal(message):
        extend(complete_store, study=STUDY, **arguments)


def test_extension_without_changes_writes_nothing(store_copy):
    with unchanged(store_copy):
        extend(store_copy, study=STUDY, trials=6, panels=["means"], values={"n": [4]})
