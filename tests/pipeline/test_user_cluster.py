"""Tests of clients and clusters of the user: they are used, checked, left as they were, and never closed."""

import asyncio
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import dask
import dask.array as da
import pytest
from distributed import Client, LocalCluster, Lock, worker_client

import pipeline
import pipeline.clusters.cluster
from pipeline.blocks.evaluate import Status
from pipeline.clusters.profiles import THREADS
from pipeline.clusters.user_cluster import UserCluster, choose_cluster
from pipeline.errors import BadInputError, ExecutionError
from pipeline.execution import execute
from pipeline.runs.verify import verify
from pipeline.store.result_store import ResultStore
from pipeline.tables.tables import reduce_rows
from tests.pipeline.faults.harness import wait_until
from tests.pipeline.helpers import assert_equal_arrays, count_status, interrupted, panel_of, refusal
from tests.pipeline.toy import COIN, STUDY, coin

OPTIONS = {"processes": False, "dashboard_address": "127.0.0.1:0", "silence_logs": 50}


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(n_workers=2, threads_per_worker=1, **OPTIONS, protocol="tcp://") as cluster:
        yield cluster


@pytest.fixture
def client(cluster):
    with Client(cluster, set_as_default=False) as client:
        yield client
        assert client.status == "running"
        assert client.submit(sum, [1, 2], pure=False).result(30) == 3


@pytest.fixture(autouse=True)
def no_notes_of_commands(monkeypatch):
    """Remove the handler by which a command of an earlier test prints notes of the pipeline."""
    monkeypatch.setattr(logging.getLogger("pipeline"), "handlers", [])


@pytest.fixture(autouse=True)
def no_current_client():
    """Assert that no test leaves a current client, which later tests would use."""
    yield
    with pytest.raises(ValueError, match="No client"):
        Client.current()
    assert dask.config.get("scheduler", None) is None


def state(cluster, client):
    """Return what a run might leave behind on a cluster and in a client, once finished tasks are forgotten."""
    scheduler, deadline = cluster.scheduler, time.monotonic() + 20
    client.who_has()  # earlier messages, such as the graph of an interrupted run, have arrived when this is answered
    while scheduler.tasks and time.monotonic() < deadline:
        time.sleep(0.01)
    return {
        "tasks": list(scheduler.tasks),
        "scheduler plugins": list(scheduler.plugins),
        "plugins of new workers": list(scheduler.worker_plugins),
        "nanny plugins": list(scheduler.nanny_plugins),
        "worker plugins": [sorted(worker.plugins) for worker in cluster.workers.values()],
        "results": client.who_has(),
        "published": client.list_datasets(),
        "futures": sorted(map(str, client.futures)),
        "variables": [sorted(getattr(scheduler.extensions.get("variables"), "variables", {}))],
    }


def profile_of(store):
    return ResultStore.open(store).sessions[-1]["profile"]


# Given clients and clusters


@pytest.mark.parametrize("order", [1, pytest.param(-1, marks=pytest.mark.exhaustive)])
@pytest.mark.slow
def test_all_functions_compute_on_a_given_client_or_cluster(cluster, client, tmp_path, order, capsys):
    given, other = (client, cluster)[::order]
    before, path = state(cluster, client), tmp_path / "s.zarr"
    pipeline.run(COIN, path, trials=5, cluster=given)
    pipeline.extend(path, study=COIN, trials=10, cluster=other)
    pipeline.resume(path, study=COIN, cluster=given)
    assert verify(path, study=COIN, cluster=other).problems == ()
    assert {session["profile"] for session in ResultStore.open(path).sessions} == {"Dask client"}
    pipeline.run(COIN, tmp_path / "t.zarr", trials=10)
    assert_equal_arrays(path, tmp_path / "t.zarr", n_least=2)
    assert state(cluster, client) == before
    assert (client.status, cluster.status.name) == ("running", "running")
    assert capsys.readouterr().err == ""


def test_a_run_until_a_precision_on_a_given_client(cluster, client, tmp_path):
    before = state(cluster, client)
    coins = panel_of(STUDY, "single", trials=2000, block_trials=200)
    store = pipeline.run(coins, tmp_path / "s.zarr", until="mcse(heads) <= 0.03", cluster=client)
    assert pipeline.summarise(pipeline.open_results(store)["single"].to_dataset()).heads_mcse <= 0.03
    assert state(cluster, client) == before


