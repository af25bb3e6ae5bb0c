"""Tests of inputs at the edges of the allowed ranges."""

import math
from fractions import Fraction
from functools import partial

import mpmath
import numpy as np
import pytest

import mechanisms as m
from mechanisms import partition_quantile, posterior_from_release
from mechanisms.core.exact_scales import laplace_scale_for
from mechanisms.core.noise import EXACT, Noise
from mechanisms.draws.glm_mechanisms import LINKS
from mechanisms.draws.glm_sampling import STEPS_PER_PRODUCT, laplace_approximation, sample_glm
from mechanisms.inference.drawn_posterior import DrawnPosterior
from mechanisms.inference.exact_posterior import _log_beta_binomial
from mechanisms.regression.gram_release import scaled_records
from mechanisms.regression.partition_prior import ConjugatePrior, FlatPrior, SemiConjugatePrior, ZellnerPrior
from mechanisms.regression.posterior import coefficient_posterior
from mechanisms.regression.statistics import partition_statistics
from tests.mechanisms.inference.enumeration import binomial_mixture
from tests.mechanisms.refusals import assert_refused

RECORDS = np.array([[1.0], [-1.0], [1.0]]), np.array([1.0, 0.0, 0.0])


def ball(radius_beta=0.5):
    mechanism = m.glm_mechanism("ops", n=3, beta=radius_beta, order=2, epsilon=1)
    return mechanism, laplace_approximation(*RECORDS, mechanism)


@pytest.mark.parametrize("start", [[[3.0]], [[-2.001]], [[math.nan]], [[0.1], [0.1]], [0.1], [["0.1"]]])
def test_start_outside_the_ball_raises(start):
    """A chain cannot start outside the ball of allowed weights, where the density is zero."""
    mechanism, approximation = ball()
    assert mechanism.radius == 2.0
    sample = partial(sample_glm, np.random.default_rng(1), *RECORDS, mechanism, approximation, 2400, n_chains=1)
    assert_refused(lambda: sample(start=start), "start must ")


def test_chains_move_from_the_boundary_of_the_ball():
    mechanism, approximation = ball()
    draws = sample_glm(
        np.random.default_rng(1),
        *RECORDS,
        mechanism,
        approximation,
        STEPS_PER_PRODUCT,
        n_chains=2,
        start=[[2.0], [-1.9]],
    )
    assert (np.abs(draws.weights) <= 2.0 + 1e-9).all()
    assert np.unique(draws.weights).size == 2 * STEPS_PER_PRODUCT


def test_cloglog_likelihood_decreases_at_large_predictors():
    """For the label 0, the log-likelihood is −exp(η) up to η = 709.7, and −inf beyond."""
    link, eta = LINKS["cloglog"], np.array([699.0, 701.0, 705.0, 709.0, 709.7])
    zero, one = np.zeros(eta.size), np.ones(eta.size)
    expected = [float(-mpmath.exp(value)) for value in eta.tolist()]
    np.testing.assert_allclose(link.log_likelihood(eta, zero), expected, rtol=1e-12)
    assert (np.diff(link.log_likelihood(eta, zero)) < 0).all()
    far = np.array([710.0, 1e3, 1e300])
    assert (link.log_likelihood(far, zero[:3]) == -math.inf).all()
    assert (link.log_likelihood(far, one[:3]) == 0.0).all()


@pytest.mark.parametrize(
    ("noisy_count", "scale"), [(1e308, 1e-5), (-1e308, 1e-5), (1e20, 1.0), (-1e20, 1.0), (1e9, 0.3)]
)
def test_weights_of_a_distant_noisy_count_equal_closed_form(noisy_count, scale):
    """A noisy count far outside [0, n] gives the same posterior as the nearer end of this interval."""
    n = 10
    posterior = binomial_mixture((1, 1), n, noisy_count, scale)
    with mpmath.workdps(40):
        end = n if noisy_count > 0 else 0
        weights = [mpmath.exp(-abs(end - s) / mpmath.mpf(scale)) for s in range(n + 1)]
        mean = sum(w * mpmath.mpf(1 + s) / (n + 2) for s, w in enumerate(weights)) / sum(weights)
    assert posterior.mean() == pytest.approx(float(mean), rel=1e-12)
    assert posterior.weights.sum() == pytest.approx(1.0, rel=1e-12)


