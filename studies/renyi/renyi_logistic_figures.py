"""Figures of the study of logistic regression: measures against ε by data set and order."""

from collections.abc import Mapping

import xarray as xr

from pipeline.declare.factors import format_value
from studies.figures import Axis, Drawing, Plot, looks_of, rows_of, stack, with_labels
from studies.styles import Styles


def draw_orders(parts: Mapping[str, xr.Dataset], measure: str, ylabel: str, styles: Styles) -> Drawing:
    """Draw the mean of a measure against ε, with one row per order and one column per panel.

    Parts are titles of columns -> summaries with the dimensions order, epsilon and mechanism. ``{measure}_mean`` is
    drawn with ± 2 ``{measure}_mcse``.
    """
    orders = next(iter(parts.values()))["order"].values.tolist()
    rows = [
        rows_of(
            with_labels(ds, "mechanism").sel(order=order),
            "epsilon",
            "mechanism",
            f"{title}, order {format_value(order)}",
            y=f"{measure}_mean",
        )
        for order in orders
        for title, ds in parts.items()
    ]
    return [
        Plot(
            stack(rows),
            Axis("ε (nat)", log=True),
            Axis(ylabel),
            looks_of(styles, "mechanism", parts.values()),
            ("line", "errors", "points"),
            columns=len(parts),
            height=160,
            share_y=False,
        )
    ]
