"""Checks of workers at the start of a run, which load the study, open the store, and compute equal numbers; reruns."""

import importlib.util
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from distributed import Client, get_worker

from pipeline.blocks.evaluate import Block, Outcome, Status, evaluate_block, evaluate_in_thread
from pipeline.blocks.one_thread import one_thread
from pipeline.blocks.repetition import FirstTrial, find_defect, first_trials, shared_methods
from pipeline.declare.code_files import read_bytes
from pipeline.declare.local_modules import imported_names, local_files
from pipeline.declare.panel import Panel, Setting
from pipeline.declare.source import StudySource
from pipeline.declare.streams import canonical_json, sha256
from pipeline.declare.study import Study
from pipeline.errors import BadInputError, ExecutionError, command
from pipeline.execution.in_flight import TasksInFlight, translating_losses
from pipeline.execution.isolate import End, children_of
from pipeline.execution.tasks import on_worker, registered_task
from pipeline.execution.work import Task
from pipeline.faults import explain, is_transient
from pipeline.store.read import read_outcome
from pipeline.store.result_store import ResultStore
from pipeline.store.scan.states import blocks_of_others, ok_trials, requested_trials


def refuse_unfit_workers(client: Client, run: str, source: StudySource, spec: Mapping[str, Any]) -> None:
    """Raise `BadInputError` if a worker cannot load a study or lacks a module that its functions import."""
    modules = tuple(sorted(imported_modules(source)))
    problem = _find_problem(client, "loaded the study", load_study, run, dict(spec), modules)
    if problem:
        raise BadInputError(problem)


def refuse_workers_without_store(client: Client, task: Task) -> None:
    """Raise `ExecutionError` if a worker cannot open the store of a task."""
    problem = _find_problem(client, "opened the store", open_store, task.run, task.session)
    if problem:
        raise ExecutionError(problem)


def _find_problem(client: Client, action: str, function: Callable[..., str], *args: Any) -> str:
    """Run a function on each worker; return the first error message, or an empty string on success."""
    with translating_losses(client):
        workers = sorted(client.nthreads())
    with TasksInFlight(client) as in_flight:
        for worker in workers or [None]:
            # another worker runs the check if this one has left; without workers, an adaptive cluster starts one
            options = {"workers": [worker], "allow_other_workers": True} if worker else {}
            in_flight.submit(worker, function, *args, **options)
        return in_flight.first_problem(
            lambda worker: f"worker {worker} terminated while it {action}; check its log, or use --cluster threads",
            "the same check fails on",
            "worker",
        )


@on_worker
def load_study(run: str, spec: dict[str, Any], modules: tuple[str, ...]) -> str:
    """Load a study on a worker; return a one-line error message, or an empty string on success."""
    where = f"worker {get_worker().address}"
    try:
        source = registered_task(run).source
        source.refuse_stale()
        study = source.load().from_spec(spec)
    except BaseException as error:  # this thread receives no interrupt
        is_other_code = isinstance(error, BadInputError) and error.__cause__ is None  # no import has failed
        cure = "" if is_other_code else "; install the packages that the study imports there"
        return f"{where} cannot load the study: {explain(error)}{cure}"
    if sha256(canonical_json(study.spec())) != sha256(canonical_json(spec)):
        return f"the code on {where} has a different version; install the same version everywhere"
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        return f"{where} lacks {', '.join(missing)}, which the study imports; install it there"
    return ""


@on_worker
def open_store(run: str, session: str) -> str:
    """Open the store of a session on a worker; return a one-line error message, or an empty string on success."""
    task = registered_task(run, session)
    try:
        task.opened()
    except (BadInputError, OSError) as error:
        if is_transient(error):
            raise
        where = f"worker {get_worker().address} cannot open the store {task.url}"
        return f"{where}: {explain(error)}; choose a --store that all workers can open"
    return ""


