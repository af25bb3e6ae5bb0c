"""Tests of the distribution of the private quantile, of its privacy loss over neighbours, and of its draws."""

import math

import numpy as np
import pytest

from mechanisms.inference.families import FAMILIES
from mechanisms.inference.private_quantile import N_STEPS, private_bounds, quantile_distribution
from tests.statistical import assert_frequencies


def plain_distribution(data, quantile, epsilon, points):
    """Return the probability of each grid point, by the definition of the score for records on the grid."""
    below, at_most = ((compare(data, points[:, None])).sum(axis=1) for compare in (np.less, np.less_equal))
    target = quantile * len(data)
    weights = np.exp(-epsilon / 2 * np.maximum(np.maximum(below - target, target - at_most), 0))
    return weights / weights.sum()


def largest_loss(quantile, epsilon, seed=0):
    """Return the largest |ln p(x|D) − ln p(x|D')| over random data sets D, replaced records and all grid points."""
    rng, largest = np.random.default_rng(seed), 0.0
    for _ in range(300):
        n = int(rng.integers(1, 9))
        # Concentrated and spread records, ties, records outside the range.
        data = rng.choice([rng.normal(0.5, 0.02), 0.0, 0.2, 0.5, 1.0, 7.0, rng.random()], size=n)
        neighbour = data.copy()
        neighbour[rng.integers(n)] = rng.choice([-1.0, 0.0, 0.3, 1.0, rng.random()])
        distributions = [
            quantile_distribution(records, quantile, epsilon, (0.0, 1.0), 0.01) for records in (data, neighbour)
        ]
        first, second = (each.log_prob(np.arange(101)) for each in distributions)
        largest = max(largest, np.abs(first - second).max())
    return largest


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.1, 2.0])
@pytest.mark.parametrize("quantile", [0.1, 0.25, 0.5])
def test_ratio_of_neighbours_is_within_budget(quantile, epsilon):
    """The loss is at most ε; without the factor ½ in the exponent, the loss exceeds ε (negative control)."""
    assert 0.5 * epsilon < largest_loss(quantile, epsilon) <= epsilon * (1 + 1e-12)
    assert largest_loss(quantile, 2 * epsilon) > epsilon


@pytest.mark.parametrize("quantile", [0.0, 1.0])
def test_loss_of_extreme_quantiles_is_half_the_budget(quantile):
    """For the quantiles 0 and 1, scores and normaliser change in the same direction, so the loss is at most ε/2."""
    assert largest_loss(quantile, 2.0) <= 1.0 + 1e-12


@pytest.mark.parametrize("granularity", [0.1, 0.05, 0.025])
@pytest.mark.parametrize(("quantile", "epsilon"), [(0.5, 1.0), (0.9, 0.2), (0.0, 1e-6), (0.3, 100.0)])
def test_distribution_is_the_normalised_exponential_mechanism(quantile, epsilon, granularity):
    data = np.array([0.9, 0.1, 0.4, 0.4, 0.401, 0.1, 3.0, -1.0])
    found = quantile_distribution(data, quantile, epsilon, (0.0, 1.0), granularity)
    points = np.arange(round(1 / granularity) + 1)
    rounded = np.rint(np.clip(data, 0, 1) / granularity)
    np.testing.assert_allclose(found.values(points), points * granularity, rtol=1e-12)
    np.testing.assert_allclose(np.exp(found.log_prob(points)), plain_distribution(rounded, quantile, epsilon, points))
    assert np.sum(found.sizes * np.exp(found.log_masses)) == pytest.approx(1.0, rel=1e-12)
    assert found.sizes.sum() == points.size


@pytest.mark.slow
def test_draws_follow_the_distribution():
    data, rng = np.array([0.9, 0.1, 0.4, 0.4, 3.0]), np.random.default_rng(2)
    draws = np.rint(
        [10 * quantile_distribution(data, 0.5, 2.0, (0.0, 1.0), 0.1).draw(rng) for _ in range(4000)]
    ).astype(int)
    expected = plain_distribution(np.rint(10 * np.clip(data, 0, 1)), 0.5, 2.0, np.arange(11))
    assert_frequencies(np.bincount(draws, minlength=11), expected)
    with pytest.raises(AssertionError):
        assert_frequencies(np.bincount(draws, minlength=11), np.roll(expected, 1))


@pytest.mark.parametrize("epsilon", [1.0, 100.0, 1e4])
def test_value_shared_by_all_records_is_found(epsilon):
    """If all records are equal, draws are within one grid step of the common value."""
    rng, data = np.random.default_rng(3), np.full(1000, 3.0)
    draws = [quantile_distribution(data, 0.5, epsilon, (0.0, 100.0)).draw(rng) for _ in range(50)]
    assert np.abs(np.array(draws) - 3.0).max() <= 100.0 / N_STEPS
    lower, upper = private_bounds(rng, data, (0.025, 0.975), 2.0 * max(epsilon, 10.0), (0.0, 100.0))
    assert 2.99 < lower <= 3.0 + 100.0 / N_STEPS
    assert lower < upper < 3.01
    assert private_bounds(rng, data, (0.1, 0.9), 2.0 * epsilon, (0.0, 100.0), whole=True) == (2.0, 4.0)


