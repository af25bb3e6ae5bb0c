"""Distribution of the distance between the true posterior and a private release of it (P0, Figures 3b and 3c).

The exact probability of each of 50 bins of the Hellinger distance is computed for every mechanism at balanced data,
for two categories (panel `k2`) and three (`k3`). Nothing is sampled: all candidates (count vectors with sum n) are
enumerated.
"""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import xarray as xr

from mechanisms import MECHANISMS, Mechanism, balanced_counts, enumerate_candidates, hellinger, posterior
from mechanisms.counts.candidates import require_enumerable
from pipeline import (
    EVERY_PANEL,
    Claim,
    Erratum,
    Factor,
    Figure,
    Finding,
    Measure,
    Panel,
    Streams,
    Study,
    claim,
    claims_in,
    verdict,
)
from studies.claims import Look, correct, p0
from studies.counts.problems import at_poster, balanced, require_balanced
from studies.figures import Axis, Chart, stacked
from studies.panels import Values, method_of, require
from studies.styles import MECHANISM_STYLES

_COMPUTED = tuple(mechanism for mechanism in MECHANISMS.values() if mechanism.evaluation == "formula")
_BINS = tuple(left / 50 for left in range(50))


def _sort_candidates(cell: Values, streams: Streams) -> tuple[np.ndarray, ...]:
    """Return the true counts, an order of all count vectors by distance, and the positions in it at which bins end."""
    prior, counts = cell["prior"], balanced_counts(cell["n"], cell["k"])
    candidates = enumerate_candidates(cell["n"], cell["k"])
    distances = hellinger(posterior(prior, counts), posterior(prior, candidates))
    order = np.argsort(distances)
    return counts, order, np.searchsorted(distances[order], cell["distance_bin"][1:])


def _evaluate(
    mechanism: Mechanism, problem: tuple[np.ndarray, ...], setting: Values, streams: Streams
) -> dict[str, Any]:
    counts, order, cuts = problem
    distribution = mechanism.build(setting["prior"], counts, setting["epsilon"], setting["delta"])
    return {
        "probability": [
            np.sum(probabilities_of_bin) for probabilities_of_bin in np.split(distribution.pmf()[order], cuts)
        ],  # sums are pairwise
        "expected_hellinger": distribution.expected_hellinger(),
    }


def _validate(cell: Values, setting: Values) -> bool:
    bins = cell["distance_bin"]
    require_balanced(cell, setting)
    is_ascending = bins[0] == 0 and bins[-1] < 1 and all(left < right for left, right in pairwise(bins))
    requirement = "distance_bin must list the lower edges of the bins, 0 and then increasing numbers < 1"
    require(is_ascending, requirement, ", ".join(map(str, bins)))
    require_enumerable(cell["n"], cell["k"])
    return MECHANISMS[setting["mechanism"]].supports(cell["n"], cell["k"])


def _panel(k: int, figure: str) -> Panel:
    return Panel(
        name=f"k{k}",
        meaning=f"distribution of the distance to the true posterior, {k} categories (P0, Figure {figure})",
        simulate=_sort_candidates,
        methods=tuple(method_of(mechanism, _evaluate) for mechanism in _COMPUTED if k >= mechanism.min_categories),
        measures=(
            Measure("probability", "exact probability of a distance in the bin", dims=("distance_bin",)),
            Measure("expected_hellinger", "exact mean of the distance"),
        ),
        outputs=(Factor("distance_bin", _BINS, "Hellinger distance, lower edge of the bin; the last bin includes 1"),),
        method_dim="mechanism",
        validate=_validate,
        **balanced(k, (100, 500)),
    )


_PANELS = (_panel(2, "3b"), _panel(3, "3c"))


def _edges(summary: xr.Dataset) -> np.ndarray:
    return np.append(summary["distance_bin"].values, 1.0)


def _compare(look: Look, first: str, second: str, n_above: int = 0) -> tuple[bool, bool, str]:
    """Return True if means are smaller, True if distribution functions are larger, at each n > `n_above`; evidence."""
    evidence, nearer, dominates = [], True, True
    for panel, summary in look.items():
        summary = summary.sel(mechanism=[first, second], n=summary["n"] > n_above)
        for n in summary["expected_hellinger"].dropna("n")["n"].values.tolist():
            a, b = summary["expected_hellinger"].sel(n=n).values
            gain = -summary["probability"].sel(n=n).diff("mechanism")[0].cumsum("distance_bin").values[:-1]
            behind = _edges(summary)[1:-1][gain < -1e-12]
            nearer, dominates = nearer and bool(a < b), dominates and not behind.size
            distribution = "at least as large at every h"
            if behind.size:
                distribution = f"smaller for h from {behind.min():g} to {behind.max():g}, by up to {-gain.min():.4f}"
            evidence.append(
                f"{panel}, n = {n}: mean distance {a:.4f} against {b:.4f}, Pr(distance <= h) {distribution}"
            )
    return nearer, dominates, f"{first} against {second}: {'; '.join(evidence)}"


def _stochastically_smaller(look: Look, first: str, second: str, n_above: int = 0) -> Finding:
    """Judge that the distance is stochastically smaller; the verdict is "corrected" if only its mean is."""
    nearer, dominates, evidence = _compare(look, first, second, n_above)
    only = "Only the mean is smaller. " if nearer and not dominates else ""
    return correct(nearer and dominates, nearer, f"{only}{evidence}.")


