"""The commands ``report`` and ``serve``: pages about a store or a folder of stores, in a file or in a browser."""

import os
import webbrowser
from collections.abc import Sequence, Set
from pathlib import Path
from typing import Annotated

from pipeline.declare.claims import Claim, Finding
from pipeline.errors import BadInputError, command
from studies.commands.options import DeclaringStudy, Open, StoreOrFolder, find_named, option
from studies.output import fail, print_wrapped, require_file, require_outside_stores, say, writing

_EDITED = (
    "The code of the study was edited after the last session: claims, figures and methods may differ from those that "
    "computed these numbers."
)


def report(
    store: StoreOrFolder,
    output: Annotated[
        Path | None, option("HTML file; by default the name of the store, next to it, or report.html in a folder.")
    ] = None,
    figures: Annotated[Path | None, option("Folder for copies of the figures as SVG and PNG files.")] = None,
    markdown: Annotated[Path | None, option("File for the verdicts as a Markdown table; for folders only.")] = None,
    show: Open = False,
    study: DeclaringStudy = None,
    verbose: Annotated[bool, option("--verbose", "Print the statement and the evidence of each verdict.")] = False,
) -> None:
    """Write a page: figures, claims with verdicts, tables, provenance."""
    from pipeline.runs.resolve import is_recorded, study_of
    from pipeline.store.files.locations import holds_root
    from pipeline.store.result_store import open_complete
    from studies.folders import is_folder, other_stores
    from studies.report import write_results

    require_file("--output", output, ".html", ".htm")
    require_outside_stores("--figures", figures)
    require_outside_stores("--markdown", markdown)
    if is_folder(store):
        if figures is not None or study is not None:
            raise BadInputError(f"--figures and --study are for one store, got the folder {store}; omit them")
        _report_folder(store, output, markdown, show)
        return
    if markdown is not None:
        raise BadInputError(f"--markdown is for a folder of 'run all', got {store}; omit --markdown")
    if not holds_root(store) and (others := other_stores(store)):
        raise BadInputError(
            f"{store} has no store of a built-in study, got {', '.join(path.name for path in others)}; report each "
            f"store: {command('report', others[0])}"
        )
    opened = open_complete(store)
    source, configured = study_of(opened, find_named(study), only_reads=True)  # no trial is computed
    remark = "" if is_recorded(opened, source) else _EDITED
    page = output or _default_page(opened.url)
    with writing(page):
        results = write_results(opened, configured, page, figures, remark)
    if remark:
        say(remark)
    _print_verdicts(results.claims, set(opened.spec["panels"]), verbose)
    if n_pending := results.state.n_pending:
        say(f"incomplete: {n_pending:,} evaluations are pending; compute them with: {command('resume', store)}")
    _announce(page, f", figures: {figures}" if figures else "", show)
    if results.claims and not verbose:
        say(f"statements and evidence: on the page, or with: {command('report', store, '--verbose')}")


def serve(
    store: StoreOrFolder,
    port: Annotated[int | None, option("Port on the loopback interface; by default a free one.")] = None,
    show: Open = False,
    study: DeclaringStudy = None,
) -> None:
    """Serve the page of 'report' while a study runs, until Ctrl-C.

    Figures follow the committed results.
    """
    import asyncio
    import secrets

    from studies.folders import is_folder
    from studies.report import live

    if study is not None and is_folder(store):
        raise BadInputError(f"--study is for one store, got the folder {store}; omit it")
    page = live.LivePage(store, find_named(study))
    listening, token = live.listen(port), secrets.token_urlsafe()
    address = f"http://{live.LOOPBACK}:{listening.getsockname()[1]}/{token}/"
    say(f"serving {store} at {address} until Ctrl-C")
    if show:
        _open_address(address)
    asyncio.run(live.serve(page, token, listening))


def _report_folder(folder: str, output: Path | None, markdown: Path | None, show: bool) -> None:
    """Write the page of a folder of stores, and the table of its verdicts."""
    from studies.report import write_collection

    page = output or _default_page(folder, is_folder=True)
    with writing(page):
        counts = write_collection(
            folder, page, markdown, lambda name, reason: fail(f"{name} is not shown: {reason}", 0)
        )
    say(", ".join(f"{n} {verdict}" for verdict, n in counts.most_common()))
    _announce(page, f", verdicts: {markdown}" if markdown else "", show)


def _print_verdicts(findings: Sequence[tuple[Claim, Finding]], panels: Set[str], verbose: bool) -> None:
    """Print a verdict on each claim, with its evidence if `verbose`; count claims whose panels are not stored."""
    judged = [
        (claim, finding) for claim, finding in findings if finding.verdict != "undecided" or set(claim.needs) <= panels
    ]
    if verbose:
        for claim, finding in judged:
            say(f"{finding.verdict}: {claim.statement} {finding.evidence}")
    elif judged:
        print_wrapped(("verdict", "claim"), [(finding.verdict, claim.title) for claim, finding in judged])
    if n_without := len(findings) - len(judged):
        panels_needed = "a panel that it needs" if n_without == 1 else "panels that they need"
        say(f"undecided: {n_without} claim{'' if n_without == 1 else 's'}, because the store lacks {panels_needed}")


def _announce(page: Path, others: str, show: bool) -> None:
    """Print the paths of a page and of other files, and open the page if `show`."""
    say(f"report: {page}{others}")
    if show:
        _open_address(page.resolve().as_uri())


def _default_page(location: str, is_folder: bool = False) -> Path:
    """Return the default path of the page about a store, or about a folder of stores.

    It is next to the store, with its name, or ``report.html`` in the folder. The page about an object store is in the
    current folder.
    """
    from pipeline.store.files.locations import is_local, normalise_location
    from studies.report.page import is_page_of

    url = normalise_location(location)
    parent, name = os.path.split(url)
    page = Path(f"{name.removesuffix('.zarr')}.html")
    if is_local(url):
        page = Path(location) / "report.html" if is_folder else Path(parent) / page
    try:
        if not page.is_file() or is_page_of(page, url):
            return page
    except OSError as error:
        raise BadInputError(f"cannot read {page}: {error.strerror}; choose another path with --output") from error
    raise BadInputError(f"{page} exists and is not the page of {url}; choose another path with --output")


def _open_address(address: str) -> None:
    """Show the page at an address in the browser of the user."""
    if not webbrowser.open(address):
        say("no browser was found; open the page yourself")
