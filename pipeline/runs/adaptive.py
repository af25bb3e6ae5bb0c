"""Adaptive runs, which add trials until a goal is reached or their budget of trials or time is spent.

The run proceeds in rounds within one session. Each round asks for further trials in whole blocks, computes them, and
assesses the goal. The session records the numbers of trials asked for before they are computed, so that an interrupted
round is pending, and trials beyond them are not asked for. Trials have the same numbers as in a run of fixed size.
"""

import logging
import math
import time
import uuid
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from pipeline.clusters.cluster import dashboard_address
from pipeline.declare.panel import MAX_BLOCKS, MAX_TRIALS, Panel
from pipeline.declare.streams import canonical_json, sha256
from pipeline.declare.study import Study
from pipeline.errors import TargetNotReachedError
from pipeline.execution.tasks import registered
from pipeline.execution.work import PendingWork, Receipt, Task
from pipeline.faults import retried
from pipeline.precision.goals import Assessment, ClaimsGoal, Goal, PrecisionGoal, whole_blocks
from pipeline.precision.stopping import MIN_TRIALS
from pipeline.precision.targets import CLAIMS, parse_target
from pipeline.runs.progress import shown
from pipeline.runs.run_plan import RunOptions, RunPlan
from pipeline.runs.session import execute_in, session_on
from pipeline.store.creation import grow_store
from pipeline.store.result_store import ResultStore
from pipeline.store.scan.requested import RequestedTrials, Stop, record_requested
from pipeline.store.scan.states import requested_trials
from pipeline.store.sessions.lease import Session
from pipeline.store.sessions.recorded_goal import RecordedGoal

_LOG = logging.getLogger(__name__)

_Grid = dict[str, np.ndarray]  # by panel, shape (cell, setting)


