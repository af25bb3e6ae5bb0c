"""Seconds per fit of all methods on this machine, which are no part of the stored numbers."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from pipeline import Panel
from pipeline.runs.estimate import seconds_per_trial
from studies.benchmark.computation import BenchmarkRun
from studies.benchmark.panel_trials import PanelTrials


def measure_seconds(run: BenchmarkRun, trials: PanelTrials) -> Iterator[tuple[tuple[str, str, str], float]]:
    """Yield (study, panel, method) and the seconds per fit, in the cell that the most methods support.

    Methods of a store of references that this package does not have are omitted.
    """
    declared = next(panel for panel in run.panels if panel.name == trials.panel.name)
    panel = replace(declared, methods=tuple(m for m in declared.methods if m.name in trials.methods))
    study = replace(run.plan.study, panels=(panel,))
    cell = _common_cell(panel)
    for method in panel.methods:
        chosen = [
            setting
            for k, setting in enumerate(panel.settings())
            if setting.method.name == method.name and panel.applicable[cell, k]
        ]
        if chosen:
            key = trials.study, panel.name, method.name
            yield key, seconds_per_trial(study, panel, cell, chosen[-1])


def _common_cell(panel: Panel) -> int:
    """Return the last of the cells with the most applicable settings."""
    counts = panel.applicable.sum(axis=1)
    return int(np.flatnonzero(counts == counts.max())[-1])
