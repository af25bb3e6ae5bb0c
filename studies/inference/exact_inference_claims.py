"""Claims and figures of the study `exact-inference`."""

from typing import Any

import numpy as np
import xarray as xr

from pipeline import Figure, Finding, claim, verdict
from pipeline.declare.claims import Check
from pipeline.declare.factors import format_value
from studies.claims import Stored, Summaries, entries, span
from studies.inference.calibration_figures import draw_against_n, draw_ecdfs
from studies.styles import METHOD_STYLES

_LEVEL = 1e-3
_LARGEST_SCALED = 1.95
"""Quantile 0.999 of the Kolmogorov distribution."""

_LARGE_VARIANCE, _NEGLIGIBLE = 20.0, 0.015
"""Variance, in squared counts, from which a normal approximation is accurate; excess of a distance that is ignored."""

_LARGEST_SHARE = 0.05
"""Accepted fraction of the trials of a cell whose chains are too short."""

_EXACT_METHODS = {
    "binomial": ("exact", "gibbs-exact", "data-augmentation"),
    "multinomial-3": ("exact", "gibbs-exact", "data-augmentation"),
    "multinomial-10": ("exact", "gibbs-exact", "data-augmentation"),
    "exponential": ("data-augmentation",),
    "poisson": ("data-augmentation",),
    "normal": ("data-augmentation",),
    "normal-unknown-variance": ("data-augmentation",),
}


def _stacked(values: xr.DataArray) -> xr.DataArray:
    """Return the values in all cells to which the method applies, as one dimension."""
    return values.stack(cell=values.dims).dropna("cell")


def _describe(values: xr.DataArray, place: int) -> str:
    """Format the coordinates of the stacked value at index `place`, without the constants of the panel."""
    one = values.isel(cell=place)
    factors = ("n", "epsilon", "prior", "noise", "outside", "component")
    names = [name for name in factors if name in values.coords and values[name].dims]
    return ", ".join(f"{name} = {format_value(one[name].item())}" for name in names)


def _calibrated(panel: str, methods: tuple[str, ...]) -> Check:
    def check(summaries: Stored) -> Finding:
        holds, parts = True, []
        summary = summaries.need(panel, n=(100,), epsilon=(1.0,), algorithm=methods)
        for method in methods:
            one = summary.sel(algorithm=method)
            pit, rank = _stacked(one["pit_p"]), _stacked(one["rank_p"])
            joint = _stacked(one["joint_p"]) if "joint_p" in one else None
            n_tests = pit.size + rank.size + (0 if joint is None else joint.size)
            level = _LEVEL / (len(methods) * n_tests)
            least = int(np.argmin(pit.values))
            holds &= bool(pit.min() > level and rank.min() > level and (joint is None or joint.min() > level))
            together = "" if joint is None else f", {float(joint.min()):.2g} for joint coverage"
            parts.append(
                f"{method}: smallest p-value {float(pit.min()):.2g} ({_describe(pit, least)}) for quantiles, "
                f"{float(rank.min()):.2g} for ranks{together}, values above {level:.1g} are accepted"
            )
        return verdict(holds, f"{'. '.join(parts)}.")

    return check


def _chains_suffice(summaries: Stored) -> Finding:
    summaries.need("normal", n=(100,), epsilon=(1.0,), algorithm=("data-augmentation",))
    holds, parts = True, []
    for panel, methods in _EXACT_METHODS.items():
        for method in methods:
            if panel not in summaries or method == "exact" or method not in summaries[panel]["algorithm"]:
                continue
            one = summaries[panel].sel(algorithm=method)
            stuck, short = float(one["rhat_stuck"].max()), float(one["ess_short"].max())
            failed = int(one["n_failed"].sum())
            holds &= stuck <= _LARGEST_SHARE and short <= _LARGEST_SHARE and failed == 0
            parts.append(
                f"{panel}, {method}: {stuck:.1%} and {short:.1%} of the trials of a cell at most, {failed} errors, "
                f"{float(one['thinning_mean'].max()):.1f} times the iterations of the first chains"
            )
    return verdict(
        holds,
        "Fraction of trials with split R-hat >= 1.01, and with an effective sample size below 100, both included in "
        f"all statistics. {'; '.join(parts)}. Fractions up to {_LARGEST_SHARE:.0%} and no errors are accepted.",
    )


