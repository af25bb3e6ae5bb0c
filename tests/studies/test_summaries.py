"""Tests of the command ``summarise``: selections, wide and long tables, and file formats."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from pipeline import Factor, Measure, Method, Panel, Study, open_results, run, summarise, to_pandas
from studies.report.selections import select
from studies.report.summaries import tabulate
from tests.pipeline.helpers import draw_uniforms, make_study
from tests.studies.test_cli import STUDY_FILE

SIZES = Factor("n", (1, 2, 10), "size", "int")
SCALES = Factor("scale", (0.5,), "scale")


def simulate(cell, streams):
    return cell["n"] + streams.uniforms(1)[:, 0]


def plain(data, setting, streams):
    return {"x": data, "x_squared": data**2, "path": np.stack([data, 2 * data], axis=1)}


def negated(data, setting, streams):
    if np.any(data > 10):
        raise ValueError("=too large")
    return plain(-data, setting, streams)


MEASURES = (Measure("x", "x"), Measure("x_squared", "square"), Measure("path", "a path", dims=("step",)))
PANEL = Panel(
    "p",
    "a panel",
    simulate,
    (Method("plain", plain), Method("=negated()", negated)),
    MEASURES,
    (SIZES,),
    outputs=(Factor("step", (1, 2), "step", "int"),),
    constants=(SCALES,),
    trials=5,
)
OTHER = Panel(
    "q",
    "another panel",
    draw_uniforms,
    (Method("only", lambda data, setting, streams: {"y": data}),),
    (Measure("y", "y"),),
    trials=5,
)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Return the path of a small store with two panels."""
    return run(Study("s", "S", "To test.", (PANEL, OTHER), seed=1), tmp_path_factory.mktemp("s") / "s.zarr").url


@pytest.fixture
def table(command, path):
    """Return a function that prints a selection of a summary as CSV and returns it as a table."""

    def read(*words):
        code, out, err = command("summarise", path, "--csv", *words)
        assert (code, err.count("\n")) == (0, 1)
        assert "has no reference to its study; name the study with --study" in err
        return pd.read_csv(io.StringIO(out))

    return read


def test_printed_numbers_are_the_means_and_errors(command, path):
    code, out, _ = command("summarise", path, "--panel", "p", "--measure", "x")
    summary = summarise(open_results(path)["p"].to_dataset())
    assert code == 0
    head, titles, *rows = out.splitlines()
    assert head == "p: a panel (scale=0.5)"
    assert titles.split() == ["n", "algorithm", "x", "ok", "failed"]
    one = summary.sel(n=2, algorithm="plain")
    (found,) = [row.split() for row in rows if row.split()[:2] == ["2", "plain"]]
    assert found == ["2", "plain", f"{one.x_mean.item():.4g}", "±", f"{one.x_mcse.item():.2g}", "5", "0"]


def test_values_over_an_output_are_in_the_long_form_only(command, path):
    code, out, _ = command("summarise", path, "--panel", "p")
    assert (code, out.splitlines()[-1]) == (0, "one cell has several values of path; print them with --long")
    code, out, _ = command("summarise", path, "--panel", "p", "--measure", "path", "--long")
    assert [line.split()[:4] for line in out.splitlines()[1:4]] == [
        ["n", "algorithm", "step", "measure"],
        ["1", "plain", "1", "path"],
        ["1", "plain", "2", "path"],
    ]


def test_page_omits_errors_of_quantiles_and_no_error_of_a_mean():
    """The measure `depth_median` has a name that ends as that of a quantile."""
    ds = xr.Dataset({name: ("trial", [1.0, 2.0, 4.0]) for name in ("loss", "depth_median")})
    heads, _, _ = tabulate(summarise(ds.assign(status=("trial", [1, 1, 1]))))
    errors = [name for name in heads if name.endswith("_mcse")]
    assert errors == ["loss_mcse", "depth_median_mcse"]


@pytest.mark.slow
def test_outputs_of_a_single_cell_name_the_rows(tmp_path):
    method = Method("double", lambda data, setting, streams: {"y": 2.0 * np.arange(1, 4)})
    step = Factor("step", (1, 2, 3), "step", "int")
    measure = Measure("y", "y", dims=("step",))
    study = make_study(method, measures=(measure,), outputs=(step,), method_dim=None, trials=None)
    store = run(study, tmp_path / "s.zarr", progress=False)
    (selected,) = select(store.url, [], [], {})
    assert selected.texts(False) == (["step", "y", "ok"], [["1", "2", "1"], ["2", "4", "1"], ["3", "6", "1"]], 1)


