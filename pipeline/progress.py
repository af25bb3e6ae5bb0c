"""Progress of a run: a live bar on a terminal or in a notebook, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from pipeline.execution.work import PendingWork, Receipt

Progress: TypeAlias = Callable[[PendingWork], Callable[[Receipt], None]]

_SECONDS_BETWEEN_LINES = 5.0


class ProgressDisplay:
    """Progress display of a run; a context manager to pass to `pipeline.run`.

    Trials are counted as in the store and by ``status``: a trial under a setting counts once per value of each factor
    that the setting does not use. `label` is the prefix of each line, to distinguish several runs.
    """

    def __init__(self, console: Console, label: str = "") -> None:
        self._console = console
        self._label = label
        self._bar: Bar | None = None
        self._task = TaskID(0)
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
        self.n_total += works.n_trials
        if self._bar is not None:
            self._bar.update(self._task, total=self.n_total)
            return self._take
        if _is_live(self._console):
            self._bar = Bar(
                TextColumn("{task.description}"),
                BarColumn(),
                TaskProgressColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]:,.0f} trials/s, {task.fields[failed]:,} failed, ETA"),
                TimeRemainingColumn(),
                console=self._console,
            )
            self._task = self._bar.add_task(self._label or "trials", total=self.n_total, rate=0.0, failed=0)
            self._bar.start()
        else:
            self._print_line()
        return self._take

    @property
    def seconds(self) -> float:
        """Seconds since the display was started."""
        return time.monotonic() - self._started if self.n_total else 0.0

    @property
    def rate(self) -> float:
        """Trials per second over the whole session."""
        return self.n_done / max(self.seconds, 1e-9)

    def _take(self, receipt: Receipt) -> None:
        self.n_done += receipt.n_done
        self.n_failed += receipt.n_failed
        if self._bar is not None:
            self._bar.update(self._task, completed=self.n_done, rate=self.rate, failed=self.n_failed)
        elif time.monotonic() - self._last_line >= _SECONDS_BETWEEN_LINES or self.n_done == self.n_total:
            self._print_line()

    def _print_line(self) -> None:
        self._last_line = time.monotonic()
        left = f"{(self.n_total - self.n_done) / self.rate:,.0f} s" if self.n_done else "unknown"
        done = (f"{self._label}: " if self._label else "") + f"{self.n_done:,} of {self.n_total:,} trials"
        line = f"{done}, {self.rate:,.0f} trials/s, {self.n_failed:,} failed, ETA {left}"
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
