"""Self-contained HTML page about a folder of stores, and a Markdown table of its verdicts."""

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from typing import Any

from pipeline import Erratum
from pipeline.declare.claims import VERDICTS
from pipeline.errors import command
from pipeline.store.files.locations import normalise_location
from pipeline.store.sessions.records import now
from studies.figures import Converter, specify_small
from studies.folders import other_stores
from studies.report.page import (
    Chapter,
    Judged,
    RenderedFigure,
    image_uri,
    lead_with,
    render_figures,
    render_page,
    write_page,
    write_whole,
)
from studies.report.papers import OTHER, PAPERS, Paper
from studies.report.provenance import cite, describe_folder, version_of
from studies.report.results import (
    VERDICT_GROUPS,
    Results,
    StudyResults,
    count_decided,
    count_undecided,
    list_comparisons,
    list_errata,
    load_results,
)
from studies.report.summaries import State
from studies.tables import PageTable, duration, markdown_table

_UNDECIDED = "Undecided at this scale; the published scale has more trials, which may decide it:"
_WORD = re.compile(r"\w[\w-]*")
_ERRATA = ("location", "as printed", "correct", "numbers")


def write_collection(
    folder: str | os.PathLike[str],
    output: str | os.PathLike[str],
    markdown: str | os.PathLike[str] | None = None,
    absent: Callable[[str, str], object] = lambda name, reason: None,
) -> Counter[str]:
    """Write the page about the stores of a folder.

    Parameters
    ----------
    folder : path
        Folder with one store per study; see `studies.folders`. Missing and incomplete studies are listed on the page.
    output : path
        HTML file to write.
    markdown : path, optional
        File for the verdicts on the papers' own conclusions, as a Markdown table.
    absent : callable, optional
        Is called with the name of each study that is missing or damaged, and the reason.

    Returns
    -------
    Counter of str
        Number of claims per verdict.

    Raises
    ------
    BadInputError
        If there is no store of any study.
    """
    location = normalise_location(folder)
    chapters, results, missing = write_page(output, location, partial(_page, folder))
    if markdown is not None:
        write_whole(markdown, verdicts_as_markdown(chapters, results).encode())
    for name, reason in missing.items():
        absent(name, reason)
    return Counter(str(judgement.finding.verdict) for chapter in chapters for judgement in chapter.judged)


def folder_page(folder: str | os.PathLike[str]) -> str:
    """Return the page about the stores of a folder for a server, as HTML without a policy."""
    with Converter() as converter:
        return _page(folder, converter, "")[0]


def _page(
    folder: str | os.PathLike[str], converter: Converter, mark: str
) -> tuple[str, tuple[list[Chapter], dict[str, StudyResults], dict[str, str]]]:
    results, missing = load_results(folder)
    chapters, drawn = _chapters(results, converter)
    index = {name: lead_with(figures, judged)[0] for name, (figures, judged) in drawn.items()}
    leading = [judgement for chapter in chapters for judgement in chapter.judged if _is_shown_first(judgement)]
    images = _draw_small((judgement.figure for judgement in leading), converter)
    thumbnails = _draw_small(index.values(), converter, named=False)
    state = State(*map(sum, zip(*(result.state for result in results.values()), strict=True)))
    page = render_page(
        "collection.html",
        converter,
        mark,
        title="Differentially private Bayesian inference: conclusions of papers, checked",
        headline="Studies missing." if missing else state.headline,
        detail=f"{len(results)} stud{'y' if len(results) == 1 else 'ies'}. {state.detail} Made {now()[:10]}.",
        claims=count_undecided(results),
        has_origins=True,
        notes=_notes(folder, results, missing),
        chapters=chapters,
        leads=_lead(leading, images, results),
        index=_index(index, thumbnails, results),
        corrected=_corrected(chapters, results),
        counts=_count_verdicts(chapters),
        errata=PageTable("Errata of the papers", "", _ERRATA, list_errata(results), (0, 1, 2, 3)),
        audits=tabulate_audits(results),
        comparisons=list_comparisons(results),
        times=_times(results),
        provenance=describe_folder(folder, results),
        citation=cite(results.values()),
        origins=_origins(results),
        specs={name: json.dumps(result.store.spec) for name, result in results.items()},
    )
    return page, (chapters, results, missing)


