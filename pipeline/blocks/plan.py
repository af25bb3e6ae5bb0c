"""Estimates of the cost of a study before a run: trials, blocks, storage, time and Monte Carlo error.

Time and error are estimated from a pilot run, which computes a few trials of as many cells as the time allows.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pipeline.blocks.evaluate import BUDGET, Block, Outcome, Status, evaluate_block
from pipeline.blocks.one_thread import one_thread
from pipeline.declare.panel import Panel
from pipeline.declare.study import Study

_PILOT_TRIALS = 200
_PILOT_SETTINGS = 3  # number of piloted settings of panels with `settings_apart`


@dataclass(frozen=True)
class PanelPlan:
    """Estimated cost of one panel.

    Attributes
    ----------
    panel : str
        Name of the panel.
    n_cells, n_settings, n_trials, n_blocks : int
        Cells, settings per cell, trials per cell, and total number of blocks.
    n_bytes : int
        Size of the arrays before compression.
    seconds : float
        Expected time on one core.
    n_piloted : int
        Number of cells timed by the pilot; the times of other cells are interpolated.
    mcse : dict of str to float
        Largest expected Monte Carlo standard error of a mean among the piloted cells, by measure.
    failures : int
        Number of failed trials of the pilot.
    """

    panel: str
    n_cells: int
    n_settings: int
    n_trials: int
    n_blocks: int
    n_bytes: int
    seconds: float
    n_piloted: int
    mcse: dict[str, float]
    failures: int


def iterate_blocks(panel: Panel) -> Iterator[Block]:
    """Yield the blocks of a panel, from the last cell to the first.

    Factor values usually ascend, so the last cells tend to be the most expensive. Computing them first balances the
    load at the end.
    """
    for cell in reversed(range(len(panel.cells()))):
        for start in range(0, panel.n_trials, panel.block_trials):
            yield Block(panel.name, cell, range(start, min(start + panel.block_trials, panel.n_trials)))


def make_plan(study: Study, pilot_seconds: float = 10.0) -> list[PanelPlan]:
    """Estimate the cost of each panel of a configured study.

    Parameters
    ----------
    study : Study
        Study returned by `Study.configure`.
    pilot_seconds : float
        Time during which the pilot starts new cells, divided equally among the panels; at least one cell per panel
        is computed.

    Returns
    -------
    list of PanelPlan
        One plan per panel, in order.
    """
    with one_thread():  # as in a worker
        return [_plan_panel(study, panel, pilot_seconds / len(study.panels)) for panel in study.panels]


def _plan_panel(study: Study, panel: Panel, budget: float) -> PanelPlan:
    n_cells = len(panel.cells())
    n_blocks = -(-panel.n_trials // panel.block_trials)
    seconds: dict[int, float] = {}
    errors: dict[str, float] = {}
    failures = 0
    started = time.perf_counter()
    _pilot_cell(study, panel, 0, 1)  # the first call also compiles
    for cell in _spread(n_cells):
        if seconds and time.perf_counter() - started > budget:
            break
        once, block_seconds, cell_errors, cell_failures = _pilot_cell(study, panel, cell, _PILOT_TRIALS)
        seconds[cell] = once + n_blocks * block_seconds
        failures += cell_failures
        for name, error in cell_errors.items():
            errors[name] = max(errors.get(name, 0.0), error)
    piloted = sorted(seconds)
    by_cell = np.exp(np.interp(np.arange(n_cells), piloted, np.log([seconds[cell] for cell in piloted])))
    return PanelPlan(
        panel.name,
        n_cells,
        len(panel.settings()),
        panel.n_trials,
        n_cells * n_blocks,
        _n_bytes(panel),
        float(by_cell.sum()),
        len(piloted),
        errors,
        failures,
    )


def _spread(n_cells: int) -> list[int]:
    """Return an order of cells whose first entries are spread out: both ends, then midpoints of the gaps."""
    order = [0, n_cells - 1] if n_cells > 1 else [0]
    gaps = [(0, n_cells - 1)]
    while gaps:
        low, high = gaps.pop(0)
        if high - low > 1:
            middle = (low + high) // 2
            order.append(middle)
            gaps += [(low, middle), (middle, high)]
    return order


def _pilot_cell(study: Study, panel: Panel, cell: int, most: int) -> tuple[float, float, dict[str, float], int]:
    """Compute up to `most` trials of a cell.

    Returns
    -------
    tuple
        Seconds of setup per cell, seconds per block, expected standard errors of the means, and number of failures.
    """
    every = panel.settings()
    settings = every
    if panel.settings_apart:  # a few settings and one block suffice, since each setting takes seconds
        settings = [every[k] for k in sorted(_spread(len(every))[:_PILOT_SETTINGS])]
    n_block = min(panel.block_trials, panel.n_trials)

    def timed(trials: range) -> tuple[float, list[Outcome]]:
        start = time.perf_counter()
        outcomes = evaluate_block(study, Block(panel.name, cell, trials), settings, BUDGET)
        return time.perf_counter() - start, outcomes

    runs = [range(min(2, n_block))]
    if panel.settings_apart:
        runs = [range(min(most, n_block))]
    elif n_block > 2:  # two lengths separate the setup from the cost per trial
        runs.append(range(min(most, n_block)))
    else:
        starts = range(n_block, min(most, panel.n_trials), n_block)
        runs += [range(start, min(start + n_block, panel.n_trials)) for start in starts]
    first = timed(runs[0])  # includes setup that methods cache for later blocks of the cell
    alone = panel.n_trials == 1 or panel.settings_apart
    seconds, computed = zip(*([first] if alone else map(timed, runs)), strict=True)
    once = max(0.0, first[0] - seconds[0])
    if panel.settings_apart:
        total = sum(seconds) * len(every) / len(settings)
    elif n_block > 2:
        per_trial = max(0.0, seconds[1] - seconds[0]) / max(1, len(runs[1]) - len(runs[0]))
        total, computed = seconds[1] + per_trial * (n_block - len(runs[1])), computed[1:]
    else:
        total = sum(seconds) / len(seconds)
    errors: dict[str, float] = {}
    for k in range(len(settings)):
        ok = np.concatenate([outcomes[k].status for outcomes in computed]) == Status.OK
        for measure in panel.measures:
            if measure.per_trial and panel.trials is not None and ok.sum() > 1:
                values = np.concatenate([outcomes[k].values[measure.name] for outcomes in computed])[ok]
                spread = np.ma.masked_invalid(np.asarray(values, float)).std(axis=0, ddof=1)
                error = float(np.ma.filled(spread, 0.0).max()) / panel.n_trials**0.5
                errors[measure.name] = max(errors.get(measure.name, 0.0), error)
    failures = sum(int((outcome.status == Status.FAILED).sum()) for outcomes in computed for outcome in outcomes)
    return once, total, errors, failures


def _n_bytes(panel: Panel) -> int:
    grid = len(panel.cells()) * len(panel.methods)
    for factor in panel.method_factors:
        grid *= len(factor.values)
    sizes = {axis.name: len(axis.values) for axis in panel.outputs}
    total = grid * panel.n_trials  # status
    for measure in panel.measures:
        each = np.dtype(measure.dtype).itemsize * int(np.prod([sizes[dim] for dim in measure.dims], dtype=np.int64))
        total += grid * each * (panel.n_trials if measure.per_trial else 1)
    return total
