"""Claims of the study `regression-inference`."""

from typing import Any

import xarray as xr

from pipeline import Erratum, Finding, claim, claims_in, critical, two_sided_level, verdict
from studies.claims import Stored, above, decide, lowest, mean, shown, smaller, together, uniform
from studies.panels import NOMINAL

DELTA = 1e-6
_PAPER: dict[str, Any] = {"paper": "P5", "place": "abstract"}
_ADDED: dict[str, Any] = {**_PAPER, "kind": "addition", "level": two_sided_level(4)}


def _calibrated(ds: xr.Dataset) -> Finding:
    """Judge the statement that posterior quantiles are uniform, at a joint level of 0.001."""
    return together([uniform({"quantiles": ds["pit_p"]}, 1e-3)])


@claim(kind="self-check")
def own_models_are_calibrated(summaries: Stored) -> Finding:
    """For records of its own joint model, each exact method has uniform posterior quantiles for each parameter, at
    every n and track.
    """
    exact = ("normal-covariates", "normal-covariates-k-norm", "noise-aware", "data-augmentation")
    return _calibrated(summaries.select("calibration", algorithm=exact))


@claim(kind="self-check")
def augmentation_is_calibrated(summaries: Stored) -> Finding:
    """For 1,000 clamped normal records, data-augmentation has uniform posterior quantiles for each parameter."""
    return _calibrated(summaries.select("augmentation", algorithm=("data-augmentation",)))


@claim(
    **_PAPER,
    erratum=Erratum(
        printed="θ given the sufficient statistics has its exact conjugate posterior, in a Gibbs sampler.",
        correct="The sampler pairs it with a normal distribution of the statistics, so that no joint model has both as "
        "conditionals. A Metropolis step with the ratio of both densities corrects it.",
        place="Gibbs sampler",
    ),
)
def published_sampler_is_calibrated(summaries: Stored) -> Finding:
    """The published Gibbs sampler has uniform posterior quantiles for statistics that are normal, as it assumes, at
    n = 10.
    """
    return _calibrated(summaries.select("calibration", algorithm=("noise-aware-published",), n=(10,)))


@claim(**_PAPER, kind="addition")
def conjugate_draw_is_the_wrong_step(summaries: Stored) -> Finding:
    """At n = 10, the sampler is calibrated if only its conjugate draw is corrected, and not if only its rejection of
    indefinite statistics is.
    """
    names = ("noise-aware-redrawn", "noise-aware-uncorrected")
    ds = summaries.select("calibration", algorithm=names, n=(10,))
    redrawn, uncorrected = (_calibrated(ds.sel(algorithm=[name])) for name in names)
    return verdict(
        redrawn.verdict == "holds" != uncorrected.verdict,
        f"Corrected draw: {redrawn.evidence} Corrected rejection: {uncorrected.evidence}",
    )


def _undercovers(summaries: Stored, method: str, panel: str = "one-feature", **at: Any) -> Finding:
    """Judge the statement that intervals undercover at ε = 1 on the pure track."""
    covered = mean(summaries.select(panel, algorithm=method, epsilon=1.0, track="pure", **at), "covered")
    rate, error = map(float, covered)
    width = critical(4) * error
    return decide(
        rate + width < NOMINAL,
        rate - width > NOMINAL or (rate >= NOMINAL and error > 0.0),
        f"{method} covers with probability {shown(covered)}; nominal {NOMINAL}.",
    )


@claim(**_PAPER, level=two_sided_level(4))
def naive_undercovers(summaries: Stored) -> Finding:
    """Intervals that ignore the noise cover the slope with less than the nominal probability, at n = 100 and ε = 1."""
    return _undercovers(summaries, "naive", n=100, records="inside", component="slope-1")


@claim(**_ADDED)
def clamping_belongs_in_the_model(summaries: Stored) -> Finding:
    """If moments are from the prior, so that many records are clamped, normal-covariates, whose model has no bounds,
    covers the error variance with less than the nominal probability, at n = 100,000 and ε = 1.
    """
    return _undercovers(summaries, "normal-covariates", n=100_000, records="clamped", component="variance")


def _smaller(
    summaries: Stored, one: str, other: str, n: int, track: str = "pure", panel: str = "one-feature", factor: float = 1
) -> Finding:
    """Judge the statement that the first method has the smaller mean interval score of the slope, by a factor."""
    at = {"n": n, "epsilon": 1.0, "track": track, "records": "inside", "component": "slope-1"}
    return smaller(summaries.select(panel, algorithm=(one, other), **at), "score", one, other, factor)


