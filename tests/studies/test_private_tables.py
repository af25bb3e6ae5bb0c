"""Tests of the tables of private records that all commands read: formats, conditions, levels, and messages."""

import json
import os
import re
import shlex
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from studies.own_data.conditions import Condition, divide_range, label_bins
from tests.studies.neighbouring import shorten_inference

SECRET = "48151.62342"
ACCOUNT = ("--epsilon", 50, "--seed", 1)


def estimate(out):
    """Return the first number of the first row of the printed table."""
    return float(out.splitlines()[2].split()[1].replace(",", ""))


@pytest.fixture
def codes(tmp_path):
    lines = ["2E1,9007199254740997,1,NA"] * 40 + ["20,9007199254740996,1.0,north"] * 60
    (tmp_path / "codes.csv").write_text("code,id,k,region\n" + "\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("where", "n_rows"),
    [
        ("code=2E1", 40),
        ("code=20", 60),
        ("code == 20.0", 60),
        ("code!=20", 40),
        ("code=2_0", 0),
        ("code='20'", 60),
        ("id=9007199254740997", 40),
        ("id=9007199254740996", 60),
        ("id<9007199254740997", 60),
        ("id>9007199254740996", 40),
        ("id>=9007199254740996.5", 40),
        ("id<=9007199254740996", 60),
        ("k=01", 0),
        ("k=1", 100),
        ("k='1'", 40),
        ("region=NA", 40),
        ("region!=NA", 60),
    ],
)
def test_count_and_histogram_compare_cells_by_one_rule(printed, codes, where, n_rows):
    out = printed("count", "codes.csv", "--where", where, *ACCOUNT)
    assert estimate(out) == pytest.approx(n_rows, abs=0.3)
    out = printed("proportion", "codes.csv", "--where", where, *ACCOUNT)
    assert estimate(out) == pytest.approx((n_rows + 1) / 102, abs=0.01)
    column, sign, value = re.fullmatch("([a-z]+) *([!<>=]+) *(.+)", where).groups()
    if sign == "=":
        out = printed("histogram", "codes.csv", "--column", column, "--categories", value, *ACCOUNT)
        assert estimate(out) == pytest.approx((n_rows + 1) / 102, abs=0.01)


@pytest.mark.parametrize("others", [["1"], ["1.5"], ["-1"], ["x"]])
def test_order_compares_exact_decimals_beside_any_other_cell(command, tmp_path, others):
    (tmp_path / "t.csv").write_text("a\n" + "9223372036854775808\n" * 5 + "\n".join(others) + "\n")
    for bound, n_rows in (("9223372036854775808", 6), ("9223372036854775807", 1), ("9223372036854775807.9", 1)):
        code, out, err = command("count", "t.csv", "--where", f"a<={bound}", *ACCOUNT)
        if others == ["x"]:
            assert (code, "column 'a' must be a finite number, got something else in data row 6" in err) == (2, True)
        else:
            assert (code, estimate(out)) == (0, pytest.approx(n_rows, abs=0.3))


def test_condition_states_its_rule():
    assert str(Condition.parse("code=20", "t")) == "cells of code that equal the number 20, in plain decimal form"
    assert str(Condition.parse("code='20'", "t")) == "cells of code that equal the text '20'"
    assert str(Condition.parse("age >= 1e2", "t")) == "cells of age whose exact decimal number is >= 1e2"
    assert Condition.parse("name='a<=b'", "t").literal.text == "a<=b"


def test_bins_of_a_range_have_exact_edges():
    edges = divide_range(Decimal(0), Decimal(1), 10)
    assert [str(edge.normalize()) for edge in edges[1:4]] == ["0.1", "0.2", "0.3"]  # 3·0.1 > 0.3 in doubles
    assert label_bins(divide_range(Decimal(0), Decimal("2e5"), 2)) == (
        "< 0",
        "0 to 100,000",
        "100,000 to 200,000",
        ">= 200,000",
    )


