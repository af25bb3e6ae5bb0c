"""What P4 concludes of its methods, as checks over the stored results of the study `calibration`, and its figures."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import xarray as xr

from pipeline import Claim, Figure, Finding
from pipeline.declare.factors import format_value
from studies.styles import METHOD_STYLES

_LEVEL = 0.01
LARGEST_RHAT = 1.05
"""Split R-hat above which the chains of a trial are said to disagree."""

_EXPONENTIAL = ("exponential", "exponential-wide", "exponential-paper-bounds")
_AS_PRINTED = {"binomial": "gibbs", "multinomial": "gibbs", **dict.fromkeys(_EXPONENTIAL, "gibbs-published")}
_PANEL_NAMES = tuple(_AS_PRINTED)


def _describe(one: xr.DataArray) -> str:
    """Name the cell of a scalar."""
    names = [name for name in ("n", "epsilon", "component") if name in one.coords]
    return ", ".join(f"{name} = {format_value(one[name].item())}" for name in names)


def _extreme(values: xr.DataArray, largest: bool = True) -> xr.DataArray:
    """Return the largest or the smallest value, as a scalar that knows its cell."""
    flat = values.stack(cell=values.dims)
    return flat.isel(cell=int(np.argmax(flat.values) if largest else np.argmin(flat.values)))


def _is_calibrated(summary: xr.Dataset, method: str) -> tuple[bool, str]:
    """Test the quantiles and the ranks of every cell, with Bonferroni's correction for their number."""
    one = summary.sel({"method": method})
    level = _LEVEL / (2 * one["quantile_p"].size)
    least, rank = _extreme(one["quantile_p"], largest=False), _extreme(one["rank_p"], largest=False)
    text = (
        f"KS distance {float(one['quantile_ks'].min()):.3f} to {float(one['quantile_ks'].max()):.3f}; smallest p-value "
        f"{float(least):.2g} ({_describe(least)}), of uniform ranks {float(rank):.2g} ({_describe(rank)}), both to be "
        f"above {level:.2g}"
    )
    if one["rhat_stuck"].notnull().any():
        text += (
            f"; split R-hat above {LARGEST_RHAT} in up to {float(one['rhat_stuck'].max()):.1%} of a cell's trials, "
            f"effective sample size down to {float(one['ess_least'].min()):.0f}"
        )
    return bool(least > level and rank > level), text


def _calibrated(panel: str, method: str) -> Callable[[Mapping[str, xr.Dataset]], Finding]:
    def check(summaries: Mapping[str, xr.Dataset]) -> Finding:
        holds, text = _is_calibrated(summaries[panel], method)
        return Finding("reproduced" if holds else "not reproduced", f"{method}: {text}.")

    return check


def _over_confident(panel: str, method: str) -> Callable[[Mapping[str, xr.Dataset]], Finding]:
    """At the smallest n and epsilon too many quantiles are extreme, and at the largest the method is calibrated."""

    def check(summaries: Mapping[str, xr.Dataset]) -> Finding:
        one = summaries[panel].sel({"method": method})
        small, large = one.isel(n=0, epsilon=0), one.isel(n=-1, epsilon=-1)
        over = bool((small["quantile_tails"] > 0.1 + 5 * np.sqrt(0.09 / small["n_ok"])).all())
        right = bool((large["quantile_p"] > _LEVEL / large["quantile_p"].size).all())
        extreme, least = float(small["quantile_tails"].max()), float(large["quantile_p"].min())
        return Finding(
            "reproduced" if over and right else "not reproduced",
            f"{method}: {extreme:.0%} of the quantiles outside [0.05, 0.95], where 10% belong, at the smallest n and "
            f"epsilon; KS distance {float(large['quantile_ks'].max()):.3f} (p {least:.2g}) at the largest.",
        )

    return check


def _ops_is_over_dispersed(summaries: Mapping[str, xr.Dataset]) -> Finding:
    tails = {name: summaries["binomial"]["quantile_tails"].sel({"method": name}) for name in ("ops", "ops-likelihood")}
    limit = 0.1 - 5 * np.sqrt(0.09 / summaries["binomial"]["n_ok"].sel({"method": "ops"}))
    if not bool((limit > 0).all()):
        return Finding("undecided", "Too few trials to tell a share of quantiles below 10% from 10%; 250 are enough.")
    n_over = int((tails["ops"] < limit).sum())
    both = []
    for name, each in tails.items():
        far = summaries["binomial"]["quantile_ks"].sel({"method": name})
        both.append(
            f"{name}: KS distance {float(far.min()):.3f} to {float(far.max()):.3f}, "
            f"{float(each.min()):.1%} to {float(each.max()):.1%} of quantiles outside [0.05, 0.95], where 10% belong"
        )
    return Finding(
        "reproduced" if n_over == tails["ops"].size else "not reproduced",
        f"Over-dispersed in {n_over} of {tails['ops'].size} cells. {'; '.join(both)}.",
    )


