"""Tests that trials which terminate their process or exceed a time limit are isolated one by one."""

import os
import random
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import psutil
import pytest

from pipeline import Factor, Method, run
from pipeline.blocks.evaluate import Block, Status, evaluate_block
from pipeline.declare.source import StudySource, find_study, source_of
from pipeline.errors import ExecutionError
from pipeline.execution import isolate
from pipeline.execution.child import Step
from pipeline.execution.in_flight import TransientError
from pipeline.execution.isolate import Children, End
from pipeline.execution.work import Task, Work
from pipeline.store.datasets import open_results
from tests.pipeline.faults.harness import LOCAL_CLUSTER, wait_until, write_profile
from tests.pipeline.faults.study import METHODS, Part, unequal, write_study
from tests.pipeline.helpers import make_study
from tests.pipeline.toy import STUDY as TOY

N_TRIALS = 12
DATA = -1


def evaluate(data, values, streams):
    return {"x": data + streams.uniforms(1)[:, 0]}


STUDY = make_study(
    *(Method(name, evaluate) for name in "ab"),
    factors=(Factor("n", (1, 2), "size", "int"),),
    trials=2 * N_TRIALS,
    block_trials=N_TRIALS,
)
(PANEL,) = STUDY.panels
WORK = Work(Block("p", 1, range(N_TRIALS, 2 * N_TRIALS)), (0, 1))
UNDISTURBED = evaluate_block(STUDY, WORK.block, PANEL.settings())


class Fake:
    """Computation in this process that ends at given trials, and a number of times for another reason."""

    def __init__(self, statuses, n_flaky=0):
        self.statuses, self.n_flaky, self.ends, self.computed = statuses, n_flaky, Counter(), Counter()

    def __call__(self, step, is_new):
        for k in step.settings or (DATA,):
            for place in [(DATA, trial) for trial in step.block.trials] + [(k, trial) for trial in step.block.trials]:
                if place in self.statuses:
                    self.ends[place] += 1
                    return End(self.statuses[place], "for this reason")
        if self.n_flaky:
            self.n_flaky -= 1
            return End(Status.KILLED, "for another reason")
        if len(step.block.trials) == 1:
            self.computed.update((k, step.block.trials.start) for k in step.settings)
        settings = [PANEL.settings()[k] for k in step.settings]
        return evaluate_block(STUDY, step.block, settings, step.budget) if settings else []

    def isolate(self, work=WORK, budget=100):
        return isolate.isolate(self, PANEL, work, budget)


def assert_judged(outcomes, statuses):
    """Assert that all trials have the expected statuses, and successful trials the undisturbed numbers."""
    for k, (found, expected) in enumerate(zip(outcomes, UNDISTURBED, strict=True)):
        wanted = [statuses.get((DATA, t)) or statuses.get((k, t)) or Status.OK for t in WORK.block.trials]
        assert found.status.tolist() == wanted
        values = np.where(np.array(wanted) == Status.OK, expected.values["x"], np.nan)
        np.testing.assert_array_equal(found.values["x"], values)
        assert [bool(text) for text in found.error] == [status != Status.OK for status in wanted]


@pytest.mark.parametrize("seed", range(20))
def test_each_trial_gets_its_own_status(seed):
    """For random failing trials, no trial ends more than five processes, and no returning trial is repeated."""
    draw = random.Random(seed)
    places = [(k, trial) for k in (DATA, 0, 1) for trial in WORK.block.trials]
    fake = Fake(dict.fromkeys(draw.sample(places, draw.choice([1, 2, 3, 6])), Status.KILLED))
    if seed % 2:
        fake.statuses = {place: draw.choice([Status.KILLED, Status.TIMED_OUT]) for place in fake.statuses}
    assert_judged(fake.isolate(), fake.statuses)
    assert max(fake.ends.values()) <= 5
    assert max(fake.computed.values(), default=0) <= 1


@pytest.mark.parametrize("n_flaky", range(3))
def test_processes_that_end_for_another_reason_do_not_change_statuses(n_flaky):
    """A block and a single trial may each end for a reason that is not a trial's."""
    fake = Fake({(1, 14): Status.KILLED}, n_flaky=n_flaky)
    assert_judged(fake.isolate(), fake.statuses)


def test_block_of_one_trial_exceeds_the_limit_once():
    work = Work(Block("p", 1, range(14, 15)), (0,))
    fake = Fake({(0, 14): Status.TIMED_OUT})
    (outcome,) = fake.isolate(work)
    assert outcome.status.tolist() == [Status.TIMED_OUT]
    assert fake.ends[0, 14] == 1


def test_setting_whose_trials_all_end_their_process_is_skipped_after_ten():
    fake = Fake({(1, trial): Status.KILLED for trial in WORK.block.trials})
    first, second = fake.isolate()
    assert (first.status == Status.OK).all()
    assert second.status.tolist() == [Status.KILLED] * 10 + [Status.PENDING] * 2
    fake = Fake({(DATA, trial): Status.KILLED for trial in WORK.block.trials})
    for outcome in fake.isolate():
        assert outcome.status.tolist() == [Status.KILLED] * 10 + [Status.PENDING] * 2
    assert_judged(fake.isolate(budget=None), fake.statuses)


