"""The commands ``verify`` and ``compact``, which read every chunk of a store."""

from typing import Annotated

import typer

import pipeline
from pipeline.errors import BadInputError, command, counted, verb
from studies.commands.options import (
    AcceptEditedStudy,
    Cluster,
    DeclaringStudy,
    StorePath,
    argument,
    cluster_words,
    find_named,
    load_cluster,
    option,
    require_persistent,
)
from studies.output import progress_bar, say

_SHOWN = 20
_OF_BLOCKS = {"unreadable", "missing", "inconsistent"}


def verify(
    store: StorePath,
    sample: Annotated[int, option("N", "Number of randomly chosen blocks to recompute.")] = 100,
    every: Annotated[bool, option("--all", "Recompute every block.")] = False,
    seed: Annotated[int, option("Seed of the choice of blocks.")] = 0,
    repair: Annotated[
        bool, option("--repair", "Repair damage, and replace numbers that differ with recomputed ones.")
    ] = False,
    cluster: Cluster = None,
    study: DeclaringStudy = None,
    accept_edited_study: AcceptEditedStudy = False,
) -> None:
    """Check every chunk of a store, and compare recomputed blocks.

    Nothing is written without --repair.
    """
    from pipeline.runs.verify import verify as verify_store
    from pipeline.store.result_store import ResultStore

    if seed < 0:
        raise BadInputError(f"--seed must be >= 0, got {seed}")
    with progress_bar("blocks") as show:
        verification = verify_store(
            store,
            sample=None if every else sample,
            seed=seed,
            repair=repair,
            progress=show,
            cluster=load_cluster(cluster),
            study=find_named(study),
            accept_edited_study=accept_edited_study,
        )
    for problem in verification.problems[:_SHOWN]:
        say(f"{problem.where}: {problem.variable} is {problem.damage}")
    if len(verification.problems) > _SHOWN:
        say(f"and {len(verification.problems) - _SHOWN:,} more")
    checked = f"{counted(verification.n_read, 'block')} of a setting read, {verification.n_computed:,} recomputed"
    say(f"{checked}, {counted(len(verification.problems), 'problem')}")
    words = (*(("--study", study) if study else ()), *cluster_words(cluster))
    again = command("resume", store, *words)
    kinds = {problem.damage.kind for problem in verification.problems}
    if kinds and not repair:
        is_compact = ResultStore.open(store, damaged=True).is_compact
        options = ["--repair", *["--all"] * ("different" in kinds), *["--accept-edited-study"] * accept_edited_study]
        remedy = f"repair it with: {command('verify', store, *options, *words)}"
        say(f"nothing was changed; {'compact the original store again' if is_compact else remedy}")
    if "damaged" in kinds and repair:
        say("coordinates, metadata, root and records of sessions were rewritten")
    if "different" in kinds and repair:
        say("numbers that differed were replaced with recomputed ones")
    if kinds & _OF_BLOCKS and repair:
        say(f"damaged blocks are pending now; compute them with: {again}")
    elif verification.n_pending:
        say(
            f"incomplete: {counted(verification.n_pending, 'block')} {verb(verification.n_pending)} pending; compute "
            f"them with: {again}"
        )
    if kinds & _OF_BLOCKS or verification.n_pending or (kinds & {"damaged", "lost"} and not repair):
        raise typer.Exit(3)
    raise typer.Exit(1 if "different" in kinds and not repair else 0)


def compact(
    store: StorePath,
    destination: Annotated[
        str, argument("DEST", "Path of the copy, at which nothing may exist.", callback=require_persistent)
    ],
) -> None:
    """Copy a complete store into few files, to archive or publish it.

    Every chunk is compared with the original.
    """
    with progress_bar("files") as show:
        pipeline.compact(store, destination, progress=show)
    say(f"every chunk is equal to the original; next: {command('report', destination)}")
