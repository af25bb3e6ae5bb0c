"""Tests of probabilities from partitions: the published formulas, the corrections, and the noise."""

import math
from functools import partial

import mpmath
import numpy as np
import pytest
from scipy import stats

from mechanisms.regression.partition_probability import PROBABILITY_METHODS, partition_probability, score_slope
from tests.mechanisms.refusals import assert_refused
from tests.statistical import assert_mean_within

PRIVATE = [name for name, method in PROBABILITY_METHODS.items() if method.is_private]


def test_releases_equal_printed_formulas():
    """Releases without noise equal the values of equations 3.10 and 3.16 of P2."""
    p = np.random.default_rng(1).random((3, 40, 2))
    normality = partition_probability("normality-noiseless", 40, 1.0).release(None, p)
    np.testing.assert_allclose(normality, stats.norm.cdf(math.sqrt(40) * stats.norm.ppf(p.mean(axis=1))), rtol=1e-12)
    fisher = partition_probability("fisher-noiseless", 40, 1.0, least_probability=0.2).release(None, p)
    clipped = np.maximum(p, 0.2)
    np.testing.assert_allclose(fisher, stats.chi2.sf(-2 * np.log(clipped).sum(axis=1), 80), rtol=1e-12)
    corrected = partition_probability("normality-corrected-noiseless", 40, 1.0).release(None, p)
    np.testing.assert_allclose(stats.norm.ppf(corrected), math.sqrt(2) * stats.norm.ppf(normality), rtol=1e-9)


def test_scales_of_the_noise():
    """The noise scale is the sensitivity over ε; for `fisher-published` it is M times smaller, as printed."""
    for name, scale in (
        ("normality", 1 / 250),
        ("fisher", 8 * math.log(1000)),
        ("fisher-published", 0.008 * math.log(1000)),
    ):
        method = partition_probability(name, 1000, 0.25)
        assert method.noise_scale == pytest.approx(scale, rel=1e-14)
        assert method.loss == pytest.approx(250.0 if name == "fisher-published" else 0.25, rel=1e-12)


@pytest.mark.parametrize("name", PROBABILITY_METHODS)
def test_guarantees(name):
    method = partition_probability(name, 10, 0.5)
    guarantee = method.guarantee(3)
    if name in PRIVATE:
        assert guarantee.is_pure
        assert guarantee.epsilon == 1.5
        assert method.loss == pytest.approx(0.5, rel=1e-14)
    else:
        assert guarantee is None
        assert method.loss >= 5.0 - 1e-9


@pytest.mark.parametrize("name", [*PRIVATE, "fisher-published"])
def test_noise_is_laplace_and_independent_between_cutoffs(name, monkeypatch):
    method = partition_probability(name, 25, 0.7)
    p = np.random.default_rng(0).random((25, 20_000, 2)).swapaxes(1, 2).reshape(25, -1)[:, :2]
    p = np.broadcast_to(p, (20_000, 25, 2))
    seen = []
    monkeypatch.setattr(type(method), "postprocess", lambda self, noisy: seen.append(noisy) or noisy)
    method.release(np.random.default_rng(5), p)
    noise = (seen[0] - method.aggregate(p)) / method.noise_scale
    for column in noise.T:
        assert stats.kstest(column, stats.laplace.cdf).pvalue > 1e-6
        assert stats.kstest(1.1 * column, stats.laplace.cdf).pvalue < 1e-6
    assert_mean_within(noise[:, 0] * noise[:, 1], 0.0)


def test_score_slope_equals_mpmath():
    for least in (0.0, 0.001, 0.2):
        with mpmath.workdps(25):
            start = mpmath.mpf(-60) if least == 0 else mpmath.mpf(float(stats.norm.ppf(least)))
            nodes = [x for x in (-60, -20, -8, -4, -2, 0, 2, 4, 8, 20) if x > start]
            expected = mpmath.quad(lambda u: mpmath.npdf(u) ** 2 / mpmath.ncdf(u), [start, *nodes])
        assert score_slope(least) == pytest.approx(float(expected), rel=1e-9)


