"""The command ``dpstudies``.

Exit codes: 0 complete; 1 complete with failed trials, a trial that differs, or a mechanism that breaks its guarantee;
2 bad input, nothing written; 3 incomplete; 130 interrupted.
"""

import os
import shlex
import signal
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import pandas as pd
import typer
import xarray as xr
from rich.console import Console
from rich.table import Table

import pipeline
from pipeline.aggregate import count_status
from pipeline.cluster import available_cores
from pipeline.errors import BadInputError, IncompleteStoreError
from pipeline.evaluate import FAILURES, Status
from pipeline.execute import ExecutionError
from pipeline.factors import Factor
from pipeline.plan import make_plan
from pipeline.run import rerun_trial, study_of
from pipeline.source import StudySource, find_study
from pipeline.store import ResultStore
from studies import MODULES, STUDIES
from studies.audits import Question, audit_named, tabulate_audits
from studies.failures import find_failures, last_line
from studies.progress import ProgressDisplay
from studies.report import load_summaries, tabulate, write_report

app = typer.Typer(
    name="dpstudies",
    help="Run simulation studies of differentially private Bayesian inference, and query their results.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
_PLAIN: dict[str, Any] = {"soft_wrap": True, "highlight": False, "markup": False, "emoji": False}
_errors = Console(stderr=True, **_PLAIN)
# the base of all refusals of arguments, for which typer has no name
_UsageError = cast(type[typer.BadParameter], typer.BadParameter.__mro__[2])

StudyName = Annotated[str, typer.Argument(metavar="STUDY", help="A name, a .py file with STUDY, or module:object.")]
StorePath = Annotated[str, typer.Argument(metavar="STORE", help="Path of a result store.")]
Trials = Annotated[int | None, typer.Option("--trials", help="Trials of every cell.")]
Seed = Annotated[int | None, typer.Option("--seed", help="Seed of all random streams.")]
Panels = Annotated[list[str] | None, typer.Option("--panel", help="Only this panel; may be repeated.")]
Values = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=V1,V2", help="Values of a factor, constant or method list; may be repeated."),
]
Cluster = Annotated[
    str | None, typer.Option("--cluster", metavar="FILE[:PROFILE]", help="Where to compute; threads by default.")
]
StudyOption = Annotated[
    str | None, typer.Option("--study", metavar="STUDY", help="The study, where the store does not find it by itself.")
]


@app.command("list")
def list_studies() -> None:
    """List the studies that have a name."""
    table = _table("study", "panels", "title")
    for study in STUDIES.values():
        panels = (panel.name + " (on demand)" * panel.on_demand for panel in study.panels)
        table.add_row(study.name, " ".join(panels), study.title)
    _print(table)


@app.command()
def plan(
    study: StudyName, trials: Trials = None, seed: Seed = None, panel: Panels = None, values: Values = None
) -> None:
    """Say what a study will cost, and how exact it will be; writes nothing."""
    configured = find_study(study, MODULES).load().configure(trials, seed, _split(panel), _parse_values(values))
    plans = make_plan(configured)
    table = _table("panel", "cells", "methods", "trials", "blocks", "storage", "core time", "mcse to expect")
    for one in plans:
        errors = ", ".join(f"{name} <= {error:.2g}" for name, error in one.mcse.items())
        table.add_row(
            one.panel,
            f"{one.n_cells:,}",
            f"{one.n_settings:,}",
            f"{one.n_trials:,}",
            f"{one.n_blocks:,}",
            _size(one.n_bytes),
            f"{one.seconds:,.1f} s",
            errors or ("none (deterministic)" if configured.panel(one.panel).trials is None else "unknown"),
        )
    _print(table)
    cores = available_cores()
    seconds = sum(one.seconds for one in plans)
    evaluations = sum(one.n_cells * one.n_settings * one.n_trials for one in plans)
    _say(
        f"{evaluations:,} trials (cells x methods x trials) in {sum(one.n_blocks for one in plans):,} blocks, at most "
        f"{_size(sum(one.n_bytes for one in plans))} of storage; about {seconds / cores:,.0f} s on {cores} cores."
    )
    failures = sum(one.failures for one in plans)
    if failures:
        _say(f"{failures:,} trials of the pilot failed; run a few trials and look at 'dpstudies errors'.")


