"""Sessions that compute a study into a store: checks of the cluster, creation and growth of the store."""

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from pipeline.blocks.evaluate import Status
from pipeline.clusters.cluster import connect, dashboard_address
from pipeline.clusters.user_cluster import ChosenCluster
from pipeline.declare.source import StudySource
from pipeline.declare.streams import canonical_json, sha256
from pipeline.declare.study import Study
from pipeline.errors import BadInputError, ExecutionError, StoreAccessError
from pipeline.execution.checks import (
    refuse_other_numbers,
    refuse_unfit_workers,
    refuse_unseeded,
    refuse_workers_without_store,
)
from pipeline.execution.execute import execute
from pipeline.execution.tasks import shipped
from pipeline.execution.work import PendingWork, Receipt, Task
from pipeline.faults import explain, retried
from pipeline.options import RunOptions
from pipeline.progress import shown
from pipeline.resolve import failures_to_recompute
from pipeline.stores.asked import SHARE, Asked, RecordedGoal, record_asked
from pipeline.stores.locations import normalise_location
from pipeline.stores.provenance import describe, now
from pipeline.stores.sessions import Session, number_of, require_idle
from pipeline.stores.store import ResultStore
from pipeline.stores.template import audit_methods

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Driver:
    """Process that drives a computation: by default that of the user, or a task of a scheduler."""

    connect: Callable[[ChosenCluster], AbstractContextManager[Any]] = lambda cluster: connect(cluster)
    record: Mapping[str, Any] = field(default_factory=dict)  # of its session
    announce: Callable[[str], None] = lambda session: None  # called with the identifier of its session
    is_cancelled: Callable[[], bool] = lambda: False
    has_lost_worker: bool = False  # True if an earlier driver of the computation was lost


@dataclass(frozen=True)
class Computation:
    """Study to compute into a store, after the input was validated."""

    source: StudySource
    study: Study
    path: str | os.PathLike[str]
    existing: ResultStore | None
    options: RunOptions
    asked: Mapping[str, Asked] | None = None  # by panel; None for the numbers of trials that the store records
    goal: RecordedGoal | None = None  # to record for a run until a target
    driver: Driver = field(default_factory=Driver)

    @cached_property
    def retry(self) -> set[Status]:
        """Statuses to recompute, with those of failed trials of a store whose study file was edited since."""
        return {
            *self.options.retry,
            *(() if self.existing is None else failures_to_recompute(self.existing, self.source)),
        }

    @cached_property
    def pending(self) -> PendingWork | None:
        """Pending work of a store with the spec of the study, or None if there is no such store."""
        if self.existing is None or not self.existing.holds(self.study):
            return None
        return PendingWork(self.study, self.existing, self.retry, self.asked)

    def work(self, store: ResultStore, task: Task) -> PendingWork:
        """Return the pending work in a session; scan the store again if another session has written to it."""
        number = number_of(task.session)
        if self.pending is not None and number == self.pending.last_session + 1:
            return self.pending
        is_new = self.existing is None and number == 1 and self.options.share is None
        return PendingWork(self.study, None if is_new else store, self.retry, self.asked)

    def execute(
        self, client: Any, task: Task, works: PendingWork, on_receipt: Callable[[Receipt], None], session: Session
    ) -> None:
        """Compute work in a session until all of it is committed, or until the session or the driver is cancelled."""

        def check() -> None:
            session.require_active()
            if self.driver.is_cancelled():
                raise ExecutionError(
                    "the submission was cancelled on its scheduler; resume computes the pending trials"
                )

        options, is_suspect = self.options, self.driver.has_lost_worker
        execute(client, task, works, on_receipt, options.chosen_cluster, options.allow_failures, is_suspect, check)


def compute_pending(computation: Computation) -> ResultStore:
    """Compute pending work; return a store without pending work at once."""
    options, works = computation.options, computation.pending
    if computation.existing is not None and works is not None and not works:
        return computation.existing
    with shown(options.progress) as progress, session_on(computation) as (client, store, task, session):
        works = computation.work(store, task)
        _LOG.info("dashboard: %s", dashboard_address(client))
        computation.execute(client, task, works, progress(works), session)
    return store


@contextmanager
def session_on(computation: Computation) -> Iterator[tuple[Any, ResultStore, Task, Session]]:
    """Connect to the cluster, check it before anything is written, begin a session, and create or grow the store."""
    source, study, existing = computation.source, computation.study, computation.existing
    options, driver, url = computation.options, computation.driver, normalise_location(computation.path)
    if existing is not None:
        require_idle(existing.files)
    with driver.connect(options.chosen_cluster) as client:
        task = Task(source, url, sha256(canonical_json(study.spec())), time_limit=options.time_limit)
        with shipped(client, task):
            refuse_unfit_workers(client, task.run, source, study.spec())
            compared: set[tuple[str, str]] = set()
            if existing is not None and existing.complete:
                compared = refuse_other_numbers(client, task.run, existing, study.from_spec(existing.spec))
            refuse_unseeded(client, task.run, study, compared)
            record = {"profile": options.chosen_cluster.name, **source.attributes, **describe(source.file)}
            asked = computation.asked
            if asked is not None and (asked or (existing is not None and existing.asked)):
                record |= record_asked(asked)
            if computation.goal is not None:
                record |= computation.goal.record()
            if driver.record:
                record |= {**driver.record, "run": task.run}
            is_held = existing is not None and existing.holds(study)
            audits = {} if is_held else audit_methods(study, existing.attributes if existing is not None else {})
            audits |= {} if options.share is None else {SHARE: options.share}
            session = Session.begin(url, record)
            try:
                store = _prepared(session, source, study, existing, audits)
                task = replace(task, session=session.id)
                refuse_workers_without_store(client, task)
                driver.announce(session.id)
                yield client, store, task, session
                session.end({"finished": now()})
            except BaseException as error:
                stopped = {"stopped": explain(error)} if driver.record else {}  # no process waits for it
                with suppress(OSError):  # a full disk, for example, also prevents this record
                    session.end(stopped)
                raise


def _prepared(
    session: Session, source: StudySource, study: Study, existing: ResultStore | None, audits: Mapping[str, str]
) -> ResultStore:
    """Create or extend the store of a session to match the spec of a study."""
    url = session.files.url
    try:
        store = ResultStore.open(url, session.id) if ResultStore.exists(url) else None
        if (store.spec if store else None) != (existing.spec if existing else None):
            raise BadInputError(f"another session changed the store {url} at the same time; try again")
        if store is None or not store.complete:
            return retried(ResultStore.create, session, study, {**source.attributes, "created": now(), **audits})
        return store if store.holds(study) else retried(store.grow, session, study, audits)
    except OSError as error:
        raise StoreAccessError(f"cannot write to the store {url}: {explain(error)}") from error
