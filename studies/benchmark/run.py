"""Runs of a benchmark, one study after the other, and their results."""

from collections.abc import Sequence
from dataclasses import replace

from mechanisms.inference.drawn_posterior import LARGEST_RHAT
from pipeline import Panel
from pipeline.execution.work import PendingWork
from pipeline.runs.progress import ProgressDisplay
from pipeline.runs.run import carry_out
from pipeline.runs.run_plan import RunPlan
from pipeline.store.datasets import open_panel
from pipeline.store.result_store import ResultStore
from studies.benchmark.compared_panel import ComparedPanel, panel_of
from studies.benchmark.computation import BenchmarkRun
from studies.benchmark.results import BenchmarkResults, FitCost, compare_methods
from studies.benchmark.shipped import ShippedReferences
from studies.benchmark.times import measure_costs
from studies.output import ERRORS, progress_bar


def compute(runs: Sequence[BenchmarkRun], kind: str) -> BenchmarkResults:
    """Compute the pending trials of all runs, measure costs per fit, and return the results."""
    display = ProgressDisplay(ERRORS, {run.name: _work_of(run.plan) for run in runs if not run.plan.is_done})
    stores = {run.name: run.plan.existing if run.plan.is_done else _carry_out(run, display) for run in runs}
    panels: list[ComparedPanel] = []
    costs: dict[tuple[str, str, str], FitCost] = {}
    with progress_bar("reading results") as show:
        for run in runs:
            store = stores[run.name]
            assert store is not None
            for panel in run.plan.study.panels:
                panels.append(_read_panel(run, panel, store))
                if run.plan.options.time_limit is None:  # otherwise a fit may not end
                    costs |= measure_costs(run, panels[-1], lambda text: show(text=text))
    return compare_methods(kind, panels, costs)


def _read_panel(run: BenchmarkRun, panel: Panel, store: ResultStore) -> ComparedPanel:
    """Return a panel with the own method of a store, and with the references in the same cells."""
    own_ds = open_panel(store, panel.name, lazy=False)
    compared = panel_of(run.name, panel, run.declared.criteria, own_ds)
    compared = replace(compared, own=run.own, origin=describe_references(run, [panel.name]))
    compared = compared.with_methods(own_ds.sel({panel.method_dim: [run.own]}))
    if "rhat" in own_ds:
        large = own_ds["rhat"].sel({panel.method_dim: run.own}) > LARGEST_RHAT
        dims = [dim for dim in large.dims if dim != "trial" and dim not in compared.coordinates]
        compared = replace(compared, n_not_converged=int(large.any(dims).sum()))
    if isinstance(run.reference, ShippedReferences):
        return run.reference.add_to(compared)
    if run.reference is None:
        return compared.with_methods(own_ds)
    ds = open_panel(run.reference, panel.name, lazy=False).sel(compared.coordinates)
    return compared.with_methods(ds.isel(trial=slice(own_ds.sizes["trial"])))


def _carry_out(run: BenchmarkRun, display: ProgressDisplay) -> ResultStore:
    with display.begin(run.name, run.name):
        return carry_out(replace(run.plan, options=replace(run.plan.options, progress=display)))


def _work_of(plan: RunPlan) -> PendingWork:
    return PendingWork(plan.study, None) if plan.pending is None else plan.pending


def describe_references(run: BenchmarkRun, panels: Sequence[str]) -> str:
    """Return the origin of the numbers of the references of some panels."""
    if isinstance(run.reference, ShippedReferences):
        return run.reference.describe(panels)
    source = "computed in this run" if run.reference is None else f"from {run.reference.url}"
    return f"{source}, paired by trial"


def describe_runs(runs: Sequence[BenchmarkRun]) -> list[tuple[str, str]]:
    """Return the provenance of the stores of a benchmark: seed, trials, and the origin of the references."""
    rows = []
    for run in runs:
        spec = run.plan.study.spec()
        trials = ", ".join(f"{name} {panel['trials']:,}" for name, panel in spec["panels"].items())
        origin = describe_references(run, [*spec["panels"]])
        stated = f"seed {spec['seed']}; trials per cell: {trials}; references: {origin}"
        rows.append((run.name, f"{run.path}, {stated}"))
    return rows
