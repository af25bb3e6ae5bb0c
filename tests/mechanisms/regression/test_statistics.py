"""Tests of sufficient statistics: exact moments, chunks, and the distribution of simulated statistics."""

import numpy as np
import pytest
from scipy import stats

from mechanisms.regression.statistics import (
    RegressionStatistics,
    draw_partition,
    partition_sizes,
    partition_statistics,
    row_moments,
    simulate_statistics,
)
from tests.mechanisms.refusals import assert_refused
from tests.mechanisms.regression.scaled_records import exact_scatter
from tests.statistical import assert_mean_within


def rows(n=60, p=2, offset=0.0, seed=0, m=4):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, p)) + offset
    return x, 1.0 + x.sum(axis=1) + rng.standard_normal(n), rng.integers(m, size=n)


@pytest.mark.parametrize("offset", [0.0, 1e4, 1e8])
def test_moments_equal_rational_arithmetic(offset):
    """The scatter agrees with rational arithmetic, even for a column near 1e8, where raw moments lose all digits."""
    x, y, labels = rows(offset=offset)
    found, (_, means, scatter) = partition_statistics(x, y, labels), row_moments(x, y, labels, 4)
    for j in range(4):
        expected = exact_scatter(np.column_stack([x, y])[labels == j])
        np.testing.assert_allclose(found.scatter[j], expected, rtol=1e-12, atol=1e-11)
        np.testing.assert_allclose(scatter[j], expected, rtol=0, atol=1e-12 * expected.max())
        np.testing.assert_allclose(found.means[j, :2], x[labels == j].mean(axis=0), rtol=4e-16, atol=1e-15)
        np.testing.assert_allclose(means[j, :2], x[labels == j].mean(axis=0), rtol=4e-16, atol=1e-15)
    np.testing.assert_allclose(
        found.pool().scatter, exact_scatter(np.column_stack([x, y])), rtol=1e-8 if offset else 1e-12
    )
    z = np.column_stack([x, y])
    raw = z.T @ z - np.outer(z.sum(axis=0), z.sum(axis=0)) / len(z)
    assert np.allclose(raw, exact_scatter(np.column_stack([x, y])), rtol=1e-3) == (offset < 1e8)


@pytest.mark.parametrize("ends", [(7, 11, 60), (60,), (1, 2, 3, 59, 60)])
def test_pooled_chunks_equal_whole_table(ends):
    """Pooled statistics equal those of the whole table, even if a chunk has one row only or lacks a partition."""
    x, y, labels = rows(offset=50.0)
    whole = partition_statistics(x, y, labels)
    starts = (0, *ends[:-1])
    chunks = [partition_statistics(x[a:b], y[a:b], labels[a:b], 4) for a, b in zip(starts, ends, strict=True)]
    joined = RegressionStatistics.stack(chunks).pool(0)
    assert joined.n_rows.tolist() == whole.n_rows.tolist()
    np.testing.assert_allclose(joined.means, whole.means, rtol=1e-13)
    np.testing.assert_allclose(joined.scatter, whole.scatter, rtol=1e-11, atol=1e-11)


def test_add_to_outcome_equals_direct_computation():
    x, y, labels = rows(offset=3.0)
    b = np.array([2.0, -1.0, 0.5])
    moved = partition_statistics(x, y, labels).add_to_outcome(b)
    direct = partition_statistics(x, y + b[0] + x @ b[1:], labels)
    np.testing.assert_allclose(moved.means, direct.means, rtol=1e-12)
    np.testing.assert_allclose(moved.scatter, direct.scatter, rtol=1e-10, atol=1e-10)


def test_partition_sizes_differ_by_at_most_one():
    for n, size in ((100_000, 100), (4177, 100), (7, 3), (5, 5), (9, 5), (3, 1)):
        sizes = partition_sizes(n, size)
        assert sizes.sum() == n
        assert sizes.min() >= size
        assert sizes.max() - sizes.min() <= 1
        assert np.all(np.diff(sizes) <= 0)
        labels = draw_partition(np.random.default_rng(n), n, size)
        assert np.bincount(labels).tolist() == sizes.tolist()


def test_every_row_is_equally_likely_to_be_in_a_partition():
    rng = np.random.default_rng(3)
    first = np.array([draw_partition(rng, 7, 3)[0] for _ in range(4000)])
    assert_mean_within(first == 0, 4 / 7, wrong=1 / 2)


def bartlett(rng, m, slope, error_std, size):
    """Draw (x̄, ȳ, S_xx, S_xy, S_yy) from independent normal means and the Bartlett decomposition of the scatter."""
    x_mean = rng.standard_normal(size) / np.sqrt(m)
    e_mean = error_std * rng.standard_normal(size) / np.sqrt(m)
    sxx = rng.chisquare(m - 1, size)
    u = error_std * rng.standard_normal(size)
    sxe, see = np.sqrt(sxx) * u, u * u + error_std**2 * rng.chisquare(m - 2, size)
    y_mean, sxy = 1 + slope * x_mean + e_mean, slope * sxx + sxe
    return x_mean, y_mean, sxx, sxy, slope**2 * sxx + 2 * slope * sxe + see


def test_simulated_statistics_have_the_distribution_of_normal_rows():
    m, size = 12, 4000
    rng = np.random.default_rng(5)
    found = simulate_statistics(rng, np.full(size, m), [1.0, 2.0], 3.0)
    drawn = (*found.means.T, found.scatter[:, 0, 0], found.scatter[:, 0, 1], found.scatter[:, 1, 1])
    for mine, other in zip(drawn, bartlett(rng, m, 2.0, 3.0, size), strict=True):
        assert stats.ks_2samp(mine, other).pvalue > 1e-6
    residual = found.scatter[:, 1, 1] - found.scatter[:, 0, 1] ** 2 / found.scatter[:, 0, 0]
    assert stats.kstest(residual / 9.0, stats.chi2(m - 2).cdf).pvalue > 1e-6
    assert stats.kstest(residual / 9.0, stats.chi2(m - 1).cdf).pvalue < 1e-6


