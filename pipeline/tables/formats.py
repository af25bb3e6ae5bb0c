"""Readers of tables on disk, which select columns by name and read rows in blocks.

============  ==================================================================================================
suffix        content
============  ==================================================================================================
``.zarr``     A group or an array. A 1-D array is one column with the name of the array. A 2-D array has several
              columns, named by its attribute ``columns`` (a list), or else NAME_0, NAME_1, ….
``.parquet``  A file, or a folder of files, sorted by name. Requires pyarrow.
``.csv``      Uncompressed text in UTF-8, with names in the first line and one row per further line (no line
              breaks within quotes).
``.csv.gz``   The same, compressed by gzip. Each part is decompressed from the start of the file, so a table of many
              parts is read faster without compression or as Parquet.
============  ==================================================================================================

A part has about `PART_BYTES` bytes, but at least one compression unit of its file: a Zarr chunk or a Parquet row group.
Zarr and Parquet store the number of rows; the lines of a CSV file are counted first.
"""

import csv
import gzip
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, cast

import numpy as np
import pandas as pd
import zarr

from pipeline.errors import BadInputError, credentials_error
from pipeline.redact import format_error

PART_BYTES = 2**25
"""Target size of a part in bytes, as 64-bit numbers, or as text for CSV."""

# pandas reads decimal numbers exactly by default from version 3.1, which deprecates the option
_EXACT: dict[str, Any] = (
    {} if tuple(map(int, pd.__version__.split(".")[:2])) >= (3, 1) else {"float_precision": "round_trip"}
)
_PEEK = 1000  # number of rows of a CSV file from which the types of the columns are inferred
_NUMBERS = ("int", "uint", "float", "double", "halffloat", "bool")  # prefixes of the names of Arrow types


Levels: TypeAlias = Mapping[str, Sequence[str]]
"""Public levels of columns of text, which are read as the index of the level, or the number of levels for others."""

_NO_LEVELS: Levels = {}


@dataclass(frozen=True)
class Part:
    """Consecutive rows that are read together."""

    first: int  # index of the first row, from 0
    n_rows: int
    location: tuple[Any, ...]  # specific to the format


def find_source(path: str) -> "TableSource":
    """Open a table and read the names of its columns, from a path or URL with the suffix of a format."""
    address = path.partition("://")[2]
    if "@" in address or "?" in address:
        raise credentials_error("table", path)
    suffix = next((suffix for suffix in _OPENERS if path.rstrip("/").endswith(suffix)), None)
    if suffix is None:
        raise BadInputError(f"a table must end in {', '.join(_OPENERS)}, got {path}; convert it, or rename it")
    if "://" not in path and not os.path.exists(path):
        raise BadInputError(f"no table at {path}; check the path")
    with _reading(f"{path} as {suffix[1:]}"):
        source = _OPENERS[suffix](path)
    names = (*source.columns, *source.others)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise BadInputError(f"{path}: column names must be unique, got duplicates: {', '.join(twice)}; rename them")
    return source


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """Convert errors of the readers of files to `BadInputError`."""
    try:
        yield
    except BadInputError:
        raise
    except Exception as error:
        raise BadInputError(f"cannot read {what}: {format_error(error)}") from error


def find_parts(source: "TableSource", path: str, columns: Sequence[str]) -> list[Part]:
    """Divide the rows of a table into parts, in order, for reading the given columns."""
    with _reading(path):
        parts = source.parts(columns)
    if not parts:
        raise BadInputError(f"{path} must have at least one row, got none")
    return parts


def read_part(
    source: "TableSource", path: str, part: Part, columns: Sequence[str], levels: Levels = _NO_LEVELS
) -> np.ndarray:
    """Read columns of a part on a worker."""
    where = f"data rows {part.first + 1:,} to {part.first + part.n_rows:,} of {path}"
    with _reading(where):
        rows = source.read(part.location, columns, levels)
    if len(rows) != part.n_rows:
        raise BadInputError(
            f"{where} must not change while the table is read, got {len(rows):,} rows; read the table again"
        )
    return rows


# Zarr


