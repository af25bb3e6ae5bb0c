"""Figures of the studies `calibration` and `exact-inference`."""

from collections.abc import Callable
from typing import Literal

import numpy as np
import xarray as xr

from pipeline import Figure
from pipeline.declare.factors import format_value
from studies.claims import entries
from studies.figures import Axis, Chart, Parts, Summaries
from studies.inference.calibration_claims import EXPONENTIAL, MODELS
from studies.styles import METHOD_STYLES

_RANKED = ("gibbs", "gibbs-collapsed", "gibbs-published", "marginal", "exact", "gibbs-exact", "non-private")


def _one_component(ds: xr.Dataset) -> xr.Dataset:
    """Return the summary of the first component of a multinomial panel."""
    return ds.isel(component=0) if "component" in ds.dims else ds


def _private(ds: xr.Dataset) -> xr.Dataset:
    return ds.drop_sel(algorithm="non-private", errors="ignore")


def _against_n(
    variable: str, ylabel: str, prepare: Callable[[xr.Dataset], xr.Dataset] = _one_component,
    source: str | Callable[[Summaries], Parts] = "", with_limit: bool = False, best: Literal["", "lowest"] = "",
) -> Chart:  # fmt: skip
    """Describe a mean against the number of records, with one row per panel and one column per privacy loss.

    The vertical axis is logarithmic; values <= 0 are not shown. `with_limit`, the variable is a distance without
    standard errors, and a grey band for sampling error ends at the 99 % quantile of the Kolmogorov distribution for the
    smallest number of trials.
    """

    def prepared(ds: xr.Dataset) -> xr.Dataset:
        ds = _one_component(prepare(ds))
        return ds.assign(limit=1.6276 / np.sqrt(ds["n_ok"].where(ds["n_ok"] > 0).min()))

    return Chart(
        source, "n", {"y": variable}, "algorithm", METHOD_STYLES, x=Axis("number of records", log=True),
        y=Axis(ylabel, log=True), marks=("region", "line", "points") if with_limit else ("line", "errors", "points"),
        facet={"epsilon": "ε = {}"}, across={"to": "limit"} if with_limit else {}, prepare=prepared, height=150,
        best=best, first=("gibbs", "gibbs-published", "marginal", "naive", "ops", "exact"))  # fmt: skip


def _ecdfs(source: Callable[[Summaries], Parts]) -> Chart:
    """Describe distribution functions of quantiles, with 95 % bands of Dvoretzky, Kiefer & Wolfowitz, by part."""

    def banded(summaries: Summaries) -> Parts:
        parts = {}
        for title, ds in source(summaries).items():
            half = np.sqrt(np.log(2 / 0.05) / (2 * float(ds["n_ok"].where(ds["n_ok"] > 0).min())))
            parts[title] = ds.assign(low=(ds["level"] - half).clip(0), high=(ds["level"] + half).clip(max=1))
        return parts

    return Chart(
        banded, "level", {"y": "pit_ecdf"}, "algorithm", METHOD_STYLES,
        x=Axis("posterior quantile of θ", limits=(0.0, 1.0)), y=Axis("fraction of trials", limits=(0.0, 1.0)),
        marks=("strip", "line", "points"), across={"strip_low": "low", "strip_high": "high"}, columns=3, n_markers=4,
        first=("gibbs", "gibbs-published", "marginal", "naive", "ops", "non-private"), at_ends=False)  # fmt: skip


def _near(n: int, epsilon: float) -> Callable[[Summaries], Parts]:
    """Return a function that returns the stored cells nearest to the given n and ε, with the methods that apply."""

    def parts(summaries: Summaries) -> Parts:
        cells = {name: _one_component(ds).sel(n=n, epsilon=epsilon, method="nearest") for name, ds in summaries.items()}
        return {name: cell.sel(algorithm=cell["n_ok"] > 0) for name, cell in cells.items() if cell["n_ok"].any()}

    return parts


def _ranked(summaries: Summaries) -> Parts:
    """Return rank histograms of the exact methods, with a pointwise 99 % band for uniform ranks."""
    parts = {}
    for title, ds in _near(10_000, 0.1)(summaries).items():
        share = 1 / ds.sizes["rank_bin"]
        half = 2.576 * np.sqrt(share * (1 - share) / float(ds["n_ok"].min()))
        kept = ds.sel(algorithm=ds["algorithm"].isin(_RANKED))
        parts[title] = kept.assign(low=max(share - half, 0.0), high=share + half)
    return parts