def test_range_whose_width_overflows():
    data_range, rng = (-1.7e308, 1.7e308), np.random.default_rng(4)
    found = quantile_distribution(np.full(100, 1.6e308), 0.5, 1.0, data_range)
    assert np.sum(found.sizes * np.exp(found.log_masses)) == pytest.approx(1.0, rel=1e-12)
    ends = found.values([0, N_STEPS])
    np.testing.assert_allclose(ends, data_range, rtol=1e-15)
    draws = [quantile_distribution(np.full(100, 1.6e308), 0.5, 1.0, data_range).draw(rng) for _ in range(20)]
    np.testing.assert_allclose(draws, 1.6e308, rtol=1e-5)
    assert np.isfinite(private_bounds(rng, [0.0], (0.1, 0.9), 1e-3, data_range)).all()


def test_records_at_one_end_give_draws_within_range():
    rng = np.random.default_rng(1)
    draws = [quantile_distribution(np.zeros(50), 0.9, 1.0, (0.0, 2.0)).draw(rng) for _ in range(100)]
    assert all(0 <= draw < 2 for draw in draws)


def test_bounds_are_always_ascending():
    """The lower bound is below the upper one even for a tiny ε, for which half of the draws are in reverse order."""
    rng = np.random.default_rng(3)
    for _ in range(200):
        lower, upper = private_bounds(rng, [0.5], (0.025, 0.975), 1e-3, (0.0, 1.0))
        assert 0 <= lower < upper <= 1


def test_equal_draws_are_separated_by_one_step(monkeypatch):
    monkeypatch.setattr("mechanisms.inference.private_quantile.QuantileDistribution.draw", lambda *_: 0.5)
    rng = np.random.default_rng(1)
    assert private_bounds(rng, [0.5], (0.1, 0.9), 1.0, (-1, 2), granularity=0.25) == (0.25, 0.75)
    lower, upper = private_bounds(rng, [0.5], (0.1, 0.9), 1.0, (-1, 2))
    assert (0.5 - lower, upper - 0.5) == pytest.approx((3 / N_STEPS, 3 / N_STEPS))
    assert private_bounds(rng, [0.5], (0.1, 0.9), 1.0, (0.4, 0.6), granularity=0.2) == (0.4, 0.6)


def test_each_bound_uses_half_the_budget(monkeypatch):
    used = []

    def record(data, quantile, epsilon, *others):
        used.append((quantile, epsilon))
        return quantile_distribution(data, quantile, epsilon, *others)

    monkeypatch.setattr("mechanisms.inference.private_quantile.quantile_distribution", record)
    private_bounds(np.random.default_rng(1), [0.5], (0.1, 0.9), 1.0, (0, 1))
    assert used == [(0.1, 0.5), (0.9, 0.5)]


@pytest.mark.parametrize(
    ("data", "quantile", "epsilon", "data_range", "message"),
    [
        ([], 0.5, 1.0, (0, 1), "data must be finite"),
        ([math.nan], 0.5, 1.0, (0, 1), "data must be finite"),
        ([[0.5]], 0.5, 1.0, (0, 1), "data must be finite"),
        ([0.5], 1.5, 1.0, (0, 1), "quantile must be in"),
        ([0.5], math.nan, 1.0, (0, 1), "quantile must be in"),
        ([0.5], 0.5, 0.0, (0, 1), "epsilon must be"),
        ([0.5], 0.5, 1.0, (1, 1), "data_range must be finite"),
        ([0.5], 0.5, 1.0, (0, math.inf), "data_range must be finite"),
        (["0.5"], 0.5, 1.0, (0, 1), "data must be an array of real numbers"),
    ],
)
def test_invalid_arguments_raise(data, quantile, epsilon, data_range, message):
    with pytest.raises(ValueError, match=message):
        quantile_distribution(data, quantile, epsilon, data_range)
    if message.startswith("quantile"):
        with pytest.raises(ValueError, match="quantiles must be two ascending numbers"):
            private_bounds(np.random.default_rng(1), [0.5], (0.9, 0.1), 1.0, (0, 1))


@pytest.mark.parametrize("granularity", [0.0, -1.0, math.nan, math.inf, 1.5, 1e-17, "1"])
def test_granularity_without_a_grid_raises(granularity):
    with pytest.raises(ValueError, match="granularity must ") as caught:
        quantile_distribution([0.5], 0.5, 1.0, (0, 1), granularity)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("quantiles", "data_range", "message"),
    [((0.1,), (0, 1), "quantiles must be two"), ((0.1, 0.9), (0,), "data_range must be two numbers")],
)
def test_wrong_number_of_quantiles_or_bounds_raises(quantiles, data_range, message):
    with pytest.raises(ValueError, match=message):
        private_bounds(np.random.default_rng(1), [0.5], quantiles, 1.0, data_range)


def test_integer_bounds_are_rounded_outward():
    data = np.random.default_rng(3).poisson(4.0, size=2_000)
    arguments = (data, (0.05, 0.95), 1.0, (0, 50))
    drawn, whole = (private_bounds(np.random.default_rng(1), *arguments, whole=each) for each in (False, True))
    assert (float(whole[0]).is_integer(), float(whole[1]).is_integer()) == (True, True)
    assert drawn[0] - 1 < whole[0] <= drawn[0] < drawn[1] <= whole[1] < drawn[1] + 1
    FAMILIES["poisson"].validate_bounds(whole)
