"""Tests that stores do not depend on clusters or interruptions, and that stores computed by other code are refused."""

import errno
import re
import shutil
import threading
import time
from dataclasses import replace
from importlib import import_module
from inspect import signature
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import yaml

import pipeline.clusters.cluster
from pipeline import Factor, Method, extend, open_results, resume, run, submit
from pipeline.blocks.division import iterate_blocks
from pipeline.blocks.evaluate import Block
from pipeline.declare.source import find_study
from pipeline.errors import BadInputError, ExecutionError
from pipeline.execution import peaks
from pipeline.execution.checks import rerun_trial
from pipeline.execution.work import PendingWork
from pipeline.runs.resolve import study_of
from pipeline.store.commit import Commit
from pipeline.store.result_store import ResultStore
from pipeline.store.sessions.costs import MethodCosts
from tests.pipeline.faults.file_operations import call_before
from tests.pipeline.helpers import (
    TOY_FILE,
    assert_equal_arrays,
    commit_block,
    edit,
    file_stamps,
    interrupted,
    make_study,
    note_works,
    pending,
    read_arrays,
    refusal,
    temporary_files,
    unchanged,
    writing,
)
from tests.pipeline.toy import FAULTS, MEANS, SINGLE, STUDY

TOY = str(TOY_FILE)


@pytest.fixture
def toy(tmp_path):
    """Return the path of a copy of the toy study file, which tests may edit."""
    return Path(shutil.copy(TOY_FILE, tmp_path / "mine.py"))


@pytest.fixture(scope="module")
def toy_store(tmp_path_factory):
    """Return the path of a store of the toy file, which tests must not change."""
    path, values = tmp_path_factory.mktemp("toy") / "r.zarr", {"steps": [3], "epsilon": [1]}
    return run(TOY, path, panels=["means", "single"], values=values).url


def lose(store, panel, *position, whole=False):
    """Make a block pending by deleting its status or, if `whole`, all variables of its trials."""
    measures = {measure.name: measure for measure in STUDY.panel(panel).measures if whole and measure.per_trial}
    for name in ("status", *(("error",) if whole else ()), *measures):
        inner = measures[name].dims if name in measures else ()
        path = Path(store, panel, name, "c", *map(str, position + (0,) * len(inner)))
        path.unlink(missing_ok=name != "status")  # chunks of fill values are not stored


# One run


@pytest.mark.parametrize(
    ("entry", "refused"), [(run, "retry"), (resume, "trials"), (extend, "seed"), (submit, "share")]
)
def test_entries_take_the_options_that_apply_to_them(tmp_path, entry, refused):
    """The signature lists them, and another one is refused as by any function, before anything is written."""
    assert refused not in signature(entry).parameters
    positional = [tmp_path / "r.zarr"] if entry in (resume, extend) else [STUDY, tmp_path / "r.zarr"]
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{refused}'"):
        entry(*positional, **{refused: None})
    described = set(re.findall(r"\w+", entry.__doc__.split("Parameters")[1].split("Raises")[0]))
    assert described >= signature(entry).parameters.keys()
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(
    "study",
    [TOY, "tests.pipeline.toy:STUDY", replace(STUDY, aim="A copy.")],
    ids=["file", "module", "in memory"],
)
def test_all_references_to_a_study_give_the_same_store(local_store, tmp_path, study):
    store = run(study, tmp_path / "r.zarr", panels=["table", "single"])
    assert store.url == str(tmp_path / "r.zarr")
    assert_equal_arrays(store.url, local_store)


def test_a_store_records_its_provenance_by_which_its_study_is_found(tmp_path):
    store = run(TOY, tmp_path / "r.zarr", trials=2, panels=["single"])
    (session,) = store.sessions
    assert session["profile"] == "threads"
    assert session["started"] <= session["finished"]
    assert {"numpy", "zarr", "dpstudies", "python"} <= set(session["versions"])
    assert session["cpu_features"]
    assert store.attributes["study_reference"] == TOY
    assert ResultStore.open(store.url).attributes == store.attributes
    source, study = study_of(ResultStore.open(store.url))
    assert source == find_study(TOY, {})
    assert study.spec() == STUDY.configure(trials=2, panels=["single"]).spec()