def failing(data, setting, streams):
    raise LookupError("never works")


@pytest.mark.parametrize("error", [KeyboardInterrupt, pytest.param(ZeroDivisionError, marks=pytest.mark.exhaustive)])
@pytest.mark.slow
def test_nothing_is_left_on_the_cluster_after_an_exception(cluster, client, tmp_path, error):
    """Runs in sequence on one client: one that is interrupted, and one that continues it."""
    before = state(cluster, client)
    interrupted(pipeline.run, COIN, tmp_path / "s.zarr", cluster=client, error=error)
    assert state(cluster, client) == before
    assert pipeline.run(COIN, tmp_path / "s.zarr", cluster=client).complete
    assert state(cluster, client) == before


@pytest.mark.slow
def test_nothing_is_left_on_the_cluster_after_a_method_that_fails_on_all_trials(cluster, client, tmp_path):
    before, (panel,) = state(cluster, client), COIN.panels
    study = panel_of(COIN, "single", methods=(replace(panel.methods[0], evaluate=failing),), trials=200)
    with pytest.raises(ExecutionError):
        pipeline.run(study, tmp_path / "s.zarr", cluster=client)
    assert state(cluster, client) == before


def test_nothing_is_left_on_the_cluster_after_an_interrupted_check(cluster, client, tmp_path, monkeypatch):
    before = state(cluster, client)

    monkeypatch.setattr("pipeline.execution.in_flight.TasksInFlight.wait", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt) as stop:  # whose traceback refers to the futures
        pipeline.run(COIN, tmp_path / "s.zarr", cluster=client)
    assert state(cluster, client) == before
    assert not Path(tmp_path, "s.zarr").exists()
    del stop


@pytest.mark.slow
def test_two_runs_at_once_on_a_client(cluster, client, tmp_path):
    before = state(cluster, client)
    with ThreadPoolExecutor(2) as threads:
        stores = [tmp_path / f"{k}.zarr" for k in range(2)]
        for store in threads.map(lambda path: pipeline.run(COIN, path, cluster=client, progress=False), stores):
            assert store.complete
    assert_equal_arrays(*stores, n_least=2)
    assert state(cluster, client) == before


def test_a_client_that_is_closed_during_a_run(tmp_path):
    with LocalCluster(n_workers=1, **OPTIONS) as cluster:
        client = Client(cluster, set_as_default=False)

        def close(works):
            return lambda receipt: client.close()

        with pytest.raises(ExecutionError, match=r"^the connection to the scheduler was lost; .*resume$"):
            pipeline.run(COIN, tmp_path / "s.zarr", cluster=client, progress=close)
        assert "ended" in ResultStore.open(tmp_path / "s.zarr").sessions[-1]
        with Client(cluster, set_as_default=False) as other:
            assert "dpstudies" not in str(state(cluster, other))
        assert pipeline.resume(tmp_path / "s.zarr", study=COIN, cluster=cluster).complete


@pytest.mark.slow
def test_a_trial_that_kills_its_worker_on_a_cluster_of_the_user(tmp_path):
    """Its worker is restarted as often as the scheduler allows failures, and only this trial is stored as killed."""
    (panel,) = panel_of(STUDY, "faults").panels
    methods = tuple(method for method in panel.methods if method.name in ("fine", "deadly"))
    study, deadly = panel_of(STUDY, "faults", methods=methods), {"killer": [5], "n": [3]}
    before = dask.config.get("distributed.deploy.lost-worker-timeout", None)
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs=50) as cluster,
    ):
        store = pipeline.run(study, tmp_path / "s.zarr", values=deadly, cluster=cluster)
        assert len(cluster.workers) == 1
    ds = pipeline.open_results(store)["faults"].to_dataset()
    counts = count_status(ds)
    assert (counts[Status.OK], counts[Status.KILLED], sum(counts.values())) == (23, 1, 24)
    error = ds["error"].sel({"algorithm": "deadly", "n": 3, "trial": 5}).values.item()
    assert error.startswith("the process that computed this trial terminated: ")
    assert error.endswith("again: dpstudies trial STORE --panel faults --cell n=3 --trial 5")
    assert dask.config.get("distributed.deploy.lost-worker-timeout", None) == before


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (3, r"^cluster must be a profile \(NAME, FILE or FILE:PROFILE\), a distributed.Client or a .*, got int 3$"),
        (Lock, r"^cluster must be a profile .*, got type "),
        (
            "tcp://127.0.0.1:8786",
            r"^a cluster must be a profile, got the address tcp://127\.0\.0\.1:8786; name .*client",
        ),
    ],
)
def test_other_objects_are_refused(given, message, tmp_path):
    with pytest.raises(BadInputError, match=message):
        pipeline.run(COIN, tmp_path / "s.zarr", cluster=given)
    assert not list(tmp_path.iterdir())


