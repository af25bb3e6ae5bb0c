"""Tests of the private quantile: density ratios of neighbours, and draws against the density."""

import math

import numpy as np
import pytest
from scipy import stats

from mechanisms.inference.families import FAMILIES
from mechanisms.inference.private_quantile import private_bounds, private_quantile, quantile_distribution


def log_density_at(x, distribution):
    edges, log_density = distribution
    return log_density[np.searchsorted(edges[1:-1], x, side="right")]


def largest_loss(quantile, epsilon, seed=0):
    """Return the largest |ln p(x|D) − ln p(x|D')| over random data sets D, replaced records and all steps."""
    rng, largest = np.random.default_rng(seed), 0.0
    for _ in range(300):
        n = int(rng.integers(1, 9))
        # Concentrated and spread records, ties, records outside the range.
        data = rng.choice([rng.normal(0.5, 0.02), 0.0, 0.2, 0.5, 1.0, 7.0, rng.random()], size=n)
        neighbour = data.copy()
        neighbour[rng.integers(n)] = rng.choice([-1.0, 0.0, 0.3, 1.0, rng.random()])
        distributions = [quantile_distribution(records, quantile, epsilon, (0.0, 1.0)) for records in (data, neighbour)]
        edges = np.unique(np.concatenate([distributions[0][0], distributions[1][0]]))
        middles = (edges[1:] + edges[:-1]) / 2
        largest = max(
            largest, np.abs(log_density_at(middles, distributions[0]) - log_density_at(middles, distributions[1])).max()
        )
    return largest


@pytest.mark.parametrize("epsilon", [0.1, 2.0])
@pytest.mark.parametrize("quantile", [0.1, 0.25, 0.5])
def test_density_ratio_is_within_budget(quantile, epsilon):
    """Without the factor ½ of the exponential mechanism, the same bound fails."""
    assert 0.5 * epsilon < largest_loss(quantile, epsilon) <= epsilon * (1 + 1e-12)
    assert largest_loss(quantile, 2 * epsilon) > epsilon


@pytest.mark.parametrize("quantile", [0.0, 1.0])
def test_loss_of_extreme_quantiles_is_half_the_budget(quantile):
    """For q = 0 and 1 the score and the normaliser change in the same direction."""
    assert largest_loss(quantile, 2.0) <= 1.0 + 1e-12


@pytest.mark.parametrize(("quantile", "epsilon"), [(0.5, 1.0), (0.9, 0.2), (0.0, 1e-6), (0.3, 1e4)])
def test_distribution_is_the_normalised_exponential_mechanism(quantile, epsilon):
    data = np.array([0.9, 0.1, 0.4, 0.4, 3.0])
    edges, log_density = quantile_distribution(data, quantile, epsilon, (0.0, 1.0))
    occupied = np.diff(edges) > 0
    assert np.sum(np.diff(edges)[occupied] * np.exp(log_density[occupied])) == pytest.approx(1.0, rel=1e-12)
    middles = (edges[1:] + edges[:-1])[occupied] / 2
    score = -np.abs((np.clip(data, 0, 1) < middles[:, None]).sum(axis=1) - quantile * data.size)
    np.testing.assert_allclose(np.diff(log_density[occupied]), epsilon / 2 * np.diff(score), rtol=1e-12, atol=1e-12)


def test_draws_follow_the_density():
    data, rng = [0.9, 0.1, 0.4, 0.4, 3.0], np.random.default_rng(2)
    draws = [private_quantile(rng, data, 0.5, 3.0, (0.0, 1.0)) for _ in range(4000)]
    edges, log_density = quantile_distribution(data, 0.5, 3.0, (0.0, 1.0))
    distinct = np.unique(edges)
    heights = np.exp(log_density_at((distinct[1:] + distinct[:-1]) / 2, (edges, log_density)))
    cdf = np.concatenate([[0], np.cumsum(np.diff(distinct) * heights)])
    assert stats.kstest(draws, lambda x: np.interp(x, distinct, cdf)).pvalue > 1e-6
    assert stats.kstest(np.array(draws) * 1.2, lambda x: np.interp(x, distinct, cdf)).pvalue < 1e-6


def test_records_at_one_end_give_draws_within_range():
    rng = np.random.default_rng(1)
    draws = [private_quantile(rng, np.zeros(50), 0.9, 1.0, (0.0, 2.0)) for _ in range(100)]
    assert all(0 < draw < 2 for draw in draws)


def test_bounds_are_always_ascending():
    """With a small budget and a single record, draws are reversed half of the time."""
    rng = np.random.default_rng(3)
    for _ in range(200):
        lower, upper = private_bounds(rng, [0.5], (0.025, 0.975), 1e-3, (0.0, 1.0))
        assert 0 <= lower < upper <= 1


def test_equal_draws_give_the_public_range(monkeypatch):
    monkeypatch.setattr("mechanisms.inference.private_quantile.private_quantile", lambda *_: 0.5)
    assert private_bounds(np.random.default_rng(1), [0.5], (0.1, 0.9), 1.0, (-1, 2)) == (-1.0, 2.0)


def test_each_bound_uses_half_the_budget(monkeypatch):
    spent = []

    def record(rng, data, quantile, epsilon, data_range):
        spent.append((quantile, epsilon))
        return quantile

    monkeypatch.setattr("mechanisms.inference.private_quantile.private_quantile", record)
    private_bounds(np.random.default_rng(1), [0.5], (0.1, 0.9), 1.0, (0, 1))
    assert spent == [(0.1, 0.5), (0.9, 0.5)]


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
    ],
)
def test_invalid_arguments_raise(data, quantile, epsilon, data_range, message):
    with pytest.raises(ValueError, match=message):
        quantile_distribution(data, quantile, epsilon, data_range)
    if message.startswith("quantile"):
        with pytest.raises(ValueError, match="quantiles must be two ascending numbers"):
            private_bounds(np.random.default_rng(1), [0.5], (0.9, 0.1), 1.0, (0, 1))


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
