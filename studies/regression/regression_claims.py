"""Claims of the study `regression-inference`."""

from typing import Any

import xarray as xr

from pipeline import Erratum, Finding, claim, claims_in, two_sided_level, verdict
from studies.claims import Look, above, decide, lowest, mean, shown, smaller, together, uniform
from studies.panels import NOMINAL

DELTA = 1e-6
_PAPER: dict[str, Any] = {"paper": "P5", "place": "abstract"}
_ADDED: dict[str, Any] = {**_PAPER, "kind": "addition", "level": two_sided_level(4)}


def _calibrated(ds: xr.Dataset) -> Finding:
    """Judge the statement that posterior quantiles are uniform, at a joint level of 0.001."""
    return together([uniform({"quantiles": ds["pit_p"]}, 1e-3)])


_EXACT = ("normal-covariates", "normal-covariates-k-norm", "noise-aware", "data-augmentation")


@claim(
    short="Each exact method is calibrated for records of its own model.",
    kind="self-check",
    needs={"calibration": {"algorithm": _EXACT}},
)
def own_models_are_calibrated(look: Look) -> Finding:
    """For records of its own joint model, each exact method has uniform posterior quantiles for each parameter, at
    every n and track.
    """
    return _calibrated(look.select("calibration"))


@claim(
    short="Data augmentation is calibrated for 1,000 clamped normal records.",
    kind="self-check",
    needs={"augmentation": {"algorithm": ("data-augmentation",)}},
)
def augmentation_is_calibrated(look: Look) -> Finding:
    """For 1,000 clamped normal records, data-augmentation has uniform posterior quantiles for each parameter."""
    return _calibrated(look.select("augmentation"))


@claim(
    short="The published Gibbs sampler is calibrated for normal statistics, at n = 10.",
    **_PAPER,
    needs={"calibration": {"algorithm": ("noise-aware-published",), "n": (10,)}},
    erratum=Erratum(
        printed="θ given the sufficient statistics has its exact conjugate posterior, in a Gibbs sampler.",
        correct="The sampler pairs it with a normal distribution of the statistics, so that no joint model has both as "
        "conditionals. A Metropolis step with the ratio of both densities corrects it.",
        place="Gibbs sampler",
    ),
)
def published_sampler_is_calibrated(look: Look) -> Finding:
    """The published Gibbs sampler has uniform posterior quantiles for statistics that are normal, as it assumes, at
    n = 10.
    """
    return _calibrated(look.select("calibration"))


_REPAIRS = ("noise-aware-redrawn", "noise-aware-uncorrected")


@claim(
    short="At n = 10, correcting the conjugate draw alone calibrates the sampler.",
    **_PAPER,
    kind="addition",
    needs={"calibration": {"algorithm": _REPAIRS, "n": (10,)}},
)
def conjugate_draw_is_the_wrong_step(look: Look) -> Finding:
    """At n = 10, the sampler is calibrated if only its conjugate draw is corrected, and not if only its rejection of
    indefinite statistics is.
    """
    redrawn, uncorrected = (_calibrated(look.select("calibration").sel(algorithm=[name])) for name in _REPAIRS)
    return verdict(
        redrawn.verdict == "holds" != uncorrected.verdict,
        f"Corrected draw: {redrawn.evidence} Corrected rejection: {uncorrected.evidence}",
    )


def _one_method(method: str, panel: str = "one-feature", **at: Any) -> dict[str, dict[str, Any]]:
    """Return the needs of a claim about one method at ε = 1 on the pure track."""
    return {panel: {"algorithm": method, "epsilon": 1.0, "track": "pure", **at}}


def _undercovers(look: Look, method: str) -> Finding:
    """Judge the statement that intervals undercover at the values that the claim needs."""
    (panel,) = look
    covered = mean(look.select(panel), "covered")
    rate, error = map(float, covered)
    width = look.critical(4) * error
    return decide(
        rate + width < NOMINAL,
        rate - width > NOMINAL or (rate >= NOMINAL and error > 0.0),
        f"{method} covers with probability {shown(covered)}; nominal {NOMINAL}.",
    )


@claim(
    short="Intervals that ignore the noise undercover the slope, at n = 100 and ε = 1.",
    **_PAPER,
    level=two_sided_level(4),
    needs=_one_method("naive", n=100, records="inside", component="slope-1"),
)
def naive_undercovers(look: Look) -> Finding:
    """Intervals that ignore the noise cover the slope with less than the nominal probability, at n = 100 and ε = 1."""
    return _undercovers(look, "naive")


@claim(
    short="If many records are clamped, a model without bounds undercovers the variance.",
    **_ADDED,
    needs=_one_method("normal-covariates", n=100_000, records="clamped", component="variance"),
)
def clamping_belongs_in_the_model(look: Look) -> Finding:
    """If many records are clamped, normal-covariates, whose model has no bounds, undercovers the error variance, at n =
    100,000 and ε = 1.
    """
    return _undercovers(look, "normal-covariates")


def _two_methods(
    first: str, second: str, n: int, track: str = "pure", panel: str = "one-feature"
) -> dict[str, dict[str, Any]]:
    """Return the needs of a claim that compares two methods at ε = 1."""
    at = {"n": n, "epsilon": 1.0, "track": track, "records": "inside", "component": "slope-1"}
    return {panel: {"algorithm": (first, second), **at}}


