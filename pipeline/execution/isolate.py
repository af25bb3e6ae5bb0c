"""Isolation of trials that terminate their worker, while the remaining work continues.

The work items of a batch that terminated its worker are computed one by one, each alone on a worker that announces
every step to the driver (`settle`). If the worker terminates again, the announced setting is computed trial by trial
(`probe`). The trial that causes the third termination gets the status killed; all other trials of the block are then
computed and committed. Such a trial terminates two more workers after the first, for any block size, and no step is
repeated.

The same steps find trials that exceed the time limit. A single trial under a single setting times out when it
first exceeds the limit.
"""

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from pipeline.blocks.evaluate import Block, Status
from pipeline.declare.study import Study
from pipeline.execution.budget import Budget, UnfinishedWork
from pipeline.execution.in_flight import TaskResult, TasksInFlight
from pipeline.execution.naming import Namer
from pipeline.execution.tasks import DATA, WHOLE, probe, settle
from pipeline.execution.work import Receipt, Task, Work

_MOST_LOST_WORKERS = 10  # number of workers that terminate before a step begins, after which the step is abandoned
_MOST_JOINT_ENDS = 2  # number of worker terminations at a trial that returned when it was computed alone
_PRIORITY = 1  # priority of isolation tasks, above that of the remaining work


@dataclass
class Suspect:
    """Work item that terminated its worker or exceeded the time limit.

    Attributes
    ----------
    work : Work
        The work item.
    singly : set of int
        Settings to compute trial by trial.
    excluded : dict of (int, int) to Status
        Trials to store without computation, by setting and trial.
    n_probes : int
        Number of probes that have not returned.
    n_joint_ends : int
        Number of worker terminations at a trial that returned when computed alone.
    unfinished_reason : str
        Reason why the work remains pending, or an empty string.
    """

    work: Work
    singly: set[int] = field(default_factory=set)
    excluded: dict[tuple[int, int], Status] = field(default_factory=dict)
    n_probes: int = 0
    n_joint_ends: int = 0
    unfinished_reason: str = ""


@dataclass(frozen=True)
class Step:
    """Single task of an isolation.

    Attributes
    ----------
    suspect : Suspect
        Work item to isolate.
    setting : int or None
        Setting of the trials to probe, or `DATA` for their simulation; None for a `settle` task.
    trials : range
        The trials to probe.
    n_lost_workers : int
        Number of workers that terminated before the step began.
    """

    suspect: Suspect
    setting: int | None = None
    trials: range = range(0)
    n_lost_workers: int = 0