def imported_modules(source: StudySource) -> set[str]:
    """Return the installed top-level modules that the study file, or modules in its folder, import anywhere."""
    texts: list[str | bytes] = [method.content for method in source.methods]
    if source.file is not None:
        text = source.content if source.content is not None else read_bytes(source.file, "study file")
        files = local_files(text, *source.folder_and_package)
        texts += [text, *(read_bytes(file, "module") for file in files.values())]
    names = {name.partition(".")[0] for text in texts for name in imported_names(text)}
    # an import of a module that is not installed in this process is optional
    return {name for name in names if name in sys.modules or importlib.util.find_spec(name) is not None}


@dataclass(frozen=True)
class Rerun:
    """Stored and recomputed outcome of one setting on a run of trials."""

    panel: Panel
    setting: Setting
    computed: Outcome
    stored: Outcome
    is_asked: bool = True

    @property
    def is_stored(self) -> bool:
        """True if the store contains the trials."""
        return bool((self.stored.status != Status.PENDING).all())

    @property
    def differing(self) -> tuple[str, ...]:
        """Names of measures that differ (NaN equals NaN), per-cell ones if a trial is ok; all if the statuses differ.

        Numbers of a method with `unseeded` are not compared.
        """
        if self.setting.method.unseeded:
            return ()
        if not np.array_equal(self.computed.status, self.stored.status):
            return tuple(measure.name for measure in self.panel.measures)
        is_any_ok = bool((self.stored.status == Status.OK).any())
        return tuple(
            measure.name
            for measure in self.panel.measures
            if measure.per_trial or is_any_ok
            for stored, computed in [(self.stored.values[measure.name], self.computed.values[measure.name])]
            if not np.array_equal(stored, computed, equal_nan=stored.dtype.kind == "f")
        )

    @property
    def largest_difference(self) -> str:
        """Description of the largest relative difference between the outcomes."""
        worst = 0.0
        for name, before in self.stored.values.items():
            if before.dtype.kind == "f":
                scale = np.maximum(np.abs(before), np.finfo(float).tiny)
                with np.errstate(invalid="ignore"):  # infinity
                    apart = np.abs(self.computed.values[name] - before) / scale
                worst = max(worst, float(apart[~np.isnan(apart)].max(initial=0.0)))
        return f"largest relative difference {worst:.2g}" if worst else "one of the outcomes failed or has no number"

    @property
    def equal(self) -> bool:
        """True if no measure differs."""
        return not self.differing


