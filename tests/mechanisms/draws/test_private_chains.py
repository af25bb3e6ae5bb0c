"""Tests of chains with a guarantee for their finite number of steps, against closed forms and quadrature."""

import itertools
import math
from dataclasses import replace

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from scipy import stats
from scipy.special import expit, log_expit

from mechanisms import GaussianGuarantee, Ledger, private_chain, private_logistic, sampled_bound
from mechanisms.audit.accounting import accounting_event
from mechanisms.core.conversions import gaussian_epsilon, gaussian_mu
from mechanisms.draws import langevin
from mechanisms.draws.glm_mechanisms import glm_mechanism
from mechanisms.draws.langevin import (
    LangevinChain,
    forecast_draws,
    langevin_chain,
    last_langevin,
    plan_intervals,
    published_langevin,
)
from mechanisms.draws.penalty import PenaltyChain, likelihood_range, log_likelihoods, published_penalty
from mechanisms.draws.private_logistic import _clipped, _halved, _largest_norm, _rounding, _slope_of, noise_bits
from tests.mechanisms.divergences import gaussian_delta
from tests.mechanisms.marks import exhaustive
from tests.mechanisms.refusals import assert_refused

X, Y = np.array([[0.9], [-0.4], [0.2], [1.0], [-0.7], [0.5]]), np.array([1, 0, 1, 1, 0, 0])


def test_draws_of_a_chain_bound_its_loss():
    """The bound of `sampled_bound` is below ε; with the likelihood at its full power, it is not (negative control)."""
    chain = private_chain("langevin-last", n=4, d=1, beta=0.05, epsilon=1.0, delta=1e-3)
    first = np.ones((4, 2))  # rows x, y
    second = np.where(np.arange(8).reshape(4, 2) == 1, 0.0, first)

    def bound(drawn):
        rng = np.random.default_rng(1)

        def sampler(rows, size):
            return drawn.sample(rng, rows[:, :-1], rows[:, -1], size)[:, -1]

        return sampled_bound(sampler, first, second, 40_000, delta=1e-3).epsilon

    assert 0.0 < bound(chain) < 1.0
    assert bound(replace(chain, power=1.0, step=chain.step / 4)) > 2.0


@pytest.mark.parametrize("step", [0.02, 0.5, 1.0])
def test_last_iterate_of_a_quadratic_has_the_stated_guarantee(step):
    """Iterates of a quadratic are normal; the ratio of the shift to the standard deviation is μ."""
    precision, c = 1.6, 0.7
    shift, variance = 0.0, 0.0
    for t in range(1, 101):
        shift = (1 - step * precision / 2) * shift + step * c
        variance = (1 - step * precision / 2) ** 2 * variance + step
        chain = _Quadratic(5, precision, 1.0, step, t, c, last_only=True)
        assert chain.guarantee.mu == pytest.approx(shift / math.sqrt(variance), rel=1e-9)
    limit = _Quadratic(5, precision, 1.0, step, 10_000, c, last_only=True).guarantee.mu
    assert limit == pytest.approx(math.sqrt(4 * c**2 / precision - step * c**2), rel=1e-9)


class _Quadratic(LangevinChain):
    smoothness = property(lambda chain: chain.precision)


@pytest.mark.slow
@pytest.mark.parametrize("n_steps", [1, 3, 20])
def test_no_loss_of_a_logistic_chain_exceeds_the_stated_guarantee(n_steps):
    """Densities of the last iterate on neighbouring data sets are propagated by quadrature."""
    chain = langevin_chain(n=6, beta=0.05, n_steps=n_steps, step=0.6, last_only=True)
    grid = np.linspace(-30, 30, 1001)
    worst, records = 0.0, itertools.product((-1.0, 1.0), (0, 1))
    densities = [_last_density(chain, np.r_[X[:5, 0], x], np.r_[Y[:5], y], grid) for x, y in records]
    for p, q in itertools.permutations(densities, 2):
        for epsilon in (0.0, 0.1, 0.5, 1.0, 2.0):
            loss = np.maximum(p - math.exp(epsilon) * q, 0).sum() * (grid[1] - grid[0])
            stated = gaussian_delta(chain.guarantee.mu, epsilon)
            assert loss <= stated * (1 + 1e-9) + 1e-13
            worst = max(worst, loss / stated)
    assert worst > 0.4  # in one dimension gradients of records differ by less than 2c


