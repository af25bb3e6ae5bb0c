"""Functions that workers run, whose names the dashboard displays, and the plugin that sends a study to each worker.

Tasks refer to the study by the identifier of their run.
"""

import functools
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from typing import Any

import numpy as np
from distributed import Client, Security, Worker, WorkerPlugin

from pipeline.blocks.evaluate import ENDED, FAILURES, Outcome, Status, keep_ok, keep_untried
from pipeline.blocks.one_thread import one_thread
from pipeline.declare.panel import Panel, Setting
from pipeline.declare.study import Study
from pipeline.errors import ExecutionError, UnreadableStoreError
from pipeline.execution.in_flight import Refusal, TransientError
from pipeline.execution.isolate import children_of, isolate
from pipeline.execution.work import Receipt, Run, Tally, Task, Work, evaluate_work, unpack
from pipeline.execution.worker_runs import RUNS
from pipeline.faults import explain, is_transient
from pipeline.store.commit import Planned
from pipeline.store.read import read_outcome
from pipeline.store.result_store import ResultStore

_CONNECT_SECONDS = 2


class RegisteredTask(WorkerPlugin):
    """Worker plugin that registers the task of a run on all current and future workers."""

    def __init__(self, task: Task) -> None:
        self.name = plugin_name(task.run)
        self._task = task

    def setup(self, worker: Worker) -> None:
        """Register the task in the process of a worker, without importing the study."""
        RUNS.register(self._task)

    def teardown(self, worker: Worker) -> None:
        """Remove the task; a running batch ends after its current block."""
        RUNS.unregister(self._task.run)


def plugin_name(run: str) -> str:
    """Return the name of the worker plugin of a run."""
    return f"dpstudies-{run}"


def registered_task(run: str, session: str = "") -> Task:
    """Return the task that is registered in this worker process for a run, with the identifier of a session."""
    try:
        return replace(RUNS.task(run), session=session)
    except KeyError:
        raise ExecutionError(f"the run {run} has ended or was cancelled; resume its store") from None


@contextmanager
def registered(client: Client, task: Task) -> Iterator[None]:
    """Register a task on all current and future workers of a cluster, and remove it at the end."""
    address, security = client.scheduler.address, client.security
    try:
        client.register_plugin(RegisteredTask(task))
        yield
    finally:
        unregister(client, task.run)
        if client.status in ("closing", "closed"):  # the user has closed the client, or the scheduler has ended
            with suppress(Exception), closing(_short_client(address, security)) as other:
                unregister(other, task.run)


def unregister(client: Client, run: str) -> None:
    """Remove a run from the workers, if the scheduler responds."""
    if client.status == "running":
        with suppress(Exception):
            client.unregister_worker_plugin(plugin_name(run))


def _short_client(address: str, security: Security) -> Client:
    return Client(address, security=security, timeout=_CONNECT_SECONDS, set_as_default=False)


def on_worker(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a function to raise transient errors, which Dask retries, and to return a `Refusal` for other errors."""

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        try:
            with one_thread():  # once per task, since the lookup of libraries is slow
                return function(*args)
        except TransientError:
            raise
        except BaseException as error:  # Dask waits forever for a thread that raises another exception
            if is_transient(error):
                raise TransientError(explain(error)) from None
            return Refusal(explain(error))

    return call


@on_worker
def compute(
    run: str, session: str, runs: tuple[Run, ...], budget: int | None, is_suspect: bool = False
) -> list[Receipt]:
    """Compute a batch of work, in child processes if it is suspect or has a time limit, and commit it as a whole."""
    task = registered_task(run, session)
    study, store = task.opened()
    batch, is_apart = unpack(study, runs), is_suspect or task.time_limit is not None
    receipts = []
    RUNS.note_computed(study.name)
    stored = [_read_stale(study, store, work) for work in batch]  # the commit replaces the statuses
    with task.writer().commit([_planned(study.panel(work.block.panel), work) for work in batch]) as commit:
        for work, before in zip(batch, stored, strict=True):
            if RUNS.has_stopped(run):
                break
            started, panel = time.perf_counter(), study.panel(work.block.panel)
            apart = isolate(children_of(task, study), panel, work, budget) if is_apart else None
            computed = evaluate_work(study, work, budget) if apart is None else apart
            outcomes = {
                k: outcome if k not in before else keep_ok(panel, before[k], outcome)
                for k, outcome in zip(work.settings, computed, strict=True)
            }
            for k, outcome in outcomes.items():
                kept = outcome if k not in before else keep_untried(before[k], outcome)
                commit.write(panel, work.block, panel.settings()[k], kept)
            receipts.append(_receipt(panel, work, outcomes, time.perf_counter() - started))
    return receipts


def _read_stale(study: Study, store: ResultStore, work: Work) -> dict[int, Outcome]:
    """Return the stored outcomes of the stale settings of a work item, without damaged ones."""
    outcomes, panel = {}, study.panel(work.block.panel)
    for k in work.stale:
        with suppress(UnreadableStoreError):
            outcomes[k] = read_outcome(store, panel, work.block, panel.settings()[k])
    return outcomes


def _planned(panel: Panel, work: Work) -> Planned:
    """Return a work item in the form that a commit requires."""
    settings, stale = ([panel.settings()[k] for k in chosen] for chosen in (work.settings, work.stale))
    return Planned(panel, work.block, settings, stale)


def _receipt(panel: Panel, work: Work, outcomes: Mapping[int, Outcome], seconds: float) -> Receipt:
    tallies = tuple(_tally(panel, panel.settings()[k], outcome) for k, outcome in outcomes.items())
    return Receipt(work, seconds, tallies)


def _tally(panel: Panel, setting: Setting, outcome: Outcome) -> Tally:
    counts = np.bincount(outcome.status, minlength=len(Status)).tolist()
    n_failed = sum(counts[status] for status in FAILURES)
    return Tally(
        len(outcome.status),
        counts[Status.OK],
        n_failed,
        counts[Status.PENDING],
        panel.count_positions(setting),
        sum(counts[status] for status in ENDED),
        outcome.cause if n_failed else "",
        outcome.seconds,
    )
