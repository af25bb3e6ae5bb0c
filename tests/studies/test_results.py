"""Tests of the results that pages state: completeness, scale, wall time, and means and ranks of benchmarks."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import pipeline
from mechanisms import MECHANISMS
from pipeline import Method
from pipeline.precision.goals import Reached
from pipeline.precision.targets import Precision
from studies import STUDIES
from studies.benchmark.compared_panel import ComparedPanel
from studies.benchmark.method_summary import MethodSummary
from studies.benchmark.page import state_guarantee
from studies.benchmark.results import BenchmarkResults, FitCost, MethodResult, PanelResult, _is_admitted
from studies.benchmark.tables import _show_mean
from studies.benchmark.uniformity import judge_tests
from studies.figures import Axis, Plot
from studies.figures.vega import specify_small
from studies.report.results import StudyResults, read_results
from studies.report.selections import _restrict
from studies.report.study import _tabulate_precision, store_page
from studies.report.summaries import State
from studies.styles import Look
from tests.pipeline.helpers import make_study

TRACES = STUDIES["gibbs-traces"]


def results_of(study, store=None, records=()):
    return StudyResults(study, store, {}, [], None, [], list(records))


@pytest.mark.parametrize("share", ["1/2", "2/2"])
def test_a_finished_share_of_a_run_has_no_pending_evaluations(tmp_path, share):
    study = make_study(Method("m", lambda data, setting, streams: {"x": data}), trials=40, block_trials=10)
    store = pipeline.run(study, tmp_path / "s.zarr", share=share)
    assert read_results(store, study).state == (20, 0, 0)
    assert f"The store has share {share} of a run, not all of its trials." in store_page(store, study)


def test_the_published_scale_has_all_values_methods_and_trials(tmp_path):
    store = pipeline.run(TRACES, tmp_path / "s.zarr")
    assert results_of(TRACES.configure(), store).scale == "published"
    accuracy = STUDIES["hellinger-accuracy"]
    for values in ({"mechanism": ["laplace"]}, {"n": [101, 201, 301, 401, 501]}):
        assert results_of(accuracy.configure(values=values)).scale == ""


def test_wall_time_includes_sessions_that_stopped_early():
    times = {"started": "2026-01-01T00:00:00Z", "ended": "2026-01-01T00:01:00Z"}
    records = [times, {**times, "finished": "2026-01-01T00:00:30Z"}, {"started": times["started"]}]
    assert results_of(TRACES.configure(), records=records).seconds == 90


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        ({"slow": {"a": [10, 60.0]}, "fast": {"a": [90, 20.0], "b": [0, 0.0]}}, "68 s"),  # 3/4 of the time
        ({"slow": {"a": [10, 0.0]}}, "9 s"),  # not measurable: a tenth of the evaluations
        ({}, "9 s"),
    ],
)
def test_forecast_of_a_precision_has_the_share_of_its_panel_in_the_wall_time(costs, expected):
    reached = Reached("slow", "n=1", Precision(10, 1.0, 0.1, 0.05, 2.0), "mcse(x) <= 0.05", n_asked=10, n_more=10)
    sessions = [{"costs": costs}]
    results = SimpleNamespace(precision=[reached], seconds=90.0, sessions=sessions, state=State(95, 5, 0))
    ((table, _),) = _tabulate_precision(results)
    assert dict(zip(table.heads, table.rows[0], strict=True))["time to halve"] == expected


def compared_panel(summaries, attributes):
    study = STUDIES["hellinger-accuracy"]
    coordinates = {"n": xr.DataArray([100, 200], dims="n")}
    return ComparedPanel(study.name, study.panel("k2"), study.criteria, coordinates, summaries, attributes, own="mine")


def test_methods_without_a_guarantee_or_with_a_broken_one_are_not_admitted():
    empty = MethodSummary({"ok": np.ones(2)}, {}, {}, {}, {})
    audits = {
        name: json.dumps({name: {"verdict": verdict}}) for name, verdict in (("mine", "holds"), ("cheat", "broken"))
    }
    panel = compared_panel({"mine": empty, "open": empty}, {"audits": audits["mine"], "not_private": "open"})
    references = dict.fromkeys(("cheat", "local", "fair"), empty)
    panel = panel.with_summaries(references, {"audits": audits["cheat"], "not_private": "local"})
    admitted = {name: _is_admitted(panel, name, judge_tests([])) for name in panel.methods}
    assert admitted == {"mine": True, "open": False, "cheat": False, "local": False, "fair": True}
    results = BenchmarkResults("open", "counts", [PanelResult(replace(panel, own="open"), [])], judge_tests([]))
    assert state_guarantee(results, MECHANISMS["local"]) == "open states no guarantee, so that it has no rank."


@pytest.mark.parametrize(("errors", "expected"), [((0.3, 0.4), "2.00 ± 0.25"), ((0.3, math.nan), "2 ± unknown")])
def test_unknown_errors_of_means_are_stated(errors, expected):
    summary = MethodSummary({}, {"hellinger": np.array([[1.0, errors[0]], [3.0, errors[1]]])}, {}, {}, {})
    result = MethodResult(compared_panel({"mine": summary}, {}), "mine", judge_tests([]), None, None, FitCost())
    assert _show_mean(result, "hellinger") == expected


def test_errors_of_cells_with_the_same_data_are_added():
    study = STUDIES["private-mcmc"]
    panel = study.panel("simulated")
    n_settings = int(np.prod([len(factor.values) for factor in panel.method_factors]))
    n_cells = n_settings * int(np.prod([len(factor.values) for factor in panel.factors]))
    summary = MethodSummary({}, {"energy": np.tile([1.0, 0.1], (n_cells, 1))}, {}, {}, {})
    axes = {
        axis.name: xr.DataArray(list(axis.values), dims=axis.name) for axis in (*panel.factors, *panel.method_factors)
    }
    compared = ComparedPanel(study.name, panel, study.criteria, axes, {"mine": summary}, own="mine")
    result = MethodResult(compared, "mine", judge_tests([]), None, None, FitCost())
    assert n_settings > 1
    assert result.mean("energy") == pytest.approx((1.0, 0.1 / (n_cells / n_settings) ** 0.5))


def test_bars_of_errors_begin_at_the_end_of_a_logarithmic_axis():
    rows = pd.DataFrame({"series": "a", "x": [1, 2], "y": [1.0, 5.0], "mcse": [0.8, 0.1]})
    plot = Plot(rows=rows, looks={"a": Look("red")}, y=Axis("loss", log=True))
    (bars,) = [layer for layer in spec_layers(specify_small(plot)) if "from" in json.dumps(layer["transform"])]
    (start,) = [step["calculate"] for step in bars["transform"] if step.get("as") == "from"]
    assert start.startswith("max(")
    assert 0 < float(start.rpartition(",")[2].rstrip(") ")) <= 1.0


def spec_layers(spec):
    for part in (spec, *spec.get("layer", ()), *spec.get("hconcat", ()), *spec.get("vconcat", ())):
        if part is not spec:
            yield from spec_layers(part)
        elif "transform" in part:
            yield part


def test_one_of_several_values_may_be_that_of_a_constant():
    summary = xr.Dataset({"x": ("n", [1.0, 2.0])}, {"n": [1, 2], "epsilon": 0.1})
    assert _restrict(summary, "epsilon", ["1", "0.1"]).identical(summary)
    with pytest.raises(pipeline.BadInputError, match="unknown epsilon"):
        _restrict(summary, "epsilon", ["1", "2"])
    assert _restrict(summary, "n", ["2", "2"]).n.values.tolist() == [2]
