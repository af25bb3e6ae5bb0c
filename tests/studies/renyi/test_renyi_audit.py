"""Tests of the study `renyi-audit`."""

import math

import numpy as np
import pytest

import pipeline
from mechanisms import LINKS, audit_replacements, glm_mechanism
from mechanisms.core.conversions import pure_renyi
from mechanisms.draws.glm_mechanisms import GlmMechanism
from mechanisms.draws.worst_case import LARGEST_SHARE_1D, candidate_records, shared_records
from studies.renyi.renyi_audit import STUDY
from studies.report import load_summaries


def test_links_of_the_panel(results):
    link = results("links").link
    assert link.values.tolist() == list(LINKS)
    assert "probit: Not private" in link.attrs["notes"]


def test_grid():
    spec = {panel.name: panel.spec()["factors"] for panel in STUDY.panels}
    assert spec["logistic"] == {"dimension": [1, 2], "n": [1000, 30_000], "beta": [0.001, 0.1]}
    assert spec["tightness"]["beta"] == [10.0**-k for k in range(8)]
    assert spec["tightness"]["precision"] == [1, 10, 100]
    assert spec["ops"]["power"] == [1, 0.1]
    assert all(panel.trials is None for panel in STUDY.panels)


def test_logistic_panel_against_direct_audits(summaries):
    """Stored divergences are at least those for any shared records, and at most the stated guarantees."""
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


@pytest.mark.slow
@pytest.mark.exhaustive
def test_links_at_many_records(tmp_path, summaries):
    """The same divergences are infinite as with one record, and those of the logistic link are within the bound."""
    store = pipeline.run(STUDY, tmp_path / "s.zarr", panels=["links"], values={"n": [100]})
    many, single = load_summaries(store.url, study=STUDY)["links"].sel(n=100), summaries["links"].sel(n=1)
    np.testing.assert_array_equal(np.isinf(many.renyi_epsilon), np.isinf(single.renyi_epsilon))
    assert (many.renyi_epsilon <= many.bound).sel(link="logistic").all()


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
    """In the panel `ops`, losses and divergences equal closed forms, and a direct audit for one record."""
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


def test_comparison_with_ops_is_reproduced_for_small_beta(summaries):
    """At β = 0.001 and n = 1000, P3's claim that its mechanisms improve on OPS is reproduced."""
    (claim,) = (claim for claim in STUDY.claims if claim.name == "better-than-ops")
    few = {**summaries, "ops": summaries["ops"].sel(beta=[0.001], n=[1000])}
    assert claim.judge(few).verdict == "reproduced"


def test_axes_of_figures(summaries):
    plots_of = {figure.name: figure.draw(summaries) for figure in STUDY.figures}
    n_axes = {name: sum(len(plot.titles) for plot in plots) for name, plots in plots_of.items()}
    del n_axes["audit-dirichlet"]
    assert n_axes == {"audit-logistic": 3, "audit-tightness": 2, "audit-links": 2, "audit-ops": 2}
    for plot in plots_of["audit-tightness"]:
        assert plot.values().max() <= plot.limits[1]
