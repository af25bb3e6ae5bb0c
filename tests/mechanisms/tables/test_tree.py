"""Tests of posteriors of noisy tables: contradictory levels, large tables, functions of the counts, and bad input."""

import math
import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from mechanisms.core.noise import EXACT, Noise
from mechanisms.core.protocols import Posterior
from mechanisms.tables import (
    GroupGrids,
    PriorGrid,
    RandomRounded,
    Rounded,
    SmallRounded,
    Suppressed,
    dirichlet_multinomial,
    fit_prior,
    kernels,
    messages,
    negative_binomial,
    poisson,
    table_posterior,
    tree,
    uniform,
)
from mechanisms.tables.solve import solve
from mechanisms.tables.tilts import Leaves
from tests.mechanisms.refusals import assert_refused
from tests.statistical import assert_frequencies

NAN = math.nan
GAUSSIAN = Noise("gaussian", 3.0)


@pytest.mark.parametrize("distance", [250, 1_000, 20_000])
def test_contradictory_levels_equal_long_double_convolution(distance):
    """Sixteen leaves with σ = 5 and a root that is far from their sum; all sums are of products of long doubles."""
    y, top = np.full(16, 100.0), 1_600.0 + distance
    values, parents = np.append(y, top), [16] * 16 + [-1]
    posterior = table_posterior(values, Noise("gaussian", 5.0), parents, uniform())
    assert posterior.mean()[16] == pytest.approx(1_600 + distance * 16 / 17, abs=1e-6)
    assert posterior.error <= 1e-12
    if distance <= 1_000:  # within the range of long doubles
        x = np.arange(int(200 + distance / 8), dtype=np.longdouble)
        total = np.exp(-((x - 100) ** 2) / 50)
        for _ in range(4):  # 16 equal leaves
            total = np.convolve(total, total)
        joint = total * np.exp(-((np.arange(total.size, dtype=np.longdouble) - top) ** 2) / 50)
        p = (joint / joint.sum()).astype(float)
        support, found = posterior.pmf(16)
        assert 0.5 * (np.abs(found - p[support]).sum() + 1.0 - p[support].sum()) <= 1e-12


