"""Tests of runs until a precision is reached or claims are decided, on draws with known standard deviations."""

import json
import shutil
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
import xarray as xr

from pipeline import (
    BadInputError,
    Factor,
    Measure,
    Method,
    Status,
    claim,
    compact,
    extend,
    open_results,
    resume,
    run,
    summarise,
    verdict,
)
from pipeline.errors import TargetNotReachedError, UnreadableStoreError
from pipeline.precision import goals
from pipeline.results.verdicts import LookHistory, judge_store
from pipeline.runs import adaptive, session
from pipeline.runs.estimate import forecast
from pipeline.runs.run_plan import RunOptions, plan_extension
from pipeline.runs.verify import verify
from pipeline.store.files.locations import SESSIONS
from pipeline.store.result_store import ResultStore
from pipeline.store.scan.requested import Stop
from pipeline.store.scan.states import count_by_status
from pipeline.store.sessions import lease
from pipeline.store.sessions.recorded_goal import read_goal
from pipeline.store.sessions.records import SESSION_COPIES
from tests.pipeline import toy
from tests.pipeline.helpers import make_study, refusal, unchanged
from tests.pipeline.precision_study import STUDY

TARGET, COARSE = "mcse(x) <= 0.05", "mcse(x) <= 0.1"


def grown(tmp_path, target, **options):
    """Run the panel with trials until a target is reached; return the opened panel."""
    path = tmp_path / "s.zarr"
    run(STUDY, path, until=target, **{"panels": ["p"], "at_most": 4000, **options})
    return open_results(path)["p"].to_dataset().load()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("until") / "s.zarr"
    run(STUDY, path, until=TARGET, at_most=4000)
    return path


@pytest.fixture(scope="module")
def coarse(tmp_path_factory):
    """Return the path of a store with a larger bound and fewer trials, which tests must not change."""
    folder = tmp_path_factory.mktemp("coarse")
    grown(folder, COARSE)
    return folder / "s.zarr"


@pytest.fixture(scope="module")
def refined(tmp_path_factory):
    """Return the path of a store of two runs, until a bound and until a smaller one, which tests must not change."""
    folder = tmp_path_factory.mktemp("refined")
    for bound in ("0.2", "0.09"):
        grown(folder, f"mcse(x) <= {bound}", values={"sd": [0.5, 1.0]})
    return folder / "s.zarr"


def repair_and_continue(path):
    """Repair a store, check that this suffices to continue it, and return the kinds of damage."""
    problems = verify(path, study=STUDY, sample=0, repair=True).problems
    assert not verify(path, study=STUDY, sample=0).problems
    extend(path, until="mcse(x) <= 0.09", at_most=4000, study=STUDY)
    assert count_by_status(ResultStore.open(path), "p")[Status.PENDING] == 0
    return {problem.damage.kind for problem in problems}


def test_trials_are_added_where_they_are_needed(store):
    """The numbers of trials are about (sd/0.05)², in whole blocks, and at least the minimum."""
    asked = open_results(store)["p"]["n_asked"]
    assert asked.sel(algorithm="constant").values.tolist() == [100, 100, 100]
    assert asked.sel(algorithm="narrow").values.tolist()[:2] == [100, 100]
    for sd in (0.5, 1.0, 2.0):
        needed = (sd**2 + 0.01) / 0.05**2
        assert 0.7 * needed <= asked.sel(algorithm="wide", sd=sd) <= 1.3 * needed + 50
    assert (asked % 50 == 0).all()


@pytest.mark.slow
def test_grown_store_has_the_bits_of_a_store_of_fixed_size(coarse, tmp_path):
    whole = tmp_path / "whole.zarr"
    grid = open_results(coarse)["p"].to_dataset().load()
    run(STUDY, whole, trials=grid.sizes["trial"], panels=["p"])
    fixed = xr.open_zarr(whole, group="p").load()
    is_asked = (grid["trial"] < grid["n_asked"]).transpose(*grid["x"].dims).values
    assert not is_asked.all()
    assert grid["x"].values[is_asked].tobytes() == fixed["x"].values[is_asked].tobytes()
    assert np.isnan(grid["x"].values[~is_asked]).all()
    assert (grid["status"].values == np.where(is_asked, Status.OK, Status.NOT_ASKED_FOR)).all()