def _last_density(chain, x, y, grid):
    """Return the density of the last iterate, by the trapezoidal rule, which converges exponentially for it."""
    slopes = chain.power * ((y - expit(grid[:, None] * x)) @ x) - chain.precision * grid
    means, first = grid + chain.step / 2 * slopes, chain.step / 2 * float((y - 0.5) @ x) * chain.power
    density = stats.norm.pdf(grid, first, math.sqrt(chain.step))
    kernel = stats.norm.pdf(grid[:, None], means, math.sqrt(chain.step)) * (grid[1] - grid[0])
    for _ in range(chain.n_steps - 1):
        density = kernel @ density
    return density


@pytest.mark.parametrize("n_steps", [1, 8, *exhaustive(2, 40)])
@pytest.mark.slow
def test_no_loss_in_two_dimensions_exceeds_the_stated_guarantee(n_steps):
    """As in one dimension; also for exact draws, which are 2cρ/√κ-GDP."""
    chain = langevin_chain(n=4, beta=0.25, n_steps=n_steps, step=0.8, last_only=True)
    axis = np.linspace(-9, 9, 46)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    shared = np.array([[0.4, 0.0, 1.0]] * 3)
    angles = np.array([0.5, 1.2, 1.5, 2.8])
    pairs = [np.array([[-np.cos(a), s * np.sin(a), 1.0] for s in (1, -1)]) for a in angles]
    stated = chain.guarantee.mu, 2 / math.sqrt(chain.precision)
    worst = np.zeros(2)
    for pair in pairs:
        found = [_densities_2d(chain, np.vstack([shared, record]), grid) for record in pair]
        for k, (p, q) in enumerate(zip(*found, strict=True)):
            for epsilon in (0.0, 0.3, 1.0, 2.0):
                bound = gaussian_delta(stated[k], epsilon)
                for loss in (
                    np.maximum(p - math.exp(epsilon) * q, 0).sum(),
                    np.maximum(q - math.exp(epsilon) * p, 0).sum(),
                ):
                    assert loss <= bound * (1 + 1e-9) + 1e-13
                    worst[k] = max(worst[k], loss / bound)
    assert np.all(worst > 0.25)  # the bound is attained only in the limit of shared records that shift the mode far


def _densities_2d(chain, records, grid):
    """Return the probabilities of grid points under the last iterate and under the target, by the trapezoidal rule."""
    x, y = records[:, :2], records[:, 2]
    means = grid + chain.step / 2 * chain.drift(grid, x, y)
    first = chain.step / 2 * (y - 0.5) @ x
    axis = np.unique(grid)
    factors = np.exp(-0.5 * (axis[:, None, None] - means) ** 2 / chain.step)  # one per coordinate of a point
    kernel = (factors[:, None, :, 1] * factors[None, :, :, 0]).reshape(len(grid), -1)
    density = np.exp(-0.5 * ((grid - first) ** 2).sum(axis=1) / chain.step)
    for _ in range(chain.n_steps - 1):
        density = kernel @ density
    target = np.exp(log_likelihoods((2 * y - 1)[:, None] * x, grid) - 0.5 * chain.precision * (grid**2).sum(axis=1))
    return density / density.sum(), target / target.sum()


def test_sampled_iterates_have_the_density_of_the_quadrature():
    chain = langevin_chain(n=6, beta=0.05, n_steps=5, step=0.6)
    grid = np.linspace(-30, 30, 1001)
    cdf = np.cumsum(_last_density(chain, X[:, 0], Y, grid)) * (grid[1] - grid[0])
    last = chain.sample(np.random.default_rng(1), X, Y, n_chains=20_000)[:, -1, 0]
    assert stats.kstest(last, lambda w: np.interp(w, grid, cdf)).pvalue > 1e-6
    assert stats.kstest(last * 1.05, lambda w: np.interp(w, grid, cdf)).pvalue < 1e-6


