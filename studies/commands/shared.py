"""Options, parsers and functions for printing that the commands share."""

import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from inspect import Parameter, signature
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from pipeline.declare.factors import Factor, require_integer
from pipeline.declare.source import StudySource, find_study
from pipeline.errors import BadInputError
from studies import MODULES
from studies.commands.output import SafeConsole, printable

ERRORS = SafeConsole(stderr=True)


def complete_study(incomplete: str) -> list[str]:
    """Return the names of studies that start with the partial word `incomplete`, for shell completion."""
    return [name for name in MODULES if name.startswith(incomplete)]


def complete_profile(incomplete: str) -> list[str]:
    """Return the names of cluster profiles that start with the partial word `incomplete`, for shell completion."""
    from pipeline.clusters.profiles import profile_files

    return [name for name in profile_files() if name.startswith(incomplete)]


StudyName = Annotated[
    str,
    typer.Argument(
        metavar="STUDY", help="A name, a .py file with STUDY, or module:object.", autocompletion=complete_study
    ),
]
StorePath = Annotated[str, typer.Argument(metavar="STORE", help="Path of a result store.")]
Level = Annotated[float, typer.Option("--level", help="Probability of the intervals.")]
Panels = Annotated[list[str] | None, typer.Option("--panel", help="Only this panel; may be repeated.")]


def profile_option(text: str) -> Any:
    """Return the option ``--cluster`` with a help text."""
    return typer.Option("--cluster", metavar="[FILE:]PROFILE", help=text, autocompletion=complete_profile)


_SCHEDULER = "Profile with the address of the scheduler of the submission; no other address is connected to."
Cluster = Annotated[
    str | None, profile_option("Cluster that computes, see 'cluster list'; threads of this process by default.")
]
Scheduler = Annotated[str | None, profile_option(_SCHEDULER)]
StudyOption = Annotated[
    str | None,
    typer.Option(
        "--study",
        metavar="STUDY",
        help="The study; by default that of the store, if it is built in, registered by a package, or in a file that "
        "you have run before.",
    ),
]
AcceptEdited = Annotated[
    bool,
    typer.Option(
        "--accept-edited-study",
        help="Accept an edited study file, and recompute the failed trials of its earlier versions.",
    ),
]
_OPTIONS: dict[str, tuple[Any, str, str | None, str]] = {
    "trials": (int | None, "--trials", None, "Total number of trials per cell."),
    "seed": (int | None, "--seed", None, "Seed of all random streams."),
    "values": (
        list[str] | None,
        "--set",
        "NAME=V1,V2",
        "Values of a factor, constant or method list; may be repeated.",
    ),
    "until": (
        str | None,
        "--until",
        "TARGET",
        "Stop at a precision, 'mcse(NAME) <= BOUND', or when all claims are decided, 'claims'.",
    ),
    "at_most": (int | None, "--at-most", "N", "Maximum trials per cell, with --until."),
    "within": (str | None, "--within", "TIME", "Maximum time, with --until, such as 90s, 30min or 2h."),
    "share": (str | None, "--share", "K/M", "Compute only the Kth of M shares of the blocks; see merge."),
    "time_limit": (float | None, "--time-limit", "SECONDS", "Time limit per block or trial."),
    "allow_failures": (bool, "--allow-failures", None, "Compute every trial, even if a method fails on all trials."),
    "plot": (Path | None, "--plot", None, "File for a figure of the posterior, .svg or .png."),
    "ledger": (str | None, "--ledger", "FILE", "File with all releases from these records; refuses to exceed it."),
    "budget": (str | None, "--budget", "E[:D]", "Largest total epsilon of a new ledger, in nats, and total delta."),
    "yes": (bool, "--yes", None, "Release without asking."),
    "rehearsal": (int | None, "--seed", None, "Rehearse with this seed: not private, and nothing is spent."),
}
OPTIONS: dict[str, Any] = {
    **{
        name: Annotated[kind, typer.Option(*flag, metavar=form, help=text)]
        for name, (kind, *flag, form, text) in _OPTIONS.items()
    },
    "panel": Panels,
    "cluster": Cluster,
    "study": StudyOption,
    "accept_edited_study": AcceptEdited,
}
"""Options that several commands have, by the name of the argument."""

_Command = TypeVar("_Command", bound=Callable[..., Any])


def takes(*names: str) -> Callable[[_Command], _Command]:
    """Return a decorator that declares the named `OPTIONS` for a command, which receives them as ``**given``."""
    shared = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=False if hint is bool else None, annotation=OPTIONS[name])
        for name in names
        for hint in (OPTIONS[name].__origin__,)
    ]

    def declare(command: _Command) -> _Command:
        own = signature(command)
        kept = [one for one in own.parameters.values() if one.kind is not Parameter.VAR_KEYWORD]
        declared = own.replace(parameters=[*(one.replace(kind=Parameter.KEYWORD_ONLY) for one in kept), *shared])
        command.__signature__ = declared  # type: ignore[attr-defined]
        return command

    return declare


