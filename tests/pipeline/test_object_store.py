"""Tests of stores in an object store, over HTTP with an S3 server."""

import os
import signal
import socket
import subprocess
import sys
import time
from itertools import count

import pytest
import xarray as xr
import yaml

import pipeline
from pipeline.blocks.division import iterate_blocks
from pipeline.blocks.evaluate import evaluate_block
from pipeline.errors import BadInputError, IncompleteStoreError, UnreadableStoreError
from pipeline.runs.verify import verify
from pipeline.stores.commits import Planned
from pipeline.stores.locations import STATE
from pipeline.stores.object_files import ObjectFiles
from pipeline.stores.root import COPY
from pipeline.stores.sessions import Session
from pipeline.stores.store import ResultStore
from pipeline.stores.template import make_template
from tests.pipeline.conftest import CREDENTIALS
from tests.pipeline.helpers import TOY_FILE, assert_equal_arrays, commit_block, panel_of, pending
from tests.pipeline.test_kill import STUDY_FILE
from tests.pipeline.toy import FAULTS, STUDY
from tests.studies import conftest, test_laboratory

pytestmark = pytest.mark.slow  # this file takes half a minute or more

command = conftest.command
few = test_laboratory.few
PANELS = ["table", "single"]
N_OF_TEMPLATE = len(make_template(STUDY.configure(panels=PANELS), {})) - 1  # number of files without the root
FEW = {"epsilon": [0.5], "steps": [3]}


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """Return the path of a read-only store in a local folder with the same study and seed."""
    path = tmp_path_factory.mktemp("local") / "toy.zarr"
    pipeline.run(STUDY, path, panels=PANELS)
    return path


def keys(bucket, part=""):
    return sorted(one.key for one in bucket.objects.all() if part in one.key)


def tags(bucket):
    """Return the entity tags of all objects, which change with the content."""
    return {one.key: (one.e_tag, one.last_modified) for one in bucket.objects.all()}


def stop_after(n_receipts):
    """Return a progress callback that interrupts a run after `n_receipts` receipts, as Ctrl-C does."""
    receipts = count(1)

    def on_receipt(receipt):
        if next(receipts) == n_receipts:
            raise KeyboardInterrupt

    return lambda works: on_receipt


def test_values_equal_those_in_a_folder(url, tmp_path, bucket):
    """Values, coordinates and statuses are bit-identical to those in a local folder, even if xarray reads them."""
    panels = ["means", "table", "single"]
    pipeline.run(STUDY, f"{url}/", panels=panels, values=FEW)
    pipeline.run(STUDY, tmp_path / "toy.zarr", panels=panels, values=FEW)
    assert_equal_arrays(url, tmp_path / "toy.zarr")
    files = [path for path in (tmp_path / "toy.zarr").rglob("*") if path.is_file()]
    assert keys(bucket) == sorted(f"some/folder/{path.relative_to(tmp_path)}" for path in files)
    for panel in panels:
        xr.testing.assert_identical(
            xr.open_zarr(url, group=panel).load(), xr.open_zarr(tmp_path / "toy.zarr", group=panel).load()
        )
    assert pipeline.open_results(url)["means"].attrs["title"] == "means of uniform numbers"
    summary = pipeline.summarise(pipeline.open_results(url)["means"].to_dataset())
    assert int(summary["n_ok"].sum()) > 0


def test_comparison_detects_a_missing_chunk(url, local, bucket):
    pipeline.run(STUDY, url, panels=PANELS)
    chunks = keys(bucket, "single/heads/c/")
    assert len(chunks) == 3
    bucket.Object(chunks[0]).delete()
    with pytest.raises(AssertionError, match="single/heads"):
        assert_equal_arrays(url, local)


def test_commits_are_independent(url, bucket):
    """If two tasks have blocks of one cell, the first commit does not depend on files of the other task."""
    study = panel_of(STUDY, "faults", methods=FAULTS.methods[:1])
    (panel,), (setting,) = study.panels, study.panels[0].settings()
    one, other = (block for block in iterate_blocks(panel) if block.cell == 0)
    with Session.begin(url, {}) as session:
        store = ResultStore.create(session, study, {})
        with store.commit([Planned(panel, one, [setting])]) as commit:
            commit.write(panel, one, setting, evaluate_block(study, one, [setting])[0])
            commit_block(store, study, panel, other)
            assert keys(bucket, "/faults/mean/c/") == ["some/folder/toy.zarr/faults/mean/c/0/0"]