def rerun_trial(store: ResultStore, study: Study, panel_name: str, cell: Mapping[str, Any], trial: int) -> list[Rerun]:
    """Recompute one trial from its key, under every setting except those under which it was killed or timed out."""
    panel = study.panel(panel_name)
    names = [factor.name for factor in panel.factors]
    if set(cell) != set(names):
        if not names:
            raise BadInputError(f"panel {panel.name} has no factors, so its cell must be empty, got {cell}")
        raise BadInputError(
            f"a cell of panel {panel.name} must specify exactly the factors {', '.join(names)}, got "
            f"{', '.join(cell) or 'none'}; give a value of each"
        )
    wanted = {factor.name: factor.cast(cell[factor.name]) for factor in panel.factors}
    cells = panel.cells()
    if wanted not in cells:
        raise BadInputError(
            f"panel {panel.name} has no cell {wanted}; allowed values are {store.spec['panels'][panel.name]['factors']}"
        )
    if not 0 <= trial < panel.n_trials:
        raise BadInputError(f"trial must be in 0 ... {panel.n_trials - 1}, got {trial}")
    block = Block(panel.name, cells.index(wanted), range(trial, trial + 1))
    stored = [(setting, read_outcome(store, panel, block, setting)) for setting in panel.settings()]
    excluded = (Status.TIMED_OUT, Status.KILLED)
    safe = [setting for setting, outcome in stored if outcome.status[0] not in excluded]
    with one_thread():  # workers use one thread too; the last bits of a matrix product depend on the number of threads
        computed = dict(zip([setting.label for setting in safe], evaluate_in_thread(study, block, safe), strict=True))
    is_own = not blocks_of_others(store, panel.name)[block.cell, trial // panel.block_trials]
    return [
        Rerun(panel, setting, computed.get(setting.label, outcome), outcome, is_asked=bool(trial < limit) and is_own)
        for (setting, outcome), limit in zip(stored, requested_trials(store, panel)[block.cell], strict=True)
    ]


def refuse_other_numbers(
    client: Client, run: str, store: ResultStore, study: Study, is_edited: bool = False
) -> set[tuple[str, str]]:
    """Recompute one committed trial per panel and method, and return their names; refuse numbers that differ.

    With code that was edited, one trial of every cell is recomputed. Raise `BadInputError` if numbers differ.
    """
    compared: list[tuple[str, str]] = []
    with TasksInFlight(client) as in_flight:
        for panel in study.panels:
            for method in panel.methods:
                if method.unseeded:
                    continue
                committed = (
                    (block, k)
                    for k, setting in enumerate(panel.settings())
                    if setting.method == method
                    for block in ok_trials(store, panel, setting)
                )
                chosen: dict[tuple[int, int], Block] = {}
                for block, k in committed if is_edited else islice(committed, 1):
                    chosen.setdefault((block.cell, k), block)
                for (_, k), block in chosen.items():
                    in_flight.submit(len(compared), compare_numbers, run, block, k)
                    compared.append((panel.name, method.name))
        problem = in_flight.first_problem(
            lambda at: "panel {}, method {} terminates its worker, but the store contains its results".format(
                *compared[at]
            ),
            "the same holds for",
            "case" if is_edited else "method",
        )
    if problem and is_edited:
        again = command("verify", store.url, "--repair", "--all", "--accept-edited-study")
        raise BadInputError(
            f"the edit changes stored numbers: {problem}; restore the code, choose another --store path, or replace "
            f"all numbers with: {again}"
        )
    if problem:
        raise BadInputError(
            f"{problem}; use the package versions and kind of processor that the store records, or choose another "
            "--store path"
        )
    return set(compared)


def refuse_defects(client: Client, run: str, study: Study, compared: Collection[tuple[str, str]]) -> None:
    """Evaluate first trials of every method repeatedly, but for the compared ones; raise `BadInputError` on a defect.

    A trial that terminates its worker is repeated in a child process, and is none of these if it terminates it as well.
    """
    problems, shared = [], shared_methods(study.panels)
    with TasksInFlight(client) as in_flight:
        for panel in study.panels:
            skipped = [method for name, method in compared if name == panel.name]
            for trial in first_trials(panel, skipped, shared[panel.name]):
                in_flight.submit((trial, False), repeat_trial, run, study.spec(), trial, False)
        for result in in_flight.results():
            trial, is_apart = result.payload
            if result.is_lost and not is_apart:
                in_flight.submit((trial, True), repeat_trial, run, study.spec(), trial, True)
            elif result.value or result.transient:
                problems.append(result.value or result.transient)
    if problems:
        raise BadInputError(min(problems))


@on_worker
def repeat_trial(run: str, spec: dict[str, Any], trial: FirstTrial, is_apart: bool) -> str:
    """Evaluate methods on a trial, as `find_defect`, in a child process if there is a time limit."""
    task = registered_task(run)
    study = task.source.load().from_spec(spec)
    if not is_apart and task.time_limit is None:
        return find_defect(study, trial)
    reply = children_of(task, study)(trial)
    return "" if isinstance(reply, End) else reply


@on_worker
def compare_numbers(run: str, block: Block, setting: int) -> str:
    """Recompute one setting of a block on a worker; describe differences from the store, or return an empty string."""
    study, store = registered_task(run).stored()
    panel = study.panel(block.panel)
    chosen = panel.settings()[setting]
    again = Rerun(panel, chosen, evaluate_block(study, block, [chosen])[0], read_outcome(store, panel, block, chosen))
    if again.equal:
        return ""
    return (
        f"panel {panel.name}, {chosen.label}, trial {block.trials.start} gives numbers that differ from the stored "
        f"ones: {again.largest_difference}"
    )