def test_guarantees_compose_as_in_dp_accounting():
    chain = langevin_chain(n=1000, beta=0.01, n_steps=40, step=0.005)
    single = GaussianGuarantee(math.sqrt(0.005))
    accountant = PLDAccountant().compose(accounting_event(single), 40)
    for epsilon in (0.5, 1.0, 2.0):
        stated = gaussian_delta(chain.guarantee.mu, epsilon)
        assert accountant.get_delta(epsilon) == pytest.approx(stated, rel=1e-6)
        assert Ledger().spend(single, times=40).delta(epsilon) >= stated * (1 - 1e-6)
    assert accountant.get_epsilon(1e-6) == pytest.approx(gaussian_epsilon(chain.guarantee.mu, 1e-6), rel=1e-6)
    assert str(Ledger().spend(GaussianGuarantee(0.316)).guarantee(delta=1e-6)) == "(1.36651, 1e-06)-DP"
    penalised = PenaltyChain(precision=1.0, scale=0.1, noise=50.0, n_steps=40)
    assert penalised.guarantee.mu == pytest.approx(math.sqrt(40) / 50)


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.01, 1e-12), (10.0, 1e-3), (1e-3, 1e-300), (100.0, 0.5)])
def test_conversions_are_on_the_safe_side(epsilon, delta):
    mu = gaussian_mu(epsilon, delta)
    with mpmath.workdps(340):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        exact = mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)
        assert 1 - 1e-6 <= exact / mpmath.mpf(delta) <= 1
    assert gaussian_epsilon(mu, delta) == pytest.approx(epsilon, rel=1e-8)
    assert gaussian_epsilon(mu, delta) <= epsilon


@pytest.mark.parametrize("fraction", [0.8, *exhaustive(0.05, 0.3)])
@pytest.mark.slow
def test_effective_draws_equal_the_forecast(fraction):
    """With records at 0 the potential is quadratic; the variance of the mean of a chain gives its effective draws."""
    n, beta, n_steps = 4, 0.5, 2000
    precision = n * beta
    step = fraction * 4 / (2 * precision + n / 4)
    chain = langevin_chain(n, beta, n_steps, step)
    iterates = chain.sample(np.random.default_rng(2), np.zeros((n, 1)), np.zeros(n), n_chains=5500)[:, 500:, 0]
    measured = iterates.var() / iterates.mean(axis=1).var()
    mu = math.sqrt(step * iterates.shape[1])
    assert measured == pytest.approx(forecast_draws(precision, mu, step), rel=0.1)  # 5 standard errors
    assert measured != pytest.approx(forecast_draws(precision, 1.2 * mu, step), rel=0.1)


def test_forecasts_at_the_published_sizes():
    """Effective draws at ε = 1, δ = 1e-6, summed over the columns of bounded records, as small steps allow."""
    mu = gaussian_mu(1.0, 1e-6)
    for n, expected in ((2784, 10), (32561, 114), (7988, 28)):
        assert forecast_draws(n / 4, mu) == pytest.approx(expected, rel=0.05)
    assert forecast_draws(2784 / 4, mu) < langevin.LEAST_DRAWS


def test_one_draw_is_calibrated_by_its_lipschitz_constant():
    found = glm_mechanism("glm-gdp", 2784, 0.001, 1, 1.0, delta=1e-6)
    assert found.guarantee.mu == pytest.approx(2 * found.power / math.sqrt(found.precision), rel=1e-12)
    whole = glm_mechanism("glm-gdp", 10**6, 1.0, 1, 1.0, delta=1e-6)
    assert (whole.power, whole.guarantee.mu) == (1.0, 2e-3)
    assert glm_mechanism("glm-gdp", 100, 0.01, 1, 1e-90, delta=1e-200).guarantee.mu > 0
    for delta in (None, 0.0):
        with pytest.raises(ValueError, match="delta must be in"):
            glm_mechanism("glm-gdp", 2784, 0.001, 1, 1.0, delta=delta)


def test_finite_chain_has_at_least_the_power_of_the_exact_draw():
    """The limit of long chains is slightly better than the bound of an exact draw."""
    for epsilon in (1e-90, 0.1, 1.0, 10.0):
        chain = last_langevin(n=2784, beta=0.001, epsilon=epsilon, delta=1e-6)
        assert gaussian_epsilon(chain.guarantee.mu, 1e-6) <= epsilon * (1 + 1e-12)
        assert chain.power >= glm_mechanism("glm-gdp", 2784, 0.001, 1, epsilon, delta=1e-6).power * (1 - 1e-12)
        assert (1 - chain.gap) ** chain.n_steps <= 0.01


