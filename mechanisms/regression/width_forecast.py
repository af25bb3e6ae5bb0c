"""Public forecast of the widths of intervals of private regressions, in closed form.

Let columns be scaled to [−1, 1], with means x̄_j and standard deviations s_j of uncorrelated features, n records,
slopes θ_j, an intercept θ₀ and residuals of standard deviation σ. Least squares solves Σ_i (x_ij − x̄_j)·r_i = 0 for
residuals r. With the noise M of the Gram matrix, the left side is that of the records plus aᵀMc, with
a = e_j − x̄_j·e₀ and c = (−θ₀, −θ, 1), so that its variance is

    v_j = σ²·n·s_j² + v·(1 + Σ_{k≠j} θ_k²·(1 + x̄_j²) + x̄_j² + (θ₀ − θ_j·x̄_j)²) + v′·θ_j²,

where v and v′ are the variances of entries of M off the diagonal and on it. The standard deviation of slope j is
√v_j/(n·s_j²). The intercept is the value of the line where all columns are 0 in their own units.

The forecast is a range over unknown columns: features have a spread of 0.1 to 0.5 half widths of their range and a mean
in its middle or half way to its end, or values 0 and 1 with a prevalence of 0.05 to 0.5. A public guess narrows it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from scipy import special, stats

from mechanisms.arguments import Floats
from mechanisms.regression.gram_priors import RegressionPrior
from mechanisms.regression.gram_release import GramNoise, PublicBox

Guess = tuple[float, float] | float
"""Range that most values of a column have, or the prevalence of a value 1 of a column of zeros and ones."""

_RESIDUAL, _SLOPE = 0.2, 0.5  # σ, and the root of Σθ², in scaled units
_SPREADS, _CENTRES, _PREVALENCES = (0.1, 0.3, 0.5), (0.0, 0.5), (0.05, 0.2, 0.5)
_UNINFORMATIVE = 0.8  # fraction of the widths of the prior from which a release is refused, in the median over slopes


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


def forecast_widths(
    box: PublicBox,
    n: int,
    noise: GramNoise,
    guesses: Mapping[str, Guess] | None = None,
    indicators: Collection[str] = (),
    level: float = 0.95,
) -> WidthForecast:
    """Return the forecast; `guesses` are in the units of the columns, and `indicators` have values 0 and 1."""
    candidates = [
        _typical_columns(box, k, (guesses or {}).get(name), name in indicators) for k, name in enumerate(box.names)
    ]
    widest = prior_width(level)
    found = []
    for choice in range(max(map(len, candidates))):  # all columns are equally informative at once
        columns = [several[min(choice, len(several) - 1)] for several in candidates]
        found.append(np.minimum(_widths(box, n, noise, columns, level), widest * _units(box)))
    return WidthForecast(np.min(found, axis=0), np.max(found, axis=0))


def prior_width(level: float) -> float:
    """Return the width of the interval of a slope under the prior, in scaled units."""
    return 2.0 * RegressionPrior().slope * float(stats.t(2).ppf(0.5 + level / 2.0))


def require_support(
    box: PublicBox,
    n: int,
    noise: GramNoise,
    guesses: Mapping[str, Guess] | None = None,
    indicators: Collection[str] = (),
    level: float = 0.95,
) -> WidthForecast:
    """Return the forecast; raise ValueError if even informative columns would say next to nothing about the slopes."""
    validate_guesses(box, guesses or {}, indicators)
    if n < box.p + 2:
        raise ValueError(f"n must be at least {box.p + 2} for {box.p - 1} features, got {n}; use fewer features")
    forecast = forecast_widths(box, n, noise, guesses, indicators, level)
    ratio = forecast.low[1:] / (prior_width(level) * _units(box)[1:])
    median = np.median(ratio)
    if median > _UNINFORMATIVE:
        k = int(np.argmin(np.abs(ratio - median)))
        example = f"{forecast.low[1 + k]:.3g} of {box.names[k]}"
        raise ValueError(
            f"{n:,} records must be enough for {box.p - 1} features at this epsilon, got expected intervals with at "
            f"least {100 * median:.0f} % of the prior's widths in the median, such as {example}, even for columns that "
            "fill their ranges; use fewer features, narrower bounds or a larger epsilon"
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


def _widths(box: PublicBox, n: int, noise: GramNoise, columns: list[Column], level: float) -> Floats:
    """Return the widths of the intercept and the slopes in the units of the columns."""
    *features, response = columns
    d, z = len(features), 2.0 * float(special.ndtri(0.5 + level / 2.0))
    centres, spreads = (np.array([getattr(column, name) for column in features]) for name in ("centre", "spread"))
    on = 2.0 * noise.scale**2 if noise.name == "laplace" else noise.scale**2
    off = on if noise.name == "laplace" else on / 2.0
    error = min(_RESIDUAL, response.spread)
    slopes = np.full(d, _SLOPE / math.sqrt(d))
    intercept = response.centre - (slopes * centres).sum()
    others = (slopes**2).sum() - slopes**2
    entries = 1.0 + others * (1.0 + centres**2) + centres**2 + (intercept - slopes * centres) ** 2
    variance = (error**2 * n * spreads**2 + off * entries + on * slopes**2) / (n * spreads**2) ** 2
    zeros = -box.middle[:-1] / box.half[:-1]  # where the features are 0 in their own units
    mean = error**2 / n + off * (1.0 + (slopes**2).sum()) / n**2
    at_zero = mean + ((zeros - centres) ** 2 * variance).sum()
    scaled = np.sqrt(np.concatenate([[at_zero], variance]))
    return z * scaled * np.concatenate([[box.half[-1]], box.half[-1] / box.half[:-1]])
