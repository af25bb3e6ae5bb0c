"""Functions that workers run; the dashboard displays their names."""

import functools
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from pipeline.blocks.evaluate import (
    BUDGET,
    Block,
    Outcome,
    Status,
    evaluate_around,
    evaluate_block,
    join,
    simulate_block,
)
from pipeline.blocks.one_thread import one_thread
from pipeline.declare.study import Study
from pipeline.execution.in_flight import Refusal, TransientError
from pipeline.execution.shipping import shipped_task
from pipeline.execution.work import Receipt, Run, Task, Work, evaluate_work, unpack
from pipeline.faults import explain, is_transient

WHOLE = -1  # position announced in place of a trial: all trials of the block
DATA = -1  # position announced in place of a setting: the simulation


class Gate:
    """Lock of a worker process with shared and exclusive access; exclusive access has priority."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._n_sharing = self._n_waiting = 0
        self._is_alone = False

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Hold the lock with shared access."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_alone and not self._n_waiting)
            self._n_sharing += 1
        try:
            yield
        finally:
            with self._changed:
                self._n_sharing -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the lock with exclusive access, so that only this task can terminate the process."""
        with self._changed:
            self._n_waiting += 1
            self._changed.wait_for(lambda: not self._is_alone and not self._n_sharing)
            self._n_waiting -= 1
            self._is_alone = True
        try:
            yield
        finally:
            with self._changed:
                self._is_alone = False
                self._changed.notify_all()


_gate = Gate()


def on_worker(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a function to raise transient errors, which Dask retries, and to return a `Refusal` for other errors."""

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        try:
            with one_thread():  # once per task, since the lookup of libraries is slow
                return function(*args)
        except Exception as error:
            if is_transient(error):
                raise TransientError(explain(error)) from None
            return Refusal(explain(error))

    return call


@on_worker
def compute(run: str, session: str, runs: tuple[Run, ...], budget: int | None) -> list[Receipt]:
    """Compute and commit a batch of work."""
    task = shipped_task(run, session)
    study, _ = task.opened()
    with _gate.shared():
        return task(unpack(study, runs), functools.partial(evaluate_work, budget=budget))


@on_worker
def settle(
    run: str,
    session: str,
    work: Work,
    singly: tuple[int, ...],
    excluded: Mapping[tuple[int, int], Status],
    budget: int | None = BUDGET,
) -> list[Receipt]:
    """Compute and commit a work item that may terminate its worker, alone on that worker, and announce each step.

    Parameters
    ----------
    run, session : str
        Identifiers of the run and of the writing session.
    work : Work
        Settings of one block. Each announced position is a setting or `DATA`, and a trial or `WHOLE`.
    singly : tuple of int
        Settings to compute trial by trial.
    excluded : mapping of (int, int) to Status
        Trials of those settings to store without computation, by setting and trial.
    budget : int, optional
        See `evaluate_block`.
    """
    task = replace(shipped_task(run, session), announced=False)  # `_evaluate_apart` announces the steps
    with _gate.alone():
        return task([work], lambda study, work: _evaluate_apart(task, study, work, singly, excluded, budget))


@on_worker
def probe(run: str, session: str, block: Block, setting: int) -> None:
    """Compute each trial of a block alone under a setting, or only simulate its data if `setting` is `DATA`.

    Results are discarded. The announced positions are trials. The first trial that terminates the worker ends the task.
    """
    task = shipped_task(run, session)
    study, _ = task.opened()
    with _gate.alone():
        for single in _singles(block):
            task.announce(single.trials.start)
            with suppress(Exception, SystemExit):  # an exception is an outcome, which `settle` stores
                if setting == DATA:
                    simulate_block(study, single)
                else:
                    evaluate_block(study, single, [study.panel(block.panel).settings()[setting]])


def _evaluate_apart(
    task: Task,
    study: Study,
    work: Work,
    singly: tuple[int, ...],
    excluded: Mapping[tuple[int, int], Status],
    budget: int | None,
) -> list[Outcome]:
    panel, block = study.panel(work.block.panel), work.block
    if not set(work.settings) <= set(singly):
        task.announce(DATA, WHOLE)
        with suppress(Exception, SystemExit):
            simulate_block(study, block)
    outcomes = []
    for k in work.settings:
        setting = panel.settings()[k]
        if k not in singly:
            task.announce(k, WHOLE)
            outcomes += evaluate_block(study, block, [setting], budget)
            continue
        found = {}
        for single in _singles(block):
            trial = single.trials.start
            status = excluded.get((k, trial))
            if status is None:
                task.announce(k, trial)
            found[trial] = evaluate_around(study, single, setting, {} if status is None else {trial: status})
        outcomes.append(join(panel, found))
    return outcomes


def _singles(block: Block) -> Iterator[Block]:
    for trial in block.trials:
        yield Block(block.panel, block.cell, range(trial, trial + 1))
