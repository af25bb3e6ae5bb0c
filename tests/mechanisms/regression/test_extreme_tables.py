"""Tests that releases from partitions accept every table of numbers, and that one row changes one partition only.

Tables contain numbers whose squares and quotients overflow or underflow, collinear and constant columns, and ties. The
exact noise is replaced by functions that record the requests.
"""

import warnings
from dataclasses import dataclass

import numpy as np
import pytest

from mechanisms.regression import partition_publish as publish
from mechanisms.regression.partition_prior import ConjugatePrior, FlatPrior, SemiConjugatePrior, ZellnerPrior
from mechanisms.regression.partition_probability import PROBABILITY_METHODS, partition_probability
from mechanisms.regression.partition_quantile import QUANTILE_METHODS, partition_quantile
from mechanisms.regression.posterior import POSTERIOR_RANGE, coefficient_posterior
from mechanisms.regression.statistics import LARGEST_NUMBER, RegressionStatistics, row_moments
from mechanisms.release import ExactNoise
from tests.mechanisms.marks import exhaustive

SUBSTITUTE = (0.25, 2.0)
SIZES = [5e-324, 1e-310, 1e-300, 1e-161, 1e-70, 1.0, 1e22, 2.0**63, 1e70, 1e140, 1.7e308]
NUMBERS = np.array([0.0, *SIZES, -1e-300, -1e-161, -1.0, -1e140])
CUTOFFS = np.array([-1.7e308, -1e140, -1.0, 0.0, 5e-324, 0.3, 1e22, 1.7e308])
PROBABILITIES = np.array([1e-9, 0.025, 0.3, 0.5, 0.999])
PRIORS = {
    "zellner": lambda width: ZellnerPrior(width),
    "flat": lambda width: FlatPrior(),
    "conjugate": lambda width: ConjugatePrior(precision=1e-3),
    "conjugate-wide": lambda width: ConjugatePrior(0.0, 1e-300),
    "semi-conjugate": lambda width: SemiConjugatePrior(precision=1e-3),
    "semi-conjugate-narrow": lambda width: SemiConjugatePrior(3.0, 1e60, shape=0.1, rate=1e-6),
}


@dataclass(frozen=True)
class Table:
    """Rows (x, y), divided into partitions, with the options of a posterior."""

    rows: np.ndarray
    labels: np.ndarray
    intercept: bool
    k: int
    error_variance: float | None

    def posterior(self, prior, is_powered=True, substitute=SUBSTITUTE):
        """Return the posteriors of the partitions, after limiting the numbers."""
        rows, n_partitions = np.clip(self.rows, -LARGEST_NUMBER, LARGEST_NUMBER), self.labels.max() + 1
        moments = row_moments(rows[:, :-1], rows[:, -1], self.labels, n_partitions)
        power = len(rows) / moments[0] if is_powered else 1.0
        statistics = RegressionStatistics(*moments, self.intercept)
        return coefficient_posterior(statistics, self.k, prior, self.error_variance, power, substitute)


def draw_column(rng, n):
    """Return a column of normal or constant values, of extreme numbers, or with one extreme number among others."""
    kind, column = rng.integers(6), rng.standard_normal(n)
    if kind == 1:
        column = np.full(n, rng.choice(NUMBERS))
    elif kind == 2:
        column = rng.choice(rng.choice(NUMBERS, 3), n)
    elif kind == 3:
        column = np.zeros(n)
        column[rng.integers(n)] = rng.choice(NUMBERS)
    elif kind == 4:
        column[rng.integers(n)] = rng.choice(NUMBERS)
    elif kind == 5:
        column *= 10.0 ** rng.integers(-300, 300)
    return column