def test_configured_run(tmp_path):
    store = run(TOY, tmp_path / "r.zarr", trials=3, seed=1, panels=["single", "faults"], values={"n": ["4"]})
    tree = open_results(store)
    assert set(tree.children) == {"single", "faults"}
    assert dict(tree["faults"].sizes) == {"n": 1, "algorithm": 6, "trial": 3}
    assert store.spec["seed"] == store.attributes["seed"] == 1


@pytest.mark.slow
def test_block_size_changes_no_number(complete_store, tmp_path):
    methods = [method.name for method in FAULTS.methods if method.name != "raises"]
    faults = replace(FAULTS, block_trials=5).with_values("algorithm", methods)
    panels = (replace(MEANS, block_trials=2), replace(SINGLE, block_trials=5), faults)
    store = run(replace(STUDY, panels=panels), tmp_path / "r.zarr")
    for panel in panels:
        changed, expected = (
            xr.open_zarr(url, group=panel.name).drop_vars("error").load() for url in (store.url, complete_store)
        )
        xr.testing.assert_identical(changed, expected.sel(algorithm=changed["algorithm"].values))
        assert store.array(panel.name, "status").chunks[-1] == panel.block_trials


@pytest.mark.slow
def test_progress_counts_every_evaluation_once(tmp_path):
    begun, receipts = [], []

    def progress(works):
        begun.extend(works)
        return receipts.append

    run(STUDY, tmp_path / "r.zarr", progress=progress)
    total = 2 * 6 * 12 + 2 * 12 * 6 + 2 * 2 + 5  # a setting of `means` counts once per value of each unused factor
    assert sum(receipt.n_done for receipt in receipts) == total - 12  # without a method that does not apply to a cell
    assert sum(len(work.block.trials) * len(work.settings) for work in begun) == total - 2 * 6 * 5
    assert sorted((r.work.block.panel, r.work.block.cell, r.work.block.trials.start) for r in receipts) == sorted(
        (work.block.panel, work.block.cell, work.block.trials.start) for work in begun
    )
    assert sum(receipt.n_failed for receipt in receipts) == 2 * (4 + 3 + 12 + 3)


# Continuation


@pytest.mark.slow
def test_complete_store_is_not_changed(store_copy, monkeypatch):
    """Running and resuming a complete store starts no cluster and changes no file."""
    monkeypatch.setattr(import_module("pipeline.runs.run_plan"), "connect", None)
    with unchanged(store_copy):
        run(STUDY, store_copy)
        resume(store_copy, study=STUDY)


LOST = [
    ("means", 0, 0, 0, 1, 0, 1),
    ("means", 1, 0, 1, 0, 2, 1),
    ("faults", 0, 2, 1),
    ("faults", 1, 0, 1),
    ("table", 1, 0),
    ("single", 0, 2),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("again", "whole"),
    [
        (run, True),
        (resume, False),
        *(pytest.param(*case, marks=pytest.mark.exhaustive) for case in ((run, False), (resume, True))),
    ],
)
def test_lost_blocks_are_computed_again(complete_store, store_copy, again, whole):
    for panel, *position in LOST:
        lose(store_copy, panel, *position, whole=whole)
    heard, before = [], read_arrays(store_copy)
    if again is run:
        run(STUDY, store_copy, progress=note_works(heard))
    else:
        resume(store_copy, study=STUDY, progress=note_works(heard))
    assert len(heard) == len(LOST)
    assert sum(len(work.settings) for work in heard) == len(LOST)
    assert any((values != before[name]).any() for name, values in read_arrays(store_copy).items())
    assert_equal_arrays(store_copy, complete_store)


def test_an_interrupted_run_is_resumed(complete_store, tmp_path):
    path = tmp_path / "r.zarr"
    interrupted(run, STUDY, path, n_receipts=3)
    store = ResultStore.open(path)
    assert store.complete
    assert PendingWork(STUDY, store)
    resume(path, study=STUDY)
    assert not PendingWork(STUDY, store)
    assert_equal_arrays(path, complete_store)
    assert ["finished" in session for session in ResultStore.open(path).sessions] == [False, True]


