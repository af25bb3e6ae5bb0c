"""Tests of the figures of studies that declare none."""

import json
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

from pipeline import BadInputError, Factor, Figure, Measure, Method, Panel, open_results, run, summarise
from studies import STUDIES
from studies.figures import Chart, Converter, interactive, specify
from studies.figures.defaults import default_figures
from studies.figures.plot import MARKS
from studies.report import write_report
from studies.report.page import drawable, render_figures
from tests.studies.test_summaries import PANEL, plain
from tests.studies.test_summaries import Study as Declared

MEANS = {"covered_mean": 0.9, "covered_mcse": 0.01, "n_ok": 100}


@pytest.mark.parametrize("several", [True, False])
def test_default_figure_shows_the_means_of_every_method(tmp_path, several):
    methods = (Method("a", plain), Method("b", plain)) if several else (Method("a", plain),)
    more = Factor("t", (0.5, 1.5), "time")
    panel = replace(PANEL, methods=methods, factors=(*PANEL.factors, more))
    panel = panel if several else replace(panel, method_dim=None)
    study = Declared("s", "S", "To test.", (panel,), seed=1)
    path = run(study, tmp_path / "s.zarr").url
    summary = summarise(open_results(path)["p"].to_dataset())
    figures = default_figures(study)
    assert [figure.name for figure in figures] == ["p-x", "p-x_squared", "p-path"]
    for figure in figures:
        (plot,) = figure.draw({"p": summary})
        means = summary[f"{figure.name.removeprefix('p-')}_mean"]
        assert plot.titles == ["t = 0.5", "t = 1.5"]
        assert plot.picks == (["step = 1", "step = 2"] if "step" in means.dims else [])
        for (axes, pick, name), rows in plot.rows.assign(pick=plot.rows.get("pick", "")).groupby(
            ["axes", "pick", "series"], sort=False
        ):
            at = {"t": float(axes.removeprefix("t = "))} | ({"step": int(pick.removeprefix("step = "))} if pick else {})
            expected = means.sel(at | ({"algorithm": name} if several else {}))
            assert rows["x"].tolist() == [1, 2, 10]
            np.testing.assert_array_equal(rows["y"], expected.values)
        assert plot.rows["y"].size == means.size


def _coverage(is_event=True, **factors):
    """Return a study of coverage with factors, and its summary."""
    declared = tuple(Factor(name, tuple(values), name) for name, values in factors.items())
    measures = (Measure("covered", "coverage", nominal=0.95, event=is_event),)
    panel = replace(PANEL, factors=declared, measures=measures, outputs=())
    coords = {**{name: list(values) for name, values in factors.items()}, "algorithm": ["mean", "median"]}
    means = {**MEANS, **({"covered_low": 0.88, "covered_high": 0.93} if is_event else {})}
    shape = tuple(map(len, coords.values()))
    variables = {name: xr.DataArray(np.full(shape, value), coords, list(coords)) for name, value in means.items()}
    return Declared("s", "S", "To test.", (panel,), seed=1), xr.Dataset(variables)


def test_figure_names_all_factors_and_shows_the_nominal_value():
    """Two distributions in axes, three orders by a selector, and a line at the nominal coverage."""
    study, summary = _coverage(is_event=False, size=(10, 20, 30), order="abc", shape=("t", "exp"))
    (figure,) = default_figures(study)
    assert figure.caption == (
        "Means over trials with bars of two Monte Carlo standard errors, against size, with one plot per shape. order: "
        "the first values; others can be selected on the page. The horizontal line is the nominal value, 0.95."
    )
    (plot,) = figure.draw({"p": summary})
    assert plot.rows["level"].dropna().unique().tolist() == [0.95]
    assert json.loads(interactive([plot]))["picks"] == ["order = a", "order = b", "order = c"]
    spec = specify([plot])
    assert {"name": "picked", "value": "order = a"} in spec["params"]
    assert spec["datasets"]["legend"][0]["heading"] == "order = a"


def test_figure_has_the_ordered_factor_on_its_axis():
    """The number of records, which is the second factor, is on the axis; the categories have axes each."""
    study, summary = _coverage(shape=("t", "exp", "normal"), n=(10, 20))
    (plot,) = default_figures(study)[0].draw({"p": summary})
    assert plot.titles == ["shape = t", "shape = exp", "shape = normal"]
    assert plot.rows["x"].dropna().unique().tolist() == [10, 20]
    assert plot.marks == ("level", "line", "errors", "points")
    study, summary = _coverage(shape=("t", "exp", "normal"), n=("small", "large"))
    (plot,) = default_figures(study)[0].draw({"p": summary})
    assert plot.titles == ["n = small", "n = large"]
    assert plot.marks == ("level", "errors", "points")
    assert plot.x.discrete


