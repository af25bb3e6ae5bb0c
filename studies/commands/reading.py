"""Commands that read a store: states, errors and single trials.

Help texts and the state of a store need neither xarray nor Dask, so each command imports them only if it needs them.
"""

import json
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.blocks.evaluate import Status, total_by_kind
from pipeline.errors import BadInputError, BusyStoreError, command, counted, verb
from studies.commands.options import (
    AcceptEditedStudy,
    DeclaringStudy,
    Scheduler,
    StorePath,
    cluster_words,
    find_named,
    option,
    parse_cell,
)
from studies.output import ERRORS, print_columns, print_table, say

if TYPE_CHECKING:
    from pipeline.execution.checks import Rerun
    from pipeline.runs.submission import Submission
    from pipeline.store.result_store import ResultStore

Counts = Mapping[str, Mapping[Status, int]]


_PLACES = 3  # number of cells that are shown per cause


def status(
    store: StorePath,
    watch: Annotated[
        bool, option("--watch", "Repeat until the store is complete or Ctrl-C, which stops no run.")
    ] = False,
    every: Annotated[float, option("SECONDS", "Interval between counts, with --watch.")] = 5.0,
    cluster: Scheduler = None,
) -> None:
    """Count the trials of a store by status."""
    if not 0.1 <= every <= 86_400:
        raise BadInputError(f"--every must be in 0.1 ... 86400 seconds, got {every:g}")
    if cluster is not None:
        from pipeline.clusters.profiles import load_profile

        load_profile(cluster)
    if watch:
        with _describing_interrupt(store, cluster):
            opened, counts = _watch(store, every, cluster)
    else:
        opened, counts = _count(store)
    kinds = [kind for kind in Status if kind in (Status.OK, Status.PENDING) or any(c[kind] for c in counts.values())]
    rows = ([name, *(f"{by_kind[kind]:,}" for kind in kinds)] for name, by_kind in counts.items())
    print_table(("panel", *(kind.words for kind in kinds)), rows)
    follow, state = _describe_submission(store, opened, cluster)
    code = _conclude(store, opened, counts, follow, cluster)
    if code == 3 and state:
        say(state)
    raise typer.Exit(code)


def _describe_submission(store: str, opened: "ResultStore", cluster: str | None) -> tuple[str, str]:
    """Return the command that follows a store's submission while it may run, and its state; both may be empty."""
    submission = _find_submission(opened)
    if submission is None:
        return "", ""
    if submission.stopped:
        return "", f"{submission} stopped: {submission.stopped}"
    follow = command("status", "--watch", store, "--cluster", cluster or _own_profile(submission.cluster or "", store))
    if cluster is None:
        end = command("cancel", store)
        return follow, f"{submission}: ask its scheduler with --cluster, or end it with: {end}"
    is_running = submission.is_running(cluster)
    if is_running:
        end = command("cancel", store, "--cluster", cluster)
        return follow, f"{submission}: running; cancel it with: {end}"
    reason = "does not respond" if is_running is None else "has no tasks left"
    return "", f"{submission}: its scheduler {reason}; resume computes the pending trials"


def _own_profile(recorded: str, store: str) -> str:
    """Return a recorded profile unless its file came with the store, whose author may have chosen it."""
    from pipeline.clusters.profiles import split_choice  # slow import

    file, here = Path(split_choice(recorded)[0]), Path("cluster.yaml").absolute()
    is_beside = file.is_relative_to(Path(store).absolute().parent)
    return recorded if file.is_absolute() and (file == here or not is_beside) else "FILE:PROFILE"


def _find_submission(opened: "ResultStore") -> "Submission | None":
    """Return the submission of the last session, if it is open or was stopped by an error."""
    if "submission" not in (opened.sessions or [{}])[-1]:
        return None
    from pipeline.runs.submission import last_submission  # slow import

    submission = last_submission(opened)
    return submission if submission is not None and (submission.is_open or submission.stopped) else None


