"""Tests of posteriors of noisy tables against the enumeration of all counts of small tables."""

import itertools
import math
from functools import cache

import hypothesis.strategies as st
import mpmath
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from scipy import special, stats

from mechanisms.core.noise import EXACT, Noise
from mechanisms.tables import (
    GroupGrids,
    PriorGrid,
    RandomRounded,
    Rounded,
    SmallRounded,
    Suppressed,
    dirichlet_multinomial,
    fit_prior,
    negative_binomial,
    poisson,
    table_posterior,
    uniform,
)
from tests.mechanisms.refusals import assert_refused
from tests.statistical import assert_frequencies

LARGEST = 12
NAN = math.nan
ROUNDED = [Rounded(5), Rounded(4), Rounded(4, "up"), Rounded(4, "away")]
FORMATS = ["value", "value", "clipped", Suppressed(3), Suppressed(2.5), *ROUNDED]


@cache
def log_probability(noise, low, high):
    """Return ln Pr[low ≤ z ≤ high] for noise z with 60 digits, or by sums over integers."""
    if low > -high:
        low, high = -high, -low
    if not noise.is_integer:
        with mpmath.workdps(60):
            scale = mpmath.mpf(noise.scale)
            below, upto = (cdf(noise.name, mpmath.mpf(z) / scale) for z in (low, high))
            return float(mpmath.log(upto - below))
    z = np.arange(max(low, high - 900), min(high, high + 900) + 1)
    return float(special.logsumexp(noise.log_prob(z[:, None])))


def cdf(name, u):
    if name == "gaussian":
        return mpmath.erfc(-u / mpmath.sqrt(2)) / 2
    return mpmath.exp(u) / 2 if u < 0 else 1 - mpmath.exp(-u) / 2


def log_likelihood(y, noise, form, x):
    """Return ln p(y | x) of one published value."""
    if noise is EXACT:
        if isinstance(form, Suppressed) and math.isnan(y):
            return 0.0 if x < form.threshold else -np.inf
        if isinstance(form, Rounded):
            return 0.0 if round_to(form, x) == y else -np.inf
        if isinstance(form, RandomRounded | SmallRounded) and not math.isnan(y):
            p = rounded_at_random(form, x).get(y, 0.0)
            return math.log(p) if p > 0.0 else -np.inf
        return 0.0 if math.isnan(y) or x == y else -np.inf
    if isinstance(form, Suppressed) and math.isnan(y):
        high = math.ceil(form.threshold) - 1 if noise.is_integer else form.threshold
        return log_probability(noise, -np.inf, high - x)
    if math.isnan(y):
        return 0.0
    if form == "clipped" and y == 0:
        return log_probability(noise, -np.inf, 0 - x)
    if isinstance(form, Rounded):
        if not noise.is_integer:
            return log_probability(noise, y - form.base / 2 - x, y + form.base / 2 - x)
        values = [v for v in range(int(y) - form.base, int(y) + form.base + 1) if round_to(form, v) == y]
        return log_probability(noise, values[0] - x, values[-1] - x)
    return float(noise.log_prob([y - x]))


def round_to(form, v):
    """Return an integer, rounded to a multiple of the base."""
    multiple, rest = divmod(v, form.base)
    if 2 * rest == form.base:
        up = multiple % 2 == 1 if form.ties == "even" else v >= 0 if form.ties == "away" else True
    else:
        up = 2 * rest > form.base
    return (multiple + up) * form.base


def rounded_at_random(form, x):
    """Return the probabilities of the published values of a count, by the definitions of random rounding."""
    below, rest = x - x % form.base, x % form.base
    if rest == 0 or (isinstance(form, SmallRounded) and x > form.base):
        return {x: 1.0}
    distance = min(rest, form.base - rest)  # from the nearer multiple
    nearer, other = (below, below + form.base) if rest == distance else (below + form.base, below)
    return {nearer: 1.0 - distance / form.base, other: distance / form.base}


def log_weight(prior, x):
    p = prior.parameters
    if prior.name == "negative_binomial":
        return stats.nbinom.logpmf(x, p[0], p[0] / (p[0] + p[1]))
    if prior.name == "poisson":
        return stats.poisson.logpmf(x, p[0])
    if prior.name == "uniform":
        return -np.log(p[0] + 1.0) if p[0] is not None and x <= p[0] else 0.0 if p[0] is None else -np.inf
    return special.gammaln(x + p[0]) - special.gammaln(p[0]) - special.gammaln(x + 1)


