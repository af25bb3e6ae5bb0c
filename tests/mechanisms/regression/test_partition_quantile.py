"""Tests of quantiles from partitions: centres, budgets, clipping intervals, and noise."""

import itertools
import math
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from scipy import stats

from mechanisms.audit.partitions import centred_losses, window_distributions
from mechanisms.core.exact_losses import audit_distributions
from mechanisms.regression.partition_probability import partition_probability
from mechanisms.regression.partition_publish import _within_epsilon, joint_guarantee
from mechanisms.regression.partition_quantile import (
    QUANTILE_METHODS,
    SCALE_WINDOW,
    partition_quantile,
    window_distribution,
)
from tests.mechanisms.refusals import assert_refused
from tests.statistical import assert_mean_within

SPLITS = {"quantile": (0.45, 0.45), "quantile-exact": (0.45, 0.45), "quantile-centred": (0.2, 0.25, 0.45)}


def method(name, n_partitions=100, epsilon=0.9, **more):
    shares = SPLITS[name.removesuffix("-noiseless")]
    return partition_quantile(name, n_partitions, epsilon, [epsilon * share / 0.9 for share in shares], **more)


@pytest.mark.parametrize("unit", [math.inf, 0.5])
def test_window_distribution_is_the_normalised_exponential_mechanism(unit):
    """The pmf over intervals equals normalised sums of exp((ε/2)·count)/√(x² + μ²) over a fine grid."""
    values = np.array([-0.4, 0.1, 0.15, 0.7, 5.0, -np.inf, np.inf])
    distribution = window_distribution(values, 0.3, 3.0, (-1.0, 2.0), unit)
    x = np.linspace(-1.0, 2.0, 600_001)
    x = (x[1:] + x[:-1]) / 2
    density = np.exp(1.5 * (np.abs(np.clip(values, -1.0, 2.0)[:, None] - x) <= 0.3).sum(axis=0))
    if math.isfinite(unit):
        density /= np.sqrt(x**2 + unit**2)
    density /= density.sum()
    for mass, low, high in zip(
        np.exp(distribution.log_masses), distribution.edges, distribution.edges[1:], strict=False
    ):
        assert mass == pytest.approx(density[(x > low) & (x <= high)].sum(), abs=1e-5)
    assert np.exp(distribution.log_masses).sum() == pytest.approx(1.0, rel=1e-13)


def random_neighbours(rng, spread):
    values = spread * rng.standard_normal(int(rng.integers(1, 8)))
    neighbour = values.copy()
    neighbour[0] = rng.choice([spread * rng.standard_normal(), np.inf, values[-1]])
    return values, neighbour


@pytest.mark.slow
def test_loss_of_window_distributions_is_within_budget():
    """Exact losses of window distributions are at most ε; without the factor ½ in the exponent, they exceed ε."""
    rng, largest, doubled = np.random.default_rng(4), 0.0, 0.0
    for _ in range(200):
        pair = random_neighbours(rng, 1.0)
        for spent in (1.0, 2.0):
            distributions = [window_distribution(values, 0.5, spent, (-3.0, 3.0), 0.1) for values in pair]
            found = audit_distributions(window_distributions(distributions, [[0, 1]])).epsilon
            if spent == 1.0:
                largest = max(largest, found)
            else:
                doubled = max(doubled, found)
    assert 0.7 < largest <= 1.0 + 1e-9
    assert doubled > 1.2


def test_losses_of_centred_steps_are_within_budgets():
    """If the quantile and the standard deviation of one partition change, each step's loss is within its budget."""
    centred = method("quantile-centred", 12)
    rng = np.random.default_rng(5)
    q, s = 2.0 + 0.3 * rng.standard_normal(12), 0.08 * np.exp(0.1 * rng.standard_normal(12))
    for other_q, other_s in ((-1e9, 1e9), (2.5, 1e-9), (np.inf, np.inf), (2.0, 0.1)):
        moved_q, moved_s = q.copy(), s.copy()
        moved_q[3], moved_s[3] = other_q, other_s
        losses = centred_losses(centred, q, s, (3, other_q, other_s), scales=(1e-6, 0.3, 7.0, 1e6))
        assert (np.array(losses) <= np.array(SPLITS["quantile-centred"]) + 1e-9).all()
        scales = window_distributions([centred.scale_distribution(each) for each in (s, moved_s)], [[0, 1]])
        assert losses[0] == audit_distributions(scales).epsilon
        for scale in (1e-6, 0.3, 7.0, 1e6):
            centres = window_distributions(
                [centred.centre_distribution(each, scale) for each in (q, moved_q)], [[0, 1]]
            )
            assert audit_distributions(centres).epsilon <= losses[1]
            change = centred.clipped_mean(moved_q, 2.0, 2 * scale) - centred.clipped_mean(q, 2.0, 2 * scale)
            assert abs(change) / centred.noise_scale(2 * scale) <= 0.45 + 1e-9