def _watch(store: str, every: float, cluster: str | None) -> tuple["ResultStore", Counts]:
    """Print the progress of a store until it is complete, and return its last state."""
    from pipeline.runs.progress import format_duration

    opened, counts = _count(store)
    n_ok, n_failed, pending = total_by_kind(counts.values())
    at_start, started = n_ok + n_failed, time.monotonic()
    with ERRORS.status("") as line:
        while pending or _is_between_rounds(opened):
            done = n_ok + n_failed
            rate = max(0, done - at_start) / max(time.monotonic() - started, 1e-9)
            eta = format_duration(pending / rate if pending and rate else None)
            text = f"{done:,} of {done + pending:,} evaluations, {rate:,.0f} evaluations/s, time left {eta}"
            if ERRORS.is_terminal:
                line.update(text)
            else:
                ERRORS.print(text)
            time.sleep(every)
            opened, counts = _count(store)  # the store may grow meanwhile
            before = pending
            n_ok, n_failed, pending = total_by_kind(counts.values())
            if pending == before and _is_abandoned(opened, cluster):
                break
    return opened, counts


def _is_between_rounds(opened: "ResultStore") -> bool:
    """Return True if an active session has a goal that is not reached, for which it will ask for more trials."""
    from pipeline.store.files.access import accessing
    from pipeline.store.sessions.lease import require_idle
    from pipeline.store.sessions.recorded_goal import read_goal

    goal = read_goal(opened.sessions)
    if goal is None or not goal.is_open:
        return False
    try:
        with accessing(opened.url):
            require_idle(opened.files)
    except BusyStoreError:
        return True
    return False


@contextmanager
def _describing_interrupt(store: str, cluster: str | None) -> Iterator[None]:
    """Exit at Ctrl-C with the command that shows the run again, which it does not stop."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # that of the commands stops a run
    try:
        yield
    except KeyboardInterrupt:
        again = command("status", "--watch", store, *cluster_words(cluster))
        ERRORS.print(f"dpstudies: stopped watching; a run of this store goes on; look again with: {again}")
        raise typer.Exit(130) from None
    finally:
        signal.signal(signal.SIGINT, before)


def _is_abandoned(opened: "ResultStore", cluster: str | None) -> bool:
    """Return True if a store's submission has stopped, or if its scheduler does not have it or does not respond."""
    submission = _find_submission(opened)
    if submission is None or submission.stopped:
        return submission is not None
    return cluster is not None and not submission.is_running(cluster)


def trial(
    store: StorePath,
    panel: Annotated[str, option("The panel of the trial.")],
    number: Annotated[int, option("--trial", "N", "Index of the trial, from 0.")],
    cell: Annotated[list[str] | None, option("NAME=V", "Value of a data factor; may be repeated.")] = None,
    study: DeclaringStudy = None,
    accept_edited_study: AcceptEditedStudy = False,
) -> None:
    """Recompute one trial from its key, and compare it."""
    from pipeline.execution.checks import rerun_trial
    from pipeline.runs.resolve import study_of
    from pipeline.store.result_store import ResultStore

    opened = ResultStore.open(store)
    audits = _describe_audits(opened).get(panel, {})
    _, configured = study_of(opened, find_named(study), accept_edited_study)
    reruns = rerun_trial(opened, configured, panel, parse_cell(cell), number)
    measures = list(reruns[0].computed.values)
    rows = [
        [
            rerun.setting.label + (f" ({audits[name]})" if (name := rerun.setting.method.name) in audits else ""),
            Status(rerun.computed.status[0]).words,
            _verdict(rerun),
            *(_show(rerun, name) for name in measures),
        ]
        for rerun in reruns
    ]
    print_columns(["method", "status", "verdict", *measures], rows, 1)
    for rerun in reruns:
        if reason := rerun.computed.error[0]:
            say(f"{rerun.setting.label}: {reason}")
    if any(rerun.is_stored and not rerun.equal for rerun in reruns):
        raise typer.Exit(1)


def errors(
    store: StorePath, full: Annotated[bool, option("--full", "Print every cell and full tracebacks.")] = False
) -> None:
    """List the causes of failed trials, and commands to recompute them."""
    from pipeline.store.result_store import open_complete
    from studies.failures import find_causes

    opened = open_complete(store)
    causes = find_causes(opened)
    for failures in causes:
        first = failures[0]
        reason = (first.error if full else first.cause) or "no error is stored; check for damage with verify"
        shown = failures if full else failures[:_PLACES]
        say(f"{first.panel}: {sum(failure.count for failure in failures):,} {first.kind}: {reason}")
        for failure in shown:
            say(f"  {failure.where or 'all'}: {counted(failure.count, 'trial')}, first {failure.first}")
        if len(shown) < len(failures):
            say(f"  and {counted(len(failures) - len(shown), 'more cell')}; list them with --full")
        say(f"  again: {first.rerun(store)}")
    n_failed = sum(failure.count for failures in causes for failure in failures)
    retry = f"; retry them with: {command('resume', store, '--retry', 'failed')}" if n_failed else ""
    say(f"{n_failed:,} failed trials, {len(causes):,} cause{'' if len(causes) == 1 else 's'}{retry}")
    raise typer.Exit(1 if n_failed else 0)


