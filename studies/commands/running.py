"""Commands that compute: plan, run, submit, cancel, resume, extend."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import pipeline
from pipeline.blocks.evaluate import FAILURES, Status, total_by_kind
from pipeline.declare.source import find_study
from pipeline.errors import BadInputError, ExecutionError, TargetNotReachedError, command, counted, verb
from studies import MODULES
from studies.commands.options import (
    AcceptEditedStudy,
    AddedMethods,
    AllowFailures,
    Assignments,
    Cluster,
    DeclaringStudy,
    MostTrials,
    NewStore,
    Panels,
    PartOfRun,
    Scheduler,
    Seed,
    StorePath,
    StudyName,
    TimeLimit,
    Trials,
    Until,
    Within,
    add_methods,
    argument,
    cluster_words,
    find_named,
    load_cluster,
    option,
    parse_time,
    parse_values,
    profile_option,
    require_persistent,
)
from studies.commands.reading import conclude, count_trials
from studies.option_texts import split_names
from studies.output import ERRORS, fail, format_size, print_table, say

if TYPE_CHECKING:
    from pipeline.runs.estimate import PanelPlan

Retry = Literal["failed", "timed-out", "killed"]
_CORRECT = "correct the failing method in a new --store, or "
_RETRIED: dict[Retry, tuple[Status, ...]] = {
    "failed": FAILURES,
    "timed-out": (Status.TIMED_OUT,),
    "killed": (Status.KILLED,),
}
_UNKNOWN_TIMES = "the times of the others may be of another order of magnitude"
_SCALE = "published (default), or quick: fewer trials and values, for a first look at all figures."


def plan(
    study: StudyName,
    trials: Trials = None,
    seed: Seed = None,
    panel: Panels = None,
    values: Assignments = None,
    add: AddedMethods = None,
    until: Until = None,
) -> None:
    """Estimate the cost and the Monte Carlo errors of a study.

    Nothing is written.
    """
    from pipeline.clusters.launch import available_cores
    from pipeline.execution.work import PendingWork
    from pipeline.runs.estimate import START_SECONDS, make_plan
    from studies.folders import read_costs

    source = add_methods(find_study(study, MODULES), add)
    configured = source.load().configure(trials, seed, split_names(panel), parse_values(values))
    if until is not None:
        if trials is not None:
            raise BadInputError("--until cannot be combined with --trials; omit one of them")
        _plan_until(configured, until)
        return
    n_evaluations = {name: int(n.sum()) for name, n in PendingWork(configured, None).by_cell().items()}
    stored_seconds = {
        name: rate * n_evaluations.get(name, 0) for name, rate in read_costs("published").get(study, {}).items()
    }
    plans = [_with_stored_seconds(panel_plan, stored_seconds) for panel_plan in make_plan(configured)]
    rows = []
    for panel_plan in plans:
        counts = (
            f"{n:,}" for n in (panel_plan.n_cells, panel_plan.n_settings, panel_plan.n_trials, panel_plan.n_blocks)
        )
        errors = ", ".join(f"{name} <= {error:.2g}" for name, error in panel_plan.mcse.items())
        errors = errors or ("none (deterministic)" if configured.panel(panel_plan.panel).trials is None else "unknown")
        rows.append(
            (panel_plan.panel, *counts, format_size(panel_plan.n_bytes), f"{panel_plan.seconds:,.1f} s", errors)
        )
    print_table(("panel", "cells", "methods", "trials", "blocks", "storage", "core time", "expected mcse"), rows)
    cores = available_cores()
    n_blocks, n_bytes, seconds = (
        sum(getattr(panel_plan, name) for panel_plan in plans) for name in ("n_blocks", "n_bytes", "seconds")
    )
    say(
        f"{counted(sum(n_evaluations.values()), 'evaluation')} (applicable methods x cells x trials) "
        f"in {counted(n_blocks, 'block')}, about {format_size(n_bytes)} of storage; at least about "
        f"{START_SECONDS + seconds / cores:,.0f} s on {cores} cores."
    )
    for panel_plan in plans:
        if panel_plan.n_timed < panel_plan.n_settings:
            is_stored = panel_plan.panel in stored_seconds
            say(
                f"panel {panel_plan.panel}: {panel_plan.n_timed} of {panel_plan.n_settings:,} methods were timed; "
                + ("the core time is that of an earlier run of all methods" if is_stored else _UNKNOWN_TIMES)
            )
        if panel_plan.proposed_block is not None:
            say(
                f"panel {panel_plan.panel}: commits take {panel_plan.overhead:.0%} of the time of its blocks; declare "
                f"block_trials={panel_plan.proposed_block} instead of "
                f"{configured.panel(panel_plan.panel).block_trials}, which changes no number, before a store is created"
            )
    for panel_plan in plans:
        if panel_plan.failures:
            n_failed = counted(panel_plan.failures, "trial")
            say(f"{n_failed} of the pilot of panel {panel_plan.panel} failed: {panel_plan.error}")


def _with_stored_seconds(panel_plan: "PanelPlan", stored_seconds: Mapping[str, float]) -> "PanelPlan":
    """Return a plan with the stored time of its panel, if there is one and only some methods were timed."""
    if panel_plan.n_timed == panel_plan.n_settings or panel_plan.panel not in stored_seconds:
        return panel_plan
    return replace(panel_plan, seconds=stored_seconds[panel_plan.panel])


def _plan_until(configured: pipeline.Study, until: str) -> None:
    """Print the expected cost of a run until a precision, next to that of equally many trials in all cells."""
    from pipeline.clusters.launch import available_cores
    from pipeline.runs.estimate import forecast

    forecasts = forecast(configured, until)
    rows = []
    for panel_forecast in forecasts:
        counts = (
            f"{n:,.0f}"
            for n in (panel_forecast.n_cells, panel_forecast.n_piloted, panel_forecast.evaluations, panel_forecast.most)
        )
        equal = int(configured.panel(panel_forecast.panel).applicable.sum()) * panel_forecast.most
        rows.append(
            (panel_forecast.panel, *counts, panel_forecast.widest, f"{panel_forecast.seconds:,.1f} s", f"{equal:,}")
        )
    heads = ("panel", "cells", "piloted", "evaluations", "most trials", "widest", "core time", "with equal trials")
    print_table(heads, rows)
    for panel in configured.panels:
        if panel.trials is None:
            say(f"panel {panel.name} is exact: it has no trials")
    cores = available_cores()
    seconds, evaluations = (
        sum(getattr(panel_forecast, name) for panel_forecast in forecasts) for name in ("seconds", "evaluations")
    )
    say(
        f"about {evaluations:,.0f} evaluations until {until}; at least about {seconds / cores:,.0f} s on {cores} "
        "cores. With equal trials, every cell and method has as many as the widest one needs."
    )
    declared = {panel_forecast.panel: configured.panel(panel_forecast.panel).n_trials for panel_forecast in forecasts}
    if any(panel_forecast.most > declared[panel_forecast.panel] for panel_forecast in forecasts):
        numbers = ", ".join(f"{name}: {number:,}" for name, number in declared.items())
        say(f"without --at-most, a run ends at the declared numbers of trials ({numbers})")


def complete_run(incomplete: str) -> list[str]:
    """Return the names of studies, and ``all``, that start with the partial word `incomplete`, for shell completion."""
    return [name for name in (*MODULES, "all") if name.startswith(incomplete)]


def run(
    study: Annotated[
        str,
        argument("STUDY", "A name, a .py file with STUDY, module:object, or all: every listed study.", complete_run),
    ],
    store: Annotated[
        str, option("PATH", "Path of the result store; a folder if STUDY is all.", callback=require_persistent)
    ],
    scale: Annotated[str | None, option("NAME", _SCALE)] = None,
    trials: Trials = None,
    seed: Seed = None,
    panel: Panels = None,
    values: Assignments = None,
    add: AddedMethods = None,
    until: Until = None,
    at_most: MostTrials = None,
    within: Within = None,
    share: PartOfRun = None,
    cluster: Cluster = None,
    time_limit: TimeLimit = None,
    allow_failures: AllowFailures = False,
    accept_edited_study: AcceptEditedStudy = False,
) -> None:
    """Run a study, or all studies, or continue a run of the same spec."""
    has_grid = trials is not None or bool(panel) or bool(values)
    if study == "all":
        has_goal = any(limit is not None for limit in (until, at_most, within, share))
        if has_grid or has_goal or accept_edited_study or add:
            raise BadInputError(
                "--trials, --until, --share, --panel, --set, --add and --accept-edited-study are for one study; with "
                "all, choose --scale quick"
            )
        from studies.commands.collection import run_all

        run_all(store, scale or "published", seed, cluster, time_limit, allow_failures)
    source = add_methods(find_study(study, MODULES), add)
    grid: dict[str, Any] = {
        "trials": trials,
        "seed": seed,
        "panels": split_names(panel),
        "values": parse_values(values),
    }
    if scale is not None:
        if has_grid:
            raise BadInputError("--trials, --panel and --set must be omitted with --scale, which sets them; omit them")
        from studies.folders import configure

        grid |= configure(source.load(), scale, seed)
    seconds, profile = parse_time(within), load_cluster(cluster)
    _compute(
        store,
        lambda display: pipeline.run(
            source,
            store,
            **grid,
            until=until,
            at_most=at_most,
            within=seconds,
            share=share,
            cluster=profile,
            time_limit=time_limit,
            allow_failures=allow_failures,
            accept_edited_study=accept_edited_study,
            progress=display,
        ),
        cluster,
        study="" if has_grid else study,
        scale=scale or "published",
    )


def merge(
    shares: Annotated[list[str], argument("SHARES...", "Stores of all shares of one run.")],
    store: Annotated[str, option("DEST", "Path of the joined store.", callback=require_persistent)],
) -> None:
    """Join the stores of run --share K/M into the store of the whole run."""
    pipeline.merge(shares, store)
    raise typer.Exit(conclude(store))


def submit(
    study: StudyName,
    store: NewStore,
    cluster: Annotated[str, profile_option("A profile with the address of a scheduler.")],
    trials: Trials = None,
    seed: Seed = None,
    panel: Panels = None,
    values: Assignments = None,
    add: AddedMethods = None,
    until: Until = None,
    at_most: MostTrials = None,
    within: Within = None,
    time_limit: TimeLimit = None,
    allow_failures: AllowFailures = False,
    accept_edited_study: AcceptEditedStudy = False,
) -> None:
    """Submit a study to a scheduler, which computes it."""
    submission = pipeline.submit(
        add_methods(find_study(study, MODULES), add),
        store,
        trials=trials,
        seed=seed,
        panels=split_names(panel),
        values=parse_values(values),
        cluster=cluster,
        until=until,
        at_most=at_most,
        within=parse_time(within),
        time_limit=time_limit,
        allow_failures=allow_failures,
        accept_edited_study=accept_edited_study,
    )
    if submission is None:
        raise typer.Exit(conclude(store, cluster))
    words = (store, *cluster_words(cluster))
    say(
        f"submitted as {submission.id}; follow it with: {command('status', '--watch', *words)}, cancel it with: "
        f"{command('cancel', *words)}"
    )


def cancel(store: StorePath, cluster: Scheduler = None) -> None:
    """Cancel a submission, and release its store.

    With its scheduler, wait until its driver has ended.
    """
    cancelled = pipeline.cancel(store, cluster=cluster)
    if cancelled.has_ended:
        say(f"cancelled {cancelled.submission}: its driver has ended")
    elif cluster is not None and cancelled.has_ended is None:
        say(f"closed {cancelled.submission}, whose scheduler does not respond")
    else:
        say(f"cancelled {cancelled.submission}: its driver ends after its current blocks")
    raise typer.Exit(conclude(store, cluster))


def resume(
    store: StorePath,
    retry: Annotated[
        Retry | None, option("Also recompute trials with this status; failed includes timed-out and killed trials.")
    ] = None,
    time_limit: TimeLimit = None,
    allow_failures: AllowFailures = False,
    accept_edited_study: AcceptEditedStudy = False,
    cluster: Cluster = None,
    study: DeclaringStudy = None,
) -> None:
    """Compute the pending trials of a store."""
    retried: Collection[Status] = () if retry is None else _RETRIED[retry]
    profile, source = load_cluster(cluster), find_named(study)
    _compute(
        store,
        lambda display: pipeline.resume(
            store,
            study=source,
            retry=retried,
            cluster=profile,
            time_limit=time_limit,
            allow_failures=allow_failures,
            accept_edited_study=accept_edited_study,
            progress=display,
        ),
        cluster,
    )


def extend(
    store: StorePath,
    trials: Trials = None,
    values: Assignments = None,
    add: AddedMethods = None,
    panel: Panels = None,
    until: Until = None,
    at_most: MostTrials = None,
    within: Within = None,
    time_limit: TimeLimit = None,
    allow_failures: AllowFailures = False,
    accept_edited_study: AcceptEditedStudy = False,
    cluster: Cluster = None,
    study: DeclaringStudy = None,
) -> None:
    """Add trials, values or methods to a store, and compute them.

    Stored results do not change.
    """
    if trials is None and not values and not add and until is None:
        raise BadInputError(
            "extend requires --trials, --set, --add or --until, got none; to compute pending trials, use resume"
        )
    panels, new_values = split_names(panel), parse_values(values)
    seconds, profile, source = parse_time(within), load_cluster(cluster), find_named(study)
    _compute(
        store,
        lambda display: pipeline.extend(
            store,
            trials=trials,
            values=new_values,
            add=add or (),
            panels=panels,
            study=source,
            cluster=profile,
            until=until,
            at_most=at_most,
            within=seconds,
            time_limit=time_limit,
            allow_failures=allow_failures,
            accept_edited_study=accept_edited_study,
            progress=display,
        ),
        cluster,
    )


def _compute(
    store: str, work: Callable[[Any], object], cluster: str | None, study: str = "", scale: str = "published"
) -> None:
    """Call `work` with a progress display, print the state of the store, and exit with the code of this state.

    The time left of a named study at a scale is forecast by its stored costs, if it has some.
    """
    from pipeline.runs.progress import ProgressDisplay

    costs = None
    if study:
        from studies.folders import read_costs

        costs = read_costs(scale).get(study)
    with ProgressDisplay(ERRORS, rates={study: costs} if costs else None) as display:
        if costs:
            display.begin(study, "")
        try:
            work(display)
        except (KeyboardInterrupt, ExecutionError) as error:
            display.close()
            if isinstance(error, ExecutionError):
                fail(str(error), 3)
            if not isinstance(error, TargetNotReachedError):
                fail(_describe_kept(store, "" if isinstance(error, KeyboardInterrupt) else _CORRECT, cluster), 3)
            raise typer.Exit(130 if isinstance(error, KeyboardInterrupt) else 3) from None
    if display.n_total:
        say(f"{counted(display.n_done, 'evaluation')} in {display.seconds:,.1f} s")
    raise typer.Exit(conclude(store, cluster))


def _describe_kept(store: str, remedy: str, cluster: str | None) -> str:
    """Return the number of stored trials after an interruption, and the next command or a remedy."""
    from pipeline.store.result_store import ResultStore
    from pipeline.store.sessions.recorded_goal import read_goal

    opened = ResultStore.open(store) if ResultStore.exists(store) else None
    if opened is None or not opened.complete:
        return "no trial was committed yet"
    _, failed, pending = total_by_kind(count_trials(opened).values())
    again = f"continue with: {command('resume', store, *cluster_words(cluster))}"
    if not pending and (goal := read_goal(opened.sessions)) is not None and goal.is_open:
        return f"committed blocks are kept, but --until {goal.until!r} was not reached; {remedy}{again}"
    if not pending and failed:
        return f"committed blocks are kept, {counted(failed, 'trial')} failed; {again} --retry failed"
    return f"committed blocks are kept, {counted(pending, 'trial')} {verb(pending)} pending; {again}"
