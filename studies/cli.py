"""The command ``dpstudies``.

Exit codes: 0 complete; 1 complete with failed trials, a trial that differs, or a mechanism that breaks its guarantee;
2 bad input, nothing written; 3 incomplete; 130 interrupted.
"""

import logging
import os
import signal
import sys
import warnings
from typing import cast

import typer

from pipeline.errors import (
    BadInputError,
    IncompleteStoreError,
    SessionSupersededError,
    StoreAccessError,
    UnreadableStoreError,
)
from pipeline.execution.in_flight import ExecutionError
from pipeline.stores.results import classify_read_error
from studies.commands import auditing, clusters, reading, releasing, running, verifying
from studies.commands.output import OutputError, guarded_streams
from studies.commands.shared import ERRORS, fail

app = typer.Typer(
    name="dpstudies",
    help="Run simulation studies of differentially private Bayesian inference, and query their results.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
_INCOMPLETE = (ExecutionError, IncompleteStoreError, SessionSupersededError, StoreAccessError, UnreadableStoreError)
# base class of usage errors, which typer does not export
_UsageError = cast(type[typer.BadParameter], typer.BadParameter.__mro__[2])

app.command("list")(reading.list_studies)
app.add_typer(clusters.app, name="cluster")
for command in (
    running.plan,
    running.run,
    running.submit,
    running.cancel,
    running.resume,
    running.extend,
    reading.status,
    reading.trial,
    reading.errors,
    verifying.verify,
    reading.summarise,
    reading.report,
    auditing.audit,
    releasing.partition,
):
    app.command()(command)


def main() -> None:
    """Run the command line."""
    for number in (signal.SIGINT, signal.SIGTERM):  # batch systems end jobs by SIGTERM
        signal.signal(number, _Interrupt())
    warnings.showwarning = lambda message, *_: ERRORS.print(f"dpstudies: {message}")  # without source lines
    with guarded_streams():
        code = _run()
        if code == 130:
            fail("interrupted", code)
    sys.exit(code)


def _run() -> int | None:
    """Run the command, print any error in one line, and return the exit code."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return fail("the current folder was removed; change to another one", 2)
    try:
        code = app(standalone_mode=False)
        sys.stdout.flush()
        return code
    except BadInputError as error:
        return fail(str(error), 2)
    except _UsageError as error:
        return fail(" ".join(error.format_message().split()) + "; see 'dpstudies --help'", 2)
    except (*_INCOMPLETE, OutputError) as error:
        return _incomplete(str(error))
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except Exception as error:
        found = classify_read_error(error)
        if found is None:
            raise
        return _incomplete(str(found))


def _incomplete(message: str) -> int:
    logging.getLogger("asyncio").disabled = True  # pending reads by Zarr are cancelled on exit
    return fail(message, 3)


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
