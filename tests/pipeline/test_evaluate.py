"""Tests of blocks: values do not depend on the grouping of trials, and every failure is reported."""

import multiprocessing
import re
import threading
import traceback
from collections import deque
from dataclasses import dataclass, replace
from itertools import pairwise
from types import SimpleNamespace
from typing import NamedTuple

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline import Factor, Measure, Method
from pipeline.blocks.division import iterate_blocks
from pipeline.blocks.evaluate import Block, Status, evaluate_block, unevaluated
from pipeline.blocks.returned import as_numbers, as_reasons
from pipeline.declare.contents import copy_for_method, leaves
from pipeline.store.codec.error_texts import cause_of, without_rerun
from tests.pipeline.helpers import assert_contained, evaluate_all, evaluate_one, make_study, returns_data
from tests.pipeline.toy import FAULTS, MEANS, STUDY, TABLE

OK, FAILED = int(Status.OK), int(Status.FAILED)
X = (Measure("x", "a number"),)
WITHOUT_FAULTS = STUDY.configure(values={"failing": {"faults": ["-1"]}})


def outcome_of(method, **panel):
    """Evaluate the block of a panel with one method."""
    study = make_study(method, **panel)
    (panel,) = study.panels
    return evaluate_block(study, Block("p", 0, range(panel.n_trials)), panel.settings())[0]


def assert_same(one, other):
    assert one.keys() == other.keys()
    assert_contained(one, other)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 6])
def test_numbers_do_not_depend_on_the_block_size(size):
    assert_same(evaluate_all(STUDY, "means", size), evaluate_all(STUDY, "means", 4))


@given(st.sets(st.integers(1, 11)))
@settings(max_examples=20, deadline=None)
def test_values_do_not_depend_on_the_grouping_of_trials_with_failures(cuts):
    bounds = [0, *sorted(cuts), 12]
    for method in ("fine", "reports", "undefined"):
        whole = evaluate_one(STUDY, "faults", method, range(12))
        parts = [evaluate_one(STUDY, "faults", method, range(*bound)) for bound in pairwise(bounds)]
        np.testing.assert_array_equal(np.concatenate([part.values["x"] for part in parts]), whole.values["x"])
        np.testing.assert_array_equal(np.concatenate([part.status for part in parts]), whole.status)


def test_numbers_do_not_depend_on_the_other_settings():
    panel = STUDY.panel("means")
    for block in iterate_blocks(panel):
        together = evaluate_block(STUDY, block, panel.settings())
        for setting, outcome in zip(panel.settings(), together, strict=True):
            (alone,) = evaluate_block(STUDY, block, [setting])
            for name, values in alone.values.items():
                np.testing.assert_array_equal(values, outcome.values[name], strict=True)


def test_panel_may_batch_its_settings():
    """A panel whose `evaluate` treats the settings in reverse order gives the same results."""

    def backwards(data, settings, streams):
        results = [m.evaluate(data, s, its) for (m, s), its in zip(settings[::-1], streams[::-1], strict=True)]
        return results[::-1]

    batched = replace(STUDY, panels=(replace(MEANS, evaluate=backwards),))
    assert_same(evaluate_all(batched, "means"), evaluate_all(STUDY, "means"))


@pytest.mark.parametrize(
    "evaluate",
    [
        lambda data, settings, streams: [],
        lambda data, settings, streams: [None],
        lambda data, settings, streams: [{"x": 1.0}],
        lambda data, settings, streams: [{"x": np.ones(len(data) + 1)}],
        lambda data, settings, streams: [{"x": np.ones(len(data)).astype(str)}],
        lambda data, settings, streams: [{"x": data, "error": [""] * (len(data) + 1)}],
    ],
    ids=["no result", "nothing", "one value", "more values", "texts", "more errors"],
)
def test_wrong_results_of_a_block_fail_every_trial(evaluate):
    outcome = outcome_of(print, evaluate=evaluate)
    assert outcome.status.tolist() == [FAILED] * 8
    assert outcome.error.all()
    assert np.isnan(outcome.values["x"]).all()


def test_shapes_and_types():
    for block, n in ((Block("means", 0, range(4)), 4), (Block("means", 0, range(4, 6)), 2)):
        for outcome in evaluate_block(STUDY, block, STUDY.panel("means").settings()):
            assert {name: values.shape for name, values in outcome.values.items()} == {
                "estimate": (n,),
                "n_above": (n,),
                "quantile": (n, 3),
                "exact": (),
                "exact_quantile": (3,),
            }
            assert outcome.values["n_above"].dtype == "int64"
            assert outcome.status.shape == outcome.error.shape == (n,)
            assert outcome.status.dtype == "int8"


def test_deterministic_panel():
    found = evaluate_all(STUDY, "table")
    assert len(found) == 4
    cube = found[(("order", 1.5),), "cube"]
    np.testing.assert_array_equal(cube["curve"], [1.5**3, 3.0**3, 4.5**3])
    assert cube["total"] == 1.5**3 + 3.0**3 + 4.5**3
    assert cube["n_points"].dtype == "int32"
    assert cube["status"].tolist() == [OK]


