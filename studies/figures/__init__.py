"""Figures: a declarative description, and static and interactive renderings of it.

A study declares functions that return `Plot` objects. A method has the same look in all figures of a study: a colour
that colour-blind readers can distinguish, a marker, and a dash and fill that state its origin (see `studies.styles`).
"""

from studies.figures.conversion import Converter, convert
from studies.figures.plot import Axis, Plot, across, constants_of, label_of, of, rows_of, stack
from studies.figures.rendering import interactive
from studies.figures.shared import (
    Drawing,
    draw_curves,
    draw_histograms,
    draw_lines,
    draw_means,
    draw_quartiles,
    draw_ranges,
    draw_ratios,
    draw_shares,
    looks_of,
    quantile_rows,
    with_labels,
)
from studies.figures.vega import specify

__all__ = [
    "Axis",
    "Converter",
    "Drawing",
    "Plot",
    "across",
    "constants_of",
    "convert",
    "draw_curves",
    "draw_histograms",
    "draw_lines",
    "draw_means",
    "draw_quartiles",
    "draw_ranges",
    "draw_ratios",
    "draw_shares",
    "interactive",
    "label_of",
    "looks_of",
    "of",
    "quantile_rows",
    "rows_of",
    "specify",
    "stack",
    "with_labels",
]