def draw_pair(rng, allows_single_rows):
    """Return a table and a neighbour with one replaced row, whose partition is the first."""
    p, n, intercept = int(rng.integers(1, 4)), int(rng.integers(24, 60)), bool(rng.integers(2))
    rows = np.column_stack([draw_column(rng, n) for _ in range(p + 1)])
    if p > 1 and rng.random() < 0.2:
        rows[:, 1] = rng.choice([1.0, -0.5, 1e-161]) * rows[:, 0]
    d = p + intercept
    n_partitions = n if allows_single_rows and rng.random() < 0.2 else int(rng.integers(2, n // (d + 1) + 1))
    labels, k = np.arange(n) % n_partitions, int(rng.integers(d))
    error_variance = rng.choice([None, 1.0, 1e-12, 1e12]) if rng.random() < 0.5 else None
    other = rows.copy()
    other[0] = rng.choice(NUMBERS, p + 1) if rng.random() < 0.7 else rng.standard_normal(p + 1)
    return Table(rows, labels, intercept, k, error_variance), Table(other, labels, intercept, k, error_variance)


def assert_valid(posterior):
    smallest, largest = POSTERIOR_RANGE
    np.testing.assert_allclose(posterior.weights.sum(axis=-1), 1.0, rtol=1e-12)
    assert (posterior.weights >= 0).all()
    assert (np.abs(posterior.locations) <= largest).all()
    assert ((posterior.scales >= smallest) & (posterior.scales <= largest)).all()
    assert (posterior.degrees > 0).all()


def assert_one_changes(first, second):
    """Assert that arrays with one row per partition are equal, to the last bit, after the first row."""
    assert not np.isnan(first).any()
    assert first[1:].tobytes() == second[1:].tobytes()


class RecordedNoise:
    """Replacements of the exact draws, which record their public arguments and return the ends or middle of a range."""

    def __init__(self, end):
        self.requests, self.values, self.end = [], [], end

    def record(self, monkeypatch):
        """Replace the exact draws."""
        monkeypatch.setattr(publish, "draw_window", self.draw_window)
        for name in ("noisy_sums", "laplace"):
            monkeypatch.setattr(ExactNoise, name, getattr(self, name))

    def noisy_sums(self, values, low, high, epsilon):
        assert not np.isnan(values).any()
        self.requests.append(("sums", values.shape, low, high, epsilon))
        self.values.append(np.clip(values, low, high))
        return self.values[-1].sum(axis=0)

    def draw_window(self, _noise, values, half_window, epsilon, reach, level=None):
        self.requests.append(("window", len(values), half_window, epsilon, reach, level))
        self.values.append(np.array(values, dtype=float)[:, None])
        return self.end * reach

    def laplace(self, scale, size):
        self.requests.append(("laplace", scale, size))
        return np.zeros(size, dtype=np.int64)


def check_pair(rng, monkeypatch, name):
    """Publish a table and its neighbour, and compare everything that precedes the noise."""
    pair = draw_pair(rng, allows_single_rows="conjugate" in name)
    prior, is_quantile = PRIORS[name](float(len(pair[0].rows))), bool(rng.integers(2))
    posteriors = [table.posterior(prior, is_quantile) for table in pair]
    n_partitions, end = posteriors[0].degrees.size, int(rng.integers(-1, 2))
    for posterior in posteriors:
        assert_valid(posterior)
    if is_quantile:
        method = rng.choice(["quantile", "quantile-centred"])
        parts = len(QUANTILE_METHODS[method].parts)
        start = float(rng.choice([1e-250, 1.0, 1e250]))
        mechanism = partition_quantile(method, n_partitions, 1.0, [1.0 / parts] * parts, start)
        inputs = [(posterior.quantile(PROBABILITIES), posterior.std()) for posterior in posteriors]
        release = publish.publish_quantiles
    else:
        method = rng.choice([key for key, entry in PROBABILITY_METHODS.items() if entry.is_private])
        mechanism = partition_probability(method, n_partitions, 1.0)
        inputs, release = [(posterior.cdf(CUTOFFS),) for posterior in posteriors], publish.publish_probabilities
    for first, second in zip(*inputs, strict=True):
        assert_one_changes(first, second)
    measures = [(posterior.mean(), posterior.std()) for posterior in posteriors]
    for first, second in zip(*measures, strict=True):
        assert_one_changes(first, second)
    noises = [RecordedNoise(end) for _ in inputs]
    for noise, arrays in zip(noises, inputs, strict=True):
        noise.record(monkeypatch)
        for released in (release(mechanism, *arrays), mechanism.release(np.random.default_rng(1), *arrays)):
            assert np.isfinite(released.values if is_quantile else released).all()
    if method != "quantile":  # the search of the other methods stops at an index that depends on the counts
        assert noises[0].requests == noises[1].requests
        for first, second in zip(noises[0].values, noises[1].values, strict=True):
            assert_one_changes(first, second)


@pytest.mark.parametrize("n_pairs", [50, *exhaustive(2000)])
@pytest.mark.parametrize("name", PRIORS)
def test_neighbouring_extreme_tables_request_the_same_noise(monkeypatch, name, n_pairs):
    rng = np.random.default_rng(2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(n_pairs):
            check_pair(rng, monkeypatch, name)


def test_extreme_tables_without_a_substitute_have_invalid_posteriors():
    """Negative control: without a substitute, some of these tables raise, warn, or have posteriors out of range."""
    rng, failures = np.random.default_rng(1), 0
    for _ in range(100):
        table, _ = draw_pair(rng, allows_single_rows=False)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                assert_valid(table.posterior(ConjugatePrior(), substitute=None))
        except (AssertionError, RuntimeWarning, ValueError):
            failures += 1
    assert 5 < failures < 100


@pytest.mark.parametrize(
    ("name", "prior"),
    [("eigh", FlatPrior()), ("eigh", ConjugatePrior()), ("svd", ConjugatePrior()), ("svd", SemiConjugatePrior())],
)
def test_matrix_without_a_decomposition_leaves_other_partitions_unchanged(monkeypatch, name, prior):
    """If iterations for one matrix of a stack do not converge, its partition alone has the substitute."""
    rng = np.random.default_rng(3)
    table = Table(rng.standard_normal((60, 3)), np.arange(60) % 6, True, 1, None)
    before, decompose, second = table.posterior(prior), getattr(np.linalg, name), []

    def fail(matrices):
        second.extend([] if second else [matrices[1].copy()])
        if (matrices == second[0]).all(axis=(-2, -1)).any():
            raise np.linalg.LinAlgError("did not converge")
        return decompose(matrices)

    monkeypatch.setattr(np.linalg, name, fail)
    with pytest.raises(np.linalg.LinAlgError):
        table.posterior(prior, substitute=None)
    after, others = table.posterior(prior), np.arange(6) != 1
    for first, last in ((before.quantile(0.3), after.quantile(0.3)), (before.std(), after.std())):
        assert first[others].tobytes() == last[others].tobytes()
    assert (after.mean()[1], after.std()[1]) == SUBSTITUTE


def test_rows_of_a_partition_that_overflow_leave_other_partitions_unchanged():
    """A partition whose sums of squares are not finite has the substitute."""
    rng = np.random.default_rng(4)
    rows, labels = rng.standard_normal((40, 2)), np.arange(40) % 4
    moments = row_moments(rows[:, :1], rows[:, 1], labels, 4)
    sound = RegressionStatistics(*moments)
    moments[2][2] = np.inf
    for prior in (FlatPrior(), ZellnerPrior(9.0), ConjugatePrior(), SemiConjugatePrior()):
        expected = coefficient_posterior(sound[[0, 1, 3]], 1, prior, substitute=SUBSTITUTE)
        posterior = coefficient_posterior(RegressionStatistics(*moments), 1, prior, substitute=SUBSTITUTE)
        assert (posterior.mean()[2], posterior.std()[2]) == SUBSTITUTE
        np.testing.assert_array_equal(posterior.quantile(0.1)[[0, 1, 3]], expected.quantile(0.1))


def test_statistics_of_many_large_numbers_are_finite():
    """Statistics of 10⁹ rows of ±1e140, pooled from blocks, are finite."""
    spread = np.array([[LARGEST_NUMBER, -LARGEST_NUMBER], [-LARGEST_NUMBER, LARGEST_NUMBER]])
    scatter = np.full((2, 1, 2, 2), 4.0 * LARGEST_NUMBER**2 * 5e8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parts = RegressionStatistics(np.full((2, 1), 5 * 10**8), spread[:, None], scatter)
        assert np.isfinite(parts.pool(0).scatter).all()
        coefficient_posterior(parts.pool(0), 1, ConjugatePrior(), power=2.0, substitute=SUBSTITUTE)