def test_weights_of_a_noisy_count_near_by_equal_the_formula_exactly():
    """Weights for noisy counts in or near [0, n] equal the formula bit by bit, so that stored results stay valid."""
    n, alpha, beta = 50, 10.0, 10.0
    counts = np.arange(n + 1)
    for noisy_count in (-35.3, 12.7, 61.2):
        found = binomial_mixture((alpha, beta), n, noisy_count, 10.0)
        logs = _log_beta_binomial(n, alpha, beta) - np.abs(noisy_count - counts) / 10.0
        weights = np.exp(logs - logs.max())
        kept = np.flatnonzero(weights >= 1e-18)
        assert np.array_equal(found.counts, kept)
        assert np.array_equal(found.weights, weights[kept] / weights[kept].sum())


@pytest.mark.parametrize("k", [1, 1.0])
def test_coefficient_index_may_be_an_integer_valued_float(k):
    rows = partition_statistics([[0.0], [1.0], [2.0]], [0.0, 1.0, 3.0], [0, 0, 0])
    for prior in (FlatPrior(), ZellnerPrior(3.0), ConjugatePrior(), SemiConjugatePrior()):
        assert coefficient_posterior(rows, k, prior).mean() == coefficient_posterior(rows, 1, prior).mean()


@pytest.mark.parametrize("name", ["geometric", "k-norm", "discrete-gaussian"])
def test_integer_noise_that_exceeds_64_bits_is_not_drawn(name):
    with pytest.raises(ValueError, match=r"at most 2\^52 units"):
        Noise(name, 1e19).sample(np.random.default_rng(1), (1, 3))
    drawn = Noise(name, 2.0**50).sample(np.random.default_rng(1), (100, 3))
    assert np.abs(drawn).mean() > 2.0**48


def test_scales_of_large_sensitivities_do_not_exceed_the_loss():
    rng = np.random.default_rng(1)
    for sensitivity, exponent in zip(rng.integers(2**53, 2**62, 300).tolist(), rng.uniform(6, 12, 300), strict=True):
        epsilon = 10**exponent
        assert Fraction(sensitivity) / Fraction(laplace_scale_for(sensitivity, epsilon)) <= Fraction(epsilon)


def test_a_split_may_not_exceed_the_stated_loss():
    assert partition_quantile("quantile-centred", 100, 1.1, (1.1 / 3,) * 3).epsilon == 1.1
    with pytest.raises(ValueError, match=r"must add up to epsilon = 0.9, got .* = 0.9000000008"):
        partition_quantile("quantile-centred", 100, 0.9, (0.3, 0.3, 0.3000000008))


def test_the_cdf_of_nan_is_nan():
    exact = posterior_from_release(30.0, "exponential", (1, 1), n=20, epsilon=1.0, bounds=(0, 5))
    for posterior in (exact, DrawnPosterior(np.linspace(0, 1, 40).reshape(4, 10))):
        assert np.isnan(posterior.cdf(np.nan))
        assert 0 < posterior.cdf(0.5) < 1


def test_records_that_are_not_numbers_are_no_scaled_records():
    with pytest.raises(ValueError, match=r"records must be in \[-1, 1\]"):
        scaled_records([[np.nan, 0.5]], 2)


def test_arguments_of_counts_are_used_or_refused():
    with pytest.raises(ValueError, match="outside must be drop for counts"):
        posterior_from_release([3.2, 7.1], "multinomial", (1, 1), epsilon=1.0, outside="clamp")
    exact = posterior_from_release([0.29, 0.71], "multinomial", (1, 1), n=100, noise=EXACT, proportion=True)
    assert exact.mean() == pytest.approx([30 / 102, 72 / 102])
