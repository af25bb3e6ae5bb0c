"""Private linear regression on a user's table (``dpstudies regress``): request, forecast, release and posterior.

The rows are read once, in blocks, and reduced to integer sums (`mechanisms.regression.gram_release.gram_sums`), which
do not depend on the blocks. A column with public levels is represented by one indicator per level but the first, the
reference. Values that are not declared count as the reference, unless ``other`` is one of the levels, whose indicator,
``COLUMN=other``, is that of all of them.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from mechanisms.core.privacy import Guarantee
from mechanisms.core.privacy_parameters import describe_large_delta
from mechanisms.regression.gram_release import GramNoise, GramRelease, PublicBox, calibrated_gram_noise, gram_sums
from mechanisms.regression.gram_samplers import GRAM_METHODS
from mechanisms.regression.private_regression import regression_from_release, release_sums, require_gram_method
from mechanisms.regression.width_forecast import Guess, WidthForecast, require_support
from mechanisms.release import CheckedRelease, Rehearsal, require_opendp
from pipeline.clusters.profiles import Profile, load_profile
from pipeline.errors import BadInputError, as_bad_input
from pipeline.tables import cells
from pipeline.tables.cells import NOT_PUBLIC, match_literals
from pipeline.tables.tables import TableRows, open_table, reduce_rows
from studies.option_texts import (
    format_level,
    parse_assignments,
    parse_column_numbers,
    parse_ranges,
    require_level,
    split_features,
)
from studies.output import require_file, say
from studies.own_data.conditions import OTHER, parse_categories
from studies.own_data.option_groups import BudgetOptions, ColumnOptions, OutputOptions
from studies.own_data.output import keeping_release, refuse_with_release
from studies.own_data.private_table import describe_missing, parse_markers
from studies.own_data.regression_output import RegressionAnswer, StoredRelease, load_release
from studies.own_data.spending import Account


@dataclass(frozen=True)
class RegressionOptions:
    """Options of the command ``regress``, by the names of its arguments; see its help."""

    columns: ColumnOptions
    epsilon: float | None
    delta: float | None
    ranges: list[str] | None
    levels: list[str] | None
    guesses: list[str] | None
    method: str
    missing: Literal["refuse", "drop"]
    level: float
    release: Path | None
    cluster: str | None
    budget: BudgetOptions
    output: OutputOptions


@dataclass(frozen=True)
class RegressionRequest:
    """Regression that is asked for; all of it is public, and `guesses` only change the forecast."""

    path: str
    target: str
    features: tuple[str, ...] | None  # by default all other columns
    epsilon: float
    delta: float | None
    ranges: Mapping[str, tuple[float, float]]
    levels: Mapping[str, str]  # lists of public levels, with ``other`` for all values that are not in them
    guesses: Mapping[str, Guess]
    markers: Sequence[cells.Literal]  # cells that are missing, in addition to empty ones
    method: str
    level: float
    drops_missing: bool

    @classmethod
    def parse(cls, options: RegressionOptions) -> "RegressionRequest":
        """Return the request of a command."""
        columns = options.columns
        if columns.table is None or columns.target is None or options.epsilon is None:
            raise BadInputError(
                "a table, --target and --epsilon must be given, or --release; see 'dpstudies regress --help'"
            )
        return cls(
            path=columns.table,
            target=columns.target,
            features=split_features(columns.features),
            epsilon=options.epsilon,
            delta=options.delta,
            ranges=parse_ranges(options.ranges),
            levels=parse_assignments(options.levels, "NAME=V1,V2", "list its values once, as {}=V1,V2"),
            guesses=_parse_guesses(options.guesses),
            markers=parse_markers(columns.na),
            method=options.method,
            level=options.level,
            drops_missing=options.missing == "drop",
        )

    @property
    def name(self) -> str:
        """Name of the release in the ledger and in the confirmation."""
        complete = (
            ", complete rows only; neighbours have the same rows with missing cells" if self.drops_missing else ""
        )
        return f"regression of {self.target} from {self.path}{complete}"


@dataclass(frozen=True, eq=False)
class Prepared:
    """Opened table, with everything that is public before a release."""

    table: TableRows
    n_rows: int  # of complete rows, if others are dropped
    levels: tuple[int, ...]  # number of indicators per column, 0 for columns of numbers
    references: Mapping[str, str]  # first level of each column with public levels
    box: PublicBox
    noise: GramNoise
    guarantee: Guarantee
    forecast: WidthForecast
    cluster: Profile


def answer_regression(options: RegressionOptions) -> None:
    """Release a regression and print its coefficients, or infer them from a printed release."""
    _refuse_with_release(options)
    require_level(options.level)
    account, table, output = Account.open(options.budget), options.columns.table, options.output
    kept = (table, options.release, options.budget.ledger)
    require_file("output", output.path, ".json", ".csv", ".nc", kept=kept)
    require_file("plot", output.plot, ".svg", ".png", kept=kept)
    with as_bad_input():
        require_gram_method(options.method)
    if options.release is None:
        stored, rng = _release_table(options, account)
    else:
        stored, rng = load_release(options.release), np.random.default_rng()
        stored.show(output.json)
    keeping = as_bad_input() if options.release else keeping_release(stored.to_dict(), output.json)
    with keeping, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        posterior = regression_from_release(rng, stored.release, stored.box, options.method)
    account_lines = [] if options.release else account.describe_rest()
    answer = RegressionAnswer(posterior, stored, options.level, [str(warning.message) for warning in caught])
    answer.show(account_lines, output.path, output.plot)


def _refuse_with_release(options: RegressionOptions) -> None:
    """Raise BadInputError if options of a table or of a budget are given with ``--release``."""
    columns, budget = options.columns, options.budget
    refuse_with_release(
        options.release,
        **{"TABLE": columns.table, "--target": columns.target, "--features": columns.features, "--na": columns.na},
        **{"--epsilon": options.epsilon, "--delta": options.delta, "--range": options.ranges},
        **{"--levels": options.levels, "--guess": options.guesses, "--cluster": options.cluster},
        **{"--missing": options.missing if options.missing == "drop" else None},
        **{"--ledger": budget.ledger, "--budget": budget.budget, "--seed": budget.rehearsal},
    )


def _release_table(options: RegressionOptions, account: Account) -> tuple[StoredRelease, np.random.Generator]:
    """Return the release of a table, after the forecast and the confirmation, and a generator of chains."""
    request = RegressionRequest.parse(options)
    prepared = prepare(request, load_profile(options.cluster), account.seed is not None)
    checked = account.check_release(prepared.guarantee, request.name)
    _show_forecast(request, prepared, account.seed is not None)
    account.confirm(request.name, prepared.guarantee)
    release, rng = release_regression(prepared, request.drops_missing, checked)
    stored = StoredRelease(release, prepared.box, request.drops_missing, prepared.references)
    stored.show(options.output.json)
    return stored, rng


def prepare(request: RegressionRequest, cluster: Profile, is_rehearsal: bool) -> Prepared:
    """Open a table, check the request and forecast the widths of intervals; nothing is spent.

    Nothing is read but, if rows with missing cells are dropped, the number of complete rows, which is public then.
    """
    path, target, delta = request.path, request.target, request.delta
    with as_bad_input():
        if not is_rehearsal:
            require_opendp()
        guarantee = Guarantee(request.epsilon, delta or 0.0)
        literals = {column: parse_categories(f"levels of {column}", text) for column, text in request.levels.items()}
        listed = {column: _without_other(several) for column, several in literals.items()}
        encoders = {column: partial(match_literals, literals=several) for column, several in listed.items()}
        table = open_table(path, target, request.features, encoders, request.markers)
        box = _find_box(path, target, table.columns, request.ranges, literals)
        noise = calibrated_gram_noise("laplace" if delta is None else "gaussian", box.p, request.epsilon, delta)
        indicators = set(box.names) - set(table.columns)
        if indicators and GRAM_METHODS[request.method].takes_ends_for_clamped:
            raise BadInputError(
                f"--method must not be {request.method} with --levels, whose indicators it takes for clamped values, "
                f"got levels of {', '.join(literals)}; use normal-covariates"
            )
        n = table.rows.shape[0]
        if request.drops_missing:
            n = reduce_rows([table.rows], _count_complete, _add, cluster)
        forecast = require_support(box, n, noise, request.guesses, indicators, request.level)
    n_levels = tuple(max(len(literals.get(name, ())) - 1, 0) for name in table.columns)
    references = {name: literals[name][0].text for name in table.columns if name in literals}
    return Prepared(table, n, n_levels, references, box, noise, guarantee, forecast, cluster)


def _show_forecast(request: RegressionRequest, prepared: Prepared, is_rehearsal: bool) -> None:
    """Print the guarantee and the expected widths, which are public."""
    verb = "a release would spend" if is_rehearsal else "the release spends"
    rows = "complete rows, which --missing drop makes public" if request.drops_missing else "rows"
    say(f"{prepared.n_rows:,} {rows}; {verb} {prepared.guarantee}, {prepared.noise.name} noise")
    if large := describe_large_delta(prepared.guarantee.delta, prepared.n_rows):
        say(f"warning: {large}")
    names, ends = ("intercept", *prepared.box.names[:-1]), (prepared.forecast.low, prepared.forecast.high)
    widths = [
        f"{name} {low:.3g}" + (f" to {high:.3g}" if f"{high:.3g}" != f"{low:.3g}" else "")
        for name, low, high in zip(names, *ends, strict=True)
    ]
    say(f"expected widths of {format_level(request.level)} intervals: {', '.join(widths)}")
    say(f"they assume {prepared.forecast.assumptions}")


def release_regression(
    prepared: Prepared, drops_missing: bool, release: CheckedRelease | Rehearsal
) -> tuple[GramRelease, np.random.Generator]:
    """Read the table once, and return the release and a generator for the chains.

    Privacy
    -------
    The guarantee of `release`, which is that of `prepared` (proved), under replacement of one row, with public n and
    columns. If rows with missing values are dropped, n is the number of the others, which is public, and neighbours
    have the same missing rows. A rehearsal has no guarantee.
    """
    box = prepared.box
    map_rows = partial(_reduce_block, box, prepared.levels)
    sums, n_missing, (row, column) = reduce_rows([prepared.table.rows], map_rows, _join, prepared.cluster)
    if n_missing and not drops_missing:
        remedy = ", or pass --missing drop, which makes the number of complete rows public"
        raise BadInputError(describe_missing(int(row), prepared.table.columns[column], remedy))
    if sums[0][0] < box.p + 2:
        raise BadInputError(
            f"the table must have at least {box.p + 2} complete rows, got fewer; add rows, or impute values "
            f"({NOT_PUBLIC})"
        )
    with as_bad_input():
        return release_sums(sums, prepared.noise, release)


def _find_box(
    path: str,
    target: str,
    columns: Sequence[str],
    ranges: Mapping[str, tuple[float, float]],
    levels: Mapping[str, Sequence[cells.Literal]],
) -> PublicBox:
    """Return the bounds of all columns of the regression, with indicators of levels."""
    if len(columns) < 2:
        raise BadInputError(f"features must be at least one column other than {target}, got none; see --features")
    unknown = sorted({*ranges, *levels} - set(columns))
    if unknown or target in levels or set(ranges) & set(levels):
        raise BadInputError(
            f"ranges must name numeric columns, and levels features, got {', '.join(unknown) or target}; name "
            "a column of --features once"
        )
    bounds: list[tuple[str, tuple[float, float]]] = []
    for column in columns:
        if column in levels:
            names = [literal.text for literal in levels[column]]
            if len(names) < 2 or OTHER in names[:-1]:
                raise BadInputError(
                    f"levels of {column} must be at least 2 different names, and 'other' the last, got "
                    f"{','.join(names)}; values that are not listed count as the first, the reference, or as 'other'"
                )
            bounds += [(f"{column}={name}", (0.0, 1.0)) for name in names[1:]]
        elif column in ranges:
            bounds.append((column, ranges[column]))
        else:
            raise BadInputError(
                f"{path}: a public range must be given for {column}, got none; bounds from the data would leak them: "
                f"choose a plausible range without looking, e.g. --range {column}=0:100 for a percentage; values "
                f"outside are clamped; if it is text, give its public levels, --levels {column}=A,B"
            )
    columns, pairs = zip(*bounds, strict=True)
    return PublicBox(columns, *zip(*pairs, strict=True))


def _parse_guesses(words: list[str] | None) -> dict[str, Guess]:
    """Return public guesses by column from words such as ``age=20:70`` or ``smoker=0.2``."""
    guesses = parse_column_numbers("guess", words, "COLUMN=LOW:HIGH or COLUMN=P", "age=20:70", sizes=(1, 2))
    return {column: ends[0] if len(ends) == 1 else (ends[0], ends[1]) for column, ends in guesses.items()}


def _without_other(literals: Sequence[cells.Literal]) -> list[cells.Literal]:
    return [literal for literal in literals if literal.text != OTHER]


_Reduced = tuple[list[list[int]], int, tuple[float, int]]
"""Sums over rows, the number of rows with missing cells, and row and column of the first missing cell, if any."""


def _count_complete(first: int, rows: np.ndarray) -> int:
    return int((~np.isnan(rows)).all(axis=1).sum())


def _add(numbers: Sequence[int]) -> int:
    return sum(numbers)


def _reduce_block(box: PublicBox, levels: tuple[int, ...], first: int, rows: np.ndarray) -> _Reduced:
    missing = np.isnan(rows)
    is_incomplete = missing.any(axis=1)
    place = (math.inf, 0)
    if is_incomplete.any():
        row = int(is_incomplete.argmax())
        place = (first + row, int(missing[row].argmax()))
    if any(levels):
        columns = []
        for values, n_levels in zip(rows.T, levels, strict=True):
            codes = range(1, n_levels + 1)
            columns += [np.where(np.isnan(values), np.nan, values == code) for code in codes] or [values]
        rows = np.column_stack(columns)
    sums, n_missing = gram_sums(box, rows)
    return sums.tolist(), n_missing, place


def _join(parts: Sequence[_Reduced]) -> _Reduced:
    """Add sums as Python integers, which do not overflow."""
    matrices, numbers, places = zip(*parts, strict=True)
    total = [[sum(entries) for entries in zip(*rows, strict=True)] for rows in zip(*matrices, strict=True)]
    return total, sum(numbers), min(places)
