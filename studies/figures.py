"""Figures drawn from summaries.

A method has the same style in all figures of a study: a colour that colour-blind readers can distinguish, and a marker
and a dash for black-and-white prints (see `studies.styles`).
"""

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from pipeline.declare.factors import format_value
from studies.styles import INK, complete_styles

Styles = Mapping[str, Mapping[str, Any]]
"""Name -> colour, marker and line style, as matplotlib names them."""


def _figure(width: float = 6.4, height: float = 4.0) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def _grid(n_axes: int, n_columns: int, height: float, **shared: Any) -> tuple[Figure, list[Axes]]:
    """Return a figure with `n_axes` axes of equal size, row by row."""
    n_columns = min(n_columns, n_axes)
    n_rows = -(-n_axes // n_columns)
    figure = Figure(figsize=(7.2, height * n_rows + 0.4), layout="constrained")
    grid = figure.subplots(n_rows, n_columns, squeeze=False, **shared).ravel()
    for axes in grid[n_axes:]:
        axes.set_axis_off()
    return figure, list(grid[:n_axes])


def styles_for(styles: Styles, by: str, parts: Iterable[xr.Dataset]) -> Styles:
    """Return styles extended by one style for each method that has none; see `complete_styles`."""
    return complete_styles(styles, (name for ds in parts for name in ds[by].values.tolist()))


def _styled(ds: xr.Dataset, by: str, styles: Styles) -> Iterator[tuple[xr.Dataset, str, dict[str, Any]]]:
    """Yield each method's summary, label and style."""
    styles = styles_for(styles, by, [ds])
    for name in ds[by].values.tolist():
        yield ds.sel({by: name}), _mark_private(ds, by, name), dict(styles[name])


def _mark_private(ds: xr.Dataset, by: str, name: str) -> str:
    """Return the label of a method; the store lists those that are not private."""
    return f"{name} (not private)" if name in ds[by].attrs.get("not_private", ()) else name


def _applying(ds: xr.Dataset, by: str, measure: str) -> xr.Dataset:
    """Drop methods without results."""
    return ds.dropna(by, how="all", subset=[f"{measure}_mean"])


def _label(variable: xr.DataArray) -> str:
    unit = variable.attrs.get("units", "1")
    return f"{variable.attrs.get('long_name', variable.name)}{'' if unit == '1' else f' ({unit})'}"


def _title(ds: xr.Dataset) -> str:
    """Return the constants epsilon and delta as text."""
    names = [name for name in ("epsilon", "delta") if name in ds.coords and ds[name].ndim == 0]
    symbols = {"epsilon": "ε", "delta": "δ"}
    return ", ".join(f"{symbols[name]} = {format_value(ds[name].item())}" for name in names)


def finish_axes(axes: Axes, ds: xr.Dataset | None) -> None:
    """Remove the top and right spines, add a grid, and print the constants of `ds` above the axes."""
    if ds is not None:
        axes.set_title(_title(ds), fontsize="medium", loc="right")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.15, linewidth=0.6)


def _legend_above(figure: Figure, axes: Axes, ds: xr.Dataset) -> None:
    """Draw one legend above all axes, with the lines of one axes, and the constants as title."""
    lines, labels = axes.get_legend_handles_labels()
    title = {"title": _title(ds), "title_fontsize": "medium", "alignment": "left"}
    figure.legend(
        lines,
        labels,
        loc="outside upper center",
        ncols=4,
        handlelength=3,
        columnspacing=1.2,
        fontsize="small",
        frameon=False,
        **title,
    )


def draw_lines(ds: xr.Dataset, x: str, measure: str, exact: str, by: str, styles: Styles) -> Figure:
    """Draw the mean of a measure against a factor, one line per method, on a logarithmic axis.

    Parameters
    ----------
    ds : xarray.Dataset
        Summary of one panel.
    x, by : str
        Factor on the horizontal axis, and dimension of the methods.
    measure, exact : str
        Measure whose mean is drawn as markers with bars of two Monte Carlo standard errors, and variable with its
        exact expectation, drawn as lines.
    styles : mapping
        Method name -> style.

    Returns
    -------
    matplotlib.figure.Figure
    """
    ds = _applying(ds, by, measure)
    figure, axes = _figure(7.2, 5.6)
    for one, label, style in _styled(ds, by, styles):
        axes.plot(one[x], one[exact], color=style["color"], linestyle=style["linestyle"], linewidth=1.5)
        points = {**style, "linestyle": "none", "markersize": 5}
        axes.errorbar(one[x], one[f"{measure}_mean"], yerr=2 * one[f"{measure}_mcse"], **points, capsize=2)
        axes.plot([], [], **style, markersize=5, label=label)
    axes.set_xlabel(_label(ds[x]))
    axes.set_xticks(ds[x].values)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylabel("mean Hellinger distance (logarithmic)")
    finish_axes(axes, None)
    _legend_above(figure, axes, ds)
    return figure


