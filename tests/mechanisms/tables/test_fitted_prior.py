"""Tests of fitted priors: lattices of their parameters, the scale of the hyperprior, and posteriors by quadrature."""

import math
import warnings
from functools import cache

import numpy as np
import pytest
from scipy import optimize, special, stats

from mechanisms.core.noise import EXACT, Noise
from mechanisms.tables import (
    PriorGrid,
    Rounded,
    Suppressed,
    fit,
    fit_prior,
    negative_binomial,
    poisson,
    table_posterior,
)
from mechanisms.tables.fit import leaf_scale
from mechanisms.tables.lattice import fill_lattice, four_points
from mechanisms.tables.solve import log_evidence, solve
from mechanisms.tables.tree import read_table
from tests.mechanisms.marks import exhaustive
from tests.mechanisms.tables.test_tree import grouped

NAN = math.nan
GAUSSIAN = Noise("gaussian", 5.0)


def logistic(x):
    return -abs(x) - 2.0 * np.log1p(np.exp(-abs(x)))


@pytest.mark.parametrize("start", [(0.0, 0.0), (9.0, -7.0)])
@pytest.mark.parametrize(("scale", "correlation"), [((1.0, 1.0), 0.0), ((0.01, 0.3), 0.7), ((3.0, 0.002), -0.5)])
def test_lattice_integrates_normal_densities(start, scale, correlation):
    covariance = np.outer(scale, scale) * np.array([[1.0, correlation], [correlation, 1.0]])
    normal = stats.multivariate_normal([2.0, -1.0], covariance)
    points = fill_lattice(normal.logpdf, np.array(start))
    assert np.exp(points.log_density).sum() * points.area == pytest.approx(1.0, abs=0.02)
    mean, found = points.moments()
    np.testing.assert_allclose((mean - [2.0, -1.0]) / scale, 0.0, atol=0.01)
    np.testing.assert_allclose((found - covariance) / np.outer(scale, scale), 0.0, atol=0.1)


def test_lattice_integrates_logistic_densities():
    points = fill_lattice(lambda at: logistic(at[0]) + logistic(at[1] - 3.0), np.zeros(2))
    assert np.exp(points.log_density).sum() * points.area == pytest.approx(1.0, abs=0.05)


def test_lattice_on_a_plateau_with_a_narrow_peak_has_few_points():
    points = fill_lattice(lambda at: logistic(at[0]) + logistic(at[1]) + math.exp(-50.0 * at @ at), np.zeros(2))
    assert 20 < len(points.at) <= 200


def test_four_points_have_the_moments_of_a_normal_density():
    covariance = np.array([[0.04, 0.01], [0.01, 0.09]])
    normal = stats.multivariate_normal([2.0, -1.0], covariance)
    points = four_points(normal.logpdf, np.array([1.2, 0.0]), 3.0 * covariance)
    assert np.exp(points.log_density).sum() * points.area == pytest.approx(1.0, abs=0.1)
    np.testing.assert_allclose(points.moments()[0], [2.0, -1.0], atol=0.02)
    np.testing.assert_allclose(points.moments()[1] / covariance, np.ones((2, 2)), atol=0.3)
    assert four_points(lambda at: 0.0, np.zeros(2), covariance) is None


@cache
def joint_prior(scale):
    """Return the prior probabilities of two leaves below 160, by quadrature in (B, V)."""
    node, weight = special.roots_legendre(90)
    node, weight = 0.5 * (node + 1.0), 0.5 * weight
    mean, shape = (scale * (1.0 - node) / node)[:, None], (node / (1.0 - node))[None, :]
    pmf = stats.nbinom.pmf(np.arange(160), shape[..., None], (shape / (shape + mean))[..., None]).reshape(-1, 160)
    return (pmf * np.outer(weight, weight).reshape(-1, 1)).T @ pmf


