"""What P3 concludes of its mechanisms for logistic regression, checked on the stored draws, and what is drawn of them.

A difference of two means within three Monte Carlo standard errors decides nothing.

References
----------
P3: Geumlek, Song & Chaudhuri, "Rényi differential privacy mechanisms for posterior sampling", NeurIPS 2017.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from mechanisms.glm import glm_mechanism
from mechanisms.renyi import pure_renyi
from pipeline import Claim, Figure, Finding
from studies.logistic_trials import LARGEST_RHAT, LEAST_ESS
from studies.mechanism_styles import REGRESSION_STYLES

Summaries = Mapping[str, xr.Dataset]

DATA_SETS = ("abalone", "adult", "mnist")
_SAMPLERS = ("glm-concentrated", "glm-diffused")
_OPS = ("ops", "ops-tight", "ops-renyi")
_DECIDING = 3.0


def _needs(*mechanisms: str, panels: Sequence[str] = DATA_SETS) -> dict[str, dict[str, tuple[Any, ...]]]:
    """Need the ends of the published grid: a verdict is on every privacy level between them."""
    grid = {"order": (1.0, 10.0, 100.0), "epsilon": (math.exp(-5), math.exp(3))}
    return {panel: {**grid, "mechanism": mechanisms} for panel in panels}


def _compare(ds: xr.Dataset, measure: str, one: str, other: str) -> tuple[xr.DataArray, xr.DataArray]:
    """Return where the mean of `one` is clearly below that of `other`, and where it is clearly above."""
    mean, error = (ds[f"{measure}_{what}"] for what in ("mean", "mcse"))
    gap = mean.sel(mechanism=one) - mean.sel(mechanism=other)
    limit = _DECIDING * np.hypot(error.sel(mechanism=one), error.sel(mechanism=other))
    return gap < -limit, gap > limit


def _same_law(ds: xr.Dataset, one: str, other: str) -> xr.DataArray:
    """Return where two mechanisms draw from the very same law, as where both have budget for the true posterior."""
    n, beta = int(ds["n_train"].max()), float(ds["beta"])

    def law(name: str, order: float, epsilon: float) -> tuple[float, float, float]:
        release = glm_mechanism(name, n, beta, order, epsilon)
        return release.precision, release.power, release.radius

    grid = [
        [law(one, order, epsilon) == law(other, order, epsilon) for epsilon in ds["epsilon"].values.tolist()]
        for order in ds["order"].values.tolist()
    ]
    return xr.DataArray(grid, dims=("order", "epsilon"), coords={"order": ds["order"], "epsilon": ds["epsilon"]})


def _beats(
    pairs: Sequence[tuple[str, str]], measure: str, panels: Sequence[str] = DATA_SETS
) -> Callable[[Summaries], Finding]:
    """Check that the first of each pair has the smaller mean at every order and ε at which the two laws differ."""

    def check(summaries: Summaries) -> Finding:
        lines, worst, complete = [], 0, True
        for one, other in pairs:
            parts = []
            for panel in panels:
                ahead, behind = _compare(summaries[panel], measure, one, other)
                differ = ~_same_law(summaries[panel], one, other)
                n_ahead, n_behind = int((ahead & differ).sum()), int((behind & differ).sum())
                worst += n_behind
                complete &= n_ahead == int(differ.sum())
                part = f"{panel} {n_ahead} of {int(differ.sum())}"
                if n_behind:
                    part += f" (behind in {n_behind}: {_where(behind & differ)})"
                open_levels = ~ahead & ~behind & differ
                if open_levels.any():
                    part += f" (undecided in {int(open_levels.sum())}: {_where(open_levels)})"
                parts.append(part)
            lines.append(f"{one} ahead of {other} in {', '.join(parts)}")
        verdict: Any = "not reproduced" if worst else "reproduced" if complete else "undecided"
        return Finding(
            verdict,
            "Settings of order and epsilon at which the two laws differ, means three standard errors apart: "
            f"{'; '.join(lines)}.",
        )

    return check


def _where(marked: xr.DataArray) -> str:
    """Name the values of ε at which settings are marked, for each order."""
    parts = []
    for order in marked["order"].values.tolist():
        levels = marked["epsilon"].values[marked.sel(order=order).values]
        if levels.size:
            low, high = (round(math.log(value)) for value in (levels.min(), levels.max()))
            span = f"e^{low}" if low == high else f"e^{low} to e^{high}"
            parts.append(f"order {order:g}, epsilon {span}")
    return "; ".join(parts)


def _better_guarantee(summaries: Summaries) -> Finding:
    """Compare the Rényi curve of posterior sampling with OPS's, at the same β, c and ρ."""
    lines, holds = [], True
    for panel in DATA_SETS:
        ds = summaries[panel]
        n, beta = int(ds["n_train"].max()), float(ds["beta"])
        for epsilon in (float(ds["epsilon"].min()), float(ds["epsilon"].max())):
            ops = glm_mechanism("ops", n, beta, 1.0, epsilon)
            free = dataclasses.replace(ops, radius=math.inf)
            slope = free.renyi_epsilon(1.0)  # of a curve that is linear in the order
            published, tight = 4.0 * ops.power / beta, 2.0 * ops.power / beta
            limit = 2.0 * n / ops.power
            holds &= math.isclose(published / slope, limit) and math.isclose(tight / slope, limit / 2)
            at = [free.renyi_epsilon(order) / pure_renyi(tight, order) for order in ds["order"].values.tolist()]
            holds &= max(at) < 1
        lines.append(
            f"{panel} (n = {n:,}): at epsilon = {epsilon:.3g} up to order {limit:.3g}, tight OPS {limit / 2:.3g}; "
            f"at the stored orders it spends {max(at):.2g} of what the tight OPS spends there by its own Renyi curve"
        )
    return Finding("reproduced" if holds else "not reproduced", f"{'; '.join(lines)}.")


