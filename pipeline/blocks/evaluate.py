"""Computation of one block: simulation of its trials, evaluation of settings, and isolation of failures.

A block consists of consecutive trials of one cell. The result for a setting is an `Outcome` with a status and an error
for each trial; exceptions of methods do not reach the caller. The status of a trial does not depend on other trials of
its block. A budget ends the evaluation of a setting that fails for every trial; untried trials remain pending.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

import numpy as np

from pipeline.blocks.arrays import cast_values, describe_range, freeze_arrays
from pipeline.blocks.failures import call, describe_exception, describe_reported
from pipeline.blocks.one_thread import one_thread
from pipeline.blocks.returned import as_numbers, as_reasons
from pipeline.declare.factors import Measure, Value
from pipeline.declare.panel import Method, Panel, Setting, evaluate_each
from pipeline.declare.streams import Streams
from pipeline.declare.study import Study
from pipeline.faults import is_interrupt


class Status(IntEnum):
    """Status of a trial under a setting, with the integers that the variable ``status`` stores."""

    PENDING = 0
    OK = 1
    FAILED = 2
    TIMED_OUT = 3
    KILLED = 4
    NOT_APPLICABLE = 5
    NOT_ASKED_FOR = 6  # beyond the trials that the run asked for here; never stored

    @property
    def words(self) -> str:
        """Name in words, such as "timed out"."""
        return self.name.lower().replace("_", " ")


ENDED = (Status.TIMED_OUT, Status.KILLED)
FAILURES = (Status.FAILED, *ENDED)
STATUS_MESSAGES = {
    Status.KILLED: "the process that computed this trial terminated",
    Status.TIMED_OUT: "this trial took longer than the time limit",
}
KINDS = {"ok": (Status.OK,), "failed": FAILURES, "pending": (Status.PENDING,)}  # statuses that are counted together
BUDGET = 100  # number of failed trials of a setting in a block after which the others are skipped, if none was ok
ENDED_COST = 10  # number of failed trials that a killed or timed-out trial counts for


def total_by_kind(counts: Collection[Mapping[Status, int]]) -> tuple[int, int, int]:
    """Return the total numbers of ok, failed and pending evaluations, given counts by status, such as one per panel."""
    n_ok, n_failed, n_pending = (
        sum(by_status[kind] for by_status in counts for kind in kinds) for kinds in KINDS.values()
    )
    return n_ok, n_failed, n_pending


class TransposedError(ValueError):
    """Error for values of a measure whose trials are along the last axis, in place of the first one."""


@dataclass(frozen=True)
class Block:
    """Consecutive trials of one cell."""

    panel: str
    cell: int  # index in `Panel.cells`
    trials: range  # ``range(0, 1)`` in a deterministic panel


@dataclass(frozen=True)
class Outcome:
    """Result of one setting on one block."""

    values: dict[str, np.ndarray]  # by measure, shape ``(trial, *dims)``, or ``dims`` for a per-cell measure
    status: np.ndarray  # `Status` of each trial, shape (trial,); pending: skipped because of a budget
    # cause of each failed trial, without secrets, on one line, and after an exception also its traceback; or empty
    error: np.ndarray
    seconds: float = 0.0  # wall-clock time of the method, without the simulation; 0 for trials that it did not compute

    @property
    def cause(self) -> str:
        """Cause of the first failed trial, or an empty string."""
        return next(filter(None, self.error), "").partition("\n")[0]


@one_thread()
def evaluate_block(study: Study, block: Block, settings: Sequence[Setting], budget: int | None = None) -> list[Outcome]:
    """Simulate one block, and evaluate settings on its data; each failing trial is isolated by halving the trials.

    `budget` is the number of failed trials of a setting after which the others remain pending if none was ok.
    """
    panel = study.panel(block.panel)
    cell = panel.cells()[block.cell]
    applicable = [setting for setting in settings if panel.applies(cell, setting)]
    computed: list[Outcome] = []
    if len(applicable) > 1:  # evaluate all settings in one call, unless it raises
        try:
            computed = _compute(study, panel, cell, block.trials, applicable)
        except BaseException as error:
            if is_interrupt(error):
                raise
    if not computed:
        computed = [_evaluate_parts(study, panel, cell, block.trials, setting, budget) for setting in applicable]
    outcomes = iter(computed)
    return [
        next(outcomes) if setting in applicable else unevaluated(panel, len(block.trials), Status.NOT_APPLICABLE, "")
        for setting in settings
    ]


def evaluate_in_thread(
    study: Study, block: Block, settings: Sequence[Setting], budget: int | None = None
) -> list[Outcome]:
    """Evaluate as `evaluate_block`, outside of the main thread, in which an interrupt would be one by the user."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(evaluate_block, study, block, settings, budget).result()


