"""Tests of posteriors given several values of the same counts, against enumeration of all counts."""

import itertools

import numpy as np
import pytest
from scipy import integrate, special, stats

from mechanisms import Noise, NoisyCounts, posterior_from_release
from mechanisms.core.noise import EXACT
from mechanisms.core.privacy import ConcentratedGuarantee, Guarantee, Neighbouring
from mechanisms.inference import noisy_counts
from mechanisms.inference.exact_posterior import exact_posterior
from mechanisms.inference.release_model import ReleaseModel
from mechanisms.tables import (
    RandomRounded,
    Rounded,
    SmallRounded,
    Suppressed,
    negative_binomial,
    table_posterior,
)
from tests.mechanisms.refusals import assert_refused
from tests.mechanisms.tables.test_enumeration import log_likelihood
from tests.statistical import assert_mean_within

GAUSS, LAPLACE, GEOMETRIC = Noise("gaussian", 1.5), Noise("laplace", 1.2), Noise("geometric", 1.2)
K_NORM = Noise("k-norm", 2.0)
DISCRETE = Noise("discrete-gaussian", 1.5)
ADD = Neighbouring.ADD_OR_REMOVE_ONE
ALPHA = np.array([0.5, 2.0, 1.5])


def likelihood(value, noise, seen, x):
    """Return the probability, or density, of one published value at each count x."""
    return np.exp([log_likelihood(value, noise, seen, one) for one in x.tolist()])


def enumerate_counts(k, measured, log_prior, largest):
    """Return all count vectors up to `largest` and their posterior probabilities."""
    x = np.array(list(itertools.product(range(largest + 1), repeat=k)))
    weights = np.exp(log_prior(x))
    grid = np.arange(k * largest + 1)
    for node, value, noise, seen in measured:
        weights *= likelihood(value, noise, seen, grid)[x.sum(axis=1) if node == "total" else x[:, node]]
    return x, weights / weights.sum()


def dirichlet(alpha, n=None):
    """Return the log prior of counts given n, or with unknown n."""

    def log_prior(x):
        found = (special.gammaln(x + alpha) - special.gammaln(x + 1)).sum(axis=1)
        return found if n is None else np.where(x.sum(axis=1) == n, found, -np.inf)

    return log_prior


def check_shares(found, alpha, x, weights, tolerance={"rtol": 1e-9}):  # noqa: B006
    """Compare mean, standard deviation and distribution function with those of a mixture of Dirichlet distributions."""
    a = alpha + x
    total = a.sum(axis=1, keepdims=True)
    mean = weights @ (a / total)
    second = weights @ (a * (a + 1) / (total * (total + 1)))
    cdf = weights @ special.betainc(a, total - a, 0.4)
    scalar = np.ndim(found.mean()) == 0
    pick = (lambda values: values[0]) if scalar else (lambda values: values)
    np.testing.assert_allclose(found.mean(), pick(mean), **tolerance)
    np.testing.assert_allclose(found.std(), pick(np.sqrt(second - mean**2)), **tolerance)
    np.testing.assert_allclose(found.cdf(0.4 if scalar else np.full(mean.size, 0.4)), pick(cdf), **tolerance)


CASES = {
    "standard deviations": ([4.2, 5.1, -0.4], [Noise("gaussian", s) for s in (0.5, 1.5, 3.0)], None, []),
    "discrete gaussian": ([4, 5, -1], DISCRETE, None, []),
    "geometric with total": ([4, 5, -1], GEOMETRIC, None, [("total", 11, DISCRETE)]),
    "two releases": ([4.2, 5.1, -0.4], GAUSS, None, [(0, 6.5, LAPLACE), (0, 3.0, GEOMETRIC), (2, 1.0, GAUSS)]),
    "clipped": ([4.2, 5.1, 0.0], GAUSS, "clipped", [(2, 0, GEOMETRIC, "clipped")]),
    "rounded": ([5, 5, 0], GAUSS, Rounded(5), []),
    "rounded geometric": ([5, 5, 0], GEOMETRIC, Rounded(5), []),
    "suppressed": ([4.2, 5.1, np.nan], LAPLACE, Suppressed(3), []),
    "mixed": ([4, 5, 0], [DISCRETE, EXACT, GAUSS], ["value", "value", "clipped"], [(1, 4.0, LAPLACE)]),
    "missing": ([4.2, 5.1, np.nan], GAUSS, None, [("total", 12.4, GAUSS)]),
}


