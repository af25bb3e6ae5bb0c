"""Tests of noisy counts against distribution functions and against their definition."""

import hashlib

import mpmath
import numpy as np
import pytest
from scipy import stats

from mechanisms.core.conjugate import enumerate_candidates
from mechanisms.counts.noise import geometric_counts, histogram_sensitivity, laplace_counts
from tests.mechanisms.marks import in_turn
from tests.mechanisms.refusals import assert_refused

CASES = [
    ((1.0, 1.0), (1, 0), 1.0),
    ((1.0, 1.0), (0, 6), 0.2),
    ((1.0, 3.0), (6, 0), 30.0),
    ((1.0, 1.0, 1.0), (3, 0, 2), 2.0),
    ((0.3, 2.0, 5.0), (0, 0, 4), 0.05),
    ((1.0, 1.0, 1.0, 1.0), (2, 1, 0, 2), 4.0),
]


BUILDERS = [laplace_counts, geometric_counts]


def laplace_at_most(x, scale):
    """Return Pr[round(Z) <= x] for an integer x, accurate in both tails."""
    t = mpmath.mpf(x) + 0.5
    return mpmath.exp(t / scale) / 2 if t < 0 else 1 - mpmath.exp(-t / scale) / 2


def geometric_at_most(x, scale):
    q = mpmath.exp(-1 / mpmath.mpf(scale))
    return q ** (-x) / (1 + q) if x < 0 else 1 - q ** (x + 1) / (1 + q)


AT_MOST = {laplace_counts: laplace_at_most, geometric_counts: geometric_at_most}
QUANTILES = {
    laplace_counts: lambda u, scale: stats.laplace.ppf(u, scale=scale),
    geometric_counts: lambda u, scale: stats.dlaplace.ppf(u, 1 / scale),
}


def plain_log_pmf(builder, counts, scale, dps):
    """Return the log-pmf from differences of the distribution function, with `dps` digits."""
    n, log_pmf, at_most = sum(counts), [], AT_MOST[builder]
    with mpmath.workdps(dps):
        for candidate in enumerate_candidates(n, len(counts)).tolist():
            remaining, probability = n, mpmath.mpf(1)
            for value, true in zip(candidate[:-1], counts, strict=False):
                above = mpmath.mpf(1) if value == remaining else at_most(value - true, scale)
                below = mpmath.mpf(0) if value == 0 else at_most(value - 1 - true, scale)
                probability *= above - below
                remaining -= value
            log_pmf.append(float(mpmath.log(probability)))
    return np.array(log_pmf)


@pytest.mark.parametrize("builder", BUILDERS)
@pytest.mark.parametrize(("prior", "counts", "scale"), CASES)
def test_log_pmf_equals_differences_of_the_distribution_function(builder, prior, counts, scale):
    release = builder(prior, counts, scale)
    np.testing.assert_allclose(release.pmf(), np.exp(plain_log_pmf(builder, counts, scale, 120)), rtol=1e-12)


EXTREMES = [((0, 40), 0.03), ((20, 20), 0.02), ((0, 0, 6), 0.01), ((1, 0, 2), 1e9), ((2, 1, 1), 1e-3)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("builder", "counts", "scale"), in_turn((builder, *case) for builder in BUILDERS for case in EXTREMES)
)
def test_log_pmf_does_not_underflow(builder, counts, scale):
    """The log-pmf is finite and accurate for probabilities down to exp(−4000), for very small and very large scales."""
    log_pmf = builder(np.ones(len(counts)), counts, scale).log_pmf()
    np.testing.assert_allclose(log_pmf, plain_log_pmf(builder, counts, scale, 2000), rtol=1e-12, atol=1e-200)
    assert np.isfinite(log_pmf).all()


@pytest.mark.slow
@pytest.mark.parametrize("builder", BUILDERS)
@pytest.mark.parametrize(("prior", "counts", "scale"), CASES)
def test_draws_are_rounded_and_clipped_in_order(builder, prior, counts, scale):
    """Draws equal SciPy's quantiles of the uniforms, rounded and then clipped category by category."""
    release = builder(prior, counts, scale)
    uniforms = np.random.default_rng(5).random((200, release.n_uniforms))
    for u, released in zip(uniforms, release.from_uniforms(uniforms), strict=True):
        remaining, expected = sum(counts), []
        for category, value in enumerate(u):
            noisy = round(counts[category] + float(QUANTILES[builder](value, scale)))
            expected.append(min(max(noisy, 0), remaining))
            remaining -= expected[-1]
        assert released.tolist() == [*expected, remaining]


def test_laplace_draws_are_reproducible():
    """Equal uniforms give the same counts as in earlier versions, so that stored results remain valid."""
    uniforms = np.random.default_rng(2024).random((100_000, 3))
    draws = laplace_counts([1.0] * 4, [150] * 4, 2.0).from_uniforms(uniforms)
    assert draws[:3].tolist() == [[151, 148, 149, 152], [152, 160, 147, 141], [146, 148, 149, 157]]
    digest = hashlib.sha256(draws.astype("<i8").tobytes()).hexdigest()
    assert digest == "611e5407863f9f7331d5c636859651790d5a4c73f45e2c3218630ed9d4072353"


@pytest.mark.parametrize("builder", BUILDERS)
@pytest.mark.parametrize("scale", [1e-3, 2.0, 1e300])
def test_extreme_uniforms_give_possible_counts(builder, scale):
    release = builder([1, 1, 1], [5, 4, 3], scale)
    low, high = 0.0, 1 - 2**-53
    released = release.from_uniforms(np.array([[low, low], [high, low], [low, high], [high, high], [2**-60, 0.5]]))
    assert np.all(released >= 0)
    assert np.all(released.sum(axis=1) == 12)
    assert released[0].tolist() == [0, 0, 12]  # the noise is −∞ at u = 0
    if scale >= 1:
        assert released[1].tolist() == [12, 0, 0]


def test_histogram_sensitivity_equals_enumeration():
    for k, n in ((2, 5), (3, 4), (4, 3)):
        data_sets = enumerate_candidates(n, k)
        neighbours = np.abs(data_sets[:, None] - data_sets).sum(axis=-1) == 2
        moves = np.abs(data_sets[:, None, :-1] - data_sets[:, :-1]).sum(axis=-1)
        assert moves[neighbours].max() == histogram_sensitivity(k)


@pytest.mark.slow
@pytest.mark.parametrize("builder", BUILDERS)
def test_problem_too_large_to_stream_can_be_sampled(builder):
    release = builder([1] * 5, [10**5] * 5, 2.0)
    assert release.from_uniforms(np.full((1, 4), 0.5)).tolist() == [[10**5] * 5]
    assert_refused(lambda: release.expected_hellinger(), "candidates to stream")
