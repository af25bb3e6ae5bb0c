"""Tests of the study `hellinger-accuracy`."""

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

import pipeline
from mechanisms import MECHANISMS, audit_counts, balanced_counts, enumerate_candidates, hellinger
from studies import STUDIES
from studies.counts.hellinger_accuracy import STUDY
from studies.figures import render
from studies.report import drawable, judge, load_summaries
from studies.styles import INK

pytestmark = pytest.mark.slow

DIMS = {
    "k2": ("n", "mechanism", "trial"),
    "k3": ("n", "mechanism", "trial"),
    "k4": ("n", "mechanism", "trial"),
    "prior": ("prior", "mechanism", "trial"),
    "abalone": ("mechanism", "trial"),
}


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Run the whole study with 400 trials, without the mechanisms that are slow to calibrate at k >= 3."""
    folder = tmp_path_factory.mktemp("study")
    pipeline.run(STUDY, folder / "k2.zarr", panels=["k2", "prior"], trials=400)
    quick = [
        method.name for method in STUDY.panel("k3").methods if method.name not in ("varying-exact", "global-exact")
    ]
    larger = ("k3", "k4", "abalone")
    pipeline.run(STUDY, folder / "k3.zarr", panels=larger, trials=400, values={"mechanism": quick})
    return {panel: folder / ("k3.zarr" if panel in larger else "k2.zarr") for panel in DIMS}


@pytest.fixture(scope="module")
def summaries(stores):
    loaded = {store: load_summaries(store) for store in set(stores.values())}
    return {panel: loaded[store][panel] for panel, store in stores.items()}


def test_store_layout(stores):
    """Check groups, dimensions, coordinates and measures as read by xarray."""
    assert {panel.name for panel in STUDY.panels} == set(DIMS)
    for panel, expected in DIMS.items():
        ds = xr.open_zarr(stores[panel], group=panel)
        assert ds.hellinger.dims == expected
        assert ds.status.dims == expected
        audited = ds.mechanism.isin(["smooth-exact", "varying-exact", "global-exact"])
        n_data = ds.n if "n" in ds.dims else xr.DataArray(4177 if panel == "abalone" else 100)
        too_large = audited & (n_data > {"k3": 300, "k4": 60, "abalone": 300}.get(panel, 500))
        assert (ds.status == xr.where(too_large, 5, 1)).all()
        assert float(ds.epsilon) == 1.0
        assert float(ds.delta) == 1e-8
        assert ds.hellinger.attrs["units"] == "1"
        assert "Not private" in ds.mechanism.attrs["notes"]["local"]
        assert ds.mechanism.attrs["not_private"] == ["local"]
    assert xr.open_zarr(stores["k4"], group="k4").n.values.tolist() == [100, 200, 300, 400, 500, 600]
    assert xr.open_zarr(stores["abalone"], group="abalone").counts.item() == "1528:1307:1342"
    assert STUDY.panel("k2").trials == 10_000


def test_every_registered_mechanism_is_studied():
    """The linear program is excluded because it can be solved for small n only."""
    studied = {method.name for panel in STUDY.panels for method in panel.methods}
    assert studied == set(MECHANISMS) - {"optimal"}


def test_expectations_equal_enumeration(tmp_path):
    """Compare stored expectations with sums over all candidates, at sizes that the study does not use."""
    pipeline.run(STUDY, tmp_path / "s.zarr", trials=2, panels=["k2", "k3", "k4"], values={"n": [7, 12]})
    for k in (2, 3, 4):
        ds = xr.open_zarr(tmp_path / "s.zarr", group=f"k{k}")
        for n in (7, 12):
            counts = balanced_counts(n, k)
            distance = hellinger(1.0 + counts, 1.0 + enumerate_candidates(n, k))
            for name in ds.mechanism.values.tolist():
                distribution = MECHANISMS[name].build(np.ones(k), counts, 1.0, 1e-8).pmf()
                stored = float(ds.expected_hellinger.sel(n=n, mechanism=name))
                assert stored == pytest.approx(float(distribution @ distance), rel=1e-10)


def test_draws_agree_with_expectations(summaries):
    """Every point of every panel agrees within 5 standard errors."""
    for summary in summaries.values():
        z = abs(summary.hellinger_mean - summary.expected_hellinger) / summary.hellinger_mcse
        assert float(z.max()) < 5


def test_biased_means_fail_the_agreement_claim(summaries):
    """A bias of 5 % is detected even with 400 trials."""
    biased = {name: summary.assign(hellinger_mean=1.05 * summary.hellinger_mean) for name, summary in summaries.items()}
    verdicts = {claim.name: finding.verdict for claim, finding in judge(STUDY, biased)}
    assert verdicts["draws-agree"] == "failed"


def test_verdicts(summaries):
    """The poster's conclusion holds for two and three categories and fails for four (erratum A4)."""
    verdicts = {claim.name: finding.verdict for claim, finding in judge(STUDY, summaries)}
    assert verdicts == {
        "beats-dimension-k2": "reproduced",
        "beats-dimension-k3": "reproduced",
        "beats-dimension-k4": "not reproduced",
        "smooth-beats-global": "reproduced",
        "tailored-beats-histogram": "corrected",
        "exact-beats-noise": "holds",
        "geometric-is-best-at-two-cells": "holds",
        "bound-beats-published": "holds",
        "bound-is-behind": "holds",
        "certified": "holds",
        "draws-agree": "passed",
    }


