"""Traced peak memory of methods, measured on a worker when a session has computed its blocks."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from distributed import Client

from pipeline.blocks.evaluate import Block
from pipeline.blocks.memory import traced_peak
from pipeline.declare.study import Study
from pipeline.errors import ExecutionError
from pipeline.execution.in_flight import TasksInFlight
from pipeline.execution.tasks import on_worker, registered_task
from pipeline.execution.work import Receipt

_MOST_TIME = 0.015  # of that of the session's methods, and of the session
_EVALUATIONS = 3.0  # time of a measurement per evaluation: one that is not traced, and one that is

Peaks = Mapping[str, Mapping[str, int]]
"""Panel -> method -> bytes."""


@dataclass
class TracedTrials:
    """First trial of a block per panel, cell and setting, with the numbers and the seconds of all evaluations."""

    evaluated: dict[tuple[str, int, int], tuple[int, float, int]] = field(default_factory=dict)
    failed: set[tuple[str, int, int]] = field(default_factory=set)
    began: float = field(default_factory=time.perf_counter)

    def add(self, receipt: Receipt) -> None:
        """Add a committed block."""
        block = receipt.work.block
        for k, tally in zip(receipt.work.settings, receipt.tallies, strict=True):
            key = block.panel, block.cell, k
            n, seconds, trial = self.evaluated.get(key, (0, 0.0, block.trials.start))
            self.evaluated[key] = n + tally.n_ok, seconds + tally.seconds, trial
            if tally.n_failed or tally.n_pending:
                self.failed.add(key)

    def choose(self, study: Study, known: Peaks) -> tuple[list[tuple[Block, int]], float]:
        """Return the last cell of each method without a known peak, the cheapest first, and the allowed seconds.

        Methods that would exceed the allowed time are omitted.
        """
        of_methods = sum(seconds for _, seconds, _ in self.evaluated.values())  # more than the time of several threads
        allowed = _MOST_TIME * min(of_methods, time.perf_counter() - self.began)
        costs = {key: seconds / n for key, (n, seconds, _) in self.evaluated.items() if n and key not in self.failed}
        last: dict[tuple[str, str], tuple[str, int, int]] = {}
        for key in sorted(costs):
            last[key[0], study.panel(key[0]).settings()[key[2]].method.name] = key
        chosen, expected = [], 0.0
        for (panel, method), key in sorted(last.items(), key=lambda item: costs[item[1]]):
            expected += _EVALUATIONS * costs[key]
            if expected <= allowed and method not in known.get(panel, {}):
                trial = self.evaluated[key][2]
                chosen.append((Block(panel, key[1], range(trial, trial + 1)), key[2]))
        return chosen, allowed


def measure_peaks(
    client: Client, run: str, study: Study, trials: TracedTrials, known: Peaks
) -> dict[str, dict[str, int]]:
    """Return the traced peaks of methods that are measured in one task, while nothing else is computed."""
    chosen, allowed = trials.choose(study, known)
    peaks: dict[str, dict[str, int]] = {}
    if not chosen:
        return peaks
    with suppress(ExecutionError), TasksInFlight(client) as in_flight:  # all blocks are committed
        in_flight.submit(None, trace_peaks, run, study.spec(), chosen, allowed)
        for result in in_flight.results():  # none if the worker is lost
            for (block, k), peak in zip(chosen, result.value or (), strict=False):
                if peak is not None:
                    peaks.setdefault(block.panel, {})[study.panel(block.panel).settings()[k].method.name] = peak
    return peaks


@on_worker
def trace_peaks(
    run: str, spec: dict[str, Any], chosen: Sequence[tuple[Block, int]], seconds: float
) -> list[int | None]:
    """Return the traced peaks of settings on blocks, of as many as begin within a time."""
    study = registered_task(run).source.load().from_spec(spec)
    started, peaks = time.perf_counter(), []
    for block, k in chosen:
        if time.perf_counter() - started > seconds:
            break
        peaks.append(traced_peak(study, block, study.panel(block.panel).settings()[k]))
    return peaks
