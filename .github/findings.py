"""Research note ``studies/FINDINGS.md``, from stores: ``python .github/findings.py LAB [STORE ...]``.

LAB is a folder of ``dpstudies run all``; a STORE replaces the one of the same study. The template has the prose;
numbers, verdicts and evidence come from the stores, each with its scale. Figures are written to ``.github/figures``,
and that of the README to ``.github/accuracy-k3.png``.
"""

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jinja2

from pipeline.errors import BadInputError
from pipeline.runs.resolve import study_of
from pipeline.stores.store import ResultStore
from studies import MODULES, STUDIES, __version__
from studies.figures import Converter, specify
from studies.folders import is_folder
from studies.report.page import RenderedFigure, render_figures
from studies.report.results import StudyResults, list_errata, load_results, read_results
from studies.tables import markdown_table

ROOT = Path(__file__).resolve().parents[1]
_LONGEST = 260  # characters of evidence
_MOST = 5  # claims of a study that are listed without their names


@dataclass(frozen=True)
class Findings:
    """Results that the template of the note reads."""

    results: dict[str, StudyResults]
    figures: Path  # folder of the figures
    converter: Converter

    def has(self, study: str) -> bool:
        """Return True if there is a store of a study."""
        return study in self.results

    def scale(self, study: str) -> str:
        """Return the scale of a store: full, quick, or its number of evaluations."""
        if not self.has(study):
            return "no store"
        one = self.results[study]
        name = {"published": "full run", "quick": "quick run"}.get(one.scale, f"run of {one.state.n_ok:,} evaluations")
        return f"incomplete {name}" if one.scale and one.state.n_pending else name

    def claim(self, study: str, name: str) -> str:
        """Return a bullet with the statement of a claim, its verdict and its evidence."""
        claim = next(claim for claim in STUDIES[study].claims if claim.name == name)
        if not self.has(study):
            return f"* {claim.statement} *Not computed: no store of `{study}`.*"
        finding = next(finding for other, finding in self.results[study].claims if other.name == name)
        verdict = f"**{finding.verdict.capitalize()}**, {self.scale(study)}"
        return f"* {claim.statement}\n  {verdict}: {_shorten(finding.evidence)}"

    def claims(self, study: str) -> str:
        """Return bullets of the first decided claims of a study, and the number of the others."""
        claims = self.results[study].claims if self.has(study) else ()
        decided = [claim.name for claim, finding in claims if finding.verdict != "undecided"]
        bullets = [self.claim(study, name) for name in decided[:_MOST]]
        others = [f"* The page of `{study}` has {n} others." for n in [len(decided) - _MOST] if n > 0]
        return "\n".join(bullets + others)

    def number(self, study: str, panel: str, variable: str, **where: Any) -> str:
        """Return a stored number with three digits, or a dash."""
        try:
            value = float(self.results[study].summaries[panel][variable].sel(where))
        except KeyError:
            return "–"
        return "–" if value != value else f"{value:.3g}"

    def table(self, study: str, dimension: str, names: list[str], columns: list[tuple]) -> str:
        """Return a table of stored numbers: columns are tuples of heading, panel, variable and other coordinates."""
        heads = (dimension, *(heading for heading, *_ in columns))
        rows = [
            (
                f"`{name}`",
                *(self.number(study, panel, kind, **{dimension: name}, **at) for _, panel, kind, at in columns),
            )
            for name in names
        ]
        return markdown_table(heads, rows)

    def figure(self, study: str, name: str) -> str:
        """Write a figure of a study; return its image with its title."""
        figures = STUDIES[study].figures if study in STUDIES else ()
        declared = tuple(figure for figure in figures if figure.name == name)
        drawn: list[RenderedFigure] = []
        if self.has(study) and declared:
            one = self.results[study]
            drawn, _ = render_figures(replace(one.study, figures=declared), one.summaries, self.converter)
        if not drawn:
            return f"*Figure {name}: not computed, no store of `{study}`.*"
        self.figures.mkdir(parents=True, exist_ok=True)
        start = b'<svg style="background:white" '
        (self.figures / f"{study}-{name}.svg").write_bytes(drawn[0].svg.result().replace(b"<svg ", start, 1))
        title = f"{drawn[0].title}, {self.scale(study)}"
        return f"![{title}](../.github/figures/{study}-{name}.svg)\n\n*{title}.*"

    def headline(self) -> bytes | None:
        """Return the figure of the README as a PNG image; None without its store."""
        if not self.has("hellinger-accuracy"):
            return None
        one = self.results["hellinger-accuracy"]
        plots = next(figure for figure in one.study.figures if figure.name == "accuracy-k3").draw(one.summaries)
        return self.converter.submit("png", {**specify(plots), "background": "white"}).result()

    def errata(self) -> str:
        """Return a table of the statements of the papers that do not hold, with the correct ones and numbers."""
        rows = [
            (place, printed, correct, _shorten(text)) for place, printed, correct, text in list_errata(self.results)
        ]
        return markdown_table(("place", "as printed", "correct", "numbers"), rows)

    def refuted(self) -> str:
        """Return bullets of the conclusions of papers that are not reproduced and have no erratum."""
        found = [
            self.claim(study, claim.name).replace("* ", f"* {claim.source}: ", 1)
            for study, one in self.results.items()
            for claim, finding in one.claims
            if claim.kind == "conclusion" and finding.verdict == "not reproduced" and claim.erratum is None
        ]
        return "\n".join(found)

    def origins(self) -> Iterator[tuple[str, list[str]]]:
        """Yield each scale with its studies."""
        scales = {name: self.scale(name) for name in self.results}
        for scale in dict.fromkeys(scales.values()):
            yield scale, [f"`{name}`" for name, own in scales.items() if own == scale]

    def missing(self) -> list[str]:
        """Return the names of built-in studies without a store."""
        return [f"`{name}`" for name in MODULES.built_in if not self.has(name)]


def _shorten(text: str) -> str:
    """Return the first parts of a text, at least one, with an ellipsis for the others."""
    kept, *others = re.split(r"(?<=[.;]) ", text)
    for part in others:
        if len(kept) + len(part) > _LONGEST:
            return f"{kept} …"
        kept += f" {part}"
    return kept


def load(paths: list[str]) -> dict[str, StudyResults]:
    """Read folders and stores; later ones replace earlier ones of the same study."""
    results: dict[str, StudyResults] = {}
    for path in paths:
        if is_folder(path):
            results |= load_results(path)[0]
        else:
            store = ResultStore.open(path)
            study = study_of(store, None, False)[1]
            results[study.name] = read_results(store, study)
    return results


def write_findings(paths: list[str], output: Path, figures: Path) -> None:
    """Write the note and its figures."""
    results = load(paths)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    with Converter() as converter:
        found = Findings(results, figures, converter)
        text = environment.get_template("findings.md.jinja2").render(f=found, version=__version__)
        headline = found.headline()
    output.write_text(text, encoding="utf-8")
    if headline is not None:
        figures.with_name("accuracy-k3.png").write_bytes(headline)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python .github/findings.py LAB [STORE ...]")
    try:
        write_findings(sys.argv[1:], ROOT / "studies/FINDINGS.md", ROOT / ".github/figures")
    except (OSError, BadInputError) as error:
        sys.exit(f"findings.py: {error}")
    print(f"wrote {os.path.relpath(ROOT / 'studies/FINDINGS.md')}")