def test_cell_and_setting_contain_the_constants():
    seen = {}

    def simulate(cell, streams):
        seen["cell"] = dict(cell)

    def evaluate(data, setting, streams):
        seen["setting"] = dict(setting)
        return {"x": 1.0}

    factors = {"factors": (Factor("n", (2,), "", "int"),), "method_factors": (Factor("e", (3,), ""),)}
    constants = (Factor("c", (4,), ""),)
    evaluate_all(make_study(Method("m", evaluate, uses=("e",)), simulate=simulate, **factors, constants=constants), "p")
    assert {"c": 4.0, "n": 2}.items() <= seen["cell"].items()
    assert {"c": 4.0, "e": 3.0}.items() <= seen["setting"].items()


def test_configured_values_of_an_output_reach_the_method():
    """Values of an output that the user sets, as by ``--set level=...``, are passed to the methods."""
    configured = STUDY.configure(panels=["means", "table"], values={"level": [0.2, 0.3, 0.4], "point": [4, 5]})
    for arrays in evaluate_all(configured, "means").values():
        if (arrays["status"] == OK).all():
            np.testing.assert_allclose(arrays["exact_quantile"], [0.4, 0.6, 0.8])
    curve = evaluate_all(configured, "table")[(("order", 2.0),), "square"]["curve"]
    np.testing.assert_array_equal(curve, [64.0, 100.0])


def test_setting_that_does_not_apply():
    panel = STUDY.panel("means")
    *_, long = panel.settings()
    settings = [long, panel.settings()[0], long]
    for cell, expected in ((0, OK), (1, int(Status.NOT_APPLICABLE))):  # cells have n = 9 and n = 4
        outcomes = evaluate_block(STUDY, Block("means", cell, range(3)), settings)
        assert [outcome.status.tolist() for outcome in outcomes] == [[expected] * 3, [OK] * 3, [expected] * 3]
        assert not outcomes[0].error.any()
    assert np.isnan(outcomes[0].values["quantile"]).all()
    assert outcomes[0].values["quantile"].shape == (3, 3)
    assert outcomes[0].values["n_above"].tolist() == [0, 0, 0]


def test_no_simulation_if_no_setting_applies():
    def simulate(cell, streams):
        raise AssertionError("simulated without need")

    panel = replace(TABLE, simulate=simulate, validate=lambda cell, setting: False)
    found = evaluate_all(replace(STUDY, panels=(panel,)), "table")
    assert {int(arrays["status"][0]) for arrays in found.values()} == {Status.NOT_APPLICABLE}


def test_returned_arrays_are_not_changed():
    """The pipeline does not change arrays that a method returns and may still use, such as part of the data."""
    kept = np.arange(4.0)
    outcome = outcome_of(lambda data, setting, streams: {"x": kept, "error": ["", "bad", "", ""]}, trials=4)
    assert kept.tolist() == [0, 1, 2, 3]
    assert np.isnan(outcome.values["x"]).tolist() == [False, True, False, False]


PAIR = {"dims": ("a",), "outputs": (Factor("a", (1, 2), ""),)}
WITHOUT_REASON = "the method reported a failure without a reason"
BAD = ("", "bad", "")
LIMIT = "x must be at most 3.40282e+38 in absolute value, or infinite"


def returned(result, *errors, **declared):
    """Return what a method returns, a part of the error of each trial, and attributes of the measure or the panel.

    With `is_whole`, the errors are whole texts.
    """
    return pytest.param(result, errors, declared, id=f"{result} {declared.get('dtype', '')}"[:80])


def reported(error, *errors):
    return returned({"x": [1.0] * len(errors), "error": error}, *errors, is_whole=True)


