"""Tests of lower bounds on the loss from draws, for correct mechanisms and for wrong implementations."""

import math
from functools import partial

import numpy as np
import pytest
from scipy import stats

from mechanisms import (
    FAMILIES,
    GAUSSIAN_MECHANISMS,
    GLM_MECHANISMS,
    MECHANISMS,
    PROBABILITY_METHODS,
    QUANTILE_METHODS,
    RENYI_SAMPLERS,
    approximate_epsilon,
    audit_counts,
    audit_sums,
    calibrate_renyi,
    count_sampler,
    gaussian_mechanism,
    glm_mechanism,
    partition_probability,
    partition_quantile,
    sampled_bound,
    statistics_sampler,
)
from mechanisms.core.privacy import Guarantee
from mechanisms.draws.glm_sampling import STEPS_PER_PRODUCT, laplace_approximation, sample_glm
from mechanisms.draws.tempered import renyi_sampler
from tests.mechanisms.inference.laplace import BOUNDS
from tests.mechanisms.marks import exhaustive, in_turn
from tests.mechanisms.refusals import assert_refused
from tests.statistical import assert_mean_within

SURE = 1 - 1e-6  # a correct sampler fails once in a million runs
DRAWS = 40_000
PRIOR, N = (1.0, 1.0, 1.0), 6


def records(counts):
    return np.repeat(np.arange(len(counts)), counts)


def bounds_of(make_sampler, givens, pair, draws=DRAWS, delta=0.0):
    """Return the bounds on the loss of the samplers that are made for each given value."""
    return [sampled_bound(make_sampler(given), *pair, draws, delta, SURE).epsilon for given in givens]


def counts_bound(name, given, stated=1.0):
    """Return the exact loss at ε = `given`, and a lower bound on the loss from draws."""
    exact = audit_counts(name, PRIOR, N, given)
    sampler = count_sampler(np.random.default_rng(3), name, PRIOR, given)
    pair = [records(counts) for counts in (exact.witness.dataset, exact.witness.neighbour)]
    guarantee = MECHANISMS[name].guarantee(stated, 1e-8)
    delta = 0.0 if guarantee is None else guarantee.delta
    return exact.epsilon, sampled_bound(sampler, *pair, DRAWS, delta, SURE).epsilon


@pytest.mark.parametrize("name", MECHANISMS)
def test_loss_of_counts_is_between_half_and_all_of_the_exact_loss(name):
    exact, bound = counts_bound(name, 1.0)
    assert bound <= exact
    assert bound > 0.5 * exact or exact < 0.9
    exact, bound = counts_bound(name, 3.0)
    if exact > 2.5:  # negative control: noise for three times the stated epsilon
        assert bound > 1.0


@pytest.mark.parametrize("name", FAMILIES)
def test_loss_of_noisy_sums_is_at_most_as_stated(name):
    family, bounds = FAMILIES[name], BOUNDS.get(name)
    witness = audit_sums(family, family.sensitivity(bounds), bounds).witness
    samplers = partial(statistics_sampler, np.random.default_rng(4), family, bounds=bounds)
    found = bounds_of(samplers, (1.0, 2.0), (witness.dataset, witness.neighbour))
    assert 0.5 < found[0] <= 1.0
    assert found[1] > 1.0  # negative control: half the noise


@pytest.mark.parametrize("name", [name for name, method in PROBABILITY_METHODS.items() if method.has_noise])
def test_loss_of_partition_probabilities_is_at_most_as_stated(name):
    """If one partition's probability changes from 0 to 1, only `fisher-published` has a loss above ε."""
    method, rng = partition_probability(name, 4, epsilon=1.0), np.random.default_rng(5)

    def sampler(p, size):
        return method.release(rng, np.broadcast_to(np.asarray(p)[:, None], (size, 4, 1)))

    bound = sampled_bound(sampler, [0.6, 0.6, 0.6, 0.0], [0.6, 0.6, 0.6, 1.0], DRAWS, confidence=SURE).epsilon
    assert (bound > 2.5) if name == "fisher-published" else (0.3 < bound <= 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["quantile", "quantile-centred", *exhaustive("quantile-exact")])