def test_interrupted_run_is_resumed(url, local):
    with pytest.raises(KeyboardInterrupt):
        pipeline.run(STUDY, url, panels=PANELS, progress=stop_after(1))
    store = ResultStore.open(url)
    assert sum(pending(store, STUDY.panel(name)).sum() for name in PANELS) > 0
    pipeline.resume(url)
    assert_equal_arrays(url, local)
    assert ["finished" in session for session in ResultStore.open(url).sessions] == [False, True]


def test_killed_driver_is_resumed(url, bucket, tmp_path):
    (tmp_path / "slow.py").write_text(STUDY_FILE)
    (tmp_path / "fast.py").write_text(STUDY_FILE.replace("time.sleep(0.08)", ""))
    drive = "import pipeline, sys; pipeline.run(sys.argv[1], sys.argv[2], panels=['q'])"
    with subprocess.Popen([sys.executable, "-c", drive, tmp_path / "slow.py", url]) as driver:
        deadline = time.monotonic() + 60
        while len(keys(bucket, "/q/status/c/")) < 9 and time.monotonic() < deadline:
            time.sleep(0.3)  # each list of keys takes the server about 0.1 s
        os.kill(driver.pid, signal.SIGKILL)
    assert driver.returncode == -signal.SIGKILL
    assert 9 <= len(keys(bucket, "/q/status/c/")) < 90
    pipeline.run(str(tmp_path / "fast.py"), url, panels=["q"], accept_edited_study=True)
    pipeline.run(str(tmp_path / "fast.py"), tmp_path / "whole.zarr", panels=["q"])
    assert_equal_arrays(url, tmp_path / "whole.zarr")


@pytest.mark.parametrize("n_files", [0, 1, 9, 99], ids=lambda n_files: f"{n_files} objects")
def test_interrupted_creation_is_finished(url, bucket, local, monkeypatch, n_files):
    """If a creation is interrupted after it wrote the copy of the root, but not the root, `resume` completes it."""
    write = ObjectFiles.put_many

    def write_some(files, contents):
        write(files, {key: contents[key] for key in sorted(contents)[:n_files]})
        raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(ObjectFiles, "put_many", write_some)
        with pytest.raises(RuntimeError, match="killed"):
            pipeline.run(STUDY, url, panels=PANELS)
    found = [key.removeprefix("some/folder/toy.zarr/") for key in keys(bucket)]
    assert found[0] == COPY
    assert "zarr.json" not in found
    assert len([key for key in found if not key.startswith(STATE)]) == min(n_files, N_OF_TEMPLATE)
    with pytest.raises(IncompleteStoreError, match=f"finish it with: dpstudies resume {url}"):
        pipeline.open_results(url)
    pipeline.resume(url)
    assert_equal_arrays(url, local)


def test_creation_that_wrote_nothing_is_repeated(url, bucket, local, monkeypatch):
    """A creation that was interrupted before it wrote the copy of the root is repeated."""

    def refuse(*_):
        raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(ObjectFiles, "replace", refuse)
        with pytest.raises(RuntimeError, match="killed"):
            pipeline.run(STUDY, url, panels=PANELS)
    assert all(f"/{STATE}/" in key for key in keys(bucket))
    assert not ResultStore.exists(url)
    with pytest.raises(BadInputError, match=f"no result store at {url}"):
        pipeline.open_results(url)
    pipeline.run(STUDY, url, panels=PANELS)
    assert_equal_arrays(url, local)


def test_extension(url, tmp_path):
    chosen = {"values": {**FEW, "n": [9]}, "trials": 5}
    more = {"values": {"epsilon": [2.0]}, "trials": 7}
    for store in (url, tmp_path / "toy.zarr"):
        pipeline.run(STUDY, store, panels=["means"], **chosen)
        pipeline.extend(store, **more)
    assert_equal_arrays(url, tmp_path / "toy.zarr")
    assert dict(pipeline.open_results(url)["means"].sizes)["trial"] == 7


def test_damage_is_found_and_repaired(url, bucket, local):
    """A flipped byte, a truncated object and a missing object are found and repaired."""
    pipeline.run(STUDY, url, panels=PANELS)
    flipped, halved, lost = (
        bucket.Object(f"some/folder/toy.zarr/{key}")
        for key in ("table/curve/c/0/0/0", "single/status/c/0/1", "table/total/c/1/1")
    )
    content = bytearray(flipped.get()["Body"].read())
    content[3] ^= 1
    flipped.put(Body=bytes(content))
    halved.put(Body=halved.get()["Body"].read()[:-2])
    lost.delete()
    with pytest.raises(UnreadableStoreError, match=f"repair it with: dpstudies verify {url}"):
        pipeline.resume(url)
    before = tags(bucket)
    found = verify(url)
    assert tags(bucket) == before
    assert {(problem.variable, problem.damage.kind) for problem in found.problems} == {
        ("curve", "unreadable"),
        ("status", "unreadable"),
        ("total", "missing"),
    }
    assert len(verify(url, sample=0, repair=True).problems) == 3
    store = ResultStore.open(url)
    assert [int(pending(store, STUDY.panel(name)).sum()) for name in PANELS] == [2, 1]
    pipeline.resume(url)
    assert_equal_arrays(url, local)
    assert verify(url, sample=None).problems == ()