def _nearer(panel: str, gibbs: str, method: str) -> Callable[[Mapping[str, xr.Dataset]], Finding]:
    def check(summaries: Mapping[str, xr.Dataset]) -> Finding:
        ds = summaries[panel]
        gap = ds["mmd2_mean"].sel({"method": gibbs}) - ds["mmd2_mean"].sel({"method": method})
        error = np.hypot(ds["mmd2_mcse"].sel({"method": gibbs}), ds["mmd2_mcse"].sel({"method": method}))
        behind = gap > 3 * error
        worst = _extreme(gap)
        n_nearer = int((gap < 0).sum())
        text = f"{gibbs} is nearer to the non-private posterior than {method} in {n_nearer} of {gap.size} cells"
        if behind.any():
            text += f", clearly behind in {int(behind.sum())}, by MMD^2 {float(worst):.2g} at {_describe(worst)}"
        return Finding("not reproduced" if behind.any() else "reproduced", f"{text}.")

    return check


def _bounds_hide_it(summaries: Mapping[str, xr.Dataset]) -> Finding:
    wide, own = summaries["exponential-wide"], summaries["exponential-paper-bounds"]
    fails, _ = _is_calibrated(wide, "gibbs-published")
    passes, _ = _is_calibrated(own, "gibbs-published")
    ks, p = (wide[name].sel(n=1_000, epsilon=0.1) for name in ("quantile_ks", "quantile_p"))
    names = ("gibbs-published", "gibbs", "gibbs-collapsed", "marginal")
    listed = ", ".join(
        f"{name} {float(ks.sel({'method': name})):.3f} (p {float(p.sel({'method': name})):.1g})" for name in names
    )
    seen = float(own["quantile_ks"].sel(n=1_000, epsilon=0.1).sel({"method": "gibbs-published"}))
    return Finding(
        "reproduced" if passes and not fails else "not reproduced",
        f"KS distance at n = 1,000, epsilon = 0.1 with public bounds: {listed}; gibbs-published with bounds from the "
        f"true parameter {seen:.3f}.",
    )


def _needs(panel: str, *methods: str) -> dict[str, dict[str, tuple[Any, ...]]]:
    """Need the ends of the published grid: a verdict is on every size and privacy loss between them."""
    return {panel: {"n": (10, 100_000), "epsilon": (0.01, 0.1), "method": methods}}


def _source(panel: str) -> str:
    """Where P4 concludes it; the panel with wider bounds is not its own."""
    return "this laboratory, on P4's section 5" if panel == "exponential-wide" else "P4, section 5"


CLAIMS = (
    *(
        Claim(
            f"gibbs-is-calibrated-{panel}",
            f"The Gibbs sampler, as printed, is calibrated at every size and privacy loss ({panel}).",
            _source(panel),
            _needs(panel, method),
            _calibrated(panel, method),
        )
        for panel, method in _AS_PRINTED.items()
    ),
    Claim(
        "bounds-hide-it",
        "Bounds from the trial's true parameter hide that the sampler as printed is not calibrated.",
        "this laboratory, on P4's experiment",
        {
            panel: {
                "n": (1_000,),
                "epsilon": (0.1,),
                "method": ("gibbs-published", "gibbs", "gibbs-collapsed", "marginal"),
            }
            for panel in ("exponential-wide", "exponential-paper-bounds")
        },
        _bounds_hide_it,
    ),
    *(
        Claim(
            f"naive-is-over-confident-{panel}",
            f"The naive method is over-confident at small n and epsilon, and calibrated at large ones ({panel}).",
            _source(panel),
            _needs(panel, "naive"),
            _over_confident(panel, "naive"),
        )
        for panel in _AS_PRINTED
    ),
    Claim(
        "ops-is-over-dispersed",
        "One-posterior sampling is over-dispersed.",
        "P4, section 5",
        _needs("binomial", "ops", "ops-likelihood"),
        _ops_is_over_dispersed,
    ),
    *(
        Claim(
            f"utility-{panel}",
            f"Gibbs posteriors are at least as near to the non-private posterior as naive ones, in MMD ({panel}).",
            _source(panel),
            _needs(panel, method, "naive"),
            _nearer(panel, method, "naive"),
        )
        for panel, method in _AS_PRINTED.items()
    ),
    *(
        claim
        for panel in _EXPONENTIAL
        for claim in (
            Claim(
                f"naive-recovers-{panel}",
                f"Given what a private release holds, the naive method is over-confident at small n and epsilon and "
                f"calibrated at large ones, too ({panel}).",
                "this laboratory, on P4's section 5",
                _needs(panel, "naive-truncated"),
                _over_confident(panel, "naive-truncated"),
            ),
            Claim(
                f"utility-of-release-{panel}",
                f"Gibbs posteriors are at least as near to the non-private posterior as naive ones that see a private "
                f"release, in MMD ({panel}).",
                "this laboratory, on P4's section 5",
                _needs(panel, "gibbs", "naive-truncated"),
                _nearer(panel, "gibbs", "naive-truncated"),
            ),
            Claim(
                f"repaired-{panel}",
                f"The joint distribution of the regions and the sum's full conditional make it calibrated ({panel}).",
                "this laboratory",
                _needs(panel, "gibbs"),
                _calibrated(panel, "gibbs"),
            ),
            Claim(
                f"collapsed-{panel}",
                f"With a Metropolis move between the modes of the posterior it is calibrated ({panel}).",
                "this laboratory",
                _needs(panel, "gibbs-collapsed"),
                _calibrated(panel, "gibbs-collapsed"),
            ),
        )
    ),
    *(
        Claim(
            f"marginal-{panel}",
            f"The posterior with the statistic integrated out is calibrated at every size and privacy loss ({panel}).",
            "this laboratory",
            _needs(panel, "marginal"),
            _calibrated(panel, "marginal"),
        )
        for panel in ("binomial", *_EXPONENTIAL)
    ),
    *(
        Claim(
            f"control-{panel}",
            f"The posterior given the records is calibrated: simulation and tests are right ({panel}).",
            "check of this study",
            _needs(panel, "non-private"),
            _calibrated(panel, "non-private"),
        )
        for panel in _AS_PRINTED
    ),
)


