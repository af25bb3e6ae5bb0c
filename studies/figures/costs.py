"""Figure of accuracy against cost: one point per method."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from studies.figures.chart import Axis, Chart
from studies.figures.plot import Plot
from studies.styles import Styles


def plot_against_cost(
    title: str,
    methods: xr.DataArray,
    seconds: Sequence[float],
    means: Sequence[float],
    errors: Sequence[float],
    styles: Styles,
    y: Axis,
    **options: Any,
) -> list[Plot]:
    """Return the plot of the mean losses of methods, with their errors, against seconds per evaluation.

    `methods` has the names of the methods on its dimension ``method``; `options` are those of `Chart`.
    """
    n = len(seconds)
    arrays = {name: np.full((n, n), math.nan) for name in ("loss_mean", "loss_mcse")}
    for name, values in zip(arrays, (means, errors), strict=True):
        np.fill_diagonal(arrays[name], values)
    shown = [float(f"{value:.2g}") for value in seconds]
    ds = xr.Dataset(
        {name: (("method", "seconds"), array) for name, array in arrays.items()},
        {"method": methods, "seconds": ("seconds", shown, {"long_name": "time per evaluation", "units": "s"})},
    )
    chart = Chart(
        lambda summaries: {title: ds}, "seconds", {"y": "loss_mean"}, "method", styles, x=Axis(log=True), y=y,
        height=260, best="lowest", **{"marks": ("errors", "points"), **options})  # fmt: skip
    return chart({})
