"""Tests of tables: every row is mapped once for any chunks, formats are equivalent, and invalid tables are rejected."""

import gzip
import os
import re
import sys
from decimal import Decimal
from functools import partial
from pathlib import Path

import dask.array as da
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xarray as xr
import zarr
from zarr.storage import ObjectStore

import pipeline.tables.formats
from pipeline.clusters.cluster import connect
from pipeline.clusters.profiles import THREADS, Profile
from pipeline.errors import BadInputError, ExecutionError
from pipeline.store.files.object_clients import open_objects
from pipeline.tables.cells import Literal, match_literals
from pipeline.tables.formats import Columns, find_parts, find_source, read_part
from pipeline.tables.tables import open_table, reduce_rows
from tests.pipeline.helpers import refusal

N_ROWS = 1000


@pytest.fixture(scope="module")
def client():
    with connect(THREADS) as client:
        yield client


def test_threads_of_the_process_need_no_scheduler_and_give_the_same(client, monkeypatch):
    rows = da.from_array(np.random.default_rng(1).normal(size=(N_ROWS, 3)), chunks=(70, 3))
    on_cluster = reduce_rows([rows], lambda first, block: block.sum(axis=0), sum, client)
    monkeypatch.setattr("pipeline.tables.tables.connect", None)
    assert np.array_equal(reduce_rows([rows], lambda first, block: block.sum(axis=0), sum, THREADS), on_cluster)


def collect(first, *blocks):
    """Return the blocks, and the index of their first row (map step)."""
    return [(first, blocks)]


def join(parts):
    """Concatenate all results in the order of the rows (combine step)."""
    return [piece for part in parts for piece in part]


def whole(pieces, k):
    """Return array number k of the collected blocks, which must be consecutive."""
    first = 0
    for start, blocks in pieces:
        assert start == first
        first += len(blocks[0])
    return np.concatenate([blocks[k] for _, blocks in pieces])


# Mapping


@pytest.mark.parametrize("chunks", [1000, 300, (700, 300), (1, 998, 1), 70])
def test_rows_are_mapped_once_and_combined_in_order(client, chunks):
    x, y = np.random.default_rng(1).random((N_ROWS, 3)), np.arange(N_ROWS)
    arrays = [da.from_array(x, chunks=(chunks, 2)), da.from_array(y, chunks=123)]
    pieces = reduce_rows(arrays, collect, join, cluster=client)
    np.testing.assert_array_equal(whole(pieces, 0), x)
    np.testing.assert_array_equal(whole(pieces, 1), y[:, None])
    assert [len(blocks[0]) for _, blocks in pieces] == list(arrays[0].chunks[0])


def test_numpy_arrays_are_divided(client, monkeypatch):
    monkeypatch.setattr(pipeline.tables.tables, "PART_BYTES", 8 * 3 * 128)
    x = np.random.default_rng(1).random((N_ROWS, 3))
    pieces = reduce_rows([x, x[:, 0]], collect, join, cluster=client)
    np.testing.assert_array_equal(whole(pieces, 0), x)
    assert len(pieces) == 8


def read_noted(path, block_id=None):
    """Read a block, and append a line to a file for each read."""
    with open(path, "a") as file:
        file.write(f"{block_id[0]}\n")
    return np.ones((100, 2))


def test_each_block_is_read_once_by_one_task(client, tmp_path):
    """Each block of two arrays is read once, by the task that uses it, so no rows are transferred."""
    chunks, meta = ((100,) * 10, (2,)), np.empty((0, 0))
    arrays = [
        da.map_blocks(partial(read_noted, tmp_path / name), chunks=chunks, dtype=float, meta=meta) for name in "xy"
    ]
    total = reduce_rows(arrays, lambda first, x, y: x.sum() + y.sum(), sum, cluster=client)
    assert total == 4000
    for name in "xy":
        assert sorted(map(int, (tmp_path / name).read_text().split())) == list(range(10))
    assert {len(blocks) for _, blocks in reduce_rows(arrays, collect, join, cluster=client)} == {2}


