"""Vega-Lite specification of a figure, and the interactive figure of a page.

Specifications are dictionaries: Altair, which validates them while it builds them, takes as long per figure as drawing
it. The tests compile the specification of every figure instead.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from pipeline.declare.factors import format_value
from studies.figures.hidden_lines import describe_hidden
from studies.figures.labels import at_line_ends, encode_series, legend
from studies.figures.plot import DEFAULT_MARKS, MARKS, Axis, Plot
from studies.styles import INK, SHAPES, Look

Spec = dict[str, Any]

WIDTH = 640
"""Default width of a figure in pixels, without labels at the ends of lines."""

_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
_DIGITS = 5  # significant digits of embedded numbers
_GAP, _NARROW_GAP = 52, 26  # pixels between axes in a row, with and without tick labels
_ROW_GAP, _TITLE = 44, 28  # pixels between rows of axes, and of the title of a horizontal axis
_STEPS = ((1,), (1, 2, 5), (1, 1.5, 2, 3, 5, 7), (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 4, 5, 6, 8), np.arange(1, 10, 0.1))
_MIN_TICKS, _MAX_TICKS = 4, 8
_SPARE = 20  # pixels at the right end of names, for fonts that are wider than that of the converter
_SHOWN = "!isValid(datum.series) || indexof(chosen, datum.series) >= 0"
_FAINT, _READABLE = 0.25, 0.65  # opacity of what belongs to hidden lines: samples, and text of contrast >= 4.5
_TEXT = {"labelFontSize": 11, "titleFontSize": 12, "titleFontWeight": "normal"}
_CONFIG: Spec = {
    "aria": False,  # the page describes the figure as a whole
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {
        **dict.fromkeys(("labelColor", "titleColor", "domainColor", "tickColor", "gridColor"), INK),
        **_TEXT,
        "gridOpacity": 0.12,
        "domainOpacity": 0.5,
        "tickOpacity": 0.5,
        "tickSize": 4,
        "labelOverlap": "greedy",
        "labelSeparation": 6,
    },
    "header": {"labelColor": INK, "labelFontSize": 12, "labelAnchor": "start", "labelFontWeight": 600, "title": None},
    "title": {"color": INK, "fontSize": 12, "anchor": "start", "fontWeight": "normal", "frame": "bounds"},
    "text": {"color": INK, "fontSize": 11},
}


def specify(plots: Sequence[Plot], hover: bool = False, datasets: Spec | None = None, width: int = WIDTH) -> Spec:
    """Return the Vega-Lite specification of a figure, with its data under the key ``datasets``.

    Plots stand one above the other, with the lines that are shown at first. `hover` adds areas that display the values
    of a point. The data can be those of another specification of the same figure.
    """
    columns = [_specify_plot(plot, f"rows{number}", hover, width) for number, plot in enumerate(plots)]
    datasets = dict(datasets or {f"rows{number}": records(plot) for number, plot in enumerate(plots)})
    with_legend = [plot for plot in plots if plot.named and at_line_ends(plot).empty]
    series = {name: plot.series[name] for plot in with_legend for name in plot.shown}
    if len(series) < 2:
        series = {}
    notes = _notes(plots, hover)
    if series or notes:
        view, datasets["legend"] = legend(series, ", ".join(notes), max(width, 290), (_fade(_FAINT), _fade(_READABLE)))
        columns = [view, *columns]
    picks = [plot.picks[0] for plot in plots if plot.picks][:1]
    return {
        "$schema": _SCHEMA,
        "background": "transparent",
        "padding": {"left": 5, "top": 5, "right": _SPARE, "bottom": 5},
        "config": _CONFIG,
        "params": [{"name": "chosen", "value": first_lines(plots)}, *({"name": "picked", "value": p} for p in picks)],
        "vconcat": columns,
        "spacing": 18,
        "resolve": {"scale": dict.fromkeys(("color", "stroke", "fill", "shape", "strokeDash"), "independent")},
        "datasets": datasets,
    }


def specify_small(plot: Plot) -> Spec:
    """Return the specification of a small image: the first axes of a plot, about 340 pixels wide with its names."""
    small = plot.small
    n_characters = max(map(len, at_line_ends(small)["series"]), default=0)
    return specify([small], width=round(285 - 6.5 * n_characters))


def first_lines(plots: Sequence[Plot]) -> list[str]:
    """Return the names of the lines that a figure shows at first."""
    return list(dict.fromkeys(name for plot in plots for name in plot.shown))


def _notes(plots: Sequence[Plot], hover: bool) -> list[str]:
    """Return the constants, and for a static image the picked values and the number of hidden lines."""
    notes = [note for plot in plots for note in (plot.note, *(plot.picks[:1] if not hover else []))]
    notes += [] if hover else [describe_hidden(plots).note]
    return list(dict.fromkeys(filter(None, notes)))


def other_scale(plots: Sequence[Plot]) -> list[Plot] | None:
    """Return the plots with linear instead of logarithmic vertical axes, or vice versa, and names at the same places.

    None is returned if a value is not positive, or if the limits of a linear axis do not include 0.
    """
    if any(plot.sideways or plot.y.discrete or not (plot.values() > 0).all() for plot in plots):
        return None
    if any(not plot.y.log and plot.y.limits[0] for plot in plots) or len({plot.y.log for plot in plots}) > 1:
        return None
    axes = [replace(plot.y, log=not plot.y.log, limits=(0.0 if plot.y.log else None, None), ticks=()) for plot in plots]
    at_ends = [not at_line_ends(plot).empty for plot in plots]  # a line may end outside of the limits of one axis
    return [replace(plot, y=y, at_ends=named) for plot, y, named in zip(plots, axes, at_ends, strict=True)]


def records(plot: Plot) -> list[dict[str, Any]]:
    """Return the rows of a plot, and its labels, as JSON values without missing ones."""
    (other,) = other_scale([plot]) or [plot]
    labels = at_line_ends(plot).rename(columns={"y": _scale(plot)})
    switched = at_line_ends(other).rename(columns={"y": _scale(plot, True)})
    labels = labels.merge(switched, "right", ["axes", "series", "end"])
    table = plot.rows if labels.empty else pd.concat([plot.rows, labels])
    columns = {name: [_value(value) for value in table[name].to_numpy(object)] for name in table}
    if plot.x.discrete:
        columns["x"] = [_text(value) for value in plot.rows["x"].tolist()]
    cells = zip(*columns.values(), strict=True)
    return [{name: value for name, value in zip(columns, row, strict=True) if value is not None} for row in cells]


def _scale(plot: Plot, other: bool = False) -> str:
    """Return the column with the positions of labels on the scale of the plot, or on the other scale."""
    return "label_log" if plot.y.log != other else "label_linear"


def _value(value: Any) -> Any:
    """Return a JSON value; None if it is missing or infinite."""
    if value is None or isinstance(value, str):
        return value
    number = float(value)
    return _round(number) if math.isfinite(number) else None


def _round(number: float) -> float | int:
    rounded = float(f"{number:.{_DIGITS}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def _fade(opacity: float) -> Spec:
    """Return an opacity of 1 for the chosen lines."""
    return {"condition": {"test": _SHOWN, "value": 1.0}, "value": opacity}


def _specify_plot(plot: Plot, name: str, hover: bool, whole: int) -> Spec:
    n_columns = min(plot.columns, len(plot.titles)) or 1
    width = round((whole - (_NARROW_GAP if plot.share_y else _GAP) * (n_columns - 1)) / n_columns)
    layers = [_layer(plot, mark) for mark in plot.marks]
    layers += [] if at_line_ends(plot).empty else _label_layers(plot, width)
    layers += [_hover_layer(plot)] if hover else []
    axes = {"width": width, "height": plot.height, "layer": layers}
    title = plot.x.title if plot.sideways else plot.y.title
    value = f"datum.{plot.main}"
    error = " + (isValid(datum.mcse) ? ' ± ' + format(datum.mcse, '.2~g') : '')" if "mcse" in plot.rows else ""
    if "at_least" in plot.rows:
        ends = " + ', ' + ".join(f"format(datum.{end}, '.3~g')" for end in ("at_least", "at_most"))
        error = f" + (isValid(datum.at_least) ? ' [' + {ends} + ']' : {error.removeprefix(' + ') or repr('')})"
    transform = [{"calculate": f"isValid({value}) ? format({value}, '.4~g'){error} : ''", "as": "value"}]
    if plot.picks:
        transform = [{"filter": "!isValid(datum.pick) || datum.pick === picked"}, *transform]
    shown = {
        "data": {"name": name},
        "transform": transform,
        **({} if plot.sideways else {"title": title.split("\n") if "\n" in title else title}),
    }
    if not plot.titles:
        return {**shown, **axes}
    shared = {"x": plot.share_x, "y": plot.share_y}
    separate = {channel: "independent" for channel, whole in shared.items() if not whole}
    is_grid = plot.share_x and len(plot.titles) % n_columns == 0
    spacing = {"row": _ROW_GAP if is_grid else _ROW_GAP + _TITLE, "column": _GAP if separate.get("y") else _NARROW_GAP}
    return {
        **shown,
        "facet": {"field": "axes", "type": "nominal", "sort": plot.titles, "title": None},
        "columns": n_columns,
        "bounds": "flush",  # labels at the ends of lines need no space in the other columns
        "spacing": spacing,
        "spec": axes,
        "resolve": {"scale": separate, **({} if is_grid else {"axis": {"x": "independent"}})},
    }


def _x(plot: Plot) -> Spec:
    if plot.x.discrete:
        values = list(dict.fromkeys(map(_text, plot.rows["x"].dropna())))
        step = max(1, len(values) // 6) if plot.columns > 1 and not plot.sideways else 1
        shown = {} if plot.sideways or step == 1 else {"values": values[::step]}
        axis = {"title": None if plot.sideways else plot.x.title, "labelAngle": 0, "labelLimit": 220, **shown}
        return {"field": "x", "type": "ordinal", "sort": values, "scale": {"padding": 0.3}, "axis": axis}
    numbers = np.unique(plot.rows["x"].dropna().to_numpy(float))
    ticks = plot.x.ticks or (tuple(numbers) if numbers.size <= 7 else ())
    ends = (float(numbers[0]), float(numbers[-1])) if numbers.size else (0.1, 1.0)
    low, high = (end if given is None else given for given, end in zip(plot.x.limits, ends, strict=True))
    margin = 0.02 * (high - low)
    domain = (low / 1.06, high * 1.06) if plot.x.log else (low - margin, high + margin)
    domain = domain if plot.x.limits == (None, None) else (low, high)
    return _quantitative("x", plot.x, domain, ticks, plot.x.title, plot.share_x)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else format_value(value)


def _y(plot: Plot, column: str) -> Spec:
    title = plot.y.title if plot.sideways else None
    return _quantitative(column, plot.y, plot.limits, plot.y.ticks, title, plot.share_y)


def _quantitative(
    column: str, axis: Axis, domain: tuple[float, float], ticks: Sequence[float], title: str | None, shared: bool
) -> Spec:
    scale: Spec = {"type": "log" if axis.log else "linear", "nice": False}
    scale |= {"domain": [_round(end) for end in domain]} if shared else {"padding": 6}
    scale |= {} if shared or axis.log else {"zero": False}
    values = list(ticks) or (_log_ticks(*domain) if axis.log else [])
    shown = {"values": [_round(value) for value in values if domain[0] <= value <= domain[1]]} if values else {}
    drawn = {"title": title, "format": ".6~g", "tickCount": 5, **shown}
    if axis.log and domain[0] < 1e-3:
        drawn["labelExpr"] = "datum.value < 0.001 ? format(datum.value, '.0e') : datum.label"
    return {"field": column, "type": "quantitative", "scale": scale, "axis": drawn}


def _log_ticks(low: float, high: float) -> list[float]:
    """Return at least four ticks of a logarithmic axis at the coarsest round multiples of powers of 10."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks: list[float] = []
    for steps in _STEPS:
        ticks = [float(f"{step * 10.0**power:.6g}") for power in powers for step in steps]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) >= _MIN_TICKS:
            return ticks[:: -(-len(ticks) // _MAX_TICKS)]
    return ticks


def _layer(plot: Plot, name: str) -> Spec:
    """Return the layer of a mark."""
    mark = MARKS[name]
    first = mark.columns[0]
    drawn = dict(mark.drawn)
    if name == "points":
        drawn["size"] = 34 if plot.columns < 3 else 22
    if mark.has_width:
        drawn["height" if plot.sideways else "width"] = {"band": 0.6}
    if mark.is_clipped and (plot.y.limits != (None, None) or plot.x.limits != (None, None)):
        drawn["clip"] = True
    tests = [_SHOWN, *(f"isValid(datum.{column})" for column in mark.columns if column != "mcse")]
    transform: list[Spec] = []
    encoding: Spec = {"x": _x(plot), "y": _y(plot, first)}
    if drawn["type"] == "line" and mark.looks:  # breaks at missing values of the line, not of other marks
        tests = [_SHOWN, "isValid(datum.series)", f"isValid(datum.{plot.main}) || isValid(datum.{first})"]
    if name == "points" and "marked" in plot.rows:
        tests.append("datum.marked")
    if name == "errors":
        bars = {"from": "datum.y - 2 * datum.mcse", "to": "datum.y + 2 * datum.mcse"}
        if "at_least" in plot.rows:  # the interval of an event
            tests.append("datum.mcse > 0 || isValid(datum.at_least)")
            bars = {
                end: f"isValid(datum.{given}) ? datum.{given} : {bars[end]}"
                for end, given in (("from", "at_least"), ("to", "at_most"))
            }
        else:
            tests.append("datum.mcse > 0")
        if plot.y.log:  # which has no place for values <= 0: their bars begin at the end of the axis
            bars["from"] = f"max({bars['from']}, {_round(plot.limits[0])})"
        transform = [{"calculate": calculated, "as": end} for end, calculated in bars.items()]
        encoding |= {"y": _y(plot, "from"), "y2": {"field": "to"}}
    elif len(mark.columns) == 2:
        encoding["y2"] = {"field": mark.columns[1]}
    if not mark.has_x:
        del encoding["x"]
    if name == "edge":
        encoding = {"x": {**_x(plot), "field": "edge"}}
    encoding |= encode_series(plot.series, *mark.looks)
    encoding |= _beside(plot) if mark.looks else {}
    if plot.y.log and name not in ("edge", "line", "exact"):
        tests.append(f"datum.{first} > 0")
    filters = {"filter": " && ".join(f"({test})" for test in tests)}
    return {"transform": [filters, *transform], "mark": drawn, "encoding": _oriented(plot, encoding)}


def _beside(plot: Plot) -> Spec:
    """Return an encoding that places the series next to each other at values that no line joins."""
    if not plot.x.discrete or plot.sideways or "line" in plot.marks or set(plot.marks) - set(DEFAULT_MARKS):
        return {}
    scale = {"domain": list(plot.series), "paddingOuter": 1}
    return {"xOffset": {"field": "series", "type": "nominal", "scale": scale}} if len(plot.series) > 1 else {}


def _oriented(plot: Plot, encoding: Spec) -> Spec:
    """Return an encoding with exchanged axes if the plot is sideways."""
    swapped = {"x": "y", "y": "x", "y2": "x2"} if plot.sideways else {}
    return {swapped.get(channel, channel): value for channel, value in encoding.items()}


def _label_layers(plot: Plot, width: int) -> list[Spec]:
    """Return the layers of labels at the ends of lines, each connected with its end."""
    column = _scale(plot)
    filters = [{"filter": f"isValid(datum.{column})"}]
    place = _y(plot, column)
    rule = {
        "x": {"value": width + 2},
        "x2": {"value": width + 13},
        "y": {**place, "field": "end"},
        "y2": {"field": column},
        **encode_series(plot.series, "color"),
        "opacity": _fade(0.0),
    }
    text = {"x": {"value": width + 13}, "y": place, "text": {"field": "series"}, "opacity": _fade(_READABLE)}
    mark = {"type": "text", "align": "left", "baseline": "middle", "dx": 3, "cursor": "pointer"}
    return [
        {"transform": filters, "mark": {"type": "rule", "strokeWidth": 1}, "encoding": rule},
        {"transform": filters, "mark": mark, "encoding": text},
    ]


def _hover_layer(plot: Plot) -> Spec:
    """Return invisible points that display series, position, value and number of trials."""
    main = plot.main
    fields = {"series": "", "x": plot.x.title, "value": plot.y.title, "trials": "trials"}
    tooltip = [
        {"field": name, "title": title or "line", **({"format": ",d"} if name == "trials" else {})}
        for name, title in fields.items()
        if name == "value" or (name in plot.rows and not (plot.sideways and name == "x"))
    ]
    positive = f" && datum.{main} > 0" if plot.y.log else ""
    return {
        "transform": [{"filter": f"({_SHOWN}) && isValid(datum.series) && isValid(datum.{main}){positive}"}],
        "mark": {"type": "point", "filled": True, "size": 160, "opacity": 0, "clip": True, "cursor": "pointer"},
        "encoding": _oriented(plot, {"x": _x(plot), "y": _y(plot, main), "tooltip": tooltip, **_beside(plot)}),
    }


def interactive(plots: Sequence[Plot], datasets: Spec | None = None) -> str:
    """Return the interactive figure as JSON: specifications by scale, their common data, and what a reader can choose.

    These are the names of the lines, with samples of them and those shown at first, and the picked values of factors.
    The data, by default those of the plots, are columns by name, with null for what a row lacks; see `_tabulate`.
    """
    scales = {"": specify(plots, hover=True, datasets=datasets)}
    data = scales[""]["datasets"]
    if (others := other_scale(plots)) is not None:
        names = ("logarithmic", "linear") if plots[0].y.log else ("linear", "logarithmic")
        scales = {names[0]: scales[""], names[1]: specify(others, hover=True, datasets=data)}
    specs = {name: {key: value for key, value in spec.items() if key != "datasets"} for name, spec in scales.items()}
    looks = {name: look for plot in plots if plot.named for name, look in plot.series.items()}
    lines = {name: _sample(look) for name, look in looks.items()} if len(looks) > 1 else {}
    picks = list(dict.fromkeys(pick for plot in plots for pick in plot.picks))
    tables = {name: _tabulate(rows) for name, rows in data.items()}
    shown: dict[str, Any] = {"data": tables, "scales": specs, "lines": list(lines), "samples": list(lines.values())}
    shown |= {"first": [name for name in first_lines(plots) if name in lines], "picks": picks}
    return json.dumps(shown, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _sample(look: Look) -> list[dict[str, str]]:
    """Return the attributes in SVG of the line and the marker of a legend."""
    line = {"d": "M0,5H28", "stroke": look.color, "stroke-dasharray": " ".join(map(str, look.dash))}
    at = "translate(14 5) scale(3.3)"
    marker = {"d": SHAPES.get(look.marker, look.marker), "stroke": look.color, "fill": look.fill, "transform": at}
    return [line, marker]


def _tabulate(records: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return records as columns by name, whose JSON contains each name, and each text of a column, once.

    A column of texts is the list of its distinct texts, followed by the positions in this list.
    """
    names = dict.fromkeys(name for record in records for name in record)
    return {name: _encode([record.get(name) for record in records]) for name in names}


def _encode(column: Sequence[Any]) -> list[Any]:
    codes = {text: code for code, text in enumerate(dict.fromkeys(one for one in column if isinstance(one, str)))}
    return [list(codes), *map(codes.get, column)] if codes else list(column)
