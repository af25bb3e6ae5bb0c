"""Tests of the posterior of a coefficient against matrix formulas, accurate quadrature and Gibbs sampling."""

import math

import mpmath
import numpy as np
import pytest
from scipy import stats

from mechanisms.core.protocols import validate_probabilities
from mechanisms.regression.partition_prior import ConjugatePrior, FlatPrior, SemiConjugatePrior, ZellnerPrior
from mechanisms.regression.posterior import CoefficientPosterior, coefficient_posterior
from mechanisms.regression.statistics import RegressionStatistics, partition_statistics
from tests.mechanisms.refusals import assert_refused
from tests.statistical import assert_mean_within, assert_rejects

P = (0.001, 0.025, 0.5, 0.9, 0.999)
MEAN = np.array([1.0, -2.0, 0.5])
PRECISION = np.array([[2.0, 0.3, 0.0], [0.3, 1.0, -0.2], [0.0, -0.2, 0.5]])
PRIORS = {
    "flat": FlatPrior(),
    "zellner": ZellnerPrior(g=7.0),
    "conjugate": ConjugatePrior(MEAN, PRECISION, shape=2.0, rate=3.0),
    "semi-conjugate": SemiConjugatePrior(MEAN, PRECISION, shape=2.0, rate=3.0),
}


def rows(n=15, offset=0.0, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 2)) + offset
    return x, 1.0 + 2.0 * x[:, 0] - x[:, 1] + 1.5 * rng.standard_normal(n)


def statistics_of(x, y, repeat=1, **more):
    x, y = np.tile(x, (repeat, 1)), np.tile(y, repeat)
    return partition_statistics(x, y, np.zeros(len(y), int), **more)[0]


def design(x):
    return np.column_stack([np.ones(len(x)), x])


def matrix_formula(name, x, y, k, error_variance, power):
    """Return the posterior of β_k by matrix formulas, for all priors but the semi-conjugate one."""
    X, n, d = design(x), len(y), 3
    least = np.linalg.solve(X.T @ X, X.T @ y)
    rss = float(np.sum((y - X @ least) ** 2))
    if name == "flat":
        location, matrix = least, np.linalg.inv(power * X.T @ X)
        shape, rate = (power * n - d) / 2, power * rss / 2
    elif name == "zellner":
        g = 7.0 * power  # the power applies to X'X of the likelihood only
        location, matrix = g / (g + 1) * least, g / (g + 1) * np.linalg.inv(power * X.T @ X)
        shape, rate = power * n / 2, (power * rss + least @ X.T @ X @ least * power / (g + 1)) / 2
    else:
        total = PRECISION + power * X.T @ X
        location = np.linalg.solve(total, PRECISION @ MEAN + power * X.T @ y)
        matrix = np.linalg.inv(total)
        shape = 2.0 + power * n / 2
        rate = 3.0 + (power * y @ y + MEAN @ PRECISION @ MEAN - location @ total @ location) / 2
    if error_variance is not None:
        return stats.norm(location[k], math.sqrt(error_variance * matrix[k, k]))
    return stats.t(2 * shape, location[k], math.sqrt(rate / shape * matrix[k, k]))


@pytest.mark.parametrize("power", [1.0, 3.0])
@pytest.mark.parametrize("error_variance", [None, 2.5])
@pytest.mark.parametrize("k", [0, 1, 2])
@pytest.mark.parametrize("name", ["flat", "zellner", "conjugate"])
def test_posteriors_equal_matrix_formulas(name, k, error_variance, power):
    x, y = rows()
    found = coefficient_posterior(statistics_of(x, y), k, PRIORS[name], error_variance, power)
    expected = matrix_formula(name, x, y, k, error_variance, power)
    np.testing.assert_allclose(found.quantile(P), expected.ppf(P), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.cdf(expected.ppf(P)), P, rtol=1e-9)
    assert found.mean() == pytest.approx(expected.mean(), rel=1e-10)
    assert found.std() == pytest.approx(expected.std(), rel=1e-10)


@pytest.mark.parametrize("error_variance", [None, 2.5])
@pytest.mark.parametrize("name", PRIORS)
def test_power_of_likelihood_equals_repeated_rows(name, error_variance):
    x, y = rows()
    once, thrice = statistics_of(x, y), statistics_of(x, y, repeat=3)
    prior = PRIORS[name]
    same = ZellnerPrior(g=21.0) if name == "zellner" else prior  # the precision of Zellner's prior grows with n
    powered = coefficient_posterior(once, 1, prior, error_variance, power=3.0)
    repeated = coefficient_posterior(thrice, 1, same, error_variance)
    np.testing.assert_allclose(powered.quantile(P), repeated.quantile(P), rtol=1e-10)