def test_closed_clients_and_clusters_are_refused(tmp_path):
    with LocalCluster(n_workers=1, **OPTIONS) as cluster, Client(cluster, set_as_default=False) as client:
        pass
    for given, label in ((client, "the given client"), (cluster, "the given cluster")):
        with pytest.raises(BadInputError, match=rf"^{label} must be running, got status closed; create a new one$"):
            pipeline.run(COIN, tmp_path / "s.zarr", cluster=given)
    client = Client(**OPTIONS, n_workers=1, set_as_default=False)
    with client.as_current():
        client.close()
        with refusal("Dask's current client must be running, got status closed; ", "threads"):
            pipeline.run(COIN, tmp_path / "s.zarr")
    assert not list(tmp_path.iterdir())


def test_asynchronous_clients_are_refused_in_their_event_loop(tmp_path):
    async def compute():
        async with Client(**OPTIONS, n_workers=1, asynchronous=True) as client:
            for given, label in ((client, "the given client"), (None, "Dask's current client")):
                with pytest.raises(BadInputError, match=rf"^{label} must be synchronous, got an asynchronous Client"):
                    pipeline.run(COIN, tmp_path / "s.zarr", cluster=given)
            assert not list(tmp_path.iterdir())
            # in another thread, the methods of the client are synchronous
            return await asyncio.to_thread(pipeline.run, COIN, tmp_path / "s.zarr", trials=4, cluster=client)

    assert asyncio.run(compute()).complete


def test_a_client_without_workers(tmp_path, monkeypatch):
    monkeypatch.setattr(pipeline.clusters.cluster, "_SILENT_SECONDS", 0.2)
    monkeypatch.setattr(UserCluster, "wait", 0.5)
    hint = r"start workers, such as with cluster\.scale\(2\), or wait for them with client\.wait_for_workers\(1\)"
    with LocalCluster(n_workers=0, **OPTIONS) as cluster, Client(cluster, set_as_default=False) as client:
        before = state(cluster, client)
        with (
            pytest.warns(UserWarning, match=rf"^no worker .* of the given client after 0\.2 s; .* to 0\.5 s.*{hint}$"),
            pytest.raises(BadInputError, match=rf"^no worker .* of the given client \(waited 0\.5 s\): {hint}$"),
        ):
            pipeline.run(COIN, tmp_path / "s.zarr", cluster=client)
        assert not list(tmp_path.iterdir())
        assert state(cluster, client) == before


# Dask's current client


@pytest.mark.slow
def test_the_current_client_is_used_and_named_in_one_line(cluster, tmp_path, capsys):
    with Client(cluster) as client:
        pipeline.run(COIN, tmp_path / "s.zarr", trials=4)
        line = f"computing on Dask's current client at {client.scheduler.address} (workers: 2, threads: 2); "
        assert capsys.readouterr().err == f"{line}pass cluster='threads' for threads of this process\n"
        pipeline.run(COIN, tmp_path / "t.zarr", trials=4, cluster="threads")
        with dask.config.set(scheduler="threads"):  # which dask.compute uses then, too
            assert choose_cluster(None) is THREADS
    assert choose_cluster(None) is THREADS
    assert capsys.readouterr().err == ""
    assert [profile_of(tmp_path / f"{name}.zarr") for name in "st"] == ["Dask client", "threads"]


def test_the_innermost_client_is_used(cluster, tmp_path):
    with Client(cluster) as outer:
        assert choose_cluster(None).handle is outer
        with Client(cluster) as inner:
            assert choose_cluster(None).handle is inner
            with outer.as_current():
                assert choose_cluster(None).handle is outer
            assert choose_cluster(cluster).handle is cluster
        assert choose_cluster(None).handle is outer
    assert choose_cluster(None) is THREADS


