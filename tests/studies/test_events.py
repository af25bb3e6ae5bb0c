"""Tests of how commands, tables, pages and figures show events, missing values and declared statistics."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from pipeline import open_results, summarise
from pipeline.declare.source import find_study
from pipeline.results.proportions import proportion_interval
from studies.figures import interactive, specify
from studies.figures.defaults import default_figures
from studies.report.summaries import tabulate
from studies.tables import show_mean

EVENTS = """
import numpy as np
from pipeline import Factor, Measure, Method, Panel, Statistic, Study

LEVELS = Factor("level", (0.25, 0.5), "level", "float")

def simulate(cell, streams):
    return streams.uniforms(1)[:, 0]

def method(name, p, missing):
    def evaluate(data, setting, streams):
        score = np.where(data < missing, np.nan, data)
        hit = data < p
        return {"hit": hit, "hit01": 1.0 * hit, "x": data, "score": score, "path": np.stack([data, score], axis=1)}
    return Method(name, evaluate)

STATISTICS = (
    Statistic("rms", "x", "root mean square", lambda x: np.sqrt(np.mean(x**2))),
    Statistic("ecdf", "x", "shares", lambda x: (x[:, None] <= LEVELS.values).mean(axis=0), axis=LEVELS),
    Statistic("n", "hit", "number of hits", np.sum),
)
MEASURES = (
    Measure("hit", "an event", dtype="bool"), Measure("hit01", "an event in floats", event=True), Measure("x", "x"),
    Measure("score", "a score", ragged=True), Measure("path", "a path", dims=("at",), ragged=True),
)
METHODS = (method("never", 0, 0.3), method("half", 0.5, 0.0), method("always", 2, 2.0))
PANEL = Panel("p", "events", simulate, METHODS, MEASURES, (Factor("n", (1, 2), "size", "int"),), trials=20,
              outputs=(Factor("at", (0, 1), "place", "int"),), statistics=STATISTICS)
ONE = Panel("q", "one trial", simulate, (Method("always", lambda data, setting, streams: {"hit": data < 2}),),
            (Measure("hit", "an event", dtype="bool"),), trials=1)