@pytest.mark.slow
def test_every_error_is_at_most_the_bound_and_trials_that_were_not_asked_for_are_neither_pending_nor_failed(store):
    counts = count_by_status(ResultStore.open(store), "p")
    ds = open_results(store)["p"].to_dataset()
    assert counts[Status.PENDING] == 0
    assert counts[Status.OK] == int(ds["n_asked"].sum())
    assert counts[Status.OK] + counts[Status.NOT_ASKED_FOR] == ds["status"].size
    summary = summarise(ds)
    assert int(summary["n_pending"].sum()) == int(summary["n_failed"].sum()) == 0
    assert (summary["n_ok"] == summary["n_asked"]).all()
    assert bool((summary["x_mcse"] <= 0.05).all())
    assert set(summary["stopped"].values.ravel()) == {"precision reached", "all values equal"}
    assert (summary["stopped"].sel(algorithm="constant") == "all values equal").all()


@pytest.mark.slow
def test_resume_and_verify_leave_them_alone(store):
    with unchanged(store):
        resume(store, study=STUDY)
        found = verify(store, study=STUDY, sample=5)
    assert (found.n_pending, found.problems) == (0, ())
    assert found.n_read == int(open_results(store)["p"]["n_asked"].sum()) // 50 + 1


def test_session_records_target_numbers_and_reasons(store):
    (record,) = ResultStore.open(store).sessions
    assert record["until"] == TARGET
    assert set(record["asked"]) == {"p"}
    assert record["asked"]["p"]["shape"] == [3, 3]
    assert set(record["asked"]["p"]["stopped"]) == {Stop.REACHED, Stop.CONSTANT}


@pytest.mark.slow
def test_fixed_extension_and_run_ask_for_all_trials(coarse, tmp_path):
    path, other = (shutil.copytree(coarse, tmp_path / name) for name in ("s.zarr", "t.zarr"))
    sizes = open_results(coarse)["p"].sizes
    n_all = sizes["sd"] * sizes["algorithm"] * sizes["trial"]
    assert count_by_status(ResultStore.open(coarse), "p")[Status.OK] < n_all
    extend(path, trials=sizes["trial"], study=STUDY)
    assert count_by_status(ResultStore.open(path), "p")[Status.OK] == n_all
    assert "n_asked" not in open_results(path)["p"].coords
    run(STUDY, other, trials=sizes["trial"], panels=["p"])
    assert count_by_status(ResultStore.open(other), "p")[Status.OK] == n_all


@pytest.mark.slow
def test_new_values_ask_for_all_trials_and_keep_the_others(tmp_path):
    ds = grown(tmp_path, COARSE, values={"sd": [0.5, 2.0]})
    path = tmp_path / "s.zarr"
    extend(path, values={"sd": [0.2]}, study=STUDY)
    larger = open_results(path)["p"].to_dataset()
    assert (larger["n_asked"].sel(sd=0.2) == ds.sizes["trial"]).all()
    assert (larger["n_asked"].sel(sd=[0.5, 2.0]).values == ds["n_asked"].values).all()
    assert count_by_status(ResultStore.open(path), "p")[Status.PENDING] == 0


def test_a_new_factor_value_does_not_add_trials_of_methods_that_ignore_the_factor(tmp_path):
    def shifted(data, setting, streams):
        return {"x": data + setting["shift"]}

    def plain(data, setting, streams):
        return {"x": 10 * data}

    shift = Factor("shift", (1.0, 2.0), "shift")
    methods = Method("shifted", shifted, uses=("shift",)), Method("plain", plain)
    study = make_study(*methods, method_factors=(shift,), trials=2000, block_trials=50)
    path = run(study, tmp_path / "s.zarr", values={"shift": [1.0]}, until="mcse(x) <= 0.1").url
    before = open_results(path)["p"].to_dataset().load()
    assert before.n_asked.sel(algorithm="plain").item() > before.n_asked.sel(algorithm="shifted").item()
    extend(path, study=study, values={"shift": [2.0]})
    ds = open_results(path)["p"].to_dataset().load()
    assert ds.sel(shift=[1.0]).equals(before)
    assert (ds.n_asked.sel(algorithm="plain") == before.n_asked.sel(algorithm="plain").item()).all()
    assert ds.n_asked.sel(algorithm="shifted", shift=2.0).item() == before.sizes["trial"]
    assert count_by_status(ResultStore.open(path), "p")[Status.PENDING] == 0