def semi_conjugate_cdf(x, y, cutoff, precision, shape, rate, power=1.0):
    """Return Pr[β ≤ cutoff] under β ~ N(0, 1/precision) by a sum over ln σ², and the number of modes of ln σ²."""
    sxx, sxy, syy, n = x @ x, x @ y, y @ y, len(y)
    s = np.linspace(-40.0, 60.0, 200_001)
    v = np.exp(s)
    total = precision + power * sxx / v
    mean = power * sxy / v / total
    logs = -(shape + power * n / 2) * s - rate / v - np.log(total) / 2
    logs += -power * syy / (2 * v) + mean**2 * total / 2
    weights = np.exp(logs - logs.max())
    peaks = np.flatnonzero((np.diff(logs[:-1]) > 0) & (np.diff(logs[1:]) < 0))
    return float(weights @ stats.norm.cdf((cutoff - mean) * np.sqrt(total)) / weights.sum()), peaks.size


def test_semi_conjugate_sum_equals_mpmath():
    """Sums over ln σ² equal integrals by mpmath of p(β) ∝ N(β)·(rate + ½Σ(y − βx)²)^(−shape − n/2)."""
    x, y = np.array([0.5, -1.0, 2.0]), np.array([1.0, -1.5, 4.5])

    def density(b):
        rss = sum((yi - b * xi) ** 2 for xi, yi in zip(x.tolist(), y.tolist(), strict=True))
        return mpmath.exp(-b * b / 4) * (mpmath.mpf(1) / 10 + rss / 2) ** (-mpmath.mpf(1) / 2 - mpmath.mpf(3) / 2)

    nodes = [-40, -5, 0, 1, 1.9, 2.05, 2.2, 3, 5, 40]
    with mpmath.workdps(25):
        expected = mpmath.quad(density, [b for b in nodes if b <= 2.2]) / mpmath.quad(density, nodes)
    direct, _ = semi_conjugate_cdf(x, y, 2.2, 0.5, 0.5, 0.1)
    assert direct == pytest.approx(float(expected), rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "precision", "shape", "rate", "power", "n_peaks"),
    [
        (12, 0.5, 1.0, 1.0, 1.0, 1),
        (12, 0.5, 1.0, 1.0, 40.0, 1),
        (1, 2.0, 0.5, 0.1, 1.0, 1),
        (3, 400.0, 0.5, 0.01, 1.0, 1),
        (8, 2000.0, 0.1, 1e-4, 1.0, 1),
        (8, 16.0, 0.1, 1e-4, 1.0, 2),  # the rows imply a slope of 2, the prior a slope of 0
    ],
)
def test_semi_conjugate_posterior_with_unknown_variance(n, precision, shape, rate, power, n_peaks):
    rng = np.random.default_rng(n)
    x = rng.standard_normal(n)
    y = 2.0 * x + 0.1 * rng.standard_normal(n)
    prior = SemiConjugatePrior(0.0, precision, shape, rate)
    found = coefficient_posterior(statistics_of(x[:, None], y, intercept=False), 0, prior, power=power)
    for cutoff in (0.5, 1.5, *found.quantile([0.01, 0.5, 0.97])):
        expected, peaks = semi_conjugate_cdf(x, y, float(cutoff), precision, shape, rate, power)
        assert peaks == n_peaks
        assert found.cdf(cutoff) == pytest.approx(expected, rel=1e-9, abs=1e-13)