@pytest.mark.parametrize(
    ("result", "errors", "declared"),
    [
        # results that do not match the declaration
        returned({}, "a method must return ['x'], got []"),
        returned({"x": [1.0], "y": [1.0]}, "a method must return ['x'], got ['x', 'y']"),
        returned({"x": [1.0, 2.0]}, "x must have shape (1,), got (2,)"),
        returned({"x": 1.0}, "x must have shape (1,), got ()"),
        returned({"x": [[1.0]]}, "x must have shape (1,), got (1, 1)"),
        returned({"x": [1.0], "error": ["", ""]}, "False for none, shape (1,), got shape (2,)"),
        returned(None, "a method must return a dictionary with ['x'], got NoneType"),
        returned("x", "a method must return a dictionary with ['x'], got str"),
        returned({"x"}, "a method must return a dictionary with ['x'], got set"),
        returned({"x": [1.0], 1: 2}, "a method must return ['x'], got [1, 'x']"),
        # values that are not real numbers
        returned({"x": ["one"]}, "x must be real numbers, got dtype <U3"),
        returned({"x": np.array(["1"])}, "x must be real numbers, got dtype <U1"),
        returned({"x": np.array([1j])}, "x must be real numbers, got dtype complex128"),
        returned({"x": np.array([2**70, None])[:1]}, "x must be real numbers, got dtype object"),
        returned({"x": [0.0, np.nan]}, "", "x is NaN", is_whole=True),
        returned({"x": [[1.0, 2.0], [1.0, np.nan], [0.0, 0.0]]}, "", "x is NaN", "", **PAIR),
        # values that the declared dtype cannot represent
        returned({"x": [300, -1, 255, 0]}, "in 0 ... 255, got 300", "got -1", "", "", dtype="uint8"),
        returned({"x": [256.0, -0.0, -1.0, 255.0]}, "got 256.0", "", "got -1.0", "", dtype="uint8"),
        returned({"x": [127, 128, -128, -129]}, "", "in -128 ... 127, got 128", "", "got -129", dtype="int8"),
        returned({"x": [1.7, 2.0, np.nan, np.inf]}, "got 1.7", "", "got nan", "got inf", dtype="int64"),
        returned(
            {"x": [2.0**63, 2.0**63 - 1024, -(2.0**63), -1e300]}, "got 9.22", "", "-9.22", "got -1e+300", dtype="int64"
        ),
        returned({"x": np.array([2**63, 2**63 - 1], np.uint64)}, "got 9223372036854775808", "", dtype="int64"),
        returned(
            {"x": [-(2**31), 1 - 2**31, 2**31 - 1]},
            "in -2147483647 ... 2147483647, got -2147483648",
            *("", ""),
            dtype="int32",
        ),
        returned({"x": np.array([-(2**31), 1 - 2**31], np.int32)}, "got -2147483648", "", dtype="int32"),
        returned({"x": [2**32 - 1, 2**32 - 2]}, "in 0 ... 4294967294, got 4294967295", "", dtype="uint32"),
        returned(
            {"x": np.array([2**64 - 1, 2**64 - 2048, 2**64 - 2049], np.uint64)},
            *("got 1844", "got 1844", ""),
            dtype="uint64",
        ),
        returned({"x": [2.0**64, 2.0**63, -1.0, 0.0]}, "got 1.8", "", "got -1.0", "", dtype="uint64"),
        returned({"x": np.array([300, 7], np.float16)}, "got 300.0", "", dtype="uint8"),
        returned({"x": np.array([2.5, 2.0], np.float32)}, "got 2.5", "", dtype="int64"),
        returned({"x": [0, 1, 2, -1]}, "", "", "x must be 0 or 1, got 2", "got -1", dtype="bool"),
        returned({"x": [0.0, 1.0, np.nan, 0.5]}, "", "", "x must be 0 or 1, got nan", "got 0.5", dtype="bool"),
        returned({"x": [1e300, 0.1, np.inf, -1e39]}, LIMIT, "", "", "got -1e+39", dtype="float32"),
        returned({"x": [70000, 1]}, "at most 65504 in absolute value, or infinite, got 70000", "", dtype="float16"),
        returned(
            {"x": [[1, 2], [3, 300], [0, 0]]},
            *("", "x must be an integer in 0 ... 255, got 300", ""),
            is_whole=True,
            dtype="uint8",
            **PAIR,
        ),
        # rounding to a floating dtype, and exact casts
        returned({"x": [2**53 + 1, 3]}, "", ""),
        returned({"x": [0.1, 1e-60]}, "", "", dtype="float32"),
        returned({"x": [True, False]}, "", ""),
        returned({"x": [True, False]}, "", "", dtype="uint8"),
        returned({"x": [1.0, 0.0]}, "", "", dtype="bool"),
        returned({"x": [3.0, -7.0]}, "", "", dtype="int64"),
        returned({"x": [[1.0, 2.0], [1.0, np.nan]]}, "", "", ragged=True, **PAIR),  # NaN pads rows
        # reported failures
        reported([None, ValueError("bad"), ""], *BAD),
        reported(pd.Series(["", "bad", pd.NA]), *BAD),
        reported(pd.Series([None, "bad", np.nan], dtype=object), *BAD),
        reported(pd.array([None, "bad", None], dtype="string"), *BAD),
        reported(np.ma.masked_array(["one", "bad", "other"], [True, False, True]), *BAD),
        reported(np.array([pd.NaT, "bad", np.ma.masked], dtype=object), *BAD),
        reported(xr.DataArray(["", "bad", ""], dims="trial", coords={"trial": [0, 1, 2]}), *BAD),
        reported(["", " bad\n", None], *BAD),
        reported([False, "bad", False], *BAD),
        reported(np.array([False, True, False]), "", WITHOUT_REASON, ""),
        reported([np.False_, np.True_, None], "", WITHOUT_REASON, ""),
        *(reported(nothing, "", "") for nothing in (np.zeros(2, bool), None, "", False, np.ma.masked, np.nan)),
        reported([ValueError(""), AssertionError(), None], "ValueError", "AssertionError", ""),
        reported(["", " ", "\n"], "", "str", "str"),  # a blank reason has the cause of its type
        returned(
            {"x": [np.nan, np.nan, 1.0], "error": ["no interval", "", ""]}, "no interval", "got nan", "", dtype="int64"
        ),
    ],
)
def test_only_trials_with_an_invalid_value_or_a_reported_failure_fail(result, errors, declared):
    calls = []

    def evaluate(data, setting, streams):
        calls.append(streams.trials)
        return result

    attributes = {name: declared[name] for name in ("dims", "dtype", "ragged") if name in declared}
    measure = Measure("x", "a number", **attributes)
    outcome = outcome_of(evaluate, trials=len(errors), measures=(measure,), outputs=declared.get("outputs", ()))
    assert outcome.status.tolist() == [FAILED if error else OK for error in errors]
    for text, error in zip(outcome.error, errors, strict=True):
        assert error in text.splitlines()[-1] if error and "is_whole" not in declared else text == error
    is_ok = outcome.status == OK
    values = outcome.values["x"]
    assert values.dtype == measure.dtype
    assert (np.isnan(values[~is_ok]) if values.dtype.kind == "f" else values[~is_ok] == 0).all()
    if is_ok.any():
        np.testing.assert_array_equal(values[is_ok], np.asarray(result["x"])[is_ok].astype(measure.dtype))
        assert len(calls) == 1  # other trials are not computed again


