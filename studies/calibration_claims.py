"""What P4 concludes of its methods, as checks over the stored results of the study `calibration`, and its figures."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import xarray as xr

from pipeline import Claim, Figure, Finding
from pipeline.factors import format_value
from pipeline.study import Verdict
from studies.mechanism_styles import METHOD_STYLES

_LEVEL = 0.01
_EXPONENTIAL = ("exponential", "exponential-wide", "exponential-paper-bounds")
_PANEL_NAMES = ("binomial", "multinomial", *_EXPONENTIAL)


def _describe(one: xr.DataArray) -> str:
    """Name the cell of a scalar."""
    names = [name for name in ("n", "epsilon", "component") if name in one.coords]
    return ", ".join(f"{name} = {format_value(one[name].item())}" for name in names)


def _extreme(values: xr.DataArray, largest: bool = True) -> xr.DataArray:
    """Return the largest or the smallest value, as a scalar that knows its cell."""
    flat = values.stack(cell=values.dims)
    return flat.isel(cell=int(np.argmax(flat.values) if largest else np.argmin(flat.values)))


def _is_calibrated(summary: xr.Dataset, method: str) -> tuple[bool, str]:
    """Test the quantiles of every cell, with Bonferroni's correction for their number."""
    one = summary.sel({"method": method})
    n_cells = one["quantile_p"].size
    least = _extreme(one["quantile_p"], largest=False)
    text = (
        f"KS distance {float(one['quantile_ks'].min()):.3f} to {float(one['quantile_ks'].max()):.3f}; smallest p-value "
        f"{float(least):.2g} ({_describe(least)}), to be above {_LEVEL / n_cells:.2g} among {n_cells}"
    )
    if one["rhat_mean"].notnull().any():
        text += f"; mean split R-hat up to {float(one['rhat_mean'].max()):.3f}"
    return bool(least > _LEVEL / n_cells), text


def _calibrated(panels: tuple[str, ...], method: str) -> Callable[[Mapping[str, xr.Dataset]], Finding]:
    def check(summaries: Mapping[str, xr.Dataset]) -> Finding:
        found = {panel: _is_calibrated(summaries[panel], method) for panel in panels}
        holds = [good for good, _ in found.values()]
        verdict: Verdict = "reproduced" if all(holds) else "corrected" if any(holds) else "not reproduced"
        return Finding(verdict, ". ".join(f"{panel}: {text}" for panel, (_, text) in found.items()) + ".")

    return check


def _naive_is_over_confident(summaries: Mapping[str, xr.Dataset]) -> Finding:
    """Too many quantiles are extreme at the smallest n and epsilon; at the largest the naive method is calibrated."""
    evidence, over, right = [], [], []
    for panel, method in _NAIVE.items():
        one = summaries[panel].sel({"method": method})
        small = one.isel(n=0, epsilon=0)
        large = one.isel(n=-1, epsilon=-1)
        over.append(bool((small["quantile_tails"] > 0.1 + 5 * np.sqrt(0.09 / small["n_ok"])).all()))
        right.append(bool((large["quantile_p"] > _LEVEL).all()))
        extreme, distance = float(small["quantile_tails"].max()), float(large["quantile_ks"].max())
        evidence.append(
            f"{panel} ({method}): {extreme:.0%} of the quantiles outside [0.05, 0.95], where 10% belong, at the "
            f"smallest n and epsilon; KS distance {distance:.3f} at the largest"
        )
    verdict: Verdict = "reproduced" if all(over) and all(right) else "corrected" if any(over) else "not reproduced"
    return Finding(verdict, "; ".join(evidence) + ".")


