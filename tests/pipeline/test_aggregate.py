"""Tests of summaries against NumPy and exact distributions; failed and pending trials are counted and excluded."""

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from pipeline import open_results, summarise
from pipeline.blocks.evaluate import Status
from pipeline.results.summaries import QUANTILES, estimate_mean, estimate_quantiles
from tests.pipeline.helpers import count_status
from tests.pipeline.toy import STUDY

N = 1001
LEVELS = sorted(QUANTILES.values())


def mcse_quantile(ordered, level):
    return float(estimate_quantiles(ordered, [level])[1][0])


def dataset(n_trials=50, bad=()):
    """Return results of two cells and methods with measures per trial and per cell; `bad` maps trials to statuses."""
    rng = np.random.default_rng(5)
    status = np.ones((2, 2, n_trials), np.int8)
    x = rng.normal(size=(2, 2, n_trials, 3))
    for trial, code in dict(bad).items():
        status[1, 0, trial] = code
        x[1, 0, trial] = 1e9  # values of failed trials must not affect the summary
    return xr.Dataset(
        {
            "x": (("n", "algorithm", "trial", "level"), x, {"long_name": "a number", "units": "m"}),
            "count": (("n", "algorithm", "trial"), rng.integers(0, 9, size=(2, 2, n_trials))),
            "exact": (("n", "algorithm"), rng.normal(size=(2, 2)), {"long_name": "exact"}),
            "status": (("n", "algorithm", "trial"), status),
            "error": (("n", "algorithm", "trial"), np.full(status.shape, "")),
        },
        coords={"n": [4, 9], "algorithm": ["a", "b"], "trial": np.arange(n_trials), "delta": 0.5},
        attrs={"title": "t"},
    )


def test_summary_equals_numpy():
    ds, summary = dataset(), summarise(dataset())
    x = ds["x"].values
    expected = {
        "mean": x.mean(axis=2),
        "sd": x.std(axis=2, ddof=1),
        "mcse": x.std(axis=2, ddof=1) / np.sqrt(50),
        **{name: np.quantile(x, level, axis=2) for name, level in QUANTILES.items()},
    }
    for name, values in expected.items():
        assert summary[f"x_{name}"].dims == ("n", "algorithm", "level")
        np.testing.assert_allclose(summary[f"x_{name}"].values, values, rtol=1e-12, err_msg=name)
    for name, level in QUANTILES.items():
        one = mcse_quantile(np.sort(x[1, 0, :, 2]), level)
        assert summary[f"x_{name}_mcse"].values[1, 0, 2] == one
    np.testing.assert_allclose(summary["count_mean"], ds["count"].mean("trial"))
    assert (summary["n_ok"] == 50).all()
    assert not (summary["n_failed"] + summary["n_pending"]).any()


def test_dimensions_and_attributes_of_a_summary():
    ds, summary = dataset(), summarise(dataset())
    assert "trial" not in summary.dims
    assert "trial" not in summary.coords
    assert {"status", "error", "x"}.isdisjoint(summary)
    xr.testing.assert_identical(summary["exact"], ds["exact"])
    assert summary.attrs == {"title": "t"}
    assert summary["delta"] == 0.5
    assert summary["x_median_mcse"].attrs == {"long_name": "median_mcse of a number", "units": "m"}


