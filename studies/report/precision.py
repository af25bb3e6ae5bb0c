"""Table of the precision that a store has reached, against the target of its last run until a precision."""

from typing import Any

from studies.report.results import StudyResults


def tabulate_precision(results: StudyResults) -> list[dict[str, Any]]:
    """Return the table for the page of a store, in a list that is empty if no run had a precision as its target."""
    found = results.precision
    n_all = sum(one.n_asked for one in found)
    rows = [
        {
            "widest": one.widest,
            "error": f"{one.precision.error:.3g}",
            "asked": f"{one.precision.bound:.3g}",
            "estimate": f"{one.precision.estimate:.4g}",
            "95 % at every stopping time": f"± {one.half_width:.2g}",
            "trials": f"{one.precision.n:,}",
            "evaluations": f"{one.n_asked:,}",
            "to halve": f"{one.n_more:,}",
            "time to halve": f"{results.seconds * one.n_more / n_all:,.0f} s",
        }
        for one in found
    ]
    if not rows:
        return []
    meaning = (
        f"Monte Carlo error reached against {found[0].target}, and the further evaluations and wall time "
        "after which every error is half of the bound"
    )
    cells = [list(row.values()) for row in rows]
    return [{"name": "precision", "meaning": meaning, "heads": list(rows[0]), "rows": cells, "n_names": 1}]
