"""Tests of store formats: missing values of every dtype in plain xarray, and stores of the formats 5 and 6.

``data/formats_5_and_6.tar.xz`` has stores of the study ``data/every_type.py`` by version 0.3.0: a complete one, its
compact copy, and two shares.
"""

import hashlib
import json
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import zarr

import pipeline
from pipeline.blocks.evaluate import FAILURES, Block, Status
from pipeline.declare.source import named_source
from pipeline.errors import BadInputError
from pipeline.runs.verify import verify
from pipeline.store.codec.chunks import Chunks
from pipeline.store.commit import Commit
from pipeline.store.layout.root import COPY, seal_root
from pipeline.store.result_store import ResultStore
from pipeline.store.scan.states import count_by_status
from tests.pipeline.helpers import assert_equal_arrays, commit_block, grow, read_arrays, refusal, unchanged, writing
from tests.pipeline.toy import STUDY as TOY

DATA = Path(__file__).parent / "data"
STUDY_FILE = str(DATA / "every_type.py")
STUDY = named_source(STUDY_FILE).load()
DTYPES = {measure.name: measure.dtype for measure in STUDY.panels[0].measures if measure.per_trial}
SUMMARY = {
    "event_mean": [0.5, 0.5, np.nan],
    "small_sd": [57.472312174356325, 70.82607805980318, np.nan],
    "count_median": [444653.5, 468817.0, np.nan],
    "large_q95": [8.273008399453243e18, 8.631950476722367e18, np.nan],
    "half_mean": [30081.333333333332, 31822.0, np.nan],
    "share_mcse": [0.11717835541544884, 0.17704026028720257, np.nan],
    "number_q05_mcse": [0.07052465575202377, 0.06596188298852207, np.nan],
    "n_failed": [0, 2, 6],
}
"""Numbers of `pipeline.summarise` of version 0.3.0."""