@pytest.mark.slow
def test_levels_that_look_like_missing_values_are_levels(command, tmp_path, monkeypatch):
    """Renamed levels give the same release, in all formats; a refusal or a dropped row would change it."""
    rng = np.random.default_rng(1)
    rows = 4000
    is_some = np.arange(rows) >= 1971
    x, y = rng.uniform(0, 1, rows), 5.0 * is_some + rng.normal(0, 1, rows)
    words = ("--target", "y", "--range", "y=-5:10", "--range", "x=0:1", "--epsilon", 3, "--seed", 1)

    def write(first, second):
        frame = pd.DataFrame({"x": x, "alc": np.where(is_some, second, first), "y": y})
        frame.to_csv(tmp_path / "t.csv", index=False)
        frame.to_parquet(tmp_path / "t.parquet")
        return "--levels", f"alc={first},{second}"

    code, out, err = command("regress", "t.csv", *words, *write("None", "Some"), "--json")
    assert code == 0
    assert float(re.search(r"^alc=Some +(\S+)", err, re.MULTILINE)[1]) == pytest.approx(5, abs=0.3)
    releases = []

    def keep(rng, release, *_):
        releases.append(release)
        raise ValueError("no inference")

    monkeypatch.setattr("studies.own_data.regression.regression_from_release", keep)
    for first, second in (("None", "Some"), ("NA", "null"), ("nan", "NaN"), ("A", "B")):
        levels = write(first, second)
        for table in ("t.csv", "t.parquet"):
            for missing in ("refuse", "drop"):
                command("regress", table, *words, *levels, "--missing", missing)
    assert len(releases) == 16
    assert all(np.array_equal(release.noisy, releases[0].noisy) for release in releases)
    assert json.loads(out)["noisy"] == releases[0].noisy.tolist()


