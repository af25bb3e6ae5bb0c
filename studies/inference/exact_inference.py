"""Exact inference from private statistics, compared with the methods of P4, which use normal approximations.

In each trial, θ is drawn from the prior, the records from θ, and the release from the records. If a method's posterior
is correct, the posterior quantile of the true θ is uniform. The panels contain sparse counts, releases at the edge of
the support, and records that are dropped or clamped at public bounds. In the panel `edge` the release is y = 0.

Data augmentation takes time proportional to n, and runs up to n = 100 (1,000 in `edge`).

Each trial starts 2 chains of 1,000 draws, after 200 discarded iterations. If split R-hat is 1.01 or more, or the
effective sample size is below 100, longer chains replace them, of up to 16 times as many iterations. Chains that still
fail are included in all statistics; their share is part of the evidence. The ranks use 99 equally spaced draws.

Stored numbers cannot contain times, so `ess` and `thinning` give the effective sample size per iteration,
ess/(2,000·thinning). `tests/benchmarks/bench_exact_inference.py` prints the effective sample size per second.

References
----------
Talts, Betancourt, Simpson, Vehtari & Gelman, "Validating Bayesian inference algorithms with simulation-based
calibration", 2018, Algorithm 2: chains whose length depends on the effective sample size.
Ju, Awan, Gong & Rao, "Data augmentation MCMC for Bayesian inference from privatized data", NeurIPS 2022.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from mechanisms.core.noise import NOISES
from mechanisms.inference.families import MODELS
from pipeline import Claim, Criteria, Factor, Finding, Measure, Method, Panel, Scale, Statistic, Study, claim, verdict
from studies.claims import Look, entries, highest, joined, named, p4, smaller, span, tested, uniform
from studies.inference.exact_trials import (
    ENOUGH_DRAWS,
    EXACT_EVERY,
    LARGEST_RHAT,
    METHODS,
    TABULATED_EVERY,
    simulate_releases,
)
from studies.inference.inference_figures import EXACT_FIGURES
from studies.inference.noisy_trials import LARGEST_AUGMENTED
from studies.inference.own_posteriors import compared_posterior
from studies.inference.page_tables import compare_chains
from studies.inference.uniformity import PIT_STATISTICS, RANK_STATISTICS, inference_panel

_JOINT_STATISTICS = tuple(
    replace(statistic, measure="joint") for statistic in PIT_STATISTICS if statistic.name in ("ks", "p")
)
_STATISTICS = (
    *PIT_STATISTICS,
    *RANK_STATISTICS,
    Statistic("least", "ess", "smallest effective sample size among the trials", np.min),
    Statistic("largest", "rhat", "largest split R-hat among the trials", np.max),
    Statistic(
        "stuck", "rhat", f"fraction of trials with split R-hat >= {LARGEST_RHAT}",
        lambda rhat: np.mean(rhat >= LARGEST_RHAT)),
    Statistic(
        "short", "ess", f"fraction of trials with an effective sample size below {ENOUGH_DRAWS}",
        lambda ess: np.mean(ess < ENOUGH_DRAWS)),
)  # fmt: skip
_MEASURES = (
    Measure("pit", "posterior quantile of the true parameter"),
    Measure("rank", "rank of the true parameter among 99 draws"),
    Measure("covered", "1 if the central 95 % interval contains the true parameter", event=True),
    Measure("width", "width of the central 95 % interval"),
    Measure("score", "interval score of the central 95 % interval; smaller is better"),
    Measure("distance", "distance of the distribution functions of draws and exact", ragged=True),
    Measure("rhat", "split R-hat of the chains; 1 for independent draws"),
    Measure("ess", "effective sample size of the mean among 2,000 draws"),
)
_THINNING = Measure("thinning", "iterations per draw; more than 1 if shorter chains did not suffice")
_JOINT = Measure("joint", "fraction of draws nearer to a random point than the true parameter")
_MEAN_WIDTH = Measure("mean_width", "mean of the widths over components")
_OUTSIDE = Factor("outside", ("drop", "clamp"), "contribution of a record outside the bounds", "str")


def _panel(
    name: str, meaning: str, family: str, methods: tuple[Method, ...], priors: tuple[tuple[float, ...], ...],
    n: tuple[int, ...], epsilon: tuple[float, ...], bounds: tuple[float, float] | None = None,
    noises: tuple[str, ...] = (), trials: int = 1_500, version: int = 4,
) -> Panel:  # fmt: skip
    is_vector = MODELS[family].n_components(priors[0]) > 1
    noise = (Factor("noise", noises, "distribution of the noise", "str", categories=tuple(NOISES)),) if noises else ()
    scalars = ((_JOINT,) if is_vector else ()) + ((_MEAN_WIDTH,) if family == "multinomial" else ())
    return inference_panel(
        name, meaning, family, partial(simulate_releases, family, name == "edge"), methods, _MEASURES, n=n,
        epsilon=epsilon, priors=priors, bounds=bounds, factors=noise if bounds is None else (*noise, _OUTSIDE),
        accepts={"posterior": partial(compared_posterior, family)}, scalars=(_THINNING, *scalars),
        largest=1_000 if name == "edge" else LARGEST_AUGMENTED, trials=trials,
        block_trials=min(trials, 100), version=version,
        statistics=(*_STATISTICS, *(_JOINT_STATISTICS if is_vector else ())))  # fmt: skip


_COUNT_METHODS = tuple(METHODS[name] for name in ("exact", "gibbs-exact", "data-augmentation", "gibbs"))
_AUGMENTATION, _MARGINAL = replace(METHODS["data-augmentation"], version=5), METHODS["marginal"]
_APPROXIMATE = (METHODS["gibbs-collapsed"], _MARGINAL)
_SPARSE = (1.0, 1.0), (1.0, 50.0), (0.5, 50.0)
_BOUNDED_MODELS = (  # family, model, prior, bounds, methods and version
    ("exponential", "Gamma-exponential model", (8.0, 2.0), (0.00633, 0.9222), _APPROXIMATE, 5),
    ("poisson", "Gamma-Poisson model", (8.0, 2.0), (1.0, 8.0), _APPROXIMATE, 5),
    ("normal", "normal model with known variance", (0.0, 1.0), (-2.0, 2.0), _APPROXIMATE, 5),
    # in version 4, records and squares were released in their own units
    ("normal-unknown-variance", "normal model with unknown mean and variance", (0.0, 1.0, 3.0, 2.0), (-2.0, 2.0), (),
     6),
)  # fmt: skip
PANELS = (
    _panel(
        "binomial", "Beta-binomial model, also with sparse data", "binomial", (*_COUNT_METHODS, _MARGINAL), _SPARSE,
        (10, 100, 1_000), (0.1, 1.0, 3.0)),
    _panel(
        "edge", "Beta-binomial model, the release y = 0", "binomial", (*_COUNT_METHODS, _MARGINAL), ((1.0, 1.0),),
        (100, 1_000, 10_000, 100_000, 1_000_000), (1.0,), trials=100),
    _panel(
        "multinomial-3", "Dirichlet-multinomial model with three categories and three kinds of noise", "multinomial",
        _COUNT_METHODS, ((0.5,) * 3,), (100,), (1.0, 3.0), noises=("laplace", "geometric", "k-norm"), version=8),
    _panel(
        "multinomial-10", "Dirichlet-multinomial model with ten categories and two kinds of noise", "multinomial",
        _COUNT_METHODS, ((0.5,) * 10,), (100,), (1.0,), noises=("laplace", "k-norm"), version=8),
    *(
        _panel(
            family, f"{model}, records dropped or clamped", family, (_AUGMENTATION, *others), (prior,), (10, 100),
            (1.0,), bounds, version=version)
        for family, model, prior, bounds, others, version in _BOUNDED_MODELS
    ),
)  # fmt: skip

_LEVEL = 1e-3
_LARGEST_SCALED = 1.95
"""Quantile 0.999 of the Kolmogorov distribution."""

_LARGE_VARIANCE, _NEGLIGIBLE = 20.0, 0.015
"""Variance, in squared counts, from which a normal approximation is accurate; excess of a distance that is ignored."""

_LARGEST_SHARE = 0.05
"""Accepted fraction of the trials of a cell whose chains are too short."""

_COUNTED, _BOUNDED = ("binomial", "multinomial-3", "multinomial-10"), ("exponential", "poisson", "normal")
_EXACT_METHODS = {
    **dict.fromkeys(_COUNTED, ("exact", "gibbs-exact", "data-augmentation")),
    **dict.fromkeys((*_BOUNDED, "normal-unknown-variance"), ("data-augmentation",)),
}


def _calibrated(panel: str, methods: tuple[str, ...]) -> Claim:
    @claim(
        f"exact-methods-are-calibrated-{panel}",
        f"Posterior quantiles and ranks of the exact methods are uniform (panel {panel}).",
        short=f"The exact methods are calibrated (panel {panel}).",
        needs={panel: {"n": (100, ...), "epsilon": (1.0, ...), "algorithm": methods}},
        kind="addition",
        min_trials=1_000,
    )
    @joined(separator=". ")
    def check(look: Look) -> Iterator[Finding]:
        for name in methods:
            finding = uniform(tested(look[panel].sel(algorithm=name)), _LEVEL / len(methods))
            yield replace(finding, evidence=f"{name}: {finding.evidence}")

    return check


@claim(
    short="Chains of the exact samplers are long enough, in all but a few trials.",
    kind="self-check",
    needs={"normal": {"n": (100, ...), "epsilon": (1.0, ...), "algorithm": ("data-augmentation",)}},
    also=_EXACT_METHODS,
)
@joined(
    "Fraction of trials with split R-hat >= 1.01, and with an effective sample size below 100, both included in all "
    f"statistics. {{}}. Fractions up to {_LARGEST_SHARE:.0%} and no errors are accepted."
)
def chains_are_long_enough(look: Look) -> Iterator[Finding]:
    """The chains of the exact samplers mix and are long enough, in all but a few trials."""
    for panel, ds in ((panel, look[panel]) for panel in _EXACT_METHODS if panel in look):
        for method in (name for name in _EXACT_METHODS[panel] if name in ds["algorithm"] and name != "exact"):
            part = ds.sel(algorithm=method)
            stuck, short, failed = part["rhat_stuck"].max(), part["ess_short"].max(), int(part["n_failed"].sum())
            yield verdict(
                max(stuck, short) <= _LARGEST_SHARE and failed == 0,
                f"{panel}, {method}: {stuck:.1%} and {short:.1%} of the trials of a cell at most, {failed} errors, "
                f"{part['thinning_mean'].max():.1f} times the iterations of the first chains",
            )


@p4(
    short="Gibbs with normal approximations is not calibrated for sparse data.",
    place="Algorithm 1",
    kind="addition",
    needs={"binomial": {"n": (100, 1_000, ...), "epsilon": (1.0, 3.0, ...), "algorithm": ("gibbs",)}},
    min_trials=1_000,
    min_values=1_000 // TABULATED_EVERY,
)
def normal_approximation_fails(look: Look) -> Finding:
    """The Gibbs sampler with normal approximations of the counts is not calibrated for sparse data."""
    part = look["binomial"].sel(algorithm="gibbs")
    finding = uniform({"quantiles": part["pit_p"]}, _LEVEL)
    distance = f"largest mean distance to the exact posterior {highest(part['distance_mean'], '.3f')}"
    return verdict(finding.verdict == "does not hold", f"gibbs: {finding.evidence}; {distance}.")


def _scaled_distance(summary: xr.Dataset, method: str) -> xr.DataArray:
    """Return the mean distance to the exact posterior times the square root of the mean effective sample size."""
    part = summary.sel(algorithm=method)
    return (part["distance_mean"] * np.sqrt(part["ess_mean"])).dropna("n", how="all")


@claim(
    short="For the release y = 0, the exact methods draw from the exact posterior.",
    kind="addition",
    needs={"edge": {"n": (100, 1_000, ...), "algorithm": ("gibbs-exact", "data-augmentation")}},
    min_values=100 // TABULATED_EVERY,
)
@joined(f"Mean distance times the root of the effective sample size, {{}}; at most {_LARGEST_SCALED} is allowed.")
def exact_at_the_edge(look: Look) -> Iterator[Finding]:
    """For the release y = 0, draws of the exact methods differ from the exact posterior by sampling error only."""
    names = ("gibbs-exact", "data-augmentation")
    for name, scaled in ((name, _scaled_distance(look["edge"], name)) for name in names):
        yield verdict(scaled.max() <= _LARGEST_SCALED, f"{name}: {span(scaled)} at n up to {int(scaled['n'].max()):,}")


@p4(
    short="For the release y = 0, the error of Gibbs does not decrease with the records.",
    place="Algorithm 1",
    kind="addition",
    needs={"edge": {"n": (100, 1_000_000, ...), "algorithm": ("gibbs", "exact")}},
    min_values=100 // TABULATED_EVERY,
)
def approximation_does_not_vanish(look: Look) -> Finding:
    """For the release y = 0, the error of the Gibbs sampler with normal approximations does not decrease with the
    number of records.
    """
    edge = look["edge"]["distance_mean"]
    distance = edge.sel(algorithm="gibbs").dropna("n", how="all")
    return verdict(
        distance.min() > 0.1 and distance.max() - distance.min() < 0.05,
        f"Mean distance to the exact posterior {span(distance, '.3f')} for n = {span(distance['n'], ',.0f')}; "
        f"independent exact draws: at most {edge.sel(algorithm='exact').max():.3f}.",
    )


def _augmentation_is_exact(panel: str) -> Claim:
    @claim(
        f"augmentation-is-exact-{panel}",
        "Draws by data augmentation differ from the exact posterior by sampling error only, with records dropped "
        f"or clamped (panel {panel}).",
        short=f"Data augmentation draws from the exact posterior (panel {panel}).",
        needs={panel: {"n": (10, 100), "outside": ("drop", "clamp"), "algorithm": ("data-augmentation", ...)}},
        kind="addition",
        min_values=1_000 // EXACT_EVERY,
    )
    def check(look: Look) -> Finding:
        part = look[panel]
        scaled = _scaled_distance(part, "data-augmentation")
        distances = part["distance_mean"].max({*part["distance_mean"].dims} - {"algorithm"})
        names = (name for name in ("data-augmentation", "gibbs-collapsed", "marginal") if name in part["algorithm"])
        return verdict(
            scaled.max() <= _LARGEST_SCALED,
            f"Mean distance times the root of the effective sample size {span(scaled)}; at most {_LARGEST_SCALED} is "
            f"allowed. Largest mean distance: {named(distances, names, '.3f', 'algorithm')}.",
        )

    return check


def _expected_variance(ds: xr.Dataset) -> xr.DataArray:
    """Return n·E[θ(1 − θ)] for the Beta prior: the mean variance of the count given θ."""
    shapes = np.array([entries(prior) for prior in ds["prior"].values])
    alpha, beta = shapes.T
    share = alpha * beta / ((alpha + beta) * (alpha + beta + 1.0))
    return ds["n"] * xr.DataArray(share, {"prior": ds["prior"]}, ("prior",))


def _in_binomial(*methods: str) -> dict[str, dict[str, Any]]:
    """Return the needs of a claim that methods are compared in the panel `binomial`."""
    return {"binomial": {"n": (10, 1_000, ...), "epsilon": (0.1, 3.0, ...), "algorithm": methods}}


def _suffices(look: Look, method: str, peer: str, noise_counts: bool) -> Finding:
    """Judge that `method` is as near as `peer` if the variance of the count, or of the noisy count, is large."""
    ds = look["binomial"]
    excess = ds["distance_mean"].sel(algorithm=method) - ds["distance_mean"].sel(algorithm=peer)
    variance = _expected_variance(ds) + (2.0 / ds["epsilon"] ** 2 if noise_counts else 0.0 * ds["epsilon"])
    large, small = excess.where(variance >= _LARGE_VARIANCE), excess.where(variance < _LARGE_VARIANCE)
    if not (large.count() and small.count()):
        return verdict(None, "The stored cells are all on one side of the rule.")
    return verdict(
        large.max() <= _NEGLIGIBLE < small.max(),
        f"Mean distance to the exact posterior, beyond that of {peer}: at most {highest(large, '.3f')} in "
        f"{int(large.count())} cells where the rule applies, and {highest(small, '.3f')} in the others; "
        f"up to {_NEGLIGIBLE} is negligible.",
    )


@p4(
    short="The marginal method is accurate if the noisy count has a variance of 20 or more.",
    place="section 3.2",
    kind="addition",
    needs=_in_binomial("marginal", "exact"),
)
def normal_approximation_suffices(look: Look) -> Finding:
    """For a Beta prior, marginal is accurate on average over releases if n·E[θ(1 − θ)] + 2/ε² >= 20, the expected
    variance of the noisy count, and not always below.
    """
    return _suffices(look, "marginal", "exact", noise_counts=True)


@p4(
    short="Gibbs is accurate if n·E[θ(1 − θ)] >= 20, and not always below.",
    place="Algorithm 1",
    kind="addition",
    needs=_in_binomial("gibbs", "gibbs-exact"),
)
def gibbs_needs_large_counts(look: Look) -> Finding:
    """For a Beta prior, gibbs is accurate on average over releases if n·E[θ(1 − θ)] >= 20, and not always below, also
    if the noise is large.
    """
    return _suffices(look, "gibbs", "gibbs-exact", noise_counts=False)


def _k_norm_is_narrower(panel: str) -> Claim:
    @p4(
        f"k-norm-is-narrower-{panel}",
        f"Posteriors given K-norm noise are narrower than given Laplace noise at equal epsilon (panel {panel}).",
        short=f"K-norm noise gives narrower posteriors than Laplace (panel {panel}).",
        place="section 2",
        kind="addition",
        needs={panel: {"n": (100, ...), "noise": ("laplace", "k-norm"), "algorithm": ("exact",)}},
    )
    def check(look: Look) -> Finding:
        ds = look[panel].sel(algorithm="exact")
        return smaller(ds, "mean_width", "k-norm", "laplace", look.critical(3))

    return check


CLAIMS = (
    *(_calibrated(panel, methods) for panel, methods in _EXACT_METHODS.items()),
    chains_are_long_enough,
    normal_approximation_fails,
    exact_at_the_edge,
    approximation_does_not_vanish,
    *map(_augmentation_is_exact, _BOUNDED),
    normal_approximation_suffices,
    gibbs_needs_large_counts,
    *map(_k_norm_is_narrower, _COUNTED[1:]),
)


STUDY = Study(
    name="exact-inference",
    papers=("P4",),
    title="Exact inference from private statistics",
    aim="Compare exact methods with normal approximations, for sparse counts and for dropped or clamped records.",
    panels=PANELS,
    seed=20_260_611,
    claims=CLAIMS,
    figures=EXACT_FIGURES,
    criteria=Criteria(
        uniform=("pit", "joint"),
        exact={panel.name: {} for panel in PANELS if panel.name != "edge"},  # its release is always 0
        loss=("score",),
        loss_in={"edge": "distance"},  # its parameters are from the prior, whatever the release
        covered="covered",
        width="width",
        distance="distance",
    ),
    comparisons=(compare_chains,),
    quick=Scale(
        trials=100,
        panels=("binomial", "edge", "exponential", "poisson", "normal"),
        values={
            "n": {"binomial": (10, 1_000), "edge": (100, 1_000, 1_000_000)},
            "epsilon": {"binomial": (0.1, 3.0)},
            "algorithm": {
                "binomial": ("exact", "marginal", "gibbs", "gibbs-exact"),
                **dict.fromkeys(("exponential", "poisson", "normal"), ("data-augmentation",)),
            },
        },
    ),
)
