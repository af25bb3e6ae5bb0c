"""Tests of the shipped data sets, of their encoding and splits as in P3, and of users' CSV files."""

import csv
import gzip
import hashlib
import os
import re
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from pipeline import BadInputError
from studies.data import load, read_csv, records, shipped, split

DATA = Path(shipped.__file__).parent
NAMES = ("abalone", "adult", "mnist")


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def rows_of(name):
    with gzip.open(DATA / f"{name}.csv.gz", "rt", newline="") as file:
        return list(csv.reader(file))[1:]


def join(rows, comma, end):
    return "".join(comma.join(row) + end for row in rows)


# Shipped files


@pytest.mark.slow
def test_original_files_can_be_rebuilt():
    """The files of the UCI repository can be rebuilt from the shipped files, with the published digests."""
    test = "|1x3 Cross validator\n" + join(rows_of("adult_test"), ", ", ".\n") + "\n"
    rebuilt = {
        "abalone.data": join(rows_of("abalone"), ",", "\n"),
        "adult.data": join(rows_of("adult_train"), ", ", "\n") + "\n",
        "adult.test": test,
    }
    licences = (DATA / "LICENCES.md").read_text()
    for name, text in rebuilt.items():
        assert f"| `{name}` | SHA-256 `{sha256(text.encode())}` |" in licences
    assert sha256(test.replace("39", "93", 1).encode()) not in licences


def test_images_of_mnist():
    with np.load(DATA / "mnist_3_8.npz") as arrays:
        images, labels = arrays["images"], arrays["labels"]
    assert (images.shape, images.dtype) == ((11_982, 784), np.uint8)
    assert sha256(images.tobytes()) == "d9c0f8ebcece7bef4d33b4a893a7fabcdb29c2f5a799b6ef1cc44fed962a5a8d"
    assert np.unique(labels, return_counts=True)[1].tolist() == [6131, 5851]
    assert sorted(set(labels.tolist())) == [3, 8]
    assert (images.min(axis=0) == images.max(axis=0)).sum() == 161


def test_licences_name_every_shipped_file_with_its_digest():
    licences = (DATA / "LICENCES.md").read_text()
    files = [path for path in DATA.iterdir() if path.is_file() and path.suffix not in (".py", ".md")]
    assert len(files) == 4
    for path in files:
        assert f"| `{path.name}` | `{sha256(path.read_bytes())}` |" in licences


@pytest.mark.slow
def test_known_totals():
    abalone = pd.DataFrame(rows_of("abalone"))
    assert abalone.shape == (4177, 9)
    assert abalone[0].value_counts().to_dict() == {"M": 1528, "I": 1342, "F": 1307}
    assert (abalone[8].astype(int) >= 10).sum() == 2081
    train, test = rows_of("adult_train"), rows_of("adult_test")
    assert (len(train), len(test), len(train[0])) == (32_561, 16_281, 15)
    assert sum("?" in row for row in train) == 2399
    assert sum("?" in row for row in test) == 1221


# Encoding


@pytest.mark.slow
def test_dropping_one_level_gives_the_columns_of_the_paper():
    """Dropping one level per column gives the 9 and 100 columns of P3; other encodings give other numbers."""

    def counts(*names):
        frame = pd.DataFrame([row for name in names for row in rows_of(name)]).iloc[:, :-1]
        texts = [frame[k] for k in frame if pd.to_numeric(frame[k], errors="coerce").isna().any()]
        n_numbers = frame.shape[1] - len(texts)
        n_levels = sum(text.nunique() for text in texts)
        n_unknown = sum((text == "?").any() for text in texts)
        n_left = n_numbers + n_levels - len(texts)
        return n_left, n_numbers + n_levels, n_left - n_unknown, n_numbers + n_levels - n_unknown

    assert counts("abalone") == (9, 10, 9, 10)
    assert counts("adult_train", "adult_test") == (100, 108, 97, 105)
    assert load("abalone").x.shape == (4177, 9)
    assert load("adult").x.shape == (48_842, 100)
    assert load("mnist").x.shape == (11_982, 784)


