"""Figures of the audits of Rényi guarantees: tightness of a bound, and unbounded divergences."""

import numpy as np
import xarray as xr

from pipeline.declare.factors import format_value
from studies.figures import Axis, Drawing, Plot, rows_of, stack
from studies.styles import look_up

_LINKS = look_up(("logistic", "probit", "cloglog"))
_HIGHEST = 1e5


def draw_tightness(ds: xr.Dataset) -> Drawing:
    """Draw ratios to the bound against β, with one row per dimension, one column per precision and one line per order.

    The summary has ``share`` (dimension, precision, beta, order) and ``limiting_share``.
    """
    ds = ds.sortby("beta").assign_coords(order=[f"λ = {order:g}" for order in ds["order"].values.tolist()])
    plots = []
    for dimension in ds["dimension"].values.tolist():
        rows = []
        for precision in ds["precision"].values.tolist():
            one = ds.sel(dimension=dimension, precision=precision)
            title = f"d = {dimension}, nβ = {format_value(precision)}"
            limit = rows_of(one, "beta", axes=title, reference="limiting_share").assign(series=None)
            rows += [rows_of(one, "beta", "order", title, y="share"), limit]
        plots.append(
            Plot(
                stack(rows),
                Axis("β", log=True),
                Axis("divergence / bound", limits=(0.0, 1.05 if dimension == 2 else 0.3)),
                look_up(ds["order"].values.tolist()),
                ("reference", "line", "points"),
                columns=ds.sizes["precision"],
                height=140,
            )
        )
    return plots


def draw_links(ds: xr.Dataset) -> Drawing:
    """Draw divergences against the order and against the half width of an interval, one column per number of records.

    The summary has ``renyi_epsilon`` and ``bound`` (n, link, order), ``divergence_on_box`` (n, link, order, reach).
    """
    order = float(ds["order"].max())
    low = 0.5 * float(ds["renyi_epsilon"].min())
    finite = ds["renyi_epsilon"].where(np.isfinite(ds["renyi_epsilon"]))
    high = 1e4 * float(np.fmax(finite.max(), ds["bound"].max()))
    by_order, by_reach = [], []
    for n in ds["n"].values.tolist():
        one, title = ds.sel(n=n), f"n = {n}"
        infinite = np.isinf(one["renyi_epsilon"])
        # separates the markers of two links at the same order
        height = xr.where(one["link"] == "probit", high**0.96, high**0.86)
        curves = rows_of(one, "order", "link", title, y=finite.sel(n=n), cross=height.where(infinite))
        bound = one["bound"].isel(link=0)
        by_order += [curves, rows_of(one, "order", axes=title, reference=bound).assign(series=None)]
        last = one.sel(order=order)
        boxed = rows_of(last, "reach", "link", title, y="divergence_on_box")
        by_reach += [boxed, boxed[["axes", "x"]].drop_duplicates().assign(series=None, reference=float(bound[-1]))]
    label = "Rényi divergence (nat)"
    return [
        Plot(
            stack(by_order),
            Axis("order λ"),
            Axis(f"{label}, with the bound; a cross marks an infinite divergence", log=True, limits=(low, high)),
            _LINKS,
            ("reference", "line", "points", "cross"),
            columns=ds.sizes["n"],
            height=180,
            at_ends=False,
        ),
        Plot(
            stack(by_reach),
            Axis("half width of the interval", log=True),
            Axis(f"{label} at order {format_value(order)}", log=True, limits=(low, _HIGHEST)),
            _LINKS,
            ("reference", "line", "points"),
            columns=ds.sizes["n"],
            height=180,
            at_ends=False,
        ),
    ]
