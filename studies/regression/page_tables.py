"""Tables of the studies of regression: comparisons of methods, and audited privacy losses."""

from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
import xarray as xr

from mechanisms.regression.partition_probability import PROBABILITY_METHODS
from mechanisms.regression.partition_quantile import QUANTILE_METHODS
from studies.claims import Summaries, mean_ratio, span, vector
from studies.panels import NOMINAL
from studies.regression.partition_figures import by_noise
from studies.tables import AuditedLoss, Column, PageTable, compare_methods, plus_minus

_RANGE_METHODS = ("normal-covariates", "noise-aware-published", "naive")
_CONTROLS = ("non-private", "noise-aware-uncorrected", "noise-aware-redrawn")


def compare_probabilities(summaries: Summaries) -> PageTable:
    """Compare the methods by the bias and error of their probabilities, with and without noise."""
    columns: dict[str, Column] = {}
    for noise, ds in by_noise(summaries["default"]).items() if "default" in summaries else ():
        columns[f"bias, {noise}"] = ds, _show_largest("cutoff", "mean")
        columns[f"RMSE, {noise}"] = ds, _show_largest("cutoff", "rmse")
    return compare_methods(
        "Posterior probabilities from partitions",
        "Largest bias and root mean squared error (RMSE) over the cutoffs, against the posterior given all rows, with "
        f"Monte Carlo standard errors; ε = {_epsilon(summaries)} per cutoff.",
        "algorithm",
        [PROBABILITY_METHODS],
        columns,
    )


def _show_largest(dim: str, what: str) -> Callable[[xr.Dataset], str]:
    """Return a function that formats a statistic of the differences where its absolute value is largest."""

    def show(ds: xr.Dataset) -> str:
        at = ds.isel({dim: int(np.argmax(np.abs(ds[f"difference_{what}"].values)))})
        error = at["difference_mcse" if what == "mean" else f"difference_{what}_mcse"]
        return plus_minus(float(at[f"difference_{what}"]), float(error))

    return show


def _epsilon(summaries: Summaries) -> str:
    return f"{float(summaries['default']['epsilon']):g}" if "default" in summaries else ""


def compare_quantiles(summaries: Summaries) -> PageTable:
    """Compare the methods by the differences between their quantiles and those of the posterior given all rows."""
    shown = {
        "median absolute difference": lambda ds: span(ds["difference_absolute"], ".2f"),
        "median": _show_largest("p", "median"),
        "interquartile range": _width,
    }
    return compare_methods(
        "Posterior quantiles from partitions",
        "Difference to the quantile given all rows, in posterior standard deviations, "
        f"ε = {_epsilon(summaries)}: range of the median absolute difference "
        "over all p, and median and interquartile range of largest size, with Monte Carlo standard errors.",
        "algorithm",
        [{name: method for name, method in QUANTILE_METHODS.items() if method.has_noise}],
        {head: (summaries["default"], show) for head, show in shown.items() if "default" in summaries},
    )


def _width(ds: xr.Dataset) -> str:
    width = ds["difference_q75"] - ds["difference_q25"]
    at = ds.isel(p=int(np.argmax(width.values)))
    return plus_minus(float(width.max()), float(np.hypot(at["difference_q75_mcse"], at["difference_q25_mcse"])))


def audited_probabilities(summaries: Summaries) -> Iterator[AuditedLoss]:
    """Yield the exact loss of the release at one cutoff when the worst-case row is replaced."""
    if "audit" not in summaries:
        return
    ds = summaries["audit"]
    n, epsilon = int(ds["n"]), float(ds["epsilon"])
    place = f"one of {n:,} rows replaced by the worst, {n // int(ds['partition_size']):,} partitions"
    for name in ds["algorithm"].values.tolist():
        loss, is_private = float(ds["exact_epsilon"].sel(algorithm=name)), PROBABILITY_METHODS[name].is_private
        states = "ε-DP per cutoff" if is_private else "ε-DP, as printed"
        yield AuditedLoss(name, states, loss / epsilon, loss, 1, place, is_private)


def audited_quantiles(summaries: Summaries) -> Iterator[AuditedLoss]:
    """Yield the losses of the search for bounds and of the releases with and without a private centre."""
    if "audit" not in summaries:
        return
    ds = summaries["audit"]
    n, epsilon, part = int(ds["n_partitions"]), float(ds["epsilon"]), float(vector(ds, "split")[0])
    total, names = ds["exact_epsilon"], ds["algorithm"].values
    for name in (name for name in ("quantile", "quantile-exact") if name in names):
        lost, total_loss = float(ds["search_epsilon"].sel(algorithm=name)), float(total.sel(algorithm=name))
        place = f"all data sets, {n} partitions, {ds.sizes['ring'] - 1} doublings"
        yield AuditedLoss(f"search of {name}", "ε₁-DP", lost / part, lost, 1, place)
        place = f"one of {n} quantiles moved, search and mean together"
        yield AuditedLoss(name, "(ε₁ + ε₂)-DP", total_loss / epsilon, total_loss, 2, place)
    if "quantile-centred" in names:
        loss = float(total.sel(algorithm="quantile-centred"))
        place = f"one of {n} partitions moved, sum of the losses of three steps"
        yield AuditedLoss("quantile-centred", "(ε₁ + ε₂)-DP", loss / epsilon, loss, 3, place)


