"""Charts of regression from partitions: distributions over data sets, and errors, by cutoff or probability."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pandas as pd
import xarray as xr

from mechanisms.regression.partition_probability import PROBABILITY_METHODS, ProbabilityMethod
from mechanisms.regression.partition_quantile import QUANTILE_METHODS, QuantileMethod
from studies.figures import Axis, Chart, Parts, Summaries, quantiles, stacked
from studies.styles import PARTITION_STYLES

Limits = tuple[float | None, float | None]

_METHODS: dict[str, ProbabilityMethod | QuantileMethod] = {**PROBABILITY_METHODS, **QUANTILE_METHODS}


def _variant(name: str) -> tuple[str, bool]:
    """Return the name of the method with noise, and True if `name` is this method, not its noiseless variant."""
    return (_METHODS[name].base, _METHODS[name].has_noise) if name in _METHODS else (name, True)


def spreads(
    panel: str,
    over: str,
    measure: str,
    methods: Sequence[str],
    ylabel: str,
    columns: int = 2,
    limits: Callable[[pd.DataFrame], Limits] | None = None,
) -> Chart:
    """Describe the distribution of a measure at equally spaced values of an output, by stored method."""

    def parts(summaries: Summaries) -> Parts:
        ds = summaries[panel]
        shown = [name for name in methods if name in ds["algorithm"].values]
        variants = [base if has_noise else f"{base}, no noise" for base, has_noise in map(_variant, shown)]
        titles = [title + " (repeated)" * (title in variants[:place]) for place, title in enumerate(variants)]
        return {title: ds.sel(algorithm=[name]) for title, name in zip(titles, shown, strict=True)}

    is_difference = measure == "difference"
    return Chart(
        parts, over, quantiles(measure), "algorithm", PARTITION_STYLES, x=Axis(discrete=True), y=Axis(ylabel),
        marks=(*(("level",) if is_difference else ()), "whisker", "box", "middle"),
        across={"level": 0.0} if is_difference else {}, columns=columns, height=140, named=False,
        limits=limits)  # fmt: skip


def by_noise(ds: xr.Dataset) -> dict[str, xr.Dataset]:
    """Return the methods without and with noise, under the name of the method with noise."""
    parts = {}
    for title, has_noise in (("without noise", False), ("with noise", True)):
        names = [name for name in ds["algorithm"].values.tolist() if _variant(name)[1] == has_noise and name != "full"]
        bases = ("algorithm", [_variant(name)[0] for name in names], ds["algorithm"].attrs)  # mark those not private
        parts[title] = ds.sel(algorithm=names).assign_coords(algorithm=bases)
    return parts


_BIAS = Chart(
    lambda summaries: by_noise(summaries["default"]), "cutoff", {"y": "difference_mean"}, "algorithm", PARTITION_STYLES,
    y=Axis("bias"), marks=("level", "line", "errors", "points"), across={"level": 0.0}, columns=2,
    height=200)  # fmt: skip
ERRORS = stacked(
    _BIAS,
    replace(
        _BIAS, show={"y": "difference_rmse"}, y=Axis("root mean squared error"), marks=("line", "points"), across={}
    ),
)
"""Bias and root mean squared error of all methods against the cutoff, without and with noise."""
