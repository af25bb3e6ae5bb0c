"""Results of one store, and of all stores in a folder: summaries, verdicts, completeness and wall time."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any

from pipeline import BadInputError, Claim, Finding, Study
from pipeline.declare.claims import VERDICTS, Verdict
from pipeline.declare.source import find_study
from pipeline.declare.study import includes
from pipeline.errors import IncompleteStoreError, UnreadableStoreError, command, counted, verb
from pipeline.precision.goals import Reached, reached_precision
from pipeline.results.verdicts import judge_store
from pipeline.runs.resolve import study_of
from pipeline.store.result_store import ResultStore
from pipeline.store.scan.states import requested_trials
from studies import MODULES, STUDIES
from studies.claims import Summaries
from studies.folders import SCALES, configure, store_path
from studies.report.summaries import State, load_summaries, state_of
from studies.styles import describe_audit, stored_audits
from studies.tables import PageTable


@dataclass(frozen=True)
class StudyResults:
    """A study with the results of its store."""

    study: Study  # configured by the stored spec
    store: ResultStore
    summaries: Summaries  # by panel; see `pipeline.summarise`
    claims: list[tuple[Claim, Finding]]
    state: State  # numbers of evaluations that succeeded, failed, and are pending
    precision: list[Reached]  # of each panel in the target of the last run until a precision
    records: list[dict[str, Any]]  # of all sessions of the store, in order

    @cached_property
    def sessions(self) -> list[dict[str, Any]]:
        """Intact session records of the store, in order; empty if all but those of repairs were lost."""
        undamaged = [record for record in self.records if "damaged" not in record]
        return undamaged if any("repaired" not in record for record in undamaged) else []

    @cached_property
    def scale(self) -> str:
        """Scale of the store: "published", also with more trials or values; "quick"; or an empty string for others."""
        declared, stored = STUDIES.get(self.study.name), self.study.spec()["panels"]
        if declared is None:
            return "published"
        published, quick = (declared.configure(**configure(declared, scale), check=False) for scale in SCALES)
        if includes(stored, published.spec()["panels"]) and not any(
            (requested_trials(self.store, panel)[panel.applicable] < published.panel(panel.name).n_trials).any()
            for panel in self.study.panels
            if panel.name in self.store.requested and panel.name in published.spec()["panels"]
        ):
            return "published"
        return "quick" if stored == quick.spec()["panels"] else ""

    @property
    def seconds(self) -> float:
        """Wall time of the sessions that ended, also of those that stopped before all was computed."""
        return sum(
            (datetime.fromisoformat(end) - datetime.fromisoformat(session["started"])).total_seconds()
            for session in self.sessions
            if (end := session.get("finished", session.get("ended")))
        )


_TRUE, _FALSE = zip(*VERDICTS.values(), strict=True)
VERDICT_GROUPS: dict[str, tuple[Verdict, ...]] = {
    "true": _TRUE,
    "corrected": ("corrected",),
    "false": _FALSE,
    "undecided": ("undecided",),
}
"""Heading -> verdicts counted under it."""

Results = Mapping[str, StudyResults]
"""Results by name of the study."""


def read_results(store: ResultStore, study: Study) -> StudyResults:
    """Read a store, which may be incomplete, and judge the claims of its study."""
    summaries = load_summaries(store, study=study)
    claims = [
        (claim, with_audits(study, claim, finding, summaries))
        for claim, finding in judge_store(study, store, summaries)
    ]
    reached = reached_precision(store, study)
    return StudyResults(study, store, summaries, claims, state_of(store), reached, store.sessions)


def read_registered(store: ResultStore, name: str) -> StudyResults:
    """Read the store of a registered study; raise BadInputError if it contains another study or spec."""
    _, study = study_of(store, find_study(name, MODULES), only_reads=True)  # no trial is computed
    return read_results(store, study)


def with_audits(study: Study, claim: Claim, finding: Finding, summaries: Summaries) -> Finding:
    """Return a finding whose evidence states the audits of the added mechanisms that the claim needs."""
    audit_texts = {
        name: describe_audit(audit)
        for panel, needed in claim.needs.items()
        if panel in summaries
        for by in [study.panel(panel).method_dim or ""]
        if by in summaries[panel].dims
        for name, audit in stored_audits(summaries[panel], by).items()
        if name in needed.get(by, ())
    }
    stated = "".join(f" Audit of {name}: {text}." for name, text in audit_texts.items())
    return replace(finding, evidence=f"{finding.evidence}{stated}")


def load_results(folder: str | os.PathLike[str]) -> tuple[dict[str, StudyResults], dict[str, str]]:
    """Read the stores of a folder.

    Return the results of the studies with a store in the folder, in the order of `studies.STUDIES`, and the reasons why
    other studies are missing.
    """
    results, missing = {}, {}
    for name in STUDIES:
        try:
            results[name] = read_registered(ResultStore.open(store_path(folder, name)), name)
        except (BadInputError, IncompleteStoreError, UnreadableStoreError) as error:
            missing[name] = str(error)
    if not results:
        raise BadInputError(f"{folder} contains no store of a study; run: {command('run', 'all', '--store', folder)}")
    return results, missing


def count_undecided(results: Results) -> str:
    """Return the numbers of claims with and without a verdict as a sentence, and the scale if it is not published."""
    claims = [judged for result in results.values() for judged in result.claims]
    parts = [result.scale for result in results.values() if result.scale != "published"]
    scale = "a run with --scale quick has" if set(parts) == {"quick"} else "these stores have"
    text = count_decided(claims)
    if parts and any(finding.verdict == "undecided" for _, finding in claims):
        text += f"; the others need more trials, panels or values than {scale}"
    return f"{text}." if claims else ""


def count_decided(claims: Sequence[tuple[Claim, Finding]]) -> str:
    """Return the numbers of claims with a verdict, of all, and of true, corrected and false ones by kind, in words."""
    decided = [(claim.kind, finding.verdict) for claim, finding in claims if finding.verdict != "undecided"]
    by_kind = {}
    for kind in VERDICTS:
        verdicts = [verdict for other, verdict in decided if other == kind]
        groups = {name: sum(verdict in group for verdict in verdicts) for name, group in VERDICT_GROUPS.items()}
        if verdicts:
            by_kind[f"{kind}s"] = ", ".join(f"{n} {name}" for name, n in groups.items() if n)
    text = f"{len(decided)} of {counted(len(claims), 'claim')} {verb(len(decided), 'has', 'have')} a verdict"
    if len(by_kind) > 1:
        return f"{text}: {'; '.join(f'{kind}: {numbers}' for kind, numbers in by_kind.items())}"
    return ": ".join([text, *by_kind.values()])


def list_comparisons(results: Results) -> list[PageTable]:
    """Return the comparison tables of all studies, without empty ones."""
    tables = [compare(result.summaries) for result in results.values() for compare in result.study.comparisons]
    return [table for table in tables if table.rows]


def list_errata(results: Results) -> list[tuple[str, str, str, str]]:
    """Return the errata of all studies in order of the papers: location, printed and correct statement, and numbers.

    Conclusions with the verdict "corrected" that declare no erratum are appended with their statement.
    """
    rows = [row for name, study in STUDIES.items() for row in _errata(name, study, results)]
    return sorted(rows, key=lambda row: row[0].partition(", ")[0])


def _errata(name: str, study: Study, results: Results) -> Iterator[tuple[str, str, str, str]]:
    findings = {claim.name: finding for claim, finding in results[name].claims} if name in results else {}
    for claim in study.claims:
        finding = findings.get(claim.name)
        if (erratum := claim.erratum) is not None:
            where = f"{erratum.paper or claim.paper}, {erratum.place or claim.place}"
            evidence = f"The store of {name} is missing." if finding is None else finding.evidence
            yield where, erratum.printed, erratum.correct, evidence
        elif finding is not None and finding.verdict == "corrected" and claim.kind == "conclusion":
            yield claim.source, claim.statement, "See the numbers.", finding.evidence
    for erratum in study.errata:
        if erratum.show is not None:
            evidence = erratum.show(results[name].summaries if name in results else {})
            yield f"{erratum.paper}, {erratum.place}", erratum.printed, erratum.correct, evidence