@dataclass(frozen=True)
class ZarrSource:
    """Table in the arrays of a Zarr group, or in one array, with numeric `columns` and `others`."""

    path: str
    columns: tuple[str, ...]
    others: tuple[str, ...]
    # by column: array in the group ("" for a single array), column index, number of rows, rows per chunk
    arrays: tuple[tuple[str, int | None, int, int], ...]

    def parts(self, columns: Sequence[str]) -> list[Part]:
        """Divide the rows into runs of whole chunks."""
        chosen = [self.arrays[self.columns.index(name)] for name in columns]
        if len({n_rows for _, _, n_rows, _ in chosen}) > 1:
            shown = ", ".join(f"{name} {each[2]:,}" for name, each in zip(columns, chosen, strict=True))
            raise BadInputError(
                f"{self.path}: columns must have equal numbers of rows, got {shown}; choose other columns"
            )
        n_rows, unit = chosen[0][2], max(each[3] for each in chosen)
        step = max(1, PART_BYTES // (8 * len(columns) * unit)) * unit
        return [Part(i, min(step, n_rows - i), (i, min(i + step, n_rows))) for i in range(0, n_rows, step)]

    def read(self, location: tuple[Any, ...], columns: Sequence[str], levels: Levels) -> np.ndarray:
        """Return columns of a part, without a copy if they are all the columns of one array."""
        if levels:
            raise ValueError("a Zarr table has no columns with levels; convert it to Parquet or CSV")
        chosen = [self.arrays[self.columns.index(name)][:2] for name in columns]
        blocks = {
            name: np.asarray(zarr.open_array(self.path, path=name, mode="r")[slice(*location)], dtype=np.float64)
            for name in dict.fromkeys(name for name, _ in chosen)
        }
        whole = next(iter(blocks.values()))
        if len(blocks) == 1 and whole.ndim == 2 and [j for _, j in chosen] == list(range(whole.shape[1])):
            return whole
        return np.stack([blocks[name] if j is None else blocks[name][:, j] for name, j in chosen], axis=1)


def _open_zarr(path: str) -> ZarrSource:
    opened = zarr.open(path, mode="r")
    found = {"": opened} if isinstance(opened, zarr.Array) else dict(sorted(opened.arrays()))
    columns: list[str] = []
    arrays: list[tuple[str, int | None, int, int]] = []
    others = []
    for name, array in found.items():
        label = name or "column"
        if array.ndim not in (1, 2) or array.dtype.kind not in "biuf" or "scale_factor" in array.attrs:
            others.append(label)
        elif array.ndim == 1:
            columns.append(label)
            arrays.append((name, None, array.shape[0], array.chunks[0]))
        else:
            width = array.shape[1]
            given = array.attrs.get("columns", [f"{label}_{j}" for j in range(width)])
            if not isinstance(given, list) or len(given) != width:
                raise BadInputError(
                    f"{path}: the attribute columns of {label} must name {width} columns, got {given!r}"
                )
            columns += map(str, given)
            arrays += [(name, j, array.shape[0], array.chunks[0]) for j in range(width)]
    return ZarrSource(path, tuple(columns), tuple(others), tuple(arrays))


# Parquet


@dataclass(frozen=True)
class ParquetSource:
    """Table in one or more Parquet files, with numeric `columns` and `others` as in the first file."""

    columns: tuple[str, ...]
    others: tuple[str, ...]
    files: tuple[str, ...]

    def parts(self, columns: Sequence[str]) -> list[Part]:
        """Divide the rows into runs of whole row groups of a file."""
        parquet, most = _import_parquet(), max(1, PART_BYTES // (8 * len(columns)))
        parts: list[Part] = []
        first = 0
        for file in self.files:
            opened = parquet.ParquetFile(file)
            absent = sorted(set(columns) - set(opened.schema_arrow.names))
            if absent:
                raise BadInputError(f"every file of a table must have all columns, got {file} without {absent[0]}")
            groups: list[int] = []
            n_rows = 0
            for group in range(opened.num_row_groups):
                groups.append(group)
                n_rows += opened.metadata.row_group(group).num_rows
                is_last = group + 1 == opened.num_row_groups
                if is_last or n_rows + opened.metadata.row_group(group + 1).num_rows > most:
                    parts.append(Part(first, n_rows, (file, *groups)))
                    first += n_rows
                    groups, n_rows = [], 0
        return parts

    def read(self, location: tuple[Any, ...], columns: Sequence[str], levels: Levels) -> np.ndarray:
        """Return columns of a part."""
        file, *groups = location
        table = _import_parquet().ParquetFile(file).read_row_groups(groups, columns=list(columns), use_threads=False)
        rows = np.empty((table.num_rows, len(columns)))
        for j, name in enumerate(columns):
            if name in levels:
                rows[:, j] = _code(table.column(name).cast("string").to_pandas(), levels[name])
            else:
                rows[:, j] = table.column(name).cast("float64", safe=False).to_numpy()
        return rows


def _open_parquet(path: str) -> ParquetSource:
    parquet = _import_parquet()
    files = sorted(map(str, Path(path).glob("*.parquet"))) if Path(path).is_dir() else [path]
    if not files:
        raise BadInputError(f"the folder {path} must contain .parquet files, got none")
    schema = parquet.read_schema(files[0])
    kinds = {field.name: str(field.type) for field in schema}
    columns = tuple(name for name in schema.names if kinds[name].startswith(_NUMBERS))
    return ParquetSource(columns, tuple(name for name in schema.names if name not in columns), tuple(files))


def _import_parquet() -> Any:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise BadInputError("Parquet requires pyarrow; install it with: pip install 'dpstudies[tables]'") from error
    return parquet


# CSV


@dataclass(frozen=True)
class CsvSource:
    """Table in a CSV file, which may be compressed, with numeric `columns`, `others`, and the `names` of a line."""

    path: str
    columns: tuple[str, ...]
    others: tuple[str, ...]
    names: tuple[str, ...]
    start: int  # byte offset of the second line, in the uncompressed text

    def parts(self, columns: Sequence[str]) -> list[Part]:
        """Divide the lines into parts, and count the lines of each part."""
        parts = []
        first, position = 0, self.start
        with _open_text(self.path) as file:
            file.seek(position)
            while text := file.read(PART_BYTES):
                text += b"" if text.endswith(b"\n") else file.readline()
                n_rows = text.count(b"\n") + (not text.endswith(b"\n"))
                parts.append(Part(first, n_rows, (position, len(text))))
                first, position = first + n_rows, position + len(text)
        return parts

    def read(self, location: tuple[Any, ...], columns: Sequence[str], levels: Levels) -> np.ndarray:
        """Return columns of a part."""
        position, n_bytes = location
        with _open_text(self.path) as file:
            file.seek(position)
            text = file.read(n_bytes)
        frame = _parse(text, self.names, columns, levels)
        for index, name in zip(frame.columns, columns, strict=True):
            if name in levels:
                frame[index] = _code(frame[index], levels[name])
        return frame.to_numpy(dtype=np.float64)


def _open_text(path: str) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path)) if path.endswith(".gz") else open(path, "rb")


