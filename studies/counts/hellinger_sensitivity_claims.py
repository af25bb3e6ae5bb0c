"""Claims of the study `hellinger-sensitivity` (P0 and P1)."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import xarray as xr

from pipeline import Erratum, Finding, claim, claims_in, verdict
from studies.claims import Stored, correct, joined, p0, p1, span

NAMES = ("local", "varying", "smooth", "global")
"""Names of the sensitivities: all are upper bounds on `local`, and `global` is an upper bound on all."""

_UNIT_PRIOR = ("1:1",)


def _complete_sizes(summaries: Stored) -> dict[int, xr.Dataset]:
    """Return the sensitivities at x = 0..n, for each n for which all of them are stored."""
    summary = summaries.need("beta", n=(100,), successes=tuple(range(101)), prior=_UNIT_PRIOR)
    lines = {n: summary.sel(n=n).dropna("successes") for n in summary["n"].values.tolist()}
    return {n: line for n, line in lines.items() if line.sizes["successes"] == n + 1}


@p0(place="Motivation 2")
@joined("Local sensitivity. {}.")
def largest_at_the_edge(summaries: Stored) -> Iterator[Finding]:
    """The local sensitivity of the Hellinger distance is largest at the edges, x = 0 and x = n, and very low away from
    them.
    """
    for n, line in _complete_sizes(summaries).items():
        local = line["local_sensitivity"].values
        largest, centre = local.max(), local[n // 2]
        where = ", ".join(map(str, np.flatnonzero(local == largest)))
        evidence = f"n = {n}: maximum {largest:.4f} at x = {where}, {centre:.4f} at the centre"
        yield verdict(local[0] == local[n] == largest and centre < largest / 2, evidence)


@p0(place="Motivation 2")
@joined(
    "Smooth against global sensitivity at the centre; fraction of data sets at which smooth is less than half of "
    "global. {}."
)
def smooth_below_global(summaries: Stored) -> Iterator[Finding]:
    """The smooth sensitivity is smaller than the global sensitivity."""
    for n, line in _complete_sizes(summaries).items():
        smooth, largest = (line[f"{name}_sensitivity"].values for name in ("smooth", "global"))
        own, limit, below = smooth[n // 2], largest[n // 2], np.mean(smooth < largest / 2)
        yield verdict(own < limit, f"n = {n}: {own:.4f} against {limit:.4f}; {below:.0%} of data sets")


@claim(kind="self-check")
def bounds_in_order(summaries: Stored) -> Finding:
    """The smooth and the varying sensitivity are between the local and the global sensitivity at every data set."""
    beta = summaries.need("beta")
    local, varying, smooth, largest = (beta[f"{name}_sensitivity"] for name in NAMES)
    rounding = 1 + 1e-12
    n_out = sum(int(((local > bound * rounding) | (bound > largest * rounding)).sum()) for bound in (varying, smooth))
    tight = ", ".join(
        f"{name} {(bound <= local * rounding).sum() / local.count():.1%}"
        for name, bound in (("varying", varying), ("smooth", smooth))
    )
    return verdict(
        not n_out,
        f"{n_out:,} exceptions among {2 * int(local.count()):,} values. Fraction of data sets at which the bound "
        f"equals the local sensitivity: {tight}.",
    )


def _counterexamples(found: xr.Dataset) -> str:
    """Describe the number of counterexamples, and list the values of n at which they occur, or some of them."""
    among = f"among {int(found['n_checked'].sum()):,} data sets of n = {span(found['n'], '.0f')} records"
    at = found.isel(n=np.flatnonzero(found["n_violations"]))
    if not at.sizes["n"]:
        return f"No counterexample {among}"
    numbers = (at[name].values.astype(int) for name in ("n", "n_violations", "first_violation", "last_violation"))
    places = [
        f"n = {n} (x = {first}{'' if count == 1 else f' and {last}' if count == 2 else f' to {last}'})"
        for n, count, first, last in zip(*numbers, strict=True)
    ]
    if len(places) > 5:
        places[4:-1] = ["..."]
    total = int(found["n_violations"].sum())
    return f"{total:,} counterexamples {among}, at {at.sizes['n']:,} sizes: {', '.join(places)}"


def _without_counterexample(
    summaries: Stored, name: str, when: str = "", repair: str = "", kept: Callable[[Any], Any] = lambda n: n > 0
) -> Finding:
    """Judge that a statement has no counterexample; "corrected" if only its repair, described by `when`, has none."""
    names = (name, repair or name)
    stored = summaries.need("statements", statement=names, n=tuple(range(1, 2001)), prior=_UNIT_PRIOR)
    printed, repaired = (stored.sel(statement=one) for one in names)
    repaired = repaired.sel(n=kept(repaired["n"]))
    evidence = f"{_counterexamples(printed)}."
    if not printed["n_violations"].any():
        empty = ", ".join(str(size) for size in printed["n"].values[printed["n_checked"] == 0])
        return verdict(True, evidence + (f" No comparison at n = {empty}." if empty else ""))
    if not when:
        return verdict(False, evidence)
    fails = repaired["n_violations"].any()
    added = f"It also fails {when}: {_counterexamples(repaired)}." if fails else f"It holds {when}."
    return correct(False, not fails, f"{evidence} {added}")


@p1(place="statement I")
def statement_1(summaries: Stored) -> Finding:
    """For the prior Beta(1, 1) and n up to 2,000, H(x, x+1) < H(x+1, x+2) for x >= x0, the centre, and the mirrored
    inequality holds for x <= x0.
    """
    return _without_counterexample(summaries, "I")


@p1(
    place="statement I, second half as printed",
    erratum=Erratum(
        "H(x, x+1) > H(x+1, x+2) for x ≤ x₀.",
        "The mirror image of the first half: H(x, x−1) < H(x−1, x−2).",
        place="statement I",
    ),
)
def statement_1_below(summaries: Stored) -> Finding:
    """For the prior Beta(1, 1) and n up to 2,000, H(x, x+1) > H(x+1, x+2) for x <= x0."""
    when = "as the mirrored inequality of the first half, H(x, x-1) < H(x-1, x-2) for x <= x0"
    return _without_counterexample(summaries, "I-below", when, "I")


@p1(
    place="statement II",
    erratum=Erratum(
        "LS(x) is the step towards the nearer edge.",
        "This holds for 0 < x < n; at an edge LS(x) is the step away from the edge.",
    ),
)
def statement_2(summaries: Stored) -> Finding:
    """For the prior Beta(1, 1) and n up to 2,000, LS(x) is the distance of the step towards the nearer edge: H(x, x+1)
    for x >= x0, H(x, x-1) for x <= x0.
    """
    when = "for 0 < x < n; at an edge this step does not exist, and LS is the distance of the step inwards"
    return _without_counterexample(summaries, "II", when, "II-inside")


@p1(place="proof of statement II", erratum=Erratum("H(x₀, x₀−1) = H(x₀, x₀+1).", "This holds for even n only."))
def statement_2_centre(summaries: Stored) -> Finding:
    """For the prior Beta(1, 1) and n up to 2,000, H(x0, x0-1) = H(x0, x0+1)."""
    when = "for even n; for odd n there are two centres, and one of the two steps from each leads to the other"
    return _without_counterexample(summaries, "II-centre", when, kept=lambda n: n % 2 == 0)


@p1(place="statement III", erratum=Erratum("LS(x) > LS(x₀) for every x other than x₀.", "This holds for n ≥ 4."))
def statement_3(summaries: Stored) -> Finding:
    """For the prior Beta(1, 1) and n up to 2,000, LS(x) > LS(x0) for every x other than x0."""
    return _without_counterexample(summaries, "III", "for n >= 4", kept=lambda n: n >= 4)


CLAIMS = claims_in(globals())
