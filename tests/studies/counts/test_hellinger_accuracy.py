"""Tests of the study `hellinger-accuracy`."""

import numpy as np
import pytest
import xarray as xr

from mechanisms import MECHANISMS, audit_counts, balanced_counts, enumerate_candidates, hellinger
from studies.counts.hellinger_accuracy import STUDY, counts_of_shares
from studies.report import judge

LARGEST = {
    "k3": {"smooth-exact": 300, "permute-and-flip-exact": 100},
    "k4": {"smooth-exact": 60, "permute-and-flip": 200, "permute-and-flip-exact": 30},
    "abalone": {"smooth-exact": 300, "permute-and-flip": 1_900, "permute-and-flip-exact": 100},
}
"""Largest n of mechanisms with a limit below the sizes of a panel."""


def test_mechanisms_do_not_apply_beyond_their_largest_size(summaries, results):
    assert {panel.name for panel in STUDY.panels} == set(summaries)
    for panel in summaries:
        ds = results(panel)
        n_data = ds.n if "n" in ds.dims else xr.DataArray(4177 if panel == "abalone" else 100)
        largest = [LARGEST.get(panel, {}).get(name, 5_000) for name in ds.mechanism.values.tolist()]
        too_large = n_data > xr.DataArray(largest, dims="mechanism")
        assert (ds.status == xr.where(too_large, 5, 1)).all()
        assert float(ds.epsilon) == 1.0
        assert float(ds.delta) == 1e-8
        assert ds.hellinger.attrs["units"] == "1"
    attributes = results("k2").mechanism.attrs
    assert "\nlocal: Not private" in attributes["notes"]
    assert attributes["not_private"] == "local"
    assert STUDY.panel("k4").spec()["factors"]["n"] == [100, 200, 300, 400, 500, 600]
    assert results("abalone").counts.item() == "1528:1307:1342"
    assert STUDY.panel("k2").trials == 10_000


def test_claims_need_the_sizes_of_the_study(summaries):
    """If a run lacks some values of n, claims are undecided, and their evidence names these values."""
    findings = {claim.name: finding for claim, finding in judge(STUDY, summaries)}
    assert findings["beats-dimension-k2"].verdict == "reproduced"
    assert findings["beats-dimension-k4"].verdict == findings["exact-beats-noise"].verdict == "undecided"
    assert findings["beats-dimension-k4"].evidence == "Panel k4 has no n = 600."
    assert "n = 300, 400" in findings["exact-beats-noise"].evidence


def test_every_registered_mechanism_is_studied():
    """The study includes all registered mechanisms except two that solve linear programs, which limit n."""
    studied = {method.name for panel in STUDY.panels for method in panel.methods}
    assert studied == set(MECHANISMS) - {"optimal", "k-norm-minimax"}


@pytest.mark.parametrize(
    ("shares", "n", "counts"),
    [((0.98, 0.01, 0.01), 100, [98, 1, 1]), ((0.5, 0.25, 0.25), 7, [3, 2, 2]), ((0.1, 0.9), 30, [3, 27])],
)
def test_counts_of_shares_round_by_the_largest_remainders(shares, n, counts):
    assert counts_of_shares(shares, n).tolist() == counts


@pytest.mark.slow
def test_expectations_equal_enumeration(run_panel):
    """Stored expectations equal sums over all candidates, even for values of n that the study does not use."""
    for k in (2, 3, 4):
        ds = run_panel(STUDY, f"k{k}", trials=2, n=[7, 12])
        for n in (7, 12):
            counts = balanced_counts(n, k)
            distance = hellinger(1.0 + counts, 1.0 + enumerate_candidates(n, k))
            for name in ds.mechanism.values.tolist():
                distribution = MECHANISMS[name].build(np.ones(k), counts, 1.0, 1e-8).pmf()
                stored = float(ds.expected_hellinger.sel(n=n, mechanism=name))
                assert stored == pytest.approx(float(distribution @ distance), rel=1e-10)


def test_draws_agree_with_expectations(summaries):
    """Means of draws agree with expectations within 5 standard errors, unless almost all distances are 1."""
    for summary in (summary for panel, summary in summaries.items() if panel != "random"):
        z = abs(summary.hellinger_mean - summary.expected_hellinger) / summary.hellinger_mcse
        assert not (z.where(summary.n_ok * (1 - summary.expected_hellinger) >= 100) >= 5).any()


def test_audited_losses_are_stored(results):
    """The stored losses of exactly calibrated mechanisms equal those of exact audits."""
    ds = results("k2")
    for name in ("smooth-exact", "varying-exact", "global-exact", "hamming-exact"):
        stored = ds.sel(n=100, mechanism=name)
        assert float(stored.audited_epsilon) == pytest.approx(
            audit_counts(name, [1, 1], 100, epsilon=1.0).epsilon, rel=1e-12
        )
        assert 1 - 1e-6 <= float(stored.audited_epsilon) <= 1
        assert float(stored.multiplier) > 0.75
    assert np.isnan(ds.multiplier.sel(mechanism="laplace")).all()


def test_style_of_a_mechanism_does_not_depend_on_the_others(summaries):
    draw = STUDY.figures[0].draw
    (whole,), (part,) = draw(summaries), draw({"k2": summaries["k2"].isel(mechanism=[3])})
    ((name, look),) = part.series.items()
    assert whole.series[name] == look