DOORS = {
    "mean": "mean --column a --range 0:100",
    "mean of integers": "mean --column code --range 0:5",
    "proportion": "proportion --where region=NA",
    "count of integers": "count --where id=9007199254740993",
    "count of floats": "count --where a>=30.25",
    "count of Booleans": "count --where flag=True",
    "histogram of text": "histogram --column region --categories NA,north",
    "histogram of numbers": "histogram --column a --range 0:100",
    "histogram of floats as categories": "histogram --column a --categories 0.5,1",
    "regress": "regress --target a --features flag,region,code --range a=0:100 --range flag=0:1 "
    "--levels region=NA,north --levels code=1,2",
    "partition": "partition --target a --features b,flag --coefficient b --partitions 5 --cutoffs 0 "
    "--prior conjugate:1",
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.slow
def test_csv_and_parquet_of_a_table_give_equal_releases(command, monkeypatch, tmp_path, door):
    shorten_inference(monkeypatch)
    rng = np.random.default_rng(1)
    rows = 400
    frame = pd.DataFrame(
        {
            "a": rng.integers(0, 400, rows) / 4,
            "b": rng.normal(size=rows) * 1e20,
            "id": np.where(rng.random(rows) < 0.5, 9007199254740993, 9007199254740992),
            "flag": rng.random(rows) < 0.5,
            "code": rng.integers(1, 4, rows),
            "region": rng.choice(["NA", "north", "south"], rows),
        }
    )
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_csv(tmp_path / "t.csv.gz", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    name, *words = DOORS[door].split()
    tables = ("t.csv", "t.csv.gz", "t.parquet")
    results = [command(name, table, *words, "--epsilon", 20, "--seed", 1) for table in tables]
    assert (results[0][0], results[0][2]) == (0, "")
    assert results[0] == results[1] == results[2]


FIRST = "a,b\n" + f"{SECRET},1\n" * 50
BAD_TABLES = {
    "text.csv": f"{FIRST}7{SECRET},2\nsecretly,3\n",
    "missing.csv": FIRST + ",2\n" * 1971 + f"{SECRET},3\n" * 2029,
    "long.csv": f"{FIRST}{SECRET},secretly,3\n",
    "quotes.csv": f'{FIRST}"secretly,3\n',
    "bytes.csv": f"{FIRST}secretly\xff,3\n".encode("latin-1"),
    "headless.csv": f"{SECRET},secretly,b\n{SECRET},1,2\n",
    "twice.csv": f"{SECRET},{SECRET}\n{SECRET},1\n",
}


@pytest.mark.parametrize("table", BAD_TABLES)
@pytest.mark.parametrize("door", ["mean", "count", "histogram", "regress", "partition"])
def test_no_message_has_a_value_or_a_count_of_private_rows(refused, tmp_path, table, door):
    content = BAD_TABLES[table]
    (tmp_path / table).write_bytes(content if isinstance(content, bytes) else content.encode())
    words = {
        "mean": ("--column", "a", "--range", "0:9"),
        "count": ("--where", "a<9"),
        "histogram": ("--column", "a", "--edges", "0:9"),
        "regress": ("--target", "a", "--features", "b", "--range", "a=0:9", "--range", "b=0:9"),
        "partition": ("--target", "a", "--features", "b", "--coefficient", "b", "--partitions", 2, "--cutoffs", "0"),
    }[door]
    is_first = door != "regress" or table not in ("text.csv", "missing.csv", "long.csv", "bytes.csv")
    budget = ("--epsilon", 1e4, "--yes", "--ledger", "l", "--budget", 1e5)
    err = refused(door, table, *words, *budget, is_first=is_first)
    for private in (SECRET, "secretly", "1,971", "1971", "2,029", "2029", "xff"):
        assert private not in err
    if table in ("text.csv", "missing.csv", "long.csv"):
        assert "in data row" in err
        assert err.endswith("(this message depends on the records: do not publish it)\n")


@pytest.mark.slow
def test_markers_state_further_missing_cells(command, refused, tmp_path):
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"x": rng.uniform(0, 1, 500).round(3), "kind": rng.choice(["a", "b"], 500)})
    frame["y"] = frame["x"] + rng.normal(0, 0.1, 500).round(3)
    whole = frame[10:]
    whole.to_csv(tmp_path / "whole.csv", index=False)
    marked = frame.astype(object)
    marked.loc[:4, "x"] = "-9.0"
    marked.loc[5:9, "kind"] = "unknown"
    marked.to_csv(tmp_path / "marked.csv", index=False)
    at = shlex.split("--json --target y --range y=-1:2 --range x=0:1 --levels kind=a,b --epsilon 20 --seed 1")
    code, out, _ = command("regress", "whole.csv", *at)
    assert code == 0
    markers = ("--na", "-9", "--na", "unknown")
    code, dropped, _ = command("regress", "marked.csv", *at, *markers, "--missing", "drop")
    assert code == 0
    find = re.compile('"noisy": (.*)')
    assert find.search(dropped)[1] == find.search(out)[1]
    message = "column 'x' must be present in every row, got a missing cell in data row 1"
    code, out, err = command("regress", "marked.csv", *at, *markers)  # after the forecast
    assert (code, out, message in err.splitlines()[-1]) == (2, "", True)
    refused("mean", "marked.csv", "--column", "x", "--range", "0:1", *ACCOUNT, "--na", "-9", message=message)


def test_headers_that_may_be_records_are_hidden_or_marked(refused, tmp_path):
    """Names are shown, with a note, unless one is a number or a date, which names have not."""
    for first, is_shown in (("Alice,secretly", True), ("2020-01-03,secretly", False), ("secretly,yes,yes,34", False)):
        (tmp_path / "t.csv").write_text(f"{first}\n{first}\n")
        for words in (("count", "t.csv", "--where", "x=1"), ("count", "t.csv", "--where", "x"), ("count", "t.csv")):
            err = refused(*words, "--epsilon", 1, "--yes")
            assert ("secretly" in err) == is_shown
            assert ("if the first line of the file is a record, do not publish this message" in err) == is_shown


