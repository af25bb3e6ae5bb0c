"""The command ``dpstudies``.

Exit codes: 0 complete; 1 complete with failed trials, a trial that differs, or a mechanism that breaks its guarantee;
2 bad input, nothing written; 3 incomplete; 130 interrupted.
"""

import logging
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any, ClassVar, cast

import typer

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
    benchmarking,
    clusters,
    creating,
    estimating,
    inferring,
    listing,
    pages,
    publishing,
    reading,
    regressing,
    running,
    summaries,
    verifying,
)
from studies.commands.help import HeadedGroup
from studies.commands.options import with_plain_numbers
from studies.output import ERRORS, OUTPUT, OutputError, fail, guarded_streams, say


class Commands(HeadedGroup):
    """Group of all commands: first those with which the README begins."""

    headings: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "Commands to begin with": ("run", "report", "new", "benchmark", "infer", "mean"),
        "Runs of studies": ("list", "plan", "resume", "extend", "merge", "submit", "cancel", "cluster"),
        "Stores of results": ("status", "summarise", "serve", "trial", "errors", "verify", "compact"),
        "Other releases of your own numbers": ("proportion", "histogram", "count", "regress", "partition"),
        "Mechanisms, and pages of this project": ("audit", "site", "findings"),
    }


app = typer.Typer(
    name="dpstudies",
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
_INCOMPLETE = (ExecutionError, IncompleteStoreError, SessionSupersededError, StoreAccessError, UnreadableStoreError)
_EXIT_SECONDS = 2.0  # for idle threads and processes, which end when the interpreter exits
_REQUIREMENTS = {"int_parsing": "an integer", "float_parsing": "a number"}  # by the kinds of errors of pydantic
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
    benchmarking.benchmark,
    reading.status,
    reading.trial,
    reading.errors,
    verifying.verify,
    verifying.compact,
    summaries.summarise,
    pages.report,
    pages.serve,
    publishing.site,
    publishing.findings,
    auditing.audit,
    estimating.mean,
    estimating.proportion,
    estimating.histogram,
    estimating.count,
    inferring.infer,
    regressing.regress,
    regressing.partition,
):
    app.command()(with_plain_numbers(command))
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


def run_process() -> None:
    """Run the command line as this process, which ends soon after the command.

    Threads and processes that functions of a study have left running do not keep the process alive.
    """
    code = 1
    try:
        main()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 0
        raise
    finally:
        main_thread = threading.main_thread()
        has_threads = any(not thread.daemon and thread is not main_thread for thread in threading.enumerate())
        if has_threads or _started_processes():
            threading.Thread(target=_end_process, args=(code,), daemon=True).start()


def _end_process(code: int) -> None:
    """End this process with an exit code, unless the interpreter does so within `_EXIT_SECONDS`."""
    time.sleep(_EXIT_SECONDS)
    for process in _started_processes():
        process.kill()
    with suppress(Exception):
        ERRORS.print("dpstudies: ended threads or processes that functions of the study had started and left running")
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code)


def _started_processes() -> list[Any]:
    """Return the processes that were started with `multiprocessing` and have not ended."""
    multiprocessing = sys.modules.get("multiprocessing")  # slow import
    return multiprocessing.active_children() if multiprocessing is not None else []


def _run() -> int | None:
    """Run the command, print an error on one line, and return the exit code."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return fail("the current folder was removed; change to another one", 2)
    try:
        code = app(prog_name="dpstudies", standalone_mode=False)
        OUTPUT.file.flush()
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
    find_errors, parameter = getattr(error.__cause__, "errors", None), getattr(error, "param", None)
    if find_errors is None or parameter is None:
        return error.format_message().strip().removesuffix(".")
    (details, *_), name = find_errors(), parameter.opts[0]  # of pydantic, whose message omits the value
    if details["type"] in _REQUIREMENTS:
        return f"{name} must be {_REQUIREMENTS[details['type']]}, got {details['input']!r}"
    return f"{name}: {details.get('ctx', {}).get('error', details['msg'])}".removesuffix(".")


class _Notes(logging.Handler):
    """Handler that prints notes of the pipeline, such as the address of the dashboard, to standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        ERRORS.print(f"dpstudies: {record.getMessage()}")


class _Interrupt:
    """Signal handler: the first interrupt stops the run, the second ends the process.

    A process that a method forks, such as one of a pool, has this handler as well, and ends as without it.
    """

    def __init__(self) -> None:
        self._count = 0
        self._process = os.getpid()

    def __call__(self, number: int, frame: object) -> None:
        if os.getpid() != self._process:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        self._count += 1
        if self._count > 1:
            os._exit(130)
        os.write(2, b"\ndpstudies: stopping after the current blocks; interrupt again to quit at once\n")
        raise KeyboardInterrupt
