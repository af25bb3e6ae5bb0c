"""Find the trials that end their worker, and commit all others."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pipeline.blocks.evaluate import Block, Status
from pipeline.execution.flight import Flight, Landed
from pipeline.execution.work import Receipt, Task, Work


def isolate(flight: Flight, task: Task, suspect: Work) -> Receipt:
    """Compute work that ended its worker, alone; find the trials that do so, and commit all others.

    The first and the last trial are tried first: where both end their worker, the whole run of trials is taken to do
    so, as with trials that raise. Else the run is halved until the guilty trials are found, each of which is then tried
    under every setting alone. A trial is condemned when it ended its worker twice; one that outlasts the time limit,
    once.

    Parameters
    ----------
    flight : Flight
        Nothing is in flight.
    task : Task
        How workers compute and commit.
    suspect : Work
        One block.

    Returns
    -------
    Receipt
        Of the whole block.
    """
    started = time.monotonic()

    def survives(function: Callable[..., Any], work: Work) -> Landed:
        flight.submit(work, function, [work])
        return flight.wait()[0]

    def fate_of(trials: range, settings: tuple[int, ...]) -> Status | None:
        probe = Work(Block(suspect.block.panel, suspect.block.cell, trials), settings)
        fate = survives(task.probe, probe).fate
        is_single = len(trials) == 1 and fate == Status.KILLED  # something else may have ended the worker
        return survives(task.probe, probe).fate if is_single else fate

    def guilty(trials: range) -> dict[int, Status]:
        fate = fate_of(trials, suspect.settings)
        if fate is None or len(trials) == 1:
            return {} if fate is None else {trials.start: fate}
        middle = len(trials) // 2
        return guilty(trials[:middle]) | guilty(trials[middle:])

    def commit(work: Work) -> list[Receipt]:
        landed = survives(task, work)
        return landed.result if landed.fate is None else []

    done = commit(suspect)
    if not done:
        trials = suspect.block.trials
        found = guilty(trials[:1]) | guilty(trials[-1:]) if len(trials) > 1 else {}
        if len(found) == 2:
            found = dict.fromkeys(trials, found[trials.start])
        elif len(found) < 2:
            found = guilty(trials)
        condemned = []
        fates: dict[int, Status] = {}
        for trial in found:
            if len(found) < len(trials) or not fates:
                fates = {k: fate for k in suspect.settings if (fate := fate_of(range(trial, trial + 1), (k,)))}
            condemned += [(k, trial, fate) for k, fate in fates.items()]
        done = commit(replace(suspect, condemned=tuple(condemned)))
    # what still ends its worker does so by the company of its trials or settings: settings apart, then given up whole
    for k in () if done else suspect.settings:
        one = Work(suspect.block, (k,))
        done += commit(one) or commit(
            replace(one, condemned=tuple((k, t, Status.KILLED) for t in suspect.block.trials))
        )
    return Receipt(suspect, time.monotonic() - started, sum(receipt.n_failed for receipt in done))