def _converged(summaries: Summaries) -> Finding:
    lines, holds = [], True
    for panel, ds in summaries.items():
        rhat, ess = float(ds["rhat_largest"].max()), float(ds["ess_smallest"].min())
        n_failed = int(ds["n_failed"].sum())
        holds &= rhat < LARGEST_RHAT and ess >= LEAST_ESS and n_failed == 0
        lines.append(f"{panel}: split R-hat <= {rhat:.4f}, ESS >= {ess:.0f}, {n_failed} failed")
    return Finding("reproduced" if holds else "not reproduced", f"{'; '.join(lines)}.")


def _splits_agree(summaries: Summaries) -> Finding:
    fixed, splits = summaries["abalone"], summaries["abalone-splits"]
    gap = np.abs(fixed["test_error_mean"] - splits["test_error_mean"])
    spread = splits["test_error_sd"].sel(mechanism="true-posterior")
    ahead, behind = _compare(splits, "test_error", "glm-diffused", "glm-concentrated")
    there, not_there = _compare(fixed, "test_error", "glm-diffused", "glm-concentrated")
    contradict = (ahead & not_there) | (behind & there)
    return Finding(
        "not reproduced" if contradict.any() else "reproduced",
        f"Mean test errors differ by at most {float(gap.max()):.3f}; the standard deviation over splits is "
        f"{float(spread.mean()):.3f} for the true posterior, and "
        f"{float(fixed['test_error_sd'].sel(mechanism='true-posterior').mean()):.3f} over draws on one split. Diffused "
        f"against concentrated: ahead in {int(ahead.sum())} (one split: {int(there.sum())}), behind in "
        f"{int(behind.sum())} ({int(not_there.sum())}) of {ahead.size} settings.",
    )


