"""How far one record moves the Hellinger score: the sensitivities over Beta posteriors (P0, Figure 1; P1, section 2).

Panel `beta` holds the local, smooth, varying and global sensitivity at every data set of n records with x successes.
Panel `statements` holds P1's three statements about them, each checked at every data set for all n up to 2,000, with
its counterexamples.

References
----------
P0: Bun, Farina, Gaboardi & Liu, "Tailoring Differentially Private Bayesian Inference to Distance Between
Distributions" (poster). P1: "Differentially Private Bayesian Inference" (draft).
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import xarray as xr

from mechanisms import validate
from mechanisms.counts.sensitivity import SENSITIVITIES, phi
from pipeline import Claim, Factor, Figure, Finding, Measure, Method, Panel, Streams, Study
from studies.styles import MECHANISM_STYLES

_NAMES = ("local", "varying", "smooth", "global")
_SIZES = (20, 100, 500, 2000)
_LARGEST = 100_000  # above it, two steps near the centre may differ by less than 4e-10 of themselves
_PRIOR = Factor("prior", ((1.0, 1.0),), "Beta parameters of the prior", "vector")
_UNIT_PRIOR = ("1:1",)


def _require_problem(prior: Any, n: int, epsilon: float = 1.0, delta: float = 1e-8) -> None:
    """Refuse what no mechanism takes."""
    if n < 1:
        raise ValueError(f"n must be >= 1, got {n}")
    if len(prior) != 2:
        raise ValueError(f"prior must have 2 entries, one a cell, got {len(prior)}")
    validate(prior, (n, 0), epsilon, delta)


# Panel beta


def _simulate_data_sets(cell: Mapping[str, Any], streams: Streams) -> list[tuple[Any, Any]]:
    """Return prior and counts of every data set on the axis; None for more successes than records."""
    n = cell["n"]
    return [(cell["prior"], (x, n - x) if x <= n else None) for x in cell["successes"]]


def _evaluate_sensitivities(
    data: list[tuple[Any, Any]], setting: Mapping[str, Any], streams: Streams
) -> dict[str, list[float]]:
    epsilon, delta = setting["epsilon"], setting["delta"]
    return {
        f"{name}_sensitivity": [
            np.nan if counts is None else SENSITIVITIES[name].at(prior, counts, epsilon, delta)
            for prior, counts in data
        ]
        for name in _NAMES
    }


def _validate_beta(cell: Mapping[str, Any], setting: Mapping[str, Any]) -> bool:
    _require_problem(cell["prior"], cell["n"], setting["epsilon"], setting["delta"])
    fewest = min(cell["successes"])
    if fewest < 0:
        raise ValueError(f"successes must be >= 0, got {fewest}")
    return True


_BETA = Panel(
    name="beta",
    meaning="sensitivities of the Hellinger score over Beta posteriors (P0, Figure 1)",
    simulate=_simulate_data_sets,
    methods=(
        Method("sensitivities", _evaluate_sensitivities, note="Local, varying, smooth and global, side by side."),
    ),
    measures=tuple(
        Measure(f"{name}_sensitivity", meaning, dims=("successes",), ragged=True)
        for name, meaning in (
            ("local", "largest change of any score when one record of this data set is replaced"),
            ("smooth", "smallest bound on it whose logarithm moves by at most gamma a record"),
            ("varying", "smallest bound on it whose reciprocal moves by at most 1 a record"),
            ("global", "largest local sensitivity of all data sets of this size"),
        )
    ),
    factors=(Factor("n", _SIZES, "number of records", "int"),),
    outputs=(Factor("successes", tuple(range(max(_SIZES) + 1)), "number of successes", "int"),),
    constants=(
        _PRIOR,
        Factor("epsilon", (1.0,), "privacy loss", unit="nat"),
        Factor("delta", (1e-8,), "probability of a larger privacy loss"),
    ),
    method_dim=None,
    validate=_validate_beta,
)


# Panel statements: exponents of the steps. H(x, x+1) = sqrt(1 - exp(step[x])), so the longer of two steps has the
# smaller exponent. Exponents keep the digits that a comparison needs, and mirrored steps are equal to the last bit.


def _simulate_steps(cell: Mapping[str, Any], streams: Streams) -> list[np.ndarray]:
    """Return for each n the exponents of H(x, x+1), shape (n,)."""
    sizes, prior = cell["n"], cell["prior"]
    first, second = phi(np.add.outer(prior, np.arange(max(sizes))))
    return [first[:n] + second[n - 1 :: -1] for n in sizes]


def _local(step: np.ndarray) -> np.ndarray:
    """Return the exponents of the local sensitivity at x = 0..n: that of the longer step away from x."""
    return np.minimum(np.append(step, np.inf), np.insert(step, 0, np.inf))


def _named(step: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return x = 0..n and the exponent of the step that statement II names there; NaN where it leaves 0..n.

    At odd n two data sets are the centre: the upper one opens x >= x0, the lower one closes x <= x0. At even n both
    formulas hold at x0, and name equal steps.
    """
    x = np.arange(step.size + 1)
    padded = np.concatenate(([np.nan], step, [np.nan]))
    return x, np.where(2 * x >= step.size, padded[x + 1], padded[x])


