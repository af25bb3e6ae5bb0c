"""Tests of the K-norm mechanism against enumerated lattices, and of its sampler."""

import itertools
import math
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from mechanisms.core.conjugate import balanced_counts, enumerate_candidates
from mechanisms.core.hellinger import hellinger
from mechanisms.core.noise import Noise
from mechanisms.counts.k_norm import count_classes, count_vectors, k_norm_log_normaliser, lattice_classes
from mechanisms.counts.projection import project
from tests.mechanisms.counts.constructors import draw_vectors, k_norm_counts, vectors_from
from tests.mechanisms.counts.enumeration import count_rows
from tests.mechanisms.refusals import assert_refused
from tests.statistical import assert_frequencies, assert_mean_within, assert_rejects


def vectors_within(k, distance):
    """Return all integer vectors v with Σv = 0 and distance d(v) = ½Σ|vⱼ| of at most `distance`."""
    side = range(-distance, distance + 1)
    free = np.array(list(itertools.product(side, repeat=k - 1)))
    v = np.column_stack([free, -free.sum(axis=1)])
    return v[np.maximum(v, 0).sum(axis=1) <= distance]


def distance_of(v):
    return np.maximum(v, 0).sum(axis=-1)


@cache
def project_exactly(s, n):
    """Return {counts: probability} of the projection of a vector, with random ties, in rational arithmetic."""
    tau = max(
        Fraction(sum(sorted(s)[-size:]) - n, size)
        for size in range(1, len(s) + 1)
        if sorted(s)[-size] > Fraction(sum(sorted(s)[-size:]) - n, size)
    )
    x = [max(each - tau, Fraction(0)) for each in s]
    floor = [math.floor(each) for each in x]
    tied = [category for category, each in enumerate(x) if each != math.floor(each)]
    choices = list(itertools.combinations(tied, n - sum(floor)))
    return {tuple(f + (category in up) for category, f in enumerate(floor)): 1 / len(choices) for up in choices}


def projected_pmf(vectors, probabilities, n, clip=True, ties="random"):
    """Return the probabilities of all counts to which vectors are projected, in the order of `enumerate_candidates`."""
    pmf = dict.fromkeys(map(tuple, enumerate_candidates(n, vectors.shape[1]).tolist()), 0.0)
    for vector, p in zip(np.clip(vectors, 0, n if clip else None).tolist(), probabilities.tolist(), strict=True):
        outputs = project_exactly(tuple(vector), n)
        for output, share in outputs.items() if ties == "random" else [(max(outputs), 1.0)]:
            pmf[output] += p * share
    return np.array(list(pmf.values()))


def enumerated_mean(counts, epsilon, distance, clip=True, ties="random"):
    """Return the mean Hellinger distance under the unit prior by enumeration of the lattice, for a given tie rule."""
    c, n, k = np.array(counts), sum(counts), len(counts)
    v = vectors_within(k, distance)
    weights = np.exp(-epsilon * distance_of(v))
    pmf = projected_pmf(c + v, weights / weights.sum(), n, clip, ties)
    return float(pmf @ hellinger(1.0 + c, 1.0 + enumerate_candidates(n, k)))


# The lattice


@pytest.mark.parametrize("k", [2, 3, 4, 5])
def test_number_of_vectors_equals_the_published_formula(k):
    """The formula N(m) = Σⱼ C(k,j)·C(m−1,j−1)·C(m+k−j−1,k−j−1) counts the enumerated vectors at distance m."""
    found = np.bincount(distance_of(vectors_within(k, 4 if k > 4 else 7)))[: 5 if k > 4 else 8]
    for m in range(1, found.size):
        terms = (math.comb(k, j) * math.comb(m - 1, j - 1) * math.comb(m + k - j - 1, k - j - 1) for j in range(1, k))
        assert found[m] == sum(terms) == count_vectors(k, m) - count_vectors(k, m - 1)


@pytest.mark.parametrize(("k", "epsilon"), [(2, 0.3), (3, 1.0), (4, 2.5)])
def test_normaliser_equals_the_sum_over_the_lattice(k, epsilon):
    v = vectors_within(k, {2: 200, 3: 60, 4: 20}[k])
    total = np.exp(-epsilon * distance_of(v)).sum()
    assert k_norm_log_normaliser(k, epsilon) == pytest.approx(math.log(total), abs=1e-12)


def test_normaliser_of_many_categories_does_not_overflow():
    """For a normaliser near 10^600, the derivative of its log equals minus the mean distance of draws."""
    k, epsilon, step = 1001, 0.5, 1e-4
    slope = (k_norm_log_normaliser(k, epsilon + step) - k_norm_log_normaliser(k, epsilon - step)) / (2 * step)
    mechanism = k_norm_counts(np.ones(k), np.full(k, 3), epsilon)
    assert_mean_within(distance_of(draw_vectors(mechanism, 2, 400) - mechanism.counts), -slope)


