"""Tests of chains with a guarantee for their finite number of steps, against closed forms and quadrature."""

import math

import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from scipy import stats
from scipy.special import expit, log_expit

from mechanisms import GaussianGuarantee, Ledger
from mechanisms.accounting import accounting_event
from mechanisms.glm import langevin
from mechanisms.glm.langevin import LangevinChain, forecast_draws, gaussian_glm, langevin_chain, last_langevin
from mechanisms.glm.penalty import PenaltyChain, likelihood_range
from mechanisms.glm.private_logistic import noise_bits, private_logistic
from mechanisms.renyi.gaussian_dp import gaussian_delta, gaussian_epsilon, gaussian_mu

X, Y = np.array([[0.9], [-0.4], [0.2], [1.0], [-0.7], [0.5]]), np.array([1, 0, 1, 1, 0, 0])


@pytest.mark.parametrize("step", [0.02, 0.5, 1.0])
def test_last_iterate_of_a_quadratic_has_the_stated_guarantee(step):
    """Iterates of a quadratic are normal; the ratio of the shift to the standard deviation is μ."""
    precision, c = 1.6, 0.7
    shift, variance = 0.0, 0.0
    for t in range(1, 101):
        shift = (1 - step * precision / 2) * shift + step * c
        variance = (1 - step * precision / 2) ** 2 * variance + step
        chain = _Quadratic(5, precision, 1.0, step, t, c)
        assert chain.last_guarantee.mu == pytest.approx(shift / math.sqrt(variance), rel=1e-9)
    limit = _Quadratic(5, precision, 1.0, step, 10_000, c).last_guarantee.mu
    assert limit == pytest.approx(math.sqrt(4 * c**2 / precision - step * c**2), rel=1e-9)


class _Quadratic(LangevinChain):
    smoothness = property(lambda chain: chain.precision)


@pytest.mark.parametrize("n_steps", [1, 3, 20])
def test_no_loss_of_a_logistic_chain_exceeds_the_stated_guarantee(n_steps):
    """Densities of the last iterate on neighbouring data sets are propagated by quadrature."""
    chain = langevin_chain(n=6, beta=0.05, n_steps=n_steps, step=0.6)
    grid = np.linspace(-30, 30, 1001)
    worst, records = 0.0, [(x, y) for x in (-1.0, 1.0) for y in (0, 1)]
    for first, second in ((one, other) for one in records for other in records if one != other):
        p, q = (_last_density(chain, np.r_[X[:5, 0], x], np.r_[Y[:5], y], grid) for x, y in (first, second))
        for epsilon in (0.0, 0.1, 0.5, 1.0, 2.0):
            loss = np.maximum(p - math.exp(epsilon) * q, 0).sum() * (grid[1] - grid[0])
            stated = gaussian_delta(chain.last_guarantee.mu, epsilon)
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
        assert accountant.get_delta(epsilon) == pytest.approx(stated, rel=1e-3, abs=1e-9)
        assert Ledger().spend(single, times=40).delta(epsilon) >= stated * (1 - 1e-6)
    assert str(Ledger().spend(GaussianGuarantee(0.316)).guarantee(delta=1e-6)) == "(1.3665, 1e-06)-DP"
    penalised = PenaltyChain(precision=1.0, scale=0.1, noise=50.0, n_steps=40)
    assert penalised.guarantee.mu == pytest.approx(math.sqrt(40) / 50)


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.01, 1e-12), (10.0, 1e-3), (1e-3, 1e-300), (100.0, 0.5)])
def test_conversions_are_on_the_safe_side(epsilon, delta):
    mpmath = pytest.importorskip("mpmath")
    mu = gaussian_mu(epsilon, delta)
    with mpmath.workdps(340):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        exact = mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)
        assert 1 - 1e-6 <= exact / mpmath.mpf(delta) <= 1
    assert gaussian_epsilon(mu, delta) == pytest.approx(epsilon, rel=1e-8)
    assert gaussian_epsilon(mu, delta) <= epsilon


