"""Tests of blocks and plans: blocks cover a study exactly once, and estimates are exact where possible."""

import os
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pipeline.runs.estimate
from pipeline import Factor, Measure, Method
from pipeline.blocks.division import iterate_blocks
from pipeline.blocks.evaluate import Block, Status, evaluate_block
from pipeline.runs.estimate import make_plan, seconds_per_trial
from tests.pipeline.helpers import compute_into, file_stamps, make_study, panel_of
from tests.pipeline.toy import FAULTS, MEANS, STUDY, TABLE


@given(st.integers(1, 60), st.integers(1, 70), st.integers(1, 4))
def test_blocks_cover_each_trial_of_each_cell_once(trials, size, n_cells):
    panel = replace(FAULTS, trials=trials, block_trials=size).with_values("n", range(1, n_cells + 1))
    blocks = list(iterate_blocks(panel))
    covered = [(block.cell, trial) for block in blocks for trial in block.trials]
    assert sorted(covered) == [(cell, trial) for cell in range(n_cells) for trial in range(trials)]
    for block in blocks:
        assert block.panel == "faults"
        assert block.trials.start % size == 0
        assert len(block.trials) == size or block.trials.stop == trials


def test_deterministic_panel_has_one_block_per_cell():
    assert list(iterate_blocks(TABLE)) == [Block("table", 1, range(1)), Block("table", 0, range(1))]


def test_layout_does_not_depend_on_the_machine(monkeypatch):
    before = [list(iterate_blocks(panel)) for panel in STUDY.panels]
    monkeypatch.setattr(os, "cpu_count", lambda: 1000)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(1000)), raising=False)
    monkeypatch.setenv("DASK_NUM_WORKERS", "1000")
    assert [list(iterate_blocks(panel)) for panel in STUDY.panels] == before


def test_a_plan_counts_blocks_and_failures_of_the_pilot_and_writes_nothing(tmp_path, monkeypatch):
    """The pilot of faults has one block of 8 trials in each of two cells."""
    monkeypatch.chdir(tmp_path)
    plans = make_plan(STUDY)
    assert [(p.panel, p.n_cells, p.n_settings, p.n_trials, p.n_blocks, p.failures) for p in plans] == [
        ("means", 2, 7, 6, 4, 0),
        ("faults", 2, 6, 12, 4, 2 * (3 + 2 + 8 + 2)),
        ("table", 2, 2, 1, 2, 0),
        ("single", 1, 1, 5, 3, 0),
    ]
    assert [p.n_piloted for p in plans] == [2, 2, 2, 1]
    assert [bool(p.error) for p in plans] == [False, True, False, False]
    assert all(p.seconds > 0 for p in plans)
    assert file_stamps(tmp_path) == {}


@pytest.mark.parametrize(
    ("panel", "changes"),
    [
        ("means", {}),
        ("faults", {"trials": 20_000, "block_trials": 5_000, "methods": FAULTS.methods[:1]}),
        ("table", {}),
    ],
)
def test_size_is_close_to_that_of_the_files(tmp_path, panel, changes):
    """The planned size is within a factor of 1.3 of that of the files, dominated by metadata or by chunks."""
    study = panel_of(STUDY, panel, **changes)
    (plan,) = make_plan(study)
    store = compute_into(tmp_path / "s.zarr", study)
    sizes = [path.stat().st_size for path in Path(store.url).rglob("*") if path.is_file()]
    assert 1 / 1.3 <= sum(sizes) / plan.n_bytes <= 1.3


def test_expected_error_equals_that_of_the_pilot():
    """The expected Monte Carlo error is the largest one over the cells, settings and outputs of the pilot."""
    study = panel_of(STUDY, "means", trials=1000, block_trials=50)
    (plan,) = make_plan(study)
    panel = study.panel("means")
    spreads = {"estimate": [], "n_above": [], "quantile": []}
    for cell in range(2):
        for outcome in evaluate_block(study, Block("means", cell, range(50)), panel.settings()):
            if (outcome.status == Status.OK).all():
                for name, found in spreads.items():
                    found.append(outcome.values[name].std(axis=0, ddof=1).max())
    assert plan.mcse == {name: pytest.approx(max(found) / np.sqrt(1000)) for name, found in spreads.items()}


