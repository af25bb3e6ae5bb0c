"""Tests of the table and the figure of the seconds of methods on the page of a store."""

from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr

import pipeline
from pipeline.store.sessions.costs import MethodCosts
from studies import STUDIES
from studies.report.costs import draw_costs, read_costs, tabulate_costs
from studies.report.results import read_results
from studies.report.study import store_page


@pytest.mark.slow
def test_page_shows_the_seconds_of_each_method(tmp_path):
    options = {"panels": ["binomial"], "values": {"n": [100], "epsilon": [0.1, 1.0]}, "trials": 5, "progress": False}
    store = pipeline.run(STUDIES["calibration"], tmp_path / "s.zarr", **options)
    study = STUDIES["calibration"].from_spec(store.spec)
    results = read_results(store, study)
    costs = read_costs(results)
    assert costs == MethodCosts.of(store.sessions).by_panel
    ((table, n_names),) = tabulate_costs(costs, {"binomial": {"gibbs": 1_234_567}})
    assert {row[1]: row[-1] for row in table.rows if row[-1]} == {"gibbs": "1.23 MB"}
    assert n_names == 2
    assert {("binomial", "non-private", "10"), ("binomial", "gibbs", "10")} <= {row[:3] for row in table.rows}
    (figure,) = draw_costs(results, costs)
    (plot,) = figure.draw(results.summaries)
    assert plot.titles == ["binomial, n=100, epsilon=1"]
    shown = plot.rows[plot.rows["y"].notna()].groupby("series")["x"].max()
    n, seconds = costs["binomial"]["gibbs"]
    assert shown["gibbs"] == float(f"{seconds / n:.2g}")
    page = store_page(store, study)
    assert "Accuracy against cost" in page
    assert "mean s per evaluation" in page
    assert "peak memory (last cell)" in page


def test_stores_without_a_record_of_costs_have_neither():
    assert tabulate_costs({"p": {}}, {}) == []


METHODS = {"gibbs": (4, 2.0), "naive": (4, 1.0)}
PANELS = ("binomial", "multinomial", "exponential")


def results_of(summaries):
    return SimpleNamespace(study=STUDIES["calibration"], summaries=summaries)


def summary_of(names=tuple(METHODS)):
    """Return the summary of a panel with methods whose mean distances are 1, 2, ..."""
    means = xr.Dataset({"mmd2_mean": ("algorithm", np.arange(1.0, len(names) + 1))}, {"algorithm": list(names)})
    return means.assign(mmd2_mcse=0.1 * means["mmd2_mean"])


def test_panels_without_results_or_means_of_the_loss_are_not_drawn():
    results = results_of({name: summary_of() for name in PANELS[:2]} | {PANELS[2]: xr.Dataset()})
    costs = {panel.name: METHODS for panel in results.study.panels}
    (figure,) = draw_costs(results, costs)
    assert figure.panels == PANELS[:2]
    plots = figure.draw({"binomial": summary_of()})  # pages omit panels without ok evaluations
    assert [plot.titles for plot in plots] == [["binomial"]]
