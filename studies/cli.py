"""The command ``dpstudies``.

Exit codes: 0 complete; 1 complete with failed trials, a trial that differs, or a mechanism that breaks its guarantee;
2 bad input, nothing written; 3 incomplete; 130 interrupted.
"""

import logging
import os
import signal
import sys
import warnings
from typing import Annotated, Any, cast

import typer
from typer.core import TyperGroup

from pipeline.errors import (
    BadInputError,
    ExecutionError,
    IncompleteStoreError,
    SessionSupersededError,
    StoreAccessError,
    UnreadableStoreError,
)
from studies import __version__
from studies.commands import (
    auditing,
    clusters,
    creating,
    estimating,
    inferring,
    listing,
    pages,
    reading,
    regressing,
    running,
    summaries,
    verifying,
)
from studies.commands.output import ERRORS, OutputError, fail, guarded_streams, say

OWN_NUMBERS = "Releases of your own numbers"
"""Heading of the commands on private data of the user, the ``rich_help_panel`` of their registration."""


class HeadedGroup(TyperGroup):
    """Group whose help lists the commands under their headings, as typer does only with rich markup."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write one section per heading, in the order of the registration."""
        sections: dict[str, list[tuple[str, str]]] = {}
        limit = formatter.width - 6 - max(map(len, self.commands))
        for name, command in self.commands.items():
            if not command.hidden:
                heading = getattr(command, "rich_help_panel", None)
                rows = sections.setdefault(heading if isinstance(heading, str) else "Commands", [])
                rows.append((name, command.get_short_help_str(limit)))
        for heading, rows in sections.items():
            with formatter.section(heading):
                formatter.write_dl(rows)


app = typer.Typer(
    name="dpstudies",
    cls=HeadedGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
_INCOMPLETE = (ExecutionError, IncompleteStoreError, SessionSupersededError, StoreAccessError, UnreadableStoreError)
# usage errors and their base class, which typer does not export
_UsageError = cast(type[typer.BadParameter], typer.BadParameter.__mro__[2])


@app.callback(invoke_without_command=True)
def show_help(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    """Run simulation studies of differentially private Bayesian inference, and query their results."""
    if version:
        say(f"dpstudies {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        say(context.get_help())


app.command("list")(listing.list_studies)
app.add_typer(clusters.app, name="cluster")
app.add_typer(creating.app, name="new")
for command in (
    running.plan,
    running.run,
    running.merge,
    running.submit,
    running.cancel,
    running.resume,
    running.extend,
    reading.status,
    reading.trial,
    reading.errors,
    verifying.verify,
    verifying.compact,
    summaries.summarise,
    pages.report,
    pages.serve,
    auditing.audit,
):
    app.command()(command)
for release in (
    estimating.mean,
    estimating.proportion,
    estimating.histogram,
    estimating.count,
    inferring.infer,
    regressing.regress,
    regressing.partition,
):
    app.command(rich_help_panel=OWN_NUMBERS)(release)
app.command("summarize", hidden=True)(summaries.summarise)


def main() -> None:
    """Run the command line."""
    for number in (signal.SIGINT, signal.SIGTERM):  # batch systems end jobs by SIGTERM
        signal.signal(number, _Interrupt())
    notes = logging.getLogger("pipeline")
    notes.setLevel(logging.INFO)
    notes.handlers = [_Notes()]
    warnings.showwarning = lambda message, *_: ERRORS.print(f"dpstudies: {message}")  # without source lines
    with guarded_streams():
        code = _run()
        if code == 130:
            fail("interrupted", code)
    sys.exit(code)


def _run() -> int | None:
    """Run the command, print an error on one line, and return the exit code."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return fail("the current folder was removed; change to another one", 2)
    try:
        code = app(prog_name="dpstudies", standalone_mode=False)
        sys.stdout.flush()
        return code
    except BadInputError as error:
        return fail(str(error), 2)
    except _UsageError as error:
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else "dpstudies"
        return fail(f"{_describe(error)}; see '{path} --help'", 2)
    except (*_INCOMPLETE, OutputError) as error:
        return fail(str(error), 3)
    except (KeyboardInterrupt, typer.Abort):
        return 130


def _describe(error: typer.BadParameter) -> str:
    """Return the message of an error of usage, with the value that could not be converted."""
    message = error.format_message().strip().removesuffix(".")
    find_errors = getattr(error.__cause__, "errors", None)  # of pydantic, whose message omits the value
    return message if find_errors is None else f"{message}, got {find_errors()[0]['input']!r}"


class _Notes(logging.Handler):
    """Handler that prints notes of the pipeline, such as the address of the dashboard, to standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        ERRORS.print(f"dpstudies: {record.getMessage()}")


class _Interrupt:
    """Signal handler: the first interrupt stops the run, the second ends the process."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self, number: int, frame: object) -> None:
        self._count += 1
        if self._count > 1:
            os._exit(130)
        os.write(2, b"\ndpstudies: stopping after the current blocks; interrupt again to quit at once\n")
        raise KeyboardInterrupt