def test_loss_of_partition_quantiles_is_at_most_as_stated(name):
    """If one of three partitions' quantiles changes, the bound is at most ε, but above ε for a release at 12ε."""
    parts, rng = len(QUANTILE_METHODS[name].parts), np.random.default_rng(10)

    def make_sampler(given):
        method = partition_quantile(name, 3, given, [given / parts] * parts, doublings=2)

        def sampler(last, size):
            q, s = np.array([0.5, 0.5, last])[:, None], np.full(3, 0.3)
            return np.concatenate([method.release(rng, q, s).values for _ in range(size)])

        return sampler

    draws = 3_000 if QUANTILE_METHODS[name].is_centred else 2_000
    found = bounds_of(make_sampler, (1.0, 12.0), (0.5, 9.0), draws)
    assert found[0] <= 1.0 < found[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", in_turn([*GAUSSIAN_MECHANISMS, *(name for name in RENYI_SAMPLERS if name != "direct")])
)
def test_loss_of_renyi_mechanisms_is_at_most_as_stated(name):
    """Bounds are at most the ε implied by (4, 0.5)-RDP, but above it for samplers with a larger divergence."""
    delta, prior, rng = 1e-3, (0.05, 0.05), np.random.default_rng(6)
    stated = approximate_epsilon([4.0], [0.5], delta)

    def make_sampler(is_right):
        if name in GAUSSIAN_MECHANISMS:
            mechanism = gaussian_mechanism(name, prior, 8, 4.0, 0.5 if is_right else 30.0)
        else:
            mechanism = calibrate_renyi(name, prior, 8, 4.0, 0.5) if is_right else renyi_sampler(name, prior, 8, 1.0)
        return lambda c, size: mechanism.at(c).sample(rng, size)[:, 0]

    found = bounds_of(make_sampler, (True, False), ([0, 8], [1, 7]), 20_000, delta)
    assert found[0] <= stated < found[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", in_turn([name for name, method in GLM_MECHANISMS.items() if method.budget in ("renyi", "pure")])
)
def test_loss_of_glm_draws_is_at_most_as_stated(name):
    """Bounds from the last draws of independent chains are at most ε, but above ε for draws at 80ε."""
    guarantee = glm_mechanism(name, n=1, beta=0.01, order=4.0, epsilon=0.5).guarantee
    delta, stated = 0.0, guarantee.epsilon
    if not isinstance(guarantee, Guarantee):
        delta = 1e-3
        stated = approximate_epsilon([guarantee.order], [stated], delta)
    design, rng = np.ones((1, 1)), np.random.default_rng(11)

    def make_sampler(given):
        mechanism = glm_mechanism(name, n=1, beta=0.01, order=4.0, epsilon=given)

        def sampler(label, size):
            labels = np.array([float(label)])
            approximation = laplace_approximation(design, labels, mechanism)
            draws = sample_glm(rng, design, labels, mechanism, approximation, STEPS_PER_PRODUCT, n_chains=size)
            return draws.weights[:, -1]

        return sampler

    found = bounds_of(make_sampler, (0.5, 40.0), (0, 1), 10_000, delta)
    assert found[0] <= stated < found[1]


@pytest.mark.slow
def test_bounds_have_the_stated_confidence():
    """At most a tenth of 400 bounds with 90 % confidence exceed the ε of randomised response (5 standard errors)."""
    rng, truth = np.random.default_rng(8), math.exp(1.0) / (1 + math.exp(1.0))

    def sampler(bit, size):
        return np.where(rng.random(size) < truth, bit, 1 - np.asarray(bit))

    found = np.array([sampled_bound(sampler, 0, 1, 2000, confidence=0.9).epsilon for _ in range(400)])
    assert np.mean(found > 1.0) < 0.1 + 5 * math.sqrt(0.1 * 0.9 / 400)
    assert np.mean(found > 0.9) > 0.1  # negative control: many bounds are close to ε
    assert np.median(found) > 0.8


