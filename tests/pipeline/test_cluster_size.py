"""Tests of the requested number of workers and of the maximum number of threads, which bounds the queue."""

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipeline.clusters.cluster import connect, most_threads, requested_workers
from pipeline.clusters.launch import available_cores, make_launch
from pipeline.clusters.profiles import THREADS, Profile, load_profile

SHIPPED = Path(__file__).parents[2] / "cluster.yaml"


def client_of(*threads, plan=()):
    """Return a fake client with one worker for each number of threads; its cluster plans the workers in `plan`."""
    return SimpleNamespace(
        nthreads=lambda: {f"w{k}": n for k, n in enumerate(threads)}, cluster=SimpleNamespace(plan=plan)
    )


@pytest.mark.parametrize(
    ("profile", "client", "wanted"),
    [
        ("slurm", client_of(1, 1), 80),  # 10 jobs of 8 processes
        ("pbs", client_of(), 80),
        ("kubernetes", client_of(2), 20),
        ("address", client_of(4, 2, 2), 8),
        ("address", client_of(), 1),
    ],
)
def test_maximum_threads_of_shipped_profiles(profile, client, wanted):
    assert most_threads(load_profile(f"{SHIPPED}:{profile}"), client) == wanted


def test_default_number_of_processes_per_job():
    """By default, the number of processes per job is the one that Dask derives from the number of cores."""
    kwargs = {"cores": 36, "memory": "8GB"}
    profile = Profile("a", "dask_jobqueue", "SLURMCluster", kwargs=kwargs, adapt={"maximum_jobs": 3})
    assert make_launch(profile).kwargs["processes"] == 6
    assert most_threads(profile, client_of(6)) == 3 * 36


def test_profile_with_scale():
    profile = Profile("a", kwargs={"n_workers": 0, "threads_per_worker": 1}, scale=3)
    assert most_threads(profile, client_of(1, plan={0, 1, 2})) == 3
    assert requested_workers(replace(profile, scale=5), client_of(1)) == 5


def test_threads_of_this_process():
    assert 1 <= available_cores() <= os.cpu_count()
    with connect(THREADS) as client:
        assert most_threads(THREADS, client) == available_cores()
        assert requested_workers(THREADS, client) == 1
