"""Claims of the study `exact-inference`."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import xarray as xr

from pipeline import Claim, Finding, claim, verdict
from studies.claims import Stored, entries, highest, joined, named, p4, smaller, span, tested, uniform

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
        kind="addition",
        min_trials=1_000,
    )
    @joined(separator=". ")
    def check(summaries: Stored) -> Iterator[Finding]:
        summary = summaries.need(panel, n=(100,), epsilon=(1.0,), algorithm=methods)
        for name in methods:
            found = uniform(tested(summary.sel(algorithm=name)), _LEVEL / len(methods))
            yield replace(found, evidence=f"{name}: {found.evidence}")

    return check


@claim(kind="self-check")
@joined(
    "Fraction of trials with split R-hat >= 1.01, and with an effective sample size below 100, both included in all "
    f"statistics. {{}}. Fractions up to {_LARGEST_SHARE:.0%} and no errors are accepted."
)
def chains_are_long_enough(summaries: Stored) -> Iterator[Finding]:
    """The chains of the exact samplers mix and are long enough, in all but a few trials."""
    summaries.need("normal", n=(100,), epsilon=(1.0,), algorithm=("data-augmentation",))
    for panel, ds in ((panel, summaries[panel]) for panel in _EXACT_METHODS if panel in summaries):
        for method in (name for name in _EXACT_METHODS[panel] if name in ds["algorithm"] and name != "exact"):
            one = ds.sel(algorithm=method)
            stuck, short, failed = one["rhat_stuck"].max(), one["ess_short"].max(), int(one["n_failed"].sum())
            yield verdict(
                max(stuck, short) <= _LARGEST_SHARE and failed == 0,
                f"{panel}, {method}: {stuck:.1%} and {short:.1%} of the trials of a cell at most, {failed} errors, "
                f"{one['thinning_mean'].max():.1f} times the iterations of the first chains",
            )


@p4(place="Algorithm 1", kind="addition", min_trials=1_000)
def normal_approximation_fails(summaries: Stored) -> Finding:
    """The Gibbs sampler with normal approximations of the counts is not calibrated for sparse data."""
    one = summaries.need("binomial", n=(100, 1_000), epsilon=(1.0, 3.0), algorithm=("gibbs",)).sel(algorithm="gibbs")
    found = uniform({"quantiles": one["pit_p"]}, _LEVEL)
    distance = f"largest mean distance to the exact posterior {highest(one['distance_mean'], '.3f')}"
    return verdict(found.verdict == "does not hold", f"gibbs: {found.evidence}; {distance}.")


def _scaled_distance(summary: xr.Dataset, method: str) -> xr.DataArray:
    """Return the mean distance to the exact posterior times the square root of the mean effective sample size."""
    one = summary.sel(algorithm=method)
    return (one["distance_mean"] * np.sqrt(one["ess_mean"])).dropna("n", how="all")


@claim(kind="addition")
@joined(f"Mean distance times the root of the effective sample size, {{}}; at most {_LARGEST_SCALED} is allowed.")
def exact_at_the_edge(summaries: Stored) -> Iterator[Finding]:
    """For the release y = 0, draws of the exact methods differ from the exact posterior by sampling error only."""
    names = ("gibbs-exact", "data-augmentation")
    edge = summaries.need("edge", n=(100, 1_000), algorithm=names)
    for name, one in ((name, _scaled_distance(edge, name)) for name in names):
        yield verdict(one.max() <= _LARGEST_SCALED, f"{name}: {span(one)} at n up to {int(one['n'].max()):,}")


@p4(place="Algorithm 1", kind="addition")
def approximation_does_not_vanish(summaries: Stored) -> Finding:
    """For the release y = 0, the error of the Gibbs sampler with normal approximations does not decrease with the
    number of records.
    """
    edge = summaries.need("edge", n=(100, 1_000_000), algorithm=("gibbs", "exact"))["distance_mean"]
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
        kind="addition",
    )
    def check(summaries: Stored) -> Finding:
        one = summaries.need(panel, n=(10, 100), outside=("drop", "clamp"), algorithm=("data-augmentation",))
        scaled = _scaled_distance(one, "data-augmentation")
        distances = one["distance_mean"].max({*one["distance_mean"].dims} - {"algorithm"})
        names = (name for name in ("data-augmentation", "gibbs-collapsed", "marginal") if name in one["algorithm"])
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


def _suffices(summaries: Stored, method: str, peer: str, noise_counts: bool) -> Finding:
    """Judge that `method` is as near as `peer` if the variance of the count, or of the noisy count, is large."""
    ds = summaries.need("binomial", n=(10, 1_000), epsilon=(0.1, 3.0), algorithm=(method, peer))
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


@p4(place="section 3.2", kind="addition")
def normal_approximation_suffices(summaries: Stored) -> Finding:
    """For a Beta prior with n·E[θ(1 − θ)] + 2/ε² >= 20, the expected variance of the noisy count, the posterior from a
    normal approximation of its distribution (marginal) is accurate on average over releases. For smaller values it is
    not always.
    """
    return _suffices(summaries, "marginal", "exact", noise_counts=True)


@p4(place="Algorithm 1", kind="addition")
def gibbs_needs_large_counts(summaries: Stored) -> Finding:
    """For a Beta prior with n·E[θ(1 − θ)] >= 20, the Gibbs sampler with normal approximations is accurate on average
    over releases. For smaller values it is not always, also if the noise is large.
    """
    return _suffices(summaries, "gibbs", "gibbs-exact", noise_counts=False)


def _k_norm_is_narrower(panel: str) -> Claim:
    @p4(
        f"k-norm-is-narrower-{panel}",
        f"Posteriors given K-norm noise are narrower than given Laplace noise at equal epsilon (panel {panel}).",
        place="section 2",
        kind="addition",
    )
    def check(summaries: Stored) -> Finding:
        ds = summaries.need(panel, n=(100,), noise=("laplace", "k-norm"), algorithm=("exact",))
        return smaller(ds.sel(algorithm="exact"), "mean_width", "k-norm", "laplace", deviations=3)

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
