"""Estimates from private records for the commands ``mean``, ``proportion``, ``histogram`` and ``count``.

Each releases noisy sums as `mechanisms.private_posterior` does, and reads the posterior median and the 95 % interval,
whose ends are quantiles, off the posterior; shares have means, which add up to 1. Means, probabilities and shares are
parameters of the distribution from which the rows are independent draws, so that their intervals contain the
uncertainty of sampling. A count is that of the rows of the file: given a release y with Laplace noise of scale b, and c
~ U{0, …, n}, its posterior is Pr[c | y] ∝ exp(−|y − c|/b).
"""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mechanisms import LedgerFile, publish_bounds
from mechanisms.core.privacy_parameters import add_losses
from mechanisms.inference.private_posterior import DrawnRelease, release_records
from mechanisms.inference.release_model import ReleaseModel
from mechanisms.inference.release_posterior import ReleasePosterior, tabulate_density
from mechanisms.release import LedgerError, require_opendp
from pipeline.errors import BadInputError, ExecutionError, as_bad_input
from studies.output import format_numbers
from studies.own_data.conditions import OTHER
from studies.own_data.estimate_output import Estimate, Question, StoredRelease
from studies.own_data.output import print_range, warn_near_end

LEVEL = 0.95
"""Probability of the intervals."""

_CELLS, _TAIL = 100, 5e-4  # number of cells of a drawn density, and probability beyond each end


@dataclass(frozen=True)
class Spending:
    """Privacy losses of a release in nats, and the ledger in which they are entered; a seed rehearses."""

    epsilon: float
    seed: int | None = None
    name: str = ""  # of the release in the ledger
    ledger: LedgerFile | None = None
    search: float | None = None  # loss of the search for the range; None if the range is given

    def __post_init__(self) -> None:
        if self.seed is None:
            with as_bad_input():
                require_opendp()

    @property
    def losses(self) -> tuple[float, ...]:
        """Losses of all releases of a command."""
        return (self.epsilon,) if self.search is None else (self.search, self.epsilon)

    @property
    def total(self) -> float:
        """Sum of the losses, added as decimal numbers."""
        return add_losses(*self.losses)

    def release(self, records: Any, family: str, prior: Any = None, **options: Any) -> DrawnRelease:
        """Return the release of a posterior; see `mechanisms.private_posterior`."""
        entered = {"ledger": self._labelled(self.name)}
        with as_bad_input():
            return release_records(records, family, prior, self.epsilon, rehearsal_seed=self.seed, **entered | options)

    def find_range(self, records: np.ndarray, **model: Any) -> tuple[float, float]:
        """Release bounds of records, after a check that the release of a posterior with these options is valid."""
        assert self.search is not None
        if self.seed is None:
            with suppress(_ValidError):
                self.release(records, bounds=(0.0, 1.0), ledger=None, before_release=_stop, **model)
        with as_bad_input():
            ledger = self._labelled(f"range for the {self.name}")
            bounds = publish_bounds(records, self.search, self.seed, ledger=ledger)
        if bounds is None:
            spent = "nothing is spent by a rehearsal" if self.seed is not None else f"{self.search:g} is spent on it"
            raise ExecutionError(
                f"no range was found with --bounds-epsilon {self.search:g}, and no mean was released; {spent}; "
                "increase --bounds-epsilon, or give --range LOW:HIGH"
            )
        print_range(*bounds, self.search, self.seed is not None)
        return bounds

    def _labelled(self, name: str) -> LedgerFile | None:
        return None if self.ledger is None else self.ledger.with_label(name)


class _ValidError(Exception):
    """End of the checks of a release."""


def _stop() -> None:
    raise _ValidError


def release_mean(
    records: np.ndarray, question: Question, spending: Spending, bounds: tuple[float, float] | None
) -> DrawnRelease:
    """Release the sums of a column whose records are clamped to bounds: public ones, or searched for."""
    if records.size < 2:
        raise BadInputError(f"a mean must have at least 2 rows, got {records.size}; use count or a larger table")
    model = {"family": "normal-unknown-variance", "outside": "clamp"}
    if bounds is not None:
        return spending.release(records, bounds=bounds, **model)
    bounds = spending.find_range(records, **model)
    try:
        return spending.release(records, bounds=bounds, **model)
    except BadInputError as error:
        reason = error.__cause__.reason if isinstance(error.__cause__, LedgerError) else error
        raise BadInputError(f"{reason}; no mean was released, but the range is, which is printed above") from error


def release_number(holds: np.ndarray, question: Question, spending: Spending) -> DrawnRelease:
    """Release the number of rows that satisfy a condition."""
    return spending.release(int(holds.sum()), "binomial", question.prior, n=holds.size)


def release_histogram(codes: np.ndarray, question: Question, spending: Spending) -> DrawnRelease:
    """Release the numbers of rows of the categories, given the category of each row as an index of the labels."""
    counts = np.bincount(codes, minlength=len(question.labels))
    return spending.release(counts, "multinomial", question.prior, n=codes.size)


def infer_again(stored: StoredRelease) -> Estimate:
    """Return the estimate given a printed release, which spends nothing."""
    with as_bad_input():
        posterior = stored.release.posterior(stored.question.prior, np.random.default_rng())
    return estimate(stored.question, replace(posterior, guarantee=stored.guarantee))


def estimate(question: Question, posterior: ReleasePosterior) -> Estimate:
    """Return the estimate that answers a question, given the posterior of a release."""
    return _ESTIMATES[question.command](question, posterior)


