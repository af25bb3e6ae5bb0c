"""Helpers for checks of claims: findings with three outcomes, and formatted evidence."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial, wraps
from typing import Any

import numpy as np
import xarray as xr

from pipeline import Finding, Stored, claim, verdict
from pipeline.declare.factors import Factor, format_value

__all__ = ["Stored"]

p0, p1, p2, p3, p4 = (partial(claim, paper=f"P{number}") for number in range(5))

Summaries = Mapping[str, xr.Dataset]
"""Summaries by panel."""


def decide(holds: object, fails: object, evidence: str) -> Finding:
    """Return the finding of a significance test: the statement fails, holds, or is undecided."""
    return verdict(False if fails else True if holds else None, evidence)


def correct(printed: object, corrected: object, evidence: str) -> Finding:
    """Return the finding that the printed statement holds, that only its correction holds, or that neither holds."""
    return Finding("holds" if printed else "corrected" if corrected else "does not hold", evidence)


def together(parts: Iterable[Finding], form: str = "{}.", separator: str = "; ") -> Finding:
    """Return the finding that all parts hold, with their joined evidence in `form`; undecided without parts."""
    found = list(parts)
    verdicts = {one.verdict for one in found}
    holds = False if "does not hold" in verdicts else True if verdicts == {"holds"} else None
    evidence = separator.join(one.evidence for one in found) or "nothing is stored"
    return verdict(holds, form.format(evidence), all(one.is_settled for one in found))


def joined(
    form: str = "{}.", separator: str = "; "
) -> Callable[[Callable[..., Iterable[Finding]]], Callable[..., Finding]]:
    """Return a decorator of a function that yields the findings of parts, which are joined as by `together`."""

    def decorate(parts: Callable[..., Iterable[Finding]]) -> Callable[..., Finding]:
        return wraps(parts)(lambda *given, **options: together(parts(*given, **options), form, separator))

    return decorate


def select(summaries: Stored, panel: str, **at: Any) -> xr.Dataset:
    """Return a panel at values that the claim needs: a tuple per dimension, or one value of a dimension or constant.

    A dimension with one value is dropped.
    """
    needed = {name: values if isinstance(values, tuple) else (values,) for name, values in at.items()}
    stored: xr.Dataset = summaries.need(panel, **needed)
    chosen = {name: list(values) if isinstance(values, tuple) else values for name, values in at.items()}
    return stored.sel({name: values for name, values in chosen.items() if name in stored.dims})


def at_most(limit: float, values: xr.DataArray, errors: Any, slack: Any = None) -> tuple[bool, bool]:
    """Return True, False if all values are <= limit − errors, and False, True if one is significantly larger.

    All values may be as large as limit − `slack` instead, such as 0 for a statement about estimates.
    """
    margin = errors if slack is None else slack
    return bool((values + margin <= limit).all()), bool((values - errors > limit).any())


def above(limit: float, values: xr.DataArray, errors: Any) -> tuple[bool, bool]:
    """Return True, False if all values exceed a limit by more than `errors`, and False, True if one falls below it."""
    return bool((values - errors > limit).all()), bool((values + errors < limit).any())


def below(limit: float, values: xr.DataArray, errors: Any) -> tuple[bool, bool]:
    """Return the test of `above` for values that have to fall below a limit."""
    return above(-limit, -values, errors)


def both(*tests: tuple[bool, bool]) -> tuple[bool, bool]:
    """Return the test that all of several tests hold, which fails if one of them fails."""
    return all(holds for holds, _ in tests), any(fails for _, fails in tests)


def gap(
    ds: xr.Dataset, measure: str, one: str, other: str, deviations: float, by: str = "mechanism"
) -> tuple[xr.DataArray, xr.DataArray]:
    """Return the differences of two means, and `deviations` Monte Carlo standard errors of them."""
    mean, error = (ds[f"{measure}_{what}"] for what in ("mean", "mcse"))
    limit: Any = deviations * np.hypot(error.sel({by: one}), error.sel({by: other}))
    return mean.sel({by: one}) - mean.sel({by: other}), limit


def mean_ratio(
    ds: xr.Dataset, measure: str, one: str, other: str, by: str = "mechanism"
) -> tuple[xr.DataArray, xr.DataArray]:
    """Return the ratio of two means, and a bound of its Monte Carlo standard error, which ignores correlations."""
    mean = ds[f"{measure}_mean"]
    relative = ds[f"{measure}_mcse"] / mean
    found = mean.sel({by: one}) / mean.sel({by: other})
    return found, found * np.hypot(relative.sel({by: one}), relative.sel({by: other}))


def ratio(values: xr.DataArray, one: str, other: str) -> xr.DataArray:
    """Return the ratios of the values of two mechanisms."""
    return values.sel(mechanism=one) / values.sel(mechanism=other)


def uniform(summary: xr.Dataset, level: float) -> Finding:
    """Test quantiles and ranks, and joint coverage if stored, in each cell for uniformity, with Bonferroni levels.

    The p-values of the cells are ``pit_p``, ``rank_p`` and ``joint_p``, NaN in cells without results.
    """
    tested = {"pit_p": "quantiles", "rank_p": "ranks", "joint_p": "joint coverage"}
    stored = {what: summary[name] for name, what in tested.items() if name in summary}
    level /= sum(int(values.count()) for values in stored.values())
    listed = [f"{lowest(values, '.2g')} for {what}" for what, values in stored.items()]
    return verdict(
        all(values.min() > level for values in stored.values()),
        f"smallest p-value {' and '.join(listed)}; values above {level:.2g} are accepted",
    )


def span(values: xr.DataArray, form: str = ".2f") -> str:
    """Format the range of the values; return a single number if both ends are equal in this format."""
    low, high = (format(float(end), form) for end in (values.min(), values.max()))
    return low if low == high else f"{low} to {high}"


def listed(values: Iterable[Any], form: str) -> str:
    """Format values, separated by commas."""
    return ", ".join(format(float(value), form) for value in values)


def named(values: xr.DataArray, names: Iterable[str], form: str, dim: str = "mechanism") -> str:
    """Format the values of several mechanisms with their names, separated by commas."""
    return ", ".join(f"{name} {format(float(values.sel({dim: name})), form)}" for name in names)


def largest(values: xr.DataArray) -> xr.DataArray:
    """Return the largest value as a scalar with its coordinates; missing values are ignored."""
    return values.isel(values.fillna(-np.inf).argmax(...))


def smallest(values: xr.DataArray) -> xr.DataArray:
    """Return the smallest value as a scalar with its coordinates; missing values are ignored."""
    return values.isel(values.fillna(np.inf).argmin(...))


def place(one: xr.DataArray, dims: Iterable[Any]) -> str:
    """Format the coordinates of a scalar along the dimensions `dims`."""
    return ", ".join(f"{dim} = {format_value(one[dim].item())}" for dim in dims)


def highest(values: xr.DataArray, form: str) -> str:
    """Format the largest value with its coordinates."""
    return f"{format(float(values.max()), form)} ({place(largest(values), values.dims)})"


def lowest(values: xr.DataArray, form: str) -> str:
    """Format the smallest value with its coordinates."""
    return f"{format(float(values.min()), form)} ({place(smallest(values), values.dims)})"


def vector(summary: xr.Dataset, name: str) -> np.ndarray:
    """Return a vector-valued constant, which is stored as text."""
    return np.array(entries(summary[name].item()))


def entries(text: str) -> tuple[float, ...]:
    """Return the entries of a vector, which stores contain as text."""
    return Factor("entries", (text,), "", "vector").value  # type: ignore[return-value]


def ks_distance(quantiles: np.ndarray) -> float:
    """Return the Kolmogorov–Smirnov distance of quantiles to the uniform distribution; see `ks_p_value`."""
    ordered, levels = np.sort(quantiles), np.arange(quantiles.size + 1) / quantiles.size
    return float(np.maximum(levels[1:] - ordered, ordered - levels[:-1]).max())


def ks_p_value(quantiles: np.ndarray) -> float:
    """Return the p-value of the Kolmogorov–Smirnov test that quantiles are uniform.

    The result is equal to that of `scipy.stats.kstest`, in half the time.
    """
    from scipy.stats import kstwo  # slow import (0.5 s), not needed by `dpstudies list`

    return float(kstwo.sf(ks_distance(quantiles), quantiles.size))