@app.command()
def run(
    study: StudyName,
    store: Annotated[str, typer.Option("--store", metavar="PATH", help="Where the results go.")],
    trials: Trials = None,
    seed: Seed = None,
    panel: Panels = None,
    values: Values = None,
    cluster: Cluster = None,
) -> None:
    """Run a study into a store; goes on where an earlier run of the same spec stopped."""
    source = find_study(study, MODULES)
    with ProgressDisplay(_errors) as display:
        _compute(
            store,
            display,
            lambda: pipeline.run(
                source,
                store,
                trials=trials,
                seed=seed,
                panels=_split(panel),
                values=_parse_values(values),
                cluster=cluster,
                progress=display,
            ),
        )


@app.command()
def resume(store: StorePath, cluster: Cluster = None, study: StudyOption = None) -> None:
    """Compute what a store does not hold yet."""
    with ProgressDisplay(_errors) as display:
        _compute(
            store,
            display,
            lambda: pipeline.resume(store, study=_named(study), cluster=cluster, progress=display),
        )


@app.command()
def status(store: StorePath) -> None:
    """Count the trials of a store by what became of them."""
    counts = _count(store)
    kinds = [kind for kind in Status if kind in (Status.OK, Status.PENDING) or any(c[kind] for c in counts.values())]
    table = _table("panel", *(kind.name.lower().replace("_", " ") for kind in kinds))
    for name, by_kind in counts.items():
        table.add_row(name, *(f"{by_kind[kind]:,}" for kind in kinds))
    _print(table)
    raise typer.Exit(_conclude(store, counts))


@app.command()
def trial(
    store: StorePath,
    panel: Annotated[str, typer.Option("--panel", help="The panel of the trial.")],
    number: Annotated[int, typer.Option("--trial", metavar="N", help="The trial, 0 for the first.")],
    cell: Annotated[list[str] | None, typer.Option("--cell", metavar="NAME=V", help="Value of a data factor.")] = None,
    study: StudyOption = None,
) -> None:
    """Compute one trial again from its key, and say whether it equals what is stored."""
    opened = ResultStore.open(store)
    _, configured = study_of(opened, _named(study))
    chosen = {name: _only(name, given) for name, given in _parse_values(_split(cell)).items()}
    reruns = rerun_trial(opened, configured, panel, chosen, number)
    table = _table("method", "measure", "computed", "stored", "verdict")
    for rerun in reruns:
        killed = rerun.computed is rerun.stored
        reason = str(rerun.computed.error[0])
        for name, value in rerun.computed.values.items():
            stored = _show(rerun.stored.values[name]) if rerun.is_stored else ""
            verdict = ("DIFFERENT" if name in rerun.differing else "equal") if rerun.is_stored else "not stored yet"
            verdict = "not computed again: it ended its worker" if killed else verdict
            table.add_row(rerun.setting.label, name, last_line(reason) if reason else _show(value), stored, verdict)
    _print(table)
    if any(rerun.is_stored and not rerun.equal for rerun in reruns):
        raise typer.Exit(1)


@app.command()
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
        _say(f"{failure.where}: {failure.count:,} {failure.kind}, first trial {failure.first}: {text}")
    _say(f"{n_failed:,} failed trials")
    raise typer.Exit(1 if n_failed else 0)


@app.command()
def summarise(
    store: StorePath,
    panel: Panels = None,
    csv: Annotated[bool, typer.Option("--csv", help="Print comma-separated values, with every statistic.")] = False,
) -> None:
    """Print means over trials with their Monte Carlo standard errors."""
    summaries = load_summaries(store, _split(panel))
    if csv:
        frames = [_frame(summary).assign(panel=name) for name, summary in summaries.items()]
        print(pd.concat(frames).set_index("panel").to_csv(), end="")
        return
    for name, summary in summaries.items():
        heads, rows, _ = tabulate(summary)
        table = _table(*heads, title=f"{name}: {summary.attrs['title']}")
        for row in rows:
            table.add_row(*row)
        _print(table)


