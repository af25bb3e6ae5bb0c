"""Tests of noisy gradient descent for linear regression and its bootstrap."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from mechanisms.core.conversions import concentrated_epsilon
from mechanisms.regression.adassp import AdaSSP
from mechanisms.regression.binagg import BinnedRegression
from mechanisms.regression.dp_gd import _BURN_IN, _STEPS, NoisyDescent, clipped_sums
from tests.mechanisms.refusals import assert_refused
from tests.mechanisms.regression.scaled_records import coverage, gram_from, least_squares, records_of


@pytest.mark.parametrize("slopes", [(0.5,), (0.3, -0.2, 0.4)])
def test_without_noise_estimates_are_least_squares(slopes):
    rng = np.random.default_rng(1)
    u = records_of(rng, slopes=slopes)
    theta, variance, _ = least_squares(u)
    descent, ada = (kind(len(slopes) + 1, 1e18, 1e-6) for kind in (NoisyDescent, AdaSSP))
    for found in (descent.release(rng, u).estimate, ada.estimate(ada.release(rng, gram_from(u)))):
        np.testing.assert_allclose(found[0], [*theta, variance], rtol=1e-5)


def test_clipped_sums_equal_those_of_numpy():
    rng = np.random.default_rng(1)
    u, theta = rng.uniform(-1, 1, (500, 3)), np.array([0.4, 2.0, -1.0])
    z = np.column_stack([np.ones(500), u[:, :-1]])
    residuals = u[:, -1] - z @ theta
    gradients = z * residuals[:, None]
    norms = np.linalg.norm(gradients, axis=1)
    gradient, squares = clipped_sums(u, theta, 0.7)
    assert (norms > 0.7).mean() > 0.3
    np.testing.assert_allclose(gradient, (gradients * np.minimum(1.0, 0.7 / norms)[:, None]).sum(axis=0))
    assert squares == pytest.approx(np.minimum(residuals**2, 1.0).sum())


@pytest.mark.slow
@pytest.mark.parametrize("kind", [NoisyDescent, AdaSSP])
def test_releases_compose_to_the_guarantee(kind):
    """The parts of ρ add up, and ρ is the largest that (ε, δ) allows."""
    method = kind.calibrated(3, 1.0, 1e-6)
    if kind is AdaSSP:
        sensitivities, times = [3.0, 3.0 * np.sqrt(2.0), 2.0 * np.sqrt(3.0)], [1, 1, 1]
    else:  # XᵀX, ten gradients and the squares
        sensitivities, times = [3.0 * np.sqrt(2.0), 2.0 * method.clip, 1.0], [1, _STEPS, 1]
    assert (np.array(times) * np.square(sensitivities) / (2 * method.stds**2)).sum() == pytest.approx(method.rho)
    assert method.guarantee.rho == method.rho
    assert 0.999 < concentrated_epsilon(method.rho, 1e-6) <= 1.0


def test_losses_are_exact_on_a_grid_of_records():
    """At d = 1, no replaced record changes a statistic by more than its sensitivity, and one pair does by 2γ.

    The loss of Gaussian noise is determined by the largest change. Twice the sensitivity for added records is needed.
    """
    method = NoisyDescent(2, 1.0, 1e-6)
    grid = np.array(list(itertools.product(np.linspace(-1, 1, 7), repeat=2)))
    largest = np.zeros(2)
    for theta in itertools.product(np.linspace(-2, 2, 5), repeat=2):
        sums = [clipped_sums(u[None], np.array(theta), method.clip) for u in grid]
        gradients, squares = np.array([each[0] for each in sums]), np.array([each[1] for each in sums])
        gaps = np.linalg.norm(gradients[:, None] - gradients[None], axis=-1)
        largest = np.maximum(largest, [gaps.max(), np.ptp(squares)])
    np.testing.assert_allclose(largest, [2.0 * method.clip, 1.0], rtol=1e-9)


@pytest.mark.slow
def test_noise_has_its_variance():
    """Averaged iterates near the minimum have the covariance of averaged independent noise."""
    rng, method = np.random.default_rng(1), NoisyDescent(2, 1.0, 1e-6)
    u = records_of(rng, n=20_000)
    theta, _, inverse = least_squares(u)
    drawn = [method.release(rng, u) for _ in range(400)]
    gaps = np.array([each.theta[0] for each in drawn]) - theta
    expected = np.diag(inverse @ inverse) * method.stds[1] ** 2 / (_STEPS - _BURN_IN)
    error = np.sqrt(2.0 / 400)
    found = (gaps**2).mean(axis=0) / expected
    assert (np.abs(found - 1.0) < 5 * error).all()
    assert (np.abs(found / 2 - 1.0) > 5 * error).all()  # negative control: half the variance
    squares = np.array([each.squares[0] for each in drawn])
    assert abs(squares.var() / method.stds[2] ** 2 - 1.0) < 5 * error


@pytest.mark.parametrize("records", [np.zeros((0, 2)), np.zeros((9, 3)), np.zeros(2), np.full((9, 2), 1.5)])
@pytest.mark.parametrize("release", [NoisyDescent, BinnedRegression])
def test_records_for_which_the_sensitivities_do_not_hold_are_refused(release, records):
    with pytest.raises(ValueError, match=r"records must be in \[-1, 1\], of shape \(n, 2\), n >= 1, got shape"):
        release.calibrated(2, 1.0, 1e-6).release(np.random.default_rng(1), records)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "epsilon", "data_of"),
    [(AdaSSP, 3.0, gram_from), (BinnedRegression, 1.0, np.asarray), (NoisyDescent, 1.0, np.asarray)],
)
def test_intervals_cover(kind, epsilon, data_of):
    """The fit and 200 replicates may cost 0.02 of the nominal coverage; a tenth of the noise costs more."""
    method, error = kind.calibrated(2, epsilon, 1e-6), np.sqrt(0.95 * 0.05 / 150)
    assert (coverage(method, method, data_of) > 0.93 - 5 * error).all()
    control = coverage(method, replace(method, rho=100 * method.rho), data_of, n_trials=50)
    assert (control[1:] < 0.93 - 5 * error).all()


@pytest.mark.parametrize("kind", [AdaSSP, BinnedRegression, NoisyDescent])
def test_invalid_delta_is_refused(kind):
    assert_refused(lambda: kind.calibrated(2, 1.0, 0.0), "delta")
