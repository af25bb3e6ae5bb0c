"""Options that the commands share, as types of their parameters, and the values that their texts stand for."""

import inspect
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from pipeline.declare.method_files import find_method
from pipeline.declare.source import find_study
from pipeline.errors import BadInputError
from studies import MODULES
from studies.option_texts import parse_assignments
from studies.output import leave_output_to_json

if TYPE_CHECKING:
    from pipeline.clusters.profiles import Profile
    from pipeline.declare.source import StudySource


def complete_study(incomplete: str) -> list[str]:
    """Return the names of studies that start with the partial word `incomplete`, for shell completion."""
    return [name for name in MODULES if name.startswith(incomplete)]


def complete_profile(incomplete: str) -> list[str]:
    """Return the names of cluster profiles that start with the partial word `incomplete`, for shell completion."""
    from pipeline.clusters.profiles import profile_files

    return [name for name in profile_files() if name.startswith(incomplete)]


def option(*words: str, **more: Any) -> Any:
    """Return an option from its flag and its metavar, by default those of its argument, and its help text."""
    *names, text = words
    flags = [name for name in names if name.startswith("--")]
    metavar = next((name for name in names if name not in flags), None)
    return typer.Option(*flags, metavar=metavar, help=text, **more)


def with_plain_numbers(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command whose options of numbers refuse underscores, which Python accepts: 2_0 is 20."""
    for parameter in inspect.signature(command).parameters.values():
        kinds, *notes = get_args(parameter.annotation) or (parameter.annotation,)
        for kind in {int, float} & {kinds, *get_args(kinds)}:
            for note in notes:
                note.parser = partial(_parse_number, kind)
    return command


def _parse_number(kind: type[int] | type[float], value: Any) -> int | float:
    """Return a number as Typer does; raise the error of other text for underscores."""
    from pydantic import TypeAdapter, ValidationError  # of Typer, which imports it late
    from pydantic_core import PydanticKnownError

    is_plain = not (isinstance(value, str) and "_" in value)
    try:
        return TypeAdapter(kind).validate_python(value if is_plain else "")
    except ValidationError as error:
        raise PydanticKnownError(error.errors()[0]["type"]) from None  # type: ignore[arg-type]


def argument(metavar: str, text: str, complete: Callable[[str], list[str]] | None = None, **more: Any) -> Any:
    """Return a positional argument from its metavar, its help text, and its completion in shells."""
    return typer.Argument(metavar=metavar, help=text, autocompletion=complete, **more)


def path_word(path: str) -> str:
    """Return a path that printed commands can repeat: one that begins with a dash would be read as an option."""
    return f"./{path}" if path.startswith("-") else path


def require_persistent(store: str) -> str:
    """Return the path of a store; raise `BadInputError` for the memory of this process, which ends with the command."""
    if store.startswith("memory:"):
        raise BadInputError(
            f"a store must be in persistent storage, got {store}; pass a folder or a URL such as s3://BUCKET/NAME.zarr"
        )
    return path_word(store)


StudyName = Annotated[
    str, argument("STUDY", "A name, a .py file with STUDY, or module:object.", complete_study, callback=path_word)
]
StorePath = Annotated[str, argument("STORE", "Path of a result store.", callback=path_word)]
StoreOrFolder = Annotated[str, argument("STORE", "A result store, or a folder of 'run all'.", callback=path_word)]
NewStore = Annotated[str, option("--store", "PATH", "Path of the result store.", callback=require_persistent)]
Open = Annotated[bool, option("--open", "Open the page in a browser.")]
Level = Annotated[float, option("Probability of the intervals.")]
TABLE = argument("TABLE", "A table: .zarr, .parquet, .csv or .csv.gz.")


def profile_option(text: str) -> Any:
    """Return the option ``--cluster`` with a help text."""
    return option("[FILE:]PROFILE", text, autocompletion=complete_profile)


_SCHEDULER = "Profile with the address of the scheduler of the submission; no other address is connected to."
_UNTIL = "Stop at a precision, 'mcse(NAME) <= BOUND', or when all claims are decided, 'claims'."
_CLUSTER = "Cluster that computes, see 'cluster list'; threads of this process by default."
_STUDY = (
    "The study; by default that of the store, if it is built in, registered by a package, or in a file that you have "
    "run before."
)
_NA = "Text of missing cells, in addition to empty ones and nulls; may be repeated."

Scheduler = Annotated[str | None, profile_option(_SCHEDULER)]
Trials = Annotated[int | None, option("Total number of trials per cell.")]
Seed = Annotated[int | None, option("Seed of all random streams.")]
Panels = Annotated[list[str] | None, option("Only this panel; may be repeated.")]
Assignments = Annotated[
    list[str] | None, option("--set", "NAME=V1,V2", "Values of a factor, constant or method list; may be repeated.")
]
AddedMethods = Annotated[
    list[str] | None, option("--add", "FILE.py[:NAME]", "A method of your own, see 'new'; may be repeated.")
]
Until = Annotated[str | None, option("TARGET", _UNTIL)]
MostTrials = Annotated[int | None, option("N", "Maximum trials per cell, with --until.")]
Within = Annotated[str | None, option("TIME", "Maximum time, with --until, such as 90s, 30min or 2h.")]
PartOfRun = Annotated[str | None, option("K/M", "Compute only the Kth of M shares of the blocks; see merge.")]
Cluster = Annotated[str | None, profile_option(_CLUSTER)]
TimeLimit = Annotated[float | None, option("SECONDS", "Time limit per block or trial.")]
AllowFailures = Annotated[
    bool, option("--allow-failures", "Compute every trial, even if a method fails on all trials.")
]
AcceptEditedStudy = Annotated[
    bool,
    option(
        "--accept-edited-study", "Accept an edited study file, and recompute the failed trials of its earlier versions."
    ),
]
DeclaringStudy = Annotated[str | None, option("STUDY", _STUDY)]

Features = Annotated[str | None, option("A,B", "Explanatory columns; all others by default.")]
MissingTexts = Annotated[list[str] | None, option("--na", "TEXT", _NA)]
Plot = Annotated[Path | None, option("File for a figure of the posterior, .svg or .png.")]
Ledger = Annotated[str | None, option("FILE", "File with all releases from these records; refuses to exceed it.")]
Budget = Annotated[str | None, option("E[:D]", "Largest total epsilon of a new ledger, in nats, and total delta.")]
Yes = Annotated[bool, option("--yes", "Release without asking.")]
RehearsalSeed = Annotated[int | None, option("--seed", "Rehearse with this seed: not private, and nothing is spent.")]
PrintedRelease = Annotated[
    Path | None, option("FILE", "File with a release that --json printed; infer from it again, and spend nothing.")
]
_JSON = "Print only the release on standard output, as JSON, and the text on standard error."
Json = Annotated[bool, option("--json", _JSON, callback=leave_output_to_json)]


def find_named(study: str | None) -> "StudySource | None":
    """Return the study of ``--study``; None if the option is not given, for that of the store."""
    return None if study is None else find_study(study, MODULES)


def cluster_words(cluster: str | None) -> tuple[str, ...]:
    """Return the words of ``--cluster`` for a printed command, which continues on the same cluster."""
    return () if cluster is None else ("--cluster", cluster)


def add_methods(source: "StudySource", targets: list[str] | None) -> "StudySource":
    """Return a study with the methods of ``--add``."""
    return replace(source, methods=tuple(find_method(target) for target in targets or ()))


def load_cluster(cluster: str | None) -> "Profile":
    """Return the profile of ``--cluster``, by default threads, so that a command never uses Dask's current client."""
    from pipeline.clusters.profiles import load_profile

    return load_profile(cluster)


def parse_values(assignments: list[str] | None) -> dict[str, list[str]]:
    """Return the values given by an option of the form ``NAME=V1,V2``, such as ``--set``, by name."""
    lists = parse_assignments(assignments, "NAME=V1,V2", "list its values once, as {}=V1,V2")
    return {name: [value.strip() for value in values.split(",")] for name, values in lists.items()}


def parse_cell(assignments: list[str] | None) -> dict[str, str]:
    """Return the values given by ``--cell``, by name; a value may contain commas."""
    return parse_assignments(assignments, "NAME=V", "a cell has one value of {}")


def parse_time(text: str | None) -> float | None:
    """Return the seconds of a time with a unit, such as ``30min``; None if no time is given."""
    if text is None:
        return None
    form = re.fullmatch(r"([0-9]*\.?[0-9]+)\s*(s|min|h)", text.strip())
    if form is None:
        raise BadInputError(f"a time must be a number with the unit s, min or h, such as 30min, got {text!r}")
    return float(form[1]) * {"s": 1, "min": 60, "h": 3600}[form[2]]
