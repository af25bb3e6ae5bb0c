"""Digests of small blocks of every panel, to compare processors: ``python -m tests.studies.bits [STUDY ...]``."""

import hashlib
import json
import sys

import numpy as np

from pipeline.blocks.evaluate import BUDGET, Block, evaluate_block
from studies import STUDIES

N_TRIALS = 2


def digests(names):
    """Return digests of all measures in the first cell of each panel that needs no further data."""
    found = {}
    for name in names:
        for panel in STUDIES[name].panels:
            if not panel.on_demand:
                block = Block(panel.name, 0, range(1 if panel.trials is None else N_TRIALS))
                outcomes = evaluate_block(STUDIES[name], block, panel.settings(), BUDGET)
                for setting, outcome in zip(panel.settings(), outcomes, strict=True):
                    for measure, values in (outcome.values | {"status": outcome.status}).items():
                        content = np.ascontiguousarray(values).tobytes()
                        found[f"{name} {panel.name} {setting.label} {measure}"] = hashlib.sha256(content).hexdigest()
    return found


if __name__ == "__main__":
    json.dump(digests(sys.argv[1:] or list(STUDIES)), sys.stdout)
