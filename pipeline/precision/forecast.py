"""Forecast of the trials and the time of a run until a precision, from a pilot."""

import time
from dataclasses import dataclass

import numpy as np

from pipeline.blocks.evaluate import BUDGET, Block, Status, evaluate_block
from pipeline.blocks.one_thread import one_thread
from pipeline.declare.panel import MAX_TRIALS
from pipeline.declare.study import Study
from pipeline.errors import BadInputError
from pipeline.estimate import piloted_cells, sum_over_cells
from pipeline.precision.goals import whole_blocks
from pipeline.precision.stopping import MIN_TRIALS, required_trials
from pipeline.precision.targets import CLAIMS, PanelTarget, parse_target, resolve_target


@dataclass(frozen=True)
class Forecast:
    """Expected cost of a panel until a precision is reached."""

    panel: str
    n_piloted: int  # cells; the costs of other cells are interpolated
    n_cells: int
    evaluations: float  # expected number of trials, summed over cells and settings
    most: int  # expected number of trials of the piloted cell and setting that needs the most
    widest: str  # that cell and setting
    seconds: float  # expected time on one core


def forecast(study: Study, until: str, pilot_seconds: float = 10.0) -> list[Forecast]:
    """Forecast the cost of a run until a precision, from `MIN_TRIALS` trials of some cells.

    The study is configured, the target `until` is one of `pipeline.run`, and the pilot starts new cells for
    `pilot_seconds`, divided equally among the panels; at least one cell per panel is computed. There is one forecast
    per panel with trials; other panels are exact.
    """
    if until.strip() == CLAIMS:
        raise BadInputError(
            "plan requires a precision, got --until claims, whose cost depends on the verdicts; it is at most that of "
            "the declared trials, which plan shows without --until"
        )
    targets = resolve_target(parse_target(until), study)
    with one_thread():
        return [_forecast(study, target, pilot_seconds / len(targets)) for target in targets.values()]


def _forecast(study: Study, target: PanelTarget, budget: float) -> Forecast:
    panel, n_cells = target.panel, len(target.panel.cells())
    evaluations: dict[int, float] = {}
    seconds: dict[int, float] = {}
    most, widest = 0, ""
    for cell in piloted_cells(n_cells, budget, lambda: _pilot(study, target, 0, 1)):
        _, at_first = _pilot(study, target, cell, 1)  # includes setup that methods cache for the cell
        _, alone = _pilot(study, target, cell, 1)
        needed, several = _pilot(study, target, cell, MIN_TRIALS)
        evaluations[cell] = sum(needed.values())
        per_trial = max(0.0, several - alone) / (MIN_TRIALS - 1) / len(needed)
        n_blocks = max(needed.values()) / panel.block_trials
        seconds[cell] = max(0.0, at_first - alone) + n_blocks * alone + per_trial * evaluations[cell]
        for item, n_trials in needed.items():
            if n_trials > most:
                most, widest = n_trials, panel.describe(cell, (item,))
    n_evaluations, n_seconds = (sum_over_cells(n_cells, found) for found in (evaluations, seconds))
    return Forecast(panel.name, len(evaluations), n_cells, n_evaluations, most, widest, n_seconds)


def _pilot(study: Study, target: PanelTarget, cell: int, n_trials: int) -> tuple[dict[int, int], float]:
    """Compute trials of a cell; return the trials that each setting needs, and the duration in seconds."""
    panel = target.panel
    started = time.perf_counter()
    blocks = [
        evaluate_block(
            study,
            Block(panel.name, cell, range(start, min(start + panel.block_trials, n_trials))),
            panel.settings(),
            BUDGET,
        )
        for start in range(0, n_trials, panel.block_trials)
    ]
    duration = time.perf_counter() - started
    minimum = int(whole_blocks(panel, MIN_TRIALS))
    needed = dict.fromkeys(range(len(panel.settings())), minimum)
    for item in target.items:
        if not panel.applicable[cell, list(item)].all():
            continue
        ok = np.all([np.concatenate([part[k].status for part in blocks]) == Status.OK for k in item], axis=0)
        draws = [np.concatenate([part[k].values[target.measure.name] for part in blocks])[ok] for k in item]
        precision = target.assess(draws)
        if np.isfinite(precision.error):
            wanted = whole_blocks(panel, required_trials(precision.n, precision.ratio))
            for k in item:
                needed[k] = max(needed[k], min(int(wanted), MAX_TRIALS))
    return needed, duration