def test_delta_is_subtracted():
    """If a tenth of the draws reveal the record, the bound on ε exceeds 4 for δ = 0, and is 0 for δ = 0.1."""
    rng = np.random.default_rng(9)

    def sampler(bit, size):
        return np.where(rng.random(size) < 0.1, 1 + np.asarray(bit), 0)

    assert sampled_bound(sampler, 0, 1, DRAWS).epsilon > 4
    assert sampled_bound(sampler, 0, 1, DRAWS, delta=0.1).epsilon == 0.0


def leaking_sampler(rng, probability, n_columns):
    """Return a sampler of noisy sums with a loss of 1 that publishes the first record with some probability."""

    def sampler(data, size):
        rows = np.sum(data) + rng.laplace(size=(size, n_columns)) * n_columns
        rows[rng.random(size) < probability, -1] = data[0]
        return rows

    return sampler


@pytest.mark.slow
@pytest.mark.parametrize("n_columns", [*exhaustive(1), 3])
def test_leak_of_a_record_is_found_by_a_single_output(n_columns):
    """A leak of 1 % among many distinct outputs gives a bound above ε = 1; without it, the bound is at most 1."""
    pair = [0.25, 0.5, 0.75], [0.75, 0.5, 0.75]
    for probability, found in ((0.01, True), (0.0, False)):
        sampler = leaking_sampler(np.random.default_rng(1), probability, n_columns)
        for first, second in (pair, pair[::-1]):
            assert (sampled_bound(sampler, first, second, DRAWS // 2, confidence=SURE).epsilon > 1.0) is found


@pytest.mark.parametrize("n_columns", [2, 12, 40])
def test_too_little_noise_is_found_among_many_components(n_columns):
    """The bound of Laplace noise with a loss of 10 stays above 4 if the record changes one component of many."""
    pair, rng = (np.zeros(n_columns), np.eye(n_columns)[-1]), np.random.default_rng(1)

    def make_sampler(loss):
        return lambda data, size: data + rng.laplace(size=(size, n_columns)) / loss

    right, wrong = bounds_of(make_sampler, (1.0, 10.0), pair, 4_000)
    assert right <= 1.0 < 4.0 < wrong <= 10.0


def test_repeated_values_are_found_in_the_first_of_many_components():
    """Numbers of bins of 70 components with two values each lost the first ones beyond 64 bits."""

    def sampler(bit, size):
        rows = np.zeros((size, 70))
        rows[:, 0], rows[: size // 9, -1], rows[-(size // 9) :, 1:] = bit, 1.0, 1.0
        return rows

    assert sampled_bound(sampler, 0, 1, 2_000).epsilon > 4.0


def test_declared_event_finds_a_leak_in_the_last_digits():
    """Noise on a grid that depends on the data has no loss in any interval, but an event on the grid reveals it."""
    rng = np.random.default_rng(12)

    def sampler(bit, size):
        return np.rint(1e6 * rng.laplace(size=size)) * 2.0 + bit

    def is_even(rows):
        return rows[:, 0] % 2 == 0

    assert sampled_bound(sampler, 0, 1, DRAWS, confidence=SURE).epsilon < 0.1
    found = sampled_bound(sampler, 0, 1, DRAWS, confidence=SURE, events=[is_even])
    assert (found.epsilon > 5, found.occurrences) == (True, (DRAWS // 2, 0))
    with pytest.raises(ValueError, match="an event must return 40000 Booleans, got float64"):
        sampled_bound(sampler, 0, 1, DRAWS, events=[lambda rows: rows[:, 0]])


@pytest.mark.slow
def test_many_candidates_keep_the_stated_confidence():
    """At most a tenth of 100 bounds with 90 % confidence exceed the ε of Laplace noise, with many candidate events."""
    rng = np.random.default_rng(13)
    events = [lambda rows, i=i: rows[:, 0] > i / 10 for i in range(-20, 20, 4)]

    def share_above(scale, n_bounds):
        def sampler(bit, size):
            return np.round(bit + scale * rng.laplace(size=size), 2)  # more than 200 outputs, many of them repeated

        bounds = [sampled_bound(sampler, 0.0, 1.0, 1000, confidence=0.9, events=events) for _ in range(n_bounds)]
        return np.mean([bound.epsilon > 1.0 for bound in bounds])

    limit = 0.1 + 5 * math.sqrt(0.1 * 0.9 / 100)
    assert share_above(1.0, 100) < limit < share_above(0.5, 20)  # half the noise is the negative control


@pytest.mark.parametrize(
    ("message", "change"),
    [
        ("n_samples must be an integer >= 200, got 10", {"n_samples": 10}),
        (r"delta must be in \[0, 1\), got 1", {"delta": 1}),
        (r"confidence must be in \(0, 1\), got 1", {"confidence": 1}),
        (r"samples must be 400 rows without NaN, got shape \(3,\)", {"sampler": lambda data, size: [1, 2, 3]}),
        ("samples must be 400 rows without NaN", {"sampler": lambda data, size: np.full(size, np.nan)}),
    ],
)
def test_invalid_input_raises(message, change):
    arguments = {"sampler": lambda data, size: np.zeros(size), "n_samples": 400, **change}
    assert_refused(lambda: sampled_bound(dataset=[0], neighbour=[1], **arguments), message)


# Samplers

RECORDS = np.array([0, 1, 1, 2, 0, 1, 1])
N_SAMPLES = 50_000


@pytest.mark.parametrize(
    ("family", "records", "bounds", "expected", "scale"),
    [
        ("binomial", [0, 1, 1, 0, 1], None, [3.0], 2.0),
        ("multinomial", np.eye(3)[RECORDS], None, [2.0, 4.0, 1.0], 4.0),
        ("poisson", [3, 1, 4, 12], (0, 9), [8.0], 18.0),
        ("exponential", [0.5, 1.0, 7.0], (0.0, 2.0), [1.5], 4.0),
    ],
)
def test_statistics_sampler_adds_laplace_noise(family, records, bounds, expected, scale):
    sampler, same = (statistics_sampler(np.random.default_rng(2), FAMILIES[family], 0.5, bounds) for _ in range(2))
    samples = sampler(records, N_SAMPLES)
    np.testing.assert_array_equal(same(records, N_SAMPLES), samples)
    assert samples.shape == (N_SAMPLES, len(expected))
    for column, location in zip(samples.T, expected, strict=True):
        assert stats.kstest(column, stats.laplace(location, scale).cdf).pvalue > 1e-6
        assert_mean_within(abs(column - location), scale, wrong=1.05 * scale)
    if len(expected) > 1:
        correlation = np.corrcoef(samples.T)[np.triu_indices(len(expected), 1)]
        assert np.abs(correlation).max() < 5 / np.sqrt(N_SAMPLES)


@pytest.mark.parametrize(
    ("message", "dataset"),
    [
        (r"dataset must have shape \(n,\) with n >= 1, got \(0,\)", []),
        (r"dataset must have shape \(n,\) with n >= 1, got \(1, 2\)", [[0, 1]]),
        ("dataset must contain categories 0 to 1, got another in record 1; recode", [0, 2]),
        ("dataset must contain categories 0 to 1, got another in record 0; recode", [0.5, 1]),
        ("dataset must contain categories 0 to 1, got another in record 0; recode", [np.nan, 1]),
    ],
)
def test_invalid_data_of_a_sampler_raise(message, dataset):
    sampler = count_sampler(np.random.default_rng(1), MECHANISMS["laplace"], (1, 1), 1.0)
    assert_refused(lambda: sampler(dataset, 1), message)


def test_missing_bounds_are_refused_before_sampling():
    assert_refused(lambda: statistics_sampler(np.random.default_rng(1), FAMILIES["poisson"], 1.0), "bounds must be")