def gibbs(rng, X, y, prior, n_draws):
    """Draw β and σ² alternately from their full conditionals; discard the first tenth of the draws."""
    mean, precision = np.asarray(prior.mean), np.asarray(prior.precision)
    v, kept = 1.0, []
    for _ in range(n_draws):
        total = precision + X.T @ X / v
        L = np.linalg.cholesky(total)
        centre = np.linalg.solve(total, precision @ mean + X.T @ y / v)
        beta = centre + np.linalg.solve(L.T, rng.standard_normal(len(mean)))
        rate = prior.rate + np.sum((y - X @ beta) ** 2) / 2
        v = rate / rng.standard_gamma(prior.shape + len(y) / 2)
        kept.append(beta)
    return np.array(kept[n_draws // 10 :])


@pytest.mark.slow
def test_semi_conjugate_posterior_agrees_with_gibbs_sampler():
    """Quantiles agree with Gibbs draws within standard errors, unlike those under the conjugate prior."""
    x, y = rows()
    prior = PRIORS["semi-conjugate"]
    draws = gibbs(np.random.default_rng(2), design(x), y, prior, 20_000)
    for k in range(3):
        found = coefficient_posterior(statistics_of(x, y), k, prior)
        for p in (0.1, 0.5, 0.9):
            below = (draws[:, k] <= found.quantile(p)).reshape(180, -1).mean(axis=1)
            assert_mean_within(below, p)
    wrong = coefficient_posterior(statistics_of(x, y), 1, PRIORS["conjugate"])
    assert_rejects(assert_mean_within, (draws[:, 1] <= wrong.quantile(0.9)).reshape(180, -1).mean(axis=1), 0.9)


def test_semi_conjugate_posterior_with_known_variance():
    x, y = rows()
    X = design(x)
    total = PRECISION + 4.0 * X.T @ X / 2.5
    centre = np.linalg.solve(total, PRECISION @ MEAN + 4.0 * X.T @ y / 2.5)
    found = coefficient_posterior(statistics_of(x, y), 2, PRIORS["semi-conjugate"], error_variance=2.5, power=4.0)
    assert found.mean() == pytest.approx(centre[2], rel=1e-11)
    assert found.std() == pytest.approx(math.sqrt(np.linalg.inv(total)[2, 2]), rel=1e-11)


@pytest.mark.parametrize("error_variance", [None, 2.0])
@pytest.mark.parametrize("name", PRIORS)
def test_partitions_are_independent(name, error_variance):
    parts = [statistics_of(*rows(n, seed=n)) for n in (5, 9, 40)]
    stacked = RegressionStatistics.stack([RegressionStatistics.stack(parts), RegressionStatistics.stack(parts[::-1])])
    together = coefficient_posterior(stacked, 1, PRIORS[name], error_variance, power=[1.0, 2.0, 3.0])
    cutoffs = np.array([1.5, 2.0, 2.3])
    assert together.cdf(cutoffs).shape == (2, 3, 3)
    assert together.quantile(P).shape == (2, 3, len(P))
    assert together.cdf(2.0).shape == (2, 3)
    for i, j, part in ((0, 0, parts[0]), (0, 2, parts[2]), (1, 0, parts[2]), (1, 1, parts[1])):
        alone = coefficient_posterior(part, 1, PRIORS[name], error_variance, power=[1.0, 2.0, 3.0][j])
        np.testing.assert_allclose(together.cdf(cutoffs)[i, j], alone.cdf(cutoffs), rtol=1e-10)
        np.testing.assert_allclose(together.quantile(P)[i, j], alone.quantile(P), rtol=1e-10)
    own = together.cdf(np.array([[[1.0]], [[2.0]]]))  # each row of partitions has its own cutoff
    np.testing.assert_allclose(own[1], together.cdf([2.0])[1])


@pytest.mark.parametrize("name", ["flat", "zellner"])
def test_columns_far_from_zero_are_accurate(name):
    """Adding 1e7 to the columns, which gives raw moments a condition number of 1e28, changes no quantile."""
    x, y = rows()
    near, far = (statistics_of(x + shift, y) for shift in (0.0, 1e7))
    for error_variance in (None, 2.0):
        one, other = (coefficient_posterior(each, 1, PRIORS[name], error_variance).quantile(P) for each in (near, far))
        np.testing.assert_allclose(other, one, rtol=1e-6)


def test_units_of_a_column_change_the_units_of_its_coefficient():
    x, y = rows()
    scale = np.array([1e9, 1e-9])
    one, other = statistics_of(x, y), statistics_of(x * scale, y)
    for k, unit in ((0, 1.0), (1, 1e9), (2, 1e-9)):
        first, second = (coefficient_posterior(each, k, FlatPrior()).quantile(P) for each in (one, other))
        np.testing.assert_allclose(second * unit, first, rtol=1e-8)


@pytest.mark.parametrize("name", ["conjugate", "semi-conjugate"])
def test_proper_priors_allow_few_rows_and_collinear_columns(name):
    """Posteriors given one row, or collinear columns, agree with those for slightly perturbed columns."""
    x, y = rows()
    collinear = x.copy()
    collinear[:, 1] = 3.0 - 2.0 * collinear[:, 0]
    nearly = collinear + 1e-6 * np.random.default_rng(1).standard_normal(x.shape)
    for few in (slice(0, 1), slice(0, 15)):
        one = coefficient_posterior(statistics_of(collinear[few], y[few]), 1, PRIORS[name])
        other = coefficient_posterior(statistics_of(nearly[few], y[few]), 1, PRIORS[name])
        np.testing.assert_allclose(one.quantile(P), other.quantile(P), rtol=1e-4)
    none = partition_statistics(np.empty((0, 2)), np.empty(0), np.empty(0, int), n_partitions=1)[0]
    prior_only = coefficient_posterior(none, 1, PRIORS[name])
    assert prior_only.mean() == pytest.approx(-2.0, rel=1e-9)


def test_normal_and_t_distributions_in_one_array():
    """If an array contains normal and t distributions, both agree with SciPy."""
    distribution = CoefficientPosterior(np.ones((2, 1)), np.zeros((2, 1)), np.ones((2, 1)), np.array([np.inf, 3.0]))
    np.testing.assert_allclose(distribution.cdf(1.0), [stats.norm.cdf(1.0), stats.t(3).cdf(1.0)], rtol=1e-13)
    np.testing.assert_allclose(distribution.cdf([1.0, 2.0])[1], stats.t(3).cdf([1.0, 2.0]), rtol=1e-13)
    np.testing.assert_allclose(distribution.quantile(0.9), [stats.norm.ppf(0.9), stats.t(3).ppf(0.9)], rtol=1e-10)
    np.testing.assert_allclose(distribution.std(), [1.0, math.sqrt(3.0)])
    heavy = CoefficientPosterior(np.ones((2, 1)), np.zeros((2, 1)), np.ones((2, 1)), np.array([1.0, 2.0]))
    assert np.isinf(heavy.std()).all()
    assert distribution.cdf([-np.inf, np.inf]).tolist() == [[0.0, 1.0], [0.0, 1.0]]


def test_mixture_quantiles_invert_distribution_functions():
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.ones(5), 50)
    distribution = CoefficientPosterior(
        weights, 10 * rng.standard_normal((50, 5)), np.exp(3 * rng.standard_normal((50, 5))), np.full(50, np.inf)
    )
    p = np.array([1e-9, 0.01, 0.5, 0.99, 1 - 1e-9])
    x = distribution.quantile(p)
    direct = np.sum(
        weights[:, None]
        * stats.norm.cdf((x[..., None] - distribution.locations[:, None]) / distribution.scales[:, None]),
        2,
    )
    np.testing.assert_allclose(direct, np.broadcast_to(p, x.shape), rtol=1e-9)
    second = np.sum(weights * (distribution.scales**2 + distribution.locations**2), axis=1)
    np.testing.assert_allclose(distribution.std() ** 2 + distribution.mean() ** 2, second, rtol=1e-12)


def flawed(**changes):
    x, y = rows(6)
    for name, value in changes.items():
        x[:, {"first": 0, "second": 1}[name]] = value
    return statistics_of(x, y)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: coefficient_posterior(flawed(), 3, FlatPrior()), "from 0 to 2, got 3"),
        (lambda: coefficient_posterior(flawed(), -1, FlatPrior()), "k must be an integer from 0 to 2, got -1"),
        (lambda: coefficient_posterior(flawed(), 1, FlatPrior(), error_variance=0.0), "error_variance must be"),
        (lambda: coefficient_posterior(flawed(), 1, FlatPrior(), power=0.0), "power must be"),
        (lambda: coefficient_posterior(flawed(second=0.1), 1, FlatPrior()), "partition 0 must have at least as many"),
        (
            lambda: coefficient_posterior(flawed(first=5e9), 1, ZellnerPrior(9)),
            "partition 0 must have at least as many",
        ),
        (lambda: coefficient_posterior(flawed(first=1.0, second=2.0), 0, FlatPrior()), "linearly independent columns"),
        (lambda: coefficient_posterior(statistics_of(*rows(2)), 1, ZellnerPrior(9)), "as many rows as coefficients"),
        (lambda: coefficient_posterior(statistics_of(*rows(3)), 1, FlatPrior()), "more rows than coefficients"),
        (lambda: ConjugatePrior(shape=-1.0), "shape must be a finite number > 0"),
        (lambda: SemiConjugatePrior(rate=0.0), "rate must be a finite number > 0"),
        (lambda: ConjugatePrior(mean=np.nan), "mean must be finite"),
        (lambda: ConjugatePrior(precision=[[1.0, 2.0], [2.0, 1.0]]), "symmetric and positive definite"),
        (lambda: ConjugatePrior(precision=[[1.0, 0.5], [0.0, 1.0]]), "symmetric and positive definite"),
        (lambda: ConjugatePrior(precision=[1.0, 2.0]), "a finite number or"),
        (lambda: coefficient_posterior(flawed(), 1, ConjugatePrior(mean=[0.0, 1.0])), "must have 3 coefficients"),
        (lambda: validate_probabilities([0.5, 1.0]), r"p must be in \(0, 1\), got 1.0"),
        (lambda: validate_probabilities(0.0), "p must be in"),
        (lambda: validate_probabilities(np.nan), "p must be in"),
        (lambda: coefficient_posterior(flawed(), 1, FlatPrior()).cdf([np.nan]), "cutoffs must be numbers"),
    ],
)
def test_invalid_input_raises(call, message):
    assert_refused(call, message)


