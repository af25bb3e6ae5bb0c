"""Tests of intervals for proportions by exact enumeration, and of summaries of events."""

import math

import numpy as np
import pytest
import xarray as xr
from scipy import stats
from scipy.special import betaincinv, gammaln, xlog1py, xlogy

from pipeline import BadInputError, Measure, Method, Statistic, open_results, run, summarise
from pipeline.precision.targets import parse_target, resolve_target
from pipeline.results.proportions import LEVEL, constant_error, proportion_interval
from pipeline.runs.estimate import make_plan
from tests.pipeline.helpers import make_study

SIZES = (*range(1, 21), 40, 97, 500)


def wilson(n_events, n):
    z, share = stats.norm.ppf((1 + LEVEL) / 2), n_events / n
    half = z / (1 + z**2 / n) * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    return np.where(n_events > 0, centre - half, 0.0), np.where(n_events < n, centre + half, 1.0)


def jeffreys(n_events, n):
    low, high = (betaincinv(n_events + 0.5, n - n_events + 0.5, q) for q in ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return np.where(n_events > 0, low, 0.0), np.where(n_events < n, high, 1.0)


def two_errors(n_events, n):
    share = n_events / n
    error = np.sqrt(share * (1 - share) / max(n - 1, 1))
    return share - 2 * error, share + 2 * error


def coverage(interval, n, probabilities=None):
    """Return probabilities, by default just below and above all ends of intervals, and the exact coverage at each."""
    low, high = interval(np.arange(n + 1), n)
    if probabilities is None:
        ends = np.concatenate([low, high])
        probabilities = np.concatenate([ends - 1e-9, ends + 1e-9])
        probabilities = probabilities[(probabilities > 0) & (probabilities < 1)]
    covers = (low[:, None] <= probabilities) & (probabilities <= high[:, None])
    return probabilities, (np.exp(log_pmf(n, probabilities)) * covers).sum(axis=0)


def log_pmf(n, probabilities):
    x = np.arange(n + 1)[:, None]
    weights = gammaln(n + 1) - gammaln(x + 1) - gammaln(n - x + 1)
    return weights + xlogy(x, probabilities) + xlog1py(n - x, -probabilities)


def least(interval, n):
    return coverage(interval, n)[1].min()


def test_least_coverage_by_enumeration_is_that_stated():
    """The infimum over all probabilities is at the ends of the intervals, since the coverage is smooth between them."""
    assert min(least(proportion_interval, n) for n in SIZES) == pytest.approx(0.899, abs=5e-4)
    for n in SIZES:
        probabilities, found = coverage(proportion_interval, n)
        assert found[probabilities < 3.6 / n].min() >= 0.917


def test_other_intervals_cover_less():
    assert least(wilson, 1) == pytest.approx(0.793, abs=5e-4)
    assert least(wilson, 500) == pytest.approx(0.838, abs=5e-4)
    assert least(jeffreys, 200) == pytest.approx(0.878, abs=5e-4)
    assert least(two_errors, 200) < 0.01


@pytest.mark.parametrize("n", [20, 100, 200])
def test_mean_coverage_is_near_the_level(n):
    grid = (np.arange(1000) + 0.5) / 1000
    assert LEVEL <= coverage(proportion_interval, n, grid)[1].mean() <= LEVEL + 0.008
    assert coverage(two_errors, n, grid)[1].mean() < LEVEL  # negative control


def test_intervals_are_ordered_symmetric_and_exact_at_the_ends():
    for n in SIZES:
        low, high = proportion_interval(np.arange(n + 1), n)
        assert (np.diff(low) >= 0).all()
        assert (low <= np.arange(n + 1) / n).all()
        np.testing.assert_allclose(low, 1 - high[::-1], atol=1e-14)
        assert (low[0], low[-1]) == (0, pytest.approx(0.025 ** (1 / n)))
        mean, error = stats.beta(0.5, n + 0.5).mean(), stats.beta(0.5, n + 0.5).std()
        assert constant_error(n) == pytest.approx(error)
        assert constant_error(n) ** 2 * (n + 2) == pytest.approx(mean * (1 - mean))
    assert np.isnan(proportion_interval(0, 0)).all()


# Summaries


def events(*counts, n=20, dtype=bool):
    """Return results of a measure with the given numbers of events in each cell, whose last trial failed."""
    hit = np.array([np.arange(n + 1) < count for count in counts]).astype(dtype)
    status = np.ones(hit.shape, np.int8)
    status[:, -1] = 2
    return xr.Dataset({"hit": (("cell", "trial"), hit), "status": (("cell", "trial"), status)})


@pytest.mark.parametrize("chunks", [None, {"trial": 7}])
def test_events_have_intervals_and_no_error_of_zero(chunks):
    ds = events(0, 7, 20)
    summary = summarise(ds if chunks is None else ds.chunk(chunks))
    low, high = proportion_interval(np.array([0, 7, 20]), 20)
    np.testing.assert_array_equal(summary.hit_low, low)
    np.testing.assert_array_equal(summary.hit_high, high)
    plain = np.std([1.0] * 7 + [0.0] * 13, ddof=1) / math.sqrt(20)
    np.testing.assert_allclose(summary.hit_mcse, [constant_error(20), plain, constant_error(20)])
    assert summary.hit_sd.values.tolist()[::2] == [0, 0]
    assert summary.hit_low.attrs["long_name"] == "low of 95% interval for the mean of hit"


def test_events_are_declared_by_dtype_attribute_or_name():
    number = events(0, dtype=float)
    assert "hit_low" not in summarise(number)
    assert summarise(number).hit_mcse.item() == 0.0
    stored = number.assign(hit=number.hit.assign_attrs(declared_dtype="bool"))  # as plain xarray opens a store
    for summary in (summarise(stored), summarise(number, events=["hit"])):
        xr.testing.assert_equal(summary, summarise(events(0)))


def test_events_of_one_trial_of_none_and_of_pooled_cells():
    one = summarise(events(1, 0, n=1))
    np.testing.assert_allclose(one.hit_low, [0.025, 0])
    np.testing.assert_allclose(one.hit_high, [1, 0.975])
    assert np.isnan(one.hit_mcse).all()
    ds = events(20, 0)
    ds["status"][1] = 0
    none = summarise(ds).isel(cell=1)
    assert np.isnan([none.hit_mean, none.hit_low, none.hit_high]).all()
    assert (int(none.hit_n_values), int(none.n_pending)) == (0, 21)
    pooled = events(20, 20).rename(trial="replicate").stack(trial=("cell", "replicate"))
    summary = summarise(pooled)
    assert (int(summary.hit_n_values), int(summary.n_ok), int(summary.n_failed)) == (40, 40, 2)
    assert float(summary.hit_low) == proportion_interval(40, 40)[0]


def test_number_of_values_is_that_of_the_mean():
    nan = np.nan
    x = [[1.0, nan, 3.0, 5.0, 7.0, 9.0], [nan] * 6, [2.0] * 6]
    status = [[1, 1, 1, 1, 1, 2], [1] * 6, [1, 1, 0, 0, 0, 0]]
    ds = xr.Dataset({"x": (("cell", "trial"), x), "status": (("cell", "trial"), status)})
    summary = summarise(ds)
    assert summary.n_ok.values.tolist() == [5, 6, 2]
    assert summary.x_n_values.values.tolist() == [4, 0, 2]
    np.testing.assert_array_equal(summary.x_mean, [4, nan, 2])
    assert summary.x_n_values.dtype.kind == "i"


# Declarations, plans and precision


def study_of(measure, evaluate, **panel):
    method = Method("m", lambda data, setting, streams: {measure.name: evaluate(data)})
    return make_study(method, measures=(measure,), trials=200, **panel)


def test_trial_whose_event_is_neither_0_nor_1_fails(tmp_path):
    study = study_of(Measure("hit", "an event", event=True), lambda data: np.where(data < 0.9, 1.0, 0.5))
    ds = open_results(run(study, tmp_path / "s.zarr", progress=False))["p"].to_dataset()
    assert 0 < (ds.status == 2).sum() < 60
    assert {text.splitlines()[0] for text in ds.error.values.ravel() if text} == {"hit must be 0 or 1, got 0.5"}
    assert "event" not in str(study.spec())


@pytest.mark.parametrize("declared", [{"dtype": "bool"}, {"event": True}, {"event": True, "dtype": "int8"}])
@pytest.mark.parametrize("value", [0, 1])
def test_equal_events_reach_no_precision_and_have_an_expected_error(declared, value):
    study = study_of(Measure("hit", "an event", **declared), lambda data: np.full(len(data), value))
    for text in ("mcse(hit) <= 0.5", "mcse(hit) <= 10%", "mcse(hit_median) <= 0.5"):
        for n in (100, 100_000):
            found = resolve_target(parse_target(text), study)["p"].assess([np.full(n, value)])
            assert (found.is_reached, found.is_constant, found.ratio) == (False, False, math.inf)
    (plan,) = make_plan(study, 0.1)
    assert plan.mcse["hit"] == pytest.approx(math.sqrt(0.5 / 201 * (1 - 0.5 / 201) / 200))


def test_target_of_a_ragged_measure_counts_values():
    """A few equal values among many trials are no constant; 100 values are needed, as of other measures."""
    study = study_of(Measure("x", "a number", ragged=True), lambda data: data)
    target = resolve_target(parse_target("mcse(x) <= 1"), study)["p"]

    def assess(n_values, n_trials, values):
        return target.assess([np.where(np.arange(n_trials) < n_values, values, np.nan)])

    assert not assess(1, 100, 1.0).is_reached
    few = assess(25, 100, 1.0)
    assert (few.n, few.ratio, few.is_constant) == (25, 2.0, False)
    assert assess(100, 200, 1.0).is_constant
    assert target.assess([np.full((200, 2), [1.0, np.nan])]).is_reached  # rows have at most one value
    assert not target.assess([np.full(200, np.nan)]).is_reached
    several = np.arange(200) % 7 / 7
    assert assess(25, 200, several).ratio == 2.0
    assert assess(150, 200, several).is_reached
    assert assess(150, 200, several).n == 150


@pytest.mark.parametrize(
    ("measure", "statistic"), [({"dtype": "bool"}, "low"), ({}, "n_values"), ({}, "mean"), ({}, "largest")]
)
def test_statistics_have_names_of_their_own(measure, statistic):
    statistics = (Statistic(statistic, "x", "a statistic", np.max), Statistic("largest", "x", "largest", np.max))
    with pytest.raises(BadInputError, match=f"must have distinct names, got x_{statistic} twice"):
        study_of(Measure("x", "a measure", **measure), lambda data: data, statistics=statistics)
    study_of(Measure("x", "a measure"), lambda data: data, statistics=(Statistic("low", "x", "least", np.min),))
