"""Tests of noisy tables in CSV files and of the command ``infer``."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from mechanisms.core.noise import EXACT, Noise
from mechanisms.tables import (
    RandomRounded,
    Rounded,
    SmallRounded,
    Suppressed,
    fit_prior,
    poisson,
    table_posterior,
    uniform,
)
from pipeline.errors import BadInputError
from studies.own_data.published_checks import _equal_chance
from studies.own_data.published_table import read_table, read_table_csv

HEAD = "state,county,noisy,var\n"
CELLS = f"""{HEAD},,130.5,4
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
def test_output_is_the_posterior_of_the_table(printed, words):
    Path("cells.csv").write_text(CELLS)
    out = printed(*INFER, "--prior", "poisson:35", "--draws", "200", "--level", "0.9", *words)
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
    assert "\ninference: 90 % intervals, 7 cells\nprior: Poisson counts with mean 35\n" in out


@pytest.mark.slow
def test_prior_is_fitted_by_default_and_named(printed):
    Path("cells.csv").write_text(CELLS)
    out = printed(*INFER)
    assert (
        "prior: negative binomial counts at the finest level, fitted to the table: mean 33 (17 to 50), standard" in out
    )


def test_levels_without_rows_are_added_and_not_measured():
    table = read_table(frame(a=["x", "x", "y"], b=["1", "2", "1"]), ["a", "b"], "v", "s", "laplace")
    assert table.parents.tolist() == [4, 4, 5, -1, 3, 3]
    assert table.labels.to_numpy().tolist() == [["x", "1"], ["x", "2"], ["y", "1"], ["", ""], ["x", ""], ["y", ""]]
    assert np.isnan(table.values[3:]).all()
    assert table.noise[2:4] == [Noise("laplace", np.sqrt(0.5)), None]


def posterior_of(table, prior=None):
    return table_posterior(*table[:3], prior or poisson(5.0), seen=table.seen)


def test_two_measurements_of_a_cell_are_multiplied():
    """Their product is a Gaussian likelihood with the sum of the precisions."""
    twice = frame(a=["x", "y", "x"], v=[9.0, 4.0, 3.0], s=[16.0, 1.0, 4.0])
    once = frame(
        a=["x", "y", ""], v=[(9.0 / 16.0 + 3.0 / 4.0) / (1.0 / 16.0 + 1.0 / 4.0), 4.0, np.nan], s=[3.2, 1.0, 1.0]
    )
    table = read_table(twice, ["a"], "v", "s")
    assert table.warnings == ()
    found, expected = posterior_of(table), posterior_of(read_table(once, ["a"], "v", "s"))
    np.testing.assert_allclose(found.mean()[[0, 1, 3]], expected.mean(), rtol=1e-12)
    np.testing.assert_allclose(found.mean()[2], expected.mean()[0], rtol=1e-12)
    total = read_table(frame(a=["", "", "x"]), ["a"], "v", "s")  # of the total, which has one cell
    assert total.parents.tolist() == [1, -1, 0]


def test_repeats_of_one_rounding_count_once():
    twice = pd.DataFrame({"a": ["x", "x", "y", "y"], "v": [3.0, 3.0, 0.0, 3.0]})
    table = read_table(twice, ["a"], "v", seen="random-rounded:3")
    assert np.isnan(table.values[:4]).tolist() == [False, True, False, False]
    posterior = posterior_of(table, uniform(20))
    np.testing.assert_allclose(posterior.pmf(0)[1], np.array([1, 2, 3, 2, 1]) / 9.0)
    np.testing.assert_allclose(posterior.pmf(2)[1][-2:], [0.5, 0.5])  # of 1 and 2, rounded to 0 and to 3


