"""Records with two classes, encoded for Bayesian logistic regression as in P3 (Section 5.2).

A categorical column becomes one indicator per level except one. Every column is scaled to [-0.5, 0.5] by its minimum
and maximum, and every row is divided by its norm, so that norms are at most 1.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mechanisms.core.arguments import find_repeated
from pipeline.errors import BadInputError

_SPLIT_SEED = 20_171_204  # seed for splits of tables without a published split: the first day of NIPS 2017
_MOST_COLUMNS = 5_000  # a matrix of columns x columns is factorised for every setting
_MOST_BYTES = 2_000_000_000
_SAMPLED = 60  # number of values that the sampler stores per record


@dataclass(frozen=True, eq=False)
class Table:
    """Encoded records with two classes, before the split.

    Attributes
    ----------
    name : str
        Name of the data set, or of the user's file without its suffix.
    x : ndarray of float64, shape (n, d)
        Scaled columns; rows have norm 1, or 0 if all entries are 0. C-contiguous and read-only.
    y : ndarray of int8, shape (n,)
        Classes, 0 or 1.
    columns : tuple of str, length d
        Names of the columns; ``column=level`` for an indicator.
    classes : tuple of str
        Names of classes 0 and 1.
    constant : tuple of str
        Columns with a single value, which are set to 0.
    digest : str
        SHA-256 of the concatenated content of the files of the data set.
    n_train : int or None
        Number of leading training records; None if the data set has no published split.
    """

    name: str
    x: np.ndarray
    y: np.ndarray
    columns: tuple[str, ...]
    classes: tuple[str, str]
    constant: tuple[str, ...]
    digest: str
    n_train: int | None = None


@dataclass(frozen=True, eq=False)
class Classification:
    """Training and test records with two classes.

    Attributes
    ----------
    name, columns, classes, digest
        See `Table`.
    train_x, test_x : ndarray of float64, shape (n, d)
        Records; rows have norm 1, or 0 if all entries are 0. C-contiguous and read-only.
    train_y, test_y : ndarray of int8, shape (n,)
        Classes, 0 or 1.
    """

    name: str
    train_x: np.ndarray
    train_y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray
    columns: tuple[str, ...]
    classes: tuple[str, str]
    digest: str


def split(table: Table, rng: np.random.Generator | None = None) -> Classification:
    """Split records into training and test records; the test records are a third, rounded up.

    Parameters
    ----------
    table : Table
        Table returned by `load` or `read_csv`.
    rng : numpy.random.Generator, optional
        Generator of a random split. By default the split is fixed: the published split, or
        a random split with a constant seed.

    Returns
    -------
    Classification
        The records.

    Examples
    --------
    >>> from studies.data.shipped import load
    >>> data = split(load("abalone"))
    >>> data.train_x.shape, data.test_x.shape
    ((2784, 9), (1393, 9))
    """
    train: Any
    test: Any
    if rng is None and table.n_train is not None:
        train, test = slice(table.n_train), slice(table.n_train, None)
    else:
        rng = np.random.Generator(np.random.PCG64DXSM(_SPLIT_SEED)) if rng is None else rng
        order = rng.permutation(len(table.y))
        n_test = -(-len(order) // 3)
        train, test = order[n_test:], order[:n_test]
    train_x, train_y, test_x, test_y = (_frozen(array[rows]) for rows in (train, test) for array in (table.x, table.y))
    kept = table.columns, table.classes, table.digest
    return Classification(table.name, train_x, train_y, test_x, test_y, *kept)


def encode(frame: pd.DataFrame, path: str = "") -> tuple[np.ndarray, tuple[str, ...], tuple[str, ...]]:
    """Return features, their names, and the columns with one level; each level except the first has an indicator."""
    numeric = {
        label
        for label, column in frame.items()
        if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)
    }
    texts = {label: column.astype(str) for label, column in frame.items() if label not in numeric}
    n_columns = {label: texts[label].nunique() - 1 if label in texts else 1 for label in frame.columns}
    total = sum(n_columns.values())
    n_bytes = 8 * len(frame) * max(total, _SAMPLED)
    if total > _MOST_COLUMNS or n_bytes > _MOST_BYTES:
        label = max(n_columns, key=lambda one: n_columns[one])
        raise BadInputError(
            f"{path} must give at most {_MOST_COLUMNS:,} columns and {_MOST_BYTES / 1e9:.3g} GB, got {total:,} columns "
            f"and {n_bytes / 1e9:.3g} GB, up to {n_columns[label]:,} columns from one ({label!r}); drop columns, or "
            "merge categories"
        )
    x = np.zeros((len(frame), total))
    columns: list[str] = []
    for label, column in frame.items():
        part = column.to_frame() if label in numeric else pd.get_dummies(texts[label], label, "=", drop_first=True)
        x[:, len(columns) : len(columns) + part.shape[1]] = part
        columns += part.columns.tolist()
    repeated = find_repeated(columns)
    if repeated is not None:
        raise BadInputError(
            f"{path} must give columns with different names, got {repeated!r} twice, such as a column 'A=B' and the "
            "level B of a column 'A'; rename one"
        )
    return x, tuple(columns), tuple(label for label in texts if n_columns[label] == 0)


def make_table(
    name: str,
    x: np.ndarray,
    columns: tuple[str, ...],
    single: tuple[str, ...],
    y: np.ndarray,
    classes: tuple[str, str],
    digest: str,
    n_train: int | None = None,
) -> Table:
    """Scale the columns of `x` to [-0.5, 0.5] and its rows to norm 1, in place."""
    x /= 2  # halved, so that the range of a column does not overflow
    low = x.min(axis=0)
    width = x.max(axis=0) - low
    constant = width == 0
    x -= low
    x /= np.where(constant, 1.0, width)
    x -= 0.5
    x[:, constant] = 0.0
    norms = np.sqrt(np.einsum("ij,ij->i", x, x))
    x /= np.where(norms == 0, 1.0, norms)[:, None]
    names = (*single, *(column for column, is_constant in zip(columns, constant, strict=True) if is_constant))
    return Table(name, _frozen(x), _frozen(y.astype(np.int8)), columns, classes, names, digest, n_train)


def _frozen(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


def digest_of(*files: Path) -> str:
    """Return the SHA-256 of the concatenated content of files."""
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
