"""Tests of runs in shares: joined shares equal one run, and what cannot be joined is refused before a write."""

import json
import shutil
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

import pipeline
from pipeline.blocks.evaluate import Status
from pipeline.errors import BadInputError, UnreadableStoreError
from pipeline.execution.checks import rerun_trial
from pipeline.runs.verify import verify
from pipeline.store.result_store import ResultStore
from pipeline.store.scan.run_part import RunPart
from pipeline.store.scan.states import blocks_of_others, count_by_status
from pipeline.store.sessions.records import sessions_of
from tests.pipeline.faults.file_operations import CrashError, crash_at
from tests.pipeline.helpers import assert_equal_arrays, interrupted, refusal, write_study_file
from tests.pipeline.toy import STUDY


def compute(path, k, count, **options):
    return pipeline.run(STUDY, path, share=f"{k}/{count}", progress=False, **options)


@pytest.fixture(scope="module")
def whole(complete_store):
    return ResultStore.open(complete_store)


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts")
    return [compute(folder / f"{k}.zarr", k, 3) for k in (1, 2, 3)]


@pytest.mark.slow
@pytest.mark.parametrize("order", [(2, 0, 1), pytest.param((0, 1, 2), marks=pytest.mark.exhaustive)])
def test_joined_shares_equal_one_run(whole, parts, tmp_path, order):
    """Their chunks, too, are those of one run."""
    joined = pipeline.merge([parts[k] for k in order], tmp_path / "s.zarr")
    assert_equal_arrays(joined.url, whole.url)
    files = [path.relative_to(whole.url) for path in Path(whole.url).glob("*/*/c/**/*") if path.is_file()]
    assert len(files) > 100
    assert [name for name in files if Path(joined.url, name).read_bytes() != Path(whole.url, name).read_bytes()] == []
    assert verify(joined, study=STUDY).problems == ()
    assert joined.run_part is None
    assert joined.spec == whole.spec
    assert [record["share"] for record in joined.sessions] == [f"{k + 1}/3" for k in order]
    for panel in joined.spec["panels"]:
        assert count_by_status(joined, panel) == count_by_status(whole, panel)
        assert pipeline.open_results(joined)[panel].identical(pipeline.open_results(whole)[panel])


@pytest.mark.slow
def test_a_joined_store_is_extended_like_one_run(parts, complete_store, tmp_path):
    joined, other = pipeline.merge(parts, tmp_path / "s.zarr").url, shutil.copytree(complete_store, tmp_path / "w.zarr")
    for store in (joined, other):
        pipeline.extend(store, trials=8, panels=["means", "single"], study=STUDY, progress=False)
    assert_equal_arrays(joined, other)


def test_shares_are_disjoint_complete_and_equal_in_size():
    shapes = {"p": (7, 5), "q": (1, 1), "r": (3, 4)}
    for count in (1, 2, 3, 10, 48, 60):
        own = {
            name: np.stack([~RunPart(k, count).others(name, shapes) for k in range(1, count + 1)]) for name in shapes
        }
        assert all((masks.sum(axis=0) == 1).all() for masks in own.values())
        sizes = sum(masks.sum(axis=(1, 2)) for masks in own.values())
        assert sizes.max() - sizes.min() <= 1


def test_a_share_has_blocks_of_all_values_of_each_factor():
    """Dealing blocks in order would give each share one of four values of the last factor."""
    own = ~RunPart(1, 4).others("p", {"p": (40, 1)})
    assert (own.reshape(10, 4).sum(axis=0) > 0).all()
    negative_control = (np.arange(40) % 4 == 0).reshape(10, 4).sum(axis=0)
    assert not (negative_control > 0).all()


@pytest.mark.slow
def test_a_share_is_resumed_and_complete_by_itself(parts, tmp_path):
    interrupted(pipeline.run, STUDY, tmp_path / "s.zarr", share="2/3")
    resumed = pipeline.resume(tmp_path / "s.zarr", study=STUDY, progress=False)
    assert_equal_arrays(resumed.url, parts[1].url)
    counts = [count_by_status(resumed, panel) for panel in resumed.spec["panels"]]
    assert sum(count[Status.PENDING] for count in counts) == 0
    assert sum(count[Status.NOT_ASKED_FOR] for count in counts) > 0


def test_blocks_of_other_shares_are_not_pending_in_a_share(parts):
    found = verify(parts[1], study=STUDY)
    assert (found.n_pending, found.problems) == (0, ())
    assert found.n_read > 0
    panel = STUDY.panel("means")
    for cell, block in np.argwhere(blocks_of_others(parts[1], "means")):
        reruns = rerun_trial(parts[1], STUDY, "means", panel.cells()[cell], int(block) * panel.block_trials)
        assert not any(rerun.is_asked for rerun in reruns)


def incomplete(path):
    interrupted(pipeline.run, STUDY, path, share="3/3")
    return path


