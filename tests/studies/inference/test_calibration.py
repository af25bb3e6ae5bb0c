"""The study: panels follow the contract, quantiles are uniform where they must be, claims can fail."""

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from scipy import stats

import pipeline
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
    """Run every panel with few trials, at two sizes."""
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
    """Give one method other values of summaries."""
    return {
        panel: ds.assign({name: ds[name].where(ds.method != method, value) for name, value in values.items()})
        for panel, ds in summaries.items()
    }


def test_contract_of_the_store(store):
    """Groups, dimensions, coordinates and measures, as users rely on them; read by plain xarray."""
    methods = {
        "binomial": ["non-private", "naive", "ops", "ops-likelihood", "gibbs", "marginal", "exact"],
        "multinomial": ["non-private", "naive", "gibbs"],
    }
    truncated = ["non-private", "naive", "naive-truncated", "gibbs", "gibbs-collapsed", "gibbs-published", "marginal"]
    for panel in STUDY.panels:
        ds = xr.open_zarr(store, group=panel.name)
        component = ("component",) if panel.name == "multinomial" else ()
        for name in ("quantile", "rank", "mmd2", "rhat", "ess"):
            assert ds[name].dims == ("n", "epsilon", "method", "trial", *component)
        assert ds.method.values.tolist() == methods.get(panel.name, truncated)
        assert (ds.status == 1).all()
        assert ((ds["quantile"] >= 0) & (ds["quantile"] <= 1)).all()
        assert ((ds["rank"] >= 0) & (ds["rank"] <= 99)).all()
        chains = ds.method.str.startswith("gibbs")
        assert (ds.rhat.notnull() == chains).all()
        assert (ds.ess.where(chains, 1) > 0).all()
        assert panel.trials == 1_000
        assert panel.spec()["factors"]["n"] == [10, 100, 1_000, 10_000, 100_000]
    assert xr.open_zarr(store, group="exponential").bounds.item().startswith("0.00632945")


def test_methods_agree_with_each_other(store):
    """Gibbs and the marginal posterior with the exact one, trial by trial; a wrong posterior does not."""
    ds = xr.open_zarr(store, group="binomial").load().sel(n=1_000)
    exact = ds["quantile"].sel({"method": "exact"})
    assert abs(ds["quantile"].sel({"method": "marginal"}) - exact).max() < 0.003
    spread = 5 * np.sqrt(0.25 / ds.ess.sel({"method": "gibbs"}))
    assert (abs(ds["quantile"].sel({"method": "gibbs"}) - exact) < spread + 0.003).all()
    assert (abs(ds["quantile"].sel({"method": "naive"}) - exact) > spread + 0.003).mean() > 0.25


def test_quantiles_are_uniform_where_the_posterior_is_right(store):
    """By an independent test; the naive method is far off at few records."""
    for panel in STUDY.panels:
        ds = xr.open_zarr(store, group=panel.name).load()
        ds = ds.isel(component=0) if "component" in ds.dims else ds
        one = ds.sel(n=10, epsilon=0.01)
        assert stats.kstest(one["quantile"].sel({"method": "non-private"}), "uniform").pvalue > 1e-4
        assert stats.kstest(one["quantile"].sel({"method": "naive"}), "uniform").pvalue < 0.005
        if "marginal" in ds.method and panel.name != "exponential-paper-bounds":
            assert stats.kstest(one["quantile"].sel({"method": "marginal"}), "uniform").pvalue > 1e-4


def test_statistics_of_the_quantiles(store, summaries):
    """The distance, its p-value and the tail's share against scipy and numpy."""
    quantile = (
        xr.open_zarr(store, group="exponential")["quantile"].sel({"n": 1_000, "epsilon": 0.1, "method": "gibbs"}).values
    )
    summary = summaries["exponential"].sel({"n": 1_000, "epsilon": 0.1, "method": "gibbs"})
    expected = stats.kstest(quantile, "uniform")
    assert float(summary.quantile_ks) == pytest.approx(expected.statistic, rel=1e-12)
    assert float(summary.quantile_p) == pytest.approx(expected.pvalue, rel=1e-9)
    assert float(summary.quantile_tails) == pytest.approx(np.mean((quantile < 0.05) | (quantile > 0.95)))
    np.testing.assert_allclose(summary.quantile_ecdf, [(quantile <= level).mean() for level in summary.level.values])
    ranks = xr.open_zarr(store, group="exponential")["rank"].sel({"n": 1_000, "epsilon": 0.1, "method": "gibbs"}).values
    counts = np.histogram(ranks, bins=20, range=(0, 100))[0]
    np.testing.assert_allclose(summary.rank_histogram, counts / ranks.size)
    assert float(summary.rank_p) == pytest.approx(stats.chisquare(counts).pvalue, rel=1e-9)


