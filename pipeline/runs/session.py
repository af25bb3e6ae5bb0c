"""Sessions that compute a study into a store: checks of the cluster, creation and growth of the store."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from pipeline.clusters.cluster import dashboard_address
from pipeline.declare.method_files import METHODS
from pipeline.declare.streams import canonical_json, sha256
from pipeline.errors import BadInputError, ExecutionError, StoreAccessError
from pipeline.execution.checks import (
    refuse_defects,
    refuse_other_numbers,
    refuse_unfit_workers,
    refuse_workers_without_store,
)
from pipeline.execution.execute import execute
from pipeline.execution.peaks import TracedTrials, measure_peaks
from pipeline.execution.tasks import registered
from pipeline.execution.work import PendingWork, Receipt, Task
from pipeline.faults import explain, retried
from pipeline.runs.progress import shown
from pipeline.runs.resolve import is_recorded, refuse_other_spec
from pipeline.runs.run_plan import RunPlan
from pipeline.store.creation import create_empty_store, grow_store
from pipeline.store.files.locations import normalise_location
from pipeline.store.layout.template import audit_methods
from pipeline.store.result_store import ResultStore
from pipeline.store.scan.requested import record_requested
from pipeline.store.scan.run_part import RUN_PART
from pipeline.store.sessions.costs import MethodCosts
from pipeline.store.sessions.lease import Session, require_idle
from pipeline.store.sessions.records import describe, now

_LOG = logging.getLogger(__name__)


def compute_pending(plan: RunPlan) -> ResultStore:
    """Compute pending work; return a store without pending work at once."""
    if plan.existing is not None and plan.is_done:
        return plan.existing
    with shown(plan.options.progress) as progress, session_on(plan) as (client, store, task, session):
        works = plan.pending_in(store, task)
        _LOG.info("dashboard: %s", dashboard_address(client))
        execute_in(session, plan, client, task, works, progress(works))
    return store


def execute_in(
    session: Session,
    plan: RunPlan,
    client: Any,
    task: Task,
    works: PendingWork,
    on_receipt: Callable[[Receipt], None],
) -> None:
    """Compute work in a session until all of it is committed, or until the session or the driver is cancelled."""

    def check() -> None:
        session.require_active()
        if plan.driver.is_cancelled():
            raise ExecutionError("the submission was cancelled on its scheduler; resume computes the pending trials")

    costs, trials = MethodCosts.of([session.record]), TracedTrials()

    def take(receipt: Receipt) -> None:
        panel = works.study.panel(receipt.work.block.panel)
        for k, tally in zip(receipt.work.settings, receipt.tallies, strict=True):
            costs.add(panel.name, panel.settings()[k].method.name, tally.n_ok + tally.n_failed, tally.seconds)
        trials.add(receipt)
        on_receipt(receipt)

    options, is_suspect = plan.options, plan.driver.has_lost_worker
    try:
        execute(client, task, works, take, options.chosen_cluster, options.allow_failures, is_suspect, check)
        if options.time_limit is None:  # otherwise trials are computed in child processes
            costs.add_peaks(measure_peaks(client, task.run, works.study, trials, costs.peaks))
    finally:
        session.record |= costs.record()  # written with the end of the session


@contextmanager
def session_on(plan: RunPlan) -> Iterator[tuple[Any, ResultStore, Task, Session]]:
    """Connect to the cluster, check it before anything is written, begin a session, and create or grow the store."""
    source, study, existing = plan.source, plan.study, plan.existing
    options, driver, url = plan.options, plan.driver, normalise_location(plan.path)
    if existing is not None:
        require_idle(existing.files)
        if not existing.complete:
            refuse_other_spec(existing, study)
    with driver.connect(options.chosen_cluster) as client:
        task = Task(source, url, sha256(canonical_json(study.spec())), time_limit=options.time_limit)
        with registered(client, task):
            refuse_unfit_workers(client, task.run, source, study.spec())
            compared: set[tuple[str, str]] = set()
            if existing is not None and existing.complete:
                is_edited = options.accept_edited_study and not is_recorded(existing, source)
                stored = study.from_spec(existing.spec)
                compared = refuse_other_numbers(client, task.run, existing, stored, is_edited)
            refuse_defects(client, task.run, study, compared)
            record = {"profile": options.chosen_cluster.name, **source.attributes, **describe(source.file)}
            asked = {} if plan.goal is None else plan.goal.record()
            if plan.requested is not None and (plan.requested or (existing is not None and existing.requested)):
                asked |= record_requested(plan.requested)
            if driver.record:
                record |= {**driver.record, "run": task.run}
            is_held = existing is not None and existing.holds(study)
            added = {} if is_held else audit_methods(study, existing.attributes if existing is not None else {})
            added |= {} if options.share is None else {RUN_PART: options.share}
            added |= {name: text for name, text in source.attributes.items() if name == METHODS}
            session = Session.begin(url, record)
            try:
                store = _prepared(session, plan, asked, added)
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


def _prepared(session: Session, plan: RunPlan, asked: Mapping[str, Any], added: Mapping[str, str]) -> ResultStore:
    """Create or extend the store of a session to match the spec of a plan; record what it asks for from now on.

    A plan that another session has made obsolete is refused before this record, which later sessions obey.
    """
    source, study, url = plan.source, plan.study, session.files.url
    try:
        store = ResultStore.find(url, session.id)
        if _contents(store) != _contents(plan.existing):
            raise BadInputError(f"another session changed the store {url} at the same time; try again")
        if asked:
            retried(session.update, asked)
            store = ResultStore.find(url, session.id)  # the first one has read the earlier numbers
        if store is None:
            return retried(create_empty_store, session, study, {**source.attributes, "created": now(), **added})
        if not store.complete:
            return retried(create_empty_store, session, study, {**store.attributes, **source.attributes})
        return store if store.holds(study) else retried(grow_store, store, session, study, added)
    except OSError as error:
        raise StoreAccessError(f"cannot write to the store {url}: {explain(error)}") from error


def _contents(store: ResultStore | None) -> tuple[Any, ...]:
    """Return the spec of a store, and the numbers of trials that it asked for when this object first read them."""
    return () if store is None else (store.spec, record_requested(store.requested))
