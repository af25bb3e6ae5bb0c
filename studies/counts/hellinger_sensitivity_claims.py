"""Claims and figures of the study `hellinger-sensitivity` (P0 and P1)."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from pipeline import Claim, Erratum, Figure, Finding, claim, verdict
from studies.styles import MECHANISM_STYLES

NAMES = ("local", "varying", "smooth", "global")
"""Names of the sensitivities: all bound `local`, and `global` bounds all."""

_UNIT_PRIOR = ("1:1",)


def _complete_sizes(summary: xr.Dataset) -> dict[int, xr.Dataset]:
    """Return the sensitivities at x = 0..n for each n whose data sets are all stored."""
    lines = {n: summary.sel(n=n).dropna("successes") for n in summary["n"].values.tolist()}
    return {n: line for n, line in lines.items() if line.sizes["successes"] == n + 1}


def _largest_at_the_edge(summaries: Mapping[str, xr.Dataset]) -> Finding:
    evidence, holds = [], True
    for n, line in _complete_sizes(summaries["beta"]).items():
        local = line["local_sensitivity"].values
        largest, centre = local.max(), local[n // 2]
        holds &= local[0] == local[n] == largest and centre < largest / 2
        where = ", ".join(map(str, np.flatnonzero(local == largest)))
        evidence.append(f"n = {n}: maximum {largest:.4f} at x = {where}, {centre:.4f} at the centre")
    return verdict(holds, f"Local sensitivity. {'; '.join(evidence)}.")


def _smooth_below_global(summaries: Mapping[str, xr.Dataset]) -> Finding:
    evidence, holds = [], True
    for n, line in _complete_sizes(summaries["beta"]).items():
        smooth, largest = (line[f"{name}_sensitivity"].values for name in ("smooth", "global"))
        holds &= smooth[n // 2] < largest[n // 2]
        below = np.mean(smooth < largest / 2)
        evidence.append(f"n = {n}: {smooth[n // 2]:.4f} against {largest[n // 2]:.4f}; {below:.0%} of data sets")
    numbers = "; ".join(evidence)
    return verdict(
        holds,
        f"Smooth against global sensitivity at the centre; fraction of data sets at which smooth is less than half of "
        f"global. {numbers}.",
    )


def _bounds_in_order(summaries: Mapping[str, xr.Dataset]) -> Finding:
    local, varying, smooth, largest = (summaries["beta"][f"{name}_sensitivity"] for name in NAMES)
    rounding = 1 + 1e-12
    n_out = sum(int(((local > bound * rounding) | (bound > largest * rounding)).sum()) for bound in (varying, smooth))
    tight = ", ".join(
        f"{name} {float((bound <= local * rounding).sum() / local.count()):.1%}"
        for name, bound in (("varying", varying), ("smooth", smooth))
    )
    return verdict(
        not n_out,
        f"{n_out:,} exceptions among {2 * int(local.count()):,} values. Fraction of data sets at which the bound "
        f"equals the local sensitivity: {tight}.",
    )


def _counterexamples(found: xr.Dataset) -> str:
    """Describe the number of counterexamples and their sizes: all sizes if few, else the first and the last."""
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
    name: str,
    text: str,
    place: str,
    printed: str,
    holds: str = "",
    from_n: int = 1,
    odd: bool = True,
    when: str = "",
    erratum: Erratum | None = None,
) -> Claim:
    """Return the claim that the statement `printed` has no counterexample.

    The verdict is "corrected" if the statement `holds` has none at n >= `from_n` (at even n only unless `odd`). `when`
    describes this condition.
    """

    def check(summaries: Mapping[str, xr.Dataset]) -> Finding:
        statements = summaries["statements"]
        n = statements["n"]
        found = statements.sel(statement=printed)
        evidence = f"{_counterexamples(found)}."
        if not found["n_violations"].any():
            empty = ", ".join(str(size) for size in n.values[found["n_checked"] == 0])
            return Finding("holds", evidence + (f" No comparison at n = {empty}." if empty else ""))
        kept = statements.sel(statement=holds or printed, n=(n >= from_n) & (odd | (n % 2 == 0)))
        if not when:
            return Finding("does not hold", evidence)
        if kept["n_violations"].any():
            return Finding("does not hold", f"{evidence} It also fails {when}: {_counterexamples(kept)}.")
        return Finding("corrected", f"{evidence} It holds {when}.")

    needs: dict[str, tuple[Any, ...]] = {
        "statement": tuple(dict.fromkeys((printed, holds or printed))),
        "n": tuple(range(1, 2001)),
        "prior": _UNIT_PRIOR,
    }
    return claim(
        name,
        f"For the prior Beta(1, 1) and n up to 2,000, {text}",
        paper="P1",
        place=place,
        needs={"statements": needs},
        erratum=erratum,
    )(check)


_COMPLETE: dict[str, dict[str, tuple[Any, ...]]] = {
    "beta": {"n": (100,), "successes": tuple(range(101)), "prior": _UNIT_PRIOR}
}
CLAIMS = (
    claim(
        "largest-at-the-edge",
        "The local sensitivity of the Hellinger distance is largest at the edges, x = 0 and x = n, and very low "
        "away from them.",
        paper="P0",
        place="Motivation 2",
        needs=_COMPLETE,
    )(_largest_at_the_edge),
    claim(
        "smooth-below-global",
        "The smooth sensitivity is smaller than the global sensitivity.",
        paper="P0",
        place="Motivation 2",
        needs=_COMPLETE,
    )(_smooth_below_global),
    claim(
        "bounds-in-order",
        "The smooth and the varying sensitivity are between the local and the global sensitivity at every data set.",
        kind="self-check",
        needs={"beta": {}},
    )(_bounds_in_order),
    _statement_claim(
        "statement-1",
        "H(x, x+1) < H(x+1, x+2) for x >= x0, the centre, and the mirrored inequality holds for x <= x0.",
        "statement I",
        printed="I",
    ),
    _statement_claim(
        "statement-1-below",
        "H(x, x+1) > H(x+1, x+2) for x <= x0.",
        "statement I, second half as printed",
        printed="I-below",
        holds="I",
        when="as the mirrored inequality of the first half, H(x, x-1) < H(x-1, x-2) for x <= x0",
        erratum=Erratum(
            "H(x, x+1) > H(x+1, x+2) for x ≤ x₀.",
            "The mirror image of the first half: H(x, x−1) < H(x−1, x−2).",
            place="statement I",
        ),
    ),
    _statement_claim(
        "statement-2",
        "LS(x) is the distance of the step towards the nearer edge: H(x, x+1) for x >= x0, H(x, x-1) for x <= x0.",
        "statement II",
        printed="II",
        holds="II-inside",
        when="for 0 < x < n; at an edge this step does not exist, and LS is the distance of the step inwards",
        erratum=Erratum(
            "LS(x) is the step towards the nearer edge.",
            "This holds for 0 < x < n; at an edge LS(x) is the step away from the edge.",
        ),
    ),
    _statement_claim(
        "statement-2-centre",
        "H(x0, x0-1) = H(x0, x0+1).",
        "proof of statement II",
        printed="II-centre",
        odd=False,
        when="for even n; for odd n there are two centres, and one of the two steps from each leads to the other",
        erratum=Erratum("H(x₀, x₀−1) = H(x₀, x₀+1).", "This holds for even n only."),
    ),
    _statement_claim(
        "statement-3",
        "LS(x) > LS(x0) for every x other than x0.",
        "statement III",
        printed="III",
        from_n=4,
        when="for n >= 4",
        erratum=Erratum("LS(x) > LS(x₀) for every x other than x₀.", "This holds for n ≥ 4."),
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
        "replaced; the others are upper bounds of it. Where curves coincide, the tighter bound is drawn on top.",
        ("beta",),
        _draw_lines,
    ),
)
