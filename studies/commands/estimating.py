"""The commands ``mean``, ``proportion``, ``histogram`` and ``count``: releases from a user's CSV file."""

import sys
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.declare.factors import require_integer
from pipeline.errors import BadInputError
from studies.commands.shared import make_table, parse_numbers, print_table, say, writing

if TYPE_CHECKING:
    from studies.estimates import Estimate, Spending

File = Annotated[str, typer.Argument(metavar="FILE", help="CSV file of private records, one per row; may be .gz.")]
Epsilon = Annotated[float, typer.Option("--epsilon", help="Privacy loss of the release, in nats.")]
Column = Annotated[str, typer.Option("--column", help="Column of the values.")]
Where = Annotated[
    str, typer.Option("--where", metavar="CONDITION", help="COLUMN=VALUE, or with !=, <, <=, > or >=, in quotes.")
]
Plot = Annotated[Path | None, typer.Option("--plot", help="File for a figure of the posterior, .svg or .png.")]
Ledger = Annotated[
    str | None,
    typer.Option("--ledger", metavar="FILE", help="File with all releases from these records; refuses to exceed it."),
]
Budget = Annotated[
    str | None, typer.Option("--budget", metavar="E", help="Largest total epsilon of a new ledger, in nats.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Release without asking.")]
Seed = Annotated[int | None, typer.Option("--seed", help="Rehearse with this seed: not private, and nothing is spent.")]


def mean(
    file: File,
    column: Column,
    epsilon: Epsilon,
    limits: Annotated[
        str | None,
        typer.Option("--range", metavar="LOW:HIGH", help="Public range of the values, not from the records."),
    ] = None,
    unit: Annotated[str, typer.Option("--unit", help="Unit of the values, such as EUR, for the output.")] = "",
    plot: Plot = None,
    ledger: Ledger = None,
    budget: Budget = None,
    yes: Yes = False,
    seed: Seed = None,
) -> None:
    """Release the mean of a column, with an interval that accounts for sampling and noise."""
    from studies.data.private_csv import read_numbers
    from studies.estimates import estimate_mean

    if limits is None:
        raise BadInputError(
            "range must be given, got none; choose it without looking at the records, as the smallest and largest "
            "value that are possible or of interest, from rules, units or published tables: values outside count as "
            "the nearest end, and the noise is proportional to the width"
        )
    ends = parse_numbers("range", "vector", [limits])[0]
    if len(ends) != 2 or not ends[0] < ends[1]:
        raise BadInputError(f"range must be LOW:HIGH with LOW < HIGH, got {limits}; e.g. 0:200000")
    records = read_numbers(file, column)
    what = f"mean of {column} from {file}"
    _answer(what, lambda s: estimate_mean(records, column, unit, ends, s), epsilon, seed, ledger, budget, yes, plot)


def proportion(
    file: File,
    where: Where,
    epsilon: Epsilon,
    plot: Plot = None,
    ledger: Ledger = None,
    budget: Budget = None,
    yes: Yes = False,
    seed: Seed = None,
) -> None:
    """Release the probability of a condition in the population from which the rows were drawn."""
    from studies.data.private_csv import parse_condition
    from studies.estimates import estimate_proportion

    condition = parse_condition(where)
    holds, what = condition.holds(file), f"proportion of {where} from {file}"
    _answer(what, lambda s: estimate_proportion(holds, where, s), epsilon, seed, ledger, budget, yes, plot)


def count(
    file: File,
    epsilon: Epsilon,
    where: Where = "",
    plot: Plot = None,
    ledger: Ledger = None,
    budget: Budget = None,
    yes: Yes = False,
    seed: Seed = None,
) -> None:
    """Release the number of rows that satisfy a condition; the number of all rows is public."""
    from studies.data.private_csv import parse_condition
    from studies.estimates import estimate_count

    if not where:
        raise BadInputError(
            "where must be given, got none: the number of all rows is public under replacement of one row, and needs "
            "no release; pass a condition, such as --where 'age>=65'"
        )
    condition = parse_condition(where)
    holds, what = condition.holds(file), f"count of {where} from {file}"
    _answer(what, lambda s: estimate_count(holds, where, s), epsilon, seed, ledger, budget, yes, plot)


