"""Tests that a driver can be killed at any moment: resuming gives the store of an uninterrupted run."""

import random
import signal
import time

import pytest

from pipeline.store.result_store import ResultStore
from tests.pipeline.faults.harness import Laboratory
from tests.pipeline.faults.study import Part, unequal, write_study
from tests.pipeline.helpers import temporary_files

pytestmark = pytest.mark.slow


def n_status_chunks(store):
    """Return the number of chunks of statuses, which are counted faster than the trials in them."""
    return sum(path.is_file() for path in store.glob("*/status/c/**/*"))


def finish_and_compare(lab, part):
    """Resume without delays, and compare the store with an undisturbed one."""
    write_study(lab.folder)
    assert lab.command("resume", "--study", lab.study, "--accept-edited-study").finish() == 0
    assert unequal(lab.store, {}, part) == ""
    assert temporary_files(lab.store) == []


@pytest.mark.parametrize("n_kills", [10, pytest.param(20, marks=pytest.mark.exhaustive)])
def test_kills_at_random_moments(tmp_path, n_kills):
    """A run whose driver is killed many times, while it starts, computes and commits, gives the same store."""
    moments, startup, n_committed, part = random.Random(20), 0.0, [], Part(trials=2 * n_kills)
    with Laboratory(tmp_path, seconds=0.08) as lab:
        while len(n_committed) < n_kills:
            before, started = n_status_chunks(lab.store), time.monotonic()
            driver = lab.command("run", *part.words)
            # every second kill falls into the work, after the driver's first commit, and the others precede it
            latest = moments.uniform(0.05, startup) if len(n_committed) % 2 else 60
            while n_status_chunks(lab.store) == before and time.monotonic() - started < latest:
                time.sleep(0.02)
            if len(n_committed) % 2 == 0:
                startup = time.monotonic() - started
                time.sleep(moments.uniform(0.0, 0.7))
            lab.kill(driver)
            assert driver.process.exitcode == -signal.SIGKILL, "the run was over before it was killed"
            n_committed.append(lab.n_committed)
        assert n_committed == sorted(n_committed), "a committed block was lost"
        assert len(set(n_committed)) >= n_kills // 2, "the kills did not fall into the work"
        finish_and_compare(lab, part)
    sessions = ResultStore.open(lab.store).sessions
    assert len(sessions) >= 4
    assert ["ended" in session for session in sessions] == [False] * (len(sessions) - 1) + [True]


@pytest.mark.parametrize(
    "numbers", [(0, 2, 4, 5, 40), pytest.param((0, 1, 2, 3, 4, 5, 6, 16, 27, 40), marks=pytest.mark.exhaustive)]
)
def test_kills_while_the_store_is_created(tmp_path, numbers):
    """Kill a run at its file operations; there are 3 each for the copies of session records and of the root."""
    with Laboratory(tmp_path) as lab:
        for number in numbers:
            assert lab.command("run", dies_at=number).finish() == -signal.SIGKILL
            assert ResultStore.exists(lab.store) == (number > 4)
            assert not (lab.store / "zarr.json").exists()
        assert not ResultStore.open(lab.store).complete
        assert len(temporary_files(lab.store)) == 1  # each session removes the temporary files of earlier ones
        finish_and_compare(lab, Part())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_keeps_committed_trials_and_gives_advice(tmp_path, number):
    part = Part(("p",))
    with Laboratory(tmp_path, seconds=0.3) as lab:
        run = lab.command("run", *part.words)
        lab.wait_for_trials(8)
        lab.kill(run, number)
        assert run.finish(30) == 130
        assert "interrupted" in run.output
        assert f"continue with: dpstudies resume {lab.store}" in run.output
        assert "Traceback" not in run.output
        assert 8 <= lab.n_committed < 160
        finish_and_compare(lab, part)
