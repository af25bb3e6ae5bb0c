"""Commands that compute: plan, run, submit, cancel, resume, extend."""

import shlex
from typing import Annotated, Any, Literal

import typer

import pipeline
from pipeline.blocks.evaluate import FAILURES, Status
from pipeline.blocks.plan import make_plan
from pipeline.clusters.cluster import available_cores
from pipeline.declare.source import find_study
from pipeline.errors import BadInputError
from pipeline.execution.in_flight import ExecutionError
from pipeline.stores.store import ResultStore
from studies import MODULES
from studies.commands.laboratory import run_all
from studies.commands.progress import ProgressDisplay
from studies.commands.reading import conclude, count_trials
from studies.commands.shared import (
    ERRORS,
    AcceptEdited,
    AllowFailures,
    Cluster,
    Panels,
    Seed,
    StorePath,
    StudyName,
    StudyOption,
    TimeLimit,
    Trials,
    Values,
    fail,
    format_size,
    make_table,
    named_study,
    parse_values,
    print_table,
    say,
    split_names,
)

Retry = Literal["failed", "timed-out", "killed"]
_RETRIED: dict[Retry, tuple[Status, ...]] = {
    "failed": FAILURES,
    "timed-out": (Status.TIMED_OUT,),
    "killed": (Status.KILLED,),
}


def plan(
    study: StudyName, trials: Trials = None, seed: Seed = None, panel: Panels = None, values: Values = None
) -> None:
    """Estimate the cost and the Monte Carlo errors of a study; writes nothing."""
    configured = find_study(study, MODULES).load().configure(trials, seed, split_names(panel), parse_values(values))
    plans = make_plan(configured)
    table = make_table("panel", "cells", "methods", "trials", "blocks", "storage", "core time", "expected mcse")
    for one in plans:
        errors = ", ".join(f"{name} <= {error:.2g}" for name, error in one.mcse.items())
        table.add_row(
            one.panel,
            f"{one.n_cells:,}",
            f"{one.n_settings:,}",
            f"{one.n_trials:,}",
            f"{one.n_blocks:,}",
            format_size(one.n_bytes),
            f"{one.seconds:,.1f} s",
            errors or ("none (deterministic)" if configured.panel(one.panel).trials is None else "unknown"),
        )
    print_table(table)
    cores = available_cores()
    seconds = sum(one.seconds for one in plans)
    evaluations = sum(one.n_cells * one.n_settings * one.n_trials for one in plans)
    say(
        f"{evaluations:,} trials (cells x methods x trials) in {sum(one.n_blocks for one in plans):,} blocks, at most "
        f"{format_size(sum(one.n_bytes for one in plans))} of storage; "
        f"at least about {seconds / cores:,.0f} s on {cores} cores."
    )
    failures = sum(one.failures for one in plans)
    if failures:
        say(f"{failures:,} trials of the pilot failed; run a few trials, then see 'dpstudies errors'.")


def run(
    study: StudyName,
    store: Annotated[
        str, typer.Option("--store", metavar="PATH", help="Path of the result store; a folder if STUDY is all.")
    ],
    trials: Trials = None,
    seed: Seed = None,
    panel: Panels = None,
    values: Values = None,
    cluster: Cluster = None,
    time_limit: TimeLimit = None,
    allow_failures: AllowFailures = False,
    scale: Annotated[
        str | None, typer.Option("--scale", metavar="NAME", help="With STUDY = all: quick, or published, the default.")
    ] = None,
    accept_edited_study: AcceptEdited = False,
) -> None:
    """Run a study and store its results, or run all studies; resume an earlier run of the same spec."""
    if study == "all":
        if trials is not None or panel or values or accept_edited_study:
            raise BadInputError(
                "--trials, --panel, --set and --accept-edited-study are for one study; with all, choose --scale quick"
            )
        run_all(
            store, scale or "published", seed, cluster=cluster, time_limit=time_limit, allow_failures=allow_failures
        )
    if scale is not None:
        raise BadInputError("--scale is for all studies; for one study use --trials, --panel and --set")
    source = find_study(study, MODULES)
    with ProgressDisplay(ERRORS) as display:
        _compute(
            store,
            display,
            lambda: pipeline.run(
                source,
                store,
                trials=trials,
                seed=seed,
                panels=split_names(panel),
                values=parse_values(values),
                cluster=cluster,
                time_limit=time_limit,
                allow_failures=allow_failures,
                accept_edited_study=accept_edited_study,
                progress=display,
            ),
        )


