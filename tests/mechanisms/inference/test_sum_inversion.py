"""Tests of likelihoods of noisy sums against enumeration and quadrature over the records."""

import itertools

import numpy as np
import pytest
from scipy import special, stats

from mechanisms.core.noise import Noise
from mechanisms.inference.release_model import ReleaseModel
from mechanisms.inference.sum_inversion import _w, log_likelihood


def enumerate_log_likelihood(model, theta, y):
    """Return ln p(y | θ) for Poisson records, from the pmf of the sum by direct convolutions of positive terms."""
    a, b = map(int, model.bounds)
    x = np.arange(a, b + 1)
    pmf, ends = stats.poisson.pmf(x, theta), (stats.poisson.cdf(a - 1, theta), stats.poisson.sf(b, theta))
    first = a if model.outside == "clamp" else 0
    one = np.concatenate([np.zeros(a - first), pmf])
    one[0] += ends[0]
    one[-1 if model.outside == "clamp" else 0] += ends[1]
    total = np.ones(1)
    for _ in range(model.n):
        total = np.convolve(total, one)
    s = model.n * first + np.arange(total.size)
    log_weight = model.noise.log_weight(y - s)
    if model.noise.name == "gaussian" and model.noise.scale < 1.0:  # relative to the density at the nearest integer
        log_weight -= model.noise.log_weight(y - np.rint(y))
    return special.logsumexp(log_weight, b=total)


@pytest.mark.parametrize("outside", ["drop", "clamp"])
@pytest.mark.parametrize("name", ["laplace", "geometric", "gaussian"])
def test_poisson_likelihood_equals_enumeration(name, outside):
    rng = np.random.default_rng(1)
    for _ in range(40):
        low, n = int(rng.integers(0, 6)), int(rng.integers(1, 50))
        scale, theta = 10 ** rng.uniform(-1.5, 2), 10 ** rng.uniform(-2.5, 1.5)
        model = ReleaseModel("poisson", n, Noise(name, scale), (low, low + int(rng.integers(1, 8))), outside)
        y = model.draw_sums(rng, [[theta]])[1][0, 0] + rng.choice([1, 3]) * model.noise.sample(rng, (1,))[0]
        expected = enumerate_log_likelihood(model, theta, y)
        if name == "gaussian" and scale >= 1.0:
            expected -= np.log(scale * np.sqrt(2 * np.pi))
        found = log_likelihood(model, np.array([theta]), y)[0][0]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9, err_msg=str((model, theta, y)))
        assert abs(enumerate_log_likelihood(model, 1.05 * theta, y) - expected) > 1e-9 or scale > 10 or theta < 0.1


@pytest.mark.parametrize(("y", "scale"), [(20.4, 0.01), (20.5, 1e-3), (20.4, 1e-6), (-3.3, 0.02)])
def test_narrow_noise_between_integers_equals_enumeration(y, scale):
    model = ReleaseModel("poisson", 40, Noise("gaussian", scale), (0, 3), "drop")
    theta = np.array([0.4, 0.8])
    expected = [enumerate_log_likelihood(model, one, y) for one in theta]
    np.testing.assert_allclose(np.diff(log_likelihood(model, theta, y)[0]), np.diff(expected), rtol=1e-9)


@pytest.mark.parametrize("outside", ["drop", "clamp"])
@pytest.mark.parametrize(("name", "scale"), [("laplace", 0.02), ("gaussian", 0.09)])
def test_precise_noise_next_to_the_upper_integer_equals_enumeration(name, scale, outside):
    """If the rates are large, the smallest sum is far more probable than those next to y, and must not be added."""
    theta = np.array([31.0, 65.0, 80.0, 100.0])
    for n in (1, 2, 3, 6):
        model = ReleaseModel("poisson", n, Noise(name, scale), (0, 40), outside)
        for y in (18.3, 29.9, 30.5, 30.9, 31.0):
            expected = [enumerate_log_likelihood(model, rate, y) for rate in theta]
            found, error, _ = log_likelihood(model, theta, y)
            assert error[0] < 1e-6
            is_precise = error < 1e-6  # otherwise the rounding error of large terms is stated
            np.testing.assert_allclose(found[is_precise], np.array(expected)[is_precise], rtol=0, atol=1e-6)


def quadrature_log_likelihood(model, theta, y):
    """Return ln p(y | θ) for one or two real records, by Gauss–Legendre rules between the kinks of the integrand."""
    (a, b), n, scale = model.bounds, model.n, model.noise.scale
    record = stats.expon(scale=1 / theta) if model.family == "exponential" else stats.norm(theta)
    ends = (a, b) if model.outside == "clamp" else (0.0, 0.0)
    nodes, weights = np.polynomial.legendre.leggauss(30)
    rate = max(theta if model.family == "exponential" else 1.0, 1.0 / scale)

    def density(n, y):
        if n == 0:
            return np.exp(model.noise.log_weight(y))
        kinks = [y - sum(rest) for rest in itertools.product((a, b, *ends), repeat=n - 1)]
        kinks = np.unique(np.clip([a, b, *kinks], a, b))
        edges = np.unique(np.concatenate([
            np.linspace(low, high, 1 + max(1, int(np.ceil((high - low) * rate / 3))))
            for low, high in itertools.pairwise(kinks)
        ]))  # fmt: skip
        half = np.diff(edges)[:, None] / 2
        x, w = (edges[:-1, None] + half * (1 + nodes)).ravel(), (half * weights).ravel()
        inside = (w * record.pdf(x)) @ np.array([density(n - 1, y - one) for one in x])
        return inside + record.cdf(a) * density(n - 1, y - ends[0]) + record.sf(b) * density(n - 1, y - ends[1])

    return np.log(density(n, y))