def measured(y, noise, seen, more):
    """Return one (node, value, noise, seen) per published value."""
    kinds = noise if isinstance(noise, list) else [noise] * len(y)
    formats = seen if isinstance(seen, list) else [seen or "value"] * len(y)
    whole = [*zip(range(len(y)), y, kinds, formats, strict=True), *((*one, "value")[:4] for one in more)]
    return [one for one in whole if not np.isnan(one[1]) or isinstance(one[3], Suppressed)]


@pytest.mark.parametrize("name", CASES)
def test_shares_equal_enumeration(name):
    y, noise, seen, more = CASES[name]
    found = posterior_from_release(y, "multinomial", ALPHA, n=11, noise=noise, seen=seen, more=more)
    x, weights = enumerate_counts(3, measured(y, noise, seen, more), dirichlet(ALPHA, 11), 11)
    check_shares(found, ALPHA, x, weights)
    np.testing.assert_allclose(found.table.mean()[:3], weights @ x, rtol=1e-9, atol=1e-12)
    assert found.method == "exact"
    x, wrong = enumerate_counts(3, measured(y, noise, seen, more), dirichlet(ALPHA + 0.05, 11), 11)
    with pytest.raises(AssertionError):
        check_shares(found, ALPHA, x, wrong)


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("suppressed", "mixed")])
def test_shares_of_an_unknown_number_of_records_equal_enumeration(name, monkeypatch):
    y, noise, seen, more = CASES[name]
    rng = np.random.default_rng(1)
    found = posterior_from_release(y, "multinomial", ALPHA, noise=noise, seen=seen, more=more, rng=rng)
    x, weights = enumerate_counts(3, measured(y, noise, seen, more), dirichlet(ALPHA), 40)
    np.testing.assert_allclose(found.table.mean()[:3], weights @ x, rtol=1e-7)
    check_shares(found, ALPHA, x, weights, tolerance={"rtol": 2e-7})
    assert np.all(found.mcse() == 0)
    monkeypatch.setattr(noisy_counts, "_PAIRS", 0)
    found = posterior_from_release(y, "multinomial", ALPHA, noise=noise, seen=seen, more=more, rng=rng)
    check_shares(found, ALPHA, x, weights, tolerance={"atol": 5 * 0.5 / np.sqrt(20_000)})
    assert np.all(found.mcse() > 0)
    mean = weights @ ((ALPHA + x) / (ALPHA + x).sum(axis=1, keepdims=True))
    for j in range(3):
        draws = found.distribution.draws[..., j].ravel()
        assert_mean_within(draws, mean[j], wrong=1.05 * mean[j])


@pytest.mark.parametrize(
    ("y", "noise", "seen", "more"),
    [
        (4.2, GAUSS, None, [(0, 6.5, LAPLACE)]),
        (0.0, GAUSS, "clipped", []),
        (0, GEOMETRIC, "clipped", []),
        (5, EXACT, Rounded(5), []),
        (4.2, LAPLACE, None, [(1, 7.0, GAUSS)]),
    ],
)
def test_probability_equals_enumeration(y, noise, seen, more):
    """Two releases of one count, clipped and rounded counts, and a noisy count of the zeros."""
    found = posterior_from_release(y, "binomial", ALPHA[:2], n=11, noise=noise, seen=seen, more=more)
    x, weights = enumerate_counts(2, measured([y], noise, seen, more), dirichlet(ALPHA[:2], 11), 11)
    check_shares(found, ALPHA[:2], x, weights)
    assert isinstance(found.mean(), float)