@pytest.mark.parametrize(
    ("error", "cause"),
    [("all are bad", "all are bad"), (True, WITHOUT_REASON), (ValueError("bad"), "bad")],
)
def test_one_reason_for_several_trials_is_that_of_each(error, cause):
    outcome = outcome_of(lambda data, *_: {"x": data, "error": error}, trials=3)
    assert outcome.status.tolist() == [FAILED] * 3
    assert outcome.error.tolist() == [cause] * 3


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({}, ""),
        ({"x": np.nan}, "x is NaN"),
        ({"n": 300}, "n must be an integer in 0 ... 255, got 300"),
        ({"error": "bad"}, "bad"),
        ({"error": ["bad"]}, "bad"),
        ({"error": None}, ""),
        ({"error": False}, ""),
    ],
    ids=str,
)
def test_failures_of_a_deterministic_panel(changes, error):
    measures = (*X, Measure("n", "", dtype="uint8"), Measure("curve", "", dims=("a",)))
    result = {"x": 1.0, "n": 3, "curve": [1.0, 2.0], **changes}
    outcome = outcome_of(lambda *_: result, measures=measures, outputs=PAIR["outputs"], trials=None)
    assert outcome.status.tolist() == [FAILED if error else OK]
    assert outcome.error.tolist() == [error]
    assert np.isnan(outcome.values["x"]) == np.isnan(outcome.values["curve"]).all() == bool(error)


LARGE = 2**53 + 1


@pytest.mark.parametrize(
    "given",
    [
        [np.uint64(LARGE), np.int64(1)],
        [LARGE, 1.0],
        (1.0, np.int64(LARGE)),
        [np.array(LARGE), 1.0],
        np.array([LARGE, 1.0], object),
        pd.Series([LARGE, 1.0], dtype=object),
        [LARGE, -1],
    ],
    ids=repr,
)
def test_large_integers_in_a_list_are_exact(given):
    """Trials of one block may return integers and floats; each is evaluated by itself if a float rounds an integer."""

    def evaluate(data, setting, streams):
        chosen = [given[trial] for trial in streams.trials]
        return {"x": chosen if isinstance(given, list | tuple) else np.array(chosen, object)}

    outcome = outcome_of(evaluate, trials=2, measures=(Measure("x", "", dtype="int64"),))
    assert outcome.status.tolist() == [OK, OK]
    assert outcome.values["x"].tolist() == [int(value) for value in given]


@pytest.mark.parametrize(
    "row",
    [[LARGE, 1.0], [np.uint64(LARGE), np.float32(1)], np.array([LARGE, 1.0], object), [np.array(LARGE), 1.0]],
    ids=repr,
)
@pytest.mark.parametrize("dtype", ["int64", "float64"])
def test_large_integer_that_a_float_in_the_same_trial_would_round_fails_it(row, dtype):
    outcome = outcome_of(
        lambda data, setting, streams: {"x": [row if trial else [1, 2.0] for trial in streams.trials]},
        trials=2,
        measures=(Measure("x", "", dims=("a",), dtype=dtype),),
        outputs=(Factor("a", (1, 2), ""),),
    )
    assert outcome.status.tolist() == [OK, FAILED]
    assert "x must be integers or floats, got both, and the integer 9007199254740993, which" in outcome.error[1]


@pytest.mark.parametrize("rows", [[[LARGE, 1], [1.0, 2.0]], pd.DataFrame({"a": [LARGE, 1], "b": [1.0, 2.0]})], ids=str)
def test_rows_of_several_dtypes_are_not_rounded(rows):
    with pytest.raises(ValueError, match="which float64 rounds"):
        as_numbers("x", rows, {"trial": range(2), "a": ("a", "b")})


