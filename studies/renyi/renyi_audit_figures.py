"""Figures of the audits of Rényi guarantees: tightness of a bound, and unbounded divergences."""

from typing import Any

import matplotlib as mpl
import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from pipeline.declare.factors import format_value
from studies.figures import finish_axes

_LINES: tuple[dict[str, Any], ...] = (
    {"color": "#0072B2", "marker": "o", "linestyle": "-"},
    {"color": "#D55E00", "marker": "s", "linestyle": (0, (5, 2))},
    {"color": "#009E73", "marker": "^", "linestyle": (0, (1, 1.2))},
)
_LINK_STYLES = dict(zip(("logistic", "probit", "cloglog"), _LINES, strict=True))
_HIGHEST = 1e5


def draw_tightness(ds: xr.Dataset) -> Figure:
    """Draw ratios to the bound against β, with one row per dimension, column per precision and line per order.

    Parameters
    ----------
    ds : xarray.Dataset
        Summary with ``share`` (dimension, precision, beta, order) and ``limiting_share``.

    Returns
    -------
    matplotlib.figure.Figure
    """
    dimensions, precisions = ds["dimension"].values.tolist(), ds["precision"].values.tolist()
    figure = Figure(figsize=(2.5 * len(precisions) + 0.4, 2.1 * len(dimensions) + 0.8), layout="constrained")
    grid = figure.subplots(len(dimensions), len(precisions), squeeze=False, sharex=True, sharey="row")
    for row, dimension in zip(grid, dimensions, strict=True):
        for axes, precision in zip(row, precisions, strict=True):
            one = ds.sel(dimension=dimension, precision=precision).sortby("beta")
            axes.plot(
                one["beta"], one["limiting_share"], color=mpl.rcParams["text.color"], linewidth=0.8, label="limit"
            )
            for order, style in zip(ds["order"].values.tolist(), _LINES, strict=False):
                line = one["share"].sel(order=order)
                axes.plot(
                    ds["beta"].sortby("beta"), line, **style, markersize=3.5, linewidth=1.1, label=f"λ = {order:g}"
                )
            axes.set_xscale("log")
            axes.set_ylim(0, 1.05 if dimension == 2 else 0.3)
            axes.set_title(f"d = {dimension}, nβ = {format_value(precision)}", fontsize="small", loc="left")
            axes.tick_params(labelsize="small", labelbottom=True)
            finish_axes(axes, None)
    figure.supxlabel("β", fontsize="medium")
    figure.supylabel("divergence / bound", fontsize="medium")
    lines, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside upper center", ncols=len(labels), frameon=False, fontsize="small")
    return figure


def draw_links(ds: xr.Dataset) -> Figure:
    """Draw divergences against the order and the half width of an interval, one column per number of records.

    Parameters
    ----------
    ds : xarray.Dataset
        Summary with ``renyi_epsilon`` and ``bound`` (n, link, order), ``divergence_on_box`` (n, link, order, reach).

    Returns
    -------
    matplotlib.figure.Figure
    """
    sizes, order = ds["n"].values.tolist(), float(ds["order"].max())
    figure = Figure(figsize=(2.5 * len(sizes) + 0.4, 5.2), layout="constrained")
    grid = figure.subplots(2, len(sizes), squeeze=False, sharey="row")
    ink = mpl.rcParams["text.color"]
    low = 0.5 * float(ds["renyi_epsilon"].min())
    finite = ds["renyi_epsilon"].where(np.isfinite(ds["renyi_epsilon"]))
    high = 1e4 * float(np.fmax(finite.max(), ds["bound"].max()))
    for (above, below), n in zip(grid.T, sizes, strict=True):
        one = ds.sel(n=n)
        above.plot(one["order"], one["bound"].isel(link=0), color=ink, linewidth=0.9, label="bound")
        below.axhline(float(one["bound"].isel(link=0).sel(order=order)), color=ink, linewidth=0.9)
        for name in (name for name in _LINK_STYLES if name in one["link"].values):
            style = {**_LINK_STYLES[name], "markersize": 4, "linewidth": 1.1}
            curve = one["renyi_epsilon"].sel(link=name)
            above.plot(curve["order"], curve.where(np.isfinite(curve)), **style, label=name)
            infinite = curve["order"].values[np.isinf(curve.values)]
            height = high ** (0.96 if name == "probit" else 0.86)  # keep markers of two links at the same order apart
            sign = {"marker": "$\\infty$", "linestyle": "none", "markersize": 7}
            above.plot(infinite, np.full(infinite.size, height), color=style["color"], **sign)
            boxed = one["divergence_on_box"].sel(link=name, order=order)
            below.plot(boxed["reach"], boxed, **style)
        above.set_ylim(low, high)
        below.set_ylim(low, _HIGHEST)
        above.set_title(f"n = {n}", fontsize="small", loc="left")
        above.set_xlabel("order λ", fontsize="small")
        below.set_title(f"n = {n}, order {format_value(order)}", fontsize="small", loc="left")
        below.set_xscale("log")
        below.set_xticks(ds["reach"].values, [format_value(value) for value in ds["reach"].values.tolist()])
        below.set_xticks([], minor=True)
        below.set_xlabel("half width of the interval", fontsize="small")
        for axes in (above, below):
            axes.set_yscale("log")
            axes.tick_params(labelsize="small", labelleft=True)
            finish_axes(axes, None)
    figure.supylabel("Rényi divergence (nat)", fontsize="medium")
    lines, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside upper center", ncols=len(labels), frameon=False, fontsize="small")
    return figure
