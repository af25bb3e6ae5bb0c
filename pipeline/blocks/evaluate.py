"""Compute one block: simulate the data of some trials, evaluate settings on them, and account for every failure.

A block is one cell and a run of trials. What comes back for a setting is an `Outcome`, in which each trial is either ok
or failed with a reason; an exception of a method never reaches the caller.
"""

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from typing import Any

import numpy as np

from pipeline.blocks.one_thread import one_thread
from pipeline.declare.factors import Measure, Value
from pipeline.declare.panel import Panel, Setting
from pipeline.declare.streams import Streams
from pipeline.declare.study import Study


class Status(IntEnum):
    """What became of a trial under a setting; the values are those of the variable ``status``."""

    PENDING = 0
    OK = 1
    FAILED = 2
    TIMED_OUT = 3
    KILLED = 4
    NOT_APPLICABLE = 5


FAILURES = (Status.FAILED, Status.TIMED_OUT, Status.KILLED)
SAME_CAUSE = "same cause as the first trial of its block"
FATES = {
    Status.KILLED: "the worker process died while it computed this trial, or both ends of its block",
    Status.TIMED_OUT: "this trial, or both ends of its block, took longer than the time limit",
}


@dataclass(frozen=True)
class Block:
    """One cell of a panel and a run of its trials.

    Attributes
    ----------
    panel : str
        Name of the panel.
    cell : int
        Position of the cell in `Panel.cells`.
    trials : range
        The trials; ``range(0, 1)`` in a deterministic panel.
    """

    panel: str
    cell: int
    trials: range


@dataclass(frozen=True)
class Outcome:
    """The result of one setting on one block.

    Attributes
    ----------
    values : dict of str to ndarray
        Each measure; shape ``(trial, *dims)``, or ``dims`` where it is not per trial.
    status : ndarray of int8, shape (trial,)
        A `Status` for every trial, never pending.
    error : ndarray of str, shape (trial,)
        Why a trial failed; empty where it is ok.
    """

    values: dict[str, np.ndarray]
    status: np.ndarray
    error: np.ndarray


@one_thread()
def evaluate_block(study: Study, block: Block, settings: Sequence[Setting]) -> list[Outcome]:
    """Compute settings on one block.

    All settings see the same data. If the simulation or a method raises, the first and the last trial are tried alone:
    where both raise the same error, the whole run of trials fails with that one traceback; else the run is halved until
    the guilty trials are found, and the others keep their numbers, which do not depend on how trials are grouped.

    Parameters
    ----------
    study : Study
        The configured study.
    block : Block
        Cell and trials.
    settings : sequence of Setting
        What to evaluate.

    Returns
    -------
    list of Outcome
        One for each setting.
    """
    panel = study.panel(block.panel)
    cell = panel.cells()[block.cell]
    applicable = [setting for setting in settings if panel.applies(cell, setting)]
    try:
        computed = _compute(study, panel, cell, block.trials, applicable)
    except (Exception, SystemExit):
        computed = []
    if not computed:  # outside the handler: tracebacks of single settings and trials are to be their own
        computed = [_account(study, panel, cell, block.trials, setting) for setting in applicable]
    outcomes = iter(computed)
    return [
        next(outcomes) if setting in applicable else unevaluated(panel, len(block.trials), Status.NOT_APPLICABLE, "")
        for setting in settings
    ]


def evaluate_around(study: Study, block: Block, setting: Setting, condemned: Mapping[int, Status]) -> Outcome:
    """Compute one setting on a block without the trials that end their worker, which get the status given for them.

    Parameters
    ----------
    study, block, setting
        See `evaluate_block`.
    condemned : mapping of int to Status
        Trials of the block, and what became of each.

    Returns
    -------
    Outcome
        Of all trials of the block.
    """
    panel = study.panel(block.panel)
    ends = [block.trials.start - 1, *sorted(condemned), block.trials.stop]
    parts = []
    for before, after in pairwise(ends):
        if before in condemned:
            parts.append(unevaluated(panel, 1, condemned[before], FATES[condemned[before]]))
        if after > before + 1:
            parts += evaluate_block(study, Block(block.panel, block.cell, range(before + 1, after)), [setting])
    return _join(panel, parts)


def unevaluated(panel: Panel, n_trials: int, status: Status, reason: str) -> Outcome:
    """Return the outcome of trials that have no numbers, with the one reason for it."""
    values = {
        measure.name: np.full(_shape(panel, measure, n_trials), _missing(measure.dtype), measure.dtype)
        for measure in panel.measures
    }
    error = np.full(n_trials, SAME_CAUSE, dtype=object)
    error[0] = reason
    return Outcome(values, np.full(n_trials, status, np.int8), error if reason else np.full(n_trials, "", object))