def independently(name):
    """Return features and classes by the formulas of P3, with indicators computed by pandas."""
    if name == "mnist":
        with np.load(DATA / "mnist_3_8.npz") as arrays:
            raw, positive = pd.DataFrame(arrays["images"].astype(float)), arrays["labels"] == 8
    else:
        files = [f"adult_{part}" for part in ("train", "test")] if name == "adult" else [name]
        frame = pd.concat([pd.read_csv(DATA / f"{file}.csv.gz", na_values=[], keep_default_na=False) for file in files])
        last = frame.columns[-1]
        positive = (frame[last] == ">50K" if name == "adult" else frame[last] <= 9).to_numpy()
        raw = pd.get_dummies(frame.drop(columns=last), drop_first=True, dtype=float)
    low, high = raw.min(), raw.max()
    scaled = ((raw - low) / (high - low).replace(0, np.nan) - 0.5).fillna(0.0)
    return scaled.div(np.sqrt((scaled**2).sum(axis=1)), axis=0), positive


@pytest.mark.parametrize("name", [NAMES[0], *(pytest.param(name, marks=pytest.mark.slow) for name in NAMES[1:])])
def test_encoding_against_pandas(name):
    table = load(name)
    expected, positive = independently(name)
    np.testing.assert_array_equal(table.y, positive)
    given = pd.DataFrame(table.x, columns=[re.sub("=", "_", column, count=1) for column in table.columns])
    if name == "mnist":
        expected.columns = given.columns
    np.testing.assert_allclose(given[expected.columns], expected, rtol=1e-13, atol=1e-15)
    assert len(set(table.columns)) == expected.shape[1]


@pytest.mark.parametrize("name", NAMES)
def test_tables(name):
    table = load(name)
    assert (table.x.dtype, table.y.dtype) == (np.float64, np.int8)
    assert table.x.flags.c_contiguous
    assert not table.x.flags.writeable
    assert not table.y.flags.writeable
    np.testing.assert_allclose(np.linalg.norm(table.x, axis=1), 1.0, rtol=1e-14)
    assert len(table.constant) == (161 if name == "mnist" else 0)
    assert not table.x[:, [table.columns.index(column) for column in table.constant]].any()
    assert load(name) is table


def test_classes():
    """Class 1 is as in P3: fewer than 10 rings, an income above 50K, and the digit 8."""
    assert {name: (load(name).classes, int(load(name).y.sum())) for name in NAMES} == {
        "abalone": (("rings >= 10", "rings < 10"), 4177 - 2081),
        "adult": (("<=50K", ">50K"), 11_687),
        "mnist": (("3", "8"), 5851),
    }


def test_unknown_name_is_refused():
    with pytest.raises(ValueError, match=r"^unknown data set 'abalon'; did you mean abalone\? Allowed: abalone, adult"):
        load("abalon")


@pytest.mark.timing
@pytest.mark.parametrize("name", NAMES)
def test_reading_is_quick(name):
    started = time.process_time()
    shipped._READERS[name]()
    assert time.process_time() - started < 5.0


# Splits

SIZES = {"abalone": (2784, 1393), "adult": (32_561, 16_281), "mnist": (7988, 3994)}


def sizes_of(data):
    return len(data.train_x), len(data.test_x)


@pytest.mark.parametrize("name", NAMES)
def test_fixed_split(name):
    table = load(name)
    data, again = split(table), split(table)
    assert sizes_of(data) == SIZES[name]
    assert (len(data.train_y), len(data.test_y)) == SIZES[name]
    for part in ("train_x", "train_y", "test_x", "test_y"):
        np.testing.assert_array_equal(getattr(data, part), getattr(again, part))
        assert getattr(data, part).flags.c_contiguous
        assert not getattr(data, part).flags.writeable
    assert (data.name, data.columns, data.classes, data.digest) == (name, table.columns, table.classes, table.digest)
    assert_same_records(data, table)


