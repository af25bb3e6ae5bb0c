"""Digests of small blocks of panels, to compare processors: ``python -m tests.studies.bits [STUDY/PANEL ...]``."""

import hashlib
import json
import sys

import numpy as np

from pipeline.blocks.evaluate import BUDGET, Block, evaluate_block
from pipeline.blocks.one_thread import one_thread
from studies import STUDIES

N_TRIALS = 2
PANELS = {f"{name}/{panel.name}": panel for name, study in STUDIES.items() for panel in study.panels}


@one_thread()
def digests(names):
    """Return digests of all measures in the first cell of each panel."""
    found = {}
    for name in names:
        panel = PANELS[name]
        block = Block(panel.name, 0, range(1 if panel.trials is None else N_TRIALS))
        outcomes = evaluate_block(STUDIES[name.split("/")[0]], block, panel.settings(), BUDGET)
        for setting, outcome in zip(panel.settings(), outcomes, strict=True):
            for measure, values in (outcome.values | {"status": outcome.status}).items():
                content = np.ascontiguousarray(values).tobytes()
                found[f"{name} {setting.label} {measure}"] = hashlib.sha256(content).hexdigest()
    return found


if __name__ == "__main__":
    json.dump(digests(sys.argv[1:] or [name for name, panel in PANELS.items() if not panel.on_demand]), sys.stdout)