def _ahead_of_dimension(k: int, mechanism: str, model: str, label: str, correction: str) -> Claim:
    """Return the claim that a mechanism has smaller distances than `laplace-dimension` at each n > 400."""

    @p0(
        f"ahead-of-dimension-k{k}",
        "For n > 400, the smoothed mechanism is ahead of the Laplace baseline scaled to the dimension at all "
        f"distance quantiles ({model}).",
        short=f"For n > 400, {mechanism} is ahead of Laplace noise at all quantiles ({k} categories).",
        place=f"Conclusion and Figure {label}",
        needs=at_poster([f"k{k}"], mechanism, "laplace-dimension", n=(500, ...)),
        erratum=Erratum(f"The same holds for the distribution of the distance ({k} categories).", correction),
    )
    def check(look: Look) -> Finding:
        return _stochastically_smaller(look, mechanism, "laplace-dimension", n_above=400)

    return check


ahead_of_dimension_k2 = _ahead_of_dimension(
    2, "smooth", "2 categories", "3b", "It holds for the mean only: small distances are less likely."
)
ahead_of_dimension_k3 = _ahead_of_dimension(
    3, "smooth-n", "3 categories, N = n + 1 as printed", "3c", "It holds for the mean only."
)


@p0(
    short="Distances are stochastically smaller with smooth than with global sensitivity.",
    place="Motivation 2",
    needs=at_poster(("k2", "k3"), "smooth", "global"),
)
def smooth_ahead_of_global(look: Look) -> Finding:
    """Smooth sensitivity gives stochastically smaller distances than global sensitivity."""
    return _stochastically_smaller(look, "smooth", "global")


@p0(
    short="Noise tailored to the Hellinger distance beats noise scaled to the l1 norm.",
    place="Motivation 1",
    needs=at_poster(("k2", "k3"), "laplace", "smooth"),
    erratum=Erratum(
        "Calibrating the noise to the Hellinger distance improves the distribution of the distance.",
        "Laplace noise scaled to the histogram's sensitivity is at least as likely to be within every distance.",
    ),
)
def ahead_of_histogram(look: Look) -> Finding:
    """Noise calibrated to the Hellinger distance is more accurate than noise scaled to the l1 norm."""
    nearer, _, evidence = _compare(look, "laplace", "smooth")
    return correct(_compare(look, "smooth", "laplace")[0], nearer, f"{evidence}.")


@claim(
    short="Probabilities of the bins sum to 1 and agree with the exact mean distance.",
    kind="self-check",
    also=EVERY_PANEL,
)
def distributions_are_whole(look: Look) -> Finding:
    """The probabilities of the bins sum to 1 and are consistent with the exact mean distance."""
    worst, n_distributions, n_outside = 0.0, 0, 0
    for summary in look.values():
        probability, mean, edges = summary["probability"], summary["expected_hellinger"], _edges(summary)
        worst = max(worst, float(abs(probability.sum("distance_bin", skipna=False) - 1).max()))
        low, high = (probability.dot(summary["distance_bin"].copy(data=side)) for side in (edges[:-1], edges[1:]))
        n_distributions += int(mean.count())
        n_outside += int(((mean < low - 1e-12) | (mean > high + 1e-12)).sum())
    return verdict(
        worst <= 1e-12 and not n_outside,
        f"{n_distributions} distributions: probabilities sum to 1 within {worst:.0e}; {n_outside} exact means are "
        "outside the range given by the bins.",
    )


_CLAIMS = claims_in(globals())


def _bins(ds: xr.Dataset) -> xr.Dataset:
    """Return the probabilities of bins at their middles, without those of empty bins."""
    middles = (_edges(ds)[1:] + ds["distance_bin"].values) / 2
    return ds.assign(probability=ds["probability"].where(ds["probability"] > 0)).assign_coords(distance_bin=middles)


def _sums(ds: xr.Dataset) -> xr.Dataset:
    """Return the cumulative probabilities at the edges of the bins."""
    edges = _edges(ds)
    sums = ds["probability"].cumsum("distance_bin").assign_coords(distance_bin=edges[1:])
    sums = sums.reindex(distance_bin=edges, fill_value=0.0).where(ds["probability"].notnull().any("distance_bin"))
    return sums.to_dataset().assign_coords({name: coord for name, coord in ds.coords.items() if not coord.dims})


def _figure(k: int, label: str) -> Figure:
    bins = Chart(
        f"k{k}", "distance_bin", {"y": "probability"}, "mechanism", MECHANISM_STYLES,
        x=Axis("Hellinger distance", limits=(0.0, 1.0)), y=Axis("probability of the bin", log=True, limits=(1e-6, 1.0)),
        facet={"n": "n = {}"}, prepare=_bins, columns=2, n_markers=8, first=_FIRST, at_ends=False,
        with_constants=True)  # fmt: skip
    sums = replace(
        bins, prepare=_sums, y=Axis("cumulative probability", limits=(0.0, 1.0)), best="highest", with_constants=False
    )
    title = f"Distribution of the distance, {k} categories (P0, Figure {label})"
    return Figure(f"distribution-k{k}", title, _CAPTION, (f"k{k}",), stacked(bins, sums))


_FIRST = ("k-norm", "laplace", "smooth", "smooth-n", "smooth-exact", "laplace-dimension")
_CAPTION = (
    "Exact distribution of the Hellinger distance between the true and the released posterior. Top: probability of "
    "each bin that contains a candidate, on a logarithmic axis. Bottom: cumulative distribution function; higher "
    "curves are more accurate."
)

STUDY = Study(
    name="hellinger-distribution",
    papers=("P0",),
    title="Distribution of the distance between the true posterior and private releases",
    aim=(
        "Compare the mechanisms by the distribution of the distance between the true and the released posterior. The "
        "study hellinger-accuracy compares the means."
    ),
    panels=_PANELS,
    seed=20_180_803,
    claims=_CLAIMS,
    figures=(_figure(2, "3b"), _figure(3, "3c")),
)
