"""Computation of one block: simulation of its trials, evaluation of settings, and isolation of failures.

A block consists of consecutive trials of one cell. The result for a setting is an `Outcome` with a status and an error
for each trial; exceptions of methods do not reach the caller. The status of a trial does not depend on other trials of
its block. A budget ends the evaluation of a setting that fails for every trial; untried trials remain pending.
"""

import os
import traceback
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from pipeline.blocks.arrays import cast_values, describe_range, freeze_arrays, leaves
from pipeline.blocks.one_thread import one_thread
from pipeline.declare.factors import Measure, Value
from pipeline.declare.panel import Panel, Setting
from pipeline.declare.source import functions_of, imported_from
from pipeline.declare.streams import Streams
from pipeline.declare.study import Study
from pipeline.errors import BadInputError
from pipeline.redact import redact_text


class Status(IntEnum):
    """Status of a trial under a setting, with the integers that the variable ``status`` stores."""

    PENDING = 0
    OK = 1
    FAILED = 2
    TIMED_OUT = 3
    KILLED = 4
    NOT_APPLICABLE = 5
    NOT_ASKED_FOR = 6  # beyond the trials that a run until a precision asked for; never stored

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
    n_ok, n_failed, n_pending = (sum(one[kind] for one in counts for kind in kinds) for kinds in KINDS.values())
    return n_ok, n_failed, n_pending


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

    @property
    def n_untried(self) -> int:
        """Number of trials skipped because of a budget."""
        return int((self.status == Status.PENDING).sum())

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
        with suppress(Exception, SystemExit):
            computed = _compute(study, panel, cell, block.trials, applicable)
    if not computed:
        computed = [_evaluate_parts(study, panel, cell, block.trials, setting, budget) for setting in applicable]
    outcomes = iter(computed)
    return [
        next(outcomes) if setting in applicable else unevaluated(panel, len(block.trials), Status.NOT_APPLICABLE, "")
        for setting in settings
    ]


def simulate_block(study: Study, block: Block) -> None:
    """Simulate the data of a block and discard them."""
    panel = study.panel(block.panel)
    _simulate(study, panel, panel.cells()[block.cell], block.trials)


def require_seeded(study: Study, block: Block) -> None:
    """Raise BadInputError if two simulations of the first trial of a block differ in an array or a number."""
    panel, trial = study.panel(block.panel), block.trials[:1]
    cell = panel.cells()[block.cell]
    try:
        first, second = (list(leaves(_simulate(study, panel, cell, trial))) for _ in range(2))
    except (Exception, SystemExit):  # the evaluation isolates and reports errors
        return
    kinds = (np.ndarray, np.generic, int, float, complex)
    pairs = [(a, b) for a, b in zip(first, second, strict=False) if isinstance(a, kinds) and isinstance(b, kinds)]
    if not all(_equal(np.asarray(a), np.asarray(b)) for a, b in pairs):
        raise BadInputError(
            f"simulate of panel {panel.name} must return the same data whenever it is called with equal streams, got "
            "different data from two calls; draw all random numbers from streams, not from np.random or random, and "
            "choose a new --store"
        )


def _equal(first: np.ndarray, second: np.ndarray) -> bool:
    """Return True for arrays with the same values; objects are not compared."""
    if first.dtype.hasobject or second.dtype.hasobject:
        return True
    return np.array_equal(first, second, equal_nan=first.dtype.kind in "fc" and second.dtype.kind in "fc")


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
    data = panel.simulate({**panel.fixed_values, **cell}, _streams(study, panel, "data", cell, trials))
    freeze_arrays(data)
    return data


def _compute(
    study: Study, panel: Panel, cell: Mapping[str, Value], trials: range, settings: Sequence[Setting]
) -> list[Outcome]:
    """Evaluate settings by one call of `Panel.evaluate`; errors are not caught."""
    data, chosen, streams = _simulate(study, panel, cell, trials), [], []
    for setting in settings:
        role = setting.method.stream_key or setting.method.name
        chosen.append((setting.method, {**panel.fixed_values, **setting.values}))
        streams.append(_streams(study, panel, role, {**cell, **setting.values}, trials))
    results = panel.evaluate(data, chosen, streams)
    if len(results) != len(settings):
        raise ValueError(f"evaluate must return {len(settings)} results, one per setting, got {len(results)}")
    return [_outcome(panel, len(trials), result) for result in results]


def _attempt(study: Study, panel: Panel, cell: Mapping[str, Value], trials: range, setting: Setting) -> Outcome | None:
    """Evaluate one setting; after an error, return None for several trials, and a failed outcome for a single one."""
    try:
        return _compute(study, panel, cell, trials, [setting])[0]
    except (Exception, SystemExit) as error:
        if len(trials) > 1:
            return None
        return unevaluated(panel, 1, Status.FAILED, redact_text(_describe(study, error)))


