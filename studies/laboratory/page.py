"""Self-contained HTML page about a folder of stores, and its verdicts as a Markdown table."""

import json
import os
from collections import Counter
from dataclasses import dataclass, field

from pipeline import Claim, Finding
from pipeline.declare.claims import VERDICTS, Kind
from pipeline.stores.provenance import describe, now
from studies.laboratory.audits import audit_table
from studies.laboratory.comparisons import comparison_tables
from studies.laboratory.errata import list_errata
from studies.laboratory.papers import OTHER, PAPERS, Paper
from studies.laboratory.results import Results, load_results
from studies.laboratory.tables import Table, duration
from studies.report import RenderedFigure, render_figures, render_page, write_whole

_VERDICTS = {
    "reproduced, holds or passed": ("reproduced", "holds", "passed"),
    "corrected": ("corrected",),
    "not reproduced, does not hold or failed": ("not reproduced", "does not hold", "failed"),
    "undecided": ("undecided",),
}
"""Heading -> verdicts counted under it."""


@dataclass(frozen=True)
class Judged:
    """A claim of a study with its verdict."""

    study: str
    claim: Claim
    finding: Finding


@dataclass(frozen=True)
class Chapter:
    """Results on one paper: its studies, claims with verdicts, and figures."""

    paper: Paper
    studies: list[str] = field(default_factory=list)
    judged: list[Judged] = field(default_factory=list)
    figures: list[tuple[str, RenderedFigure]] = field(default_factory=list)

    def of_kind(self, *kinds: Kind) -> list[Judged]:
        """Return the claims of the given kinds."""
        return [one for one in self.judged if one.claim.kind in kinds]


def write_laboratory(
    folder: str | os.PathLike[str],
    output: str | os.PathLike[str],
    markdown: str | os.PathLike[str] | None = None,
) -> Counter[str]:
    """Write the page about the stores of a folder.

    Parameters
    ----------
    folder : path
        Folder with one store per study; see `scales`. The page lists missing and incomplete studies.
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
    chapters = _chapters(results)
    counts = Counter(str(one.finding.verdict) for chapter in chapters for one in chapter.judged)
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
        f"{n_failed:,} failed, {n_pending:,} pending. {counts.total()} claims: "
        + ", ".join(f"{counts[verdict]} {verdict}" for group in _VERDICTS.values() for verdict in group)
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


def _chapters(results: Results) -> list[Chapter]:
    """Return one chapter per paper with results; by default, a claim belongs to the first paper of its study."""
    chapters = {paper.key: Chapter(paper) for paper in (*PAPERS, OTHER)}
    for name, one in results.items():
        own = next((paper for paper in one.study.papers if paper in chapters), OTHER.key)
        chapters[own].studies.append(name)
        chapters[own].figures.extend((name, figure) for figure in render_figures(one.study, one.summaries))
        for claim, finding in one.claims:
            chapters.get(claim.paper, chapters[own]).judged.append(Judged(name, claim, finding))
    return [chapter for chapter in chapters.values() if chapter.judged or chapter.figures]


def _count_verdicts(chapters: list[Chapter]) -> Table:
    rows = []
    for chapter in chapters:
        for kind in VERDICTS:
            found = [one.finding.verdict for one in chapter.judged if one.claim.kind == kind]
            if found:
                numbers = (str(sum(verdict in group for verdict in found)) for group in _VERDICTS.values())
                rows.append((f"{chapter.paper.key}, {kind}s", *numbers))
    return Table("Number of claims by verdict", "", ("claims", *_VERDICTS), rows)


def verdicts_as_markdown(chapters: list[Chapter], results: Results) -> str:
    """Return the verdicts on the papers' own conclusions as a Markdown table, with their origin.

    Parameters
    ----------
    chapters : list of Chapter
        One per paper.
    results : mapping
        Results; the latest session provides date, version and command.
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
        for one in chapter.of_kind("conclusion"):
            statement = f"{one.claim.statement} ({one.claim.place}; {one.study})".replace("|", "\\|")
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
