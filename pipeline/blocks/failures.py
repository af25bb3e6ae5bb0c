"""Calls of a study's functions, and texts of the failures that they raise or report.

Every exception that a function of a study raises, also one that is no `Exception`, is a failure of its trials. Only an
interrupt by the user is none.
"""

import multiprocessing.process
import os
import re
import sys
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any

import numpy as np

from pipeline.declare.factors import Method
from pipeline.declare.source import functions_of, imported_from
from pipeline.declare.study import Study
from pipeline.redact import class_name, redact_text, shorten, text_of

_FIRST_ENTRIES, _LAST_ENTRIES = 20, 60  # of a traceback that is cut, such as that of an endless recursion
_NO_CHILDREN = "; set distributed.worker.daemon to false for this cluster, or use --cluster threads"
_LEAST_DEPTH = sys.getrecursionlimit()  # of calls; a limit that is set before a study is loaded may be larger


def call(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function of a study, which may not fork a worker, or change NumPy's errstate or lower the limit of calls.

    A process that the function forks ends when it returns or raises an exception there. Standard streams that the
    function closes are replaced, since other functions may print.
    """
    process, depth = os.getpid(), sys.getrecursionlimit()
    try:
        with np.errstate():
            return function(*args)
    except SystemExit as error:
        if os.getpid() != process:
            os._exit(error.code if isinstance(error.code, int) else int(error.code is not None))
        raise
    finally:
        _reopen_streams()
        if sys.getrecursionlimit() < depth:
            sys.setrecursionlimit(max(depth, _LEAST_DEPTH))  # `depth` may be what another thread has set
        if os.getpid() != process:
            os._exit(1)


def _reopen_streams() -> None:
    for name in ("stdout", "stderr"):
        if getattr(getattr(sys, name), "closed", False):
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115


def describe_exception(study: Study, method: Method, error: BaseException) -> str:
    """Return the cause of an exception, with its place in the files of the user or the study, and the traceback.

    Lines of markers below code are omitted, since options of Python and versions change them.
    """
    file, line = _place(study, method, error)
    lines = "".join(_entries(error)).rstrip().splitlines()
    kept = [text for text in lines if text.strip(" ~^|") or not text.strip()]
    hint = _NO_CHILDREN if _is_refused_child(error) else ""
    cause = f"{os.path.basename(imported_from(file))}:{line}: {_first_line(error)}{hint}"
    return redact_text("\n".join([cause, *kept]))


def _place(study: Study, method: Method, error: BaseException) -> tuple[str, int]:
    """Return file and line of the last call in a file of the user, or else in one of the study.

    If the traceback has no file of the user, which returned a wrong value, it is that of the function of the method.
    """
    places = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(_traceback(error))]
    own = [place for place in places if _is_of_user(place[0])] or _definitions(method)[::-1]
    files = {getattr(getattr(function, "__code__", None), "co_filename", "") for function in functions_of(study)}
    of_study = [place for place in places if place[0] in files]
    return (own or of_study or places)[-1]


def _definitions(method: Method) -> list[tuple[str, int]]:
    """Return file and line of the functions in files of users that an added method calls."""
    held = getattr(method.evaluate, "args", ()) if method.is_added else ()
    codes = [
        getattr(function, "__code__", None) for value in held for function in getattr(value, "__dict__", {}).values()
    ]
    return [(code.co_filename, code.co_firstlineno) for code in codes if code and _is_of_user(code.co_filename)]


def _is_of_user(file: str) -> bool:
    return imported_from(file) != file


def _is_refused_child(error: BaseException) -> bool:
    """Return True if multiprocessing refused to start a process from a worker process, which is daemonic."""
    files = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(_traceback(error))]
    is_refusal = issubclass(type(error), AssertionError) and files[-1:] == [multiprocessing.process.__file__]
    return is_refusal and multiprocessing.current_process().daemon


def describe_reported(reason: object) -> str:
    """Return the text of a failure that a method reports for a trial, or an empty string for None."""
    if reason is None:
        return ""
    return redact_text(text_of(reason)).strip() or class_name(reason)


def _first_line(error: BaseException) -> str:
    """Return class and text of an exception up to the first line end in the text, without notes and members."""
    try:
        text = "".join(traceback.format_exception_only(error))
    except BaseException:  # see `_entries`
        text = f"{class_name(error)}: {text_of(error)}"
    lines = re.sub(r":\s+", ": ", text, count=1).splitlines()
    return shorten(next((line for line in lines if line and not line[0].isspace()), class_name(error)).rstrip())


def _entries(error: BaseException) -> list[str]:
    """Return the entries of a traceback, without those in the middle of a long one; each is shortened."""
    try:
        entries = traceback.format_exception(error)
    except BaseException:  # attributes and texts of exceptions may raise exceptions as well
        entries = [*traceback.format_tb(_traceback(error)), f"{class_name(error)}: {text_of(error)}"]
    n_omitted = len(entries) - _FIRST_ENTRIES - _LAST_ENTRIES
    if n_omitted > 0:
        entries[_FIRST_ENTRIES:-_LAST_ENTRIES] = [f"  [{n_omitted:,} more entries]\n"]
    return [f"{shorten(entry.rstrip())}\n" for entry in entries]


def _traceback(error: BaseException) -> TracebackType | None:
    """Return the traceback of an exception, whose class may define the attribute."""
    traceback: TracebackType | None = BaseException.__dict__["__traceback__"].__get__(error)
    return traceback
