"""Comparison of private releases of counts with the minimax optimal release.

The expected Hellinger distance to the true posterior is computed at the worst data set and at balanced data, for two,
three and four categories (panels `k2`, `k3`, `k4`) and for sizes up to the limit of the linear program in
`mechanisms.counts.optimal`. No ε-DP release of counts has a smaller worst case than `optimal`.

Mechanisms are compared by the worst case. A small distance at balanced data is not sufficient: the constant release of
balanced counts is private and has distance 0 there.

References
----------
Ghosh, Roughgarden & Sundararajan, "Universally utility-maximizing privacy mechanisms", SIAM Journal on Computing 41(6),
2012. Gupte & Sundararajan, "Universally optimal privacy mechanisms for minimax agents", PODS 2010.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import xarray as xr

from mechanisms import MECHANISMS, Mechanism, balanced_counts, enumerate_candidates
from mechanisms.counts.optimal import require_solvable
from pipeline import Erratum, Figure, Finding, Measure, Panel, Scale, Streams, Study, claim, claims_in, verdict
from studies.claims import Look, Summaries, correct, in_panels, joined, p0, place, ratio, smallest, span
from studies.counts.page_tables import compare_worst_cases
from studies.counts.problems import balanced, cells, require_balanced, require_cells
from studies.figures import ratios
from studies.panels import Values, method_of

_SIZES = {2: (5, 10, 20, 30, 50, 70, 100, 139), 3: (3, 5, 8, 10, 12, 15, 18, 20), 4: (3, 4, 5, 6, 7, 8, 9, 10)}
_PANELS = tuple(f"k{k}" for k in _SIZES)
_ROUNDING = 1e-6  # relative tolerance; the linear program is solved to 1e-7
_TAILORED = ("smooth", "smooth-n", "smooth-exact", "varying", "varying-exact", "varying-bound", "global-exact")
_NOISE = ("laplace", "geometric")
_SOLVED = "k-norm-minimax"
_NEAR = {"k2": ("geometric", 1.02), "k3": ("k-norm", 1.02), "k4": ("k-norm", 1.03)}  # for k2, k-norm has the same ratio


def _list_data_sets(cell: Values, streams: Streams) -> tuple[np.ndarray, int]:
    """Return all data sets, and the index of the balanced one."""
    n, k = cell["n"], cell["k"]
    datasets = enumerate_candidates(n, k)
    balanced = np.flatnonzero((datasets == balanced_counts(n, k)).all(axis=1))
    return datasets, int(balanced[0])


def _evaluate(
    mechanism: Mechanism, problem: tuple[np.ndarray, int], setting: Values, streams: Streams
) -> dict[str, Any]:
    datasets, balanced = problem
    prior, epsilon, delta = (setting[name] for name in ("prior", "epsilon", "delta"))
    expected = np.array([mechanism.build(prior, counts, epsilon, delta).expected_hellinger() for counts in datasets])
    worst = int(np.argmax(expected))
    return {
        "worst_hellinger": expected[worst],
        "balanced_hellinger": expected[balanced],
        "worst_dataset": datasets[worst],
    }


def _validate(cell: Values, setting: Values) -> bool:
    n, k = cell["n"], cell["k"]
    require_balanced(cell, setting)
    require_cells(cell["cell"], k)
    require_solvable(n, k)
    MECHANISMS[setting["mechanism"]].validate(
        cell["prior"], balanced_counts(n, k), setting["epsilon"], setting["delta"]
    )
    return True


def _panel(k: int) -> Panel:
    private = (mechanism for mechanism in MECHANISMS.values() if mechanism.is_private and k >= mechanism.min_categories)
    return Panel(
        name=f"k{k}",
        meaning=f"distance to the true posterior at the worst data set and at balanced data, {k} categories",
        simulate=_list_data_sets,
        methods=tuple(method_of(mechanism, _evaluate) for mechanism in private),
        measures=(
            Measure("worst_hellinger", "largest exact mean distance to the true posterior over all data sets"),
            Measure("balanced_hellinger", "exact mean distance to the true posterior at balanced data"),
            Measure("worst_dataset", "counts of the data set with the largest distance", dims=("cell",), dtype="int64"),
        ),
        outputs=(cells(k),),
        method_dim="mechanism",
        validate=_validate,
        version=2,  # sums have a fixed order
        **balanced(k, _SIZES[k]),
    )


def _ratio(summary: xr.Dataset, measure: str = "worst_hellinger") -> xr.DataArray:
    """Return the ratio of a measure to its value for the optimal release."""
    distance = summary[measure]
    return distance / distance.sel(mechanism="optimal", drop=True)


def _nearest(ratio: xr.DataArray) -> xr.DataArray:
    """Return the smallest ratio for each n, with its mechanism."""
    return ratio.isel(mechanism=ratio.fillna(np.inf).argmin("mechanism"))


def _list_nearest(nearest: xr.DataArray) -> str:
    """List the nearest mechanisms, each with its values of n and the range of its ratios to the optimum."""
    by_name = {
        name: nearest[nearest["mechanism"] == name] for name in dict.fromkeys(nearest["mechanism"].values.tolist())
    }
    return "; ".join(
        f"{name} at n = {', '.join(map(str, nearest_of_mechanism['n'].values))} ({span(nearest_of_mechanism, '.3f')})"
        for name, nearest_of_mechanism in by_name.items()
    )


@claim(
    short="No private release has a smaller worst-case distance than the linear program.",
    kind="self-check",
    needs=in_panels(_PANELS, mechanism=("optimal", ...)),
)
@joined("Ratio of the worst case to that of optimal: {}.")
def none_is_better(look: Look) -> Iterator[Finding]:
    """No private release of counts has a smaller worst-case distance than the solution of the linear program."""
    for panel, summary in look.items():
        ratios = _ratio(summary).drop_sel(mechanism="optimal")
        if not ratios.size:
            yield verdict(None, f"{panel}: no other release is stored")
            continue
        n_below, least = int((ratios < 1 - _ROUNDING).sum()), smallest(ratios)
        where = f"({least['mechanism'].item()}, {place(least, ('n',))})"
        yield verdict(not n_below, f"{panel}: at least {least:.4f} {where}, {n_below} exceptions")


@claim(
    short="With two categories, post-processed geometric noise has the optimal worst case.",
    place="Ghosh, Roughgarden & Sundararajan 2012; Gupte & Sundararajan 2010 for the worst case",
    kind="addition",
    needs={"k2": {"mechanism": ("optimal", "geometric", ...), "prior": ("1:1",)}},
)
def geometric_is_nearest(look: Look) -> Finding:
    """With two categories, geometric noise has the smallest worst case of all mechanisms but linear programs;
    post-processing its output makes it optimal.
    """
    ratio = _ratio(look["k2"])
    compared = [name for name in ratio["mechanism"].values.tolist() if MECHANISMS[name].evaluation != "program"]
    nearest = _nearest(ratio.sel(mechanism=compared))
    ahead = nearest["mechanism"] == "geometric"
    evidence = f"Mechanism nearest to the optimum, with its ratio: {_list_nearest(nearest)}."
    return correct(ahead.all(), ahead.any(), f"{evidence} Post-processing of geometric noise closes the gap.")


@claim(
    short="The worst case of post-processed K-norm noise is within 2 or 3 % of the optimum.",
    place="Hardt & Talwar 2010 for the noise; Gupte & Sundararajan 2010 for two categories",
    kind="addition",
    needs={panel: {"mechanism": ("optimal", name, _SOLVED)} for panel, (name, _) in _NEAR.items()},
)
@joined("Worst case relative to the optimum. {}.", ". ")
def k_norm_is_near_optimal(look: Look) -> Iterator[Finding]:
    """Post-processed K-norm noise has a worst case within 2 % of the optimum of all private releases with two and three
    categories, and within 3 % with four.
    """
    for panel, (name, near) in _NEAR.items():
        summary = look[panel]
        worst = _ratio(summary)
        solved, projected = worst.sel(mechanism=_SOLVED), worst.sel(mechanism=name)
        yield verdict(
            (solved <= near).all(),
            f"{panel}: {span(solved, '.4f')}, with projection only {span(projected, '.3f')}; at balanced data "
            f"{span(ratio(summary['balanced_hellinger'], _SOLVED, name), '.3f')} times the distance of the projection",
        )


@p0(
    short="At the worst data set, tailored noise beats noise scaled to the l1 norm.",
    place="Motivation 1, judged by the worst case",
    needs=in_panels(_PANELS, mechanism=("optimal", "smooth-exact", *_NOISE, ...)),
    erratum=Erratum(
        "Calibrating the noise to the Hellinger distance improves the distance at the worst data set.",
        "Noise on the counts has a smaller distance there, except for the smallest data sets.",
        place="Motivation 1",
    ),
)
def tailored_is_nearer(look: Look) -> Finding:
    """At the worst data set, noise calibrated to the Hellinger distance is more accurate than noise scaled to the l1
    norm.
    """
    evidence, ahead = [], []
    for panel, summary in look.items():
        ratios = _ratio(summary)
        tailored, noise = (
            _nearest(ratios.sel(mechanism=ratios["mechanism"].isin(group))) for group in (_TAILORED, _NOISE)
        )
        nearer = (tailored < noise).values
        ahead += nearer.tolist()
        where = ", ".join(map(str, ratios["n"].values[nearer])) or "none"
        evidence.append(
            f"{panel}: smaller than with noise on the counts at n = {where}; {_list_nearest(tailored[-1:])} against "
            f"{_list_nearest(noise[-1:])}; smallest of all mechanisms: "
            f"{_list_nearest(_nearest(ratios.drop_sel(mechanism='optimal')))}"
        )
    return correct(all(ahead), any(ahead), f"Worst case relative to the optimum. {'. '.join(evidence)}.")


_CLAIMS = claims_in(globals())


def _figure(objective: str, title: str, caption: str, ylabel: str) -> Figure:
    def relative(summaries: Summaries) -> dict[str, xr.Dataset]:
        shown = {f"{k} categories": summaries[f"k{k}"] for k in _SIZES if f"k{k}" in summaries}
        return {
            title: ds.assign(ratio=_ratio(ds, f"{objective}_hellinger")).drop_sel(mechanism="optimal")
            for title, ds in shown.items()
        }

    return Figure(f"limits-{objective}", title, caption, _PANELS, ratios(relative, ylabel))


STUDY = Study(
    name="hellinger-limits",
    papers=("P0",),
    title="Private posterior releases compared with the optimal release",
    aim=(
        "Compare the worst-case distance of every private mechanism to the true posterior with the smallest that any "
        "release of counts with the same guarantee can have."
    ),
    panels=tuple(_panel(k) for k in _SIZES),
    seed=20_180_805,
    claims=_CLAIMS,
    figures=(
        _figure(
            "worst",
            "Distance to the true posterior at the worst data set, relative to the optimum",
            "Largest expected Hellinger distance over all data sets, divided by the smallest that any private release "
            "of counts can have, against the number of records, for two, three and four categories. The line at 1 is "
            "the optimum, computed by linear programming.",
            "worst case / optimum",
        ),
        _figure(
            "balanced",
            "Distance to the true posterior at balanced data, relative to the optimum",
            "Expected Hellinger distance at balanced data, divided by the smallest among private releases of counts "
            "with the optimal worst case. A mechanism with a larger worst case may lie below the line at 1. With two "
            "categories and large n the constraint on the worst case admits releases tailored to balanced data, so the "
            "optimum is not a useful target there.",
            "balanced data / optimum",
        ),
    ),
    quick=Scale(values={"n": {"k2": (5, 10, 30), "k3": (3, 5, 10), "k4": (3, 5, 6)}}),
    comparisons=(compare_worst_cases,),
)
