"""Tables of a benchmark: ranks, cells, the worst cells, and numbers of trials for undecided questions."""

import math
from collections.abc import Iterator

import numpy as np

from pipeline.errors import counted
from studies.benchmark.losses import RelativeLoss
from studies.benchmark.results import NOT_TESTED, BenchmarkResults, MethodResult, PanelResult
from studies.benchmark.uniformity import (
    ALL_CELLS,
    LARGE_DEVIATION,
    LEVEL,
    NOT_CALIBRATED,
    UNDECIDED,
    Uniformity,
    UniformityTest,
    detectable_deviation,
    trials_to_detect,
)
from studies.output import format_size
from studies.styles import label_method
from studies.tables import PageTable, plus_minus

HEADS = (
    "rank", "calibration", "relative loss", "coverage", "s per fit (one cell)", "peak memory (one cell)",
    "relative width", "distance", "failed",
)  # fmt: skip
"""Columns of the ranks of methods, after those that name the row."""

_N_WORST = 5
_N_LISTED = 3  # cells that a sentence names
_CRITICAL = 3.3  # standard errors of a ratio from 1 from which a method is better or worse, two-sided level 1e-3
_MOST_TRIALS = 10**7  # numbers of trials beyond which a comparison is a tie


def rank_cells(panel: PanelResult, result: MethodResult) -> tuple[str, ...]:
    """Return the columns `HEADS` of a method in a panel."""
    criteria = panel.compared.criteria
    return (
        panel.rank(result),
        result.calibration,
        show_ratio(result.relative),
        _show_mean(result, criteria.covered),
        f"{result.cost.seconds:.2g}" if math.isfinite(result.cost.seconds) else "",
        "" if result.cost.peak is None else format_size(result.cost.peak),
        show_ratio(result.relative_width),
        _show_mean(result, criteria.distance),
        f"{result.count('failed'):,}",
    )


def show_ratio(relative: RelativeLoss | None) -> str:
    """Return the mean of relative losses with its error, and the number of cells unless all have one."""
    if relative is None or not relative.n_cells:
        return ""
    n_all = len(relative.ratio)
    cells = f" ({relative.n_cells:,} of {counted(n_all, 'cell')})" if relative.n_cells < n_all else ""
    return plus_minus(relative.mean, relative.mean_error) + cells


def _show_mean(result: MethodResult, measure: str) -> str:
    """Return the mean of a measure with its error; empty if the panel lacks it."""
    mean, error = result.mean(measure)
    return f"{mean:.4g} ± unknown" if math.isnan(error) and not math.isnan(mean) else plus_minus(mean, error)


