"""Tables of the studies of posterior sampling: comparisons of mechanisms, and audited privacy losses."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import xarray as xr

from mechanisms.draws.gaussian_counts import GAUSSIAN_MECHANISMS
from mechanisms.draws.glm_mechanisms import GLM_MECHANISMS
from mechanisms.draws.tempered import RENYI_SAMPLERS
from pipeline.declare.factors import format_value
from studies.claims import Summaries
from studies.renyi.renyi_audit_claims import logistic_shares, published_loss
from studies.tables import AuditedLoss, PageTable, compare_methods, largest_loss, show_mean

_REFERENCE = "true-posterior"


def compare_utility(summaries: Summaries) -> PageTable:
    """Compare the mechanisms by the log loss of one draw from a Beta posterior on held-out records."""
    ds = summaries.get("loglik", xr.Dataset({"order": [], "epsilon": []}))
    return compare_methods(
        "Rényi-private draws of a Beta posterior",
        "Mean log loss of a draw on held-out records, with its Monte Carlo standard error; smaller is better.",
        "mechanism",
        [RENYI_SAMPLERS, GAUSSIAN_MECHANISMS, {_REFERENCE: GLM_MECHANISMS[_REFERENCE]}],
        {
            f"λ = {order:g}, ε = {epsilon:.2g}": (ds.sel(order=order, epsilon=epsilon), show_mean("heldout_nll"))
            for order in ds["order"].values
            for epsilon in _spread(ds["epsilon"].values.tolist(), 3)
        },
    )


def _spread(values: Sequence[float], n: int) -> list[float]:
    """Return n of the values at evenly spaced positions, the first and the last value among them."""
    return [values[k] for k in np.unique(np.linspace(0, len(values) - 1, n).round().astype(int))]


def compare_errors(summaries: Summaries) -> PageTable:
    """Compare test errors of private logistic regression at the middle order and two values of ε."""
    columns = {}
    for name in (name for name in ("abalone", "adult", "mnist") if name in summaries):
        ds = summaries[name]
        orders, epsilons = ds["order"].values, ds["epsilon"].values
        order = orders[orders.size // 2]
        for epsilon in dict.fromkeys((epsilons.min(), epsilons[np.abs(np.log(epsilons)).argmin()])):
            head = f"{name}, λ = {format_value(order.item())}, ε = {epsilon:.2g}"
            columns[head] = ds.sel(order=order, epsilon=epsilon), show_mean("test_error")
    return compare_methods(
        "Private logistic regression",
        "Mean test error of one draw of the weights, with its Monte Carlo standard error; smaller is better.",
        "mechanism",
        [GLM_MECHANISMS],
        columns,
    )


def audited_draws(summaries: Summaries) -> Iterator[AuditedLoss]:
    """Yield the audited divergences of mechanisms for counts and of samplers of regression weights."""
    if "dirichlet" in summaries:
        ds = summaries["dirichlet"]
        audited = ds["enumerated_epsilon"].fillna(ds["quadrature_epsilon"])
        for name in ds["mechanism"].values.tolist():
            is_calibrated = name not in RENYI_SAMPLERS or RENYI_SAMPLERS[name].is_tunable
            stated = ds["epsilon"] if is_calibrated else ds["stated_epsilon"].sel(mechanism=name)
            pair = audited.sel(mechanism=name), stated.where(np.isfinite(stated))
            states = "(λ, ε)-RDP" if is_calibrated else "its exact curve"
            yield AuditedLoss(f"{name}, counts", states, *largest_loss([pair]))
    if "logistic" in summaries:
        ds = summaries["logistic"]
        for name in ds["mechanism"].values.tolist():
            draws = ds.sel(mechanism=name)
            losses = logistic_shares(draws) * draws["stated_epsilon"]
            states = "Theorem 16" if name == "true-posterior" else "(λ, ε)-RDP"
            yield AuditedLoss(f"{name}, logistic", states, *largest_loss([(losses, draws["stated_epsilon"])]))
    if "tightness" in summaries:  # this panel stores ratios only
        share, _, n_audits, place = largest_loss([(summaries["tightness"]["share"], 1.0)])
        yield AuditedLoss("true-posterior, worst data", "Theorem 16", share, math.nan, n_audits, place)
    if "ops" in summaries:
        ops = summaries["ops"].sel(mechanism="ops")
        published = published_loss(ops)
        for name, text, stated in (("ops", "4c²ρ/β-DP", published), ("ops-tight", "2c²ρ/β-DP", published / 2)):
            yield AuditedLoss(f"{name}, logistic", text, *largest_loss([(ops["pure_loss"], stated)]))
    if "links" in summaries:
        ds = summaries["links"]
        for link in (link for link in ds["link"].values.tolist() if link != "logistic"):
            curves = ds.sel(link=link)
            largest = largest_loss([(curves["renyi_epsilon"], curves["bound"])])
            yield AuditedLoss(f"true-posterior, {link}", "Theorem 16, as printed", *largest, False)