STUDY = Study("events", "Events", "To test.", (PANEL, ONE), seed=1)
"""


@pytest.fixture
def path(command):
    """Return the path of a store of the study file."""
    Path("events.py").write_text(EVENTS)
    assert command("run", "events.py", "--store", "e.zarr")[0] == 0
    return "e.zarr"


@pytest.mark.slow
def test_table_shows_intervals_of_events_and_numbers_of_values(printed, path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    out = printed("summarise", path)
    first, second = out.split("\n\n")
    heads, never, half, always, *_ = (line.split("  ") for line in first.splitlines()[1:])
    assert [text.strip() for text in heads if text.strip()] == (
        ["n", "algorithm", "hit", "hit01", "x", "score", "score values", "ok"]
    )
    low, high = proportion_interval(20, 20)
    assert [text.strip() for text in always if text.strip()][2:4] == [f"1 [{low:.3g}, {high:.3g}]"] * 2
    assert f"0 [0, {1 - low:.3g}]" in [text.strip() for text in never]
    assert [text.strip() for text in half if text.strip()][-2:] == ["20", "20"]
    assert [text.strip() for text in always if text.strip()][-2:] == ["0", "20"]
    assert "1 [0.025, 1]" in second


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["--wide", "--long"])
def test_files_have_the_declared_statistics_and_counts(command, path, layout):
    rows = list(csv.DictReader(io.StringIO(command("summarise", path, layout, "--csv")[1])))
    records = json.loads(command("summarise", path, layout, "--json")[1])
    assert command("summarise", path, layout, "--output", "a.parquet")[0] == 0
    parquet = pd.read_parquet("a.parquet")
    assert list(rows[0]) == list(records[0]) == list(parquet)
    ds = open_results(path)["p"].to_dataset().load()
    x, score = (ds[name].sel(n=2, algorithm="never").values for name in ("x", "score"))
    long = layout == "--long"
    of = {name: "" if long else f"{name}_" for name in ("x", "hit", "score", "path")}

    def row(measure):
        wanted = {"panel": "p", "n": 2, "algorithm": "never"} | ({"measure": measure} if long else {"at": 0})
        return next(one for one in records if wanted.items() <= one.items())

    assert row("x")[f"{of['x']}rms"] == pytest.approx(np.sqrt(np.mean(x**2)))
    shares = [row("x")[f"{of['x']}ecdf[level={level}]"] for level in (0.25, 0.5)]
    assert shares == [np.mean(x <= 0.25), np.mean(x <= 0.5)]
    assert row("hit")["hit_n"] == 0  # n is a factor, so that the long form has the whole name
    n_values = row("score")[f"{of['score']}n_values"]
    assert (n_values, type(n_values)) == (np.count_nonzero(~np.isnan(score)), int)
    assert {type(one["n"]) for one in records if one["panel"] == "p"} == {int}
    assert (row("hit")[f"{of['hit']}low"], row("hit")[f"{of['hit']}high"]) == tuple(
        map(float, proportion_interval(0, 20))
    )
    one = next(one for one in records if one["panel"] == "q")
    assert (one[f"{of['hit']}low"], one[f"{of['hit']}n_values"]) == (pytest.approx(0.025), 1)


@pytest.mark.slow
def test_long_table_omits_statistics_with_an_axis_and_has_no_column_of_another_measure(command, path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    out = command("summarise", path, "--long", "--panel", "p")[1].splitlines()
    assert out[-1] == "one cell has several values of x_ecdf; print them with --csv"
    heads = out[1].split()
    assert heads[:4] == ["n", "algorithm", "at", "measure"]
    assert {"low", "high", "n_values", "hit_n", "rms"} <= set(heads)
    assert not any(
        "nan" in line for line in out if " never " in line and " score " not in line and " path " not in line
    )


@pytest.mark.slow
def test_store_whose_study_cannot_be_loaded_is_summarised_with_a_note(command, refused, path):
    Path("events.py").unlink()
    code, out, err = command("summarise", path, "--csv")
    assert code == 0
    assert err.startswith("dpstudies: without the statistics that the study declares: cannot read the study file")
    assert err.count("\n") == 1
    assert "x_mean" in out
    assert "hit_low" in out  # of dtype bool
    assert not {"x_rms", "hit01_low"} & set(out.splitlines()[0].split(","))
    assert command("summarise", path)[0] == 0
    refused("summarise", path, "--csv", "--study", "events.py")


@pytest.mark.slow
def test_page_and_figure_show_intervals(command, path):
    study = find_study("events.py", {}).load()
    panel = study.panel("p")
    summary = summarise(open_results(path)["p"].to_dataset(), panel.statistics, panel.events)
    heads, rows, _ = tabulate(summary)
    assert {"hit_low", "hit01_high", "score_n_values", "x_rms"} <= set(heads)
    assert not {"x_n_values", "hit_n_values"} & set(heads)
    always = next(row for row in rows if row[1] == "always")
    assert always[heads.index("hit_low")] == "0.832"
    figures = {figure.name: figure for figure in default_figures(study)}
    assert "Means over trials with 95 % intervals, against n" in figures["p-hit01"].caption
    (plot,) = figures["p-hit01"].draw({"p": summary})
    rows = plot.rows[plot.rows["series"] == "always"]
    assert rows["at_least"].tolist() == [float(proportion_interval(20, 20)[0])] * 2
    assert plot.limits[0] <= 0
    (scores,) = figures["p-score"].draw({"p": summary})
    assert scores.rows[scores.rows["series"] == "never"]["trials"].tolist() == (
        summary.score_n_values.sel(algorithm="never").values.tolist()
    )
    text = json.dumps(specify([plot])) + interactive([plot])
    assert "isValid(datum.at_least) ? datum.at_least : datum.y - 2 * datum.mcse" in text
    assert "at_least" not in json.dumps(specify([scores]))


@pytest.mark.parametrize(("mean", "shown"), [(1.0, "1 [0.964, 1]"), (0.5, "0.5 [0.403, 0.597]"), (np.nan, "")])
def test_tables_of_pages_show_the_interval_of_an_event(mean, shown):
    low, high = proportion_interval(100 * mean, 100)
    assert show_mean("x")(xr.Dataset({"x_mean": mean, "x_mcse": 0.05, "x_low": low, "x_high": high})) == shown


@pytest.mark.slow
def test_precision_of_equal_events_is_unknown_on_the_page(command):
    Path("events.py").write_text(EVENTS)
    words = ("--panel", "p", "--set", "n=1", "--set", "algorithm=always")
    target = ("--until", "mcse(hit) <= 0.2", "--at-most", "100")
    code, _, err = command("run", "events.py", "--store", "u.zarr", *words, *target)
    assert code == 3
    assert "do not determine its error" in err
    assert command("report", "u.zarr")[0] == 0
    page = Path("u.html").read_text()
    assert "± 0" not in page
    assert page.count(">unknown<") >= 3
    assert "hit_low" in page
