"""Tests of started clusters: they print nothing, listen on loopback only, and are stopped at the end."""

import importlib.util
import os
import socket
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import dask
import psutil
import pytest
import yaml
from distributed import Client, LocalCluster
from distributed.comm import CommClosedError
from threadpoolctl import threadpool_info

import pipeline.clusters.cluster
from pipeline.clusters.cluster import connect
from pipeline.clusters.launch import ONE_THREAD, available_cores, launch_document, make_launch
from pipeline.clusters.profiles import THREADS, Profile, load_profile
from pipeline.errors import BadInputError
from tests.pipeline.helpers import blas_threads, refusal, run_python

SHIPPED = Path(__file__).parents[2] / "cluster.yaml"


# Arguments and job scripts

BATCH = {
    "slurm": ["#SBATCH -t 01:00:00", "#SBATCH --mem=15G", "#SBATCH --cpus-per-task=8"],
    "pbs": ["#PBS -l walltime=01:00:00", "#PBS -l select=1:ncpus=8:mem=15GB"],
    "lsf": ["#BSUB -W 01:00", "#BSUB -M 16000000", "#BSUB -n 8"],
    "sge": ["#$ -l h_rt=01:00:00", "#$ -l h_vmem=2G", "#$ -pe smp 8"],
}


@pytest.mark.parametrize("name", BATCH)
def test_job_scripts(name, listening):
    """The job scripts of the shipped profiles contain the batch system's options and the environment variables."""
    shipped = load_profile(f"{SHIPPED}:{name}")
    profile = replace(shipped, env={"TOY_SETTING": "two words", "TOY_TOKEN": "hush"})
    lines = launch_document(profile).splitlines()
    exports = [f"export {variable}=1" for variable in ONE_THREAD]
    assert {*BATCH[name], *exports, "export TOY_SETTING='two words'"} <= set(lines)
    command = lines[-1].split()
    assert command[command.index("--memory-limit") + 1] == "1.86GiB"
    assert command[command.index("--nthreads") + 1] == "1"
    assert command[command.index("--nworkers") + 1] == "8"
    assert lines[-1].endswith(" --dashboard-address 127.0.0.1:0 --lifetime 55m --lifetime-stagger 4m")
    assert "tcp://SCHEDULER:PORT" in command
    assert "hush" not in "".join(lines)  # the preview does not show secrets
    assert "export TOY_TOKEN=hush" in make_launch(profile).kwargs["job_script_prologue"]  # the job receives the secrets
    assert not listening()


def test_job_script_keeps_the_jobqueue_configuration():
    """Values of ``jobqueue.yaml`` apply if the profile does not specify them."""
    import dask_jobqueue  # noqa: F401  the import sets its defaults

    site = {
        "jobqueue.slurm.job-script-prologue": ["module load python"],
        "jobqueue.slurm.worker-extra-args": ["--resources GPU=1"],
        "jobqueue.slurm.scheduler-options": {"port": 8786},
    }
    bare = Profile("a", "dask_jobqueue", "SLURMCluster", kwargs={"cores": 1, "memory": "1GB"})
    with dask.config.set(site):
        silent = make_launch(bare).kwargs
        said = {"job_script_prologue": ["echo"], "scheduler_options": {"dashboard_address": ":8787"}}
        other = make_launch(replace(bare, kwargs={**bare.kwargs, **said})).kwargs
    assert silent["job_script_prologue"][-1] == "module load python"
    assert silent["worker_extra_args"][-1] == "--resources GPU=1"
    assert silent["scheduler_options"] == {"dashboard_address": "127.0.0.1:0", "port": 8786}
    assert other["job_script_prologue"][-1] == "echo"
    assert other["scheduler_options"] == {"dashboard_address": ":8787"}


@pytest.mark.slow  # the import of the extra `cluster` takes seconds
def test_kubernetes_resource():
    profile = replace(load_profile(f"{SHIPPED}:kubernetes"), env={"TOY_SETTING": "x"})
    resource = yaml.safe_load(launch_document(profile))
    assert (resource["kind"], resource["metadata"]["name"]) == ("DaskCluster", "dpstudies")
    container = resource["spec"]["worker"]["spec"]["containers"][0]
    assert container["image"] == profile.kwargs["image"]
    assert container["args"][:3] == ["dask-worker", "--nthreads", "2"]
    assert container["resources"]["limits"] == {"cpu": "2", "memory": "4Gi"}
    assert {"name": "TOY_SETTING", "value": "x"} in container["env"]
    assert {"name": "OMP_NUM_THREADS", "value": "1"} in container["env"]


