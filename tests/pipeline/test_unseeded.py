"""Tests that methods whose random numbers do not come from streams are refused before anything is written."""

import random
import secrets
import subprocess
import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import xarray as xr

from pipeline import Factor, Measure, Method, extend, resume, run
from pipeline.blocks.evaluate import Block, evaluate_block
from pipeline.blocks.repetition import FirstTrial, find_defect, first_trials, shared_methods
from pipeline.errors import BadInputError
from pipeline.execution.checks import rerun_trial
from pipeline.runs.verify import verify
from pipeline.store.result_store import ResultStore
from tests.pipeline.helpers import make_study

PROGRAM = "import random, sys; print(random.Random(*map(int, sys.argv[1:])).random())"


def seeded(data, setting, streams):
    return {"x": data + streams.uniforms(1)[:, 0]}


def legacy(data, setting, streams):
    return {"x": data + np.random.random(len(data))}  # noqa: NPY002


def seeded_globally(data, setting, streams):
    values = []
    for seed in streams.seeds():
        np.random.seed(seed)  # noqa: NPY002
        values.append(np.random.random())  # noqa: NPY002
    return {"x": data + values}


def standard(data, setting, streams):
    return {"x": [random.random() for _ in data]}


def entropy(data, setting, streams):
    return {"x": [secrets.randbelow(10**9) for _ in data]}


def draw_outside(*seeds):
    commands = ([sys.executable, "-S", "-c", PROGRAM, *map(str, seed)] for seed in seeds)
    return {"x": [float(subprocess.check_output(command)) for command in commands]}


def program(data, setting, streams):
    return draw_outside(*([] for _ in data))


def seeded_program(data, setting, streams):
    return draw_outside(*([seed] for seed in streams.seeds()))


def counted(data, setting, streams):
    calls.append(streams.trials)
    return {"x": data + len(calls)}


def recorded(data, setting, streams):
    calls.append(streams.trials)
    return {"x": data}


def sometimes_fails(data, setting, streams):
    calls.append(streams.trials)
    if len(calls) % 2:
        raise ArithmeticError("unlucky")
    return {"x": data}


calls = []
"""Trials of the calls of a method, which run in this process."""


def study_of(*methods, **panel):
    return make_study(*methods, **{"trials": 3, "block_trials": 2, **panel})


def assert_refused(study, folder, message, **options):
    with pytest.raises(BadInputError, match=message):
        run(study, folder / "s.zarr", progress=False, **options)
    assert not (folder / "s.zarr").exists()


def pooled(data, setting, streams):
    return {"x": data - np.mean(data)}


def pooled_status(data, setting, streams):
    return {"x": data, "error": ["too many" if len(data) > 1 else ""] * len(data)}


def rounded(data, setting, streams):
    return {"x": data * (1 + 1e-13 * len(data))}


