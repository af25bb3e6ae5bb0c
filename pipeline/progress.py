"""Progress of a run: a live bar on a terminal or in a notebook, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TaskProgressColumn, TextColumn
from rich.progress import Progress as Bar

from pipeline.execution.work import MOST_SAMPLES, PendingWork, Receipt

Progress: TypeAlias = Callable[[PendingWork], Callable[[Receipt], None]]

_SECONDS_BETWEEN_LINES = 5.0


def format_duration(seconds: float | None) -> str:
    """Return a duration as h:mm:ss, or ``estimating`` for an unknown one.

    Examples
    --------
    >>> format_duration(3725.2), format_duration(None)
    ('1:02:05', 'estimating')
    """
    if seconds is None:
        return "estimating"
    minutes, left = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{left:02}"


class _Costs:
    """Forecast of the time left: pending evaluations of each cell times their cost.

    The first receipt of a cell includes its setup. Other receipts determine the cost of its later evaluations; cells
    without them have the cost of their first receipt, times the ratio of later to first costs in the panel. Costs and
    setups of cells without receipts are interpolated between cells of their panel.
    """

    def __init__(self) -> None:
        self._left: dict[str, np.ndarray] = {}
        self._first: dict[str, np.ndarray] = {}  # by panel: seconds and evaluations, shape (2, cell)
        self._later: dict[str, np.ndarray] = {}
        self._total = 0.0

    def add(self, pending: Mapping[str, np.ndarray]) -> None:
        """Add pending evaluations; the number of cells of a panel does not change."""
        for panel, by_cell in pending.items():
            self._left[panel] = self._left.get(panel, 0) + by_cell
            for receipts in (self._first, self._later):
                receipts.setdefault(panel, np.zeros((2, len(by_cell))))

    def note(self, receipt: Receipt) -> None:
        """Record the cost of a block."""
        panel, cell, n = receipt.work.block.panel, receipt.work.block.cell, receipt.n_done
        self._left[panel][cell] -= n
        self._total += receipt.seconds
        receipts = self._later if self._first[panel][1, cell] else self._first
        receipts[panel][:, cell] += receipt.seconds, n

    def seconds_left(self, elapsed: float) -> float | None:
        """Return the expected time left, or None until a quarter of the first blocks of each panel are computed."""
        left = 0.0
        for panel, by_cell in self._left.items():
            if not by_cell.any():
                continue
            (first_seconds, first_n), (seconds, n) = self._first[panel], self._later[panel]
            known = np.flatnonzero(first_n)
            if not self._total or 4 * len(known) < min(len(by_cell), MOST_SAMPLES):
                return None
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
        return left * elapsed / self._total if self._total else 0.0


class ProgressDisplay:
    """Progress display of a run; a context manager to pass to `pipeline.run`.

    It counts evaluations, as the page does: a trial of one method with one value of each factor, if the method applies.
    The time left follows from the cost per evaluation of each cell. `label` is the prefix of each line, to distinguish
    several runs.
    """

    def __init__(self, console: Console, label: str = "") -> None:
        self._console = console
        self._label = label
        self._bar: Bar | None = None
        self._task = TaskID(0)
        self._costs = _Costs()
        self.n_done = self.n_failed = self.n_total = 0

    def __enter__(self) -> ProgressDisplay:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, works: PendingWork) -> Callable[[Receipt], None]:
        """Display further pending work, and return the callback for receipts; a run may proceed in several rounds."""
        if not self.n_total:
            self._started = self._last_line = time.monotonic()
        pending = works.by_cell()
        self._costs.add(pending)
        self.n_total += sum(int(by_cell.sum()) for by_cell in pending.values())
        if self._bar is not None:
            self._bar.update(self._task, total=self.n_total)
            return self._take
        if _is_live(self._console):
            self._bar = Bar(
                TextColumn("{task.description}"),
                BarColumn(),
                TaskProgressColumn(),
                MofNCompleteColumn(),
                TextColumn(
                    "{task.fields[rate]:,.0f} evaluations/s, {task.fields[failed]:,} failed, ETA {task.fields[eta]}"
                ),
                console=self._console,
            )
            self._task = self._bar.add_task(
                self._label or "evaluations", total=self.n_total, rate=0.0, failed=0, eta=self._eta
            )
            self._bar.start()
        else:
            self._print_line()
        return self._take

    @property
    def _eta(self) -> str:
        return format_duration(self._costs.seconds_left(self.seconds))

    @property
    def seconds(self) -> float:
        """Seconds since the display was started."""
        return time.monotonic() - self._started if self.n_total else 0.0

    @property
    def rate(self) -> float:
        """Evaluations per second over the whole session."""
        return self.n_done / max(self.seconds, 1e-9)

    def _take(self, receipt: Receipt) -> None:
        self.n_done += receipt.n_done
        self.n_failed += receipt.n_failed
        self._costs.note(receipt)
        if self._bar is not None:
            self._bar.update(self._task, completed=self.n_done, rate=self.rate, failed=self.n_failed, eta=self._eta)
        elif time.monotonic() - self._last_line >= _SECONDS_BETWEEN_LINES or self.n_done == self.n_total:
            self._print_line()

    def _print_line(self) -> None:
        self._last_line = time.monotonic()
        done = (f"{self._label}: " if self._label else "") + f"{self.n_done:,} of {self.n_total:,} evaluations"
        line = f"{done}, {self.rate:,.0f} evaluations/s, {self.n_failed:,} failed, ETA {self._eta}"
        self._console.print(line, soft_wrap=True, highlight=False)


@contextmanager
def shown(progress: Progress | bool) -> Iterator[Progress]:
    """Yield the callable that reports the progress of a run.

    True is a bar if standard error is a terminal or the code runs in a notebook; False reports nothing.
    """
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