def grouped(rng, groups, sigma, shape=0.6, mean=12.0):
    """Return true counts, noisy counts and parents of a tree in which each node of a level has the given children."""
    leaves = math.prod(groups)
    levels = [rng.negative_binomial(shape, shape / (shape + mean), leaves)]
    parents, start = [], 0
    for size in reversed(groups):
        n = levels[-1].size
        parents.append(start + n + np.arange(n) // size)
        levels.append(levels[-1].reshape(-1, size).sum(axis=1))
        start += n
    truth = np.concatenate(levels)
    return truth, truth + rng.normal(0.0, sigma, truth.size), np.append(np.concatenate(parents), -1)


def least_squares(y, parents, groups, sigma):
    """Return generalised least squares estimates of the leaves, and their standard deviation."""
    sizes = [math.prod(groups[:i]) for i in range(len(groups), -1, -1)]
    levels = np.split(y, np.cumsum(sizes)[:-1])
    up, var = [levels[0]], [sigma**2]
    for level, size in zip(levels[1:], reversed(groups), strict=True):
        below, v = up[-1].reshape(-1, size).sum(axis=1), var[-1] * size
        gain = v / (v + sigma**2)
        up.append(below + gain * (level - below))
        var.append(v * (1 - gain))
    estimate, spread = up[-1], var[-1]
    for i, size in zip(range(len(groups) - 1, -1, -1), groups, strict=True):
        gap = estimate - up[i].reshape(-1, size).sum(axis=1)
        estimate = up[i] + np.repeat(gap, size) / size
        spread = var[i] - var[i] / size + spread / size**2
    return estimate, math.sqrt(spread)


@pytest.mark.slow
def test_tree_of_ten_thousand_leaves_is_calibrated_and_narrower_than_least_squares():
    groups, n = (20, 20, 25), 10_000
    rng = np.random.default_rng(5)
    truth, y, parents = grouped(rng, groups, 5.0)
    posterior = table_posterior(y, Noise("gaussian", 5.0), parents, negative_binomial(0.6, 12.0))
    low, high = posterior.interval()
    estimate, spread = least_squares(y, parents, groups, 5.0)
    rmse = np.sqrt(np.mean((posterior.mean()[:n] - truth[:n]) ** 2))
    assert rmse == pytest.approx(4.04, abs=0.1)
    assert np.sqrt(np.mean((estimate - truth[:n]) ** 2)) == pytest.approx(4.9, abs=0.1)
    small = truth[:n] < 20
    assert (high - low)[:n][small].mean() <= 0.75 * 2 * 1.96 * spread
    below, upto = posterior.cdf(truth - 1.0), posterior.cdf(truth.astype(float))
    pit = below + rng.random(truth.size) * (upto - below)
    assert stats.kstest(pit[:n:25], "uniform").pvalue > 1e-6
    assert np.mean((pit[:n] > 0.025) & (pit[:n] < 0.975)) == pytest.approx(0.95, abs=5 * math.sqrt(0.05 * 0.95 / n))
    wrong = table_posterior(y, Noise("gaussian", 5.0), parents, negative_binomial(5.0, 12.0))
    below, upto = wrong.cdf(truth - 1.0), wrong.cdf(truth.astype(float))
    assert stats.kstest((below + rng.random(truth.size) * (upto - below))[:n:25], "uniform").pvalue < 1e-6


@pytest.mark.slow
def test_fitted_prior_is_near_the_truth_and_gives_a_posterior():
    _, y, parents = grouped(np.random.default_rng(2), (8, 25), 2.0)
    grid = fit_prior(y, Noise("gaussian", 2.0), parents)
    best = grid.priors[int(np.argmax(grid.weights))]
    assert best.parameters == (pytest.approx(0.6, rel=0.4), pytest.approx(12.0, rel=0.4))
    posterior = table_posterior(y, Noise("gaussian", 2.0), parents, grid)
    fixed = table_posterior(y, Noise("gaussian", 2.0), parents, best)
    np.testing.assert_allclose(posterior.mean(), fixed.mean(), atol=0.5)
    draws = posterior.sample(np.random.default_rng(1), 2_000)
    np.testing.assert_allclose(draws.mean(axis=0), posterior.mean(), atol=5 * posterior.std().max() / math.sqrt(2_000))


def test_k_norm_table_equals_geometric_table():
    values, parents, alpha = [52.0, 31.0, 17.0], [3, 3, 3, -1], dirichlet_multinomial((0.5, 1.0, 2.0))
    total = [*values, 100.0]
    k_norm = table_posterior(total, [Noise("k-norm", 4.0)] * 3 + [EXACT], parents, alpha)
    geometric = table_posterior([*values, NAN], Noise("geometric", 4.0), parents, alpha, n=100)
    np.testing.assert_allclose(k_norm.mean(), geometric.mean(), rtol=1e-13)
    assert k_norm.theta.mean().sum() == pytest.approx(2.0)  # of three shares and the root's


@pytest.mark.parametrize("prior", [dirichlet_multinomial((1.0, 1.0, 2.0)), poisson(2.0)])
def test_marginal_likelihood_of_k_norm_noise_equals_enumeration(prior):
    noise, y = Noise("k-norm", 2.0), np.array([3.0, 4.0, 1.0])
    x = np.array([(a, b, 8 - a - b) for a in range(9) for b in range(9 - a)])
    if prior.name == "poisson":
        log_prior = stats.poisson.logpmf(x, 2.0).sum(axis=1)
    else:
        log_prior = stats.dirichlet_multinomial(prior.parameters, 8).logpmf(x)
    exact = special.logsumexp(log_prior + noise.log_prob(y - x))
    found = table_posterior([*y, 8.0], [noise] * 3 + [EXACT], [3, 3, 3, -1], prior)
    assert found.log_marginal_likelihood == pytest.approx(exact, abs=1e-10)


def test_theta_and_shares_follow_their_draws():
    values, parents = [5.0, 2.0, 0.0, NAN, NAN], [3, 3, 4, 4, -1]
    posterior = table_posterior(values, Noise("geometric", 1.5), parents, dirichlet_multinomial(0.7), n=9)
    rng = np.random.default_rng(4)
    for exact in (posterior.theta, posterior.shares(3)):
        assert isinstance(exact, Posterior)
        draws = exact.sample(rng, 20_000)
        varies = exact.std() > 0
        z = (draws.mean(axis=0) - exact.mean())[varies] / (exact.std()[varies] / math.sqrt(20_000))
        assert np.all(np.abs(z) < 5)
        p = exact.cdf(0.4)
        assert np.all(np.abs(np.mean(draws <= 0.4, axis=0) - p) < 5 * np.sqrt(p * (1 - p) / 20_000) + 1e-12)
        low, high = exact.interval(0.9)
        assert np.all(low <= high)
    ratio = posterior.evaluate(lambda counts: (counts[:, 0] + 0.5) / (counts[:, 1] + 0.5), rng, 1_000)
    assert ratio.mcse == pytest.approx(ratio.std / math.sqrt(1_000))


@pytest.mark.parametrize("parents", [[3, 3, 3, -1], [3, 3, -1, 2, 2]])
def test_theta_without_total_is_the_mixture_over_totals(parents):
    """Given the total, negative binomial counts with one q are Dirichlet-multinomial."""
    noise, leaves = Noise("geometric", 2.0), [i for i in range(len(parents)) if i not in parents]
    alpha, root = np.array([0.5, 1.0, 2.0]), parents.index(-1)
    values = [3.0, 7.0, 21.0, 12.0, 13.0][: len(parents)]
    posterior = table_posterior(values, noise, parents, [negative_binomial(a, 4.0 * a) for a in alpha])
    mean, square, cdf = np.zeros((3, len(leaves)))
    for n, p in zip(*posterior.pmf(root), strict=True):
        if p > 1e-13:
            one = table_posterior(values, noise, parents, dirichlet_multinomial(alpha), n=n).theta
            mean += p * one.mean()[leaves]
            square += p * (one.std() ** 2 + one.mean() ** 2)[leaves]
            cdf += p * one.cdf(0.3)[leaves]
    theta = posterior.theta
    np.testing.assert_allclose(theta.mean()[leaves], mean, rtol=1e-10)
    np.testing.assert_allclose(theta.std()[leaves], np.sqrt(square - mean**2), rtol=1e-9)
    np.testing.assert_allclose(theta.cdf(0.3)[leaves], cdf, rtol=1e-10)
    np.testing.assert_allclose(theta.sample(np.random.default_rng(1), 3)[:, leaves].sum(axis=1), 1.0, rtol=1e-12)
    grid = PriorGrid((poisson(1.0), poisson(2.0)), (0.5, 0.5))
    for prior in ([negative_binomial(1, 4), negative_binomial(1, 5), poisson(1)], grid, uniform(40), poisson(0.5)):
        with pytest.raises(ValueError, match="theta needs"):
            table_posterior(values, noise, parents, prior).theta.mean()


def test_fourier_transforms_equal_sums_of_products(monkeypatch):
    """Sixteen counts of 20,000 records with a wide noise, whose convolutions are Fourier transforms."""
    rng = np.random.default_rng(6)
    counts = rng.multinomial(20_000, rng.dirichlet(np.full(16, 0.5)))
    values, parents = np.append(counts + Noise("geometric", 60.0).sample(rng, (16,)), NAN), [16] * 16 + [-1]
    arguments = (values, Noise("geometric", 60.0), parents, dirichlet_multinomial(0.5))
    fast = table_posterior(*arguments, n=20_000)
    monkeypatch.setattr(messages, "DIRECT", 1 << 60)
    slow = table_posterior(*arguments, n=20_000)
    assert 0.0 < slow.error < fast.error < 1e-10
    for one, other in ((fast.mean(), slow.mean()), (fast.std(), slow.std())):
        np.testing.assert_allclose(one[:16], other[:16], rtol=1e-10)
    at = np.append(counts, 20_000)
    np.testing.assert_allclose(fast.cdf(at), slow.cdf(at), atol=1e-11)


@settings(max_examples=200, deadline=None)
@given(
    sizes=st.tuples(*[st.integers(1, 14)] * 2),
    starts=st.tuples(*[st.integers(0, 9)] * 2),
    sign=st.sampled_from([1, -1]),
    low=st.integers(-20, 20),
    width=st.integers(1, 40),
    has_right=st.booleans(),
)
def test_convolutions_of_windows_equal_sums(sizes, starts, sign, low, width, has_right):
    """Σ f(s)·g(sign·(t − s)) of two windows, on any window of t."""
    values = np.random.default_rng(5).random(sum(sizes))
    pair = messages.Windows(np.array(starts), np.array([0, sizes[0]]), np.array(sizes), values)
    f, g = (dict(zip(pair.counts(i).tolist(), pair.of(i).tolist(), strict=True)) for i in (0, 1))
    g = g if has_right else {0: 1.0}
    expected = [sum(value * g.get(sign * (t - s), 0.0) for s, value in f.items()) for t in range(low, low + width)]
    found = np.full(width + 2, 7.0)
    one = [np.array([i]) for i in (0, 1 if has_right else -1, low, width, 1)]
    kernels.convolve(pair, one[0], pair, one[1], sign, one[2], one[3], one[4], found)
    np.testing.assert_allclose(found[1:-1], expected, rtol=1e-14, atol=0.0)
    assert found[0] == found[-1] == 7.0


def test_result_has_an_error_bound_if_levels_contradict_each_other():
    """In an earlier version, a bound that was no number made the search for better tilts end."""
    rng = np.random.default_rng(1)
    truth, y, parents = grouped(rng, (8, 10, 10), 5.0)
    y = np.rint(y)
    y[:800] += 30.0 * rng.choice([-1, 1], 800)
    posterior = table_posterior(np.maximum(y, 0.0), Noise("laplace", 5.0), parents, uniform(), seen="clipped")
    assert posterior.error <= 1e-10
    sums = np.zeros(truth.size)
    np.add.at(sums, parents[:-1], posterior.mean()[:-1])
    np.testing.assert_allclose(sums[800:], posterior.mean()[800:], rtol=1e-9)


def log_convolution(f, g):
    """Return ln Σ_s exp(f(s) + g(t − s)) of each t, at which no sum underflows."""
    found = np.full(f.size + g.size - 1, -np.inf)
    for s in np.flatnonzero(f > -np.inf):
        found[s : s + g.size] = np.logaddexp(found[s : s + g.size], f[s] + g)
    return found


def log_evidence(values, noise, parents, prior, sizes):
    """Return ln p(y) of a tree in which parents precede children, with counts of leaves below `sizes`."""
    log_p = [np.zeros(1)] * len(values)
    for i in range(len(values) - 1, -1, -1):
        found = log_p[i] if i in parents else prior.logpmf(np.arange(sizes[i]))
        if not math.isnan(values[i]):
            found = found + noise[i].log_prob((values[i] - np.arange(found.size))[:, None])
        if i > 0:
            log_p[parents[i]] = log_convolution(log_p[parents[i]], found)
    return special.logsumexp(found)


@pytest.mark.slow
def test_contradictions_of_many_narrow_values_equal_convolutions_of_logarithms():
    """Values of both levels differ by hundreds of scales; tilts that only centre totals had no finite error bound."""
    parents = np.array([-1, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, *np.repeat(range(3, 11), [3, 4, 5, 3, 4, 2, 6, 2])])
    values = [297, 171, 142, 28, 37, 274, 17.2, 42.7, -29.5, 56.1, 34.4, -31.8, -56.9, 8.5, 4, 8, 12, 7, 12, 19, 11.5,
              136.8, 8.6, 14.6, 12.5, 196.7, 6, 2, 17, 11, 186, 10.2, -23.8, 13.5, 7, 3.9, 7, 16, 12, 56.3]  # fmt: skip
    scales = [6.6, 3.1, 3.1, 2.5, 0.4, 0.5, 3.3, 0.8, 1.2, 6.8, 5.5, 18.6, 3.1, 1.1, 1, 5.1, 0.6, 1, 5.3, 0.8, 1.6, 3.7,
              5.5, 3.5, 3.9, 8.2, 0.8, 3.4, 1.9, 1.5, 2.8, 1.6, 0.8, 0.8, 1.7, 2.7, 1.8, 2.5, 1, 5.9]  # fmt: skip
    kinds = "gdgdlglllallllgldggdlallllgggdgllagldgdl"
    names = {"g": "geometric", "d": "discrete-gaussian", "l": "laplace", "a": "gaussian"}
    noise = [Noise(names[kind], scale) for kind, scale in zip(kinds, scales, strict=True)]
    posterior = table_posterior(values, noise, parents, negative_binomial(0.6, 318.0))
    assert posterior.error <= 1e-10
    exact = log_evidence(values, noise, parents, stats.nbinom(0.6, 0.6 / 318.6), [400] * 40)
    assert posterior.log_marginal_likelihood == pytest.approx(exact, abs=1e-8)


def test_unmeasured_leaf_far_above_its_prior_mean_equals_convolutions_of_logarithms():
    """Its tilt was the rate at which its prior falls, so that its window had no end; the table was refused."""
    values, parents = [2331.0, 2325.0, 6.0, NAN, 3.0, 1.0, 2.0, 0.0, 0.0], np.array([-1, 0, 0, 1, 1, 1, 2, 2, 2])
    noise = Noise("geometric", 1.3)
    posterior = table_posterior(values, noise, parents, negative_binomial(0.33, 2.0))
    assert posterior.error <= 1e-12
    sizes = [3_000 if i == 3 else 100 for i in range(9)]
    exact = log_evidence(values, [noise] * 9, parents, stats.nbinom(0.33, 0.33 / 2.33), sizes)
    assert posterior.log_marginal_likelihood == pytest.approx(exact, abs=1e-8)


@pytest.mark.slow
def test_unmeasured_leaf_takes_the_rest_of_its_parent():
    """Tilts of heavy-tailed priors are bounded, so that an earlier refusal of this table does not return."""
    values = [412.3, 251.2, 166.5, 150.2, 90.1, 160.0, 100.5, 47.0, NAN, 61.5, 150.0]
    noise = [GAUSSIAN] * 5 + [EXACT] + [GAUSSIAN] * 5
    parents = [-1, 0, 0, 1, 1, 2, 3, 3, 4, 4, 5]
    posterior = table_posterior(values, noise, parents, negative_binomial(0.3, 83.0))
    assert posterior.error <= 1e-12
    assert posterior.mean()[8] == pytest.approx(32, abs=5)
    assert table_posterior(values, noise, parents, "auto").error <= 1e-9


def test_functions_of_draws_are_real_numbers():
    posterior = table_posterior([3.0, 1.0, NAN], GAUSSIAN, [2, 2, -1], poisson(2))
    rng = np.random.default_rng(1)
    for function in (lambda counts: counts[:, 0] * 1j, lambda counts: ["a"] * len(counts)):
        with pytest.raises(ValueError, match="must return real numbers"):
            posterior.evaluate(function, rng, 10)
    shares = posterior.shares(2)
    assert np.isnan(shares.cdf([NAN, 0.5])).tolist() == [True, False]
    assert_refused(lambda: shares.sample(rng, -1), "size must be an integer")


def test_cdf_of_nan_is_nan_and_shares_of_an_empty_node_are_refused():
    posterior = table_posterior([3.0, 1.0, NAN], GAUSSIAN, [2, 2, -1], poisson(2))
    assert np.isnan(posterior.cdf([NAN, 1.0, 1.0])).tolist() == [True, False, False]
    assert_refused(lambda: table_posterior([NAN, NAN], EXACT, [1, -1], poisson(2), n=0).shares(1), "which is empty")


@pytest.mark.parametrize(
    ("values", "noise", "seen"),
    [
        ([0.0, 0.0, 0.0], GAUSSIAN, "clipped"),
        ([0.0, 5.0, 5.0], GAUSSIAN, Rounded(5)),
        ([3.0, 1.0, 4.0], Noise("geometric", 1.0), "value"),
        ([3.0, 1.0, 4.0], Noise("discrete-gaussian", 20.0), "value"),
    ],
)
def test_tables_that_add_up_by_chance_are_accepted(values, noise, seen):
    assert table_posterior(values, noise, [2, 2, -1], poisson(2.0), seen=seen).error < 1e-10


def test_many_parents_that_equal_the_sums_of_their_children_are_refused():
    """Geometric noise of scale 1 makes one parent equal with probability < 0.47, ten with < 5e-4."""

    def build(pairs):
        parents = np.concatenate([np.repeat(np.arange(2 * pairs, 3 * pairs), 2), np.full(pairs, -1)])
        values = np.concatenate([np.full(2 * pairs, 2.0), np.full(pairs, 4.0)])
        table_posterior(values, Noise("geometric", 1.0), parents, poisson(2.0))

    build(8)
    assert_refused(lambda: build(10), "made consistent after the noise")


@pytest.mark.parametrize("mean", [1e4, 1.0, 1e-2, 1e-4, 1e-6, 1e-9])
@pytest.mark.parametrize("shape", [None, 0.01, 1.0, 50.0])
def test_priors_far_from_a_public_total_give_a_posterior(shape, mean):
    """The search for tilts had cycles, and caps of counts did not include the public total."""
    prior = poisson(mean) if shape is None else negative_binomial(shape, mean)
    for n, parents in ((21, [2, 2, -1]), (210, [3, 3, 4, 5, 5, -1])):
        found = table_posterior([NAN] * len(parents), EXACT, parents, prior, n=n)
        assert found.error <= 1e-12
        leaves = sum(i not in parents for i in range(len(parents)))
        np.testing.assert_allclose(found.mean()[0], n / leaves, rtol=1e-9)


@pytest.mark.parametrize("shape", [1e8, 1e16, 1e100, 1e300])
def test_negative_binomial_prior_with_a_large_shape_is_poisson(shape):
    """Differences of gamma functions have no digits for large shapes; windows of leaves were wrong."""
    values, parents = [3.0, 1.0, 2.0], [2, 2, -1]
    found = table_posterior(values, GAUSSIAN, parents, negative_binomial(shape, 2.0))
    exact = table_posterior(values, GAUSSIAN, parents, poisson(2.0))
    np.testing.assert_allclose(found.mean(), exact.mean(), rtol=1e-7)
    assert found.log_marginal_likelihood == pytest.approx(exact.log_marginal_likelihood, abs=1e-8)
    total = table_posterior([*values[:2], NAN], GAUSSIAN, parents, dirichlet_multinomial(shape), n=5)
    x = np.arange(6)
    log_p = stats.binom.logpmf(x, 5, 0.5) + GAUSSIAN.log_prob(np.stack([3.0 - x, x - 4.0], axis=1))
    assert total.log_marginal_likelihood == pytest.approx(special.logsumexp(log_p), abs=1e-7)


@pytest.mark.parametrize("form", [Suppressed(50_000), Rounded(50_000)])
def test_discrete_gaussian_noise_of_a_large_scale_is_gaussian(form):
    """Tables of probabilities were as large as the scale."""
    for scale in (3e4, 1e9):
        means = [
            table_posterior([NAN if form == Suppressed(50_000) else 0.0], Noise(name, scale), [-1], uniform(90_000),
                            seen=form).mean()
            for name in ("discrete-gaussian", "gaussian")
        ]  # fmt: skip
        assert means[0] == pytest.approx(means[1], rel=1e-4)


def test_discrete_gaussian_noise_at_counts_far_apart_needs_little_memory():
    """A table of probabilities covered the gap between the counts of both leaves, 240 MB at a bound of 10⁷."""

    def mean(*bounds):
        priors, parents = [uniform(bound) for bound in bounds], [-1] * len(bounds)
        noise = Noise("discrete-gaussian", 5.0)
        return table_posterior([NAN] * len(bounds), noise, parents, priors, seen=Suppressed(11)).mean()

    tracemalloc.start()
    together = mean(10**7, 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2e7
    np.testing.assert_allclose(together, [*mean(10**7), *mean(20)], rtol=1e-12)


@pytest.mark.parametrize("name", ["laplace", "geometric", "gaussian", "discrete-gaussian"])
def test_probabilities_of_narrow_intervals_have_no_cancellation(name):
    """At a scale of 1e12, all counts of 11 have nearly equal probabilities."""
    for x in (0, 3 * 10**11):
        priors = [uniform(0), uniform(10)] if x == 0 else [uniform(x), uniform(10)]
        values, noise = [NAN if x == 0 else float(x), 0.0, NAN], [EXACT, Noise(name, 1e12), EXACT]
        found = table_posterior(values, noise, [1, -1, 1], priors, seen=["value", Rounded(4), "value"])
        np.testing.assert_allclose(found.pmf(2)[1], 1.0 / 11.0, rtol=1e-9)


def test_too_little_memory_is_an_error_in_one_line(monkeypatch):
    def fail(*_):
        raise MemoryError

    monkeypatch.setattr(messages.Messages, "_combine", fail)
    assert_refused(lambda: table_posterior([3.0, 1.0, NAN], GAUSSIAN, [2, 2, -1], poisson(2)), "must fit in memory")


def test_repr_is_one_line_and_arviz_has_draws():
    posterior = table_posterior([3.0, 1.0, NAN], GAUSSIAN, [2, 2, -1], poisson(2))
    assert "\n" not in repr(posterior)
    assert dict(posterior.to_arviz(np.random.default_rng(1)).posterior.sizes) == {"chain": 4, "draw": 1000, "node": 3}


TREE = {"values": [3.0, 1.0, 9.0], "noise": GAUSSIAN, "parents": [2, 2, -1], "prior": poisson(2.0)}
INTEGER = Noise("geometric", 2.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"parents": [1, 0, -1]}, "no cycle"),
        ({"parents": [[2, 2], [2, 2], [-1, -1]]}, "one parent per node"),
        ({"parents": [2, 7, -1]}, "integers from -1 to 2"),
        ({"values": [3.0, NAN, NAN], "prior": uniform()}, "neither for node 1"),
        ({"values": [3.0, np.inf, NAN]}, "finite or NaN"),
        ({"values": [3.0, 1.0, 4.0]}, "made consistent after the noise"),
        ({"n": 7, "prior": uniform(3)}, "got 7 for node 2, where its parts allow 0 to 6"),
        ({"noise": [GAUSSIAN, EXACT, EXACT], "values": [NAN, 7.0, 3.0]}, "got 3 for node 2, where its parts"),
        ({"noise": [EXACT, GAUSSIAN, GAUSSIAN], "values": [1.5, 1.0, 9.0]}, "count must be an integer, got 1.5"),
        ({"noise": [EXACT, GAUSSIAN, GAUSSIAN], "values": [-1.0, 1.0, 9.0]}, "an exact count must be >= 0"),
        ({"noise": [EXACT] * 3, "values": [5.0, 1.0, 9.0], "prior": uniform(3)}, "got 5 for node 0, where its"),
        ({"prior": dirichlet_multinomial(1.0)}, "must have a public total"),
        ({"prior": dirichlet_multinomial((1.0, 1.0, 1.0)), "n": 9}, "one per leaf, got 3 for 2 leaves"),
        ({"prior": [dirichlet_multinomial(1.0), poisson(1.0)], "n": 9}, "for all leaves of a root or for none"),
        ({"prior": [poisson(1.0)] * 3}, "one or one per leaf, got 3 for 2 leaves"),
        ({"prior": "flat"}, "'auto' or a prior"),
        ({"noise": INTEGER, "values": [3.5, 1.0, 9.0]}, "geometric noise must be an integer, got 3.5 for node 0"),
        ({"noise": Noise("k-norm", 2.0)}, "k-norm noise must be that of all children"),
        ({"noise": [GAUSSIAN] * 2}, "one or one per node, got 2 for 3 nodes"),
        ({"noise": [GAUSSIAN, None, GAUSSIAN]}, "got None for node 1"),
        ({"seen": "censored"}, "seen must be"),
        ({"seen": "clipped", "values": [-1.0, 1.0, 9.0]}, "clipped value must be >= 0"),
        ({"seen": Suppressed(5)}, "a value must be missing or >= the threshold 5, got 3 for node 0"),
        ({"seen": Rounded(5)}, "to the nearest must be a multiple of 5, got 3 for node 0; check the base, or state "
                               "another format, such as random rounding"),
        ({"seen": RandomRounded(5)}, "rounded at random must have no noise, got 3 for node 0"),
        ({"seen": RandomRounded(5), "noise": EXACT}, "rounded at random must be a multiple of 5, got 3 for node 0"),
        ({"seen": SmallRounded(5), "noise": EXACT}, "must be 0 or >= 5 if smaller ones are rounded, got 3 for node 0"),
        ({"seen": RandomRounded(3), "noise": EXACT, "values": [3.0, 0.0, 12.0]}, "for node 2, where its parts"),
        ({"parents": [-1, -1, -1], "n": 4}, "n must be None for a table with 3 roots"),
        ({"n": 2.5}, "n must be an integer"),
        ({"values": [[1.0]]}, "shape (m,)"),
        ({"noise": Noise("laplace", 1e9), "prior": uniform(10**12)}, "fit in 8 GB"),
        ({"values": [3.0, 1e30, 9.0]}, "at most 2**52 in absolute value, got 1e+30 for node 1"),
        ({"values": [3.0, 1.0, 1e300], "noise": EXACT}, "at most 2**52 in absolute value, got 1e+300 for node 2"),
        ({"n": 10**30}, "n must be at most 2**52"),
        ({"noise": Noise("gaussian", 1e-300)}, "scale must be from 1e-60 to 1e+12, got 1e-300 for node 0"),
        ({"noise": Noise("geometric", 1e200)}, "scale must be from 1e-60 to 1e+12, got 1e+200 for node 0"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_in_one_line(change, message):
    assert_refused(lambda: table_posterior(**{**TREE, **change}), message)


def test_invalid_arguments_of_priors_and_formats_are_refused():
    for call, message in [
        (lambda: uniform(-1), "upper must be"),
        (lambda: dirichlet_multinomial([1, -1]), "alpha must be"),
        (lambda: Suppressed(0), "threshold must be"),
        (lambda: Rounded(1), "base must be"),
        (lambda: Rounded(5, "down"), "ties must be"),
        (lambda: RandomRounded(1), "base must be"),
        (lambda: SmallRounded(10**400), "base must be at most"),
        (lambda: uniform(10**30), "upper must be at most"),
        (lambda: table_posterior([3.0], GAUSSIAN, [-1], poisson(2.0)).sample(7, 2), "rng must be a numpy Generator"),
        (lambda: Suppressed(1e300), "threshold must be at most"),
        (lambda: Rounded(10**400), "base must be at most"),
    ]:
        assert_refused(call, message)


def test_divided_tables_equal_undivided_ones(monkeypatch):
    """Messages of large tables are computed part by part."""
    _, y, parents = grouped(np.random.default_rng(3), (3, 4, 5), 3.0)
    arguments = y, GAUSSIAN, parents, negative_binomial(0.6, 12.0)
    whole = table_posterior(*arguments)
    monkeypatch.setattr(tree, "_PART", 7)
    divided = table_posterior(*arguments)
    assert len(divided.problem.parts) > 5
    for name in ("mean", "std", "interval"):
        np.testing.assert_allclose(getattr(divided, name)(), getattr(whole, name)(), rtol=1e-12)
    assert divided.log_marginal_likelihood == pytest.approx(whole.log_marginal_likelihood, rel=1e-14)
    assert divided.error <= 1e-12
    for node in (60, 72, 75):
        np.testing.assert_allclose(divided.shares(node).mean(), whole.shares(node).mean(), rtol=1e-11)
    draws = divided.sample(np.random.default_rng(1), 4_000)
    sums = np.zeros_like(draws)
    np.add.at(sums.T, parents[:-1], draws.T[:-1])
    np.testing.assert_array_equal(sums[:, 60:], draws[:, 60:])
    assert np.all(np.abs(draws.mean(axis=0) - whole.mean()) < 5 * whole.std() / math.sqrt(4_000))


@pytest.mark.parametrize("other", [negative_binomial(0.01, 0.5), negative_binomial(50.0, 3_000.0), poisson(12.0)])
def test_solution_does_not_depend_on_the_start(other):
    """The search for tilts and windows starts from those of a table with a prior far away."""
    _, y, parents = grouped(np.random.default_rng(4), (3, 4, 5), 3.0)
    found = [
        solve(tree.read_table(y, GAUSSIAN, parents, one, None, None)) for one in (negative_binomial(0.6, 12.0), other)
    ]
    again = solve(found[0].table, found[1].start)
    assert max(again.error, found[0].error) < 1e-10
    for one, cold in zip(again.marginal.moments(), found[0].marginal.moments(), strict=True):
        np.testing.assert_allclose(one, cold, rtol=1e-10)
    assert again.log_weight == pytest.approx(found[0].log_weight, rel=1e-13)


@pytest.mark.parametrize(("noise", "y", "shape", "mean"), [
    (Noise("gaussian", 11.2), [-4.1, 203.3], 0.7, 14.0), (Noise("discrete-gaussian", 10.8), [-12.0, 99.0], 0.8, 7.0),
])  # fmt: skip
def test_unmeasured_leaf_with_most_of_the_total_equals_enumeration(noise, y, shape, mean):
    """The other leaf is about 0, so that the tilt of both is close to the rate at which the prior falls."""
    x = np.arange(1_500)
    prior = stats.nbinom.logpmf(x, shape, shape / (shape + mean))
    below = prior[:300] - 0.5 * ((y[0] - x[:300]) / noise.scale) ** 2
    joint = prior[:, None] + below - 0.5 * ((y[1] - x[:, None] - x[:300]) / noise.scale) ** 2
    p = np.exp(joint - joint.max())
    p /= p.sum()
    posterior = table_posterior([NAN, *y], noise, [2, 2, -1], negative_binomial(shape, mean))
    assert posterior.error < 1e-9
    wanted = p.sum(axis=1) @ x, p.sum(axis=0) @ x[:300]
    np.testing.assert_allclose(posterior.mean(), [*wanted, sum(wanted)], rtol=1e-9)


def _groups(seed: int, k: int, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Return values and parents of k groups of m leaves with different priors, a third of them unmeasured."""
    rng = np.random.default_rng(seed)
    mean, shape = np.exp(rng.normal(2.5, 1.5, k)), np.exp(rng.normal(0, 1, k))
    leaves = rng.negative_binomial(shape, shape / (shape + mean), (m, k)).T.ravel()
    totals = leaves.reshape(k, m).sum(axis=1)
    y = np.concatenate([leaves, totals, [totals.sum()]]) + rng.normal(0.0, 3.0, k * m + k + 1)
    y[: k * m][rng.random(k * m) < 0.3] = NAN
    return y, np.concatenate([k * m + np.arange(k * m) // m, np.full(k, k * m + k), [-1]])


@pytest.mark.slow
@pytest.mark.exhaustive  # the gate has groups_equal_the_mixture, and a fit per group in test_enumeration.py
@pytest.mark.filterwarnings("ignore:.*hardly inform:UserWarning")
@pytest.mark.parametrize("seed", range(4))
def test_groups_with_different_fitted_priors_have_a_posterior(seed):
    """Tilts have to suit the priors of all points of the grids, whose tails fall at different rates."""
    y, parents = _groups(seed, 3, 6)
    posterior = table_posterior(y, GAUSSIAN, parents, fit_prior(y, GAUSSIAN, parents, per_group=True))
    assert posterior.error < 1e-6


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*hardly inform:UserWarning")
def test_groups_equal_the_mixture_over_pairs_of_priors():
    y, parents = _groups(2, 2, 3)
    fitted, few = fit_prior(y, GAUSSIAN, parents, per_group=True), []
    for grid in fitted.grids:  # the most probable points
        best = np.argsort(grid.weights)[-4:]
        few.append(PriorGrid(*(tuple(np.array(one, object)[best]) for one in (grid.priors, grid.weights)),
                             tuple(np.array(grid.prior_weights)[best])))  # fmt: skip
    grids = GroupGrids(fitted.nodes, tuple(few))
    first, second = (grid.priors for grid in grids.grids)
    parts = [table_posterior(y, GAUSSIAN, parents, [a] * 3 + [b] * 3) for a in first for b in second]
    before = np.outer(*(grid.prior_weights for grid in grids.grids)).ravel()
    evidence = np.array([one.log_marginal_likelihood for one in parts]) + np.log(before)
    weights = np.exp(evidence - special.logsumexp(evidence))
    mean = np.array([one.mean() for one in parts])
    square = weights @ (np.array([one.std() for one in parts]) ** 2 + mean**2)
    posterior = table_posterior(y, GAUSSIAN, parents, grids)
    assert posterior.log_marginal_likelihood == pytest.approx(special.logsumexp(evidence), abs=1e-8)
    np.testing.assert_allclose(posterior.mean(), weights @ mean, rtol=1e-10)
    np.testing.assert_allclose(posterior.std(), np.sqrt(square - (weights @ mean) ** 2), rtol=1e-8)


def test_laplace_noise_whose_kinks_stop_the_search_has_a_posterior():
    """Steps towards the kinks of 130 likelihoods alternate; a search without kinks follows."""
    rng = np.random.default_rng(5191)
    leaves = rng.negative_binomial(0.5, 0.5 / (0.5 + 1.1), 100)
    counties = leaves.reshape(25, 4).sum(axis=1)
    states = counties.reshape(5, 5).sum(axis=1)
    truth = np.concatenate([leaves, counties, states, [leaves.sum()]])
    parents = np.concatenate([100 + np.arange(100) // 4, 125 + np.arange(25) // 5, np.full(5, 130), [-1]])
    for _ in range(20):
        noise = Noise("laplace", 5.5)
        posterior = table_posterior(truth + noise.sample(rng, (131,)), noise, parents, negative_binomial(0.5, 1.1))
        assert posterior.error < 1e-9


def test_draws_of_three_hundred_leaves_follow_their_marginals():
    """Draws of a leaf, a county and the total, and of a leaf given its county, by χ² tests."""
    _, y, parents = grouped(np.random.default_rng(9), (3, 10, 10), 3.0)
    posterior = table_posterior(y, GAUSSIAN, parents, negative_binomial(0.6, 12.0))
    draws = posterior.sample(np.random.default_rng(2), 10_000)
    for node in (0, 157, 305, 331, 333):
        support, p = posterior.pmf(node)
        counts = np.bincount(draws[:, node] - support[0], minlength=support.size)
        wrong = p * np.exp(0.1 * (support - posterior.mean()[node]) / posterior.std()[node])
        assert_frequencies(counts, p, wrong=wrong)
    below = posterior.shares(305)
    ratio = draws[:, below.children] / np.maximum(draws[:, 305], 1)[:, None]
    known = ratio[draws[:, 305] > 0]
    assert np.all(np.abs(known.mean(axis=0) - below.mean()) < 5 * below.std() / math.sqrt(len(known)))


@pytest.mark.slow
def test_prior_far_from_the_counts_gives_a_posterior():
    """In an earlier version, rounding errors at poor tilts led to sums of products over all counts, and a refusal."""
    truth, y, parents = grouped(np.random.default_rng(42), (8, 10, 10), 20.0, mean=100.0)
    posterior = table_posterior(np.rint(y), Noise("geometric", 20.0), parents, negative_binomial(0.6, 12.0))
    assert posterior.error <= 1e-9
    assert posterior.mean()[-1] == pytest.approx(truth[-1], rel=0.05)


@pytest.mark.slow
@pytest.mark.timing
def test_chain_of_five_thousand_nodes_is_linear_in_its_depth():
    """All nodes are measurements of one count and are multiplied; the search for tilts was quadratic in the depth."""
    y = np.random.default_rng(1).normal(40.0, 5.0, 5_000)
    start = time.process_time()
    posterior = table_posterior(
        y, Noise("gaussian", 500.0), np.append(np.arange(1, 5_000), -1), negative_binomial(1.0, 5.0)
    )
    assert time.process_time() - start < 15.0
    x = np.arange(400)
    log_p = stats.nbinom.logpmf(x, 1.0, 1.0 / 6.0) - 0.5 * 5_000 * ((x - y.mean()) / 500.0) ** 2
    p = np.exp(log_p - special.logsumexp(log_p))
    assert posterior.mean()[[0, -1]] == pytest.approx(p @ x, rel=1e-9)
    assert posterior.std()[7] == pytest.approx(math.sqrt(p @ (x - p @ x) ** 2), rel=1e-9)


@pytest.mark.parametrize("prior", [negative_binomial(0.3, 40.0), negative_binomial(2.5, 40.0), poisson(30.0)])
@pytest.mark.parametrize("noise", ["gaussian", "discrete-gaussian"])
@pytest.mark.parametrize("has_spikes", [False, True])
def test_points_of_leaves_by_a_table_equal_those_of_their_log_weights(prior, noise, has_spikes):
    """The sums of moments have the same terms to the last digit, so that results do not depend on the way."""
    rng, m = np.random.default_rng(1), 700
    scales = np.where(np.arange(m) % 3, 30.0, 2.0)  # windows with strides, and without
    values = np.round(rng.normal(40.0, 60.0, m))
    table = tree.read_table(
        [*values, np.nan], [*(Noise(noise, s) for s in scales), None], [m] * m + [-1], prior, None, None
    )
    leaves = Leaves(table.forest, table.factors, table.weights, np.full(table.forest.above.size, 1e6), has_spikes)
    tilt = rng.normal(0.0, 0.01, m)
    first, last = leaves.windows(tilt)
    by_table = leaves.moments(tilt, first, last)
    assert leaves.is_gaussian
    leaves.is_gaussian = False
    np.testing.assert_array_equal(by_table, leaves.moments(tilt, first, last))
