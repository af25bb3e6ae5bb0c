"""Tests that the limits on work and memory of convolutions depend on public arguments only."""

import numpy as np
import pytest

from mechanisms.counts import product_distributions
from mechanisms.counts.exponential import SENSITIVITIES
from mechanisms.counts.product_distributions import bound_tables, require_product_distributions
from mechanisms.counts.registry import MECHANISMS
from tests.mechanisms.counts.constructors import power_mixture_mechanism
from tests.mechanisms.marks import in_turn
from tests.mechanisms.refusals import assert_refused

SHARES = [(1.0,), (1 / 3, 1 / 3), (0.998, 0.001), (0.5, 0.3), (0.9, 0.1), (0.001, 0.001)]


def datasets(n, k):
    """Yield count vectors, from balanced to concentrated in one category, in several orders of the categories."""
    for shares in SHARES:
        counts = np.zeros(k, dtype=np.int64)
        counts[: len(shares)] = np.floor(n * np.array(shares))
        counts[-1] += n - counts.sum()
        yield counts
    yield np.diff(np.r_[0, np.sort(np.random.default_rng(n + k).integers(0, n + 1, k - 1)), n])
    yield np.full(k, n // k) + (np.arange(k) < n % k)


def measure(tables):
    """Return the number of multiplications that compute the tables, and the number of entries of the tables."""
    widths, totals = tables.high - tables.low + 1, tables.high_total - tables.low_total + 1
    work = (widths[:, :-1] * np.minimum(totals[:, :-1], totals[:, 1:])).sum()
    return int(work), tables.weights.size + tables.sums.size


PROBLEMS = [(30, 3), (2_000, 3), (40_000, 3), (500, 10), (60, 40)]
TABLES = [  # all pairs of a problem, a prior, an epsilon and a mechanism
    (n, k, prior, (1e-8, 1.0, 60.0)[(first + second) % 3], ("global", "smooth", "varying")[(first + 2 * second) % 3])
    for first, (n, k) in enumerate(PROBLEMS)
    for second, prior in enumerate((0.01, 1.0, 300.0))
]


@pytest.mark.slow
@pytest.mark.parametrize(("n", "k", "prior", "epsilon", "name"), in_turn(TABLES))
def test_tables_of_all_data_sets_are_within_the_bounds(n, k, prior, epsilon, name):
    alpha, share = np.full(k, prior), 0.25 if name == "varying" else 0.5
    work, size = bound_tables(n, k, float(alpha.sum()))
    for counts in datasets(n, k):
        scale = SENSITIVITIES[name](alpha, counts, epsilon, 1e-8)
        found = measure(power_mixture_mechanism(alpha, counts, share * epsilon / scale)._tables)
        assert found[0] <= work
        assert found[1] <= size


@pytest.mark.parametrize(("n", "k"), [(2_000, 3), (40_000, 3), (500, 10)])
def test_bounds_are_of_the_order_of_the_tables_at_balanced_data(n, k):
    counts = np.full(k, n // k) + (np.arange(k) < n % k)
    tables = power_mixture_mechanism(np.ones(k), counts, 1.25)._tables
    for bound, found in zip(bound_tables(n, k, float(k)), measure(tables), strict=True):
        assert bound <= 8 * found


def test_neighbours_are_both_rejected_or_both_accepted():
    """Two neighbours are both rejected, although an earlier limit accepted one of them and so revealed a record."""
    for counts in ((2_921_605, 2_539_197, 2_539_198), (2_921_604, 2_539_198, 2_539_198), (7_999_998, 1, 1)):
        with pytest.raises(ValueError, match=r"multiplications for convolutions, got .* \(n = 8000000, k = 3\)"):
            MECHANISMS["global"].build([1, 1, 1], counts, 1.0)


@pytest.mark.parametrize("limit", ["MAX_WORK", "MAX_ENTRIES"])
def test_limits_apply_to_all_data_sets_alike(monkeypatch, limit):
    n, k = 2_000, 3
    bound = bound_tables(n, k, float(k))[limit == "MAX_ENTRIES"]
    monkeypatch.setattr(product_distributions, limit, bound - 1)
    for counts in datasets(n, k):
        with pytest.raises(ValueError, match=f"there must be at most {bound - 1:,} (mult|entr)"):
            power_mixture_mechanism(np.ones(k), counts, 1.25)
    monkeypatch.setattr(product_distributions, limit, bound)
    for counts in datasets(n, k):
        power_mixture_mechanism(np.ones(k), counts, 1.25)


def test_a_stronger_prior_needs_larger_tables():
    require_product_distributions(300_000, 3, 3.0)
    assert_refused(lambda: require_product_distributions(300_000, 3, 3e9), "multiplications for convolutions, got")
