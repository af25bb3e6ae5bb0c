"""Tests of stores in an object store: in memory, and in slow tests over HTTP with an S3 server."""

import os
import signal
import subprocess
import sys
from unittest.mock import Mock

import pytest
import xarray as xr
import yaml

import pipeline
from pipeline.blocks.division import iterate_blocks
from pipeline.blocks.evaluate import evaluate_block
from pipeline.errors import BadInputError, ExecutionError, IncompleteStoreError, UnreadableStoreError
from pipeline.runs.verify import verify
from pipeline.store.commit import BlockWriter, Planned
from pipeline.store.copies.new_store import new_store
from pipeline.store.files.locations import STATE
from pipeline.store.files.object_files import ObjectFiles
from pipeline.store.layout.root import COPY
from pipeline.store.layout.template import make_template
from pipeline.store.result_store import ResultStore
from pipeline.store.sessions.lease import Session
from tests.pipeline.faults.harness import wait_until
from tests.pipeline.faults.study import Part, unequal, write_study
from tests.pipeline.helpers import (
    TOY_FILE,
    assert_equal_arrays,
    commit_block,
    created,
    interrupted,
    list_objects,
    object_keys,
    panel_of,
    pending,
    zarr_store,
)
from tests.pipeline.toy import FAULTS, STUDY
from tests.studies import conftest, test_laboratory

command = conftest.command
few = test_laboratory.few
PANELS = ["table", "single"]
N_OF_TEMPLATE = len(make_template(STUDY.configure(panels=PANELS), {})) - 1  # number of files without the root
FEW = {"epsilon": [0.5], "steps": [3]}
in_memory_first = pytest.mark.parametrize(
    "url", ["memory", pytest.param("s3", marks=pytest.mark.exhaustive)], indirect=True
)


@pytest.mark.slow
@pytest.mark.parametrize("url", ["s3", pytest.param("memory", marks=pytest.mark.exhaustive)], indirect=True)
def test_values_equal_those_in_a_folder(url, tmp_path):
    """Values, coordinates and statuses are bit-identical to those in a local folder, even if xarray reads them."""
    panels = ["means", "table", "single"]
    pipeline.run(STUDY, f"{url}/", panels=panels, values=FEW)
    pipeline.run(STUDY, tmp_path / "toy.zarr", panels=panels, values=FEW)
    assert_equal_arrays(url, tmp_path / "toy.zarr")
    files = [path for path in (tmp_path / "toy.zarr").rglob("*") if path.is_file()]
    assert object_keys(url) == sorted(f"some/folder/{path.relative_to(tmp_path)}" for path in files)
    for panel in panels:
        xr.testing.assert_identical(
            xr.open_zarr(zarr_store(url), group=panel).load(), xr.open_zarr(tmp_path / "toy.zarr", group=panel).load()
        )
    assert pipeline.open_results(url)["means"].attrs["title"] == "means of uniform numbers"
    summary = pipeline.summarise(pipeline.open_results(url)["means"].to_dataset())
    assert int(summary["n_ok"].sum()) > 0


def test_comparison_detects_a_missing_chunk(memory_url, local_store):
    pipeline.run(STUDY, memory_url, panels=PANELS)
    objects, chunks = list_objects(memory_url, "single/heads/c/")
    assert len(chunks) == 3
    objects.delete(min(chunks))
    with pytest.raises(AssertionError, match="single/heads"):
        assert_equal_arrays(memory_url, local_store)


def test_commits_are_independent(memory_url):
    """If two tasks have blocks of one cell, the first commit does not depend on files of the other task."""
    study = panel_of(STUDY, "faults", methods=FAULTS.methods[:1])
    (panel,), (setting,) = study.panels, study.panels[0].settings()
    one, other = (block for block in iterate_blocks(panel) if block.cell == 0)
    with created(memory_url, study) as store, BlockWriter(store).commit([Planned(panel, one, [setting])]) as commit:
        commit.write(panel, one, setting, evaluate_block(study, one, [setting])[0])
        commit_block(store, study, panel, other)
        assert object_keys(memory_url, "/faults/mean/c/") == ["some/folder/toy.zarr/faults/mean/c/0/0"]


def test_interrupted_run_is_resumed(url, local_store):
    interrupted(pipeline.run, STUDY, url, panels=PANELS)
    store = ResultStore.open(url)
    assert sum(pending(store, STUDY.panel(name)).sum() for name in PANELS) > 0
    pipeline.resume(url)
    assert_equal_arrays(url, local_store)
    assert ["finished" in session for session in ResultStore.open(url).sessions] == [False, True]