def test_guarantee_of_slow_chains_has_no_cancellation():
    """The contraction is 1 − q, not q, for which the guarantee has a relative error of 1e-16/(1 − q)."""
    chain = langevin_chain(n=1000, beta=1e-9, n_steps=7000, step=0.004, last_only=True)
    with mpmath.workdps(40):
        q = 1 - mpmath.mpf(chain.step) * mpmath.mpf(chain.precision) / 2
        remaining = q**chain.n_steps
        exact = mpmath.sqrt(chain.step * (1 - remaining) / (1 + remaining) * (1 + q) / (1 - q))
    assert chain.guarantee.mu == pytest.approx(float(exact), rel=1e-14)


@pytest.mark.parametrize("length", [0.0, 0.7, 3.0, 9.0])
@pytest.mark.parametrize("distance", [0.01, 0.5, 2.0])
def test_likelihood_range_is_a_tight_upper_bound(length, distance):
    rng = np.random.default_rng(3)
    for c in (0.6, 1.0):
        change = rng.standard_normal(3)
        theta, other = np.array([length, 0, 0]), np.array([length, 0, 0]) + distance * change / np.linalg.norm(change)
        u = rng.standard_normal((100_000, 3))
        u *= c * (rng.random(len(u)) ** 0.2 / np.linalg.norm(u, axis=1))[:, None]
        ratio = log_expit(u @ other) - log_expit(u @ theta)
        found = likelihood_range(theta, other, c)
        assert ratio.max() - ratio.min() <= found <= 1.03 * (ratio.max() - ratio.min())
        assert found <= 2 * c * distance


def test_likelihood_range_is_symmetric():
    """Forward and backward steps have the same variance, otherwise the posterior is not invariant."""
    pairs = np.random.default_rng(6).standard_normal((50, 2, 3))
    for one, other in pairs:
        assert likelihood_range(one, other) == likelihood_range(other, one)
    assert likelihood_range([1.0, 0.0], [0.0, 1.0]) == likelihood_range([0.0, 1.0], [1.0, 0.0])


def test_exact_ranges_pay_for_two_to_four_times_as_many_steps():
    """At equal noise the number of steps is proportional to the inverse square of the range, here in its direction."""
    angles = np.linspace(0, math.pi, 181)
    changes = 1e-3 * np.column_stack([np.cos(angles), np.sin(angles)])
    ranges = [likelihood_range(at, at + changes) / 2e-3 for at in np.array([[0, 0], [1, 0], [2, 0], [4, 0]])]
    worst, typical = [each.max() ** -2 for each in ranges], [1 / np.mean(each**2) for each in ranges]
    np.testing.assert_allclose(worst, [4.0, 3.3, 2.5, 1.72], rtol=0.02)
    np.testing.assert_allclose(typical, [4.0, 3.6, 2.9, 2.27], rtol=0.02)


@pytest.mark.slow
def test_penalty_leaves_the_posterior_invariant():
    """After steps from exact draws the distribution is the same; without half of the penalty it is not."""
    rng, n = np.random.default_rng(4), 10_000
    chain = PenaltyChain(precision=0.3, scale=2.0, noise=1.5, n_steps=4)
    signed, grid = (2 * Y - 1)[:, None] * X, np.linspace(-15, 15, 20001)
    density = np.exp(log_expit(grid[:, None] * signed[:, 0]).sum(axis=1) - 0.15 * grid**2)
    cdf = np.cumsum(density) / density.sum()

    def moved(noise):
        state = np.interp(rng.random(n), cdf, grid)[:, None]
        here = log_likelihoods(signed, state)
        for _ in range(chain.n_steps):
            state, here = chain.step(noise, signed, state, here)
        return stats.kstest(state[:, 0], lambda w: np.interp(w, grid, cdf)).pvalue

    assert moved(rng) > 1e-4
    assert moved(_Biased(rng)) < 1e-6