def test_clipped_zero_has_the_information_of_a_negative_value_only_for_exponential_tails():
    for noise, is_same in ((LAPLACE, True), (GAUSS, False)):
        options = {"n": 11, "noise": noise}
        clipped = posterior_from_release(0.0, "binomial", (1, 1), seen="clipped", **options).mean()
        assert (clipped == pytest.approx(posterior_from_release(-2.0, "binomial", (1, 1), **options).mean())) == is_same


def test_probability_without_n_needs_the_total():
    rng = np.random.default_rng(2)
    found = posterior_from_release(4.2, "binomial", (0.5, 2), noise=GAUSS, more=[("total", 11, GEOMETRIC)], rng=rng)
    values = [(0, 4.2, GAUSS, "value"), ("total", 11, GEOMETRIC, "value")]
    x, weights = enumerate_counts(2, values, dirichlet(ALPHA[:2]), 60)
    check_shares(found, ALPHA[:2], x, weights, {"rtol": 2e-7})


@pytest.mark.parametrize("alpha", [(0.5, 0.5), (2.0, 0.1)])
def test_probability_without_n_and_with_heavy_priors_equals_enumeration(alpha):
    """The prior of the second count is wide and has a spike at 0; only the total bounds it."""
    rng, noise = np.random.default_rng(1), Noise("gaussian", 2.0)
    found = posterior_from_release(3.0, "binomial", alpha, noise=noise, more=[("total", 7.0, noise)], rng=rng)
    values = [(0, 3.0, noise, "value"), ("total", 7.0, noise, "value")]
    x, weights = enumerate_counts(2, values, dirichlet(np.array(alpha)), 40)
    np.testing.assert_allclose(found.table.mean()[:2], weights @ x, rtol=1e-7)
    is_exact = np.all(found.mcse() == 0)
    check_shares(
        found, np.array(alpha), x, weights, {"rtol": 2e-7} if is_exact else {"atol": 5 * 0.5 / np.sqrt(20_000)}
    )


@pytest.mark.parametrize(
    ("y", "exposure", "noise", "seen", "more"),
    [
        (21.4, 53.4, Noise("gaussian", 3.0), None, []),
        (21, 53.4, GEOMETRIC, None, [(0, 24.5, LAPLACE)]),
        ([21.4, 0.0], [53.4, 10.0], LAPLACE, ["value", "clipped"], [("total", 25.0, GAUSS)]),
    ],
)
def test_rates_equal_enumeration_and_quadrature(y, exposure, noise, seen, more):
    """A Poisson count with exposure E has p(y | θ) = Σ_c Poisson(c; θE)·p(y | c), and θ a gamma prior."""
    shape, rate, e = 2.0, 3.0, np.atleast_1d(exposure)
    found = posterior_from_release(y, "poisson", (shape, rate), exposure=exposure, noise=noise, seen=seen, more=more)

    def log_prior(x):
        return stats.nbinom.logpmf(x, shape, rate / (rate + e)).sum(axis=1)

    x, weights = enumerate_counts(e.size, measured(np.atleast_1d(y).tolist(), noise, seen, more), log_prior, 90)
    mean = weights @ ((shape + x) / (rate + e))
    second = weights @ ((shape + x) * (shape + x + 1) / (rate + e) ** 2)
    theta = np.full(e.size, 0.35)
    cdf = weights @ special.gammainc(shape + x, (rate + e) * theta)
    pick = (lambda values: values[0]) if np.ndim(y) == 0 else (lambda values: values)
    np.testing.assert_allclose(found.mean(), pick(mean), rtol=1e-9)
    np.testing.assert_allclose(found.std(), pick(np.sqrt(second - mean**2)), rtol=1e-8)
    np.testing.assert_allclose(found.cdf(pick(theta)), pick(cdf), rtol=1e-8)
    p = np.array([0.025, 0.5, 0.999])
    at = found.quantile(p)
    assert at.shape == (3, *np.shape(y))
    np.testing.assert_allclose(found.cdf(at), p if np.ndim(y) == 0 else np.tile(p[:, None], 2), rtol=1e-9)
    assert_mean_within(found.sample(np.random.default_rng(3), 20_000), pick(mean)) if np.ndim(y) == 0 else None
    if not more and np.ndim(y) == 0:
        counts = np.arange(120)

        def joint(t):
            return stats.gamma.pdf(t, shape, scale=1 / rate) * (
                stats.poisson.pmf(counts, t * exposure) @ likelihood(y, noise, "value", counts)
            )

        parts = [integrate.quad(joint, *ends, epsabs=0, epsrel=1e-11)[0] for ends in ((0, 0.35), (0.35, 3))]
        assert found.cdf(0.35) == pytest.approx(parts[0] / sum(parts), rel=1e-8)


