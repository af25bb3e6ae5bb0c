"""Tests of additional statistics in summaries."""

import numpy as np
import pytest
import xarray as xr

from pipeline import BadInputError, Factor, Measure, Method, Panel, Statistic, Status, summarise

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
    def panel(measure):
        return Panel(
            "p",
            "a panel",
            lambda cell, streams: None,
            (Method("m", lambda data, setting, streams: {}),),
            (Measure("x", "a number"), Measure("y", "a constant", per_trial=False)),
            statistics=(Statistic("s", measure, "meaning", np.mean),),
        )

    panel("x")
    for measure in ("y", "z"):
        with pytest.raises(
            BadInputError, match=f"statistic s of panel p must use a per-trial measure, got '{measure}'"
        ):
            panel(measure)