@pytest.mark.parametrize(
    ("evaluate", "difference"),
    [
        *((evaluate, ".*got x = .* and ") for evaluate in (legacy, standard, entropy, program, counted)),
        # each block alone would be right when it is verified
        (pooled, r"for a trial .*, got x = 0\.0 and -?0\.\d+ for the first"),
        (pooled_status, r"for a trial .*, got different statuses, ok and failed \(too many\), for the first"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_method_that_cannot_be_repeated_is_refused_before_anything_is_written(tmp_path, evaluate, difference):
    study = study_of(Method("seeded", seeded), Method("odd", evaluate))
    assert_refused(study, tmp_path, f"^method odd of panel p must return the same numbers {difference}")


def test_global_random_state_that_is_seeded_is_refused(tmp_path):
    """Threads share it, so that one seeds it while another one draws."""
    study = study_of(Method("odd", seeded_globally))
    assert_refused(study, tmp_path, "functions of a study must not change NumPy's global random state, .*; use streams")


def test_number_per_cell_that_depends_on_the_trials_is_refused(tmp_path):
    measures = (Measure("x", ""), Measure("spread", "", per_trial=False))
    study = study_of(Method("odd", lambda data, *_: {"x": data, "spread": data.max()}), measures=measures)
    assert_refused(
        study, tmp_path, r"method odd of panel p must return equal numbers per cell in all blocks, got spread"
    )


def test_method_that_sometimes_fails_is_refused(tmp_path):
    calls.clear()
    failed = r"failed \(test_unseeded.py:\d+: ArithmeticError: unlucky\)"
    message = rf"^method odd of panel p must .*got different statuses, {failed} and ok, from two calls; draw"
    assert_refused(study_of(Method("odd", sometimes_fails)), tmp_path, message)


def test_rounding_may_depend_on_the_size_of_a_block(tmp_path):
    assert run(study_of(Method("rounded", rounded)), tmp_path / "s.zarr", progress=False).complete


def test_simulation_with_other_randomness_is_refused(tmp_path):
    study = study_of(Method("seeded", seeded), simulate=lambda cell, streams: np.random.random(len(streams.trials)))  # noqa: NPY002
    assert_refused(study, tmp_path, r"^simulate of panel p must return the same data")


def scaled(scale, data, setting, streams):
    return {"x": scale * data}


def test_methods_that_panels_share_are_evaluated_in_the_first_of_them():
    def panel(**options):  # with equal functions, but for that of b, whose arguments cannot be compared
        methods = Method("a", partial(scaled, 1.0)), Method("b", partial(scaled, np.ones(1))), Method("c", seeded)
        return replace(study_of(*methods).panels[0], **options)

    assert shared_methods((panel(), panel(name="q"))) == {"p": [], "q": ["a", "c"]}
    assert shared_methods((panel(), panel(name="q", evaluate=evaluate_block))) == {"p": [], "q": []}
    for other in (2.0, 1, True):  # a function may distinguish 1, 1.0 and True
        methods = (Method("a", partial(scaled, other)),)
        assert shared_methods((panel(), panel(name="q", methods=methods))) == {"p": [], "q": []}


@pytest.mark.parametrize(
    "options",
    [
        {"methods": (Method("c", seeded, unseeded=True),)},
        {"validate": lambda cell, setting: False},
        {"trials": 1, "block_trials": 1},
    ],
)
def test_methods_that_an_earlier_panel_does_not_test_are_not_shared(options):
    panel = study_of(Method("c", seeded)).panels[0]
    assert shared_methods((panel, replace(panel, name="q"))) == {"p": [], "q": ["c"]}
    assert shared_methods((replace(panel, **options), replace(panel, name="q"))) == {"p": [], "q": []}


@pytest.mark.slow
def test_check_in_child_processes(tmp_path):
    """With a time limit, first trials are repeated in child processes as well."""
    assert_refused(
        study_of(Method("odd", entropy)),
        tmp_path,
        r"^method odd of panel p must return the same numbers",
        time_limit=60,
    )


def test_program_with_a_seed_can_be_repeated(tmp_path):
    store = run(study_of(Method("program", seeded_program)), tmp_path / "s.zarr", progress=False)
    values = xr.open_zarr(store.url, group="p").x.values
    assert len(np.unique(values)) == 3
    assert all(again.equal for again in rerun_trial(store, study_of(Method("program", seeded_program)), "p", {}, 2))


@pytest.mark.slow
def test_unseeded_method_is_stored_shown_and_not_compared(tmp_path):
    study = study_of(Method("seeded", seeded), Method("odd", entropy, note="From the system.", unseeded=True))
    store = run(study, tmp_path / "s.zarr", progress=False)
    assert [one.get("unseeded", False) for one in store.spec["panels"]["p"]["methods"].values()] == [False, True]
    notes = xr.open_zarr(store.url, group="p").algorithm.attrs["notes"]
    assert notes == "odd: From the system. Unseeded: repeated evaluations give different numbers."
    found = verify(store.url, sample=None, study=study)
    assert (found.n_computed, found.problems) == (2, ())
    assert all(again.equal for again in rerun_trial(store, study, "p", {}, 2))
    assert extend(store, study=study, trials=5, progress=False).complete  # compares the other method only
    assert (xr.open_zarr(store.url, group="p").status == 1).all()


def draw_per_process():
    """Return a number without a seed, which does not change within a process."""
    if not drawn:
        drawn.append(np.random.default_rng().random())
    return drawn[0]


def hashed(data, setting, streams):
    return {"x": data + hash("text") % 1000}


def cached(data, setting, streams):
    return {"x": data + draw_per_process()}


def located(data, setting, streams):
    return {"x": data + id(drawn) % 10**6}


drawn = []


@pytest.mark.slow
def test_randomness_that_is_constant_within_a_process_is_found_by_verify(tmp_path):
    """Evaluations before a run are in one process, and give equal numbers; `verify` uses another one."""
    study = study_of(*(Method(evaluate.__name__, evaluate) for evaluate in (seeded, hashed, cached, located)))
    store = run(study, tmp_path / "s.zarr", progress=False)
    found = verify(store.url, sample=None, study=study)
    assert {problem.where.split(", ")[1] for problem in found.problems} == {"hashed", "cached", "located"}
    assert {(problem.variable, problem.damage.kind) for problem in found.problems} == {("x", "different")}


def test_declaration_is_part_of_the_spec(tmp_path):
    method = Method("odd", entropy, unseeded=True)
    store = run(study_of(method), tmp_path / "s.zarr", progress=False)
    assert replace(method, version=1).note == method.note
    with pytest.raises(BadInputError, match="unseeded"):
        run(study_of(replace(method, unseeded=False)), store.url, progress=False)


def test_method_added_to_a_store_is_checked(tmp_path):
    methods = Method("seeded", seeded), Method("odd", entropy)
    study = study_of(*methods)
    store = run(study, tmp_path / "s.zarr", values={"algorithm": ["seeded"]}, progress=False)
    before = ResultStore.open(store.url).spec
    with pytest.raises(BadInputError, match=r"^method odd of panel p must return the same numbers"):
        extend(store, study=study, values={"algorithm": ["odd"]}, progress=False)
    assert ResultStore.open(store.url).spec == before


@pytest.mark.slow
def test_methods_with_committed_trials_are_evaluated_once(tmp_path):
    """On resume, a committed trial is compared instead."""
    study = study_of(Method("m", recorded))
    calls.clear()
    store = run(study, tmp_path / "s.zarr", trials=2, progress=False)
    assert calls == [range(1), range(1), range(2), range(2)]  # the last is the block
    calls.clear()
    extend(store, study=study, trials=4, progress=False)
    assert calls == [range(1, 2), range(2, 4)]
    assert resume(store, study=study).complete


def test_first_trials_are_in_the_first_cell_to_which_a_method_applies():
    panel = study_of(
        *(Method(name, seeded, uses=("e",)) for name in "abc"),
        Method("d", entropy, unseeded=True),
        factors=(Factor("n", (1, 2), "size"),),
        method_factors=(Factor("e", (1, 2), "loss"),),
        validate=lambda cell, setting: setting["algorithm"] != "b" or (cell["n"], setting["e"]) == (2, 2),
    ).panels[0]
    assert [(one.cell, one.settings) for one in first_trials(panel)] == [(0, (0, 4)), (1, (3,))]
    assert [(one.cell, one.settings) for one in first_trials(panel, ["a"])] == [(0, (4,)), (1, (3,))]
    assert first_trials(panel, ["a", "b", "c", "d"]) == []
    assert [(one.cell, one.settings) for one in first_trials(panel, (), ["a"])] == [(0, (4,)), (1, (3,))]
    assert first_trials(panel, (), ["a", "b", "c"]) == [FirstTrial("p", 0, ())]  # of the simulation
    apart = replace(panel, settings_apart=True)
    assert [(one.cell, one.settings) for one in first_trials(apart)] == [(0, (0,)), (0, (4,)), (1, (3,))]


def reseeded(data, setting, streams):
    np.random.seed(0)  # noqa: NPY002
    return legacy(data, setting, streams)


def test_method_that_another_one_seeds_is_refused(tmp_path):
    study = study_of(Method("reseeded", reseeded), Method("odd", legacy))
    message = r"^method odd of panel p must .* from two calls, before and after other methods; change nothing that"
    assert_refused(study, tmp_path, message)


def test_floating_point_errors_of_a_method_do_not_depend_on_others(tmp_path):
    def strict(data, setting, streams):
        np.seterr(under="raise")
        return {"x": data}

    def underflows(data, setting, streams):
        return {"x": np.exp(-800 - data)}

    before = np.geterr()
    study = study_of(Method("strict", strict), Method("underflows", underflows))
    panel = study.panels[0]
    assert find_defect(study, first_trials(panel)[0]) == ""
    outcomes = evaluate_block(study, Block("p", 0, range(2)), panel.settings())
    assert [outcome.status.tolist() for outcome in outcomes] == [[1, 1], [1, 1]]
    assert np.geterr() == before


MISSING = {
    "times": np.array(["NaT", "2020-01-01"], "datetime64[s]"),
    "durations": np.array(["NaT", 1], "timedelta64[s]"),
    "fields": np.array([(1, np.nan, "NaT")], [("a", "i4"), ("b", "f8"), ("c", "M8[D]")]),
    "nested": np.array([((np.nan, 1), [np.nan, 2])], [("a", [("b", "f8"), ("c", "i4")]), ("d", "f8", 2)]),
}


@pytest.mark.parametrize("name", MISSING)
def test_simulation_with_missing_values_can_be_repeated(name):
    def changed(array):
        array = array.copy()
        array.reshape(-1)[:1].view("u1")[-1] += 1
        return array

    def simulate(cell, streams):
        calls.append(streams.trials)
        return MISSING[name] if len(calls) % 2 or not is_changed else changed(MISSING[name])

    study = study_of(Method("m", lambda data, *_: {"x": [1.0]}), simulate=simulate)
    for is_changed in (False, True):
        calls.clear()
        assert bool(find_defect(study, first_trials(study.panels[0])[0])) == is_changed


def wide_study(method, **changes):
    """Return a study whose measure has as many values per trial as a block has trials."""
    options = {"measures": (Measure("x", "numbers", dims=("part",)),), "outputs": (Factor("part", (0, 1), ""),)}
    return study_of(Method("m", method), **{**options, "trials": 4, **changes})


def test_transposed_values_are_refused_although_they_have_the_shape_of_a_block(tmp_path):
    transposed = wide_study(lambda data, setting, streams: {"x": np.stack([data, 2 * data])})
    assert evaluate_block(transposed, Block("p", 0, range(2)), transposed.panel("p").settings())[0].cause == ""
    message = (
        r"^method m of panel p must return values with trials along the first axis: x must have shape \(1, 2\), got "
        r"\(2, 1\) for one trial; transpose them$"
    )
    with pytest.raises(BadInputError, match=message):
        run(transposed, tmp_path / "s.zarr")
    assert not (tmp_path / "s.zarr").exists()
    upright = wide_study(lambda data, setting, streams: {"x": np.stack([data, 2 * data], axis=1)})
    assert run(upright, tmp_path / "s.zarr").complete


@pytest.mark.parametrize(
    ("shape", "defect"), [((1, 3), ""), ((3,), ""), ((2, 2), "x must have shape (1, 2), got (2, 2)) and ok")]
)
def test_first_trial_of_another_shape_is_a_failure_unless_two_trials_have_it(shape, defect):
    study = wide_study(lambda data, setting, streams: {"x": np.ones(shape)})
    found = find_defect(study, first_trials(study.panel("p"))[0])
    assert defect in found
    assert bool(found) == bool(defect)