def simulate_block(study: Study, block: Block) -> Any:
    """Simulate the data of a block, and return them, or None if the simulation raises an exception."""
    panel = study.panel(block.panel)
    try:
        return _simulate(study, panel, panel.cells()[block.cell], block.trials)
    except BaseException as error:
        if is_interrupt(error):
            raise
        return None


def evaluation_of(study: Study, block: Block, setting: Setting) -> Callable[[], object]:
    """Simulate a block, and return a function that evaluates a setting on its data; errors are not caught."""
    panel = study.panel(block.panel)
    cell = panel.cells()[block.cell]
    data = _simulate(study, panel, cell, block.trials)
    return lambda: call(panel.evaluate, data, *_chosen(study, panel, cell, block.trials, [setting]))


def describe_transposed(study: Study, block: Block, setting: Setting) -> str:
    """Return the message of the error that values of a setting are transposed, or an empty string."""
    panel = study.panel(block.panel)
    try:
        _compute(study, panel, panel.cells()[block.cell], block.trials, [setting])
    except TransposedError as error:
        return str(error)
    except BaseException as error:
        if is_interrupt(error):
            raise
    return ""


def unevaluated(panel: Panel, n_trials: int, status: Status, reason: str) -> Outcome:
    """Return the outcome of trials without values, all with the same status and error."""
    values = {
        measure.name: np.full(_shape(panel, measure, n_trials), _missing(measure.dtype), measure.dtype)
        for measure in panel.measures
    }
    return Outcome(values, np.full(n_trials, status, np.int8), np.full(n_trials, reason, dtype=object))


def _streams(study: Study, panel: Panel, role: str, values: Mapping[str, Value], trials: range) -> Streams:
    return Streams(study.seed, study.name, panel.name, role, panel.keyed(values), trials)


def _simulate(study: Study, panel: Panel, cell: Mapping[str, Value], trials: range) -> Any:
    """Simulate trials, and return read-only data, which all settings share."""
    data = call(panel.simulate, {**panel.fixed_values, **cell}, _streams(study, panel, "data", cell, trials))
    freeze_arrays(data)
    return data


def _chosen(
    study: Study, panel: Panel, cell: Mapping[str, Value], trials: range, settings: Sequence[Setting]
) -> tuple[list[tuple[Method, dict[str, Value]]], list[Streams]]:
    """Return the methods of settings with their values, and their streams."""
    chosen, streams = [], []
    for setting in settings:
        role = setting.method.stream_key or setting.method.name
        chosen.append((setting.method, {**panel.fixed_values, **setting.values}))
        streams.append(_streams(study, panel, role, {**cell, **setting.values}, trials))
    return chosen, streams


def _compute(
    study: Study, panel: Panel, cell: Mapping[str, Value], trials: range, settings: Sequence[Setting]
) -> list[Outcome]:
    """Evaluate settings by one call of `Panel.evaluate`; errors are not caught."""
    data = _simulate(study, panel, cell, trials)
    chosen, streams = _chosen(study, panel, cell, trials, settings)
    # a panel with a function of its own evaluates all settings together
    parts = [slice(k, k + 1) for k in range(len(chosen))] if panel.evaluate is evaluate_each else [slice(None)]
    outcomes: list[Outcome] = []
    for part in parts:
        started = time.perf_counter()
        results = call(panel.evaluate, data, chosen[part], streams[part])
        seconds = time.perf_counter() - started
        if len(results) != len(chosen[part]):
            raise ValueError(f"evaluate must return {len(chosen[part])} results, one per setting, got {len(results)}")
        outcomes += [replace(_outcome(panel, trials, result), seconds=seconds / len(results)) for result in results]
    return outcomes


