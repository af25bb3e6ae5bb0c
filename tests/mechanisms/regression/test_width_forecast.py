"""Tests of the forecast of widths."""

import re

import numpy as np
import pytest

from mechanisms.regression.gram_release import PublicBox, calibrated_gram_noise, gram_sums, release_gram
from mechanisms.regression.gram_samplers import sample_gram
from mechanisms.regression.width_forecast import forecast_widths, prior_width, require_support

AGE_INCOME = PublicBox.of({"age": (18, 90), "income": (0, 200_000)})
INDICATOR = PublicBox.of({"smoker": (0, 1), "income": (0, 200_000)})


def realised(box, x, noise, trials):
    """Return median widths of the intervals of (intercept, slopes) of rehearsals."""
    widths = []
    for trial in range(trials):
        rng = np.random.default_rng([20_262, trial])
        y = 40_000 + x @ np.full(x.shape[1], 300.0) + rng.normal(0, 20_000, len(x))
        gram = gram_sums(box, np.column_stack([x, y]))[0] / 2.0**32
        gram[0, 0] = len(x)
        draws = sample_gram(rng, "normal-covariates", release_gram(rng, gram, noise), None, 2, 200, 250)
        draws = box.unscale(draws[..., : box.p + 1])
        widths.append(np.ptp(np.quantile(draws.reshape(-1, box.p + 1), [0.025, 0.975], axis=0), axis=0)[:-1])
    return np.median(widths, axis=0)


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
    np.testing.assert_array_equal(narrow.low, narrow.high)
    assert (np.abs(np.log2(narrow.low / widths)) < 1.0).all()
    wide = forecast_widths(box, n, noise, indicators=("smoker",))
    assert (0.5 * wide.low < widths).all()
    assert (widths < 2.0 * wide.high).all()


def test_variance_of_a_slope_is_that_of_noisy_normal_equations():
    """Least squares on a noisy Gram matrix of many records has the variance of the formula."""
    box, n, rng = PublicBox.of({"a": (-1, 1), "b": (-1, 1), "y": (-1, 1)}), 1_000_000, np.random.default_rng(1)
    noise = calibrated_gram_noise("laplace", 3, 1.0)
    centres, spreads, slopes = np.array([0.2, -0.1]), np.array([0.3, 0.2]), np.full(2, 0.5 / np.sqrt(2))
    mu = np.array([*centres, 0.3])
    psi = np.diag([*spreads**2, 0.04])
    psi[:2, 2] = psi[2, :2] = spreads**2 * slopes
    psi[2, 2] += (spreads**2 * slopes**2).sum()
    exact = np.zeros((4, 4))
    exact[0, 0], exact[0, 1:], exact[1:, 0] = n, n * mu, n * mu
    exact[1:, 1:] = n * (psi + np.outer(mu, mu))
    noisy = exact + noise.sample(rng, 4_000)
    errors = np.linalg.solve(noisy[:, :3, :3], noisy[:, :3, 3:])[:, 1:, 0] - slopes
    guess = {name: (c - np.sqrt(3) * s, c + np.sqrt(3) * s) for name, c, s in zip("ab", centres, spreads, strict=True)}
    guess["y"] = (0.3 - 0.4, 0.3 + 0.4)  # its spread is above 0.2, and its centre 0.3
    both = [forecast_widths(box, size, noise, guess).low[1:] for size in (n, 10**14)]
    variance = (both[0] / 3.92) ** 2 - 0.04 / (n * spreads**2)  # without that of the records
    np.testing.assert_allclose(errors.std(axis=0), np.sqrt(variance), rtol=0.06)
    np.testing.assert_allclose(both[1], 3.92 * 0.2 / (1e7 * spreads), rtol=1e-3)


def test_more_features_than_the_budget_supports_are_refused():
    names = tuple(f"x{i}" for i in range(12))
    box = PublicBox((*names, "y"), (0.0,) * 13, (1.0,) * 13)
    noise = calibrated_gram_noise("laplace", 13, 0.2)
    with pytest.raises(ValueError, match=r"200 records must be enough for 12 features") as refused:
        require_support(box, 200, noise)
    forecast = forecast_widths(box, 200, noise)
    percent, width, _ = re.search(r"least (\d+) % .* such as (\S+) of (\w+),", str(refused.value)).groups()
    assert percent == f"{100 * np.median(forecast.low[1:]) / prior_width(0.95):.0f}"
    assert float(width) == pytest.approx(forecast.low[1], rel=1e-2)


def test_ranges_ten_times_too_wide_are_not_refused():
    """Records may fill their ranges, which is not known before the release."""
    box = PublicBox.of({"age": (0, 120), "income": (0, 200_000)})
    forecast = require_support(box, 1_000, calibrated_gram_noise("laplace", 2, 1.0))
    assert (forecast.low < 0.1 * forecast.high).any()