def _notes(folder: str | os.PathLike[str], results: Results, missing: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return a heading and a sentence for each study that is missing or not complete, and each store of a user."""
    notes = {name: (f"{name} is missing.", reason) for name, reason in missing.items()}
    for name, result in results.items():
        state, part = result.state, result.store.run_part
        if state.n_pending or state.n_failed or part is not None:
            share = "" if part is None else f"Share {part} of a run. "
            notes[name] = f"{name}: {share}{state.headline}", state.detail
    for path in other_stores(folder):
        notes[path.name] = f"{path.name} is not on this page.", f"Its own page: {command('report', path)}"
    return notes


def _is_shown_first(judgement: Judged) -> bool:
    """Return True for a claim that leads, whatever its verdict, unless it is about an erratum: a table shows these."""
    return judgement.claim.leads and judgement.claim.erratum is None


def _draw_small(figures: Iterable[RenderedFigure | None], converter: Converter, named: bool = True) -> dict[str, str]:
    """Return small images of figures, with or without names of lines, as data URIs by the target of the figure."""
    plots = {figure.id: figure.plot for figure in figures if figure is not None}
    svgs = {
        target: converter.submit("svg", specify_small(plot if named else replace(plot, named=False)))
        for target, plot in plots.items()
    }
    return {target: image_uri(svg.result()) for target, svg in svgs.items()}


def _index(
    figures: Mapping[str, RenderedFigure | None], images: Mapping[str, str], results: Results
) -> list[dict[str, str]]:
    """Return name, title and count of decided claims of each study with a figure, and its title, target and image."""
    return [
        {
            "name": name,
            "title": results[name].study.title,
            "claims": count_decided(results[name].claims),
            "figure": figure.title,
            "target": figure.id,
            "image": images[figure.id],
        }
        for name, figure in figures.items()
        if figure is not None
    ]


def _lead(leading: Iterable[Judged], images: Mapping[str, str], results: Results) -> list[dict[str, Any]]:
    """Return each claim with a small image of its figure, or an empty one, and the methods that it compares.

    A claim that is undecided at a smaller scale has a note with the command of the published one.
    """
    leads = []
    for judgement in leading:
        result = results[judgement.study]
        is_small = not judgement.is_decided and result.scale != "published"
        decide = command("run", judgement.study, "--store", f"{judgement.study}.zarr")
        leads.append(
            {
                "judged": judgement,
                "image": "" if judgement.figure is None else images[judgement.figure.id],
                "note": f"{_UNDECIDED} {decide}" if is_small else "",
                "glossary": _explain_methods(judgement, result),
            }
        )
    return leads


def _explain_methods(judgement: Judged, result: StudyResults) -> list[tuple[str, str]]:
    """Return the names and notes of the methods that a claim needs, or that its statement or evidence names."""
    needed = {str(value) for needs in judgement.claim.needs.values() for values in needs.values() for value in values}
    words = set(_WORD.findall(f"{judgement.claim.statement} {judgement.finding.evidence}"))
    notes = {method.name: method.note for panel in result.study.panels for method in panel.methods}
    return [(name, note) for name, note in notes.items() if name in needed | words and note]


def _refutes(judgement: Judged) -> bool:
    """Return True if a finding shows that a statement of a paper does not hold."""
    if judgement.claim.kind == "conclusion" or judgement.finding.verdict == "corrected":
        return judgement.finding.verdict not in (*VERDICT_GROUPS["true"], "undecided")
    return judgement.finding.verdict in VERDICT_GROUPS["true"] and judgement.claim.erratum is not None


def _corrected(chapters: list[Chapter], results: Results) -> list[tuple[Paper, str, str, str, str]]:
    """Return one statement per paper that does not hold: the paper, a target, as printed, correct, and the numbers.

    It is a refuted claim, if possible one that leads, or else an erratum that a computation with the page shows. The
    target is on the page, and the numbers of a claim have its verdict.
    """
    rows = []
    for chapter in chapters:
        refuted = [judgement for judgement in chapter.judged if _refutes(judgement)]
        corrections = [
            (
                judgement.target,
                judgement.claim.erratum or Erratum(judgement.claim.statement, ""),
                f"{judgement.finding.verdict.capitalize()}: {judgement.finding.evidence}",
            )
            for judgement in sorted(
                refuted, key=lambda judgement: (not judgement.claim.leads, judgement.claim.erratum is None)
            )
        ]
        shown = (  # numbers are computed for the first one only
            ("errata", erratum, erratum.show(result.summaries))
            for result in results.values()
            for erratum in result.study.errata
            if erratum.show is not None and erratum.paper == chapter.paper.key
        )
        for target, erratum, numbers in islice(chain(corrections, shown), 1):
            rows.append((chapter.paper, target, erratum.printed, erratum.correct, numbers))
    return rows


def _chapters(
    results: Results, converter: Converter
) -> tuple[list[Chapter], dict[str, tuple[list[RenderedFigure], list[Judged]]]]:
    """Return one chapter per paper with results, and the figures and claims of each study.

    A claim without a paper belongs to the first paper of its study.
    """
    drawn = {
        name: render_figures(result.study, result.summaries, converter, result.claims, prefix=f"{name}-")
        for name, result in results.items()
    }
    chapters = {paper.key: Chapter(paper=paper) for paper in (*PAPERS, OTHER)}
    for name, result in results.items():
        paper_of_study = next((paper for paper in result.study.papers if paper in chapters), OTHER.key)
        chapters[paper_of_study].studies.append(name)
        figures, judged = drawn[name]
        chapters[paper_of_study].figures.extend(figures)
        for judgement in judged:
            chapters.get(judgement.claim.paper, chapters[paper_of_study]).judged.append(judgement)
    return [chapter for chapter in chapters.values() if chapter.judged or chapter.figures], drawn


def _count_verdicts(chapters: list[Chapter]) -> PageTable:
    rows = []
    for chapter in chapters:
        for kind in VERDICTS:
            verdicts = [judgement.finding.verdict for judgement in chapter.judged if judgement.claim.kind == kind]
            if verdicts:
                numbers = (str(sum(verdict in group for verdict in verdicts)) for group in VERDICT_GROUPS.values())
                rows.append((f"{chapter.paper.key}, {kind}s", *numbers))
    return PageTable("Number of claims by verdict", "", ("claims", *VERDICT_GROUPS), rows)


def verdicts_as_markdown(chapters: list[Chapter], results: Results) -> str:
    """Return the verdicts on the papers' own conclusions as a Markdown table, with their origin.

    Date and version are those of the latest session, and the commands those of all sessions.
    """
    sessions = [session for result in results.values() for session in result.sessions]
    if sessions:
        last = max(sessions, key=lambda session: session["started"])
        day = last.get("finished", last["started"])[:10]
        commands = dict.fromkeys(f"`{session.get('command', 'unknown')}`" for session in sessions)
        origin = f"dpstudies {version_of(last) or 'unknown'}, {day}: {', '.join(commands)}"
    else:
        origin = "The records of the sessions that computed these results were lost."
    rows = (
        (
            chapter.paper.key,
            f"{judgement.claim.statement} ({judgement.claim.place}; {judgement.study})",
            judgement.finding.verdict,
        )
        for chapter in chapters
        for judgement in chapter.judged
        if judgement.claim.kind == "conclusion"
    )
    return f"{origin}\n\n{markdown_table(('paper', 'conclusion', 'verdict'), rows)}\n"


def tabulate_audits(results: Results) -> PageTable:
    """Return one row per mechanism and model: stated guarantee, largest ratio of loss to guarantee, and slack."""
    audited = (loss for result in results.values() for audit in result.study.audits for loss in audit(result.summaries))
    return PageTable(
        "Audited losses of mechanisms, against the stated guarantees",
        "The share is the largest ratio of a loss or divergence to the stated bound over all audits, exact over all "
        "neighbours and outputs if the outputs are finite, otherwise by quadrature; slack is one minus the share. "
        "Mechanisms without a guarantee, or with a wrong published one, are compared with the given epsilon.",
        ("mechanism", "states", "found", "audited loss", "share spent", "slack", "audits", "at"),
        [loss.cells for loss in audited],
        (7,),
    )


def _times(results: Results) -> PageTable:
    rows = []
    for name, result in results.items():
        broken = sum("finished" not in session for session in result.sessions)
        profiles = ", ".join(dict.fromkeys(str(session.get("profile", "unknown")) for session in result.sessions))
        cores = ", ".join(dict.fromkeys(str(session.get("cpu_count", "unknown")) for session in result.sessions))
        time = duration(result.seconds) + (f"; unfinished sessions: {broken}" if broken else "")
        rows.append((name, time, f"{result.state.n_ok:,}", profiles, cores))
    total = ("all", duration(sum(result.seconds for result in results.values())), "", "", "")
    return PageTable(
        "Wall time of the studies",
        "Wall time of all sessions of a store, from its template to its last block, as recorded in the store.",
        ("study", "time", "evaluations", "profile", "cores"),
        [*rows, total],
    )


def _origins(results: Results) -> PageTable:
    rows = []
    for name, result in results.items():
        attributes = result.store.attributes
        created, code = (str(attributes.get(key, "unknown")) for key in ("created", "study_reference"))
        rows.append((name, str(attributes["seed"]), created, attributes["spec_sha256"][:16], code))
    return PageTable("Origin of each store", "", ("study", "seed", "created", "spec (SHA-256)", "code"), rows)
