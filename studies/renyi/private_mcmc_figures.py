"""Figures of the study `private-mcmc`."""

from dataclasses import replace

from mechanisms.glm.chains import GLM_CHAINS
from pipeline import Figure
from studies.figures import Axis, Chart
from studies.renyi.private_mcmc_claims import DATA_SETS
from studies.styles import GLM_STYLES, SERIES

_STYLES = {
    **GLM_STYLES,
    "glm-gdp-4": replace(SERIES[4], dash=(), origin="ours"),
    "glm-gdp-16": replace(SERIES[2], dash=(), origin="ours"),
}


def _chart(measure: str, ylabel: str, log: bool = False) -> Chart:
    """Describe the mean of a measure against ε, with one column per data set."""
    return Chart(
        "",
        "epsilon",
        {"y": f"{measure}_mean"},
        "mechanism",
        _STYLES,
        x=Axis("ε (nat)", log=True),
        y=Axis(ylabel, log=log),
        marks=("line", "errors", "points"),
        height=200,
        first=("true-posterior", "glm-gdp", "glm-gdp-16", "langevin", "langevin-last", "penalty"),
        share_y=False,
    )


_ENERGY = _chart("energy", "energy distance / that of one draw", log=True)

_CAPTION = (
    " against the privacy loss of everything that is published, at δ = 1e-6. Error bars show ± 2 Monte Carlo standard "
    "errors. true-posterior: one draw from the posterior without privacy."
)

FIGURES = (
    Figure(
        "one-draw-or-many",
        "One good draw or many noisy ones?",
        "Energy distance of the published draws to the posterior, divided by that of one draw from it," + _CAPTION,
        DATA_SETS,
        _ENERGY,
    ),
    Figure(
        "predictions",
        "Predictions from published draws",
        "Mean negative log predictive probability of a test record" + _CAPTION,
        DATA_SETS,
        _chart("test_nll", "log loss (nat)"),
        claims=("one-draw-at-small-budgets", "finite-chain-suffices", "gaussian-calibration"),
    ),
    Figure(
        "errors",
        "Test error of published draws",
        "Mean test error of the predictive probabilities" + _CAPTION,
        DATA_SETS,
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
        replace(
            _chart("covered", "coverage"),
            facet={"beta": "β = {}"},
            prepare=lambda ds: ds.sel(mechanism=ds["mechanism"].isin(list(GLM_CHAINS)[1:])),
            across={"level": 0.95},
            marks=("level", "line", "errors", "points"),
        ),
        claims=("coverage-where-planned",),
    ),
    Figure(
        "step-size",
        "Bias of Langevin chains",
        "Standard deviation of Langevin iterates divided by that of the posterior, against the step size. Lines: the "
        "factor for a quadratic with the largest curvature, which is exact for the quadratic potential.",
        ("step-size",),
        Chart(
            "step-size",
            "step",
            {"y": "inflation_mean", "exact": "predicted_inflation"},
            "model",
            x=Axis("step size / largest step size"),
            y=Axis("standard deviation / that of the posterior"),
            marks=("exact", "points"),
            facet={"coordinate": "weight {}"},
            prepare=lambda ds: ds.sortby("step").assign_coords(coordinate=ds["coordinate"] + 1),
            height=220,
        ),
    ),
)
