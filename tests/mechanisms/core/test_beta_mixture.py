"""Tests of mixtures of Beta distributions against sums over all components."""

import numpy as np
import pytest
from scipy import special

from mechanisms.core import beta_mixture
from mechanisms.core.beta_mixture import BinomialMixture, mixture_quantiles

rng = np.random.default_rng(1)


def mixture(prior, n, counts):
    weights = rng.dirichlet(np.full(len(counts), 0.3))
    return BinomialMixture(prior, n, np.array(counts), weights)


CASES = {
    "one": mixture((0.5, 2.0), 9, [4]),
    "two-far-apart": BinomialMixture((1.0, 1.0), 1_000, np.array([3, 990]), np.array([0.999, 0.001])),
    "all": mixture((0.5, 0.5), 30, range(31)),
    "tiny-alpha": mixture((1e-3, 1e-3), 12, range(13)),
    "gaps": mixture((0.1, 3.0), 500, [0, 1, 2, 40, 41, 300]),
    "many": mixture((0.5, 49.5), 1_000_000, range(9_000, 12_000)),
    "several-totals": mixture((2.0, 5.0), np.repeat([10, 11, 12], 8), np.tile(np.arange(1, 9), 3)),
}


@pytest.mark.parametrize("name", CASES)
def test_distribution_function_equals_the_sum_over_components(monkeypatch, name):
    one, theta = CASES[name], np.array([0.0, 1e-9, 0.003, 0.01, 0.0105, 0.3, 0.9, 1.0])
    expected = special.betainc(*one._components(), theta[:, None]) @ one.weights
    np.testing.assert_allclose(one.cdf(theta), expected, rtol=1e-13, atol=1e-15)
    monkeypatch.setattr(beta_mixture, "_MANY", 0)
    np.testing.assert_allclose(one.cdf(theta), expected, rtol=1e-11, atol=1e-15)
    assert one.cdf(0.2) == pytest.approx(special.betainc(*one._components(), 0.2) @ one.weights, rel=1e-11)


def test_quantiles_invert_the_distribution_function():
    p, mixtures = np.array([1e-9, 0.025, 0.5, 0.9, 0.9995]), list(CASES.values())
    found = mixture_quantiles(mixtures, p)
    for one, quantile in zip(mixtures, found.T, strict=True):
        # a tolerance of 1e-12 of θ on each side; at the quantile itself the slope may be infinite
        assert np.all(one.cdf(np.maximum(quantile - 1e-12, 0.0)) <= p * (1 + 1e-10))
        assert np.all(one.cdf(np.minimum(quantile + 1e-12, 1.0)) >= p * (1 - 1e-10))
        np.testing.assert_array_equal(one.quantile(p[1:3]), mixture_quantiles([one], p[1:3])[:, 0])
        assert one.quantile([]).shape == (0,)