class Isolation:
    """Isolation of the suspects of a run, step by step.

    Parameters
    ----------
    in_flight : TasksInFlight
        Tasks in flight.
    task : Task
        Parameters of the run.
    study : Study
        The configured study.
    budget : Budget
        Counts of failures in the run.
    unfinished : UnfinishedWork
        Collection of the work items that remain pending.
    """

    def __init__(
        self, in_flight: TasksInFlight, task: Task, study: Study, budget: Budget, unfinished: UnfinishedWork
    ) -> None:
        self._in_flight, self._task, self._study = in_flight, task, study
        self._budget, self._unfinished = budget, unfinished
        self._namer = Namer(study, task.run)
        self._steps: deque[Step] = deque()
        self._excluded: dict[int, Suspect] = {}  # suspects with uncommitted excluded trials

    def __len__(self) -> int:
        """Return the number of steps that have not been submitted."""
        return len(self._steps)

    def suspect(self, works: Iterable[Work]) -> None:
        """Add work items that terminated their worker or exceeded the time limit."""
        self._steps.extend(Step(Suspect(work)) for work in works)

    def submit(self, n_tasks: int) -> None:
        """Submit at most `n_tasks` steps."""
        for _ in range(min(n_tasks, len(self._steps))):
            step = self._steps.popleft()
            suspect, work = step.suspect, step.suspect.work
            options = {"key": self._namer.name([work], step.trials or None), "priority": _PRIORITY}
            if step.setting is None:
                arguments = work, tuple(sorted(suspect.singly)), dict(suspect.excluded), self._budget.of_block
                self._in_flight.submit(step, settle, self._task.run, self._task.session, *arguments, **options)
            else:
                block = Block(work.block.panel, work.block.cell, step.trials)
                self._in_flight.submit(step, probe, self._task.run, self._task.session, block, step.setting, **options)

    def take(self, result: TaskResult, n_threads: int) -> list[Receipt]:
        """Process the result of a step; return the receipts of committed work.

        Parameters
        ----------
        result : TaskResult
            Result of the step.
        n_threads : int
            Number of threads of the cluster, among which the probes of a block are divided.

        Raises
        ------
        ExecutionError
            If every computed trial of a setting terminated its worker.
        """
        step: Step = result.payload
        if result.status is not None and result.position is None:  # the worker terminated before it started the step
            self._repeat(step)
            return []
        if step.setting is not None:
            self._take_probe(step, result)
            return []
        if result.transient:
            self._unfinished.add([step.suspect.work], result.transient)
        elif result.status is None:
            self._excluded.pop(id(step.suspect), None)
        elif result.position is not None:
            self._take_end(step.suspect, result.status, result.position, n_threads)
        return result.value or []

    def record(self) -> None:
        """Commit the statuses of the excluded trials, without computing the trials, when a run stops."""
        for suspect in self._excluded.values():
            block = suspect.work.block
            settings = tuple(sorted({k for k, _ in suspect.excluded}))
            excluded = {
                (k, trial): suspect.excluded.get((k, trial), Status.PENDING) for k in settings for trial in block.trials
            }
            arguments = Work(block, settings, settings), settings, excluded
            key = self._namer.name([suspect.work])
            self._in_flight.submit(
                None, settle, self._task.run, self._task.session, *arguments, key=key, priority=_PRIORITY
            )
        n_left = len(self._excluded)
        self._excluded = {}
        while n_left:
            n_left -= sum(result.payload is None for result in self._in_flight.wait())

    def _repeat(self, step: Step) -> None:
        if step.n_lost_workers < _MOST_LOST_WORKERS:
            self._steps.append(Step(step.suspect, step.setting, step.trials, step.n_lost_workers + 1))
            return
        step.suspect.unfinished_reason = f"{_MOST_LOST_WORKERS} workers terminated before starting the work item"
        if step.setting is None:
            self._unfinished.add([step.suspect.work], step.suspect.unfinished_reason)
        else:
            self._finish_probe(step)

    def _take_end(self, suspect: Suspect, status: Status, position: tuple[int, ...], n_threads: int) -> None:
        """Add the steps that follow a `settle` task whose worker terminated."""
        setting, trial = position
        trials = suspect.work.block.trials
        if trial == WHOLE and (len(trials) > 1 or status == Status.KILLED or setting == DATA):
            size = math.ceil(len(trials) / n_threads)
            parts = [trials[start : start + size] for start in range(0, len(trials), size)]
        elif status == Status.TIMED_OUT:
            self._exclude(suspect, setting, trials[0] if trial == WHOLE else trial, status)
            suspect.singly.add(setting)
            parts = []
        elif suspect.n_joint_ends < _MOST_JOINT_ENDS:
            suspect.n_joint_ends += 1
            parts = [range(trial, trial + 1)]
        else:
            self._unfinished.add(
                [suspect.work],
                "trials that return when computed one by one terminate their worker when computed together",
            )
            return
        suspect.n_probes = len(parts)
        self._steps.extend(Step(suspect, setting, part) for part in parts)
        if not parts:
            self._steps.append(Step(suspect))

    def _take_probe(self, step: Step, result: TaskResult) -> None:
        suspect, setting = step.suspect, step.setting
        assert setting is not None
        if result.transient:
            suspect.unfinished_reason = result.transient
        elif result.status is not None and result.position is not None:
            trial = result.position[0]
            if trial > step.trials.start:
                self._budget.note_survival(suspect.work.block.panel, setting)
            self._exclude(suspect, setting, trial, result.status)
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
        if suspect.unfinished_reason:
            self._unfinished.add([suspect.work], suspect.unfinished_reason)
            return
        assert setting is not None
        suspect.singly.update(suspect.work.settings if setting == DATA else (setting,))
        self._steps.append(Step(suspect))

    def _exclude(self, suspect: Suspect, setting: int, trial: int, status: Status) -> None:
        for k in suspect.work.settings if setting == DATA else (setting,):
            suspect.excluded[k, trial] = status
        self._excluded[id(suspect)] = suspect
        self._budget.note_end(suspect.work.block.panel, setting)