@pytest.mark.parametrize(
    ("words", "noise", "form"),
    [
        ({"sd": 2}, Noise("gaussian", 2.0), "value"),
        ({"sd": "2"}, Noise("gaussian", 2.0), "value"),
        ({"sd": "s"}, Noise("gaussian", 1.0), "value"),
        ({"variance": 4.0}, Noise("gaussian", 2.0), "value"),
        ({"sd": 0}, EXACT, "value"),
        ({"variance": "s", "noise": "laplace"}, Noise("laplace", 0.5**0.5), "value"),
        ({"epsilon": 0.5, "noise": "laplace"}, Noise("laplace", 2.0), "value"),
        ({"epsilon": "s", "noise": "geometric"}, Noise("geometric", 1.0), "value"),
        ({"sd": 2, "seen": "clipped"}, Noise("gaussian", 2.0), "clipped"),
        ({"sd": 2, "seen": "suppressed:5"}, Noise("gaussian", 2.0), Suppressed(5)),
        ({"sd": 0, "seen": "rounded:10"}, EXACT, Rounded(10)),
        ({"seen": "random-rounded:3"}, EXACT, RandomRounded(3)),
        ({"seen": "small-rounded:5"}, EXACT, SmallRounded(5)),
        ({"sd": 2, "seen": "how"}, Noise("gaussian", 2.0), "clipped"),
    ],
)
def test_noise_and_formats_are_columns_or_constants(words, noise, form):
    table = read_table(frame(how=["", "clipped", "value"], v=[90.0, 30.0, 30.0]), ["a"], "v", **words)
    assert table.noise[1] == noise
    assert table.seen[1] == form


def test_column_seen_has_the_formats_of_rows():
    seen = ["", "suppressed:90", "random-rounded:3"]
    table = read_table(frame(seen=seen, v=[160.0, np.nan, 93.0], s=[4.0, 4.0, np.nan]), ["a"], "v", "s")
    assert table.seen == ["value", Suppressed(90), RandomRounded(3)]
    assert table.noise == [Noise("gaussian", 2.0), Noise("gaussian", 2.0), EXACT]
    low, high = posterior_of(table, uniform(400)).interval()
    assert 50 < low[1] < 70 < high[1] < 80
    assert read_table(frame(seen=seen), ["seen"], "v", "s").seen[:3] == ["value"] * 3  # a level


def test_totals_that_are_sums_are_no_measurements():
    """The total 14 of a published 16 is that of the documentation of SmallCountRounding, a package for R."""
    cells = frame(a=["", "x", "y", "z"], v=[16.0, 0.0, 5.0, 11.0], s=[0.0] * 4)
    table = read_table(cells, ["a"], "v", "s", seen="small-rounded:5", totals="sums")
    assert np.isnan(table.values[0])
    assert table.published[0] == 16.0
    support, p = posterior_of(table, uniform(20)).pmf(0)
    assert (support[0], support[-1]) == (12, 20)
    assert p.sum() == pytest.approx(1.0)
    cells.loc[0, "v"] = 14.0
    with pytest.raises(
        BadInputError, match=r"got 14 for the total, where the cells sum to 16; state independent totals"
    ):
        read_table(cells, ["a"], "v", "s", seen="small-rounded:5", totals="sums")
    deep = frame(a=["", "x", "x", "x"], b=["", "", "1", "2"], v=[9.0, 9.0, 4.0, 5.0], s=[1.0] * 4)
    assert np.isnan(read_table(deep, ["a", "b"], "v", "s", totals="sums").values).tolist() == [True, True, False, False]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_clipped_table_has_a_warning_and_right_totals_if_it_is_stated(seed):
    """Poisson counts with Gaussian noise 10 are published as max(y, 0), and their sum is far too large as it is."""
    rng, bias = np.random.default_rng(seed), {}
    counts = rng.poisson(2.0, 150)
    cells = pd.DataFrame({"a": np.arange(150), "v": np.maximum(counts + rng.normal(0.0, 10.0, 150), 0.0)})
    for seen in (None, "clipped"):
        table = read_table(cells, ["a"], "v", sd=10, seen=seen)
        assert [("looks clipped" in text) for text in table.warnings] == [True] * (seen is None)
        posterior = posterior_of(table, fit_prior(*table[:3], seen=table.seen))
        bias[seen] = (posterior.mean()[150] - counts.sum()) / posterior.std()[150]
    assert bias[None] > 2.0
    assert abs(bias["clipped"]) < 2.5


