"""Exact Rényi divergences of posterior sampling, computed by closed forms, enumeration and quadrature.

Panels are `logistic` (divergences of samplers for logistic regression relative to their guarantees), `tightness` (data
sets that approach the bound of Theorem 16), `links` (other link functions), `ops` (one draw of weights restricted to a
ball, or unrestricted) and `dirichlet` (samplers for exponential families).

References
----------
Wang, Fienberg & Smola, "Privacy for free: posterior sampling and stochastic gradient Monte Carlo", ICML 2015.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from mechanisms import (
    GAUSSIAN_MECHANISMS,
    LINKS,
    RENYI_SAMPLERS,
    audit_distributions,
    audit_replacements,
    calibrate_renyi,
    gaussian_mechanism,
    glm_mechanism,
)
from mechanisms.audit.densities import audit_densities, audit_sampling, beta_distributions, gaussian_distributions
from mechanisms.audit.replacements import critical_order, replacement_distributions
from mechanisms.core.conjugate import count_candidates
from mechanisms.draws.glm_mechanisms import GlmMechanism
from mechanisms.draws.tempered import renyi_sampler
from mechanisms.draws.worst_case import candidate_records, limiting_case, shared_records
from pipeline import Factor, Measure, Method, Panel, Scale, Streams, Study
from studies.panels import Values, given, require
from studies.renyi.page_tables import audited_draws
from studies.renyi.renyi_audit_claims import CLAIMS
from studies.renyi.renyi_figures import AUDITS

_CALIBRATED = ("glm-concentrated", "glm-diffused")
_LARGEST_ENUMERATION = 20_000  # largest number of data sets that are enumerated
_MOST_RECORDS = 1e15
# values of −x·w at the mode for the candidate records x
_PREDICTORS = (0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 40.0)


def _distribution(
    precision: float, power: float = 1.0, radius: float = math.inf, link: str = "logistic"
) -> GlmMechanism:
    """Return the distribution of weights, for records of norm at most 1; it has no guarantee."""
    return GlmMechanism("distribution", precision, power, radius, LINKS[link], 1.0, None)


def _largest(
    mechanism: GlmMechanism, n: int, candidates: np.ndarray, orders: Sequence[float]
) -> tuple[dict[float, float], float]:
    """Return the largest divergence for each order, and the largest loss, over all pairs of candidates."""
    several = shared_records(mechanism, n, candidates.shape[1] - 1).values()
    audits = [audit_replacements(mechanism, candidates, shared, orders) for shared in several]
    divergences = {order: max(audit.renyi[order] for audit in audits) for order in orders}
    return divergences, max(audit.epsilon for audit in audits)


def _records(cell: Values) -> int:
    """Return the number of records of a cell, in panel `tightness` the one that gives its precision."""
    if "n" in cell:
        return int(cell["n"])
    beta, precision = cell["beta"], cell["precision"]
    require(beta > 0, "beta must be a finite number > 0", beta, "choose a precision of the prior over n, such as 0.1")
    requirement = f"beta must be at least precision / {_MOST_RECORDS:g}, so that the number of records is finite"
    require(precision / beta <= _MOST_RECORDS, requirement, beta, "increase beta")
    return max(1, round(precision / beta))


def _validate(cell: Values, setting: Values) -> bool:
    """Raise ValueError for values that no panel for regression has; methods of `logistic` have their own order."""
    dimension, precision, power = cell.get("dimension", 1), cell.get("precision", 1.0), cell.get("power", 1.0)
    advice = "in higher dimensions, quadrature takes too long"
    require(dimension in (1, 2), "dimension must be 1 or 2", dimension, advice)
    require(0 < power <= 1, "power must be in (0, 1]", power, "use 1 for the posterior itself")
    require(precision > 0, "precision must be > 0", precision, "set it to n·beta")
    orders, name = (cell["order"], "true-posterior") if "order" in cell else ([setting["order"]], setting["mechanism"])
    for order in orders:
        glm_mechanism(name, _records(cell), cell.get("beta", precision), order, setting.get("epsilon", 1.0))
    for reach in cell.get("reach", ()):
        advice = "choose a half width in this interval, such as 10"
        require(0 < reach <= 100, "reach must be in (0, 100]", reach, advice)
    return True


def _candidates(mechanism: GlmMechanism, n: int, dimension: int) -> np.ndarray:
    """Return records that cover the allowed range, and records that attain the largest divergence in the limit."""
    case = limiting_case(mechanism.precision / n, dimension, power=mechanism.power)
    spread = candidate_records(1.0, dimension, 13 if dimension == 1 else 12, shares=(1.0,))
    return np.concatenate([spread, case.candidates])


def _spend(cell: Values, setting: Values, streams: Streams, *, name: str) -> dict[str, Any]:
    order = setting["order"]
    mechanism = glm_mechanism(name, cell["n"], cell["beta"], order, setting.get("epsilon", 1.0))
    orders = sorted({1.0, order, 2.0 * order})
    divergences, _ = _largest(mechanism, cell["n"], _candidates(mechanism, cell["n"], cell["dimension"]), orders)
    return {
        "renyi_epsilon": divergences[order],
        "stated_epsilon": mechanism.renyi_epsilon(order),
        "curve_share": max(divergences[other] / mechanism.renyi_epsilon(other) for other in orders),
    }


_LOGISTIC = Panel(
    name="logistic",
    meaning="largest divergence over replacements of one record, logistic regression",
    simulate=given,
    methods=(
        *(Method(name, partial(_spend, name=name), ("order", "epsilon")) for name in _CALIBRATED),
        Method("true-posterior", partial(_spend, name="true-posterior"), ("order",), note="Bounded by Theorem 16."),
    ),
    measures=(
        Measure("renyi_epsilon", "largest divergence found", "nat"),
        Measure("stated_epsilon", "stated or proved bound", "nat"),
        Measure("curve_share", "largest ratio of divergence to bound at the orders 1, λ and 2λ"),
    ),
    factors=(
        Factor("dimension", (1, 2), "dimension of a record", "int"),
        Factor("n", (1_000, 30_000), "number of records", "int"),
        Factor("beta", (0.001, 0.1), "precision of the prior over n"),
    ),
    method_factors=(
        Factor("order", (1.0, 2.0, 10.0), "order of the Rényi divergence"),
        Factor("epsilon", (0.1, 1.0), "target divergence at the order", unit="nat"),
    ),
    method_dim="mechanism",
    validate=_validate,
)


def _approach(cell: Values, setting: Values, streams: Streams) -> dict[str, Any]:
    dimension, precision, orders = cell["dimension"], cell["precision"], cell["order"]
    n = _records(cell)
    case = limiting_case(cell["beta"], dimension)
    candidates = [case.candidates]
    if dimension == 1:
        candidates.append(candidate_records(1.0, 1, 21))
    else:  # at finite n and large orders the worst-case angles differ from the limit
        cosines = np.array([u / case.mode for u in _PREDICTORS if u < case.mode])
        sines = np.sqrt(1 - cosines**2)
        candidates += [np.column_stack([-cosines, sign * sines, np.ones(cosines.size)]) for sign in (1, -1)]
    shared = [[*case.shared, n - 1]] if n > 1 else None
    audit = audit_replacements(_distribution(precision), np.concatenate(candidates), shared, orders)
    return {
        "share": np.array([audit.renyi[order] * precision / (2 * order) for order in orders]),
        "limiting_share": case.share,
        "n_records": n,
    }


_TIGHTNESS = Panel(
    name="tightness",
    meaning="largest ratio of divergence to the bound of Theorem 16, for worst-case data",
    simulate=given,
    methods=(Method("true-posterior", _approach),),
    measures=(
        Measure("share", "ratio of divergence to the bound of Theorem 16", dims=("order",)),
        Measure("limiting_share", "limit of the ratio for large n and n·beta"),
        Measure("n_records", "number of records, precision / beta", dtype="int64"),
    ),
    factors=(
        Factor("dimension", (1, 2), "dimension of a record", "int"),
        Factor("precision", (1.0, 10.0, 100.0), "precision of the prior, n·beta"),
        Factor("beta", (1.0, 0.1, 0.01, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7), "precision of the prior over n"),
    ),
    outputs=(Factor("order", (1.0, 2.0, 10.0), "order of the Rényi divergence"),),
    method_dim=None,
    validate=_validate,
)


def _diverge(cell: Values, setting: Values, streams: Streams, *, link: str) -> dict[str, Any]:
    n, orders = cell["n"], cell["order"]
    mechanism = _distribution(cell["precision"], link=link)
    candidates = candidate_records(1.0, 1, 5, labels=(0, 1))
    limit = critical_order(mechanism)
    finite = [order for order in orders if order < limit or order == 1]
    settled = _largest(mechanism, n, candidates, finite)[0] if finite else {}
    boxed = np.zeros((len(orders), len(cell["reach"])))
    for shared in shared_records(mechanism, n, 1).values():
        for k, reach in enumerate(cell["reach"]):
            audit = audit_distributions(
                replacement_distributions(mechanism, candidates, shared, reach=reach), orders=orders
            )
            boxed[:, k] = np.maximum(boxed[:, k], [audit.renyi[order] for order in orders])
    return {
        "renyi_epsilon": np.array([settled.get(order, math.inf) for order in orders]),
        "divergence_on_box": boxed,
        "bound": np.array([2 * order / cell["precision"] for order in orders]),
        "critical_order": limit,
    }


_LINKS = Panel(
    name="links",
    meaning="largest divergence over replacements of one record in one dimension, for each link",
    simulate=given,
    methods=tuple(
        Method(
            link,
            partial(_diverge, link=link),
            note="" if LINKS[link].canonical else "Not private: P3's bound does not hold for this link.",
            is_private=LINKS[link].canonical,
        )
        for link in LINKS
    ),
    measures=(
        Measure("renyi_epsilon", "largest divergence found; infinite above critical_order", "nat", ("order",)),
        Measure("divergence_on_box", "largest divergence for weights in [−reach, reach]", "nat", ("order", "reach")),
        Measure("bound", "bound of Theorem 16", "nat", ("order",)),
        Measure("critical_order", "order above which divergences are infinite"),
    ),
    factors=(Factor("n", (1, 100, 1_000), "number of records", "int"),),
    outputs=(
        Factor("order", (1.0, 1.5, 1.9, 1.99, 2.0, 3.0, 5.0), "order of the Rényi divergence"),
        Factor("reach", (10.0, 20.0, 40.0, 80.0), "half width of the interval of weights"),
    ),
    constants=(Factor("precision", (1.0,), "precision of the prior, n·beta"),),
    method_dim="link",
    validate=_validate,
)


def _on_ball(cell: Values, setting: Values, streams: Streams, *, ball: bool) -> dict[str, Any]:
    n, beta, power, orders = cell["n"], cell["beta"], cell["power"], cell["order"]
    mechanism = _distribution(n * beta, power, 1 / beta if ball else math.inf)
    divergences, loss = _largest(mechanism, n, candidate_records(1.0, 1, 9), orders)
    return {
        "renyi_epsilon": np.array([divergences[order] for order in orders]),
        "stated_epsilon": np.array([mechanism.renyi_epsilon(order) for order in orders]),
        "pure_loss": loss,
    }


_OPS = Panel(
    name="ops",
    meaning="largest privacy loss over replacements of one record in one dimension, on a ball and on the real line",
    simulate=given,
    methods=(
        Method("ops", partial(_on_ball, ball=True), note="Weights in the ball of radius 1/beta."),
        Method("glm-diffused", partial(_on_ball, ball=False), note="The pure loss is infinite."),
    ),
    measures=(
        Measure("renyi_epsilon", "largest divergence found", "nat", ("order",)),
        Measure("stated_epsilon", "proved bound", "nat", ("order",)),
        Measure("pure_loss", "largest pure privacy loss found", "nat"),
    ),
    factors=(
        Factor("n", (1, 10, 100, 1_000), "number of records", "int"),
        Factor("beta", (0.001, 0.1, 1.0, 10.0, 100.0), "precision of the prior over n"),
        Factor("power", (1.0, 0.1), "power of the likelihood"),
    ),
    outputs=(Factor("order", (1.0, 2.0, 10.0), "order of the Rényi divergence"),),
    method_dim="mechanism",
    validate=_validate,
)


def _sampler(cell: Values, setting: Values, streams: Streams, *, name: str) -> dict[str, Any]:
    prior, n, order = cell["prior"], cell["n"], setting["order"]
    if RENYI_SAMPLERS[name].is_tunable:
        mechanism = calibrate_renyi(name, prior, n, order, setting["epsilon"])
    else:
        mechanism = renyi_sampler(name, prior, n, 1.0)
    enumerated = audit_sampling(mechanism, [order]).renyi[order]
    quadrature = math.nan
    if len(prior) == 2:
        quadrature = math.inf
        if math.isfinite(enumerated):
            datasets = np.column_stack([np.arange(n + 1), n - np.arange(n + 1)])
            pairs = np.column_stack([np.arange(n), np.arange(1, n + 1)])
            distributions = beta_distributions(mechanism.posterior(datasets), pairs, order)
            quadrature = audit_densities(distributions, [order]).renyi[order]
    return {
        "stated_epsilon": mechanism.renyi_epsilon(order),
        "enumerated_epsilon": enumerated,
        "quadrature_epsilon": quadrature,
    }


def _noise(cell: Values, setting: Values, streams: Streams, *, name: str) -> dict[str, Any]:
    order = setting["order"]
    mechanism = gaussian_mechanism(name, cell["prior"], cell["n"], order, setting["epsilon"])  # of two categories
    return {
        "stated_epsilon": mechanism.renyi_epsilon(order),
        "enumerated_epsilon": math.nan,
        "quadrature_epsilon": audit_densities(gaussian_distributions(mechanism), [order]).renyi[order],
    }


def _validate_dirichlet(cell: Values, setting: Values) -> bool:
    prior, n, name = cell["prior"], cell["n"], setting["mechanism"]
    renyi_sampler("direct", prior, n, 1.0)
    requirement = f"n must give at most {_LARGEST_ENUMERATION:,} data sets to enumerate"
    require(count_candidates(n, len(prior)) <= _LARGEST_ENUMERATION, requirement, n, "reduce n")
    if name in GAUSSIAN_MECHANISMS:
        gaussian_mechanism(name, prior, n, setting["order"], setting["epsilon"])
        return len(prior) == 2
    if RENYI_SAMPLERS[name].is_tunable:
        calibrate_renyi(name, prior, n, setting["order"], setting["epsilon"])
    return True


_DIRICHLET = Panel(
    name="dirichlet",
    meaning="largest divergence over all neighbours, Dirichlet–categorical model",
    simulate=given,
    methods=(
        *(
            Method(name, partial(_sampler, name=name), ("order", "epsilon") if method.is_tunable else ("order",))
            for name, method in RENYI_SAMPLERS.items()
        ),
        *(Method(name, partial(_noise, name=name), ("order", "epsilon")) for name in GAUSSIAN_MECHANISMS),
    ),
    measures=(
        Measure("stated_epsilon", "stated divergence", "nat"),
        Measure("enumerated_epsilon", "largest divergence in closed form", "nat", ragged=True),
        Measure("quadrature_epsilon", "largest divergence by quadrature, two categories", "nat", ragged=True),
    ),
    factors=(
        Factor("prior", ((6.0, 12.0), (0.5, 2.0), (1.0, 2.0, 3.0)), "Dirichlet parameters of the prior", "vector"),
        Factor("n", (1, 5, 30), "number of records", "int"),
    ),
    method_factors=(
        Factor("order", (1.0, 2.0, 5.0), "order of the Rényi divergence"),
        Factor("epsilon", (0.1, 1.0), "target divergence at the order", unit="nat"),
    ),
    method_dim="mechanism",
    validate=_validate_dirichlet,
)

STUDY = Study(
    name="renyi-audit",
    papers=("P3",),
    title="Exact Rényi divergences of posterior sampling and their guarantees",
    aim=(
        "Compare the Rényi divergence of every sampler of P3 with its guarantee, over all neighbours or over "
        "worst-case data, and determine where the theorems are tight, where they fail, and where they are loose."
    ),
    panels=(_LOGISTIC, _TIGHTNESS, _LINKS, _OPS, _DIRICHLET),
    seed=20_171_204,
    version=2,
    claims=CLAIMS,
    figures=AUDITS,
    quick=Scale(
        values={
            "precision": {"tightness": (1.0,)},
            "beta": {"logistic": (1e-3,), "tightness": (1e-3, 1e-6), "ops": (1e-3, 10.0)},
            "epsilon": dict.fromkeys(("logistic", "dirichlet"), (1.0,)),
            "n": {"logistic": (1_000,), "links": (1,)},
            "order": dict.fromkeys(("logistic", "tightness", "ops", "dirichlet"), (1.0, 2.0)),
        }
    ),
    audits=(audited_draws,),
)
