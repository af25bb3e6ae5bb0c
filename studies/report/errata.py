"""Errors printed in the papers, with supporting numbers from the stores or from computations in milliseconds."""

from collections.abc import Iterator

from pipeline import Study
from studies import STUDIES
from studies.report.results import Results


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
