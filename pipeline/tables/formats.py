"""Readers of tables on disk, which select columns by name and read rows in blocks.

============  ==================================================================================================
suffix        content
============  ==================================================================================================
``.zarr``     A group or an array. A 1-D array is one column with the name of the array. A 2-D array has several
              columns, named by its attribute ``columns`` (a list), or else NAME_0, NAME_1, ….
``.parquet``  A file, or a folder of files, sorted by name. Requires pyarrow.
``.csv``      Uncompressed text in UTF-8, with names in the first line and then one row per line, or per several
              lines if quotes contain line breaks.
``.csv.gz``   The same, compressed by gzip. Each part is decompressed from the start of the file, so a table of many
              parts is read faster without compression or as Parquet.
============  ==================================================================================================

A part has about `PART_BYTES` bytes, but at least one compression unit of its file: a Zarr chunk or a Parquet row group.
Zarr and Parquet store the number of rows; the rows of a CSV file are counted first.

A column is read as numbers or as text, whatever the format (`pipeline.tables.cells`). The text of a stored number is
the one that pandas writes into a CSV file.
"""

import csv
import errno
import gzip
import io
import os
import re
import stat
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, cast

import numpy as np
import pandas as pd
import zarr

from pipeline.errors import BadInputError, credentials_error, unknown
from pipeline.redact import format_error
from pipeline.tables.cells import NOT_PUBLIC, CellError, Literal, parse_double, parse_numbers, without_markers

PART_BYTES = 2**25
"""Target size of a part in bytes, as 64-bit numbers, or as text for CSV."""

# pandas reads decimal numbers exactly by default from version 3.1, which deprecates the option
_EXACT: dict[str, Any] = (
    {} if tuple(map(int, pd.__version__.split(".")[:2])) >= (3, 1) else {"float_precision": "round_trip"}
)


Encoder: TypeAlias = Callable[[pd.Series], np.ndarray]
"""Function that maps the cells of a column of text to numbers, NaN for missing cells; it may raise `CellError`."""


@dataclass(frozen=True)
class Columns:
    """Columns that are read, with encoders of those that are read as text, and literals of missing cells."""

    names: tuple[str, ...]
    encoders: Mapping[str, Encoder] = field(default_factory=dict)
    markers: tuple[Literal, ...] = ()  # cells that equal one are missing, as empty cells are

    @property
    def numbers(self) -> tuple[str, ...]:
        """Names of the columns of numbers, in order."""
        return tuple(name for name in self.names if name not in self.encoders)


Cells: TypeAlias = Mapping[str, np.ndarray]
"""Numbers of the cells of a part, by column; NaN for missing cells."""


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
        shown = ", ".join(shown_names(twice))
        raise BadInputError(f"{path}: column names must be unique, got duplicates: {shown}; rename them")
    return source


def shown_names(names: Sequence[str]) -> list[str]:
    """Return the names of columns for a message; if one is a number, a note: the first line may be a record."""
    if any(parse_double(name) is not None for name in names):
        return ["those of the first line, which are not shown, because one is a number; it must contain names"]
    return list(names)


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """Convert errors of the readers of files to `BadInputError`; texts of other errors may contain cells."""
    try:
        yield
    except BadInputError:
        raise
    except Exception as error:
        has_no_cells = isinstance(error, OSError | EOFError | ImportError)
        shown = format_error(error) if has_no_cells else type(error).__name__
        raise BadInputError(f"cannot read {what}: {shown}; check that the file is complete") from None


def find_parts(source: "TableSource", path: str, columns: Sequence[str]) -> list[Part]:
    """Divide the rows of a table into parts, in order, for reading the given columns."""
    with _reading(path):
        parts = source.parts(columns)
    if not parts:
        raise BadInputError(f"{path} must have at least one row, got none")
    return parts


