"""Verification of a store: checksums of all chunks, and comparison of blocks with recomputed values."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice

import numpy as np

from pipeline.blocks.division import iterate_blocks
from pipeline.blocks.evaluate import Block, Outcome, Status, evaluate_block
from pipeline.clusters.cluster import connect
from pipeline.clusters.user_cluster import ClusterChoice, choose_cluster
from pipeline.declare.panel import Panel
from pipeline.declare.source import StudySource
from pipeline.declare.study import Study
from pipeline.errors import BadInputError, Damage, ExecutionError, IncompleteStoreError, StoreAccessError, command
from pipeline.execution.checks import Rerun
from pipeline.execution.child import Step
from pipeline.execution.in_flight import TasksInFlight
from pipeline.execution.isolate import End, children_of
from pipeline.execution.tasks import on_worker, registered, registered_task
from pipeline.execution.work import Task, Work
from pipeline.execution.worker_runs import RUNS
from pipeline.runs.resolve import study_of
from pipeline.store.commit import Planned
from pipeline.store.health import check_block, check_blocks, check_sessions, check_template, invalidate
from pipeline.store.result_store import ResultStore, open_to_change
from pipeline.store.scan.states import blocks_of_others, requested_trials
from pipeline.store.sessions.lease import Session
from pipeline.store.sessions.provenance import describe, now

_BATCH = 64


@dataclass(frozen=True)
class StoreProblem:
    """Damage found in a store."""

    where: str  # panel, cell, setting and trials
    variable: str
    damage: Damage


@dataclass(frozen=True)
class Verification:
    """Result of a verification; blocks are counted once per setting."""

    n_read: int  # committed blocks that were read in full
    n_computed: int
    n_pending: int
    problems: tuple[StoreProblem, ...]


@on_worker
def check_batch(run: str, session: str, batch: Sequence[tuple[Work, bool]]) -> Verification:
    """Check blocks on a worker and recompute some of them; repair them if `session` is not empty."""
    task = registered_task(run, session)
    study, store = task.opened()
    n_read = n_computed = n_pending = 0
    problems: list[StoreProblem] = []
    panels = {panel.name: panel for panel in study.panels}
    settings = [
        (panels[work.block.panel], work.block, panels[work.block.panel].settings()[k])
        for work, _ in batch
        for k in work.settings
    ]
    # a repair may replace chunks that blocks share, so it reads each block when its turn comes
    checks = (check_block(store, *setting) for setting in settings) if session else check_blocks(store, settings)
    for work, is_computed in batch:
        panel = panels[work.block.panel]
        for k in work.settings:
            setting = panel.settings()[k]
            damage, stored = next(checks)
            problems += [
                StoreProblem(_where(panel, work.block, k), name, damage_of_variable)
                for name, damage_of_variable in damage.items()
            ]
            if damage and session:
                invalidate(store, panel, work.block, setting, damage)
            if stored is None:
                n_pending += not damage
                continue
            n_read += 1
            is_repeatable = not setting.method.unseeded
            if not (is_computed and is_repeatable) or np.isin(stored.status, [Status.KILLED, Status.TIMED_OUT]).any():
                continue
            n_computed += 1
            again = Rerun(panel, setting, _recompute(task, study, work.block, k), stored)
            different = Damage("different", again.largest_difference)
            problems += [StoreProblem(_where(panel, work.block, k), name, different) for name in again.differing]
            if again.differing and session:
                with task.writer().commit([Planned(panel, work.block, [setting], [setting])]) as commit:
                    commit.write(panel, work.block, setting, again.computed)
    return Verification(n_read, n_computed, n_pending, tuple(problems))


def _where(panel: Panel, block: Block, k: int) -> str:
    """Return panel, cell, setting and trials as a phrase."""
    return f"{panel.describe(block.cell, (k,))}, trials {block.trials.start}-{block.trials.stop - 1}"


def _recompute(task: Task, study: Study, block: Block, k: int) -> Outcome:
    """Compute a setting of a block again, in a child process if this one has computed trials of the study.

    Numbers that are constant within a process, such as the hash of a text, differ in another one.
    """
    if not RUNS.has_computed(study.name):
        return evaluate_block(study, block, [study.panel(block.panel).settings()[k]])[0]
    reply = children_of(task, study)(Step(block, (k,)))
    if isinstance(reply, End):
        raise ExecutionError(f"{reply.reason} during verification; verify again, for example with --sample 0")
    outcome: Outcome = reply[0]
    return outcome


def verify(
    store: str | os.PathLike[str],
    *,
    sample: int | None = 100,
    seed: int = 0,
    repair: bool = False,
    study: StudySource | Study | str | None = None,
    cluster: ClusterChoice = None,
    accept_edited_study: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Verification:
    """Check every chunk of a store, and recompute `sample` blocks chosen at random with `seed`, or all for None.

    With `repair`, reset damaged blocks to pending, which `resume` computes; rewrite damaged coordinates, metadata and
    root; and replace blocks whose numbers differ from the recomputed ones. `progress` is called with the number of
    checked blocks and the total. Blocks with a killed or timed-out trial, and of methods with `unseeded`, are not
    recomputed. See `pipeline.resume`.

    Blocks are recomputed in another process than the one that computed them, so that numbers which are constant within
    a process are found: the hash of a text (unless ``PYTHONHASHSEED`` fixes it), `id`, or a generator without a seed.
    """
    if sample is not None and sample < 0:
        raise BadInputError(f"the number of blocks to recompute must be >= 0, got {sample}")
    opened = (open_to_change if repair else ResultStore.open)(store, damaged=True)
    source, configured = study_of(opened, study, accept_edited_study)
    if not opened.complete:
        raise IncompleteStoreError(
            f"the creation of the store {store} was interrupted; finish it with: {command('resume', store)}"
        )
    n_blocks = sum(1 for _ in _asked_work(configured, opened))
    rng = np.random.default_rng(seed)
    chosen = None if sample is None else set(rng.choice(n_blocks, min(sample, n_blocks), replace=False).tolist())
    works = enumerate(_asked_work(configured, opened))
    checks = ((work, chosen is None or number in chosen) for number, work in works)
    batches = iter(lambda: list(islice(checks, _BATCH)), [])
    chosen_cluster = choose_cluster(cluster)
    verifications: list[Verification] = []
    n_done = 0
    with connect(chosen_cluster) as client, ExitStack() as stack:
        session, of_sessions = None, check_sessions(opened)  # before this session adds a record
        if repair:
            record = {"profile": chosen_cluster.name, **source.attributes, **describe(source.file), "repaired": True}
            session = stack.enter_context(Session.begin(opened.url, record))
            opened = ResultStore.open(store, session.id, damaged=True)
        of_template = check_template(opened, configured, repair=repair)
        if repair:
            of_sessions = check_sessions(opened, repair=True) | of_sessions
        task = Task(source, opened.url, opened.attributes["spec_sha256"], session.id if session else "")
        stack.enter_context(registered(client, task))
        in_flight = stack.enter_context(TasksInFlight(client))
        window = 2 * max(1, sum(client.nthreads().values()))
        for batch in islice(batches, window):
            in_flight.submit(len(batch), check_batch, task.run, task.session, batch)
        for result in in_flight.results():
            if result.is_lost:
                raise ExecutionError("a worker died during verification; verify again, for example with --sample 0")
            if result.transient:
                raise StoreAccessError(f"cannot read the store {store}: {result.transient}; nothing was changed")
            verifications.append(result.value)
            n_done += result.payload
            if progress is not None:
                progress(n_done, n_blocks)
            for batch in islice(batches, 1):
                in_flight.submit(len(batch), check_batch, task.run, task.session, batch)
        if session is not None:
            session.end({"finished": now()})
    of_store = (of_template | of_sessions).items()
    problems = [StoreProblem(panel or "store", name, damage) for (panel, name), damage in of_store]
    problems += [problem for verification in verifications for problem in verification.problems]
    counts = [(verification.n_read, verification.n_computed, verification.n_pending) for verification in verifications]
    n_read, n_computed, n_pending = np.sum([(0, 0, 0), *counts], axis=0).tolist()
    return Verification(n_read, n_computed, n_pending, tuple(problems))


def _asked_work(study: Study, store: ResultStore) -> Iterator[Work]:
    """Yield every block that a store asks for with the settings for which its trials are asked for."""
    for panel in study.panels:
        requested, others = requested_trials(store, panel), blocks_of_others(store, panel.name)
        for block in iterate_blocks(panel):
            start = block.trials.start
            settings = np.flatnonzero(start < requested[block.cell])
            if settings.size and not others[block.cell, start // panel.block_trials]:
                yield Work(block, tuple(settings.tolist()))
