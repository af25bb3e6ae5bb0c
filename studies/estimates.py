"""Estimates from private records for the commands ``mean``, ``proportion``, ``histogram`` and ``count``.

Each releases noisy sums by `mechanisms.private_posterior`, and reads the posterior mean and the 95 % interval off the
posterior. Means, probabilities and shares are parameters of the distribution from which the rows are independent draws,
so that their intervals contain the uncertainty of sampling. A count is that of the rows of the file: given a release y
with Laplace noise of scale b, and c ~ U{0, …, n}, its posterior is Pr[c | y] ∝ exp(−|y − c|/b).
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np

from mechanisms import Guarantee, LedgerFile, private_posterior, publish_bounds
from mechanisms.inference.release_model import ReleaseModel
from mechanisms.inference.release_posterior import ReleasePosterior, tabulate_density
from mechanisms.release import require_opendp
from pipeline.errors import BadInputError, ExecutionError, as_bad_input

LEVEL = 0.95
"""Probability of the intervals."""

_CELLS, _TAIL = 100, 5e-4  # number of cells of a drawn density, and probability beyond each end
_BLUE = "#3b6ea8"

Row = tuple[str, float, float, float]
"""Label, posterior mean, and ends of the interval."""


@dataclass(frozen=True)
class Spending:
    """Privacy losses of a release in nats, and the ledger in which they are entered; a seed rehearses."""

    epsilon: float
    seed: int | None = None
    what: str = ""  # name of the release in the ledger
    ledger: LedgerFile | None = None
    search: float | None = None  # loss of the search for the range; None if the range is given

    def __post_init__(self) -> None:
        for loss in self.losses:
            if not (math.isfinite(loss) and loss > 0):
                raise BadInputError(f"epsilon must be finite and > 0, got {loss:g}; pass a loss in nats, such as 1")
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
        return float(sum(Decimal(repr(loss)) for loss in self.losses))

    def posterior(self, records: Any, family: str, prior: Any = None, **options: Any) -> ReleasePosterior:
        """Return the posterior of a release; see `mechanisms.private_posterior`."""
        entered = {"ledger": self._labelled(self.what)}
        with as_bad_input():
            return private_posterior(
                records, family, prior, self.epsilon, rehearsal_seed=self.seed, **entered | options
            )

    def find_range(self, records: np.ndarray, **how: Any) -> tuple[float, float]:
        """Release bounds of records, after a check that the release of a posterior with these options is valid."""
        assert self.search is not None
        if self.seed is None:
            with suppress(_ValidError):
                self.posterior(records, bounds=(0.0, 1.0), ledger=None, before_release=_stop, **how)
        with as_bad_input():
            ledger = self._labelled(f"range for the {self.what}")
            found = publish_bounds(records, self.search, self.seed, ledger=ledger)
        if found is None:
            spent = "nothing is spent by a rehearsal" if self.seed is not None else f"{self.search:g} is spent on it"
            raise ExecutionError(
                f"no range was found with --bounds-epsilon {self.search:g}, and no mean was released; {spent}; "
                "increase --bounds-epsilon, or give --range LOW:HIGH"
            )
        return found

    def _labelled(self, what: str) -> LedgerFile | None:
        return None if self.ledger is None else self.ledger.with_label(what)


class _ValidError(Exception):
    """End of the checks of a release."""


def _stop() -> None:
    raise _ValidError


@dataclass(frozen=True)
class Estimate:
    """Posterior of one question about private records, as rows of a table, notes and a figure."""

    title: str  # name of the estimated quantity, with its unit
    rows: tuple[Row, ...]
    posterior: ReleasePosterior  # of the parameter of the records
    notes: tuple[str, ...]  # assumptions that a reader needs
    edges: np.ndarray  # of the cells of `density`, shape (c + 1,); empty for categories
    density: np.ndarray  # posterior probability per unit in each cell, shape (c,)
    spending: Spending

    def formatted(self) -> list[tuple[str, ...]]:
        """Return the rows as text, with two digits of the width of the narrowest interval."""
        width = min(high - low for _, _, low, high in self.rows) or 1.0
        decimals = max(0, 1 - math.floor(math.log10(width)))
        return [(label, *(f"{value:,.{decimals}f}" for value in values)) for label, *values in self.rows]

    def lines(self) -> list[str]:
        """Return the guarantee and the notes, one line each."""
        n, guarantee = self.posterior.model.n, self.posterior.guarantee
        if guarantee is None:
            stated = "none: a rehearsal with a seed is not private and must not be published; nothing is spent"
        else:
            search, total = self.spending.search, Guarantee(self.spending.total, status=guarantee.status)
            parts = "" if search is None else f", of which {search:g} for the range"
            stated = f"{total} ({guarantee.status.value}){parts}"
        return [
            f"guarantee: {stated}",
            f"neighbours: one row is replaced; the number of rows, {n:,}, is public",
            *self.notes,
            f"inference: {self.posterior.method}, {self.posterior.reason}",
        ]

    def specify(self) -> dict[str, Any]:
        """Return the figure as a Vega-Lite specification: a density with its interval, or an interval per category."""
        title = {"text": self.title, "subtitle": self.lines()[0]}
        if not self.edges.size:
            names = ("name", "mean", "low", "high")
            values: list[dict[str, Any]] = [dict(zip(names, row, strict=True)) for row in self.rows]
            y: dict[str, Any] = {"field": "name", "type": "nominal", "sort": None, "title": None}
            x: dict[str, Any] = {"field": "mean", "type": "quantitative", "title": "share of the population"}
            interval = {"x": {"field": "low", "type": "quantitative"}, "x2": {"field": "high"}}
            layers: list[dict[str, Any]] = [
                {"mark": {"type": "bar", "color": _BLUE, "opacity": 0.4}, "encoding": {"y": y, "x": x}},
                {"mark": {"type": "rule", "color": _BLUE, "strokeWidth": 2}, "encoding": {"y": y, **interval}},
            ]
            return {"title": title, "width": 400, "data": {"values": values}, "layer": layers}
        _, mean, low, high = self.rows[0]
        cells = zip(self.edges, self.edges[1:], self.density, strict=False)
        values = [{"x": float(a), "x2": float(b), "density": float(d)} for a, b, d in cells]
        x = {"field": "x", "type": "quantitative", "title": self.title, "scale": {"zero": False}}
        y = {"field": "density", "type": "quantitative", "title": "posterior density"}
        ends = {"x": {"datum": low}, "x2": {"datum": high}}
        cell = {"x": x, "x2": {"field": "x2"}, "y": y, "y2": {"datum": 0}}
        once: dict[str, Any] = {"values": [{}]}  # one mark, not one per cell
        layers = [
            {"data": once, "mark": {"type": "rect", "color": _BLUE, "opacity": 0.15}, "encoding": ends},
            {"mark": {"type": "rect", "color": _BLUE}, "encoding": cell},
            {"data": once, "mark": {"type": "rule", "color": "black"}, "encoding": {"x": {"datum": mean}}},
        ]
        return {"title": title, "width": 400, "height": 250, "data": {"values": values}, "layer": layers}


def estimate_mean(
    records: np.ndarray, column: str, unit: str, bounds: tuple[float, float] | None, spending: Spending
) -> Estimate:
    """Return the estimate of the mean of a column whose records are clamped to bounds: public ones, or searched for."""
    how = {"family": "normal-unknown-variance", "outside": "clamp"}
    bounds = spending.find_range(records, **how) if bounds is None else bounds
    posterior = spending.posterior(records, bounds=bounds, **how).labelled(
        [f"mean of {column}", f"variance of {column}"], unit
    )
    (low, _), (high, _) = posterior.interval(LEVEL)
    (mean, _) = np.atleast_1d(posterior.mean())
    edges, density = (values[0] for values in tabulate_density(posterior))
    limits = " to ".join(f"{bound:,g}" for bound in bounds)
    notes = (
        f"range: values outside {limits} count as the nearest end; the mean is that of these values",
        "model: normal records of unknown mean and variance; prior from the range alone",
    )
    title = f"mean of {column}" + (f" ({unit})" if unit else "")
    row = ("mean", float(mean), float(low), float(high))
    return Estimate(title, (row,), posterior, notes, edges, density, spending)


def estimate_proportion(holds: np.ndarray, condition: str, spending: Spending) -> Estimate:
    """Return the estimate of the probability that a row satisfies a condition."""
    posterior = _binomial(holds, spending).labelled([f"Pr[{condition}]"])
    low, high = (float(end) for end in posterior.interval(LEVEL))
    edges, density = (values[0] for values in tabulate_density(posterior))
    notes = ("model: rows are independent draws from a population; uniform prior of the probability",)
    title = f"probability of a row with {condition}"
    row = ("probability", float(posterior.mean()), low, high)
    return Estimate(title, (row,), posterior, notes, edges, density, spending)


def estimate_count(holds: np.ndarray, condition: str, spending: Spending) -> Estimate:
    """Return the estimate of the number of rows of the file that satisfy a condition."""
    posterior = _binomial(holds, spending)
    counts = np.arange(holds.size + 1)
    assert isinstance(posterior.model, ReleaseModel)
    log_weights = posterior.model.noise.log_weight(posterior.release[0] - counts)
    pmf = np.exp(log_weights - log_weights.max())
    pmf /= pmf.sum()
    cdf = np.cumsum(pmf)
    low, high, first, last = (
        min(int(np.searchsorted(cdf, p)), holds.size) for p in ((1 - LEVEL) / 2, (1 + LEVEL) / 2, _TAIL, 1 - _TAIL)
    )
    step = max(1, math.ceil((last + 1 - first) / _CELLS))
    starts = np.arange(first, last + 1, step)
    density = np.add.reduceat(pmf[: last + 1], starts) / np.minimum(step, last + 1 - starts)
    notes = ("model: rows of this file; uniform prior of the number of rows",)
    row = ("rows", float(pmf @ counts), float(low), float(high))
    edges = np.append(starts, last + 1) - 0.5
    return Estimate(f"number of rows with {condition}", (row,), posterior, notes, edges, density, spending)


def estimate_histogram(codes: np.ndarray, labels: Sequence[str], column: str, spending: Spending) -> Estimate:
    """Return the estimates of the shares of categories, given the category of each row as an index of `labels`."""
    counts = np.bincount(codes, minlength=len(labels))
    posterior = spending.posterior(counts, "multinomial", np.ones(len(labels)), n=codes.size).labelled(labels)
    lows, highs = posterior.interval(LEVEL)
    ends = zip(labels, np.atleast_1d(posterior.mean()).tolist(), lows.tolist(), highs.tolist(), strict=True)
    notes = (
        "model: rows are independent draws from a population; uniform prior of the shares",
        "intervals: each has 95 % probability by itself",
    )
    return Estimate(f"shares of {column}", tuple(ends), posterior, notes, np.empty(0), np.empty(0), spending)


def _binomial(holds: np.ndarray, spending: Spending) -> ReleasePosterior:
    return spending.posterior(int(holds.sum()), "binomial", (1, 1), n=holds.size)
