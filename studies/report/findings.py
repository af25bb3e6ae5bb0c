"""Research note ``studies/FINDINGS.md``, from stores.

The template has the prose; numbers, verdicts and evidence come from the stores, each with its scale.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jinja2

from pipeline.errors import BadInputError
from pipeline.store.result_store import open_complete
from studies import MODULES, STUDIES, __version__
from studies.figures import Converter, specify
from studies.folders import is_folder
from studies.report.page import TEMPLATES, RenderedFigure, render_figures, require_writable, write_whole
from studies.report.results import StudyResults, list_errata, load_results, read_registered
from studies.tables import markdown_table

NOTE, FIGURES = "studies/FINDINGS.md", ".github/figures"
"""Paths of the note and of its figures in a checkout; the figure of the README is next to the latter."""

_MAX_EVIDENCE = 260  # characters
_MAX_CLAIMS = 5  # of a study that are listed without their names

Column = tuple[str, str, str, dict[str, Any]]
"""Heading, panel, variable and coordinates of a column of stored numbers."""


@dataclass(frozen=True)
class Findings:
    """Results that the template of the note reads."""

    results: dict[str, StudyResults]
    converter: Converter
    images: dict[str, bytes] = field(default_factory=dict)  # figures of the note, as SVG, by file name

    def has(self, study: str) -> bool:
        """Return True if there is a store of a study."""
        return study in self.results

    def scale(self, study: str) -> str:
        """Return the scale of a store: full, quick, or its number of evaluations."""
        if not self.has(study):
            return "no store"
        results = self.results[study]
        names = {"published": "full run", "quick": "quick run"}
        name = names.get(results.scale, f"run of {results.state.n_ok:,} evaluations")
        return f"incomplete {name}" if results.scale and results.state.n_pending else name

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
        bullets = [self.claim(study, name) for name in decided[:_MAX_CLAIMS]]
        if len(decided) > _MAX_CLAIMS:
            bullets.append(f"* The page of `{study}` has {len(decided) - _MAX_CLAIMS} others.")
        return "\n".join(bullets)

    def number(self, study: str, panel: str, variable: str, **where: Any) -> str:
        """Return a stored number with three digits, or a dash."""
        try:
            number = float(self.results[study].summaries[panel][variable].sel(where))
        except KeyError:
            return "–"
        return "–" if math.isnan(number) else f"{number:.3g}"

    def table(self, study: str, dimension: str, names: Sequence[str], columns: Sequence[Column]) -> str:
        """Return a table of stored numbers with one row per name, a coordinate of a dimension."""
        headings = (dimension, *(heading for heading, *_ in columns))
        rows = [
            (
                f"`{name}`",
                *(
                    self.number(study, panel, variable, **{dimension: name}, **where)
                    for _, panel, variable, where in columns
                ),
            )
            for name in names
        ]
        return markdown_table(headings, rows)

    def figure(self, study: str, name: str) -> str:
        """Draw a figure of a study for `images`; return its link with its title."""
        figures = STUDIES[study].figures if study in STUDIES else ()
        declared = tuple(figure for figure in figures if figure.name == name)
        drawn: list[RenderedFigure] = []
        if self.has(study) and declared:
            results = self.results[study]
            drawn, _ = render_figures(replace(results.study, figures=declared), results.summaries, self.converter)
        if not drawn:
            return f"*Figure {name}: not computed, no store of `{study}`.*"
        image = drawn[0].svg.result().replace(b"<svg ", b'<svg style="background:white" ', 1)
        self.images[f"{study}-{name}.svg"] = image
        title = f"{drawn[0].title}, {self.scale(study)}"
        return f"![{title}](../{FIGURES}/{study}-{name}.svg)\n\n*{title}.*"

    def headline(self) -> bytes | None:
        """Return the figure of the README as a PNG image; None without its store."""
        if not self.has("hellinger-accuracy"):
            return None
        results = self.results["hellinger-accuracy"]
        accuracy = next(figure for figure in results.study.figures if figure.name == "accuracy-k3")
        spec = specify(accuracy.draw(results.summaries))
        return self.converter.submit("png", {**spec, "background": "white"}).result()

    def errata(self) -> str:
        """Return a table of the statements of the papers that do not hold, with the correct ones and numbers."""
        rows = [
            (place, printed, correct, _shorten(text)) for place, printed, correct, text in list_errata(self.results)
        ]
        return markdown_table(("place", "as printed", "correct", "numbers"), rows)

    def refuted(self) -> str:
        """Return bullets of the conclusions of papers that are not reproduced and have no erratum."""
        bullets = [
            self.claim(study, claim.name).replace("* ", f"* {claim.source}: ", 1)
            for study, results in self.results.items()
            for claim, finding in results.claims
            if claim.kind == "conclusion" and finding.verdict == "not reproduced" and claim.erratum is None
        ]
        return "\n".join(bullets)

    def origins(self) -> Iterator[tuple[str, list[str]]]:
        """Yield each scale with its studies."""
        scales = {study: self.scale(study) for study in self.results}
        for scale in dict.fromkeys(scales.values()):
            yield scale, [f"`{study}`" for study, scale_of_study in scales.items() if scale_of_study == scale]

    def missing(self) -> list[str]:
        """Return the names of built-in studies without a store."""
        return [f"`{name}`" for name in MODULES.built_in if not self.has(name)]


def _shorten(text: str) -> str:
    """Return the first parts of a text, at least one, with an ellipsis for the others."""
    kept, *others = re.split(r"(?<=[.;]) ", text)
    for part in others:
        if len(kept) + len(part) > _MAX_EVIDENCE:
            return f"{kept} …"
        kept += f" {part}"
    return kept


def _load(paths: Sequence[str]) -> dict[str, StudyResults]:
    """Read folders and stores; later ones replace earlier ones of the same study."""
    results: dict[str, StudyResults] = {}
    for path in paths:
        if is_folder(path):
            results |= load_results(path)[0]
            continue
        store = open_complete(path)
        study = store.spec["study"]
        if study not in STUDIES:
            raise BadInputError(f"findings are about registered studies, got the store {path} of {study}; omit it")
        results[study] = read_registered(store, study)
    return results


def write_findings(paths: Sequence[str], output: Path, figures: Path) -> None:
    """Write the note and its figures, and the figure of the README next to their folder.

    Parameters
    ----------
    paths : sequence of str
        Folders of all studies, and stores; later ones replace earlier ones of the same study.
    output : Path
        File of the note, whose links are relative to the folder ``studies`` of a checkout.
    figures : Path
        Folder of its figures, which is created if it is missing.

    Raises
    ------
    BadInputError
        If a path is neither a folder of all studies nor the store of a registered study.
    """
    require_writable(output)
    results = _load(paths)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    with Converter() as converter:
        findings = Findings(results, converter)
        text = environment.get_template("findings.md.jinja2").render(f=findings, version=__version__)
        headline = findings.headline()
    for name, image in findings.images.items():
        figures.mkdir(parents=True, exist_ok=True)
        write_whole(figures / name, image)
    if headline is not None:
        write_whole(figures.with_name("accuracy-k3.png"), headline)
    write_whole(output, text.encode())
