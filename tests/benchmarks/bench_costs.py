"""Measure the cost per evaluation of every panel of the studies at both scales, and write ``studies/costs.json``.

Run ``python tests/benchmarks/bench_costs.py [STUDY ...]`` after a change that makes a panel faster or slower; it
measures all studies by default. The costs are seconds of processor time, so that other processes do not change them;
`run all` only uses their ratios. With ``--smallest``, it measures one study, and writes nothing.
"""

import json
import sys
import time

import numpy as np
from measuring import SMALLEST

from pipeline import Study
from pipeline.execution.work import PendingWork
from pipeline.runs import estimate
from pipeline.store.scan.requested import RequestedTrials
from studies import STUDIES
from studies.folders import COSTS, SCALES, at_scale

PILOT_SECONDS = 0.1 if SMALLEST else 20.0  # per study and scale


def measure(name: str, scale: str) -> dict[str, float]:
    """Return the seconds per evaluation of each panel of a study at a scale."""
    configured, requested = at_scale(STUDIES[name], scale)
    n_evaluations = {panel: int(cells.sum()) for panel, cells in PendingWork(configured, None).by_cell().items()}
    costs = {
        plan.panel: plan.seconds / n_evaluations[plan.panel] for plan in estimate.make_plan(configured, PILOT_SECONDS)
    }
    costs |= {panel: mean_cost(configured, panel, numbers) for panel, numbers in requested.items()}
    return {panel: float(f"{cost:.2g}") for panel, cost in costs.items()}


def mean_cost(study: Study, name: str, requested: RequestedTrials) -> float:
    """Return the mean seconds per evaluation of a panel whose cells and settings have different numbers of trials."""
    panel, n_trials = study.panel(name), requested.by_setting(study.panel(name))
    seconds = n_evaluations = 0.0
    for cell, k in np.argwhere(panel.applicable):
        setting, n = panel.settings()[k], n_trials[cell, k]
        seconds += n * estimate.seconds_per_trial(study, panel, int(cell), setting, PILOT_SECONDS / n_trials.size)
        n_evaluations += n * panel.count_positions(setting)
    return seconds / n_evaluations


if __name__ == "__main__":
    estimate.time.perf_counter = time.process_time  # type: ignore[attr-defined]
    costs = json.loads(COSTS.read_text())
    names = ["gibbs-traces"] if SMALLEST else sys.argv[1:] or list(STUDIES)
    for scale in ("quick",) if SMALLEST else SCALES:
        for name in names:
            costs.setdefault(scale, {})[name] = measure(name, scale)
            print(scale, name, costs[scale][name], flush=True)
            if not SMALLEST:
                COSTS.write_text(json.dumps(costs, indent=1) + "\n")
