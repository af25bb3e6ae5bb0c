"""Submissions: studies that a scheduler computes independently of the submitting process.

A task of the scheduler drives a submission as `run` does in a process of its own: with a session and its heartbeat,
retries, and isolation of failing trials. If the worker of the driver is lost, the scheduler runs the task again on
another worker; the new driver ends the session of the lost one, whose writes then fail, and continues.

The record of a submission names its scheduler, but a store may come from somebody else, and a scheduler can run code in
each of its clients. A connection is therefore made only to the address of a profile that the user names.
"""

import os
import re
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pipeline.clusters.check import require_shared
from pipeline.clusters.cluster import UnreachableSchedulerError, connect, reach_scheduler
from pipeline.clusters.profiles import Profile, split_choice
from pipeline.clusters.user_cluster import ChosenCluster, ClusterChoice, UserCluster, choose_cluster
from pipeline.declare.source import StudySource
from pipeline.declare.study import Values
from pipeline.errors import BadInputError, ExecutionError, IncompleteStoreError, StoreAccessError, command
from pipeline.execution import driver_task
from pipeline.execution.tasks import unregister
from pipeline.faults import explain
from pipeline.runs.resolve import refuse_other_spec
from pipeline.runs.run import carry_out
from pipeline.runs.run_plan import Driver, RunOptions, RunPlan, StudyLike, Trials, plan_resumption, plan_run
from pipeline.store.files.access import open_files
from pipeline.store.files.locations import normalise_location
from pipeline.store.result_store import ResultStore
from pipeline.store.scan.requested import RequestedTrials
from pipeline.store.sessions.lease import end_session, require_idle
from pipeline.store.sessions.records import describe, now, sessions_of

_VISIBLE_SECONDS = 15.0  # a network file system may show a new file later
_CANCEL_SECONDS = 60.0
_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Submission:
    """Study that a process has submitted to a scheduler."""

    id: str  # of the session that writes to the store
    driver: str  # part of the key of its driver on the scheduler; empty if the record has none
    started: str  # time at which the session began
    address: str  # recorded address of the scheduler
    cluster: str  # recorded profile with this address, as ``FILE:PROFILE``
    is_open: bool = True
    stopped: str = ""  # error that ended it

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Submission":
        """Return the submission that a session recorded."""
        driver, address, cluster = (str(record.get(name, "")) for name in ("submission", "address", "cluster"))
        if not re.fullmatch("[0-9a-f]{32}", driver):
            driver, address = "", "an unknown address"
        is_open, stopped = "ended" not in record, record.get("stopped", "")
        return cls(record["id"], driver, record["started"], address, cluster, is_open, stopped)

    def is_running(self, cluster: ClusterChoice) -> bool | None:
        """Return True if the scheduler of a cluster has the driver, and None if the scheduler does not respond."""
        with _reached(self, cluster) as client:
            return None if client is None else driver_task.has_driver(client, self.driver)

    def __str__(self) -> str:
        """Return the identifier, time and address as a phrase for messages."""
        return f"submission {self.id} of {self.started} at {self.address}"


@dataclass(frozen=True)
class Cancellation:
    """Result of `cancel`: the submission, and True if its driver has ended, None if no scheduler responded."""

    submission: Submission
    has_ended: bool | None


@dataclass(frozen=True)
class _Order:
    """Computation in a form that a worker can load."""

    identifier: str
    source: StudySource
    spec: Mapping[str, Any]
    url: str
    options: RunOptions
    requested: Mapping[str, RequestedTrials] | None
    record: Mapping[str, Any]  # fields of its session, which only the submitting process knows

    @classmethod
    def of(cls, plan: RunPlan, identifier: str) -> "_Order":
        """Return the order of a plan, without the security of the cluster, which only this process needs."""
        options, cluster = plan.options, plan.options.chosen_cluster
        here = describe(plan.source.file)  # the driver has neither the user's command nor the repository
        record: dict[str, Any] = {name: here[name] for name in ("command", "git_commit", "git_dirty") if name in here}
        record |= {
            "submission": identifier,
            "address": cluster.address,
            "cluster": recorded_choice(options.cluster, cluster),
        }
        address = Profile(cluster.name, address=cluster.address)
        sent = replace(options, cluster=address, values=None, trials=None, progress=False)
        return cls(
            identifier, plan.source, plan.study.spec(), normalise_location(plan.path), sent, plan.requested, record
        )


def submit(
    study: StudyLike,
    store: str | os.PathLike[str],
    *,
    trials: Trials = None,
    seed: int | None = None,
    panels: Iterable[str] = (),
    values: Values | None = None,
    cluster: ClusterChoice = None,
    time_limit: float | None = None,
    until: str | None = None,
    at_most: int | None = None,
    within: float | None = None,
    allow_failures: bool = False,
    accept_edited_study: bool = False,
) -> Submission | None:
    """Submit a study to a scheduler that computes it independently of this process.

    Parameters
    ----------
    cluster : str, distributed.Client or Dask cluster
        Profile with the address of a scheduler, or a client of a scheduler that continues after this process has ended;
        by default Dask's current client.
    study, store, trials, seed, panels, values, time_limit, until, at_most, within, allow_failures, accept_edited_study
        See `run`.

    Returns
    -------
    Submission or None
        The submission, whose session has begun; None if no work is pending. The session records when it has finished,
        or the error that stopped it; `status` shows it, and `resume` computes pending blocks then.

    Raises
    ------
    BadInputError
        As in `run`, and also for a cluster that stops with this process or a store that another session computes.
    ExecutionError
        If the scheduler or the workers cannot compute the study.
    """
    options = RunOptions(
        trials=trials,
        seed=seed,
        panels=panels,
        values=values,
        cluster=cluster,
        time_limit=time_limit,
        until=until,
        at_most=at_most,
        within=within,
        allow_failures=allow_failures,
        accept_edited_study=accept_edited_study,
    )
    chosen = options.chosen_cluster
    if not chosen.outlives_process:
        raise BadInputError(
            "cluster must be a profile with the address of a running scheduler, or a client of one, got "
            f"{chosen.label}, whose scheduler ends with this process; use 'run' instead, or start a scheduler with "
            "'dask scheduler'"
        )
    plan = plan_run(study, store, options)
    if plan.is_done:
        return None
    if plan.existing is not None:
        require_idle(plan.existing.files)  # the driver may have to wait for a thread of the other session
    order = _Order.of(plan, uuid.uuid4().hex)
    with connect(chosen) as client:
        require_shared(client, order.url)
        if not driver_task.start_driver(client, order.identifier, drive, order):
            return None
        try:
            return _await_record(order.url, order.identifier)
        except BaseException:
            driver_task.cancel_driver(client, order.identifier)
            raise


