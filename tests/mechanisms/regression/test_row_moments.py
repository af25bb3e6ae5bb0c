"""Tests of row moments against rational arithmetic and a two-pass computation; partitions do not affect each other."""

import numpy as np
import pytest

from mechanisms.regression.statistics import partition_statistics, row_moments
from tests.mechanisms.regression.scaled_records import exact_scatter


def rows(seed=1, n=2000, p=2, m=7, offset=0.0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, p)) + offset, rng.standard_normal(n) - offset, rng.integers(0, m, n)


@pytest.mark.parametrize("p", [0, 1, 2, 5])
def test_moments_equal_two_pass_computation(p):
    x, y, labels = rows(p=p)
    n_rows, means, scatter = row_moments(x, y, labels, 9)  # partitions 7 and 8 are empty
    expected = partition_statistics(x, y, labels, 9)
    np.testing.assert_array_equal(n_rows, expected.n_rows)
    np.testing.assert_allclose(means, expected.means, rtol=0, atol=1e-14)
    np.testing.assert_allclose(scatter, expected.scatter, rtol=0, atol=1e-11)
    assert not n_rows[7:].any()
    assert not means[7:].any()
    assert not scatter[7:].any()


@pytest.mark.parametrize("offset", [0.0, 1e4, 1e8])
def test_rows_far_from_zero_are_accurate(offset):
    x, y, labels = rows(n=300, m=2, offset=offset)
    _, _, scatter = row_moments(x, y, labels, 2)
    z = np.column_stack([x, y])
    for j in range(2):
        own = z[labels == j]
        exact = exact_scatter(own)
        np.testing.assert_allclose(scatter[j], exact, rtol=0, atol=1e-12 * exact.max())
        raw = own.T @ own - len(own) * np.outer(own.mean(axis=0), own.mean(axis=0))
        if offset == 1e8:  # negative control: no digit of raw moments is correct
            assert np.abs(raw - exact).max() > 0.1 * exact.max()


def test_outlying_row_leaves_its_partition_accurate():
    """An outlier at any position, even the first, leaves the moments of its partition accurate."""
    for place in (0, 57, -1):
        x, y, labels = rows(n=200, m=1)
        x[place], y[place] = 1e9, -1e9
        exact = exact_scatter(np.column_stack([x, y]))
        np.testing.assert_allclose(row_moments(x, y, labels, 1)[2][0], exact, rtol=1e-12)


@pytest.mark.parametrize("value", [1e100, -3.0, np.nan, np.inf])
def test_row_affects_only_its_partition(value):
    """A changed row leaves other partitions bitwise unchanged, unless a mean over all rows is subtracted."""
    x, y, labels = rows()
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
    x, y, labels = rows(p=3)
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


def test_no_rows():
    n_rows, means, scatter = row_moments(np.empty((0, 2)), np.empty(0), np.empty(0, dtype=int), 3)
    assert (n_rows.tolist(), means.shape, scatter.shape) == ([0, 0, 0], (3, 3), (3, 3, 3))
    assert not scatter.any()
