"""Sensitivities of the Hellinger score over Beta posteriors (P0, Figure 1; P1, section 2).

Panel `beta` contains the local, smooth, varying and global sensitivity at every data set of n records with x successes.
Panel `statements` contains the counterexamples to P1's three statements about the local sensitivity, which are checked
at every data set for n up to 2,000.
"""

from functools import partial

import numpy as np
import xarray as xr

from mechanisms.counts.exponential import SENSITIVITIES
from mechanisms.counts.mechanism import validate
from mechanisms.counts.sensitivity import phi
from pipeline import Factor, Figure, Measure, Method, Panel, Streams, Study
from studies.counts.hellinger_sensitivity_claims import CLAIMS, NAMES
from studies.counts.problems import DELTA, EPSILON, require_size
from studies.figures import Axis, Chart
from studies.panels import Values, given, require
from studies.styles import MECHANISM_STYLES

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
        for name in NAMES
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
    for x, holds in (one[name] for one in checks):
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
                [ds[f"{name}_sensitivity"].rename("sensitivity") for name in NAMES],
                xr.Variable("sensitivity_of", list(NAMES)),
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
    claims=CLAIMS,
    figures=_FIGURES,
)
