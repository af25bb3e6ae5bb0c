"""Isolation of trials that end their worker: each is judged by itself, beside the remaining work.

A batch that ended its worker is computed again piece by piece, alone on a worker, and each step is announced to the
driver (`settle`). If the worker ends again, the announced setting is computed trial by trial (`probe`). The trial with
which the worker ends a third time, alone, is killed; all others of its block are then computed and committed. So a
trial costs two workers beside the first, whatever the size of its block, and no step is repeated.

The same steps find trials that exceed the time limit. A single trial under a single setting that exceeds it once has
timed out.
"""

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from pipeline.blocks.evaluate import Block, Status
from pipeline.declare.study import Study
from pipeline.execution.budget import Budget, Leftovers
from pipeline.execution.flight import Flight, Landed
from pipeline.execution.naming import Namer
from pipeline.execution.tasks import DATA, WHOLE, probe, settle
from pipeline.execution.work import Receipt, Task, Work

_MOST_LOSSES = 10  # workers that end before a task of ours begins
_MOST_COMPANY = 2  # ends of a worker with a trial that returned when it was alone
_PRIORITY = 1  # above the remaining work


@dataclass
class Suspect:
    """A piece of work that ended its worker or exceeded the time limit.

    Attributes
    ----------
    work : Work
        The work.
    singly : set of int
        Settings to compute trial by trial.
    given : dict of (int, int) to Status
        Trials that are not computed, by setting and trial.
    n_probes : int
        Probes that have not returned.
    n_company : int
        Ends of a worker with a trial that returned when it was alone.
    leftover : str
        Reason for which the work is left pending; empty if it is not.
    """

    work: Work
    singly: set[int] = field(default_factory=set)
    given: dict[tuple[int, int], Status] = field(default_factory=dict)
    n_probes: int = 0
    n_company: int = 0
    leftover: str = ""


@dataclass(frozen=True)
class Step:
    """One task of the isolation.

    Attributes
    ----------
    suspect : Suspect
        The work it belongs to.
    setting : int or None
        Setting, or `DATA`, whose trials are probed; None to settle the work.
    trials : range
        The trials to probe.
    n_losses : int
        Workers that ended before the task began on them.
    """

    suspect: Suspect
    setting: int | None = None
    trials: range = range(0)
    n_losses: int = 0