@pytest.mark.parametrize(
    ("cells", "words", "message"),
    [
        ({"v": [16.0, 4.0, 11.0]}, {}, []),
        ({"a": ["", *"vwxyz"], "v": [15.0, 3.0, 0.0, 6.0, 6.0, 0.0], "s": [0.0] * 6}, {"seen": "rounded:3"},
         ["every total equals the sum of its published cells"]),
        ({"v": [90.0, 4.0, 6.0]}, {}, ["1 value differs from the value or the sum of values of the same count by more "
                                       "than 10 standard deviations of the noise, at most 46.2 for the total"]),
        ({"a": ["x", "x", "y"], "v": [4.5, 90.0, 6.0]}, {}, ["at most 60.5 for x"]),
        ({"a": ["x"] * 3, "v": [50.0, 57.0, 64.0]}, {}, []),
        ({"a": ["x"] * 3, "v": [50.0, 58.0, 66.0]}, {}, ["at most 11.3 for x"]),
        ({"a": ["x"] * 3, "v": [50.0, np.nan, 66.0]}, {"seen": "clipped"}, ["at most 11.3 for x"]),
        ({"a": ["", "x", "x"], "v": [50.0, 4.0, 5.0], "s": [0.0, 4.0, 1.0]}, {}, ["at most 50.5 for the total"]),
        ({"a": ["x", "x", "y"], "v": [4.5, 4.5, 6.0]}, {}, ["1 cell has the same value twice"]),
        ({"a": ["x"] * 3, "v": [4.5, np.nan, 4.5]}, {}, ["1 cell has the same value twice"]),
        ({"a": ["x"] * 3, "v": [4.5, np.nan, 90.0]}, {}, ["at most 60.5 for x"]),
        ({"a": list("vwxyz"), "v": [0.0, 0.0, 0.0, 6.0, 6.0], "s": [1.0] * 5}, {}, ["3 exactly 0: the table looks"]),
        ({"a": list("vwxyz"), "v": [0.0, 0.0, 0.0, 6.0, 6.0], "s": [1.0] * 5}, {"noise": "geometric"}, []),
    ],
)  # fmt: skip
def test_tables_that_look_wrong_have_warnings(cells, words, message):
    table = read_table(
        frame(**cells) if len(cells.get("a", "abc")) == 3 else pd.DataFrame(cells), ["a"], "v", "s", **words
    )
    assert len(table.warnings) == len(message)
    for text, expected in zip(table.warnings, message, strict=True):
        assert expected in text


