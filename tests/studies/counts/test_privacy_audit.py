"""Tests of the study `privacy-audit`."""

import itertools

import numpy as np
import pytest

from mechanisms import FAMILIES, MECHANISMS, audit_counts
from studies.counts.privacy_audit import STUDY
from studies.report import judge
from tests.mechanisms.counts.enumeration import Enumerated
from tests.studies.case import EVERY, change, scale

SMALL_ONLY = {"optimal", "k-norm-minimax", "geometric-projected", "laplace-projected"}


def test_only_mechanisms_with_a_limit_do_not_apply(results):
    for panel in ("binomial", "multinomial"):
        ds = results(panel)
        assert ds.exact_epsilon.attrs["units"] == "nat"
        assert float(ds.delta) == 1e-8
        included = {name for name, mechanism in MECHANISMS.items() if ds.sizes["cell"] >= mechanism.min_categories}
        assert set(ds.mechanism.values.tolist()) == included
        applies = ds.status == 1
        assert (applies == ds.exact_epsilon.notnull()).all()
        assert set(ds.mechanism.values[~applies.all(("prior", "n", "epsilon")).values]) <= SMALL_ONLY


def test_grid_of_the_study():
    two, three = STUDY.panel("binomial").spec()["factors"], STUDY.panel("multinomial").spec()["factors"]
    assert two["prior"] == [[1, 1], [0.5, 0.5], [10, 10], [5, 0.3], [0.01, 100]]
    assert two["n"] == [1, 2, 10, 30, 100, 300, 1000]
    assert two["epsilon"] == three["epsilon"] == [0.1, 1, 3]
    assert three["prior"] == [[1, 1, 1], [0.3, 2, 5], [0.01, 1, 100]]
    assert three["n"] == [2, 5, 10, 20, 30]


@pytest.mark.parametrize(("panel", "n"), [("binomial", 30), ("multinomial", 5)])
def test_losses_equal_enumeration(summaries, panel, n):
    """Losses agree with enumeration over all ordered pairs and all outputs, and the witnesses attain them."""
    ds = summaries[panel]
    for prior, name in itertools.product(ds.prior.values.tolist(), ds.mechanism.values.tolist()):
        alpha = [float(entry) for entry in prior.split(":")]
        enumerated = Enumerated(alpha, n)
        datasets = enumerated.datasets.tolist()
        distributions = np.array([MECHANISMS[name].build(alpha, c, 1.0, 1e-8).log_pmf() for c in datasets])
        loss, delta = 0.0, 0.0
        for first, second in ((distributions[i], distributions[j]) for i, j in enumerated.pairs):
            possible = first > -np.inf
            loss = max(loss, float(np.max(first[possible] - second[possible])))
            delta = max(delta, float(np.maximum(np.exp(first) - np.exp(1.0 + second), 0).sum()))
        one = ds.sel(prior=prior, n=n, epsilon=1.0, mechanism=name)
        assert float(one.exact_epsilon) == pytest.approx(loss, abs=1e-11)
        assert float(one.exact_delta) == pytest.approx(delta, abs=1e-11)
        x, y, r = (
            datasets.index(one[f"worst_{what}"].values.astype(int).tolist())
            for what in ("dataset", "neighbour", "output")
        )
        assert distributions[x, r] - distributions[y, r] == pytest.approx(loss, abs=1e-11)
        assert np.abs(np.subtract(datasets[x], datasets[y])).sum() == 2


def test_local_violates_epsilon_at_the_skewed_prior_only(summaries):
    shares = summaries["binomial"].exact_epsilon.sel(mechanism="local") / summaries["binomial"].epsilon
    assert float(shares.sel(prior="1:1").max()) < 1
    assert float(shares.sel(prior="0.01:100", n=100, epsilon=0.1)) == pytest.approx(1.066, abs=0.0005)


def test_claims_need_the_sizes_of_the_study(summaries):
    """If a run lacks some values of n, claims are undecided, and their evidence names these values."""
    findings = {claim.name: finding for claim, finding in judge(STUDY, summaries)}
    assert findings["local-proof"].verdict == "undecided"
    assert findings["local-proof"].evidence == "Panel binomial has no n = 1, 10, 300, 1000."


def test_losses_under_both_relations(summaries):
    """Sums have the loss ε under both relations; counts have a finite loss under replacement only."""
    loss = summaries["relations"].exact_epsilon.sel(epsilon=1.0)
    assert abs(loss.sel(mechanism=list(FAMILIES)) - 1).max() <= 1e-12
    for name in MECHANISMS:
        replaced = audit_counts(name, [1, 1, 1], 3, epsilon=1.0)
        assert replaced.epsilon == float(loss.sel(mechanism=name, relation="replace-one"))
    assert np.isposinf(loss.sel(mechanism=list(MECHANISMS), relation="add-remove")).all()


def test_four_categories(run_panel):
    """The panel `multinomial` accepts four categories if its output dimension `cell` has four values."""
    values = {"prior": ["1:1:1:2"], "cell": [0, 1, 2, 3], "n": [3], "epsilon": [1.0], "mechanism": ["laplace"]}
    ds = run_panel(STUDY, "multinomial", **values)
    assert float(ds.exact_epsilon.squeeze()) == pytest.approx(1.0, abs=1e-6)


def test_figures_mark_violations(summaries):
    """The figure marks only axes with a ratio above 1, by crosses and in the title."""
    (plot,) = STUDY.figures[0].draw(summaries)
    assert len(plot.titles) == summaries["binomial"].sizes["mechanism"]
    local = "local (not private): above 1, up to 1.07"
    assert [title for title in plot.titles if "above" in title] == [local]
    assert set(plot.rows.dropna(subset="cross")["axes"]) == {local}
    above = scale(EVERY, {"mechanism": "laplace"}, exact_epsilon=2.0)
    (violated,) = STUDY.figures[0].draw(above(summaries))
    assert [title for title in violated.titles if "above" in title] == [local, "laplace: above 1, up to 2"]
    assert (violated.rows["cross"].dropna() > 1).all()
    larger = change(EVERY, {"mechanism": "discrete-gaussian"}, exact_delta=2e-8)
    (plot,) = STUDY.figures[0].draw(larger(summaries))
    assert "discrete-gaussian: above 1, up to 2" in plot.titles
