"""Results of a benchmark: calibration, relative losses, coverage and cost of all methods in each panel."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from pipeline import Status
from pipeline.blocks.evaluate import FAILURES
from studies.benchmark.losses import RelativeLoss, compare_losses
from studies.benchmark.panel_trials import Array, PanelTrials
from studies.benchmark.uniformity import (
    ALL_CELLS,
    LARGE_DEVIATION,
    Uniformity,
    UniformityTest,
    detectable_deviation,
    judge_tests,
    run_tests,
)

NOT_CALIBRATED, PASSED, UNDECIDED, NOT_TESTED = "not calibrated", "passed", "undecided", "not tested"


@dataclass(frozen=True)
class MethodResult:
    """Results of one method in a panel."""

    trials: PanelTrials = field(repr=False)
    method: str
    family: Uniformity = field(repr=False)  # all tests of the method
    relative: RelativeLoss | None  # to the best calibrated reference of each cell
    relative_width: RelativeLoss | None  # widths of intervals relative to the same reference
    seconds: float  # per fit

    @cached_property
    def uniformity(self) -> Uniformity:
        """Tests in this panel, adjusted for all tests of the method."""
        return self.family.of_panel(self.trials.study, self.trials.panel.name)

    @property
    def calibration(self) -> str:
        """Verdict on the calibration in this panel."""
        if not self.uniformity.tests:
            return NOT_TESTED
        if self.uniformity.rejected:
            return NOT_CALIBRATED
        return PASSED if self.detectable <= LARGE_DEVIATION else UNDECIDED

    def worst_test(self, cell: str) -> UniformityTest | None:
        """Return the test of a cell with the smallest p-value, or None if there is none."""
        return min(self.uniformity.in_cell(cell).tests, key=lambda test: test.p_value, default=None)

    @property
    def detectable(self) -> float:
        """Deviation in all cells of the panel that its tests detect."""
        tests = self.uniformity.in_cell(ALL_CELLS).tests or self.uniformity.tests
        return max(detectable_deviation(test.n, len(self.family.tests)) for test in tests)

    @property
    def is_admitted(self) -> bool:
        """True for a private method that no test has rejected; in a panel without tests, no test of the study."""
        tested = self.uniformity if self.uniformity.tests else self.family
        return _is_admitted(self.trials, self.method, tested)

    @property
    def n_ok(self) -> int:
        """Number of ok trials."""
        return int(self.trials.count(self.method, Status.OK).sum())

    @property
    def n_failed(self) -> int:
        """Number of failed trials."""
        return int(self.trials.count(self.method, *FAILURES).sum())

    @property
    def n_pending(self) -> int:
        """Number of trials that are not computed."""
        return int(self.trials.count(self.method, Status.PENDING).sum())

    def mean(self, measure: str) -> tuple[float, float]:
        """Return the mean of a measure over cells and components, with its error; NaN if the panel lacks it."""
        by_cell = [pair for pair in self.means(measure) if np.isfinite(pair[0])]
        if not by_cell:
            return math.nan, math.nan
        means, errors = np.transpose(by_cell)
        return float(means.mean()), float(np.sqrt(np.nansum(errors**2)) / len(by_cell))

    def means(self, measure: str) -> list[tuple[float, float]]:
        """Return the mean of a measure over components and trials in each cell, with its error."""
        if not measure or not self.trials.has(measure):
            return [(math.nan, math.nan)] * len(self.trials.cells)
        return [_mean_of_trials(values) for values in self.trials.values(self.method, measure)]


def _mean_of_trials(values: Array) -> tuple[float, float]:
    """Return the mean of values, shape (component, trial), over their averages in trials, with its error."""
    present = ~np.isnan(values)
    n_present = present.sum(axis=0)
    averages = np.where(present, values, 0.0).sum(axis=0)[n_present > 0] / n_present[n_present > 0]
    n = averages.size
    return (
        float(averages.mean()) if n else math.nan,
        float(averages.std(ddof=1) / math.sqrt(n)) if n > 1 else math.nan,
    )


@dataclass(frozen=True)
class PanelResult:
    """Results of all methods in a panel; the own one is first."""

    trials: PanelTrials = field(repr=False)
    methods: Sequence[MethodResult]

    @property
    def own(self) -> MethodResult:
        """Results of the own method."""
        return self.methods[0]

    @property
    def loss(self) -> str:
        """Measure by which the methods are ranked; empty if the panel has none."""
        return next(filter(self.trials.has, self.trials.criteria.loss), "")

    @cached_property
    def ranked(self) -> list[MethodResult]:
        """Admitted methods that have a relative loss, the smallest first."""
        having = [result for result in self.methods if result.relative and np.isfinite(result.relative.mean_log)]
        return sorted((result for result in having if result.is_admitted), key=_mean_log)

    def rank(self, result: MethodResult) -> str:
        """Return the rank of a method, such as "2 of 5"; empty for methods that have none."""
        return f"{self.ranked.index(result) + 1} of {len(self.ranked)}" if result in self.ranked else ""


def _mean_log(result: MethodResult) -> float:
    assert result.relative is not None
    return result.relative.mean_log


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
        return sum(panel.own.n_failed for panel in self.panels)

    @property
    def has_broken_guarantee(self) -> bool:
        """True if an audit of the own method has found a larger privacy loss than the stated one."""
        return any(panel.trials.audit.get("verdict") == "broken" for panel in self.panels)


Seconds = Mapping[tuple[str, str, str], float]
"""(Study, panel, method) -> seconds per fit."""


def compare_methods(kind: str, panels: Sequence[PanelTrials], seconds: Seconds) -> BenchmarkResults:
    """Return the results of all methods; tests of the own one are adjusted over all studies, of others by study."""
    own = panels[0].own
    uniformity = judge_tests([test for panel in panels for test in run_tests(panel, own)])
    families: dict[tuple[str, str], Uniformity] = {(panel.study, own): uniformity for panel in panels}
    for study, method in dict.fromkeys((panel.study, method) for panel in panels for method in panel.references):
        of_study = [panel for panel in panels if panel.study == study and method in panel.methods]
        families[study, method] = judge_tests([test for panel in of_study for test in run_tests(panel, method)])
    results = [_compare(panel, families, seconds) for panel in panels]
    return BenchmarkResults(own, kind, results, uniformity)


def _compare(panel: PanelTrials, families: Mapping[tuple[str, str], Uniformity], seconds: Seconds) -> PanelResult:
    loss = next(filter(panel.has, panel.criteria.loss), "")
    losses = {method: panel.values(method, loss) for method in panel.methods} if loss else {}
    best = [_best_reference(panel, losses, families, cell) for cell in range(len(panel.cells))]
    width = panel.criteria.width if panel.has(panel.criteria.width) else ""
    widths = {method: panel.values(method, width) for method in panel.methods} if width else {}
    return PanelResult(
        panel,
        [
            MethodResult(
                panel,
                method,
                families[panel.study, method],
                _relative(panel, losses, method, best),
                _relative(panel, widths, method, best),
                seconds.get((panel.study, panel.panel.name, method), math.nan),
            )
            for method in panel.methods
        ],
    )


def _relative(
    panel: PanelTrials, values: Mapping[str, Array], method: str, best: Sequence[str | None]
) -> RelativeLoss | None:
    """Return the values of a method relative to those of the best reference of each cell; None without values."""
    if not values:
        return None
    bases = [values[name][cell] if name is not None else None for cell, name in enumerate(best)]
    return compare_losses(list(values[method]), bases, panel.data_groups)


def _best_reference(
    panel: PanelTrials, losses: Mapping[str, Array], families: Mapping[tuple[str, str], Uniformity], cell: int
) -> str | None:
    """Return the calibrated reference with the smallest mean loss in a cell, or None without one."""
    means = {}
    for method in panel.references if losses else ():
        family = families[panel.study, method]
        in_cell = family.of_panel(panel.study, panel.panel.name).in_cell(panel.labels[cell])
        mean = _mean_of_trials(losses[method][cell])[0]
        if np.isfinite(mean) and _is_admitted(panel, method, in_cell if in_cell.tests else family):
            means[method] = mean
    return min(means, key=means.__getitem__) if means else None


def _is_admitted(panel: PanelTrials, method: str, tested: Uniformity) -> bool:
    """Return True for a private method with tests of which none is rejected, or in a study without tests."""
    if method in panel.without_privacy:
        return False
    return not panel.criteria.uniform or (bool(tested.tests) and not tested.rejected)
