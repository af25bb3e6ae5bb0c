"""Tables of the studies of regression by partitions: comparisons of methods, and audited privacy losses."""

from collections.abc import Callable, Iterator

import numpy as np
import xarray as xr

from mechanisms.regression.partition_probability import PROBABILITY_METHODS
from mechanisms.regression.partition_quantile import QUANTILE_METHODS
from studies.claims import Summaries, span, vector
from studies.regression.partition_figures import by_noise
from studies.tables import AuditedLoss, Column, PageTable, compare_methods, plus_minus


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
        lost, both = float(ds["search_epsilon"].sel(algorithm=name)), float(total.sel(algorithm=name))
        place = f"all data sets, {n} partitions, {ds.sizes['ring'] - 1} doublings"
        yield AuditedLoss(f"search of {name}", "ε₁-DP", lost / part, lost, 1, place)
        place = f"one of {n} quantiles moved, search and mean together"
        yield AuditedLoss(name, "(ε₁ + ε₂)-DP", both / epsilon, both, 2, place)
    if "quantile-centred" in names:
        loss = float(total.sel(algorithm="quantile-centred"))
        place = f"one of {n} partitions moved, sum of the losses of three steps"
        yield AuditedLoss("quantile-centred", "(ε₁ + ε₂)-DP", loss / epsilon, loss, 3, place)
