"""Tests of the forecast of widths."""

import re

import numpy as np
import pytest

from mechanisms.regression import width_forecast
from mechanisms.regression.gram_release import PublicBox, calibrated_gram_noise, gram_sums, release_gram
from mechanisms.regression.gram_samplers import sample_gram
from mechanisms.regression.width_forecast import forecast_widths, require_support, unknown_width
from tests.mechanisms.marks import exhaustive

AGE_INCOME = PublicBox.of({"age": (18, 90), "income": (0, 200_000)})
INDICATOR = PublicBox.of({"smoker": (0, 1), "income": (0, 200_000)})


def realised(box, x, noise, trials, intercept=40_000.0, slope=300.0, error=20_000.0):
    """Return median widths of the intervals of (intercept, slopes) of rehearsals."""
    widths = []
    for trial in range(trials):
        rng = np.random.default_rng([20_262, trial])
        y = intercept + x @ np.full(x.shape[1], slope) + rng.normal(0, error, len(x))
        gram = gram_sums(box, np.column_stack([x, y]))[0] / 2.0**32
        gram[0, 0] = len(x)
        draws = sample_gram(rng, "normal-covariates", release_gram(rng, gram, noise), None, 2, 200, 250)
        draws = box.unscale(draws[..., : box.p + 1])
        widths.append(np.ptp(np.quantile(draws.reshape(-1, box.p + 1), [0.025, 0.975], axis=0), axis=0)[:-1])
    return np.median(widths, axis=0)


def assert_in_range(widths, forecast):
    assert (0.5 * forecast.low < widths).all()
    assert (widths < 2.0 * forecast.high).all()


@pytest.mark.parametrize(
    ("box", "guess", "draw", "name"),
    [
        (AGE_INCOME, {"age": (20, 70)}, lambda rng, n: rng.uniform(20, 70, (n, 1)), "laplace"),
        (AGE_INCOME, {"age": (20, 70)}, lambda rng, n: rng.uniform(20, 70, (n, 1)), "gaussian"),
        (INDICATOR, {"smoker": 0.5}, lambda rng, n: rng.integers(0, 2, (n, 1)), "laplace"),
        (INDICATOR, {"smoker": 0.1}, lambda rng, n: rng.random((n, 1)) < 0.1, "laplace"),
    ],
)
def test_forecasts_with_a_guess_are_within_a_factor_of_two(box, guess, draw, name):
    """The forecast without a guess has the realised widths in its range."""
    n = 20_000
    noise = calibrated_gram_noise(name, 2, 1.0, 1e-6 if name == "gaussian" else None)
    widths = realised(box, draw(np.random.default_rng(1), n).astype(float), noise, 9)
    narrow = forecast_widths(box, n, noise, guess)
    assert (np.abs(np.log2(narrow.low / widths)) < 1.0).all()
    assert (narrow.high < 2.5 * narrow.low).all()
    wide = forecast_widths(box, n, noise, indicators=("smoker",))
    assert_in_range(widths, wide)


def columns_with_correlation(n, d, correlation):
    """Return normal columns with mean 50 and standard deviation 12, equally correlated."""
    rng = np.random.default_rng(1)
    common, own = rng.normal(size=(n, 1)), rng.normal(size=(n, d))
    return 50.0 + 12.0 * (np.sqrt(correlation) * common + np.sqrt(1.0 - correlation) * own)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("d", "n"),
    [(3, 20_000), *exhaustive((2, 20_000), (5, 100_000))],
)
@pytest.mark.parametrize("correlation", [0.0, 0.8])
def test_widths_of_correlated_features_are_in_the_range_of_the_forecast(d, n, correlation):
    names = "abcde"[:d]
    box = PublicBox.of({**dict.fromkeys(names, (0, 100)), "y": (0, 100)})
    noise = calibrated_gram_noise("laplace", box.p, 1.0)
    x = columns_with_correlation(n, d, correlation)
    widths = realised(box, x, noise, 5, 50.0 - 15.0 * d, 0.3, 8.0)
    guess = dict.fromkeys([*names, "y"], (50 - 12 * np.sqrt(3), 50 + 12 * np.sqrt(3)))
    for guesses in (guess, {}):
        assert_in_range(widths, forecast_widths(box, n, noise, guesses))
    narrow = forecast_widths(box, n, noise, guess)
    assert (narrow.high[1:] < 9.0 * narrow.low[1:]).all()
    assert (widths[1:] > (2.0 if correlation else 0.8) * narrow.low[1:]).all()  # correlation matters


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ages", "intercept", "slope", "guesses"),
    [
        *exhaustive(((20, 70), 20_000.0, 1_000.0, [{"age": (20, 70), "income": (40_000, 90_000)}])),
        ((40, 52), 20_000.0, 1_000.0, [{"age": (40, 52), "income": (55_000, 80_000)}]),  # ranges 8 times too wide
        # that of the feature alone
        ((40, 52), -360_000.0, 10_000.0, [{"age": (40, 52), "income": (40_000, 160_000)}, {"age": (40, 52)}]),
    ],
)
def test_widths_of_narrow_columns_are_in_the_range_of_the_forecast(ages, intercept, slope, guesses):
    """Slopes are large in scaled columns if the feature fills a small part of its range, and the response does not."""
    n, box = 20_000, PublicBox.of({"age": (0, 120), "income": (0, 200_000)})
    noise = calibrated_gram_noise("laplace", 2, 1.0)
    x = np.random.default_rng(1).uniform(*ages, (n, 1))
    widths = realised(box, x, noise, 9, intercept, slope, 3_000.0)
    for guess in (*guesses, {}):
        assert_in_range(widths, forecast_widths(box, n, noise, guess))