def reference(y, deviation, scale):
    """Return means and distribution functions at 0 of two leaves and their total, and the log evidence."""
    x, noise = np.arange(160), stats.norm(0.0, deviation)
    factors = [np.exp(noise.logpdf(value - np.arange(320))) for value in y]
    joint = joint_prior(scale) * np.outer(factors[0][:160], factors[1][:160]) * factors[2][x[:, None] + x]
    total = joint.sum()
    joint = joint / total
    sums = np.bincount((x[:, None] + x).ravel(), joint.ravel())
    marginals = [joint.sum(axis=1), joint.sum(axis=0), sums]
    return [one @ np.arange(one.size) for one in marginals], [one[0] for one in marginals], math.log(total)


@pytest.mark.slow
@pytest.mark.parametrize("y", [[-3.0, 2.0, -4.0], *exhaustive([11.0, 1.0, 16.0]), [30.0, 24.0, 49.0]])
def test_fitted_posterior_equals_quadrature(y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        posterior = table_posterior(y, GAUSSIAN, [2, 2, -1], "auto")
    mean, at_zero, evidence = reference(y, 5.0, 5.0)
    np.testing.assert_allclose((posterior.mean() - mean) / posterior.std(), 0.0, atol=0.01)
    np.testing.assert_allclose(posterior.cdf(0.0), at_zero, atol=0.015)
    assert posterior.log_marginal_likelihood == pytest.approx(evidence, abs=0.06)


@pytest.mark.slow
def test_table_of_noise_has_no_certain_counts():
    """The hyperprior was uniform in the logarithm of the mean, its posterior improper, and every interval 0 to 0."""
    values, parents = [-4.0, 1.0, -2.0, 3.0, -6.0], [4, 4, 4, 4, -1]
    with pytest.warns(
        UserWarning, match=r"hardly informs the prior: the mean of a leaf may be .* with scale 5"
    ) as seen:
        posterior = table_posterior(values, GAUSSIAN, parents, "auto")
    assert seen[0].filename == __file__
    low, high = posterior.interval()
    assert np.all(low == 0.0)
    assert np.all(high >= 2.0)
    assert "scale 5" in posterior.prior
    with pytest.warns(UserWarning, match="hardly informs") as seen:
        grid = fit_prior(values, GAUSSIAN, parents)
    assert seen[0].filename == __file__
    assert grid.information < 1.0
    assert sum(grid.weights) == pytest.approx(1.0)
    assert grid.quantile(1, 0.025) < grid.quantile(1, 0.5) < grid.quantile(1, 0.975)


def test_weights_of_a_grid_without_hyperprior_are_equal():
    values, parents, pair = [4.0, 9.0, 15.0], [2, 2, -1], (poisson(3.0), poisson(9.0))
    grid = table_posterior(values, GAUSSIAN, parents, PriorGrid(pair, (0.4, 0.6)))
    both = [table_posterior(values, GAUSSIAN, parents, prior).log_marginal_likelihood for prior in pair]
    assert grid.log_marginal_likelihood == pytest.approx(special.logsumexp(both) - math.log(2.0), abs=1e-9)


@pytest.mark.parametrize(
    ("values", "noise", "seen", "scale"),
    [
        ([1.0, 2.0, 3.0, NAN], [GAUSSIAN, Noise("gaussian", 2.0), Noise("gaussian", 3.0), None], "value", 3.0),
        ([1.0, 2.0, 3.0, NAN], [GAUSSIAN, EXACT, EXACT, None], "value", 5.0),
        ([1.0, 2.0, 3.0, NAN], EXACT, "value", 1.0),
        ([NAN, NAN, NAN, 9.0], [None, None, None, GAUSSIAN], "value", 5.0 / math.sqrt(3.0)),
        ([1.0, NAN, NAN, 9.0], [Noise("laplace", 1.0), None, None, GAUSSIAN], "value", 5.0 / math.sqrt(3.0)),
        ([1.0, 2.0, 3.0, NAN], [Noise("laplace", 1.0)] * 4, "value", math.sqrt(2.0)),
        ([1.0, 2.0, 3.0, NAN], [Noise("geometric", 1.0)] * 4, "value", 1.0 / (math.sqrt(2.0) * math.sinh(0.5))),
        *(
            ([1.0, 2.0, 3.0, NAN], Noise(name, scale), "value", 12.0**-0.5)
            for name in ("geometric", "discrete-gaussian", "laplace", "gaussian")
            for scale in (1e-10, 1e-3, 0.01, 0.1)
        ),
        ([NAN, NAN, NAN, 9.0], [None, None, None, Noise("laplace", 1e-6)], "value", 1.0 / 6.0),
        ([6.0, 6.0, 6.0, NAN], EXACT, Rounded(6), 4.0 / math.sqrt(12.0)),
        ([NAN, NAN, NAN, NAN], EXACT, Suppressed(13), 12.0 / math.sqrt(12.0)),
        ([6.0, 6.0, 6.0, NAN], [GAUSSIAN] * 4, Rounded(6), math.sqrt(25.0 + 3.0)),
    ],
)
def test_scale_of_the_hyperprior(values, noise, seen, scale):
    parents = [3, 3, 3, -1]
    table = read_table(values, noise, parents, negative_binomial(1.0, 1.0), None, seen)
    assert leaf_scale(table) == pytest.approx(scale)


@pytest.mark.parametrize("second", [GAUSSIAN, Noise("gaussian", 12.0), None])
def test_scale_of_the_hyperprior_pools_measurements_of_one_count(second):
    """Leaves 0 and 1 are measured again by their only parents 2 and 3, below the total."""
    noise = [Noise("gaussian", 2.0), Noise("gaussian", 2.0), second, second, None]
    values = [1.0, 2.0, *[NAN if second is None else 4.0] * 2, NAN]
    precision = 0.25 + (0.0 if second is None else second.scale**-2)
    for nodes in ([0, 1, 2, 3, 4], [2, 3, 0, 1, 4]):
        table = read_table([values[i] for i in nodes], [noise[i] for i in nodes], [2, 3, 4, 4, -1],
                           negative_binomial(1.0, 1.0), None, None)  # fmt: skip
        assert leaf_scale(table) == pytest.approx(precision**-0.5)


@pytest.mark.slow
@pytest.mark.parametrize("scale", [50.0, *exhaustive(1000.0)])
def test_leaves_with_much_noise_below_a_total_with_little_have_a_fitted_prior(scale):
    values, parents = [0.9 * scale, -0.2 * scale, 0.4 * scale, -scale, 3.0], [4, 4, 4, 4, -1]
    noise = [Noise("gaussian", scale)] * 4 + [GAUSSIAN]
    posterior = table_posterior(values, noise, parents, "auto")
    low, high = posterior.interval()
    assert posterior.error <= 1e-6
    assert low[4] == 0
    assert high[4] <= 13  # noise of 5


@pytest.mark.slow
def test_start_far_from_the_table_does_not_prevent_a_solution():
    """Tilts of a table with a mean of 10,000 per leaf are no start for one with sparse leaves and a total near 0."""
    values, parents = [900.0, -200.0, 400.0, -1000.0, 3.0], [4, 4, 4, 4, -1]
    noise = [Noise("gaussian", 1000.0)] * 4 + [GAUSSIAN]
    tables = [read_table(values, noise, parents, prior, None, None)
              for prior in (negative_binomial(2000.0, 1.6), negative_binomial(0.0006, 1.6))]  # fmt: skip
    _, start = log_evidence(tables[0])
    warm, _ = log_evidence(tables[1], start)
    cold, _ = log_evidence(tables[1])
    assert warm == pytest.approx(cold, abs=1e-4)


@pytest.mark.slow
def test_samples_of_large_tables_lead_to_the_posterior_of_the_prior(monkeypatch):
    _, values, parents = grouped(np.random.default_rng(4), (40, 20), 3.0)
    noise = Noise("gaussian", 3.0)
    whole = fit_prior(values, noise, parents)
    monkeypatch.setattr(fit, "_LARGE", 300)
    four = fit_prior(values, noise, parents)
    assert len(four.priors) == 4 < len(whole.priors)
    for parameter in (0, 1):
        moments = []
        for grid in (whole, four):
            logs, weights = np.log([prior.parameters[parameter] for prior in grid.priors]), np.array(grid.weights)
            moments.append((weights @ logs, math.sqrt(weights @ (logs - weights @ logs) ** 2)))
        (mean, deviation), (other, found) = moments
        assert abs(mean - other) < 0.05 * deviation
        assert found == pytest.approx(deviation, rel=0.1)


def test_parts_of_a_table_with_several_roots_are_independent():
    """Roots at different depths of the whole forest were left out of the sum of log weights."""
    _, values, parents = grouped(np.random.default_rng(3), (3, 4), 3.0)
    table = read_table(values, GAUSSIAN, parents, negative_binomial(0.6, 12.0), None, None)
    pieces = [np.array([0]), table.forest.below(np.array([13]))[0]]
    both = solve(table.part(np.sort(np.concatenate(pieces))))
    assert both.log_weight == pytest.approx(sum(solve(table.part(piece)).log_weight for piece in pieces))


@pytest.mark.parametrize("seed", range(4))
def test_evidence_without_messages_from_above_equals_that_of_the_solution(seed):
    _, values, parents = grouped(np.random.default_rng(seed), (5, 6), 3.0)
    values[:3] += 40.0
    values[7] = NAN
    table = read_table(values, GAUSSIAN, parents, negative_binomial(0.6 + seed, 12.0), None, None)
    for is_bounded in (True, False):
        found, start = log_evidence(table, None, is_bounded)
        assert found == pytest.approx(solve(table).log_weight, abs=1e-7)
        assert log_evidence(table, start, is_bounded)[0] == pytest.approx(found, abs=1e-7)


def log_evidence_by_convolution(values, noise, shape, mean):
    """Return ln p(y) of leaves below a total by one Fourier transform, with a tilt that moves the sum to the total."""
    x = np.arange(1_024)
    log_leaf = stats.nbinom.logpmf(x, shape, shape / (shape + mean)) + stats.norm.logpdf(values[:-1, None], x, noise)

    def excess(tilt):
        return (special.softmax(log_leaf + tilt * x, axis=1) @ x).sum() - values[-1]

    tilt = optimize.brentq(excess, -1.0, 1.0)
    transform = np.fft.rfft(special.softmax(log_leaf + tilt * x, axis=1), 1 << 13, axis=1).prod(axis=0)
    p, total = np.maximum(np.fft.irfft(transform), 1e-300), np.arange(1 << 13)
    log_total = np.log(p) - tilt * total + stats.norm.logpdf(values[-1], total, noise)
    return special.logsumexp(log_leaf + tilt * x, axis=1).sum() + special.logsumexp(log_total)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [0.05, *exhaustive(0.5)])
def test_hundreds_of_sparse_leaves_below_a_measured_total_have_a_posterior(shape):
    """Tilts without the spikes at 0 were far from the total: posteriors were refused, and fits found a wrong prior."""
    rng = np.random.default_rng(4)
    leaves = rng.negative_binomial(shape, shape / (shape + 3.0), 400)
    values = np.append(leaves, leaves.sum()) + rng.normal(0.0, 9.0, 401)
    arguments = values, Noise("gaussian", 9.0), np.append(np.full(400, 400), -1)
    for factor in (2.7, 0.14):
        table = read_table(*arguments, negative_binomial(factor * shape, 3.0), None, None)
        expected = log_evidence_by_convolution(values, 9.0, factor * shape, 3.0)
        for is_bounded in (True, False):
            assert log_evidence(table, None, is_bounded)[0] == pytest.approx(expected, abs=1e-6)
        assert solve(table).error < 1e-9
    grid = fit_prior(*arguments)
    best = grid.priors[int(np.argmax(grid.weights))].parameters
    assert log_evidence_by_convolution(values, 9.0, *best) > log_evidence_by_convolution(values, 9.0, shape, 3.0) - 1.0