def _describe(study: Study, error: BaseException) -> str:
    """Return the cause of an exception, with file and line of the last call in a file of the study, and the traceback.

    Lines of markers below code are omitted, since options of Python and versions change them.
    """
    own = {getattr(getattr(function, "__code__", None), "co_filename", "") for function in functions_of(study)}
    calls = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    file, line = next((call for call in reversed(calls) if call[0] in own), calls[-1])
    lines = "".join(traceback.format_exception(error)).rstrip().splitlines()
    kept = [one for one in lines if one.strip(" ~^|") or not one.strip()]
    return "\n".join([f"{os.path.basename(imported_from(file))}:{line}: {kept[-1]}", *kept])


def _evaluate_parts(
    study: Study, panel: Panel, cell: Mapping[str, Value], whole: range, setting: Setting, budget: int | None
) -> Outcome:
    """Evaluate one setting on consecutive trials in order, halved if they raise; one by one until one succeeds."""
    found: dict[int, Outcome] = {}
    waiting = [whole]
    n_failed, any_ok = 0, False
    while waiting:
        trials = waiting.pop()
        if budget is not None and n_failed >= budget and not any_ok:
            found[trials.start] = unevaluated(panel, len(trials), Status.PENDING, "")
            continue
        if n_failed and not any_ok and len(trials) > 1:
            waiting += [trials[1:], trials[:1]]
            continue
        outcome = _attempt(study, panel, cell, trials, setting)
        if outcome is None:
            middle = len(trials) // 2
            waiting += [trials[middle:], trials[:middle]]
            continue
        found[trials.start] = outcome
        n_failed += int((outcome.status == Status.FAILED).sum())
        any_ok |= bool((outcome.status == Status.OK).any())
    return join(panel, found)


def join(panel: Panel, found: Mapping[int, Outcome]) -> Outcome:
    """Concatenate outcomes of one setting on consecutive trials, keyed by the first trial of each."""
    parts = [found[first] for first in sorted(found)]
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
        values, np.concatenate([part.status for part in parts]), np.concatenate([part.error for part in parts])
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
    return Outcome(
        values, np.where(is_ok, stored.status, computed.status), np.where(is_ok, "", computed.error).astype(object)
    )


def _outcome(panel: Panel, n_trials: int, result: Mapping[str, Any]) -> Outcome:
    """Check the result of a method against the declared measures, and set the status of every trial."""
    allowed = {measure.name for measure in panel.measures}
    if set(result) - {"error"} != allowed:
        raise ValueError(f"a method must return {sorted(allowed)}, got {sorted(result)}")
    error = np.array(result.get("error", [""] * n_trials), dtype=object)
    if error.shape != (n_trials,):
        raise ValueError(f"'error' must have shape {(n_trials,)}, got {error.shape}")
    values = {}
    for measure in panel.measures:
        given = np.asarray(result[measure.name])
        shape = _shape(panel, measure, n_trials)
        if given.shape != shape:
            raise ValueError(f"{measure.name} must have shape {shape}, got {given.shape}")
        array, wrong = cast_values(measure.name, given, measure.dtype)
        values[measure.name] = array
        if wrong.any():
            refused = f"{measure.name} must be {describe_range(measure.dtype)}, got "
            if not measure.per_trial:
                raise ValueError(f"{refused}{given[wrong].flat[0]}")
            rows, by_trial = wrong.reshape(n_trials, -1), given.reshape(n_trials, -1)
            for trial in np.flatnonzero(rows.any(axis=1) & (error == "")):
                error[trial] = f"{refused}{by_trial[trial][rows[trial]][0]}"
        if measure.per_trial and not measure.ragged and array.dtype.kind == "f":
            undefined = np.isnan(array).reshape(n_trials, -1).any(axis=1)
            error[undefined & (error == "")] = f"{measure.name} is NaN"
    failed = error != ""
    error[failed] = [redact_text(str(text)) for text in error[failed]]
    for measure in panel.measures:
        if measure.per_trial and failed.any():
            values[measure.name][failed if panel.trials is not None else ...] = _missing(measure.dtype)
    return Outcome(values, np.where(failed, Status.FAILED, Status.OK).astype(np.int8), error)


def _shape(panel: Panel, measure: Measure, n_trials: int) -> tuple[int, ...]:
    sizes = {axis.name: len(axis.values) for axis in panel.outputs}
    trials = (n_trials,) if measure.per_trial and panel.trials is not None else ()
    return (*trials, *(sizes[dim] for dim in measure.dims))


def _missing(dtype: str) -> Any:
    """Return the placeholder for missing values: NaN, zero or an empty string."""
    return np.nan if np.dtype(dtype).kind == "f" else np.zeros((), dtype)[()]
