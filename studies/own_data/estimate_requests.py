"""Requests of the commands ``mean``, ``proportion``, ``histogram`` and ``count``, and the way to their answers."""

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

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
from studies.own_data.private_table import parse_markers, read_column, show_names
from studies.own_data.spending import Account

_BINS = 10  # number of bins of a range


def answer_mean(
    file: str,
    column: str,
    epsilon: float,
    limits: str | None,
    bounds_epsilon: float | None,
    unit: str,
    na: list[str] | None,
    **shared: Any,
) -> None:
    """Release and print the mean of a column; further options are those of `_answer`."""
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
    records = read_column(file, column, markers=parse_markers(na))
    estimate = partial(estimate_mean, records, column, unit, bounds)
    _answer(file, f"mean of {column}", epsilon, estimate, bounds_epsilon=bounds_epsilon, **shared)


def answer_proportion(file: str, where: str, epsilon: float, na: list[str] | None, **shared: Any) -> None:
    """Release and print the probability of a condition."""
    holds, rule = _read_condition(file, where, na)
    _answer(file, f"proportion of {where}", epsilon, partial(estimate_proportion, holds, where), rule=rule, **shared)


def answer_count(file: str, where: str, epsilon: float, na: list[str] | None, **shared: Any) -> None:
    """Release and print the number of rows that satisfy a condition."""
    if not where:
        raise BadInputError(
            "where must be given, got none: the number of all rows is public under replacement of one row, and needs "
            "no release; pass a condition, such as --where 'age>=65', on a column of the file: "
            f"{show_names(file)}"
        )
    holds, rule = _read_condition(file, where, na)
    _answer(file, f"count of {where}", epsilon, partial(estimate_count, holds, where), rule=rule, **shared)


def answer_histogram(
    file: str,
    column: str,
    epsilon: float,
    categories: str | None,
    edges: str | None,
    limits: str | None,
    na: list[str] | None,
    **shared: Any,
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
    codes = read_column(file, column, encode, parse_markers(na)).astype(np.int64)
    _answer(file, f"histogram of {column}", epsilon, partial(estimate_histogram, codes, labels, column), **shared)


def _read_condition(file: str, where: str, na: list[str] | None) -> tuple[np.ndarray, str]:
    """Return the rows that satisfy a condition, shape (n,), and the rule that decides about each cell."""
    condition = conditions.Condition.parse(where, file)
    holds = read_column(file, condition.column, condition.encode, parse_markers(na)) > 0.0
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
    file: str,
    quantity: str,
    epsilon: float,
    estimate: Callable[[Spending], Estimate],
    *,
    bounds_epsilon: float | None = None,
    rule: str = "",
    plot: Path | None,
    json: bool,
    ledger: str | None,
    budget: str | None,
    yes: bool,
    rehearsal: int | None,
) -> None:
    """Ask, enter the release in the ledger, print the estimate, and draw it; a rule states which cells are counted."""
    require_file("plot", plot, ".svg", ".png", kept=(file, ledger))
    account = Account.open(ledger, budget, yes, rehearsal)
    name = f"{quantity} from {file}"
    spending = Spending(epsilon, rehearsal, name, account.ledger, bounds_epsilon)
    account.check(*map(Guarantee, spending.losses))
    account.confirm(name, Guarantee(spending.total), f"{rule}\n" if rule else "")
    answer = estimate(spending)
    answer.show(account, rule, plot, json)
