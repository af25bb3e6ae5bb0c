"""Sessions that compute a study into a store: options, checks of the input and the cluster, creation and growth."""

import logging
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from pipeline.blocks.evaluate import Status
from pipeline.clusters.cluster import connect, dashboard_address
from pipeline.clusters.profiles import Profile
from pipeline.declare.source import StudySource
from pipeline.declare.streams import canonical_json, sha256
from pipeline.declare.study import Study, Values
from pipeline.errors import BadInputError, StoreAccessError
from pipeline.execution.execute import execute
from pipeline.execution.probe import refuse_unfit_workers, refuse_workers_without_store
from pipeline.execution.rerun import refuse_other_numbers
from pipeline.execution.shipping import shipped
from pipeline.execution.work import PendingWork, Task
from pipeline.faults import explain, retried
from pipeline.progress import Progress, shown
from pipeline.resolve import failures_to_recompute, named_source, refuse_edited, refuse_other_spec
from pipeline.stores.asked import Asked, RecordedGoal, record_asked
from pipeline.stores.complete import open_to_change
from pipeline.stores.locations import normalise_location
from pipeline.stores.provenance import describe, now
from pipeline.stores.sessions import Session, number_of
from pipeline.stores.store import ResultStore
from pipeline.stores.template import audit_methods
from pipeline.submission import abandon, find_open, record_of, refuse_unfinished

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Options:
    """Options of `run`, `submit`, `resume` and `extend` that concern the computation.

    `asked` has the numbers of trials to ask for by panel; None for those that the store records. `goal` is the goal to
    record for a run until a target.
    """

    profile: Profile
    progress: Progress | bool = False
    time_limit: float | None = None
    allow_failures: bool = False
    retry: Collection[Status] = ()
    asked: Mapping[str, Asked] | None = None
    goal: RecordedGoal | None = None

    def __post_init__(self) -> None:
        if self.time_limit is not None and not 0 < self.time_limit < float("inf"):
            raise BadInputError(f"the time limit of a block must be > 0 seconds, got {self.time_limit}")

    def accepting(self, existing: ResultStore | None, source: StudySource) -> "Options":
        """Return the options that also recompute the failed trials of a store whose study file was edited since."""
        failures = () if existing is None else failures_to_recompute(existing, source)
        return replace(self, retry={*self.retry, *failures})


def configured_study(
    study: Study | StudySource | str,
    store: str | os.PathLike[str],
    trials: int | Mapping[str, int] | None,
    seed: int | None,
    panels: Iterable[str],
    values: Values | None,
    accept_edited_study: bool,
) -> tuple[StudySource, Study, ResultStore | None]:
    """Return the source of a study, the configured study, and the existing store or None."""
    source = named_source(study)
    configured = source.load().configure(trials, seed, panels, values)
    existing = open_to_change(store) if ResultStore.exists(store) else None
    if existing is not None:
        refuse_other_spec(existing, configured)
        if not accept_edited_study:
            refuse_edited(existing, source)
    source.remember()
    return source, configured, existing


def compute_pending(
    source: StudySource,
    study: Study,
    path: str | os.PathLike[str],
    existing: ResultStore | None,
    options: Options,
) -> ResultStore:
    """Compute the pending work for `run`, `resume` and `extend`, after the input was validated."""
    options = options.accepting(existing, source)
    works = pending_work(study, existing, options)
    if existing is not None and works is not None and not works:
        return existing
    with (
        shown(options.progress) as progress,
        session_on(source, study, path, existing, options) as (client, store, task, _),
    ):
        works = current_work(works, study, existing, store, task, options)
        _LOG.info("dashboard: %s", dashboard_address(client))
        execute(
            client,
            task,
            works,
            progress(works),
            profile=options.profile,
            allow_failures=options.allow_failures,
        )
    return store


def pending_work(study: Study, existing: ResultStore | None, options: Options) -> PendingWork | None:
    """Return the pending work of a store with the spec of the study, or None if there is no such store."""
    if existing is None or not existing.holds(study):
        return None
    return PendingWork(study, existing, options.retry, options.asked)


def current_work(
    works: PendingWork | None,
    study: Study,
    existing: ResultStore | None,
    store: ResultStore,
    task: Task,
    options: Options,
) -> PendingWork:
    """Return the pending work for the session of a task; scan the store again if another session has written to it."""
    number = number_of(task.session)
    if works is not None and number == works.last_session + 1:
        return works
    is_new = existing is None and number == 1
    return PendingWork(study, None if is_new else store, options.retry, options.asked)


@contextmanager
def session_on(
    source: StudySource,
    study: Study,
    path: str | os.PathLike[str],
    existing: ResultStore | None,
    options: Options,
    submitted: str | None = None,
) -> Iterator[tuple[Any, ResultStore, Task, Session]]:
    """Connect to the cluster, check it, begin a session, and create or extend the store.

    Nothing is written before the checks of the cluster have passed. If `submitted` is the name of a profile, the caller
    must detach the session.
    """
    profile, url = options.profile, normalise_location(path)
    abandoned = find_open(existing, profile) if existing is not None else None
    with connect(profile) as client:
        if existing is not None and abandoned is not None:
            refuse_unfinished(client, existing, abandoned)
        task = Task(source, url, sha256(canonical_json(study.spec())), time_limit=options.time_limit)
        with shipped(client, task, handed_over=submitted is not None):
            refuse_unfit_workers(client, task.run, source, study.spec())
            if existing is not None and existing.complete:
                refuse_other_numbers(client, task.run, existing, study.from_spec(existing.spec))
            record = {"profile": profile.name, **source.attributes, **describe(source.file)}
            if options.asked is not None and (options.asked or (existing is not None and existing.asked)):
                record |= record_asked(options.asked)
            if options.goal is not None:
                record |= options.goal.record()
            if submitted is not None:
                record |= record_of(task.run, submitted, profile)
            if existing is not None and abandoned is not None:
                abandon(existing, abandoned)
            is_held = existing is not None and existing.holds(study)
            audits = {} if is_held else audit_methods(study, existing.attributes if existing is not None else {})
            session = Session.begin(url, record)
            try:
                store = _prepared(session, source, study, existing, audits)
                task = replace(task, session=session.id)
                refuse_workers_without_store(client, task)
                yield client, store, task, session
                if submitted is None:
                    session.end({"finished": now()})
            except BaseException:
                with suppress(OSError):  # a full disk, for example, also prevents this record
                    session.end()
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