@pytest.mark.parametrize(
    ("value", "declared", "error"),
    [
        (300, {"dtype": "uint8"}, "value must be an integer in 0 ... 255, got 300"),
        (np.ma.masked_array([1.0, 2.0], [False, True]), {"dims": ("at",)}, "ValueError: value is masked or missing"),
        (np.ma.masked_array([1.0, 2.0], [False, True]), {"dims": ("at",), "ragged": True}, ""),
    ],
    ids=["out of range", "masked", "ragged"],
)
def test_invalid_value_per_cell_fails_every_trial(value, declared, error):
    measures = (*X, Measure("value", "", per_trial=False, **declared))
    outputs = (Factor("at", (1, 2), ""),) if "dims" in declared else ()
    outcome = outcome_of(lambda data, *_: {"x": data, "value": value}, trials=3, measures=measures, outputs=outputs)
    assert outcome.status.tolist() == [FAILED if error else OK] * 3
    assert outcome.cause.endswith(error)
    if outputs:
        np.testing.assert_array_equal(outcome.values["value"], [np.nan] * 2 if error else [1.0, np.nan])


@pytest.mark.parametrize(
    ("error", "got"),
    [
        ([0, 1, 0], "got 0 of type int"),
        (np.array([0.0, 1.0, 0.0]), "got 0.0 of type float"),
        (3, "got 3 of type int"),
        (["", "bad"], "shape (3,), got shape (2,)"),
        ([["", "bad", ""]], "shape (3,), got shape (1, 3)"),
        ("bad", "shape (3,), got shape ()"),
        (True, "shape (3,), got shape ()"),
    ],
    ids=repr,
)
def test_reported_failures_must_be_reasons_of_trials(error, got):
    text = "'error' must have one entry per trial, a text or an exception for a failure, and None, '' or False for none"
    with pytest.raises(ValueError, match=re.escape(f"{text}, {got}")):
        as_reasons(error, {"trial": range(3)})


def test_reasons_in_another_order_than_the_trials_are_refused():
    message = "'error' must have the values of trial in order, 0, 1, 2, got the labels 2, 1, 0"
    with pytest.raises(ValueError, match=message):
        as_reasons(pd.Series(["", "", "bad"], index=[2, 1, 0]), {"trial": range(3)})


# Read-only data


class Named(NamedTuple):
    values: np.ndarray


@dataclass(frozen=True)
class Kept:
    values: np.ndarray
    more: dict


def double(take):
    """Return a function that doubles, in place, the array that `take` finds in some data."""
    return lambda data: np.multiply(take(data), 2, out=take(data))


READ_ONLY_DATA = {
    "array": (lambda a: a, lambda data: data),
    "dict": (lambda a: {"a": a}, lambda data: data["a"]),
    "tuple": (lambda a: (0, a), lambda data: data[1]),
    "list": (lambda a: [a], lambda data: data[0]),
    "named": (Named, lambda data: data.values),
    "frozen dataclass": (lambda a: Kept(np.zeros(1), {"b": a}), lambda data: data.more["b"]),
    "nested": (lambda a: {"a": [(Kept(a, {}), 1)]}, lambda data: data["a"][0][0].values),
    "array of objects": (lambda a: np.array([a, None], object), lambda data: data[0]),
}


def test_self_referencing_data():
    def simulate(cell, streams):
        data = [streams.uniforms(1)[:, 0]]
        data.append(data)
        return data

    assert outcome_of(lambda data, *_: {"x": data[1][0]}, simulate=simulate).status.tolist() == [OK] * 8


def test_errors_are_stored_without_secrets():
    def fail(data, setting, streams):
        raise RuntimeError("cannot log in to s3://me:" + "hush@bucket")

    def report(data, setting, streams):
        return {"x": data, "error": ["", "token=" + "hush"]}

    for method, trial in ((fail, 0), (report, 1)):
        outcome = outcome_of(method, trials=2)
        assert outcome.status[trial] == FAILED
        assert "***" in outcome.error[trial]
        assert "hush@" not in outcome.error[trial]
        assert "token=hush" not in outcome.error[trial]


def test_cause_of_a_stored_error_is_its_first_line():
    """Stores of version 0.2 have a traceback only, which ends with the cause."""
    again = "again: dpstudies trial STORE --panel p --trial 0"
    trace = 'Traceback (most recent call last):\n  File "toy.py", line 3, in fail\nValueError: two\nlines'
    assert cause_of(f"toy.py:3: lines\n{trace}\n{again}") == "toy.py:3: lines"
    assert cause_of(f"{trace}\n{again}") == "lines"
    assert (cause_of(f"no result\n{again}"), without_rerun(f"no result\n{again}")) == ("no result", "no result")
    assert (cause_of(""), without_rerun("")) == ("", "")


