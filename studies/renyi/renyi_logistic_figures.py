"""Figures of the study of logistic regression: measures against ε by data set and order."""

from collections.abc import Mapping

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from pipeline.declare.factors import format_value
from studies.figures import Styles, finish_axes, styles_for


def draw_orders(parts: Mapping[str, xr.Dataset], measure: str, ylabel: str, styles: Styles) -> Figure:
    """Draw the mean of a measure against ln ε, with one row per order and one column per panel.

    Parameters
    ----------
    parts : mapping of str to xarray.Dataset
        Mapping from the title of a column to a summary with the dimensions order, epsilon and mechanism.
    measure : str
        Name of the measure; ``{measure}_mean`` is drawn with ± 2 ``{measure}_mcse``.
    ylabel : str
        Label of the vertical axis.
    styles : mapping
        Style of each mechanism by name.

    Returns
    -------
    matplotlib.figure.Figure
    """
    styles = styles_for(styles, "mechanism", parts.values())
    orders = next(iter(parts.values()))["order"].values.tolist()
    figure = Figure(figsize=(2.6 * max(len(parts), 2) + 0.6, 2.2 * len(orders) + 0.8), layout="constrained")
    grid = figure.subplots(len(orders), len(parts), squeeze=False, sharex=True, sharey="col")
    shown: set[str] = set()
    for column, (title, ds) in zip(grid.T, parts.items(), strict=True):
        x = np.log(ds["epsilon"])
        for axes, order in zip(column, orders, strict=True):
            one = ds.sel(order=order)
            for name in (name for name in styles if name in one["mechanism"].values):
                shown.add(name)
                mine = one.sel(mechanism=name)
                error = 2 * mine[f"{measure}_mcse"]
                axes.errorbar(x, mine[f"{measure}_mean"], yerr=error, **styles[name], markersize=4, linewidth=1.1)
            axes.set_title(f"{title}, order {format_value(order)}", fontsize="small", loc="left")
            axes.tick_params(labelsize="small")
            finish_axes(axes, None)
    figure.supxlabel("ln ε", fontsize="medium")
    figure.supylabel(ylabel, fontsize="medium")
    lines = [grid[0, 0].plot([], [], **styles[name], markersize=4)[0] for name in styles if name in shown]
    names = [name for name in styles if name in shown]
    figure.legend(lines, names, loc="outside upper center", ncols=3, frameon=False, fontsize="small", handlelength=3.2)
    return figure