@pytest.mark.slow
def test_killed_driver_is_resumed(bucket, tmp_path):
    url = f"s3://{bucket}/some/folder/toy.zarr"
    study = write_study(tmp_path, seconds=0.08)
    drive = "import pipeline, sys; pipeline.run(sys.argv[1], sys.argv[2], panels=['q'], trials=20)"
    with subprocess.Popen([sys.executable, "-c", drive, study, url]) as driver:
        wait_until(lambda: len(object_keys(url, "/q/status/c/")) >= 9)
        os.kill(driver.pid, signal.SIGKILL)
    assert driver.returncode == -signal.SIGKILL
    assert 9 <= len(object_keys(url, "/q/status/c/")) < 40
    pipeline.run(str(write_study(tmp_path)), url, panels=["q"], trials=20, accept_edited_study=True)
    assert unequal(url, {}, Part(("q",), trials=20)) == ""


@pytest.mark.parametrize("n_files", [0, 1, 9, 99], ids=lambda n_files: f"{n_files} objects")
def test_interrupted_creation_is_finished(memory_url, local_store, monkeypatch, n_files):
    """If a creation is interrupted after it wrote the copy of the root, but not the root, `resume` completes it."""
    write = ObjectFiles.put_many

    def write_some(files, contents, *rest):
        write(files, {key: contents[key] for key in sorted(contents)[:n_files]}, *rest)
        raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(ObjectFiles, "put_many", write_some)
        with pytest.raises(RuntimeError, match="killed"):
            pipeline.run(STUDY, memory_url, panels=PANELS)
    found = [key.removeprefix("some/folder/toy.zarr/") for key in object_keys(memory_url)]
    assert found[0] == COPY
    assert "zarr.json" not in found
    assert len([key for key in found if not key.startswith(STATE)]) == min(n_files, N_OF_TEMPLATE)
    with pytest.raises(IncompleteStoreError, match=f"finish it with: dpstudies resume {memory_url}"):
        pipeline.open_results(memory_url)
    pipeline.resume(memory_url)
    assert_equal_arrays(memory_url, local_store)


def test_creation_that_wrote_nothing_is_repeated(memory_url, local_store, monkeypatch):
    """A creation that was interrupted before it wrote the copy of the root is repeated."""
    with monkeypatch.context() as patch:
        patch.setattr(ObjectFiles, "replace", Mock(side_effect=RuntimeError("killed")))
        with pytest.raises(RuntimeError, match="killed"):
            pipeline.run(STUDY, memory_url, panels=PANELS)
    assert all(f"/{STATE}/" in key for key in object_keys(memory_url))
    assert not ResultStore.exists(memory_url)
    with pytest.raises(BadInputError, match=f"no result store at {memory_url}"):
        pipeline.open_results(memory_url)
    pipeline.run(STUDY, memory_url, panels=PANELS)
    assert_equal_arrays(memory_url, local_store)


@pytest.mark.slow
def test_extension(memory_url, tmp_path):
    chosen = {"values": {**FEW, "n": [9]}, "trials": 5}
    more = {"values": {"epsilon": [2.0]}, "trials": 7}
    for store in (memory_url, tmp_path / "toy.zarr"):
        pipeline.run(STUDY, store, panels=["means"], **chosen)
        pipeline.extend(store, **more)
    assert_equal_arrays(memory_url, tmp_path / "toy.zarr")
    assert dict(pipeline.open_results(memory_url)["means"].sizes)["trial"] == 7


@pytest.mark.slow
@in_memory_first
def test_damage_is_found_and_repaired(url, local_store):
    """A flipped byte, a truncated object and a missing object are found and repaired."""
    pipeline.run(STUDY, url, panels=PANELS)
    objects, _ = list_objects(url)
    flipped, halved, lost = (
        f"some/folder/toy.zarr/{key}" for key in ("table/curve/c/0/0/0", "single/status/c/0/1", "table/total/c/1/1")
    )
    content = bytearray(objects.get(flipped).bytes())
    content[3] ^= 1
    objects.put(flipped, bytes(content))
    objects.put(halved, objects.get(halved).bytes()[:-2])
    objects.delete(lost)
    with pytest.raises(UnreadableStoreError, match=f"repair it with: dpstudies verify {url}"):
        pipeline.resume(url)
    before = list_objects(url)[1]
    found = verify(url)
    assert list_objects(url)[1] == before
    assert {(problem.variable, problem.damage.kind) for problem in found.problems} == {
        ("curve", "unreadable"),
        ("status", "unreadable"),
        ("total", "missing"),
    }
    assert len(verify(url, sample=0, repair=True).problems) == 3
    store = ResultStore.open(url)
    assert [int(pending(store, STUDY.panel(name)).sum()) for name in PANELS] == [2, 1]
    pipeline.resume(url)
    assert_equal_arrays(url, local_store)
    assert verify(url, sample=None).problems == ()


@pytest.mark.slow
def test_worker_processes_write_to_an_object_store(bucket, local_store, tmp_path):
    url = f"s3://{bucket}/toy.zarr"
    kwargs = {"n_workers": 1, "threads_per_worker": 1}
    profile = {"module": "distributed", "class": "LocalCluster", "kwargs": kwargs}
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump({"profiles": {"processes": profile}}))
    pipeline.run(STUDY, url, panels=PANELS, cluster=f"{tmp_path}/cluster.yaml")
    assert_equal_arrays(url, local_store)