def test_assumptions_are_stated_with_all_guesses():
    names = {"a": (0, 100), "b": (0, 100), "y": (0, 100)}
    noise = calibrated_gram_noise("laplace", 3, 1.0)
    guess = dict.fromkeys(names, (20, 80))
    stated = forecast_widths(PublicBox.of(names), 9_000, noise, guess).assumptions
    assert "an error with a standard deviation of at most 10 % of the range of y" in stated
    assert "slopes that are small or explain all of the spread of y" in stated
    assert stated.endswith(", correlations of features of 0 to 0.8")
    assert "--guess" not in stated
    open_ended = forecast_widths(PublicBox.of(names), 9_000, noise, {"a": (20, 80)}, {"b"}).assumptions
    assert "correlations of features of 0 to 0.8, of levels of 0 to 0.5, shares of levels of 5 to 50 %" in open_ended
    assert open_ended.endswith("; --guess narrows them")
    alone = forecast_widths(AGE_INCOME, 9_000, calibrated_gram_noise("laplace", 2, 1.0)).assumptions
    assert "correlations" not in alone
    assert "standard deviations of features of 5 to 25 % of their range; --guess narrows them" in alone


def test_a_refusal_names_the_guesses_that_it_uses():
    box = PublicBox.of({"age": (0, 120), "income": (0, 200_000)})
    noise = calibrated_gram_noise("laplace", 2, 0.01)
    every = {"age": (20, 70), "income": (40_000, 90_000)}
    for guess, stated in (
        ({}, ", even for columns that fill their ranges and uncorrelated features; use"),
        (
            {"age": (20, 70)},
            ", even for columns as guessed, others that fill their ranges and uncorrelated features; use",
        ),
        (every, ", even for columns as guessed and uncorrelated features; use"),
    ):
        with pytest.raises(ValueError, match=re.escape(stated)):
            require_support(box, 200, noise, guess)


@pytest.mark.parametrize("correlation", [0.0, 0.8])
def test_variance_of_correlated_features_is_that_of_noisy_normal_equations(correlation):
    """The ends of the forecast are the deviations of least squares on noisy Gram matrices of many records."""
    box, n, rng = PublicBox.of({"a": (-1, 1), "b": (-1, 1), "y": (-1, 1)}), 1_000_000, np.random.default_rng(1)
    noise = calibrated_gram_noise("laplace", 3, 1.0)
    centres, spreads = np.array([0.2, -0.1]), np.array([0.3, 0.2])
    largest = 0.4 / np.sqrt(2 * (1 + correlation)) / spreads  # slopes that explain the response
    slopes = largest if correlation else np.minimum(0.5 / np.sqrt(2), largest)
    covariance = np.outer(spreads, spreads) * np.array([[1, correlation], [correlation, 1]])
    mean = np.array([1.0, *centres])
    exact = np.zeros((3, 3))
    exact[1:, 1:] = covariance
    exact = n * (exact + np.outer(mean, mean))
    theta = np.append(0.3 - slopes @ centres, slopes)
    drawn = noise.sample(rng, 4_000)
    right = exact @ theta + drawn[:, :3, 3]
    errors = np.linalg.solve(exact + drawn[:, :3, :3], right[..., None])[..., 0] - theta
    guess = {name: (c - np.sqrt(3) * s, c + np.sqrt(3) * s) for name, c, s in zip("ab", centres, spreads, strict=True)}
    guess["y"] = (0.3 - np.sqrt(3) * 0.4, 0.3 + np.sqrt(3) * 0.4)
    ends = [forecast_widths(box, size, noise, guess) for size in (n, 10**14)]
    whole, limit = ((end.high if correlation else end.low) for end in ends)
    variance = (whole / 3.92) ** 2 - (limit / 3.92) ** 2 * 1e8  # without that of the records
    np.testing.assert_allclose(errors.std(axis=0), np.sqrt(variance), rtol=0.06)
    if not correlation:  # without noise, the width is that of least squares with an error of 0.2
        np.testing.assert_allclose(limit[1:], 3.92 * 0.2 / (1e7 * spreads), rtol=1e-3)


def test_width_of_an_unknown_slope_does_not_depend_on_the_prior():
    """The quantile of t₂ at p is (2p − 1)·√(2/(4p(1 − p)))."""
    assert unknown_width(0.95) == pytest.approx(2 * 0.95 * np.sqrt(2 / (4 * 0.975 * 0.025)))
    assert unknown_width(0.95) == pytest.approx(8.6, abs=0.01)
    assert not hasattr(width_forecast, "RegressionPrior")


def test_more_features_than_the_budget_supports_are_refused():
    names = tuple(f"x{i}" for i in range(12))
    box = PublicBox((*names, "y"), (0.0,) * 13, (1.0,) * 13)
    noise = calibrated_gram_noise("laplace", 13, 0.2)
    with pytest.raises(ValueError, match=r"200 records must be enough for 12 features") as refused:
        require_support(box, 200, noise)
    forecast = forecast_widths(box, 200, noise)
    percent, width, _ = re.search(r"least (\d+) % .* such as (\S+) of (\w+),", str(refused.value)).groups()
    assert percent == f"{100 * np.median(forecast.low[1:]) / unknown_width(0.95):.0f}"
    assert float(width) == pytest.approx(forecast.low[1], rel=1e-2)


def test_ranges_ten_times_too_wide_are_not_refused():
    """Records may fill their ranges, which is not known before the release."""
    box = PublicBox.of({"age": (0, 120), "income": (0, 200_000)})
    forecast = require_support(box, 1_000, calibrated_gram_noise("laplace", 2, 1.0))
    assert (forecast.low < 0.1 * forecast.high).any()