def recorded_choice(choice: Any, cluster: ChosenCluster) -> str:
    """Return the choice of a profile as a session records it: its file by an absolute path; "" for a client."""
    if isinstance(cluster, UserCluster):
        return ""
    return f"{os.path.abspath(split_choice(os.fspath(choice))[0])}:{cluster.name}"


def drive(order: _Order) -> Exception | None:
    """Compute a submitted study as a task on a worker; return the error that ended it, or None."""
    try:
        with driver_task.connect_worker() as client:
            existing = ResultStore.find(order.url)
            records = sessions_of(open_files(order.url))
            records_of_driver = [record for record in records if record.get("submission") == order.identifier]
            if records_of_driver:  # the worker of an earlier driver was lost
                if records_of_driver[-1] is not records[-1] or records_of_driver[-1].keys() & {"cancelled", "finished"}:
                    return None
                end_session(order.url, records_of_driver[-1]["id"], {})
                unregister(client, str(records_of_driver[-1].get("run", "")))
            driver = Driver(
                lambda _: nullcontext(client),
                order.record,
                partial(driver_task.announce, order.identifier),
                driver_task.cancellation(order.identifier),
                has_lost_worker=bool(records_of_driver),
            )
            study = order.source.load()
            if records_of_driver and existing is not None and existing.complete:
                study = study.from_spec(existing.spec)
                plan = plan_resumption(existing, order.source, study, order.options)
            else:
                study = study.from_spec(order.spec)
                if existing is not None and (existing.complete or order.options.until is None):
                    refuse_other_spec(existing, study)  # another session may have changed the store since the plan
                plan = RunPlan(order.source, study, order.url, existing, order.options, order.requested)
            carry_out(replace(plan, driver=driver))
    except (BadInputError, ExecutionError, IncompleteStoreError, StoreAccessError) as error:
        return error
    except BaseException as error:  # Dask waits forever for a thread that raises another exception
        return ExecutionError(explain(error))
    return None


def _await_record(url: str, identifier: str) -> Submission:
    """Return a submission whose session has begun; raise ExecutionError if this machine does not see its record."""
    deadline = time.monotonic() + _VISIBLE_SECONDS
    while time.monotonic() < deadline:
        for record in sessions_of(open_files(url)):
            if record.get("submission") == identifier:
                return Submission.from_record(record)
        time.sleep(_POLL_SECONDS)
    raise ExecutionError(
        f"the workers write the store {url} to a folder that this machine does not see; remove it there, and choose a "
        "--store that all machines can open"
    )


def last_submission(store: ResultStore) -> Submission | None:
    """Return the submission of the last session of a store, or None if another process drove it."""
    record = (store.sessions or [{}])[-1]
    return Submission.from_record(record) if "submission" in record else None


def cancel(store: str | os.PathLike[str], *, cluster: ClusterChoice = None) -> Cancellation:
    """Close the submission of a store, which ends its driver; committed trials are kept.

    Parameters
    ----------
    store : path
        A store.
    cluster : str, distributed.Client or Dask cluster, optional
        Profile with the address of the scheduler of the submission, or its client, to wait until its driver has ended.
        The driver ends without it, within seconds and the time of its current blocks; later writes fail.

    Raises
    ------
    BadInputError
        If the store does not exist or has no open submission, or if the scheduler has another address.
    """
    opened = ResultStore.open(store)
    submission = last_submission(opened)
    refusal = f"no submission is open for the store {store}; show its status with: {command('status', store)}"
    if submission is None or not submission.is_open:
        raise BadInputError(refusal)
    with nullcontext() if cluster is None else _reached(submission, cluster) as client:
        if not end_session(opened.url, submission.id, {"cancelled": now()}):
            raise BadInputError(refusal)
        if client is None:
            return Cancellation(submission, None)
        if submission.driver:
            driver_task.cancel_driver(client, submission.driver)
        deadline = time.monotonic() + _CANCEL_SECONDS
        while (is_left := driver_task.has_driver(client, submission.driver)) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return Cancellation(submission, not is_left)


@contextmanager
def _reached(submission: Submission, cluster: ClusterChoice) -> Iterator[Any]:
    """Connect to the scheduler of a submission as the user asks; yield None if the scheduler does not respond."""
    chosen = choose_cluster(cluster)
    if chosen.address is None or chosen.address != submission.address:
        raise BadInputError(
            f"cluster must be a profile with the address of the scheduler of {submission}, or its client, got "
            f"{chosen.label} with {chosen.address or 'no address'}"
        )
    try:
        with reach_scheduler(chosen) as client:
            yield client
    except UnreachableSchedulerError:
        yield None
