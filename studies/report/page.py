"""Functions that all pages use: rendering of figures and templates, and atomic writes of files."""

import base64
import hashlib
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import jinja2
import xarray as xr

from pipeline import Claim, Figure, Finding, Panel, Study
from pipeline.declare.streams import sha256
from pipeline.store.files.locations import is_local
from studies.claims import Summaries
from studies.figures import Converter, Plot, describe_hidden, describe_outside, interactive, specify
from studies.figures.defaults import default_figures
from studies.report.papers import OTHER, PAPERS, Paper
from studies.report.results import VERDICT_GROUPS
from studies.styles import DARK_COLORS

_HEAD_BYTES = 4096  # the beginning of a page, which contains its mark
_INKS = ("#1a1a1a", "#e8e8e8")  # text colours of images in light and dark mode
_DARK_RULES = "".join(
    f'[{paint}="{color}"]{{{paint}:{dark}}}' for color, dark in DARK_COLORS.items() for paint in ("stroke", "fill")
)  # style rules that replace the colours of lines and markers
_FONT = b' font-family="system-ui, sans-serif"'
_WITHOUT_EFFECT = re.compile(
    rb' (?:class|role|aria-[a-z]+|pointer-events)="[^"]*"| (?:opacity|stroke-width)="1"| [xy]2="0"|'
    rb' transform="translate\(0,0\)"| font-weight="normal"| text-anchor="start"|' + _FONT
)
_UNSEEN = re.compile(rb'<path d="" display="none"/>|<path d="[^"]*"/>|<g/>')  # without fill and stroke
_PIXELS = re.compile(rb' (?:d|transform|[xy]2?|width|height)="[^"]*"')
_LONGEST_EVIDENCE = 160  # characters that are not folded
_CLAUSE_END = re.compile(r"(?<=[.;]) (?=\S)")
_N_FINDINGS = 5  # next to the first figure

TEMPLATES = Path(__file__).parent / "templates"

Result = TypeVar("Result")


@dataclass(frozen=True)
class RenderedFigure:
    """Figure of a page: a static image for readers without JavaScript, and the interactive figure."""

    id: str  # target of links
    title: str
    caption: str  # text below the figure
    svg: Future[bytes] = field(repr=False)
    data: str = field(repr=False)  # interactive figure as JSON that is safe in a ``script`` element
    finding: str  # first claim of the figure that leads, or of all, with its verdict; empty if no claim is decided
    plot: Plot = field(repr=False)  # the first of the figure

    @property
    def uri(self) -> str:
        """Static image as a data URI."""
        return image_uri(self.svg.result())


@dataclass(frozen=True)
class Judged:
    """Claim of a study with its verdict, and the figure that illustrates it."""

    study: str
    claim: Claim
    finding: Finding
    figure: RenderedFigure | None = None
    target: str = ""  # of links to the claim

    @property
    def is_decided(self) -> bool:
        """False if the stores cannot decide the claim."""
        return self.finding.verdict != "undecided"


@dataclass(frozen=True)
class Chapter:
    """Figures and claims of a page, or of its part on one paper with its studies."""

    figures: list[RenderedFigure] = field(default_factory=list)
    judged: list[Judged] = field(default_factory=list)
    studies: list[str] = field(default_factory=list)
    paper: Paper = OTHER

    def decided(self, figure: RenderedFigure | None) -> list[Judged]:
        """Return the decided claims that a figure of this chapter illustrates; those without a figure for None."""
        shown = {id(rendered) for rendered in self.figures}
        decided = [judgement for judgement in self.judged if judgement.is_decided]
        return [
            judgement
            for judgement in decided
            if (judgement.figure if id(judgement.figure) in shown else None) is figure
        ]

    @property
    def undecided(self) -> list[Judged]:
        """Claims that the stores cannot decide."""
        return [judgement for judgement in self.judged if not judgement.is_decided]


def image_uri(svg: bytes) -> str:
    """Return an image as a data URI, with dark ink in light mode, and light ink and lines in dark mode."""
    light, dark = (f"svg{{color:{ink}}}" for ink in _INKS)
    style = f"<style>{light}@media(prefers-color-scheme:dark){{{dark}{_DARK_RULES}}}</style>"
    start = svg.index(b">")
    image = (_shorten(svg[:start]) + _FONT + b">" + style.encode() + _shorten(svg[start + 1 :])).decode()
    for character in "%#'":  # base64 would be a quarter longer
        image = image.replace(character, quote(character))
    return "data:image/svg+xml," + image.replace('"', "'")


