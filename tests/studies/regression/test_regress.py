"""Tests of the command ``regress``."""

import json
import re

import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr

from mechanisms.regression.gram_release import (
    GramRelease,
    PublicBox,
    calibrated_gram_noise,
    gram_sums,
    release_gram,
)
from mechanisms.release import Rehearsal
from studies.own_data import regression
from studies.own_data.regression_output import RegressionAnswer, StoredRelease, load_release

N = 3000
RNG = np.random.default_rng(1)
FRAME = pd.DataFrame({"a": RNG.uniform(10, 11, N), "b": RNG.normal(0, 1, N), "kind": RNG.choice(list("stuv"), N)})
FRAME["y"] = 2 * FRAME["a"] - 20 - 0.5 * FRAME["b"] + (FRAME["kind"] == "t") + RNG.normal(0, 0.3, N)
RANGES = ("--range", "a=10:11", "--range", "b=-3:3", "--range", "y=-3:6")
AT = ("--target", "y", "--features", "a,b", *RANGES, "--epsilon", 3)
ALONE = ("--target", "y", "--features", "a", "--range", "y=-3:6", "--epsilon", 3)
LEVELS = ("--target", "y", *RANGES, "--levels", "kind=s,t,other", "--epsilon", 3, "--seed", 1)


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
    """Return a function that runs ``dpstudies regress``, which must succeed; it returns what the command prints."""

    def run(*words, table="t.csv"):
        code, out, err = command("regress", tables / table, *words)
        assert code == 0, err
        return out, err

    return run


@pytest.mark.slow
def test_all_formats_give_the_same_release(regress, tmp_path):
    """Sums are integers, so blocks and formats do not matter; draws are written as netCDF."""
    words = (*AT, "--seed", 1, "--output", tmp_path / "o.nc")
    found = [regress(*words, table=table) for table in ("t.csv", "t.zarr", "t.parquet")]
    lines = [next(line for line in out.splitlines() if line.startswith("release:")) for out, _ in found]
    assert lines[0] == lines[1] == lines[2]
    draws = xr.load_dataset(tmp_path / "o.nc")["coefficients"]
    assert draws.sel(coefficient="b").mean() == pytest.approx(-0.5, abs=0.2)


@pytest.mark.slow
def test_levels_are_indicators_and_other_is_one_if_it_is_listed(regress, tmp_path):
    found = {}
    for table in ("t.csv", "t.parquet"):
        out, _ = regress(*LEVELS, "--output", tmp_path / "o.json", table=table)
        assert "\nreference levels: kind=s\nrange: values outside 10 to 11 (a), -3 to 3 (b), -3 to 6 (y) count" in out
        found[table] = json.loads((tmp_path / "o.json").read_text())
    assert found["t.csv"] == found["t.parquet"]
    values = found["t.csv"]["coefficients"]
    assert list(values) == ["intercept", "a", "b", "kind=t", "kind=other", "error_variance"]
    for name, truth in (("a", 2.0), ("b", -0.5), ("kind=t", 1.0), ("kind=other", 0.0)):
        assert abs(values[name]["mean"] - truth) < 5 * values[name]["sd"]
    assert found["t.csv"]["guarantee"] is None


@pytest.mark.slow
def test_values_that_are_not_listed_are_the_reference(command, regress, tmp_path):
    """A binary column that its levels exhaust has one indicator, and its release the sums of an indicator column."""
    words = ("--target", "y", *RANGES, "--epsilon", 3, "--seed", 1)
    out, err = regress(*words, "--levels", "kind=s,t", "--json")
    columns = json.loads(out)["columns"]
    assert list(columns) == ["a", "b", "kind=t", "y"]
    (tmp_path / "release.txt").write_text(out)
    stated = "\nreference levels: kind=s, with all values that are not levels\n"
    assert stated in err
    assert stated in command("regress", "--release", tmp_path / "release.txt")[1]
    mapped = FRAME.assign(kind=(FRAME["kind"] == "t").astype(float))
    box = PublicBox.of({"a": (10, 11), "b": (-3, 3), "kind": (0, 1), "y": (-3, 6)})
    noisy = np.array(json.loads(out)["noisy"])
    gram = gram_sums(box, mapped[list(box.names)])[0] / 2.0**32
    noise = calibrated_gram_noise("laplace", 4, 3.0)
    expected = release_gram(Rehearsal(1).generator("private_regression noise"), gram, noise).noisy
    np.testing.assert_allclose(noisy[1:], expected[1:])