# Independent statuses


def test_error_does_not_depend_on_the_markers_of_tracebacks():
    """Python prints markers below the code of a frame, except with the option ``-X no_debug_ranges``."""

    def divide(data, setting, streams):
        return {"x": 1 + (data[0] / 1).missing_attribute}

    (error,) = outcome_of(divide, trials=1).error
    assert "missing_attribute}" in error
    assert "^" not in error
    assert "^^^" in "".join(traceback.format_exception(_raised(divide)))  # otherwise the test would be void


def _raised(divide):
    try:
        divide([1.0], None, None)
    except AttributeError as error:
        return error


@given(st.sampled_from(["evaluate", "simulate"]), st.sets(st.integers(0, 11)), st.sets(st.integers(1, 11)))
@settings(max_examples=50, deadline=None)
def test_only_failing_trials_fail_for_any_grouping(phase, raising, cuts):
    """Trials that raise errors, in the method or in the simulation, fail under every setting with their own errors."""

    def fail(trials, at):
        if at == phase and (failing := sorted(raising.intersection(trials))):
            raise LookupError(f"no result for trial {failing[0]}")

    def simulate(cell, streams):
        fail(streams.trials, "simulate")
        return streams.uniforms(1)[:, 0]

    def evaluate(data, setting, streams):
        fail(streams.trials, "evaluate")
        return {"x": data + np.array(streams.trials)}

    methods = Method("evaluate", evaluate), Method("other", lambda *arguments: evaluate(*arguments))
    study = make_study(*methods, simulate=simulate, trials=12)
    uniforms = evaluate_one(make_study(returns_data, trials=12), "p", "returns_data", range(12)).values["x"]
    is_failed = np.isin(range(12), list(raising))
    for method in ("evaluate", "other"):
        parts = [evaluate_one(study, "p", method, range(*bound)) for bound in pairwise([0, *sorted(cuts), 12])]
        status, x, errors = (
            np.concatenate(arrays)
            for arrays in zip(*((part.status, part.values["x"], part.error) for part in parts), strict=True)
        )
        np.testing.assert_array_equal(status, np.where(is_failed, FAILED, OK))
        np.testing.assert_array_equal(x, np.where(is_failed, np.nan, uniforms + range(12)))
        for trial, error in enumerate(errors):
            assert error.endswith(f"LookupError: no result for trial {trial}") if trial in raising else error == ""
            assert set(re.findall(r"for trial (\d+)", error)) <= {str(trial)}  # a traceback names no other trial
            assert trial not in raising or f"in {phase}" in error


def evaluate_counted(raises, n_trials, budget):
    """Evaluate a block in which some trials raise errors; return the outcome and the trials of each call."""
    calls = []

    def evaluate(data, setting, streams):
        calls.append(streams.trials)
        for trial in streams.trials:
            if raises(trial):
                raise ArithmeticError(f"{data[streams.trials.index(trial)]} of trial {trial} is too small")
        return {"x": data}

    study = make_study(evaluate, trials=n_trials)
    (panel,) = study.panels
    (outcome,) = evaluate_block(study, Block("p", 0, range(n_trials)), panel.settings(), budget=budget)
    return outcome, calls


def test_budget_leaves_trials_pending_if_every_trial_fails():
    outcome, calls = evaluate_counted(lambda trial: True, 1000, budget=100)
    assert len(calls) <= 100 + 10  # single trials, and halves of 1,000 down to the first single trial
    assert outcome.status.tolist() == [FAILED] * 100 + [int(Status.PENDING)] * 900
    assert outcome.cause == outcome.error[0].splitlines()[0]
    assert re.fullmatch(r"test_evaluate\.py:\d+: ArithmeticError: .* of trial 0 is too small", outcome.cause)
    for trial, error in enumerate(outcome.error):
        assert error.endswith(f"of trial {trial} is too small") if trial < 100 else error == ""
    assert np.isnan(outcome.values["x"]).all()


@pytest.mark.parametrize(("n_trials", "budget"), [(200, None), (100, 100)])
def test_every_trial_is_tried_within_the_budget(n_trials, budget):
    outcome, calls = evaluate_counted(lambda trial: True, n_trials, budget)
    assert outcome.status.tolist() == [FAILED] * n_trials
    assert len(calls) <= n_trials + 8


@pytest.mark.parametrize("fine", [0, 5, 9, 10, 99])
def test_early_ok_trial_lifts_the_budget(fine):
    outcome, _ = evaluate_counted(lambda trial: trial != fine, 100, budget=10)
    tried = 100 if fine < 10 else 10
    expected = np.where(np.arange(100) < tried, FAILED, int(Status.PENDING))
    if fine < 10:
        expected[fine] = OK
    np.testing.assert_array_equal(outcome.status, expected)


