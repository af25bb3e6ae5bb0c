"""Default paths of pages, and their display in a browser."""

import os
import webbrowser
from pathlib import Path

from pipeline.errors import BadInputError
from studies.commands.shared import say


def default_page(location: str, is_folder: bool = False) -> Path:
    """Return the default path of the page about a store, or about a folder of stores.

    It is next to the store, with its name, or ``report.html`` in the folder. The page about an object store is in the
    current folder.
    """
    from pipeline.stores.locations import is_local, normalise_location
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


def open_address(address: str) -> None:
    """Show the page at an address in the browser of the user."""
    if not webbrowser.open(address):
        say("no browser was found; open the page yourself")
