"""Panel `relations` of `privacy-audit`: exact privacy losses under both neighbouring relations, and their claim.

Sums with Laplace noise are audited over all data sets, and releases of counts over data sets with a few records. The
noise added to a sum is calibrated to its sensitivity under the audited relation.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from mechanisms import FAMILIES, MECHANISMS, Mechanism, audit_counts, audit_sums, calibrated_noise
from mechanisms.audit import exceeds
from mechanisms.counts.audit import require_auditable
from mechanisms.inference.family import Bounds, Family
from mechanisms.privacy import RELATIONS
from pipeline import Factor, Finding, Measure, Method, Panel, Streams, claim, claims_in, verdict
from pipeline.errors import unknown
from studies.claims import Stored, Summaries, span


def stated_audits(summaries: Summaries) -> Summaries:
    """Return the panels in which only the neighbouring relation of the stated guarantee is audited."""
    return {panel: summary for panel, summary in summaries.items() if "relation" not in summary.dims}


def _cell(cell: Mapping[str, Any], streams: Streams) -> Mapping[str, Any]:
    """Return the cell; nothing is simulated, because an audit covers all data sets."""
    return cell


def _noise(family: Family, cell: Mapping[str, Any]) -> tuple[float, Bounds | None]:
    """Return the noise scale of a sum for the neighbouring relation of the cell, and the public bounds."""
    bounds = cell["bounds"] if family.is_truncated else None
    sensitivity = family.sensitivity(bounds, RELATIONS[cell["relation"]])
    return calibrated_noise("laplace", sensitivity, cell["epsilon"]).scale, bounds


def _sums(family: Family) -> Method:
    def evaluate(cell: Mapping[str, Any], setting: Mapping[str, Any], streams: Streams) -> dict[str, Any]:
        return {"exact_epsilon": audit_sums(family, *_noise(family, cell), RELATIONS[cell["relation"]]).epsilon}

    return Method(family.name, evaluate, note=f"Sum of {family.name} records with Laplace noise.")


def _counts(mechanism: Mechanism) -> Method:
    def evaluate(cell: Mapping[str, Any], setting: Mapping[str, Any], streams: Streams) -> dict[str, Any]:
        prior, n, epsilon, delta = (cell[name] for name in ("prior", "n_records", "epsilon", "delta"))
        found = audit_counts(mechanism, prior, n, epsilon, delta, relation=RELATIONS[cell["relation"]])
        return {"exact_epsilon": found.epsilon}

    return Method(mechanism.name, evaluate, note=mechanism.note, is_private=mechanism.is_private)


def _validate(cell: Mapping[str, Any], setting: Mapping[str, Any]) -> bool:
    prior, n, name = cell["prior"], cell["n_records"], setting["mechanism"]
    if cell["relation"] not in RELATIONS:
        raise ValueError(unknown("relation", cell["relation"], RELATIONS))
    if n < 1:
        raise ValueError(f"n_records must be >= 1, got {n}")
    if name in FAMILIES:
        _noise(FAMILIES[name], cell)
    else:
        MECHANISMS[name].validate(prior, (n + 1, *(0 for _ in prior[1:])), cell["epsilon"], cell["delta"])
        require_auditable(n + 1, prior)
    return True


RELATIONS_PANEL = Panel(
    name="relations",
    meaning="exact privacy loss of sums and counts under both neighbouring relations",
    simulate=_cell,
    methods=(*map(_sums, FAMILIES.values()), *map(_counts, MECHANISMS.values())),
    measures=(Measure("exact_epsilon", "exact privacy loss over all neighbours and outputs", "nat"),),
    factors=(
        Factor("relation", tuple(RELATIONS), "neighbouring relation", "str"),
        Factor("epsilon", (1.0,), "stated privacy loss", unit="nat"),
    ),
    constants=(
        Factor("delta", (1e-8,), "probability of a larger privacy loss"),
        Factor("prior", ((1.0,) * 3,), "Dirichlet parameters of the prior of counts", "vector"),
        Factor("n_records", (3,), "number of records of counts, and one more under addition", "int"),
        Factor("bounds", ((1.0, 3.0),), "public bounds of unbounded records", "vector"),
    ),
    method_dim="mechanism",
    validate=_validate,
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


RELATION_CLAIMS = claims_in(globals())
