"""The commands ``mean``, ``proportion``, ``histogram`` and ``count``: releases from a user's table."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from studies.commands.options import (
    Budget,
    Json,
    Ledger,
    MissingTexts,
    Plot,
    PrintedRelease,
    RehearsalSeed,
    Yes,
    argument,
    option,
)

if TYPE_CHECKING:
    from studies.own_data.estimate_requests import EstimateOptions

File = Annotated[str | None, argument("FILE", "Private records, one per row: .csv, .csv.gz, .parquet or .zarr.")]
Epsilon = Annotated[float | None, option("Privacy loss of the release, in nats.")]
Column = Annotated[str | None, option("Column of the values.")]
Levels = Annotated[
    str | None,
    option(
        "A,B", "Public values of the column of --where; a condition on another value is refused, without a release."
    ),
]
EQUALS = (
    "A value in plain decimal form, such as 20 or -0.5, equals the cells in plain decimal form with exactly its value; "
    "another value, and one in quotes, equals the cells with its text."
)
Where = Annotated[
    str | None,
    option(
        "CONDITION",
        f"COLUMN=VALUE, or with !=, <, <=, > or >=, in quotes. {EQUALS} < and > compare exact decimal numbers.",
    ),
]


def mean(
    file: File = None,
    column: Column = None,
    epsilon: Epsilon = None,
    limits: Annotated[
        str | None,
        option(
            "--range",
            "LOW:HIGH",
            "Public range of the values, not from the records; auto searches for it, with --bounds-epsilon.",
        ),
    ] = None,
    bounds_epsilon: Annotated[float | None, option("Additional privacy loss of --range auto, in nats.")] = None,
    unit: Annotated[str, option("Unit of the values, such as EUR, for the output.")] = "",
    release: PrintedRelease = None,
    na: MissingTexts = None,
    plot: Plot = None,
    ledger: Ledger = None,
    budget: Budget = None,
    yes: Yes = False,
    rehearsal: RehearsalSeed = None,
    json: Json = False,
) -> None:
    """Release the mean of a column, with an interval.

    It accounts for sampling and noise.
    """
    from studies.own_data.estimate_requests import answer_mean

    options = _group(file, epsilon, release, na, plot, ledger, budget, yes, rehearsal, json)
    answer_mean(options, column, limits, bounds_epsilon, unit)


def proportion(
    file: File = None,
    where: Where = None,
    epsilon: Epsilon = None,
    levels: Levels = None,
    release: PrintedRelease = None,
    na: MissingTexts = None,
    plot: Plot = None,
    ledger: Ledger = None,
    budget: Budget = None,
    yes: Yes = False,
    rehearsal: RehearsalSeed = None,
    json: Json = False,
) -> None:
    """Release the probability of a condition in a population.

    Its rows are a sample from the population. The interval is central, and contains neither 0 nor 1, even if no row or
    every row satisfies the condition.
    """
    from studies.own_data.estimate_requests import answer_proportion

    answer_proportion(_group(file, epsilon, release, na, plot, ledger, budget, yes, rehearsal, json), where, levels)


def count(
    file: File = None,
    where: Where = None,
    epsilon: Epsilon = None,
    levels: Levels = None,
    release: PrintedRelease = None,
    na: MissingTexts = None,
    plot: Plot = None,
    ledger: Ledger = None,
    budget: Budget = None,
    yes: Yes = False,
    rehearsal: RehearsalSeed = None,
    json: Json = False,
) -> None:
    """Release the number of rows that satisfy a condition.

    The number of all rows is public.
    """
    from studies.own_data.estimate_requests import answer_count

    answer_count(_group(file, epsilon, release, na, plot, ledger, budget, yes, rehearsal, json), where, levels)


def histogram(
    file: File = None,
    column: Column = None,
    epsilon: Epsilon = None,
    categories: Annotated[
        str | None, option("A,B", f"Public categories; all other values are released as one category. {EQUALS}")
    ] = None,
    edges: Annotated[str | None, option("E1:E2", "Public edges of the bins of numbers, instead.")] = None,
    limits: Annotated[
        str | None, option("--range", "LOW:HIGH", "Public range of numbers, divided into 10 bins, instead.")
    ] = None,
    release: PrintedRelease = None,
    na: MissingTexts = None,
    plot: Plot = None,
    ledger: Ledger = None,
    budget: Budget = None,
    yes: Yes = False,
    rehearsal: RehearsalSeed = None,
    json: Json = False,
) -> None:
    """Release the shares of categories, or of bins of numbers.

    Intervals are central, and contain neither 0 nor 1, even if a category has no row or every row.
    """
    from studies.own_data.estimate_requests import answer_histogram

    options = _group(file, epsilon, release, na, plot, ledger, budget, yes, rehearsal, json)
    answer_histogram(options, column, categories, edges, limits)


def _group(
    file: str | None,
    epsilon: float | None,
    release: Path | None,
    na: list[str] | None,
    plot: Path | None,
    ledger: str | None,
    budget: str | None,
    yes: bool,
    rehearsal: int | None,
    json: bool,
) -> "EstimateOptions":
    """Return the options that all commands of this module have."""
    from studies.own_data.estimate_requests import EstimateOptions
    from studies.own_data.option_groups import BudgetOptions, OutputOptions

    return EstimateOptions(
        file, epsilon, release, na, BudgetOptions(ledger, budget, yes, rehearsal), OutputOptions(json=json, plot=plot)
    )