def _attempt(study: Study, panel: Panel, cell: Mapping[str, Value], trials: range, setting: Setting) -> Outcome | None:
    """Evaluate one setting; after an error, return None for several trials, and a failed outcome for a single one."""
    try:
        return _compute(study, panel, cell, trials, [setting])[0]
    except BaseException as error:
        if is_interrupt(error):
            raise
        if len(trials) > 1:
            return None
        return unevaluated(panel, 1, Status.FAILED, describe_exception(study, setting.method, error))


def _evaluate_parts(
    study: Study, panel: Panel, cell: Mapping[str, Value], trials_of_block: range, setting: Setting, budget: int | None
) -> Outcome:
    """Evaluate one setting on consecutive trials in order, halved if they raise; one by one until one succeeds."""
    outcomes: dict[int, Outcome] = {}
    waiting = [trials_of_block]
    n_failed, any_ok = 0, False
    while waiting:
        trials = waiting.pop()
        if budget is not None and n_failed >= budget and not any_ok:
            outcomes[trials.start] = unevaluated(panel, len(trials), Status.PENDING, "")
            continue
        if n_failed and not any_ok and len(trials) > 1:
            waiting += [trials[1:], trials[:1]]
            continue
        outcome = _attempt(study, panel, cell, trials, setting)
        if outcome is None:
            middle = len(trials) // 2
            waiting += [trials[middle:], trials[:middle]]
            continue
        if trials == trials_of_block:
            return outcome
        outcomes[trials.start] = outcome
        n_failed += int((outcome.status == Status.FAILED).sum())
        any_ok |= bool((outcome.status == Status.OK).any())
    return join(panel, outcomes)


def join(panel: Panel, outcomes: Mapping[int, Outcome]) -> Outcome:
    """Concatenate outcomes of one setting on consecutive trials, keyed by the first trial of each."""
    parts = [outcomes[first] for first in sorted(outcomes)]
    if len(parts) == 1:
        return parts[0]
    values = {}
    for measure in panel.measures:
        arrays = [part.values[measure.name] for part in parts]
        if measure.per_trial:
            values[measure.name] = np.concatenate(arrays)
        else:
            computed = [array for array, part in zip(arrays, parts, strict=True) if (part.status == Status.OK).any()]
            values[measure.name] = (computed or arrays)[0]
    return Outcome(
        values,
        np.concatenate([part.status for part in parts]),
        np.concatenate([part.error for part in parts]),
        sum(part.seconds for part in parts),
    )


def keep_ok(panel: Panel, stored: Outcome, computed: Outcome) -> Outcome:
    """Return a computed outcome with the stored values of those trials that are ok in a stored outcome."""
    is_ok = stored.status == Status.OK
    if not is_ok.any():
        return computed
    values = {}
    for measure in panel.measures:
        before, now = stored.values[measure.name], computed.values[measure.name]
        by_trial = measure.per_trial and panel.trials is not None
        values[measure.name] = np.where(is_ok.reshape(-1, *[1] * (now.ndim - 1)), before, now) if by_trial else before
    return replace(
        computed,
        values=values,
        status=np.where(is_ok, stored.status, computed.status),
        error=np.where(is_ok, "", computed.error).astype(object),
    )


def keep_untried(stored: Outcome, computed: Outcome) -> Outcome:
    """Return a computed outcome with the stored statuses and errors of those trials that a budget left untried."""
    is_untried = computed.status == Status.PENDING
    return replace(
        computed,
        status=np.where(is_untried, stored.status, computed.status),
        error=np.where(is_untried, stored.error, computed.error).astype(object),
    )