@pytest.mark.slow
@pytest.mark.parametrize("columns", [40, 60, 80, 200])
@pytest.mark.parametrize("form", ["--wide", "--long"])
def test_table_fits_the_terminal_and_keeps_every_column(command, path, monkeypatch, columns, form):
    words = ("summarise", path, "--panel", "p", "--measure", "x", "--measure", "x_squared", form)
    monkeypatch.setenv("COLUMNS", "10000")
    whole = command(*words)[1].splitlines()
    monkeypatch.setenv("COLUMNS", str(columns))
    parts = command(*words)[1].splitlines()
    assert max(len(line.rstrip()) for line in parts) <= columns
    n_rows = len(whole) - 1  # number of lines without the title
    headings = [word for line in parts[1::n_rows] for word in line.split() if word not in ("n", "algorithm", "measure")]
    assert headings == [word for word in whole[1].split() if word not in ("n", "algorithm", "measure")]


@pytest.mark.parametrize(
    ("where", "cells"),
    [
        (("n=2",), [(2, "plain"), (2, "=negated()")]),
        (("n=1,10,algorithm=plain",), [(1, "plain"), (10, "plain")]),
        (("n=10", "algorithm==negated()"), [(10, "=negated()")]),
        (("n=10,1", "algorithm=plain", "scale=.5"), [(10, "plain"), (1, "plain")]),
    ],
)
def test_where_selects_cells_and_settings(command, path, where, cells):
    words = [word for given in where for word in ("--where", given)]
    out = command("summarise", path, "--json", *words)[1]
    assert [(row["n"], row["algorithm"]) for row in json.loads(out)] == [cell for cell in cells for _ in (1, 2)]


def test_panels_without_the_selected_factor_or_measure_are_omitted(table):
    assert set(table().panel) == {"p", "q"}
    assert set(table("--where", "n=1").panel) == {"p"}
    assert set(table("--measure", "y").panel) == {"q"}
    assert "x_squared_mean" not in table("--measure", "x", "--panel", "p")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--where", "n=3"), "unknown n '3'; allowed: 1, 2, 10"),
        (("--where", "n=2.5"), "n must be an integer, got '2.5'"),
        (("--where", "m=3"), "unknown factor 'm'; "),
        (("--where", "n"), "--where must be given as NAME=V,NAME=V1,V2, got 'n'"),
        (("--where", "n=,scale=1"), "--where must be given as"),
        (("--where", "=1"), "--where must be given as"),
        (("--where", "scale=0.7"), "unknown scale '0.7'; did you mean 0.5?"),
        (("--where", "algorithm=plane"), "did you mean plain?"),
        (("--measure", "x_sqared"), "did you mean x_squared?"),
        (("--csv", "--json"), "exclude each other"),
        (("--csv", "--output", "a.csv"), "exclude each other"),
        (("--output", "a.xlsx"), "--output must be a .csv, .json or .parquet file"),
        (("--output", "absent/a.csv"), "in an existing folder"),
    ],
)
def test_invalid_selections_are_refused_in_one_line(refused, path, tmp_path, words, message):
    refused("summarise", path, *words, message=message)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["--wide", "--long"])
def test_files_have_the_printed_values(command, path, form):
    words = ("summarise", path, form, "--panel", "p")
    for name in ("a.csv", "a.json", "a.parquet"):
        assert command(*words, "--output", name)[:2] == (0, f"summary: {name}\n")
    assert Path("a.csv").read_text() == command(*words, "--csv")[1]
    assert Path("a.json").read_text() == command(*words, "--json")[1]
    parquet = pd.read_parquet("a.parquet")
    records = pd.DataFrame(json.loads(Path("a.json").read_text()))
    pd.testing.assert_frame_equal(parquet, records.astype(parquet.dtypes), check_exact=True)
    names = ["panel", "n", "algorithm", "step", *(["measure"] if form == "--long" else [])]
    mean = "mean" if form == "--long" else "path_mean"
    chosen = parquet[parquet.measure == "path"] if form == "--long" else parquet
    summary = summarise(open_results(path)["p"].to_dataset()).path_mean
    found = chosen.set_index(names[1:4])[mean].to_xarray().reindex_like(summary)
    xr.testing.assert_equal(
        found.transpose(*summary.dims).rename(None), summary.drop_attrs().drop_vars("scale").rename(None)
    )


def test_parquet_without_its_package_is_refused_in_one_line(refused, path, monkeypatch):
    monkeypatch.setattr("studies.commands.summaries.find_spec", lambda name: None)
    message = "Parquet requires pyarrow; install it with: pip install 'dpstudies[tables]'\n"
    refused("summarise", path, "--output", "a.parquet", message=message)


