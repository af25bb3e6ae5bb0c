"""Mean losses of methods relative to those of another one, by the trials in which both are ok.

The relative loss in a cell is the geometric mean over components of ratios of mean losses. Its Monte Carlo error is
that of the average of log a̅ − log b̅ by the delta method: trial i has the influence a_i/a̅ − b_i/b̅, so that errors that
both methods share cancel.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from studies.benchmark.panel_trials import Array

_LEAST_ERRORS = 3.0  # standard errors by which a mean loss must exceed 0 to have a ratio


@dataclass(frozen=True)
class RelativeLoss:
    """Loss of a method relative to that of another one, by cell and on average over cells.

    Attributes
    ----------
    log, error : array, shape (cell,)
        Logarithm of the relative loss, and its Monte Carlo error; NaN in cells without one.
    n : array, shape (cell,)
        Numbers of paired trials.
    mean_log, mean_error : float
        The same for the geometric mean over the cells that have a relative loss.
    """

    log: Array
    error: Array
    n: NDArray[np.int64]
    mean_log: float
    mean_error: float

    @property
    def n_cells(self) -> int:
        """Number of cells with a relative loss."""
        return int(np.isfinite(self.log).sum())


def compare_losses(losses: Sequence[Array], bases: Sequence[Array | None], groups: NDArray[np.int64]) -> RelativeLoss:
    """Return the relative losses of cells, each of shape (component, trial); the base of a cell may be missing.

    Cells with equal numbers in `groups` have the same data, so that their errors are dependent.
    """
    rows = [
        _Comparison.of(loss, base) if base is not None else _Comparison.none(loss.shape[1])
        for loss, base in zip(losses, bases, strict=True)
    ]
    logs = np.array([row.log for row in rows])
    influences = np.array([row.influence for row in rows])
    counts = np.array([row.n for row in rows])
    with np.errstate(invalid="ignore", divide="ignore"):
        errors = np.where(np.isfinite(logs), _error(influences, counts), np.nan)
    used = np.isfinite(logs)
    if not used.any():
        return RelativeLoss(logs, errors, counts, np.nan, np.nan)
    variance = sum(
        _error(influences[members].sum(axis=0), counts[members].min()) ** 2
        for group in np.unique(groups[used])
        for members in [used & (groups == group)]
    )
    return RelativeLoss(logs, errors, counts, float(logs[used].mean()), float(np.sqrt(variance)) / int(used.sum()))


def _error(influences: Array, n: NDArray[np.int64] | np.int64) -> Array:
    """Return the standard error of a mean from influences of n trials, which are 0 in other trials."""
    return np.sqrt((influences**2).sum(axis=-1) / n / np.maximum(n - 1, 1))


@dataclass(frozen=True)
class _Comparison:
    """Relative loss in one cell, with the influence of each trial, 0 for trials that are not ok in both methods."""

    log: float
    influence: Array  # shape (trial,)
    n: int

    @classmethod
    def none(cls, n_trials: int) -> "_Comparison":
        return cls(np.nan, np.zeros(n_trials), 0)

    @classmethod
    def of(cls, loss: Array, base: Array) -> "_Comparison":
        paired = np.isfinite(loss) & np.isfinite(base)
        counts = paired.sum(axis=1)
        components = counts > 1
        if not components.any():
            return cls.none(loss.shape[1])
        paired, counts = paired[components], counts[components]
        logs, influences = [], []
        n = int(paired.any(axis=0).sum())
        for values, sign in ((loss[components], 1.0), (base[components], -1.0)):
            used = np.where(paired, values, 0.0)
            mean = used.sum(axis=1) / counts
            deviation = np.where(paired, used - mean[:, None], 0.0)
            error = np.sqrt((deviation**2).sum(axis=1) / counts / (counts - 1))
            if (mean <= _LEAST_ERRORS * error).any() or (mean <= 0).any():
                return cls.none(loss.shape[1])
            logs.append(sign * np.log(mean))
            influences.append(sign * deviation / mean[:, None] * (n / counts)[:, None])
        return cls(float(np.mean(logs[0] + logs[1])), (influences[0] + influences[1]).mean(axis=0), n)
