"""Measure the cost per evaluation of every panel of the studies at both scales, and write ``studies/costs.json``.

Run ``python tests/benchmarks/bench_costs.py [STUDY ...]`` after a change that makes a panel faster or slower; it
measures all studies by default. The costs are seconds of processor time, so that other processes do not change them;
`run all` only uses their ratios. With ``--smallest``, it measures one study, and writes nothing.
"""

import json
import sys
import time

from measuring import SMALLEST

from pipeline.execution.work import PendingWork
from pipeline.runs import estimate
from studies import STUDIES
from studies.folders import COSTS, SCALES, configure

PILOT_SECONDS = 0.1 if SMALLEST else 20.0  # per study and scale


def measure(name: str, scale: str) -> dict[str, float]:
    """Return the seconds per evaluation of each panel of a study at a scale."""
    configured = STUDIES[name].configure(**configure(STUDIES[name], scale))
    n_evaluations = {panel: int(cells.sum()) for panel, cells in PendingWork(configured, None).by_cell().items()}
    plans = estimate.make_plan(configured, PILOT_SECONDS)
    return {plan.panel: float(f"{plan.seconds / n_evaluations[plan.panel]:.2g}") for plan in plans}


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