def test_returning_trial_lifts_the_budget():
    fake = Fake({(1, trial): Status.KILLED for trial in WORK.block.trials[1:]})
    assert_judged(fake.isolate(), fake.statuses)


# Child processes


@pytest.fixture
def start():
    """Return a function that starts child processes of a study, which end with the test."""
    started = []

    def start(study, limit=None, memory=0, n_threads=1):
        source = study if isinstance(study, StudySource) else source_of(study)
        loaded = source.load() if isinstance(study, StudySource) else study
        started.append(Children(Task(source, "nowhere", "", time_limit=limit), loaded, memory, n_threads))
        return started[-1]

    yield start
    for children in started:
        children.close()


FILE_CELL = range(4)


@pytest.fixture
def misbehaving(tmp_path):
    """Return a function that writes a study with failing trials and returns its source."""
    return lambda failing: find_study(str(write_study(tmp_path, failing=failing)), {})


def test_child_process_computes_the_same_bits(start):
    panel = TOY.panel("means")
    block = Block("means", 0, range(panel.block_trials))
    settings = tuple(range(len(panel.settings())))
    found = start(TOY)(Step(block, settings))
    for one, other in zip(found, evaluate_block(TOY, block, panel.settings()), strict=True):
        np.testing.assert_array_equal(one.status, other.status)
        for name, values in other.values.items():
            np.testing.assert_array_equal(one.values[name], values, strict=True)


def test_end_of_a_child_process_is_certain(start, misbehaving):
    children = start(misbehaving({(1, "a", 2): "kill", (1, "b", 2): "exit"}))
    reasons = []
    for k in (0, 1):
        end = children(Step(Block("p", 1, FILE_CELL), (k,)))
        assert end.status == Status.KILLED
        reasons.append(end.reason)
    text = "the process that computed this trial terminated: "
    assert reasons == [f"{text}signal SIGKILL", f"{text}exit code 0"]
    assert children(Step(Block("p", 0, FILE_CELL), (0,)))[0].status.tolist() == [Status.OK] * 4


@pytest.mark.slow
@pytest.mark.parametrize("how", ["sleep", pytest.param("loop", marks=pytest.mark.exhaustive), "lock"])
def test_time_limit_of_a_child_process(start, misbehaving, monkeypatch, how):
    """A worker without a memory limit does not read the memory of its child processes."""
    monkeypatch.delattr(isolate.Child, "_used_memory")
    children = start(misbehaving({(1, "a", 2): how}), limit=1.5)
    assert children(Step(Block("p", 1, FILE_CELL), (0,))).status == Status.TIMED_OUT
    assert isinstance(children(Step(Block("p", 1, FILE_CELL), (1,))), list)


@pytest.mark.slow
def test_memory_of_a_worker_limits_a_child_process(start, misbehaving):
    """A trial may use all memory of the worker, not only the share of its thread."""
    children = start(misbehaving({(1, "a", 2): "memory"}), memory=10**9, n_threads=2)
    end = children(Step(Block("p", 1, FILE_CELL), (0,)))
    assert end.status == Status.KILLED
    assert end.reason == "this trial exceeded the memory limit of its worker, 0.93 GiB"
    children = start(misbehaving({(1, "a", 2): "some memory"}), memory=10**9, n_threads=8)
    assert children(Step(Block("p", 1, FILE_CELL), (0,)))[0].status.tolist() == [Status.OK] * 4


def test_full_memory_of_the_machine_is_no_status(start, misbehaving, monkeypatch):
    counts = iter(range(100))
    monkeypatch.setattr(isolate, "_count_kernel_kills", lambda: next(counts))
    children = start(misbehaving({(1, "a", 2): "kill"}))
    with pytest.raises(TransientError, match="memory of a machine of the cluster is full"):
        children(Step(Block("p", 1, FILE_CELL), (0,)))
    assert children(Step(Block("p", 0, FILE_CELL), (0,)))[0].status.tolist() == [Status.OK] * 4


def test_child_process_without_the_study_is_no_status(start):
    children = start(replace(TOY))
    children._task = replace(children._task, source=StudySource("no_such_module:STUDY"))
    with pytest.raises(TransientError, match=r"cannot load the study: .*no_such_module"):
        children(Step(Block("means", 0, range(2)), (0,)))


