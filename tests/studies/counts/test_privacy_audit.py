"""Tests of the study `privacy-audit`."""

import itertools

import numpy as np
import pytest
import xarray as xr

import pipeline
from mechanisms import MECHANISMS
from studies import STUDIES
from studies.counts.privacy_audit import STUDY
from studies.figures import render
from studies.report import drawable, judge, load_summaries
from studies.styles import INK

pytestmark = pytest.mark.slow

CLAIMS = {claim.name: claim for claim in STUDY.claims}


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Run both panels on smaller grids; their sizes differ."""
    folder = tmp_path_factory.mktemp("study")
    values = {"n": [2, 30, 100, 300], "epsilon": [0.1, 1.0], "prior": ["1:1", "0.01:100"]}
    pipeline.run(STUDY, folder / "k2.zarr", panels=["binomial"], values=values)
    pipeline.run(STUDY, folder / "k3.zarr", panels=["multinomial"], values={"n": [2, 5, 8], "epsilon": [1.0]})
    return {"binomial": folder / "k2.zarr", "multinomial": folder / "k3.zarr"}


@pytest.fixture(scope="module")
def summaries(stores):
    return {panel: load_summaries(store)[panel] for panel, store in stores.items()}


def changed(summaries, mechanism, **factors):
    """Multiply measures of one mechanism."""
    result = {}
    for panel, ds in summaries.items():
        hit = ds.mechanism == mechanism
        result[panel] = ds.assign({name: ds[name] * xr.where(hit, factor, 1.0) for name, factor in factors.items()})
    return result


def verdict(name, summaries):
    return CLAIMS[name].judge(summaries).verdict


def test_store_layout(stores):
    """Check groups, dimensions, coordinates and measures as read by xarray."""
    for panel, store in stores.items():
        ds = xr.open_zarr(store, group=panel)
        for name in ("exact_epsilon", "exact_delta", "status"):
            assert ds[name].dims == ("prior", "n", "epsilon", "mechanism")
        assert ds.worst_output.dims == ("prior", "n", "epsilon", "mechanism", "cell")
        assert ds.exact_epsilon.attrs["units"] == "nat"
        assert float(ds.delta) == 1e-8
        assert set(MECHANISMS) - {"smooth-n"} <= set(ds.mechanism.values.tolist()) <= set(MECHANISMS)
        applies = ds.status == 1
        assert (ds.status.where(~applies, 5) == 5).all()
        assert (applies == ds.exact_epsilon.notnull()).all()
        assert set(ds.mechanism.values[~applies.all(("prior", "n", "epsilon")).values]) == {"optimal"}
        assert "Not private" in ds.mechanism.attrs["notes"]["local"]
        assert ds.mechanism.attrs["not_private"] == ["local"]


def test_grid_of_the_study():
    two, three = STUDY.panel("binomial").spec()["factors"], STUDY.panel("multinomial").spec()["factors"]
    assert two["prior"] == [[1, 1], [0.5, 0.5], [10, 10], [5, 0.3], [0.01, 100]]
    assert two["n"] == [1, 2, 10, 30, 100, 300, 1000]
    assert two["epsilon"] == three["epsilon"] == [0.1, 1, 3]
    assert three["prior"] == [[1, 1, 1], [0.3, 2, 5], [0.01, 1, 100]]
    assert three["n"] == [2, 5, 10, 20, 30]


@pytest.mark.parametrize(("panel", "n"), [("binomial", 30), ("multinomial", 5)])
def test_losses_equal_enumeration(summaries, panel, n):
    """Enumerate all ordered pairs of neighbours and all outputs; the witnesses attain the loss."""
    ds = summaries[panel]
    for prior, name in itertools.product(ds.prior.values.tolist(), ds.mechanism.values.tolist()):
        alpha = [float(entry) for entry in prior.split(":")]
        k = len(alpha)
        datasets = [c for c in itertools.product(range(n + 1), repeat=k) if sum(c) == n]
        distributions = np.array([MECHANISMS[name].build(alpha, c, 1.0, 1e-8).log_pmf() for c in datasets])
        loss, delta = 0.0, 0.0
        for i, j in itertools.permutations(range(len(datasets)), 2):
            if np.abs(np.subtract(datasets[i], datasets[j])).sum() == 2:
                loss = max(loss, float(np.max(distributions[i] - distributions[j])))
                delta = max(
                    delta, float(np.maximum(np.exp(distributions[i]) - np.exp(1.0 + distributions[j]), 0).sum())
                )
        one = ds.sel(prior=prior, n=n, epsilon=1.0, mechanism=name)
        assert float(one.exact_epsilon) == pytest.approx(loss, abs=1e-11)
        assert float(one.exact_delta) == pytest.approx(delta, abs=1e-11)
        x, y, r = (
            datasets.index(tuple(one[f"worst_{what}"].values.astype(int)))
            for what in ("dataset", "neighbour", "output")
        )
        assert distributions[x, r] - distributions[y, r] == pytest.approx(loss, abs=1e-11)
        assert np.abs(np.subtract(datasets[x], datasets[y])).sum() == 2


def test_findings(summaries):
    """The loss of the published setting is 0.531 with delta = 0; local violates epsilon at the skewed prior only."""
    assert {name: verdict(name, summaries) for name in CLAIMS} == {
        "guarantees-hold": "passed",
        "smooth-at-the-published-setting": "corrected",
        "local-is-not-private": "reproduced",
        "local-proof": "not reproduced",
        "calibrated-spend-all": "passed",
        "bound-leaves-slack": "passed",
    }
    assert "0.5314" in CLAIMS["smooth-at-the-published-setting"].judge(summaries).evidence
    evidence = CLAIMS["local-is-not-private"].judge(summaries).evidence
    assert "1.1034 epsilon at prior 0.01:100, n = 300, epsilon = 0.1: data sets [2, 298] and [1, 299]" in evidence
    shares = summaries["binomial"].exact_epsilon.sel(mechanism="local") / summaries["binomial"].epsilon
    assert float(shares.sel(prior="1:1").max()) < 1
    assert float(shares.sel(prior="0.01:100", n=300, epsilon=0.1)) == pytest.approx(1.10, abs=0.005)


@pytest.mark.parametrize(
    ("claim", "mechanism", "factors", "expected"),
    [
        ("guarantees-hold", "laplace", {"exact_epsilon": 1.001}, "failed"),
        ("guarantees-hold", "smooth-exact", {"exact_epsilon": 1 + 1e-7}, "failed"),
        ("guarantees-hold", "local", {"exact_epsilon": 9.0}, "passed"),
        ("guarantees-hold", "smooth", {"exact_epsilon": 9.0}, "passed"),  # its guarantee has a delta > 0
        ("smooth-at-the-published-setting", "smooth", {"exact_epsilon": 2.0}, "reproduced"),
        ("local-is-not-private", "local", {"exact_epsilon": 0.9}, "not reproduced"),
        ("local-proof", "local", {"exact_epsilon": 2.0}, "reproduced"),
        ("calibrated-spend-all", "varying-exact", {"exact_epsilon": 0.99}, "failed"),
        ("calibrated-spend-all", "hamming-exact", {"exact_epsilon": 1.0001}, "failed"),
        ("bound-leaves-slack", "varying-bound", {"exact_epsilon": 1.5}, "failed"),
    ],
)
def test_verdicts_depend_on_the_results(summaries, claim, mechanism, factors, expected):
    found = CLAIMS[claim].judge(changed(summaries, mechanism, **factors))
    assert found.verdict == expected
    if claim == "guarantees-hold" and expected == "failed":
        assert f"Violated guarantees: {mechanism}, with loss" in found.evidence


def test_exact_delta_above_the_stated_delta_is_a_violation(summaries):
    above = changed(summaries, "smooth", exact_epsilon=9.0)
    for delta, guarantee, conclusion in ((1e-9, "passed", "reproduced"), (1e-7, "failed", "not reproduced")):
        there = {name: ds.assign(exact_delta=xr.full_like(ds.exact_delta, delta)) for name, ds in above.items()}
        assert verdict("guarantees-hold", there) == guarantee
        assert verdict("smooth-at-the-published-setting", there) == conclusion


def test_claims_without_results_are_undecided(summaries):
    findings = {claim.name: finding for claim, finding in judge(STUDY, {"binomial": summaries["binomial"]})}
    assert findings["local-proof"].evidence == "Panel binomial has no n = 1, 10, 1000."
    assert findings["bound-leaves-slack"].evidence == "The store has no panel multinomial."
    assert findings["guarantees-hold"].verdict == "passed"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"n": [0]}, "n must be >= 1"),
        ({"prior": ["1:1"]}, "prior must have 3 entries"),
        ({"prior": ["1:1:0"]}, "prior must have positive"),
        ({"epsilon": [-1.0]}, "epsilon must be"),
        ({"delta": [2.0]}, "delta must be"),
        ({"n": [1000]}, "an exact audit must compare at most"),
        ({"cell": [0, 2, 1]}, "cell must be 0 to k - 1"),
        ({"mechanism": ["smoth"]}, "did you mean smooth"),
    ],
)
def test_invalid_values_raise(values, message):
    with pytest.raises(ValueError, match=message):
        STUDY.configure(panels=["multinomial"], values=values)


def test_four_categories(tmp_path):
    """The panel accepts four categories if the axis `cell` has four entries."""
    values = {"prior": ["1:1:1:2"], "cell": [0, 1, 2, 3], "n": [3], "epsilon": [1.0], "mechanism": ["laplace"]}
    pipeline.run(STUDY, tmp_path / "s.zarr", panels=["multinomial"], values=values)
    ds = xr.open_zarr(tmp_path / "s.zarr", group="multinomial")
    assert float(ds.exact_epsilon.squeeze()) == pytest.approx(1.0, abs=1e-6)


def test_figures_mark_violations(summaries):
    """Crosses and a bold title mark the axes with a ratio above 1, and no others."""
    assert drawable(STUDY, summaries) == list(STUDY.figures)
    (svg,) = render(STUDY.figures[1].draw, summaries, ["svg"])
    assert INK.encode() in svg
    grid = {axes.get_title("left"): axes for axes in STUDY.figures[0].draw(summaries).axes if axes.axison}
    assert len(grid) == summaries["binomial"].sizes["mechanism"]
    marked = [title for title, axes in grid.items() if any(line.get_marker() == "x" for line in axes.get_lines())]
    assert marked == ["local (not private)"]
    assert [axes.texts[0].get_text() for axes in grid.values() if axes.texts] == ["up to 1.1"]
    violated = STUDY.figures[0].draw(changed(summaries, "laplace", exact_epsilon=2.0))
    assert sum(axes.title.get_text() == "" and bool(axes.texts) for axes in violated.axes) == 2


def test_study_is_registered():
    assert STUDIES["privacy-audit"] is STUDY
