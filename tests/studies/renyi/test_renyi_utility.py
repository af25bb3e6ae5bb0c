"""Tests of the study `renyi-utility`."""

import math

import numpy as np
import pytest
import xarray as xr
from scipy import stats
from scipy.special import digamma

import pipeline
from mechanisms.renyi.gaussian_counts import gaussian_mechanism
from mechanisms.renyi.sampling import calibrate_renyi
from pipeline import Streams
from pipeline.declare.claims import VERDICTS
from pipeline.execution.rerun import rerun_trial
from pipeline.run import study_of
from pipeline.stores.store import ResultStore
from studies import STUDIES
from studies.figures import render
from studies.renyi.renyi_utility import STUDY
from studies.report import drawable, judge, load_summaries
from studies.styles import INK

POWERS = (-15, -10, -9.5, -5, -3, -2, -1, 0, 2)
EPSILONS = [math.exp(power) for power in POWERS]
MECHANISMS = ["direct", "diffused", "concentrated", "gaussian", "gaussian-tight"]
EXPECTED = {claim.name: VERDICTS[claim.kind][0] for claim in STUDY.claims} | {"limit-of-concentrated": "corrected"}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Run both panels with fewer epsilon and few trials."""
    path = tmp_path_factory.mktemp("study") / "s.zarr"
    pipeline.run(STUDY, path, trials=300, values={"epsilon": EPSILONS})
    return path


@pytest.fixture(scope="module")
def summaries(store):
    return load_summaries(store, study=STUDY)


def verdicts(summaries):
    return {claim.name: finding.verdict for claim, finding in judge(STUDY, summaries)}


def test_store_layout(store):
    """Check groups, dimensions, coordinates and measures as read by xarray."""
    kl = xr.open_zarr(store, group="kl").load()
    for name in ("kl", "coefficient", "spent_epsilon", "mass_at_zero", "mass_at_n", "status"):
        assert kl[name].dims == ("order", "epsilon", "mechanism")
    assert kl.mechanism.values.tolist() == MECHANISMS
    assert (kl.prior.item(), int(kl.n), int(kl.successes)) == ("6:12", 100, 38)
    assert kl.order.values.tolist() == [2, 15]
    direct = kl.status.sel(mechanism="direct")
    np.testing.assert_array_equal(direct == 1, [np.array(EPSILONS) >= 0.19129, [False] * len(EPSILONS)])
    assert (direct.where(direct != 1, 5) == 5).all()
    assert (kl.status.sel(mechanism=MECHANISMS[1:]) == 1).all()
    loglik = xr.open_zarr(store, group="loglik").load()
    assert loglik.heldout_nll.dims == ("order", "epsilon", "mechanism", "trial")
    assert loglik.expected_nll.dims == ("order", "epsilon", "mechanism")
    assert loglik.mechanism.values.tolist() == [*MECHANISMS[1:], "true-posterior"]
    assert (float(loglik.probability), int(loglik.n), int(loglik.n_heldout)) == (0.5, 100, 100)
    assert (loglik.status == 1).all()
    assert loglik.heldout_nll.attrs["units"] == kl.kl.attrs["units"] == "nat"
    reference = loglik.heldout_nll.sel(mechanism="true-posterior")
    assert (reference == reference.isel(order=0, epsilon=0)).all()  # computed once per trial


def test_grid():
    """The grid is that of P3: epsilon from e^-10 and from e^-15 to e^2, and 10,000 trials."""
    for panel, first, trials in ((STUDY.panels[0], -10, None), (STUDY.panels[1], -15, 10_000)):
        spec = panel.spec()
        assert np.log(spec["method_factors"]["epsilon"]).tolist() == pytest.approx(list(np.arange(first, 2.1, 0.5)))
        assert spec["method_factors"]["order"] == [2, 15]
        assert spec["trials"] == trials


def test_known_divergences(summaries):
    """Compare divergences of posteriors with quadrature; divergences of noisy counts have separate tests."""
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
    """Return E[−ln p(X_H | θ)] at order 2, epsilon e^-3 by sums over all data and, for noisy counts, quadrature."""
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
    """Compare expected losses with an independent implementation."""
    stored = summaries["loglik"].expected_nll.sel(order=2.0, epsilon=math.exp(-3))
    for name, expected in independent_expectations().items():
        assert float(stored.sel(mechanism=name)) == pytest.approx(expected, rel=1e-9)


def test_draws_agree_with_their_expectations(summaries):
    """Means agree within five standard errors at every setting; an error of 5 % is detected."""
    ds = summaries["loglik"]
    errors = abs(ds.heldout_nll_mean - ds.expected_nll) / ds.heldout_nll_mcse
    assert float(errors.max()) < 5
    wrong = abs(ds.heldout_nll_mean - 1.05 * ds.expected_nll) / ds.heldout_nll_mcse
    at_large = wrong.sel(epsilon=math.exp(2))
    assert float(at_large.min()) > 5


def test_verdicts(summaries):
    findings = {claim.name: finding for claim, finding in judge(STUDY, summaries)}
    assert {name: finding.verdict for name, finding in findings.items()} == EXPECTED
    assert "exactly 0 at the 3 stored epsilon above it and positive at the 6 below" in (
        findings["direct-is-reached"].evidence
    )
    assert "diffused 0.09773 (limit 0.09773), concentrated 0.02216 (limit 0.02216)" in findings["bounded-away"].evidence
    assert "75.2039 at the mean of the prior, 0.3333, and 76.8922 at its mode" in (
        findings["limit-of-concentrated"].evidence
    )
    assert "Order 15, better at 6 of 9 epsilon; best: diffused at e^-15 to e^-2, gaussian-tight at e^-1 to e^2." in (
        findings["kl-ahead-of-gaussian-tight"].evidence
    )


ANY = slice(None)
WRONG = {
    "direct-is-reached": [
        ("kl", "kl", "diffused", 2.0, 0, lambda x: x + 1e-9),
        ("kl", "kl", "concentrated", 2.0, -2, lambda x: 0 * x),
        ("kl", "kl", "gaussian", 2.0, 2, lambda x: 0 * x),
    ],
    "bounded-away": [
        ("kl", "kl", "concentrated", 15.0, 2, lambda x: 0.9 * x),
        ("kl", "coefficient", "diffused", 15.0, 2, lambda x: 1.05 * x),
        ("kl", "kl", "gaussian", 15.0, 2, lambda x: x + 0.1),
    ],
    "diffused-degrades-to-the-prior": [
        ("kl", "kl", "diffused", ANY, -15, lambda x: 0.89 * x),
        ("kl", "kl", "diffused", 2.0, -15, lambda x: 1.05 * x),
    ],
    "concentrated-degrades-to-a-point": [("kl", "kl", "concentrated", 2.0, -15, lambda x: x / 5)],
    "gaussian-is-bimodal": [
        ("kl", "mass_at_n", "gaussian", ANY, -15, lambda x: x / 3),
        ("kl", "mass_at_zero", "gaussian-tight", 2.0, -5, lambda x: x + 1),
    ],
    "spent-epsilon": [
        ("kl", "spent_epsilon", "gaussian", 15.0, 0, lambda x: 2 * x),
        ("kl", "spent_epsilon", "diffused", 2.0, -3, lambda x: 1.05 * x),
        ("kl", "spent_epsilon", "concentrated", 2.0, -3, lambda x: 0.95 * x),
    ],
    "kl-ahead-of-gaussian": [("kl", "kl", "gaussian", 15.0, ANY, lambda x: 0 * x)],
    "nll-ahead-of-gaussian": [("loglik", "expected_nll", "gaussian", 2.0, ANY, lambda x: 0 * x)],
    "kl-ahead-of-gaussian-tight": [("kl", "kl", "gaussian-tight", 2.0, ANY, lambda x: 0 * x)],
    "nll-ahead-of-gaussian-tight": [("loglik", "expected_nll", "gaussian-tight", 2.0, ANY, lambda x: 0 * x)],
    "kl-tight-ahead-of-published": [("kl", "kl", "gaussian-tight", 2.0, 0, lambda x: 5 * x)],
    "nll-tight-ahead-of-published": [("loglik", "expected_nll", "gaussian", 2.0, 0, lambda x: x - 1)],
    "same-limits": [
        ("loglik", "expected_nll", "diffused", 2.0, 0, lambda x: x + 0.01),
        ("loglik", "expected_nll", "gaussian", 15.0, 2, lambda x: x - 1),
    ],
    "favours-concentrated": [("loglik", "expected_nll", "diffused", 15.0, -15, lambda x: x - 5)],
    "limit-of-concentrated": [("loglik", "expected_nll", "concentrated", 2.0, -15, lambda x: x + 1)],
    "draws-agree": [("loglik", "expected_nll", "true-posterior", 2.0, -3, lambda x: 1.05 * x)],
}


def replace_value(summaries, panel, measure, mechanism, order, power, change):
    changed = summaries[panel].copy(deep=True)
    place = {"mechanism": mechanism, "order": order, "epsilon": power if power == ANY else math.exp(power)}
    changed[measure].loc[place] = change(changed[measure].loc[place])
    return {**summaries, panel: changed}


@pytest.mark.parametrize("claim", STUDY.claims, ids=lambda claim: claim.name)
def test_every_claim_fails_on_wrong_results(summaries, claim):
    for change in WRONG[claim.name]:
        assert claim.judge(replace_value(summaries, *change)).verdict == VERDICTS[claim.kind][1]


def test_limit_at_the_mode_reproduces_the_claim(summaries):
    (claim,) = (claim for claim in STUDY.claims if claim.name == "limit-of-concentrated")
    change = ("loglik", "expected_nll", "concentrated", ANY, -15, lambda x: 0 * x + 76.8922)
    assert claim.judge(replace_value(summaries, *change)).verdict == "reproduced"


def test_claims_without_results_are_undecided(summaries):
    few = {panel: ds.sel(epsilon=EPSILONS[2:-1]) for panel, ds in summaries.items()}
    assert {name for name, verdict in verdicts(few).items() if verdict != "undecided"} == {"draws-agree"}
    kl_alone = verdicts({"kl": summaries["kl"]})
    assert kl_alone["direct-is-reached"] == "reproduced"
    assert kl_alone["same-limits"] == kl_alone["draws-agree"] == "undecided"
    pending = summaries["loglik"].assign(n_pending=summaries["loglik"].n_pending + 1)
    assert verdicts({**summaries, "loglik": pending})["favours-concentrated"] == "undecided"


def test_trials_do_not_depend_on_the_grid(store, tmp_path):
    """Recomputed trials are identical, also in a store with fewer values and mechanisms."""
    opened = ResultStore.open(store)
    _, configured = study_of(opened, STUDY)
    reruns = rerun_trial(opened, configured, "loglik", {}, 123)
    assert all(rerun.equal for rerun in reruns)
    values = {"epsilon": EPSILONS[3:5], "order": [15.0], "mechanism": ["gaussian", "diffused"]}
    pipeline.run(STUDY, tmp_path / "s.zarr", panels=["loglik"], trials=40, values=values)
    small = xr.open_zarr(tmp_path / "s.zarr", group="loglik").load()
    large = xr.open_zarr(store, group="loglik").load().sel(values).isel(trial=slice(0, 40))
    np.testing.assert_array_equal(small.heldout_nll, large.heldout_nll)


def test_records_and_heldout_records_are_independent():
    """Simulated successes are independent and have the mean and variance of 100 fair trials."""
    panel = STUDY.panel("loglik")
    streams = Streams(1, "s", "loglik", "data", {}, range(20_000))
    data = panel.simulate(panel.fixed_values, streams)
    for ones in (data.successes, data.heldout):
        assert abs(ones.mean() - 50) < 5 * 5 / math.sqrt(20_000)
        assert abs(ones.var() - 25) < 5 * 25 * math.sqrt(2 / 20_000)
    assert abs(np.corrcoef(data.successes, data.heldout)[0, 1]) < 5 / math.sqrt(20_000)


@pytest.mark.parametrize(
    ("panel", "values", "message"),
    [
        ("kl", {"order": [0.5]}, "order must be a finite number >= 1"),
        ("kl", {"epsilon": [0.0]}, "epsilon must be a finite number > 0"),
        ("kl", {"prior": ["1:1:1"]}, "prior must have 2 entries"),
        ("kl", {"prior": ["1:0"]}, "prior must have positive"),
        ("kl", {"n": [0]}, "n must be an integer >= 1"),
        ("kl", {"successes": [101]}, r"successes must be in \[0, n = 100\]"),
        ("kl", {"successes": [-1]}, r"successes must be in \[0, n = 100\]"),
        ("loglik", {"n_heldout": [0]}, "n_heldout must be >= 1"),
        ("loglik", {"probability": [1.5]}, r"probability must be in \[0, 1\]"),
    ],
)
def test_invalid_values_raise(panel, values, message):
    with pytest.raises(ValueError, match=message):
        STUDY.configure(panels=[panel], values=values)


def test_every_figure_is_drawn(summaries):
    assert drawable(STUDY, summaries) == list(STUDY.figures)
    for figure in STUDY.figures:
        (svg,) = render(figure.draw, summaries, ["svg"])
        assert INK.encode() in svg
        drawn = figure.draw(summaries)
        assert [axes.get_title(loc="left") for axes in drawn.axes] == ["order 2", "order 15"] * 2
        assert all(axes.get_xlabel() and axes.get_ylabel() for axes in drawn.axes)
        labels = [text.get_text() for text in drawn.legends[0].get_texts()]
        last = "direct sampling" if figure.name == "utility-kl" else "true-posterior"
        assert labels == [*MECHANISMS[1:], last]
        ds = summaries[figure.panels[0]]
        measure = "kl" if figure.name == "utility-kl" else "expected_nll"
        np.testing.assert_array_equal(
            drawn.axes[0].get_lines()[0].get_ydata(), ds[measure].sel(order=2.0, mechanism="diffused")
        )


def test_study_is_registered():
    assert STUDIES["renyi-utility"] is STUDY
