"""Tests of the study `renyi-curves`."""

import itertools
import math

import numpy as np
import pytest
from scipy import special, stats
from scipy.special import gammaln

from studies.renyi.renyi_curves import STUDY

PANELS = ("diffused", "concentrated")
COEFFICIENTS = [0.1, 0.3, 0.5, 0.7, 0.9, 1.0]


def test_grid_and_infinite_divergences(results):
    for panel in PANELS:
        ds = results(panel)
        assert ds.coefficient.values.tolist() == COEFFICIENTS
        assert ds.order.values.tolist() == [round(1 + 0.05 * step, 2) for step in range(381)]
        assert (ds.prior.item(), int(ds.n)) == ("6:12", 100)
        assert ds.renyi_epsilon.notnull().all()
        assert np.isinf(ds.renyi_epsilon).any()
        assert ds.renyi_epsilon.attrs["units"] == "nat"


def test_curves_equal_enumeration(summaries):
    """Curves equal the maximum over all neighbouring data sets of 100 records, computed by log-gamma functions."""

    def log_beta(x):
        return gammaln(x).sum(axis=-1) - gammaln(x.sum(axis=-1))

    ones = np.arange(100)
    for panel in PANELS:
        for coefficient, order in ((0.3, 2.0), (0.7, 5.0), (1.0, 6.9), (0.5, 12.95)):
            prior, step = ((6, 12), coefficient) if panel == "diffused" else (np.array([6, 12]) / coefficient, 1)
            distributions = prior + step * np.stack([np.arange(101), 100 - np.arange(101)], axis=1)
            best = 0.0
            for p, q in (
                (distributions[ones], distributions[ones + 1]),
                (distributions[ones + 1], distributions[ones]),
            ):
                mixed = order * p + (1 - order) * q
                best = max(best, ((log_beta(mixed) - order * log_beta(p)) / (order - 1) + log_beta(q)).max())
            found = summaries[panel].renyi_epsilon.sel(coefficient=coefficient, order=order)
            assert float(found) == pytest.approx(best, rel=1e-8)


def test_known_values(summaries):
    """In both panels, the divergences of direct sampling have known values, and critical orders are those of P3."""
    for panel in PANELS:
        direct = summaries[panel].sel(coefficient=1.0)
        assert direct.renyi_epsilon.sel(order=[2.0, 5.0, 6.9]).values == pytest.approx(
            [0.19129, 0.617111, 1.392636], abs=5e-6
        )
        assert np.isinf(direct.renyi_epsilon.sel(order=[7.0, 7.1])).all()
        np.testing.assert_allclose(summaries[panel].critical_order, 1 + 6 / np.array(COEFFICIENTS), rtol=1e-15)
    assert float(summaries["diffused"].corner_epsilon.sel(coefficient=1.0, order=1.0)) == pytest.approx(
        0.10116, abs=2e-5
    )


def test_corners_with_invalid_parameters_are_infinite(run_panel):
    ds = run_panel(STUDY, "diffused", prior=["0.5:2"], coefficient=[0.2, 1.0], order=[1.0, 1.2], n=[10])
    assert np.isfinite(ds.renyi_epsilon).all()
    np.testing.assert_array_equal(np.isinf(ds.corner_epsilon), [[False, False], [True, True]])


def test_curves_end_at_their_asymptotes(summaries):
    figure = STUDY.figures[0]
    (plot,) = figure.draw({panel: summaries[panel] for panel in PANELS})
    assert plot.titles == list(PANELS)
    assert list(plot.series) == ["0.1", "0.3", "0.5", "0.7", "0.9", "1 (direct posterior)"]
    assert plot.limits == (0, 2)
    for _, rows in plot.rows[plot.rows["series"] == "1 (direct posterior)"].groupby("axes"):
        assert np.isfinite(rows["y"].dropna()).all()
        assert rows.dropna(subset="y")["x"].iloc[-1] == 6.95
        assert rows["edge"].dropna().tolist() == [7.0]


def test_exact_losses_of_dirichlet_draws_equal_quadrature(results):
    """δ at the stored ε, by quadrature over draws from all pairs of neighbours, is 1e-6."""
    ds = results("dirichlet-bounds")
    x = (np.arange(20_000) + 0.5) / 20_000
    for r in (0.3, 1.0):
        log_density = [stats.beta.logpdf(x, 6 + r * k, 12 + r * (100 - k)) for k in range(101)]
        epsilon, found = float(ds.exact_epsilon.sel(coefficient=r)), 0.0
        for one, other in [*itertools.pairwise(log_density), *itertools.pairwise(log_density[::-1])]:
            found = max(found, np.maximum(np.exp(one) - np.exp(epsilon + other), 0.0).mean())
        assert found == pytest.approx(1e-6, rel=1e-3)


def test_bounds_of_dirichlet_draws_follow_their_definitions(results):
    ds = results("dirichlet-bounds")
    r, order = 0.5, 3.0
    expected = order * r**2 * special.polygamma(1, 6 - (order - 1) * r)
    assert float(ds.ponnoprat_epsilon.sel(coefficient=r, order=order)) == pytest.approx(expected, rel=1e-12)
    pairs = [(6 + r * k, 12 + r * (100 - k)) for k in range(101)]
    change = max(abs(special.betaln(*a) - special.betaln(*b)) for a, b in itertools.pairwise(pairs))
    odds = (float(ds.gohari_epsilon.sel(coefficient=r)) - change) / r
    edge = 1 / (1 + math.exp(odds))
    outside = max(stats.beta.cdf(edge, *pair) + stats.beta.sf(1 - edge, *pair) for pair in pairs)
    assert outside == pytest.approx(1e-6, rel=1e-6)
