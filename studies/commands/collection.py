"""Commands for all studies: run them with one folder for all stores, and write one page about the folder."""

import shlex
from pathlib import Path
from typing import Any

import typer

import pipeline
from pipeline.clusters.profiles import load_profile
from pipeline.declare.source import find_study
from pipeline.errors import BadInputError
from pipeline.progress import ProgressDisplay
from pipeline.stores.store import ResultStore
from studies import MODULES, STUDIES
from studies.commands.pages import page_of_folder
from studies.commands.shared import ERRORS, fail, say, writing
from studies.folders import configure, require_folder, store_path
from studies.report import write_collection
from studies.report.summaries import State, state_of


def run_all(folder: str, scale: str, seed: int | None, **how: Any) -> None:
    """Run every study and write one store per study to a folder, or resume an earlier run.

    A failure of one study does not stop the others. `how` contains keyword arguments of `pipeline.run`,
    such as the cluster and the time limit.
    """
    require_folder(folder, scale, seed)
    load_profile(how.get("cluster"))
    again = _command(folder, scale, seed, **how)
    unfinished: list[str] = []
    n_failed = n_computed = 0
    for number, name in enumerate(STUDIES, 1):
        label = f"{name} ({number} of {len(STUDIES)})"
        display = ProgressDisplay(ERRORS, label)
        try:
            state = _run_one(name, store_path(folder, name), display, **configure(STUDIES[name], scale, seed), **how)
        except KeyboardInterrupt:
            fail(f"committed blocks are kept; continue with: {again}", 130)
            raise typer.Exit(130) from None
        except Exception as error:  # the other studies do not depend on this one
            if isinstance(error, BadInputError) and not n_computed:
                raise  # nothing was written, and the other studies would fail as well
            fail(f"{label} cannot be run: {error or type(error).__name__}", 3)
            unfinished.append(name)
            continue
        n_computed += display.n_done
        n_failed += state.n_failed
        unfinished += [name] * bool(state.n_pending)
        done = f"{display.n_done:,} evaluations in {display.seconds:,.1f} s" if display.n_total else "already complete"
        say(f"{label}: {done}" + (f", {state.n_failed:,} trials failed" if state.n_failed else ""))
    if unfinished:
        say(f"incomplete: {', '.join(unfinished)}; continue with: {again}")
        raise typer.Exit(3)
    say(f"complete{f', {n_failed:,} trials failed' if n_failed else ''}; next: dpstudies report {shlex.quote(folder)}")
    raise typer.Exit(1 if n_failed else 0)


def _run_one(name: str, path: str, display: ProgressDisplay, **how: Any) -> State:
    with display:
        pipeline.run(find_study(name, MODULES), path, progress=display, **how)
    return state_of(ResultStore.open(path))


def _command(folder: str, scale: str, seed: int | None, **how: Any) -> str:
    """Return the shell command that resumes the run of all studies."""
    given = {"store": folder, "scale": None if scale == "published" else scale, "seed": seed, **how}
    options: list[str] = []
    for name, value in given.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            options.append(option)
        elif value is not None and value is not False:
            options += [option, str(value)]
    return f"dpstudies run all {shlex.join(options)}"


def report_all(folder: str, output: Path | None, markdown: Path | None) -> Path:
    """Write one page about the stores of a folder, and print the number of claims per verdict; return the path."""
    page = output or page_of_folder(folder)
    with writing(page):
        counts = write_collection(folder, page, markdown)
    say(", ".join(f"{n} {verdict}" for verdict, n in counts.most_common()))
    say(f"report: {page}" + (f", verdicts: {markdown}" if markdown else ""))
    return page
