"""Precision that a store has reached, against the target of its last run until a precision."""

import math
from dataclasses import dataclass

import numpy as np

from pipeline.declare.study import Study
from pipeline.precision.goals import PrecisionGoal
from pipeline.precision.stopping import confidence_sequence, required_trials
from pipeline.precision.targets import CLAIMS, Precision, parse_target
from pipeline.stores.store import ResultStore


@dataclass(frozen=True)
class Reached:
    """Precision of a panel."""

    panel: str
    widest: str  # cell and setting with the largest ratio of error to bound
    precision: Precision  # of this cell and setting
    target: str  # of the run, as given
    n_asked: int  # trials that were asked for, summed over cells and settings
    n_more: int  # further trials, summed likewise, after which every error is at most half the bound

    @property
    def half_width(self) -> float:
        """Half-width of a 95 % interval that holds at every stopping time; see `confidence_sequence`."""
        return confidence_sequence(self.precision.n) * self.precision.error


def reached_precision(store: ResultStore, study: Study) -> list[Reached]:
    """Return the precision of each panel in the target of the last run; an empty list if there was none.

    The study is configured by the stored spec.
    """
    targets = [one["until"] for one in store.sessions if one.get("until", CLAIMS) != CLAIMS]
    if not targets:
        return []
    goal = PrecisionGoal(parse_target(targets[-1]), study)
    trials = {}
    for panel in study.panels:
        if panel.trials is not None:
            recorded = store.asked.get(panel.name)
            whole = np.full((len(panel.cells()), len(panel.settings())), panel.n_trials)
            trials[panel.name] = whole if recorded is None else recorded.by_setting(panel)[0]
    goal.assess(store, study, trials)
    found = []
    for name, asked in trials.items():
        own = {(cell, item): one for (panel, cell, item), one in goal.reached.items() if panel == name}
        finite = {at: one for at, one in own.items() if np.isfinite(one[1].error)}
        if not finite:
            continue
        (cell, item), (_, widest) = max(finite.items(), key=lambda one: one[1][1].ratio)
        more = np.zeros_like(asked)
        for (at, settings), (n, one) in finite.items():
            half = max(2 * one.error / one.bound, one.ratio) if one.bound else math.inf
            extra = max(0, required_trials(n, half) - n)
            for k in settings:
                more[at, k] = max(more[at, k], extra)
        where = study.panel(name).describe(cell, item)
        found.append(Reached(name, where, widest, targets[-1], int(asked.sum()), int(more.sum())))
    return found