def test_failed_and_pending_trials_are_counted_and_excluded():
    bad = {0: 0, 1: 0, 2: 2, 3: 3, 4: 4, 5: 2, 49: 2}
    ds, summary = dataset(bad=bad), summarise(dataset(bad=bad))
    assert [int(summary[name][1, 0]) for name in ("n_ok", "n_failed", "n_pending")] == [43, 5, 2]
    assert [int(summary[name][0, 1]) for name in ("n_ok", "n_failed", "n_pending")] == [50, 0, 0]
    kept = np.delete(ds["x"].values[1, 0], list(bad), axis=0)
    np.testing.assert_allclose(summary["x_mean"][1, 0], kept.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(summary["x_mcse"][1, 0], kept.std(axis=0, ddof=1) / np.sqrt(43), rtol=1e-12)
    np.testing.assert_allclose(summary["x_q95"][1, 0], np.quantile(kept, 0.95, axis=0), rtol=1e-12)
    np.testing.assert_array_equal(summary["x_mean"][0], summarise(dataset())["x_mean"][0])


def test_settings_that_do_not_apply_are_not_counted():
    summary = summarise(dataset(n_trials=2, bad={0: 5, 1: 5}))
    assert [int(summary[name][1, 0]) for name in ("n_ok", "n_failed", "n_pending")] == [0, 0, 0]
    assert np.isnan(summary["x_mean"][1, 0]).all()


def test_few_trials():
    one = summarise(dataset(n_trials=2, bad={0: 2}))
    assert (one["x_mean"][1, 0] == one["x_median"][1, 0]).all()
    for name in ("mcse", "sd", "median_mcse", "q05_mcse"):
        assert np.isnan(one[f"x_{name}"][1, 0]).all()
    none = summarise(dataset(n_trials=2, bad={0: 2, 1: 0}))
    assert not none["x_n_values"][1, 0].any()
    assert all(np.isnan(none[name][1, 0]).all() for name in none.drop_vars("x_n_values") if str(name).startswith("x_"))


def test_padding_of_ragged_rows_is_ignored():
    ds = xr.Dataset(
        {
            "x": (("trial", "bin"), [[1.0, 5.0], [2.0, np.nan], [3.0, 7.0], [9.0, 9.0]]),
            "status": ("trial", [1, 1, 1, 2]),
        }
    )
    summary = summarise(ds)
    assert summary["x_mean"].values.tolist() == [2.0, 6.0]
    np.testing.assert_allclose(summary["x_mcse"], [1 / np.sqrt(3), np.sqrt(2) / np.sqrt(2)])


def test_infinite_values_are_included():
    """The mean of values with an infinite one among them is infinite; their median is finite."""
    ds = xr.Dataset({"x": ("trial", [1.0, 2.0, 3.0, 4.0, np.inf]), "status": ("trial", [1] * 5)})
    summary = summarise(ds)
    assert float(summary["x_mean"]) == np.inf
    assert float(summary["x_median"]) == 3.0


@pytest.mark.parametrize(
    "chunks", [{"trial": 7}, {"trial": 50, "n": 1}, {"n": 1, "algorithm": 1, "level": 1, "trial": 8}]
)
def test_dask_equals_numpy(chunks):
    ds = dataset(bad={3: 2, 4: 0})
    xr.testing.assert_identical(summarise(ds.chunk(chunks)), summarise(ds))


@pytest.mark.slow
@pytest.mark.parametrize("panel", STUDY.panels, ids=lambda panel: panel.name)
def test_dask_equals_numpy_for_a_store(complete_store, panel):
    ds = open_results(complete_store)[panel.name].to_dataset()
    xr.testing.assert_identical(summarise(ds), summarise(ds.load()))


@pytest.mark.slow
def test_counts_of_a_store(complete_store):
    ds = open_results(complete_store)["faults"].to_dataset()
    summary = summarise(ds)
    assert summary["n_ok"].sel(n=3).values.tolist() == [12, 8, 9, 0, 9, 12]
    assert summary["n_failed"].sel(n=5).values.tolist() == [0, 4, 3, 12, 3, 0]
    assert count_status(ds) == {
        **dict.fromkeys(Status, 0),
        Status.OK: 2 * (12 + 8 + 9 + 9 + 12),
        Status.FAILED: 2 * (4 + 3 + 12 + 3),
    }
    chain = summarise(open_results(complete_store)["means"].to_dataset()).sel(
        {"algorithm": "chain", "n": 4, "steps": 5}
    )
    assert not chain["n_ok"].any()


def test_deterministic_panel(complete_store):
    ds = open_results(complete_store)["table"].to_dataset()
    summary = summarise(ds)
    for name in ("curve", "total", "n_points"):
        expected = ds[name].astype(ds[name].attrs.pop("declared_dtype", float)).load()
        xr.testing.assert_identical(summary[name], expected)
        assert summary[name].dtype == expected.dtype
    assert set(summary.data_vars) == {"curve", "total", "n_points", "n_ok", "n_failed", "n_pending"}
    assert (summary["n_ok"] == 1).all()
    # integers, as in other panels, instead of booleans
    assert {summary[name].dtype.kind for name in ("n_ok", "n_failed", "n_pending")} == {"i"}


# Monte Carlo error of quantiles


@pytest.mark.parametrize("level", LEVELS)
def test_mcse_quantile_against_the_exact_distribution(level):
    """The expected Monte Carlo error for uniform draws is the standard deviation of a Beta-distributed quantile.

    The estimate is linear in the draws: its expectation is its value at the expected order statistics, k / (n + 1).
    """
    k = round((N - 1) * level) + 1
    assert (N - 1) * level == pytest.approx(k - 1)
    exact = stats.beta(k, N + 1 - k).std()
    expected = mcse_quantile(np.arange(1, N + 1) / (N + 1), level)
    assert expected == pytest.approx(exact, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("level", [0.05, 0.5, pytest.param(0.75, marks=pytest.mark.exhaustive)])
def test_mcse_quantile_against_a_simulation(level):
    """The mean estimated Monte Carlo error agrees with the standard deviation of quantiles of normal samples."""
    samples = np.sort(np.random.default_rng(11).normal(size=(20_000, N)), axis=1)
    quantiles = np.quantile(samples, level, axis=1)
    spread, n = quantiles.std(ddof=1), len(samples)
    spread_se = spread / np.sqrt(2 * (n - 1))  # standard error of `spread` for nearly normal quantiles
    estimates = np.array([mcse_quantile(sample, level) for sample in samples[:2_000]])
    error = np.hypot(spread_se, estimates.std(ddof=1) / np.sqrt(estimates.size))
    assert abs(estimates.mean() - spread) < 5 * error
    for wrong in (0.95, 1.05):  # negative controls: 5 % wrong
        assert abs(wrong * estimates.mean() - spread) > 5 * error


def test_means_omit_padding_and_have_no_error_for_infinite_or_few_draws():
    draws = np.array([[1.0, 3.0, 5.0], [np.nan, 2.0, 4.0], [1.0, np.inf, 2.0], [7.0, np.nan, np.nan], [np.nan] * 3])
    found = estimate_mean(draws)
    np.testing.assert_array_equal(found.mean, [3.0, 3.0, np.inf, 7.0, np.nan])
    np.testing.assert_allclose(found.error, [2 / np.sqrt(3), 1.0, np.nan, np.nan, np.nan])
    np.testing.assert_allclose(found.sd, [2.0, np.sqrt(2), np.nan, np.nan, np.nan])


def test_summaries_of_discrete_draws_have_the_errors_of_the_stopping_rule():
    """Half the distance at four standard deviations, since the order statistics at one standard deviation are equal."""
    draws = np.repeat([0.0, 1.0], [58, 42])
    ds = xr.Dataset({"x": ("trial", draws), "status": ("trial", np.ones(100, np.int8))})
    assert float(summarise(ds).x_median_mcse) == mcse_quantile(draws, 0.5) == 1 / 8


def test_mcse_quantile_of_few_draws():
    assert np.isnan(mcse_quantile(np.array([]), 0.5))
    assert np.isnan(mcse_quantile(np.array([1.0]), 0.5))
    assert mcse_quantile(np.array([1.0, 1.0, 1.0]), 0.5) == 0.0
    assert 0 < mcse_quantile(np.array([1.0, 2.0]), 0.95) <= 0.5