def test_message_states_first_invalid_partition():
    good, bad = statistics_of(*rows(6)), flawed(second=0.1)
    stacked = RegressionStatistics.stack([good, good, bad, bad])
    assert_refused(lambda: coefficient_posterior(stacked, 1, FlatPrior()), r"^partition 2 must have")


# The public substitute

SUBSTITUTE = (0.25, 2.0)


def table(flaw, n=60, n_partitions=4):
    """Return statistics of four partitions; in the second one, columns are collinear, or a column or y is constant."""
    rng = np.random.default_rng(5)
    x, labels = rng.standard_normal((n, 2)), np.arange(n) % n_partitions
    y = 1 + x @ [2.0, -1.0] + rng.standard_normal(n)
    second = labels == 1
    if flaw == "collinear":
        x[second, 1] = 3.0 - 2.0 * x[second, 0]
    elif flaw == "constant column":
        x[second, 0] = 1.0
    elif flaw == "constant outcome":
        y[second] = 0.0
    return partition_statistics(x, y, labels)


@pytest.mark.parametrize("error_variance", [None, 1.5])
@pytest.mark.parametrize("flaw", ["collinear", "constant column", "constant outcome"])
@pytest.mark.parametrize("prior", [FlatPrior(), ZellnerPrior(60.0)])
def test_flawed_partition_has_the_substitute_and_others_are_unchanged(prior, flaw, error_variance):
    sound = coefficient_posterior(table(None), 1, prior, error_variance)
    found = coefficient_posterior(table(flaw), 1, prior, error_variance, substitute=SUBSTITUTE)
    assert np.isfinite(found.cdf([0.0, 1.0])).all()
    if flaw != "constant outcome" or error_variance is None:
        assert (found.mean()[1], found.std()[1]) == SUBSTITUTE
        assert found.quantile(0.5)[1] == pytest.approx(SUBSTITUTE[0])
        assert_refused(lambda: coefficient_posterior(table(flaw), 1, prior, error_variance), "partition 1 must have")
    others = [0, 2, 3]
    for measure in (lambda posterior: posterior.mean(), lambda posterior: posterior.quantile([0.1, 0.9])):
        assert np.array_equal(measure(found)[others], measure(sound)[others])


