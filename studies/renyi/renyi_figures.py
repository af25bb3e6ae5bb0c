"""Charts of the studies of private posterior sampling: curves by order, and utility against ε."""

from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr

from mechanisms.draws.gaussian_counts import GAUSSIAN_MECHANISMS
from mechanisms.draws.tempered import RENYI_SAMPLERS
from pipeline import Figure
from pipeline.declare.factors import format_value
from studies.figures import Axis, Chart, shares, stacked
from studies.renyi.renyi_audit_claims import published_loss
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
    "", "order", {"y": "renyi_epsilon"}, "coefficient", x=Axis("order λ", limits=(0.0, None)),
    y=Axis("ε (nat), one line per coefficient", limits=(0.0, 2.0)), marks=("edge", "line"),
    across={"edge": "critical_order"}, prepare=_finite, columns=2, height=230, at_ends=False)  # fmt: skip

DIRICHLET_BOUNDS = Chart(
    "dirichlet-bounds", "order", {"y": "ratio"}, "coefficient", x=Axis("order λ", log=True),
    y=Axis("bound / exact divergence", log=True),
    prepare=lambda ds: ds.assign(ratio=ds["ponnoprat_epsilon"] / _finite(ds)["renyi_epsilon"].values), height=200,
    at_ends=False)  # fmt: skip


def _divergences(ds: xr.Dataset) -> xr.Dataset:
    """Return positive divergences of tunable mechanisms, and the smallest ε of the others."""
    is_fixed = ds["mechanism"].isin(_FIXED)
    smallest = ds["spent_epsilon"].max("epsilon").where(is_fixed)
    return ds.assign(kl=ds["kl"].where((ds["kl"] > 0) & ~is_fixed), smallest=smallest.where(np.isfinite(smallest)))


_UTILITY = Chart(
    "", "epsilon", {}, "mechanism", RENYI_STYLES, x=_EPSILON, facet={"order": "order {}"}, columns=2, at_ends=False
)
DIVERGENCES = replace(
    _UTILITY, source="kl", show={"y": "kl"}, y=Axis("KL divergence (nat)", log=True, limits=(1e-6, None)),
    marks=("edge", "line", "points"), across={"edge": "smallest"}, prepare=_divergences, height=260)  # fmt: skip


def _losses(ds: xr.Dataset) -> xr.Dataset:
    """Return losses with bands of one standard deviation; those of the variants are similar and not shown."""
    mean, sd = ds["heldout_nll_mean"], ds["heldout_nll_sd"].where(~ds["mechanism"].isin(_VARIANTS))
    return ds.assign(low=mean - sd, high=mean + sd)


_LOSSES = replace(
    _UTILITY, source="loglik", show={"y": "heldout_nll_mean", "exact": "expected_nll", "low": "low", "high": "high"},
    y=Axis("negative log likelihood (nat)"),
    limits=lambda rows: (0.85 * rows["exact"].min(), 2.5 * rows["exact"].min()), marks=("band", "exact", "points"),
    prepare=_losses, height=230)  # fmt: skip

_ENLARGED = replace(
    _LOSSES, marks=("exact", "points"), limits=lambda rows: (0.99 * rows["exact"].min(), 1.14 * rows["exact"].min())
)
LOSSES = stacked(_LOSSES, _ENLARGED)


def against_epsilon(measure: str, ylabel: str, log: bool = False, **options: Any) -> Chart:
    """Describe the mean of an error of draws of regression weights against ε, with one axes per panel."""
    defaults = {"styles": GLM_STYLES, "x": _EPSILON, "marks": ("line", "errors", "points"), "best": "lowest"}
    return Chart(
        "", "epsilon", {"y": f"{measure}_mean"}, "mechanism", y=Axis(ylabel, log=log), share_y=False,
        **{**defaults, **options})  # fmt: skip


def _logistic(ds: xr.Dataset) -> xr.DataArray:
    """Return the largest ratios of divergence to bound by order and mechanism, for each dimension and β as text."""
    share = (ds["renyi_epsilon"] / ds["stated_epsilon"]).max(("n", "epsilon")).stack(at=("dimension", "beta"))
    labels = [f"d = {d}, β = {format_value(beta)}" for d, beta in share["at"].values.tolist()]
    return share.drop_vars(("at", "dimension", "beta")).assign_coords(at=labels)


def _ops(ds: xr.Dataset) -> xr.DataArray:
    """Return the largest ratios of the loss of OPS to the published bound and to half of it."""
    loss = ds["pure_loss"].sel(mechanism="ops", drop=True)
    bounds = {"4c²ρ/β (published)": published_loss(ds), "2c²ρ/β": published_loss(ds) / 2}
    return xr.concat([(loss / bound).max("power") for bound in bounds.values()], xr.Variable("bound", list(bounds)))


