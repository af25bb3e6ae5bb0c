"""Claims of the study `partition-quantile` (P2, chapter 4).

Released quantiles have heavy tails, because the noise has the scale of the bounds. They are compared by medians and
quartiles, in standard deviations of the posterior given all rows.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import xarray as xr

from mechanisms.core.exact_losses import exceeds
from pipeline import Erratum, Finding, claim, claims_in, verdict
from pipeline.declare.factors import format_value
from studies.claims import Look, above, at_most, decide, joined, listed, mean, named, p2, place, span, vector
from studies.regression.partition_trials import SLOPE

_ACCURATE = 1.0  # posterior standard deviations
_NO_PATTERN = 0.02  # posterior standard deviations
_DECIDING = 3.0  # Monte Carlo standard errors
_ALIKE = 1.0  # posterior standard deviations; errors of single releases are several
_P = (0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975)


def _width(ds: xr.Dataset) -> xr.DataArray:
    return ds["difference_q75"] - ds["difference_q25"]


def _at_every_p(*methods: str, panels: Iterable[str] = ("default",)) -> dict[str, dict[str, Any]]:
    """Return the needs of a claim about methods in panels."""
    return {panel: {"p": _P, "algorithm": methods} for panel in panels}


def _accuracy(look: Look, method: str) -> Finding:
    """Judge the statement that the median of the absolute difference is at most one posterior standard deviation."""
    differences = look["default"].sel(algorithm=method)
    error = differences["difference_absolute"]
    return verdict(
        (error <= _ACCURATE).all(),
        f"Median absolute difference from the quantile given all rows {span(error)} posterior sd (accurate: at "
        f"most {_ACCURATE:g}), interquartile range {span(_width(differences))}, 5 and 95 % quantiles down to "
        f"{differences['difference_q05'].min():.3g} and up to {differences['difference_q95'].max():.3g}. The "
        f"median half width of the bounds is {span(differences['half_width_median'])}, the 95 % quantile "
        f"{span(differences['half_width_q95'])}; up to {differences['capped_mean'].max():.2%} of the searches end at "
        "the largest number of doublings.",
    )


def _gain(ds: xr.Dataset) -> Finding:
    """Judge the statement that a private centre reduces the interquartile range at every p."""
    plain, centred = (ds.sel(algorithm=name) for name in ("quantile", "quantile-centred"))
    errors = [method[f"difference_{quartile}_mcse"] for method in (plain, centred) for quartile in ("q75", "q25")]
    gain = _width(plain) - _width(centred), np.sqrt(sum(error**2 for error in errors))
    tails = (ds["difference_q95"] - ds["difference_q05"]).median("p")
    apart, other = (method["difference_absolute"] for method in (centred, plain))
    return decide(
        *above(0.0, gain, _DECIDING),
        f"At equal epsilon the median absolute difference is {span(apart)} posterior sd with a private centre and "
        f"{span(other)} with bounds around 0 (ratio {span(other / apart, '.1f')}). Range between the 5 and 95 % "
        f"quantiles: {named(tails, ('quantile-centred', 'quantile'), '.3g', 'algorithm')}.",
    )


@p2(
    short="Mean quantiles with and without partitions and noise are similar at every p.",
    place="section 4.1, Figure 4.1",
    needs=_at_every_p("full", "quantile", "quantile-noiseless"),
)
def means_agree(look: Look) -> Finding:
    """The mean quantiles given all rows, from partitions without noise, and with noise are similar at every p."""
    default = look["default"]
    parts, (noisy, error) = (
        mean(default, "difference", algorithm=f"quantile{variant}") for variant in ("-noiseless", "")
    )
    worst = noisy.isel(p=int(abs(noisy).argmax("p")))
    holds, fails = at_most(_ALIKE, (abs(noisy), error), _DECIDING)
    median = default["difference_median"].sel(algorithm="quantile")
    return decide(
        holds,
        (abs(parts[0]) > _ALIKE).any() or fails,
        f"Without noise the means differ from those given all rows by at most {abs(parts[0]).max():.3f} posterior sd; "
        f"with noise by {worst:.2g} +- {error.sel(p=worst['p']):.2g} at {place(worst, ('p',))}, where the mean is "
        f"dominated by outliers. Medians with noise differ by at most {abs(median).max():.2f} (similar: at most "
        f"{_ALIKE:g}).",
    )


@p2(
    short="Differences of quantiles from partitions have no clear pattern.",
    place="section 4.1, Figure 4.2",
    needs=_at_every_p("quantile-noiseless"),
)
def partitions_have_no_pattern(look: Look) -> Finding:
    """Differences between quantiles given all rows and quantiles from partitions have no clear pattern."""
    ds = look["default"].sel(algorithm="quantile-noiseless")
    difference, error = mean(ds, "difference")
    return decide(
        *at_most(_NO_PATTERN, (abs(difference), error), _DECIDING),
        f"Mean difference in posterior sd at p = {', '.join(map(format_value, ds['p'].values.tolist()))}: "
        f"{listed(difference, '+.4f')} (Monte Carlo standard error up to {error.max():.4f}; no pattern: at most "
        f"{_NO_PATTERN}); standard deviation {span(ds['difference_sd'], '.3f')}.",
    )


@p2(
    place="section 4.1, Figure 4.2",
    needs=_at_every_p("quantile"),
    erratum=Erratum(
        "Private quantiles are reasonably accurate.",
        "Their errors are several posterior standard deviations, unless part of the budget is spent on their centre.",
        place="section 4.1",
    ),
)
def reasonably_accurate(look: Look) -> Finding:
    """The differentially private quantiles are reasonably accurate."""
    return _accuracy(look, "quantile")


_SHARED = ("quantile", "quantile-noiseless")


@claim(
    short="With bounds around 0, quantiles are inaccurate for both values of theta.",
    kind="addition",
    needs=_at_every_p(*_SHARED, panels=("default", "half-share")),
)
@joined()
def no_share_helps(look: Look) -> Iterator[Finding]:
    """With bounds around 0, quantiles are inaccurate for both values of theta: bounds of most quantiles are too wide,
    and bounds of half of them clip the others.
    """
    for ds in look.values():
        plain, noiseless = (ds.sel(algorithm=name) for name in _SHARED)
        yield verdict(
            (plain["difference_absolute"] > 3.0).all(),
            f"theta = {float(ds['share']):g}: half widths {span(plain['half_width_q05'])} (5 % quantiles), "
            f"{span(plain['half_width_median'])} (medians), {span(plain['half_width_q95'])} (95 % quantiles), without "
            f"noise {noiseless['half_width_q05'].min():g} to {noiseless['half_width_q95'].max():g}; "
            f"median absolute difference {span(plain['difference_absolute'])} posterior sd, without noise "
            f"{span(noiseless['difference_absolute'], '.3f')}",
        )


@p2(
    short="The search for bounds and the mean lose at most epsilon_1 + epsilon_2.",
    place="chapter 4",
    needs={"audit": {"algorithm": "quantile"}},
)
def bounds_are_private(look: Look) -> Finding:
    """The privacy loss of the search for bounds is at most epsilon_1, and that of search and mean together at most
    epsilon_1 + epsilon_2.
    """
    audit = look.select("audit")
    search, total, epsilon = (float(audit[name]) for name in ("search_epsilon", "exact_epsilon", "epsilon"))
    data, neighbour = (audit[f"worst_{data_set}"].values.astype(int).tolist() for data_set in ("dataset", "neighbour"))
    budget = vector(audit, "split")[0]
    return verdict(
        not (exceeds(search, budget) or exceeds(total, epsilon)),
        f"Exact audits with {int(audit['n_partitions'])} partitions and {audit['ring'].size - 1} doublings. The loss "
        f"of the search over all data sets is {search:.4f}, with budget {budget:g} ({data} against {neighbour}, "
        f"output {int(audit['worst_output'])}). The loss of search and mean together is {total:.4f}, with budget "
        f"{epsilon:g}. By proof the search uses at most three quarters of its budget.",
    )


_CENTRED = ("quantile", "quantile-centred")


@p2(
    short="A private centre of the quantiles gives tighter bounds and less noise.",
    place="chapter 5 (future work)",
    needs=_at_every_p(*_CENTRED),
)
def centre_first(look: Look) -> Finding:
    """Spending part of the budget on a private centre of the quantiles gives tighter bounds and less noise."""
    return _gain(look["default"])


@claim(kind="addition", needs=_at_every_p("quantile-centred"))
def centre_first_is_accurate(look: Look) -> Finding:
    """Quantiles with bounds around a private centre are reasonably accurate."""
    return _accuracy(look, "quantile-centred")


@claim(
    short="A private centre gives tighter bounds and less noise on real rows (abalone).",
    kind="self-check",
    needs=_at_every_p(*_CENTRED, panels=("abalone",)),
)
def centre_first_abalone(look: Look) -> Finding:
    """Spending part of the budget on a private centre also gives tighter bounds and less noise on real rows
    (abalone).
    """
    return _gain(look["abalone"])


CLAIMS = claims_in(globals())


def sum_of_quantiles(summaries: Mapping[str, Any]) -> str:
    """Compare the mean of the stored quantiles with their sum."""
    ds, name = summaries.get("default"), "quantile-noiseless"
    if ds is None or 0.5 not in ds["p"].values or name not in ds["algorithm"].values:
        return "The store has no values of quantile-noiseless at p = 0.5 in the panel default."
    median = ds.sel(algorithm=name).sel(p=0.5)
    n_partitions = int(ds["n"]) // int(ds["partition_size"])
    mean, error = float(median["slope_quantile_mean"]), float(median["slope_quantile_mcse"])
    slope = vector(ds, "coefficients")[SLOPE]
    return (
        f"{n_partitions} partitions, true slope {slope:g}, p = 0.5: the mean of the partitions' quantiles "
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
