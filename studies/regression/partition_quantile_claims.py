"""Claims and figures of the study `partition-quantile` (P2, chapter 4).

Released quantiles have heavy tails, because the noise has the scale of the bounds. They are compared by medians and
quartiles, in standard deviations of the posterior given all rows.

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
from pipeline import Erratum, Figure, Finding, claim, verdict
from pipeline.declare.factors import format_value
from studies.styles import PARTITION_STYLES

Summaries = Mapping[str, xr.Dataset]

_ACCURATE = 1.0  # posterior standard deviations
_NO_PATTERN = 0.02  # posterior standard deviations
_DECIDING = 3.0  # Monte Carlo standard errors
_ALIKE = 1.0  # posterior sd; errors of single releases are several sd
_P = (0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975)


def _needs(*methods: str, panel: str = "default") -> dict[str, dict[str, tuple[Any, ...]]]:
    return {panel: {"p": _P, "algorithm": methods}}


def _one(summaries: Summaries, method: str, panel: str = "default") -> xr.Dataset:
    return summaries[panel].sel(algorithm=method)


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
        "does not hold" if apart else "holds" if alike else "undecided",
        f"Without noise the means differ from those given all rows by at most {gap:.3f} posterior sd; with noise by "
        f"{float(worst['difference_mean']):.2g} +- {float(worst['difference_mcse']):.2g} at p = "
        f"{format_value(worst['p'].item())}, where the mean is dominated by outliers. Medians with noise differ by at "
        f"most {float(np.abs(noisy['difference_median']).max()):.2f} (similar: at most {_ALIKE:g}).",
    )


def _no_pattern(summaries: Summaries) -> Finding:
    one = _one(summaries, "quantile-noiseless")
    mean, error = one["difference_mean"], one["difference_mcse"]
    large = float((np.abs(mean) - _DECIDING * error).max()) > _NO_PATTERN
    listed = ", ".join(f"{float(value):+.4f}" for value in mean)
    small = float((np.abs(mean) + _DECIDING * error).max()) <= _NO_PATTERN
    return Finding(
        "holds" if small else "does not hold" if large else "undecided",
        f"Mean difference in posterior sd at p = {', '.join(map(format_value, one['p'].values.tolist()))}: {listed} "
        f"(Monte Carlo standard error up to {float(error.max()):.4f}; no pattern: at most {_NO_PATTERN}); "
        f"standard deviation {_span(one['difference_sd'], 3)}.",
    )


def _accurate(method: str) -> Callable[[Summaries], Finding]:
    def check(summaries: Summaries) -> Finding:
        one = _one(summaries, method)
        error, wide = one["difference_absolute"], one["difference_q75"] - one["difference_q25"]
        capped = float(one["capped_mean"].max())
        return verdict(
            float(error.max()) <= _ACCURATE,
            f"Median absolute difference from the quantile given all rows {_span(error)} posterior sd (accurate: at "
            f"most {_ACCURATE:g}), interquartile range {_span(wide)}, 5 and 95 % quantiles down to "
            f"{float(one['difference_q05'].min()):.3g} and up to {float(one['difference_q95'].max()):.3g}. The median "
            f"half width of the bounds is {_span(one['half_width_median'])}, the 95 % quantile "
            f"{_span(one['half_width_q95'])}; up to {capped:.2%} of the searches end at the largest number of "
            "doublings.",
        )

    return check


def _share(summaries: Summaries) -> Finding:
    """Compare bounds and errors with those of a search without noise, for both panels."""
    lines, errors = [], []
    for panel in ("default", "half-share"):
        plain, noiseless = _one(summaries, "quantile", panel), _one(summaries, "quantile-noiseless", panel)
        errors.append(float(plain["difference_absolute"].min()))
        lines.append(
            f"theta = {float(summaries[panel]['share']):g}: half widths {_span(plain['half_width_q05'])} (5 % "
            f"quantiles), {_span(plain['half_width_median'])} (medians), {_span(plain['half_width_q95'])} (95 % "
            f"quantiles), without noise {float(noiseless['half_width_q05'].min()):g} to "
            f"{float(noiseless['half_width_q95'].max()):g}; median absolute difference "
            f"{_span(plain['difference_absolute'])} posterior sd, without noise "
            f"{_span(noiseless['difference_absolute'], 3)}"
        )
    return verdict(min(errors) > 3.0, f"{'; '.join(lines)}.")


def audit_quantile(epsilon: float, part: float, share: float, n_values: int, doublings: int) -> tuple[Audit, Audit]:
    """Audit the search over all data sets, and the joint release of search and mean for a change of one quantile.

    Parameters
    ----------
    epsilon, part : float
        Total privacy loss of ``quantile``, and of its search, in nats.
    share : float
        Fraction of the search budget that is spent on its threshold.
    n_values, doublings : int
        Number of partitions, and of doublings of the bounds; both small.
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
    return verdict(
        holds,
        f"Exact audits with {n_values} partitions and {doublings} doublings. The loss of the search over all data sets "
        f"is {bounds.epsilon:.4f}, with budget {part:g} ({bounds.witness}). The loss of search and mean together is "
        f"{both.epsilon:.4f}, with budget {epsilon:g}. By proof the search uses at most three quarters of its budget.",
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
            verdict = "does not hold"
        elif bool((gap > limit).all()):
            verdict = "holds"
        gain = plain["difference_absolute"] / centred["difference_absolute"]
        tails = [float((each["difference_q95"] - each["difference_q05"]).median()) for each in (plain, centred)]
        return Finding(
            verdict,
            f"At equal epsilon the median absolute difference is {_span(centred['difference_absolute'])} posterior sd "
            f"with a private centre and {_span(plain['difference_absolute'])} with bounds around 0 (ratio "
            f"{_span(gain, 1)}). The range between the 5 and 95 % quantiles is {tails[1]:.3g} and {tails[0]:.3g}.",
        )

    return check


def sum_of_quantiles(summaries: Mapping[str, Any]) -> str:
    """Compare the mean and the sum of the stored quantiles."""
    ds, name = summaries.get("default"), "quantile-noiseless"
    if ds is None or 0.5 not in ds["p"].values or name not in ds["algorithm"].values:
        return "The store has no values of quantile-noiseless at p = 0.5 in the panel default."
    one = ds.sel(algorithm=name).sel(p=0.5)
    n_partitions = int(ds["n"]) // int(ds["partition_size"])
    mean, error, slope = (
        float(one["slope_quantile_mean"]),
        float(one["slope_quantile_mcse"]),
        str(ds["coefficients"].item()),
    )
    return (
        f"{n_partitions} partitions, true slope {slope.split(':')[1]}, p = 0.5: the mean of the partitions' quantiles "
        f"is {mean:.4f} (Monte Carlo standard error {error:.1g}), their sum, as printed, {n_partitions * mean:.2f}."
    )


ERRATA = (
    Erratum(
        "The aggregate is the sum of the partitions' quantiles.",
        "Their mean: the factor 1/M is missing.",
        "equations 4.3 and 4.5",
        "P2",
        sum_of_quantiles,
    ),
)


CLAIMS = (
    claim(
        "means-agree",
        "The mean quantiles given all rows, from partitions without noise, and with noise are similar at every p.",
        paper="P2",
        place="section 4.1, Figure 4.1",
        needs=_needs("full", "quantile", "quantile-noiseless"),
    )(_means_agree),
    claim(
        "partitions-have-no-pattern",
        "Differences between quantiles given all rows and quantiles from partitions have no clear pattern.",
        paper="P2",
        place="section 4.1, Figure 4.2",
        needs=_needs("quantile-noiseless"),
    )(_no_pattern),
    claim(
        "reasonably-accurate",
        "The differentially private quantiles are reasonably accurate.",
        paper="P2",
        place="section 4.1, Figure 4.2",
        needs=_needs("quantile"),
        erratum=Erratum(
            "Private quantiles are reasonably accurate.",
            "Their errors are several posterior standard deviations, unless part of the budget is spent on their "
            "centre.",
            place="section 4.1",
        ),
    )(_accurate("quantile")),
    claim(
        "no-share-helps",
        "With bounds around 0, quantiles are inaccurate for both values of theta: bounds that contain most quantiles "
        "are too wide, and bounds that contain half of them clip the others.",
        kind="addition",
        needs={
            **_needs("quantile", "quantile-noiseless"),
            **_needs("quantile", "quantile-noiseless", panel="half-share"),
        },
    )(_share),
    claim(
        "bounds-are-private",
        "The privacy loss of the search for bounds is at most epsilon_1, and that of search and mean together at most "
        "epsilon_1 + epsilon_2.",
        paper="P2",
        place="chapter 4",
        needs=_needs("quantile"),
    )(_bounds_are_private),
    claim(
        "centre-first",
        "Spending part of the budget on a private centre of the quantiles gives tighter bounds and less noise.",
        paper="P2",
        place="chapter 5 (future work)",
        needs=_needs("quantile", "quantile-centred"),
    )(_gain("default")),
    claim(
        "centre-first-is-accurate",
        "Quantiles with bounds around a private centre are reasonably accurate.",
        kind="addition",
        needs=_needs("quantile-centred"),
    )(_accurate("quantile-centred")),
    claim(
        "centre-first-abalone",
        "Spending part of the budget on a private centre also gives tighter bounds and less noise on real rows "
        "(abalone).",
        kind="self-check",
        needs=_needs("quantile", "quantile-centred", panel="abalone"),
    )(_gain("abalone")),
)


def _draw(panel: str, measure: str, methods: tuple[str, ...], ylabel: str) -> Callable[[Summaries], Any]:
    def draw(summaries: Summaries) -> Any:
        from studies.regression.partition_figures import draw_spreads

        ds = summaries[panel]
        limits = None
        if "quantile" in ds["algorithm"].values:  # its tails are far wider than all others
            one = ds.sel(algorithm="quantile")
            low, high = float(one[f"{measure}_q25"].min()), float(one[f"{measure}_q75"].max())
            limits = (low - 0.5 * (high - low), high + 0.5 * (high - low))
        columns = 3 if methods[0] == "full" else 2
        return draw_spreads(ds, "p", measure, methods, columns, PARTITION_STYLES, ylabel, limits)

    return draw


_BOXES = "Median, quartiles (box) and 5 and 95 % quantiles (line, clipped by the axes) over"
_METHODS = ("quantile-noiseless", "quantile", "quantile-centred-noiseless", "quantile-centred")

FIGURES = (
    Figure(
        "quantiles",
        "Posterior quantiles (P2, Figure 4.1)",
        f"{_BOXES} data sets of posterior quantiles of the slope, against their probability. Columns: given all rows, "
        "from partitions without noise, and released with noise. Top: bounds around 0; bottom: bounds around a private "
        "centre.",
        ("default",),
        _draw("default", "slope_quantile", ("full", *_METHODS[:2], "full", *_METHODS[2:]), "quantile of the slope"),
    ),
    Figure(
        "quantile-differences",
        "Differences from the quantiles given all rows (P2, Figure 4.2)",
        f"{_BOXES} data sets of the quantile minus that given all rows, in standard deviations of the posterior given "
        "all rows. Top: bounds around 0; bottom: bounds around a private centre. Bounds around 0 need a width of 4 to "
        "contain slopes near 2, and the resulting noise is several posterior standard deviations.",
        ("default",),
        _draw("default", "difference", _METHODS, "difference (posterior sd)"),
    ),
    Figure(
        "abalone-quantiles",
        "Rings of abalone on shell weight, 41 partitions",
        f"{_BOXES} random divisions of the same 4,177 rows of the quantile minus that given all rows. The rings are "
        "not linear in the weights, and slopes of partitions are on average larger than the slope given all rows.",
        ("abalone",),
        _draw("abalone", "difference", _METHODS, "difference (posterior sd)"),
    ),
)