@app.command()
def report(
    store: StorePath,
    output: Annotated[Path | None, typer.Option("--output", help="The page; report.html beside the store.")] = None,
    figures: Annotated[Path | None, typer.Option("--figures", help="A folder for the figures as files, too.")] = None,
    study: StudyOption = None,
) -> None:
    """Write one self-contained page: figures, claims with verdicts, tables, provenance."""
    opened = ResultStore.open(store)
    _, configured = study_of(opened, _named(study))
    page = output or Path(opened.url).parent / "report.html"
    try:
        findings = write_report(opened, configured, page, figures)
    except OSError as error:
        raise BadInputError(f"cannot write {error.filename or page}: {error.strerror}; choose another path") from error
    for claim, finding in findings:
        _say(f"{finding.verdict}: {claim.statement} {finding.evidence}")
    _say(f"report: {page}" + (f", figures: {figures}" if figures else ""))


@app.command()
def audit(
    mechanism: Annotated[
        list[str],
        typer.Argument(
            metavar="MECHANISM",
            help="A registered name, 'all', or module:object or file.py:object: a mechanisms.Mechanism, or "
            "mechanisms.OutputLaws, which bring their own data sets and are compared with --epsilon and --delta alone.",
        ),
    ],
    epsilon: Annotated[float, typer.Option("--epsilon", help="Privacy loss, in nats.")],
    prior: Annotated[str | None, typer.Option("--prior", metavar="A1:A2", help="Prior; not used by laws.")] = None,
    n: Annotated[int | None, typer.Option("--n", help="Number of records; not used by laws.")] = None,
    delta: Annotated[
        float | None,
        typer.Option(
            "--delta", help="Probability of a larger loss, for mechanisms that take one (1e-8) and for laws (0)."
        ),
    ] = None,
    at: Annotated[str, typer.Option("--at", metavar="E1,E2", help="Show delta at these epsilons, too.")] = "",
    order: Annotated[
        str,
        typer.Option(
            "--order", metavar="L1,L2", help="Show these Rényi orders, too; the first is that of Rényi mechanisms."
        ),
    ] = "",
) -> None:
    """Compute what mechanisms really spend, over all neighbours, and compare it with what they state."""
    alpha = _numbers("prior", "vector", [prior])[0] if prior else None
    epsilons, orders = _numbers("at", "float", at.split(",")), _numbers("order", "float", order.split(","))
    question = Question(alpha, n, epsilon, delta, epsilons, orders)
    audited, left_out = audit_named(mechanism, question)
    heads, rows = tabulate_audits(audited, question)
    table = _table(*heads)
    for row in rows:
        table.add_row(*row)
    _print(table)
    broken = [one for one in audited if not one.verdict.holds]
    for line in (
        *(f"left out: {reason}" for reason in left_out),
        *(f"{one.name}: {one.evidence}" for one in audited),
    ):
        _say(line)
    _say(f"audited: {len(audited)}, broken: {len(broken)}")
    raise typer.Exit(1 if broken else 0)