def _approximation_fails(summaries: Stored) -> Finding:
    one = summaries.need("binomial", n=(100, 1_000), epsilon=(1.0, 3.0), algorithm=("gibbs",)).sel(algorithm="gibbs")
    pit, distance = _stacked(one["pit_p"]), _stacked(one["distance_mean"])
    worst, farthest = int(np.argmin(pit.values)), int(np.argmax(distance.values))
    return verdict(
        bool(pit.min() < _LEVEL / pit.size),
        f"gibbs: smallest p-value {float(pit.min()):.2g} ({_describe(pit, worst)}); largest mean distance to the exact "
        f"posterior {float(distance.max()):.3f} ({_describe(distance, farthest)}).",
    )


def _scaled_distance(summary: xr.Dataset, method: str) -> xr.DataArray:
    """Return the mean distance to the exact posterior times the square root of the mean effective sample size."""
    one = summary.sel(algorithm=method)
    return _stacked(one["distance_mean"] * np.sqrt(one["ess_mean"]))


def _exact_at_the_edge(summaries: Stored) -> Finding:
    names = ("gibbs-exact", "data-augmentation")
    edge = summaries.need("edge", n=(100, 1_000), algorithm=names)
    found = {method: _scaled_distance(edge, method) for method in names}
    text = "; ".join(
        f"{method}: {span(scaled, '.2f')} at n up to {int(scaled['n'].max()):,}" for method, scaled in found.items()
    )
    return verdict(
        all(bool(scaled.max() <= _LARGEST_SCALED) for scaled in found.values()),
        f"Mean distance times the root of the effective sample size, {text}; at most {_LARGEST_SCALED} is allowed.",
    )


def _approximate_at_the_edge(summaries: Stored) -> Finding:
    edge = summaries.need("edge", n=(100, 1_000_000), algorithm=("gibbs", "exact"))
    distance, exact = (_stacked(edge["distance_mean"].sel(algorithm=name)) for name in ("gibbs", "exact"))
    return verdict(
        bool(distance.min() > 0.1 and float(distance.max() - distance.min()) < 0.05),
        f"Mean distance to the exact posterior {span(distance, '.3f')} for n from "
        f"{int(distance['n'].min()):,} to {int(distance['n'].max()):,}; independent exact draws: at most "
        f"{float(exact.max()):.3f}.",
    )


def _augmentation_is_exact(panel: str) -> Check:
    def check(summaries: Stored) -> Finding:
        one = summaries.need(panel, n=(10, 100), outside=("drop", "clamp"), algorithm=("data-augmentation",))
        scaled = _scaled_distance(one, "data-augmentation")
        others = ", ".join(
            f"{method} {float(_stacked(one['distance_mean'].sel(algorithm=method)).max()):.3f}"
            for method in ("data-augmentation", "gibbs-collapsed", "marginal")
            if method in one["algorithm"]
        )
        return verdict(
            bool(scaled.max() <= _LARGEST_SCALED),
            f"Mean distance times the root of the effective sample size {span(scaled, '.2f')}; at most "
            f"{_LARGEST_SCALED} is allowed. Largest mean distance: {others}.",
        )

    return check


def _expected_variance(ds: xr.Dataset) -> xr.DataArray:
    """Return n·E[θ(1 − θ)] for the Beta prior: the mean variance of the count given θ."""
    shapes = np.array([entries(prior) for prior in ds["prior"].values])
    alpha, beta = shapes.T
    share = alpha * beta / ((alpha + beta) * (alpha + beta + 1.0))
    return ds["n"] * xr.DataArray(share, {"prior": ds["prior"]}, ("prior",))


