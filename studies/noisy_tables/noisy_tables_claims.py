"""Claims of the study `noisy-tables`."""

from typing import Any

import numpy as np

from pipeline import Finding, claim, critical, two_sided_level, verdict
from studies.claims import Stored, above, below, both, decide, gap, mean_ratio, place, select, smallest, span

NOMINAL, _LEVEL = 0.95, 1e-3
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
    panels = {name: summaries.need(name, algorithm=("tree",), **where) for name, where in _CALIBRATED.items()}
    p = {
        name: panels[name]["pit_p"].sel(algorithm="tree", **{dim: list(values) for dim, values in where.items()})
        for name, where in _CALIBRATED.items()
    }
    n_tests = sum(one.size for one in p.values())
    least, name = min((float(one.min()), name) for name, one in p.items())
    return verdict(
        least > _LEVEL / n_tests,
        f"The smallest of {n_tests} p-values is {least:.2g} ({name}: {place(smallest(p[name]), p[name].dims)}); "
        f"values above {_LEVEL / n_tests:.1g} are accepted.",
    )


@claim(**_ADDED, leads=True)
def narrower_in_small_cells(summaries: Stored) -> Finding:
    """In leaves with fewer than 20 records, 95 % intervals of the exact posterior are at least 25 % narrower on average
    than those of least squares, for sparse leaves, noise of standard deviation 5 at every level, and the true prior.
    """
    one = select(summaries, "tree", algorithm=("tree", "least-squares"), part="leaf below 20", **_G1)
    ratio, error = mean_ratio(one, "width", "tree", "least-squares", "algorithm")
    return decide(
        *below(0.75, ratio, critical(4) * error),
        f"Ratio of mean widths {ratio:.3f} ± {error:.3f}; the exact posterior covers "
        f"{one['covered_mean'].sel(algorithm='tree'):.1%} of these leaves.",
    )


@claim(**_ADDED)
def smaller_error_than_clipping(summaries: Stored) -> Finding:
    """For sparse leaves, the posterior mean has at most 95 % of the root mean squared error of least squares clipped at
    0, with noise of standard deviation 5 at every level and the true prior.
    """
    one = select(summaries, "tree", algorithm=("tree", "least-squares-clipped"), part="leaf", **_G1)
    ratio, error = mean_ratio(one, "square", "tree", "least-squares-clipped", "algorithm")
    found = np.sqrt(ratio)
    evidence = f"Ratio of root mean squared errors {found:.3f} ± {error / (2 * found):.3f}."
    return decide(*below(0.95**2, ratio, critical(4) * error), evidence)


@claim(**_ADDED)
def levels_inform_each_other(summaries: Stored) -> Finding:
    """Given the whole table, 95 % intervals of counties and states are at least 5 % narrower on average than given the
    value of the node alone, for sparse leaves, noise of standard deviation 5 at every level, and the true prior.
    """
    one = select(summaries, "tree", algorithm=("tree", "leaf"), part=("county", "state"), **_G1)
    ratio, error = mean_ratio(one, "width", "tree", "leaf", "algorithm")
    return decide(*below(0.95, ratio, critical(4) * error), f"Ratios of mean widths {span(ratio, '.3f')}.")


@claim(**_ADDED)
def wrong_prior_undercovers(summaries: Stored) -> Finding:
    """A prior with twice the true mean and five times the true shape gives intervals that cover leaves with fewer than
    20 records with less than the nominal probability, for sparse leaves and noise of standard deviation 5.
    """
    one = select(summaries, "tree", algorithm="tree", part="leaf below 20", **{**_G1, "prior": "wrong"})
    covered, error = one["covered_mean"], one["covered_mcse"]
    evidence = f"Coverage {covered:.3f} ± {error:.3f}; nominal {NOMINAL}."
    return decide(*below(NOMINAL, covered, critical(4) * error), evidence)


@claim(**_ADDED)
def fitted_prior_covers_real_counts(summaries: Stored) -> Finding:
    """In the table sex × race × education × income of Adult, 95 % intervals given a prior that is fitted to the noisy
    values cover at least 93 % of the cells of each size, from empty cells to those of 200 records or more, and they are
    at least 5 % narrower in cells with fewer than 20 records than those of least squares clipped at 0.
    """
    small, large = ("0", "1 to 19"), ("20 to 199", "200 or more")
    methods = ("tree", "least-squares-clipped")
    ds = select(summaries, "contingency", algorithm=methods, noise_std=5.0, part=(*small, *large))
    covered, error = (ds[f"covered_{name}"].sel(algorithm="tree") for name in ("mean", "mcse"))
    ratio, spread = mean_ratio(ds.sel(part=list(small)), "width", *methods, "algorithm")
    covers = above(0.93, covered, critical(4) * error)
    return decide(
        *both(covers, below(0.95, ratio, critical(4) * spread)),
        f"Coverage {span(covered, '.3f')} over sizes, with standard errors up to {error.max():.3f}; ratios of mean "
        f"widths {span(ratio, '.3f')}.",
    )


@claim(**_ADDED)
def formats_belong_in_the_likelihood(summaries: Stored) -> Finding:
    """If values are rounded to multiples of 5, with noise of standard deviation 2, 95 % intervals that ignore the
    rounding cover at least 2 percentage points fewer leaves than those of the exact posterior.
    """
    names = ("tree", "published")
    ds = select(summaries, "formats", algorithm=names, published="rounded", noise_std=2.0, part="leaf")
    more, limit = gap(ds, "covered", *names, critical(4), "algorithm")
    tree, published = (ds["covered_mean"].sel(algorithm=name) for name in names)
    return decide(
        *above(0.02, more, limit),
        f"Coverage {published:.3f} without and {tree:.3f} with the rounding in the likelihood, standard errors up to "
        f"{ds['covered_mcse'].max():.3f}.",
    )


@claim(**_ADDED)
def suppression_informs(summaries: Stored) -> Finding:
    """If values below 5 are suppressed, with noise of standard deviation 2, 95 % intervals for leaves with fewer than
    20 records are at least 20 % narrower on average than if suppressed values were treated as missing.
    """
    names = ("tree", "published")
    ds = select(summaries, "formats", algorithm=names, published="suppressed", noise_std=2.0, part="leaf below 20")
    ratio, error = mean_ratio(ds, "width", *names, "algorithm")
    return decide(*below(0.8, ratio, critical(4) * error), f"Ratio of mean widths {ratio:.3f} ± {error:.3f}.")


@claim(**_ADDED)
def k_norm_gains_with_few_categories(summaries: Stored) -> Finding:
    """At ε = 1 and with a public total of 1,000 records, 95 % intervals given K-norm noise are at least 3 % narrower on
    average than given two-sided geometric noise with 10 categories, and at most 3 % narrower with 100 categories.
    """
    noises = ("k-norm", "geometric")
    at: dict[str, Any] = {"epsilon": 1.0, "part": "all", "k": (10, 100), "noise": noises}
    ds = select(summaries, "mechanisms", algorithm="tree", **at)
    ratio, error = mean_ratio(ds, "width", *noises, "noise")
    width = critical(4) * error
    (few, many), (few_width, many_width) = ratio, width
    return decide(
        *both(below(0.97, few, few_width), above(0.97, many, many_width)),
        f"Ratio of mean widths {few:.3f} with 10 and {many:.3f} with 100 categories, standard errors up to "
        f"{error.max():.3f}.",
    )
