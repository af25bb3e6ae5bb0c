"""The command ``compact``."""

import shlex
from typing import Annotated

import typer
from rich.progress import Progress

import pipeline
from studies.commands.shared import ERRORS, StorePath, say


def compact(
    store: StorePath,
    destination: Annotated[str, typer.Argument(metavar="DEST", help="Path of the copy, at which nothing may exist.")],
) -> None:
    """Copy a complete store into few files, to archive or publish it, and compare every chunk with the original."""
    with Progress(console=ERRORS, transient=True, disable=not ERRORS.is_terminal) as bar:
        line = bar.add_task("files", total=None)
        pipeline.compact(store, destination, progress=lambda done, total: bar.update(line, completed=done, total=total))
    say(f"every chunk is equal to the original; next: dpstudies report {shlex.quote(destination)}")
