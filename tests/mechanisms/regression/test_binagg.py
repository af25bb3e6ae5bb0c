"""Tests of linear regression on noisy sums in private bins."""

import numpy as np
import pytest

from mechanisms.core.conversions import concentrated_epsilon
from mechanisms.regression.binagg import _X, BinnedRegression, BinnedRelease, _halve
from tests.mechanisms.regression.scaled_records import least_squares, records_of


def test_without_noise_it_is_least_squares_on_the_bins():
    """The estimate equals least squares on records if each bin has one value of the covariate."""
    rng, method = np.random.default_rng(1), BinnedRegression(2, 1e18, 1e-6)
    u = records_of(rng)
    u[:, 0] = (np.floor(np.minimum(u[:, 0], 0.9) * 8) + 0.5) / 8
    theta, variance, _ = least_squares(u)
    release = method.release(rng, u)
    np.testing.assert_allclose(method._fit(release)[0], theta, rtol=1e-5)
    np.testing.assert_allclose(release.squares / release.n, variance, rtol=1e-5)


def test_exact_lines_are_recovered_in_several_dimensions():
    rng, method = np.random.default_rng(1), BinnedRegression(4, 1e18, 1e-6)
    release = method.release(rng, records_of(rng, slopes=(0.3, -0.2, 0.4), error_std=0.0))
    np.testing.assert_allclose(method._fit(release)[0], [0.1, 0.3, -0.2, 0.4], atol=1e-6)


def test_releases_compose_to_the_guarantee():
    """The tree is ε-DP, hence ε²/2-zCDP; the sums change by 4s in units of the noise, and the squares by 1."""
    method = BinnedRegression.calibrated(3, 1.0, 1e-6)
    count_std, x_std, y_std, square_std = method.stds
    s, tree = 2.0 / x_std**2 + 1.0 / y_std**2, 4.0 / method.tree_scale
    assert 1.0 / count_std**2 == pytest.approx(s)
    assert 2.0 / x_std**2 == pytest.approx(_X * s)
    assert tree**2 / 2.0 + 4.0 * s / 2.0 + 1.0 / (2.0 * square_std**2) == pytest.approx(method.guarantee.rho)
    assert 0.999 < concentrated_epsilon(method.guarantee.rho, 1e-6) <= 1.0


def tree_loss(score, method, first, second, depth=0, low=-1.0, high=1.0, deepest=14):
    """Return the largest log ratio of the probabilities of a tree at two data sets, over all trees to a depth.

    It is exact: the ratio of a tree is the product of those of its nodes.
    """
    if depth == deepest:
        return 0.0
    logs = []
    for x in (first, second):
        gap = (score(x.size, depth) - method.threshold) / method.tree_scale
        tail = 0.5 * np.exp(-abs(gap))
        logs.append(np.log([tail, 1.0 - tail] if gap > 0 else [1.0 - tail, tail]))  # of a leaf and of a split
    stop, split = logs[0] - logs[1]
    if np.array_equal(np.sort(first), np.sort(second)):
        return 0.0
    middle, deeper = (low + high) / 2, split
    for is_low, ends in ((True, (low, middle)), (False, (middle, high))):
        parts = (x[(x < middle) == is_low] for x in (first, second))
        deeper += tree_loss(score, method, *parts, depth + 1, *ends, deepest)
    return max(stop, deeper)


@pytest.mark.parametrize("spread", [1.0, 0.3, 0.01])
def test_tree_loses_at_most_its_part_exactly(spread):
    """Without the decay of scores with depth, the loss exceeds the bound (negative control)."""
    rng, method = np.random.default_rng(1), BinnedRegression(2, 100.0, 1e-6)
    bound, found, control = 4.0 / method.tree_scale, [], []
    for _ in range(60):
        size = int(rng.integers(1, 60))
        x = np.clip(rng.normal(0.9, spread, size), -1, 1)
        y = np.array([-1.0, *x[1:]])
        for pair in ((x, y), (y, x)):
            found.append(tree_loss(method.score, method, *pair))
            control.append(tree_loss(lambda count, depth: float(count), method, *pair))
    assert max(found) <= bound
    assert max(found) > 0.35 * bound
    if spread < 0.1:
        assert max(control) > bound


