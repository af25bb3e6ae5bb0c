"""Users' CSV files with a column of two classes, validated and encoded like the records of P3."""

import os
import threading
import warnings
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd

from pipeline.declare.factors import format_value
from pipeline.errors import BadInputError, unknown
from studies.csv_frame import read_frame, require_file
from studies.data.records import Table, digest_of, encode, make_table

_FEWEST_ROWS = 4  # two rows for training and two for testing
_reading = threading.Lock()  # lets the threads of a worker read a file only once


def read_csv(path: str | os.PathLike[str], target: str) -> Table:
    r"""Return the records of a user's CSV file, encoded like those of P3.

    A process caches the content of an unchanged file, so validation by an early call adds no cost. Workers must
    find the file at the same path.

    Parameters
    ----------
    path : path
        UTF-8 text with comma-separated fields and names in the first row; compressed if the suffix is ``.gz`` or
        similar. Columns of numbers are numeric; all others are categorical, and words such as NA are categories.
    target : str
        Name of the column with the two classes; the last in sorted order is class 1.

    Returns
    -------
    Table
        The records; constant columns become 0, with one UserWarning per process that names them.

    Raises
    ------
    ValueError
        If the file cannot be read, a column name is missing or repeated, the target is unknown or does not have two
        values, a value is missing or infinite, a column mixes numbers and text or contains text that identifies the
        row, or there are fewer than 4 rows, more than 5,000 encoded columns or more than 2 GB of them. The message
        names file, column and row; the first row below the names is data row 1.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "pets.csv")
    ...     _ = file.write_text("kind,weight,happy\ncat,4,yes\ndog,9,yes\ncat,5,no\nfish,1,no\n")
    ...     table = read_csv(file, "happy")
    >>> table.columns, table.classes, table.y.tolist()
    (('kind=dog', 'kind=fish', 'weight'), ('no', 'yes'), [1, 1, 0, 0])
    """
    status = require_file(path)
    with _reading:
        return _read_csv(os.path.abspath(os.path.expanduser(path)), target, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=1)  # all cells of a study read one file
def _read_csv(path: str, target: str, modified: int, size: int) -> Table:
    """Read a file; its modification time and size are arguments because they are part of the cache key."""
    frame = read_frame(path, low_memory=False, keep_default_na=False, na_values=[""])
    names = list(frame.columns)
    if len(names) < 2:
        raise BadInputError(f"{path} must have at least two columns, separated by commas, got one: {names[0]!r}")
    if target not in names:
        offered = names if len(names) <= 30 else get_close_matches(target, names, n=30, cutoff=0.0)
        raise BadInputError(f"{path}: {unknown('target column', target, offered)}")
    if len(frame) < _FEWEST_ROWS:
        raise BadInputError(f"{path} must have at least {_FEWEST_ROWS} rows below the names, got {len(frame)}")
    missing = frame.isna().to_numpy()
    if missing.any():
        raise BadInputError(
            f"{path} must have no missing values, got an empty field {_where(frame, missing)}; impute such values or "
            "drop their rows"
        )
    y, classes = _classes(path, frame.pop(target))
    for name in frame.columns:
        frame[name] = _checked(path, frame[name])
    table = make_table(Path(path).stem.removesuffix(".csv"), *encode(frame, path), y, classes, digest_of(Path(path)))
    if not table.x.any():
        raise BadInputError(f"{path} must have a column that varies in addition to the target {target!r}, got none")
    if table.constant:
        shown = ", ".join(map(repr, table.constant[:10])) + (", ..." if len(table.constant) > 10 else "")
        warnings.warn(f"{path}: constant columns carry no information and become 0: {shown}", UserWarning, stacklevel=3)
    return table


def _classes(path: str, target: pd.Series) -> tuple[np.ndarray, tuple[str, str]]:
    """Return a mask of the records of class 1, and the names of the classes 0 and 1."""
    codes, values = pd.factorize(target, sort=True)
    names = [format_value(value) for value in values.tolist()]
    if len(names) != 2:
        raise BadInputError(
            f"{path}: target {target.name!r} must have two different values, got {len(names):,}; choose a column "
            "of two classes"
        )
    return codes == 1, (names[0], names[1])


def _checked(path: str, column: pd.Series) -> pd.Series:
    """Return a column that contains finite numbers or categories; raise BadInputError for other columns."""
    if pd.api.types.is_bool_dtype(column):
        return column
    numbers = pd.to_numeric(column, errors="coerce")
    odd = numbers.isna().to_numpy()
    if not odd.any():
        infinite = ~np.isfinite(numbers.to_numpy(float))
        if infinite.any():
            where = _where(column.to_frame(), infinite[:, None])
            raise BadInputError(f"{path} must have finite numbers, got another value {where}; drop such rows")
        return numbers
    if 2 * odd.sum() < len(column):
        raise BadInputError(
            f"{path}: column {column.name!r} must be all numbers or all text, got text in data row {odd.argmax() + 1} "
            "where most are numbers; drop such rows, or write categories as words"
        )
    n_levels = column.nunique()
    if n_levels > 10 and 2 * n_levels > len(column):
        raise BadInputError(
            f"{path}: column {column.name!r} must be numbers or categories, got {n_levels:,} different texts in "
            f"{len(column):,} rows; drop it if it identifies the row, or convert it to numbers or fewer categories"
        )
    return column


def _where(frame: pd.DataFrame, marked: np.ndarray) -> str:
    """Return the place of the first marked value as text."""
    row = marked.any(axis=1).argmax()
    return f"in data row {row + 1}, column {frame.columns[marked[row].argmax()]!r}"
