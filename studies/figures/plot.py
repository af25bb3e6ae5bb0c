"""Declarative description of a figure: plots of one table of rows each.

A figure is a sequence of plots, one above the other. `studies.figures.vega` compiles them to one Vega-Lite
specification, from which static images and the interactive figure of a page are made.
"""

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd
import xarray as xr

from pipeline.declare.factors import N_VALUES, format_value
from studies.figures.first_lines import choose_first_lines
from studies.styles import INK, Look

MAX_DIRECT = 8
"""Maximum number of lines that are labelled at their ends; more lines have a legend."""


@dataclass(frozen=True)
class Mark:
    """Mark of a figure: the columns that it shows, and its definition in Vega-Lite."""

    columns: tuple[str, ...]
    drawn: Mapping[str, Any]
    looks: tuple[str, ...] = ("color",)  # channels that depend on the series; none for marks in the text colour
    has_x: bool = True
    has_width: bool = False  # a part of the step of a discrete axis
    is_clipped: bool = True  # by axes with limits


_LINE = {"type": "line", "strokeWidth": 1.5, "invalid": "break-paths-filter-domains"}
_AREA = {"type": "area", "line": False}
_CROSS = {"type": "point", "shape": "M-1,-1L1,1M-1,1L1,-1", "size": 60, "strokeWidth": 1.6}

MARKS: Mapping[str, Mark] = {
    "line": Mark(("y",), _LINE, ("color", "strokeDash")),
    "points": Mark(("y",), {"type": "point", "strokeWidth": 1.2}, ("stroke", "fill", "shape")),
    "errors": Mark(("y", "mcse"), {"type": "rule", "strokeWidth": 1}),
    "exact": Mark(("exact",), _LINE, ("color", "strokeDash")),
    "band": Mark(("low", "high"), {**_AREA, "opacity": 0.3}),
    "tails": Mark(("low_tail", "high_tail"), {**_AREA, "opacity": 0.14}),
    "box": Mark(("low", "high"), {"type": "bar", "opacity": 0.4}, has_width=True),
    "whisker": Mark(("low_tail", "high_tail"), {"type": "rule", "strokeWidth": 1.2}),
    "middle": Mark(("y",), {"type": "tick", "thickness": 2}, has_width=True),
    "region": Mark(("from", "to"), {"type": "rect", "color": INK, "opacity": 0.09}, (), False, is_clipped=False),
    "strip": Mark(("strip_low", "strip_high"), {**_AREA, "color": INK, "opacity": 0.12}, (), is_clipped=False),
    "level": Mark(("level",), {"type": "rule", "color": INK, "strokeWidth": 1}, (), False, is_clipped=False),
    "reference": Mark(("reference",), {"type": "line", "color": INK, "strokeWidth": 1}, ()),
    "edge": Mark(("edge",), {"type": "rule", "strokeDash": [1, 3], "strokeWidth": 1.2, "clip": True}),
    "cross": Mark(("cross",), {**_CROSS, "color": INK}, (), is_clipped=False),
}
"""Name of a mark -> mark.

line, points, exact      lines and markers at ``y``, lines at ``exact``
errors                   bars of two Monte Carlo standard errors around ``y``, or of the intervals of events
band, tails              areas from ``low`` to ``high`` and from ``low_tail`` to ``high_tail``
box, whisker, middle     the same as bars and lines, and a tick at ``y``
region, level            grey areas and lines across the axes
strip, reference, cross  grey areas, lines and crosses in the text colour at ``x``
edge                     dotted vertical lines at ``edge``
"""


DEFAULT_MARKS = ("level", "line", "errors", "points")
"""Nominal value, lines, error bars and markers; a chart has those for which there are numbers."""


@dataclass(frozen=True)
class Axis:
    """Axis of a plot.

    Attributes
    ----------
    title : str
        Label with the unit; by default that of the variable.
    log : bool
        Logarithmic scale.
    limits : tuple of float or None
        Ends of the axis; None for an end that contains all values.
    ticks : tuple of float
        Positions of the ticks; chosen by Vega if empty.
    discrete : bool
        Equally spaced values in the order of the rows.
    covers : tuple of float
        Values that the axis contains in addition to those of the rows.
    """

    title: str = ""
    log: bool = False
    limits: tuple[float | None, float | None] = (None, None)
    ticks: tuple[float, ...] = ()
    discrete: bool = False
    covers: tuple[float, ...] = ()


