"""Soak test, in which a study runs to its end despite many random faults."""

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

from tests.pipeline.faults.file_operations import cut, flip, lose_power
from tests.pipeline.faults.harness import Laboratory, Program
from tests.pipeline.faults.scenarios import BUSY
from tests.pipeline.faults.study import N_CELLS, WHOLE, Outcome

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


class _Soak(Laboratory):
    """Cluster and driver that are subjected to random faults."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        super().__init__(folder, seconds=0.05)
        self.rng, self.trials, self.n_lost = rng, 4, 0
        self.unsynced = folder / "unsynced"
        self.disturbed = {"fails_every": _FAILS_EVERY, "unsynced": str(self.unsynced)}

    def begin(self) -> None:
        self.scheduler_process = self.scheduler()
        self.workers = [self.disturbed_worker() for _ in range(2)]
        self.driver = self.disturbed_command("run", "--trials", self.trials)

    def disturbed_worker(self) -> Program:
        return self.worker(disturbed=self.disturbed)

    def disturbed_command(self, *words: Any) -> Program:
        return self.command(*words, disturbed=self.disturbed)

    def make_whole(self) -> None:
        """Restart each process that has ended."""
        if not self.scheduler_process.runs:
            for worker in self.workers:  # most workers end by themselves, except those that never connected
                if worker.runs:
                    self.kill(worker)
            self.scheduler_process = self.scheduler()
        self.workers = [worker if worker.runs else self.disturbed_worker() for worker in self.workers]
        if not self.driver.runs:
            self.driver = self.disturbed_command("resume")

    def suffer(self, fault: str) -> None:
        """Inject a fault at a random time."""
        if fault == "chunks damaged" or not self.driver.runs:
            return self._damage()
        time.sleep(self.rng.uniform(0, 0.6))
        if fault == "worker killed":
            self.kill(self.rng.choice(self.workers))
        elif fault == "worker stopped":
            stopped = self.rng.choice(self.workers).pid
            os.kill(stopped, signal.SIGSTOP)
            time.sleep(self.rng.uniform(0.1, 0.6))
            os.kill(stopped, signal.SIGCONT)
        elif fault == "driver killed" and self.driver.runs:
            self.kill(self.driver)
        elif fault == "store extended":
            self._extend()
        elif fault == "power lost":
            for program in (self.driver, *self.workers):
                self.kill(program)
            self.n_lost += lose_power(self.unsynced, self.rng)
        elif fault == "scheduler killed":
            self.kill(self.scheduler_process)
            code = self.driver.finish()
            said = self.driver.message
            early = code == 2 and any(text in said for text in _SCHEDULER_LOST)
            self.check(f"a lost scheduler is reported, got exit {code}: {said}", code in (0, 3) or early)
        return None

    def _extend(self) -> None:
        """Check that an extension during the run is refused, and extend the store when the driver has ended."""
        more = min(self.trials + 1, WHOLE.trials)
        second = self.disturbed_command("extend", "--trials", more)
        code = second.finish()
        is_transient = code == 3 and "Stale file handle" in second.message
        # without further trials, a complete store is extended by nothing, also while the driver starts or ends
        has_nothing_to_do = code == 0 and more == self.trials and second.message.startswith("complete")
        is_over = (code == 0 or is_transient) and not self.driver.runs
        is_reported = (code == 2 and BUSY in second.message) or is_over or has_nothing_to_do
        self.check(f"a second session is refused, got exit {code}: {second.message}", is_reported)
        self.kill(self.driver)
        self.driver, self.trials = self.disturbed_command("extend", "--trials", more), more

    def _damage(self) -> None:
        """Damage up to twelve chunks between two runs, and verify the store."""
        if self.driver.runs:
            self.kill(self.driver)
        chunks = [
            p for name in N_CELLS for v in ("x", "square", "status") for p in self.store.glob(f"{name}/{v}/c/**/*")
        ]
        chunks = sorted(path for path in chunks if path.is_file())
        for chunk in self.rng.sample(chunks, min(len(chunks), self.rng.randint(1, 12))):
            self.rng.choice([flip, cut, Path.unlink])(chunk)
        if chunks:
            words = ("verify", self.store, "--sample", "0")
            codes = [self.dpstudies(*words, *options).finish() for options in ((), ("--repair",))]
            self.check(f"damage to {len(chunks)} chunks is exit 3, with a repair, too; got {codes}", codes == [3, 3])


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
    with _Soak(folder, rng) as lab:
        lab.begin()
        lab.wait_for_trials(20)
        for _ in range(n_faults):
            lab.make_whole()
            (fault,) = rng.choices(list(_WEIGHTS), _WEIGHTS.values())
            fault = fault if lab.driver.runs else "chunks damaged"
            counts[fault] += 1
            lab.suffer(fault)
        for _ in range(2):
            lab.make_whole()
            lab.driver.finish()
        lab.driver = lab.disturbed_command("extend", "--trials", WHOLE.trials)
        code = lab.driver.finish()
        if code == 3 and "Stale file handle" in lab.driver.message:
            lab.make_whole()
            code = lab.driver.finish()
        lab.check(f"extend: exit 0, got {code}: {lab.driver.message}", code == 0)
        last = lab.dpstudies("verify", lab.store, "--all")
        lab.expect_exit(last, 0, "verify")
        faults = ", ".join(f"{n} x {fault}" for fault, n in counts.items() if n)
        faults += f"; {lab.n_lost} writes lost with the power, one in {_FAILS_EVERY} operations on files failed"
        return lab.judge(f"{n_faults} faults at random, seed {seed}: {faults}", last)
