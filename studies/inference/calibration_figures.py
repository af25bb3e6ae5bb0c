"""Figures of the calibration studies: measures against n, distributions of quantiles and ranks, and traces."""

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd
import xarray as xr

from pipeline.declare.factors import format_value
from studies.figures import Axis, Drawing, Plot, across, looks_of, rows_of, stack, with_labels
from studies.styles import Styles, look_up

Parts = Mapping[str, xr.Dataset]


def draw_against_n(
    parts: Parts, measure: str, ylabel: str, styles: Styles, limit: Callable[[xr.Dataset], float] | None = None
) -> Drawing:
    """Draw a variable against the number of records, with one row per panel and one column per privacy loss.

    Parts are titles of rows -> summaries with the dimensions n, epsilon and method. The vertical axis is logarithmic;
    values <= 0 are not shown. If ``{measure}_mean`` is stored, it is drawn with ± 2 Monte Carlo standard errors.
    `limit` maps a summary to the upper end of a grey band for sampling error.
    """
    losses = next(iter(parts.values()))["epsilon"].values.tolist()
    rows, bands = [], []
    for title, ds in parts.items():
        column = f"{measure}_mean" if f"{measure}_mean" in ds else measure
        for epsilon in losses:
            axes = f"{title}, ε = {format_value(epsilon)}"
            one = with_labels(ds, "algorithm").sel(epsilon=epsilon)
            rows.append(rows_of(one, "n", "algorithm", axes, y=column))
            bands += [(axes, limit(one))] if limit is not None else []
    table = stack(rows)
    floor = 0.7 * float(table["y"][table["y"] > 0].min())
    marks = ("line", "errors", "points") if "mcse" in table else ("line", "points")
    if bands:
        titles, ends = zip(*bands, strict=True)
        table, marks = stack([table, across(titles, **{"from": floor, "to": list(ends)})]), ("region", *marks)
    return [
        Plot(
            table,
            Axis("number of records", log=True),
            Axis(ylabel, log=True, limits=(floor, None)),
            looks_of(styles, "algorithm", parts.values()),
            marks,
            columns=len(losses),
            height=150,
        )
    ]


def draw_ecdfs(parts: Parts, ecdf: str, level: str, styles: Styles) -> Drawing:
    """Draw empirical distribution functions of quantiles, one axes per panel, with a band for uniform quantiles.

    The simultaneous 95 % bands are those of Dvoretzky, Kiefer & Wolfowitz. Parts are titles of axes -> summaries with
    dimensions method and `level` and variable ``n_ok``.
    """
    rows = []
    for title, ds in parts.items():
        levels = ds[level].values
        half = np.sqrt(np.log(2 / 0.05) / (2 * float(ds["n_ok"].min())))
        band = {"strip_low": np.maximum(levels - half, 0), "strip_high": np.minimum(levels + half, 1)}
        rows.append(pd.DataFrame({"axes": title, "series": None, "x": levels, **band}))
        curves = rows_of(with_labels(ds, "algorithm"), level, "algorithm", title, y=ecdf)
        place = curves.groupby("series").cumcount() + 4 * curves.groupby("series", sort=False).ngroup()
        rows.append(curves.assign(marked=place % 30 == 5))
    return [
        Plot(
            stack(rows),
            Axis("posterior quantile of θ", limits=(0.0, 1.0)),
            Axis("fraction of trials", limits=(0.0, 1.0)),
            looks_of(styles, "algorithm", parts.values()),
            ("strip", "line", "points"),
            columns=3,
            at_ends=False,
        )
    ]


def draw_ranks(parts: Parts, histogram: str, bins: str, styles: Styles) -> Drawing:
    """Draw rank histograms as lines, one axes per panel, with a pointwise band for uniform ranks.

    Parts are titles of axes -> summaries with dimensions method and `bins` and variable ``n_ok``. The values of the
    histogram variable sum to 1.
    """
    rows = []
    for title, ds in parts.items():
        share = 1 / ds.sizes[bins]
        half = 2.576 * np.sqrt(share * (1 - share) / float(ds["n_ok"].min()))
        rows.append(across([title], **{"from": max(share - half, 0.0), "to": share + half}))
        rows.append(rows_of(with_labels(ds, "algorithm"), bins, "algorithm", title, y=histogram))
    return [
        Plot(
            stack(rows),
            Axis("bin of the rank"),
            Axis("fraction of trials"),
            looks_of(styles, "algorithm", parts.values()),
            ("region", "line", "points"),
            columns=3,
            at_ends=False,
        )
    ]


def draw_traces(parts: Parts, trace: str, axis: str, ylabel: str) -> Drawing:
    """Draw the first iterations of a few chains, one axes per panel.

    Parts are titles of axes -> data sets with dimensions start and `axis`, that of iterations, and variable ``truth``.
    """
    names: dict[int, str] = {}
    rows = []
    for title, ds in parts.items():
        names |= {start: f"start {start + 1}" for start in ds["start"].values.tolist()}
        rows.append(across([title], level=float(ds["truth"])))
        rows.append(rows_of(ds, axis, "start", title, y=trace))
    table = stack(rows)
    return [
        Plot(
            table.assign(series=table["series"].map(names)),
            Axis("iteration"),
            Axis(ylabel),
            look_up(names.values()),
            ("level", "line"),
            height=160,
            at_ends=False,
            share_y=False,
        )
    ]