def compare_intervals(track: str, summaries: Summaries) -> PageTable:
    """Return the method with the smallest mean interval score of the slope per n and ε on a track, with margins."""
    return PageTable(
        f"Private regression on one covariate: which method, {track} track",
        "Smallest mean interval score of the slope, for records inside the bounds; methods whose mean is within two "
        "Monte Carlo standard errors of it, which ignore their correlation; and the first method beyond, with the "
        "factor by which its score is larger.",
        ("n", "ε", "n·ε", "method", "score", "no different", "next", "margin"),
        list(_winners(summaries["one-feature"], track)) if "one-feature" in summaries else [],
        prose=(5,),
    )


def _winners(ds: xr.Dataset, track: str) -> Iterator[tuple[str, ...]]:
    if track not in ds["track"].values or "inside" not in ds["records"].values:
        return
    names = [name for name in ds["algorithm"].values.tolist() if name not in _CONTROLS]
    ds = ds.sel(track=track, records="inside", component="slope-1", algorithm=names)
    for n, epsilon in product(ds["n"].values.tolist(), ds["epsilon"].values.tolist()):
        ranked = ds.sel(n=n, epsilon=epsilon).dropna("algorithm", subset=["score_mean"]).sortby("score_mean")
        if not ranked.sizes["algorithm"]:
            continue
        first, *others = ranked["algorithm"].values.tolist()
        margins = {name: tuple(map(float, mean_ratio(ranked, "score", name, first))) for name in others}
        equal = [name for name, (ratio, error) in margins.items() if ratio - 1.0 <= 2.0 * error]
        then = next((name for name in others if name not in equal), None)
        score = plus_minus(float(ranked["score_mean"][0]), float(ranked["score_mcse"][0]))
        margin = plus_minus(*margins[then]) if then else ""
        yield f"{n:,}", f"{epsilon:g}", f"{n * epsilon:,g}", first, score, ", ".join(equal), then or "", margin


def compare_coverage(track: str, summaries: Summaries) -> PageTable:
    """Return the n at which intervals of the slope are calibrated, per method and kind of records, on a track."""
    ds = summaries.get("one-feature")
    kinds = [] if ds is None else ds["records"].values.tolist()
    return PageTable(
        f"Private regression on one covariate: n at which intervals hold, {track} track",
        "Smallest and largest n at which nominal 95 % intervals of the slope at ε = 1 have a coverage not below 0.95 "
        "by more than two Monte Carlo standard errors, and the coverage at the largest n of the method. Records that "
        "are not normal, or clamped, bias the slope itself, which matters more the smaller the noise is.",
        ("method", *kinds),
        [] if ds is None else list(_covered(ds, track)),
        prose=(0,),
    )


def _covered(ds: xr.Dataset, track: str) -> Iterator[tuple[str, ...]]:
    if track not in ds["track"].values or 1.0 not in ds["epsilon"].values:
        return
    ds = ds.sel(track=track, epsilon=1.0, component="slope-1")
    for name in ds["algorithm"].values.tolist():
        coverage = ds.sel(algorithm=name)
        kinds = [coverage.sel(records=kind).dropna("n", subset=["covered_mean"]) for kind in coverage["records"].values]
        if name not in _CONTROLS and any(kind.sizes["n"] for kind in kinds):
            yield name, *map(_holding_sizes, kinds)


def compare_ranges(track: str, summaries: Summaries) -> PageTable:
    """Return the coverage of the slope and the error variance per width of the public ranges, on a track."""
    return PageTable(
        f"Private regression in wide ranges, {track} track",
        "Coverage of nominal 95 % intervals of the slope / the error variance at ε = 1, if records fill a part of the "
        "range of each column: all, a third or a tenth, in its middle or near its end. Records are not clamped. In "
        "tests/benchmarks/bench_coverage.py, where 0.7 % of the responses are clamped, intervals of normal-covariates "
        "given 100,000 records cover the slope with probability 0.89 and the error variance with 0.86 at ε = 1.",
        ("n", "place", "factor", *_RANGE_METHODS),
        list(_in_ranges(summaries["ranges"], track)) if "ranges" in summaries else [],
    )


def _in_ranges(ds: xr.Dataset, track: str) -> Iterator[tuple[str, ...]]:
    if track not in ds["track"].values or 1.0 not in ds["epsilon"].values:
        return
    covered = ds["covered_mean"].sel(track=track, epsilon=1.0)
    for n, place, factor in product(*(ds[name].values.tolist() for name in ("n", "place", "range_factor"))):
        rates = covered.sel(n=n, place=place, range_factor=factor)
        yield f"{n:,}", place, f"{factor:g}", *(_slope_and_variance(rates, name) for name in _RANGE_METHODS)


def _slope_and_variance(rates: xr.DataArray, method: str) -> str:
    if method not in rates["algorithm"].values:
        return ""
    values = rates.sel(algorithm=method, component=["slope-1", "variance"]).values
    return "" if np.isnan(values).any() else " / ".join(f"{value:.2f}" for value in values)


def _holding_sizes(one: xr.Dataset) -> str:
    """Return the smallest and largest n at which the coverage is not below the nominal one, and the last coverage."""
    if not one.sizes["n"]:
        return ""
    sizes = one["n"].values[(one["covered_mean"] + 2.0 * one["covered_mcse"] >= NOMINAL).values].tolist()
    ends = " to ".join(f"{n:,}" for n in dict.fromkeys((sizes[0], sizes[-1]))) if sizes else "none"
    return f"{ends} ({float(one['covered_mean'][-1]):.2f} at {int(one['n'][-1]):,})"
