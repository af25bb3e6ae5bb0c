"""Repeated evaluation of first trials, which finds defects of methods before anything is written.

These are randomness that is not from the streams, transposed values, and numbers that depend on other trials. Methods
that several panels share are evaluated in the first of them. All
evaluations are in one process, as the start of another one takes a second or more. Numbers that are constant within a
process, such as the hash of a text, `id`, or a cached generator without a seed, are found by `verify`.
"""

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from pipeline.blocks.evaluate import Block, Outcome, Status, describe_transposed, evaluate_block, simulate_block
from pipeline.blocks.one_thread import one_thread
from pipeline.declare.contents import leaves
from pipeline.declare.factors import Measure
from pipeline.declare.panel import Panel, Setting
from pipeline.declare.study import Study

_MOST_SECONDS = 1.0  # of the first evaluation of methods that are also evaluated on two trials together
_TOLERANCE = 1e-6  # relative; rounding may depend on the number of trials that are computed together
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


def shared_methods(panels: Sequence[Panel]) -> dict[str, list[str]]:
    """Return the names of the methods of each panel whose function is evaluated on a first trial of an earlier panel.

    Functions of methods that a user added are evaluated in every panel, since they tend to depend on its model.
    """
    earlier: set[object] = set()
    shared: dict[str, list[str]] = {}
    for panel in panels:
        keys = {method.name: (id(panel.evaluate), _function_key(method.evaluate)) for method in panel.methods}
        own = {method.name for method in panel.methods if method.is_added}
        shared[panel.name] = [name for name, key in keys.items() if key in earlier and name not in own]
        if panel.n_trials > 1:  # otherwise two trials are not evaluated together
            applicable = [setting.method for k, setting in enumerate(panel.settings()) if panel.applicable[:, k].any()]
            earlier.update(keys[method.name] for method in applicable if not method.unseeded)
    return shared


def _function_key(function: Any) -> object:
    """Return a key that is equal for the same function, and for partial ones of it with equal texts and numbers."""
    if not isinstance(function, partial):
        return id(function)
    arguments = *function.args, *itertools.chain.from_iterable(sorted(function.keywords.items()))
    # 1, 1.0 and True are equal, but a function may distinguish them; other objects may be equal in part only
    by_type = tuple((type(a), a) if type(a) in (str, int, float, bool, type(None)) else id(a) for a in arguments)
    return id(function.func), len(function.args), by_type


def first_trials(panel: Panel, skipped: Sequence[str] = (), shared: Sequence[str] = ()) -> list[FirstTrial]:
    """Return a first trial of the simulation and of every method without `unseeded`, but for skipped and shared names.

    The simulation is omitted if all methods are skipped. The cells and settings are the first ones to which a method
    applies, which tend to cost least.
    """
    chosen: dict[int, list[int]] = {} if len(skipped) == len(panel.methods) else {0: []}
    for method in panel.methods:
        if method.unseeded or method.name in (*skipped, *shared):
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
def find_defect(study: Study, trial: FirstTrial) -> str:
    """Evaluate settings repeatedly on a trial; return a one-line message on the first defect, or an empty string.

    The second evaluation is in reverse order, so that a method which depends on those before it is found; the third is
    together with the second trial, unless the first one took long.
    """
    panel, state = study.panel(trial.panel), _global_state()
    if not _equal_data(*(simulate_block(study, trial.block) for _ in range(2))):
        return (
            f"simulate of panel {panel.name} must return the same data whenever it is called with equal streams, got "
            "different data from two calls; draw all random numbers from streams, not from np.random or random"
        )
    settings = [panel.settings()[k] for k in trial.settings]
    started = time.perf_counter()
    first = evaluate_block(study, trial.block, settings)
    seconds = time.perf_counter() - started
    second = evaluate_block(study, trial.block, settings[::-1])[::-1]
    for setting, before, after in zip(settings, first, second, strict=True):
        # a whole block may have as many trials as values per trial, so that its transposed values have the right shape
        if before.status[0] == Status.FAILED and (problem := describe_transposed(study, trial.block, setting)):
            return (
                f"method {setting.label} of panel {panel.name} must return values with trials along the first axis: "
                f"{problem} for one trial; transpose them"
            )
        if difference := _describe_difference(panel.measures, before, after):
            return _refusal(panel, setting, difference, len(settings) > 1)
    if _global_state() != state:  # which is seeded, but by one thread while another one draws
        return (
            "functions of a study must not change NumPy's global random state, which threads share, got a change while "
            "first trials were evaluated; use streams.generators() in place of np.random"
        )
    return _find_pooled(study, trial, first) if seconds <= _MOST_SECONDS and panel.n_trials > 1 else ""


