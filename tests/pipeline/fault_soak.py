"""Soak test, in which a study runs to its end despite many random faults."""

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

from tests.pipeline.disturbances import lose_power
from tests.pipeline.fault_disks import cut, flip
from tests.pipeline.fault_processes import Machines, Program, free_port, wait_until, write_profile
from tests.pipeline.fault_sessions import BUSY
from tests.pipeline.fault_study import N_CELLS, WHOLE, Outcome, judge, n_committed, write_study

# relative frequencies of faults; a lost scheduler is rare, because a driver takes ten seconds to detect it
_WEIGHTS = {
    "worker killed": 30,
    "driver killed": 25,
    "worker stopped": 20,
    "chunks damaged": 20,
    "store extended": 15,
    "power lost": 15,
    "scheduler killed": 2,
}
_FAILS_EVERY = 20  # one in about this number of file operations of workers and drivers fails
_SCHEDULER_LOST = ("no scheduler responds", "no worker has joined", "connection to the scheduler or to a worker")


class _Laboratory:
    """Cluster and driver that are subjected to random faults."""

    def __init__(self, lab: Machines, rng: random.Random) -> None:
        self.lab, self.rng, self.store = lab, rng, lab.folder / "s.zarr"
        self.study, self.port = write_study(lab.folder, seconds=0.05), free_port()
        self.profile = write_profile(lab.folder, address=f"tcp://127.0.0.1:{self.port}")
        self.scheduler: Program = lab.scheduler(self.port)
        self.unsynced, self.trials = lab.folder / "unsynced", 4
        self.workers = [self._worker() for _ in range(2)]
        self.driver = self._dpstudies("run", self.study, "--store", self.store, "--trials", self.trials)
        self.checks: dict[str, bool] = {}
        self.n_lost = 0

    def _worker(self) -> Program:
        return self.lab.worker(self.port, disturbed={"fails_every": _FAILS_EVERY, "unsynced": str(self.unsynced)})

    def _dpstudies(self, *words: Any) -> Program:
        disturbed = {"fails_every": _FAILS_EVERY, "unsynced": str(self.unsynced)}
        return self.lab.dpstudies(*words, "--cluster", self.profile, disturbed=disturbed)

    def make_whole(self) -> None:
        """Restart each process that has ended."""
        if not self.scheduler.runs:
            for worker in self.workers:  # most workers end by themselves, except those that never connected
                if worker.runs:
                    self.lab.kill(worker)
            self.scheduler = self.lab.scheduler(self.port)
        self.workers = [worker if worker.runs else self._worker() for worker in self.workers]
        if not self.driver.runs:
            self.driver = self._dpstudies("resume", self.store)

    def suffer(self, fault: str) -> None:
        """Inject a fault at a random time."""
        if fault == "chunks damaged" or not self.driver.runs:
            return self._damage()
        time.sleep(self.rng.uniform(0, 0.6))
        if fault == "worker killed":
            self.lab.kill(self.rng.choice(self.workers))
        elif fault == "worker stopped":
            stopped = self.rng.choice(self.workers).pid
            os.kill(stopped, signal.SIGSTOP)
            time.sleep(self.rng.uniform(0.1, 0.6))
            os.kill(stopped, signal.SIGCONT)
        elif fault == "driver killed" and self.driver.runs:
            self.lab.kill(self.driver)
        elif fault == "store extended":
            self._extend()
        elif fault == "power lost":
            for program in (self.driver, *self.workers):
                self.lab.kill(program)
            self.n_lost += lose_power(self.unsynced, self.rng)
        elif fault == "scheduler killed":
            self.lab.kill(self.scheduler)
            code = self.driver.finish()
            said = self.driver.message
            early = code == 2 and any(text in said for text in _SCHEDULER_LOST)
            self.checks[f"a lost scheduler is reported, got exit {code}: {said}"] = code in (0, 3) or early
        return None

    def _extend(self) -> None:
        """Check that an extension during the run is refused, and extend the store when the driver has ended."""
        more = min(self.trials + 1, WHOLE.trials)
        second = self._dpstudies("extend", self.store, "--trials", more)
        code = second.finish()
        is_transient = code == 3 and "Stale file handle" in second.message
        is_reported = (code == 2 and BUSY in second.message) or ((code == 0 or is_transient) and not self.driver.runs)
        self.checks[f"a second session is refused, got exit {code}: {second.message}"] = is_reported
        self.lab.kill(self.driver)
        self.driver, self.trials = self._dpstudies("extend", self.store, "--trials", more), more

    def _damage(self) -> None:
        """Damage up to twelve chunks between two runs, and verify the store."""
        if self.driver.runs:
            self.lab.kill(self.driver)
        chunks = [
            p for name in N_CELLS for v in ("x", "square", "status") for p in self.store.glob(f"{name}/{v}/c/**/*")
        ]
        chunks = sorted(path for path in chunks if path.is_file())
        for chunk in self.rng.sample(chunks, min(len(chunks), self.rng.randint(1, 12))):
            self.rng.choice([flip, cut, Path.unlink])(chunk)
        if n_exists := len(chunks):
            words = ("verify", self.store, "--sample", "0")
            codes = [self.lab.dpstudies(*words, *options).finish() for options in ((), ("--repair",))]
            self.checks[f"damage to {n_exists} chunks is exit 3, with a repair, too; got {codes}"] = codes == [3, 3]


def soak(folder: Path, n_faults: int, seed: int) -> Outcome:
    """Run a study to its end despite faults.

    Parameters
    ----------
    folder : Path
        Folder of the store and logs.
    n_faults : int
        Number of faults.
    seed : int
        Seed of the faults and their times.

    Returns
    -------
    Outcome
        Outcome of the last command, a verification that recomputes every block.
    """
    rng, counts = random.Random(seed), dict.fromkeys(_WEIGHTS, 0)
    with Machines(folder) as lab:
        laboratory = _Laboratory(lab, rng)
        wait_until(lambda: n_committed(laboratory.store) >= 20, "commits")
        for _ in range(n_faults):
            laboratory.make_whole()
            (fault,) = rng.choices(list(_WEIGHTS), _WEIGHTS.values())
            fault = fault if laboratory.driver.runs else "chunks damaged"
            counts[fault] += 1
            laboratory.suffer(fault)
        laboratory.make_whole()
        laboratory.driver.finish()
        laboratory.make_whole()
        laboratory.driver.finish()
        laboratory.driver = laboratory._dpstudies("extend", laboratory.store, "--trials", WHOLE.trials)
        code = laboratory.driver.finish()
        if code == 3 and "Stale file handle" in laboratory.driver.message:
            laboratory.make_whole()
            code = laboratory.driver.finish()
        last = lab.dpstudies("verify", laboratory.store, "--all")
        checks = laboratory.checks | {
            f"extend: exit 0, got {code}: {laboratory.driver.message}": code == 0,
            "verify: exit 0": last.finish() == 0,
        }
    faults = ", ".join(f"{n} x {fault}" for fault, n in counts.items() if n)
    faults += f"; {laboratory.n_lost} writes lost with the power, one in {_FAILS_EVERY} operations on files failed"
    return judge(f"{n_faults} faults at random, seed {seed}: {faults}", last, laboratory.store, checks)
