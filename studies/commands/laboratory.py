"""Commands about all studies: run each into one folder, and write one page about them."""

import shlex
from typing import Any

import typer

import pipeline
from pipeline.errors import BadInputError
from pipeline.evaluate import FAILURES, Status
from pipeline.profiles import load_profile
from pipeline.source import find_study
from studies import MODULES, STUDIES
from studies.commands.reading import count_trials
from studies.commands.shared import ERRORS, fail, say
from studies.laboratory import configure, require_folder, store_path
from studies.progress import ProgressDisplay


def run_all(folder: str, scale: str, seed: int | None, cluster: str | None) -> None:
    """Run every study into a folder, one after the other; goes on where an earlier call stopped.

    A study that cannot be run does not keep the others from it.
    """
    require_folder(folder, scale, seed)
    load_profile(cluster)
    again = "dpstudies run all " + shlex.join(["--store", folder] + ["--scale", scale] * (scale != "published"))
    unfinished: list[str] = []
    n_failed = n_computed = 0
    for number, name in enumerate(STUDIES, 1):
        label = f"{name} ({number} of {len(STUDIES)})"
        display = ProgressDisplay(ERRORS, label)
        try:
            failed, pending = _run_one(name, store_path(folder, name), display, cluster, configure(name, scale, seed))
        except KeyboardInterrupt:
            fail(f"what was committed is kept; go on with: {again}", 130)
            raise typer.Exit(130) from None
        except Exception as error:  # whatever it is, the other studies do not depend on this one
            if isinstance(error, BadInputError) and not n_computed:
                raise  # nothing was written, and the others would fare no better
            fail(f"{label} cannot be run: {error or type(error).__name__}", 3)
            unfinished.append(name)
            continue
        n_computed += display.n_done
        n_failed += failed
        unfinished += [name] * bool(pending)
        done = f"{display.n_done:,} trials in {display.seconds:,.1f} s" if display.n_total else "was there"
        say(f"{label}: {done}" + (f", {failed:,} trials failed" if failed else ""))
    if unfinished:
        say(f"incomplete: {', '.join(unfinished)}; go on with: {again}")
        raise typer.Exit(3)
    say(f"complete{f', {n_failed:,} trials failed' if n_failed else ''}; next: dpstudies report {shlex.quote(folder)}")
    raise typer.Exit(1 if n_failed else 0)


def _run_one(
    name: str, path: str, display: ProgressDisplay, cluster: str | None, configured: dict[str, Any]
) -> tuple[int, int]:
    """Run a study; return how many of its trials failed, and how many are pending."""
    with display:
        pipeline.run(find_study(name, MODULES), path, cluster=cluster, progress=display, **configured)
    counts = count_trials(path).values()
    failed, pending = (
        sum(by_kind[kind] for by_kind in counts for kind in kinds) for kinds in (FAILURES, (Status.PENDING,))
    )
    return failed, pending