def test_expected_error_is_close_to_the_exact_error():
    """The expected Monte Carlo error of a mean of sums of six uniforms is close to the exact error.

    The relative error of the pilot's estimate from 200 trials is at most 1 / sqrt(2 * 199), since uniform tails are
    light.
    """
    study = panel_of(STUDY, "faults", trials=10_000, block_trials=1000, methods=FAULTS.methods[:1])
    (plan,) = make_plan(study)
    exact = np.sqrt(6 / 12) / 100
    error = exact / np.sqrt(2 * 199)
    assert abs(plan.mcse["x"] - exact) < 5 * error
    assert abs(plan.mcse["x"] / np.sqrt(2) - exact) > 5 * error  # negative control: twice the trials


def test_error_of_a_ragged_measure_ignores_padding():
    def evaluate(data, setting, streams):
        x = streams.uniforms(2)
        return {"x": np.where(x < 0.9, x, np.nan)}

    measures, outputs = (Measure("x", "", dims=("bin",), ragged=True),), (Factor("bin", (1, 2), "", "int"),)
    (plan,) = make_plan(make_study(evaluate, measures=measures, outputs=outputs, trials=100, block_trials=100))
    assert 0.01 < plan.mcse["x"] < 0.05


class Clock:
    """Fake clock, which only the study advances."""

    now = 0.0

    def __call__(self):
        return self.now


def plan_linear(monkeypatch, trials, block_trials, start_seconds, trial_seconds, n_outputs=1, n=(1,), **options):
    """Return the plan of a panel whose blocks take a time that is linear in their number of trials and in n."""
    clock = Clock()
    monkeypatch.setattr(pipeline.runs.estimate.time, "perf_counter", clock)

    def simulate(cell, streams):
        clock.now += cell["n"] * (start_seconds + trial_seconds * len(streams.trials))
        return len(streams.trials)

    def evaluate(n_trials, setting, streams):
        return {"x": np.ones((n_trials, n_outputs))}

    outputs = (Factor("bin", tuple(range(n_outputs)), "", "int"),)
    panel = {"measures": (Measure("x", "", dims=("bin",)),), "outputs": outputs, "factors": (Factor("n", n, ""),)}
    study = make_study(evaluate, simulate=simulate, **panel, trials=trials, block_trials=block_trials)
    (plan,) = make_plan(study, **options)
    return plan


@pytest.mark.parametrize("block_trials", [1, 100, 250, 5000])
def test_time_is_exact_if_it_is_linear(monkeypatch, block_trials):
    n_blocks, size = -(-1000 // block_trials), min(block_trials, 1000)
    expected = 3 * 3 * n_blocks * (0.5 + 0.002 * size)
    for pilot_seconds, n_piloted in ((1e9, 3), (0, 1)):
        cells = {"n": (3, 3.0000001, 3.0000002), "pilot_seconds": pilot_seconds}
        plan = plan_linear(monkeypatch, 1000, block_trials, 0.5, 0.002, **cells)
        assert plan.n_piloted == n_piloted
        assert plan.seconds == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("trials", "block_trials", "start_seconds", "trial_seconds", "proposed"),
    [
        (10**6, 100, 1e-4, 1e-6, 5_000),
        (10**6, 1_000, 1e-4, 1e-7, None),  # commits take .3 s in total
        (10**7, 1_000, 1e-4, 1e-7, 10_000),
        (10**6, 100, 1e-4, 1e-4, None),  # commits take .03 of the time
        (10**6, 100, 1e-4, 0.0, 10_000),
        (5_000, 1, 0.0, 1e-5, 500),
        (10**4, 10_000, 0.0, 0.0, None),
        (7_000, 2, 0.0, 1e-9, 7_000),
    ],
)
def test_larger_blocks_are_proposed_if_commits_take_a_tenth_of_the_time(
    monkeypatch, trials, block_trials, start_seconds, trial_seconds, proposed
):
    plan = plan_linear(monkeypatch, trials, block_trials, start_seconds, trial_seconds)
    assert plan.proposed_block == proposed
    assert plan.commit_seconds == pytest.approx(2 * plan.n_blocks * 1.5e-4)
    if proposed is not None:
        assert plan.overhead > 0.1
        larger = plan_linear(monkeypatch, trials, proposed, start_seconds, trial_seconds)
        assert larger.proposed_block is None
        assert larger.commit_seconds < plan.commit_seconds


