"""Self-contained HTML page of a benchmark, with the parts of the pages of studies."""

import os
from collections.abc import Sequence

from mechanisms.inference.drawn_posterior import LARGEST_RHAT
from pipeline.declare.panel import AddedMethod
from pipeline.errors import BadInputError, counted, verb
from studies.benchmark.computation import OmittedPanel
from studies.benchmark.figures import figures_of
from studies.benchmark.results import BenchmarkResults
from studies.benchmark.tables import (
    describe_rejected,
    list_undecided,
    list_worst,
    state_sensitivity,
    tabulate_cells,
    tabulate_ranks,
)
from studies.benchmark.uniformity import NOT_CALIBRATED, PASSED, UNDECIDED
from studies.figures.conversion import Converter
from studies.own_methods import OwnMethod
from studies.report.page import render_figure, render_page, write_page
from studies.styles import describe_audit

Provenance = Sequence[tuple[str, str]]


def write_benchmark(
    results: BenchmarkResults,
    method: AddedMethod,
    output: str | os.PathLike[str],
    folder: str,
    omitted: Sequence[OmittedPanel],
    provenance: Provenance,
) -> None:
    """Write the page of a benchmark whose stores are in a folder."""

    def make(converter: Converter, mark: str) -> tuple[str, None]:
        drawn = [(figure, figure.draw({})) for figure in figures_of(results)]
        figures = [render_figure(figure, plots, converter, figure.name) for figure, plots in drawn if plots]
        page = render_page(
            "benchmark.html",
            converter,
            mark,
            title=f"Benchmark of {results.own}",
            note=getattr(method, "note", ""),
            kind=results.kind,
            headline=state_verdict(results),
            failures=state_failures(results),
            sensitivity=state_sensitivity(results),
            guarantee=state_guarantee(results, method),
            figures=figures,
            has_origins=True,
            omitted=omitted,
            ranks=[tabulate_ranks(panel) for panel in results.panels],
            worst=list_worst(results),
            undecided=list_undecided(results),
            cells=[tabulate_cells(panel) for panel in results.panels],
            provenance=provenance,
        )
        return page, None

    write_page(output, folder, make)


def state_verdict(results: BenchmarkResults) -> str:
    """Return the verdict on a broken guarantee or else on the calibration as sentences."""
    if results.has_broken_guarantee:
        return f"The stated guarantee of {results.own} is broken, so that it has no rank."
    tests = results.uniformity.tests
    if not tests:
        return f"The calibration of {results.own} was not tested."
    rejected = [describe_rejected(panel.own) for panel in results.panels if panel.own.uniformity.rejected]
    if rejected:
        return f"{results.own} is not calibrated in {'. In '.join(rejected)}. {_count_verdicts(results)}"
    tested = counted(len(tests), "test")
    return f"No deviation of {results.own} from calibration was found in {tested}. {_count_verdicts(results)}"


def _count_verdicts(results: BenchmarkResults) -> str:
    """Return the numbers of cells by verdict in one sentence."""
    cells = [tests.verdict for panel in results.panels for tests in panel.own.uniformity.by_cell.values()]
    numbers = [f"{cells.count(verdict):,} {verdict}" for verdict in (NOT_CALIBRATED, PASSED, UNDECIDED)]
    return f"Tested cells: {', '.join(numbers)}."


def state_failures(results: BenchmarkResults) -> str:
    """Return the numbers of trials, and of those whose chains have not converged, as sentences."""
    n_ok = sum(panel.own.count("ok") for panel in results.panels)
    n_pending = sum(panel.own.count("pending") for panel in results.panels)
    pending = f", {n_pending:,} pending" if n_pending else ""
    stated = f"{counted(n_ok, 'trial')} of {results.own} {verb(n_ok)} ok, {results.n_failed:,} failed{pending}."
    n_not_converged = sum(panel.compared.n_not_converged for panel in results.panels)
    if n_not_converged:
        stated += (
            f" In {n_not_converged:,} of them chains have not converged (R-hat above {LARGEST_RHAT:g}), so that a test "
            "of calibration may not detect what they miss."
        )
    return stated


def state_guarantee(results: BenchmarkResults, method: AddedMethod) -> str:
    """Return the evidence on the privacy guarantee in one sentence."""
    if any(results.own in panel.compared.without_privacy for panel in results.panels):
        return f"{results.own} states no guarantee, so that it has no rank."
    panels: dict[str, list[str]] = {}  # by the result of the audit
    for panel in results.panels:
        if panel.compared.audit:
            panels.setdefault(describe_audit(panel.compared.audit), []).append(panel.compared.panel.name)
    if list(panels) == ["unaudited"]:
        return (
            f"Its stated guarantee was not audited, since {results.own} has no exact distribution of its releases; "
            "dpstudies audit compares its draws with the guarantee."
        )
    if panels:
        stated = "; ".join(f"{result} ({', '.join(names)})" for result, names in panels.items())
        return f"Exact audits of the stated guarantee by panel, which larger n may exceed: {stated}."
    if isinstance(method, OwnMethod) and method.guarantee is None:
        return "The method receives values that are released already, so it needs no guarantee of its own."
    return "The guarantee is declared by the method, and not audited."


def require_own_page(page: str | os.PathLike[str], folder: str) -> None:
    """Raise BadInputError if a file that the page would replace is not the page of the same benchmark folder."""
    from studies.report.page import is_page_of

    if os.path.isfile(page) and not is_page_of(page, folder):
        raise BadInputError(f"{page} exists and is not the page of a benchmark in {folder}; choose another --store")