def test_mean_of_clipped_terms_and_its_slope():
    """By quadrature, E[−2 ln max(Φ(u + t), p*)] is 2(1 − p*) at t = 0, and has the slope −2·`score_slope`."""
    least = 0.05
    u = np.linspace(-12.0, 12.0, 240_001)

    def mean(t):
        return -2e-4 * np.log(np.maximum(stats.norm.cdf(u + t), least)) @ stats.norm.pdf(u)

    assert mean(0.0) == pytest.approx(2 * (1 - least), rel=1e-8)
    assert (mean(0.01) - mean(-0.01)) / 0.02 == pytest.approx(-2 * score_slope(least), rel=1e-4)


def scores(name, z, rng, M=900):
    """Return the normal scores released by a noiseless method if the normal score given all rows is z.

    The standard deviation of the partition means equals that of the posteriors given each partition.
    """
    u = rng.standard_normal((z.size, M))
    u += z[:, None] / math.sqrt(M) - u.mean(axis=1, keepdims=True)
    return stats.norm.ppf(partition_probability(name, M, 1.0).release(None, stats.norm.cdf(u)[..., None])[:, 0])


@pytest.mark.parametrize(
    ("name", "slope", "std"),
    [
        ("normality", math.sqrt(0.5), math.sqrt((math.pi / 3 - 1) / 2)),
        ("normality-corrected", 1.0, math.sqrt(math.pi / 3 - 1)),
        ("fisher", 0.8996, math.sqrt(1 - 0.8996**2)),
        ("fisher-corrected", 1.0, math.sqrt(1 / 0.8996**2 - 1)),
    ],
)
def test_scores_have_stated_slopes_and_standard_deviations(name, slope, std):
    rng = np.random.default_rng(7)
    found = np.concatenate([scores(f"{name}-noiseless", np.repeat([-1.5, 1.5], 400), rng) for _ in range(3)])
    signed = found * np.tile(np.repeat([-1.0, 1.0], 400), 3)
    assert_mean_within(signed, 1.5 * slope, wrong=1.5 * (0.8 if slope == 1.0 else 1.0))
    assert_mean_within((signed - 1.5 * slope) ** 2, std**2)


@pytest.mark.parametrize("name", PROBABILITY_METHODS)
def test_extreme_inputs_give_probabilities(name):
    """For p = 0, p = 1 and tiny budgets, results are probabilities, without warnings."""
    for p in (0.0, 0.5, 1.0):
        for epsilon in (1e-6, 1e3):
            method = partition_probability(name, 4, epsilon)
            found = method.release(np.random.default_rng(1), np.full((4, 500), p))
            assert ((found >= 0) & (found <= 1)).all()
    assert partition_probability(name, 4, 1.0).postprocess([-math.inf, math.inf]).tolist() in ([0.0, 1.0], [1.0, 0.0])


def test_invalid_input_raises():
    fisher = partition_probability("fisher", 10, 1.0)
    assert_refused(
        lambda: fisher.release(None, np.full((10, 1), 0.5)), "rng must be a numpy Generator for the noise of"
    )
    for least in (0.0, 1.0):
        refuse = partial(partition_probability, "fisher", 10, 1.0, least_probability=least)
        assert_refused(refuse, "least_probability must be in")
    for p, message in (
        (np.full((9, 1), 0.5), "must have shape"),
        (np.full(10, 0.5), "must have shape"),
        (np.full((10, 1), 1.5), r"in \[0, 1\], got another in partition 0"),
        (np.full((10, 1), np.nan), "got another in partition 0"),
    ):
        for name in ("fisher", "normality"):
            assert_refused(partial(partition_probability(name, 10, 1.0).aggregate, p), message)