Check = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Exponents of the steps to the data sets that a statement is about, and whether it holds there."""


def _check_1(step: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    n = step.size
    above, below = np.arange(n // 2, n - 1), np.arange(2, (n + 1) // 2 + 1)
    return np.concatenate((below, above)), np.concatenate(
        (step[below - 2] < step[below - 1], step[above] > step[above + 1])
    )


def _check_1_below(step: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    n = step.size
    x = np.arange(min(n // 2, n - 2) + 1)
    return x, step[x] < step[x + 1]


def _check_2(step: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    x, named = _named(step)
    return x, named == _local(step)


def _check_2_inside(step: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    x, holds = _check_2(step)
    return x[1:-1], holds[1:-1]


def _check_2_centre(step: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    n = step.size
    x = np.unique([x for x in (n // 2, (n + 1) // 2) if 0 < x < n]).astype(int)
    return x, step[x - 1] == step[x]


def _check_3(step: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    n = step.size
    local, centre = _local(step), [n // 2, (n + 1) // 2]
    x = np.delete(np.arange(n + 1), centre)
    return x, local[x] < local[centre].min()


def _statement(name: str, check: Check, note: str) -> Method:
    def evaluate(steps: list[np.ndarray], setting: Mapping[str, Any], streams: Streams) -> dict[str, np.ndarray]:
        rows = []
        for step in steps:
            x, holds = check(step)
            violations = x[~holds]
            ends = (violations.min(), violations.max()) if violations.size else (np.nan, np.nan)
            rows.append((x.size, violations.size, *ends))
        names = ("n_checked", "n_violations", "first_violation", "last_violation")
        return dict(zip(names, np.transpose(rows), strict=True))

    return Method(name, evaluate, note=note)


def _validate_statements(cell: Mapping[str, Any], setting: Mapping[str, Any]) -> bool:
    for n in cell["n"]:
        _require_problem(cell["prior"], n)
        if n > _LARGEST:
            raise ValueError(f"n must be <= {_LARGEST:,}, got {n}; the steps of larger data are too close to compare")
    return True


_STATEMENTS = Panel(
    name="statements",
    meaning="data sets at which the statements of P1, section 2, fail",
    simulate=_simulate_steps,
    methods=(
        _statement("I", _check_1, "H(x, x+1) < H(x+1, x+2) for x >= x0, and its mirror image for x <= x0."),
        _statement("I-below", _check_1_below, "H(x, x+1) > H(x+1, x+2) for x <= x0, as P1 prints it."),
        _statement("II", _check_2, "LS(x) = H(x, x+1) for x >= x0, LS(x) = H(x, x-1) for x <= x0, as P1 prints it."),
        _statement("II-inside", _check_2_inside, "II, for 0 < x < n."),
        _statement("II-centre", _check_2_centre, "H(x0, x0-1) = H(x0, x0+1), as P1 prints it in the proof of II."),
        _statement("III", _check_3, "LS(x) > LS(x0) for x other than x0, as P1 prints it."),
    ),
    measures=(
        Measure("n_checked", "data sets that the statement is about", dims=("n",), dtype="int64"),
        Measure("n_violations", "data sets of them at which it fails", dims=("n",), dtype="int64"),
        Measure("first_violation", "the smallest x at which it fails", dims=("n",), ragged=True),
        Measure("last_violation", "the largest x at which it fails", dims=("n",), ragged=True),
    ),
    outputs=(Factor("n", tuple(range(1, max(_SIZES) + 1)), "number of records", "int"),),
    constants=(_PRIOR,),
    method_dim="statement",
    validate=_validate_statements,
)


# Claims


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
    local, varying, smooth, largest = (summaries["beta"][f"{name}_sensitivity"] for name in _NAMES)
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
_CLAIMS = (
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

    curves = {name: f"{name}_sensitivity" for name in _NAMES}
    return draw_curves(summaries["beta"], "successes", curves, "n", MECHANISM_STYLES, "sensitivity")


STUDY = Study(
    name="hellinger-sensitivity",
    title="Sensitivity of the Hellinger distance over Beta posteriors",
    aim=(
        "Show how far one record moves the score of the Hellinger exponential mechanism at every data set, and check "
        "what is said of it."
    ),
    panels=(_BETA, _STATEMENTS),
    seed=20_180_802,
    claims=_CLAIMS,
    figures=(
        Figure(
            "sensitivity-beta",
            "Sensitivities over Beta posteriors (P0, Figure 1)",
            "Local, varying, smooth and global sensitivity of the Hellinger score against the number of successes, for "
            "several numbers of records. The local sensitivity is the largest change of a score when one record is "
            "replaced; the others bound it, ever less tightly. Where curves coincide, the tighter lies on top.",
            ("beta",),
            _draw_lines,
        ),
    ),
)
