"""Figures of a benchmark: calibration and relative loss by cell, and accuracy against cost."""

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
import xarray as xr

from pipeline import Figure
from studies.benchmark.compared_panel import ALL_DATA
from studies.benchmark.results import BenchmarkResults, MethodResult, PanelResult
from studies.benchmark.uniformity import LEVEL, NOT_CALIBRATED
from studies.figures import Axis, Chart, Plot
from studies.figures.costs import plot_against_cost
from studies.styles import STYLES_OF_KINDS, Styles

_WIDE = 30.0  # ratio of values of a factor from which its axis is logarithmic


def figures_of(results: BenchmarkResults) -> tuple[Figure, ...]:
    """Return the figures of a benchmark, each with one plot per panel that has results; they read no summaries."""

    def figure(name: str, title: str, caption: str, draw: Callable[[PanelResult], list[Plot]]) -> Figure:
        return Figure(name, title, caption, (), lambda _: [plot for panel in results.panels for plot in draw(panel)])

    styles = STYLES_OF_KINDS.get(results.kind, {})
    together = [
        f"{result.method} in {panel.compared.title}"
        for panel in results.panels
        for result in panel.methods
        if result.uniformity.rejected and not result.cells_with(NOT_CALIBRATED)
    ]
    return (
        figure(
            "calibration",
            "Calibration by cell",
            "Largest Kolmogorov-Smirnov distance over the components, of the quantiles or of the levels of central "
            f"intervals, divided by the distance that a test at the level {LEVEL:g}/number of tests of the method "
            "rejects. Methods above 1 are not calibrated. Tests of all cells together are not shown"
            f"{'; they alone reject ' if together else ''}{'; '.join(together)}.",
            lambda panel: _by_cell(panel, styles, _ratios_of_distances, "KS distance / rejected one"),
        ),
        figure(
            "relative-loss",
            "Relative loss by cell",
            "Mean loss divided by that of the best calibrated reference in the cell, with bars of two Monte Carlo "
            "standard errors; smaller is better.",
            lambda panel: _by_cell(panel, styles, _relative_losses, f"relative loss ({panel.loss})", "lowest"),
        ),
        figure(
            "cost",
            "Accuracy against cost",
            "Relative loss, averaged over cells, against the seconds per fit in one cell on this machine; methods that "
            "are not calibrated are included.",
            lambda panel: _against_cost(panel, styles),
        ),
    )


_Source = Callable[[MethodResult], tuple[np.ndarray, np.ndarray] | None]
"""Function of the results of a method that returns values and errors by cell, or None."""


def _ratios_of_distances(result: MethodResult) -> tuple[np.ndarray, np.ndarray] | None:
    from scipy.stats import kstwo  # slow import

    if not result.uniformity.tests:
        return None
    share = LEVEL / len(result.family.tests)
    ratios = np.full(len(result.compared.cells), math.nan)
    for k, label in enumerate(result.compared.labels):
        tests = result.uniformity.in_cell(label).tests
        if tests:
            ratios[k] = max(test.distance / kstwo.isf(share, test.n) for test in tests)
    return ratios, np.full(ratios.shape, math.nan)


def _relative_losses(result: MethodResult) -> tuple[np.ndarray, np.ndarray] | None:
    if result.relative is None or not result.relative.n_cells:
        return None
    return result.relative.ratio, result.relative.error


def _by_cell(
    panel: PanelResult, styles: Styles, source: _Source, label: str, best: Literal["", "lowest"] = ""
) -> list[Plot]:
    """Return the plot of a panel against its first factor of numbers with several values, or its first factor."""
    columns = [source(result) for result in panel.methods]
    if all(column is None for column in columns):
        return []
    compared = panel.compared
    sizes = {dim: values.size for dim, values in compared.coordinates.items()} or {"data": 1}
    missing = np.full(len(compared.cells), math.nan)
    arrays = [np.stack([(column or (missing, missing))[k] for column in columns], axis=-1) for k in range(2)]
    names = ("ratio_mean", "ratio_mcse")
    dims = (*sizes, "method")
    ds = xr.Dataset(
        {name: (dims, array.reshape(*sizes.values(), -1)) for name, array in zip(names, arrays, strict=True)},
        {**compared.coordinates, "method": compared.coordinate},
    )
    ds = ds.assign_coords(data=[ALL_DATA]) if not compared.coordinates else ds
    varying = [dim for dim, size in sizes.items() if size > 1]
    numeric = [dim for dim in varying if np.issubdtype(ds[dim].dtype, np.number)]
    over = next(iter([*numeric, *varying, *sizes]))
    values = ds[over].values
    is_wide = over in numeric and values.min() > 0 and values.max() >= _WIDE * values.min()
    ds = ds.squeeze([dim for dim in sizes if dim != over and sizes[dim] == 1], drop=True)
    positive = arrays[0][arrays[0] > 0.0]  # others are outside of a logarithmic axis, which the caption states
    is_tall = positive.size > 0 and positive.max() >= _WIDE * positive.min()
    chart = Chart(
        lambda summaries: {compared.title: ds}, over,
        {"y": "ratio_mean"}, "method", styles, x=Axis(log=is_wide), y=Axis(label, log=is_tall, covers=(1.0,)),
        across={"level": 1.0},
        pick={dim: f"{dim} = {{}}" for dim in varying if dim != over}, height=260, first=(compared.own,),
        best=best)  # fmt: skip
    return chart({})


def _against_cost(panel: PanelResult, styles: Styles) -> list[Plot]:
    """Return the plot of a panel with one point per method that has a relative loss and a time."""
    timed = [
        result
        for result in panel.methods
        if result.relative is not None and np.isfinite(result.relative.mean) and result.cost.seconds > 0
    ]
    if not timed:
        return []
    return plot_against_cost(
        panel.compared.title,
        panel.compared.coordinate.isel(method=[panel.methods.index(result) for result in timed]),
        [result.cost.seconds for result in timed],
        [result.relative.mean for result in timed if result.relative is not None],
        [result.relative.mean_error for result in timed if result.relative is not None],
        styles,
        Axis(f"relative loss ({panel.loss})", covers=(1.0,)),
        across={"level": 1.0},
        marks=("level", "errors", "points"),
        first=(panel.compared.own,),
    )
