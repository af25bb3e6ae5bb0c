"""Tests that trials which terminate their worker are isolated one by one; all steps run in this process.

To simulate the end of its worker, a method or a simulation raises an exception that nothing catches.
"""

import random
from collections import Counter, deque
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from pipeline import Factor, Measure, Method, Panel, Study
from pipeline.blocks.evaluate import Block, Status
from pipeline.errors import ExecutionError
from pipeline.execution import tasks
from pipeline.execution.budget import Budget, BudgetError, UnfinishedWork
from pipeline.execution.in_flight import TaskResult
from pipeline.execution.isolate import Isolation
from pipeline.execution.tasks import DATA
from pipeline.execution.work import Task, Work
from pipeline.stores.sessions import Session
from pipeline.stores.store import ResultStore
from tests.pipeline.helpers import compute_into, create_store

pytestmark = pytest.mark.slow  # this file takes half a minute or more

N_TRIALS, N_THREADS = 12, 2


class WorkerEnd(BaseException):
    """Simulated termination of the worker process."""

    def __init__(self, status, setting, trial):
        self.status, self.cause = status, (setting, trial)


class Switch:
    """Trials that terminate their worker, and the statuses that these trials should have."""

    def __init__(self):
        self.statuses, self.together, self.n_flaky = {}, set(), 0

    def look(self, setting, trials):
        for trial in trials:
            if (setting, trial) in self.statuses:
                raise WorkerEnd(self.statuses[setting, trial], setting, trial)
        if setting in self.together and len(trials) > 1:
            raise WorkerEnd(Status.KILLED, setting, None)
        if setting == 0 and self.n_flaky:
            self.n_flaky -= 1
            raise WorkerEnd(Status.KILLED, setting, None)


SWITCH = Switch()


def simulate(cell, streams):
    SWITCH.look(DATA, streams.trials)
    return streams.uniforms(2).sum(axis=1)


def method(setting):
    def evaluate(data, values, streams):
        SWITCH.look(setting, streams.trials)
        return {"x": data + streams.uniforms(1)[:, 0]}

    return evaluate


PANEL = Panel(
    "p",
    "a panel",
    simulate,
    (Method("a", method(0)), Method("b", method(1))),
    (Measure("x", "a number"),),
    (Factor("n", (1, 2), "size", "int"),),
    trials=2 * N_TRIALS,
    block_trials=N_TRIALS,
)
STUDY = Study("isolated", "Isolated", "To be isolated.", (PANEL,), seed=5)
WORK = Work(Block("p", 1, range(N_TRIALS, 2 * N_TRIALS)), (0, 1))


@pytest.fixture(autouse=True)
def switch():
    """Reset the switch: no trial terminates its worker."""
    SWITCH.__init__()
    return SWITCH


class Lab:
    """Store whose tasks run in this process in random order, when their results are collected."""

    def __init__(self, path, session, monkeypatch, seed=0, lifted=False):
        self.store = ResultStore.open(path, session.id)
        self.task = Task(None, str(path), "", session.id)
        self.ends, self.probed, self.jobs, self.order = [], Counter(), deque(), random.Random(seed)
        self.unfinished = UnfinishedWork()
        self.isolation = Isolation(self, self.task, STUDY, Budget(STUDY, lifted), self.unfinished)
        lab = self

        class Local(Task):
            def opened(self):
                return STUDY, lab.store

            def announce(self, *position):
                lab.position = position

        monkeypatch.setattr(tasks, "shipped_task", lambda run, session: Local(None, "", "", session))

    def submit(self, payload, function, *args, **options):
        assert options["priority"] > 0
        self.jobs.append((payload, function, args))

    def wait(self):
        self.jobs.rotate(self.order.randrange(len(self.jobs)))
        payload, function, args = self.jobs.popleft()
        self.position = None
        if function is tasks.probe:
            self.probed.update((args[3], trial) for trial in args[2].trials)
        try:
            result = function.__wrapped__(*args)
        except WorkerEnd as end:
            if end.status == Status.KILLED:
                self.ends.append(end.cause)
            if function is tasks.probe:  # trials after the reported position were not computed
                self.probed.subtract((args[3], trial) for trial in args[2].trials if trial > self.position[0])
            return [TaskResult(payload, status=end.status, position=self.position)]
        return [TaskResult(payload, result)]

    def __len__(self):
        return len(self.jobs)

    def run(self, works=(WORK,)):
        """Isolate the failing trials of some work items, and return the receipts."""
        receipts = []
        self.isolation.suspect(works)
        while len(self.isolation) or self.jobs:
            self.isolation.submit(4)
            for result in self.wait():
                receipts += self.isolation.take(result, N_THREADS)
        return receipts


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    SWITCH.__init__()
    return compute_into(tmp_path_factory.mktemp("whole") / "s.zarr", STUDY)


@pytest.fixture
def lab(tmp_path, monkeypatch, switch):
    create_store(tmp_path / "s.zarr", STUDY)
    with Session.begin(str(tmp_path / "s.zarr"), {}) as session:
        yield Lab(tmp_path / "s.zarr", session, monkeypatch)


def assert_judged(lab, undisturbed, statuses, work=WORK):
    """Assert that all trials have the expected statuses, and successful trials the undisturbed numbers."""
    for k in work.settings:
        setting = PANEL.settings()[k]
        found, expected = (store.read(PANEL, work.block, setting) for store in (lab.store, undisturbed))
        wanted = [statuses.get((DATA, trial)) or statuses.get((k, trial)) or Status.OK for trial in work.block.trials]
        assert found.status.tolist() == wanted
        values = np.where(np.array(wanted) == Status.OK, expected.values["x"], np.nan)
        np.testing.assert_array_equal(found.values["x"], values)
        assert [bool(text) for text in found.error] == [status != Status.OK for status in wanted]