def test_one_long_text_or_odd_byte_in_another_column_decides_nothing(printed, tmp_path):
    for odd in (b'"' + b"a" * 200_000 + b'"', b"a" * 200_000, b'"\xc3\xbc, ""x"""'):
        (tmp_path / "t.csv").write_bytes(b"name,x\n" + odd + b',1\n"b",2\n' * 20)
        out = printed("count", "t.csv", "--where", "x>=2", *ACCOUNT)
        assert estimate(out) == pytest.approx(20, abs=0.3)


@pytest.mark.parametrize("name", ["t.parquet", "folder.parquet", "t.csv", "t.csv.gz"])
def test_pipes_are_refused_as_reading_might_never_end(refused, tmp_path, name):
    path = tmp_path / name
    if name == "folder.parquet":
        path.mkdir()
        path = path / "a.parquet"
    os.mkfifo(path)
    refused("count", name, "--where", "x=1", *ACCOUNT, message="not a regular file")
    os.mkfifo(tmp_path / "r.txt")
    refused("regress", "--release", "r.txt", message="not a regular file")


@pytest.fixture
def regression(tmp_path):
    """Return the words of a regression on a table of 1,000 rows, of which 40 are complete."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"x": rng.uniform(0, 1, 1000), "y": rng.uniform(0, 1, 1000)})
    frame.loc[40:, "x"] = np.nan
    frame.to_csv(tmp_path / "t.csv", index=False)
    return ("regress", "t.csv", "--target", "y", "--range", "x=0:1", "--range", "y=0:1", "--epsilon", 200)


def test_outputs_overwrite_neither_the_records_nor_the_ledger(refused, regression, tmp_path):
    (tmp_path / "link.csv").symlink_to(tmp_path / "t.csv")
    drop = ("--missing", "drop", "--yes", "--ledger", "l.json", "--budget", 1000)
    partition = ("partition", "t.csv", "--target", "y", "--coefficient", "x", "--partitions", 4, "--cutoffs", 0)
    for words in (
        (*regression, *drop, "--output", "l.json"),
        (*regression, *drop, "--output", "t.csv"),
        (*regression, *drop, "--output", "link.csv"),
        (*partition, "--epsilon", 1, "--yes", "--output", "t.csv"),
        ("mean", "t.csv", "--column", "y", "--range", "0:1", *ACCOUNT, "--ledger", "p.svg", "--plot", "p.svg"),
    ):
        refused(*words, message="must not overwrite a file that the command reads")


@pytest.mark.slow
def test_dropped_rows_are_stated_wherever_the_guarantee_is(printed, regression, tmp_path):
    """The forecast is that of the complete rows; the ledger, the values and the figure state the assumption."""
    words = (*regression, "--missing", "drop", "--yes", "--ledger", "l", "--budget", 1000)
    out = printed(*words, "--output", "o.json", "--plot", "p.svg")
    assert out.startswith("40 complete rows, which --missing drop makes public; the release spends 200-DP")
    stated = "rows with missing cells are dropped: n = 40 is public, and neighbours have the same ones"
    assert stated in out
    assert stated in json.loads((tmp_path / "o.json").read_text())["neighbours"]
    assert "rows with missing cells are dropped" in (tmp_path / "p.svg").read_text().replace("\n", " ")
    ledger = (tmp_path / "l").read_text()
    assert "complete rows only; neighbours have the same rows with missing cells" in ledger


def test_ranges_beyond_what_squares_can_hold_are_refused_before_the_release(refused, regression, tmp_path):
    for ends in ("0:1e-170", "-1e300:1e300", "1e308:1.7e308"):
        words = [word if word != "x=0:1" else f"x={ends}" for word in regression]
        message = "bounds of x must be at most 1e+50 in size and 1e-50 apart"
        refused(*words, "--yes", "--ledger", "l", "--budget", 1000, message=message)
