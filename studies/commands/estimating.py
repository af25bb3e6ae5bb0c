"""The commands ``mean``, ``proportion``, ``histogram`` and ``count``: releases from a user's table."""

import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from pipeline.errors import BadInputError
from studies.commands.options import argument, find_numbers, option, takes
from studies.commands.output import print_table, require_file, say
from studies.commands.spending import RELEASE, open_account, write_plot

if TYPE_CHECKING:
    from studies.estimates import Estimate, Spending

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
_BINS = 10  # number of bins of a range


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
    **given: Any,
) -> None:
    """Release the mean of a column, with an interval that accounts for sampling and noise."""
    from studies.estimates import estimate_mean
    from studies.own_data.private_table import parse_markers, read_column

    if limits is None:
        raise BadInputError(
            "range must be given, got none; choose it without looking at the records, as the smallest and largest "
            "value that are possible or of interest, from rules, units or published tables: values outside count as "
            "the nearest end, and the noise is proportional to the width; or pass auto"
        )
    if limits == "auto" and bounds_epsilon is None:
        raise BadInputError(f"--range auto needs --bounds-epsilon E, got none; e.g. --bounds-epsilon {epsilon / 5:g}")
    if limits != "auto" and bounds_epsilon is not None:
        raise BadInputError(
            f"--bounds-epsilon must be given with --range auto only, got {bounds_epsilon} with --range {limits}; e.g. "
            f"--range auto --bounds-epsilon {epsilon / 5:g}"
        )
    ends = None if limits == "auto" else _parse_range(limits)
    records = read_column(file, column, markers=parse_markers(given["na"]))
    what = f"mean of {column} from {file}"
    _answer(file, what, lambda s: estimate_mean(records, column, unit, ends, s), epsilon, given, bounds_epsilon)


@takes("na", "plot", *RELEASE)
def proportion(file: File, where: Where, epsilon: Epsilon, **given: Any) -> None:
    """Release the probability of a condition in the population from which the rows were drawn."""
    from studies.estimates import estimate_proportion

    holds, rule = _read_condition(file, where, given)
    what = f"proportion of {where} from {file}"
    _answer(file, what, lambda s: estimate_proportion(holds, where, s), epsilon, given, rule=rule)


@takes("na", "plot", *RELEASE)
def count(file: File, epsilon: Epsilon, where: Where = "", **given: Any) -> None:
    """Release the number of rows that satisfy a condition; the number of all rows is public."""
    from studies.estimates import estimate_count
    from studies.own_data.private_table import show_names

    if not where:
        raise BadInputError(
            "where must be given, got none: the number of all rows is public under replacement of one row, and needs "
            "no release; pass a condition, such as --where 'age>=65', on a column of the file: "
            f"{show_names(file)}"
        )
    holds, rule = _read_condition(file, where, given)
    _answer(file, f"count of {where} from {file}", lambda s: estimate_count(holds, where, s), epsilon, given, rule=rule)


def _read_condition(file: str, where: str, given: Mapping[str, Any]) -> tuple[np.ndarray, str]:
    """Return the rows that satisfy a condition, shape (n,), and the rule that decides about each cell."""
    from studies.own_data.conditions import Condition
    from studies.own_data.private_table import parse_markers, read_column

    condition = Condition.parse(where, file)
    holds = read_column(file, condition.column, condition.encode, parse_markers(given["na"])) > 0.0
    return holds, f"condition: {condition}; whether such cells exist is not checked, which would need a release"


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
    **given: Any,
) -> None:
    """Release the shares of the categories of a column, or of bins of its numbers."""
    from studies.estimates import estimate_histogram
    from studies.own_data import conditions
    from studies.own_data.private_table import parse_markers, read_column

    chosen = {"--categories": categories, "--edges": edges, "--range": limits}
    named = [name for name, value in chosen.items() if value is not None]
    if len(named) != 1:
        raise BadInputError(
            f"one of --categories, --edges and --range must be given, got {' and '.join(named) or 'none'}; choose the "
            f"public categories of {column}, edges of bins or a range without looking at the records"
        )
    if categories is not None:
        literals = conditions.parse_categories("categories", categories)
        labels = conditions.label_categories(literals)
        encode = partial(conditions.encode_categories, literals=literals)
    else:
        bins = conditions.parse_edges(edges) if edges is not None else _divide_range(limits or "")
        labels = conditions.label_bins(bins)
        encode = partial(conditions.encode_bins, edges=bins)
    codes = read_column(file, column, encode, parse_markers(given["na"])).astype(np.int64)
    what = f"histogram of {column} from {file}"
    _answer(file, what, lambda s: estimate_histogram(codes, labels, column, s), epsilon, given)


def _divide_range(given: str) -> tuple[Decimal, ...]:
    """Return the edges of the bins of a public range."""
    from studies.own_data import conditions

    _parse_range(given)
    low, high = conditions.parse_edges(given)
    return conditions.divide_range(low, high, _BINS)


def _parse_range(given: str) -> tuple[float, float]:
    """Return the ends of a public range."""
    ends = find_numbers(given)
    if len(ends) != 2 or not 0.0 < ends[1] - ends[0] < math.inf:
        raise BadInputError(
            "range must be LOW:HIGH with LOW < HIGH and a finite width, in numbers such as 1000 or -0.5, got "
            f"{given!r}; e.g. 0:200000"
        )
    return ends


def _answer(
    file: str,
    what: str,
    estimate: Callable[["Spending"], "Estimate"],
    epsilon: float,
    given: Mapping[str, Any],
    bounds_epsilon: float | None = None,
    rule: str = "",
) -> None:
    """Ask, enter the release in the ledger, print the estimate, and draw it; a rule states which cells are counted."""
    from mechanisms.core.privacy import Guarantee
    from studies.estimates import Spending

    require_file("plot", given["plot"], ".svg", ".png", kept=(file, given["ledger"]))
    account = open_account(given)
    spending = Spending(epsilon, given["rehearsal"], what, account.ledger, bounds_epsilon)
    account.check(*map(Guarantee, spending.losses))
    account.confirm(what, f"{spending.total:g}", f"{rule}\n" if rule else "")
    found = estimate(spending)
    print_table((found.title, "estimate", "95 % from", "to"), found.formatted())
    for line in (*found.lines(), *([rule] if rule else []), *account.lines()):
        say(line)
    if given["plot"] is not None:
        write_plot(given["plot"], found.specify())
