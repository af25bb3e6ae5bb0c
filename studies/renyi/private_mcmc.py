"""One private draw or many: posterior sampling for logistic regression at equal (ε, δ).

Panels `abalone`, `adult` and `mnist` compare, on the records of P3, one exact draw of several mechanisms, several draws
that divide the budget, the last iterate of a finite Langevin chain, and chains that publish all states. In the panel
`simulated` records have two explanatory variables, the exact posterior is known by quadrature, and intervals are
compared with the true weights. The panel `step-size` measures the bias and the effective draws of Langevin chains.

Claims judge differences between methods with a margin of 0.01 nat per test record; within four Monte Carlo standard
errors of the margin they are undecided. Standard errors are those of draws on a fixed split.

References
----------
Gopi, Lee & Liu, "Private convex optimization via exponential mechanism", COLT 2022. Bok, Su & Altschuler, "Shifted
interpolation for differential privacy", ICML 2024. Yıldırım & Ermiş, "Exact MCMC with differentially private moves",
Statistics and Computing 29, 2019. Wang, Fienberg & Smola, "Privacy for free", ICML 2015.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import xarray as xr

from mechanisms.core.privacy_parameters import validate_delta, validate_epsilon
from mechanisms.draws.chains import GLM_CHAINS
from mechanisms.draws.glm_mechanisms import GLM_MECHANISMS
from mechanisms.draws.langevin import LEAST_DRAWS
from pipeline import Criteria, Factor, Figure, Finding, Measure, Method, Panel, Scale, Study, claim, claims_in, verdict
from pipeline.declare.factors import format_value
from studies.claims import (
    Look,
    at_most,
    below,
    both,
    decide,
    gap,
    highest,
    in_panels,
    joined,
    listed,
    mean,
    place,
    smallest,
)
from studies.figures import Axis, Chart
from studies.panels import Values, given, require
from studies.renyi.logistic_trials import (
    LABELS,
    MECHANISMS,
    SPLITS,
    evaluate_published,
    evaluate_simulated,
    evaluate_steps,
    exact_target,
    simulate_fixed,
    simulate_records,
)
from studies.renyi.own_draws import published_draw, simulated_draw
from studies.renyi.renyi_figures import against_epsilon
from studies.styles import GLM_STYLES, SERIES


def _methods(evaluate: Callable[..., dict[str, Any]]) -> tuple[Method, ...]:
    notes = {name: f"{size} draws of glm-gdp, among which the budget is divided." for name, size in SPLITS.items()}
    notes |= {name: method.note for name, method in {**GLM_MECHANISMS, **GLM_CHAINS}.items() if name in MECHANISMS}
    return tuple(
        Method(
            name,
            partial(evaluate, name),
            uses=() if name == "true-posterior" else ("epsilon",),
            note=notes[name],
            is_private=name != "true-posterior",
        )
        for name in MECHANISMS
    )


def _validate(cell: Values, setting: Values) -> bool:
    validate_epsilon(setting.get("epsilon", 1.0))
    validate_delta(setting["delta"])
    exact_target("true-posterior", cell.get("n", 1), {**cell, **setting})
    return True


def _validate_step(cell: Values, setting: Values) -> bool:
    step = cell["step"]
    require(0 < step <= 1, "step must be in (0, 1]", step, "choose a fraction of the largest step size")
    return True


_N_GROUPED = 10  # number of trials on the same records that share a set of chains
_EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
_EPSILON = Factor("epsilon", _EPSILONS, "privacy loss of everything that is published", unit="nat")
_DELTA = Factor("delta", (1e-6,), "δ of (ε, δ)-DP")
_DRAWS = (
    Measure("energy", "energy distance to the posterior, divided by that of one exact draw"),
    Measure("n_used", "number of published draws that are used", dtype="int64"),
    Measure("least_draws", "forecast of effective draws in the direction with the fewest", per_trial=False),
    Measure("mean_draws", "largest possible mean of effective draws over directions", per_trial=False),
    Measure("total_draws", "largest possible sum of effective draws that records contribute", per_trial=False),
)


def _real(name: str, trials: int) -> Panel:
    return Panel(
        name=name,
        meaning=f"{LABELS[name]}, as in P3",
        simulate=simulate_fixed(name, _N_GROUPED),
        methods=_methods(evaluate_published),
        accepts={"draw": published_draw},
        measures=(
            Measure("test_error", "fraction of misclassified test records"),
            Measure("test_nll", "mean negative log predictive probability of a test record", "nat"),
            *_DRAWS,
        ),
        method_factors=(_EPSILON,),
        constants=(Factor("beta", (1e-3,), "prior precision of a weight, per training record"), _DELTA),
        method_dim="mechanism",
        trials=trials,
        block_trials=_N_GROUPED,
        settings_apart=True,
        validate=_validate,
    )


_PANELS = (
    _real("abalone", 40),
    _real("adult", 10),
    _real("mnist", 10),
    Panel(
        name="simulated",
        meaning="simulated records with two explanatory variables and weights from the prior",
        simulate=simulate_records,
        methods=_methods(evaluate_simulated),
        accepts={"draw": simulated_draw},
        measures=(
            *_DRAWS,
            Measure("covered", "fraction of true weights in central 95 % intervals of the published draws"),
            Measure("width", "mean width of these intervals, divided by that of the posterior"),
            Measure("planned", "1 if the planner allows intervals from published iterates", per_trial=False),
        ),
        factors=(Factor("beta", (1e-3, 0.1), "prior precision of a weight, per record"),),
        method_factors=(_EPSILON,),
        constants=(Factor("n", (500,), "number of records", "int"), _DELTA),
        method_dim="mechanism",
        trials=100,
        block_trials=10,
        validate=_validate,
    ),
    Panel(
        name="step-size",
        meaning="stationary bias and effective draws of Langevin chains on four records",
        simulate=given,
        methods=(Method("langevin", evaluate_steps, note="Iterates after the first 500 of 2,000."),),
        measures=(
            Measure("offset", "bias of the mean, in posterior standard deviations", dims=("coordinate",)),
            Measure("inflation", "ratio of the standard deviation to that of the posterior", dims=("coordinate",)),
            Measure("effective", "effective draws for the mean of a weight", dims=("coordinate",)),
            Measure("predicted_draws", "forecast of effective draws for the largest curvature", per_trial=False),
            Measure("predicted_inflation", "ratio of standard deviations for this curvature", per_trial=False),
        ),
        factors=(
            Factor("model", ("quadratic", "logistic"), "potential", "str"),
            Factor("step", (0.05, 0.2, 0.5, 0.8), "step size over the largest step size"),
        ),
        outputs=(Factor("coordinate", (0, 1), "index of a weight", "int"),),
        method_dim=None,
        trials=20,
        block_trials=5,
        validate=_validate_step,
    ),
)


_ONE, _EXACT = "langevin-last", "glm-gdp"
_MANY = ("glm-gdp-4", "glm-gdp-16", "langevin", "penalty")
_MARGIN = 0.01
_DECIDING = 4.0
_CLOSE = 0.1
_LEAST_COVERAGE = 0.9


def _at_budgets(*mechanisms: str, most: float = math.inf) -> dict[str, dict[str, Any]]:
    """Return the needs of a claim about mechanisms on all data sets, at ε up to `most`."""
    budgets = tuple(epsilon for epsilon in _EPSILONS if epsilon <= most)
    return in_panels(LABELS, epsilon=budgets, mechanism=mechanisms)


@joined("Largest difference of the mean log loss, in nats per test record: {}.")
def _not_worse(look: Look, method: str, others: Sequence[str], most: float = math.inf) -> Iterator[Finding]:
    """Judge the statement that the log loss of `method` exceeds that of no other method by more than the margin."""
    for panel, ds in look.items():
        ds = ds.sel(epsilon=ds["epsilon"] <= most)
        pairs = [gap(ds, "test_nll", method, other) for other in others]
        gaps, errors = (xr.concat(rows, xr.Variable("rival", list(others))) for rows in zip(*pairs, strict=True))
        yield decide(*at_most(_MARGIN, (gaps, errors), _DECIDING), f"{panel} {highest(gaps, '+.4f')}")


@claim(
    short="At epsilon <= 1, one draw predicts test records as well as several.",
    kind="addition",
    min_trials=10,
    needs=_at_budgets(_ONE, *_MANY, most=1.0),
)
def one_draw_at_small_budgets(look: Look) -> Finding:
    """At epsilon <= 1, one draw (langevin-last) predicts test records as well, within 0.01 nat, as several draws with a
    divided budget and chains of all states.
    """
    return _not_worse(look, _ONE, _MANY, 1.0)


@claim(
    short="At epsilon = 10, a Langevin chain represents the posterior better than one draw.",
    kind="addition",
    min_trials=10,
    leads=True,
    needs=in_panels(LABELS, epsilon=(10.0, ...), mechanism=(_EXACT, _ONE, *_MANY)),
)
@joined(
    "Energy distance over that of one draw from the posterior, langevin and glm-gdp at epsilon = 10, and the mechanism "
    "with the smallest at each epsilon: {}."
)
def many_draws_at_large_budgets(look: Look) -> Iterator[Finding]:
    """At epsilon = 10, the iterates of a Langevin chain represent the posterior better than one exact draw of equal
    privacy: their energy distance is smaller.
    """
    for panel, ds in look.items():
        less = gap(ds.sel(epsilon=10.0), "energy", "langevin", _EXACT)
        best = ds["energy_mean"].sel(mechanism=[_EXACT, _ONE, *_MANY])
        winners = (
            f"{smallest(best_at)['mechanism'].item()} at {best_at['epsilon']:g}"
            for best_at in best.transpose("epsilon", ...)
        )
        shown = listed(ds["energy_mean"].sel(epsilon=10.0, mechanism=["langevin", _EXACT]).values, ".3f")
        yield decide(*below(0.0, less, _DECIDING), f"{panel} {shown} (smallest: {', '.join(winners)})")


@claim(
    short="A finite Langevin chain predicts as well as an exact draw of equal privacy.",
    kind="addition",
    min_trials=10,
    needs=_at_budgets(_ONE, _EXACT),
)
def finite_chain_suffices(look: Look) -> Finding:
    """The last iterate of a finite Langevin chain predicts test records at least as well, within 0.01 nat, as an
    exact draw with the same guarantee (glm-gdp).
    """
    return _not_worse(look, _ONE, (_EXACT,))


@claim(
    short="Draws calibrated by Gaussian DP predict as well as those by Rényi DP.",
    kind="addition",
    min_trials=10,
    needs=_at_budgets(_EXACT, "glm-diffused", "glm-concentrated"),
)
def gaussian_calibration(look: Look) -> Finding:
    """At equal (epsilon, delta), a draw calibrated by Gaussian DP predicts as well, within 0.01 nat, as draws
    calibrated by Rényi DP (Algorithms 4 and 5).
    """
    return _not_worse(look, _EXACT, ("glm-diffused", "glm-concentrated"))


@claim(
    short="At epsilon <= 1, no chain has enough effective draws for intervals.",
    kind="addition",
    min_trials=0,
    needs=in_panels(LABELS, epsilon=_EPSILONS[:3], mechanism=("langevin",)),
)
@joined(
    "Forecast of effective draws from records at epsilon = 1, summed over directions: {} per direction with the prior. "
    "The forecast uses public quantities only."
)
def no_intervals(look: Look) -> Iterator[Finding]:
    """At epsilon <= 1, no chain that publishes all iterates has 20 effective draws in each direction, so that
    intervals are not possible.
    """
    for panel, ds in look.items():
        langevin = ds.sel(mechanism="langevin", epsilon=ds["epsilon"] <= 1.0)
        last = langevin.sel(epsilon=1.0)
        evidence = f"{panel} {last['total_draws']:.0f}, a mean of at most {last['mean_draws']:.2f}"
        yield verdict((langevin["mean_draws"] < LEAST_DRAWS).all(), evidence)


@claim(
    short="Where the planner allows intervals, those of Langevin chains cover 90 %.",
    kind="addition",
    min_trials=20,
    needs={"simulated": {"beta": (0.1, ...), "epsilon": (10.0, ...), "mechanism": ("langevin",)}},
)
def coverage_where_planned(look: Look) -> Finding:
    """If the planner allows intervals, central 95 % intervals of the published iterates of a Langevin chain
    contain the true weights in at least 90 % of trials.
    """
    ds = look["simulated"].sel(mechanism="langevin")
    planned = ds["planned"] > 0
    covered, error = (estimate.where(planned) for estimate in mean(ds, "covered"))
    least, others = smallest(covered), ds["covered_mean"].where(~planned)
    return decide(
        planned.any() and not (covered - 2.0 * error < _LEAST_COVERAGE).any(),
        (covered + 2.0 * error < _LEAST_COVERAGE).any(),
        f"Smallest coverage where planned {least:.3f} ({place(least, ('beta', 'epsilon'))}), with twice the "
        f"standard error {2.0 * float(error.sel(beta=least['beta'], epsilon=least['epsilon'])):.3f}; elsewhere "
        f"{others.min():.3f} to {others.max():.3f}.",
    )


_STEP_NEEDS: dict[str, Any] = {"step-size": {"model": ("quadratic", "logistic"), "step": (0.05, 0.5, 0.8, ...)}}


@claim(
    short="Effective draws of Langevin chains equal their forecast within 10 %.",
    kind="self-check",
    min_trials=5,
    needs=_STEP_NEEDS,
)
def effective_draws(look: Look) -> Finding:
    """Effective draws of Langevin chains equal their forecast within 10 % on quadratic potentials, and on logistic ones
    are at most that of the largest curvature.
    """
    ds = look["step-size"]
    ratio, error = (estimate / ds["predicted_draws"] for estimate in mean(ds, "effective"))
    off, bound = abs(ratio.sel(model="quadratic") - 1.0), ratio.sel(model="logistic")
    is_equal = at_most(_CLOSE, (off, error.sel(model="quadratic")), _DECIDING, slack=0.0)
    return decide(
        *both(is_equal, at_most(1.0, (bound, error.sel(model="logistic")), _DECIDING, slack=0.0)),
        f"Largest deviation from the forecast on quadratics {off.max():.1%}, largest ratio to the bound on "
        f"logistic potentials {bound.max():.3f}.",
    )


@claim(
    short="The standard deviation of Langevin iterates grows with the step as derived.",
    kind="self-check",
    min_trials=5,
    needs=_STEP_NEEDS,
)
def bias_grows_with_the_step(look: Look) -> Finding:
    """The standard deviation of Langevin iterates grows with the step: by (1 - step·curvature/4)^(-1/2) within 2 % on
    quadratics, by at most that on logistic ones.
    """
    ds = look["step-size"].sortby("step")
    inflation = ds["inflation_mean"]
    ratio = inflation / ds["predicted_inflation"]
    logistic = inflation.sel(model="logistic")
    is_equal = (abs(ratio.sel(model="quadratic") - 1.0) < 0.02).all()
    grows = (logistic.diff("step") > 0).all() and (ratio.sel(model="logistic") < 1.0).all()
    steps = ", ".join(format_value(step) for step in ds["step"].values.tolist())
    return verdict(
        is_equal and grows,
        f"Factors at {steps} of the largest step: quadratic "
        f"{listed(inflation.sel(model='quadratic').mean('coordinate').values, '.3f')}, logistic "
        f"{listed(logistic.mean('coordinate').values, '.3f')}. The mean moves by at most "
        f"{abs(ds['offset_mean']).max():.3f} posterior standard deviations.",
    )


_STYLES = {
    **GLM_STYLES,
    "glm-gdp-4": replace(SERIES[4], dash=(), origin="ours"),
    "glm-gdp-16": replace(SERIES[2], dash=(), origin="ours"),
}


def _chart(measure: str, ylabel: str, **options: Any) -> Chart:
    first = ("true-posterior", "glm-gdp", "glm-gdp-16", "langevin", "langevin-last", "penalty")
    return against_epsilon(measure, ylabel, styles=_STYLES, height=200, first=first, **options)


_ENERGY = _chart("energy", "energy distance / that of one draw", log=True)

_STEPS = Chart(
    "step-size", "step", {"y": "inflation_mean", "exact": "predicted_inflation"}, "model",
    x=Axis("step size / largest step size"), y=Axis("standard deviation / that of the posterior"),
    marks=("exact", "points"), facet={"coordinate": "weight {}"},
    prepare=lambda ds: ds.sortby("step").assign_coords(coordinate=ds["coordinate"] + 1), height=220)  # fmt: skip
_CAPTION = (
    " against the privacy loss of everything that is published, at δ = 1e-6. Error bars show ± 2 Monte Carlo standard "
    "errors. true-posterior: one draw from the posterior without privacy."
)

_FIGURES = (
    Figure(
        "one-draw-or-many",
        "One good draw or many noisy ones?",
        "Energy distance of the published draws to the posterior, divided by that of one draw from it," + _CAPTION,
        tuple(LABELS),
        _ENERGY,
    ),
    Figure(
        "predictions",
        "Predictions from published draws",
        "Mean negative log predictive probability of a test record" + _CAPTION,
        tuple(LABELS),
        _chart("test_nll", "log loss (nat)"),
        claims=("one-draw-at-small-budgets", "finite-chain-suffices", "gaussian-calibration"),
    ),
    Figure(
        "errors",
        "Test error of published draws",
        "Mean test error of the predictive probabilities" + _CAPTION,
        tuple(LABELS),
        _chart("test_error", "test error"),
    ),
    Figure(
        "simulated",
        "Published draws where the posterior is known",
        "Energy distance of the published draws to the exact posterior, divided by that of one draw from it,"
        + _CAPTION,
        ("simulated",),
        replace(_ENERGY, facet={"beta": "β = {}"}),
    ),
    Figure(
        "coverage",
        "Coverage of intervals from published chains",
        "Fraction of true weights in central 95 % intervals of the published states" + _CAPTION,
        ("simulated",),
        _chart(
            "covered",
            "coverage",
            facet={"beta": "β = {}"},
            prepare=lambda ds: ds.sel(mechanism=ds["mechanism"].isin(list(GLM_CHAINS)[1:])),
            across={"level": 0.95},
            marks=("level", "line", "errors", "points"),
            best="",
        ),
        claims=("coverage-where-planned",),
    ),
    Figure(
        "step-size",
        "Bias of Langevin chains",
        "Standard deviation of Langevin iterates divided by that of the posterior, against the step size. Lines: the "
        "factor for a quadratic with the largest curvature, which is exact for the quadratic potential.",
        ("step-size",),
        _STEPS,
    ),
)

STUDY = Study(
    name="private-mcmc",
    papers=("P3",),
    title="One private draw of regression weights, or many",
    aim="Compare one good draw with many noisy ones at equal (ε, δ), and measure what finite chains guarantee.",
    panels=_PANELS,
    seed=20_240_708,
    claims=claims_in(globals()),
    figures=_FIGURES,
    criteria=Criteria(loss=("test_nll", "energy", "test_error"), covered="covered", width="width", distance="energy"),
    quick=Scale(
        {"abalone": 10, "adult": 10, "mnist": 10, "simulated": 20, "step-size": 5},
        (*LABELS, "simulated", "step-size"),
        {
            "epsilon": {
                "abalone": (0.1, 1.0, 3.0, 10.0),
                **dict.fromkeys(("adult", "mnist"), (10.0,)),
                "simulated": (1.0, 10.0),
            },
        },
    ),
)
