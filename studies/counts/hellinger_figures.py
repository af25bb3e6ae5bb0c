"""Figures of the study `hellinger-accuracy`."""

from collections.abc import Mapping

import xarray as xr

from pipeline import Figure
from studies.claims import entries
from studies.counts.hellinger_rivals_claims import SKEWED, mean_distance, private_rivals
from studies.figures import Axis, Chart, quantiles, ratios
from studies.styles import MECHANISM_STYLES


def _with_mean(ds: xr.Dataset) -> xr.Dataset:
    """Return a summary with the exact mean, or that of the draws where it is not computable."""
    return ds.assign(mean=ds["expected_hellinger"].fillna(ds["hellinger_mean"]))


def accuracy(panel: str) -> Chart:
    """Describe the mean distance against n: markers are means of draws, lines connect exact means if computable."""
    return Chart(
        panel,
        "n",
        {"y": "hellinger_mean", "exact": "mean"},
        "mechanism",
        MECHANISM_STYLES,
        prepare=_with_mean,
        y=Axis("mean Hellinger distance", log=True),
        marks=("exact", "errors", "points"),
        height=300,
        first=("k-norm", "laplace", "smooth", "smooth-exact", "laplace-dimension", "varying-bound"),
        with_constants=True,
    )


def _skewed_ratios(summaries: Mapping[str, xr.Dataset]) -> dict[str, xr.Dataset]:
    """Return the mean distances divided by that of k-norm, for each panel and decreasing shares."""
    parts = {}
    for panel in (panel for panel in SKEWED if panel in summaries):
        mean = mean_distance(summaries[panel])[0]
        for shares in mean["shares"].values.tolist():
            if list(entries(shares)) == sorted(entries(shares), reverse=True):
                one = mean.sel(shares=shares)
                found = private_rivals(one / one.sel(mechanism="k-norm", drop=True)).dropna("mechanism", how="all")
                names = found["mechanism"].values.tolist()
                parts[f"shares {shares}"] = summaries[panel].sel(shares=shares, mechanism=names).assign(ratio=found)
    return parts


_LINES = (
    "Mean Hellinger distance between the true and the released posterior against the number of records. Markers show "
    "means of the draws; error bars show ± 2 Monte Carlo standard errors and are often smaller than the marker. Lines "
    "connect the exact expectations."
)
FIGURES = (
    *(
        Figure(
            f"accuracy-k{k}",
            f"Accuracy against n, {k} categories (P0, Figure {label})",
            _LINES,
            (f"k{k}",),
            accuracy(f"k{k}"),
        )
        for k, label in ((2, "2a"), (3, "2b"), (4, "2c"))
    ),
    Figure(
        "accuracy-prior",
        "Accuracy against the prior (P0, Figure 3a)",
        "Hellinger distance for 50 successes in 100 records under the prior Beta(a, a), for each mechanism. Lines are "
        "medians of the draws, dark bands span the quartiles, and light bands span the 5th to the 95th percentile.",
        ("prior",),
        Chart(
            "prior",
            "prior",
            quantiles("hellinger"),
            "mechanism",
            MECHANISM_STYLES,
            x=Axis(discrete=True),
            y=Axis("Hellinger distance", limits=(0.0, 1.0)),
            marks=("tails", "band", "line"),
            facet={"mechanism": "{}"},
            columns=3,
            height=120,
            named=False,
        ),
    ),
    Figure(
        "accuracy-abalone",
        "Accuracy on real data: the sexes of 4,177 abalones",
        "Hellinger distance between the true and the released posterior. Thick bars span the quartiles of the draws, "
        "thin bars the 5th to the 95th percentile; the marker is the exact mean.",
        ("abalone",),
        Chart(
            "abalone",
            "mechanism",
            {**quantiles("hellinger"), "y": "mean"},
            "mechanism",
            MECHANISM_STYLES,
            x=Axis(discrete=True),
            y=Axis("Hellinger distance", log=True),
            marks=("whisker", "box", "points"),
            prepare=lambda ds: _with_mean(ds).dropna("mechanism", how="all", subset=["hellinger_mean"]),
            named=False,
            sideways=True,
            with_constants=True,
        ),
    ),
    Figure(
        "accuracy-k10",
        "Accuracy against n, 10 categories",
        "Mean Hellinger distance between the true and the released posterior against the number of records, at "
        "balanced data of ten categories. Markers show means of the draws; error bars show ± 2 Monte Carlo standard "
        "errors. Lines connect the exact expectations, or the means of draws where these cannot be computed.",
        ("k10",),
        accuracy("k10"),
    ),
    Figure(
        "accuracy-skewed",
        "Accuracy at unequal shares, relative to K-norm noise",
        "Mean Hellinger distance of each private mechanism divided by that of k-norm against the number of records, at "
        "unequal shares with the largest category first. The line at 1 is k-norm.",
        SKEWED,
        ratios(_skewed_ratios, "n", MECHANISM_STYLES, "mean distance / that of k-norm"),
    ),
)
