"""Calls of a study's functions, and texts of the failures that they raise or report.

Every exception that a function of a study raises, also one that is no `Exception`, is a failure of its trials. Only an
interrupt by the user is none.
"""

import os
import traceback
from collections.abc import Callable
from typing import Any

from pipeline.declare.source import functions_of, imported_from
from pipeline.declare.study import Study
from pipeline.redact import redact_text, shorten, text_of

_FIRST_ENTRIES, _LAST_ENTRIES = 20, 60  # of a traceback that is cut, such as that of an endless recursion


def call(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function of a study; a process that it forks ends when it returns or raises there, as it is no worker."""
    process = os.getpid()
    try:
        return function(*args)
    except SystemExit as error:
        if os.getpid() != process:
            os._exit(error.code if isinstance(error.code, int) else int(error.code is not None))
        raise
    finally:
        if os.getpid() != process:
            os._exit(1)


def describe_exception(study: Study, error: BaseException) -> str:
    """Return the cause of an exception, with file and line of the last call in a file of the study, and the traceback.

    Lines of markers below code are omitted, since options of Python and versions change them.
    """
    files = {getattr(getattr(function, "__code__", None), "co_filename", "") for function in functions_of(study)}
    places = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    file, line = next((place for place in reversed(places) if place[0] in files), places[-1])
    lines = "".join(_entries(error)).rstrip().splitlines()
    kept = [text for text in lines if text.strip(" ~^|") or not text.strip()]
    cause = f"{os.path.basename(imported_from(file))}:{line}: {kept[-1]}"
    return redact_text("\n".join([cause, *kept]))


def describe_reported(reason: object) -> str:
    """Return the text of a failure that a method reports for a trial, or an empty string for None."""
    if reason is None or (isinstance(reason, str) and not reason):
        return ""
    return redact_text(text_of(reason)) or type(reason).__name__


def _entries(error: BaseException) -> list[str]:
    """Return the entries of a traceback, without those in the middle of a long one; each is shortened."""
    try:
        entries = traceback.format_exception(error)
    except BaseException:  # attributes and texts of exceptions may raise exceptions as well
        entries = [*traceback.format_tb(error.__traceback__), f"{type(error).__name__}: {text_of(error)}"]
    n_omitted = len(entries) - _FIRST_ENTRIES - _LAST_ENTRIES
    if n_omitted > 0:
        entries[_FIRST_ENTRIES:-_LAST_ENTRIES] = [f"  [{n_omitted:,} more entries]\n"]
    return [f"{shorten(entry.rstrip())}\n" for entry in entries]
