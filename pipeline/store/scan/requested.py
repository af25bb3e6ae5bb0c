"""Numbers of trials that a store asks for, per cell and setting.

A run until a precision adds trials where they are needed, so the cells of a panel have different numbers of trials on
one trial axis. The record of its session holds these numbers. Trials beyond them were not asked for: they are neither
pending nor failed. Without such a record, every trial of a panel is asked for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from pipeline.declare.panel import Panel
from pipeline.errors import command
from pipeline.store.codec.regions import setting_index

RECORD = "asked"
"""Key of the numbers in the record of a session."""


class Stop(IntEnum):
    """Reason why no further trials of a cell and setting were asked for, with its `meaning` as a phrase."""

    meaning: str

    NOT_YET = 0, "not stopped"
    REACHED = 1, "precision reached"
    CONSTANT = 2, "all values equal"
    DECIDED = 3, "claims decided"
    TRIALS_SPENT = 4, "trials spent"
    TIME_SPENT = 5, "time spent"
    FAILED = 6, "no finite error"
    NO_TARGET = 7, "no target"

    def __new__(cls, value: int, meaning: str) -> "Stop":
        """Return a member with an integer and a phrase."""
        member = int.__new__(cls, value)
        member._value_, member.meaning = value, meaning
        return member


@dataclass(frozen=True)
class RequestedTrials:
    """Numbers of trials asked for in a panel, by array position: data factors, method factors and methods."""

    trials: np.ndarray  # multiples of `Panel.block_trials` or the whole trial axis, shape (*cells, *settings)
    stopped: np.ndarray  # `Stop` per array position

    def __post_init__(self) -> None:
        """Raise ValueError for negative numbers and unknown reasons."""
        if (self.trials < 0).any() or not np.isin(self.stopped, list(Stop)).all():
            raise ValueError("numbers of trials must be >= 0, and reasons those of Stop")

    @classmethod
    def of_settings(cls, panel: Panel, trials: np.ndarray, stopped: np.ndarray) -> "RequestedTrials":
        """Return the numbers of a panel from arrays of shape (cell, setting)."""
        shape, n_factors = _shape(panel), len(panel.factors)
        grids = np.zeros((2, *shape), int)
        for grid, values in zip(grids, (trials, stopped), strict=True):
            for k, setting in enumerate(panel.settings()):
                at = (slice(None),) * n_factors + setting_index(panel, setting)
                grid[at] = values[:, k].reshape(shape[:n_factors] + (1,) * (grid[at].ndim - n_factors))
        return cls(*grids)

    def by_setting(self, panel: Panel) -> np.ndarray:
        """Return `trials` with shape (cell, setting), for a panel of this or a larger grid."""
        grid, axes = self.fitted(_shape(panel), panel.n_trials).trials, (slice(None),) * len(panel.factors)
        of_settings = [grid[axes + setting_index(panel, setting)] for setting in panel.settings()]
        return np.stack([by_setting.reshape(len(panel.cells()), -1)[:, 0] for by_setting in of_settings], axis=1)

    def fitted(self, shape: Sequence[int], n_trials: int) -> "RequestedTrials":
        """Return the numbers, limited to `n_trials`, on a grid of another shape; added positions ask for all trials."""
        pads = [(0, max(0, wanted - size)) for wanted, size in zip(shape, self.trials.shape, strict=True)]
        trials = np.pad(np.minimum(self.trials, n_trials), pads, constant_values=n_trials)
        within = tuple(slice(0, wanted) for wanted in shape)
        return RequestedTrials(trials[within], np.pad(self.stopped, pads)[within])


def read_requested(sessions: Sequence[Mapping[str, Any]]) -> dict[str, RequestedTrials]:
    """Return the numbers of the latest session that recorded them, by panel; panels without an entry ask for all."""
    record: Mapping[str, Any] = next((session[RECORD] for session in reversed(sessions) if RECORD in session), {})
    return {
        panel: RequestedTrials(*(np.array(grids[name], int).reshape(grids["shape"]) for name in ("trials", "stopped")))
        for panel, grids in record.items()
    }


@dataclass(frozen=True)
class RecordedGoal:
    """Goal and budget of the latest run until a target, as its session recorded them."""

    until: str  # target as given
    at_most: int | None  # maximum number of trials per cell
    within: float | None  # maximum time in seconds
    panels: tuple[str, ...]  # of the goal; empty for all
    is_open: bool  # True if interrupted before the goal was reached or the budget spent
    unmet: str  # missing part of the goal when the run ended; empty if reached

    def continuation(self, url: str) -> str:
        """Return the command that continues towards the target with a larger budget."""
        panels = [word for name in self.panels for word in ("--panel", name)]
        return command("extend", url, "--until", self.until, *panels, "--at-most", "N")

    def record(self) -> dict[str, Any]:
        """Return the fields of a session's record from which `read_goal` restores the goal and budget."""
        return {"until": self.until, "at_most": self.at_most, "within": self.within, "panels": list(self.panels)}


def read_goal(sessions: Sequence[Mapping[str, Any]]) -> RecordedGoal | None:
    """Return the goal of the latest run until a target, or None if there was none or a fixed number replaced it."""
    record: Mapping[str, Any] = next(
        (session for session in reversed(sessions) if "until" in session or RECORD in session), {}
    )
    if "until" not in record:
        return None
    unmet = record.get("unmet", "")
    return RecordedGoal(
        record["until"],
        record.get("at_most"),
        record.get("within"),
        tuple(record.get("panels", ())),
        "finished" not in record and not unmet,
        unmet,
    )


def record_requested(requested: Mapping[str, RequestedTrials]) -> dict[str, Any]:
    """Return the fields of a session's record from which `read_asked` restores the numbers."""
    return {
        RECORD: {
            panel: {"shape": list(numbers.trials.shape)}
            | {name: getattr(numbers, name).ravel().tolist() for name in ("trials", "stopped")}
            for panel, numbers in requested.items()
        }
    }


def _shape(panel: Panel) -> tuple[int, ...]:
    return tuple(len(axis.values) for axis in (*panel.factors, *panel.method_axes))
