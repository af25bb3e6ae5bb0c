"""Test of a complete run on a real Slurm with the shipped adaptive profile.

The tests need Slurm and root: ``.ci/run --system`` installs it.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

import pipeline
from tests.pipeline.helpers import COMMAND, assert_equal_arrays, run_python, write_study_file
from tests.pipeline.slurm import missing, running

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    """Start Slurm for the tests of this module; yield its folder and the environment variables for its commands."""
    assert not missing(), missing()
    folder = tmp_path_factory.mktemp("slurm")
    with running(folder) as environment:
        yield environment, folder


def shipped_profile(folder):
    """Write the shipped profile, adapted to two cores and to jobs on the loopback interface."""
    profile = yaml.safe_load((ROOT / "cluster.yaml").read_text())["profiles"]["slurm"]
    profile["kwargs"] |= {"cores": 1, "processes": 1, "memory": "700MB", "interface": "lo"}
    profile["adapt"] = {"minimum_jobs": 1, "maximum_jobs": 2}
    profile["wait"] = 120
    (folder / "cluster.yaml").write_text(yaml.safe_dump({"profiles": {"slurm": profile}}))


def dpstudies(folder, environment, *words):
    done = run_python(*COMMAND, *words, seconds=400, cwd=folder, env=environment)
    return done.returncode, done.stdout, done.stderr


def test_study_on_the_shipped_profile(slurm, tmp_path):
    environment, folder = slurm
    shipped_profile(tmp_path)
    slow = {"before": "time.sleep(0.5)", "head": "import time"}
    write_study_file(tmp_path / "queued.py", **slow, n=(1, 2), trials=40, block_trials=1)
    code, out, err = dpstudies(tmp_path, environment, "run", "queued.py", "--store", "s.zarr", "--cluster", "slurm")
    assert code == 0, (out, err, [path.read_text()[-3000:] for path in tmp_path.glob("slurm-*.out")])
    pipeline.run(str(tmp_path / "queued.py"), tmp_path / "threads.zarr")
    assert_equal_arrays(tmp_path / "s.zarr", tmp_path / "threads.zarr")
    jobs = set(re.findall(r"Allocate JobId=(\d+)", (folder / "slurmctld.log").read_text()))
    assert len(jobs) >= 2, "the cluster did not grow"
    left = subprocess.run(["squeue", "-h", "-t", "PD,R"], env=environment, capture_output=True, text=True, timeout=30)
    assert left.stdout == ""
    # temporary credentials are removed when the cluster closes
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".dask-jobqueue")]


def test_check_of_a_queue(slurm, tmp_path):
    environment, _ = slurm
    shipped_profile(tmp_path)
    code, out, err = dpstudies(tmp_path, environment, "cluster", "check", "slurm", "--store", "s.zarr")
    assert (code, "tcp://" in out, "1 of 1 worker is ok" in out) == (0, True, True), (out, err)


def test_refused_jobs_are_reported(slurm, tmp_path):
    """If the batch system refuses a job, its error message is printed."""
    environment, _ = slurm
    shipped_profile(tmp_path)
    text = (tmp_path / "cluster.yaml").read_text().replace("wait: 120", "wait: 6")
    content = yaml.safe_load(text)
    content["profiles"]["slurm"]["kwargs"]["queue"] = "no-such-partition"
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(content))
    code, out, err = dpstudies(tmp_path, environment, "cluster", "check", "slurm")
    assert (code, "invalid partition" in err) == (2, True), (out, err)
    assert os.listdir(tmp_path) == ["cluster.yaml"]