def test_dashboards_of_remote_machines_listen_on_loopback():
    """Dashboards of SSH clusters listen on the loopback interface unless the profile sets another address."""
    ssh = make_launch(Profile("a", class_name="SSHCluster", kwargs={"hosts": ["h", "h"]}))
    for options in ("scheduler_options", "worker_options"):
        assert ssh.kwargs[options] == {"dashboard_address": "127.0.0.1:0"}
    open_one = {"hosts": ["h", "h"], "scheduler_options": {"dashboard_address": ":8787"}}
    ssh = make_launch(Profile("a", class_name="SSHCluster", kwargs=open_one))
    assert ssh.kwargs["scheduler_options"] == {"dashboard_address": ":8787"}


@pytest.mark.parametrize(
    ("package", "module", "class_name"),
    [
        ("dask_jobqueue", "dask_jobqueue", "SLURMCluster"),
        ("dask_kubernetes", "dask_kubernetes.operator", "KubeCluster"),
        ("asyncssh", "distributed", "SSHCluster"),
    ],
)
def test_missing_package_is_reported(monkeypatch, package, module, class_name):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for loaded in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, loaded)
    if package != "asyncssh":
        monkeypatch.setitem(sys.modules, package, None)  # None makes the import raise ModuleNotFoundError
    with refusal("pip install 'dpstudies[cluster]'"):
        make_launch(Profile("a", module, class_name))


# Connecting


@pytest.fixture
def listening():
    """Return the addresses on which this process and its children listen that did not listen before the test."""

    def sockets():
        me = psutil.Process()
        connections = [
            c for process in (me, *me.children(recursive=True)) for c in process.net_connections(kind="inet")
        ]
        return {connection.laddr for connection in connections if connection.status == psutil.CONN_LISTEN}

    before = sockets()  # servers of other tests that end after them, such as an object store's
    return lambda: {address.ip for address in sockets() - before}


@pytest.mark.usefixtures("two_threads")
def test_threads_compute_in_this_process_with_one_blas_thread_each(listening):
    with connect(THREADS) as client:
        assert sum(client.nthreads().values()) == available_cores()
        assert client.submit(os.getpid).result() == os.getpid()
        assert client.submit(blas_threads, pure=False).result() == {1}
        assert listening()
        assert listening() <= {"127.0.0.1", "::1"}
    assert blas_threads() == {2}


SETS_LIMITS = """
import sys
from threadpoolctl import threadpool_limits
from pipeline.blocks.one_thread import one_thread
from pipeline.clusters.profiles import THREADS
from pipeline.clusters.cluster import connect
from tests.pipeline.helpers import blas_threads

if sys.argv[1] == "the pipeline first":
    with one_thread():
        pass
threadpool_limits(2)
before = blas_threads()
with connect(THREADS) as client:
    print(before, client.submit(blas_threads, pure=False).result(), end=" ")
print(blas_threads())
"""


@pytest.mark.slow
@pytest.mark.parametrize("first", ["the pipeline first", "the user first"])
def test_one_blas_thread_with_any_limit_of_the_user(first):
    """The limit to one BLAS thread overrides the program's own limit, which is restored afterwards."""
    before, inside, after = run_python("-c", SETS_LIMITS, first, check=True).stdout.split()
    assert inside == "{1}"
    assert after == before


def test_listening_on_all_interfaces_is_detected(listening):
    """A dashboard on all interfaces, Dask's default, is detected (negative control)."""
    with LocalCluster(processes=False, n_workers=1, dashboard_address=":0") as cluster, Client(cluster):
        assert not listening() <= {"127.0.0.1", "::1"}


