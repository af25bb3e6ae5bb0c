"""Tests that the cluster check finds workers with other code, with older versions, or without access to the store."""

import importlib.metadata
import os
import shutil
import subprocess
import sys
import time
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
import yaml
from distributed import Client

from pipeline.clusters.check import (
    OWN_PACKAGES,
    _store_faults,
    check_workers,
    hash_sources,
)
from pipeline.clusters.cluster import connect, reach, requested_workers
from pipeline.clusters.launch import ONE_THREAD, obstacle
from pipeline.clusters.profiles import THREADS, Profile, load_profile
from pipeline.errors import BadInputError
from tests.pipeline.faults.harness import dask_processes
from tests.pipeline.helpers import refusal

pytestmark = pytest.mark.slow  # this file takes half a minute or more

ROOT = Path(__file__).parents[2]
PROCESSES = Profile("processes", kwargs={"n_workers": 2})


@pytest.fixture
def command(dpstudies, monkeypatch, tmp_path):
    """Return a function that runs ``dpstudies cluster check`` in an empty folder and returns (code, out, err)."""
    monkeypatch.chdir(tmp_path)
    return partial(dpstudies, "cluster", "check")


def changed_copy(folder):
    """Copy the packages, change a comment in one of them, and return the path of the copy."""
    for package in OWN_PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__", "*.gz", "*.npz"))
    with open(folder / "mechanisms" / "__init__.py", "a") as file:
        file.write("# one more line\n")
    return folder


# Code


def test_hashes_change_with_lines_and_files(tmp_path, monkeypatch):
    package = tmp_path / "some_package"
    package.mkdir()
    (package / "__init__.py").write_text("x = 1\n")
    (package / "data.csv").write_text("1\n")
    monkeypatch.syspath_prepend(tmp_path)

    def found():
        return hash_sources(("some_package",))["some_package"]

    hashes = [found()]
    (package / "data.csv").write_text("2\n")
    assert found() == hashes[0]  # files other than Python sources do not change the hash
    (package / "__init__.py").write_text("x = 2\n")
    hashes.append(found())
    (package / "more.py").write_text("")
    hashes.append(found())
    (package / "more.py").rename(package / "mere.py")
    hashes.append(found())
    assert len(set(hashes)) == 4
    assert hash_sources(("no_such_package",)) == {"no_such_package": ""}


def test_worker_with_other_code_is_found(command, tmp_path):
    """Workers with a changed line, an older version or no package are reported, and a run refuses to use them."""
    older, none = tmp_path / "older", tmp_path / "none"
    (older / "dpstudies-0.0.9.dist-info").mkdir(parents=True)
    (older / "dpstudies-0.0.9.dist-info/METADATA").write_text(
        "Metadata-Version: 2.1\nName: dpstudies\nVersion: 0.0.9\n"
    )
    (none / "pipeline").mkdir(parents=True)
    (none / "pipeline" / "__init__.py").write_text("")
    (tmp_path / "other").mkdir()
    paths = [ROOT, changed_copy(tmp_path / "other"), f"{older}{os.pathsep}{ROOT}", f"{none}{os.pathsep}{ROOT}"]
    with dask_processes(tmp_path, *({"PYTHONPATH": str(path)} for path in paths)) as address:
        profile = Profile("a", address=address)
        with reach(profile) as client:
            client.wait_for_workers(4, timeout=60)
            faults = sorted(check_workers(client, str(tmp_path / "s.zarr")).values())
        here = importlib.metadata.version("dpstudies")
        assert faults[:3] == [[], [f"dpstudies 0.0.9, here {here}"], ["package mechanisms has other code"]]
        assert faults[3][0] == "package pipeline has other code"
        (tmp_path / "c.yaml").write_text(yaml.safe_dump({"profiles": {"a": {"address": address}}}))
        code, out, _ = command("c.yaml", "--store", "s.zarr")
        assert (code, out.count("  ok\n"), out.count("has other code")) == (1, 1, 2)
        assert "1 of 4 workers is ok (checked: same code, access to s.zarr from all)" in out
        with refusal("cannot load dpstudies: ", "; install the same version there"):
            connect(profile).__enter__()
    assert not (tmp_path / "s.zarr").exists()


# Clusters of several machines, simulated on one

