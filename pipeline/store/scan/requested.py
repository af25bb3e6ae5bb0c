"""Numbers of trials that a store asks for, per cell and setting.

A run until a target has trials where they are needed, so the cells of a panel have different numbers of trials on one
trial axis. The record of its session holds these numbers. Trials beyond them were not asked for: they are neither
pending nor failed. Without such a record, every trial of a panel is asked for.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from pipeline.declare.panel import Panel
from pipeline.errors import BadInputError, UnreadableStoreError
from pipeline.store.codec.regions import setting_index
from pipeline.store.files.access import Files
from pipeline.store.sessions.records import REQUESTED, SESSION_COPIES, has_copies, is_lost, sessions_of


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
    def of_settings(cls, panel: Panel, trials: np.ndarray, stopped: np.ndarray | None = None) -> "RequestedTrials":
        """Return the numbers of a panel from arrays of shape (cell, setting), by default without reasons."""
        shape, n_factors = _shape(panel), len(panel.factors)
        grids = np.zeros((2, *shape), int)
        for grid, values in zip(grids, (trials, trials * 0 if stopped is None else stopped), strict=True):
            for k, setting in enumerate(panel.settings()):
                at = (slice(None),) * n_factors + setting_index(panel, setting)
                grid[at] = values[:, k].reshape(shape[:n_factors] + (1,) * (grid[at].ndim - n_factors))
        return cls(*grids)

    def by_setting(self, panel: Panel) -> np.ndarray:
        """Return `trials` with shape (cell, setting), for a panel of this or a larger grid."""
        return _first_positions(panel, self.fitted(_shape(panel), panel.n_trials).trials)

    def extended(self, panel: Panel) -> "RequestedTrials":
        """Return the numbers of a panel with more values; settings with an old position keep theirs at all others.

        A method that does not use a factor has one setting for all values of it, also for new ones.
        """
        fitted = self.fitted(_shape(panel), panel.n_trials)
        return self.of_settings(panel, _first_positions(panel, fitted.trials), _first_positions(panel, fitted.stopped))

    def fitted(self, shape: Sequence[int], n_trials: int) -> "RequestedTrials":
        """Return the numbers, limited to `n_trials`, on a grid of another shape; added positions ask for all trials."""
        pads = [(0, max(0, wanted - size)) for wanted, size in zip(shape, self.trials.shape, strict=True)]
        trials = np.pad(np.minimum(self.trials, n_trials), pads, constant_values=n_trials)
        within = tuple(slice(0, wanted) for wanted in shape)
        return RequestedTrials(trials[within], np.pad(self.stopped, pads)[within])


def requested_by_panel(
    files: Files, panels: Mapping[str, Any], repair: Callable[[], str] | None
) -> dict[str, RequestedTrials]:
    """Return the numbers of the latest session that recorded them, by panel; panels without an entry ask for all.

    `panels` are those of the spec. If the record may be lost, raise an error with the command that `repair` returns,
    unless it is None.
    """
    sessions = sessions_of(files)
    last: dict[str, Any] = next(
        (session for session in reversed(sessions) if REQUESTED in session or is_lost(session)), {}
    )
    if repair is not None and (is_lost(last) or not has_copies(files)):
        lost = f"the copies of records, {SESSION_COPIES},"
        lost = f"the record {last['damaged']} and its copy" if is_lost(last) else lost
        raise UnreadableStoreError(
            f"{files.url}: {lost} are damaged, so the number of trials asked for is unknown; continue without them "
            f"after: {repair()}"
        )
    try:
        requested = read_requested(next((record for record in reversed(sessions) if REQUESTED in record), {}))
        if any(numbers.trials.ndim != len(panels[panel]["dims"]) for panel, numbers in requested.items()):
            raise ValueError
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise BadInputError(
            f"the store {files.url} cannot have been written by this package, since its record of the trials asked "
            "for is invalid; compute it again, or obtain it again from its origin"
        ) from error
    return requested


def read_requested(record: Mapping[str, Any]) -> dict[str, RequestedTrials]:
    """Return the numbers that `record_requested` recorded, none for a record without them."""
    return {
        panel: RequestedTrials(*(np.array(grids[name], int).reshape(grids["shape"]) for name in ("trials", "stopped")))
        for panel, grids in record.get(REQUESTED, {}).items()
    }


def record_requested(requested: Mapping[str, RequestedTrials]) -> dict[str, Any]:
    """Return the fields of a record from which `read_requested` restores the numbers."""
    return {
        REQUESTED: {
            panel: {"shape": list(numbers.trials.shape)}
            | {name: getattr(numbers, name).ravel().tolist() for name in ("trials", "stopped")}
            for panel, numbers in requested.items()
        }
    }


def _first_positions(panel: Panel, grid: np.ndarray) -> np.ndarray:
    """Return the values of a grid of positions at the first one of each setting, shape (cell, setting)."""
    axes = (slice(None),) * len(panel.factors)
    of_settings = [grid[axes + setting_index(panel, setting)] for setting in panel.settings()]
    return np.stack([positions.reshape(len(panel.cells()), -1)[:, 0] for positions in of_settings], axis=1)


def _shape(panel: Panel) -> tuple[int, ...]:
    return tuple(len(axis.values) for axis in (*panel.factors, *panel.method_axes))