class _Biased:
    """Generator whose normals for the ratio are too large by .75, so that half of the penalty is lost at noise 1.5."""

    def __init__(self, rng):
        self.rng, self.standard_exponential = rng, rng.standard_exponential

    def standard_normal(self, shape):
        return self.rng.standard_normal(shape) + (0.0 if isinstance(shape, tuple) else 0.75)


def test_bad_input_is_refused():
    for refused, match in (
        (lambda: langevin_chain(100, 0.1, 10, 1.0), r"at most 4/\(kappa \+ M\) = 0.0888889, got 1"),
        (lambda: forecast_draws([100.0], 0.1, step=1.0), r"step must be in \[0, 4/curvature\), got 1"),
        (lambda: forecast_draws([-1.0], 0.1), "curvatures must be finite and > 0"),
        (lambda: last_langevin(1000, 1e-17, 1.0, 1e-6), "must end within 1,000,000 steps, got beta = 1e-17"),
        (lambda: last_langevin(100, 1e-320, 1.0, 1e-6), "must end within 1,000,000 steps"),
        (lambda: plan_intervals(last_langevin(10**6, 0.1, 1.0, 1e-6), 2), "at most 0.143"),
        (lambda: langevin_chain(9, 1.0, 2, 0.01).sample(np.random.default_rng(), X, Y), "records must be 9"),
    ):
        assert_refused(refused, match)


@pytest.mark.slow
def test_release_has_exact_noise_and_a_guarantee_and_a_rehearsal_has_none():
    rng = np.random.default_rng(5)
    design = rng.standard_normal((400, 2))  # most rows are longer than the bound
    labels = rng.random(400) < expit(3 * design[:, 0])
    arguments = {"epsilon": 3.0, "delta": 1e-6, "beta": 0.01}
    released = [private_logistic(design, labels, **arguments) for _ in range(12)]
    assert str(released[0].guarantee) == "(3, 1e-06)-DP"
    weights = np.array([one.weights for one in released])
    unit = math.sqrt(released[0].chain.step) * 2.0 ** -noise_bits(released[0].chain, 2, 1e-6)
    np.testing.assert_array_equal(weights, np.rint(weights / unit) * unit)
    rehearsed = [private_logistic(design, labels, **arguments, rehearsal_seed=seed) for seed in range(100)]
    assert rehearsed[0].guarantee is None
    drawn = np.array([one.weights for one in rehearsed])
    error = drawn.std(axis=0) * math.sqrt(1 / 12 + 1 / 100)
    assert np.all(np.abs(weights.mean(axis=0) - drawn.mean(axis=0)) < 5 * error)
    np.testing.assert_array_equal(
        private_logistic(design, labels, **arguments, rehearsal_seed=3).weights, rehearsed[3].weights
    )


@pytest.mark.parametrize(("n", "d"), [(1, 1), (2784, 9), (32_561, 100), (7988, 784)])
@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 30.0])
def test_discretisation_is_within_the_reserved_budget(n, d, epsilon):
    chain = last_langevin(n, 0.001, epsilon, 1e-6 * (1 - 1e-3), norm_bound=1 + 1e-6)
    bits, spent = noise_bits(chain, d, 1e-6), gaussian_epsilon(chain.guarantee.mu, 0.999e-6)
    added = (1 + math.exp(spent)) * chain.n_steps * d * 4.0**-bits / 8
    assert added <= 0.5e-3 * 1e-6
    assert spent <= epsilon * (1 + 1e-9)
    change = chain.power * math.sqrt(chain.step)  # of a mean, over the standard deviation
    error = _rounding(chain, d, _largest_norm(chain, d, 40.0))
    assert 2 * (math.sqrt(d) * 2.0**-bits + error) <= 1e-6 * change * (1 + 1e-6)


def test_noise_that_cannot_be_represented_is_refused():
    for changed in ({"delta": 1e-300}, {"beta": 1e300}):
        with pytest.raises(ValueError, match="the noise must have at most 48 bits"):
            private_logistic(X, Y, **{"epsilon": 1.0, "delta": 1e-6, "beta": 0.1, "rehearsal_seed": 1} | changed)