@pytest.mark.parametrize("prior", [FlatPrior(), ZellnerPrior(60.0), ConjugatePrior(), SemiConjugatePrior()])
def test_sound_partitions_ignore_the_substitute(prior):
    with_substitute, without = (coefficient_posterior(table(None), 1, prior, substitute=s) for s in (SUBSTITUTE, None))
    assert np.array_equal(with_substitute.quantile([0.1, 0.5]), without.quantile([0.1, 0.5]))


def test_rows_that_conflict_with_a_semi_conjugate_prior_have_the_substitute(monkeypatch):
    """A partition whose rows need too many quadrature points gets the public substitute as its posterior."""
    statistics, prior = table(None), SemiConjugatePrior()
    monkeypatch.setattr("mechanisms.regression.posterior._MOST_POINTS", 10)
    with pytest.raises(ValueError, match="partition 0 must have a posterior of the error variance that 10 quadrature"):
        coefficient_posterior(statistics, 1, prior)
    found = coefficient_posterior(statistics, 1, prior, substitute=SUBSTITUTE)
    np.testing.assert_allclose(found.mean(), SUBSTITUTE[0])
    np.testing.assert_allclose(found.std(), SUBSTITUTE[1])


def test_too_few_rows_raise_because_sizes_are_public():
    statistics = partition_statistics([[0.0], [1.0]], [1.0, 2.0], [0, 0])
    with pytest.raises(ValueError, match="must have more rows than coefficients if the error variance is unknown"):
        coefficient_posterior(statistics, 1, FlatPrior(), substitute=SUBSTITUTE)
