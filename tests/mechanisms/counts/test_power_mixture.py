"""Tests of the mixture of product distributions against enumeration and independent computations."""

import math
from functools import partial

import mpmath
import numpy as np
import pytest
from scipy import integrate, stats

from mechanisms.core.conjugate import balanced_counts, count_candidates, enumerate_candidates, posterior
from mechanisms.core.hellinger import hellinger
from mechanisms.counts import power_mixture as module
from mechanisms.counts.exponential import ExponentialMechanism
from mechanisms.counts.power_mixture import HEAD, first_power, group_powers, log_coefficients, series_head, sum_rule
from mechanisms.counts.product_distributions import _next, product_distributions, seed_states
from tests.mechanisms.counts.constructors import exponential_mechanism, power_mixture_mechanism
from tests.mechanisms.counts.enumeration import frequencies_of
from tests.mechanisms.counts.test_registry import assert_rows_are_independent
from tests.mechanisms.marks import exhaustive, in_turn
from tests.mechanisms.refusals import assert_refused
from tests.statistical import assert_frequencies, assert_mean_within

UNIT2, UNIT3, UNIT4 = (1.0,) * 2, (1.0,) * 3, (1.0,) * 4

# Prior, counts, inverse temperature: from uniform to concentrated distributions; draws reach all candidates.
DISTRIBUTIONS = [
    (UNIT2, (1, 0), 1.0),
    (UNIT2, (0, 9), 3.0),
    (UNIT2, (30, 31), 12.0),
    ((0.01, 100.0), (0, 20), 2.0),
    (UNIT3, (3, 4, 2), 0.1),
    (UNIT3, (7, 0, 7), 4.0),
    ((0.01, 100.0, 1.0), (0, 9, 4), 3.0),
    (UNIT3, (14, 14, 14), 10.0),
    (UNIT4, (3, 3, 3, 3), 6.0),
    ((0.3, 2.0, 5.0, 40.0), (0, 6, 1, 3), 8.0),
    ((1.0,) * 6, (2, 0, 2, 1, 0, 1), 5.0),
]
MEANS = [
    (UNIT2, (1, 0)),
    (UNIT2, (20_000, 30_000)),
    ((1e6, 1e6), (50, 50)),
    (UNIT3, (33, 33, 34)),
    ((0.01, 100.0, 1.0), (0, 90, 10)),
    ((0.5, 3.0, 1.0), (1000, 10, 0)),
    (UNIT4, (20, 20, 20, 0)),
    ((1.0,) * 7, (3,) * 7),
]


def build(prior, counts, inverse_temperature):
    return power_mixture_mechanism(prior, counts, inverse_temperature)


def streamed(prior, counts, inverse_temperature):
    mechanism = exponential_mechanism(prior, counts, 1.0, 1.0 / inverse_temperature)
    assert isinstance(mechanism, ExponentialMechanism)
    return mechanism


def draws(mechanism, n_draws, seed=5):
    return mechanism.from_uniforms(np.random.default_rng(seed).random((n_draws, 2)))


def distances(mechanism, released):
    return hellinger(posterior(mechanism.prior, mechanism.counts), posterior(mechanism.prior, released))


# Series


def coefficients(a, powers):
    return log_coefficients(np.asarray(powers, dtype=np.float64), a, series_head(a))


