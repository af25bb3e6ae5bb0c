"""Checks of claims: estimates and tests of them, findings with three outcomes, and formatted evidence."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial, wraps
from typing import Any

import numpy as np
import xarray as xr

from pipeline import Finding, Look, claim, verdict
from pipeline.declare.factors import Factor, format_value

__all__ = ["Look"]

p0, p1, p2, p3, p4 = (partial(claim, paper=f"P{number}") for number in range(5))

Summaries = Mapping[str, xr.Dataset]
"""Summaries by panel."""

Estimate = tuple[xr.DataArray, Any]
"""Values and their Monte Carlo standard errors."""


def in_panels(panels: Iterable[str], **values: Any) -> dict[str, dict[str, Any]]:
    """Return the needs of a claim that reads the same values of several panels."""
    return {panel: dict(values) for panel in panels}


# Findings


def decide(holds: object, fails: object, evidence: str) -> Finding:
    """Return the finding of a significance test: the statement fails, holds, or is undecided."""
    return verdict(False if fails else True if holds else None, evidence)


def correct(printed: object, corrected: object, evidence: str) -> Finding:
    """Return the finding that the printed statement holds, that only its correction holds, or that neither holds."""
    return Finding("holds" if printed else "corrected" if corrected else "does not hold", evidence)


def together(parts: Iterable[Finding], form: str = "{}.", separator: str = "; ") -> Finding:
    """Return the finding that all parts hold, with their joined evidence in `form`; undecided without parts."""
    findings = list(parts)
    verdicts = {finding.verdict for finding in findings}
    holds = False if "does not hold" in verdicts else True if verdicts == {"holds"} else None
    evidence = separator.join(finding.evidence for finding in findings) or "nothing is stored"
    return verdict(holds, form.format(evidence), all(finding.is_settled for finding in findings))


def joined(
    form: str = "{}.", separator: str = "; "
) -> Callable[[Callable[..., Iterable[Finding]]], Callable[..., Finding]]:
    """Return a decorator of a function that yields the findings of parts, which are joined as by `together`."""

    def decorate(parts: Callable[..., Iterable[Finding]]) -> Callable[..., Finding]:
        return wraps(parts)(lambda *given, **options: together(parts(*given, **options), form, separator))

    return decorate


def smaller(ds: xr.Dataset, measure: str, method: str, other: str, deviations: float, factor: float = 1.0) -> Finding:
    """Test if the mean of a method is smaller than `factor` times that of another method in each cell.

    Differences are decided by `deviations` standard errors. The difference is tested, because a standard error of the
    ratio is small where the ratio is.
    """
    estimate = mean_ratio(ds, measure, method, other)
    where = f", largest at {place(largest(estimate[0]), estimate[0].dims)}" if estimate[0].dims else ""
    return decide(
        *below(0.0, gap(ds, measure, method, other, factor), deviations),
        f"Ratio of means of {measure}, {method} to {other}: {shown(estimate)}{where}.",
    )


def tested(ds: xr.Dataset) -> dict[str, xr.DataArray]:
    """Return the stored p-values of the tests that quantiles, ranks and joint coverage are uniform."""
    names = {"quantiles": "pit_p", "ranks": "rank_p", "joint coverage": "joint_p"}
    return {quantity: ds[name] for quantity, name in names.items() if name in ds}


def uniform(p_values: Mapping[str, xr.DataArray], level: float) -> Finding:
    """Test several arrays of p-values, with Bonferroni levels; NaN in cells without results."""
    n_tests = sum(int(values.count()) for values in p_values.values())
    share = level / n_tests
    least = [f"{lowest(values, '.2g')} for {quantity}" for quantity, values in p_values.items()]
    return verdict(
        all(values.min() > share for values in p_values.values()),
        f"p-values of at least {enumerated(least)}; values above {share:.2g} are accepted in {n_tests} tests",
    )


# Estimates, and tests of them: whether the statement holds, and whether it fails, both beyond the errors


def mean(ds: xr.Dataset, measure: str, **at: Any) -> Estimate:
    """Return the mean of a measure at some coordinates."""
    estimate, error = (ds[f"{measure}_{statistic}"].sel(at) for statistic in ("mean", "mcse"))
    return estimate, error


def _pair(ds: xr.Dataset, measure: str, *names: str) -> Iterator[Estimate]:
    """Yield the means of two methods, or of two values of the dimension that has them."""
    by = next(dim for dim in ds.sizes if set(names) <= set(ds[dim].values.tolist()))
    for name in names:
        yield mean(ds, measure, **{str(by): name})


def gap(ds: xr.Dataset, measure: str, method: str, other: str, factor: float = 1.0) -> Estimate:
    """Return the mean of one method minus `factor` times that of another."""
    (first, error), (second, spread) = _pair(ds, measure, method, other)
    return first - factor * second, np.hypot(error, factor * spread)


def mean_ratio(ds: xr.Dataset, measure: str, method: str, other: str) -> Estimate:
    """Return the ratio of two means; the standard error ignores correlations."""
    (first, error), (second, spread) = _pair(ds, measure, method, other)
    estimate = first / second
    return estimate, estimate * np.hypot(error / first, spread / second)


def at_most(limit: float, estimate: Estimate, deviations: float, slack: float | None = None) -> tuple[bool, bool]:
    """Return True, False if all values are <= limit beyond their errors, and False, True if one is larger.

    All values may be as large as limit − `slack` instead, such as 0 for a statement about estimates.
    """
    values, errors = estimate[0], deviations * estimate[1]
    margin = errors if slack is None else slack
    return bool((values + margin <= limit).all()), bool((values - errors > limit).any())


def above(limit: float, estimate: Estimate, deviations: float) -> tuple[bool, bool]:
    """Return True, False if all values exceed a limit by more than `deviations` errors; False, True if one is below."""
    values, errors = estimate[0], deviations * estimate[1]
    return bool((values - errors > limit).all()), bool((values + errors < limit).any())


def below(limit: float, estimate: Estimate, deviations: float) -> tuple[bool, bool]:
    """Return the test of `above` for values that have to fall below a limit."""
    return above(-limit, (-estimate[0], estimate[1]), deviations)


def both(*tests: tuple[bool, bool]) -> tuple[bool, bool]:
    """Return the test that all of several tests hold, which fails if one of them fails."""
    return all(holds for holds, _ in tests), any(fails for _, fails in tests)


def ratio(values: xr.DataArray, method: str, other: str) -> xr.DataArray:
    """Return the ratios of the values of two mechanisms."""
    return values.sel(mechanism=method) / values.sel(mechanism=other)


# Phrases of evidence


def shown(estimate: Estimate) -> str:
    """Format a value or the range of several, with the largest standard error."""
    return f"{span(estimate[0], '.3f')} {'±' if estimate[0].size == 1 else '± up to'} {estimate[1].max():.3f}"


def span(values: xr.DataArray, form: str = ".2f") -> str:
    """Format the range of the values; return a single number if both ends are equal in this format."""
    low, high = (format(float(end), form) for end in (values.min(), values.max()))
    return low if low == high else f"{low} to {high}"


def listed(values: Iterable[Any], form: str) -> str:
    """Format values, separated by commas."""
    return ", ".join(format(float(value), form) for value in values)


def enumerated(texts: Sequence[str]) -> str:
    """Join texts by commas, and the last two by "and"."""
    return " and ".join(filter(None, (", ".join(texts[:-1]), *texts[-1:])))


def named(values: xr.DataArray, names: Iterable[str], form: str, dim: str = "mechanism") -> str:
    """Format the values of several mechanisms with their names, separated by commas."""
    return ", ".join(f"{name} {format(float(values.sel({dim: name})), form)}" for name in names)


def largest(values: xr.DataArray) -> xr.DataArray:
    """Return the largest value as a scalar with its coordinates; missing values are ignored."""
    return values.isel(values.fillna(-np.inf).argmax(...))


def smallest(values: xr.DataArray) -> xr.DataArray:
    """Return the smallest value as a scalar with its coordinates; missing values are ignored."""
    return values.isel(values.fillna(np.inf).argmin(...))


def place(value: xr.DataArray, dims: Iterable[Any]) -> str:
    """Format the coordinates of a scalar along the dimensions `dims`."""
    return ", ".join(f"{dim} = {format_value(value[dim].item())}" for dim in dims)


def count(hits: xr.DataArray, among: xr.DataArray | None = None) -> str:
    """Format the number of hits among some values, or all, such as "3 of 12"."""
    among = xr.ones_like(hits, bool) if among is None else among
    return f"{int((hits & among).sum()):,} of {int(among.sum()):,}"


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
    return abs(signed_ks_distance(quantiles))


def signed_ks_distance(quantiles: np.ndarray) -> float:
    """Return the Kolmogorov–Smirnov distance, with a negative sign if quantiles are too small rather than too large.

    It is the larger one of max(u − F(u−)) and −max(F(u) − u) in absolute value, for the empirical distribution
    function F.
    """
    ordered, levels = np.sort(quantiles), np.arange(quantiles.size + 1) / quantiles.size
    too_large, too_small = float((ordered - levels[:-1]).max()), float((levels[1:] - ordered).max())
    return too_large if too_large >= too_small else -too_small


def ks_p_value(quantiles: np.ndarray) -> float:
    """Return the p-value of the Kolmogorov–Smirnov test that quantiles are uniform.

    The result is equal to that of `scipy.stats.kstest`, in half the time.
    """
    from scipy.stats import kstwo  # slow import (0.5 s), not needed by `dpstudies list`

    return float(kstwo.sf(ks_distance(quantiles), quantiles.size))
