"""Tests that threads, processes and a separate scheduler give identical arrays for a study with Numba kernels."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import yaml

import pipeline
from studies import STUDIES

pytestmark = pytest.mark.slow

PANELS = ("k2", "k3", "prior")
VALUES = {"n": [20, 60], "mechanism": ["smooth", "smooth-exact", "laplace", "geometric", "hamming-exact"]}


@contextmanager
def _started(*commands: list[str], folder: Path) -> Iterator[None]:
    """Start commands, and terminate their processes on exit."""
    processes = []
    try:
        for command in commands:
            with open(folder / f"{len(processes)}.log", "w") as log:
                processes.append(subprocess.Popen(command, stdout=log, stderr=log, cwd=folder))
            time.sleep(0.2)
        yield
    finally:
        for process in reversed(processes):
            os.kill(process.pid, signal.SIGTERM)
        for process in processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.kill(process.pid, signal.SIGKILL)
                process.wait(10)


@contextmanager
def _scheduler(folder: Path) -> Iterator[str]:
    """Run ``dask scheduler`` and two ``dask worker`` processes on the loopback interface."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"
    dask = [sys.executable, "-m", "dask"]
    quiet = ["--dashboard-address", "127.0.0.1:0"]
    worker = [*dask, "worker", address, "--host", "127.0.0.1", "--nthreads", "1", "--no-nanny", *quiet]
    with _started(
        [*dask, "scheduler", "--host", "127.0.0.1", "--port", str(port), *quiet], worker, worker, folder=folder
    ):
        yield address


@pytest.fixture(scope="module")
def stores(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("stores")
    study = STUDIES["hellinger-accuracy"]

    def run(name: str, cluster: str | None) -> Path:
        pipeline.run(study, folder / f"{name}.zarr", trials=300, panels=PANELS, values=VALUES, cluster=cluster)
        return folder / f"{name}.zarr"

    with _scheduler(folder) as address:
        profiles = {
            "processes": {"class": "LocalCluster", "kwargs": {"n_workers": 2}},
            "address": {"address": address},
        }
        (folder / "cluster.yaml").write_text(yaml.safe_dump({"profiles": profiles}))
        names = ("threads", "processes", "address")
        return {name: run(name, None if name == "threads" else f"{folder}/cluster.yaml:{name}") for name in names}


@pytest.mark.parametrize("profile", ["processes", "address"])
@pytest.mark.parametrize("panel", PANELS)
def test_equal_to_threads(stores, profile, panel):
    one, other = (xr.open_zarr(stores[name], group=panel).load() for name in ("threads", profile))
    assert one.status.isin([1, 5]).all()
    for name in one.variables:
        np.testing.assert_array_equal(one[name].values, other[name].values, err_msg=name, strict=True)
    assert one.equals(other)
    assert one.attrs == other.attrs


def test_another_seed_is_not_equal(stores, tmp_path):
    """Arrays computed with another seed are not equal (negative control of the comparison)."""
    pipeline.run(STUDIES["hellinger-accuracy"], tmp_path / "s.zarr", trials=300, panels=["k2"], values=VALUES, seed=1)
    one, other = (xr.open_zarr(path, group="k2").load() for path in (stores["threads"], tmp_path / "s.zarr"))
    assert not np.array_equal(one.hellinger.values, other.hellinger.values)
