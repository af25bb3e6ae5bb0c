"""Profiles are read strictly, and a cluster that was started is quiet, local, and gone at the end."""

import os
import socket
import threading
import time
from pathlib import Path

import psutil
import pytest
import yaml
from distributed import Client, LocalCluster
from threadpoolctl import threadpool_info, threadpool_limits

import pipeline.cluster
from pipeline.cluster import ONE_THREAD, THREADS, Profile, available_cores, connect, load_profile
from pipeline.errors import BadInputError

SHIPPED = Path(__file__).parents[2] / "cluster.yaml"
LOCAL = {"class": "LocalCluster"}


@pytest.fixture
def write(tmp_path):
    """Write a cluster file; return its path."""

    def write(content):
        path = tmp_path / "c.yaml"
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
        return str(path)

    return write


def profiles(**named):
    return {"profiles": named}


# Reading


def test_no_choice_reads_no_file(monkeypatch):
    def refuse(*_):
        raise AssertionError("a file was read")

    monkeypatch.setattr(Path, "read_text", refuse)
    assert load_profile(None) is THREADS


def test_every_shipped_profile_parses():
    names = list(yaml.safe_load(SHIPPED.read_text())["profiles"])
    assert {"threads", "processes", "address"} <= set(names)
    for name in names:
        assert load_profile(f"{SHIPPED}:{name}").name == name
    assert load_profile(str(SHIPPED)).name == "threads"
    address = load_profile(f"{SHIPPED}:address")
    assert address.address == "tcp://127.0.0.1:8786"


def test_the_shipped_threads_are_the_built_in_ones():
    shipped = load_profile(f"{SHIPPED}:threads")
    assert shipped == THREADS


def test_every_key(write):
    given = {
        "module": "dask_jobqueue",
        "class": "SLURMCluster",
        "args": [1],
        "kwargs": {"cores": 2},
        "scale": 3,
        "env": {"X": 1},
    }
    assert load_profile(write(profiles(a=given))) == Profile(
        "a", "dask_jobqueue", "SLURMCluster", (1,), {"cores": 2}, scale=3, env={"X": "1"}
    )
    adaptive = load_profile(write(profiles(a={**LOCAL, "adapt": {"minimum": 1}})))
    assert (adaptive.module, adaptive.scale, adaptive.adapt) == ("distributed", None, {"minimum": 1})
    secure = load_profile(write(profiles(a={"address": "tls://h:1", "security": {"require_encryption": True}})))
    assert (secure.address, secure.security) == ("tls://h:1", {"require_encryption": True})


def test_choice_of_a_profile(write):
    assert load_profile(write(profiles(only=LOCAL))).name == "only"
    path = write({"default": "b", **profiles(a=LOCAL, b=LOCAL)})
    assert load_profile(path).name == "b"
    assert load_profile(f"{path}:a").name == "a"