def _open_csv(path: str) -> CsvSource:
    with _open_text(path) as file:
        head = file.readline()
        peek = b"".join(file.readline() for _ in range(_PEEK))
    names = tuple(name.strip() for name in next(csv.reader([head.decode("utf-8-sig")]), []))
    if "" in names or not names:
        raise BadInputError(f"{path}: the first line must name every column, got {head.decode('utf-8-sig').strip()!r}")
    is_number = [not peek or kind.kind in "biuf" for kind in _parse(peek, names).dtypes]
    columns = tuple(name for name, yes in zip(names, is_number, strict=True) if yes)
    others = tuple(name for name, yes in zip(names, is_number, strict=True) if not yes)
    return CsvSource(path, columns, others, names, len(head))


def _code(values: pd.Series, levels: Sequence[str]) -> np.ndarray:
    """Return the index of the level of each text, the number of levels for others, and NaN for missing texts."""
    codes = pd.Index(levels).get_indexer(values.str.strip()).astype(np.float64)
    return np.where(values.isna(), np.nan, np.where(codes < 0, len(levels), codes))


def _parse(
    text: bytes, names: tuple[str, ...], columns: Sequence[str] | None = None, levels: Levels = _NO_LEVELS
) -> pd.DataFrame:
    """Parse columns of lines as floats, or as text if they have levels; all with inferred types by default."""
    indices = list(range(len(names))) if columns is None else [names.index(name) for name in columns]
    surplus = str(len(names))  # of lines with too many fields, such as decimal commas, which would shift values
    types = (
        {surplus: str}
        if columns is None
        else {surplus: str, **{str(j): str if names[j] in levels else np.float64 for j in indices}}
    )
    head = ",".join(map(str, range(len(names) + 1))).encode() + b"\n"
    frame = pd.read_csv(
        io.BytesIO(head + text),
        usecols=[*map(str, indices), surplus],
        dtype=types,
        index_col=False,
        skipinitialspace=True,
        skip_blank_lines=False,
        low_memory=False,
        **_EXACT,
    )
    too_many = frame[surplus].notna().to_numpy()
    if too_many.any():
        line = too_many.argmax()
        raise ValueError(f"a line must have {len(names)} fields, got more in line {line + 1} of these")
    return frame[[str(j) for j in indices]]


TableSource: TypeAlias = ZarrSource | ParquetSource | CsvSource
"""Table on disk: numeric `columns`, `others`, its `parts`, and `read`, which returns columns of a part as float64."""

_OPENERS: dict[str, Callable[[str], TableSource]] = {
    ".zarr": _open_zarr,
    ".parquet": _open_parquet,
    ".csv": _open_csv,
    ".csv.gz": _open_csv,
}
