"""Tests that partitions of a table do not depend on chunks, scheduler or array type, and reject invalid rows."""

import dask.array as da
import numpy as np
import pytest

from mechanisms.regression.keyed_partition import keyed_partition
from mechanisms.regression.statistics import LARGEST_NUMBER, partition_statistics
from pipeline.clusters.cluster import connect
from pipeline.clusters.profiles import THREADS, Profile
from pipeline.errors import BadInputError
from studies.own_data.divided_rows import divide_rows

N, M = 10_007, 100


@pytest.fixture(scope="module")
def client():
    with connect(THREADS) as client:
        yield client


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(1)
    x = np.column_stack([np.sort(rng.standard_normal(N)), 1e6 + rng.standard_normal(N)])  # sorted; large mean
    return x, x @ [2.0, -1.0] + rng.standard_normal(N)


@pytest.fixture(scope="module")
def partition():
    return keyed_partition(np.random.default_rng(2), N, M)


@pytest.fixture(scope="module")
def expected(table, partition):
    return partition_statistics(*table, partition.labels(0, N), M)


def assert_same(found, expected):
    """Assert equal statistics up to rounding, relative to the spread (means) or the largest entry (scatter)."""
    np.testing.assert_array_equal(found.n_rows, expected.n_rows)
    np.testing.assert_allclose(found.means, expected.means, rtol=1e-14, atol=1e-12)
    np.testing.assert_allclose(found.scatter, expected.scatter, rtol=0, atol=1e-10 * expected.scatter.max())


CHUNKS = [N, 1000, 4999, (1, 10_000, 6), (7, 5000, 5000)]


@pytest.mark.parametrize("chunks", CHUNKS)
def test_statistics_do_not_depend_on_chunks(client, table, partition, expected, chunks):
    x, y = table
    found = divide_rows([da.from_array(x, chunks=(chunks, 1)), da.from_array(y, chunks=777)], partition, cluster=client)
    assert_same(found, expected)
    rows = da.from_array(np.column_stack([x, y]), chunks=(chunks, 3))
    assert_same(divide_rows([rows], partition, cluster=client), expected)


def test_numpy_arrays(client, table, partition, expected):
    assert_same(divide_rows(table, partition, cluster=client), expected)
    assert_same(divide_rows([np.column_stack(table)], partition, cluster=client), expected)
    assert divide_rows(table, partition, cluster=client).intercept
    assert not divide_rows(table, partition, intercept=False, cluster=client).intercept


@pytest.mark.slow
def test_worker_processes(table, partition, expected):
    x, y = (da.from_array(array, chunks=1500) for array in table)
    with connect(Profile("one", kwargs={"processes": True, "n_workers": 1})) as client:
        assert_same(divide_rows([x, y], partition, cluster=client), expected)


def test_another_key_gives_another_partition(client, table, expected):
    found = divide_rows(table, keyed_partition(np.random.default_rng(3), N, M), cluster=client)
    np.testing.assert_array_equal(found.n_rows, expected.n_rows)
    with pytest.raises(AssertionError):
        assert_same(found, expected)
    assert_same(found.pool(), expected.pool())


def test_replacing_a_row_changes_one_partition_only(client, table, partition):
    """A replaced row leaves other partitions bitwise unchanged, as the sensitivity of the releases requires."""
    x, y = table
    before = divide_rows([da.from_array(x, chunks=(1000, 2)), y], partition, cluster=client)
    x = x.copy()
    x[4321], own = [1e9, -1e9], partition.labels(4321, 1)[0]
    after = divide_rows([da.from_array(x, chunks=(1000, 2)), y], partition, cluster=client)
    others = np.arange(M) != own
    np.testing.assert_array_equal(after.means[others], before.means[others])
    np.testing.assert_array_equal(after.scatter[others], before.scatter[others])
    assert not np.array_equal(after.means[own], before.means[own])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_error_reports_the_first_non_finite_row_and_is_not_public(client, table, partition, value):
    x, y = (array.copy() for array in table)
    x[[9000, 5000], 1] = y[7000] = y[5000] = value
    with pytest.raises(BadInputError, match=r"got a missing cell in data row 5001; .* do not publish it\)$"):
        divide_rows([da.from_array(x, chunks=(1000, 2)), y], partition, cluster=client)


def test_numbers_beyond_the_largest_count_as_the_largest(client, table, partition):
    """Numbers beyond ±1e140 have the statistics of ±1e140, in tables of one array and of two."""
    x, y = table
    x = x.copy()
    x[[17, 5000], [0, 1]] = 1.7e308, -1e141
    limited = np.clip(x, -LARGEST_NUMBER, LARGEST_NUMBER)
    assert (limited != x).sum() == 2
    pairs = (
        ([da.from_array(x, chunks=(1000, 2)), y], [da.from_array(limited, chunks=(1000, 2)), y]),
        ([np.column_stack([x, 1e300 * y])], [np.column_stack([limited, LARGEST_NUMBER * np.sign(y)])]),
    )
    for beyond, within in pairs:
        found, expected = (divide_rows(arrays, partition, cluster=client) for arrays in (beyond, within))
        np.testing.assert_array_equal(found.means, expected.means)
        np.testing.assert_array_equal(found.scatter, expected.scatter)
        assert np.isfinite(found.scatter).all()


def test_integers_and_single_precision_are_accepted(client, partition):
    whole = np.arange(2 * N, dtype=np.int64).reshape(N, 2) * 2**40
    for rows in (whole, whole.astype(np.float32)):
        found = divide_rows([rows], partition, cluster=client)
        np.testing.assert_array_equal(found.means, divide_rows([rows.astype(float)], partition, cluster=client).means)


@pytest.mark.parametrize("shapes", [[(N,)], [(N, 2), (N, 1)], [(N - 1, 2), (N,)], [(N, 2), (N,), (N,)], []])
def test_mismatched_shapes_raise(client, partition, shapes):
    with pytest.raises(BadInputError, match=r"arrays must have shapes \(10007, p\) and \(10007,\)"):
        divide_rows([np.ones(shape) for shape in shapes], partition, cluster=client)
