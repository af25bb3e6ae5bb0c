"""Tests of the command ``regress``."""

import json
import re

import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr

from mechanisms.regression import private_regression
from studies.regression import regression_table

N = 3000
RNG = np.random.default_rng(1)
FRAME = pd.DataFrame({"a": RNG.uniform(10, 11, N), "b": RNG.normal(0, 1, N), "kind": RNG.choice(list("stuv"), N)})
FRAME["y"] = 2 * FRAME["a"] - 20 - 0.5 * FRAME["b"] + (FRAME["kind"] == "t") + RNG.normal(0, 0.3, N)
RANGES = ("--range", "a=10:11", "--range", "b=-3:3", "--range", "y=-3:6")
AT = ("--target", "y", "--features", "a,b", *RANGES, "--epsilon", 3)
LEVELS = ("--target", "y", *RANGES, "--levels", "kind=s,t", "--epsilon", 3, "--seed", 1)


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    FRAME.to_csv(folder / "t.csv", index=False)
    FRAME.to_parquet(folder / "t.parquet", row_group_size=1000)
    numbers = FRAME[["a", "b", "y"]]
    zarr.create_array(
        folder / "t.zarr", data=numbers.to_numpy(), chunks=(700, 3), attributes={"columns": list(numbers)}
    )
    missing = FRAME.copy()
    missing.loc[[3, 7], "a"] = np.nan
    missing.to_csv(folder / "missing.csv", index=False)
    return folder


@pytest.fixture
def regress(command, tables):
    return lambda *words, table="t.csv": command("regress", tables / table, *words)


def test_all_formats_give_the_same_release(regress):
    """Sums are integers, so blocks and formats do not matter."""
    found = [regress(*AT, "--seed", 1, table=table) for table in ("t.csv", "t.zarr", "t.parquet")]
    assert all(code == 0 for code, _, _ in found)
    lines = [next(line for line in out.splitlines() if line.startswith("release:")) for _, out, _ in found]
    assert lines[0] == lines[1] == lines[2]


def test_levels_are_indicators_and_undeclared_ones_are_other(regress, tmp_path):
    found = {}
    for table in ("t.csv", "t.parquet"):
        code, _out, err = regress(*LEVELS, "--output", tmp_path / "o.json", table=table)
        assert code == 0, err
        found[table] = json.loads((tmp_path / "o.json").read_text())
    assert found["t.csv"] == found["t.parquet"]
    values = found["t.csv"]["coefficients"]
    assert list(values) == ["intercept", "a", "b", "kind=t", "kind=other", "error_variance"]
    for name, truth in (("a", 2.0), ("b", -0.5), ("kind=t", 1.0), ("kind=other", 0.0)):
        assert abs(values[name]["mean"] - truth) < 5 * values[name]["sd"]
    assert found["t.csv"]["guarantee"] is None


def test_forecasts_precede_the_release_which_can_be_resumed(regress, command, tmp_path, monkeypatch):
    """After an interruption, the printed release gives the coefficients without another release."""

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(private_regression, "regression_from_release", interrupt)
        code, out, _ = regress(*AT, "--yes")
    assert code == 130
    first, second, third = out.splitlines()
    assert first == "3,000 rows; the release spends 3-DP, laplace noise"
    assert second.startswith("expected widths of 95 % intervals: intercept ")
    saved = tmp_path / "printed.txt"
    saved.write_text(f"{first}\n{second}\n{third}\n")
    code, out, _ = command("regress", "--release", saved, "--output", tmp_path / "o.csv")
    assert code == 0
    assert "guarantee of the release: 3-DP" in out
    table = pd.read_csv(tmp_path / "o.csv", index_col="coefficient")
    assert abs(table.loc["a", "mean"] - 2) < 5 * table.loc["a", "sd"]


def test_level_applies_to_the_forecast_and_the_intervals(regress):
    widths = {}
    for level in (0.8, 0.95):
        code, out, _ = regress(*AT, "--seed", 1, "--level", level)
        assert code == 0
        forecast = re.search(rf"^expected widths of {100 * level:g} % intervals: .*, a (\S+),", out, re.MULTILINE)
        widths[level] = float(forecast[1])
        assert f"\n{100 * level:g} % intervals, n = 3,000, " in out
    assert 0.4 < widths[0.8] / widths[0.95] < 0.85  # 0.65 for a normal posterior