def _limit(options: RunOptions, panel: Panel, declared: Panel, is_stored: bool) -> int:
    """Return the maximum number of trials per cell of a panel."""
    if options.at_most is not None:
        return options.at_most
    if options.within is not None:
        n_grid = len(panel.cells()) * int(np.prod([len(axis.values) for axis in panel.method_axes], dtype=int))
        return min(MAX_TRIALS, MAX_BLOCKS // n_grid * panel.block_trials)
    return max(MIN_TRIALS, declared.n_trials, panel.n_trials if is_stored else 0)


class _Clock:
    """Wall time of a run per trial and setting of each panel, from receipts; warn of a first round beyond `within`."""

    def __init__(self, within: float) -> None:
        self._within, self._begun = within, time.monotonic()
        self._seconds: Counter[str] = Counter()
        self._trials: Counter[str] = Counter()
        self._n_first = self._n_done = 0  # evaluations of the first round until its forecast, and those that are done
        self._wall = 0.0  # seconds of the rounds so far

    @contextmanager
    def round(self, n_evaluations: int) -> Iterator[None]:
        """Measure the time of a round."""
        self._started = time.monotonic()
        self._n_first = 0 if self._wall else n_evaluations
        yield
        self._wall += time.monotonic() - self._started

    def note(self, receipt: Receipt) -> None:
        """Record a receipt; forecast the first round once, from a tenth of its trials or at the end of the budget."""
        panel = receipt.work.block.panel
        self._seconds[panel] += receipt.seconds  # type: ignore[assignment]
        self._trials[panel] += sum(tally.n_trials for tally in receipt.tallies)
        self._n_done += receipt.n_done
        elapsed = time.monotonic() - self._started
        if not self._n_done or (10 * self._n_done < self._n_first and elapsed < self._within):
            return
        expected, self._n_first = elapsed * self._n_first / self._n_done, 0
        if expected > self._within:
            warnings.warn(
                f"the first round, which has at least {MIN_TRIALS} trials per cell and method, takes about "
                f"{expected:,.1f} s; --within {self._within:g} s limits only later rounds",
                stacklevel=2,
            )

    def seconds(self, panel: str, n_trials: int) -> float:
        """Return the expected wall time of further trials of a setting."""
        total = sum(self._seconds.values())
        if not total or not self._trials[panel]:
            return 0.0
        return n_trials * self._seconds[panel] / self._trials[panel] * self._wall / total

    @property
    def left(self) -> float:
        return self._begun + self._within - time.monotonic()


class AdaptiveRun:
    """Run in rounds of trials until the goal of its options is reached, or their budget is spent.

    Rounds are planned to end within the time of the budget; the minimum number of trials is always computed.
    """

    def __init__(self, plan: RunPlan) -> None:
        start, options, existing = plan.study, plan.options, plan.existing
        panels, declared, text = tuple(options.panels), plan.source.load(), str(options.until)
        held = existing if existing is not None and existing.complete else None
        chosen = replace(start, panels=tuple(start.panel(name) for name in panels)) if panels else start
        self._goal: Goal = (
            ClaimsGoal(chosen, () if held is None else held.sessions)
            if text.strip() == CLAIMS
            else PrecisionGoal(parse_target(text), chosen)
        )
        if options.at_most is not None:
            start.extended(declared, options.at_most, {}, panels)  # raises for a number that is too small or too large
        self._limits: dict[str, int] = {}
        self._requested: _Grid = {}
        for panel in (panel for panel in chosen.panels if panel.trials is not None):
            name, shape = panel.name, (len(panel.cells()), len(panel.settings()))
            self._limits[name] = _limit(options, panel, declared.panel(name), held is not None)
            before = np.zeros(shape, int) if held is None else requested_trials(held, panel)
            least = whole_blocks(panel, np.maximum(before, self._goal.min_trials))
            self._requested[name] = np.minimum(least, self._limits[name])
        self._others = (
            {}
            if held is None
            else {name: trials for name, trials in held.requested.items() if name not in self._requested}
        )
        self._stopped = {name: np.full(grid.shape, int(Stop.NOT_YET)) for name, grid in self._requested.items()}
        self._study = self._fitted(start)
        self._clock = _Clock(math.inf if options.within is None else options.within)
        goal = RecordedGoal(text, options.at_most, options.within, panels, is_open=True, unmet="")
        self._plan = replace(plan, study=self._study, requested=self._all_requested(), goal=goal)

    def run(self) -> ResultStore:
        """Compute rounds until the goal is reached or the budget is spent, beginning with pending work."""
        with session_on(self._plan) as (client, store, task, session):
            works = self._plan.pending_in(store, task)
            _LOG.info("dashboard: %s", dashboard_address(client))
            with shown(self._plan.options.progress) as progress:
                self._compute(client, task, works, progress, session)
                while True:
                    assessed = self._goal.assess(store, self._study, self._requested)
                    widest = self._ask(assessed)
                    session.update(record_requested(self._all_requested()) | self._goal.record())
                    if not widest:
                        break
                    if not store.holds(self._study):
                        store = retried(grow_store, store, session, self._study)
                    task = replace(task, spec_sha256=sha256(canonical_json(self._study.spec())), run=uuid.uuid4().hex)
                    works = PendingWork(self._study, store, requested=self._all_requested(), first=widest)
                    with registered(client, task):
                        self._compute(client, task, works, progress, session)
            if unmet := self._goal.unmet(self._study):
                session.update({"unmet": unmet})
                raise TargetNotReachedError(self._describe_unmet(unmet, store.url))
            return ResultStore.open(store.url)

    def _describe_unmet(self, unmet: str, url: str) -> str:
        goal = self._plan.goal
        assert goal is not None
        codes = np.concatenate([grid.ravel() for grid in self._stopped.values()])
        is_spent = bool(np.isin(codes, [Stop.TRIALS_SPENT, Stop.TIME_SPENT]).any())
        target = f"--until {goal.until!r}"
        lead = f"the budget was spent before {target} was reached" if is_spent else f"{target} was not reached"
        remedy = "" if is_spent else "correct the method, or "
        return f"{lead}: {unmet}; {remedy}continue with: {goal.continuation(url)}"

    def _compute(self, client: Any, task: Task, works: PendingWork, progress: Any, session: Session) -> None:
        report = progress(works)

        def on_receipt(receipt: Receipt) -> None:
            self._clock.note(receipt)
            report(receipt)

        with self._clock.round(works.n_evaluations):
            execute_in(session, self._plan, client, task, works, on_receipt)

    def _all_requested(self) -> dict[str, RequestedTrials]:
        """Return the numbers of trials asked for in all panels."""
        requested_here = {
            name: RequestedTrials.of_settings(self._study.panel(name), grid, self._stopped[name])
            for name, grid in self._requested.items()
        }
        return {**self._others, **requested_here}

    def _ask(self, assessed: Mapping[str, Assessment]) -> list[tuple[str, int]]:
        """Ask for trials, the widest first, as far as the budget allows; return panels and cells in this order."""
        entries: list[tuple[float, str, int, int, int]] = []
        for name, assessment in assessed.items():
            self._stopped[name] = assessment.stopped.copy()
            wanted = np.minimum(whole_blocks(self._study.panel(name), assessment.wanted), self._limits[name])
            for cell, k in np.argwhere(assessment.stopped == Stop.NOT_YET):
                if wanted[cell, k] > self._requested[name][cell, k]:
                    entries.append((-assessment.ratios[cell, k], name, int(cell), int(k), int(wanted[cell, k])))
                else:
                    self._stopped[name][cell, k] = Stop.TRIALS_SPENT
        left = self._clock.left
        order: dict[tuple[str, int], None] = {}
        for _, name, cell, k, n_trials in sorted(entries):
            left -= self._clock.seconds(name, n_trials - int(self._requested[name][cell, k]))
            if left < 0:
                self._stopped[name][cell, k] = Stop.TIME_SPENT
            else:
                self._requested[name][cell, k] = n_trials
                order[name, cell] = None
        self._study = self._fitted(self._study)
        return list(order)

    def _fitted(self, study: Study) -> Study:
        """Return the study with trial axes for the asked trials; shorter numbers end with a whole block."""
        axes = {name: max(int(grid.max()), study.panel(name).n_trials) for name, grid in self._requested.items()}
        for name, grid in self._requested.items():
            self._requested[name] = np.minimum(whole_blocks(study.panel(name), grid), axes[name])
        return study.with_trials(axes)
