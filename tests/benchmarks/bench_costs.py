"""Measure the cost per evaluation of every panel of the studies at both scales, and write ``studies/costs.json``.

Run ``python -m tests.benchmarks.bench_costs`` after a change that makes a panel faster or slower. The costs are seconds
of processor time, so that other processes do not change them; `run all` only uses their ratios.
"""

import json
import sys
import time

from pipeline.execution.work import PendingWork
from pipeline.runs import estimate
from studies import STUDIES
from studies.folders import COSTS, SCALES, configure

PILOT_SECONDS = 20.0  # per study and scale


def measure() -> dict[str, dict[str, dict[str, float]]]:
    """Return seconds per evaluation by scale, study and panel."""
    costs: dict[str, dict[str, dict[str, float]]] = {scale: {} for scale in reversed(SCALES)}
    for scale, by_study in costs.items():
        for name, study in STUDIES.items():
            configured = study.configure(**configure(study, scale))
            counts = {panel: int(cells.sum()) for panel, cells in PendingWork(configured, None).by_cell().items()}
            plans = estimate.make_plan(configured, PILOT_SECONDS)
            by_study[name] = {plan.panel: float(f"{plan.seconds / counts[plan.panel]:.2g}") for plan in plans}
            print(scale, name, by_study[name], file=sys.stderr, flush=True)
    return costs


if __name__ == "__main__":
    estimate.time.perf_counter = time.process_time  # type: ignore[attr-defined]
    COSTS.write_text(json.dumps(measure(), indent=1) + "\n")