def _compute(
    study: Study, panel: Panel, cell: Mapping[str, Value], trials: range, settings: Sequence[Setting]
) -> list[Outcome]:
    """Compute settings in one call of the panel; whatever they raise goes through."""
    if not settings:
        return []
    streams = Streams(study.seed, study.name, panel.name, "data", cell, trials)
    data = panel.simulate({**panel.fixed_values, **cell}, streams)
    results = panel.evaluate(
        data,
        [(setting.method, {**panel.fixed_values, **setting.values}) for setting in settings],
        [
            Streams(study.seed, study.name, panel.name, setting.method.name, {**cell, **setting.values}, trials)
            for setting in settings
        ],
    )
    if len(results) != len(settings):
        raise ValueError(f"evaluate must return {len(settings)} results, one a setting, got {len(results)}")
    return [_outcome(panel, len(trials), result) for result in results]


def _attempt(
    study: Study, panel: Panel, cell: Mapping[str, Value], trials: range, setting: Setting
) -> tuple[Outcome | None, str, str]:
    """Evaluate one setting: the outcome, or None with the error in a word and with its traceback."""
    try:
        return _compute(study, panel, cell, trials, [setting])[0], "", ""
    except (Exception, SystemExit) as error:
        return None, repr(error), "".join(traceback.format_exception(error)).rstrip()


def _account(study: Study, panel: Panel, cell: Mapping[str, Value], trials: range, setting: Setting) -> Outcome:
    """Evaluate one setting on trials of which some may raise, and account for every one of them."""
    outcome, cause, reason = _attempt(study, panel, cell, trials, setting)
    if outcome is not None:
        return outcome
    ends = [_attempt(study, panel, cell, end, setting)[1] for end in (trials[:1], trials[-1:])]
    if ends == [cause, cause]:
        return unevaluated(panel, len(trials), Status.FAILED, reason)
    return _halve(study, panel, cell, trials, setting)


def _halve(study: Study, panel: Panel, cell: Mapping[str, Value], trials: range, setting: Setting) -> Outcome:
    """Find the trials that raise by halving, and keep the others."""
    outcome, _, reason = _attempt(study, panel, cell, trials, setting)
    if outcome is not None:
        return outcome
    if len(trials) == 1:
        return unevaluated(panel, 1, Status.FAILED, reason)
    middle = len(trials) // 2
    return _join(panel, [_halve(study, panel, cell, part, setting) for part in (trials[:middle], trials[middle:])])


def _join(panel: Panel, parts: Sequence[Outcome]) -> Outcome:
    """Put the outcomes of consecutive runs of trials together."""
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


def _outcome(panel: Panel, n_trials: int, result: Mapping[str, Any]) -> Outcome:
    """Check what a method returned against what the panel declares, and set the status of every trial."""
    allowed = {measure.name for measure in panel.measures}
    if set(result) - {"error"} != allowed:
        raise ValueError(f"a method must return {sorted(allowed)}, got {sorted(result)}")
    error = np.array(result.get("error", [""] * n_trials), dtype=object)
    if error.shape != (n_trials,):
        raise ValueError(f"'error' must have shape {(n_trials,)}, got {error.shape}")
    values = {}
    for measure in panel.measures:
        given = np.asarray(result[measure.name])
        array = given.astype(measure.dtype)
        shape = _shape(panel, measure, n_trials)
        if array.shape != shape:
            raise ValueError(f"{measure.name} must have shape {shape}, got {array.shape}")
        if given.dtype.kind == "f" and array.dtype.kind in "iu" and not np.array_equal(given, array):
            raise ValueError(f"{measure.name} must be whole numbers, got {given[given != array].flat[0]}")
        values[measure.name] = array
        if measure.per_trial and not measure.ragged and array.dtype.kind == "f":
            undefined = np.isnan(array).reshape(n_trials, -1).any(axis=1)
            error[undefined & (error == "")] = f"{measure.name} is NaN"
    failed = error != ""
    for measure in panel.measures:
        if measure.per_trial and failed.any():
            values[measure.name] = values[measure.name].copy()
            values[measure.name][failed if panel.trials is not None else ...] = _missing(measure.dtype)
    return Outcome(values, np.where(failed, Status.FAILED, Status.OK).astype(np.int8), error)


def _shape(panel: Panel, measure: Measure, n_trials: int) -> tuple[int, ...]:
    """Shape of a measure over some trials."""
    sizes = {axis.name: len(axis.values) for axis in panel.outputs}
    trials = (n_trials,) if measure.per_trial and panel.trials is not None else ()
    return (*trials, *(sizes[dim] for dim in measure.dims))


def _missing(dtype: str) -> Any:
    """Value that stands where there is none: NaN, zero or an empty text."""
    return np.nan if np.dtype(dtype).kind == "f" else np.zeros((), dtype)[()]
