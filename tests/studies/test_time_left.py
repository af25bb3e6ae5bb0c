"""Test of the time left that a run of all studies displays, with a simulated clock."""

import io
import json
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

from pipeline.execution.work import PendingWork
from pipeline.runs import progress
from pipeline.runs.progress import ProgressDisplay
from studies import STUDIES
from studies.folders import COSTS, SCALES, configure, read_costs


@pytest.mark.slow
@pytest.mark.parametrize("scale", SCALES)
def test_every_panel_has_a_stored_cost(scale):
    """Costs of panels that are not stored would be 0; ``bench_costs.py`` writes those of new panels."""
    costs = json.loads(COSTS.read_text())[scale]
    configured = {name: study.configure(**configure(study, scale)) for name, study in STUDIES.items()}
    assert {name: set(by_panel) for name, by_panel in costs.items()} == {
        name: {panel.name for panel in configured[name].panels} for name in costs
    }
    assert all(cost > 0 for by_panel in costs.values() for cost in by_panel.values())
    assert read_costs(scale) == costs
    assert scale != "quick" or costs.keys() == STUDIES.keys()


def simulate(monkeypatch, works_of_studies, costs, rates, rng):
    """Return times and times left, in seconds, of a run whose panels take `costs` per evaluation, within 40 %."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    display = ProgressDisplay(Console(file=io.StringIO()), works_of_studies, rates)
    shown = []
    for name, works in works_of_studies.items():
        take = display.begin(name, name)(works)
        by_panel = {panel: cost * rng.uniform(0.7, 1.4) for panel, cost in costs[name].items()}
        n_of_panel = {panel: by_cell.sum() for panel, by_cell in works.by_cell().items()}
        items = list(works)
        n_blocks = {panel: sum(item.block.panel == panel for item in items) for panel in by_panel}
        for number, item in enumerate(items):
            panel = item.block.panel
            n = int(n_of_panel[panel]) / n_blocks[panel]
            seconds = n * by_panel[panel] * rng.uniform(0.5, 1.5)
            now[0] += seconds / 2  # two threads
            take(SimpleNamespace(work=item, seconds=seconds, n_done=n, n_failed=0))
            if number % (1 + len(items) // 10) == 0:
                planned = display._planned.values()
                cost = None if rates is None else sum(of_study[2] for of_study in planned)
                left = display._costs.seconds_left(now[0], sum(of_study[1] for of_study in planned), cost)
                shown.append((now[0], left))
    return np.array([(at, np.nan if left is None else left) for at, left in shown])


def worst_ratio(times):
    """Return the largest ratio of a forecast to the time left, or its inverse, until the last tenth of the time."""
    at, left = times.T
    inside = (at >= at[-1] / 4) & (at <= 0.9 * at[-1])
    ratio = left[inside] / (at[-1] - at[inside])
    return float(np.max(np.maximum(ratio, 1 / ratio)))


@pytest.mark.slow
def test_time_left_is_right_within_a_factor_of_two_from_the_first_quarter_on(monkeypatch):
    """The machine is three times slower than that of the stored costs, which differ by up to 40 % per panel."""
    quick = {name: PendingWork(study.configure(**configure(study, "quick")), None) for name, study in STUDIES.items()}
    costs = read_costs("quick")
    slower = {name: {panel: 3 * cost for panel, cost in by_panel.items()} for name, by_panel in costs.items()}
    for seed in range(3):
        times = simulate(monkeypatch, quick, slower, costs, np.random.default_rng(seed))
        assert worst_ratio(times) < 2
    study = STUDIES["renyi-logistic"]
    alone = {study.name: PendingWork(study.configure(**configure(study)), None)}
    costs = {study.name: read_costs("published")[study.name]}
    slower[study.name] = {panel: 3 * cost for panel, cost in costs[study.name].items()}
    times = simulate(monkeypatch, alone, slower, costs, np.random.default_rng(3))
    assert worst_ratio(times) < 2
    without = simulate(monkeypatch, quick, slower, None, np.random.default_rng(0))
    assert worst_ratio(without) > 2  # negative control: a forecast by the mean cost of blocks
