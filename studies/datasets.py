"""Real records for Bayesian logistic regression: Abalone, Adult, MNIST 3 against 8 (P3, Section 5.2), or a user's CSV.

Records are encoded as P3 says: a categorical column becomes one column for each of its levels but one, every column is
scaled to [-0.5, 0.5] by its smallest and largest value, and every row is divided by its norm, so that norms are at most
1. Sources, licences and digests of the shipped files are in ``studies/data/LICENCES.md``.

Notes
-----
What P3 leaves open, and how it is read here:

* One level is left out of each categorical column, and ``?`` counts as a level: this gives P3's 9 columns for Abalone
  and 100 for Adult. All levels would give 10 and 108; without ``?``, 105 of all and 97 with one left out. Which one is
  left out is not said: here the first in sorted order, as is usual for contrasts, hence ``?`` where there is one.
* Smallest and largest values, and levels, are those of all records, of training and test; a level that stands only in
  one part of Adult has its column in both. They are taken as public: the guarantees do not cover what they tell. An
  indicator becomes -0.5 or 0.5; a column of one value, such as 161 pixels of MNIST, becomes 0.
* No column of ones is added: with it Abalone would have 10 columns.
* One third of the records are for testing, rounded up. Abalone and MNIST are split at random, MNIST out of the 11,982
  images of digits 3 and 8 in its training file. Adult comes as 32,561 records for training and 16,281 for testing; a
  random third would have the same sizes, and P3 does not say which it took.

References
----------
P3: Geumlek, Song & Chaudhuri (2017), "Renyi Differential Privacy Mechanisms for Posterior Sampling".
"""

import hashlib
import os
import stat
import threading
import warnings
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pipeline.declare.factors import format_value
from pipeline.errors import BadInputError, unknown

_DATA = Path(__file__).parent / "data"
_SPLIT_SEED = 20_171_204  # of the one split of every table that does not come split: the first day of NIPS 2017
_FEWEST_ROWS = 4  # two for training, two for testing
_MOST_COLUMNS = 5_000  # a matrix of columns x columns is factorised for every setting
_MOST_BYTES = 2_000_000_000
_SAMPLED = 60  # numbers that the sampler holds of each record
_reading = threading.Lock()  # threads of a worker are to read a file once


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


def load(name: str) -> Table:
    """Return one of the data sets of P3; each process reads it once.

    Parameters
    ----------
    name : {"abalone", "adult", "mnist"}
        Class 1 is rings < 10, income > 50K, and digit 8.

    Returns
    -------
    Table
        4,177 x 9, 48,842 x 100 or 11,982 x 784.

    Raises
    ------
    ValueError
        For another name.

    Examples
    --------
    >>> table = load("abalone")
    >>> table.x.shape, table.columns[:3], int(table.y.sum())
    ((4177, 9), ('sex=I', 'sex=M', 'length'), 2096)
    """
    if name not in _READERS:
        raise BadInputError(unknown("data set", name, _READERS))
    with _reading:
        return _load(name)


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


@cache
def _load(name: str) -> Table:
    return _READERS[name]()


def _read_abalone() -> Table:
    frame = pd.read_csv(_DATA / "abalone.csv.gz")
    young = frame.pop("rings").to_numpy() < 10
    return _table("abalone", *_encode(frame), young, ("rings >= 10", "rings < 10"), _digest(_DATA / "abalone.csv.gz"))


def _read_adult() -> Table:
    files = [_DATA / f"adult_{part}.csv.gz" for part in ("train", "test")]
    parts = [pd.read_csv(file, keep_default_na=False) for file in files]  # nothing is missing: "?" is a level
    frame = pd.concat(parts, ignore_index=True)
    rich = frame.pop("income").to_numpy() == ">50K"
    return _table("adult", *_encode(frame), rich, ("<=50K", ">50K"), _digest(*files), len(parts[0]))


def _read_mnist() -> Table:
    file = _DATA / "mnist_3_8.npz"
    with np.load(file) as arrays:
        x, digits = arrays["images"].astype(float), arrays["labels"]
    columns = tuple(f"pixel_{row}_{column}" for row in range(28) for column in range(28))
    return _table("mnist", x, columns, (), digits == 8, ("3", "8"), _digest(file))


_READERS = {"abalone": _read_abalone, "adult": _read_adult, "mnist": _read_mnist}


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
    table = _table(Path(path).stem.removesuffix(".csv"), *_encode(frame, path), y, classes, _digest(Path(path)))
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


def _encode(frame: pd.DataFrame, path: str = "") -> tuple[np.ndarray, tuple[str, ...], tuple[str, ...]]:
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


def _table(
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


def _digest(*files: Path) -> str:
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
