"""Published noisy tables: one row per cell and level, read as the arguments of `mechanisms.tables.table_posterior`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from mechanisms.core.noise import EXACT, Exact, Noise
from mechanisms.tables.likelihoods import Seen
from pipeline.errors import BadInputError, as_bad_input, unknown
from pipeline.tables.formats import NO_NAMES, is_record
from studies.csv_frame import read_texts, require_file
from studies.own_data.published_checks import find_warnings
from studies.own_data.published_values import Published, read_published, refuse

__all__ = ["NoisyTable", "read_table", "read_table_csv"]

Stated = str | float | None


class NoisyTable(NamedTuple):
    """Arguments of `mechanisms.tables.table_posterior`, the labels of the nodes, and what looks wrong."""

    values: np.ndarray  # NaN if not measured
    noise: list[Noise | Exact | None]
    parents: np.ndarray
    labels: pd.DataFrame  # one row per node and one column per level; "" for totals over a level
    seen: list[Seen]
    published: np.ndarray  # values of the rows, with those that are no measurements
    warnings: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """Names of the nodes, such as ``A, x``."""
        return [", ".join(filter(None, row)) or "the total" for row in self.labels.itertuples(index=False, name=None)]


def read_table(
    frame: pd.DataFrame,
    levels: Sequence[str],
    value: str = "value",
    variance: Stated = None,
    noise: str = "gaussian",
    *,
    sd: Stated = None,
    epsilon: Stated = None,
    seen: str | None = None,
    totals: Literal["independent", "sums"] = "independent",
) -> NoisyTable:
    """Return the arguments of `mechanisms.tables.table_posterior` for a table with one row per cell and level.

    Parameters
    ----------
    frame : pandas.DataFrame
        One row per published value. A blank level is the total over it, and all levels after it are blank, too. Several
        rows of one cell are measurements with independent noise; rows of the same rounded or suppressed count without
        noise count once if they are equal.
    levels : sequence of str
        Columns of the levels, from the coarsest to the finest.
    value : str
        Column of the published counts, blank if a cell was not measured or, with a format ``suppressed``, suppressed.
    variance, sd, epsilon : str or float, optional
        Noise of the values, one of the three, as a column or as a number for all values: its variance or its standard
        deviation, 0 for an exact count, or the privacy loss ε of each value with Laplace or geometric noise of scale
        1/ε. By default, the column ``variance``; without it, counts that are rounded at random are exact.
    noise : {"gaussian", "discrete-gaussian", "laplace", "geometric"}
        Distribution of the noise. The variance of discrete Gaussian noise is its parameter σ².
    seen : str, optional
        Format of the values, as a column or for all values, by default the column ``seen`` if there is one:

        ==================  ===========================================================================
        format              published
        ==================  ===========================================================================
        value               the noisy or exact count
        clipped             0 for a negative noisy count
        suppressed:T        blank below the threshold T
        rounded:B           the nearest multiple of B
        random-rounded:B    a count without noise, rounded at random to a multiple of B next to it
        small-rounded:B     the same for counts from 1 to B − 1; other counts without noise as they are
        ==================  ===========================================================================

    totals : {"independent", "sums"}
        Origin of the totals: noise, rounding or suppression of their own, or sums of the published cells, which are no
        measurements.

    Returns
    -------
    NoisyTable
        Values, noise, parents and formats of the nodes, their labels, and warnings about values that look clipped, are
        sums, contradict each other or are repeated. The first nodes are the rows of the frame, also those of cells that
        are measured again; then follow the cells of levels without any row, which were not measured.

    Raises
    ------
    BadInputError
        If a column is unknown, a value, format or noise is invalid, a level has rows for some of its cells only, a cell
        that is not of the finest level has no cells below it, or a total that should be a sum is none.

    Examples
    --------
    >>> from mechanisms.tables import negative_binomial, table_posterior
    >>> frame = pd.DataFrame({"state": ["", "A", "B"], "noisy": [13.0, 4.0, 8.0], "var": [0.0, 4.0, 4.0]})
    >>> table = read_table(frame, ["state"], "noisy", "var")
    >>> table.noise[0], table.parents
    (EXACT, array([-1,  0,  0]))
    >>> table_posterior(*table[:3], negative_binomial(1, 6)).mean().round(1)
    array([13. ,  4.5,  8.5])
    >>> twice = pd.DataFrame({"state": ["A", "A", "B"], "value": [4.0, 9.0, 8.0]})
    >>> table = read_table(twice, ["state"], sd=2, seen="clipped")
    >>> posterior = table_posterior(*table[:3], negative_binomial(1, 6), seen=table.seen)
    >>> posterior.mean().round(1)
    array([ 6.2,  6.2,  7.4, 13.6])
    """
    stated = {"variance": variance, "sd": sd, "epsilon": epsilon}
    _require_columns(frame, levels, value, stated, seen)
    if totals not in ("independent", "sums"):
        raise BadInputError(unknown("totals", totals, ("independent", "sums")))
    if frame.empty:
        raise BadInputError("the table must have at least one row, got none; give one row per cell and level")
    text = frame[list(levels)].astype(object).where(frame[list(levels)].notna(), "").astype(str)
    text = text.apply(lambda column: column.str.strip()).reset_index(drop=True)
    published = read_published(frame, value, noise, stated, seen, [*levels, value])
    parents, first, labels = _link(text)
    is_total = np.zeros(len(frame), bool)
    if totals == "sums":
        is_total = (text != "").sum(axis=1).to_numpy() < len(levels)
        _refuse_wrong_sums(published.values, is_total, parents, first, [_cell(key) for key in _keys(text)])
    measured = published.without(is_total | _is_repeat(published, first))
    added = parents.size - len(frame)
    table = NoisyTable(
        np.append(measured.values, np.full(added, np.nan)),
        [*measured.noise, *[None] * added],
        parents,
        labels,
        [*measured.seen, *["value"] * added],
        np.append(published.values, np.full(added, np.nan)),
    )
    if all(kind is None for kind in table.noise):
        raise BadInputError(f"{value} must be given for a cell that is no sum of others, got none; check totals")
    with as_bad_input():  # a value that its format does not allow
        return table._replace(warnings=tuple(find_warnings(measured, parents, first, table.names)))


def _require_columns(
    frame: pd.DataFrame, levels: Sequence[str], value: str, stated: dict[str, Stated], seen: str | None
) -> None:
    """Raise BadInputError for unknown or repeated columns."""
    for name in (*levels, value):
        if name not in frame.columns:
            shown = [str(column) for column in frame.columns]
            is_data = is_record(shown)
            raise BadInputError(f"unknown column {name!r}; {NO_NAMES}" if is_data else unknown("column", name, shown))
    others = [name for name in (*stated.values(), seen) if isinstance(name, str) and name in frame.columns]
    names = [*levels, value, *others]
    if not levels or len(set(names)) < len(names):
        raise BadInputError(
            f"levels, value, noise and seen must be different columns, got {', '.join(names)}; name each"
        )


def _is_repeat(published: Published, first: np.ndarray) -> np.ndarray:
    """Return True for rows without noise that repeat an earlier row of their cell, such as one rounding printed twice.

    Equal roundings from different tables count once, too, as nothing distinguishes them.
    """
    known: set[tuple[int, str, str]] = set()
    is_repeat = np.zeros(published.values.size, bool)
    for row, (value, form, kind) in enumerate(zip(published.values, published.seen, published.noise, strict=True)):
        key = (int(first[row]), str(form), f"{value:.17g}")
        if kind is EXACT:
            is_repeat[row] = key in known
            known.add(key)
    return is_repeat


def _refuse_wrong_sums(
    values: np.ndarray, is_total: np.ndarray, parents: np.ndarray, first: np.ndarray, names: Sequence[str]
) -> None:
    """Raise BadInputError for a total that is not the sum of the published cells below it."""
    padded = np.append(values, np.full(parents.size - values.size, np.nan))
    cells = np.flatnonzero((first == np.arange(first.size)) & (parents >= 0))
    top = np.arange(first.size)
    np.maximum.at(top, first, np.arange(first.size))  # the last row of a cell has the parent of the cell
    sums = np.zeros(parents.size)
    np.add.at(sums, parents[top[cells]][parents[top[cells]] >= 0], padded[cells][parents[top[cells]] >= 0])
    expected = sums[first[: values.size]]
    wrong = is_total & (np.abs(values - expected) > 1e-9 * np.maximum(np.abs(expected), 1.0))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise BadInputError(
            f"totals must be the sums of the published cells below them, got {values[row]:g} for {names[row]}, where "
            f"the cells sum to {expected[row]:g}; state independent totals"
        )


def read_table_csv(path: str | os.PathLike[str], levels: Sequence[str], **options: Any) -> NoisyTable:
    """Return the table in a CSV file; see `read_table`."""
    require_file(path)
    frame = read_texts(str(path))
    try:
        return read_table(frame, levels, **options)
    except BadInputError as error:
        raise BadInputError(f"{path}: {error}") from None


def _keys(text: pd.DataFrame) -> list[tuple[str, ...]]:
    """Return the cell of each row, without blank levels."""
    filled = (text.to_numpy() != "").sum(axis=1)
    return [row[:n] for row, n in zip(text.itertuples(index=False, name=None), filled, strict=True)]


def _link(text: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, pd.DataFrame]:
    """Return the parents of the nodes, the first node of the cell of each, and their labels.

    Rows come first, and cells of levels without rows follow. A further row of a cell is the parent of the row before.
    """
    keys = _keys(text)
    is_open = (np.diff((text.to_numpy() != "").astype(int), axis=1) > 0).any(axis=1)
    shown = np.array([",".join(row) for row in text.itertuples(index=False, name=None)])
    remedy = (
        "a blank level is the total over it, and totals over one level and over another are not nested: omit one kind, "
        "or pass both to mechanisms.tables.crossed_posterior"
    )
    refuse("levels", is_open, shown, "blank after a blank level", remedy)
    names = ("the total", *text.columns)
    rows: dict[tuple[str, ...], list[int]] = {}
    for row, key in enumerate(keys):
        rows.setdefault(key, []).append(row)
    size = len(keys)
    above: dict[tuple[str, ...], None] = {}
    for level, name in enumerate(names):
        cells = dict.fromkeys(key[:level] for key in keys if len(key) >= level)
        missing = [cell for cell in cells if cell not in rows]
        if missing and len(missing) < len(cells):
            raise BadInputError(
                f"{name} must have a row for every cell, got none for {_cell(missing[0])}; add a row with a "
                "blank value if it was not measured"
            )
        rows |= {cell: [size + k] for k, cell in enumerate(missing)}
        size += len(missing)
        within = {cell[:-1] for cell in cells}
        if childless := [cell for cell in above if cell not in within]:
            raise BadInputError(
                f"every cell must have cells of {name} below it, got none for {_cell(childless[0])}; add one, or "
                "name fewer levels"
            )
        above = cells
    parents, first = np.full(size, -1), np.empty(size, np.int64)
    labels: list[tuple[str, ...]] = [()] * size
    for key, nodes in rows.items():
        parents[nodes[:-1]], first[nodes] = nodes[1:], nodes[0]
        parents[nodes[-1]] = rows[key[:-1]][0] if key else -1
        for node in nodes:
            labels[node] = (*key, *[""] * (text.shape[1] - len(key)))
    return parents, first, pd.DataFrame(labels, columns=text.columns).astype(text.dtypes)


def _cell(key: Sequence[str]) -> str:
    """Return a cell in messages."""
    return ", ".join(key) or "the total"
