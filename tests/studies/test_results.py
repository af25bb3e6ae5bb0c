"""Tests of the results that pages state: completeness, scale and wall time."""

import pytest

import pipeline
from pipeline import Method
from studies import STUDIES
from studies.report.results import StudyResults, read_results
from tests.pipeline.helpers import make_study

TRACES = STUDIES["gibbs-traces"]


def results_of(study, store=None, records=()):
    return StudyResults(study, store, {}, [], None, [], list(records))


@pytest.mark.parametrize("share", ["1/2", "2/2"])
def test_a_finished_share_of_a_run_has_no_pending_evaluations(tmp_path, share):
    study = make_study(Method("m", lambda data, setting, streams: {"x": data}), trials=40, block_trials=10)
    store = pipeline.run(study, tmp_path / "s.zarr", share=share)
    assert read_results(store, study).state == (20, 0, 0)


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
