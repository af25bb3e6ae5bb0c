"""Private linear regression on a user's table (``dpstudies regress``).

The rows are read once, in blocks, on a Dask cluster, and reduced to integer sums
(`mechanisms.regression.gram_release.gram_sums`), which do not depend on the blocks. A column with public levels is
represented by one indicator per level but the first, the reference. Values that are not declared count as the
reference, unless ``other`` is one of the levels, whose indicator, ``COLUMN=other``, is that of all of them.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mechanisms.core.privacy import Guarantee, Neighbouring
from mechanisms.regression.gram_release import (
    RESERVED_NAMES,
    GramNoise,
    GramRelease,
    NoiseName,
    PublicBox,
    calibrated_gram_noise,
    gram_sums,
)
from mechanisms.regression.private_regression import (
    RegressionPosterior,
    choose_gram_method,
    release_sums,
)
from mechanisms.regression.width_forecast import Guess, WidthForecast, require_support
from mechanisms.release import CheckedRelease, Rehearsal, require_opendp
from pipeline.clusters.user_cluster import ChosenCluster, ClusterChoice, choose_cluster
from pipeline.errors import BadInputError, as_bad_input
from pipeline.tables.cells import NOT_PUBLIC, Literal, match_literals
from pipeline.tables.formats import require_regular
from pipeline.tables.tables import TableRows, open_table, reduce_rows
from studies.own_data.conditions import OTHER, parse_categories
from studies.own_data.private_table import describe_missing


@dataclass(frozen=True, eq=False)
class Prepared:
    """Opened table, with everything that is public before a release."""

    table: TableRows
    n_rows: int  # of complete rows, if others are dropped
    levels: tuple[int, ...]  # number of indicators per column, 0 for columns of numbers
    box: PublicBox
    noise: GramNoise
    guarantee: Guarantee
    method: str
    forecast: WidthForecast
    cluster: ChosenCluster


def prepare(
    path: str,
    target: str,
    features: tuple[str, ...] | None,
    *,
    ranges: Mapping[str, tuple[float, float]],
    levels: Mapping[str, str],
    guesses: Mapping[str, Guess],
    markers: Sequence[Literal],
    epsilon: float,
    delta: float | None,
    method: str,
    level: float,
    cluster: ClusterChoice,
    rehearsal: bool,
    drops_missing: bool = False,
) -> Prepared:
    """Open a table, check the request and forecast the widths of intervals; nothing is spent.

    Nothing is read but, if rows with missing cells are dropped, the number of complete rows, which is public then.

    `levels` has the list of public levels of a column, as text, with ``other`` for all values that are not in it;
    `guesses` only change the forecast, and `markers` are literals of missing cells.
    """
    chosen_cluster = choose_cluster(cluster)
    with as_bad_input():
        if not rehearsal:
            require_opendp()
        noise_name: NoiseName = "laplace" if delta is None else "gaussian"
        calibrated_gram_noise(noise_name, 2, epsilon, delta)
        literals = {column: parse_categories(f"levels of {column}", given) for column, given in levels.items()}
        listed = {column: _without_other(several) for column, several in literals.items()}
        encoders = {column: partial(match_literals, literals=several) for column, several in listed.items()}
        table = open_table(path, target, features, encoders, markers)
        box = _find_box(path, target, table.columns, ranges, literals)
        noise = calibrated_gram_noise(noise_name, box.p, epsilon, delta)
        n = table.rows.shape[0]
        if drops_missing:
            n = reduce_rows([table.rows], _count_complete, _add, chosen_cluster)
        chosen = choose_gram_method(method, n)
        indicators = set(box.names) - set(table.columns)
        forecast = require_support(box, n, noise, guesses, indicators, level)
    n_levels = tuple(max(len(literals.get(name, ())) - 1, 0) for name in table.columns)
    return Prepared(table, n, n_levels, box, noise, Guarantee(epsilon, delta or 0.0), chosen, forecast, chosen_cluster)


def release_regression(
    prepared: Prepared, drop_missing: bool, release: CheckedRelease | Rehearsal
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
    if n_missing and not drop_missing:
        remedy = ", or pass --missing drop, which makes the number of complete rows public"
        raise BadInputError(describe_missing(int(row), prepared.table.columns[column], remedy))
    if sums[0][0] < box.p + 2:
        raise BadInputError(
            f"the table must have at least {box.p + 2} complete rows, got fewer; add rows, or impute values "
            f"({NOT_PUBLIC})"
        )
    with as_bad_input():
        return release_sums(sums, prepared.noise, release)


def describe_neighbours(release: GramRelease, drops_missing: bool) -> str:
    """Return the neighbouring relation of a release, and what it assumes about rows with missing cells."""
    dropped = f"; rows with missing cells are dropped: n = {release.n:,} is public, and neighbours have the same ones"
    return Neighbouring.REPLACE_ONE.value + (dropped if drops_missing else "")


def dump_release(release: GramRelease, box: PublicBox, drops_missing: bool) -> str:
    """Return a release with its columns and bounds as JSON on one line."""
    columns = {name: [low, high] for name, low, high in zip(box.names, box.low, box.high, strict=True)}
    return json.dumps({"columns": columns, **({"missing": "drop"} if drops_missing else {}), **release.to_dict()})


def load_release(path: Path) -> tuple[GramRelease, PublicBox, bool]:
    """Return the release in a file with the text of `dump_release`, its box, and True if it drops incomplete rows.

    The text may stand after ``release:``. Earlier versions released features with the names of other results; the word
    "feature" follows these.
    """
    try:
        require_regular(str(path))
        lines = [line.strip().removeprefix("release:") for line in path.read_text().splitlines()]
        values = json.loads(next(line for line in lines if line.strip().startswith("{")))
        columns = values.pop("columns").items()
        box = PublicBox.of({f"{name} feature" if name in RESERVED_NAMES else name: pair for name, pair in columns})
        return GramRelease.from_dict(values), box, values.get("missing") == "drop"
    except OSError as error:
        raise BadInputError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, StopIteration) as error:
        raise BadInputError(f"{path} must contain the line that regress prints after release: {error}") from error


def write_posterior(posterior: RegressionPosterior, path: Path, level: float, drops_missing: bool = False) -> None:
    """Write coefficients as JSON or CSV, or the draws as NetCDF."""
    if path.suffix == ".nc":
        posterior.to_arviz()["posterior"].to_dataset().to_netcdf(path)
        return
    neighbours = describe_neighbours(posterior.release, drops_missing)
    values = posterior.to_dict(level) | {"neighbours": neighbours}
    if path.suffix == ".json":
        path.write_text(json.dumps(values, indent=2) + "\n")
        return
    frame = pd.DataFrame.from_dict(values["coefficients"], orient="index")
    frame.assign(level=level, guarantee=values["guarantee"] or "none", neighbours=neighbours).to_csv(
        path, index_label="coefficient"
    )


def specify_intervals(posterior: RegressionPosterior, level: float, drops_missing: bool = False) -> dict[str, Any]:
    """Return a figure of means and intervals as a Vega-Lite specification, with an axis with 0 per coefficient."""
    values = posterior.to_dict(level)
    rows = [{"name": name, **one} for name, one in values["coefficients"].items()]
    x = {"field": "low", "type": "quantitative", "title": None, "scale": {"zero": True}}
    header = {"labelAngle": 0, "labelAlign": "left"}
    guarantee = "none: a rehearsal must not be published"
    if values["guarantee"] is not None:
        guarantee = f"{values['guarantee']} ({describe_neighbours(posterior.release, drops_missing)})"
    return {
        "title": {"text": f"coefficients with {100 * level:g} % intervals", "subtitle": f"guarantee: {guarantee}"},
        "data": {"values": rows},
        "facet": {"row": {"field": "name", "sort": [row["name"] for row in rows], "title": None, "header": header}},
        "resolve": {"scale": {"x": "independent"}},
        "spec": {
            "width": 400,
            "height": 20,
            "layer": [
                {"mark": {"type": "rule", "strokeWidth": 2}, "encoding": {"x": x, "x2": {"field": "high"}}},
                {"mark": {"type": "point", "filled": True}, "encoding": {"x": {**x, "field": "mean"}}},
            ],
        },
    }


def _find_box(
    path: str,
    target: str,
    columns: Sequence[str],
    ranges: Mapping[str, tuple[float, float]],
    levels: Mapping[str, Sequence[Literal]],
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


def _without_other(literals: Sequence[Literal]) -> list[Literal]:
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
