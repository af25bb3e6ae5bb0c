"""Tests of the release model: contributions, sensitivity, draws and rejected arguments."""

import itertools
import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy import stats

from mechanisms.core.noise import Noise
from mechanisms.inference.methods import choose_method
from mechanisms.inference.release_model import ReleaseModel
from tests.mechanisms.refusals import assert_refused
from tests.statistical import assert_mean_within, assert_rejects

LAPLACE = Noise("laplace", 2.0)


def test_records_outside_the_bounds_are_dropped_or_clamped():
    records = [0.0, 1.0, 2.0, 3.0, 9.0]
    dropped = ReleaseModel("poisson", 5, LAPLACE, (1, 3))
    clamped = ReleaseModel("poisson", 5, LAPLACE, (1, 3), "clamp")
    assert dropped.contributions(records).tolist() == [0, 1, 2, 3, 0]
    assert clamped.contributions(records).tolist() == [1, 1, 2, 3, 3]
    assert dropped.contribution_range() == (0, 3)
    assert clamped.contribution_range() == (1, 3)


@pytest.mark.parametrize("outside", ["drop", "clamp"])
@pytest.mark.parametrize("bounds", [(-2.0, 1.0), (1.0, 3.0), (-3.0, -1.0)])
def test_sensitivity_is_the_largest_change_of_a_contribution(bounds, outside):
    model = ReleaseModel("normal", 5, LAPLACE, bounds, outside)
    values = model.contributions(np.linspace(-5, 5, 1_001))
    assert model.sensitivity() == pytest.approx(max(abs(x - y) for x, y in itertools.product(values[::5], repeat=2)))
    if outside == "drop":
        assert model.sensitivity() == model.entry.sensitivity(bounds)


def test_sensitivity_of_counts_depends_on_the_norm():
    assert ReleaseModel("multinomial", 5, LAPLACE).sensitivity() == 2.0
    assert ReleaseModel("multinomial", 5, Noise("gaussian", 1.0)).sensitivity() == math.sqrt(2)
    assert ReleaseModel("binomial", 5, LAPLACE).guarantee().epsilon == 0.5


def test_clamped_sums_have_the_expected_mean():
    """For exponential records clamped to [a, b], the sum has the mean n·(a + ∫ₐᵇ e^(−θx) dx)."""
    theta, (a, b), n = 2.0, (0.1, 0.8), 7
    model = ReleaseModel("exponential", n, LAPLACE, (a, b), "clamp")
    s = model.draw_sums(np.random.default_rng(1), np.full((20_000, 1), theta))[1][:, 0]
    expected = n * (a + (math.exp(-theta * a) - math.exp(-theta * b)) / theta)
    assert_mean_within(s, expected, wrong=1.02 * expected)
    assert model.draw_release(np.random.default_rng(1), [[1.0]]).shape == (1, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("binomial", 5, "laplace"), "noise must be a Noise, got 'laplace'"),
        (("binomial", 5, LAPLACE, None, "drop", (0.1, 0.9)), "parameter_range must be None for the binomial family"),
        (("normal", 5, LAPLACE, (0.0, 1.0), "clamp", (1.0, 0.0)), "parameter_range must have lower < upper"),
        (("normal", 5, LAPLACE, (0.0, 1.0), "clamp", (0.0, math.nan)), "parameter_range must have lower < upper"),
        (("normal", 5, LAPLACE, (0.0, 1.0), "clamp", (0.0, 1.0, 2.0)), r"\(lower, upper\), each a number"),
        (("normal-unknown-variance", 5, LAPLACE, (0.0, 1.0), "clamp", (0.0, 1.0)), r"each a pair \(mean, variance\)"),
        (("normal", 5, Noise("geometric", 1.0), (0.0, 1.0)), "noise must be laplace or gaussian"),
        (("binomial", 5, Noise("k-norm", 1.0)), "family must be multinomial for k-norm noise"),
        (("normal", 5, LAPLACE, (0.0, 1.0), "winsorise"), "outside must be drop or clamp"),
    ],
)
def test_invalid_models_raise(arguments, message):
    assert_refused(lambda: ReleaseModel(*arguments), message)


def test_invalid_releases_raise():
    for noise, y, message in (
        (LAPLACE, [1.0, 2.0], "noisy_statistics must be finite, of shape"),
        (LAPLACE, [1.0, 2.0, math.nan], "noisy_statistics must be finite, of shape"),
        (Noise("geometric", 1.0), [1.0, 2.0, 0.5], "must be integers"),
        (Noise("k-norm", 1.0), [1.0, 2.0, 3.0], "must sum to n = 5"),
    ):
        assert_refused(partial(ReleaseModel("multinomial", 5, noise).validate_release, (1, 1, 1), y), message)


RESTRICTED = {
    "exponential": ((8.0, 2.0), (0.0, 1.0), (2.0, 4.0)),
    "poisson": ((8.0, 2.0), (0, 9), (0.0, 3.0)),
    "normal": ((0.0, 4.0), (0.0, 1.0), (0.0, 1.0)),
    "normal-unknown-variance": ((0.0, 1.0, 3.0, 2.0), (-2.0, 2.0), ((-2.0, 0.1), (2.0, 4.0))),
    "weak": ((0.5, 1.0, 1.5, 0.8, 0.7), (-2.0, 2.0), ((-2.0, 0.1), (2.0, 4.0))),
}


