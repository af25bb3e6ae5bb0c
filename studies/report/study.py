"""Self-contained HTML page about one store: figures, claims with their verdicts, tables, provenance."""

import json
import os

from pipeline import Claim, Finding, Study
from pipeline.stores.store import ResultStore
from studies.figures.conversion import Converter
from studies.report.page import lead_with, mark_of, render_figures, render_page, require_writable, write_whole
from studies.report.precision import tabulate_precision
from studies.report.provenance import cite, describe_store
from studies.report.results import count_undecided, list_comparisons, read_results
from studies.report.summaries import tabulate
from studies.styles import describe_audit, stored_audits, with_labels


def write_report(
    store: ResultStore,
    study: Study,
    output: str | os.PathLike[str],
    figures_folder: str | os.PathLike[str] | None = None,
) -> list[tuple[Claim, Finding]]:
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

    Returns
    -------
    list of (Claim, Finding)
        Verdicts shown on the page.
    """
    require_writable(output)
    with Converter() as converter:
        page, claims = _page(store, study, converter, mark_of(output, store.url), figures_folder)
    write_whole(output, page.encode())
    return claims


def store_page(store: ResultStore, study: Study) -> str:
    """Return the page of one store for a server, as HTML without a policy; see `write_report` for the parameters."""
    with Converter() as converter:
        return _page(store, study, converter, "", None)[0]


def _page(
    store: ResultStore, study: Study, converter: Converter, mark: str, figures_folder: str | os.PathLike[str] | None
) -> tuple[str, list[tuple[Claim, Finding]]]:
    results = read_results(store, study)
    tables = tabulate_precision(results)
    notes = {method.name: method.note for panel in study.panels for method in panel.methods}
    has_audits = False
    for name, summary in results.summaries.items():
        by = study.panel(name).method_dim or ""
        is_labelled = by in summary.dims
        for method, found in stored_audits(summary, by).items() if is_labelled else ():
            notes[method] = f"{notes.get(method, '')} Panel {name}: {describe_audit(found)}.".strip()
            has_audits = True
        heads, rows, n_names = tabulate(with_labels(summary, by) if is_labelled else summary)
        tables.append(
            {"name": name, "meaning": summary.attrs["title"], "heads": heads, "rows": rows, "n_names": n_names}
        )
    figures, others = render_figures(study, results.summaries, converter, results.claims, figures_folder)
    lead, findings = lead_with(figures, results.claims)
    page = render_page(
        "study.html",
        converter,
        mark,
        title=study.title,
        study=study,
        state=results.state,
        figures=figures,
        has_origins=any(look.origin for figure in figures for look in figure.plot.series.values()),
        explained=bool(results.claims) or len(figures) > 1,
        lead=lead,
        findings=[(f"claim-{claim.name}", claim, finding) for claim, finding in findings],
        claims=count_undecided({study.name: results}),
        others=[one for one in others if one[1].verdict != "undecided"],
        undecided=[one for one in results.claims if one[1].verdict == "undecided"],
        notes=notes,
        comparisons=list_comparisons({study.name: results}) if has_audits else [],
        tables=tables,
        provenance=describe_store(results),
        citation=cite([results]),
        spec=json.dumps(store.spec, indent=2),
        store_name=repr(os.path.basename(store.url)),
        first_panel=repr(study.panels[0].name),
    )
    return page, results.claims