@pytest.mark.parametrize("fraction", [0.05, 0.3, 0.8])
def test_effective_draws_follow_the_budget_law(fraction):
    """With records at 0 the potential is quadratic; the variance of the mean of a chain gives its effective draws."""
    n, beta, n_steps = 4, 0.5, 4000
    precision = n * beta
    step = fraction * 4 / (2 * precision + n / 4)
    chain = langevin_chain(n, beta, n_steps, step)
    iterates = chain.sample(np.random.default_rng(2), np.zeros((n, 1)), np.zeros(n), n_chains=3000)[:, 1000:, 0]
    measured = iterates.var() / iterates.mean(axis=1).var()
    mu = math.sqrt(step * iterates.shape[1])
    assert measured == pytest.approx(forecast_draws(precision, mu, step), rel=0.13)  # 5 standard errors
    assert measured != pytest.approx(forecast_draws(precision, 1.2 * mu, step), rel=0.13)


def test_forecasts_at_the_published_sizes():
    """Effective draws at ε = 1, δ = 1e-6, summed over the columns of bounded records, as small steps allow."""
    mu = gaussian_mu(1.0, 1e-6)
    for n, expected in ((2784, 10), (32561, 114), (7988, 28)):
        assert forecast_draws(n / 4, mu) == pytest.approx(expected, rel=0.05)
    assert forecast_draws(2784 / 4, mu) < langevin.LEAST_DRAWS


def test_one_draw_is_calibrated_by_its_lipschitz_constant():
    found = gaussian_glm(n=2784, beta=0.001, epsilon=1.0, delta=1e-6)
    assert found.guarantee.mu == pytest.approx(2 * found.power / math.sqrt(found.precision), rel=1e-12)
    whole = gaussian_glm(n=10**6, beta=1.0, epsilon=1.0, delta=1e-6)
    assert (whole.power, whole.guarantee.mu) == (1.0, 2e-3)


def test_finite_chain_has_at_least_the_power_of_the_exact_draw():
    """The limit of long chains is slightly better than the bound of an exact draw."""
    for epsilon in (0.1, 1.0, 10.0):
        chain = last_langevin(n=2784, beta=0.001, epsilon=epsilon, delta=1e-6)
        assert gaussian_epsilon(chain.last_guarantee.mu, 1e-6) <= epsilon * (1 + 1e-12)
        assert chain.power >= gaussian_glm(2784, 0.001, epsilon, 1e-6).power
        assert chain.contraction**chain.n_steps <= 0.01


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


@pytest.mark.slow
def test_penalty_leaves_the_posterior_invariant():
    """After steps from exact draws the distribution is the same; without the penalty it is not."""
    rng, n = np.random.default_rng(4), 4000
    chain = PenaltyChain(precision=0.3, scale=2.0, noise=1.5, n_steps=4)
    signed, grid = (2 * Y - 1)[:, None] * X, np.linspace(-15, 15, 20001)
    density = np.exp(log_expit(grid[:, None] * signed[:, 0]).sum(axis=1) - 0.15 * grid**2)
    cdf = np.cumsum(density) / density.sum()

    def moved(noise):
        ends = []
        for start in np.interp(rng.random(n), cdf, grid):
            state = np.array([start])
            here = float(log_expit(signed @ state).sum())
            for _ in range(chain.n_steps):
                state, here = chain._step(noise, signed, state, here)
            ends.append(state[0])
        return stats.kstest(ends, lambda w: np.interp(w, grid, cdf)).pvalue

    assert moved(rng) > 1e-4
    assert moved(_Biased(rng)) < 1e-4


class _Biased:
    """Generator whose scalar normals are too large by .75, so that half of the penalty is lost at a noise of 1.5."""

    def __init__(self, rng):
        self.rng, self.standard_exponential = rng, rng.standard_exponential

    def standard_normal(self, size=None):
        return self.rng.standard_normal(size) + (0.75 if size is None else 0.0)


