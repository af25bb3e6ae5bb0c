"""Requests of the commands ``mean``, ``proportion``, ``histogram`` and ``count``, and the way to their answers."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial

import numpy as np

from mechanisms.core.privacy import Guarantee
from pipeline.errors import BadInputError
from studies.option_texts import find_numbers
from studies.output import require_file
from studies.own_data import conditions
from studies.own_data.estimate_output import Estimate
from studies.own_data.estimates import (
    Spending,
    estimate_count,
    estimate_histogram,
    estimate_mean,
    estimate_proportion,
)
from studies.own_data.option_groups import BudgetOptions, OutputOptions
from studies.own_data.private_table import parse_markers, read_column, show_names
from studies.own_data.spending import Account

_BINS = 10  # number of bins of a range


@dataclass(frozen=True)
class EstimateOptions:
    """Options of all commands of this module, by the names of their arguments; see their help."""

    file: str
    epsilon: float
    na: list[str] | None
    budget: BudgetOptions
    output: OutputOptions


def answer_mean(
    options: EstimateOptions, column: str, limits: str | None, bounds_epsilon: float | None, unit: str
) -> None:
    """Release and print the mean of a column."""
    epsilon = options.epsilon
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
    bounds = None if limits == "auto" else _parse_range(limits)
    records = read_column(options.file, column, markers=parse_markers(options.na))
    estimate = partial(estimate_mean, records, column, unit, bounds)
    _answer(options, f"mean of {column}", estimate, bounds_epsilon=bounds_epsilon)


def answer_proportion(options: EstimateOptions, where: str) -> None:
    """Release and print the probability of a condition."""
    holds, rule = _read_condition(options, where)
    _answer(options, f"proportion of {where}", partial(estimate_proportion, holds, where), rule=rule)


def answer_count(options: EstimateOptions, where: str) -> None:
    """Release and print the number of rows that satisfy a condition."""
    if not where:
        raise BadInputError(
            "where must be given, got none: the number of all rows is public under replacement of one row, and needs "
            "no release; pass a condition, such as --where 'age>=65', on a column of the file: "
            f"{show_names(options.file)}"
        )
    holds, rule = _read_condition(options, where)
    _answer(options, f"count of {where}", partial(estimate_count, holds, where), rule=rule)


def answer_histogram(
    options: EstimateOptions, column: str, categories: str | None, edges: str | None, limits: str | None
) -> None:
    """Release and print the shares of the categories of a column, or of bins of its numbers."""
    divisions = {"--categories": categories, "--edges": edges, "--range": limits}
    stated = [name for name, text in divisions.items() if text is not None]
    if len(stated) != 1:
        raise BadInputError(
            f"one of --categories, --edges and --range must be given, got {' and '.join(stated) or 'none'}; choose the "
            f"public categories of {column}, edges of bins or a range without looking at the records"
        )
    labels: Sequence[str]
    if categories is not None:
        literals = conditions.parse_categories("categories", categories)
        labels = conditions.label_categories(literals)
        encode = partial(conditions.encode_categories, literals=literals)
    else:
        bins = conditions.parse_edges(edges) if edges is not None else _divide_range(limits or "")
        labels = conditions.label_bins(bins)
        encode = partial(conditions.encode_bins, edges=bins)
    codes = read_column(options.file, column, encode, parse_markers(options.na)).astype(np.int64)
    _answer(options, f"histogram of {column}", partial(estimate_histogram, codes, labels, column))


def _read_condition(options: EstimateOptions, where: str) -> tuple[np.ndarray, str]:
    """Return the rows that satisfy a condition, shape (n,), and the rule that decides about each cell."""
    condition = conditions.Condition.parse(where, options.file)
    holds = read_column(options.file, condition.column, condition.encode, parse_markers(options.na)) > 0.0
    return holds, f"condition: {condition}; whether such cells exist is not checked, which would need a release"


def _divide_range(text: str) -> tuple[Decimal, ...]:
    """Return the edges of the bins of a public range."""
    _parse_range(text)
    low, high = conditions.parse_edges(text)
    return conditions.divide_range(low, high, _BINS)


def _parse_range(text: str) -> tuple[float, float]:
    """Return the ends of a public range."""
    ends = find_numbers(text)
    if len(ends) != 2 or not 0.0 < ends[1] - ends[0] < math.inf:
        raise BadInputError(
            "range must be LOW:HIGH with LOW < HIGH and a finite width, in numbers such as 1000 or -0.5, got "
            f"{text!r}; e.g. 0:200000"
        )
    return ends


def _answer(
    options: EstimateOptions,
    quantity: str,
    estimate: Callable[[Spending], Estimate],
    *,
    bounds_epsilon: float | None = None,
    rule: str = "",
) -> None:
    """Ask, enter the release in the ledger, print the estimate, and draw it; a rule states which cells are counted."""
    plot = options.output.plot
    require_file("plot", plot, ".svg", ".png", kept=(options.file, options.budget.ledger))
    account = Account.open(options.budget)
    name = f"{quantity} from {options.file}"
    spending = Spending(options.epsilon, account.seed, name, account.ledger, bounds_epsilon)
    account.check(*map(Guarantee, spending.losses))
    account.confirm(name, Guarantee(spending.total), f"{rule}\n" if rule else "")
    answer = estimate(spending)
    answer.show(account, rule, plot, options.output.json)
