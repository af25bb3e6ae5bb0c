"""Submissions: studies that a scheduler computes without the program that submitted them."""

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
    """A study in the hands of a scheduler.

    Attributes
    ----------
    id : str
        Identifier: that of the session that writes.
    run : str
        Identifier of its tasks on the scheduler.
    started : str
        Time of the submission.
    address : str
        Address of the scheduler.
    cluster : str
        Profile with that address, as ``FILE:PROFILE``.
    """

    id: str
    run: str
    started: str
    address: str
    cluster: str

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Submission":
        """Return the submission of a session by its record."""
        return cls(*(record[name] for name in ("id", "run", "started", "address", "cluster")))

    def count_tasks(self) -> int | None:
        """Return the number of tasks that the scheduler has left to compute; None if it does not answer."""
        with _reached(self) as client:
            return None if client is None else count_tasks(client, self.run)

    def __str__(self) -> str:
        """Return how a user finds it."""
        return f"submission {self.id} of {self.started} at {self.address}"


@dataclass(frozen=True)
class Cancellation:
    """Result of `cancel`: the submission, and its tasks that were left; None if its scheduler did not answer."""

    submission: Submission
    n_tasks: int | None


def record_of(run: str, choice: str, profile: Profile) -> dict[str, Any]:
    """Return what the session of a submission records, for `find_submission`."""
    file = os.path.abspath(split_choice(choice)[0])
    return {"run": run, "address": profile.address, "cluster": f"{file}:{profile.name}"}


def find_submission(store: ResultStore) -> Submission | None:
    """Return the open submission of a store, None if there is none."""
    record = (store.sessions or [{}])[-1]
    if not record.get("detached") or "ended" in record:
        return None
    return Submission.from_record(record)


def cancel(store: str | os.PathLike[str]) -> Cancellation:
    """Cancel the tasks of a store's submission, and close it; everything that was committed is kept.

    Parameters
    ----------
    store : path
        A store.

    Raises
    ------
    BadInputError
        If there is no store, or no open submission.
    """
    opened = ResultStore.open(store)
    submission = find_submission(opened)
    if submission is None:
        raise BadInputError(
            f"no submission is open for the store {store}; see what it holds with: {command('status', store)}"
        )
    with _reached(submission) as client:
        n_tasks = None if client is None else cancel_tasks(client, submission.run)
    close_detached(opened.url, submission.id, {"cancelled": now()})
    return Cancellation(submission, n_tasks)


def find_abandoned(store: ResultStore) -> Submission | None:
    """Return the open submission of a store if its scheduler has no tasks left, to `abandon` it; None without one.

    Tasks are never added to an open submission, so one without tasks stays without.

    Raises
    ------
    BusyStoreError
        If tasks are left.
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
        warnings.warn(f"the scheduler of {submission} does not answer; its work is taken over", stacklevel=2)
    return submission


def abandon(store: ResultStore, submission: Submission) -> None:
    """Close a submission that has no tasks left, so that another session may begin."""
    close_detached(store.url, submission.id, {"abandoned": now()})


def close(task: Task) -> None:
    """Record on a worker that a submission is over; it has finished only if nothing is pending."""
    study, store = task.opened()
    finished = {} if len(PendingWork(study, store)) else {"finished": now()}
    close_detached(task.url, task.session, finished)


@contextmanager
def _reached(submission: Submission) -> Iterator[Any]:
    """Connect to the scheduler of a submission; None if it does not answer."""
    try:
        profile = load_profile(submission.cluster)
    except BadInputError:  # the file has gone
        profile = Profile("submission", address=submission.address)
    if profile.address != submission.address:
        profile = Profile(profile.name, address=submission.address, security=profile.security)
    with ExitStack() as stack:
        try:
            client = stack.enter_context(reach_scheduler(profile))
        except UnreachableSchedulerError:
            client = None
        yield client
