"""Output of the commands: escaped text and tables on the terminal, files, and handling of write errors."""

import io
import json
import math
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO, cast

from rich.cells import cell_len
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from pipeline.errors import BadInputError

_CREDENTIALS = re.compile(r"://(?:[^/\s@]*:\S*|[^/\s@]+)@")  # the pattern allows slashes in a password
_NOT_PLAIN = re.compile(r"[^\n\t\x20-\x7e]+")
_MOST_DECIMALS = 9  # smaller numbers have an exponent


class OutputError(RuntimeError):
    """Failure to write to standard output, such as a full disk or a closed pipe."""


def printable(text: str) -> str:
    r"""Return a text with control characters as Python escapes, and without credentials in URLs.

    Texts from stores and user code may contain control characters, which terminals interpret.
    """
    return _NOT_PLAIN.sub(_escape, _CREDENTIALS.sub("://...@", text))


def _escape(match: re.Match[str]) -> str:
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in match[0])


class SafeConsole(Console):
    """Console that escapes all text with `printable` and does not interpret markup."""

    def __init__(self, **options: Any) -> None:
        super().__init__(soft_wrap=True, highlight=False, markup=False, emoji=False, **options)

    def print(self, *objects: Any, **options: Any) -> None:
        """Print texts and tables; cells of tables must be printable."""
        super().print(*(printable(text) if isinstance(text, str) else text for text in objects), **options)


OUTPUT, ERRORS = SafeConsole(), SafeConsole(stderr=True)
# consoles of standard output and standard error, whose files only this module changes


def format_size(n_bytes: float) -> str:
    """Format a number of bytes with three digits and a unit."""
    for unit in ("B", "kB", "MB", "GB"):
        if n_bytes < 999.5:  # larger numbers are rounded to 1000
            return f"{n_bytes:.3g} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.3g} TB"


def format_numbers(numbers: Iterable[float], width: float) -> list[str]:
    """Format numbers with two digits of a width, such as that of their interval, and separators of thousands."""
    decimals = 1 - math.floor(math.log10(width)) if width > 0 and math.isfinite(width) else 0
    kind = f",.{max(decimals, 0)}f" if decimals <= _MOST_DECIMALS else ".4g"
    return [f"{number:{kind}}" for number in numbers]


