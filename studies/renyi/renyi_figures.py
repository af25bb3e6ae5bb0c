"""Charts of the studies of private posterior sampling: curves by order, and utility against ε."""

from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr

from mechanisms.renyi.gaussian_counts import GAUSSIAN_MECHANISMS
from mechanisms.renyi.sampling import RENYI_SAMPLERS
from pipeline.declare.factors import format_value
from studies.figures import Axis, Chart, stacked
from studies.styles import GLM_STYLES, RENYI_STYLES

_FIXED = [name for name, method in RENYI_SAMPLERS.items() if not method.is_tunable]
_VARIANTS = [name for name, method in GAUSSIAN_MECHANISMS.items() if method.variant]
_EPSILON = Axis("ε (nat)", log=True)


def _finite(ds: xr.Dataset) -> xr.Dataset:
    """Return finite divergences, with the coefficients as text."""
    values = ds["coefficient"].values.tolist()
    names = ["1 (direct posterior)" if value == 1 else format_value(value) for value in values]
    epsilon = ds["renyi_epsilon"].where(np.isfinite(ds["renyi_epsilon"]))
    return ds.assign(renyi_epsilon=epsilon).assign_coords(coefficient=names)


CURVES = Chart(
    "",
    "order",
    {"y": "renyi_epsilon"},
    "coefficient",
    x=Axis("order λ", limits=(0.0, None)),
    y=Axis("ε (nat), one line per coefficient", limits=(0.0, 2.0)),
    marks=("edge", "line"),
    across={"edge": "critical_order"},
    prepare=_finite,
    columns=2,
    height=230,
    at_ends=False,
)

DIRICHLET_BOUNDS = Chart(
    "dirichlet-bounds",
    "order",
    {"y": "ratio"},
    "coefficient",
    x=Axis("order λ", log=True),
    y=Axis("bound / exact divergence", log=True),
    prepare=lambda ds: ds.assign(ratio=ds["ponnoprat_epsilon"] / _finite(ds)["renyi_epsilon"].values),
    height=200,
    at_ends=False,
)


def _divergences(ds: xr.Dataset) -> xr.Dataset:
    """Return positive divergences of tunable mechanisms, and the smallest ε of the others."""
    is_fixed = ds["mechanism"].isin(_FIXED)
    smallest = ds["spent_epsilon"].max("epsilon").where(is_fixed)
    return ds.assign(kl=ds["kl"].where((ds["kl"] > 0) & ~is_fixed), smallest=smallest.where(np.isfinite(smallest)))


DIVERGENCES = Chart(
    "kl",
    "epsilon",
    {"y": "kl"},
    "mechanism",
    RENYI_STYLES,
    x=_EPSILON,
    y=Axis("KL divergence (nat)", log=True, limits=(1e-6, None)),
    marks=("edge", "line", "points"),
    facet={"order": "order {}"},
    across={"edge": "smallest"},
    prepare=_divergences,
    columns=2,
    height=260,
    at_ends=False,
)


def _losses(ds: xr.Dataset) -> xr.Dataset:
    """Return losses with bands of one standard deviation; those of the variants are similar and not shown."""
    mean, sd = ds["heldout_nll_mean"], ds["heldout_nll_sd"].where(~ds["mechanism"].isin(_VARIANTS))
    return ds.assign(low=mean - sd, high=mean + sd)


_LOSSES = Chart(
    "loglik",
    "epsilon",
    {"y": "heldout_nll_mean", "exact": "expected_nll", "low": "low", "high": "high"},
    "mechanism",
    RENYI_STYLES,
    x=_EPSILON,
    y=Axis("negative log likelihood (nat)"),
    limits=lambda rows: (0.85 * rows["exact"].min(), 2.5 * rows["exact"].min()),
    marks=("band", "exact", "points"),
    facet={"order": "order {}"},
    prepare=_losses,
    columns=2,
    height=230,
    at_ends=False,
)

_ENLARGED = replace(
    _LOSSES,
    marks=("exact", "points"),
    limits=lambda rows: (0.99 * rows["exact"].min(), 1.14 * rows["exact"].min()),
)
LOSSES = stacked(_LOSSES, _ENLARGED)

_MEANS = Chart(
    "", "epsilon", {}, "mechanism", GLM_STYLES, x=_EPSILON, marks=("line", "errors", "points"), share_y=False
)


def against_epsilon(measure: str, ylabel: str, log: bool = False, **options: Any) -> Chart:
    """Describe the mean of a measure of draws of regression weights against ε, with one axes per panel."""
    return replace(_MEANS, show={"y": f"{measure}_mean"}, y=Axis(ylabel, log=log), **options)