@pytest.mark.parametrize("inverse_temperature", [1e-6, 0.3, 2.0, 17.0])
def test_coefficients_equal_the_taylor_series(inverse_temperature):
    with mpmath.workdps(60):
        series = mpmath.taylor(lambda t: mpmath.exp(-mpmath.mpf(inverse_temperature) * mpmath.sqrt(1 - t)), 0, 20)
        expected = [float(mpmath.log(p)) for p in series]
    np.testing.assert_allclose(coefficients(inverse_temperature, np.arange(21)), expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("inverse_temperature", [1e-6, 0.3, 40.0, 1000.0, 1e4])
def test_expansion_equals_the_recurrence(inverse_temperature):
    """The coefficients of the power series agree with a recurrence in 60-digit arithmetic, up to power 1,999."""
    powers = [0, 1, HEAD - 1, HEAD, HEAD + 1, 700, 1999]
    with mpmath.workdps(60):
        a = mpmath.mpf(inverse_temperature)
        p = [mpmath.exp(-a), a / 2 * mpmath.exp(-a)]
        for j in range(1998):
            p.append((a * a * p[j] + 2 * (j + 1) * (2 * j + 1) * p[j + 1]) / (4 * (j + 1) * (j + 2)))
        expected = [float(mpmath.log(p[j])) for j in powers]
    np.testing.assert_allclose(coefficients(inverse_temperature, powers), expected, rtol=2e-14, atol=2e-14)


@pytest.mark.parametrize(
    ("inverse_temperature", "power"), [(0.7, 3), (5.0, 40), (30.0, 600.0), (30.0, 613.25), (300.0, 90_000)]
)
def test_coefficients_equal_a_poisson_mixture(inverse_temperature, power):
    def integrand(log_mean):
        mean = math.exp(log_mean)
        log_poisson = power * log_mean - mean - math.lgamma(power + 1)
        return math.exp(
            log_poisson
            + math.log(inverse_temperature / (2 * math.sqrt(math.pi * mean)))
            - inverse_temperature**2 / (4 * mean)
        )

    centre, width = math.log(power), 12 / math.sqrt(power)
    value, _ = integrate.quad(integrand, centre - width, centre + width, epsabs=0, epsrel=1e-12, limit=500)
    assert coefficients(inverse_temperature, [power])[0] == pytest.approx(math.log(value), rel=1e-10)


def test_first_power_bounds_the_mass_below():
    """The total weight of the omitted powers is at most the bound, and at least e⁻⁸ times the bound."""
    for inverse_temperature, bound in ((30.0, -20.0), (300.0, -60.0)):
        first = first_power(10**6, bound, inverse_temperature, series_head(inverse_temperature))
        below = np.logaddexp.reduce(coefficients(inverse_temperature, np.arange(first)))
        assert bound - 8 < below <= bound
    assert first_power(10**6, -40.0, 1.0, series_head(1.0)) == 0


@pytest.mark.parametrize("inverse_temperature", [0.01, 7.0, 900.0])
def test_groups_partition_the_powers(inverse_temperature):
    head = series_head(inverse_temperature)
    starts, stops, log_tops = group_powers(3.0, 1e6, 1.1, inverse_temperature, head)
    assert (starts[0], stops[-1]) == (3, 10**6)
    np.testing.assert_array_equal(starts[1:], stops[:-1])
    assert np.all((stops == starts + 1) | (stops <= 1.1 * starts))
    log_p = coefficients(inverse_temperature, np.arange(10**6))
    for start, stop, top in zip(starts.astype(int), stops.astype(int), log_tops, strict=True):
        assert log_p[start:stop].max() <= top + 1e-12
        assert log_p[start:stop].min() >= top - 0.51 or stop == start + 1


@pytest.mark.parametrize("size", [1, 2, 7, 8, 9, 1000, 10**9])
def test_sum_rule_is_exact_for_polynomials(size):
    x, w = sum_rule(size, 8)
    assert x.min() >= -1e-9
    assert x.max() <= size - 1 + 1e-9
    with mpmath.workdps(80):
        for degree in range(16):  # compare with Faulhaber's formula
            exact = (mpmath.bernpoly(degree + 1, size) - mpmath.bernpoly(degree + 1, 0)) / (degree + 1)
            assert float(w @ x**degree) == pytest.approx(float(exact), rel=1e-10)


# Random number generator and product distributions


def test_generator_equals_its_published_output():
    state = np.array([1, 2, 3, 4], dtype=np.uint64)
    assert [int(_next(state)) for _ in range(4)] == [41943041, 58720359, 3588806011781223, 3591011842654386]


@pytest.mark.parametrize(("prior", "counts", "_"), DISTRIBUTIONS)
def test_weights_of_product_distributions_equal_enumeration(prior, counts, _):
    powers = np.array([0.1, 1.0, 2.5, 30.0])
    off = product_distributions(np.array(prior), np.array(counts)).tables(powers).off[:, 0]
    candidates = enumerate_candidates(sum(counts), len(counts))
    candidates = candidates[np.any(candidates != counts, axis=1)]
    t = 1 - hellinger(posterior(prior, counts), posterior(prior, candidates)) ** 2
    np.testing.assert_allclose(off, [np.sum(t**power) for power in powers], rtol=1e-11)


# Distribution


@pytest.mark.slow
@pytest.mark.parametrize(("prior", "counts", "inverse_temperature"), in_turn(DISTRIBUTIONS))
def test_draws_follow_the_enumerated_distribution(prior, counts, inverse_temperature):
    mechanism = build(prior, counts, inverse_temperature)
    distribution = streamed(prior, counts, inverse_temperature).pmf()
    frequencies = frequencies_of(draws(mechanism, 250_000), mechanism.n, mechanism.k)
    assert_frequencies(frequencies, distribution, wrong=distribution * np.resize([1.05, 0.95], distribution.size))


@pytest.mark.parametrize("inverse_temperature", [1e-8, 1e-3, 1.0, 20.0, 100.0, 300.0, 3000.0, 1e4, 1e6])
@pytest.mark.parametrize(("prior", "counts"), MEANS)
def test_mean_and_distribution_equal_enumeration(prior, counts, inverse_temperature):
    mechanism, expected = build(prior, counts, inverse_temperature), streamed(prior, counts, inverse_temperature)
    assert mechanism.expected_hellinger() == pytest.approx(expected.expected_hellinger(), rel=1e-9, abs=1e-300)
    np.testing.assert_allclose(mechanism.log_pmf(), expected.log_pmf(), rtol=1e-12, atol=1e-9)
    acceptance = math.exp(mechanism._moments[0] - np.logaddexp.reduce(mechanism._log_weights))
    assert 0.65 < acceptance < 1 + 1e-9  # the rate is 2/3 for two candidates


@pytest.mark.slow
@pytest.mark.parametrize(
    ("counts", "inverse_temperature"),
    [((1000, 1500, 500), 4.0), ((1000, 1000, 1000), 32.0), ((2998, 1, 1), 4.0), ((75, 75, 75, 75), 14.0)],
)
def test_mean_of_many_candidates_equals_streaming(counts, inverse_temperature):
    prior = np.ones(len(counts))
    mechanism = build(prior, counts, inverse_temperature)
    expected = streamed(prior, counts, inverse_temperature).expected_hellinger()
    assert mechanism.expected_hellinger() == pytest.approx(expected, rel=1e-9)
    sample = distances(mechanism, draws(mechanism, 100_000))
    assert_mean_within(sample, expected, wrong=1.05 * expected if expected < 0.9 else 0.95 * expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("counts", "inverse_temperature"),
    [
        (balanced_counts(100_000, 3), 25.0),
        *exhaustive((balanced_counts(100_000, 3), 182.6), (balanced_counts(10_000, 4), 50.0)),
        (balanced_counts(1000, 10), 100.0),
        (np.array([9_990, 9, 1, 0]), 20.0),
    ],
)
def test_draws_agree_with_the_mean_beyond_enumeration(counts, inverse_temperature):
    """The draws agree with the series in their mean distance and in the frequency of outputs near the true counts."""
    mechanism = build(np.ones(counts.size), counts, inverse_temperature)
    released = draws(mechanism, 100_000)
    np.testing.assert_array_equal(released.sum(axis=1), mechanism.n)
    assert_mean_within(distances(mechanism, released), mechanism.expected_hellinger())
    near = np.abs(released - counts).max(axis=1) <= 1
    steps = np.stack(np.meshgrid(*[[-1, 0, 1]] * counts.size), axis=-1).reshape(-1, counts.size)
    steps = steps[(steps.sum(axis=1) == 0) & np.all(counts + steps >= 0, axis=1)]
    assert_mean_within(near, float(np.exp(mechanism.log_prob(counts + steps)).sum()))


def test_total_weight_equals_importance_sampling():
    """The normaliser over 4·10¹² outputs agrees with an estimate from outputs that are drawn uniformly."""
    rng, counts, inverse_temperature = np.random.default_rng(3), balanced_counts(100, 10), 6.0
    mechanism = build(np.ones(10), counts, inverse_temperature)
    uniform = rng.multinomial(100, rng.dirichlet(np.ones(10), size=200_000))
    weights = np.exp(-inverse_temperature * distances(mechanism, uniform))
    expected = math.exp(-float(mechanism.log_prob(counts)) - math.log(count_candidates(100, 10)))
    assert_mean_within(weights, expected, wrong=1.05 * expected)


@pytest.mark.slow
def test_distribution_at_symmetric_data_is_symmetric():
    released = draws(build(UNIT3, (40_000,) * 3, 30.0), 100_000)
    for category in range(3):
        assert_mean_within(released[:, category], 40_000)
        sample = released[:, category]
        assert stats.ks_2samp(sample, released[:, category - 1]).pvalue > 1e-6


@pytest.mark.slow
def test_extreme_inverse_temperatures_give_the_true_or_uniform_counts():
    counts = (40, 50, 60)
    assert np.all(draws(build(UNIT3, counts, 1e7), 1000) == counts)
    assert build(UNIT3, counts, 1e7).expected_hellinger() == 0.0
    released = draws(build(UNIT3, counts, 1e-12), 100_000)
    assert_frequencies(np.bincount(released[:, 0], minlength=151), np.arange(151, 0, -1) / count_candidates(150, 3))


# Interface


@pytest.mark.slow
@pytest.mark.parametrize(
    ("prior", "counts", "inverse_temperature"),
    [DISTRIBUTIONS[3], *exhaustive(DISTRIBUTIONS[7], (UNIT4, (2500,) * 4, 50.0))],
)
def test_draw_depends_on_its_own_uniforms_only(prior, counts, inverse_temperature):
    mechanism = build(prior, counts, inverse_temperature)
    assert_rows_are_independent(mechanism, build(prior, counts, inverse_temperature))
    first = np.column_stack([np.random.default_rng(7).random(400), np.zeros(400)])
    assert len(np.unique(mechanism.from_uniforms(first), axis=0)) > 5
    np.testing.assert_array_equal(mechanism.from_uniforms([[-0.0, 0.5]]), mechanism.from_uniforms([[0.0, 0.5]]))
    assert mechanism.from_uniforms(np.empty((0, 2))).shape == (0, len(counts))
    assert (mechanism.k, mechanism.n, mechanism.n_uniforms) == (len(counts), sum(counts), 2)


@pytest.mark.parametrize(
    ("prior", "counts", "message"),
    [
        (UNIT3, [10**7, 0, 0], r"there must be at most 25,000,000 entries of tables, got 30,000,003 .*; use fewer"),
        ([1e9] * 3, [10**5] * 3, "at most 100,000,000,000 multiplications for convolutions, got .* lower the prior"),
        ([1.0] * 200, [1] * 200, r"at most 100,000,000 entries of tables, got .* \(n = 200, k = 200\)"),
        ([1.0] * 500, [2] * 500, r"there must be at most exp\(650\) candidates, got exp\("),
    ],
)
def test_too_large_problems_raise(prior, counts, message):
    assert_refused(lambda: power_mixture_mechanism(prior, counts, 1.25), message)


def test_invalid_uniforms_and_counts_raise():
    mechanism = build(UNIT3, (3, 2, 1), 2.0)
    assert_refused(lambda: mechanism.from_uniforms(np.zeros((3, 1))), r"shape \(trials, 2\), got \(3, 1\)")
    assert_refused(lambda: mechanism.from_uniforms(np.ones((1, 2))), r"in \[0, 1\), got 1.0")
    for released in ([3, 2, 2], [2.5, 2.5, 1]):
        assert_refused(partial(mechanism.log_prob, released), "released must be integers with sum 6")
    message = "at most 50,000,000 candidates to list their probabilities"
    assert_refused(lambda: build(UNIT4, (200,) * 4, 10.0).log_pmf(), message)


def test_imprecise_means_and_unfinished_draws_raise(monkeypatch):
    mechanism = build(UNIT3, (30, 20, 10), 20.0)
    monkeypatch.setattr(module, "MEAN_TOLERANCE", 0.0)
    with pytest.raises(ValueError, match=r"the error of the mean must be below 0.0, got .*; average draws"):
        mechanism.expected_hellinger()
    monkeypatch.setattr(module, "MAX_ROUNDS", 1)
    with pytest.raises(AssertionError, match="had no proposal accepted in 1 rounds"):
        draws(mechanism, 1000)


def test_seeds_of_the_generator_are_those_of_splitmix64():
    assert seed_states(np.zeros((1, 2)))[0, :2].tolist() == [16294208416658607535, 7960286522194355700]
