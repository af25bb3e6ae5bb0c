"""Tests of the study `hellinger-distribution`."""

import numpy as np
import pytest

from mechanisms import MECHANISMS, balanced_counts
from studies.counts.hellinger_distribution import STUDY
from studies.styles import MECHANISM_STYLES
from tests.mechanisms.counts.enumeration import Enumerated


def test_constants_bins_and_skipped_mechanisms(results):
    for panel, k in (("k2", 2), ("k3", 3)):
        ds = results(panel)
        skipped = ds.status.where(ds.status != 1, drop=True)
        assert k == 3 or not skipped.size
        if k == 3:  # there are too many candidates for an exact calibration
            assert (skipped == 5).all()
            assert skipped.n.values.tolist() == [500]
            assert sorted(skipped.mechanism.values) == [
                "global-exact",
                "permute-and-flip-exact",
                "smooth-exact",
                "varying-exact",
            ]
        assert "trial" not in ds.dims
        assert (float(ds.epsilon), float(ds.delta), ds.prior.item()) == (1.0, 1e-8, ":".join("1" * k))
        assert ds.n.values.tolist() == [100, 500]
        np.testing.assert_array_equal(ds.distance_bin, np.arange(50) / 50)
        assert ("smooth-n" in ds.mechanism.values) == (k > 2)


def test_probabilities_add_up_and_match_the_mean(summaries):
    for ds in summaries.values():
        ok = ds.n_ok == 1
        assert float(abs(ds.probability.sum("distance_bin") - 1).where(ok).max()) < 1e-13
        left = ds.probability.dot(ds.distance_bin)
        within = (left <= ds.expected_hellinger) & (ds.expected_hellinger <= left + 0.02 * (1 + 1e-9))
        assert (within | ~ok).all()


@pytest.mark.parametrize(("k", "n"), [(2, 9), (2, 30), (3, 8)])
def test_probabilities_equal_enumeration(run_panel, k, n):
    """Probabilities agree with enumeration, with weights exp(−H/(2·LS)) or rounded and clipped Laplace noise."""
    names = ("local", "laplace", "laplace-dimension")
    ds = run_panel(STUDY, f"k{k}", n=[n], mechanism=names).sel(n=n)
    counts, enumerated = balanced_counts(n, k), Enumerated(np.ones(k), n)
    candidates = enumerated.datasets
    place = np.flatnonzero((candidates == counts).all(axis=1))[0]
    distance, local = enumerated.distances[place], enumerated.local[place]

    def laplace(scale):
        def below(t):
            return np.where(t < 0, np.exp(t / scale) / 2, 1 - np.exp(-t / scale) / 2)

        distribution, rest = np.ones(len(candidates)), np.full(len(candidates), n)
        for x, c in zip(candidates.T[:-1], counts, strict=False):
            upper = np.where(x == rest, 1.0, below(x - c + 0.5))
            distribution *= upper - np.where(x == 0, 0.0, below(x - c - 0.5))
            rest = rest - x
        return distribution

    weights = np.exp(-distance / (2 * local))
    distributions = {
        "local": weights / weights.sum(),
        "laplace": laplace(min(k - 1, 2.0)),
        "laplace-dimension": laplace(k),
    }
    for name, distribution in distributions.items():
        expected = np.histogram(distance, np.linspace(0, 1, 51), weights=distribution)[0]
        np.testing.assert_allclose(ds.probability.sel(mechanism=name), expected, rtol=1e-9, atol=1e-14)
        assert float(ds.expected_hellinger.sel(mechanism=name)) == pytest.approx(distribution @ distance, rel=1e-9)


@pytest.mark.slow
def test_custom_bins(run_panel):
    """The probability of each custom bin is the sum over the finer bins in it."""
    bins = [0, 0.25, 0.5, 0.75], [0.0, 0.5]
    fine, coarse = (run_panel(STUDY, "k2", n=[40], distance_bin=edges).probability.values for edges in bins)
    np.testing.assert_allclose(fine[..., ::2] + fine[..., 1::2], coarse, rtol=1e-13)


def test_figures_show_histograms_and_distribution_functions(summaries):
    for figure in STUDY.figures:
        drawn = figure.draw(summaries)
        ds = summaries[figure.panels[0]]
        assert all(len(plot.titles) == ds.sizes["n"] and plot.x.title for plot in drawn)
        single, total = (plot.rows.groupby(["axes", "series"])["y"] for plot in drawn)
        np.testing.assert_allclose(total.last(), 1.0, rtol=1e-12)
        np.testing.assert_allclose(single.sum(), 1.0, rtol=1e-12)


def test_styles_of_mechanisms_are_unique():
    """All mechanisms have distinct markers; dash and fill state the origin; variants of a mechanism have its colour."""
    assert set(MECHANISMS) <= set(MECHANISM_STYLES)
    markers = [style.marker for style in MECHANISM_STYLES.values()]
    assert len(set(markers)) == len(markers)
    dashes = {MECHANISMS[name].origin: style.dash for name, style in MECHANISM_STYLES.items()}
    assert len(set(dashes.values())) == len(dashes) == 3
    for name, style in MECHANISM_STYLES.items():
        origin = MECHANISMS[name].origin
        assert (style.dash, style.fill == style.color) == (dashes[origin], origin == "ours")
        family, _, variant = name.rpartition("-")
        if family in MECHANISM_STYLES and variant in ("n", "exact", "bound"):
            assert style.color == MECHANISM_STYLES[family].color
