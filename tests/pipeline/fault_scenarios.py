"""Fault scenarios with real processes; each runs a small study and compares its store bit by bit."""

import os
import random
import signal
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import psutil

from pipeline.store.result_store import ResultStore
from tests.pipeline import fault_clusters, fault_disks, fault_sessions, fault_trials
from tests.pipeline.fault_processes import Machines, free_port, inside, two_hosts, wait_until, write_profile
from tests.pipeline.fault_study import N_TRIALS, Outcome, judge, n_committed, write_study


def take_busy(folder: Path, but: int = 0) -> int:
    """Wait for a worker process that computes a block, and return its process id."""

    def look() -> int:
        found = [int(mark.name) for mark in (folder / "busy").iterdir() if int(mark.name) != but]
        alive = [pid for pid in found if psutil.pid_exists(pid)]
        return alive[0] if alive else 0

    return wait_until(look, "a process in the middle of a block")


def kill_busy(folder: Path) -> int:
    """Kill a worker process that computes a block, and return its process id."""
    pid = take_busy(folder)
    os.kill(pid, signal.SIGKILL)
    (folder / "busy" / str(pid)).unlink(missing_ok=True)
    return pid


def started(lab: Machines, n_workers: int = 2, **settings: object) -> tuple[int, str]:
    """Start a scheduler and workers; return the scheduler's port and the name of the profile."""
    port = free_port()
    lab.scheduler(port, **settings)
    for _ in range(n_workers):
        lab.worker(port)
    return port, write_profile(lab.folder, address=f"tcp://127.0.0.1:{port}")


def workers_are_killed(folder: Path) -> Outcome:
    """Kill a worker during a block, six times; a supervisor restarts the workers.

    A trial whose worker is killed three times in succession would get the status "killed", so there is time to commit
    its block between the kills.
    """
    study, store = write_study(folder, seconds=0.06), folder / "s.zarr"
    with Machines(folder) as lab:
        port, profile = started(lab)
        run = lab.dpstudies("run", study, "--store", store, "--cluster", profile)
        for _ in range(6):
            kill_busy(folder)
            lab.worker(port)
            kept = n_committed(store)
            wait_until(lambda kept=kept: n_committed(store) >= min(kept + 24, N_TRIALS), "commits")
        amid = run.runs
        code = run.finish()
    return judge("6 workers killed mid-block", run, store, {"exit 0": code == 0, "killed amid the run": amid})


def the_scheduler_is_killed(folder: Path) -> Outcome:
    """Kill the scheduler, start it again on the same port with new workers, and resume the run."""
    study, store = write_study(folder, seconds=0.06), folder / "s.zarr"
    with Machines(folder) as lab:
        port = free_port()
        scheduler = lab.scheduler(port)
        workers = [lab.worker(port) for _ in range(2)]
        profile = write_profile(folder, address=f"tcp://127.0.0.1:{port}")
        run = lab.dpstudies("run", study, "--store", store, "--cluster", profile)
        wait_until(lambda: n_committed(store) >= 40, "commits")
        lab.kill(scheduler)
        code = run.finish()
        kept = n_committed(store)
        workers_end = [worker.finish() for worker in workers]
        lab.scheduler(port)
        for _ in workers_end:
            lab.worker(port)
        resume = lab.dpstudies("resume", store, "--cluster", profile)
        checks = {
            "exit 3": code == 3,
            "says what to do": run.message.startswith(
                "the connection to the scheduler was lost; restart the scheduler, then resume / "
            ),
            "no traceback": "Traceback" not in run.output,
            "some are left": kept < N_TRIALS,
            "resume: exit 0": resume.finish() == 0,
        }
    return judge("scheduler killed and started again", run, store, checks)


