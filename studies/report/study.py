"""Self-contained HTML page about one store: figures, claims with their verdicts, tables, provenance."""

import json
import os
from dataclasses import replace
from functools import partial

from pipeline import Claim, Finding, Study
from pipeline.precision.goals import Reached
from pipeline.store.result_store import ResultStore
from pipeline.store.sessions.costs import MethodCosts
from studies.figures.conversion import Converter
from studies.report.costs import draw_costs, read_costs, tabulate_costs
from studies.report.page import Chapter, lead_with, render_figures, render_page, write_page
from studies.report.provenance import cite, describe_store
from studies.report.results import StudyResults, count_undecided, list_comparisons, read_results
from studies.report.summaries import tabulate
from studies.styles import describe_audit, label_method, stored_audits, with_labels
from studies.tables import PageTable


def write_report(
    store: ResultStore,
    study: Study,
    output: str | os.PathLike[str],
    figures_folder: str | os.PathLike[str] | None = None,
) -> list[tuple[Claim, Finding]]:
    """Write the page of one store, and return the verdicts on it; see `write_results` for the parameters."""
    return write_results(store, study, output, figures_folder).claims


def write_results(
    store: ResultStore,
    study: Study,
    output: str | os.PathLike[str],
    figures_folder: str | os.PathLike[str] | None = None,
    remark: str = "",
) -> StudyResults:
    """Write the page of one store.

    Parameters
    ----------
    store : ResultStore
        The store, which may be incomplete; the page states its completeness.
    study : Study
        Study configured by the stored spec.
    output : path
        HTML file to write.
    figures_folder : path, optional
        Folder for copies of the figures as SVG and PNG files.
    remark : str
        Sentence on the first screen, next to the completeness of the store.

    Returns
    -------
    StudyResults
        Results shown on the page.
    """
    return write_page(output, store.url, partial(_page, store, study, figures_folder, remark))


def store_page(store: ResultStore, study: Study) -> str:
    """Return the page of one store for a server, as HTML without a policy; see `write_results` for the parameters."""
    with Converter() as converter:
        return _page(store, study, None, "", converter, "")[0]


def _page(
    store: ResultStore,
    study: Study,
    figures_folder: str | os.PathLike[str] | None,
    remark: str,
    converter: Converter,
    mark: str,
) -> tuple[str, StudyResults]:
    results = read_results(store, study)
    tables = _tabulate_precision(results)
    notes = {method.name: method.note for panel in study.panels for method in panel.methods}
    explained: dict[str, str] = {}  # by label
    has_audits = False
    for name, summary in results.summaries.items():
        by = study.panel(name).method_dim or ""
        is_labelled = by in summary.dims
        for method, losses in stored_audits(summary, by).items() if is_labelled else ():
            notes[method] = f"{notes.get(method, '')} Panel {name}: {describe_audit(losses)}.".strip()
            has_audits = True
        methods = summary[by].values.tolist() if is_labelled else ()
        explained |= {label_method(summary, by, method): notes.get(method, "") for method in methods}
        heads, rows, n_names = tabulate(with_labels(summary, by) if is_labelled else summary)
        tables.append((PageTable(name, summary.attrs["title"], tuple(heads), rows), n_names))
    costs = read_costs(results)
    tables += tabulate_costs(costs, MethodCosts.of(results.sessions).peaks)
    study = replace(study, figures=(*study.figures, *draw_costs(results, costs)))
    figures, judged = render_figures(study, results.summaries, converter, results.claims, figures_folder)
    lead, findings = lead_with(figures, judged)
    share = "" if store.run_part is None else f"The store has share {store.run_part} of a run, not all of its trials. "
    page = render_page(
        "study.html",
        converter,
        mark,
        title=study.title,
        study=study,
        state=results.state,
        remark=share + remark,
        chapter=Chapter(figures, judged),
        has_origins=any(look.origin for figure in figures for look in figure.plot.series.values()),
        lead=lead,
        glossary=[(label, note) for label in (lead.plot.series if lead else ()) if (note := explained.get(label))],
        findings=findings,
        claims=count_undecided({study.name: results}),
        notes=PageTable("Methods", "", ("name", "note"), list(notes.items()), (1,)),
        comparisons=list_comparisons({study.name: results}) if has_audits else [],
        tables=tables,
        provenance=describe_store(results),
        citation=cite([results]),
        spec=json.dumps(store.spec, indent=2),
        store_name=repr(os.path.basename(store.url)),
        first_panel=repr(study.panels[0].name),
    )
    return page, results


def _tabulate_precision(results: StudyResults) -> list[tuple[PageTable, int]]:
    """Return the table of the reached precision in a list, which is empty if no run had a precision as its target."""
    if not results.precision:
        return []
    spent = {
        panel: sum(seconds for _, seconds in methods.values())
        for panel, methods in MethodCosts.of(results.sessions).by_panel.items()
    }
    total, n_done = sum(spent.values()), results.state.n_ok + results.state.n_failed

    def forecast(needed: Reached) -> float:
        """Return the seconds of the further evaluations, given the share of the panel in methods or evaluations."""
        of_methods = spent.get(needed.panel, 0.0) / total if total else 0.0  # without the simulation of data
        share = max(of_methods, needed.n_asked / n_done)
        return results.seconds * share * needed.n_more / needed.n_asked

    meaning = (
        f"Monte Carlo error reached against {results.precision[0].target}, and the further evaluations and wall time "
        "after which every error is half of the bound"
    )
    late = "95 % at every stopping time"
    heads = ("widest", "error", "asked", "estimate", late, "values", "evaluations", "to halve", "time to halve")
    rows = [
        (
            needed.widest,
            f"{needed.precision.error:.3g}" if needed.is_known else "unknown",
            f"{needed.precision.bound:.3g}",
            f"{needed.precision.estimate:.4g}",
            f"± {needed.half_width:.2g}" if needed.is_known else "unknown",
            f"{needed.precision.n:,}",
            f"{needed.n_asked:,}",
            f"{needed.n_more:,}" if needed.is_known else "unknown",
            f"{forecast(needed):,.0f} s" if needed.is_known else "unknown",
        )
        for needed in results.precision
    ]
    return [(PageTable("precision", meaning, heads, rows), 1)]