@app.command()
def partition(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="A table: .zarr, .parquet or .csv.")],
    target: Annotated[str, typer.Option("--target", help="The column that is explained.")],
    coefficient: Annotated[str, typer.Option("--coefficient", help="Of which column, or 'intercept'.")],
    partitions: Annotated[int, typer.Option("--partitions", metavar="M", help="How many partitions of the rows.")],
    epsilon: Annotated[float, typer.Option("--epsilon", help="Privacy loss of each value, in nats; they add up.")],
    cutoffs: Annotated[
        str, typer.Option("--cutoffs", metavar="B1,B2", help="Release the posterior probabilities of being <= B.")
    ] = "",
    probabilities: Annotated[
        str, typer.Option("--probabilities", metavar="P1,P2", help="Release the posterior quantiles at P.")
    ] = "",
    method: Annotated[
        str | None, typer.Option("--method", help="normality-corrected or quantile-centred by default.")
    ] = None,
    features: Annotated[
        str | None, typer.Option("--features", metavar="A,B", help="Columns that explain; all others by default.")
    ] = None,
    no_intercept: Annotated[bool, typer.Option("--no-intercept", help="Leave the intercept out.")] = False,
    prior: Annotated[
        str,
        typer.Option(
            "--prior",
            metavar="NAME[:X]",
            help="zellner:G (all rows by default), flat, conjugate:V or semi-conjugate:V (variance of each, 1000).",
        ),
    ] = "zellner",
    error_variance: Annotated[float | None, typer.Option("--error-variance", help="Where it is known.")] = None,
    split: Annotated[
        str, typer.Option("--split", metavar="E1:E2", help="How a quantile's epsilon is divided among its steps.")
    ] = "",
    mu: Annotated[
        float | None, typer.Option("--mu", help="Where the search for a quantile's bounds begins; at 1 by default.")
    ] = None,
    theta: Annotated[
        float | None,
        typer.Option("--theta", help="Share of the partitions' quantiles within bounds, of quantile; 0.8."),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", help="Of division and noise, drawn anew by default; who knows it knows the noise."),
    ] = None,
    cluster: Cluster = None,
    output: Annotated[Path | None, typer.Option("--output", help="A .csv or .json file for the values, too.")] = None,
) -> None:
    """Release posterior probabilities or quantiles of a regression coefficient, and say what budget they spend."""
    from studies.partition_table import Request, release_table  # Dask arrays, which no other command need wait for

    if output is not None and (output.suffix not in (".csv", ".json") or not output.parent.is_dir()):
        raise BadInputError(f"output must be a .csv or .json file in a folder that exists, got {output}")
    request = Request(
        target=target,
        coefficient=coefficient,
        n_partitions=partitions,
        epsilon=epsilon,
        cutoffs=_numbers("cutoffs", "float", cutoffs.split(",")),
        probabilities=_numbers("probabilities", "float", probabilities.split(",")),
        method=method,
        features=None if features is None else tuple(filter(None, _split([features]))),
        intercept=not no_intercept,
        prior=prior,
        error_variance=error_variance,
        split=_numbers("split", "vector", [split])[0] if split else (),
        start=mu,
        share=theta,
    )
    released = release_table(table, request, seed, cluster)
    shown = _table(*released.values.columns)
    for row in released.values.itertuples(index=False):
        shown.add_row(*(f"{value:.10g}" if isinstance(value, float) else str(value) for value in row))
    _print(shown)
    for line in released.lines:
        _say(line)
    if output is not None:
        try:
            released.write(output)
        except OSError as error:
            raise BadInputError(f"cannot write {output}: {error.strerror}; the values above are released") from error
        _say(f"values: {output}")


def main() -> None:
    """Run the command; the entry point."""
    for number in (signal.SIGINT, signal.SIGTERM):  # batch systems end a job by SIGTERM: stop cleanly, too
        signal.signal(number, _Interrupt())
    warnings.showwarning = lambda message, *_: _errors.print(f"dpstudies: {message}")  # no source lines to a user
    sys.path.append(os.getcwd())  # for module:object
    try:
        code = app(standalone_mode=False)
    except BadInputError as error:
        code = _fail(str(error), 2)
    except _UsageError as error:
        code = _fail(" ".join(error.format_message().split()) + "; see 'dpstudies --help'", 2)
    except (ExecutionError, IncompleteStoreError) as error:
        code = _fail(str(error), 3)
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    if code == 130:
        _fail("interrupted", code)
    sys.exit(code)


