"""Tests of the families against mpmath, SciPy's distributions, and enumeration of neighbouring data sets."""

import math
from functools import partial

import mpmath
import numpy as np
import pytest
from scipy import stats

from mechanisms.audit.sums import audit_sums
from mechanisms.core.privacy import Neighbouring
from mechanisms.inference.families import FAMILIES
from mechanisms.inference.release_model import ReleaseModel
from tests.mechanisms.inference.laplace import PRIOR_DISTRIBUTIONS, PRIORS, draw_sums, statistic
from tests.mechanisms.marks import exhaustive
from tests.mechanisms.refusals import assert_refused
from tests.statistical import assert_mean_within, assert_rejects

BOUNDS = {
    "binomial": None,
    "multinomial": None,
    "exponential": (0.1, 0.9),
    "poisson": (2.0, 5.0),
    "normal": (-2.0, 0.5),
}
TRUNCATED = ["exponential", "poisson", "normal"]


def test_every_family_is_tested():
    assert BOUNDS.keys() == FAMILIES.keys()
    assert [name for name, family in FAMILIES.items() if family.is_truncated] == TRUNCATED


def interval_moments(log_density, low, high, mode, scale):
    """Return probability, mean and variance by quadrature on subintervals that grow with the distance from the mode."""
    steps = [0, 1, 2, 4, 6, 10, 16, 25, 40, 60, 90, 130]
    points = sorted({mode + sign * step * scale for step in steps for sign in (-1, 1)})
    inside = [max(low, points[0]), *(p for p in points if low < p < high), min(high, points[-1])]
    mass, first, second = (
        mpmath.quad(lambda x, k=k: (x - mode) ** k * mpmath.exp(log_density(x)), inside) for k in (0, 1, 2)
    )
    return mass, mode + first / mass, second / mass - (first / mass) ** 2


def exponential_oracle(theta, a, b):
    for low, high in ((0, a), (a, b), (b, mpmath.inf)):
        if low == high:
            yield None
            continue
        yield interval_moments(lambda x: mpmath.log(theta) - theta * x, low, high, low, min(1 / theta, high - low))


def normal_oracle(theta, a, b):
    for low, high in ((-mpmath.inf, a), (a, b), (b, mpmath.inf)):
        mode = min(max(theta, low), high)
        yield interval_moments(
            lambda x: mpmath.log(mpmath.npdf(x - theta)), low, high, mode, 1 / (1 + abs(mode - theta))
        )


def poisson_oracle(theta, a, b):
    top = int(theta + 40 * mpmath.sqrt(theta) + b + 100)
    for low, high in ((0, int(a) - 1), (int(a), int(b)), (int(b) + 1, top)):
        if high < low:
            yield None
            continue
        distribution = [
            mpmath.exp(x * mpmath.log(theta) - theta - mpmath.loggamma(x + 1)) for x in range(low, high + 1)
        ]
        mass = mpmath.fsum(distribution)
        mean = mpmath.fsum(p * (low + i) for i, p in enumerate(distribution)) / mass
        yield mass, mean, mpmath.fsum(p * (low + i - mean) ** 2 for i, p in enumerate(distribution)) / mass


ORACLES = {"exponential": exponential_oracle, "normal": normal_oracle, "poisson": poisson_oracle}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "theta", "bounds"),
    [
        ("exponential", 4.0, (0.00633, 0.9222)),
        ("exponential", 1e-6, (0.5, 1.0)),
        ("exponential", 500.0, (0.5, 1.0)),
        ("exponential", 2.0, (1.0, 1.0001)),
        ("normal", 30.0, (-1.0, 2.0)),
        ("normal", 1.0, (1.0, 1.0001)),
        ("normal", 4.0, (-3.0, 3.9)),
        ("poisson", 3.0, (1.0, 6.0)),
        ("poisson", 1e-3, (0.0, 6.0)),
        ("poisson", 0.5, (3.0, 60.0)),
        *exhaustive(("exponential", 1e-2, (0.0, 2.0)), ("normal", 0.3, (-1.0, 2.0)), ("normal", -30.0, (-1.0, 2.0))),
        *exhaustive(("normal", 0.0, (-12.0, 12.5)), ("poisson", 60.0, (2.0, 5.0)), ("poisson", 900.0, (880.0, 1000.0))),
    ],
)
def test_region_moments_equal_quadrature(name, theta, bounds):
    """Region moments agree with quadrature, even in far tails and narrow intervals, where closed forms lose digits."""
    found = FAMILIES[name].region_moments(theta, bounds)
    checked = 0
    with mpmath.workdps(25):
        for region, exact in enumerate(ORACLES[name](mpmath.mpf(theta), *map(mpmath.mpf, bounds))):
            if exact is None:
                assert found[0][region] == 0
            elif exact[0] > 1e-250:
                checked += 1
                for moment, value in zip(found, exact, strict=True):
                    # Means close to zero are differences of larger numbers, hence the absolute tolerance.
                    assert abs(moment[region] - value) <= 1e-10 * abs(value) + 1e-14 * (moment is found[1])
    assert checked >= 2


