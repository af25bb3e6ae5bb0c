"""Tests of private regression in one call."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest

from mechanisms.core.privacy import Guarantee
from mechanisms.core.protocols import Posterior
from mechanisms.regression.gram_release import PublicBox, calibrated_gram_noise
from mechanisms.regression.private_regression import private_regression, regression_from_release, release_sums
from mechanisms.release import Rehearsal
from tests.mechanisms.marks import exhaustive
from tests.mechanisms.refusals import assert_refused

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


def test_delta_of_a_published_record_warns():
    with pytest.warns(UserWarning, match=r"^delta 0\.01 is not below 1/n = 0\.01: publishing one of 100 records has"):
        private_regression(*table(100), BOUNDS, 30.0, delta=0.01, rehearsal_seed=1)


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


def incomes(rng, n):
    """Return ages that fill 40 % of their range, and incomes that fill 25 %, off the centre."""
    age = rng.uniform(20, 70, n)
    return age, 20_000 + 1_000 * age + rng.normal(0, 3_000, n)


def line(rng, n):
    """Return a feature on a tenth of its range, whose slope is 3.3 in scaled columns, and a response."""
    x = rng.uniform(0, 1, n)
    return x, 1 + x + rng.normal(0, 0.2, n)


AGES, WIDE = {"age": (0, 120), "income": (0, 200_000)}, {"x": (-0.45, 9.55), "y": (0, 3)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("draw", "bounds", "truth", "n", "is_resolved"),
    [
        *exhaustive(*((incomes, AGES, [20_000, 1_000, 3_000**2], n, True) for n in (3_000, 20_000))),
        *exhaustive((line, WIDE, [1, 1, 0.04], 1_000, False)),
        (line, WIDE, [1, 1, 0.04], 20_000, True),
    ],
)
def test_wide_ranges_do_not_bias_coefficients(draw, bounds, truth, n, is_resolved):
    """Slopes of the conjugate prior were too small, and a prior that does not depend on spreads covered 7 of 60."""
    covered, resolved = [], []
    for trial in range(6):
        found = private_regression(*draw(np.random.default_rng([20_261, trial]), n), bounds, 1.0, rehearsal_seed=trial)
        low, high = found.interval()
        covered.append((low < truth) & (truth < high))
        resolved.append(not found.unresolved_features)
    assert (np.sum(covered, axis=0) >= 3).all()  # with probability 1 − 3 × 9e-5 at 0.95, 0.02 if covered 7 of 60 times
    assert np.mean(resolved) > 0.5 if is_resolved else np.mean(resolved) < 0.5


def test_an_error_below_the_noise_is_bounded_from_above():
    """The central interval of σ excludes small values, as the prior does."""
    rng = np.random.default_rng(20_261)
    x = rng.uniform(0, 1, 1_000)
    y = x + rng.normal(0, 1e-3, 1_000)
    found = private_regression(x, y, {"x": (-5, 5), "y": (-5, 5)}, 1.0, rehearsal_seed=1)
    low, high = found.interval()
    assert not found.resolves_error
    assert low[-1] == 0.0 < found.quantile(0.025)[-1]
    assert found.to_dict()["error_bound"] == pytest.approx(np.sqrt(high[-1]))


def test_an_error_above_the_noise_has_an_interval(posterior):
    assert posterior.resolves_error
    np.testing.assert_array_equal(posterior.interval()[0], posterior.quantile(0.025))
    assert posterior.to_dict()["error_bound"] is None


@pytest.mark.parametrize("seed", [0, 1])
def test_data_do_not_share_the_stream_of_a_rehearsal(seed):
    """Laplace draws of the user's seed are not those of the noise."""
    noise, gram = calibrated_gram_noise("laplace", 2, 1.0), np.diag([100.0, 0.0, 0.0])
    sums = (gram * 2.0**32).astype(np.int64)
    sums[0, 0] = 100
    added = release_sums(sums, noise, Rehearsal(seed))[0].noisy[np.triu_indices(3)][1:] / noise.scale
    for own in (seed, [seed, 0], [seed, 1], [seed, 2]):
        drawn = np.random.default_rng(own).laplace(size=5)
        assert np.abs(added - drawn).max() > 1e-3


