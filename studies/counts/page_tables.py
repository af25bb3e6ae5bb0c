"""Tables of the studies of counts: comparisons of mechanisms, and audited privacy losses."""

from collections.abc import Iterator

import xarray as xr

from mechanisms.core.exact_losses import exceeds
from mechanisms.core.privacy import Guarantee, Status
from mechanisms.counts.registry import MECHANISMS
from studies.claims import Summaries
from studies.counts.privacy_audit_claims import audits
from studies.tables import AuditedLoss, PageTable, compare_methods, largest_loss, show_mean


def compare_accuracy(summaries: Summaries) -> PageTable:
    """Compare mean distances to the true posterior."""
    show = show_mean("hellinger")
    panels = {name: ds for name, ds in summaries.items() if set(ds["n_ok"].dims) <= {"n", "mechanism"}}
    return compare_methods(
        "Accuracy of released posteriors",
        "Mean Hellinger distance to the true posterior over draws, with its Monte Carlo standard error; smaller is "
        "better. Empty where a mechanism does not apply.",
        "mechanism",
        [MECHANISMS],
        {head: (ds, show) for head, ds in _at_largest_n(panels, "hellinger_mean").items()},
    )


def compare_worst_cases(summaries: Summaries) -> PageTable:
    """Compare the mean distance of each mechanism at the worst data set with the optimal one."""
    panels = {name: ds for name, ds in summaries.items() if "optimal" in ds["mechanism"].values}
    return compare_methods(
        "Distance at the worst data set, against the optimum",
        "Exact mean Hellinger distance at the worst data set, and in brackets its ratio to that of the optimal "
        "private release, by linear programming; smaller is better.",
        "mechanism",
        [MECHANISMS],
        {
            head: (ds.assign(optimum=ds["worst_hellinger"].sel(mechanism="optimal", drop=True)), _show_worst)
            for head, ds in _at_largest_n(panels, "worst_hellinger").items()
        },
    )


def _show_worst(ds: xr.Dataset) -> str:
    value, best = float(ds["worst_hellinger"]), float(ds["optimum"])
    return f"{value:.4f} ({value / best:.2f})" if value == value else ""


def _at_largest_n(summaries: Summaries, measure: str) -> dict[str, xr.Dataset]:
    """Return each panel at the largest n for which 90 % of its mechanisms apply, labelled with this n."""
    shown = {}
    for name, ds in summaries.items():
        if "n" in ds.dims:
            applying = ds[measure].notnull().sum("mechanism").values
            ds = ds.sel(n=ds["n"].values[applying >= 0.9 * applying.max()].max())
        shown[f"{name}, n = {int(ds['n'])}" if "n" in ds.coords else name] = ds
    return shown


def describe_guarantee(guarantee: Guarantee | None) -> str:
    """Return the guarantee of a release of counts as a formula."""
    if guarantee is None:
        return "none"
    stated = "ε-DP" if guarantee.is_pure else "(ε, δ)-DP"
    return stated if guarantee.status is Status.PROVED else f"{stated}, {guarantee.status.value}"


def audited_releases(summaries: Summaries) -> Iterator[AuditedLoss]:
    """Yield the exact losses of releases of counts; if the loss exceeds ε, δ(ε) is compared with δ instead."""
    for name, stored in audits(summaries, lambda mechanism: True).items():
        share, loss, n_audits, place = largest_loss((audit["exact_epsilon"], audit["epsilon"]) for audit in stored)
        guarantee = MECHANISMS[name].guarantee(1.0, float(stored[0]["delta"]))
        holds = None
        if guarantee is not None and not guarantee.is_pure and share > 1:
            excess = max(
                float(audit["exact_delta"].where(exceeds(audit["exact_epsilon"], audit["epsilon"])).max())
                for audit in stored
            )
            holds = not excess > guarantee.delta
            place += f"; δ {excess:.1e}"
        yield AuditedLoss(
            name, describe_guarantee(guarantee), share, loss, n_audits, place, guarantee is not None, holds
        )