@pytest.mark.parametrize("seed", range(8))
def test_each_trial_gets_its_own_status(lab, undisturbed, seed):
    """For random failing trials and orders, each failing trial ends at most two workers, and no step is repeated."""
    draw = random.Random(seed)
    places = [(k, trial) for k in (DATA, 0, 1) for trial in WORK.block.trials]
    chosen = draw.sample(places, draw.choice([1, 2, 3, 6]))
    kinds = [Status.KILLED] if seed % 2 else [Status.KILLED, Status.TIMED_OUT]
    SWITCH.statuses = {place: draw.choice(kinds) for place in chosen}
    for k, trial in list(SWITCH.statuses):  # if a trial cannot be simulated, no other step of it is reached
        if k != DATA and (DATA, trial) in SWITCH.statuses:
            del SWITCH.statuses[k, trial]
    lab.order = random.Random(seed)
    (receipt,) = lab.run()
    assert_judged(lab, undisturbed, SWITCH.statuses)
    assert receipt.work == WORK
    n_failed = {k: sum(place[0] in (DATA, k) for place in SWITCH.statuses) for k in (0, 1)}
    assert [tally.n_failed for tally in receipt.tallies] == [n_failed[0], n_failed[1]]
    assert max(Counter(lab.ends).values(), default=0) <= 2
    assert max(lab.probed.values(), default=0) <= 1


def test_work_that_returns_at_the_second_attempt_is_stored(lab, undisturbed):
    """If a worker ended for a reason other than a trial, its block is stored after the second attempt."""
    lab.run()
    assert_judged(lab, undisturbed, {})
    assert not lab.ends


@pytest.mark.parametrize("n_flaky", [1, 2])
def test_a_trial_whose_worker_ended_for_another_reason_is_not_killed(lab, undisturbed, n_flaky):
    SWITCH.n_flaky = n_flaky
    SWITCH.statuses = {(1, 14): Status.KILLED}
    lab.order = SimpleNamespace(randrange=lambda n: 0)
    lab.run()
    killed = lab.store.read(PANEL, WORK.block, PANEL.settings()[0]).status == Status.KILLED
    # At the third end in a row, the worker computes no other block.
    assert killed.sum() == (n_flaky == 2)
    if n_flaky == 1:
        assert_judged(lab, undisturbed, SWITCH.statuses)


def test_trials_that_end_their_worker_together_only_are_computed_one_by_one(lab, undisturbed):
    SWITCH.together = {0}
    lab.run()
    assert_judged(lab, undisturbed, {})
    assert len(lab.ends) == 1


def test_setting_that_ends_its_worker_on_all_trials_stops_the_run(lab, undisturbed):
    """If all trials of a setting end their worker, the run stops; trials of other settings stay stored."""
    SWITCH.statuses = {(1, trial): Status.KILLED for trial in WORK.block.trials}
    with pytest.raises(
        BudgetError, match=r"method b of panel p terminated its worker .* on all 10 computed trials"
    ) as caught:
        lab.run()
    assert isinstance(caught.value, ExecutionError)
    assert "--allow-failures" in str(caught.value)
    lab.jobs.clear()
    lab.isolation.record()
    first, second = (lab.store.read(PANEL, WORK.block, setting).status for setting in PANEL.settings())
    assert (first == Status.PENDING).all()
    assert np.count_nonzero(second == Status.KILLED) == 10
    assert np.count_nonzero(second == Status.PENDING) == N_TRIALS - 10


def test_lifted_budget_computes_all_trials(tmp_path, monkeypatch, undisturbed):
    SWITCH.statuses = {(1, trial): Status.KILLED for trial in WORK.block.trials}
    create_store(tmp_path / "s.zarr", STUDY)
    with Session.begin(str(tmp_path / "s.zarr"), {}) as session:
        lab = Lab(tmp_path / "s.zarr", session, monkeypatch, lifted=True)
        lab.run()
        assert_judged(lab, undisturbed, SWITCH.statuses)


def test_returning_trial_lifts_the_budget_of_ended_workers(lab, undisturbed):
    """If one trial returns, the run continues, although all other trials terminate their worker."""
    SWITCH.statuses = {(1, trial): Status.KILLED for trial in WORK.block.trials[1:]}
    lab.run()
    assert_judged(lab, undisturbed, SWITCH.statuses)


def test_a_single_trial_that_exceeds_the_limit_once_has_timed_out(tmp_path, monkeypatch):
    study = replace(STUDY, panels=(replace(PANEL, trials=2, block_trials=1),))
    work = Work(Block("p", 0, range(1, 2)), (0,))
    SWITCH.statuses = {(0, 1): Status.TIMED_OUT}
    create_store(tmp_path / "s.zarr", study)
    with Session.begin(str(tmp_path / "s.zarr"), {}) as session:
        lab = Lab(tmp_path / "s.zarr", session, monkeypatch)
        lab.run([work])
        assert not lab.probed
        assert lab.store.read(study.panels[0], work.block, PANEL.settings()[0]).status.tolist() == [Status.TIMED_OUT]


def test_repeated_ends_before_the_task_leave_work_pending(lab, monkeypatch):
    monkeypatch.setattr(lab, "wait", lambda: [TaskResult(lab.jobs.popleft()[0], status=Status.KILLED)])
    assert lab.run() == []
    with pytest.raises(
        ExecutionError, match="1 blocks remain pending: 10 workers terminated before starting the work item"
    ):
        lab.unfinished.raise_if_any()
    assert (lab.store.read(PANEL, WORK.block, PANEL.settings()[0]).status == Status.PENDING).all()
