"""Claims of the study `renyi-logistic` (P3).

Differences of means within four Monte Carlo standard errors are undecided, because one claim compares about a hundred
means. Standard errors are those of draws on a fixed split; the panel `abalone-splits` has random splits.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import product

import numpy as np
import xarray as xr

from mechanisms.glm.mechanisms import glm_mechanism
from pipeline import Finding, claim, claims_in, verdict
from studies.claims import Stored, Summaries, count, decide, gap, joined, p3, span, together
from studies.renyi.logistic_trials import LABELS, LARGEST_RHAT, LEAST_ESS

_SAMPLERS = ("glm-concentrated", "glm-diffused")
_OPS = ("ops", "ops-tight", "ops-renyi")
_DECIDING = 4.0
_REPEATS = 50  # number of draws per setting, as in P3


def _ask(summaries: Stored, *mechanisms: str, panels: Iterable[str] = LABELS) -> Summaries:
    """Return panels; a claim needs the ends of the published grid, and verdicts cover all stored ε and orders."""
    return summaries.each(panels, order=(1.0, 10.0, 100.0), epsilon=(math.exp(-5), math.exp(3)), mechanism=mechanisms)


def _compare(ds: xr.Dataset, measure: str, one: str, other: str) -> tuple[xr.DataArray, xr.DataArray]:
    """Return masks of the settings in which `one` has a significantly smaller, or a larger, mean than `other`."""
    more, error = gap(ds, measure, one, other)
    return more < -_DECIDING * error, more > _DECIDING * error


def _same_distribution(ds: xr.Dataset, one: str, other: str) -> xr.DataArray:
    """Return a mask of settings in which both mechanisms draw from one distribution, such as the true posterior."""
    n, beta = int(ds["n_train"].max()), float(ds["beta"])

    def is_same(order: float, epsilon: float) -> bool:
        first, second = (glm_mechanism(name, n, beta, order, epsilon) for name in (one, other))
        return (first.precision, first.power, first.radius) == (second.precision, second.power, second.radius)

    return xr.apply_ufunc(np.vectorize(is_same, otypes=[bool]), ds["order"], ds["epsilon"])


def _where(marked: xr.DataArray) -> str:
    """Format the range of ε in the marked settings, for each order."""
    ranges = ((one["order"], np.log(one["epsilon"][one])) for one in marked.transpose("order", ...) if one.any())
    return "; ".join(
        f"order {order:g}, epsilon e^{span(powers, '.0f').replace(' to ', ' to e^')}" for order, powers in ranges
    )


@joined(
    "Numbers of settings (order, epsilon) with means at least four standard errors apart, among those at which the two "
    "distributions differ: {}."
)
def _beats(summaries: Stored, measure: str, *pairs: tuple[str, str], also: Sequence[str] = ()) -> Iterator[Finding]:
    """Judge that, in each pair, the first mechanism has the smaller mean where distributions differ."""
    names = tuple(dict.fromkeys(name for pair in pairs for name in pair))
    stored = {**_ask(summaries, *names), **summaries.each(also, mechanism=names)}
    for one, other in pairs:
        parts = []
        for panel, ds in stored.items():
            differ = ~_same_distribution(ds, one, other)
            ahead, behind = (mask & differ for mask in _compare(ds, measure, one, other))
            part = f"{panel} {count(ahead, differ)}"
            for word, marked in (("larger", behind), ("undecided", ~ahead & ~behind & differ)):
                part += f" ({word} in {int(marked.sum())}: {_where(marked)})" if marked.any() else ""
            parts.append(decide((ahead == differ).all(), behind.any(), part))
        yield together(parts, f"{one} smaller than {other} in {{}}", ", ")


@claim(
    "converged",
    f"Every draw comes from chains with split R-hat below {LARGEST_RHAT} and bulk ESS of at least {LEAST_ESS}.",
    kind="self-check",
    place="P3 uses 1,000 steps without a diagnostic",
    min_trials=0,
)
@joined()
def converged(summaries: Stored) -> Iterator[Finding]:
    summaries.each((*LABELS, "abalone-splits", "abalone-strong"))
    for panel, ds in summaries.items():
        rhat, ess = float(ds["rhat_largest"].max()), float(ds["ess_smallest"].min())
        n_failed = int(ds["n_failed"].sum())  # chains that did not converge are failed trials
        evidence = f"{panel}: split R-hat <= {rhat:.4f}, ESS >= {ess:.0f}, {n_failed} failed trials"
        yield verdict(n_failed == 0 and rhat < LARGEST_RHAT and ess >= LEAST_ESS, evidence)


@p3(place="section 5.2, Figure 3", min_trials=_REPEATS)
def beats_ops(summaries: Stored) -> Finding:
    """Algorithms 4 and 5 have a lower test error than one posterior sample (OPS) at all privacy levels and on all data
    sets.
    """
    return _beats(summaries, "test_error", *product(_SAMPLERS, ["ops"]))


@claim(kind="self-check", min_trials=_REPEATS)
def beats_better_ops(summaries: Stored) -> Finding:
    """Algorithms 4 and 5 have a lower test error than OPS with twice the likelihood power (ops-tight), and than OPS
    calibrated to the same Rényi guarantee through its pure one (ops-renyi).
    """
    return _beats(summaries, "test_error", *product(_SAMPLERS, ["ops-tight", "ops-renyi"]))


@p3(place="section 5.2 and appendix", min_trials=_REPEATS)
def beats_ops_in_likelihood(summaries: Stored) -> Finding:
    """Algorithms 4 and 5 have a higher test likelihood than all variants of OPS."""
    return _beats(summaries, "test_nll", *product(_SAMPLERS, _OPS))


@p3(place="section 5.2, Figure 3", min_trials=_REPEATS)
def diffused_beats_concentrated(summaries: Stored) -> Finding:
    """Algorithm 5 always has a lower test error than Algorithm 4."""
    return _beats(summaries, "test_error", ("glm-diffused", "glm-concentrated"), also=("abalone-strong",))


@p3(place="appendix", min_trials=_REPEATS)
def diffused_beats_concentrated_in_likelihood(summaries: Stored) -> Finding:
    """Algorithm 5 has a higher test likelihood than Algorithm 4."""
    return _beats(summaries, "test_nll", ("glm-diffused", "glm-concentrated"))


@claim(kind="self-check", min_trials=_REPEATS)
def one_split_is_enough(summaries: Stored) -> Finding:
    """The comparisons of diffused, concentrated and OPS on one split of Abalone also hold over random splits."""
    stored = _ask(summaries, *_SAMPLERS, "ops", "true-posterior", panels=("abalone", "abalone-splits"))
    fixed, splits = stored.values()
    confirmed = contradicted = decided = 0
    for one, other in (("glm-diffused", "glm-concentrated"), *((one, "ops") for one in _SAMPLERS)):
        (ahead, behind), (there, back) = (_compare(ds, "test_error", one, other) for ds in (fixed, splits))
        decided += int((ahead | behind).sum())
        confirmed += int(((ahead & there) | (behind & back)).sum())
        contradicted += int(((ahead & back) | (behind & there)).sum())
    spread = [ds["test_error_sd"].sel(mechanism="true-posterior").mean() for ds in (splits, fixed)]
    return decide(
        confirmed == decided > 0,
        contradicted > 0,
        f"Of {decided} settings decided on one split (diffused against concentrated, both against ops), random splits "
        f"confirm {confirmed} and contradict {contradicted}. For the true posterior, the standard deviation of the "
        f"test error is {spread[0]:.3f} over random splits and {spread[1]:.3f} over draws on one split.",
    )


CLAIMS = claims_in(globals())
