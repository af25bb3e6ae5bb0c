"""Improved methods beside the papers' own, with Monte Carlo standard errors, as far as the stores hold them."""

from collections.abc import Iterator, Sequence

import numpy as np
import xarray as xr

from pipeline.factors import format_value
from studies.laboratory_results import Results
from studies.laboratory_tables import Table, plus_minus
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
    "gibbs": "P4, mended",
    "gibbs-collapsed": "ours",
    "marginal": "ours",
}


def comparison_tables(results: Results) -> list[Table]:
    """Return the tables of which a store holds the numbers."""
    found = {name: one.summaries for name, one in results.items()}
    tables: list[Table] = []
    if "hellinger-accuracy" in found:
        tables.append(_accuracy(found["hellinger-accuracy"]))
    if "calibration" in found:
        tables.append(_calibration(found["calibration"]))
    if "default" in found.get("partition-probability", {}):
        tables.append(_probabilities(found["partition-probability"]["default"]))
    if "default" in found.get("partition-quantile", {}):
        tables.append(_quantiles(found["partition-quantile"]["default"]))
    if "renyi-utility" in found:
        tables.append(_utility(found["renyi-utility"]["loglik"]))
    if "renyi-logistic" in found:
        tables.append(_logistic(found["renyi-logistic"]))
    return tables


def _with_error(ds: xr.Dataset, value: str, error: str) -> str:
    return plus_minus(float(ds[value]), float(ds[error]))


def _accuracy(summaries: Summaries) -> Table:
    """Show each panel at the largest n at which all of its mechanisms apply, if there is one."""
    shown = {}
    for name in (name for name in ("k2", "k3", "k4", "abalone") if name in summaries):
        ds = summaries[name]
        if "n" in ds.dims:
            most = ds["hellinger_mean"].notnull().sum("mechanism")
            ds = ds.sel(n=ds["n"].values[most.values == most.values.max()].max())
        shown[f"{name}, n = {int(ds['n'])}" if "n" in ds.coords else name] = ds
    rows = []
    for name, origin in _ACCURACY.items():
        cells = [
            _with_error(ds.sel(mechanism=name), "hellinger_mean", "hellinger_mcse")
            if name in ds["mechanism"].values
            else ""
            for ds in shown.values()
        ]
        rows.append((name, origin, *cells))
    return Table(
        "Accuracy of released posteriors",
        "Mean Hellinger distance to the true posterior over draws, with its Monte Carlo standard error; smaller is "
        "better. Empty where a mechanism does not apply.",
        ("mechanism", "from", *shown),
        rows,
    )


def _calibration(summaries: Summaries) -> Table:
    n_trials = max(int(ds["n_ok"].max()) for ds in summaries.values())
    rows = []
    for name, origin in _CALIBRATION.items():
        cells = []
        for ds in summaries.values():
            if name not in ds["method"].values:
                cells.append("")
                continue
            one = ds.sel({"method": name})
            stuck = float(one["rhat_stuck"].max()) if one["rhat_stuck"].notnull().any() else 0.0
            cells.append(f"{float(one['quantile_ks'].max()):.3f}" + (f" ({stuck:.0%} stuck)" if stuck else ""))
        rows.append((name, origin, *cells))
    return Table(
        "Calibration of posteriors",
        "Largest Kolmogorov-Smirnov distance of posterior quantiles to the uniform law over all n and ε stored; of a "
        f"calibrated method it is below {1.63 / np.sqrt(n_trials):.3f} in 99 of 100 cells of {n_trials:,} trials. In "
        "brackets the largest share of trials whose chains disagree (split R-hat above 1.05).",
        ("method", "from", *summaries),
        rows,
    )


def _probabilities(ds: xr.Dataset) -> Table:
    rows = []
    for name in ("normality", "normality-corrected", "fisher", "fisher-corrected"):
        cells = []
        for one in (ds.sel({"method": name + noise}) for noise in ("-noiseless", "")):
            at = one.isel(cutoff=int(np.argmax(np.abs(one["difference_mean"].values))))
            cells.append(_with_error(at, "difference_mean", "difference_mcse"))
            at = one.isel(cutoff=int(np.argmax(one["difference_rmse"].values)))
            cells.append(_with_error(at, "difference_rmse", "difference_rmse_mcse"))
        rows.append((name, "ours" if name.endswith("corrected") else "P2", *cells))
    return Table(
        "Posterior probabilities from partitions",
        f"Largest bias and root mean squared error (RMSE) over the cutoffs, against the posterior given all rows, with "
        f"Monte Carlo standard errors; ε = {float(ds['epsilon']):g} a cutoff.",
        ("method", "from", "bias, no noise", "RMSE, no noise", "bias, with noise", "RMSE, with noise"),
        rows,
    )