@pytest.mark.parametrize(
    ("message", "content", "choice"),
    [
        ("must be YAML", "profiles: [", ""),
        ("must be a mapping, got 'text'", "text", ""),
        ("must be a mapping, got None", "", ""),
        ("unknown key 'profile'; did you mean profiles?", {"profile": {}}, ""),
        ("profiles must be a mapping, got None", {"default": "a"}, ""),
        ("profiles must be a mapping, got ['a']", {"profiles": ["a"]}, ""),
        ("has several profiles: a, b; choose one with", profiles(a=LOCAL, b=LOCAL), ""),
        ("unknown profile 'thread'; did you mean threads?", profiles(threads=LOCAL), ":thread"),
        ("unknown profile 'c'; Allowed: a", {"default": "c", **profiles(a=LOCAL)}, ""),
        ("unknown profile '3'", {"default": 3, **profiles(a=LOCAL)}, ""),
        ("profile a must be a mapping, got 'x'", profiles(a="x"), ""),
        ("profile a: unknown key 'adress'; did you mean address", profiles(a={"adress": "tcp://h:1"}), ""),
        ("profile a: unknown key 'kwarg'; did you mean kwargs", profiles(a={**LOCAL, "kwarg": {}}), ""),
        ("profile a must have either an address or", profiles(a={**LOCAL, "address": "tcp://h:1"}), ""),
        ("profile a must have either an address or", profiles(a={"module": "distributed"}), ""),
        ("profile a must have either an address or", profiles(a={}), ""),
        ("must have scale or adapt, got both", profiles(a={**LOCAL, "scale": 1, "adapt": {"minimum": 1}}), ""),
        ("scale must be a whole number >= 1, got 0", profiles(a={**LOCAL, "scale": 0}), ""),
        ("scale must be a whole number >= 1, got 'two'", profiles(a={**LOCAL, "scale": "two"}), ""),
        ("scale must be a whole number >= 1, got True", profiles(a={**LOCAL, "scale": True}), ""),
        ("address must be like tcp://", profiles(a={"address": 8786}), ""),
        ("address must be like tcp://", profiles(a={"address": "127.0.0.1"}), ""),
        ("kwargs is for a cluster that is started", profiles(a={"address": "tcp://h:1", "kwargs": {}}), ""),
        ("args must be a list, got 1", profiles(a={**LOCAL, "args": 1}), ""),
        ("kwargs must be a mapping, got [1]", profiles(a={**LOCAL, "kwargs": [1]}), ""),
        ("env must be a mapping, got 'X=1'", profiles(a={**LOCAL, "env": "X=1"}), ""),
        ("adapt must be a mapping, got 2", profiles(a={**LOCAL, "adapt": 2}), ""),
        ("security must be a mapping, got True", profiles(a={"address": "tcp://h:1", "security": True}), ""),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refusals(write, message, content, choice):
    with pytest.raises(BadInputError) as caught:
        load_profile(write(content) + choice)
    assert message in str(caught.value)
    assert "c.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_without_profiles(write):
    with pytest.raises(BadInputError, match=r"c\.yaml.*profile") as caught:
        load_profile(write({"profiles": {}}))
    assert "several" not in str(caught.value)


@pytest.mark.parametrize("make", ["absent", "folder", "not text"])
def test_a_file_that_cannot_be_read(tmp_path, make):
    path = tmp_path / "c.yaml"
    if make == "folder":
        path.mkdir()
    elif make == "not text":
        path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInputError, match=r"c\.yaml") as caught:
        load_profile(str(path))
    assert "\n" not in str(caught.value)


# Connecting


def listening():
    """Addresses at which this process and its children listen."""
    me = psutil.Process()
    connections = [c for process in (me, *me.children(recursive=True)) for c in process.net_connections(kind="inet")]
    return {connection.laddr.ip for connection in connections if connection.status == psutil.CONN_LISTEN}


def blas_threads():
    """How many threads each BLAS of this process uses."""
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def set_blas_threads(number):
    """Set the number as if it were the machine's default: by a thread that ends, since a live one would own it."""
    other = threading.Thread(target=threadpool_limits, args=(number,))
    other.start()
    other.join()


def test_threads_compute_in_this_process_with_one_blas_thread_each():
    original = blas_threads()
    set_blas_threads(2)
    before = blas_threads()
    assert set(before) == {2}
    with connect(THREADS) as client:
        assert sum(client.nthreads().values()) == available_cores()
        assert client.submit(os.getpid).result() == os.getpid()
        assert set(client.submit(blas_threads, pure=False).result()) == {1}
        assert listening() <= {"127.0.0.1", "::1"}
    assert blas_threads() == before
    set_blas_threads(max(original))


def test_one_blas_thread_whatever_the_user_has_set():
    """The limit holds in a program that sets one of its own, which is there again afterwards."""
    with threadpool_limits(2):
        before = blas_threads()
        with connect(THREADS) as client:
            assert set(client.submit(blas_threads, pure=False).result()) == {1}
        assert blas_threads() == before


def test_what_listens_everywhere_is_seen():
    """The negative control: what a cluster does unless it is told otherwise."""
    with LocalCluster(processes=False, n_workers=1, dashboard_address=":0") as cluster, Client(cluster):
        assert not listening() <= {"127.0.0.1", "::1"}


def test_processes_listen_on_the_loopback_interface_with_one_thread_each(write):
    path = write(profiles(a={**LOCAL, "kwargs": {"n_workers": 1}, "env": {"TOY_SETTING": "x"}}))
    with connect(load_profile(path)) as client:
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


def test_profile_values_are_not_changed(write):
    """A profile may be used twice."""
    profile = Profile("a", kwargs={"processes": False, "n_workers": 1, "scheduler_kwargs": {}})
    with connect(profile):
        pass
    assert profile.kwargs == {"processes": False, "n_workers": 1, "scheduler_kwargs": {}}


def test_no_scheduler_answers(monkeypatch):
    monkeypatch.setattr(pipeline.cluster, "_CONNECT_SECONDS", 1)
    with socket.socket() as taken:  # bound, and nobody accepts
        taken.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        started = time.monotonic()
        with pytest.raises(BadInputError, match=rf"no scheduler answers at {address} \(waited 1 s\)"):
            connect(Profile("far", address=address)).__enter__()
        assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    ("message", "profile"),
    [
        ("must name an installed cluster class, got no_such_module.C", Profile("a", "no_such_module", "C")),
        (
            "must name an installed cluster class, got distributed.LocalClutser",
            Profile("a", "distributed", "LocalClutser"),
        ),
        ("the cluster of profile a did not start", Profile("a", kwargs={"no_such_argument": 1})),
        ("no scheduler answers at nonsense://1", Profile("a", address="nonsense://1")),
        ("security", Profile("a", address="tls://127.0.0.1:1", security={"nonsense": 1})),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_cluster_that_cannot_be_had(monkeypatch, message, profile):
    monkeypatch.setattr(pipeline.cluster, "_CONNECT_SECONDS", 1)
    with pytest.raises(BadInputError) as caught:
        connect(profile).__enter__()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_cores():
    assert 1 <= available_cores() <= os.cpu_count()
