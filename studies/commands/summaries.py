"""The command ``summarise``: a selection of the summaries of a store, on the terminal or in a file."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pipeline.errors import BadInputError
from studies.commands.options import DeclaringStudy, Panels, StorePath, find_named, option
from studies.option_texts import split_names
from studies.output import ERRORS, OUTPUT, print_columns, printable, require_file, say, writing

if TYPE_CHECKING:
    from pipeline.declare.study import Study
    from pipeline.store.result_store import ResultStore


def summarise(
    store: StorePath,
    panel: Panels = None,
    measure: Annotated[list[str] | None, option("Only this measure; may be repeated.")] = None,
    where: Annotated[
        list[str] | None, option("NAME=V,NAME=V1,V2", "Only these values of factors and methods; may be repeated.")
    ] = None,
    long: Annotated[
        bool, option("--long/--wide", "One row per cell and measure with every statistic, or one row per cell.")
    ] = False,
    csv: Annotated[bool, option("--csv", "Print comma-separated values, with every statistic.")] = False,
    json: Annotated[bool, option("--json", "Print JSON records, with every statistic.")] = False,
    output: Annotated[Path | None, option("File for every statistic: .csv, .json or .parquet.")] = None,
    study: DeclaringStudy = None,
) -> None:
    """Print means with Monte Carlo errors, and proportions.

    Proportions have 95 % intervals.
    """
    if csv + json + (output is not None) > 1:
        raise BadInputError("--csv, --json and --output exclude each other, got several; choose one")
    suffix = ".csv" if csv else ".json" if json else ""
    if output is not None:
        require_file("--output", output, ".csv", ".json", ".parquet")
        suffix = output.suffix or ".csv"  # a device has none
        if suffix == ".parquet" and find_spec("pyarrow") is None:
            raise BadInputError("Parquet requires pyarrow; install it with: pip install 'dpstudies[tables]'")
    from pipeline.store.result_store import open_complete
    from studies.report.selections import encode, select

    opened = open_complete(store)
    configured = _declaring_study(opened, study, is_needed=long or bool(suffix))
    selected = select(opened, split_names(panel), split_names(measure), _parse_where(where), configured)
    if not suffix:
        for number, summary_table in enumerate(selected):
            if number:
                say("")
            print_columns(*summary_table.texts(long), title=summary_table.title)
            if hidden := summary_table.hidden(long):
                form = "--csv" if long else "--long"
                say(f"one cell has several values of {', '.join(hidden)}; print them with {form}")
        return
    content = encode(selected, long, suffix)
    if output is None:
        text = content.decode()
        print(printable(text) if OUTPUT.is_terminal else text, end="", file=OUTPUT.file)
        return
    from studies.report.page import write_whole

    with writing(output):
        write_whole(output, content)
    say(f"summary: {output}")


def _declaring_study(opened: "ResultStore", study: str | None, *, is_needed: bool) -> "Study | None":
    """Return the study that declares the statistics of a store; None if it cannot be loaded and was not named."""
    from pipeline.runs.resolve import study_of

    try:
        return study_of(opened, find_named(study), only_reads=True)[1]  # no trial is computed
    except BadInputError as error:
        if study is not None:
            raise
        if is_needed:
            ERRORS.print(f"dpstudies: without the statistics that the study declares: {error}")
        return None


def _parse_where(assignments: Sequence[str] | None) -> dict[str, list[str]]:
    """Return the values given by ``--where``, by name."""
    values: dict[str, list[str]] = {}
    for assignment in assignments or []:
        name = ""
        for part in assignment.split(","):
            before, equals, after = (text.strip() for text in part.partition("="))
            name, value = (before, after) if equals else (name, before)
            if not name or not value:
                raise BadInputError(f"--where must be given as NAME=V,NAME=V1,V2, got {assignment!r}")
            values.setdefault(name, []).append(value)
    return values
