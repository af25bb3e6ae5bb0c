"""Claims of the study `private-mcmc`: one good draw or many noisy ones.

Differences between methods are judged with a margin of 0.01 nat per test record, and within four Monte Carlo standard
errors of the margin they are undecided. Standard errors are those of draws on a fixed split.
"""

import math
from collections.abc import Iterator, Sequence

import xarray as xr

from mechanisms.glm.langevin import LEAST_DRAWS
from pipeline import Finding, claim, claims_in, verdict
from pipeline.declare.factors import format_value
from studies.claims import Stored, at_most, below, both, decide, gap, highest, joined, listed, mean, place, smallest
from studies.renyi.logistic_trials import LABELS

EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
_ONE, _EXACT = "langevin-last", "glm-gdp"
_MANY = ("glm-gdp-4", "glm-gdp-16", "langevin", "penalty")
_MARGIN = 0.01
_DECIDING = 4.0
_CLOSE = 0.1
_LEAST_COVERAGE = 0.9


@joined("Largest difference of the mean log loss, in nats per test record: {}.")
def _not_worse(summaries: Stored, one: str, others: Sequence[str], most: float = math.inf) -> Iterator[Finding]:
    """Judge the statement that the log loss of `one` exceeds that of no other method by more than the margin."""
    needed = tuple(epsilon for epsilon in EPSILONS if epsilon <= most)
    for panel, ds in summaries.each(LABELS, epsilon=needed, mechanism=(one, *others)).items():
        ds = ds.sel(epsilon=ds["epsilon"] <= most)
        pairs = [gap(ds, "test_nll", one, other) for other in others]
        gaps, errors = (xr.concat(each, xr.Variable("rival", list(others))) for each in zip(*pairs, strict=True))
        yield decide(*at_most(_MARGIN, (gaps, errors), _DECIDING), f"{panel} {highest(gaps, '+.4f')}")


@claim(kind="addition", min_trials=10)
def one_draw_at_small_budgets(summaries: Stored) -> Finding:
    """At epsilon <= 1, one draw (langevin-last) predicts test records at least as well, within 0.01 nat, as several
    exact draws with a divided budget and as chains that publish all states.
    """
    return _not_worse(summaries, _ONE, _MANY, 1.0)


@claim(kind="addition", min_trials=10, leads=True)
@joined(
    "Energy distance over that of one draw from the posterior, langevin and glm-gdp at epsilon = 10, and the mechanism "
    "with the smallest at each epsilon: {}."
)
def many_draws_at_large_budgets(summaries: Stored) -> Iterator[Finding]:
    """At epsilon = 10, the iterates of a Langevin chain represent the posterior better than one exact draw of equal
    privacy: their energy distance is smaller.
    """
    for panel, ds in summaries.each(LABELS, epsilon=(10.0,), mechanism=("langevin", _EXACT)).items():
        less = gap(ds.sel(epsilon=10.0), "energy", "langevin", _EXACT)
        best = ds["energy_mean"].sel(mechanism=[_EXACT, _ONE, *_MANY])
        winners = (
            f"{smallest(one)['mechanism'].item()} at {one['epsilon']:g}" for one in best.transpose("epsilon", ...)
        )
        shown = listed(ds["energy_mean"].sel(epsilon=10.0, mechanism=["langevin", _EXACT]).values, ".3f")
        yield decide(*below(0.0, less, _DECIDING), f"{panel} {shown} (smallest: {', '.join(winners)})")


@claim(kind="addition", min_trials=10)
def finite_chain_suffices(summaries: Stored) -> Finding:
    """The last iterate of a finite Langevin chain predicts test records at least as well, within 0.01 nat, as an
    exact draw with the same guarantee (glm-gdp).
    """
    return _not_worse(summaries, _ONE, (_EXACT,))


@claim(kind="addition", min_trials=10)
def gaussian_calibration(summaries: Stored) -> Finding:
    """At equal (epsilon, delta), a draw calibrated by Gaussian differential privacy predicts test records at least
    as well, within 0.01 nat, as draws calibrated by Rényi differential privacy at all orders (Algorithms 4 and 5).
    """
    return _not_worse(summaries, _EXACT, ("glm-diffused", "glm-concentrated"))


@claim(kind="addition", min_trials=0)
@joined(
    "Forecast of effective draws from records at epsilon = 1, summed over directions: {} per direction with the prior. "
    "The forecast uses public quantities only."
)
def no_intervals(summaries: Stored) -> Iterator[Finding]:
    """At epsilon <= 1, no chain that publishes all iterates has 20 effective draws in each direction, so that
    intervals are not possible.
    """
    for panel, ds in summaries.each(LABELS, epsilon=EPSILONS[:3], mechanism=("langevin",)).items():
        one = ds.sel(mechanism="langevin", epsilon=ds["epsilon"] <= 1.0)
        last = one.sel(epsilon=1.0)
        evidence = f"{panel} {last['total_draws']:.0f}, a mean of at most {last['mean_draws']:.2f}"
        yield verdict((one["mean_draws"] < LEAST_DRAWS).all(), evidence)


@claim(kind="addition", min_trials=20)
def coverage_where_planned(summaries: Stored) -> Finding:
    """If the planner allows intervals, central 95 % intervals of the published iterates of a Langevin chain
    contain the true weights in at least 90 % of trials.
    """
    ds = summaries.need("simulated", beta=(0.1,), epsilon=(10.0,), mechanism=("langevin",)).sel(mechanism="langevin")
    planned = ds["planned"] > 0
    covered, error = (one.where(planned) for one in mean(ds, "covered"))
    least, others = smallest(covered), ds["covered_mean"].where(~planned)
    return decide(
        planned.any() and not (covered - 2.0 * error < _LEAST_COVERAGE).any(),
        (covered + 2.0 * error < _LEAST_COVERAGE).any(),
        f"Smallest coverage where planned {least:.3f} ({place(least, ('beta', 'epsilon'))}), with twice the "
        f"standard error {2.0 * float(error.sel(beta=least['beta'], epsilon=least['epsilon'])):.3f}; elsewhere "
        f"{others.min():.3f} to {others.max():.3f}.",
    )


@claim(kind="self-check", min_trials=5)
def effective_draws(summaries: Stored) -> Finding:
    """Measured effective draws of Langevin chains equal the forecast for the budget within 10 % on quadratic
    potentials, and are at most the forecast for the largest curvature on logistic ones.
    """
    ds = summaries.need("step-size", model=("quadratic", "logistic"), step=(0.05, 0.5, 0.8))
    ratio, error = (one / ds["predicted_draws"] for one in mean(ds, "effective"))
    off, bound = abs(ratio.sel(model="quadratic") - 1.0), ratio.sel(model="logistic")
    is_equal = at_most(_CLOSE, (off, error.sel(model="quadratic")), _DECIDING, slack=0.0)
    return decide(
        *both(is_equal, at_most(1.0, (bound, error.sel(model="logistic")), _DECIDING, slack=0.0)),
        f"Largest deviation from the forecast on quadratics {off.max():.1%}, largest ratio to the bound on "
        f"logistic potentials {bound.max():.3f}.",
    )


@claim(kind="self-check", min_trials=5)
def bias_grows_with_the_step(summaries: Stored) -> Finding:
    """The standard deviation of Langevin iterates grows with the step size: on quadratics by the factor (1 -
    step·curvature/4)^(-1/2) within 2 %, on logistic potentials by at most that at the largest curvature.
    """
    ds = summaries.need("step-size", model=("quadratic", "logistic"), step=(0.05, 0.5, 0.8)).sortby("step")
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


CLAIMS = claims_in(globals())