def test_panels_without_the_measure_of_a_target_may_be_left_out(tmp_path):
    def draw(name):
        return lambda data, setting, streams: {name: data}

    panels = [
        replace(make_study(Method("m", draw(x)), measures=(Measure(x, "a number"),)).panels[0], name=f"with-{x}")
        for x in ("x", "y")
    ]
    study = replace(make_study(Method("m", draw("x"))), panels=tuple(panels))
    path = run(study, tmp_path / "s.zarr", trials=10).url
    extend(path, study=study, until="mcse(x) <= 0.03", panels=["with-x"])
    resume(path, study=study)
    store = ResultStore.open(path)
    (reached,) = goals.reached_precision(store, study.from_spec(store.spec))
    assert (reached.panel, reached.precision.is_reached) == ("with-x", True)


@pytest.mark.slow
def test_extend_continues_towards_a_smaller_bound(tmp_path):
    run(STUDY, tmp_path / "s.zarr", trials=130, panels=["p"])
    extend(tmp_path / "s.zarr", until="mcse(x) <= 0.12", at_most=4000, study=STUDY)
    summary = summarise(open_results(tmp_path / "s.zarr")["p"].to_dataset())
    assert bool((summary["x_mcse"] <= 0.12).all())
    assert summary["n_asked"].min() == 150  # whole blocks
    before = summary["n_asked"]
    run(STUDY, tmp_path / "s.zarr", until="mcse(x) <= 0.09", at_most=4000, panels=["p"])
    after = open_results(tmp_path / "s.zarr")["p"]["n_asked"]
    assert (after >= before).all()
    assert (after > before).any()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "check"),
    [
        ("mcse(x) <= 10%", lambda one: one["x_mcse"] <= 0.1 * abs(one["x_mean"])),
        ("mcse(x_median) <= 0.1", lambda one: one["x_median_mcse"] <= 0.1),
    ],
)
def test_relative_targets_and_quantiles(tmp_path, target, check):
    ds = grown(tmp_path, target, values={"sd": [0.5, 1.0]})
    assert bool(check(summarise(ds)).all())
    assert ds["n_asked"].min() < ds["n_asked"].max()


@pytest.mark.parametrize(
    ("target", "least", "most"), [("mcse(heads) <= 0.05", 100, 150), ("mcse(heads) <= 10%", 100, 200)]
)
def test_boolean_measures_have_errors_of_fractions(tmp_path, target, least, most):
    """The error of a fraction of about 1/2 is 0.5/√n, so that 0.05 needs about 100 trials."""
    study = replace(toy.STUDY, panels=(replace(toy.SINGLE, trials=1000, block_trials=10),))
    assert forecast(study, target)
    run(study, tmp_path / "s.zarr", until=target)
    assert least <= open_results(tmp_path / "s.zarr")["single"]["n_asked"].item() <= most


@pytest.mark.parametrize("target", ["mcse(heads) <= 10%", "mcse(heads) <= 0.1"])
def test_event_that_did_not_occur_spends_the_budget(tmp_path, target):
    def never(data, setting, streams):
        return {"heads": np.zeros(len(list(streams.generators())), bool)}

    panel = replace(toy.SINGLE, methods=(Method("never", never),), measures=(Measure("heads", "h", dtype="bool"),))
    study = replace(toy.STUDY, panels=(replace(panel, trials=400, block_trials=50),), claims=(), figures=())
    unknown = "1 of 1 error is unknown: the estimate of single, never is 0 after"
    with pytest.raises(TargetNotReachedError, match=unknown):
        run(study, tmp_path / "s.zarr", until=target)
    assert open_results(tmp_path / "s.zarr")["single"]["stopped"].item() == "trials spent"


@pytest.mark.slow
def test_declared_statistics_have_errors_of_half_samples(tmp_path):
    """A fraction of about 1/2 has the error 0.5/√n, so that 0.02 needs about 625 trials."""
    ds = grown(tmp_path, "mcse(x_above) <= 0.02", values={"sd": [1.0], "algorithm": ["wide"]})
    assert 200 <= ds["n_asked"].item() <= 1500