def draw_quartiles(ds: xr.Dataset, x: str, measure: str, by: str, styles: Styles) -> Figure:
    """Draw median, quartiles and outer percentiles of a measure against a factor, one axes per method.

    The values of the factor are evenly spaced. See `draw_lines` for the parameters.
    """
    figure, grid = _grid(ds.sizes[by], 3, 2.3, sharex=True, sharey=True)
    places = np.arange(ds.sizes[x])
    ticks = places[:: max(1, len(places) // 5)]
    for axes, (one, label, style) in zip(grid, _styled(ds, by, styles), strict=True):
        for low, high, alpha in (("q05", "q95", 0.15), ("q25", "q75", 0.35)):
            band = (one[f"{measure}_{low}"], one[f"{measure}_{high}"])
            axes.fill_between(places, *band, color=style["color"], alpha=alpha, linewidth=0)
        axes.plot(places, one[f"{measure}_median"], **style, markersize=3.5, linewidth=1.3)
        axes.set_title(label, fontsize="medium", loc="left")
        axes.set_xticks(ticks, [format_value(value) for value in ds[x].values[ticks].tolist()])
        axes.tick_params(labelbottom=True)
        axes.set_ylim(0, 1)
        finish_axes(axes, None)
    figure.supxlabel(_label(ds[x]), fontsize="medium")
    figure.supylabel("Hellinger distance", fontsize="medium")
    return figure


def draw_curves(ds: xr.Dataset, x: str, curves: Mapping[str, str], across: str, styles: Styles, ylabel: str) -> Figure:
    """Draw several measures against an output axis, one axes per value of a factor.

    Parameters
    ----------
    ds : xarray.Dataset
        Summary of one panel.
    x, across : str
        Output on the horizontal axis, and factor that differs between the axes.
    curves : mapping of str to str
        Curve name, which selects the style -> measure; the first curve is on top.
    styles : mapping
        Curve name -> style.
    ylabel : str
        Label of the vertical axis.

    Returns
    -------
    matplotlib.figure.Figure
    """
    figure, grid = _grid(ds.sizes[across], 2, 2.5, sharey=True)
    for axes, value in zip(grid, ds[across].values.tolist(), strict=True):
        one = ds.sel({across: value})
        for place, (name, measure) in enumerate(curves.items()):
            curve = one[measure].dropna(x)
            look = {**styles[name], "markersize": 4.5, "markevery": (0.05 * place + 0.03, 0.2)}
            look |= {"linewidth": 1.2 + 0.3 * place, "zorder": 4 - 0.1 * place}  # keeps coinciding curves visible
            axes.plot(curve[x], curve, label=name, **look)
        axes.set_title(f"{across} = {format_value(value)}", fontsize="medium", loc="left")
        axes.set_xlabel(_label(ds[x]))
        axes.set_ylabel(ylabel)
        axes.set_ylim(bottom=0)
        axes.tick_params(labelleft=True)
        finish_axes(axes, None)
    _legend_above(figure, grid[0], ds)
    return figure


def draw_ranges(ds: xr.Dataset, measure: str, exact: str, by: str, styles: Styles) -> Figure:
    """Draw the range of a measure over its draws and the exact mean, one row per method, on a logarithmic axis.

    See `draw_lines` for the parameters.
    """
    ds = _applying(ds, by, measure)
    figure, axes = _figure(height=0.45 * ds.sizes[by] + 1.1)
    labels = []
    for k, (one, label, style) in enumerate(_styled(ds, by, styles)):
        colour = style["color"]
        labels.append(label)
        axes.hlines(k, one[f"{measure}_q05"], one[f"{measure}_q95"], color=colour, linewidth=1.5)
        axes.hlines(k, one[f"{measure}_q25"], one[f"{measure}_q75"], color=colour, linewidth=7, alpha=0.5)
        axes.plot(one[exact], k, color=colour, marker=style["marker"], markersize=7)
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("Hellinger distance (logarithmic)")
    finish_axes(axes, ds)
    return figure


def draw_histograms(
    ds: xr.Dataset, bins: str, measure: str, across: str, by: str, styles: Styles, xlabel: str
) -> Figure:
    """Draw probabilities of bins and their cumulative sums, one row per value of a factor.

    Parameters
    ----------
    ds : xarray.Dataset
        Summary of one panel.
    bins : str
        Output that contains the lower edges of the bins; the last bin ends at 1.
    measure : str
        Probability of a bin; empty bins are omitted from the logarithmic axes on the left.
    across, by : str
        Factor that differs between rows, and dimension of the methods.
    styles : mapping
        Method name -> style.
    xlabel : str
        Label of the horizontal axis.

    Returns
    -------
    matplotlib.figure.Figure
    """
    figure, grid = _grid(2 * ds.sizes[across], 2, 3.0, sharex=True)
    edges = np.append(ds[bins].values, 1.0)
    for row, value in enumerate(ds[across].values.tolist()):
        single, total = grid[2 * row : 2 * row + 2]
        for place, (one, label, style) in enumerate(_styled(ds.sel({across: value}), by, styles)):
            distribution = one[measure].values
            line = {**style, "linewidth": 1.2, "markersize": 3.5}
            shown = distribution > 0
            single.plot(((edges[1:] + edges[:-1]) / 2)[shown], distribution[shown], **line, markevery=(place % 4, 4))
            total.plot(edges, np.append(0.0, distribution.cumsum()), **line, markevery=(place, 9), label=label)
        single.set_yscale("log")
        single.set_ylim(1e-6, 1)
        single.set_ylabel("probability of the bin")
        total.set_ylim(0, 1.02)
        total.set_yticks(np.linspace(0, 1, 6))
        total.set_ylabel("cumulative probability")
        single.set_title(f"{across} = {format_value(value)}", fontsize="medium", loc="left")
        for axes in (single, total):
            axes.set_xlim(0, 1)
            axes.set_xlabel(xlabel)
            axes.tick_params(labelbottom=True)
            finish_axes(axes, None)
    _legend_above(figure, grid[1], ds)
    return figure


_SERIES: tuple[dict[str, Any], ...] = (
    {"color": "#0072B2", "marker": "o", "linestyle": "-"},
    {"color": "#D55E00", "marker": "s", "linestyle": (0, (5, 2))},
    {"color": "#009E73", "marker": "^", "linestyle": (0, (1, 1.2))},
    {"color": "#CC79A7", "marker": "D", "linestyle": (0, (5, 1.5, 1, 1.5))},
    {"color": "#8C5A3C", "marker": "v", "linestyle": (0, (9, 2.5))},
    {"color": "#56B4E9", "marker": "P", "linestyle": (0, (3, 1, 1, 1, 1, 1))},
)


def draw_shares(ds: xr.Dataset, x: str, measure: str, by: str, across: str) -> Figure:
    """Draw ratios to a limit against a factor, one axes per method, and mark values above the limit.

    Parameters
    ----------
    ds : xarray.Dataset
        Summary of one panel.
    x, by : str
        Factor on the horizontal, logarithmic axis, and factor with one line per value.
    measure : str
        Ratio; NaN where the method does not apply. Values above 1 exceed the limit.
    across : str
        Dimension of the methods.

    Returns
    -------
    matplotlib.figure.Figure
    """
    figure, grid = _grid(ds.sizes[across], 4, 1.55, sharex=True, sharey=True)
    top = max(1.2, 1.08 * float(ds[measure].max()))
    ticks = ds[x].values[:: 2 if ds.sizes[x] > 3 else 1]
    for axes, name in zip(grid, ds[across].values.tolist(), strict=True):
        axes.axhspan(1, top, facecolor="none", edgecolor="#8A8A8A", hatch="////", alpha=0.35, linewidth=0)
        axes.axhline(1, color=mpl.rcParams["text.color"], linewidth=1)
        one = ds[measure].sel({across: name})
        for place, value in enumerate(ds[by].values.tolist()):
            look = {**_SERIES[place % len(_SERIES)], "markersize": 3.5, "linewidth": 1.1}
            axes.plot(ds[x], one.sel({by: value}), **look, label=f"{by} {format_value(value)}", zorder=3)
        above = one.where(one > 1 + 1e-9)
        if above.notnull().any():
            for value in ds[by].values.tolist():
                axes.plot(ds[x], above.sel({by: value}), "x", color=mpl.rcParams["text.color"], markersize=7, zorder=4)
            axes.text(
                0.97, 0.06, f"up to {float(above.max()):.3g}", ha="right", transform=axes.transAxes, fontsize="small"
            )
        axes.set_title(
            _mark_private(ds, across, name),
            fontsize="small",
            loc="left",
            fontweight="bold" if above.notnull().any() else "normal",
        )
        axes.set_xscale("log")
        axes.set_xticks(ticks, [format_value(value) for value in ticks.tolist()])
        axes.set_xticks([], minor=True)
        axes.set_ylim(0, top)
        axes.tick_params(labelbottom=True, labelsize="small")
        finish_axes(axes, None)
    figure.supxlabel(_label(ds[x]), fontsize="medium")
    figure.supylabel(_label(ds[measure]), fontsize="medium")
    lines, labels = grid[0].get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside upper center", ncols=len(labels), frameon=False, fontsize="small")
    return figure


def draw_ratios(parts: Mapping[str, xr.Dataset], x: str, measure: str, by: str, styles: Styles, ylabel: str) -> Figure:
    """Draw ratios to a limit against a factor, one axes per panel, with a line at 1.

    Parameters
    ----------
    parts : mapping of str to xarray.Dataset
        Title of the axes -> summary of a panel.
    x, by : str
        Factor on the horizontal axis, and dimension of the methods.
    measure : str
        Ratio, on a logarithmic axis; NaN where the method does not apply.
    styles : mapping
        Method name -> style.
    ylabel : str
        Label of the vertical axis.

    Returns
    -------
    matplotlib.figure.Figure
    """
    figure, grid = _grid(len(parts), 3, 3.0, sharey=True)
    styles = styles_for(styles, by, parts.values())
    shown: dict[str, tuple[Any, str]] = {}
    top = 1.1 * max(float(ds[measure].max()) for ds in parts.values())
    bottom = 0.97 * min(1.0, *(float(ds[measure].min()) for ds in parts.values()))
    steps = [0.5, 0.7, 1, 1.2, 1.5, 2, 3, 5, 10, 20, 50, 100] if top < 10 else [0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200]
    for axes, (title, ds) in zip(grid, parts.items(), strict=True):
        axes.axhline(1, color=mpl.rcParams["text.color"], linewidth=1)
        for one, label, style in _styled(ds, by, styles):
            (line,) = axes.plot(one[x], one[measure], **style, markersize=4, linewidth=1.1)
            shown[one[by].item()] = line, label
        axes.set_title(title, fontsize="medium", loc="left")
        axes.set_xlabel(_label(ds[x]))
        axes.set_yscale("log")
        axes.set_yticks(steps, [f"{step:g}" for step in steps])
        axes.set_yticks([], minor=True)
        axes.set_ylim(bottom, max(top, 1.2))
        finish_axes(axes, None)
    grid[0].set_ylabel(ylabel)
    lines, labels = zip(*(shown[name] for name in styles if name in shown), strict=True)
    heading: Any = {"title": _title(next(iter(parts.values()))), "title_fontsize": "medium", "alignment": "left"}
    figure.legend(lines, labels, loc="outside upper center", ncols=5, frameon=False, fontsize="small", **heading)
    return figure


_INKED = ("axes.edgecolor", "axes.labelcolor", "text.color", "xtick.color", "ytick.color", "grid.color")


def render(draw: Any, summaries: Mapping[str, xr.Dataset], formats: Sequence[str]) -> list[bytes]:
    """Draw a figure and return it in each format.

    Parameters
    ----------
    draw : callable
        ``{panel: summary Dataset} -> matplotlib Figure``.
    summaries : mapping
        Argument of `draw`.
    formats : sequence of str
        Formats such as ``"svg"``, which has a transparent background, and ``"png"``, which has a white one.

    Returns
    -------
    list of bytes
    """
    settings: dict[Any, Any] = {**dict.fromkeys(_INKED, INK), "svg.fonttype": "path", "svg.hashsalt": "dpstudies"}
    with mpl.rc_context(settings):
        figure = draw(summaries)
        return [_save(figure, name) for name in formats]


def _save(figure: Figure, name: str) -> bytes:
    buffer = io.BytesIO()
    metadata = {"Date": None} if name == "svg" else None
    figure.savefig(buffer, format=name, transparent=name == "svg", dpi=200, metadata=metadata)
    return buffer.getvalue()
