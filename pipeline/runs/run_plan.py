"""Plans of runs: the study to compute into a store and its pending work, after all input was validated.

`run`, `resume`, `extend` and `submit` differ in the function that makes their plan; `pipeline.runs.session` carries out
all of them. Nothing is written while a plan is made.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from pipeline.blocks.evaluate import Status
from pipeline.clusters.cluster import connect
from pipeline.clusters.user_cluster import ChosenCluster
from pipeline.declare.method_files import MethodFile
from pipeline.declare.source import StudySource, named_source
from pipeline.declare.study import Study
from pipeline.errors import BadInputError
from pipeline.execution.work import PendingWork, Task
from pipeline.runs.options import OTHERS_THAN_ADD, OTHERS_THAN_UNTIL, RunOptions, StudyLike
from pipeline.runs.resolve import (
    accept_edited_methods,
    failures_to_recompute,
    is_recorded,
    refuse_edited,
    refuse_other_spec,
    study_of,
)
from pipeline.store.result_store import ResultStore, find_to_change, open_to_change
from pipeline.store.scan.requested import RequestedTrials
from pipeline.store.sessions.recorded_goal import RecordedGoal, read_goal
from pipeline.store.sessions.records import number_of


@dataclass(frozen=True)
class Driver:
    """Process that drives a computation: by default that of the user, or a task of a scheduler."""

    connect: Callable[[ChosenCluster], AbstractContextManager[Any]] = lambda cluster: connect(cluster)
    record: Mapping[str, Any] = field(default_factory=dict)  # of its session
    announce: Callable[[str], None] = lambda session: None  # called with the identifier of its session
    is_cancelled: Callable[[], bool] = lambda: False
    has_lost_worker: bool = False  # True if an earlier driver of the computation was lost


@dataclass(frozen=True)
class RunPlan:
    """Study to compute into a store, after the input was validated."""

    source: StudySource
    study: Study
    path: str | os.PathLike[str]
    existing: ResultStore | None
    options: RunOptions
    requested: Mapping[str, RequestedTrials] | None = None  # by panel; None for the stored numbers
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
        return PendingWork(self.study, self.existing, self.retry, self.requested)

    @property
    def is_done(self) -> bool:
        """True if nothing is pending, no target has to be reached or replaced, and no accepted edit to be recorded."""
        if self.options.until is not None or self.existing is None or self.pending is None or self.pending:
            return False
        goal = read_goal(self.existing.sessions)
        is_missed = goal is not None and (goal.is_open or goal.unmet)
        if is_missed and self.requested is not None and self.existing.requested.keys() - self.requested.keys():
            return False
        return not self.options.accept_edited_study or is_recorded(self.existing, self.source)

    def pending_in(self, store: ResultStore, task: Task) -> PendingWork:
        """Return the pending work in a session; scan the store again if another session has written to it."""
        number = number_of(task.session)
        if self.pending is not None and number == self.pending.last_session + 1:
            return self.pending
        is_new = self.existing is None and number == 1 and self.options.share is None
        return PendingWork(self.study, None if is_new else store, self.retry, self.requested)


def plan_run(study: StudyLike, store: str | os.PathLike[str], options: RunOptions) -> RunPlan:
    """Return the plan of a configured study in a new or existing store, which asks for all its trials."""
    source = named_source(study)
    source.refuse_stale()
    configured = source.load().configure(options.trials, options.seed, options.panels, options.values)
    existing = find_to_change(store)
    if options.until is not None:  # the numbers of trials are stored ones, or grow from one
        stored = existing.spec["panels"] if existing is not None and existing.complete else {}
        trials = {panel.name: stored.get(panel.name, {}).get("trials") or 1 for panel in configured.panels}
        configured = configured.with_trials(trials)
    if existing is not None:
        _require_run_part(existing, options.share)
        if existing.complete or options.until is None:
            configured = accept_edited_methods(existing, source, configured, options.accept_edited_study)
            refuse_other_spec(existing, configured)
            if not options.accept_edited_study:
                refuse_edited(existing, source)
    source.trust()
    return RunPlan(source, configured, store, existing, replace(options, panels=()), requested={})


def plan_resumption(existing: ResultStore, source: StudySource, study: Study, options: RunOptions) -> RunPlan:
    """Return the plan of the pending ones of the trials that a store asks for, or of an interrupted run to a target.

    Source and study are those of `study_of`, which has refused edited files.
    """
    goal = read_goal(existing.sessions)
    if goal is not None and goal.is_open:
        options = replace(options, until=goal.until, at_most=goal.at_most, within=goal.within, panels=goal.panels)
    return RunPlan(source, study, existing.url, existing, options)


def plan_extension(
    study: StudyLike | None, store: str | os.PathLike[str], options: RunOptions, methods: Sequence[MethodFile] = ()
) -> RunPlan:
    """Return the plan of further trials, values or methods in a store; `methods` are added unless it has them."""
    if options.until is not None and options.values:
        raise BadInputError(OTHERS_THAN_UNTIL)
    if methods and (options.until is not None or options.panels):
        raise BadInputError(OTHERS_THAN_ADD)
    existing, requested = open_to_change(store), None
    if existing.run_part is not None:
        raise BadInputError(f"the store {existing.url} has share {existing.run_part} of a run; merge all shares first")
    source, configured = study_of(existing, study, options.accept_edited_study, methods)
    new = [file for file in methods if file not in source.methods]
    source = replace(source, methods=(*source.methods, *new))
    source.load()  # refuses names that the study has in any panel
    for file in new:
        configured = configured.with_methods(file.load(), code=file.code)
    source.trust()
    if options.until is None:
        panels = tuple(options.panels)
        configured = configured.extended(source.load(), options.trials, options.values or {}, panels)
        if options.trials is not None:  # the panels ask for all trials from now on
            requested = {name: number for name, number in existing.requested.items() if panels and name not in panels}
        elif existing.requested:
            requested = {name: numbers.extended(configured.panel(name)) for name, numbers in existing.requested.items()}
    return RunPlan(source, configured, store, existing, options, requested)


def _require_run_part(existing: ResultStore, share: str | None) -> None:
    """Raise BadInputError unless a store has the part of the blocks of a run that an option names."""
    stored = None if existing.run_part is None else str(existing.run_part)
    if stored != share:
        raise BadInputError(
            f"the store {existing.url} has {f'share {stored}' if stored else 'all blocks'} of a run, got "
            f"{f'--share {share}' if share else 'no --share'}; choose another --store"
        )
