"""Tests of the study `partition-probability`."""

import math

import numpy as np
import pytest
from scipy import stats

from pipeline import Streams
from studies.regression.partition_probability import STUDY
from studies.regression.partition_trials import read_abalone


def test_differences_and_grid(results):
    for panel in ("default", "zellner-partition", "abalone"):
        ds = results(panel)
        assert ds.cutoff.values.tolist() == [-3, -2, -1, 0, 1, 2, 3]
        assert ((ds.probability >= 0) & (ds.probability <= 1)).all()
        full = ds.probability.sel(algorithm="full")
        np.testing.assert_allclose(ds.difference, ds.probability - full, atol=1e-15)
    for panel in ("default", "zellner-partition"):
        spec = STUDY.panel(panel).spec()["constants"]
        assert (spec["n"], spec["partition_size"], spec["epsilon"]) == ([100_000], [100], [0.25])
        assert spec["coefficients"] == [[1.0, 2.0]]
        assert STUDY.panel(panel).trials >= 1_000


def test_privacy_loss_is_stored(results):
    spent = results("default").spent.load()
    assert spent.sel(algorithm="normality") == 7 * 0.25
    assert spent.sel(algorithm="fisher-corrected") == pytest.approx(7 * 0.25)
    assert spent.sel(algorithm="fisher-published") == pytest.approx(7 * 200 * 0.25)
    assert np.isinf(spent.sel(algorithm=["full", "normality-noiseless"])).all()


def rows_of(trial, n, panel="default"):
    """Return the rows of a trial as the study draws them."""
    rng = next(Streams(STUDY.seed, STUDY.name, panel, "data", {}, range(trial, trial + 1)).generators())
    z = rng.standard_normal((n, 2))
    return z[:, 0], 1.0 + 2.0 * z[:, 0] + z[:, 1]


@pytest.mark.parametrize("panel", ["default", "zellner-partition"])
def test_one_trial_against_numpy(results, panel):
    """Stored probabilities of one trial equal aggregates of posteriors under Zellner's prior, by NumPy."""
    x, y = rows_of(3, 20_000, panel)
    cutoffs = 2.0 + np.arange(-3, 4) / math.sqrt(20_000)

    def posterior(x, y, g):
        X = np.column_stack([np.ones(x.size), x])
        inverse = np.linalg.inv(X.T @ X)
        mean, sd = g / (g + 1) * (inverse @ X.T @ y)[1], math.sqrt(g / (g + 1) * inverse[1, 1])
        return stats.norm.cdf((cutoffs - mean) / sd)

    ds = results(panel).probability.isel(trial=3).load()
    np.testing.assert_allclose(ds.sel(algorithm="full"), posterior(x, y, 20_000), rtol=1e-8)
    g = 20_000 if panel == "default" else 100
    parts = np.stack([posterior(x[i : i + 100], y[i : i + 100], g) for i in range(0, 20_000, 100)])
    score = stats.norm.ppf(parts.mean(axis=0))
    np.testing.assert_allclose(
        ds.sel(algorithm="normality-noiseless"), stats.norm.cdf(math.sqrt(200) * score), rtol=1e-7
    )
    np.testing.assert_allclose(
        ds.sel(algorithm="normality-corrected-noiseless"), stats.norm.cdf(math.sqrt(400) * score), rtol=1e-7
    )
    total = -2 * np.log(np.maximum(parts, 0.001)).sum(axis=0)
    np.testing.assert_allclose(ds.sel(algorithm="fisher-noiseless"), stats.chi2.sf(total, 400), rtol=1e-7)


def test_unequal_partitions(run_panel):
    """If the number of rows, 1,037, is no multiple of 10, ten partitions have 103 or 104 rows."""
    ds = run_panel(STUDY, "default", trials=2, n=[1037])
    assert (ds.status == 1).all()
    assert ds.spent.sel(algorithm="fisher-published") == pytest.approx(7 * 10 * 0.25)


def test_abalone_data():
    """The abalone data have 4,177 rows and a known least-squares slope."""
    x, rings = read_abalone()
    assert x.shape == (4177, 2)
    least = np.linalg.lstsq(np.column_stack([np.ones(4177), x]), rings, rcond=None)[0]
    assert least[1] == pytest.approx(26.8413, abs=1e-3)


def test_audited_losses_are_the_stated_ones(run_panel):
    """The audited loss of each method is ε; that of `fisher-published` is M·ε = 20ε."""
    values = {"n": [600], "partition_size": [30], "epsilon": [0.5], "least_probability": [0.01]}
    losses = run_panel(STUDY, "audit", **values).exact_epsilon
    expected = [10.0 if name == "fisher-published" else 0.5 for name in losses.algorithm.values]
    np.testing.assert_allclose(losses, expected, rtol=1e-9)