def test_draws_are_written_as_netcdf(regress, tmp_path):
    code, _, _ = regress(*AT, "--seed", 1, "--output", tmp_path / "o.nc", table="t.zarr")
    assert code == 0
    draws = xr.load_dataset(tmp_path / "o.nc")["coefficients"]
    assert draws.sel(coefficient="b").mean() == pytest.approx(-0.5, abs=0.2)


def test_rows_with_missing_values_are_dropped_on_request(regress, command, tables):
    code, out, _ = regress(*AT, "--seed", 1, "--missing", "drop", table="missing.csv")
    assert code == 0
    assert '"missing": "drop"' in out
    code, out, _ = regress(*AT, "--yes", "--missing", "drop", table="missing.csv")
    assert code == 0
    stated = "; rows with missing cells are dropped: n = 2,998 is public, and neighbours have the same ones)\n"
    assert "\nguarantee of the release: 3-DP (replace one record; the number of records is public" + stated in out
    (tables / "release.txt").write_text(out)
    code, again, _ = command("regress", "--release", tables / "release.txt")
    assert (code, "n = 2,998 is public, and neighbours have the same ones" in again) == (0, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--target", "y", "--features", "a,b", "--epsilon", 1),
            "a public range must be given for a, got none; bounds from",
        ),
        ((*AT[:-1], 0), "epsilon must be a finite number > 0, got 0"),
        ((*AT[:-1], 1e-4), "records must be enough for 2 features at this epsilon, got expected intervals with"),
        ((*AT, "--range", "a=11:10"), "bounds of a must be finite numbers LOW < HIGH, got 11 and 10"),
        ((*AT, "--range", "a=11"), "range must have the form COLUMN=LOW:HIGH"),
        ((*AT, "--features", "a,b,kind"), "if it is text, give its public levels, --levels kind=A,B"),
        ((*AT, "--levels", "kind=s,t"), "got kind; name a column of --features once"),
        ((*AT, "--features", "a,b,kind", "--levels", "kind=s"), "levels of kind must be at least 2 different names"),
        ((*AT, "--levels", "kind=s,t", "--levels", "kind=u"), "kind is given twice"),
        ((*AT, "--levels", "kind"), "a value must be given as NAME=V1,V2, got 'kind'"),
        ((*AT, "--method", "naive"), "got naive; its intervals are not calibrated"),
        ((*AT, "--output", "o.txt"), "output must be a .json, .csv or .nc file"),
        ((*AT, "--level", 1), "level must be in (0, 1) and not round to 1, got 1.0"),
        ((*AT,), "a release must be confirmed, but there is no terminal to ask; pass --yes"),
        (("--release", "r.txt"), "a table, --seed and --ledger must be omitted with --release"),
        (("--target", "y"), "a table, --target and --epsilon must be given"),
    ],
)
def test_bad_input_spends_nothing(regress, monkeypatch, words, message):
    def spend(*_):
        raise AssertionError

    monkeypatch.setattr(regression_table, "release_sums", spend)
    code, out, err = regress(*words)
    assert code == 2
    assert message in err
    assert "release:" not in out


def test_missing_values_and_text_are_refused_before_the_release(regress, command, tables, monkeypatch):
    code, _out, err = regress(*AT, "--yes", table="missing.csv")
    assert code == 2
    assert "column 'a' must be present in every row, got a missing cell in data row 4; impute" in err
    text = tables / "text.csv"
    text.write_text("a,b,y\n" + "10.5,0,1\n" * 1500 + "10.5,high,1\n")
    code, _, err = command("regress", text, *AT, "--yes")
    assert code == 2
    assert "column 'b' must be a finite number, got something else in data row 1501" in err


def test_a_release_file_must_contain_a_release(command, tmp_path):
    file = tmp_path / "r.txt"
    file.write_text("release: 3\n")
    code, _, err = command("regress", "--release", file)
    assert code == 2
    assert "must contain the line that regress prints" in err
