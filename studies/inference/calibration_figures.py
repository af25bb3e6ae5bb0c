"""Figures of the calibration studies: measures against n, distributions of quantiles and ranks, and traces."""

from collections.abc import Mapping
from typing import Any

import matplotlib as mpl
import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from pipeline.declare.factors import format_value
from studies.figures import Styles, finish_axes, styles_for

Parts = Mapping[str, xr.Dataset]


def _rows(n_rows: int, n_columns: int, height: float, sharey: bool = True) -> tuple[Figure, Any]:
    figure = Figure(figsize=(7.2, height * n_rows + 0.8), layout="constrained")
    return figure, figure.subplots(n_rows, n_columns, squeeze=False, sharey=sharey)


def _finish(figure: Figure, grid: Any, styles: Styles, names: set[str], columns: int = 4) -> Figure:
    for axes in grid.ravel():
        finish_axes(axes, None)
        axes.tick_params(labelsize="small", labelleft=True)
    shown = [name for name in styles if name in names]
    lines = [grid[0, 0].plot([], [], **styles[name], markersize=4)[0] for name in shown]
    figure.legend(
        lines, shown, loc="outside upper center", ncols=columns, frameon=False, fontsize="small", handlelength=3.2
    )
    return figure


def _panels(n_axes: int) -> tuple[Figure, Any]:
    """Return a figure with `n_axes` small axes, three per row."""
    n_columns = min(3, n_axes)
    figure, grid = _rows(-(-n_axes // n_columns), n_columns, 2.4)
    for axes in grid.ravel()[n_axes:]:
        axes.set_axis_off()
    return figure, grid


def draw_against_n(parts: Parts, measure: str, ylabel: str, styles: Styles, log: bool, limit: Any = None) -> Figure:
    """Draw a variable against the number of records, with one row per panel and one column per privacy loss.

    Parameters
    ----------
    parts : mapping of str to xarray.Dataset
        Mapping from the title of a row to a summary with the dimensions n, epsilon and method.
    measure : str
        Name of the variable. If ``{measure}_mean`` is stored, it is drawn with ± 2 Monte Carlo standard errors.
    ylabel : str
        Label of the vertical axis.
    styles : mapping
        Style of each method by name.
    log : bool
        Use a logarithmic vertical axis; values ≤ 0 are not shown.
    limit : callable, optional
        Function from a summary to the upper end of a grey band for sampling error.

    Returns
    -------
    matplotlib.figure.Figure
    """
    styles = styles_for(styles, "algorithm", parts.values())
    losses = next(iter(parts.values()))["epsilon"].values.tolist()
    figure, grid = _rows(len(parts), len(losses), 2.2)
    names: set[str] = set()
    drawn = [ds[f"{measure}_mean" if f"{measure}_mean" in ds else measure] for ds in parts.values()]
    floor = 0.7 * min(float(values.where(values > 0).min()) for values in drawn) if log else 0.0
    ceiling = 1.2 * max(float(values.max()) for values in drawn)
    for row, (title, ds) in zip(grid, parts.items(), strict=True):
        for axes, epsilon in zip(row, losses, strict=True):
            one = ds.sel(epsilon=epsilon)
            for name in one["algorithm"].values.tolist():
                names.add(name)
                mine = one.sel(algorithm=name)
                if f"{measure}_mean" in mine:
                    error = 2 * mine[f"{measure}_mcse"]
                    axes.errorbar(
                        mine["n"], mine[f"{measure}_mean"], yerr=error, **styles[name], markersize=4, linewidth=1.1
                    )
                else:
                    axes.plot(mine["n"], mine[measure], **styles[name], markersize=4, linewidth=1.1)
            if limit is not None:
                axes.axhspan(floor, limit(one), color=mpl.rcParams["text.color"], alpha=0.1, linewidth=0)
            axes.set_xscale("log")
            axes.set_yscale("log" if log else "linear", **({"nonpositive": "mask"} if log else {}))
            axes.set_ylim(floor, ceiling)
            axes.set_title(f"{title}, ε = {format_value(epsilon)}", fontsize="small", loc="left")
    for axes in grid[-1]:
        axes.set_xlabel("number of records")
    figure.supylabel(ylabel, fontsize="medium")
    return _finish(figure, grid, styles, names)


def draw_ecdfs(parts: Parts, ecdf: str, level: str, styles: Styles) -> Figure:
    """Draw empirical distribution functions of quantiles, one axes per panel, with a band for uniform quantiles.

    Parameters
    ----------
    parts : mapping of str to xarray.Dataset
        Mapping from the title of an axes to a summary with the dimensions method and `level` and the variable ``n_ok``.
    ecdf, level : str
        Names of the variable and its dimension.
    styles : mapping
        Style of each method by name.

    Returns
    -------
    matplotlib.figure.Figure
        The band is a simultaneous 95 % band (Dvoretzky, Kiefer & Wolfowitz).
    """
    styles = styles_for(styles, "algorithm", parts.values())
    figure, grid = _panels(len(parts))
    names: set[str] = set()
    for axes, (title, ds) in zip(grid.ravel(), parts.items(), strict=False):
        levels = ds[level].values
        half = np.sqrt(np.log(2 / 0.05) / (2 * float(ds["n_ok"].min())))
        colour = mpl.rcParams["text.color"]
        axes.fill_between(levels, np.maximum(levels - half, 0), np.minimum(levels + half, 1), color=colour, alpha=0.12)
        for place, name in enumerate(ds["algorithm"].values.tolist()):
            names.add(name)
            look = {**styles[name], "markersize": 3.5, "markevery": (4 * place + 3, 30), "linewidth": 1.1}
            axes.plot(levels, ds[ecdf].sel(algorithm=name), **look)
        axes.set_title(title, fontsize="small", loc="left")
        axes.set_xlabel("posterior quantile of θ")
    figure.supylabel("fraction of trials", fontsize="medium")
    return _finish(figure, grid, styles, names)


def draw_ranks(parts: Parts, histogram: str, bins: str, styles: Styles) -> Figure:
    """Draw rank histograms as lines, one axes per panel, with a pointwise band for uniform ranks.

    Parameters
    ----------
    parts : mapping of str to xarray.Dataset
        Mapping from the title of an axes to a summary with the dimensions method and `bins` and the variable ``n_ok``.
    histogram, bins : str
        Names of the histogram variable, whose values sum to 1, and of its bin dimension.
    styles : mapping
        Style of each method by name.

    Returns
    -------
    matplotlib.figure.Figure
    """
    styles = styles_for(styles, "algorithm", parts.values())
    figure, grid = _panels(len(parts))
    names: set[str] = set()
    for axes, (title, ds) in zip(grid.ravel(), parts.items(), strict=False):
        share = 1 / ds.sizes[bins]
        half = 2.576 * np.sqrt(share * (1 - share) / float(ds["n_ok"].min()))
        axes.axhspan(max(share - half, 0.0), share + half, color=mpl.rcParams["text.color"], alpha=0.12, linewidth=0)
        for name in ds["algorithm"].values.tolist():
            names.add(name)
            axes.plot(ds[bins], ds[histogram].sel(algorithm=name), **styles[name], markersize=3.5, linewidth=1)
        axes.set_title(title, fontsize="small", loc="left")
        axes.set_xlabel("bin of the rank")
    figure.supylabel("fraction of trials", fontsize="medium")
    return _finish(figure, grid, styles, names)


def draw_traces(parts: Parts, trace: str, axis: str, ylabel: str) -> Figure:
    """Draw the first iterations of a few chains, one axes per panel.

    Parameters
    ----------
    parts : mapping of str to xarray.Dataset
        Mapping from the title of an axes to a data set with the dimensions start and `axis` and the variable ``truth``.
    trace, axis : str
        Names of the variable and of the dimension of iterations.
    ylabel : str
        Label of the vertical axis.

    Returns
    -------
    matplotlib.figure.Figure
    """
    figure, grid = _rows(len(parts), 1, 2.0, sharey=False)
    for axes, (title, ds) in zip(grid.ravel(), parts.items(), strict=True):
        for place, dash in zip(range(ds.sizes["start"]), ("-", "--", ":"), strict=False):
            colour = ("#0072B2", "#D55E00", "#009E73")[place]
            axes.plot(ds[axis], ds[trace].isel(start=place), color=colour, linestyle=dash, linewidth=0.8)
        axes.axhline(float(ds["truth"]), color=mpl.rcParams["text.color"], linewidth=1)
        axes.set_title(title, fontsize="small", loc="left")
        axes.set_xlabel("iteration")
        axes.set_ylabel(ylabel)
        finish_axes(axes, None)
    return figure