def require_columns(source: "TableSource", path: str, columns: Sequence[str]) -> None:
    """Raise BadInputError unless a table has columns of numbers or text with these names."""
    offered = (*source.columns, *source.others)
    for name in columns:
        if name not in offered and len(offered) == 1 and re.search("[;\t]", offered[0]):
            raise BadInputError(f"{path} has one column: its fields must be separated by commas; convert it")
        if name not in offered:
            raise BadInputError(f"{path}: {unknown('column', name, shown_names(offered))}")
        if name in source.others:
            raise BadInputError(f"{path}: column {name} must contain numbers or text; convert it, or omit it")


def read_part(source: "TableSource", path: str, part: Part, columns: Columns) -> np.ndarray:
    """Read columns of a part, shape (n, c), with NaN for missing cells; raise BadInputError for other cells."""
    where = f"data rows {part.first + 1:,} to {part.first + part.n_rows:,} of {path}"
    with _reading(where):
        try:
            cells = source.read(part.location, columns)
        except CellError as error:
            raise BadInputError(
                f"{path}: column {error.column!r} must be {error.requirement}, got something else in data row "
                f"{part.first + error.row + 1}; convert or remove other rows, and write 1000, not 1,000 ({NOT_PUBLIC})"
            ) from None
    rows = np.column_stack([cells[name] for name in columns.names])
    if len(rows) != part.n_rows:
        raise BadInputError(
            f"{where} must not change while the table is read, got {len(rows):,} rows; read the table again, and check "
            "its quotes"
        )
    return rows


def _encode_stored(name: str, values: np.ndarray, is_missing: np.ndarray, columns: Columns) -> np.ndarray:
    """Return the numbers of the cells of a column of stored numbers; raise CellError for infinite ones."""
    if name in columns.encoders or columns.markers:
        words = without_markers(_write(values, is_missing, name), columns.markers)
        if name in columns.encoders:
            return columns.encoders[name](words)
        is_missing = words.isna().to_numpy()
    numbers = values.astype(np.float64, copy=False)
    if np.isfinite(numbers).all() and not is_missing.any():
        return numbers
    infinite = np.isinf(numbers) & ~is_missing
    if infinite.any():
        raise CellError(name, int(infinite.argmax()), "a finite number")
    return np.where(is_missing, np.nan, numbers)


def _encode_text(words: pd.Series, columns: Columns) -> np.ndarray:
    """Return the numbers of the cells of a column of text, which has the name of the Series."""
    encode = columns.encoders.get(str(words.name), parse_numbers)
    return encode(without_markers(words, columns.markers))


def _write(values: np.ndarray, is_missing: np.ndarray, name: str) -> pd.Series:
    """Return stored numbers as the text that pandas writes, None for missing ones."""
    if values.dtype.kind == "f":
        values = values + values.dtype.type(0.0)  # no negative zeros, which would be equal to zeros of another text
    codes, distinct = pd.factorize(values)
    texts = np.array([*map(str, distinct), None], dtype=object)
    return pd.Series(texts[np.where(is_missing, -1, codes)], dtype=object, name=name)


# Zarr


@dataclass(frozen=True)
class ZarrSource:
    """Table in the arrays of a Zarr group, or in one array, with readable `columns` and `others`."""

    path: str
    columns: tuple[str, ...]
    others: tuple[str, ...]
    # by column: array in the group ("" for a single array), column index, number of rows, rows per chunk
    arrays: tuple[tuple[str, int | None, int, int], ...]

    def parts(self, columns: Sequence[str]) -> list[Part]:
        """Divide the rows into runs of whole chunks."""
        chosen = [self.arrays[self.columns.index(name)] for name in columns]
        if len({n_rows for _, _, n_rows, _ in chosen}) > 1:
            shown = ", ".join(f"{name} {array[2]:,}" for name, array in zip(columns, chosen, strict=True))
            raise BadInputError(
                f"{self.path}: columns must have equal numbers of rows, got {shown}; choose other columns"
            )
        n_rows, unit = chosen[0][2], max(array[3] for array in chosen)
        step = max(1, PART_BYTES // (8 * len(columns) * unit)) * unit
        return [Part(i, min(step, n_rows - i), (i, min(i + step, n_rows))) for i in range(0, n_rows, step)]

    def read(self, location: tuple[Any, ...], columns: Columns) -> Cells:
        """Return columns of a part."""
        places = {name: self.arrays[self.columns.index(name)][:2] for name in columns.names}
        blocks = {
            array: np.asarray(zarr.open_array(self.path, path=array, mode="r")[slice(*location)])
            for array in dict.fromkeys(array for array, _ in places.values())
        }
        cells = {}
        for name, (array, index) in places.items():
            values = blocks[array] if index is None else blocks[array][:, index]
            if values.dtype.kind in _STORED:
                cells[name] = _encode_stored(name, values, _is_nan(values), columns)
            else:
                cells[name] = _encode_text(pd.Series(values.astype(object), dtype=object, name=name), columns)
        return cells


_STORED = "biuf"  # kinds of types of numbers


def _is_nan(values: np.ndarray) -> np.ndarray:
    return np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, dtype=bool)