def _ops_is_over_dispersed(summaries: Mapping[str, xr.Dataset]) -> Finding:
    tails = {name: summaries["binomial"]["quantile_tails"].sel({"method": name}) for name in ("ops", "ops-likelihood")}
    limit = 0.1 - 5 * np.sqrt(0.09 / summaries["binomial"]["n_ok"].sel({"method": "ops"}))
    n_over = int((tails["ops"] < limit).sum())
    distance = summaries["binomial"]["quantile_ks"]
    both = []
    for name, each in tails.items():
        far = distance.sel({"method": name})
        both.append(
            f"{name}: KS distance {float(far.min()):.3f} to {float(far.max()):.3f}, "
            f"{float(each.min()):.1%} to {float(each.max()):.1%} of quantiles outside [0.05, 0.95], where 10% belong"
        )
    verdict: Verdict = "reproduced" if n_over == tails["ops"].size else "corrected" if n_over else "not reproduced"
    return Finding(verdict, f"Over-dispersed in {n_over} of {tails['ops'].size} cells. {'; '.join(both)}.")


def _utility(summaries: Mapping[str, xr.Dataset]) -> Finding:
    evidence, holds = [], []
    for panel, method in _NAIVE.items():
        ds = summaries[panel]
        gap = ds["mmd2_mean"].sel({"method": "gibbs"}) - ds["mmd2_mean"].sel({"method": method})
        error = np.hypot(ds["mmd2_mcse"].sel({"method": "gibbs"}), ds["mmd2_mcse"].sel({"method": method}))
        behind = gap > 3 * error
        holds.append(not bool(behind.any()))
        worst = _extreme(gap)
        text = (
            f"{panel} (against {method}): nearer to the non-private one in {int((gap < 0).sum())} of {gap.size} cells"
        )
        if behind.any():
            text += f", clearly behind in {int(behind.sum())}, by MMD^2 {float(worst):.2g} at {_describe(worst)}"
        evidence.append(text)
    verdict: Verdict = "reproduced" if all(holds) else "corrected" if any(holds) else "not reproduced"
    return Finding(verdict, "; ".join(evidence) + ".")


def _published_fails(summaries: Mapping[str, xr.Dataset]) -> Finding:
    at = summaries["exponential-wide"].sel(n=1_000, epsilon=0.1)
    own = summaries["exponential-paper-bounds"].sel(n=1_000, epsilon=0.1)
    fails = float(at["quantile_p"].sel({"method": "gibbs-published"})) < 1e-6
    ks, p = at["quantile_ks"], at["quantile_p"]
    names = ("gibbs-published", "gibbs", "gibbs-collapsed", "marginal")
    listed = ", ".join(
        f"{name} {float(ks.sel({'method': name})):.3f} (p {float(p.sel({'method': name})):.1g})" for name in names
    )
    published = float(own["quantile_ks"].sel({"method": "gibbs-published"}))
    return Finding(
        "not reproduced" if fails else "reproduced",
        f"KS distance at n = 1,000, epsilon = 0.1 with public bounds: {listed}; with the paper's bounds, from the true "
        f"parameter, gibbs-published {published:.3f}.",
    )


_NAIVE = {
    "binomial": "naive",
    "multinomial": "naive",
    "exponential": "naive-truncated",
    "exponential-wide": "naive-truncated",
}


def _needs(panels: Iterable[str], *methods: str) -> dict[str, dict[str, tuple[Any, ...]]]:
    return {panel: {"method": methods} for panel in panels}