@pytest.mark.parametrize("noise", ["geometric", "discrete-gaussian"])
def test_tables_of_integer_noise_that_are_printed_twice_have_a_warning(noise):
    """Independent measurements of six cells agree with probability 4e-10 and 2e-9."""
    rng = np.random.default_rng(1)
    cells = rng.poisson(30.0, 6) + Noise(noise, 10.0).sample(rng, (3, 6))
    names, blank = list("abcdef"), [np.nan] * 6

    def warnings_about(values, rows=6, **words):
        table = pd.DataFrame({"a": names * (len(values) // 6), "v": values})
        return read_table(table[: len(table) - 6 + rows], ["a"], "v", noise=noise, **{"sd": 14, **words}).warnings

    (warning,) = warnings_about([*cells[0], *blank, *cells[1], *cells[0]])
    assert warning.startswith("6 cells have the same value twice")
    assert warnings_about([*cells[0], *cells[0]])
    assert not warnings_about([*cells[0], *cells[1]])
    assert not warnings_about([*cells[0], *cells[0]], rows=3)  # has probability 2e-5
    assert not warnings_about([*cells[0], *cells[0]], sd=0.2)  # most values have no noise


@pytest.mark.parametrize("noise", [Noise("geometric", 0.7), Noise("discrete-gaussian", 4.0)])
def test_chance_of_equal_integer_noise_is_that_of_its_distribution(noise):
    weight = np.exp(noise.log_weight(np.arange(-200.0, 201.0)))
    assert _equal_chance(noise) == pytest.approx(((weight / weight.sum()) ** 2).sum(), rel=1e-9)


@pytest.mark.parametrize("levels", [2, 3])
def test_cells_without_a_value_do_not_hide_contradictions(levels):
    names = ["a", "b", "c"][:levels]
    rows = [[""] * levels, *(["x"] * k + [""] * (levels - k) for k in range(1, levels))]
    rows += [["x"] * (levels - 1) + [end] for end in "yz"]
    values = [50.0] + [np.nan] * (levels - 1) + [4.0, 5.0]
    (warning,) = read_table(pd.DataFrame(rows, columns=names).assign(v=values), names, "v", sd=1).warnings
    assert "1 value differs" in warning
    assert "at most 23.7 for the total" in warning


@pytest.mark.parametrize(
    ("rows", "distance"),
    [
        ([("x", 0.0, "clipped"), ("x", 200.0, "value")], 200.0),
        ([("x", 10.0, "rounded:10"), ("x", 200.0, "value")], 185.0),
        ([("x", 10.0, "rounded:10"), ("x", 200.0, "rounded:10")], 180.0),
        ([("x", np.nan, "suppressed:90"), ("x", 200.0, "value")], 110.0),
        ([("x", np.nan, "suppressed:90"), ("y", np.nan, "suppressed:90"), ("", 1000.0, "value")], 820.0 / 1.5**0.5),
        ([("x", 0.0, "clipped"), ("y", 0.0, "clipped"), ("", 1000.0, "value")], 1000.0 / 1.5**0.5),
        ([("x", 300.0, "value"), ("y", 40.0, "value"), ("", np.nan, "suppressed:90")], 250.0 / 1.5**0.5),
        ([("x", 100.0, "rounded:10"), ("y", 0.0, "value"), ("", 4.0, "value")], 91.0 / 1.5**0.5),
    ],
)
def test_ranges_of_values_that_contradict_each_other_give_a_warning(rows, distance):
    table = pd.DataFrame(rows, columns=["a", "value", "seen"])
    (warning,) = read_table(table, ["a"], sd=3.0).warnings
    assert f"at most {distance / 3.0 / 2.0**0.5:.3g} for " in warning
    assert read_table(table.iloc[::-1], ["a"], sd=3.0).warnings == (warning,)


@pytest.mark.parametrize(
    "rows",
    [
        [("x", 0.0, "clipped"), ("x", 12.0, "value"), ("x", 2.0, "rounded:2")],
        [("x", np.nan, "suppressed:90"), ("y", np.nan, "suppressed:90"), ("", 180.0, "value")],
        [("x", np.nan, "suppressed:90"), ("y", 900.0, "value"), ("", 900.0, "rounded:100")],
    ],
)
def test_ranges_of_values_that_agree_give_no_warning(rows):
    assert not read_table(pd.DataFrame(rows, columns=["a", "value", "seen"]), ["a"], sd=3.0).warnings


@pytest.mark.slow
@pytest.mark.parametrize("coarse", [50.0, pytest.param(1000.0, marks=pytest.mark.exhaustive)])
def test_order_of_measurements_of_a_cell_does_not_change_the_posterior(coarse):
    """Cells are measured by two tables, of which one has little noise and informs the hyperprior."""
    fine = [(cell, value, 5.0) for cell, value in zip("abcd", (-4.0, 1.0, -2.0, 3.0), strict=True)]
    noisy = [(cell, value * coarse, coarse) for cell, value in zip("abcd", (0.9, -0.2, 0.4, -1.0), strict=True)]
    found = []
    for rows in (fine + noisy, noisy + fine):
        table = read_table(pd.DataFrame(rows, columns=["a", "value", "sd"]), ["a"], sd="sd")
        with pytest.warns(UserWarning, match="hardly informs the prior"):
            posterior = table_posterior(table.values, table.noise, table.parents, "auto")
        found.append(
            [*posterior.mean()[np.argsort(table.labels["a"].to_numpy()[:8], kind="stable")], *posterior.mean()[8:]]
        )
    np.testing.assert_allclose(*found, rtol=1e-9)


def test_all_measurements_of_a_cell_are_compared_with_the_sum_of_its_cells():
    """Each of 16 values of the total is 7 of its standard deviations away, and their mean 27."""
    table = pd.DataFrame({"a": [""] * 16 + ["x", "y"], "v": [80.0] * 16 + [4.0, 6.0], "s": [10.0] * 16 + [0.5] * 2})
    table.loc[:15, "v"] += np.linspace(-0.3, 0.3, 16)
    (warning,) = read_table(table, ["a"], "v", sd="s").warnings
    assert "at most 26.9 for the total" in warning


@pytest.mark.slow
def test_command_prints_warnings_and_reads_formats(printed):
    Path("cells.csv").write_text("a,v\n" + "".join(f"{i},{max(i - 12, 0) / 4}\n" for i in range(20)))
    out = printed("infer", "cells.csv", "--levels", "a", "--value", "v", "--sd", "2", "--prior", "poisson:2")
    assert "warning: no value is negative" in out
    assert "state --seen clipped" in out
    out = printed("infer", "cells.csv", "--levels", "a", "--value", "v", "--sd", "2", "--seen", "clipped")
    assert "looks clipped" not in out
    assert "fitted to the table: mean" in out


@pytest.mark.parametrize("name", ["laplace", "geometric", "gaussian"])
@pytest.mark.parametrize("variance", [0.3, 25.0])
def test_noise_has_the_stated_variance(name, variance):
    noise = read_table(frame(s=[variance] * 3), ["a"], "v", "s", name).noise[0]
    step = 1.0 if noise.is_integer else 1e-3
    z = np.arange(-200.0 / step, 200.0 / step + 1) * step
    weight = np.exp(noise.log_weight(z))
    assert (z * z * weight).sum() / weight.sum() == pytest.approx(variance, rel=1e-4)


FORMATS = "seen must be value, clipped, suppressed:T, rounded:B, random-rounded:B or small-rounded:B"


@pytest.mark.parametrize(
    ("changed", "levels", "message"),
    [
        ({}, ["z"], "unknown column 'z'"),
        ({}, [], "levels, value, noise and seen must be different columns"),
        ({}, ["a", "v"], "levels, value, noise and seen must be different columns"),
        ({"v": ["9", "four", "6"]}, ["a"], "v must be a finite number or blank, got four in data row 2"),
        ({"v": [9.0, np.inf, 6.0]}, ["a"], "v must be a finite number or blank, got inf in data row 2"),
        ({"s": [1.0, -1.0, 1.0]}, ["a"], "variance must be >= 0, got -1.0 in data row 2"),
        ({"s": [1.0, 5e-324, 1.0]}, ["a"], "variance must be 0 or >= 1e-100, got 5e-324 in data row 2"),
        ({"s": ["1", "1e-400", "1"]}, ["a"], "variance must be 0 or >= 1e-100, got 1e-400 in data row 2"),
        ({"s": [1.0, np.nan, 1.0]}, ["a"], "variance must be given for a value, got nan in data row 2"),
        ({"b": ["", "1", ""]}, ["a", "b"], "a must have a row for every cell, got none for x; add a row with a blank"),
        ({"a": ["", "x", "x"], "b": ["", "", "1"], "c": [""] * 3}, ["a", "b", "c"], "of c below it, got none for x, 1"),
        ({"seen": ["", "topcoded", ""]}, ["a"], f"{FORMATS}, or blank, got topcoded in data row 2"),
        ({"seen": ["", "rounded:2.5", ""]}, ["a"], "rounded:2.5: base must be an integer of at most 2**52, got 2.5"),
        ({"seen": ["", "suppressed:0", ""]}, ["a"], "format suppressed:0: threshold must be"),
        (
            {"b": ["1", "1", "2"]},
            ["a", "b"],
            "levels must be blank after a blank level, got ,1 in data row 1; a blank level is the total over it, "
            "and totals over one level and over another are not nested: omit one kind, or pass both to mechanisms.",
        ),
    ],
)
def test_bad_tables_are_refused(changed, levels, message):
    with pytest.raises(BadInputError, match=re.escape(message)):
        read_table(frame(**changed), levels, "v", "s")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"sd": 2, "epsilon": 1}, "noise must be stated once, got sd and epsilon"),
        ({"sd": "w"}, "sd must be a column or a finite number such as 1000 or 0.5, got 'w'; columns are"),
        ({}, "the noise must be stated, got no column variance among a, v, s; give variance, sd or epsilon"),
        ({"epsilon": 1}, "noise must be laplace or geometric with epsilon, got gaussian; pass sd or variance"),
        ({"epsilon": 0, "noise": "laplace"}, "epsilon must be from 1e-12 to 1e60, got 0; state exact"),
        ({"epsilon": 1e-300, "noise": "laplace"}, "epsilon must be from 1e-12 to 1e60, got 1e-300; state exact"),
        ({"sd": "1e400"}, "sd must be at most 1e+12, got 1e400; check the units"),
        ({"sd": "nan"}, "sd must be a column or a finite number such as 1000 or 0.5, got 'nan'; columns are a, v, s"),
        ({"sd": float("nan")}, "sd must be a column or a finite number such as 1000 or 0.5, got 'nan'"),
        ({"variance": "inf"}, "variance must be a column or a finite number such as 1000 or 0.5, got 'inf'"),
        ({"variance": "1,000"}, "variance must be a column or a finite number such as 1000 or 0.5, got '1,000'"),
        ({"sd": ""}, "sd must be a column or a finite number such as 1000 or 0.5, got ''"),
        ({"sd": "\u22121"}, "sd must be a column or a finite number such as 1000 or 0.5, got '\u22121'"),
        ({"sd": "1e-400"}, "sd must be 0 or >= 1e-50, got 1e-400; check the units"),
        ({"sd": 0, "seen": "rounded:1e400"}, "base must be an integer of at most 2**52, got 1.79769e+308"),
        ({"sd": [1, 2]}, "sd must be a column or a number, got [1, 2]; pass the name of a column"),
        ({"sd": 0, "seen": Rounded(10)}, "or a column, got Rounded(base=10, ties='even'); pass it as text"),
        ({"sd": -1}, "sd must be >= 0, got -1; 0 states an exact count"),
        ({"sd": 1, "seen": "s"}, "got 1.0 in data row 1; blank is value"),
        ({"sd": 1, "seen": "hidden"}, "seen must be value, clipped"),
        ({"sd": 1, "seen": "v"}, "must be different columns, got a, v, v"),
        ({"sd": 1, "totals": "both"}, "unknown totals 'both'"),
    ],
)
def test_statements_that_contradict_each_other_are_refused(words, message):
    with pytest.raises(BadInputError, match=re.escape(message)):
        read_table(frame(), ["a"], "v", **words)


