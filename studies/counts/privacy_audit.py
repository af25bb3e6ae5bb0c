"""Exact privacy loss of every mechanism that releases counts, compared with its guarantee.

Panels `binomial` (two categories) and `multinomial` (three) contain, for a grid of priors, sizes and ε, the exact
privacy loss over all neighbours and outputs, δ at the stated ε, and the neighbours and output that attain the loss.
Panel `relations` contains the losses of sums and counts under replacement, and under addition and removal of a record;
the noise added to a sum is calibrated to its sensitivity under the audited relation.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from mechanisms import FAMILIES, MECHANISMS, Mechanism, audit_counts, audit_sums, calibrated_noise
from mechanisms.audit.counts import require_auditable
from mechanisms.core.conjugate import count_candidates
from mechanisms.core.privacy import RELATIONS
from mechanisms.counts.mechanism import validate
from mechanisms.inference.families import Bounds, Family
from pipeline import Factor, Figure, Measure, Method, Panel, Scale, Streams, Study
from pipeline.errors import unknown
from studies.counts.page_tables import audited_releases
from studies.counts.privacy_audit_claims import BINOMIAL_SIZES, CLAIMS, spent
from studies.counts.problems import DELTA, cells, flat_prior, require_cells, require_size
from studies.figures import shares
from studies.panels import Values, given, method_of, require

_LARGEST_PROGRAM = 1_000  # number of (data set, output) pairs; larger linear programs would dominate the run time
_LARGEST_SUM = 30_000  # number of vectors of noisy counts per data set


_audit = lru_cache(maxsize=1_000)(audit_counts)


def _evaluate(mechanism: Mechanism, cell: Values, setting: Values, streams: Streams) -> dict[str, Any]:
    prior, n, epsilon = cell["prior"], cell["n"], cell["epsilon"]
    if not mechanism.uses_prior:
        prior = (1.0,) * len(prior)  # so that cells with different priors share one audit
    audit = _audit(mechanism, prior, n, epsilon, setting["delta"])
    return {
        "exact_epsilon": audit.epsilon,
        "exact_delta": audit.deltas[epsilon],
        "worst_dataset": audit.witness.dataset,
        "worst_neighbour": audit.witness.neighbour,
        "worst_output": audit.witness.output,
    }


def _validate(cell: Values, setting: Values) -> bool:
    prior, n, name, k = cell["prior"], cell["n"], setting["mechanism"], len(cell["cell"])
    require_cells(cell["cell"], k)
    require_size(n, prior, k)
    validate(prior, (n, *(0 for _ in prior[1:])), cell["epsilon"], cell["delta"])
    require_auditable(n, prior)
    mechanism = MECHANISMS[name]
    if mechanism.evaluation == "vectors" and (n + 1) ** k > _LARGEST_SUM:
        return False
    if mechanism.evaluation == "program" and count_candidates(n, k) ** 2 > _LARGEST_PROGRAM:
        return False
    return mechanism.supports(n, k)


def _panel(name: str, meaning: str, k: int, priors: Sequence[str], sizes: Sequence[int]) -> Panel:
    return Panel(
        name=name,
        meaning=meaning,
        simulate=given,  # an audit covers all data sets
        # In version 1, mechanisms that do not use the prior were audited at the prior of the cell.
        methods=tuple(
            method_of(mechanism, _evaluate, version=1 if mechanism.uses_prior else 2)
            for mechanism in MECHANISMS.values()
            if k >= mechanism.min_categories
        ),
        measures=(
            Measure("exact_epsilon", "exact privacy loss over all neighbours and outputs", "nat"),
            Measure("exact_delta", "exact delta at the stated epsilon"),
            *(
                Measure(
                    f"worst_{kind}", f"counts of the {kind} that attains the exact loss", dims=("cell",), dtype="int64"
                )
                for kind in ("dataset", "neighbour", "output")
            ),
        ),
        factors=(
            Factor("prior", tuple(priors), "Dirichlet parameters of the prior", "vector"),
            Factor("n", tuple(sizes), "number of records", "int"),
            Factor("epsilon", (0.1, 1.0, 3.0), "stated privacy loss", unit="nat"),
        ),
        outputs=(cells(k),),
        constants=(DELTA,),
        method_dim="mechanism",
        validate=_validate,
    )


_BINOMIAL_PRIORS = ("1:1", "0.5:0.5", "10:10", "5:0.3", "0.01:100")
_PANELS = (
    _panel("binomial", "exact privacy loss of releases of two counts", 2, _BINOMIAL_PRIORS, BINOMIAL_SIZES),
    _panel(
        "multinomial", "exact privacy loss of releases of three counts", 3, ("1:1:1", "0.3:2:5", "0.01:1:100"),
        (2, 5, 10, 20, 30)),
)  # fmt: skip


# Both neighbouring relations: sums over all data sets, and counts over data sets with a few records


def _noise(family: Family, cell: Values) -> tuple[float, Bounds | None]:
    """Return the noise scale of a sum for the neighbouring relation of the cell, and the public bounds."""
    bounds = cell["bounds"] if family.is_truncated else None
    sensitivity = family.sensitivity(bounds, RELATIONS[cell["relation"]])
    return calibrated_noise("laplace", sensitivity, cell["epsilon"]).scale, bounds


def _sums(family: Family) -> Method:
    def evaluate(cell: Values, setting: Values, streams: Streams) -> dict[str, Any]:
        return {"exact_epsilon": audit_sums(family, *_noise(family, cell), RELATIONS[cell["relation"]]).epsilon}

    return Method(family.name, evaluate, note=f"Sum of {family.name} records with Laplace noise.")


def _audit_relation(mechanism: Mechanism, cell: Values, setting: Values, streams: Streams) -> dict[str, Any]:
    prior, n, epsilon, delta = (cell[name] for name in ("prior", "n_records", "epsilon", "delta"))
    audit = audit_counts(mechanism, prior, n, epsilon, delta, relation=RELATIONS[cell["relation"]])
    return {"exact_epsilon": audit.epsilon}


def _validate_relation(cell: Values, setting: Values) -> bool:
    prior, n, name = cell["prior"], cell["n_records"], setting["mechanism"]
    if cell["relation"] not in RELATIONS:
        raise ValueError(unknown("relation", cell["relation"], RELATIONS))
    require(n >= 1, "n_records must be >= 1", n)
    if name in FAMILIES:
        _noise(FAMILIES[name], cell)
    else:
        MECHANISMS[name].validate(prior, (n + 1, *(0 for _ in prior[1:])), cell["epsilon"], cell["delta"])
        require_auditable(n + 1, prior)
    return True


_RELATIONS = Panel(
    name="relations",
    meaning="exact privacy loss of sums and counts under both neighbouring relations",
    simulate=given,
    methods=(
        *map(_sums, FAMILIES.values()),
        *(method_of(mechanism, _audit_relation) for mechanism in MECHANISMS.values()),
    ),
    measures=(Measure("exact_epsilon", "exact privacy loss over all neighbours and outputs", "nat"),),
    factors=(
        Factor("relation", tuple(RELATIONS), "neighbouring relation", "str"),
        Factor("epsilon", (1.0,), "stated privacy loss", unit="nat"),
    ),
    constants=(
        DELTA,
        replace(flat_prior(3), meaning="Dirichlet parameters of the prior of counts"),
        Factor("n_records", (3,), "number of records of counts, and one more under addition", "int"),
        Factor("bounds", ((1.0, 3.0),), "public bounds of unbounded records", "vector"),
    ),
    method_dim="mechanism",
    validate=_validate_relation,
)

_CAPTION = (
    "Ratio of the exact privacy loss to the stated epsilon against the number of records, for each mechanism and "
    "prior; maximum over the stored values of epsilon. If an (epsilon, delta)-DP mechanism has a larger loss, the "
    "ratio is that of its exact delta to the stated one. The line at 1 is the guarantee. Crosses in the shaded band "
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
    panels=(*_PANELS, _RELATIONS),
    seed=20_180_804,
    claims=CLAIMS,
    figures=tuple(
        Figure(
            f"audit-{name}",
            f"Ratio of loss to epsilon, {k} categories",
            _CAPTION,
            (name,),
            shares(name, "n", "prior", "mechanism", lambda ds: spent(ds).max("epsilon"), "exact loss / ε", "prior {}"),
        )
        for name, k in (("binomial", "two"), ("multinomial", "three"))
    ),
    quick=Scale(
        values={
            "prior": {"binomial": ("1:1", "0.01:100")},
            "n": {"multinomial": (2, 10)},
            "epsilon": {"multinomial": (1.0,)},
            "mechanism": {
                "binomial": ("smooth", "varying", "local", "smooth-exact", "varying-bound", "laplace", "geometric")
            },
        }
    ),
    audits=(audited_releases,),
)