@pytest.mark.parametrize("name", ["exponential", "poisson"])
def test_gaussian_noise_of_a_sum_equals_the_model_with_this_noise(name):
    model = ReleaseModel(name, 20, Noise("gaussian", 3.0), (0, 4), "clamp")
    options = {"n": 20, "bounds": (0, 4), "outside": "clamp", "noise": model.noise}
    found = posterior_from_release(25.0, name, (2.0, 3.0), **options)
    assert found.mean() == exact_posterior(model, (2.0, 3.0), 25.0).mean()
    assert found.guarantee.rho == pytest.approx(0.5 * (4 / 3) ** 2)


def test_odds_ratio_of_a_two_by_two_table():
    y, noise = [4.2, 2.0, 1.1, 5.0], Noise("gaussian", 1.0)
    found = posterior_from_release(y, "multinomial", np.ones(4), n=12, noise=noise)
    x, weights = enumerate_counts(4, measured(y, noise, None, []), dirichlet(np.ones(4), 12), 12)

    def log_odds(c):
        return np.log((c[:, 0] + 0.5) * (c[:, 3] + 0.5) / ((c[:, 1] + 0.5) * (c[:, 2] + 0.5)))

    ours = found.table.evaluate(log_odds, np.random.default_rng(4))
    assert abs(ours.mean - weights @ log_odds(x)) < 5 * ours.mcse
    assert abs(ours.mean - 1.2 * (weights @ log_odds(x))) > 5 * ours.mcse


@pytest.mark.parametrize("name", ["gaussian", "discrete-gaussian", "laplace", "geometric", "k-norm"])
def test_noise_with_its_scale_equals_enumeration(name):
    y, noise = [4, 5, 2], Noise(name, 1.5)
    found = posterior_from_release(y, "multinomial", ALPHA, n=11, noise=noise)
    same = Noise("geometric", 1.5) if name == "k-norm" else noise
    x, weights = enumerate_counts(3, measured(y, same, None, []), dirichlet(ALPHA, 11), 11)
    check_shares(found, ALPHA, x, weights)
    with_more = posterior_from_release(y, "multinomial", ALPHA, n=11, noise=noise, more=[(0, 6.5, GAUSS)])
    x, weights = enumerate_counts(3, measured(y, same, None, [(0, 6.5, GAUSS)]), dirichlet(ALPHA, 11), 11)
    check_shares(with_more, ALPHA, x, weights)


def test_repeated_k_norm_noise_is_geometric_noise_on_each_count():
    """Given n, the densities are proportional, so the remedy of the error has the posterior of both releases."""
    y, repeated, scale = [4, 5, 2], [3, 6, 2], 1.5
    more = [(j, value, Noise("geometric", scale)) for j, value in enumerate(repeated)]
    ours = NoisyCounts("multinomial", y, Noise("k-norm", scale), n=11, more=more).posterior(ALPHA)
    x, weights = enumerate_counts(3, [], dirichlet(ALPHA, 11), 11)
    for values in (y, repeated):  # the probability of k-norm noise z is ∝ exp(−‖z‖₁/scale) if its sum is 0
        weights = weights * np.exp(-np.abs(x - np.array(values)).sum(axis=1) / scale)
    check_shares(ours, ALPHA, x, weights / weights.sum())


