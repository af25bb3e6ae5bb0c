"""Tests that a driver can be killed at any moment: resuming gives the store of an uninterrupted run."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import zarr

import pipeline
from pipeline.store.result_store import ResultStore
from tests.pipeline.crashes import crash_at
from tests.pipeline.helpers import temporary_files

N_KILLS = 20
STUDY_FILE = """
import time
from pipeline import Factor, Measure, Method, Panel, Study

def simulate(cell, streams):
    return cell["n"], streams.uniforms(3)

def evaluate(data, setting, streams):
    time.sleep(0.08)
    n, uniforms = data
    return {"x": (uniforms + streams.uniforms(3)).sum(axis=1), "square": n * n}

measures = (Measure("x", "a number"), Measure("square", "of the size", per_trial=False))

def panel(name, n):
    methods = (Method("a", evaluate), Method("b", evaluate))
    return Panel(name, "a panel", simulate, methods, measures, (Factor("n", tuple(range(n)), "size", "int"),),
                 trials=10, block_trials=4)

STUDY = Study("slow", "A slow toy", "To be killed.", (panel("p", 30), panel("q", 15)), seed=1)
"""


def _drive(study: str, store: str) -> None:
    """Run a study as ``dpstudies run`` does; the same call resumes an interrupted run."""
    pipeline.run(study, store)


def _assert_equal_stores(one: Path, other: Path) -> None:
    first, second = zarr.open_group(one, mode="r"), zarr.open_group(other, mode="r")
    names = sorted(name for name, _ in first.members(max_depth=None))
    assert names == sorted(name for name, _ in second.members(max_depth=None))
    arrays = [name for name in names if isinstance(first[name], zarr.Array)]
    assert len(arrays) >= 12
    for name in arrays:
        values, expected = np.asarray(first[name][...]), np.asarray(second[name][...])
        if values.dtype.kind == "f":
            values, expected = values.view("u8"), expected.view("u8")
        assert np.array_equal(values, expected), name


@pytest.mark.slow
def test_20_kills_at_random_moments(forks, tmp_path):
    """A run whose driver is killed 20 times, while it starts, computes and commits, gives the same store."""
    study, fast = tmp_path / "slow.py", tmp_path / "fast.py"
    study.write_text(STUDY_FILE)
    fast.write_text(STUDY_FILE.replace("time.sleep(0.08)", ""))
    _drive(str(fast), str(tmp_path / "whole.zarr"))
    moments, startup, n_committed = random.Random(20), 0.0, []
    while len(n_committed) < N_KILLS:
        before, started = _n_status_chunks(tmp_path / "killed.zarr"), time.monotonic()
        driver = forks.Process(target=_drive, args=(str(study), str(tmp_path / "killed.zarr")))
        driver.start()
        # every second kill falls into the work, after the driver's first commit, and the others precede it
        latest = moments.uniform(0.05, startup) if len(n_committed) % 2 else 60
        while _n_status_chunks(tmp_path / "killed.zarr") == before and time.monotonic() - started < latest:
            time.sleep(0.02)
        if len(n_committed) % 2 == 0:
            startup = time.monotonic() - started
            time.sleep(moments.uniform(0.0, 0.7))
        os.kill(driver.pid, signal.SIGKILL)
        driver.join(10)
        assert driver.exitcode == -signal.SIGKILL, "the run was over before it was killed: the test shows nothing"
        n_committed.append(_n_committed(tmp_path / "killed.zarr"))
    assert n_committed == sorted(n_committed), "a committed block was lost"
    assert len(set(n_committed)) >= N_KILLS // 2, "the kills did not fall into the work"
    pipeline.run(str(fast), str(tmp_path / "killed.zarr"), accept_edited_study=True)
    _assert_equal_stores(tmp_path / "killed.zarr", tmp_path / "whole.zarr")
    assert temporary_files(tmp_path / "killed.zarr") == []
    sessions = ResultStore.open(tmp_path / "killed.zarr").sessions
    assert len(sessions) >= 4
    assert ["ended" in session for session in sessions] == [False] * (len(sessions) - 1) + [True]


@pytest.mark.slow
def test_kills_while_the_store_is_created(forks, tmp_path):
    fast = tmp_path / "fast.py"
    fast.write_text(STUDY_FILE.replace("time.sleep(0.08)", ""))
    _drive(str(fast), str(tmp_path / "whole.zarr"))
    codes = []
    for number in (
        0,
        1,
        2,
        3,
        4,
        5,
        6,
        16,
        27,
        40,
    ):  # 3 operations each for the copies of session records and of the root
        driver = forks.Process(target=_create_and_die, args=(str(fast), str(tmp_path / "killed.zarr"), number))
        driver.start()
        driver.join(60)
        codes.append(driver.exitcode)
        assert ResultStore.exists(tmp_path / "killed.zarr") == (number > 4)
        assert not (tmp_path / "killed.zarr/zarr.json").exists()
    assert codes == [-signal.SIGKILL] * len(codes)
    assert not ResultStore.open(tmp_path / "killed.zarr").complete
    # each session removes the temporary files of earlier ones
    assert len(temporary_files(tmp_path / "killed.zarr")) == 1
    _drive(str(fast), str(tmp_path / "killed.zarr"))
    _assert_equal_stores(tmp_path / "killed.zarr", tmp_path / "whole.zarr")
    assert temporary_files(tmp_path / "killed.zarr") == []


def _create_and_die(study: str, store: str, number: int) -> None:
    """Create a store, and kill this process at file operation `number`; a write then leaves half a file."""
    with pytest.MonkeyPatch.context() as patch:
        crash_at(patch, number, lambda: os.kill(os.getpid(), signal.SIGKILL))
        pipeline.run(study, store)


@pytest.mark.slow
def test_unequal_stores_are_detected(tmp_path):
    """The comparison of stores fails if one bit is changed (negative control)."""
    study = tmp_path / "slow.py"
    study.write_text(STUDY_FILE.replace("time.sleep(0.08)", ""))
    for name in ("a.zarr", "b.zarr"):
        pipeline.run(str(study), tmp_path / name, panels=["p", "q"])
    array = zarr.open_group(tmp_path / "b.zarr")["q/x"]
    array[5, 1, 9] = np.nextafter(array[5, 1, 9], 9)
    with pytest.raises(AssertionError, match="q/x"):
        _assert_equal_stores(tmp_path / "a.zarr", tmp_path / "b.zarr")


def _n_committed(store: Path) -> int:
    if not (store / "zarr.json").exists():
        return 0
    opened = zarr.open_group(store, mode="r")
    panels = [name for name in ("p", "q") if f"{name}/status" in opened]
    return sum(int((np.asarray(opened[f"{name}/status"][...]) != 0).sum()) for name in panels)


def _n_status_chunks(store: Path) -> int:
    """Return the number of chunks of statuses, which are counted faster than the trials in them."""
    return sum(path.is_file() for path in store.glob("*/status/c/**/*"))


def _dpstudies(*words: str, folder: Path) -> subprocess.Popen:
    command = [sys.executable, "-c", "from studies.cli import main; main()", *words]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_keeps_committed_trials_and_gives_advice(tmp_path, number):
    (tmp_path / "slow.py").write_text(STUDY_FILE)
    process = _dpstudies("run", "slow.py", "--store", "s.zarr", "--panel", "p", folder=tmp_path)
    deadline = time.monotonic() + 30
    while _n_status_chunks(tmp_path / "s.zarr") < 2 and time.monotonic() < deadline:  # each has at least two trials
        time.sleep(0.05)
    process.send_signal(number)
    _, message = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "interrupted" in message
    assert "continue with: dpstudies resume s.zarr" in message
    assert "Traceback" not in message
    kept = _n_committed(tmp_path / "s.zarr")
    assert 8 <= kept < 600
    (tmp_path / "slow.py").write_text(STUDY_FILE.replace("time.sleep(0.08)", ""))
    pipeline.resume(tmp_path / "s.zarr", study=str(tmp_path / "slow.py"), accept_edited_study=True)
    assert (xr.open_zarr(tmp_path / "s.zarr", group="p").status == 1).all()
