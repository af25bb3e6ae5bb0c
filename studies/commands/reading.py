"""Commands that read a store: states, errors, single trials, summaries and reports."""

import os
import shlex
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer
import xarray as xr

from pipeline.blocks.evaluate import FAILURES, Status
from pipeline.errors import BadInputError
from pipeline.execution.rerun import rerun_trial
from pipeline.resolve import study_of
from pipeline.stores.results import classify_read_error, open_complete
from pipeline.stores.store import ResultStore
from pipeline.submission import find_submission
from studies import STUDIES
from studies.commands.laboratory import report_all
from studies.commands.output import printable
from studies.commands.shared import (
    ERRORS,
    AcceptEdited,
    Panels,
    StorePath,
    StudyOption,
    make_table,
    named_study,
    page_in,
    parse_cell,
    print_table,
    say,
    split_names,
)
from studies.failures import find_causes, last_line
from studies.laboratory.scales import is_folder
from studies.report import load_summaries, tabulate, write_report

Counts = Mapping[str, Mapping[Status, int]]
_PLACES = 3  # cells shown per cause


def list_studies() -> None:
    """List the built-in and registered studies."""
    table = make_table("study", "panels", "title")
    for study in STUDIES.values():
        panels = (panel.name + " (on demand)" * panel.on_demand for panel in study.panels)
        table.add_row(study.name, " ".join(panels), study.title)
    print_table(table)


def status(
    store: StorePath,
    watch: Annotated[bool, typer.Option("--watch", help="Repeat until the store is complete or Ctrl-C.")] = False,
    every: Annotated[
        float, typer.Option("--every", metavar="SECONDS", help="Interval between counts, with --watch.")
    ] = 5.0,
) -> None:
    """Count the trials of a store by status."""
    if not 0.1 <= every <= 86_400:
        raise BadInputError(f"--every must be in 0.1 ... 86400 seconds, got {every:g}")
    counts = _watch(store, every) if watch else count_trials(store)
    kinds = [kind for kind in Status if kind in (Status.OK, Status.PENDING) or any(c[kind] for c in counts.values())]
    table = make_table("panel", *(kind.name.lower().replace("_", " ") for kind in kinds))
    for name, by_kind in counts.items():
        table.add_row(name, *(f"{by_kind[kind]:,}" for kind in kinds))
    print_table(table)
    code = conclude(store, counts)
    if code == 3:
        _show_submission(store)
    raise typer.Exit(code)


def _show_submission(store: str) -> None:
    """Print the state of a store's open submission, if any."""
    submission = find_submission(ResultStore.open(store))
    if submission is None:
        return
    n_tasks = submission.count_tasks()
    if n_tasks is None:
        say(f"{submission}: its scheduler does not respond; resume computes the pending trials")
    elif n_tasks == 0:
        say(f"{submission}: its scheduler has no tasks left; resume computes the pending trials")
    else:
        say(f"{submission}: {n_tasks:,} tasks left; cancel them with: dpstudies cancel {shlex.quote(store)}")


def _watch(store: str, every: float) -> Counts:
    """Print the progress of a store until it is complete."""
    counts = count_trials(store)
    total = sum(sum(by_kind.values()) for by_kind in counts.values())
    started, at_start = time.monotonic(), _pending(counts)
    with ERRORS.status("") as line:
        while pending := _pending(counts):
            rate = (at_start - pending) / max(time.monotonic() - started, 1e-9)
            eta = f"{pending / rate:,.0f} s" if rate else "unknown"
            text = f"{total - pending:,} of {total:,} trials, {rate:,.0f} trials/s, ETA {eta}"
            if ERRORS.is_terminal:
                line.update(text)
            else:
                ERRORS.print(text)
            time.sleep(every)
            counts = count_trials(store)
            if _pending(counts) == pending and _is_abandoned(store):
                break
    return counts


def _is_abandoned(store: str) -> bool:
    """Return whether the scheduler of a store's submission has no tasks left."""
    submission = find_submission(ResultStore.open(store))
    return submission is not None and not submission.count_tasks()


def _pending(counts: Counts) -> int:
    return sum(by_kind[Status.PENDING] for by_kind in counts.values())


def trial(
    store: StorePath,
    panel: Annotated[str, typer.Option("--panel", help="The panel of the trial.")],
    number: Annotated[int, typer.Option("--trial", metavar="N", help="Index of the trial, from 0.")],
    cell: Annotated[
        list[str] | None, typer.Option("--cell", metavar="NAME=V", help="Value of a data factor; may be repeated.")
    ] = None,
    study: StudyOption = None,
    accept_edited_study: AcceptEdited = False,
) -> None:
    """Recompute one trial from its key, and compare it with the stored values."""
    opened = ResultStore.open(store)
    _, configured = study_of(opened, named_study(study), accept_edited_study)
    reruns = rerun_trial(opened, configured, panel, parse_cell(cell), number)
    table = make_table("method", "measure", "computed", "stored", "verdict")
    for rerun in reruns:
        killed = rerun.computed is rerun.stored
        reason = str(rerun.computed.error[0])
        for name, value in rerun.computed.values.items():
            stored = _show(rerun.stored.values[name]) if rerun.is_stored else ""
            verdict = ("DIFFERENT" if name in rerun.differing else "equal") if rerun.is_stored else "not stored yet"
            verdict = "not recomputed: it terminated its worker" if killed else verdict
            table.add_row(rerun.setting.label, name, last_line(reason) if reason else _show(value), stored, verdict)
    print_table(table)
    if any(rerun.is_stored and not rerun.equal for rerun in reruns):
        raise typer.Exit(1)


