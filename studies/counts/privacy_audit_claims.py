"""Claims of the study `privacy-audit` (P0 and P1)."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import xarray as xr

from mechanisms import FAMILIES, MECHANISMS, Mechanism, Status
from mechanisms.audit import exceeds
from mechanisms.privacy import RELATIONS
from pipeline import Erratum, Finding, claim, claims_in, verdict
from pipeline.declare.factors import format_value
from studies.claims import Stored, Summaries, correct, joined, largest, p0, p1, span
from studies.counts.page_tables import stated_audits

BINOMIAL_SIZES = (1, 2, 10, 30, 100, 300, 1000)
"""Numbers of records of the panel with two categories."""

_FULL_SHARE = 0.999

_LOCAL: dict[str, Any] = {
    "prior": ("1:1", "0.01:100"),
    "n": BINOMIAL_SIZES,
    "epsilon": (0.1, 1.0, 3.0),
    "mechanism": ("local",),
}


def _share(summary: xr.Dataset) -> xr.DataArray:
    """Return the ratio of the exact loss to ε, or NaN where the mechanism does not apply."""
    return summary["exact_epsilon"] / summary["epsilon"]


def spent(summary: xr.Dataset) -> xr.DataArray:
    """Return the ratio of the loss to ε; if the loss exceeds ε and the guarantee has δ > 0, return δ(ε)/δ instead."""
    share, delta = _share(summary), float(summary["delta"])
    guarantees = [MECHANISMS[name].guarantee(1.0, delta) for name in summary["mechanism"].values.tolist()]
    is_pure = summary["mechanism"].copy(data=[guarantee is None or guarantee.is_pure for guarantee in guarantees])
    return share.where(is_pure | ~exceeds(share, 1.0), summary["exact_delta"] / delta)


def _at(values: xr.DataArray) -> str:
    """Format the prior, n and ε for which `values` is largest."""
    one = largest(values)
    named = {"prior": "prior {}", "n": "n = {}", "epsilon": "epsilon = {}"}
    return ", ".join(text.format(format_value(one[name].item())) for name, text in named.items())


def _counterexample(summary: xr.Dataset, mechanism: str) -> str:
    """Describe the audit with the largest ratio of loss to ε."""
    shares = _share(summary).sel(mechanism=mechanism)
    one = summary.sel(mechanism=mechanism).isel(shares.fillna(-np.inf).argmax(...))
    data, neighbour, output = (one[f"worst_{what}"].values.tolist() for what in ("dataset", "neighbour", "output"))
    return (
        f"{one['exact_epsilon'] / one['epsilon']:.4f} epsilon at {_at(shares)}: data sets {data} and "
        f"{neighbour}, output {output}"
    )


def _broken(summary: xr.Dataset, mechanism: str) -> xr.DataArray:
    """Return a mask of the cells in which a mechanism violates its guarantee; without a guarantee, all are False."""
    one = summary.sel(mechanism=mechanism)
    delta = float(summary["delta"])
    stated = [MECHANISMS[mechanism].guarantee(epsilon, delta) for epsilon in summary["epsilon"].values.tolist()]
    epsilons = summary["epsilon"].copy(data=[np.inf if g is None else g.epsilon for g in stated])
    deltas = summary["epsilon"].copy(data=[0.0 if g is None else g.delta for g in stated])
    return exceeds(one["exact_epsilon"], epsilons) & ((deltas == 0) | exceeds(one["exact_delta"], deltas))


def _audits(summaries: Summaries, accepts: Callable[[Mechanism], bool]) -> dict[str, list[xr.Dataset]]:
    """Return, for each stored mechanism that is accepted, the summaries of the panels that contain it."""
    stored = dict.fromkeys(name for summary in summaries.values() for name in summary["mechanism"].values.tolist())
    return {
        name: [summary for summary in summaries.values() if name in summary["mechanism"].values]
        for name in stored
        if accepts(MECHANISMS[name])
    }


def _shares(summaries: Iterable[xr.Dataset], name: str) -> tuple[list[xr.DataArray], int]:
    """Return the ratios of loss to ε of a mechanism, and the number of audits."""
    shares = [_share(summary).sel(mechanism=name) for summary in summaries]
    return shares, sum(int(share.count()) for share in shares)


def _audit_guarantees(summaries: Summaries, status: Status) -> tuple[bool | None, str]:
    """Return True if no audit violates a guarantee with this status (None without audits), and the evidence."""
    n_audits, breaks, largest = 0, [], []
    for name, stored in _audits(stated_audits(summaries), lambda one: one.status is status).items():
        shares, n_own = _shares(stored, name)
        n_audits += n_own
        largest.append(f"{name} {max(float(share.max()) for share in shares):.3f}")
        broken = [summary for summary in stored if _broken(summary, name).any()]
        breaks += [f"{name}, with loss {_counterexample(summary, name)}" for summary in broken]
    return (
        not breaks if n_audits else None,
        f"{n_audits:,} exact audits. "
        + (f"Violated guarantees: {'; '.join(breaks)}. " if breaks else "")
        + f"Largest ratio of loss to epsilon: {', '.join(largest) or 'none'}.",
    )


@claim(kind="self-check")
def guarantees_hold(summaries: Stored) -> Finding:
    """The exact privacy loss of every mechanism with a proved guarantee is within that guarantee."""
    return verdict(*_audit_guarantees(summaries, Status.PROVED))


@claim(kind="self-check")
def conjectured_guarantees_hold(summaries: Stored) -> Finding:
    """The exact privacy loss of the mechanisms with smooth sensitivity is within their conjectured (epsilon,
    delta)-DP.
    """
    holds, evidence = _audit_guarantees(summaries, Status.CONJECTURED)
    return verdict(
        holds,
        f"{evidence} These audits are no proof for other priors. The pure loss exceeds epsilon at more skewed priors: "
        "for smooth it is 2.35 epsilon at the prior 1e5:350:250, n = 20, epsilon = 10, delta = 1e-5, where "
        "delta(epsilon) is 2.2e-9.",
    )


@p0(
    place="Mechanism",
    erratum=Erratum(
        "With smooth sensitivity the exponential mechanism is (ε, δ)-DP at the published setting, and no better.",
        "It is pure DP at about half of ε. Calibrated by its exact audit, it is pure DP and spends all of ε.",
    ),
)
def smooth_at_the_published_setting(summaries: Stored) -> Finding:
    """The exponential mechanism with smooth sensitivity is (1, 1e-8)-DP for the prior Beta(1, 1) and n = 100."""
    one = summaries.select("binomial", prior="1:1", n=100, epsilon=1.0, delta=1e-8, mechanism="smooth")
    loss, delta = float(one["exact_epsilon"]), float(one["exact_delta"])
    pure = f": it is {loss:.4f}-DP with delta = 0, well within its budget" if loss <= 1 else ""
    evidence = f"The exact loss is {loss:.4f}, with delta {delta:.2g} at epsilon = 1{pure}."
    return correct(loss > 1 and delta <= 1e-8, loss <= 1, evidence)


@p1(place="section 1.2.2")
def local_is_not_private(summaries: Stored) -> Finding:
    """The exponential mechanism with local sensitivity is not epsilon-DP."""
    summary = summaries.need("binomial", **_LOCAL)
    shares = _share(summary).sel(mechanism="local")
    n_broken = int(exceeds(shares, 1.0).sum())
    return verdict(
        n_broken > 0,
        f"The loss exceeds epsilon in {n_broken} of {int(shares.count())} audits. "
        f"The largest loss is {_counterexample(summary, 'local')}.",
    )


@p1(
    place="proof in section 1.2.2, with the prior of section 2.1",
    leads=True,
    erratum=Erratum(
        "The proof that local sensitivity is not private uses Beta(1, 1).",
        "With Beta(1, 1) the exact loss stays below ε; a skewed prior gives a counterexample.",
        place="section 1.2.2",
    ),
)
def local_proof(summaries: Stored) -> Finding:
    """The loss of the exponential mechanism with local sensitivity exceeds epsilon at neighbours x, y with LS(y) = H(x,
    y) < LS(x), which exist for the prior Beta(1, 1) and n >= 4.
    """
    summary = summaries.need("binomial", **_LOCAL).sel(prior=["1:1"])
    shares = _share(summary).sel(mechanism="local")
    holds = bool((shares.sel(n=[n for n in shares["n"].values if n >= 4]) > 1).all())
    n_above = int((shares > 1).sum())
    return verdict(
        holds,
        f"The loss exceeds epsilon in {n_above} of {int(shares.count())} audits, n = {int(shares['n'].min())} to "
        f"{int(shares['n'].max())}. The largest loss is {_counterexample(summary, 'local')}. A skewed prior is needed "
        "to show that the mechanism is not private.",
    )


@claim(kind="self-check")
@joined("Ratio of loss to epsilon: {}.")
def calibrated_spend_all(summaries: Stored) -> Iterator[Finding]:
    """The exact privacy loss of the exactly calibrated mechanisms equals epsilon and never exceeds it."""
    for name, stored in _audits(stated_audits(summaries), lambda one: one.calibrate is not None).items():
        shares, n_audits = _shares(stored, name)
        low, high = min(float(share.min()) for share in shares), max(float(share.max()) for share in shares)
        holds = low >= _FULL_SHARE and not any(_broken(summary, name).any() for summary in stored)
        yield verdict(holds, f"{name} {low:.6f} to {high:.6f} in {n_audits} audits")


@claim(kind="self-check")
def bound_leaves_slack(summaries: Stored) -> Finding:
    """The loss of varying-bound, which is calibrated by a proved bound, is strictly below epsilon."""
    stored = summaries.each(("binomial", "multinomial"), mechanism=("varying-bound", "varying"))
    shares, n_audits = _shares(stored.values(), "varying-bound")
    worst = max(shares, key=lambda share: float(share.max()))
    high, low = float(worst.max()), min(float(share.min()) for share in shares)
    ahead = [
        int((share > _share(summary).sel(mechanism="varying") * (1 + 1e-9)).sum())
        for share, summary in zip(shares, stored.values(), strict=True)
    ]
    return verdict(
        high < 1,
        f"Ratio of loss to epsilon: {low:.3f} to {high:.3f}, largest at {_at(worst)}. The loss of varying-bound "
        f"exceeds that of varying in {sum(ahead)} of {n_audits} audits.",
    )


@claim(kind="self-check")
def both_neighbouring_relations(summaries: Stored) -> Finding:
    """Sums with Laplace noise are epsilon-DP under replacement and under addition and removal of a record. Releases of
    counts have a finite loss under replacement, and an infinite one under addition and removal, because they reveal the
    number of records.
    """
    needed = summaries.need("relations", relation=tuple(RELATIONS), mechanism=(*FAMILIES, *MECHANISMS))
    loss = needed["exact_epsilon"]
    sums = loss.sel(mechanism=list(FAMILIES)) / needed["epsilon"]
    replaced, added = (loss.sel(mechanism=list(MECHANISMS), relation=name) for name in ("replace-one", "add-remove"))
    n_finite, n_infinite = int(np.isfinite(replaced).sum()), int(np.isposinf(added).sum())
    return verdict(
        not exceeds(sums, 1.0).any() and n_finite == replaced.size and n_infinite == added.size,
        f"Losses of {span(sums, '.4f')} epsilon in {sums.size} exact audits of sums. The loss of counts is finite in "
        f"{n_finite} of {replaced.size} audits under replacement, and infinite in {n_infinite} of {added.size} under "
        "addition and removal.",
    )


CLAIMS = claims_in(globals())
