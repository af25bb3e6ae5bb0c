"""Submissions: studies that a scheduler computes independently of the submitting process."""

import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from pipeline.clusters.cluster import UnreachableSchedulerError, reach_scheduler
from pipeline.clusters.profiles import Profile, load_profile, split_choice
from pipeline.errors import BadInputError, BusyStoreError, command
from pipeline.execution.handover import cancel_tasks, count_tasks
from pipeline.execution.work import PendingWork, Task
from pipeline.stores.provenance import now
from pipeline.stores.sessions import close_detached
from pipeline.stores.store import ResultStore


@dataclass(frozen=True)
class Submission:
    """Study that a process has submitted to a scheduler.

    Attributes
    ----------
    id : str
        Identifier of the session that writes to the store.
    run : str
        Identifier of the run, which is part of its tasks' keys on the scheduler.
    started : str
        Time of the submission.
    address : str
        Address of the scheduler.
    cluster : str
        Profile with this address, as ``FILE:PROFILE``.
    """

    id: str
    run: str
    started: str
    address: str
    cluster: str

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Submission":
        """Return the submission that a session recorded."""
        return cls(*(record[name] for name in ("id", "run", "started", "address", "cluster")))

    def count_tasks(self) -> int | None:
        """Return the number of unfinished tasks, or None if the scheduler does not respond."""
        with _reached(self) as client:
            return None if client is None else count_tasks(client, self.run)

    def __str__(self) -> str:
        """Return the identifier, time and address as a phrase for messages."""
        return f"submission {self.id} of {self.started} at {self.address}"


@dataclass(frozen=True)
class Cancellation:
    """Result of `cancel`: the submission, and the number of cancelled tasks (None if the scheduler did not respond)."""

    submission: Submission
    n_tasks: int | None


def record_of(run: str, choice: str, profile: Profile) -> dict[str, Any]:
    """Return the fields of a session's record from which `find_submission` restores a submission."""
    file = os.path.abspath(split_choice(choice)[0])
    return {"run": run, "address": profile.address, "cluster": f"{file}:{profile.name}"}


def find_submission(store: ResultStore) -> Submission | None:
    """Return the open submission of a store, or None if there is none."""
    record = (store.sessions or [{}])[-1]
    if not record.get("detached") or "ended" in record:
        return None
    return Submission.from_record(record)


def cancel(store: str | os.PathLike[str]) -> Cancellation:
    """Cancel the tasks of a store's submission and close it; committed trials are kept.

    Parameters
    ----------
    store : path
        A store.

    Raises
    ------
    BadInputError
        If the store does not exist or has no open submission.
    """
    opened = ResultStore.open(store)
    submission = find_submission(opened)
    if submission is None:
        raise BadInputError(
            f"no submission is open for the store {store}; show its status with: {command('status', store)}"
        )
    with _reached(submission) as client:
        n_tasks = None if client is None else cancel_tasks(client, submission.run)
    close_detached(opened.url, submission.id, {"cancelled": now()})
    return Cancellation(submission, n_tasks)


def find_abandoned(store: ResultStore) -> Submission | None:
    """Return the open submission of a store, which `abandon` can close, or None if no submission is open.

    No tasks are added to an open submission, so a submission without tasks can be closed at any later time.

    Raises
    ------
    BusyStoreError
        If the submission has unfinished tasks.
    """
    submission = find_submission(store)
    if submission is None:
        return None
    n_tasks = submission.count_tasks()
    if n_tasks:
        raise BusyStoreError(
            f"the store {store.url} is being computed by {submission}, which has {n_tasks:,} tasks left; wait for it "
            f"with: {command('status', '--watch', store.url)}, or end it with: {command('cancel', store.url)}"
        )
    if n_tasks is None:
        warnings.warn(f"the scheduler of {submission} does not respond; the submission is closed", stacklevel=2)
    return submission


def abandon(store: ResultStore, submission: Submission) -> None:
    """Close a submission returned by `find_abandoned`, so that another session can begin."""
    close_detached(store.url, submission.id, {"abandoned": now()})


def close(task: Task) -> None:
    """Close a submission from a worker, and record it as finished if no work is pending."""
    study, store = task.opened()
    finished = {} if len(PendingWork(study, store)) else {"finished": now()}
    close_detached(task.url, task.session, finished)


@contextmanager
def _reached(submission: Submission) -> Iterator[Any]:
    """Connect to the scheduler of a submission; yield None if the scheduler does not respond."""
    try:
        profile = load_profile(submission.cluster)
    except BadInputError:  # the cluster file or its profile no longer exists
        profile = Profile("submission", address=submission.address)
    if profile.address != submission.address:
        profile = Profile(profile.name, address=submission.address, security=profile.security)
    with ExitStack() as stack:
        try:
            client = stack.enter_context(reach_scheduler(profile))
        except UnreachableSchedulerError:
            client = None
        yield client
