"""Seconds per fit of all methods on this machine, which are no part of the stored numbers."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from pipeline import Panel
from pipeline.runs.estimate import seconds_per_trial
from studies.benchmark.compared_panel import ComparedPanel
from studies.benchmark.computation import BenchmarkRun


def measure_seconds(
    run: BenchmarkRun, compared: ComparedPanel, announce: Callable[[str], None]
) -> dict[tuple[str, str, str], float]:
    """Return seconds per fit by (study, panel, method), in the cell that the most methods support.

    Methods of a store of references that this package does not have are omitted.
    """
    declared = next(panel for panel in run.panels if panel.name == compared.panel.name)
    panel = replace(declared, methods=tuple(m for m in declared.methods if m.name in compared.methods))
    study = replace(run.plan.study, panels=(panel,))
    cell = _common_cell(panel)
    # the last setting of each method
    settings = {s.method.name: s for k, s in enumerate(panel.settings()) if panel.applicable[cell, k]}
    seconds = {}
    for name, setting in settings.items():
        announce(f"measuring seconds per fit of {name} in {compared.study}, {panel.name}")
        seconds[compared.study, panel.name, name] = seconds_per_trial(study, panel, cell, setting)
    return seconds


def _common_cell(panel: Panel) -> int:
    """Return the last of the cells with the most applicable settings."""
    counts = panel.applicable.sum(axis=1)
    return int(np.flatnonzero(counts == counts.max())[-1])
