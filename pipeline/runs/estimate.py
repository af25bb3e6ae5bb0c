"""Estimates of the cost of a run: trials, blocks, storage, time and Monte Carlo error.

Time, size and error are estimated from a pilot run, which computes a few trials of as many cells as the time allows.
The pilot writes nothing, so the time to commit blocks is counted from the number of their chunks.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from pipeline.blocks.division import spread_out
from pipeline.blocks.evaluate import BUDGET, Block, Outcome, Status, evaluate_block, simulate_block
from pipeline.blocks.one_thread import one_thread
from pipeline.declare.panel import MAX_TRIALS, Panel, Setting
from pipeline.declare.study import Study
from pipeline.errors import BadInputError
from pipeline.precision.goals import whole_blocks
from pipeline.precision.stopping import MIN_TRIALS, required_trials
from pipeline.precision.targets import CLAIMS, PanelTarget, parse_target, resolve_target
from pipeline.results.proportions import constant_error
from pipeline.results.summaries import estimate_mean
from pipeline.store.codec.chunks import Chunks
from pipeline.store.files.locations import ROOT
from pipeline.store.layout.root import seal_root
from pipeline.store.layout.template import make_template

START_SECONDS = 3.0
"""Time to import modules and to start a local cluster, as measured by ``tests/benchmarks/bench_plan.py``."""

_CHUNK_SECONDS = 1.5e-4
"""Time to commit a chunk to a local folder, as measured by ``tests/benchmarks/bench_store.py``."""
_MOST_OVERHEAD = 0.1  # share of the time of a block that its commit may take before larger blocks are proposed
_LEAST_OVERHEAD = 1.0  # seconds of a panel below which larger blocks are not worth a change
_MOST_PROPOSED = 10_000  # trials of a proposed block, whose data are in memory at once

_PILOT_TRIALS = 200
_PILOT_SETTINGS = 3  # number of piloted settings of panels with `settings_apart`


@dataclass(frozen=True)
class PanelPlan:
    """Estimated cost of one panel."""

    panel: str
    n_cells: int
    n_settings: int  # per cell
    n_trials: int  # per cell
    n_blocks: int
    n_bytes: int  # expected size of all files of a store with this panel
    seconds: float  # expected time on one core
    n_piloted: int  # cells of the pilot; the times and sizes of other cells are interpolated
    n_timed: int  # settings of the pilot; the others have their mean time, although it may differ widely
    mcse: dict[str, float]  # largest expected Monte Carlo standard error of a mean among the piloted cells, by measure
    failures: int  # failed trials of the pilot
    error: str  # cause of the first failed trial; empty if no trial failed
    commit_seconds: float  # expected time to commit all blocks, which `seconds` do not include
    proposed_block: int | None  # trials of larger blocks, if commits take too much of the time of a block

    @property
    def overhead(self) -> float:
        """Share of the time of a block that its commit takes."""
        return self.commit_seconds / (self.commit_seconds + self.seconds)


def make_plan(study: Study, pilot_seconds: float = 10.0) -> list[PanelPlan]:
    """Estimate the cost of each panel of a configured study; pilots of cells begin within `pilot_seconds` in total."""
    with one_thread():  # workers compute blocks under the same limit
        return [_plan_panel(study, panel, pilot_seconds / len(study.panels)) for panel in study.panels]


@dataclass(frozen=True)
class _Pilot:
    """Estimates for one cell: time and size of all its blocks, standard errors of the means, and failures."""

    seconds: float
    n_bytes: float
    errors: Mapping[str, float]
    failures: int
    cause: str
    marginal_seconds: float  # the part of the time that does not depend on the number of blocks


def _plan_panel(study: Study, panel: Panel, budget: float) -> PanelPlan:
    n_cells = len(panel.cells())
    pilots: dict[int, _Pilot] = {}
    alone = replace(study, panels=(panel,))
    files = make_template(alone, {"spec": json.dumps(alone.spec())})
    root = seal_root(files.pop(ROOT))
    n_fixed, chunks = 2 * len(root) + sum(map(len, files.values())), Chunks(root)  # the root has a copy
    for cell in piloted_cells(n_cells, budget, lambda: _evaluate(study, panel, 0, range(1), _piloted_settings(panel))):
        pilots[cell] = _pilot_cell(study, panel, cell, chunks)
    pilots_of_cells = pilots.values()
    seconds, marginal_seconds = (
        sum_over_cells(n_cells, {cell: getattr(pilot, name) for cell, pilot in pilots.items()})
        for name in ("seconds", "marginal_seconds")
    )
    commit_seconds = _CHUNK_SECONDS * panel.n_blocks * _count_chunks(panel)
    names = dict.fromkeys(name for pilot in pilots_of_cells for name in pilot.errors)
    return PanelPlan(
        panel=panel.name,
        n_cells=n_cells,
        n_settings=len(panel.settings()),
        n_trials=panel.n_trials,
        n_blocks=n_cells * panel.n_blocks,
        n_bytes=n_fixed + round(sum_over_cells(n_cells, {cell: pilot.n_bytes for cell, pilot in pilots.items()})),
        seconds=seconds,
        n_piloted=len(pilots),
        n_timed=len(_piloted_settings(panel)),
        mcse={name: max(pilot.errors.get(name, 0.0) for pilot in pilots_of_cells) for name in names},
        failures=sum(pilot.failures for pilot in pilots_of_cells),
        error=next((pilot.cause for pilot in pilots_of_cells if pilot.cause), ""),
        commit_seconds=commit_seconds,
        proposed_block=propose_block(panel, seconds, marginal_seconds, commit_seconds),
    )


def _count_chunks(panel: Panel) -> int:
    """Return the number of chunks of the first blocks of all cells: those of the statuses and per-trial measures."""
    n_positions = np.array([panel.count_positions(setting) for setting in panel.settings()])
    return int((panel.applicable @ n_positions).sum()) * (1 + sum(measure.per_trial for measure in panel.measures))


def propose_block(panel: Panel, seconds: float, marginal_seconds: float, commit_seconds: float) -> int | None:
    """Return the trials of blocks whose commits take a tenth of the time, or None if those of the panel suffice.

    Seconds are those of all cells. The times to start and to commit blocks are inversely proportional to their size;
    `marginal_seconds` are not.
    """
    if commit_seconds < _LEAST_OVERHEAD or commit_seconds <= _MOST_OVERHEAD * (commit_seconds + seconds):
        return None
    start_seconds = seconds - marginal_seconds
    missing_seconds = commit_seconds * (1 / _MOST_OVERHEAD - 1) - start_seconds
    wanted = panel.block_trials * missing_seconds / max(marginal_seconds, 1e-9)
    digit = 10.0 ** np.floor(np.log10(wanted))
    rounded = int(digit * next(factor for factor in (1, 2, 5, 10) if factor * digit >= wanted))
    proposed = min(rounded, _MOST_PROPOSED, panel.n_trials, panel.most_block_trials)
    return proposed if proposed > panel.block_trials else None


def piloted_cells(n_cells: int, seconds: float, prepare: Callable[[], object]) -> Iterator[int]:
    """Yield cells, spread out, of which all but the first begin within a time; `prepare` compiles code first."""
    started = time.perf_counter()
    prepare()
    for k, cell in enumerate(spread_out(n_cells)):
        if k and time.perf_counter() - started > seconds:
            return
        yield cell


def sum_over_cells(n_cells: int, known: Mapping[int, float]) -> float:
    """Return the sum of values >= 0 over cells, from the known ones and geometric interpolation."""
    cells = sorted(known)
    logarithms = np.log([max(known[cell], sys.float_info.min) for cell in cells])
    return float(np.exp(np.interp(np.arange(n_cells), cells, logarithms)).sum())


def _piloted_settings(panel: Panel) -> list[Setting]:
    """Return all settings, or a few if each is computed apart, since each then takes seconds."""
    every = panel.settings()
    return [every[k] for k in sorted(spread_out(len(every))[:_PILOT_SETTINGS])] if panel.settings_apart else every


def seconds_per_trial(study: Study, panel: Panel, cell: int, setting: Setting, seconds: float = 0.5) -> float:
    """Return the time per trial of one setting in a cell, without that of the simulation; NaN if all trials fail.

    As many trials of a block are computed as take about `seconds`, at least one, after one that compiles code.
    """
    most = min(panel.block_trials, panel.n_trials, _PILOT_TRIALS)
    with one_thread():  # workers compute blocks under the same limit
        total, _ = _evaluate(study, panel, cell, range(1), [setting])
        n_trials = 0
        while n_trials < most and (total < seconds / 4 or not n_trials):
            n_trials = int(np.clip(max(n_trials, 1) * seconds / max(total, 1e-9), n_trials + 1, most))
            total, (outcome,) = _evaluate(study, panel, cell, range(n_trials), [setting])
        start = time.perf_counter()
        simulate_block(study, Block(panel.name, cell, range(n_trials)))
        simulated = time.perf_counter() - start
    is_computed = (outcome.status == Status.OK).any()
    return max(0.0, total - simulated) / n_trials if is_computed else np.nan


def _evaluate(
    study: Study, panel: Panel, cell: int, trials: range, settings: Sequence[Setting]
) -> tuple[float, list[Outcome]]:
    """Return the time and the outcomes of trials of a cell."""

    def timed() -> tuple[float, list[Outcome]]:
        start = time.perf_counter()
        outcomes = evaluate_block(study, Block(panel.name, cell, trials), settings, BUDGET)
        return time.perf_counter() - start, outcomes

    with ThreadPoolExecutor(1) as thread:  # in the main thread, an interrupt would be one by the user
        return thread.submit(timed).result()


def _pilot_cell(study: Study, panel: Panel, cell: int, chunks: Chunks) -> _Pilot:
    """Compute some trials of a cell, and extrapolate to all its blocks."""
    settings = _piloted_settings(panel)
    n_block, n_blocks = min(panel.block_trials, panel.n_trials), panel.n_blocks
    most = range(min(_PILOT_TRIALS, n_block))
    if panel.settings_apart:
        runs = [most]
    elif n_block > 2:  # runs of two lengths separate the setup time from the time per trial
        runs = [range(2), most]
    else:
        starts = range(0, min(_PILOT_TRIALS, panel.n_trials), n_block)
        runs = [range(start, min(start + n_block, panel.n_trials)) for start in starts]
    first, outcomes = _evaluate(study, panel, cell, runs[0], settings)  # includes setup that methods cache
    seconds, computed = [first], [outcomes]
    if panel.n_trials > 1 and not panel.settings_apart:
        seconds, computed = map(list, zip(*(_evaluate(study, panel, cell, run, settings) for run in runs), strict=True))
    if n_block > 2 and not panel.settings_apart:
        per_trial = max(0.0, seconds[1] - seconds[0]) / max(1, len(runs[1]) - len(runs[0]))
        per_block, computed = seconds[1] + per_trial * (n_block - len(runs[1])), computed[1:]
        marginal = per_trial * n_block
    else:
        per_block = marginal = sum(seconds) / len(seconds)
    share = len(settings) / len(panel.settings())
    every = [outcome for outcomes in computed for outcome in outcomes]
    return _Pilot(
        max(0.0, first - seconds[0]) + n_blocks * per_block / share,
        sum(
            _chunk_bytes(panel, chunks, setting, outcome)
            for setting, outcome in zip(settings, computed[0], strict=True)
        )
        / share,
        _standard_errors(panel, computed) if panel.trials is not None else {},
        sum(int((outcome.status == Status.FAILED).sum()) for outcome in every),
        next((outcome.cause for outcome in every if outcome.cause), ""),
        n_blocks * marginal / share,
    )


def _chunk_bytes(panel: Panel, chunks: Chunks, setting: Setting, outcome: Outcome) -> float:
    """Return the expected size of all chunks of a cell and setting, from the outcome of some of its trials."""
    per_trial = {measure.name: outcome.values[measure.name] for measure in panel.measures if measure.per_trial}
    size = panel.n_blocks * sum(
        _size_of_block(panel, chunks, name, values) for name, values in {**per_trial, "status": outcome.status}.items()
    )
    if (outcome.status == Status.OK).any():
        others = (measure.name for measure in panel.measures if not measure.per_trial)
        size += sum(chunks.encoded_size(panel.name, name, outcome.values[name]) for name in others)
    return size * panel.count_positions(setting)


def _size_of_block(panel: Panel, chunks: Chunks, name: str, values: np.ndarray) -> float:
    """Return the expected size of a chunk, which is linear in its number of trials."""
    size, n_block = chunks.encoded_size(panel.name, name, values), min(panel.block_trials, panel.n_trials)
    if panel.trials is None or len(values) in (1, n_block):
        return size
    half = len(values) // 2
    slope = (size - chunks.encoded_size(panel.name, name, values[:half])) / (len(values) - half)
    return size + slope * (n_block - len(values))


def _standard_errors(panel: Panel, computed: Sequence[Sequence[Outcome]]) -> dict[str, float]:
    """Return the largest expected standard error of a mean over settings and outputs, by measure."""
    errors: dict[str, float] = {}
    for outcomes in zip(*computed, strict=True):
        ok = np.concatenate([outcome.status for outcome in outcomes]) == Status.OK
        for measure in panel.measures:
            if measure.per_trial and ok.sum() > 1:
                values = np.concatenate([outcome.values[measure.name] for outcome in outcomes])[ok]
                draws = np.moveaxis(values.astype(float), 0, -1)
                spread = np.nan_to_num(estimate_mean(draws).sd)
                if measure.is_event:  # none or all of a few draws do not make an event certain
                    n = np.count_nonzero(~np.isnan(draws), axis=-1)
                    spread = np.where((spread == 0) & (n > 0), constant_error(n) * np.sqrt(n + 2), spread)
                errors[measure.name] = max(errors.get(measure.name, 0.0), float(spread.max()) / panel.n_trials**0.5)
    return errors


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
    """Forecast the cost of each panel with trials until a precision, from pilots that begin within `pilot_seconds`."""
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
        per_trial = max(0.0, several - alone) / (MIN_TRIALS - 1) / max(1, len(needed))
        n_blocks = max(needed.values(), default=0) / panel.block_trials
        seconds[cell] = max(0.0, at_first - alone) + n_blocks * alone + per_trial * evaluations[cell]
        for item, n_trials in needed.items():
            if n_trials > most:
                most, widest = n_trials, panel.describe(cell, (item,))
    n_evaluations, n_seconds = (sum_over_cells(n_cells, by_panel) for by_panel in (evaluations, seconds))
    return Forecast(panel.name, len(evaluations), n_cells, n_evaluations, most, widest, n_seconds)


def _pilot(study: Study, target: PanelTarget, cell: int, n_trials: int) -> tuple[dict[int, int], float]:
    """Compute trials of a cell; return the trials that each setting that applies needs, and the duration in seconds."""
    panel, n_block = target.panel, target.panel.block_trials
    runs = (range(start, min(start + n_block, n_trials)) for start in range(0, n_trials, n_block))
    seconds, blocks = zip(*(_evaluate(study, panel, cell, run, panel.settings()) for run in runs), strict=True)
    minimum = int(whole_blocks(panel, MIN_TRIALS))
    needed = dict.fromkeys(np.flatnonzero(panel.applicable[cell]).tolist(), minimum)
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
    return needed, sum(seconds)
