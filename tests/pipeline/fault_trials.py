"""Trials that terminate their worker or do not return; they are isolated and stored with their status."""

from pathlib import Path

from pipeline.blocks.evaluate import Status
from tests.pipeline.fault_processes import Machines, write_profile
from tests.pipeline.fault_study import METHODS, Failed, FailingTrials, Outcome, Part, judge, write_study


def _run_failing_trials(
    folder: Path, fault: str, failing: FailingTrials, failed: Failed, trials: int = 4, limit: float | None = None
) -> Outcome:
    """Run two cells on two worker processes, and compare the statuses of the failing trials with the expected ones."""
    study, store, part = write_study(folder, failing=failing), folder / "s.zarr", Part(("p",), 2, trials)
    arguments = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": "1GB"}
    profile = write_profile(folder, **{"module": "distributed", "class": "LocalCluster"}, kwargs=arguments)
    words = ["run", study, "--store", store, "--cluster", profile, *part.words]
    with Machines(folder) as lab:
        run = lab.dpstudies(*words, *(() if limit is None else ("--time-limit", limit)))
        code = run.finish()
    checks = {"exit 1": code == 1, "no traceback": "Traceback" not in run.output}
    return judge(fault, run, store, checks, failed, part)


def a_trial_that_kills(folder: Path) -> Outcome:
    """Let one of eight trials end its worker process when one of the methods evaluates it."""
    return _run_failing_trials(
        folder, "a trial kills its worker", {(1, "a", 2): "kill"}, {("p", 1, "a", 2): Status.KILLED}
    )


def a_simulation_that_kills(folder: Path) -> Outcome:
    """Let the simulation of one of eight trials, which all methods need, kill its worker."""
    failed = {("p", 1, method, 2): Status.KILLED for method in METHODS}
    return _run_failing_trials(folder, "a trial's simulation kills its worker", {(1, "simulate", 2): "kill"}, failed)


def all_trials_kill(folder: Path) -> Outcome:
    """Let each trial of a cell end its worker process when one of the methods evaluates it."""
    failing = {(1, "a", trial): "kill" for trial in range(4)}
    failed = {("p", 1, "a", trial): Status.KILLED for trial in range(4)}
    return _run_failing_trials(folder, "all trials of a cell kill their worker", failing, failed)


def out_of_memory(folder: Path) -> Outcome:
    """Let one trial exceed the memory limit of its worker, so that the nanny kills the worker."""
    failed = {("p", 1, "b", 0): Status.KILLED}
    return _run_failing_trials(
        folder, "a trial takes 4 GB, its worker may have 1", {(1, "b", 0): "memory"}, failed, trials=1
    )


def _hang(folder: Path, fault: str, how: str, trials: int) -> Outcome:
    failed = {("p", 1, "a", trials - 1): Status.TIMED_OUT}
    return _run_failing_trials(
        folder, f"{fault} for ever, time limit 2 s", {(1, "a", trials - 1): how}, failed, trials, limit=2
    )


def a_trial_that_sleeps(folder: Path) -> Outcome:
    """Let one of eight trials sleep forever."""
    return _hang(folder, "a trial sleeps", "sleep", trials=4)


def a_trial_that_loops(folder: Path) -> Outcome:
    """Let a trial run a Python loop forever."""
    return _hang(folder, "a trial loops", "loop", trials=1)


def a_trial_that_holds_the_lock(folder: Path) -> Outcome:
    """Let a trial call a function that holds the GIL and never returns."""
    return _hang(folder, "a trial holds the interpreter's lock", "lock", trials=1)


def a_time_limit_for_threads(folder: Path) -> Outcome:
    """Let a trial hold the GIL forever, with a time limit and without worker processes."""
    study = write_study(folder, failing={(1, "a", 3): "lock"})
    store, part = folder / "s.zarr", Part(("p",), 2, 4)
    with Machines(folder) as lab:
        run = lab.dpstudies("run", study, "--store", store, "--time-limit", 2, *part.words)
        checks = {"exit 1": run.finish() == 1, "no traceback": "Traceback" not in run.output}
    failed = {("p", 1, "a", 3): Status.TIMED_OUT}
    return judge("a trial holds the lock for ever on threads, time limit 2 s", run, store, checks, failed, part)
