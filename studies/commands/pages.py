"""Default paths of pages, and their display in a browser."""

import os
import webbrowser
from pathlib import Path

from pipeline.errors import BadInputError
from studies.commands.shared import say


def page_of_store(url: str) -> Path:
    """Return the default path of the page about a store: next to the store, with its name.

    The page about an object store is in the current folder.
    """
    from pipeline.stores.locations import is_local

    folder, name = os.path.split(url)
    page = Path(f"{name.removesuffix('.zarr')}.html")
    return _unless_taken(Path(folder) / page if is_local(url) else page, url)


def page_of_folder(folder: str) -> Path:
    """Return the default path of the page about a folder of stores: ``report.html`` in the folder."""
    from pipeline.stores.locations import is_local, normalise_location

    url = normalise_location(folder)
    return _unless_taken(Path(folder) / "report.html", url) if is_local(url) else page_of_store(url)


def _unless_taken(page: Path, url: str) -> Path:
    from studies.report.page import is_page_of

    try:
        if not page.is_file() or is_page_of(page, url):
            return page
    except OSError as error:
        raise BadInputError(f"cannot read {page}: {error.strerror}; choose another path with --output") from error
    raise BadInputError(f"{page} exists and is not the page of {url}; choose another path with --output")


def open_page(page: Path) -> None:
    """Show a page in the browser of the user."""
    open_address(page.resolve().as_uri())


def open_address(address: str) -> None:
    """Show the page at an address in the browser of the user."""
    if not webbrowser.open(address):
        say("no browser was found; open the page yourself")
