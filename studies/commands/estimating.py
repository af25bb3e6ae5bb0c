"""The commands ``mean``, ``proportion``, ``histogram`` and ``count``: releases from a user's table."""

from typing import Annotated, Any

from studies.commands.options import RELEASE, argument, option, takes

File = Annotated[str, argument("FILE", "Private records, one per row: .csv, .csv.gz, .parquet or .zarr.")]
Epsilon = Annotated[float, option("Privacy loss of the release, in nats.")]
Column = Annotated[str, option("Column of the values.")]
EQUALS = (
    "A value in plain decimal form, such as 20 or -0.5, equals the cells in plain decimal form with exactly its value; "
    "another value, and one in quotes, equals the cells with its text."
)
Where = Annotated[
    str,
    option(
        "CONDITION",
        f"COLUMN=VALUE, or with !=, <, <=, > or >=, in quotes. {EQUALS} < and > compare exact decimal numbers.",
    ),
]


@takes("na", "plot", *RELEASE)
def mean(
    file: File,
    column: Column,
    epsilon: Epsilon,
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
    **shared: Any,
) -> None:
    """Release the mean of a column, with an interval that accounts for sampling and noise."""
    from studies.own_data.estimate_requests import answer_mean

    answer_mean(file, column, epsilon, limits, bounds_epsilon, unit, **shared)


@takes("na", "plot", *RELEASE)
def proportion(file: File, where: Where, epsilon: Epsilon, **shared: Any) -> None:
    """Release the probability of a condition in the population from which the rows were drawn.

    The interval is central, and contains neither 0 nor 1, even if no row or every row satisfies the condition.
    """
    from studies.own_data.estimate_requests import answer_proportion

    answer_proportion(file, where, epsilon, **shared)


@takes("na", "plot", *RELEASE)
def count(file: File, epsilon: Epsilon, where: Where = "", **shared: Any) -> None:
    """Release the number of rows that satisfy a condition; the number of all rows is public."""
    from studies.own_data.estimate_requests import answer_count

    answer_count(file, where, epsilon, **shared)


@takes("na", "plot", *RELEASE)
def histogram(
    file: File,
    column: Column,
    epsilon: Epsilon,
    categories: Annotated[
        str | None, option("A,B", f"Public categories; all other values are released as one category. {EQUALS}")
    ] = None,
    edges: Annotated[str | None, option("E1:E2", "Public edges of the bins of numbers, instead.")] = None,
    limits: Annotated[
        str | None, option("--range", "LOW:HIGH", "Public range of numbers, divided into 10 bins, instead.")
    ] = None,
    **shared: Any,
) -> None:
    """Release the shares of the categories of a column, or of bins of its numbers.

    Intervals are central, and contain neither 0 nor 1, even if a category has no row or every row.
    """
    from studies.own_data.estimate_requests import answer_histogram

    answer_histogram(file, column, epsilon, categories, edges, limits, **shared)
