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
its shortest plain decimal form, such as 0.00001 or 1.0, and that of a Boolean True or False. A single-precision number
stands for the double that is nearest to its text.
"""

import csv
import errno
import gzip
import io
import itertools
import math
import os
import re
import stat
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, cast

import numpy as np
import pandas as pd
import zarr
from zarr.storage import ObjectStore

from pipeline.errors import BadInputError, credentials_error, unknown, unreadable_reason
from pipeline.store.files.locations import normalise_location
from pipeline.store.files.object_clients import CLIENTS, open_objects
from pipeline.tables.cells import NOT_PUBLIC, CellError, Literal, parse_numbers, without_markers

_QUOTED = re.compile(rb'(?:\A|(?<=[,\n])) *"(?:[^"]++|"")*+("|\Z)')  # a field in quotes, or one without its end
_LONGEST_ROW = 2**28
_VALUE = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}.*")  # a number or a date
NO_NAMES = "the first line must have names of columns, got a number, a date or no printable text; add a line of names"
"""End of the message about a table whose first line is a record."""

_ENCODING = f", and CSV UTF-8 text with paired quotes ({NOT_PUBLIC})"

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
    if address and suffix != ".zarr":
        raise BadInputError(f"a {suffix} table must be a local file, got {path}; download it")
    if not address and not os.path.exists(path):
        raise BadInputError(f"no table at {path}; check the path")
    with _reading(f"{path} as {suffix[1:]}"):
        source = _OPENERS[suffix](path)
    names = (*source.columns, *source.others)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        shown = "" if _hides_names(source) else f": {', '.join(twice)}{_name_note(source)}"
        raise BadInputError(f"{path}: column names must be unique, got duplicates{shown}; rename them")
    return source


def _hides_names(source: "TableSource") -> bool:
    """Return True if the first line of a CSV file is none of names."""
    return isinstance(source, CsvSource) and is_record(source.columns)


def is_record(first_line: Sequence[str]) -> bool:
    """Return True if a line has a number, a date or no printable text, as a record has and names have not."""
    return any(_VALUE.fullmatch(name) or not name.isprintable() for name in first_line)


def describe_names(source: "TableSource") -> str:
    """Return the names of all columns for a message."""
    if _hides_names(source):
        return "those of the first line, which are not shown, because one is a number, a date or no printable text"
    return ", ".join((*source.columns, *source.others)) + _name_note(source)


def unknown_name(source: "TableSource", kind: str, name: str, offered: Sequence[str]) -> str:
    """Return the message for a name that is none of the offered ones, which are names of columns."""
    if _hides_names(source):
        return f"unknown {kind} {name!r}; {NO_NAMES}"
    return unknown(kind, name, offered) + _name_note(source)


def _name_note(source: "TableSource") -> str:
    is_text = isinstance(source, CsvSource)
    return " (if the first line of the file is a record, do not publish this message)" if is_text else ""


@contextmanager
def _reading(place: str, note: str = "") -> Iterator[None]:
    """Convert errors of the readers of files to `BadInputError`, whose message ends with a note."""
    try:
        yield
    except BadInputError:
        raise
    except Exception as error:
        is_of_system = isinstance(error, OSError) and error.errno is not None
        remedy = "check the path and its permissions" if is_of_system else f"check that the file is complete{note}"
        raise BadInputError(f"cannot read {place}: {unreadable_reason(error)}; {remedy}") from None


def find_parts(source: "TableSource", path: str, columns: Sequence[str]) -> list[Part]:
    """Divide the rows of a table into parts, in order, for reading the given columns."""
    with _reading(path, _ENCODING):
        parts = source.parts(columns)
    if not parts:
        raise BadInputError(f"{path} must have at least one row, got none")
    return parts


def require_unchanged(source: "TableSource", path: str) -> None:
    """Raise BadInputError if a file of a table was written since the table was opened."""
    if any(_stamp(file) != stamp for file, stamp in source.stamps):
        raise BadInputError(f"{path} must not change while the table is read, got another file; read the table again")


def _stamp(file: str) -> tuple[int, int]:
    """Return the size and the modification time of a file, which must be regular unless it is remote."""
    if "://" in file:
        return 0, 0
    status = require_regular(file)
    return status.st_size, status.st_mtime_ns


def require_regular(file: str) -> os.stat_result:
    """Return the status of a readable file; raise OSError unless it is regular, as reading a pipe might never end."""
    status = os.stat(file)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    if not os.access(file, os.R_OK):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))
    return status


def require_columns(source: "TableSource", path: str, columns: Sequence[str]) -> None:
    """Raise BadInputError unless a table has columns of numbers or text with these names."""
    offered = (*source.columns, *source.others)
    for name in columns:
        if name not in offered and len(offered) == 1 and re.search("[;\t]", offered[0]):
            raise BadInputError(f"{path} has one column: its fields must be separated by commas; convert it")
        if name not in offered:
            raise BadInputError(f"{path}: {unknown_name(source, 'column', name, offered)}")
        if name in source.others:
            allowed = "numbers or text, neither times nor durations nor packed or marked numbers"
            raise BadInputError(f"{path}: column {name} must contain {allowed}; convert it, or omit it")


def read_part(source: "TableSource", path: str, part: Part, columns: Columns) -> np.ndarray:
    """Read columns of a part, shape (n, c), with NaN for missing cells; raise BadInputError for other cells."""
    where = f"data rows {part.first + 1:,} to {part.first + part.n_rows:,} of {path}"
    with _reading(where, _ENCODING):
        try:
            require_unchanged(source, path)
            cells = source.read(part.location, columns)
            require_unchanged(source, path)
        except CellError as error:
            raise BadInputError(
                f"{path}: column {error.column!r} must be {error.requirement}, got something else in data row "
                f"{part.first + error.row + 1}; convert that row or remove it, and write 1000, not 1,000 ({NOT_PUBLIC})"
            ) from None
    rows = np.column_stack([cells[name] for name in columns.names])
    if len(rows) != part.n_rows:
        raise BadInputError(
            f"{where} must be rows of text with paired quotes and without carriage returns within lines, got another "
            f"number of rows; correct them ({NOT_PUBLIC})"
        )
    return rows


def _encode_stored(name: str, values: np.ndarray, is_missing: np.ndarray, columns: Columns) -> np.ndarray:
    """Return the numbers of the cells of a column of stored numbers; raise CellError for infinite ones."""
    if name in columns.encoders or columns.markers:
        words = without_markers(_write(values, is_missing, name), columns.markers)
        if name in columns.encoders:
            return columns.encoders[name](words)
        is_missing = words.isna().to_numpy()
    numbers = _widen(values)
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
    """Return stored numbers in plain decimal form, None for missing ones."""
    distinct, codes = np.unique(values, return_inverse=True)
    texts = np.array([*map(_format_number, distinct), None], dtype=object)
    return pd.Series(texts[np.where(is_missing, -1, codes)], dtype=object, name=name)


def _format_number(value: Any) -> str:
    """Return the shortest plain decimal form of a stored number."""
    if isinstance(value, np.floating) and np.isfinite(value):
        return np.format_float_positional(value + value.dtype.type(0.0), unique=True, trim="0")  # no negative zero
    return str(value)


def _widen(values: np.ndarray) -> np.ndarray:
    """Return stored numbers as doubles, of single precision those of their text, as a CSV file has."""
    if values.dtype.kind != "f" or values.dtype.itemsize >= 8:
        return values.astype(np.float64, copy=False)
    distinct, codes = np.unique(values, return_inverse=True)
    return np.array([float(_format_number(value)) for value in distinct])[codes]


# Zarr


@dataclass(frozen=True)
class ZarrSource:
    """Table in the arrays of a Zarr group, or in one array, with readable `columns` and `others`."""

    path: str
    columns: tuple[str, ...]
    others: tuple[str, ...]
    # by column: array in the group ("" for a single array), column index, number of rows, rows per chunk
    arrays: tuple[tuple[str, int | None, int, int], ...]
    stamps: tuple[tuple[str, tuple[int, int]], ...] = ()

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
            array: np.asarray(_open_at(self.path, array)[slice(*location)])
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
_DURATIONS = {"days", "hours", "minutes", "seconds", "milliseconds", "microseconds", "nanoseconds"}  # of xarray
_NAN_IN_BASE64 = "AAAAAAAA+H8="  # as xarray writes it into attributes


def _is_nan(values: np.ndarray) -> np.ndarray:
    return np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, dtype=bool)


def _open_at(path: str, name: str = "") -> Any:
    """Open a group or an array in a folder, an object store, or what else Zarr opens by its URL."""
    if path.partition("://")[0] not in CLIENTS:
        return zarr.open(path, path=name, mode="r")
    objects, place = open_objects(normalise_location(path))
    return zarr.open(ObjectStore(objects, read_only=True), path=f"{place}/{name}".rstrip("/"), mode="r")


def _open_zarr(path: str) -> ZarrSource:
    opened = _open_at(path)
    stored_arrays = {"": opened} if isinstance(opened, zarr.Array) else dict(sorted(opened.arrays()))
    columns: list[str] = []
    arrays: list[tuple[str, int | None, int, int]] = []
    others = []
    for name, array in stored_arrays.items():
        label = name or "column"
        if array.ndim not in (1, 2) or array.dtype.kind not in _STORED + "UTO" or _is_encoded(array):
            others.append(label)
        elif array.ndim == 1:
            columns.append(label)
            arrays.append((name, None, array.shape[0], array.chunks[0]))
        else:
            width = array.shape[1]
            labels = array.attrs.get("columns", [f"{label}_{j}" for j in range(width)])
            if not isinstance(labels, list) or len(labels) != width:
                raise BadInputError(
                    f"{path}: the attribute columns of {label} must name {width} columns, got {labels!r}"
                )
            columns += map(str, labels)
            arrays += [(name, j, array.shape[0], array.chunks[0]) for j in range(width)]
    return ZarrSource(path, tuple(columns), tuple(others), tuple(arrays))


def _is_encoded(array: zarr.Array) -> bool:
    """Return True if attributes state that stored numbers stand for others, as for times and packed numbers."""
    fill = array.attrs.get("_FillValue")
    is_nan = fill in ("NaN", _NAN_IN_BASE64) or (isinstance(fill, float) and math.isnan(fill))
    is_filled = fill is not None and not (array.dtype.kind == "f" and is_nan)
    units, dtype = str(array.attrs.get("units", "")), str(array.attrs.get("dtype", ""))
    is_duration = "timedelta" in dtype or (units in _DURATIONS and array.dtype.kind in "iu")
    is_time = is_duration or "calendar" in array.attrs or " since " in units
    return is_filled or is_time or any(name in array.attrs for name in ("scale_factor", "add_offset", "missing_value"))


# Parquet


@dataclass(frozen=True)
class ParquetSource:
    """Table in one or more Parquet files, with readable `columns` and `others` as in the first file."""

    columns: tuple[str, ...]
    others: tuple[str, ...]
    stamps: tuple[tuple[str, tuple[int, int]], ...]  # of the files, in order

    def parts(self, columns: Sequence[str]) -> list[Part]:
        """Divide the rows into runs of whole row groups of a file."""
        parquet, most = _import_parquet(), max(1, PART_BYTES // (8 * len(columns)))
        parts: list[Part] = []
        first = 0
        for file, _ in self.stamps:
            opened = parquet.ParquetFile(file)
            kinds = {field.name: field.type for field in opened.schema_arrow}
            for name in columns:
                if name not in kinds or not _is_readable(kinds[name]):
                    raise BadInputError(
                        f"every file of a table must have all columns with numbers or text, got {file} without {name}"
                    )
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
        is_half, is_null = pa.types.is_float16(column.type), np.asarray(column.is_null())
        column = column.cast(pa.float32()) if is_half else column  # nulls of half precision cannot be filled
        values = np.asarray(column.fill_null(False if pa.types.is_boolean(column.type) else 0))
        values = values.astype(np.float16) if is_half else values
        return _encode_stored(name, values, is_null | _is_nan(values), columns)
    words = [f"{value:f}" if isinstance(value, Decimal) else value for value in column.to_pylist()]
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
    files = [path]
    if Path(path).is_dir():
        files = sorted(str(file) for file in Path(path).iterdir() if not file.name.startswith((".", "_")))
        others = [file for file in files if not file.endswith(".parquet") or Path(file).is_dir()]
        if others or not files:
            got = f"also {others[0]}" if others else "none"
            raise BadInputError(f"the folder {path} must contain .parquet files without subfolders, got {got}; move it")
    stamps = tuple((file, _stamp(file)) for file in files)
    schema = parquet.read_schema(files[0])
    columns = tuple(field.name for field in schema if _is_readable(field.type))
    return ParquetSource(columns, tuple(name for name in schema.names if name not in columns), stamps)


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
    start: int  # byte offset of the first record, in the uncompressed text
    stamps: tuple[tuple[str, tuple[int, int]], ...]

    def parts(self, columns: Sequence[str]) -> list[Part]:
        """Divide the lines into parts, and count the rows of each part."""
        parts = []
        first, position = 0, self.start
        with _open_text(self.path) as file:
            file.seek(position)
            while text := file.read(PART_BYTES):
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
        if b"\0" in text:
            raise ValueError("zero bytes end the text of a cell in some versions of pandas")
        surplus = _find_surplus(text, len(self.columns))
        if surplus is not None:
            raise CellError(self.columns[-1], surplus, "followed by no further field")
        frame = None if columns.markers else self._parse_fast(text, columns)
        parsed = () if frame is None else columns.numbers
        frame = self._parse(text, columns, columns.names) if frame is None else frame
        return {
            name: frame[name].to_numpy() if name in parsed else _encode_text(frame[name], columns)
            for name in columns.names
        }

    def _parse_fast(self, text: bytes, columns: Columns) -> pd.DataFrame | None:
        """Return columns with numbers as parsed by pandas if they equal those of their cells, otherwise None.

        With 64-bit floats as the given type, pandas accepts only numbers in the sense of `cells`, infinities, and
        columns of words for true and false in any case, which become ones and zeros.
        """
        try:
            frame = self._parse(text, columns, columns.encoders)
        except (ValueError, TypeError):
            return None
        numbers = frame[list(columns.numbers)]
        if np.isinf(numbers.to_numpy()).any():
            return None
        of_two = [name for name in columns.numbers if numbers[name].dropna().isin((0.0, 1.0)).all()]
        if of_two:
            words = self._parse(text, Columns(tuple(of_two)), of_two)
            for name in of_two:
                frame[name] = parse_numbers(without_markers(words[name], ()))
        return frame

    def _parse(self, text: bytes, columns: Columns, texts: Collection[str]) -> pd.DataFrame:
        """Parse columns of lines as text or as 64-bit floats, with missing values only for empty fields."""
        indices = {name: str(self.columns.index(name)) for name in columns.names}
        types = {indices[name]: str if name in texts else np.float64 for name in columns.names}
        head = ",".join(map(str, range(len(self.columns)))).encode() + b"\n"
        frame = pd.read_csv(
            io.BytesIO(head + text),
            usecols=[*indices.values()],
            dtype=types,
            index_col=False,
            skipinitialspace=True,
            skip_blank_lines=False,
            keep_default_na=False,
            na_values=[""],
            low_memory=False,
            **_EXACT,
        )
        return frame[list(indices.values())].set_axis(list(indices), axis=1)


def _count_rows(text: bytes, file: BinaryIO) -> tuple[int, int]:
    """Return the numbers of rows and bytes of lines of text, up to the end of the row in which the text ends."""
    text += b"" if text.endswith(b"\n") else file.readline()
    while _ends_in_quotes(text):
        more = file.read(PART_BYTES) + file.readline()
        if not more or len(text) > _LONGEST_ROW:
            raise ValueError("quotes must be paired")
        text += more
    return _without_quoted(text).count(b"\n") + (not text.endswith(b"\n")), len(text)


def _find_surplus(text: bytes, width: int) -> int | None:
    """Return the index of the first row with more fields than columns, such as one with a decimal comma, or None.

    Pandas ignores further fields. Empty ones count, as after the last separator of ``7,1234,56,``.
    """
    n_separators = map(bytes.count, io.BytesIO(_without_quoted(text)), itertools.repeat(b","))
    return next((row for row, n in enumerate(n_separators) if n >= width), None)


def _without_quoted(text: bytes) -> bytes:
    """Return text, from the start of a row on, without fields in quotes, whose separators and line ends are text."""
    return _QUOTED.sub(b"", text) if b'"' in text else text


def _ends_in_quotes(text: bytes) -> bool:
    """Return True if text, from the start of a row on, ends within quotes; those within a field are text."""
    return b'"' in text and any(not match[1] for match in _QUOTED.finditer(text))


def _open_text(path: str) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path)) if path.endswith(".gz") else open(path, "rb")


def _open_csv(path: str) -> CsvSource:
    stamp = _stamp(path)
    with _open_text(path) as file:
        head = file.readline()
        while _ends_in_quotes(head) and (line := file.readline()) and len(head) < _LONGEST_ROW:
            head += line
    names = tuple(name.strip() for name in next(csv.reader(io.StringIO(head.decode("utf-8-sig"))), []))
    if "" in names or not names:
        missing = f"none for column {names.index('') + 1}" if names else "an empty line"
        raise BadInputError(f"{path}: the first line must name every column, got {missing}; add the names")
    return CsvSource(path, names, (), len(head), ((path, stamp),))


TableSource: TypeAlias = ZarrSource | ParquetSource | CsvSource
"""Table on disk: its readable `columns` and `others`, its `parts`, and `read`, which returns the cells of a part."""

_OPENERS: dict[str, Callable[[str], TableSource]] = {
    ".zarr": _open_zarr,
    ".parquet": _open_parquet,
    ".csv": _open_csv,
    ".csv.gz": _open_csv,
}