@pytest.mark.parametrize("p", [2, 4])
def test_no_replaced_record_exceeds_the_sensitivity_of_the_sums(p):
    rng, method = np.random.default_rng(1), BinnedRegression(p, 1.0, 1e-6)
    count_std, x_std, y_std, _ = method.stds
    scales, d = np.array([count_std, *[x_std] * (p - 1), y_std]), p - 1
    inside = rng.uniform(-1, 1, (2, 20_000, p)).round(rng.integers(2))  # r in half widths of its bin, and y
    inside[:, 0] = [[1.0] * p, [-1.0] * p]
    first, second = (np.column_stack([np.ones(20_000), side]) / scales for side in inside)
    same, other = ((first - second) ** 2).sum(axis=1), (first**2 + second**2).sum(axis=1)
    bound = 4.0 * (d / x_std**2 + 1.0 / y_std**2)
    assert same.max() == pytest.approx(bound)
    assert other.max() == pytest.approx(bound)


@pytest.mark.slow
def test_noise_of_sums_is_subtracted():
    """The expected matrix is that of the exact sums, to second order in the noise of counts; D is not negligible."""
    rng, method, k = np.random.default_rng(1), BinnedRegression(2, 0.05, 1e-6), 2
    count_std, x_std, _, _ = method.stds
    ends = np.linspace(-1, 1, k + 1)
    middle, half = ((ends[1:] + ends[:-1]) / 2)[:, None], np.full((k, 1), 1 / k)
    counts, x_sums, y_sums = np.full(k, 100.0), 100 * half * rng.uniform(-0.5, 0.5, (k, 1)), np.zeros(k)
    exact = np.column_stack([np.ones(k), middle + x_sums / counts[:, None]])
    exact = (exact * counts[:, None]).T @ exact
    found, removed = [], []
    for _ in range(10_000):
        noisy = x_sums + half * x_std * rng.normal(size=(k, 1))
        release = BinnedRelease(200, middle, half, counts + count_std * rng.normal(size=k), noisy, y_sums, squares=0.0)
        _, _, tilt, matrix, _, _ = method._fit(release)
        found.append(matrix)
        removed.append(np.diag(tilt.sum(axis=0)))
    found, removed = np.array(found), np.array(removed)
    error = found.std(axis=0) / np.sqrt(len(found))
    second_order = np.abs(x_sums**2 / counts[:, None] ** 3).sum() * count_std**2
    assert (np.abs(found.mean(axis=0) - exact) < 5 * error + second_order).all()
    assert (found + removed).mean(axis=0)[1, 1] - exact[1, 1] > 5 * error[1, 1] + second_order


def test_released_sums_have_noise_of_the_stated_variance():
    rng, method = np.random.default_rng(1), BinnedRegression(2, 0.5, 1e-6)
    u = np.full((4_000, 2), 0.1)
    drawn = [method.release(rng, u) for _ in range(300)]
    gaps = []
    for release in drawn:
        k = int(np.argmax(release.counts))
        assert abs(release.middle[k, 0] - 0.1) <= release.half[k, 0]
        gaps.append(
            [
                release.counts[k] - 4_000,
                (release.x_sums[k, 0] - 4_000 * (0.1 - release.middle[k, 0])) / release.half[k, 0],
                release.y_sums[k] - 400,
            ]
        )
    ratio = (np.array(gaps) ** 2).mean(axis=0) / method.stds[:3] ** 2
    assert (np.abs(ratio - 1.0) < 5 * np.sqrt(2 / 300)).all()
    assert (np.abs(ratio / 2 - 1.0) > 5 * np.sqrt(2 / 300)).all()  # negative control


def test_halves_contain_each_record_once():
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, (100, 2))
    (_, low, upper, first), (depth, lower, high, second) = _halve(x, 1, -np.ones(2), np.ones(2), np.arange(100))
    assert sorted([*first, *second]) == list(range(100))
    assert depth == 2
    assert (x[first] <= upper).all()
    assert (x[second] >= lower).all()
    np.testing.assert_array_equal([low, high, upper, lower], [[-1, -1], [1, 1], [1, 0], [-1, 0]])


@pytest.mark.slow
def test_few_records_have_intervals():
    """Intervals are finite if noise dominates, and wide."""
    rng, method = np.random.default_rng(1), BinnedRegression.calibrated(4, 0.1, 1e-6)
    u = records_of(rng, n=10, slopes=(0.3, -0.2, 0.4))
    ends = np.quantile(method.bootstrap(rng, method.release(rng, u), 60), [0.025, 0.975], axis=0)
    assert np.isfinite(ends).all()
    assert (np.diff(ends[:, :-1], axis=0) > 1.0).all()