def enumerate_table(values, noise, parents, priors, seen, n, most):
    """Return all tables with leaves ≤ `most`, shape (t, m), and ln of their joint density with the values."""
    m = len(values)
    leaves = [i for i in range(m) if i not in parents]
    depth = [0] * m
    for i in range(m):
        j = i
        while parents[j] >= 0:
            j, depth[i] = parents[j], depth[i] + 1
    grids = np.array(list(itertools.product(range(most + 1), repeat=len(leaves))))
    if n is not None:
        grids = grids[grids.sum(axis=1) == n]
    tables = np.zeros((len(grids), m), dtype=int)
    tables[:, leaves] = grids
    for i in sorted(range(m), key=lambda i: -depth[i]):
        if parents[i] >= 0:
            tables[:, parents[i]] += tables[:, i]
    log_joint = np.zeros(len(grids))
    for i in range(m):
        top = int(tables[:, i].max(initial=0))
        table = np.array([log_likelihood(values[i], noise[i], seen[i], x) for x in range(top + 1)])
        log_joint += table[tables[:, i]]
    for i, prior in zip(leaves, priors, strict=True):
        log_joint += np.array([log_weight(prior, x) for x in range(most + 1)])[tables[:, i]]
    if priors[0].name == "dirichlet_multinomial":
        a = sum(prior.parameters[0] for prior in priors)
        log_joint += special.gammaln(n + 1) + special.gammaln(a) - special.gammaln(n + a)
    return tables, log_joint


@st.composite
def tables(draw):
    """Draw a random tree with at most 6 leaves, and a value, noise and format per node, with leaves of at most 12."""
    n_leaves = draw(st.integers(1, 6))
    parents, tops = [-1] * n_leaves, list(range(n_leaves))
    while len(tops) > 1:
        size = draw(st.integers(1, len(tops)))
        if size == 1 and draw(st.booleans()):
            continue
        new = len(parents)
        for i in tops[:size]:
            parents[i] = new
        parents.append(-1)
        tops = [*tops[size:], new]
        if len(parents) > 12:
            break
    m = len(parents)
    order = draw(st.permutations(range(m)))
    place = {old: new for new, old in enumerate(order)}
    parents = [-1 if parents[i] < 0 else place[parents[i]] for i in order]
    leaves = [i for i in range(m) if i not in parents]
    one_root = parents.count(-1) == 1
    kind = draw(st.sampled_from(["bounded", "total"] if one_root else ["bounded"]))
    if kind == "total":
        n, most = draw(st.integers(0, LARGEST)), LARGEST
        if len(leaves) > 5:
            n = min(n, 6)
        most = n
        prior = [dirichlet_multinomial(0.3), negative_binomial(0.6, 3.0), poisson(2.0), uniform()]
        one = draw(st.sampled_from(prior))
        priors = [one] * len(leaves)
        if one.name == "dirichlet_multinomial":
            priors = [dirichlet_multinomial(draw(st.sampled_from([0.05, 0.5, 1.0, 3.5]))) for _ in leaves]
    else:
        n, most = None, {1: 12, 2: 12, 3: 10, 4: 5, 5: 4, 6: 3}[len(leaves)]
        priors = [uniform(draw(st.integers(0, most))) for _ in leaves]
    noise, values, seen = [], [], []
    for i in range(m):
        name = draw(st.sampled_from(["laplace", "geometric", "gaussian", "discrete-gaussian"]))
        one = Noise(name, draw(st.sampled_from([0.4, 1.3, 6.0])))
        form = draw(st.sampled_from(FORMATS))
        y = draw(st.integers(-6, 20)) + (0.0 if one.is_integer else draw(st.sampled_from([0.0, 0.37])))
        if isinstance(form, Rounded):
            y = float(round_to(form, math.floor(y)))
        elif form == "clipped":
            y = max(y, 0.0)
        elif isinstance(form, Suppressed) and y < form.threshold:
            y = NAN
        if draw(st.integers(0, 4)) == 0:
            y = NAN
        if i in leaves and kind == "bounded" and draw(st.integers(0, 5)) == 0:
            limit = priors[leaves.index(i)].parameters[0]
            form = draw(st.sampled_from(["value", Suppressed(2)]))
            one, y = EXACT, NAN if form != "value" else float(draw(st.integers(0, limit)))
        noise.append(one)
        values.append(y)
        seen.append(form)
    return values, noise, parents, priors, seen, n, most