# The sampler


def uniforms_for(k, epsilon, gives, advances, gaps):
    """Return uniforms from which the sampler selects the given subsets and gaps."""
    weights = np.array([math.comb(k - 1, j) ** 2 * math.exp(-epsilon * j) for j in range(k)])
    cumulative = np.append(0.0, np.cumsum(weights / weights.sum()))
    size = sum(gives)
    row = [(cumulative[size] + cumulative[size + 1]) / 2]
    row += [0.0 if each else 1 - 2**-53 for each in (*gives, *advances)]  # a uniform of 0 selects an item
    row += [1 - math.exp(-epsilon * (gap + 0.5)) for gap in gaps]
    return row + [0.5] * k


@pytest.mark.parametrize(("k", "largest"), [(2, 6), (3, 6), (4, 5), (5, 3)])
def test_sampler_is_a_bijection_onto_the_lattice(k, largest):
    """Every lattice vector results from exactly one choice of subsets and gaps, which determines its distance."""
    epsilon, rows, distances = 0.7, [], []
    subsets = list(itertools.product([0, 1], repeat=k - 1))
    for gives, advances in itertools.product(subsets, subsets):
        if sum(gives) != sum(advances):
            continue
        for gaps in itertools.product(range(largest + 1), repeat=k - 1):
            if sum(gaps) + sum(gives) <= largest:
                rows.append(uniforms_for(k, epsilon, gives, advances, gaps))
                distances.append(sum(gaps) + sum(gives))
    counts = np.full(k, 10)
    found = vectors_from(k_norm_counts(np.ones(k), counts, epsilon), np.array(rows)) - counts
    assert np.all(found.sum(axis=1) == 0)
    np.testing.assert_array_equal(distance_of(found), distances)
    assert set(map(tuple, found.tolist())) == set(map(tuple, vectors_within(k, largest).tolist()))
    assert len(rows) == count_vectors(k, largest)


@pytest.mark.slow
@pytest.mark.parametrize(("k", "epsilon", "distance"), [(2, 0.4, 20), (3, 1.0, 6), (4, 1.5, 4)])
def test_draws_follow_the_lattice_pmf(k, epsilon, distance):
    mechanism = k_norm_counts(np.ones(k), np.arange(k) + 2, epsilon)
    v = draw_vectors(mechanism, 5, 200_000) - mechanism.counts
    inner, near = vectors_within(k, distance), v[distance_of(v) <= distance]
    frequencies = np.append(count_rows(near, inner), len(v) - len(near))

    def pmf(rate):
        pmf = np.exp(-rate * distance_of(inner) - k_norm_log_normaliser(k, rate))
        return np.append(pmf, 1 - pmf.sum())

    assert_frequencies(frequencies, pmf(epsilon), wrong=pmf(1.05 * epsilon))


