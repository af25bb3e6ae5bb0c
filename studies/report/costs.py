"""Costs of methods on the page of a store: seconds and memory per evaluation, as its sessions recorded them."""

from collections.abc import Iterator, Mapping

import numpy as np
import xarray as xr

from pipeline import Figure, Panel
from pipeline.declare.factors import format_values
from pipeline.store.sessions.costs import MethodCosts
from studies.claims import Summaries
from studies.figures import Axis, Plot
from studies.figures.costs import plot_against_cost
from studies.output import format_size
from studies.report.results import StudyResults
from studies.styles import STYLES_OF_KINDS
from studies.tables import PageTable

Costs = Mapping[str, Mapping[str, tuple[int, float]]]
"""Panel -> method -> number of ok evaluations and their seconds."""


def read_costs(results: StudyResults) -> Costs:
    """Return the costs of those methods with ok evaluations, by panel; failed evaluations are not timed.

    Sessions count all evaluations, of which the ok ones are taken to have the share that they have in the store.
    """
    recorded = MethodCosts.of(results.sessions).by_panel
    return {
        panel.name: {
            method.name: (n_ok, seconds)
            for method in panel.methods
            for n, seconds in [recorded.get(panel.name, {}).get(method.name, (0, 0.0))]
            if n and (n_ok := round(n * _share_of_ok(results.summaries[panel.name], panel, method.name)))
        }
        for panel in results.study.panels
    }


def _share_of_ok(summary: xr.Dataset, panel: Panel, method: str) -> float:
    """Return the share of ok trials among the ok and failed ones of a method."""
    trials = summary if panel.method_dim is None else summary.sel({panel.method_dim: method})
    n_ok, n_failed = (int(trials[name].sum()) for name in ("n_ok", "n_failed"))
    return n_ok / max(n_ok + n_failed, 1)


def tabulate_costs(costs: Costs, peaks: Mapping[str, Mapping[str, int]]) -> list[tuple[PageTable, int]]:
    """Return the table of the methods' costs with its number of names, in a list that is empty without a record."""
    rows = [
        (panel, method, f"{n:,}", f"{seconds / n:.2g}", f"{seconds:.2g}", _show_peak(peaks.get(panel, {}).get(method)))
        for panel, methods in costs.items()
        for method, (n, seconds) in methods.items()
    ]
    meaning = (
        "Wall-clock seconds of the methods on the workers, without the simulation of data, in the sessions that ended "
        "and recorded them; failed evaluations are not timed, and the mean is over the ok ones in all cells and "
        "settings in which a method was computed. Peak memory is that of one trial in the last cell of the method, as "
        "Python and NumPy report it: without the data, and without memory of compiled code and of other programs. It "
        "is measured in as far as that takes less than 1.5 % of the time of a session."
    )
    heads = ("panel", "method", "ok evaluations", "mean s per ok evaluation", "s in all", "peak memory (last cell)")
    return [(PageTable("costs", meaning, heads, rows), 2)] if rows else []


def _show_peak(peak: int | None) -> str:
    return "" if peak is None else format_size(peak)


def draw_costs(results: StudyResults, costs: Costs) -> tuple[Figure, ...]:
    """Return the figure of losses against seconds, if the study declares a loss and some seconds were recorded."""
    drawn = {
        panel.name: (panel, loss)
        for panel in results.study.panels
        for loss in [results.study.criteria.loss_of(panel)]
        if loss and len(costs[panel.name]) > 1 and f"{loss}_mean" in results.summaries.get(panel.name, ())
    }
    caption = (
        "Mean loss with bars of two Monte Carlo standard errors, in the last cell that the most methods support, "
        "against the mean seconds per ok evaluation over all cells; smaller is better."
    )

    def draw(summaries: Summaries) -> list[Plot]:
        stored = {name: drawn[name] for name in drawn if name in summaries}
        return [
            plot for name, (panel, loss) in stored.items() for plot in _plot(panel, loss, summaries[name], costs[name])
        ]

    return (Figure("cost", "Accuracy against cost", caption, tuple(drawn), draw),) if drawn else ()


def _plot(panel: Panel, loss: str, summary: xr.Dataset, costs: Mapping[str, tuple[int, float]]) -> Iterator[Plot]:
    by = panel.method_dim or ""
    outputs = [axis.name for axis in panel.outputs]
    ds = summary[[f"{loss}_mean", f"{loss}_mcse"]].rename({by: "method"})
    ds = ds.mean([dim for dim in outputs if dim in ds[f"{loss}_mean"].dims], keep_attrs=True)
    means = {name: seconds / n for name, (n, seconds) in costs.items() if seconds > 0}  # records have milliseconds
    ds = ds.isel(method=[k for k, name in enumerate(ds["method"].values.tolist()) if name in means])
    cells = [str(dim) for dim in ds.dims if dim != "method"]
    if cells:
        n_methods = ds[f"{loss}_mean"].notnull().sum("method").transpose(*cells)
        last = np.argwhere((n_methods == n_methods.max()).values)[-1]
        ds = ds.isel(dict(zip(cells, last.tolist(), strict=True)))
    ds = ds.isel(method=np.flatnonzero(ds[f"{loss}_mean"].notnull()))
    if ds.sizes["method"] < 2:
        return
    cell = ", ".join(format_values({dim: ds[dim].item() for dim in cells}))
    names = ds["method"].values.tolist()
    yield from plot_against_cost(
        f"{panel.name}, {cell}" if cell else panel.name,
        ds["method"],
        [means[name] for name in names],
        ds[f"{loss}_mean"].values.tolist(),
        ds[f"{loss}_mcse"].values.tolist(),
        next((STYLES_OF_KINDS[kind] for kind in panel.accepts if kind in STYLES_OF_KINDS), {}),
        Axis(f"mean loss ({loss})"),
    )