def print_table(heads: Iterable[str], rows: Iterable[Iterable[str]], title: str = "") -> None:
    """Print a table as wide as its content: lines may wrap, but numbers are not cut off."""
    shown = printable(title) if title else None
    table = Table(title=shown, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for head in heads:
        table.add_column(printable(head), no_wrap=True)
    for row in rows:
        table.add_row(*map(printable, row))
    _print(table, Console(width=10_000).measure(table).maximum)


def print_wrapped(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table whose last column wraps at the width of the terminal; without a terminal, it does not wrap."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for k, head in enumerate(heads):
        table.add_column(printable(head), no_wrap=k < len(heads) - 1)
    for row in rows:
        table.add_row(*map(printable, row))
    width = shutil.get_terminal_size((0, 0)).columns if OUTPUT.is_terminal else 0
    _print(table, width or Console(width=10_000).measure(table).maximum)


def _print(table: Table, width: int) -> None:
    """Print a table without the spaces that fill its last column."""
    console = SafeConsole(width=width, file=OUTPUT.file)
    with console.capture() as captured:
        console.print(table)
    OUTPUT.file.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def print_columns(heads: Sequence[str], rows: Sequence[Sequence[str]], n_names: int, title: str = "") -> None:
    """Print a table that fits the terminal: columns that do not fit follow below, each part with the first `n_names`.

    The table is not divided if the output is not a terminal.
    """
    widths = [max(cell_len(printable(text)) for text in column) + 2 for column in zip(heads, *rows, strict=True)]
    room = shutil.get_terminal_size((sys.maxsize, 0)).columns - sum(widths[:n_names])
    parts: list[list[int]] = []
    left = 0
    for k in range(n_names, len(heads)):
        if not parts or widths[k] > left:
            parts.append(list(range(n_names)))
            left = room
        parts[-1].append(k)
        left -= widths[k]
    for number, columns in enumerate(parts or [list(range(n_names))]):
        part = ([row[k] for k in columns] for row in rows)
        print_table([heads[k] for k in columns], part, "" if number else title)


def require_file(name: str, path: Path | None, *suffixes: str, kept: Sequence[object] = ()) -> None:
    """Raise BadInputError if a file to be written has another suffix, no folder, or is in a store; accept devices.

    `kept` has the paths of files that must not be overwritten, and None for absent ones.
    """
    if path is None or (path.exists() and not path.is_file() and not path.is_dir()):
        return
    require_outside_stores(name, path)
    for other in kept:
        if other is not None and os.path.realpath(str(other)) == os.path.realpath(path):
            raise BadInputError(f"{name} must not overwrite a file that the command reads, got {path}; choose another")
    if path.suffix not in suffixes or not path.parent.is_dir() or path.is_dir():
        kinds = f"{', '.join(suffixes[:-1])} or {suffixes[-1]}"
        raise BadInputError(f"{name} must be a {kinds} file in an existing folder, got {path}; choose another path")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise BadInputError(f"{name} must be a file that can be written, got {path}; choose another path")


def require_outside_stores(name: str, path: Path | None) -> None:
    """Raise BadInputError if a file or folder to be written is a store of results, or is in one, also by links."""
    from pipeline.store.files.locations import ROOT, SESSIONS  # loads Zarr, whose requirements are checked before

    if path is None:
        return
    real = Path(os.path.realpath(path))
    for folder in (real, *real.parents):
        if (folder / ROOT).is_file() or (folder / SESSIONS).is_dir():
            raise BadInputError(f"{name} must not be in a store of results, got {path}; choose a path outside {folder}")


@contextmanager
def progress_bar(text: str) -> Iterator[Callable[..., None]]:
    """Yield a function of finished and total steps, or of a new text, which draws a bar on a terminal."""
    with Progress(console=ERRORS, transient=True, disable=not ERRORS.is_terminal) as bar:
        line = bar.add_task(text, total=None)
        yield lambda done=None, total=None, text=None: bar.update(line, completed=done, total=total, description=text)


@contextmanager
def writing(path: str | os.PathLike[str], remark: str = "choose another path") -> Iterator[None]:
    """Raise an error in one line if a file cannot be written."""
    try:
        yield
    except OSError as error:
        raise BadInputError(f"cannot write {error.filename or path}: {error.strerror}; {remark}") from error


def say(text: str) -> None:
    """Print a line."""
    OUTPUT.print(text)


def leave_output_to_json(is_json: bool) -> bool:
    """Return the value of ``--json``; if it is True, all text of this command goes to standard error."""
    if is_json:
        OUTPUT.file = ERRORS.file
    return is_json


def is_output_closed() -> bool:
    """Return True if the process was started without standard output, where all text is dropped."""
    return isinstance(sys.stdout, _Guarded) and sys.stdout.is_closed


def print_json(values: Mapping[str, Any]) -> None:
    """Print values as JSON on one line of standard output, at once."""
    print(json.dumps(values), flush=True)


def fail(message: str, code: int) -> int:
    """Print an error in one line, and return `code`."""
    ERRORS.print(f"dpstudies: {' '.join(message.split())}")
    return code


class _Guarded:
    """Wrapper of a standard stream, which functions of a study cannot close.

    After a write error, standard output raises OutputError, and others are ignored.
    """

    def __init__(self, stream: TextIO | None, is_output: bool) -> None:
        self.is_closed = stream is None
        self._stream, self._is_output = stream or io.StringIO(), is_output
        self._error: OSError | ValueError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        self._call(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        self._call(self._stream.flush)

    def close(self) -> None:
        """Flush the stream, which stays open."""
        self.flush()

    def detach(self) -> Any:
        """Raise `io.UnsupportedOperation`, since a detached stream cannot be written."""
        raise io.UnsupportedOperation("detach")

    def _call(self, work: Callable[[], object]) -> None:
        try:
            work()
        except (OSError, ValueError) as error:  # ValueError: the stream below this one was closed
            self._error = error
        if self._is_output and self._error is not None:
            # the interpreter would write the buffer on exit
            with suppress(OSError, ValueError), open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), self._stream.fileno())
            cause = getattr(self._error, "strerror", None) or str(self._error).rstrip(".")
            raise OutputError(
                f"cannot write the output: {cause}; print to a terminal, or to a file on a disk with free space"
            ) from self._error


@contextmanager
def guarded_streams() -> Iterator[None]:
    """Raise OutputError for errors on standard output, and ignore errors on standard error.

    Characters outside the encoding of standard output are written as escapes. `OUTPUT` and `ERRORS` write to these
    streams, also if a function of a study replaces ``sys.stdout`` and ``sys.stderr``, which are restored at the end.
    """
    streams = sys.stdout, sys.stderr
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    guarded: tuple[Any, Any] = _Guarded(sys.stdout, True), _Guarded(sys.stderr, False)
    sys.stdout, sys.stderr = OUTPUT.file, ERRORS.file = guarded
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams
        OUTPUT.file = ERRORS.file = cast(TextIO, None)  # those of `sys`