def test_a_client_of_another_thread_is_used_if_dask_uses_it(cluster):
    """A default client belongs to the process, and one that is only current to its thread, as for `dask.compute`."""
    with ThreadPoolExecutor(1) as other:
        default = other.submit(Client, cluster).result()
        assert choose_cluster(None).handle is default
        other.submit(default.close).result()
        current = other.submit(Client, cluster, set_as_default=False).result()
        entered = current.as_current()
        other.submit(entered.__enter__).result()
        assert other.submit(choose_cluster, None).result().handle is current
        assert choose_cluster(None) is THREADS
        other.submit(entered.__exit__, None, None, None).result()
        current.close()


def run_in_task(path, given):
    """Compute a study in a task of Dask that holds the only thread of its cluster."""
    if given == "worker_client":
        with worker_client() as client:
            return pipeline.run(COIN, path, trials=4, cluster=client).complete
    return pipeline.run(COIN, path, trials=4, cluster=given).complete


@pytest.mark.parametrize("given", [None, "worker_client", "threads"])
def test_a_run_within_a_task_leaves_its_thread_to_the_blocks(tmp_path, given):
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, **OPTIONS) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        before = state(cluster, client)
        assert client.submit(run_in_task, tmp_path / "s.zarr", given).result(60)
        assert profile_of(tmp_path / "s.zarr") == ("threads" if given == "threads" else "Dask client")
        assert client.submit(sum, [1, 2]).result(30) == 3
        if given == "worker_client":  # Dask makes it the default client of the process
            Client.current().close()
        assert state(cluster, client) == before


@pytest.fixture
def no_ambient_client(monkeypatch):
    """Fail if Dask is asked for its current client."""
    refuse = Mock(side_effect=AssertionError("Dask was asked for its current client"))
    monkeypatch.setattr("pipeline.clusters.user_cluster._current_client", refuse)


@pytest.mark.slow
def test_commands_do_not_use_the_current_client(cluster, tmp_path, no_ambient_client, dpstudies):
    store, study = tmp_path / "s.zarr", Path(__file__).with_name("toy.py")
    with Client(cluster):
        before = list(cluster.scheduler.task_prefixes)
        for words in (
            ("run", study, "--store", store, "--panel", "single", "--trials", 4),
            ("extend", store, "--trials", 6),
            ("resume", store),
            ("verify", store),
        ):
            code, _, errors = dpstudies(*words)
            assert code == 0
            assert "current client" not in errors
        assert list(cluster.scheduler.task_prefixes) == before
    assert {session["profile"] for session in ResultStore.open(store).sessions} == {"threads"}


@pytest.mark.parametrize("command", ["regress", "partition"])
def test_commands_on_tables_do_not_use_the_current_client(tmp_path, monkeypatch, dpstudies, command):
    asked = []

    def stop(arrays, map_rows, combine, cluster):
        asked.append(cluster)
        raise BadInputError("stopped")

    for module in ("regression", "divided_rows"):
        monkeypatch.setattr(f"studies.own_data.{module}.reduce_rows", stop)
    (tmp_path / "t.csv").write_text("x,y\n" + "0.1,0.2\n" * 300)
    options = {
        "regress": ("--range", "x=0:1", "--range", "y=0:1"),
        "partition": ("--coefficient", "x", "--error-variance", 1, "--partitions", 5, "--cutoffs", 0),
    }[command]
    words = (tmp_path / "t.csv", "--target", "y", *options, "--epsilon", 9, "--seed", 1)
    code, _, errors = dpstudies(command, *words)
    assert (code, errors) == (2, "dpstudies: stopped\n")
    assert asked == [THREADS]


# Growth, checks and names


def test_the_window_of_a_given_client_lets_an_adaptive_cluster_double():
    four_threads = SimpleNamespace(cluster=None, nthreads=lambda: {"a": 2, "b": 2})
    window = execute.Window(four_threads, UserCluster(None))
    window.update()
    assert (window.n_threads, window.n_tasks) == (8, 16)  # the duration of a task is unknown
    for seconds in (1e-3, 1.0, 10.0):
        window.note_task(seconds)
        requested = window.n_tasks * max(window._task_seconds, 1.0) / window._target
        assert requested >= 8
        assert window.n_tasks <= 8 * 8


def wait_and_count(data, setting, streams):
    time.sleep(0.5)
    return coin(data, setting, streams)


