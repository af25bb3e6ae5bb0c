"""Claims of the study `noisy-tables`."""

from dataclasses import replace
from typing import Any

import numpy as np

from pipeline import Finding, claim, two_sided_level
from studies.claims import (
    Look,
    above,
    below,
    both,
    decide,
    enumerated,
    gap,
    mean,
    mean_ratio,
    shown,
    smaller,
    together,
    uniform,
)
from studies.panels import NOMINAL

_CALIBRATED: dict[str, dict[str, Any]] = {
    "tree": {
        "algorithm": "tree", "part": ("leaf", "county", "state", "total"), "noise_std": (5.0,), "prior": ("true",)},
    "formats": {"algorithm": "tree", "part": ("leaf", "group", "total"), "noise_std": (2.0,)},
    "mechanisms": {"algorithm": "tree", "part": ("all",), "epsilon": (1.0,)},
}  # fmt: skip
"""Panel -> levels whose nodes do not depend on the counts, and values at which the prior is the true one."""

_G1: dict[str, Any] = {"leaves": "sparse", "noise_std": 5.0, "prior": "true"}

_ADDED: dict[str, Any] = {"kind": "addition", "min_trials": 20, "level": two_sided_level(4)}


@claim(
    short="With the true prior, the exact posterior is calibrated at each level.",
    kind="self-check",
    min_trials=20,
    needs=_CALIBRATED,
)
def exact_posteriors_are_calibrated(look: Look) -> Finding:
    """With the true prior, randomised quantiles of the exact posterior are uniform at each level, for every noise,
    format and mechanism of counts.
    """
    return together([uniform({name: look.select(name)["pit_p"] for name in _CALIBRATED}, 1e-3)])


@claim(
    short="In sparse leaves, exact intervals are 25 % narrower than those of least squares.",
    **_ADDED,
    leads=True,
    needs={"tree": {"algorithm": ("tree", "least-squares", ...), "part": "leaf below 20", **_G1}},
)
def narrower_in_small_cells(look: Look) -> Finding:
    """In sparse leaves with fewer than 20 records, 95 % intervals of the exact posterior with the true prior are at
    least 25 % narrower than those of least squares.
    """
    ds = look.select("tree")
    finding = smaller(ds, "width", "tree", "least-squares", look.critical(4), 0.75)
    ratios = [
        f"{shown(mean_ratio(ds, 'width', 'tree', other))} to {other}"
        for other in ("least-squares-clipped", "leaf")
        if other in ds["algorithm"]
    ]
    others = f" Other ratios: {enumerated(ratios)}." if ratios else ""
    covered = ds["covered_mean"].sel(algorithm="tree")
    evidence = f"{finding.evidence}{others} The exact posterior covers {covered:.1%} of these leaves."
    return replace(finding, evidence=evidence)


@claim(
    short="In sparse leaves, the posterior mean has 5 % less error than clipping at 0.",
    **_ADDED,
    needs={"tree": {"algorithm": ("tree", "least-squares-clipped"), "part": "leaf", **_G1}},
)
def smaller_error_than_clipping(look: Look) -> Finding:
    """In sparse leaves, the posterior mean with the true prior has at most 95 % of the root mean squared error of least
    squares clipped at 0.
    """
    ratio, error = mean_ratio(look.select("tree"), "square", "tree", "least-squares-clipped")
    root = np.sqrt(ratio)
    evidence = f"Ratio of root mean squared errors {root:.3f} ± {error / (2 * root):.3f}."
    return decide(*below(0.95**2, (ratio, error), look.critical(4)), evidence)


@claim(
    short="Given the whole table, intervals of counties and states are 5 % narrower.",
    **_ADDED,
    needs={"tree": {"algorithm": ("tree", "leaf"), "part": ("county", "state"), **_G1}},
)
def levels_inform_each_other(look: Look) -> Finding:
    """In sparse tables, 95 % intervals of counties and states given the whole table are at least 5 % narrower than
    given the value of the node alone.
    """
    return smaller(look.select("tree"), "width", "tree", "leaf", look.critical(4), 0.95)


