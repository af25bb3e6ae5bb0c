"""Trials of `regression-inference` at which a method has an unusual result."""

import pytest
import xarray as xr


def test_a_bootstrap_without_spread_of_a_component_is_a_result(run_panel, study):
    values = {"n": [10], "epsilon": [1.0], "records": ["inside"], "track": ["approximate"], "algorithm": ["adassp"]}
    results = run_panel(study, "one-feature", trials=1, **values)
    assert results["status"].item() == 1
    assert results["rhat"].max().item() == pytest.approx(1.0, abs=0.01)


def test_methods_that_release_records_analyse_those_of_the_prior(run_panel, study):
    values = {"n": [10_000], "records": ["own"], "track": ["approximate"], "algorithm": ["adassp", "dp-gd", "binagg"]}
    results = run_panel(study, "five-features", trials=1, **values)
    assert (results["status"] == 1).all()


@pytest.mark.parametrize(("records", "track"), [("inside", "pure"), ("outliers", "approximate")])
def test_figures_state_the_cell_that_they_show(study, records, track):
    means = {f"{measure}_{name}": 0.9 for measure in ("covered", "score") for name in ("mean", "mcse")}
    ds = xr.Dataset(means).expand_dims(
        n=[10, 100], records=[records, "clamped"], track=[track], epsilon=[0.5], component=["intercept", "slope-1"],
        algorithm=["naive"])  # fmt: skip
    for figure in study.figures:
        (plot,) = figure.draw({"one-feature": ds})
        assert plot.titles == [f"records: {records}, ε = 0.5, {track} track"]
