"""How far private releases of counts are from the best possible one.

For two, three and four cells (`k2`, `k3`, `k4`) and as many records as the linear program of
`mechanisms.counts.optimal` takes: the expected Hellinger distance to the true posterior at the worst data set, and at
balanced data. No ε-DP release of counts has a smaller worst case than `optimal`.

The worst case is what is compared. A small distance at balanced data proves nothing by itself: the constant answer
"balanced" is private and has distance 0 there. It is stored beside the worst case to show what a mechanism gives up.

References
----------
P0: Bun, Farina, Gaboardi & Liu, "Tailoring Differentially Private Bayesian Inference to Distance Between
Distributions" (poster). Ghosh, Roughgarden & Sundararajan, "Universally utility-maximizing privacy mechanisms", SIAM
Journal on Computing 41(6), 2012. Gupte & Sundararajan, "Universally optimal privacy mechanisms for minimax agents",
PODS 2010.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from mechanisms import MECHANISMS, balanced_counts, enumerate_candidates
from mechanisms.counts.optimal import require_solvable
from pipeline import Claim, Factor, Figure, Finding, Measure, Method, Panel, Streams, Study
from pipeline.declare.study import Verdict
from studies.styles import MECHANISM_STYLES

_SIZES = {
    2: (5, 10, 20, 30, 50, 70, 100, 139),
    3: (3, 5, 8, 10, 12, 15, 18),
    4: (3, 4, 5, 6, 7, 8, 9, 10),
}
_ROUNDING = 1e-6  # relative: the linear program holds its worst case to 1e-7
_TAILORED = ("smooth", "smooth-n", "smooth-exact", "varying", "varying-exact", "varying-bound", "global-exact")
_NOISE = ("laplace", "geometric")


@dataclass(frozen=True)
class _Problem:
    """One cell: prior, all data sets, and which of them is the balanced one."""

    prior: tuple[float, ...]
    datasets: np.ndarray
    balanced: int


def _list_data_sets(cell: Mapping[str, Any], streams: Streams) -> _Problem:
    n, k = cell["n"], cell["k"]
    datasets = enumerate_candidates(n, k)
    balanced = np.flatnonzero((datasets == balanced_counts(n, k)).all(axis=1))
    return _Problem(cell["prior"], datasets, int(balanced[0]))


def _method(name: str) -> Method:
    def evaluate(problem: _Problem, setting: Mapping[str, Any], streams: Streams) -> dict[str, Any]:
        epsilon, delta = setting["epsilon"], setting["delta"]
        expected = np.array(
            [
                MECHANISMS[name].build(problem.prior, counts, epsilon, delta).expected_hellinger()
                for counts in problem.datasets
            ]
        )
        worst = int(np.argmax(expected))
        return {
            "worst_hellinger": expected[worst],
            "balanced_hellinger": expected[problem.balanced],
            "worst_dataset": problem.datasets[worst],
        }

    return Method(name, evaluate, note=MECHANISMS[name].note)


def _validate(cell: Mapping[str, Any], setting: Mapping[str, Any]) -> bool:
    n, k, prior = cell["n"], cell["k"], cell["prior"]
    if n < 1:
        raise ValueError(f"n must be >= 1, got {n}")
    if len(prior) != k:
        raise ValueError(f"prior must have {k} entries, one a cell, got {len(prior)}")
    if cell["cell"] != tuple(range(k)):
        raise ValueError(f"cell must be 0 to {k - 1} in order, got {', '.join(map(str, cell['cell']))}")
    require_solvable(n, k)
    MECHANISMS[setting["mechanism"]].validate(prior, balanced_counts(n, k), setting["epsilon"], setting["delta"])
    return True


def _panel(k: int) -> Panel:
    # at k = 2 both readings of N are n + 1
    names = [name for name, one in MECHANISMS.items() if one.is_private and (k > 2 or name != "smooth-n")]
    return Panel(
        name=f"k{k}",
        meaning=f"distance to the true posterior at the worst data set and at balanced data, {k} cells",
        simulate=_list_data_sets,
        methods=tuple(_method(name) for name in names),
        measures=(
            Measure("worst_hellinger", "largest exact mean distance to the true posterior over all data sets"),
            Measure("balanced_hellinger", "exact mean distance to the true posterior at balanced data"),
            Measure("worst_dataset", "counts of the data set with the largest", dims=("cell",), dtype="int64"),
        ),
        factors=(Factor("n", _SIZES[k], "number of records", "int"),),
        outputs=(Factor("cell", tuple(range(k)), "cell of the counts", "int"),),
        constants=(
            Factor("epsilon", (1.0,), "privacy loss", unit="nat"),
            Factor("delta", (1e-8,), "probability of a larger privacy loss"),
            Factor("prior", ((1.0,) * k,), "Dirichlet parameters of the prior", "vector"),
            Factor("k", (k,), "number of cells", "int"),
        ),
        method_dim="mechanism",
        validate=_validate,
    )


# Claims


def _ratio(summary: xr.Dataset, measure: str = "worst_hellinger") -> xr.DataArray:
    """Return the worst case, or another measure, over that of the best possible release."""
    distance = summary[measure]
    return distance / distance.sel(mechanism="optimal", drop=True)


def _none_is_better(summaries: Mapping[str, xr.Dataset]) -> Finding:
    n_below, evidence = 0, []
    for panel, summary in summaries.items():
        ratio = _ratio(summary).drop_sel(mechanism="optimal")
        n_below += int((ratio < 1 - _ROUNDING).sum())
        n, name, least = min(_nearest(ratio), key=lambda each: each[2])
        evidence.append(f"{panel}: at least {least:.4f} ({name}, n = {n})")
    return Finding(
        "not reproduced" if n_below else "reproduced",
        f"{n_below} exceptions. Worst case over that of optimal, {'; '.join(evidence)}.",
    )


def _everywhere(n_true: int, n_all: int) -> Verdict:
    """Return the verdict on a claim that holds in `n_true` of `n_all` places; in some of them only, it is corrected."""
    if n_true == n_all:
        return "reproduced"
    return "corrected" if n_true else "not reproduced"


def _nearest(ratio: xr.DataArray) -> list[tuple[int, str, float]]:
    """Return for each n the mechanism nearest to the optimum, and its ratio."""
    found = []
    for n in ratio["n"].values.tolist():
        one = ratio.sel(n=n).dropna("mechanism")
        best = one.isel(mechanism=int(np.argmin(one.values)))
        found.append((n, str(best["mechanism"].item()), float(best)))
    return found


def _list_nearest(found: list[tuple[int, str, float]]) -> str:
    """Name the nearest mechanisms, one phrase for each with the sizes and the range of its ratio."""
    phrases = []
    for name in dict.fromkeys(name for _, name, _ in found):
        sizes = [n for n, one, _ in found if one == name]
        ratios = [f"{ratio:.3f}" for _, one, ratio in sorted(found, key=lambda each: each[2]) if one == name]
        span = " to ".join(dict.fromkeys((ratios[0], ratios[-1])))
        phrases.append(f"{name} at n = {', '.join(map(str, sizes))} ({span})")
    return "; ".join(phrases)


def _geometric_is_nearest(summaries: Mapping[str, xr.Dataset]) -> Finding:
    found = _nearest(_ratio(summaries["k2"]).drop_sel(mechanism="optimal"))
    n_ahead = sum(name == "geometric" for _, name, _ in found)
    return Finding(
        _everywhere(n_ahead, len(found)),
        f"Nearest, with its worst case over the optimum: {_list_nearest(found)}. What is left is post-processing.",
    )


def _tailored_is_nearer(summaries: Mapping[str, xr.Dataset]) -> Finding:
    evidence, ahead = [], []
    for panel in ("k2", "k3", "k4"):
        ratio = _ratio(summaries[panel])
        names = ratio["mechanism"].values.tolist()
        tailored, noise = (
            ratio.sel(mechanism=[name for name in group if name in names]) for group in (_TAILORED, _NOISE)
        )
        nearer = tailored.min("mechanism") < noise.min("mechanism")
        ahead += nearer.values.tolist()
        where = ", ".join(str(n) for n in nearer["n"].values[nearer.values]) or "none"
        last = [_list_nearest(_nearest(group.isel(n=[-1]))) for group in (tailored, noise)]
        nearest = _list_nearest(_nearest(ratio.drop_sel(mechanism="optimal")))
        evidence.append(
            f"{panel}: nearer than noise at n = {where}; {last[0]} against {last[1]}; nearest of all {nearest}"
        )
    return Finding(_everywhere(sum(ahead), len(ahead)), f"Worst case over the optimum, {'. '.join(evidence)}.")


_CLAIMS = (
    Claim(
        "none-is-better",
        "No private release of counts has a smaller worst case than the solution of the linear program.",
        "check of this study",
        {panel: {"mechanism": ("optimal",)} for panel in ("k2", "k3", "k4")},
        _none_is_better,
    ),
    Claim(
        "geometric-is-nearest",
        "At two cells geometric noise is nearest to the optimum: it is optimal up to post-processing of its output.",
        "Ghosh, Roughgarden & Sundararajan 2012; Gupte & Sundararajan 2010 for the worst case",
        {"k2": {"mechanism": ("optimal", "geometric"), "prior": ("1:1",)}},
        _geometric_is_nearest,
    ),
    Claim(
        "tailored-is-nearer",
        "Calibrating the noise to the Hellinger distance improves on noise scaled to the l1 norm, at the worst data "
        "set.",
        "P0, Motivation 1, judged by the worst case",
        {panel: {"mechanism": ("optimal", "smooth-exact", *_NOISE)} for panel in ("k2", "k3", "k4")},
        _tailored_is_nearer,
    ),
)


def _figure(objective: str, title: str, caption: str, ylabel: str) -> Figure:
    def draw(summaries: Mapping[str, xr.Dataset]) -> Any:
        from studies.figures import draw_ratios

        shown = {}
        for k in (k for k in _SIZES if f"k{k}" in summaries):
            summary = summaries[f"k{k}"]
            ratio = _ratio(summary, f"{objective}_hellinger")
            shown[f"{k} cells"] = summary.assign(ratio=ratio).drop_sel(mechanism="optimal")
        return draw_ratios(shown, "n", "ratio", "mechanism", MECHANISM_STYLES, ylabel)

    return Figure(f"limits-{objective}", title, caption, tuple(f"k{k}" for k in _SIZES), draw)


STUDY = Study(
    name="hellinger-limits",
    title="How far private releases of a posterior are from the best possible",
    aim=(
        "Compare every private mechanism with the smallest worst-case distance to the true posterior that any release "
        "of counts with the same guarantee can have."
    ),
    panels=tuple(_panel(k) for k in _SIZES),
    seed=20_180_805,
    claims=_CLAIMS,
    figures=(
        _figure(
            "worst",
            "Distance to the true posterior at the worst data set, over the best possible",
            "The largest expected Hellinger distance over all data sets, divided by the smallest that any private "
            "release of counts can have, against the number of records, for two, three and four cells. The line at 1 "
            "is the optimum, by linear programming.",
            "worst case / best possible",
        ),
        _figure(
            "balanced",
            "Distance to the true posterior at balanced data, over the best possible",
            "The expected Hellinger distance at balanced data, divided by the smallest that a private release of "
            "counts can have whose worst case is the best possible; one with a larger worst case may lie below the "
            "line at 1. At two cells and large n the worst case leaves room for releases made for balanced data alone, "
            "and the optimum is not one to strive for.",
            "balanced data / best possible",
        ),
    ),
)