@pytest.mark.slow
def test_an_adaptive_cluster_of_the_user_grows_from_no_worker(tmp_path):
    (panel,) = COIN.panels
    study = panel_of(COIN, "single", methods=(replace(panel.methods[0], evaluate=wait_and_count),), trials=40)
    sizes, over = [], threading.Event()
    with (
        LocalCluster(n_workers=0, threads_per_worker=1, **OPTIONS) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        cluster.adapt(minimum=0, maximum=2, interval="200ms")

        def watch():
            while not over.wait(0.1):
                sizes.append(len(cluster.scheduler.workers))

        threading.Thread(target=watch, daemon=True).start()
        assert pipeline.run(study, tmp_path / "s.zarr", cluster=client).complete
        over.set()
    assert max(sizes) == 2


def test_tasks_are_grouped_by_study_and_panel(cluster, client, tmp_path):
    """The names of groups are those of the study and of its panel, though Dask cuts keys at hyphens."""
    named = replace(panel_of(COIN, "single"), name="coin-tosses")
    pipeline.run(replace(named, panels=(replace(named.panels[0], name="single-coin"),)), tmp_path / "s.zarr",
                 cluster=client)  # fmt: skip
    prefixes = list(cluster.scheduler.task_prefixes)
    assert "coin_tosses/single_coin" in prefixes
    assert not {"coin", "single"} & set(prefixes)


@pytest.mark.slow
def test_workers_without_the_module_of_a_study(tmp_path, monkeypatch):
    """A study in a module is refused before anything is written; one in memory travels with its functions."""
    folder = tmp_path / "here"
    folder.mkdir()
    toy = Path(__file__).with_name("toy.py").read_text()
    (folder / "only_here.py").write_text(toy)
    monkeypatch.chdir(tmp_path)
    with LocalCluster(n_workers=1, processes=True, dashboard_address="127.0.0.1:0", silence_logs=50) as cluster:
        monkeypatch.syspath_prepend(str(folder))
        import only_here

        with pytest.raises(BadInputError, match=r"^worker tcp://\S+ cannot load the study: .*'only_here'; install"):
            pipeline.run(only_here.STUDY, tmp_path / "s.zarr", cluster=cluster)
        assert not (tmp_path / "s.zarr").exists()
        in_memory = panel_of(STUDY, "single", simulate=lambda cell, streams: None)
        assert pipeline.run(in_memory, tmp_path / "s.zarr", cluster=cluster).complete
        assert profile_of(tmp_path / "s.zarr") == "Dask client"


# Tables


def test_tables_are_reduced_on_given_and_current_clusters(cluster, client, capsys):
    before, rows = state(cluster, client), da.ones((1000, 2), chunks=(100, 2))

    def add(first, block):
        return int(block.sum())

    for given in (client, cluster, THREADS, "threads"):
        assert reduce_rows([rows], add, sum, cluster=given) == 2000
    assert capsys.readouterr().err == ""
    with client.as_current():
        assert reduce_rows([rows], add, sum) == 2000
    assert capsys.readouterr().err.count("computing on Dask's current client") == 1
    with pytest.raises(ZeroDivisionError):
        reduce_rows([rows], lambda first, block: 1 // 0, sum, cluster=client)
    assert state(cluster, client) == before


# Submissions


def test_submissions_to_a_cluster_that_ends_with_this_process_are_refused(cluster, client, tmp_path):
    for given in (client, cluster):
        with refusal("cluster must be ", ", got the given ", ", whose scheduler ends with th"):
            pipeline.submit("study.py", tmp_path / "s.zarr", cluster=given)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_submission_to_a_client_of_a_scheduler(cluster, tmp_path):
    with Client(cluster.scheduler_address, set_as_default=False) as client:
        before = state(cluster, client)
        submission = pipeline.submit(COIN, tmp_path / "s.zarr", cluster=client)
        assert (submission.address, submission.cluster) == (client.scheduler.address, "")
        assert submission.is_running(client) in (True, False)
        wait_until(lambda: "finished" in ResultStore.open(tmp_path / "s.zarr").sessions[-1])
        with pytest.raises(BadInputError, match="no submission is open"):
            pipeline.cancel(tmp_path / "s.zarr", cluster=client)
        with (
            Client(**OPTIONS, n_workers=1, set_as_default=False) as other,
            pytest.raises(BadInputError, match=r"^cluster must be .*, or its client, got the given client with"),
        ):
            submission.is_running(other)
        assert client.status == "running"
        assert state(cluster, client) == before