@pytest.mark.parametrize("name", TRUNCATED)
def test_region_moments_sum_to_record_moments(name):
    theta = FAMILIES[name].draw_parameters(np.random.default_rng(1), PRIORS[name], size=200)[:, 0].reshape(2, 100)
    q, mean, variance = FAMILIES[name].region_moments(theta, BOUNDS[name])
    assert q.shape == mean.shape == variance.shape == (2, 100, 3)
    expected_mean, expected_variance = {
        "exponential": (1 / theta, theta**-2),
        "poisson": (theta, theta),
        "normal": (theta, np.ones_like(theta)),
    }[name]
    np.testing.assert_allclose(q.sum(axis=-1), 1.0, rtol=1e-12)
    np.testing.assert_allclose((q * mean).sum(axis=-1), expected_mean, rtol=1e-11)
    second = (q * (variance + mean**2)).sum(axis=-1)
    np.testing.assert_allclose(second, expected_variance + expected_mean**2, rtol=1e-11)


@pytest.mark.parametrize("name", TRUNCATED)
def test_drawn_statistics_have_the_moments_of_the_regions(name):
    family, n, trials = FAMILIES[name], 50, 20_000
    theta = {"exponential": 4.0, "poisson": 4.0, "normal": -0.5}[name]
    s, truncated = draw_sums(name, np.random.default_rng(3), np.full((trials, 1), theta), n, BOUNDS[name])
    q, mean, variance = family.region_moments(theta, BOUNDS[name])
    expected = n * q[1] * mean[1]
    spread = n * q[1] * (variance[1] + (1 - q[1]) * mean[1] ** 2)
    outside = s[:, 0] - truncated[:, 0]
    # Numbers of records per region are multinomial, so the totals of two regions are correlated.
    covariance = -n * q[1] * mean[1] * (q[0] * mean[0] + q[2] * mean[2])
    assert_mean_within(truncated[:, 0], expected)
    assert_mean_within((truncated[:, 0] - expected) ** 2, spread)
    assert_mean_within(outside, n * (q[0] * mean[0] + q[2] * mean[2]))
    assert_mean_within((truncated[:, 0] - expected) * (outside - outside.mean()), covariance)
    assert_rejects(assert_mean_within, truncated[:, 0], 1.05 * expected)
    assert_rejects(assert_mean_within, (truncated[:, 0] - expected) ** 2, 1.06 * spread)


@pytest.mark.parametrize(("name", "expected"), [("binomial", [0.3]), ("multinomial", [0.5, 0.2, 0.3])])
def test_bounded_statistics_are_sums_of_records(name, expected):
    theta = np.tile(expected, (5000, 1))
    s, truncated = draw_sums(name, np.random.default_rng(3), theta, 20)
    np.testing.assert_array_equal(s, truncated)
    for j, p in enumerate(expected):
        assert_mean_within(s[:, j], 20 * p)
        assert_mean_within((s[:, j] - 20 * p) ** 2, 20 * p * (1 - p))
        assert_rejects(assert_mean_within, s[:, j], 20 * p * 1.05)


@pytest.mark.parametrize("name", TRUNCATED)
def test_statistics_do_not_depend_on_batch_size(name, monkeypatch):
    theta = FAMILIES[name].draw_parameters(np.random.default_rng(1), PRIORS[name], size=7)
    whole = draw_sums(name, np.random.default_rng(2), theta, 30, BOUNDS[name])
    for records in (70, 30, 11):
        # Patch the module that the method uses: the collection of doctests may import another one of the same name.
        monkeypatch.setitem(ReleaseModel.draw_sums.__globals__, "_RECORDS_AT_ONCE", records)
        parts = draw_sums(name, np.random.default_rng(2), theta, 30, BOUNDS[name])
        np.testing.assert_allclose(parts, whole, rtol=1e-13)


@pytest.mark.parametrize("name", FAMILIES)
def test_parameters_follow_the_prior(name):
    draws = FAMILIES[name].draw_parameters(np.random.default_rng(8), PRIORS[name], size=20_000)
    assert draws.shape == (20_000, 3 if name == "multinomial" else 1)
    prior = PRIOR_DISTRIBUTIONS[name](PRIORS[name])
    assert stats.kstest(draws[:, 0], prior.cdf).pvalue > 1e-6
    assert stats.kstest(draws[:, 0] * 1.05, prior.cdf).pvalue < 1e-6


LIKELIHOODS = {  # of records
    "binomial": stats.bernoulli,
    "exponential": lambda theta: stats.expon(0, 1 / theta),
    "poisson": stats.poisson,
    "normal": stats.norm,
}


@pytest.mark.parametrize(
    ("name", "records"),
    [
        ("binomial", [0, 1, 1, 1]),
        ("exponential", [0.3, 2.0, 0.0]),
        ("poisson", [0, 7, 3]),
        ("normal", [-2.0, 0.4, 3.0]),
    ],
)
def test_posterior_is_prior_times_likelihood(name, records):
    s = np.atleast_1d(np.sum(records, axis=0))
    updated = FAMILIES[name].posterior(PRIORS[name], s, len(records))
    before, after = (PRIOR_DISTRIBUTIONS[name](prior) for prior in (PRIORS[name], updated))
    log_pmf = "logpmf" if FAMILIES[name].integer_records else "logpdf"
    constants = [
        before.logpdf(t) + getattr(LIKELIHOODS[name](t), log_pmf)(records).sum() - after.logpdf(t)
        for t in (0.1, 0.4, 0.8)
    ]
    np.testing.assert_allclose(constants, constants[0], rtol=1e-12)


