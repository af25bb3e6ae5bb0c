"""Table of the precision that a store has reached, against the target of its last run until a precision."""

from typing import Any

from studies.report.results import StudyResults

_HEADS = [
    "widest",
    "error",
    "asked",
    "estimate",
    "95 % at every stopping time",
    "trials",
    "evaluations",
    "to halve",
    "time to halve",
]


def tabulate_precision(results: StudyResults) -> list[dict[str, Any]]:
    """Return the table for the page of a store, in a list that is empty if no run had a precision as its target."""
    rows = []
    found = results.precision
    n_all = sum(one.n_asked for one in found)
    for one in found:
        precision = one.precision
        rows.append(
            [
                one.widest,
                f"{precision.error:.3g}",
                f"{precision.bound:.3g}",
                f"{precision.estimate:.4g}",
                f"± {one.half_width:.2g}",
                f"{precision.n:,}",
                f"{one.n_asked:,}",
                f"{one.n_more:,}",
                f"{results.seconds * one.n_more / n_all:,.0f} s",
            ]
        )
    if not rows:
        return []
    meaning = (
        f"Monte Carlo error reached against {found[0].target}, and the further evaluations and wall time "
        "after which every error is half of the bound"
    )
    return [{"name": "precision", "meaning": meaning, "heads": _HEADS, "rows": rows, "n_names": 1}]