def compare(values, noise, parents, priors, seen, n, most):
    """Compare marginals and the marginal likelihood with enumeration."""
    all_tables, log_joint = enumerate_table(values, noise, parents, priors, seen, n, most)
    posterior = table_posterior(values, noise, parents, priors, n=n, seen=seen)
    weights = np.exp(log_joint - log_joint.max())
    weights /= weights.sum()
    for i in range(len(values)):
        exact = np.bincount(all_tables[:, i], weights=weights)
        support, p = posterior.pmf(i)
        found = np.zeros(max(exact.size, support[-1] + 1))
        found[support] = p
        found[: exact.size] -= exact
        assert 0.5 * np.abs(found).sum() <= 1e-12
    assert posterior.log_marginal_likelihood == pytest.approx(special.logsumexp(log_joint), abs=1e-9, rel=1e-11)
    return posterior, all_tables, weights


# chains of nodes with one child, with likelihoods several hundred nats apart
CONTRADICTORY = [
    (
        [NAN, 0.0, 0.0, 8.0, 3.0, 12.0, NAN, NAN],
        [
            Noise("geometric", 0.4), Noise("gaussian", 1.3), Noise("geometric", 6.0), Noise("discrete-gaussian", 0.4),
            Noise("gaussian", 6.0), Noise("laplace", 6.0), Noise("geometric", 0.4), Noise("geometric", 0.4),
        ],
        [3, -1, 5, 1, 0, 6, 7, 1],
        [uniform(11), uniform(12)],
        ["value", Rounded(4), "value", Rounded(4), "value", "value", "value", "value"],
        None,
        12,
    ),
    (
        [NAN, NAN, 0.0, 8.0, -2.0, NAN, NAN, 0.37],
        [
            Noise("geometric", 0.4), Noise("geometric", 1.3), Noise("laplace", 6.0), Noise("discrete-gaussian", 0.4),
            Noise("laplace", 6.0), Noise("geometric", 0.4), Noise("geometric", 1.3), Noise("laplace", 6.0),
        ],
        [3, -1, 5, 1, 0, 7, 1, 6],
        [uniform(1), uniform(12)],
        ["value", Suppressed(2.5), "value", Rounded(4), "value", "value", "value", "value"],
        None,
        12,
    ),
]  # fmt: skip


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@example(CONTRADICTORY[0])
@example(CONTRADICTORY[1])
@given(tables())
@pytest.mark.slow
def test_marginals_equal_enumeration(case):
    try:
        compare(*case)
    except ValueError as error:
        if "made consistent" not in str(error):
            raise


@pytest.mark.parametrize("prior", [negative_binomial(0.7, 1.5), poisson(1.2)])
@pytest.mark.parametrize("name", ["laplace", "geometric", "gaussian", "discrete-gaussian"])
def test_unbounded_priors_equal_enumeration(name, prior):
    noise = [Noise(name, 0.8)] * 4
    compare([2.0, NAN, 0.0, 5.0], noise, [3, 3, 3, -1], [prior] * 3, ["value", "value", "clipped", "value"], None, 60)


@pytest.mark.parametrize("scale", [0.01, 0.05, 0.1, 0.15])
@pytest.mark.parametrize("names", [("gaussian", "gaussian"), ("laplace", "laplace"), ("gaussian", "laplace")])
def test_small_noise_equals_enumeration(scale, names):
    """Windows of one count were refused in an earlier version, as nothing bounded the likelihood next to them."""
    values = [3.04, 0.97, 1.98, 6.03]
    noise = [Noise(names[0], scale)] * 3 + [Noise(names[1], scale)]
    compare(values, noise, [3, 3, 3, -1], [negative_binomial(0.6, 5.0)] * 3, ["value"] * 4, None, 25)
    for parents in ([-1, 0], [1, -1]):
        pair = [Noise(one, scale) for one in names]
        compare([1.9834, 1.9459], pair, parents, [negative_binomial(0.6, 5.0)], ["value"] * 2, None, 25)


