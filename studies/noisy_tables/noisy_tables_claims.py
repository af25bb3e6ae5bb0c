"""Claims of the study `noisy-tables`."""

import math
from typing import Any

import numpy as np
import xarray as xr

from pipeline import Finding, claim, critical, two_sided_level, verdict
from studies.claims import Stored, decide, place, smallest, span

NOMINAL, _LEVEL = 0.95, 1e-3
_CALIBRATED: dict[str, dict[str, tuple[Any, ...]]] = {
    "tree": {"part": ("leaf", "county", "state", "total"), "noise_std": (5.0,), "prior": ("true",)},
    "formats": {"part": ("leaf", "group", "total"), "noise_std": (2.0,)},
    "mechanisms": {"part": ("all",), "epsilon": (1.0,)},
}
"""Panel -> levels whose nodes do not depend on the counts, and values at which the prior is the true one."""

_G1: dict[str, Any] = {"leaves": "sparse", "noise_std": 5.0, "prior": "true"}


def _chosen(where: dict[str, Any]) -> dict[str, tuple[Any, ...]]:
    return {name: (value,) for name, value in where.items()}


def _ratio(ds: xr.Dataset, measure: str, method: str, other: str) -> tuple[xr.DataArray, xr.DataArray]:
    """Return the ratio of the means of two methods, and a bound of its standard error, which ignores correlations."""
    one, two = (ds.sel(algorithm=name) for name in (method, other))
    ratio = one[f"{measure}_mean"] / two[f"{measure}_mean"]
    relative = [part[f"{measure}_mcse"] / part[f"{measure}_mean"] for part in (one, two)]
    return ratio, ratio * np.hypot(relative[0], relative[1])


def _below(ratio: xr.DataArray, error: xr.DataArray, limit: float, evidence: str) -> Finding:
    """Judge the statement that all ratios are below a limit."""
    width = critical(4) * error
    return decide(bool((ratio + width < limit).all()), bool((ratio - width > limit).any()), evidence)


@claim("exact-posteriors-are-calibrated", kind="self-check", min_trials=20)
def exact_posteriors_are_calibrated(summaries: Stored) -> Finding:
    """With the true prior, randomised posterior quantiles of the exact posterior are uniform at each level of a table,
    for Gaussian noise, for clipped, rounded and suppressed values, and for each mechanism that releases counts.
    """
    panels = {name: summaries.need(name, algorithm=("tree",), **where) for name, where in _CALIBRATED.items()}
    found = []
    for name, where in _CALIBRATED.items():
        one = panels[name]["pit_p"].sel(algorithm="tree", **{dim: list(values) for dim, values in where.items()})
        found.append((name, one))
    n_tests = sum(one.size for _, one in found)
    name, least = min(((name, smallest(one)) for name, one in found), key=lambda pair: float(pair[1]))
    return verdict(
        bool(float(least) > _LEVEL / n_tests),
        f"The smallest of {n_tests} p-values is {float(least):.2g} ({name}: {place(least, dict(found)[name].dims)}); "
        f"values above {_LEVEL / n_tests:.1g} are accepted.",
    )


@claim("narrower-in-small-cells", kind="addition", leads=True, min_trials=20, level=two_sided_level(4))
def narrower_in_small_cells(summaries: Stored) -> Finding:
    """In leaves with fewer than 20 records, 95 % intervals of the exact posterior are at least 25 % narrower on average
    than those of least squares, for sparse leaves, noise of standard deviation 5 at every level, and the true prior.
    """
    ds = summaries.need("tree", algorithm=("tree", "least-squares"), part=("leaf below 20",), **_chosen(_G1))
    one = ds.sel(part="leaf below 20", **_G1)
    ratio, error = _ratio(one, "width", "tree", "least-squares")
    covered = float(one["covered_mean"].sel(algorithm="tree"))
    return _below(ratio, error, 0.75, f"Ratio of mean widths {float(ratio):.3f} ± {float(error):.3f}; the exact "
                  f"posterior covers {covered:.1%} of these leaves.")  # fmt: skip


@claim("smaller-error-than-clipping", kind="addition", min_trials=20, level=two_sided_level(4))
def smaller_error_than_clipping(summaries: Stored) -> Finding:
    """For sparse leaves, the posterior mean has at most 95 % of the root mean squared error of least squares clipped at
    0, with noise of standard deviation 5 at every level and the true prior.
    """
    ds = summaries.need("tree", algorithm=("tree", "least-squares-clipped"), part=("leaf",), **_chosen(_G1))
    ratio, error = _ratio(ds.sel(part="leaf", **_G1), "square", "tree", "least-squares-clipped")
    found = float(np.sqrt(ratio))
    return _below(ratio, error, 0.95**2, f"Ratio of root mean squared errors {found:.3f} ± "
                  f"{float(error) / (2 * found):.3f}.")  # fmt: skip


@claim("levels-inform-each-other", kind="addition", min_trials=20, level=two_sided_level(4))
def levels_inform_each_other(summaries: Stored) -> Finding:
    """Given the whole table, 95 % intervals of counties and states are at least 5 % narrower on average than given the
    value of the node alone, for sparse leaves, noise of standard deviation 5 at every level, and the true prior.
    """
    parts = ("county", "state")
    ds = summaries.need("tree", algorithm=("tree", "leaf"), part=parts, **_chosen(_G1))
    ratio, error = _ratio(ds.sel(part=list(parts), **_G1), "width", "tree", "leaf")
    return _below(ratio, error, 0.95, f"Ratios of mean widths {span(ratio, '.3f')}.")


