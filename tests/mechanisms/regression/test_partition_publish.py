"""Tests of exact releases of probabilities and quantiles: their draws, their privacy loss, and invalid input."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from mechanisms import Guarantee
from mechanisms.regression import partition_publish as publish
from mechanisms.regression.partition_probability import PROBABILITY_METHODS, partition_probability
from mechanisms.regression.partition_publish import (
    draw_window,
    publish_probabilities,
    publish_quantiles,
    validate_draws,
    window_weights,
)
from mechanisms.regression.partition_quantile import QUANTILE_METHODS, SCALE_WINDOW, partition_quantile
from mechanisms.regression.sparse_vector import SparseVector
from mechanisms.release import CheckedRelease
from tests.mechanisms.refusals import assert_refused
from tests.statistical import assert_frequencies, assert_mean_within, assert_rejects

NOISE = CheckedRelease(Guarantee(1.0), "test").enter()

PRIVATE = [name for name, method in QUANTILE_METHODS.items() if method.is_private]


def window_pmf(values, half_window, epsilon, reach, level):
    """Return the pmf of `draw_window` at the integers from −reach to reach, by its definition."""
    x = np.arange(-reach, reach + 1)
    scores = (np.abs(np.clip(values, -reach, reach)[:, None] - x) <= half_window).sum(axis=0)
    halvings = [0 if level is None else max(0, abs(each).bit_length() - level) for each in x.tolist()]
    weights = np.exp(epsilon / 2 * scores) * 0.5 ** np.array(halvings)
    return weights / weights.sum()


@pytest.mark.slow
@pytest.mark.parametrize("level", [None, 2])
def test_window_draws_have_their_pmf(level):
    values, reach = np.array([-9, -1, 0, 2, 2, 30]), 12
    drawn = [draw_window(NOISE, values.tolist(), 3, 1.5, reach, level) for _ in range(6000)]
    observed = np.bincount(np.array(drawn) + reach, minlength=2 * reach + 1)
    assert_frequencies(observed, window_pmf(values, 3, 1.5, reach, level))
    for wrong in (window_pmf(values, 3, 1.0, reach, level), window_pmf(values, 2, 1.5, reach, level)):
        assert_rejects(assert_frequencies, observed, wrong)


@pytest.mark.parametrize("level", [None, 1])
def test_loss_of_window_draws_is_at_most_epsilon(level):
    """In rational arithmetic, the loss of draws with ε = 1 is at most 1, unlike that of draws with ε = 2."""

    def probabilities(values, epsilon):
        steps = window_weights(values, 2, epsilon, 9, level)
        total = sum(weight for _, _, weight in steps)
        return [Fraction(weight, total * (stop - start)) for start, stop, weight in steps for _ in range(start, stop)]

    np.testing.assert_allclose(
        np.array(probabilities([0, 0, 3], 1.0), float), window_pmf(np.array([0, 0, 3]), 2, 1.0, 9, level), rtol=1e-13
    )
    for epsilon in (1.0, 2.0):
        pairs = itertools.product([[0, 0, 3]], [[0, 0, moved] for moved in (-40, -8, 0, 2, 9)])
        ratios = [
            abs(math.log(p / q))
            for first, second in pairs
            for p, q in zip(probabilities(first, epsilon), probabilities(second, epsilon), strict=True)
        ]
        assert (max(ratios) <= 1.0 + 1e-12) is (epsilon == 1.0)


def test_window_draws_accept_extreme_sizes():
    """Draws are correct even if e^(ε/2·count) overflows and the range has more than 2⁵³ steps."""
    values = [5 * 2**70] * 4000
    assert abs(draw_window(NOISE, values, 2**20, 2.0, 2**80, 6) - values[0]) <= 2**20


@pytest.mark.slow
def test_published_searches_have_their_pmf():
    method = partition_quantile("quantile", 20, 1.6, (0.8, 0.8), share=0.6, doublings=5)
    values = np.linspace(-9.0, 20.0, 20)
    drawn = [publish._search(NOISE, method.search, values) for _ in range(1500)]
    observed = np.bincount(drawn, minlength=6)
    right, wrong = (
        np.exp(search.log_pmf(search.counts(values)))
        for search in (method.search, SparseVector(20, 1.6, share=0.6, doublings=5))
    )
    assert_frequencies(observed, right, wrong=wrong)


@pytest.mark.slow
@pytest.mark.parametrize("is_exact", [True, False])
@pytest.mark.parametrize("name", PRIVATE)
def test_means_have_laplace_noise_of_the_stated_scale(name, is_exact):
    """Given the released interval, the noise has the stated scale 2b/(Mε); twice the scale is rejected."""
    parts = len(QUANTILE_METHODS[name].parts)
    method = partition_quantile(name, 60, 12.0, [12.0 / parts] * parts)
    q, s = 2.0 + 0.3 * np.random.default_rng(6).standard_normal((60, 1)), np.full(60, 0.3 / math.sqrt(60))
    noise, rng = [], np.random.default_rng(6)
    for _ in range(200):
        found = publish_quantiles(method, q, s) if is_exact else method.release(rng, q, s)
        mean = method.clipped_mean(q[:, 0], found.centres[0], found.half_widths[0])
        noise.append((found.values[0] - mean) / method.noise_scale(found.half_widths[0]))
    assert stats.kstest(noise, stats.laplace.cdf).pvalue > 1e-6
    assert_mean_within(np.abs(noise), 1.0, wrong=2.0)


def test_published_intervals_are_around_the_values():
    method = partition_quantile("quantile-centred", 100, 30.0, (10.0, 10.0, 10.0))
    q, s = 2e-5 + 1e-6 * np.random.default_rng(7).standard_normal((100, 2)), np.full(100, 1e-7)
    found = publish_quantiles(method, q, s)
    assert np.all(np.abs(np.log2(found.half_widths / (SCALE_WINDOW * 1e-6))) < 0.6)
    assert np.all(np.abs(found.centres - 2e-5) < 2e-6)
    assert not found.capped.any()


def test_published_intervals_may_be_narrower_than_the_rounding_of_their_centre():
    """An interval of width 2⁻²⁸ around 2³⁰ is released, although its ends are equal in double precision."""
    method = partition_quantile("quantile-centred", 40, 30.0, (10.0, 10.0, 10.0))
    released = publish_quantiles(method, np.full((40, 1), 1e140), np.full(40, 1e-140))
    assert 1.0 <= released.half_widths[0] / (SCALE_WINDOW * 2.0**-30) < 1.5
    np.testing.assert_allclose([released.centres, released.values], 2.0**30)


@pytest.mark.parametrize("name", [name for name, method in PROBABILITY_METHODS.items() if method.is_private])
def test_published_probabilities_have_the_stated_noise(name):
    """The noise, computed back from published values, has the stated scale; 50 % more noise is rejected."""
    method = partition_probability(name, 50, epsilon=2.0)
    p = np.full((50, 1_500), 0.5)
    aggregate = method.aggregate(p[:, :1])[0]
    grid = aggregate + np.linspace(-12, 12, 20_001) * method.noise_scale
    curve = method.postprocess(grid)
    inside = (curve > 1e-12) & (curve < 1 - 1e-12)
    order = np.argsort(curve[inside])
    released = publish_probabilities(method, p)
    noise = np.interp(released, curve[inside][order], grid[inside][order]) - aggregate
    assert_mean_within(np.minimum(np.abs(noise) / method.noise_scale, 3.0), 1.0 - math.exp(-3.0))
    assert_rejects(assert_mean_within, np.minimum(1.5 * np.abs(noise) / method.noise_scale, 3.0), 1.0 - math.exp(-3.0))


PUBLIC = "method must be private to release real data, got {}; choose"
METHODS = {
    "fisher-published": partition_probability("fisher-published", 3, 1.0),
    "quantile-noiseless": partition_quantile("quantile-noiseless", 3, 1.0, (0.5, 0.5)),
    "too many units": partition_probability("normality", 3, 1e-7),
    "small bounds": partition_quantile("quantile", 3, 1.0, (5e-4, 0.9995)),
    "too much noise": partition_quantile("quantile", 3, 1.0, (1.0 - 1e-7, 1e-7)),
    "too many partitions": partition_quantile("quantile-centred", 10**6, 1.0, (0.2, 0.3, 0.5)),
}
HALF, SPREADS = np.full((3, 1), 0.5), np.ones(3)


@pytest.mark.parametrize(
    ("name", "publish", "values", "message"),
    [
        ("fisher-published", publish_probabilities, [HALF], PUBLIC.format("fisher-published")),
        ("quantile-noiseless", publish_quantiles, [HALF, SPREADS], PUBLIC.format("quantile-noiseless")),
        ("too many units", validate_draws, [], "noise scale must be at most 2.52 units"),
        ("small bounds", validate_draws, [], "bounds must be at least 0.00098"),
        ("too much noise", validate_draws, [], "at most 2.52 units"),
        ("too many partitions", validate_draws, [], "4.3 GB, got 54 GB for 1,000,000 partitions and epsilon = 1"),
    ],
)
def test_invalid_input_raises(name, publish, values, message):
    assert_refused(lambda: publish(METHODS[name], *values), message)
