"""What P0 and P1 state of the sensitivity of the Hellinger score, and P0's figure of it."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from pipeline import Claim, Figure, Finding
from studies.styles import MECHANISM_STYLES

NAMES = ("local", "varying", "smooth", "global")
"""The sensitivities, each a bound on `local`, the last on all."""

_UNIT_PRIOR = ("1:1",)


def _whole_lines(summary: xr.Dataset) -> dict[int, xr.Dataset]:
    """Return, for each n of which every data set is stored, the sensitivities at x = 0..n."""
    lines = {n: summary.sel(n=n).dropna("successes") for n in summary["n"].values.tolist()}
    return {n: line for n, line in lines.items() if line.sizes["successes"] == n + 1}


def _largest_at_the_edge(summaries: Mapping[str, xr.Dataset]) -> Finding:
    evidence, holds = [], True
    for n, line in _whole_lines(summaries["beta"]).items():
        local = line["local_sensitivity"].values
        largest, centre = local.max(), local[n // 2]
        holds &= local[0] == local[n] == largest and centre < largest / 2
        where = ", ".join(map(str, np.flatnonzero(local == largest)))
        evidence.append(f"n = {n}: {largest:.4f} at x = {where}, {centre:.4f} at the centre")
    return Finding("reproduced" if holds else "not reproduced", f"Local sensitivity, {'; '.join(evidence)}.")


def _smooth_below_global(summaries: Mapping[str, xr.Dataset]) -> Finding:
    evidence, holds = [], True
    for n, line in _whole_lines(summaries["beta"]).items():
        smooth, largest = (line[f"{name}_sensitivity"].values for name in ("smooth", "global"))
        holds &= smooth[n // 2] < largest[n // 2]
        below = np.mean(smooth < largest / 2)
        evidence.append(f"n = {n}: {smooth[n // 2]:.4f} against {largest[n // 2]:.4f}, below half of it at {below:.0%}")
    numbers = "; ".join(evidence)
    return Finding(
        "reproduced" if holds else "not reproduced",
        f"Smooth against global sensitivity at the centre, and the share of data sets, {numbers}.",
    )


def _bounds_in_order(summaries: Mapping[str, xr.Dataset]) -> Finding:
    local, varying, smooth, largest = (summaries["beta"][f"{name}_sensitivity"] for name in NAMES)
    rounding = 1 + 1e-12
    n_out = sum(int(((local > bound * rounding) | (bound > largest * rounding)).sum()) for bound in (varying, smooth))
    tight = ", ".join(
        f"{name} {float((bound <= local * rounding).sum() / local.count()):.1%}"
        for name, bound in (("varying", varying), ("smooth", smooth))
    )
    return Finding(
        "not reproduced" if n_out else "reproduced",
        f"{n_out:,} exceptions among {2 * int(local.count()):,} values. Data sets at which the bound is the local "
        f"sensitivity itself: {tight}.",
    )


def _counterexamples(found: xr.Dataset) -> str:
    """Say how many counterexamples a statement has, and where: at all sizes, if few, else at the first and the last."""
    n_checked, n_violations = int(found["n_checked"].sum()), int(found["n_violations"].sum())
    among = f"among {n_checked:,} data sets of n = {found['n'].values.min()} to {found['n'].values.max()} records"
    if not n_violations:
        return f"No counterexample {among}"
    at = found.isel(n=np.flatnonzero(found["n_violations"]))
    n_sizes = at.sizes["n"]
    shown = at if n_sizes <= 5 else at.isel(n=[0, 1, 2, 3, -1])
    places = []
    for n, *numbers in zip(
        shown["n"].values, shown["n_violations"], shown["first_violation"], shown["last_violation"], strict=True
    ):
        count, first, last = map(int, numbers)
        where = {1: f"{first}", 2: f"{first} and {last}"}.get(count, f"{first} to {last}")
        places.append(f"n = {n} (x = {where})")
    if n_sizes > len(places):
        places.insert(-1, "...")
    return f"{n_violations:,} counterexamples {among}, at {n_sizes:,} sizes: {', '.join(places)}"


def _statement_claim(
    name: str, text: str, source: str, printed: str, holds: str = "", from_n: int = 1, odd: bool = True, when: str = ""
) -> Claim:
    """Return the claim that the statement `printed` has no counterexample.

    If it has some, it is corrected where the statement `holds` has none, at n >= `from_n` and, unless `odd`, even n;
    `when` says so in words.
    """

    def check(summaries: Mapping[str, xr.Dataset]) -> Finding:
        statements = summaries["statements"]
        n = statements["n"]
        found = statements.sel(statement=printed)
        evidence = f"{_counterexamples(found)}."
        if not found["n_violations"].any():
            empty = ", ".join(str(size) for size in n.values[found["n_checked"] == 0])
            return Finding("reproduced", evidence + (f" Nothing to compare at n = {empty}." if empty else ""))
        kept = statements.sel(statement=holds or printed, n=(n >= from_n) & (odd | (n % 2 == 0)))
        if not when:
            return Finding("not reproduced", evidence)
        if kept["n_violations"].any():
            return Finding("not reproduced", f"{evidence} Not even {when}: {_counterexamples(kept)}.")
        return Finding("corrected", f"{evidence} It holds {when}.")

    needs: dict[str, tuple[Any, ...]] = {
        "statement": tuple(dict.fromkeys((printed, holds or printed))),
        "n": tuple(range(1, 2001)),
        "prior": _UNIT_PRIOR,
    }
    return Claim(name, f"With Beta(1, 1) and n to 2,000, {text}", source, {"statements": needs}, check)


_WHOLE_LINE: dict[str, dict[str, tuple[Any, ...]]] = {
    "beta": {"n": (100,), "successes": tuple(range(101)), "prior": _UNIT_PRIOR}
}
CLAIMS = (
    Claim(
        "largest-at-the-edge",
        "The sensitivity of the Hellinger distance is largest at the edge, and very low away from it.",
        "P0, Motivation 2",
        _WHOLE_LINE,
        _largest_at_the_edge,
    ),
    Claim(
        "smooth-below-global",
        "So the smooth sensitivity is smaller than the global one.",
        "P0, Motivation 2",
        _WHOLE_LINE,
        _smooth_below_global,
    ),
    Claim(
        "bounds-in-order",
        "The smooth and the varying sensitivity lie between the local and the global one, at every data set.",
        "check of this study",
        {"beta": {}},
        _bounds_in_order,
    ),
    _statement_claim(
        "statement-1",
        "H(x, x+1) < H(x+1, x+2) for x >= x0, the centre, and the mirror image of it for x <= x0.",
        "P1, statement I",
        printed="I",
    ),
    _statement_claim(
        "statement-1-below",
        "H(x, x+1) > H(x+1, x+2) for x <= x0.",
        "P1, statement I, second half as printed",
        printed="I-below",
        holds="I",
        when="as the mirror image of the first half, H(x, x-1) < H(x-1, x-2) for x <= x0",
    ),
    _statement_claim(
        "statement-2",
        "LS(x) is the step towards the nearer edge: H(x, x+1) for x >= x0, H(x, x-1) for x <= x0.",
        "P1, statement II",
        printed="II",
        holds="II-inside",
        when="for 0 < x < n; at an edge there is no such step, and LS is that to the inside",
    ),
    _statement_claim(
        "statement-2-centre",
        "H(x0, x0-1) = H(x0, x0+1).",
        "P1, proof of statement II",
        printed="II-centre",
        odd=False,
        when="for even n; for odd n there are two centres, and each has one step that leads to the other",
    ),
    _statement_claim(
        "statement-3",
        "LS(x) > LS(x0) for every x other than x0.",
        "P1, statement III",
        printed="III",
        from_n=4,
        when="for n >= 4",
    ),
)


def _draw_lines(summaries: Mapping[str, xr.Dataset]) -> Any:
    from studies.figures import draw_curves

    curves = {name: f"{name}_sensitivity" for name in NAMES}
    return draw_curves(summaries["beta"], "successes", curves, "n", MECHANISM_STYLES, "sensitivity")


FIGURES = (
    Figure(
        "sensitivity-beta",
        "Sensitivities over Beta posteriors (P0, Figure 1)",
        "Local, varying, smooth and global sensitivity of the Hellinger score against the number of successes, for "
        "several numbers of records. The local sensitivity is the largest change of a score when one record is "
        "replaced; the others bound it, ever less tightly. Where curves coincide, the tighter lies on top.",
        ("beta",),
        _draw_lines,
    ),
)