def test_worker_processes_write_to_an_object_store(url, local, tmp_path):
    kwargs = {"n_workers": 1, "threads_per_worker": 1}
    profile = {"module": "distributed", "class": "LocalCluster", "kwargs": kwargs}
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump({"profiles": {"processes": profile}}))
    pipeline.run(STUDY, url, panels=PANELS, cluster=f"{tmp_path}/cluster.yaml")
    assert_equal_arrays(url, local)


def test_commands_on_an_object_store(url, command, bucket):
    code, _, message = command(
        "run", TOY_FILE, "--store", url, "--panel", "faults,single", "--set", "n=3", "--trials", 5
    )
    assert code == 1, message
    code, out, _ = command("status", url)
    assert code == 1
    assert "single" in out
    code, out, _ = command("errors", url)
    assert code == 1
    assert f"again: dpstudies trial {url} --panel faults --cell n=3 --trial 0" in out
    code, out, _ = command("trial", url, "--panel", "single", "--trial", 4)
    assert code == 0
    assert "equal" in out
    code, out, _ = command("summarise", url, "--panel", "single")
    assert code == 0
    assert "heads" in out
    bucket.Object("some/folder/toy.zarr/single/status/c/0/2").delete()
    code, out, _ = command("status", url)
    assert code == 3
    assert f"continue with: dpstudies resume {url}" in out
    assert command("resume", url)[0] == 1
    assert command("status", url)[0] == 1


def test_all_studies_in_a_folder_of_a_bucket(bucket, command, few, tmp_path):
    folder = f"s3://{bucket.name}/some/lab"
    assert command("run", "all", "--store", folder, "--scale", "quick")[0] == 0
    code, out, err = command("run", "all", "--store", folder, "--scale", "quick")
    assert (code, out.count("already complete"), err) == (0, len(few), "")
    code, out, _ = command("report", folder)
    assert (code, "report: lab.html" in out) == (0, True)
    assert f"{len(few)} studies" in (tmp_path / "lab.html").read_text()
    assert command("run", "all", "--store", f"{folder}/{next(iter(few))}.zarr")[0] == 2


def refusal(store):
    """Run a study with an invalid location of its store; return the one-line error, which must occur within seconds."""
    started = time.monotonic()
    with pytest.raises(BadInputError) as refused:
        pipeline.run(STUDY, store, panels=PANELS)
    assert time.monotonic() - started < 15
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize(
    ("store", "message"),
    [
        ("s3://key:secret@{bucket}/toy.zarr", "must contain no credentials"),
        ("s3://{bucket}/toy.zarr?endpoint_url=http://127.0.0.1", "must contain no credentials and no options"),
        ("s4://{bucket}/toy.zarr", "must be a folder or the URL of an object store whose fsspec driver is installed"),
        ("s3://{bucket}", "must have the form s3://BUCKET/NAME.zarr"),
        ("s3://{bucket}-absent/toy.zarr", "bucket"),
    ],
)
def test_invalid_urls_are_rejected(bucket, tmp_path, monkeypatch, store, message):
    monkeypatch.chdir(tmp_path)
    said = refusal(store.format(bucket=bucket.name))
    assert message in said
    assert "secret" not in said
    assert keys(bucket) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("listens", [False, True])
def test_unreachable_endpoint(tmp_path, listens):
    """If the endpoint refuses connections or does not respond, the command ends within seconds."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        if not listens:
            server.close()
        shorter = "from pipeline.stores import locations; locations._ANSWER_SECONDS = 3"
        command = [sys.executable, "-c", f"{shorter}; from studies.cli import main; main()"]
        said = subprocess.run(
            [*command, "run", str(TOY_FILE), "--store", "s3://studies/toy.zarr"],
            cwd=tmp_path,
            env=os.environ | CREDENTIALS | {"AWS_ENDPOINT_URL": address},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert said.returncode == 2
    assert "the object store of s3://studies/toy.zarr cannot be reached" in said.stderr
    assert said.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_other_objects_are_rejected(bucket):
    bucket.Object("some/folder/toy.zarr/notes.txt").put(Body=b"mine")
    assert "exists but is not a result store" in refusal(f"s3://{bucket.name}/some/folder/toy.zarr")
    assert keys(bucket) == ["some/folder/toy.zarr/notes.txt"]
