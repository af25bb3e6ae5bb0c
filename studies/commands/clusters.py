"""The commands ``cluster list`` and ``cluster check``."""

from contextlib import suppress
from typing import Annotated

import typer

from pipeline.errors import counted, verb
from studies.commands.help import HeadedGroup
from studies.commands.options import argument, complete_profile, option
from studies.output import ERRORS, print_table, say

app = typer.Typer(cls=HeadedGroup, rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def cluster(context: typer.Context) -> None:
    """List and check the clusters that run studies."""
    if context.invoked_subcommand is None:
        say(context.get_help())


@app.command("list")
def list_profiles() -> None:
    """List the profiles of this package and of ./cluster.yaml."""
    from pipeline.clusters.profiles import load_profile, profile_files
    from pipeline.redact import redact_text

    rows = []
    for name, file in profile_files().items():
        profile = load_profile(f"{file}:{name}")
        size = [f"{key} {value}" for key, value in profile.adapt.items()]
        size += [str(profile.scale)] if profile.scale is not None else []
        cluster = redact_text(profile.address or f"{profile.module}.{profile.class_name}")
        rows.append((name, cluster, ", ".join(size), file))
    print_table(("profile", "cluster", "workers", "file"), rows)
    say("show the launch of a profile, and check its workers, with: dpstudies cluster check PROFILE")


@app.command()
def check(
    profile: Annotated[str, argument("PROFILE", "A listed profile, FILE, or FILE:PROFILE.", complete_profile)],
    store: Annotated[str | None, option("PATH", "Also check that workers can read and write this store.")] = None,
    connect: Annotated[bool, option("Start or connect to the cluster, and check each worker.")] = True,
) -> None:
    """Show the cluster of a profile, and check its workers.

    They must have the same code, and must be able to write to the store.
    """
    from pipeline.clusters.check import check_workers
    from pipeline.clusters.cluster import reach, requested_workers
    from pipeline.clusters.launch import describe_launch, launch_document, obstacle
    from pipeline.clusters.profiles import load_profile
    from pipeline.store.files.locations import normalise_location

    chosen = load_profile(profile)
    if store is not None:
        normalise_location(store)  # raises an error for credentials in a URL
    for head, line in {"profile": chosen.name, **describe_launch(chosen)}.items():
        say(f"{head:12} {line}")
    document = launch_document(chosen)
    if document:
        say(f"\n{document.strip()}\n")
    reason = obstacle(chosen) if connect else "--no-connect was given"
    if reason:
        say(f"not started, no worker checked: {reason}")
        raise typer.Exit(1 if connect else 0)
    ERRORS.print(f"connecting; then waiting for workers, at most {chosen.wait:g} s")
    with reach(chosen) as client:
        wanted = requested_workers(chosen, client)
        with suppress(TimeoutError):  # missing workers are reported below
            client.wait_for_workers(wanted, timeout=chosen.wait)
        faults_of_workers = check_workers(client, store)
    for worker, faults in faults_of_workers.items():
        say(f"{worker}  {'; '.join(faults) or 'ok'}")
    n_joined, unfit = len(faults_of_workers), sum(map(bool, faults_of_workers.values()))
    n_ok = n_joined - unfit
    requirement = "same code" + (f", access to {store} from all" if store else "")
    missing = f"; {wanted - n_joined} {verb(wanted - n_joined, 'has', 'have')} not joined" if n_joined < wanted else ""
    say(f"{n_ok} of {counted(n_joined, 'worker')} {verb(n_ok)} ok{missing} (checked: {requirement})")
    raise typer.Exit(1 if unfit or missing else 0)
