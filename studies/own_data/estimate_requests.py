"""Requests of the commands ``mean``, ``proportion``, ``histogram`` and ``count``, and the way to their answers."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path

import numpy as np

from mechanisms.core.privacy import Guarantee
from mechanisms.inference.private_posterior import DrawnRelease
from pipeline.errors import BadInputError
from pipeline.tables.cells import Literal
from pipeline.tables.formats import Encoder
from studies.option_texts import find_numbers
from studies.output import require_file
from studies.own_data import conditions
from studies.own_data.estimate_output import Question, StoredRelease, load_release
from studies.own_data.estimates import (
    Spending,
    estimate,
    infer_again,
    release_histogram,
    release_mean,
    release_number,
)
from studies.own_data.option_groups import BudgetOptions, OutputOptions
from studies.own_data.output import keeping_release, refuse_with_release
from studies.own_data.private_table import parse_markers, read_column, show_names
from studies.own_data.spending import Account, require_losses

_BINS = 10  # number of bins of a range


@dataclass(frozen=True)
class EstimateOptions:
    """Options of all commands of this module, by the names of their arguments; see their help."""

    file: str | None
    epsilon: float | None
    release: Path | None
    na: list[str] | None
    budget: BudgetOptions
    output: OutputOptions


@dataclass(frozen=True)
class PrivateFile:
    """File with private records, and the privacy loss of their release; ``--release`` needs none."""

    path: str
    epsilon: float
    markers: Sequence[Literal]  # of missing cells

    def read(self, column: str, encoder: Encoder | None = None) -> np.ndarray:
        """Return a column of numbers, or of text as mapped to numbers by an encoder, shape (n,)."""
        return read_column(self.path, column, encoder, self.markers)


def answer_mean(
    options: EstimateOptions, column: str | None, limits: str | None, bounds_epsilon: float | None, unit: str
) -> None:
    """Release and print the mean of a column, or infer it from a printed release."""
    asked = {"--column": column, "--range": limits, "--bounds-epsilon": bounds_epsilon, "--unit": unit or None}
    if _infer_again(options, "mean", **asked):
        return
    file, column = _require(options, "mean", column=column)
    epsilon = file.epsilon
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
    require_losses(epsilon, bounds_epsilon)
    bounds = None if limits == "auto" else _parse_range(limits)
    question = Question("mean", column, unit, search=bounds_epsilon)
    _answer(options, file, question, partial(file.read, column), partial(release_mean, bounds=bounds))


def answer_proportion(options: EstimateOptions, where: str | None, levels: str | None) -> None:
    """Release and print the probability of a condition, or infer it from a printed release."""
    _answer_condition(options, "proportion", where, levels)


def answer_count(options: EstimateOptions, where: str | None, levels: str | None) -> None:
    """Release and print the number of rows that satisfy a condition, or infer it from a printed release."""
    if options.release is None and options.file is not None and not where:
        raise BadInputError(
            "where must be given, got none: the number of all rows is public under replacement of one row, and needs "
            "no release; pass a condition, such as --where 'age>=65', on a column of the file: "
            f"{show_names(options.file)}"
        )
    _answer_condition(options, "count", where, levels)


def answer_histogram(
    options: EstimateOptions, column: str | None, categories: str | None, edges: str | None, limits: str | None
) -> None:
    """Release and print the shares of categories of a column, or of bins, or infer them from a printed release."""
    divisions = {"--categories": categories, "--edges": edges, "--range": limits}
    if _infer_again(options, "histogram", **{"--column": column}, **divisions):
        return
    file, column = _require(options, "histogram", column=column)
    stated = [name for name, text in divisions.items() if text is not None]
    if len(stated) != 1:
        raise BadInputError(
            f"one of --categories, --edges and --range must be given, got {' and '.join(stated) or 'none'}; choose the "
            f"public categories of {column}, edges of bins or a range without looking at the records"
        )
    labels: Sequence[str]
    rule = ""
    if categories is not None:
        literals = conditions.parse_categories("categories", categories)
        labels = conditions.label_categories(literals)
        encode = partial(conditions.encode_categories, literals=literals)
        rule = (
            f"categories: all other cells count as {conditions.OTHER}; whether cells of a category exist is not "
            "checked, which would need a release"
        )
    else:
        bins = conditions.parse_edges(edges) if edges is not None else _divide_range(limits or "")
        labels = conditions.label_bins(bins)
        encode = partial(conditions.encode_bins, edges=bins)
    question = Question("histogram", column, labels=tuple(labels), rule=rule)
    _answer(options, file, question, lambda: file.read(column, encode).astype(np.int64), release_histogram)


def _answer_condition(options: EstimateOptions, command: str, where: str | None, levels: str | None) -> None:
    if _infer_again(options, command, **{"--where": where or None, "--levels": levels}):
        return
    file, where = _require(options, command, where=where or None)
    condition = conditions.Condition.parse(where, file.path)
    if levels is not None:
        condition.require_level(conditions.parse_categories("levels", levels))
    rule = f"condition: {condition}; whether such cells exist is not checked, which would need a release"
    if levels is not None:
        rule = f"condition: {condition}; public levels: {levels}"
    elif not condition.is_ordered:
        rule += "; --levels A,B checks it against public ones"
    question = Question(command, where, rule=rule)
    _answer(options, file, question, lambda: file.read(condition.column, condition.encode) > 0.0, release_number)


def _require(options: EstimateOptions, command: str, **subject: str | None) -> tuple[PrivateFile, str]:
    """Return the file and the column or the condition of a release, which all must be given."""
    ((name, text),) = subject.items()
    required = {"FILE": options.file, f"--{name}": text, "--epsilon": options.epsilon}
    absent = [option for option, value in required.items() if value is None]
    if options.file is None or text is None or options.epsilon is None:
        raise BadInputError(
            f"{', '.join(required)} must be given, or --release alone, got no {', '.join(absent)}; see 'dpstudies "
            f"{command} --help'"
        )
    require_losses(options.epsilon)
    return PrivateFile(options.file, options.epsilon, parse_markers(options.na)), text


def _infer_again(options: EstimateOptions, command: str, **asked: object) -> bool:
    """Print the estimate from the release of ``--release``; return False without this option."""
    release, budget, output = options.release, options.budget, options.output
    if release is None:
        return False
    spent = {"--ledger": budget.ledger, "--budget": budget.budget, "--seed": budget.rehearsal}
    refuse_with_release(
        release, **{"FILE": options.file, "--epsilon": options.epsilon, "--na": options.na}, **asked, **spent
    )
    require_file("plot", output.plot, ".svg", ".png", kept=(release,))
    stored = load_release(release, command)
    stored.show(output.json)
    infer_again(stored).show((), output.plot)
    return True


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
    file: PrivateFile,
    question: Question,
    read: Callable[[], np.ndarray],
    release: Callable[[np.ndarray, Question, Spending], DrawnRelease],
) -> None:
    """Check public options, read the records, ask, enter the release in the ledger, and print it and the estimate."""
    plot = options.output.plot
    require_file("plot", plot, ".svg", ".png", kept=(file.path, options.budget.ledger))
    account = Account.open(options.budget)
    name = f"{question.command} of {question.subject} from {file.path}"
    spending = Spending(file.epsilon, account.seed, name, account.ledger, question.search)
    account.check(*map(Guarantee, spending.losses))
    records = read()
    account.confirm(name, Guarantee(spending.total), f"{question.rule}\n" if question.rule else "")
    drawn, as_json = release(records, question, spending), options.output.json
    stored = StoredRelease(question, drawn.release, drawn.guarantee)
    stored.show(as_json)
    with keeping_release(stored.to_dict(), as_json):
        answer = estimate(question, drawn.infer())
    answer.show(account.describe_rest(), plot)
