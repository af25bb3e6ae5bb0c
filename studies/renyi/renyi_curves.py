"""Rényi privacy curves of posterior sampling (P3, Figure 1).

Panels `diffused` and `concentrated` contain the exact curve of one draw for several coefficients (a coefficient of 1
gives the posterior itself) and the smallest order at which the curve is infinite. The curve is compared with the
supremum of P3, which includes pairs of distributions that are not both posteriors of data sets.

The panel `dirichlet-bounds` compares the exact values with two bounds for the Dirichlet mechanism, which is the same
draw. Let a be the smallest parameter of a posterior, and r the change of parameters if a record is replaced. By
Taylor's theorem, as two parameters change by r, D_λ ≤ λr²·ψ₁(a − (λ−1)r) for λ < 1 + a/r, where ψ₁ is the trigamma
function. This is Ponnoprat's bound, which he states for a = α + 4(λ−1)r. Gohari et al. bound the loss where all
probabilities are at least γ by the change of the log normaliser plus r·ln((1−γ)/γ), and set δ to the probability of the
rest.

References
----------
Ponnoprat, "Dirichlet mechanism for differentially private KL divergence minimization", TMLR 2022. Gohari, Wu, Hale &
Topcu, "The Dirichlet mechanism for differential privacy on the unit simplex", ACC 2020.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from scipy import integrate, special, stats
from scipy.optimize import brentq
from scipy.special import betainc, betaincc, betaln, expit, polygamma

from mechanisms.draws.dirichlet_divergence import dirichlet_renyi
from mechanisms.draws.tempered import RenyiSampling, renyi_sampler
from pipeline import Erratum, Factor, Figure, Finding, Measure, Method, Panel, Streams, Study, claim, claims_in, verdict
from pipeline.declare.factors import format_value
from studies.claims import Look, correct, in_panels, joined, largest, p3, place, span, vector
from studies.panels import Values, require
from studies.renyi.ranges import require_in_range
from studies.renyi.renyi_figures import CURVES, DIRICHLET_BOUNDS

_COEFFICIENTS = (0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
_ORDERS = (1.0, *(round(1 + 0.05 * step, 2) for step in range(1, 381)))
_NAMES = ("diffused", "concentrated")
_DELTA = 1e-6


def _sampler(cell: Values, streams: Streams, *, name: str) -> RenyiSampling:
    """Return the mechanism, whose curve does not depend on the data."""
    return renyi_sampler(name, cell["prior"], cell["n"], cell["coefficient"])


def _corner_epsilons(mechanism: RenyiSampling, orders: np.ndarray) -> np.ndarray:
    """Return the supremum of P3 (Corollary 2): P has all records in one category, and Q differs by one record."""
    ends = mechanism.start + mechanism.step * mechanism.n * np.eye(2)
    moved = [end + mechanism.step * np.array(move) for end in ends for move in ((1, -1), (-1, 1))]
    if np.min(moved) <= 0:
        return np.full(orders.size, np.inf)  # numbers ≤ 0 are not parameters of a distribution
    return dirichlet_renyi(np.repeat(ends, 2, axis=0)[:, None], np.array(moved)[:, None], orders).max(axis=0)


def _evaluate(mechanism: RenyiSampling, setting: Values, streams: Streams) -> dict[str, Any]:
    orders = setting["order"]
    return {
        "renyi_epsilon": [mechanism.renyi_epsilon(order) for order in orders],
        "corner_epsilon": _corner_epsilons(mechanism, np.array(orders)),
        "critical_order": mechanism.critical_order,
    }


def _bounds(mechanism: RenyiSampling, setting: Values, streams: Streams) -> dict[str, Any]:
    """Return exact losses and published bounds, for two categories."""
    orders, r, least = np.array(setting["order"]), mechanism.step, float(mechanism.start.min())
    room = least - (orders - 1.0) * r
    curved = np.where(room > 0, orders * r**2 * polygamma(1, np.where(room > 0, room, 1.0)), np.inf)
    successes = np.arange(mechanism.n + 1)
    p = mechanism.start + r * np.column_stack([successes, mechanism.n - successes])
    normalisers = np.abs(np.diff(betaln(*p.T)))
    return {
        "renyi_epsilon": [mechanism.renyi_epsilon(order) for order in setting["order"]],
        "ponnoprat_epsilon": curved,
        "exact_epsilon": _exact_epsilon(p, r),
        "gohari_epsilon": float(normalisers.max()) + r * _log_odds(p),
    }


def _log_odds(p: np.ndarray) -> float:
    """Return t for which |ln(x/(1 − x))| ≤ t except with probability δ, for draws from all Beta distributions."""

    def excess(t: float) -> float:
        return float((betainc(*p.T, expit(-t)) + betaincc(*p.T, expit(t))).max()) - _DELTA

    return float(brentq(excess, 0.0, 600.0))


def _exact_epsilon(p: np.ndarray, r: float) -> float:
    """Return the smallest ε for which draws for all neighbours are (ε, δ)-DP.

    The loss increases or decreases in x, so that the draws with a loss above ε are those below, or above, one value.
    """
    mirrored = p[::-1, ::-1]

    def spent(epsilon: float) -> float:
        largest_delta = 0.0
        for pairs in (p, mirrored):
            first, second = pairs[:-1].T, pairs[1:].T  # second has one more record in the first category
            cut = expit((betaln(*second) - betaln(*first) - epsilon) / r)  # where ln p/q = ε
            largest_delta = max(
                largest_delta, float((betainc(*first, cut) - np.exp(epsilon) * betainc(*second, cut)).max())
            )
        return largest_delta - _DELTA

    return float(brentq(spent, 0.0, 700.0)) if spent(0.0) > 0 else 0.0


def _validate(cell: Values, setting: Values) -> bool:
    size = len(cell["prior"])
    require(size == 2, "prior must have 2 entries", size, "the supremum of P3 requires 2 categories")
    renyi_sampler("diffused", cell["prior"], cell["n"], cell["coefficient"])
    require_in_range("coefficient", cell["coefficient"])
    for order in cell["order"]:
        require_in_range("order", order)
    return True


_DIFFUSED = Panel(
    name="diffused",
    meaning="Rényi curves of the diffused posterior, Algorithm 2 (P3, Figure 1)",
    simulate=partial(_sampler, name="diffused"),
    methods=(Method("curve", _evaluate, note="Exact maximum over all neighbours."),),
    measures=(
        Measure("renyi_epsilon", "exact Rényi divergence over all neighbours", "nat", dims=("order",)),
        Measure("corner_epsilon", "Rényi divergence by Corollary 2 of P3", "nat", dims=("order",)),
        Measure("critical_order", "smallest order with an infinite divergence"),
    ),
    factors=(Factor("coefficient", _COEFFICIENTS, "coefficient r; 1 is the posterior itself"),),
    outputs=(Factor("order", _ORDERS, "order of the Rényi divergence; 1 is Kullback-Leibler"),),
    constants=(
        Factor("prior", ((6.0, 12.0),), "Beta parameters of the prior, whose natural parameters are (6, 18)", "vector"),
        Factor("n", (100,), "number of records", "int"),
    ),
    method_dim=None,
    validate=_validate,
)
_CONCENTRATED = replace(
    _DIFFUSED,
    name="concentrated",
    meaning="Rényi curves of the concentrated posterior, Algorithm 3 (P3, Figure 1)",
    simulate=partial(_sampler, name="concentrated"),
    factors=(Factor("coefficient", _COEFFICIENTS, "coefficient m; 1 is the posterior itself"),),
)
_BOUNDS = replace(
    _DIFFUSED,
    name="dirichlet-bounds",
    meaning="bounds for the Dirichlet mechanism, and exact losses of the diffused posterior",
    methods=(Method("bounds", _bounds, note="Exact maxima over all neighbours, and bounds."),),
    measures=(
        Measure("renyi_epsilon", "exact Rényi divergence over all neighbours", "nat", dims=("order",)),
        Measure("ponnoprat_epsilon", "Rényi divergence by Ponnoprat's bound", "nat", dims=("order",)),
        Measure("exact_epsilon", "smallest ε of (ε, δ)-DP at δ = 1e-6", "nat"),
        Measure("gohari_epsilon", "ε by the bound of Gohari et al. at δ = 1e-6", "nat"),
    ),
    outputs=(Factor("order", (1.0, 1.5, 2.0, 3.0, 5.0, 10.0), "order of the Rényi divergence"),),
)


_CURVES = in_panels(
    _NAMES, coefficient=_COEFFICIENTS, order=(1.0, 1.05, 2.0, 6.95, 7.0, 20.0, ...), prior=("6:12",), n=(100,)
)
"""Needs of all claims about curves: the published values in both panels."""


@p3(
    short="Direct sampling is Rényi private only at orders below 1 + min(prior).",
    place="section 5.1 and Corollary 1",
    needs=_CURVES,
)
@joined(
    "Curves increase with the order and are finite at the stored orders below 1 + min(prior)/coefficient and infinite "
    "above. Asymptotes, with coefficients in parentheses: {}."
)
def vertical_asymptotes(look: Look) -> Iterator[Finding]:
    """The curves have vertical asymptotes; direct sampling is Rényi private only at orders below 1 + min(prior)."""
    for name, summary in look.items():
        asymptotes = 1 + vector(summary, "prior").min() / summary["coefficient"]
        curves = summary["renyi_epsilon"].where(abs(summary["order"] - asymptotes) > 1e-9)
        finite = np.isfinite(curves)
        steps = curves.where(finite).diff("order")
        is_right = (finite == (curves["order"] < asymptotes)) | curves.isnull()
        holds = is_right.all() and ((steps > 0) | steps.isnull()).all()
        places = (
            f"{float(asymptote):.4g} ({format_value(asymptote['coefficient'].item())})" for asymptote in asymptotes
        )
        yield verdict(holds, f"{name} at orders {', '.join(places)}")


@p3(short="As the coefficients r and m decrease, epsilon decreases at each order.", place="section 5.1", needs=_CURVES)
@joined("From the smallest to the largest coefficient: {}.")
def smaller_is_more_private(look: Look) -> Iterator[Finding]:
    """As the coefficients r and m decrease, epsilon decreases at each order and becomes finite at larger orders."""
    for name, summary in look.items():
        curves = summary["renyi_epsilon"].sortby("coefficient").transpose("coefficient", "order")
        smaller, larger = curves.values[:-1], curves.values[1:]
        finite = np.isfinite(curves.values).sum(axis=1)
        is_less = ((smaller < larger) & np.isfinite(smaller)) | np.isinf(larger)
        first, last = curves.sel(order=2.0).values[[0, -1]]
        evidence = f"{name}: {first:.4g} to {last:.4g} at order 2, {finite[0]} to {finite[-1]} finite orders"
        yield verdict(is_less.all() and (np.diff(finite) <= 0).all(), evidence)


@p3(
    short="The supremum over neighbours is reached at a corner.",
    place="Corollary 2",
    needs=_CURVES,
    erratum=Erratum(
        "The supremum over neighbours is the largest divergence to the corners η ± (r, 0) of the parameters.",
        "These corners lie outside the set of posteriors; the exact corners replace one record.",
    ),
)
def corners_are_the_supremum(look: Look) -> Finding:
    """The supremum over neighbours is the maximum over pairs of a corner and parameters at distance r from it."""
    evidence, never_below = [], True
    for name, summary in look.items():
        exact = summary["renyi_epsilon"]
        excess = (summary["corner_epsilon"] / exact.where(np.isfinite(exact)) - 1).fillna(0.0)
        never_below &= bool((excess > -1e-9).all())
        larger = excess.where(excess > 1e-9, drop=True)
        if larger.size:
            top = largest(larger)
            where = f"({place(top, larger.dims)}), at orders up to {larger['order'].max():g}"
            evidence.append(f"{name} by up to {top:.1%} {where}")
    if not evidence:
        return verdict(never_below, "Equal at every stored order.")
    return correct(
        False,
        never_below,
        f"The maximum over corners is {'never smaller' if never_below else 'sometimes smaller'} than the supremum, and "
        f"larger for {'; '.join(evidence)}. A corner may not be the posterior of any data.",
    )


@claim(
    short="Published bounds of the Dirichlet mechanism hold, and are over twice the exact.",
    kind="addition",
    needs={
        "dirichlet-bounds": {
            "coefficient": (0.1, 1.0, ...),
            "order": (1.0, 2.0, 10.0, ...),
            "prior": ("6:12",),
            "n": (100,),
        }
    },
)
def dirichlet_bounds(look: Look) -> Finding:
    """Published bounds of the Dirichlet mechanism hold; for the posterior, Ponnoprat's is over twice, and that of
    Gohari et al. over three times, the exact value.
    """
    ds = look["dirichlet-bounds"]
    finite = np.isfinite(ds["renyi_epsilon"])
    ratio = (ds["ponnoprat_epsilon"].where(finite) / ds["renyi_epsilon"].where(finite)).sortby("coefficient")
    other = (ds["gohari_epsilon"] / ds["exact_epsilon"]).sortby("coefficient")
    ends = ratio.sel(order=2.0).isel(coefficient=[0, -1])
    return verdict(
        (ratio.where(finite, np.inf) >= 1.0).all()
        and (other >= 1.0).all()
        and float(ends[-1]) > 2.0
        and float(other[-1]) > 3.0,
        f"From the smallest to the largest coefficient, the Rényi bound is {span(ends)} times the exact divergence at "
        f"order 2, and up to {ratio.max():.1f} times at others; the bound on epsilon is {span(other)} times the "
        "exact one.",
    )


_CLAIMS = claims_in(globals())


# Errors in printed formulas, demonstrated by computations that take milliseconds


def gamma(summaries: Values) -> str:
    """Compute the log normaliser of a Beta distribution."""
    integral, _ = integrate.quad(lambda theta: theta**5 * (1 - theta) ** 11, 0, 1)
    printed = special.gamma(6) + special.gamma(12) - special.gamma(18)
    return (
        f"Beta(6, 12): ln of the integral of its kernel is {math.log(integral):.4f} by quadrature, "
        f"{special.betaln(6, 12):.4f} with ln Γ, and {printed:.4g} as printed."
    )


def trigamma(summaries: Values) -> str:
    """Compute the variance of ln θ under a Beta distribution."""
    distribution = stats.beta(6, 12)
    first, second = (distribution.expect(lambda theta, power=power: np.log(theta) ** power) for power in (1, 2))
    right, wrong = (float(special.polygamma(order, 6) - special.polygamma(order, 18)) for order in (1, 0))
    return (
        f"Variance of ln θ under Beta(6, 12): {second - first**2:.5f} by quadrature, {right:.5f} by the trigamma "
        f"function, {wrong:.5f} by the digamma function."
    )


_ERRATA = (
    Erratum(
        "C(η) = Γ(η₁) + Γ(η₂ − η₁) − Γ(η₂).",
        "The formula needs ln Γ instead of Γ.",
        "log normaliser of the Beta family",
        "P3",
        gamma,
    ),
    Erratum("ψ₁ is the digamma function.", "It is the trigamma function.", "appendix", "P3", trigamma),
)

STUDY = Study(
    name="renyi-curves",
    papers=("P3",),
    title="Rényi privacy curves of posterior sampling",
    aim="Compute epsilon by order for diffused and concentrated posteriors, and the orders at which it is infinite.",
    panels=(_DIFFUSED, _CONCENTRATED, _BOUNDS),
    seed=20_171_204,
    claims=_CLAIMS,
    errata=_ERRATA,
    figures=(
        Figure(
            "renyi-curves",
            "Rényi curves of posterior sampling (P3, Figure 1)",
            "Exact Rényi divergence of one draw, maximised over neighbours, against the order, for several "
            "coefficients of the diffused (left) and the concentrated posterior (right). Dotted lines mark the order "
            "at which a curve becomes infinite; for small coefficients it is outside the plotted range.",
            _NAMES,
            CURVES,
        ),
        Figure(
            "dirichlet-bounds",
            "Bounds for the Dirichlet mechanism",
            "Ponnoprat's bound on the Rényi divergence of one draw of the diffused posterior, divided by its exact "
            "value, against the order, for several coefficients.",
            ("dirichlet-bounds",),
            DIRICHLET_BOUNDS,
        ),
    ),
)
