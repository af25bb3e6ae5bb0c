"""Comparisons of improved methods with those of the papers, with Monte Carlo standard errors, from the stores."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import xarray as xr

from pipeline.declare.factors import format_value
from studies.laboratory.results import Results
from studies.laboratory.tables import Table, plus_minus
from studies.report import Summaries

_ACCURACY = {
    "smooth": "P0",
    "smooth-n": "P0, N = n + 1",
    "varying": "P1",
    "global": "P1",
    "laplace": "baseline",
    "laplace-dimension": "P0's baseline",
    "geometric": "Ghosh et al.",
    "smooth-exact": "ours",
    "varying-exact": "ours",
    "varying-bound": "ours",
    "hamming-exact": "ours",
}
_CALIBRATION = {
    "non-private": "control",
    "naive": "baseline",
    "gibbs-published": "P4",
    "gibbs": "P4, corrected",
    "gibbs-collapsed": "ours",
    "marginal": "ours",
}


_LARGEST_KS = 1.63  # 99 % point of the Kolmogorov distribution, which scales with 1/√trials


def comparison_tables(results: Results) -> list[Table]:
    """Return the comparison tables of the stored methods."""
    panels = {(name, panel): ds for name, one in results.items() for panel, ds in one.summaries.items()}
    makers = (
        ("hellinger-accuracy", _accuracy),
        ("hellinger-limits", _limits),
        ("calibration", _calibration),
        ("partition-probability", _probabilities),
        ("partition-quantile", _quantiles),
        ("renyi-utility", _utility),
        ("renyi-logistic", _logistic),
    )
    tables = [make({panel: ds for (of, panel), ds in panels.items() if of == name}) for name, make in makers]
    return [table for table in tables if table.rows]


def _table(
    title: str, caption: str, by: str, heads: Sequence[str], cells: Mapping[tuple[str, str], list[str]]
) -> Table:
    """Return a table of the methods, by name and origin, that have at least one number."""
    rows = [(*named, *texts) for named, texts in cells.items() if any(texts)]
    return Table(title, caption, (by, "from", *heads), rows)


def _measured(ds: xr.Dataset, by: str, name: str, measure: str, value: str = "mean", error: str = "mcse") -> str:
    """Format a statistic of a measure with its standard error; empty if the method is not stored."""
    if name not in ds[by].values:
        return ""
    one = ds.sel({by: name})
    return plus_minus(float(one[f"{measure}_{value}"]), float(one[f"{measure}_{error}"]))


def _at_largest_n(summaries: Summaries, names: Sequence[str], measure: str) -> dict[str, xr.Dataset]:
    """Return each panel at the largest n at which most of its mechanisms apply, labelled with that n."""
    shown = {}
    for name in (name for name in names if name in summaries):
        ds = summaries[name]
        if "n" in ds.dims:
            most = ds[measure].notnull().sum("mechanism")
            ds = ds.sel(n=ds["n"].values[most.values == most.values.max()].max())
        shown[f"{name}, n = {int(ds['n'])}" if "n" in ds.coords else name] = ds
    return shown


def _accuracy(summaries: Summaries) -> Table:
    shown = _at_largest_n(summaries, ("k2", "k3", "k4", "abalone"), "hellinger_mean")
    return _table(
        "Accuracy of released posteriors",
        "Mean Hellinger distance to the true posterior over draws, with its Monte Carlo standard error; smaller is "
        "better. Empty where a mechanism does not apply.",
        "mechanism",
        list(shown),
        {
            (name, origin): [_measured(ds, "mechanism", name, "hellinger") for ds in shown.values()]
            for name, origin in _ACCURACY.items()
        },
    )


def _limits(summaries: Summaries) -> Table:
    shown = {
        head: ds["worst_hellinger"]
        for head, ds in _at_largest_n(summaries, ("k2", "k3", "k4"), "worst_hellinger").items()
        if "optimal" in ds["mechanism"].values
    }

    def cell(worst: xr.DataArray, name: str) -> str:
        if name not in worst["mechanism"].values:
            return ""
        value, best = float(worst.sel(mechanism=name)), float(worst.sel(mechanism="optimal"))
        return "" if np.isnan(value) else f"{value:.4f} ({value / best:.2f})"

    return _table(
        "Distance at the worst data set, against the optimum",
        "Exact mean Hellinger distance at the worst data set, and in brackets its ratio to that of the optimal "
        "private release, by linear programming; smaller is better.",
        "mechanism",
        list(shown),
        {
            (name, origin): [cell(worst, name) for worst in shown.values()]
            for name, origin in {"optimal": "the limit", **_ACCURACY}.items()
        },
    )


def _calibration(summaries: Summaries) -> Table:
    n_trials = max(int(ds["n_ok"].max()) for ds in summaries.values()) if summaries else 0

    def cell(ds: xr.Dataset, name: str) -> str:
        if name not in ds["algorithm"].values:
            return ""
        one = ds.sel(algorithm=name)
        stuck = float(one["rhat_stuck"].max()) if one["rhat_stuck"].notnull().any() else 0.0
        return f"{float(one['pit_ks'].max()):.3f}" + (f" ({stuck:.0%} stuck)" if stuck else "")

    return _table(
        "Calibration of posteriors",
        "Largest Kolmogorov-Smirnov distance of posterior quantiles to the uniform distribution over all stored n and "
        f"ε; for a calibrated method it is below {_LARGEST_KS / max(n_trials, 1) ** 0.5:.3f} in 99 of 100 cells of "
        f"{n_trials:,} trials. In brackets: largest fraction of trials whose chains disagree (split R-hat above 1.05).",
        "algorithm",
        list(summaries),
        {(name, origin): [cell(ds, name) for ds in summaries.values()] for name, origin in _CALIBRATION.items()},
    )


def _epsilon(shown: Sequence[xr.Dataset]) -> str:
    return ", ".join(f"{float(ds['epsilon']):g}" for ds in shown)


def _probabilities(summaries: Summaries) -> Table:
    shown = [ds for name, ds in summaries.items() if name == "default"]

    def cells(ds: xr.Dataset, name: str) -> Iterator[str]:
        for noise in ("-noiseless", ""):
            if name + noise not in ds["algorithm"].values:
                yield from ("", "")
                continue
            one = ds.sel(algorithm=name + noise)
            for measure, error in (("difference_mean", "difference_mcse"), ("difference_rmse", "difference_rmse_mcse")):
                at = one.isel(cutoff=int(np.argmax(np.abs(one[measure].values))))
                yield plus_minus(float(at[measure]), float(at[error]))

    return _table(
        "Posterior probabilities from partitions",
        "Largest bias and root mean squared error (RMSE) over the cutoffs, against the posterior given all rows, with "
        f"Monte Carlo standard errors; ε = {_epsilon(shown)} per cutoff.",
        "algorithm",
        ("bias, no noise", "RMSE, no noise", "bias, with noise", "RMSE, with noise"),
        {
            (name, "ours" if name.endswith("corrected") else "P2"): [text for ds in shown for text in cells(ds, name)]
            for name in ("normality", "normality-corrected", "fisher", "fisher-corrected")
        },
    )


def _quantiles(summaries: Summaries) -> Table:
    shown = [ds for name, ds in summaries.items() if name == "default"]

    def cells(ds: xr.Dataset, name: str) -> Iterator[str]:
        if name not in ds["algorithm"].values:
            return
        one = ds.sel(algorithm=name)
        typical = one["difference_absolute"]
        yield f"{float(typical.min()):.2f} to {float(typical.max()):.2f}"
        at = one.isel(p=int(np.argmax(np.abs(one["difference_median"].values))))
        yield plus_minus(float(at["difference_median"]), float(at["difference_median_mcse"]))
        wide = one["difference_q75"] - one["difference_q25"]
        at = one.isel(p=int(np.argmax(wide.values)))
        yield plus_minus(float(wide.max()), float(np.hypot(at["difference_q75_mcse"], at["difference_q25_mcse"])))

    return _table(
        "Posterior quantiles from partitions",
        "Difference to the quantile given all rows, in posterior standard deviations, "
        f"ε = {_epsilon(shown)}: range of the median absolute difference "
        "over all p, and median and interquartile range of largest size, with Monte Carlo standard errors.",
        "algorithm",
        ("median absolute difference", "median", "interquartile range"),
        {
            (name, origin): [text for ds in shown for text in cells(ds, name)]
            for name, origin in (("quantile", "P2"), ("quantile-centred", "ours"))
        },
    )


def _spread(values: Sequence[float], n: int) -> list[float]:
    """Return n evenly spaced values, including the first and the last."""
    return [values[k] for k in np.unique(np.linspace(0, len(values) - 1, n).round().astype(int))]


def _utility(summaries: Summaries) -> Table:
    shown = {
        f"λ = {order:g}, ε = {epsilon:.2g}": ds.sel(order=order, epsilon=epsilon)
        for name, ds in summaries.items()
        if name == "loglik"
        for order in ds["order"].values
        for epsilon in _spread(ds["epsilon"].values.tolist(), 3)
    }
    names = {
        "gaussian": "P3's baseline",
        "gaussian-tight": "its variance halved",
        "diffused": "P3",
        "concentrated": "P3",
        "true-posterior": "not private",
    }
    return _table(
        "Rényi-private draws of a Beta posterior",
        "Mean log loss of a draw on held-out records, with its Monte Carlo standard error; smaller is better.",
        "mechanism",
        list(shown),
        {
            (name, origin): [_measured(ds, "mechanism", name, "heldout_nll") for ds in shown.values()]
            for name, origin in names.items()
        },
    )


def _logistic(summaries: Summaries) -> Table:
    shown = dict(_logistic_columns(summaries))
    names = {
        "glm-diffused": "P3",
        "glm-concentrated": "P3",
        "ops": "P3's baseline",
        "ops-tight": "ours",
        "ops-renyi": "ours",
        "true-posterior": "not private",
    }
    return _table(
        "Private logistic regression",
        "Mean test error of one draw of the weights, with its Monte Carlo standard error; smaller is better.",
        "mechanism",
        list(shown),
        {
            (name, origin): [_measured(ds, "mechanism", name, "test_error") for ds in shown.values()]
            for name, origin in names.items()
        },
    )


def _logistic_columns(summaries: Summaries) -> Iterator[tuple[str, xr.Dataset]]:
    """Yield each data set at the middle order, at the smallest epsilon and the one nearest to 1."""
    for name in (name for name in ("abalone", "adult", "mnist") if name in summaries):
        ds = summaries[name]
        orders, epsilons = ds["order"].values, ds["epsilon"].values
        order = orders[orders.size // 2]
        for epsilon in dict.fromkeys((epsilons.min(), epsilons[np.abs(np.log(epsilons)).argmin()])):
            yield f"{name}, λ = {format_value(order.item())}, ε = {epsilon:.2g}", ds.sel(order=order, epsilon=epsilon)
