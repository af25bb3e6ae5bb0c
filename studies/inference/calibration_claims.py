"""Claims and figures of the study `calibration` (P4)."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import xarray as xr

from pipeline import Erratum, Figure, Finding, claim, verdict
from pipeline.declare.claims import Kind
from pipeline.declare.factors import format_value
from studies.styles import METHOD_STYLES

_LEVEL = 0.01
LARGEST_RHAT = 1.05
"""Split R-hat above which the chains of a trial have not converged."""

_EXPONENTIAL = ("exponential", "exponential-wide", "exponential-paper-bounds")
_AS_PRINTED = {"binomial": "gibbs", "multinomial": "gibbs", **dict.fromkeys(_EXPONENTIAL, "gibbs-published")}
_PANEL_NAMES = tuple(_AS_PRINTED)


def _describe(one: xr.DataArray) -> str:
    """Format the coordinates of a scalar."""
    names = [name for name in ("n", "epsilon", "component") if name in one.coords]
    return ", ".join(f"{name} = {format_value(one[name].item())}" for name in names)


def _extreme(values: xr.DataArray, largest: bool = True) -> xr.DataArray:
    """Return the largest or the smallest value as a scalar with its coordinates."""
    flat = values.stack(cell=values.dims)
    return flat.isel(cell=int(np.argmax(flat.values) if largest else np.argmin(flat.values)))


def _is_calibrated(summary: xr.Dataset, method: str) -> tuple[bool, str]:
    """Test the quantiles and the ranks of every cell, with a Bonferroni correction."""
    one = summary.sel(algorithm=method)
    level = _LEVEL / (2 * one["pit_p"].size)
    least, rank = _extreme(one["pit_p"], largest=False), _extreme(one["rank_p"], largest=False)
    text = (
        f"KS distance {float(one['pit_ks'].min()):.3f} to {float(one['pit_ks'].max()):.3f}; smallest p-value "
        f"{float(least):.2g} ({_describe(least)}) for quantiles and {float(rank):.2g} ({_describe(rank)}) for ranks; "
        f"values above {level:.2g} are accepted"
    )
    if one["rhat_stuck"].notnull().any():
        text += (
            f"; split R-hat above {LARGEST_RHAT} in up to {float(one['rhat_stuck'].max()):.1%} of the trials of a "
            f"cell, smallest effective sample size {float(one['ess_least'].min()):.0f}"
        )
    return bool(least > level and rank > level), text


def _calibrated(panel: str, method: str) -> Callable[[Mapping[str, xr.Dataset]], Finding]:
    def check(summaries: Mapping[str, xr.Dataset]) -> Finding:
        holds, text = _is_calibrated(summaries[panel], method)
        return verdict(holds, f"{method}: {text}.")

    return check


def _over_confident(panel: str, method: str) -> Callable[[Mapping[str, xr.Dataset]], Finding]:
    """Return a check of too many extreme quantiles at the smallest n and ε, and of calibration at the largest."""

    def check(summaries: Mapping[str, xr.Dataset]) -> Finding:
        one = summaries[panel].sel(algorithm=method)
        small, large = one.isel(n=0, epsilon=0), one.isel(n=-1, epsilon=-1)
        over = bool((small["pit_tails"] > 0.1 + 5 * np.sqrt(0.09 / small["n_ok"])).all())
        right = bool((large["pit_p"] > _LEVEL / large["pit_p"].size).all())
        extreme, least = float(small["pit_tails"].max()), float(large["pit_p"].min())
        return verdict(
            over and right,
            f"{method}: {extreme:.0%} of the quantiles outside [0.05, 0.95] (10% if calibrated) at the smallest n and "
            f"epsilon; KS distance {float(large['pit_ks'].max()):.3f} (p = {least:.2g}) at the largest.",
        )

    return check


def _ops_is_over_dispersed(summaries: Mapping[str, xr.Dataset]) -> Finding:
    tails = {name: summaries["binomial"]["pit_tails"].sel(algorithm=name) for name in ("ops", "ops-likelihood")}
    limit = 0.1 - 5 * np.sqrt(0.09 / summaries["binomial"]["n_ok"].sel(algorithm="ops"))
    if not bool((limit > 0).all()):
        return Finding("undecided", "Too few trials to detect over-dispersion; at least 250 are needed.")
    n_over = int((tails["ops"] < limit).sum())
    both = []
    for name, each in tails.items():
        far = summaries["binomial"]["pit_ks"].sel(algorithm=name)
        both.append(
            f"{name}: KS distance {float(far.min()):.3f} to {float(far.max()):.3f}, "
            f"{float(each.min()):.1%} to {float(each.max()):.1%} of quantiles outside [0.05, 0.95] (10% if calibrated)"
        )
    return verdict(
        n_over == tails["ops"].size,
        f"Over-dispersed in {n_over} of {tails['ops'].size} cells. {'; '.join(both)}.",
    )


def _nearer(panel: str, gibbs: str, method: str) -> Callable[[Mapping[str, xr.Dataset]], Finding]:
    def check(summaries: Mapping[str, xr.Dataset]) -> Finding:
        ds = summaries[panel]
        gap = ds["mmd2_mean"].sel(algorithm=gibbs) - ds["mmd2_mean"].sel(algorithm=method)
        error = np.hypot(ds["mmd2_mcse"].sel(algorithm=gibbs), ds["mmd2_mcse"].sel(algorithm=method))
        behind = gap > 3 * error
        worst = _extreme(gap)
        n_nearer = int((gap < 0).sum())
        text = f"{gibbs} has a smaller MMD^2 than {method} in {n_nearer} of {gap.size} cells"
        if behind.any():
            text += f"; significantly larger in {int(behind.sum())}, by up to {float(worst):.2g} at {_describe(worst)}"
        return verdict(not behind.any(), f"{text}.")

    return check


def _bounds_hide_it(summaries: Mapping[str, xr.Dataset]) -> Finding:
    wide, own = summaries["exponential-wide"], summaries["exponential-paper-bounds"]
    fails, _ = _is_calibrated(wide, "gibbs-published")
    passes, _ = _is_calibrated(own, "gibbs-published")
    ks, p = (wide[name].sel(n=1_000, epsilon=0.1) for name in ("pit_ks", "pit_p"))
    names = ("gibbs-published", "gibbs", "gibbs-collapsed", "marginal")
    listed = ", ".join(
        f"{name} {float(ks.sel(algorithm=name)):.3f} (p = {float(p.sel(algorithm=name)):.1g})" for name in names
    )
    seen = float(own["pit_ks"].sel(n=1_000, epsilon=0.1).sel(algorithm="gibbs-published"))
    return verdict(
        passes and not fails,
        f"KS distance at n = 1,000, epsilon = 0.1 with public bounds: {listed}; with bounds from the true parameter: "
        f"gibbs-published {seen:.3f}.",
    )


def _needs(panel: str, *methods: str) -> dict[str, dict[str, tuple[Any, ...]]]:
    """Return the ends of the published grid; a verdict covers all stored sizes and privacy losses."""
    return {panel: {"n": (10, 100_000), "epsilon": (0.01, 0.1), "algorithm": methods}}


def _kind(panel: str) -> Kind:
    """Return the kind of a claim; P4 does not use the panel `exponential-wide`."""
    return "addition" if panel == "exponential-wide" else "conclusion"


CLAIMS = (
    *(
        claim(
            f"gibbs-is-calibrated-{panel}",
            f"The Gibbs sampler, as printed, is calibrated at every size and privacy loss (panel {panel}).",
            paper="P4",
            place="section 5",
            kind=_kind(panel),
            needs=_needs(panel, method),
        )(_calibrated(panel, method))
        for panel, method in _AS_PRINTED.items()
    ),
    claim(
        "bounds-hide-it",
        "With bounds from the true parameter, the tests do not detect that the Gibbs sampler, as printed, is "
        "uncalibrated.",
        paper="P4",
        place="experiment",
        kind="addition",
        needs={
            panel: {
                "n": (1_000,),
                "epsilon": (0.1,),
                "algorithm": ("gibbs-published", "gibbs", "gibbs-collapsed", "marginal"),
            }
            for panel in ("exponential-wide", "exponential-paper-bounds")
        },
        erratum=Erratum(
            "The sampler for truncated families is calibrated.",
            "It treats regions as independent, and one step ignores the release. Bounds from the true parameter "
            "hide this.",
            place="section 5",
        ),
    )(_bounds_hide_it),
    *(
        claim(
            f"naive-is-over-confident-{panel}",
            f"The naive method is over-confident at small n and epsilon and calibrated at large ones (panel {panel}).",
            paper="P4",
            place="section 5",
            kind=_kind(panel),
            needs=_needs(panel, "naive"),
        )(_over_confident(panel, "naive"))
        for panel in _AS_PRINTED
    ),
    claim(
        "ops-is-over-dispersed",
        "Posteriors from one-posterior sampling (OPS) are over-dispersed.",
        paper="P4",
        place="section 5",
        needs=_needs("binomial", "ops", "ops-likelihood"),
    )(_ops_is_over_dispersed),
    *(
        claim(
            f"utility-{panel}",
            f"Gibbs posteriors are at least as near in MMD to the non-private posterior as naive ones (panel {panel}).",
            paper="P4",
            place="section 5",
            kind=_kind(panel),
            needs=_needs(panel, method, "naive"),
        )(_nearer(panel, method, "naive"))
        for panel, method in _AS_PRINTED.items()
    ),
    *(
        each
        for panel in _EXPONENTIAL
        for each in (
            claim(
                f"naive-recovers-{panel}",
                f"The naive method applied to the private statistic is over-confident at small n and epsilon and "
                f"calibrated at large ones (panel {panel}).",
                paper="P4",
                place="section 5",
                kind="addition",
                needs=_needs(panel, "naive-truncated"),
            )(_over_confident(panel, "naive-truncated")),
            claim(
                f"utility-of-release-{panel}",
                f"Gibbs posteriors are at least as near in MMD to the non-private posterior as naive posteriors from "
                f"the private statistic (panel {panel}).",
                paper="P4",
                place="section 5",
                kind="addition",
                needs=_needs(panel, "gibbs", "naive-truncated"),
            )(_nearer(panel, "gibbs", "naive-truncated")),
            claim(
                f"repaired-{panel}",
                f"The Gibbs sampler with the joint distribution of the regions and the full conditional of the sum is "
                f"calibrated (panel {panel}).",
                kind="addition",
                needs=_needs(panel, "gibbs"),
            )(_calibrated(panel, "gibbs")),
            claim(
                f"collapsed-{panel}",
                f"The Gibbs sampler with a Metropolis move between posterior modes is calibrated (panel {panel}).",
                kind="addition",
                needs=_needs(panel, "gibbs-collapsed"),
            )(_calibrated(panel, "gibbs-collapsed")),
        )
    ),
    *(
        claim(
            f"marginal-{panel}",
            f"The marginal posterior is calibrated at every size and privacy loss (panel {panel}).",
            kind="addition",
            needs=_needs(panel, "marginal"),
        )(_calibrated(panel, "marginal"))
        for panel in ("binomial", *_EXPONENTIAL)
    ),
    *(
        claim(
            f"control-{panel}",
            f"The non-private posterior given the records is calibrated (panel {panel}).",
            kind="self-check",
            needs=_needs(panel, "non-private"),
        )(_calibrated(panel, "non-private"))
        for panel in _AS_PRINTED
    ),
)


# Figures


def _parts(summaries: Mapping[str, xr.Dataset]) -> dict[str, xr.Dataset]:
    """Return the panels, with the first component of the multinomial only."""
    return {name: ds.isel(component=0) if "component" in ds.dims else ds for name, ds in summaries.items()}


def _nearest(ds: xr.Dataset, n: int, epsilon: float) -> xr.Dataset:
    """Return the stored cell nearest to the given n and ε."""
    return ds.sel(n=n, epsilon=epsilon, method="nearest")


def _draw_distances(summaries: Mapping[str, xr.Dataset]) -> Any:
    from studies.inference.calibration_figures import draw_against_n

    def limit(ds: xr.Dataset) -> float:
        return float(1.6276 / np.sqrt(ds["n_ok"].min()))  # 99 % quantile of the Kolmogorov distribution

    ylabel = "KS distance of the quantiles to the uniform distribution"
    return draw_against_n(_parts(summaries), "pit_ks", ylabel, METHOD_STYLES, log=True, limit=limit)


def _draw_mmd(summaries: Mapping[str, xr.Dataset]) -> Any:
    from studies.inference.calibration_figures import draw_against_n

    private = {name: ds.drop_sel(algorithm="non-private", errors="ignore") for name, ds in _parts(summaries).items()}
    return draw_against_n(private, "mmd2", "MMD² to the non-private posterior", METHOD_STYLES, log=True)


def _draw_ranks(summaries: Mapping[str, xr.Dataset]) -> Any:
    from studies.inference.calibration_figures import draw_ranks

    shown = ("gibbs", "gibbs-collapsed", "gibbs-published", "marginal", "exact", "non-private")
    parts = {}
    for name, ds in _parts(summaries).items():
        kept = [method for method in ds["algorithm"].values.tolist() if method in shown]
        parts[name] = _nearest(ds, 10_000, 0.1).sel(algorithm=kept)
    return draw_ranks(parts, "rank_histogram", "rank_bin", METHOD_STYLES)


def _draw_ecdfs(summaries: Mapping[str, xr.Dataset]) -> Any:
    from studies.inference.calibration_figures import draw_ecdfs

    parts = {name: _nearest(ds, 1_000, 0.01) for name, ds in _parts(summaries).items()}
    return draw_ecdfs(parts, "pit_ecdf", "level", METHOD_STYLES)


FIGURES = (
    Figure(
        "distances",
        "Distance of posterior quantiles to the uniform distribution",
        "Kolmogorov-Smirnov distance of the posterior quantiles of the true parameter to the uniform distribution "
        "against the number of records, with one row per model and one column per privacy loss; for the multinomial, "
        "the first category. A calibrated method is within the grey band at 99 of 100 points.",
        _PANEL_NAMES,
        _draw_distances,
    ),
    Figure(
        "quantiles",
        "Posterior quantiles at 1,000 records and ε = 0.01",
        "Empirical distribution function of the posterior quantiles of the true parameter. The grey band is a "
        "simultaneous 95 % band for a calibrated method. Curves that are steep at the ends indicate over-confidence; "
        "curves that are steep in the middle indicate over-dispersion.",
        _PANEL_NAMES,
        _draw_ecdfs,
    ),
    Figure(
        "ranks",
        "Ranks of the true parameter at 10,000 records and ε = 0.1",
        "Fraction of trials with the rank of the true parameter among 99 draws in each of 20 bins. The naive methods "
        "and one-posterior sampling are not shown. A calibrated method is within the grey band in 99 of 100 bins. "
        "Draws from chains are about 100 iterations apart and are not independent if the chains mix slowly.",
        _PANEL_NAMES,
        _draw_ranks,
    ),
    Figure(
        "utility",
        "MMD² to the non-private posterior",
        "Mean of the unbiased squared maximum mean discrepancy between draws of each posterior and of the non-private "
        "one; error bars show ± 2 Monte Carlo standard errors. Values <= 0 are not shown.",
        _PANEL_NAMES,
        _draw_mmd,
    ),
)