REFUSED = {
    "none": (lambda parts, path: [], "requires the stores of all shares, got none"),
    "missing": (lambda parts, path: parts[:2], "all 3 shares are required; missing: 3/3"),
    "overlapping": (lambda parts, path: [*parts, parts[0]], "must not overlap, got 1/3 in both"),
    "no share": (lambda parts, path: [*parts[:2], pipeline.run(STUDY, path, progress=False)], "is not a share"),
    "foreign": (
        lambda parts, path: [*parts[:2], compute(path, 3, 3, seed=8)],
        "are of different runs: their spec differs",
    ),
    "counts": (lambda parts, path: [*parts[:2], compute(path, 3, 4)], "shares of one run have one count, got 1/3"),
    "incomplete": (
        lambda parts, path: [*parts[:2], incomplete(path)],
        "must be complete to be copied, got .* pending trials in .*; compute them with: dpstudies",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_shares_that_are_no_whole_run_are_refused_before_a_write(parts, tmp_path, case):
    choose, text = REFUSED[case]
    shares = choose(parts, tmp_path / "other.zarr")
    with refusal() as caught:
        pipeline.merge(shares, tmp_path / "s.zarr")
    assert caught.match(text)
    assert not (tmp_path / "s.zarr").exists()
    assert not list(tmp_path.glob(".*"))


def test_an_existing_destination_is_refused(parts, tmp_path):
    (tmp_path / "s.zarr").mkdir()
    with pytest.raises(BadInputError, match="exists; choose a path"):
        pipeline.merge(parts, tmp_path / "s.zarr")


@pytest.mark.slow
def test_a_damaged_share_leaves_nothing(tmp_path):
    stores = [compute(tmp_path / f"{k}.zarr", k, 2) for k in (1, 2)]
    chunk = next(path for path in sorted(Path(stores[1].url).glob("*/status/c/**/*")) if path.is_file())
    chunk.write_bytes(chunk.read_bytes()[:-1] + b"x")
    with pytest.raises(UnreadableStoreError):
        pipeline.merge(stores, tmp_path / "s.zarr")
    assert not (tmp_path / "s.zarr").exists()
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("share", ["0/3", "4/3", "3", "1/0", "a/b", "1/1000000", "-1/3", "1/3 "])
def test_an_invalid_share_is_refused(tmp_path, share):
    with pytest.raises(BadInputError, match="a share must be K/M"):
        pipeline.run(STUDY, tmp_path / "s.zarr", share=share)
    assert not (tmp_path / "s.zarr").exists()


def test_a_share_is_neither_extended_nor_continued_as_another(parts):
    calls = {
        "has share 1/3 of a run, got --share 2/3": lambda: compute(parts[0], 2, 3),
        "has share 1/3 of a run, got no --share": lambda: pipeline.run(STUDY, parts[0]),
        "has share 1/3 of a run; merge all shares first": lambda: pipeline.extend(parts[0], trials=99, study=STUDY),
        r"continue with the stored ones: dpstudies resume \S+$": lambda: compute(parts[0], 1, 3, trials=4),
        "cannot be combined with --until": lambda: compute(parts[0], 1, 3, until="claims"),
    }
    for text, call in calls.items():
        with pytest.raises(BadInputError, match=text):
            call()
    assert json.loads(Path(ResultStore.open(parts[0]).url, "zarr.json").read_bytes())["attributes"]["share"] == "1/3"


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"versions": {"numpy": "1.0", "scipy": "2.0"}}, "numpy 1.0, numpy 2.0;"),
        ({"cpu_features": ["SSE2", "AVX2\nFMA"]}, "AVX2 FMA;"),
        ({"versions": None, "cpu_features": "AVX2"}, ""),
    ],
)
def test_shares_of_other_versions_or_instructions_are_named(parts, tmp_path, monkeypatch, changed, named):
    def recorded(share):
        recorded = {"versions": {"numpy": "2.0", "scipy": "2.0"}, "cpu_features": ["SSE2"]}
        recorded |= changed if share.url == parts[2].url else {}
        return [record | recorded for record in sessions_of(share.files)]

    monkeypatch.setattr(ResultStore, "sessions", property(recorded))
    with nullcontext() if not named else pytest.warns(UserWarning, match=f"shares had different .*: {named}"):
        assert pipeline.merge(parts, tmp_path / "s.zarr").complete


def test_shares_of_files_with_other_modules_are_not_merged(tmp_path, monkeypatch):
    """Equal study files are not enough: a module of the folder that one of them imports has other code."""
    shares = []
    for part in ("1/2", "2/2"):
        folder = tmp_path / part.partition("/")[0]
        folder.mkdir()
        (folder / "local_share.py").write_text(f"OFFSET = {part[0]}")
        path = write_study_file(folder / "study.py", "data + local_share.OFFSET", head="import local_share")
        with monkeypatch.context() as patch:
            patch.setattr(sys, "path", [*sys.path])
            patch.delitem(sys.modules, "local_share", raising=False)
            shares.append(pipeline.run(path, f"{folder}.zarr", share=part).url)
            del sys.modules["local_share"]
    with pytest.raises(BadInputError, match="of different runs: their study file differs"):
        pipeline.merge(shares, tmp_path / "all.zarr")


def test_a_finished_creation_states_the_code_that_computes_its_trials(tmp_path, monkeypatch):
    """Shares of one run are joined only if their code is equal, so a share must not state that of another session."""
    path = tmp_path / "study.py"
    write_study_file(path)
    with monkeypatch.context() as patch:
        crash_at(patch, 9, once=True)
        with pytest.raises(CrashError):
            pipeline.run(str(path), tmp_path / "s.zarr")
    write_study_file(path, x="data + 1")
    finished, whole = (pipeline.run(str(path), tmp_path / name).attributes for name in ("s.zarr", "whole.zarr"))
    for digest in ("study_file_sha256", "study_code_sha256", "spec_sha256"):
        assert finished[digest] == whole[digest]
