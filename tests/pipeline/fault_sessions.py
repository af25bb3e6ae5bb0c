"""Faults of sessions: concurrent writers, slow and failing file systems, and suspended processes."""

import json
import os
import signal
from pathlib import Path

from tests.pipeline.fault_processes import Machines, free_port, wait_until, write_profile
from tests.pipeline.fault_study import Outcome, Part, judge, n_committed, unequal, write_study

N_ROUNDS = int(os.environ.get("DPSTUDIES_ROUNDS", "4"))
_SLOW, _STALE = {"renames_take": 0.02}, {"fails_every": 10}
BUSY = "is being written by another session"


def two_extensions(folder: Path, n_rounds: int = N_ROUNDS) -> Outcome:
    """Start two different extensions of a store at once, on a file system that delays renames at random."""
    study, checks = write_study(folder), {}
    profile = write_profile(folder, **{"module": "distributed", "class": "LocalCluster"}, kwargs={"processes": False})
    for k in range(n_rounds):
        store = folder / f"{k}.zarr"
        with Machines(folder) as lab:
            base = lab.dpstudies("run", study, "--store", store, "--panel", "p", "--set", "n=0,1", "--trials", 5)
            checks[f"round {k}: run: exit 0"] = base.finish() == 0
            ways = (("--set", "n=0,1,2"), ("--trials", "10"))
            runs = [lab.dpstudies("extend", store, *way, "--cluster", profile, disturbed=_SLOW) for way in ways]
            codes = [run.finish() for run in runs]
            refused = [run for run in runs if run.process.exitcode == 2]
            checks[f"round {k}: exit 0 or refused, got {codes}"] = set(codes) <= {0, 2} and 0 in codes
            checks[f"round {k}: refused in one line"] = all(BUSY in run.message for run in refused)
            codes = [lab.dpstudies("extend", store, "--set", "n=0,1,2", "--trials", "10").finish()]
            last = lab.dpstudies("verify", store, "--all")
            checks[f"round {k}: extended and verified"] = [*codes, last.finish()] == [0, 0]
        part = Part(("p",), 3, 10)
        checks[f"round {k}: all numbers right"] = not unequal(store, {}, part)
    return judge(f"two different extensions at once, {n_rounds} times", last, store, checks, {}, part)


def an_extension_during_a_run(folder: Path) -> Outcome:
    """Try to extend a store during a run that computes its shorter last blocks, and extend it after the run."""
    study, store = write_study(folder, seconds=0.7), folder / "s.zarr"
    with Machines(folder) as lab:
        run = lab.dpstudies(
            "run", study, "--store", store, "--panel", "p", "--trials", "7", disturbed={"renames_take": 0.01}
        )
        wait_until(lambda: n_committed(store) >= 2, "commits")
        early = lab.dpstudies("extend", store, "--trials", "10")
        checks = {
            "refused while the run is alive: exit 2": early.finish() == 2,
            "in one line": BUSY in early.message,
            "run: exit 0": run.finish() == 0,
        }
        late = lab.dpstudies("extend", store, "--trials", "10")
        checks["afterwards: exit 0"] = late.finish() == 0
    return judge("extend during a run", early, store, checks, {}, Part(("p",)))


def a_suspended_driver(folder: Path) -> Outcome:
    """Suspend a driver past its lease, let another driver extend and complete the store, and wake the first one."""
    study, store = write_study(folder, seconds=0.05), folder / "s.zarr"
    with Machines(folder) as lab:
        run = lab.dpstudies("run", study, "--store", store, "--panel", "p", "--trials", "7", disturbed={"lease": 2.0})
        wait_until(lambda: n_committed(store) >= 8, "commits")
        os.kill(run.pid, signal.SIGSTOP)
        try:
            extend = lab.dpstudies("extend", store, "--trials", "10", disturbed={"lease": 2.0})
            code = extend.finish()
        finally:
            os.kill(run.pid, signal.SIGCONT)
        checks = {
            "extend after the lease: exit 0": code == 0,
            "the first: exit 3": run.finish() == 3,
            "it says why": "another session has taken over the store" in run.message,
            "no traceback": "Traceback" not in run.output,
        }
    return judge("driver stopped past its lease", run, store, checks, {}, Part(("p",)))


def transient_errors(folder: Path) -> Outcome:
    """Let one in ten file operations of two workers and the driver fail once with ESTALE."""
    study, store = write_study(folder, seconds=0.01), folder / "s.zarr"
    with Machines(folder) as lab:
        port = free_port()
        lab.scheduler(port)
        for _ in range(2):
            lab.worker(port, disturbed=_STALE)
        profile = write_profile(folder, address=f"tcp://127.0.0.1:{port}")
        run = lab.dpstudies("run", study, "--store", store, "--cluster", profile, disturbed=_STALE)
        checks = {"exit 0": run.finish() == 0, "no traceback": "Traceback" not in run.output}
        verify = lab.dpstudies("verify", store, "--all", disturbed=_STALE)
        checks["verify, with errors: exit 0"] = verify.finish() == 0
    return judge("ESTALE at every tenth file operation", run, store, checks)


def a_damaged_root(folder: Path) -> Outcome:
    """Flip a bit of the root metadata, read the status, and repair the store."""
    study, store = write_study(folder), folder / "s.zarr"
    with Machines(folder) as lab:
        lab.dpstudies("run", study, "--store", store).finish()
        root = store / "zarr.json"
        text = root.read_text()
        root.write_text(text.replace('"fill_value": 0', '"fill_value": 1', 1))
        assert json.loads(root.read_text()) != json.loads(text)
        status = lab.dpstudies("status", store)
        checks = {
            "status: exit 3": status.finish() == 3,
            "says what to do": "its copy is intact; restore it with: dpstudies verify" in status.message,
            "repair: exit 0": lab.dpstudies("verify", store, "--sample", "0", "--repair").finish() == 0,
            "status: exit 0": lab.dpstudies("status", store).finish() == 0,
            "the root is the old one": root.read_text() == text,
        }
    return judge("a bit flipped in the root", status, store, checks)