def test_a_trial_is_computed_again_bit_by_bit(store):
    opened = ResultStore.open(store)
    _, configured = study_of(opened, STUDY)
    for panel in ("binomial", "multinomial", "exponential-paper-bounds"):
        reruns = rerun_trial(opened, configured, panel, {"n": 10, "epsilon": 0.1}, 37)
        assert all(rerun.equal for rerun in reruns)


def test_an_epsilon_or_method_added_later_changes_no_number(store, tmp_path):
    """What a store of fewer values and methods holds is in the larger one, bit by bit."""
    values = {"n": [10], "epsilon": [0.1], "method": ["gibbs", "marginal"]}
    pipeline.run(STUDY, tmp_path / "s.zarr", panels=["exponential"], trials=30, values=values)
    small = xr.open_zarr(tmp_path / "s.zarr", group="exponential").load()
    large = xr.open_zarr(store, group="exponential").load()
    large = large.sel({"n": [10], "epsilon": [0.1], "method": ["gibbs", "marginal"]}).isel(trial=slice(0, 30))
    for name in ("quantile", "rank", "mmd2", "ess"):
        np.testing.assert_array_equal(small[name], large[name])


def test_a_trial_that_cannot_be_drawn_fails_on_its_own(tmp_path, monkeypatch):
    draw = noisy_trials.sample_gibbs

    def fails_at_times(rng, family, prior, n, noisy, *rest, **more):
        if noisy[0] > n / 2:
            raise ValueError(f"no draw at {noisy}")
        return draw(rng, family, prior, n, noisy, *rest, **more)

    monkeypatch.setattr(noisy_trials, "sample_gibbs", fails_at_times)
    values = {"n": [1_000], "epsilon": [0.1], "method": ["gibbs", "exact"]}
    pipeline.run(STUDY, tmp_path / "s.zarr", panels=["binomial"], trials=20, values=values)
    ds = xr.open_zarr(tmp_path / "s.zarr", group="binomial").load().isel(n=0, epsilon=0)
    failed = ds.status.sel({"method": "gibbs"}) == 2
    assert 0 < int(failed.sum()) < 20
    assert np.isnan(ds["quantile"].sel({"method": "gibbs"}).values[failed]).all()
    assert "no draw at" in "".join(ds.error.sel({"method": "gibbs"}).values[failed])
    assert (ds.status.sel({"method": "exact"}) == 1).all()


PANELS = [panel.name for panel in STUDY.panels]
EXPONENTIAL = [name for name in PANELS if name.startswith("exponential")]


def test_verdicts_follow_the_numbers(summaries):
    """With good numbers every method is calibrated, with bad ones none is, whatever the other tests say."""
    judged = {
        "non-private": [f"control-{panel}" for panel in PANELS],
        "gibbs": ["gibbs-is-calibrated-binomial", *(f"repaired-{panel}" for panel in EXPONENTIAL)],
        "gibbs-published": [f"gibbs-is-calibrated-{panel}" for panel in EXPONENTIAL],
        "gibbs-collapsed": [f"collapsed-{panel}" for panel in EXPONENTIAL],
        "marginal": [f"marginal-{panel}" for panel in ("binomial", *EXPONENTIAL)],
    }
    for method, claims in judged.items():
        for values, verdict in (
            ({"quantile_p": 0.5, "rank_p": 0.5}, "reproduced"),
            ({"quantile_p": 1e-9, "rank_p": 0.5}, "not reproduced"),
            ({"quantile_p": 0.5, "rank_p": 1e-9}, "not reproduced"),
        ):
            found = verdicts(replaced(summaries, method, **values), claims)
            assert {found[claim] for claim in claims} == {verdict}