# Figures


def _parts(summaries: Mapping[str, xr.Dataset]) -> dict[str, xr.Dataset]:
    """Return the panels, the multinomial by its first component."""
    return {name: ds.isel(component=0) if "component" in ds.dims else ds for name, ds in summaries.items()}


def _nearest(ds: xr.Dataset, n: int, epsilon: float) -> xr.Dataset:
    """Return the stored cell that is nearest to the one a figure is about."""
    return ds.sel(n=n, epsilon=epsilon, method="nearest")


def _draw_distances(summaries: Mapping[str, xr.Dataset]) -> Any:
    from studies.inference.calibration_figures import draw_against_n

    def limit(ds: xr.Dataset) -> float:
        return float(1.6276 / np.sqrt(ds["n_ok"].min()))  # the 99 % point of Kolmogorov's distribution

    ylabel = "KS distance of the quantiles to the uniform distribution"
    return draw_against_n(_parts(summaries), "quantile_ks", ylabel, METHOD_STYLES, log=True, limit=limit)


def _draw_mmd(summaries: Mapping[str, xr.Dataset]) -> Any:
    from studies.inference.calibration_figures import draw_against_n

    private = {name: ds.drop_sel(method="non-private", errors="ignore") for name, ds in _parts(summaries).items()}
    return draw_against_n(private, "mmd2", "MMD² to the non-private posterior", METHOD_STYLES, log=True)


def _draw_ranks(summaries: Mapping[str, xr.Dataset]) -> Any:
    from studies.inference.calibration_figures import draw_ranks

    shown = ("gibbs", "gibbs-collapsed", "gibbs-published", "marginal", "exact", "non-private")
    parts = {}
    for name, ds in _parts(summaries).items():
        kept = [method for method in ds["method"].values.tolist() if method in shown]
        parts[name] = _nearest(ds, 10_000, 0.1).sel({"method": kept})
    return draw_ranks(parts, "rank_histogram", "rank_bin", METHOD_STYLES)


def _draw_ecdfs(summaries: Mapping[str, xr.Dataset]) -> Any:
    from studies.inference.calibration_figures import draw_ecdfs

    parts = {name: _nearest(ds, 1_000, 0.01) for name, ds in _parts(summaries).items()}
    return draw_ecdfs(parts, "quantile_ecdf", "level", METHOD_STYLES)


FIGURES = (
    Figure(
        "distances",
        "Distance of posterior quantiles to the uniform distribution",
        "Kolmogorov-Smirnov distance of the posterior quantiles of the true parameter to the uniform distribution, against the "
        "number of records, one row a model and one column a privacy loss; the multinomial by its first category. A "
        "calibrated method stays within the grey band in 99 of 100 cells.",
        _PANEL_NAMES,
        _draw_distances,
    ),
    Figure(
        "quantiles",
        "Posterior quantiles at 1,000 records and ε = 0.01",
        "Empirical distribution function of the posterior quantiles of the true parameter. The band holds 95 % of all "
        "functions of a calibrated method. Steep ends: over-confident; a steep middle: over-dispersed.",
        _PANEL_NAMES,
        _draw_ecdfs,
    ),
    Figure(
        "ranks",
        "Ranks of the true parameter at 10,000 records and ε = 0.1",
        "Share of trials in which the rank of the true parameter among 99 draws lies in each of 20 bins, without the "
        "naive methods and one-posterior sampling. A calibrated method stays within the grey band in 99 of 100 bins. "
        "Draws of chains are about 100 iterations apart, and not independent where chains move slowly.",
        _PANEL_NAMES,
        _draw_ranks,
    ),
    Figure(
        "utility",
        "MMD² to the non-private posterior",
        "Mean unbiased squared maximum mean discrepancy between draws of each posterior and of the non-private one, "
        "with two Monte Carlo standard errors either way; values that are not positive are not shown.",
        _PANEL_NAMES,
        _draw_mmd,
    ),
)