@pytest.mark.parametrize(
    ("cells", "words", "message"),
    [
        (CELLS, "--seen random-rounded:3", "counts that are rounded at random must have no noise, got 130.5"),
        (
            f"{HEAD},,9,0\nA,,4,0\n",
            "--levels state --seen rounded:5",
            "multiple of 5, got 9 for the total; check the base",
        ),
        (f"{HEAD},,9,0\nA,,4,0\nB,,4,0\n", "--levels state", "got 9 for the total, where its parts allow 8"),
        (f"{HEAD},,9,1\nA,,4,1\nB,,5,1\n", "--levels state", "made consistent after the noise"),
        (f"{HEAD},,,1\nA,,,1\nB,,5,1\n", "--levels state --prior uniform", "neither for A"),
        ("a,s,var\nx,5,0\nx,6,0\n", "--levels a --value s", "got 6 for x, where other values of this count allow 5"),
        ("a,s,var\nx,-5,4\n", "--levels a --value s --seen clipped", "got -5 for x; it is no clipped"),
        ("a,s,var\nx,5,4\n", "--levels a --value s --seen suppressed:9", "is NaN, blank in a file"),
        (CELLS, "--noise geometric", "geometric noise must be an integer, got 130.5 for the total"),
        ("a,s,var\nx,50,0\nz\n", "--levels a --value s --seen suppressed:10", "3 fields, got fewer in data row 2"),
        (CELLS, "--draws 3", "--output must be given with --draws"),
        (CELLS, "--draws 900000000 --output o.csv", "--draws must be"),
        (CELLS, "--prior poisson", "prior must be valid, got 'poisson'"),
        (CELLS, "--prior poisson:x", "got 'poisson:x': it must be auto, negative-binomial:SHAPE:MEAN, poisson:MEAN"),
        (CELLS, "--prior poisson:1e400", "or uniform, with finite numbers such as 0.5 or 1000"),
        (CELLS, "--prior poisson:-1", "mean must be a finite number > 0"),
        (CELLS, "--level 0.9999999999999999", "level must be in (0, 1) and not round to 1"),
        *((CELLS, f"--levels {name}", f"got {name}; rename") for name in ("value", "mean", "sd", "low", "high")),
        *((CELLS, f"--levels {name} --output o.nc", f"got {name}; rename") for name in ("cell", "draw", "draws")),
        (CELLS, "--levels draw1 --draws 1 --output o.csv", "got draw1; rename the column"),
        (CELLS, "--output cells.csv", "--output must be another file than the table"),
        (CELLS, "--levels 州 --output o.nc", "must be names in Latin-1"),
    ],
)
def test_bad_input_is_refused_on_one_line(refused, cells, words, message):
    Path("cells.csv").write_text(cells)
    refused(*INFER, *words.split(), message=message)


@pytest.mark.parametrize("first", [0, 1])
def test_exact_count_after_an_equal_noisy_one_is_used(tmp_path, first):
    rows = ["a,1,4", "a,1,0"]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["cell,value,variance", rows[first], rows[1 - first], "b,2,4"]) + "\n")
    table = read_table_csv(str(path), ["cell"])
    posterior = table_posterior(table.values, table.noise, table.parents, poisson(3.0), seen=table.seen)
    low, high = posterior.interval()
    assert (low[0], high[0], low[1], high[1]) == (1, 1, 1, 1)
