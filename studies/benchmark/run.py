"""Runs of a benchmark, one study after the other, and their results."""

from collections.abc import Sequence
from dataclasses import replace

from pipeline.execution.work import PendingWork
from pipeline.runs.progress import ProgressDisplay
from pipeline.runs.run import carry_out
from pipeline.runs.run_plan import RunPlan
from pipeline.store.result_store import ResultStore
from studies.benchmark.computation import BenchmarkRun
from studies.benchmark.panel_trials import PanelTrials, read_trials
from studies.benchmark.results import BenchmarkResults, compare_methods
from studies.benchmark.times import measure_seconds
from studies.output import ERRORS, progress_bar


def compute(runs: Sequence[BenchmarkRun], kind: str) -> BenchmarkResults:
    """Compute the pending trials of all runs, measure seconds per fit, and return the results."""
    display = ProgressDisplay(ERRORS, {run.name: _work_of(run.plan) for run in runs if not run.plan.is_done})
    stores = {run.name: run.plan.existing if run.plan.is_done else _carry_out(run, display) for run in runs}
    panels: list[PanelTrials] = []
    seconds: dict[tuple[str, str, str], float] = {}
    with progress_bar("reading results") as show:
        for run in runs:
            store = stores[run.name]
            assert store is not None
            for panel in run.plan.study.panels:
                trials = read_trials(run.name, panel, run.declared.criteria, run.own, store, run.reference)
                panels.append(trials)
                seconds |= measure_seconds(run, trials, lambda text: show(text=text))
    return compare_methods(kind, panels, seconds)


def _carry_out(run: BenchmarkRun, display: ProgressDisplay) -> ResultStore:
    with display.begin(run.name, run.name):
        return carry_out(replace(run.plan, options=replace(run.plan.options, progress=display)))


def _work_of(plan: RunPlan) -> PendingWork:
    return PendingWork(plan.study, None) if plan.pending is None else plan.pending


def describe_runs(runs: Sequence[BenchmarkRun]) -> list[tuple[str, str]]:
    """Return the provenance of the stores of a benchmark: seed, spec, and the store of the references."""
    rows = []
    for run in runs:
        spec = run.plan.study.spec()
        trials = ", ".join(f"{name} {panel['trials']:,}" for name, panel in spec["panels"].items())
        reference = f"; references from {run.reference.url}" if run.reference is not None else ""
        rows.append((run.name, f"{run.path}, seed {spec['seed']}; trials per cell: {trials}{reference}"))
    return rows