@pytest.mark.slow
def test_guesses_narrow_the_forecast(regress):
    """A guess changes the forecast, and nothing that is released."""
    found = {}
    for guess in ((), ("--guess", "a=10:11", "--guess", "b=-2:2")):
        out, _ = regress(*AT, *guess, "--seed", 1)
        found[guess] = out
    plain, narrowed = found.values()
    assert "does not resolve the spread" not in plain
    assert re.search(
        r"^expected widths of 95 % intervals: intercept \S+ to \S+, a \S+ to \S+, b \S+ to \S+$", plain, re.M
    )
    assert "5 to 25 % of their range" in plain
    assert "--guess narrows them" in plain
    assert "5 to 25 % of their range" not in narrowed
    assert "\nthey assume an error with a standard deviation of at most 10 % of the range of y, " in narrowed
    least, most = map(float, re.search(r"^expected widths .*, a (\S+) to (\S+), b ", narrowed, re.M).groups())
    low, high = map(float, re.search(r"^a +\S+ +\S+ +(\S+) +(\S+)", narrowed, re.M).groups())
    assert 0.5 * least < high - low < 2.0 * most
    assert plain[plain.index("release:") :] == narrowed[narrowed.index("release:") :]


def test_an_error_that_is_not_resolved_has_an_upper_bound(regress, tmp_path):
    wide = ("--target", "y", "--features", "b", "--range", "b=-30:30", "--range", "y=-30:60", "--epsilon", 0.3)
    out, _ = regress(*wide, "--seed", 1, "--output", tmp_path / "o.json")
    bound = float(re.search(r"^standard deviation of the error <= (\S+) \(95 %\): the release does not", out, re.M)[1])
    values = json.loads((tmp_path / "o.json").read_text())
    assert values["error_bound"] == pytest.approx(bound, rel=1e-3)
    assert values["coefficients"]["error_variance"]["low"] == 0.0
    assert values["coefficients"]["error_variance"]["high"] == pytest.approx(bound**2, rel=1e-2)


@pytest.mark.slow
def test_forecasts_precede_the_release_which_can_be_resumed(command, tables, tmp_path, monkeypatch):
    """After an interruption, the release on standard error gives the coefficients without another release."""

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(regression, "regression_from_release", interrupt)
        code, out, err = command("regress", tables / "t.csv", *AT, "--yes")
    assert code == 130
    first, second, _note, third = out.splitlines()
    assert re.fullmatch(r"release: sum of a \S+, sum of b \S+, sum of y \S+, .*; noise: laplace of scale \S+", third)
    assert first == "3,000 rows; the release spends 3-DP, laplace noise"
    assert second.startswith("expected widths of 95 % intervals: intercept ")
    saved = tmp_path / "printed.txt"
    saved.write_text(err)
    code, out, _ = command("regress", "--release", saved, "--output", tmp_path / "o.csv")
    assert code == 0
    assert third in out
    assert "\nguarantee: 3-DP (proved)\n" in out
    table = pd.read_csv(tmp_path / "o.csv", index_col="coefficient")
    assert abs(table.loc["a", "mean"] - 2) < 5 * table.loc["a", "sd"]


@pytest.mark.slow
def test_level_applies_to_the_forecast_and_the_intervals(regress):
    widths = {}
    for level in (0.8, 0.95):
        out, _ = regress(*AT, "--seed", 1, "--level", level)
        forecast = re.search(rf"^expected widths of {100 * level:g} % intervals: .*, a (\S+) to", out, re.MULTILINE)
        widths[level] = float(forecast[1])
        assert f"\ninference: normal-covariates, {100 * level:g} % intervals\n" in out
    assert 0.4 < widths[0.8] / widths[0.95] < 0.85  # 0.65 for a normal posterior


@pytest.mark.slow
def test_rows_with_missing_values_are_dropped_on_request(regress, command, tables):
    out, _ = regress(*AT, "--seed", 1, "--missing", "drop", "--json", table="missing.csv")
    assert '"missing": "drop"' in out
    out, err = regress(*AT, "--yes", "--missing", "drop", "--json", table="missing.csv")
    stated = "rows with missing cells are dropped: n = 2,998 is public, and neighbours have the same ones\n"
    assert f"\nguarantee: 3-DP (proved)\nneighbours: one row is replaced; {stated}" in err
    (tables / "release.txt").write_text(out)
    code, again, _ = command("regress", "--release", tables / "release.txt")
    assert (code, "n = 2,998 is public, and neighbours have the same ones" in again) == (0, True)