def test_verdicts_on_the_baselines_follow_the_numbers(summaries):
    for method, claims in (
        ("naive", [f"naive-is-over-confident-{panel}" for panel in PANELS]),
        ("naive-truncated", [f"naive-recovers-{panel}" for panel in EXPONENTIAL]),
    ):
        good = verdicts(replaced(summaries, method, quantile_p=0.5, quantile_tails=0.9), claims)
        timid = verdicts(replaced(summaries, method, quantile_p=0.5, quantile_tails=0.1), claims)
        wrong = verdicts(replaced(summaries, method, quantile_p=1e-9, quantile_tails=0.9), claims)
        assert {good[claim] for claim in claims} == {"reproduced"}
        assert {timid[claim] for claim in claims} == {wrong[claim] for claim in claims} == {"not reproduced"}
    narrow, wide = (verdicts(replaced(summaries, "ops", quantile_tails=tail, n_ok=1_000)) for tail in (0.0, 0.1))
    assert verdicts(summaries)["ops-is-over-dispersed"] == "undecided"  # too few trials
    assert (narrow["ops-is-over-dispersed"], wide["ops-is-over-dispersed"]) == ("reproduced", "not reproduced")
    near, far = (verdicts(replaced(summaries, "gibbs", mmd2_mean=value)) for value in (-1.0, 9.0))
    claims = ["utility-binomial", "utility-multinomial", *(f"utility-of-release-{panel}" for panel in EXPONENTIAL)]
    assert {(near[claim], far[claim]) for claim in claims} == {("reproduced", "not reproduced")}
    near, far = (verdicts(replaced(summaries, "gibbs-published", mmd2_mean=value)) for value in (-1.0, 9.0))
    assert {(near[f"utility-{panel}"], far[f"utility-{panel}"]) for panel in EXPONENTIAL} == {
        ("reproduced", "not reproduced")
    }


def test_verdict_on_the_papers_bounds_needs_both_sides(summaries):
    good = replaced(summaries, "gibbs-published", quantile_p=0.5, rank_p=0.5)
    bad = replaced(summaries, "gibbs-published", quantile_p=1e-9)
    wide, own = "exponential-wide", "exponential-paper-bounds"
    assert verdicts({**summaries, wide: bad[wide], own: good[own]})["bounds-hide-it"] == "reproduced"
    assert verdicts({**summaries, wide: good[wide], own: good[own]})["bounds-hide-it"] == "not reproduced"
    assert verdicts({**summaries, wide: bad[wide], own: bad[own]})["bounds-hide-it"] == "not reproduced"


def test_claims_are_undecided_without_their_data(summaries):
    found = verdicts({"binomial": summaries["binomial"].drop_sel(method="ops")})
    assert {found["ops-is-over-dispersed"], found["control-exponential"], found["bounds-hide-it"]} == {"undecided"}
    assert found["gibbs-is-calibrated-binomial"] != "undecided"
    part = verdicts({name: ds.sel(n=[10, 1_000]) for name, ds in summaries.items()})
    assert part["gibbs-is-calibrated-binomial"] == "undecided"


@pytest.mark.parametrize(
    ("panel", "values", "message"),
    [
        ("binomial", {"n": [0]}, "n must be a whole number >= 1|n must be"),
        ("binomial", {"epsilon": [0]}, "epsilon must be"),
        ("binomial", {"prior": ["0:1"]}, "must be finite and > 0"),
        ("binomial", {"prior": ["0.05:0.05"]}, "shapes >= 0.1 for marginal"),
        ("multinomial", {"prior": ["1:1"]}, "component must be 0 to 1"),
        ("exponential", {"bounds": ["1:0.5"]}, "bounds must"),
        ("exponential", {"bounds": ["0.5:0.5"]}, "bounds must"),
        ("exponential", {"bounds": ["-1:0.5"]}, "lower bound must be >= 0"),
    ],
)
def test_bad_values_are_refused(panel, values, message):
    with pytest.raises(ValueError, match=message):
        STUDY.configure(panels=[panel], values=values)


def test_every_figure_is_drawn(summaries):
    assert drawable(STUDY, summaries) == list(STUDY.figures)
    for figure in STUDY.figures:
        (picture,) = render(figure.draw, summaries, ["svg"])
        assert INK.encode() in picture


def test_listed():
    assert STUDIES["calibration"] is STUDY