def _outcome(panel: Panel, trials: range, result: Mapping[str, Any]) -> Outcome:
    """Check the result of a method against the declared measures, and set the status of every trial."""
    allowed = {measure.name for measure in panel.measures}
    if not (hasattr(result, "keys") and hasattr(result, "get")):  # a data frame has them
        raise ValueError(f"a method must return a dictionary with {sorted(allowed)}, got {type(result).__name__}")
    if set(result) - {"error"} != allowed:
        raise ValueError(f"a method must return {sorted(allowed)}, got {sorted(result, key=str)}")
    by_trial = {"trial": trials} if panel.trials is not None else {}
    error = np.full(len(trials), "", object)
    if (reported := result.get("error")) is not None:
        error[:] = [describe_reported(reason) for reason in as_reasons(reported, by_trial)]
    values = {}
    for measure in panel.measures:
        values[measure.name], defects = _checked_values(panel, measure, trials, result[measure.name])
        if defects and not measure.per_trial:
            raise ValueError(defects[0])
        for trial, defect in defects.items():
            error[trial] = error[trial] or defect
    failed = error != ""
    for measure in panel.measures if failed.any() else ():
        if measure.per_trial:
            values[measure.name][failed if panel.trials is not None else ...] = _missing(measure.dtype)
    return Outcome(values, np.where(failed, Status.FAILED, Status.OK).astype(np.int8), error)


def _checked_values(panel: Panel, measure: Measure, trials: range, returned: Any) -> tuple[np.ndarray, dict[int, str]]:
    """Return the values of a measure with its dtype, and a defect of each trial, or of 0 without trials, that has one.

    Missing values of a ragged measure are NaN.
    """
    name, shape = measure.name, _shape(panel, measure, len(trials))
    array, is_missing = as_numbers(name, returned, _axes(panel, measure, trials))
    if array.shape != shape:
        kind = TransposedError if len(shape) > 1 and array.shape == (*shape[1:], shape[0]) else ValueError
        raise kind(f"{name} must have shape {shape}, got {array.shape}")
    may_miss = measure.ragged and np.dtype(measure.dtype).kind == "f"
    values, is_wrong = cast_values(name, np.where(is_missing, 0, array) if is_missing.any() else array, measure.dtype)
    # NaN is no other value
    is_other = (values != 0) & (values != 1) & (values == values) if measure.is_event else None
    if may_miss:
        values[is_missing] = np.nan
    n_rows = len(trials) if measure.per_trial else 1
    defects: dict[int, str] = {}
    needs_numbers = values.dtype.kind == "f" and measure.per_trial and not measure.ragged
    for is_bad, reason in (
        (None if may_miss else is_missing, lambda value: f"{name} is masked or missing"),
        (is_wrong, lambda value: f"{name} must be {describe_range(measure.dtype)}, got {value}"),
        (np.isnan(values) if needs_numbers else None, lambda value: f"{name} is NaN"),
        (is_other, lambda value: f"{name} must be 0 or 1, got {value}"),
    ):
        if is_bad is None or not is_bad.any():
            continue
        rows, by_row = is_bad.reshape(n_rows, -1), array.reshape(n_rows, -1)
        for row in np.flatnonzero(rows.any(axis=1)):
            defects.setdefault(int(row), reason(by_row[row][rows[row]][0]))
    return values, defects


def _axes(panel: Panel, measure: Measure, trials: range) -> dict[str, Sequence[Any]]:
    """Return the dimensions of a measure in a block, with their values."""
    by_name = {axis.name: axis.values for axis in panel.outputs}
    first: dict[str, Sequence[Any]] = {"trial": trials} if measure.per_trial and panel.trials is not None else {}
    return first | {dim: by_name[dim] for dim in measure.dims}


def _shape(panel: Panel, measure: Measure, n_trials: int) -> tuple[int, ...]:
    sizes = {axis.name: len(axis.values) for axis in panel.outputs}
    trials = (n_trials,) if measure.per_trial and panel.trials is not None else ()
    return (*trials, *(sizes[dim] for dim in measure.dims))


def _missing(dtype: str) -> Any:
    """Return the placeholder for missing values: NaN, zero or an empty string."""
    return np.nan if np.dtype(dtype).kind == "f" else np.zeros((), dtype)[()]
