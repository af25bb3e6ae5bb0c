"""Columns of a user's CSV file of private records, for releases: no message contains a value of the file.

An error about the values reveals that a row is invalid, which no guarantee covers; the messages say so.
"""

import math
import operator
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from pipeline.errors import BadInputError, unknown
from studies.data.user_csv import require_file

NOT_PUBLIC = "this message depends on the records: do not publish it"
"""Warning at the end of messages about the values of a file."""

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}


def read_condition(path: str, text: str) -> np.ndarray:
    """Return a mask of the rows of a file that satisfy a condition on a column, such as ``age>=65``, shape (n,)."""
    found = re.fullmatch(r"([^<>!=]+)(<=|>=|!=|==?|<|>)([^<>=]+)", text)
    if found is None:
        raise BadInputError(
            f"where must have the form COLUMN=VALUE, or !=, <, <=, >, >=, got {text!r}; e.g. 'age>=65', with a column "
            f"of {path}: {', '.join(read_names(path))}"
        )
    column, sign, value = (part.strip() for part in found.groups())
    number = _number(value)
    if sign in _OPERATORS:
        if number is None:
            raise BadInputError(f"where must compare with a number for {sign}, got {text!r}; e.g. 'age>=65'")
        return _OPERATORS[sign](read_numbers(path, column), number)
    words = read_words(path, column)
    equal = (words == value).to_numpy()
    if number is not None:
        equal = equal | (pd.to_numeric(words, errors="coerce") == number).to_numpy()
    return ~equal if sign == "!=" else equal


def read_numbers(path: str, column: str) -> np.ndarray:
    """Return a column of finite numbers, shape (n,)."""
    numbers = pd.to_numeric(read_words(path, column), errors="coerce").to_numpy(float)
    _require_all(
        np.isfinite(numbers), path, column, "a finite number", "convert or remove other rows, and write 1000, not 1,000"
    )
    return numbers


def read_names(path: str) -> list[str]:
    """Return the names of the columns."""
    return [str(name).strip() for name in _read(path).iloc[0]]


def _read(path: str) -> pd.DataFrame:
    """Return a file as text, whose first row contains the names of the columns."""
    require_file(path)  # reading a pipe might never end
    try:  # the names are read as the first row, whose length is then that of all rows
        return pd.read_csv(
            path, header=None, dtype=str, keep_default_na=False, skipinitialspace=True, skip_blank_lines=False
        )
    except Exception as error:  # the message of pandas may contain values
        raise BadInputError(
            f"cannot read {path} as CSV ({type(error).__name__}): it must be UTF-8 text with column names in the first "
            "row and the same number of comma-separated fields in every row"
        ) from None


def read_words(path: str, column: str) -> pd.Series:
    """Return a column as text without surrounding spaces, shape (n,); no field may be empty."""
    frame = _read(path)
    names = [str(name).strip() for name in frame.iloc[0]]
    if column not in names and len(names) == 1 and re.search("[;\t]", names[0]):
        raise BadInputError(f"{path} has one column, {names[0]!r}: its fields must be separated by commas; convert it")
    if column not in names:
        raise BadInputError(unknown(f"column of {path}", column, names))
    if names.count(column) > 1:
        raise BadInputError(f"{path}: column names must be unique, got {column!r} twice; rename one")
    words = frame.iloc[1:, names.index(column)].fillna("").str.strip()
    if not len(words):
        raise BadInputError(f"{path} must have at least one row below the names, got none")
    _require_all((words != "").to_numpy(), path, column, "present in every row", "impute or remove missing values")
    return words


def _require_all(valid: np.ndarray, path: str, column: str, what: str, advice: str) -> None:
    if not valid.all():
        raise BadInputError(
            f"{path}: column {column!r} must be {what}, got something else in data row {valid.argmin() + 1}; {advice} "
            f"({NOT_PUBLIC})"
        )


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