def stamps(folder):
    """Return the hash of each file by its path in a folder."""
    files = (path for path in Path(folder).rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def compute(path, **options):
    return pipeline.run(STUDY_FILE, path, progress=False, allow_failures=True, **options)


@pytest.fixture
def old(tmp_path):
    """Return a folder with the stores of the formats 5 and 6."""
    with tarfile.open(DATA / "formats_5_and_6.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


@pytest.fixture(scope="module")
def new(tmp_path_factory):
    """Return the path of a complete store of the present format, which tests must not change."""
    return compute(tmp_path_factory.mktemp("new") / "s.zarr").url


def plain(path):
    return xr.open_zarr(path, group="p").load()


def assert_natural_queries_are_right(ds):
    """Assert that queries without a filter use the values of ok trials only, in double precision."""
    ok = ds["status"] == 1
    assert 0 < ok.sum() < ok.size
    for name in DTYPES:
        assert ds[name].dtype == np.float64, name
        np.testing.assert_array_equal(ds[name].notnull(), ok, err_msg=name)
        for query in ("mean", "sum", "min", "median", "count"):
            natural, filtered = (getattr(values, query)("trial") for values in (ds[name], ds[name].where(ok)))
            np.testing.assert_array_equal(natural, filtered, err_msg=f"{query} of {name}")
    assert ds["limit"].dtype == np.float64
    np.testing.assert_array_equal(ds["limit"], [7, 7, np.nan])  # no trial of the last method is ok


def test_natural_queries_in_plain_xarray_are_right_for_every_dtype(new):
    ds = plain(new)
    assert_natural_queries_are_right(ds)
    exact = read_arrays(new)
    is_ok = exact["p/status"] == Status.OK
    for name, dtype in DTYPES.items():
        np.testing.assert_array_equal(ds[name].values[is_ok], exact[f"p/{name}"][is_ok].astype(float))
        assert ds[name].attrs.get("declared_dtype", "float64") == dtype
    np.testing.assert_array_equal(exact["p/large"][0], np.floor(2.0**63 * exact["p/number"][0]).astype(np.uint64))


def test_open_results_equals_plain_xarray(new):
    opened = pipeline.open_results(new)["p"].to_dataset().load()
    assert_natural_queries_are_right(opened)
    xr.testing.assert_equal(opened, plain(new).assign_coords(trial=opened["trial"]))
    assert {name: value.attrs for name, value in opened.data_vars.items()} == {
        name: value.attrs for name, value in plain(new).data_vars.items()
    }


@pytest.mark.slow
def test_pending_and_extended_trials_are_missing(new, tmp_path):
    path = shutil.copytree(new, tmp_path / "s.zarr")
    (path / "p" / "status" / "c" / "0" / "1").unlink()
    for name in DTYPES:
        (path / "p" / name / "c" / "0" / "1").unlink()
    assert_natural_queries_are_right(plain(path))
    pipeline.resume(path, study=STUDY_FILE, progress=False, allow_failures=True)
    assert_equal_arrays(path, new)
    assert grow(path, STUDY.configure(trials=11)).attributes["store_format"] == 9
    assert plain(path).sizes["trial"] == 11
    assert_natural_queries_are_right(plain(path))


@pytest.mark.slow
def test_stores_of_the_format_7_are_read_extended_and_compacted_in_their_format(new, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("pipeline.store.layout.template.STORE_FORMAT", 7)
        path = compute(tmp_path / "s.zarr").url
    assert_equal_arrays(path, new)
    assert verify(path).problems == ()
    grown = pipeline.extend(path, trials=11, study=STUDY_FILE, progress=False, allow_failures=True)
    assert (grown.attributes["store_format"], verify(path).problems) == (7, ())
    compact = pipeline.compact(path, tmp_path / "compact.zarr")
    assert (compact.attributes["store_format"], verify(compact.url).problems) == (8, ())


@pytest.mark.slow
def test_copies_and_shares_mark_missing_values(new, tmp_path):
    compact = pipeline.compact(new, tmp_path / "compact.zarr")
    assert compact.attributes["store_format"] == 10
    assert plain(compact.url).identical(plain(new))
    parts = [compute(tmp_path / f"{k}.zarr", share=f"{k}/2") for k in (1, 2)]
    for part in parts:
        assert_natural_queries_are_right(plain(part.url))
    assert_equal_arrays(pipeline.merge(parts, tmp_path / "merged.zarr").url, new)


def test_a_copy_by_xarray_keeps_missing_values(new, tmp_path):
    plain(new).drop_vars("error").to_zarr(tmp_path / "copy.zarr", consolidated=False)
    assert_natural_queries_are_right(xr.open_zarr(tmp_path / "copy.zarr", consolidated=False).load())


def test_numbers_that_a_killed_command_leaves_in_pending_trials_are_not_shown(tmp_path, monkeypatch):
    """An extension that is killed before it replaces the last status leaves numbers of pending trials in its chunk."""
    path, small, large = tmp_path / "s.zarr", *(TOY.configure(trials=n, panels=["single"]) for n in (5, 6))
    pipeline.run(small, path, progress=False)
    write, stages = Commit._write_after, []

    def stop_before_the_statuses(commit, before, contents):
        stages.append(contents)
        if all("/status/" in key for key in contents) and len(stages) > 2:
            raise KeyboardInterrupt
        return write(commit, before, contents)

    monkeypatch.setattr(Commit, "_write_after", stop_before_the_statuses)
    grow(path, large)
    panel = large.panels[0]
    with writing(path) as store, pytest.raises(KeyboardInterrupt):
        commit_block(store, large, panel, Block("single", 0, range(4, 6)), stale=panel.settings())
    stored = xr.open_zarr(path, group="single")
    assert stored["status"].values.tolist() == [[1, 1, 1, 1, 1, 0]]
    assert stored["heads"].notnull().all()  # plain xarray shows them, so that the guide names the filter
    opened = pipeline.open_results(path)["single"]
    assert opened["heads"].isnull().values.tolist() == [[False] * 5 + [True]]


@pytest.mark.parametrize(("dtype", "value"), [("int64", -(2**63)), ("int32", -(2**31)), ("uint64", 2**64 - 2048)])
def test_mark_of_missing_values_is_refused_as_a_result(tmp_path, dtype, value):
    def evaluate(data, setting, streams):
        return {"heads": np.array([value if trial == 3 else trial for trial in streams.trials], dtype)}

    panel = TOY.panel("single")
    method = replace(panel.methods[0], evaluate=evaluate)
    measure = replace(panel.measures[0], dtype=dtype)
    study = replace(TOY, panels=(replace(panel, methods=(method,), measures=(measure,)),))
    store = pipeline.run(study, tmp_path / "s.zarr", progress=False)
    ds = xr.open_zarr(store.url, group="single")
    assert ds["status"].values.tolist() == [[1, 1, 1, 2, 1]]
    allowed = f"{value + 1} ... {np.iinfo(dtype).max}" if value < 0 else f"0 ... {value - 1}"
    assert ds["error"].values[0, 3].splitlines()[0] == f"heads must be an integer in {allowed}, got {value}"
    np.testing.assert_array_equal(ds["heads"], [[0, 1, 2, np.nan, 4]])


@pytest.mark.slow
def test_statistics_receive_the_declared_dtype(new, old):
    seen = []
    statistic = pipeline.Statistic("rate", "event", "rate", lambda draws: seen.append(draws.dtype) or (~draws).mean())
    for ds in (
        plain(new),
        *(pipeline.open_results(path)["p"].to_dataset() for path in (new, old / "format_5.zarr")),
    ):
        summary = pipeline.summarise(ds, [statistic])
        np.testing.assert_allclose(summary["event_rate"], 1 - summary["event_mean"])
        assert "declared_dtype" not in summary["event_mean"].attrs
    assert set(seen) == {np.dtype(bool)}


def test_a_mark_in_an_array_that_has_none_is_refused(new, tmp_path):
    """A mark of somebody else, by which plain xarray would hide values, is no layout of this package."""
    for name, mark in [("status", 1), ("number", 0.5), ("count", 3), ("count", None)]:
        path = shutil.copytree(new, tmp_path / "s.zarr", dirs_exist_ok=True)
        document = json.loads((path / "zarr.json").read_text())
        attributes = document["consolidated_metadata"]["metadata"][f"p/{name}"]["attributes"]
        attributes.pop("_FillValue", None)
        if mark is not None:
            attributes["_FillValue"] = mark
        for key in ("zarr.json", COPY):
            (path / key).write_bytes(seal_root(json.dumps(document).encode()))
        with pytest.raises(BadInputError, match=rf"since its metadata differ from its spec at 'p/{name}'"):
            ResultStore.open(path)


def test_exact_measures_of_a_summary_have_their_declared_dtype(new):
    """Unless a value is missing, or an integer beyond 2⁵³, which float64 may have rounded."""
    ds = plain(new)[["limit", "status"]]
    limit = pipeline.summarise(ds)["limit"]
    np.testing.assert_array_equal(limit, [7.0, 7.0, np.nan])
    complete = ds.isel(algorithm=[0, 1])
    limit = pipeline.summarise(complete)["limit"]
    assert (limit.dtype, "declared_dtype" in limit.attrs) == (np.int32, False)
    assert limit.values.tolist() == [7, 7]
    complete["limit"] = complete["limit"].copy(data=[2.0**53, 7])
    assert pipeline.summarise(complete)["limit"].values.tolist() == [2.0**53, 7.0]


@pytest.mark.parametrize(
    ("wrong", "problem"), [(-(2**31), "an ok trial has no number"), (300, "a number is no bool")], ids=str
)
def test_verify_finds_numbers_that_no_trial_can_have(tmp_path, monkeypatch, wrong, problem):
    encode = Chunks.encode

    def encode_wrong(chunks, panel, name, regions, values, is_missing=False):
        values = values if name in ("status", "error") else np.full(values.shape, wrong)
        return encode(chunks, panel, name, regions, values)

    monkeypatch.setattr(Chunks, "encode", encode_wrong)
    store = pipeline.run(TOY, tmp_path / "s.zarr", panels=["single"], progress=False)
    found = verify(store, study=TOY, sample=0).problems
    assert {(one.variable, str(one.damage)) for one in found} == {("heads", f"inconsistent: {problem}")}


# Stores of the formats 5 and 6


@pytest.mark.slow
@pytest.mark.parametrize("name", ["format_5.zarr", "format_6.zarr"])
def test_store_of_an_earlier_format_has_the_numbers_of_a_new_run(old, new, name):
    """All numbers, summaries and statuses equal those of a run by this version; only missing values differ."""
    before = stamps(old / name)
    opened, expected = (pipeline.open_results(path)["p"].to_dataset().load() for path in (old / name, new))
    assert_natural_queries_are_right(opened)
    xr.testing.assert_equal(opened.drop_vars("error"), expected.drop_vars("error"))
    xr.testing.assert_identical(pipeline.summarise(opened), pipeline.summarise(expected))
    assert count_by_status(ResultStore.open(old / name), "p") == count_by_status(ResultStore.open(new), "p")
    found = verify(old / name, study=STUDY_FILE, sample=None)
    assert (found.problems, found.n_computed) == ((), 6)
    assert stamps(old / name) == before


@pytest.mark.parametrize("name", ["format_5.zarr", "format_6.zarr"])
def test_plain_xarray_reads_earlier_formats_with_the_filter(old, new, name):
    """Their arrays have the declared dtypes, and zero for missing integers and booleans."""
    ds, expected = plain(old / name), plain(new)
    assert {name: str(ds[name].dtype) for name in DTYPES} == DTYPES
    ok = ds["status"] == 1
    for measure in DTYPES:
        np.testing.assert_array_equal(ds[measure].where(ok).astype(float), expected[measure])
    assert not ds["event"].where(ok).mean("trial").equals(ds["event"].mean("trial"))


def test_store_of_format_5_is_summarised_as_version_0_3_did(old):
    for ds in (plain(old / "format_5.zarr"), pipeline.open_results(old / "format_5.zarr")["p"].to_dataset()):
        summary = pipeline.summarise(ds)
        for name, expected in SUMMARY.items():
            np.testing.assert_array_equal(summary[name].values, expected, err_msg=name)


@pytest.mark.slow
def test_store_of_format_5_is_extended_in_its_format(old, tmp_path):
    path = old / "format_5.zarr"
    before = stamps(path)
    pipeline.extend(path, trials=9, study=STUDY_FILE, progress=False, allow_failures=True)
    store = ResultStore.open(path)
    assert store.attributes["store_format"] == 5
    kept = [key for key in before if key.endswith("c/0/0")]
    assert len(kept) == len(DTYPES) + 1
    assert {key: before[key] for key in kept} == {key: stamps(path)[key] for key in kept}
    whole = compute(tmp_path / "whole.zarr", trials=9)
    opened, expected = (pipeline.open_results(one.url)["p"].to_dataset().drop_vars("error") for one in (store, whole))
    xr.testing.assert_equal(opened.load(), expected.load())
    assert zarr.open_array(path / "p" / "event", mode="r").dtype == bool
    found = verify(path, study=STUDY_FILE, sample=None)
    assert found.problems == ()


def test_interrupted_store_of_format_5_is_completed_and_repaired(old):
    path = old / "format_5.zarr"
    before = stamps(path)
    status = path / "p" / "status" / "c" / "1" / "0"
    status.unlink()
    assert count_by_status(ResultStore.open(path), "p")[Status.PENDING] == 4
    pipeline.resume(path, study=STUDY_FILE, progress=False, allow_failures=True)
    coordinate = path / "p" / "algorithm" / "zarr.json"
    coordinate.unlink()
    verify(path, study=STUDY_FILE, sample=0, repair=True)
    changed = {key for key, content in stamps(path).items() if content != before.get(key)}
    assert {key for key in changed if not key.startswith(".dpstudies")} == set()


@pytest.mark.slow
def test_retried_store_of_format_5_keeps_its_numbers(old):
    path = old / "format_5.zarr"
    before = {name: array for name, array in read_arrays(path).items() if not name.endswith("error")}
    pipeline.resume(path, study=STUDY_FILE, retry=FAILURES, progress=False, allow_failures=True)
    for name, array in before.items():
        np.testing.assert_array_equal(read_arrays(path)[name], array, strict=True)


def test_compact_copy_of_format_5_has_format_6(old):
    copy = pipeline.compact(old / "format_5.zarr", old / "copy.zarr")
    assert copy.attributes["store_format"] == 6
    shards = {key: digest for key, digest in stamps(old / "format_6.zarr").items() if "/c/" in key}
    assert shards
    assert {key: stamps(copy.url)[key] for key in shards} == shards


def test_store_of_format_6_is_not_extended(old):
    with unchanged(old / "format_6.zarr"), refusal("is compact and can only be read"):
        pipeline.extend(old / "format_6.zarr", trials=9, study=STUDY_FILE)


def test_shares_of_different_formats_are_not_merged(old):
    other = compute(old / "new.zarr", share="2/2")
    with pytest.raises(BadInputError, match=r"are of different runs: their store format differs; compute both with"):
        pipeline.merge([old / "share_1.zarr", other], old / "merged.zarr")
    assert not (old / "merged.zarr").exists()


def test_shares_of_format_5_are_merged_into_format_5(old):
    merged = pipeline.merge([old / "share_1.zarr", old / "share_2.zarr"], old / "merged.zarr")
    assert merged.attributes["store_format"] == 5
    assert_equal_arrays(merged.url, old / "format_5.zarr")