_AT, _ALONE = (" ".join(map(str, words)) for words in (AT, ALONE))
_WITHOUT_EPSILON = _AT.removesuffix(" 3")
_OMITTED = "must be omitted with --release"
BAD = {
    "--target y --features a,b --epsilon 1": "a public range must be given for a, got none; bounds from",
    f"{_WITHOUT_EPSILON} 0": "epsilon must be a finite number > 0, got 0",
    f"{_WITHOUT_EPSILON} 1e-4": "must be enough for 2 features at this epsilon, got expected intervals with",
    f"{_WITHOUT_EPSILON} 1_0": "--epsilon must be a number, got '1_0'; see 'dpstudies regress --help'",
    f"{_WITHOUT_EPSILON} 1,000": "'1,000'; see 'dpstudies regress --help'",
    f"{_ALONE} --range a=11:10": "bounds of a must be finite numbers LOW < HIGH, got 11 and 10",
    f"{_ALONE} --range a=1:1_1": "range must have the form COLUMN=LOW:HIGH",
    f"{_ALONE} --range a=11": "range must have the form COLUMN=LOW:HIGH",
    f"{_AT} --range a=1:inf": "range must have the form COLUMN=LOW:HIGH, with finite numbers such as 1000 or",
    f"{_AT} --range b=\u22123:3": "once per column, got 'b=\u22123:3'; e.g. income=0:100000",
    f"{_AT} --range b=-3,000:3,000": "once per column, got 'b=-3,000:3,000'",
    f"{_AT} --range a=10:12": "once per column, got 'a=10:12'",
    f"{_AT} --features a,b,kind": "if it is text, give its public levels, --levels kind=A,B",
    f"{_AT} --features ,": "features must be at least one column other than y, got none",
    f"{_AT} --levels kind=s,t": "got kind; name a column of --features once",
    f"{_AT} --features a,b,kind --levels kind=s": "levels of kind must be at least 2 different names",
    f"{_AT} --features a,b,kind --levels kind=other,s": "and 'other' the last, got other,s",
    f"{_AT} --levels kind=s,t --levels kind=u": "kind is given twice",
    f"{_AT} --levels kind": "a value must be given as NAME=V1,V2, got 'kind'",
    f"{_AT} --guess a=9:10.5": "guess of a must be LOW:HIGH in its range 10:11, got 9:10.5; change it",
    f"{_AT} --guess c=1:2": "guess must name a column of the regression, got c; choose of a, b, y",
    f"{_AT} --guess a=0.2": "guess of a must be a prevalence in (0, 1) of a column with the range 0:1, or",
    f"{_AT} --guess a=10:11 --guess a=10:11": "guess must have the form COLUMN=LOW:HIGH or COLUMN=P",
    f"{_AT} --guess x:y": "COLUMN=P, with finite numbers such as 1000 or -0.5, once per column, got 'x:y'",
    f"{_AT} --guess a=nan:11": "with finite numbers such as 1000 or -0.5, once per column, got 'a=nan:11'",
    f"{_AT} --guess a=10:1e400": "once per column, got 'a=10:1e400'; e.g. age=20:70",
    f"{_AT} --method naive": "got naive; its intervals are not calibrated",
    f"{_AT} --output o.txt": "output must be a .json, .csv or .nc file",
    f"{_AT} --level 1": "level must be in (0, 1) and not round to 1, got 1.0",
    _AT: "a release must be confirmed, but there is no terminal to ask; pass --yes",
    "--release r.txt": "TABLE must be omitted with --release, which contains the question",
    f"{_AT} --release r.txt --seed 1 --ledger l --budget 3 --delta 1e-6": "TABLE and --target and --features and "
    f"--epsilon and --delta and --range and --ledger and --budget and --seed {_OMITTED}",
    "--release r.txt --levels a=b,c --guess a=0:1 --na x --missing drop": "TABLE and --na and --levels and --guess "
    f"and --missing {_OMITTED}",
    "--target y": "a table, --target and --epsilon must be given",
}


@pytest.mark.parametrize("line", BAD)
def test_bad_input_spends_nothing(command, tables, monkeypatch, line):
    monkeypatch.setattr(regression, "release_sums", None)  # a call would raise TypeError
    code, out, err = command("regress", tables / "t.csv", *line.split())
    assert code == 2
    assert BAD[line] in err
    assert "release:" not in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*LEVELS, "--method", "data-augmentation"), "--method must not be data-augmentation with --levels"),
        ((*AT, "--seed", 1, "--method", "naive"), "got naive; its intervals are not calibrated"),
    ],
)
def test_methods_that_do_not_suit_are_refused_before_rows_are_read(refused, tables, monkeypatch, words, message):
    monkeypatch.setattr(regression, "reduce_rows", None)  # a call would raise TypeError
    refused("regress", tables / "t.csv", *words, "--missing", "drop", message=message)


