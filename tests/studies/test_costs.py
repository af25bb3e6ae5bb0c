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
    assert "mean s per ok evaluation" in page
    assert "peak memory (last cell)" in page


def test_stores_without_a_record_of_costs_have_neither():
    assert tabulate_costs({"p": {}}, {}) == []


METHODS = {"gibbs": (4, 2.0), "naive": (4, 1.0)}
PANELS = ("binomial", "multinomial", "exponential")


def results_of(summaries, costs=METHODS):
    sessions = [{"costs": dict.fromkeys(summaries, costs)}]
    study = STUDIES["calibration"].configure(panels=[*summaries])
    return SimpleNamespace(study=study, summaries=summaries, sessions=sessions)


def summary_of(names=tuple(METHODS), n_failed=0):
    """Return the summary of a panel with methods whose mean distances are 1, 2, ... after 40 trials."""
    values = {"mmd2_mean": np.arange(1.0, len(names) + 1), "mmd2_mcse": np.full(len(names), 0.1)}
    counts = {"n_ok": np.full(len(names), 40 - n_failed), "n_failed": np.full(len(names), n_failed)}
    return xr.Dataset(
        {name: ("algorithm", array) for name, array in {**values, **counts}.items()}, {"algorithm": list(names)}
    )


def test_panels_without_results_or_means_of_the_loss_are_not_drawn():
    results = results_of({name: summary_of() for name in PANELS})
    results.summaries[PANELS[2]] = summary_of().drop_vars("mmd2_mean")
    (figure,) = draw_costs(results, read_costs(results))
    assert figure.panels == PANELS[:2]
    plots = figure.draw({PANELS[0]: summary_of()})  # pages omit panels without ok evaluations
    assert [plot.titles for plot in plots] == [[PANELS[0]]]


def test_failed_evaluations_which_are_not_timed_do_not_count():
    results = results_of({PANELS[0]: summary_of(n_failed=30), PANELS[1]: summary_of(n_failed=40)})
    assert read_costs(results) == {PANELS[0]: {"gibbs": (1, 2.0), "naive": (1, 1.0)}, PANELS[1]: {}}


def test_methods_without_a_measured_time_are_not_drawn():
    """Records have milliseconds."""
    costs = {**METHODS, "exact": (4, 0.0)}
    results = results_of({PANELS[0]: summary_of(tuple(costs))}, costs)
    (figure,) = draw_costs(results, read_costs(results))
    (plot,) = figure.draw(results.summaries)
    assert set(plot.rows["x"]) == {0.25, 0.5}
    assert set(plot.series) == set(METHODS)