def test_fixed_split_is_reproducible():
    """The classes of the test records have known digests, which another random stream would change."""
    digests = {name: sha256(split(load(name)).test_y.tobytes())[:16] for name in ("abalone", "mnist")}
    assert digests == {"abalone": "7ffa26de9a5895ce", "mnist": "0135259f799c4041"}


@pytest.mark.parametrize("name", NAMES)
def test_random_splits(name):
    table = load(name)
    one, other = split(table, np.random.default_rng(1)), split(table, np.random.default_rng(2))
    assert sizes_of(one) == sizes_of(other) == SIZES[name]
    assert not np.array_equal(one.test_x, other.test_x)
    np.testing.assert_array_equal(one.test_x, split(table, np.random.default_rng(1)).test_x)
    assert_same_records(one, table)


def assert_same_records(data, table):
    """Assert that training and test records together are those of the table, each once and with its class."""
    rng = np.random.default_rng(0)
    weights = rng.normal(size=table.x.shape[1])  # projections identify the records
    x = np.vstack([data.train_x, data.test_x])
    y = np.concatenate([data.train_y, data.test_y])
    given, expected = (values @ weights + 100 * classes for values, classes in ((x, y), (table.x, table.y)))
    np.testing.assert_allclose(np.sort(given), np.sort(expected), rtol=0, atol=1e-12)


def test_adult_comes_split():
    data, table = split(load("adult")), load("adult")
    np.testing.assert_array_equal(data.train_x, table.x[:32_561])
    np.testing.assert_array_equal(data.test_y, [row[-1] == ">50K" for row in rows_of("adult_test")])


@pytest.mark.parametrize(("n", "expected"), [(4, (2, 2)), (5, (3, 2)), (6, (4, 2)), (7, (4, 3))])
def test_number_of_test_records_is_rounded_up(tmp_path, n, expected):
    table = read_csv(write(tmp_path, "a,y\n" + "".join(f"{k},{k % 2}\n" for k in range(n))), "y")
    assert sizes_of(split(table)) == expected


# CSV files of users

GOOD = "size,colour,sold\n1,red,no\n2,blue,yes\n4,red,yes\n3,green,no\n"


