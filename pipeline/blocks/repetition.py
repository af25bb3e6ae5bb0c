"""Repeated evaluation of first trials, which finds randomness that is not from the streams, and transposed values.

Both evaluations are in one process, as the start of another one takes a second or more. Numbers that are constant
within a process, such as the hash of a text, `id`, or a cached generator without a seed, are found by `verify`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.blocks.evaluate import Block, Outcome, Status, describe_transposed, evaluate_block, simulate_block
from pipeline.blocks.one_thread import one_thread
from pipeline.declare.contents import leaves
from pipeline.declare.panel import Panel, Setting
from pipeline.declare.study import Study

_COMPARED = (np.ndarray, np.generic, int, float, complex)


@dataclass(frozen=True)
class FirstTrial:
    """First trial of a cell, and the settings, by their indices, to evaluate on it twice."""

    panel: str
    cell: int
    settings: tuple[int, ...]

    @property
    def block(self) -> Block:
        """Block that consists of the trial."""
        return Block(self.panel, self.cell, range(1))


def first_trials(panel: Panel, skipped: Sequence[str] = ()) -> list[FirstTrial]:
    """Return a first trial of the simulation and of every method without `unseeded`, but for the skipped names.

    The cells and settings are the first ones to which a method applies, which tend to cost least.
    """
    chosen: dict[int, list[int]] = {} if len(skipped) == len(panel.methods) else {0: []}
    for method in panel.methods:
        if method.unseeded or method.name in skipped:
            continue
        indices = [k for k, setting in enumerate(panel.settings()) if setting.method == method]
        for cell, k in np.argwhere(panel.applicable[:, indices])[:1]:
            chosen.setdefault(int(cell), []).append(indices[k])
    return [
        FirstTrial(panel.name, cell, part)
        for cell, settings in chosen.items()
        for part in ([(k,) for k in settings] if panel.settings_apart and settings else [tuple(settings)])
    ]


@one_thread()
def find_unseeded(study: Study, trial: FirstTrial) -> str:
    """Evaluate settings twice on a trial; return a one-line message on the first defect, or an empty string.

    The second evaluation is in reverse order, so that a method which depends on those before it is found.
    """
    panel = study.panel(trial.panel)
    if not _equal_data(*(simulate_block(study, trial.block) for _ in range(2))):
        return (
            f"simulate of panel {panel.name} must return the same data whenever it is called with equal streams, got "
            "different data from two calls; draw all random numbers from streams, not from np.random or random"
        )
    settings = [panel.settings()[k] for k in trial.settings]
    first = evaluate_block(study, trial.block, settings)
    second = evaluate_block(study, trial.block, settings[::-1])[::-1]
    for setting, before, after in zip(settings, first, second, strict=True):
        # a whole block may have as many trials as values per trial, so that its transposed values have the right shape
        if before.status[0] == Status.FAILED and (problem := describe_transposed(study, trial.block, setting)):
            return (
                f"method {setting.label} of panel {panel.name} must return values with trials along the first axis: "
                f"{problem} for one trial; transpose them"
            )
        if difference := _describe_difference(panel, before, after):
            return _refusal(panel, setting, difference, len(settings) > 1)
    return ""


def _refusal(panel: Panel, setting: Setting, difference: str, is_among_others: bool) -> str:
    order = ", before and after other methods; change nothing that another method uses" if is_among_others else ""
    return (
        f"method {setting.label} of panel {panel.name} must return the same numbers whenever it is called with equal "
        f"streams, got {difference} from two calls{order}; draw all random numbers from streams, give "
        "programs that it starts a seed from streams.seeds(), or declare the method with unseeded=True"
    )


def _describe_difference(panel: Panel, first: Outcome, second: Outcome) -> str:
    """Return the statuses, or the values of a measure, in which two outcomes differ; or an empty string."""
    if not np.array_equal(first.status, second.status):
        return f"different statuses, {_describe_status(first)} and {_describe_status(second)},"
    for measure in panel.measures:
        pair = first.values[measure.name], second.values[measure.name]
        if not _equal(*pair):
            apart = [value[pair[0] != pair[1]].flat[0] for value in pair]
            return f"{measure.name} = {apart[0]} and {apart[1]}"
    return ""


def _describe_status(outcome: Outcome) -> str:
    """Return the status of a single trial, with the cause of a failure."""
    status = Status(outcome.status[0]).words
    return f"{status} ({outcome.cause})" if outcome.cause else status


def _equal_data(first: Any, second: Any) -> bool:
    """Return True if the arrays and numbers in two data sets are equal; other objects are not compared."""
    pairs = zip(leaves(first), leaves(second), strict=False)
    compared = [pair for pair in pairs if all(isinstance(item, _COMPARED) for item in pair)]
    return all(_equal(*map(np.asarray, pair)) for pair in compared)


def _equal(first: np.ndarray, second: np.ndarray) -> bool:
    """Return True for arrays with the same values, also missing ones; objects are not compared."""
    kinds = {first.dtype.kind, second.dtype.kind}
    if first.dtype.names and second.dtype.names:
        return first.dtype.names == second.dtype.names and all(
            _equal(first[name], second[name]) for name in first.dtype.names
        )
    if first.dtype.hasobject or second.dtype.hasobject:
        return True
    if len(kinds) > 1 and kinds & set("mMV"):
        return False
    return np.array_equal(first, second, equal_nan=kinds <= set("fcmM"))