@pytest.mark.slow
def test_full_disk_ends_the_run(complete_store, tmp_path, monkeypatch):
    """On a full disk, the run ends with an error, and only committed trials are counted."""
    path, calls, written, committed = tmp_path / "r.zarr", [], {}, []
    write, finish = Commit.write, Commit.finish

    def fail(files, content):
        calls.append(content)
        if len(calls) > 150 and threading.current_thread() is not threading.main_thread():  # on workers
            raise OSError(errno.ENOSPC, "No space left on device")

    def note(commit, *arguments):
        write(commit, *arguments)
        written.setdefault(commit, []).append(arguments)

    def note_end(commit):
        finish(commit)
        committed.extend(written.get(commit, []))

    with monkeypatch.context() as patch:
        call_before(patch, "write_temporary", fail)
        patch.setattr(Commit, "write", note)
        patch.setattr(Commit, "finish", note_end)
        with pytest.raises(ExecutionError, match=r"^a worker failed: .*No space left on device; free some space$"):
            run(STUDY, path)
    n_pending = sum(int(pending(ResultStore.open(path), panel).sum()) for panel in STUDY.panels)
    assert 0 < len(committed) == (2 * 2 * 7 + 2 * 2 * 6 + 2 * 2 + 3) - n_pending
    assert temporary_files(path) == []
    run(STUDY, path)
    assert_equal_arrays(path, complete_store)


# Refusals without changes


def refused(store, message, call):
    with unchanged(store), refusal() as caught:
        call()
    assert caught.match(message)


PANELS = [panel.name for panel in STUDY.panels]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        ("a different spec or code version .seed: stored 7, now 8", {"seed": 8}),
        (
            r"other numbers of trials .*faults.trials: stored 12, now 4, and 2 more.; .*resume .*extend .* --trials N",
            {"trials": 4},
        ),
        ("different spec .*panels.means.factors.scale", {"values": {"scale": [1]}, "panels": PANELS}),
        ("different spec .*panels", {"values": {"algorithm": ["plain"]}, "panels": ["means"]}),
        ("different spec .*panels.faults: stored, now absent, and 2 more", {"panels": ["means"]}),
    ],
)
def test_another_spec_is_refused(store_copy, message, arguments):
    refused(store_copy, message, lambda: run(STUDY, store_copy, **arguments))


LAST = ("single", 0, 0)
OF_MEANS = ("means", 1, 0, 0, 0, 2, 1)
DIFFERENT = r"panel means, {}.*, trial \d gives numbers that differ from the stored ones"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("message", "old", "new", "lost"),
    [
        (r"version: stored 1, now 2", "    seed=7,", "    seed=7, version=2,", None),
        (r"version: stored 1, now 2", "    seed=7,", "    seed=7, version=2,", LAST),
        (r"panels.single.version", 'name="single",', 'name="single", version=2,', None),
        (r"panels.means.methods.noisy.version", 'uses=("epsilon",),', 'uses=("epsilon",), version=2,', LAST),
        (r"unknown algorithm.* 'plain'", 'Method("plain"', 'Method("simple"', None),
        (r"unknown panel 'single'", 'name="single"', 'name="lonely"', LAST),
        (r"contains study toy, got top", 'name="toy"', 'name="top"', None),
        # recomputed numbers differ, although the version is the same and the user accepts the edit
        (DIFFERENT.format("plain"), "shrunk.mean(axis=1),", "shrunk.mean(axis=1) * (1 + 1e-15),", OF_MEANS),
        (DIFFERENT.format("noisy"), "(streams.uniforms(1)[:, 0] - 0.5)", "(streams.uniforms(2)[:, 1] - 0.5)", OF_MEANS),
        (DIFFERENT.format("chain"), "rng.normal(size=", "rng.uniform(size=", OF_MEANS),
        (DIFFERENT.format("plain"), '* streams.uniforms(cell["n"])', '* (1 - streams.uniforms(cell["n"]))', OF_MEANS),
        (DIFFERENT.format("plain"), "shrunk.mean(axis=1),", "shrunk.mean(axis=1) * np.nan,", OF_MEANS),
    ],
)
def test_another_version_and_different_numbers_are_refused(tmp_path, toy, toy_store, message, old, new, lost):
    path = shutil.copytree(toy_store, tmp_path / "r.zarr")
    if lost:
        lose(path, *lost)
    edit(toy, old, new)
    refused(path, message, lambda: resume(path, study=str(toy), accept_edited_study=lost == OF_MEANS))


