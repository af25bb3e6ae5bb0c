"""Claims of the study `noisy-tables`."""

from dataclasses import replace
from typing import Any

import numpy as np

from pipeline import Finding, claim, critical, two_sided_level
from studies.claims import Stored, above, below, both, decide, gap, mean, mean_ratio, shown, smaller, together, uniform
from studies.panels import NOMINAL

_CALIBRATED: dict[str, dict[str, tuple[Any, ...]]] = {
    "tree": {"part": ("leaf", "county", "state", "total"), "noise_std": (5.0,), "prior": ("true",)},
    "formats": {"part": ("leaf", "group", "total"), "noise_std": (2.0,)},
    "mechanisms": {"part": ("all",), "epsilon": (1.0,)},
}
"""Panel -> levels whose nodes do not depend on the counts, and values at which the prior is the true one."""

_G1: dict[str, Any] = {"leaves": "sparse", "noise_std": 5.0, "prior": "true"}

_ADDED: dict[str, Any] = {"kind": "addition", "min_trials": 20, "level": two_sided_level(4)}


@claim(kind="self-check", min_trials=20)
def exact_posteriors_are_calibrated(summaries: Stored) -> Finding:
    """With the true prior, randomised posterior quantiles of the exact posterior are uniform at each level of a table,
    for Gaussian noise, for clipped, rounded and suppressed values, and for each mechanism that releases counts.
    """
    panels = {name: summaries.select(name, algorithm="tree", **where) for name, where in _CALIBRATED.items()}
    return together([uniform({name: ds["pit_p"] for name, ds in panels.items()}, 1e-3)])


@claim(**_ADDED, leads=True)
def narrower_in_small_cells(summaries: Stored) -> Finding:
    """In leaves with fewer than 20 records, 95 % intervals of the exact posterior are at least 25 % narrower on average
    than those of least squares, for sparse leaves, noise of standard deviation 5 at every level, and the true prior.
    """
    ds = summaries.select("tree", algorithm=("tree", "least-squares"), part="leaf below 20", **_G1)
    found, covered = smaller(ds, "width", "tree", "least-squares", 0.75), ds["covered_mean"].sel(algorithm="tree")
    return replace(found, evidence=f"{found.evidence} The exact posterior covers {covered:.1%} of these leaves.")


@claim(**_ADDED)
def smaller_error_than_clipping(summaries: Stored) -> Finding:
    """For sparse leaves, the posterior mean has at most 95 % of the root mean squared error of least squares clipped at
    0, with noise of standard deviation 5 at every level and the true prior.
    """
    names = ("tree", "least-squares-clipped")
    ratio, error = mean_ratio(summaries.select("tree", algorithm=names, part="leaf", **_G1), "square", *names)
    found = np.sqrt(ratio)
    evidence = f"Ratio of root mean squared errors {found:.3f} ± {error / (2 * found):.3f}."
    return decide(*below(0.95**2, (ratio, error), critical(4)), evidence)


@claim(**_ADDED)
def levels_inform_each_other(summaries: Stored) -> Finding:
    """Given the whole table, 95 % intervals of counties and states are at least 5 % narrower on average than given the
    value of the node alone, for sparse leaves, noise of standard deviation 5 at every level, and the true prior.
    """
    ds = summaries.select("tree", algorithm=("tree", "leaf"), part=("county", "state"), **_G1)
    return smaller(ds, "width", "tree", "leaf", 0.95)


@claim(**_ADDED)
def wrong_prior_undercovers(summaries: Stored) -> Finding:
    """A prior with twice the true mean and five times the true shape gives intervals that cover leaves with fewer than
    20 records with less than the nominal probability, for sparse leaves and noise of standard deviation 5.
    """
    ds = summaries.select("tree", algorithm="tree", part="leaf below 20", **{**_G1, "prior": "wrong"})
    covered = mean(ds, "covered")
    return decide(*below(NOMINAL, covered, critical(4)), f"Coverage {shown(covered)}; nominal {NOMINAL}.")


@claim(**_ADDED)
def fitted_prior_covers_real_counts(summaries: Stored) -> Finding:
    """In the table sex × race × education × income of Adult, 95 % intervals given a prior that is fitted to the noisy
    values cover at least 93 % of the cells of each size, from empty cells to those of 200 records or more, and they are
    at least 5 % narrower in cells with fewer than 20 records than those of least squares clipped at 0.
    """
    small, methods = ("0", "1 to 19"), ("tree", "least-squares-clipped")
    parts = (*small, "20 to 199", "200 or more")
    ds = summaries.select("contingency", algorithm=methods, noise_std=5.0, part=parts)
    covered = mean(ds, "covered", algorithm="tree")
    narrower = smaller(ds.sel(part=list(small)), "width", *methods, 0.95)
    coverage = decide(*above(0.93, covered, critical(4)), f"Coverage {shown(covered)} over sizes")
    return together((coverage, narrower), "{}", ". ")


@claim(**_ADDED)
def formats_belong_in_the_likelihood(summaries: Stored) -> Finding:
    """If values are rounded to multiples of 5, with noise of standard deviation 2, 95 % intervals that ignore the
    rounding cover at least 2 percentage points fewer leaves than those of the exact posterior.
    """
    names = ("tree", "published")
    ds = summaries.select("formats", algorithm=names, published="rounded", noise_std=2.0, part="leaf")
    tree, published = (ds["covered_mean"].sel(algorithm=name) for name in names)
    return decide(
        *above(0.02, gap(ds, "covered", *names), critical(4)),
        f"Coverage {published:.3f} without and {tree:.3f} with the rounding in the likelihood, standard errors up to "
        f"{ds['covered_mcse'].max():.3f}.",
    )


@claim(**_ADDED)
def suppression_informs(summaries: Stored) -> Finding:
    """If values below 5 are suppressed, with noise of standard deviation 2, 95 % intervals for leaves with fewer than
    20 records are at least 20 % narrower on average than if suppressed values were treated as missing.
    """
    names, at = ("tree", "published"), {"published": "suppressed", "noise_std": 2.0, "part": "leaf below 20"}
    return smaller(summaries.select("formats", algorithm=names, **at), "width", *names, 0.8)


@claim(**_ADDED)
def k_norm_gains_with_few_categories(summaries: Stored) -> Finding:
    """At ε = 1 and with a public total of 1,000 records, 95 % intervals given K-norm noise are at least 3 % narrower on
    average than given two-sided geometric noise with 10 categories, and at most 3 % narrower with 100 categories.
    """
    noises = ("k-norm", "geometric")
    ds = summaries.select("mechanisms", algorithm="tree", epsilon=1.0, part="all", k=(10, 100), noise=noises)
    few, many = (mean_ratio(ds.sel(k=k), "width", *noises) for k in (10, 100))
    return decide(
        *both(below(0.97, few, critical(4)), above(0.97, many, critical(4))),
        f"Ratio of mean widths {shown(few)} with 10 and {shown(many)} with 100 categories.",
    )
