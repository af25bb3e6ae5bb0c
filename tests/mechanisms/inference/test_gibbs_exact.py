"""Tests of the Gibbs sampler for the exact model: its conditional draws, and enumerated posteriors."""

from functools import partial

import numba
import numpy as np
import pytest
from scipy import special, stats

from mechanisms.core.noise import Noise
from mechanisms.inference.exact_posterior import count_mixture, exact_posterior
from mechanisms.inference.gibbs_exact import draw_split, sample_gibbs_exact
from mechanisms.inference.release_model import ReleaseModel
from tests.mechanisms.inference.chains import assert_cdf
from tests.mechanisms.inference.laplace import sample_gibbs
from tests.mechanisms.marks import in_turn
from tests.mechanisms.refusals import assert_refused
from tests.statistical import assert_frequencies, assert_rejects

LAPLACE, GAUSSIAN = 1, 2


@numba.njit
def splits(rng, total, log_odds, first, second, paired, power, scale, table, size):
    out = np.empty(size)
    for i in range(size):
        out[i] = draw_split(rng, total, log_odds, first, second, paired, power, 1.0 / scale, table)
    return out, np.isnan(out).sum()


def pmf(total, log_odds, first, second, paired, power, scale):
    x = np.arange(total + 1)
    log_pmf = x * log_odds - special.gammaln(x + 1) - special.gammaln(total - x + 1)
    for centre in (first, second)[: 1 + paired]:
        log_pmf = log_pmf - np.abs((x - centre) / scale) ** power / power
    return special.softmax(log_pmf)


SPLITS = {
    "interior": (60, 0.3, 31.4, 0.0, False, LAPLACE, 2.0),
    "kink away from the mode": (400, -1.0, 240.6, 0.0, False, LAPLACE, 30.0),
    "edge": (60, -4.0, 0.0, 0.0, False, LAPLACE, 1.0),
    "below zero": (60, 2.0, -500.0, 0.0, False, LAPLACE, 0.7),
    "rare": (1_000, -9.0, 3.0, 0.0, False, LAPLACE, 5.0),
    "sharp": (300, 0.0, 150.5, 0.0, False, LAPLACE, 0.05),
    "flat": (300, 0.0, 150.0, 0.0, False, LAPLACE, 1e6),
    "two kinks": (80, 0.4, 20.3, 61.0, True, LAPLACE, 3.0),
    "equal kinks": (80, 3.0, 20.0, 20.0, True, LAPLACE, 3.0),
    "conflicting kinks": (80, 0.0, -900.0, 990.0, True, LAPLACE, 0.5),
    "normal": (200, 1.0, 40.2, 0.0, False, GAUSSIAN, 6.0),
    "two normals": (200, -0.5, 150.0, -30.0, True, GAUSSIAN, 4.0),
    "one record": (1, 0.0, 0.5, 0.5, True, LAPLACE, 1.0),
    "no record": (0, 0.0, 3.0, 3.0, True, LAPLACE, 1.0),
    "extreme odds": (50, 400.0, 20.0, 0.0, False, LAPLACE, 1.0),
    "two nearly equal modes": (1_000, -7.90865, 1.096, 0.0, False, LAPLACE, 1.0),
    "flat between sharp kinks": (2_000, 0.0, 990.2, 1_060.4, True, LAPLACE, 1e-3),
    "kinks to one side": (2_000, -1.0, 990.2, 1_100.0, True, LAPLACE, 0.02),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "size"),
    in_turn((name, (8, 2_000)[(place + case) % 2]) for place, name in enumerate(SPLITS) for case in range(2)),
)
def test_splits_follow_their_pmf(name, size):
    case = SPLITS[name]
    table = special.gammaln(np.arange(1.0, size + 1.0))
    draws, failures = splits(np.random.default_rng(1), float(case[0]), *case[1:], table, 40_000)
    assert failures == 0
    expected = pmf(*case)
    observed = np.bincount(draws.astype(int), minlength=expected.size)
    if expected.max() > 1 - 1e-6:
        assert observed[expected.argmax()] == draws.size
        return
    # Stirling's series has an error of 7e-6 at 8!, the smallest factorial that it approximates here.
    assert_frequencies(observed, expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["interior", "equal kinks", "normal", "edge"])
def test_splits_with_another_scale_do_not_follow_the_pmf(name):
    case = SPLITS[name]
    table = special.gammaln(np.arange(1.0, 2_000.0))
    draws, _ = splits(np.random.default_rng(1), float(case[0]), *case[1:], table, 40_000)
    wrong = pmf(*case[:-1], 1.25 * case[-1])
    assert_rejects(assert_frequencies, np.bincount(draws.astype(int), minlength=wrong.size), wrong)


