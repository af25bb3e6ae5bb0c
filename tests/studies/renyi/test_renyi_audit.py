"""Tests of the study `renyi-audit`."""

import math

import numpy as np
import pytest
import xarray as xr

import pipeline
from mechanisms import LINKS, audit_replacements, glm_mechanism
from mechanisms.glm.mechanisms import GlmMechanism
from mechanisms.glm.worst_case import LARGEST_SHARE_1D, candidate_records, shared_records
from mechanisms.renyi.conversions import pure_renyi
from studies import STUDIES
from studies.figures import render
from studies.renyi.renyi_audit import STUDY
from studies.report import drawable, judge, load_summaries
from studies.styles import INK

CLAIMS = {claim.name: claim for claim in STUDY.claims}
VALUES = {
    "logistic": {"n": [1000], "beta": [0.001], "order": [2], "epsilon": [1]},
    "tightness": {"beta": [0.1, 0.001, 1e-6], "precision": [10]},
    "links": {"n": [1, 100]},
    "ops": {"n": [1, 1000], "beta": [0.001, 10], "power": [1]},
    "dirichlet": {"n": [1, 30], "prior": ["6:12", "1:2:3"], "order": [2, 7], "epsilon": [0.5]},
}


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Run every panel on a smaller grid."""
    folder = tmp_path_factory.mktemp("study")
    for panel, values in VALUES.items():
        pipeline.run(STUDY, folder / f"{panel}.zarr", panels=[panel], values=values)
    return {panel: folder / f"{panel}.zarr" for panel in VALUES}


@pytest.fixture(scope="module")
def summaries(stores):
    return {panel: load_summaries(store)[panel] for panel, store in stores.items()}


def verdicts(summaries):
    return {claim.name: finding.verdict for claim, finding in judge(STUDY, summaries)}


def scaled(summaries, panel, measure, factor, **where):
    """Multiply a measure at the given coordinates."""
    ds = summaries[panel]
    hit = xr.DataArray(True)
    for name, value in where.items():
        hit = hit & (ds[name] == value)
    return {**summaries, panel: ds.assign({measure: ds[measure] * xr.where(hit, factor, 1.0)})}


def test_store_layout(stores):
    """Check groups, dimensions and measures as read by xarray; there is no trial dimension."""
    dims = {
        "logistic": ("dimension", "n", "beta", "order", "epsilon", "mechanism"),
        "tightness": ("dimension", "precision", "beta"),
        "links": ("n", "link"),
        "ops": ("n", "beta", "power", "mechanism"),
        "dirichlet": ("prior", "n", "order", "epsilon", "mechanism"),
    }
    for panel, store in stores.items():
        ds = xr.open_zarr(store, group=panel)
        assert ds.status.dims == dims[panel]
        assert set(np.unique(ds.status)) <= {1, 5}
        assert ((ds.status == 5).any()) == (panel == "dirichlet")
    assert xr.open_zarr(stores["links"], group="links").divergence_on_box.dims == ("n", "link", "order", "reach")
    assert xr.open_zarr(stores["links"], group="links").link.values.tolist() == list(LINKS)
    attributes = xr.open_zarr(stores["links"], group="links").link.attrs
    assert "Not private" in attributes["notes"]["probit"]
    assert attributes["not_private"] == ["probit", "cloglog"]


def test_grid():
    spec = {panel.name: panel.spec()["factors"] for panel in STUDY.panels}
    assert spec["logistic"] == {"dimension": [1, 2], "n": [1000, 30_000], "beta": [0.001, 0.1]}
    assert spec["tightness"]["beta"] == [10.0**-k for k in range(8)]
    assert spec["tightness"]["precision"] == [1, 10, 100]
    assert spec["ops"]["power"] == [1, 0.1]
    assert all(panel.trials is None for panel in STUDY.panels)


def test_logistic_panel_against_direct_audits(summaries):
    """The stored divergence is at least that of each set of shared records; bounds are those of the theorems."""
    ds = summaries["logistic"].sel(n=1000, beta=0.001, order=2.0, epsilon=1.0)
    for name in ds.mechanism.values.tolist():
        mechanism = glm_mechanism(name, 1000, 0.001, 2, 1.0)
        stated = 4.0 if name == "true-posterior" else 1.0  # 2λ/(nβ)
        for dimension in (1, 2):
            one = ds.sel(mechanism=name, dimension=dimension)
            assert float(one.stated_epsilon) == pytest.approx(stated)
            coarse = candidate_records(1.0, dimension, 2 * dimension, shares=(1.0,))
            for shared in shared_records(mechanism, 1000, dimension).values():
                found = audit_replacements(mechanism, coarse, shared, [2.0]).renyi[2.0]
                assert found <= float(one.renyi_epsilon) * (1 + 1e-6)
            assert float(one.renyi_epsilon) <= float(one.curve_share) * stated * (1 + 1e-12)
    shares = ds.renyi_epsilon / ds.stated_epsilon
    assert float(shares.sel(dimension=1).max()) < LARGEST_SHARE_1D
    assert float(shares.sel(dimension=2).min()) > 0.6


def test_links_panel_against_known_values(summaries):
    ds = summaries["links"]
    assert ds.bound.sel(n=1, link="probit").values.tolist() == [2 * order for order in ds.order.values]
    assert ds.critical_order.sel(n=1).values.tolist() == [math.inf, 2.0, 1.0]
    infinite = {link: ds.order.values[np.isinf(ds.renyi_epsilon.sel(n=1, link=link))].tolist() for link in LINKS}
    assert infinite == {"logistic": [], "probit": [2.0, 3.0, 5.0], "cloglog": [1.5, 1.9, 1.99, 2.0, 3.0, 5.0]}
    assert float(ds.divergence_on_box.sel(n=1, link="probit", order=5.0, reach=80.0)) == pytest.approx(
        2403.87, abs=0.01
    )
    assert float(ds.renyi_epsilon.sel(n=1, link="logistic", order=2.0)) == pytest.approx(math.log(2 * math.e**0.5 - 1))
    assert float(ds.renyi_epsilon.sel(n=1, link="probit", order=1.99)) == pytest.approx(5.336787, rel=1e-6)


def test_ops_panel_against_known_values(summaries):
    """Without shared records the loss is half of 2c²ρ/β; the audited distribution is the truncated one."""
    ds = summaries["ops"].sel(power=1.0)
    for beta in (0.001, 10.0):
        assert float(ds.pure_loss.sel(n=1, beta=beta, mechanism="ops")) == pytest.approx(1 / beta)
    assert np.isinf(ds.pure_loss.sel(mechanism="glm-diffused")).all()
    mechanism = GlmMechanism("distribution", 10.0, 1.0, 0.1, LINKS["logistic"], 1.0, None)
    found = audit_replacements(mechanism, [[1.0, 1], [-1.0, 1]], orders=[10]).renyi[10]
    one = ds.sel(n=1, beta=10.0, order=10.0)
    assert float(one.renyi_epsilon.sel(mechanism="ops")) == pytest.approx(found, rel=1e-6)
    assert float(one.stated_epsilon.sel(mechanism="ops")) == pytest.approx(pure_renyi(0.2, 10))
    assert float(one.stated_epsilon.sel(mechanism="glm-diffused")) == 2.0


def test_findings(summaries):
    assert verdicts(summaries) == {
        "theorems-hold": "reproduced",
        "bound-is-tight": "corrected",
        "links-satisfy-the-theorems": "not reproduced",
        "orders-that-diverge": "passed",
        "ops-loss": "corrected",
        "better-than-ops": "corrected",
        "suprema-are-exact": "passed",
        "gaussian-variance": "corrected",
    }
    evidence = {name: claim.judge(summaries).evidence for name, claim in CLAIMS.items()}
    assert "0 of 6 audits exceed the bound" in evidence["theorems-hold"]
    assert "the proved limit is 0.2765" in evidence["bound-is-tight"]
    assert "probit: infinite at orders >= 2" in evidence["links-satisfy-the-theorems"]
    assert "39.822, 152.84, 603.35, 2403.9" in evidence["orders-that-diverge"]
    assert "0.3718 times the published bound (n = 1000, beta = 10, power = 1)" in evidence["ops-loss"]
    assert "in 0 with beta > n" in evidence["better-than-ops"]
    assert "0.5000 with the published variance λ/epsilon, 1.0000 with half of it" in evidence["gaussian-variance"]


@pytest.mark.parametrize(
    ("claim", "panel", "measure", "factor", "where", "expected"),
    [
        ("theorems-hold", "logistic", "renyi_epsilon", 1.7, {"mechanism": "glm-diffused"}, "not reproduced"),
        ("theorems-hold", "logistic", "curve_share", 1.7, {"mechanism": "true-posterior"}, "not reproduced"),
        ("theorems-hold", "logistic", "renyi_epsilon", 1.05, {}, "reproduced"),
        ("bound-is-tight", "tightness", "share", 3.6, {"dimension": 1}, "reproduced"),
        ("bound-is-tight", "tightness", "share", 0.9, {"dimension": 2}, "not reproduced"),
        ("bound-is-tight", "tightness", "share", 1.1, {"dimension": 2}, "not reproduced"),
        (
            "links-satisfy-the-theorems",
            "links",
            "renyi_epsilon",
            0.0,
            {"link": "cloglog", "order": 1.0},
            "not reproduced",
        ),
        ("links-satisfy-the-theorems", "links", "bound", 1e99, {"link": "probit"}, "not reproduced"),
        ("orders-that-diverge", "links", "divergence_on_box", 0.5, {"link": "probit", "reach": 80.0}, "failed"),
        (
            "orders-that-diverge",
            "links",
            "divergence_on_box",
            2.0,
            {"link": "logistic", "reach": 80.0},
            "failed",
        ),
        ("ops-loss", "ops", "pure_loss", 1.5, {}, "holds"),
        ("ops-loss", "ops", "pure_loss", 3.0, {}, "does not hold"),
        ("ops-loss", "ops", "renyi_epsilon", 3.0, {}, "does not hold"),
        ("better-than-ops", "ops", "stated_epsilon", 10.0, {"mechanism": "glm-diffused"}, "not reproduced"),
        ("suprema-are-exact", "dirichlet", "enumerated_epsilon", 0.999, {"mechanism": "diffused"}, "failed"),
        ("suprema-are-exact", "dirichlet", "quadrature_epsilon", 1.001, {"mechanism": "direct"}, "failed"),
        ("suprema-are-exact", "dirichlet", "quadrature_epsilon", 1.001, {"mechanism": "gaussian"}, "passed"),
        ("gaussian-variance", "dirichlet", "quadrature_epsilon", 1.9, {"mechanism": "gaussian"}, "reproduced"),
        ("gaussian-variance", "dirichlet", "quadrature_epsilon", 2.1, {"mechanism": "gaussian"}, "not reproduced"),
    ],
)
def test_verdicts_depend_on_the_results(summaries, claim, panel, measure, factor, where, expected):
    assert CLAIMS[claim].judge(scaled(summaries, panel, measure, factor, **where)).verdict == expected


def test_verdict_on_links_within_the_bound(summaries):
    """The verdict is "corrected" if one of the two links satisfies the bound and "reproduced" if both do."""
    ds = summaries["links"]
    for kept, expected in (({"probit"}, "corrected"), ({"probit", "cloglog"}, "reproduced")):
        hit = ds.link.isin(list(kept))
        there = {**summaries, "links": ds.assign(renyi_epsilon=xr.where(hit, 0.5 * ds.bound, ds.renyi_epsilon))}
        assert CLAIMS["links-satisfy-the-theorems"].judge(there).verdict == expected


def test_mismatched_infinity_fails_the_claim(summaries):
    ds = summaries["dirichlet"]
    there = {**summaries, "dirichlet": ds.assign(stated_epsilon=ds.stated_epsilon.where(ds.mechanism != "direct", 9.0))}
    assert CLAIMS["suprema-are-exact"].judge(there).verdict == "failed"


def test_comparison_with_ops_is_reproduced_for_small_beta(summaries):
    """The comparison of P3 with OPS holds if β is much smaller than n."""
    few = {**summaries, "ops": summaries["ops"].sel(beta=[0.001], n=[1000])}
    assert CLAIMS["better-than-ops"].judge(few).verdict == "reproduced"


def test_claims_without_results_are_undecided(summaries):
    without = {panel: ds for panel, ds in summaries.items() if panel not in ("links", "ops")}
    found = verdicts({**without, "tightness": summaries["tightness"].sel(beta=[0.1])})
    assert {name for name, verdict in found.items() if verdict == "undecided"} == {
        "bound-is-tight",
        "links-satisfy-the-theorems",
        "orders-that-diverge",
        "ops-loss",
        "better-than-ops",
    }


@pytest.mark.parametrize(
    ("panel", "values", "message"),
    [
        ("logistic", {"dimension": [3]}, "dimension must be 1 or 2, got 3"),
        ("logistic", {"n": [0]}, "n must be an integer >= 1"),
        ("logistic", {"beta": [0]}, "beta must be finite and > 0"),
        ("logistic", {"order": [0.5]}, "order must be a finite number >= 1"),
        ("logistic", {"epsilon": [-1]}, "epsilon must be a finite number > 0"),
        ("tightness", {"precision": [0]}, "precision must be > 0, got 0"),
        ("tightness", {"beta": [-1]}, "beta must be finite and > 0"),
        ("tightness", {"dimension": [0]}, "dimension must be 1 or 2, got 0"),
        ("links", {"reach": [200]}, r"reach must be in \(0, 100\], got 200"),
        ("links", {"n": [0]}, "n must be"),
        ("links", {"precision": [-1]}, "precision must be > 0, got -1"),
        ("ops", {"power": [1.5]}, r"power must be in \(0, 1\], got 1.5"),
        ("ops", {"beta": [0]}, "beta must be finite and > 0"),
        ("dirichlet", {"prior": ["1:0"]}, "prior must have positive"),
        ("dirichlet", {"n": [100_000]}, "n must give at most 20,000 data sets to enumerate, got 100000"),
        ("dirichlet", {"epsilon": [0]}, "epsilon must be a finite number > 0"),
    ],
)
def test_invalid_values_raise(panel, values, message):
    with pytest.raises(ValueError, match=message):
        STUDY.configure(panels=[panel], values=values)


def test_every_figure_is_drawn(summaries):
    assert drawable(STUDY, summaries) == list(STUDY.figures)
    for figure in STUDY.figures:
        assert INK.encode() in render(figure.draw, summaries, ["svg"])[0]
    axes_of = {figure.name: figure.draw(summaries).axes for figure in STUDY.figures}
    assert len(axes_of["audit-logistic"]) == 3
    assert len(axes_of["audit-tightness"]) == 2
    assert len(axes_of["audit-links"]) == 4
    assert len(axes_of["audit-ops"]) == 2
    for axes in axes_of["audit-tightness"]:
        shares = np.concatenate([line.get_ydata() for line in axes.get_lines()])
        assert shares.max() <= axes.get_ylim()[1]


def test_study_is_registered():
    assert STUDIES["renyi-audit"] is STUDY
