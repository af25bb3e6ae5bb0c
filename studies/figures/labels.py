"""Legends, and labels at the ends of lines."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import isotonic_regression

from studies.figures.plot import MAX_DIRECT, Plot
from studies.styles import ORIGINS, Look

_NARROW = 300  # pixels of a legend without headings
_LINE = 13.0  # height of a label in pixels
_ROW, _CHARACTER, _SAMPLE, _HEADING = 18, 6.2, 34, 86  # pixels of a legend: row, character, sample of a line, heading


@lru_cache(maxsize=16)  # the layers of a figure share its labels
def at_line_ends(plot: Plot) -> pd.DataFrame:
    """Return labels for the lines that end at the right edge of the figure, one per row.

    The columns are ``axes`` and ``series``, and on the vertical axis the ``end`` of the line and the position ``y`` of
    the label. There are no rows if the lines are not named, if there are fewer than two or more than `MAX_DIRECT`
    series, if one of them has no line at the right edge, if the lines end at the same point, or if other values can be
    picked.
    """
    series, column = plot.shown, plot.main
    none = pd.DataFrame({"axes": [], "series": [], "end": [], "y": []})
    is_direct = plot.named and 2 <= len(series) <= MAX_DIRECT and plot.at_ends and plot.share_y
    if not is_direct or plot.sideways or plot.x.discrete or plot.picks:
        return none
    low, high = plot.limits
    titles = plot.titles
    last = titles[plot.columns - 1 :: plot.columns] + (titles[-1:] if len(titles) % plot.columns else [])
    parts = []
    for title in last or [""]:
        rows = plot.rows[plot.rows["axes"] == title] if title else plot.rows
        rows = rows[rows["series"].isin(series) & rows[column].between(low, high)]
        at_edge = rows[rows["x"] == (plot.rows if plot.share_x else rows)["x"].max()]
        ends = at_edge.groupby("series", sort=False)[column].last().rename("end")
        places = _spread(_place(ends.to_numpy(float), plot), plot.height)
        parts.append(ends.reset_index().assign(axes=title or None, y=_invert(places, plot)))
    labels = pd.concat(parts, ignore_index=True)
    return labels if set(labels["series"]) == set(series) else none


def _place(values: np.ndarray, plot: Plot) -> np.ndarray:
    """Return the heights in pixels above the lower end of the axis."""
    low, high = plot.limits
    if plot.y.log:
        return plot.height * np.log(values / low) / np.log(high / low)
    return plot.height * (values - low) / (high - low)


def _invert(places: np.ndarray, plot: Plot) -> np.ndarray:
    low, high = plot.limits
    return low * (high / low) ** (places / plot.height) if plot.y.log else low + (high - low) * places / plot.height


def _spread(places: np.ndarray, height: float) -> np.ndarray:
    """Move labels apart, so that neighbours are at least one line apart, and none is above the axes."""
    order, steps = np.argsort(places, kind="stable"), _LINE * np.arange(len(places))
    moved = isotonic_regression(places[order] - steps).x.clip(max=height - _LINE * (len(places) - 1)) + steps
    spread = np.empty(len(places))
    spread[order] = moved
    return spread


def encode_series(series: Mapping[str, Look], *channels: str) -> dict[str, Any]:
    """Return encodings of the looks of series in Vega-Lite."""
    looks: Mapping[str, Callable[[Look], Any]] = {
        "color": lambda look: look.color,
        "stroke": lambda look: look.color,
        "fill": lambda look: look.fill,
        "shape": lambda look: look.marker,
        "strokeDash": lambda look: list(look.dash) or [1, 0],
    }
    return {
        channel: {
            "field": "series",
            "type": "nominal",
            "scale": {"domain": list(series), "range": list(map(looks[channel], series.values()))},
            "legend": None,
        }
        for channel in channels
    }


def legend(
    series: Mapping[str, Look], note: str, width: int, fades: tuple[dict[str, Any], dict[str, Any]]
) -> tuple[dict[str, Any], list[Any]]:
    """Return the view of a legend and its data, with one group of rows per origin of the series.

    The opacities of samples and of names are `fades`.
    """
    fade, fade_text = fades
    entries, n_rows = _place_entries(series, note, width)
    raw = {"type": "quantitative", "scale": None, "axis": None}
    at = {"x": {"field": "x", **raw}, "y": {"field": "y", **raw}}
    rule = {"type": "rule", "strokeWidth": 1.5, "x2Offset": _SAMPLE - 6}
    point = {"type": "point", "size": 34, "strokeWidth": 1.2, "xOffset": (_SAMPLE - 6) / 2}
    text = {"type": "text", "align": "left", "baseline": "middle"}

    def layer(kind: str, mark: dict[str, Any], **channels: Any) -> dict[str, Any]:
        return {"transform": [{"filter": f"isValid(datum.{kind})"}], "mark": mark, "encoding": {**at, **channels}}

    samples = [
        layer("series", rule, x2={"field": "x"}, **encode_series(series, "color", "strokeDash"), opacity=fade),
        layer("series", point, **encode_series(series, "stroke", "fill", "shape"), opacity=fade),
        layer("series", {**text, "dx": _SAMPLE, "cursor": "pointer"}, text={"field": "series"}, opacity=fade_text),
    ]
    layers = [*(samples if series else ()), layer("heading", {**text, "fontWeight": 600}, text={"field": "heading"})]
    return {"data": {"name": "legend"}, "width": width, "height": max(n_rows, 1) * _ROW - 6, "layer": layers}, entries


def _place_entries(series: Mapping[str, Look], note: str, width: int) -> tuple[list[dict[str, Any]], int]:
    """Return the headings and the names of series in a legend with their positions, and the number of rows."""
    entries: list[dict[str, Any]] = []
    row = 0
    if note:
        entries.append({"heading": note, "x": 0, "y": 0})
        row = 1
    headed = width > _NARROW and any(look.origin for look in series.values())
    start = _HEADING if headed else 0
    for origin in [*ORIGINS, ""]:
        group = [name for name, look in series.items() if look.origin == origin]
        if not group:
            continue
        if headed:
            entries.append({"heading": ORIGINS.get(origin, "other"), "x": 0, "y": row * _ROW})
        x: float = start
        for name in group:
            needed = _SAMPLE + _CHARACTER * len(name) + 16
            if x > start and x + needed > width + 40:
                x, row = start, row + 1
            entries.append({"series": name, "x": round(x), "y": row * _ROW})
            x += needed
        row += 1
    return entries, row