def _global_state() -> tuple[Any, ...]:
    """Return the state of NumPy's global random generator."""
    name, key, *rest = np.random.get_state()  # noqa: NPY002 - to find out who uses it
    return (name, np.asarray(key).tobytes(), *rest)


def _find_pooled(study: Study, trial: FirstTrial, alone: Sequence[Outcome]) -> str:
    """Return a message on the first setting whose numbers for a trial or a cell change with the trials of a block."""
    panel = study.panel(trial.panel)
    settings = [panel.settings()[k] for k in trial.settings]
    together = evaluate_block(study, Block(trial.panel, trial.cell, range(2)), settings)
    for setting, before, after in zip(settings, alone, together, strict=True):
        if difference := _describe_difference(panel.measures, before, _first_of(panel, after), _TOLERANCE):
            return (
                f"method {setting.label} of panel {panel.name} must return the same numbers for a trial whether it is "
                f"computed alone or with others, got {difference} for the first trial alone and with the second; "
                "compute each trial from its own values, for example with axis=1"
            )
    of_cells = [measure for measure in panel.measures if not measure.per_trial]
    if not of_cells:
        return ""
    other = evaluate_block(study, Block(trial.panel, trial.cell, range(1, 2)), settings)
    for setting, before, after in zip(settings, alone, other, strict=True):
        if before.status[0] == after.status[0] and (difference := _describe_difference(of_cells, before, after)):
            return (
                f"method {setting.label} of panel {panel.name} must return equal numbers per cell in all blocks, got "
                f"{difference} for the first and the second trial; compute them from the cell alone, or declare the "
                "measure with per_trial=True"
            )
    return ""


def _first_of(panel: Panel, outcome: Outcome) -> Outcome:
    """Return the part of an outcome that belongs to its first trial."""
    values = {
        measure.name: outcome.values[measure.name][:1] if measure.per_trial else outcome.values[measure.name]
        for measure in panel.measures
    }
    return Outcome(values, outcome.status[:1], outcome.error[:1])


def _refusal(panel: Panel, setting: Setting, difference: str, is_among_others: bool) -> str:
    order = ", before and after other methods; change nothing that another method uses" if is_among_others else ""
    return (
        f"method {setting.label} of panel {panel.name} must return the same numbers whenever it is called with equal "
        f"streams, got {difference} from two calls{order}; draw all random numbers from streams, give "
        "programs that it starts a seed from streams.seeds(), or declare the method with unseeded=True"
    )


def _describe_difference(measures: Sequence[Measure], first: Outcome, second: Outcome, tolerance: float = 0.0) -> str:
    """Return the statuses, or the values of a measure, in which two outcomes differ; or an empty string.

    Numbers within a relative tolerance of the largest one are equal.
    """
    if not np.array_equal(first.status, second.status):
        return f"different statuses, {_describe_status(first)} and {_describe_status(second)},"
    for measure in measures:
        pair = first.values[measure.name], second.values[measure.name]
        if not (_equal(*pair) or (tolerance and _is_near(*pair, tolerance))):
            apart = [value[pair[0] != pair[1]].flat[0] for value in pair]
            return f"{measure.name} = {apart[0]} and {apart[1]}"
    return ""


def _describe_status(outcome: Outcome) -> str:
    """Return the status of a single trial, with the cause of a failure."""
    status = Status(outcome.status[0]).words
    return f"{status} ({outcome.cause})" if outcome.cause else status


def _is_near(first: np.ndarray, second: np.ndarray, tolerance: float) -> bool:
    if first.dtype.kind != "f":
        return False
    largest = np.abs(first[np.isfinite(first)]).max(initial=0.0)
    return np.allclose(first, second, rtol=tolerance, atol=tolerance * largest, equal_nan=True)


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
