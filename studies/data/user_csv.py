"""A user's CSV file with a column of two classes, encoded like the records of P3; refused early where it cannot be."""

import os
import stat
import threading
import warnings
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd

from pipeline.declare.factors import format_value
from pipeline.errors import BadInputError, unknown
from studies.data.records import Table, digest_of, encode, make_table

_FEWEST_ROWS = 4  # two for training, two for testing
_reading = threading.Lock()  # threads of a worker are to read a file once


def read_csv(path: str | os.PathLike[str], target: str) -> Table:
    r"""Return the records of a user's CSV file, encoded like those of P3.

    A process reads an unchanged file once, so calling this early, to refuse bad input before anything is written, costs
    nothing later. Whoever computes must find the file at the same path.

    Parameters
    ----------
    path : path
        UTF-8 text, fields separated by commas, names in the first row; compressed if its name ends in ``.gz`` and the
        like. Columns of numbers are kept, all others are categorical.
    target : str
        Name of the column with the two classes; the last in sorted order is class 1.

    Returns
    -------
    Table
        The records; columns of one value become 0, and a UserWarning names them once a process.

    Raises
    ------
    ValueError
        Naming file, column and row, if the file cannot be read, a column has no name or another's, there is no such
        target, it has not two values, a value is missing or infinite, a column mixes numbers and text or is text that
        identifies its row, or there are fewer than 4 rows, more than 5,000 encoded columns or more than 2 GB of them.
        The first row below the names is data row 1.

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
    place = os.path.abspath(os.path.expanduser(path))
    try:
        found = os.stat(place)
    except OSError as error:
        raise BadInputError(f"cannot read {path}: {error.strerror}; give the path of a CSV file") from None
    if not stat.S_ISREG(found.st_mode):
        raise BadInputError(f"cannot read {path}: it is not a file; give the path of a CSV file")
    with _reading:
        return _read_csv(place, target, found.st_mtime_ns, found.st_size)


@lru_cache(maxsize=1)
def _read_csv(path: str, target: str, modified: int, size: int) -> Table:
    """Read a file; time of change and size tell whether it is the same as before."""
    frame = _read_frame(path)
    names = list(frame.columns)
    if len(names) < 2:
        raise BadInputError(f"{path} must have two columns or more, separated by commas, got one: {names[0]!r}")
    if target not in names:
        offered = names if len(names) <= 30 else get_close_matches(target, names, n=30, cutoff=0.0)
        raise BadInputError(f"{path}: {unknown('target column', target, offered)}")
    if len(frame) < _FEWEST_ROWS:
        raise BadInputError(f"{path} must have at least {_FEWEST_ROWS} rows below the names, got {len(frame)}")
    missing = frame.isna().to_numpy()
    if missing.any():
        raise BadInputError(
            f"{path} must have no missing values, got {missing.sum():,}, the first {_where(frame, missing)}; fill them "
            "in, or leave out their rows (an empty field, NA, NaN, None, null and the like count as missing)"
        )
    y, classes = _classes(path, frame.pop(target))
    for name in frame.columns:
        frame[name] = _checked(path, frame[name])
    table = make_table(Path(path).stem.removesuffix(".csv"), *encode(frame, path), y, classes, digest_of(Path(path)))
    if not table.x.any():
        raise BadInputError(f"{path} must have a column that varies, beside the target {target!r}, got none")
    if table.constant:
        shown = ", ".join(map(repr, table.constant[:10])) + (", ..." if len(table.constant) > 10 else "")
        warnings.warn(f"{path}: columns of one value say nothing and become 0: {shown}", UserWarning, stacklevel=3)
    return table


def _read_frame(path: str) -> pd.DataFrame:
    """Return the columns of a CSV file, each under its own name."""
    try:  # read alone, two rows must be equally long; else pandas takes fields without a name for names of rows
        head = pd.read_csv(path, header=None, nrows=2, dtype=str, keep_default_na=False, skipinitialspace=True)
        names = head.iloc[0].tolist()
        frame = pd.read_csv(path, low_memory=False, skipinitialspace=True)
    except Exception as error:
        raise BadInputError(
            f"cannot read {path} as CSV: {' '.join(str(error).split())}; it must be UTF-8 text with names in the first "
            "row and, in every row, as many fields separated by commas"
        ) from error
    if "" in names:
        raise BadInputError(f"{path}: every column must have a name, column {names.index('') + 1} has none; name it")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise BadInputError(f"{path}: every column must have a name of its own, got twice: {', '.join(twice)}")
    return frame


def _classes(path: str, target: pd.Series) -> tuple[np.ndarray, tuple[str, str]]:
    """Return which records are of class 1, and what 0 and 1 stand for."""
    codes, values = pd.factorize(target, sort=True)
    names = [format_value(value) for value in values.tolist()]
    if len(names) != 2:
        shown = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
        raise BadInputError(f"{path}: target {target.name!r} must have two values, got {len(names):,}: {shown}")
    return codes == 1, (names[0], names[1])


def _checked(path: str, column: pd.Series) -> pd.Series:
    """Return a column of finite numbers, or of texts that stand in more than one row each; refuse any other."""
    if pd.api.types.is_bool_dtype(column):
        return column
    numbers = pd.to_numeric(column, errors="coerce")
    odd = numbers.isna().to_numpy()
    if not odd.any():
        infinite = ~np.isfinite(numbers.to_numpy(float))
        if infinite.any():
            where = _where(column.to_frame(), infinite[:, None])
            raise BadInputError(f"{path} must have finite numbers, got {infinite.sum():,} that are not, {where}")
        return numbers
    if 2 * odd.sum() < len(column):
        raise BadInputError(
            f"{path}: column {column.name!r} must be all numbers or all text, got {column[odd].iloc[0]!r} in data row "
            f"{odd.argmax() + 1} where most are numbers; leave out such rows, or write categories as words"
        )
    n_levels = column.nunique()
    if n_levels > 10 and 2 * n_levels > len(column):
        raise BadInputError(
            f"{path}: column {column.name!r} must be numbers or categories, got {n_levels:,} different texts in "
            f"{len(column):,} rows; leave it out if it identifies the row, else make numbers or fewer categories of it"
        )
    return column


def _where(frame: pd.DataFrame, marked: np.ndarray) -> str:
    """Say where the first marked value stands."""
    row = marked.any(axis=1).argmax()
    return f"in data row {row + 1}, column {frame.columns[marked[row].argmax()]!r}"
