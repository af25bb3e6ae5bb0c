"""What P2's chapter 4 concludes, checked on the stored quantiles, and what is drawn of them.

Released quantiles have no mean to speak of: where the search for bounds ends late, the noise is as wide as the bounds.
They are judged by medians and quartiles, in standard deviations of the posterior given all rows.

References
----------
P2: Amitai, "Bayesian Inference Via Partitioning Under Differential Privacy", Duke University 2018, chapter 4.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import xarray as xr

from mechanisms.audit import ROUNDING, Audit, audit_distributions
from mechanisms.regression.audit import quantile_distributions, search_distributions
from mechanisms.regression.partition_quantile import partition_quantile
from mechanisms.regression.sparse_vector import SparseVector
from pipeline import Claim, Figure, Finding
from pipeline.declare.factors import format_value
from studies.styles import PARTITION_STYLES

Summaries = Mapping[str, xr.Dataset]

_ACCURATE = 1.0  # posterior standard deviations: what is further off is not an estimate of the posterior's quantiles
_NO_PATTERN = 0.02  # posterior standard deviations
_DECIDING = 3.0  # Monte Carlo standard errors
_ALIKE = 1.0  # posterior sd; single releases are off by several
_P = (0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975)


def _needs(*methods: str, panel: str = "default") -> dict[str, dict[str, tuple[Any, ...]]]:
    return {panel: {"p": _P, "method": methods}}


def _one(summaries: Summaries, method: str, panel: str = "default") -> xr.Dataset:
    return summaries[panel].sel({"method": method})


def _span(values: xr.DataArray, digits: int = 2) -> str:
    low, high = (f"{float(end):.{digits}f}" for end in (values.min(), values.max()))
    return low if low == high else f"{low} to {high}"


def _means_agree(summaries: Summaries) -> Finding:
    parts, noisy = _one(summaries, "quantile-noiseless"), _one(summaries, "quantile")
    gap = float(np.abs(parts["difference_mean"]).max())
    mean, error = abs(noisy["difference_mean"]), _DECIDING * noisy["difference_mcse"]
    apart = gap > _ALIKE or bool((mean - error > _ALIKE).any())
    alike = bool((mean + error <= _ALIKE).all())
    worst = noisy.isel(p=int(mean.argmax("p")))
    return Finding(
        "not reproduced" if apart else "reproduced" if alike else "undecided",
        f"From partitions without noise the means differ from those given all rows by at most {gap:.3f} posterior sd. "
        f"With noise by {float(worst['difference_mean']):.2g} +- {float(worst['difference_mcse']):.2g} at p = "
        f"{format_value(worst['p'].item())}: single releases are so far off that their mean says little; medians "
        f"differ by at most {float(np.abs(noisy['difference_median']).max()):.2f} (alike: {_ALIKE:g}).",
    )


def _no_pattern(summaries: Summaries) -> Finding:
    one = _one(summaries, "quantile-noiseless")
    mean, error = one["difference_mean"], one["difference_mcse"]
    large = float((np.abs(mean) - _DECIDING * error).max()) > _NO_PATTERN
    listed = ", ".join(f"{float(value):+.4f}" for value in mean)
    small = float((np.abs(mean) + _DECIDING * error).max()) <= _NO_PATTERN
    return Finding(
        "reproduced" if small else "not reproduced" if large else "undecided",
        f"Mean difference in posterior sd at p = {', '.join(map(format_value, one['p'].values.tolist()))}: {listed} "
        f"(Monte Carlo standard error up to {float(error.max()):.4f}; what is below {_NO_PATTERN} is no pattern); "
        f"standard deviation {_span(one['difference_sd'], 3)}.",
    )


def _accurate(method: str) -> Callable[[Summaries], Finding]:
    def check(summaries: Summaries) -> Finding:
        one = _one(summaries, method)
        error, wide = one["difference_absolute"], one["difference_q75"] - one["difference_q25"]
        capped = float(one["capped_mean"].max())
        return Finding(
            "reproduced" if float(error.max()) <= _ACCURATE else "not reproduced",
            f"Median absolute difference to the quantile given all rows {_span(error)} posterior sd (at most "
            f"{_ACCURATE:g} would be accurate), between the quartiles {_span(wide)}, 5 and 95 % points down to "
            f"{float(one['difference_q05'].min()):.3g} and up to {float(one['difference_q95'].max()):.3g}. Half of the "
            f"intervals are wider than {_span(one['half_width_median'])} either way, one in 20 wider than "
            f"{_span(one['half_width_q95'])}; up to {capped:.2%} of the searches end at the cap.",
        )

    return check


def _share(summaries: Summaries) -> Finding:
    """Compare the bounds with those of a search without noise, and with what they clip."""
    lines, errors = [], []
    for panel in ("default", "half-share"):
        plain, quiet = _one(summaries, "quantile", panel), _one(summaries, "quantile-noiseless", panel)
        errors.append(float(plain["difference_absolute"].min()))
        lines.append(
            f"theta = {float(summaries[panel]['share']):g}: half widths {_span(plain['half_width_q05'])} (5 % points), "
            f"{_span(plain['half_width_median'])} (medians), {_span(plain['half_width_q95'])} (95 % points), without "
            f"noise {float(quiet['half_width_q05'].min()):g} to {float(quiet['half_width_q95'].max()):g}; median "
            f"absolute difference {_span(plain['difference_absolute'])} posterior sd, without noise "
            f"{_span(quiet['difference_absolute'], 3)}"
        )
    return Finding("reproduced" if min(errors) > 3.0 else "not reproduced", f"{'; '.join(lines)}.")


def audit_quantile(epsilon: float, part: float, share: float, n_values: int, doublings: int) -> tuple[Audit, Audit]:
    """Audit the search for bounds over all data sets, and search and mean together where one quantile moves.

    Parameters
    ----------
    epsilon, part : float
        What ``quantile`` spends in all, and on its search, in nats.
    share : float
        Of the search's budget, that of its threshold.
    n_values, doublings : int
        Partitions, and doublings of the bounds; few.
    """
    search = SparseVector(n_values, part, share=share, doublings=doublings)
    method = partition_quantile("quantile", n_values, epsilon, (part, epsilon - part), doublings=doublings)
    values = [[-9.0] * n_values, [9.0] + [-9.0] * (n_values - 1), [0.0] + [-9.0] * (n_values - 1)]
    return audit_distributions(search_distributions(search)), audit_distributions(
        quantile_distributions(method, values, [[0, 1], [0, 2]])
    )


def _bounds_are_private(summaries: Summaries) -> Finding:
    ds = summaries["default"]
    epsilon, part = float(ds["epsilon"]), float(str(ds["split"].item()).split(":")[0])
    n_values, doublings = 6, 3
    bounds, both = audit_quantile(epsilon, part, float(ds["share"]), n_values, doublings)
    holds = bounds.epsilon <= part + ROUNDING and both.epsilon <= epsilon + ROUNDING
    return Finding(
        "reproduced" if holds else "not reproduced",
        f"Exact audits, {n_values} partitions, {doublings} doublings: over all data sets the search spends up to "
        f"{bounds.epsilon:.4f} of {part:g} ({bounds.witness}), search and mean together up to {both.epsilon:.4f} of "
        f"{epsilon:g}. By proof the search spends at most three quarters of what it is given.",
    )


def _gain(panel: str) -> Callable[[Summaries], Finding]:
    def check(summaries: Summaries) -> Finding:
        centred, plain = _one(summaries, "quantile-centred", panel), _one(summaries, "quantile", panel)
        wide = {name: each["difference_q75"] - each["difference_q25"] for name, each in (("c", centred), ("q", plain))}
        error = {
            name: np.hypot(each["difference_q75_mcse"], each["difference_q25_mcse"])
            for name, each in (("c", centred), ("q", plain))
        }
        gap, limit = wide["q"] - wide["c"], _DECIDING * np.hypot(error["c"], error["q"])
        verdict: Any = "undecided"
        if bool((gap < -limit).any()):
            verdict = "not reproduced"
        elif bool((gap > limit).all()):
            verdict = "reproduced"
        gain = plain["difference_absolute"] / centred["difference_absolute"]
        tails = [float((each["difference_q95"] - each["difference_q05"]).median()) for each in (plain, centred)]
        return Finding(
            verdict,
            f"At equal epsilon the median absolute difference is {_span(centred['difference_absolute'])} posterior sd, "
            f"with bounds about 0 {_span(plain['difference_absolute'])}: {_span(gain, 1)} times as much. Between the 5 "
            f"and 95 % points lie {tails[1]:.3g} in place of {tails[0]:.3g}.",
        )

    return check


CLAIMS = (
    Claim(
        "means-agree",
        "The means of the distributions given all rows, from partitions and with noise are similar at every p.",
        "P2, section 4.1, Figure 4.1",
        _needs("full", "quantile", "quantile-noiseless"),
        _means_agree,
    ),
    Claim(
        "partitions-have-no-pattern",
        "Differences between quantiles given all rows and those from partitions have no clear pattern.",
        "P2, section 4.1, Figure 4.2",
        _needs("quantile-noiseless"),
        _no_pattern,
    ),
    Claim(
        "reasonably-accurate",
        "The differentially private quantiles are reasonably accurate.",
        "P2, section 4.1, Figure 4.2",
        _needs("quantile"),
        _accurate("quantile"),
    ),
    Claim(
        "no-share-helps",
        "Bounds about 0 that hold most quantiles are too wide, and those that hold half clip: neither is accurate.",
        "this laboratory",
        {**_needs("quantile", "quantile-noiseless"), **_needs("quantile", "quantile-noiseless", panel="half-share")},
        _share,
    ),
    Claim(
        "bounds-are-private",
        "The search for bounds spends epsilon_1 at most, and with the mean epsilon_1 + epsilon_2.",
        "P2, chapter 4",
        _needs("quantile"),
        _bounds_are_private,
    ),
    Claim(
        "centre-first",
        "A part of the budget spent on the centre of the quantiles gives tighter bounds and less noise.",
        "P2, chapter 5 (future work)",
        _needs("quantile", "quantile-centred"),
        _gain("default"),
    ),
    Claim(
        "centre-first-is-accurate",
        "With it the quantiles are reasonably accurate.",
        "this laboratory",
        _needs("quantile-centred"),
        _accurate("quantile-centred"),
    ),
    Claim(
        "centre-first-abalone",
        "So it does on real rows.",
        "check of this study",
        _needs("quantile", "quantile-centred", panel="abalone"),
        _gain("abalone"),
    ),
)


def _draw(panel: str, measure: str, methods: tuple[str, ...], ylabel: str) -> Callable[[Summaries], Any]:
    def draw(summaries: Summaries) -> Any:
        from studies.regression.partition_figures import draw_spreads

        ds = summaries[panel]
        limits = None
        if "quantile" in ds["method"].values:  # its 5 and 95 % points are far beyond all others
            one = ds.sel({"method": "quantile"})
            low, high = float(one[f"{measure}_q25"].min()), float(one[f"{measure}_q75"].max())
            limits = (low - 0.5 * (high - low), high + 0.5 * (high - low))
        columns = 3 if methods[0] == "full" else 2
        return draw_spreads(ds, "p", measure, methods, columns, PARTITION_STYLES, ylabel, limits)

    return draw


_BOXES = "Median, quartiles (box) and 5 and 95 % points (line; cut off where far outside) over"
_METHODS = ("quantile-noiseless", "quantile", "quantile-centred-noiseless", "quantile-centred")

FIGURES = (
    Figure(
        "quantiles",
        "Posterior quantiles (P2, Figure 4.1)",
        f"{_BOXES} data sets, of quantiles of the slope's posterior, against their probability: given all rows, from "
        "partitions without noise, and released; above with bounds about 0, below about a private centre.",
        ("default",),
        _draw("default", "quantile", ("full", *_METHODS[:2], "full", *_METHODS[2:]), "quantile of the slope"),
    ),
    Figure(
        "quantile-differences",
        "Differences to the quantiles given all rows (P2, Figure 4.2)",
        f"{_BOXES} data sets, of the quantile minus that given all rows, in standard deviations of the posterior given "
        "all rows; above with bounds about 0, below about a private centre. Bounds about 0 must be 4 wide to hold "
        "slopes near 2, and their noise is several posterior standard deviations.",
        ("default",),
        _draw("default", "difference", _METHODS, "difference (posterior sd)"),
    ),
    Figure(
        "abalone-quantiles",
        "Rings of abalone on shell weight, 41 partitions",
        f"{_BOXES} random divisions of the same 4,177 rows, of the quantile minus that given all rows. The rings are "
        "not linear in the weights, and slopes of partitions are larger on average than that of all rows.",
        ("abalone",),
        _draw("abalone", "difference", _METHODS, "difference (posterior sd)"),
    ),
)