@pytest.mark.slow
def test_paired_differences_stop_by_their_own_error(tmp_path):
    """Wide and narrow draws share their data: their difference has the spread 0.8, and other methods no target."""
    ds = grown(tmp_path, "mcse(x[wide] - x[narrow]) <= 0.04", values={"sd": [1.0]})
    n = ds["n_asked"].sel(algorithm=["wide", "narrow"]).values.ravel()
    assert n[0] == n[1]
    assert 0.8 * 400 <= n[0] <= 1.3 * 425 + 50
    both = ds["x"].sel(algorithm="wide") - ds["x"].sel(algorithm="narrow")
    assert float(both.std(ddof=1)) / both.count().item() ** 0.5 <= 0.04
    assert ds["stopped"].sel(algorithm="constant").item() == "no target"
    assert ds["n_asked"].sel(algorithm="constant").item() == 100


def test_budget_of_trials_ends_the_run_with_a_forecast(tmp_path):
    with pytest.raises(
        TargetNotReachedError, match=r"2 of 6 .* largest is 0.18 .*p, sd=2, wide.*needs about 1,650 trials; continue"
    ):
        grown(tmp_path, TARGET, at_most=130, values={"sd": [1.0, 2.0]})
    ds = open_results(tmp_path / "s.zarr")["p"].to_dataset()
    assert ds.sizes["trial"] == 130
    assert ds["stopped"].sel(algorithm="wide").values.tolist() == ["trials spent"] * 2
    assert ds["n_asked"].sel(algorithm="wide").values.tolist() == [130] * 2
    assert ds["n_asked"].sel(algorithm="narrow").values.tolist()[0] == 100
    assert count_by_status(ResultStore.open(tmp_path / "s.zarr"), "p")[Status.PENDING] == 0


@pytest.mark.slow
def test_new_values_keep_a_target_that_was_not_reached_and_a_fixed_number_replaces_it(tmp_path):
    """The number replaces the target also if all of its trials are stored."""
    with pytest.raises(TargetNotReachedError):
        grown(tmp_path, "mcse(x) <= 1e-3", at_most=100, values={"sd": [1.0], "algorithm": ["wide"]})
    path = tmp_path / "s.zarr"
    assert read_goal(extend(path, values={"sd": [0.5]}, study=STUDY).sessions).unmet
    for _ in range(2):  # the second one has nothing to record
        store = extend(path, trials=100, study=STUDY)
        assert read_goal(store.sessions) is None
    assert len(store.sessions) == 3


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the first round")  # on a busy machine, the minimum may take longer
def test_budget_of_time_keeps_the_minimum(tmp_path):
    with pytest.raises(TargetNotReachedError):
        grown(tmp_path, "mcse(x) <= 1e-7", at_most=None, within=1.0)
    ds = open_results(tmp_path / "s.zarr")["p"].to_dataset()
    assert "time spent" in ds["stopped"].values
    assert ds["n_asked"].min() >= 100


def test_budget_of_time_below_the_first_round_warns_with_a_forecast(tmp_path):
    text = (
        r"first round, which has at least 100 trials per cell and method, takes about [\d.]+ s; --within 0.001 s limits"
    )
    with pytest.warns(UserWarning, match=text) as warned, pytest.raises(TargetNotReachedError):
        grown(tmp_path, "mcse(x) <= 1e-7", at_most=None, within=0.001)
    assert len(warned) == 1