@pytest.mark.parametrize("outside", ["drop", "clamp"])
@pytest.mark.parametrize("name", ["laplace", "gaussian"])
@pytest.mark.parametrize("family", ["exponential", "normal"])
def test_likelihood_of_real_records_equals_quadrature(family, name, outside):
    rng = np.random.default_rng(2)
    for k in range(8):
        width = 10 ** rng.uniform(-0.5, 0.7)
        low = rng.choice([0.0, rng.uniform(0, 2)]) if family == "exponential" else 2 * rng.normal()
        noise = Noise(name, width * 10 ** rng.uniform(-0.7, 1.5))
        model = ReleaseModel(family, 1 + k % 2, noise, (low, low + width), outside)
        theta = 10 ** rng.uniform(-2, 1) if family == "exponential" else low + width / 2 + 2 * rng.normal()
        y = model.draw_sums(rng, [[theta]])[1][0, 0] + rng.choice([0.3, 1, 3]) * noise.sample(rng, (1,))[0]
        expected = quadrature_log_likelihood(model, theta, y)
        if name == "gaussian":
            expected -= np.log(noise.scale * np.sqrt(2 * np.pi))
        found, error, _ = log_likelihood(model, np.array([theta]), y)
        np.testing.assert_allclose(found[0], expected, rtol=0, atol=1e-8, err_msg=str((model, theta, y)))
        assert error[0] < 1e-5


@pytest.mark.parametrize(
    ("family", "bounds", "scale", "theta", "y"),
    [("exponential", (1.0, 1.05222), 0.0055786, 0.1716, 0.412698), ("normal", (1.5, 1.55), 0.007, 0.03, 0.8)],
)
def test_one_record_with_precise_noise_far_from_its_values_equals_quadrature(family, bounds, scale, theta, y):
    model = ReleaseModel(family, 1, Noise("laplace", scale), bounds, "drop")
    found, error, _ = log_likelihood(model, np.array([theta]), y)
    np.testing.assert_allclose(found[0], quadrature_log_likelihood(model, theta, y), rtol=1e-12)
    assert error[0] < 1e-12


@pytest.mark.parametrize("outside", ["drop", "clamp"])
@pytest.mark.parametrize("family", ["exponential", "normal"])
def test_many_real_records_equal_tilted_lattices(family, outside):
    """Lattices with two steps, extrapolated: dividing mass between neighbours has an error ∝ step²."""
    n, (a, b), noise, theta = 40, (1.0, 3.0), Noise("laplace", 1.5), 0.7

    def approximate(cells, y):
        record = stats.expon(scale=1 / theta) if family == "exponential" else stats.norm(theta)
        edges = np.linspace(a, b, cells + 1)
        nodes, weights = np.polynomial.legendre.leggauss(8)
        share = (1 + nodes) / 2
        density = record.pdf(edges[:-1, None] + (b - a) / cells * share)
        mass = np.stack([density @ (weights * (1 - share)), density @ (weights * share)]) * (b - a) / cells / 2
        first = 1.0 if outside == "clamp" else 0.0
        at_a = round((a - first) * cells / (b - a))
        one = np.zeros(at_a + cells + 1)
        one[at_a : at_a + cells] += mass[0]
        one[at_a + 1 :] += mass[1]
        one[0] += record.cdf(a)
        one[-1 if outside == "clamp" else 0] += record.sf(b)
        s = n * first + (b - a) / cells * np.arange(n * (one.size - 1) + 1)
        pmf = np.fft.irfft(np.fft.rfft(one, 2 * s.size) ** n, 2 * s.size)[: s.size]
        return np.log(pmf @ np.exp(noise.log_weight(y - s)))

    model = ReleaseModel(family, n, noise, (a, b), outside)
    for y in (20.0, 35.3, 60.0):
        coarse, fine = approximate(200, y), approximate(400, y)
        found = log_likelihood(model, np.array([theta]), y)[0][0]
        np.testing.assert_allclose(found, (4 * fine - coarse) / 3, rtol=0, atol=3e-6)


def test_error_function_equals_scipy():
    z = np.array([complex(x, y) for x in np.linspace(-30, 30, 41) for y in (0.0, 1e-3, 0.3, 2.0, 40.0)])
    np.testing.assert_allclose([_w(one) for one in z], special.wofz(z), rtol=1e-12)