def test_verdicts_depend_on_the_results(summaries):
    """Exchanging the two mechanisms of a comparison changes the verdict."""
    names = {"smooth": "laplace-dimension", "laplace-dimension": "smooth"}
    k2 = summaries["k2"]
    swapped = k2.assign_coords(mechanism=[names.get(name, name) for name in k2.mechanism.values.tolist()])
    verdicts = {claim.name: finding.verdict for claim, finding in judge(STUDY, {**summaries, "k2": swapped})}
    assert verdicts["beats-dimension-k2"] == "not reproduced"


def test_verdicts_on_calibration_depend_on_the_results(summaries):
    k2, k3 = summaries["k2"], summaries["k3"]
    worse = k3.expected_hellinger.where(k3.mechanism != "smooth-exact", 1.0)
    above = k2.audited_epsilon * (1 + 1e-6)
    changed = {
        **summaries,
        "k2": k2.assign(audited_epsilon=above),
        "k3": k3.assign(expected_hellinger=worse),
    }
    verdicts = {claim.name: finding.verdict for claim, finding in judge(STUDY, changed)}
    assert verdicts["exact-beats-noise"] == "does not hold"
    assert verdicts["certified"] == "does not hold"
    assert verdicts["bound-beats-published"] == "holds"


def test_audited_losses_are_stored(stores):
    """The stored loss equals that of an exact audit."""
    ds = xr.open_zarr(stores["k2"], group="k2")
    for name in ("smooth-exact", "varying-exact", "global-exact", "hamming-exact"):
        stored = ds.sel(n=100, mechanism=name)
        assert float(stored.audited_epsilon) == pytest.approx(
            audit_counts(name, [1, 1], 100, epsilon=1.0).epsilon, rel=1e-12
        )
        assert 1 - 1e-6 <= float(stored.audited_epsilon) <= 1
        assert float(stored.multiplier) > 0.75
    assert np.isnan(ds.multiplier.sel(mechanism="laplace")).all()


def test_claims_without_results_are_undecided(summaries):
    k2 = summaries["k2"].isel(n=slice(0, 3))
    findings = {claim.name: finding for claim, finding in judge(STUDY, {"k2": k2})}
    assert findings["beats-dimension-k2"].verdict == "undecided"
    assert "n = 500" in findings["beats-dimension-k2"].evidence
    assert findings["beats-dimension-k3"].evidence == "The store has no panel k3."
    pending = k2.assign(n_pending=k2.n_pending + 1)
    assert all(finding.verdict == "undecided" for _, finding in judge(STUDY, {"k2": pending}))


def test_every_figure_is_drawn(summaries):
    assert drawable(STUDY, summaries) == list(STUDY.figures)
    for figure in STUDY.figures:
        (svg,) = render(figure.draw, summaries, ["svg"])
        assert INK.encode() in svg
        assert figure.caption


def test_style_of_a_mechanism_does_not_depend_on_the_others(summaries):
    draw = STUDY.figures[0].draw
    whole = draw(summaries).axes[0].get_legend_handles_labels()
    part = draw({"k2": summaries["k2"].isel(mechanism=[3])}).axes[0].get_legend_handles_labels()
    assert part[1] == [whole[1][3]]
    assert part[0][0].get_color() == whole[0][3].get_color()


def test_study_is_registered():
    assert STUDIES["hellinger-accuracy"] is STUDY
    assert replace(STUDY, seed=1).spec()["seed"] == 1
