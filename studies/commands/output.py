"""Standard output and standard error of the commands, with escaped text and handling of write errors."""

import io
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from rich.console import Console

_CREDENTIALS = re.compile(r"://(?:[^/\s@]*:\S*|[^/\s@]+)@")  # the pattern allows slashes in a password
_NOT_PLAIN = re.compile(r"[^\n\t\x20-\x7e]+")


class OutputError(RuntimeError):
    """Failure to write to standard output, such as a full disk or a closed pipe."""


def printable(text: str) -> str:
    r"""Return a text with control characters as Python escapes, and without credentials in URLs.

    Texts from stores and user code may contain control characters, which terminals interpret.
    """
    return _NOT_PLAIN.sub(_escape, _CREDENTIALS.sub("://...@", text))


def _escape(found: re.Match[str]) -> str:
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in found[0])


class SafeConsole(Console):
    """Console that escapes all text with `printable` and does not interpret markup."""

    def __init__(self, **options: Any) -> None:
        super().__init__(soft_wrap=True, highlight=False, markup=False, emoji=False, **options)

    def print(self, *objects: Any, **options: Any) -> None:
        """Print texts and tables; cells of tables must be printable."""
        super().print(*(printable(one) if isinstance(one, str) else one for one in objects), **options)


class _Guarded:
    """Wrapper of a standard stream that ignores write errors, so that a run continues."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream or io.StringIO()  # the stream is None if it is closed
        self._error: OSError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as error:
            self._error = error
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._error = error


class _GuardedOutput(_Guarded):
    """Wrapper of standard output that raises OutputError after write errors."""

    def write(self, text: str) -> int:
        written = super().write(text)
        self._raise()
        return written

    def flush(self) -> None:
        super().flush()
        self._raise()

    def _raise(self) -> None:
        """Raise OutputError after a failure, and discard the buffer, which the interpreter would write on exit."""
        if self._error is not None:
            with suppress(OSError), open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), self._stream.fileno())
            raise OutputError(f"cannot write the output: {self._error.strerror or self._error}") from self._error


@contextmanager
def guarded_streams() -> Iterator[None]:
    """Raise OutputError for errors on standard output, and ignore errors on standard error.

    Characters outside the encoding of standard output are written as escapes.
    """
    streams = sys.stdout, sys.stderr
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.stdout, sys.stderr = _GuardedOutput(sys.stdout), _Guarded(sys.stderr)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams
