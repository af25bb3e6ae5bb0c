"""Tests of the study `calibration`."""

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from scipy import stats

import pipeline
from pipeline.declare.claims import VERDICTS
from pipeline.execution.rerun import rerun_trial
from pipeline.run import study_of
from pipeline.stores.store import ResultStore
from studies import STUDIES
from studies.figures import render
from studies.inference import noisy_trials
from studies.inference.calibration import STUDY
from studies.report import drawable, judge, load_summaries
from studies.styles import INK

pytestmark = pytest.mark.slow

SIZES = {"n": [10, 1_000, 100_000], "epsilon": [0.01, 0.1]}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Run every panel with few trials at two sizes."""
    path = tmp_path_factory.mktemp("study") / "s.zarr"
    pipeline.run(STUDY, path, trials=40, values=SIZES)
    return path


@pytest.fixture(scope="module")
def summaries(store):
    """Summaries as of 100 trials, the fewest that a verdict needs, since verdicts are tested on replaced values."""
    loaded = load_summaries(store, study=STUDY)
    return {panel: ds.assign(n_ok=ds.n_ok + 60) for panel, ds in loaded.items()}


def verdicts(summaries, names=None):
    """Judge all claims, or those of the names given."""
    study = STUDY
    if names is not None:
        study = replace(STUDY, claims=tuple(claim for claim in STUDY.claims if claim.name in names))
    return {claim.name: finding.verdict for claim, finding in judge(study, summaries)}


def replaced(summaries, method, **values):
    """Replace values of one method in summaries."""
    return {
        panel: ds.assign({name: ds[name].where(ds.algorithm != method, value) for name, value in values.items()})
        for panel, ds in summaries.items()
    }


def test_store_layout(store):
    """Check groups, dimensions, coordinates and measures as read by xarray."""
    methods = {
        "binomial": ["non-private", "naive", "ops", "ops-likelihood", "gibbs", "marginal", "exact"],
        "multinomial": ["non-private", "naive", "gibbs"],
    }
    truncated = ["non-private", "naive", "naive-truncated", "gibbs", "gibbs-collapsed", "gibbs-published", "marginal"]
    for panel in STUDY.panels:
        ds = xr.open_zarr(store, group=panel.name)
        component = ("component",) if panel.name == "multinomial" else ()
        for name in ("pit", "rank", "mmd2", "rhat", "ess"):
            assert ds[name].dims == ("n", "epsilon", "algorithm", "trial", *component)
        assert ds.algorithm.values.tolist() == methods.get(panel.name, truncated)
        assert (ds.status == 1).all()
        assert ((ds["pit"] >= 0) & (ds["pit"] <= 1)).all()
        assert ((ds["rank"] >= 0) & (ds["rank"] <= 99)).all()
        chains = ds.algorithm.str.startswith("gibbs")
        assert (ds.rhat.notnull() == chains).all()
        assert (ds.ess.where(chains, 1) > 0).all()
        assert panel.trials == 1_000
        assert panel.spec()["factors"]["n"] == [10, 100, 1_000, 10_000, 100_000]
    assert xr.open_zarr(store, group="exponential").bounds.item().startswith("0.00632945")


def test_methods_agree_with_the_exact_posterior(store):
    """Gibbs and marginal quantiles agree with exact ones in each trial; naive quantiles do not."""
    ds = xr.open_zarr(store, group="binomial").load().sel(n=1_000)
    exact = ds["pit"].sel(algorithm="exact")
    assert abs(ds["pit"].sel(algorithm="marginal") - exact).max() < 0.003
    spread = 5 * np.sqrt(0.25 / ds.ess.sel(algorithm="gibbs"))
    assert (abs(ds["pit"].sel(algorithm="gibbs") - exact) < spread + 0.003).all()
    assert (abs(ds["pit"].sel(algorithm="naive") - exact) > spread + 0.003).mean() > 0.25


def test_quantiles_of_correct_posteriors_are_uniform(store):
    """Apply the Kolmogorov-Smirnov test; the naive method must fail at few records."""
    for panel in STUDY.panels:
        ds = xr.open_zarr(store, group=panel.name).load()
        ds = ds.isel(component=0) if "component" in ds.dims else ds
        one = ds.sel(n=10, epsilon=0.01)
        assert stats.kstest(one["pit"].sel(algorithm="non-private"), "uniform").pvalue > 1e-4
        assert stats.kstest(one["pit"].sel(algorithm="naive"), "uniform").pvalue < 0.005
        if "marginal" in ds.algorithm and panel.name != "exponential-paper-bounds":
            assert stats.kstest(one["pit"].sel(algorithm="marginal"), "uniform").pvalue > 1e-4


def test_statistics_of_the_quantiles(store, summaries):
    """Compare statistics of quantiles and ranks with scipy and numpy."""
    quantile = (
        xr.open_zarr(store, group="exponential")["pit"].sel({"n": 1_000, "epsilon": 0.1, "algorithm": "gibbs"}).values
    )
    summary = summaries["exponential"].sel({"n": 1_000, "epsilon": 0.1, "algorithm": "gibbs"})
    expected = stats.kstest(quantile, "uniform")
    assert float(summary.pit_ks) == pytest.approx(expected.statistic, rel=1e-12)
    assert float(summary.pit_p) == pytest.approx(expected.pvalue, rel=1e-9)
    assert float(summary.pit_tails) == pytest.approx(np.mean((quantile < 0.05) | (quantile > 0.95)))
    np.testing.assert_allclose(summary.pit_ecdf, [(quantile <= level).mean() for level in summary.level.values])
    ranks = (
        xr.open_zarr(store, group="exponential")["rank"].sel({"n": 1_000, "epsilon": 0.1, "algorithm": "gibbs"}).values
    )
    counts = np.histogram(ranks, bins=20, range=(0, 100))[0]
    np.testing.assert_allclose(summary.rank_histogram, counts / ranks.size)
    assert float(summary.rank_p) == pytest.approx(stats.chisquare(counts).pvalue, rel=1e-9)


def test_recomputed_trial_is_identical(store):
    opened = ResultStore.open(store)
    _, configured = study_of(opened, STUDY)
    for panel in ("binomial", "multinomial", "exponential-paper-bounds"):
        reruns = rerun_trial(opened, configured, panel, {"n": 10, "epsilon": 0.1}, 37)
        assert all(rerun.equal for rerun in reruns)


def test_results_do_not_depend_on_other_values_or_methods(store, tmp_path):
    """Results of a store with fewer values and methods are identical in a larger store."""
    values = {"n": [10], "epsilon": [0.1], "algorithm": ["gibbs", "marginal"]}
    pipeline.run(STUDY, tmp_path / "s.zarr", panels=["exponential"], trials=30, values=values)
    small = xr.open_zarr(tmp_path / "s.zarr", group="exponential").load()
    large = xr.open_zarr(store, group="exponential").load()
    large = large.sel({"n": [10], "epsilon": [0.1], "algorithm": ["gibbs", "marginal"]}).isel(trial=slice(0, 30))
    for name in ("pit", "rank", "mmd2", "ess"):
        np.testing.assert_array_equal(small[name], large[name])


def test_failure_of_one_trial_does_not_affect_others(tmp_path, monkeypatch):
    draw = noisy_trials.sample_gibbs

    def fail_sometimes(rng, family, prior, n, noisy, *rest, **more):
        if noisy[0] > n / 2:
            raise ValueError(f"no draw at {noisy}")
        return draw(rng, family, prior, n, noisy, *rest, **more)

    monkeypatch.setattr(noisy_trials, "sample_gibbs", fail_sometimes)
    values = {"n": [1_000], "epsilon": [0.1], "algorithm": ["gibbs", "exact"]}
    pipeline.run(STUDY, tmp_path / "s.zarr", panels=["binomial"], trials=20, values=values)
    ds = xr.open_zarr(tmp_path / "s.zarr", group="binomial").load().isel(n=0, epsilon=0)
    failed = ds.status.sel(algorithm="gibbs") == 2
    assert 0 < int(failed.sum()) < 20
    assert np.isnan(ds["pit"].sel(algorithm="gibbs").values[failed]).all()
    assert "no draw at" in "".join(ds.error.sel(algorithm="gibbs").values[failed])
    assert (ds.status.sel(algorithm="exact") == 1).all()


PANELS = [panel.name for panel in STUDY.panels]
EXPONENTIAL = [name for name in PANELS if name.startswith("exponential")]
TRUE, FALSE = map(set, zip(*VERDICTS.values(), strict=True))  # the words for each kind of claim


def test_verdicts_depend_on_the_results(summaries):
    """A claim of calibration holds only if the p-values of both quantiles and ranks are large."""
    judged = {
        "non-private": [f"control-{panel}" for panel in PANELS],
        "gibbs": ["gibbs-is-calibrated-binomial", *(f"repaired-{panel}" for panel in EXPONENTIAL)],
        "gibbs-published": [f"gibbs-is-calibrated-{panel}" for panel in EXPONENTIAL],
        "gibbs-collapsed": [f"collapsed-{panel}" for panel in EXPONENTIAL],
        "marginal": [f"marginal-{panel}" for panel in ("binomial", *EXPONENTIAL)],
    }
    for method, claims in judged.items():
        for values, expected in (
            ({"pit_p": 0.5, "rank_p": 0.5}, TRUE),
            ({"pit_p": 1e-9, "rank_p": 0.5}, FALSE),
            ({"pit_p": 0.5, "rank_p": 1e-9}, FALSE),
        ):
            found = verdicts(replaced(summaries, method, **values), claims)
            assert {found[claim] for claim in claims} <= expected


def test_verdicts_on_baselines_depend_on_the_results(summaries):
    for method, claims in (
        ("naive", [f"naive-is-over-confident-{panel}" for panel in PANELS]),
        ("naive-truncated", [f"naive-recovers-{panel}" for panel in EXPONENTIAL]),
    ):
        good = verdicts(replaced(summaries, method, pit_p=0.5, pit_tails=0.9), claims)
        timid = verdicts(replaced(summaries, method, pit_p=0.5, pit_tails=0.1), claims)
        wrong = verdicts(replaced(summaries, method, pit_p=1e-9, pit_tails=0.9), claims)
        assert {good[claim] for claim in claims} <= TRUE
        assert {timid[claim] for claim in claims} | {wrong[claim] for claim in claims} <= FALSE
    narrow, wide = (verdicts(replaced(summaries, "ops", pit_tails=tail, n_ok=1_000)) for tail in (0.0, 0.1))
    assert verdicts(summaries)["ops-is-over-dispersed"] == "undecided"  # too few trials
    assert (narrow["ops-is-over-dispersed"], wide["ops-is-over-dispersed"]) == ("reproduced", "not reproduced")
    near, far = (verdicts(replaced(summaries, "gibbs", mmd2_mean=value)) for value in (-1.0, 9.0))
    claims = ["utility-binomial", "utility-multinomial", *(f"utility-of-release-{panel}" for panel in EXPONENTIAL)]
    assert {near[claim] for claim in claims} <= TRUE
    assert {far[claim] for claim in claims} <= FALSE
    near, far = (verdicts(replaced(summaries, "gibbs-published", mmd2_mean=value)) for value in (-1.0, 9.0))
    assert {near[f"utility-{panel}"] for panel in EXPONENTIAL} <= TRUE
    assert {far[f"utility-{panel}"] for panel in EXPONENTIAL} <= FALSE


def test_verdict_on_bounds_needs_both_panels(summaries):
    good = replaced(summaries, "gibbs-published", pit_p=0.5, rank_p=0.5)
    bad = replaced(summaries, "gibbs-published", pit_p=1e-9)
    wide, own = "exponential-wide", "exponential-paper-bounds"
    assert verdicts({**summaries, wide: bad[wide], own: good[own]})["bounds-hide-it"] == "holds"
    assert verdicts({**summaries, wide: good[wide], own: good[own]})["bounds-hide-it"] == "does not hold"
    assert verdicts({**summaries, wide: bad[wide], own: bad[own]})["bounds-hide-it"] == "does not hold"


def test_claims_without_results_are_undecided(summaries):
    found = verdicts({"binomial": summaries["binomial"].drop_sel(algorithm="ops")})
    assert {found["ops-is-over-dispersed"], found["control-exponential"], found["bounds-hide-it"]} == {"undecided"}
    assert found["gibbs-is-calibrated-binomial"] != "undecided"
    part = verdicts({name: ds.sel(n=[10, 1_000]) for name, ds in summaries.items()})
    assert part["gibbs-is-calibrated-binomial"] == "undecided"


@pytest.mark.parametrize(
    ("panel", "values", "message"),
    [
        ("binomial", {"n": [0]}, "n must be an integer >= 1|n must be"),
        ("binomial", {"epsilon": [0]}, "epsilon must be"),
        ("binomial", {"prior": ["0:1"]}, "must be finite and > 0"),
        ("binomial", {"prior": ["0.05:0.05"]}, "shapes >= 0.1 for marginal"),
        ("multinomial", {"prior": ["1:1"]}, "component must be 0 to 1"),
        ("exponential", {"bounds": ["1:0.5"]}, "bounds must"),
        ("exponential", {"bounds": ["0.5:0.5"]}, "bounds must"),
        ("exponential", {"bounds": ["-1:0.5"]}, "lower bound must be >= 0"),
    ],
)
def test_invalid_values_raise(panel, values, message):
    with pytest.raises(ValueError, match=message):
        STUDY.configure(panels=[panel], values=values)


def test_every_figure_is_drawn(summaries):
    assert drawable(STUDY, summaries) == list(STUDY.figures)
    for figure in STUDY.figures:
        (svg,) = render(figure.draw, summaries, ["svg"])
        assert INK.encode() in svg


def test_study_is_registered():
    assert STUDIES["calibration"] is STUDY