@pytest.mark.slow
def test_no_input_exhausts_the_tries():
    """Rejection sampling of counts accepts a proposal for all random arguments, even between nearly equal modes."""
    rng, table = np.random.default_rng(6), special.gammaln(np.arange(1.0, 1_001.0))
    for _ in range(5_000):
        total, log_odds, scale = np.floor(10.0 ** rng.uniform(0, 5)), rng.normal(0, 6), 10.0 ** rng.uniform(-3, 3)
        mean = total * special.expit(log_odds)
        first, second = rng.normal(mean, 10 * scale, 2)
        paired, power = bool(rng.integers(2)), int(rng.integers(1, 3))
        x = draw_split(rng, total, log_odds, first, second, paired, power, 1.0 / scale, table)
        assert not np.isnan(x)
    prior, model = (0.5, 50.0), ReleaseModel("binomial", 1_000, Noise("laplace", 1.0))
    for seed in range(30):
        sample_gibbs_exact(np.random.default_rng(seed), model, prior, [1.096], n_chains=1, n_draws=3_000)


@pytest.mark.slow
def test_split_of_invalid_odds_fails():
    table = special.gammaln(np.arange(1.0, 50.0))
    _, failures = splits(np.random.default_rng(1), 20.0, np.nan, 3.0, 0.0, False, LAPLACE, 1.0, table, 2)
    assert failures == 2


BINOMIAL = {
    "uniform-zero": ((1.0, 1.0), 100, Noise("laplace", 1.0), 0.0),
    "skewed": ((1.0, 50.0), 100, Noise("laplace", 1 / 3), 1.3),
    "spike": ((0.5, 50.0), 200, Noise("geometric", 1.0), -2.0),
    "gaussian": ((0.5, 0.5), 40, Noise("gaussian", 3.0), 44.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BINOMIAL)
def test_binomial_draws_follow_the_exact_posterior(name):
    prior, n, noise, y = BINOMIAL[name]
    draws = sample_gibbs_exact(np.random.default_rng(2), ReleaseModel("binomial", n, noise), prior, [y], n_draws=60_000)
    exact = count_mixture(prior, noise.log_weight(y - np.arange(n + 1)))
    assert_cdf(draws, exact.cdf)
    other = count_mixture(prior, Noise(noise.name, 1.2 * noise.scale).log_weight(y - np.arange(n + 1)))
    assert_rejects(assert_cdf, draws, other.cdf)


@pytest.mark.slow
def test_normal_approximation_is_detected():
    """The Gibbs sampler with normal approximations fails the comparison of cdfs at y = 0 (negative control)."""
    prior, n, noise, y = BINOMIAL["uniform-zero"]
    draws = sample_gibbs(np.random.default_rng(3), "binomial", prior, n, [y], noise.scale, n_draws=20_000)
    exact = count_mixture(prior, noise.log_weight(y - np.arange(n + 1)))
    assert 0.13 < stats.kstest(draws.ravel(), exact.cdf).statistic < 0.17
    assert_rejects(assert_cdf, draws, exact.cdf)


MULTINOMIAL = {
    "laplace": ((0.5, 1.0, 3.0), 40, Noise("laplace", 4.0), [31.2, -3.0, 7.9]),
    "geometric": ((0.5,) * 5, 30, Noise("geometric", 2.0), [12, 0, -1, 9, 14]),
    "k-norm": ((0.5, 0.5, 0.5), 50, Noise("k-norm", 4.0), [55, -4, -1]),
    "gaussian": ((1.0, 1.0), 25, Noise("gaussian", 3.0), [4.0, 18.0]),
}


@pytest.mark.parametrize("name", MULTINOMIAL)
def test_multinomial_draws_follow_the_exact_posterior(name):
    prior, n, noise, y = MULTINOMIAL[name]
    model = ReleaseModel("multinomial", n, noise)
    draws = sample_gibbs_exact(np.random.default_rng(4), model, prior, y, n_draws=60_000)
    np.testing.assert_allclose(draws.sum(axis=-1), 1, rtol=1e-12)
    exact = exact_posterior(model, prior, y)
    for j in range(len(prior)):
        assert_cdf(draws[..., j], exact.marginals[j].cdf)
    other = exact_posterior(ReleaseModel("multinomial", n, Noise(noise.name, 1.5 * noise.scale)), prior, y)
    assert_rejects(assert_cdf, draws[..., 0], other.marginals[0].cdf)


def test_numbers_of_records_without_log_factorials_are_refused():
    model = ReleaseModel("binomial", 10**15, Noise("laplace", 1e7))
    sample = partial(sample_gibbs_exact, np.random.default_rng(1), model, (1, 1), [5e14])
    assert_refused(sample, "n must be at most 10,000,000,000,000 for draws of counts")