class _Interrupt:
    """What a first interrupt does, and a second one that has no patience."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self, number: int, frame: object) -> None:
        self._count += 1
        if self._count > 1:
            os._exit(130)
        os.write(2, b"\ndpstudies: stopping after the blocks in hand; once more to quit at once\n")
        raise KeyboardInterrupt


def _fail(message: str, code: int) -> int:
    _errors.print(f"dpstudies: {' '.join(message.split())}")
    return code


def _compute(store: str, display: ProgressDisplay, work: Any) -> None:
    """Do the work of `run` or `resume`, say how it ended, and exit with the code for it."""
    try:
        work()
    except (KeyboardInterrupt, ExecutionError) as error:
        display.__exit__()
        if isinstance(error, ExecutionError):
            _fail(str(error), 3)
        _fail(_what_is_kept(store), 3)
        raise typer.Exit(130 if isinstance(error, KeyboardInterrupt) else 3) from None
    display.__exit__()
    if display.n_total:
        _say(f"{display.n_done:,} trials in {display.seconds:,.1f} s")
    raise typer.Exit(_conclude(store, _count(store)))


def _what_is_kept(store: str) -> str:
    if not (ResultStore.exists(store) and ResultStore.open(store).complete):
        return "no trial was committed yet"
    pending = sum(by_kind[Status.PENDING] for by_kind in _count(store).values())
    again = f"go on with: dpstudies resume {shlex.quote(store)}"
    return f"what was committed is kept, {pending:,} trials are pending; {again}"


def _count(store: str) -> dict[str, dict[Status, int]]:
    tree = pipeline.open_results(store)
    return {str(name): count_status(panel.to_dataset()) for name, panel in tree.children.items()}


def _conclude(store: str, counts: Mapping[str, Mapping[Status, int]]) -> int:
    """Say in one line how a store stands and what to do next; return the exit code."""
    failed, pending = (
        sum(by_kind[kind] for by_kind in counts.values() for kind in kinds) for kinds in (FAILURES, (Status.PENDING,))
    )
    path = shlex.quote(store)
    if pending:
        _say(f"incomplete: {pending:,} trials pending; go on with: dpstudies resume {path}")
        return 3
    if failed:
        _say(f"complete, {failed:,} trials failed; see: dpstudies errors {path}")
        return 1
    _say(f"complete; next: dpstudies report {path}")
    return 0


def _frame(summary: xr.Dataset) -> pd.DataFrame:
    """Return a summary as rows, with constants and coordinates as columns."""
    return summary.to_dataframe().reset_index()


def _named(study: str | None) -> StudySource | None:
    return None if study is None else find_study(study, MODULES)


def _split(names: list[str] | None) -> list[str]:
    return [name.strip() for given in names or [] for name in given.split(",")]


def _parse_values(assignments: list[str] | None) -> dict[str, list[str]]:
    values: dict[str, list[str]] = {}
    for assignment in assignments or []:
        name, equals, given = assignment.partition("=")
        if not equals or not name or not given:
            raise BadInputError(f"a value must be given as NAME=V1,V2, got {assignment!r}")
        if name in values:
            raise BadInputError(f"{name} is given twice; list its values once, as {name}=V1,V2")
        values[name] = [value.strip() for value in given.split(",")]
    return values


def _numbers(name: str, kind: Literal["float", "vector"], given: list[str]) -> tuple[Any, ...]:
    return Factor(name, tuple(given), "", kind).values if given != [""] else ()


def _only(name: str, values: list[str]) -> str:
    if len(values) != 1:
        raise BadInputError(f"a cell has one value of {name}, got {len(values)}")
    return values[0]


def _show(value: Any) -> str:
    return str(value.ravel()[0]) if value.size == 1 else f"array of shape {value.shape}"


def _size(n_bytes: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if n_bytes < 1000:
            return f"{n_bytes:.3g} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.3g} TB"


def _table(*heads: str, title: str | None = None) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for head in heads:
        table.add_column(head, no_wrap=True)
    return table


def _print(table: Table) -> None:
    """Print a table as wide as its content: a number cut off is worse than a line that wraps."""
    width = Console(width=10_000).measure(table).maximum
    Console(**_PLAIN, width=width).print(table)


def _say(text: str) -> None:
    Console(**_PLAIN).print(text)