class Isolation:
    """The suspects of a run, and the steps that are left to take.

    Parameters
    ----------
    flight : Flight
        Tasks in flight.
    task : Task
        Parameters of the run.
    study : Study
        The configured study.
    budget : Budget
        Record of settings without a success.
    leftovers : Leftovers
        Receives work that is left pending.
    """

    def __init__(self, flight: Flight, task: Task, study: Study, budget: Budget, leftovers: Leftovers) -> None:
        self._flight, self._task, self._study = flight, task, study
        self._budget, self._leftovers = budget, leftovers
        self._namer = Namer(study, task.run)
        self._steps: deque[Step] = deque()
        self._failing: dict[int, Suspect] = {}  # those with given trials that are not committed yet

    def __len__(self) -> int:
        """Return the number of steps that are not in flight yet."""
        return len(self._steps)

    def suspect(self, works: Iterable[Work]) -> None:
        """Take over work that ended its worker or exceeded the time limit."""
        self._steps.extend(Step(Suspect(work)) for work in works)

    def submit(self, room: int) -> None:
        """Submit as many steps as there is room for in flight."""
        for _ in range(min(room, len(self._steps))):
            step = self._steps.popleft()
            suspect, work = step.suspect, step.suspect.work
            options = {"key": self._namer.name([work], step.trials or None), "priority": _PRIORITY}
            if step.setting is None:
                arguments = work, tuple(sorted(suspect.singly)), dict(suspect.given), self._budget.of_block
                self._flight.submit(step, settle, self._task.run, self._task.session, *arguments, **options)
            else:
                block = Block(work.block.panel, work.block.cell, step.trials)
                self._flight.submit(step, probe, self._task.run, self._task.session, block, step.setting, **options)

    def take(self, landed: Landed, n_threads: int) -> list[Receipt]:
        """Decide what follows from a step that is over; return the receipts of work that was committed.

        Parameters
        ----------
        landed : Landed
            The step.
        n_threads : int
            Threads of the cluster, over which probes of one block are divided.

        Raises
        ------
        ExecutionError
            If a setting ended its worker with every trial that was tried.
        """
        step: Step = landed.payload
        if landed.fate is not None and landed.position is None:  # its worker ended for another reason
            self._repeat(step)
            return []
        if step.setting is not None:
            self._take_probe(step, landed)
            return []
        if landed.transient:
            self._leftovers.add([step.suspect.work], landed.transient)
        elif landed.fate is None:
            self._failing.pop(id(step.suspect), None)
        elif landed.position is not None:
            self._take_end(step.suspect, landed.fate, landed.position, n_threads)
        return landed.result or []

    def record(self) -> None:
        """Commit the trials that were condemned so far, without computing anything: for a run that stops."""
        for suspect in self._failing.values():
            block = suspect.work.block
            settings = tuple(sorted({k for k, _ in suspect.given}))
            given = {
                (k, trial): suspect.given.get((k, trial), Status.PENDING) for k in settings for trial in block.trials
            }
            arguments = Work(block, settings, settings), settings, given
            key = self._namer.name([suspect.work])
            self._flight.submit(
                None, settle, self._task.run, self._task.session, *arguments, key=key, priority=_PRIORITY
            )
        n_left = len(self._failing)
        self._failing = {}
        while n_left:
            n_left -= sum(landed.payload is None for landed in self._flight.wait())

    def _repeat(self, step: Step) -> None:
        if step.n_losses < _MOST_LOSSES:
            self._steps.append(Step(step.suspect, step.setting, step.trials, step.n_losses + 1))
            return
        step.suspect.leftover = f"its workers ended {_MOST_LOSSES} times before they began it"
        if step.setting is None:
            self._leftovers.add([step.suspect.work], step.suspect.leftover)
        else:
            self._finish_probe(step)

    def _take_end(self, suspect: Suspect, fate: Status, position: tuple[int, ...], n_threads: int) -> None:
        """Go on from the step of `settle` with which a worker ended."""
        setting, trial = position
        trials = suspect.work.block.trials
        if trial == WHOLE and (len(trials) > 1 or fate == Status.KILLED or setting == DATA):
            size = math.ceil(len(trials) / n_threads)
            parts = [trials[start : start + size] for start in range(0, len(trials), size)]
        elif fate == Status.TIMED_OUT:
            self._record_failure(suspect, setting, trials[0] if trial == WHOLE else trial, fate)
            suspect.singly.add(setting)
            parts = []
        elif suspect.n_company < _MOST_COMPANY:
            suspect.n_company += 1
            parts = [range(trial, trial + 1)]
        else:
            self._leftovers.add([suspect.work], "trials that return one by one end their worker together")
            return
        suspect.n_probes = len(parts)
        self._steps.extend(Step(suspect, setting, part) for part in parts)
        if not parts:
            self._steps.append(Step(suspect))

    def _take_probe(self, step: Step, landed: Landed) -> None:
        suspect, setting = step.suspect, step.setting
        assert setting is not None
        if landed.transient:
            suspect.leftover = landed.transient
        elif landed.fate is not None and landed.position is not None:
            trial = landed.position[0]
            if trial > step.trials.start:
                self._budget.note_survival(suspect.work.block.panel, setting)
            self._record_failure(suspect, setting, trial, landed.fate)
            rest = range(trial + 1, step.trials.stop)
            if rest:
                self._steps.append(Step(suspect, setting, rest))
                return
        else:
            self._budget.note_survival(suspect.work.block.panel, setting)
        self._finish_probe(step)

    def _finish_probe(self, step: Step) -> None:
        suspect, setting = step.suspect, step.setting
        suspect.n_probes -= 1
        if suspect.n_probes:
            return
        if suspect.leftover:
            self._leftovers.add([suspect.work], suspect.leftover)
            return
        assert setting is not None
        suspect.singly.update(suspect.work.settings if setting == DATA else (setting,))
        self._steps.append(Step(suspect))

    def _record_failure(self, suspect: Suspect, setting: int, trial: int, fate: Status) -> None:
        for k in suspect.work.settings if setting == DATA else (setting,):
            suspect.given[k, trial] = fate
        self._failing[id(suspect)] = suspect
        self._budget.note_end(suspect.work.block.panel, setting)
