"""Records with two classes, encoded for Bayesian logistic regression as P3 says (Section 5.2).

A categorical column becomes one column for each of its levels but one, every column is scaled to [-0.5, 0.5] by its
smallest and largest value, and every row is divided by its norm, so that norms are at most 1.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pipeline.errors import BadInputError

_SPLIT_SEED = 20_171_204  # of the one split of every table that does not come split: the first day of NIPS 2017
_MOST_COLUMNS = 5_000  # a matrix of columns x columns is factorised for every setting
_MOST_BYTES = 2_000_000_000
_SAMPLED = 60  # numbers that the sampler holds of each record


@dataclass(frozen=True, eq=False)
class Table:
    """Encoded records with two classes, not split yet.

    Attributes
    ----------
    name : str
        Name of the data set, or of the user's file without its ending.
    x : ndarray of float64, shape (n, d)
        Scaled columns, rows of norm 1 (or 0); C-contiguous and read-only.
    y : ndarray of int8, shape (n,)
        Classes, 0 or 1.
    columns : tuple of str, length d
        Names; ``column=level`` for an indicator.
    classes : tuple of str
        What 0 and 1 stand for.
    constant : tuple of str
        Columns that had one value only, and are 0 now.
    digest : str
        SHA-256 of the content of its files, one after the other.
    n_train : int or None
        How many of the first records are for training, where the data set comes split.
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
    """Records with two classes, for training and for testing.

    Attributes
    ----------
    name, columns, classes, digest
        See `Table`.
    train_x, test_x : ndarray of float64, shape (n, d)
        Records, rows of norm 1 (or 0); C-contiguous and read-only.
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
    """Divide records into those for training and, a third rounded up, those for testing.

    Parameters
    ----------
    table : Table
        From `load` or `read_csv`.
    rng : numpy.random.Generator, optional
        Draws the split. Without it there is one fixed split: the data set's own, or else a random one of constant seed.

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
    return Classification(
        table.name,
        _frozen(table.x[train]),
        _frozen(table.y[train]),
        _frozen(table.x[test]),
        _frozen(table.y[test]),
        table.columns,
        table.classes,
        table.digest,
    )


def encode(frame: pd.DataFrame, path: str = "") -> tuple[np.ndarray, tuple[str, ...], tuple[str, ...]]:
    """Return features with an indicator of each level but the first, their names, and categories of a single level."""
    parts: list[np.ndarray] = []
    names: list[list[str]] = []
    single = []
    for label in frame.columns:
        column = frame[label]
        if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
            parts.append(column.to_numpy(float))
            names.append([label])
        else:
            codes, levels = pd.factorize(column.astype(str), sort=True)
            parts.append(codes)
            names.append([f"{label}={level}" for level in levels[1:]])
            single += [label] if len(levels) == 1 else []
    columns = tuple(name for group in names for name in group)
    n_bytes = 8 * len(frame) * max(len(columns), _SAMPLED)
    if len(columns) > _MOST_COLUMNS or n_bytes > _MOST_BYTES:
        label, group = max(zip(frame.columns, names, strict=True), key=lambda pair: len(pair[1]))
        raise BadInputError(
            f"{path} must give at most {_MOST_COLUMNS:,} columns and {_MOST_BYTES / 1e9:.3g} GB, got {len(columns):,} "
            f"columns and {n_bytes / 1e9:.3g} GB, up to {len(group):,} columns from one ({label!r}); leave some "
            "out, or group the values of categories"
        )
    x = np.zeros((len(frame), len(columns)))
    at = 0
    for part, group in zip(parts, names, strict=True):
        if part.dtype.kind == "f":
            x[:, at] = part
        else:
            rows = np.flatnonzero(part)
            x[rows, at + part[rows] - 1] = 1.0
        at += len(group)
    return x, columns, tuple(single)


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
    x /= 2  # the distance of any two halves is finite
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
    """Return the SHA-256 of the content of files, one after the other."""
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
