"""CSV files as frames, with unique names of columns."""

import errno
import os
import stat
from typing import Any

import pandas as pd

from pipeline.errors import BadInputError, unreadable_reason


def require_file(path: str | os.PathLike[str]) -> os.stat_result:
    """Return the status of a regular file that can be read; raise BadInputError for other paths."""
    file = os.path.expanduser(path)
    try:
        status = os.stat(file)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        with open(file, "rb"):
            return status
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "the path is not valid"
        raise BadInputError(f"cannot read {path}: {reason}; give the path of a CSV file") from None


def read_frame(path: str, **options: Any) -> pd.DataFrame:
    """Return the columns of a CSV file, whose names must be unique; options are those of pandas."""
    try:  # the first rows must have equal length, or pandas would use unnamed fields as row names
        head = pd.read_csv(path, header=None, nrows=2, dtype=str, keep_default_na=False, skipinitialspace=True)
        names = head.iloc[0].tolist()
        frame = pd.read_csv(path, skipinitialspace=True, **options)
    except Exception as error:
        reason = unreadable_reason(error)
        if isinstance(error, pd.errors.ParserError | pd.errors.EmptyDataError):
            reason = " ".join(str(error).removeprefix("Error tokenizing data. C error: ").split())
        raise BadInputError(
            f"cannot read {path} as CSV: {reason}; the file must be UTF-8 text with column "
            "names in the first row and the same number of comma-separated fields in every row"
        ) from error
    if "" in names:
        raise BadInputError(f"{path}: every column must have a name, got none for column {names.index('') + 1}; add it")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise BadInputError(f"{path}: column names must be unique, got duplicates: {', '.join(twice)}")
    return frame


def read_texts(path: str) -> pd.DataFrame:
    """Return the columns of a CSV file as texts, and refuse rows with fewer fields than names, as in a file cut off."""
    frame = read_frame(path, dtype=str, keep_default_na=False, engine="python")  # the C engine fills rows with ""
    is_short = frame.isna().any(axis=1).to_numpy()
    if is_short.any():
        raise BadInputError(
            f"{path}: every row must have {frame.shape[1]} fields, got fewer in data row {int(is_short.argmax()) + 1}; "
            "complete the row, with commas for blank fields"
        )
    return frame