@pytest.mark.slow
def test_processes_listen_on_the_loopback_interface_with_one_thread_each(listening):
    shipped = load_profile(f"{SHIPPED}:processes")
    with connect(replace(shipped, kwargs={**shipped.kwargs, "n_workers": 1}, env={"TOY_SETTING": "x"})) as client:
        pid, environment = client.submit(lambda: (os.getpid(), dict(os.environ))).result()
        assert pid != os.getpid()
        assert {name: environment.get(name) for name in (*ONE_THREAD, "TOY_SETTING")} == {
            **ONE_THREAD,
            "TOY_SETTING": "x",
        }
        pools = client.submit(threadpool_info).result()
        assert {pool["num_threads"] for pool in pools} == {1}
        assert set(client.nthreads().values()) == {1}
        assert listening()
        assert listening() <= {"127.0.0.1", "::1"}
    assert not psutil.pid_exists(pid)


class OtherCluster(LocalCluster):
    """Cluster class that the pipeline does not treat specially."""


@pytest.mark.slow
def test_environment_of_other_classes_is_set_by_a_plugin():
    """For other cluster classes, a plugin sets environment variables on all workers, including later ones."""
    kwargs = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": None, "silence_logs": 50}
    kwargs["worker_dashboard_address"] = "127.0.0.1:0"
    profile = Profile("a", OtherCluster.__module__, "OtherCluster", kwargs=kwargs, env={"TOY_SETTING": "x"})
    with connect(profile) as client:
        client.cluster.scale(2)
        client.wait_for_workers(2, timeout=30)
        found = list(client.run(lambda: dict(os.environ)).values())
        assert len(found) == 2
        for environment in found:
            assert environment.items() >= {**ONE_THREAD, "TOY_SETTING": "x"}.items()
    assert "TOY_SETTING" not in os.environ


def test_environment_of_threads_is_restored():
    timeout = dask.config.get("distributed.comm.timeouts.connect")
    with connect(replace(THREADS, env={"TOY_SETTING": "x", "HOME": "/elsewhere"})) as client:
        assert client.submit(os.environ.get, "TOY_SETTING").result() == "x"
        assert os.environ["HOME"] == "/elsewhere"
        # a busy machine may take seconds to connect the processes of a cluster that it starts
        assert dask.config.get("distributed.comm.timeouts.connect") == timeout
    assert "TOY_SETTING" not in os.environ
    assert os.environ["HOME"] != "/elsewhere"


@pytest.mark.slow
@pytest.mark.filterwarnings("default:no worker has joined")  # a busy machine may cause this warning
def test_adaptive_cluster_starts_without_workers():
    profile = Profile("a", kwargs={"n_workers": 0}, adapt={"minimum": 0, "maximum": 1}, wait=30)
    with connect(profile) as client:
        assert client.submit(os.getpid).result() != os.getpid()


def test_no_worker_joins(monkeypatch):
    """Without workers, a warning and then an error give advice."""
    monkeypatch.setattr(pipeline.clusters.cluster, "_SILENT_SECONDS", 0.2)
    options = {"dashboard_address": None, "silence_logs": 50}
    with LocalCluster(processes=False, n_workers=0, protocol="tcp://", **options) as cluster:
        profile = Profile("a", address=cluster.scheduler_address, wait=0.5)
        hint = f"start one with: dask worker {cluster.scheduler_address}"
        with (
            pytest.warns(UserWarning, match=rf"no worker has joined .* after 0\.2 s; waiting up to 0\.5 s.*{hint}"),
            pytest.raises(BadInputError, match=rf"of profile a \(waited 0\.5 s\): {hint}, or increase wait"),
        ):
            connect(profile).__enter__()


