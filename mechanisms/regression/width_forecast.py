"""Public forecast of the widths of intervals of private regressions, in closed form.

Let columns be scaled to [−1, 1], with means x̄ and covariance Σ of features, n records, slopes θ, an intercept θ₀ and
residuals of standard deviation σ. The value of the line at z has the coefficients (1, z). Least squares solves
Σ_i (1, x_i)·r_i = 0 for residuals r; the noise M of the Gram matrix adds M·c, with c = (−θ₀, −θ, 1). To first order,
the error of an estimate is aᵀ(Σ_i (1, x_i, y_i)·r_i + M·c)/n, with

    a = (−x̄ᵀΣ⁻¹e_j, Σ⁻¹e_j, 0)                            for slope j,
    a = (1 − x̄ᵀh, h, 0), h = Σ⁻¹(z − x̄)                   for the value of the line at z,

so that its variance is, with variances v of entries of M off the diagonal, v′ on it and M₀₀ = 0,

    σ²·(Σ⁻¹)_jj/n + (v·(|a|²·|c|² + (aᵀc)² − 2·Σ a_i²c_i²) + v′·Σ_{i>0} a_i²c_i²)/n²,

where 1 + (z − x̄)ᵀh replaces (Σ⁻¹)_jj for a value of the line. As (Σ⁻¹)_jj = 1/(s_j²·(1 − R_j²)), a feature with
standard deviation s_j informs by its spread given the other features, which explain a share R_j² of its variance. The
intercept is the value of the line where all columns are 0 in their own units. Intervals are wider, up to those of the
prior, where eigenvalues of n·Σ are no larger than those of the noise: five features with correlations of 0.8 and 20,000
records have about twice the width.

The forecast is a range over unknown properties:

* features have a spread of 0.1 to 0.5 half widths of their range and a mean in its middle or half way to its end, or
  values 0 and 1 with a prevalence of 0.05 to 0.5, unless a public guess states them;
* one common cause correlates numbers by 0 to 0.8, levels by 0 to 0.5 and both by 0 to 0.63;
* Σθ² is 0.25, or the slopes explain the whole spread s_y of the response, θ_j·s_j all equal. No slope of the first kind
  exceeds one of the second, as |θ_j|·s_j ≤ s_y for uncorrelated features.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from scipy import special, stats

from mechanisms.core.arguments import Floats
from mechanisms.regression.gram_release import GramNoise, PublicBox

Guess = tuple[float, float] | float
"""Range that most values of a column have, or the prevalence of a value 1 of a column of zeros and ones."""

_RESIDUAL, _SLOPE = 0.2, 0.5  # σ, and the root of Σθ², in scaled units
_NUMBERS, _LEVELS = 0.8, 0.5  # largest correlations of two columns of numbers, and of two levels
_SPREADS, _CENTRES, _PREVALENCES = (0.1, 0.3, 0.5), (0.0, 0.5), (0.05, 0.2, 0.5)
_UNINFORMATIVE = 0.8  # median ratio to the widths of unknown slopes from which a release is refused


@dataclass(frozen=True)
class Column:
    """Mean and standard deviation of a scaled column."""

    centre: float
    spread: float


@dataclass(frozen=True, eq=False, repr=False)
class WidthForecast:
    """Widths of the intervals of (intercept, slopes), for the most and the least informative columns."""

    low: Floats
    high: Floats
    assumptions: str = ""  # about the columns, in words


def forecast_widths(
    box: PublicBox,
    n: int,
    noise: GramNoise,
    guesses: Mapping[str, Guess] | None = None,
    indicators: Collection[str] = (),
    level: float = 0.95,
) -> WidthForecast:
    """Return the forecast; `guesses` are in the units of the columns, and `indicators` have values 0 and 1."""
    guesses = guesses or {}
    candidates = [_typical_columns(box, k, guesses.get(name), name in indicators) for k, name in enumerate(box.names)]
    shares = np.array([_LEVELS if name in indicators else _NUMBERS for name in box.names[:-1]])
    widest = unknown_width(level) * _units(box)
    widths = []
    for choice in range(max(map(len, candidates))):  # all columns are equally informative at once
        columns = [several[min(choice, len(several) - 1)] for several in candidates]
        for correlations in _correlations(shares):
            for slopes in _slopes(columns, correlations):
                expected = _widths(box, n, noise, columns, correlations, slopes, level)
                widths.append(np.minimum(expected, widest))
    return WidthForecast(np.min(widths, axis=0), np.max(widths, axis=0), _state_assumptions(box, guesses, indicators))


def unknown_width(level: float) -> float:
    """Return the width of the interval of a slope about which nothing is known, in scaled units: 8.6 for 95 %.

    The slope has Student's t distribution with 2 degrees of freedom and scale 1, whatever the prior of the inference.
    """
    return 2.0 * float(stats.t(2).ppf(0.5 + level / 2.0))


def require_support(
    box: PublicBox,
    n: int,
    noise: GramNoise,
    guesses: Mapping[str, Guess] | None = None,
    indicators: Collection[str] = (),
    level: float = 0.95,
) -> WidthForecast:
    """Return the forecast; raise ValueError if even informative columns would say next to nothing about the slopes."""
    guesses = guesses or {}
    validate_guesses(box, guesses, indicators)
    if n < box.p + 2:
        raise ValueError(f"n must be at least {box.p + 2} for {box.p - 1} features, got {n}; use fewer features")
    forecast = forecast_widths(box, n, noise, guesses, indicators, level)
    ratio = forecast.low[1:] / (unknown_width(level) * _units(box)[1:])
    median = np.median(ratio)
    if median > _UNINFORMATIVE:
        k = int(np.argmin(np.abs(ratio - median)))
        example = f"{forecast.low[1 + k]:.3g} of {box.names[k]}"
        raise ValueError(
            f"{n:,} records must be enough for {box.p - 1} features at this epsilon, got expected intervals with at "
            f"least {100 * median:.0f} % of the widths of unknown slopes in the median, such as {example}, "
            f"{_best_case(box, guesses)}; use fewer features, narrower bounds or a larger epsilon"
        )
    return forecast


def validate_guesses(box: PublicBox, guesses: Mapping[str, Guess], indicators: Collection[str]) -> None:
    """Raise ValueError for a guess of no column, outside its range, or of the wrong kind."""
    ranges = dict(zip(box.names, zip(box.low, box.high, strict=True), strict=True))
    for name, guess in guesses.items():
        if name not in ranges:
            raise ValueError(f"guess must name a column of the regression, got {name}; choose of {', '.join(ranges)}")
        low, high = ranges[name]
        if isinstance(guess, tuple):
            if name in indicators or not low <= guess[0] < guess[1] <= high:
                shown = f"{guess[0]:g}:{guess[1]:g}"
                allowed = (
                    "a prevalence, such as 0.2" if name in indicators else f"LOW:HIGH in its range {low:g}:{high:g}"
                )
                raise ValueError(f"guess of {name} must be {allowed}, got {shown}; change it, or omit it")
        elif not 0.0 < guess < 1.0 or (low, high) != (0.0, 1.0):
            raise ValueError(
                f"guess of {name} must be a prevalence in (0, 1) of a column with the range 0:1, or LOW:HIGH, got "
                f"{guess:g}; change it, or omit it"
            )


def _units(box: PublicBox) -> Floats:
    """Return the size of a scaled intercept and of scaled slopes of 1 in the units of the columns."""
    slopes = box.half[-1] / box.half[:-1]
    return np.concatenate([[box.half[-1] + np.abs(slopes * box.middle[:-1]).sum()], slopes])


def _typical_columns(box: PublicBox, k: int, guess: Guess | None, is_indicator: bool) -> list[Column]:
    """Return columns that are possible, from the most informative."""
    middle, half, is_target = box.middle[k], box.half[k], k == box.p - 1
    if isinstance(guess, tuple):
        width = (guess[1] - guess[0]) / (2.0 * half)
        return [Column((sum(guess) / 2.0 - middle) / half, width / math.sqrt(3.0))]
    if guess is not None:
        return [_indicator(guess)]
    if is_target:
        return [Column(0.0, _SPREADS[-1])]
    numbers = [Column(centre, spread) for spread, centre in itertools.product(_SPREADS[::-1], _CENTRES)]
    shares = [_indicator(prevalence) for prevalence in _PREVALENCES[::-1]]
    if is_indicator:
        return shares
    return shares[:1] + numbers if (box.low[k], box.high[k]) == (0.0, 1.0) else numbers


def _indicator(prevalence: float) -> Column:
    return Column(2.0 * prevalence - 1.0, 2.0 * math.sqrt(prevalence * (1.0 - prevalence)))


def _correlations(shares: Floats) -> list[Floats]:
    """Return uncorrelated features, and features of which a common cause explains shares of the variances."""
    independent = np.eye(len(shares))
    if len(shares) == 1:
        return [independent]
    common = np.sqrt(np.outer(shares, shares))
    np.fill_diagonal(common, 1.0)
    return [independent, common]


def _slopes(columns: list[Column], correlations: Floats) -> list[Floats]:
    """Return small slopes, and those that explain the whole spread of the response, equally by all features."""
    *features, response = columns
    largest = response.spread / np.sqrt(correlations.sum()) / np.array([column.spread for column in features])
    return [np.minimum(_SLOPE / math.sqrt(len(features)), largest), largest]


def _widths(
    box: PublicBox, n: int, noise: GramNoise, columns: list[Column], correlations: Floats, slopes: Floats, level: float
) -> Floats:
    """Return the widths of the intercept and the slopes in the units of the columns."""
    *features, response = columns
    centres, spreads = (np.array([getattr(column, name) for column in features]) for name in ("centre", "spread"))
    precision = np.linalg.inv(correlations * np.outer(spreads, spreads))
    zero = -box.middle[:-1] / box.half[:-1] - centres  # where the features are 0 in their own units
    directions = np.vstack([precision @ zero, precision])
    shares = np.append(1.0 + zero @ precision @ zero, np.diag(precision))  # variances of records, over σ²/n
    a = np.column_stack([-directions @ centres, directions, np.zeros(len(directions))])
    a[0, 0] += 1.0
    c = np.concatenate([[slopes @ centres - response.centre], -slopes, [1.0]])
    on = noise.variance
    off = on if noise.name == "laplace" else on / 2.0
    products = (a * c) ** 2
    pairs = (a**2).sum(1) * (c**2).sum() + (a @ c) ** 2 - 2.0 * products.sum(1)
    error = min(_RESIDUAL, response.spread)
    variance = error**2 * shares / n + (off * pairs + on * products[:, 1:].sum(1)) / n**2
    units = np.append(box.half[-1], box.half[-1] / box.half[:-1])
    return 2.0 * float(special.ndtri(0.5 + level / 2.0)) * np.sqrt(variance) * units


def _state_assumptions(box: PublicBox, guesses: Mapping[str, Guess], indicators: Collection[str]) -> str:
    """Return the assumptions of a forecast in words."""
    response = box.names[-1]
    parts = [
        f"an error with a standard deviation of at most {50 * _RESIDUAL:g} % of the range of {response}",
        f"slopes that are small or explain all of the spread of {response}",
    ]
    if box.p > 2:
        kinds = {"features": (_NUMBERS, set(box.names[:-1]) - set(indicators)), "levels": (_LEVELS, set(indicators))}
        largest = ", ".join(f"of {kind} of 0 to {most:g}" for kind, (most, names) in kinds.items() if names)
        parts.append(f"correlations {largest}")
    without = set(box.names[:-1]) - set(guesses)
    if without - set(indicators):
        low, *_, high = sorted(50 * spread for spread in _SPREADS)
        parts.append(f"standard deviations of features of {low:g} to {high:g} % of their range")
    if without & set(indicators):
        parts.append(f"shares of levels of {100 * _PREVALENCES[0]:g} to {100 * _PREVALENCES[-1]:g} %")
    can_narrow = without or response not in guesses
    return ", ".join(parts) + ("; --guess narrows them" if can_narrow else "")


def _best_case(box: PublicBox, guesses: Mapping[str, Guess]) -> str:
    """Return the most favourable columns of a forecast in words."""
    filled = "columns that fill their ranges"
    if guesses:
        filled = "columns as guessed" + (", others that fill their ranges" if set(box.names) - set(guesses) else "")
    return f"even for {filled} and uncorrelated features"