@pytest.mark.slow
def test_commands_on_an_object_store(bucket, command):
    url = f"s3://{bucket}/some/folder/toy.zarr"
    code, _, message = command(
        "run", TOY_FILE, "--store", url, "--panel", "faults,single", "--set", "n=3", "--trials", 5
    )
    assert code == 1, message
    for words, expected, text in (
        (("status", url), 1, "single"),
        (("errors", url), 1, f"again: dpstudies trial {url} --panel faults --cell n=3 --trial 0"),
        (("trial", url, "--panel", "single", "--trial", 4), 0, "equal"),
        (("summarise", url, "--panel", "single"), 0, "heads"),
    ):
        code, out, _ = command(*words)
        assert (code, text in out) == (expected, True), out
    list_objects(url)[0].delete("some/folder/toy.zarr/single/status/c/0/2")
    code, out, _ = command("status", url)
    assert (code, f"continue with: dpstudies resume {url}" in out) == (3, True)
    assert command("resume", url)[0] == 1
    assert command("status", url)[0] == 1


@pytest.mark.slow
def test_all_studies_in_a_folder_of_a_bucket(bucket, command, few, tmp_path):
    folder = f"s3://{bucket}/some/lab"
    del few[next(iter(few))]
    assert command("run", "all", "--store", folder, "--scale", "quick")[0] == 0
    code, out, err = command("run", "all", "--store", folder, "--scale", "quick")
    assert (code, out.count("already complete"), err) == (0, len(few), "")
    code, out, _ = command("report", folder)
    assert (code, "report: lab.html" in out) == (0, True)
    assert f"{len(few)} studies" in (tmp_path / "lab.html").read_text()
    assert command("run", "all", "--store", f"{folder}/{next(iter(few))}.zarr")[0] == 2


def test_other_objects_are_rejected(memory_url):
    list_objects(memory_url)[0].put("some/folder/toy.zarr/notes.txt", b"mine")
    with pytest.raises(BadInputError, match="exists but is not a result store"):
        pipeline.run(STUDY, memory_url, panels=PANELS)
    assert object_keys(memory_url) == ["some/folder/toy.zarr/notes.txt"]


@pytest.mark.slow
@in_memory_first
def test_copies_are_written_to_an_object_store(url, local_store):
    """Compact copies and joined shares in an object store have the bits of a folder; failed ones leave no object."""
    pipeline.compact(local_store, f"{url}-compact")
    assert_equal_arrays(f"{url}-compact", local_store)
    assert verify(f"{url}-compact", sample=0, study=str(TOY_FILE)).problems == ()
    with pytest.raises(BadInputError, match="exists"):
        pipeline.compact(local_store, f"{url}-compact")
    with pytest.raises(BadInputError, match="is compact"):
        pipeline.run(STUDY, f"{url}-compact", panels=PANELS)
    shares = [pipeline.run(STUDY, f"{url}-{k}", panels=PANELS, share=f"{k}/2") for k in (1, 2)]
    with pytest.raises(BadInputError, match="all 2 shares are required"):
        pipeline.merge(shares[:1], f"{url}-joined")
    assert len(pipeline.merge(shares, f"{url}-joined").sessions) == 2  # they do not supersede the writer
    assert_equal_arrays(f"{url}-joined", local_store)
    with pytest.raises(KeyboardInterrupt):
        pipeline.compact(f"{url}-joined", f"{url}-failed", progress=Mock(side_effect=KeyboardInterrupt))
    assert object_keys(url, "-failed") == []


def test_two_copies_at_one_location_do_not_mix(memory_url, local_store):
    """Whoever else writes to the location of a copy, or reads it, is refused until the copy has ended."""
    copy, refused = f"{memory_url}-compact", []

    def begin_another(*_):
        with (
            pytest.raises(BadInputError, match="another process is writing to") as error,
            new_store(copy, 1, b"{}", {}),
        ):
            pass
        refused.append(error)
        for call in (lambda url: pipeline.run(STUDY, url), pipeline.resume, pipeline.open_results, verify):
            with pytest.raises(BadInputError, match="a copy of a store is being written to") as error:
                call(copy)
            refused.append(error)

    pipeline.compact(local_store, copy, progress=begin_another)
    assert len(refused) >= 5
    assert_equal_arrays(copy, local_store)
    assert not [key for key in object_keys(memory_url, "-compact") if "copying" in key]


def test_a_copy_is_refused_where_a_session_has_begun(memory_url):
    session = Session.begin(memory_url, {})
    before = object_keys(memory_url)
    with pytest.raises(BadInputError, match="another process is writing to"), new_store(memory_url, 1, b"{}", {}):
        pass
    assert object_keys(memory_url) == before
    session.end()


@pytest.mark.slow
@pytest.mark.exhaustive  # test_submission.py refuses such a store before a run on worker processes
def test_worker_processes_cannot_share_memory():
    with pytest.raises(ExecutionError, match="choose a --store that all workers can open"):
        pipeline.run(STUDY, "memory://studies/toy.zarr", panels=["single"], cluster="processes")