def test_simulated_columns_are_independent():
    found = simulate_statistics(np.random.default_rng(1), [50_000] * 4, [0.0, 1.0, -1.0, 2.0], 0.5)
    np.testing.assert_array_equal(found.scatter, np.swapaxes(found.scatter, 1, 2))
    centred = found.add_to_outcome([0.0, -1.0, 1.0, -2.0])
    expected = np.diag([1.0, 1.0, 1.0, 0.25])
    assert np.abs(centred.scatter / 50_000 - expected).max() < 5 / np.sqrt(50_000)


def test_statistics_depend_only_on_generator():
    one = simulate_statistics(np.random.default_rng(8), [5, 9], [1.0, 2.0], 1.0)
    other = simulate_statistics(np.random.default_rng(8), [5, 9, 4], [1.0, 2.0], 1.0)[:2]
    assert np.array_equal(one.scatter, other.scatter)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: partition_statistics([[1.0], [np.nan]], [0.0, 1.0], [0, 0]), "got a non-finite value in row 1"),
        (lambda: partition_statistics([[1.0], [2.0]], [np.inf, 1.0], [0, 0]), "got a non-finite value in row 0"),
        (lambda: partition_statistics([1.0, 2.0], [1.0, 1.0], [0, 0]), "rows must have shapes"),
        (lambda: partition_statistics([[1.0]], [1.0], [2], 2), "from 0 to 1, got int64 from 0 to 2"),
        (lambda: partition_statistics([[1.0]], [1.0], [-1], 2), "from 0 to 1"),
        (lambda: partition_statistics([[1.0]], [1.0], [0.5], 2), "partitions must be integers"),
        (lambda: partition_sizes(10, 11), "size must be at most n = 10, got 11"),
    ],
)
def test_invalid_input_raises(call, message):
    assert_refused(call, message)


# Row moments, which partitions do not share


@pytest.mark.parametrize("p", [0, 1, 2, 5])
def test_moments_equal_two_pass_computation(p):
    x, y, labels = rows(2000, p, seed=1, m=7)
    n_rows, means, scatter = row_moments(x, y, labels, 9)  # partitions 7 and 8 are empty
    expected = partition_statistics(x, y, labels, 9)
    np.testing.assert_array_equal(n_rows, expected.n_rows)
    np.testing.assert_allclose(means, expected.means, rtol=0, atol=1e-14)
    np.testing.assert_allclose(scatter, expected.scatter, rtol=0, atol=1e-11)
    assert not n_rows[7:].any()
    assert not means[7:].any()
    assert not scatter[7:].any()


def test_outlying_row_leaves_its_partition_accurate():
    """An outlier at any position, even the first, leaves the moments of its partition accurate."""
    for place in (0, 57, -1):
        x, y, labels = rows(200, m=1)
        x[place], y[place] = 1e9, -1e9
        exact = exact_scatter(np.column_stack([x, y]))
        np.testing.assert_allclose(row_moments(x, y, labels, 1)[2][0], exact, rtol=1e-12)


@pytest.mark.parametrize("value", [1e100, -3.0, np.nan, np.inf])
def test_row_affects_only_its_partition(value):
    """A changed row leaves other partitions bitwise unchanged, unless a mean over all rows is subtracted."""
    x, y, labels = rows(2000, m=7)
    before = row_moments(x, y, labels, 7)
    centred = row_moments(x - x.mean(axis=0), y, labels, 7)
    x[1234] = value
    others = np.arange(7) != labels[1234]
    after = row_moments(x, y, labels, 7)
    for one, two in zip(before, after, strict=True):
        np.testing.assert_array_equal(one[others], two[others])
    assert np.isfinite(after[1][~others]).all() == np.isfinite(value)
    if np.isfinite(value):
        shifted = row_moments(x - x.mean(axis=0), y, labels, 7)
        assert not np.array_equal(shifted[2][others], centred[2][others])


def test_integers_are_exact():
    rng = np.random.default_rng(2)
    z, labels = rng.integers(-50, 50, (64, 3)), np.repeat(np.arange(4), 16)
    n_rows, means, scatter = row_moments(z[:, :2], z[:, 2], labels, 4)
    for j in range(4):
        own = z[labels == j]
        np.testing.assert_array_equal(means[j], own.mean(axis=0))
        np.testing.assert_array_equal(scatter[j], exact_scatter(own))
    np.testing.assert_array_equal(n_rows, 16)


def test_memory_layouts_and_dtypes_agree():
    x, y, labels = rows(2000, 3, m=7)
    x, y = x.astype(np.float32), y.astype(np.float32)
    expected = row_moments(x.astype(float), y.astype(float), labels, 7)
    table = np.asfortranarray(np.column_stack([x, y]))
    for found in (
        row_moments(x, y, labels.astype(np.int32), 7),
        row_moments(table[:, :3], table[:, 3], labels, 7),
        row_moments(np.repeat(x, 2, axis=1)[:, ::2], y, labels, 7),
    ):
        for one, two in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, two)


def test_moments_of_no_rows_are_zero():
    n_rows, means, scatter = row_moments(np.empty((0, 2)), np.empty(0), np.empty(0, dtype=int), 3)
    assert (n_rows.tolist(), means.shape, scatter.shape) == ([0, 0, 0], (3, 3), (3, 3, 3))
    assert not scatter.any()
