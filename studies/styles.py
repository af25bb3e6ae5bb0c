"""Styles of mechanisms and methods in all figures, taken from the registries.

Colours follow those of Okabe & Ito, which colour-blind readers can distinguish; orange and sky blue are darker, so that
each colour has a contrast of at least 3 to light pages (WCAG 2.1, 1.4.11), and others lighter on dark pages, where the
contrast of thin bright lines must be at least 4.5. Markers are unique within a
registry, so that figures can be read in black and white. Variants of one sensitivity share its colour. The origin
decides the dash of the line and the fill of the markers: solid and filled for ours, dashed and hollow for methods of
the papers, dotted and hollow for baselines. Methods that a user adds have colours of this palette and markers of their
own; a broken one is dotted, with a cross through its marker.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

import xarray as xr

import mechanisms
from mechanisms.core.exact_losses import format_excess
from mechanisms.core.metadata import Entry
from mechanisms.regression.gram_samplers import GRAM_METHODS
from pipeline.results.conversions import stored_audits as stored_audits

_COLORS = {
    "blue": "#0072B2",
    "vermilion": "#D55E00",
    "green": "#009E73",
    "purple": "#CC79A7",
    "orange": "#C48200",
    "sky": "#3A96D0",
    "grey": "#8A8A8A",
    "olive": "#6E9A1A",
    "brown": "#8C5A3C",
    "crimson": "#C4245A",
    "teal": "#2A7F8E",
}
DARK_COLORS = {
    _COLORS["blue"]: "#2E8FE0",
    _COLORS["purple"]: "#D9A0C4",
    _COLORS["sky"]: "#8FD0F5",
    _COLORS["brown"]: "#BB8A70",
    _COLORS["crimson"]: "#EE5080",
    _COLORS["teal"]: "#3FA3B3",
}
"""Colour -> lighter one for dark pages, for colours that are too dark there, or too near to such a lighter one."""

INK = "currentColor"
"""Colour of axes and text: the text colour of the page that contains the figure, black elsewhere."""


_MARKERS = {
    "o": "circle",
    "s": "square",
    "^": "M0,-1L0.866,0.5L-0.866,0.5Z",
    ">": "M1,0L-0.5,0.866L-0.5,-0.866Z",
    "v": "M0,1L-0.866,-0.5L0.866,-0.5Z",
    "<": "M-1,0L0.5,-0.866L0.5,0.866Z",
    "D": "diamond",
    "d": "M0,-1L.55,0L0,1L-.55,0Z",
    "p": "M0,-1L0.951,-0.309L0.588,0.809L-0.588,0.809L-0.951,-0.309Z",
    "h": "M0,-1L0.866,-0.5L0.866,0.5L0,1L-0.866,0.5L-0.866,-0.5Z",
    "H": "M0.5,-0.866L1,0L0.5,0.866L-0.5,0.866L-1,0L-0.5,-0.866Z",
    "8": "M0.383,-0.924L0.924,-0.383L0.924,0.383L0.383,0.924L-0.383,0.924L-0.924,0.383L-0.924,-0.383L-0.383,-0.924Z",
    "*": "M0,-1L.235,-.324L.951,-.309L.38,.124L.588,.809L0,.4L-.588,.809L-.38,.124L-.951,-.309L-.235,-.324Z",
    "P": "cross",
    "X": "M-1,-.5L-.5,-1L0,-.5L.5,-1L1,-.5L.5,0L1,.5L.5,1L0,.5L-.5,1L-1,.5L-.5,0Z",
    "+": "M-1,0H1M0,-1V1",
    "x": "M-.8,-.8L.8,.8M-.8,.8L.8,-.8",
    "|": "M0,-1V1",
    "_": "M-1,0H1",
    "1": "M0,0L0,1M0,0L-0.866,-0.5M0,0L0.866,-0.5",
    "2": "M0,0L0,-1M0,0L0.866,0.5M0,0L-0.866,0.5",
    "3": "M0,0L-1,0M0,0L0.5,-0.866M0,0L0.5,0.866",
    "4": "M0,0L1,0M0,0L-0.5,0.866M0,0L-0.5,-0.866",
}
"""Marker in the notation of `mechanisms.core.metadata.Style` -> shape or path in the notation of Vega."""

SHAPES = {
    "circle": "M-1,0a1,1 0 1,0 2,0a1,1 0 1,0 -2,0",
    "square": "M-1,-1H1V1H-1Z",
    "diamond": "M0,-1L1,0L0,1L-1,0Z",
    "cross": "M-1,-.4H-.4V-1H.4V-.4H1V.4H.4V1H-.4V.4H-1Z",
}
"""Shape of Vega -> path in SVG."""

_ADDED = (
    ("brown", "M-1,-.8L1,.8V-.8L-1,.8Z"),
    ("teal", "M-.8,-1H.8L-.8,1H.8Z"),
    ("olive", "M-1,-.5H1V.5H-1Z"),
    ("green", "M0,-1L1,1L0,.4L-1,1Z"),
    ("purple", "M-.8,1V-.2L0,-1L.8,-.2V1Z"),
    ("orange", "M-1,.5A1,1 0 0,1 1,.5Z"),
    ("sky", "M-.5,-1H.5V1H-.5Z"),
    ("vermilion", "M-1,-.5A1,1 0 0,0 1,-.5Z"),
)
"""Colours and markers of methods that a user adds, in order; no registry uses these markers."""

_CROSS = "M-1.2,-1.2L1.2,1.2M-1.2,1.2L1.2,-1.2"

_DASHES: dict[str, tuple[float, ...]] = {"ours": (), "paper": (7, 3), "baseline": (2, 2), "reference": (9, 3, 2, 3)}
ORIGINS = {
    "ours": "ours",
    "paper": "of the paper",
    "baseline": "baselines",
    "reference": "references",
    "added": "added",
    "broken": "broken",
}
"""Origin of a method -> its heading in a legend."""


@dataclass(frozen=True)
class Look:
    """Look of a line in figures; the dash and the fill of the markers depend on the origin."""

    color: str
    marker: str = "circle"  # shape or path in the notation of Vega
    dash: tuple[float, ...] = ()  # lengths of dashes and gaps in pixels; empty for a solid line
    origin: str = ""  # a key of `ORIGINS`, or empty for lines that are not methods
    is_private: bool = True  # False for methods that a store marks as not private

    @property
    def fill(self) -> str:
        """Fill of the markers: hollow for methods of papers and baselines."""
        return "transparent" if self.origin in ("paper", "baseline", "broken") else self.color


Styles = Mapping[str, Look]
"""Name -> look."""


SERIES = (
    Look(_COLORS["blue"], "circle"),
    Look(_COLORS["vermilion"], "square", (7, 3)),
    Look(_COLORS["green"], _MARKERS["^"], (2, 2)),
    Look(_COLORS["purple"], "diamond", (7, 2, 2, 2)),
    Look(_COLORS["brown"], _MARKERS["v"], (11, 3)),
    Look(_COLORS["sky"], "cross", (4, 2, 2, 2, 2, 2)),
    Look(_COLORS["orange"], _MARKERS["p"], (3, 4)),
    Look(_COLORS["teal"], _MARKERS["*"], (9, 2, 2, 2, 2, 2)),
    Look(_COLORS["olive"], _MARKERS["<"], (5, 5)),
    Look(_COLORS["crimson"], _MARKERS[">"], (12, 2, 4, 2)),
)
"""Styles of lines that are values of a factor, in order."""


def assign_series(names: Iterable[Any]) -> dict[Any, Look]:
    """Return the looks of `SERIES` in order, one for each value of a factor."""
    return dict(zip(names, cycle(SERIES), strict=False))


def _listed(*rows: tuple[str, str, str, str]) -> dict[str, Look]:
    """Return looks from rows of (name, colour, marker, origin)."""
    return {name: Look(_COLORS[color], _MARKERS[sign], _DASHES[origin], origin) for name, color, sign, origin in rows}


def _styles(*registries: Mapping[str, Entry], reference: str = "") -> dict[str, Look]:
    """Return the looks of all entries, and of the posterior with which a study compares them."""
    entries = [(name, entry.style, entry.origin) for registry in registries for name, entry in registry.items()]
    rows = [(name, style.color, style.marker, origin) for name, style, origin in entries if style]
    return _listed(*([(reference, "grey", "X", "reference")] if reference else []), *rows)


def complete_styles(styles: Styles, names: Iterable[str], broken: Collection[str] = ()) -> dict[str, Look]:
    """Return the looks, with one of those of added methods for each other name, or of `SERIES` without any style.

    Mechanisms whose guarantee is `broken` are dotted, with a cross through the hollow marker, below their own heading.
    """
    others = dict.fromkeys(name for name in names if name not in styles)
    added = (Look(_COLORS[color], marker, origin="added") for color, marker in cycle(_ADDED))
    looks = {**styles, **(dict(zip(others, added, strict=False)) if styles else assign_series(others))}
    crossed = {name: SHAPES.get(looks[name].marker, looks[name].marker) + _CROSS for name in broken}
    marked = {name: replace(looks[name], marker=crossed[name], dash=(1, 4), origin="broken") for name in broken}
    return {**looks, **marked}


def describe_audit(audit: Mapping[str, Any]) -> str:
    """Return the result of an audit in a few words.

    The verdict is "broken", "holds" or "unaudited". Unless it is "unaudited", there are the number of records ``n`` and
    the ``loss`` in nats; ``delta`` is there if a broken guarantee has δ > 0, and ``stated`` is the exceeded ε or δ.
    ``deviates`` is there if draws do not follow the stated distribution, whose loss does not exceed the guarantee.
    ``draws`` is the number of compared draws per data set if the guarantee holds; stores of version 0.3 have none.
    """
    try:
        return _describe_fields(audit)
    except (KeyError, TypeError, ValueError):
        return "audit without the fields of this package"


def _describe_fields(audit: Mapping[str, Any]) -> str:
    if audit["verdict"] == "unaudited":
        return "unaudited"
    if audit["verdict"] == "holds":
        return f"audited to n = {audit['n']}{', draws not compared' if audit.get('draws') == 0 else ''}"
    if "deviates" in audit:
        return f"broken: draws do not follow the stated distribution at n = {audit['n']}"
    spent = float(audit["delta"] if "delta" in audit else audit["loss"])
    shown = f"{spent:.3g}" if "delta" in audit else f"{spent:.4g}"
    if "stated" in audit:
        shown = format_excess(spent, audit["stated"], shown)
    return f"broken: {'δ is' if 'delta' in audit else 'loses'} {shown} at n = {audit['n']}"


def not_private(ds: xr.Dataset, by: str) -> list[str]:
    """Return the names of the methods that are not private, from the attributes of a stored dimension."""
    return str(ds[by].attrs.get("not_private", "")).splitlines()


def label_method(ds: xr.Dataset, by: str, name: str) -> str:
    """Return the label of a method in figures and tables, with the result of its audit, or that it is not private."""
    if name in not_private(ds, by):
        return f"{name} (not private)"
    audit = stored_audits(ds, by).get(name)
    return name if audit is None else f"{name} ({describe_audit(audit)})"


def looks_of(styles: Styles, by: str, parts: Iterable[xr.Dataset]) -> dict[str, Look]:
    """Return the looks by label of each method in the summaries; see `complete_styles` and `label_method`."""
    parts = list(parts)
    names = [name for ds in parts for name in ds[by].values.tolist()]
    audits = {name: audit for ds in parts for name, audit in stored_audits(ds, by).items() if name in names}
    styles = complete_styles(styles, names, [name for name, audit in audits.items() if audit["verdict"] == "broken"])
    labels = {
        (label_method(ds, by, name), name, name not in not_private(ds, by))
        for ds in parts
        for name in ds[by].values.tolist()
    }
    return {
        label: replace(look, is_private=is_private)
        for name, look in styles.items()
        for label, labelled, is_private in sorted(labels)
        if labelled == name
    }


def with_labels(ds: xr.Dataset, by: str) -> xr.Dataset:
    """Return a summary whose methods are named by their labels."""
    return ds.assign_coords({by: [label_method(ds, by, name) for name in ds[by].values.tolist()]})


def label_all_methods(ds: xr.Dataset) -> xr.Dataset:
    """Return a summary whose methods are named by their labels, in each dimension that has any."""
    for dim in ds.dims:
        if stored_audits(ds, dim) or not_private(ds, str(dim)):
            ds = with_labels(ds, str(dim))
    return ds


MECHANISM_STYLES = _styles(mechanisms.MECHANISMS)
"""Styles of mechanisms that release counts."""

METHOD_STYLES = _styles(mechanisms.INFERENCE_METHODS)
"""Styles of methods of inference from noisy statistics."""

RENYI_STYLES = _styles(mechanisms.RENYI_SAMPLERS, mechanisms.GAUSSIAN_MECHANISMS, reference="true-posterior")
"""Styles of posterior sampling from exponential families."""

GLM_STYLES = _styles(mechanisms.GLM_MECHANISMS, mechanisms.GLM_CHAINS)
"""Styles of posterior sampling in regression."""


GRAM_STYLES = _styles(GRAM_METHODS, reference="non-private") | _listed(
    ("normal-covariates-k-norm", "teal", "P", "ours"),
    ("adassp", "olive", "p", "baseline"),
    ("dp-gd", "grey", "X", "baseline"),
    ("binagg", "purple", "H", "baseline"),
    ("partition", "crimson", "*", "paper"),
)
"""Styles of posteriors of regression coefficients given a noisy Gram matrix."""

TABLE_STYLES = _listed(
    ("tree", "blue", "o", "ours"),
    ("published", "teal", "P", "ours"),
    ("leaf", "green", "^", "ours"),
    ("least-squares", "vermilion", "s", "baseline"),
    ("least-squares-clipped", "purple", "D", "baseline"),
    ("naive", "orange", "v", "baseline"),
)
"""Styles of intervals for the counts of noisy tables."""

PARTITION_STYLES = _styles(mechanisms.PROBABILITY_METHODS, mechanisms.QUANTILE_METHODS, reference="full")
"""Styles of regression by partitions; variants without noise share the style of those with noise."""

STYLES_OF_KINDS: Mapping[str, Styles] = {
    "posterior": METHOD_STYLES,
    "table": TABLE_STYLES,
    "regression": GRAM_STYLES,
    "draw": GLM_STYLES,
    "counts": MECHANISM_STYLES,
}
"""Kind of an added method -> styles of the methods that it is compared with."""