@pytest.mark.parametrize(
    ("base", "published", "shape"), [(3, 3, [1, 2, 3, 2, 1]), (2, 4, [1, 2, 1]), (5, 0, [5, 4, 3, 2, 1])]
)
def test_a_count_rounded_at_random_has_a_triangular_posterior(base, published, shape):
    """A published 3 with base 3 has the posterior 1/9, 2/9, 3/9, 2/9, 1/9 of 1 to 5 under a uniform prior."""
    support, p = table_posterior([published], EXACT, [-1], uniform(40), seen=RandomRounded(base)).pmf(0)
    assert support[0] == max(published - base + 1, 0)
    np.testing.assert_allclose(p, np.array(shape) / sum(shape), rtol=1e-12)


@pytest.mark.parametrize(
    ("published", "support", "shape"), [(0, 0, [5, 4, 3, 2, 1]), (5, 1, [1, 2, 3, 4, 5]), (6, 6, [1])]
)
def test_small_counts_rounded_at_random(published, support, shape):
    found, p = table_posterior([published], EXACT, [-1], uniform(40), seen=SmallRounded(5)).pmf(0)
    assert found[0] == support
    np.testing.assert_allclose(p, np.array(shape) / sum(shape), rtol=1e-12)


@st.composite
def rounded_tables(draw):
    """Draw a tree of three or four leaves, most of whose nodes are rounded at random."""
    parents, counts = draw(st.sampled_from([([3, 3, 4, 4, -1], 3), ([4, 4, 5, 5, 6, 6, -1], 4), ([2, 2, -1], 2)]))
    most = {2: 14, 3: 10, 4: 6}[counts]
    truth = [draw(st.integers(0, most)) for _ in range(counts)] + [0] * (len(parents) - counts)
    for i, above in enumerate(parents[:-1]):
        truth[above] += truth[i]
    values, noise, seen = [], [], []
    for count in truth:
        form = draw(
            st.sampled_from([RandomRounded(3), RandomRounded(5), SmallRounded(5), SmallRounded(3), "value", None])
        )
        if form is None:
            values.append(NAN)
        elif form == "value":
            values.append(count + draw(st.integers(-3, 3)))
        else:
            values.append(float(draw(st.sampled_from(sorted(rounded_at_random(form, count))))))
        noise.append(Noise("geometric", 1.3) if form == "value" else EXACT)
        seen.append(form or "value")
    prior = draw(st.sampled_from([uniform(most), *([negative_binomial(0.6, 3.0)] if counts == 2 else [])]))
    return values, noise, parents, [prior] * counts, seen, None, 60 if prior.name != "uniform" else most


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(rounded_tables())
def test_tables_rounded_at_random_equal_enumeration(case):
    try:
        compare(*case)
    except ValueError as error:
        if "made consistent" not in str(error):
            raise


def test_draws_follow_the_enumerated_distribution():
    values, noise, parents = [3.0, NAN, 1.0, 2.0, 4.0, NAN], [Noise("geometric", 2.0)] * 6, [4, 4, 5, 5, 5, -1]
    case = (values, noise, parents, [dirichlet_multinomial(0.5)] * 4, ["value"] * 6, 7, 7)
    posterior, all_tables, weights = compare(*case)
    draws = posterior.sample(np.random.default_rng(3), 40_000)
    assert np.array_equal(draws[:, 5], np.full(40_000, 7))
    np.testing.assert_array_equal(draws[:, 0] + draws[:, 1], draws[:, 4])
    index = {tuple(row): i for i, row in enumerate(all_tables.tolist())}
    counts = np.bincount([index[tuple(row)] for row in draws.tolist()], minlength=len(weights))
    assert_frequencies(counts, weights, wrong=weights * (1.0 + 0.1 * all_tables[:, 0]))


