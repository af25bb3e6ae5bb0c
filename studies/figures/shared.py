"""Figures that several studies share."""

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd
import xarray as xr

from pipeline.declare.factors import format_value
from studies.figures.plot import Axis, Plot, across, constants_of, label_of, rows_of, stack
from studies.styles import INK, Look, Styles, complete_styles, label_method, look_up, stored_audits

Drawing = list[Plot]
"""Plots of a figure, one above the other."""


def looks_of(styles: Styles, by: str, parts: Iterable[xr.Dataset]) -> dict[str, Look]:
    """Return the looks by label of each method in the summaries; see `complete_styles` and `label_method`."""
    parts = list(parts)
    names = [name for ds in parts for name in ds[by].values.tolist()]
    audits = {name: found for ds in parts for name, found in stored_audits(ds, by).items() if name in names}
    styles = complete_styles(styles, names, [name for name, found in audits.items() if found["verdict"] == "broken"])
    labels = {(label_method(ds, by, name), name) for ds in parts for name in ds[by].values.tolist()}
    return {label: look for name, look in styles.items() for label, labelled in sorted(labels) if labelled == name}


def with_labels(ds: xr.Dataset, by: str) -> xr.Dataset:
    """Return a summary whose methods are named by their labels."""
    return ds.assign_coords({by: [label_method(ds, by, name) for name in ds[by].values.tolist()]})


def draw_lines(ds: xr.Dataset, x: str, measure: str, exact: str, by: str, styles: Styles) -> Drawing:
    """Draw the mean of a measure against a factor, one line per method, on a logarithmic axis.

    Markers are means of `measure` with bars of two Monte Carlo standard errors, and lines the expectations `exact`. The
    dimension of the methods is `by`.
    """
    rows = rows_of(with_labels(ds, by), x, by, y=f"{measure}_mean", exact=exact)
    return [
        Plot(
            rows,
            Axis(label_of(ds[x])),
            Axis("mean Hellinger distance", log=True),
            looks_of(styles, by, [ds]),
            ("exact", "errors", "points"),
            height=300,
            note=constants_of(ds),
        )
    ]


def draw_means(ds: xr.Dataset, x: str, measure: str, by: str | None) -> Drawing:
    """Draw the mean of a measure against a factor, one line per method, at the first value of other dimensions.

    `by` is the dimension of the methods, or None if there is only one method.
    """
    ds = ds.isel({dim: 0 for dim in ds[f"{measure}_mean"].dims if dim not in (x, by)})
    labelled = ds if by is None else with_labels(ds, by)
    looks = {"": Look(INK)} if by is None else looks_of({}, by, [ds])
    return [
        Plot(
            rows_of(labelled, x, by, y=f"{measure}_mean"),
            Axis(label_of(ds[x]), discrete=ds[x].dtype.kind not in "if"),
            Axis(label_of(ds[f"{measure}_mean"])),
            looks,
            ("line", "errors", "points"),
            height=300,
            note="" if by is None else constants_of(ds),
        )
    ]


def draw_quartiles(ds: xr.Dataset, x: str, measure: str, by: str, styles: Styles) -> Drawing:
    """Draw median, quartiles and outer percentiles of a measure against a factor, one axes per method.

    The values of the factor are evenly spaced. See `draw_lines` for the parameters.
    """
    rows = quantile_rows(with_labels(ds, by), x, by, measure)
    return [
        Plot(
            rows.assign(axes=rows["series"]),
            Axis(label_of(ds[x]), discrete=True),
            Axis("Hellinger distance", limits=(0.0, 1.0)),
            looks_of(styles, by, [ds]),
            ("tails", "band", "line"),
            columns=3,
            height=120,
            named=False,
        )
    ]


def quantile_rows(ds: xr.Dataset, x: str, by: str | None, measure: str) -> pd.DataFrame:
    """Return rows with the median, the quartiles and the outer percentiles of a measure."""
    names = {"y": "median", "low": "q25", "high": "q75", "low_tail": "q05", "high_tail": "q95"}
    return rows_of(ds, x, by, **{name: f"{measure}_{quantile}" for name, quantile in names.items()})


