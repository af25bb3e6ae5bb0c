"""Submissions: studies that a scheduler computes independently of the submitting process.

The record of a submission names its scheduler, but a store may come from somebody else, and a scheduler can run code in
each of its clients. A connection is therefore made only to the address of a profile that the user names.
"""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
    """Study that a process has submitted to a scheduler."""

    id: str  # of the session that writes to the store
    run: str  # part of its tasks' keys on the scheduler
    started: str  # time of the submission
    address: str  # recorded address of the scheduler
    cluster: str  # recorded profile with this address, as ``FILE:PROFILE``

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Submission":
        """Return the submission that a session recorded."""
        run, address, cluster = (str(record.get(name, "")) for name in ("run", "address", "cluster"))
        if not re.fullmatch("[0-9a-f]{32}", run):  # tasks are selected by this part of their keys
            run, address = "", "an unknown address"
        return cls(record["id"], run, record["started"], address, cluster)

    def count_tasks(self, cluster: str) -> int | None:
        """Return the number of unfinished tasks on the scheduler of a profile, or None if it does not respond."""
        with _reached(self, cluster) as client:
            return None if client is None else count_tasks(client, self.run)

    def __str__(self) -> str:
        """Return the identifier, time and address as a phrase for messages."""
        return f"submission {self.id} of {self.started} at {self.address}"


@dataclass(frozen=True)
class Cancellation:
    """Result of `cancel`: the submission, and the number of cancelled tasks, or None if no scheduler responded."""

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


def cancel(store: str | os.PathLike[str], *, cluster: str | None = None, abandon: bool = False) -> Cancellation:
    """Cancel the tasks of a store's submission and close it; committed trials are kept.

    Parameters
    ----------
    store : path
        A store.
    cluster : str, optional
        Profile with the address of the scheduler of the submission.
    abandon : bool
        True to close the submission without a connection to its scheduler: its tasks continue, but cannot write.

    Raises
    ------
    BadInputError
        If the store does not exist or has no open submission, or if neither its scheduler nor `abandon` is given.
    """
    opened = ResultStore.open(store)
    submission = find_submission(opened)
    if submission is None:
        raise BadInputError(
            f"no submission is open for the store {store}; show its status with: {command('status', store)}"
        )
    if (cluster is None) != abandon:
        raise BadInputError(
            f"cancel requires the scheduler of {submission}, as --cluster [FILE:]PROFILE, or --abandon to close the "
            "submission without a connection, so that its later writes fail"
        )
    n_tasks = None
    if cluster is not None:
        with _reached(submission, cluster) as client:
            n_tasks = None if client is None else cancel_tasks(client, submission.run)
    close_detached(opened.url, submission.id, {"cancelled": now()})
    return Cancellation(submission, n_tasks)


def find_open(store: ResultStore, profile: Profile) -> Submission | None:
    """Return the open submission of a store, or None if no submission is open."""
    submission = find_submission(store)
    if submission is not None and submission.address != profile.address:
        raise BusyStoreError(
            f"the store {store.url} is being computed by {submission}; name its scheduler with --cluster, or end it "
            f"with: {command('cancel', store.url)}"
        )
    return submission


def refuse_unfinished(client: Any, store: ResultStore, submission: Submission) -> None:
    """Raise `BusyStoreError` if a submission has unfinished tasks.

    No tasks are added to an open submission, so a submission without tasks can be closed at any later time.
    """
    n_tasks = count_tasks(client, submission.run)
    if n_tasks:
        raise BusyStoreError(
            f"the store {store.url} is being computed by {submission}, which has {n_tasks:,} tasks left; wait for it "
            f"with: {command('status', '--watch', store.url)} --cluster PROFILE, or end it with: "
            f"{command('cancel', store.url)}"
        )


def abandon(store: ResultStore, submission: Submission) -> None:
    """Close a submission without tasks, so that another session can begin."""
    close_detached(store.url, submission.id, {"abandoned": now()})


def close(task: Task) -> None:
    """Close a submission from a worker, and record it as finished if no work is pending."""
    study, store = task.opened()
    finished = {} if len(PendingWork(study, store)) else {"finished": now()}
    close_detached(task.url, task.session, finished)


@contextmanager
def _reached(submission: Submission, cluster: str) -> Iterator[Any]:
    """Connect to the scheduler of a submission by the user's profile; yield None if the scheduler does not respond."""
    profile = load_profile(cluster)
    if profile.address is None or profile.address != submission.address:
        raise BadInputError(
            f"cluster must be a profile with the address of the scheduler of {submission}, got profile {profile.name} "
            f"with {profile.address or 'no address'}"
        )
    try:
        with reach_scheduler(profile) as client:
            yield client
    except UnreachableSchedulerError:
        yield None