def errors(
    store: StorePath,
    full: Annotated[bool, typer.Option("--full", help="Print every cell and full tracebacks.")] = False,
) -> None:
    """List the causes of failed trials, with commands that recompute one trial of each."""
    causes = find_causes(store)
    for cause in causes:
        first = cause.failures[0]
        reason = (first.error if full else last_line(first.error)) or "no error is stored; check for damage with verify"
        shown = cause.failures if full else cause.failures[:_PLACES]
        say(f"{first.panel}: {cause.count:,} {first.kind}: {reason}")
        for failure in shown:
            say(f"  {failure.where or 'all'}: {failure.count:,} trials, first {failure.first}")
        if len(shown) < len(cause.failures):
            say(f"  and {len(cause.failures) - len(shown):,} more cells; list them with --full")
        say(f"  again: {first.rerun(store)}")
    n_failed = sum(cause.count for cause in causes)
    retry = f"; retry them with: dpstudies resume {shlex.quote(store)} --retry failed" if n_failed else ""
    say(f"{n_failed:,} failed trials, {len(causes):,} causes{retry}")
    raise typer.Exit(1 if n_failed else 0)


def summarise(
    store: StorePath,
    panel: Panels = None,
    csv: Annotated[bool, typer.Option("--csv", help="Print comma-separated values, with every statistic.")] = False,
) -> None:
    """Print means over trials with their Monte Carlo standard errors."""
    summaries = load_summaries(store, split_names(panel))
    if csv:
        frames = [_frame(summary).assign(panel=name) for name, summary in summaries.items()]
        text = pd.concat(frames).set_index("panel").to_csv()
        print(printable(text) if sys.stdout.isatty() else text, end="")
        return
    for name, summary in summaries.items():
        heads, rows, _ = tabulate(summary)
        table = make_table(*heads, title=f"{name}: {summary.attrs['title']}")
        for row in rows:
            table.add_row(*row)
        print_table(table)


def report(
    store: Annotated[str, typer.Argument(metavar="STORE", help="A result store, or a folder of 'run all'.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", help="HTML file; by default report.html next to the store, or in the folder."),
    ] = None,
    figures: Annotated[
        Path | None, typer.Option("--figures", help="Folder for copies of the figures as SVG and PNG files.")
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option("--markdown", help="File for the verdicts as a Markdown table; for folders only.")
    ] = None,
    study: StudyOption = None,
) -> None:
    """Write one self-contained page: figures, claims with verdicts, tables, provenance."""
    if is_folder(store):
        if figures is not None or study is not None:
            raise BadInputError(f"--figures and --study are for one store, got the folder {store}; omit them")
        report_all(store, output, markdown)
        return
    if markdown is not None:
        raise BadInputError(f"--markdown is for a folder of 'run all', got {store}; omit it")
    opened = ResultStore.open(store)
    _, configured = study_of(opened, named_study(study), accept_edited_study=True)  # nothing is computed
    page = output or page_in(os.path.dirname(opened.url))
    try:
        findings = write_report(opened, configured, page, figures)
    except OSError as error:
        if classify_read_error(error) is not None:
            raise
        raise BadInputError(f"cannot write {error.filename or page}: {error.strerror}; choose another path") from error
    for claim, finding in findings:
        say(f"{finding.verdict}: {claim.statement} {finding.evidence}")
    say(f"report: {page}" + (f", figures: {figures}" if figures else ""))


def count_trials(store: str) -> Counts:
    """Count the trials of each panel by status."""
    opened = open_complete(store)
    return {panel: opened.count(panel) for panel in opened.spec["panels"]}


def conclude(store: str, counts: Counts) -> int:
    """Print the state of a store and the next command in one line, and return the exit code."""
    failed, pending = (
        sum(by_kind[kind] for by_kind in counts.values() for kind in kinds) for kinds in (FAILURES, (Status.PENDING,))
    )
    path = shlex.quote(store)
    if pending:
        say(f"incomplete: {pending:,} trials pending; continue with: dpstudies resume {path}")
        return 3
    if failed:
        say(f"complete, {failed:,} trials failed; see: dpstudies errors {path}")
        return 1
    say(f"complete; next: dpstudies report {path}")
    return 0


def _frame(summary: xr.Dataset) -> pd.DataFrame:
    """Return a summary as rows, with constants and coordinates as columns."""
    return summary.to_dataframe().reset_index()


def _show(value: Any) -> str:
    return str(value.ravel()[0]) if value.size == 1 else f"array of shape {value.shape}"
