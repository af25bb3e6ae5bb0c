"""Progress of a run: a live bar on a terminal or in a notebook, plain lines elsewhere."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias, overload

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn
from rich.progress import Progress as Bar
from rich.table import Column

from pipeline.errors import counted
from pipeline.execution.work import MOST_SAMPLES, PendingWork, Receipt

Progress: TypeAlias = Callable[[PendingWork], Callable[[Receipt], None]]

_SECONDS_BETWEEN_LINES = 5.0
_WIDTH_WITH_RATE = 100  # columns of a terminal from which the bar states evaluations per second


def format_duration(seconds: float | None) -> str:
    """Return a duration as h:mm:ss, or ``estimating`` for an unknown one."""
    if seconds is None:
        return "estimating"
    minutes, left = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{left:02}"


Rates: TypeAlias = Mapping[str, float]
"""Seconds per evaluation of the panels of a study, on any machine: a forecast uses their ratios to measured ones."""


class _Costs:
    """Forecast of the time left: pending evaluations of each cell times their cost, interpolated between known cells.

    The first receipt of a cell includes its setup. Panels of which few cells are known have their stored rate, if there
    is one, times the ratio of measured to stored costs so far; blocks without one have the mean cost of all blocks.
    """

    def __init__(self) -> None:
        self._total, self._n_blocks, self._stored = 0.0, 0, 0.0
        self.begin()

    def begin(self, rates: Rates | None = None) -> None:
        """Begin another study, whose panels may have the names of earlier ones."""
        self._rates = rates or {}
        self._left: dict[str, np.ndarray] = {}
        self._first: dict[str, np.ndarray] = {}  # by panel: seconds and evaluations, shape (2, cell)
        self._later: dict[str, np.ndarray] = {}
        self._blocks_left, self._n_before = 0, self._n_blocks

    def add(self, pending: Mapping[str, np.ndarray], n_blocks: int = 0) -> None:
        """Add pending evaluations in a number of blocks; the number of cells of a panel does not change."""
        self._blocks_left += n_blocks
        for panel, by_cell in pending.items():
            self._left[panel] = self._left.get(panel, 0) + by_cell
            for receipts in (self._first, self._later):
                receipts.setdefault(panel, np.zeros((2, len(by_cell))))

    def note(self, receipt: Receipt) -> None:
        """Record the cost of a block."""
        panel, cell, n = receipt.work.block.panel, receipt.work.block.cell, receipt.n_done
        self._left[panel][cell] -= n
        self._total += receipt.seconds
        self._stored += self._rates.get(panel, 0.0) * n
        self._n_blocks += 1
        self._blocks_left -= 1
        receipts = self._later if self._first[panel][1, cell] else self._first
        receipts[panel][:, cell] += receipt.seconds, n

    def seconds_left(self, elapsed: float, n_planned: int = 0, planned_cost: float | None = None) -> float | None:
        """Return the expected time left, or None if few blocks are known.

        Other studies have `n_planned` blocks, whose cost by stored rates is `planned_cost`, None without rates.
        """
        if planned_cost is not None:
            if not self._stored:
                return None
            slowness = self._total / self._stored
            left = self._cost_left(slowness) + planned_cost * slowness
            return left * elapsed / self._total if self._total else 0.0
        left_here, n_all = self._cost_left(), self._n_blocks + self._blocks_left + n_planned
        are_several = bool(n_planned or self._n_before)
        is_known = 4 * self._n_blocks >= min(n_all, MOST_SAMPLES) if are_several else left_here is not None
        if not is_known:
            return None
        mean = self._total / max(1, self._n_blocks)
        left = (max(0, self._blocks_left) * mean if left_here is None else left_here) + n_planned * mean
        return left * elapsed / self._total if self._total else 0.0

    @overload
    def _cost_left(self) -> float | None: ...

    @overload
    def _cost_left(self, slowness: float) -> float: ...

    def _cost_left(self, slowness: float | None = None) -> float | None:
        """Return the cost of the pending blocks; None if few are known, and no ratio to stored costs is given."""
        left = 0.0
        for panel, by_cell in self._left.items():
            if not by_cell.any():
                continue
            (first_seconds, first_n), (seconds, n) = self._first[panel], self._later[panel]
            known = np.flatnonzero(first_n)
            if 4 * len(known) < min(len(by_cell), MOST_SAMPLES):
                if slowness is None:
                    return None
                left += slowness * self._rates.get(panel, 0.0) * float(by_cell.sum())
                continue
            rates = first_seconds[known] / first_n[known]
            has_later = n[known] > 0
            if has_later.any():
                later, n_later = seconds[known][has_later], n[known][has_later]
                ratio = later.sum() / max(float(rates[has_later] @ n_later), 1e-12)
                rates = rates * ratio
                rates[has_later] = later / n_later
            cells, logs = np.arange(len(by_cell)), np.log(np.maximum(rates, 1e-12))
            setups = np.maximum(0.0, first_seconds[known] - rates * first_n[known])
            is_new = (by_cell > 0) & (first_n == 0)
            left += float(by_cell @ np.exp(np.interp(cells, known, logs)) + is_new @ np.interp(cells, known, setups))
        return left


def _expected_cost(works: PendingWork, rates: Rates) -> float:
    """Return the cost of pending work by the rates of its panels."""
    return sum(rates.get(panel, 0.0) * float(by_cell.sum()) for panel, by_cell in works.by_cell().items())


class ProgressDisplay:
    """Progress display of a run, in evaluations, or of `planned` studies by name, each of which calls `begin` first.

    Studies with a rate for each of their panels have a forecast by `rates` before they begin. A run of one study, which
    is not planned, calls `begin` if it has rates.
    """

    def __init__(
        self,
        console: Console,
        planned: Mapping[str, PendingWork] | None = None,
        rates: Mapping[str, Rates] | None = None,
    ) -> None:
        self._console = console
        self._rates = rates
        self._planned = {
            name: (works.n_evaluations, len(works), _expected_cost(works, (rates or {}).get(name, {})))
            for name, works in (planned or {}).items()
        }
        self._label = self._panel = ""
        self._bar: Bar | None = None
        self._task = TaskID(0)
        self._costs = _Costs()
        self._started: float | None = None
        self._last_line = -math.inf
        self.n_done = self.n_failed = self.n_total = 0

    def begin(self, name: str, label: str) -> ProgressDisplay:
        """Display the work of a study from now on, with a label before each line."""
        self._planned.pop(name, None)
        self._costs.begin((self._rates or {}).get(name))
        self._label, self._panel = label, ""
        self.n_total = self.n_done + sum(n_evaluations for n_evaluations, _, _ in self._planned.values())
        return self

    def __enter__(self) -> ProgressDisplay:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the bar; later receipts are printed as lines."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def __call__(self, works: PendingWork) -> Callable[[Receipt], None]:
        """Display further pending work, and return the callback for receipts; a run may proceed in several rounds."""
        if self._started is None:
            self._started = time.monotonic()
        pending = works.by_cell()
        self._costs.add(pending, len(works))
        self.n_total += sum(int(by_cell.sum()) for by_cell in pending.values())
        if self._bar is not None:
            self._bar.update(self._task, total=self.n_total)
            return self._take
        if _is_live(self._console):
            self._bar = Bar(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(table_column=Column(no_wrap=True)),  # so that a narrow terminal shortens the bar
                TextColumn("{task.fields[failed]:,} failed, time left {task.fields[eta]}"),
                *([TextColumn("{task.fields[rate]:,.0f}/s")] if self._console.width >= _WIDTH_WITH_RATE else []),
                console=self._console,
            )
            self._task = self._bar.add_task(self._label or "evaluations", total=self.n_total, **self._shown)
            self._bar.start()
        else:
            self._print_line()
        return self._take

    @property
    def _shown(self) -> dict[str, Any]:
        return {"completed": self.n_done, "rate": self.rate, "failed": self.n_failed, "eta": self._eta}

    @property
    def _eta(self) -> str:
        n_planned = sum(n_blocks for _, n_blocks, _ in self._planned.values())
        planned_cost = None if self._rates is None else sum(cost for _, _, cost in self._planned.values())
        return format_duration(self._costs.seconds_left(self.seconds, n_planned, planned_cost))

    @property
    def seconds(self) -> float:
        """Seconds since the display was started."""
        return 0.0 if self._started is None else time.monotonic() - self._started

    @property
    def rate(self) -> float:
        """Evaluations per second over the whole session."""
        return self.n_done / max(self.seconds, 1e-9)

    def _take(self, receipt: Receipt) -> None:
        self.n_done += receipt.n_done
        self.n_failed += receipt.n_failed
        self._costs.note(receipt)
        self._panel = receipt.work.block.panel
        if self._bar is not None:
            self._bar.update(self._task, **self._shown)
        elif time.monotonic() - self._last_line >= _SECONDS_BETWEEN_LINES or self.n_done == self.n_total:
            self._print_line()

    def _print_line(self) -> None:
        self._last_line = time.monotonic()
        computed = ", ".join(filter(None, (self._label, f"panel {self._panel}" if self._panel else "")))
        done = (f"{computed}: " if computed else "") + f"{self.n_done:,} of {counted(self.n_total, 'evaluation')}"
        line = f"{done}, {self.rate:,.0f} evaluations/s, {self.n_failed:,} failed, time left {self._eta}"
        self._console.print(line, soft_wrap=True, highlight=False)


@contextmanager
def shown(progress: Progress | bool) -> Iterator[Progress]:
    """Yield the callable that reports the progress of a run: a bar for True, on a terminal or in a notebook only."""
    if callable(progress):
        yield progress
        return
    console = Console(stderr=True)
    if not progress or not _is_live(console):
        yield lambda works: lambda receipt: None
        return
    with ProgressDisplay(console) as display:
        yield display


def _is_live(console: Console) -> bool:
    return console.is_terminal or console.is_jupyter