@pytest.mark.parametrize("family", RESTRICTED)
def test_prior_is_restricted_to_the_range(family):
    """Draws lie in the range, and its prior probability is the fraction of unrestricted draws in it."""
    prior, bounds, limits = RESTRICTED[family]
    name = "normal-unknown-variance" if family == "weak" else family
    model = ReleaseModel(name, 5, LAPLACE, bounds, "clamp", limits)
    lower, upper = model.parameter_limits()
    draws = model.draw_parameters(np.random.default_rng(1), prior, 2_000)
    assert np.all((draws >= lower) & (draws <= upper))
    free = replace(model, parameter_range=None).draw_parameters(np.random.default_rng(2), prior, 20_000)
    within = np.all((free >= lower) & (free <= upper), axis=1)
    assert_mean_within(within.astype(float), model.range_probability(prior), wrong=1.1 * model.range_probability(prior))
    p_values = [stats.ks_2samp(one, other).pvalue for one, other in zip(draws.T, free[within].T, strict=True)]
    assert min(p_values) > 1e-6


def test_default_prior_is_that_of_the_units_of_the_bounds():
    """In units of the bounds, the default prior is that of bounds ±1; 95 % of its draws of σ are h/150 to 17·h.

    The mean of a clamped record is uniform between the bounds for small and for large σ; that of a record is not.
    """
    model, y = ReleaseModel("normal-unknown-variance", 9, LAPLACE, (100.0, 300.0), "clamp"), np.zeros(2)
    prior = model.require_prior(None)
    assert prior == (200.0, 100.0, 1.0, 100.0 / 3.0, 2.0)
    np.testing.assert_allclose(model.standardised(prior, y)[1], (0.0, 1.0, 1.0, 1.0 / 3.0, 2.0))
    theta = model.draw_parameters(np.random.default_rng(1), prior, 20_000)
    std, clamped = np.sqrt(theta[:, 1]), model.released_moments(theta)[:, 0]
    within = (std > 100.0 / 3.0 * np.exp(-3.92)) & (std < 100.0 / 3.0 * np.exp(3.92))
    assert_mean_within(within.astype(float), 0.95)
    uniform = stats.uniform(100.0, 200.0)
    for kept in (std < 30.0, std >= 30.0):
        assert stats.kstest(clamped[kept], uniform.cdf).pvalue > 1e-6
    assert stats.kstest(theta[:, 0], uniform.cdf).pvalue < 1e-6


def test_improbable_ranges_are_refused_before_any_draw():
    model = ReleaseModel("normal", 5, LAPLACE, (8.0, 9.0), "clamp", (8.0, 9.0))
    for call in (
        lambda: model.draw_parameters(np.random.default_rng(1), (0.0, 1.0), 1),
        lambda: model.validate_release((0.0, 1.0), [40.0]),
        lambda: choose_method(model, (0.0, 1.0)),
    ):
        assert_refused(call, r"parameter_range must have a prior probability >= 0\.001")


@pytest.mark.parametrize(
    ("family", "n", "names", "bounds", "surprising", "usual"),
    [
        ("poisson", 10, ["gaussian"], (1, 3), [[-1.0], [40.0]], [[10.0], [31.0]]),
        (
            "multinomial",
            1_000,
            ["laplace", "geometric", "gaussian"],
            None,
            [[900.0] * 3, [100.0] * 3],
            [[-3, 703, 305]],
        ),
        # A sum of 80 of 100 records in [−1, 1] requires a sum of squares of 64.
        ("normal-unknown-variance", 100, ["laplace", "gaussian"], (-5, 5), [[80, 0.0]], [[80, 64.0], [4.0, -2.0]]),
    ],
)
def test_surprising_releases_are_flagged(family, n, names, bounds, surprising, usual):
    for name in names:
        model = ReleaseModel(family, n, Noise(name, 2.0), bounds, "clamp" if bounds else "drop")
        assert all(model.is_surprising(y) for y in surprising)
        assert not any(model.is_surprising(y) for y in usual)


def test_releases_of_unknown_variance_are_rarely_surprising():
    """Releases that the model draws are flagged with the stated probability of about 1e-6 at most."""
    model = ReleaseModel("normal-unknown-variance", 100, Noise("laplace", 2.25), (-5.0, 5.0), "clamp")
    rng = np.random.default_rng(1)
    theta = model.draw_parameters(rng, (0.0, 1.0, 3.0, 2.0), 2_000)
    assert not any(model.is_surprising(y) for y in model.draw_release(rng, theta))


def test_moments_of_clamped_records_equal_draws_and_limits():
    """Mean and variance of clamped records agree with draws; a mean without clamping does not (negative control)."""
    model = ReleaseModel("normal-unknown-variance", 5, LAPLACE, (-1.0, 3.0), "clamp")
    rng = np.random.default_rng(3)
    for mu, variance in ((0.5, 1.0), (-2.0, 4.0), (6.0, 2.0)):
        records = np.clip(mu + math.sqrt(variance) * rng.standard_normal(200_000), -1.0, 3.0)
        mean, spread = model.released_moments([mu, variance])
        assert_mean_within(records, mean)
        assert_mean_within((records - mean) ** 2, spread)
        assert_rejects(assert_mean_within, records, mu + 0.01)
    extreme = model.released_moments([[1e300, 1.0], [-1e200, 1e-300], [0.0, 1e300], [1.0, 0.0]])
    np.testing.assert_allclose(extreme, [[3.0, 0.0], [-1.0, 0.0], [1.0, 4.0], [1.0, 0.0]], atol=2e-3)