CLAIMS = (
    *(
        Claim(
            f"gibbs-is-calibrated-{panel}",
            f"The Gibbs sampler is calibrated at every size and privacy loss ({panel}).",
            "P4, section 5",
            _needs((panel,), "gibbs"),
            _calibrated((panel,), "gibbs"),
        )
        for panel in _PANEL_NAMES
    ),
    Claim(
        "published-sampler",
        "The sampler of Algorithm 2, as printed, is calibrated for the exponential model with public bounds.",
        "P4, section 5, with bounds that do not depend on the trial",
        {
            "exponential-wide": {
                "n": (1_000,),
                "epsilon": (0.1,),
                "method": ("gibbs-published", "gibbs", "gibbs-collapsed", "marginal"),
            },
            "exponential-paper-bounds": {"n": (1_000,), "epsilon": (0.1,), "method": ("gibbs-published",)},
        },
        _published_fails,
    ),
    Claim(
        "naive-is-over-confident",
        "The naive method is over-confident at small n and epsilon, and calibrated at large ones.",
        "P4, section 5",
        {panel: {"method": (method,)} for panel, method in _NAIVE.items()},
        _naive_is_over_confident,
    ),
    Claim(
        "ops-is-over-dispersed",
        "One-posterior sampling is over-dispersed.",
        "P4, section 5",
        _needs(("binomial",), "ops", "ops-likelihood"),
        _ops_is_over_dispersed,
    ),
    Claim(
        "utility",
        "Gibbs posteriors are at least as near to the non-private posterior as naive ones, in MMD.",
        "P4, section 5",
        {panel: {"method": ("gibbs", method)} for panel, method in _NAIVE.items()},
        _utility,
    ),
    Claim(
        "marginal-is-calibrated",
        "The posterior with the statistic integrated out is calibrated everywhere, and needs no chain.",
        "this laboratory",
        _needs(("binomial", "exponential", "exponential-wide"), "marginal"),
        _calibrated(("binomial", "exponential", "exponential-wide"), "marginal"),
    ),
    Claim(
        "collapsed-is-calibrated",
        "A Metropolis move between the modes of the posterior makes the Gibbs sampler calibrated with public bounds.",
        "this laboratory",
        _needs(("exponential", "exponential-wide"), "gibbs-collapsed"),
        _calibrated(("exponential", "exponential-wide"), "gibbs-collapsed"),
    ),
    Claim(
        "controls",
        "The posterior given the records is calibrated: simulation and tests are right.",
        "check of this study",
        _needs(_PANEL_NAMES, "non-private"),
        _calibrated(_PANEL_NAMES, "non-private"),
    ),
)


# Figures


def _parts(summaries: Mapping[str, xr.Dataset]) -> dict[str, xr.Dataset]:
    """Return the panels, the multinomial by its first component."""
    return {name: ds.isel(component=0) if "component" in ds.dims else ds for name, ds in summaries.items()}


def _draw_distances(summaries: Mapping[str, xr.Dataset]) -> Any:
    from studies.calibration_figures import draw_against_n

    def limit(ds: xr.Dataset) -> float:
        return float(1.6276 / np.sqrt(ds["n_ok"].min()))  # the 99 % point of Kolmogorov's law

    ylabel = "KS distance of the quantiles to the uniform law"
    return draw_against_n(_parts(summaries), "quantile_ks", ylabel, METHOD_STYLES, log=True, limit=limit)


def _draw_mmd(summaries: Mapping[str, xr.Dataset]) -> Any:
    from studies.calibration_figures import draw_against_n

    private = {name: ds.drop_sel(method="non-private", errors="ignore") for name, ds in _parts(summaries).items()}
    return draw_against_n(private, "mmd2", "MMD² to the non-private posterior", METHOD_STYLES, log=True)


def _draw_ecdfs(summaries: Mapping[str, xr.Dataset]) -> Any:
    from studies.calibration_figures import draw_ecdfs

    parts = {name: ds.sel(n=1_000, epsilon=0.01) for name, ds in _parts(summaries).items()}
    return draw_ecdfs(parts, "quantile_ecdf", "level", METHOD_STYLES)


FIGURES = (
    Figure(
        "distances",
        "Distance of posterior quantiles to the uniform law",
        "Kolmogorov-Smirnov distance of the posterior quantiles of the true parameter to the uniform law, against the "
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
        "utility",
        "MMD² to the non-private posterior",
        "Mean unbiased squared maximum mean discrepancy between draws of each posterior and of the non-private one, "
        "with two Monte Carlo standard errors either way; values that are not positive are not shown.",
        _PANEL_NAMES,
        _draw_mmd,
    ),
)
