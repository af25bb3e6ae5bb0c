"""Figures: descriptions of their axes, and static and interactive renderings.

A study declares a `Chart`, or a function that returns `Plot` objects. A method has the same look in all figures of a
study: a colour that colour-blind readers can distinguish, a marker, and a dash and fill that state its origin (see
`studies.styles`).
"""

from studies.figures.chart import Chart, Parts, Summaries, quantiles, ratios, shares, stacked
from studies.figures.conversion import Converter, convert
from studies.figures.hidden_lines import describe_hidden, describe_outside
from studies.figures.plot import Axis, Plot
from studies.figures.vega import interactive, specify, specify_small

__all__ = [
    "Axis",
    "Chart",
    "Converter",
    "Parts",
    "Plot",
    "Summaries",
    "convert",
    "describe_hidden",
    "describe_outside",
    "interactive",
    "quantiles",
    "ratios",
    "shares",
    "specify",
    "specify_small",
    "stacked",
]