def test_window_score_finds_centre_that_private_median_misses():
    """At ε = 0.25, the window score finds the centre with probability > 0.99, unlike a private median (< 0.5)."""
    q = stats.norm.ppf((np.arange(100) + 0.5) / 100, 2.0, 0.3)
    distribution = method("quantile-centred").centre_distribution(q, 0.3)
    near = (distribution.edges[:-1] > 1.4) & (distribution.edges[1:] < 2.6)
    reach = math.asinh(2.0**30)
    points = np.linspace(-reach, reach, 2**20 + 1)  # of the exponential mechanism for a median
    below, at_most = (np.searchsorted(np.arcsinh(q), points, side) for side in ("left", "right"))
    weights = np.exp(-0.125 * np.maximum(np.maximum(below - 50, 50 - at_most), 0))
    median = weights[(points > math.asinh(1.4)) & (points < math.asinh(2.6))].sum() / weights.sum()
    assert np.exp(distribution.log_masses)[near].sum() > 0.99
    assert median < 0.5


def test_intervals_of_the_two_methods():
    rng = np.random.default_rng(8)
    q, s = 2.0 + 0.3 * rng.standard_normal((100, 3)), np.full(100, 0.03)
    plain = method("quantile").release(rng, q, s)
    assert (plain.centres == 0).all()
    assert np.isin(plain.half_widths, 2.0 ** np.arange(31)).all()
    centred = method("quantile-centred", epsilon=20.0).release(rng, q, s)
    assert (np.abs(centred.centres - 2.0) < 0.3).all()
    assert (np.abs(np.log2(centred.half_widths / 0.6)) < 0.51).all()
    assert not centred.capped.any()


def test_noiseless_methods_need_no_generator():
    q, s = np.array([[1.0], [2.0], [2.5], [90.0]]), np.array([0.1, 0.2, 0.3, 0.4])
    plain = method("quantile-noiseless", 4, share=0.75).release(None, q, s)
    assert plain.half_widths.tolist() == [4.0]
    assert plain.values.tolist() == [(1.0 + 2.0 + 2.5 + 4.0) / 4]
    centred = method("quantile-centred-noiseless", 4).release(None, q, s)
    assert centred.centres.tolist() == [2.25]
    assert centred.half_widths.tolist() == [1.0]  # the half-width is 2·√M·median(s)
    assert centred.values.tolist() == [(1.25 + 2.0 + 2.5 + 3.25) / 4]


def test_capped_searches_are_marked():
    capped = method("quantile", 3, epsilon=1e4, share=1.0, doublings=4).release(
        np.random.default_rng(1), np.full((3, 2), 1e6), np.ones(3)
    )
    assert capped.capped.all()
    assert (capped.half_widths == 16.0).all()
    assert np.abs(capped.values - 16.0).max() < 0.1


@pytest.mark.parametrize("name", QUANTILE_METHODS)
def test_guarantees(name):
    guarantee = method(name).guarantee(7)
    total = 0.2 + 7 * 0.7 if name == "quantile-centred" else 7 * 0.9  # one scale is released for all quantiles
    assert guarantee is None if name.endswith("-noiseless") else guarantee.epsilon == pytest.approx(total)


def test_quantiles_of_one_release_share_the_scale():
    q, s = np.tile(2.0 + 0.3 * np.random.default_rng(11).standard_normal((100, 1)), 5), np.full(100, 0.03)
    found = method("quantile-centred").release(np.random.default_rng(12), q, s)
    assert np.unique(found.half_widths).size == 1
    assert np.unique(found.centres).size == 5


@pytest.mark.parametrize("factor", [1e-20, 1e-5, 1.0, 1e5, 1e20])
def test_error_of_centred_quantiles_is_small_for_any_unit(factor):
    """Errors of `quantile-centred` scale with the unit of the coefficient, within the public range of 2³⁰."""
    rng = np.random.default_rng(13)
    q, s = factor * (2.0 + 0.3 * rng.standard_normal((200, 1))), np.full(200, factor * 0.3 / math.sqrt(200))
    errors = [method("quantile-centred", 200).release(rng, q, s).values[0] / factor - 2.0 for _ in range(50)]
    if factor < 1e10:
        assert np.median(np.abs(errors)) < (0.1 if factor > 1e-10 else 2.0**-28 / factor)


@pytest.mark.slow
def test_miss_probability_equals_the_frequency_of_misses():
    """The frequency with which the released centre or scale is misplaced is 0.4 to 1.6 times the stated one."""
    rng, size = np.random.default_rng(14), 1500
    for distance, n_partitions in ((0.0, 40), (10.0, 40), (100.0, 50)):
        centred = partition_quantile("quantile-centred", n_partitions, 0.9, (0.25, 0.2, 0.45))
        missed = []
        for _ in range(size):
            q = distance + rng.standard_normal((n_partitions, 1))
            found = centred.release(rng, q, np.full(n_partitions, 1.0 / math.sqrt(n_partitions)))
            scale = found.half_widths[0] / SCALE_WINDOW
            missed.append(abs(math.log2(scale)) > 0.5 or abs(found.centres[0] - distance) > SCALE_WINDOW * scale)
        stated = centred.miss_probability(ratio=distance)
        assert 0.4 * stated < np.mean(missed) < 1.6 * stated