@pytest.mark.parametrize(
    ("features", "words", "message"),
    [
        ("g,g=B", ("--levels", "g=A,B", "--range", "g=B=0:1"), "columns must have different names, got g=B twice"),
        (
            "g=B,intercept",
            ("--range", "g=B=0:1", "--range", "intercept=0:1"),
            "the names of other results, intercept and",
        ),
        ("error_variance", ("--range", "error_variance=0:1"), "and error_variance, got error_variance; rename it"),
        ("g=B,g=B", ("--range", "g=B=0:1"), "column g=B occurs twice among features and target; name it once"),
        ("g=B,y", ("--range", "g=B=0:1"), "column y occurs twice among features and target; name it once"),
    ],
)
def test_results_of_one_name_are_refused(refused, tmp_path, features, words, message):
    """A release with two coefficients of one name loses one of them, and cannot be read."""
    names = "g,g=B,intercept,error_variance,y\n"
    (tmp_path / "t.csv").write_text(names + "".join(f"{'AB'[i % 2]},0.5,0.5,0.5,1\n" for i in range(300)))
    words = ("--target", "y", "--features", features, "--epsilon", 1, "--range", "y=0:2", *words, "--yes")
    refused("regress", "t.csv", *words, message=message)


def test_missing_values_and_text_are_refused_before_the_release(refused, tables):
    (tables / "text.csv").write_text("a,b,y\n" + "10.5,0,1\n" * 1500 + "10.5,high,1\n")
    for table, message in (
        ("missing.csv", "column 'a' must be present in every row, got a missing cell in data row 4; impute"),
        ("text.csv", "column 'b' must be a finite number, got something else in data row 1501"),
    ):
        refused("regress", tables / table, *AT, "--yes", message=message, is_first=False)


def test_a_release_does_not_depend_on_the_order_of_its_keys(tmp_path):
    box = PublicBox.of({"x": (0, 1), "age": (0, 120), "wage": (0, 9)})
    values = {
        "n": 90,
        "noise": {"name": "laplace", "scale": 8.0, "p": 3},
        "guarantee": None,
        "noisy": np.eye(4).tolist(),
    }
    stored = StoredRelease(GramRelease.from_dict(values), box, False, {})
    (tmp_path / "r.json").write_text(json.dumps(stored.to_dict(), sort_keys=True))
    assert load_release(tmp_path / "r.json").box == box


def test_a_release_file_must_contain_a_release(refused, tmp_path):
    file = tmp_path / "r.txt"
    file.write_text("release: 3\n")
    refused("regress", "--release", file, message="must contain the release that regress --json prints")


@pytest.mark.parametrize(("level", "half"), [(0.95, 1.96), (0.5, 0.674)])
def test_interval_that_is_narrow_for_its_sd_is_explained(level, half):
    normal = {"mean": 1.0, "sd": 2.0, "low": 1 - 2 * half, "high": 1 + 2 * half}
    heavy = {**normal, "sd": 3.0}
    answer = RegressionAnswer(None, None, level, ())
    assert answer._heavy_tails({"a": normal, "b": heavy, "c": heavy}) == [
        "heavy tails of b, c: rare distant values move the mean and enlarge the sd, but not the median and the interval"
    ]
    assert answer._heavy_tails({"a": normal}) == []


@pytest.mark.slow
def test_feature_whose_spread_is_not_resolved_is_named(regress, tmp_path):
    wide = ("--target", "y", "--features", "a,b", "--range", "a=0:1000", *RANGES[2:], "--epsilon", 3, "--seed", 1)
    out, err = regress(*wide, "--output", tmp_path / "o.json")
    line = "the release does not resolve the spread of a: intervals of the slopes rest on the prior"
    assert line in out + err
    assert json.loads((tmp_path / "o.json").read_text())["unresolved_features"] == ["a"]


def test_release_of_an_earlier_version_with_a_feature_named_intercept_is_read(command, tmp_path):
    noisy = [[3000.0, 0.0, 0.0], [0.0, 900.0, 300.0], [0.0, 300.0, 500.0]]
    noise = {"name": "laplace", "scale": 8.0, "p": 2}
    columns = {"intercept": [0, 1], "y": [0, 1]}
    release = {"columns": columns, "n": 3000, "noise": noise, "guarantee": None, "noisy": noisy}
    (tmp_path / "r.json").write_text(json.dumps(release))
    assert command("regress", "--release", tmp_path / "r.json", "--output", tmp_path / "o.json")[0] == 0
    coefficients = json.loads((tmp_path / "o.json").read_text())["coefficients"]
    assert list(coefficients) == ["intercept", "intercept feature", "error_variance"]
