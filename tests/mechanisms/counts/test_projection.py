"""Tests of the projection of noisy vectors against rational arithmetic, and of independent noise with projection."""

import functools
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from mechanisms.core.conjugate import enumerate_candidates
from mechanisms.core.hellinger import hellinger
from mechanisms.core.noise import Noise
from mechanisms.counts.noise import geometric_counts
from mechanisms.counts.projection import log_projected_pmf, project
from tests.mechanisms.counts.constructors import projected_counts
from tests.mechanisms.counts.test_k_norm import project_exactly, projected_pmf
from tests.mechanisms.refusals import assert_refused
from tests.statistical import assert_frequencies


@given(vector=st.lists(st.integers(-9, 15), min_size=2, max_size=5), n=st.integers(1, 12))
@settings(deadline=None, derandomize=True, max_examples=80)
def test_projection_equals_rational_arithmetic(vector, n):
    clipped = np.clip(vector, 0, n)
    expected = project_exactly(tuple(clipped.tolist()), n)
    candidates = enumerate_candidates(n, len(vector))
    shares = np.exp(log_projected_pmf(n, clipped[None], np.zeros(1)))
    np.testing.assert_allclose(shares, [expected.get(tuple(c), 0.0) for c in candidates.tolist()], atol=1e-15)
    ties = np.random.default_rng(1).random((40, len(vector)))
    drawn = project(np.tile(vector, (40, 1)), n, ties)
    assert set(map(tuple, drawn.tolist())) <= set(expected)


def test_ties_are_broken_uniformly():
    """If one record must be removed from two of three tied categories, the three choices are equally likely."""
    ties = np.random.default_rng(2).random((60_000, 4))
    counts = project(np.tile([4, 4, 4, -2], (60_000, 1)), 10, ties)
    frequencies = [(counts[:, category] == 4).sum() for category in range(3)]
    assert_frequencies(frequencies, np.full(3, 1 / 3), wrong=np.array([1.05, 1, 0.95]) / 3)


@pytest.mark.parametrize("noise", ["laplace", "geometric"])
@pytest.mark.parametrize(("counts", "epsilon"), [((3, 2), 0.6), ((2, 0, 1), 1.0), ((1, 2, 0, 1), 2.0)])
def test_pmf_equals_a_sum_over_noise(noise, counts, epsilon):
    """The pmf equals a sum over noise that is clipped per category and projected in rational arithmetic."""
    n, k = sum(counts), len(counts)
    z = np.arange(-200, 201)
    if noise == "geometric":
        pmf = np.exp(-epsilon / 2 * np.abs(z))
    else:
        pmf = stats.laplace.cdf(z + 0.5, scale=2 / epsilon) - stats.laplace.cdf(z - 0.5, scale=2 / epsilon)
    categories = [np.bincount(np.clip(c + z, 0, n), pmf / pmf.sum(), minlength=n + 1) for c in counts]
    probabilities = functools.reduce(np.multiply.outer, categories).ravel()
    expected = projected_pmf(np.array(list(np.ndindex(*(n + 1,) * k))), probabilities, n)
    release = projected_counts(np.ones(k), counts, 2 / epsilon, noise)
    np.testing.assert_allclose(release.pmf(), expected, rtol=1e-9)


@pytest.mark.parametrize("noise", ["laplace", "geometric"])
def test_truncated_mean_equals_the_mean_of_the_pmf(noise):
    release = projected_counts([1, 1, 1], [14, 13, 13], 1.0, noise)
    distances = hellinger(1.0 + release.counts, 1.0 + enumerate_candidates(40, 3))
    assert release.expected_hellinger() == pytest.approx(float(release.pmf() @ distances), rel=1e-9)


def test_mean_at_balanced_data_depends_on_the_rule_for_ties():
    """Mean distances by enumeration of the noise at ε = 1, a unit prior and n = 100 depend on the rule for ties.

    Of the three entries, at most two lose one record more than the others. If these are chosen uniformly, the mean is
    .1978 in every order of the categories; if by position, the mean is between .19781 and .19785. The largest
    entries, as a choice, give .170 at these data. Before rounding, the mean is .1952. Clipping would change nothing.

    A simulation with largest remainders in floating point has .1944 ± .0003 at (34, 33, 33). The remainders are equal,
    so that rounding errors order them: enumeration gives .1940, and .1998 if the categories are permuted.
    """
    counts, n, scale = np.array([34, 33, 33]), 100, 2.0
    z = np.arange(-48, 49)
    log_pmf = np.log(np.tanh(0.5 / scale)) - np.abs(z) / scale
    noise = np.stack(np.meshgrid(z, z, z), axis=-1).reshape(-1, 3)
    pmf = np.exp(log_pmf[noise + 48].sum(axis=1))
    noise, pmf = noise[pmf > 1e-11], pmf[pmf > 1e-11]

    def mean(order):
        """Return the mean distance if ties favour the categories or vectors that `order` ranks first."""
        excess = noise.sum(axis=1)
        share, more = excess // 3, excess % 3
        rank = np.argsort(np.argsort(order(noise), axis=1, kind="stable"), axis=1)
        released = counts + noise - share[:, None] - (rank >= 3 - more[:, None])
        assert np.all(released.sum(axis=1) == n)
        inside = (released >= 0).all(axis=1)
        assert pmf[~inside].sum() < 1e-5
        return float(pmf[inside] @ hellinger(1.0 + counts, 1.0 + released[inside]) / pmf[inside].sum())

    permuted = [mean(lambda v, keep=keep: np.tile(keep, (len(v), 1))) for keep in permutations(range(3))]
    uniform = projected_counts(np.ones(3), counts, scale, "geometric").expected_hellinger()
    assert uniform == pytest.approx(np.mean(permuted), abs=1e-5)
    assert uniform == pytest.approx(0.19783, abs=5e-6)
    assert 0.1978 < min(permuted) < uniform < max(permuted) < 0.1979
    assert mean(lambda v: counts + v) == pytest.approx(0.1703, abs=1e-4)


@pytest.mark.parametrize("noise", ["laplace", "geometric"])
def test_permuted_data_have_equal_means(noise):
    """Mean distances of permuted counts are equal, unlike those of `geometric`, which clips in a fixed order."""
    orders = ((98, 1, 1), (1, 98, 1), (1, 1, 98))
    means = [projected_counts(np.ones(3), c, 2.0, noise).expected_hellinger() for c in orders]
    assert means == pytest.approx([means[0]] * 3, rel=1e-12)
    in_order = [geometric_counts(np.ones(3), c, 2.0).expected_hellinger() for c in orders]
    assert in_order == pytest.approx([0.442, 0.475, 0.464], abs=5e-4)


def test_invalid_input_raises():
    assert_refused(lambda: Noise("gaussian", 1.0).rounded, "noise must be laplace or geometric to be")
    assert_refused(projected_counts(np.ones(6), np.full(6, 50), 2.0, "laplace").expected_hellinger, "noisy vectors")
    assert_refused(projected_counts(np.ones(3), [300, 0, 0], 2.0, "geometric").log_pmf, "noisy vectors")