def test_deterministic_panels_are_exact(tmp_path):
    run(STUDY, tmp_path / "s.zarr", until="mcse(total) <= 1", panels=["table"])
    store = ResultStore.open(tmp_path / "s.zarr")
    assert store.requested == {}
    assert count_by_status(store, "table")[Status.OK] == 1
    run(STUDY, tmp_path / "t.zarr", trials=50)
    extend(tmp_path / "t.zarr", until="mcse(total) <= 1", panels=["table"], study=STUDY)
    store = ResultStore.open(tmp_path / "t.zarr")
    assert not read_goal(store.sessions).is_open
    assert goals.reached_precision(store, STUDY.from_spec(store.spec)) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"until": "mcse(y) <= 0.1"}, "unknown measure or statistic 'y'; allowed: x,"),
        ({"until": "mcse(exact) <= 0.1"}, "one exact value per cell.*choose another measure: x"),
        ({"until": "mcse(nonsense) <= 0.1", "panels": ["table"]}, "unknown measure or statistic 'nonsense'"),
        ({"until": "mcse(x) < 0.1"}, "must be 'mcse.NAME. <= BOUND'"),
        ({"until": "mcse(x) <= -1"}, "number > 0 or a percentage, got '-1'"),
        ({"until": "mcse(x) <= 0_1"}, "number > 0 or a percentage, got '0_1'"),
        ({"until": "mcse(x) <= 0%"}, "number > 0 or a percentage, got '0%'"),
        ({"until": "mcse(x[wide] - x[wide]) <= 1"}, "two methods"),
        ({"until": "mcse(x[wide] - exact[narrow]) <= 1"}, "one measure"),
        ({"until": "mcse(x[wide] - x[thin]) <= 1"}, "unknown method 'thin'"),
        ({"until": "mcse(x_median[wide] - x_median[narrow]) <= 1"}, "must be of a measure"),
        ({"until": TARGET, "trials": 5}, "cannot be combined with --trials"),
        ({"until": TARGET, "within": 0.0}, "must be > 0 seconds"),
        ({"until": TARGET, "at_most": 99}, "--at-most must be >= 100, got 99"),
        ({"at_most": 5}, "add --until"),
    ],
)
def test_invalid_targets_are_refused_before_anything_is_written(tmp_path, options, message):
    with pytest.raises(BadInputError, match=message):
        run(STUDY, tmp_path / "s.zarr", **{"panels": ["p"], **options})
    assert not (tmp_path / "s.zarr").exists()


def test_store_of_another_spec_is_refused(tmp_path):
    run(STUDY, tmp_path / "s.zarr", trials=150, panels=["p"])
    with pytest.raises(BadInputError, match="different spec"):
        run(STUDY, tmp_path / "s.zarr", until=TARGET, seed=2, panels=["p"])
    with pytest.raises(BadInputError, match="must be >= 150, the stored number"):
        run(STUDY, tmp_path / "s.zarr", until=TARGET, at_most=120, panels=["p"])


@pytest.mark.slow
def test_claims_are_decided_at_looks(tmp_path):
    """Positive means are decided early; a mean that was not rejected is decided by the whole budget."""
    path = tmp_path / "s.zarr"
    run(STUDY, path, until="claims", at_most=800)
    store = ResultStore.open(path)
    looks = store.sessions[-1]["looks"]
    assert [one["p"] for one in looks["trials"]] == [100, 200, 400, 800]
    assert set(looks["decided"]) == {"positive", "table"}
    ds = open_results(path)["p"].to_dataset()
    assert (ds["n_asked"].sel(algorithm="wide") == 800).all()
    n_narrow = looks["trials"][looks["decided"]["positive"] - 1]["p"]
    assert (ds["n_asked"].sel(algorithm="narrow") == n_narrow).all()
    assert (ds["n_asked"].sel(algorithm="constant") == 100).all()
    assert json.loads(json.dumps(looks)) == looks


@pytest.mark.slow
@pytest.mark.parametrize("is_earlier", [False, True])
def test_claims_are_judged_on_the_trials_of_their_look(tmp_path, monkeypatch, is_earlier):
    """Later trials do not change the verdict of a decided claim; each look at other trials spends a share of a level.

    An earlier version recorded only the largest number of trials of each look.
    """
    needs = {"p": {"algorithm": ("constant",)}}

    @claim("constant", "Constant draws are 0.5.", kind="self-check", level=0, needs=needs)
    def constant(look):
        ds = look["p"]
        return verdict(bool((ds["x_mean"] == 0.5).all()), f"{int(ds['n_ok'].max())} trials.")

    @claim("open", "It is open.", kind="self-check", level=1e-6, needs={"p": {"algorithm": ("wide", "narrow")}})
    def stays_open(look):
        return verdict(True, f"{look['p']['n_ok'].values.tolist()} trials.", is_settled=False)

    study = replace(STUDY, panels=STUDY.panels[:1], claims=(stays_open, constant))
    run(study, tmp_path / "s.zarr", until=COARSE, values={"sd": [1.0]})
    if is_earlier:
        record = LookHistory.record
        monkeypatch.setattr(
            LookHistory,
            "record",
            lambda looks: {"looks": {name: record(looks)["looks"][name] for name in ("trials", "decided")}},
        )
    for _ in range(2):  # a look at the trials of the last one spends nothing
        store = extend(tmp_path / "s.zarr", study=study, until="claims", at_most=150)
        looks = store.sessions[-1]["looks"]
        assert (looks["trials"], looks["decided"]) == ([{"p": 150}, {"p": 150}], {"constant": 1})

    def evidence():
        store = ResultStore.open(tmp_path / "s.zarr")
        summaries = {"p": summarise(open_results(store)["p"].to_dataset())}
        findings = judge_store(study.from_spec(store.spec), store, summaries)
        return [finding.evidence for _, finding in findings]

    assert evidence() == ["[[150, 150]] trials. Look 2 spends 1.5e-07 of the error level 1e-06.", "100 trials."]
    monkeypatch.undo()
    extend(store, study=study, trials=200)
    after = "150 trials." if is_earlier else "100 trials."
    assert evidence() == ["[[200, 200]] trials. Look 3 spends 6.8e-08 of the error level 1e-06.", after]