def named_study(study: str | None) -> StudySource | None:
    """Return the source of the study given by ``--study``; None without this option."""
    return None if study is None else find_study(study, MODULES)


def split_names(names: list[str] | None) -> list[str]:
    """Return the names given by a repeatable option, split at commas."""
    return [name.strip() for given in names or [] for name in given.split(",")]


def parse_values(assignments: list[str] | None) -> dict[str, list[str]]:
    """Return the values given by an option of the form ``NAME=V1,V2``, such as ``--set``, by name."""
    given = _parse(assignments, "NAME=V1,V2", "list its values once, as {}=V1,V2")
    return {name: [value.strip() for value in values.split(",")] for name, values in given.items()}


def parse_cell(assignments: list[str] | None) -> dict[str, str]:
    """Return the values given by ``--cell``, by name; a value may contain commas."""
    return _parse(assignments, "NAME=V", "a cell has one value of {}")


def _parse(assignments: list[str] | None, form: str, twice: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for assignment in assignments or []:
        name, equals, given = assignment.partition("=")
        if not equals or not name or not given:
            raise BadInputError(f"a value must be given as {form}, got {assignment!r}")
        if name in values:
            raise BadInputError(f"{name} is given twice; {twice.format(name)}")
        values[name] = given
    return values


def parse_numbers(name: str, kind: Literal["float", "vector"], given: list[str]) -> tuple[Any, ...]:
    """Parse the values of an option as numbers, none for an empty option, or as vectors."""
    return Factor(name, tuple(given), "", kind).values if kind == "vector" or given != [""] else ()


def require_level(level: float) -> None:
    """Raise BadInputError unless the ends of an interval with a probability are quantiles in (0, 1)."""
    if not 0.0 < level < (1.0 + level) / 2.0 < 1.0:  # the ends are rounded
        raise BadInputError(f"level must be in (0, 1) and not round to 1, got {level!r}; choose e.g. 0.95")


def require_seed(seed: int | None) -> None:
    """Raise BadInputError unless a seed is a non-negative integer of 63 bits, or None."""
    if seed is not None:
        require_integer("--seed", seed, 0, 2**63 - 1)


def parse_time(given: str | None) -> float | None:
    """Return the seconds of a time with a unit, such as ``30min``; None if no time is given."""
    if given is None:
        return None
    found = re.fullmatch(r"([0-9]*\.?[0-9]+)\s*(s|min|h)", given.strip())
    if found is None:
        raise BadInputError(f"a time must be a number with the unit s, min or h, such as 30min, got {given!r}")
    return float(found[1]) * {"s": 1, "min": 60, "h": 3600}[found[2]]


def format_size(n_bytes: float) -> str:
    """Format a number of bytes with three digits and a unit."""
    for unit in ("B", "kB", "MB", "GB"):
        if n_bytes < 999.5:  # larger numbers are rounded to 1000
            return f"{n_bytes:.3g} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.3g} TB"


def print_table(heads: Iterable[str], rows: Iterable[Iterable[str]], title: str = "") -> None:
    """Print a table as wide as its content: lines may wrap, but numbers are not cut off."""
    shown = printable(title) if title else None
    table = Table(title=shown, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for head in heads:
        table.add_column(printable(head), no_wrap=True)
    for row in rows:
        table.add_row(*map(printable, row))
    width = Console(width=10_000).measure(table).maximum
    SafeConsole(width=width).print(table)


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


def require_file(name: str, path: Path | None, *suffixes: str) -> None:
    """Raise BadInputError if a file to be written has another suffix, or no folder."""
    if path is not None and (path.suffix not in suffixes or not path.parent.is_dir() or path.is_dir()):
        kinds = f"{', '.join(suffixes[:-1])} or {suffixes[-1]}"
        raise BadInputError(f"{name} must be a {kinds} file in an existing folder, got {path}")


@contextmanager
def writing(path: str | PathLike[str], remark: str = "choose another path") -> Iterator[None]:
    """Raise an error in one line if a file cannot be written."""
    try:
        yield
    except OSError as error:
        raise BadInputError(f"cannot write {error.filename or path}: {error.strerror}; {remark}") from error


def say(text: str) -> None:
    """Print a line."""
    SafeConsole().print(text)


def fail(message: str, code: int) -> int:
    """Print an error in one line, and return `code`."""
    ERRORS.print(f"dpstudies: {' '.join(message.split())}")
    return code
