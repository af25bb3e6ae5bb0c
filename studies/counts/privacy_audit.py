"""Exact privacy loss of every mechanism that releases counts, compared with its guarantee.

Panels `binomial` (two categories) and `multinomial` (three) have, for a grid of priors, sizes and ε, the exact privacy
loss over all neighbours and outputs, δ at the stated ε, and the neighbours and output that attain the loss.

References
----------
P0: Bun, Farina, Gaboardi & Liu, "Tailoring Differentially Private Bayesian Inference to Distance Between
Distributions" (poster). P1: "Differentially Private Bayesian Inference" (draft).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from mechanisms import MECHANISMS, audit_counts
from mechanisms.audit import ROUNDING
from mechanisms.conjugate import count_candidates
from mechanisms.counts.audit import require_auditable
from mechanisms.counts.registry import validate
from pipeline import Erratum, Factor, Figure, Finding, Measure, Method, Panel, Streams, Study, claim, verdict
from pipeline.declare.factors import format_value

_LARGEST_PROGRAM = 1_000  # (data set, output) pairs; larger linear programs would dominate the run time
_FULL_SHARE = 0.999

Problem = tuple[tuple[float, ...], int, float]


def _simulate(cell: Mapping[str, Any], streams: Streams) -> Problem:
    """Return the prior, the number of records and ε; an audit covers all data sets."""
    return cell["prior"], cell["n"], cell["epsilon"]


def _method(name: str) -> Method:
    def evaluate(problem: Problem, setting: Mapping[str, Any], streams: Streams) -> dict[str, Any]:
        prior, n, epsilon = problem
        found = audit_counts(name, prior, n, epsilon, setting["delta"])
        return {
            "exact_epsilon": found.epsilon,
            "exact_delta": found.deltas[epsilon],
            "worst_dataset": found.witness.dataset,
            "worst_neighbour": found.witness.neighbour,
            "worst_output": found.witness.output,
        }

    return Method(name, evaluate, note=MECHANISMS[name].note, is_private=MECHANISMS[name].is_private)


def _validate(cell: Mapping[str, Any], setting: Mapping[str, Any]) -> bool:
    prior, n, name, k = cell["prior"], cell["n"], setting["mechanism"], len(cell["cell"])
    if cell["cell"] != tuple(range(k)):
        raise ValueError(f"cell must be 0 to k - 1 in order, got {', '.join(map(str, cell['cell']))}")
    if len(prior) != k:
        raise ValueError(f"prior must have {k} entries, one per category, got {len(prior)}")
    if n < 1:
        raise ValueError(f"n must be >= 1, got {n}")
    validate(prior, (n, *(0 for _ in prior[1:])), cell["epsilon"], cell["delta"])
    require_auditable(n, prior)
    try:
        MECHANISMS[name].require(n, k)
    except ValueError:
        return False
    return name != "optimal" or count_candidates(n, k) ** 2 <= _LARGEST_PROGRAM


def _panel(name: str, meaning: str, priors: Sequence[str], sizes: Sequence[int]) -> Panel:
    k = priors[0].count(":") + 1
    return Panel(
        name=name,
        meaning=meaning,
        simulate=_simulate,
        # at k = 2 both definitions of N equal n + 1
        methods=tuple(_method(name) for name in MECHANISMS if k > 2 or name != "smooth-n"),
        measures=(
            Measure("exact_epsilon", "exact privacy loss over all neighbours and outputs", "nat"),
            Measure("exact_delta", "exact delta at the stated epsilon"),
            *(
                Measure(
                    f"worst_{what}", f"counts of the {what} that attains the exact loss", dims=("cell",), dtype="int64"
                )
                for what in ("dataset", "neighbour", "output")
            ),
        ),
        factors=(
            Factor("prior", tuple(priors), "Dirichlet parameters of the prior", "vector"),
            Factor("n", tuple(sizes), "number of records", "int"),
            Factor("epsilon", (0.1, 1.0, 3.0), "stated privacy loss", unit="nat"),
        ),
        outputs=(Factor("cell", tuple(range(k)), "category of the counts", "int"),),
        constants=(Factor("delta", (1e-8,), "probability of a larger privacy loss"),),
        method_dim="mechanism",
        validate=_validate,
    )


_BINOMIAL_PRIORS = ("1:1", "0.5:0.5", "10:10", "5:0.3", "0.01:100")
_BINOMIAL_SIZES = (1, 2, 10, 30, 100, 300, 1000)
_PANELS = (
    _panel("binomial", "exact privacy loss of releases of two counts", _BINOMIAL_PRIORS, _BINOMIAL_SIZES),
    _panel(
        "multinomial",
        "exact privacy loss of releases of three counts",
        ("1:1:1", "0.3:2:5", "0.01:1:100"),
        (2, 5, 10, 20, 30),
    ),
)


# Claims


def _share(summary: xr.Dataset) -> xr.DataArray:
    """Return the ratio of the exact loss to ε; NaN where the mechanism does not apply."""
    return summary["exact_epsilon"] / summary["epsilon"]


def _at(values: xr.DataArray) -> str:
    """Format the prior, n and ε of the largest value."""
    place = values.fillna(-np.inf).argmax(...)
    one = values.isel(place)
    named = {"prior": "prior {}", "n": "n = {}", "epsilon": "epsilon = {}"}
    return ", ".join(text.format(format_value(one[name].item())) for name, text in named.items())


def _counterexample(summary: xr.Dataset, mechanism: str) -> str:
    """Describe the audit with the largest ratio of loss to ε."""
    shares = _share(summary).sel(mechanism=mechanism)
    one = summary.sel(mechanism=mechanism).isel(shares.fillna(-np.inf).argmax(...))
    data, neighbour, output = (one[f"worst_{what}"].values.tolist() for what in ("dataset", "neighbour", "output"))
    return (
        f"{float(one['exact_epsilon'] / one['epsilon']):.4f} epsilon at {_at(shares)}: data sets {data} and "
        f"{neighbour}, output {output}"
    )


def _broken(summary: xr.Dataset, mechanism: str) -> xr.DataArray:
    """Return True where a mechanism violates its guarantee; False everywhere if it has none."""
    one = summary.sel(mechanism=mechanism)
    delta = float(summary["delta"])
    stated = [MECHANISMS[mechanism].guarantee(epsilon, delta) for epsilon in summary["epsilon"].values.tolist()]
    epsilons = summary["epsilon"].copy(data=[np.inf if g is None else g.epsilon for g in stated])
    deltas = summary["epsilon"].copy(data=[0.0 if g is None else g.delta for g in stated])
    return (one["exact_epsilon"] > epsilons + ROUNDING) & ((deltas == 0) | (one["exact_delta"] > deltas))


def _names(summaries: Mapping[str, xr.Dataset], accepts: Any) -> list[str]:
    """Return the names of the stored mechanisms that `accepts` selects."""
    stored = dict.fromkeys(name for summary in summaries.values() for name in summary["mechanism"].values.tolist())
    return [name for name in stored if accepts(name)]


def _shares(summaries: Mapping[str, xr.Dataset], name: str) -> list[xr.DataArray]:
    return [
        _share(summary).sel(mechanism=name) for summary in summaries.values() if name in summary["mechanism"].values
    ]


def _guarantees_hold(summaries: Mapping[str, xr.Dataset]) -> Finding:
    n_audits, breaks, largest = 0, [], []
    for name in _names(summaries, lambda name: MECHANISMS[name].is_private):
        shares = _shares(summaries, name)
        n_audits += sum(int(share.count()) for share in shares)
        largest.append(f"{name} {max(float(share.max()) for share in shares):.3f}")
        for summary in summaries.values():
            if name in summary["mechanism"].values and _broken(summary, name).any():
                breaks.append(f"{name}, with loss {_counterexample(summary, name)}")
    return verdict(
        not breaks,
        f"{n_audits:,} exact audits. "
        + (f"Violated guarantees: {'; '.join(breaks)}. " if breaks else "")
        + f"Largest ratio of loss to epsilon: {', '.join(largest)}.",
    )


def _smooth_is_pure(summaries: Mapping[str, xr.Dataset]) -> Finding:
    one = summaries["binomial"].sel(prior="1:1", n=100, epsilon=1.0, mechanism="smooth")
    loss, delta = float(one["exact_epsilon"]), float(one["exact_delta"])
    numbers = f"The exact loss is {loss:.4f}, with delta {delta:.2g} at epsilon = 1"
    if loss <= 1.0:
        return Finding("corrected", f"{numbers}: it is {loss:.4f}-DP with delta = 0, well within its budget.")
    return verdict(delta <= 1e-8, f"{numbers}.")


def _local_is_not_private(summaries: Mapping[str, xr.Dataset]) -> Finding:
    summary = summaries["binomial"]
    shares = _share(summary).sel(mechanism="local")
    n_broken = int((summary["exact_epsilon"].sel(mechanism="local") > summary["epsilon"] + ROUNDING).sum())
    return verdict(
        n_broken > 0,
        f"The loss exceeds epsilon in {n_broken} of {int(shares.count())} audits. "
        f"The largest loss is {_counterexample(summary, 'local')}.",
    )


def _local_proof(summaries: Mapping[str, xr.Dataset]) -> Finding:
    summary = summaries["binomial"].sel(prior=["1:1"])
    shares = _share(summary).sel(mechanism="local")
    holds = bool((shares.sel(n=[n for n in shares["n"].values if n >= 4]) > 1).all())
    n_above = int((shares > 1).sum())
    return verdict(
        holds,
        f"The loss exceeds epsilon in {n_above} of {int(shares.count())} audits, n = {int(shares['n'].min())} to "
        f"{int(shares['n'].max())}. The largest loss is {_counterexample(summary, 'local')}. A skewed prior is needed "
        "to show that the mechanism is not private.",
    )


def _exact_spend_all(summaries: Mapping[str, xr.Dataset]) -> Finding:
    evidence, holds = [], True
    for name in _names(summaries, lambda name: MECHANISMS[name].calibrate is not None):
        shares = _shares(summaries, name)
        low, high = min(float(share.min()) for share in shares), max(float(share.max()) for share in shares)
        holds &= low >= _FULL_SHARE and not any(
            bool(_broken(summary, name).any()) for summary in summaries.values() if name in summary["mechanism"].values
        )
        evidence.append(f"{name} {low:.6f} to {high:.6f} in {sum(int(share.count()) for share in shares)} audits")
    return verdict(holds, f"Ratio of loss to epsilon: {'; '.join(evidence)}.")


def _bound_leaves_slack(summaries: Mapping[str, xr.Dataset]) -> Finding:
    shares = _shares(summaries, "varying-bound")
    worst = max(shares, key=lambda share: float(share.max()))
    high, low = float(worst.max()), min(float(share.min()) for share in shares)
    ahead = [
        int((share > _share(summary).sel(mechanism="varying") * (1 + 1e-9)).sum())
        for share, summary in zip(shares, summaries.values(), strict=True)
    ]
    return verdict(
        high < 1,
        f"Ratio of loss to epsilon: {low:.3f} to {high:.3f}, largest at {_at(worst)}. The loss of varying-bound "
        f"exceeds that of varying in {sum(ahead)} of {sum(int(share.count()) for share in shares)} audits.",
    )


_LOCAL_NEEDS: dict[str, dict[str, tuple[Any, ...]]] = {
    "binomial": {
        "prior": ("1:1", "0.01:100"),
        "n": _BINOMIAL_SIZES,
        "epsilon": (0.1, 1.0, 3.0),
        "mechanism": ("local",),
    }
}
_CLAIMS = (
    claim(
        "guarantees-hold",
        "The exact privacy loss of every private mechanism is within its stated guarantee.",
        kind="self-check",
        needs={},
    )(_guarantees_hold),
    claim(
        "smooth-at-the-published-setting",
        "The exponential mechanism with smooth sensitivity is (1, 1e-8)-DP for the prior Beta(1, 1) and n = 100.",
        paper="P0",
        place="Mechanism",
        needs={
            "binomial": {"prior": ("1:1",), "n": (100,), "epsilon": (1.0,), "delta": (1e-8,), "mechanism": ("smooth",)}
        },
        erratum=Erratum(
            "With smooth sensitivity the exponential mechanism is (ε, δ)-DP at the published setting, and no better.",
            "It is pure DP at about half of ε. Calibrated by its exact audit, it is pure DP and spends all of ε.",
        ),
    )(_smooth_is_pure),
    claim(
        "local-is-not-private",
        "The exponential mechanism with local sensitivity is not epsilon-DP.",
        paper="P1",
        place="section 1.2.2",
        needs=_LOCAL_NEEDS,
    )(_local_is_not_private),
    claim(
        "local-proof",
        "The loss of the exponential mechanism with local sensitivity exceeds epsilon at neighbours x, y with "
        "LS(y) = H(x, y) < LS(x), which exist for the prior Beta(1, 1) and n >= 4.",
        paper="P1",
        place="proof in section 1.2.2, with the prior of section 2.1",
        needs=_LOCAL_NEEDS,
        erratum=Erratum(
            "The proof that local sensitivity is not private uses Beta(1, 1).",
            "With Beta(1, 1) the exact loss stays below ε; a skewed prior gives a counterexample.",
            place="section 1.2.2",
        ),
    )(_local_proof),
    claim(
        "calibrated-spend-all",
        "The exact privacy loss of the exactly calibrated mechanisms equals epsilon and never exceeds it.",
        kind="self-check",
        needs={},
    )(_exact_spend_all),
    claim(
        "bound-leaves-slack",
        "The loss of varying-bound, which is calibrated by a proved bound, is strictly below epsilon.",
        kind="self-check",
        needs={panel.name: {"mechanism": ("varying-bound", "varying")} for panel in _PANELS},
    )(_bound_leaves_slack),
)


def _draw(panel: str) -> Any:
    def draw(summaries: Mapping[str, xr.Dataset]) -> Any:
        from studies.figures import draw_shares

        share = _share(summaries[panel]).max("epsilon").assign_attrs(long_name="exact loss / ε", units="1")
        ds = summaries[panel].assign(share=share)
        return draw_shares(ds, "n", "share", "prior", "mechanism")

    return draw


_CAPTION = (
    "Ratio of the exact privacy loss to the stated epsilon against the number of records, for each mechanism and "
    "prior; maximum over the stored values of epsilon. The line at 1 is the guarantee. Crosses in the hatched band "
    "above it mark violations, and the number is the largest ratio."
)

STUDY = Study(
    name="privacy-audit",
    papers=("P0", "P1"),
    title="Exact privacy loss of mechanisms and their guarantees",
    aim=(
        "Compute the exact privacy loss of every mechanism that releases counts, compare it with the guarantee, and "
        "show that the audit detects a mechanism that is not private."
    ),
    panels=_PANELS,
    seed=20_180_804,
    claims=_CLAIMS,
    figures=tuple(
        Figure(f"audit-{panel.name}", f"Ratio of loss to epsilon, {k} categories", _CAPTION, (panel.name,), draw)
        for panel, k, draw in zip(_PANELS, ("two", "three"), map(_draw, ("binomial", "multinomial")), strict=True)
    ),
)
