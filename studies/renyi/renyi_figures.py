"""Figures of the studies of Rényi-private posterior sampling: curves by order, and utility against ε."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
import xarray as xr

from mechanisms.renyi.gaussian_counts import GAUSSIAN_MECHANISMS
from mechanisms.renyi.sampling import RENYI_SAMPLERS
from pipeline.declare.factors import format_value
from studies.figures import Axis, Drawing, Plot, looks_of, rows_of, stack, with_labels
from studies.styles import Styles, look_up

Parts = Mapping[str, xr.Dataset]

_FIXED = [name for name, method in RENYI_SAMPLERS.items() if not method.is_tunable]
_VARIANTS = [name for name, method in GAUSSIAN_MECHANISMS.items() if method.variant]


def draw_renyi_curves(parts: Parts) -> Drawing:
    """Draw Rényi divergences and asymptotes against the order, with one axes per panel and one line per coefficient.

    Parts are titles of axes -> summaries with ``renyi_epsilon`` (coefficient, order) and ``critical_order``.
    """
    first = next(iter(parts.values()))
    names = {
        value: "1 (direct posterior)" if value == 1 else format_value(value)
        for value in first["coefficient"].values.tolist()
    }
    rows = []
    for title, ds in parts.items():
        curves = rows_of(
            ds, "order", "coefficient", title, y=ds["renyi_epsilon"].where(np.isfinite(ds["renyi_epsilon"]))
        )
        asymptotes = ds["critical_order"].to_series().rename("edge").rename_axis("series").reset_index()
        rows += [curves, asymptotes[asymptotes["edge"] <= float(ds["order"].max())].assign(axes=title)]
    table = stack(rows)
    return [
        Plot(
            table.assign(series=table["series"].map(names)),
            Axis("order λ", limits=(0.0, float(first["order"].max()))),
            Axis("ε (nat), one line per coefficient", limits=(0.0, 2.0)),
            look_up(names.values()),
            ("edge", "line"),
            columns=2,
            height=230,
            at_ends=False,
        )
    ]


def draw_dirichlet_bounds(ds: xr.Dataset) -> Drawing:
    """Draw ratios of bounds to exact Rényi divergences against the order, with one line per coefficient."""
    ratio = ds["ponnoprat_epsilon"].where(np.isfinite(ds["renyi_epsilon"])) / ds["renyi_epsilon"]
    names = [format_value(value) for value in ds["coefficient"].values.tolist()]
    table = rows_of(
        ds.assign_coords(coefficient=names), "order", "coefficient", y=ratio.assign_coords(coefficient=names)
    )
    return [
        Plot(
            table,
            Axis("order λ", log=True),
            Axis("bound / exact divergence", log=True),
            look_up(names),
            ("line", "points"),
            height=200,
            at_ends=False,
        )
    ]


def draw_divergences(ds: xr.Dataset, styles: Styles) -> Drawing:
    """Draw the divergence of the posterior from each mechanism against ε, with one axes per order.

    The summary has ``kl`` and ``spent_epsilon`` (order, epsilon, mechanism), NaN where a mechanism does not apply.
    """
    looks = looks_of(styles, "mechanism", [ds])
    tunable = ds.sel(mechanism=[name for name in ds["mechanism"].values.tolist() if name not in _FIXED])
    rows = []
    for order in ds["order"].values.tolist():
        title = f"order {format_value(order)}"
        kl = tunable.sel(order=order)
        rows.append(rows_of(kl, "epsilon", "mechanism", title, y=kl["kl"].where(kl["kl"] > 0)))
        smallest = {
            name: float(ds["spent_epsilon"].sel(order=order, mechanism=name).max()) for name in looks if name in _FIXED
        }
        edges = {name: value for name, value in smallest.items() if np.isfinite(value)}
        rows.append(pd.DataFrame({"axes": title, "series": list(edges), "edge": list(edges.values())}))
    return [
        Plot(
            stack(rows),
            _epsilon(ds),
            Axis("KL divergence (nat)", log=True, limits=(1e-6, None)),
            looks,
            ("edge", "line", "points"),
            columns=2,
            height=260,
            at_ends=False,
        )
    ]


def draw_losses(ds: xr.Dataset, styles: Styles) -> Drawing:
    """Draw exact and simulated log losses against ε, with one column per order; the second row is enlarged.

    The summary has ``expected_nll``, ``heldout_nll_mean`` and ``heldout_nll_sd`` (order, epsilon, mechanism).
    """
    looks = looks_of(styles, "mechanism", [ds])
    published = ~ds["mechanism"].isin(_VARIANTS).values
    ds = with_labels(ds, "mechanism")
    mean, sd = ds["heldout_nll_mean"], ds["heldout_nll_sd"]
    # the bands of the variants are similar to those of the published mechanisms
    sd = sd.where(xr.DataArray(published, dims="mechanism"))
    rows = stack(
        [
            rows_of(
                ds.sel(order=order),
                "epsilon",
                "mechanism",
                f"order {format_value(order)}",
                y="heldout_nll_mean",
                exact="expected_nll",
                low=(mean - sd).sel(order=order),
                high=(mean + sd).sel(order=order),
            )
            for order in ds["order"].values.tolist()
        ]
    )
    lowest, x = float(ds["expected_nll"].min()), _epsilon(ds)
    label = "negative log likelihood (nat)"
    limits = (0.85 * lowest, 2.5 * lowest), (0.99 * lowest, 1.14 * lowest)
    whole, enlarged = (Axis(label, limits=ends) for ends in limits)
    return [
        Plot(rows, x, whole, looks, ("band", "exact", "points"), columns=2, height=230, at_ends=False),
        Plot(rows, x, enlarged, looks, ("exact", "points"), columns=2, height=230, at_ends=False),
    ]


def _epsilon(ds: xr.Dataset) -> Axis:
    """Return the logarithmic axis of ε."""
    return Axis("ε (nat)", log=True, limits=(float(ds["epsilon"].min()), float(ds["epsilon"].max())))
