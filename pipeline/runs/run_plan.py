"""Options and plans of runs: the study to compute into a store and its pending work, after all input was validated.

`run`, `resume`, `extend` and `submit` differ in the function that makes their plan; `pipeline.runs.session` carries out
all of them. Nothing is written while a plan is made.
"""

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

from pipeline.blocks.evaluate import Status
from pipeline.clusters.cluster import connect
from pipeline.clusters.user_cluster import ChosenCluster, ClusterChoice, choose_cluster
from pipeline.declare.factors import require_integer
from pipeline.declare.method_files import MethodFile
from pipeline.declare.panel import MAX_TRIALS, refuse_confused_names
from pipeline.declare.source import StudySource, named_source
from pipeline.declare.study import Study, Values
from pipeline.errors import BadInputError
from pipeline.execution.work import PendingWork, Task
from pipeline.precision.stopping import MIN_TRIALS
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
from pipeline.store.scan.run_part import RunPart
from pipeline.store.sessions.recorded_goal import RecordedGoal, read_goal
from pipeline.store.sessions.records import number_of

OTHERS_THAN_UNTIL = "--until cannot be combined with --trials, or with --set of an extension; omit one of them"
OTHERS_THAN_ADD = "--add of an extension cannot be combined with --until or --panel; omit one of them"

StudyLike: TypeAlias = Study | StudySource | str
Trials: TypeAlias = int | Mapping[str, int] | None
ProgressLike: TypeAlias = Callable[[Any], Any] | bool  # `pipeline.runs.progress.Progress`, or True for a bar


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of a run; see `pipeline.run`, `extend` and `resume` for their meaning."""

    trials: Trials = None
    seed: int | None = None
    panels: Iterable[str] = ()
    values: Values | None = None
    cluster: ClusterChoice = None
    time_limit: float | None = None
    until: str | None = None
    at_most: int | None = None
    within: float | None = None
    share: str | None = None
    retry: Collection[Status] = ()
    allow_failures: bool = False
    accept_edited_study: bool = False
    progress: ProgressLike = True
    chosen_cluster: ChosenCluster = field(init=False)
    """Profile that `cluster` names, or client or cluster of the user."""

    def __post_init__(self) -> None:
        """Raise BadInputError for an invalid number, options that exclude each other, or an unknown profile."""
        if self.time_limit is not None and not 0 < self.time_limit < float("inf"):
            raise BadInputError(f"the time limit of a block must be > 0 seconds, got {self.time_limit}")
        if self.until is None and (self.at_most is not None or self.within is not None):
            raise BadInputError("--at-most and --within are for runs with --until; add --until, or use --trials")
        if self.share is not None:
            RunPart.parse(self.share)
            if self.until is not None:
                raise BadInputError("--share cannot be combined with --until, which needs all blocks; omit one of them")
        if self.until is not None and self.trials:
            raise BadInputError(OTHERS_THAN_UNTIL)
        if self.within is not None and not 0 < self.within < float("inf"):
            raise BadInputError(f"the time of --within must be > 0 seconds, got {self.within}")
        if self.at_most is not None:
            require_integer("--at-most", self.at_most, MIN_TRIALS, MAX_TRIALS)
        object.__setattr__(self, "panels", (self.panels,) if isinstance(self.panels, str) else tuple(self.panels))
        object.__setattr__(self, "chosen_cluster", choose_cluster(self.cluster))
        if self.cluster is None:  # copies of these options keep the choice
            object.__setattr__(self, "cluster", self.chosen_cluster)


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
    if existing is None:
        for panel in configured.panels:
            refuse_confused_names(panel)
    else:
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
