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


def _style(k: int) -> dict[str, Any]:
    """Colour, marker and dashes of the k-th method, the same in every figure of a study."""
    k %= len(_COLOURS)
    return {"color": _COLOURS[k], "marker": _MARKERS[k], "linestyle": _DASHES[k]}


def _label(variable: xr.DataArray) -> str:
    unit = variable.attrs.get("units", "1")
    return f"{variable.attrs.get('long_name', variable.name)}{'' if unit == '1' else f' ({unit})'}"


def _title(ds: xr.Dataset) -> str:
    """Name the constants that a reader needs to place the picture."""
    names = [name for name in ("epsilon", "delta") if name in ds.coords and ds[name].ndim == 0]
    symbols = {"epsilon": "ε", "delta": "δ"}
    return ", ".join(f"{symbols[name]} = {format_value(ds[name].item())}" for name in names)


def _finish(axes: Axes, ds: xr.Dataset, y_label: str) -> None:
    axes.set_ylabel(y_label)
    axes.set_title(_title(ds), fontsize="medium", loc="right")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25, linewidth=0.6)


def draw_lines(ds: xr.Dataset, x: str, measure: str, exact: str, by: str) -> Canvas:
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

    Returns
    -------
    matplotlib.figure.Figure
    """
    canvas, axes = _canvas()
    for k, method in enumerate(ds[by].values):
        one, style = ds.sel({by: method}), _style(k)
        axes.plot(one[x], one[exact], color=style["color"], linestyle=style["linestyle"], linewidth=1.5)
        axes.errorbar(
            one[x],
            one[f"{measure}_mean"],
            yerr=2 * one[f"{measure}_mcse"],
            **{**style, "linestyle": "none"},
            capsize=2,
            markersize=5,
        )
        axes.plot([], [], **style, markersize=5, label=str(method))
    axes.set_xlabel(_label(ds[x]))
    axes.set_xticks(ds[x].values)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize="small", ncols=2)
    _finish(axes, ds, "mean Hellinger distance")
    return canvas


def draw_quartiles(ds: xr.Dataset, x: str, measure: str, by: str) -> Canvas:
    """Draw median and quartiles of a measure against a factor whose values are evenly spaced by rank."""
    canvas, axes = _canvas(height=4.4)
    places = np.arange(ds.sizes[x])
    for k, method in enumerate(ds[by].values):
        one, style = ds.sel({by: method}), _style(k)
        axes.fill_between(
            places, one[f"{measure}_q25"], one[f"{measure}_q75"], color=style["color"], alpha=0.15, linewidth=0
        )
        axes.plot(places, one[f"{measure}_median"], **style, markersize=4, linewidth=1.4, label=str(method))
    axes.set_xticks(places, [format_value(value) for value in ds[x].values.tolist()], fontsize="small")
    axes.set_xlabel(_label(ds[x]))
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize="small", ncols=2)
    _finish(axes, ds, "Hellinger distance: median and quartiles")
    return canvas


def draw_ranges(ds: xr.Dataset, measure: str, exact: str, by: str) -> Canvas:
    """Draw, for each method, the range of a measure over its draws and the exact mean."""
    canvas, axes = _canvas(height=0.45 * ds.sizes[by] + 1.1)
    for k, method in enumerate(ds[by].values):
        one, style = ds.sel({by: method}), _style(k)
        colour = style["color"]
        axes.hlines(k, one[f"{measure}_q05"], one[f"{measure}_q95"], color=colour, linewidth=1.5)
        axes.hlines(k, one[f"{measure}_q25"], one[f"{measure}_q75"], color=colour, linewidth=6, alpha=0.6)
        axes.plot(one[exact], k, color=colour, marker=style["marker"], markeredgecolor="white", markersize=7)
    axes.set_yticks(range(ds.sizes[by]), [str(method) for method in ds[by].values])
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    _finish(axes, ds, "")
    axes.set_xlabel("Hellinger distance")
    return canvas


@contextmanager
def _page(dark: bool) -> Iterator[None]:
    ink = "#e8e8e8" if dark else "#1a1a1a"
    colours = ("axes.edgecolor", "axes.labelcolor", "text.color", "xtick.color", "ytick.color", "grid.color")
    with mpl.rc_context({**dict.fromkeys(colours, ink), "svg.fonttype": "path", "svg.hashsalt": "dpstudies"}):
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