SSH_SERVER = """
import asyncio, asyncssh

async def execute(process):
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), asyncio.subprocess.PIPE)
    child = await asyncio.create_subprocess_shell("exec " + process.command, **pipes)
    try:
        await process.redirect(stdin=child.stdin, stdout=child.stdout, stderr=child.stderr)
        ends = [asyncio.ensure_future(end) for end in (child.wait(), process.wait_closed())]
        await asyncio.wait(ends, return_when="FIRST_COMPLETED")
        process.exit(child.returncode or 0)
    finally:
        if child.returncode is None:
            child.terminate()

class Server(asyncssh.SSHServer):
    def begin_auth(self, username):
        return False

async def serve():
    key = asyncssh.generate_private_key("ssh-ed25519")
    server = await asyncssh.create_server(Server, "127.0.0.1", 0, server_host_keys=[key], process_factory=execute)
    print(server.get_port(), flush=True)
    await asyncio.sleep(120)

asyncio.run(serve())
"""


def test_workers_by_ssh(tmp_path):
    server = subprocess.Popen([sys.executable, "-c", SSH_SERVER], stdout=subprocess.PIPE, text=True)
    try:
        connect_options = {"port": int(server.stdout.readline()), "known_hosts": None, "username": "me"}
        local = {"host": "127.0.0.1"}
        kwargs = {
            "hosts": ["127.0.0.1"] * 3,
            "connect_options": connect_options,
            "scheduler_options": local,
            "worker_options": {**local, "nthreads": 1, "memory_limit": "1GB"},
        }
        profile = Profile("a", class_name="SSHCluster", kwargs=kwargs, env={"TOY_SETTING": "x"})
        with connect(profile) as client:
            assert [*check_workers(client, str(tmp_path / "s.zarr")).values()] == [[], []]
            for environment in client.run(lambda: dict(os.environ)).values():
                assert environment.items() >= {**ONE_THREAD, "TOY_SETTING": "x"}.items()
    finally:
        server.terminate()
        server.communicate(timeout=10)


def test_workers_from_a_queue(command, monkeypatch, tmp_path):
    """Workers that a simulated queue starts have the environment variables that the job script exports."""
    programs = {
        "sbatch": 'cp "$1" "$0.job"; setsid bash "$0.job" >"$0.log" 2>&1 & echo "Submitted batch job $!"',
        "scancel": 'kill -- "-$1"',
    }
    (tmp_path / "bin").mkdir()
    for name, text in programs.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    kwargs = {"cores": 2, "processes": 2, "memory": "2GB", "walltime": "00:05:00", "interface": "lo"}
    profile = {"module": "dask_jobqueue", "class": "SLURMCluster", "kwargs": kwargs, "scale": 2, "env": {"TOY": "a b"}}
    (tmp_path / "c.yaml").write_text(yaml.safe_dump({"profiles": {"queue": profile}}))
    code, out, _ = command("c.yaml", "--store", "s.zarr")
    assert (code, "2 of 2 workers are ok" in out) == (0, True), out
    with connect(load_profile("c.yaml")) as client:
        client.wait_for_workers(2, timeout=60)
        for environment in client.run(lambda: dict(os.environ)).values():
            assert environment.items() >= {**ONE_THREAD, "TOY": "a b"}.items()


# Location of the store


@pytest.mark.parametrize(("existing", "profile"), [(True, PROCESSES), (False, THREADS)])
def test_location_that_is_not_shared_is_found_and_a_shared_folder_is_unchanged(tmp_path, existing, profile):
    """Each process has a memory of its own, which is not shared."""
    store = tmp_path / "s.zarr"
    if existing:
        store.mkdir()
    not_shared = "does not see the files of this process in memory://folder: the folder is not shared"
    with reach(profile) as client:
        checks = check_workers(client, str(store))
        assert [*checks.values()] == [[]] * profile.kwargs["n_workers"]
        assert checks.keys() == client.nthreads().keys()
        assert requested_workers(profile, client) == len(checks)
        for faults in check_workers(client, "memory://folder/s.zarr").values():
            assert faults == ([not_shared] if profile is PROCESSES else [])
    assert list(tmp_path.rglob("*")) == ([store] if existing else [])