@pytest.mark.parametrize("epsilon", [0.9, 1e4])
def test_miss_probability_is_finite_for_any_ratio(epsilon):
    centred = method("quantile-centred", 50, epsilon)
    misses = [centred.miss_probability(ratio=ratio) for ratio in (0.0, 1e3, 4.0**30, 1e300, math.inf)]
    assert all(0 <= less <= more <= 1 for less, more in itertools.pairwise(misses))
    assert misses[-1] == misses[2]


def test_miss_probability_of_a_search_that_ends_at_its_cap():
    search = method("quantile", 10, epsilon=0.4, doublings=4)
    q = np.full((10, 1), 3.9)  # values within μ2², the interval of index T/2
    rng = np.random.default_rng(15)
    capped = [search.release(rng, q, np.ones(10)).capped[0] for _ in range(4000)]
    stated = search.miss_probability()
    assert stated > 0.05
    assert_mean_within(np.array(capped, dtype=float), stated, wrong=1.5 * stated)
    assert method("quantile-noiseless").miss_probability() == 0.0


def test_exact_calibration_needs_less_noise():
    exact, published = method("quantile-exact").search, method("quantile").search
    assert exact.threshold_scale == pytest.approx(0.75 * published.threshold_scale, rel=1e-6)
    assert exact.guarantee == published.guarantee


@pytest.mark.parametrize("name", QUANTILE_METHODS)
def test_extreme_inputs_give_finite_releases(name):
    """Releases are finite even if quantiles or standard deviations of partitions are infinite, huge or tiny."""
    rng = np.random.default_rng(9)
    for q in (np.full((5, 1), np.inf), np.full((5, 1), -np.inf), np.zeros((5, 1)), np.full((5, 1), 1e300)):
        for s in (np.full(5, np.inf), np.full(5, 1e-300), np.ones(5)):
            if name == "quantile-centred-noiseless" and np.isinf(s).all():
                continue  # this method uses the standard deviations directly
            found = method(name, 5).release(rng, q, s)
            if name != "quantile-centred-noiseless" or np.isfinite(q).all():
                assert np.isfinite(found.values).all()


@pytest.mark.parametrize(
    ("name", "split", "start", "message"),
    [
        ("quantile", (0.5, 0.4), 1.0, "must add up to epsilon = 1, got 0.5 . 0.4 = 0.9"),
        ("quantile", (0.5, 0.3, 0.2), 1.0, r"must be 2 numbers > 0 \(bounds, noise\)"),
        ("quantile-centred", (0.5, 0.5), 1.0, r"3 numbers > 0 \(scale, centre, noise\)"),
        ("quantile", (1.5, -0.5), 1.0, "must be 2 numbers > 0"),
        ("quantile", (1.0, 0.0), 1.0, "must be 2 numbers > 0"),
        ("quantile", (0.5, 0.5), 0.0, "mu, half the width"),
        ("quantile", (0.5, 0.5), -2.0, "mu, half the width"),
        ("quantile", (0.5, 0.5), 1e-285, "must be >= 1e-290 .* mu = 1e-285"),
        ("quantile", (0.5, 0.5), 1e285, "<= 1e.290, got mu = 1e.285"),
    ],
)
def test_invalid_methods_raise(name, split, start, message):
    assert_refused(lambda: partition_quantile(name, 10, 1.0, split, start), message)


def test_parts_and_sums_of_losses_do_not_exceed_what_is_stated():
    """Rounded parts of epsilon may exceed it by 1e-17, and three losses of 1/3 + 4e-17 their sum 1."""
    for hundredths in range(1, 300):
        epsilon = hundredths / 100
        mechanism = partition_quantile("quantile-centred", 10, epsilon, [part * epsilon for part in (0.2, 0.3, 0.5)])
        assert sum(map(Fraction, _within_epsilon(mechanism).split)) <= epsilon
    rounded = partition_quantile("quantile", 10, 1.0, (0.5, 0.500000000000009), 1.0)
    assert sum(map(Fraction, _within_epsilon(rounded).split)) <= 1 < sum(map(Fraction, rounded.split))
    third = partition_probability("normality-corrected", 10, 0.33333333333333337)
    assert joint_guarantee(third, 3).epsilon == 1.0000000000000002


def test_invalid_statistics_raise():
    for q, s, message in (
        (np.zeros((3, 1)), np.ones(3), "rng must be a numpy Generator for the noise of"),
        (np.zeros((4, 1)), np.ones(3), "must have shapes"),
        (np.zeros(3), np.ones(3), "must have shapes"),
        (np.full((3, 1), np.nan), np.ones(3), "must be numbers"),
        (np.zeros((3, 1)), np.zeros(3), "spreads > 0"),
    ):
        assert_refused(partial(method("quantile", 3).release, None, q, s), message)