@pytest.mark.parametrize(
    ("hint", "profile"),
    [
        ("check the queue with squeue", f"{SHIPPED}:slurm"),
        ("check the queue with bjobs", f"{SHIPPED}:lsf"),
        ("check the queue with qstat", f"{SHIPPED}:sge"),
        pytest.param("kubectl get pods", f"{SHIPPED}:kubernetes", marks=pytest.mark.slow),
        ("remote_python", f"{SHIPPED}:ssh"),
        # the keys of a profile are secret, and other machines have other files
        (
            "start one with: dask worker tls://h:1 --tls-ca-file CA.pem --tls-cert CERTIFICATE.pem --tls-key KEY.pem",
            Profile("a", address="tls://h:1"),
        ),
        ("start one with: dask worker tcp://h:1", Profile("a", address="tcp://h:1")),
        # words are quoted as for a shell
        ("start one with: dask worker 'tcp://h$x:1'", Profile("a", address="tcp://h$x:1")),
        (
            "the script with: dpstudies cluster check 'my jobs' --no-connect",
            Profile("my jobs", "dask_jobqueue", "SLURMCluster", kwargs={"cores": 1, "memory": "1GB"}),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_advice_about_clusters_without_workers(hint, profile):
    advice = pipeline.clusters.cluster._hint(load_profile(profile) if isinstance(profile, str) else profile)
    assert advice == hint if hint.startswith("start one") else hint in advice


class RigidCluster(LocalCluster):
    def scale(self, n):
        if n:  # zero workers are allowed, so that the cluster can stop
            raise ValueError("no room")


class StuckCluster(RigidCluster):
    def close(self, timeout=None):
        super().close(timeout)
        raise TimeoutError("join timed out")  # Dask's event loop may raise this error on a busy machine


@pytest.mark.slow
@pytest.mark.parametrize("cluster", [RigidCluster, StuckCluster])
def test_a_cluster_that_cannot_be_scaled_is_stopped(listening, cluster):
    """An error of its end does not hide the first one."""
    bad = replace(THREADS, module=cluster.__module__, class_name=cluster.__name__, scale=2)
    with refusal("did not start: ValueError: no room"):
        connect(bad).__enter__()
    assert not listening()


def test_profile_values_are_not_changed():
    profile = Profile("a", kwargs={"processes": False, "n_workers": 1, "scheduler_kwargs": {}})
    with connect(profile):
        pass
    assert profile.kwargs == {"processes": False, "n_workers": 1, "scheduler_kwargs": {}}


@pytest.mark.parametrize("n_refused", [1, 2])
def test_a_greeting_with_another_message_is_asked_for_again(monkeypatch, n_refused):
    """The client of Dask requires the greeting of a scheduler alone; a busy scheduler may send more with it."""
    connect_once, refused = Client._ensure_connected, []

    async def ensure_connected(client, timeout=None):
        if len(refused) < n_refused:
            assert refused.append(client), "as if two messages had come at once"
        return await connect_once(client, timeout=timeout)

    with LocalCluster(n_workers=1, processes=False, dashboard_address=None, protocol="tcp://") as cluster:
        profile = Profile("mine", address=cluster.scheduler_address)
        monkeypatch.setattr(Client, "_ensure_connected", ensure_connected)
        outcome = nullcontext() if n_refused == 1 else pytest.raises(BadInputError, match="no scheduler responds")
        with outcome, connect(profile) as client:
            assert client.submit(sum, [1, 2]).result(30) == 3
    assert len(refused) == n_refused


def test_scheduler_lost_while_workers_are_prepared(monkeypatch):
    """Loss of the scheduler is not reported as workers that lack the packages."""

    def run(client, function):
        raise CommClosedError("in <TCP (closed)>: Connection reset by peer")

    monkeypatch.setattr(Client, "run", run)
    with pytest.raises(BadInputError, match=r"connection to the scheduler or to a worker .* was lost: .*; restart"):
        connect(THREADS).__enter__()


@pytest.mark.slow
def test_no_scheduler_answers(monkeypatch):
    monkeypatch.setattr(pipeline.clusters.cluster, "_CONNECT_SECONDS", 1)
    with socket.socket() as taken:  # the port is bound, but nothing listens
        taken.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        started = time.monotonic()
        with pytest.raises(BadInputError, match=rf"no scheduler responds at {address} \(waited 1 s\)"):
            connect(Profile("far", address=address)).__enter__()
        assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    ("message", "profile"),
    [
        ("the cluster of profile a did not start", Profile("a", kwargs={"host": "no-such-host.invalid"})),
        ("no scheduler responds at nonsense://1", Profile("a", address="nonsense://1")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_unusable_clusters_are_refused(monkeypatch, message, profile):
    monkeypatch.setattr(pipeline.clusters.cluster, "_CONNECT_SECONDS", 1)
    with refusal(message):
        connect(profile).__enter__()