def list_own_ranks(results: BenchmarkResults) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return headings and one row per panel for the own method."""
    rows = [
        (panel.compared.study, panel.compared.panel.name, *rank_cells(panel, panel.own)) for panel in results.panels
    ]
    return ("study", "panel", *HEADS), rows


_UNTESTED = (
    "Calibration is not tested: the data of this panel are not drawn from the assumed model, so that the coverage of "
    "an exact posterior need not be nominal."
)


def tabulate_ranks(panel: PanelResult) -> PageTable:
    """Return the table of all methods of a panel: ranked ones, then others."""
    others = [result for result in panel.methods if result not in panel.ranked]
    labels = panel.compared.coordinate.to_dataset(name="method")
    rows = [
        (label_method(labels, "method", result.method), *rank_cells(panel, result), _count_cells(panel, result))
        for result in (*panel.ranked, *others)
    ]
    compared = panel.compared
    measures = {"Loss": panel.loss, "Distance": compared.criteria.distance}
    stated = [f"{role}: {compared.describe(name)}." for role, name in measures.items() if compared.has(name)]
    untested = [_UNTESTED] if compared.criteria.uniform and not compared.uniform else []
    measured = [f"Seconds and memory: in {cell}." for cell in {result.cost.cell for result in panel.methods} if cell]
    caption = " ".join([f"{compared.panel.meaning}.", *stated, *untested, *measured, f"References: {compared.origin}."])
    return PageTable(compared.title, caption, ("method", *HEADS, "cells"), rows)


def _count_cells(panel: PanelResult, result: MethodResult) -> str:
    counts = result.summary.counts
    computed = (counts["ok"] + counts["failed"] > 0).sum()
    return f"{computed:,} of {len(panel.compared.cells):,}"


def tabulate_cells(panel: PanelResult) -> PageTable:
    """Return the table of the own method in all cells of a panel."""
    compared, own = panel.compared, panel.own
    n_ok, n_failed = own.summary.counts["ok"], own.summary.counts["failed"]
    means = [own.summary.means[measure] for measure in compared.averaged]
    rows = []
    for k, label in enumerate(compared.labels):
        if n_ok[k] + n_failed[k] == 0:
            continue
        tested = _show_tests(own.uniformity.by_cell.get(label))
        relative = _show_cell(own.relative, k)
        shown = (plus_minus(*mean[k]) for mean in means)
        rows.append((label, f"{n_ok[k]:,.0f}", f"{n_failed[k]:,.0f}", *tested, relative, *shown))
    heads = ("cell", "ok", "failed", "calibration", "KS distance", "p-value", "relative loss", *compared.averaged)
    return PageTable(compared.title, f"{own.method} in {counted(len(rows), 'cell')}", heads, rows)


def _show_tests(tests: Uniformity | None) -> tuple[str, str, str]:
    """Return the verdict of the tests of a cell, and the distance and the p-value of the strongest evidence."""
    if tests is None:
        return NOT_TESTED, "", ""
    worst = min(tests.tests, key=lambda test: test.p_value)
    details = {
        NOT_CALIBRATED: f" ({worst.direction})",
        UNDECIDED: f" (would detect {tests.detectable:.2f})",
    }
    return f"{tests.verdict}{details.get(tests.verdict, '')}", f"{worst.distance:.3f}", f"{worst.p_value:.2g}"


def _show_cell(relative: RelativeLoss | None, cell: int) -> str:
    if relative is None or not np.isfinite(relative.ratio[cell]):
        return ""
    return plus_minus(float(relative.ratio[cell]), float(relative.error[cell]))


def list_worst(results: BenchmarkResults) -> PageTable:
    """Return the cells with the smallest p-values, and those with the largest relative losses."""
    pairs = zip(results.uniformity.tests, results.uniformity.adjusted, strict=True)
    tests = sorted((pair for pair in pairs if not pair[0].is_pooled), key=lambda pair: pair[0].p_value)
    rows = [
        (_place(test), f"uniform {test.subject}", f"KS distance {test.distance:.3f}, p {test.p_value:.2g}",
         f"{adjusted:.2g}")
        for test, adjusted in tests[:_N_WORST]
    ]  # fmt: skip
    losses = sorted(_losses(results), key=lambda cell: -cell[2])
    for panel, k, ratio, _ in losses[:_N_WORST]:
        where = f"{panel.compared.title}, {panel.compared.labels[k]}"
        if ratio > 1.0:
            rows.append((where, f"relative loss ({panel.loss})", _show_cell(panel.own.relative, k), ""))
    heads = ("cell", "criterion", "result", "adjusted p-value")
    return PageTable("Worst cells", f"Up to {_N_WORST} cells per criterion, the worst first.", heads, rows, (0,))


def _losses(results: BenchmarkResults) -> Iterator[tuple[PanelResult, int, float, float]]:
    """Yield the cells in which the own method has a relative loss: panel, cell, its value and error."""
    for panel in results.panels:
        relative = panel.own.relative
        if relative is not None:
            for k in np.flatnonzero(np.isfinite(relative.ratio) & (relative.error > 0)):
                yield panel, int(k), float(relative.ratio[k]), float(relative.error[k])


def list_undecided(results: BenchmarkResults) -> PageTable:
    """Return the questions that the trials leave open, and the number of trials per cell that would decide them."""
    rows = []
    n_tests = len(results.uniformity.tests)
    for panel in results.panels:
        own, name = panel.own, panel.compared.title
        if cells := own.cells_with(UNDECIDED):
            largest = max(own.uniformity.by_cell[cell].detectable for cell in cells)
            stated = f"in {own.count_cells(cells)}, only deviations of {largest:.2f} or more would be detected"
            n_ok, n_failed = (own.summary.counts[kind] for kind in ("ok", "failed"))
            share = (n_ok / np.maximum(n_ok + n_failed, 1))[n_ok > 0].min(initial=1.0)  # of failed trials none is used
            needed = math.ceil(trials_to_detect(LARGE_DEVIATION, n_tests) / share)
            rows.append((name, f"calibrated to {LARGE_DEVIATION}?", stated, f"{needed:,}"))
    for panel, k, ratio, error in _losses(results):
        if abs(ratio - 1.0) >= _CRITICAL * error:
            continue
        assert panel.own.relative is not None
        # own trials reduce the rest of the squared error
        fixed, tolerated = panel.own.relative.fixed[k] ** 2, max(abs(ratio - 1.0) / _CRITICAL, 1e-12) ** 2
        is_possible = tolerated > fixed
        n_trials = panel.own.relative.n[k] * (error**2 - fixed) / (tolerated - fixed) if is_possible else math.inf
        where = f"{panel.compared.title}, {panel.compared.labels[k]}"
        undecided = "a tie" if fixed == 0.0 else "more trials of references, see --recompute"
        stated = f"{math.ceil(n_trials):,}" if n_trials < _MOST_TRIALS else undecided
        if panel.compared.most_paired.get(panel.loss, math.inf) < n_trials < _MOST_TRIALS:
            stated += ", with --recompute"
        rows.append((where, "better than the best calibrated method?", _show_cell(panel.own.relative, k), stated))
    heads = ("cell", "question", "estimate", "trials per cell")
    caption = (
        "Numbers of trials per cell at which the present estimates would be decided, at 3.3 standard errors for "
        "losses. Estimates change with more trials."
    )
    return PageTable("Undecided", caption, heads, rows, (0,))


def state_sensitivity(results: BenchmarkResults) -> str:
    """Return what the tests of calibration detect, as sentences."""
    tests = results.uniformity.tests
    if not tests:
        return "No panel tests the calibration of this method."
    single = max(detectable_deviation(test.n, len(tests)) for test in tests if not test.is_pooled)
    pooled = [detectable_deviation(test.n, len(tests)) for test in tests if test.is_pooled]
    everywhere = f" one of {max(pooled):.2f} in all cells of a panel, and" if pooled else ""
    return (
        f"{len(tests):,} tests at a family-wise level of {LEVEL:g}: with probability 0.9 or more, they detect a "
        f"deviation of the distribution function of the quantiles, or of the levels of central intervals:{everywhere} "
        f"one of {single:.2f} in any single cell. Where no test is rejected, a cell passed if one of {LARGE_DEVIATION} "
        "would be detected in it; smaller ones may remain."
    )


def _place(test: UniformityTest) -> str:
    return f"{test.study}, {test.panel}, {test.cell}"


def describe_rejected(result: MethodResult) -> str:
    """Return the cells of a panel in which tests are rejected, and the direction of the strongest evidence in each.

    An example is "3 of 18 cells of calibration, binomial: n=100, epsilon=0.1 (intervals too narrow); ...".
    """
    strongest: dict[str, UniformityTest] = {}
    for test in result.uniformity.rejected:
        strongest.setdefault(test.cell, test)
    title, pooled = result.compared.title, strongest.pop(ALL_CELLS, None)
    if not strongest:
        assert pooled is not None
        return f"all cells of {title} together ({pooled.direction})"
    listed = [f"{cell} ({test.direction})" for cell, test in list(strongest.items())[:_N_LISTED]]
    more = [f"{len(strongest) - _N_LISTED:,} more"] if len(strongest) > _N_LISTED else []
    return f"{result.count_cells([*strongest])} of {title}: {'; '.join([*listed, *more])}"