def test_proposed_blocks_are_within_the_limit_of_their_memory(monkeypatch):
    """A block of the proposed size is accepted, and one trial more would not be."""
    plan = plan_linear(monkeypatch, 10**6, 20, 0.0, 1e-9, n_outputs=10_000)
    assert plan.proposed_block == 2**29 // (8 * 10_000 + 32)


@pytest.mark.parametrize("n_cells", [1, 2, 3, 10, 37, 1000])
def test_the_pilot_spreads_over_the_cells(n_cells):
    order = pipeline.runs.estimate.spread_out(n_cells)
    assert sorted(order) == list(range(n_cells))
    assert order[:2] == [0, n_cells - 1][:n_cells]
    for k in range(2, min(n_cells, 100)):  # remaining gaps differ by a factor of two, up to rounding
        gaps = np.diff(sorted(order[:k]))
        assert gaps.max() <= 2 * gaps.min() + 2
    first = pipeline.runs.estimate.spread_out(n_cells, 50)
    assert first == order[: len(first)]
    assert min(n_cells, 50) <= len(first) <= 51


@pytest.mark.parametrize(
    "panel", [TABLE, MEANS.with_values("n", [4]).with_values("steps", [5]).with_values("algorithm", ["chain"])]
)
def test_plan_of_a_panel_without_trials_or_applicable_settings_has_no_error_and_no_failures(panel):
    (plan,) = make_plan(replace(STUDY, panels=(panel,)))
    assert plan.mcse == {}
    assert plan.failures == 0


def test_settings_apart_are_planned_from_a_few(monkeypatch):
    """The time of seven settings, 1 to 7 seconds per block, is planned from a few of them."""
    clock, evaluated = Clock(), []
    monkeypatch.setattr(pipeline.runs.estimate.time, "perf_counter", clock)

    def evaluate(n, setting, streams):
        clock.now += setting["weight"]
        evaluated.append(setting["weight"])
        return {"x": np.ones(n)}

    study = make_study(
        Method("m", evaluate, uses=("weight",)),
        simulate=lambda cell, streams: len(streams.trials),
        method_factors=(Factor("weight", tuple(range(1, 8)), ""),),
        trials=100,
        block_trials=25,
        settings_apart=True,
    )
    (plan,) = make_plan(study)
    assert plan.seconds == pytest.approx(4 * 28)
    assert (plan.n_timed, plan.n_settings) == (3, 7)
    assert evaluated == [1, 4, 7, 1, 4, 7]


@pytest.mark.slow
def test_seconds_per_trial_are_those_of_the_method_without_the_simulation():
    def simulate(cell, streams):
        time.sleep(0.02 * len(streams.trials))
        return len(streams.trials)

    def evaluate(n_trials, setting, streams):
        time.sleep(0.01 * n_trials)
        return {"x": np.zeros(n_trials)}

    def fail(n_trials, setting, streams):
        raise ValueError("no result")

    methods = Method("slow", evaluate), Method("failing", fail)
    study = make_study(*methods, simulate=simulate, trials=50, block_trials=50)
    (panel,) = study.panels
    slow, failing = panel.settings()
    assert 0.009 < seconds_per_trial(study, panel, 0, slow, seconds=0.2) < 0.03
    assert np.isnan(seconds_per_trial(study, panel, 0, failing, seconds=0.2))