@pytest.mark.slow
def test_constant_columns_have_wide_intervals():
    """A constant column is no error, which would reveal it: its slope is as uncertain as the noise makes it."""
    x, y = table(5_000)
    found = private_regression(np.full_like(x, 10.5), y, BOUNDS, 1.0, rehearsal_seed=1)
    varied = private_regression(x, y, BOUNDS, 1.0, rehearsal_seed=1)
    assert found.std()[1] > 2 * varied.std()[1]


@pytest.mark.slow
@pytest.mark.parametrize("n", [24, *exhaustive(200)])
def test_few_records_with_zeros_and_ones_have_the_right_slope(n):
    rng = np.random.default_rng(1)
    treated = np.arange(n) % 2.0
    response = 50.0 + 10.0 * treated + rng.normal(0.0, 3.0, n)
    posterior = private_regression(treated, response, {"treated": (0, 1), "y": (0, 120)}, 100.0, rehearsal_seed=1)
    low, high = posterior.interval(0.999)
    assert low[1] < 10.0 < high[1]
    assert high[1] - low[1] < 15.0
    with pytest.warns(UserWarning, match="columns that fill their ranges: treated; if nothing was clamped"):
        clamped = regression_from_release(rng, posterior.release, posterior.box, "data-augmentation")
    low, high = clamped.interval(0.999)
    assert not low[1] < 10.0 < high[1]


@pytest.mark.slow
def test_data_augmentation_gives_no_warning_for_a_column_inside_its_range():
    x, y = table(40)
    bounds = {"x": (9.0, 12.0), "y": (-2.0, 6.0)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        posterior = private_regression(x, y, bounds, 20.0, method="data-augmentation", rehearsal_seed=1)
    assert posterior.method == "data-augmentation"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"bounds": None}, "bounds must map each column to a pair.*would leak them: choose plausible ranges"),
        ({"bounds": {"x": (11, 10), "y": (0, 4)}}, "bounds of x must be finite numbers LOW < HIGH, got 11 and 10"),
        ({"bounds": {"x": (10, 11)}}, "bounds must be of at least 2 columns, got 1"),
        ({"bounds": {"x": (10, 11), "z": (0, 1), "y": (0, 4)}}, r"features and response must have shapes \(n, 2\)"),
        ({"epsilon": 0.0}, "epsilon must be a finite number > 0"),
        (
            {"epsilon": 1e-4},
            "300 records must be enough for 1 features at this epsilon, got expected intervals with at",
        ),
        ({"method": "naive"}, r"method must be one of normal-covariates, .*, got naive"),
        ({"method": "data-augment"}, "data-augmentation"),
        ({"rehearsal_seed": -1}, "rehearsal_seed must be an integer >= 0, got -1"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    given = {"bounds": BOUNDS, "epsilon": 1.0, "rehearsal_seed": 1} | arguments
    assert_refused(lambda: private_regression(*table(300), given.pop("bounds"), given.pop("epsilon"), **given), message)


def test_columns_of_a_frame_have_the_order_of_the_bounds():
    x, y = table(300)
    frame = pd.DataFrame({"income": x.ravel(), "age": x.ravel()})
    bounds = {"age": (9.0, 12.0), "income": (9.0, 12.0), "y": (-2.0, 6.0)}
    refused = "features must have the order of bounds, age, income, got income, age; reorder the columns"
    assert_refused(lambda: private_regression(frame, y, bounds, 20.0, rehearsal_seed=1), refused)


def test_missing_values_are_refused():
    x, y = table(300)
    x[3] = np.nan
    with pytest.raises(ValueError, match="records must be finite, got an invalid value in row 3"):
        private_regression(x, y, BOUNDS, 3.0, rehearsal_seed=1)
