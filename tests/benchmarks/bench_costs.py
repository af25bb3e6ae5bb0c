"""Measure the cost per evaluation of every panel of the studies at both scales, and write ``studies/costs.json``.

Run ``python tests/benchmarks/bench_costs.py [STUDY ...]`` after a change that makes a panel faster or slower; it
measures all studies by default. The costs are seconds of processor time, so that other processes do not change them;
the forecasts of runs only use their ratios. With ``--smallest``, it measures one study, and writes nothing.

``python tests/benchmarks/bench_costs.py --store STORE SCALE`` takes the costs of a study from the records of a complete
store instead. A study whose methods take times of several orders of magnitude needs this: a pilot tries few of them.
"""

import json
import sys
import time

import numpy as np
from measuring import SMALLEST

from pipeline.execution.work import PendingWork
from pipeline.runs import estimate
from pipeline.store.result_store import open_complete
from pipeline.store.sessions.costs import MethodCosts
from studies import STUDIES
from studies.folders import COSTS, SCALES, configure

PILOT_SECONDS = 0.1 if SMALLEST else 20.0  # per study and scale


def measure(name: str, scale: str) -> dict[str, float]:
    """Return the seconds per evaluation of each panel of a study at a scale."""
    configured = STUDIES[name].configure(**configure(STUDIES[name], scale))
    n_evaluations = {panel: int(cells.sum()) for panel, cells in PendingWork(configured, None).by_cell().items()}
    plans = estimate.make_plan(configured, PILOT_SECONDS)
    return {plan.panel: float(f"{plan.seconds / n_evaluations[plan.panel]:.2g}") for plan in plans}


def recorded(path: str) -> tuple[str, dict[str, float]]:
    """Return the name of the study of a store, and the recorded seconds per evaluation of each panel."""
    store = open_complete(path)
    by_panel = MethodCosts.of(store.sessions).by_panel
    totals = {panel: np.sum([*costs.values()], axis=0) for panel, costs in by_panel.items()}
    return store.spec["study"], {panel: float(f"{seconds / n:.2g}") for panel, (n, seconds) in totals.items()}


if __name__ == "__main__" and sys.argv[1:2] == ["--store"]:
    costs = json.loads(COSTS.read_text())
    name, by_panel = recorded(sys.argv[2])
    costs[sys.argv[3]][name] = by_panel
    COSTS.write_text(json.dumps(costs, indent=1) + "\n")
elif __name__ == "__main__":
    estimate.time.perf_counter = time.process_time  # type: ignore[attr-defined]
    costs = json.loads(COSTS.read_text())
    names = ["gibbs-traces"] if SMALLEST else sys.argv[1:] or list(STUDIES)
    for scale in ("quick",) if SMALLEST else SCALES:
        for name in names:
            costs.setdefault(scale, {})[name] = measure(name, scale)
            print(scale, name, costs[scale][name], flush=True)
            if not SMALLEST:
                COSTS.write_text(json.dumps(costs, indent=1) + "\n")
