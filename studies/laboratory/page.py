"""Self-contained HTML page about a folder of stores, and its verdicts as a Markdown table."""

import json
import os
from collections import Counter
from dataclasses import dataclass

from pipeline import Claim, Finding
from pipeline.stores.provenance import describe, now
from studies.laboratory.audits import audit_table
from studies.laboratory.comparisons import comparison_tables
from studies.laboratory.errata import list_errata
from studies.laboratory.papers import OTHER, PAPERS, Paper, is_of_paper, paper_of
from studies.laboratory.results import Results, load_results
from studies.laboratory.tables import Table, duration
from studies.report import RenderedFigure, render_figures, render_page, write_whole

_VERDICTS = ("reproduced", "corrected", "not reproduced", "undecided")


@dataclass(frozen=True)
class Judged:
    """A claim of a study with its verdict."""

    study: str
    claim: Claim
    finding: Finding


@dataclass(frozen=True)
class Chapter:
    """Results on one paper: its own conclusions, further checks and additions, and figures."""

    paper: Paper
    conclusions: list[Judged]
    additions: list[Judged]
    figures: list[tuple[str, RenderedFigure]]


def write_laboratory(
    folder: str | os.PathLike[str],
    output: str | os.PathLike[str],
    markdown: str | os.PathLike[str] | None = None,
) -> Counter[str]:
    """Write the page about the stores of a folder.

    Parameters
    ----------
    folder : path
        Folder with one store per study; see `scales`. The page names missing and incomplete studies.
    output : path
        HTML file to write.
    markdown : path, optional
        File for the verdicts on the papers' own conclusions, as a Markdown table.

    Returns
    -------
    Counter of str
        Number of claims per verdict.

    Raises
    ------
    BadInputError
        If there is no store of any study.
    """
    results, missing = load_results(folder)
    judged = [Judged(name, *pair) for name, one in results.items() for pair in one.claims]
    counts = Counter(str(one.finding.verdict) for one in judged)
    figures = [(name, figure) for name, one in results.items() for figure in render_figures(one.study, one.summaries)]
    chapters = [chapter for chapter in _chapters(judged, figures) if _is_filled(chapter)]
    n_pending, n_failed = (
        sum(getattr(one.state, f"n_{kind}") for one in results.values()) for kind in ("pending", "failed")
    )
    whole = not (missing or n_pending)
    render_page(
        "laboratory.html",
        output,
        title="Differentially private Bayesian inference: what five papers conclude, checked",
        headline="Complete." if whole and not n_failed else "Complete, with failed trials." if whole else "Incomplete.",
        detail=f"{len(results)} studies, {sum(one.state.n_ok for one in results.values()):,} evaluations ok, "
        f"{n_failed:,} failed, {n_pending:,} pending. {len(judged)} claims: "
        + ", ".join(f"{counts[verdict]} {verdict}" for verdict in _VERDICTS)
        + f". Made {now()}.",
        missing=missing,
        results=results,
        chapters=chapters,
        counts=_count_verdicts(chapters),
        errata=list_errata(results),
        audits=audit_table(results),
        comparisons=comparison_tables(results),
        times=_times(results),
        provenance=_provenance(folder, results),
        origins=_origins(results),
        specs={name: json.dumps(one.store.spec) for name, one in results.items()},
    )
    if markdown is not None:
        write_whole(markdown, verdicts_as_markdown(chapters, results).encode())
    return counts


def _chapters(judged: list[Judged], figures: list[tuple[str, RenderedFigure]]) -> list[Chapter]:
    found = {paper.key: Chapter(paper, [], [], []) for paper in (*PAPERS, OTHER)}
    for one in judged:
        chapter = found[paper_of(one.study, one.claim.source).key]
        (chapter.conclusions if is_of_paper(one.claim.source) else chapter.additions).append(one)
    for name, figure in figures:
        found[paper_of(name, figure.title).key].figures.append((name, figure))
    return list(found.values())


def _is_filled(chapter: Chapter) -> bool:
    return bool(chapter.conclusions or chapter.additions or chapter.figures)