def submit(
    study: StudyName,
    store: Annotated[str, typer.Option("--store", metavar="PATH", help="Path of the result store.")],
    cluster: Annotated[
        str, typer.Option("--cluster", metavar="[FILE:]PROFILE", help="A profile with the address of a scheduler.")
    ],
    trials: Trials = None,
    seed: Seed = None,
    panel: Panels = None,
    values: Values = None,
    allow_failures: AllowFailures = False,
    accept_edited_study: AcceptEdited = False,
) -> None:
    """Submit a study to a scheduler, and return; the work continues without this command."""
    submitted = pipeline.submit(
        find_study(study, MODULES),
        store,
        cluster=cluster,
        trials=trials,
        seed=seed,
        panels=split_names(panel),
        values=parse_values(values),
        allow_failures=allow_failures,
        accept_edited_study=accept_edited_study,
    )
    if submitted is None:
        raise typer.Exit(conclude(store, count_trials(store)))
    submission, n_tasks = submitted
    path = shlex.quote(store)
    say(
        f"{n_tasks:,} tasks submitted as {submission.id}; follow them with: dpstudies status --watch {path}, cancel "
        f"them with: dpstudies cancel {path}"
    )


def cancel(store: StorePath) -> None:
    """Cancel the tasks of a submission on the scheduler, and release the store."""
    cancelled = pipeline.cancel(store)
    if cancelled.n_tasks is None:
        say(f"closed {cancelled.submission}, whose scheduler does not respond")
    else:
        say(f"cancelled {cancelled.submission}: {cancelled.n_tasks:,} tasks were left")
    raise typer.Exit(conclude(store, count_trials(store)))


def resume(
    store: StorePath,
    retry: Annotated[
        Retry | None,
        typer.Option("--retry", help="Also recompute these trials; failed: failed trials of any kind."),
    ] = None,
    time_limit: TimeLimit = None,
    allow_failures: AllowFailures = False,
    cluster: Cluster = None,
    study: StudyOption = None,
    accept_edited_study: AcceptEdited = False,
) -> None:
    """Compute the pending trials of a store."""
    with ProgressDisplay(ERRORS) as display:
        _compute(
            store,
            display,
            lambda: pipeline.resume(
                store,
                study=named_study(study),
                retry=() if retry is None else _RETRIED[retry],
                cluster=cluster,
                time_limit=time_limit,
                allow_failures=allow_failures,
                accept_edited_study=accept_edited_study,
                progress=display,
            ),
        )


def extend(
    store: StorePath,
    trials: Annotated[int | None, typer.Option("--trials", help="Total number of trials per cell.")] = None,
    values: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=V1,V2", help="New values of a factor, or methods; may be repeated."),
    ] = None,
    panel: Annotated[list[str] | None, typer.Option("--panel", help="Extend only this panel; may be repeated.")] = None,
    time_limit: TimeLimit = None,
    allow_failures: AllowFailures = False,
    cluster: Cluster = None,
    study: StudyOption = None,
    accept_edited_study: AcceptEdited = False,
) -> None:
    """Add trials, values or methods to a store, and compute them; stored results do not change."""
    if trials is None and not values:
        raise BadInputError("extend requires --trials or --set, got neither; to compute pending trials, use resume")
    with ProgressDisplay(ERRORS) as display:
        _compute(
            store,
            display,
            lambda: pipeline.extend(
                store,
                trials=trials,
                values=parse_values(values),
                panels=split_names(panel),
                study=named_study(study),
                cluster=cluster,
                time_limit=time_limit,
                allow_failures=allow_failures,
                accept_edited_study=accept_edited_study,
                progress=display,
            ),
        )


def _compute(store: str, display: ProgressDisplay, work: Any) -> None:
    """Call `work`, print the state of the store, and exit with its code."""
    try:
        work()
    except (KeyboardInterrupt, ExecutionError) as error:
        display.__exit__()
        if isinstance(error, ExecutionError):
            fail(str(error), 3)
        fail(_describe_kept(store), 3)
        raise typer.Exit(130 if isinstance(error, KeyboardInterrupt) else 3) from None
    display.__exit__()
    if display.n_total:
        say(f"{display.n_done:,} trials in {display.seconds:,.1f} s")
    raise typer.Exit(conclude(store, count_trials(store)))


def _describe_kept(store: str) -> str:
    if not (ResultStore.exists(store) and ResultStore.open(store).complete):
        return "no trial was committed yet"
    pending = sum(by_kind[Status.PENDING] for by_kind in count_trials(store).values())
    again = f"continue with: dpstudies resume {shlex.quote(store)}"
    return f"committed blocks are kept, {pending:,} trials are pending; {again}"