def test_noise_of_add_or_remove_has_half_the_scale_of_replacement():
    """Lap(1/ε) on a histogram is ε-DP under addition or removal, and 2ε-DP under replacement."""
    y, options = [41.0, 39.0, 22.0], {"prior": (1, 1, 1), "n": 100}
    removed = posterior_from_release(y, "multinomial", epsilon=0.5, relation=ADD, **options)
    given = posterior_from_release(y, "multinomial", noise=Noise("laplace", 2.0), **options)
    replaced = posterior_from_release(y, "multinomial", epsilon=0.5, **options)
    np.testing.assert_array_equal(removed.mean(), given.mean())
    assert removed.guarantee == Guarantee(0.5, relation=ADD)
    assert given.guarantee == Guarantee(1.0)
    assert "laplace(2)" in repr(removed)
    assert "laplace(4)" in repr(replaced)
    k_norm = posterior_from_release([41.0, 37.0, 22.0], "multinomial", epsilon=0.5, noise="k-norm", **options)
    assert "k-norm(4)" in repr(k_norm)
    rate = posterior_from_release(21.4, "poisson", (1, 1), exposure=53.4, epsilon=0.5)
    assert "laplace(2)" in repr(rate)


@pytest.mark.parametrize(
    ("options", "guarantee"),
    [
        ({"noise": [GAUSS, GAUSS, GAUSS], "n": 11}, ConcentratedGuarantee(1 / 1.5**2)),
        ({"noise": [Noise("laplace", s) for s in (1.0, 2.0, 4.0)], "n": 11}, Guarantee(1.5)),
        (
            {"noise": [Noise("laplace", s) for s in (1.0, 2.0, 4.0)], "n": 11, "relation": ADD},
            Guarantee(1.0, relation=ADD),
        ),
        ({"noise": LAPLACE, "n": 11, "more": [("total", 9.0, LAPLACE)]}, Guarantee(2 / 1.2)),
        (
            {"noise": LAPLACE, "n": 11, "more": [("total", 9.0, LAPLACE)], "relation": ADD},
            Guarantee(2 / 1.2, relation=ADD),
        ),
        (
            {"noise": LAPLACE, "n": 11, "more": [(0, 9.0, GAUSS)]},
            ConcentratedGuarantee(0.5 * (2 / 1.2) ** 2 + 0.5 / 1.5**2),
        ),
        ({"noise": [EXACT, GAUSS, GAUSS], "n": 11}, None),
        ({"y": [np.nan] * 3, "noise": GAUSS, "n": 11, "more": [(0, 9.0, LAPLACE)]}, Guarantee(1 / 1.2)),
    ],
)
def test_guarantee_is_that_of_all_values(options, guarantee):
    found = NoisyCounts("multinomial", **{"y": [4, 5, 2], **options}).posterior((1, 1, 1))
    assert type(found.guarantee) is type(guarantee)
    if guarantee is None:
        assert "guarantee=none)" in repr(found)
        return
    loss, expected = (getattr(one, "epsilon", getattr(one, "rho", None)) for one in (found.guarantee, guarantee))
    assert loss == pytest.approx(expected, rel=1e-12)
    assert found.guarantee.relation is guarantee.relation


def test_a_loss_below_the_smallest_number_is_concentrated_and_not_zero():
    assert NoisyCounts("binomial", 4.0, Noise("gaussian", 1e170), 11).guarantee == ConcentratedGuarantee(5e-324)
    assert Noise("gaussian", 1e170).guarantee(1.0) == ConcentratedGuarantee(5e-324)