@claim(
    short="A prior with a wrong mean and a wrong shape undercovers sparse leaves.",
    **_ADDED,
    needs={"tree": {"algorithm": "tree", "part": "leaf below 20", **_G1, "prior": "wrong"}},
)
def wrong_prior_undercovers(look: Look) -> Finding:
    """A prior with twice the true mean and five times the true shape undercovers sparse leaves with fewer than 20
    records.
    """
    covered = mean(look.select("tree"), "covered")
    return decide(*below(NOMINAL, covered, look.critical(4)), f"Coverage {shown(covered)}; nominal {NOMINAL}.")


_SIZES = ("0", "1 to 19", "20 to 199", "200 or more")
_RIVALS = ("tree", "least-squares-clipped")


@claim(
    short="On Adult, intervals given a fitted prior cover at least 93 % of the cells.",
    **_ADDED,
    needs={"contingency": {"algorithm": _RIVALS, "noise_std": 5.0, "part": _SIZES}},
)
def fitted_prior_covers_real_counts(look: Look) -> Finding:
    """On Adult, 95 % intervals given a fitted prior cover at least 93 % of the cells of each size, and small cells 5 %
    more narrowly than clipped least squares.
    """
    ds, deviations = look.select("contingency"), look.critical(4)
    covered = mean(ds, "covered", algorithm="tree")
    narrower = smaller(ds.sel(part=list(_SIZES[:2])), "width", *_RIVALS, deviations, 0.95)
    coverage = decide(*above(0.93, covered, deviations), f"Coverage {shown(covered)} over sizes")
    return together((coverage, narrower), "{}", ". ")


_IN_LEAVES: dict[str, Any] = {"published": "rounded", "noise_std": 2.0, "part": "leaf"}
_SUPPRESSED: dict[str, Any] = {"published": "suppressed", "noise_std": 2.0, "part": "leaf below 20"}
_READINGS = ("tree", "published")


@claim(
    short="Intervals that ignore rounding cover fewer leaves than the exact posterior.",
    **_ADDED,
    needs={"formats": {"algorithm": _READINGS, **_IN_LEAVES}},
)
def formats_belong_in_the_likelihood(look: Look) -> Finding:
    """If values are rounded to multiples of 5, intervals that ignore the rounding cover at least 2 percentage points
    fewer leaves than the exact posterior.
    """
    ds = look.select("formats")
    tree, published = (ds["covered_mean"].sel(algorithm=name) for name in _READINGS)
    return decide(
        *above(0.02, gap(ds, "covered", *_READINGS), look.critical(4)),
        f"Coverage {published:.3f} without and {tree:.3f} with the rounding in the likelihood, standard errors up to "
        f"{ds['covered_mcse'].max():.3f}.",
    )


@claim(
    short="Intervals that use the suppression of small values are 20 % narrower.",
    **_ADDED,
    needs={"formats": {"algorithm": _READINGS, **_SUPPRESSED}},
)
def suppression_informs(look: Look) -> Finding:
    """If values below 5 are suppressed, 95 % intervals of leaves with fewer than 20 records are at least 20 % narrower
    than if they were treated as missing.
    """
    return smaller(look.select("formats"), "width", *_READINGS, look.critical(4), 0.8)


_NOISES = ("k-norm", "geometric")


@claim(
    short="K-norm intervals are 3 % narrower than geometric ones with 10 categories.",
    **_ADDED,
    needs={"mechanisms": {"algorithm": "tree", "epsilon": 1.0, "part": "all", "k": (10, 100), "noise": _NOISES}},
)
def k_norm_gains_with_few_categories(look: Look) -> Finding:
    """At ε = 1 and a public total, intervals given K-norm noise are at least 3 % narrower than given geometric noise
    with 10 categories, at most 3 % with 100.
    """
    ds, deviations = look.select("mechanisms"), look.critical(4)
    few, several = (mean_ratio(ds.sel(k=k), "width", *_NOISES) for k in (10, 100))
    return decide(
        *both(below(0.97, few, deviations), above(0.97, several, deviations)),
        f"Ratio of mean widths {shown(few)} with 10 and {shown(several)} with 100 categories.",
    )
