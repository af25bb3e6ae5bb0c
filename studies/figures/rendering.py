"""Interactive figures."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from studies.figures.plot import Plot
from studies.figures.vega import Spec, first_lines, other_scale, specify
from studies.styles import Look


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
    marker = {"d": _SHAPES.get(look.marker, look.marker), "stroke": look.color, "fill": look.fill, "transform": at}
    return [line, marker]


_SHAPES = {
    "circle": "M-1,0a1,1 0 1,0 2,0a1,1 0 1,0 -2,0",
    "square": "M-1,-1H1V1H-1Z",
    "diamond": "M0,-1L1,0L0,1L-1,0Z",
    "cross": "M-1,-.4H-.4V-1H.4V-.4H1V.4H.4V1H-.4V.4H-1Z",
}
"""Shape of Vega -> path in SVG."""


def _tabulate(records: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return records as columns by name, whose JSON contains each name, and each text of a column, once.

    A column of texts is the list of its distinct texts, followed by the positions in this list.
    """
    names = dict.fromkeys(name for record in records for name in record)
    return {name: _encode([record.get(name) for record in records]) for name in names}


def _encode(column: Sequence[Any]) -> list[Any]:
    codes = {text: code for code, text in enumerate(dict.fromkeys(one for one in column if isinstance(one, str)))}
    return [list(codes), *map(codes.get, column)] if codes else list(column)
