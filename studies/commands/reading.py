"""Commands that read a store: what it holds, what failed, and what the numbers say."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer
import xarray as xr

import pipeline
from pipeline.aggregate import count_status
from pipeline.errors import BadInputError
from pipeline.evaluate import FAILURES, Status
from pipeline.run import rerun_trial, study_of
from pipeline.store import ResultStore
from studies import STUDIES
from studies.commands.shared import (
    Panels,
    StorePath,
    StudyOption,
    make_table,
    named_study,
    parse_values,
    print_table,
    say,
    split_names,
)
from studies.failures import find_failures, last_line
from studies.report import load_summaries, tabulate, write_report


def list_studies() -> None:
    """List the studies that have a name."""
    table = make_table("study", "panels", "title")
    for study in STUDIES.values():
        panels = (panel.name + " (on demand)" * panel.on_demand for panel in study.panels)
        table.add_row(study.name, " ".join(panels), study.title)
    print_table(table)


def status(store: StorePath) -> None:
    """Count the trials of a store by what became of them."""
    counts = count_trials(store)
    kinds = [kind for kind in Status if kind in (Status.OK, Status.PENDING) or any(c[kind] for c in counts.values())]
    table = make_table("panel", *(kind.name.lower().replace("_", " ") for kind in kinds))
    for name, by_kind in counts.items():
        table.add_row(name, *(f"{by_kind[kind]:,}" for kind in kinds))
    print_table(table)
    raise typer.Exit(conclude(store, counts))


def trial(
    store: StorePath,
    panel: Annotated[str, typer.Option("--panel", help="The panel of the trial.")],
    number: Annotated[int, typer.Option("--trial", metavar="N", help="The trial, 0 for the first.")],
    cell: Annotated[list[str] | None, typer.Option("--cell", metavar="NAME=V", help="Value of a data factor.")] = None,
    study: StudyOption = None,
) -> None:
    """Compute one trial again from its key, and say whether it equals what is stored."""
    opened = ResultStore.open(store)
    _, configured = study_of(opened, named_study(study))
    chosen = {name: _only(name, given) for name, given in parse_values(split_names(cell)).items()}
    reruns = rerun_trial(opened, configured, panel, chosen, number)
    table = make_table("method", "measure", "computed", "stored", "verdict")
    for rerun in reruns:
        killed = rerun.computed is rerun.stored
        reason = str(rerun.computed.error[0])
        for name, value in rerun.computed.values.items():
            stored = _show(rerun.stored.values[name]) if rerun.is_stored else ""
            verdict = ("DIFFERENT" if name in rerun.differing else "equal") if rerun.is_stored else "not stored yet"
            verdict = "not computed again: it ended its worker" if killed else verdict
            table.add_row(rerun.setting.label, name, last_line(reason) if reason else _show(value), stored, verdict)
    print_table(table)
    if any(rerun.is_stored and not rerun.equal for rerun in reruns):
        raise typer.Exit(1)


def errors(
    store: StorePath,
    full: Annotated[bool, typer.Option("--full", help="Print whole tracebacks.")] = False,
) -> None:
    """List the trials that failed, and how to run each of them again."""
    n_failed = 0
    for failure in find_failures(store):
        n_failed += failure.count
        again = failure.error.splitlines()[-1].replace("STORE", shlex.quote(store), 1)
        text = failure.error if full else f"{last_line(failure.error)}\n  {again}"
        say(f"{failure.where}: {failure.count:,} {failure.kind}, first trial {failure.first}: {text}")
    say(f"{n_failed:,} failed trials")
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
        print(pd.concat(frames).set_index("panel").to_csv(), end="")
        return
    for name, summary in summaries.items():
        heads, rows, _ = tabulate(summary)
        table = make_table(*heads, title=f"{name}: {summary.attrs['title']}")
        for row in rows:
            table.add_row(*row)
        print_table(table)


def report(
    store: StorePath,
    output: Annotated[Path | None, typer.Option("--output", help="The page; report.html beside the store.")] = None,
    figures: Annotated[Path | None, typer.Option("--figures", help="A folder for the figures as files, too.")] = None,
    study: StudyOption = None,
) -> None:
    """Write one self-contained page: figures, claims with verdicts, tables, provenance."""
    opened = ResultStore.open(store)
    _, configured = study_of(opened, named_study(study))
    page = output or Path(opened.url).parent / "report.html"
    try:
        findings = write_report(opened, configured, page, figures)
    except OSError as error:
        raise BadInputError(f"cannot write {error.filename or page}: {error.strerror}; choose another path") from error
    for claim, finding in findings:
        say(f"{finding.verdict}: {claim.statement} {finding.evidence}")
    say(f"report: {page}" + (f", figures: {figures}" if figures else ""))


def count_trials(store: str) -> dict[str, dict[Status, int]]:
    """Count the trials of each panel by status."""
    tree = pipeline.open_results(store)
    return {str(name): count_status(panel.to_dataset()) for name, panel in tree.children.items()}


def conclude(store: str, counts: Mapping[str, Mapping[Status, int]]) -> int:
    """Say in one line how a store stands and what to do next; return the exit code."""
    failed, pending = (
        sum(by_kind[kind] for by_kind in counts.values() for kind in kinds) for kinds in (FAILURES, (Status.PENDING,))
    )
    path = shlex.quote(store)
    if pending:
        say(f"incomplete: {pending:,} trials pending; go on with: dpstudies resume {path}")
        return 3
    if failed:
        say(f"complete, {failed:,} trials failed; see: dpstudies errors {path}")
        return 1
    say(f"complete; next: dpstudies report {path}")
    return 0


def _frame(summary: xr.Dataset) -> pd.DataFrame:
    """Return a summary as rows, with constants and coordinates as columns."""
    return summary.to_dataframe().reset_index()


def _only(name: str, values: list[str]) -> str:
    if len(values) != 1:
        raise BadInputError(f"a cell has one value of {name}, got {len(values)}")
    return values[0]


def _show(value: Any) -> str:
    return str(value.ravel()[0]) if value.size == 1 else f"array of shape {value.shape}"