@pytest.mark.parametrize("is_complete", [True, False])
def test_edited_texts_are_accepted(tmp_path, toy, is_complete):
    """A complete store is not recomputed; only a session records the accepted code."""
    path = run(str(toy), tmp_path / "r.zarr", panels=["single"]).url
    if not is_complete:
        lose(path, "single", 0, 1)
    before = file_stamps(path)
    edit(toy, "one method, no factors", "a coin")
    resume(path, study=str(toy), accept_edited_study=True)
    assert not PendingWork(STUDY.configure(panels=["single"]), ResultStore.open(path))
    assert file_stamps(path).keys() >= before.keys()
    changed = {Path(file).parent.name for file, _ in file_stamps(path).items() ^ before.items()}
    assert not is_complete or changed <= {"sessions", ".dpstudies"}


@pytest.mark.parametrize(
    "arguments",
    [
        {"trials": 0},
        {"values": {"n": [0]}},
        {"panels": ["absent"]},
        {"cluster": "absent.yaml"},
        {"cluster": "c.yaml:far"},
        {"cluster": "c.yaml:wrong"},
    ],
    ids=str,
)
def test_bad_input_writes_nothing(tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pipeline.clusters.cluster, "_CONNECT_SECONDS", 1)
    profiles = {"far": {"address": "tcp://127.0.0.1:1"}, "wrong": {"module": "distributed", "class": "NoSuchCluster"}}
    Path("c.yaml").write_text(yaml.safe_dump({"profiles": profiles}))
    with pytest.raises(BadInputError):
        run(STUDY, "r.zarr", **arguments)
    assert [path.name for path in tmp_path.iterdir()] == ["c.yaml"]


def test_another_release_of_the_package_resumes_a_store(tmp_path, monkeypatch):
    store = run(TOY, tmp_path / "r.zarr", panels=["single"])
    for module in ("pipeline.declare.study", "pipeline.store.sessions.records"):
        monkeypatch.setattr(f"{module}.version", lambda name: "99.0", raising=False)
    lose(store.url, "single", 0, 1)
    assert resume(store.url).url == store.url
    versions = [session["versions"]["dpstudies"] for session in ResultStore.open(store.url).sessions]
    assert versions[1:] == ["99.0"] != versions[:1]


# Single trials


@pytest.mark.parametrize("name", [panel.name for panel in STUDY.panels])
def test_every_trial_can_be_recomputed(complete_store, name):
    store, panel = ResultStore.open(complete_store), STUDY.panel(name)
    for cell in panel.cells():
        written = {key: str(value) for key, value in cell.items()}  # values of the cell as a user types them
        for trial in (0, panel.n_trials - 1):
            reruns = rerun_trial(store, STUDY, name, written, trial)
            assert [rerun.setting for rerun in reruns] == panel.settings()
            assert all(rerun.is_stored and rerun.equal for rerun in reruns)


def test_differing_trial_is_detected(store_copy):
    store, cell = ResultStore.open(store_copy), {"n": 4, "scale": 2.0}
    block = Block("means", MEANS.cells().index(cell), range(4))
    with writing(store.url) as writer:
        commit_block(writer, replace(STUDY, seed=8), MEANS, block, stale=MEANS.settings())
    applies = [MEANS.applies(cell, setting) for setting in MEANS.settings()]
    assert [rerun.equal for rerun in rerun_trial(store, STUDY, "means", cell, 0)] == [not it for it in applies]
    assert all(rerun.equal for rerun in rerun_trial(store, STUDY, "means", cell, 4))


def test_missing_trial_is_detected(store_copy):
    lose(store_copy, "means", 0, 0, 0, 0, 0, 0)
    reruns = rerun_trial(ResultStore.open(store_copy), STUDY, "means", MEANS.cells()[0], 0)
    assert [rerun.is_stored for rerun in reruns] == [False] + [True] * 6
    assert [rerun.equal for rerun in reruns] == [False] + [True] * 6