def draw_curves(ds: xr.Dataset, x: str, curves: Mapping[str, str], split: str, styles: Styles, ylabel: str) -> Drawing:
    """Draw several measures against the output `x`, with one axes per value of the factor `split`.

    Curves are names, which select looks, -> measures; the last curve is drawn on top.
    """
    parts = []
    for value in ds[split].values.tolist():
        for name, measure in curves.items():
            rows = rows_of(ds.sel({split: value}), x, y=measure, axes=f"{split} = {format_value(value)}")
            rows = rows.assign(series=name)
            every = max(1, len(rows) // 8)
            parts.append(rows.assign(marked=np.arange(len(rows)) % every == every // 2))
    return [
        Plot(
            stack(parts),
            Axis(label_of(ds[x])),
            Axis(ylabel, limits=(0.0, None)),
            {name: styles[name] for name in curves},
            columns=2,
            height=160,
            at_ends=False,
            share_x=False,
            note=constants_of(ds),
        )
    ]


def draw_ranges(ds: xr.Dataset, measure: str, exact: str, by: str, styles: Styles) -> Drawing:
    """Draw the range of a measure over its draws and the exact mean, one row per method, on a logarithmic axis.

    See `draw_lines` for the parameters.
    """
    ds = ds.dropna(by, how="all", subset=[f"{measure}_mean"])
    labelled = with_labels(ds, by)
    rows = quantile_rows(labelled, by, None, measure)
    means = labelled[exact].fillna(labelled[f"{measure}_mean"]).to_series()
    rows = rows.assign(series=rows["x"], y=rows["x"].map(means))
    return [
        Plot(
            rows,
            Axis("", discrete=True),
            Axis("Hellinger distance", log=True),
            looks_of(styles, by, [ds]),
            ("whisker", "box", "points"),
            height=22 * len(rows),
            named=False,
            sideways=True,
            note=constants_of(ds),
        )
    ]


def draw_histograms(
    ds: xr.Dataset, bins: str, measure: str, split: str, by: str, styles: Styles, xlabel: str
) -> Drawing:
    """Draw probabilities of bins above their cumulative sums, one axes per value of the factor `split`.

    The output `bins` has the lower edges of the bins, of which the last ends at 1. Empty bins are omitted from the
    logarithmic axes.
    """
    looks = looks_of(styles, by, [ds])
    edges = np.append(ds[bins].values, 1.0)
    labelled = with_labels(ds, by)
    singles: list[pd.DataFrame] = []
    totals: list[pd.DataFrame] = []
    for value in ds[split].values.tolist():
        axes, one = f"{split} = {format_value(value)}", labelled[measure].sel({split: value})
        one = one.where(one.notnull().any(bins), drop=True)
        middles = one.where(one > 0).assign_coords({bins: (edges[1:] + edges[:-1]) / 2})
        sums = one.cumsum(bins).assign_coords({bins: edges[1:]})
        sums = sums.reindex({bins: edges}, fill_value=0.0)
        for found, array in ((singles, middles), (totals, sums)):
            rows = rows_of(array.to_dataset(name="p"), bins, by, axes=axes, y="p")
            place = rows.groupby("series", sort=False).cumcount() + 2 * rows.groupby("series", sort=False).ngroup()
            found.append(rows.assign(marked=place % 8 == 0))
    axis = Axis(xlabel, limits=(0.0, 1.0))
    columns = min(ds.sizes[split], 2)
    return [
        Plot(
            stack(singles),
            axis,
            Axis("probability of the bin", log=True, limits=(1e-6, 1.0)),
            looks,
            columns=columns,
            at_ends=False,
            note=constants_of(ds),
        ),
        Plot(
            stack(totals),
            axis,
            Axis("cumulative probability", limits=(0.0, 1.0)),
            looks,
            columns=columns,
            at_ends=False,
        ),
    ]


def draw_shares(ds: xr.Dataset, x: str, measure: str, by: str, split: str) -> Drawing:
    """Draw ratios to a limit against a factor, one axes per method, and mark values above the limit.

    Lines are values of the factor `by`, and axes those of the dimension of methods `split`. The ratio `measure` is NaN
    where a method does not apply, and exceeds the limit above 1.
    """
    parts, titles = [], []
    series = {value: f"{by} {format_value(value)}" for value in ds[by].values.tolist()}
    for name in ds[split].values.tolist():
        one = ds[[measure]].sel({split: name}, drop=True)
        above = one[measure].where(one[measure] > 1 + 1e-9)
        violated = f": above 1, up to {float(above.max()):.3g}" if above.notnull().any() else ""
        titles.append(f"{label_method(ds, split, name)}{violated}")
        rows = rows_of(one, x, by, axes=titles[-1], y=measure, cross=above)
        parts.append(rows.assign(series=rows["series"].map(series)))
    top = max(1.2, 1.08 * float(ds[measure].max()))
    rows = stack([*parts, across(titles, level=1.0, **{"from": 1.0, "to": top})])
    return [
        Plot(
            rows,
            Axis(label_of(ds[x]), log=True),
            Axis(label_of(ds[measure]), limits=(0.0, top)),
            look_up(series.values()),
            ("region", "level", "line", "points", "cross"),
            columns=4,
            height=90,
            at_ends=False,
        )
    ]


def draw_ratios(parts: Mapping[str, xr.Dataset], x: str, measure: str, by: str, styles: Styles, ylabel: str) -> Drawing:
    """Draw ratios to a limit against a factor, one axes per panel, with a line at 1.

    Parts are titles of axes -> summaries. The ratio `measure` is on a logarithmic axis; NaN where a method
    does not apply.
    """
    first = next(iter(parts.values()))
    drawn = [rows_of(with_labels(ds, by), x, by, axes=title, y=measure) for title, ds in parts.items()]
    return [
        Plot(
            stack([*drawn, across(list(parts), level=1.0)]),
            Axis(label_of(first[x])),
            Axis(ylabel, log=True),
            looks_of(styles, by, parts.values()),
            ("level", "line", "points"),
            columns=3,
            height=260,
            share_x=False,
            note=constants_of(first),
        )
    ]