@pytest.mark.slow
def test_grids_per_group_equal_the_enumeration_of_counts_and_priors():
    """The prior of each of three groups, one of which is a leaf below the root, is one of two."""
    values, noise, parents = [3.0, NAN, 1.0, 2.0, 6.0, NAN, 5.0], [Noise("geometric", 2.0)] * 7, [4, 4, 5, 6, 6, 6, -1]
    seen, most = ["value"] * 7, 14
    pairs = [[negative_binomial(0.5, 1.0), negative_binomial(2.0, 4.0)], [poisson(1.0), poisson(3.0)],
             [negative_binomial(1.0, 0.5), poisson(2.0)]]  # fmt: skip
    found = [enumerate_table(values, noise, parents, [one, one, two, three], seen, None, most)
             for one, two, three in itertools.product(*pairs)]  # fmt: skip
    all_tables, log_joint = found[0][0], special.logsumexp([log for _, log in found], axis=0) - math.log(8)
    weights = np.exp(log_joint - special.logsumexp(log_joint))
    grids = GroupGrids((3, 4, 5), tuple(PriorGrid(tuple(pairs[k]), (0.9, 0.1)) for k in (2, 0, 1)))
    posterior = table_posterior(values, noise, parents, grids)
    for i in range(7):
        exact = np.bincount(all_tables[:, i], weights=weights)
        support, p = posterior.pmf(i)
        np.testing.assert_allclose(p[support < exact.size], exact[support[support < exact.size]], atol=1e-6)
    assert posterior.log_marginal_likelihood == pytest.approx(special.logsumexp(log_joint), abs=1e-5)
    draws = posterior.sample(np.random.default_rng(3), 20_000)
    sums = draws[:, 0] + 10 * draws[:, 1]
    for i, one in ((0, draws[:, 0]), (2, draws[:, 2]), (1, sums)):
        exact = all_tables[:, 0] + 10 * all_tables[:, 1] if i == 1 else all_tables[:, i]
        counts, p = np.bincount(one, minlength=200), np.bincount(exact, weights, minlength=200)
        assert_frequencies(counts, np.append(p, 0.0)[: counts.size] / p.sum())
    with pytest.warns(UserWarning, match="hardly informs the prior"):
        grid = fit_prior(values, noise, parents)
    each = [table_posterior(values, noise, parents, one).log_marginal_likelihood for one in grid.priors]
    auto = table_posterior(values, noise, parents, grid)
    expected = special.logsumexp(each + np.log(grid.prior_weights))
    assert auto.log_marginal_likelihood == pytest.approx(expected, abs=1e-6)
    with pytest.raises(ValueError, match="fitted to the same table"):
        table_posterior(values, noise, parents, GroupGrids((0,), grids.grids[:1]))
    assert_refused(lambda: posterior.shares(4), "use evaluate")
    assert posterior.shares(6).mean().sum() == pytest.approx(1.0)


@pytest.mark.slow
def test_fit_per_group_finds_the_prior_of_each_group():
    rng = np.random.default_rng(8)
    truth = np.concatenate([rng.negative_binomial(0.5, 0.5 / 8.5, 60), rng.negative_binomial(5.0, 5.0 / 65.0, 60)])
    parents = np.append(np.repeat([120, 121], 60), [122, 122, -1])
    sums = truth.reshape(2, 60).sum(axis=1)
    y = np.concatenate([truth, sums, [truth.sum()]]) + rng.normal(0, 2.0, 123)
    grids = fit_prior(y, Noise("gaussian", 2.0), parents, per_group=True)
    means = [grid.priors[int(np.argmax(grid.weights))].parameters[1] for grid in grids.grids]
    assert grids.nodes == (120, 121)
    assert means == [pytest.approx(8.0, rel=0.5), pytest.approx(60.0, rel=0.3)]
    posterior = table_posterior(y, Noise("gaussian", 2.0), parents, grids)
    assert posterior.error <= 1e-10
    error = [np.sqrt(np.mean((one.mean()[:120] - truth) ** 2)) for one in
             (posterior, table_posterior(y, Noise("gaussian", 2.0), parents, poisson(30.0)))]  # fmt: skip
    assert error[0] < error[1]
    with pytest.raises(ValueError, match="every group must have a measurement, got none for node 1"):
        fit_prior([3.0, NAN, 5.0], Noise("gaussian", 2.0), [2, 2, -1], per_group=True)