def write(folder, text, name="pets.csv"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_small_file_against_hand_computation(tmp_path):
    table = read_csv(write(tmp_path, GOOD), "sold")
    assert (table.name, table.columns, table.classes) == ("pets", ("size", "colour=green", "colour=red"), ("no", "yes"))
    assert table.y.tolist() == [0, 1, 1, 0]
    scaled = np.array([[-3, -3, 3], [-1, -3, -3], [3, -3, 3], [1, 3, -3]]) / 6
    np.testing.assert_allclose(table.x, scaled / np.linalg.norm(scaled, axis=1)[:, None], rtol=1e-15)
    assert table.digest == sha256(GOOD.encode())


@pytest.mark.parametrize(
    ("values", "classes", "expected"),
    [
        ("0110", ("0", "1"), [0, 1, 1, 0]),
        (["1.0", "2.5"] * 2, ("1", "2.5"), [0, 1, 0, 1]),
        (["True", "False"] * 2, ("False", "True"), [1, 0, 1, 0]),
    ],
    ids=["integers", "floats", "booleans"],
)
def test_targets_of_any_kind(tmp_path, values, classes, expected):
    path = write(tmp_path, "a,y\n" + "".join(f"{k},{value}\n" for k, value in enumerate(values)))
    assert read_csv(path, "y").classes == classes
    assert read_csv(path, "y").y.tolist() == expected


@pytest.mark.parametrize(
    "content",
    [GOOD.replace(",", ", "), "\ufeff" + GOOD, GOOD.replace("\n", "\r\n"), GOOD.replace("red", '"red"'), "\n" + GOOD],
    ids=["blanks", "byte order mark", "windows", "quotes", "empty line"],
)
def test_spellings_of_the_same_file(tmp_path, content):
    plain, other = (read_csv(write(tmp_path, text, f"{k}.csv"), "sold") for k, text in enumerate((GOOD, content)))
    np.testing.assert_array_equal(plain.x, other.x)
    assert (plain.columns, plain.classes) == (other.columns, other.classes)


def test_compressed_file(tmp_path):
    table = read_csv(write(tmp_path, gzip.compress(GOOD.encode()), "pets.csv.gz"), "sold")
    assert (table.name, table.y.tolist()) == ("pets", [0, 1, 1, 0])


@pytest.mark.parametrize(
    ("rows", "column", "expected"),
    [
        ("a,y\n0,0\n2,1\n1,0\n2,0\n", "a", [-1, 1, 0, 1]),
        ("old,y\nTrue,0\nFalse,1\nTrue,1\nFalse,0\n", "old=True", [1, -1, 1, -1]),
    ],
    ids=["middle of a range", "booleans"],
)
def test_scaled_numbers_and_categories(tmp_path, rows, column, expected):
    table = read_csv(write(tmp_path, rows), "y")
    assert (table.columns, table.x[:, 0].tolist()) == ((column,), expected)


def test_numbers_of_any_size(tmp_path):
    """Scaling is correct even if a range overflows a double, or a value overflows a 64-bit integer."""
    lines = ("1.7e308,99999999999999999999999", "-1.7e308,1", "0,1", "0,1")
    table = read_csv(write(tmp_path, "a,b,y\n" + "".join(f"{line},{k % 2}\n" for k, line in enumerate(lines))), "y")
    np.testing.assert_allclose(table.x, [[0.5**0.5] * 2, [-(0.5**0.5)] * 2, [0, -1], [0, -1]], rtol=1e-15)


def test_constant_columns_become_zero_with_a_warning(tmp_path):
    path = write(tmp_path, "a,b,c,y\n7,u,1,0\n7,u,2,1\n7,u,3,1\n7,u,4,0\n")
    with pytest.warns(UserWarning, match=r"pets.csv: constant columns carry no information and become 0: 'b', 'a'$"):
        table = read_csv(path, "y")
    assert (table.columns, table.constant) == (("a", "c"), ("b", "a"))
    assert table.x.tolist() == [[0, -1], [0, -1], [0, 1], [0, 1]]


IDENTIFIERS = "id,y\n" + "".join(f"u{k},{k % 2}\n" for k in range(12))
REFUSED = [
    (
        b"",
        r"cannot read .*pets.csv as CSV: No columns .*; the file must be UTF-8 text with column names in the first row",
    ),
    (GOOD.encode("utf-16"), "cannot read .*pets.csv as CSV: .*; the file must be UTF-8"),
    (GOOD + "5,red,no,9\n", "cannot read .*pets.csv as CSV: .*Expected 3 fields in line 6, saw 4"),
    (GOOD.replace("no\n", "no,0\n").replace("yes\n", "yes,1\n"), "cannot read .*pets.csv as CSV: .*in line 2, saw 4"),
    (GOOD.replace("size", "colour"), "column names must be unique, got duplicates: colour"),
    (GOOD.replace("size", ""), "every column must have a name, got none for column 1; add it"),
    (GOOD.replace("sold", "bought"), "unknown target column 'sold'; allowed: size, colour, bought"),
    (GOOD.replace("sold", "solid"), r"unknown target column 'sold'; did you mean solid\? Allowed"),
    (GOOD.replace(",", ";"), "must have at least two columns, separated by commas, got one: 'size;colour;sold'"),
    ("sold\nno\nyes\nno\nyes\n", "must have at least two columns"),
    ("size,colour,sold\n1,red,no\n2,red,yes\n3,red,yes\n", "must have at least 4 rows below the names, got 3"),
    (GOOD.replace("yes", "no"), "target 'sold' must have two different values, got 1"),
    (GOOD + "5,red,maybe\n6,red,perhaps\n", "target 'sold' must have two different values, got 4"),
    (GOOD.replace("4,red", "4,"), "no missing values, got an empty field in data row 3, column 'colour'; impute such"),
    (
        GOOD.replace("4,red", ","),
        "no missing values, got an empty field in data row 3, column 'size'",
    ),
    (GOOD + "5,red\n", "no missing values, got an empty field in data row 5, column 'sold'"),
    (GOOD.replace("2,blue", "-inf,blue"), "must have finite numbers, got another value in data row 2, column 'size'"),
    (
        GOOD.replace("4,", "?,"),
        "column 'size' must be all numbers or all text, got text in data row 3 where most are numbers",
    ),
    (
        "g,g=B,y\nA,1,0\nB,2,1\nA,3,0\nB,5,1\n",
        "must give columns with different names, got 'g=B' twice, such as a column 'A=B' and",
    ),
    (IDENTIFIERS, "column 'id' must be numbers or categories, got 12 different texts in 12 rows"),
    ("a,y\n5,0\n5,1\n5,0\n5,1\n", "must have a column that varies in addition to the target 'y', got none"),
    ("a,y\nu,0\nu,1\nu,0\nu,1\n", "must have a column that varies in addition to the target 'y', got none"),
]


def test_words_for_missing_values_are_categories(tmp_path):
    table = read_csv(write(tmp_path, "kind,n,y\nNA,1,0\nNone,2,1\nnull,3,1\nnan,4,0\n"), "y")
    assert table.columns == ("kind=None", "kind=nan", "kind=null", "n")


@pytest.mark.parametrize(("content", "message"), REFUSED, ids=range(len(REFUSED)))
def test_invalid_file_is_refused(tmp_path, content, message):
    path = write(tmp_path, content)
    with pytest.raises(BadInputError, match=message) as caught:
        read_csv(path, "y" if b",y\n" in path.read_bytes() else "sold")
    assert "pets.csv" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_files_that_cannot_be_read(tmp_path):
    for path, reason in (
        (tmp_path / "no.csv", "No such file"),
        (tmp_path, "not a regular file"),
        ("http://a.b/c.csv", "No such"),
    ):
        with pytest.raises(BadInputError, match=f"^cannot read {path}: .*{reason}.*; give the path of a CSV file"):
            read_csv(path, "y")
    with pytest.raises(BadInputError, match=r"as CSV: its compressed content is damaged or ends early; the file must"):
        read_csv(write(tmp_path, "plain", "d.csv.gz"), "y")


def test_too_many_columns_are_refused(tmp_path, monkeypatch):
    """Tables with too many encoded columns, or columns that need too much memory, are refused."""
    levels = "id,y\n" + "".join(f"k{k // 2},{k % 2}\n" for k in range(10_004))
    message = r"at most 5,000 columns and 2 GB, got 5,001 columns and 0.4 GB, up to 5,001 columns from one \('id'\)"
    with pytest.raises(BadInputError, match=message):
        read_csv(write(tmp_path, levels), "y")
    monkeypatch.setattr(records, "_MOST_BYTES", 1919)  # four rows, for each of which the sampler holds sixty numbers
    with pytest.raises(BadInputError, match=r"1.92e-06 GB, got 3 columns and 1.92e-06 GB, up to 2 columns"):
        read_csv(write(tmp_path, GOOD, "other.csv"), "sold")
    monkeypatch.setattr(records, "_MOST_BYTES", 1920)
    assert read_csv(write(tmp_path, GOOD, "other.csv"), "sold").x.nbytes == 96


@pytest.mark.slow
def test_error_for_thousands_of_columns_lists_the_nearest_names(tmp_path):
    head = ",".join([f"gene{k}" for k in range(4000)] + ["healthy"])
    path = write(tmp_path, head + "\n" + 4 * (",".join("0" * 4001) + "\n"))
    with pytest.raises(BadInputError, match=r"unknown target column 'health'; did you mean healthy\?") as caught:
        read_csv(path, "health")
    assert len(str(caught.value)) < 500


def test_file_is_read_again_only_after_a_change(tmp_path):
    path = write(tmp_path, GOOD)
    first = read_csv(path, "sold")
    assert read_csv(str(path), "sold") is first
    write(tmp_path, GOOD.replace("4,red", "5,red"))
    os.utime(path, ns=(1, 1))  # the resolution of the clock may be too coarse to detect the change
    changed = read_csv(path, "sold")
    assert changed.digest != first.digest
    assert not np.array_equal(changed.x, first.x)


# A study of a user's file, from the command to the report

STUDY_FILE = """
from pipeline import Factor, Measure, Method, Panel, Study
from studies import data

def share(data, setting, streams):
    return {"share": data.train_y.mean()}

def shipped(cell, streams):
    return data.split(data.load("abalone"))

def given(cell, streams):
    return data.split(data.read_csv(cell["data"], cell["target"]))

def accept(cell, setting):
    data.read_csv(cell["data"], cell["target"])
    return True

COMMON = {"methods": (Method("share", share),), "measures": (Measure("share", "share of class 1"),), "method_dim": None}
CONSTANTS = (Factor("data", ("data.csv",), "a file", "str"), Factor("target", ("target",), "a column", "str"))
STUDY = Study("shares", "Shares", "To test.", (
    Panel("abalone", "shipped", shipped, **COMMON),
    Panel("csv", "a user's", given, constants=CONSTANTS, validate=accept, on_demand=True, **COMMON),
), seed=1)
"""


@pytest.mark.slow
def test_panel_on_demand_by_command(command, refused, tmp_path):
    """A panel on demand is computed if it is named or has a value set for it alone; errors write nothing."""
    Path("study.py").write_text(STUDY_FILE)
    Path("pets.csv").write_text(GOOD)
    chosen = ("--set", "data=pets.csv", "--set", "target=sold")
    code, out, _ = command("plan", "study.py")
    assert (code, "abalone" in out, "csv" in out) == (0, True, False)
    for words, message in (
        (
            ("--panel", "abalone", *chosen),
            "data belongs to panel csv, which is computed on demand only; add --panel csv",
        ),
        (("--panel", "csv"), "panel csv: cannot read data.csv: No such file or directory"),
        (("--panel", "csv", *chosen[:3], "target=sole"), "unknown target column 'sole'; did you mean sold?"),
    ):
        refused("run", "study.py", "--store", "s.zarr", *words, message=message)
    assert command("plan", "study.py", "--panel", "csv", *chosen)[0] == 0
    for words in (chosen, ("--panel", "csv", *chosen)):
        assert command("run", "study.py", "--store", "s.zarr", *words)[0] == 0
    assert command("resume", "s.zarr")[0] == 0
    assert command("trial", "s.zarr", "--panel", "csv", "--trial", "0")[0] == 0
    ds = xr.open_zarr("s.zarr", group="csv")
    expected = split(read_csv("pets.csv", "sold")).train_y.mean()
    assert (ds.data.item(), ds.target.item(), float(ds.share)) == ("pets.csv", "sold", expected)
    assert command("report", "s.zarr")[0] == 0
    assert command("run", "study.py", "--store", "both.zarr", "--panel", "csv,abalone", *chosen)[0] == 0
    assert set(xr.open_datatree("both.zarr", engine="zarr").children) == {"abalone", "csv"}


def test_list_marks_panels_on_demand(command):
    Path("study.py").write_text(STUDY_FILE)
    assert "\npanel csv (on demand): a user's\n" in command("list", "study.py")[1]
