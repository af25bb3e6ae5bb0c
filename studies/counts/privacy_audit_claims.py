"""Claims of the study `privacy-audit` (P0 and P1)."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr

from mechanisms import FAMILIES, MECHANISMS, Mechanism, Status
from mechanisms.core.exact_losses import exceeds
from mechanisms.core.privacy import RELATIONS
from pipeline import EVERY_PANEL, Erratum, Finding, claim, claims_in, verdict
from studies.claims import Look, Summaries, correct, count, in_panels, joined, largest, p0, p1, place, span

BINOMIAL_SIZES = (1, 2, 10, 30, 100, 300, 1000)
"""Numbers of records of the panel with two categories."""

_LOCAL: dict[str, Any] = {
    "prior": ("1:1", "0.01:100", ...),
    "n": BINOMIAL_SIZES,
    "epsilon": (0.1, 1.0, 3.0),
    "mechanism": ("local",),
}


def spent(summary: xr.Dataset) -> xr.DataArray:
    """Return the ratio of the loss to ε; if the loss exceeds ε and the guarantee has δ > 0, return δ(ε)/δ instead."""
    share, delta = _share(summary), float(summary["delta"])
    guarantees = [MECHANISMS[name].guarantee(1.0, delta) for name in summary["mechanism"].values.tolist()]
    is_pure = summary["mechanism"].copy(data=[guarantee is None or guarantee.is_pure for guarantee in guarantees])
    return share.where(is_pure | ~exceeds(share, 1.0), summary["exact_delta"] / delta)


def audits(summaries: Summaries, accepts: Callable[[Mechanism], bool]) -> dict[str, list[xr.Dataset]]:
    """Return the audits of each accepted mechanism in the panels with the neighbouring relation of its guarantee."""
    panels = [summary for summary in summaries.values() if "relation" not in summary.dims]
    audits_by_mechanism: dict[str, list[xr.Dataset]] = {}
    for summary in panels:
        for name in filter(lambda mechanism: accepts(MECHANISMS[mechanism]), summary["mechanism"].values.tolist()):
            audits_by_mechanism.setdefault(name, []).append(summary.sel(mechanism=name))
    return audits_by_mechanism


def _share(audit: xr.Dataset) -> xr.DataArray:
    """Return the ratio of the exact loss to ε, or NaN where the mechanism does not apply."""
    return audit["exact_epsilon"] / audit["epsilon"]


def _broken(audit: xr.Dataset) -> xr.DataArray:
    """Return a mask of the cells in which a mechanism violates its guarantee; without a guarantee, all are False."""
    guarantee, delta = MECHANISMS[audit["mechanism"].item()].guarantee, float(audit["delta"])
    stated = [guarantee(epsilon, delta) for epsilon in audit["epsilon"].values.tolist()]
    epsilons = audit["epsilon"].copy(data=[np.inf if g is None else g.epsilon for g in stated])
    deltas = audit["epsilon"].copy(data=[0.0 if g is None else g.delta for g in stated])
    return exceeds(audit["exact_epsilon"], epsilons) & ((deltas == 0) | exceeds(audit["exact_delta"], deltas))


def _place(share: xr.DataArray) -> str:
    return place(share, ("prior", "n", "epsilon")).replace("prior = ", "prior ")


def _counterexample(audit: xr.Dataset) -> str:
    """Describe the audit of a mechanism with the largest ratio of loss to ε."""
    share = largest(_share(audit))
    worst_cell = audit.sel({dim: share[dim] for dim in _share(audit).dims})
    data, neighbour, output = (
        worst_cell[f"worst_{part}"].values.astype(int).tolist() for part in ("dataset", "neighbour", "output")
    )
    return f"{share:.4f} epsilon at {_place(share)}: data sets {data} and {neighbour}, output {output}"


def _audit_guarantees(summaries: Summaries, status: Status) -> Finding:
    """Judge the statement that no audit violates a guarantee with this status; undecided without audits."""
    audits_of_status = audits(summaries, lambda mechanism: mechanism.status is status)
    shares = {name: [_share(audit) for audit in stored] for name, stored in audits_of_status.items()}
    n_audits = sum(int(share.count()) for several in shares.values() for share in several)
    tops = ", ".join(f"{name} {max(float(share.max()) for share in several):.3f}" for name, several in shares.items())
    pairs = ((name, audit) for name, stored in audits_of_status.items() for audit in stored)
    broken = "; ".join(f"{name}, with loss {_counterexample(audit)}" for name, audit in pairs if _broken(audit).any())
    return verdict(
        not broken if n_audits else None,
        f"{n_audits:,} exact audits. {f'Violated guarantees: {broken}. ' if broken else ''}"
        f"Largest ratio of loss to epsilon: {tops or 'none'}.",
    )


@claim(
    short="The exact loss of every mechanism with a proved guarantee is within it.", kind="self-check", also=EVERY_PANEL
)
def guarantees_hold(look: Look) -> Finding:
    """The exact privacy loss of every mechanism with a proved guarantee is within that guarantee."""
    return _audit_guarantees(look, Status.PROVED)


@claim(
    short="Mechanisms with smooth sensitivity keep their conjectured (epsilon, delta)-DP.",
    kind="self-check",
    also=EVERY_PANEL,
)
def conjectured_guarantees_hold(look: Look) -> Finding:
    """The exact privacy loss of the mechanisms with smooth sensitivity is within their conjectured (epsilon,
    delta)-DP.
    """
    finding = _audit_guarantees(look, Status.CONJECTURED)
    elsewhere = (
        "These audits are no proof for other priors. The pure loss exceeds epsilon at more skewed priors: for smooth "
        "it is 2.35 epsilon at the prior 1e5:350:250, n = 20, epsilon = 10, delta = 1e-5, with delta(epsilon) = 2.2e-9."
    )
    return replace(finding, evidence=f"{finding.evidence} {elsewhere}")


@p0(
    short="With smooth sensitivity, the mechanism is (1, 1e-8)-DP for Beta(1, 1), n = 100.",
    place="Mechanism",
    needs={"binomial": {"prior": "1:1", "n": 100, "epsilon": 1.0, "delta": 1e-8, "mechanism": "smooth"}},
    erratum=Erratum(
        "With smooth sensitivity the exponential mechanism is (ε, δ)-DP at the published setting, and no better.",
        "It is pure DP at about half of ε. Calibrated by its exact audit, it is pure DP and spends all of ε.",
    ),
)
def smooth_at_the_published_setting(look: Look) -> Finding:
    """The exponential mechanism with smooth sensitivity is (1, 1e-8)-DP for the prior Beta(1, 1) and n = 100."""
    cell = look.select("binomial")
    loss, delta = float(cell["exact_epsilon"]), float(cell["exact_delta"])
    pure = f": it is {loss:.4f}-DP with delta = 0, well within its budget" if loss <= 1 else ""
    evidence = f"The exact loss is {loss:.4f}, with delta {delta:.2g} at epsilon = 1{pure}."
    return correct(loss > 1 and delta <= 1e-8, loss <= 1, evidence)


@p1(place="section 1.2.2", needs={"binomial": _LOCAL})
def local_is_not_private(look: Look) -> Finding:
    """The exponential mechanism with local sensitivity is not epsilon-DP."""
    audit = look["binomial"].sel(mechanism="local")
    broken = exceeds(_share(audit), 1.0)
    n_broken = count(broken, _share(audit).notnull())
    evidence = f"The loss exceeds epsilon in {n_broken} audits. The largest loss is {_counterexample(audit)}."
    return verdict(broken.any(), evidence)


@p1(
    short="With local sensitivity, the loss exceeds epsilon for Beta(1, 1) and n >= 4.",
    place="proof in section 1.2.2, with the prior of section 2.1",
    needs={"binomial": _LOCAL},
    leads=True,
    erratum=Erratum(
        "The proof that local sensitivity is not private uses Beta(1, 1).",
        "With Beta(1, 1) the exact loss stays below ε; a skewed prior gives a counterexample.",
        place="section 1.2.2",
    ),
)
def local_proof(look: Look) -> Finding:
    """The exponential mechanism with local sensitivity loses more than epsilon at neighbours with LS(y) = H(x, y) <
    LS(x), which exist for Beta(1, 1) and n >= 4.
    """
    audit = look["binomial"].sel(prior=["1:1"], mechanism="local")
    shares = _share(audit)
    return verdict(
        (shares.sel(n=shares["n"] >= 4) > 1).all(),
        f"The loss exceeds epsilon in {count(shares > 1, shares.notnull())} audits, n = {span(shares['n'], '.0f')}. "
        f"The largest loss is {_counterexample(audit)}. To show that it is not private, a skewed prior is needed.",
    )


@claim(short="Exactly calibrated mechanisms lose epsilon, and never more.", kind="self-check", also=EVERY_PANEL)
@joined("Ratio of loss to epsilon: {}.")
def calibrated_spend_all(look: Look) -> Iterator[Finding]:
    """The exact privacy loss of the exactly calibrated mechanisms equals epsilon and never exceeds it."""
    for name, stored in audits(look, lambda mechanism: mechanism.calibrate is not None).items():
        shares = np.concatenate([_share(audit).values.ravel() for audit in stored])
        low, high = np.nanmin(shares), np.nanmax(shares)
        holds = low >= 0.999 and not any(_broken(audit).any() for audit in stored)
        yield verdict(holds, f"{name} {low:.6f} to {high:.6f} in {np.isfinite(shares).sum()} audits")


@claim(
    short="The loss of varying-bound, calibrated by a proved bound, is below epsilon.",
    kind="self-check",
    needs=in_panels(("binomial", "multinomial"), mechanism=("varying-bound", "varying")),
)
def bound_leaves_slack(look: Look) -> Finding:
    """The loss of varying-bound, which is calibrated by a proved bound, is strictly below epsilon."""
    bound, varying = ([_share(ds.sel(mechanism=name)) for ds in look.values()] for name in ("varying-bound", "varying"))
    worst = max(map(largest, bound))
    n_ahead = sum(int((share > other * (1 + 1e-9)).sum()) for share, other in zip(bound, varying, strict=True))
    return verdict(
        worst < 1,
        f"Ratio of loss to epsilon: {min(float(share.min()) for share in bound):.3f} to {worst:.3f}, largest at "
        f"{_place(worst)}. The loss of varying-bound exceeds that of varying in {n_ahead} of "
        f"{sum(int(share.count()) for share in bound)} audits.",
    )


@claim(
    short="Noisy sums are private under both neighbouring relations, counts under one.",
    kind="self-check",
    needs={"relations": {"relation": tuple(RELATIONS), "mechanism": (*FAMILIES, *MECHANISMS)}},
)
def both_neighbouring_relations(look: Look) -> Finding:
    """Sums with Laplace noise are epsilon-DP under both neighbouring relations; releases of counts, which reveal n,
    under replacement only.
    """
    loss = look["relations"]["exact_epsilon"]
    sums = loss.sel(mechanism=list(FAMILIES)) / look["relations"]["epsilon"]
    replaced, added = (loss.sel(mechanism=list(MECHANISMS), relation=name) for name in ("replace-one", "add-remove"))
    n_finite, n_infinite = int(np.isfinite(replaced).sum()), int(np.isposinf(added).sum())
    return verdict(
        not exceeds(sums, 1.0).any() and n_finite == replaced.size and n_infinite == added.size,
        f"Losses of {span(sums, '.4f')} epsilon in {sums.size} exact audits of sums. The loss of counts is finite in "
        f"{n_finite} of {replaced.size} audits under replacement, and infinite in {n_infinite} of {added.size} under "
        "addition and removal.",
    )


CLAIMS = claims_in(globals())
