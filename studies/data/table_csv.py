"""Published noisy tables: one row per cell and level, read as the arguments of `mechanisms.tables.table_posterior`."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from mechanisms.noise import EXACT, Exact, Noise
from pipeline.errors import BadInputError, unknown
from pipeline.tables.cells import map_distinct, parse_double
from studies.data.user_csv import read_frame, require_file

__all__ = ["NoisyTable", "read_table", "read_table_csv"]

_SCALES = {
    "gaussian": math.sqrt,
    "discrete-gaussian": math.sqrt,
    "laplace": lambda variance: math.sqrt(0.5 * variance),
    "geometric": lambda variance: 0.5 / math.asinh(1.0 / math.sqrt(2.0 * variance)),
}
"""Scale of the noise as a function of its variance: 2·scale² for Laplace and 1/(2·sinh²(1/(2·scale))) for geometric."""


class NoisyTable(NamedTuple):
    """Arguments of `mechanisms.tables.table_posterior`, in its order, and the labels of the nodes."""

    values: np.ndarray
    noise: list[Noise | Exact | None]
    parents: np.ndarray
    labels: pd.DataFrame  # one row per node and one column per level; "" for totals over a level

    @property
    def names(self) -> list[str]:
        """Names of the nodes, such as ``A, x``."""
        return [", ".join(filter(None, row)) or "the total" for row in self.labels.itertuples(index=False, name=None)]


def read_table(
    frame: pd.DataFrame,
    levels: Sequence[str],
    value: str = "value",
    variance: str = "variance",
    noise: str = "gaussian",
) -> NoisyTable:
    """Return the arguments of `mechanisms.tables.table_posterior` for a table with one row per cell and level.

    Parameters
    ----------
    frame : pandas.DataFrame
        One row per published cell. A blank level is the total over it, and all levels after it are blank, too.
    levels : sequence of str
        Columns of the levels, from the coarsest to the finest.
    value, variance : str
        Columns of the noisy count, blank if it was not measured, and of the variance of its noise; a variance of 0
        states an exact count.
    noise : {"gaussian", "discrete-gaussian", "laplace", "geometric"}
        Distribution of the noise. The variance of discrete Gaussian noise is its parameter σ².

    Returns
    -------
    NoisyTable
        Values, noise and parents of the nodes, and their labels. The first nodes are the rows of the frame; then follow
        the cells of levels without any row, which were not measured.

    Raises
    ------
    BadInputError
        If a column is unknown, a value or variance is no number, a variance is negative, a cell occurs twice, a level
        has rows for some of its cells only, or a cell that is not of the finest level has no cells below it.

    Examples
    --------
    >>> from mechanisms.tables import negative_binomial, table_posterior
    >>> frame = pd.DataFrame({"state": ["", "A", "B"], "noisy": [13.0, 4.0, 8.0], "var": [0.0, 4.0, 4.0]})
    >>> table = read_table(frame, ["state"], "noisy", "var")
    >>> table.noise[0], table.parents
    (EXACT, array([-1,  0,  0]))
    >>> table_posterior(*table[:3], negative_binomial(1, 6)).mean().round(1)
    array([13. ,  4.5,  8.5])
    """
    if noise not in _SCALES:
        raise BadInputError(unknown("noise", noise, _SCALES))
    names = [*levels, value, variance]
    for name in names:
        if name not in frame.columns:
            raise BadInputError(unknown("column", name, map(str, frame.columns)))
    if not levels or len(set(names)) < len(names):
        raise BadInputError(f"levels, value and variance must be different columns, got {', '.join(names)}; name each")
    if frame.empty:
        raise BadInputError("the table must have at least one row, got none; give one row per cell and level")
    text = frame[list(levels)].astype(object).where(frame[list(levels)].notna(), "").astype(str)
    text = text.apply(lambda column: column.str.strip()).reset_index(drop=True)
    numbers, variances = (_numbers(frame[name], name) for name in (value, variance))
    _refuse("variance", (variances < 0.0), variances, ">= 0", "0 states an exact count")
    _refuse("variance", (variances > 0.0) & (variances < 1e-100), variances, "0 or >= 1e-100", "check the units")
    _refuse("variance", ~np.isnan(numbers) & np.isnan(variances), variances, "given for a value", "add it")
    if np.isnan(numbers).all():
        raise BadInputError(f"{value} must be given for at least one cell, got none; check the column")
    parents, labels = _link(text)
    kinds: dict[float, Noise | Exact] = {
        one: Noise(noise, _SCALES[noise](one)) if one > 0.0 else EXACT for one in np.unique(variances[variances >= 0.0])
    }
    added = parents.size - numbers.size
    noises = [None if np.isnan(y) else kinds[v] for y, v in zip(numbers, variances, strict=True)]
    return NoisyTable(np.append(numbers, np.full(added, np.nan)), [*noises, *[None] * added], parents, labels)


def read_table_csv(
    path: str | os.PathLike[str], levels: Sequence[str], value: str, variance: str, noise: str
) -> NoisyTable:
    """Return the table in a CSV file; see `read_table`."""
    require_file(path)
    frame = read_frame(str(path), dtype=str, keep_default_na=False)
    try:
        return read_table(frame, levels, value, variance, noise)
    except BadInputError as error:
        raise BadInputError(f"{path}: {error}") from None


def _numbers(column: pd.Series, name: str) -> np.ndarray:
    """Return a column as numbers, NaN if blank; the number of a cell does not depend on other cells."""
    text = column.astype(str).str.strip()
    blank = column.isna().to_numpy() | (text == "").to_numpy()
    numbers = np.where(blank, np.nan, map_distinct(text, parse_double))
    _refuse(name, ~blank & ~np.isfinite(numbers), column.to_numpy(), "a finite number or blank", "correct it")
    return numbers


def _refuse(name: str, is_bad: np.ndarray, given: np.ndarray, allowed: str, remedy: str) -> None:
    """Raise BadInputError for the first marked row."""
    if is_bad.any():
        row = int(np.argmax(is_bad))
        raise BadInputError(f"{name} must be {allowed}, got {given[row]!s} in data row {row + 1}; {remedy}")


def _link(text: pd.DataFrame) -> tuple[np.ndarray, pd.DataFrame]:
    """Return the parents of the nodes, and their labels; rows come first, and cells of levels without rows follow."""
    filled = text.to_numpy() != ""
    keys = [row[:n] for row, n in zip(text.itertuples(index=False, name=None), filled.sum(axis=1), strict=True)]
    is_open = (np.diff(filled.astype(int), axis=1) > 0).any(axis=1)
    shown = np.array([",".join(row) for row in text.itertuples(index=False, name=None)])
    _refuse("levels", is_open, shown, "blank after a blank level", "a blank level is the total over it")
    names = ("the total", *text.columns)
    node = {key: row for row, key in enumerate(keys)}
    if len(node) < len(keys):
        twice = next(key for key, n in Counter(keys).items() if n > 1)
        raise BadInputError(f"cells must be unique, got {_cell(twice)} twice in {names[len(twice)]}; remove a row")
    above: dict[tuple[str, ...], None] = {}
    for level, name in enumerate(names):
        cells = dict.fromkeys(key[:level] for key in keys if len(key) >= level)
        missing = [cell for cell in cells if cell not in node]
        if missing and len(missing) < len(cells):
            raise BadInputError(
                f"{name} must have a row for every cell, got none for {_cell(missing[0])}; add a row with a "
                "blank value if it was not measured"
            )
        node |= {cell: len(node) + k for k, cell in enumerate(missing)}
        within = {cell[:-1] for cell in cells}
        if childless := [cell for cell in above if cell not in within]:
            raise BadInputError(
                f"every cell must have cells of {name} below it, got none for {_cell(childless[0])}; add one, or "
                "name fewer levels"
            )
        above = cells
    parents = np.array([node[key[:-1]] if key else -1 for key in node])
    labels = [(*key, *[""] * (text.shape[1] - len(key))) for key in node]
    return parents, pd.DataFrame(labels, columns=text.columns).astype(text.dtypes)


def _cell(key: Sequence[str]) -> str:
    """Return a cell in messages."""
    return ", ".join(key) or "the total"