def _quantiles(ds: xr.Dataset) -> Table:
    rows = []
    for name, origin in (("quantile", "P2"), ("quantile-centred", "ours")):
        one = ds.sel({"method": name})
        median = one.isel(p=int(np.argmax(np.abs(one["difference_median"].values))))
        wide = one["difference_q75"] - one["difference_q25"]
        at = one.isel(p=int(np.argmax(wide.values)))
        error = float(np.hypot(at["difference_q75_mcse"], at["difference_q25_mcse"]))
        typical = one["difference_absolute"]
        rows.append(
            (
                name,
                origin,
                f"{float(typical.min()):.2f} to {float(typical.max()):.2f}",
                _with_error(median, "difference_median", "difference_median_mcse"),
                plus_minus(float(wide.max()), error),
            )
        )
    return Table(
        "Posterior quantiles from partitions",
        f"Difference to the quantile given all rows, in posterior standard deviations, ε = {float(ds['epsilon']):g}: "
        "median absolute difference over all p, the median that is largest in size, the widest distance between "
        "quartiles, with Monte Carlo standard errors.",
        ("method", "from", "median absolute difference", "median", "between quartiles"),
        rows,
    )


def _spread(values: Sequence[float], n: int) -> list[float]:
    """Return n of the values, from the first to the last."""
    return [values[k] for k in np.unique(np.linspace(0, len(values) - 1, n).round().astype(int))]


def _utility(ds: xr.Dataset) -> Table:
    shown = [(order, epsilon) for order in ds["order"].values for epsilon in _spread(ds["epsilon"].values, 3)]
    names = {"gaussian": "P3's baseline", "gaussian-tight": "its variance halved", "diffused": "P3", "concentrated": "P3"}
    rows = [
        (
            name,
            origin,
            *(
                _with_error(
                    ds.sel(mechanism=name, order=order, epsilon=epsilon), "heldout_nll_mean", "heldout_nll_mcse"
                )
                for order, epsilon in shown
            ),
        )
        for name, origin in {**names, "true-posterior": "not private"}.items()
    ]
    return Table(
        "Rényi-private draws of a Beta posterior",
        "Mean log loss of a draw on held-out records, with its Monte Carlo standard error; smaller is better.",
        ("mechanism", "from", *(f"λ = {order:g}, ε = {epsilon:.2g}" for order, epsilon in shown)),
        rows,
    )


def _logistic(summaries: Summaries) -> Table:
    shown = list(_logistic_columns(summaries))
    names = {
        "glm-diffused": "P3",
        "glm-concentrated": "P3",
        "ops": "P3's baseline",
        "ops-tight": "ours",
        "ops-renyi": "ours",
        "true-posterior": "not private",
    }
    rows = [
        (
            name,
            origin,
            *(_with_error(ds.sel(mechanism=name), "test_error_mean", "test_error_mcse") for _, ds in shown),
        )
        for name, origin in names.items()
    ]
    return Table(
        "Private logistic regression",
        "Mean test error of one draw of the weights, with its Monte Carlo standard error; smaller is better.",
        ("mechanism", "from", *(head for head, _ in shown)),
        rows,
    )


def _logistic_columns(summaries: Summaries) -> Iterator[tuple[str, xr.Dataset]]:
    """Yield each data set at the middle order, at the smallest epsilon and at that nearest to 1."""
    for name in (name for name in ("abalone", "adult", "mnist") if name in summaries):
        ds = summaries[name]
        orders, epsilons = ds["order"].values, ds["epsilon"].values
        order = orders[orders.size // 2]
        for epsilon in dict.fromkeys((epsilons.min(), epsilons[np.abs(np.log(epsilons)).argmin()])):
            yield f"{name}, λ = {format_value(order.item())}, ε = {epsilon:.2g}", ds.sel(order=order, epsilon=epsilon)