_RANKS = Chart(
    _ranked, "rank_bin", {"y": "rank_histogram"}, "algorithm", METHOD_STYLES, x=Axis("bin of the rank"),
    y=Axis("fraction of trials"), marks=("region", "line", "points"), across={"from": "low", "to": "high"}, columns=3,
    at_ends=False)  # fmt: skip
FIGURES = (
    Figure(
        "distances",
        "Distance of posterior quantiles to the uniform distribution",
        "Kolmogorov-Smirnov distance of the posterior quantiles of the true parameter to the uniform distribution "
        "against the number of records, with one row per model and one column per privacy loss; for the multinomial, "
        "the first category. A calibrated method is within the grey band at 99 of 100 points.",
        tuple(MODELS),
        _against_n("pit_ks", "KS distance of the quantiles to the uniform distribution", with_limit=True),
    ),
    Figure(
        "quantiles",
        "Posterior quantiles at small privacy loss",
        "Empirical distribution function of the posterior quantiles of the true parameter, at the stored values that "
        "are nearest to 1,000 records and ε = 0.01. The grey band is a simultaneous 95 % band for a calibrated method. "
        "Curves that are steep at the ends indicate over-confidence; curves that are steep in the middle indicate "
        "over-dispersion.",
        tuple(MODELS),
        _ecdfs(_near(1_000, 0.01)),
        claims=(*(f"naive-is-over-confident-{panel}" for panel in MODELS), "ops-is-over-dispersed"),
    ),
    Figure(
        "ranks",
        "Ranks of the true parameter",
        "Fraction of trials with the rank of the true parameter among 99 draws in each of 20 bins, at the stored "
        "values that are nearest to 10,000 records and ε = 0.1. The naive methods and one-posterior sampling are not "
        "shown. A calibrated method is within the grey band in 99 of 100 bins. Draws from chains are about 100 "
        "iterations apart and are not independent if the chains mix slowly.",
        tuple(MODELS),
        _RANKS,
    ),
    Figure(
        "utility",
        "MMD² to the non-private posterior",
        "Mean of the unbiased squared maximum mean discrepancy between draws of each posterior and of the non-private "
        "one; error bars show ± 2 Monte Carlo standard errors. Values <= 0 are not shown.",
        tuple(MODELS),
        _against_n("mmd2_mean", "MMD² to the non-private posterior", _private, best="lowest"),
        claims=(*(f"utility-{panel}" for panel in MODELS), *(f"utility-of-release-{panel}" for panel in EXPONENTIAL)),
    ),
)


def _by_prior(summaries: Summaries) -> Parts:
    ds = summaries["binomial"]
    shown = {prior: ", ".join(map(format_value, entries(prior))) for prior in ds["prior"].values.tolist()}
    return {f"Beta({text})": ds.sel(prior=prior) for prior, text in shown.items()}


def _sparse(summaries: Summaries) -> Parts:
    """Return the stored cells nearest to 100 records and ε = 3 by prior, without the first prior."""
    cells = {prior: ds.sel(n=100, epsilon=3.0, method="nearest") for prior, ds in _by_prior(summaries).items()}
    return {
        f"{prior}, n = {ds['n'].item():,}, ε = {ds['epsilon'].item():g}": ds for prior, ds in list(cells.items())[1:]
    }


_YLABEL = "distance to the exact posterior"

EXACT_FIGURES = (
    Figure(
        "distances",
        "Distance to the exact posterior, binomial model",
        "Mean largest difference between the distribution function of 2,000 draws and the exact one against the number "
        "of records, with one row per prior and one column per privacy loss. Independent draws (exact) have the "
        "distance of sampling error alone.",
        ("binomial",),
        _against_n("distance_mean", _YLABEL, source=_by_prior),
    ),
    Figure(
        "edge",
        "Distance to the exact posterior at y = 0",
        "Mean largest difference between the distribution function of 2,000 draws and the exact one at the release "
        "y = 0, uniform prior, ε = 1. The distance of methods with a normal approximation does not decrease with the "
        "number of records.",
        ("edge",),
        _against_n("distance_mean", _YLABEL, source=lambda summaries: {"Beta(1, 1), y = 0": summaries["edge"]}),
    ),
    Figure(
        "quantiles",
        "Posterior quantiles for sparse data",
        "Empirical distribution function of the posterior quantiles of the true parameter, at the stored values that "
        "are nearest to 100 records and ε = 3. The grey band is a simultaneous 95 % band for a calibrated method.",
        ("binomial",),
        _ecdfs(_sparse),
        claims=("exact-methods-are-calibrated-binomial",),
    ),
)
