"""Tests of the study `partition-quantile`."""

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

import pipeline
from mechanisms.regression.posterior import coefficient_posterior
from mechanisms.regression.prior import SemiConjugatePrior
from mechanisms.regression.statistics import partition_statistics
from pipeline import Streams
from pipeline.execution.rerun import rerun_trial
from pipeline.run import study_of
from pipeline.stores.store import ResultStore
from studies import STUDIES
from studies.figures import render
from studies.regression.partition_quantile import STUDY
from studies.report import drawable, judge, load_summaries

METHODS = ["full", "quantile", "quantile-noiseless", "quantile-centred", "quantile-centred-noiseless"]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("study") / "s.zarr"
    pipeline.run(STUDY, path, trials=100)
    return path


@pytest.fixture(scope="module")
def summaries(store):
    return load_summaries(store, study=STUDY)


def test_store_layout(store):
    """Check groups, dimensions, coordinates and measures as read by xarray."""
    assert STUDIES["partition-quantile"] is STUDY
    for panel in ("default", "half-share", "abalone"):
        ds = xr.open_zarr(store, group=panel)
        for name in ("slope_quantile", "difference", "half_width", "capped"):
            assert ds[name].dims == ("algorithm", "trial", "p")
        assert ds.algorithm.values.tolist() == METHODS
        assert (ds.status == 1).all()
        assert np.isfinite(ds["slope_quantile"]).all()
        assert (ds.half_width.notnull() == (ds.algorithm != "full")).all()
        assert STUDY.panel(panel).trials == 1_000
    spec = STUDY.panel("default").spec()["constants"]
    assert (spec["n"], spec["partition_size"], spec["error_std"]) == ([100_000], [1_000], [10.0])
    assert (spec["epsilon"], spec["split"]) == ([0.9], [[0.45, 0.45]])
    spent = xr.open_zarr(store, group="default").spent.load()
    assert spent.sel(algorithm="quantile-centred") == pytest.approx(7 * 0.9)
    assert np.isinf(spent.sel(algorithm="quantile-noiseless"))


def test_one_trial_against_numpy(store):
    """Compute the posterior of each partition separately and average the quantiles."""
    rng = next(Streams(STUDY.seed, STUDY.name, "default", "data", {}, range(5, 6)).generators())
    z = rng.standard_normal((100_000, 2))
    x, y = z[:, :1], 1.0 + 2.0 * z[:, 0] + 10.0 * z[:, 1]
    prior = SemiConjugatePrior(0.0, 1e-3, 1.0, 1.0)

    def quantiles(first, last, power):
        part = partition_statistics(x[first:last], y[first:last], np.zeros(last - first, int))
        return coefficient_posterior(part, 1, prior, power=power).quantile([0.025, 0.5])[0]

    ds = xr.open_zarr(store, group="default")["slope_quantile"].isel(trial=5).sel(p=[0.025, 0.5]).load()
    np.testing.assert_allclose(ds.sel(algorithm="full"), quantiles(0, 100_000, 1.0), rtol=1e-9)
    parts = np.mean([quantiles(i, i + 1000, 100.0) for i in range(0, 100_000, 1000)], axis=0)
    np.testing.assert_allclose(ds.sel(algorithm="quantile-noiseless"), parts, rtol=1e-9)


def test_full_posterior_is_calibrated(store):
    """The true slope is below the p-quantile in a share p of data sets, within five standard errors."""
    full = xr.open_zarr(store, group="default")["slope_quantile"].sel(algorithm="full").load()
    p = full.p.values
    share = (full > 2.0).mean("trial").values
    assert (np.abs(share - p) <= 5 * np.sqrt(p * (1 - p) / 100)).all()