def the_driver_is_killed(folder: Path) -> Outcome:
    """Kill the driver of a run on a cluster three times, and resume the run after each kill."""
    study, store = write_study(folder, seconds=0.06), folder / "s.zarr"
    with Machines(folder) as lab:
        _, profile = started(lab)
        seen = []
        for k in range(3):
            words = ("resume", store) if k else ("run", study, "--store", store)
            run = lab.dpstudies(*words, "--cluster", profile)
            wait_until(lambda: n_committed(store) > max(seen, default=0), "commits")
            lab.kill(run)
            seen.append(n_committed(store))
        resume = lab.dpstudies("resume", store, "--cluster", profile)
        code = resume.finish()
    checks = {
        "killed amid the run": seen[-1] < N_TRIALS and seen == sorted(seen),
        "resume: exit 0": code == 0,
        "driver killed": run.process.exitcode == -signal.SIGKILL,
    }
    return judge("driver killed 3 times", resume, store, checks)


def a_worker_is_stopped(folder: Path) -> Outcome:
    """Suspend a worker for longer than the scheduler's timeout, and then let it continue."""
    study, store = write_study(folder, seconds=0.1), folder / "s.zarr"
    with Machines(folder) as lab:
        _, profile = started(lab, **{"worker-ttl": "3s"})
        run = lab.dpstudies("run", study, "--store", store, "--cluster", profile)
        wait_until(lambda: n_committed(store) >= 40, "commits")
        pid = take_busy(folder)
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(7)
        finally:
            os.kill(pid, signal.SIGCONT)
        code = run.finish()
    return judge("worker stopped for 7 s (heartbeat timeout: 3 s)", run, store, {"exit 0": code == 0})


def a_worker_is_stopped_for_good(folder: Path) -> Outcome:
    """Suspend one of two worker processes of a local cluster, and do not let it continue."""
    study, store = write_study(folder, seconds=0.1), folder / "s.zarr"
    profile = write_profile(folder, **{"module": "distributed", "class": "LocalCluster"}, kwargs={"n_workers": 2})
    with Machines(folder) as lab:
        run = lab.dpstudies("run", study, "--store", store, "--cluster", profile)
        os.kill(take_busy(folder), signal.SIGSTOP)
        stopped = time.monotonic()
        text = "has not responded for 20 s: its process was suspended, and is restarted"
        wait_until(lambda: text in run.output or not run.runs, "the message", 60)
        seconds = time.monotonic() - stopped
        checks = {"exit 0": run.finish() == 0, f"message after {seconds:.0f} s": seconds < 45 and text in run.output}
    return judge("worker process stopped for good", run, store, checks)


def a_worker_is_cut_off(folder: Path) -> Outcome:
    """Disconnect a worker on another host for longer than the scheduler's timeout, and then reconnect it."""
    study, store = write_study(folder, seconds=0.1), folder / "s.zarr"
    with Machines(folder) as lab:
        near, far = two_hosts(lab)
        port = 8786
        lab.scheduler(port, "192.0.2.1", near, **{"worker-ttl": "3s"})
        lab.worker(port, "192.0.2.1", "192.0.2.1", near)
        cut = lab.worker(port, "192.0.2.1", "192.0.2.2", far)
        profile = write_profile(folder, address=f"tcp://192.0.2.1:{port}")
        run = lab.dpstudies("run", study, "--store", store, "--cluster", profile, inside=near)
        wait_until(lambda: (folder / "busy" / str(cut.pid)).exists(), "a block on the far worker")
        inside(near, "net", "ip", "link", "set", "near", "down")
        n_before = n_committed(store)
        time.sleep(7)
        inside(near, "net", "ip", "link", "set", "near", "up")
        amid = run.runs and n_committed(store) > n_before
        code = run.finish()
    checks = {"exit 0": code == 0, "other workers continued": amid}
    return judge("worker's network cut for 7 s and restored", run, store, checks)


def two_drivers(folder: Path) -> Outcome:
    """Start two drivers of one store at the same time, and a third one later; only one may write at a time."""
    study, store = write_study(folder, seconds=0.2), folder / "s.zarr"
    with Machines(folder) as lab:
        runs = [lab.dpstudies("run", study, "--store", store) for _ in range(2)]
        wait_until(lambda: n_committed(store) >= 40, "commits")
        runs.append(lab.dpstudies("run", study, "--store", store))
        codes = [run.finish() for run in runs]
    refused = [run for run in runs if run.process.exitcode == 2]
    sessions = ResultStore.open(store).sessions
    busy = "is being written by another session"
    checks = {
        f"exit 0, or refused with exit 2, got {codes}": set(codes) == {0, 2},
        "the one that came amid the work is refused": codes[2] == 2,
        "refused in one line": all(busy in run.output and len(run.output.splitlines()) == 1 for run in refused),
        "refused only for a live session": len(sessions) == codes.count(0)
        and all(one["ended"] <= other["started"] for one, other in pairwise(sessions)),
    }
    return judge("3 drivers on one store, 2 of which create it", runs[2], store, checks)


