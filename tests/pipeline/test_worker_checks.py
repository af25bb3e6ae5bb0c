"""Tests of the check of every worker at the start of a run; messages name unusable workers by address."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from distributed import Client, LocalCluster, get_worker

import pipeline
from pipeline.declare.source import named_source, source_of
from pipeline.errors import BadInputError, ExecutionError
from pipeline.execution import checks, work
from pipeline.store.result_store import ResultStore
from tests.pipeline import toy
from tests.pipeline.helpers import TOY_FILE
from tests.pipeline.toy import STUDY


@pytest.fixture(scope="module")
def cluster():
    options = {"processes": False, "n_workers": 3, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(**options, protocol="tcp://") as cluster:
        yield cluster


@pytest.fixture
def profile(cluster, tmp_path):
    (tmp_path / "c.yaml").write_text(f"profiles: {{there: {{address: '{cluster.scheduler_address}'}}}}")
    return str(tmp_path / "c.yaml")


def fail_on(address, call, error):
    """Return a function that raises `error` on the worker at `address`."""

    def wrapped(*args):
        if get_worker().address == address:
            raise error
        return call(*args)

    return wrapped


@pytest.mark.parametrize("k", [2, 0])
def test_worker_without_a_module_is_named(cluster, profile, tmp_path, monkeypatch, k):
    address = sorted(cluster.scheduler_info["workers"])[k]
    monkeypatch.setattr(
        checks, "registered_task", fail_on(address, checks.registered_task, ModuleNotFoundError("No module x"))
    )
    with pytest.raises(BadInputError, match=rf"^worker {address} cannot load the study: .*No module x; install"):
        pipeline.run(str(TOY_FILE), tmp_path / "s.zarr", panels=["single"], cluster=profile)
    assert not (tmp_path / "s.zarr").exists()


@pytest.mark.slow
def test_worker_without_the_store_is_named(cluster, profile, tmp_path, monkeypatch):
    address = sorted(cluster.scheduler_info["workers"])[1]
    opened = checks.Task.opened
    monkeypatch.setattr(checks.Task, "opened", fail_on(address, opened, BadInputError("no result store at s.zarr")))
    with pytest.raises(ExecutionError, match=rf"^worker {address} cannot open the store .*: no result store"):
        pipeline.run(str(TOY_FILE), tmp_path / "s.zarr", panels=["single"], cluster=profile)
    monkeypatch.undo()
    assert pipeline.resume(tmp_path / "s.zarr", cluster=profile).complete


def test_checks_of_workers_that_left_run_on_others(cluster, profile, tmp_path, monkeypatch):
    threads = checks.Client.nthreads
    gone = {"tcp://127.0.0.1:9": 1}
    monkeypatch.setattr(checks.Client, "nthreads", lambda *args: {**threads(*args), **gone})
    assert pipeline.run(str(TOY_FILE), tmp_path / "s.zarr", panels=["single"], cluster=profile).complete


def test_client_that_is_closed_before_the_check_has_lost_its_scheduler(cluster):
    client = Client(cluster, set_as_default=False)
    client.close()
    with pytest.raises(ExecutionError, match=r"^the connection to the scheduler was lost; restart"):
        checks.refuse_unfit_workers(client, "run", source_of(toy.STUDY), {})


@pytest.mark.parametrize(
    ("study", "spec_sha256", "message"),
    [(STUDY, "0" * 64, "another session has extended it"), (replace(STUDY, version=9), "", "have different versions")],
)
def test_task_of_another_spec_than_the_stored_one_is_refused(complete_store, monkeypatch, study, spec_sha256, message):
    monkeypatch.setattr(work, "get_worker", lambda: SimpleNamespace(address="tcp://h:1"))
    store = ResultStore.open(complete_store)
    task = work.Task(named_source(study), store.url, spec_sha256 or store.attributes["spec_sha256"])
    with pytest.raises(ExecutionError, match=message):
        task.opened()
