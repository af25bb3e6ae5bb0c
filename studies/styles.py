"""Styles of mechanisms and methods in all figures: one colour per family, one marker and dash per member.

Colours are those of Okabe & Ito, which colour-blind readers can distinguish. Markers are unique within a table, so that
figures can be read in black and white. Variants of one sensitivity share its colour and differ in dash: `-exact`
is dashed, `-bound` dash-dotted, `-n` dotted.
"""

from collections.abc import Iterable, Mapping
from itertools import cycle
from typing import Any

INK = "#1a1a1a"
"""Colour of axes and text; pages replace it in dark mode."""

_DASHED, _DOTTED = (0, (5, 2)), (0, (1, 1.2))
_DASH_DOTTED, _LONG_DASHED = (0, (5, 1.5, 1, 1.5)), (0, (9, 2.5))
_BLUE, _VERMILION, _GREEN, _PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
_ORANGE, _SKY, _GREY, _OLIVE, _BROWN = "#E69F00", "#56B4E9", "#8A8A8A", "#A89A00", "#8C5A3C"


def _style(color: str, marker: str, linestyle: Any) -> dict[str, Any]:
    return {"color": color, "marker": marker, "linestyle": linestyle}


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
        **{name: _style(INK, marker, "-") for name, marker in zip(others, cycle("+x1348|_"), strict=False)},
    }


MECHANISM_STYLES = {
    "smooth": _style(_BLUE, "o", "-"),
    "smooth-n": _style(_BLUE, "p", _DOTTED),
    "smooth-exact": _style(_BLUE, "h", _DASHED),
    "varying": _style(_PURPLE, "D", "-"),
    "varying-exact": _style(_PURPLE, "d", _DASHED),
    "varying-bound": _style(_PURPLE, "2", _DASH_DOTTED),
    "global": _style(_GREEN, "^", _LONG_DASHED),
    "global-exact": _style(_GREEN, ">", _DASHED),
    "local": _style(_GREY, "X", _DOTTED),
    "laplace": _style(_VERMILION, "s", "-"),
    "laplace-dimension": _style(_ORANGE, "v", _DASH_DOTTED),
    "geometric": _style(_SKY, "P", "-"),
    "hamming-exact": _style(_OLIVE, "*", _DASHED),
    "optimal": _style(_BROWN, "<", "-"),
}
"""Mechanism name -> colour, marker and line style, as matplotlib names them."""

METHOD_STYLES = {
    "gibbs": _style(_BLUE, "o", "-"),
    "gibbs-collapsed": _style(_BLUE, "h", _DASHED),
    "gibbs-published": _style(_BLUE, "p", _DOTTED),
    "marginal": _style(_PURPLE, "D", "-"),
    "exact": _style(_PURPLE, "d", _DASHED),
    "naive": _style(_VERMILION, "s", "-"),
    "naive-truncated": _style(_VERMILION, "v", _DASHED),
    "ops": _style(_ORANGE, "^", "-"),
    "ops-likelihood": _style(_ORANGE, ">", _DASH_DOTTED),
    "non-private": _style(_GREY, "X", _DOTTED),
}
"""Styles of methods of inference from noisy statistics."""

RENYI_STYLES = {
    "diffused": _style(_BLUE, "o", "-"),
    "concentrated": _style(_VERMILION, "s", "-"),
    "gaussian": _style(_GREEN, "^", "-"),
    "gaussian-tight": _style(_GREEN, ">", _DASHED),
    "direct": _style(_PURPLE, "D", _DASH_DOTTED),
    "true-posterior": _style(_GREY, "X", _LONG_DASHED),
}
"""Styles of posterior sampling from exponential families."""

GLM_STYLES = {
    "glm-diffused": _style(_BLUE, "o", "-"),
    "glm-concentrated": _style(_VERMILION, "s", "-"),
    "ops": _style(_GREEN, "^", "-"),
    "ops-tight": _style(_GREEN, ">", _DASHED),
    "ops-renyi": _style(_GREEN, "v", _DOTTED),
    "true-posterior": _style(_GREY, "X", _LONG_DASHED),
}
"""Styles of posterior sampling in regression."""

PARTITION_STYLES = {
    "full": _style(_GREY, "X", _LONG_DASHED),
    "normality": _style(_VERMILION, "s", "-"),
    "normality-corrected": _style(_BLUE, "o", "-"),
    "fisher": _style(_ORANGE, "^", _DASHED),
    "fisher-corrected": _style(_PURPLE, "D", _DASH_DOTTED),
    "fisher-published": _style(_BROWN, "v", _DOTTED),
    "quantile": _style(_VERMILION, "P", "-"),
    "quantile-centred": _style(_BLUE, "h", _DASHED),
}
"""Styles of regression by partitions; variants without noise share the style of those with noise."""