SMALL_TITLE = 45
"""Number of characters of a line of the title that a small image has room for."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Layout:
    """Axes, marks and arrangement of a plot."""

    x: Axis = field(default_factory=Axis)
    y: Axis = field(default_factory=Axis)
    marks: tuple[str, ...] = DEFAULT_MARKS  # names of `MARKS`, from the lowest layer to the highest
    columns: int = 0  # number of axes per row
    height: int = 0  # of the axes in pixels
    named: bool = True  # label the lines, at their ends or in a legend; False if the titles of the axes name them
    at_ends: bool = True  # label at most `MAX_DIRECT` lines at their ends; False for curves that end at the same point
    share_x: bool = True  # use one scale for all axes
    share_y: bool = True
    sideways: bool = False  # exchange the axes: the values are horizontal
    first: tuple[str, ...] = ()  # series that are shown at first if some are hidden; see `choose_first_lines`
    best: Literal["", "lowest", "highest", "extreme"] = ""  # estimates whose lines are never hidden at first


@dataclass(frozen=True, kw_only=True, eq=False)
class Plot(Layout):
    """Axes with the same scales, one for each value of the column ``axes``; see `Layout`.

    Attributes
    ----------
    rows : pandas.DataFrame
        Columns ``x`` and ``series``, the columns of the marks (`MARKS`), and optionally ``axes``, the title of the
        axes, ``pick``, the picked values (see `picks`), and ``mcse``, or the ends ``at_least`` and ``at_most`` of an
        interval, and ``trials``, which are displayed with a value.
    looks : mapping of str to Look
        Series -> look, in the order of the legend.
    note : str
        Constants, printed above the plot.
    """

    rows: pd.DataFrame = field(repr=False)
    looks: Mapping[str, Look]
    note: str = ""

    def __post_init__(self) -> None:
        """Raise ValueError if a series has no look, so that no series is omitted unnoticed."""
        if without := set(self.rows["series"].dropna()) - set(self.looks):
            raise ValueError(f"looks must name every series, got none for {', '.join(sorted(without))}")

    @cached_property
    def titles(self) -> list[str]:
        """Titles of the axes, in order; empty for a single plot."""
        return list(dict.fromkeys(self.rows["axes"])) if "axes" in self.rows else []

    @cached_property
    def series(self) -> dict[str, Look]:
        """Styles of the series with rows."""
        stored = set(self.rows["series"].dropna())
        return {name: look for name, look in self.looks.items() if name in stored}

    @cached_property
    def shown(self) -> tuple[str, ...]:
        """Series that are shown at first."""
        return choose_first_lines(self.series, self.estimates, self.best, self.first) if self.named else (*self.series,)

    @cached_property
    def estimates(self) -> list[pd.DataFrame]:
        """Tables with one row per point and one column per series, for the markers and for the lines."""
        drawn = {MARKS[mark].columns[0] for mark in self.marks}
        points = [name for name in ("axes", "pick", "x") if name in self.rows]
        tables = []
        for column in ("y", "exact"):
            if column in drawn and column in self.rows:
                rows = self.rows[self.rows["series"].notna() & self.rows[column].notna()]
                tables.append(rows.pivot_table(index=points, columns="series", values=column, sort=False))
        return tables

    @cached_property
    def picks(self) -> list[str]:
        """Values of the picked dimensions, of which one is shown at a time; empty if there are none."""
        return list(dict.fromkeys(self.rows["pick"])) if "pick" in self.rows else []

    @property
    def main(self) -> str:
        """Column of the lines: ``y``, or ``exact`` without it."""
        return "y" if "y" in self.rows else "exact"

    @property
    def small(self) -> "Plot":
        """First axes with the lines that are shown at first, for a small image."""
        rows = self.rows[self.rows["series"].isna() | self.rows["series"].isin(self.shown)]
        if self.titles:
            rows = rows[rows["axes"] == self.titles[0]].drop(columns="axes")
        title = ", ".join([self.y.title, *(self.titles[:1] or filter(None, [self.note]))])
        y = replace(self.y, title=textwrap.fill(title, SMALL_TITLE))
        return replace(self, rows=rows, y=y, columns=1, height=120, share_x=True, share_y=True, note="")

    def values(self) -> np.ndarray:
        """Return all finite values on the vertical axis."""
        columns = {column for mark in self.marks for column in MARKS[mark].columns} - {"mcse", "edge"}
        shown = [self.rows[column].to_numpy(float) for column in sorted(columns & set(self.rows))]
        if "errors" in self.marks and "mcse" in self.rows:
            for sign, end in ((-1, "at_least"), (1, "at_most")):
                bars = self.rows["y"] + sign * 2 * self.rows["mcse"]
                shown.append((self.rows[end].fillna(bars) if end in self.rows else bars).to_numpy(float))
        values = np.concatenate([*shown, self.y.covers])
        return values[np.isfinite(values)]

    @cached_property
    def limits(self) -> tuple[float, float]:
        """Ends of the vertical axis; on a logarithmic axis, both are positive."""
        values = self.values()
        values = values[values > 0] if self.y.log else values
        low, high = (values.min(), values.max()) if values.size else (0.1, 1.0)
        if self.y.log:
            low, high = low / 1.1, high * 1.1
        else:
            margin = 0.04 * ((high - low) or abs(high) or 1.0)
            low, high = min(low, 0.0) if 0 <= low < 0.5 * high else low - margin, high + margin
        first, last = self.y.limits
        return float(low if first is None else first), float(high if last is None else last)


def rows_of(ds: xr.Dataset, x: str, by: str | None = None, axes: str = "", **columns: str) -> pd.DataFrame:
    """Return the columns ``x``, ``series``, ``trials`` and `columns` of a summary, without rows that have no values.

    The dimension `x` is horizontal, and `by` that of the series. Columns are names of variables;
    ``y="loss_mean"`` also returns ``mcse`` if it is stored, and the ends of an interval. ``trials`` are those with a
    value.
    """
    arrays = {name: ds[value] for name, value in columns.items()}
    mean = columns.get("y", "")
    measure = mean.removesuffix("_mean")
    if measure != mean:
        shown = {"mcse": "mcse", "at_least": "low", "at_most": "high"}
        arrays |= {name: ds[f"{measure}_{one}"] for name, one in shown.items() if f"{measure}_{one}" in ds}
    counts = f"{measure}_{N_VALUES}" if measure != mean and f"{measure}_{N_VALUES}" in ds else "n_ok"
    if counts in ds and set(ds[counts].dims) <= {dim for array in arrays.values() for dim in array.dims}:
        arrays["trials"] = ds[counts]
    dims = {dim for array in arrays.values() for dim in array.dims}
    order = [dim for array in arrays.values() for dim in (*array.coords, *array.dims) if dim in dims]
    sizes = {dim: ds.sizes[dim] for dim in order}
    cells = {name: array.variable for name, array in arrays.items()}
    cells |= {name: ds[dim].variable for name, dim in (("x", x), ("series", by)) if dim in sizes}
    frame = pd.DataFrame({name: cell.set_dims(sizes).values.ravel() for name, cell in cells.items()})
    frame = frame[np.logical_or.reduce([frame[name].notna() for name in columns])]
    if by is None:
        frame["series"] = ""
    if axes:
        frame["axes"] = axes
    return frame[[name for name in ("axes", "x", "series", *arrays) if name in frame]]


def label_of(variable: xr.DataArray) -> str:
    """Return the label of an axis: long name and unit."""
    unit = variable.attrs.get("units", "1")
    return f"{variable.attrs.get('long_name', variable.name)}{'' if unit == '1' else f' ({unit})'}"


def constants_of(ds: xr.Dataset) -> str:
    """Return the constants epsilon and delta as text."""
    names = [name for name in ("epsilon", "delta") if name in ds.coords and ds[name].ndim == 0]
    symbols = {"epsilon": "ε", "delta": "δ"}
    return ", ".join(f"{symbols[name]} = {format_value(ds[name].item())}" for name in names)
