"""Tests of noisy tables in CSV files and of the command ``infer``."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from mechanisms.noise import EXACT, Noise
from mechanisms.tables import poisson, table_posterior
from pipeline.errors import BadInputError
from studies.data.table_csv import read_table

CELLS = """state,county,noisy,var
,,130.5,4
NA,,61,0
B,,70.2,4
NA,01,40.1,1
NA,1,,1
B,01,33.3,1
B,02,35.9,1
"""
INFER = ("infer", "cells.csv", "--levels", "state,county", "--value", "noisy", "--variance", "var")


def frame(**columns):
    return pd.DataFrame({"a": ["", "x", "y"], "v": [9.0, 4.0, 6.0], "s": [1.0, 1.0, 1.0]} | columns)


@pytest.mark.parametrize("words", [("--output", "out.csv"), ("--output", "out.nc", "--seed", "3")])
def test_output_is_the_posterior_of_the_table(command, words):
    Path("cells.csv").write_text(CELLS)
    code, out, err = command(*INFER, "--prior", "poisson:35", "--draws", "200", "--level", "0.9", *words)
    assert (code, err) == (0, "")
    one, two = Noise("gaussian", 1.0), Noise("gaussian", 2.0)
    values, parents = [130.5, 61.0, 70.2, 40.1, np.nan, 33.3, 35.9], [-1, 0, 0, 1, 1, 2, 2]
    exact = table_posterior(values, [two, EXACT, two, one, None, one, one], parents, poisson(35))
    if words[1] == "out.csv":
        found = pd.read_csv("out.csv", dtype={"state": str, "county": str}, keep_default_na=False)
        draws = found.filter(like="draw").to_numpy().T
    else:
        found = xr.open_dataset("out.nc")
        draws = found["draws"].values
        np.testing.assert_array_equal(draws, exact.sample(np.random.default_rng(3), 200))
    assert found["state"].values.tolist() == ["", "NA", "B", "NA", "NA", "B", "B"]
    assert found["county"].values.tolist() == ["", "", "", "01", "1", "01", "02"]
    for name, expected in zip(
        ("mean", "sd", "low", "high"), (exact.mean(), exact.std(), *exact.interval(0.9)), strict=True
    ):
        np.testing.assert_allclose(found[name], expected, rtol=1e-12)
    assert draws.shape == (200, 7)
    np.testing.assert_array_equal(draws[:, 1:3].sum(axis=1), draws[:, 0])
    assert "NA     01      40.1" in out
    assert "\n90 % intervals, 7 cells, " in out


def test_prior_is_fitted_by_default_and_named(command):
    Path("cells.csv").write_text(CELLS)
    code, out, _ = command(*INFER)
    assert code == 0
    assert "prior PriorGrid(25 priors, best negative_binomial(" in out


def test_levels_without_rows_are_added_and_not_measured():
    table = read_table(frame(a=["x", "x", "y"], b=["1", "2", "1"]), ["a", "b"], "v", "s", "laplace")
    assert table.parents.tolist() == [4, 4, 5, -1, 3, 3]
    assert table.labels.to_numpy().tolist() == [["x", "1"], ["x", "2"], ["y", "1"], ["", ""], ["x", ""], ["y", ""]]
    assert np.isnan(table.values[3:]).all()
    assert table.noise[2:4] == [Noise("laplace", np.sqrt(0.5)), None]


@pytest.mark.parametrize("name", ["laplace", "geometric", "gaussian"])
@pytest.mark.parametrize("variance", [0.3, 25.0])
def test_noise_has_the_stated_variance(name, variance):
    noise = read_table(frame(s=[variance] * 3), ["a"], "v", "s", name).noise[0]
    step = 1.0 if noise.is_integer else 1e-3
    z = np.arange(-200.0 / step, 200.0 / step + 1) * step
    weight = np.exp(noise.log_weight(z))
    assert (z * z * weight).sum() / weight.sum() == pytest.approx(variance, rel=1e-4)


@pytest.mark.parametrize(
    ("changed", "levels", "message"),
    [
        ({}, ["z"], "unknown column 'z'"),
        ({}, [], "levels, value and variance must be different columns"),
        ({}, ["a", "v"], "levels, value and variance must be different columns"),
        ({"v": ["9", "four", "6"]}, ["a"], "v must be a finite number or blank, got four in data row 2"),
        ({"v": [9.0, np.inf, 6.0]}, ["a"], "v must be a finite number or blank, got inf in data row 2"),
        ({"s": [1.0, -1.0, 1.0]}, ["a"], "variance must be >= 0, got -1.0 in data row 2"),
        ({"s": [1.0, 5e-324, 1.0]}, ["a"], "variance must be 0 or >= 1e-100, got 5e-324 in data row 2"),
        ({"s": [1.0, np.nan, 1.0]}, ["a"], "variance must be given for a value, got nan in data row 2"),
        ({"a": ["", "x", "x"]}, ["a"], "cells must be unique, got x twice in a"),
        ({"a": ["", "", "x"]}, ["a"], "cells must be unique, got the total twice in the total"),
        ({"b": ["", "1", ""]}, ["a", "b"], "a must have a row for every cell, got none for x; add a row with a blank"),
        ({"a": ["", "x", "x"], "b": ["", "", "1"], "c": [""] * 3}, ["a", "b", "c"], "of c below it, got none for x, 1"),
        ({"b": ["1", "1", "2"]}, ["a", "b"], "levels must be blank after a blank level, got ,1 in data row 1"),
    ],
)
def test_bad_tables_are_refused(changed, levels, message):
    with pytest.raises(BadInputError) as error:
        read_table(frame(**changed), levels, "v", "s")
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("cells", "words", "message"),
    [
        ("state,county,noisy,var\n,,9,0\nA,,4,0\nB,,4,0\n", ("--levels", "state"), "must be reached by its parts"),
        ("state,county,noisy,var\n,,9,1\nA,,4,1\nB,,5,1\n", ("--levels", "state"), "made consistent after the noise"),
        ("state,county,noisy,var\n,,,1\nA,,,1\nB,,5,1\n", ("--levels", "state", "--prior", "uniform"), "neither for A"),
        (CELLS, ("--noise", "geometric"), "geometric noise must be an integer, got 130.5 for the total"),
        (CELLS, ("--draws", "3"), "--output must be given with --draws"),
        (CELLS, ("--draws", "900000000", "--output", "o.csv"), "--draws must be"),
        (CELLS, ("--prior", "poisson"), "prior must be valid, got poisson"),
        (CELLS, ("--prior", "poisson:-1"), "mean must be a finite number > 0"),
        (CELLS, ("--level", "0.9999999999999999"), "level must be in (0, 1) and not round to 1"),
        *((CELLS, ("--levels", name), f"got {name}; rename") for name in ("value", "mean", "sd", "low", "high")),
        *((CELLS, ("--levels", name, "--output", "o.nc"), f"got {name}; rename") for name in ("cell", "draw", "draws")),
        (CELLS, ("--levels", "draw1", "--draws", "1", "--output", "o.csv"), "got draw1; rename the column"),
        (CELLS, ("--output", "cells.csv"), "--output must be another file than the table"),
        (CELLS, ("--levels", "州", "--output", "o.nc"), "must be names in Latin-1"),
    ],
)
def test_bad_input_is_refused_on_one_line(command, cells, words, message):
    Path("cells.csv").write_text(cells)
    code, out, err = command(*INFER, *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert sorted(path.name for path in Path().iterdir()) == ["cells.csv"]
