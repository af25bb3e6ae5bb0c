"""Tests of the study `renyi-utility`."""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import digamma

from mechanisms.draws.gaussian_counts import gaussian_mechanism
from mechanisms.draws.tempered import calibrate_renyi
from pipeline import Streams
from studies.renyi.renyi_utility import STUDY

POWERS = (-15, -10, -9.5, -5, -3, -2, -1, 0, 2)
EPSILONS = [math.exp(power) for power in POWERS]
MECHANISMS = ["direct", "diffused", "concentrated", "gaussian", "gaussian-tight"]


def test_constants_and_settings_that_apply(results):
    """The constants are those of P3, and direct sampling applies only where ε is above its privacy loss."""
    kl = results("kl")
    assert (kl.prior.item(), int(kl.n), int(kl.successes)) == ("6:12", 100, 38)
    assert kl.order.values.tolist() == [2, 15]
    direct = kl.status.sel(mechanism="direct")
    np.testing.assert_array_equal(direct == 1, [np.array(EPSILONS) >= 0.19129, [False] * len(EPSILONS)])
    assert (direct.where(direct != 1, 5) == 5).all()
    assert (kl.status.sel(mechanism=MECHANISMS[1:]) == 1).all()
    loglik = results("loglik")
    assert (float(loglik.probability), int(loglik.n), int(loglik.n_heldout)) == (0.5, 100, 100)
    assert loglik.heldout_nll.attrs["units"] == kl.kl.attrs["units"] == "nat"
    reference = loglik.heldout_nll.sel(mechanism="true-posterior")
    assert (reference == reference.isel(order=0, epsilon=0)).all()


def test_grid():
    """The grid is that of P3: 10,000 trials; ε from e⁻¹⁰ (panel `kl`) or e⁻¹⁵ (panel `loglik`) to e²."""
    for panel, first, trials in ((STUDY.panels[0], -10, None), (STUDY.panels[1], -15, 10_000)):
        spec = panel.spec()
        assert np.log(spec["method_factors"]["epsilon"]).tolist() == pytest.approx(list(np.arange(first, 2.1, 0.5)))
        assert spec["method_factors"]["order"] == [2, 15]
        assert spec["trials"] == trials


def test_known_divergences(summaries):
    """Calibrated coefficients have known values, and KL divergences of posteriors agree with quadrature."""
    one = summaries["kl"].sel(order=2.0, epsilon=math.exp(-2))
    assert one.coefficient.sel(mechanism=["diffused", "concentrated"]).values == pytest.approx(
        [0.838452, 0.714208], abs=5e-7
    )
    theta = np.linspace(0, 1, 200_001)[1:-1]
    posterior = stats.beta(44, 74)
    for name, r in (("diffused", 0.838452243), ("concentrated", 0.714207529)):
        a, b = (6 + r * 38, 12 + r * 62) if name == "diffused" else (6 / r + 38, 12 / r + 62)
        density = posterior.pdf(theta) * (posterior.logpdf(theta) - stats.beta(a, b).logpdf(theta))
        assert float(one.kl.sel(mechanism=name)) == pytest.approx(density.sum() / 200_000, rel=1e-6)
    for name in ("gaussian", "gaussian-tight"):
        exact = gaussian_mechanism(name, (6, 12), 100, 2, math.exp(-2)).posterior_kl(38)
        assert float(one.kl.sel(mechanism=name)) == exact


def independent_expectations():
    """Return the expected losses on held-out records for λ = 2 and ε = e⁻³, by sums and quadrature."""
    binomial = stats.binom(100, 0.5).pmf(np.arange(101))

    def loss(c):
        return 50 * (2 * digamma(118) - digamma(6 + c) - digamma(12 + 100 - c))

    def weakened(name):
        mechanism = calibrate_renyi(name, (6, 12), 100, 2, math.exp(-3))
        distributions = [mechanism.posterior([c, 100 - c]) for c in range(101)]
        return sum(
            w * 50 * (2 * digamma(sum(distribution)) - digamma(distribution).sum())
            for w, distribution in zip(binomial, distributions, strict=True)
        )

    def noisy(name):
        std = gaussian_mechanism(name, (6, 12), 100, 2, math.exp(-3)).noise_std / math.sqrt(2)
        nodes, weights = np.polynomial.legendre.leggauss(400)
        y = 50 * (1 + nodes)
        total = 0.0
        for c, w in enumerate(binomial):
            distribution = stats.norm(c, std)
            inside = 50 * weights @ (distribution.pdf(y) * loss(y))
            total += w * (inside + distribution.cdf(0) * loss(0) + distribution.sf(100) * loss(100))
        return total

    return {
        "diffused": weakened("diffused"),
        "concentrated": weakened("concentrated"),
        "gaussian": noisy("gaussian"),
        "gaussian-tight": noisy("gaussian-tight"),
        "true-posterior": binomial @ loss(np.arange(101)),
    }


def test_expected_losses(summaries):
    stored = summaries["loglik"].expected_nll.sel(order=2.0, epsilon=math.exp(-3))
    for name, expected in independent_expectations().items():
        assert float(stored.sel(mechanism=name)) == pytest.approx(expected, rel=1e-9)


def test_draws_agree_with_their_expectations(summaries):
    """Mean losses on held-out records agree with expectations to five standard errors; a 5 % error is detected."""
    ds = summaries["loglik"]
    errors = abs(ds.heldout_nll_mean - ds.expected_nll) / ds.heldout_nll_mcse
    assert float(errors.max()) < 5
    wrong = abs(ds.heldout_nll_mean - 1.05 * ds.expected_nll) / ds.heldout_nll_mcse
    at_large = wrong.sel(epsilon=math.exp(2))
    assert float(at_large.min()) > 5


def test_records_and_heldout_records_are_independent():
    """Successes in records and in held-out records are independent, with the moments of 100 fair coin tosses each."""
    panel = STUDY.panel("loglik")
    streams = Streams(1, "s", "loglik", "data", {}, range(20_000))
    successes, heldout = panel.simulate(panel.fixed_values, streams)
    for ones in (successes, heldout):
        assert abs(ones.mean() - 50) < 5 * 5 / math.sqrt(20_000)
        assert abs(ones.var() - 25) < 5 * 25 * math.sqrt(2 / 20_000)
    assert abs(np.corrcoef(successes, heldout)[0, 1]) < 5 / math.sqrt(20_000)


def test_figures_show_the_stored_values(summaries):
    for figure in STUDY.figures:
        plots = figure.draw(summaries)
        assert all(plot.titles == ["order 2", "order 15"] and plot.x.title for plot in plots)
        is_kl = figure.name == "utility-kl"
        assert set(plots[0].series) == {*MECHANISMS[1:], "direct" if is_kl else "true-posterior (not private)"}
        ds = summaries[figure.panels[0]].sel(order=2.0, mechanism="diffused")
        column, measure = ("y", "kl") if is_kl else ("exact", "expected_nll")
        line = plots[0].rows.query("axes == 'order 2' and series == 'diffused'").set_index("x")[column].dropna()
        expected = ds[measure].to_series()
        np.testing.assert_array_equal(line, expected[expected > 0])