def test_bad_input_is_refused():
    for refused, match in (
        (lambda: langevin_chain(100, 0.1, 10, 1.0), r"step must be at most 4/\(kappa \+ M\) = 0.0888889, got 1"),
        (lambda: langevin_chain(100, 0.1, 0, 0.01), "n_steps must be an integer >= 1"),
        (lambda: langevin_chain(100, 0.1, 10, 0.01, power=2.0), r"power must be in \(0, 1\]"),
        (lambda: last_langevin(100, 0.0, 1.0, 1e-6), "beta must be"),
        (lambda: last_langevin(100, 0.1, 1.0, 0.0), "delta must be"),
        (lambda: PenaltyChain(1.0, 0.1, -1.0, 10), "noise must be"),
        (lambda: forecast_draws([100.0], 0.1, step=1.0), "step must be below 4/curvature"),
        (lambda: langevin_chain(9, 1.0, 2, 0.01).sample(np.random.default_rng(), X, Y), "records must be 9"),
    ):
        with pytest.raises(ValueError, match=match):
            refused()


def test_release_has_exact_noise_and_a_guarantee_and_a_rehearsal_has_none():
    rng = np.random.default_rng(5)
    design = rng.standard_normal((400, 2))  # most rows are longer than the bound
    labels = rng.random(400) < expit(3 * design[:, 0])
    arguments = {"epsilon": 3.0, "delta": 1e-6, "beta": 0.01}
    released = [private_logistic(design, labels, **arguments) for _ in range(20)]
    assert str(released[0].guarantee) == "(3, 1e-06)-DP"
    weights = np.array([one.weights for one in released])
    unit = math.sqrt(released[0].chain.step) * 2.0 ** -noise_bits(released[0].chain.n_steps, 2, 3.0, 1e-6)
    np.testing.assert_array_equal(weights, np.rint(weights / unit) * unit)
    rehearsed = [private_logistic(design, labels, **arguments, rehearsal_seed=seed) for seed in range(200)]
    assert rehearsed[0].guarantee is None
    drawn = np.array([one.weights for one in rehearsed])
    error = drawn.std(axis=0) * math.sqrt(1 / 20 + 1 / 200)
    assert np.all(np.abs(weights.mean(axis=0) - drawn.mean(axis=0)) < 5 * error)
    np.testing.assert_array_equal(
        private_logistic(design, labels, **arguments, rehearsal_seed=3).weights, rehearsed[3].weights
    )


def test_discretisation_is_within_the_reserved_part_of_delta():
    for n_steps, d, epsilon, delta in ((500, 10, 1.0, 1e-6), (3000, 784, 3.0, 1e-5), (1, 1, 0.1, 0.1)):
        added = (1 + math.exp(epsilon)) * n_steps * math.sqrt(d) * 2.0 ** -noise_bits(n_steps, d, epsilon, delta)
        assert added <= 1e-3 * delta
    with pytest.raises(ValueError, match="delta must be at least 2e-09 for 500 steps in 10 dimensions, got 1e-12"):
        noise_bits(500, 10, 1.0, 1e-12)


@pytest.mark.parametrize("bits", [2, 4])
def test_one_discrete_step_is_within_the_stated_distance(bits):
    """Total variation between a rounded step with discrete noise, and a normal step from an unrounded state."""
    unit, edges = 2.0**-bits, np.arange(-12 * 2**bits, 12 * 2**bits + 1)
    pmf = np.exp(-0.5 * (edges * unit) ** 2)
    pmf /= pmf.sum()
    for mean, moved in ((0.3 * unit, 0.5 * unit), (0.49 * unit, -0.5 * unit), (-0.2 * unit, 0.0)):
        normal = np.diff(stats.norm.cdf((np.append(edges, edges[-1] + 1) - 0.5) * unit, mean + moved))
        discrete = np.roll(pmf, round(mean / unit))
        assert 0.5 * np.abs(normal - discrete).sum() <= unit / math.sqrt(2 * math.pi) * (1 + 1e-9) + 1e-12
