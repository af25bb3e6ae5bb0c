"""Tests of trials that are asked for only where claims that lead need them."""

from dataclasses import replace

import numpy as np
import pytest

from pipeline import BadInputError, claim, extend, merge, open_results, resume, run, verdict
from pipeline.execution.work import PendingWork
from pipeline.precision.headlines import with_headline_trials
from pipeline.store.result_store import ResultStore
from tests.pipeline.helpers import assert_equal_arrays
from tests.pipeline.precision_study import STUDY


@claim("leading", "Wide draws are large.", kind="self-check", leads=True, needs={"p": {"algorithm": "wide", "sd": 2.0}})
def _leading(look):
    return verdict(look.select("p")["x_mean"] > 0.0, "")


LED = replace(STUDY, claims=(_leading,), headline_trials={"p": 320}).with_trials({"p": 100})
GRID = {"trials": 30, "panels": ["p"], "headline_trials": {"p": 320}}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return run(LED, tmp_path_factory.mktemp("led") / "s.zarr", **GRID)


def test_trials_are_asked_for_where_leading_claims_need_them(store):
    asked = open_results(store)["p"]["n_asked"]
    assert asked.sel(sd=2.0, algorithm="wide") == 320
    assert asked.sel(sd=0.5).values.tolist() == [50, 50, 50]  # whole blocks
    assert asked.sel(sd=2.0, algorithm="narrow") == 50
    assert not PendingWork(LED.configure(320, panels=["p"]), store)


def test_forecast_of_a_new_run_counts_the_trials_that_are_asked_for():
    study, requested = with_headline_trials(LED.configure(30, panels=["p"]), {"p": 320})
    assert PendingWork(study, None, requested=requested).n_evaluations == 320 + 8 * 50


def test_numbers_are_those_of_a_run_of_all_trials(store, tmp_path):
    run(LED, tmp_path / "s.zarr", trials=320, panels=["p"])
    values, whole = (open_results(path)["p"]["x"].load() for path in (store, tmp_path / "s.zarr"))
    computed = np.isfinite(values)
    assert computed.sum() == 320 + 8 * 50
    assert (values == whole).where(computed, True).all()


def test_a_second_run_and_a_resumption_compute_nothing(store):
    n_sessions = len(store.sessions)
    run(LED, store.url, **GRID)
    resume(store.url, study=LED)
    assert len(ResultStore.open(store.url).sessions) == n_sessions


@pytest.mark.slow
def test_extension_asks_for_all_trials_and_parts_for_the_same(store, tmp_path):
    run(LED, tmp_path / "s.zarr", **GRID)
    extend(tmp_path / "s.zarr", study=LED, trials=330)
    assert (open_results(tmp_path / "s.zarr")["p"]["status"] == 1).all()
    parts = [run(LED, tmp_path / f"{k}.zarr", share=f"{k}/2", **GRID) for k in (1, 2)]
    joined = merge(parts, tmp_path / "joined.zarr")
    assert_equal_arrays(joined.url, store.url)
    assert not PendingWork(LED.configure(320, panels=["p"]), joined)


@pytest.mark.parametrize(
    ("chosen", "n_trials"),
    [
        ({}, 320),
        ({"trials": 60}, 60),
        ({"panels": ["p"]}, 100),
        ({"values": {"sd": [2.0]}}, 100),
        ({"headline_trials": {}}, 100),
    ],
)
def test_declared_ones_are_those_of_whole_runs(tmp_path, chosen, n_trials):
    store = run(LED, tmp_path / "s.zarr", **chosen)
    assert open_results(store)["p"].sizes["trial"] == n_trials


@pytest.mark.parametrize(
    ("study", "headline_trials", "message"),
    [
        (LED, {"p": 20}, "at least their 30 trials, got 20 for panel p"),
        (LED, {"p": 0.5}, "headline_trials must be"),
        (LED, {"q": 100}, "unknown panel"),
        (LED, {"table": 100}, "panel table; change or omit it"),
        (replace(LED, claims=()), {"p": 100}, "must name panels that a leading claim needs"),
    ],
)
def test_others_are_refused_before_a_write(tmp_path, study, headline_trials, message):
    with pytest.raises(BadInputError, match=message):
        run(study, tmp_path / "s.zarr", trials=30, headline_trials=headline_trials)
    assert not any(tmp_path.iterdir())


def test_a_target_excludes_them(tmp_path):
    with pytest.raises(BadInputError, match="--until cannot be combined with --trials"):
        run(LED, tmp_path / "s.zarr", until="claims", headline_trials={"p": 100})