CHILD_OF = """
import sys, threading, time
from pipeline.blocks.evaluate import Block
from pipeline.declare.source import find_study
from pipeline.execution.child import Step
from pipeline.execution.isolate import Children
from pipeline.execution.work import Task
source = find_study({file!r}, {{}})
children = Children(Task(source, "x", ""), source.load(), 0, 1)
threading.Thread(target=children, args=(Step(Block("p", 0, range(4)), (0,)),), daemon=True).start()
time.sleep(600)
"""
WORKER_OF = """
import time
from pipeline import run
if __name__ == "__main__":
    run({file!r}, {store!r}, panels=["p"], values={{"n": [0]}}, cluster={profile!r}, progress=False)
"""


@pytest.mark.parametrize("text", [CHILD_OF, pytest.param(WORKER_OF, marks=pytest.mark.slow)], ids=["child", "worker"])
def test_process_that_holds_the_gil_ends_with_the_process_that_started_it(tmp_path, text):
    file = str(write_study(tmp_path, failing={(0, "a", 0): "lock"}))
    kwargs = {"n_workers": 1, "threads_per_worker": 1}
    profile = write_profile(tmp_path, **LOCAL_CLUSTER, kwargs=kwargs)
    script, busy = tmp_path / "driver.py", tmp_path / "busy"
    script.write_text(text.format(file=file, store=str(tmp_path / "s.zarr"), profile=profile))
    with subprocess.Popen([sys.executable, str(script)], env={**os.environ, "PYTHONPATH": os.getcwd()}) as parent:
        try:
            (mark,) = wait_until(lambda: list(busy.iterdir()), "a process that holds the GIL")
            process = psutil.Process(int(mark.name))
        finally:
            parent.kill()
    _, alive = psutil.wait_procs([process], timeout=10)
    assert all(one.status() == psutil.STATUS_ZOMBIE for one in alive)


# Runs

FAILING = {
    (1, "a", 2): "kill",
    (2, "b", 9): "exit",
    (3, "simulate", 5): "kill",
    (5, "a", 0): "raise",
    (6, "a", 7): "segfault",
    (6, "b", 7): "kill",
    (7, "b", 3): "sleep",
}
FAILED = {
    ("p", n, method, trial): {"raise": Status.FAILED, "sleep": Status.TIMED_OUT}.get(how, Status.KILLED)
    for (n, name, trial), how in FAILING.items()
    for method in (METHODS if name == "simulate" else (name,))
}


@pytest.mark.parametrize(
    ("n_threads", "time_limit"),
    [
        (4, None),
        pytest.param(2, 3.0, marks=pytest.mark.slow),
        *(pytest.param(n, 3.0, marks=(pytest.mark.slow, pytest.mark.exhaustive)) for n in (1, 8)),
    ],
)
def test_statuses_do_not_depend_on_the_number_of_threads(tmp_path, n_threads, time_limit):
    """Run a study with failing trials on worker processes, and compare each trial with an undisturbed one."""
    hows = {place: how for place, how in FAILING.items() if time_limit is not None or how != "sleep"}
    if n_threads == 2:  # one trial of each kind, since the test without a limit ends processes in all ways
        hows = {place: how for place, how in hows.items() if place[0] in (1, 3, 5, 7)}
    failed = {place: status for place, status in FAILED.items() if place[1] in {n for n, _, _ in hows}}
    kwargs = {"n_workers": 1 if n_threads == 2 else 2, "threads_per_worker": n_threads}
    profile = write_profile(tmp_path, **LOCAL_CLUSTER, kwargs=kwargs)
    study, store = find_study(str(write_study(tmp_path, failing=hows)), {}), tmp_path / "s.zarr"
    run(study, store, panels=["p"], cluster=profile, time_limit=time_limit, progress=False)
    assert unequal(store, failed, Part(("p",), None, 10)) == ""


@pytest.mark.slow
def test_time_limit_on_threads(tmp_path):
    """On threads, too, a time limit isolates trials that do not return or that terminate their process."""
    study = find_study(str(write_study(tmp_path, failing={(1, "a", 2): "sleep", (0, "b", 1): "exit"})), {})
    options = {"panels": ["p"], "values": {"n": [0, 1]}, "trials": 4, "progress": False}
    store = run(study, tmp_path / "s.zarr", time_limit=1.5, **options)
    failed = {("p", 1, "a", 2): Status.TIMED_OUT, ("p", 0, "b", 1): Status.KILLED}
    assert unequal(store.url, failed, Part(("p",), 2, 4)) == ""


@pytest.mark.slow
def test_time_limit_stops_a_method_that_never_returns(tmp_path):
    failing = {(0, "a", trial): "sleep" for trial in range(10)}
    study = find_study(str(write_study(tmp_path, failing=failing)), {})
    arguments = {"panels": ["p"], "values": {"n": [0]}, "trials": 10, "time_limit": 0.3, "progress": False}
    with pytest.raises(ExecutionError, match=r"method a of panel p failed on all 10 computed trials \(this trial took"):
        run(study, tmp_path / "s.zarr", **arguments)
    status = open_results(tmp_path / "s.zarr")["p"]["status"].to_numpy()
    assert (status[0, 0] == Status.TIMED_OUT).sum() == 10
