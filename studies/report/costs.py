"""Costs of methods on the page of a store: seconds per evaluation, as its sessions recorded them."""

from pipeline.store.sessions.costs import MethodCosts
from studies.report.results import StudyResults
from studies.tables import PageTable


def tabulate_costs(results: StudyResults) -> list[tuple[PageTable, int]]:
    """Return the table of the methods' seconds with its number of names, in a list that is empty without a record."""
    costs = MethodCosts.of(results.sessions).by_panel
    rows = [
        (panel.name, method.name, f"{n:,}", f"{seconds / n:.2g}", f"{seconds:.2g}")
        for panel in results.study.panels
        for method in panel.methods
        for n, seconds in [costs.get(panel.name, {}).get(method.name, (0, 0.0))]
        if n
    ]
    meaning = (
        "Wall-clock seconds of the methods on the workers, without the simulation of data, in the sessions that ended "
        "and recorded them; the mean is over all cells and settings that a method was computed in."
    )
    heads = ("panel", "method", "evaluations", "s per evaluation", "s in all")
    return [(PageTable("costs", meaning, heads, rows), 2)] if rows else []
