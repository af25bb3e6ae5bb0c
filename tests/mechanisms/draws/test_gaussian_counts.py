"""Tests of the Gaussian mechanism on counts: projections, closed-form moments, and divergences."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special, stats

from mechanisms.core.privacy import RenyiGuarantee
from mechanisms.draws.dirichlet_divergence import dirichlet_renyi
from mechanisms.draws.gaussian_counts import GAUSSIAN_MECHANISMS, GaussianCounts, gaussian_mechanism, project_counts
from tests.mechanisms.marks import exhaustive
from tests.mechanisms.refusals import assert_refused
from tests.statistical import assert_mean_within

PRIOR, N, SUCCESSES = (6.0, 12.0), 100, 38


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 7), st.sampled_from([0.01, 1.0, 100.0]))
def test_projections_are_the_nearest_points(seed, k, scale):
    """Projections satisfy the KKT conditions: positive entries have the same shift, and zeros at most this shift."""
    rng = np.random.default_rng(seed)
    noisy = 10 * rng.dirichlet(np.ones(k)) + scale * rng.standard_normal(k)
    projected = project_counts(noisy, 10)
    assert projected.min() >= 0
    assert projected.sum() == pytest.approx(10, rel=1e-12)
    shifts = noisy - projected
    positive = projected > 0
    np.testing.assert_allclose(shifts[positive], shifts[positive][0], rtol=1e-9, atol=1e-9 * scale)
    assert np.all(shifts[~positive] <= shifts[positive][0] + 1e-9 * scale)


@pytest.mark.parametrize(
    ("noisy", "n", "expected"),
    [
        ([3e17, -2e17], 100, [100.0, 0.0]),
        ([-2e17, 3e17, 3e17], 100, [0.0, 50.0, 50.0]),
        ([-3e17, -4e17], 100, [100.0, 0.0]),
        ([5.0, 1.0], 0, [0.0, 0.0]),
    ],
)
def test_projections_of_large_noise_add_up(noisy, n, expected):
    np.testing.assert_array_equal(project_counts([noisy], n), [expected])


def test_two_categories_equal_published_mechanism():
    """At k = 2, the released count is the true one plus half the difference of two noises, clamped to [0, n]."""
    release = gaussian_mechanism("gaussian", PRIOR, N, order=2, epsilon=0.001)
    uniforms = np.random.default_rng(2).random((5_000, 2))
    normals, released = special.ndtri(uniforms), release.from_uniforms(uniforms, (SUCCESSES, N - SUCCESSES))
    noise = release.noise_std * (normals[:, 0] - normals[:, 1]) / 2
    clamped = np.clip(SUCCESSES + noise, 0, N)
    np.testing.assert_allclose(released, np.stack([clamped, N - clamped], axis=1), atol=1e-10)
    assert 0.1 < np.mean((clamped == 0) | (clamped == N)) < 0.9
    assert release.noise_std**2 / 2 == pytest.approx(2 / 0.001, rel=1e-12)  # the published variance λΔ²/ε with Δ = 1


@pytest.mark.parametrize("name", GAUSSIAN_MECHANISMS)
@pytest.mark.parametrize("order", [1.0, 2.0, 15.0])
@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 5.0])
def test_variances_and_divergences(name, order, epsilon):
    """The divergence D_λ = λ/σ² is ε for the tight variance and ε/2 for the published one."""
    release = gaussian_mechanism(name, (1, 1, 1), 10, order, epsilon)
    spent = {"gaussian": epsilon / 2, "gaussian-tight": epsilon}[name]
    assert release.renyi_epsilon(order) == pytest.approx(spent, rel=1e-14)
    assert release.renyi_epsilon(3 * order) == pytest.approx(3 * spent, rel=1e-14)
    assert release.guarantee(order) == RenyiGuarantee(order, release.renyi_epsilon(order))


@pytest.mark.parametrize("epsilon", [1e-8, 0.003, 0.05, 3.0, 1e4])
@pytest.mark.parametrize("successes", [0, 1, 38, 100])
def test_distribution_of_the_released_successes(epsilon, successes):
    """Pr[0 successes], Pr[n successes] and two moments equal closed forms for a clamped normal variable."""
    release = gaussian_mechanism("gaussian-tight", PRIOR, N, 2, epsilon)
    values, probabilities = release.successes_distribution(successes)
    distribution = stats.norm(successes, release.noise_std / math.sqrt(2))
    assert probabilities.sum() == pytest.approx(1, rel=1e-14)
    assert (values[0], values[-1]) == (0, N)
    assert probabilities[[0, -1]] == pytest.approx([distribution.cdf(0), distribution.sf(N)], rel=1e-12)
    with mpmath.workdps(30):
        mean, std = mpmath.mpf(successes), mpmath.mpf(distribution.std())
        low, high = (0 - mean) / std, (N - mean) / std
        inside = mpmath.ncdf(high) - mpmath.ncdf(low)
        first = mean * inside + std * (mpmath.npdf(low) - mpmath.npdf(high))
        second = (mean**2 + std**2) * inside + std * (mean * mpmath.npdf(low) - (mean + N) * mpmath.npdf(high))
        expected = [first + N * mpmath.ncdf(-high), second + N**2 * mpmath.ncdf(-high)]
    moments = [float(probabilities @ values), float(probabilities @ values**2)]
    np.testing.assert_allclose(moments, [float(each) for each in expected], rtol=1e-12)


def exact_kl(prior, n, successes, noise_std):
    """Return the KL divergence by integrating its definition over noise and log odds with 25-digit arithmetic."""
    with mpmath.workdps(25):
        alpha, beta = map(mpmath.mpf, prior)
        a, b, std = alpha + successes, beta + n - successes, mpmath.mpf(noise_std) / mpmath.sqrt(2)
        low, high = max(0.0, float(successes - 13 * std)), min(float(n), float(successes + 13 * std))
        edges = np.linspace(low, high, max(4, int((high - low) / min(float(std), 4.0))))
        nodes, weights = np.polynomial.legendre.leggauss(20)
        half = (edges[1] - edges[0]) / 2
        values = [mpmath.mpf(float(edge + half * (1 + node))) for edge in edges[:-1] for node in nodes]
        masses = [
            half * weight * mpmath.npdf(s, successes, std)
            for s, weight in zip(values, [*weights] * (len(edges) - 1), strict=True)
        ]
        values += [mpmath.mpf(0), mpmath.mpf(n)]
        masses += [mpmath.ncdf(-successes / std), mpmath.ncdf((successes - n) / std)]
        log_scale = [
            mpmath.log(mass / mpmath.beta(alpha + s, beta + n - s)) for s, mass in zip(values, masses, strict=True)
        ]
        log_beta = mpmath.log(mpmath.beta(a, b))

        def integrand(phi):
            log_p = a * phi - (a + b) * mpmath.log1p(mpmath.exp(phi)) - log_beta
            log_q = -(alpha + beta + n) * mpmath.log1p(mpmath.exp(phi)) + mpmath.log(
                mpmath.fsum(mpmath.exp(c + (alpha + s) * phi) for c, s in zip(log_scale, values, strict=True))
            )
            return mpmath.exp(log_p) * (log_p - log_q)

        mode, spread = mpmath.log(a / b), mpmath.sqrt(1 / a + 1 / b)
        step, steps = spread / 5, [int(5 * (10 + 25 / tail) / spread) if tail < 4 else 70 for tail in (a, b)]
        return float(step * mpmath.fsum(integrand(mode + i * step) for i in range(-steps[0], steps[1] + 1)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("prior", "n", "successes", "order", "epsilon"),
    [
        (PRIOR, N, SUCCESSES, 2.0, math.exp(-6)),  # θ has two modes
        ((3.0, 2.0), 12, 12, 2.0, 0.3),
        *exhaustive((PRIOR, N, SUCCESSES, 2.0, math.exp(2)), (PRIOR, N, SUCCESSES, 15.0, math.exp(-1))),
        *exhaustive(((3.0, 2.0), 12, 4, 2.0, 1e-3)),
    ],
)
def test_divergence_equals_mpmath(prior, n, successes, order, epsilon):
    """The divergence agrees with 25-digit arithmetic; an error of 1 % in the noise is detected."""
    release = gaussian_mechanism("gaussian", prior, n, order, epsilon)
    expected = exact_kl(prior, n, successes, release.noise_std)
    assert release.posterior_kl(successes) == pytest.approx(expected, rel=1e-9)
    off = GaussianCounts(prior, n, 1.01 * release.noise_std)
    assert off.posterior_kl(successes) != pytest.approx(expected, rel=1e-4)


def test_divergence_vanishes_with_the_noise():
    """As the noise variance s² tends to 0, the KL divergence approaches ⅛s⁴·Var (φ − φ̄)² for the log odds φ.

    The density ratio r satisfies r − 1 ≈ ½s²·[(φ − φ̄)² − v], where v = Var φ.
    """
    a, b = 44.0, 74.0
    v, fourth = (special.polygamma(m, a) + special.polygamma(m, b) for m in (1, 3))
    for epsilon in (1e4, 1e6, 1e8):
        release = gaussian_mechanism("gaussian", PRIOR, N, 2, epsilon)
        leading = (release.noise_std**2 / 2) ** 2 * (fourth + 2 * v**2) / 8
        assert release.posterior_kl(SUCCESSES) == pytest.approx(leading, rel=10 / epsilon + 1e-6)


def test_distribution_is_bimodal_as_epsilon_vanishes():
    """As ε → 0, the released count is 0 or n with probability ½ each, so θ has a mixture of two posteriors."""
    for epsilon, tolerance in ((1e-6, 0.02), (1e-10, 2e-4), (1e-14, 2e-6)):
        release = gaussian_mechanism("gaussian", PRIOR, N, 2, epsilon)
        _, probabilities = release.successes_distribution(SUCCESSES)
        assert probabilities[[0, -1]] == pytest.approx([0.5, 0.5], abs=tolerance)
    extreme = [GaussianCounts(PRIOR, N, noise_std).posterior_kl(SUCCESSES) for noise_std in (1e6, 1e8, 1e100)]
    assert extreme[1] - extreme[0] == pytest.approx(math.log(100), rel=0.01)
    both = [stats.beta(6, 112), stats.beta(106, 12)]
    posterior = stats.beta(44, 74)
    expected, _ = integrate.quad(
        lambda t: posterior.pdf(t) * (posterior.logpdf(t) - math.log((both[0].pdf(t) + both[1].pdf(t)) / 2)), 0.05, 0.8
    )
    assert extreme[2] == pytest.approx(expected, rel=1e-7)
    assert expected < float(dirichlet_renyi([44.0, 74.0], [6.0, 112.0], 1.0)) + math.log(2)


@pytest.mark.parametrize(
    ("prior", "n", "successes", "epsilon"),
    [
        ((0.5, 0.5), 1, 0, 1.0),
        ((0.05, 3.0), 50, 0, 0.1),
        ((1.0, 1.0), 10_000, 3_000, 0.01),
        ((2.0, 0.3), 30, 30, 1e-12),
    ],
)
def test_divergence_of_extreme_inputs_is_finite(prior, n, successes, epsilon):
    """With heavy tails, empty categories or many records, the KL divergence is finite and increases with the noise."""
    tight, published = (
        gaussian_mechanism(name, prior, n, 2, epsilon).posterior_kl(successes)
        for name in ("gaussian-tight", "gaussian")
    )
    assert 0 < tight < published < math.inf


def test_draws_of_three_categories():
    """With negligible noise, draws for three categories have the mean of the posterior."""
    release = gaussian_mechanism("gaussian-tight", (1, 2, 3), 10, 2, 1e9)
    draws = release.at((5, 0, 5)).sample(np.random.default_rng(9), size=5_000)
    for j, expected in enumerate((6 / 16, 2 / 16, 8 / 16)):
        assert_mean_within(draws[:, j], expected)


def test_invalid_arguments_raise():
    two, three = (gaussian_mechanism("gaussian", (1,) * k, 5, 2, 1.0) for k in (2, 3))
    assert_refused(lambda: two.posterior_kl(6), "successes must be an integer")
    assert_refused(lambda: two.successes_distribution(2.5), "from 0 to 5")
    assert_refused(lambda: two.at((1, 1)), "counts must sum to 5")
    assert_refused(lambda: three.successes_distribution(2), "prior must have 2 categories")