@pytest.mark.parametrize("trial", [0, 1, 511, 700, 999])
def test_one_failing_trial_needs_few_calls(trial):
    outcome, calls = evaluate_counted(lambda one: one == trial, 1000, budget=100)
    assert np.flatnonzero(outcome.status == FAILED).tolist() == [trial]
    assert len(calls) <= 2 * 10 + 2  # calls for both halves at each of log2(1000) levels


def test_budget_is_per_setting():
    """If one method fails for all trials and exhausts its budget, the other method is computed for all trials."""
    study = make_study(returns_data, FAULTS.methods[3].evaluate, trials=50)
    fine, always = evaluate_block(study, Block("p", 0, range(50)), study.panels[0].settings(), budget=5)
    assert fine.status.tolist() == [OK] * 50
    assert fine.cause == ""
    assert (always.status == Status.PENDING).sum() == 45
    assert always.cause.endswith("LookupError: never works")


def test_failing_setting_has_its_own_error_and_does_not_affect_others():
    panel = STUDY.panel("faults")
    outcomes = evaluate_block(STUDY, Block("faults", 1, range(8)), panel.settings())
    for setting, outcome in zip(panel.settings(), outcomes, strict=True):
        if setting.method.name not in ("raises", "always"):
            alone = evaluate_one(WITHOUT_FAULTS, "faults", setting.method.name, range(8), cell=1)
            np.testing.assert_array_equal(outcome.values["x"], alone.values["x"])
            np.testing.assert_array_equal(outcome.status, alone.status)
    assert [int((outcome.status == FAILED).sum()) for outcome in outcomes] == [0, 3, 2, 8, 2, 0]
    error = outcomes[[method.name for method in panel.methods].index("always")].error[0]
    assert error.endswith("LookupError: never works")
    assert "no result for trial" not in error
    assert error.count("Traceback") == 1


def test_per_cell_value_is_computed_from_ok_trials():
    """A per-cell value is computed from the trials that are ok; without such trials it is NaN."""
    study = STUDY.configure(values={"failing": {"faults": [(1,)]}})
    outcome = evaluate_one(study, "faults", "raises", range(2))
    assert outcome.status.tolist() == [OK, FAILED]
    assert outcome.values["mean"] == 0.5
    outcome = evaluate_one(STUDY, "faults", "always", range(2))
    assert np.isnan(outcome.values["mean"])


def test_unevaluated_outcome():
    outcome = unevaluated(MEANS, 3, Status.KILLED, "died")
    assert outcome.status.tolist() == [4, 4, 4]
    assert outcome.error.tolist() == ["died"] * 3
    assert outcome.values["quantile"].shape == (3, 3)
    assert outcome.values["exact"].shape == ()
    assert unevaluated(MEANS, 2, Status.NOT_APPLICABLE, "").error.tolist() == ["", ""]


def test_positions_in_another_order_than_equal_values_are_refused():
    """Labels 0, 1 of the values 1, 0 are values in another order, not positions."""
    frame = pd.DataFrame({0: [0.0, 0.0], 1: [1.0, 1.0]})
    with pytest.raises(ValueError, match="must have the values of level in order"):
        as_numbers("x", frame, {"trial": (0, 1), "level": (1, 0)})
    values, _ = as_numbers("x", frame[[1, 0]], {"trial": (0, 1), "level": (1, 0)})
    assert values.tolist() == [[1, 0], [1, 0]]
    values, _ = as_numbers("x", frame, {"trial": (5, 6), "level": ("a", "b")})
    assert values.tolist() == [[0, 1], [0, 1]]


def test_masks_of_lazy_arrays_are_kept():
    lazy = da.ma.masked_array(da.from_array(np.arange(3.0)), np.array([False, True, False]))
    assert as_numbers("x", lazy, {"trial": (0, 1, 2)})[1].tolist() == [False, True, False]


class Counter:
    def __init__(self, values):
        self.values = values


@dataclass
class Changeable:
    values: np.ndarray


def halve(data):
    data.values = data.values / 2


OWN_DATA = {
    "frame": (lambda a: pd.DataFrame({"x": a}), lambda data: data.__setitem__("x", 0.0), lambda data: data.x),
    "series": (pd.Series, lambda data: data.__setitem__(0, 99.0), lambda data: data),
    "array": (lambda a: xr.DataArray(a, dims="trial"), lambda data: data.__setitem__(0, 99.0), lambda data: data),
    "dataset": (
        lambda a: xr.Dataset({"x": ("trial", a)}),
        lambda data: data.__setitem__("x", data.x * 2),
        lambda data: data.x,
    ),
    "dataclass": (Changeable, halve, lambda data: data.values),
    "namespace": (lambda a: SimpleNamespace(values=a), halve, lambda data: data.values),
    "attributes": (Counter, halve, lambda data: data.values),
    "within": (
        lambda a: {"list": [Changeable(a)]},
        lambda data: halve(data["list"][0]),
        lambda data: data["list"][0].values,
    ),
    "deque": (deque, lambda data: data.append(data.popleft()), np.array),
    "masked": (np.ma.masked_array, lambda data: data.__setitem__(0, np.ma.masked), lambda data: data),
    "objects": (
        lambda a: np.array([[a], None], object),
        lambda data: data[0].append(data[0].pop() * 2),
        lambda data: data[0][0],
    ),
    "generator": (
        lambda a: (np.random.default_rng(1), a),
        lambda data: data[0].random(),
        lambda data: data[1] + data[0].random(),
    ),
}


