"""Tests of noise distributions: their normalisation, their draws, and the guarantees of releases."""

import itertools
import math
from functools import partial

import numpy as np
import pytest
from scipy import stats

from mechanisms.core.noise import NOISES, Noise, calibrated_noise
from mechanisms.core.privacy import Guarantee, Neighbouring
from mechanisms.inference.release_model import ReleaseModel
from tests.mechanisms.refusals import assert_refused
from tests.statistical import assert_frequencies


@pytest.mark.parametrize("scale", [0.3, 1.7])
@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("name", ["geometric", "k-norm", "discrete-gaussian"])
def test_integer_noise_sums_to_one(name, scale, d):
    z = np.array(list(itertools.product(range(-40, 41), repeat=d)))
    if name == "k-norm":
        z = z[z.sum(axis=1) == 0]
    assert np.exp(Noise(name, scale).log_prob(z)).sum() == pytest.approx(1.0, abs=1e-8)


def test_k_norm_normaliser_equals_series_at_ten_components():
    """The normaliser of K-norm noise in d dimensions equals (1 − q²)ᵈ·Σⱼ C(d + j − 1, j)²·q²ʲ with q = e^(−1/scale)."""
    d, scale = 10, 3.0
    q = math.exp(-1 / scale)
    series = (1 - q * q) ** d * sum(math.comb(d + j - 1, j) ** 2 * q ** (2 * j) for j in range(400))
    assert Noise("k-norm", scale).log_normaliser(d) == pytest.approx(math.log(series), rel=1e-12)


@pytest.mark.parametrize(("name", "reference"), [("laplace", stats.laplace), ("gaussian", stats.norm)])
def test_real_noise_equals_scipy(name, reference):
    noise, z = Noise(name, 2.5), np.linspace(-9, 9, 20).reshape(10, 2)
    np.testing.assert_allclose(noise.log_prob(z), reference.logpdf(z, scale=2.5).sum(axis=1), rtol=1e-13)
    draws = noise.sample(np.random.default_rng(1), (100_000, 2)).ravel()
    assert stats.kstest(draws, reference(scale=2.5).cdf).pvalue > 1e-6
    assert stats.kstest(draws, reference(scale=2.7).cdf).pvalue < 1e-6


@pytest.mark.parametrize("name", ["geometric", "k-norm", "discrete-gaussian"])
def test_integer_draws_follow_their_pmf(name):
    d, reach = (3, 6) if name == "k-norm" else (2, 6)
    draws = Noise(name, 1.5).sample(np.random.default_rng(2), (40_000, d))
    if name == "k-norm":
        assert np.all(draws.sum(axis=1) == 0)
    places = np.array(list(itertools.product(range(-reach, reach + 1), repeat=2)))
    inside = np.all(np.abs(draws[:, :2]) <= reach, axis=1)
    index = ((draws[inside, :2] + reach) @ [2 * reach + 1, 1]).astype(int)
    counts = np.append(np.bincount(index, minlength=len(places)), (~inside).sum())
    vectors = np.column_stack([places, -places.sum(axis=1)]) if name == "k-norm" else places
    pmfs = [np.exp(Noise(name, scale).log_prob(vectors)) for scale in (1.5, 1.6)]
    right, wrong = (np.append(p, 1 - p.sum()) for p in pmfs)
    assert_frequencies(counts, right, wrong=wrong)


@pytest.mark.parametrize("name", ["geometric", "k-norm"])
def test_pure_guarantee_is_attained(name):
    """The largest log-likelihood ratio over noise vectors is ε if a record moves between two categories."""
    noise = calibrated_noise(name, 2.0, 0.7)
    z = np.array([v for v in itertools.product(range(-9, 10), repeat=3) if sum(v) == 0])
    loss = noise.log_prob(z) - noise.log_prob(z - [1, -1, 0])
    assert loss.max() == pytest.approx(0.7, rel=1e-12)
    assert noise.guarantee(2.0).epsilon == pytest.approx(0.7, rel=1e-12)


def test_k_norm_noise_has_no_guarantee_if_records_are_added():
    """Its sum is 0, so that the release reveals the number of records."""
    noise, add = Noise("k-norm", 4.0), Neighbouring.ADD_OR_REMOVE_ONE
    assert np.isneginf(noise.log_prob(np.array([1, -1, 0]) - [1, 0, 0]))  # the loss is infinite
    assert Noise("geometric", 4.0).guarantee(1.0, add) == Guarantee(0.25, relation=add)
    for call in (partial(noise.guarantee, 1.0, add), partial(ReleaseModel("multinomial", 10, noise).guarantee, add)):
        assert_refused(call, "relation must be REPLACE_ONE for k-norm noise")


def test_gaussian_guarantee_equals_the_renyi_divergence():
    noise, order = calibrated_noise("gaussian", 1.5, 0.2), 4.0
    z = np.linspace(-35, 35, 40_001)
    p, q = (stats.norm.pdf(z, shift, noise.scale) for shift in (1.5, 0.0))
    divergence = math.log(np.sum(p**order * q ** (1 - order)) * (z[1] - z[0])) / (order - 1)
    assert noise.guarantee(1.5).at_order(order).epsilon == pytest.approx(divergence, rel=1e-9)
    assert noise.guarantee(1.5).at_order(order).epsilon == pytest.approx(0.2 * order, rel=1e-12)


def test_values_outside_the_support_have_probability_zero():
    assert np.isneginf(Noise("geometric", 1.0).log_prob([[0.5]])).all()
    assert np.isneginf(Noise("k-norm", 1.0).log_prob([[1.0, 0.0, 0.0]])).all()


def test_real_noise_has_no_exact_sampler():
    assert_refused(lambda: Noise("laplace", 1.0).exact_sampler(1), "use one of geometric, k-norm, discrete-gaussian")


@pytest.mark.parametrize("name", NOISES)
def test_log_weight_is_log_prob_up_to_a_constant(name):
    noise, z = Noise(name, 2.0), np.array([[0, 0, 0], [1, -2, 1], [5, 0, -5]])
    difference = noise.log_prob(z) - noise.log_weight(z).sum(axis=1)
    np.testing.assert_allclose(difference, -noise.log_normaliser(3), rtol=1e-13)
