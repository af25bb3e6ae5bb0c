"""The commands ``site`` and ``findings``, which write documents of a checkout from the results of studies."""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from pipeline.errors import BadInputError
from studies.commands.options import argument, option
from studies.output import require_outside_stores, say, writing


def site(
    lab: Annotated[
        str | None, argument("LAB", "Folder of 'run all' for the gallery and the results; by default without them.")
    ] = None,
    output: Annotated[Path, option("FOLDER", "New or empty folder, or that of an earlier site.")] = Path("site"),
) -> None:
    """Write a site of guides, API reference, gallery and results.

    A browser reads its files from disk.
    """
    if find_spec("pdoc") is None:
        raise BadInputError("the site requires pdoc; install it with: pip install 'dpstudies[site]'")
    from studies.report.site import write_site

    with writing(output):
        require_outside_stores("--output", output)
        write_site(output, lab)
    say(f"wrote {output / 'index.html'}")


def findings(
    stores: Annotated[
        list[str],
        argument("STORES...", "Folders of 'run all', and stores, which replace earlier ones of the same study."),
    ],
) -> None:
    """Write the research note studies/FINDINGS.md, and its figures."""
    from studies.report.checkout import find_checkout
    from studies.report.findings import FIGURES, NOTE, write_findings

    checkout = find_checkout()
    note = checkout / NOTE
    with writing(note):
        write_findings(stores, note, checkout / FIGURES)
    say(f"wrote {os.path.relpath(note)}")