def test_proportions_with_noise_per_count_are_counts_divided_by_n():
    noise = [Noise("gaussian", s) for s in (0.5, 1.5, 3.0)]
    counts = posterior_from_release([4.2, 5.1, -0.4], "multinomial", ALPHA, n=11, noise=noise)
    small = [Noise("gaussian", one.scale / 11) for one in noise]
    shares = np.array([4.2, 5.1, -0.4]) / 11
    found = posterior_from_release(shares, "multinomial", ALPHA, n=11, noise=small, proportion=True)
    np.testing.assert_allclose(found.mean(), counts.mean(), rtol=1e-12)
    one = posterior_from_release(0.4, "binomial", (1, 1), n=11, noise=Noise("gaussian", 0.1), proportion=True)
    two = posterior_from_release(4.4, "binomial", (1, 1), n=11, noise=Noise("gaussian", 1.1))
    assert one.mean() == pytest.approx(two.mean(), rel=1e-12)


def test_distant_values_are_surprising_and_have_a_posterior():
    near = posterior_from_release(4.2, "binomial", (1, 1), n=11, noise=GAUSS, more=[(0, 5.0, LAPLACE)])
    far = posterior_from_release(-1e300, "binomial", (1, 1), n=11, noise=LAPLACE, more=[(0, 5.0, GAUSS)])
    assert far.is_surprising
    assert not near.is_surprising
    x, weights = enumerate_counts(
        2, [(0, -50.0, LAPLACE, "value"), (0, 5.0, GAUSS, "value")], dirichlet((1, 1), 11), 11
    )
    assert far.mean() == pytest.approx(weights @ ((1 + x[:, 0]) / 13), rel=1e-6)
    odd = Noise("geometric", 4 / 3)
    above = posterior_from_release(1e15, "binomial", (1, 1), n=11, noise=odd, more=[(0, 5.0, GAUSS)])
    nearer = posterior_from_release(80, "binomial", (1, 1), n=11, noise=odd, more=[(0, 5.0, GAUSS)])
    assert above.mean() == pytest.approx(nearer.mean(), rel=1e-6)
    apart = (above.table.log_marginal_likelihood - nearer.table.log_marginal_likelihood) * odd.scale
    assert apart == pytest.approx(80 - 1e15, rel=1e-9)


