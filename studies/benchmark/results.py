"""Results of a benchmark: calibration, relative losses, coverage and cost of all methods in each panel."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from pipeline.errors import counted
from studies.benchmark.compared_panel import ComparedPanel
from studies.benchmark.losses import RelativeLoss, compare_losses
from studies.benchmark.method_summary import CellMeans, MethodSummary
from studies.benchmark.uniformity import (
    NOT_CALIBRATED,
    PASSED,
    UNDECIDED,
    Uniformity,
    judge_tests,
    run_tests,
)

NOT_TESTED = "not tested"


@dataclass(frozen=True)
class MethodResult:
    """Results of one method in a panel."""

    compared: ComparedPanel = field(repr=False)
    method: str
    family: Uniformity = field(repr=False)  # all tests of the method
    relative: RelativeLoss | None  # to the best calibrated reference of each cell
    relative_width: RelativeLoss | None  # widths of intervals relative to the same reference
    cost: "FitCost"

    @cached_property
    def uniformity(self) -> Uniformity:
        """Tests in this panel, adjusted for all tests of the method."""
        return self.family.of_panel(self.compared.study, self.compared.panel.name)

    @property
    def calibration(self) -> str:
        """Verdict on the calibration in this panel, such as "not calibrated (3 of 18 cells)".

        It is "passed" only if every tested cell passed.
        """
        if not self.uniformity.tests:
            return NOT_TESTED
        if self.uniformity.rejected:
            cells = self.cells_with(NOT_CALIBRATED)
            return f"{NOT_CALIBRATED} ({self.count_cells(cells) if cells else 'all cells together'})"
        cells = self.cells_with(UNDECIDED)
        return f"{UNDECIDED} ({self.count_cells(cells)})" if cells else PASSED

    def cells_with(self, verdict: str) -> list[str]:
        """Return the labels of the cells with a verdict."""
        return [cell for cell, tests in self.uniformity.by_cell.items() if tests.verdict == verdict]

    def count_cells(self, cells: Sequence[str]) -> str:
        """Return the number of some tested cells, such as "3 of 18 cells"."""
        return f"{len(cells):,} of {counted(len(self.uniformity.by_cell), 'cell')}"

    @property
    def is_admitted(self) -> bool:
        """True for a private method that no test has rejected; in a panel without tests, no test of the study."""
        tested = self.uniformity if self.uniformity.tests else self.family.of_study(self.compared.study)
        return _is_admitted(self.compared, self.method, tested)

    @property
    def summary(self) -> MethodSummary:
        """Numbers of the method by cell."""
        return self.compared.summaries[self.method]

    def count(self, *kinds: str) -> int:
        """Return the number of trials that are "ok", "failed" or "pending"."""
        return int(sum(self.summary.counts[kind].sum() for kind in kinds))

    def mean(self, measure: str) -> tuple[float, float]:
        """Return the mean of a measure over cells and components, with its error; NaN if the panel lacks it.

        Cells with the same data have dependent errors, which are added; the error is then an upper bound.
        """
        if measure not in self.summary.means:
            return math.nan, math.nan
        means, errors = self.summary.means[measure].T
        used, groups = np.isfinite(means), self.compared.data_groups
        if not used.any():
            return math.nan, math.nan
        of_groups = np.bincount(groups[used], errors[used])  # NaN if the error of one of the cells is unknown
        return float(means[used].mean()), float(np.sqrt((of_groups**2).sum()) / used.sum())


@dataclass(frozen=True)
class PanelResult:
    """Results of all methods in a panel; the own one is first."""

    compared: ComparedPanel = field(repr=False)
    methods: Sequence[MethodResult]

    @property
    def own(self) -> MethodResult:
        """Results of the own method."""
        return self.methods[0]

    @property
    def loss(self) -> str:
        """Measure by which the methods are ranked; empty if the panel has none."""
        return self.compared.loss

    @cached_property
    def ranked(self) -> list[MethodResult]:
        """Admitted methods that have a relative loss, the smallest first."""
        having = [result for result in self.methods if result.relative and np.isfinite(result.relative.mean)]
        return sorted((result for result in having if result.is_admitted), key=_mean_ratio)

    def rank(self, result: MethodResult) -> str:
        """Return the rank of a method, such as "2 of 5"; empty for methods that have none."""
        return f"{self.ranked.index(result) + 1} of {len(self.ranked)}" if result in self.ranked else ""


def _mean_ratio(result: MethodResult) -> float:
    assert result.relative is not None
    return result.relative.mean


@dataclass(frozen=True)
class BenchmarkResults:
    """Results of a method in all panels."""

    own: str
    kind: str
    panels: Sequence[PanelResult]
    uniformity: Uniformity  # all tests of the own method

    @property
    def is_calibrated(self) -> bool:
        """False if a test has rejected the own method."""
        return not self.uniformity.rejected

    @property
    def n_failed(self) -> int:
        """Number of failed trials of the own method."""
        return sum(panel.own.count("failed") for panel in self.panels)

    @property
    def has_broken_guarantee(self) -> bool:
        """True if an audit of the own method has found a larger privacy loss than the stated one."""
        return any(panel.compared.audit.get("verdict") == "broken" for panel in self.panels)


@dataclass(frozen=True)
class FitCost:
    """Cost of one fit on this machine."""

    seconds: float = math.nan
    peak: int | None = None  # traced peak memory in bytes; None if it is not known
    cell: str = ""  # in which it was measured


Costs = Mapping[tuple[str, str, str], FitCost]
"""(Study, panel, method) -> cost."""


def compare_methods(kind: str, panels: Sequence[ComparedPanel], costs: Costs) -> BenchmarkResults:
    """Return the results of all methods; tests of the own one are adjusted over all studies, of others by study."""
    own = panels[0].own
    uniformity = judge_tests([test for panel in panels for test in run_tests(panel, own)])
    families = {**judge_references(panels), **{(panel.study, own): uniformity for panel in panels}}
    results = [_compare(panel, families, costs) for panel in panels]
    return BenchmarkResults(own, kind, results, uniformity)


Families = Mapping[tuple[str, str], Uniformity]
"""(Study, method) -> all tests of the method in the study."""


def judge_references(panels: Sequence[ComparedPanel]) -> dict[tuple[str, str], Uniformity]:
    """Return the tests of all references, adjusted by study."""
    families = {}
    for study, method in dict.fromkeys((panel.study, method) for panel in panels for method in panel.references):
        of_study = [panel for panel in panels if panel.study == study and method in panel.methods]
        families[study, method] = judge_tests([test for panel in of_study for test in run_tests(panel, method)])
    return families


def best_references(panel: ComparedPanel, families: Families) -> list[str | None]:
    """Return the calibrated reference with the smallest mean loss in each cell, or None without one."""
    return [_best_reference(panel, families, cell) for cell in range(len(panel.cells))]


def _compare(panel: ComparedPanel, families: Families, costs: Costs) -> PanelResult:
    best = best_references(panel, families)
    losses, widths = _relative(panel, panel.loss, best), _relative(panel, panel.width, best)
    return PanelResult(
        panel,
        [
            MethodResult(
                panel,
                method,
                families[panel.study, method],
                losses.get(method),
                widths.get(method),
                costs.get((panel.study, panel.panel.name, method), FitCost()),
            )
            for method in panel.methods
        ],
    )


def _relative(panel: ComparedPanel, measure: str, best: Sequence[str | None]) -> dict[str, RelativeLoss]:
    """Return a measure of all methods relative to that of the best reference of each cell; none without a measure."""
    values: dict[str, Sequence[CellMeans]] = {
        method: summary.in_cells(measure) for method, summary in panel.summaries.items() if measure
    }
    bases = [values[name][cell] if name is not None and measure else None for cell, name in enumerate(best)]
    return {method: compare_losses(by_cell, bases, panel.data_groups) for method, by_cell in values.items()}


def _best_reference(panel: ComparedPanel, families: Families, cell: int) -> str | None:
    means = {}
    for method in panel.references if panel.loss else ():
        family = families[panel.study, method]
        in_cell = family.of_panel(panel.study, panel.panel.name).in_cell(panel.labels[cell])
        mean = panel.summaries[method].means[panel.loss][cell, 0]
        if np.isfinite(mean) and _is_admitted(panel, method, in_cell if in_cell.tests else family):
            means[method] = mean
    return min(means, key=means.__getitem__) if means else None


def _is_admitted(panel: ComparedPanel, method: str, tested: Uniformity) -> bool:
    """Return True for a private method with tests of which none is rejected, or in a study without tests.

    A method whose audit has found a larger privacy loss than the stated one is not private.
    """
    if method in panel.without_privacy or panel.audits.get(method, {}).get("verdict") == "broken":
        return False
    return not panel.criteria.uniform or (bool(tested.tests) and not tested.rejected)