def test_worker_with_a_copy_of_the_folder_is_found(tmp_path):
    mirror = tmp_path / "mirror"
    shared = tmp_path / "shared"
    shared.mkdir()

    class Client:
        def run(self, function, path, *args, workers, on_error):
            shutil.copytree(shared, mirror, dirs_exist_ok=True)
            moved = [value.replace(str(shared), str(mirror)) for value in (path, *args)]
            return {workers[0]: function(*moved)}

    faults = _store_faults(Client(), str(shared / "s.zarr"), ["w"])
    assert faults == {"w": f"its files in {shared} are not visible to this process: the folder is not shared"}
    assert list(shared.iterdir()) == []


def test_location_without_write_access_is_refused():
    with reach(THREADS) as client, refusal("this process cannot write to /proc: ", "; choose another --store"):
        check_workers(client, "/proc/s.zarr")


def test_a_bucket(object_server):
    with reach(Profile("a", kwargs={"n_workers": 1})) as client:
        assert [*check_workers(client, "s3://studies/a/s.zarr").values()] == [[]]
        with pytest.raises(BadInputError, match="cannot be reached: HTTP status 404"):
            check_workers(client, "s3://no-such-bucket/s.zarr")
    assert object_server.objects == {}


# The command


def test_check_of_threads(command, tmp_path):
    shutil.copy(ROOT / "cluster.yaml", tmp_path)
    code, out, err = command("threads", "--store", "s.zarr")
    assert (code, "1 of 1 worker is ok (checked: same code, access to s.zarr from all)" in out) == (0, True)
    assert "starts       distributed.LocalCluster" in out
    assert "waiting for workers" in err
    assert [path.name for path in tmp_path.iterdir()] == ["cluster.yaml"]


def test_check_without_a_queue(command, monkeypatch, tmp_path):
    shutil.copy(ROOT / "cluster.yaml", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    code, out, _ = command("slurm")
    assert code == 1
    assert "#SBATCH -t 01:00:00" in out
    assert "not started, no worker checked: sbatch is not on the PATH" in out
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    code, out, _ = command("cluster.yaml:kubernetes")
    assert (code, "kind: DaskCluster" in out, "no Kubernetes configuration" in out) == (1, True, True)
    code, out, _ = command("ssh", "--no-connect")
    assert (code, "node2.example" in out, "--no-connect was given" in out) == (0, True, True)


def test_refused_jobs_end_the_check_at_once(command, monkeypatch, tmp_path):
    """The profile waits for a day; a batch system that refuses its jobs ends the check, in one line with the reason."""
    shutil.copy(ROOT / "cluster.yaml", tmp_path)
    (tmp_path / "sbatch").write_text("#!/bin/sh\necho 'sbatch: error: invalid account' >&2\nexit 1\n")
    (tmp_path / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    started = time.monotonic()
    code, _, err = command("slurm")
    assert code == 2
    assert time.monotonic() - started < 30
    waiting, refused = err.strip().splitlines()
    assert waiting.startswith("connecting; then waiting for workers")
    assert refused.startswith("dpstudies: the batch system refused 1 of 1 job of profile slurm: ")
    assert "sbatch: error: invalid account; correct the profile" in refused


def test_obstacles(monkeypatch, tmp_path):
    slurm = load_profile(f"{ROOT}/cluster.yaml:slurm")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadInputError, match="profile slurm cannot be started: sbatch is not on the PATH"):
        connect(slurm).__enter__()
    (tmp_path / "sbatch").write_text("#!/bin/sh\n")
    (tmp_path / "sbatch").chmod(0o755)
    assert obstacle(slurm) == ""
    kubernetes = load_profile(f"{ROOT}/cluster.yaml:kubernetes")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    assert "no Kubernetes configuration" in obstacle(kubernetes)
    (tmp_path / "config").write_text("")
    assert obstacle(kubernetes) == ""


def test_check_by_a_client_without_connection_is_refused_in_one_line(monkeypatch):
    client = Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None, set_as_default=False)
    with closing(client):
        monkeypatch.setattr(client, "get_versions", lambda **options: {})
        with pytest.raises(BadInputError, match=r"^the connection to the scheduler was lost before its workers were"):
            check_workers(client)
    with pytest.raises(BadInputError, match=r"^the connection to the scheduler was lost before its workers were"):
        check_workers(client)