@claim(**_ADDED)
def k_norm_saves_in_five_dimensions(summaries: Stored) -> Finding:
    """With five covariates, K-norm noise gives slopes a smaller mean interval score than Laplace noise in the same
    box, at n = 10,000 and ε = 1.
    """
    return _smaller(summaries, "normal-covariates-k-norm", "normal-covariates", 10_000, panel="five-features")


@claim(**_ADDED)
def k_norm_saves_little_with_one(summaries: Stored) -> Finding:
    """With one covariate, K-norm noise gives the slope no smaller a mean interval score than 0.8 of that of Laplace
    noise in the same box, at n = 100 and ε = 1.
    """
    return _smaller(summaries, "normal-covariates", "normal-covariates-k-norm", 100, factor=1.25)


@claim(**_ADDED)
def posterior_beats_bootstrap(summaries: Stored) -> Finding:
    """On the approximate track at n·ε = 1,000, normal-covariates has a smaller mean interval score of the slope than
    adassp, at n = 1,000 and ε = 1.
    """
    return _smaller(summaries, "normal-covariates", "adassp", 1_000, "approximate")


@claim(**_ADDED)
def posterior_wins_with_few_records(summaries: Stored) -> Finding:
    """On the approximate track at n·ε = 100, normal-covariates has a smaller mean interval score of the slope than
    dp-gd, at n = 100 and ε = 1.
    """
    return _smaller(summaries, "normal-covariates", "dp-gd", 100, "approximate")


@claim(**_ADDED)
def descent_wins_with_many_records(summaries: Stored) -> Finding:
    """On the approximate track at n·ε = 10,000, dp-gd has a smaller mean interval score of the slope than
    normal-covariates, whose release does not adapt to the records, at n = 10,000 and ε = 1.
    """
    return _smaller(summaries, "dp-gd", "normal-covariates", 10_000, "approximate")


@claim(**_ADDED, leads=True)
def ignoring_noise_costs(summaries: Stored) -> Finding:
    """On the pure track at n·ε = 1,000, normal-covariates has a smaller mean interval score of the slope than the
    posterior that ignores the noise, at n = 1,000 and ε = 1.
    """
    return _smaller(summaries, "normal-covariates", "naive", 1_000)


@claim(**_ADDED)
def wide_ranges_are_covered(summaries: Stored) -> Finding:
    """If records fill a tenth of the public ranges, in their middle or near their end, intervals of normal-covariates
    for the slope and the error variance cover with at least 0.9 probability, at n = 100,000 and ε = 1 on the pure
    track.
    """
    at = {"n": 100_000, "track": "pure", "range_factor": 10.0, "component": ("slope-1", "variance")}
    covered = mean(summaries.select("ranges", algorithm="normal-covariates", epsilon=1.0, **at), "covered")
    return decide(
        *above(0.9, covered, critical(4)), f"The smallest rate is {lowest(covered[0], '.3f')}; nominal {NOMINAL}."
    )


@claim(**_ADDED)
def conjugate_prior_needs_narrow_ranges(summaries: Stored) -> Finding:
    """If records fill a tenth of the public ranges, in their middle, the published sampler, whose prior is conjugate,
    covers the slope with less than the nominal probability, at n = 100,000 and ε = 1 on the pure track.
    """
    at = {"n": 100_000, "range_factor": 10.0, "place": "middle", "component": "slope-1"}
    return _undercovers(summaries, "noise-aware-published", "ranges", **at)


@claim(**_ADDED)
def real_estimates_are_covered(summaries: Stored) -> Finding:
    """On abalone and adult at ε = 1, intervals of normal-covariates for the slopes without privacy contain them with at
    least 0.9 probability.
    """
    at = {"data": ("abalone", "adult"), "epsilon": 1.0, "component": ("slope-1", "slope-2")}
    covered = mean(summaries.select("real-two", algorithm="normal-covariates", **at), "covered")
    return decide(
        *above(0.9, covered, critical(4)),
        f"The smallest rate is {lowest(covered[0], '.3f')}; nominal {NOMINAL}, on average over the prior, which rarely "
        "has covariates with a correlation of 0.93, as those of abalone.",
    )


CLAIMS = claims_in(globals())