@claim("wrong-prior-undercovers", kind="addition", min_trials=20, level=two_sided_level(4))
def wrong_prior_undercovers(summaries: Stored) -> Finding:
    """A prior with twice the true mean and five times the true shape gives intervals that cover leaves with fewer than
    20 records with less than the nominal probability, for sparse leaves and noise of standard deviation 5.
    """
    where = {**_G1, "prior": "wrong"}
    ds = summaries.need("tree", algorithm=("tree",), part=("leaf below 20",), **_chosen(where))
    one = ds.sel(part="leaf below 20", algorithm="tree", **where)
    covered, error = float(one["covered_mean"]), float(one["covered_mcse"])
    width = critical(4) * error
    return decide(covered + width < NOMINAL, covered - width > NOMINAL,
                  f"Coverage {covered:.3f} ± {error:.3f}; nominal {NOMINAL}.")  # fmt: skip


@claim("fitted-prior-covers-real-counts", kind="addition", min_trials=20, level=two_sided_level(4))
def fitted_prior_covers_real_counts(summaries: Stored) -> Finding:
    """In the table sex × race × education × income of Adult, 95 % intervals given a prior that is fitted to the noisy
    values cover at least 93 % of the cells of each size, from empty cells to those of 200 records or more, and they are
    at least 5 % narrower in cells with fewer than 20 records than those of least squares clipped at 0.
    """
    small, large = ("0", "1 to 19"), ("20 to 199", "200 or more")
    methods = ("tree", "least-squares-clipped")
    ds = summaries.need("contingency", algorithm=methods, noise_std=(5.0,), part=(*small, *large))
    ds = ds.sel(noise_std=5.0, part=[*small, *large])
    covered, error = (ds[f"covered_{name}"].sel(algorithm="tree") for name in ("mean", "mcse"))
    ratio, spread = _ratio(ds.sel(part=list(small)), "width", "tree", "least-squares-clipped")
    width = critical(4)
    return decide(
        bool((covered - width * error > 0.93).all() and (ratio + width * spread < 0.95).all()),
        bool((covered + width * error < 0.93).any() or (ratio - width * spread > 0.95).any()),
        f"Coverage {span(covered, '.3f')} over sizes, with standard errors up to {float(error.max()):.3f}; ratios of "
        f"mean widths {span(ratio, '.3f')}.",
    )


@claim("formats-belong-in-the-likelihood", kind="addition", min_trials=20, level=two_sided_level(4))
def formats_belong_in_the_likelihood(summaries: Stored) -> Finding:
    """If values are rounded to multiples of 5, with noise of standard deviation 2, 95 % intervals that ignore the
    rounding cover at least 2 percentage points fewer leaves than those of the exact posterior.
    """
    where = {"published": "rounded", "noise_std": 2.0, "part": "leaf"}
    ds = summaries.need("formats", algorithm=("tree", "published"), **_chosen(where)).sel(where)
    (tree, published), errors = (
        [float(ds[f"covered_{one}"].sel(algorithm=name)) for name in ("tree", "published")] for one in ("mean", "mcse")
    )
    width = critical(4) * math.hypot(*errors)
    return decide(
        tree - published - width > 0.02,
        tree - published + width < 0.02,
        f"Coverage {published:.3f} without and {tree:.3f} with the rounding in the likelihood, standard errors up to "
        f"{max(errors):.3f}.",
    )


@claim("suppression-informs", kind="addition", min_trials=20, level=two_sided_level(4))
def suppression_informs(summaries: Stored) -> Finding:
    """If values below 5 are suppressed, with noise of standard deviation 2, 95 % intervals for leaves with fewer than
    20 records are at least 20 % narrower on average than if suppressed values were treated as missing.
    """
    where = {"published": "suppressed", "noise_std": 2.0, "part": "leaf below 20"}
    ds = summaries.need("formats", algorithm=("tree", "published"), **_chosen(where)).sel(where)
    ratio, error = _ratio(ds, "width", "tree", "published")
    return _below(ratio, error, 0.8, f"Ratio of mean widths {float(ratio):.3f} ± {float(error):.3f}.")


@claim("k-norm-gains-with-few-categories", kind="addition", min_trials=20, level=two_sided_level(4))
def k_norm_gains_with_few_categories(summaries: Stored) -> Finding:
    """At ε = 1 and with a public total of 1,000 records, 95 % intervals given K-norm noise are at least 3 % narrower on
    average than given two-sided geometric noise with 10 categories, and at most 3 % narrower with 100 categories.
    """
    noises = ("k-norm", "geometric")
    ds = summaries.need("mechanisms", algorithm=("tree",), epsilon=(1.0,), part=("all",), k=(10, 100), noise=noises)
    ds = ds.sel(algorithm="tree", epsilon=1.0, part="all").rename(algorithm="tree", noise="algorithm")
    ratio, error = _ratio(ds, "width", *noises)
    few, many = ratio.sel(k=10), ratio.sel(k=100)
    width = critical(4) * error
    few_width, many_width = width.sel(k=10), width.sel(k=100)
    return decide(
        bool(few + few_width < 0.97 and many - many_width > 0.97),
        bool(few - few_width > 0.97 or many + many_width < 0.97),
        f"Ratio of mean widths {float(few):.3f} with 10 and {float(many):.3f} with 100 categories, standard errors up "
        f"to {float(error.max()):.3f}.",
    )