def test_tiny_priors_have_quantiles_and_draws():
    """Most rates and shares are below the smallest number; shares are 0 or 1, each with the probability of its mean."""
    rates = NoisyCounts("poisson", [9.0, -1.0], GEOMETRIC, exposure=[53.0, 2.0]).posterior((1e-3, 1e-3))
    p = np.array([0.5, 0.9, 0.999])
    at = rates.quantile(p)
    np.testing.assert_allclose(rates.cdf(at), np.tile(p[:, None], 2), rtol=1e-9)
    assert np.all(rates.quantile(1e-3) == 0.0)
    shares = NoisyCounts("multinomial", [0, 0, 0], GEOMETRIC).posterior([1e-4] * 3, np.random.default_rng(1))
    assert_mean_within(shares.sample(np.random.default_rng(2), 20_000)[:, 0], 1 / 3)
    nodes = table_posterior([0.0, 0.0, np.nan], [GEOMETRIC, GEOMETRIC, None], [2, 2, -1], negative_binomial(1e-4, 1e-4))
    assert_mean_within(nodes.theta.sample(np.random.default_rng(3), 20_000)[:, 0], 0.5)


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        ("epsilon must be None if noise has a scale, got 1", {"epsilon": 1.0}),
        ("epsilon must be given if noise has no scale, got None", {"noise": "laplace"}),
        ("noise must be a name, a Noise, EXACT or one per count, got 3.0", {"noise": 3.0}),
        ("noise must be a name, a Noise, EXACT or one per count, got 3.0", {"noise": [3.0, 3.0, 3.0]}),
        ("noise must be one or one per count, got 2 for 3 counts", {"noise": [GAUSS, GAUSS]}),
        ("seen must be one or one per count, got 2 for 3 counts", {"seen": ["value", "value"]}),
        ("Suppressed, Rounded, RandomRounded or SmallRounded, got 'floor'", {"seen": "floor"}),
        ("a clipped value must be >= 0", {"y": [-1.0, 5.0, 2.0], "seen": "clipped"}),
        ("rounded to the nearest must be a multiple of 5", {"seen": Rounded(5)}),
        (r"y must have one finite value per count, 3", {"y": [1.0, 2.0], "seen": "value"}),
        ("more must be a list of .node, value, noise, seen., got 3", {"more": [3]}),
        ("node must be 'total' or a count from 0 to 2, got 3", {"more": [(3, 1.0, GAUSS)]}),
        ("node must be 'total' or a count from 0 to 2, got 'all'", {"more": [("all", 1.0, GAUSS)]}),
        ("family must be poisson for exposure, got multinomial", {"exposure": 2.0}),
        ("n must be None with exposure, got 11", {"family": "poisson", "prior": (1, 1), "exposure": 2.0}),
        ("exposure must be finite and > 0", {"family": "poisson", "prior": (1, 1), "exposure": 0.0, "n": None}),
        ("n must be the number of records for the poisson family, got None; pass n, or exposure",
         {"family": "poisson", "prior": (1, 1), "n": None, "bounds": (0, 9)}),
        ("family must be binomial, multinomial, or poisson with exposure for more, got exponential",
         {"family": "exponential", "prior": (1, 1), "bounds": (0, 9), "more": [(0, 1.0, GAUSS)]}),
        ("n must be given unless all counts or their total have values",
         {"n": None, "y": [1.0, 2.0, np.nan], "rng": np.random.default_rng(1)}),
        ("rng must be a numpy Generator for shares of an unknown n", {"n": None}),
        ("n must be an integer >= 1", {"n": 0, "seen": "clipped"}),
        ("relation must be a Neighbouring", {"relation": "add-remove"}),
        ("relation must be REPLACE_ONE for k-norm noise", {"noise": Noise("k-norm", 2.0), "relation": ADD}),
        ("k-norm noise must be that of all counts, with sum n",
         {"noise": Noise("k-norm", 2.0), "n": None, "rng": np.random.default_rng(1)}),
        ("proportion must be False with seen, got True", {"proportion": True, "seen": "clipped"}),
        ("noise of a proportion must be laplace or gaussian, got geometric", {"proportion": True, "noise": GEOMETRIC}),
        ("bounds, parameter_range and variance must be None for counts", {"bounds": (0, 1), "seen": "clipped"}),
        ("prior must have one alpha per category", {"prior": (1.0,), "y": [4.2], "seen": "value"}),
        (r"prior \(alpha\) must be given", {"prior": None, "seen": "value"}),
    ],
)  # fmt: skip
def test_unsupported_combinations_are_refused_in_one_line(message, changes):
    arguments = {"y": [4.2, 5.1, 2.0], "family": "multinomial", "prior": ALPHA, "n": 11, "noise": GAUSS, **changes}
    assert_refused(lambda: posterior_from_release(**arguments), message)


