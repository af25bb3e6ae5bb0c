"""Run of all studies with one folder for all stores."""

import itertools
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NoReturn

import typer

import pipeline
from pipeline.declare.source import find_study
from pipeline.errors import BadInputError, BusyStoreError, command, counted
from pipeline.execution.work import PendingWork
from pipeline.runs.progress import ProgressDisplay
from pipeline.store.result_store import ResultStore
from studies import MODULES, STUDIES
from studies.commands.options import load_cluster
from studies.folders import configure, read_costs, require_folder, store_path
from studies.output import ERRORS, fail, say
from studies.report.summaries import state_of


def run_all(
    folder: str, scale: str, seed: int | None, cluster: str | None, time_limit: float | None, allow_failures: bool
) -> NoReturn:
    """Run every study, each with its store in a folder, also after failures of others."""
    conduct = {"cluster": cluster, "time_limit": time_limit, "allow_failures": allow_failures}
    profile = load_cluster(cluster)
    costs = read_costs(scale)
    rates = costs if set(STUDIES) <= set(costs) else None
    display = ProgressDisplay(ERRORS, _planned(folder, require_folder(folder, scale, seed)), rates)
    again = _command(folder, scale, seed, conduct)
    unfinished: list[str] = []
    n_failed = 0
    for number, name in enumerate(STUDIES, 1):
        label = f"{name} ({number} of {len(STUDIES)})"
        before, started = display.n_done, time.monotonic()
        path, existing = store_path(folder, name), None
        try:
            existing = ResultStore.find(path)
            if existing is None or not existing.is_compact or state_of(existing).n_pending:
                with display.begin(name, label):
                    pipeline.run(
                        find_study(name, MODULES),
                        path,
                        **configure(STUDIES[name], scale, seed),
                        cluster=profile,
                        time_limit=time_limit,
                        allow_failures=allow_failures,
                        progress=display,
                    )
            state = state_of(ResultStore.open(path))
        except KeyboardInterrupt:
            fail(f"committed blocks are kept; continue with: {again}", 130)
            raise typer.Exit(130) from None
        except Exception as error:  # the other studies do not depend on this one
            is_of_store = existing is not None and (existing.is_compact or existing.run_part is not None)
            is_of_store |= isinstance(error, BusyStoreError)
            if isinstance(error, BadInputError) and not (display.n_done or is_of_store):
                raise  # nothing was written, and the other studies would fail as well
            fail(f"{label} cannot be run: {error or type(error).__name__}", 3)
            unfinished.append(name)
            continue
        n_new = display.n_done - before
        n_failed += state.n_failed
        unfinished += [name] * bool(state.n_pending)
        seconds = time.monotonic() - started
        done = f"{counted(n_new, 'evaluation')} in {seconds:,.1f} s" if n_new else "already complete"
        say(f"{label}: {done}" + (f", {counted(state.n_failed, 'trial')} failed" if state.n_failed else ""))
    if unfinished:
        say(f"incomplete: {', '.join(unfinished)}; continue with: {again}")
        raise typer.Exit(3)
    failed = f", {counted(n_failed, 'trial')} failed" if n_failed else ""
    say(f"complete{failed}; next: {command('report', folder)}")
    raise typer.Exit(1 if n_failed else 0)


def _planned(folder: str, studies: Mapping[str, pipeline.Study]) -> dict[str, PendingWork]:
    """Return the pending work of all studies in a folder."""
    planned = {}
    for name, study in studies.items():
        planned[name] = PendingWork(study, None)
        with suppress(Exception):  # no store yet, or a damaged one, which its run reports
            store = ResultStore.open(store_path(folder, name))
            planned[name] = PendingWork(study, store if store.complete else None)
    return planned


def _command(folder: str, scale: str, seed: int | None, conduct: Mapping[str, Any]) -> str:
    """Return the shell command that resumes the run of all studies."""
    resumed = {"store": folder, "scale": None if scale == "published" else scale, "seed": seed, **conduct}
    options = {f"--{name.replace('_', '-')}": value for name, value in resumed.items() if value is not None}
    words = ((name, value) if value is not True else (name,) for name, value in options.items() if value is not False)
    return command("run", "all", *itertools.chain.from_iterable(words))
