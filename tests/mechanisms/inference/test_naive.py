"""Tests of conjugate posteriors against quadrature, and of projections against enumeration of data sets."""

import itertools

import numpy as np
import pytest
from scipy import stats

from mechanisms.inference.families import FAMILIES
from mechanisms.inference.naive import ConjugatePosterior
from tests.mechanisms.inference.laplace import PRIORS, conjugate_posterior, draw_sums, naive_statistics, statistic
from tests.mechanisms.refusals import assert_refused
from tests.statistical import assert_mean_within, assert_rejects

# Log prior density, up to a constant, and log likelihood of n records with sum s, as functions of θ.
LOG_DENSITIES = {
    "binomial": lambda t, p, s, n: (p[0] - 1 + s) * np.log(t) + (p[1] - 1 + n - s) * np.log1p(-t),
    "exponential": lambda t, p, s, n: (p[0] - 1 + n) * np.log(t) - (p[1] + s) * t,
    "poisson": lambda t, p, s, n: (p[0] - 1 + s) * np.log(t) - (p[1] + n) * t,
    "normal": lambda t, p, s, n: -((t - p[0]) ** 2) / (2 * p[1]) + s * t - n * t**2 / 2,
}


@pytest.mark.parametrize("family", LOG_DENSITIES)
@pytest.mark.parametrize(("n", "theta"), [(1, 0.3), (50, 0.4), (2000, 0.7)])
def test_quantiles_and_means_equal_quadrature(family, n, theta):
    prior = PRIORS[family]
    s = {"exponential": n / theta}.get(family, np.floor(n * theta))
    posterior = conjugate_posterior(family, prior, n, [s])
    centre = float(posterior.mean()[0])
    spread = float(posterior.sample(np.random.default_rng(1), 200).std())
    low, high = FAMILIES[family].parameter_range
    ends = [max(low, centre - 25 * spread), min(high, centre + 25 * spread)]
    nodes, weights = np.polynomial.legendre.leggauss(200)
    for cut in (centre - spread, centre + 0.2 * spread):
        masses, moments = [], []
        for start, end in ((ends[0], cut), (cut, ends[1])):
            t = start + (end - start) * (1 + nodes) / 2
            log_density = LOG_DENSITIES[family](t, prior, s, n) - LOG_DENSITIES[family](centre, prior, s, n)
            mass = (end - start) / 2 * weights * np.exp(log_density)
            masses.append(mass.sum())
            moments.append(mass @ t)
        assert posterior.cdf([cut])[0] == pytest.approx(masses[0] / sum(masses), rel=1e-9)
        assert centre == pytest.approx(sum(moments) / sum(masses), rel=1e-9)


def test_multinomial_marginals_are_beta_distributions():
    posterior = conjugate_posterior("multinomial", (5, 4, 3), 20, [[10, 7, 3], [0, 0, 20]])
    theta = np.array([[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]])
    expected = [
        [stats.beta.cdf(t, a, 32 - a) for t, a in zip(*row, strict=True)]
        for row in zip(theta, posterior.parameters, strict=True)
    ]
    np.testing.assert_allclose(posterior.cdf(theta), expected, rtol=1e-12)
    np.testing.assert_allclose(posterior.mean(), posterior.parameters / 32, rtol=1e-15)
    many = posterior.cdf(np.stack([theta, theta[:, ::-1]], axis=1))
    np.testing.assert_array_equal(many[:, 0], posterior.cdf(theta))
    assert many.shape == (2, 2, 3)


@pytest.mark.parametrize("family", FAMILIES)
def test_non_private_is_calibrated_and_naive_is_not(family):
    """PIT values are uniform for the non-private posterior, but near 0 and 1 if inference ignores the noise."""
    rng, distribution, n = np.random.default_rng(8), FAMILIES[family], 50
    bounds = {"exponential": (0.01, 2.0), "poisson": (0.0, 8.0), "normal": (-3.0, 5.0)}.get(family)
    theta = distribution.draw_parameters(rng, PRIORS[family], 1500)
    s, truncated = draw_sums(family, rng, theta, n, bounds)
    u = conjugate_posterior(family, PRIORS[family], n, s).cdf(theta)[:, 0]
    assert_mean_within(u, 0.5)
    assert_mean_within((u - 0.5) ** 2, 1 / 12)
    for summed, used_bounds in ((s, None), (truncated, bounds)):
        y = summed + rng.laplace(scale=distribution.sensitivity(bounds) / 0.05, size=summed.shape)
        projected = naive_statistics(family, y, n, used_bounds)
        u = conjugate_posterior(family, PRIORS[family], n, projected).cdf(theta)[:, 0]
        assert_rejects(assert_mean_within, (u - 0.5) ** 2, 1 / 12)


@pytest.mark.parametrize(
    ("family", "bounds", "records"),
    [
        ("binomial", None, [0, 1]),
        ("exponential", (1.0, 2.0), [0.0, 1.0, 2.0, 9.0]),
        ("poisson", (1.0, 3.0), [0, 1, 3, 4]),
        ("normal", (1.0, 2.0), [-5.0, 1.0, 2.0, 5.0]),
        ("normal", (-2.0, -1.0), [-5.0, -2.0, -1.0, 5.0]),
        ("normal", (-1.0, 2.0), [-5.0, -1.0, 2.0, 5.0]),
    ],
)
def test_projection_interval_is_attained_by_data_sets(family, bounds, records):
    sums = [statistic(family, data, bounds)[0] for data in itertools.product(records, repeat=3)]
    projected = naive_statistics(family, [-1e9, 1e9, *sums], 3, bounds)[:, 0]
    assert projected[:2].tolist() == [min(sums), max(sums)]
    assert projected[2:].tolist() == sums


def test_projection_without_bounds():
    y = np.array([[-5.0, 4.0, 30.0]])
    assert naive_statistics("multinomial", y, 10).tolist() == [[0.0, 4.0, 10.0]]
    assert naive_statistics("exponential", y[0], 10).ravel().tolist() == [0.0, 4.0, 30.0]
    assert naive_statistics("normal", y[0], 10).ravel().tolist() == y[0].tolist()
    with pytest.raises(ValueError, match="bounds must be None for the binomial family"):
        naive_statistics("binomial", [1.0], 10, bounds=(0.0, 1.0))


def test_invalid_input_raises():
    assert_refused(lambda: naive_statistics("poisson", [np.nan], 10), "noisy_statistics must be finite")
    assert_refused(lambda: conjugate_posterior("binomial", (1, 1), 10, [3.0, 12.0]), "got others; use naive_statistics")
    posterior = ConjugatePosterior("binomial", np.ones((2, 2)))
    for theta in (0.5, [0.5], np.full((2, 2, 2), 0.5)):
        with pytest.raises(ValueError, match=r"theta must have shape \(2\)"):
            posterior.cdf(theta)
    assert_refused(lambda: posterior.cdf([0.5, 1.5]), "theta must be finite and between 0 and 1")
