"""Seconds and memory per fit of all methods on this machine, which are no part of the stored numbers."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from pipeline import Panel
from pipeline.blocks.evaluate import Block
from pipeline.blocks.memory import traced_peak
from pipeline.declare.factors import format_values
from pipeline.runs.estimate import seconds_per_trial
from studies.benchmark.compared_panel import ALL_DATA, ComparedPanel
from studies.benchmark.computation import BenchmarkRun
from studies.benchmark.results import FitCost


def measure_costs(
    run: BenchmarkRun, compared: ComparedPanel, announce: Callable[[str], None]
) -> dict[tuple[str, str, str], FitCost]:
    """Return the costs of a fit by (study, panel, method), in the cell of the own one that the most methods support.

    Methods of a store of references that this package does not have are omitted. If each method is computed apart,
    because one may take minutes, only the own one and the first reference are measured.
    """
    declared = next(panel for panel in run.panels if panel.name == compared.panel.name)
    panel = replace(declared, methods=tuple(m for m in declared.methods if m.name in compared.methods))
    study = replace(run.plan.study, panels=(panel,))
    cell = _common_cell(panel, run.own)
    # the last setting of each method
    settings = {s.method.name: s for k, s in enumerate(panel.settings()) if panel.applicable[cell, k]}
    if panel.settings_apart:
        others = [name for name in settings if name != run.own]
        settings = {name: settings[name] for name in (run.own, *others[:1])}
    label = ", ".join(format_values(panel.cells()[cell])) or ALL_DATA
    costs = {}
    for name, setting in settings.items():
        announce(f"measuring seconds per fit of {name} in {compared.study}, {panel.name}")
        seconds = seconds_per_trial(study, panel, cell, setting)
        peak = None
        if not panel.settings_apart or name == run.own:
            with ThreadPoolExecutor(1) as thread:  # in the main thread, an interrupt would be one by the user
                peak = thread.submit(traced_peak, study, Block(panel.name, cell, range(1)), setting).result()
        costs[compared.study, panel.name, name] = FitCost(seconds, peak, label)
    return costs


def _common_cell(panel: Panel, own: str) -> int:
    """Return the last of those cells of the own method that have the most applicable settings."""
    is_own = [setting.method.name == own for setting in panel.settings()]
    counts = panel.applicable.sum(axis=1) * panel.applicable[:, is_own].any(axis=1)
    return int(np.flatnonzero(counts == counts.max())[-1])
