"""Tests of additional statistics in summaries."""

from unittest.mock import Mock

import numpy as np
import pytest
import xarray as xr

from pipeline import BadInputError, Factor, Measure, Statistic, Status, summarise
from pipeline.precision.targets import parse_target, resolve_target
from tests.pipeline.helpers import OtherError, make_study, refusal

LEVELS = Factor("level", (0.25, 0.5, 1.0), "level", "float")
SHARE = Statistic("ecdf", "x", "share below", lambda x: (x[:, None] <= LEVELS.values).mean(axis=0), axis=LEVELS)
LARGEST = Statistic("largest", "x", "largest value", np.max, unit="m")


def dataset():
    rng = np.random.default_rng(5)
    status = np.full((2, 3, 40), Status.OK, dtype="i1")
    status[0, 1, :30], status[1, 2] = Status.FAILED, Status.PENDING
    x = np.where(status == Status.OK, rng.random((2, 3, 40)), 99.0)  # values of failed trials must not be used
    return xr.Dataset({"x": (("n", "algorithm", "trial"), x), "status": (("n", "algorithm", "trial"), status)})


@pytest.mark.parametrize("chunks", [None, {"trial": 7}, {"n": 1, "trial": 40}])
def test_statistics_of_ok_trials(chunks):
    ds = dataset()
    summary = summarise(ds if chunks is None else ds.chunk(chunks), [SHARE, LARGEST])
    assert summary.x_ecdf.dims == ("n", "algorithm", "level")
    assert summary.level.values.tolist() == list(LEVELS.values)
    assert summary.x_largest.attrs == {"long_name": "largest value", "units": "m"}
    for n in range(2):
        for method in range(3):
            values = ds.x.values[n, method][ds.status.values[n, method] == Status.OK]
            one = summary.isel(n=n, algorithm=method)
            if values.size == 0:
                assert np.isnan(one.x_largest)
                assert np.isnan(one.x_ecdf).all()
            else:
                assert float(one.x_largest) == values.max()
                np.testing.assert_array_equal(one.x_ecdf, [(values <= level).mean() for level in LEVELS.values])
    assert "x_largest" not in summarise(ds)


def test_statistic_requires_a_per_trial_measure():
    def declare(measure):
        measures = (Measure("x", "a number"), Measure("y", "a constant", per_trial=False))
        return make_study(print, measures=measures, statistics=(Statistic("s", measure, "meaning", np.mean),))

    declare("x")
    for measure in ("y", "z"):
        with refusal(f"statistic s of panel p must use a per-trial measure, got '{measure}'"):
            declare(measure)


@pytest.mark.parametrize(
    ("function", "axis", "message"),
    [
        (Mock(side_effect=SystemExit(0)), None, "raised SystemExit: 0; correct its function"),
        (Mock(side_effect=OtherError("a\nb")), None, "raised OtherError: a b; correct its function"),
        (Mock(side_effect=ValueError("a")), LEVELS, "raised ValueError: a; correct its function"),
        (lambda x: np.ma.masked_array(5.0, True), None, "must be numbers, got masked or missing ones"),
        (
            lambda x: np.ma.masked_array([1.0, 2.0, 3.0], [0, 1, 0]),
            LEVELS,
            "must be numbers, got masked or missing ones",
        ),
        (lambda x: None, None, "must be numbers, got masked or missing ones"),
        (lambda x: 7.0, LEVELS, r"must have shape \(3,\), got \(\)"),
        (lambda x: np.ones(1), None, r"must have shape \(\), got \(1,\)"),
        (lambda x: np.ones(2), LEVELS, r"must have shape \(3,\), got \(2,\)"),
        (lambda x: "3", None, "must be real numbers, got dtype <U1"),
        (lambda x: np.complex128(1 + 2j), None, "must be real numbers, got dtype complex128"),
        (lambda x: np.timedelta64(3, "s"), None, "must be real numbers, got dtype timedelta64"),
        (lambda x: xr.DataArray([1, 2, 3], {"level": [1, 2, 3]}), LEVELS, "must have the values of level in order"),
    ],
)
def test_statistic_that_returns_no_numbers_is_refused(function, axis, message):
    refused = Statistic("s", "x", "meaning", function, axis=axis)
    with refusal() as caught:
        summarise(dataset(), [refused])
    assert caught.match(f"^statistic s of x {message}")


def test_undefined_and_labelled_statistics_are_accepted():
    undefined = Statistic("undefined", "x", "NaN", lambda x: np.nan)
    labelled = Statistic(
        "labelled", "x", "labels", lambda x: xr.DataArray([1, 2, 3], {"level": list(LEVELS.values)}), axis=LEVELS
    )
    summary = summarise(dataset(), [undefined, labelled])
    assert np.isnan(summary.x_undefined).all()
    assert summary.x_labelled.isel(n=0, algorithm=0).values.tolist() == [1, 2, 3]


def test_refused_statistic_of_a_target_names_its_panel():
    refused = Statistic("s", "x", "meaning", Mock(side_effect=SystemExit(0)))
    target = resolve_target(parse_target("mcse(x_s) <= 1"), make_study(print, trials=9, statistics=(refused,)))["p"]
    with pytest.raises(BadInputError, match=r"^panel p: statistic s of x raised SystemExit: 0; "):
        target.assess([np.arange(9.0)])


def test_interrupt_of_a_statistic_is_raised():
    with pytest.raises(KeyboardInterrupt):
        summarise(dataset(), [Statistic("s", "x", "meaning", Mock(side_effect=KeyboardInterrupt()))])


def test_statistic_must_be_callable():
    with pytest.raises(BadInputError, match="the function of statistic s must be callable, got 5"):
        Statistic("s", "x", "meaning", 5)