def _open_zarr(path: str) -> ZarrSource:
    opened = zarr.open(path, mode="r")
    found = {"": opened} if isinstance(opened, zarr.Array) else dict(sorted(opened.arrays()))
    columns: list[str] = []
    arrays: list[tuple[str, int | None, int, int]] = []
    others = []
    for name, array in found.items():
        label = name or "column"
        if array.ndim not in (1, 2) or array.dtype.kind not in _STORED + "UTO" or "scale_factor" in array.attrs:
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
    """Table in one or more Parquet files, with readable `columns` and `others` as in the first file."""

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

    def read(self, location: tuple[Any, ...], columns: Columns) -> Cells:
        """Return columns of a part."""
        file, *groups = location
        names = list(columns.names)
        table = _import_parquet().ParquetFile(file).read_row_groups(groups, columns=names, use_threads=False)
        return {name: _encode_arrow(name, table.column(name), columns) for name in names}


def _encode_arrow(name: str, column: Any, columns: Columns) -> np.ndarray:
    """Return the numbers of the cells of an Arrow column, of which nulls and NaN are missing."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if _is_arrow_number(column.type):
        if pa.types.is_float16(column.type):
            column = column.cast(pa.float32())
        is_null = np.asarray(column.is_null())
        values = np.asarray(column.fill_null(False if pa.types.is_boolean(column.type) else 0))
        return _encode_stored(name, values, is_null | _is_nan(values), columns)
    words = [None if value is None else str(value) for value in column.to_pylist()]  # text or decimal numbers
    return _encode_text(pd.Series(words, dtype=object, name=name), columns)


def _is_arrow_number(kind: Any) -> bool:
    import pyarrow as pa

    return pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)


def _is_readable(kind: Any) -> bool:
    """Return True for Arrow types of numbers and text."""
    import pyarrow as pa

    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    return _is_arrow_number(kind) or is_text or pa.types.is_decimal(kind) or pa.types.is_null(kind)


def _open_parquet(path: str) -> ParquetSource:
    parquet = _import_parquet()
    files = sorted(map(str, Path(path).glob("*.parquet"))) if Path(path).is_dir() else [path]
    if not files:
        raise BadInputError(f"the folder {path} must contain .parquet files, got none")
    schema = parquet.read_schema(files[0])
    columns = tuple(field.name for field in schema if _is_readable(field.type))
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
    """Table in a CSV file, which may be compressed, with the names of all `columns`; `others` is empty."""

    path: str
    columns: tuple[str, ...]
    others: tuple[str, ...]
    start: int  # byte offset of the second line, in the uncompressed text

    def parts(self, columns: Sequence[str]) -> list[Part]:
        """Divide the lines into parts, and count the rows of each part."""
        parts = []
        first, position = 0, self.start
        with _open_text(self.path) as file:
            file.seek(position)
            while text := file.read(PART_BYTES):
                text += b"" if text.endswith(b"\n") else file.readline()
                n_rows, n_bytes = _count_rows(text, file)
                parts.append(Part(first, n_rows, (position, n_bytes)))
                first, position = first + n_rows, position + n_bytes
        return parts

    def read(self, location: tuple[Any, ...], columns: Columns) -> Cells:
        """Return columns of a part."""
        position, n_bytes = location
        with _open_text(self.path) as file:
            file.seek(position)
            text = file.read(n_bytes)
        frame = None if columns.markers else self._parse_fast(text, columns)
        parsed = () if frame is None else columns.numbers
        frame = self._parse(text, columns, columns.names) if frame is None else frame
        return {
            name: frame[name].to_numpy() if name in parsed else _encode_text(frame[name], columns)
            for name in columns.names
        }

    def _parse_fast(self, text: bytes, columns: Columns) -> pd.DataFrame | None:
        """Return columns with numbers as parsed by pandas if they equal those of their cells, otherwise None.

        With 64-bit floats as the given type, pandas accepts only numbers, in the sense of `cells`, and infinities.
        """
        try:
            frame = self._parse(text, columns, columns.encoders)
        except (ValueError, TypeError):
            return None
        return None if np.isinf(frame[list(columns.numbers)].to_numpy()).any() else frame

    def _parse(self, text: bytes, columns: Columns, texts: Collection[str]) -> pd.DataFrame:
        """Parse columns of lines as text or as 64-bit floats, with missing values only for empty fields."""
        width = len(self.columns)
        indices = {name: str(self.columns.index(name)) for name in columns.names}
        surplus = str(width)  # of lines with too many fields, such as decimal commas, which would shift values
        types = {surplus: str, **{indices[name]: str if name in texts else np.float64 for name in columns.names}}
        head = ",".join(map(str, range(width + 1))).encode() + b"\n"
        frame = pd.read_csv(
            io.BytesIO(head + text),
            usecols=[*indices.values(), surplus],
            dtype=types,
            index_col=False,
            skipinitialspace=True,
            skip_blank_lines=False,
            keep_default_na=False,
            na_values=[""],
            low_memory=False,
            **_EXACT,
        )
        too_many = frame[surplus].notna().to_numpy()
        if too_many.any():
            raise CellError(self.columns[-1], int(too_many.argmax()), "followed by no further field")
        return frame[list(indices.values())].set_axis(list(indices), axis=1)


def _count_rows(text: bytes, file: BinaryIO) -> tuple[int, int]:
    """Return the numbers of rows and bytes of lines of text, up to the end of the row in which the text ends."""
    if b'"' not in text:
        return text.count(b"\n") + (not text.endswith(b"\n")), len(text)
    lines, n_bytes, n_rows = io.BytesIO(text), 0, 0

    def read_lines() -> Iterator[str]:
        nonlocal n_bytes
        while line := lines.readline() or file.readline():
            n_bytes += len(line)
            yield line.decode()

    rows = csv.reader(read_lines(), skipinitialspace=True)
    while n_bytes < len(text):
        next(rows)
        n_rows += 1
    return n_rows, n_bytes


def _open_text(path: str) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path)) if path.endswith(".gz") else open(path, "rb")


def _open_csv(path: str) -> CsvSource:
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(errno.EINVAL, "not a regular file")  # reading a pipe might never end
    with _open_text(path) as file:
        head = file.readline()
    names = tuple(name.strip() for name in next(csv.reader([head.decode("utf-8-sig")]), []))
    if "" in names or not names:
        missing = f"none for column {names.index('') + 1}" if names else "an empty line"
        raise BadInputError(f"{path}: the first line must name every column, got {missing}; add the names")
    return CsvSource(path, names, (), len(head))


TableSource: TypeAlias = ZarrSource | ParquetSource | CsvSource
"""Table on disk: its readable `columns` and `others`, its `parts`, and `read`, which returns the cells of a part."""

_OPENERS: dict[str, Callable[[str], TableSource]] = {
    ".zarr": _open_zarr,
    ".parquet": _open_parquet,
    ".csv": _open_csv,
    ".csv.gz": _open_csv,
}