def _estimate_mean(question: Question, posterior: ReleasePosterior) -> Estimate:
    column, unit = question.subject, question.unit
    model = posterior.model
    assert isinstance(model, ReleaseModel)
    assert model.bounds is not None
    posterior = posterior.labelled([f"mean of {column}", f"variance of {column}"], unit)
    (low, _), (high, _) = posterior.interval(LEVEL)
    ((median, _),) = posterior.quantile([0.5])
    edges, density = (values[0] for values in tabulate_density(posterior))
    limits = " to ".join(f"{bound:,g}" for bound in model.bounds)
    notes = (
        f"range: values outside {limits} count as the nearest end; the mean is that of these values",
        "model: normal records of unknown mean and variance; prior from the range alone",
        *_unresolved(posterior, unit),
        *warn_near_end(column, posterior.release[0] / model.n, _noise_std_per_row(model), model.bounds, unit),
    )
    title = f"mean of {column}" + (f" ({unit})" if unit else "")
    row = ("mean", float(median), float(low), float(high))
    return Estimate(question, title, (row,), posterior, notes, edges, density)


def _unresolved(posterior: ReleasePosterior, unit: str) -> list[str]:
    """Return a line if the noisy variance of the scaled records is at most 2 standard deviations of its noise."""
    model = posterior.model
    assert isinstance(model, ReleaseModel)
    mean, square = posterior.release / model.n
    noise_std = _noise_std_per_row(model)
    if square - mean**2 > 2.0 * noise_std * math.hypot(1.0, 2.0 * mean):
        return []
    middle, half_width = model.units()
    numbers = format_numbers((middle + half_width * mean, half_width * noise_std), half_width * noise_std)
    alone, error = (f"{number} {unit}".rstrip() for number in numbers)
    return [
        "the release does not resolve the variance: the width of the interval rests on its prior; the noisy sum alone "
        f"gives {alone}, with noise of standard deviation {error}; a narrower public range has less noise"
    ]


def _noise_std_per_row(model: ReleaseModel) -> float:
    """Return the standard deviation of the noise of a released sum, divided by the number of rows."""
    return math.sqrt(model.noise.density_variance) / model.n


def _estimate_proportion(question: Question, posterior: ReleasePosterior) -> Estimate:
    condition = question.subject
    posterior = posterior.labelled([f"Pr[{condition}]"])
    low, high = (float(end) for end in posterior.interval(LEVEL))
    edges, density = (values[0] for values in tabulate_density(posterior))
    notes = ("model: rows are independent draws from a population; uniform prior of the probability",)
    title = f"probability of a row with {condition}"
    row = ("probability", float(posterior.quantile([0.5])[0]), low, high)
    return Estimate(question, title, (row,), posterior, notes, edges, density)


def _estimate_count(question: Question, posterior: ReleasePosterior) -> Estimate:
    assert isinstance(posterior.model, ReleaseModel)
    n = posterior.model.n
    counts = np.arange(n + 1)
    log_weights = posterior.model.noise.log_weight(posterior.release[0] - counts)
    pmf = np.exp(log_weights - log_weights.max())
    pmf /= pmf.sum()
    cdf = np.cumsum(pmf)
    low, median, high, first, last = (
        min(int(np.searchsorted(cdf, p)), n) for p in ((1 - LEVEL) / 2, 0.5, (1 + LEVEL) / 2, _TAIL, 1 - _TAIL)
    )
    step = max(1, math.ceil((last + 1 - first) / _CELLS))
    starts = np.arange(first, last + 1, step)
    density = np.add.reduceat(pmf[: last + 1], starts) / np.minimum(step, last + 1 - starts)
    notes = ("model: rows of this file; uniform prior of the number of rows",)
    row = ("rows", float(median), float(low), float(high))
    edges = np.append(starts, last + 1) - 0.5
    title = f"number of rows with {question.subject}"
    return Estimate(question, title, (row,), posterior, notes, edges, density)


def _estimate_histogram(question: Question, posterior: ReleasePosterior) -> Estimate:
    labels = question.labels
    posterior = posterior.labelled(labels)
    lows, highs = posterior.interval(LEVEL)
    ends = zip(labels, np.atleast_1d(posterior.mean()).tolist(), lows.tolist(), highs.tolist(), strict=True)
    notes = (
        "model: rows are independent draws from a population; uniform prior of the shares",
        "intervals: each has 95 % probability by itself",
        *_mostly_other(posterior, labels),
    )
    title = f"shares of {question.subject}"
    return Estimate(question, title, tuple(ends), posterior, notes, np.empty(0), np.empty(0))


def _mostly_other(posterior: ReleasePosterior, labels: Sequence[str]) -> list[str]:
    """Return a warning if the noisy share of other rows is beyond 1/2 by 2 standard deviations of its noise."""
    model = posterior.model
    assert isinstance(model, ReleaseModel)
    if OTHER not in labels:
        return []
    share = posterior.release[labels.index(OTHER)] / model.n
    if share - 2.0 * _noise_std_per_row(model) <= 0.5:
        return []
    return [
        f"warning: more than half of the rows count as {OTHER}, by a noisy share of {share:.2g}; check that the "
        "categories are spelt as in the table"
    ]


_ESTIMATES: dict[str, Callable[[Question, ReleasePosterior], Estimate]] = {
    "mean": _estimate_mean,
    "proportion": _estimate_proportion,
    "count": _estimate_count,
    "histogram": _estimate_histogram,
}
