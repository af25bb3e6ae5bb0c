"""Sensitivities of the Hellinger score over Beta posteriors (P0, Figure 1; P1, section 2).

Panel `beta` contains the local, smooth, varying and global sensitivity at every data set of n records with x successes.
Panel `statements` contains the counterexamples to P1's three statements about the local sensitivity, which are checked
at every data set for n up to 2,000.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from mechanisms.counts.exponential import SENSITIVITIES
from mechanisms.counts.mechanism import validate
from mechanisms.counts.sensitivity import phi
from pipeline import Erratum, Factor, Figure, Finding, Measure, Method, Panel, Streams, Study, claim, claims_in, verdict
from studies.claims import Look, correct, joined, p0, p1, span
from studies.counts.problems import DELTA, EPSILON, require_size
from studies.figures import Axis, Chart
from studies.panels import Values, given, require
from studies.styles import MECHANISM_STYLES

_NAMES = ("local", "varying", "smooth", "global")  # all bound `local` from above, and `global` bounds all
_SIZES = (20, 100, 500, 2000)
_LARGEST = 100_000  # for larger n, distances H(x, x+1) near the centre may differ by less than a relative 4e-10
_PRIOR = Factor("prior", ((1.0, 1.0),), "Beta parameters of the prior", "vector")


def _validate(cell: Values, setting: Values) -> bool:
    """Raise ValueError for values that no panel has; the steps of panel `statements` have a largest n."""
    is_beta, fewest = "successes" in cell, min(cell.get("successes", (0,)))
    for n in (cell["n"],) if is_beta else cell["n"]:
        require_size(n, cell["prior"], 2)
        validate(cell["prior"], (n, 0), setting.get("epsilon", 1.0), setting.get("delta", 1e-8))
        advice = "choose a smaller n, since distances for larger n are too close to compare"
        require(is_beta or n <= _LARGEST, f"n must be <= {_LARGEST:,}", n, advice)
    require(fewest >= 0, "successes must be >= 0", fewest)
    return True


def _evaluate_sensitivities(cell: Values, setting: Values, streams: Streams) -> dict[str, list[float]]:
    """Return the sensitivities for each number of successes, NaN if it exceeds the number of records."""
    n, epsilon, delta = (cell[name] for name in ("n", "epsilon", "delta"))
    prior, counts = np.array(cell["prior"]), [np.array((x, n - x)) for x in cell["successes"]]
    return {
        f"{name}_sensitivity": [SENSITIVITIES[name](prior, c, epsilon, delta) if c[1] >= 0 else np.nan for c in counts]
        for name in _NAMES
    }


_BETA = Panel(
    name="beta",
    meaning="sensitivities of the Hellinger score over Beta posteriors (P0, Figure 1)",
    simulate=given,
    methods=(Method("sensitivities", _evaluate_sensitivities, note="Local, varying, smooth and global sensitivity."),),
    measures=tuple(
        Measure(f"{name}_sensitivity", meaning, dims=("successes",), ragged=True)
        for name, meaning in (
            ("local", "largest change of any score when one record is replaced"),
            ("smooth", "smallest bound on the local sensitivity whose logarithm changes by at most gamma per record"),
            ("varying", "smallest bound on the local sensitivity whose reciprocal changes by at most 1 per record"),
            ("global", "largest local sensitivity over all data sets of this size"),
        )
    ),
    factors=(Factor("n", _SIZES, "number of records", "int"),),
    outputs=(Factor("successes", tuple(range(max(_SIZES) + 1)), "number of successes", "int"),),
    constants=(_PRIOR, EPSILON, DELTA),
    method_dim=None,
    validate=_validate,
)


# Panel statements. step[x] is the log of the Bhattacharyya coefficient of the posteriors given x and x+1 successes, so
# H(x, x+1) = sqrt(1 - exp(step[x])). A larger distance has a smaller step. Steps are compared because they are accurate
# enough, and because mirrored steps are bitwise equal.


Checks = dict[str, tuple[np.ndarray, np.ndarray]]
"""Statement -> the data sets x that it covers, and its truth value at each x."""


def compute_steps(cell: Values) -> list[np.ndarray]:
    """Return the steps s(x) for each n, shape (n,), with H(x, x+1) = sqrt(1 - exp(s(x))) (Hellinger distances)."""
    sizes, prior = cell["n"], cell["prior"]
    first, second = phi(np.add.outer(prior, np.arange(max(sizes))))
    return [first[:n] + second[n - 1 :: -1] for n in sizes]


def _check(step: np.ndarray) -> Checks:
    """Check all statements, given the steps for one n, shape (n,)."""
    n = step.size
    x, centre = np.arange(n + 1), [n // 2, (n + 1) // 2]
    padded = np.concatenate(([np.inf], step, [np.inf]))
    local = np.minimum(padded[1:], padded[:-1])  # the step of the local sensitivity, max(H(x, x−1), H(x, x+1))
    # The step towards the nearer edge, inf if there is none. For odd n there are two centres: x >= x0 starts at the
    # upper centre, and x <= x0 ends at the lower centre. For even n both formulas apply at x0, where the two steps are
    # equal.
    is_nearer = np.where(2 * x >= n, padded[1:], padded[:-1]) == local
    below, above, printed = np.arange(2, centre[1] + 1), np.arange(n // 2, n - 1), np.arange(min(n // 2, n - 2) + 1)
    middle, others = np.unique([c for c in centre if 0 < c < n]).astype(int), np.delete(x, centre)
    first = np.concatenate((step[below - 2] < step[below - 1], step[above] > step[above + 1]))
    return {
        "I": (np.concatenate((below, above)), first),
        "I-below": (printed, step[printed] < step[printed + 1]),
        "II": (x, is_nearer),
        "II-inside": (x[1:-1], is_nearer[1:-1]),
        "II-centre": (middle, step[middle - 1] == step[middle]),
        "III": (others, local[others] < local[centre].min()),
    }


_NOTES = {
    "I": "H(x, x+1) < H(x+1, x+2) for x >= x0, and the mirrored inequality for x <= x0.",
    "I-below": "H(x, x+1) > H(x+1, x+2) for x <= x0, as printed in P1.",
    "II": "LS(x) = H(x, x+1) for x >= x0, LS(x) = H(x, x-1) for x <= x0, as printed in P1.",
    "II-inside": "Statement II for 0 < x < n.",
    "II-centre": "H(x0, x0-1) = H(x0, x0+1), as printed in the proof of statement II in P1.",
    "III": "LS(x) > LS(x0) for x other than x0, as printed in P1.",
}


def _count_violations(name: str, checks: list[Checks], setting: Values, streams: Streams) -> dict[str, np.ndarray]:
    rows = []
    for x, holds in (result[name] for result in checks):
        violations = x[~holds]
        ends = (violations.min(), violations.max()) if violations.size else (np.nan, np.nan)
        rows.append((x.size, violations.size, *ends))
    names = ("n_checked", "n_violations", "first_violation", "last_violation")
    return dict(zip(names, np.transpose(rows), strict=True))


_STATEMENTS = Panel(
    name="statements",
    meaning="data sets that violate the statements of P1, section 2",
    simulate=lambda cell, streams: [_check(step) for step in compute_steps(cell)],
    methods=tuple(Method(name, partial(_count_violations, name), note=note) for name, note in _NOTES.items()),
    measures=(
        Measure("n_checked", "number of data sets covered by the statement", dims=("n",), dtype="int64"),
        Measure("n_violations", "number of data sets that violate the statement", dims=("n",), dtype="int64"),
        Measure("first_violation", "smallest x that violates the statement", dims=("n",), ragged=True),
        Measure("last_violation", "largest x that violates the statement", dims=("n",), ragged=True),
    ),
    outputs=(Factor("n", tuple(range(1, max(_SIZES) + 1)), "number of records", "int"),),
    constants=(_PRIOR,),
    method_dim="statement",
    validate=_validate,
)

_UNIT_PRIOR = ("1:1",)


_BETA_NEEDS: dict[str, Any] = {"beta": {"n": (100, ...), "successes": (*range(101), ...), "prior": _UNIT_PRIOR}}


def _complete_sizes(summary: xr.Dataset) -> dict[int, xr.Dataset]:
    """Return the sensitivities at x = 0..n, for each n for which all of them are stored."""
    lines = {n: summary.sel(n=n).dropna("successes") for n in summary["n"].values.tolist()}
    return {n: line for n, line in lines.items() if line.sizes["successes"] == n + 1}


@p0(
    short="The local sensitivity is largest at the edges, and very low away from them.",
    place="Motivation 2",
    needs=_BETA_NEEDS,
)
@joined("Local sensitivity. {}.")
def largest_at_the_edge(look: Look) -> Iterator[Finding]:
    """The local sensitivity of the Hellinger distance is largest at the edges, x = 0 and x = n, and very low away from
    them.
    """
    for n, line in _complete_sizes(look["beta"]).items():
        local = line["local_sensitivity"].values
        largest, centre = local.max(), local[n // 2]
        where = ", ".join(map(str, np.flatnonzero(local == largest)))
        evidence = f"n = {n}: maximum {largest:.4f} at x = {where}, {centre:.4f} at the centre"
        yield verdict(local[0] == local[n] == largest and centre < largest / 2, evidence)


@p0(place="Motivation 2", needs=_BETA_NEEDS)
@joined(
    "Smooth against global sensitivity at the centre; fraction of data sets at which smooth is less than half of "
    "global. {}."
)
def smooth_below_global(look: Look) -> Iterator[Finding]:
    """The smooth sensitivity is smaller than the global sensitivity."""
    for n, line in _complete_sizes(look["beta"]).items():
        smooth, largest = (line[f"{name}_sensitivity"].values for name in ("smooth", "global"))
        smooth_sensitivity, limit, below = smooth[n // 2], largest[n // 2], np.mean(smooth < largest / 2)
        yield verdict(
            smooth_sensitivity < limit,
            f"n = {n}: {smooth_sensitivity:.4f} against {limit:.4f}; {below:.0%} of data sets",
        )


@claim(
    short="Smooth and varying sensitivity are between the local and the global one.",
    kind="self-check",
    needs={"beta": {}},
)
def bounds_in_order(look: Look) -> Finding:
    """The smooth and the varying sensitivity are between the local and the global sensitivity at every data set."""
    beta = look["beta"]
    local, varying, smooth, largest = (beta[f"{name}_sensitivity"] for name in _NAMES)
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


def _counterexamples(checks: xr.Dataset) -> str:
    """Describe the number of counterexamples, and list the values of n at which they occur, or some of them."""
    among = f"among {int(checks['n_checked'].sum()):,} data sets of n = {span(checks['n'], '.0f')} records"
    at = checks.isel(n=np.flatnonzero(checks["n_violations"]))
    if not at.sizes["n"]:
        return f"No counterexample {among}"
    numbers = (at[name].values.astype(int) for name in ("n", "n_violations", "first_violation", "last_violation"))
    places = [
        f"n = {n} (x = {first}{'' if count == 1 else f' and {last}' if count == 2 else f' to {last}'})"
        for n, count, first, last in zip(*numbers, strict=True)
    ]
    if len(places) > 5:
        places[4:-1] = ["..."]
    total = int(checks["n_violations"].sum())
    return f"{total:,} counterexamples {among}, at {at.sizes['n']:,} sizes: {', '.join(places)}"


def _statements(*names: str) -> dict[str, dict[str, Any]]:
    """Return the needs of a claim about statements."""
    return {"statements": {"statement": names, "n": tuple(range(1, 2001)), "prior": _UNIT_PRIOR}}


def _without_counterexample(
    look: Look, name: str, when: str = "", repair: str = "", kept: Callable[[Any], Any] = lambda n: n > 0
) -> Finding:
    """Judge that a statement has no counterexample; "corrected" if only its repair, described by `when`, has none."""
    printed, repaired = (look["statements"].sel(statement=label) for label in (name, repair or name))
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


@p1(
    short="Statement I: the distance between neighbours grows from the centre to the edges.",
    place="statement I",
    needs=_statements("I"),
)
def statement_1(look: Look) -> Finding:
    """For the prior Beta(1, 1) and n up to 2,000, H(x, x+1) < H(x+1, x+2) for x >= x0, the centre, and the mirrored
    inequality holds for x <= x0.
    """
    return _without_counterexample(look, "I")


@p1(
    place="statement I, second half as printed",
    needs=_statements("I-below", "I"),
    erratum=Erratum(
        "H(x, x+1) > H(x+1, x+2) for x ≤ x₀.",
        "The mirror image of the first half: H(x, x−1) < H(x−1, x−2).",
        place="statement I",
    ),
)
def statement_1_below(look: Look) -> Finding:
    """For the prior Beta(1, 1) and n up to 2,000, H(x, x+1) > H(x+1, x+2) for x <= x0."""
    when = "as the mirrored inequality of the first half, H(x, x-1) < H(x-1, x-2) for x <= x0"
    return _without_counterexample(look, "I-below", when, "I")


@p1(
    short="Statement II: the local sensitivity is the step towards the nearer edge.",
    place="statement II",
    needs=_statements("II", "II-inside"),
    erratum=Erratum(
        "LS(x) is the step towards the nearer edge.",
        "This holds for 0 < x < n; at an edge LS(x) is the step away from the edge.",
    ),
)
def statement_2(look: Look) -> Finding:
    """For the prior Beta(1, 1) and n up to 2,000, LS(x) is the distance of the step towards the nearer edge: H(x, x+1)
    for x >= x0, H(x, x-1) for x <= x0.
    """
    when = "for 0 < x < n; at an edge this step does not exist, and LS is the distance of the step inwards"
    return _without_counterexample(look, "II", when, "II-inside")


@p1(
    place="proof of statement II",
    needs=_statements("II-centre"),
    erratum=Erratum("H(x₀, x₀−1) = H(x₀, x₀+1).", "This holds for even n only."),
)
def statement_2_centre(look: Look) -> Finding:
    """For the prior Beta(1, 1) and n up to 2,000, H(x0, x0-1) = H(x0, x0+1)."""
    when = "for even n; for odd n there are two centres, and one of the two steps from each leads to the other"
    return _without_counterexample(look, "II-centre", when, kept=lambda n: n % 2 == 0)


@p1(
    short="Statement III: the local sensitivity is smallest at the centre x0 only.",
    place="statement III",
    needs=_statements("III"),
    erratum=Erratum("LS(x) > LS(x₀) for every x other than x₀.", "This holds for n ≥ 4."),
)
def statement_3(look: Look) -> Finding:
    """For the prior Beta(1, 1) and n up to 2,000, LS(x) > LS(x0) for every x other than x0."""
    return _without_counterexample(look, "III", "for n >= 4", kept=lambda n: n >= 4)


_FIGURES = (
    Figure(
        "sensitivity-beta",
        "Sensitivities over Beta posteriors (P0, Figure 1)",
        "Local, varying, smooth and global sensitivity of the Hellinger score against the number of successes, for "
        "several numbers of records. The local sensitivity is the largest change of a score when one record is "
        "replaced; the others are upper bounds on it. Where curves coincide, the tighter bound is drawn on top.",
        ("beta",),
        Chart(
            "beta",
            "successes",
            {"y": "sensitivity"},
            "sensitivity_of",
            MECHANISM_STYLES,
            y=Axis("sensitivity", limits=(0.0, None)),
            facet={"n": "n = {}"},
            prepare=lambda ds: xr.concat(
                [ds[f"{name}_sensitivity"].rename("sensitivity") for name in _NAMES],
                xr.Variable("sensitivity_of", list(_NAMES)),
            ).to_dataset(),
            columns=2,
            height=160,
            n_markers=8,
            at_ends=False,
            share_x=False,
            with_constants=True,
        ),
    ),
)

STUDY = Study(
    name="hellinger-sensitivity",
    papers=("P0", "P1"),
    title="Sensitivity of the Hellinger distance over Beta posteriors",
    aim=(
        "Compute the sensitivities of the score of the Hellinger exponential mechanism at every data set, and check "
        "the statements of P0 and P1 about them."
    ),
    panels=(_BETA, _STATEMENTS),
    seed=20_180_802,
    claims=claims_in(globals()),
    figures=_FIGURES,
)