@pytest.mark.parametrize(
    ("message", "panel", "cell", "trial"),
    [
        ("unknown panel 'mean'", "mean", {}, 0),
        ("a cell of panel means must specify exactly the factors n, scale, got", "means", {"n": 4}, 0),
        ("panel single has no factors, so its cell must be empty, got", "single", {"n": 4}, 0),
        ("panel faults has no cell", "faults", {"n": 7}, 0),
        ("n must be an integer, got 'x'", "faults", {"n": "x"}, 0),
        (r"trial must be in 0 \.\.\. 11, got 12", "faults", {"n": 3}, 12),
        (r"trial must be in 0 \.\.\. 11, got -1", "faults", {"n": 3}, -1),
        (r"trial must be in 0 \.\.\. 0, got 1", "table", {"order": 2}, 1),
    ],
)
def test_unknown_trials_are_refused(complete_store, message, panel, cell, trial):
    with pytest.raises(BadInputError, match=message):
        rerun_trial(ResultStore.open(complete_store), STUDY, panel, cell, trial)


@pytest.mark.slow
def test_settings_apart_are_separate_work_items(complete_store, tmp_path):
    """With `settings_apart`, each setting is a work item of its own, and no number changes."""
    study = replace(STUDY, panels=tuple(replace(panel, settings_apart=True) for panel in STUDY.panels))
    assert study.spec() == STUDY.spec()
    works = []
    run(study, tmp_path / "r.zarr", progress=note_works(works))
    assert all(len(work.settings) == 1 for work in works)
    expected = sum(len(panel.settings()) for panel in study.panels for _ in iterate_blocks(panel))
    assert len(works) == expected
    assert_equal_arrays(tmp_path / "r.zarr", complete_store)


# Costs


def simulate_slowly(cell, streams):
    time.sleep(0.3)


def evaluate_slowly(data, setting, streams):
    time.sleep(0.01 * len(streams.trials))
    return {"x": np.ones(len(streams.trials))}


def evaluate_at_once(data, setting, streams):
    return {"x": np.ones(len(streams.trials))}


def evaluate_together(data, settings, streams):
    return [method.evaluate(data, values, stream) for (method, values), stream in zip(settings, streams, strict=True)]


@pytest.mark.parametrize("together", [False, True])
def test_sessions_record_the_seconds_of_each_method(tmp_path, together):
    """Those of the simulation belong to no method; a panel that evaluates its settings together divides its time."""
    methods = (Method("slow", evaluate_slowly), Method("quick", evaluate_at_once))
    options = {"evaluate": evaluate_together} if together else {}
    study = make_study(*methods, simulate=simulate_slowly, trials=4, **options)
    store = run(study, tmp_path / "s.zarr", progress=False)
    extend(store.url, trials=6, study=study, progress=False)
    costs = MethodCosts.of(ResultStore.open(store.url).sessions).by_panel["p"]
    assert {name: n for name, (n, _) in costs.items()} == {"slow": 6, "quick": 6}
    (_, slow), (_, quick) = costs["slow"], costs["quick"]
    assert slow + quick == pytest.approx(0.06, abs=0.05)
    assert (slow == pytest.approx(quick, abs=2e-3)) is together


def allocate(data, setting, streams):
    n = len(streams.trials)
    return {"x": np.ones((n, setting["size"])).mean(axis=1)}


@pytest.mark.parametrize("share", [0.0, 100.0])
def test_sessions_record_the_traced_memory_of_one_trial_if_it_takes_a_small_part_of_the_time(
    tmp_path, monkeypatch, share
):
    monkeypatch.setattr(peaks, "_MOST_TIME", share)
    methods = (Method("large", allocate, uses=("size",)), Method("failing", lambda *_: {}))
    sizes = Factor("size", (10, 1_000_000), "numbers", "int")
    study = make_study(*methods, method_factors=(sizes,), trials=4, block_trials=4)
    store = run(study, tmp_path / "s.zarr", progress=False, allow_failures=True)
    peak = MethodCosts.of(store.sessions).peaks
    if not share:
        assert peak == {}
        return
    assert {panel: set(of_panel) for panel, of_panel in peak.items()} == {"p": {"large"}}
    assert peak["p"]["large"] == pytest.approx(8e6, rel=0.05)  # of the last setting, and one trial of four
