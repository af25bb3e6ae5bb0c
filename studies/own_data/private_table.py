"""Columns of a user's table of private records: no message contains a cell, or a number of rows with some property.

A message about cells reveals that a row is invalid, which no guarantee covers. It says so, names the row, and is raised
before anything is spent.
"""

from collections.abc import Sequence

import numpy as np

from pipeline.errors import BadInputError, as_bad_input
from pipeline.tables.cells import NOT_PUBLIC, Literal
from pipeline.tables.formats import (
    Columns,
    Encoder,
    describe_names,
    find_parts,
    find_source,
    read_part,
    require_columns,
)


def read_column(path: str, column: str, encoder: Encoder | None = None, markers: Sequence[Literal] = ()) -> np.ndarray:
    """Return a column of numbers, or of text as mapped to numbers by an encoder, shape (n,); no cell may be missing."""
    source = find_source(path)
    require_columns(source, path, [column])
    wanted = Columns((column,), {} if encoder is None else {column: encoder}, tuple(markers))
    parts = find_parts(source, path, [column])
    values = np.concatenate([read_part(source, path, part, wanted)[:, 0] for part in parts])
    missing = np.isnan(values)
    if missing.any():
        raise BadInputError(f"{path}: {describe_missing(int(missing.argmax()), column)}")
    return values


def show_names(path: str) -> str:
    """Return the names of the columns for a message."""
    return describe_names(find_source(path))


def describe_missing(row: int, column: str, remedy: str = "") -> str:
    """Return the message about a missing cell, given the index of its row."""
    return (
        f"column {column!r} must be present in every row, got a missing cell in data row {row + 1}; impute or remove "
        f"missing values{remedy} ({NOT_PUBLIC})"
    )


def parse_markers(words: Sequence[str] | None) -> tuple[Literal, ...]:
    """Return the literals of missing cells that the option ``--na`` gives."""
    with as_bad_input("na"):
        return tuple(map(Literal.parse, words or ()))
