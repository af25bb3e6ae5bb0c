"""Figures of regression from partitions: distributions over data sets and errors, by cutoff or probability."""

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mechanisms.regression.partition_probability import PROBABILITY_METHODS, ProbabilityMethod
from mechanisms.regression.partition_quantile import QUANTILE_METHODS, QuantileMethod
from pipeline.declare.factors import format_value
from studies.figures import Styles, finish_axes
from studies.styles import complete_styles

_METHODS: dict[str, ProbabilityMethod | QuantileMethod] = {**PROBABILITY_METHODS, **QUANTILE_METHODS}


def _variant(name: str) -> tuple[str, bool]:
    """Return the name of the method with noise, and whether `name` has noise."""
    return (_METHODS[name].base, _METHODS[name].has_noise) if name in _METHODS else (name, True)


def _title(name: str) -> str:
    base, has_noise = _variant(name)
    return base if has_noise else f"{base}, no noise"


def draw_spreads(
    ds: xr.Dataset,
    x: str,
    measure: str,
    methods: Sequence[str],
    columns: int,
    styles: Styles,
    ylabel: str,
    limits: tuple[float, float] | None = None,
) -> Figure:
    """Draw the distribution of a measure at each value of an output, with one axes per method.

    Parameters
    ----------
    ds : xarray.Dataset
        Summary of one panel.
    x, measure : str
        Names of the output, drawn at equal spacing, and of the measure. Its median, quartiles and 5 and 95 % quantiles
        are drawn.
    methods : sequence of str
        Methods, row by row; methods that are not stored are omitted.
    columns : int
        Number of axes per row.
    styles : mapping
        Style of each method by name.
    ylabel : str
        Label of the vertical axis.
    limits : tuple of float, optional
        Limits of the vertical axis.

    Returns
    -------
    matplotlib.figure.Figure
    """
    shown = [name for name in methods if name in ds["algorithm"].values]
    n_rows = -(-len(shown) // columns)
    figure = Figure(figsize=(7.2, 2.2 * n_rows + 0.5), layout="constrained")
    grid = figure.subplots(n_rows, columns, squeeze=False, sharex=True, sharey=True).ravel()
    for axes in grid[len(shown) :]:
        axes.set_axis_off()
    places = np.arange(ds.sizes[x])
    for axes, name in zip(grid, shown, strict=False):
        _draw_boxes(axes, places, ds.sel(algorithm=name), measure, styles[name]["color"])
        axes.set_title(_title(name), fontsize="small", loc="left")
        axes.set_xticks(places, [format_value(value) for value in ds[x].values.tolist()])
        axes.tick_params(labelbottom=True, labelsize="small" if columns < 3 else "x-small")
        if measure == "difference":
            axes.axhline(0, color=mpl.rcParams["text.color"], linewidth=0.8)
        if limits is not None:
            axes.set_ylim(*limits)
        finish_axes(axes, None)
    unit = ds[x].attrs.get("units", "1")
    figure.supxlabel(f"{ds[x].attrs['long_name']}{'' if unit == '1' else f' ({unit})'}", fontsize="medium")
    figure.supylabel(ylabel, fontsize="medium")
    return figure


def _draw_boxes(axes: Axes, places: np.ndarray, one: xr.Dataset, measure: str, color: str) -> None:
    low, first, middle, third, high = (
        one[f"{measure}_{name}"].values for name in ("q05", "q25", "median", "q75", "q95")
    )
    axes.vlines(places, low, high, color=color, linewidth=1)
    axes.bar(places, third - first, 0.6, first, color=color, alpha=0.35, linewidth=0)
    axes.hlines(middle, places - 0.3, places + 0.3, color=color, linewidth=1.6)


def draw_errors(ds: xr.Dataset, x: str, styles: Styles) -> Figure:
    """Draw bias and root mean squared error of all methods against an output, without and with noise.

    Parameters
    ----------
    ds : xarray.Dataset
        Summary of one panel with the measure ``difference`` and its statistic ``rmse``.
    x : str
        Name of the output.
    styles : mapping
        As in `draw_spreads`.

    Returns
    -------
    matplotlib.figure.Figure
    """
    figure = Figure(figsize=(7.2, 5.2), layout="constrained")
    grid = figure.subplots(2, 2, sharex=True, sharey="row")
    stored = ds["algorithm"].values.tolist()
    styles = complete_styles(styles, stored)
    shown = [name for name in styles if name in stored and _variant(name) == (name, True) and name != "full"]
    for column, (has_noise, title) in enumerate(((False, "without noise"), (True, "with noise"))):
        for name in (name for base in shown for name in stored if _variant(name) == (base, has_noise)):
            one = ds.sel(algorithm=name)
            look = {**styles[name], "markersize": 4, "linewidth": 1.1}
            grid[0, column].errorbar(ds[x], one["difference_mean"], yerr=2 * one["difference_mcse"], **look)
            grid[1, column].plot(ds[x], one["difference_rmse"], **look)
        grid[0, column].set_title(title, fontsize="medium", loc="left")
        grid[0, column].axhline(0, color=mpl.rcParams["text.color"], linewidth=0.8)
    for axes, label in zip(grid[:, 0], ("bias", "root mean squared error"), strict=True):
        axes.set_ylabel(label)
    for axes in grid.ravel():
        axes.tick_params(labelbottom=True, labelleft=True, labelsize="small")
        finish_axes(axes, None)
    figure.supxlabel(f"{ds[x].attrs['long_name']} ({ds[x].attrs['units']})", fontsize="medium")
    lines = [grid[0, 0].plot([], [], **styles[name], markersize=4)[0] for name in shown]
    figure.legend(lines, shown, loc="outside upper center", ncols=3, frameon=False, fontsize="small", handlelength=3.2)
    return figure