@pytest.mark.parametrize("name", [*READ_ONLY_DATA, *OWN_DATA])
def test_no_method_changes_the_data_of_the_next(name):
    """Arrays are read-only, so that a method that writes to them fails; other data are copied."""
    if name in READ_ONLY_DATA:
        make, take = READ_ONLY_DATA[name]
        change = double(take)
    else:
        make, change, take = OWN_DATA[name]

    def changes(data, setting, streams):
        change(data)
        return {"x": np.array(take(data))}

    def reads(data, setting, streams):
        return {"x": np.array(take(data))}

    def simulate(cell, streams):
        return make(streams.uniforms(1)[:, 0])

    (alone,) = evaluate_all(make_study(reads, simulate=simulate), "p").values()
    assert (alone["status"] == OK).all()
    found = evaluate_all(make_study(changes, reads, simulate=simulate), "p")
    np.testing.assert_array_equal(found[(), "reads"]["x"], alone["x"])
    if name in READ_ONLY_DATA:
        assert (found[(), "changes"]["status"] == FAILED).all()
        assert "read-only" in found[(), "changes"]["error"][0]


def test_arrays_are_shared_and_objects_that_cannot_be_copied_are_passed():
    array, lock = np.zeros(3), threading.Lock()
    for data in ((array, lock), Changeable(array), Named(array), {"a": [Kept(array, {})]}):
        assert next(item for item in leaves(copy_for_method(data)) if isinstance(item, np.ndarray)) is array
    assert copy_for_method([lock])[0] is lock


class MaskedLengths(np.ma.MaskedArray):
    unit = "km"


class Lengths(list):
    units = "km"


class Converts:
    def __array__(self, dtype=None, copy=None):
        return np.ma.masked_array([1.0, 2.0], [False, True])


@pytest.mark.parametrize(
    "given",
    [
        np.ma.masked_array([1.0, 2.0]).view(MaskedLengths),
        Lengths([1.0, 2.0]),
        xr.DataArray([1.0, 2.0], attrs={"units": "km"}),
        xr.Variable("trial", [1.0, 2.0], {"unit": "km"}),
    ],
    ids=["masked", "list", "array", "variable"],
)
def test_units_of_subclasses_and_attributes_are_refused(given):
    with pytest.raises(ValueError, match=r"^x must be plain numbers, got .*(which|units?) would be lost; convert"):
        as_numbers("x", given, {"trial": range(2)})


def test_array_without_a_unit_and_masks_are_read():
    without = xr.DataArray([1.0, 2.0], attrs={"units": "1", "long_name": "share"})
    assert as_numbers("x", without, {"trial": range(2)})[0].tolist() == [1.0, 2.0]
    for masked in (Converts(), np.array([1.0, np.ma.masked], object), [1.0, np.ma.masked]):
        values, is_missing = as_numbers("x", masked, {"trial": range(2)})
        assert (values[0], is_missing.tolist()) == (1.0, [False, True])


def noted():
    error = ValueError("too few")
    error.add_note("in R")
    return error


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (ExceptionGroup("several", [ValueError("a"), TypeError("b")]), "ExceptionGroup: several (2 sub-exceptions)"),
        (ValueError("first\nsecond"), "ValueError: first"),
        (ValueError("\n  first\nsecond"), "ValueError: first"),
        (noted(), "ValueError: too few"),
        (SyntaxError("invalid", ("f.py", 1, 2, "a b\n")), "SyntaxError: invalid"),
        (KeyError(), "KeyError"),
    ],
    ids=["group", "lines", "blank", "note", "syntax", "empty"],
)
def test_cause_of_an_exception_is_its_class_and_first_line(error, cause):
    def raises(data, setting, streams):
        raise error

    outcome = outcome_of(raises, trials=1)
    assert re.fullmatch(rf"test_evaluate.py:\d+: {re.escape(cause)}", outcome.cause)


@pytest.mark.parametrize("is_worker", [True, False])
def test_refused_child_process_states_what_to_do(monkeypatch, is_worker):
    """Worker processes are daemonic, and multiprocessing refuses to start a process from one."""

    def start(data, setting, streams):
        multiprocessing.get_context("spawn").Process(target=print).start() if is_worker else _refuse()

    def _refuse():
        raise AssertionError("daemonic processes are not allowed to have children")

    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)
    cause = outcome_of(start, trials=1).cause
    assert "AssertionError: daemonic processes are not allowed to have children" in cause
    assert (
        cause.endswith("; set distributed.worker.daemon to false for this cluster, or use --cluster threads")
        == is_worker
    )