@pytest.mark.parametrize("k", [10, 40])
def test_all_categories_have_the_same_marginal_distribution(k):
    """All categories have equal moments, even the last one, which the sampler computes from the others."""
    mechanism = k_norm_counts(np.ones(k), np.zeros(k) + 5, 0.8)
    v = draw_vectors(mechanism, 8, 40_000) - 5.0
    for category in (0, k // 2, k - 1):
        assert_mean_within(v[:, category], 0.0)
        assert_mean_within((v[:, category] > 0) - (v > 0).mean(axis=1), 0.0)
        assert_mean_within(v[:, category] ** 2 - (v**2).mean(axis=1), 0.0)
    assert_rejects(assert_mean_within, 0.95 * (v[:, -1] > 0) - (v > 0).mean(axis=1), 0.0)


# Privacy


@pytest.mark.parametrize(("k", "epsilon"), [(2, 0.1), (3, 1.0), (4, 3.0)])
def test_loss_of_the_release_is_epsilon_and_attained(k, epsilon):
    """The largest log-likelihood ratio between neighbours is ε; vectors of total probability 1e-6 are omitted."""
    n, reach = 4, {2: 200, 3: 24, 4: 9}[k]
    datasets = enumerate_candidates(n, k)
    vectors = balanced_counts(n, k) + vectors_within(k, reach)
    log_pmf = Noise("k-norm", 2 / epsilon).log_prob(vectors[:, None] - datasets)
    assert np.exp(log_pmf).sum(axis=0).max() > 1 - 1e-6
    first, second = np.nonzero(np.abs(datasets[:, None] - datasets).sum(axis=-1) == 2)
    loss = np.abs(log_pmf[:, first] - log_pmf[:, second])
    np.testing.assert_allclose(loss.max(axis=0), epsilon, rtol=1e-12)


# Classes and projected counts


@pytest.mark.parametrize(
    ("counts", "epsilon"), [((2, 1), 0.3), ((2, 1, 0), 0.8), ((1, 0, 2), 2.0), ((1, 1, 0, 1), 1.2)]
)
def test_classes_equal_the_sum_over_the_lattice(counts, epsilon):
    c, n, k = np.array(counts), sum(counts), len(counts)
    vectors = c + vectors_within(k, {2: 120, 3: 40, 4: 22}[k])
    weights = {}
    for clipped, weight in zip(
        np.clip(vectors, 0, n).tolist(), np.exp(-epsilon * distance_of(vectors - c)).tolist(), strict=True
    ):
        weights[tuple(clipped)] = weights.get(tuple(clipped), 0.0) + weight
    classes = lattice_classes(c, epsilon)
    assert [tuple(each) for each in classes.statistics.tolist()] == sorted(weights)
    np.testing.assert_allclose(
        np.exp(classes.log_pmf(c) + k_norm_log_normaliser(k, epsilon)), [weights[s] for s in sorted(weights)], rtol=1e-6
    )
    assert len(weights) == count_classes(n, k)
    assert np.exp(classes.log_pmf(c)).sum() == pytest.approx(1.0, abs=1e-13)


@pytest.mark.parametrize("distance", [0, 1, 3])
def test_truncated_classes_are_those_within_the_distance(distance):
    c = np.array([4, 1, 0])
    whole, near = lattice_classes(c, 1.0), lattice_classes(c, 1.0, distance)
    inside = np.maximum(whole.statistics - c, 0).sum(axis=1) <= distance
    np.testing.assert_array_equal(near.statistics, whole.statistics[inside])
    np.testing.assert_allclose(near.log_multiplicities, whole.log_multiplicities[inside], rtol=1e-12)


@pytest.mark.parametrize(
    ("counts", "epsilon", "distance"),
    [((3, 2), 0.5, 60), ((5, 0, 0), 1.0, 25), ((4, 1, 2), 2.0, 14), ((2, 0, 1, 0), 2.0, 9)],
)
def test_mean_equals_enumeration_of_the_lattice(counts, epsilon, distance):
    mechanism = k_norm_counts(np.ones(len(counts)), counts, epsilon)
    expected = enumerated_mean(counts, epsilon, distance)
    assert mechanism.expected_hellinger() == pytest.approx(expected, rel=1e-5)  # the enumeration omits distant vectors


def test_mean_with_the_smallest_epsilon_is_that_of_the_ends():
    """Half of the noisy counts of each category are clipped to 0, and half of them to n; 1e-8 is the smallest ε."""
    distances = hellinger(np.array([4.0, 3.0]), np.array([[1.0, 6.0], [6.0, 1.0]]))
    assert k_norm_counts([1, 1], [3, 2], 1e-8).expected_hellinger() == pytest.approx(distances.mean(), abs=1e-6)


def test_ties_and_clipping_at_skewed_data():
    """The mean distance depends on the order of categories only if ties do; clipping reduces the mean distance."""
    by_order = [enumerated_mean(c, 1.0, 16, clip=False, ties="first") for c in ((98, 1, 1), (1, 98, 1), (1, 1, 98))]
    assert by_order == pytest.approx([0.3567, 0.3598, 0.3629], abs=1e-4)
    assert enumerated_mean((98, 1, 1), 1.0, 16, clip=False) == pytest.approx(0.3598, abs=1e-4)
    assert k_norm_counts(np.ones(3), (98, 1, 1), 1.0).expected_hellinger() == pytest.approx(0.3576, abs=5e-5)


def test_projected_counts_lose_information():
    """Vectors outside the simplex distinguish two data sets better than the counts to which they are projected."""
    released = np.array([6, -1, -1])
    assert project(released[None], 4, np.zeros((1, 3))).tolist() == [[4, 0, 0]]
    datasets = [[4, 0, 0], [3, 1, 0]]
    vector = Noise("k-norm", 2.0).log_prob(released - np.array(datasets))
    projected = [k_norm_counts(np.ones(3), c, 1.0).log_prob([4, 0, 0]) for c in datasets]
    assert vector[0] - vector[1] == pytest.approx(1.0)
    assert projected[0] - projected[1] < 0.9


def test_invalid_input_raises():
    many, wide = k_norm_counts(np.ones(10), np.full(10, 50), 1.0), k_norm_counts(np.ones(61), np.ones(61), 50.0)
    assert_refused(many.expected_hellinger, "there must be at most 4,000,000 classes")
    assert_refused(wide.expected_hellinger, "at most 60 categories")
    draw = k_norm_counts([1, 1], [1, 1], 1.0).from_uniforms
    assert_refused(lambda: draw(np.zeros((3, 2))), "uniforms must have shape")
