"""Tests of the study `calibration`."""

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from mechanisms.inference.methods import INFERENCE_METHODS
from studies.inference.calibration import STUDY

N_TRIALS = 40
"""Number of trials of the tests of distributions; the other tests read the fewer trials of the case."""


def test_ranges_and_grid(results):
    """Measures are within their ranges, methods have values where they apply, and only MCMC methods have an R-hat."""
    for panel in STUDY.panels:
        ds = results(panel.name)
        applies = (ds.algorithm != "data-augmentation") | (ds.n <= 100)
        assert (ds.status == xr.where(applies, 1, 5)).all()
        assert ((ds["pit"] >= 0) & (ds["pit"] <= 1) | ~applies).all()
        assert ((ds["rank"] >= 0) & (ds["rank"] <= 99) | ~applies).all()
        chains = (ds.algorithm.str.startswith("gibbs") | (ds.algorithm == "data-augmentation")) & applies
        assert (ds.rhat.notnull() == chains).all()
        assert (ds.ess.where(chains, 1) > 0).all()
        assert panel.trials == 1_000
        assert panel.spec()["factors"]["n"] == [10, 100, 1_000, 10_000, 100_000]
    assert results("exponential").bounds.item().startswith("0.00632945")


@pytest.mark.slow
def test_methods_agree_with_the_exact_posterior(run_panel):
    """In each trial, PIT values of Gibbs samplers and of `marginal` agree with exact ones; those of `naive` do not."""
    methods = ["naive", "gibbs", "marginal", "exact", "gibbs-exact"]
    ds = run_panel(STUDY, "binomial", N_TRIALS, n=[1_000], epsilon=[0.01, 0.1], algorithm=methods).sel(n=1_000)
    exact = ds["pit"].sel(algorithm="exact")
    assert abs(ds["pit"].sel(algorithm="marginal") - exact).max() < 0.003
    spread = 5 * np.sqrt(0.25 / ds.ess.sel(algorithm="gibbs"))
    assert (abs(ds["pit"].sel(algorithm="gibbs") - exact) < spread + 0.003).all()
    spread_exact = 5 * np.sqrt(0.25 / ds.ess.sel(algorithm="gibbs-exact"))
    assert (abs(ds["pit"].sel(algorithm="gibbs-exact") - exact) < spread_exact).all()
    assert (abs(ds["pit"].sel(algorithm="naive") - exact) > spread + 0.003).mean() > 0.25


@pytest.mark.slow
@pytest.mark.parametrize("panel", STUDY.panels, ids=lambda panel: panel.name)
def test_quantiles_of_correct_posteriors_are_uniform(panel, run_panel):
    """PIT values of correct posteriors pass a Kolmogorov–Smirnov test of uniformity; those of `naive` do not."""
    has_marginal = "marginal" in [method.name for method in panel.methods]
    methods = ["non-private", "naive", *(["marginal"] if has_marginal else [])]
    one = run_panel(STUDY, panel.name, N_TRIALS, n=[10], epsilon=[0.01], algorithm=methods).isel(n=0, epsilon=0)
    one = one.isel(component=0) if "component" in one.dims else one
    assert stats.kstest(one["pit"].sel(algorithm="non-private"), "uniform").pvalue > 1e-4
    assert stats.kstest(one["pit"].sel(algorithm="naive"), "uniform").pvalue < 0.005
    if has_marginal and panel.name != "exponential-paper-bounds":
        assert stats.kstest(one["pit"].sel(algorithm="marginal"), "uniform").pvalue > 1e-4


def test_statistics_of_the_quantiles(results, summaries):
    """Stored statistics of PIT values and ranks equal those computed with SciPy and NumPy."""
    quantile = results("exponential")["pit"].sel({"n": 1_000, "epsilon": 0.1, "algorithm": "gibbs"}).values
    summary = summaries["exponential"].sel({"n": 1_000, "epsilon": 0.1, "algorithm": "gibbs"})
    expected = stats.kstest(quantile, "uniform")
    assert float(summary.pit_ks) == pytest.approx(expected.statistic, rel=1e-12)
    assert float(summary.pit_p) == pytest.approx(expected.pvalue, rel=1e-9)
    assert float(summary.pit_tails) == pytest.approx(np.mean((quantile < 0.05) | (quantile > 0.95)))
    np.testing.assert_allclose(summary.pit_ecdf, [(quantile <= level).mean() for level in summary.level.values])
    ranks = results("exponential")["rank"].sel({"n": 1_000, "epsilon": 0.1, "algorithm": "gibbs"}).values
    counts = np.histogram(ranks, bins=20, range=(0, 100))[0]
    np.testing.assert_allclose(summary.rank_histogram, counts / ranks.size)
    assert float(summary.rank_p) == pytest.approx(stats.chisquare(counts).pvalue, rel=1e-9)


@pytest.mark.slow
def test_failure_of_one_trial_does_not_affect_others(run_panel, monkeypatch):
    method = INFERENCE_METHODS["gibbs"]
    fit = method.fit

    def fail_sometimes(rng, model, prior, noisy, **run):
        if noisy[0] > model.n / 2:
            raise ValueError(f"no draw at {noisy}")
        return fit(rng, model, prior, noisy, **run)

    monkeypatch.setitem(vars(method), "fit", fail_sometimes)
    values = {"n": [1_000], "epsilon": [0.1], "algorithm": ["gibbs", "exact"]}
    ds = run_panel(STUDY, "binomial", trials=20, **values).isel(n=0, epsilon=0)
    failed = ds.status.sel(algorithm="gibbs") == 2
    assert 0 < int(failed.sum()) < 20
    assert np.isnan(ds["pit"].sel(algorithm="gibbs").values[failed]).all()
    assert "no draw at" in "".join(ds.error.sel(algorithm="gibbs").values[failed])
    assert (ds.status.sel(algorithm="exact") == 1).all()
