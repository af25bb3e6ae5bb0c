"""Tests of the study `partition-quantile`."""

import numpy as np
import pytest

from mechanisms.audit.partitions import search_distributions
from mechanisms.core.exact_losses import audit_distributions
from mechanisms.regression.partition_prior import SemiConjugatePrior
from mechanisms.regression.posterior import coefficient_posterior
from mechanisms.regression.sparse_vector import SparseVector
from mechanisms.regression.statistics import partition_statistics
from pipeline import Streams
from studies.regression.partition_quantile import STUDY


def test_grid_and_privacy_loss(results):
    for panel in ("default", "half-share", "abalone"):
        ds = results(panel)
        assert np.isfinite(ds["slope_quantile"]).all()
        assert (ds.half_width.notnull() == (ds.algorithm != "full")).all()
        assert STUDY.panel(panel).trials == 1_000
    spec = STUDY.panel("default").spec()["constants"]
    assert (spec["n"], spec["partition_size"], spec["error_std"]) == ([100_000], [1_000], [10.0])
    assert (spec["epsilon"], spec["split"]) == ([0.9], [[0.45, 0.45]])
    spent = results("default").spent.load()
    assert spent.sel(algorithm="quantile-centred") == pytest.approx(0.2 + 7 * 0.7)  # one scale is released for all p
    assert np.isinf(spent.sel(algorithm="quantile-noiseless"))


def test_one_trial_against_numpy(results):
    """Stored quantiles of one trial are means over partitions whose posteriors are computed one by one."""
    rng = next(Streams(STUDY.seed, STUDY.name, "default", "data", {}, range(5, 6)).generators())
    z = rng.standard_normal((100_000, 2))
    x, y = z[:, :1], 1.0 + 2.0 * z[:, 0] + 10.0 * z[:, 1]
    prior = SemiConjugatePrior(0.0, 1e-3, 1.0, 1.0)

    def quantiles(first, last, power):
        part = partition_statistics(x[first:last], y[first:last], np.zeros(last - first, int))
        return coefficient_posterior(part, 1, prior, power=power).quantile([0.025, 0.5])[0]

    ds = results("default")["slope_quantile"].isel(trial=5).sel(p=[0.025, 0.5]).load()
    np.testing.assert_allclose(ds.sel(algorithm="full"), quantiles(0, 100_000, 1.0), rtol=1e-9)
    parts = np.mean([quantiles(i, i + 1000, 100.0) for i in range(0, 100_000, 1000)], axis=0)
    np.testing.assert_allclose(ds.sel(algorithm="quantile-noiseless"), parts, rtol=1e-9)


def test_full_posterior_is_calibrated(results):
    """The true slope is below the p-quantile in a fraction p of the data sets, up to five standard errors."""
    full = results("default")["slope_quantile"].sel(algorithm="full").load()
    p = full.p.values
    share = (full > 2.0).mean("trial").values
    assert (np.abs(share - p) <= 5 * np.sqrt(p * (1 - p) / 100)).all()


def test_failed_search_ends_at_the_largest_number_of_doublings(run_panel):
    """If two doublings do not suffice, values are released and marked `capped`, and the budget is spent."""
    values = {"start": [0.1], "doublings": [2], "share": [1.0], "algorithm": ["quantile"], "n": [20_000]}
    ds = run_panel(STUDY, "default", trials=20, **values)
    assert (ds.status == 1).all()
    assert ds.capped.mean() > 0.7
    assert (ds.half_width.where(ds.capped == 1, 0.4) == 0.4).all()
    assert float(ds.spent.item()) == pytest.approx(7 * 0.9)


def test_audited_losses(summaries):
    ds = summaries["audit"]
    search = audit_distributions(search_distributions(SparseVector(6, 0.45, share=0.8, doublings=3)))
    one = ds.sel(algorithm="quantile")
    assert float(one["search_epsilon"]) == search.epsilon
    assert one["worst_dataset"].values.tolist() == search.witness.dataset.tolist()
    assert one["worst_neighbour"].values.tolist() == search.witness.neighbour.tolist()
    assert float(one["search_epsilon"]) < float(one["exact_epsilon"]) <= 0.9
    assert 0.0 < float(ds["exact_epsilon"].sel(algorithm="quantile-centred")) <= 0.9
    exact = ds.sel(algorithm="quantile-exact")
    # The calibrated search spends its whole part of epsilon.
    assert float(exact["search_epsilon"]) == pytest.approx(0.45, rel=1e-8)
    assert float(one["exact_epsilon"]) < float(exact["exact_epsilon"]) <= 0.9
