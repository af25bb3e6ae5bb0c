"""Functions that workers run; the dashboard displays their names."""

import functools
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from pipeline.blocks.evaluate import ENDED, FAILURES, Outcome, Status, cause_line, keep_ok
from pipeline.blocks.one_thread import one_thread
from pipeline.declare.panel import Panel
from pipeline.declare.study import Study
from pipeline.errors import UnreadableStoreError
from pipeline.execution.in_flight import Refusal, TransientError
from pipeline.execution.isolate import evaluate_apart
from pipeline.execution.shipping import shipped_task
from pipeline.execution.work import STOPPED, Receipt, Run, Tally, Work, count_positions, evaluate_work, unpack
from pipeline.faults import explain, is_transient
from pipeline.stores.commits import Planned
from pipeline.stores.store import ResultStore


def on_worker(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a function to raise transient errors, which Dask retries, and to return a `Refusal` for other errors."""

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        try:
            with one_thread():  # once per task, since the lookup of libraries is slow
                return function(*args)
        except TransientError:
            raise
        except Exception as error:
            if is_transient(error):
                raise TransientError(explain(error)) from None
            return Refusal(explain(error))

    return call


@on_worker
def compute(
    run: str, session: str, runs: tuple[Run, ...], budget: int | None, is_suspect: bool = False
) -> list[Receipt]:
    """Compute a batch of work and commit it as a whole; return early if the run was stopped.

    Suspect work, and work with a time limit, is computed in child processes.
    """
    task = shipped_task(run, session)
    study, store = task.opened()
    batch, is_apart = unpack(study, runs), is_suspect or task.time_limit is not None
    receipts = []
    stored = [_read_stale(study, store, work) for work in batch]  # the commit removes the statuses
    with store.commit([_planned(study, work) for work in batch]) as commit:
        for work, before in zip(batch, stored, strict=True):
            if run in STOPPED:
                break
            started, panel = time.perf_counter(), study.panel(work.block.panel)
            found = evaluate_apart(task, study, work, budget) if is_apart else evaluate_work(study, work, budget)
            outcomes = {
                k: outcome if k not in before else keep_ok(panel, before[k], outcome)
                for k, outcome in zip(work.settings, found, strict=True)
            }
            for k, outcome in outcomes.items():
                commit.write(panel, work.block, panel.settings()[k], outcome)
            receipts.append(_receipt(panel, work, outcomes, time.perf_counter() - started, task.source.file or ""))
    return receipts


def _read_stale(study: Study, store: ResultStore, work: Work) -> dict[int, Outcome]:
    """Return the stored outcomes of the stale settings of a work item, without damaged ones."""
    found, panel = {}, study.panel(work.block.panel)
    for k in work.stale:
        with suppress(UnreadableStoreError):
            found[k] = store.read(panel, work.block, panel.settings()[k])
    return found


def _planned(study: Study, work: Work) -> Planned:
    """Return a work item in the form that a commit requires."""
    panel = study.panel(work.block.panel)
    settings, stale = ([panel.settings()[k] for k in chosen] for chosen in (work.settings, work.stale))
    return Planned(panel, work.block, settings, stale)


def _receipt(panel: Panel, work: Work, outcomes: Mapping[int, Outcome], seconds: float, file: str) -> Receipt:
    tallies = tuple(
        Tally(
            len(outcome.status),
            int((outcome.status == Status.OK).sum()),
            int(np.isin(outcome.status, FAILURES).sum()),
            outcome.n_untried,
            count_positions(panel, panel.settings()[k]),
            int(np.isin(outcome.status, ENDED).sum()),
            cause_line(outcome.cause, file),
        )
        for k, outcome in outcomes.items()
    )
    return Receipt(work, seconds, tallies)