@pytest.mark.parametrize(("y", "form", "likelihood"), [
    (3, RandomRounded(3), {1: 1, 2: 2, 3: 3, 4: 2, 5: 1}), (0, SmallRounded(5), {0: 5, 1: 4, 2: 3, 3: 2, 4: 1}),
])  # fmt: skip
def test_counts_rounded_at_random_have_a_posterior(y, form, likelihood):
    posterior = posterior_from_release(y, "binomial", (1, 1), n=10, noise=EXACT, seen=form)
    weights = np.array([likelihood.get(count, 0) for count in range(11)], float)  # the prior of the count is uniform
    assert posterior.mean() == pytest.approx(weights @ (np.arange(11) + 1.0) / 12.0 / weights.sum(), rel=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_counts_equal_those_of_the_function_with_the_same_values(name):
    y, noise, seen, more = CASES[name]
    counts = NoisyCounts("multinomial", y, noise, n=11, seen=seen or "value", more=more, relation=ADD)
    ours = counts.posterior(ALPHA)
    expected = posterior_from_release(
        y, "multinomial", ALPHA, n=11, noise=noise, seen=seen or "value", more=more, relation=ADD
    )
    np.testing.assert_array_equal(ours.interval(), expected.interval())
    assert repr(ours) == repr(expected)
    assert ours.guarantee == counts.guarantee


def test_counts_are_a_copy_that_cannot_change():
    y = np.array([4.2, 5.1, 2.0])
    counts = NoisyCounts("multinomial", y, GAUSS, n=11)
    y[0] = 99.0
    assert counts.posterior(ALPHA).release.tolist() == [4.2, 5.1, 2.0]
    assert [value for _, value, _, _ in counts.measured] == [4.2, 5.1, 2.0]
    assert (counts.k, counts.is_scalar, counts.is_surprising()) == (3, False, False)


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        ("family must be binomial, multinomial, or poisson with exposure, got normal; use SumRelease",
         {"family": "normal"}),
        ("noise must be a Noise, EXACT or one per count, got 'laplace'; pass a Noise", {"noise": "laplace"}),
        ("y must have one finite value per count, 3, got an array of shape .1, 3.", {"y": [[4.0, 5.0, 2.0]]}),
        ("y must have one finite value per count, 2, got an array of shape .3,.", {"prior": (1, 1)}),
        ("y must have one finite value per count, 1", {"family": "binomial"}),
        ("y must have one finite value per count, 1, got an array of shape .0,.", {"y": []}),
        ("exposure must be one number, or one per count, 3, got an array of shape .2,.; pass 3",
         {"family": "poisson", "n": None, "exposure": [1.0, 2.0]}),
        ("exposure must be one number, or one per count, 3, got an array of shape .1, 3.; pass 3",
         {"family": "poisson", "n": None, "exposure": [[1.0, 2.0, 3.0]]}),
        ("noise must be k-norm for all counts or for none", {"noise": [K_NORM, GAUSS, GAUSS]}),
        ("noise must be k-norm for all counts or for none", {"noise": [K_NORM, K_NORM, Noise("k-norm", 3.0)]}),
        ("k-norm noise must be that of all counts, with sum n = 12, got the sum 11", {"noise": K_NORM, "n": 12}),
        ("noise in more must not be k-norm, .*, got it for node 0; pass geometric noise",
         {"more": [(0, 4.0, K_NORM)]}),
        ("noise in more must not be k-norm", {"more": [(0, 4.0, K_NORM)], "relation": ADD}),
        ("noise in more must be a Noise or EXACT, got 'laplace' for node 0", {"more": [(0, 4.0, "laplace")]}),
        ("value in more must be one finite number, or NaN, got an array of shape .2,. for node 0",
         {"more": [(0, [4.0, 5.0], GAUSS)]}),
        ("value in more must be one finite number, or NaN, got inf for node 0", {"more": [(0, np.inf, GAUSS)]}),
        ("prior must have one alpha per category", {"prior": [[1.0], [2.0, 3.0]]}),
    ],
)  # fmt: skip
def test_invalid_counts_are_refused_in_one_line(message, changes):
    arguments = {"family": "multinomial", "y": [4.0, 5.0, 2.0], "noise": GAUSS, "n": 11, "prior": ALPHA, **changes}
    prior = arguments.pop("prior")
    assert_refused(lambda: NoisyCounts(**arguments).posterior(prior), message)


def test_counts_of_which_none_is_published_have_the_prior():
    posterior = NoisyCounts("multinomial", [np.nan] * 3, LAPLACE, 11).posterior(ALPHA)
    np.testing.assert_allclose(posterior.mean(), ALPHA / ALPHA.sum())
    assert posterior.guarantee is None
