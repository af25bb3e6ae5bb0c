"""Rényi privacy curves of posterior sampling (P3, Figure 1).

Panels `diffused` and `concentrated` contain the exact curve of one draw for several coefficients (a coefficient of 1
gives the posterior itself) and the smallest order at which the curve is infinite. The curve is compared with the
supremum of P3, which includes pairs of distributions that are not both posteriors of data sets.

References
----------
P3: Geumlek, Song & Chaudhuri, "Rényi Differential Privacy Mechanisms for Posterior Sampling", NeurIPS 2017.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from mechanisms.renyi.divergence import dirichlet_renyi
from mechanisms.renyi.sampling import RenyiSampling, renyi_sampler
from pipeline import Erratum, Factor, Figure, Finding, Measure, Method, Panel, Streams, Study, claim, claims_in, verdict
from pipeline.declare.factors import format_value
from studies.claims import Stored, Summaries, correct, largest, vector
from studies.renyi.formula_errata import ERRATA
from studies.renyi.ranges import require_coefficient, require_order
from studies.renyi.renyi_figures import draw_renyi_curves

_COEFFICIENTS = (0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
_ORDERS = (1.0, *(round(1 + 0.05 * step, 2) for step in range(1, 381)))
_NAMES = ("diffused", "concentrated")


def _simulator(name: str) -> Any:
    def simulate(cell: Mapping[str, Any], streams: Streams) -> RenyiSampling:
        """Return the mechanism, whose curve does not depend on the data."""
        return renyi_sampler(name, cell["prior"], cell["n"], cell["coefficient"])

    return simulate


def _corner_epsilons(mechanism: RenyiSampling, orders: np.ndarray) -> np.ndarray:
    """Return the supremum of P3 (Corollary 2): P has all records in one category, and Q differs by one record."""
    ends = mechanism.start + mechanism.step * mechanism.n * np.eye(2)
    moved = [end + mechanism.step * np.array(move) for end in ends for move in ((1, -1), (-1, 1))]
    if np.min(moved) <= 0:
        return np.full(orders.size, np.inf)  # numbers ≤ 0 are not parameters of a distribution
    return dirichlet_renyi(np.repeat(ends, 2, axis=0)[:, None], np.array(moved)[:, None], orders).max(axis=0)


def _evaluate(mechanism: RenyiSampling, setting: Mapping[str, Any], streams: Streams) -> dict[str, Any]:
    orders = setting["order"]
    return {
        "renyi_epsilon": [mechanism.renyi_epsilon(order) for order in orders],
        "corner_epsilon": _corner_epsilons(mechanism, np.array(orders)),
        "critical_order": mechanism.critical_order,
    }


def _validate(cell: Mapping[str, Any], setting: Mapping[str, Any]) -> bool:
    if len(cell["prior"]) != 2:
        raise ValueError(
            f"prior must have 2 entries, got {len(cell['prior'])}; the supremum of P3 requires 2 categories"
        )
    renyi_sampler("diffused", cell["prior"], cell["n"], cell["coefficient"])
    require_coefficient(cell["coefficient"])
    for order in cell["order"]:
        require_order(order)
    return True


def _panel(name: str, algorithm: str, symbol: str) -> Panel:
    return Panel(
        name=name,
        meaning=f"Rényi curves of the {name} posterior, {algorithm} (P3, Figure 1)",
        simulate=_simulator(name),
        methods=(Method("curve", _evaluate, note="Exact maximum over all neighbours."),),
        measures=(
            Measure("renyi_epsilon", "exact Rényi divergence over all neighbours", "nat", dims=("order",)),
            Measure("corner_epsilon", "Rényi divergence by Corollary 2 of P3", "nat", dims=("order",)),
            Measure("critical_order", "smallest order with an infinite divergence"),
        ),
        factors=(Factor("coefficient", _COEFFICIENTS, f"coefficient {symbol}; 1 is the posterior itself"),),
        outputs=(Factor("order", _ORDERS, "order of the Rényi divergence; 1 is Kullback-Leibler"),),
        constants=(
            Factor(
                "prior", ((6.0, 12.0),), "Beta parameters of the prior, whose natural parameters are (6, 18)", "vector"
            ),
            Factor("n", (100,), "number of records", "int"),
        ),
        method_dim=None,
        validate=_validate,
    )


_PANELS = (_panel("diffused", "Algorithm 2", "r"), _panel("concentrated", "Algorithm 3", "m"))


# Claims


def _curves(summaries: Stored) -> Summaries:
    """Return both panels, of which every claim needs the published values."""
    orders = (1.0, 1.05, 2.0, 6.95, 7.0, 20.0)
    return summaries.each(_NAMES, coefficient=_COEFFICIENTS, order=orders, prior=("6:12",), n=(100,))


@claim("vertical-asymptotes", paper="P3", place="section 5.1 and Corollary 1")
def vertical_asymptotes(summaries: Stored) -> Finding:
    """The curves have vertical asymptotes; direct sampling is Rényi private only at orders below 1 + min(prior)."""
    evidence, holds = [], True
    for name, summary in _curves(summaries).items():
        smallest = float(vector(summary, "prior").min())
        places = []
        for coefficient in summary["coefficient"].values.tolist():
            asymptote = 1 + smallest / coefficient
            curve = summary["renyi_epsilon"].sel(coefficient=coefficient)
            away = curve.sel(order=abs(curve["order"] - asymptote) > 1e-9)
            holds &= bool((np.isfinite(away) == (away["order"] < asymptote)).all())
            below = away.where(np.isfinite(away), drop=True)
            holds &= bool((below.diff("order") > 0).all())
            places.append(f"{asymptote:.4g} ({format_value(coefficient)})")
        evidence.append(f"{name} at orders {', '.join(places)}")
    return verdict(
        holds,
        "Curves increase with the order and are finite at the stored orders below 1 + min(prior)/coefficient and "
        f"infinite above. Asymptotes, with coefficients in parentheses: {'; '.join(evidence)}.",
    )


@claim("smaller-is-more-private", paper="P3", place="section 5.1")
def smaller_is_more_private(summaries: Stored) -> Finding:
    """As the coefficients r and m decrease, epsilon decreases at each order and becomes finite at larger orders."""
    evidence, holds = [], True
    for name, summary in _curves(summaries).items():
        curves = summary["renyi_epsilon"].sortby("coefficient")
        smaller, larger = curves.isel(coefficient=slice(None, -1)), curves.isel(coefficient=slice(1, None))
        holds &= bool(((smaller.values < larger.values) | np.isinf(larger.values)).all())
        holds &= bool((np.isfinite(smaller.values) | np.isinf(larger.values)).all())
        finite = (curves < np.inf).sum("order").values
        holds &= bool((np.diff(finite) <= 0).all())
        at_2 = curves.sel(order=2.0).values
        evidence.append(
            f"{name}: {at_2[0]:.4g} to {at_2[-1]:.4g} at order 2, {finite[0]} to {finite[-1]} finite orders"
        )
    return verdict(holds, f"From the smallest to the largest coefficient: {'; '.join(evidence)}.")


@claim(
    "corners-are-the-supremum",
    paper="P3",
    place="Corollary 2",
    erratum=Erratum(
        "The supremum over neighbours is the largest divergence to the corners η ± (r, 0) of the parameters.",
        "These corners lie outside the set of posteriors; the exact corners replace one record.",
    ),
)
def corners_are_the_supremum(summaries: Stored) -> Finding:
    """The supremum over neighbours is the maximum over pairs of a corner and parameters at distance r from it."""
    evidence, never_below, equal = [], True, True
    for name, summary in _curves(summaries).items():
        exact, corner = summary["renyi_epsilon"], summary["corner_epsilon"]
        finite = np.isfinite(exact)
        excess = (corner / exact.where(finite) - 1).fillna(0.0)
        never_below &= bool((excess > -1e-9).all())
        larger = excess.where(excess > 1e-9, drop=True)
        equal &= larger.size == 0
        if larger.size:
            worst = largest(larger)
            evidence.append(
                f"{name} by up to {float(worst):.1%} (order {format_value(worst['order'].item())}, coefficient "
                f"{format_value(worst['coefficient'].item())}), at orders up to {float(larger['order'].max()):g}"
            )
    if equal:
        return verdict(never_below, "Equal at every stored order.")
    return correct(
        False,
        never_below,
        f"The maximum over corners is {'never smaller' if never_below else 'sometimes smaller'} than the supremum, and "
        f"larger for {'; '.join(evidence)}. One of the two distributions of a corner may not be the posterior of any "
        "data.",
    )


_CLAIMS = claims_in(globals())


def _draw(summaries: Summaries) -> Any:
    return draw_renyi_curves(summaries)


STUDY = Study(
    name="renyi-curves",
    papers=("P3",),
    title="Rényi privacy curves of posterior sampling",
    aim="Compute epsilon by order for diffused and concentrated posteriors, and the orders at which it is infinite.",
    panels=_PANELS,
    seed=20_171_204,
    claims=_CLAIMS,
    errata=ERRATA,
    figures=(
        Figure(
            "renyi-curves",
            "Rényi curves of posterior sampling (P3, Figure 1)",
            "Exact Rényi divergence of one draw, maximised over neighbours, against the order, for several "
            "coefficients of the diffused (left) and the concentrated posterior (right). Dotted lines mark the order "
            "at which a curve becomes infinite; for small coefficients it is outside the plotted range.",
            _NAMES,
            _draw,
        ),
    ),
)