@pytest.mark.parametrize("bits", [0, 1, 2, 4])
def test_discrete_and_rounded_normal_noise_are_within_the_stated_distance(bits):
    scale = 2.0**bits
    edges = np.arange(-round(12 * scale) - 12, round(12 * scale) + 13)
    discrete = np.exp(-0.5 * (edges / scale) ** 2)
    rounded = np.diff(stats.norm.cdf(np.append(edges - 0.5, edges[-1] + 0.5), scale=scale))
    distance = 0.5 * np.abs(rounded - discrete / discrete.sum()).sum()
    assert distance <= 4.0**-bits / 8
    assert distance > 4.0**-bits / 65


def test_rounding_of_slopes_is_within_the_bound():
    """Slopes in doubles, compared with those in 40 digits."""
    rng = np.random.default_rng(7)
    design = rng.standard_normal((150, 21))
    design /= np.linalg.norm(design, axis=1, keepdims=True)
    labels, weights = (rng.random(150) < 0.5).astype(float), 3 * rng.standard_normal(21)
    with mpmath.workdps(40):
        exact = [mpmath.mpf(0)] * 21
        for row, label in zip(design.tolist(), labels.tolist(), strict=True):
            t = mpmath.fsum(mpmath.mpf(x) * mpmath.mpf(w) for x, w in zip(row, weights.tolist(), strict=True))
            residual = label - 1 / (1 + mpmath.exp(-t))
            exact = [total + residual * mpmath.mpf(x) for total, x in zip(exact, row, strict=True)]
        found = _slope_of(design, labels)(weights)
        errors = [float(mpmath.mpf(value) - truth) for value, truth in zip(found.tolist(), exact, strict=True)]
    chain = langevin_chain(150, 0.01, 1, 0.01)
    allowed = _rounding(chain, 21, float(np.linalg.norm(weights))) / (math.sqrt(chain.step) / 2)
    assert np.linalg.norm(errors) <= allowed
    np.testing.assert_allclose(_halved(np.arange(11.0)[:, None]), 55.0)


def test_norms_of_iterates_are_within_the_bound():
    design = np.ones((50, 1))
    chain = langevin_chain(50, 0.01, 400, 0.1)
    iterates = chain.sample(np.random.default_rng(8), design, np.ones(50), n_chains=500)
    reached = np.linalg.norm(iterates, axis=2).max()
    assert 0.1 * _largest_norm(chain, 1, 12.0) < reached < 0.5 * _largest_norm(chain, 1, 12.0)


def test_long_records_are_scaled_to_the_bound():
    rows = np.array([[1e300, 1e300], [3.0, 4.0], [0.1, 0.2], [1e-150, 0.0], [0.0, 0.0], [1.7e308, -1.7e308]])
    norms = np.linalg.norm(_clipped(rows, 0.7), axis=1)
    np.testing.assert_allclose(norms, [0.7, 0.7, math.hypot(0.1, 0.2), 1e-150, 0.0, 0.7], rtol=1e-15)
    for bound in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="norm_bound must be"):
            private_logistic(X, Y, 1.0, 1e-6, beta=0.1, norm_bound=bound)


def test_intervals_are_planned_only_for_enough_draws():
    with pytest.raises(ValueError, match=r"need 20 effective draws per direction, got 0\.0391 \(at most 1\.19\)"):
        plan_intervals(published_langevin(2784, 0.001, 1.0, 1e-6), 9)
    with pytest.raises(ValueError, match=r"got 8\.56 \(at most 1\.43e\+03\)"):  # the prior alone is too weak
        plan_intervals(published_langevin(10_000, 0.001, 10.0, 1e-6), 2)
    assert plan_intervals(published_langevin(10_000, 0.01, 10.0, 1e-6), 2) > langevin.LEAST_DRAWS


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 10.0])
def test_published_chains_spend_the_budget(epsilon):
    mu = gaussian_mu(epsilon, 1e-6)
    langevin_plan = published_langevin(2784, 0.001, epsilon, 1e-6)
    penalty_plan = published_penalty(2784, 9, 0.001, epsilon, 1e-6)
    for plan in (langevin_plan, penalty_plan):
        assert plan.guarantee.mu == pytest.approx(mu, rel=1e-9)
        assert plan.guarantee.mu <= mu
    assert penalty_plan.n_steps == langevin_plan.n_steps
    assert langevin_plan.step <= 2 / (langevin_plan.precision + langevin_plan.smoothness) * (1 + 1e-12)