def _approximation_suffices(method: str, peer: str, noise_counts: bool) -> Check:
    """Return the check that the mean distance of `method` exceeds that of `peer` only if a variance is small.

    The variance is that of the count given θ, or, with `noise_counts`, that of the noisy count.
    """

    def check(summaries: Stored) -> Finding:
        ds = summaries.need("binomial", n=(10, 1_000), epsilon=(0.1, 3.0), algorithm=(method, peer))
        excess = ds["distance_mean"].sel(algorithm=method) - ds["distance_mean"].sel(algorithm=peer)
        variance = _expected_variance(ds) + (2.0 / ds["epsilon"] ** 2 if noise_counts else 0.0 * ds["epsilon"])
        large = _stacked(excess.where(variance >= _LARGE_VARIANCE))
        small = _stacked(excess.where(variance < _LARGE_VARIANCE))
        if not (large.size and small.size):
            return verdict(None, "The stored cells are all on one side of the rule.")
        good, poor = int(np.argmax(large.values)), int(np.argmax(small.values))
        return verdict(
            bool(large.max() <= _NEGLIGIBLE < small.max()),
            f"Mean distance to the exact posterior, beyond that of {peer}: at most {float(large.max()):.3f} "
            f"({_describe(large, good)}) in the {large.size} cells where the rule applies, and up to "
            f"{float(small.max()):.3f} ({_describe(small, poor)}) in the others; up to {_NEGLIGIBLE} is negligible.",
        )

    return check


def _k_norm_is_narrower(panel: str) -> Check:
    def check(summaries: Stored) -> Finding:
        ds = summaries.need(panel, n=(100,), noise=("laplace", "k-norm"), algorithm=("exact",)).sel(algorithm="exact")
        relative = ds["mean_width_mcse"] / ds["mean_width_mean"]
        ratio = ds["mean_width_mean"].sel(noise="k-norm") / ds["mean_width_mean"].sel(noise="laplace")
        error = ratio * np.hypot(relative.sel(noise="k-norm"), relative.sel(noise="laplace"))
        ratios = _stacked(ratio)
        least, most = int(np.argmin(ratios.values)), int(np.argmax(ratios.values))
        found = (
            f"Ratio of mean widths of 95 % intervals, k-norm to laplace: {float(ratios.min()):.3f} "
            f"({_describe(ratios, least)}) to {float(ratios.max()):.3f} ({_describe(ratios, most)})."
        )
        narrower, wider = bool((ratio < 1 - 3 * error).all()), bool((ratio > 1 + 3 * error).any())
        if not (narrower or wider):
            return Finding("undecided", f"{found} Three standard errors are up to {3 * float(error.max()):.3f}.")
        return verdict(narrower, found)

    return check