@pytest.mark.parametrize("place", ["execute", pytest.param("retried", marks=pytest.mark.slow)])
def test_interrupted_round_is_pending_and_is_resumed(coarse, tmp_path, monkeypatch, place):
    """After an interrupt in a later round, before or after the growth of the arrays, no number is lost or different."""
    module = {"execute": session, "retried": adaptive}[place]
    calls, function = [], getattr(module, place)

    def interrupted(*arguments, **options):
        calls.append(place)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return function(*arguments, **options)

    path = tmp_path / "s.zarr"
    monkeypatch.setattr(module, place, interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(STUDY, path, until=COARSE, at_most=4000, panels=["p"])
    monkeypatch.undo()
    assert len(calls) == 2
    if place == "execute":
        assert count_by_status(ResultStore.open(path), "p")[Status.PENDING] > 0
    resume(path, study=STUDY)
    assert count_by_status(ResultStore.open(path), "p")[Status.PENDING] == 0
    one, whole = (open_results(where)["p"].to_dataset().load() for where in (path, coarse))
    assert one.identical(whole)


@pytest.mark.parametrize("n_more", [0, 100])
def test_plan_that_another_session_made_obsolete_changes_no_number_asked_for(coarse, tmp_path, monkeypatch, n_more):
    """The other session is interrupted; its trials stay pending, also if it changed only the numbers asked for."""
    path = shutil.copytree(coarse, tmp_path / "s.zarr")
    plan = plan_extension(STUDY, path, RunOptions(values={"sd": [0.2]}))
    monkeypatch.setattr(session, "execute", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        extend(path, trials=open_results(path)["p"].sizes["trial"] + n_more, study=STUDY)
    monkeypatch.undo()
    counts = count_by_status(ResultStore.open(path), "p")
    assert counts[Status.PENDING] > 0
    with pytest.raises(BadInputError, match="another session changed the store"):
        session.compute_pending(plan)
    assert count_by_status(ResultStore.open(path), "p") == counts


@pytest.mark.slow
@pytest.mark.parametrize("at_most", [None, 200])
def test_resume_continues_to_the_recorded_budget_and_says_what_is_missing(tmp_path, monkeypatch, at_most):
    path, target = tmp_path / "s.zarr", "mcse(x) <= 1e-4"
    monkeypatch.setattr(session, "execute", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        run(STUDY, path, until=target, at_most=at_most, panels=["p"], values={"sd": [1.0]})
    monkeypatch.undo()
    with pytest.raises(TargetNotReachedError, match=r"the budget was spent .* continue with: dpstudies extend"):
        resume(path, study=STUDY)
    asked = open_results(path)["p"]["n_asked"].sel(algorithm="wide")
    assert (asked == (at_most or 1000)).all()
    n_sessions = len(ResultStore.open(path).sessions)
    resume(path, study=STUDY)  # the budget is spent: no work is left
    assert len(ResultStore.open(path).sessions) == n_sessions


def test_error_that_is_not_finite_does_not_reach_the_target(tmp_path, monkeypatch):
    values = np.array([np.inf, *np.zeros(99)])
    monkeypatch.setattr(goals, "read_draws", lambda store, panel, measure, cell, item, n: [values])
    with pytest.raises(TargetNotReachedError, match=r"not reached: 3 of 3 errors .* not finite: p, sd=0.5, wide"):
        grown(tmp_path, TARGET, values={"algorithm": ["wide"]})
    assert "was spent" not in ResultStore.open(tmp_path / "s.zarr").sessions[-1]["unmet"]


def test_fixed_run_on_a_store_of_a_run_until_a_target_names_the_commands(store):
    with pytest.raises(BadInputError, match=r"panels.p.trials: stored .*the same --until, or .*extend .* --trials N"):
        run(STUDY, store)


@pytest.mark.parametrize("change", ["flip", "delete", pytest.param("older record", marks=pytest.mark.exhaustive)])
@pytest.mark.slow
def test_numbers_asked_for_survive_the_loss_of_a_record(refined, tmp_path, monkeypatch, change):
    """The copy of a damaged, lost or replaced record is used; without it, nothing is counted or computed."""
    monkeypatch.setattr(lease, "LEASE_SECONDS", 0.5)  # a session with a damaged record lasts until its lease ends
    path = shutil.copytree(refined, tmp_path / "s.zarr")
    counts = count_by_status(ResultStore.open(path), "p")
    record, older, copies = (
        path / key for key in (f"{SESSIONS}/000002.json", f"{SESSIONS}/000001.json", SESSION_COPIES)
    )
    content, held = record.read_bytes(), copies.read_bytes()

    def spoil():
        if change == "delete":
            record.unlink()
        else:
            record.write_bytes(content.replace(b"0.09", b"0.08") if change == "flip" else older.read_bytes())

    spoil()
    assert count_by_status(ResultStore.open(path), "p") == counts
    (problem,) = verify(path, study=STUDY, sample=0).problems
    assert (problem.variable, problem.damage.kind) == ("session 000002.json", "damaged")
    assert verify(path, study=STUDY, sample=0, repair=True).problems
    assert not verify(path, study=STUDY, sample=0).problems
    assert json.loads(record.read_bytes()) == json.loads(content)
    spoil()
    copies.write_bytes(held[:-1])
    if change == "delete":  # the records of later sessions remain, so that a gap is noticed
        assert (path / SESSIONS / "000003.json").exists()
    for act in (lambda: count_by_status(ResultStore.open(path), "p"), lambda: resume(path, study=STUDY)):
        with pytest.raises(UnreadableStoreError, match=r"000002.json and its copy are damaged.*verify .* --repair"):
            act()
    assert "lost" in repair_and_continue(path)


@pytest.mark.parametrize("lost", [".dpstudies", "last record", pytest.param(SESSIONS, marks=pytest.mark.exhaustive)])
@pytest.mark.slow
def test_loss_of_records_with_their_copies_is_noticed(refined, tmp_path, lost):
    """Without any record, or without copies that would name a later one, nothing is counted or computed."""
    path = shutil.copytree(refined, tmp_path / "s.zarr")
    n_ok = count_by_status(ResultStore.open(path), "p")[Status.OK]
    if lost == "last record":
        (path / SESSIONS / "000002.json").unlink()
    else:
        shutil.rmtree(path / lost)
    (path / SESSION_COPIES).unlink(missing_ok=True)
    for act in (
        lambda: count_by_status(ResultStore.open(path), "p"),
        lambda: resume(path, study=STUDY),
        lambda: open_results(path),
    ):
        # no session begins, which would write new copies
        with unchanged(path), refusal("sessions.json, are damaged", "verify", "--repair", error=UnreadableStoreError):
            act()
    assert "sessions.json" in {problem.variable for problem in verify(path, study=STUDY, sample=0).problems}
    repair_and_continue(path)
    assert count_by_status(ResultStore.open(path), "p")[Status.OK] >= n_ok


@pytest.mark.slow
def test_compact_copy_keeps_the_numbers_asked_for(store, tmp_path):
    compact(store, tmp_path / "c.zarr")
    one, other = (open_results(path)["p"].to_dataset().load() for path in (store, tmp_path / "c.zarr"))
    assert one.identical(other)
    with pytest.raises(BadInputError, match="compact and can only be read"):
        extend(tmp_path / "c.zarr", until="mcse(x) <= 0.01", study=STUDY)