def test_multinomial_posterior_adds_the_counts():
    s = statistic("multinomial", [[0, 1, 0], [0, 0, 1], [0, 1, 0]])
    np.testing.assert_array_equal(FAMILIES["multinomial"].posterior((5, 1, 2), [s, s], 3), [[5, 3, 3]] * 2)


@pytest.mark.slow
@pytest.mark.parametrize("relation", Neighbouring)
@pytest.mark.parametrize(
    ("name", "bounds", "records"),
    [
        ("binomial", None, [0, 1]),
        ("multinomial", None, [(1, 0, 0), (0, 1, 0), (0, 0, 1)]),
        ("exponential", (0.5, 2.0), np.linspace(0, 4, 33)),
        ("exponential", (0.0, 2.0), np.linspace(0, 4, 33)),
        ("poisson", (1, 4), range(8)),
        ("normal", (-1.0, 2.0), np.linspace(-5, 5, 41)),
        ("normal", (1.0, 2.0), np.linspace(-5, 5, 41)),
        ("normal", (-3.0, -2.0), np.linspace(-5, 5, 41)),
    ],
)
def test_sensitivity_equals_largest_change_over_neighbours(name, bounds, records, relation):
    """Also that of an audit, at the noise scale 1."""
    sums = np.array([[statistic(name, [kept, x], bounds) for x in records] for kept in list(records)[:2]])
    kept = [statistic(name, [record], bounds) for record in list(records)[:2]]
    others = sums[:, None] if relation is Neighbouring.REPLACE_ONE else np.array(kept)[:, None, None]
    largest = np.abs(sums[:, :, None] - others).sum(axis=-1).max()
    assert largest == pytest.approx(FAMILIES[name].sensitivity(bounds, relation), rel=1e-12)
    assert audit_sums(name, 1.0, bounds, relation).epsilon == pytest.approx(largest, rel=1e-12)


def test_truncated_statistic_includes_the_bounds():
    assert statistic("poisson", [0, 1, 2, 4, 5], bounds=(1, 4)).tolist() == [7.0]


@pytest.mark.parametrize("name", FAMILIES)
def test_invalid_priors_raise(name):
    good, validate = PRIORS[name], FAMILIES[name].validate_prior
    for bad in [(), (1.0,), (*good[:-1], 0.0), (*good[:-1], -1.0), (*good[:-1], math.nan), (math.inf, *good[1:]), "ab"]:
        assert_refused(partial(validate, bad), "prior")
    if name != "multinomial":
        assert_refused(partial(validate, (1, 1, 1)), "prior must have 2 numbers")


@pytest.mark.parametrize(
    ("name", "bounds", "message"),
    [
        ("binomial", (0.0, 1.0), "bounds must be None"),
        ("exponential", None, "bounds must be two numbers"),
        ("exponential", (1.0,), "bounds must be two numbers"),
        ("exponential", (1.0, 1.0), "lower < upper"),
        ("exponential", (2.0, 1.0), "lower < upper"),
        ("exponential", (0.0, math.inf), "finite"),
        ("exponential", (-1.0, 1.0), "lower bound must be >= 0"),
        ("poisson", (0.0, 1.5), "integers"),
        ("normal", (math.nan, 1.0), "finite"),
    ],
)
def test_invalid_bounds_raise(name, bounds, message):
    assert_refused(lambda: FAMILIES[name].sensitivity(bounds), message)
    assert_refused(lambda: draw_sums(name, np.random.default_rng(1), [[0.5]], 3, bounds), message)


@pytest.mark.parametrize(
    ("name", "data", "parameters"),
    [
        ("binomial", [[0, 2], [0.5], [], [[0, 1]]], [[[-0.1]], [[math.nan]]]),
        ("multinomial", [[[1, 1], [0, 1]], [1, 0]], [[[0.5, 0.2, 0.2]]]),
        ("exponential", [[-0.1], [math.inf]], [[[0.0]]]),
        ("poisson", [[1.5]], [[[math.inf]]]),
        ("normal", [[math.nan]], [[[math.inf]], [1.0]]),
    ],
)
def test_data_and_parameters_outside_their_ranges_raise(name, data, parameters):
    for records in data:
        assert_refused(partial(statistic, name, records, BOUNDS[name]), "data must")
    for theta in parameters:
        assert_refused(partial(draw_sums, name, np.random.default_rng(1), theta, 3, BOUNDS[name]), "theta must")


def test_region_moments_of_bounded_family_raise():
    assert_refused(lambda: FAMILIES["binomial"].region_moments(0.5, None), "use exponential, poisson or normal")
    assert_refused(lambda: FAMILIES["multinomial"].posterior((1, 1, 1), [1.0, 2.0], 3), "s must have shape")