def an_extension_is_killed(folder: Path) -> Outcome:
    """Kill ``dpstudies extend`` at random file operations, during and between writes, and repeat it."""
    study, store = write_study(folder), folder / "s.zarr"
    moments = random.Random(15)
    with Machines(folder) as lab:
        run = lab.dpstudies("run", study, "--store", store, "--trials", "6", "--set", "n=0,1,2,3")
        codes = [run.finish()]
        words = ("extend", store, "--trials", "10", "--set", "n=0,1,2,3,4,5,6,7", "--panel", "p")
        kills = sorted(moments.sample(range(80), 8))
        for number in kills:
            codes.append(lab.dpstudies(*words, dies_at=number).finish())
        last = lab.dpstudies(*words)
        codes.append(last.finish())
        codes.append(lab.dpstudies("extend", store, "--trials", "10").finish())
    checks = {f"8 killed, then exit 0; got {codes}": codes == [0, *[-signal.SIGKILL] * 8, 0, 0]}
    return judge(f"extend killed at its file operations {kills}", last, store, checks)


def a_submission(folder: Path) -> Outcome:
    """Submit a study, and kill two workers after the submitting process has ended."""
    study, store = write_study(folder, seconds=0.06), folder / "s.zarr"
    with Machines(folder) as lab:
        port, profile = started(lab)
        submit = lab.dpstudies("submit", study, "--store", store, "--cluster", profile)
        code, n_before = submit.finish(), n_committed(store)
        for _ in range(2):
            kill_busy(folder)
            lab.worker(port)
        wait_until(lambda: n_committed(store) == N_TRIALS, "the end of the work")
        again = lab.dpstudies("resume", store)
        checks = {
            "exit 0": code == 0,
            "most is done without the client": n_before < N_TRIALS / 2,
            "nothing is left": again.finish() == 0,
        }
    return judge("client gone after submit, then 2 workers killed", submit, store, checks)


SCENARIOS: dict[str, Callable[[Path], Outcome]] = {
    "workers killed": workers_are_killed,
    "scheduler killed": the_scheduler_is_killed,
    "driver killed": the_driver_is_killed,
    "worker stopped": a_worker_is_stopped,
    "worker stopped for good": a_worker_is_stopped_for_good,
    "worker cut off": a_worker_is_cut_off,
    "two drivers": two_drivers,
    "extension killed": an_extension_is_killed,
    "submission": a_submission,
    "trial kills": fault_trials.a_trial_that_kills,
    "simulation kills": fault_trials.a_simulation_that_kills,
    "all trials kill": fault_trials.all_trials_kill,
    "out of memory": fault_trials.out_of_memory,
    "trial sleeps": fault_trials.a_trial_that_sleeps,
    "trial loops": fault_trials.a_trial_that_loops,
    "trial holds the lock": fault_trials.a_trial_that_holds_the_lock,
    "time limit with threads": fault_trials.a_time_limit_for_threads,
    "full disk": fault_disks.a_full_disk,
    "read-only store": fault_disks.a_read_only_store,
    "another version": fault_disks.another_version,
    "flipped bit": fault_disks.a_flipped_bit,
    "cut chunk": fault_disks.a_cut_chunk,
    "missing chunk": fault_disks.a_missing_chunk,
    "damaged coordinate": fault_disks.a_damaged_coordinate,
    "damaged root": fault_sessions.a_damaged_root,
    "two extensions": fault_sessions.two_extensions,
    "extension during a run": fault_sessions.an_extension_during_a_run,
    "driver suspended": fault_sessions.a_suspended_driver,
    "transient errors": fault_sessions.transient_errors,
    "expired credential": fault_clusters.an_expired_credential,
    "workers paused": fault_clusters.paused_workers,
    "missing module": fault_clusters.a_missing_module,
}