def _shorten(svg: bytes) -> bytes:
    """Truncate the coordinates of an image to tenths of pixels, and remove parts without effect in an image."""
    image = _UNSEEN.sub(b"", _WITHOUT_EFFECT.sub(b"", svg))
    return _PIXELS.sub(lambda match: re.sub(rb"\.0\d*|(\.\d)\d+", rb"\1", match[0]), image)


def state_finding(claim: Claim, finding: Finding) -> str:
    """Return a claim with its verdict as a sentence, and the correction or evidence of one that is not true."""
    corrected = correction(claim, finding)
    is_false = finding.verdict in VERDICT_GROUPS["false"]
    rest = f" Correct: {corrected}" if corrected else f" {finding.evidence}" if is_false else ""
    return f"{finding.verdict.capitalize()}: {claim.statement}{rest}"


def correction(claim: Claim, finding: Finding) -> str:
    """Return the correct statement for a claim that is not true as printed, otherwise an empty string.

    The evidence corrects a conclusion of a paper that declares no erratum; other claims are not printed anywhere.
    """
    if finding.verdict not in (*VERDICT_GROUPS["false"], "corrected"):
        return ""
    if claim.erratum is not None:
        return claim.erratum.correct
    return finding.evidence if claim.kind == "conclusion" and claim.paper else ""


def fold(evidence: str) -> tuple[str, str]:
    """Return the part of an evidence that a page shows at first, whole sentences or clauses, and the folded rest."""
    if len(evidence) <= _LONGEST_EVIDENCE:
        return evidence, ""
    ends = [match.start() for match in _CLAUSE_END.finditer(evidence) if match.start() <= _LONGEST_EVIDENCE]
    if not ends:
        return "", evidence
    return f"{evidence[: ends[-1]].rstrip(';')}".rstrip(".") + ".", evidence[ends[-1] :].strip()


def lead_with(
    figures: Sequence[RenderedFigure], judged: Sequence[Judged]
) -> tuple[RenderedFigure | None, list[Judged]]:
    """Return the first figure of a page, and its first findings: those that lead, those on the figure, and others.

    The figure is that of the first decided claim that leads. Claims about errata follow others that lead.
    """
    decided = [judgement for judgement in judged if judgement.is_decided]
    leading = sorted(
        (judgement for judgement in decided if judgement.claim.leads),
        key=lambda judgement: judgement.claim.erratum is not None,
    )
    first = next(iter([*(judgement.figure for judgement in leading if judgement.figure), *figures]), None)
    ranked = [*leading, *(judgement for judgement in decided if judgement.figure is first), *decided]
    return first, [judgement for i, judgement in enumerate(ranked) if judgement not in ranked[:i]][:_N_FINDINGS]


def _illustrating(figures: Sequence[Figure], claim: Claim) -> str:
    """Return the name of the figure that illustrates a claim, or an empty string.

    It is the figure that names the claim, otherwise the first one with all panels that the claim needs, otherwise the
    first one with one of them.
    """
    needed = set(claim.needs)
    names = [figure.name for figure in figures if claim.name in figure.claims]
    names += [figure.name for figure in figures if needed and needed <= set(figure.panels)]
    names += [figure.name for figure in figures if needed & set(figure.panels)]
    return next(iter(names), "")


def drawable(study: Study, summaries: Summaries) -> list[Figure]:
    """Return the figures with results of at least one panel; a study that declares no figures has default ones."""
    return [figure for figure in study.figures or default_figures(study) if _of_figure(figure, summaries)]


def _of_figure(figure: Figure, summaries: Summaries) -> dict[str, xr.Dataset]:
    """Return the summaries of a figure's panels, without those panels whose evaluations are all pending or failed."""
    stored = {panel: summaries[panel] for panel in figure.panels if panel in summaries}
    return {panel: summary for panel, summary in stored.items() if summary["n_ok"].any()}


def _with_nominal_values(panel: Panel, summary: xr.Dataset) -> xr.Dataset:
    """Return a summary whose means have the nominal value of their measure as an attribute."""
    means = {f"{measure.name}_mean": measure.nominal for measure in panel.measures}
    means = {name: nominal for name, nominal in means.items() if nominal is not None and name in summary}
    return summary.assign({name: summary[name].assign_attrs(nominal=nominal) for name, nominal in means.items()})


