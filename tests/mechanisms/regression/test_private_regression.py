"""Tests of private regression in one call."""

import json
import re

import numpy as np
import pytest

from mechanisms.privacy import Guarantee
from mechanisms.protocols import Posterior
from mechanisms.regression.gram_release import PublicBox, calibrated_gram_noise
from mechanisms.regression.private_regression import (
    expected_widths,
    private_regression,
    regression_from_release,
    require_support,
)

BOUNDS = {"x": (10.0, 11.0), "y": (0.0, 4.0)}
BOX = PublicBox(("x", "y"), (10.0, 0.0), (11.0, 4.0))


def table(n, seed=1):
    rng = np.random.default_rng(seed)
    x = rng.uniform(10, 11, n)
    return x, 2 * x - 19 + rng.normal(0, 0.2, n)


@pytest.fixture(scope="module")
def posterior():
    return private_regression(*table(20_000), BOUNDS, 3.0, rehearsal_seed=1)


def test_intervals_contain_the_coefficients(posterior):
    """Covariates on an interval without 0 have coefficients in their own units."""
    low, high = posterior.interval(0.9999)
    truth = np.array([-19.0, 2.0, 0.04])
    assert (low < truth).all()
    assert (truth < high).all()
    assert high[1] - low[1] < 1.0
    assert posterior.guarantee is None


def test_posterior_is_labelled(posterior):
    assert isinstance(posterior, Posterior)
    assert posterior.names == ("intercept", "x", "error_variance")
    assert set(posterior.to_dict()["coefficients"]) == set(posterior.names)
    json.dumps(posterior.to_dict(0.9))
    tree = posterior.to_arviz()
    slope = tree.posterior["coefficients"].sel(coefficient="x")
    assert float(slope.mean()) == pytest.approx(posterior.mean()[1])
    drawn = posterior.predict(np.random.default_rng(1), [[10.5]], 4_000)
    assert abs(drawn.mean() - 2.0) < 0.1
    with pytest.raises(ValueError, match=r"features must have shape \(rows, 1\), got \(3,\)"):
        posterior.predict(np.random.default_rng(1), [1.0, 2.0, 3.0])


def test_rehearsals_are_reproducible(posterior):
    again = private_regression(*table(20_000), BOUNDS, 3.0, rehearsal_seed=1)
    np.testing.assert_array_equal(again.mean(), posterior.mean())


def test_real_releases_state_their_guarantee():
    found = private_regression(*table(20_000), BOUNDS, 3.0, delta=1e-6)
    assert found.guarantee == Guarantee(3.0, 1e-6)
    assert found.release.noise.name == "gaussian"
    again = regression_from_release(np.random.default_rng(1), found.release, BOX)
    assert np.allclose(again.mean(), found.mean(), atol=0.2 * found.std().max())


def test_expected_widths_are_those_of_typical_tables():
    """Widths decrease with n, and are at most those of the prior; the widths of releases are within a factor of 3."""
    noise = calibrated_gram_noise("laplace", 2, 1.0)
    small, prior = expected_widths(BOX, 100, noise)
    large, _ = expected_widths(BOX, 100_000, noise)
    assert (large < 0.2 * small).all()
    assert (small < 1.5 * prior).all()


def test_constant_columns_have_wide_intervals():
    """A constant column is no error, which would reveal it: its slope is as uncertain as the noise makes it."""
    x, y = table(5_000)
    found = private_regression(np.full_like(x, 10.5), y, BOUNDS, 1.0, rehearsal_seed=1)
    varied = private_regression(x, y, BOUNDS, 1.0, rehearsal_seed=1)
    assert found.std()[1] > 2 * varied.std()[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"bounds": None}, "bounds must map each column to a pair.*would leak them: choose plausible ranges"),
        ({"bounds": {"x": (11, 10), "y": (0, 4)}}, "bounds of x must be finite numbers LOW < HIGH, got 11 and 10"),
        ({"bounds": {"x": (10, 11)}}, "bounds must be of at least 2 columns, got 1"),
        ({"bounds": {"x": (10, 11), "z": (0, 1), "y": (0, 4)}}, r"features and response must have shapes \(n, 2\)"),
        ({"epsilon": 0.0}, "epsilon must be a finite number > 0"),
        ({"epsilon": 1e-4}, "300 records must be enough for 1 features at this epsilon, got expected intervals with"),
        (
            {"method": "naive"},
            r"method must be auto, normal-covariates, .*, got naive",
        ),
        ({"method": "data-augment"}, "data-augmentation"),
        ({"rehearsal_seed": -1}, "rehearsal_seed must be an integer >= 0, got -1"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    given = {"bounds": BOUNDS, "epsilon": 1.0, "rehearsal_seed": 1} | arguments
    with pytest.raises(ValueError, match=message):
        private_regression(*table(300), given.pop("bounds"), given.pop("epsilon"), **given)


def test_missing_values_are_refused():
    x, y = table(300)
    x[3] = np.nan
    with pytest.raises(ValueError, match="records must be finite, got an invalid value in row 3"):
        private_regression(x, y, BOUNDS, 3.0, rehearsal_seed=1)


def test_more_features_than_the_budget_supports_are_refused():
    names = tuple(f"x{i}" for i in range(12))
    box = PublicBox((*names, "y"), (0.0,) * 13, (1.0,) * 13)
    noise = calibrated_gram_noise("laplace", 13, 0.5)
    with pytest.raises(ValueError, match=r"200 records must be enough for 12 features") as refused:
        require_support(box, 200, noise)
    after, before = (widths[1:-1] for widths in expected_widths(box, 200, noise))
    percent, width, name = re.search(r"with (\d+) % .* such as (\S+) of (\w+);", str(refused.value)).groups()
    assert percent == f"{100 * np.median(after / before):.0f}"
    k = names.index(name)
    assert width == f"{after[k]:.3g}"
    assert np.sum(after / before < after[k] / before[k]) in (5, 6)  # one of the two in the middle