CLAIMS = (
    *(
        claim(
            f"exact-methods-are-calibrated-{panel}",
            f"Posterior quantiles and ranks of the exact methods are uniform (panel {panel}).",
            kind="addition",
            min_trials=1_000,
        )(_calibrated(panel, methods))
        for panel, methods in _EXACT_METHODS.items()
    ),
    claim(
        "chains-are-long-enough",
        "The chains of the exact samplers mix and are long enough, in all but a few trials.",
        kind="self-check",
    )(_chains_suffice),
    claim(
        "normal-approximation-fails",
        "The Gibbs sampler with normal approximations of the counts is not calibrated for sparse data.",
        paper="P4",
        place="Algorithm 1",
        kind="addition",
        min_trials=1_000,
    )(_approximation_fails),
    claim(
        "exact-at-the-edge",
        "For the release y = 0, draws of the exact methods differ from the exact posterior by sampling error only.",
        kind="addition",
    )(_exact_at_the_edge),
    claim(
        "approximation-does-not-vanish",
        "For the release y = 0, the error of the Gibbs sampler with normal approximations does not decrease with the "
        "number of records.",
        paper="P4",
        place="Algorithm 1",
        kind="addition",
    )(_approximate_at_the_edge),
    *(
        claim(
            f"augmentation-is-exact-{panel}",
            "Draws by data augmentation differ from the exact posterior by sampling error only, with records dropped "
            f"or clamped (panel {panel}).",
            kind="addition",
        )(_augmentation_is_exact(panel))
        for panel in ("exponential", "poisson", "normal")
    ),
    claim(
        "normal-approximation-suffices",
        "For a Beta prior with n·E[θ(1 − θ)] + 2/ε² >= 20, the expected variance of the noisy count, the posterior "
        "from a normal approximation of its distribution (marginal) is accurate on average over releases. For smaller "
        "values it is not always.",
        paper="P4",
        place="section 3.2",
        kind="addition",
    )(_approximation_suffices("marginal", "exact", noise_counts=True)),
    claim(
        "gibbs-needs-large-counts",
        "For a Beta prior with n·E[θ(1 − θ)] >= 20, the Gibbs sampler with normal approximations is accurate on "
        "average over releases. For smaller values it is not always, also if the noise is large.",
        paper="P4",
        place="Algorithm 1",
        kind="addition",
    )(_approximation_suffices("gibbs", "gibbs-exact", noise_counts=False)),
    *(
        claim(
            f"k-norm-is-narrower-{panel}",
            f"Posteriors given K-norm noise are narrower than given Laplace noise at equal epsilon (panel {panel}).",
            paper="P4",
            place="section 2",
            kind="addition",
        )(_k_norm_is_narrower(panel))
        for panel in ("multinomial-3", "multinomial-10")
    ),
)


# Figures


def _draw_distances(summaries: Summaries) -> Any:
    binomial = summaries["binomial"]
    parts = {f"Beta({prior.replace(':', ', ')})": binomial.sel(prior=prior) for prior in binomial["prior"].values}
    return draw_against_n(parts, "distance", "distance to the exact posterior", METHOD_STYLES)


def _draw_edge(summaries: Summaries) -> Any:
    ylabel = "distance to the exact posterior"
    return draw_against_n({"Beta(1, 1), y = 0": summaries["edge"]}, "distance", ylabel, METHOD_STYLES)


def _draw_ecdfs(summaries: Summaries) -> Any:
    sparse = summaries["binomial"].isel(prior=slice(1, None)).sel(n=100, epsilon=3.0, method="nearest")
    at = f"n = {sparse['n'].item():,}, ε = {sparse['epsilon'].item():g}"
    parts = {f"Beta({prior.replace(':', ', ')}), {at}": sparse.sel(prior=prior) for prior in sparse["prior"].values}
    return draw_ecdfs(parts, "pit_ecdf", "level", METHOD_STYLES)


FIGURES = (
    Figure(
        "distances",
        "Distance to the exact posterior, binomial model",
        "Mean largest difference between the distribution function of 2,000 draws and the exact one against the number "
        "of records, with one row per prior and one column per privacy loss. Independent draws (exact) have the "
        "distance of sampling error alone.",
        ("binomial",),
        _draw_distances,
    ),
    Figure(
        "edge",
        "Distance to the exact posterior at y = 0",
        "Mean largest difference between the distribution function of 2,000 draws and the exact one at the release "
        "y = 0, uniform prior, ε = 1. The distance of methods with a normal approximation does not decrease with the "
        "number of records.",
        ("edge",),
        _draw_edge,
    ),
    Figure(
        "quantiles",
        "Posterior quantiles for sparse data",
        "Empirical distribution function of the posterior quantiles of the true parameter, at the stored values that "
        "are nearest to 100 records and ε = 3. The grey band is a simultaneous 95 % band for a calibrated method.",
        ("binomial",),
        _draw_ecdfs,
        claims=("exact-methods-are-calibrated-binomial",),
    ),
)
