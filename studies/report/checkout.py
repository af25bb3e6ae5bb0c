"""The checkout of the source, whose documents the site and the research note read and write."""

from pathlib import Path

from pipeline.errors import BadInputError


def find_checkout() -> Path:
    """Return the folder of the checkout from which this package is imported; raise BadInputError if it is installed."""
    folder = Path(__file__).resolve().parents[2]
    if not (folder / ".github/CONTRIBUTING.md").is_file():
        raise BadInputError(
            f"dpstudies must be imported from a checkout, which contains the documents, got the package in "
            f"{folder}; clone the repository and run there: pip install -e '.[site]'"
        )
    return folder
