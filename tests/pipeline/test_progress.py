"""Tests of the progress of a run: evaluations as on the page, and a forecast from the cost of each cell."""

import io
import re
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

import pipeline
from pipeline import Factor, Method
from pipeline.blocks.evaluate import Status, total_by_kind
from pipeline.execution.work import PendingWork
from pipeline.runs import progress
from pipeline.runs.progress import ProgressDisplay, _Costs, format_duration
from pipeline.store.scan.states import count_by_status
from tests.pipeline.helpers import make_study, returns_data


def applies(cell, setting):
    return "a" in setting.values() or cell["n"] > 1


def study_of(validate=applies, name="partly"):
    methods, factors = [Method(name, returns_data) for name in "ab"], (Factor("n", (1, 2, 3), "size", "int"),)
    return make_study(*methods, name=name, factors=factors, trials=20, block_trials=4, validate=validate)


def test_a_run_counts_the_evaluations_of_its_store(tmp_path):
    """A method that does not apply to a cell is not counted, neither before nor after the run."""
    shown = []

    def progress(works):
        shown.append(works.n_evaluations)
        return lambda receipt: shown.append(-receipt.n_done)

    study = study_of()
    store = pipeline.run(study, tmp_path / "s.zarr", progress=progress)
    assert (
        shown[0] == PendingWork(study, None).n_evaluations == sum(total_by_kind([count_by_status(store, "p")])) == 100
    )
    assert sum(shown) == 0
    assert count_by_status(store, "p")[Status.NOT_APPLICABLE] == 20


def test_the_first_work_samples_the_cells_of_every_panel():
    works = list(PendingWork(study_of(), None))
    assert [work.block.cell for work in works[:3]] == [2, 0, 1]
    assert all(work.block.trials.start == 0 for work in works[:3])
    assert len({(work.block.cell, work.block.trials.start) for work in works}) == len(works) == 15


def receipt(panel, cell, seconds, n):
    return SimpleNamespace(
        work=SimpleNamespace(block=SimpleNamespace(panel=panel, cell=cell)), seconds=seconds, n_done=n
    )


def test_forecast_of_cells_with_different_costs_and_setups():
    """Cell c costs 2 ** c ms per evaluation after a setup of 5 s in its first block; two threads work."""
    pending = {"p": np.full(5, 1000), "q": np.full(1, 100)}
    costs = _Costs()
    costs.add(pending)
    assert costs.seconds_left(1.0) is None
    spent = 0.0
    for cell in (0, 4):
        for setup in (5.0, 0.0):
            seconds = setup + 100 * 0.001 * 2**cell
            costs.note(receipt("p", cell, seconds, 100))
            spent += seconds
    assert costs.seconds_left(spent / 2) is None  # panel q has no receipt yet
    costs.note(receipt("q", 0, 1.0, 50))
    spent += 1.0
    expected = (800 * (0.001 + 0.016) + 1000 * (0.002 + 0.004 + 0.008) + 50 * 0.02 + 3 * 5.0) / 2
    assert costs.seconds_left(spent / 2) == pytest.approx(expected)
    by_rate = (spent / 2) * (5100 - 450) / 450
    assert by_rate > 2 * expected  # negative control: a forecast by the mean rate


def test_nothing_left_takes_no_time():
    costs = _Costs()
    costs.add({"p": np.full(1, 10)})
    costs.note(receipt("p", 0, 1.0, 10))
    assert costs.seconds_left(1.0) == 0.0


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "estimating"), (0.4, "0:00:00"), (59.6, "0:01:00"), (36000, "10:00:00")]
)
def test_durations(seconds, text):
    assert format_duration(seconds) == text


def test_several_studies_have_one_forecast(monkeypatch):
    """Blocks of studies that have not begun have the mean cost so far; names of panels may repeat."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    studies = {name: PendingWork(study_of(name=name), None) for name in ("s", "t", "u")}
    text = io.StringIO()
    display = ProgressDisplay(Console(file=text, width=200), studies)

    def run(name, seconds, n_blocks=15):
        works = studies[name]
        take = display.begin(name, f"{name} (of 3)")(works)
        for work in list(works)[:n_blocks]:
            n = len(work.block.trials) * (1 if work.block.cell == 0 else 2)
            now[0] += seconds / 2  # two threads
            take(SimpleNamespace(work=work, seconds=seconds, n_done=n, n_failed=0))

    run("s", 1.0)
    run("t", 4.0, 5)  # interrupted by an error
    run("u", 4.0)
    lines = text.getvalue().splitlines()
    assert lines[0] == "s (of 3): 0 of 300 evaluations, 0 evaluations/s, 0 failed, time left estimating"
    assert lines[1] == "s (of 3), panel p: 76 of 300 evaluations, 15 evaluations/s, 0 failed, time left estimating"
    assert (
        lines[2] == "t (of 3): 100 of 300 evaluations, 13 evaluations/s, 0 failed, time left 0:00:15"
    )  # 30 blocks of 1 s
    first = next(line for line in lines if line.startswith("u"))
    assert first.startswith("u (of 3): 136 of 236 evaluations")
    assert first.endswith("time left 0:00:13")  # 15 blocks, each of (15 + 20) / 20 s
    assert lines[-1].startswith("u (of 3), panel p: 236 of 236 evaluations")
    assert lines[-1].endswith("time left 0:00:00")


@pytest.mark.parametrize("label", ["", "regression-inference (12 of 18)"])
def test_a_bar_of_80_columns_shows_its_numbers(monkeypatch, label):
    """The bar is shortened first; the rate is shown on wider terminals."""
    monkeypatch.setattr(ProgressDisplay, "rate", 14_857.0)
    text = io.StringIO()
    works = PendingWork(study_of(), None)
    display = ProgressDisplay(Console(file=text, width=80, force_terminal=True), {"s": works})
    with display.begin("s", label) as take_works:
        take = take_works(works)
        for work in works:
            n = len(work.block.trials) * (1 if work.block.cell == 0 else 2)
            take(SimpleNamespace(work=work, seconds=1.0, n_done=n, n_failed=0))
    shown = re.sub(r"\x1b\[[^a-zA-Z]*[a-zA-Z]", "", text.getvalue()).splitlines()[-1]
    assert shown.startswith(label or "evaluations")
    assert shown.rstrip().endswith("100/100 0 failed, time left 0:00:00")


def test_receipt_after_the_bar_is_closed():
    """A block that ends after an interruption is counted, and printed as a line."""
    works = PendingWork(study_of(), None)
    text = io.StringIO()
    display = ProgressDisplay(Console(file=text, width=200, force_terminal=True))
    with display:
        take = display(works)
        display.close()
        take(SimpleNamespace(work=next(iter(works)), seconds=1.0, n_done=4, n_failed=0))
    assert display.n_done == 4
    assert "4 of 100 evaluations" in text.getvalue().splitlines()[-1]