def _smaller(look: Look, first: str, second: str, factor: float = 1) -> Finding:
    """Judge the statement that the first method has the smaller mean interval score of the slope, by a factor."""
    (panel,) = look
    return smaller(look.select(panel), "score", first, second, look.critical(4), factor)


@claim(
    short="With 5 covariates, K-norm noise gives better intervals than Laplace noise.",
    **_ADDED,
    needs=_two_methods("normal-covariates-k-norm", "normal-covariates", 10_000, panel="five-features"),
)
def k_norm_saves_in_five_dimensions(look: Look) -> Finding:
    """With five covariates, K-norm noise gives slopes a smaller mean interval score than Laplace noise in the same
    box, at n = 10,000 and ε = 1.
    """
    return _smaller(look, "normal-covariates-k-norm", "normal-covariates")


@claim(
    short="With one covariate, K-norm noise saves at most a fifth of the interval score.",
    **_ADDED,
    needs=_two_methods("normal-covariates", "normal-covariates-k-norm", 100),
)
def k_norm_saves_little_with_one(look: Look) -> Finding:
    """With one covariate, K-norm noise gives the slope no smaller a mean interval score than 0.8 of that of Laplace
    noise in the same box, at n = 100 and ε = 1.
    """
    return _smaller(look, "normal-covariates", "normal-covariates-k-norm", factor=1.25)


@claim(
    short="At n = 1,000, normal-covariates has better slope intervals than adassp.",
    **_ADDED,
    needs=_two_methods("normal-covariates", "adassp", 1_000, "approximate"),
)
def posterior_beats_bootstrap(look: Look) -> Finding:
    """On the approximate track at n·ε = 1,000, normal-covariates has a smaller mean interval score of the slope than
    adassp, at n = 1,000 and ε = 1.
    """
    return _smaller(look, "normal-covariates", "adassp")


@claim(
    short="At n = 100, normal-covariates has better slope intervals than dp-gd.",
    **_ADDED,
    needs=_two_methods("normal-covariates", "dp-gd", 100, "approximate"),
)
def posterior_wins_with_few_records(look: Look) -> Finding:
    """On the approximate track at n·ε = 100, normal-covariates has a smaller mean interval score of the slope than
    dp-gd, at n = 100 and ε = 1.
    """
    return _smaller(look, "normal-covariates", "dp-gd")


@claim(
    short="At n = 10,000, dp-gd has better slope intervals than normal-covariates.",
    **_ADDED,
    needs=_two_methods("dp-gd", "normal-covariates", 10_000, "approximate"),
)
def descent_wins_with_many_records(look: Look) -> Finding:
    """On the approximate track at n = 10,000 and ε = 1, dp-gd, which adapts to the records, has a smaller mean interval
    score of the slope than normal-covariates.
    """
    return _smaller(look, "dp-gd", "normal-covariates")


@claim(
    short="At n = 1,000, modelling the noise gives better intervals than ignoring it.",
    **_ADDED,
    leads=True,
    needs=_two_methods("normal-covariates", "naive", 1_000),
)
def ignoring_noise_costs(look: Look) -> Finding:
    """On the pure track at n = 1,000 and ε = 1, normal-covariates has a smaller mean interval score of the slope than
    the posterior that ignores the noise.
    """
    return _smaller(look, "normal-covariates", "naive")


@claim(
    short="If records fill a tenth of the ranges, normal-covariates still covers.",
    **_ADDED,
    needs=_one_method("normal-covariates", "ranges", n=100_000, range_factor=10.0, component=("slope-1", "variance")),
)
def wide_ranges_are_covered(look: Look) -> Finding:
    """If records fill a tenth of the ranges, normal-covariates covers the slope and the error variance with at least
    0.9 probability, at n = 100,000 and ε = 1.
    """
    covered = mean(look.select("ranges"), "covered")
    return decide(
        *above(0.9, covered, look.critical(4)), f"The smallest rate is {lowest(covered[0], '.3f')}; nominal {NOMINAL}."
    )


@claim(
    short="If records fill a tenth of the ranges, the published sampler undercovers.",
    **_ADDED,
    needs=_one_method(
        "noise-aware-published", "ranges", n=100_000, range_factor=10.0, place="middle", component="slope-1"
    ),
)
def conjugate_prior_needs_narrow_ranges(look: Look) -> Finding:
    """If records fill the middle tenth of the ranges, the published sampler, whose prior is conjugate, undercovers the
    slope, at n = 100,000 and ε = 1.
    """
    return _undercovers(look, "noise-aware-published")


@claim(
    short="On abalone and adult, normal-covariates covers the slopes without privacy.",
    **_ADDED,
    needs={
        "real-two": {
            "algorithm": "normal-covariates",
            "data": ("abalone", "adult"),
            "epsilon": 1.0,
            "component": ("slope-1", "slope-2"),
        }
    },
)
def real_estimates_are_covered(look: Look) -> Finding:
    """On abalone and adult at ε = 1, intervals of normal-covariates for the slopes without privacy contain them with at
    least 0.9 probability.
    """
    covered = mean(look.select("real-two"), "covered")
    return decide(
        *above(0.9, covered, look.critical(4)),
        f"The smallest rate is {lowest(covered[0], '.3f')}; nominal {NOMINAL}, on average over the prior, which rarely "
        "has covariates with a correlation of 0.93, as those of abalone.",
    )


CLAIMS = claims_in(globals())
