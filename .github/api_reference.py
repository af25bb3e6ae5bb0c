"""API reference in HTML: run ``python -W error .github/api_reference.py FOLDER``; warnings end it with an error."""

import sys
from importlib import import_module
from pathlib import Path

from pdoc import pdoc

PACKAGES = ("mechanisms", "pipeline", "studies")


def main(folder: Path) -> None:
    """Write one page per module."""
    for package in map(import_module, PACKAGES):
        for name in getattr(package, "__all__", ()):
            vars(package)[name] = getattr(package, name)  # pdoc does not see names that are imported on access
    pdoc(*PACKAGES, output_directory=folder)
    print(f"wrote {folder / 'index.html'}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
