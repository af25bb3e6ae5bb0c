"""The command ``cluster check``."""

from contextlib import suppress
from typing import Annotated

import typer

from pipeline.clusters.check import check_workers
from pipeline.clusters.cluster import load_profile, reach
from pipeline.clusters.preview import describe_launch, launch_document, obstacle
from pipeline.clusters.size import requested_workers
from pipeline.stores.locations import normalise_location
from studies.commands.shared import ERRORS, say

app = typer.Typer(help="Check the clusters that run studies.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def cluster() -> None:
    """Check the clusters that run studies."""


@app.command()
def check(
    profile: Annotated[
        str, typer.Argument(metavar="PROFILE", help="A profile of ./cluster.yaml, FILE, or FILE:PROFILE.")
    ],
    store: Annotated[
        str | None,
        typer.Option("--store", metavar="PATH", help="Also check that workers can read and write this store."),
    ] = None,
    connect: Annotated[bool, typer.Option(help="Start or connect to the cluster, and check each worker.")] = True,
) -> None:
    """Show the cluster of a profile, and check that its workers have the same code and can write to the store."""
    chosen = load_profile(profile)
    if store is not None:
        normalise_location(store)  # refuses credentials in a URL
    for head, line in {"profile": chosen.name, **describe_launch(chosen)}.items():
        say(f"{head:12} {line}")
    document = launch_document(chosen)
    if document:
        say(f"\n{document.strip()}\n")
    reason = obstacle(chosen) if connect else "--no-connect was given"
    if reason:
        say(f"not started, no worker checked: {reason}")
        return
    ERRORS.print(f"waiting for workers, at most {chosen.wait:g} s")
    with reach(chosen) as client:
        wanted = requested_workers(chosen, client)
        with suppress(TimeoutError):  # reported below
            client.wait_for_workers(wanted, timeout=chosen.wait)
        found = check_workers(client, store)
    for worker in found:
        say(f"{worker.address}  {'; '.join(worker.faults) or 'ok'}")
    unfit = sum(bool(worker.faults) for worker in found)
    what = "same code" + (f", {store} is shared and can be written" if store else "")
    missing = f"; {wanted - len(found)} have not joined" if len(found) < wanted else ""
    say(f"{len(found) - unfit} of {len(found)} workers are ok ({what}){missing}")
    raise typer.Exit(1 if unfit or missing else 0)
