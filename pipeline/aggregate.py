"""Reduce results over their trials: means, spreads and quantiles, each with its Monte Carlo standard error.

Failed trials are counted, never dropped in silence: every summary says how many trials are ok, failed and pending.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import xarray as xr
from scipy.special import betaincinv

from pipeline.blocks.evaluate import FAILURES, Status
from pipeline.declare.factors import Statistic

QUANTILES = {"q05": 0.05, "q25": 0.25, "median": 0.5, "q75": 0.75, "q95": 0.95}
_STATISTICS = ("mean", "mcse", "sd", *QUANTILES, *(f"{name}_mcse" for name in QUANTILES))


def mcse_quantile(ordered: np.ndarray, probability: float) -> float:
    """Return the Monte Carlo standard error of a sample quantile of independent draws.

    Half the distance between the order statistics that stand one standard deviation below and above, by the Beta law
    of the order statistic's level; no density needs to be estimated.

    Parameters
    ----------
    ordered : ndarray of float, shape (n,)
        The draws in ascending order.
    probability : float
        Level of the quantile, in (0, 1).

    Returns
    -------
    float
        NaN for fewer than two draws.

    Examples
    --------
    >>> n = 10_000
    >>> error = mcse_quantile(np.arange(n) / n, 0.5)
    >>> bool(abs(error / np.sqrt(0.25 / n) - 1) < 0.03)
    True
    """
    if ordered.size < 2:
        return float("nan")
    low, high = _between(ordered, np.array(_ranks(ordered.size, probability)))
    return float(high - low) / 2


@lru_cache(maxsize=1024)  # many cells have as many trials
def _ranks(n: int, probability: float) -> tuple[float, ...]:
    """Ranks, from 0, of the order statistics one standard deviation below and above a quantile of `n` draws."""
    levels = betaincinv(n * probability + 1, n * (1 - probability) + 1, [0.1586552539, 0.8413447461])
    return tuple(np.clip(n * levels - 0.5, 0, n - 1).tolist())


def _between(ordered: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """Interpolate between order statistics, at ranks from 0; ties of infinite draws have no distance."""
    below = np.floor(ranks).astype(int)
    low, high = ordered[below], ordered[np.minimum(below + 1, ordered.size - 1)]
    return np.where((low == high) | (ranks == below), low, low + (ranks - below) * (high - low))


def _reduce(values: np.ndarray, ok: np.ndarray) -> np.ndarray:
    """Return `_STATISTICS` of the trials that are ok; `values` and `ok` have the shape (trial,)."""
    kept = np.sort(values[ok].astype(float, copy=False))
    n = kept.size - int(np.isnan(kept).sum())
    kept = kept[:n]  # NaN is sorted to the end
    if n == 0:
        return np.full(len(_STATISTICS), np.nan)
    with np.errstate(invalid="ignore"):  # an infinite draw has no spread
        sd = kept.std(ddof=1) if n > 1 else np.nan
        quantiles = _between(kept, (n - 1) * np.array(list(QUANTILES.values())))
        errors = [mcse_quantile(kept, probability) for probability in QUANTILES.values()]
    return np.array([kept.mean(), sd / np.sqrt(n), sd, *quantiles, *errors])


def _apply(statistic: Statistic, variable: xr.DataArray, ok: xr.DataArray) -> xr.DataArray:
    """Compute a statistic of a measure at every cell and setting; NaN where no trial is ok."""
    size = 1 if statistic.axis is None else len(statistic.axis.values)

    def reduce(values: np.ndarray, ok: np.ndarray) -> np.ndarray:
        if not ok.any():
            return np.full(size, np.nan)
        return np.broadcast_to(np.asarray(statistic.function(values[ok]), dtype=float), (size,))

    dim = "_one" if statistic.axis is None else statistic.axis.name
    computed = xr.apply_ufunc(
        reduce,
        variable,
        ok,
        input_core_dims=[["trial"], ["trial"]],
        output_core_dims=[[dim]],
        vectorize=True,
        dask="parallelized",
        output_dtypes=[float],
        dask_gufunc_kwargs={"output_sizes": {dim: size}},
    )
    if statistic.axis is None:
        computed = computed.isel({dim: 0})
    else:
        described = {"long_name": statistic.axis.meaning, "units": statistic.axis.unit}
        computed = computed.assign_coords({dim: (dim, list(statistic.axis.values), described)})
    return computed.assign_attrs({"long_name": statistic.meaning, "units": statistic.unit})


def summarise(ds: xr.Dataset, statistics: Sequence[Statistic] = ()) -> xr.Dataset:
    """Summarise the results of a panel over its trials.

    Parameters
    ----------
    ds : xarray.Dataset
        One panel, as `open_results` or ``xr.open_zarr`` gives it. Dask arrays are reduced one cell and setting at a
        time, so that the memory does not grow with the store.
    statistics : sequence of Statistic
        What else to compute: a panel's own, `Panel.statistics`.

    Returns
    -------
    xarray.Dataset
        In memory, without the trial dimension. For each measure ``X`` per trial: ``X_mean``, its Monte Carlo standard
        error ``X_mcse``, ``X_sd``, and ``X_q05 X_q25 X_median X_q75 X_q95`` each with an ``_mcse``; ``X_name`` for each
        statistic; other measures as they are. Beside them the numbers of trials ``n_ok``, ``n_failed`` (failed, timed
        out or killed) and ``n_pending``.

    Examples
    --------
    >>> ds = xr.Dataset({"x": ("trial", [1.0, 3.0, np.nan]), "status": ("trial", [1, 1, 2])})
    >>> summary = summarise(ds)
    >>> float(summary.x_mean), float(summary.x_mcse), int(summary.n_ok), int(summary.n_failed)
    (2.0, 1.0, 2, 1)
    """
    status = ds["status"]
    groups = {
        "n_ok": (Status.OK,),
        "n_failed": FAILURES,
        "n_pending": (Status.PENDING,),
    }
    along = [dim for dim in status.dims if dim == "trial"]
    result = {name: status.isin(list(members)).astype(int).sum(along) for name, members in groups.items()}
    if "trial" in ds.chunksizes:
        ds = ds.chunk(trial=-1)
    measures = {name: variable for name, variable in ds.data_vars.items() if name not in ("status", "error")}
    for name, variable in measures.items():
        if "trial" not in variable.dims:
            continue
        reduced = xr.apply_ufunc(
            _reduce,
            variable,
            ds["status"] == Status.OK,
            input_core_dims=[["trial"], ["trial"]],
            output_core_dims=[["statistic"]],
            vectorize=True,
            dask="parallelized",
            output_dtypes=[float],
            dask_gufunc_kwargs={"output_sizes": {"statistic": len(_STATISTICS)}},
        )
        for k, label in enumerate(_STATISTICS):
            attributes = {**variable.attrs, "long_name": f"{label} of {variable.attrs.get('long_name', name)}"}
            result[f"{name}_{label}"] = reduced.isel(statistic=k, drop=True).assign_attrs(attributes)
    for statistic in statistics:
        variable = measures[statistic.measure]
        result[f"{statistic.measure}_{statistic.name}"] = _apply(statistic, variable, ds["status"] == Status.OK)
    result |= {str(name): variable for name, variable in measures.items() if "trial" not in variable.dims}
    return xr.Dataset(result, attrs=ds.attrs).drop_vars("trial", errors="ignore").compute()


def count_status(ds: xr.Dataset) -> dict[Status, int]:
    """Count the trials of a panel by status, over all its cells and settings.

    Examples
    --------
    >>> count_status(xr.Dataset({"status": ("trial", [1, 1, 2])}))[Status.OK]
    2
    """
    counts = np.bincount(np.asarray(ds["status"]).ravel(), minlength=len(Status))
    return {status: int(counts[status]) for status in Status}