CLAIMS = (
    Claim(
        "converged",
        f"Every draw comes from chains with split R-hat below {LARGEST_RHAT} and a bulk ESS of {LEAST_ESS} at least.",
        "check of this study; P3 takes 1,000 steps on trust",
        {panel: {} for panel in DATA_SETS},
        _converged,
    ),
    Claim(
        "beats-ops",
        "Algorithms 4 and 5 have a lower test error than OPS at all privacy levels and across all data sets.",
        "P3, section 5.2, Figure 3",
        _needs(*_SAMPLERS, "ops"),
        _beats([(one, "ops") for one in _SAMPLERS], "test_error"),
    ),
    Claim(
        "beats-better-ops",
        "So they do where OPS does not waste half its budget (ops-tight), or spends the same Renyi budget (ops-renyi).",
        "check of this study",
        _needs(*_SAMPLERS, *_OPS),
        _beats([(one, ops) for one in _SAMPLERS for ops in _OPS[1:]], "test_error"),
    ),
    Claim(
        "beats-ops-in-likelihood",
        "Algorithms 4 and 5 have a higher test likelihood than OPS in every form.",
        "P3, section 5.2 and appendix",
        _needs(*_SAMPLERS, *_OPS),
        _beats([(one, ops) for one in _SAMPLERS for ops in _OPS], "test_nll"),
    ),
    Claim(
        "diffused-beats-concentrated",
        "Algorithm 5 always achieves a better utility than Algorithm 4.",
        "P3, section 5.2, Figure 3",
        {**_needs(*_SAMPLERS), "abalone-strong": {"mechanism": _SAMPLERS}},
        _beats([("glm-diffused", "glm-concentrated")], "test_error", (*DATA_SETS, "abalone-strong")),
    ),
    Claim(
        "diffused-beats-concentrated-in-likelihood",
        "So it does in test likelihood.",
        "P3, appendix",
        _needs(*_SAMPLERS),
        _beats([("glm-diffused", "glm-concentrated")], "test_nll"),
    ),
    Claim(
        "better-guarantee-than-ops",
        "At equal prior and power, sampling has a better Renyi guarantee than OPS up to order 2n/rho, which is high.",
        "P3, section 5.2",
        _needs("ops"),
        _better_guarantee,
    ),
    Claim(
        "one-split-is-enough",
        "What is concluded on one split of Abalone holds over random splits.",
        "check of this study",
        _needs(*_SAMPLERS, "true-posterior", panels=("abalone", "abalone-splits")),
        _splits_agree,
    ),
)


def _draw(measure: str, ylabel: str) -> Callable[[Summaries], Any]:
    def draw(summaries: Summaries) -> Any:
        from studies.renyi_logistic_figures import draw_orders

        return draw_orders(summaries, measure, ylabel, REGRESSION_STYLES)

    return draw


_CAPTION = (
    " against the privacy loss, with two Monte Carlo standard errors either way, one row an order of the Renyi "
    "guarantee{}. Grey: the posterior without privacy. Blue: Algorithm 5. Red: Algorithm 4. Green: OPS as published, "
    "with all of its pure budget, and with the same Renyi budget as the others."
)
_BY_DATA_SET = _CAPTION.format(" and one column a data set")

FIGURES = (
    Figure(
        "test-error",
        "Test error (P3, Figure 3)",
        "Mean test error" + _BY_DATA_SET,
        DATA_SETS,
        _draw("test_error", "test error"),
    ),
    Figure(
        "test-nll",
        "Test likelihood (P3, appendix)",
        "Mean negative log-likelihood of a test record" + _BY_DATA_SET,
        DATA_SETS,
        _draw("test_nll", "−log-likelihood of a test record (nat)"),
    ),
    Figure(
        "splits",
        "Test error over random splits",
        "Mean test error over random splits, a draw on each," + _CAPTION.format(""),
        ("abalone-splits",),
        _draw("test_error", "test error"),
    ),
    Figure(
        "csv-test-error",
        "Test error on the user's data",
        "Mean test error" + _CAPTION.format(""),
        ("csv",),
        _draw("test_error", "test error"),
    ),
)