def _dirichlet(ds: xr.Dataset) -> xr.DataArray:
    """Return the largest ratios of divergence to ε of the samplers that are calibrated to ε."""
    ds = ds.sel(mechanism=~ds["mechanism"].isin(_FIXED))
    return (ds["enumerated_epsilon"].fillna(ds["quadrature_epsilon"]) / ds["epsilon"]).max(("n", "epsilon"))


def _tightness(dimension: int, top: float) -> Chart:
    """Describe ratios to the bound against β, with one column per precision and one line per order."""
    return Chart(
        "tightness", "beta", {"y": "share"}, "order", x=Axis("β", log=True),
        y=Axis("divergence / bound", limits=(0.0, top)), marks=("reference", "line", "points"),
        facet={"precision": f"d = {dimension}, nβ = {{}}"}, across={"reference": "limiting_share"},
        prepare=lambda ds: ds.sel(dimension=dimension).sortby("beta"), series="λ = {}", height=140)  # fmt: skip


def _with_crosses(ds: xr.Dataset) -> xr.Dataset:
    """Return finite divergences, the bound, and heights of crosses at infinite ones, which differ by link."""
    is_infinite = np.isinf(ds["renyi_epsilon"])
    finite = ds["renyi_epsilon"].where(~is_infinite)
    bound = ds["bound"].isel(link=0)
    high = 1e4 * float(np.fmax(finite.max(), bound.max()))
    height = xr.where(ds["link"] == "probit", high**0.96, high**0.86).where(is_infinite)
    return ds[["divergence_on_box"]].assign(finite=finite, limit=bound, height=height, low=0.5 * finite.min())


_BY_ORDER = Chart(
    "links", "order", {"y": "finite", "cross": "height"}, "link", x=Axis("order λ"),
    y=Axis("Rényi divergence (nat)", log=True), marks=("reference", "line", "points", "cross"), facet={"n": "n = {}"},
    across={"reference": "limit"}, prepare=_with_crosses, height=180, at_ends=False)  # fmt: skip
_BY_REACH = replace(
    _BY_ORDER, over="reach", show={"y": "divergence_on_box"}, x=Axis("half width of the interval", log=True),
    y=Axis("Rényi divergence (nat) at the largest order", log=True, limits=(None, 1e5)),
    marks=("level", "line", "points"), across={"level": "limit"},
    prepare=lambda ds: _with_crosses(ds).isel(order=-1))  # fmt: skip

AUDITS = (
    Figure(
        "audit-logistic",
        "Divergence of samplers for logistic regression relative to their guarantee",
        "Ratio of the largest divergence over replacements of one record to the stated bound, against the order, with "
        "one line per dimension of the records and beta; maximum over the stored n and epsilon. The true posterior is "
        "compared with the bound of Theorem 16. The line at 1 is the bound.",
        ("logistic",),
        shares("logistic", "order", "at", "mechanism", _logistic, "divergence / bound"),
    ),
    Figure(
        "audit-tightness",
        "Tightness of the bound of Theorem 16",
        "Ratio of the divergence to its bound for worst-case data, against beta on a logarithmic axis, with one plot "
        "per dimension of the records and precision of the prior and one line per order. The thin line is the limit "
        "for large n and n·beta. As beta decreases, it increases to 1 in two dimensions and to 0.2765 in one "
        "dimension.",
        ("tightness",),
        stacked(_tightness(1, 0.3), _tightness(2, 1.05)),
    ),
    Figure(
        "audit-links",
        "Divergences with non-canonical links",
        "Top: largest divergence against the order, for three links and three numbers of records; the thin line is "
        "the bound that P3 states for all of them, and a cross marks an infinite divergence. Bottom: "
        "divergence at the largest order for weights in an interval, against its half width. It converges for the "
        "logistic link and grows without bound for the two others. The vertical axes are logarithmic.",
        ("links",),
        stacked(_BY_ORDER, _BY_REACH),
    ),
    Figure(
        "audit-ops",
        "Privacy loss of one posterior sample on a ball",
        "Ratio of the largest pure privacy loss in one dimension to the published bound and to half of it, against "
        "beta, with one line per number of records; maximum over the stored powers. The line at 1 is the bound.",
        ("ops",),
        shares("ops", "beta", "n", "bound", _ops, "largest loss / bound", "n = {}"),
    ),
    Figure(
        "audit-dirichlet",
        "Divergence of samplers for exponential families relative to their target",
        "Ratio of the largest divergence over all neighbours to the target epsilon, against the order, with one line "
        "per prior; maximum over the stored n and epsilon. Divergences are computed by enumeration for posterior "
        "sampling and by quadrature for Gaussian noise. The line at 1 is the target.",
        ("dirichlet",),
        shares("dirichlet", "order", "prior", "mechanism", _dirichlet, "divergence / ε", "prior {}"),
    ),
)