@pytest.mark.parametrize(
    ("message", "arrays"),
    [
        ("with equal n, got (5,), (4,)", [np.ones(5), np.ones(4)]),
        ("arrays must have shapes (n,) or (n, c)", [np.ones((2, 2, 2))]),
        ("arrays must have shapes", [np.ones(())]),
        ("at least one row, got none", [np.ones((0, 2))]),
        ("call compute_chunk_sizes()", [da.ones(6, chunks=3)[da.arange(6, chunks=3) > 2]]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_mismatched_arrays_are_rejected(client, message, arrays):
    with refusal(message):
        reduce_rows(arrays, collect, join, cluster=client)


def rise(first, block, keep):
    """Return the peak memory of this process in MB, and the block if `keep` is True (map step)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) / 1000 for line in lines if line.startswith("VmHWM"))
    return peak, (block if keep else None)


def largest(parts):
    """Return the largest peak memory and all kept blocks (combine step)."""
    return max(peak for peak, _ in parts), [kept for _, kept in parts]


def end(first, block):
    """End the process, as the system does when it runs out of memory (map step)."""
    os._exit(1)


@pytest.mark.slow
def test_worker_processes_hold_one_block_and_may_die(tmp_path, monkeypatch):
    """A worker holds a few blocks of 4 MB at a time, unless it keeps all 96 MB (negative control)."""
    monkeypatch.setattr(pipeline.tables.formats, "PART_BYTES", 2**22)
    array = zarr.create_array(tmp_path / "t.zarr", shape=(4_000_000, 3), chunks=(166_667, 3), dtype="f8")
    array.attrs["columns"] = ["a", "b", "y"]
    array[:] = 1.0
    with connect(Profile("one", kwargs={"processes": True, "n_workers": 1, "threads_per_worker": 1})) as client:
        rows = open_table(str(tmp_path / "t.zarr"), "y").rows
        measure = partial(reduce_rows, combine=largest, cluster=client)
        loaded, _ = measure([rows[: rows.chunks[0][0]]], map_rows=partial(rise, keep=False))
        peak, _ = measure([rows], map_rows=partial(rise, keep=False))
        kept, _ = measure([rows], map_rows=partial(rise, keep=True))
        assert peak - loaded < 30
        assert kept - loaded > 60
        with pytest.raises(ExecutionError, match="a worker died while it processed a block of rows"):
            reduce_rows([da.ones(10, chunks=5)], end, sum, cluster=client)


# Formats


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(1)
    return pd.DataFrame(
        {
            "a": rng.standard_normal(N_ROWS),
            "count": rng.integers(-5, 5, N_ROWS),
            "flag": rng.random(N_ROWS) < 0.5,
            "y": np.where(rng.random(N_ROWS) < 0.01, np.nan, rng.standard_normal(N_ROWS)),
        }
    )


def write_csv(frame, folder, name="t.csv"):
    frame.assign(name="x").to_csv(folder / name, index=False)
    return folder / name


def write_csv_gz(frame, folder):
    return write_csv(frame, folder, "t.csv.gz")


def write_parquet(frame, folder):
    frame.assign(name="x").to_parquet(folder / "t.parquet", row_group_size=90)
    return folder / "t.parquet"


def write_parquet_folder(frame, folder):
    (folder / "f.parquet").mkdir()
    for i in range(4):
        frame[250 * i : 250 * (i + 1)].to_parquet(folder / "f.parquet" / f"part-{i}.parquet", row_group_size=100)
    return folder / "f.parquet"


def write_zarr_columns(frame, folder):
    columns = {name: ("row", frame[name].to_numpy()) for name in frame}
    dataset = xr.Dataset({**columns, "other": ("else", np.arange(3.0)), "name": ("row", np.array(["x"] * N_ROWS))})
    dataset.to_zarr(
        folder / "x.zarr", consolidated=False, encoding={name: {"chunks": (60 + len(name),)} for name in frame}
    )
    return folder / "x.zarr"


def write_zarr_matrix(frame, folder):
    array = zarr.create_array(folder / "m.zarr", shape=frame.shape, chunks=(64, 2), dtype="f8")
    array[:] = frame.to_numpy(float)
    array.attrs["columns"] = list(frame)
    return folder / "m.zarr"


def write_zarr_group(frame, folder):
    group = zarr.open_group(folder / "g.zarr", mode="w")
    group.create_array("X", data=frame[["a", "count", "flag"]].to_numpy(float), chunks=(64, 3))
    group["X"].attrs["columns"] = ["a", "count", "flag"]
    group.create_array("y", data=frame["y"].to_numpy(), chunks=(100,))
    return folder / "g.zarr"


def write_zarr_objects(frame, folder):
    url = f"memory://tables/{folder.name}/o.zarr"
    objects, path = open_objects(url)
    array = zarr.create_array(ObjectStore(objects), name=path, shape=frame.shape, chunks=(64, 2), dtype="f8")
    array[:] = frame.to_numpy(float)
    array.attrs["columns"] = list(frame)
    return url


WRITERS = (
    write_csv,
    write_csv_gz,
    write_parquet,
    write_parquet_folder,
    write_zarr_columns,
    write_zarr_matrix,
    write_zarr_group,
    write_zarr_objects,
)


@pytest.mark.filterwarnings("ignore:The data type:UserWarning")  # Zarr's string dtype has no final specification
@pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")
@pytest.mark.parametrize(
    ("write", "part_bytes"),
    [
        *((write, 2**25) for write in WRITERS),
        *(pytest.param(write, 3000, marks=pytest.mark.slow) for write in WRITERS[:5]),
        *(pytest.param(write, 3000, marks=(pytest.mark.slow, pytest.mark.exhaustive)) for write in WRITERS[5:]),
    ],
)
def test_formats_are_equivalent(client, tmp_path, monkeypatch, frame, write, part_bytes):
    monkeypatch.setattr(pipeline.tables.formats, "PART_BYTES", part_bytes)
    path = str(write(frame, tmp_path))
    for features in (["a", "count", "flag"], ["flag", "a"], ["count"], []):
        table = open_table(path, "y", features)
        assert table.columns == (*features, "y")
        pieces = reduce_rows([table.rows], collect, join, cluster=client)
        np.testing.assert_array_equal(whole(pieces, 0), frame[[*features, "y"]].to_numpy(float))
        assert (len(pieces) > 1) == (part_bytes == 3000 or write is write_parquet_folder)


def test_all_other_columns_are_features(tmp_path, frame):
    assert open_table(str(write_zarr_matrix(frame, tmp_path)), "count").columns == ("a", "flag", "y", "count")


def test_unnamed_columns_get_names(tmp_path):
    zarr.create_array(tmp_path / "t.zarr", data=np.ones((5, 2)))
    group = zarr.open_group(tmp_path / "g.zarr", mode="w")
    group.create_array("X", data=np.ones((5, 2)))
    group.create_array("y", data=np.ones(5))
    assert open_table(str(tmp_path / "t.zarr"), "column_1").columns == ("column_0", "column_1")
    assert open_table(str(tmp_path / "g.zarr"), "y").columns == ("X_0", "X_1", "y")


def test_csv_without_final_newline_or_with_byte_order_mark(client, tmp_path):
    (tmp_path / "t.csv").write_bytes("\ufeffa, y\r\n1, 2\r\n3,  4".encode())
    table = open_table(str(tmp_path / "t.csv"), "y")
    np.testing.assert_array_equal(whole(reduce_rows([table.rows], collect, join, cluster=client), 0), [[1, 2], [3, 4]])


def refused(path, target="y", features=None, client=None):
    """Return the one-line error that is raised when a table is opened or read."""
    with refusal() as caught:
        reduce_rows([open_table(str(path), target, features).rows], collect, join, cluster=client)
    return str(caught.value)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("column 'y' must be a finite number, got something else in data row 1;", "a,y\n1,x\n2,z\n"),
        ("column 'a' must be a finite number, got something else in data row 1;", "a,y\nx,1\nz,2\n"),
        ("the first line must name every column, got none for column 2", "a,\n1,2\n"),
        ("the first line must name every column, got an empty line", ""),
        ("got duplicates: a", "a,a,y\n1,2,3\n"),
        ("at least one row, got none", "a,y\n"),
        ("column 'y' must be followed by no further field, got something else in data row 2", "a,y\n1,2\n1,5,2,5\n"),
        ("column 'y' must be followed by no further field, got something else in data row 1", "a,y\n1,5,,9\n"),
        ("column 'y' must be followed by no further field, got something else in data row 2", "a,y\n1,2\n7,2,\n"),
        ("column 'z' must be followed by no further field, got something else in data row 1", "a,y,z\n7,1234,56,\n"),
        (
            "column 'z' must be followed by no further field, got something else in data row 2",
            'a,y,z\n1,2,"\n,"\n"1",2,5,',
        ),
        ("the first line must name every column, got none for column 3", "a,y,\n1,2,\n"),
    ],
)
def test_invalid_csv_is_rejected(client, tmp_path, message, text):
    (tmp_path / "t.csv").write_text(text)
    assert message in refused(tmp_path / "t.csv", client=client)


def test_csv_with_an_invalid_later_line(client, tmp_path, monkeypatch):
    monkeypatch.setattr(pipeline.tables.formats, "PART_BYTES", 8000)
    lines = ["1,2"] * 5000
    for bad, column in (
        ("1,x", "y"),
        ('1,"2\n3"', "y"),
        ("1,2,3", "y"),
        ("1,2,", "y"),
        ("nan,2", "a"),
        ("inf,2", "a"),
        ("1_0,2", "a"),
    ):
        lines[4000] = bad
        (tmp_path / "t.csv").write_text("a,y\n" + "\n".join(lines) + "\n")
        message = refused(tmp_path / "t.csv", client=client)
        assert f"column {column!r} must be " in message
        assert "got something else in data row 4001; " in message
        assert message.endswith("(this message depends on the records: do not publish it)")
        assert bad not in message


@pytest.mark.slow
def test_rows_with_line_breaks_in_quotes_are_read_whole(client, tmp_path, monkeypatch):
    """Parts end at rows, also where a part would end within quotes, and quotes within a field are text."""
    texts = ['"two\nlines"', "plain", '"a ""quoted"" word"', '5" pipe', '"\n\n"']
    rows = [f"{k},{texts[k % len(texts)]},{k / 8}" for k in range(2000)]
    (tmp_path / "t.csv").write_text("a,text,y\n" + "\n".join(rows) + "\n")
    for part_bytes in (100, 8000, 2**25):
        monkeypatch.setattr(pipeline.tables.formats, "PART_BYTES", part_bytes)
        table = open_table(str(tmp_path / "t.csv"), "y", ["a"])
        expected = np.column_stack([np.arange(2000), np.arange(2000) / 8])
        np.testing.assert_array_equal(whole(reduce_rows([table.rows], collect, join, cluster=client), 0), expected)


def test_unknown_columns_are_rejected(tmp_path, frame):
    path = write_zarr_matrix(frame, tmp_path)
    assert "unknown column 'flags'; did you mean flag?" in refused(path, features=["flags"])
    assert "unknown column 'z'" in refused(path, target="z")
    assert "column y occurs twice" in refused(path, features=["a", "y"])
    assert "column a occurs twice" in refused(path, features=["a", "a"])


@pytest.mark.parametrize(
    "url",
    ["s3://me:hush@bucket/t.parquet", "https://me:hu/sh@host/t.csv", "https://host/t.csv?token=hush", "s3://hush@b"],
)
def test_urls_with_credentials_are_rejected_without_them(url):
    message = refused(url)
    assert "must contain no credentials and no options" in message
    assert "hu/sh" not in message


def test_paths_that_are_not_tables_are_rejected(tmp_path):
    assert "must end in .zarr, .parquet, .csv, .csv.gz" in refused(tmp_path / "t.csv.bz2")
    assert "no table at" in refused(tmp_path / "t.csv")
    for suffix in ("zarr", "parquet"):
        path = tmp_path / f"t.{suffix}"
        path.write_text("no such thing")
        assert f"cannot read {path} as {suffix}" in refused(path)
    (tmp_path / "empty.parquet").mkdir()
    assert "must contain .parquet files" in refused(tmp_path / "empty.parquet")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\n\x00")
    assert "as csv: it is not UTF-8 text; check" in refused(tmp_path / "binary.csv")


def test_mismatched_zarr_arrays_are_rejected(tmp_path):
    group = zarr.open_group(tmp_path / "g.zarr", mode="w")
    group.create_array("a", data=np.ones(5))
    group.create_array("y", data=np.ones(6))
    group.create_array("packed", data=np.ones(6, dtype="i2"), attributes={"scale_factor": 0.1})
    assert "equal numbers of rows, got a 5, y 6" in refused(tmp_path / "g.zarr", features=["a"])
    waits = xr.Dataset(
        {"waits": ("row", np.array([3600, 7200] * 3, "timedelta64[s]")), "short": ("row", np.ones(6, int))}
    )
    waits["short"].attrs["units"] = "minutes"  # as older versions of xarray describe durations
    waits.to_zarr(tmp_path / "g.zarr", mode="a", consolidated=False)
    for name in ("packed", "waits", "short"):
        assert f"column {name} must contain numbers or text" in refused(tmp_path / "g.zarr", features=[name])
    group.create_array("X", data=np.ones((6, 2)), attributes={"columns": ["b"]})
    assert "the attribute columns of X must name 2 columns, got ['b']" in refused(tmp_path / "g.zarr")
    group["X"].attrs["columns"] = ["a", "b"]
    assert "got duplicates: a" in refused(tmp_path / "g.zarr")


def test_mismatched_parquet_files_are_rejected(client, tmp_path, frame):
    path = write_parquet_folder(frame, tmp_path)
    frame[["a", "y"]].to_parquet(path / "part-9.parquet")
    assert "part-9.parquet without count" in refused(path)


def test_parquet_without_pyarrow(tmp_path, monkeypatch, frame):
    path = write_parquet(frame, tmp_path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "pip install 'dpstudies[tables]'" in refused(path)


def test_table_that_changes_while_it_is_read(client, tmp_path):
    (tmp_path / "t.csv").write_text("a,y\n1,2\n3,4\n")
    rows = open_table(str(tmp_path / "t.csv"), "y").rows
    (tmp_path / "t.csv").write_text("a,y\n1,2\n")
    with pytest.raises(BadInputError, match=r"t.csv must not change while the table is read, got another file; read"):
        reduce_rows([rows], collect, join, cluster=client)


def numbers_of(path, column, literal=None):
    """Return a column as numbers, or 1 for the cells that equal a literal and 0 for others, in one part."""
    source = find_source(str(path))
    encoders = {} if literal is None else {column: lambda words: 1 - match_literals(words, [Literal.parse(literal)])}
    parts = find_parts(source, str(path), [column])
    return np.concatenate([read_part(source, str(path), part, Columns((column,), encoders))[:, 0] for part in parts])


def test_encoded_zarr_arrays_are_refused(tmp_path):
    """Stored numbers of times, packed numbers and numbers with a fill value stand for others."""
    values = np.array([1.0, 2.0, np.nan, 4.0])
    times = np.array(["2020-01-01", "2020-01-02", "2020-01-03", "2020-01-04"], dtype="datetime64[ns]")
    data = xr.Dataset({"a": ("r", values), "b": ("r", values), "c": ("r", values), "t": ("r", times)})
    encoding = {
        "b": {"dtype": "int32", "_FillValue": -9999},
        "c": {"dtype": "int16", "add_offset": 1.0, "_FillValue": -1},
    }
    data.to_zarr(tmp_path / "x.zarr", consolidated=False, encoding=encoding)
    for name in ("b", "c", "t"):
        assert f"column {name} must contain numbers or text" in refused(tmp_path / "x.zarr", "a", [name])
    np.testing.assert_array_equal(numbers_of(tmp_path / "x.zarr", "a"), values)


def test_stored_numbers_equal_literals_of_their_value(tmp_path):
    decimals = pa.array([Decimal("0"), Decimal("1.5"), Decimal("0.0000000001")], pa.decimal128(20, 10))
    columns = {"d": decimals, "f": [1e-5, 1e16, 0.5], "s": pa.array([0.1, 2.0, 1e-7], pa.float32())}
    columns["h"] = pa.array(np.array([0.1, 2.0, 0.5], np.float16))
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    for name, literals in (
        ("d", ["0", "1.5", "0.0000000001"]),
        ("f", ["0.00001", "10000000000000000", "0.50"]),
        ("s", ["0.1", "2", "0.0000001"]),
        ("h", ["0.1", "2.0", "0.5"]),
    ):
        for row, literal in enumerate(literals):
            assert numbers_of(tmp_path / "t.parquet", name, literal).tolist() == np.eye(3)[row].tolist()
        assert numbers_of(tmp_path / "t.parquet", name).tolist() == list(map(float, literals))  # as in a CSV file


def test_folders_with_other_files_or_types_are_refused(tmp_path):
    folder = tmp_path / "f.parquet"
    folder.mkdir()
    pq.write_table(pa.table({"y": ["yes", "no"]}), folder / "0.parquet")
    pq.write_table(pa.table({"y": [b"yes"] * 20}), folder / "1.parquet")
    assert "all columns with numbers or text, got" in refused(folder)
    (folder / "1.parquet").unlink()
    (folder / "p=1").mkdir()
    assert "must contain .parquet files without subfolders, got also" in refused(folder)


def test_names_may_have_line_breaks_in_quotes(tmp_path):
    (tmp_path / "t.csv").write_text('"x\ny",z\n1,2\n3,4\n')
    assert numbers_of(tmp_path / "t.csv", "x\ny").tolist() == [1, 3]


def test_damaged_files_are_rejected_without_a_part_of_their_text(client, tmp_path):
    path, text = tmp_path / "t.csv.gz", b"a,y\n" + b"37,2\n" * 50_000
    content = gzip.compress(text)
    wrong_checksum = content[:-8] + bytes(4) + content[-4:]
    for damaged in (wrong_checksum, text, content + b"37", content[:-4], content[: len(content) // 2]):
        path.write_bytes(damaged)
        message = refused(path, client=client)
        assert "its compressed content is damaged or ends early; " in message
        assert not re.search("37|0x|b'", message.replace(str(path), ""))
    for text in (b'a,y\n1,"2\n', b"a,y\n1,2\n\xff,3\n", b"a,y\n1,2\r3,4\n", b"a,y\n1\0,2\n"):
        (tmp_path / "u.csv").write_bytes(text)
        assert refused(tmp_path / "u.csv", client=client).endswith("depends on the records: do not publish it)")
