"""Mean losses of methods relative to those of another one.

The relative loss in a cell is the mean over components of the ratios a̅/b̅ of mean losses, and that of a panel is the
mean over cells. Both are linear in a̅, so that a method has them also where its own mean is not far from 0. Only cells
are left out in which a mean b̅ is at most 3 standard errors above 0, and those are the same for all methods. If cells
were left out by a̅ as well, methods with heavy tails of losses would lack the cells in which they are worst, and the
best methods those in which their losses are smallest.

If both methods have trials, only those are used in which both are ok, and no later ones than the first trials that are
shipped. The Monte Carlo error is that of the average of a̅/b̅ by the delta method: trial i has the influence
(a_i − b_i·a̅/b̅)/b̅, so that errors that both methods share cancel.

Otherwise the comparison is not paired: each mean is over all ok trials of its method, also those in which the other one
has failed. Of a method without trials only the errors of means are known, not their covariances between components, or
between cells with the same data. The standard deviation of a sum is at most the sum of standard deviations, so errors
are added, which bounds the error of their sum. Errors of both sides, and of cells with different data, are combined as
independent ones, by the root of the sum of squares.

The sides are not independent if the seeds agree: of n trials of a and N of b, the first min(n, N) have the same data,
and the squared relative error of a̅/b̅ is s²/n + t²/N − 2r·s·t/max(n, N), with the standard deviations s, t of a_i/E a
and b_i/E b, and their correlation r. The error without the last term is too large if r > 0, when losses of both methods
rise and fall with the data. It is too small only if r < 0, by a factor of at most √2 (r = −1, n = N, s = t).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from studies.benchmark.method_summary import Array, CellMeans

_LEAST_ERRORS = 3.0  # standard errors by which a mean loss must exceed 0 to be a denominator


@dataclass(frozen=True)
class RelativeLoss:
    """Loss of a method relative to that of another one, by cell and on average over cells.

    Attributes
    ----------
    ratio, error : array, shape (cell,)
        Relative loss, and its Monte Carlo error; NaN in cells without one.
    fixed : array, shape (cell,)
        Part of the error that further trials do not reduce: that of the side without trials; 0 if trials are paired.
    n : array, shape (cell,)
        Numbers of trials: of pairs, or of the side with trials.
    mean, mean_error : float
        Mean over the cells that have a relative loss, and its error; NaN without such a cell.
    """

    ratio: Array
    error: Array
    fixed: Array
    n: NDArray[np.int64]
    mean: float
    mean_error: float

    @property
    def n_cells(self) -> int:
        """Number of cells with a relative loss."""
        return int(np.isfinite(self.ratio).sum())


def compare_losses(
    losses: Sequence[CellMeans], bases: Sequence[CellMeans | None], groups: NDArray[np.int64]
) -> RelativeLoss:
    """Return the relative losses of cells; the base of a cell may be missing.

    Cells with equal numbers in `groups` have the same data, so that their errors are dependent.
    """
    rows = [_Comparison.of(loss, base) for loss, base in zip(losses, bases, strict=True)]
    ratios = np.array([row.ratio for row in rows])
    influences = np.array(np.broadcast_arrays(*(row.influence for row in rows)))
    bounds = np.array([row.bounds for row in rows])
    counts = np.array([row.n for row in rows])
    used = np.isfinite(ratios)
    with np.errstate(invalid="ignore", divide="ignore"):
        errors = np.where(used, np.hypot(_error(influences, counts), _root(bounds)), np.nan)
    fixed = np.where(used, _root(bounds), np.nan)
    if not used.any():
        return RelativeLoss(ratios, errors, fixed, counts, np.nan, np.nan)
    variance = sum(
        _error(influences[members].sum(axis=0), counts[members].min()) ** 2 + _root(bounds[members].sum(axis=0)) ** 2
        for group in np.unique(groups[used])
        for members in [used & (groups == group)]
    )
    mean_error = float(np.sqrt(variance)) / int(used.sum())
    return RelativeLoss(ratios, errors, fixed, counts, float(ratios[used].mean()), mean_error)


def _error(influences: Array, n: NDArray[np.int64] | np.int64) -> Array:
    """Return the standard error of a mean from influences of n trials, which are 0 in other trials."""
    return np.sqrt((influences**2).sum(axis=-1) / n / np.maximum(n - 1, 1))


def _root(bounds: Array) -> Array:
    return np.sqrt((bounds**2).sum(axis=-1))


@dataclass(frozen=True)
class _Comparison:
    """Relative loss in one cell, and its error in two parts, for sides with trials and for those without."""

    ratio: float = np.nan
    influence: Array = field(default_factory=lambda: np.zeros(1))  # shape (trial,), 0 for trials that are not used
    bounds: tuple[float, float] = (0.0, 0.0)  # of the errors of sides without trials
    n: int = 0

    @classmethod
    def of(cls, loss: CellMeans, base: CellMeans | None) -> "_Comparison":
        if base is None:
            return cls()
        sides = [loss, base]
        if loss.trials is not None and base.trials is not None:
            paired = np.isfinite(loss.trials) & np.isfinite(base.trials)
            sides = [CellMeans.of(np.where(paired, trials, np.nan)) for trials in (loss.trials, base.trials)]
        used = (sides[0].n > 1) & (sides[1].n > 1)
        numerator, denominator = (side.select(used) for side in sides)
        unpaired = base.select(used)  # all of its trials, so that the cells do not depend on the method
        is_near_zero = (unpaired.mean <= _LEAST_ERRORS * unpaired.error) | (denominator.mean <= 0)
        if not used.any() or is_near_zero.any():
            return cls()
        ratios = numerator.mean / denominator.mean
        slopes = 1.0 / denominator.mean, -ratios / denominator.mean  # of the ratios in both means
        pairs = list(zip((numerator, denominator), slopes, strict=True))
        (influence, n), (base_influence, base_n) = (_influence(side, slope) for side, slope in pairs)
        of_loss, of_base = (
            0.0 if side.trials is not None or loss is base else _bound(side, slope) for side, slope in pairs
        )
        n_used = base_n if loss.trials is None else n
        return cls(float(ratios.mean()), influence + base_influence, (of_loss, of_base), n_used)


def _influence(means: CellMeans, slopes: Array) -> tuple[Array, int]:
    """Return the influence of each trial on the average of slopes times means, 0 without trials, and their number."""
    if means.trials is None:
        return np.zeros(1), int(means.n.min())
    present = np.isfinite(means.trials)
    n = int(present.any(axis=0).sum())
    deviation = np.where(present, means.trials - means.mean[:, None], 0.0)
    return (deviation * (slopes * n / means.n)[:, None]).mean(axis=0), n


def _bound(means: CellMeans, slopes: Array) -> float:
    """Return a bound of the error of the average of slopes times means, whatever their covariances."""
    return float((means.error * np.abs(slopes)).mean())
