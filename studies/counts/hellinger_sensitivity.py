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

from mechanisms import validate
from mechanisms.counts.scales import SENSITIVITIES
from mechanisms.counts.sensitivity import phi
from pipeline import Factor, Measure, Method, Panel, Streams, Study
from studies.counts.hellinger_sensitivity_claims import CLAIMS, FIGURES, NAMES

_SIZES = (20, 100, 500, 2000)
_LARGEST = 100_000  # above it, two steps near the centre may differ by less than 4e-10 of themselves
_PRIOR = Factor("prior", ((1.0, 1.0),), "Beta parameters of the prior", "vector")


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
        for name in NAMES
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


STUDY = Study(
    name="hellinger-sensitivity",
    title="Sensitivity of the Hellinger distance over Beta posteriors",
    aim=(
        "Show how far one record moves the score of the Hellinger exponential mechanism at every data set, and check "
        "what is said of it."
    ),
    panels=(_BETA, _STATEMENTS),
    seed=20_180_802,
    claims=CLAIMS,
    figures=FIGURES,
)
