"""Figures of the studies of Rényi-private posterior sampling: curves by order, and utility against ε."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from pipeline.declare.factors import format_value
from studies.figures import Styles, finish_axes, styles_for

Parts = Mapping[str, xr.Dataset]

_CURVES: tuple[dict[str, Any], ...] = (
    {"color": "#0072B2", "linestyle": "-"},
    {"color": "#D55E00", "linestyle": (0, (5, 2))},
    {"color": "#009E73", "linestyle": (0, (2.2, 1))},
    {"color": "#CC79A7", "linestyle": (0, (5, 1.5, 1, 1.5))},
    {"color": "#8C5A3C", "linestyle": (0, (9, 2.5))},
    {"color": "#56B4E9", "linestyle": (0, (3, 1, 1, 1, 1, 1))},
)


def draw_renyi_curves(parts: Parts) -> Figure:
    """Draw Rényi divergences against the order with asymptotes, with one axes per panel and line per coefficient.

    Parameters
    ----------
    parts : mapping of str to xarray.Dataset
        Mapping from the title of an axes to a summary with ``renyi_epsilon`` (coefficient, order) and
        ``critical_order``.

    Returns
    -------
    matplotlib.figure.Figure
    """
    figure = Figure(figsize=(7.2, 3.8), layout="constrained")
    grid = figure.subplots(1, len(parts), squeeze=False, sharey=True)[0]
    for axes, (title, ds) in zip(grid, parts.items(), strict=True):
        for place, coefficient in enumerate(ds["coefficient"].values.tolist()):
            curve = ds["renyi_epsilon"].sel(coefficient=coefficient)
            curve = curve.where(np.isfinite(curve), drop=True)
            look = _CURVES[place % len(_CURVES)]
            label = "1 (direct posterior)" if coefficient == 1 else format_value(coefficient)
            axes.plot(curve["order"], curve, **look, linewidth=1.6, label=label)
            asymptote = float(ds["critical_order"].sel(coefficient=coefficient))
            axes.axvline(asymptote, color=look["color"], linestyle=":", linewidth=0.9)
        axes.set_title(title, fontsize="medium", loc="left")
        axes.set_xlim(0, float(ds["order"].max()))
        axes.set_ylim(0, 2)
        axes.set_xlabel("order λ")
        axes.set_ylabel("ε (nat)")
        axes.tick_params(labelleft=True)
        finish_axes(axes, None)
    lines, labels = grid[0].get_legend_handles_labels()
    figure.legend(
        lines, labels, title="coefficient", loc="outside upper center", ncols=6, frameon=False, fontsize="small"
    )
    return figure


def draw_divergences(ds: xr.Dataset, styles: Styles) -> Figure:
    """Draw divergences of the posterior against ε on linear and logarithmic axes, with one column per order.

    Parameters
    ----------
    ds : xarray.Dataset
        Summary with ``kl`` and ``spent_epsilon`` (order, epsilon, mechanism); missing where a mechanism is undefined.
    styles : mapping
        Style of each mechanism by name.

    Returns
    -------
    matplotlib.figure.Figure
    """
    figure, grid = _two_rows(ds, 6.4)
    styles = styles_for(styles, "mechanism", [ds])
    direct = ds["spent_epsilon"].sel(mechanism="direct").max("epsilon") if "direct" in ds["mechanism"] else None
    for column, order in zip(grid.T, ds["order"].values.tolist(), strict=True):
        for name in ds["mechanism"].values.tolist():
            if name == "direct":
                continue
            kl = ds["kl"].sel(order=order, mechanism=name).sortby("epsilon")
            for axes, shown in zip(column, (kl, kl.where(kl > 0)), strict=True):
                axes.plot(kl["epsilon"], shown, **styles[name], markersize=3.5, linewidth=1.2, label=name)
        if direct is not None and np.isfinite(direct.sel(order=order)):
            for axes in column:
                colour = styles["direct"]["color"]
                axes.axvline(float(direct.sel(order=order)), color=colour, linestyle=":", label="direct sampling")
        column[0].set_ylim(-0.02, 0.7)
        column[1].set_yscale("log")
        column[1].set_ylim(1e-6, 10)
    return _finish(figure, grid, ds, "KL divergence (nat)")


def draw_losses(ds: xr.Dataset, styles: Styles) -> Figure:
    """Draw exact and simulated log losses against ε, with one column per order.

    Parameters
    ----------
    ds : xarray.Dataset
        Summary with ``expected_nll``, ``heldout_nll_mean`` and ``heldout_nll_sd`` (order, epsilon, mechanism).
    styles : mapping
        Style of each mechanism by name.

    Returns
    -------
    matplotlib.figure.Figure
    """
    figure, grid = _two_rows(ds, 7.0)
    styles = styles_for(styles, "mechanism", [ds])
    for column, order in zip(grid.T, ds["order"].values.tolist(), strict=True):
        for name in ds["mechanism"].values.tolist():
            one, style = ds.sel(order=order, mechanism=name).sortby("epsilon"), styles[name]
            points = {"color": style["color"], "marker": style["marker"], "linestyle": "none", "markersize": 3.5}
            for axes in column:
                axes.plot(
                    one["epsilon"],
                    one["expected_nll"],
                    color=style["color"],
                    linestyle=style["linestyle"],
                    linewidth=1.2,
                )
                axes.plot(one["epsilon"], one["heldout_nll_mean"], **points)
                axes.plot([], [], **style, markersize=3.5, label=name)
            if name != "gaussian-tight":  # not in P3; its band is similar to that of the published variance
                mean, sd = one["heldout_nll_mean"], one["heldout_nll_sd"]
                column[0].fill_between(
                    one["epsilon"], mean - sd, mean + sd, color=style["color"], alpha=0.13, linewidth=0
                )
        lowest = float(ds["expected_nll"].min())
        column[0].set_ylim(0.85 * lowest, 2.5 * lowest)
        column[1].set_ylim(0.99 * lowest, 1.14 * lowest)
    return _finish(figure, grid, ds, "negative log likelihood (nat)")


def _two_rows(ds: xr.Dataset, height: float) -> tuple[Figure, np.ndarray]:
    figure = Figure(figsize=(7.2, height), layout="constrained")
    return figure, figure.subplots(2, ds.sizes["order"], squeeze=False, sharex=True, sharey="row")


def _finish(figure: Figure, grid: np.ndarray, ds: xr.Dataset, ylabel: str) -> Figure:
    """Label axes and columns, set ticks of ε at powers of e, and add a legend."""
    low, high = np.log(float(ds["epsilon"].min())), np.log(float(ds["epsilon"].max()))
    powers = np.arange(np.ceil(low / 5 - 1e-9) * 5, high + 1e-9, 5)
    for row in grid:
        for axes, order in zip(row, ds["order"].values.tolist(), strict=True):
            axes.set_title(f"order {format_value(order)}", fontsize="medium", loc="left")
            axes.set_xscale("log")
            axes.set_xticks(np.exp(powers), [f"$e^{{{power:.0f}}}$" for power in powers])
            axes.set_xticks([], minor=True)
            axes.set_xlabel("ε (nat)")
            axes.set_ylabel(ylabel)
            axes.tick_params(labelleft=True, labelbottom=True)
            finish_axes(axes, None)
    lines, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(
        lines, labels, loc="outside upper center", ncols=len(labels), frameon=False, fontsize="small", handlelength=3
    )
    return figure