def _count_verdicts(chapters: list[Chapter]) -> Table:
    rows = []
    for chapter in chapters:
        for what, several in (("its conclusions", chapter.conclusions), ("checks, additions", chapter.additions)):
            counts = Counter(str(one.finding.verdict) for one in several)
            if several:
                rows.append((f"{chapter.paper.key}, {what}", *(str(counts[verdict]) for verdict in _VERDICTS)))
    return Table("Number of claims by verdict", "", ("claims", *_VERDICTS), rows)


def verdicts_as_markdown(chapters: list[Chapter], results: Results) -> str:
    """Return the verdicts on the papers' own conclusions as a Markdown table, with their origin.

    Parameters
    ----------
    chapters : list of Chapter
        One per paper.
    results : mapping
        Results whose latest session gives date, version and command.
    """
    sessions = [session for one in results.values() for session in one.sessions]
    if sessions:
        last = max(sessions, key=lambda session: session["started"])
        day = last.get("finished", last["started"])[:10]
        origin = f"dpstudies {last['versions']['dpstudies']}, {day}: `{last['command']}`"
    else:
        origin = "The records of the sessions that computed these results were lost."
    lines = [
        origin,
        "",
        "| paper | conclusion | verdict |",
        "|---|---|---|",
    ]
    for chapter in chapters:
        for one in chapter.conclusions:
            where = one.claim.source.removeprefix(f"{chapter.paper.key}, ")
            statement = f"{one.claim.statement} ({where}; {one.study})".replace("|", "\\|")
            lines.append(f"| {chapter.paper.key} | {statement} | {one.finding.verdict} |")
    return "\n".join(lines) + "\n"


def _times(results: Results) -> Table:
    rows = []
    for name, one in results.items():
        broken = sum("finished" not in session for session in one.sessions)
        profiles = ", ".join(dict.fromkeys(session["profile"] for session in one.sessions))
        cores = ", ".join(dict.fromkeys(str(session["cpu_count"]) for session in one.sessions))
        time = duration(one.seconds) + (f"; unfinished sessions: {broken}" if broken else "")
        rows.append((name, time, f"{one.state.n_ok:,}", profiles, cores))
    total = ("all", duration(sum(one.seconds for one in results.values())), "", "", "")
    return Table(
        "Wall time of the studies",
        "Wall time of all sessions of a store, from its template to its last block, as recorded in the store.",
        ("study", "time", "evaluations", "profile", "cores"),
        [*rows, total],
    )


def _provenance(folder: str | os.PathLike[str], results: Results) -> list[tuple[str, str]]:
    """Return the provenance of the stores, with all distinct values."""
    sessions = [session for one in results.values() for session in one.sessions]

    def distinct(values: list[str]) -> str:
        return "; ".join(dict.fromkeys(values))

    if not sessions:
        return [("Folder", os.path.abspath(folder)), ("Page written by", _revision(describe(__file__)))]
    return [
        ("Folder", os.path.abspath(folder)),
        ("Dates", f"{min(one['started'] for one in sessions)} to {max(one['started'] for one in sessions)}"),
        ("Command", distinct([one["command"] for one in sessions])),
        ("Versions", distinct([", ".join(f"{k} {v}" for k, v in one["versions"].items()) for one in sessions])),
        ("Machine", distinct([f"{one['platform']}, {one['cpu_count']} cores, host {one['host']}" for one in sessions])),
        ("Linear algebra", distinct([", ".join(one["blas"]) for one in sessions])),
        ("Source revision", distinct([_revision(one) for one in sessions])),
        ("Page written by", _revision(describe(__file__))),
    ]


def _revision(session: dict[str, object]) -> str:
    commit = str(session.get("git_commit", "not under version control"))
    return commit + (" with changes" if session.get("git_dirty") else "")


def _origins(results: Results) -> Table:
    return Table(
        "Origin of each store",
        "",
        ("study", "seed", "created", "spec (SHA-256)", "code"),
        [
            (
                name,
                str(attributes["seed"]),
                attributes["created"],
                attributes["spec_sha256"][:16],
                attributes["study_reference"],
            )
            for name, one in results.items()
            for attributes in [one.store.attributes]
        ],
    )