def count_trials(opened: "ResultStore") -> Counts:
    """Count the trials of each panel of a store by status."""
    from pipeline.store.scan.states import count_by_status

    return {panel: count_by_status(opened, panel) for panel in opened.spec["panels"]}


def conclude(store: str, cluster: str | None = None) -> int:
    """Print audits of added mechanisms, the state of a store and the next command; return the exit code."""
    return _conclude(store, *_count(store), cluster=cluster)


def _count(store: str) -> tuple["ResultStore", Counts]:
    """Open a store, and count its trials."""
    from pipeline.store.result_store import open_complete

    opened = open_complete(store)
    return opened, count_trials(opened)


def _describe_audits(opened: "ResultStore") -> dict[str, dict[str, str]]:
    """Return the results of the audits of added mechanisms in a few words, by panel and method."""
    stored = json.loads(opened.attributes.get("audits", "{}"))
    if not stored:
        return {}
    from studies.styles import describe_audit  # slow import

    return {panel: {name: describe_audit(audit) for name, audit in audits.items()} for panel, audits in stored.items()}


def _conclude(store: str, opened: "ResultStore", counts: Counts, follow: str = "", cluster: str | None = None) -> int:
    """Print the state; `follow` is the command that shows the progress of a submission that computes the store."""
    from pipeline.store.sessions.recorded_goal import read_goal

    _, failed, pending = total_by_kind(counts.values())
    words = cluster_words(cluster)
    again = command("resume", store, *words)
    following = f"follow the submission with: {follow}" if follow else f"continue with: {again}"
    has_no_end = bool(opened.sessions) and "ended" not in opened.sessions[-1]
    if not follow and has_no_end:
        following = (
            f"the session of {opened.sessions[-1]['started']} has no end: if it does not run any more, {following}"
        )
    for panel, audits in _describe_audits(opened).items():
        for method, text in audits.items():
            say(f"audit of {method} in panel {panel}: {text}")
    if pending and opened.is_compact:  # a compact store is written complete
        say(
            f"damaged: {counted(pending, 'trial')} of this compact store {verb(pending)} missing; restore its "
            f"files from a backup, or compact the original again: {command('compact', 'ORIGINAL', 'NEW')}"
        )
        return 3
    if pending:
        say(f"incomplete: {counted(pending, 'trial')} pending; {following}")
        return 3
    if opened.run_part is not None:
        say(f"share {opened.run_part} is complete; join all shares with: dpstudies merge SHARES... --store DEST")
        return 1 if failed else 0
    goal = read_goal(opened.sessions)
    if goal is not None and goal.is_open:
        state = "is not reached yet" if follow or has_no_end else "was interrupted"
        say(f"incomplete: --until {goal.until!r} {state}; {following}")
        return 3
    if goal is not None and goal.unmet:
        say(
            f"all trials asked for are stored, but --until {goal.until!r} was not reached: {goal.unmet}; continue "
            f"with: {goal.continuation(store, *words)}"
        )
    if failed:
        say(f"complete, {counted(failed, 'trial')} failed; see: {command('errors', store)}")
        return 1
    say(f"complete; next: {command('report', store)}")
    return 0


def _verdict(rerun: "Rerun") -> str:
    if rerun.computed is rerun.stored:
        return "not recomputed: it terminated its worker"
    if not rerun.is_stored:
        return "not stored yet" if rerun.is_asked else "not asked for"
    if rerun.setting.method.unseeded:
        return "not compared: unseeded"
    return "equal" if rerun.equal else "DIFFERENT"


def _show(rerun: "Rerun", measure: str) -> str:
    """Format the computed value of a measure, and the stored one if it differs; return "" for a failed trial."""
    if rerun.computed.status[0] != Status.OK:
        return ""
    value, stored = rerun.computed.values[measure], rerun.stored.values[measure]
    if value.size > 1:
        return f"{value.size:,} values"
    if rerun.is_stored and measure in rerun.differing:
        return f"{value.ravel()[0]} (stored: {stored.ravel()[0]})"
    return f"{value.ravel()[0]:.6g}"
