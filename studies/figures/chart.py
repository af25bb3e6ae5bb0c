"""Descriptions of figures: which variables of a summary stand on which axes.

A figure is a `Chart`, or several that are `stacked`. Calling a chart with summaries returns its plots.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from pipeline.declare.factors import ENDS, N_VALUES, format_value
from studies.figures.plot import DEFAULT_MARKS, MARKS, Axis, Layout, Plot, constants_of, label_of, rows_of
from studies.styles import INK, MECHANISM_STYLES, Look, Styles, assign_series, label_method, looks_of

Summaries = Mapping[str, xr.Dataset]
Parts = Mapping[str, xr.Dataset]
"""Title of axes -> summary."""


@dataclass(frozen=True, eq=False)
class Chart(Layout):
    """Description of the axes of a figure; there is no plot if `source` returns no parts.

    The attributes of `Layout` are those of the plot. By default, there are as many columns as values of the last facet,
    and a discrete axis has 22 pixels per value. The default marks are the nominal value of the measure, lines, bars of
    two Monte Carlo standard errors (or intervals of events), and markers, as far as there are numbers for them. By
    default, no lines join categories: values of `over` that are not numbers. `first` names methods.

    Attributes
    ----------
    source : str or callable
        Panel; empty for all panels, each on axes of its own; or function of summaries that returns `Parts`.
    over : str
        Dimension on the horizontal axis.
    show : mapping of str to str
        Column of `MARKS` -> variable; ``{"y": "loss_mean"}`` also shows its Monte Carlo standard errors.
    lines : str or None
        Dimension of the series; None for a single series.
    styles : Styles or None
        Looks by method; None if the series are values of a factor.
    facet, pick : mapping of str to str
        Dimension -> format of its values in titles of axes. Facets are next to each other, the last one in a row;
        one value of the picked dimensions is shown at a time, at first the first one.
    across : mapping
        Column of `MARKS` -> number or variable that does not depend on the series.
    prepare : callable
        Function that maps the summary of a panel to one with the variables of the chart.
    series : str
        Format of the values of a factor in the names of the series.
    panels_in_row : bool
        Place the panels in a row, instead of one below the other.
    n_markers : int
        Approximate number of markers on each line; all values are marked by default.
    limits : callable, optional
        Function of the rows that returns the limits of the vertical axis; by default those of `y`.
    with_constants : bool
        Print ε and δ above the plot.
    """

    source: str | Callable[[Summaries], Parts]
    over: str
    show: Mapping[str, str]
    lines: str | None = None
    styles: Styles | None = None
    facet: Mapping[str, str] = field(default_factory=dict)
    pick: Mapping[str, str] = field(default_factory=dict)
    across: Mapping[str, float | str] = field(default_factory=dict)
    prepare: Callable[[xr.Dataset], xr.Dataset] = lambda ds: ds
    series: str = "{}"
    panels_in_row: bool = False
    n_markers: int = 0
    limits: Callable[[pd.DataFrame], tuple[float | None, float | None]] | None = None
    with_constants: bool = False

    def __call__(self, summaries: Summaries) -> list[Plot]:
        """Return the plot of summaries."""
        parts, looks, labels = self._name(self._parts(summaries))
        if not parts:
            return []
        axes = list(self._axes(parts))
        rows = pd.concat([one for part in axes for one in self._rows(*part)], ignore_index=True)
        if self.n_markers:
            groups = rows.groupby([name for name in ("axes", "series") if name in rows], sort=False)
            every = (groups["x"].transform("size") // self.n_markers).clip(lower=1)
            rows["marked"] = (groups.cumcount() + groups.ngroup() * (every // 4)) % every == every // 2
        some = axes[0][2]
        is_ordered = np.issubdtype(some[self.over].dtype, np.number) and not self.x.discrete
        x = replace(
            self.x,
            discrete=not is_ordered,
            title=self.x.title or (label_of(some[self.over]) if not self.sideways else ""),
        )
        y = replace(self.y, title=self.y.title or label_of(some[next(iter(self.show.values()))]))
        y = y if self.limits is None else replace(y, limits=self.limits(rows))
        drawn = {name: look for name, look in looks.items() if name in set(rows["series"].dropna())}
        is_split, some_part = bool(self.facet) and not self.panels_in_row, next(iter(parts.values()))
        layout = {one.name: getattr(self, one.name) for one in fields(Layout)} | {
            "x": x,
            "y": y,
            "columns": self.columns or (int(some_part.sizes[list(self.facet)[-1]]) if is_split else len(parts)),
            "height": self.height or (22 * rows["x"].nunique() if self.sideways else 170),
            "named": self.named and (len(drawn) > 1 or "" not in drawn),
            "first": tuple(label for name in self.first for label in drawn if labels.get(label) == name),
            "marks": self._marks(rows, is_ordered),
        }
        plot = Plot(rows=rows, looks=drawn, note=constants_of(some) if self.with_constants else "", **layout)
        if {"from", "to"} & set(rows):  # a missing end of a region is the end of the axis
            low, high = plot.limits
            is_region = rows[[name for name in ("from", "to") if name in rows]].notna().any(axis=1)
            for column, end in (("from", low), ("to", high)):
                filled = rows[column] if column in rows else pd.Series(np.nan, rows.index)
                rows[column] = filled.where(filled.notna() | ~is_region, end)
            plot = replace(plot, rows=rows, y=replace(y, limits=(low, high)))
        return [plot]

    def _marks(self, rows: pd.DataFrame, is_ordered: bool) -> tuple[str, ...]:
        """Return the marks with columns in the rows; by default, lines do not join categories."""
        marks = [mark for mark in self.marks if set(MARKS[mark].columns) <= set(rows)]
        is_joined = is_ordered or self.marks != DEFAULT_MARKS
        return tuple(mark for mark in marks if is_joined or mark != "line")

    def _parts(self, summaries: Summaries) -> dict[str, xr.Dataset]:
        if callable(self.source):
            return dict(self.source(summaries))
        parts = {"": summaries[self.source]} if self.source else summaries
        return {title: self.prepare(ds) for title, ds in parts.items()}

    def _name(self, parts: Parts) -> tuple[Parts, Mapping[str, Look], Mapping[str, Any]]:
        """Return the parts with labels of the series, their looks, and label -> name."""
        if self.lines is None:
            return parts, {"": Look(INK)}, {}
        names = {title: ds[self.lines].values.tolist() for title, ds in parts.items()}
        shown = {
            title: [self.series.format(format_value(name)) for name in names[title]]
            if self.styles is None
            else [label_method(ds, self.lines, name) for name in names[title]]
            for title, ds in parts.items()
        }
        labels = {label: name for title in parts for label, name in zip(shown[title], names[title], strict=True)}
        labelled = {title: ds.assign_coords({self.lines: shown[title]}) for title, ds in parts.items()}
        if self.styles is None:
            return labelled, assign_series(labels), labels
        return labelled, looks_of(self.styles, self.lines, parts.values()), labels

    def _axes(self, parts: Parts) -> Iterator[tuple[str, str, xr.Dataset]]:
        """Yield the title, the picked values and the summary of each axes."""
        some = next(iter(parts.values()))
        formats = {**self.facet, **self.pick}
        cells = list(product(*(some[dim].values.tolist() for dim in formats)))
        pairs = [(cell, part) for cell in cells for part in parts.items()]
        if not self.panels_in_row:
            pairs = [(cell, part) for part in parts.items() for cell in cells]
        read = {title: self._read(ds) for title, ds in parts.items()}
        for cell, (title, _) in pairs:
            at = dict(zip(formats, cell, strict=True))
            texts = {dim: formats[dim].format(format_value(value)) for dim, value in at.items()}
            shown = ", ".join(filter(None, [title, *(texts[dim] for dim in self.facet)]))
            one = read[title].sel({dim: value for dim, value in at.items() if dim in read[title].dims})
            yield shown, ", ".join(texts[dim] for dim in self.pick), one

    def _read(self, ds: xr.Dataset) -> xr.Dataset:
        """Return the variables of a summary that the chart shows; a selection from hundreds would take longer."""
        shown = [*self.show.values(), *(value for value in self.across.values() if isinstance(value, str))]
        means = [name.removesuffix("_mean") for name in shown if name.endswith("_mean")]
        more = [f"{name}_{one}" for name in means for one in ("mcse", *ENDS, N_VALUES)]
        return ds[[name for name in dict.fromkeys((*shown, *more, "n_ok")) if name in ds.data_vars]]

    def _rows(self, title: str, picked: str, ds: xr.Dataset) -> Iterator[pd.DataFrame]:
        by = self.lines if self.lines in ds.dims and self.lines != self.over else None
        main = rows_of(ds, self.over, by, title, **self.show)
        if self.lines == self.over:
            main["series"] = main["x"]
        elif by is None and self.lines is not None:  # the axes have one series
            main["series"] = str(ds[self.lines].item())
        axes = {"axes": title} if title else {}
        numbers: dict[str, float] = {}
        curves: dict[str, str] = {}
        added = []
        across = dict(self.across)
        nominal = ds[self.show["y"]].attrs.get("nominal") if "y" in self.show else None
        if nominal is not None and "level" in self.marks:
            across.setdefault("level", float(nominal))
        for column, value in across.items():
            if not isinstance(value, str) or not ds[value].dims:
                numbers[column] = float(ds[value] if isinstance(value, str) else value)
            elif self.over in ds[value].dims:
                curves[column] = value
            else:
                ends = ds[value].to_series().rename(column).rename_axis("series").reset_index().dropna()
                added.append(ends.assign(**axes))
        if curves:
            added.insert(0, rows_of(ds, self.over, None, title, **curves).assign(series=None))
        if numbers:
            added.insert(0, pd.DataFrame([{**axes, "series": None, **numbers}]))
        for rows in (main, *added):
            yield rows.assign(pick=picked) if self.pick else rows


def stacked(*charts: Chart) -> Callable[[Summaries], list[Plot]]:
    """Return the description of a figure with charts one above the other."""
    return lambda summaries: [plot for chart in charts for plot in chart(summaries)]


def quantiles(measure: str) -> dict[str, str]:
    """Return the columns of a box with whiskers, or of bands, for a measure."""
    shown = {"y": "median", "low": "q25", "high": "q75", "low_tail": "q05", "high_tail": "q95"}
    return {column: f"{measure}_{quantile}" for column, quantile in shown.items()}


def ratios(source: Callable[[Summaries], Parts], ylabel: str) -> Chart:
    """Describe ratios of mechanisms to a limit, the variable ``ratio``, against n, with a line at 1."""
    return Chart(
        source, "n", {"y": "ratio"}, "mechanism", MECHANISM_STYLES, y=Axis(ylabel, log=True),
        marks=("level", "line", "points"), across={"level": 1.0}, columns=3, height=260, share_x=False,
        best="lowest", with_constants=True)  # fmt: skip


def shares(
    source: str,
    over: str,
    lines: str,
    split: str,
    measure: Callable[[xr.Dataset], xr.DataArray],
    ylabel: str,
    series: str = "{}",
) -> Chart:
    """Describe ratios to a limit against a factor, one axes per value of `split`, with crosses at violations.

    The function `measure` returns the ratios, NaN where a method does not apply; those above 1 exceed the limit.
    """

    def prepare(ds: xr.Dataset) -> xr.Dataset:
        share = measure(ds).transpose(..., split)
        above = share.where(share > 1 + 1e-9)
        named = share.to_dataset(name="share")
        tops = above.max([dim for dim in above.dims if dim != split]).values
        titles = [
            label_method(named, split, name) + ("" if np.isnan(top) else f": above 1, up to {top:.3g}")
            for name, top in zip(share[split].values.tolist(), tops.tolist(), strict=True)
        ]
        return xr.Dataset({"share": share, "above": above}).assign_coords({split: titles})

    return Chart(
        source, over, {"y": "share", "cross": "above"}, lines, x=Axis(log=True),
        y=Axis(ylabel, limits=(0.0, None), covers=(1.2,)), marks=("region", "level", "line", "points", "cross"),
        facet={split: "{}"}, across={"level": 1.0, "from": 1.0}, prepare=prepare, series=series, columns=3, height=90,
        at_ends=False)  # fmt: skip