def test_cells_that_a_spreadsheet_would_execute_are_escaped(command, path):
    out = command("summarise", path, "--csv", "--panel", "p")[1]
    cells = [cell for row in csv.reader(io.StringIO(out)) for cell in row]
    texts = [cell for cell in cells if not cell.replace(".", "").replace("e-", "").lstrip("-").isdigit()]
    assert "'=negated()" in texts
    assert not [cell for cell in texts if cell[:1] in ("=", "+", "-", "@")]
    assert any(cell.startswith("-") for cell in cells)  # a negative number is not text
    assert "=negated()" in {
        row["algorithm"] for row in json.loads(command("summarise", path, "--json")[1]) if row["algorithm"]
    }


def test_trial_prints_one_row_per_method_and_the_error_of_a_failed_one(command):
    Path("toy.py").write_text(STUDY_FILE)
    command("run", "toy.py", "--store", "t.zarr")
    code, out, _ = command("trial", "t.zarr", "--panel", "p", "--cell", "n=2", "--trial", 0)
    value = xr.open_zarr("t.zarr", group="p").x.sel(n=2, algorithm="mean", trial=0).values.item()
    assert code == 0
    assert [line.split() for line in out.splitlines()] == [
        ["method", "status", "verdict", "x"],
        ["mean", "ok", "equal", f"{value:.6g}"],
        ["odd", "failed", "equal"],
        ["odd:", "value", "is", "two"],
    ]


AUDITED = """
from pipeline import Factor, Measure, Method, Panel, Study

def simulate(cell, streams):
    return cell["n"] + streams.uniforms(1)[:, 0]

def evaluate(data, setting, streams):
    return {"x": data}

def audit(panel):
    return {"verdict": "broken", "n": 9, "loss": 2.0, "states": "1-DP", "evidence": "two outputs"}

METHODS = (Method("known", evaluate), Method("bad", evaluate, audit=audit), Method("open", evaluate, is_private=False))
SIZES = (Factor("n", (1, 2), "size", "int"),)
PANEL = Panel("p", "a panel", simulate, METHODS, (Measure("x", "x"),), SIZES, trials=5, method_dim="mechanism")
STUDY = Study("audited", "Audited", "To test.", (PANEL,), seed=1)
"""


@pytest.mark.slow
def test_broken_mechanism_is_marked_in_every_table_and_file(command, monkeypatch):
    """Tables show the result of the audit next to the name; files and pandas have a column with the verdict."""
    monkeypatch.setenv("COLUMNS", "200")  # so that no table is divided
    Path("audited.py").write_text(AUDITED)
    assert command("run", "audited.py", "--store", "s.zarr")[0] == 0
    label, closed = "bad (broken: loses 2 at n = 9)", "open (not private)"
    for words in (["summarise"], ["summarise", "--long"]):
        out = command(*words, "s.zarr")[1]
        assert (out.count(label), out.count("bad"), out.count(closed), out.count("known")) == (2, 2, 2, 2)
    assert label in command("trial", "s.zarr", "--panel", "p", "--cell", "n=1", "--trial", "0")[1]
    assert command("summarise", "s.zarr", "--where", "mechanism=bad")[1].count(label) == 2  # selected by its name
    verdicts = {"known": "", "bad": "broken", "open": ""}
    for layout in ("--wide", "--long"):
        rows = json.loads(command("summarise", "s.zarr", layout, "--json")[1])
        assert {row["mechanism"]: row["mechanism_audit"] for row in rows} == verdicts
        rows = list(csv.DictReader(io.StringIO(command("summarise", "s.zarr", layout, "--csv")[1])))
        assert {row["mechanism"]: row["mechanism_audit"] for row in rows} == verdicts
    ds = open_results("s.zarr")["p"].to_dataset()
    assert to_pandas(ds.sel(mechanism="bad"))["mechanism_audit"].unique().tolist() == ["broken"]
    assert "mechanism_audit" not in to_pandas(ds.drop_attrs())
    assert command("report", "s.zarr")[0] == 0
    assert Path("s.html").read_text().count(label) >= 2


@pytest.mark.parametrize("name", ["zarr.json", "p/x.csv", "p/status/c.csv", "../link/x.csv"])
def test_files_in_a_store_are_not_written(refused, path, name):
    link = Path(path).parent / "link"
    if not link.exists():
        link.symlink_to(Path(path).resolve() / "p")
    before = (Path(path) / "zarr.json").read_bytes()
    for words in (("summarise", path, "--output"), ("report", path, "--markdown")):
        refused(*words, Path(path) / name, message="must not be in a store of results")
    assert (Path(path) / "zarr.json").read_bytes() == before
