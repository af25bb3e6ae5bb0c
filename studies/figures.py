"""Drawing: figures as they look in a paper, from summaries, for light and for dark pages.

Colours are those of Okabe & Ito, which colour-blind readers can tell apart; markers and dashes differ as well, so that
a figure can be read in black and white.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from pipeline.factors import format_value

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8A8A8A", "#B8A800")
_MARKERS = "osD^vPX*"
_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)), (0, (3, 1)), (0, (8, 2)), "-", "--")


def _canvas(width: float = 6.4, height: float = 4.0) -> tuple[Canvas, Axes]:
    canvas = Canvas(figsize=(width, height), layout="constrained")
    return canvas, canvas.add_subplot()


def _styles(ds: xr.Dataset, by: str, order: Sequence[str]) -> Iterator[tuple[xr.Dataset, str, dict[str, Any]]]:
    """Yield each method's summary, label and style; the style is that of its place in `order`, whatever is stored."""
    notes = ds[by].attrs.get("notes", {})
    for name in ds[by].values.tolist():
        k = order.index(name) % len(_COLOURS)
        label = f"{name} (not private)" if notes.get(name, "").startswith("Not private") else name
        yield ds.sel({by: name}), label, {"color": _COLOURS[k], "marker": _MARKERS[k], "linestyle": _DASHES[k]}


def _label(variable: xr.DataArray) -> str:
    unit = variable.attrs.get("units", "1")
    return f"{variable.attrs.get('long_name', variable.name)}{'' if unit == '1' else f' ({unit})'}"


def _title(ds: xr.Dataset) -> str:
    """Name the constants that a reader needs to place the picture."""
    names = [name for name in ("epsilon", "delta") if name in ds.coords and ds[name].ndim == 0]
    symbols = {"epsilon": "ε", "delta": "δ"}
    return ", ".join(f"{symbols[name]} = {format_value(ds[name].item())}" for name in names)


def _finish(axes: Axes, ds: xr.Dataset | None) -> None:
    """Take away what is not data, and name the constants above the picture."""
    if ds is not None:
        axes.set_title(_title(ds), fontsize="medium", loc="right")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.15, linewidth=0.6)


def draw_lines(ds: xr.Dataset, x: str, measure: str, exact: str, by: str, order: Sequence[str]) -> Canvas:
    """Draw the mean of a measure against a factor, one line a method.

    Parameters
    ----------
    ds : xarray.Dataset
        Summary of one panel.
    x, by : str
        The factor on the horizontal axis, and the dimension of the methods.
    measure, exact : str
        The measure whose mean is drawn as markers, with two Monte Carlo standard errors either way, and the variable
        with its exact expectation, drawn as lines.
    order : sequence of str
        All methods of the study, which decides their styles.

    Returns
    -------
    matplotlib.figure.Figure
    """
    canvas, axes = _canvas()
    for one, label, style in _styles(ds, by, order):
        axes.plot(one[x], one[exact], color=style["color"], linestyle=style["linestyle"], linewidth=1.5)
        points = {**style, "linestyle": "none", "markersize": 5}
        axes.errorbar(one[x], one[f"{measure}_mean"], yerr=2 * one[f"{measure}_mcse"], **points, capsize=2)
        axes.plot([], [], **style, markersize=5, label=label)
    axes.set_xlabel(_label(ds[x]))
    axes.set_xticks(ds[x].values)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("mean Hellinger distance")
    axes.legend(frameon=False, fontsize="small", ncols=2)
    _finish(axes, ds)
    return canvas


def draw_quartiles(ds: xr.Dataset, x: str, measure: str, by: str, order: Sequence[str]) -> Canvas:
    """Draw median, quartiles and outer percentiles of a measure against a factor, one small picture a method.

    The values of the factor stand at even spaces. For the parameters see `draw_lines`.
    """
    n_columns = 3
    n_rows = -(-ds.sizes[by] // n_columns)
    canvas = Canvas(figsize=(7.2, 2.3 * n_rows + 0.4), layout="constrained")
    grid = canvas.subplots(n_rows, n_columns, sharex=True, sharey=True, squeeze=False).ravel()
    places = np.arange(ds.sizes[x])
    ticks = places[:: max(1, len(places) // 5)]
    for axes, (one, label, style) in zip(grid, _styles(ds, by, order), strict=False):
        for low, high, alpha in (("q05", "q95", 0.15), ("q25", "q75", 0.35)):
            band = (one[f"{measure}_{low}"], one[f"{measure}_{high}"])
            axes.fill_between(places, *band, color=style["color"], alpha=alpha, linewidth=0)
        axes.plot(places, one[f"{measure}_median"], **style, markersize=3.5, linewidth=1.3)
        axes.set_title(label, fontsize="medium", loc="left")
        axes.set_xticks(ticks, [format_value(value) for value in ds[x].values[ticks].tolist()])
        axes.tick_params(labelbottom=True)
        axes.set_ylim(0, 1)
        _finish(axes, None)
    for axes in grid[ds.sizes[by] :]:
        axes.set_axis_off()
    canvas.supxlabel(_label(ds[x]), fontsize="medium")
    canvas.supylabel("Hellinger distance", fontsize="medium")
    return canvas


def draw_ranges(ds: xr.Dataset, measure: str, exact: str, by: str, order: Sequence[str]) -> Canvas:
    """Draw, for each method, the range of a measure over its draws and the exact mean, on a logarithmic axis.

    For the parameters see `draw_lines`.
    """
    canvas, axes = _canvas(height=0.45 * ds.sizes[by] + 1.1)
    labels = []
    for k, (one, label, style) in enumerate(_styles(ds, by, order)):
        colour = style["color"]
        labels.append(label)
        axes.hlines(k, one[f"{measure}_q05"], one[f"{measure}_q95"], color=colour, linewidth=1.5)
        axes.hlines(k, one[f"{measure}_q25"], one[f"{measure}_q75"], color=colour, linewidth=7, alpha=0.5)
        axes.plot(one[exact], k, color=colour, marker=style["marker"], markersize=7)
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("Hellinger distance (logarithmic)")
    _finish(axes, ds)
    return canvas


@contextmanager
def _page(dark: bool) -> Iterator[None]:
    ink = "#e8e8e8" if dark else "#1a1a1a"
    inked = ("axes.edgecolor", "axes.labelcolor", "text.color", "xtick.color", "ytick.color", "grid.color")
    settings: dict[Any, Any] = {**dict.fromkeys(inked, ink), "svg.fonttype": "path", "svg.hashsalt": "dpstudies"}
    with mpl.rc_context(settings):
        yield


def render(draw: Any, summaries: Mapping[str, xr.Dataset], formats: Sequence[str], dark: bool = False) -> list[bytes]:
    """Draw a figure and return it in each of the formats.

    Parameters
    ----------
    draw : callable
        ``{panel: summary Dataset} -> matplotlib Figure``.
    summaries : mapping
        What it is given.
    formats : sequence of str
        Such as ``"svg"`` and ``"png"``.
    dark : bool
        Whether the page behind it is dark. SVG is transparent; PNG has the page's colour.

    Returns
    -------
    list of bytes
    """
    with _page(dark):
        canvas = draw(summaries)
        return [_save(canvas, name) for name in formats]


def _save(canvas: Canvas, name: str) -> bytes:
    buffer = io.BytesIO()
    metadata = {"Date": None} if name == "svg" else None
    canvas.savefig(buffer, format=name, transparent=name == "svg", dpi=200, metadata=metadata)
    return buffer.getvalue()