def render_figures(
    study: Study,
    summaries: Summaries,
    converter: Converter,
    claims: Sequence[tuple[Claim, Finding]] = (),
    figures_folder: str | os.PathLike[str] | None = None,
    prefix: str = "",
) -> tuple[list[RenderedFigure], list[Judged]]:
    """Draw the figures with results of at least one panel in the store.

    Return them, and the claims, each with its figure if it has one. The targets of links, unique on a page, contain
    `prefix`. SVG and PNG copies are written to `figures_folder`.
    """
    nominal = {name: _with_nominal_values(study.panel(name), summary) for name, summary in summaries.items()}
    drawn = [(figure, figure.draw(_of_figure(figure, nominal))) for figure in drawable(study, summaries)]
    drawn = [(figure, plots) for figure, plots in drawn if plots]
    places = {claim.name: _illustrating([figure for figure, _ in drawn], claim) for claim, _ in claims}
    rendered: dict[str, RenderedFigure] = {}
    for figure, plots in drawn:
        decided = [
            judgement
            for judgement in claims
            if places[judgement[0].name] == figure.name and judgement[1].verdict != "undecided"
        ]
        first = min(decided, key=lambda judgement: not judgement[0].leads, default=None)
        finding, target = state_finding(*first) if first else "", f"{prefix}{figure.name}"
        rendered[figure.name] = render_figure(figure, plots, converter, target, finding, figures_folder)
    judged = [
        Judged(study.name, claim, finding, rendered.get(places[claim.name]), f"claim-{prefix}{claim.name}")
        for claim, finding in claims
    ]
    return list(rendered.values()), judged


def render_figure(
    figure: Figure,
    plots: Sequence[Plot],
    converter: Converter,
    target: str,
    finding: str = "",
    figures_folder: str | os.PathLike[str] | None = None,
) -> RenderedFigure:
    """Draw the plots of a figure; SVG and PNG copies are written to `figures_folder`."""
    spec = specify(plots)
    svg = converter.submit("svg", spec)
    if figures_folder is not None:
        Path(figures_folder).mkdir(parents=True, exist_ok=True)
        write_whole(Path(figures_folder, f"{figure.name}.svg"), svg.result())
        png = converter.submit("png", {**spec, "background": "white"})
        write_whole(Path(figures_folder, f"{figure.name}.png"), png.result())
    data = interactive(plots, spec["datasets"]).replace("<", "\\u003c")  # must not end the script element
    caption = " ".join(filter(None, [figure.caption, describe_hidden(plots).sentence, describe_outside(plots)]))
    return RenderedFigure(target, figure.title, caption, svg, data, finding, plots[0])


def render_page(template: str, converter: Converter, mark: str, **shown: Any) -> str:
    """Return a page as HTML; all values are escaped.

    The page loads nothing: the policy of a file (Content-Security-Policy) admits its own script only. `mark` identifies
    the store or folder, see `mark_of`; it is empty for a page without a policy, whose server states one.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    code = f"{converter.script()}\n{(TEMPLATES / 'figures.js').read_text()}".replace("</script", "<\\/script")
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    papers = {paper.key: paper for paper in PAPERS}
    environment.globals |= {"correction": correction, "fold": fold}
    return environment.get_template(template).render(
        mark=mark, policy=policy if mark else "", script=code, papers=papers, dark_rules=_DARK_RULES, **shown
    )


def write_page(
    output: str | os.PathLike[str], location: str, make: Callable[[Converter, str], tuple[str, Result]]
) -> Result:
    """Write the page about the store or folder at `location`, which `make` returns with another result."""
    require_writable(output)
    with Converter() as converter:
        page, result = make(converter, mark_of(output, location))
    write_whole(output, page.encode())
    return result


def is_page_of(page: str | os.PathLike[str], location: str) -> bool:
    """Return True if a file is the page about the store or folder at `location`."""
    with open(page, "rb") as file:
        return mark_of(page, location).encode() in file.read(_HEAD_BYTES)


def mark_of(page: str | os.PathLike[str], location: str) -> str:
    """Return the mark of a store or folder in its page: a hash of its URL, or of its path relative to the page."""
    folder = os.path.dirname(os.path.abspath(page))
    return sha256(os.path.relpath(location, folder) if is_local(location) else location)


def require_writable(path: str | os.PathLike[str]) -> None:
    """Raise OSError, before a page is computed, if its folder cannot hold a new file."""
    if os.path.exists(path) and not os.path.isfile(path):
        return  # a pipe or a device
    try:
        tempfile.TemporaryFile(dir=Path(os.path.realpath(path)).parent).close()
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error


def write_whole(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file atomically; after a failure, such as a full disk, the file is unchanged."""
    if os.path.exists(path) and not os.path.isfile(path):
        Path(path).write_bytes(content)  # a pipe or a device, such as /dev/stdout
        return
    target = Path(os.path.realpath(path))
    partial = target.with_name(f".{uuid.uuid4().hex}.partial")
    try:
        partial.write_bytes(content)
        if target.exists():
            shutil.copymode(target, partial)
        partial.replace(target)
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error
    finally:
        partial.unlink(missing_ok=True)
