"""Styles of mechanisms and methods in all figures, from the registries.

Colours are those of Okabe & Ito, which colour-blind readers can distinguish. Markers are unique within a registry, so
that figures can be read in black and white. Variants of one sensitivity share its colour and differ in dash.
"""

from collections.abc import Iterable, Mapping
from itertools import cycle
from typing import Any

from mechanisms.counts.registry import MECHANISMS
from mechanisms.glm.mechanisms import GLM_MECHANISMS
from mechanisms.inference.methods import INFERENCE_METHODS
from mechanisms.metadata import Entry, Style
from mechanisms.regression.partition_probability import PROBABILITY_METHODS
from mechanisms.regression.partition_quantile import QUANTILE_METHODS
from mechanisms.renyi.gaussian_counts import GAUSSIAN_MECHANISMS
from mechanisms.renyi.sampling import RENYI_SAMPLERS

INK = "#1a1a1a"
"""Colour of axes and text; pages replace it in dark mode."""

_COLORS = {
    "blue": "#0072B2",
    "vermilion": "#D55E00",
    "green": "#009E73",
    "purple": "#CC79A7",
    "orange": "#E69F00",
    "sky": "#56B4E9",
    "grey": "#8A8A8A",
    "olive": "#A89A00",
    "brown": "#8C5A3C",
}
_DASHES: dict[str, Any] = {
    "solid": "-",
    "dashed": (0, (5, 2)),
    "dotted": (0, (1, 1.2)),
    "dash-dotted": (0, (5, 1.5, 1, 1.5)),
    "long-dashed": (0, (9, 2.5)),
}
_REFERENCE = Style("grey", "X", "long-dashed")


def _look(style: Style) -> dict[str, Any]:
    """Return a style in the notation of matplotlib."""
    return {"color": _COLORS[style.color], "marker": style.marker, "linestyle": _DASHES[style.dash]}


def _styles(*registries: Mapping[str, Entry], **references: Style) -> dict[str, dict[str, Any]]:
    """Return the styles of all entries, and of the posteriors that a study compares them with."""
    entries = {name: entry.style for registry in registries for name, entry in registry.items()}
    return {name: _look(style) for name, style in {**references, **entries}.items() if style is not None}


def complete_styles(styles: Mapping[str, Mapping[str, Any]], names: Iterable[str]) -> dict[str, Mapping[str, Any]]:
    """Return styles with an additional one for each further name, in ink and with an unused marker.

    Examples
    --------
    >>> complete_styles(MECHANISM_STYLES, ["smooth", "my-own"])["my-own"]
    {'color': '#1a1a1a', 'marker': '+', 'linestyle': '-'}
    """
    others = dict.fromkeys(name for name in names if name not in styles)
    return {
        **styles,
        **{
            name: {"color": INK, "marker": marker, "linestyle": "-"}
            for name, marker in zip(others, cycle("+x1348|_"), strict=False)
        },
    }


MECHANISM_STYLES = _styles(MECHANISMS)
"""Styles of mechanisms that release counts: name -> colour, marker and line style, as matplotlib names them."""

METHOD_STYLES = _styles(INFERENCE_METHODS)
"""Styles of methods of inference from noisy statistics."""

RENYI_STYLES = _styles(RENYI_SAMPLERS, GAUSSIAN_MECHANISMS, **{"true-posterior": _REFERENCE})
"""Styles of posterior sampling from exponential families."""

GLM_STYLES = _styles(GLM_MECHANISMS)
"""Styles of posterior sampling in regression."""

PARTITION_STYLES = _styles(PROBABILITY_METHODS, QUANTILE_METHODS, full=_REFERENCE)
"""Styles of regression by partitions; variants without noise share the style of those with noise."""