def histogram(
    file: File,
    column: Column,
    epsilon: Epsilon,
    categories: Annotated[
        str | None,
        typer.Option(
            "--categories", metavar="A,B", help="Public categories; all other values are released as one category."
        ),
    ] = None,
    edges: Annotated[
        str | None, typer.Option("--edges", metavar="E1:E2", help="Public edges of the bins of numbers, instead.")
    ] = None,
    plot: Plot = None,
    ledger: Ledger = None,
    budget: Budget = None,
    yes: Yes = False,
    seed: Seed = None,
) -> None:
    """Release the shares of the categories of a column, or of bins of its numbers."""
    from studies.data.private_csv import read_numbers, read_words
    from studies.estimates import encode_bins, encode_categories, estimate_histogram

    if (categories is None) == (edges is None):
        got = "neither" if categories is None else "both"
        raise BadInputError(
            f"either --categories or --edges must be given, got {got}; list the public categories of {column}, without "
            "looking at the records, or the edges of bins"
        )
    if categories is not None:
        codes, labels = encode_categories(read_words(file, column), [name.strip() for name in categories.split(",")])
    else:
        codes, labels = encode_bins(read_numbers(file, column), parse_numbers("edges", "vector", [edges or ""])[0])
    what = f"histogram of {column} from {file}"
    _answer(what, lambda s: estimate_histogram(codes, labels, column, s), epsilon, seed, ledger, budget, yes, plot)


def _answer(
    what: str,
    estimate: Callable[["Spending"], "Estimate"],
    epsilon: float,
    seed: int | None,
    ledger: str | None,
    budget: str | None,
    yes: bool,
    plot: Path | None,
) -> None:
    """Ask, enter the release in the ledger, print the estimate, and draw it."""
    from studies.data.ledger_file import LedgerFile
    from studies.estimates import Spending
    from studies.figures.conversion import convert

    if seed is not None:
        require_integer("--seed", seed, 0, 2**63 - 1)
    if plot is not None and (plot.suffix not in (".svg", ".png") or not plot.parent.is_dir()):
        raise BadInputError(f"plot must be a .svg or .png file in an existing folder, got {plot}")
    if budget is not None and ledger is None:
        raise BadInputError(f"--ledger must be given with --budget, got a budget of {budget} alone; name a file")
    spending = Spending(epsilon, seed)
    book = None if ledger is None else LedgerFile(ledger, _parse_budget(budget))
    if book is not None and seed is None:
        book.check(epsilon)
        spending = replace(spending, enter=lambda: book.spend(epsilon, what))
    if seed is None and not yes:
        _ask(f"Release the {what}, with a privacy loss of {epsilon:g}?")
    found = estimate(spending)
    table = make_table(found.title, "estimate", "95 % from", "to")
    for row in found.formatted():
        table.add_row(*row)
    print_table(table)
    for line in found.lines():
        say(line)
    if seed is None:
        say(
            "ledger: none; losses of all releases from these records add up"
            if book is None
            else f"ledger: {book.path}, {float(book.check()):g} of the budget left"
        )
    if plot is not None:
        with writing(plot, "the values above are valid"):
            plot.write_bytes(convert("svg" if plot.suffix == ".svg" else "png", found.specify()))
        say(f"plot: {plot}")


def _parse_budget(given: str | None) -> Decimal | None:
    try:
        return None if given is None else Decimal(given)
    except InvalidOperation:
        raise BadInputError(f"budget must be a number > 0, got {given!r}; pass the total epsilon, such as 3") from None


def _ask(question: str) -> None:
    """Ask for a confirmation on the terminal; raise BadInputError if there is none, or the answer is no."""
    if not sys.stdin.isatty():
        raise BadInputError(
            "a release must be confirmed, but there is no terminal to ask; pass --yes, or --seed to rehearse"
        )
    if not typer.confirm(question, err=True):
        raise BadInputError("the release was not confirmed; nothing was released")