def test_recomputed_trial_is_identical(store):
    opened = ResultStore.open(store)
    _, configured = study_of(opened, STUDY)
    for panel in ("default", "abalone"):
        assert all(rerun.equal for rerun in rerun_trial(opened, configured, panel, {}, 42))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("epsilon=1",), "split of quantile must add up to epsilon = 1, got 0.45 + 0.45 = 0.9"),
        (("split=0.45:0.44",), "split of quantile must add up"),
        (("centred_split=0.45:0.45",), "split of quantile-centred must be 3 numbers > 0 (scale, centre, noise)"),
        (("start=0",), "mu, half the width of the first interval, must be finite and > 0"),
        (("start=-1",), "mu, half the width of the first interval, must be finite and > 0"),
        (("share=1.5",), "theta"),
        (("doublings=0",), "doublings must be"),
        (("doublings=2000",), "must be finite"),
        (("p=0",), "p must be in (0, 1), got 0.0"),
        (("p=0.5,1",), "p must be in (0, 1), got 1.0"),
        (("prior_variance=0",), "prior_variance must be > 0"),
        (("variance_prior=1:0",), "rate must be finite and > 0"),
        (("variance_prior=1",), "variance_prior must be a shape and a rate"),
        (("partition_size=1",), "partition_size must be >= the number of coefficients"),
    ],
)
def test_invalid_input_is_reported_before_writing(command, tmp_path, words, message):
    given = [part for word in words for part in ("--set", word)]
    code, _, err = command("run", "partition-quantile", "--panel", "default", *given, "--store", "s.zarr")
    assert code == 2
    assert message in err
    assert not (tmp_path / "s.zarr").exists()


def test_failed_search_ends_at_the_largest_number_of_doublings(tmp_path):
    """Two doublings from 0.1 are too few for the bounds; values are released, flagged, and the budget is spent."""
    values = {"start": [0.1], "doublings": [2], "share": [1.0], "algorithm": ["quantile"], "n": [20_000]}
    pipeline.run(STUDY, tmp_path / "s.zarr", panels=["default"], trials=20, values=values)
    ds = xr.open_zarr(tmp_path / "s.zarr", group="default").load()
    assert (ds.status == 1).all()
    assert ds.capped.mean() > 0.7
    assert (ds.half_width.where(ds.capped == 1, 0.4) == 0.4).all()
    assert float(ds.spent.item()) == pytest.approx(7 * 0.9)


# Claims and figures


def verdicts(summaries):
    return {claim.name: finding.verdict for claim, finding in judge(STUDY, summaries)}


def verdict_of(claim, summaries):
    """Check a single claim, because others are slow."""
    alone = replace(STUDY, claims=tuple(each for each in STUDY.claims if each.name == claim))
    ((_, finding),) = judge(alone, summaries)
    return finding.verdict


def changed(summaries, panel, method, **values):
    """Replace values of one method in a summary."""
    ds = summaries[panel]
    new = {name: ds[name].where(ds.algorithm != method, value) for name, value in values.items()}
    return {**summaries, panel: ds.assign(new)}


def test_verdicts(summaries):
    assert verdicts(summaries) == {
        "means-agree": "undecided",
        "partitions-have-no-pattern": "undecided",
        "reasonably-accurate": "not reproduced",
        "no-share-helps": "holds",
        "bounds-are-private": "reproduced",
        "centre-first": "reproduced",
        "centre-first-is-accurate": "holds",
        "centre-first-abalone": "undecided",  # with 100 trials only
    }


@pytest.mark.parametrize(
    ("method", "values", "claim", "verdict"),
    [
        ("quantile-noiseless", {"difference_mean": 1.5}, "means-agree", "not reproduced"),
        ("quantile", {"difference_mean": 9.0, "difference_mcse": 0.1}, "means-agree", "not reproduced"),
        ("quantile", {"difference_mean": 0.1, "difference_mcse": 0.1}, "means-agree", "reproduced"),
        (
            "quantile-noiseless",
            {"difference_mean": 0.2, "difference_mcse": 0.01},
            "partitions-have-no-pattern",
            "not reproduced",
        ),
        ("quantile", {"difference_absolute": 0.5}, "reasonably-accurate", "reproduced"),
        ("quantile", {"difference_absolute": 0.5}, "no-share-helps", "does not hold"),
        ("quantile-centred", {"difference_q75": 90.0}, "centre-first", "not reproduced"),
        ("quantile-centred", {"difference_q75_mcse": 9.0}, "centre-first", "undecided"),
        ("quantile-centred", {"difference_absolute": 2.0}, "centre-first-is-accurate", "does not hold"),
    ],
)
def test_verdicts_depend_on_the_results(summaries, method, values, claim, verdict):
    assert verdict_of(claim, changed(summaries, "default", method, **values)) == verdict


def test_every_figure_is_drawn(summaries):
    assert {figure.name for figure in drawable(STUDY, summaries)} == {figure.name for figure in STUDY.figures}
    for figure in STUDY.figures:
        (svg,) = render(figure.draw, summaries, ["png"])
        assert len(svg) > 10_000
