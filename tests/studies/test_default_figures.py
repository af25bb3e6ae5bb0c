"""Tests of the figures of studies that declare none."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from pipeline import Factor, Method, open_results, run, summarise
from studies import STUDIES
from studies.report.page import default_figures, drawable
from tests.studies.test_cli import STUDY_FILE
from tests.studies.test_summaries import PANEL, plain
from tests.studies.test_summaries import Study as Declared


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
        drawn = [rows for _, rows in plot.rows.groupby("series", sort=False)]
        means = summary[f"{figure.name.removeprefix('p-')}_mean"].isel(t=0)
        means = means.isel(step=0) if "step" in means.dims else means
        assert len(drawn) == len(methods)
        for rows, method in zip(drawn, methods, strict=True):
            expected = means.sel(algorithm=method.name) if several else means
            assert rows["x"].tolist() == [1, 2, 10]
            np.testing.assert_array_equal(rows["y"], expected.values)


@pytest.mark.slow
def test_page_of_an_own_study_has_a_default_figure(command):
    Path("toy.py").write_text(STUDY_FILE)
    command("run", "toy.py", "--store", "t.zarr")
    assert command("report", "t.zarr", "--figures", "figures")[0] == 0
    assert Path("t.html").read_text().count("<figure") == 1
    assert sorted(path.name for path in Path("figures").iterdir()) == ["p-x.png", "p-x.svg"]


def test_declared_figures_replace_the_default_ones():
    study = STUDIES["hellinger-accuracy"]
    evaluated = xr.Dataset({"n_ok": 1})
    summaries = dict.fromkeys((panel.name for panel in study.panels), evaluated)
    assert drawable(study, summaries) == list(study.figures)