@pytest.mark.parametrize(
    ("over", "facet", "marks"),
    [("n", "shape", ("level", "line", "errors", "points")), ("shape", "n", ("level", "errors", "points"))],
)
def test_chart_has_error_bars_and_the_nominal_value_by_default(over, facet, marks):
    """Lines join numbers only. Markers at the same category are next to each other."""
    study, summary = _coverage(shape=("t", "exp", "normal"), n=(10, 20))
    chart = Chart("p", over=over, show={"y": "covered_mean"}, lines="algorithm", facet={facet: "{}"})
    figure = Figure("f", "A figure", "Coverage.", ("p",), chart)
    drawn = render(replace(study, figures=(figure,)), {"p": summary})
    assert drawn.plot.marks == marks
    assert drawn.plot.rows["level"].dropna().unique().tolist() == [0.95]
    shown = json.loads(drawn.data)["scales"]
    kinds = [layer["mark"]["type"] for layer in next(iter(shown.values()))["vconcat"][-1]["spec"]["layer"]]
    assert kinds[: len(marks)] == [MARKS[mark].drawn["type"] for mark in marks]
    assert ('"xOffset"' in drawn.data) is (over == "shape")


def render(study, summaries):
    """Return the only figure of a study as its page shows it."""
    with Converter() as converter:
        (figure,), _ = render_figures(study, summaries, converter)
        figure.svg.result()
    return figure


def test_chart_without_errors_or_nominal_value_has_none():
    summary = xr.Dataset({"x": ("n", [1.0, 2.0]), "n_ok": ("n", [5, 5])}, {"n": [1, 2]})
    (plot,) = Chart("p", "n", {"y": "x"})({"p": summary})
    assert plot.marks == ("line", "points")


def test_figure_of_many_methods_shows_the_extremes():
    """Without a direction of the measure, the largest and the smallest means are shown, and the caption states it."""
    methods = tuple(Method(f"m{i}", plain) for i in range(11))
    panel = replace(PANEL, methods=methods, outputs=(), measures=(Measure("x", "a number"),))
    means = np.tile(np.arange(11.0), (len(panel.factors[0].values), 1))
    coords = {panel.factors[0].name: list(panel.factors[0].values), "algorithm": [method.name for method in methods]}
    values = {"x_mean": means, "x_mcse": np.ones_like(means), "n_ok": np.full(means.shape, 9)}
    summary = xr.Dataset({name: (list(coords), value) for name, value in values.items()}, coords)
    drawn = render(Declared("s", "S", "To test.", (panel,), seed=1), {"p": summary})
    assert {"m0", "m10"} <= set(drawn.plot.shown)
    assert drawn.caption.endswith(
        "3 of 11 lines are hidden at first. At no point does a hidden line have a lower estimate or a higher estimate "
        "than every shown line."
    )


@pytest.mark.slow
@pytest.mark.parametrize("per_trial", [True, False])
def test_default_figure_of_a_panel_without_trials_shows_exact_values(tmp_path, per_trial):
    """A summary of a panel without trials has no means, whatever its measures declare."""
    sizes, measures = (Factor("n", (1, 10), "size"),), (Measure("x", "twice the size", per_trial=per_trial),)
    methods = (Method("a", lambda data, setting, streams: {"x": 2.0 * data["n"]}),)
    panel = Panel("p", "a panel", lambda cell, streams: cell, methods, measures, sizes)
    study = Declared("s", "S", "To test.", (panel,), seed=1)
    store = run(study, tmp_path / "s.zarr")
    (figure,) = default_figures(study)
    (plot,) = figure.draw({"p": summarise(open_results(store)["p"].to_dataset())})
    assert plot.rows["y"].tolist() == [2.0, 20.0]
    assert figure.caption == "Exact values, against n."
    write_report(store, study, tmp_path / "s.html")
    assert "Exact values, against n." in (tmp_path / "s.html").read_text()


@pytest.mark.slow
def test_page_of_an_own_study_explains_only_what_it_shows(tmp_path):
    """Without origins of methods and without claims, there is no text about papers, and no section with one link."""
    (method,) = PANEL.methods[:1]
    methods = (replace(method, evaluate=lambda data, setting, streams: {"covered": data > 1}),)
    measures = (Measure("covered", "coverage of 95 % intervals", dtype="bool"),)
    panel = replace(PANEL, methods=methods, measures=measures, outputs=())
    study = Declared("s", "<script>S</script>", "To test.", (panel,), seed=1)
    store = run(study, tmp_path / "s.zarr")
    write_report(store, study, tmp_path / "s.html")
    page = (tmp_path / "s.html").read_text()
    assert ("<script>S" in page, "&lt;script&gt;S" in page) == (False, True)  # the title is escaped
    assert '"title":"coverage of 95 % intervals"' in page
    assert page.count("<figure") == 1
    for text in ("mean of coverage", "methods of the papers", "the first figure", "Claims and figures"):
        assert text not in page.replace("\n", " ")
    assert "A click on the name of a line hides or shows it." in page


def test_nominal_value_must_be_a_finite_number():
    with pytest.raises(BadInputError, match=r"must have a finite number as nominal value, got nan; give e.g. 0.95"):
        Measure("covered", "coverage", nominal=float("nan"))


def test_declared_figures_replace_the_default_ones():
    study = STUDIES["hellinger-accuracy"]
    evaluated = xr.Dataset({"n_ok": 1})
    summaries = dict.fromkeys((panel.name for panel in study.panels), evaluated)
    assert drawable(study, summaries) == list(study.figures)
